/* SPDX-License-Identifier: Apache-2.0
 * A world of MPI processes. Everything but the first broadcast is point to point and polled with
 * pauses, so that a process that waits leaves its core to the others and always hears the watchdog.
 *
 * The watchdog is process 0. A process that waits longer than the deadline reports to it what it
 * waits for, and how many messages it has sent to and received from other processes; it reports
 * again when it goes on. When every process is stalled or done and as many messages were received
 * as sent, none is under way and nobody will ever go on. */
#include "config.h"

#include "collectives/world_ops.h"
#include "sim/base/xmem.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    TAG_MESSAGE = 1,
    TAG_REPORT,
    TAG_VERDICT,
    TAG_BLOB,
    TAG_PARCEL,
    TAG_CODE,
    TAG_BYE,
    TAG_ALARM
};

/* Deadlines before a process gives up on the watchdog. */
enum { ORPHAN_DEADLINES = 30 };

typedef enum { PLAYING, STALLED, DONE } phase_t;

/* What process 0 waits for. */
typedef enum { AWAIT_PLAY, AWAIT_BLOBS, AWAIT_BYES } await_t;

enum { REPORT_WAITS = 4 };
typedef struct {
    uint64_t n_sent, n_received;
    uint64_t n_waits; /* of which the first REPORT_WAITS follow */
    coll_message_t waits[REPORT_WAITS];
    uint32_t phase; /* phase_t */
    uint32_t padding;
} report_t;

typedef struct {
    MPI_Request *requests; /* sends under way */
    void **buffers;        /* their data, owned */
    int n_sends, capacity;
    uint64_t n_sent, n_received; /* messages to and from other processes */
    uint64_t n_arrivals;         /* messages and blobs */
    uint64_t n_signs;            /* anything */
    bool verdict, have_code;
    int code;
    report_t mine;
    MPI_Win counter_window; /* MPI_WIN_NULL until it is opened */
    /* Process 0 only. */
    await_t await;
    report_t *reports;
    coll_blob_t *blobs;
    bool *has_left; /* said goodbye */
    uint32_t n_blobs, n_byes;
} mpi_state_t;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Let others run: at first a yield, which is fast, then longer and longer sleeps. */
static void pause_poll(unsigned *n_pauses_p)
{
    enum { YIELDS = 20, STEP_NS = 20000, MAX_STEPS = 25 };
    unsigned n = (*n_pauses_p)++;
    if (n < YIELDS) {
        sched_yield();
        return;
    }
    unsigned steps = n - YIELDS + 1 < MAX_STEPS ? n - YIELDS + 1 : MAX_STEPS;
    nanosleep(&(struct timespec){ .tv_nsec = (long)(steps * STEP_NS) }, NULL);
}

/* ---- start ---- */

bool coll_world_mpi_wanted(void)
{
    /* Set by Open MPI's mpirun, by MPICH's, and by whatever starts processes through PMIx. */
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMI_RANK") != NULL ||
           getenv("PMIX_RANK") != NULL;
}

uint32_t coll_world_n_unjoined(void)
{
    return 0;
}

/* MPI_Init and MPI_Finalize wait for every process without end: a timer ends the job when one of
 * them never comes. Process 0 speaks, if it can; the others leave it time to. A short watchdog is
 * no measure here: a busy machine alone may take seconds to start a process. */
#define LEAST_BOUND_NS UINT64_C(30000000000)
static char bound_text[200];

static void on_bound(int number)
{
    (void)number;
    if (write(STDERR_FILENO, bound_text, strlen(bound_text)) < 0)
        _exit(2);
    _exit(1);
}

static void set_timer(uint64_t ns)
{
    uint64_t us = ns / 1000;
    struct itimerval timer = { .it_value = { .tv_sec = (time_t)(us / 1000000),
                                             .tv_usec = (suseconds_t)(us % 1000000) } };
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void bound_begin(const char *what, uint32_t process, uint64_t limit_ns)
{
    bound_text[0] = '\0';
    if (limit_ns < LEAST_BOUND_NS)
        limit_ns = LEAST_BOUND_NS;
    if (process <= 1)
        snprintf(bound_text, sizeof(bound_text),
                 "mbsim: %s: for %.3g s a process has not come: it is stopped, or its host or "
                 "network is lost\n",
                 what, (double)limit_ns / 1e9);
    signal(SIGALRM, on_bound);
    set_timer(limit_ns + (process < 2 ? process : 2) * (limit_ns / 4));
}

static void bound_end(void)
{
    set_timer(0);
    signal(SIGALRM, SIG_DFL);
}

/* Open MPI's processes wait for each other in MPI_Init by sleeping for moments. With more of them
 * than cores that alone keeps the cores busy; a wide timer slack makes the moments coarser.
 * Measured with 64 processes on 2 cores: 2.9 s without, 2.4 s with. */
static void init_mpi(uint64_t limit_ns)
{
    enum { SLACK_NS = 10000000 };
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    bool crowded = text != NULL && atol(text) > sysconf(_SC_NPROCESSORS_ONLN);
    if (crowded)
        prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS, 0, 0, 0);
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    bound_begin("MPI does not start", rank != NULL ? (uint32_t)atol(rank) : 0, limit_ns);
    MPI_Init(NULL, NULL);
    bound_end();
    if (crowded)
        prctl(PR_SET_TIMERSLACK, 0UL, 0, 0, 0); /* back to the default */
}

void coll_world_mpi_start(coll_world_t *world)
{
    int rank, size;
    init_mpi(coll_world_limit_ns(world));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    world->process = (uint32_t)rank;
    world->n_processes = (uint32_t)size;
    mpi_state_t *state = base_xcalloc(1, sizeof(*state));
    world->state = state;
    state->counter_window = MPI_WIN_NULL;
    if (rank == 0) {
        state->reports = base_xcalloc(world->n_processes, sizeof(state->reports[0]));
        state->blobs = base_xcalloc(world->n_processes, sizeof(state->blobs[0]));
        state->has_left = base_xcalloc(world->n_processes, sizeof(state->has_left[0]));
    }
}

static _Noreturn void mpi_abort(coll_world_t *world, int code)
{
    (void)world;
    MPI_Abort(MPI_COMM_WORLD, code);
    _exit(code); /* MPI_Abort is not declared as not returning */
}

/* ---- sending ---- */

/* Forget the sends that are complete. */
static void reap_sends(mpi_state_t *state)
{
    int kept = 0;
    for (int i = 0; i < state->n_sends; i++) {
        int complete;
        MPI_Test(&state->requests[i], &complete, MPI_STATUS_IGNORE);
        if (complete) {
            free(state->buffers[i]);
            continue;
        }
        state->requests[kept] = state->requests[i];
        state->buffers[kept++] = state->buffers[i];
    }
    state->n_sends = kept;
}

static void post(coll_world_t *world, int process, int tag, const void *data, size_t n)
{
    mpi_state_t *state = world->state;
    if (n > INT_MAX) {
        fprintf(stderr, "mbsim: %zu bytes are too many for one MPI message\n", n);
        mpi_abort(world, 1);
    }
    if (state->n_sends == state->capacity)
        reap_sends(state);
    if (state->n_sends == state->capacity) {
        state->capacity = state->capacity == 0 ? 16 : state->capacity * 2;
        state->requests =
            base_xrealloc(state->requests, (size_t)state->capacity, sizeof(MPI_Request));
        state->buffers = base_xrealloc(state->buffers, (size_t)state->capacity, sizeof(void *));
    }
    void *copy = coll_copy(data, n);
    state->buffers[state->n_sends] = copy;
    MPI_Isend(copy, (int)n, MPI_BYTE, process, tag, MPI_COMM_WORLD,
              &state->requests[state->n_sends++]);
}

static void mpi_send(coll_world_t *world, const coll_message_t *message)
{
    mpi_state_t *state = world->state;
    state->n_sent++;
    post(world, (int)coll_world_owner(world, message->to), TAG_MESSAGE, message, sizeof(*message));
}

/* ---- receiving ---- */

static void receive(coll_world_t *world, const MPI_Status *status)
{
    mpi_state_t *state = world->state;
    int n;
    MPI_Get_count(status, MPI_BYTE, &n);
    char *data = base_xcalloc((size_t)n + 1, 1);
    MPI_Recv(data, n, MPI_BYTE, status->MPI_SOURCE, status->MPI_TAG, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    state->n_signs++;
    switch (status->MPI_TAG) {
    case TAG_MESSAGE: {
        coll_message_t message;
        memcpy(&message, data, sizeof(message));
        coll_world_deliver(world, &message);
        state->n_received++;
        state->n_arrivals++;
        break;
    }
    case TAG_REPORT:
        memcpy(&state->reports[status->MPI_SOURCE], data, sizeof(report_t));
        break;
    case TAG_VERDICT:
        state->verdict = true;
        break;
    case TAG_BLOB:
        state->blobs[status->MPI_SOURCE] = (coll_blob_t){ .data = data, .n = (size_t)n };
        state->n_blobs++;
        state->n_arrivals++;
        return; /* the data is kept */
    case TAG_PARCEL:
        coll_world_keep_parcel(world, (coll_blob_t){ .data = data, .n = (size_t)n });
        return; /* the data is kept */
    case TAG_ALARM:
        world->is_alarmed = true;
        break;
    case TAG_CODE:
        memcpy(&state->code, data, sizeof(state->code));
        state->have_code = true;
        break;
    case TAG_BYE:
        state->has_left[status->MPI_SOURCE] = true;
        state->n_byes++;
        break;
    }
    free(data);
}

static void mpi_poll(coll_world_t *world)
{
    for (;;) {
        int there;
        MPI_Status status;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &status);
        if (!there)
            return;
        receive(world, &status);
    }
}

/* ---- patience ---- */

static bool is_silent(const mpi_state_t *state, uint32_t process)
{
    switch (state->await) {
    case AWAIT_BLOBS:
        return state->blobs[process].data == NULL;
    case AWAIT_BYES:
        return !state->has_left[process];
    case AWAIT_PLAY:
        break;
    }
    return state->reports[process].phase == PLAYING;
}

/* A process that neither works nor reports cannot be ended in agreement. */
static _Noreturn void give_up(coll_world_t *world, uint64_t silent_ns)
{
    const mpi_state_t *state = world->state;
    char text[1024] = "process 0 on ";
    if (world->process == 0) {
        bool *is_listed = base_xcalloc(world->n_processes, sizeof(*is_listed));
        for (uint32_t i = 1; i < world->n_processes; i++)
            is_listed[i] = is_silent(state, i);
        text[0] = '\0';
        coll_list_processes(world, is_listed, text, sizeof(text));
    } else {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s",
                 world->hosts != NULL ? world->hosts[0] : "its host");
    }
    fprintf(stderr,
            "mbsim: process %" PRIu32 ": no sign of life for %.3g s from %s: stopped, or the host "
            "or the network is lost\n",
            world->process, (double)silent_ns / 1e9, text);
    mpi_abort(world, 1);
}

/* One wait of this process, as the watchdog sees it. */
typedef struct {
    uint64_t since_ns, sign_ns; /* last arrival, last sign of anybody */
    uint64_t n_arrivals, n_signs;
    unsigned n_pauses;
} patience_t;

static patience_t patience_begin(const mpi_state_t *state)
{
    uint64_t now = now_ns();
    return (patience_t){
        .since_ns = now, .sign_ns = now, .n_arrivals = state->n_arrivals, .n_signs = state->n_signs
    };
}

/* Pause; the end of the job when there was no sign of anybody for too long. Of those who miss
 * process 0 the lower ones speak first, and then the others are gone. */
static void endure(coll_world_t *world, patience_t *p)
{
    const mpi_state_t *state = world->state;
    uint64_t now = now_ns(), limit = coll_world_limit_ns(world);
    if (world->process != 0)
        limit = ORPHAN_DEADLINES * world->deadline_ns + (world->process - 1) * world->deadline_ns;
    if (state->n_signs != p->n_signs) {
        p->n_signs = state->n_signs;
        p->sign_ns = now;
    }
    if (now - p->sign_ns > limit)
        give_up(world, now - p->sign_ns);
    pause_poll(&p->n_pauses);
}

static void wait_request(coll_world_t *world, MPI_Request *request)
{
    patience_t patience = patience_begin(world->state);
    for (;;) {
        int complete;
        MPI_Test(request, &complete, MPI_STATUS_IGNORE);
        if (complete)
            return;
        endure(world, &patience);
    }
}

static void mpi_broadcast(coll_world_t *world, char **data_p, size_t *n_p)
{
    enum { PIECE = 1 << 30 };
    MPI_Request request;
    bool root = world->process == 0;
    uint64_t n = root && *data_p != NULL ? *n_p : UINT64_MAX;
    MPI_Ibcast(&n, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD, &request);
    wait_request(world, &request);
    if (n == UINT64_MAX) {
        if (!root)
            *data_p = NULL;
        return;
    }
    if (!root) {
        *data_p = base_xcalloc((size_t)n + 1, 1);
        *n_p = (size_t)n;
    }
    for (uint64_t at = 0; at < n; at += PIECE) {
        int length = (int)(n - at < PIECE ? n - at : PIECE);
        MPI_Ibcast(*data_p + at, length, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
        wait_request(world, &request);
    }
}

/* ---- work shared out piece by piece ---- */

static void mpi_counter_open(coll_world_t *world)
{
    mpi_state_t *state = world->state;
    uint64_t *counter;
    MPI_Aint bytes = world->process == 0 ? (MPI_Aint)sizeof(*counter) : 0;
    MPI_Win_allocate(bytes, sizeof(*counter), MPI_INFO_NULL, MPI_COMM_WORLD, &counter,
                     &state->counter_window);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, state->counter_window);
    if (world->process == 0) {
        const uint64_t zero = 0;
        MPI_Put(&zero, 1, MPI_UINT64_T, 0, 0, 1, MPI_UINT64_T, state->counter_window);
        MPI_Win_flush(0, state->counter_window);
    }
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    wait_request(world, &request);
}

static uint64_t mpi_counter_next(coll_world_t *world)
{
    mpi_state_t *state = world->state;
    const uint64_t one = 1;
    uint64_t number = 0;
    MPI_Fetch_and_op(&one, &number, MPI_UINT64_T, 0, 0, MPI_SUM, state->counter_window);
    MPI_Win_flush(0, state->counter_window);
    return number;
}

static void counter_close(mpi_state_t *state)
{
    if (state->counter_window == MPI_WIN_NULL)
        return;
    MPI_Win_unlock_all(state->counter_window);
    MPI_Win_free(&state->counter_window);
}

static void mpi_post(coll_world_t *world, const void *data, size_t n)
{
    post(world, 0, TAG_PARCEL, data, n);
    reap_sends(world->state);
}

/* ---- watchdog ---- */

static void report(coll_world_t *world, phase_t phase, const coll_message_t *waits, size_t n)
{
    mpi_state_t *state = world->state;
    report_t *r = &state->mine;
    *r = (report_t){
        .n_sent = state->n_sent, .n_received = state->n_received, .n_waits = n, .phase = phase
    };
    for (size_t i = 0; i < n && i < REPORT_WAITS; i++)
        r->waits[i] = waits[i];
    if (world->process == 0)
        state->reports[0] = *r;
    else
        post(world, 0, TAG_REPORT, r, sizeof(*r));
}

/* Whether nobody will ever go on. Process 0. */
static bool is_deadlock(const coll_world_t *world)
{
    const mpi_state_t *state = world->state;
    uint64_t n_sent = 0, n_received = 0;
    bool any_stalled = false;
    for (uint32_t i = 0; i < world->n_processes; i++) {
        const report_t *r = &state->reports[i];
        if (r->phase == PLAYING)
            return false;
        any_stalled |= r->phase == STALLED;
        n_sent += r->n_sent;
        n_received += r->n_received;
    }
    return any_stalled && n_sent == n_received;
}

/* End the waiting of all stalled processes; the text goes to err. Process 0. */
static base_status_t pronounce(coll_world_t *world, base_err_t *err)
{
    mpi_state_t *state = world->state;
    coll_message_t *waits = base_xcalloc((size_t)world->n_processes * REPORT_WAITS, sizeof(*waits));
    size_t n = 0, total = 0;
    for (uint32_t i = 0; i < world->n_processes; i++) {
        const report_t *r = &state->reports[i];
        if (r->phase != STALLED)
            continue;
        total += r->n_waits;
        for (size_t j = 0; j < r->n_waits && j < REPORT_WAITS; j++)
            waits[n++] = r->waits[j];
        if (i != 0)
            post(world, (int)i, TAG_VERDICT, "", 0);
    }
    char text[sizeof(err->text)];
    snprintf(text, sizeof(text),
             "deadlock: nobody went on for %.3g s: ", (double)world->deadline_ns / 1e9);
    coll_list_waits(text, sizeof(text), waits, n, total);
    free(waits);
    return base_err_set(err, BASE_ERR_TIMEOUT, "%s", text);
}

/* After a poll: keep the times, change between playing and stalled, pause. BASE_ERR_TIMEOUT when
 * the wait is over. `waits` is NULL for a process that is done. */
static base_status_t patience_step(coll_world_t *world, patience_t *p, const coll_message_t *waits,
                                   size_t n, base_err_t *err)
{
    mpi_state_t *state = world->state;
    uint64_t now = now_ns(), deadline = world->deadline_ns;
    if (state->verdict)
        return base_err_set(err, BASE_ERR_TIMEOUT, "deadlock: ended by process 0");
    if (state->n_arrivals != p->n_arrivals) {
        p->n_arrivals = state->n_arrivals;
        p->since_ns = now;
        p->n_pauses = 0;
        if (state->mine.phase == STALLED)
            report(world, PLAYING, NULL, 0);
        else if (waits == NULL)
            report(world, DONE, NULL, 0); /* what it has received counts */
    } else if (waits != NULL && state->mine.phase == PLAYING && now - p->since_ns > deadline) {
        report(world, STALLED, waits, n);
    }
    if (world->process == 0 && is_deadlock(world))
        return pronounce(world, err);
    endure(world, p);
    return BASE_OK;
}

static base_status_t mpi_wait(coll_world_t *world, const coll_message_t *expected, size_t n,
                              base_err_t *err)
{
    if (world->n_processes == 1)
        return coll_world_self.wait(world, expected, n, err);
    mpi_state_t *state = world->state;
    patience_t patience = patience_begin(state);
    uint64_t n_looked = state->n_arrivals;
    for (;;) {
        mpi_poll(world);
        if (state->n_arrivals != n_looked && coll_world_has_any(world, expected, n)) {
            if (state->mine.phase == STALLED)
                report(world, PLAYING, NULL, 0);
            return BASE_OK;
        }
        n_looked = state->n_arrivals;
        base_status_t status = patience_step(world, &patience, expected, n, err);
        if (status != BASE_OK)
            return status;
    }
}

/* ---- alarm ---- */

static void mpi_alarm(coll_world_t *world)
{
    for (uint32_t i = 0; i < world->n_processes; i++)
        if (i != world->process)
            post(world, (int)i, TAG_ALARM, "", 0);
}

/* ---- hosts ---- */

/* What process 0 says when the launcher ends it: a launcher that has lost a host names the host
 * only. */
static char ended_text[2048];

static void on_ended(int number)
{
    if (write(STDERR_FILENO, ended_text, strlen(ended_text)) < 0)
        _exit(1);
    signal(number, SIG_DFL);
    raise(number);
}

static void mpi_met(coll_world_t *world)
{
    if (world->process != 0)
        return;
    bool *is_listed = base_xcalloc(world->n_processes, sizeof(*is_listed)), is_several = false;
    for (uint32_t i = 0; i < world->n_processes; i++) {
        is_listed[i] = true;
        is_several |= strcmp(world->hosts[i], world->hosts[0]) != 0;
    }
    if (is_several) {
        char text[sizeof(ended_text) - 64] = "";
        coll_list_processes(world, is_listed, text, sizeof(text));
        snprintf(ended_text, sizeof(ended_text), "mbsim: ended by the launcher; there were %s\n",
                 text);
        signal(SIGTERM, on_ended);
    }
    free(is_listed);
}

/* ---- end ---- */

/* Process 0: hand over the blobs that are complete, and be ready for others. */
static void take_blobs(coll_world_t *world, coll_blob_t **blobs_p)
{
    mpi_state_t *state = world->state;
    *blobs_p = state->blobs;
    state->blobs = base_xcalloc(world->n_processes, sizeof(state->blobs[0]));
    state->n_blobs = 0;
    state->await = AWAIT_PLAY;
}

static void mpi_collect(coll_world_t *world, const void *data, size_t n, coll_blob_t **blobs_p)
{
    mpi_state_t *state = world->state;
    if (world->process != 0) {
        post(world, 0, TAG_BLOB, data, n);
        return;
    }
    state->await = AWAIT_BLOBS;
    state->blobs[0] = (coll_blob_t){ .data = coll_copy(data, n), .n = n };
    patience_t patience = patience_begin(state);
    while (mpi_poll(world), state->n_blobs < world->n_processes - 1)
        endure(world, &patience);
    take_blobs(world, blobs_p);
}

static base_status_t mpi_gather(coll_world_t *world, const void *data, size_t n,
                                coll_blob_t **blobs_p, base_err_t *err)
{
    mpi_state_t *state = world->state;
    report(world, DONE, NULL, 0);
    if (world->process != 0) {
        post(world, 0, TAG_BLOB, data, n);
        return BASE_OK;
    }
    state->await = AWAIT_BLOBS;
    state->blobs[0] = (coll_blob_t){ .data = coll_copy(data, n), .n = n };
    patience_t patience = patience_begin(state);
    while (mpi_poll(world), state->n_blobs < world->n_processes - 1) {
        base_status_t status = patience_step(world, &patience, NULL, 0, err);
        if (status != BASE_OK)
            return status;
    }
    take_blobs(world, blobs_p);
    return BASE_OK;
}

/* Process 0 tells everybody the code and takes in what comes until all have said goodbye, so that
 * no send is left hanging. */
static void finish_root(coll_world_t *world, int code)
{
    mpi_state_t *state = world->state;
    for (uint32_t i = 1; i < world->n_processes; i++)
        post(world, (int)i, TAG_CODE, &code, sizeof(code));
    state->await = AWAIT_BYES;
    patience_t patience = patience_begin(state);
    while (mpi_poll(world), state->n_byes < world->n_processes - 1)
        endure(world, &patience);
    state->code = code;
}

/* Where all work together process 0 is soon through, too; where it works alone it may take any
 * time. */
static void finish_other(coll_world_t *world)
{
    mpi_state_t *state = world->state;
    uint64_t n_received = state->n_received;
    patience_t patience = patience_begin(state);
    if (state->mine.phase != DONE)
        report(world, DONE, NULL, 0);
    while (mpi_poll(world), !state->have_code) {
        if (state->n_received != n_received) {
            n_received = state->n_received;
            report(world, DONE, NULL, 0);
        }
        if (world->is_shared)
            endure(world, &patience);
        else
            pause_poll(&patience.n_pauses);
    }
    post(world, 0, TAG_BYE, "", 0);
}

static int mpi_finish(coll_world_t *world, int code)
{
    mpi_state_t *state = world->state;
    if (world->process == 0)
        finish_root(world, code);
    else
        finish_other(world);
    bound_begin("MPI does not end", world->process, coll_world_limit_ns(world));
    unsigned n_pauses = 0;
    while (reap_sends(state), state->n_sends > 0)
        pause_poll(&n_pauses);
    code = state->code;
    coll_blobs_free(state->blobs, world->n_processes);
    free(state->has_left);
    free(state->reports);
    free(state->requests);
    free(state->buffers);
    counter_close(state);
    free(state);
    MPI_Finalize();
    bound_end();
    return code;
}

const coll_world_ops_t coll_world_mpi = {
    .name = "mpi",
    .broadcast = mpi_broadcast,
    .send = mpi_send,
    .poll = mpi_poll,
    .wait = mpi_wait,
    .gather = mpi_gather,
    .collect = mpi_collect,
    .alarm = mpi_alarm,
    .met = mpi_met,
    .counter_open = mpi_counter_open,
    .counter_next = mpi_counter_next,
    .post = mpi_post,
    .finish = mpi_finish,
    .abort = mpi_abort,
};
