/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/outside.h"

#include "collectives/context.h"
#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the scenario says ---- */

static uint32_t links_of(const topo_gpu_t *gpu)
{
    /* A link carries 25 GB/s each way, from Blackwell on 50: NVIDIA's NVLink 2 to 5. */
    double link = gpu->sm >= 100 ? 50 : 25;
    return (uint32_t)(gpu->nvlink_gb_per_s / link + 0.5);
}

void sim_outside_nccl(const sim_scenario_t *s, coll_nccl_t *nccl_p)
{
    const topo_gpu_t *gpu = s->gpu_p;
    coll_nccl_t n = {
        .version = s->nccl_version != NULL ? coll_nccl_version_parse(s->nccl_version)
                                           : coll_nccl_version_at((uint32_t)s->software_date),
        .machine = { .gpus_per_node = (uint32_t)s->gpus_per_node,
                     .nvlink_domain = (uint32_t)s->nvlink_domain },
        .sm = gpu->sm,
        .nvlink_links = s->nvlink_domain > 1 ? links_of(gpu) : 0,
        .nics_per_node = (uint32_t)s->nics_per_node,
        .nic_gbit_per_s = (uint32_t)s->nic_gbit_per_s,
        .pcie_p2p = s->nccl_p2p_level == SIM_P2P_ANYWHERE,
        .gpu_direct =
            s->nccl_net_gdr_level == SIM_GDR_NEVER || s->nccl_ib_disable ? COLL_OFF : COLL_AUTO,
        .cumem = s->nccl_cumem_enable,
        .nvls = s->nccl_nvls_enable,
        .pat = s->nccl_pat_enable,
        .connect_at_init = s->nccl_runtime_connect == COLL_OFF,
        .p2p_disable = s->nccl_p2p_disable || s->nccl_p2p_level == SIM_P2P_NEVER,
        .pxn_disable = s->nccl_pxn_disable,
        .net_buffers_not_shared = s->nccl_net_shared_buffers == COLL_OFF,
        .ll_bytes = s->nccl_ll_buffsize,
        .ll128_bytes = s->nccl_ll128_buffsize,
        .simple_bytes = s->nccl_buffsize,
        .p2p_nvl_chunk = s->nccl_p2p_nvl_chunksize,
        .p2p_pci_chunk = s->nccl_p2p_pci_chunksize,
        .p2p_net_chunk = s->nccl_p2p_net_chunksize,
        .nvls_chunk = s->nccl_nvls_chunksize,
        .multicast_bytes = s->nccl_multicast_bytes,
        .min_channels = (uint32_t)s->nccl_min_nchannels,
        .max_channels = (uint32_t)s->nccl_max_nchannels,
        .min_ctas = (uint32_t)s->nccl_min_ctas,
        .max_ctas = (uint32_t)s->nccl_max_ctas,
        .min_p2p_channels = (uint32_t)s->nccl_min_p2p_nchannels,
        .max_p2p_channels = (uint32_t)s->nccl_max_p2p_nchannels,
        .nvls_channels = (uint32_t)s->nccl_nvls_nchannels,
        .channels_per_net_peer = (uint32_t)s->nccl_nchannels_per_net_peer,
        .max_p2p_peers = (uint32_t)s->nccl_p2p_max_peers,
        .log_coll = (uint32_t)s->nccl_log_coll,
        .log_nvls = (uint32_t)s->nccl_log_nvls,
        .log_p2p = (uint32_t)s->nccl_log_p2p,
        .log_per_peer = (uint32_t)s->nccl_log_per_peer,
    };
    coll_nccl_algo_parse(s->nccl_algo, &n.algos); /* resolve has refused what cannot be read */
    *nccl_p = n;
}

/* Tokens of a micro-batch on a context parallel rank. */
static uint64_t tokens_of(const sim_scenario_t *s)
{
    return s->seq_length * s->micro_batch_size / s->context_parallel_size;
}

/* Two norms a layer, in fp32 or the gradients' type; biases of the norms and of the two linear
 * layers whose output is scattered. */
static uint64_t norm_grad_bytes(const sim_scenario_t *s, uint32_t pp_rank)
{
    uint64_t layers = 0, vectors = 2;
    for (uint32_t c = 0; c < s->stages.vpp; c++)
        layers += topo_stages_chunk(&s->stages, pp_rank, c)->n_layers;
    if (s->normalization == SIM_NORM_LAYERNORM)
        vectors += 2;
    if (s->add_bias_linear)
        vectors += 2;
    return layers * vectors * s->hidden_size * (s->accumulate_allreduce_grads_in_fp32 ? 4 : 2);
}

void sim_outside_job(const sim_scenario_t *s, const topo_coord_t *coord, coll_job_t *job_p)
{
    static const coll_moe_t dispatchers[] = {
        [SIM_DISPATCHER_ALLGATHER] = COLL_MOE_ALLGATHER,
        [SIM_DISPATCHER_ALLTOALL] = COLL_MOE_ALLTOALL,
        [SIM_DISPATCHER_FLEX] = COLL_MOE_FLEX,
    };
    static const coll_cp_t cp_types[] = {
        [SIM_CP_P2P] = COLL_CP_RING,
        [SIM_CP_ALL_GATHER] = COLL_CP_ALL_GATHER,
        [SIM_CP_A2A] = COLL_CP_ALL_TO_ALL,
        [SIM_CP_A2A_P2P] = COLL_CP_ALL_TO_ALL_RING,
    };
    uint64_t element = sim_dtype_bytes(sim_scenario_params_dtype(s));
    uint64_t tp = s->tensor_model_parallel_size;
    *job_p = (coll_job_t){
        .grid = s->grid,
        .machine = { .gpus_per_node = (uint32_t)s->gpus_per_node,
                     .nvlink_domain = (uint32_t)s->nvlink_domain },
        .pcie_p2p = s->nccl_p2p_level == SIM_P2P_ANYWHERE,
        .eager = s->nccl_eager_init,
        .software_date = (uint32_t)s->software_date,
        .distributed_optimizer = s->use_distributed_optimizer,
        .n_optimizer_instances = (uint32_t)s->num_distributed_optimizer_instances,
        .overlap_grad_reduce = s->overlap_grad_reduce,
        .sequence_parallel = s->sequence_parallel,
        .tied_embeddings = !s->untie_embeddings_and_output_weights || s->mtp_num_layers > 0,
        .cp = cp_types[s->cp_comm_type],
        .cp_a2a_size = (uint32_t)s->cp_a2a_size,
        .splits_heads = sim_has_layer(s, SIM_LAYER_MAMBA) || sim_has_delta_net(s),
        .interleaved = s->stages.vpp > 1 && s->stages.placement == TOPO_PLACEMENT_LOOP,
        .unbatched_p2p = s->overlap_p2p_communication,
        .activation_bytes = tokens_of(s) * s->hidden_size * element,
        .norm_grad_bytes = norm_grad_bytes(s, coord->pp),
        .embedding_bytes = s->padded_vocab_size / tp * s->hidden_size * element,
        .has_experts = s->num_experts > 0,
        .moe = dispatchers[s->moe_token_dispatcher_type],
        .aux_loss = s->moe_router_load_balancing_type &
                    (SIM_BALANCE_AUX | SIM_BALANCE_SEQ_AUX | SIM_BALANCE_GLOBAL_AUX),
        .expert_bias = s->moe_router_enable_expert_bias,
    };
}

/* ---- lines ---- */

typedef struct {
    sim_outside_t o;
    bool wants_lines;
} ledger_t;

static void count(ledger_t *l, coll_range_t bytes)
{
    l->o.bytes += bytes.bytes;
    l->o.low += bytes.low;
    l->o.high += bytes.high;
}

/* The new line, or NULL when only the sum is wanted; it stays until the next one. */
static sim_outside_line_t *add(ledger_t *l, const char *name, coll_range_t bytes, coll_moment_t at,
                               const char *source)
{
    count(l, bytes);
    if (!l->wants_lines)
        return NULL;
    sim_outside_t *o = &l->o;
    o->lines = base_xrealloc(o->lines, o->n_lines + 1, sizeof(*o->lines));
    sim_outside_line_t *line = &o->lines[o->n_lines++];
    *line = (sim_outside_line_t){
        .bytes = bytes.bytes, .low = bytes.low, .high = bytes.high, .at = at, .source = source
    };
    snprintf(line->name, sizeof(line->name), "%s", name);
    return line;
}

static const coll_moment_t at_start = { 0, COLL_AT_START };

static coll_range_t exactly(uint64_t bytes)
{
    return (coll_range_t){ bytes, bytes, bytes };
}

/* Create it and use it in order of time; `line` may be NULL. */
static coll_range_t play(const coll_nccl_t *nccl, const coll_comm_t *comm, sim_outside_line_t *line)
{
    coll_nccl_comm_t c;
    coll_nccl_comm_init(&c, nccl, &comm->spread);
    uint32_t n = 0;
    if (line != NULL)
        line->steps[n++] = (sim_outside_step_t){ "creation", comm->created, c.bytes.bytes };
    for (uint32_t i = 0; i < comm->n_uses; i++) {
        const coll_use_t *use = &comm->uses[i];
        coll_range_t more = coll_nccl_comm_use(&c, use->op, use->message_bytes, &use->peers);
        if (line != NULL && more.high > 0)
            line->steps[n++] = (sim_outside_step_t){ coll_op_name(use->op), use->at, more.bytes };
    }
    if (line != NULL) {
        line->n_steps = n;
        line->is_communicator = true;
        line->spread = comm->spread;
        line->channels = c.channels;
    }
    return c.bytes;
}

static void add_communicators(ledger_t *l, const coll_nccl_t *nccl, const coll_comms_t *comms)
{
    for (uint32_t i = 0; i < comms->n; i++) {
        const coll_comm_t *comm = &comms->items[i];
        if (comm->is_gloo)
            continue;
        char name[SIM_OUTSIDE_NAME];
        snprintf(name, sizeof(name), "NCCL %s", comm->name);
        sim_outside_line_t *line =
            add(l, name, exactly(0), comm->created, "NCCL's host code, by version and layout");
        coll_range_t bytes = play(nccl, comm, line);
        count(l, bytes);
        if (line != NULL) {
            line->bytes = bytes.bytes;
            line->low = bytes.low;
            line->high = bytes.high;
        }
    }
}

static void add_buffer(ledger_t *l, const char *name, coll_range_t bytes, coll_moment_t at,
                       const char *source)
{
    sim_outside_line_t *line = add(l, name, bytes, at, source);
    if (line != NULL)
        line->is_buffer = true;
}

static void add_buffers(ledger_t *l, const sim_scenario_t *s)
{
    uint64_t bytes;
    if (s->tp_comm_overlap && s->tensor_model_parallel_size > 1 &&
        coll_user_buffer_bytes(tokens_of(s), s->hidden_size, s->fp8 != SIM_FP8_NONE, &bytes))
        add_buffer(l, "user buffers", exactly(bytes), at_start,
                   "Transformer Engine, initialize_ub()");
    uint32_t group = s->grid.etp * s->grid.ep;
    if (s->num_experts > 0 && s->moe_token_dispatcher_type == SIM_DISPATCHER_FLEX &&
        s->moe_flex_dispatcher_backend == SIM_FLEX_DEEPEP && group > 1) {
        const coll_moment_t at = { 1, COLL_AT_FORWARD };
        /* NVSHMEM's heap grows in pieces of the size that deep_ep/buffer.py sets. */
        const uint64_t heap = 512 * BASE_MIB;
        coll_deepep_t deepep = coll_deepep_bytes(group, s->hidden_size);
        add_buffer(l, "DeepEP buffers", exactly(deepep.nvlink_bytes), at,
                   "DeepEP, csrc/config.hpp");
        if (deepep.network_bytes > 0)
            add_buffer(l, "DeepEP network heap",
                       (coll_range_t){ base_u64_round_up(deepep.network_bytes, heap),
                                       deepep.network_bytes,
                                       base_u64_round_up(deepep.network_bytes, heap) + heap },
                       at, "DeepEP, csrc/config.hpp; NVSHMEM's pieces of 512 MiB");
    }
}

/* Without communicators: what every process has. */
static void add_process(ledger_t *l, const sim_scenario_t *s)
{
    const topo_gpu_t *gpu = s->gpu_p;
    add(l, "CUDA context", coll_context_bytes(gpu->sm), at_start, "public reports by GPU");
    add(l, "library code", coll_library_bytes(gpu->sm), at_start,
        "what public reports leave beside context and communicators");
    add(l, "NCCL kernels", coll_nccl_process_bytes(gpu->sm, gpu->n_sms), at_start,
        "image and stack of libnccl 2.28.9's kernels");
}

/* False: there is nothing to estimate. */
static bool is_estimated(const sim_scenario_t *s)
{
    return s->reserved_outside_bytes == 0 && s->estimate_outside;
}

static void list_comms(const sim_scenario_t *s, uint32_t rank, coll_comms_t *comms_p)
{
    topo_coord_t coord = { 0 };
    coll_job_t job;
    topo_grid_coord(&s->grid, rank, &coord, NULL); /* rank < world size: cannot fail */
    sim_outside_job(s, &coord, &job);
    coll_comms_of_rank(&job, rank, comms_p);
}

/* Insertion sort: keeps the order of equal moments. */
static void sort(sim_outside_t *o)
{
    for (uint32_t i = 1; i < o->n_lines; i++) {
        sim_outside_line_t line = o->lines[i];
        uint32_t at = i;
        while (at > 0 && coll_moment_compare(line.at, o->lines[at - 1].at) < 0) {
            o->lines[at] = o->lines[at - 1];
            at--;
        }
        o->lines[at] = line;
    }
}

static sim_outside_t make(const sim_scenario_t *s, uint32_t rank, bool wants_lines)
{
    ledger_t l = { .wants_lines = wants_lines };
    if (s->reserved_outside_bytes > 0)
        add(&l, "outside PyTorch", exactly(s->reserved_outside_bytes), at_start,
            "device.reserved_outside_bytes");
    if (is_estimated(s)) {
        coll_nccl_t nccl;
        coll_comms_t comms;
        sim_outside_nccl(s, &nccl);
        list_comms(s, rank, &comms);
        add_process(&l, s);
        add_communicators(&l, &nccl, &comms);
        add_buffers(&l, s);
    }
    sort(&l.o);
    return l.o;
}

void sim_outside_init(sim_outside_t *outside_p, const sim_scenario_t *s, uint32_t rank)
{
    *outside_p = make(s, rank, true);
}

void sim_outside_fini(sim_outside_t *outside)
{
    free(outside->lines);
    *outside = (sim_outside_t){ 0 };
}

uint64_t sim_outside_bytes(const sim_scenario_t *s, uint32_t rank)
{
    return make(s, rank, false).bytes;
}

uint64_t sim_outside_usable(const sim_scenario_t *s, uint64_t outside_bytes)
{
    return s->memory_bytes > outside_bytes ? s->memory_bytes - outside_bytes : 0;
}
