#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# valgrind.sh PROGRAM ARGUMENT...: run it under valgrind; exit code 99 when that finds something. As
# the name of a link, LINK.real being the program, it stands for the program.
real=$0.real
if [ ! -e "$real" ]; then
  real=$1
  shift
fi
suppressions=${TOP_SRCDIR:?}/tests/valgrind.supp
of_mpi=/usr/share/openmpi/openmpi-valgrind.supp
[ ! -e "$of_mpi" ] || set -- "--suppressions=$of_mpi" "$real" "$@"
[ -e "$of_mpi" ] || set -- "$real" "$@"
exec valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite \
  --errors-for-leak-kinds=definite --suppressions="$suppressions" "$@"
