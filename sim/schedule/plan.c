/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/schedule/plan.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/schedule/plan_build.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

void sim_plan_add(sim_plan_t *plan, uint32_t pp_rank, sim_plan_kind_t kind, uint32_t chunk,
                  uint32_t microbatch)
{
    sim_plan_rank_t *rank = &plan->ranks[pp_rank];
    if (rank->n == rank->capacity) {
        rank->capacity = rank->capacity * 2 + 64;
        rank->ops = base_xrealloc(rank->ops, rank->capacity, sizeof(*rank->ops));
    }
    rank->ops[rank->n++] =
        (sim_plan_op_t){ .kind = (uint8_t)kind, .chunk = (uint8_t)chunk, .microbatch = microbatch };
}

/* Forward passes before the first backward one as in 1F1B; then rank r puts r weight-gradient
 * passes off, so that the input gradients get to the next rank sooner. */
void sim_plan_fill_zb_h1(sim_plan_t *plan)
{
    uint32_t n = plan->n_microbatches;
    for (uint32_t r = 0; r < plan->pp; r++) {
        uint32_t n_warmup = (uint32_t)base_u64_min(plan->pp - r - 1, n), n_done = 0;
        for (uint32_t i = 0; i < n_warmup; i++)
            sim_plan_add(plan, r, SIM_PLAN_FORWARD, 0, i);
        for (uint32_t i = 0; i < n; i++) {
            bool is_steady = n_warmup + i < n;
            if (is_steady)
                sim_plan_add(plan, r, SIM_PLAN_FORWARD, 0, n_warmup + i);
            sim_plan_add(plan, r, SIM_PLAN_INPUT_GRAD, 0, i);
            if (i >= r || !is_steady)
                sim_plan_add(plan, r, SIM_PLAN_WEIGHT_GRAD, 0, n_done++);
        }
        while (n_done < n)
            sim_plan_add(plan, r, SIM_PLAN_WEIGHT_GRAD, 0, n_done++);
    }
}

/* ---- life ---- */

/* dualpipe.py and dualpipev.py, step(): the assertions at its head. */
static base_status_t check_dualpipe(sim_schedule_t schedule, uint32_t pp, uint32_t n,
                                    base_err_t *err)
{
    const char *name = schedule == SIM_SCHEDULE_DUALPIPE ? "DualPipe" : "DualPipeV";
    if (schedule == SIM_SCHEDULE_DUALPIPE && pp % 2 != 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "DualPipe needs an even pipeline_model_parallel_size, not %" PRIu32,
                            pp);
    if (schedule == SIM_SCHEDULE_DUALPIPE && n % 2 != 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "DualPipe needs an even number of micro-batches, half for each "
                            "direction; an iteration has %" PRIu32,
                            n);
    if (n < 2 * (uint64_t)pp)
        return base_err_set(err, BASE_ERR_INVAL,
                            "%s needs at least twice as many micro-batches as "
                            "pipeline_model_parallel_size %" PRIu32 "; an iteration has %" PRIu32,
                            name, pp, n);
    return BASE_OK;
}

static base_status_t check(sim_schedule_t schedule, uint32_t pp, uint32_t n, base_err_t *err)
{
    if (n == 0)
        return base_err_set(err, BASE_ERR_INVAL, "an iteration needs at least one micro-batch");
    if (pp < 2)
        return base_err_set(err, BASE_ERR_INVAL,
                            "a schedule that splits the backward pass needs "
                            "pipeline_model_parallel_size > 1");
    if ((uint64_t)pp * n > SIM_PLAN_MAX_PASSES / 6)
        return base_err_set(err, BASE_ERR_UNSUPPORTED,
                            "%" PRIu32 " micro-batches on %" PRIu32
                            " pipeline ranks are more than %d passes",
                            n, pp, SIM_PLAN_MAX_PASSES);
    if (schedule == SIM_SCHEDULE_DUALPIPE || schedule == SIM_SCHEDULE_DUALPIPEV)
        return check_dualpipe(schedule, pp, n, err);
    return BASE_OK;
}

base_status_t sim_plan_init(sim_plan_t *plan_p, sim_schedule_t schedule, uint32_t pp,
                            uint32_t n_microbatches, base_err_t *err)
{
    assert(sim_schedule_splits(schedule));
    base_status_t status = check(schedule, pp, n_microbatches, err);
    if (status != BASE_OK)
        return status;
    topo_placement_t placement = sim_schedule_placement(schedule);
    sim_plan_t plan = { .schedule = schedule,
                        .placement = placement,
                        .pp = pp,
                        .n_chunks = placement == TOPO_PLACEMENT_LOOP ? 1 : 2,
                        .n_microbatches = n_microbatches };
    plan.ranks = base_xcalloc(pp, sizeof(*plan.ranks));
    switch (schedule) {
    case SIM_SCHEDULE_DUALPIPE:
    case SIM_SCHEDULE_DUALPIPEV:
        sim_plan_fill_dualpipe(&plan);
        break;
    case SIM_SCHEDULE_ZBV:
        sim_plan_fill_zbv(&plan);
        sim_plan_add_messages(&plan);
        break;
    case SIM_SCHEDULE_V_HALF:
    case SIM_SCHEDULE_V_MIN:
        sim_plan_fill_building_block(&plan);
        sim_plan_add_messages(&plan);
        break;
    default:
        sim_plan_fill_zb_h1(&plan);
        sim_plan_add_messages(&plan);
        break;
    }
    *plan_p = plan;
    return BASE_OK;
}

void sim_plan_fini(sim_plan_t *plan)
{
    for (uint32_t r = 0; r < plan->pp && plan->ranks != NULL; r++)
        free(plan->ranks[r].ops);
    free(plan->ranks);
    *plan = (sim_plan_t){ 0 };
}

/* ---- looking at a plan ---- */

bool sim_plan_source(const sim_plan_t *plan, uint32_t pp_rank, const sim_plan_op_t *op,
                     uint32_t *pp_rank_p, uint32_t *chunk_p)
{
    uint32_t n_stages = topo_n_stages(plan->placement, plan->pp, plan->n_chunks);
    uint32_t stage = topo_stage_of(plan->placement, plan->pp, pp_rank, op->chunk);
    bool is_forward = op->kind == SIM_PLAN_FORWARD;
    if (op->kind == SIM_PLAN_WEIGHT_GRAD || stage == (is_forward ? 0 : n_stages - 1))
        return false;
    *chunk_p = op->chunk;
    topo_stage_place(plan->placement, plan->pp, is_forward ? stage - 1 : stage + 1, pp_rank_p,
                     chunk_p);
    return true;
}

uint32_t sim_plan_in_flight(const sim_plan_t *plan, uint32_t pp_rank)
{
    const sim_plan_rank_t *rank = &plan->ranks[pp_rank];
    uint32_t now = 0, most = 0;
    for (size_t i = 0; i < rank->n; i++) {
        uint8_t kind = rank->ops[i].kind;
        now += kind == SIM_PLAN_FORWARD;
        most = now > most ? now : most;
        now -= kind == SIM_PLAN_WEIGHT_GRAD || kind == SIM_PLAN_BACKWARD;
    }
    return most;
}

static uint64_t cost_of(const sim_plan_costs_t *costs, const sim_plan_op_t *op)
{
    switch ((sim_plan_kind_t)op->kind) {
    case SIM_PLAN_FORWARD:
        return costs->forward;
    case SIM_PLAN_INPUT_GRAD:
        return costs->input_grad;
    case SIM_PLAN_WEIGHT_GRAD:
        return costs->weight_grad;
    case SIM_PLAN_BACKWARD:
        return costs->input_grad + costs->weight_grad;
    default:
        return 0;
    }
}

static const uint64_t not_yet = UINT64_MAX;

/* State of the walk that times a plan; `done` is by rank, chunk, direction and micro-batch. */
typedef struct {
    const sim_plan_t *plan;
    uint64_t *done, *now;
    size_t *at;
    uint64_t **ends;
} walk_t;

static uint64_t *done_at(const walk_t *w, uint32_t rank, uint32_t chunk, bool is_forward,
                         uint32_t microbatch)
{
    size_t i = ((size_t)rank * w->plan->n_chunks + chunk) * 2 + is_forward;
    return &w->done[i * w->plan->n_microbatches + microbatch];
}

/* Run rank `r` on as far as possible; false: it could not move. */
static bool walk_on(walk_t *w, uint32_t r, const sim_plan_costs_t *costs)
{
    const sim_plan_rank_t *rank = &w->plan->ranks[r];
    size_t start = w->at[r];
    for (; w->at[r] < rank->n; w->at[r]++) {
        const sim_plan_op_t *op = &rank->ops[w->at[r]];
        bool is_forward = op->kind == SIM_PLAN_FORWARD;
        uint32_t from, chunk;
        uint64_t begin = w->now[r];
        if (sim_plan_is_pass(op) && sim_plan_source(w->plan, r, op, &from, &chunk)) {
            uint64_t ready = *done_at(w, from, chunk, is_forward, op->microbatch);
            if (ready == not_yet)
                break;
            begin = base_u64_max(begin, ready + (from != r ? costs->message : 0));
        }
        w->now[r] = w->ends[r][w->at[r]] = begin + cost_of(costs, op);
        if (sim_plan_is_pass(op) && op->kind != SIM_PLAN_WEIGHT_GRAD)
            *done_at(w, r, op->chunk, is_forward, op->microbatch) = w->now[r];
    }
    return w->at[r] > start;
}

uint64_t **sim_plan_ends(const sim_plan_t *plan, const sim_plan_costs_t *costs)
{
    size_t n = (size_t)plan->pp * plan->n_chunks * 2 * plan->n_microbatches, n_ops = 0;
    for (uint32_t r = 0; r < plan->pp; r++)
        n_ops += plan->ranks[r].n;
    walk_t w = { .plan = plan,
                 .done = base_xcalloc(n, sizeof(*w.done)),
                 .now = base_xcalloc(plan->pp, sizeof(*w.now)),
                 .at = base_xcalloc(plan->pp, sizeof(*w.at)),
                 .ends = base_xcalloc(plan->pp + 1, sizeof(*w.ends)) };
    w.ends[plan->pp] = base_xcalloc(n_ops, sizeof(**w.ends));
    for (size_t i = 0; i < n; i++)
        w.done[i] = not_yet;
    for (uint32_t r = 0; r < plan->pp; r++)
        w.ends[r] = r == 0 ? w.ends[plan->pp] : w.ends[r - 1] + plan->ranks[r - 1].n;
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t r = 0; r < plan->pp; r++)
            moved = walk_on(&w, r, costs) || moved;
    }
    for (uint32_t r = 0; r < plan->pp; r++)
        assert(w.at[r] == plan->ranks[r].n);
    free(w.done);
    free(w.now);
    free(w.at);
    return w.ends;
}

void sim_plan_ends_free(const sim_plan_t *plan, uint64_t **ends)
{
    free(ends[plan->pp]);
    free(ends);
}

uint64_t sim_plan_span(const sim_plan_t *plan, uint64_t forward, uint64_t input_grad,
                       uint64_t weight_grad, uint64_t message)
{
    sim_plan_costs_t costs = { forward, input_grad, weight_grad, message };
    uint64_t **ends = sim_plan_ends(plan, &costs), span = 0;
    for (uint32_t r = 0; r < plan->pp; r++) {
        if (plan->ranks[r].n > 0)
            span = base_u64_max(span, ends[r][plan->ranks[r].n - 1]);
    }
    sim_plan_ends_free(plan, ends);
    return span;
}
