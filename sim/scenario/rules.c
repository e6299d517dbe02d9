/* SPDX-License-Identifier: Apache-2.0
 * Combinations that Megatron-LM refuses, or that cannot be a job at all. Unless a rule says
 * otherwise its source is Megatron-LM core 0.20: transformer_config.py, model_parallel_config.py,
 * parallel_state.py, schedules.py under megatron/core, and training/arguments.py. */
#include "config.h"

#include "sim/scenario/rules.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/scenario/keys.h"
#include "sim/scenario/state.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U64 "%" PRIu64

void sim_rule_broken(sim_rule_context_t *context, const char *key, const char *fmt, ...)
{
    size_t n;
    size_t k = sim_key_index(key);
    const struct sim_key_state *state = context->s->state;
    const char *origin = state->entries[k].origin;
    if (origin == NULL)
        origin = state->name != NULL ? state->name : "scenario";
    va_list ap;
    va_start(ap, fmt);
    char *text = base_xvasprintf(fmt, ap);
    va_end(ap);
    base_diag_add(context->diag, "%s: %s.%s: %s", origin, sim_keys(&n)[k].section, key, text);
    free(text);
    context->ok = false;
}

static bool is_given(const sim_rule_context_t *c, const char *key)
{
    return c->s->state->entries[sim_key_index(key)].how >= SIM_KEY_SUGGESTED;
}

static void must_divide(sim_rule_context_t *c, const char *key, uint64_t divisor, const char *what,
                        uint64_t whole)
{
    if (divisor == 0 || whole % divisor != 0)
        sim_rule_broken(c, key, U64 " does not divide %s " U64, divisor, what, whole);
}

/* [model] */

static void one_description(sim_rule_context_t *c)
{
    if (c->s->preset != NULL && c->s->hf_config != NULL)
        sim_rule_broken(c, "hf_config", "not together with preset");
}

static void heads_divide_width(sim_rule_context_t *c)
{
    if (!is_given(c, "kv_channels") && c->s->hidden_size % c->s->num_attention_heads != 0)
        sim_rule_broken(c, "num_attention_heads",
                        U64 " does not divide hidden_size " U64 "; give kv_channels to say the "
                            "width of a head",
                        c->s->num_attention_heads, c->s->hidden_size);
}

static void groups_divide_heads(sim_rule_context_t *c)
{
    must_divide(c, "num_query_groups", c->s->num_query_groups, "num_attention_heads",
                c->s->num_attention_heads);
}

static void vocabulary_is_given(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->vocab_size == 0)
        sim_rule_broken(c, "vocab_size", "required: give it or padded_vocab_size, or a preset");
    else if (s->padded_vocab_size < s->vocab_size)
        sim_rule_broken(c, "padded_vocab_size", U64 " is less than vocab_size " U64,
                        s->padded_vocab_size, s->vocab_size);
}

static void positions_cover_the_sequence(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->position_embedding_type == SIM_POS_LEARNED && s->max_position_embeddings < s->seq_length)
        sim_rule_broken(c, "max_position_embeddings",
                        U64 " is less than seq_length " U64 " with learned positions",
                        s->max_position_embeddings, s->seq_length);
}

static void gate_fits_the_activation(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    bool gated = s->activation_func == SIM_ACT_SWIGLU || s->activation_func == SIM_ACT_GEGLU;
    if (s->gated_linear_unit != gated)
        sim_rule_broken(c, "gated_linear_unit", "does not go with this activation_func; %s",
                        gated ? "swiglu and geglu are gated" : "use silu (swiglu) or gelu (geglu)");
}

static void fusion_fits_the_activation(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->bias_activation_fusion)
        return;
    if (s->activation_func == SIM_ACT_SQUARED_RELU || s->activation_func == SIM_ACT_SILU)
        sim_rule_broken(c, "bias_activation_fusion",
                        "only with activation_func gelu, geglu or swiglu");
    else if (s->activation_func == SIM_ACT_GELU && !s->add_bias_linear)
        sim_rule_broken(c, "bias_activation_fusion", "with gelu needs add_bias_linear = true");
}

/* megatron/core/model_parallel_config.py */
static void warmup_flush_overlaps_too(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->overlap_p2p_communication_warmup_flush && !s->overlap_p2p_communication)
        sim_rule_broken(c, "overlap_p2p_communication_warmup_flush",
                        "needs overlap_p2p_communication and a virtual pipeline");
}

static void attention_fits_the_layers(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->attention_backend == SIM_ATTENTION_LOCAL && s->transformer_impl != SIM_IMPL_LOCAL)
        sim_rule_broken(c, "attention_backend", "local needs transformer_impl = local");
    if (s->transformer_impl == SIM_IMPL_LOCAL && s->attention_backend != SIM_ATTENTION_LOCAL &&
        s->attention_backend != SIM_ATTENTION_AUTO)
        sim_rule_broken(c, "attention_backend",
                        "transformer_impl = local has one attention: use auto or local");
}

static void deterministic_kernels_only(sim_rule_context_t *c)
{
    if (c->s->deterministic_mode && c->s->cross_entropy_loss_fusion)
        sim_rule_broken(c, "cross_entropy_loss_fusion", "not with deterministic_mode");
}

/* [parallel] */

static void tensor_parallel_divides_the_model(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t tp = s->tensor_model_parallel_size;
    if (s->num_attention_heads % tp != 0)
        must_divide(c, "tensor_model_parallel_size", tp, "num_attention_heads",
                    s->num_attention_heads);
    else
        must_divide(c, "tensor_model_parallel_size", tp, "ffn_hidden_size", s->ffn_hidden_size);
}

static void tensor_parallel_fits_the_groups(sim_rule_context_t *c)
{
    uint64_t tp = c->s->tensor_model_parallel_size, groups = c->s->num_query_groups;
    if (c->s->num_attention_heads % tp == 0 && groups % tp != 0 && tp % groups != 0)
        sim_rule_broken(c, "tensor_model_parallel_size",
                        U64 " is neither a multiple nor a divisor of num_query_groups " U64, tp,
                        groups);
}

static void tensor_parallel_divides_the_vocabulary(sim_rule_context_t *c)
{
    must_divide(c, "tensor_model_parallel_size", c->s->tensor_model_parallel_size,
                "padded_vocab_size", c->s->padded_vocab_size);
}

/* Transformer Engine gives every rank two chunks of the sequence, one from each end, so that causal
 * attention is balanced; only its fused kernels do context parallelism. */
static void context_parallel_fits(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t cp = s->context_parallel_size;
    if (cp == 1)
        return;
    must_divide(c, "context_parallel_size", 2 * cp, "seq_length", s->seq_length);
    if (s->attention_backend == SIM_ATTENTION_UNFUSED ||
        s->attention_backend == SIM_ATTENTION_LOCAL || s->transformer_impl == SIM_IMPL_LOCAL)
        sim_rule_broken(c, "context_parallel_size",
                        U64 " needs attention_backend flash or fused of transformer_engine", cp);
    uint64_t tp = s->tensor_model_parallel_size;
    uint64_t split = s->cp_comm_type == SIM_CP_A2A ? cp : s->cp_a2a_size;
    if (s->num_attention_heads / tp % split != 0 || s->num_query_groups / tp % split != 0)
        sim_rule_broken(c, "cp_comm_type",
                        "a2a among " U64 " ranks needs that to divide the heads and query groups "
                        "of a tensor-parallel rank",
                        split);
}

static void virtual_pipeline_has_enough_ranks(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->virtual_pipeline_model_parallel_size == 0)
        return;
    /* One rank is refused by the stages. */
    if (s->pipeline_model_parallel_size == 2 && !s->overlap_p2p_communication)
        sim_rule_broken(c, "virtual_pipeline_model_parallel_size",
                        "needs pipeline_model_parallel_size >= 3 without "
                        "overlap_p2p_communication");
}

static void chunk_layers_agree(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t per_chunk = s->num_layers_per_virtual_pipeline_stage;
    uint64_t pp = s->pipeline_model_parallel_size;
    if (per_chunk == 0)
        return;
    if (s->decoder_first_pipeline_num_layers != 0 || s->decoder_last_pipeline_num_layers != 0) {
        sim_rule_broken(c, "num_layers_per_virtual_pipeline_stage",
                        "not with uneven first or last stages; give "
                        "virtual_pipeline_model_parallel_size");
        return;
    }
    uint64_t slots = s->num_layers + s->account_for_embedding_in_pipeline_split +
                     s->account_for_loss_in_pipeline_split;
    if (slots % pp != 0)
        return; /* said by the stages */
    uint64_t vpp = s->virtual_pipeline_model_parallel_size;
    if (slots / pp % per_chunk != 0)
        sim_rule_broken(c, "num_layers_per_virtual_pipeline_stage",
                        U64 " does not divide the " U64 " layers of a pipeline rank", per_chunk,
                        slots / pp);
    else if (slots / pp / per_chunk != (vpp == 0 ? 1 : vpp))
        sim_rule_broken(c, "num_layers_per_virtual_pipeline_stage",
                        U64 " layers make " U64
                            " chunks, but virtual_pipeline_model_parallel_size is " U64,
                        per_chunk, slots / pp / per_chunk, vpp);
}

static void deferred_wgrad_has_a_pipeline(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->defer_embedding_wgrad_compute)
        return;
    if (s->pipeline_model_parallel_size == 1)
        sim_rule_broken(c, "defer_embedding_wgrad_compute",
                        "needs pipeline_model_parallel_size > 1");
    if (!s->gradient_accumulation_fusion)
        sim_rule_broken(c, "defer_embedding_wgrad_compute",
                        "needs gradient_accumulation_fusion = true");
}

static void user_buffers_need_sequence_parallel(sim_rule_context_t *c)
{
    if (c->s->tp_comm_overlap && !c->s->sequence_parallel)
        sim_rule_broken(c, "tp_comm_overlap",
                        "needs sequence_parallel = true and "
                        "tensor_model_parallel_size > 1");
}

/* [train] */

static void batch_is_divisible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t dp = s->world_size / (s->tensor_model_parallel_size * s->pipeline_model_parallel_size *
                                   s->context_parallel_size);
    if (dp == 0)
        return; /* said by the grid */
    if (s->global_batch_size % (s->micro_batch_size * dp) != 0)
        sim_rule_broken(c, "global_batch_size",
                        U64 " is not a multiple of micro_batch_size " U64
                            " * data parallel size " U64,
                        s->global_batch_size, s->micro_batch_size, dp);
}

/* schedules.py, forward_backward_pipelining_with_interleaving */
static void microbatch_groups_fit(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t m = s->n_microbatches, pp = s->pipeline_model_parallel_size;
    uint64_t group = s->microbatch_group_size_per_virtual_pipeline_stage;
    if (s->virtual_pipeline_model_parallel_size == 0 || m == 0)
        return;
    if (group < pp || group > m)
        sim_rule_broken(c, "microbatch_group_size_per_virtual_pipeline_stage",
                        U64 " must be from pipeline_model_parallel_size " U64 " to the " U64
                            " micro-batches of a step",
                        group, pp, m);
    else if (m % group != 0 && m % group < pp)
        sim_rule_broken(c, "microbatch_group_size_per_virtual_pipeline_stage",
                        U64 " micro-batches in groups of " U64 " leave " U64
                            ", which is neither 0 nor at least pipeline_model_parallel_size " U64,
                        m, group, m % group, pp);
}

/* [precision] */

static void one_precision(sim_rule_context_t *c)
{
    if (c->s->bf16 && c->s->fp16)
        sim_rule_broken(c, "fp16", "not together with bf16 = true");
}

static void fp4_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->fp4 == SIM_FP4_NONE) {
        if (s->fp4_param_gather)
            sim_rule_broken(c, "fp4_param_gather", "needs fp4");
        return;
    }
    if (s->fp8 != SIM_FP8_NONE)
        sim_rule_broken(c, "fp4", "not together with fp8");
    if (!s->bf16)
        sim_rule_broken(c, "fp4", "needs bf16 = true, which its Hadamard transform reads");
    if (s->gpu_p != NULL && s->gpu_p->sm < 100)
        sim_rule_broken(c, "fp4", "needs a Blackwell GPU, which %s is not", s->gpu);
    if (s->tp_comm_overlap)
        sim_rule_broken(c, "fp4", "with tp_comm_overlap it is not simulated");
}

static void gather_through_gradients_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->reuse_grad_buf_for_mxfp8_param_ag &&
        (s->fp8_recipe != SIM_FP8_MXFP8 || !s->fp8_param_gather))
        sim_rule_broken(c, "reuse_grad_buf_for_mxfp8_param_ag",
                        "needs fp8_recipe = mxfp8 and fp8_param_gather = true");
}

static void stored_activation_is_swiglu(sim_rule_context_t *c)
{
    if (c->s->activation_func_fp8_input_store && c->s->activation_func != SIM_ACT_SWIGLU)
        sim_rule_broken(c, "activation_func_fp8_input_store", "needs activation_func = swiglu");
}

static void fp8_attention_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->fp8_dot_product_attention)
        return;
    if (s->fp8 == SIM_FP8_NONE)
        sim_rule_broken(c, "fp8_dot_product_attention", "needs fp8");
    if (s->multi_latent_attention || s->context_parallel_size > 1)
        sim_rule_broken(c, "fp8_dot_product_attention",
                        "with multi_latent_attention or context parallelism it is not simulated");
}

/* [recompute] */

static void full_recompute_is_complete(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->recompute_granularity != SIM_RECOMPUTE_FULL)
        return;
    if (s->recompute_method == SIM_RECOMPUTE_METHOD_NONE)
        sim_rule_broken(c, "recompute_method", "full recompute needs uniform or block");
    if (s->recompute_num_layers == 0)
        sim_rule_broken(c, "recompute_num_layers", "full recompute needs it");
}

static void selective_recompute_names_no_layers(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->recompute_granularity != SIM_RECOMPUTE_SELECTIVE)
        return;
    if (s->recompute_method != SIM_RECOMPUTE_METHOD_NONE)
        sim_rule_broken(c, "recompute_method", "not with recompute_granularity = selective");
    if (s->recompute_num_layers != 0)
        sim_rule_broken(c, "recompute_num_layers", "not with recompute_granularity = selective");
}

static void saved_activations_can_be_split(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->distribute_saved_activations)
        return;
    if (s->sequence_parallel)
        sim_rule_broken(c, "distribute_saved_activations", "not with sequence_parallel");
    if (s->tensor_model_parallel_size == 1)
        sim_rule_broken(c, "distribute_saved_activations", "needs tensor_model_parallel_size > 1");
    if (s->recompute_granularity != SIM_RECOMPUTE_FULL)
        sim_rule_broken(c, "distribute_saved_activations", "needs recompute_granularity = full");
}

/* [optimizer] */

static void overlap_needs_its_base(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->overlap_param_gather)
        return;
    if (!s->use_distributed_optimizer)
        sim_rule_broken(c, "overlap_param_gather", "needs use_distributed_optimizer = true");
    if (!s->overlap_grad_reduce)
        sim_rule_broken(c, "overlap_param_gather", "needs overlap_grad_reduce = true");
}

static void instances_divide_data_parallel(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t n = s->num_distributed_optimizer_instances;
    if (n == 1)
        return;
    if (!s->use_distributed_optimizer)
        sim_rule_broken(c, "num_distributed_optimizer_instances",
                        "needs use_distributed_optimizer = true");
    uint64_t tp_pp = s->tensor_model_parallel_size * s->pipeline_model_parallel_size;
    must_divide(c, "num_distributed_optimizer_instances", n, "data parallel size",
                s->world_size / tp_pp);
}

static void state_types_are_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    bool all_fp32 = s->main_grads_dtype == SIM_DTYPE_FP32 &&
                    s->main_params_dtype == SIM_DTYPE_FP32 && s->exp_avg_dtype == SIM_DTYPE_FP32 &&
                    s->exp_avg_sq_dtype == SIM_DTYPE_FP32;
    if (!s->use_precision_aware_optimizer) {
        if (!all_fp32)
            sim_rule_broken(c, "use_precision_aware_optimizer",
                            "must be true for optimizer types other than fp32");
        return;
    }
    if (!s->use_distributed_optimizer)
        sim_rule_broken(c, "use_precision_aware_optimizer",
                        "needs use_distributed_optimizer = true");
    if (s->optimizer != SIM_OPTIMIZER_ADAM)
        sim_rule_broken(c, "use_precision_aware_optimizer", "needs optimizer = adam");
    if (s->main_grads_dtype != SIM_DTYPE_FP32 && s->main_grads_dtype != SIM_DTYPE_BF16)
        sim_rule_broken(c, "main_grads_dtype", "must be fp32 or bf16");
    if (s->main_params_dtype != SIM_DTYPE_FP32 && s->main_params_dtype != SIM_DTYPE_FP16)
        sim_rule_broken(c, "main_params_dtype", "must be fp32 or fp16");
    if (s->accumulate_allreduce_grads_in_fp32 && s->main_grads_dtype != SIM_DTYPE_FP32)
        sim_rule_broken(c, "main_grads_dtype",
                        "must be fp32 with accumulate_allreduce_grads_in_fp32 = true");
}

/* Megatron-LM: emerging optimizers without fp16, layer-wise without instances. */
static void muon_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->optimizer != SIM_OPTIMIZER_MUON)
        return;
    if (s->fp16)
        sim_rule_broken(c, "optimizer", "muon does not go with fp16 = true");
    if (s->num_distributed_optimizer_instances > 1)
        sim_rule_broken(c, "num_distributed_optimizer_instances",
                        "must be 1 with optimizer = muon");
    if (sim_has_quantized_params(s))
        sim_rule_broken(c, "optimizer",
                        "muon is not simulated with fp8_param_gather or fp4_param_gather");
}

/* Optimizer, meta device: Megatron-LM; deferred gradients: Megatron-Bridge. The others are what is
 * not simulated. */
static void fsdp_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->use_megatron_fsdp) {
        if (s->data_parallel_sharding_strategy != SIM_FSDP_NO_SHARD)
            sim_rule_broken(c, "data_parallel_sharding_strategy", "needs use_megatron_fsdp = true");
        return;
    }
    if (s->optimizer != SIM_OPTIMIZER_ADAM && s->optimizer != SIM_OPTIMIZER_SGD)
        sim_rule_broken(c, "use_megatron_fsdp", "needs optimizer = adam or sgd");
    if (s->init_model_with_meta_device && s->data_parallel_sharding_strategy == SIM_FSDP_NO_SHARD)
        sim_rule_broken(c, "init_model_with_meta_device",
                        "does not go with data_parallel_sharding_strategy = no_shard");
    if (s->defer_embedding_wgrad_compute)
        sim_rule_broken(c, "defer_embedding_wgrad_compute",
                        "does not go with use_megatron_fsdp = true");
    if (s->num_distributed_optimizer_instances > 1)
        sim_rule_broken(c, "num_distributed_optimizer_instances",
                        "more than 1 is not simulated with use_megatron_fsdp = true");
    if (s->optimizer_cpu_offload)
        sim_rule_broken(c, "optimizer_cpu_offload",
                        "is not simulated with use_megatron_fsdp = true");
    if (sim_has_quantized_params(s))
        sim_rule_broken(c, s->fp4 != SIM_FP4_NONE ? "fp4_param_gather" : "fp8_param_gather",
                        "is not simulated with use_megatron_fsdp = true");
    if (s->model_type != SIM_MODEL_GPT)
        sim_rule_broken(c, "use_megatron_fsdp", "is simulated with model_type = gpt alone");
    if (s->mtp_num_layers > 0 && s->pipeline_model_parallel_size > 1)
        sim_rule_broken(c, "mtp_num_layers",
                        "is not simulated with use_megatron_fsdp = true and a pipeline");
    if (s->peft_scheme != SIM_PEFT_NONE)
        sim_rule_broken(c, "use_megatron_fsdp", "adapters are not simulated with it");
}

/* Megatron-LM's, but for what is not simulated. */
static void fsdp2_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    static const char key[] = "use_torch_fsdp2";
    if (!s->use_torch_fsdp2)
        return;
    if (s->pipeline_model_parallel_size > 1 || s->expert_model_parallel_size > 1)
        sim_rule_broken(c, key, "needs pipeline and expert parallel size 1");
    if (s->use_distributed_optimizer)
        sim_rule_broken(c, key, "does not go with the distributed optimizer or Megatron-FSDP");
    if (s->gradient_accumulation_fusion)
        sim_rule_broken(c, key, "needs gradient_accumulation_fusion = false");
    if (!s->untie_embeddings_and_output_weights)
        sim_rule_broken(c, key, "needs untie_embeddings_and_output_weights = true");
    if (s->fp16)
        sim_rule_broken(c, key, "does not go with fp16 = true");
    if (s->optimizer == SIM_OPTIMIZER_MUON)
        sim_rule_broken(c, key, "does not go with optimizer = muon");
    if (s->model_type != SIM_MODEL_GPT || s->mtp_num_layers > 0 ||
        s->peft_scheme != SIM_PEFT_NONE || sim_has_quantized_params(s))
        sim_rule_broken(c, key,
                        "is not simulated with other models than gpt, multi-token prediction, "
                        "adapters or FP8 parameters");
}

static void offloaded_optimizer_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->optimizer_cpu_offload)
        return;
    if (!s->use_precision_aware_optimizer)
        sim_rule_broken(c, "optimizer_cpu_offload", "needs use_precision_aware_optimizer = true");
    if (s->fp8 != SIM_FP8_NONE && s->fp8_param_gather && s->fp8_recipe != SIM_FP8_DELAYED)
        sim_rule_broken(c, "optimizer_cpu_offload",
                        "with fp8_param_gather needs fp8_recipe = delayed");
}

static void one_way_to_cut_buckets(sim_rule_context_t *c)
{
    if (c->s->ddp_bucket_size != 0 && c->s->ddp_num_buckets != 0)
        sim_rule_broken(c, "ddp_num_buckets", "not together with ddp_bucket_size");
}

/* [device] */

static void gpu_is_known(sim_rule_context_t *c)
{
    if (c->s->gpu == NULL || topo_gpu_find(c->s->gpu) == NULL)
        sim_rule_broken(c, "gpu",
                        "unknown GPU '%.40s'; `mbsim gpus` lists them, and "
                        "memory_bytes gives another capacity",
                        c->s->gpu == NULL ? "" : c->s->gpu);
}

static void something_is_left(sim_rule_context_t *c)
{
    if (c->s->reserved_outside_bytes >= c->s->memory_bytes)
        sim_rule_broken(c, "reserved_outside_bytes", U64 " leaves nothing of memory_bytes " U64,
                        c->s->reserved_outside_bytes, c->s->memory_bytes);
}

static void nccl_version_is_one(sim_rule_context_t *c)
{
    if (c->s->nccl_version != NULL && coll_nccl_version_parse(c->s->nccl_version) == 0)
        sim_rule_broken(c, "version", "'%.40s' is not a version of NCCL such as 2.28.9",
                        c->s->nccl_version);
}

static void nccl_algorithms_are_known(sim_rule_context_t *c)
{
    uint32_t algos;
    if (!coll_nccl_algo_parse(c->s->nccl_algo, &algos))
        sim_rule_broken(c, "algo",
                        "'%.40s' is not a list of Ring, Tree, NVLS, NVLSTree, PAT, CollNet, after "
                        "^ of those that may not be used",
                        c->s->nccl_algo);
}

static void links_divide_hosts(sim_rule_context_t *c)
{
    uint64_t domain = c->s->nvlink_domain, node = c->s->gpus_per_node;
    if (domain > 0 && node > 0 && domain % node != 0 && node % domain != 0)
        sim_rule_broken(c, "nvlink_domain",
                        U64 " GPUs are neither a part nor a multiple of the " U64 " of a host",
                        domain, node);
}

static void backend_has_what_is_asked(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t scale = s->device_scale;
    if (s->backend != SIM_BACKEND_HOST && scale != 1)
        sim_rule_broken(c, "scale", "only backend = host has pages to be sparing with");
    else if ((scale & (scale - 1)) != 0)
        sim_rule_broken(c, "scale", U64 " is no power of two", scale);
    if (s->backend != SIM_BACKEND_CUDA && s->ranks_per_gpu != 1)
        sim_rule_broken(c, "ranks_per_gpu", "only backend = cuda has GPUs to share");
    if (s->backend == SIM_BACKEND_SYNTHETIC && s->device_share > 0)
        sim_rule_broken(c, "share", "backend = synthetic takes no memory");
    if (s->backend == SIM_BACKEND_SYNTHETIC && s->device_fill)
        sim_rule_broken(c, "fill", "backend = synthetic has no memory to write to");
}

static void live_bytes_need_no_allocator(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->mode != SIM_MODE_LIVE)
        return;
    if (s->conf != NULL && s->conf[0] != '\0')
        sim_rule_broken(c, "conf", "there is no allocator to set with mode = live");
    if (s->addresses != SIM_PLACEMENT_REUSE)
        sim_rule_broken(c, "addresses", "there are no addresses with mode = live");
    if (s->backend != SIM_BACKEND_SYNTHETIC)
        sim_rule_broken(c, "backend", "nothing is allocated with mode = live: it needs synthetic");
}

/* Largest tensors, in elements times 8 bytes: [tokens, width], logits, attention scores. Sums of
 * thousands of them must still fit 64 bits. */
static void tensors_fit_64_bits(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t widest =
        base_u64_max(base_u64_max(s->padded_vocab_size, 2 * s->ffn_hidden_size),
                     base_u64_max(s->hidden_size, s->seq_length * s->num_attention_heads));
    widest = base_u64_max(widest, 3 * s->kv_channels * s->num_attention_heads);
    widest = base_u64_max(widest, sim_widest_of_experts_and_mla(s));
    uint64_t bytes, tokens = s->seq_length * s->micro_batch_size;
    const uint64_t limit = UINT64_C(1) << 60;
    if (!base_u64_mul(tokens, widest, &bytes) || !base_u64_mul(bytes, 8, &bytes) || bytes > limit)
        sim_rule_broken(c, "seq_length",
                        U64 " * micro_batch_size " U64 " makes tensors beyond 1 EiB", s->seq_length,
                        s->micro_batch_size);
    else if (!base_u64_mul(s->num_layers * s->hidden_size, widest, &bytes) ||
             !base_u64_mul(bytes, 64, &bytes) || bytes > limit)
        sim_rule_broken(c, "hidden_size", "parameters beyond 1 EiB");
}

/* clang-format off */
static const sim_rule_t rules[] = {
    { "num_attention_heads hidden_size kv_channels", "num_attention_heads divides hidden_size unless kv_channels is given", heads_divide_width },
    { "num_query_groups num_attention_heads", "num_query_groups divides num_attention_heads", groups_divide_heads },
    { "vocab_size preset hf_config padded_vocab_size make_vocab_size_divisible_by", "a vocabulary is given", vocabulary_is_given },
    { "max_position_embeddings seq_length position_embedding_type", "learned positions cover the sequence", positions_cover_the_sequence },
    { "gated_linear_unit activation_func", "silu or gelu can be gated", gate_fits_the_activation },
    { "bias_activation_fusion activation_func add_bias_linear", "bias_activation_fusion with gelu (and bias), geglu or swiglu", fusion_fits_the_activation },
    { "attention_backend transformer_impl", "attention_backend local goes with transformer_impl local", attention_fits_the_layers },
    { "model_type num_experts mtp_num_layers context_parallel_size multi_latent_attention pipeline_model_parallel_size num_query_groups num_attention_heads qk_layernorm attention_output_gate position_embedding_type", "T5 is a dense Transformer on one pipeline stage", sim_rule_t5_is_plain },
    { "model_type recompute_granularity fp8 fp4 scheme fine_grained_activation_offloading cpu_offloading", "T5 is simulated without recompute, FP8, adapters and offloading", sim_rule_t5_is_trained_plainly },
    { "hybrid_layer_pattern model_type multi_latent_attention mtp_num_layers transformer_impl num_experts pipeline_model_parallel_layout virtual_pipeline_model_parallel_size num_layers_per_virtual_pipeline_stage", "hybrid_layer_pattern says layers and stages", sim_rule_hybrid_is_possible },
    { "hybrid_layer_pattern scheme fine_grained_activation_offloading cpu_offloading", "a hybrid is simulated without adapters and offloading", sim_rule_hybrid_is_trained_plainly },
    { "hybrid_layer_pattern mamba_num_heads mamba_head_dim mamba_num_groups mamba_state_dim hidden_size tensor_model_parallel_size context_parallel_size seq_length micro_batch_size", "heads and groups of Mamba-2 can be split", sim_rule_mamba_can_be_split },
    { "experimental_attention_variant linear_attention_freq hybrid_layer_pattern model_type transformer_impl activation_func deterministic_mode multi_latent_attention scheme fine_grained_activation_offloading cpu_offloading recompute_modules recompute_granularity", "a gated delta net has its layers named, and silu", sim_rule_delta_net_is_possible },
    { "linear_num_key_heads linear_num_value_heads linear_key_head_dim linear_value_head_dim tensor_model_parallel_size context_parallel_size fp8 fp4 seq_length micro_batch_size", "heads of gated delta nets can be split", sim_rule_delta_net_can_be_split },
    { "decoder_seq_length model_type max_position_embeddings position_embedding_type", "learned positions cover the decoder", sim_rule_decoder_fits },
    { "overlap_p2p_communication_warmup_flush overlap_p2p_communication", "overlap in warm-up and flush needs overlap_p2p_communication", warmup_flush_overlaps_too },
    { "model_type num_experts mtp_num_layers context_parallel_size multi_latent_attention", "BERT is a dense Transformer", sim_rule_bert_is_dense },
    { "cross_entropy_loss_fusion deterministic_mode", "no fused cross-entropy in deterministic mode", deterministic_kernels_only },
    { "tensor_model_parallel_size num_attention_heads ffn_hidden_size hidden_size activation_func", "tensor_model_parallel_size divides heads and ffn_hidden_size", tensor_parallel_divides_the_model },
    { "tensor_model_parallel_size num_query_groups num_attention_heads", "tensor_model_parallel_size and num_query_groups: one divides the other", tensor_parallel_fits_the_groups },
    { "tensor_model_parallel_size padded_vocab_size vocab_size", "tensor_model_parallel_size divides padded_vocab_size", tensor_parallel_divides_the_vocabulary },
    { "context_parallel_size cp_comm_type hierarchical_context_parallel_sizes seq_length attention_backend transformer_impl num_attention_heads num_query_groups tensor_model_parallel_size", "context parallelism needs fused attention, 2 chunks a rank, with a2a heads to split", context_parallel_fits },
    { "expert_model_parallel_size num_experts", "expert parallelism needs experts, and divides them", sim_rule_experts_are_divisible },
    { "moe_router_topk num_experts", "moe_router_topk is at most num_experts", sim_rule_topk_fits },
    { "num_experts tensor_model_parallel_size sequence_parallel", "experts with tensor parallelism need sequence_parallel", sim_rule_experts_need_sequence_parallel },
    { "add_bias_linear num_experts moe_grouped_gemm expert_tensor_parallel_size bias_dropout_fusion moe_shared_expert_intermediate_size", "bias goes with experts only unsplit, unfused and unshared", sim_rule_expert_bias_is_possible },
    { "expert_tensor_parallel_size moe_ffn_hidden_size num_experts", "expert_tensor_parallel_size divides moe_ffn_hidden_size", sim_rule_expert_width_is_divisible },
    { "moe_shared_expert_intermediate_size num_experts tensor_model_parallel_size", "shared experts need experts, and their width is split", sim_rule_shared_experts_fit },
    { "use_fused_weighted_squared_relu activation_func num_experts moe_grouped_gemm add_bias_linear", "a fused squared_relu needs grouped experts without bias", sim_rule_squared_relu_can_fuse },
    { "moe_shared_expert_overlap moe_shared_expert_intermediate_size moe_token_dispatcher_type moe_latent_size", "moe_shared_expert_overlap needs shared experts and alltoall or flex", sim_rule_shared_overlap_is_possible },
    { "overlap_moe_expert_parallel_comm num_experts expert_model_parallel_size moe_token_dispatcher_type recompute_granularity recompute_modules bf16 fp16 moe_shared_expert_overlap overlap_dispatch_backward_with_experts_wgrad mtp_num_layers pipeline_model_parallel_size virtual_pipeline_model_parallel_size", "overlap_moe_expert_parallel_comm needs expert parallelism without recompute of whole layers", sim_rule_ep_overlap_is_possible },
    { "overlap_moe_expert_parallel_comm pipeline_model_parallel_size mtp_num_layers model_type hybrid_layer_pattern use_megatron_fsdp use_torch_fsdp2 framework cuda_graph_impl cpu_offloading fine_grained_activation_offloading scheme", "overlap_moe_expert_parallel_comm is simulated without a pipeline, for GPT models", sim_rule_ep_overlap_is_simulated },
    { "moe_expert_capacity_factor moe_token_dispatcher_type moe_router_load_balancing_type", "a capacity factor goes with alltoall or flex, and with an auxiliary loss or none", sim_rule_capacity_is_possible },
    { "moe_pad_expert_input_to_capacity moe_expert_capacity_factor moe_token_dispatcher_type moe_flex_dispatcher_backend", "moe_pad_expert_input_to_capacity needs a capacity factor", sim_rule_padding_has_a_capacity },
    { "moe_token_dispatcher_type moe_grouped_gemm expert_model_parallel_size expert_tensor_parallel_size", "the flex dispatcher needs more than one rank", sim_rule_flex_has_ranks },
    { "recompute_modules recompute_granularity moe_grouped_gemm multi_latent_attention moe_shared_expert_intermediate_size moe_shared_expert_overlap num_experts", "recomputed modules exist", sim_rule_recomputed_modules_exist },
    { "multi_latent_attention num_query_groups num_attention_heads attention_output_gate", "multi-latent attention has no query groups", sim_rule_mla_has_no_groups },
    { "mla_down_proj_fusion multi_latent_attention q_lora_rank", "mla_down_proj_fusion needs compressed queries", sim_rule_down_projections_can_fuse },
    { "mtp_num_layers recompute_granularity recompute_method recompute_num_layers position_embedding_type", "multi-token prediction goes with rope, and with uniform recompute of single layers", sim_rule_mtp_is_possible },
    { "tensor_model_parallel_size context_parallel_size seq_length sequence_parallel", "with sequence_parallel, tensor_model_parallel_size divides the sequence of a rank", sim_rule_sequence_is_divisible },
    { "virtual_pipeline_model_parallel_size pipeline_model_parallel_size overlap_p2p_communication", "a virtual pipeline needs 2 pipeline ranks, 3 without overlap_p2p_communication", virtual_pipeline_has_enough_ranks },
    { "num_layers_per_virtual_pipeline_stage virtual_pipeline_model_parallel_size pipeline_model_parallel_size num_layers decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers", "num_layers_per_virtual_pipeline_stage divides the layers of a rank", chunk_layers_agree },
    { "defer_embedding_wgrad_compute pipeline_model_parallel_size gradient_accumulation_fusion", "defer_embedding_wgrad_compute needs a pipeline and gradient_accumulation_fusion", deferred_wgrad_has_a_pipeline },
    { "tp_comm_overlap sequence_parallel tensor_model_parallel_size", "tp_comm_overlap needs sequence_parallel", user_buffers_need_sequence_parallel },
    { "global_batch_size micro_batch_size world_size tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size", "global_batch_size is a multiple of micro_batch_size * data parallel size", batch_is_divisible },
    { "microbatch_group_size_per_virtual_pipeline_stage global_batch_size micro_batch_size world_size virtual_pipeline_model_parallel_size pipeline_model_parallel_size", "micro-batches can be grouped for the interleaved schedule", microbatch_groups_fit },
    { "pipeline_schedule pipeline_model_parallel_size global_batch_size micro_batch_size world_size gradient_accumulation_fusion overlap_grad_reduce untie_embeddings_and_output_weights defer_embedding_wgrad_compute tp_comm_overlap microbatch_group_size_per_virtual_pipeline_stage overlap_p2p_communication_warmup_flush use_megatron_fsdp use_torch_fsdp2 scheme fine_grained_activation_offloading mtp_num_layers model_type", "schedules that split the backward pass have a pipeline and fused gradients", sim_rule_backward_can_be_split },
    { "overlap_dispatch_backward_with_experts_wgrad num_experts moe_grouped_gemm transformer_impl pipeline_schedule scheme use_megatron_fsdp", "gradients of experts' weights are delayed by grouped linears of Transformer Engine", sim_rule_experts_can_be_delayed },
    { "preset hf_config", "preset or hf_config, not both", one_description },
    { "fp16 bf16", "bf16 or fp16, not both", one_precision },
    { "fp4 fp4_param_gather fp8 bf16 gpu tp_comm_overlap", "fp4 needs Blackwell and goes without fp8", fp4_is_possible },
    { "fp8_dot_product_attention fp8 multi_latent_attention context_parallel_size", "fp8_dot_product_attention needs fp8", fp8_attention_is_possible },
    { "activation_func_fp8_input_store activation_func", "activation_func_fp8_input_store needs swiglu", stored_activation_is_swiglu },
    { "reuse_grad_buf_for_mxfp8_param_ag fp8_recipe fp8_param_gather", "reuse_grad_buf_for_mxfp8_param_ag needs MXFP8 parameters", gather_through_gradients_is_possible },
    { "recompute_granularity recompute_method recompute_num_layers", "full recompute needs method and number of layers", full_recompute_is_complete },
    { "recompute_granularity recompute_method recompute_num_layers", "selective recompute takes neither method nor number of layers", selective_recompute_names_no_layers },
    { "distribute_saved_activations sequence_parallel tensor_model_parallel_size recompute_granularity", "distribute_saved_activations needs full recompute and tensor parallelism without sequence_parallel", saved_activations_can_be_split },
    { "overlap_param_gather use_distributed_optimizer overlap_grad_reduce", "overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce", overlap_needs_its_base },
    { "num_distributed_optimizer_instances use_distributed_optimizer world_size tensor_model_parallel_size pipeline_model_parallel_size", "num_distributed_optimizer_instances divides the data parallel size", instances_divide_data_parallel },
    { "use_precision_aware_optimizer use_distributed_optimizer optimizer main_grads_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype accumulate_allreduce_grads_in_fp32", "optimizer types need use_precision_aware_optimizer, the distributed optimizer and Adam", state_types_are_possible },
    { "optimizer fp16 num_distributed_optimizer_instances fp8_param_gather fp4_param_gather", "muon goes without fp16, optimizer instances and FP8 or FP4 parameters", muon_is_possible },
    { "mean_seq_length seq_length moments tensor_model_parallel_size context_parallel_size expert_model_parallel_size use_megatron_fsdp use_torch_fsdp2 framework model_type pipeline_schedule cuda_graph_impl", "micro-batches of different lengths are parts of the longest", sim_rule_lengths_are_possible },
    { "moments iterations framework use_megatron_fsdp use_torch_fsdp2 optimizer_cpu_offload model_type mtp_num_layers pipeline_schedule cuda_graph_impl dist_ckpt_optim_fully_reshardable distrib_optim_fully_reshardable_mem_efficient", "moments beside the steps are of Megatron's own data parallelism", sim_rule_moments_are_possible },
    { "use_megatron_fsdp data_parallel_sharding_strategy optimizer num_distributed_optimizer_instances optimizer_cpu_offload fp8 fp8_param_gather fp4 fp4_param_gather mtp_num_layers pipeline_model_parallel_size scheme init_model_with_meta_device defer_embedding_wgrad_compute", "Megatron-FSDP goes with adam and sgd", fsdp_is_possible },
    { "framework model_type expert_model_parallel_size normalization activation_func position_embedding_type rotary_percent add_bias_linear add_qkv_bias untie_embeddings_and_output_weights attention_dropout hidden_dropout", "torchtitan trains Llama-like models", sim_rule_titan_model },
    { "framework bf16 fp8 fp8_recipe fp4 compile_model enable_fsdp_float8_all_gather optimizer gradient_accumulation_fusion deallocate_pipeline_outputs", "torchtitan trains in bf16 with AdamW", sim_rule_titan_training },
    { "framework world_size tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size data_parallel_replicate_degree sequence_parallel compile_model compile_loss", "torchtitan shards over more than one rank", sim_rule_titan_parallel },
    { "selective_ac_option", "selective_ac_option is op or a number", sim_rule_titan_checkpoints },
    { "framework", "keys that only one program reads have their defaults in a job of the other", sim_rule_keys_are_of_the_framework },
    { "use_torch_fsdp2 pipeline_model_parallel_size expert_model_parallel_size use_distributed_optimizer gradient_accumulation_fusion untie_embeddings_and_output_weights fp16 optimizer mtp_num_layers scheme fp8_param_gather fp4_param_gather", "FSDP2 goes without pipeline, expert parallelism, distributed optimizer and fused gradients", fsdp2_is_possible },
    { "optimizer_cpu_offload use_precision_aware_optimizer fp8 fp8_param_gather fp8_recipe", "optimizer_cpu_offload needs use_precision_aware_optimizer", offloaded_optimizer_is_possible },
    { "ddp_num_buckets ddp_bucket_size", "ddp_bucket_size or ddp_num_buckets, not both", one_way_to_cut_buckets },
    { "dim scheme tensor_model_parallel_size", "the rank of adapters is split over tensor parallel ranks", sim_rule_adapters_can_be_split },
    { "scheme target_modules transformer_impl defer_embedding_wgrad_compute", "adapters need linears of Transformer Engine", sim_rule_adapters_have_layers },
    { "target_modules scheme multi_latent_attention mla_down_proj_fusion", "adapters have linears", sim_rule_adapters_have_linears },
    { "scheme dropout_position sequence_parallel_input_regather a2a_experimental num_experts", "DoRA has dropout before the adapter, and neither re-gather nor experts", sim_rule_dora_is_possible },
    { "normalize_moe_lora dim moe_router_topk num_experts scheme", "normalize_moe_lora needs a rank that moe_router_topk divides", sim_rule_expert_rank_is_divisible },
    { "cpu_offloading cpu_offloading_num_layers cpu_offloading_activations cpu_offloading_weights num_layers pipeline_model_parallel_size recompute_granularity fine_grained_activation_offloading transformer_impl", "cpu_offloading needs fewer layers than there are, no pipeline and no recompute", sim_rule_layers_can_be_offloaded },
    { "fine_grained_activation_offloading offload_modules transformer_impl recompute_granularity recompute_modules", "offload_modules go together and are not recomputed", sim_rule_modules_can_be_offloaded },
    { "cuda_graph_impl cuda_graph_modules cpu_offloading check_for_nan_in_loss_and_grad transformer_impl conf graph_register", "CUDA graphs go without cpu_offloading and, with expandable segments, without NCCL's registration", sim_rule_graphs_are_possible },
    { "cuda_graph_modules cuda_graph_impl num_experts num_layers moe_layer_freq moe_expert_capacity_factor moe_pad_expert_input_to_capacity moe_token_dispatcher_type", "cuda_graph_modules go together", sim_rule_graph_modules_go_together },
    { "cuda_graph_impl cuda_graph_modules recompute_granularity recompute_modules attention_dropout hidden_dropout", "recomputed modules lie inside or outside of a graph", sim_rule_graphs_do_not_cut_recompute },
    { "cuda_graph_impl cuda_graph_modules framework pipeline_schedule model_type use_megatron_fsdp use_torch_fsdp2 fine_grained_activation_offloading num_experts", "CUDA graphs are simulated for GPT and hybrids without FSDP and offloading", sim_rule_graphs_are_simulated },
    { "gpu", "the GPU is known", gpu_is_known },
    { "reserved_outside_bytes memory_bytes gpu", "reserved_outside_bytes leaves memory to use", something_is_left },
    { "version", "the version of NCCL can be read", nccl_version_is_one },
    { "algo", "NCCL's algorithms are known", nccl_algorithms_are_known },
    { "nvlink_domain gpus_per_node gpu", "NVLink joins parts of hosts or whole hosts", links_divide_hosts },
    { "backend scale share ranks_per_gpu fill", "the backend has what is asked of it", backend_has_what_is_asked },
    { "mode conf addresses backend", "mode live has no allocator to set", live_bytes_need_no_allocator },
    { "seq_length micro_batch_size num_layers hidden_size num_attention_heads kv_channels ffn_hidden_size padded_vocab_size", "sizes fit 64 bits", tensors_fit_64_bits },
};
/* clang-format on */

const sim_rule_t *sim_rules(size_t *n_p)
{
    *n_p = sizeof(rules) / sizeof(rules[0]);
    return rules;
}

bool sim_key_is_usable(const sim_scenario_t *scenario, const char *key)
{
    size_t n;
    size_t k = sim_key_index(key);
    const sim_key_t *row = &sim_keys(&n)[k];
    if (scenario->state->entries[k].how == SIM_KEY_WRONG)
        return false;
    return row->type != SIM_KEY_COUNT || row->none != NULL || row->min == 0 ||
           *(const uint64_t *)((const char *)scenario + row->offset) != 0;
}

static bool all_usable(const sim_scenario_t *scenario, const char *keys)
{
    for (const char *s = keys; *s != '\0'; s += strspn(s, " ")) {
        char key[64];
        size_t n = strcspn(s, " ");
        snprintf(key, sizeof(key), "%.*s", (int)n, s);
        if (!sim_key_is_usable(scenario, key))
            return false;
        s += n;
    }
    return true;
}

/* Keys whose default lies outside their range have to be given. */
static void check_required(sim_rule_context_t *c)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    bool described = sim_key_is_usable(c->s, "preset") && sim_key_is_usable(c->s, "hf_config");
    for (size_t i = 0; i < n; i++) {
        if (!described && strcmp(keys[i].section, "model") == 0)
            continue; /* the unknown model would have said it */
        if (!sim_key_is_usable(c->s, keys[i].name) && c->s->state->entries[i].how != SIM_KEY_WRONG)
            sim_rule_broken(c, keys[i].name, "required: %s", keys[i].doc);
    }
}

bool sim_rules_check(const sim_scenario_t *scenario, base_diag_t *diag, const char **broken_p)
{
    sim_rule_context_t context = { .s = scenario, .diag = diag, .ok = true };
    check_required(&context);
    *broken_p = context.ok ? NULL : "required keys are given";
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (all_usable(scenario, rules[i].keys))
            rules[i].check(&context);
        if (!context.ok && *broken_p == NULL)
            *broken_p = rules[i].text;
    }
    return context.ok;
}
