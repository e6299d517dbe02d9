/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/params.h"

#include "sim/base/xmem.h"

#include <stdlib.h>

typedef struct {
    sim_params_t *out;
    uint32_t cap;
    uint16_t layer;
    uint8_t module;
} list_t;

static void add(list_t *l, const char *name, uint64_t n_elements)
{
    if (n_elements == 0)
        return;
    sim_params_t *p = l->out;
    if (p->n == l->cap) {
        l->cap = l->cap > 0 ? 2 * l->cap : 64;
        p->params = base_xrealloc(p->params, l->cap, sizeof(*p->params));
    }
    p->params[p->n++] = (sim_param_t){
        .name = name, .n_elements = n_elements, .layer = l->layer, .module = l->module
    };
    p->n_elements += n_elements;
}

static void add_vector(list_t *l, const char *name, uint64_t n_elements)
{
    uint32_t before = l->out->n;
    add(l, name, n_elements);
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

/* Order of registration: megatron/core/transformer/{transformer_layer,attention,mlp}.py. The local
 * specification has the norms as modules of their own, which changes order but not sizes. */
/* With FP8 parameters the weights of the linears are stored quantised; the rest is not. */
static void add_weight(list_t *l, const sim_scenario_t *s, const char *name, uint64_t n_elements)
{
    uint32_t before = l->out->n;
    add(l, name, n_elements);
    bool in_bf16 =
        s->first_last_layers_bf16 && (l->layer < s->num_layers_at_start_in_bf16 ||
                                      l->layer + s->num_layers_at_end_in_bf16 >= s->num_layers);
    if (l->out->n > before && s->fp8 != SIM_FP8_NONE && s->fp8_param_gather && !in_bf16)
        l->out->params[before].buffer = SIM_BUFFER_DENSE_FP8;
}

static void add_layer(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    uint64_t query_rows = d->heads * d->head_dim / d->tp;
    uint64_t qkv_rows = (d->heads + 2 * d->groups) * d->head_dim / d->tp;
    if (s->attention_output_gate)
        qkv_rows += query_rows;

    l->module = SIM_MOD_PROJ;
    add_weight(l, s, "linear_proj.weight", d->h * query_rows);
    add_vector(l, "linear_proj.bias", s->add_bias_linear ? d->h : 0);
    l->module = SIM_MOD_QKV;
    add_norm(l, d, "linear_qkv.layer_norm_weight", "linear_qkv.layer_norm_bias", d->h);
    add_weight(l, s, "linear_qkv.weight", qkv_rows * d->h);
    add_vector(l, "linear_qkv.bias", s->add_bias_linear || s->add_qkv_bias ? qkv_rows : 0);
    if (s->qk_layernorm) {
        l->module = SIM_MOD_ATTENTION;
        add_norm(l, d, "q_layernorm.weight", "q_layernorm.bias", d->head_dim);
        add_norm(l, d, "k_layernorm.weight", "k_layernorm.bias", d->head_dim);
    }
    uint64_t fc1_rows = d->gate * d->ffn / d->tp;
    l->module = SIM_MOD_FC1;
    add_norm(l, d, "linear_fc1.layer_norm_weight", "linear_fc1.layer_norm_bias", d->h);
    add_weight(l, s, "linear_fc1.weight", fc1_rows * d->h);
    add_vector(l, "linear_fc1.bias", s->add_bias_linear ? fc1_rows : 0);
    l->module = SIM_MOD_FC2;
    add_weight(l, s, "linear_fc2.weight", d->h * (d->ffn / d->tp));
    add_vector(l, "linear_fc2.bias", s->add_bias_linear ? d->h : 0);
}

void sim_params_init(sim_params_t *params, const sim_scenario_t *s, const sim_dims_t *d,
                     const topo_chunk_t *chunk)
{
    *params = (sim_params_t){ 0 };
    list_t l = { .out = params, .layer = SIM_NO_LAYER };
    bool tied = !s->untie_embeddings_and_output_weights;
    bool pipelined = s->pipeline_model_parallel_size > 1;

    if (chunk->has_embedding) {
        l.module = SIM_MOD_EMBEDDING;
        add(&l, "word_embeddings.weight", d->vocab_tp * d->h);
        params->params[params->n - 1].is_shared_embedding = tied && pipelined;
        if (s->position_embedding_type == SIM_POS_LEARNED)
            add(&l, "position_embeddings.weight", s->max_position_embeddings * d->h);
    }
    for (uint32_t i = 0; i < chunk->n_layers; i++) {
        l.layer = (uint16_t)(chunk->first_layer + i);
        add_layer(&l, s, d);
    }
    l.layer = SIM_NO_LAYER;
    if (chunk->has_loss) {
        l.module = SIM_MOD_FINAL_NORM;
        add_norm(&l, d, "final_layernorm.weight", "final_layernorm.bias", d->h);
        /* Tied weights are the embedding itself unless the two are on different stages. */
        if (!tied || !chunk->has_embedding) {
            l.module = SIM_MOD_OUTPUT;
            add(&l, "output_layer.weight", d->vocab_tp * d->h);
            params->params[params->n - 1].is_shared_embedding = tied && pipelined;
        }
    }
}

void sim_params_fini(sim_params_t *params)
{
    free(params->params);
    *params = (sim_params_t){ 0 };
}
