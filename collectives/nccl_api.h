/* SPDX-License-Identifier: Apache-2.0
 * The functions of NCCL that this program calls, loaded when they are asked for: no header of NCCL
 * is needed to build, no library of it to start. The types are the binary interface of NCCL 2.14 to
 * 2.30; tests/test_nccl_abi.c compares them with NCCL's own header where there is one. */
#ifndef COLLECTIVES_NCCL_API_H
#define COLLECTIVES_NCCL_API_H

#include "sim/base/err.h"

#include <stddef.h>

/* ncclResult_t: 0 = success. */
enum { COLL_NCCL_IN_PROGRESS = 7 };
/* ncclDataType_t and ncclRedOp_t. */
enum { COLL_NCCL_UINT8 = 1, COLL_NCCL_FLOAT32 = 7, COLL_NCCL_SUM = 0 };

typedef struct {
    char internal[128];
} coll_nccl_id_t; /* ncclUniqueId */

/* ncclConfig_t as 2.14 had it; later versions take it and give what is beyond its defaults. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
} coll_nccl_config_t;

#define COLL_NCCL_CONFIG_MAGIC   0xcafebeefU
#define COLL_NCCL_CONFIG_VERSION 21400U

/* Named as the functions are; see NCCL's own reference. `comm` is an ncclComm_t, `stream` a
 * cudaStream_t. */
typedef struct {
    int (*ncclGetVersion)(int *version);
    int (*ncclGetUniqueId)(coll_nccl_id_t *id);
    int (*ncclCommInitRankConfig)(void **comm, int n_ranks, coll_nccl_id_t id, int rank,
                                  coll_nccl_config_t *config);
    int (*ncclCommGetAsyncError)(void *comm, int *error);
    int (*ncclCommFinalize)(void *comm);
    int (*ncclCommDestroy)(void *comm);
    int (*ncclCommAbort)(void *comm);
    int (*ncclGroupStart)(void);
    int (*ncclGroupEnd)(void);
    int (*ncclAllReduce)(const void *from, void *to, size_t count, int type, int op, void *comm,
                         void *stream);
    int (*ncclBroadcast)(const void *from, void *to, size_t count, int type, int root, void *comm,
                         void *stream);
    int (*ncclAllGather)(const void *from, void *to, size_t count, int type, void *comm,
                         void *stream);
    int (*ncclReduceScatter)(const void *from, void *to, size_t count, int type, int op, void *comm,
                             void *stream);
    int (*ncclSend)(const void *from, size_t count, int type, int peer, void *comm, void *stream);
    int (*ncclRecv)(void *to, size_t count, int type, int peer, void *comm, void *stream);
    const char *(*ncclGetErrorString)(int error);
} coll_nccl_api_t;

/* Load libnccl.so.2. BASE_ERR_IO: it is not there, or older than 2.14, whose functions it misses.
 * On success *version_p is its NCCL_VERSION_CODE; close the library with base_dynlib_close(). */
base_status_t coll_nccl_api_open(coll_nccl_api_t *api_p, void **library_p, int *version_p,
                                 base_err_t *err);

#endif
