/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/software.h"
#include "sim/model/titan.h"

enum { FP32 = 4, INDEX_BYTES = 8 };

/* What the linears of a block compute in: torchao's Float8Linear with one scale a tensor, MXLinear,
 * NVFP4 training linear. */
typedef enum { FORMAT_BF16, FORMAT_FP8, FORMAT_MXFP8, FORMAT_NVFP4 } format_t;

/* Where graphs are written, and what they are of. */
typedef struct {
    sim_graph_t *g;
    const sim_scenario_t *s;
    const sim_dims_t *d;
    format_t format;
    /* The last tensor that was cast to FP8, and the casts: as it is, and transposed. */
    sim_node_id_t cast_of, cast, transposed_of, transposed;
} work_t;

#define POINTWISE(w, name, bytes, ...)                                                             \
    sim_graph_add((w)->g, SIM_NODE_POINTWISE, name, bytes, __VA_ARGS__)
#define REDUCTION(w, name, bytes, n, ...)                                                          \
    sim_graph_add((w)->g, SIM_NODE_REDUCTION, name, bytes, n, __VA_ARGS__)
#define KERNEL(w, name, bytes, ...) sim_graph_add((w)->g, SIM_NODE_KERNEL, name, bytes, __VA_ARGS__)
#define PART(w, name, bytes)        sim_graph_add((w)->g, SIM_NODE_PART, name, bytes, 0)

static void list(work_t *w, sim_node_id_t node)
{
    w->g->nodes[node].is_listed = true;
}

static sim_node_id_t product(work_t *w, sim_node_id_t node)
{
    w->g->nodes[node].is_product = true;
    return node;
}

static sim_node_id_t weight_grad(work_t *w, sim_node_id_t node)
{
    w->g->nodes[node].is_weight_grad = true;
    return node;
}

static sim_node_id_t add_into(work_t *w, sim_node_id_t to, sim_node_id_t from)
{
    return sim_graph_add(w->g, SIM_NODE_ADD_INTO, "grad_sum", w->g->nodes[to].bytes, 2, to, from);
}

/* ---- RMSNorm, in fp32 ---- */

typedef struct {
    sim_node_id_t x, fp32, rsqrt, scaled;
    uint64_t n, rows, width;
} norm_t;

static sim_node_id_t norm_forward(work_t *w, norm_t *save, sim_node_id_t x, uint64_t rows,
                                  uint64_t width)
{
    uint64_t n = rows * width;
    *save = (norm_t){ .x = x, .n = n, .rows = rows, .width = width };
    save->fp32 = POINTWISE(w, "norm_fp32", FP32 * n, 1, x);
    sim_node_id_t square = POINTWISE(w, "norm_square", FP32 * n, 1, save->fp32);
    sim_node_id_t mean = REDUCTION(w, "norm_mean", FP32 * rows, 1, square);
    save->rsqrt = POINTWISE(w, "norm_rsqrt", FP32 * rows, 1, mean);
    sim_node_id_t scaled = POINTWISE(w, "norm_scaled", FP32 * n, 2, save->fp32, save->rsqrt);
    sim_graph_hold(w->g, save->fp32);
    save->scaled = POINTWISE(w, "norm_cast", w->d->e * n, 1, scaled);
    sim_node_id_t out = POINTWISE(w, "norm_out", w->d->e * n, 1, save->scaled);
    sim_graph_hold(w->g, save->scaled);
    return out;
}

static sim_node_id_t norm_backward(work_t *w, const norm_t *save, sim_node_id_t g)
{
    uint64_t n = save->n, e = w->d->e;
    sim_node_id_t weight_terms = POINTWISE(w, "d_norm_weight_terms", e * n, 2, g, save->scaled);
    sim_node_id_t d_cast = POINTWISE(w, "d_norm_cast", e * n, 1, g);
    weight_grad(w, REDUCTION(w, "norm_weight_grad", e * save->width, 1, weight_terms));
    sim_node_id_t d_scaled = POINTWISE(w, "d_norm_scaled", FP32 * n, 1, d_cast);
    sim_node_id_t terms = POINTWISE(w, "d_rsqrt_terms", FP32 * n, 2, d_scaled, save->fp32);
    sim_node_id_t d_fp32 = POINTWISE(w, "d_norm_fp32", FP32 * n, 2, d_scaled, save->rsqrt);
    sim_node_id_t d_rsqrt = REDUCTION(w, "d_rsqrt", FP32 * save->rows, 1, terms);
    sim_node_id_t d_mean = POINTWISE(w, "d_mean", FP32 * save->rows, 2, d_rsqrt, save->rsqrt);
    sim_node_id_t d_square = POINTWISE(w, "d_square", FP32 * n, 1, d_mean);
    sim_node_id_t power = POINTWISE(w, "square_base", FP32 * n, 1, save->fp32);
    sim_node_id_t twice = POINTWISE(w, "square_slope", FP32 * n, 1, power);
    sim_node_id_t more = POINTWISE(w, "d_square_base", FP32 * n, 3, d_square, twice, save->fp32);
    sim_node_id_t sum = add_into(w, d_fp32, more);
    return POINTWISE(w, "d_norm_in", e * n, 1, sum);
}

/* ---- FP8: torchao's Float8Linear with one scale a tensor ---- */

static bool is_fp8(const work_t *w)
{
    return w->format == FORMAT_FP8;
}

/* The greatest element is found first; FP8 has a byte an element. */
static sim_node_id_t cast_anew(work_t *w, sim_node_id_t x, const char *name)
{
    uint64_t n = w->g->nodes[x].bytes / w->d->e;
    sim_node_id_t amax = REDUCTION(w, "amax", FP32, 1, x);
    list(w, amax);
    sim_node_id_t out = POINTWISE(w, name, n, 2, x, amax);
    w->g->nodes[out].is_fp8 = true;
    return out;
}

/* What several linears read is cast once. */
static sim_node_id_t cast(work_t *w, sim_node_id_t x)
{
    if (w->g->nodes[x].is_fp8)
        return x;
    if (w->cast_of != x)
        w->cast = cast_anew(w, x, "fp8");
    w->cast_of = x;
    return w->cast;
}

/* The scale of the forward pass is used again. */
static sim_node_id_t scale_of(const work_t *w, sim_node_id_t x)
{
    for (uint32_t i = 0; i < w->g->n; i++)
        if (w->g->nodes[i].kind == SIM_NODE_REDUCTION && w->g->nodes[i].is_listed &&
            w->g->nodes[i].in[0] == x)
            return (sim_node_id_t)i;
    return x;
}

static sim_node_id_t cast_transposed(work_t *w, sim_node_id_t x)
{
    uint64_t e = w->g->nodes[x].is_fp8 ? 1 : w->d->e;
    if (w->transposed_of != x)
        w->transposed =
            POINTWISE(w, "fp8_transposed", w->g->nodes[x].bytes / e, 2, x, scale_of(w, x));
    w->transposed_of = x;
    return w->transposed;
}

/* ---- collectives of tensor parallelism: DTensor's redistribute, along the sequence ---- */

/* funcol.all_gather_tensor(): what arrives is rearranged when the dimension is not the first. */
static sim_node_id_t gather_as_it_is(work_t *w, sim_node_id_t x, const char *name)
{
    uint64_t bytes = w->g->nodes[x].bytes * w->d->tp;
    sim_node_id_t raw = KERNEL(w, "all_gather_out", bytes, 1, x);
    sim_node_id_t out = POINTWISE(w, name, bytes, 1, raw);
    w->g->nodes[out].is_fp8 = w->g->nodes[x].is_fp8;
    return out;
}

/* Operands of linears travel in FP8: torchao float8_tensor_parallel.py. */
static sim_node_id_t gather(work_t *w, sim_node_id_t x, const char *name)
{
    if (!w->d->sp)
        return x;
    return gather_as_it_is(w, is_fp8(w) ? cast(w, x) : x, name);
}

static sim_node_id_t scatter(work_t *w, sim_node_id_t x, const char *name)
{
    if (!w->d->sp)
        return x;
    sim_node_id_t chunks = POINTWISE(w, "reduce_scatter_in", w->d->full_hidden_bytes, 1, x);
    sim_node_id_t out = KERNEL(w, name, w->d->hidden_bytes, 1, chunks);
    return out;
}

/* ---- linears ---- */

/* Bytes of `n` elements with their scales: MXFP8 has one for 32, NVFP4 one for 16, of a byte. */
static uint64_t block_bytes(const work_t *w, uint64_t n)
{
    return w->format == FORMAT_MXFP8 ? n + n / 32 : n / 2 + n / 16;
}

/* By rows for the product at hand; NVFP4's kernel writes columns, for the weight's gradient, too.
 */
static sim_node_id_t quantize(work_t *w, sim_node_id_t x)
{
    uint64_t bytes = block_bytes(w, w->g->nodes[x].bytes / w->d->e);
    if (w->cast_of == x)
        return w->cast;
    w->cast_of = x;
    if (w->format == FORMAT_MXFP8)
        return w->cast = POINTWISE(w, "mxfp8_rows", bytes, 1, x);
    w->cast = KERNEL(w, "nvfp4_rows", bytes, 1, x);
    PART(w, "nvfp4_columns", bytes);
    return w->cast;
}

/* What the gradient of a weight reads of `x`. */
static sim_node_id_t columns_of(work_t *w, sim_node_id_t x)
{
    for (uint32_t i = 0; i < w->g->n && w->format == FORMAT_NVFP4; i++)
        if (w->g->nodes[i].kind == SIM_NODE_PART && w->g->nodes[i - 1].n_in == 1 &&
            w->g->nodes[i - 1].in[0] == x)
            return (sim_node_id_t)i;
    if (w->transposed_of != x)
        w->transposed =
            KERNEL(w, "mxfp8_columns", block_bytes(w, w->g->nodes[x].bytes / w->d->e), 1, x);
    w->transposed_of = x;
    return w->transposed;
}

static sim_node_id_t in_forward_format(work_t *w, const char *name, sim_node_id_t x, uint64_t bytes,
                                       uint64_t weight_elements)
{
    sim_node_id_t weight;
    switch (w->format) {
    case FORMAT_BF16:
        return KERNEL(w, name, bytes, 1, x);
    case FORMAT_FP8:
        x = cast(w, x);
        if (w->s->enable_fsdp_float8_all_gather)
            return KERNEL(w, name, bytes, 1, x);
        weight = POINTWISE(w, "weight_fp8", weight_elements, 0);
        return KERNEL(w, name, bytes, 2, x, weight);
    case FORMAT_MXFP8:
        weight = POINTWISE(w, "weight_mxfp8", block_bytes(w, weight_elements), 0);
        return KERNEL(w, name, bytes, 2, quantize(w, x), weight);
    default:
        weight = KERNEL(w, "weight_nvfp4", block_bytes(w, weight_elements), 0);
        PART(w, "weight_nvfp4_columns", block_bytes(w, weight_elements));
        return KERNEL(w, name, bytes, 2, quantize(w, x), weight);
    }
}

static sim_node_id_t linear_forward(work_t *w, const char *name, sim_node_id_t x, uint64_t bytes,
                                    uint64_t weight_elements)
{
    sim_node_id_t out = in_forward_format(w, name, x, bytes, weight_elements);
    /* _custom_policy(): every second matrix product is computed again. Subclasses of tensors are
     * multiplied by aten.mm too; NVFP4's products are another operator, which is not listed. */
    if (w->format != FORMAT_NVFP4 && ++w->g->n_products % 2 == 1)
        list(w, out);
    return product(w, out);
}

/* mx_linear.py, nvfp4_linear.py: the input's gradient comes first. */
static sim_node_id_t block_backward(work_t *w, sim_node_id_t g, sim_node_id_t x, const char *name,
                                    uint64_t rows, uint64_t cols)
{
    sim_node_id_t g_rows = quantize(w, g);
    sim_node_id_t weight = KERNEL(w, "weight_columns", block_bytes(w, rows * cols), 0);
    sim_node_id_t dx =
        product(w, KERNEL(w, name, w->d->e * w->d->tokens * cols, 2, g_rows, weight));
    sim_node_id_t g_columns = columns_of(w, g);
    weight_grad(w, product(w, KERNEL(w, "weight_grad", w->d->e * rows * cols, 2, g_columns,
                                     columns_of(w, x))));
    return dx;
}

/* FP8 kernels want both operands along the dimension that is summed. */
static sim_node_id_t fp8_backward(work_t *w, sim_node_id_t g, sim_node_id_t x, const char *name,
                                  uint64_t rows, uint64_t cols)
{
    sim_node_id_t g_fp8 = cast(w, g);
    sim_node_id_t g_transposed = POINTWISE(w, "fp8_transposed", w->g->nodes[g_fp8].bytes, 1, g_fp8);
    weight_grad(w, product(w, KERNEL(w, "weight_grad", w->d->e * rows * cols, 2, g_transposed,
                                     cast_transposed(w, x))));
    sim_node_id_t weight = POINTWISE(w, "weight_fp8_transposed", rows * cols, 0);
    return product(w, KERNEL(w, name, w->d->e * w->d->tokens * cols, 2, g_fp8, weight));
}

/* Weight [rows, cols]: gradient of the weight, then of the input, which is returned. */
static sim_node_id_t linear_backward(work_t *w, sim_node_id_t g, sim_node_id_t x, const char *name,
                                     uint64_t rows, uint64_t cols)
{
    if (is_fp8(w))
        return fp8_backward(w, g, x, name, rows, cols);
    if (w->format != FORMAT_BF16)
        return block_backward(w, g, x, name, rows, cols);
    uint64_t e = w->d->e, tokens = w->d->tokens;
    weight_grad(w, product(w, KERNEL(w, "weight_grad", e * rows * cols, 2, g, x)));
    return product(w, KERNEL(w, name, e * tokens * cols, 1, g));
}

/* ---- attention ---- */

typedef struct {
    norm_t norm, q_norm, k_norm;
    sim_node_id_t gathered, q, k, v, out, lse;
} attention_t;

/* apply_rotary_emb(): the copies in fp32 and the products are its local variables. */
static void rotate(work_t *w, sim_node_id_t *q, sim_node_id_t *k)
{
    const sim_dims_t *d = w->d;
    uint64_t nq = d->q_bytes / d->e, nk = d->kv_bytes / d->e;
    sim_node_id_t q_fp32 = POINTWISE(w, "q_fp32", FP32 * nq, 1, *q);
    sim_node_id_t k_fp32 = POINTWISE(w, "k_fp32", FP32 * nk, 1, *k);
    sim_node_id_t q_turned = POINTWISE(w, "q_turned", FP32 * nq, 1, q_fp32);
    sim_node_id_t k_turned = POINTWISE(w, "k_turned", FP32 * nk, 1, k_fp32);
    *q = POINTWISE(w, "q_rotated", d->q_bytes, 1, q_turned);
    *k = POINTWISE(w, "k_rotated", d->kv_bytes, 1, k_turned);
    sim_graph_hold(w->g, q_fp32);
    sim_graph_hold(w->g, k_fp32);
    sim_graph_hold(w->g, q_turned);
    sim_graph_hold(w->g, k_turned);
}

static sim_node_id_t rotate_back(work_t *w, sim_node_id_t g, uint64_t bytes)
{
    uint64_t n = bytes / w->d->e;
    sim_node_id_t turned = POINTWISE(w, "d_turned", FP32 * n, 1, g);
    sim_node_id_t fp32 = POINTWISE(w, "d_fp32", FP32 * n, 1, turned);
    return POINTWISE(w, "d_rotated", bytes, 1, fp32);
}

/* Keys and values of a group are copied for each of its heads. */
static sim_node_id_t repeat_heads(work_t *w, const char *name, sim_node_id_t x)
{
    const sim_dims_t *d = w->d;
    return d->heads_tp == d->groups_tp ? x : POINTWISE(w, name, d->q_bytes, 1, x);
}

static sim_node_id_t sum_heads(work_t *w, sim_node_id_t g)
{
    const sim_dims_t *d = w->d;
    return d->heads_tp == d->groups_tp ? g : REDUCTION(w, "d_heads_sum", d->kv_bytes, 1, g);
}

/* ---- context parallelism: torch/distributed/tensor/experimental/_attention.py, on the rank that
 * computes with all its queries in each round (_templated_ring_attention()) ---- */

/* Keys and values of this rank, then those of each round: parts of one tensor that was gathered, or
 * exchanged round by round. */
static void rotate_ring(work_t *w, sim_node_id_t keys, sim_node_id_t values, sim_node_id_t *ring)
{
    const sim_dims_t *d = w->d;
    sim_node_id_t k = POINTWISE(w, "keys_contiguous", d->q_bytes, 1, keys);
    sim_node_id_t v = POINTWISE(w, "values_contiguous", d->q_bytes, 1, values);
    ring[0] = POINTWISE(w, "ring_sent", 2 * d->q_bytes, 2, k, v);
    if (w->s->context_parallel_rotate_method == SIM_ROTATE_ALLGATHER) {
        ring[1] = KERNEL(w, "ring_gathered", d->cp * 2 * d->q_bytes, 1, ring[0]);
        for (uint64_t i = 2; i < d->cp; i++)
            ring[i] = ring[1];
        return;
    }
    for (uint64_t i = 1; i < d->cp; i++)
        ring[i] = KERNEL(w, "ring_received", 2 * d->q_bytes, 1, ring[i - 1]);
}

/* _SDPAMerger: results of the rounds are joined in fp32. */
static void ring_forward(work_t *w, attention_t *save)
{
    const sim_dims_t *d = w->d;
    uint64_t fp32_bytes = d->q_bytes / d->e * FP32;
    sim_node_id_t ring[SIM_TITAN_MAX_CP];
    rotate_ring(w, save->k, save->v, ring);
    sim_node_id_t out = SIM_NODE_NONE, lse = SIM_NODE_NONE;
    for (uint64_t i = 0; i < d->cp; i++) {
        sim_node_id_t one = KERNEL(w, "round_out", d->q_bytes, 2, save->q, ring[i]);
        sim_node_id_t one_lse = PART(w, "round_lse", d->lse_bytes);
        sim_node_id_t one_fp32 = POINTWISE(w, "round_out_fp32", fp32_bytes, 1, one);
        if (i == 0) {
            out = one_fp32;
            lse = one_lse;
            continue;
        }
        sim_node_id_t difference = POINTWISE(w, "round_difference", fp32_bytes, 2, out, one_fp32);
        sim_node_id_t weighed =
            POINTWISE(w, "round_weighed", fp32_bytes, 3, difference, lse, one_lse);
        out = REDUCTION(w, "merged_out", fp32_bytes, 2, out, weighed);
        lse = REDUCTION(w, "merged_lse", d->lse_bytes, 2, lse, one_lse);
    }
    save->out = POINTWISE(w, "attention_out", d->q_bytes, 1, out);
    save->lse = lse;
}

/* Gradients of keys and values travel on in fp32. */
static void ring_backward(work_t *w, const attention_t *save, sim_node_id_t g, sim_node_id_t *dq_p,
                          sim_node_id_t *dk_p, sim_node_id_t *dv_p)
{
    const sim_dims_t *d = w->d;
    uint64_t fp32_bytes = d->q_bytes / d->e * FP32;
    sim_node_id_t ring[SIM_TITAN_MAX_CP];
    sim_node_id_t dq = KERNEL(w, "d_q_sum", fp32_bytes, 1, g);
    sim_node_id_t dkv = KERNEL(w, "d_ring_sum", 2 * fp32_bytes, 1, g);
    rotate_ring(w, save->k, save->v, ring);
    for (uint64_t i = 0; i < d->cp; i++) {
        sim_node_id_t one =
            KERNEL(w, "round_d_q", d->q_bytes, 5, g, save->q, ring[i], save->out, save->lse);
        PART(w, "round_d_keys", d->q_bytes);
        sim_node_id_t dv = PART(w, "round_d_values", d->q_bytes);
        w->g->nodes[dv].scratch_bytes = fp32_bytes + d->lse_bytes;
        sim_node_id_t sent = POINTWISE(w, "d_ring_sent", 2 * fp32_bytes, 3, dkv, dv - 1, dv);
        dkv = KERNEL(w, "d_ring_received", 2 * fp32_bytes, 1, sent);
        dq = REDUCTION(w, "d_q_sum", fp32_bytes, 2, dq, one);
    }
    *dq_p = POINTWISE(w, "d_q", d->q_bytes, 1, dq);
    sim_node_id_t both = POINTWISE(w, "d_keys_values", 2 * d->q_bytes, 1, dkv);
    *dk_p = *dv_p = sim_graph_add(w->g, SIM_NODE_VIEW, "d_keys", 0, 1, both);
}

/* On Blackwell torchtitan prefers cuDNN's kernel, which was not among the operators whose results
 * selective checkpointing keeps. */
static bool attention_is_listed(const sim_scenario_t *s)
{
    bool is_cudnn =
        s->gpu_p->sm >= 100 && sim_software_has(s, SIM_SOFTWARE_TITAN_CUDNN_ON_BLACKWELL);
    return !is_cudnn || sim_software_has(s, SIM_SOFTWARE_TITAN_KEEPS_ALL_ATTENTION);
}

static sim_node_id_t attention_forward(work_t *w, attention_t *save, sim_node_id_t x)
{
    const sim_dims_t *d = w->d;
    uint64_t q_rows = d->heads_tp * d->head_dim, kv_rows = d->groups_tp * d->head_dim;
    w->g->module = SIM_MOD_QKV;
    sim_node_id_t normed = norm_forward(w, &save->norm, x, d->local_tokens, d->h);
    save->gathered = gather(w, normed, "norm_out_gathered");
    sim_node_id_t q = linear_forward(w, "q", save->gathered, d->q_bytes, q_rows * d->h);
    sim_node_id_t k = linear_forward(w, "k", save->gathered, d->kv_bytes, kv_rows * d->h);
    sim_node_id_t v = linear_forward(w, "v", save->gathered, d->kv_bytes, kv_rows * d->h);
    w->g->module = SIM_MOD_ATTENTION;
    if (w->s->qk_layernorm) { /* of each head */
        q = norm_forward(w, &save->q_norm, q, d->tokens * d->heads_tp, d->head_dim);
        k = norm_forward(w, &save->k_norm, k, d->tokens * d->groups_tp, d->head_dim);
    }
    rotate(w, &q, &k);
    sim_node_id_t keys = repeat_heads(w, "keys", k), values = repeat_heads(w, "values", v);
    save->q = q;
    save->k = keys;
    save->v = values;
    if (d->cp > 1) {
        ring_forward(w, save);
    } else {
        save->out = KERNEL(w, "attention_out", d->q_bytes, 3, q, keys, values);
        save->lse = PART(w, "softmax_lse", d->lse_bytes);
    }
    if (attention_is_listed(w->s)) {
        list(w, save->out);
        list(w, save->lse);
    }
    w->g->module = SIM_MOD_PROJ;
    sim_node_id_t out =
        linear_forward(w, "attention_proj", save->out, d->full_hidden_bytes, q_rows * d->h);
    /* Names of the function: it returns here. */
    sim_graph_hold(w->g, keys);
    sim_graph_hold(w->g, values);
    sim_graph_hold(w->g, q);
    sim_graph_hold(w->g, save->out);
    sim_graph_hold(w->g, normed);
    if (d->sp)
        sim_graph_hold(w->g, save->gathered);
    return scatter(w, out, "attention_scattered");
}

/* Flash attention sums the gradient of the queries in fp32. */
static void core_backward(work_t *w, const attention_t *save, sim_node_id_t g, sim_node_id_t *dq_p,
                          sim_node_id_t *dk_p, sim_node_id_t *dv_p)
{
    const sim_dims_t *d = w->d;
    *dq_p = KERNEL(w, "d_q", d->q_bytes, 6, g, save->q, save->k, save->v, save->out, save->lse);
    *dk_p = PART(w, "d_keys", d->q_bytes);
    *dv_p = PART(w, "d_values", d->q_bytes);
    w->g->nodes[*dv_p].scratch_bytes = d->q_bytes / d->e * FP32 + d->lse_bytes;
}

static sim_node_id_t attention_backward(work_t *w, const attention_t *save, sim_node_id_t g)
{
    const sim_dims_t *d = w->d;
    uint64_t q_rows = d->heads_tp * d->head_dim, kv_rows = d->groups_tp * d->head_dim;
    w->g->module = SIM_MOD_PROJ;
    g = gather(w, g, "d_attention_gathered");
    g = linear_backward(w, g, save->out, "d_attention_out", d->h, q_rows);
    w->g->module = SIM_MOD_ATTENTION;
    sim_node_id_t dq, dk, dv;
    if (d->cp > 1)
        ring_backward(w, save, g, &dq, &dk, &dv);
    else
        core_backward(w, save, g, &dq, &dk, &dv);
    dv = sum_heads(w, dv);
    dk = rotate_back(w, sum_heads(w, dk), d->kv_bytes);
    dq = rotate_back(w, dq, d->q_bytes);
    if (w->s->qk_layernorm) {
        dk = norm_backward(w, &save->k_norm, dk);
        dq = norm_backward(w, &save->q_norm, dq);
    }
    w->g->module = SIM_MOD_QKV;
    sim_node_id_t dx = linear_backward(w, dv, save->gathered, "d_v_in", kv_rows, d->h);
    dx = add_into(w, dx, linear_backward(w, dk, save->gathered, "d_k_in", kv_rows, d->h));
    dx = add_into(w, dx, linear_backward(w, dq, save->gathered, "d_q_in", q_rows, d->h));
    dx = scatter(w, dx, "d_norm_scattered");
    return norm_backward(w, &save->norm, dx);
}

/* ---- feed forward ---- */

typedef struct {
    norm_t norm;
    sim_node_id_t gathered, gate, silu, up, act;
} feed_forward_t;

static sim_node_id_t feed_forward(work_t *w, feed_forward_t *save, sim_node_id_t x)
{
    const sim_dims_t *d = w->d;
    w->g->module = SIM_MOD_FC1;
    sim_node_id_t normed = norm_forward(w, &save->norm, x, d->local_tokens, d->h);
    save->gathered = gather(w, normed, "norm_out_gathered");
    save->gate = linear_forward(w, "gate", save->gathered, d->act_bytes, d->h * d->ffn / d->tp);
    w->g->module = SIM_MOD_ACTIVATION;
    save->silu = POINTWISE(w, "silu", d->act_bytes, 1, save->gate);
    w->g->module = SIM_MOD_FC1;
    save->up = linear_forward(w, "up", save->gathered, d->act_bytes, d->h * d->ffn / d->tp);
    w->g->module = SIM_MOD_ACTIVATION;
    save->act = POINTWISE(w, "silu_up", d->act_bytes, 2, save->silu, save->up);
    w->g->module = SIM_MOD_FC2;
    sim_node_id_t out =
        linear_forward(w, "down", save->act, d->full_hidden_bytes, d->h * d->ffn / d->tp);
    sim_graph_hold(w->g, normed);
    if (d->sp)
        sim_graph_hold(w->g, save->gathered);
    return scatter(w, out, "down_scattered");
}

static sim_node_id_t feed_forward_backward(work_t *w, const feed_forward_t *save, sim_node_id_t g)
{
    const sim_dims_t *d = w->d;
    uint64_t ffn = d->ffn / d->tp;
    w->g->module = SIM_MOD_FC2;
    g = gather(w, g, "d_down_gathered");
    g = linear_backward(w, g, save->act, "d_silu_up", d->h, ffn);
    w->g->module = SIM_MOD_ACTIVATION;
    sim_node_id_t d_silu = POINTWISE(w, "d_silu", d->act_bytes, 2, g, save->up);
    sim_node_id_t d_up = POINTWISE(w, "d_up", d->act_bytes, 2, g, save->silu);
    w->g->module = SIM_MOD_FC1;
    sim_node_id_t dx = linear_backward(w, d_up, save->gathered, "d_up_in", ffn, d->h);
    w->g->module = SIM_MOD_ACTIVATION;
    sim_node_id_t d_gate = POINTWISE(w, "d_gate", d->act_bytes, 2, d_silu, save->gate);
    w->g->module = SIM_MOD_FC1;
    dx = add_into(w, dx, linear_backward(w, d_gate, save->gathered, "d_gate_in", ffn, d->h));
    dx = scatter(w, dx, "d_norm_scattered");
    return norm_backward(w, &save->norm, dx);
}

/* ---- graphs ---- */

static format_t format_of(const sim_scenario_t *s)
{
    if (s->fp4 != SIM_FP4_NONE)
        return FORMAT_NVFP4;
    if (s->fp8 == SIM_FP8_NONE)
        return FORMAT_BF16;
    return s->fp8_recipe == SIM_FP8_MXFP8 ? FORMAT_MXFP8 : FORMAT_FP8;
}

void sim_titan_block_graph(sim_graph_t *g, const sim_scenario_t *s, const sim_dims_t *d,
                           bool is_quantized)
{
    *g = (sim_graph_t){ 0 };
    work_t w = { .g = g,
                 .s = s,
                 .d = d,
                 .format = is_quantized ? format_of(s) : FORMAT_BF16,
                 .cast_of = SIM_NODE_NONE,
                 .transposed_of = SIM_NODE_NONE };
    attention_t attention = { 0 };
    feed_forward_t mlp = { 0 };
    sim_node_id_t x = sim_graph_add(g, SIM_NODE_INPUT, "block_in", d->hidden_bytes, 0);
    g->input = x;
    sim_node_id_t branch = attention_forward(&w, &attention, x);
    g->module = SIM_MOD_RESIDUAL;
    sim_node_id_t h = POINTWISE(&w, "attention_residual", d->hidden_bytes, 2, x, branch);
    branch = feed_forward(&w, &mlp, h);
    g->module = SIM_MOD_RESIDUAL;
    sim_node_id_t out = POINTWISE(&w, "block_out", d->hidden_bytes, 2, h, branch);
    sim_graph_hold(g, h);
    sim_node_id_t grad = sim_graph_turn(g, out, d->hidden_bytes);
    sim_node_id_t dh = add_into(&w, grad, feed_forward_backward(&w, &mlp, grad));
    g->d_input = add_into(&w, dh, attention_backward(&w, &attention, dh));
}

void sim_titan_head_graph(sim_graph_t *g, const sim_scenario_t *s, const sim_dims_t *d)
{
    *g = (sim_graph_t){ .module = SIM_MOD_FINAL_NORM };
    work_t w = { .g = g, .s = s, .d = d };
    norm_t norm;
    g->input = sim_graph_add(g, SIM_NODE_INPUT, "head_in", d->hidden_bytes, 0);
    sim_node_id_t normed = norm_forward(&w, &norm, g->input, d->local_tokens, d->h);
    g->module = SIM_MOD_OUTPUT;
    sim_node_id_t gathered = d->sp ? gather_as_it_is(&w, normed, "norm_out_gathered") : normed;
    sim_node_id_t logits = product(&w, KERNEL(&w, "logits", d->logits_bytes, 1, gathered));
    sim_graph_hold(g, normed);
    sim_node_id_t grad = sim_graph_turn(g, logits, d->logits_bytes);
    weight_grad(
        &w, product(&w, KERNEL(&w, "weight_grad", d->e * d->vocab_tp * d->h, 2, grad, gathered)));
    grad = product(&w, KERNEL(&w, "d_norm_out", d->full_hidden_bytes, 1, grad));
    grad = scatter(&w, grad, "d_norm_scattered");
    g->module = SIM_MOD_FINAL_NORM;
    g->d_input = norm_backward(&w, &norm, grad);
}

/* cross_entropy(pred.float(), labels): log_softmax keeps its result, nll_loss the labels. */
static void eager_loss(work_t *w, uint64_t n)
{
    sim_graph_t *g = w->g;
    sim_node_id_t fp32 = POINTWISE(w, "logits_fp32", FP32 * n, 1, g->input);
    sim_node_id_t log_softmax = KERNEL(w, "log_softmax", FP32 * n, 1, fp32);
    sim_node_id_t loss = KERNEL(w, "loss", FP32, 1, log_softmax);
    sim_graph_hold(g, fp32);
    sim_node_id_t grad = sim_graph_turn(g, loss, FP32);
    grad = KERNEL(w, "d_log_softmax", FP32 * n, 1, grad);
    grad = KERNEL(w, "d_logits_fp32", FP32 * n, 2, grad, log_softmax);
    g->d_input = POINTWISE(w, "d_logits", w->d->logits_bytes, 1, grad);
}

/* torch/distributed/tensor/parallel/loss.py, over this rank's part of the vocabulary; the gradient
 * of nll_loss and that of log_softmax are made as one. */
static void parallel_loss(work_t *w, uint64_t n)
{
    sim_graph_t *g = w->g;
    uint64_t rows = w->d->tokens;
    sim_node_id_t fp32 = POINTWISE(w, "logits_fp32", FP32 * n, 1, g->input);
    sim_node_id_t max = REDUCTION(w, "logits_max", FP32 * rows, 1, fp32);
    sim_node_id_t shifted = POINTWISE(w, "shifted_logits", FP32 * n, 2, fp32, max);
    sim_node_id_t exp = POINTWISE(w, "exp_logits", FP32 * n, 1, shifted);
    sim_node_id_t sum = REDUCTION(w, "sum_exp_logits", FP32 * rows, 1, exp);
    sim_node_id_t log_softmax = POINTWISE(w, "log_softmax", FP32 * n, 2, shifted, sum);
    sim_graph_hold(g, shifted);
    sim_node_id_t loss = KERNEL(w, "loss", FP32, 1, log_softmax);
    sim_graph_hold(g, fp32);
    sim_node_id_t grad = sim_graph_turn(g, loss, FP32);
    sim_node_id_t update = KERNEL(w, "d_log_softmax", FP32 * n, 1, grad);
    exp = POINTWISE(w, "softmax", FP32 * n, 1, log_softmax);
    sum = POINTWISE(w, "d_logits_sum", FP32 * n, 2, update, exp);
    grad = POINTWISE(w, "d_logits_fp32", FP32 * n, 3, sum, grad, log_softmax);
    sim_graph_hold(g, update);
    g->d_input = POINTWISE(w, "d_logits", w->d->logits_bytes, 1, grad);
}

/* The compiler keeps maxima and sums of the rows, and makes the gradient in one go. */
static void compiled_loss(work_t *w, uint64_t n)
{
    sim_graph_t *g = w->g;
    uint64_t rows = w->d->tokens;
    sim_node_id_t fp32 = POINTWISE(w, "logits_fp32", FP32 * n, 1, g->input);
    sim_node_id_t max = REDUCTION(w, "logits_max", FP32 * rows, 1, fp32);
    sim_node_id_t sum = REDUCTION(w, "sum_exp_logits", FP32 * rows, 2, fp32, max);
    sim_node_id_t loss = REDUCTION(w, "loss", FP32, 3, fp32, max, sum);
    list(w, max);
    list(w, sum);
    sim_node_id_t grad = sim_graph_turn(g, loss, FP32);
    g->d_input = POINTWISE(w, "d_logits", w->d->logits_bytes, 4, fp32, max, sum, grad);
}

void sim_titan_loss_graph(sim_graph_t *g, const sim_scenario_t *s, const sim_dims_t *d)
{
    *g = (sim_graph_t){ .module = SIM_MOD_LOSS };
    work_t w = { .g = g, .s = s, .d = d };
    g->input = sim_graph_add(g, SIM_NODE_INPUT, "logits", d->logits_bytes, 0);
    if (d->tp > 1)
        parallel_loss(&w, d->logits_bytes / d->e);
    else if (s->compile_loss)
        compiled_loss(&w, d->logits_bytes / d->e);
    else
        eager_loss(&w, d->logits_bytes / d->e);
}
