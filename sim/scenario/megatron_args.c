/* SPDX-License-Identifier: Apache-2.0
 * Source of the tables: Megatron-LM megatron/training/arguments.py and the dataclasses from which
 * it builds arguments (ArgumentGroupFactory), commit d98e8a64 (mcore 0.20.0), and the arguments of
 * earlier releases back to 2022. */
#include "config.h"

#include "sim/scenario/megatron_args.h"

#include <stdio.h>
#include <string.h>

/* "name" is a flag, "name=" takes one word, "name*" takes a list. */
typedef struct {
    const char *spec;
    const char *attribute; /* NULL = the name with underscores */
    bool negated;
    const char *key, *harmless;
} row_t;

/* clang-format off */
static const row_t keys[] = {
    { "num-layers=", NULL, false, NULL, NULL },
    { "encoder-num-layers=", NULL, false, NULL, NULL },
    { "hidden-size=", NULL, false, "model.hidden_size", NULL },
    { "ffn-hidden-size=", NULL, false, NULL, NULL },
    { "num-attention-heads=", NULL, false, "model.num_attention_heads", NULL },
    { "group-query-attention", NULL, false, NULL, NULL },
    { "num-query-groups=", NULL, false, NULL, NULL },
    { "kv-channels=", NULL, false, "model.kv_channels", NULL },
    { "vocab-size=", NULL, false, NULL, NULL },
    { "padded-vocab-size=", NULL, false, NULL, NULL },
    { "no-pad-vocab-size", "pad_vocab_size", true, NULL, NULL },
    { "tokenizer-type=", NULL, false, NULL, NULL },
    { "make-vocab-size-divisible-by=", NULL, false, "model.make_vocab_size_divisible_by", NULL },
    { "max-position-embeddings=", NULL, false, "model.max_position_embeddings", NULL },
    { "swiglu", NULL, false, NULL, NULL },
    { "squared-relu", NULL, false, NULL, NULL },
    { "quick-geglu", NULL, false, NULL, NULL },
    { "normalization=", NULL, false, "model.normalization", NULL },
    { "position-embedding-type=", NULL, false, NULL, NULL },
    { "use-rotary-position-embeddings", NULL, false, NULL, NULL },
    { "no-position-embedding", "add_position_embedding", true, NULL, NULL },
    { "rotary-percent=", NULL, false, "model.rotary_percent", NULL },
    { "disable-bias-linear", "add_bias_linear", true, NULL, NULL },
    { "add-qkv-bias", NULL, false, NULL, NULL },
    { "untie-embeddings-and-output-weights", NULL, false, "model.untie_embeddings_and_output_weights", NULL },
    { "qk-layernorm", NULL, false, "model.qk_layernorm", NULL },
    { "attention-output-gate", NULL, false, "model.attention_output_gate", NULL },
    { "attention-dropout=", NULL, false, "model.attention_dropout", NULL },
    { "hidden-dropout=", NULL, false, "model.hidden_dropout", NULL },
    { "tensor-model-parallel-size=", NULL, false, "parallel.tensor_model_parallel_size", NULL },
    { "pipeline-model-parallel-size=", NULL, false, "parallel.pipeline_model_parallel_size", NULL },
    { "num-virtual-stages-per-pipeline-rank=", NULL, false, NULL, NULL },
    { "num-layers-per-virtual-pipeline-stage=", NULL, false, NULL, NULL },
    { "virtual-pipeline-model-parallel-size=", NULL, false, NULL, NULL },
    { "microbatch-group-size-per-virtual-pipeline-stage=", "microbatch_group_size_per_vp_stage", false, "parallel.microbatch_group_size_per_virtual_pipeline_stage", NULL },
    { "context-parallel-size=", NULL, false, "parallel.context_parallel_size", NULL },
    { "hierarchical-context-parallel-sizes*", NULL, false, "parallel.hierarchical_context_parallel_sizes", NULL },
    { "cp-comm-type*", NULL, false, "parallel.cp_comm_type", NULL },
    { "expert-model-parallel-size=", NULL, false, "parallel.expert_model_parallel_size", NULL },
    { "expert-tensor-parallel-size=", NULL, false, "parallel.expert_tensor_parallel_size", NULL },
    { "sequence-parallel", NULL, false, NULL, NULL },
    { "use-tp-pp-dp-mapping", NULL, false, "parallel.use_tp_pp_dp_mapping", NULL },
    { "decoder-first-pipeline-num-layers=", NULL, false, "parallel.decoder_first_pipeline_num_layers", NULL },
    { "decoder-last-pipeline-num-layers=", NULL, false, "parallel.decoder_last_pipeline_num_layers", NULL },
    { "account-for-embedding-in-pipeline-split", NULL, false, "parallel.account_for_embedding_in_pipeline_split", NULL },
    { "account-for-loss-in-pipeline-split", NULL, false, "parallel.account_for_loss_in_pipeline_split", NULL },
    { "pipeline-model-parallel-layout=", NULL, false, NULL, NULL },
    { "no-overlap-p2p-communication", "overlap_p2p_comm", true, NULL, NULL },
    { "overlap-p2p-communication-warmup-flush", "overlap_p2p_comm_warmup_flush", false, "parallel.overlap_p2p_communication_warmup_flush", NULL },
    { "overlap-p2p-communication", NULL, false, NULL, NULL },
    { "defer-embedding-wgrad-compute", NULL, false, "parallel.defer_embedding_wgrad_compute", NULL },
    { "wgrad-deferral-limit=", NULL, false, NULL, NULL },
    { "enable-zero-bubble", NULL, false, NULL, NULL },
    { "zero-bubble-v-schedule", NULL, false, NULL, NULL },
    { "zero-bubble-v-schedule-mem-setup=", NULL, false, NULL, NULL },
    { "zero-bubble-max-pending-backward=", NULL, false, NULL, NULL },
    { "tp-comm-overlap", NULL, false, "parallel.tp_comm_overlap", NULL },
    { "micro-batch-size=", NULL, false, "train.micro_batch_size", NULL },
    { "global-batch-size=", NULL, false, NULL, NULL },
    { "rampup-batch-size*", NULL, false, NULL, NULL },
    { "step-batch-size-schedule*", NULL, false, NULL, NULL },
    { "decoder-num-layers=", NULL, false, "model.decoder_num_layers", NULL },
    { "decoder-seq-length=", NULL, false, "train.decoder_seq_length", NULL },
    { "vocab-extra-ids=", NULL, false, NULL, NULL },
    { "hybrid-layer-pattern=", NULL, false, NULL, NULL },
    { "hybrid-override-pattern=", NULL, false, NULL, NULL },
    { "is-hybrid-model", NULL, false, NULL, NULL },
    { "spec*", NULL, false, NULL, NULL },
    { "experimental-attention-variant=", NULL, false, "model.experimental_attention_variant", NULL },
    { "linear-attention-freq=", NULL, false, "model.linear_attention_freq", NULL },
    { "linear-conv-kernel-dim=", NULL, false, "model.linear_conv_kernel_dim", NULL },
    { "linear-key-head-dim=", NULL, false, "model.linear_key_head_dim", NULL },
    { "linear-value-head-dim=", NULL, false, "model.linear_value_head_dim", NULL },
    { "linear-num-key-heads=", NULL, false, "model.linear_num_key_heads", NULL },
    { "linear-num-value-heads=", NULL, false, "model.linear_num_value_heads", NULL },
    { "mamba-state-dim=", NULL, false, "model.mamba_state_dim", NULL },
    { "mamba-head-dim=", NULL, false, "model.mamba_head_dim", NULL },
    { "mamba-num-groups=", NULL, false, "model.mamba_num_groups", NULL },
    { "mamba-num-heads=", NULL, false, "model.mamba_num_heads", NULL },
    { "seq-length=", NULL, false, NULL, NULL },
    { "encoder-seq-length=", NULL, false, NULL, NULL },
    { "no-create-attention-mask-in-dataloader", "create_attention_mask_in_dataloader", true, NULL, NULL },
    { "attention-backend=", NULL, false, NULL, NULL },
    { "use-flash-attn", NULL, false, NULL, NULL },
    { "transformer-impl=", NULL, false, NULL, NULL },
    { "no-rope-fusion", "apply_rope_fusion", true, NULL, NULL },
    { "no-bias-gelu-fusion", "bias_gelu_fusion", true, NULL, NULL },
    { "no-bias-swiglu-fusion", "bias_swiglu_fusion", true, NULL, NULL },
    { "no-bias-dropout-fusion", "bias_dropout_fusion", true, NULL, NULL },
    { "no-masked-softmax-fusion", "masked_softmax_fusion", true, NULL, NULL },
    { "no-gradient-accumulation-fusion", "gradient_accumulation_fusion", true, NULL, NULL },
    { "cross-entropy-loss-fusion", NULL, false, "train.cross_entropy_loss_fusion", NULL },
    { "cross-entropy-fusion-impl=", NULL, false, "train.cross_entropy_fusion_impl", NULL },
    { "deterministic-mode", NULL, false, "train.deterministic_mode", NULL },
    { "bert-no-binary-head", NULL, true, "model.bert_binary_head", NULL },
    { "empty-unused-memory-level=", NULL, false, "train.empty_unused_memory_level", NULL },
    { "no-check-for-nan-in-loss-and-grad", "check_for_nan_in_loss_and_grad", true, NULL, NULL },
    { "loss-scale=", NULL, false, NULL, NULL },
    { "attention-softmax-in-fp32", NULL, false, "model.attention_softmax_in_fp32", NULL },
    { "apply-query-key-layer-scaling", NULL, false, "model.apply_query_key_layer_scaling", NULL },
    { "rotary-interleaved", NULL, false, "model.rotary_interleaved", NULL },
    { "num-experts=", NULL, false, "moe.num_experts", NULL },
    { "moe-router-topk=", NULL, false, "moe.moe_router_topk", NULL },
    { "moe-ffn-hidden-size=", NULL, false, "moe.moe_ffn_hidden_size", NULL },
    { "moe-shared-expert-intermediate-size=", NULL, false, "moe.moe_shared_expert_intermediate_size", NULL },
    { "use-fused-weighted-squared-relu", NULL, false, "moe.use_fused_weighted_squared_relu", NULL },
    { "overlap-dispatch-backward-with-experts-wgrad", NULL, false, "moe.overlap_dispatch_backward_with_experts_wgrad", NULL },
    { "moe-shared-expert-overlap", NULL, false, "moe.moe_shared_expert_overlap", NULL },
    { "overlap-moe-expert-parallel-comm", NULL, false, "parallel.overlap_moe_expert_parallel_comm", NULL },
    { "moe-shared-expert-gate", NULL, false, "moe.moe_shared_expert_gate", NULL },
    { "moe-router-score-function=", NULL, false, "moe.moe_router_score_function", NULL },
    { "moe-router-dtype=", NULL, false, "moe.moe_router_dtype", NULL },
    { "moe-router-enable-expert-bias", NULL, false, "moe.moe_router_enable_expert_bias", NULL },
    { "moe-router-pre-softmax", NULL, false, "moe.moe_router_pre_softmax", NULL },
    { "moe-grouped-gemm", NULL, false, "moe.moe_grouped_gemm", NULL },
    { "moe-token-dispatcher-type=", NULL, false, "moe.moe_token_dispatcher_type", NULL },
    { "moe-enable-deepep", NULL, false, NULL, NULL },
    { "moe-flex-dispatcher-backend=", NULL, false, "moe.moe_flex_dispatcher_backend", NULL },
    { "moe-expert-capacity-factor=", NULL, false, "moe.moe_expert_capacity_factor", NULL },
    { "moe-pad-expert-input-to-capacity", NULL, false, "moe.moe_pad_expert_input_to_capacity", NULL },
    { "moe-permute-fusion", NULL, false, "moe.moe_permute_fusion", NULL },
    { "moe-router-fusion", NULL, false, "moe.moe_router_fusion", NULL },
    { "moe-latent-size=", NULL, false, "moe.moe_latent_size", NULL },
    { "moe-layer-freq=", NULL, false, "moe.moe_layer_freq", NULL },
    { "moe-router-load-balancing-type*", NULL, false, "moe.moe_router_load_balancing_type", NULL },
    { "moe-aux-loss-coeff*", NULL, false, "moe.moe_aux_loss_coeff", NULL },
    { "moe-z-loss-coeff=", NULL, false, "moe.moe_z_loss_coeff", NULL },
    { "multi-latent-attention", NULL, false, "model.multi_latent_attention", NULL },
    { "q-lora-rank=", NULL, false, "model.q_lora_rank", NULL },
    { "kv-lora-rank=", NULL, false, "model.kv_lora_rank", NULL },
    { "qk-head-dim=", NULL, false, "model.qk_head_dim", NULL },
    { "qk-pos-emb-head-dim=", NULL, false, "model.qk_pos_emb_head_dim", NULL },
    { "v-head-dim=", NULL, false, "model.v_head_dim", NULL },
    { "mla-down-proj-fusion", NULL, false, "model.mla_down_proj_fusion", NULL },
    { "mtp-num-layers=", NULL, false, NULL, NULL },
    { "dist-ckpt-optim-fully-reshardable", NULL, false, "run.dist_ckpt_optim_fully_reshardable", NULL },
    { "distrib-optim-fully-reshardable-mem-efficient", NULL, false, "run.distrib_optim_fully_reshardable_mem_efficient", NULL },
    { "mtp-use-repeated-layer", NULL, false, "model.mtp_use_repeated_layer", NULL },
    { "mtp-hybrid-override-pattern=", NULL, false, NULL, NULL },
    { "bf16", NULL, false, "precision.bf16", NULL },
    { "fp8-format=", "fp8", false, "precision.fp8", NULL },
    { "fp8-recipe=", NULL, false, "precision.fp8_recipe", NULL },
    { "fp8-param-gather", NULL, false, "precision.fp8_param_gather", NULL },
    { "fp4-format=", "fp4", false, "precision.fp4", NULL },
    { "fp4-param-gather", NULL, false, "precision.fp4_param_gather", NULL },
    { "reuse-grad-buf-for-mxfp8-param-ag", NULL, false, "precision.reuse_grad_buf_for_mxfp8_param_ag", NULL },
    { "first-last-layers-bf16", NULL, false, "precision.first_last_layers_bf16", NULL },
    { "num-layers-at-start-in-bf16=", NULL, false, "precision.num_layers_at_start_in_bf16", NULL },
    { "num-layers-at-end-in-bf16=", NULL, false, "precision.num_layers_at_end_in_bf16", NULL },
    { "fp16", NULL, false, "precision.fp16", NULL },
    { "grad-reduce-in-bf16", NULL, false, NULL, NULL },
    { "accumulate-allreduce-grads-in-fp32", NULL, false, NULL, NULL },
    { "recompute-activations", NULL, false, NULL, NULL },
    { "recompute-granularity=", NULL, false, NULL, NULL },
    { "recompute-method=", NULL, false, "recompute.recompute_method", NULL },
    { "recompute-num-layers=", NULL, false, "recompute.recompute_num_layers", NULL },
    { "recompute-modules*", NULL, false, NULL, NULL },
    { "distribute-saved-activations", NULL, false, "recompute.distribute_saved_activations", NULL },
    { "optimizer=", NULL, false, NULL, NULL },
    { "use-distributed-optimizer", NULL, false, "optimizer.use_distributed_optimizer", NULL },
    { "overlap-grad-reduce", NULL, false, "optimizer.overlap_grad_reduce", NULL },
    { "overlap-param-gather", NULL, false, "optimizer.overlap_param_gather", NULL },
    { "ddp-bucket-size=", NULL, false, "optimizer.ddp_bucket_size", NULL },
    { "ddp-num-buckets=", NULL, false, "optimizer.ddp_num_buckets", NULL },
    { "ddp-pad-buckets-for-high-nccl-busbw", NULL, false, "optimizer.ddp_pad_buckets_for_high_nccl_busbw", NULL },
    { "num-distributed-optimizer-instances=", NULL, false, "optimizer.num_distributed_optimizer_instances", NULL },
    { "use-precision-aware-optimizer", NULL, false, "optimizer.use_precision_aware_optimizer", NULL },
    { "main-grads-dtype=", NULL, false, "optimizer.main_grads_dtype", NULL },
    { "main-params-dtype=", NULL, false, "optimizer.main_params_dtype", NULL },
    { "exp-avg-dtype=", NULL, false, "optimizer.exp_avg_dtype", NULL },
    { "exp-avg-sq-dtype=", NULL, false, "optimizer.exp_avg_sq_dtype", NULL },
    { "use-megatron-fsdp", NULL, false, "optimizer.use_megatron_fsdp", NULL },
    { "use-custom-fsdp", NULL, false, "optimizer.use_megatron_fsdp", NULL },
    { "data-parallel-sharding-strategy=", NULL, false, NULL, NULL },
    { "use-torch-fsdp2", NULL, false, "optimizer.use_torch_fsdp2", NULL },
    { "torch-fsdp2-no-reshard-after-forward", "torch_fsdp2_reshard_after_forward", true, NULL, NULL },
    { "init-model-with-meta-device", NULL, false, "optimizer.init_model_with_meta_device", NULL },
    { "fsdp-double-buffer", NULL, false, "optimizer.fsdp_double_buffer", NULL },
    { "megatron-fsdp-main-params-dtype=", NULL, false, "optimizer.megatron_fsdp_main_params_dtype", NULL },
    { "megatron-fsdp-main-grads-dtype=", NULL, false, "optimizer.megatron_fsdp_main_grads_dtype", NULL },
    { "megatron-fsdp-grad-comm-dtype=", NULL, false, "optimizer.megatron_fsdp_grad_comm_dtype", NULL },
    { "suggested-communication-unit-size=", NULL, false, "optimizer.suggested_communication_unit_size", NULL },
    { "optimizer-cpu-offload", NULL, false, "optimizer.optimizer_cpu_offload", NULL },
    { "optimizer-offload-fraction=", NULL, false, "optimizer.optimizer_offload_fraction", NULL },
    { "no-use-layer-wise-param-layout", "use_layer_wise_param_layout", true, NULL, NULL },
    { "muon-no-split-qkv", "muon_split_qkv", true, NULL, NULL },
    { "muon-nesterov", NULL, false, "optimizer.muon_nesterov", NULL },
    { "muon-tp-mode=", NULL, false, "optimizer.muon_tp_mode", NULL },
    { "muon-fp32-matmul-prec=", NULL, false, "optimizer.muon_fp32_matmul_prec", NULL },
    { "muon-scalar-optimizer=", NULL, false, "optimizer.muon_scalar_optimizer", NULL },
    { "log-params-norm", NULL, false, "optimizer.log_params_norm", NULL },
    { "log-num-zeros-in-grad", NULL, false, "optimizer.log_num_zeros_in_grad", NULL },
    { "cpu-offloading-num-layers=", NULL, false, "offload.cpu_offloading_num_layers", NULL },
    { "fine-grained-activation-offloading", NULL, false, "offload.fine_grained_activation_offloading", NULL },
    { "offload-modules*", NULL, false, "offload.offload_modules", NULL },
    { "min-offloaded-tensor-size=", NULL, false, "offload.min_offloaded_tensor_size", NULL },
    { "activation-offload-fraction=", NULL, false, "offload.activation_offload_fraction", NULL },
    { "decoupled-lr=", NULL, false, NULL, NULL },
    { "cuda-graph-impl=", NULL, false, "train.cuda_graph_impl", "none" },
    { "enable-cuda-graph", NULL, false, NULL, NULL },
    { "external-cuda-graph", NULL, false, NULL, NULL },
    { "cuda-graph-modules*", NULL, false, "train.cuda_graph_modules", NULL },
    { "cuda-graph-scope*", NULL, false, "train.cuda_graph_modules", NULL },
    { "cuda-graph-warmup-steps=", NULL, false, "train.cuda_graph_warmup_steps", NULL },
    { "disable-pad-vocab-size", "pad_vocab_size", true, NULL, NULL },
};

static const row_t unsupported[] = {
    { "apply-residual-connection-post-layernorm", NULL, false, NULL, NULL },
    { "fp32-residual-connection", NULL, false, NULL, NULL },
    { "activations-checkpoint-method=", NULL, false, NULL, NULL },
    { "activations-checkpoint-num-layers=", NULL, false, NULL, NULL },
    { "distribute-checkpointed-activations", NULL, false, NULL, NULL },
    { "empty-unused-memory-each-iter", NULL, false, NULL, NULL },
    { "fp32-embedding", NULL, false, NULL, NULL },
    { "multi-query-attention", NULL, false, NULL, NULL },
    { "no-scaled-masked-softmax-fusion", NULL, false, NULL, NULL },
    { "num-unique-layers=", NULL, false, NULL, NULL },
    { "fp8-hybrid", NULL, false, NULL, NULL },
    { "fp8-e4m3", NULL, false, NULL, NULL },
    { "te-precision-config-file=", NULL, false, NULL, NULL },
    { "kitchen-config-file=", NULL, false, NULL, NULL },
    { "kitchen-recipe-number=", NULL, false, NULL, NULL },
    { "use-kitchen-attention", NULL, false, NULL, NULL },
    { "hybrid-attention-ratio=", NULL, false, NULL, "0.0" },
    { "hybrid-mlp-ratio=", NULL, false, NULL, "0.0" },
    { "megatron-fsdp-version=", NULL, false, NULL, "1" },
    { "megatron-fsdp-enable-fine-grained-param-gather", NULL, false, NULL, NULL },
    { "megatron-fsdp-max-pool-double-buffer", NULL, false, NULL, NULL },
    { "outer-dp-sharding-strategy=", NULL, false, NULL, "no_shard" },
    { "enable-full-sharding-in-hsdp", NULL, false, NULL, NULL },
    { "optimizer-cuda-graph", NULL, false, NULL, NULL },
    { "cuda-graph-retain-backward-graph", NULL, false, NULL, NULL },
    { "delta-offload-bytes-across-pp-ranks=", NULL, false, NULL, "0" },
    { "moe-paged-stash", NULL, false, NULL, NULL },
    { "perform-rl-step", NULL, false, NULL, NULL },
    { "enable-mhc-connections", NULL, false, NULL, NULL },
    { "heterogeneous-layers-config-path=", NULL, false, NULL, NULL },
    { "heterogeneous-layers-config-encoded-json=", NULL, false, NULL, NULL },
    { "tensor-parallel-num-weight-shards=", NULL, false, NULL, NULL },
    { "expert-tensor-parallel-num-weight-shards=", NULL, false, NULL, NULL },
    { "hybrid-context-parallel", NULL, false, NULL, NULL },
    { "use-nccl-ub", "nccl_ub", false, NULL, NULL },
    { "delay-wgrad-compute", NULL, false, NULL, NULL },
    { "enable-1f1b-v", NULL, false, NULL, NULL },
    { "interleave-group-size=", NULL, false, NULL, "0" },
    { "num-seq-splits=", NULL, false, NULL, "1" },
    { "enable-optimizer-post-validation", NULL, false, NULL, NULL },
    { "offload-chunk-num=", NULL, false, NULL, "0" },
    { "ddp-reduce-scatter-with-fp32-accumulation", NULL, false, NULL, NULL },
    { "ddp-param-name-patterns-for-fp32-local-accumulation*", NULL, false, NULL, NULL },
    { "no-clone-scatter-output-in-embedding", "clone_scatter_output_in_embedding", true, NULL, NULL },
    { "use-te-activation-func", NULL, false, NULL, NULL },
    { "use-transformer-engine-op-fuser", NULL, false, NULL, NULL },
    { "fused-residual-rmsnorm", NULL, false, NULL, NULL },
    { "output-logit-dtype=", "logit_dtype", false, NULL, NULL },
    { "fp16-lm-cross-entropy", NULL, false, NULL, NULL },
    { "freeze-all-layers", NULL, false, NULL, NULL },
    { "logits-save-dir=", NULL, false, NULL, NULL },
    { "logits-load-dir=", NULL, false, NULL, NULL },
    { "sft", NULL, false, NULL, NULL },
    { "save-activations-interval=", NULL, false, NULL, NULL },
    { "save-wgrads-interval=", NULL, false, NULL, NULL },
    { "save-dgrads-interval=", NULL, false, NULL, NULL },
    { "mlp-chunks-for-training=", NULL, false, NULL, "1" },
    { "batch-invariant-mode", NULL, false, NULL, NULL },
    { "window-size=", NULL, false, NULL, NULL },
    { "softmax-type=", NULL, false, NULL, "vanilla" },
    { "qk-l2-norm", NULL, false, NULL, NULL },
    { "qk-clip", NULL, false, NULL, NULL },
    { "log-max-attention-logit", NULL, false, NULL, NULL },
    { "glu-linear-offset=", NULL, false, NULL, "0.0" },
    { "activation-func-clamp-value=", NULL, false, NULL, NULL },
    { "no-rope-freq=", NULL, false, NULL, NULL },
    { "openai-gelu", NULL, false, NULL, NULL },
    { "yaml-cfg=", NULL, false, NULL, NULL },
    { "use-legacy-models", NULL, false, NULL, NULL },
    { "encoder-tensor-model-parallel-size=", NULL, false, NULL, "0" },
    { "encoder-pipeline-model-parallel-size=", NULL, false, NULL, "0" },
    { "retro-add-retriever", NULL, false, NULL, NULL },
    { "standalone-embedding-stage", NULL, false, NULL, NULL },
    { "embedding-weights-in-fp32", NULL, false, NULL, NULL },
    { "dataloader-inter-document-masking", NULL, false, NULL, NULL },
    { "vision-pretraining", NULL, false, NULL, NULL },
    { "export-te-mcore-model", NULL, false, NULL, NULL },
    { "use-grouped-gemm-for-dense-mlp", NULL, false, NULL, NULL },
    { "disable-clone-scatter-output-in-embedding", "clone_scatter_output_in_embedding", true, NULL, NULL },
    { "batch-size=", NULL, false, NULL, NULL },
    { "warmup=", NULL, false, NULL, NULL },
    { "model-parallel-size=", NULL, false, NULL, NULL },
    { "checkpoint-activations", NULL, false, NULL, NULL },
    { "DDP-impl=", NULL, false, NULL, "local" },
};

static const struct {
    const char *parent, *specs;
} details[] = {
    { "fp8-format",
      "fp8-quantizer-factory= fp8-margin= fp8-interval= fp8-amax-history-len= "
      "fp8-amax-compute-algo= fp8-output-proj no-fp8-wgrad disable-fp8-wgrad "
      "keep-fp8-transpose-cache" },
    { "fp4-format",
      "fp4-recipe= fp4-quantizer-factory=" },
    { "num-experts",
      "moe-shared-expert-glu-interleave-size= moe-enable-routing-replay "
      "moe-router-padding-for-quantization moe-router-padding-for-fp8 "
      "moe-router-quantile-balancing-ema= moe-router-force-biased= moe-use-grouped-tensor "
      "moe-single-grouped-weight moe-single-grouped-bias moe-router-type= "
      "moe-token-dropping moe-frequency= moe-input-jitter-eps= "
      "moe-permute-fusion-into-hybridep moe-hybridep-pad-uneven-dispatch-inputs "
      "moe-pad-experts-for-cuda-graph-inference moe-layer-recompute "
      "moe-apply-probs-on-input moe-hybridep-num-blocks-permute= "
      "moe-hybridep-num-blocks-unpermute= moe-hybridep-num-sms-preprocessing= "
      "moe-ncclep-zero-copy moe-dispatch-fwd-dtype= moe-combine-bwd-dtype= "
      "moe-mlp-glu-interleave-size= moe-expert-rank-capacity-factor= "
      "moe-paged-stash-page-size= moe-paged-stash-buffer-size-factor-cuda= "
      "moe-paged-stash-buffer-size-factor-cpu= moe-routing-trace-path= "
      "moe-routing-trace-max-training-iters= moe-routing-trace-capture-logits "
      "moe-routing-trace-capture-hidden-states moe-routing-trace-dump-weights "
      "moe-use-upcycling moe-upcycling-granularity= moe-extended-tp "
      "use-grouped-gemm-for-shared-expert "
      "ep-overlap-early-attn-memory-release high-priority-a2a-comm-stream" },
    { "mtp-num-layers",
      "mtp-standalone mtp-detach-heads mtp-hsm" },
    { "hybrid-layer-pattern",
      "mamba-training-ssm-states-dtype= gdp-num-householder= gdp-cutedsl-kernel "
      "gdp-num-chunk-states-to-recompute= disable-mamba-mem-eff-path" },
    { "experimental-attention-variant",
      "dsa-indexer-n-heads= dsa-indexer-head-dim= dsa-indexer-topk= dsa-indexer-topk-freq= "
      "dsa-indexer-skip-topk-offset= dsa-indexer-loss-coeff= dsa-indexer-use-sparse-loss "
      "dsa-kernel-backend= dsa-indexer-rope-interleaved dsa-indexer-k-norm-epsilon= "
      "dsa-indexer-k-norm-fp32 no-dsa-indexer-rotate-activation no-dsa-indexer-scoring-relu "
      "disable-dsa-indexer-rotate-activation disable-dsa-indexer-scoring-relu" },
    { "cuda-graph-impl",
      "delay-offload-until-cuda-graph" },
    { "perform-rl-step",
      "rl-prompts-per-eval= rl-generation-lag= rl-max-inflight-requests= "
      "rl-submission-granularity= rl-consumption-granularity= rl-durable-rollout-bank "
      "rl-rollout-bank-dir= rl-rollout-bank-max-bytes= rl-default-temperature= "
      "rl-default-top-p= rl-default-top-k= rl-offload-optimizer-during-inference "
      "rl-kv-cache-management-mode= rl-persist-cuda-graphs rl-partial-rollouts "
      "rl-inference-logprobs-is-correction rl-importance-sampling-truncation-coef= "
      "rl-use-sequence-packing rl-sequence-packing-max-sequences-per-bin= "
      "rl-sequence-packing-algo= rl-training-cuda-graphs "
      "rl-inference-tensor-model-parallel-size= rl-inference-pipeline-model-parallel-size= "
      "rl-inference-expert-model-parallel-size= "
      "rl-inference-expert-tensor-model-parallel-size= "
      "rl-inference-model-unified-memory-level= "
      "rl-offload-inference-model-weights-when-idle rl-verify-model-weights-swap "
      "rl-skip-bos-token rl-profile rl-profile-dir= rl-inference-parsers* "
      "rl-parallel-generation-tasks= grpo-prompts-per-step= grpo-group-size= "
      "grpo-iterations= grpo-clamp-eps-lower= grpo-clamp-eps-upper= grpo-kl-beta= "
      "grpo-entropy-term-weight= grpo-filter-groups-with-same-reward "
      "grpo-default-temperature= grpo-default-top-p= langrl-env-config= "
      "langrl-external-server= no-rl-persist-cuda-graphs no-rl-partial-rollouts "
      "no-rl-inference-logprobs-is-correction no-rl-use-sequence-packing "
      "no-rl-training-cuda-graphs no-rl-offload-inference-model-weights-when-idle "
      "no-rl-verify-model-weights-swap no-rl-skip-bos-token" },
    { "enable-mhc-connections",
      "mhc-num-residual-streams= mhc-sinkhorn-iterations= mhc-init-gating-factor= "
      "mhc-recompute-layer-num=" },
    { "tensor-parallel-num-weight-shards",
      "gtp-remat-opt-in-modules* gtp-remat-reduce-scatter-with-fp32-accumulation "
      "gtp-remat-nccl-ub gtp-expert-remat-nccl-ub" },
    { "context-parallel-size",
      "max-seqlen-per-dp-cp-rank=" },
    { "use-nccl-ub",
      "disable-symmetric-registration" },
    { "window-size",
      "window-attn-skip-freq=" },
    { "logits-save-dir",
      "logits-save-top-k= logits-save-top-p= logits-save-top-p-min-k= logits-save-dtype=" },
    { "logits-load-dir",
      "logits-load-decode-threads= logits-load-prefetch-factor= "
      "logits-load-msc-prefetch-depth= logits-load-kd-loss-alpha= logits-load-ignore-errors" },
    { "sft",
      "sft-tokenizer-prompt-format=" },
    { "qk-clip",
      "qk-clip-alpha= qk-clip-threshold=" },
    { "retro-add-retriever",
      "retro-cyclic-train-iters= retro-encoder-attention-dropout= "
      "retro-encoder-hidden-dropout= retro-encoder-layers= retro-project-dir= "
      "retro-workdir=" },
    { "batch-invariant-mode",
      "batch-invariant-backend=" },
    { "use-kitchen-attention",
      "kitchen-attention-backend=" },
};

/* Data, logging, checkpoints, learning rate, inference, fault tolerance, other model families'
 * scripts, and numerics that change no tensor's size or life. */
static const char no_effect[] =
    "enable-zb-runtime no-pre-communication-optimization allow-padding-num-layers "
    "enable-exactly-numeric-match zero-bubble-pipeline-timers-start-iter= "
    "zero-bubble-pipeline-timers-end-iter= zero-bubble-adaptive-memory-limit-percentile= "
    "profile-memory-iter= "
    "fine-grained-offloading-max-inflight-offloads= cpu-offloading-retain-pinned-cpu-buffers "
    "mamba-inference-conv-states-dtype= mamba-inference-ssm-states-dtype= moe-router-num-groups= moe-router-group-topk= moe-router-topk-scaling-factor= "
    "moe-router-bias-update-rate= moe-router-force-load-balancing moe-router-topk-limited-devices= "
    "moe-per-layer-logging moe-token-drop-policy= moe-flex-dispatcher-num-sms= moe-deepep-num-sms= "
    "moe-hybridep-num-sms= moe-use-legacy-grouped-gemm mtp-loss-scaling-factor= "
    "align-param-gather async-tensor-model-parallel-allreduce bias-dropout-fusion bias-gelu-fusion "
    "bias-swiglu-fusion deallocate-pipeline-outputs enable-onelogger epochs= eval-batch-size= "
    "inference-dynamic-batching-active-buffer-size-gb= inference-flask-server-logging "
    "inference-wandb-logging-step-interval= layernorm-epsilon= load-optim load-rng log-zeros "
    "lr-warmup-percent= no-log-memory-to-tensorboard override-lr-scheduler "
    "scatter-gather-tensors-in-pipeline save-iters= save-optim save-rng shuffle skip-mmap-warmup "
    "tokenizer-model-type= tokenizer-path= tp-comm-bulk-dgrad tp-comm-bulk-wgrad tp-comm-split-ag "
    "tp-comm-split-rs use-checkpoint-lr-scheduler use-contiguous-buffers-in-ddp "
    "use-flashinfer-fused-rope "
    "decrease-batch-size-if-needed "
    "inference-batch-times-seqlen-threshold= max-tokens-to-oom= output-bert-embeddings "
    "bert-embedder-type= use-legacy-static-engine inference-max-requests= "
    "inference-max-seq-length= inference-dynamic-batching "
    "inference-dynamic-batching-buffer-size-gb= "
    "inference-dynamic-batching-paused-buffer-size-gb= "
    "inference-dynamic-batching-mamba-memory-ratio= "
    "inference-dynamic-batching-block-size= inference-dynamic-batching-max-requests= "
    "inference-dynamic-batching-max-tokens= inference-dynamic-batching-num-cuda-graphs= "
    "inference-dynamic-batching-track-paused-request-events "
    "inference-dynamic-batching-track-generated-token-events decode-only-cuda-graphs "
    "inference-cuda-graph-all-prefills inference-cuda-graph-max-tokens= "
    "inference-dynamic-batching-unified-memory-level= enable-chunked-prefill "
    "num-speculative-tokens= inference-dynamic-batching-prefix-caching "
    "no-inference-dynamic-batching-prefix-caching "
    "inference-dynamic-batching-prefix-caching-eviction-policy= "
    "inference-dynamic-batching-prefix-caching-coordinator-policy= "
    "inference-dynamic-batching-prefix-caching-routing-alpha= "
    "inference-dynamic-batching-prefix-caching-mamba-gb= "
    "inference-dynamic-batching-cuda-graph-mixed-prefill-count= "
    "inference-dynamic-batching-cuda-graph-sizing-distribution= "
    "inference-dynamic-batching-sampling-backend= use-same-sampling-seed-across-dp-ranks "
    "inference-dynamic-batching-async-sched-mode= "
    "inference-dynamic-batching-logprobs-mode= inference-logging-step-interval= "
    "inference-text-gen-server-logging no-inference-text-gen-server-logging "
    "inference-wandb-logging no-inference-wandb-logging inference-coordinator-port= "
    "inference-use-synchronous-zmq-collectives "
    "no-inference-use-synchronous-zmq-collectives inference-disable-ep-consensus "
    "no-inference-disable-ep-consensus inference-shards= "
    "pipeline-model-parallel-comm-backend= no-initialization use-cpu-initialization "
    "no-tp-comm-bulk-wgrad disable-tp-comm-bulk-wgrad no-tp-comm-bulk-dgrad "
    "disable-tp-comm-bulk-dgrad no-tp-comm-overlap-ag disable-tp-comm-overlap-ag "
    "no-tp-comm-overlap-rs disable-tp-comm-overlap-rs tp-comm-overlap-rs-dgrad "
    "no-tp-comm-split-ag disable-tp-comm-split-ag no-tp-comm-split-rs "
    "disable-tp-comm-split-rs tp-comm-bootstrap-backend= use-ring-exchange-p2p "
    "flash-attention-version= norm-epsilon= apply-layernorm-1p "
    "calculate-per-token-loss init-method-std= embedding-init-method-std= use-mup "
    "mup-width-mult= mup-base-hidden-size= mup-embedding-mult= mup-output-mult= "
    "mup-base-head-dim= mup-attn-scale-power= "
    "disable-bf16-reduced-precision-matmul inference-cuda-graph-scope= config-logger-dir= "
    "flash-decode symmetric-ar-type= nccl-all-reduce-for-prefill "
    "inference-fuse-tp-communication inference-disable-triton-nvls-kernels "
    "inference-grouped-gemm-backend= inference-moe-disable-fused-quant-kernels "
    "inference-moe-token-dispatcher-type= mrope-section* mlp-chunks-for-prefill= "
    "yarn-original-max-position-embeddings= yarn-beta-fast= yarn-beta-slow= "
    "yarn-correction-range-round-to-int no-yarn-correction-range-round-to-int "
    "relative-attention-num-buckets= relative-attention-max-distance= rotary-base= "
    "rotary-seq-len-interpolation-factor= use-rope-scaling rope-scaling-factor= "
    "onnx-safe= log-straggler straggler-ctrlr-port= "
    "straggler-minmax-count= disable-straggler-on-startup run-workload-inspector-server "
    "inprocess-restart inprocess-max-iterations= inprocess-monitor-thread-interval= "
    "inprocess-monitor-process-interval= inprocess-progress-watchdog-interval= "
    "inprocess-heartbeat-interval= inprocess-soft-timeout= inprocess-hard-timeout= "
    "inprocess-heartbeat-timeout= inprocess-barrier-timeout= "
    "inprocess-completion-timeout= inprocess-last-call-wait= "
    "inprocess-termination-grace-time= inprocess-granularity= "
    "inprocess-active-world-size= inprocess-empty-cuda-cache no-one-logger "
    "one-logger-project= one-logger-run-name= one-logger-async app-tag-run-name= "
    "app-tag-run-version= enable-ft-package calc-ft-timeouts ft-num-warmup-iters= "
    "log-interval= log-throughput log-progress timing-log-level= timing-log-option= "
    "tensorboard-dir= tensorboard-log-interval= tensorboard-queue-size= "
    "log-timers-to-tensorboard no-log-loss-scale-to-tensorboard "
    "disable-log-loss-scale-to-tensorboard log-validation-ppl-to-tensorboard "
    "log-memory-to-tensorboard log-memory-interval= log-device-memory-used "
    "no-barrier-with-level-1-timing log-world-size-to-tensorboard wandb-project= "
    "wandb-exp-name= wandb-save-dir= wandb-entity= logging-level= log-energy otel-enabled "
    "otel-service-name= otel-span-groups= weight-decay= apply-wd-to-qk-layernorm "
    "fsdp-manual-registration fsdp-db-use-persist-buf-on-alloc-fail "
    "no-gradient-reduce-div-fusion create-all-gather-group "
    "keep-fp8-transpose-cache-when-using-custom-fsdp no-strict-fsdp-dtensor-load "
    "disable-strict-fsdp-dtensor-load use-torch-optimizer-for-cpu-offload overlap-cpu-optimizer-d2h-h2d no-pin-cpu-grads "
    "no-pin-cpu-params clip-grad= adam-beta1= adam-beta2= adam-eps= sgd-momentum= muon-momentum= "
    "muon-scale-mode= muon-coefficient-type= muon-num-ns-steps= muon-use-syrk "
    "muon-extra-scale-factor= lion-beta1= lion-beta2= "
    "no-weight-decay-cond-type= refit-method= profile profile-step-start= "
    "profile-step-end= use-pytorch-profiler pytorch-profiler-collect-shapes "
    "pytorch-profiler-collect-callstack pytorch-profiler-collect-chakra profile-ranks* "
    "record-memory-history memory-snapshot-path= record-shapes nvtx-ranges "
    "check-weight-hash-across-dp-replicas-interval= gpu-sniff-test-interval= "
    "train-sync-interval= train-iters= train-samples= exit-interval= "
    "exit-duration-in-mins= exit-signal-handler exit-signal= "
    "exit-signal-handler-for-dataloader exit-signal-handler-for-training manual-gc "
    "manual-gc-interval= no-manual-gc-eval disable-manual-gc-eval iterations-to-skip* "
    "check-for-large-grads result-rejected-tracker-filename= tp-comm-overlap-cfg= "
    "rope-type= dump-param-to-param-group-map= dataloader-type= no-persist-layer-norm "
    "use-mcore-models error-injection-rate= error-injection-type= rerun-mode= "
    "check-for-spiky-loss seed= te-rng-tracker inference-rng-tracker "
    "data-parallel-random-init init-method-xavier-uniform lr-decay-style= "
    "lr-wsd-decay-style= lr-decay-iters= lr-decay-samples= lr-wsd-decay-iters= "
    "lr-wsd-decay-samples= lr-warmup-fraction= lr-warmup-iters= lr-warmup-samples= "
    "lr-warmup-init= override-opt-param-scheduler use-checkpoint-opt-param-scheduler "
    "start-weight-decay= end-weight-decay= weight-decay-incr-style= lr= min-lr= "
    "decoupled-min-lr= save= save-interval= persistent-save-interval= "
    "save-params-interval= save-tokens-per-expert-interval= save-retain-interval= load= "
    "load-main-params-from-ckpt non-persistent-save-interval= non-persistent-ckpt-type= "
    "non-persistent-global-ckpt-dir= non-persistent-local-ckpt-dir= "
    "non-persistent-local-ckpt-algo= finetune pretrained-checkpoint= ckpt-step= "
    "use-checkpoint-args use-mp-args-from-checkpoint-args "
    "no-use-tokenizer-model-from-checkpoint-args "
    "disable-use-tokenizer-model-from-checkpoint-args exit-on-missing-checkpoint "
    "ckpt-format= auto-detect-ckpt-format ckpt-convert-format= ckpt-convert-save= "
    "ckpt-convert-update-legacy-dist-opt-format no-ckpt-fully-parallel-save async-save "
    "async-strategy= use-persistent-ckpt-worker async-ckpt-cpu-priority= "
    "async-ckpt-io-priority= async-ckpt-use-cpu-shm ckpt-fully-parallel-load "
    "ckpt-fully-parallel-load-exchange-algo= ckpt-fully-parallel-load-per-rank-objects "
    "ckpt-fully-parallel-save-process-group= ckpt-fully-parallel-load-process-group= "
    "ckpt-assume-constant-structure ckpt-pg-tensors-cache-path= "
    "ckpt-pg-tensors-cache-create no-ckpt-load-validate-sharding-integrity "
    "disable-ckpt-load-validate-sharding-integrity dist-ckpt-strictness= "
    "dist-ckpt-save-pre-mcore-014 no-save-tokenizer-assets "
    "disable-save-tokenizer-assets replication replication-jump= replication-factor= "
    "verify-integrity no-save-optim no-save-rng no-load-optim no-load-rng "
    "override-ckpt-iteration= use-dist-ckpt dist-ckpt-format= dist-ckpt-workers= "
    "ckpt-fully-parallel-save ckpt-drop-redundant-extra-state initial-loss-scale= "
    "min-loss-scale= loss-scale-window= hysteresis= "
    "distributed-backend= distributed-timeout-minutes= no-align-grad-reduce "
    "disable-align-grad-reduce local-rank= lazy-mpu-init nccl-communicator-config-path= "
    "disable-gloo-process-groups use-sharp sharp-enabled-group= "
    "high-priority-stream-groups* distributed-timeout-seconds-after-init= "
    "flight-recorder-dump-path= flight-recorder-trace-buffer-size= "
    "no-flight-recorder-dump-on-timeout disable-flight-recorder-dump-on-timeout "
    "flight-recorder-include-stack-trace no-flight-recorder-include-only-active "
    "disable-flight-recorder-include-only-active no-flight-recorder-extra-dump-on-exec "
    "disable-flight-recorder-extra-dump-on-exec disable-jit-fuser "
    "ddp-average-in-collective overlap-param-gather-with-optimizer-step "
    "no-align-param-gather fake-process-group eval-iters= "
    "eval-interval= start-eval-at-iter= eval-global-batch-size= eval-micro-batch-size= "
    "skip-train test-mode full-validation multiple-validation-sets validation-set-names* "
    "vocab-file= merge-file= tokenizer-model= tokenizer-metadata= "
    "tokenizer-special-tokens* tiktoken-pattern= tiktoken-num-special-tokens= "
    "tokenizer-sentencepiece-legacy no-tokenizer-sentencepiece-ignore-extra-whitespaces "
    "disable-tokenizer-sentencepiece-ignore-extra-whitespaces tokenizer-hf-no-use-fast "
    "tokenizer-hf-no-include-special-tokens trust-remote-code null-tokenizer-eod-id= "
    "null-tokenizer-pad-id= chat-template= use-gigatoken data-path* "
    "phase-transition-iterations= split= train-data-path* valid-data-path* "
    "test-data-path* data-args-path= per-split-data-args-path= "
    "per-dataset-sequences-path= dataloader-fast-cache-load "
    "dataloader-defer-npy-index-mmap data-cache-path= no-mmap-bin-files mock-data "
    "sample-rate= mask-prob= short-seq-prob= num-workers= reset-position-ids "
    "reset-attention-mask eod-mask-loss num-dataset-builder-threads= "
    "object-storage-cache-path= mid-level-dataset-surplus= allow-ambiguous-pad-tokens "
    "fim-data fim-rate= fim-spm-rate= fim-split-sample= fim-fragment-rate= fim-no-prefix= "
    "fim-prefix-token= fim-middle-token= fim-suffix-token= fim-pad-token= fim-eod-token= "
    "adlr-autoresume adlr-autoresume-interval= ict-head-size= biencoder-projection-dim= "
    "biencoder-shared-query-context-model ict-load= bert-load= titles-data-path= "
    "query-in-block-prob= use-one-sent-docs evidence-data-path= "
    "retriever-report-topk-accuracies* retriever-score-scaling block-data-path= "
    "embedding-path= indexer-batch-size= indexer-log-interval= num-classes= img-h= img-w= "
    "num-channels= patch-dim= classes-fraction= data-per-class-fraction= no-data-sharding "
    "head-lr-mult= vision-pretraining-type= vision-backbone-type= swin-backbone-type= "
    "mask-type= mask-factor= iter-per-epoch= dino-local-img-size= "
    "dino-local-crops-number= dino-head-hidden-size= dino-bottleneck-size= "
    "dino-freeze-last-layer= dino-norm-last-layer dino-warmup-teacher-temp= "
    "dino-teacher-temp= dino-warmup-teacher-temp-epochs= rotary-scaling-factor= mscale= "
    "mscale-all-dim= cache-mla-latents enable-experimental enable-msc disable-msc "
    "fault-injector-ranks= fault-injector-num-ranks= fault-injector-fault-types= "
    "fault-injector-fault-probabilities= fault-injector-fault-delay= "
    "fault-injector-delay-start-iteration= fault-injector-mtti-seconds= "
    "fault-injector-offset-seconds= fault-injector-seed= data-impl= "
    "inference-dynamic-batching-buffer-guaranteed-fraction= "
    "inference-dynamic-batching-buffer-overflow-factor= "
    "inference-dynamic-batching-chunk-size= "
    "inference-dynamic-batching-cuda-graph-max-tokens= "
    "inference-dynamic-batching-max-requests-override= "
    "inference-dynamic-batching-max-tokens-override= inference-max-batch-size= "
    "one-logger-entity= pipeline-model-parallel-split-rank= retriever-seq-length= "
    "s3-cache-path= load-model-opt-format tiktoken-special-tokens= delay-param-gather "
    "disable-chunked-prefill enable-one-logger initialize-socket-comms legacy-tokenizer "
    "log-batch-size-to-tensorboard mmap-warmup muon-use-nesterov "
    "no-async-tensor-model-parallel-allreduce no-contiguous-buffers-in-local-ddp "
    "no-delay-grad-reduce no-log-learnig-rate-to-tensorboard no-query-key-layer-scaling "
    "no-scatter-gather-tensors-in-pipeline renormalize-blend-weights "
    "tokenizer-hf-include-special-tokens tokenizer-hf-use-fast";

/* What validate_args() and training set on the namespace; nothing a user typed. */
static const char derived[] =
    " world_size rank local_rank data_parallel_size params_dtype padded_vocab_size "
    "virtual_pipeline_model_parallel_size transformer_pipeline_model_parallel_size "
    "encoder_seq_length encoder_num_layers consumed_train_samples consumed_valid_samples "
    "skipped_train_samples variable_seq_lengths iteration use_dist_ckpt start_weight_decay "
    "end_weight_decay cpu_offloading async_tensor_model_parallel_allreduce use_ring_exchange_p2p "
    "deprecated_use_mcore_models is_instruct use_layer_wise_distributed_optimizer "
    "gtp_weight_remat_size expert_gtp_weight_remat_size cuda args_tensor_model_parallel_size ";
/* clang-format on */

enum {
    N_KEYS = sizeof(keys) / sizeof(keys[0]),
    N_UNSUPPORTED = sizeof(unsupported) / sizeof(unsupported[0])
};
enum { N_DETAILS = sizeof(details) / sizeof(details[0]) };

static bool same(char a, char b)
{
    if (a == '_')
        a = '-';
    if (b == '_')
        b = '-';
    return a == b;
}

/* Does `spec` (length `n`, its mark included) name `name`? */
static bool spec_is(const char *spec, size_t n, const char *name)
{
    if (n > 0 && (spec[n - 1] == '=' || spec[n - 1] == '*'))
        n--;
    for (size_t i = 0; i < n; i++)
        if (!same(spec[i], name[i])) /* stops at the end of name */
            return false;
    return name[n] == '\0';
}

static void fill_spec(sim_arg_t *arg, const char *spec, size_t n, sim_arg_class_t class_)
{
    memset(arg, 0, sizeof(*arg));
    arg->class_ = class_;
    if (spec[n - 1] == '=') {
        arg->arity = SIM_ARITY_VALUE;
        n--;
    } else if (spec[n - 1] == '*') {
        arg->arity = SIM_ARITY_LIST;
        n--;
    }
    snprintf(arg->name, sizeof(arg->name), "%.*s", (int)n, spec);
    arg->negated = strncmp(arg->name, "no-", 3) == 0 || strncmp(arg->name, "disable-", 8) == 0;
}

static void fill_row(sim_arg_t *arg, const row_t *row, sim_arg_class_t class_)
{
    fill_spec(arg, row->spec, strlen(row->spec), class_);
    arg->negated = row->negated;
    arg->key = row->key;
    arg->harmless = row->harmless;
}

/* The next blank-separated word of *list_p; its length in *n_p. NULL at the end. */
static const char *next_spec(const char **list_p, size_t *n_p)
{
    const char *s = *list_p + strspn(*list_p, " ");
    *n_p = strcspn(s, " ");
    *list_p = s + *n_p;
    return *n_p > 0 ? s : NULL;
}

static bool find_in_list(const char *list, const char *name, sim_arg_class_t class_,
                         const char *parent, sim_arg_t *arg_p)
{
    const char *spec;
    size_t n;
    while ((spec = next_spec(&list, &n)) != NULL) {
        if (!spec_is(spec, n, name))
            continue;
        fill_spec(arg_p, spec, n, class_);
        arg_p->parent = parent;
        return true;
    }
    return false;
}

static bool find_in_rows(const row_t *rows, size_t n, const char *name, sim_arg_class_t class_,
                         sim_arg_t *arg_p)
{
    for (size_t i = 0; i < n; i++) {
        if (spec_is(rows[i].spec, strlen(rows[i].spec), name)) {
            fill_row(arg_p, &rows[i], class_);
            return true;
        }
    }
    return false;
}

bool sim_megatron_arg_find(const char *name, sim_arg_t *arg_p)
{
    if (find_in_rows(keys, N_KEYS, name, SIM_ARG_KEY, arg_p) ||
        find_in_rows(unsupported, N_UNSUPPORTED, name, SIM_ARG_UNSUPPORTED, arg_p))
        return true;
    for (size_t i = 0; i < N_DETAILS; i++)
        if (find_in_list(details[i].specs, name, SIM_ARG_DETAIL, details[i].parent, arg_p))
            return true;
    return find_in_list(no_effect, name, SIM_ARG_NO_EFFECT, NULL, arg_p);
}

static bool find_row_attribute(const row_t *rows, size_t n, const char *attribute,
                               sim_arg_class_t class_, sim_arg_t *arg_p)
{
    for (size_t i = 0; i < n; i++) {
        if (rows[i].attribute != NULL && strcmp(rows[i].attribute, attribute) == 0) {
            fill_row(arg_p, &rows[i], class_);
            return true;
        }
    }
    return false;
}

bool sim_megatron_arg_find_attribute(const char *attribute, sim_arg_t *arg_p)
{
    char negated[SIM_ARG_NAME];
    if (find_row_attribute(keys, N_KEYS, attribute, SIM_ARG_KEY, arg_p) ||
        find_row_attribute(unsupported, N_UNSUPPORTED, attribute, SIM_ARG_UNSUPPORTED, arg_p) ||
        sim_megatron_arg_find(attribute, arg_p))
        return true;
    snprintf(negated, sizeof(negated), "no-%s", attribute);
    if (sim_megatron_arg_find(negated, arg_p))
        return true;
    snprintf(negated, sizeof(negated), "disable-%s", attribute);
    return sim_megatron_arg_find(negated, arg_p);
}

bool sim_megatron_attribute_is_derived(const char *attribute)
{
    size_t n = strlen(attribute);
    for (const char *s = derived + 1; (s = strstr(s, attribute)) != NULL; s++)
        if (s[-1] == ' ' && s[n] == ' ')
            return true;
    return false;
}

static void foreach_in_list(const char *list, sim_arg_class_t class_, const char *parent,
                            void (*visit)(const sim_arg_t *arg, void *ctx), void *ctx)
{
    const char *spec;
    size_t n;
    while ((spec = next_spec(&list, &n)) != NULL) {
        sim_arg_t arg;
        fill_spec(&arg, spec, n, class_);
        arg.parent = parent;
        visit(&arg, ctx);
    }
}

void sim_megatron_arg_foreach(void (*visit)(const sim_arg_t *arg, void *ctx), void *ctx)
{
    sim_arg_t arg;
    for (size_t i = 0; sim_megatron_arg_key_at(i, &arg); i++)
        visit(&arg, ctx);
    for (size_t i = 0; i < N_UNSUPPORTED; i++) {
        fill_row(&arg, &unsupported[i], SIM_ARG_UNSUPPORTED);
        visit(&arg, ctx);
    }
    for (size_t i = 0; i < N_DETAILS; i++)
        foreach_in_list(details[i].specs, SIM_ARG_DETAIL, details[i].parent, visit, ctx);
    foreach_in_list(no_effect, SIM_ARG_NO_EFFECT, NULL, visit, ctx);
}

bool sim_megatron_arg_key_at(size_t i, sim_arg_t *arg_p)
{
    if (i >= N_KEYS)
        return false;
    fill_row(arg_p, &keys[i], SIM_ARG_KEY);
    return true;
}
