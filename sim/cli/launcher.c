/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/launcher.h"

#include "sim/base/build.h"
#include "sim/base/log.h"
#include "sim/base/xmem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static coll_world_t *the_world;

static void out_of_memory(void)
{
    fputs("mbsim: out of host memory\n", stderr);
    coll_world_abort(the_world, 1);
}

/* The arguments with blanks between them; the caller frees. */
static char *join_arguments(int argc, char **argv)
{
    size_t n = 1, used = 0;
    for (int i = 1; i < argc; i++)
        n += strlen(argv[i]) + 1;
    char *text = base_xcalloc(n, 1);
    for (int i = 1; i < argc; i++)
        used += (size_t)snprintf(text + used, n - used, "%s%s", i > 1 ? " " : "", argv[i]);
    return text;
}

static base_status_t join_world(int argc, char **argv, base_err_t *err)
{
    char build[BASE_BUILD_TEXT];
    base_build_text(build);
    base_status_t status = coll_world_create(&the_world, build, err);
    if (status != BASE_OK)
        return status;
    char *arguments = join_arguments(argc, argv);
    status = coll_world_compare(the_world, "was given the arguments", arguments, err);
    free(arguments);
    return status;
}

bool sim_launcher_join(int argc, char **argv)
{
    base_err_t err;
    base_status_t status = join_world(argc, argv, &err);
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
