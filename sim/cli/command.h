/* SPDX-License-Identifier: Apache-2.0
 * One command of mbsim. To add one: write cmd_<name>.c, declare its function here, and add a line
 * to the table in commands.c. */
#ifndef SIM_CLI_COMMAND_H
#define SIM_CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

/* argv[0] is the command's name. Returns the exit code: 0 done, 1 failed while running, 2 wrong
 * usage or input, 3 out of memory predicted, 4 threshold missed. */
typedef int (*sim_command_f)(int argc, char **argv);

typedef struct {
    const char *name;
    const char *arguments; /* for the list of commands */
    const char *about;     /* one line */
    sim_command_f run;
    bool every_process; /* under mpirun: played by all together; else process 0 alone runs it */
} sim_command_t;

const sim_command_t *sim_commands(size_t *n_p);

int sim_cmd_run(int argc, char **argv);
int sim_cmd_replay(int argc, char **argv);
int sim_cmd_import(int argc, char **argv);
int sim_cmd_sweep(int argc, char **argv);
int sim_cmd_diff(int argc, char **argv);
int sim_cmd_advise(int argc, char **argv);
int sim_cmd_merge(int argc, char **argv);
int sim_cmd_estimate(int argc, char **argv);
int sim_cmd_validate(int argc, char **argv);
int sim_cmd_keys(int argc, char **argv);
int sim_cmd_models(int argc, char **argv);
int sim_cmd_gpus(int argc, char **argv);
int sim_cmd_topo(int argc, char **argv);
int sim_cmd_diagnose(int argc, char **argv);
int sim_cmd_help(int argc, char **argv);

#endif
