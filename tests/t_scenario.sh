#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command line around scenarios: bad input, lists of keys, models and GPUs, options.
# shellcheck disable=SC2016 # $0 is for the inner shells
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99

cat > good.ini <<'EOF'
[model]
preset = llama3-8b
[parallel]
world_size = 8
tensor_model_parallel_size = 2
[train]
seq_length = 2048
[sweep]
micro_batch_size = 1 2
EOF

# one_error TEXT CODE PATTERN COMMAND...: as expect, and there is exactly one line of output.
one_error() {
  expect "$@"
  if [ "$(printf '%s\n' "$expect_out" | wc -l)" -eq 1 ]; then
    ok "$1: one line"
  else
    not_ok "$1: one line" "$expect_out"
  fi
}

: > empty.ini
one_error "an empty file" 2 '^empty\.ini: the file is empty$' "$MBSIM" empty.ini
printf '\177ELF\000\001\002[model]\n' > binary.ini
one_error "a binary file" 2 '^binary\.ini: binary file' "$MBSIM" binary.ini
head -c 100000000 /dev/zero | tr '\000' a > huge.ini
if [ -n "${SAN_FLAGS:-}" ]; then
  skip "a line of 100 MB, in 400 MB of address space" "sanitizers need more"
else
  one_error "a line of 100 MB, in 400 MB of address space" 2 'huge\.ini: larger than' \
    sh -c 'ulimit -v 400000; "$0" huge.ini' "$MBSIM"
fi
head -c 1000000 huge.ini > line.ini
one_error "a line of 1 MB" 2 '^line\.ini:1: line of 1000000 characters' "$MBSIM" line.ini
rm huge.ini line.ini
echo '{"hidden_size": 512}' > config.json
one_error "a model's configuration" 2 '^config\.json: JSON, not a scenario; .mbsim import. makes one' \
  "$MBSIM" config.json
yes 'a = b' | head -n 600000 > garbage.ini
expect "wrong lines without end are not all read" 2 '^and 10[0-9][0-9] more$' \
  timeout 10 "$MBSIM" garbage.ini
rm garbage.ini
sed 1d good.ini > nosection.ini
one_error "keys before the first section" 2 '^nosection\.ini:1: preset: stands before' \
  "$MBSIM" nosection.ini
sed 's/^\[parallel\]/[paralel]/' good.ini > section.ini
one_error "an unknown section" 2 '^section\.ini:3: \[paralel\]: .*did you mean \[parallel\]\?' \
  "$MBSIM" section.ini
one_error "--set has no section sweep" 2 '^--set: \[sweep\]: only a scenario file has this section' \
  "$MBSIM" good.ini --set sweep.micro_batch_size=1
sed 's/^tensor_model/tensor_modle/' good.ini > key.ini
one_error "an unknown key" 2 '^key\.ini:5: .*did you mean tensor_model_parallel_size\?' \
  "$MBSIM" key.ini
sed 's/2048/20480000000000000000000/' good.ini > overflow.ini
one_error "a share of the sequence that cannot be split" 2 'tensor_model_parallel_size: 4 does not divide seq_length / context_parallel_size 1026' \
  "$MBSIM" good.ini --set parallel.tensor_model_parallel_size=4 --set parallel.context_parallel_size=2 \
  --set parallel.sequence_parallel=true --set train.seq_length=2052 --set parallel.world_size=8
one_error "a number beyond 64 bits" 2 '^overflow\.ini:7: train\.seq_length: .*1 to 16777216' \
  "$MBSIM" overflow.ini
sed 's/^world_size = 8/world_size = 7/' good.ini > world.ini
one_error "a world that does not fit the grid" 2 '^world\.ini:4: parallel\.world_size: .*7' \
  "$MBSIM" world.ini
one_error "a file that is not there" 2 'nothere\.ini: No such file' "$MBSIM" nothere.ini
mkdir folder.ini
one_error "a folder" 2 'folder\.ini: Is a directory' "$MBSIM" folder.ini
if [ "$(id -u)" -eq 0 ] && command -v setpriv > /dev/null; then
  chmod 755 .
  cp good.ini secret.ini
  chmod 000 secret.ini
  one_error "a file that may not be read" 2 'secret\.ini: Permission denied' \
    setpriv --reuid=65534 --regid=65534 --clear-groups "$MBSIM" secret.ini
else
  skip "a file that may not be read" "needs root and setpriv"
fi

expect "options of run are checked" 2 'did you mean --json\?' "$MBSIM" good.ini --jsno x
expect "an option without its argument" 2 'option --set needs an argument' "$MBSIM" good.ini --set
expect "a flag with an argument" 2 'option --quiet takes no argument' "$MBSIM" good.ini --quiet=1
expect "an unknown letter" 2 'unknown option -x' "$MBSIM" good.ini -x
expect "a wrong --progress" 2 'must be auto, always or never' "$MBSIM" good.ini --progress x
expect "a wrong --ranks" 2 'no choice of ranks 0 to 7' "$MBSIM" good.ini --ranks 5,9
expect "a wrong --set" 2 '^--set: parallel.tensor_model_parallel_size: 3 ' \
  "$MBSIM" good.ini --set parallel.tensor_model_parallel_size=3
expect "a --set without =" 2 "^--set: 'x' is not of the form" "$MBSIM" good.ini --set x
expect "an unknown command" 2 'did you mean models\?' "$MBSIM" modles
expect "no command" 2 'mbsim help' "$MBSIM"
expect "two scenarios" 2 "unexpected argument" "$MBSIM" good.ini good.ini

expect "the list of commands" 0 '^  keys ' "$MBSIM" help
expect "help of a command" 0 '^Usage: mbsim run' "$MBSIM" help run
expect "--help of a command" 0 '--set SECTION.KEY=VALUE' "$MBSIM" run --help
expect "--version names the libraries" 0 'inih [0-9]+.* jansson [0-9.]+.* libyaml [0-9.]+' \
  "$MBSIM" --version

expect "keys lists a key with its default" 0 '^  tensor_model_parallel_size = 1$' "$MBSIM" keys
expect "keys says what is required" 0 '^  num_layers = \(required\)$' "$MBSIM" keys num_layers
expect "keys suggests" 2 'did you mean seq_length' "$MBSIM" keys seq_lenght
check "keys fits 100 columns" sh -c '! "$0" keys | grep -E "^.{101}"' "$MBSIM"
check "gpus fits 100 columns" sh -c '! "$0" gpus | grep -E "^.{101}"' "$MBSIM"
check "models fits 100 columns" sh -c '! "$0" models | grep -E "^.{101}"' "$MBSIM"
for list in keys models gpus; do
  "$MBSIM" "$list" --json "$list.json"
  check "$list --json names its schema" grep -q "\"schema\": \"mbsim.$list/1\"" "$list.json"
done
check "every model is a preset that runs" sh -c '
  for m in $("$0" models --json | sed -n "s/^      \"name\": \"\(.*\)\",/\1/p"); do
    "$0" good.ini -q --set model.preset=$m --set world_size=8 --set tp=1 > /dev/null; case $? in 0 | 3) ;; *) exit 1 ;; esac
  done' "$MBSIM"
check "every GPU is one that runs" sh -c '
  for g in $("$0" gpus --json | sed -n "s/^      \"name\": \"\(.*\)\",/\1/p"); do
    "$0" good.ini -q --set device.gpu=$g > /dev/null; case $? in 0 | 3) ;; *) exit 1 ;; esac
  done' "$MBSIM"

echo old > keys.json
expect "a full disk is an error" 1 'keys\.json: cannot be written' \
  sh -c 'ulimit -f 0; exec "$0" keys --json keys.json' "$MBSIM"
check "the old file stays" grep -qx old keys.json
check "nothing else is left" sh -c '! ls -A | grep -q "^\.keys"'
one_error "standard output that is full is one error" 1 'standard output: cannot be written' \
  sh -c '"$0" -q good.ini --json - > /dev/full' "$MBSIM"
expect "standard output that is full is an error" 1 'standard output: cannot be written' \
  sh -c '"$0" keys > /dev/full' "$MBSIM"

"$MBSIM" good.ini -q > one.txt 2>&1
mpi 4 "$MBSIM" good.ini -q > four.txt 2>&1
check "four processes print what one prints" cmp one.txt four.txt
mpi 4 "$MBSIM" gpus > four.txt 2>&1
"$MBSIM" gpus > one.txt 2>&1
check "four processes print one list" cmp one.txt four.txt
# shellcheck disable=SC2317 # called through check
code_2() { # code_2 N SCENARIO: N processes end with code 2; what they say is in many.txt
  mpi "$1" "$MBSIM" "$2" > many.txt 2>&1
  [ $? -eq 2 ]
}
check "64 processes and a wrong scenario: code 2" code_2 64 key.ini
check "64 processes and a wrong scenario: one message" [ "$(grep -c '^key\.ini:5:' many.txt)" -eq 1 ]
check "more processes than GPUs: code 2" code_2 9 good.ini
check "more processes than GPUs: one message" [ "$(grep -c '^mbsim: run: .*9' many.txt)" -eq 1 ]

done_testing
