/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any bytes read as a memory snapshot. */
#include "config.h"

#include "sim/memory/snapshot_read.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sim_snapshot_t *snapshot = NULL;
    base_err_t err = { 0 };
    if (sim_snapshot_parse(data, size, &snapshot, &err) == BASE_OK)
        sim_snapshot_destroy(snapshot);
    else if (snapshot != NULL || err.text[0] == '\0')
        abort();
    return 0;
}
