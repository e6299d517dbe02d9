/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "collectives/context.h"

#include "sim/base/units.h"

/* By the lowest compute capability of a row, newest first. Contexts: what nvidia-smi shows of
 * processes that have done little else, 0.4 to 0.6 GB on H100 and B200; drivers differ by 100 MiB.
 * Code: what is left of a step's process beside its context and communicators. */
static const struct {
    uint32_t sm;
    uint32_t context_mib, context_low, context_high;
    uint32_t code_mib, code_low, code_high;
} table[] = {
    { 100, 520, 420, 640, 80, 30, 250 },
    { 90, 440, 380, 560, 70, 20, 250 },
    { 80, 390, 320, 480, 50, 10, 250 },
    { 0, 310, 250, 420, 50, 10, 250 },
};

static size_t row_of(uint32_t sm)
{
    size_t i = 0;
    while (sm < table[i].sm)
        i++;
    return i;
}

static coll_range_t mib(uint64_t bytes, uint64_t low, uint64_t high)
{
    return (coll_range_t){ bytes * BASE_MIB, low * BASE_MIB, high * BASE_MIB };
}

coll_range_t coll_context_bytes(uint32_t sm)
{
    size_t i = row_of(sm);
    return mib(table[i].context_mib, table[i].context_low, table[i].context_high);
}

coll_range_t coll_library_bytes(uint32_t sm)
{
    size_t i = row_of(sm);
    return mib(table[i].code_mib, table[i].code_low, table[i].code_high);
}

bool coll_user_buffer_bytes(uint64_t tokens, uint64_t width, bool fp8, uint64_t *bytes_p)
{
    /* transformer_engine/pytorch/module/base.py, initialize_ub(): qkv, fc1 forward and proj, fc2
     * input gradients gather over a ring; proj, fc2 forward scatter in pieces; input and weight
     * gradients of qkv and fc1 in bulk; weight gradients of proj and fc2 from outside. */
    enum { N_GATHER = 4, N_OTHER = 8, BF16 = 2 };
    uint64_t elements, bytes;
    uint64_t per_element = N_OTHER * BF16 + N_GATHER * (fp8 ? 1 : BF16);
    if (!base_u64_mul(tokens, width, &elements) || !base_u64_mul(elements, per_element, &bytes))
        return false;
    *bytes_p = bytes;
    return true;
}

coll_deepep_t coll_deepep_bytes(uint32_t n_ranks, uint64_t width)
{
    /* DeepEP csrc/config.hpp, get_nvl_buffer_size_hint(), get_rdma_buffer_size_hint(), with the
     * chunks that deep_ep/buffer.py recommends and Megatron-LM's 20 SMs; hidden states of 2 bytes
     * (megatron/core/transformer/moe/fused_a2a.py). */
    enum { HOST = 8, CHANNELS = 10, TOPK = 128, SCALES = 128, META = 8, FLOAT = 4, INDEX = 8 };
    static const struct {
        uint32_t n_ranks, nvlink_tokens, network_tokens; /* larger of dispatch and combine */
    } chunks[] = {
        { 8, 256, 132 },  { 16, 288, 140 },  { 24, 288, 140 },
        { 64, 288, 140 }, { 128, 560, 132 }, { UINT32_MAX, 720, 132 },
    };
    size_t i = 0;
    while (n_ranks > chunks[i].n_ranks)
        i++;
    uint64_t hosts = n_ranks > HOST ? n_ranks / HOST : 1, local = n_ranks > HOST ? HOST : n_ranks;
    uint64_t token = 2 * width + META + TOPK * (INDEX + FLOAT) + SCALES * FLOAT;
    coll_deepep_t d = { 0 };
    d.nvlink_bytes = CHANNELS * local * ((2 * hosts + 3) * FLOAT + chunks[i].nvlink_tokens * token);
    if (hosts > 1)
        d.network_bytes =
            CHANNELS * hosts *
                ((HOST * 2 + 2) * 2 * FLOAT + 2 * chunks[i].network_tokens * (token + 16)) +
            BASE_MIB;
    return d;
}
