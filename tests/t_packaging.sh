#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make install and uninstall, the module file, and the recipes of packaging/.
. "$TOP_SRCDIR/tests/lib.sh"
build=$(dirname "$MBSIM")
root=$work/root

# What is installed works from where it is, and nothing is left of it afterwards.
check "make install" env MAKEFLAGS= make -s -C "$build" install DESTDIR="$root"
installed=$(find "$root" -path '*/bin/mbsim')
installed=${installed%/bin/mbsim}
prefix=${installed#"$root"}
expect "the installed program runs" 0 'FITS' "$installed/bin/mbsim" "$TOP_SRCDIR/scenarios/llama3-8b-8gpu.ini"
for file in share/man/man1/mbsim.1 share/bash-completion/completions/mbsim.bash share/mbsim/machines/dgx-h100.xml; do
  check "$file is there" test -s "$installed/$file"
done

module=$(find "$installed/share/mbsim/modulefiles/mbsim" -type f)
check "one module file, named by the version" test "$(basename "$module")" = "$("$MBSIM" --version | sed -n 's/^mbsim //p')"
expect "the module file begins as one" 0 '^#%Module1.0$' head -n 1 "$module"
expect "the module file says where the program is" 0 "^prepend-path PATH $prefix/bin\$" cat "$module"
modulecmd=
for path in /usr/lib/x86_64-linux-gnu/modulecmd.tcl /usr/share/modules/libexec/modulecmd.tcl \
  /usr/lib/*/modulecmd.tcl /usr/libexec/modulecmd.tcl; do
  [ ! -e "$path" ] || modulecmd=$path
done
if [ -n "$modulecmd" ] && command -v tclsh >/dev/null; then
  # shellcheck disable=SC2016 # for the inner shell
  expect "module load puts it in PATH" 0 "^$prefix/bin:" env PATH=/usr/bin:/bin \
    MODULEPATH="$installed/share/mbsim/modulefiles" sh -c 'eval "$(tclsh "$1" sh load mbsim)"; echo "$PATH"' - "$modulecmd"
  expect "module whatis" 0 'GPU memory of Megatron' env MODULEPATH="$installed/share/mbsim/modulefiles" \
    tclsh "$modulecmd" sh whatis mbsim
else
  skip "module load puts it in PATH" "environment-modules is not installed"
fi

check "make uninstall" env MAKEFLAGS= make -s -C "$build" uninstall DESTDIR="$root"
check "no file is left" test -z "$(find "$root" -type f -o -type l)"

# Recipes: their shell is sound, what they run is there, and they install what the program is linked to.
packaging=$TOP_SRCDIR/packaging
sed -n 's/^RUN //p' "$packaging/Dockerfile" >"$work/docker.sh"
awk '/^%/ { inside = $1 == "%post" || $1 == "%test" || $1 == "%runscript"; next } inside' \
  "$packaging/mbsim.def" >"$work/apptainer.sh"
for recipe in docker apptainer; do
  check "$recipe: has commands" test -s "$work/$recipe.sh"
  check "$recipe: they are shell" sh -n "$work/$recipe.sh"
  expect "$recipe: packages by the project's own list" 0 '^ *tests/debian_packages.sh' cat "$work/$recipe.sh"
done
if command -v ldd >/dev/null && command -v dpkg >/dev/null && [ -z "${SAN_FLAGS-}" ]; then
  for library in $(ldd "$MBSIM" | awk '$3 ~ /lib(hwloc|inih|jansson|yaml|mpi)[-.]/ { print $3 }'); do
    package=$(dpkg -S "$(readlink -f "$library")" 2>/dev/null | sed 's/:.*//; q')
    [ "$package" = libopenmpi3 ] && package=openmpi-bin
    [ -n "$package" ] || continue
    expect "docker: the image gets $package" 0 "install .* $package( |\$)" cat "$work/docker.sh"
  done
fi
done_testing
