/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/mtp.h"

#include "sim/base/xmem.h"

#include <stdlib.h>

enum { INDEX_BYTES = 8 }; /* torch.int64 */

static void depth_init(sim_mtp_depth_t *depth, const sim_scenario_t *s, uint32_t i)
{
    depth->n_layers = (uint32_t)s->mtp_depth_layers;
    depth->layers = base_xcalloc(depth->n_layers, sizeof(*depth->layers));
    depth->first_layer = (uint16_t)(s->num_layers + i * s->mtp_depth_layers);
    for (uint32_t k = 0; k < depth->n_layers; k++) {
        depth->layers[k].kind = sim_layer_kind(s, depth->first_layer + k);
        depth->layers[k].is_moe = sim_layer_is_moe(s, depth->first_layer + k);
    }
}

void sim_mtp_init(sim_mtp_save_t *save, const sim_scenario_t *s, uint32_t n, uint32_t first_unit)
{
    *save = (sim_mtp_save_t){ .depths = base_xcalloc(n, sizeof(*save->depths)), .n = n };
    for (uint32_t i = 0; i < n; i++) {
        depth_init(&save->depths[i], s, i);
        uint32_t place = s->mtp_use_repeated_layer ? 0 : i;
        save->depths[i].first_unit = first_unit + place * (uint32_t)s->mtp_depth_layers;
    }
}

void sim_mtp_fini(sim_mtp_save_t *save)
{
    for (uint32_t i = 0; i < save->n; i++)
        free(save->depths[i].layers);
    free(save->depths);
    *save = (sim_mtp_save_t){ 0 };
}

static sim_linear_dims_t eh_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    return (sim_linear_dims_t){
        .name = "eh_proj",
        .in_bytes = 2 * d->hidden_bytes,
        .full_in_bytes = d->sp ? 2 * d->full_hidden_bytes : 0,
        .out_bytes = d->full_hidden_bytes / d->tp,
        .rows = d->h / d->tp,
        .cols = 2 * d->h,
    };
}

/* Uniform full recompute checkpoints all but the embedding; block leaves these layers alone. */
static bool recomputes(const sim_model_t *m)
{
    return m->s->recompute_granularity == SIM_RECOMPUTE_FULL &&
           m->s->recompute_method == SIM_RECOMPUTE_UNIFORM;
}

/* Takes both inputs. The projection's output is gathered over the tensor-parallel ranks and put in
 * order by a copy; what sequence parallelism takes of it is a view, so that all of it stays. */
static sim_ref_t project(sim_model_t *m, sim_mtp_depth_t *save, sim_ref_t hidden,
                         sim_ref_t embedded, bool grad)
{
    const sim_dims_t *d = m->d;
    sim_linear_dims_t dims = eh_dims(m);
    m->b->module = SIM_MOD_MTP;
    sim_ref_t e =
        sim_norm_forward(m, &save->enorm, embedded, "enorm_out", d->hidden_bytes, d->h, grad);
    sim_ref_t h =
        sim_norm_forward(m, &save->hnorm, hidden, "hnorm_out", d->hidden_bytes, d->h, grad);
    sim_ref_t joined = sim_new(m->b, "enorm_hnorm", dims.in_bytes);
    sim_drop(m->b, h);
    sim_ref_t x = sim_linear_forward(m, &dims, &save->eh, joined, "eh_proj_out", grad);
    if (d->tp > 1) {
        sim_ref_t parts = sim_new(m->b, "eh_proj_gathered", d->full_hidden_bytes);
        sim_ref_t whole = sim_new(m->b, "eh_proj_whole", d->full_hidden_bytes);
        sim_drop(m->b, parts);
        sim_drop(m->b, x);
        x = whole;
    }
    sim_drop(m->b, e);
    return x;
}

static sim_ref_t layer_forward(sim_model_t *m, sim_mtp_depth_t *save, sim_ref_t hidden,
                               sim_ref_t embedded, bool grad)
{
    sim_ref_t x = project(m, save, hidden, embedded, grad);
    bool again = !m->b->in_forward;
    for (uint32_t i = 0; i < save->n_layers; i++) {
        m->b->layer = (uint16_t)(save->first_layer + i);
        sim_tell(m, again ? SIM_UNIT_AGAIN : SIM_UNIT_FORWARD, save->first_unit + i);
        x = sim_layer_forward(m, &save->layers[i], x, grad);
        sim_tell(m, again ? SIM_UNIT_AGAIN_DONE : SIM_UNIT_FORWARD_DONE, save->first_unit + i);
    }
    m->b->module = SIM_MOD_MTP;
    return sim_norm_forward(m, &save->norm, x, "mtp_norm_out", m->d->hidden_bytes, m->d->h, grad);
}

/* `hidden` is borrowed. */
static sim_ref_t depth_forward(sim_model_t *m, sim_mtp_depth_t *save, sim_ref_t hidden)
{
    uint64_t samples = INDEX_BYTES * m->d->tokens;
    m->b->module = SIM_MOD_MTP;
    save->tokens = sim_new(m->b, "mtp_tokens", samples);
    save->position_ids = sim_new(m->b, "mtp_position_ids", samples);
    const sim_batch_t moved = { save->tokens, save->position_ids, SIM_REF_NONE, SIM_REF_NONE,
                                SIM_REF_NONE };
    sim_ref_t embedded = sim_embedding_forward(m, &save->embedding, &moved);
    if (recomputes(m)) {
        save->checkpoint[0] = sim_keep(m->b, hidden);
        save->checkpoint[1] = sim_keep(m->b, embedded);
    }
    return layer_forward(m, save, sim_keep(m->b, hidden), embedded, !recomputes(m));
}

sim_ref_t sim_mtp_forward(sim_model_t *m, sim_mtp_save_t *save, sim_ref_t hidden)
{
    sim_ref_t *states = base_xcalloc(save->n + 1, sizeof(*states));
    states[0] = hidden;
    for (uint32_t i = 0; i < save->n; i++) {
        m->b->layer = save->depths[i].first_layer;
        states[i + 1] = depth_forward(m, &save->depths[i], states[i]);
    }
    m->b->layer = SIM_NO_LAYER;
    m->b->module = SIM_MOD_MTP;
    sim_ref_t out = sim_new(m->b, "mtp_states", (save->n + 1) * m->d->hidden_bytes);
    for (uint32_t i = 0; i <= save->n; i++)
        sim_drop(m->b, states[i]);
    for (uint32_t i = 0; i < save->n; i++) {
        sim_drop(m->b, save->depths[i].tokens);
        sim_drop(m->b, save->depths[i].position_ids);
    }
    free(states);
    return out;
}

/* Takes the layer's input gradient; returns that of the hidden states and, in *d_embedded_p, of the
 * embedding. The parts of the joined gradient are copied out for the norms. */
static sim_ref_t project_backward(sim_model_t *m, sim_mtp_depth_t *save, sim_ref_t g,
                                  sim_ref_t *d_embedded_p)
{
    const sim_dims_t *d = m->d;
    sim_linear_dims_t dims = eh_dims(m);
    m->b->module = SIM_MOD_MTP;
    if (d->sp)
        sim_replace(m, &g, "d_eh_proj_gathered", d->full_hidden_bytes);
    if (d->tp > 1)
        sim_replace(m, &g, "d_eh_proj_part", dims.out_bytes);
    sim_ref_t joined = sim_linear_backward(m, &dims, &save->eh, g, "d_enorm_hnorm");
    sim_ref_t part = sim_new(m->b, "d_hnorm_out", d->hidden_bytes);
    sim_ref_t d_hidden = sim_norm_backward(m, &save->hnorm, part, d->hidden_bytes);
    part = sim_new(m->b, "d_enorm_out", d->hidden_bytes);
    sim_drop(m->b, joined);
    *d_embedded_p = sim_norm_backward(m, &save->enorm, part, d->hidden_bytes);
    return d_hidden;
}

static sim_ref_t depth_backward(sim_model_t *m, sim_mtp_depth_t *save, sim_ref_t g,
                                sim_ref_t *embedding_grad_p)
{
    m->b->layer = (uint16_t)(save->first_layer + save->n_layers - 1);
    if (recomputes(m))
        sim_drop(m->b, layer_forward(m, save, save->checkpoint[0], save->checkpoint[1], true));
    m->b->module = SIM_MOD_MTP;
    g = sim_norm_backward(m, &save->norm, g, m->d->hidden_bytes);
    for (uint32_t i = save->n_layers; i-- > 0;) {
        m->b->layer = (uint16_t)(save->first_layer + i);
        sim_tell(m, SIM_UNIT_BACKWARD, save->first_unit + i);
        g = sim_layer_backward(m, &save->layers[i], g);
        sim_tell(m, SIM_UNIT_BACKWARD_DONE, save->first_unit + i);
    }
    sim_ref_t d_embedded;
    g = project_backward(m, save, g, &d_embedded);
    *embedding_grad_p = sim_embedding_backward(m, &save->embedding, d_embedded);
    return g;
}

/* Where hidden states go on to the next depth and to the output, both gradients are added into a
 * new tensor, as one of them is a view of the gradient of all. */
sim_ref_t sim_mtp_backward(sim_model_t *m, sim_mtp_save_t *save, sim_ref_t d_out, bool waits,
                           sim_ref_t *embedding_grad_p)
{
    *embedding_grad_p = SIM_REF_NONE;
    sim_ref_t g = sim_keep(m->b, d_out);
    for (uint32_t i = save->n; i-- > 0;) {
        sim_ref_t weight_grad;
        g = depth_backward(m, &save->depths[i], g, &weight_grad);
        sim_replace(m, &g, "d_mtp_hidden", m->d->hidden_bytes);
        if (waits && *embedding_grad_p == SIM_REF_NONE)
            *embedding_grad_p = weight_grad;
        else
            sim_drop(m->b, weight_grad);
    }
    m->b->layer = SIM_NO_LAYER;
    sim_drop(m->b, d_out);
    return g;
}
