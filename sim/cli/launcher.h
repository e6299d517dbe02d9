/* SPDX-License-Identifier: Apache-2.0
 * What mpirun or srun says about this process before MPI is started. */
#ifndef SIM_CLI_LAUNCHER_H
#define SIM_CLI_LAUNCHER_H

/* Rank in the world that the launcher made; 0 without one. */
int sim_launcher_rank(void);

#endif
