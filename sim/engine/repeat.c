/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/repeat.h"

#include "sim/base/xmem.h"
#include "sim/engine/graphs.h"

#include <stdlib.h>
#include <string.h>

/* ---- where the order repeats ---- */

static bool is_shifted(const sim_step_t *earlier, const sim_step_t *later, uint32_t shift)
{
    return earlier->kind == later->kind && earlier->flags == later->flags &&
           earlier->chunk == later->chunk && earlier->microbatch + shift == later->microbatch;
}

/* The forward pass of chunk 0; order->n when there is none. */
static size_t find_forward(const sim_order_t *order, uint32_t microbatch)
{
    for (size_t i = 0; i < order->n; i++) {
        const sim_step_t *s = &order->steps[i];
        if (s->kind == SIM_STEP_FORWARD && s->chunk == 0 && s->microbatch == microbatch)
            return i;
    }
    return order->n;
}

sim_period_t sim_period_find(const sim_order_t *order, uint32_t n_microbatches, uint32_t shift)
{
    sim_period_t none = { 0 };
    if (shift == 0 || n_microbatches < 3 * shift)
        return none;
    /* In the middle between warm-up and cool-down. */
    uint32_t middle = n_microbatches / 2 / shift * shift;
    size_t a = find_forward(order, middle - shift), b = find_forward(order, middle);
    if (b == order->n || a >= b || !is_shifted(&order->steps[a], &order->steps[b], shift))
        return none;
    size_t length = b - a, first = a, end = b;
    while (first > 0 &&
           is_shifted(&order->steps[first - 1], &order->steps[first - 1 + length], shift))
        first--;
    while (end < order->n && is_shifted(&order->steps[end - length], &order->steps[end], shift))
        end++;
    return (sim_period_t){ .first = first, .end = end, .length = length, .shift = shift };
}

/* ---- states ---- */

static void put(sim_state_t *state, uint64_t word)
{
    if (state->n == state->cap) {
        state->cap = 2 * state->cap + 1024;
        state->words = base_xrealloc(state->words, state->cap, sizeof(*state->words));
    }
    state->words[state->n++] = word;
    state->hash = (state->hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    state->hash ^= state->hash >> 29;
}

static void put_block(sim_state_t *state, const sim_player_t *p, sim_block_t block)
{
    if (block == SIM_BLOCK_NONE) {
        put(state, UINT64_MAX);
        return;
    }
    put(state, sim_alloc_block_addr(p->alloc, block));
    put(state, sim_alloc_block_bytes(p->alloc, block));
}

/* The allocator's segments: they are the same when none was made or given back since. */
static void put_segments(sim_state_t *state, const sim_player_t *p)
{
    const sim_alloc_stats_t *stats = sim_alloc_stats(p->alloc);
    put(state, sim_alloc_reserved_bytes(p->alloc));
    put(state, stats->num_device_alloc);
    put(state, stats->num_device_free);
    put(state, stats->num_alloc_retries);
}

static void put_latest(sim_state_t *state, const sim_player_t *p, const sim_player_chunk_t *chunk,
                       uint32_t base)
{
    if (!p->scenario->overlap_moe_expert_parallel_comm)
        return;
    for (uint32_t layer = 0; layer < chunk->chunk.place.n_layers; layer++) {
        const sim_latest_t *latest = &chunk->latest[layer];
        put(state, (uint64_t)latest->microbatch - base);
        put(state, latest->n);
        for (uint32_t i = 0; i < latest->n; i++)
            put_block(state, p, latest->kept[i].block);
    }
}

/* Passes in flight; micro-batches count from `base`. */
static void put_passes(sim_state_t *state, const sim_player_t *p, uint32_t base)
{
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const sim_player_chunk_t *chunk = &p->chunks[c];
        put(state, chunk->n_deferred);
        put_latest(state, p, chunk, base);
        for (uint32_t m = 0; m < p->n_microbatches; m++) {
            const sim_slots_t *pass = &chunk->passes[m];
            if (pass->slots == NULL)
                continue;
            put(state, (uint64_t)m - base);
            put(state, pass->is_deferred);
            put(state, pass->waits);
            put(state, pass->let_go);
            for (uint32_t i = 0; i < chunk->chunk.n_slots; i++)
                put_block(state, p, pass->slots[i]);
        }
    }
    for (uint32_t i = 0; i < SIM_N_BUFFERS_OF * p->persistent.n; i++)
        put_block(state, p, p->persistent_blocks[i]);
}

static void put_statics(sim_state_t *state, const sim_player_t *p, const sim_statics_t *list)
{
    put(state, list->n);
    for (uint32_t i = 0; i < list->n; i++)
        put_block(state, p, list->items[i].block);
}

static void begin_state(sim_state_t *state, const sim_player_t *p)
{
    state->n = 0;
    state->hash = 0;
    state->n_ops = p->n_ops;
}

/* All but what lives outside the passes, which does not change within an iteration. */
static void take_step_state(sim_state_t *state, const sim_player_t *p, uint32_t base)
{
    begin_state(state, p);
    put_segments(state, p);
    put_passes(state, p, base);
}

static void take_whole_state(sim_state_t *state, const sim_player_t *p)
{
    begin_state(state, p);
    put_segments(state, p);
    put_passes(state, p, 0);
    put(state, p->has_moments);
    for (uint32_t c = 0; c < p->n_chunks; c++)
        put_statics(state, p, &p->chunks[c].params);
    put_statics(state, p, &p->buffers);
    put_statics(state, p, &p->optimizer);
    put_statics(state, p, &p->step_temporaries);
    put_statics(state, p, &p->grad_copies);
}

static bool states_equal(const sim_state_t *a, const sim_state_t *b)
{
    return a->hash == b->hash && a->n == b->n &&
           memcmp(a->words, b->words, a->n * sizeof(*a->words)) == 0;
}

/* ---- the short cuts ---- */

void sim_repeat_init(sim_repeat_t *repeat, const sim_player_t *p, bool is_on)
{
    *repeat = (sim_repeat_t){ 0 };
    /* Garbage collection looks at the age of blocks, which is not part of the state. */
    /* Nor is what fully sharded units have gathered. */
    repeat->is_on = is_on && p->lengths == NULL && p->sharding != SIM_SHARDING_UNITS &&
                    sim_alloc_conf(p->alloc)->gc_threshold == 0;
    if (!repeat->is_on)
        return;
    const sim_scenario_t *s = p->scenario;
    uint64_t group = s->microbatch_group_size_per_virtual_pipeline_stage;
    bool is_interleaved = p->n_chunks > 1 && !sim_schedule_splits(s->pipeline_schedule);
    uint32_t shift = is_interleaved ? (uint32_t)group : 1;
    repeat->period = sim_period_find(&p->order, p->n_microbatches, shift);
}

void sim_repeat_fini(sim_repeat_t *repeat)
{
    for (uint32_t i = 0; i < SIM_REPEAT_MAX_STATES; i++)
        free(repeat->states[i].words);
    free(repeat->before.words);
    *repeat = (sim_repeat_t){ 0 };
}

/* Whether op number `stop_at` would be among the n_ops that follow. */
static bool would_stop(const sim_player_t *p, uint64_t n_ops)
{
    return p->stop_at > p->n_ops && p->stop_at - p->n_ops <= n_ops;
}

bool sim_repeat_iteration(sim_repeat_t *repeat, const sim_player_t *p, uint32_t iteration,
                          uint64_t *n_ops_p)
{
    repeat->n_states = 0;
    repeat->is_settled = false;
    /* The first iteration leaves steps out, and what it makes for the first time. */
    /* Beside the steps, a moment may come between two iterations. */
    if (!repeat->is_on || p->scenario->moments != 0 || iteration < 2 ||
        iteration >= p->scenario->iterations + 1)
        return false;
    sim_state_t now = { 0 };
    take_whole_state(&now, p);
    bool same_step = sim_player_is_step_skipped(p->scenario, iteration - 1) ==
                     sim_player_is_step_skipped(p->scenario, iteration);
    bool repeats = repeat->has_before && same_step && sim_graphs_are_settled(p, iteration) &&
                   states_equal(&now, &repeat->before);
    *n_ops_p = repeats ? now.n_ops - repeat->before.n_ops : 0;
    uint64_t n_left = p->scenario->iterations - iteration + 1;
    if (repeats && would_stop(p, n_left * *n_ops_p))
        repeats = false;
    free(repeat->before.words);
    repeat->before = now;
    repeat->has_before = true;
    return repeats;
}

/* Everything in flight moves on by `shift` micro-batches. */
static void shift_passes(sim_player_t *p, uint32_t shift)
{
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        sim_player_chunk_t *chunk = &p->chunks[c];
        for (uint32_t m = p->n_microbatches; m-- > 0;) {
            sim_slots_t *pass = &chunk->passes[m];
            if (pass->slots == NULL)
                continue;
            for (uint32_t i = 0; i < chunk->chunk.n_slots; i++) {
                if (pass->slots[i] != SIM_BLOCK_NONE)
                    p->owners[pass->slots[i]].microbatch += shift;
            }
            chunk->passes[m + shift] = *pass;
            *pass = (sim_slots_t){ 0 };
        }
    }
}

/* The state of `now` was there n_back periods ago, n_left periods are left: jump over whole
 * multiples of what lies between. Returns the steps. */
static size_t jump(const sim_repeat_t *repeat, sim_player_t *p, const sim_state_t *now,
                   const sim_state_t *then, uint64_t n_back, uint64_t n_left)
{
    uint64_t n_cycles = n_left / n_back;
    uint64_t n_ops = n_cycles * (now->n_ops - then->n_ops);
    if (n_cycles == 0 || would_stop(p, n_ops))
        return 0;
    shift_passes(p, (uint32_t)(n_cycles * n_back * repeat->period.shift));
    p->n_ops += n_ops;
    return (size_t)(n_cycles * n_back) * repeat->period.length;
}

size_t sim_repeat_steps(sim_repeat_t *repeat, sim_player_t *p, size_t at)
{
    const sim_period_t *period = &repeat->period;
    if (!repeat->is_on || repeat->is_settled || period->length == 0 || at < period->first ||
        at >= period->end || (at - period->first) % period->length != 0)
        return 0;
    uint64_t n_left = (period->end - at) / period->length;
    if (n_left == 0 || repeat->n_states == SIM_REPEAT_MAX_STATES) {
        repeat->is_settled = true;
        return 0;
    }
    uint64_t number = (at - period->first) / period->length;
    sim_state_t *now = &repeat->states[repeat->n_states];
    take_step_state(now, p, (uint32_t)(number * period->shift));
    for (uint32_t i = repeat->n_states; i-- > 0;) {
        if (!states_equal(now, &repeat->states[i]))
            continue;
        repeat->is_settled = true;
        return jump(repeat, p, now, &repeat->states[i], repeat->n_states - i, n_left);
    }
    repeat->n_states++;
    return 0;
}
