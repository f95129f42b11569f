#!/bin/bash
# usage: mixed.sh [MAJOR]
#
# A cluster of two server versions: a node of PostgreSQL MAJOR (17) joins nodes of this system's
# version. If this system does not package that version, the node runs in the Debian release that
# test/matrix.sh --prepare MAJOR made; without it the test is skipped, and says so.
#
# The programs of that release run in it by way of user namespaces: as the unprivileged account, in
# the same network and the same processes as all others.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

major=${1:-17}
case $major in
  17) folder=$root/.matrix/trixie ;;
  18) folder=$root/.matrix/forky ;;
  *) die "no Debian release is known for PostgreSQL $major" ;;
esac

here=$(PG_MAJOR=$(pg_major) pg_config_path)
work=$(mktemp -d "${TMPDIR:-/tmp}/shard-mixed.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
ensure_user

skip() { echo "ok 1 - two server versions # SKIP $*"; exit 0; }

# Wrappers named as the programs of that release.
make_wrappers() {  # folder of the release, programs' folder in it
  local program user group
  user=$(as_user id -u)
  group=$(as_user id -g)
  mkdir -p "$work/bin"
  for program in initdb pg_ctl postgres psql pg_config pg_isready pg_basebackup pg_controldata; do
    cat >"$work/bin/$program" <<WRAPPER
#!/bin/sh
exec unshare --user --map-root-user --mount sh -ec '
  mount --rbind "$1" "$1"
  mount --rbind /dev "$1/dev"
  mount --rbind /proc "$1/proc"
  mount --rbind /tmp "$1/tmp"
  mount --bind /etc/passwd "$1/etc/passwd"
  mount --bind /etc/group "$1/etc/group"
  # Not chroot: nobody gets a user namespace inside of one.
  cd "$1"
  pivot_root . .
  umount -l .
  exec unshare --user --map-user=$user --map-group=$group \\
    env --chdir=/tmp PATH="$2:/usr/bin:/bin" LC_ALL=C.UTF-8 "$2/$program" "\$@"' $program "\$@"
WRAPPER
    chmod 755 "$work/bin/$program"
  done
}

if [ -x "/usr/lib/postgresql/$major/bin/postgres" ]; then
  bin=$(PG_MAJOR=$major PG_CONFIG= test/private.sh "build/mixed-$major" "$work/tree" SHARD_ASSERTIONS=1 2>"$work/log") ||
    { tail -n 20 "$work/log"; die "the extension does not build for PostgreSQL $major"; }
  ln -s "$bin" "$work/bin"
else
  [ -e "$folder/.complete" ] || skip "no PostgreSQL $major here; test/matrix.sh --prepare $major gets it"
  as_user unshare --user --map-root-user --mount true 2>/dev/null || skip "this system gives users no namespaces"
  mkdir -p "$folder/shard"
  find "$folder/shard" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
  tar --exclude=./.git --exclude=./.matrix --exclude=./build --exclude=./test/unit/build --exclude=./test/sim/build \
    --exclude='*.o' --exclude='*.so' -cf - . | tar -C "$folder/shard" -xf -
  bin=$(unshare --mount bash -c 'mount -t proc proc "$1/proc" && exec chroot "$1" /usr/bin/env -i \
      PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 PG_MAJOR="$2" \
      /shard/test/private.sh /shard/build/mixed /shard/build/mixed-tree SHARD_ASSERTIONS=1' build "$folder" "$major" 2>"$work/log") ||
    { tail -n 20 "$work/log"; die "the extension does not build for PostgreSQL $major"; }
  chmod -R a+rX "$folder/shard"
  make_wrappers "$folder" "$bin"
fi

[ -x "$here" ] || die "$here is not there"
export SHARD_OTHER_SERVER=$work
PROVE_TESTS=${PROVE_TESTS:-test/t/131_server_versions_mix.pl} test/check.sh cluster
