/* SPDX-License-Identifier: Apache-2.0
 * Who the processes are, and whether they are alike. */
#include "config.h"

#include "collectives/world_ops.h"
#include "sim/base/xmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST_TEXT = 65 };

/* ---- hosts ---- */

const char *coll_world_host(const coll_world_t *world, uint32_t process)
{
    return world->hosts[process];
}

uint32_t coll_world_place_on_host(const coll_world_t *world, uint32_t process, uint32_t *n_p)
{
    uint32_t place = 0, n = 0;
    for (uint32_t i = 0; i < world->n_processes; i++) {
        if (strcmp(world->hosts[i], world->hosts[process]) != 0)
            continue;
        place += i < process;
        n++;
    }
    *n_p = n;
    return place;
}

void coll_list_processes(const coll_world_t *world, const bool *is_listed, char *text, size_t size)
{
    enum { MORE_TEXT = 24, ONE_TEXT = HOST_TEXT + 24 };
    size_t used = strlen(text);
    uint32_t n = 0, n_left = 0;
    for (uint32_t i = 0; i < world->n_processes; i++) {
        if (!is_listed[i])
            continue;
        if (n_left > 0 || used + ONE_TEXT + MORE_TEXT > size) {
            n_left++;
            continue;
        }
        used += (size_t)snprintf(text + used, size - used, "%sprocess %" PRIu32 " on %.64s",
                                 n > 0 ? ", " : "", i,
                                 world->hosts != NULL ? world->hosts[i] : "its host");
        n++;
    }
    if (n_left > 0)
        snprintf(text + used, size - used, " and %" PRIu32 " more", n_left);
}

/* Process 0: a host a line. */
static char *join_hosts(const coll_blob_t *blobs, uint32_t n, size_t *n_p)
{
    char *lines = base_xcalloc((size_t)n * (HOST_TEXT + 1) + 1, 1);
    size_t used = 0;
    for (uint32_t i = 0; i < n; i++)
        used += (size_t)sprintf(lines + used, "%.64s\n", blobs[i].data);
    *n_p = used;
    return lines;
}

static void split_hosts(coll_world_t *world, const char *lines)
{
    world->hosts = base_xcalloc(world->n_processes, sizeof(*world->hosts));
    for (uint32_t i = 0; i < world->n_processes; i++) {
        size_t length = strcspn(lines, "\n");
        world->hosts[i] = coll_copy(lines, length);
        lines += length + (lines[length] == '\n');
    }
}

/* ---- are all alike? ---- */

/* From a few characters before the first difference. */
static const char *excerpt(const char *text, size_t at, const char **before_p)
{
    enum { LEAD = 12 };
    *before_p = at > LEAD ? "..." : "";
    return at > LEAD ? text + at - LEAD : text;
}

static void explain(const coll_world_t *world, const char *what, const coll_blob_t *blobs,
                    uint32_t first, uint32_t n_others, base_err_t *err)
{
    const char *mine = blobs[0].data, *other = blobs[first].data;
    const char *mine_before, *other_before;
    char more[64] = "";
    size_t at = 0;
    while (mine[at] != '\0' && mine[at] == other[at])
        at++;
    mine = excerpt(mine, at, &mine_before);
    other = excerpt(other, at, &other_before);
    if (n_others > 1)
        snprintf(more, sizeof(more), "; %" PRIu32 " more differ from it", n_others - 1);
    base_err_set(err, BASE_ERR_INVAL,
                 "process %" PRIu32 " on %.64s %s %s%.80s, process 0 on %.64s %s%.80s%s", first,
                 world->hosts[first], what, other_before, other, world->hosts[0], mine_before, mine,
                 n_others > 1 ? more : "");
}

base_status_t coll_world_compare(coll_world_t *world, const char *what, const char *text,
                                 base_err_t *err)
{
    coll_blob_t *blobs;
    base_err_t difference = { .text = "" };
    coll_world_collect(world, text, strlen(text) + 1, &blobs);
    if (world->process == 0) {
        uint32_t first = 0, n_others = 0;
        for (uint32_t i = world->n_processes - 1; i > 0; i--) {
            if (strcmp(blobs[i].data, blobs[0].data) == 0)
                continue;
            first = i;
            n_others++;
        }
        if (n_others > 0)
            explain(world, what, blobs, first, n_others, &difference);
    }
    coll_blobs_free(blobs, world->n_processes);
    char *verdict = difference.text;
    size_t n = strlen(verdict);
    coll_world_broadcast(world, &verdict, &n);
    base_status_t status = n > 0 ? base_err_set(err, BASE_ERR_INVAL, "%s", verdict) : BASE_OK;
    if (verdict != difference.text)
        free(verdict);
    return status;
}

base_status_t coll_world_meet(coll_world_t *world, const char *program, base_err_t *err)
{
    char host[HOST_TEXT] = "";
    if (gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0')
        strcpy(host, "localhost");
    coll_blob_t *blobs;
    char *lines = NULL;
    size_t n = 0;
    coll_world_collect(world, host, sizeof(host), &blobs);
    if (world->process == 0)
        lines = join_hosts(blobs, world->n_processes, &n);
    coll_blobs_free(blobs, world->n_processes);
    coll_world_broadcast(world, &lines, &n);
    split_hosts(world, lines);
    free(lines);
    world->ops->met(world);
    return coll_world_compare(world, "runs", program, err);
}
