/* SPDX-License-Identifier: Apache-2.0
 * Stands in for world_mpi.c in a build without MPI. */
#include "config.h"

#include "collectives/world_ops.h"

#include <stdlib.h>

const coll_world_ops_t coll_world_mpi = { .name = "none" };

bool coll_world_mpi_wanted(void)
{
    return false;
}

void coll_world_mpi_start(coll_world_t *world)
{
    (void)world;
}

/* Several processes that know nothing of each other would each play the whole job. */
uint32_t coll_world_n_unjoined(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                         "SLURM_STEP_NUM_TASKS" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);
        if (text != NULL && atol(text) > 1)
            return (uint32_t)atol(text);
    }
    return 0;
}
