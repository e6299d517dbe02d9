#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8
export NCCL_ALGO=Ring A=${B:-8}
if [[ $A == 8* ]]; then ARGS=(--num-layers $((A*2)) --bf16); else ARGS+=(--fp16); fi
case $1 in x|y) A=1 ;; *) A="2 3" ;; esac
for i in 1 2; do echo `date` $(date); done
cat <<EOF
text
EOF
torchrun --nproc_per_node $A pretrain_gpt.py ${ARGS[@]} --hidden-size=512 \
  --moe-layer-freq '([0]*1+[1]*3)' 2>&1 | tee log
