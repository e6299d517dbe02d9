#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The rules that a compiler does not check, over the whole source tree: who may include whom,
# licence lines, length of files and functions, every test registered, every header complete by
# itself. Each rule is first shown to find a violation in a tree made for that.
. "$TOP_SRCDIR/tests/lib.sh"
CC=${CC:-cc}

# Every source file of the tree $1, relative to it; not those that the build makes.
sources() { # sources ROOT SUFFIX...
  (
    cd "$1" || exit 1
    shift
    for s_suffix in "$@"; do
      find sim topology collectives tests -name "*.$s_suffix" ! -path 'tests/data/*' \
        ! -name page_files.c 2>/dev/null
    done | sort
  )
}

# Lower layers first. sim/schedule may use sim/model, and sim/model sim/memory: the order in which
# the archives are linked.
include_order() {
  (cd "$1" && sources . c h | xargs grep -n '^# *include *"' /dev/null) | awk -F: '
    BEGIN {
      n = split("sim/base topology collectives sim/scenario sim/memory sim/model sim/schedule " \
                "sim/engine sim/report sim/study sim/cli tests/standin tests/device tests", order, " ")
      for (i = 1; i <= n; i++)
        rank[order[i]] = i
    }
    {
      file = $1
      sub(/^\.\//, "", file)
      split($3, quoted, "\"")
      header = quoted[2]
      if (header == "config.h")
        next
      from = file
      sub(/\/[^\/]*$/, "", from)
      to = header
      if (!sub(/\/[^\/]*$/, "", to) || !(to in rank))
        print file ":" $2 ": " header ": not a path of this tree"
      else if (!(from in rank))
        print file ": no such folder in the order of layers"
      else if (rank[to] > rank[from])
        print file ":" $2 ": " header ": " from " may not include from " to
      if (header ~ /\.c$/)
        print file ":" $2 ": " header ": a .c file is included"
      edge[file, header] = 1
      if ((header, file) in edge)
        print file " and " header " include each other"
    }'
}

# Headers of MPI, NCCL, CUDA and hwloc belong in the .c files that are about them.
outside_headers() {
  (cd "$1" && sources . c h | xargs grep -nE \
    '^# *include *[<"](mpi|nccl|nvml|cuda[a-z_]*|cublas[a-z_0-9]*|hwloc(/[a-z]+)?)\.h' /dev/null) |
    while IFS=: read -r o_file o_line o_text; do
      case $o_file:$o_text in
      collectives/*_mpi.c:*mpi.h* | tests/*.c:*mpi.h*) ;;
      tests/test_cuda_abi.c:*cuda* | tests/test_nccl_abi.c:*nccl.h*) ;;
      collectives/*nccl*.c:*nccl.h* | collectives/*nccl*.c:*cuda*) ;;
      topology/*_cuda.c:*cuda* | topology/*_cuda.c:*nvml.h*) ;;
      sim/memory/*_cuda.c:*cuda* | sim/memory/*_cuda.c:*nvml.h*) ;;
      topology/node*.c:*hwloc* | topology/bind.c:*hwloc*) ;;
      *) echo "$o_file:$o_line: $o_text: not allowed here" ;;
      esac
    done
}

licence_lines() {
  (cd "$1" && sources . c h sh | while read -r l_file; do
    head -n 2 "$l_file" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
      echo "$l_file: no SPDX line at the top"
  done)
}

left_over_notes() {
  (cd "$1" && sources . c h sh | grep -v '^tests/check_layers.sh$' |
    xargs grep -nwE 'TODO|FIXME|XXX' /dev/null)
}

# A function body runs from a { in the first column to the next } there.
lengths() {
  (cd "$1" && sources . c h | while read -r n_file; do
    awk -v file="$n_file" -v max_function=80 -v max_file=800 '
      /^\{/ { start = NR }
      /^\}/ {
        if (start && NR - start + 1 > max_function)
          print file ":" start ": function of " NR - start + 1 " lines, more than " max_function
        start = 0
      }
      END { if (NR > max_file) print file ": " NR " lines, more than " max_file }' "$n_file"
  done)
}

# A test that no Makefile.inc names would never run.
unregistered_tests() {
  (cd "$1" && find . -name Makefile.inc -exec cat {} + >"$work/named" &&
    for u_file in tests/test_*.c tests/t_*.sh tests/fuzz_*.c tests/bench_*.c; do
      [ ! -f "$u_file" ] || grep -qE "(tests|%D%)/${u_file#tests/}" "$work/named" ||
        echo "$u_file: in no Makefile.inc"
    done)
}

# HEADER_FLAGS: the preprocessor flags of this build, from make.
incomplete_headers() {
  sources "$1" h | while read -r i_file; do
    # shellcheck disable=SC2086 # compiler and flags are lists of words
    printf '#include "config.h"\n#include "%s"\n#include "%s"\n' "$i_file" "$i_file" |
      $CC -std=gnu11 -Wall -Wextra -Werror -fsyntax-only -x c -I"$1" ${HEADER_FLAGS:-} - ||
      echo "$i_file: does not compile by itself"
  done 2>&1
}

seed() { # seed FILE: standard input becomes FILE of the tree of violations
  mkdir -p "$work/bad/${1%/*}"
  cat >"$work/bad/$1"
}

finds() { # finds RULE PATTERN: the rule reports the seeded violation
  if "$1" "$work/bad" | grep -q -- "$2"; then
    ok "$1 finds: $2"
  else
    not_ok "$1 finds: $2" "$("$1" "$work/bad")"
  fi
}

holds() { # holds RULE TEXT
  h_out=$("$1" "$TOP_SRCDIR")
  if [ -z "$h_out" ]; then ok "$2"; else not_ok "$2" "$h_out"; fi
}

mark='/* SPDX-License-Identifier: Apache-2.0 */'
seed topology/up.c <<X
$mark
#include "sim/engine/engine.h"
#include <mpi.h>
X
seed sim/model/one.h <<X
$mark
#include "sim/model/two.h"
#include <nccl.h>
size_t model_one(void);
X
seed sim/model/two.h <<X
$mark
#include "sim/model/one.h"
X
seed sim/model/astray.c <<X
int unlicensed; /* TODO */
#include "elsewhere/x.h"
X
{
  echo "$mark"
  echo 'void f(void)'
  echo '{'
  yes '    g();' | head -n 79
  echo '}'
  yes '' | head -n 720
} | seed sim/cli/long.c
seed tests/test_lost.c <<X
$mark
X
seed tests/Makefile.inc <<X
X

finds include_order 'topology/up.c:2: sim/engine/engine.h: topology may not include from sim/engine'
finds include_order 'sim/model/two.h and sim/model/one.h include each other'
finds include_order 'sim/model/astray.c:2: elsewhere/x.h: not a path of this tree'
finds outside_headers 'topology/up.c:3: #include <mpi.h>: not allowed here'
finds outside_headers 'sim/model/one.h:3: #include <nccl.h>: not allowed here'
finds licence_lines 'sim/model/astray.c: no SPDX line'
finds left_over_notes 'sim/model/astray.c:1:'
finds lengths 'sim/cli/long.c:3: function of 81 lines'
finds lengths 'sim/cli/long.c: 803 lines'
finds unregistered_tests 'tests/test_lost.c: in no Makefile.inc'
finds incomplete_headers 'sim/model/one.h: does not compile by itself'

holds include_order 'includes point one way'
holds outside_headers 'MPI, NCCL, CUDA and hwloc headers only where they belong'
holds licence_lines 'every source has its SPDX line'
holds left_over_notes 'no notes are left in the source'
holds lengths 'files of at most 800 lines, functions of at most 80'
holds unregistered_tests 'every test is named in a Makefile.inc'
holds incomplete_headers 'every header compiles by itself'
done_testing
