/* SPDX-License-Identifier: Apache-2.0
 * Capacities are what programs were told, not what the product is called after; a driver may hold
 * back some MiB more or less. Where a source gives GiB with two decimals the true figure is within
 * 6 MiB. Rates are dense (no sparsity), from NVIDIA's data sheets. */
#include "config.h"

#include "topology/gpu.h"

/* `hundredths` of a GiB, as PyTorch's out-of-memory message prints totalGlobalMem. */
#define GIB(hundredths) ((uint64_t)(hundredths) * (UINT64_C(1) << 30) / 100)
/* As PyTorch's device properties print it. */
#define MIB(n) ((uint64_t)(n) << 20)
#define OOM    "PyTorch out-of-memory messages"
#define PROPS  "PyTorch device properties"

/* clang-format off */
static const topo_gpu_t table[] = {
    /* name, aliases, product, capability, memory, SMs, bf16, fp8, memory GB/s, NVLink GB/s, source */
    { "h100-80gb-sxm", "h100 h100-80gb h100-sxm h100-sxm5 h100-sxm5-80gb h100-80gb-hbm3", "NVIDIA H100 80GB HBM3", 90, MIB(81079), 132, 989, 1979, 3352, 450, PROPS },
    { "h200", "h200-141gb h200-sxm h200-141gb-sxm", "NVIDIA H200", 90, GIB(13980), 132, 989, 1979, 4800, 450, OOM },
    { "b200", "b200-sxm b200-180gb", "NVIDIA B200", 100, GIB(17835), 148, 2250, 4500, 7672, 900, OOM },
    { "gb200", "gb200-192gb", "NVIDIA GB200", 100, GIB(18431), 152, 2500, 5000, 8000, 900, OOM },
    { "a100-80gb-sxm", "a100 a100-80gb a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB", 80, GIB(7925), 108, 312, 0, 2039, 300, OOM },
    { "a100-40gb-sxm", "a100-40gb a100-sxm4-40gb", "NVIDIA A100-SXM4-40GB", 80, GIB(3950), 108, 312, 0, 1555, 300, OOM },
};
/* clang-format on */

const topo_gpu_t *topo_gpu_table(size_t *n_p)
{
    *n_p = sizeof(table) / sizeof(table[0]);
    return table;
}
