/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "collectives/world.h"

#include "collectives/world_ops.h"
#include "sim/base/xmem.h"
#include "topology/groups.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_DEADLINE_S 60.0
#define MAX_DEADLINE_S     1e6 /* keeps the multiples of it within 64 bits of nanoseconds */

static base_status_t read_deadline(uint64_t *deadline_ns_p, base_err_t *err)
{
    const char *text = getenv("MBSIM_WATCHDOG_SECONDS");
    double seconds = DEFAULT_DEADLINE_S;
    base_status_t status = BASE_OK;
    if (text != NULL) {
        char *end;
        seconds = strtod(text, &end);
        /* The negated form also refuses not-a-number. */
        if (end == text || *end != '\0' || !(seconds > 0 && seconds <= MAX_DEADLINE_S)) {
            status =
                base_err_set(err, BASE_ERR_INVAL,
                             "MBSIM_WATCHDOG_SECONDS: '%.40s' is not a number of seconds above 0 "
                             "and up to %.0f",
                             text, MAX_DEADLINE_S);
            seconds = DEFAULT_DEADLINE_S;
        }
    }
    *deadline_ns_p = (uint64_t)(seconds * 1e9);
    return status;
}

base_status_t coll_world_create(coll_world_t **world_p, const char *program, base_err_t *err)
{
    coll_world_t *world = base_xcalloc(1, sizeof(*world));
    base_err_t unusable;
    base_status_t status = read_deadline(&world->deadline_ns, &unusable);
    world->n_processes = 1;
    world->ops = &coll_world_self;
    if (coll_world_mpi_wanted()) {
        world->ops = &coll_world_mpi;
        coll_world_mpi_start(world);
    }
    world->last_parcel_p = &world->first_parcel;
    *world_p = world;
    base_status_t met = coll_world_meet(world, program, err);
    if (met != BASE_OK)
        return met;
    uint32_t n_unjoined = coll_world_n_unjoined();
    if (n_unjoined > 1)
        return base_err_set(err, BASE_ERR_UNSUPPORTED,
                            "%" PRIu32 " processes, but this mbsim was built without MPI: start "
                            "one, or build it with MPI",
                            n_unjoined);
    if (status != BASE_OK && err != NULL)
        *err = unusable;
    return status;
}

uint32_t coll_world_process(const coll_world_t *world)
{
    return world->process;
}

uint32_t coll_world_n_processes(const coll_world_t *world)
{
    return world->n_processes;
}

void coll_world_broadcast(coll_world_t *world, char **data_p, size_t *n_p)
{
    world->ops->broadcast(world, data_p, n_p);
}

/* The first GPU of a process; of process n_processes, the number of GPUs. */
static uint32_t first_gpu(const coll_world_t *world, uint32_t process)
{
    return (uint32_t)((uint64_t)process * world->n_gpus / world->n_processes);
}

base_status_t coll_world_set_gpus(coll_world_t *world, uint32_t n_gpus, base_err_t *err)
{
    assert(world->n_gpus == 0);
    if (n_gpus < world->n_processes)
        return base_err_set(err, BASE_ERR_INVAL,
                            "%" PRIu32 " MPI processes for a world_size of %" PRIu32
                            " GPUs: start at most %" PRIu32,
                            world->n_processes, n_gpus, n_gpus);
    world->is_shared = true;
    world->n_gpus = n_gpus;
    world->first_gpu = first_gpu(world, world->process);
    world->n_mine = first_gpu(world, world->process + 1) - world->first_gpu;
    world->mailboxes = base_xcalloc(world->n_mine, sizeof(world->mailboxes[0]));
    return BASE_OK;
}

uint32_t coll_world_owner(const coll_world_t *world, uint32_t gpu)
{
    assert(gpu < world->n_gpus);
    /* The last process whose first GPU is not beyond `gpu`. */
    return (uint32_t)((((uint64_t)gpu + 1) * world->n_processes - 1) / world->n_gpus);
}

void coll_world_share(const coll_world_t *world, uint32_t *first_gpu_p, uint32_t *n_p)
{
    *first_gpu_p = world->first_gpu;
    *n_p = world->n_mine;
}

void coll_world_share_of(const coll_world_t *world, uint32_t process, uint32_t *first_gpu_p,
                         uint32_t *n_p)
{
    *first_gpu_p = first_gpu(world, process);
    *n_p = first_gpu(world, process + 1) - *first_gpu_p;
}

void coll_world_alarm(coll_world_t *world)
{
    if (!world->is_alarmed)
        world->ops->alarm(world);
    world->is_alarmed = true;
}

bool coll_world_is_alarmed(coll_world_t *world)
{
    world->ops->poll(world);
    return world->is_alarmed;
}

uint64_t coll_world_limit_ns(const coll_world_t *world)
{
    return COLL_SILENT_DEADLINES * world->deadline_ns;
}

/* ---- work shared out piece by piece ---- */

void coll_world_counter_open(coll_world_t *world)
{
    world->is_shared = true;
    world->ops->counter_open(world);
}

uint64_t coll_world_counter_next(coll_world_t *world)
{
    return world->ops->counter_next(world);
}

void coll_world_keep_parcel(coll_world_t *world, coll_blob_t blob)
{
    coll_parcel_t *parcel = base_xcalloc(1, sizeof(*parcel));
    parcel->blob = blob;
    *world->last_parcel_p = parcel;
    world->last_parcel_p = &parcel->next;
}

void coll_world_post(coll_world_t *world, const void *data, size_t n)
{
    if (world->process == 0)
        coll_world_keep_parcel(world, (coll_blob_t){ .data = coll_copy(data, n), .n = n });
    else
        world->ops->post(world, data, n);
}

bool coll_world_fetch(coll_world_t *world, coll_blob_t *blob_p)
{
    world->ops->poll(world);
    coll_parcel_t *parcel = world->first_parcel;
    if (parcel == NULL)
        return false;
    *blob_p = parcel->blob;
    world->first_parcel = parcel->next;
    if (parcel->next == NULL)
        world->last_parcel_p = &world->first_parcel;
    free(parcel);
    return true;
}

static void free_parcels(coll_world_t *world)
{
    coll_blob_t blob;
    world->ops = &coll_world_self; /* nothing arrives any more */
    while (coll_world_fetch(world, &blob))
        free(blob.data);
}

/* ---- mailboxes ---- */

static coll_mailbox_t *mailbox_of(const coll_world_t *world, uint32_t gpu)
{
    assert(gpu >= world->first_gpu && gpu - world->first_gpu < world->n_mine);
    return &world->mailboxes[gpu - world->first_gpu];
}

void coll_world_deliver(coll_world_t *world, const coll_message_t *message)
{
    coll_mailbox_t *box = mailbox_of(world, message->to);
    if (box->head == box->end)
        box->head = box->end = 0;
    if (box->end == box->capacity) {
        /* Reuse the room before the head when that is at least half. */
        if (box->head > box->capacity / 2) {
            memmove(box->messages, box->messages + box->head,
                    (box->end - box->head) * sizeof(box->messages[0]));
            box->end -= box->head;
            box->head = 0;
        } else {
            box->capacity = box->capacity == 0 ? 8 : box->capacity * 2;
            box->messages = base_xrealloc(box->messages, box->capacity, sizeof(box->messages[0]));
        }
    }
    box->messages[box->end++] = *message;
}

static bool is_expected(const coll_message_t *message, const coll_message_t *expected)
{
    return message->from == expected->from && message->to == expected->to &&
           message->kind == expected->kind && message->chunk == expected->chunk &&
           message->iteration == expected->iteration && message->microbatch == expected->microbatch;
}

/* Index of the expected message in its mailbox, or the mailbox's end. */
static size_t find(const coll_mailbox_t *box, const coll_message_t *expected)
{
    size_t i = box->head;
    while (i < box->end && !is_expected(&box->messages[i], expected))
        i++;
    return i;
}

static bool take(coll_world_t *world, coll_message_t *message)
{
    coll_mailbox_t *box = mailbox_of(world, message->to);
    size_t i = find(box, message);
    if (i == box->end)
        return false;
    message->time_ns = box->messages[i].time_ns;
    memmove(&box->messages[box->head + 1], &box->messages[box->head],
            (i - box->head) * sizeof(box->messages[0]));
    box->head++;
    return true;
}

void coll_world_send(coll_world_t *world, const coll_message_t *message)
{
    if (coll_world_owner(world, message->to) == world->process)
        coll_world_deliver(world, message);
    else
        world->ops->send(world, message);
}

bool coll_world_take(coll_world_t *world, coll_message_t *message)
{
    if (take(world, message))
        return true;
    if (coll_world_owner(world, message->from) == world->process)
        return false;
    world->ops->poll(world);
    return take(world, message);
}

bool coll_world_has_any(const coll_world_t *world, const coll_message_t *expected, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const coll_mailbox_t *box = mailbox_of(world, expected[i].to);
        if (find(box, &expected[i]) < box->end)
            return true;
    }
    return false;
}

base_status_t coll_world_wait(coll_world_t *world, const coll_message_t *expected, size_t n,
                              base_err_t *err)
{
    assert(n > 0);
    if (coll_world_has_any(world, expected, n))
        return BASE_OK;
    return world->ops->wait(world, expected, n, err);
}

base_status_t coll_world_gather(coll_world_t *world, const void *data, size_t n,
                                coll_blob_t **blobs_p, base_err_t *err)
{
    *blobs_p = NULL;
    return world->ops->gather(world, data, n, blobs_p, err);
}

void coll_world_collect(coll_world_t *world, const void *data, size_t n, coll_blob_t **blobs_p)
{
    *blobs_p = NULL;
    world->ops->collect(world, data, n, blobs_p);
}

void coll_blobs_free(coll_blob_t *blobs, uint32_t n)
{
    for (uint32_t i = 0; blobs != NULL && i < n; i++)
        free(blobs[i].data);
    free(blobs);
}

int coll_world_finish(coll_world_t *world, int code)
{
    code = world->ops->finish(world, code);
    free_parcels(world);
    for (uint32_t i = 0; i < world->n_processes; i++)
        free(world->hosts[i]);
    free(world->hosts);
    for (uint32_t i = 0; i < world->n_mine; i++)
        free(world->mailboxes[i].messages);
    free(world->mailboxes);
    free(world);
    return code;
}

void coll_world_abort(coll_world_t *world, int code)
{
    world->ops->abort(world, code);
    _exit(code); /* a pointer cannot say in C11 that its function does not return */
}

char *coll_copy(const void *data, size_t n)
{
    char *copy = base_xcalloc(n + 1, 1);
    if (n > 0)
        memcpy(copy, data, n);
    return copy;
}

static void format_wait(char *buf, size_t size, const coll_message_t *expected)
{
    if (expected->kind == COLL_MESSAGE_FORWARD || expected->kind == COLL_MESSAGE_BACKWARD)
        snprintf(buf, size,
                 "GPU %" PRIu32 " waits for GPU %" PRIu32 ": %s of micro-batch %" PRIu32
                 ", chunk %u, iteration %" PRIu32,
                 expected->to, expected->from,
                 expected->kind == COLL_MESSAGE_FORWARD ? "activations" : "gradients",
                 expected->microbatch, expected->chunk, expected->iteration);
    else
        snprintf(buf, size,
                 "GPU %" PRIu32 " waits for GPU %" PRIu32 ": %s group %s, number %" PRIu32
                 ", iteration %" PRIu32,
                 expected->to, expected->from,
                 expected->kind == COLL_MESSAGE_ARRIVE ? "arrival at" : "release from",
                 expected->chunk < TOPO_N_GROUPS ? topo_group_name(expected->chunk) : "?",
                 expected->microbatch, expected->iteration);
}

typedef struct {
    bool chained; /* the GPU it waits for waits too */
    coll_message_t expected;
} ranked_wait_t;

static int compare_waits(const void *a_p, const void *b_p)
{
    const ranked_wait_t *a = a_p, *b = b_p;
    if (a->chained != b->chained)
        return a->chained ? 1 : -1;
    if (a->expected.iteration != b->expected.iteration)
        return a->expected.iteration < b->expected.iteration ? -1 : 1;
    if (a->expected.microbatch != b->expected.microbatch)
        return a->expected.microbatch < b->expected.microbatch ? -1 : 1;
    return a->expected.to < b->expected.to ? -1 : a->expected.to > b->expected.to;
}

/* The waits, likely beginnings of the trouble first. The caller frees. */
static ranked_wait_t *rank_waits(const coll_message_t *waits, size_t n)
{
    ranked_wait_t *ranked = base_xcalloc(n, sizeof(*ranked));
    for (size_t i = 0; i < n; i++) {
        ranked[i].expected = waits[i];
        for (size_t j = 0; j < n && !ranked[i].chained; j++)
            ranked[i].chained = waits[j].to == waits[i].from;
    }
    qsort(ranked, n, sizeof(*ranked), compare_waits);
    return ranked;
}

void coll_list_waits(char *text, size_t size, const coll_message_t *waits, size_t n, size_t total)
{
    enum { MORE_TEXT = 40 }; /* room kept for the last part */
    ranked_wait_t *ranked = rank_waits(waits, n);
    size_t used = strlen(text), i = 0;
    for (; i < n; i++) {
        char one[200];
        format_wait(one, sizeof(one), &ranked[i].expected);
        if (used + strlen(one) + 2 + MORE_TEXT > size)
            break;
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? "; " : "", one);
    }
    if (i < total)
        snprintf(text + used, size - used, "; and %zu more", total - i);
    free(ranked);
}

/* ---- meetings ---- */

void coll_meeting_begin(coll_meeting_t *meeting, coll_world_t *world, const uint32_t *gpus,
                        uint32_t n, uint32_t me, uint16_t group, uint32_t iteration,
                        uint32_t number, uint64_t time_ns)
{
    assert(me < n);
    *meeting = (coll_meeting_t){ .gpus = gpus, .n = n, .me = me, .n_arrived = 1 };
    meeting->key = (coll_message_t){
        .chunk = group, .iteration = iteration, .microbatch = number, .time_ns = time_ns
    };
    if (me == 0)
        return;
    coll_message_t arrive = meeting->key;
    arrive.from = gpus[me];
    arrive.to = gpus[0];
    arrive.kind = COLL_MESSAGE_ARRIVE;
    coll_world_send(world, &arrive);
}

coll_message_t coll_meeting_expected(const coll_meeting_t *meeting)
{
    coll_message_t expected = meeting->key;
    bool leads = meeting->me == 0;
    expected.kind = leads ? COLL_MESSAGE_ARRIVE : COLL_MESSAGE_RELEASE;
    expected.from = meeting->gpus[leads ? meeting->n_arrived : 0];
    expected.to = meeting->gpus[meeting->me];
    return expected;
}

/* The first GPU collects the arrivals in order and releases everybody. */
static bool test_leader(coll_meeting_t *meeting, coll_world_t *world)
{
    while (meeting->n_arrived < meeting->n) {
        coll_message_t arrive = coll_meeting_expected(meeting);
        if (!coll_world_take(world, &arrive))
            return false;
        if (arrive.time_ns > meeting->key.time_ns)
            meeting->key.time_ns = arrive.time_ns;
        meeting->n_arrived++;
    }
    for (uint32_t i = 1; i < meeting->n; i++) {
        coll_message_t release = meeting->key;
        release.kind = COLL_MESSAGE_RELEASE;
        release.from = meeting->gpus[0];
        release.to = meeting->gpus[i];
        coll_world_send(world, &release);
    }
    return true;
}

bool coll_meeting_test(coll_meeting_t *meeting, coll_world_t *world, uint64_t *time_ns_p)
{
    if (meeting->me == 0) {
        if (!test_leader(meeting, world))
            return false;
        *time_ns_p = meeting->key.time_ns;
        return true;
    }
    coll_message_t release = coll_meeting_expected(meeting);
    if (!coll_world_take(world, &release))
        return false;
    *time_ns_p = release.time_ns;
    return true;
}
