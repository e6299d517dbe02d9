/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/whole_buffer.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <assert.h>
#include <stdlib.h>

/* Parameters start at multiples of 64 elements; a bucket also closes only when it has nine tenths
 * of what the largest parameter in every slice would be. */
enum { START_ELEMENTS = 64, FLOOR_TENTHS = 9 };

typedef struct {
    const sim_params_t *params;
    const sim_ddp_config_t *config;
    sim_ddp_buffer_t *out;
    uint64_t *sizes, *loads; /* of the slices: elements in this bucket, work so far */
    uint64_t *guess;         /* elements of the slices if parameters came in this order */
    uint32_t *picked;        /* parameters of the bucket in the making */
    uint32_t n_picked;
    uint64_t n_elements, largest; /* of those */
} layout_t;

static uint64_t slice_divisor(const sim_ddp_config_t *config)
{
    assert(config->n_shards > 0);
    return base_u64_lcm(START_ELEMENTS, sim_ddp_bucket_divisor(config) / config->n_shards);
}

/* Newton-Schulz iterations of a matrix cost its longer times the square of its shorter side. */
static uint64_t cost_of(const layout_t *l, uint32_t i)
{
    const sim_param_t *p = &l->params->params[i];
    uint64_t cols = p->n_elements / p->rows;
    return l->config->by_cost ? p->n_elements * base_u64_min(p->rows, cols) : p->n_elements;
}

static uint64_t least(const uint64_t *values, uint64_t n)
{
    uint64_t at = 0;
    for (uint64_t i = 1; i < n; i++) {
        if (values[i] < values[at])
            at = i;
    }
    return at;
}

static uint64_t most(const uint64_t *values, uint64_t n)
{
    uint64_t max = 0;
    for (uint64_t i = 0; i < n; i++)
        max = base_u64_max(max, values[i]);
    return max;
}

/* The slice with the least work among those that a parameter does not overfill, by three tenths
 * above an even share; without such a slice the shortest. */
static uint64_t choose_slice(const layout_t *l, uint64_t n_elements)
{
    uint64_t n = l->config->n_shards, best = n;
    if (!l->config->by_cost)
        return least(l->sizes, n);
    for (uint64_t s = 0; s < n; s++) {
        uint64_t end = base_u64_round_up(l->sizes[s], START_ELEMENTS) + n_elements;
        if (end * n * 10 <= l->n_elements * 13 && (best == n || l->loads[s] < l->loads[best]))
            best = s;
    }
    return best < n ? best : least(l->sizes, n);
}

static void sort_by_cost(layout_t *l)
{
    for (uint32_t i = 1; i < l->n_picked; i++) { /* stable, and nearly sorted in a model's layers */
        uint32_t p = l->picked[i], k = i;
        uint64_t cost = cost_of(l, p);
        for (; k > 0 && cost_of(l, l->picked[k - 1]) < cost; k--)
            l->picked[k] = l->picked[k - 1];
        l->picked[k] = p;
    }
}

static void close_bucket(layout_t *l)
{
    sim_ddp_buffer_t *out = l->out;
    uint64_t n = l->config->n_shards, bucket = out->n_elements;
    if (l->n_picked == 0)
        return;
    uint64_t *slices = base_xcalloc(l->n_picked, sizeof(*slices));
    for (uint64_t s = 0; s < n; s++)
        l->sizes[s] = l->guess[s] = 0;
    sort_by_cost(l);
    for (uint32_t k = 0; k < l->n_picked; k++) {
        uint32_t i = l->picked[k];
        uint64_t n_elements = l->params->params[i].n_elements;
        uint64_t s = slices[k] = choose_slice(l, n_elements);
        uint64_t start = base_u64_round_up(l->sizes[s], START_ELEMENTS);
        out->params[i] = (sim_ddp_range_t){ start, start + n_elements };
        l->sizes[s] = start + n_elements;
        l->loads[s] += cost_of(l, i);
    }
    uint64_t slice = base_u64_round_up(most(l->sizes, n), slice_divisor(l->config));
    for (uint32_t k = 0; k < l->n_picked; k++) {
        sim_ddp_range_t *range = &out->params[l->picked[k]];
        range->start += bucket + slices[k] * slice;
        range->end += bucket + slices[k] * slice;
    }
    free(slices);
    out->n_elements = bucket + n * slice;
    out->buckets = base_xrealloc(out->buckets, out->n_buckets + 1, sizeof(*out->buckets));
    out->buckets[out->n_buckets++] = (sim_ddp_range_t){ bucket, out->n_elements };
    l->n_picked = 0;
    l->n_elements = l->largest = 0;
}

/* The next parameter still fits where slices are padded. */
static bool absorbs(const layout_t *l, uint64_t n_elements)
{
    uint64_t n = l->config->n_shards;
    uint64_t slice = base_u64_round_up(most(l->guess, n), slice_divisor(l->config));
    return base_u64_round_up(l->guess[least(l->guess, n)], START_ELEMENTS) + n_elements <= slice;
}

static bool is_full(const layout_t *l)
{
    uint64_t floor = l->config->n_shards * l->largest * FLOOR_TENTHS / 10;
    return l->config->bucket_elements > 0 && l->n_picked > 0 &&
           l->n_elements >= base_u64_max(l->config->bucket_elements, floor);
}

static void pick(layout_t *l, uint32_t i)
{
    uint64_t n_elements = l->params->params[i].n_elements;
    if (l->config->by_cost && is_full(l) && !absorbs(l, n_elements))
        close_bucket(l);
    uint64_t s = least(l->guess, l->config->n_shards);
    l->guess[s] = base_u64_round_up(l->guess[s], START_ELEMENTS) + n_elements;
    l->picked[l->n_picked++] = i;
    l->n_elements += n_elements;
    l->largest = base_u64_max(l->largest, n_elements);
    if (!l->config->by_cost && is_full(l))
        close_bucket(l);
}

void sim_whole_buffer_init(sim_ddp_buffer_t *buffer, const sim_params_t *params, sim_buffer_t which,
                           const sim_ddp_config_t *config)
{
    *buffer = (sim_ddp_buffer_t){ .n_params = params->n };
    buffer->params = base_xcalloc(params->n, sizeof(*buffer->params));
    layout_t l = { .params = params, .config = config, .out = buffer };
    l.sizes = base_xcalloc(config->n_shards, sizeof(*l.sizes));
    l.loads = base_xcalloc(config->n_shards, sizeof(*l.loads));
    l.guess = base_xcalloc(config->n_shards, sizeof(*l.guess));
    l.picked = base_xcalloc(params->n, sizeof(*l.picked));
    for (uint32_t i = params->n; i-- > 0;) { /* reverse order of registration */
        if (params->params[i].buffer == which && !params->params[i].is_frozen)
            pick(&l, i);
    }
    close_bucket(&l);
    free(l.sizes);
    free(l.loads);
    free(l.guess);
    free(l.picked);
}
