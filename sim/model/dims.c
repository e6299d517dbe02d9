/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/dims.h"

#include "sim/base/units.h"

#include <math.h>

/* What Transformer Engine picks (dot_product_attention/utils.py, get_attention_backend): from sm90
 * on cuDNN is preferred where it can run, before that FlashAttention. cuDNN has no deterministic
 * backward with dropout on Blackwell, so that FlashAttention is left there. */
static sim_core_t choose_core(const sim_scenario_t *s, uint32_t sm)
{
    if (s->transformer_impl == SIM_IMPL_LOCAL)
        return SIM_CORE_LOCAL;
    switch (s->attention_backend) {
    case SIM_ATTENTION_FLASH:
        return SIM_CORE_FLASH;
    case SIM_ATTENTION_FUSED:
        return SIM_CORE_CUDNN;
    case SIM_ATTENTION_UNFUSED:
        return SIM_CORE_UNFUSED;
    case SIM_ATTENTION_LOCAL:
        return SIM_CORE_LOCAL;
    case SIM_ATTENTION_AUTO:
        break;
    }
    if (!s->bf16 && !s->fp16)
        return SIM_CORE_UNFUSED; /* neither library has 32-bit kernels */
    if (sm < 90)                 /* FlashAttention 2 wants values as wide as keys */
        return s->multi_latent_attention ? SIM_CORE_UNFUSED : SIM_CORE_FLASH;
    if (sm >= 100 && s->deterministic_mode && s->attention_dropout > 0.0)
        return SIM_CORE_FLASH;
    return SIM_CORE_CUDNN;
}

static uint64_t padded_vocab(const sim_scenario_t *s)
{
    if (s->padded_vocab_size > 0)
        return s->padded_vocab_size;
    return base_u64_round_up(s->vocab_size,
                             s->make_vocab_size_divisible_by * s->tensor_model_parallel_size);
}

static bool fill_bytes(sim_dims_t *d, const char **product_p)
{
    /* The largest tensors bound all others, so checking these is enough. */
    uint64_t x;
    *product_p = "tokens * hidden_size";
    if (!base_u64_mul(d->tokens, d->h, &x) || !base_u64_mul(x, 8, &x))
        return false;
    *product_p = "tokens * ffn_hidden_size";
    if (!base_u64_mul(d->tokens, d->ffn, &x) || !base_u64_mul(x, 16, &x))
        return false;
    *product_p = "tokens * vocab_size";
    if (!base_u64_mul(d->tokens, d->padded_vocab, &x) || !base_u64_mul(x, 8, &x))
        return false;
    *product_p = "micro_batch_size * heads * seq_length^2";
    if (!base_u64_mul(d->tokens, d->heads, &x) || !base_u64_mul(x, d->s_kv, &x) ||
        !base_u64_mul(x, 8, &x))
        return false;

    d->hidden_bytes = d->local_tokens * d->h * d->e;
    d->full_hidden_bytes = d->tokens * d->h * d->e;
    d->q_bytes = d->tokens * d->heads_tp * d->head_dim * d->e;
    d->kv_bytes = d->tokens * d->groups_tp * d->head_dim * d->e;
    d->lse_bytes = d->tokens * d->heads_tp * 4;
    d->qkv_bytes = d->tokens * d->qkv_rows * d->e;
    d->fc1_bytes = d->tokens * (d->gate * d->ffn / d->tp) * d->e;
    d->act_bytes = d->tokens * (d->ffn / d->tp) * d->e;
    d->norm_stat_bytes = d->local_tokens * 4 * d->norm_params;
    d->logits_bytes = d->tokens * d->vocab_tp * d->e;
    return true;
}

static void fill_mla(sim_dims_t *d, const sim_scenario_t *s)
{
    uint64_t head_elements = d->tokens * d->heads_tp * d->e;
    sim_mla_dims_t *m = &d->mla;
    *m = (sim_mla_dims_t){
        .is_used = true,
        .q_rank = s->q_lora_rank,
        .kv_rank = s->kv_lora_rank,
        .qk_dim = s->qk_head_dim + s->qk_pos_emb_head_dim,
        .nope_dim = s->qk_head_dim,
        .rope_dim = s->qk_pos_emb_head_dim,
        .v_dim = s->v_head_dim,
    };
    m->q_bytes = head_elements * m->qk_dim;
    m->v_bytes = head_elements * m->v_dim;
    m->kv_bytes = head_elements * (m->nope_dim + m->v_dim);
    m->q_down_bytes = d->local_tokens * m->q_rank * d->e;
    m->kv_down_bytes = d->local_tokens * (m->kv_rank + m->rope_dim) * d->e;
}

static void fill_mamba(sim_dims_t *d, const sim_scenario_t *s)
{
    sim_mamba_dims_t *m = &d->mamba;
    *m = (sim_mamba_dims_t){
        .heads = s->mamba_num_heads / d->tp,
        .groups = s->mamba_num_groups / d->tp,
        .head_dim = s->mamba_head_dim,
        .state = s->mamba_state_dim,
    };
    m->inner = m->heads * m->head_dim;
    m->conv = m->inner + 2 * m->groups * m->state;
    m->proj_rows = m->inner + m->conv + m->heads;
}

static void fill_delta_net(sim_dims_t *d, const sim_scenario_t *s)
{
    sim_delta_net_dims_t *a = &d->delta_net;
    *a = (sim_delta_net_dims_t){
        .key_heads = s->linear_num_key_heads / d->tp,
        .value_heads = s->linear_num_value_heads / d->tp,
        .key_dim = s->linear_key_head_dim,
        .value_dim = s->linear_value_head_dim,
    };
    uint64_t values = a->value_heads * a->value_dim;
    a->conv = 2 * a->key_heads * a->key_dim + values;
    a->proj_rows = a->conv + values + 2 * a->value_heads;
}

static uint64_t router_bytes(const sim_scenario_t *s, uint64_t params_bytes)
{
    return s->moe_router_dtype == SIM_ROUTER_FP64   ? 8
           : s->moe_router_dtype == SIM_ROUTER_FP32 ? 4
                                                    : params_bytes;
}

static void fill_moe(sim_dims_t *d, const sim_scenario_t *s)
{
    sim_moe_dims_t *m = &d->moe;
    *m = (sim_moe_dims_t){
        .n_experts = s->num_experts,
        .topk = s->moe_router_topk,
        .ep = s->expert_model_parallel_size,
        .etp = s->expert_tensor_parallel_size,
        .latent = s->moe_latent_size,
        .h = s->moe_latent_size > 0 ? s->moe_latent_size : d->h,
        .ffn_etp = s->moe_ffn_hidden_size / s->expert_tensor_parallel_size,
        .shared_ffn = s->moe_shared_expert_intermediate_size / d->tp,
        .score_e = router_bytes(s, d->e),
    };
    m->n_local = m->n_experts / m->ep;
    m->prob_e = m->score_e;
    if (s->moe_token_dispatcher_type == SIM_DISPATCHER_FLEX && m->prob_e < 4)
        m->prob_e = 4; /* fp32 at least: token_dispatcher.py, _DeepepManager.dispatch() */
    if (s->moe_expert_capacity_factor > 0.0) { /* moe_utils.py, get_capacity() */
        double even = (double)(d->local_tokens * m->topk) / (double)m->n_experts;
        m->capacity = (uint64_t)ceil(even * s->moe_expert_capacity_factor);
    }
}

/* Distinct tokens of a group of `ep` ranks that have at least one of their topk experts among this
 * rank's: hypergeometric, for evenly spread routing. */
static double share_with_local_expert(const sim_moe_dims_t *m)
{
    double none = 1.0;
    uint64_t elsewhere = m->n_experts - m->n_local;
    for (uint64_t k = 0; k < m->topk; k++)
        none *= k < elsewhere ? (double)(elsewhere - k) / (double)(m->n_experts - k) : 0.0;
    return 1.0 - none;
}

sim_moe_rows_t sim_moe_rows(const sim_scenario_t *s, const sim_dims_t *d, uint32_t layer)
{
    const sim_moe_dims_t *m = &d->moe;
    const sim_routing_t *r = s->routing;
    double load = r == NULL ? 1.0 : r->loads[(size_t)layer * r->n_ranks + m->ep_rank];
    sim_moe_rows_t rows = { .sent = d->local_tokens * m->topk,
                            .gathered = d->local_tokens * m->ep * m->etp };
    if (m->capacity > 0 && s->moe_pad_expert_input_to_capacity) {
        rows.sent = m->capacity * m->n_experts;
        rows.received = m->capacity * m->n_local * m->ep;
    } else {
        if (m->capacity > 0)
            rows.sent = base_u64_min(rows.sent, m->capacity * m->n_experts);
        rows.received = (uint64_t)((double)rows.sent * load + 0.5);
        if (m->capacity > 0)
            rows.received = base_u64_min(rows.received, m->capacity * m->n_local * m->ep);
    }
    rows.received = base_u64_max(rows.received, 1);
    rows.expert = rows.received * m->etp;
    double unique = (double)rows.gathered * share_with_local_expert(m) * load;
    rows.unique = base_u64_min((uint64_t)(unique + 0.5), rows.gathered);
    rows.unique = base_u64_max(rows.unique, 1);
    return rows;
}

static base_status_t init(sim_dims_t *dims_p, const sim_scenario_t *s, uint64_t seq_length,
                          base_err_t *err)
{
    sim_dims_t d = {
        .tp = s->tensor_model_parallel_size,
        .cp = s->context_parallel_size,
        .sp = s->sequence_parallel && s->tensor_model_parallel_size > 1,
        .s = seq_length,
        .s_kv = seq_length,
        .b = s->micro_batch_size,
        .h = s->hidden_size,
        .ffn = s->ffn_hidden_size,
        .heads = s->num_attention_heads,
        .groups = s->num_query_groups,
        .head_dim = s->kv_channels,
        .e = sim_dtype_bytes(sim_scenario_params_dtype(s)),
        .norm_params = s->normalization == SIM_NORM_LAYERNORM ? 2 : 1,
        .masks_padding = s->model_type != SIM_MODEL_GPT,
        .te = s->transformer_impl == SIM_IMPL_TRANSFORMER_ENGINE,
        .n_sms = s->gpu_p->n_sms,
        .sm = s->gpu_p->sm,
    };
    if (!base_u64_mul(d.s, d.b, &d.tokens))
        return base_err_set(err, BASE_ERR_OVERFLOW,
                            "seq_length * micro_batch_size does not fit 64 bits");
    d.tokens /= d.cp;
    d.local_tokens = d.sp ? d.tokens / d.tp : d.tokens;
    d.heads_tp = d.heads / d.tp;
    d.groups_tp = base_u64_max(d.groups / d.tp, 1);
    d.gate = s->activation_func == SIM_ACT_SWIGLU || s->activation_func == SIM_ACT_GEGLU ? 2 : 1;
    d.padded_vocab = padded_vocab(s);
    d.vocab_tp = d.padded_vocab / d.tp;
    d.rotary_dim = s->position_embedding_type == SIM_POS_ROPE
                       ? (uint64_t)((double)d.head_dim * s->rotary_percent)
                       : 0;
    d.core = choose_core(s, d.sm);
    d.qkv_rows = (d.heads + 2 * d.groups) * d.head_dim / d.tp;
    if (s->attention_output_gate)
        d.qkv_rows += d.heads_tp * d.head_dim;
    const char *product;
    if (!fill_bytes(&d, &product))
        return base_err_set(err, BASE_ERR_OVERFLOW, "%s does not fit 64 bits", product);
    if (s->multi_latent_attention)
        fill_mla(&d, s);
    if (s->hybrid_layer_pattern != NULL)
        fill_mamba(&d, s);
    if (sim_has_delta_net(s))
        fill_delta_net(&d, s);
    if (s->num_experts > 0)
        fill_moe(&d, s);
    *dims_p = d;
    return BASE_OK;
}

base_status_t sim_dims_init(sim_dims_t *dims_p, const sim_scenario_t *s, base_err_t *err)
{
    sim_dims_t decoder;
    base_status_t status = BASE_OK;
    if (s->model_type == SIM_MODEL_T5)
        status = init(&decoder, s, s->decoder_seq_length, err);
    return status == BASE_OK ? init(dims_p, s, s->seq_length, err) : status;
}

sim_dims_t sim_dims_decoder(const sim_dims_t *dims, const sim_scenario_t *s)
{
    sim_dims_t d = *dims;
    base_err_t err;
    init(&d, s, s->decoder_seq_length, &err); /* which sim_dims_init() has tried */
    d.masks_padding = false;
    return d;
}

sim_dims_t sim_dims_cross(const sim_dims_t *dims, const sim_scenario_t *s)
{
    sim_dims_t d = sim_dims_decoder(dims, s);
    d.masks_padding = true;
    d.s_kv = dims->s;
    d.kv_bytes = dims->kv_bytes;
    d.rotary_dim = 0;
    return d;
}
