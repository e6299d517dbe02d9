#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coverage.sh BUILD [LEAST]: after the tests of a build with --enable-coverage, print the share of
# lines that ran, by folder and in all; exit code 1 when that is below LEAST percent.
set -eu
cd "$1"
least=${2:-0}
gcov=$(sed -n 's/^GCOV = //p' Makefile)
find sim topology collectives -name '*.gcda' | while read -r data; do
  $gcov -n "$data" 2>/dev/null
done | awk -v least="$least" '
  /^File / { file = $2; gsub(/\047/, "", file); sub(/^.*\/(sim|topology|collectives)\//, "&", file) }
  /^Lines executed:/ && file != "" {
    if (file ~ /^\// || file ~ /page_files/) { file = ""; next }
    split($0, part, /[:% ]+/)
    share = part[3]; n = part[5]
    sub(/^\.\//, "", file)
    if (file ~ /\.c$/) {
      ran = share * n / 100
      lines_of[file] = n
      if (ran > ran_of[file]) ran_of[file] = ran
    }
    file = ""
  }
  END {
    for (f in lines_of) {
      folder = f
      sub(/\/[^\/]*$/, "", folder)
      lines[folder] += lines_of[f]; ran_in[folder] += ran_of[f]
      all += lines_of[f]; ran_all += ran_of[f]
      printf "%5.1f %%  %6d lines  %s\n", 100 * ran_of[f] / lines_of[f], lines_of[f], f | "sort -n >&2"
    }
    close("sort -n >&2")
    for (folder in lines)
      printf "%5.1f %%  %6d lines  %s\n", 100 * ran_in[folder] / lines[folder], lines[folder], folder | "sort -k5"
    close("sort -k5")
    if (all == 0) { print "nothing ran"; exit 1 }
    printf "%5.1f %%  %6d lines  in all\n", 100 * ran_all / all, all
    exit 100 * ran_all / all < least
  }'
