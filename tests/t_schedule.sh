#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pipeline schedules that split the backward pass, from the scenario to the report.
# shellcheck disable=SC2016 # $0 is for the inner shells
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cat > job.ini <<'END'
[model]
num_layers = 16
hidden_size = 256
num_attention_heads = 8
vocab_size = 4096
max_position_embeddings = 512
position_embedding_type = rope
untie_embeddings_and_output_weights = true
[parallel]
world_size = 8
tensor_model_parallel_size = 2
pipeline_model_parallel_size = 4
sequence_parallel = true
[train]
micro_batch_size = 1
global_batch_size = 16
seq_length = 512
[precision]
bf16 = true
[optimizer]
use_distributed_optimizer = true
[device]
gpu = h100-80gb-sxm
[run]
iterations = 4
END

# Allocated bytes at the end of iterations 2 and 4 are the same: nothing is left behind.
settled() { # settled FILE
  sed -n 's/^  iteration [24]: .*allocated at its end *//p' "$1" | sort -u | wc -l
}

for schedule in zb-h1 zbv v-half v-min dualpipe dualpipev; do
  for impl in transformer_engine local; do
    "$MBSIM" job.ini --set pipeline_schedule=$schedule --set transformer_impl=$impl > one.txt 2> one.err
    check "$schedule, $impl, runs" test $? -eq 0 -a ! -s one.err
    check "$schedule, $impl, is named" grep -q "PP 4 $schedule, DP 1$" one.txt
    check "$schedule, $impl, leaves nothing behind" test "$(settled one.txt)" -eq 1
  done
  "$MBSIM" job.ini --set pipeline_schedule=$schedule --json one.json > /dev/null 2>&1
  for n in 8 3; do
    timeout 60 mpirun --oversubscribe -np $n "$MBSIM" job.ini --set pipeline_schedule=$schedule \
      --json many.json > many.txt 2> many.err
    check "$schedule is the same with $n processes" cmp one.json many.json
  done
done

# ---- parameters ----
parameters() { sed -n 's/^      "n_parameters": \([0-9]*\),/\1/p' "$1" | awk '{ n += $1 } END { printf "%.0f\n", n }'; }
"$MBSIM" job.ini --json plain.json > /dev/null
"$MBSIM" job.ini --set pipeline_schedule=zbv --json zbv.json > /dev/null
"$MBSIM" job.ini --set pipeline_schedule=dualpipe --json dualpipe.json > /dev/null
check "figures of parameters are there" test "$(parameters plain.json)" -gt 0
check "a V only moves parameters" test "$(parameters zbv.json)" = "$(parameters plain.json)"
check "two directions have twice the parameters" \
  test "$(parameters dualpipe.json)" -eq $((2 * $(parameters plain.json)))

# ---- passes of their own ----
"$MBSIM" job.ini --set pipeline_schedule=v-half --html page.html --perfetto trace.json --quiet
check "the trace has the gradients of weights" grep -q '"name":"weight gradients 15"' trace.json
check "the page has them" grep -q 'weight gradients' page.html
"$MBSIM" job.ini --perfetto plain.trace --quiet
check "1F1B has none apart" sh -c '! grep -q "weight gradients" plain.trace'

# ---- what does not go together ----
refused() { # refused DESCRIPTION RULE SETTINGS...
  name=$1 rule=$2
  shift 2
  for setting in "$@"; do
    set -- "$@" --set "$setting"
    shift
  done
  expect "$name" 2 "$rule" "$MBSIM" job.ini "$@"
}
refused "a V has no other chunks" 'in V shape has two chunks' pipeline_schedule=zbv virtual_pipeline_model_parallel_size=2
refused "a V needs two chunks of layers a rank" '20 is not a multiple of the 8 stages' pipeline_schedule=v-min num_layers=20
refused "a pipeline is needed" 'pipeline_schedule: needs pipeline_model_parallel_size > 1' pipeline_schedule=zb-h1 pipeline_model_parallel_size=1
refused "DualPipe needs an even pipeline" 'needs an even pipeline_model_parallel_size, not 3' pipeline_schedule=dualpipe pipeline_model_parallel_size=3 world_size=6 num_layers=12
refused "DualPipe needs an even number of micro-batches" 'even number of micro-batches' pipeline_schedule=dualpipe global_batch_size=9
refused "DualPipe needs enough of them" 'at least twice as many micro-batches' pipeline_schedule=dualpipev global_batch_size=7
refused "fused accumulation is needed" 'gradient_accumulation_fusion = true' pipeline_schedule=zbv gradient_accumulation_fusion=false
refused "gradients are reduced at the end" 'overlap_grad_reduce = false' pipeline_schedule=zbv overlap_grad_reduce=true
refused "embeddings are untied" 'untie_embeddings_and_output_weights = true' pipeline_schedule=zb-h1 untie_embeddings_and_output_weights=false
refused "user buffers are for others" 'does not go with tp_comm_overlap' pipeline_schedule=zb-h1 tp_comm_overlap=true
refused "groups of micro-batches are for others" 'is for pipeline_schedule = 1f1b' pipeline_schedule=zb-h1 microbatch_group_size_per_virtual_pipeline_stage=8
refused "a schedule that is not known" "use 1f1b, zb-h1, zbv, v-half, v-min, dualpipe or dualpipev" pipeline_schedule=gpipe

# ---- arguments of the fork ----
arguments="pretrain_gpt.py --num-layers 16 --hidden-size 256 --num-attention-heads 8 --seq-length 512
  --max-position-embeddings 512 --micro-batch-size 1 --global-batch-size 16 --vocab-size 4096
  --pipeline-model-parallel-size 4 --untie-embeddings-and-output-weights --transformer-impl local
  --bf16 --enable-zb-runtime --allow-padding-num-layers"
import() { printf '%s ' "$arguments" "$@" | tr '\n' ' ' > fork.sh; "$MBSIM" import fork.sh; }
imported() { # imported DESCRIPTION SCHEDULE ARGUMENTS...
  name=$1 schedule=$2
  shift 2
  import "$@" > fork.ini 2> fork.err
  check "$name" grep -qx "pipeline_schedule = $schedule" fork.ini
}
imported "the V" zbv --zero-bubble-v-schedule
imported "half of it" v-half --zero-bubble-v-schedule --zero-bubble-v-schedule-mem-setup half
imported "a third of it" v-min --zero-bubble-v-schedule --zero-bubble-v-schedule-mem-setup min
imported "ZB1P" zb-h1 --enable-zero-bubble --zero-bubble-max-pending-backward 4
expect "what is imported runs" 0 'FITS' "$MBSIM" run fork.ini
import --enable-zero-bubble --zero-bubble-max-pending-backward 8 > fork.ini 2> fork.err
check "ZB2P is not simulated" grep -q -- '--enable-zero-bubble: moves memory and is not simulated' fork.err

# ---- studies ----
{ cat job.ini; printf '[sweep]\npipeline_schedule = 1f1b zb-h1 zbv v-half v-min\n'; } > sweep.ini
expect "a sweep names them" 0 'v-half' "$MBSIM" sweep sweep.ini

done_testing
