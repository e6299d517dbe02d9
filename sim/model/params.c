/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/params.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/model/adapter.h"
#include "sim/model/quant.h"
#include "sim/model/sharding.h"

#include <stdlib.h>

typedef struct {
    sim_params_t *out;
    uint32_t cap;
    uint16_t layer;
    uint8_t module;
    bool freezes; /* what is added is frozen */
} list_t;

/* A matrix of `rows` outputs and `cols` inputs, of which this rank has what is given here. */
static void add(list_t *l, const char *name, uint64_t rows, uint64_t cols)
{
    uint64_t n_elements = rows * cols;
    if (n_elements == 0)
        return;
    sim_params_t *p = l->out;
    if (p->n == l->cap) {
        l->cap = l->cap > 0 ? 2 * l->cap : 64;
        p->params = base_xrealloc(p->params, l->cap, sizeof(*p->params));
    }
    p->params[p->n++] = (sim_param_t){ .name = name,
                                       .n_elements = n_elements,
                                       .rows = rows,
                                       .layer = l->layer,
                                       .module = l->module,
                                       .is_frozen = l->freezes };
    p->n_elements += n_elements;
}

static void add_vector(list_t *l, const char *name, uint64_t n_elements)
{
    uint32_t before = l->out->n;
    add(l, name, n_elements, 1);
    if (l->out->n > before)
        l->out->params[before].is_vector = true;
}

static void add_norm(list_t *l, const sim_dims_t *d, const char *weight, const char *bias,
                     uint64_t width)
{
    add_vector(l, weight, width);
    if (d->norm_params == 2)
        add_vector(l, bias, width);
}

/* With FP8 parameters the weights of the linears are stored quantised; the rest is not. */
static void add_weight(list_t *l, const sim_scenario_t *s, const char *name, sim_split_t split,
                       uint64_t rows, uint64_t cols)
{
    uint32_t before = l->out->n;
    add(l, name, rows, cols);
    if (l->out->n > before)
        l->out->params[before].split = (uint8_t)split;
    if (l->out->n > before && sim_has_quantized_params(s) && sim_layer_is_quantized(s, l->layer))
        l->out->params[before].buffer = SIM_BUFFER_DENSE_FP8;
}

/* A and B of an adapter on a linear with `in` and `out` features in all of which `tp` ranks hold a
 * part each: A is split over its rank where the output of the linear is split, else over its input;
 * B always over its output. DoRA's magnitude has a number for each output of the linear. */
static void add_adapter_of_rank(list_t *l, uint64_t rank, uint64_t in, uint64_t out, uint64_t tp,
                                sim_buffer_t buffer)
{
    uint32_t before = l->out->n;
    l->freezes = false;
    add(l, "adapter.linear_in.weight", rank, in / tp);
    add(l, "adapter.linear_out.weight", out / tp, rank);
    l->freezes = true;
    for (uint32_t i = before; i < l->out->n; i++)
        l->out->params[i].buffer = (uint8_t)buffer;
}

static void add_adapter(list_t *l, const sim_scenario_t *s, sim_target_t target, uint64_t in,
                        uint64_t out, uint64_t tp)
{
    bool is_row = target == SIM_TARGET_PROJ || target == SIM_TARGET_FC2;
    if (!sim_has_adapter(s, target))
        return;
    add_adapter_of_rank(l, s->peft_dim, in, out, tp, SIM_BUFFER_DENSE);
    l->freezes = false;
    if (s->peft_scheme == SIM_PEFT_DORA)
        add_vector(l, "adapter.weight_magnitude", is_row ? out : out / tp);
    l->freezes = true;
}

/* Order of registration: megatron/core/transformer/{transformer_layer,attention,mlp}.py. The local
 * specification has the norms as modules of their own, which changes order but not sizes. */
static void add_attention(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    uint64_t query_rows = d->heads_tp * d->head_dim;
    l->module = SIM_MOD_PROJ;
    add_weight(l, s, "linear_proj.weight", SIM_SPLIT_COLS, d->h, query_rows);
    add_vector(l, "linear_proj.bias", s->add_bias_linear ? d->h : 0);
    add_adapter(l, s, SIM_TARGET_PROJ, d->heads * d->head_dim, d->h, d->tp);
    l->module = SIM_MOD_QKV;
    add_norm(l, d, "linear_qkv.layer_norm_weight", "linear_qkv.layer_norm_bias", d->h);
    add_weight(l, s, "linear_qkv.weight", SIM_SPLIT_ROWS, d->qkv_rows, d->h);
    add_vector(l, "linear_qkv.bias", s->add_bias_linear || s->add_qkv_bias ? d->qkv_rows : 0);
    add_adapter(l, s, SIM_TARGET_QKV, d->h, d->qkv_rows * d->tp, d->tp);
    if (s->qk_layernorm) {
        l->module = SIM_MOD_ATTENTION;
        add_norm(l, d, "q_layernorm.weight", "q_layernorm.bias", d->head_dim);
        add_norm(l, d, "k_layernorm.weight", "k_layernorm.bias", d->head_dim);
    }
}

/* megatron/core/transformer/multi_latent_attention.py; with qk_layernorm the norms of the
 * compressed tensors are part of the up projections. The down projections are not split. */
static void add_mla(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    const sim_mla_dims_t *m = &d->mla;
    l->module = SIM_MOD_QKV;
    add_norm(l, d, "input_layernorm.weight", "input_layernorm.bias", d->h);
    l->module = SIM_MOD_PROJ;
    add_weight(l, s, "linear_proj.weight", SIM_SPLIT_COLS, d->h, d->heads_tp * m->v_dim);
    add_vector(l, "linear_proj.bias", s->add_bias_linear ? d->h : 0);
    add_adapter(l, s, SIM_TARGET_PROJ, d->heads * m->v_dim, d->h, d->tp);
    l->module = SIM_MOD_QKV;
    uint64_t q_rows = d->heads_tp * m->qk_dim;
    if (m->q_rank > 0) {
        add_weight(l, s, "linear_q_down_proj.weight", SIM_SPLIT_NONE, m->q_rank, d->h);
        add_adapter(l, s, SIM_TARGET_Q_DOWN, d->h, m->q_rank, d->tp);
        if (s->qk_layernorm)
            add_norm(l, d, "linear_q_up_proj.layer_norm_weight", "linear_q_up_proj.layer_norm_bias",
                     m->q_rank);
        add_weight(l, s, "linear_q_up_proj.weight", SIM_SPLIT_ROWS, q_rows, m->q_rank);
        add_adapter(l, s, SIM_TARGET_Q_UP, m->q_rank, q_rows * d->tp, d->tp);
    } else {
        add_weight(l, s, "linear_q_proj.weight", SIM_SPLIT_ROWS, q_rows, d->h);
        add_adapter(l, s, SIM_TARGET_Q_PROJ, d->h, q_rows * d->tp, d->tp);
    }
    add_weight(l, s, "linear_kv_down_proj.weight", SIM_SPLIT_NONE, m->kv_rank + m->rope_dim, d->h);
    add_adapter(l, s, SIM_TARGET_KV_DOWN, d->h, m->kv_rank + m->rope_dim, d->tp);
    if (s->qk_layernorm)
        add_norm(l, d, "linear_kv_up_proj.layer_norm_weight", "linear_kv_up_proj.layer_norm_bias",
                 m->kv_rank);
    add_weight(l, s, "linear_kv_up_proj.weight", SIM_SPLIT_ROWS,
               d->heads_tp * (m->nope_dim + m->v_dim), m->kv_rank);
    add_adapter(l, s, SIM_TARGET_KV_UP, m->kv_rank, d->heads * (m->nope_dim + m->v_dim), d->tp);
}

static void add_mlp(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    uint64_t fc1_rows = d->gate * d->ffn / d->tp;
    l->module = SIM_MOD_FC1;
    add_norm(l, d, "linear_fc1.layer_norm_weight", "linear_fc1.layer_norm_bias", d->h);
    add_weight(l, s, "linear_fc1.weight", SIM_SPLIT_ROWS, fc1_rows, d->h);
    add_vector(l, "linear_fc1.bias", s->add_bias_linear ? fc1_rows : 0);
    add_adapter(l, s, SIM_TARGET_FC1, d->h, fc1_rows * d->tp, d->tp);
    l->module = SIM_MOD_FC2;
    add_weight(l, s, "linear_fc2.weight", SIM_SPLIT_COLS, d->h, d->ffn / d->tp);
    add_vector(l, "linear_fc2.bias", s->add_bias_linear ? d->h : 0);
    add_adapter(l, s, SIM_TARGET_FC2, d->ffn, d->h, d->tp);
}

static void add_expert(list_t *l, const sim_scenario_t *s, const char *name, sim_split_t split,
                       uint64_t rows, uint64_t cols, bool is_apart)
{
    add_weight(l, s, name, split, rows, cols);
    sim_param_t *p = &l->out->params[l->out->n - 1];
    if (is_apart)
        p->buffer = p->buffer == SIM_BUFFER_DENSE_FP8 ? SIM_BUFFER_EXPERT_FP8 : SIM_BUFFER_EXPERT;
}

static void add_expert_bias(list_t *l, const sim_scenario_t *s, const char *name,
                            uint64_t n_elements, bool is_apart)
{
    if (!s->add_bias_linear)
        return;
    add_vector(l, name, n_elements);
    if (is_apart)
        l->out->params[l->out->n - 1].buffer = SIM_BUFFER_EXPERT;
}

/* Experts are reduced apart when they are spread or split in another way than the rest
 * (allreduce = False on the parameters). A grouped linear registers the weights of one linear after
 * those of the other, single experts both for each. */
static void add_experts(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    const sim_moe_dims_t *m = &d->moe;
    uint64_t fc1_rows = d->gate * m->ffn_etp;
    bool apart = m->ep > 1 || m->etp != d->tp;
    bool grouped = s->moe_grouped_gemm;
    l->module = SIM_MOD_EXPERTS;
    for (uint64_t i = 0; i < m->n_local; i++) {
        add_expert(l, s, "experts.linear_fc1.weight", SIM_SPLIT_ROWS, fc1_rows, m->h, apart);
        if (!grouped) {
            add_expert_bias(l, s, "experts.linear_fc1.bias", fc1_rows, apart);
            add_expert(l, s, "experts.linear_fc2.weight", SIM_SPLIT_COLS, m->h, m->ffn_etp, apart);
            add_expert_bias(l, s, "experts.linear_fc2.bias", m->h, apart);
        }
    }
    for (uint64_t i = 0; grouped && i < m->n_local; i++)
        add_expert_bias(l, s, "experts.linear_fc1.bias", fc1_rows, apart);
    for (uint64_t i = 0; grouped && i < m->n_local; i++)
        add_expert(l, s, "experts.linear_fc2.weight", SIM_SPLIT_COLS, m->h, m->ffn_etp, apart);
    for (uint64_t i = 0; grouped && i < m->n_local; i++)
        add_expert_bias(l, s, "experts.linear_fc2.bias", m->h, apart);
}

/* One adapter for all experts of a rank, or one for each; the rank may be divided among the experts
 * that a token goes to. */
static void add_expert_adapters(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    const sim_moe_dims_t *m = &d->moe;
    bool apart = m->ep > 1 || m->etp != d->tp;
    uint64_t n = s->share_expert_adapters && s->moe_grouped_gemm ? 1 : m->n_local;
    uint64_t rank = s->normalize_moe_lora ? s->peft_dim / m->topk : s->peft_dim;
    sim_buffer_t buffer = apart ? SIM_BUFFER_EXPERT : SIM_BUFFER_DENSE;
    for (uint64_t i = 0; i < n && sim_has_adapter(s, SIM_TARGET_FC1); i++)
        add_adapter_of_rank(l, base_u64_round_up(rank, m->etp), m->h, d->gate * m->ffn_etp * m->etp,
                            m->etp, buffer);
    for (uint64_t i = 0; i < n && sim_has_adapter(s, SIM_TARGET_FC2); i++)
        add_adapter_of_rank(l, rank, m->ffn_etp * m->etp, m->h, m->etp, buffer);
}

/* megatron/core/transformer/moe/moe_layer.py */
static void add_moe(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    const sim_moe_dims_t *m = &d->moe;
    l->module = SIM_MOD_ROUTER;
    add_norm(l, d, "pre_mlp_layernorm.weight", "pre_mlp_layernorm.bias", d->h);
    add(l, "router.weight", m->n_experts, d->h);
    add_vector(l, "router.bias", s->add_bias_linear ? m->n_experts : 0);
    l->module = SIM_MOD_DISPATCH;
    add_weight(l, s, "fc1_latent_proj.weight", SIM_SPLIT_NONE, m->latent, d->h);
    add_weight(l, s, "fc2_latent_proj.weight", SIM_SPLIT_NONE, d->h, m->latent);
    add_experts(l, s, d);
    add_expert_adapters(l, s, d);
    l->module = SIM_MOD_SHARED_EXPERTS;
    add(l, "shared_experts.gate_weight", s->moe_shared_expert_gate && m->shared_ffn > 0, d->h);
    add_weight(l, s, "shared_experts.linear_fc1.weight", SIM_SPLIT_ROWS, d->gate * m->shared_ffn,
               d->h);
    add_weight(l, s, "shared_experts.linear_fc2.weight", SIM_SPLIT_COLS, d->h, m->shared_ffn);
    if (m->shared_ffn > 0) {
        add_adapter(l, s, SIM_TARGET_FC1, d->h, d->gate * m->shared_ffn * d->tp, d->tp);
        add_adapter(l, s, SIM_TARGET_FC2, m->shared_ffn * d->tp, d->h, d->tp);
    }
}

/* models/T5/t5_spec.py; attention.py, CrossAttention. */
static void add_cross_attention(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    uint64_t rows = d->heads_tp * d->head_dim;
    l->module = SIM_MOD_QKV;
    add_norm(l, d, "pre_cross_attn_layernorm.weight", "pre_cross_attn_layernorm.bias", d->h);
    l->module = SIM_MOD_PROJ;
    add_weight(l, s, "cross_attention.linear_proj.weight", SIM_SPLIT_COLS, d->h, rows);
    add_vector(l, "cross_attention.linear_proj.bias", s->add_bias_linear ? d->h : 0);
    l->module = SIM_MOD_QKV;
    add_weight(l, s, "cross_attention.linear_q.weight", SIM_SPLIT_ROWS, rows, d->h);
    add_vector(l, "cross_attention.linear_q.bias", s->add_bias_linear ? rows : 0);
    add_weight(l, s, "cross_attention.linear_kv.weight", SIM_SPLIT_ROWS, 2 * rows, d->h);
    add_vector(l, "cross_attention.linear_kv.bias", s->add_bias_linear ? 2 * rows : 0);
}

static void add_convolution(list_t *l, const char *name, uint64_t rows, uint64_t width)
{
    add(l, name, rows, width);
    l->out->params[l->out->n - 1].is_convolution = true;
}

/* ssm/mamba_mixer.py; a module's own parameters come before those of its modules. */
static void add_mamba(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    const sim_mamba_dims_t *m = &d->mamba;
    l->module = SIM_MOD_MAMBA;
    add_convolution(l, "mixer.conv1d_weight", m->conv, 4);
    add_vector(l, "mixer.conv1d_bias", m->conv);
    add_vector(l, "mixer.dt_bias", m->heads);
    add_vector(l, "mixer.A_log", m->heads);
    add_vector(l, "mixer.D", m->heads);
    add_norm(l, d, "mixer.in_proj.layer_norm_weight", "mixer.in_proj.layer_norm_bias", d->h);
    add_weight(l, s, "mixer.in_proj.weight", SIM_SPLIT_ROWS, m->proj_rows, d->h);
    add_vector(l, "mixer.norm.weight", m->inner);
    add_weight(l, s, "mixer.out_proj.weight", SIM_SPLIT_COLS, d->h, m->inner);
}

/* ssm/gated_delta_net/common.py */
static void add_delta_net(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    const sim_delta_net_dims_t *a = &d->delta_net;
    l->module = SIM_MOD_DELTA_NET;
    add_vector(l, "self_attention.dt_bias", a->value_heads);
    add_vector(l, "self_attention.A_log", a->value_heads);
    add_norm(l, d, "self_attention.in_proj.layer_norm_weight",
             "self_attention.in_proj.layer_norm_bias", d->h);
    add_weight(l, s, "self_attention.in_proj.weight", SIM_SPLIT_ROWS, a->proj_rows, d->h);
    add_convolution(l, "self_attention.conv1d.weight", a->conv, s->linear_conv_kernel_dim);
    add_norm(l, d, "self_attention.out_norm.weight", "self_attention.out_norm.bias", a->value_dim);
    add_weight(l, s, "self_attention.out_proj.weight", SIM_SPLIT_COLS, d->h,
               a->value_heads * a->value_dim);
}

static void add_layer(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    sim_layer_kind_t kind = sim_layer_kind(s, l->layer);
    if (kind == SIM_LAYER_MAMBA)
        add_mamba(l, s, d);
    else if (kind == SIM_LAYER_DELTA_NET || kind == SIM_LAYER_LINEAR_TRANSFORMER)
        add_delta_net(l, s, d);
    else if (kind != SIM_LAYER_MLP && s->multi_latent_attention)
        add_mla(l, s, d);
    else if (kind != SIM_LAYER_MLP)
        add_attention(l, s, d);
    if (kind == SIM_LAYER_MAMBA || kind == SIM_LAYER_ATTENTION || kind == SIM_LAYER_DELTA_NET)
        return;
    if (sim_layer_is_moe(s, l->layer))
        add_moe(l, s, d);
    else
        add_mlp(l, s, d);
}

/* megatron/core/transformer/multi_token_prediction.py */
static void add_mtp(list_t *l, const sim_scenario_t *s, const sim_dims_t *d, uint64_t depth)
{
    uint64_t n = s->mtp_depth_layers, first = s->num_layers + depth * n;
    l->layer = (uint16_t)first;
    l->module = SIM_MOD_MTP;
    add_norm(l, d, "enorm.weight", "enorm.bias", d->h);
    add_norm(l, d, "hnorm.weight", "hnorm.bias", d->h);
    add_weight(l, s, "eh_proj.weight", SIM_SPLIT_ROWS, d->h / d->tp, 2 * d->h);
    for (uint64_t i = first; i < first + n; i++) {
        l->layer = (uint16_t)i;
        add_layer(l, s, d);
    }
    l->module = SIM_MOD_MTP;
    add_norm(l, d, "final_layernorm.weight", "final_layernorm.bias", d->h);
}

/* models/bert/bert_lm_head.py; every tensor-parallel rank has all of it. */
static void add_bert_head(list_t *l, const sim_dims_t *d)
{
    l->module = SIM_MOD_OUTPUT;
    add(l, "lm_head.dense.weight", d->h, d->h);
    add_vector(l, "lm_head.dense.bias", d->h);
    add_vector(l, "lm_head.layer_norm.weight", d->h);
    add_vector(l, "lm_head.layer_norm.bias", d->h);
}

/* Bias of the output layer; models/bert/bert_model.py: head for pairs of sentences. */
static void add_output_extras(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    l->module = SIM_MOD_OUTPUT;
    if (sim_params_has_output_bias(s))
        add_vector(l, "output_layer.bias", d->vocab_tp);
    if (s->model_type != SIM_MODEL_BERT || !s->bert_binary_head)
        return;
    add(l, "binary_head.weight", 2, d->h);
    add_vector(l, "binary_head.bias", 2);
    add(l, "pooler.dense.weight", d->h, d->h);
    add_vector(l, "pooler.dense.bias", d->h);
}

/* The layer-wise optimizer's matrices have buffers of their own (tag_params_for_buffer_routing). */
static void route_to_buffers(sim_params_t *params, const sim_scenario_t *s)
{
    if (sim_sharding_of(s) != SIM_SHARDING_WHOLE)
        return;
    for (uint32_t i = 0; i < params->n; i++) {
        sim_param_t *p = &params->params[i];
        if (sim_param_is_orthogonalized(s, p))
            p->buffer =
                sim_buffer_is_expert(p->buffer) ? SIM_BUFFER_EXPERT_WHOLE : SIM_BUFFER_DENSE_WHOLE;
    }
}

/* models/T5/t5_model.py: the encoder is a block with a final norm of its own, as the decoder is. */
static void add_decoder(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    for (uint64_t i = 0; i < s->decoder_num_layers; i++) {
        l->layer = (uint16_t)(s->num_layers + i);
        add_attention(l, s, d);
        add_cross_attention(l, s, d);
        add_mlp(l, s, d);
    }
    l->layer = SIM_NO_LAYER;
    l->module = SIM_MOD_FINAL_NORM;
    add_norm(l, d, "final_layernorm.weight", "final_layernorm.bias", d->h);
}

bool sim_params_has_output_bias(const sim_scenario_t *s)
{
    return s->model_type == SIM_MODEL_BERT ||
           (s->model_type == SIM_MODEL_T5 && !s->untie_embeddings_and_output_weights);
}

bool sim_params_has_final_norm(const sim_scenario_t *s, const topo_chunk_t *chunk)
{
    if (!s->stages.mtp_standalone)
        return chunk->has_loss;
    return chunk->n_layers > 0 && chunk->first_layer + chunk->n_layers == s->num_layers;
}

void sim_params_init(sim_params_t *params, const sim_scenario_t *s, const sim_dims_t *d,
                     const topo_chunk_t *chunk)
{
    *params = (sim_params_t){ 0 };
    list_t l = { .out = params, .layer = SIM_NO_LAYER, .freezes = s->peft_scheme != SIM_PEFT_NONE };
    bool tied = !s->untie_embeddings_and_output_weights;
    bool pipelined = s->pipeline_model_parallel_size > 1;

    bool has_embedding = chunk->has_embedding || chunk->n_mtp_layers > 0;
    if (has_embedding) {
        l.module = SIM_MOD_EMBEDDING;
        add(&l, "word_embeddings.weight", d->vocab_tp, d->h);
        params->params[params->n - 1].is_embedding = true;
        params->params[params->n - 1].is_shared_embedding =
            (tied || s->mtp_num_layers > 0) && pipelined;
        if (s->position_embedding_type == SIM_POS_LEARNED)
            add(&l, "position_embeddings.weight", s->max_position_embeddings, d->h);
        if (s->model_type == SIM_MODEL_BERT && s->bert_binary_head)
            add(&l, "tokentype_embeddings.weight", 2, d->h);
    }
    for (uint32_t i = 0; i < chunk->n_layers; i++) {
        l.layer = (uint16_t)(chunk->first_layer + i);
        add_layer(&l, s, d);
    }
    l.layer = SIM_NO_LAYER;
    if (sim_params_has_final_norm(s, chunk)) {
        l.module = SIM_MOD_FINAL_NORM;
        add_norm(&l, d, "final_layernorm.weight", "final_layernorm.bias", d->h);
    }
    if (s->model_type == SIM_MODEL_T5)
        add_decoder(&l, s, d);
    uint32_t n_depths =
        s->mtp_use_repeated_layer && chunk->n_mtp_layers > 0 ? 1 : chunk->n_mtp_layers;
    for (uint32_t i = 0; i < n_depths; i++)
        add_mtp(&l, s, d, i);
    l.layer = SIM_NO_LAYER;
    bool is_bert = s->model_type == SIM_MODEL_BERT;
    if (chunk->has_loss && is_bert)
        add_bert_head(&l, d);
    if (chunk->has_loss) {
        /* Tied weights are the embedding itself unless the two are on different stages. */
        if (!tied || !has_embedding) {
            l.module = SIM_MOD_OUTPUT;
            add(&l, "output_layer.weight", d->vocab_tp, d->h);
            params->params[params->n - 1].is_embedding = true;
            params->params[params->n - 1].is_shared_embedding = tied && pipelined;
        }
    }
    if (chunk->has_loss)
        add_output_extras(&l, s, d);
    route_to_buffers(params, s);
}

void sim_params_fini(sim_params_t *params)
{
    free(params->params);
    *params = (sim_params_t){ 0 };
}
