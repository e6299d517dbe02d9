#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files made to hurt: every reader ends soon, in little memory, with a message. Before they were
# bounded, each of those marked "was" took minutes or gigabytes, or crashed.
. "$TOP_SRCDIR/tests/lib.sh"
SOURCES=$TOP_SRCDIR WORK=$work python3 - <<'END' || exit 99
import os
K = 1 << 18
work = os.environ['WORK'] + '/'
def write(name, text):
    with open(work + name, 'w') as f:
        f.write(text)
run = 'torchrun pretrain_gpt.py --num-layers 2\n'
# YAML: aliases that multiply (was), nesting (was), merges, names
write('alias.yaml', 'MODEL_ARGS:\n  --num-layers: &a "%s"\n  --moe-layer-freq: [%s1]\n' % ('x' * (K // 2), '*a, ' * (K // 8)))
write('alias-bridge.yaml', 'model:\n  x: &a "%s"\n  y: [%s1]\n' % ('x' * (K // 2), '*a, ' * (K // 8)))
write('deep.yaml', 'MODEL_ARGS: %s%s\n' % ('[' * (K // 2), ']' * (K // 2)))
write('deep-bridge.yaml', 'model: %s1%s\n' % ('{a: ' * (K // 8), '}' * (K // 8)))
write('merge.yaml', 'A: &a\n%sMODEL_ARGS:\n%s' % (''.join('  --x%d: 1\n' % i for i in range(5000)), '  <<: *a\n' * 5000))
write('names.yaml', 'ENV_VARS:\n%sMODEL_ARGS:\n  --num-layers: 1\n' % ''.join('  V%d: 1\n' % i for i in range(20000)))
# Shell text: what grows with the square of its length (all was), a pattern that takes exponential time (was)
write('append.sh', 'A=\n' + 'A+=x\n' * (K // 5) + run)
write('default.sh', 'echo ' + '${A:-$(}' * (K // 8) + '\n' + run)
write('declare.sh', 'export ' + '-a ' * (K // 3) + '\n' + run)
write('keyword.sh', 'time ' * (K // 5) + '\n' + run)
write('variables.sh', ''.join('V%d=1\n' % i for i in range(30000)) + run)
write('pattern.sh', 'if [ %s == %sb ]; then\n%sfi\n%s' % ('a' * 900, '*a' * 400, run, run))
write('join.sh', 'B="%s"\n' % ('x ' * (K // 4)) + 'A=$B\n' * 100 + run)
write('number.sh', 'A=%s\nB=$((%s1))\n' % ('1' * (K // 2), 'A+' * (K // 4)) + run)
write('nested.sh', 'echo ' + '${A:-' * (K // 6) + '}' * (K // 6) + '\n' + run)
write('word.sh', 'torchrun pretrain_gpt.py --bf16 ' + 'y' * K + '\n')
write('options.sh', 'torchrun pretrain_gpt.py --num-layers 1 ' + ' '.join('--numm-layers%d 1' % i for i in range(10000)) + '\n')
write('fields.sh', 'python run.py ' + ' '.join('model.a%d=1' % i for i in range(20000)) + '\n')
# Scenarios
write('keys.ini', '[model]\n' + ''.join('hidden_sixe%d = 1\n' % i for i in range(20000)))
write('sections.ini', ''.join('[modle%d]\n' % i for i in range(20000)))
write('layout.ini', '[parallel]\nworld_size=4\npipeline_model_parallel_layout = %s%s\n' % ('(' * 4000, 't)*9' * 900))
write('frequency.ini', '[model]\nnum_layers=4\nmoe_layer_freq = ' + '([0]*99999999999999+' * 800 + '\n')
# JSON
write('deep.json', '{"model_type":' + '[' * K)
write('list.jsonl', '{"id":"x","measured":{},"model":{"type":[%s]}}\n' % ','.join('1' for i in range(K // 2)))
write('columns.jsonl', '{"schema":"mbsim.sweep/1","layout":0}\n' + ''.join('{"schema":"mbsim.sweep/1","c%d":1}\n' % i for i in range(8000)))
write('wide.csv', ',' * K + '\n' + ',' * K + '\n')
write('quote.csv', '"' * K + '\n')
# Logs, traces, snapshots
write('digits.txt', 'CUDA out of memory. Tried to allocate ' + '9' * K + ' GiB')
write('line.txt', 'CUDA out of memory. Tried to allocate ' * (K // 38))
write('lines.txt', '[Rank 0] (after 1 iterations) memory (MB) | allocated: 1 | max allocated: 2\n' * (K // 75))
write('streams.trace', ''.join('a %d %d %d\n' % (i, i * 512, i % 1000) for i in range(1, 12000)) + ''.join('f %d\n' % i for i in range(1, 12000)))
with open(work + 'deep.pickle', 'wb') as f:
    f.write(b'\x80\x04' + b']' * K + b'.')
with open(work + 'long.pickle', 'wb') as f:
    f.write(b'\x80\x04X\xff\xff\xff\x7f.')
# Machines: XML that hwloc itself does not survive (was), entities, nesting
small = open(os.environ['SOURCES'] + '/tests/data/fuzz/machine/small.xml').read()
write('crash.xml', small.replace(' complete_cpuset="0x3"', '', 1))
write('nested.xml', '<topology version="2.0">' + '<object type="Group">' * (K // 22))
write('entity.xml', '<?xml version="1.0"?><!DOCTYPE t [<!ENTITY a SYSTEM "/etc/passwd">]><topology>&a;</topology>')
END
cd "$work" || exit 99

# ends FILE COMMAND...: within 60 s, in 1 GB, and with exit code 0, 1 or 2, never by a signal.
ends() {
  ends_file=$1
  shift
  (
    # shellcheck disable=SC3045 # dash and bash know -v
    [ -n "${SAN_FLAGS-}" ] || ulimit -v 1000000 # the sanitizers reserve more
    exec timeout 60 "$MBSIM" "$@" "$ends_file"
  ) >out 2>&1 </dev/null
  ends_rc=$?
  ends_bytes=$(($(wc -c <out)))
  if [ "$ends_rc" -le 2 ] && [ "$ends_bytes" -le 250000 ]; then
    ok "$1 $ends_file"
  else
    not_ok "$1 $ends_file" "exit code $ends_rc, $ends_bytes bytes: $(head -c 300 out)"
  fi
}

for file in *.yaml *.sh deep.json; do ends "$file" import; done
for file in *.ini; do ends "$file" run; done
for file in *.jsonl deep.json; do ends "$file" validate; done
for file in *.jsonl *.csv; do ends "$file" merge; done
for file in *.jsonl deep.json; do ends "$file" diff deep.json; done
for file in *.txt *.sh deep.json; do ends "$file" diagnose; done
for file in *.trace *.pickle *.txt; do ends "$file" replay; done
for file in *.xml; do ends "$file" topo --host; done

expect "aliases that multiply are named" 2 'alias.yaml: its aliases stand for far more text than the file has' \
  "$MBSIM" import alias.yaml
expect "nesting is named" 2 'deep.yaml:1: nested more than 64 deep' "$MBSIM" import deep.yaml
expect "what ends hwloc does not end mbsim" 2 'crash.xml: hwloc fails on it' "$MBSIM" topo --host crash.xml
expect "entities are refused" 2 'entity.xml: defines XML entities' "$MBSIM" topo --host entity.xml
expect "variables without end are named" 2 'variables.sh: more than 1000 variables' "$MBSIM" import variables.sh
done_testing
