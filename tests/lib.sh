# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Helpers of the shell tests; read with `. "$TOP_SRCDIR/tests/lib.sh"`. Output is TAP.
# Variables given by make: MBSIM (the program), TOP_SRCDIR (the source tree).
: "${MBSIM:?}" "${TOP_SRCDIR:?}"
# Open MPI as root, on fewer cores than ranks, without the launcher threads that lose children.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_odls_base_num_threads=0
export OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1

tap_n=0
tap_failed=0
work=$(mktemp -d "${TMPDIR:-/tmp}/mbsim-test.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT

ok() { # ok TEXT: the last check holds
  tap_n=$((tap_n + 1))
  echo "ok $tap_n - $1"
}

not_ok() { # not_ok TEXT [DETAIL]
  tap_n=$((tap_n + 1))
  tap_failed=1
  echo "not ok $tap_n - $1"
  [ -z "${2-}" ] || printf '%s\n' "$2" | sed 's/^/# /'
}

skip() { # skip TEXT REASON
  tap_n=$((tap_n + 1))
  echo "ok $tap_n - $1 # SKIP $2"
}

# check TEXT COMMAND...: the command succeeds.
check() {
  check_text=$1
  shift
  if check_out=$("$@" 2>&1); then ok "$check_text"; else not_ok "$check_text" "$check_out"; fi
}

# expect TEXT CODE PATTERN COMMAND...: exit code CODE, and stdout+stderr has a line that matches PATTERN (grep -E).
expect() {
  expect_text=$1 expect_code=$2 expect_pattern=$3
  shift 3
  expect_out=$(timeout -k 5 120 "$@" 2>&1)
  expect_rc=$?
  if [ "$expect_rc" -ne "$expect_code" ]; then
    not_ok "$expect_text" "exit code $expect_rc, not $expect_code; output: $expect_out"
  elif ! printf '%s\n' "$expect_out" | grep -Eq -- "$expect_pattern"; then
    not_ok "$expect_text" "no line matches '$expect_pattern' in: $expect_out"
  else
    ok "$expect_text"
  fi
}

# mpi N COMMAND...: under mpirun, never longer than two minutes.
mpi() {
  mpi_n=$1
  shift
  timeout -k 5 120 mpirun -np "$mpi_n" "$@"
}

done_testing() {
  echo "1..$tap_n"
  exit "$tap_failed"
}
