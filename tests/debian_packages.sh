#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install, on Debian, what building and testing mbsim need and is missing; more packages may be
# named as arguments. As root, or through sudo.
set -eu

needed='gcc libc6-dev make autoconf automake pkg-config libopenmpi-dev openmpi-bin libhwloc-dev
  libinih-dev libjansson-dev libyaml-dev libcunit1-dev groff-base jq procps python3'

if ! command -v apt-get >/dev/null; then
  # shellcheck disable=SC2086 # a list of words
  echo "not a Debian system; mbsim needs the equivalents of:" $needed >&2
  exit 0
fi

missing=
for package in $needed "$@"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state=none
  [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
[ "$(id -u)" -eq 0 ] || as_root='sudo'
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get -q update
# shellcheck disable=SC2086 # a list of words
$as_root apt-get -q install -y --no-install-recommends $missing
