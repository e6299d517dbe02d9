#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The man page names every command, option and key, and nothing that does not exist.
. "$TOP_SRCDIR/tests/lib.sh"
page=$TOP_SRCDIR/sim/cli/mbsim.1

# Each line of the page as "SECTION|SUBSECTION|text", without fonts and escapes.
awk '
  {
    gsub(/\\f[BIRP]/, "")
    gsub(/\\-/, "-")
    gsub(/\\\(aq/, "\047")
    gsub(/\\e/, "\\")
  }
  /^\.SH / { sub(/^\.SH /, ""); gsub(/"/, ""); section = $0; part = ""; next }
  /^\.SS / { sub(/^\.SS /, ""); gsub(/"/, ""); part = $0; next }
  /^\.B/ { sub(/^\.B[RI]? /, ""); gsub(/"/, ""); gsub(/  +/, " ") }
  /^\.(TP|\\")/ { next }
  { print section "|" part "|" $0 }' "$page" >"$work/page"

"$MBSIM" help >"$work/help"
commands=$(sed -n 's/^  \([a-z][a-z]*\) .*/\1/p' "$work/help")
[ -n "$commands" ] || not_ok 'commands are listed' "$(cat "$work/help")"

same() { # same TEXT EXPECTED-FILE GOT-FILE
  if s_diff=$(diff "$2" "$3"); then ok "$1"; else not_ok "$1" "$s_diff"; fi
}

sed -n 's/^  \([a-z][a-z]* .*[^ ]\)   *[^ ].*/\1/p; s/^  \([a-z][a-z]*\)   *[^ ].*/\1/p' "$work/help" |
  sed 's/  .*//' | sort >"$work/expected"
sed -n 's/^COMMANDS|\([^|][^|]*\)|.*/\1/p' "$work/page" | sort -u >"$work/got"
same 'every command with its arguments' "$work/expected" "$work/got"

: >"$work/all_options"
for command in $commands; do
  [ "$command" != help ] || continue
  lost=
  for option in $("$MBSIM" "$command" --help | grep -E '^  (-|    --)' | grep -oE -- ' --[a-z0-9-]+'); do
    echo "$option" >>"$work/all_options"
    grep -E "^(COMMANDS\|$command( [^|]*)?|COMMON OPTIONS\|)\|" "$work/page" |
      grep -qE -- "(^|[|, ])$option([ =,]|\$)" || lost="$lost $option"
  done
  if [ -z "$lost" ]; then ok "options of $command"; else not_ok "options of $command" "not in the page:$lost"; fi
done
{ cat "$work/all_options"; echo --version; } | sort -u >"$work/expected"
grep -E '^(COMMANDS|COMMON OPTIONS)\|' "$work/page" | grep -oE '(\||, )--[a-z0-9-]+' | grep -oE -- '--.*' |
  sort -u >"$work/got"
same 'every option exists' "$work/expected" "$work/got"

"$MBSIM" keys | awk '
  /^\[/ { section = $0 }
  /^  [a-z0-9_]+ = / { sub(/^  /, ""); print section "|" $0 }' >"$work/expected"
sed -n 's/^KEYS|\([^|]*\)|\([a-z0-9_]* = .*\)$/\1|\2/p' "$work/page" >"$work/got"
[ -s "$work/expected" ] || not_ok 'keys are listed'
same 'every key with its default' "$work/expected" "$work/got"

{ "$MBSIM" help topics | sed 's/^  \([a-z-]*\) .*/\1/'; echo topics; } | sort >"$work/expected"
sed -n 's/^TOPICS||\([a-z-]*\)$/\1/p' "$work/page" | sort >"$work/got"
same 'every topic' "$work/expected" "$work/got"
"$MBSIM" help topics | sed 's/^  \([a-z-]*\) .*/\1/' | while read -r topic; do
  "$MBSIM" help "$topic" >"$work/topic" || echo "$topic fails"
  [ "$(wc -l <"$work/topic")" -ge 5 ] || echo "$topic is short"
  ! grep -nE '^.{81}' "$work/topic" || echo "$topic is wide"
  grep -qF "$topic" "$work/help" || echo "$topic is not in the list"
done >"$work/complaints"
if [ ! -s "$work/complaints" ]; then ok 'every topic has a text'; else not_ok 'every topic has a text' "$(cat "$work/complaints")"; fi
expect 'an unknown topic' 2 'did you mean fragmentation' "$MBSIM" help fragmentaton

for code in 0 1 2 3 4; do
  grep -qx "EXIT STATUS||$code" "$work/page" || not_ok "exit status $code"
done
if command -v groff >/dev/null; then
  warnings=$(groff -man -ww -Tutf8 -z "$page" 2>&1)
  if [ -z "$warnings" ]; then ok 'groff has no warnings'; else not_ok 'groff has no warnings' "$warnings"; fi
else
  skip 'groff has no warnings' 'no groff'
fi
done_testing
