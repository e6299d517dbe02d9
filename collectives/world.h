/* SPDX-License-Identifier: Apache-2.0
 * The processes that play a job's GPUs, and the messages between those GPUs.
 *
 * P processes play W >= P GPUs: process p plays the GPUs from p * W / P up to (p + 1) * W / P.
 * Messages are addressed by GPU. Between GPUs of one process they stay in memory, between processes
 * they are MPI messages. Started without mpirun there is one process, and MPI is never initialised
 * (a singleton's MPI_Init would take a quarter of a second).
 *
 * How a command uses it:
 *   coll_world_create()       first of all, on every process
 *   coll_world_broadcast()    process 0 alone reads files; the others get the text, or nothing
 *                             when reading failed
 *   coll_world_compare()      that all have understood the same
 *   coll_world_set_gpus()
 *   coll_world_send(), coll_world_take(), coll_world_wait()
 *   coll_world_gather()
 *   return coll_world_finish(world, code)   whatever happened before
 * Started by mpirun, a process must come to coll_world_finish() or coll_world_abort() even for a
 * usage error or --help: mpirun 4.1 can hang when 32 processes or more end before MPI_Init.
 *
 * Nobody waits for ever. A process alone knows at once that a message cannot come. Several
 * processes tell process 0 after the deadline (60 s, or MBSIM_WATCHDOG_SECONDS) without any
 * arrival; when all of them wait and no message is under way, everybody's wait ends with
 * BASE_ERR_TIMEOUT, and process 0 has the text that says who waits for whom. After ten deadlines
 * without a sign from anybody process 0 names the processes and hosts that it waits for, and ends
 * the job; after thirty the others do so. MPI's own start and end are bounded by ten. */
#ifndef COLLECTIVES_WORLD_H
#define COLLECTIVES_WORLD_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct coll_world coll_world_t;

typedef enum {
    COLL_MESSAGE_FORWARD,  /* activations to the next pipeline stage */
    COLL_MESSAGE_BACKWARD, /* gradients to the previous pipeline stage */
    COLL_MESSAGE_ARRIVE,   /* a member tells the first GPU of its group that it is there */
    COLL_MESSAGE_RELEASE,  /* the first GPU of a group lets a member go on */
    COLL_N_MESSAGES,
} coll_message_kind_t;

/* All but time_ns must be equal for a message to be the expected one. */
typedef struct {
    uint32_t from, to;   /* GPUs */
    uint16_t kind;       /* coll_message_kind_t */
    uint16_t chunk;      /* model chunk as the receiver counts; topo_group_t for ARRIVE, RELEASE */
    uint32_t iteration;  /* from 1 */
    uint32_t microbatch; /* or a running number within the iteration for ARRIVE, RELEASE */
    uint64_t time_ns;    /* virtual time at the sender; of RELEASE the latest of the group */
} coll_message_t;

/* Joins the MPI job when mpirun or srun started this process, else a world of one. `program` says
 * what this process runs ("mbsim 0.1.0, build 3f2a"). BASE_ERR_INVAL, and the world exists all the
 * same (call coll_world_finish()): for an unusable MBSIM_WATCHDOG_SECONDS, or, on every process
 * alike, when not all processes run the same program. */
base_status_t coll_world_create(coll_world_t **world_p, const char *program, base_err_t *err);

uint32_t coll_world_process(const coll_world_t *world);
uint32_t coll_world_n_processes(const coll_world_t *world);

/* The host that a process (< n_processes) runs on, by name. */
const char *coll_world_host(const coll_world_t *world, uint32_t process);

/* Of a process: its place, from 0, among the *n_p processes of its host. */
uint32_t coll_world_place_on_host(const coll_world_t *world, uint32_t process, uint32_t *n_p);

/* Everybody together: is `text` that of process 0 on every process? Else BASE_ERR_INVAL, on every
 * process alike, with "process 2 on node1 WHAT ..., process 0 on node0 ...", cut to where the texts
 * part. */
base_status_t coll_world_compare(coll_world_t *world, const char *what, const char *text,
                                 base_err_t *err);

/* Process 0's `*data_p` (n bytes, may be NULL) reaches everybody: the others get a copy with a NUL
 * after it, to be freed by them, or NULL. */
void coll_world_broadcast(coll_world_t *world, char **data_p, size_t *n_p);

/* Share out the GPUs, once. BASE_ERR_INVAL, on every process alike, when there are fewer GPUs than
 * processes. */
base_status_t coll_world_set_gpus(coll_world_t *world, uint32_t n_gpus, base_err_t *err);

/* The process that plays `gpu` (< n_gpus), and the GPUs of this process. */
uint32_t coll_world_owner(const coll_world_t *world, uint32_t gpu);
void coll_world_share(const coll_world_t *world, uint32_t *first_gpu_p, uint32_t *n_p);

/* The GPUs of any process; none before they were shared out. */
void coll_world_share_of(const coll_world_t *world, uint32_t process, uint32_t *first_gpu_p,
                         uint32_t *n_p);

/* Send and forget; `message->from` is played here. */
void coll_world_send(coll_world_t *world, const coll_message_t *message);

/* If the message that equals *message but for its time is there, take it, fill in the time and
 * return true. `message->to` is played here. Never blocks. */
bool coll_world_take(coll_world_t *world, coll_message_t *message);

/* Block until at least one of the n expected messages (their times do not matter) can be taken: to
 * be called when every GPU of this process stands still. BASE_ERR_TIMEOUT: it will never come.
 * Process 0 then has the text; on the others err->text says only that. Go to coll_world_finish().
 */
base_status_t coll_world_wait(coll_world_t *world, const coll_message_t *expected, size_t n,
                              base_err_t *err);

typedef struct {
    char *data; /* owned, NUL after it */
    size_t n;
} coll_blob_t;

/* Bring every process's data together: on process 0 *blobs_p is an array of n_processes blobs,
 * freed by coll_blobs_free(); elsewhere NULL. A process calls this when its GPUs are through.
 * BASE_ERR_TIMEOUT as for coll_world_wait(), on process 0 only. */
base_status_t coll_world_gather(coll_world_t *world, const void *data, size_t n,
                                coll_blob_t **blobs_p, base_err_t *err);

/* The same before the GPUs play, any number of times, each time followed by
 * coll_world_broadcast(). Never fails: who does not come is named and the job ended. */
void coll_world_collect(coll_world_t *world, const void *data, size_t n, coll_blob_t **blobs_p);
void coll_blobs_free(coll_blob_t *blobs, uint32_t n);

/* ---- work outside this file in which processes wait for each other ---- */

/* This process cannot go on: all others learn of it with coll_world_is_alarmed(). */
void coll_world_alarm(coll_world_t *world);

/* Whether some process has raised the alarm. Never blocks. */
bool coll_world_is_alarmed(coll_world_t *world);

/* How long a process may wait for another one. */
uint64_t coll_world_limit_ns(const coll_world_t *world);

/* ---- work that is shared out piece by piece, instead of GPUs ---- */

/* Everybody together, once: a counter in process 0's memory that all can reach from outside. */
void coll_world_counter_open(coll_world_t *world);

/* The next number: 0, 1, 2, ..., each to one process alone. */
uint64_t coll_world_counter_next(coll_world_t *world);

/* Hand n bytes to process 0, from any process, itself included. */
void coll_world_post(coll_world_t *world, const void *data, size_t n);

/* Process 0: the next piece that was posted, each process's in its order; false when none has
 * arrived yet. blob_p->data is the caller's to free. Never blocks. What was posted before its
 * sender came to coll_world_gather() has arrived when that returns. */
bool coll_world_fetch(coll_world_t *world, coll_blob_t *blob_p);

/* Everybody ends with process 0's code, which is returned; the world is gone. */
int coll_world_finish(coll_world_t *world, int code);

/* End all processes at once, for what cannot be agreed on. Does not return. */
_Noreturn void coll_world_abort(coll_world_t *world, int code);

/* ---- a group of GPUs meets, and learns the latest virtual time ---- */

typedef struct {
    const uint32_t *gpus; /* the caller's; the same list, in the same order, for every member */
    uint32_t n, me;       /* members; place of this GPU in gpus[] */
    coll_message_t key;   /* chunk, iteration, microbatch; key.time_ns is the result */
    uint32_t n_arrived;
} coll_meeting_t;

/* This GPU arrives at time_ns. `group` (a topo_group_t), `iteration` and `number` tell meetings
 * apart. */
void coll_meeting_begin(coll_meeting_t *meeting, coll_world_t *world, const uint32_t *gpus,
                        uint32_t n, uint32_t me, uint16_t group, uint32_t iteration,
                        uint32_t number, uint64_t time_ns);

/* Whether all have arrived; then *time_ns_p is the latest time. Never blocks. */
bool coll_meeting_test(coll_meeting_t *meeting, coll_world_t *world, uint64_t *time_ns_p);

/* The message for which an unfinished meeting waits, for coll_world_wait(). */
coll_message_t coll_meeting_expected(const coll_meeting_t *meeting);

#endif
