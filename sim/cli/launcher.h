/* SPDX-License-Identifier: Apache-2.0
 * The processes that mpirun or srun started together; main joins them first of all. */
#ifndef SIM_CLI_LAUNCHER_H
#define SIM_CLI_LAUNCHER_H

#include "collectives/world.h"

/* Join, mute standard output on all but process 0, and make running out of host memory end every
 * process. False, with the reason printed, when that cannot be, or when not all processes are the
 * same mbsim with the same arguments; call sim_launcher_leave() anyway. */
bool sim_launcher_join(int argc, char **argv);

/* The world of this run; a world of one without a launcher. */
coll_world_t *sim_launcher_world(void);

/* Rank of this process in it. */
int sim_launcher_rank(void);

/* Leave: every process gets process 0's exit code, which is returned. */
int sim_launcher_leave(int code);

#endif
