/* SPDX-License-Identifier: Apache-2.0
 * mbsim import FILE: Megatron-LM arguments to a scenario file on standard output. */
#ifndef SIM_CLI_CMD_IMPORT_H
#define SIM_CLI_CMD_IMPORT_H

/* argv[0] is the command's name. Returns the exit code. */
int sim_cmd_import(int argc, char **argv);

#endif
