/* SPDX-License-Identifier: Apache-2.0
 * Private to collectives: what a world of one process and a world of MPI processes do differently.
 */
#ifndef COLLECTIVES_WORLD_OPS_H
#define COLLECTIVES_WORLD_OPS_H

#include "collectives/world.h"

/* All required. */
typedef struct {
    const char *name;
    void (*broadcast)(coll_world_t *world, char **data_p, size_t *n_p);
    /* To a GPU of another process. */
    void (*send)(coll_world_t *world, const coll_message_t *message);
    /* Deliver what has arrived; never blocks. */
    void (*poll)(coll_world_t *world);
    base_status_t (*wait)(coll_world_t *world, const coll_message_t *expected, size_t n,
                          base_err_t *err);
    base_status_t (*gather)(coll_world_t *world, const void *data, size_t n, coll_blob_t **blobs_p,
                            base_err_t *err);
    void (*collect)(coll_world_t *world, const void *data, size_t n, coll_blob_t **blobs_p);
    void (*alarm)(coll_world_t *world); /* tell the others */
    /* The hosts are known. */
    void (*met)(coll_world_t *world);
    void (*counter_open)(coll_world_t *world);
    uint64_t (*counter_next)(coll_world_t *world);
    /* To process 0 from another one. */
    void (*post)(coll_world_t *world, const void *data, size_t n);
    int (*finish)(coll_world_t *world, int code);
    void (*abort)(coll_world_t *world, int code); /* does not return */
} coll_world_ops_t;

/* A piece that was posted to process 0. */
typedef struct coll_parcel {
    struct coll_parcel *next;
    coll_blob_t blob;
} coll_parcel_t;

/* Messages that have arrived at one GPU and were not taken, in order of arrival. */
typedef struct {
    coll_message_t *messages; /* of which those in [head, end) are there */
    size_t head, end, capacity;
} coll_mailbox_t;

struct coll_world {
    const coll_world_ops_t *ops;
    uint32_t process, n_processes;
    char **hosts; /* by process; owned */
    uint64_t deadline_ns;
    bool is_shared; /* all work together, not process 0 alone */
    bool is_alarmed;
    uint32_t n_gpus, first_gpu, n_mine;
    coll_mailbox_t *mailboxes;                    /* by gpu - first_gpu */
    coll_parcel_t *first_parcel, **last_parcel_p; /* process 0: arrived and not fetched */
    uint64_t counter;                             /* of a world of one process */
    void *state;                                  /* of the ops */
};

/* Deadlines without any sign from a process before the watchdog gives up on it. */
enum { COLL_SILENT_DEADLINES = 10 };

extern const coll_world_ops_t coll_world_self;
extern const coll_world_ops_t coll_world_mpi;

/* Was this process started as part of an MPI job? Looks at the environment only. */
bool coll_world_mpi_wanted(void);
/* MPI_Init, within bounds by world->deadline_ns; fills process and n_processes. */
void coll_world_mpi_start(coll_world_t *world);

/* Processes that were started together and cannot join, as this build has no MPI; 0 = none. */
uint32_t coll_world_n_unjoined(void);

/* Everybody together, once: learn the hosts, and see that all run the same program. */
base_status_t coll_world_meet(coll_world_t *world, const char *program, base_err_t *err);

/* Append to `text` (room for `size` bytes) "process 6 on node3, process 7 on node3", as many of
 * those with is_listed[process] as fit, then how many more. */
void coll_list_processes(const coll_world_t *world, const bool *is_listed, char *text, size_t size);

/* Put a message into the mailbox of its GPU, which is played here. */
void coll_world_deliver(coll_world_t *world, const coll_message_t *message);

/* Keep `blob` (now owned by the world) until it is fetched. Process 0. */
void coll_world_keep_parcel(coll_world_t *world, coll_blob_t blob);

/* Whether one of the expected messages is there. */
bool coll_world_has_any(const coll_world_t *world, const coll_message_t *expected, size_t n);

/* Append to `text` (room for `size` bytes) who waits for whom, as many of the n as fit, then how
 * many more of `total` there are: "GPU 3 waits for GPU 2: activations of micro-batch 5, chunk 0,
 * iteration 1; ...". First come waits for GPUs that wait for nothing themselves, then the oldest.
 */
void coll_list_waits(char *text, size_t size, const coll_message_t *waits, size_t n, size_t total);

/* Copy n bytes and a NUL. */
char *coll_copy(const void *data, size_t n);

#endif
