/* SPDX-License-Identifier: Apache-2.0
 * A stand-in for the CUDA runtime, the CUDA driver, NVML and NCCL: GPUs with a capacity and a
 * granularity, and no memory behind them. All four are one shared library under four names, so that
 * they see the same GPUs. Every call that can fail can be made to.
 *
 * Environment:
 *   STANDIN_DEVICES=1            GPUs; CUDA_VISIBLE_DEVICES (a list of numbers) selects among them
 *   STANDIN_CAPACITY=BYTES       of each GPU (64 GiB)
 *   STANDIN_BUSY=BYTES           of each GPU used by somebody else (0)
 *   STANDIN_CONTEXT=BYTES        taken by a process when it first uses a GPU (256 MiB)
 *   STANDIN_GRANULARITY=BYTES    of cuMemCreate (2 MiB)
 *   STANDIN_MALLOC_STEP=BYTES    to which cudaMalloc rounds up (2 MiB)
 *   STANDIN_DRIVER=13000         version of the driver
 *   STANDIN_NO_VMM=1             the GPU has no virtual memory management
 *   STANDIN_NO_PROCESSES=1       NVML does not tell what a process uses
 *   STANDIN_NCCL_BYTES=BYTES     taken by a communicator (32 MiB), ...
 *   STANDIN_NCCL_USE_BYTES=BYTES ... and by the first use of each of its functions (12 MiB)
 *   STANDIN_SHARED=FILE          processes that name the same file share the GPUs' capacity, and
 *                                wait for each other in NCCL
 *   STANDIN_FAIL_AT=N            the N-th call that can fail, from 1, fails, ...
 *   STANDIN_FAIL_FOR=1           and as many in all from there on, ...
 *   STANDIN_FAIL_CALL=NAME       ... counting calls of that name only
 *   STANDIN_FAIL_CODE=999        ... with this error
 *   STANDIN_FAIL_RANK=R          ... in the process of that rank of mpirun only
 *   STANDIN_REPORT=FILE          at the end of the process a line is added: the number of calls
 * that can fail, of bytes at most, what leaked, what was misused A process that leaks or misuses
 * ends with exit code 86, unless STANDIN_LENIENT is set. */
#ifndef TESTS_STANDIN_STANDIN_H
#define TESTS_STANDIN_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STANDIN_MAX_DEVICES = 16, STANDIN_UNKNOWN = 999 };

typedef enum {
    STANDIN_MALLOC,
    STANDIN_RESERVATION,
    STANDIN_HANDLE, /* of physical memory */
    STANDIN_MAPPING,
    STANDIN_STREAM,
    STANDIN_COMM,
    STANDIN_NVML,
    STANDIN_N_KINDS,
} standin_kind_t;

typedef struct {
    standin_kind_t kind;
    uint64_t address; /* or number */
    uint64_t bytes;
    uint64_t charged_bytes; /* of the device */
    uint64_t other;         /* a mapping's handle; how often a handle is mapped */
    int device;
    bool is_accessible; /* mapping */
    uint32_t uses;      /* of a communicator: functions that were used, a set; how often in all */
    uint32_t n_uses;
} standin_thing_t;

/* For a test that has loaded the library: calls so far that can fail, what is alive, misuses. */
uint64_t standin_n_calls(void);
uint64_t standin_n_alive(void);
uint64_t standin_n_misuses(void);

/* To be called first by every function that can fail: the error it has to return, or 0. */
int standin_enter(const char *call);

/* The function was used as CUDA does not allow; the process will not end well. */
void standin_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t standin_setting(const char *name, uint64_t otherwise);

/* Devices as CUDA_VISIBLE_DEVICES leaves them; the current one of the process. */
int standin_n_devices(void);
int standin_physical(int device); /* -1: no such device */
int standin_current(void);        /* the context is made if it is not there */
bool standin_set_current(int device);

/* Bytes of a physical device: all that are in use, and those of this process. */
uint64_t standin_capacity(void);
uint64_t standin_used(int physical);
uint64_t standin_used_by(int physical, unsigned place, unsigned *pid_p); /* pid 0: no more */
bool standin_charge(int physical, uint64_t bytes);                       /* false: out of memory */
void standin_discharge(int physical, uint64_t bytes);

/* What is alive. The pointer is valid until the next call of add or remove. */
standin_thing_t *standin_add(standin_thing_t thing);
standin_thing_t *standin_find(standin_kind_t kind, uint64_t address);
standin_thing_t *standin_around(standin_kind_t kind, uint64_t address); /* that contains it */
void standin_remove(standin_thing_t *thing);

/* This process comes to meeting number `meeting` (> 0); have `n` come? Without STANDIN_SHARED
 * nobody waits. */
void standin_meet(uint64_t meeting);
bool standin_have_met(uint64_t meeting, uint64_t n);

/* Whether what was last put on a stream is through. */
bool standin_has_met(uint64_t stream);

/* A range of addresses that was never given out. */
uint64_t standin_new_address(uint64_t bytes);

/* Whether all of a range can be written. */
bool standin_is_accessible(uint64_t address, uint64_t bytes);

#endif
