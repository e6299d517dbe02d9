/* SPDX-License-Identifier: Apache-2.0
 * The changes that people recommend against running out of memory, and how they are spelled in
 * Megatron-LM's arguments and Megatron-Bridge's configuration. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/memory/alloc_conf.h"
#include "sim/study/advise.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void __attribute__((format(printf, 2, 3))) add(sim_change_t *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    c->settings[c->n_settings++] = base_xvasprintf(fmt, ap);
    va_end(ap);
}

static void __attribute__((format(printf, 2, 3))) megatron(sim_change_t *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    c->megatron = base_xvasprintf(fmt, ap);
    va_end(ap);
}

static void __attribute__((format(printf, 2, 3))) bridge(sim_change_t *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    c->bridge = base_xvasprintf(fmt, ap);
    va_end(ap);
}

static void why_not(sim_change_t *c, const char *text)
{
    c->why_not = base_xstrdup(text);
}

/* ---- allocator, loss, adapters ---- */

static void expandable_segments(const sim_scenario_t *s, sim_change_t *c)
{
    sim_alloc_conf_t conf;
    sim_alloc_conf_init(&conf);
    const char *old = s->conf != NULL ? s->conf : "";
    if (sim_alloc_conf_parse(&conf, old, NULL) == BASE_OK && conf.expandable_segments) {
        why_not(c, "on already");
        return;
    }
    const char *comma = *old != '\0' ? "," : "";
    add(c, "allocator.conf=%s%sexpandable_segments:True", old, comma);
    megatron(c, "PYTORCH_CUDA_ALLOC_CONF=%s%sexpandable_segments:True (environment)", old, comma);
    bridge(c, "the same environment variable");
}

static void fused_cross_entropy(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->cross_entropy_loss_fusion && s->cross_entropy_fusion_impl == SIM_CE_TE) {
        why_not(c, "on already");
        return;
    }
    add(c, "train.cross_entropy_loss_fusion=true");
    add(c, "train.cross_entropy_fusion_impl=te");
    megatron(c, "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te");
    bridge(c, "model.cross_entropy_loss_fusion=true model.cross_entropy_fusion_impl=te");
}

static void input_regather(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->peft_scheme == SIM_PEFT_NONE || !s->sequence_parallel) {
        why_not(c, "for adapters with sequence parallelism");
        return;
    }
    if (s->sequence_parallel_input_regather) {
        why_not(c, "on already");
        return;
    }
    add(c, "peft.sequence_parallel_input_regather=true");
    megatron(c, "(Megatron-Bridge only)");
    bridge(c, "peft.sequence_parallel_input_regather=true");
}

/* ---- selective recompute ---- */

static const struct {
    unsigned module;
    const char *name;
} module_names[] = {
    { SIM_MODULE_CORE_ATTN, "core_attn" },     { SIM_MODULE_MLP, "mlp" },
    { SIM_MODULE_LAYERNORM, "layernorm" },     { SIM_MODULE_MOE, "moe" },
    { SIM_MODULE_MOE_ACT, "moe_act" },         { SIM_MODULE_SHARED_EXPERTS, "shared_experts" },
    { SIM_MODULE_MLA_UP_PROJ, "mla_up_proj" },
};

static char *join_modules(unsigned modules, const char *before_quote, const char *separator)
{
    char *text = base_xstrdup("");
    for (size_t i = 0; i < sizeof(module_names) / sizeof(module_names[0]); i++) {
        if ((modules & module_names[i].module) == 0)
            continue;
        char *longer = base_xasprintf("%s%s%s%s%s", text, *text != '\0' ? separator : "",
                                      before_quote, module_names[i].name, before_quote);
        free(text);
        text = longer;
    }
    return text;
}

/* One module more than are recomputed now. */
static void recompute_too(const sim_scenario_t *s, sim_change_t *c, unsigned module)
{
    bool is_selective = s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE;
    if (s->recompute_granularity == SIM_RECOMPUTE_FULL) {
        why_not(c, "everything is recomputed already");
        return;
    }
    if (is_selective && (s->recompute_modules & module) != 0) {
        why_not(c, "recomputed already");
        return;
    }
    unsigned modules = (is_selective ? s->recompute_modules : 0) | module;
    char *words = join_modules(modules, "", " "), *quoted = join_modules(modules, "\"", ",");
    add(c, "recompute.recompute_granularity=selective");
    add(c, "recompute.recompute_modules=%s", words);
    megatron(c, "--recompute-granularity selective --recompute-modules %s", words);
    bridge(c, "model.recompute_granularity=selective model.recompute_modules=[%s]", quoted);
    free(words);
    free(quoted);
}

static void recompute_layernorm(const sim_scenario_t *s, sim_change_t *c)
{
    recompute_too(s, c, SIM_MODULE_LAYERNORM);
}

static void recompute_moe_act(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->num_experts == 0)
        why_not(c, "for mixture-of-experts models");
    else
        recompute_too(s, c, SIM_MODULE_MOE_ACT);
}

static void recompute_mla_up_proj(const sim_scenario_t *s, sim_change_t *c)
{
    if (!s->multi_latent_attention)
        why_not(c, "for multi-latent attention");
    else
        recompute_too(s, c, SIM_MODULE_MLA_UP_PROJ);
}

static void recompute_core_attn(const sim_scenario_t *s, sim_change_t *c)
{
    recompute_too(s, c, SIM_MODULE_CORE_ATTN);
}

static void recompute_shared_experts(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->num_experts == 0 || s->moe_shared_expert_intermediate_size == 0)
        why_not(c, "for models with shared experts");
    else
        recompute_too(s, c, SIM_MODULE_SHARED_EXPERTS);
}

static void recompute_mlp(const sim_scenario_t *s, sim_change_t *c)
{
    recompute_too(s, c, SIM_MODULE_MLP);
}

static void recompute_moe(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->num_experts == 0)
        why_not(c, "for mixture-of-experts models");
    else
        recompute_too(s, c, SIM_MODULE_MOE);
}

static void full_recompute(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->recompute_granularity == SIM_RECOMPUTE_FULL) {
        why_not(c, "on already");
        return;
    }
    add(c, "recompute.recompute_granularity=full");
    add(c, "recompute.recompute_method=uniform");
    add(c, "recompute.recompute_num_layers=1");
    megatron(c, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
    bridge(c, "model.recompute_granularity=full model.recompute_method=uniform "
              "model.recompute_num_layers=1");
}

/* ---- optimizer ---- */

static void distributed_optimizer(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->use_distributed_optimizer) {
        why_not(c, "on already");
        return;
    }
    if (s->grid.dp * s->grid.cp == 1) {
        why_not(c, "there is one data-parallel rank: nothing to share");
        return;
    }
    add(c, "optimizer.use_distributed_optimizer=true");
    megatron(c, "--use-distributed-optimizer");
    bridge(c, "optimizer.use_distributed_optimizer=true ddp.use_distributed_optimizer=true");
}

static void precision_aware_optimizer(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->use_precision_aware_optimizer && s->exp_avg_dtype != SIM_DTYPE_FP32) {
        why_not(c, "on already");
        return;
    }
    if (!s->use_distributed_optimizer) {
        why_not(c, "needs the distributed optimizer");
        return;
    }
    add(c, "optimizer.use_precision_aware_optimizer=true");
    add(c, "optimizer.exp_avg_dtype=bf16");
    add(c, "optimizer.exp_avg_sq_dtype=bf16");
    megatron(c, "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16");
    bridge(c, "optimizer.use_precision_aware_optimizer=true optimizer.exp_avg_dtype=bf16 "
              "optimizer.exp_avg_sq_dtype=bf16");
}

static void bf16_gradients(const sim_scenario_t *s, sim_change_t *c)
{
    if (!s->accumulate_allreduce_grads_in_fp32 || !s->bf16) {
        why_not(c, s->bf16 ? "on already" : "for bf16 training");
        return;
    }
    add(c, "precision.accumulate_allreduce_grads_in_fp32=false");
    if (s->use_precision_aware_optimizer)
        add(c, "optimizer.main_grads_dtype=bf16");
    megatron(c, "--grad-reduce-in-bf16%s",
             s->use_precision_aware_optimizer ? " --main-grads-dtype bf16" : "");
    bridge(c, "ddp.grad_reduce_in_fp32=false%s",
           s->use_precision_aware_optimizer ? " optimizer.main_grads_dtype=bf16" : "");
}

/* ---- host memory, sharding ---- */

static void optimizer_offload(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->optimizer_cpu_offload) {
        why_not(c, "on already");
        return;
    }
    if (!s->use_distributed_optimizer) {
        why_not(c, "needs the distributed optimizer");
        return;
    }
    add(c, "optimizer.use_precision_aware_optimizer=true");
    add(c, "optimizer.optimizer_cpu_offload=true");
    megatron(c, "--use-precision-aware-optimizer --optimizer-cpu-offload");
    bridge(c, "optimizer.use_precision_aware_optimizer=true optimizer.optimizer_cpu_offload=true");
}

static void activation_offload(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->cpu_offloading) {
        why_not(c, "on already");
        return;
    }
    if (s->pipeline_model_parallel_size > 1 || s->recompute_granularity != SIM_RECOMPUTE_NONE) {
        why_not(c, "needs a pipeline of one stage and no recompute");
        return;
    }
    add(c, "offload.cpu_offloading=true");
    add(c, "offload.cpu_offloading_num_layers=%" PRIu64, s->num_layers - 1);
    megatron(c, "--cpu-offloading-num-layers %" PRIu64, s->num_layers - 1);
    bridge(c, "model.cpu_offloading=true model.cpu_offloading_num_layers=%" PRIu64,
           s->num_layers - 1);
}

static void megatron_fsdp(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->use_megatron_fsdp || s->use_torch_fsdp2 || sim_is_titan(s)) {
        why_not(c, "on already");
        return;
    }
    if (s->grid.dp * s->grid.cp == 1) {
        why_not(c, "needs data parallelism");
        return;
    }
    add(c, "optimizer.use_megatron_fsdp=true");
    add(c, "optimizer.data_parallel_sharding_strategy=optim_grads_params");
    megatron(c, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params");
    bridge(c, "dist.use_megatron_fsdp=true ddp.data_parallel_sharding_strategy=optim_grads_params");
}

/* ---- layout ---- */

static void sequence_parallel(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->sequence_parallel || s->tensor_model_parallel_size == 1) {
        why_not(c, s->sequence_parallel ? "on already" : "needs tensor parallelism");
        return;
    }
    add(c, "parallel.sequence_parallel=true");
    megatron(c, "--sequence-parallel");
    bridge(c, "model.sequence_parallel=true");
}

static void half_micro_batch(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->micro_batch_size % 2 != 0) {
        why_not(c, s->micro_batch_size == 1 ? "micro-batches have one sequence"
                                            : "micro_batch_size is odd");
        return;
    }
    add(c, "train.micro_batch_size=%" PRIu64, s->micro_batch_size / 2);
    megatron(c, "--micro-batch-size %" PRIu64, s->micro_batch_size / 2);
    bridge(c, "train.micro_batch_size=%" PRIu64, s->micro_batch_size / 2);
}

/* Twice as many GPUs share one copy of the model. */
static bool can_halve_dp(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->grid.dp % 2 == 0)
        return true;
    why_not(c, "the data-parallel size cannot be halved");
    return false;
}

static void double_size(const sim_scenario_t *s, sim_change_t *c, const char *key, uint64_t size)
{
    if (!can_halve_dp(s, c))
        return;
    add(c, "parallel.%s=%" PRIu64, key, 2 * size);
    char *dashes = base_xstrdup(key);
    for (char *d = dashes; *d != '\0'; d++)
        *d = *d == '_' ? '-' : *d;
    megatron(c, "--%s %" PRIu64, dashes, 2 * size);
    bridge(c, "model.%s=%" PRIu64, key, 2 * size);
    free(dashes);
}

static void more_context_parallel(const sim_scenario_t *s, sim_change_t *c)
{
    double_size(s, c, "context_parallel_size", s->context_parallel_size);
}

static void more_pipeline_parallel_and_gpus(const sim_scenario_t *s, sim_change_t *c)
{
    uint64_t pp = 2 * s->pipeline_model_parallel_size, world = 2 * (uint64_t)s->grid.world_size;
    add(c, "parallel.pipeline_model_parallel_size=%" PRIu64, pp);
    add(c, "parallel.world_size=%" PRIu64, world);
    megatron(c, "--pipeline-model-parallel-size %" PRIu64 " (on %" PRIu64 " GPUs)", pp, world);
    bridge(c, "model.pipeline_model_parallel_size=%" PRIu64 " (on %" PRIu64 " GPUs)", pp, world);
}

static void more_pipeline_parallel(const sim_scenario_t *s, sim_change_t *c)
{
    double_size(s, c, "pipeline_model_parallel_size", s->pipeline_model_parallel_size);
}

static void more_expert_parallel(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->num_experts == 0) {
        why_not(c, "for mixture-of-experts models");
        return;
    }
    uint64_t ep = 2 * s->expert_model_parallel_size;
    add(c, "parallel.expert_model_parallel_size=%" PRIu64, ep);
    megatron(c, "--expert-model-parallel-size %" PRIu64, ep);
    bridge(c, "model.expert_model_parallel_size=%" PRIu64, ep);
}

static void more_chunks(const sim_scenario_t *s, sim_change_t *c)
{
    uint64_t vpp = s->virtual_pipeline_model_parallel_size;
    uint64_t pp = s->pipeline_model_parallel_size;
    uint64_t layers = s->num_layers / pp;
    if (vpp == 0 || s->pipeline_model_parallel_layout != NULL) {
        why_not(c, "for a virtual pipeline");
        return;
    }
    do
        vpp++;
    while (vpp <= layers && layers % vpp != 0);
    if (vpp > layers) {
        why_not(c, "a chunk has one layer already");
        return;
    }
    add(c, "parallel.virtual_pipeline_model_parallel_size=%" PRIu64, vpp);
    megatron(c, "--num-virtual-stages-per-pipeline-rank %" PRIu64, vpp);
    bridge(c, "model.virtual_pipeline_model_parallel_size=%" PRIu64, vpp);
}

/* Of the schedules whose ranks are alike, the one that holds least and loses little time. */
static void v_half(const sim_scenario_t *s, sim_change_t *c)
{
    if (s->pipeline_model_parallel_size == 1) {
        why_not(c, "for a pipeline");
        return;
    }
    if (s->transformer_impl != SIM_IMPL_LOCAL) {
        why_not(c, "the fork of Megatron-LM that has it splits no layers of Transformer Engine");
        return;
    }
    if (s->pipeline_schedule == SIM_SCHEDULE_V_HALF || s->pipeline_schedule == SIM_SCHEDULE_V_MIN) {
        why_not(c, "on already");
        return;
    }
    add(c, "parallel.pipeline_schedule=v-half");
    if (s->virtual_pipeline_model_parallel_size > 0) {
        add(c, "parallel.virtual_pipeline_model_parallel_size=none");
        add(c, "parallel.overlap_p2p_communication_warmup_flush=false");
    }
    megatron(c, "--zero-bubble-v-schedule --zero-bubble-v-schedule-mem-setup half");
}

static void more_tensor_parallel(const sim_scenario_t *s, sim_change_t *c)
{
    double_size(s, c, "tensor_model_parallel_size", s->tensor_model_parallel_size);
    if (c->n_settings > 0 && !s->sequence_parallel)
        add(c, "parallel.sequence_parallel=true");
}

/* ---- the table ---- */

#define HALVES_DP                                                                                  \
    "the data-parallel size halves, so twice as many micro-batches are accumulated for the same "  \
    "global batch"

enum {
    RECOMPUTE = 1,     /* in an order that depends on the job; beside each other */
    SWITCH = 2,        /* layout and place of the tensors stay */
    KEEPS_RESULTS = 4, /* at most the order of a sum changes */
    NEEDS_GPUS = 8,
};

static const struct {
    const char *name;
    void (*describe)(const sim_scenario_t *s, sim_change_t *c);
    unsigned flags;
    const char *effect, *conflict;
} table[] = {
    { "expandable segments", expandable_segments, SWITCH | KEEPS_RESULTS,
      "only the allocator changes: less is lost to fragmentation",
      "not with NCCL user buffers (--use-nccl-ub, ddp.nccl_ub) or other memory that is registered "
      "or shared by address, such as an inference engine's sleep mode; with CUDA graphs "
      "NCCL_GRAPH_REGISTER=0" },
    { "LoRA input re-gather", input_regather, SWITCH | KEEPS_RESULTS,
      "the gathered input of each adapter is gathered again in backward",
      "has no effect on adapters of experts and row-parallel layers, nor with CUDA graphs, "
      "activation offload, or recompute of all or of mlp" },
    { "fused cross entropy", fused_cross_entropy, SWITCH,
      "the loss keeps one copy of the logits instead of several",
      "not with deterministic mode (--deterministic-mode)" },
    { "recompute layernorm", recompute_layernorm, RECOMPUTE | SWITCH | KEEPS_RESULTS,
      "norms run twice; their outputs are not kept",
      "with FP8 not with delayed scaling, and Transformer Engine 2.6 or later" },
    { "recompute moe_act", recompute_moe_act, RECOMPUTE | SWITCH | KEEPS_RESULTS,
      "the experts' activation function runs twice",
      "needs grouped experts (--moe-grouped-gemm); with FP8 not with delayed scaling" },
    { "recompute mla_up_proj", recompute_mla_up_proj, RECOMPUTE | SWITCH | KEEPS_RESULTS,
      "the up-projections of latent attention run twice", NULL },
    { "recompute core_attn", recompute_core_attn, RECOMPUTE | SWITCH | KEEPS_RESULTS,
      "attention runs twice; saves much where the scores are stored, little with flash attention",
      "with attention dropout not with CUDA graphs of attention" },
    { "recompute shared_experts", recompute_shared_experts, RECOMPUTE | SWITCH | KEEPS_RESULTS,
      "the shared experts run twice", "not with --moe-shared-expert-overlap" },
    { "recompute mlp", recompute_mlp, RECOMPUTE | SWITCH | KEEPS_RESULTS, "the MLP runs twice",
      "with hidden dropout not with CUDA graphs of the MLP" },
    { "recompute moe", recompute_moe, RECOMPUTE | SWITCH | KEEPS_RESULTS,
      "the whole expert layer runs twice, its messages too",
      "not with --overlap-moe-expert-parallel-comm" },
    { "distributed optimizer", distributed_optimizer, SWITCH | KEEPS_RESULTS,
      "optimizer state is shared by the data-parallel ranks; checkpoints have another layout",
      "Adam only" },
    { "precision-aware optimizer", precision_aware_optimizer, SWITCH,
      "moments in bf16: results change slightly",
      "needs the distributed optimizer and Transformer Engine's FusedAdam" },
    { "bf16 gradients", bf16_gradients, SWITCH,
      "gradients are summed in bf16: less exact with many micro-batches or ranks", NULL },
    { "sequence parallelism", sequence_parallel, SWITCH | KEEPS_RESULTS,
      "activations between tensor-parallel regions are split; no more traffic than before",
      "seq_length must be a multiple of the tensor-parallel size" },
    { "half the micro-batch", half_micro_batch, SWITCH | KEEPS_RESULTS,
      "twice as many micro-batches for the same global batch; smaller kernels", NULL },
    { "twice the expert parallelism", more_expert_parallel, KEEPS_RESULTS,
      "each rank holds half the experts; tokens travel further",
      "must divide the number of experts" },
    { "twice the context parallelism", more_context_parallel, KEEPS_RESULTS, HALVES_DP,
      "seq_length must be a multiple of twice the context-parallel size" },
    { "more virtual stages", more_chunks, SWITCH | KEEPS_RESULTS,
      "more and smaller messages between stages; a smaller bubble", NULL },
    { "twice the pipeline, more GPUs", more_pipeline_parallel_and_gpus, KEEPS_RESULTS | NEEDS_GPUS,
      "needs twice as many GPUs; the data-parallel size stays; a larger bubble",
      "CPU offloading of activations needs a pipeline of one stage" },
    { "twice the pipeline parallelism", more_pipeline_parallel, KEEPS_RESULTS,
      HALVES_DP "; a larger bubble",
      "CPU offloading of activations needs a pipeline of one stage" },
    { "V-half schedule", v_half, KEEPS_RESULTS,
      "every stage holds half of what the first stage of 1F1B does; twice the messages between "
      "stages; the embedding and the output layer are on the first rank",
      "needs the schedule's own fork of Megatron-LM (sail-sg/zero-bubble-pipeline-parallelism); "
      "not with overlapped gradient reduction" },
    { "full recompute", full_recompute, KEEPS_RESULTS, "every layer runs forward twice",
      "not together with selective modules" },
    { "optimizer offload", optimizer_offload, KEEPS_RESULTS,
      "main parameters and moments are in host memory, and the step runs there",
      "needs host memory of 12 bytes for each parameter that a rank owns" },
    { "activation offload", activation_offload, KEEPS_RESULTS,
      "what layers save goes to host memory and comes back; the passes wait where PCIe is too slow",
      "needs a pipeline of one stage and no recompute" },
    { "fully sharded data parallelism", megatron_fsdp, KEEPS_RESULTS,
      "parameters and gradients are shared by the data-parallel ranks and gathered unit by unit",
      "takes the place of the distributed optimizer's buffers; not with optimizer offload" },
    { "twice the tensor parallelism", more_tensor_parallel, KEEPS_RESULTS,
      HALVES_DP "; each layer's messages grow: beyond one NVLink domain they are slow",
      "must divide attention heads and, with sequence parallelism, seq_length" },
};

size_t sim_changes_n(void)
{
    return sizeof(table) / sizeof(table[0]);
}

void sim_change_init(sim_change_t *change_p, size_t i, const sim_scenario_t *scenario)
{
    unsigned flags = table[i].flags;
    *change_p = (sim_change_t){ .name = table[i].name,
                                .effect = table[i].effect,
                                .conflict = table[i].conflict,
                                .kind = i,
                                .is_recompute = flags & RECOMPUTE,
                                .is_switch = flags & SWITCH,
                                .keeps_results = flags & KEEPS_RESULTS,
                                .needs_gpus = flags & NEEDS_GPUS };
    table[i].describe(scenario, change_p);
}

void sim_change_fini(sim_change_t *change)
{
    for (size_t i = 0; i < change->n_settings; i++)
        free(change->settings[i]);
    free(change->megatron);
    free(change->bridge);
    free(change->why_not);
    *change = (sim_change_t){ 0 };
}
