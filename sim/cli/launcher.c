/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/launcher.h"

#include "sim/base/log.h"
#include "sim/base/xmem.h"

#include <stdio.h>
#include <stdlib.h>

static coll_world_t *the_world;

static void out_of_memory(void)
{
    fputs("mbsim: out of host memory\n", stderr);
    coll_world_abort(the_world, 1);
}

bool sim_launcher_join(void)
{
    base_err_t err;
    base_status_t status = coll_world_create(&the_world, &err);
    base_xmem_set_hook(out_of_memory);
    base_log_init(BASE_LOG_WARN, sim_launcher_rank());
    if (status != BASE_OK)
        base_log(BASE_LOG_ERROR, "%s", err.text);
    /* Results are process 0's; whatever the others would print is a copy. */
    if (sim_launcher_rank() != 0 && freopen("/dev/null", "w", stdout) == NULL)
        fclose(stdout);
    return status == BASE_OK;
}

coll_world_t *sim_launcher_world(void)
{
    return the_world;
}

int sim_launcher_rank(void)
{
    return (int)coll_world_process(the_world);
}

int sim_launcher_leave(int code)
{
    coll_world_t *world = the_world;
    the_world = NULL;
    return coll_world_finish(world, code);
}
