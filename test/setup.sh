#!/bin/bash
# Installs what is needed from Debian's packages. Arguments are groups: build (default), test, lint, model, fuzz, outside.
# Returns at once when everything is there; otherwise needs root or sudo.
#
# An existing PostgreSQL of the user is left alone: no cluster is created, none is restarted.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

major=$(pg_major)
server=postgresql-$major
headers=postgresql-server-dev-$major
wanted=()

for group in "${@:-build}"; do
  case $group in
    build) wanted+=("$server" "$headers" libpq-dev gcc make) ;;
    test) wanted+=(perl libipc-run-perl procps iproute2) ;;
    model) wanted+=(spin gcc) ;;
    fuzz) wanted+=(clang libclang-rt-dev make) ;;
    outside) wanted+=(python3 python3-psycopg2 procps) ;;
    lint) wanted+=(clang-format cppcheck binutils) ;;
    *) die "unknown package group \"$group\": use build, test, lint, model, fuzz or outside" ;;
  esac
done

version_of() {  # installed version of a package, or nothing
  dpkg-query -W -f '${db:Status-Abbrev}${Version}\n' "$1" 2>/dev/null | sed -n 's/^.i *//p' || true
}

missing=()
for package in "${wanted[@]}"; do
  [ -n "$(version_of "$package")" ] || missing+=("$package")
done

# Server and headers have to be of one minor release: security fixes change headers, too.
have=$(version_of "$server")
got=$(version_of "$headers")
if [ -n "$have" ] && [ -n "$got" ] && [ "$have" != "$got" ]; then
  missing+=("$server" "$headers")
fi
[ ${#missing[@]} -gt 0 ] || exit 0

[ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
  die "missing packages: ${missing[*]}; install them, or run this as root"
export DEBIAN_FRONTEND=noninteractive
apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"
}
say "installing ${missing[*]}"
apt_get update

# Headers missing beside a server that is there: those of its own minor release if they can be
# had, else both are upgraded together, which would restart the user's servers; hence the refusal.
if [ -n "$have" ] && [[ " ${missing[*]} " == *" $headers "* ]]; then
  kept=()
  for package in "${missing[@]}"; do
    case $package in "$server" | "$headers") ;; *) kept+=("$package") ;; esac
  done
  if apt-cache madison "$headers" | awk '{print $3}' | grep -qxF "$have"; then
    missing=("${kept[@]}" "$headers=$have")
  elif pg_lsclusters -h 2>/dev/null | awk -v m="$major" '$1 == m' | grep -q online; then
    die "$headers $have is not to be had, and upgrading $server would restart running servers; please run: apt-get install $server $headers"
  else
    missing=("${kept[@]}" "$server" "$headers")
  fi
fi

# The server package makes and starts a cluster "main" unless told not to.
if [ -z "$have" ]; then
  apt_get install --no-install-recommends postgresql-common
  conf=/etc/postgresql-common/createcluster.conf
  if ! grep -q '^create_main_cluster' "$conf"; then
    as_root cp -p "$conf" "$conf.before-shard"
    trap 'as_root mv "$conf.before-shard" "$conf"' EXIT
    echo 'create_main_cluster = false' | as_root tee -a "$conf" >/dev/null
  fi
fi
apt_get install --no-install-recommends "${missing[@]}"
