#!/bin/bash
# usage: matrix.sh [--prepare] [MAJOR ...]
#
# Runs the tests on every supported major version: 15, 17 and 18 by default. A version that this
# system does not package runs in a Debian release that does, debootstrapped once into
# .matrix/<release>; --prepare stops after that. Needs root for the latter.
#
# MATRIX_TIERS names the tiers of check.sh to run, all that need a server by default.
#
# Mounts and processes live in namespaces of their own: they end with the run, however it ends.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
read -ra tiers <<<"${MATRIX_TIERS:-unit regress isolation tap cluster attack}"

release_of() {
  case $1 in
    15) echo bookworm ;;
    17) echo trixie ;;
    18) echo forky ;;
    *) die "no Debian release is known for PostgreSQL $1" ;;
  esac
}

here() {  # is the version packaged for, or installed on, this system?
  [ -x "/usr/lib/postgresql/$1/bin/postgres" ] || apt-cache show "postgresql-$1" >/dev/null 2>&1
}

inside() {  # folder of the release, command ...
  local folder=$1
  shift
  unshare --mount --pid --fork --kill-child bash -c '
    mount -t proc proc "$1/proc" && mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm" &&
    folder=$1 && shift && exec chroot "$folder" "$@"' inside "$folder" \
    /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 PG_MAJOR="$major" \
    CHECK_TIMEOUT="${CHECK_TIMEOUT:-1800}" PROVE_TESTS="${PROVE_TESTS:-}" "$@"
}

copy_source() {  # folder of the release
  mkdir -p "$1/shard"
  find "$1/shard" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
  tar --exclude=./.git --exclude=./.matrix --exclude=./build --exclude=./test/unit/build --exclude=./test/sim/build \
    --exclude='*.o' --exclude='*.so' -cf - . | tar -C "$1/shard" -xf -
}

prepare() {  # release, folder
  [ ! -e "$2/.complete" ] || return 0
  [ "$(id -u)" = 0 ] || die "making $2 needs root"
  command -v debootstrap >/dev/null || apt-get -q -y install --no-install-recommends debootstrap
  say "debootstrap of $1 into $2, some minutes"
  rm -rf "$2"
  # An older debootstrap may not know the release; sid's script fits every recent one.
  debootstrap --variant=minbase "$1" "$2" "$mirror" /usr/share/debootstrap/scripts/sid >"$2.log" 2>&1 ||
    { tail -n 20 "$2.log" >&2; return 1; }
  # A mirror may lag behind the short validity of a testing release; signatures still count.
  echo 'Acquire::Check-Valid-Until "false";' >"$2/etc/apt/apt.conf.d/90shard"
  copy_source "$2"
  inside "$2" /shard/test/setup.sh build test >>"$2.log" 2>&1 ||
    { tail -n 20 "$2.log" >&2; return 1; }
  touch "$2/.complete"
}

only_prepare=
if [ "${1:-}" = --prepare ]; then only_prepare=1; shift; fi
majors=("$@")
[ $# -gt 0 ] || majors=(15 17 18)

mkdir -p .matrix
results=()
status=0
for major in "${majors[@]}"; do
  release=$(release_of "$major")
  folder=$root/.matrix/$release
  start=$SECONDS
  if here "$major"; then
    [ -z "$only_prepare" ] || continue
    say "PostgreSQL $major on this system"
    PG_MAJOR=$major test/check.sh "${tiers[@]}" 2>&1 | tee ".matrix/$major.log" || status=1
  else
    prepare "$release" "$folder" || { results+=("$major|$release|could not be prepared|"); status=1; continue; }
    [ -z "$only_prepare" ] || continue
    say "PostgreSQL $major on Debian $release"
    copy_source "$folder"
    inside "$folder" /shard/test/check.sh "${tiers[@]}" 2>&1 | tee ".matrix/$major.log" || status=1
  fi
  line=$(tail -n 1 ".matrix/$major.log")
  [[ $line == *" passed, "* ]] || line="did not finish"
  results+=("$major|$release|$line|$((SECONDS - start)) s")
done

[ -z "$only_prepare" ] || exit "$status"
echo
printf '%-12s%-10s%-30s%s\n' PostgreSQL Debian Result Time
for row in "${results[@]}"; do
  IFS='|' read -r major release line seconds <<<"$row"
  printf '%-12s%-10s%-30s%s\n' "$major" "$release" "$line" "$seconds"
done
exit "$status"
