/* SPDX-License-Identifier: Apache-2.0
 * collectives/nccl_api.h against NCCL's own header, when it is compiled. */
#include "collectives/nccl_api.h"

#include <nccl.h>
#include <stdio.h>

#define SAME(mine, theirs) _Static_assert((int)(mine) == (int)(theirs), #theirs)
#define SAME_PLACE(mine, theirs)                                                                   \
    SAME(offsetof(coll_nccl_config_t, mine), offsetof(ncclConfig_t, theirs))

SAME(COLL_NCCL_IN_PROGRESS, ncclInProgress);
SAME(COLL_NCCL_UINT8, ncclUint8);
SAME(COLL_NCCL_FLOAT32, ncclFloat32);
SAME(COLL_NCCL_SUM, ncclSum);
SAME(sizeof(coll_nccl_id_t), sizeof(ncclUniqueId));
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);

int main(void)
{
    const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    printf("1..1\n%s 1 - what is called of NCCL is as its header says\n",
           config.magic == COLL_NCCL_CONFIG_MAGIC ? "ok" : "not ok");
    return config.magic == COLL_NCCL_CONFIG_MAGIC ? 0 : 1;
}
