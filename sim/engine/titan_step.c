/* SPDX-License-Identifier: Apache-2.0
 * Model build and optimizer step of torchtitan: the model is made on the meta device, sharded, and
 * gets memory as shards; AdamW has them for parameters. torchtitan train.py,
 * components/optimizer.py; PyTorch torch/optim/adamw.py. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/engine/fsdp2.h"
#include "sim/model/software.h"

enum { FP32_BYTES = 4 };

/* Elements of a parameter that a rank has, padding included. */
static uint64_t owned(const sim_player_t *p, const sim_param_t *param)
{
    const sim_scenario_t *s = p->scenario;
    uint64_t n_ranks = (uint64_t)s->grid.dp * s->grid.cp / s->data_parallel_replicate_degree;
    uint64_t rows = param->is_vector ? param->n_elements : param->rows;
    return base_u64_round_up(rows, n_ranks) / n_ranks * (param->n_elements / rows);
}

static bool add(sim_player_t *p, sim_statics_t *list, const sim_param_t *param, const char *name,
                sim_category_t category, uint64_t bytes)
{
    sim_tensor_t tensor = { .name = name,
                            .bytes = bytes,
                            .layer = param->layer,
                            .category = (uint8_t)category,
                            .module = category == SIM_CAT_PARAMETERS ? param->module
                                                                     : SIM_MOD_OPTIMIZER };
    return sim_player_add_static(p, list, &tensor, 0);
}

typedef bool (*visit_f)(sim_player_t *p, const sim_param_t *param);

static bool foreach_param(sim_player_t *p, visit_f visit)
{
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const sim_params_t *params = &p->chunks[c].chunk.params;
        p->now.chunk = (uint16_t)c;
        for (uint32_t i = 0; i < params->n; i++)
            if (!visit(p, &params->params[i]))
                return false;
    }
    return true;
}

static bool add_shard(sim_player_t *p, const sim_param_t *param)
{
    return add(p, &p->buffers, param, "param_shard", SIM_CAT_PARAMETERS,
               owned(p, param) * FP32_BYTES);
}

/* Every chunk has the table of rotary angles: complex64 [max_seq_len, head_dim / 2]. */
bool sim_titan_build_shards(sim_player_t *p)
{
    p->now.phase = SIM_PHASE_MODEL_BUILD;
    if (!foreach_param(p, add_shard))
        return false;
    const sim_tensor_t angles = { .name = "freqs_cis",
                                  .bytes = p->dims.s * p->dims.head_dim / 2 * 8,
                                  .layer = SIM_NO_LAYER,
                                  .category = SIM_CAT_PARAMETERS,
                                  .module = SIM_MOD_ATTENTION };
    for (uint32_t c = 0; c < p->n_chunks; c++)
        if (!sim_player_add_static(p, &p->buffers, &angles, 0))
            return false;
    return true;
}

static bool is_fused(const sim_scenario_t *s)
{
    if (s->optimizer_implementation != SIM_ADAMW_BY_DATE)
        return s->optimizer_implementation == SIM_ADAMW_FUSED;
    return sim_software_has(s, SIM_SOFTWARE_TITAN_FUSED_ADAMW);
}

/* The fused kernel wants its count of steps on the GPU. */
static bool add_moments(sim_player_t *p, const sim_param_t *param)
{
    uint64_t bytes = owned(p, param) * FP32_BYTES;
    return (!is_fused(p->scenario) ||
            add(p, &p->optimizer, param, "step", SIM_CAT_OPTIMIZER, FP32_BYTES)) &&
           add(p, &p->optimizer, param, "exp_avg", SIM_CAT_OPTIMIZER, bytes) &&
           add(p, &p->optimizer, param, "exp_avg_sq", SIM_CAT_OPTIMIZER, bytes);
}

/* _multi_tensor_adamw(): the square roots of all second moments at once. */
static bool add_root(sim_player_t *p, const sim_param_t *param)
{
    return add(p, &p->step_temporaries, param, "exp_avg_sq_sqrt", SIM_CAT_TEMPORARY,
               owned(p, param) * FP32_BYTES);
}

bool sim_titan_step(sim_player_t *p)
{
    if (!p->has_moments && !foreach_param(p, add_moments))
        return false;
    p->has_moments = true;
    if (is_fused(p->scenario))
        return true;
    if (!foreach_param(p, add_root))
        return false;
    sim_player_free_statics(p, &p->step_temporaries);
    return true;
}

/* ---- pipelines: torch/distributed/pipelining/stage.py ---- */

static bool add_buffers(sim_player_t *p, const char *name, uint64_t bytes)
{
    const sim_tensor_t tensor = { .name = name,
                                  .bytes = bytes,
                                  .layer = SIM_NO_LAYER,
                                  .category = SIM_CAT_PIPELINE,
                                  .module = SIM_MOD_PIPELINE };
    for (uint32_t m = 0; m < p->n_microbatches; m++)
        if (!sim_player_add_static(p, &p->buffers, &tensor, 0))
            return false;
    return true;
}

static bool is_first(const sim_chunk_t *chunk)
{
    return chunk->place.has_embedding;
}

/* _prepare_forward_infra(), _prepare_backward_infra() */
static bool add_receivers(sim_player_t *p)
{
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const sim_chunk_t *chunk = &p->chunks[c].chunk;
        p->now.chunk = (uint16_t)c;
        if ((!is_first(chunk) && !add_buffers(p, "stage_input", chunk->in_bytes)) ||
            (!chunk->place.has_loss && !add_buffers(p, "output_grad", chunk->out_bytes)))
            return false;
    }
    return true;
}

/* clear_runtime_states() */
static void let_go(sim_player_t *p, sim_player_chunk_t *c)
{
    static const int slots[] = { SIM_SLOT_OUTPUT, SIM_SLOT_INPUT_GRAD };
    for (uint32_t m = 0; m < p->n_microbatches; m++)
        for (size_t i = 0; i < 2; i++)
            sim_player_free_border(p, c, m, slots[i]);
}

bool sim_titan_begin_step(sim_player_t *p)
{
    if (p->scenario->pipeline_model_parallel_size == 1)
        return true;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        let_go(p, &p->chunks[c]);
    bool is_first_step = p->now.iteration <= 1;
    return !is_first_step || add_receivers(p);
}

/* _merge_outputs(): step() returns what the last stage made of all micro-batches as one tensor. */
bool sim_titan_merge_outputs(sim_player_t *p)
{
    const sim_chunk_t *last = &p->chunks[p->n_chunks - 1].chunk;
    if (p->scenario->pipeline_model_parallel_size == 1 || !last->place.has_loss)
        return true;
    const sim_param_t none = { .layer = SIM_NO_LAYER };
    return sim_player_touch(p, &none, "merged_outputs", p->n_microbatches * p->dims.logits_bytes);
}
