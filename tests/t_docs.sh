#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every command that README.md and the man page show is run, and what they show is what it prints.
#   README: ```console blocks; a line "$ COMMAND" (continued while it ends with \), then its
#   output, in which a line "..." stands for any number of lines. The two ```sh blocks are the
#   commands that build; what the first one runs in the end is run here, the second runs this.
#   Man page: the same between .EX and .EE; what a command without output prints is not looked at.
. "$TOP_SRCDIR/tests/lib.sh"

here=$work/here
mkdir "$here" "$here/tests"
ln -s "$MBSIM" "$here/mbsim"
ln -s "$TOP_SRCDIR/scenarios" "$here/scenarios"
ln -s "$TOP_SRCDIR/tests/data" "$here/tests/data"
# The files that the examples of the man page name.
cp "$TOP_SRCDIR/scenarios/llama3-8b-8gpu.ini" "$here/job.ini"
printf '[sweep]\ntensor_model_parallel_size = 1 2\nmicro_batch_size = 1 2\n' |
  cat "$here/job.ini" - >"$here/sweep.ini"
cp "$TOP_SRCDIR/tests/data/import/train.sh" "$here/train.sh"
cp "$TOP_SRCDIR/tests/data/diagnose/fraction.txt" "$here/train.log"
cp "$TOP_SRCDIR/tests/data/snapshots/edge_retry.p5.pickle" "$here/snapshot.pickle"
cd "$here" || exit 99
PATH=$here:$PATH

# Splits the blocks of standard input, lines that begin with "|", into $work/NAME.N.cmd and .out;
# prints how many there are.
split_commands() {
  awk -v stem="$work/$1." '
    !/^\|/ { inside = 0; next }
    { line = substr($0, 2) }
    more { print line > cmd; more = line ~ /\\$/; next }
    line ~ /^\$ / {
      n++
      inside = 1
      cmd = stem n ".cmd"
      out = stem n ".out"
      print substr(line, 3) > cmd
      printf "" > out
      more = line ~ /\\$/
      next
    }
    inside { print line > out; next }
    { print "output without a command: " line > "/dev/stderr" }
    END { print n + 0 }'
}

readme_blocks() {
  awk '/^```/ { inside = !inside && $0 == "```console"; next } inside { print "|" $0; next } { print "" }' \
    "$TOP_SRCDIR/README.md"
}

man_blocks() {
  awk '
    /^\.EX/ { inside = 1; next }
    /^\.EE/ { inside = 0; print ""; next }
    inside {
      sub(/^\\&/, "")
      gsub(/\\-/, "-")
      gsub(/\\\(aq/, "\047")
      gsub(/\\e/, "\\")
      print "|" $0
    }' "$TOP_SRCDIR/sim/cli/mbsim.1"
}

# matches EXPECTED GOT: line by line, "..." in EXPECTED for any lines; shows the first that differs.
matches() {
  awk '
    NR == FNR { expected[++n] = $0; next }
    { got[++m] = $0 }
    END {
      i = j = 1
      star = 0
      while (j <= m) {
        if (i <= n && expected[i] == "...") { star = i++; mark = j }
        else if (i <= n && expected[i] == got[j]) { i++; j++ }
        else if (star) { if (i > far) { far = i } i = star + 1; j = ++mark }
        else break
      }
      while (i <= n && expected[i] == "...")
        i++
      if (j <= m || i <= n) {
        if (far > i) i = far
        print "expected: " expected[i]
        if (j <= m) print "got:      " got[j]
        exit 1
      }
    }' "$1" "$2"
}

run_commands() { # run_commands NAME COUNT
  [ "$2" -gt 0 ] || not_ok "$1 has commands"
  r_i=0
  while [ "$r_i" -lt "$2" ]; do
    r_i=$((r_i + 1))
    r_command=$(cat "$work/$1.$r_i.cmd")
    timeout -k 5 120 sh -c "$r_command" >"$work/got" 2>&1 </dev/null
    r_code=$?
    r_title="$1: $(head -n 1 "$work/$1.$r_i.cmd")"
    if [ "$r_code" -ne 0 ] && [ "$r_code" -ne 3 ]; then
      not_ok "$r_title" "exit code $r_code; $(cat "$work/got")"
    elif [ "$1" = man ] && [ ! -s "$work/man.$r_i.out" ]; then
      ok "$r_title"
    elif ! r_text=$(matches "$work/$1.$r_i.out" "$work/got"); then
      not_ok "$r_title" "$r_text"
    else
      ok "$r_title"
    fi
  done
}

# First the comparison itself.
printf '%s\n' one ... three >"$work/e"
printf '%s\n' one two 2.5 three >"$work/g"
check 'dots stand for any lines' matches "$work/e" "$work/g"
printf '%s\n' one three four >"$work/g"
if matches "$work/e" "$work/g" >/dev/null; then not_ok 'a line too many'; else ok 'a line too many'; fi
printf '%s\n' one two >"$work/g"
if matches "$work/e" "$work/g" >/dev/null; then not_ok 'a line too few'; else ok 'a line too few'; fi

run_commands README "$(readme_blocks | split_commands README)"
run_commands man "$(man_blocks | split_commands man)"

# The two commands that build.
awk '/^```sh$/ { n++; inside = 1; next } /^```/ { inside = 0 } inside { print n ": " $0 }' \
  "$TOP_SRCDIR/README.md" >"$work/sh"
main_job=$(sed -n 's/^1: *//p' "$work/sh" | tr '\n' ' ' | sed 's/.*&& *//')
case $main_job in
mpirun*) expect "the main job: $main_job" 0 'FITS' sh -c "$main_job" ;;
*) not_ok 'the first command ends in the main job' "$main_job" ;;
esac
test_command=$(sed -n 's/^2: *//p' "$work/sh" | tr '\n' ' ')
case $test_command in
*'autoreconf -fi && ./configure --enable-werror && make'*check*) ok 'the second command tests' ;;
*) not_ok 'the second command tests' "$test_command" ;;
esac
# The third is the example of a change, which t_first_change.sh makes.
if grep -q '^4:' "$work/sh"; then not_ok 'no other sh block'; else ok 'no other sh block'; fi

# Targets of make that the text names.
for target in $(grep -oE '`make [a-z-]+`' "$TOP_SRCDIR/README.md" | sed 's/`make //; s/`//' | sort -u); do
  if grep -qE "^$target:|^\.PHONY:.* $target( |\$)" "$TOP_SRCDIR/Makefile.am" ||
    [ "$target" = distcheck ] || [ "$target" = install ] || [ "$target" = check ]; then
    ok "make $target exists"
  else
    not_ok "make $target exists"
  fi
done
done_testing
