/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/workspace.h"

#include "sim/base/units.h"
#include "sim/model/software.h"

#include <stdbool.h>
#include <stdlib.h>

/* TransformerEngine pytorch/module/base.py, get_cublas_workspace_size_bytes(): 32 MiB and 1 KiB of
 * scales from Hopper on, 4 MiB before. */
uint64_t sim_te_workspace_bytes(uint32_t sm)
{
    return sm >= 90 ? 32 * BASE_MIB + 1 * BASE_KIB : 4 * BASE_MIB;
}

static bool read_number(const char **text_p, uint64_t *value_p)
{
    if (**text_p != ':' || (*text_p)[1] < '0' || (*text_p)[1] > '9')
        return false;
    char *end;
    *value_p = strtoull(*text_p + 1, &end, 10);
    *text_p = end;
    return *value_p <= UINT32_MAX;
}

static bool read_config(const char *text, uint64_t *bytes_p)
{
    uint64_t total = 0, kib, count;
    do {
        if (!read_number(&text, &kib) || !read_number(&text, &count) ||
            !base_u64_mul(kib * BASE_KIB, count, &count) || !base_u64_add(total, count, &total))
            return false;
    } while (*text != '\0');
    *bytes_p = total;
    return true;
}

/* aten/src/ATen/cuda/CublasHandlePool.cpp, getChosenWorkspaceSize(): 32 MiB on compute capability
 * 9.0, and later on 10.x; ":4096:2:16:8" on all others. */
uint64_t sim_torch_workspace_bytes(const sim_scenario_t *s)
{
    uint64_t bytes;
    if (s->cublas_workspace_config != NULL && read_config(s->cublas_workspace_config, &bytes))
        return bytes;
    uint32_t sm = s->gpu_p->sm;
    bool large = sm == 90 ||
                 (sm >= 100 && sm < 120 && sim_software_has(s, SIM_SOFTWARE_BLACKWELL_WORKSPACE));
    return large ? 32 * BASE_MIB : 2 * 4 * BASE_MIB + 8 * 16 * BASE_KIB;
}
