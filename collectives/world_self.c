/* SPDX-License-Identifier: Apache-2.0
 * A world of one process: every message is local. */
#include "config.h"

#include "collectives/world_ops.h"
#include "sim/base/xmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void self_broadcast(coll_world_t *world, char **data_p, size_t *n_p)
{
    (void)world;
    (void)data_p;
    (void)n_p;
}

static void self_send(coll_world_t *world, const coll_message_t *message)
{
    coll_world_deliver(world, message);
}

static void self_poll(coll_world_t *world)
{
    (void)world;
}

/* Nothing can arrive while the only process waits. */
static base_status_t self_wait(coll_world_t *world, const coll_message_t *expected, size_t n,
                               base_err_t *err)
{
    (void)world;
    char text[sizeof(err->text)] = "deadlock: ";
    coll_list_waits(text, sizeof(text), expected, n, n);
    return base_err_set(err, BASE_ERR_TIMEOUT, "%s", text);
}

static void self_collect(coll_world_t *world, const void *data, size_t n, coll_blob_t **blobs_p)
{
    (void)world;
    *blobs_p = base_xcalloc(1, sizeof(**blobs_p));
    (*blobs_p)[0] = (coll_blob_t){ .data = coll_copy(data, n), .n = n };
}

static base_status_t self_gather(coll_world_t *world, const void *data, size_t n,
                                 coll_blob_t **blobs_p, base_err_t *err)
{
    (void)err;
    self_collect(world, data, n, blobs_p);
    return BASE_OK;
}

static void self_alarm(coll_world_t *world)
{
    (void)world;
}

static void self_met(coll_world_t *world)
{
    (void)world;
}

static void self_counter_open(coll_world_t *world)
{
    world->counter = 0;
}

static uint64_t self_counter_next(coll_world_t *world)
{
    return world->counter++;
}

/* Never called: the only process is process 0. */
static void self_post(coll_world_t *world, const void *data, size_t n)
{
    coll_world_keep_parcel(world, (coll_blob_t){ .data = coll_copy(data, n), .n = n });
}

static int self_finish(coll_world_t *world, int code)
{
    (void)world;
    return code;
}

static _Noreturn void self_abort(coll_world_t *world, int code)
{
    (void)world;
    exit(code);
}

const coll_world_ops_t coll_world_self = {
    .name = "self",
    .broadcast = self_broadcast,
    .send = self_send,
    .poll = self_poll,
    .wait = self_wait,
    .gather = self_gather,
    .collect = self_collect,
    .alarm = self_alarm,
    .met = self_met,
    .counter_open = self_counter_open,
    .counter_next = self_counter_next,
    .post = self_post,
    .finish = self_finish,
    .abort = self_abort,
};
