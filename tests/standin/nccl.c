/* SPDX-License-Identifier: Apache-2.0
 * NCCL: communicators that take memory of the current GPU when they are made. */
#include "tests/standin/standin.h"

#include <string.h>

enum { UNHANDLED_CUDA_ERROR = 1, INVALID_ARGUMENT = 4, VERSION = 22809 };

typedef struct {
    char internal[128];
} unique_id_t;

#define ENTER(call)                                                                                \
    do {                                                                                           \
        int error_ = standin_enter(call);                                                          \
        if (error_ != 0)                                                                           \
            return error_;                                                                         \
    } while (0)

int ncclGetVersion(int *version);
int ncclGetUniqueId(unique_id_t *id);
int ncclCommInitRank(void **comm, int n_ranks, unique_id_t id, int rank);
int ncclCommDestroy(void *comm);
const char *ncclGetErrorString(int error);

int ncclGetVersion(int *version)
{
    ENTER("ncclGetVersion");
    *version = VERSION;
    return 0;
}

int ncclGetUniqueId(unique_id_t *id)
{
    ENTER("ncclGetUniqueId");
    uint64_t number = standin_new_address(1);
    memset(id, 0, sizeof(*id));
    memcpy(id->internal, &number, sizeof(number));
    return 0;
}

int ncclCommInitRank(void **comm, int n_ranks, unique_id_t id, int rank)
{
    (void)id;
    ENTER("ncclCommInitRank");
    if (rank < 0 || rank >= n_ranks)
        return INVALID_ARGUMENT;
    uint64_t bytes = standin_setting("STANDIN_NCCL_BYTES", UINT64_C(32) << 20);
    int device = standin_current();
    if (device < 0 || !standin_charge(device, bytes))
        return UNHANDLED_CUDA_ERROR;
    uint64_t at = standin_new_address(1);
    standin_add((standin_thing_t){
        .kind = STANDIN_COMM, .address = at, .charged_bytes = bytes, .device = device });
    *comm = (void *)(uintptr_t)at;
    return 0;
}

int ncclCommDestroy(void *comm)
{
    ENTER("ncclCommDestroy");
    standin_thing_t *thing = standin_find(STANDIN_COMM, (uintptr_t)comm);
    if (thing == NULL) {
        standin_misuse("ncclCommDestroy: not a communicator");
        return INVALID_ARGUMENT;
    }
    standin_discharge(thing->device, thing->charged_bytes);
    standin_remove(thing);
    return 0;
}

const char *ncclGetErrorString(int error)
{
    return error == UNHANDLED_CUDA_ERROR ? "unhandled cuda error" : "unknown result code";
}
