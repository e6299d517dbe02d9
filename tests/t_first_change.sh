#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The example of a change in README.md is made, in a copy of the built tree.
. "$TOP_SRCDIR/tests/lib.sh"
if [ ! -e "$TOP_SRCDIR/config.status" ]; then
  skip "the first change" "built outside the source tree"
  done_testing
fi
tree=$work/tree
mkdir "$tree"
(cd "$TOP_SRCDIR" && tar -cf - --exclude='./build*' --exclude=./.git --exclude='./tests/*.log' \
  --exclude='./tests/*.trs' --exclude=./corpus .) | (cd "$tree" && tar -xf -)
cd "$tree" || exit 99
sed -i "s|$TOP_SRCDIR|$tree|g" config.status
check "the copy is set up" ./config.status -q
awk '$0 == "<!-- first change -->" { f = 1; next } f && /^```/ { if (f++ == 2) exit; next } f == 2' \
  README.md >"$work/commands"
check "README.md has the commands" test -s "$work/commands"
unset MBSIM
expect "they work" 0 '^PASS.*the H100 with 64 GB$' env MAKEFLAGS= sh -ec '. "$1"' - "$work/commands"
# The test fails without the row.
sed -i '/"h100-64gb"/d' topology/gpu_table.c
expect "without the row the test fails" 1 '^not ok .*the H100 with 64 GB' \
  env MAKEFLAGS= sh -c 'make -s mbsim && MBSIM=$PWD/mbsim TOP_SRCDIR=$PWD sh tests/t_topo.sh'
done_testing
