/* SPDX-License-Identifier: Apache-2.0
 * What Muon's step needs beside its state. Emerging-Optimizers orthogonalized_optimizers/
 * {orthogonalized_optimizer,muon_utils}.py; Megatron-LM optimizer/emerging_optimizers.py
 * (TensorParallelMuon), layer_wise_optimizer.py (allgather_params). */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/engine/player.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    FP32_BYTES = 4,
    BF16_BYTES = 2,
    N_STEPS = 2,   /* of Newton-Schulz: later ones take the blocks of the two before */
    MAX_PARTS = 4, /* queries, their gate, keys, values */
};

typedef struct {
    sim_tensor_t tensor;
    sim_block_t block;
} temporary_t;

typedef struct {
    sim_player_t *p;
    const sim_param_t *param;
    temporary_t last; /* the update of the matrix before: its variable is still bound */
} muon_t;

static bool make(muon_t *m, temporary_t *t, const char *name, uint64_t bytes)
{
    t->tensor = (sim_tensor_t){ .name = name,
                                .bytes = bytes,
                                .layer = m->param->layer,
                                .category = SIM_CAT_TEMPORARY,
                                .module = SIM_MOD_OPTIMIZER };
    t->block = SIM_BLOCK_NONE;
    return sim_player_alloc(m->p, &t->tensor, bytes, 0, &t->block);
}

static void drop(muon_t *m, temporary_t *t)
{
    if (t->block != SIM_BLOCK_NONE)
        sim_player_free(m->p, &t->tensor, t->block);
    t->block = SIM_BLOCK_NONE;
}

/* Hand a temporary to another variable. */
static void move(muon_t *m, temporary_t *to, temporary_t *from)
{
    *to = *from;
    from->block = SIM_BLOCK_NONE;
    if (to->block != SIM_BLOCK_NONE)
        m->p->owners[to->block].tensor = &to->tensor;
}

/* X becomes aX + (bA + cAA)X with A = XX', `side` the side of A. */
static bool iterate(muon_t *m, temporary_t *x, uint64_t side, uint64_t element)
{
    temporary_t a, b, next;
    if (!make(m, &a, "ns_gram", side * side * element) ||
        !make(m, &b, "ns_polynomial", side * side * element) ||
        !make(m, &next, "ns_matrix", x->tensor.bytes))
        return false;
    drop(m, &a);
    drop(m, &b);
    drop(m, x);
    move(m, x, &next);
    return true;
}

/* newton_schulz() of n_elements in fp32: normalised, iterated in bf16 or fp32, back to fp32. */
static bool newton_schulz(muon_t *m, uint64_t n_elements, uint64_t side, temporary_t *out)
{
    bool in_bf16 = m->p->scenario->muon_fp32_matmul_prec == SIM_MATMUL_MEDIUM;
    temporary_t x;
    if (!make(m, out, "ns_normalised", n_elements * FP32_BYTES))
        return false;
    if (in_bf16) {
        if (!make(m, &x, "ns_matrix", n_elements * BF16_BYTES))
            return false;
        drop(m, out);
    } else {
        move(m, &x, out);
    }
    for (int i = 0; i < N_STEPS; i++)
        if (!iterate(m, &x, side, in_bf16 ? BF16_BYTES : FP32_BYTES))
            return false;
    if (!in_bf16) {
        move(m, out, &x);
        return true;
    }
    if (!make(m, out, "ns_result", n_elements * FP32_BYTES))
        return false;
    drop(m, &x);
    return true;
}

/* All ranks' parts side by side, each of which has the whole orthogonalized. */
static bool gathered(muon_t *m, uint64_t rows, uint64_t cols, uint64_t tp, temporary_t *out)
{
    temporary_t parts, whole;
    uint64_t n = rows * cols;
    bool by_rows = m->param->split == SIM_SPLIT_ROWS;
    uint64_t side = by_rows ? base_u64_min(rows * tp, cols) : base_u64_min(rows, cols * tp);
    if (!make(m, &parts, "muon_gathered_parts", n * tp * FP32_BYTES) ||
        !make(m, &whole, "muon_gathered", n * tp * FP32_BYTES) ||
        !newton_schulz(m, n * tp, side, out))
        return false;
    drop(m, &parts);
    drop(m, &whole);
    return true;
}

/* scaled_orthogonalize_fn(): the result times two factors, one after the other. */
static bool orthogonalize(muon_t *m, uint64_t rows, uint64_t cols, temporary_t *out)
{
    const sim_scenario_t *s = m->p->scenario;
    uint64_t tp = sim_buffer_is_expert(m->param->buffer) ? m->p->dims.moe.etp : m->p->dims.tp;
    bool is_shared =
        tp > 1 && m->param->split != SIM_SPLIT_NONE && s->muon_tp_mode != SIM_MUON_BLOCKWISE;
    temporary_t orthogonal, scaled;
    bool ok;
    if (is_shared && s->muon_tp_mode == SIM_MUON_DUPLICATED) {
        ok = gathered(m, rows, cols, tp, &orthogonal);
    } else {
        uint64_t side = !is_shared                          ? base_u64_min(rows, cols)
                        : m->param->split == SIM_SPLIT_ROWS ? cols
                                                            : rows;
        ok = newton_schulz(m, rows * cols, side, &orthogonal);
    }
    if (!ok || !make(m, &scaled, "muon_scaled", rows * cols * FP32_BYTES) ||
        !make(m, out, "muon_update", rows * cols * FP32_BYTES))
        return false;
    drop(m, &scaled);
    drop(m, &orthogonal);
    return true;
}

/* Rows of queries (and their gate), keys and values of one group; 0 = the matrix is not split. */
static uint32_t split_rows(const muon_t *m, uint64_t rows[MAX_PARTS])
{
    const sim_scenario_t *s = m->p->scenario;
    const sim_dims_t *d = &m->p->dims;
    uint32_t n = 0;
    if (!s->muon_split_qkv || strcmp(m->param->name, "linear_qkv.weight") != 0)
        return 0;
    uint64_t query = d->heads / d->groups * d->head_dim, sum = 0;
    rows[n++] = query;
    if (s->attention_output_gate)
        rows[n++] = query;
    rows[n++] = d->head_dim;
    rows[n++] = d->head_dim;
    for (uint32_t i = 0; i < n; i++)
        sum += rows[i];
    assert(sum > 0);
    return m->param->rows % sum == 0 ? n : 0;
}

/* Each part is copied out of the matrix unless it lies in one piece; the updates are put together
 * at the end. */
static bool orthogonalize_split(muon_t *m, const uint64_t rows[MAX_PARTS], uint32_t n,
                                temporary_t *out)
{
    temporary_t copies[MAX_PARTS], updates[MAX_PARTS];
    uint64_t cols = m->param->n_elements / m->param->rows, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        copies[i].block = SIM_BLOCK_NONE;
        sum += rows[i];
    }
    assert(sum > 0);
    uint64_t n_groups = m->param->rows / sum;
    for (uint32_t i = 0; i < n && n_groups > 1; i++)
        if (!make(m, &copies[i], "muon_qkv_part", n_groups * rows[i] * cols * FP32_BYTES))
            return false;
    for (uint32_t i = 0; i < n; i++)
        if (!orthogonalize(m, n_groups * rows[i], cols, &updates[i]))
            return false;
    if (!make(m, out, "muon_update", m->param->n_elements * FP32_BYTES))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        drop(m, &copies[i]);
        drop(m, &updates[i]);
    }
    return true;
}

static bool update_matrix(sim_player_t *p, const sim_param_t *param, uint64_t n_elements, void *arg)
{
    muon_t *m = arg;
    temporary_t momentum = { .block = SIM_BLOCK_NONE }, update;
    uint64_t rows[MAX_PARTS];
    if (!sim_param_is_orthogonalized(p->scenario, param))
        return true;
    m->param = param;
    if (p->scenario->muon_nesterov &&
        !make(m, &momentum, "nesterov_momentum", n_elements * FP32_BYTES))
        return false;
    uint32_t n = split_rows(m, rows);
    bool ok = n > 0 ? orthogonalize_split(m, rows, n, &update)
                    : orthogonalize(m, param->rows, n_elements / param->rows, &update);
    if (!ok)
        return false;
    drop(m, &momentum);
    drop(m, &m->last);
    move(m, &m->last, &update);
    return true;
}

/* Each rank's parameters as one tensor; its own are copied into one as well. */
static bool send_dealt(sim_player_t *p, bool is_expert)
{
    const sim_share_t *share = is_expert ? &p->place.expert : &p->place.dense;
    uint64_t *n_elements = base_xcalloc(share->n_shards, sizeof(*n_elements));
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const sim_params_t *params = &p->chunks[c].chunk.params;
        for (uint32_t i = 0; i < params->n; i++)
            if (sim_buffer_is_expert(params->params[i].buffer) == is_expert &&
                !params->params[i].is_frozen)
                n_elements[p->chunks[c].dealt_to[i]] += params->params[i].n_elements;
    }
    bool ok = true;
    for (uint64_t r = 0; r < share->n_shards && ok && share->n_shards > 1; r++) {
        sim_tensor_t tensor = { .name = "gathered_params",
                                .bytes = n_elements[r] * p->dims.e,
                                .layer = SIM_NO_LAYER,
                                .category = SIM_CAT_TEMPORARY,
                                .module = SIM_MOD_OPTIMIZER };
        ok = sim_player_add_static(p, &p->step_temporaries, &tensor, 0);
    }
    free(n_elements);
    if (ok)
        sim_player_free_statics(p, &p->step_temporaries);
    return ok;
}

bool sim_player_orthogonalize(sim_player_t *p)
{
    muon_t m = { .p = p, .last = { .block = SIM_BLOCK_NONE } };
    if (!sim_player_foreach_owned(p, update_matrix, &m))
        return false;
    drop(&m, &m.last);
    return true;
}

bool sim_player_send_dealt(sim_player_t *p)
{
    return send_dealt(p, false) && send_dealt(p, true);
}
