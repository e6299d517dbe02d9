# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion of mbsim for bash. Commands, options and keys come from the program that is being
# completed, so they are always those of its version.

_mbsim_commands() {
  "$1" help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'
}

_mbsim_topics() {
  "$1" help topics 2>/dev/null | awk '{ print $1 }'
}

# _mbsim_options PROGRAM COMMAND
_mbsim_options() {
  "$1" help "$2" 2>/dev/null | sed -n 's/^  \(-.,\|   \) \(--[a-z0-9-]*\).*/\2/p'
}

# _mbsim_argument PROGRAM COMMAND OPTION: the name of the option's argument, as FILE.
_mbsim_argument() {
  "$1" help "$2" 2>/dev/null | awk -v option="$3" '
    /^  (-|    --)/ {
      long = $1 ~ /,$/ ? 2 : 1
      if ($1 == option "," || $long == option)
        print $(long + 1)
    }' | tr -d '[]'
}

# _mbsim_keys PROGRAM: section.key of every key.
_mbsim_keys() {
  "$1" keys 2>/dev/null | awk '
    /^\[/ { s = substr($1, 2, length($1) - 2) }
    /^  [a-z0-9_]+ = / { print s "." $1 }'
}

_mbsim_first_column() {
  "$@" 2>/dev/null | awk 'NR > 1 && /^[a-z]/ { print $1 }'
}

_mbsim() {
  local program=$1 current=$2 previous=$3 command=run words=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="$(_mbsim_commands "$program") --help --version"
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"; compgen -f -X '!*.ini' -- "$current")
    return
  fi
  if _mbsim_commands "$program" | grep -qx -- "${COMP_WORDS[1]}"; then command=${COMP_WORDS[1]}; fi
  case $previous in
  -?*)
    case $(_mbsim_argument "$program" "$command" "$previous") in
    SECTION.KEY=VALUE)
      compopt -o nospace 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -S = -W "$(_mbsim_keys "$program")" -- "$current")
      return
      ;;
    WHEN) words='auto always never' ;;
    MODE) words='stepped live' ;;
    POLICY) words='bump reuse down' ;;
    NAME) [ "$previous" != --gpu ] || words=$(_mbsim_first_column "$program" gpus) ;;
    DIR)
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      return
      ;;
    FILE | *.tsv | *.ini | *.json | *.jsonl)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
    esac
    ;;
  esac
  if [ -z "$words" ]; then
    case $command:$current in
    *:-*) words=$(_mbsim_options "$program" "$command") ;;
    help:*) words="$(_mbsim_commands "$program") $(_mbsim_topics "$program") topics" ;;
    keys:*) words=$(_mbsim_keys "$program" | sed 's/.*\.//' | sort -u) ;;
    esac
  fi
  if [ -n "$words" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}

complete -o filenames -F _mbsim mbsim
