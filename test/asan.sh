#!/bin/bash
# usage: asan.sh [TIER ...]
#
# Runs tiers of check.sh (regress isolation attack by default) with a PostgreSQL of its own that is built with
# AddressSanitizer and the server's assertions: the packaged server does not start with either, and what reads memory
# that was freed, or another's, passes there unnoticed.
#
# The server's source comes from Debian, once, into build/asan; DEBIAN_MIRROR and DEBIAN_SECURITY say where from.
# PROVE_TESTS and SHARD_SECONDS work as with check.sh. All takes about three times as long.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

tiers=("$@")
[ $# -gt 0 ] || tiers=(regress isolation attack)
major=$(pg_major)
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
security=${DEBIAN_SECURITY:-http://deb.debian.org/debian-security}
folder=$root/build/asan
# Leaks are what a server's memory contexts are for; what the sanitizer finds has to end the process.
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1

# The source of the packaged server, or of another release of that major version.
get_source() {
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg release version
  release=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mkdir -p "$folder/apt/lists/partial" "$folder/source"
  printf 'deb-src [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$release" "$keyring" "$security" "$release-security" \
    >"$folder/apt/sources.list"
  printf '%s\n' "Dir::Etc::sourcelist \"$folder/apt/sources.list\";" 'Dir::Etc::sourceparts "/dev/null";' \
    "Dir::State::lists \"$folder/apt/lists\";" 'APT::Sandbox::User "root";' >"$folder/apt/apt.conf"
  export APT_CONFIG=$folder/apt/apt.conf
  apt-get -q update >"$folder/apt.log" 2>&1
  # Not every mirror has the newest one.
  for version in $(apt-cache showsrc "postgresql-$major" | sed -n 's/^Version: //p' | sort -rV); do
    (cd "$folder" && apt-get -q source --download-only "postgresql-$major=$version") >>"$folder/apt.log" 2>&1 || continue
    tar -C "$folder/source" --strip-components=1 -xf "$folder"/postgresql-"$major"_*.orig.tar.*
    return
  done
  tail -n 20 "$folder/apt.log" >&2
  die "there is no source of PostgreSQL $major"
}

build_server() {
  local flags='-O1 -g -fsanitize=address -fno-omit-frame-pointer' module
  as_root apt-get -q -y install --no-install-recommends gcc make bison flex perl libreadline-dev zlib1g-dev libssl-dev \
    libipc-run-perl >"$folder/apt.log" 2>&1
  cd "$folder/source"
  ./configure -q --prefix="$folder/server" --enable-cassert --enable-tap-tests --with-openssl --without-icu CFLAGS="$flags" \
    LDFLAGS=-fsanitize=address
  make -s -j "$(nproc)"
  make -s install
  make -s -C src/test/isolation install
  for module in contrib/*/; do
    make -s -C "$module" install || say "without $module"
  done
  cd "$root"
}

if [ ! -e "$folder/.complete-$major" ]; then
  say "PostgreSQL $major with AddressSanitizer into $folder, some minutes"
  rm -rf "$folder"
  mkdir -p "$folder"
  get_source
  build_server >"$folder/build.log" 2>&1 || { tail -n 40 "$folder/build.log" >&2; die 'the server does not build'; }
  touch "$folder/.complete-$major"
fi
export PG_CONFIG=$folder/server/bin/pg_config CHECK_TIMEOUT=${CHECK_TIMEOUT:-14400}
export PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-600}
exec test/check.sh "${tiers[@]}"
