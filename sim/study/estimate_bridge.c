/* SPDX-License-Identifier: Apache-2.0
 * Megatron-Bridge src/megatron/bridge/training/utils/theoretical_memory_utils.py, 0.7.0. */
#include "config.h"

#include "sim/study/estimate.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

static bool is_moe(const sim_estimate_input_t *in, uint64_t layer)
{
    if (layer >= in->num_layers) /* a prediction layer copies the last one */
        layer = in->num_layers - 1;
    return in->num_experts > 0 && (in->moe_layers == NULL || in->moe_layers[layer] != 0);
}

static uint64_t moe_ffn(const sim_estimate_input_t *in)
{
    return in->moe_ffn_hidden_size > 0 ? in->moe_ffn_hidden_size : in->ffn_hidden_size;
}

/* Parameters of one layer outside the routed experts; norms count four times the width always, the
 * router not at all. */
static double dense_part(const sim_estimate_input_t *in, uint64_t layer)
{
    double h = (double)in->hidden_size, a = (double)in->num_attention_heads;
    double d = (double)in->kv_channels, g = (double)in->num_query_groups;
    double matrices = in->gated ? 3 : 2;
    double p = 2 * h * h * ((1 + g / a) * (d * a / h)) + 4 * h;
    if (is_moe(in, layer))
        return p + matrices * h * (double)in->moe_shared_expert_intermediate_size +
               2 * h * (double)in->moe_latent_size;
    return p + matrices * h * (double)in->ffn_hidden_size;
}

static double routed_part(const sim_estimate_input_t *in, uint64_t layer)
{
    double matrices = in->gated ? 3 : 2;
    double width = (double)(in->moe_latent_size > 0 ? in->moe_latent_size : in->hidden_size);
    return is_moe(in, layer) ? matrices * width * (double)moe_ffn(in) * (double)in->num_experts : 0;
}

static double bytes_per_parameter(const sim_estimate_input_t *in, uint64_t n_shards)
{
    return in->use_distributed_optimizer ? 6.0 + 12.0 / (double)base_u64_max(n_shards, 1) : 18.0;
}

/* Layers of each pipeline stage with uneven first or last stage. */
static base_status_t stage_layers(const sim_estimate_input_t *in, uint64_t *counts, base_err_t *err)
{
    uint64_t fixed = in->first_stage + in->last_stage;
    uint64_t n_middle = in->pp - (in->first_stage > 0) - (in->last_stage > 0);
    uint64_t chunks = in->vpp > 0 ? in->vpp : 1;
    if (in->pp < 2)
        return base_err_set(err, BASE_ERR_INVAL, "an uneven first or last stage needs a pipeline");
    if (fixed > in->num_layers ||
        (n_middle > 0 && (fixed == in->num_layers || (in->num_layers - fixed) % n_middle != 0)) ||
        (n_middle == 0 && fixed != in->num_layers))
        return base_err_set(err, BASE_ERR_INVAL,
                            "%" PRIu64 " layers less those of the first and last stage do not "
                            "divide over %" PRIu64 " stages",
                            in->num_layers, n_middle);
    for (uint64_t i = 0; i < in->pp; i++) {
        if (i == 0 && in->first_stage > 0)
            counts[i] = in->first_stage;
        else if (i == in->pp - 1 && in->last_stage > 0)
            counts[i] = in->last_stage;
        else
            counts[i] = (in->num_layers - fixed) / n_middle;
        if (counts[i] % chunks != 0)
            return base_err_set(err, BASE_ERR_INVAL,
                                "%" PRIu64 " layers of a stage do not divide into %" PRIu64
                                " chunks",
                                counts[i], chunks);
    }
    return BASE_OK;
}

static base_status_t uneven_stages(const sim_estimate_input_t *in, double *dense_p,
                                   double *routed_p, base_err_t *err)
{
    double h = (double)in->hidden_size, embedding = h * (double)in->padded_vocab_size;
    uint64_t *counts = base_xcalloc(in->pp, sizeof(*counts));
    double *dense = base_xcalloc(in->pp, sizeof(*dense));
    double *routed = base_xcalloc(in->pp, sizeof(*routed));
    uint64_t layer = 0, chunks = in->vpp > 0 ? in->vpp : 1;
    base_status_t status = stage_layers(in, counts, err);
    if (status == BASE_OK) {
        for (uint64_t c = 0; c < chunks; c++) {
            for (uint64_t stage = 0; stage < in->pp; stage++) {
                for (uint64_t i = 0; i < counts[stage] / chunks; i++, layer++) {
                    dense[stage] += dense_part(in, layer);
                    routed[stage] += routed_part(in, layer);
                }
            }
        }
        for (uint64_t i = 0; i < in->mtp_num_layers; i++) {
            dense[in->pp - 1] += dense_part(in, in->num_layers + i);
            routed[in->pp - 1] += routed_part(in, in->num_layers + i);
        }
        dense[in->pp - 1] += 2 * h + embedding;
        dense[0] += embedding;
        *dense_p = *routed_p = 0;
        for (uint64_t stage = 0; stage < in->pp; stage++) {
            *dense_p = dense[stage] > *dense_p ? dense[stage] : *dense_p;
            *routed_p = routed[stage] > *routed_p ? routed[stage] : *routed_p;
        }
        *dense_p /= (double)in->tp;
        *routed_p /= (double)(in->ep * in->etp);
    }
    free(counts);
    free(dense);
    free(routed);
    return status;
}

static void even_stages(const sim_estimate_input_t *in, double *dense_p, double *routed_p)
{
    double tp = (double)in->tp, pp = (double)in->pp, dense = 0, routed = 0;
    double embedding = (double)in->hidden_size * (double)in->padded_vocab_size;
    for (uint64_t i = 0; i < in->num_layers + in->mtp_num_layers; i++) {
        dense += dense_part(in, i);
        routed += routed_part(in, i);
    }
    dense += 2 * (double)in->hidden_size;
    *dense_p = dense / (pp * tp) + embedding / tp * (in->untie && in->pp == 1 ? 2 : 1);
    *routed_p = routed / (pp * (double)(in->ep * in->etp));
}

static double activation(const sim_estimate_input_t *in)
{
    double s = (double)in->seq_length, b = (double)in->micro_batch_size,
           h = (double)in->hidden_size;
    double pp = (double)in->pp, n_layers = (double)(in->num_layers + in->mtp_num_layers), n_moe = 0;
    for (uint64_t i = 0; i < in->num_layers + in->mtp_num_layers; i++)
        n_moe += is_moe(in, i);
    double moe_width = (double)moe_ffn(in) * (double)in->moe_router_topk +
                       (double)in->moe_shared_expert_intermediate_size;
    double ratio =
        ((n_layers - n_moe) * (double)in->ffn_hidden_size + n_moe * moe_width) / (n_layers * h);
    double bytes = s * b * h * (18 + 4 * ratio) * n_layers + 8 * s * b * pp + s * b * h * pp;
    if (in->vpp > 0)
        bytes *= 1 + (pp - 1) / (pp * (double)in->vpp);
    else if (in->pp > 1 && in->n_microbatches > 0 && in->n_microbatches < in->pp)
        bytes *= (double)in->n_microbatches / pp;
    if (in->pp == 1)
        bytes += s * b * h * 4 * (1 + (double)in->padded_vocab_size / h);
    return bytes / (double)(in->tp * in->cp);
}

base_status_t sim_estimate_bridge(const sim_estimate_input_t *in, sim_estimate_bridge_t *estimate_p,
                                  base_err_t *err)
{
    sim_estimate_bridge_t e;
    if (in->first_stage > 0 || in->last_stage > 0) {
        base_status_t status = uneven_stages(in, &e.dense_parameters, &e.routed_parameters, err);
        if (status != BASE_OK)
            return status;
    } else {
        even_stages(in, &e.dense_parameters, &e.routed_parameters);
    }
    assert(in->tp > 0 && in->pp > 0 && in->cp > 0);
    uint64_t dp = in->world_size / (in->tp * in->pp * in->cp);
    uint64_t n_expert = dp * in->tp * in->cp / base_u64_max(in->ep * in->etp, 1);
    e.dense_bytes = e.dense_parameters * bytes_per_parameter(in, dp * in->cp);
    e.routed_bytes = e.routed_parameters * bytes_per_parameter(in, n_expert);
    e.activation_bytes = activation(in);
    e.prints_activation = in->sequence_parallel && in->recompute_selective;
    *estimate_p = e;
    return BASE_OK;
}
