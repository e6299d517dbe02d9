#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The completion for bash knows every command, every option of each, and every key.
. "$TOP_SRCDIR/tests/lib.sh"

if ! command -v bash >/dev/null; then
  skip "completion" "no bash"
  done_testing
fi

# offered WORD...: what bash would offer for the last word, one a line.
offered() {
  bash -c '. "$TOP_SRCDIR/sim/cli/mbsim.bash"
    COMP_WORDS=(mbsim "$@")
    COMP_CWORD=$#
    previous=mbsim
    [ $# -lt 2 ] || previous=${COMP_WORDS[COMP_CWORD - 1]}
    _mbsim "$MBSIM" "${COMP_WORDS[COMP_CWORD]}" "$previous"
    printf "%s\n" "${COMPREPLY[@]}"' - "$@"
}

# offers TEXT EXPECTED WORD...: what is offered for the last word is EXPECTED, in any order.
offers() {
  offers_text=$1 offers_expected=$2
  shift 2
  offered "$@" | sort >"$work/got"
  printf '%s\n' "$offers_expected" | sort >"$work/expected"
  if offers_diff=$(diff "$work/expected" "$work/got"); then
    ok "$offers_text"
  else
    not_ok "$offers_text" "$offers_diff"
  fi
}

commands=$("$MBSIM" help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p')
mkdir "$work/here" && cd "$work/here" || exit 99
offers 'commands' "$commands
--help
--version" ''
touch job.ini log.txt
offers 'a scenario may come first' job.ini jo
offers 'no other file may come first' '' lo
for command in $commands; do
  [ "$command" != help ] || continue
  options=$("$MBSIM" "$command" --help | grep -E '^  (-|    --)' | grep -oE -- ' --[a-z0-9-]+' | tr -d ' ')
  offers "options of $command" "$options" "$command" --
done
offers 'keys after --set' "$("$MBSIM" keys --json - |
  awk -F'"' '$2 == "section" { s = $4 } $2 == "name" { print s "." $4 "=" }')" run job.ini --set ''
offers 'words of an option' 'auto
always
never' run --progress ''
offers 'files for an option' log.txt run --json l
offers 'known GPUs' h100-80gb-sxm import --gpu h100-80gb-s
offers 'files where nothing else is known' 'job.ini
log.txt' replay -c ''
done_testing
