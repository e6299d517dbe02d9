/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/moments.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <stdlib.h>

enum { FP32_BYTES = 4, N_EVALUATED = 2 /* micro-batches; more are like the second */ };

static bool has_moment(const sim_player_t *p, sim_run_moment_t which)
{
    return (p->scenario->moments & which) != 0;
}

void sim_moments_init(sim_player_t *p)
{
    if (!has_moment(p, SIM_MOMENT_EVALUATION))
        return;
    p->evaluation = base_xcalloc(p->n_chunks, sizeof(*p->evaluation));
    for (uint32_t c = 0; c < p->n_chunks; c++)
        sim_chunk_init_evaluation(&p->evaluation[c], p->scenario, &p->dims,
                                  topo_stages_chunk(&p->scenario->stages, p->place.pp, c),
                                  p->place.tp, &p->persistent);
}

void sim_moments_fini(sim_player_t *p)
{
    for (uint32_t c = 0; c < p->n_chunks && p->evaluation != NULL; c++)
        sim_chunk_fini(&p->evaluation[c]);
    free(p->evaluation);
    p->evaluation = NULL;
}

/* ---- what a moment holds at most ---- */

/* Peaks so far, put aside while a moment is played. */
typedef struct {
    sim_account_t account;
    uint64_t reserved_bytes, op;
    sim_moment_t reserved_moment;
} before_t;

static void begin(sim_player_t *p, before_t *before)
{
    sim_account_settle(&p->account);
    *before = (before_t){ .account = p->account,
                          .reserved_bytes = p->max_reserved_bytes,
                          .reserved_moment = p->reserved_moment,
                          .op = p->peak_op };
    p->account.peak_bytes = p->account.allocated_bytes;
    p->max_reserved_bytes = sim_alloc_reserved_bytes(p->alloc);
}

/* The higher of both peaks stays. */
static void end(sim_player_t *p, const before_t *before, sim_phase_t which,
                sim_rank_result_t *result)
{
    sim_account_settle(&p->account);
    result->extras[result->n_extras++] =
        (sim_extra_t){ .which = (uint8_t)which,
                       .max_allocated_bytes = p->account.peak_bytes,
                       .max_reserved_bytes = p->max_reserved_bytes };
    if (p->account.peak_bytes <= before->account.peak_bytes) {
        p->account.peak_bytes = before->account.peak_bytes;
        p->account.peak_moment = before->account.peak_moment;
        p->account.at_peak = before->account.at_peak;
        p->peak_op = before->op;
    }
    if (p->max_reserved_bytes <= before->reserved_bytes) {
        p->max_reserved_bytes = before->reserved_bytes;
        p->reserved_moment = before->reserved_moment;
    }
}

/* ---- loading ---- */

/* init_state_fn() makes the moments, of which what is read is copied into what is there; then the
 * cache is emptied. SGD's are made by its first step. */
static bool load_checkpoint(sim_player_t *p)
{
    if (p->scenario->optimizer != SIM_OPTIMIZER_SGD && !sim_player_make_moments(p))
        return false;
    sim_alloc_empty_cache(p->alloc);
    return true;
}

/* ---- evaluation ---- */

/* evaluate() turns off what keeps the data of steps to run them again: nothing is held. */
static bool play_forward(sim_player_t *p, const sim_chunk_t *chunk, sim_block_t *slots)
{
    for (const sim_op_t *op = chunk->forward.ops, *end = op + chunk->forward.n_ops; op < end;
         op++) {
        bool ok = true;
        if (op->kind == SIM_OP_ALLOC) {
            ok = sim_player_alloc(p, &chunk->of.tensors[op->tensor], op->bytes, op->stream,
                                  &slots[op->slot]);
        } else if (op->kind == SIM_OP_FREE || op->kind == SIM_OP_HOLD) {
            sim_player_free(p, &chunk->of.tensors[op->tensor], slots[op->slot]);
            slots[op->slot] = SIM_BLOCK_NONE;
        } else if (op->kind == SIM_OP_PERSIST) {
            ok = sim_player_touch_persistent(p, op);
        }
        if (!ok)
            return false;
    }
    return true;
}

static const sim_tensor_t stage_input = { "stage_input", 0, SIM_NO_LAYER, SIM_CAT_PIPELINE,
                                          SIM_MOD_PIPELINE };

/* Variables of the schedule hold the last input until the next has come, and the last output until
 * the next has been made. */
typedef struct {
    sim_block_t input, output;
    const sim_tensor_t *output_tensor;
} held_t;

static void let_go(sim_player_t *p, sim_block_t *block_p, const sim_tensor_t *tensor)
{
    if (*block_p != SIM_BLOCK_NONE)
        sim_player_free(p, tensor, *block_p);
    *block_p = SIM_BLOCK_NONE;
}

static const sim_tensor_t *tensor_of_slot(const sim_chunk_t *chunk, uint32_t slot)
{
    const sim_tensor_t *tensor = &stage_input;
    for (uint32_t i = 0; i < chunk->forward.n_ops; i++) {
        const sim_op_t *op = &chunk->forward.ops[i];
        if (op->kind == SIM_OP_ALLOC && op->slot == slot)
            tensor = &chunk->of.tensors[op->tensor];
    }
    return tensor;
}

static bool evaluate_chunk(sim_player_t *p, const sim_chunk_t *chunk, held_t *held)
{
    sim_block_t *slots = base_xcalloc(chunk->n_slots, sizeof(*slots));
    for (uint32_t i = 0; i < chunk->n_slots; i++)
        slots[i] = SIM_BLOCK_NONE;
    bool ok = chunk->place.has_embedding ||
              sim_player_alloc(p, &stage_input, chunk->in_bytes, 0, &slots[SIM_SLOT_INPUT]);
    if (ok) {
        sim_block_t input = slots[SIM_SLOT_INPUT];
        let_go(p, &held->input, &stage_input);
        ok = play_forward(p, chunk, slots);
        held->input = input;
    }
    if (ok) {
        let_go(p, &held->output, held->output_tensor);
        held->output = slots[SIM_SLOT_OUTPUT];
        held->output_tensor = tensor_of_slot(chunk, SIM_SLOT_OUTPUT);
    }
    free(slots);
    return ok;
}

/* forward_only: no pass is in flight when the next begins. */
static bool evaluate(sim_player_t *p)
{
    held_t held = { SIM_BLOCK_NONE, SIM_BLOCK_NONE, NULL };
    sim_player_release_latest(p);
    for (uint32_t m = 0; m < N_EVALUATED; m++) {
        for (uint32_t c = 0; c < p->n_chunks; c++) {
            p->now.chunk = (uint16_t)c;
            if (!evaluate_chunk(p, &p->evaluation[c], &held))
                return false;
        }
    }
    let_go(p, &held.input, &stage_input);
    let_go(p, &held.output, held.output_tensor);
    if (p->scenario->empty_unused_memory_level >= 1)
        sim_alloc_empty_cache(p->alloc);
    return true;
}

/* ---- saving ---- */

/* force_all_tensors_to_non_fp8(): parameters in FP8 are saved as 16-bit copies, all at once. */
static bool add_plain_params(sim_player_t *p, sim_statics_t *list)
{
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const sim_params_t *params = &p->chunks[c].chunk.params;
        p->now.chunk = (uint16_t)c;
        for (uint32_t i = 0; i < params->n; i++) {
            const sim_param_t *param = &params->params[i];
            sim_tensor_t tensor = { .name = "param_to_save",
                                    .bytes = param->n_elements * p->dims.e,
                                    .layer = param->layer,
                                    .category = SIM_CAT_TEMPORARY,
                                    .module = param->module };
            if (sim_buffer_is_fp8((sim_buffer_t)param->buffer) &&
                !sim_player_add_static(p, list, &tensor, 0))
                return false;
        }
    }
    return true;
}

static bool add_part(sim_player_t *p, sim_statics_t *list, const char *name, uint64_t bytes)
{
    sim_tensor_t tensor = { .name = name,
                            .bytes = bytes,
                            .layer = SIM_NO_LAYER,
                            .category = SIM_CAT_TEMPORARY,
                            .module = SIM_MOD_OPTIMIZER };
    return sim_player_add_static(p, list, &tensor, 0);
}

/* get_parameter_state_dp_zero() with NCCL: each rank's part of a bucket, this rank's own on the way
 * back from the host, and the flat tensor that PyTorch gathers into before it fills the parts
 * (ProcessGroupNCCL::allgather(), newLikeFlat()). */
static bool gather_bucket(sim_player_t *p, uint64_t n_elements, uint64_t n_ranks)
{
    sim_statics_t list = { 0 };
    uint64_t part_bytes = n_elements / n_ranks * FP32_BYTES;
    bool ok = true;
    for (uint64_t i = 0; i < n_ranks && ok; i++)
        ok = add_part(p, &list, "state_part", part_bytes);
    ok = ok && add_part(p, &list, "state_sent", part_bytes) &&
         add_part(p, &list, "state_gathered", n_ranks * part_bytes);
    if (ok)
        sim_player_free_statics(p, &list);
    free(list.items);
    return ok;
}

/* Main parameter and moments, one after the other. */
static uint32_t n_states(const sim_scenario_t *s)
{
    return s->optimizer == SIM_OPTIMIZER_ADAM ? 3 : 2;
}

static bool gather_states(sim_player_t *p)
{
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        p->now.chunk = (uint16_t)c;
        for (int which = 0; which < SIM_N_BUFFERS; which++) {
            const sim_ddp_buffer_t *buffer = &p->chunks[c].ddp[which];
            uint64_t n_ranks = sim_place_share(&p->place, (sim_buffer_t)which)->n_shards;
            for (uint32_t b = 0; b < buffer->n_buckets; b++) {
                uint64_t n = buffer->buckets[b].end - buffer->buckets[b].start;
                for (uint32_t i = 0; i < n_states(p->scenario); i++)
                    if (!gather_bucket(p, n, n_ranks))
                        return false;
            }
        }
    }
    return true;
}

static bool save_checkpoint(sim_player_t *p)
{
    const sim_scenario_t *s = p->scenario;
    bool gathers = s->use_distributed_optimizer && s->dist_ckpt_optim_fully_reshardable &&
                   !s->distrib_optim_fully_reshardable_mem_efficient;
    sim_statics_t params = { 0 };
    bool ok = (!gathers || gather_states(p)) && add_plain_params(p, &params);
    if (ok)
        sim_player_free_statics(p, &params);
    free(params.items);
    return ok;
}

/* ---- in order ---- */

static bool play(sim_player_t *p, sim_run_moment_t which, sim_phase_t phase,
                 bool (*moment)(sim_player_t *p), sim_rank_result_t *result)
{
    before_t before;
    if (!has_moment(p, which))
        return true;
    begin(p, &before);
    p->now.phase = (uint8_t)phase;
    p->now.microbatch = 0;
    bool ok = moment(p);
    end(p, &before, phase, result);
    return ok;
}

bool sim_moments_before(sim_player_t *p, sim_rank_result_t *result)
{
    return play(p, SIM_MOMENT_CHECKPOINT_LOAD, SIM_PHASE_CHECKPOINT_LOAD, load_checkpoint, result);
}

bool sim_moments_after(sim_player_t *p, uint32_t iteration, sim_rank_result_t *result)
{
    if (iteration != SIM_MOMENTS_AFTER)
        return true;
    return play(p, SIM_MOMENT_EVALUATION, SIM_PHASE_EVALUATION, evaluate, result) &&
           play(p, SIM_MOMENT_CHECKPOINT_SAVE, SIM_PHASE_CHECKPOINT_SAVE, save_checkpoint, result);
}
