/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/context_parallel.h"

/* Results that are put in order on the communication stream come from that stream's pool. */
enum { CP_STREAM = 2 };

static sim_ref_t new_on_cp_stream(sim_model_t *m, const char *name, uint64_t bytes)
{
    m->b->stream = CP_STREAM;
    sim_ref_t ref = sim_new(m->b, name, bytes);
    m->b->stream = 0;
    return ref;
}

static sim_ref_t new_lse(sim_model_t *m)
{
    return sim_new(m->b, "softmax_lse", m->d->lse_bytes);
}

/* flash_attn_a2a_communicate(): each tensor is copied with the peer's dimension first, exchanged,
 * and put in order; a tensor's copy is made while the one before it travels. `in` is taken over. */
static sim_ref_t exchange(sim_model_t *m, sim_ref_t in, const char *name, uint64_t bytes)
{
    sim_ref_t copy = sim_new(m->b, "a2a_input", bytes);
    sim_drop(m->b, in);
    sim_ref_t received = sim_new(m->b, "a2a_output", bytes);
    sim_ref_t ordered = new_on_cp_stream(m, name, bytes);
    sim_drop(m->b, received);
    sim_drop(m->b, copy);
    return ordered;
}

/* The sequence is gathered and the heads are split, so that every tensor keeps its size. */
static sim_ref_t a2a_forward(sim_model_t *m, const sim_cp_t *core)
{
    *core->q = exchange(m, *core->q, "q_all_to_all", core->q_bytes);
    *core->k = exchange(m, *core->k, "k_all_to_all", core->k_bytes);
    *core->v = exchange(m, *core->v, "v_all_to_all", core->v_bytes);
    *core->out = sim_new(m->b, "context_all_to_all", core->out_bytes);
    *core->lse = new_lse(m);
    return exchange(m, sim_keep(m->b, *core->out), "context", core->out_bytes);
}

static void a2a_backward(sim_model_t *m, const sim_cp_t *core, sim_ref_t d_out, sim_ref_t *q_p,
                         sim_ref_t *k_p, sim_ref_t *v_p)
{
    d_out = exchange(m, d_out, "d_context_all_to_all", core->out_bytes);
    sim_ref_t d_q = sim_new(m->b, "d_q", core->q_bytes);
    sim_ref_t d_k = sim_new(m->b, "d_k", core->k_bytes);
    sim_ref_t d_v = sim_new(m->b, "d_v", core->v_bytes);
    sim_ref_t accumulator = sim_new(m->b, "dq_accumulator", core->q_bytes / m->d->e * 4);
    sim_ref_t row_sums = sim_new(m->b, "softmax_row_sums", m->d->lse_bytes);
    sim_drop(m->b, row_sums);
    sim_drop(m->b, accumulator);
    *q_p = exchange(m, d_q, "d_q_local", core->q_bytes);
    *k_p = exchange(m, d_k, "d_k_local", core->k_bytes);
    *v_p = exchange(m, d_v, "d_v_local", core->v_bytes);
    sim_drop(m->b, *core->out);
    *core->out = SIM_REF_NONE;
    sim_drop(m->b, d_out);
}

enum { MAX_RING = 1024 }; /* steps whose tensors are listed one by one */

static uint64_t ring_steps(const sim_model_t *m)
{
    uint64_t n = m->d->cp / m->s->cp_a2a_size;
    return n < MAX_RING ? n : MAX_RING;
}

/* Keys and values go round the ring; the buffer of every step stays until the loop ends, and so do
 * the partial outputs and their log-sum-exp. After the first step a causal mask leaves half of the
 * queries or half of the keys, on average half an output. */
static sim_ref_t p2p_forward(sim_model_t *m, const sim_cp_t *core)
{
    const sim_dims_t *d = m->d;
    uint64_t n = ring_steps(m), kv_bytes = core->k_bytes + core->v_bytes;
    sim_ref_t kv[MAX_RING], out[MAX_RING], lse[MAX_RING];
    kv[0] = sim_new(m->b, "kv_local", kv_bytes);
    for (uint64_t i = 0; i < n; i++) {
        if (i + 1 < n)
            kv[i + 1] = sim_new(m->b, "kv_received", kv_bytes);
        out[i] = sim_new(m->b, "context_part", i == 0 ? core->out_bytes : core->out_bytes / 2);
        lse[i] = sim_new(m->b, "lse_part", d->lse_bytes);
    }
    sim_ref_t corrected = sim_new(m->b, "context_fp32", core->out_bytes / d->e * 4);
    *core->lse = new_lse(m);
    *core->out = sim_new(m->b, "context", core->out_bytes);
    sim_drop(m->b, corrected);
    for (uint64_t i = 0; i < n; i++) {
        sim_drop(m->b, out[i]);
        sim_drop(m->b, lse[i]);
        if (i > 0)
            sim_drop(m->b, kv[i]);
    }
    /* q is saved as it was given, k and v as the concatenated buffer. */
    sim_drop(m->b, *core->k);
    sim_drop(m->b, *core->v);
    *core->k = kv[0];
    *core->v = sim_keep(m->b, kv[0]);
    return sim_keep(m->b, *core->out);
}

/* Two buffers of keys and values with their gradients travel while a step computes on its own. */
static void p2p_backward(sim_model_t *m, const sim_cp_t *core, sim_ref_t d_out, sim_ref_t *q_p,
                         sim_ref_t *k_p, sim_ref_t *v_p)
{
    uint64_t kv_bytes = core->k_bytes + core->v_bytes;
    *q_p = sim_new(m->b, "d_q", core->q_bytes);
    sim_ref_t buffers = sim_new(m->b, "kv_and_dkv_buffers", 2 * 2 * kv_bytes);
    sim_ref_t step_q = sim_new(m->b, "d_q_part", core->q_bytes);
    sim_ref_t step_kv = sim_new(m->b, "d_kv_part", kv_bytes);
    sim_ref_t accumulator = sim_new(m->b, "dq_accumulator", core->q_bytes / m->d->e * 4);
    sim_drop(m->b, accumulator);
    sim_drop(m->b, step_kv);
    sim_drop(m->b, step_q);
    *k_p = sim_new(m->b, "d_k", core->k_bytes);
    *v_p = sim_new(m->b, "d_v", core->v_bytes);
    sim_drop(m->b, buffers);
    sim_drop(m->b, *core->out);
    *core->out = SIM_REF_NONE;
    sim_drop(m->b, d_out);
}

/* Heads are split over the ranks near each other first, and the ring goes over the groups of them;
 * the output is saved as the ring leaves it. */
static sim_ref_t a2a_p2p_forward(sim_model_t *m, const sim_cp_t *core)
{
    *core->q = exchange(m, *core->q, "q_all_to_all", core->q_bytes);
    *core->k = exchange(m, *core->k, "k_all_to_all", core->k_bytes);
    *core->v = exchange(m, *core->v, "v_all_to_all", core->v_bytes);
    return exchange(m, p2p_forward(m, core), "context_local", core->out_bytes);
}

static void a2a_p2p_backward(sim_model_t *m, const sim_cp_t *core, sim_ref_t d_out, sim_ref_t *q_p,
                             sim_ref_t *k_p, sim_ref_t *v_p)
{
    d_out = exchange(m, d_out, "d_context_all_to_all", core->out_bytes);
    p2p_backward(m, core, d_out, q_p, k_p, v_p);
    *q_p = exchange(m, *q_p, "d_q_local", core->q_bytes);
    *k_p = exchange(m, *k_p, "d_k_local", core->k_bytes);
    *v_p = exchange(m, *v_p, "d_v_local", core->v_bytes);
}

/* Keys and values of all ranks are gathered and put in order; the two half sequences of the rank
 * are computed one after the other. */
static sim_ref_t all_gather_forward(sim_model_t *m, const sim_cp_t *core)
{
    sim_ref_t k = sim_new(m->b, "k_gathered", m->d->cp * core->k_bytes);
    sim_ref_t v = sim_new(m->b, "v_gathered", m->d->cp * core->v_bytes);
    sim_ref_t k_ordered = sim_new(m->b, "k_ordered", m->d->cp * core->k_bytes);
    sim_drop(m->b, k);
    sim_ref_t v_ordered = sim_new(m->b, "v_ordered", m->d->cp * core->v_bytes);
    sim_drop(m->b, v);
    *core->out = sim_new(m->b, "context", core->out_bytes);
    sim_ref_t part = sim_new(m->b, "context_part", core->out_bytes / 2);
    sim_ref_t part2 = sim_new(m->b, "context_part", core->out_bytes / 2);
    *core->lse = new_lse(m);
    sim_drop(m->b, part);
    sim_drop(m->b, part2);
    sim_drop(m->b, k_ordered);
    sim_drop(m->b, v_ordered);
    return sim_keep(m->b, *core->out);
}

static void all_gather_backward(sim_model_t *m, const sim_cp_t *core, sim_ref_t d_out,
                                sim_ref_t *q_p, sim_ref_t *k_p, sim_ref_t *v_p)
{
    *q_p = sim_new(m->b, "d_q", core->q_bytes);
    sim_ref_t d_k_full = sim_new(m->b, "d_k_full", m->d->cp * core->k_bytes);
    sim_ref_t d_v_full = sim_new(m->b, "d_v_full", m->d->cp * core->v_bytes);
    sim_ref_t kv = sim_new(m->b, "kv_ordered", m->d->cp * (core->k_bytes + core->v_bytes));
    sim_ref_t accumulator = sim_new(m->b, "dq_accumulator", core->q_bytes / m->d->e * 4);
    sim_drop(m->b, accumulator);
    sim_drop(m->b, kv);
    *k_p = sim_new(m->b, "d_k", core->k_bytes);
    sim_drop(m->b, d_k_full);
    *v_p = sim_new(m->b, "d_v", core->v_bytes);
    sim_drop(m->b, d_v_full);
    sim_drop(m->b, *core->out);
    *core->out = SIM_REF_NONE;
    sim_drop(m->b, d_out);
}

sim_ref_t sim_cp_forward(sim_model_t *m, const sim_cp_t *core)
{
    switch (m->s->cp_comm_type) {
    case SIM_CP_A2A:
        return a2a_forward(m, core);
    case SIM_CP_ALL_GATHER:
        return all_gather_forward(m, core);
    case SIM_CP_A2A_P2P:
        return a2a_p2p_forward(m, core);
    case SIM_CP_P2P:
        break;
    }
    return p2p_forward(m, core);
}

void sim_cp_backward(sim_model_t *m, const sim_cp_t *core, sim_ref_t d_out, sim_ref_t *q_p,
                     sim_ref_t *k_p, sim_ref_t *v_p)
{
    switch (m->s->cp_comm_type) {
    case SIM_CP_A2A:
        a2a_backward(m, core, d_out, q_p, k_p, v_p);
        return;
    case SIM_CP_ALL_GATHER:
        all_gather_backward(m, core, d_out, q_p, k_p, v_p);
        return;
    case SIM_CP_A2A_P2P:
        a2a_p2p_backward(m, core, d_out, q_p, k_p, v_p);
        return;
    case SIM_CP_P2P:
        p2p_backward(m, core, d_out, q_p, k_p, v_p);
        return;
    }
}
