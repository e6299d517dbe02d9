#!/bin/bash
export PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"
torchrun \
  --nnodes 4 \
  --nproc_per_node 8 \
  torchtitan/train.py \
  --job.config-file torchtitan/models/llama3/train_configs/llama3_8b.toml \
  --metrics.enable_wandb \
  --training.local_batch_size=2 \
  --training.seq_len 8192 \
  --training.compile \
  --model.converters="quantize.linear.float8" \
  --quantize.linear.float8.enable_fsdp_float8_all_gather \
  --parallelism.tensor_parallel_degree 2 \
  --activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op
