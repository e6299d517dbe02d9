/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/dims.h"

#include "sim/base/units.h"

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
    if (sm < 90)
        return SIM_CORE_FLASH;
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
    if (!base_u64_mul(d->tokens, d->heads, &x) || !base_u64_mul(x, d->s, &x) ||
        !base_u64_mul(x, 8, &x))
        return false;

    d->hidden_bytes = d->local_tokens * d->h * d->e;
    d->full_hidden_bytes = d->tokens * d->h * d->e;
    d->q_bytes = d->tokens * d->heads_tp * d->head_dim * d->e;
    d->kv_bytes = d->tokens * d->groups_tp * d->head_dim * d->e;
    d->qkv_bytes = d->tokens * ((d->heads + 2 * d->groups) * d->head_dim / d->tp) * d->e;
    d->fc1_bytes = d->tokens * (d->gate * d->ffn / d->tp) * d->e;
    d->act_bytes = d->tokens * (d->ffn / d->tp) * d->e;
    d->norm_stat_bytes = d->local_tokens * 4 * d->norm_params;
    d->logits_bytes = d->tokens * d->vocab_tp * d->e;
    return true;
}

base_status_t sim_dims_init(sim_dims_t *dims_p, const sim_scenario_t *s, base_err_t *err)
{
    sim_dims_t d = {
        .tp = s->tensor_model_parallel_size,
        .cp = s->context_parallel_size,
        .sp = s->sequence_parallel && s->tensor_model_parallel_size > 1,
        .s = s->seq_length,
        .b = s->micro_batch_size,
        .h = s->hidden_size,
        .ffn = s->ffn_hidden_size,
        .heads = s->num_attention_heads,
        .groups = s->num_query_groups,
        .head_dim = s->kv_channels,
        .e = sim_dtype_bytes(sim_scenario_params_dtype(s)),
        .norm_params = s->normalization == SIM_NORM_LAYERNORM ? 2 : 1,
        .te = s->transformer_impl == SIM_IMPL_TRANSFORMER_ENGINE,
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
    const char *product;
    if (!fill_bytes(&d, &product))
        return base_err_set(err, BASE_ERR_OVERFLOW, "%s does not fit 64 bits", product);
    *dims_p = d;
    return BASE_OK;
}
