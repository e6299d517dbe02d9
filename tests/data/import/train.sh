#!/bin/bash
#SBATCH --nodes=4 --gpus-per-node=8
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
TP=${TP:-4}; PP=2
if [ "$TP" -gt 1 ]; then SP=--sequence-parallel; fi
case $SIZE in
  small) LAYERS=8 ;;
  *) LAYERS=32 ;;
esac
MODEL_ARGS=(
    --num-layers $LAYERS   # of the whole model
    --hidden-size 4096 --num-attention-heads 32
    --group-query-attention --num-query-groups 8
    --seq-length 4096 --max-position-embeddings 4096
    --position-embedding-type rope --normalization RMSNorm
    --swiglu --disable-bias-linear --untie-embeddings-and-output-weights
)
TRAIN="--micro-batch-size 1 --global-batch-size $((4 * TP)) --bf16 --use-distributed-optimizer"
torchrun --nproc_per_node 8 --nnodes ${SLURM_NNODES} pretrain_gpt.py \
    "${MODEL_ARGS[@]}" $TRAIN $SP \
    --tensor-model-parallel-size $TP --pipeline_model_parallel_size=$PP \
    --attention-dropout 0.0 --hidden-dropout 0.0 --data-path $DATA 2>&1 | tee log
