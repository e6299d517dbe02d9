/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "collectives/nccl_api.h"

#include "sim/base/dynlib.h"

#define NCCL(name) BASE_SYMBOL(coll_nccl_api_t, name)
static const base_symbol_t symbols[] = {
    NCCL(ncclGetVersion),        NCCL(ncclGetUniqueId),  NCCL(ncclCommInitRankConfig),
    NCCL(ncclCommGetAsyncError), NCCL(ncclCommFinalize), NCCL(ncclCommDestroy),
    NCCL(ncclCommAbort),         NCCL(ncclGroupStart),   NCCL(ncclGroupEnd),
    NCCL(ncclAllReduce),         NCCL(ncclBroadcast),    NCCL(ncclAllGather),
    NCCL(ncclReduceScatter),     NCCL(ncclSend),         NCCL(ncclRecv),
    NCCL(ncclGetErrorString),
};

base_status_t coll_nccl_api_open(coll_nccl_api_t *api_p, void **library_p, int *version_p,
                                 base_err_t *err)
{
    static const char *const names[] = { "libnccl.so.2", NULL };
    coll_nccl_api_t api;
    base_err_t why;
    if (base_dynlib_open(names, symbols, sizeof(symbols) / sizeof(symbols[0]), &api, library_p,
                         &why) != BASE_OK)
        return base_err_set(err, BASE_ERR_IO, "no NCCL from 2.14 on (%s)", why.text);
    int error = api.ncclGetVersion(version_p);
    if (error != 0) {
        base_dynlib_close(*library_p);
        *library_p = NULL;
        return base_err_set(err, BASE_ERR_IO, "ncclGetVersion: %s (%d)",
                            api.ncclGetErrorString(error), error);
    }
    *api_p = api;
    return BASE_OK;
}
