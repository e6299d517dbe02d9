/* SPDX-License-Identifier: Apache-2.0
 * NCCL: communicators that take memory of the current GPU when they are made, and when one of their
 * functions is first used. Nothing blocks. What needs all members is under way until all have come:
 * the creation, and what is put on a stream. */
#include "collectives/nccl_api.h"

#include "tests/standin/standin.h"

#include <string.h>

enum { UNHANDLED_CUDA_ERROR = 1, INVALID_ARGUMENT = 4, VERSION = 22809 };

typedef enum {
    ALL_REDUCE = 1 << 0,
    BROADCAST = 1 << 1,
    ALL_GATHER = 1 << 2,
    REDUCE_SCATTER = 1 << 3,
    SEND = 1 << 4,
    RECV = 1 << 5,
} function_t;

#define ENTER(call)                                                                                \
    do {                                                                                           \
        int error_ = standin_enter(call);                                                          \
        if (error_ != 0)                                                                           \
            return error_;                                                                         \
    } while (0)

int ncclGetVersion(int *version);
int ncclGetUniqueId(coll_nccl_id_t *id);
int ncclCommInitRankConfig(void **comm, int n_ranks, coll_nccl_id_t id, int rank,
                           coll_nccl_config_t *config);
int ncclCommGetAsyncError(void *comm, int *error);
int ncclCommFinalize(void *comm);
int ncclCommDestroy(void *comm);
int ncclCommAbort(void *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *comm,
                  void *stream);
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm,
                  void *stream);
int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream);
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, void *comm,
                      void *stream);
int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream);
int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream);
const char *ncclGetErrorString(int error);

static int group_depth;

int ncclGetVersion(int *version)
{
    ENTER("ncclGetVersion");
    *version = VERSION;
    return 0;
}

int ncclGetUniqueId(coll_nccl_id_t *id)
{
    ENTER("ncclGetUniqueId");
    uint64_t number = standin_new_address(1);
    memset(id, 0, sizeof(*id));
    memcpy(id->internal, &number, sizeof(number));
    return 0;
}

/* `bytes` of the thing is the number of ranks, `other` the number in the id. */
int ncclCommInitRankConfig(void **comm, int n_ranks, coll_nccl_id_t id, int rank,
                           coll_nccl_config_t *config)
{
    ENTER("ncclCommInitRankConfig");
    if (rank < 0 || rank >= n_ranks || config->magic != COLL_NCCL_CONFIG_MAGIC)
        return INVALID_ARGUMENT;
    uint64_t bytes = standin_setting("STANDIN_NCCL_BYTES", UINT64_C(32) << 20);
    int device = standin_current();
    if (device < 0 || !standin_charge(device, bytes))
        return UNHANDLED_CUDA_ERROR;
    uint64_t at = standin_new_address(1), number;
    memcpy(&number, id.internal, sizeof(number));
    standin_meet(number);
    standin_add((standin_thing_t){ .kind = STANDIN_COMM,
                                   .address = at,
                                   .bytes = (uint64_t)n_ranks,
                                   .charged_bytes = bytes,
                                   .other = number,
                                   .device = device });
    *comm = (void *)(uintptr_t)at;
    return COLL_NCCL_IN_PROGRESS;
}

static standin_thing_t *find_comm(const char *call, void *comm)
{
    standin_thing_t *thing = standin_find(STANDIN_COMM, (uintptr_t)comm);
    if (thing == NULL)
        standin_misuse("%s: not a communicator", call);
    return thing;
}

int ncclCommGetAsyncError(void *comm, int *error)
{
    ENTER("ncclCommGetAsyncError");
    const standin_thing_t *thing = find_comm("ncclCommGetAsyncError", comm);
    if (thing == NULL)
        return INVALID_ARGUMENT;
    *error = standin_have_met(thing->other, thing->bytes) ? 0 : COLL_NCCL_IN_PROGRESS;
    return 0;
}

int ncclCommFinalize(void *comm)
{
    ENTER("ncclCommFinalize");
    return find_comm("ncclCommFinalize", comm) != NULL ? COLL_NCCL_IN_PROGRESS : INVALID_ARGUMENT;
}

static int give_back(const char *call, void *comm)
{
    standin_thing_t *thing = find_comm(call, comm);
    if (thing == NULL)
        return INVALID_ARGUMENT;
    standin_discharge(thing->device, thing->charged_bytes);
    standin_remove(thing);
    return 0;
}

int ncclCommDestroy(void *comm)
{
    ENTER("ncclCommDestroy");
    return give_back("ncclCommDestroy", comm);
}

int ncclCommAbort(void *comm)
{
    ENTER("ncclCommAbort");
    return give_back("ncclCommAbort", comm);
}

int ncclGroupStart(void)
{
    ENTER("ncclGroupStart");
    group_depth++;
    return 0;
}

int ncclGroupEnd(void)
{
    if (--group_depth < 0)
        standin_misuse("ncclGroupEnd without ncclGroupStart");
    ENTER("ncclGroupEnd");
    return COLL_NCCL_IN_PROGRESS;
}

/* What all members do once; of sends and receives only that they have memory. */
static int use(const char *call, function_t function, void *comm, void *stream)
{
    standin_thing_t *thing = find_comm(call, comm);
    if (thing == NULL || group_depth == 0)
        return INVALID_ARGUMENT;
    if ((thing->uses & function) == 0) {
        uint64_t bytes = standin_setting("STANDIN_NCCL_USE_BYTES", UINT64_C(12) << 20);
        if (!standin_charge(thing->device, bytes))
            return UNHANDLED_CUDA_ERROR;
        thing->charged_bytes += bytes;
        thing->uses |= function;
    }
    standin_thing_t *on = standin_find(STANDIN_STREAM, (uintptr_t)stream);
    if (on == NULL)
        standin_misuse("%s: not a stream", call);
    else if (function != SEND && function != RECV) {
        on->other = thing->other + ++thing->n_uses;
        on->bytes = thing->bytes;
        standin_meet(on->other);
    }
    return COLL_NCCL_IN_PROGRESS;
}

static int collective(const char *call, function_t function, const void *from, const void *to,
                      uint64_t sent, uint64_t received, void *comm, void *stream)
{
    if (!standin_is_accessible((uintptr_t)from, sent) ||
        !standin_is_accessible((uintptr_t)to, received))
        standin_misuse("%s: a buffer is too small", call);
    return use(call, function, comm, stream);
}

static uint64_t n_ranks_of(void *comm)
{
    const standin_thing_t *thing = standin_find(STANDIN_COMM, (uintptr_t)comm);
    return thing != NULL ? thing->bytes : 1;
}

static uint64_t bytes_of(size_t count, int type)
{
    return count * (type == COLL_NCCL_FLOAT32 ? sizeof(float) : 1);
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *comm,
                  void *stream)
{
    ENTER("ncclAllReduce");
    uint64_t bytes = bytes_of(count, type);
    return op == COLL_NCCL_SUM
               ? collective("ncclAllReduce", ALL_REDUCE, from, to, bytes, bytes, comm, stream)
               : INVALID_ARGUMENT;
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm,
                  void *stream)
{
    ENTER("ncclBroadcast");
    uint64_t bytes = bytes_of(count, type);
    return root == 0 ? collective("ncclBroadcast", BROADCAST, from, to, bytes, bytes, comm, stream)
                     : INVALID_ARGUMENT;
}

int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream)
{
    ENTER("ncclAllGather");
    uint64_t bytes = bytes_of(count, type);
    return collective("ncclAllGather", ALL_GATHER, from, to, bytes, bytes * n_ranks_of(comm), comm,
                      stream);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, void *comm,
                      void *stream)
{
    ENTER("ncclReduceScatter");
    uint64_t bytes = bytes_of(count, type);
    return op == COLL_NCCL_SUM ? collective("ncclReduceScatter", REDUCE_SCATTER, from, to,
                                            bytes * n_ranks_of(comm), bytes, comm, stream)
                               : INVALID_ARGUMENT;
}

int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream)
{
    ENTER("ncclSend");
    if (peer < 0 || (uint64_t)peer >= n_ranks_of(comm))
        return INVALID_ARGUMENT;
    if (!standin_is_accessible((uintptr_t)from, bytes_of(count, type)))
        standin_misuse("ncclSend: the buffer is too small");
    return use("ncclSend", SEND, comm, stream);
}

int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream)
{
    ENTER("ncclRecv");
    if (peer < 0 || (uint64_t)peer >= n_ranks_of(comm))
        return INVALID_ARGUMENT;
    if (!standin_is_accessible((uintptr_t)to, bytes_of(count, type)))
        standin_misuse("ncclRecv: the buffer is too small");
    return use("ncclRecv", RECV, comm, stream);
}

const char *ncclGetErrorString(int error)
{
    return error == UNHANDLED_CUDA_ERROR ? "unhandled cuda error" : "unknown result code";
}
