#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# debian_root.sh SOURCES: run each of the two commands of README.md in a new, minimal Debian 12 of
# its own. Needs root, debootstrap and a package mirror, and takes minutes: no part of make check.
set -eu
sources=$1
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d "${TMPDIR:-/tmp}/mbsim-root.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT

# The fenced block of README.md after the comment <!-- NAME -->.
readme_command() {
  awk -v mark="<!-- $1 -->" '
    $0 == mark { f = 1; next }
    f && /^```/ { if (f++ == 2) exit; next }
    f == 2' "$sources/README.md"
}

debootstrap --variant=minbase bookworm "$work/empty" "$mirror" >"$work/debootstrap.log" 2>&1 ||
  { tail "$work/debootstrap.log"; exit 1; }

for name in 'run command' 'test command'; do
  echo "== $name"
  root=$work/root
  rm -rf --one-file-system "$root"
  cp -a "$work/empty" "$root"
  cp -a "$sources" "$root/root/mbsim"
  readme_command "$name" >"$root/root/command"
  [ -s "$root/root/command" ] || { echo "README.md has no $name"; exit 1; }
  # In mount and process namespaces of its own, so that nothing is left when it ends.
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
    unshare --mount --pid --fork --kill-child sh -ec '
      mount -t proc proc "$1/proc"
      mount --rbind /sys "$1/sys"
      mount -t tmpfs tmpfs "$1/dev/shm"
      exec chroot "$1" sh -ec "cd /root/mbsim && . /root/command"' - "$root" </dev/null
  echo "== $name: ok"
done
