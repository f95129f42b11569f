#!/bin/bash
# usage: private.sh BUILD TREE [VARIABLE=value ...]
#
# Builds the extension in folder BUILD and installs it into a private PostgreSQL in folder TREE;
# prints the latter's bin folder. The variables go to make, such as MUTANT=name. Nothing outside
# the two folders changes, so tests need neither root nor an exclusive machine.
#
# This works because PostgreSQL finds its library and share folders relative to its programs: TREE
# gets copies of the programs, and links to all the rest.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -ge 2 ] || die "usage: private.sh BUILD TREE [VARIABLE=value ...]"
mkdir -p "$1" "$2"
build=$(cd "$1" && pwd)
tree=$(cd "$2" && pwd)
shift 2

pg_config=$(pg_config_path)
[ -x "$pg_config" ] || die "$pg_config is not there; run test/setup.sh first"
bindir=$("$pg_config" --bindir)
libdir=$("$pg_config" --pkglibdir)
sharedir=$("$pg_config" --sharedir)

copy_links() { mkdir -p "$tree$1" && cp -rsf "$1/." "$tree$1"; }

mkdir -p "$tree$bindir"
cp -u "$bindir"/* "$tree$bindir/"
copy_links "$libdir"
copy_links "$sharedir"
# Folders that only compilers read.
for folder in "$("$pg_config" --includedir)" "$("$pg_config" --libdir)"; do
  mkdir -p "$tree${folder%/*}"
  ln -sfn "$folder" "$tree$folder"
done
# A shard installed in the system must not be mistaken for ours, nor written to through the links.
rm -f "$tree$libdir/shard.so" "$tree$sharedir"/extension/shard.control \
  "$tree$sharedir"/extension/shard--*.sql

# Sources are copied with their times, so that a second build compiles only what changed; sources
# that are gone must go from the copy, too.
find "$build" -name '*.[ch]' -delete
rm -rf "$build/extension/install"
version=$(sed -n "s/^default_version *= *'\(.*\)'/\1/p" "$root/extension/shard.control")
tar -C "$root" --exclude='*.o' --exclude='*.so' --exclude="shard--$version.sql" --exclude=build \
  -cf - Makefile extension $(cd "$root" && ls -d test/unit 2>/dev/null) | tar -C "$build" -xf -

make -s -C "$build" -j "$(nproc)" install PG_CONFIG="$tree$bindir/pg_config" TREE="$tree" "$@" >&2
echo "$tree$bindir"
