/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/cost.h"

#include "sim/base/units.h"
#include "sim/model/quant.h"

#include <math.h>

/* Best matrix products that were measured, over the data sheet: A100 SXM 271.2 of 312, H100 SXM
 * 794.5 of 989, B200 SXM 1745 of 2250 TFLOP/s; in FP8 H100 SXM 1402.6 of 1979, B200 SXM 3432.5 of
 * 4500 (S. Bekman, Machine Learning Engineering, compute/accelerator/README.md, "Maximum Achievable
 * Matmul FLOPS comparison table"). FP4 is taken to reach the share that FP8 does. */
static double matmul_efficiency(uint32_t sm)
{
    if (sm >= 100)
        return 0.776;
    return sm >= 90 ? 0.803 : 0.869;
}

static double fp8_matmul_efficiency(uint32_t sm)
{
    return sm >= 100 ? 0.763 : 0.709;
}

/* From one kernel to the next in a stream: launch, first loads, last stores. Empty kernels take 2
 * to 3 us, a product of matrices too small to fill the GPU some 5. */
static const double kernel_seconds = 4e-6;

/* Fused attention, over the data sheet: FlashAttention-3 on H100, head dimension 128, causal, 4k to
 * 16k tokens, reaches 480 to 640 forward and 400 to 550 TFLOP/s backward (its paper, figures 5, 6);
 * FlashAttention-2 on A100 160 to 200 of 312 both ways. */
static const double attention_forward_efficiency = 0.55, attention_backward_efficiency = 0.45;

/* STREAM-like kernels reach 85 to 92 % of the memory's rate on A100 and H100. */
static const double memory_efficiency = 0.88;

/* What the step of an offloaded optimizer gets of a host's memory for each GPU: two sockets of
 * eight DDR5 channels read and write some 400 GB/s, shared by eight. Its Adam moves 28 bytes for
 * each parameter. */
static const double host_bytes_per_s = 50e9;

/* Elements of an output tile of cuBLAS' large kernels: 128 x 128 up to Ampere, 128 x 256 after. */
static double tile_elements(uint32_t sm)
{
    return sm >= 90 ? 128.0 * 256.0 : 128.0 * 128.0;
}

/* FP4 runs twice as fast as FP8 (three times on a B300, which is not told apart). */
static double low_precision_tflops(const sim_scenario_t *s)
{
    return s->gpu_p->fp8_tflops * (s->fp4 != SIM_FP4_NONE ? 2 : 1);
}

sim_cost_t sim_cost_of(const sim_scenario_t *s, const sim_dims_t *dims)
{
    const topo_gpu_t *gpu = s->gpu_p;
    bool given = s->compute_efficiency > 0;
    double efficiency = given ? s->compute_efficiency : matmul_efficiency(gpu->sm);
    double fp8_efficiency = given ? s->compute_efficiency : fp8_matmul_efficiency(gpu->sm);
    sim_cost_t cost = {
        .scenario = s,
        .dims = dims,
        .network =
            coll_network(gpu->nvlink_gb_per_s, gpu->sm, (uint32_t)s->nvlink_domain,
                         (uint32_t)s->gpus_per_node, (uint32_t)s->nics_per_node, s->nic_gbit_per_s),
        .bf16_flops = gpu->bf16_tflops * 1e12 * efficiency,
        .fp8_flops = gpu->fp8_tflops > 0 ? low_precision_tflops(s) * 1e12 * fp8_efficiency
                                         : gpu->bf16_tflops * 1e12 * efficiency,
        .memory_bytes_per_s = gpu->memory_gb_per_s * 1e9 * memory_efficiency,
    };
    const topo_grid_t *grid = &s->grid;
    cost.tp = coll_reach(&cost.network, grid, TOPO_GROUP_TP, 0);
    cost.cp = coll_reach(&cost.network, grid, TOPO_GROUP_CP, 0);
    cost.ep = coll_reach(&cost.network, grid, TOPO_GROUP_EP, 0);
    cost.etp = coll_reach(&cost.network, grid, TOPO_GROUP_ETP, 0);
    cost.dp = coll_reach(&cost.network, grid, TOPO_GROUP_DP_CP, 0);
    cost.edp = coll_reach(&cost.network, grid, TOPO_GROUP_EDP, 0);
    return cost;
}

/* ---- parts ---- */

/* Seconds of a part of the model. Weight gradients are apart, since messages hide behind them. */
typedef struct {
    double forward, backward; /* computation */
    double forward_comm, backward_comm;
    double weight;   /* of `backward`: gradients of weights that can be left for a later pass */
    double unhidden; /* messages that run beside them, exposed where they are left */
} part_t;

static void add(part_t *sum, const part_t *part)
{
    sum->forward += part->forward;
    sum->backward += part->backward;
    sum->forward_comm += part->forward_comm;
    sum->backward_comm += part->backward_comm;
    sum->weight += part->weight;
    sum->unhidden += part->unhidden;
}

/* What is recomputed runs forward once more before it runs backward. */
static void add_recomputed(part_t *sum, const part_t *part)
{
    add(sum, part);
    sum->backward += part->forward;
    sum->backward_comm += part->forward_comm;
}

/* A kernel that does little more than to read and write. */
static double touch(const sim_cost_t *c, double bytes)
{
    return kernel_seconds + bytes / c->memory_bytes_per_s;
}

/* [m, k] x [k, n]; `out_bytes` move for each element of the result. The last wave of output tiles
 * leaves multiprocessors idle, and while a wave stores its tiles they compute nothing. */
static double matmul(const sim_cost_t *c, bool fp8, double m, double n, double k, double out_bytes)
{
    if (m <= 0 || n <= 0 || k <= 0)
        return 0;
    double n_sms = c->scenario->gpu_p->n_sms;
    double waves = m * n / (tile_elements(c->dims->sm) * n_sms);
    /* A single wave is split along k until it fills the GPU. */
    double full = waves > 1 ? waves / ceil(waves) : 1;
    double quantized = c->scenario->fp4 != SIM_FP4_NONE ? 0.5 : 1;
    double e = fp8 ? quantized : (double)c->dims->e;
    double store = m * n * out_bytes / c->memory_bytes_per_s;
    double compute = 2 * m * n * k / ((fp8 ? c->fp8_flops : c->bf16_flops) * full) + store / full;
    double memory = e * (m * k + k * n) / c->memory_bytes_per_s + store;
    return kernel_seconds + (compute > memory ? compute : memory);
}

/* Casting [m, k] to FP8 in `layouts` 1 or 2 ways of laying it out; with scales of the same tensor
 * it is read once more for the maximum. */
static double cast(const sim_cost_t *c, bool fp8, double m, double k, int layouts)
{
    if (!fp8)
        return 0;
    double e = (double)c->dims->e;
    bool reads_twice = c->scenario->fp8_recipe == SIM_FP8_TENSORWISE;
    return touch(c, m * k * ((reads_twice ? 2 * e : e) + layouts));
}

/* What was gathered by rows, for the weight gradient: Hopper multiplies FP8 in one layout only;
 * scales of blocks are gathered by columns. */
static double transpose(const sim_cost_t *c, bool fp8, double m, double k)
{
    sim_fp8_recipe_t recipe = c->scenario->fp8_recipe;
    bool is_per_tensor = recipe == SIM_FP8_TENSORWISE || recipe == SIM_FP8_DELAYED;
    return fp8 && is_per_tensor && c->dims->sm < 100 ? touch(c, 2 * m * k) : 0;
}

/* The ranks of a sequence that is split agree on its largest value before it is cast with a scale
 * of the same tensor (Transformer Engine, set_quantizer_amax_reduction_group()). */
static double agree_on_scale(const sim_cost_t *c, bool fp8)
{
    bool agrees = fp8 && c->scenario->fp8_recipe == SIM_FP8_TENSORWISE;
    return agrees ? coll_all_reduce_seconds(&c->network, &c->tp, 4) : 0;
}

/* Transformer Engine's Userbuffers as initialize_ub() of pytorch/module/base.py sets them up by
 * default: products that wait for a gathered input come in a part for each rank (ring exchange);
 * those whose output is scattered in four, on the multiprocessors that 16 for messages leave, the
 * message of the last part coming after them (pipeline); backward products of column-parallel
 * linears are whole, on as many (bulk). Parts run three at a time. */
enum { UB_STREAMS = 3, UB_SPLITS = 4, UB_SMS = 16 };

static double split_matmul(const sim_cost_t *c, bool fp8, double m, double n, double k,
                           double parts)
{
    double rounds = parts > UB_STREAMS ? parts / UB_STREAMS : 1;
    return rounds * matmul(c, fp8, m / rounds, n, k, (double)c->dims->e);
}

static double with_less_sms(const sim_cost_t *c, double product)
{
    double n = c->scenario->gpu_p->n_sms;
    return product * n / (n - UB_SMS);
}

/* What is left of `comm` beside a product in parts: that of one part, which comes before or after
 * them all, and what takes longer than the product. */
static double exposed_beside_parts(double comm, double product, double parts)
{
    double one = comm / parts;
    return comm - one > product ? comm - product : one;
}

static double exposed(double comm, double hidden_behind)
{
    return comm > hidden_behind ? comm - hidden_behind : 0;
}

/* Multiprocessors that a collective takes from a product beside it, a block a channel: NCCL's graph
 * search ends at 16 channels on eight Hopper or Blackwell GPUs, at 24 on Ampere. */
static double taken_by_messages(const sim_cost_t *c, double comm, double product)
{
    double channels = c->dims->sm >= 90 ? 16 : 24;
    return (comm < product ? comm : product) * channels / c->scenario->gpu_p->n_sms;
}

typedef struct {
    double forward, dgrad, wgrad;
} linear_t;

/* Fused accumulation reads and writes the gradient buffer; otherwise a kernel adds to it. */
static double weight_grad(const sim_cost_t *c, bool fp8, double m, double n, double k)
{
    double e = (double)c->dims->e;
    double grad = c->scenario->accumulate_allreduce_grads_in_fp32 ? 4 : e;
    if (c->scenario->gradient_accumulation_fusion)
        return matmul(c, fp8, n, k, m, 2 * grad);
    return matmul(c, fp8, n, k, m, e) + touch(c, n * k * (e + 2 * grad));
}

static linear_t linear(const sim_cost_t *c, bool fp8, double m, double n, double k)
{
    double e = (double)c->dims->e;
    return (linear_t){
        .forward = matmul(c, fp8, m, n, k, e) + cast(c, fp8, m, k, 2),
        .dgrad = matmul(c, fp8, m, k, n, e) + cast(c, fp8, m, n, 2),
        .wgrad = weight_grad(c, fp8, m, n, k),
    };
}

/* Column-parallel: with sequence parallelism the input is cast and gathered, forward and for the
 * weight gradient, and its gradient scattered; without, the gradient is reduced. Backward messages
 * run beside the other of the two products. */
static part_t column_linear(const sim_cost_t *c, bool fp8, double n, double k)
{
    const sim_dims_t *d = c->dims;
    double m = (double)d->tokens, local = (double)d->local_tokens;
    linear_t l = linear(c, fp8, m, n, k);
    part_t p = { .forward = l.forward, .backward = l.dgrad + l.wgrad, .weight = l.wgrad };
    uint64_t bytes = d->tokens * (uint64_t)k * (fp8 ? 1 : d->e);
    if (!d->sp) {
        double comm = coll_all_reduce_seconds(&c->network, &c->tp, d->tokens * (uint64_t)k * d->e);
        p.backward_comm = exposed(comm, l.wgrad);
        p.unhidden = comm - p.backward_comm;
        p.backward += taken_by_messages(c, comm, l.wgrad);
        return p;
    }
    double product = l.forward - cast(c, fp8, m, k, 2);
    double gather = coll_gather_seconds(&c->network, &c->tp, bytes);
    double scatter = coll_gather_seconds(&c->network, &c->tp, d->tokens * (uint64_t)k * d->e);
    p.forward = product + cast(c, fp8, local, k, 1);
    p.forward_comm = gather + agree_on_scale(c, fp8);
    p.backward_comm = exposed(gather, l.dgrad) + exposed(scatter, l.wgrad);
    p.unhidden = scatter - exposed(scatter, l.wgrad);
    if (c->scenario->tp_comm_overlap) {
        p.forward += split_matmul(c, fp8, m, n, k, (double)d->tp) - product;
        p.forward_comm += exposed_beside_parts(gather, product, (double)d->tp) - gather;
        double casts = cast(c, fp8, m, n, 2);
        p.backward = with_less_sms(c, l.dgrad + l.wgrad - casts) + casts;
    } else {
        p.backward +=
            taken_by_messages(c, gather, l.dgrad) + taken_by_messages(c, scatter, l.wgrad);
    }
    p.backward += transpose(c, fp8, m, k);
    return p;
}

/* Row-parallel: the output is scattered or reduced; its gradient is cast and gathered. */
static part_t row_linear(const sim_cost_t *c, bool fp8, double n, double k)
{
    const sim_dims_t *d = c->dims;
    double m = (double)d->tokens, e = (double)d->e;
    linear_t l = linear(c, fp8, m, n, k);
    part_t p = { .forward = l.forward, .backward = l.dgrad + l.wgrad, .weight = l.wgrad };
    uint64_t elements = d->tokens * (uint64_t)n;
    if (!d->sp) {
        p.forward_comm = coll_all_reduce_seconds(&c->network, &c->tp, elements * d->e);
        return p;
    }
    double dgrad = matmul(c, fp8, m, k, n, e);
    p.forward_comm = coll_gather_seconds(&c->network, &c->tp, elements * d->e);
    p.backward_comm = coll_gather_seconds(&c->network, &c->tp, elements * (fp8 ? 1 : d->e));
    if (c->scenario->tp_comm_overlap) {
        double parts = (double)d->tp;
        double product = with_less_sms(c, split_matmul(c, fp8, m, n, k, UB_SPLITS));
        p.forward = product + cast(c, fp8, m, k, 2);
        p.forward_comm = exposed_beside_parts(p.forward_comm, product, UB_SPLITS);
        dgrad = split_matmul(c, fp8, m, k, n, parts);
        p.backward_comm = exposed_beside_parts(p.backward_comm, dgrad, parts);
    }
    p.backward =
        dgrad + l.wgrad + cast(c, fp8, (double)d->local_tokens, n, 1) + transpose(c, fp8, m, n);
    p.backward_comm += agree_on_scale(c, fp8);
    return p;
}

/* Norm over [rows, width]: forward reads and writes, backward reads input and gradient and writes
 * one. */
static part_t norm(const sim_cost_t *c, double bytes)
{
    return (part_t){ .forward = touch(c, 2 * bytes), .backward = touch(c, 3 * bytes) };
}

/* Bias, dropout, residual. */
static part_t residual(const sim_cost_t *c)
{
    double bytes = (double)c->dims->hidden_bytes;
    return (part_t){ .forward = touch(c, 3 * bytes), .backward = touch(c, 2 * bytes) };
}

/* ---- attention ---- */

static double attention_flops(const sim_cost_t *c)
{
    const sim_dims_t *d = c->dims;
    double width =
        d->mla.is_used ? (double)(d->mla.qk_dim + d->mla.v_dim) : 2.0 * (double)d->head_dim;
    double causal = 0.5;
    return causal * 2.0 * (double)d->tokens * (double)d->s * (double)d->heads_tp * width;
}

static part_t core_attention(const sim_cost_t *c)
{
    const sim_dims_t *d = c->dims;
    double flops = attention_flops(c), rate = c->bf16_flops / matmul_efficiency(d->sm);
    part_t p = { .forward = flops / (rate * attention_forward_efficiency),
                 .backward = 2.5 * flops / (rate * attention_backward_efficiency) };
    if (d->core == SIM_CORE_UNFUSED || d->core == SIM_CORE_LOCAL) {
        /* Scores, mask, softmax and dropout each read and write the whole matrix; both triangles
         * are computed. */
        double scores = (double)d->tokens * (double)d->s * (double)d->heads_tp * (double)d->e;
        p.forward = 2 * flops / c->bf16_flops + touch(c, 6 * scores);
        p.backward = 4 * flops / c->bf16_flops + touch(c, 8 * scores);
    }
    if (d->cp > 1) {
        uint64_t kv = d->mla.is_used ? d->mla.kv_bytes : 2 * d->kv_bytes;
        double comm = coll_gather_seconds(&c->network, &c->cp, kv * d->cp);
        p.forward_comm = exposed(comm, p.forward);
        p.backward_comm = exposed(2 * comm, p.backward);
    }
    return p;
}

static bool recomputes(const sim_cost_t *c, sim_recompute_module_t module)
{
    const sim_scenario_t *s = c->scenario;
    return s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE && (s->recompute_modules & module);
}

static void add_core(const sim_cost_t *c, part_t *sum)
{
    const sim_dims_t *d = c->dims;
    part_t core = core_attention(c);
    if (recomputes(c, SIM_MODULE_CORE_ATTN))
        add_recomputed(sum, &core);
    else
        add(sum, &core);
    if (d->rotary_dim > 0 || d->mla.is_used) {
        double bytes =
            2.0 * (double)(d->mla.is_used ? 2 * d->mla.q_bytes : d->q_bytes + d->kv_bytes);
        part_t rope = { .forward = touch(c, bytes), .backward = touch(c, bytes) };
        add(sum, &rope);
    }
}

static void add_linear(part_t *sum, const part_t p)
{
    add(sum, &p);
}

static part_t mla(const sim_cost_t *c, bool fp8)
{
    const sim_dims_t *d = c->dims;
    const sim_mla_dims_t *a = &d->mla;
    double heads = (double)d->heads_tp, h = (double)d->h, rows = (double)d->local_tokens;
    part_t sum = { 0 };
    part_t up = { 0 };
    linear_t down = linear(c, fp8, rows, (double)(a->kv_rank + a->rope_dim + a->q_rank), h);
    add_linear(&sum, (part_t){ .forward = down.forward,
                               .backward = down.dgrad + down.wgrad,
                               .weight = down.wgrad });
    add_linear(&up,
               column_linear(c, fp8, heads * (double)(a->nope_dim + a->v_dim), (double)a->kv_rank));
    add_linear(&up, column_linear(c, fp8, heads * (double)a->qk_dim,
                                  a->q_rank > 0 ? (double)a->q_rank : h));
    if (recomputes(c, SIM_MODULE_MLA_UP_PROJ))
        add_recomputed(&sum, &up);
    else
        add(&sum, &up);
    add_core(c, &sum);
    add_linear(&sum, row_linear(c, fp8, h, heads * (double)a->v_dim));
    return sum;
}

static part_t attention(const sim_cost_t *c, bool fp8)
{
    const sim_dims_t *d = c->dims;
    if (d->mla.is_used)
        return mla(c, fp8);
    double head_dim = (double)d->head_dim, h = (double)d->h;
    part_t sum =
        column_linear(c, fp8, ((double)d->heads_tp + 2 * (double)d->groups_tp) * head_dim, h);
    add_core(c, &sum);
    add_linear(&sum, row_linear(c, fp8, h, (double)d->heads_tp * head_dim));
    return sum;
}

/* ---- MLP and experts ---- */

static part_t activation(const sim_cost_t *c, double rows, double ffn)
{
    double out = rows * ffn * (double)c->dims->e, in = out * (double)c->dims->gate;
    return (part_t){ .forward = touch(c, in + out), .backward = touch(c, 2 * in + out) };
}

static part_t mlp(const sim_cost_t *c, bool fp8, double ffn_tp)
{
    const sim_dims_t *d = c->dims;
    part_t sum = column_linear(c, fp8, (double)d->gate * ffn_tp, (double)d->h);
    add_linear(&sum, activation(c, (double)d->tokens, ffn_tp));
    add_linear(&sum, row_linear(c, fp8, (double)d->h, ffn_tp));
    return sum;
}

/* Products of a group's experts, one after the other in one kernel. */
static part_t experts(const sim_cost_t *c, bool fp8, const sim_moe_rows_t *rows)
{
    const sim_moe_dims_t *e = &c->dims->moe;
    double n = (double)rows->expert, ffn = (double)e->ffn_etp, h = (double)e->h;
    linear_t fc1 = linear(c, fp8, n, (double)c->dims->gate * ffn, h);
    linear_t fc2 = linear(c, fp8, n, h, ffn);
    part_t sum = { .forward = fc1.forward + fc2.forward,
                   .backward = fc1.dgrad + fc1.wgrad + fc2.dgrad + fc2.wgrad,
                   .weight = fc1.wgrad + fc2.wgrad };
    /* Each expert's weights are read, however few its rows. */
    double weights = touch(c, (double)e->n_local * ((double)c->dims->gate + 1) * ffn * h *
                                  (fp8 ? 1 : (double)c->dims->e));
    sum.forward = sum.forward > weights ? sum.forward : weights;
    sum.backward = sum.backward > 2 * weights ? sum.backward : 2 * weights;
    part_t act = activation(c, n, ffn);
    if (recomputes(c, SIM_MODULE_MOE_ACT))
        add_recomputed(&sum, &act);
    else
        add(&sum, &act);
    return sum;
}

static part_t moe(const sim_cost_t *c, bool fp8, uint32_t layer)
{
    const sim_dims_t *d = c->dims;
    const sim_moe_dims_t *e = &d->moe;
    sim_moe_rows_t rows = sim_moe_rows(c->scenario, d, layer);
    uint64_t row_bytes = e->h * d->e;
    linear_t router = linear(c, false, (double)d->local_tokens, (double)e->n_experts, (double)d->h);
    part_t sum = { .forward = router.forward, .backward = router.dgrad + router.wgrad };

    /* Permuting before and after the exchange, unpermuting the same way back. */
    double moved = 4 * touch(c, (double)(rows.sent + rows.expert) * (double)row_bytes);
    add_linear(&sum, (part_t){ .forward = moved, .backward = moved });
    part_t routed = experts(c, fp8, &rows);
    add_linear(&sum, routed);

    double exchange;
    if (c->scenario->moe_token_dispatcher_type == SIM_DISPATCHER_ALLGATHER)
        exchange = coll_gather_seconds(&c->network, &c->ep, rows.gathered * row_bytes);
    else
        exchange = coll_all_to_all_seconds(&c->network, &c->ep, rows.sent * row_bytes);
    exchange += coll_gather_seconds(&c->network, &c->etp, rows.expert * row_bytes);

    part_t shared = { 0 };
    if (e->shared_ffn > 0) {
        shared = mlp(c, fp8, (double)e->shared_ffn);
        if (recomputes(c, SIM_MODULE_SHARED_EXPERTS))
            add_recomputed(&sum, &shared);
        else
            add(&sum, &shared);
    }
    bool overlap = c->scenario->moe_shared_expert_overlap;
    sum.forward_comm += exposed(2 * exchange, overlap ? shared.forward : 0);
    double beside = overlap ? shared.backward : 0;
    /* The dispatch's way back also runs beside the gradients of the experts' weights. */
    if (c->scenario->overlap_dispatch_backward_with_experts_wgrad)
        beside += exchange < routed.weight ? exchange : routed.weight;
    sum.backward_comm += exposed(2 * exchange, beside);
    return sum;
}

/* ---- layers and ends ---- */

/* The scan reads and writes its tensors a few times and computes little (training.py,
 * mamba_layer_flops(): 7 operations for each channel and number of its state). */
static part_t mamba(const sim_cost_t *c, bool fp8)
{
    const sim_dims_t *d = c->dims;
    const sim_mamba_dims_t *a = &d->mamba;
    part_t sum = column_linear(c, fp8, (double)a->proj_rows, (double)d->h);
    double bytes =
        (double)d->tokens * (double)(a->proj_rows + 2 * a->conv + 4 * a->inner) * (double)d->e;
    add_linear(&sum, (part_t){ .forward = touch(c, bytes), .backward = touch(c, 3 * bytes) });
    add_linear(&sum, row_linear(c, fp8, (double)d->h, (double)a->inner));
    add_linear(&sum, norm(c, (double)d->hidden_bytes));
    add_linear(&sum, residual(c));
    if (d->cp > 1) {
        double comm = coll_all_to_all_seconds(&c->network, &c->cp,
                                              d->tokens * (a->proj_rows + a->inner) * d->e);
        sum.forward_comm += comm;
        sum.backward_comm += comm;
    }
    return sum;
}

/* The rule multiplies matrices of a chunk and of the state (training.py, gdn_layer_flops()), and
 * reads and writes its tensors a few times. */
static part_t delta_net(const sim_cost_t *c, bool fp8)
{
    const sim_dims_t *d = c->dims;
    const sim_delta_net_dims_t *a = &d->delta_net;
    double values = (double)(a->value_heads * a->value_dim);
    part_t sum = column_linear(c, fp8, (double)a->proj_rows, (double)d->h);
    double bytes = (double)d->tokens *
                   (double)(a->proj_rows + 2 * a->conv + 8 * a->value_heads * a->value_dim) *
                   (double)d->e;
    double rule = matmul(c, false, (double)d->tokens, 4 * values, (double)a->value_dim, 0);
    add_linear(&sum, (part_t){ .forward = touch(c, bytes) + rule,
                               .backward = touch(c, 3 * bytes) + 2 * rule });
    add_linear(&sum, row_linear(c, fp8, (double)d->h, values));
    if (d->cp > 1) {
        uint64_t sent = d->tokens * (a->proj_rows + a->value_heads * a->value_dim) * d->e;
        double comm = coll_all_to_all_seconds(&c->network, &c->cp, sent);
        sum.forward_comm += comm;
        sum.backward_comm += comm;
    }
    return sum;
}

/* What a dense layer saves: inputs and outputs of its norms, projections and MLP. Offloaded, it
 * goes to host memory beside the layer's forward and comes back beside its backward pass. */
static void add_offload(const sim_cost_t *c, part_t *sum, uint32_t index)
{
    const sim_dims_t *d = c->dims;
    if (!c->scenario->cpu_offloading || index >= c->scenario->cpu_offloading_num_layers)
        return;
    double copy = coll_host_copy_seconds(4 * d->hidden_bytes + d->qkv_bytes + d->q_bytes +
                                         d->fc1_bytes + d->act_bytes);
    sum->forward_comm += exposed(copy, sum->forward);
    sum->backward_comm += exposed(copy, sum->backward);
}

static part_t layer(const sim_cost_t *c, uint32_t index)
{
    const sim_scenario_t *s = c->scenario;
    bool is_moe = sim_layer_is_moe(s, index), fp8 = sim_layer_is_quantized(s, index);
    sim_layer_kind_t kind = sim_layer_kind(s, index);
    if (kind == SIM_LAYER_MAMBA)
        return mamba(c, fp8);
    double hidden = (double)c->dims->hidden_bytes;
    part_t sum = { 0 };
    bool has_both = kind == SIM_LAYER_TRANSFORMER || kind == SIM_LAYER_LINEAR_TRANSFORMER;
    bool is_linear = kind == SIM_LAYER_DELTA_NET || kind == SIM_LAYER_LINEAR_TRANSFORMER;
    part_t norms = norm(c, (has_both ? 2 : 1) * hidden);
    if (recomputes(c, SIM_MODULE_LAYERNORM))
        add_recomputed(&sum, &norms);
    else
        add(&sum, &norms);
    if (kind != SIM_LAYER_MLP) {
        add_linear(&sum, is_linear ? delta_net(c, fp8) : attention(c, fp8));
        add_linear(&sum, residual(c));
    }
    if (kind == SIM_LAYER_ATTENTION || kind == SIM_LAYER_DELTA_NET)
        return sum;
    add_linear(&sum, residual(c));
    part_t inner =
        is_moe ? moe(c, fp8, index) : mlp(c, fp8, (double)c->dims->ffn / (double)c->dims->tp);
    if (recomputes(c, is_moe ? SIM_MODULE_MOE : SIM_MODULE_MLP))
        add_recomputed(&sum, &inner);
    else
        add(&sum, &inner);
    add_offload(c, &sum, index);
    return sum;
}

/* Logits in 16 bits, cross-entropy in 32: the unfused one makes and reads several copies. */
static part_t output(const sim_cost_t *c)
{
    const sim_dims_t *d = c->dims;
    part_t sum = column_linear(c, false, (double)d->vocab_tp, (double)d->h);
    /* The layer is Megatron-LM's own, which leaves nothing where the others are Transformer
     * Engine's (sim/model/weights.h). */
    if (d->te)
        sum.weight = sum.unhidden = 0;
    double logits = (double)d->tokens * (double)d->vocab_tp;
    double reads = c->scenario->cross_entropy_loss_fusion ? 3 : 8;
    add_linear(&sum, (part_t){ .forward = touch(c, logits * 4 * reads),
                               .backward = touch(c, logits * 4 * 3) });
    return sum;
}

static part_t mtp_layer(const sim_cost_t *c, uint32_t depth)
{
    const sim_scenario_t *s = c->scenario;
    const sim_dims_t *d = c->dims;
    part_t sum =
        column_linear(c, s->fp8 != SIM_FP8_NONE, (double)d->h / (double)d->tp, 2.0 * (double)d->h);
    uint64_t n = s->mtp_depth_layers, first = s->num_layers + depth * n;
    for (uint64_t i = first; i < first + n; i++)
        add_linear(&sum, layer(c, (uint32_t)i));
    add_linear(&sum, output(c));
    return sum;
}

static bool is_recomputed(const sim_scenario_t *s, uint32_t index_in_chunk)
{
    if (s->recompute_granularity != SIM_RECOMPUTE_FULL)
        return false;
    return s->recompute_method != SIM_RECOMPUTE_BLOCK || index_in_chunk < s->recompute_num_layers;
}

/* The decoder of a T5 with its output: its layers have a second attention, to the encoder. */
static part_t decoder(const sim_cost_t *c)
{
    sim_dims_t own_d = sim_dims_decoder(c->dims, c->scenario);
    sim_dims_t cross_d = sim_dims_cross(c->dims, c->scenario);
    sim_cost_t own = *c, cross = *c;
    own.dims = &own_d;
    cross.dims = &cross_d;
    part_t sum = output(&own);
    for (uint64_t i = 0; i < c->scenario->decoder_num_layers; i++) {
        add_linear(&sum, layer(&own, 0));
        add_linear(&sum, attention(&cross, false));
        add_linear(&sum, residual(&own));
    }
    return sum;
}

sim_pass_cost_t sim_cost_pass(const sim_cost_t *c, const topo_chunk_t *chunk)
{
    const sim_scenario_t *s = c->scenario;
    part_t sum = { 0 };
    for (uint32_t i = 0; i < chunk->n_layers; i++) {
        part_t p = layer(c, chunk->first_layer + i);
        if (is_recomputed(s, i))
            add_recomputed(&sum, &p);
        else
            add(&sum, &p);
    }
    for (uint32_t i = 0; i < chunk->n_mtp_layers; i++)
        add_linear(&sum, mtp_layer(c, i));
    /* Without layers a stage copies what it was given. */
    if (chunk->n_layers == 0 && chunk->n_mtp_layers == 0 && !chunk->has_loss)
        add_linear(&sum, (part_t){ .forward = touch(c, 2.0 * (double)c->dims->hidden_bytes),
                                   .backward = touch(c, 2.0 * (double)c->dims->hidden_bytes) });
    if (chunk->has_embedding)
        add_linear(&sum, norm(c, (double)c->dims->hidden_bytes));
    if (chunk->has_loss) {
        add_linear(&sum, norm(c, (double)c->dims->hidden_bytes));
        add_linear(&sum, s->model_type == SIM_MODEL_T5 ? decoder(c) : output(c));
    }
    return (sim_pass_cost_t){ .forward = sum.forward + sum.forward_comm,
                              .backward = sum.backward + sum.backward_comm,
                              .forward_comm = sum.forward_comm,
                              .backward_comm = sum.backward_comm,
                              .input_grad =
                                  sum.backward - sum.weight + sum.backward_comm + sum.unhidden,
                              .input_grad_comm = sum.backward_comm + sum.unhidden,
                              .weight_grad = sum.weight };
}

/* Adam reads gradient, main parameter and both moments and writes the latter three, and the 16-bit
 * parameter. */
double sim_cost_optimizer_seconds(const sim_cost_t *c, uint64_t n_elements)
{
    const sim_scenario_t *s = c->scenario;
    uint64_t grad = s->accumulate_allreduce_grads_in_fp32 ? 4 : 2;
    if (s->optimizer_cpu_offload) {
        uint64_t there = (uint64_t)((double)n_elements * s->optimizer_offload_fraction);
        double step = (double)there * 28 / host_bytes_per_s;
        return step + coll_host_copy_seconds(there * (grad + c->dims->e)) +
               touch(c, (double)(n_elements - there) * (double)(grad + 24 + c->dims->e));
    }
    uint64_t state = 4 + 4 + 4;
    if (s->use_precision_aware_optimizer)
        state = sim_dtype_bytes(s->main_params_dtype) + sim_dtype_bytes(s->exp_avg_dtype) +
                sim_dtype_bytes(s->exp_avg_sq_dtype);
    return touch(c, (double)n_elements * (double)(grad + 2 * state + c->dims->e));
}

/* ---- model FLOPs ---- */

/* Multiplications and additions of one token's forward pass. */
static double attention_token_flops(const sim_cost_t *c)
{
    const sim_dims_t *d = c->dims;
    double h = (double)d->h, heads = (double)d->heads;
    if (d->mla.is_used) {
        const sim_mla_dims_t *a = &d->mla;
        double q_in = a->q_rank > 0 ? (double)a->q_rank : h;
        double weights = h * (double)(a->kv_rank + a->rope_dim + a->q_rank) +
                         (double)a->kv_rank * heads * (double)(a->nope_dim + a->v_dim) +
                         q_in * heads * (double)a->qk_dim + heads * (double)a->v_dim * h;
        return 2 * weights + heads * (double)(a->qk_dim + a->v_dim) * (double)d->s;
    }
    double width = (double)d->head_dim;
    double weights = h * width * (2 * heads + 2 * (double)d->groups);
    return 2 * weights + heads * 2 * width * (double)d->s;
}

/* training/training.py, mamba_layer_flops(). */
static double mamba_token_flops(const sim_cost_t *c)
{
    const sim_dims_t *d = c->dims;
    const sim_mamba_dims_t *a = &d->mamba;
    double h = (double)d->h, tp = (double)d->tp, inner = (double)a->inner * tp;
    return 2 * h * (double)a->proj_rows * tp + 7 * inner * (double)a->state + 2 * inner * h;
}

/* training.py, gdn_layer_flops() */
static double delta_net_token_flops(const sim_cost_t *c)
{
    const sim_scenario_t *s = c->scenario;
    const sim_delta_net_dims_t *a = &c->dims->delta_net;
    double h = (double)c->dims->h, tp = (double)c->dims->tp;
    double values = (double)(a->value_heads * a->value_dim) * tp;
    return 2 * (h * (double)a->proj_rows * tp +
                (double)s->linear_conv_kernel_dim * (double)a->conv * tp +
                4 * values * (double)a->value_dim + h * values);
}

static double layer_token_flops(const sim_cost_t *c, uint64_t index)
{
    const sim_scenario_t *s = c->scenario;
    sim_layer_kind_t kind = sim_layer_kind(s, index);
    const sim_dims_t *d = c->dims;
    if (kind == SIM_LAYER_MAMBA)
        return mamba_token_flops(c);
    double h = (double)d->h, matrices = (double)d->gate + 1;
    bool is_linear = kind == SIM_LAYER_DELTA_NET || kind == SIM_LAYER_LINEAR_TRANSFORMER;
    double flops = kind == SIM_LAYER_MLP ? 0.0
                   : is_linear           ? delta_net_token_flops(c)
                                         : attention_token_flops(c);
    if (kind == SIM_LAYER_ATTENTION || kind == SIM_LAYER_DELTA_NET)
        return flops;
    if (!sim_layer_is_moe(s, index))
        return flops + 2 * matrices * h * (double)d->ffn;
    flops += 2 * h * (double)d->moe.n_experts;
    flops += 2 * matrices * (double)d->moe.h * (double)s->moe_ffn_hidden_size * (double)d->moe.topk;
    return flops + 2 * matrices * h * (double)s->moe_shared_expert_intermediate_size;
}

/* Forward, for a sample of a T5: keys and values of cross attention are of the encoder's tokens. */
static double t5_sample_flops(const sim_cost_t *c)
{
    const sim_scenario_t *s = c->scenario;
    const sim_dims_t *d = c->dims;
    double h = (double)d->h, width = (double)(d->heads * d->head_dim);
    double layer = layer_token_flops(c, 0);
    double encoder = (double)s->num_layers * layer;
    double n = (double)s->decoder_num_layers;
    double own = layer + 2 * 2 * h * width + 2 * 2 * width * (double)d->s;
    double logits = 2 * h * (double)d->padded_vocab;
    return (encoder + n * 2 * 2 * h * width) * (double)s->seq_length +
           (n * own + logits) * (double)s->decoder_seq_length;
}

double sim_cost_model_flops(const sim_cost_t *c)
{
    const sim_scenario_t *s = c->scenario;
    if (s->model_type == SIM_MODEL_T5)
        return 3 * t5_sample_flops(c) * (double)s->global_batch_size;
    double logits = 2 * (double)c->dims->h * (double)c->dims->padded_vocab, flops = logits;
    for (uint64_t i = 0; i < sim_n_layers(s); i++)
        flops += layer_token_flops(c, i);
    double joining = 2 * 2 * (double)c->dims->h * (double)c->dims->h;
    flops += (double)s->mtp_num_layers * (joining + logits);
    return 3 * flops * (double)s->seq_length * (double)s->global_batch_size;
}
