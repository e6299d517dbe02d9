/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/timeline.h"

#include "sim/base/xmem.h"

#include <assert.h>
#include <stdlib.h>

/* ---- buckets ---- */

static void join_buckets(sim_bucket_t *a, const sim_bucket_t *b)
{
    if (b->low.allocated_bytes < a->low.allocated_bytes)
        a->low = b->low;
    if (b->high.allocated_bytes > a->high.allocated_bytes)
        a->high = b->high;
    if (b->max_reserved_bytes > a->max_reserved_bytes)
        a->max_reserved_bytes = b->max_reserved_bytes;
}

static void halve_buckets(sim_timeline_t *t)
{
    t->n_buckets /= 2;
    for (uint32_t i = 0; i < t->n_buckets; i++) {
        t->buckets[i] = t->buckets[2 * i];
        join_buckets(&t->buckets[i], &t->buckets[2 * i + 1]);
    }
    t->ops_per_bucket *= 2;
}

static void put_sample(sim_timeline_t *t)
{
    sim_bucket_t one = { .low = t->now,
                         .high = t->now,
                         .max_reserved_bytes = t->now.reserved_bytes };
    uint64_t n_before = t->now.op - 1;
    if (n_before == t->ops_per_bucket * t->max_buckets)
        halve_buckets(t);
    if (n_before % t->ops_per_bucket == 0)
        t->buckets[t->n_buckets++] = one;
    else
        join_buckets(&t->buckets[t->n_buckets - 1], &one);
}

/* ---- stretches ---- */

static bool is_in_pass(const sim_moment_t *m)
{
    return sim_phase_is_pass((sim_phase_t)m->phase);
}

static bool continues(const sim_stretch_t *last, const sim_moment_t *m)
{
    if (last->first_iteration != m->iteration || last->last_iteration != m->iteration)
        return false;
    if (last->phases != 1U << m->phase)
        return false;
    return !is_in_pass(m) ||
           (last->first_microbatch == m->microbatch && last->last_microbatch == m->microbatch &&
            last->first_chunk == m->chunk && last->last_chunk == m->chunk);
}

static void join_stretches(sim_stretch_t *a, const sim_stretch_t *b)
{
    a->end_op = b->end_op;
    a->last_iteration = b->last_iteration;
    a->phases |= b->phases;
    if (b->first_microbatch < a->first_microbatch)
        a->first_microbatch = b->first_microbatch;
    if (b->last_microbatch > a->last_microbatch)
        a->last_microbatch = b->last_microbatch;
    if (b->first_chunk < a->first_chunk)
        a->first_chunk = b->first_chunk;
    if (b->last_chunk > a->last_chunk)
        a->last_chunk = b->last_chunk;
}

static void halve_stretches(sim_timeline_t *t)
{
    assert(t->stretches != NULL);
    t->n_stretches /= 2;
    for (uint32_t i = 0; i < t->n_stretches; i++) {
        t->stretches[i] = t->stretches[2 * i];
        join_stretches(&t->stretches[i], &t->stretches[2 * i + 1]);
    }
}

static void put_stretch(sim_timeline_t *t, const sim_moment_t *now)
{
    sim_stretch_t *last = t->n_stretches > 0 ? &t->stretches[t->n_stretches - 1] : NULL;
    /* Gradients are zeroed before the first phase of an iteration: part of what was before it. */
    bool is_between = now->iteration > 0 && now->phase == SIM_PHASE_MODEL_BUILD;
    if (last != NULL && (is_between || continues(last, now))) {
        last->end_op = t->now.op;
        return;
    }
    assert(t->stretches != NULL);
    if (t->n_stretches == t->max_stretches)
        halve_stretches(t);
    bool in_pass = is_in_pass(now);
    uint32_t microbatch = in_pass ? now->microbatch : 0;
    uint16_t chunk = in_pass ? now->chunk : 0;
    t->stretches[t->n_stretches++] = (sim_stretch_t){
        .begin_op = t->now.op,
        .end_op = t->now.op,
        .first_iteration = now->iteration,
        .last_iteration = now->iteration,
        .first_microbatch = microbatch,
        .last_microbatch = microbatch,
        .first_chunk = chunk,
        .last_chunk = chunk,
        .phases = (uint16_t)(1U << now->phase),
    };
}

/* ---- the play ---- */

static void see(void *arg, const sim_observation_t *seen)
{
    sim_timeline_t *t = arg;
    uint64_t *bytes = &t->now.by_category[seen->tensor->category];
    *bytes = seen->is_free ? *bytes - seen->block_bytes : *bytes + seen->block_bytes;
    t->now.op = seen->op;
    t->now.allocated_bytes = seen->allocated_bytes;
    t->now.reserved_bytes = seen->reserved_bytes;
    t->last_iteration = seen->now->iteration;
    t->n_ops = seen->op;
    put_sample(t);
    put_stretch(t, seen->now);
}

base_status_t sim_timeline_rank(const sim_scenario_t *scenario, uint32_t rank,
                                const sim_timeline_options_t *options, sim_timeline_t *timeline_p,
                                sim_rank_result_t *result_p, base_err_t *err)
{
    sim_timeline_t t = { .ops_per_bucket = 1,
                         .max_buckets = options->max_buckets,
                         .max_stretches = options->max_stretches };
    t.buckets = base_xcalloc(t.max_buckets, sizeof(*t.buckets));
    t.stretches = base_xcalloc(t.max_stretches, sizeof(*t.stretches));
    sim_simulate_options_t simulate = { .unlimited = options->unlimited,
                                        .want_alive = options->want_alive,
                                        .observer = { see, &t } };
    sim_rank_result_t result;
    base_status_t status = sim_simulate_rank(scenario, rank, &simulate, &result, err);
    if (status != BASE_OK) {
        sim_timeline_fini(&t);
        return status;
    }
    if (result_p != NULL)
        *result_p = result;
    else
        sim_rank_result_fini(&result);
    *timeline_p = t;
    return BASE_OK;
}

void sim_timeline_fini(sim_timeline_t *timeline)
{
    free(timeline->buckets);
    free(timeline->stretches);
    *timeline = (sim_timeline_t){ 0 };
}
