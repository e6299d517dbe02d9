/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/ddp_buffer.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/model/whole_buffer.h"

#include <stdlib.h>

/* Constants of param_layout.py: parameters start at multiples of 64 elements, buckets end at
 * multiples of lcm(shards, 128), with the bus-bandwidth option also of 2^16. */
enum { PARAM_START_ELEMENTS = 64, BUCKET_END_ELEMENTS = 128, BUSBW_ELEMENTS = 1 << 16 };

uint64_t sim_ddp_bucket_divisor(const sim_ddp_config_t *config)
{
    uint64_t divisor = base_u64_lcm(config->n_shards, BUCKET_END_ELEMENTS);
    return config->pad_for_busbw ? base_u64_lcm(divisor, BUSBW_ELEMENTS) : divisor;
}

static void close_bucket(sim_ddp_buffer_t *buffer, const sim_ddp_config_t *config, uint64_t start,
                         uint64_t *end_p)
{
    if (config->distributed_optimizer)
        *end_p = base_u64_round_up(*end_p, sim_ddp_bucket_divisor(config));
    buffer->buckets =
        base_xrealloc(buffer->buckets, buffer->n_buckets + 1, sizeof(*buffer->buckets));
    buffer->buckets[buffer->n_buckets++] = (sim_ddp_range_t){ start, *end_p };
}

void sim_ddp_buffer_init(sim_ddp_buffer_t *buffer, const sim_params_t *params, sim_buffer_t which,
                         const sim_ddp_config_t *config)
{
    if (sim_buffer_is_whole(which)) {
        sim_whole_buffer_init(buffer, params, which, config);
        return;
    }
    *buffer = (sim_ddp_buffer_t){ .n_params = params->n };
    buffer->params = base_xcalloc(params->n, sizeof(*buffer->params));
    uint64_t bucket_start = 0, end = 0;
    for (uint32_t i = params->n; i-- > 0;) { /* reverse order of registration */
        const sim_param_t *p = &params->params[i];
        if (p->buffer != which || p->is_frozen)
            continue;
        uint64_t start =
            config->distributed_optimizer ? base_u64_round_up(end, PARAM_START_ELEMENTS) : end;
        /* A tied embedding is reduced apart, so it gets a bucket of its own. */
        bool alone = config->distributed_optimizer && p->is_shared_embedding;
        if (alone && end > bucket_start) {
            close_bucket(buffer, config, bucket_start, &end);
            bucket_start = start = end;
        }
        buffer->params[i] = (sim_ddp_range_t){ start, start + p->n_elements };
        end = start + p->n_elements;
        if (alone ||
            (config->bucket_elements > 0 && end - bucket_start >= config->bucket_elements)) {
            close_bucket(buffer, config, bucket_start, &end);
            bucket_start = end;
        }
    }
    if (end > bucket_start)
        close_bucket(buffer, config, bucket_start, &end);
    buffer->n_elements = end;
}

void sim_ddp_buffer_fini(sim_ddp_buffer_t *buffer)
{
    free(buffer->params);
    free(buffer->buckets);
    *buffer = (sim_ddp_buffer_t){ 0 };
}

/* The one that element `at` (< n_elements) lies in; buckets leave no gaps. */
static const sim_ddp_range_t *find_bucket(const sim_ddp_buffer_t *buffer, uint64_t at)
{
    uint32_t low = 0, high = buffer->n_buckets - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (at < buffer->buckets[middle].end)
            high = middle;
        else
            low = middle + 1;
    }
    return &buffer->buckets[low];
}

uint64_t sim_ddp_buffer_shard(const sim_ddp_buffer_t *buffer, uint32_t i, uint64_t n_shards,
                              uint64_t shard)
{
    const sim_ddp_range_t *p = &buffer->params[i];
    if (p->start == p->end)
        return 0;
    const sim_ddp_range_t *bucket = find_bucket(buffer, p->start);
    uint64_t slice = (bucket->end - bucket->start) / n_shards;
    uint64_t from = base_u64_max(p->start, bucket->start + shard * slice);
    uint64_t to = base_u64_min(p->end, bucket->start + (shard + 1) * slice);
    return to > from ? to - from : 0;
}
