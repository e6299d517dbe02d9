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
    /* name, aliases, product, capability, memory, SMs, bf16, fp8, memory GB/s, NVLink GB/s, NVLink domain, GPUs of a node, source */
    { "v100-16gb", "v100-sxm2-16gb", "Tesla V100-SXM2-16GB", 70, MIB(16160), 80, 125, 0, 900, 150, 8, 8, PROPS "; tensor rate is fp16" },
    { "v100-32gb", "v100 v100-sxm2-32gb", "Tesla V100-SXM2-32GB", 70, GIB(3173), 80, 125, 0, 900, 150, 8, 8, OOM "; tensor rate is fp16" },
    { "a10", "a10-24gb a10g", "NVIDIA A10", 86, GIB(2206), 72, 125, 0, 600, 0, 1, 8, OOM },
    { "rtx-3090", "3090 geforce-rtx-3090", "NVIDIA GeForce RTX 3090", 86, GIB(2368), 82, 71, 0, 936, 56, 2, 8, OOM },
    { "rtx-4090", "4090 geforce-rtx-4090", "NVIDIA GeForce RTX 4090", 89, GIB(2364), 128, 165, 330, 1008, 0, 1, 8, OOM },
    { "l40s", "l40s-48gb", "NVIDIA L40S", 89, GIB(4439), 142, 362, 733, 864, 0, 1, 8, OOM },
    { "a100-40gb-sxm", "a100-40gb a100-sxm4-40gb a100-sxm-40gb", "NVIDIA A100-SXM4-40GB", 80, GIB(3939), 108, 312, 0, 1555, 300, 8, 8, OOM },
    { "a100-40gb-pcie", "a100-pcie-40gb", "NVIDIA A100-PCIE-40GB", 80, GIB(3939), 108, 312, 0, 1555, 300, 2, 8, OOM "; read on the SXM form" },
    { "a100-80gb-sxm", "a100 a100-80gb a100-sxm4-80gb a100-sxm-80gb a100-sxm", "NVIDIA A100-SXM4-80GB", 80, GIB(7925), 108, 312, 0, 2039, 300, 8, 8, OOM "; 79.14 to 79.33 by driver" },
    { "a100-80gb-pcie", "a100-pcie a100-pcie-80gb", "NVIDIA A100 80GB PCIe", 80, GIB(7925), 108, 312, 0, 1935, 300, 2, 8, OOM "; 79.14 to 79.33 by driver" },
    { "a800-80gb-sxm", "a800 a800-80gb a800-sxm4-80gb", "NVIDIA A800-SXM4-80GB", 80, GIB(7925), 108, 312, 0, 2039, 200, 8, 8, "as A100, whose memory it has" },
    { "a800-80gb-pcie", "a800-pcie a800-pcie-80gb", "NVIDIA A800 80GB PCIe", 80, GIB(7925), 108, 312, 0, 1935, 200, 2, 8, "as A100, whose memory it has" },
    { "h100-80gb-sxm", "h100 h100-80gb h100-sxm h100-sxm5 h100-sxm5-80gb h100-sxm-80gb h100-80gb-hbm3", "NVIDIA H100 80GB HBM3", 90, MIB(81089), 132, 989, 1979, 3352, 450, 8, 8, PROPS "; 81079 to 81090 MiB by driver" },
    { "h100-80gb-pcie", "h100-pcie h100-pcie-80gb", "NVIDIA H100 PCIe", 90, MIB(81008), 114, 756, 1513, 2039, 300, 2, 8, PROPS },
    { "h100-94gb-nvl", "h100-nvl h100-nvl-94gb", "NVIDIA H100 NVL", 90, GIB(9310), 132, 835, 1671, 3938, 300, 2, 8, OOM },
    { "h100-96gb", "h100-96gb-hbm2e h100-96gb-sxm", "NVIDIA H100", 90, GIB(9309), 132, 989, 1979, 3352, 450, 8, 8, OOM },
    { "h800-80gb-sxm", "h800 h800-80gb", "NVIDIA H800", 90, MIB(81089), 132, 989, 1979, 3352, 200, 8, 8, "as H100 SXM, whose memory it has" },
    { "h20-96gb", "h20", "NVIDIA H20", 90, MIB(97285), 78, 148, 296, 4000, 450, 8, 8, PROPS },
    { "h200-141gb-sxm", "h200 h200-141gb h200-sxm", "NVIDIA H200", 90, MIB(143156), 132, 989, 1979, 4800, 450, 8, 8, PROPS },
    { "b200-180gb", "b200 b200-sxm b200-192gb", "NVIDIA B200", 100, MIB(182642), 148, 2250, 4500, 7672, 900, 8, 8, PROPS "; pytorch/ao#4002 for the memory rate" },
    { "gb200", "gb200-186gb gb200-192gb", "NVIDIA GB200", 100, GIB(18431), 152, 2500, 5000, 8000, 900, 72, 4, OOM },
    { "b300-270gb", "b300 b300-288gb", "NVIDIA B300 SXM6 AC", 103, GIB(26769), 148, 2250, 4500, 8000, 900, 8, 8, OOM },
    { "gb300", "gb300-279gb gb300-288gb", "NVIDIA GB300", 103, GIB(27650), 152, 2500, 5000, 8000, 900, 72, 4, OOM },
};
/* clang-format on */

const topo_gpu_t *topo_gpu_table(size_t *n_p)
{
    *n_p = sizeof(table) / sizeof(table[0]);
    return table;
}
