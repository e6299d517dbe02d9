/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/moe.h"

enum { INDEX_BYTES = 8, FP32_BYTES = 4 }; /* torch.int64, torch.float32 */

/* One number for each token and expert, `e` bytes each. */
static uint64_t by_expert(const sim_model_t *m, uint64_t e)
{
    return m->d->local_tokens * m->d->moe.n_experts * e;
}

/* One number for each expert that a token goes to. */
static uint64_t by_choice(const sim_model_t *m, uint64_t e)
{
    return m->d->local_tokens * m->d->moe.topk * e;
}

/* moe_utils.py, RouterGatingLinearFunction: Transformer Engine's product, in whatever layers,
 * unless it is in fp64. */
static void gemm(sim_model_t *m)
{
    if (m->d->moe.score_e <= FP32_BYTES)
        sim_te_gemm(m);
    else
        sim_torch_gemm(m);
}

static bool has_aux_loss(const sim_model_t *m)
{
    const uint32_t aux = SIM_BALANCE_AUX | SIM_BALANCE_SEQ_AUX | SIM_BALANCE_GLOBAL_AUX;
    return m->s->moe_aux_loss_coeff > 0.0 && (m->s->moe_router_load_balancing_type & aux) != 0;
}

/* Scores in fp32: of all experts where they are computed before the choice, which saves them; else
 * of the chosen ones. The fused kernel saves its scores whenever there is one. */
static void choose(sim_model_t *m, sim_router_save_t *save)
{
    bool is_softmax = m->s->moe_router_score_function == SIM_SCORE_SOFTMAX;
    bool scores_all = !is_softmax || m->s->moe_router_pre_softmax;
    if (m->s->moe_router_fusion || scores_all)
        save->scores = sim_new(m->b, "router_scores", by_expert(m, FP32_BYTES));
    if (m->s->moe_router_fusion)
        return;
    if (!is_softmax && m->s->moe_router_enable_expert_bias)
        sim_touch(m->b, "router_biased_scores", by_expert(m, FP32_BYTES));
    save->top_indices = sim_new(m->b, "router_indices", by_choice(m, INDEX_BYTES));
    save->top_scores = sim_new(m->b, "router_top_scores", by_choice(m, FP32_BYTES));
}

/* Probabilities and map with zeros where a token does not go. */
static void spread(sim_model_t *m)
{
    uint64_t e = m->d->moe.score_e;
    sim_ref_t zeros = sim_new(m->b, "router_zeros", by_expert(m, e));
    sim_ref_t probs = sim_new(m->b, "router_probs", by_expert(m, e));
    sim_drop(m->b, zeros);
    zeros = sim_new(m->b, "router_zeros", by_expert(m, FP32_BYTES));
    sim_ref_t map = sim_new(m->b, "router_map_int", by_expert(m, FP32_BYTES));
    sim_drop(m->b, zeros);
    sim_drop(m->b, map);
    sim_drop(m->b, probs);
}

void sim_router_forward(sim_model_t *m, sim_router_save_t *save, sim_ref_t x, bool grad)
{
    m->b->module = SIM_MOD_ROUTER;
    *save = (sim_router_save_t){ sim_keep(m->b, x), SIM_REF_NONE, SIM_REF_NONE,
                                 SIM_REF_NONE,      SIM_REF_NONE, SIM_REF_NONE };
    gemm(m);
    save->logits = sim_new(m->b, "router_logits", by_expert(m, m->d->moe.score_e));
    choose(m, save);
    if (!m->s->moe_router_fusion)
        spread(m);
    if (grad && has_aux_loss(m))
        save->aux_scores = sim_new(m->b, "router_aux_scores", by_expert(m, FP32_BYTES));
    if (m->s->moe_z_loss_coeff <= 0.0)
        sim_forget(m, &save->logits);
    if (grad)
        return;
    sim_ref_t *refs[] = { &save->x, &save->scores, &save->top_scores, &save->top_indices,
                          &save->logits };
    for (size_t i = 0; i < sizeof(refs) / sizeof(refs[0]); i++)
        sim_forget(m, refs[i]);
}

/* In wider scores the gradient of the input is made in their type, and the input is cast to it
 * (moe_utils.py, RouterGatingLinearFunction). */
sim_ref_t sim_router_backward(sim_model_t *m, sim_router_save_t *save)
{
    const sim_dims_t *d = m->d;
    m->b->module = SIM_MOD_ROUTER;
    sim_ref_t d_logits = sim_new(m->b, "d_router_probs", by_expert(m, FP32_BYTES));
    sim_replace(m, &d_logits, "d_router_logits", by_expert(m, d->moe.score_e));
    sim_forget(m, &save->scores);
    sim_forget(m, &save->top_scores);
    sim_forget(m, &save->top_indices);
    sim_forget(m, &save->aux_scores);
    sim_forget(m, &save->logits);
    gemm(m);
    sim_ref_t dx;
    if (d->moe.score_e > d->e) {
        uint64_t wide_bytes = d->hidden_bytes / d->e * d->moe.score_e;
        sim_ref_t wide = sim_new(m->b, "d_router_in_wide", wide_bytes);
        sim_touch(m->b, "router_in_wide", wide_bytes);
        dx = sim_new(m->b, "d_router_in", d->hidden_bytes);
        sim_drop(m->b, wide);
    } else {
        dx = sim_new(m->b, "d_router_in", d->hidden_bytes);
    }
    sim_touch(m->b, "router_weight_grad", d->moe.n_experts * d->h * d->e);
    sim_drop(m->b, d_logits);
    sim_forget(m, &save->x);
    return dx;
}
