/* SPDX-License-Identifier: Apache-2.0
 * Megatron-LM megatron/training/theoretical_memory_usage.py, mcore 0.20.0 (commit d98e8a64). */
#include "config.h"

#include "sim/study/estimate.h"

/* Parameters of the whole model by how they are split: over tensor-parallel ranks, not at all, over
 * expert ranks. */
typedef struct {
    double split, whole, expert;
} parameters_t;

/* bf16 parameter 2, fp32 gradient 4, fp32 copy and two moments 12, the latter split by the
 * distributed optimizer. */
static double bytes_per_parameter(const sim_estimate_input_t *in, double n_shards)
{
    return in->use_distributed_optimizer ? 6.0 + 12.0 / n_shards : 18.0;
}

static double attention_parameters(const sim_estimate_input_t *in)
{
    double h = (double)in->hidden_size, a = (double)in->num_attention_heads;
    double d = (double)in->kv_channels, g = (double)in->num_query_groups;
    double norm = in->rmsnorm ? 1 : 2;
    if (!in->multi_latent_attention)
        return 2 * h * h * ((1 + g / a) * (d * a / h));
    double nope = (double)in->qk_head_dim, rope = (double)in->qk_pos_emb_head_dim;
    double v = (double)in->v_head_dim, q_rank = (double)in->q_lora_rank;
    double kv_rank = (double)in->kv_lora_rank;
    double q =
        in->q_lora_rank == 0 ? h * a * (nope + rope) : q_rank * (h + a * (nope + rope) + norm);
    return q + kv_rank * (h + a * (nope + v) + norm) + h * rope + a * v * h;
}

static bool is_moe(const sim_estimate_input_t *in, uint64_t layer)
{
    return in->num_experts > 0 && (in->moe_layers == NULL || in->moe_layers[layer] != 0);
}

/* Parameters of `n_dense` dense and `n_moe` MoE layers, without a final norm. */
static parameters_t layer_parameters(const sim_estimate_input_t *in, double n_dense, double n_moe)
{
    double h = (double)in->hidden_size, glu = in->gated ? 1.5 : 1;
    double norm = in->rmsnorm ? 1 : 2, experts = in->num_experts > 0 ? (double)in->num_experts : 1;
    double latent = (double)in->moe_latent_size,
           shared = (double)in->moe_shared_expert_intermediate_size;
    bool moe = in->num_experts > 0;
    double attention = attention_parameters(in);
    double routed_width = in->moe_latent_size > 0 ? latent : h;
    double routed = moe ? 2 * routed_width * (double)in->moe_ffn_hidden_size * experts * glu : 0;
    double norms = 2 * h * norm;
    double projections = moe ? 2 * h * latent : 0;
    double router = moe ? h * experts + (in->add_bias_linear ? experts : 0) : 0;
    double gate = in->moe_shared_expert_gate && shared > 0 ? h : 0;
    parameters_t p;
    p.split = (attention + 2 * h * (double)in->ffn_hidden_size * glu) * n_dense +
              (attention + 2 * h * shared * glu) * n_moe;
    p.whole = norms * n_dense + (norms + projections + router + gate) * n_moe;
    p.expert = routed * n_moe;
    return p;
}

static double weight_and_optimizer(const sim_estimate_input_t *in)
{
    double tp = (double)in->tp, pp = (double)in->pp, h = (double)in->hidden_size;
    double embedding = h * (double)in->padded_vocab_size, n_moe = 0;
    for (uint64_t i = 0; i < in->num_layers; i++)
        n_moe += is_moe(in, i);
    parameters_t block = layer_parameters(in, (double)in->num_layers - n_moe, n_moe);
    block.whole += h * (in->rmsnorm ? 1 : 2); /* final norm */
    bool last_is_moe = in->num_layers > 0 && is_moe(in, in->num_layers - 1);
    double n_mtp = (double)in->mtp_num_layers;
    parameters_t mtp = layer_parameters(in, last_is_moe ? 0 : n_mtp, last_is_moe ? n_mtp : 0);
    double split = (block.split / pp + mtp.split + embedding) / tp;
    if (in->untie && in->pp == 1)
        split += embedding / tp;
    double whole = block.whole / pp + mtp.whole;
    double expert = (block.expert / pp + mtp.expert) / (double)(in->etp * in->ep);
    double dp = (double)in->world_size / (double)(in->tp * in->pp * in->cp);
    uint64_t edp = in->world_size / (in->etp * in->ep * in->pp);
    double bytes = (split + whole) * bytes_per_parameter(in, dp);
    return expert > 0 ? bytes + expert * bytes_per_parameter(in, (double)edp) : bytes;
}

static double activation(const sim_estimate_input_t *in)
{
    double s = (double)in->seq_length, b = (double)in->micro_batch_size,
           h = (double)in->hidden_size;
    double layers = (double)in->num_layers, tp = (double)in->tp, pp = (double)in->pp;
    double vocab = (double)in->padded_vocab_size, f = (double)in->ffn_hidden_size;
    bool split = in->sequence_parallel && in->recompute_selective;
    double bytes =
        split ? s * b * h * (18 + 4 * f / h) * layers : s * b * h * (10 + 24 / tp) * layers;
    bytes += 8 * s * b * pp + s * b * h * pp;
    if (in->vpp > 0)
        bytes *= 1 + (pp - 1) / (pp * (double)in->vpp);
    else if (in->pp > 1 && in->n_microbatches > 0 && in->n_microbatches < in->pp)
        bytes *= (double)in->n_microbatches / pp;
    if (split) {
        if (in->pp == 1)
            bytes += s * b * h * 4 * (1 + vocab / h);
        return bytes / tp;
    }
    if (in->pp == 1)
        bytes += (s * b * vocab / tp + s * b * h) * 2;
    return bytes * 1.05;
}

sim_estimate_t sim_estimate_megatron(const sim_estimate_input_t *in)
{
    sim_estimate_t e;
    e.weight_and_optimizer_bytes = weight_and_optimizer(in);
    e.activation_bytes = activation(in);
    e.total_bytes = e.weight_and_optimizer_bytes + e.activation_bytes;
    return e;
}
