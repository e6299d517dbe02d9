/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/clock.h"

#include "sim/base/xmem.h"
#include "sim/engine/lengths.h"
#include "sim/engine/player.h"
#include "sim/model/cost.h"
#include "sim/model/host.h"

#include <stdlib.h>

/* A message between pipeline ranks starts when both ends have posted it. */
typedef struct {
    uint64_t sent_ns, posted_ns; /* time_none until then */
    uint16_t from_chunk;
} message_t;

static const uint64_t time_none = UINT64_MAX;

typedef struct {
    sim_order_config_t config; /* pipeline rank of this actor */
    sim_order_t order;
    size_t cursor;
    uint64_t now_ns, wait_ns, busy_ns, comm_ns;
    uint64_t host_ns, launch_ns; /* the host has started all so far; the GPU stood still for it */
    sim_pass_cost_t *costs;      /* by chunk; owned */
    sim_host_cost_t *host_costs; /* by chunk; owned */
    uint64_t *ready_ns, *begins_ns; /* by chunk: end and begin of its last backward so far; owned */
    uint64_t grad_sync_ns, optimizer_ns, param_gather_ns;
} actor_t;

typedef struct {
    const sim_scenario_t *s;
    sim_dims_t dims;
    sim_cost_t cost;
    uint32_t pp, vpp, n_microbatches;
    sim_plan_t plan;     /* of a schedule that splits */
    actor_t *actors;     /* by pipeline rank; owned */
    message_t *messages; /* by receiving rank, direction, receiving chunk, micro-batch; owned */
    sim_step_time_t *out;
    bool want_spans;
    size_t cap_spans, cap_arrows;
} step_clock_t;

static uint64_t to_ns(double seconds)
{
    return (uint64_t)(seconds * 1e9 + 0.5);
}

static message_t *message_at(step_clock_t *c, uint32_t rank, bool is_backward, uint32_t chunk,
                             uint32_t microbatch)
{
    size_t i = ((size_t)rank * 2 + is_backward) * c->vpp + chunk;
    return &c->messages[i * c->n_microbatches + microbatch];
}

/* ---- spans ---- */

static void add_span(step_clock_t *c, const actor_t *a, sim_span_kind_t kind,
                     const sim_step_t *step, uint64_t begin_ns, uint64_t end_ns)
{
    if (!c->want_spans || end_ns <= begin_ns)
        return;
    sim_step_time_t *t = c->out;
    if (t->n_spans == c->cap_spans) {
        c->cap_spans = c->cap_spans * 2 + 256;
        t->spans = base_xrealloc(t->spans, c->cap_spans, sizeof(*t->spans));
    }
    t->spans[t->n_spans++] = (sim_span_t){
        .pp_rank = a->config.pp_rank,
        .chunk = step != NULL ? step->chunk : 0,
        .kind = (uint8_t)kind,
        .microbatch = step != NULL ? step->microbatch : 0,
        .begin_ns = begin_ns,
        .end_ns = end_ns,
    };
}

static void add_arrow(step_clock_t *c, const sim_arrow_t *arrow)
{
    if (!c->want_spans)
        return;
    sim_step_time_t *t = c->out;
    if (t->n_arrows == c->cap_arrows) {
        c->cap_arrows = c->cap_arrows * 2 + 256;
        t->arrows = base_xrealloc(t->arrows, c->cap_arrows, sizeof(*t->arrows));
    }
    t->arrows[t->n_arrows++] = *arrow;
}

static int compare_spans(const void *a, const void *b)
{
    const sim_span_t *x = a, *y = b;
    if (x->pp_rank != y->pp_rank)
        return x->pp_rank < y->pp_rank ? -1 : 1;
    return x->begin_ns < y->begin_ns ? -1 : x->begin_ns > y->begin_ns;
}

static int compare_arrows(const void *a, const void *b)
{
    const sim_arrow_t *x = a, *y = b;
    if (x->arrived_ns != y->arrived_ns)
        return x->arrived_ns < y->arrived_ns ? -1 : 1;
    if (x->to_pp_rank != y->to_pp_rank)
        return x->to_pp_rank < y->to_pp_rank ? -1 : 1;
    return x->is_backward - y->is_backward;
}

/* ---- passes and messages ---- */

static bool is_forward_message(const sim_step_t *step)
{
    return step->kind == SIM_STEP_RECV_FORWARD || step->kind == SIM_STEP_SEND_FORWARD ||
           step->kind == SIM_STEP_WAIT_RECV_FORWARD || step->kind == SIM_STEP_WAIT_SEND_FORWARD;
}

static uint32_t global_rank(const step_clock_t *c, uint32_t pp_rank)
{
    return topo_grid_rank(&c->s->grid, 0, 0, 0, pp_rank);
}

/* Time at which the whole message is there; false: not both ends are known yet. */
static bool arrival(const step_clock_t *c, const message_t *m, uint32_t from, uint32_t to,
                    uint64_t *ns_p)
{
    if (m->sent_ns == time_none || m->posted_ns == time_none)
        return false;
    uint64_t begin = m->sent_ns > m->posted_ns ? m->sent_ns : m->posted_ns;
    *ns_p = begin + to_ns(coll_message_seconds(&c->cost.network, global_rank(c, from),
                                               global_rank(c, to), c->dims.hidden_bytes));
    return true;
}

typedef struct {
    double seconds, comm;
    sim_span_kind_t span;
} pass_time_t;

static pass_time_t time_of(const sim_pass_cost_t *cost, const sim_step_t *step)
{
    if (step->kind == SIM_STEP_FORWARD)
        return (pass_time_t){ cost->forward, cost->forward_comm, SIM_SPAN_FORWARD };
    if (step->kind == SIM_STEP_WEIGHT_GRAD)
        return (pass_time_t){ cost->weight_grad, 0, SIM_SPAN_WEIGHT_GRAD };
    if (step->flags & SIM_STEP_SPLIT)
        return (pass_time_t){ cost->input_grad, cost->input_grad_comm, SIM_SPAN_BACKWARD };
    return (pass_time_t){ cost->backward, cost->backward_comm, SIM_SPAN_BACKWARD };
}

/* Weight gradients that are left for later are few kernels, started from a queue. */
static uint64_t host_time_ns(const sim_host_cost_t *host, const sim_step_t *step)
{
    if (step->kind == SIM_STEP_WEIGHT_GRAD)
        return 0;
    return to_ns(step->kind == SIM_STEP_FORWARD ? host->forward : host->backward);
}

static void run_pass(step_clock_t *c, actor_t *a, const sim_step_t *step)
{
    pass_time_t time = time_of(&a->costs[step->chunk], step);
    uint64_t host_ns = host_time_ns(&a->host_costs[step->chunk], step);
    uint64_t begin = a->now_ns;
    a->now_ns += to_ns(time.seconds);
    a->busy_ns += a->now_ns - begin;
    a->comm_ns += to_ns(time.comm);
    /* The host runs ahead of the GPU, but the last kernel cannot end before it is started. */
    a->host_ns += host_ns;
    if (a->host_ns > a->now_ns) {
        a->launch_ns += a->host_ns - a->now_ns;
        a->now_ns = a->host_ns;
    }
    if (step->kind != SIM_STEP_FORWARD) {
        a->begins_ns[step->chunk] = begin;
        a->ready_ns[step->chunk] = a->now_ns;
    }
    add_span(c, a, time.span, step, begin, a->now_ns);
}

static bool is_pass(const sim_step_t *step)
{
    return step->kind == SIM_STEP_FORWARD || step->kind == SIM_STEP_BACKWARD ||
           step->kind == SIM_STEP_WEIGHT_GRAD;
}

/* Messages that do not overlap are waited for by the host: batch_p2p_sync of Megatron-LM's
 * p2p_communication.py. */
static void synchronize_host(const step_clock_t *c, actor_t *a)
{
    if (!c->s->overlap_p2p_communication && a->host_ns < a->now_ns)
        a->host_ns = a->now_ns;
}

static void wait_until(step_clock_t *c, actor_t *a, const sim_step_t *step, uint64_t ns)
{
    if (ns <= a->now_ns)
        return;
    add_span(c, a, SIM_SPAN_WAIT, step, a->now_ns, ns);
    a->wait_ns += ns - a->now_ns;
    a->now_ns = ns;
}

/* False: the step has to wait for something that is not known yet. */
static bool run_message(step_clock_t *c, actor_t *a, const sim_step_t *step)
{
    bool is_backward = !is_forward_message(step);
    uint32_t me = a->config.pp_rank, peer;
    uint16_t peer_chunk;
    uint64_t ns;
    sim_order_peer(&a->config, step, &peer, &peer_chunk);
    switch ((sim_step_kind_t)step->kind) {
    case SIM_STEP_RECV_FORWARD:
    case SIM_STEP_RECV_BACKWARD:
        message_at(c, me, is_backward, step->chunk, step->microbatch)->posted_ns = a->now_ns;
        return true;
    case SIM_STEP_SEND_FORWARD:
    case SIM_STEP_SEND_BACKWARD: {
        message_t *m = message_at(c, peer, is_backward, peer_chunk, step->microbatch);
        m->sent_ns = a->now_ns;
        m->from_chunk = step->chunk;
        return true;
    }
    case SIM_STEP_WAIT_RECV_FORWARD:
    case SIM_STEP_WAIT_RECV_BACKWARD: {
        const message_t *m = message_at(c, me, is_backward, step->chunk, step->microbatch);
        if (!arrival(c, m, peer, me, &ns))
            return false;
        add_arrow(c, &(sim_arrow_t){ .from_pp_rank = peer,
                                     .to_pp_rank = me,
                                     .from_chunk = m->from_chunk,
                                     .to_chunk = step->chunk,
                                     .microbatch = step->microbatch,
                                     .is_backward = is_backward,
                                     .sent_ns = m->sent_ns,
                                     .arrived_ns = ns });
        wait_until(c, a, step, ns);
        synchronize_host(c, a);
        return true;
    }
    default: {
        const message_t *m = message_at(c, peer, is_backward, peer_chunk, step->microbatch);
        if (!arrival(c, m, me, peer, &ns))
            return false;
        wait_until(c, a, step, ns);
        return true;
    }
    }
}

/* Run on as far as possible; false: no step was possible. */
static bool run_on(step_clock_t *c, actor_t *a)
{
    size_t start = a->cursor;
    for (; a->cursor < a->order.n; a->cursor++) {
        const sim_step_t *step = &a->order.steps[a->cursor];
        if (is_pass(step))
            run_pass(c, a, step);
        else if (step->kind <= SIM_STEP_WAIT_SEND_BACKWARD && !run_message(c, a, step))
            break;
    }
    return a->cursor > start;
}

static bool run_all(step_clock_t *c)
{
    for (;;) {
        bool moved = false, done = true;
        for (uint32_t r = 0; r < c->pp; r++) {
            moved = run_on(c, &c->actors[r]) || moved;
            done = done && c->actors[r].cursor == c->actors[r].order.n;
        }
        if (done || !moved)
            return done;
    }
}

/* ---- gradients, optimizer, parameters ---- */

typedef struct {
    uint64_t dense, expert; /* elements */
} elements_t;

static elements_t elements_of(const step_clock_t *c, const topo_chunk_t *place)
{
    sim_params_t params;
    elements_t n = { 0 };
    sim_params_init(&params, c->s, &c->dims, place);
    for (uint32_t i = 0; i < params.n; i++) {
        bool is_expert = sim_buffer_is_expert((sim_buffer_t)params.params[i].buffer);
        *(is_expert ? &n.expert : &n.dense) += params.params[i].n_elements;
    }
    sim_params_fini(&params);
    return n;
}

static double sync_seconds(const step_clock_t *c, const coll_reach_t *reach, uint64_t n_elements)
{
    uint64_t bytes = n_elements * (c->s->accumulate_allreduce_grads_in_fp32 ? 4 : c->dims.e);
    return c->s->use_distributed_optimizer
               ? coll_gather_seconds(&c->cost.network, reach, bytes)
               : coll_all_reduce_seconds(&c->cost.network, reach, bytes);
}

/* Parts of a chunk's gradients that are sent one by one. Default bucket of
 * DistributedDataParallel: 40 million elements, a million for each data-parallel rank if more. */
static double n_buckets(const step_clock_t *c, uint64_t n_elements)
{
    uint64_t size = c->s->ddp_bucket_size;
    if (size == 0)
        size = c->cost.dp.n > 40 ? c->cost.dp.n * UINT64_C(1000000) : UINT64_C(40000000);
    uint64_t n = n_elements / size;
    return n > 1 ? (double)n : 1;
}

/* With overlap a chunk's gradients go out bucket by bucket during its last backward pass. */
static uint64_t grad_sync_ns(const step_clock_t *c, const actor_t *a, uint32_t chunk, elements_t n,
                             uint64_t link_free_ns)
{
    uint64_t duration =
        to_ns(sync_seconds(c, &c->cost.dp, n.dense) + sync_seconds(c, &c->cost.edp, n.expert));
    uint64_t begin = a->now_ns;
    if (c->s->overlap_grad_reduce) {
        double pass = (double)(a->ready_ns[chunk] - a->begins_ns[chunk]);
        begin = a->begins_ns[chunk] + (uint64_t)(pass / n_buckets(c, n.dense + n.expert));
    }
    if (begin < link_free_ns)
        begin = link_free_ns;
    uint64_t end = begin + duration;
    /* The last bucket is full only when the pass is over. */
    uint64_t last = (uint64_t)((double)duration / n_buckets(c, n.dense + n.expert));
    uint64_t least = c->s->overlap_grad_reduce ? a->ready_ns[chunk] + last : end;
    return end > least ? end : least;
}

/* With overlap the parameters are gathered during the first forward pass but for the first bucket.
 */
static uint64_t param_gather_ns(const step_clock_t *c, const actor_t *a, elements_t n)
{
    if (!c->s->use_distributed_optimizer)
        return 0;
    uint64_t duration =
        to_ns(coll_gather_seconds(&c->cost.network, &c->cost.dp, n.dense * c->dims.e) +
              coll_gather_seconds(&c->cost.network, &c->cost.edp, n.expert * c->dims.e));
    if (!c->s->overlap_param_gather)
        return duration;
    uint64_t first = (uint64_t)((double)duration / n_buckets(c, n.dense + n.expert));
    uint64_t rest = duration - first, hidden = to_ns(a->costs[0].forward);
    return first + (rest > hidden ? rest - hidden : 0);
}

static uint64_t shard_of(uint64_t n_elements, bool sharded, uint32_t n_ranks)
{
    return sharded ? n_elements / n_ranks : n_elements;
}

static void synchronise(step_clock_t *c, actor_t *a)
{
    bool sharded = c->s->use_distributed_optimizer;
    uint64_t owned = 0, link_free_ns = 0;
    for (uint32_t i = c->vpp; i-- > 0;) {
        elements_t n = elements_of(c, topo_stages_chunk(&c->s->stages, a->config.pp_rank, i));
        link_free_ns = grad_sync_ns(c, a, i, n, link_free_ns);
        owned +=
            shard_of(n.dense, sharded, c->cost.dp.n) + shard_of(n.expert, sharded, c->cost.edp.n);
        uint64_t gather = param_gather_ns(c, a, n);
        if (c->s->overlap_param_gather)
            a->param_gather_ns = i == 0 ? gather : 0;
        else
            a->param_gather_ns += gather;
    }
    a->grad_sync_ns = link_free_ns > a->now_ns ? link_free_ns - a->now_ns : 0;
    a->optimizer_ns = to_ns(sim_cost_optimizer_seconds(&c->cost, owned));
}

/* The norm of all gradients makes every rank wait for the slowest; the next step begins together.
 */
static void finish(step_clock_t *c)
{
    uint64_t synced = 0, optimizer = 0, gather = 0;
    for (uint32_t r = 0; r < c->pp; r++) {
        actor_t *a = &c->actors[r];
        synchronise(c, a);
        add_span(c, a, SIM_SPAN_GRAD_SYNC, NULL, a->now_ns, a->now_ns + a->grad_sync_ns);
        a->now_ns += a->grad_sync_ns;
        synced = a->now_ns > synced ? a->now_ns : synced;
        optimizer = a->optimizer_ns > optimizer ? a->optimizer_ns : optimizer;
        gather = a->param_gather_ns > gather ? a->param_gather_ns : gather;
    }
    sim_step_time_t *t = c->out;
    t->step_ns = synced + optimizer + gather;
    for (uint32_t r = 0; r < c->pp; r++) {
        actor_t *a = &c->actors[r];
        wait_until(c, a, NULL, synced);
        add_span(c, a, SIM_SPAN_OPTIMIZER, NULL, synced, synced + a->optimizer_ns);
        uint64_t done = synced + optimizer;
        add_span(c, a, SIM_SPAN_PARAM_GATHER, NULL, done, done + a->param_gather_ns);
        t->exposed_comm_ns += a->comm_ns / c->pp;
        t->grad_sync_ns += a->grad_sync_ns / c->pp;
        t->optimizer_ns += a->optimizer_ns / c->pp;
        t->param_gather_ns += a->param_gather_ns / c->pp;
        t->compute_ns += (a->busy_ns - a->comm_ns) / c->pp;
        t->launch_ns += a->launch_ns / c->pp;
    }
    t->bubble_ns = t->step_ns - t->compute_ns - t->launch_ns - t->exposed_comm_ns -
                   t->grad_sync_ns - t->optimizer_ns - t->param_gather_ns;
}

static void rates(step_clock_t *c)
{
    const sim_scenario_t *s = c->s;
    sim_step_time_t *t = c->out;
    double seconds = (double)t->step_ns / 1e9;
    t->n_pipeline_ranks = c->pp;
    t->model_flops = sim_cost_model_flops(&c->cost);
    if (seconds <= 0)
        return;
    t->bubble_fraction = (double)t->bubble_ns / (double)t->step_ns;
    t->tokens_per_s = (double)s->seq_length * (double)s->global_batch_size / seconds;
    t->tflops_per_s = t->model_flops / seconds / (double)s->grid.world_size / 1e12;
    double peak = s->gpu_p->bf16_tflops;
    if (sim_is_quantized(s) && s->gpu_p->fp8_tflops > 0)
        peak = s->gpu_p->fp8_tflops * (s->fp4 != SIM_FP4_NONE ? 2 : 1);
    t->mfu = t->tflops_per_s / peak;
}

/* ---- life ---- */

/* Megatron-FSDP gathers a unit's parameters for each pass, and reduces its gradients in each
 * backward pass, beside the computation. */
static void add_sharding(const step_clock_t *c, sim_pass_cost_t *cost, elements_t n)
{
    const sim_scenario_t *s = c->s;
    if (!s->use_megatron_fsdp || s->data_parallel_sharding_strategy < SIM_FSDP_OPTIM_GRADS)
        return;
    bool shares_params = s->data_parallel_sharding_strategy == SIM_FSDP_OPTIM_GRADS_PARAMS;
    double gather =
        shares_params
            ? coll_gather_seconds(&c->cost.network, &c->cost.dp, n.dense * c->dims.e) +
                  coll_gather_seconds(&c->cost.network, &c->cost.edp, n.expert * c->dims.e)
            : 0;
    double reduce = sync_seconds(c, &c->cost.dp, n.dense) + sync_seconds(c, &c->cost.edp, n.expert);
    double forward = gather > cost->forward ? gather - cost->forward : 0;
    double backward = gather + reduce > cost->backward ? gather + reduce - cost->backward : 0;
    cost->forward += forward;
    cost->forward_comm += forward;
    cost->backward += backward;
    cost->backward_comm += backward;
}

static base_status_t init_actor(step_clock_t *c, uint32_t pp_rank, base_err_t *err)
{
    actor_t *a = &c->actors[pp_rank];
    topo_coord_t coord = { .pp = pp_rank };
    sim_place_t place = sim_place_of(c->s, &coord);
    a->config = sim_player_order_config(c->s, &place);
    a->config.plan = sim_schedule_splits(c->s->pipeline_schedule) ? &c->plan : NULL;
    a->costs = base_xcalloc(c->vpp, sizeof(*a->costs));
    a->host_costs = base_xcalloc(c->vpp, sizeof(*a->host_costs));
    a->ready_ns = base_xcalloc(c->vpp, sizeof(*a->ready_ns));
    a->begins_ns = base_xcalloc(c->vpp, sizeof(*a->begins_ns));
    for (uint32_t i = 0; i < c->vpp; i++) {
        const topo_chunk_t *chunk = topo_stages_chunk(&c->s->stages, pp_rank, i);
        a->costs[i] = sim_cost_pass(&c->cost, chunk);
        a->host_costs[i] = sim_host_pass(c->s, chunk);
        add_sharding(c, &a->costs[i], elements_of(c, chunk));
    }
    return sim_order_init(&a->order, &a->config, err);
}

static void fini(step_clock_t *c)
{
    for (uint32_t r = 0; r < c->pp; r++) {
        actor_t *a = &c->actors[r];
        sim_order_fini(&a->order);
        free(a->costs);
        free(a->host_costs);
        free(a->ready_ns);
        free(a->begins_ns);
    }
    free(c->actors);
    free(c->messages);
    sim_plan_fini(&c->plan);
}

static void init_messages(step_clock_t *c)
{
    size_t n = (size_t)c->pp * 2 * c->vpp * c->n_microbatches;
    c->messages = base_xcalloc(n, sizeof(*c->messages));
    for (size_t i = 0; i < n; i++)
        c->messages[i].sent_ns = c->messages[i].posted_ns = time_none;
}

base_status_t sim_clock_step(const sim_scenario_t *given, bool want_spans, sim_step_time_t *time_p,
                             base_err_t *err)
{
    /* Every micro-batch takes as long as one of mean length. */
    sim_scenario_t mean = *given; /* what it owns stays the scenario's */
    const sim_scenario_t *scenario = &mean;
    mean.seq_length = sim_lengths_mean(given);
    *time_p = (sim_step_time_t){ 0 };
    step_clock_t c = { .s = scenario,
                       .pp = (uint32_t)scenario->pipeline_model_parallel_size,
                       .vpp = scenario->stages.vpp,
                       .n_microbatches = (uint32_t)scenario->n_microbatches,
                       .out = time_p,
                       .want_spans = want_spans };
    base_status_t status = sim_dims_init(&c.dims, scenario, err);
    if (status != BASE_OK)
        return status;
    c.cost = sim_cost_of(scenario, &c.dims);
    if (sim_schedule_splits(scenario->pipeline_schedule))
        status = sim_plan_init(&c.plan, scenario->pipeline_schedule, c.pp, c.n_microbatches, err);
    if (status != BASE_OK)
        return status;
    c.actors = base_xcalloc(c.pp, sizeof(*c.actors));
    for (uint32_t r = 0; r < c.pp && status == BASE_OK; r++)
        status = init_actor(&c, r, err);
    if (status == BASE_OK) {
        init_messages(&c);
        if (!run_all(&c))
            status = base_err_set(err, BASE_ERR_INVAL, "the pipeline ranks wait for each other");
    }
    if (status == BASE_OK) {
        finish(&c);
        rates(&c);
        if (time_p->n_spans > 0)
            qsort(time_p->spans, time_p->n_spans, sizeof(*time_p->spans), compare_spans);
        if (time_p->n_arrows > 0)
            qsort(time_p->arrows, time_p->n_arrows, sizeof(*time_p->arrows), compare_arrows);
    }
    fini(&c);
    if (status != BASE_OK)
        sim_step_time_fini(time_p);
    return status;
}

void sim_step_time_fini(sim_step_time_t *time)
{
    free(time->spans);
    free(time->arrows);
    *time = (sim_step_time_t){ 0 };
}

const char *sim_span_name(sim_span_kind_t kind)
{
    static const char *const names[] = {
        [SIM_SPAN_FORWARD] = "forward",
        [SIM_SPAN_BACKWARD] = "backward",
        [SIM_SPAN_WEIGHT_GRAD] = "weight gradients",
        [SIM_SPAN_WAIT] = "wait",
        [SIM_SPAN_GRAD_SYNC] = "gradient sync",
        [SIM_SPAN_OPTIMIZER] = "optimizer",
        [SIM_SPAN_PARAM_GATHER] = "parameter gather",
    };
    return names[kind];
}
