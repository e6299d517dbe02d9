/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/model/titan.h"

typedef struct {
    sim_params_t *out;
    uint32_t cap;
    uint16_t layer;
} list_t;

static void add(list_t *l, const char *name, sim_module_t module, sim_split_t split, uint64_t rows,
                uint64_t cols)
{
    sim_params_t *p = l->out;
    if (p->n == l->cap) {
        l->cap = l->cap > 0 ? 2 * l->cap : 64;
        p->params = base_xrealloc(p->params, l->cap, sizeof(*p->params));
    }
    p->params[p->n++] = (sim_param_t){ .name = name,
                                       .n_elements = rows * cols,
                                       .rows = rows,
                                       .split = (uint8_t)split,
                                       .layer = l->layer,
                                       .module = (uint8_t)module,
                                       .is_vector = cols == 1 };
    p->n_elements += rows * cols;
}

static void add_block(list_t *l, const sim_scenario_t *s, const sim_dims_t *d)
{
    uint64_t q = d->heads_tp * d->head_dim, kv = d->groups_tp * d->head_dim, ffn = d->ffn / d->tp;
    add(l, "attention.wq.weight", SIM_MOD_QKV, SIM_SPLIT_ROWS, q, d->h);
    add(l, "attention.wk.weight", SIM_MOD_QKV, SIM_SPLIT_ROWS, kv, d->h);
    add(l, "attention.wv.weight", SIM_MOD_QKV, SIM_SPLIT_ROWS, kv, d->h);
    if (s->qk_layernorm) {
        add(l, "attention.q_norm.weight", SIM_MOD_ATTENTION, SIM_SPLIT_NONE, d->head_dim, 1);
        add(l, "attention.k_norm.weight", SIM_MOD_ATTENTION, SIM_SPLIT_NONE, d->head_dim, 1);
    }
    add(l, "attention.wo.weight", SIM_MOD_PROJ, SIM_SPLIT_COLS, d->h, q);
    add(l, "feed_forward.w1.weight", SIM_MOD_FC1, SIM_SPLIT_ROWS, ffn, d->h);
    add(l, "feed_forward.w2.weight", SIM_MOD_FC2, SIM_SPLIT_COLS, d->h, ffn);
    add(l, "feed_forward.w3.weight", SIM_MOD_FC1, SIM_SPLIT_ROWS, ffn, d->h);
    add(l, "attention_norm.weight", SIM_MOD_QKV, SIM_SPLIT_NONE, d->h, 1);
    add(l, "ffn_norm.weight", SIM_MOD_FC1, SIM_SPLIT_NONE, d->h, 1);
}

void sim_titan_params_init(sim_params_t *params, const sim_scenario_t *s, const sim_dims_t *d,
                           const topo_chunk_t *place)
{
    *params = (sim_params_t){ 0 };
    list_t l = { .out = params, .layer = SIM_NO_LAYER };
    if (place->has_embedding) {
        add(&l, "tok_embeddings.weight", SIM_MOD_EMBEDDING, SIM_SPLIT_ROWS, d->vocab_tp, d->h);
        params->params[0].is_embedding = true;
    }
    for (uint32_t i = 0; i < place->n_layers; i++) {
        l.layer = (uint16_t)(place->first_layer + i);
        add_block(&l, s, d);
    }
    l.layer = SIM_NO_LAYER;
    if (!place->has_loss)
        return;
    add(&l, "norm.weight", SIM_MOD_FINAL_NORM, SIM_SPLIT_NONE, d->h, 1);
    add(&l, "output.weight", SIM_MOD_OUTPUT, SIM_SPLIT_ROWS, d->vocab_tp, d->h);
    params->params[params->n - 1].is_embedding = true;
}
