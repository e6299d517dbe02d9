/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/rank_run.h"

#include "sim/base/xmem.h"
#include "sim/engine/endless.h"
#include "sim/engine/graphs.h"
#include "sim/engine/moments.h"
#include "sim/engine/player.h"
#include "sim/engine/repeat.h"

#include <stdlib.h>
#include <string.h>

struct sim_rank_run {
    sim_player_t player;
    bool has_memory; /* false once the play of memory has ended */
    uint32_t iteration, n_iterations;
    size_t cursor; /* next step of the iteration */
    sim_repeat_t repeat;
    size_t skip_to; /* steps before this one are not played: they repeat earlier ones */
    bool repeats;   /* this iteration and all that follow are like the one before */
    uint64_t n_ops_an_iteration;
    sim_rank_result_t result;
    bool has_ended; /* memory ran out; `result` is of a device without end, this of the one there
                       is: */
    sim_rank_result_t ended;
};

static void note_iteration(const sim_player_t *p, sim_rank_result_t *result)
{
    result->iterations[result->n_iterations++] = (sim_iteration_t){
        .allocated_bytes = sim_alloc_allocated_bytes(p->alloc),
        .reserved_bytes = sim_alloc_reserved_bytes(p->alloc),
        .max_allocated_bytes = p->account.peak_bytes,
        .max_reserved_bytes = p->max_reserved_bytes,
    };
}

static void fill_result(sim_player_t *p, sim_rank_result_t *r)
{
    sim_account_settle(&p->account);
    for (uint32_t c = 0; c < p->n_chunks; c++)
        r->n_parameters += p->chunks[c].chunk.params.n_elements;
    r->max_allocated_bytes = p->account.peak_bytes;
    r->allocated_moment = p->account.peak_moment;
    r->at_peak = p->account.at_peak;
    r->max_reserved_bytes = p->max_reserved_bytes;
    r->reserved_moment = p->reserved_moment;
    r->n_allocator_ops = p->n_ops;
    r->host_bytes = p->host_bytes + p->max_offloaded_bytes;
    r->mempools = sim_alloc_mempools(p->alloc);
    r->n_alloc_retries = sim_alloc_stats(p->alloc)->num_alloc_retries;
    r->is_out_of_memory = p->is_out_of_memory;
    if (p->is_out_of_memory) {
        r->oom_moment = p->oom_moment;
        memcpy(r->oom_tensor, p->oom_tensor, sizeof(r->oom_tensor));
        r->oom_requested_bytes = p->oom_requested_bytes;
        r->oom = *sim_alloc_last_oom(p->alloc);
        r->at_oom = p->account.now;
    }
    r->alive = p->alive;
    r->n_alive = p->n_alive;
    p->alive = NULL;
}

static void note_end(void *arg)
{
    sim_rank_run_t *run = arg;
    sim_rank_result_t *r = &run->ended;
    run->has_ended = true;
    *r = run->result;
    r->iterations = base_xcalloc(run->n_iterations, sizeof(*r->iterations));
    memcpy(r->iterations, run->result.iterations, r->n_iterations * sizeof(*r->iterations));
    fill_result(&run->player, r);
}

base_status_t sim_rank_run_create(const sim_scenario_t *scenario, const sim_place_t *place,
                                  const sim_rank_run_options_t *options, sim_rank_run_t **run_p,
                                  base_err_t *err)
{
    sim_rank_run_t *run = base_xcalloc(1, sizeof(*run));
    sim_player_t *p = &run->player;
    base_status_t status;
    if (options->device != NULL)
        status = sim_player_init_on(p, scenario, place, options->device, err);
    else if (options->without_memory)
        status = sim_player_order(scenario, place, &p->order, err);
    else
        status = sim_player_init(p, scenario, place, options->unlimited, err);
    if (status != BASE_OK) {
        sim_rank_run_destroy(run);
        return status;
    }
    p->want_alive = options->want_alive;
    p->stop_at = options->stop_at;
    p->observer = options->observer;
    run->n_iterations = (uint32_t)scenario->iterations;
    run->result.iterations = base_xcalloc(run->n_iterations, sizeof(*run->result.iterations));
    if (options->want_need && !options->without_memory)
        sim_endless_init(p, note_end, run);
    run->has_memory =
        !options->without_memory && sim_player_build(p) && sim_moments_before(p, &run->result);
    bool is_observed = options->observer.see != NULL;
    /* The order in which tensors of one size are listed depends on how often blocks were used; an
     * observer has no use for it. */
    bool may_skip = !options->plays_all && (!options->want_alive || is_observed);
    if (run->has_memory)
        sim_repeat_init(&run->repeat, p, may_skip);
    if (is_observed)
        run->repeat.period = (sim_period_t){ 0 }; /* it sees each micro-batch */
    run->iteration = 1;
    *run_p = run;
    return BASE_OK;
}

void sim_rank_run_destroy(sim_rank_run_t *run)
{
    if (run == NULL)
        return;
    sim_player_fini(&run->player);
    sim_repeat_fini(&run->repeat);
    sim_rank_result_fini(&run->result);
    sim_rank_result_fini(&run->ended);
    free(run);
}

static bool concerns_others(const sim_step_t *step)
{
    static const bool table[SIM_N_STEPS] = {
        [SIM_STEP_SEND_FORWARD] = true,      [SIM_STEP_SEND_BACKWARD] = true,
        [SIM_STEP_WAIT_RECV_FORWARD] = true, [SIM_STEP_WAIT_RECV_BACKWARD] = true,
        [SIM_STEP_FINALIZE_GRADS] = true,
    };
    return table[step->kind];
}

static void begin_iteration(sim_rank_run_t *run)
{
    sim_player_t *p = &run->player;
    p->now = (sim_moment_t){ .iteration = run->iteration, .layer = SIM_NO_LAYER };
    run->skip_to = 0;
    if (run->has_memory && !run->repeats)
        run->has_memory = sim_graphs_before_iteration(p, run->iteration);
    if (run->has_memory && !run->repeats)
        run->repeats =
            sim_repeat_iteration(&run->repeat, p, run->iteration, &run->n_ops_an_iteration);
    if (run->has_memory && !run->repeats)
        run->has_memory = sim_player_zero_grad(p) && sim_graphs_before_passes(p, run->iteration);
}

static void play_step(sim_rank_run_t *run, const sim_step_t *step)
{
    size_t at = (size_t)(step - run->player.order.steps);
    if (!run->has_memory || run->repeats || at < run->skip_to)
        return;
    size_t n_skipped = sim_repeat_steps(&run->repeat, &run->player, at);
    if (n_skipped > 0)
        run->skip_to = at + n_skipped;
    else
        run->has_memory = sim_player_run(&run->player, step);
}

static void end_iteration(sim_rank_run_t *run)
{
    sim_player_t *p = &run->player;
    if (run->repeats)
        p->n_ops += run->n_ops_an_iteration;
    else if (run->has_memory)
        run->has_memory =
            sim_graphs_after_passes(p, run->iteration) &&
            sim_player_step(p, sim_player_is_step_skipped(p->scenario, run->iteration));
    if (run->has_memory) {
        note_iteration(p, &run->result);
        run->has_memory = sim_moments_after(p, run->iteration, &run->result);
    }
    run->iteration++;
    run->cursor = 0;
}

const sim_step_t *sim_rank_run_next(sim_rank_run_t *run)
{
    const sim_order_t *order = &run->player.order;
    while (run->iteration <= run->n_iterations) {
        if (run->cursor == 0)
            begin_iteration(run);
        while (run->cursor < order->n) {
            const sim_step_t *step = &order->steps[run->cursor++];
            play_step(run, step);
            if (concerns_others(step))
                return step;
        }
        end_iteration(run);
    }
    return NULL;
}

sim_device_t *sim_rank_run_device(sim_rank_run_t *run)
{
    return run->player.device;
}

uint32_t sim_rank_run_iteration(const sim_rank_run_t *run)
{
    return run->iteration;
}

void sim_rank_run_result(sim_rank_run_t *run, sim_rank_result_t *result_p, uint64_t *peak_op_p)
{
    fill_result(&run->player, &run->result);
    sim_rank_result_t *r = &run->result;
    if (run->has_ended) {
        r = &run->ended;
        r->has_need = true;
        r->need_is_known = !run->result.is_out_of_memory;
        r->need_allocated_bytes = run->result.max_allocated_bytes;
        r->need_reserved_bytes = run->result.max_reserved_bytes;
    }
    *result_p = *r;
    *r = (sim_rank_result_t){ 0 };
    if (peak_op_p != NULL)
        *peak_op_p = run->player.peak_op;
}
