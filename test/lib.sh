# Helpers shared by the shell scripts of the project; sourced, never run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The account that runs servers and test runners when root started us: PostgreSQL refuses to run
# as root, and root's files should be out of reach of the code under test.
TEST_USER=${TEST_USER:-shardtest}

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Prefix for commands that need root; empty for root itself.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Runs a command as the unprivileged account (as the caller, when that is not root).
as_user() {
  if [ "$(id -u)" != 0 ]; then "$@"; return; fi
  runuser -u "$TEST_USER" -- env HOME="${TEST_HOME:-/tmp}" "$@"
}

ensure_user() {
  [ "$(id -u)" = 0 ] || return 0
  id -u "$TEST_USER" >/dev/null 2>&1 ||
    useradd --system --no-create-home --shell /usr/sbin/nologin "$TEST_USER"
}

# The major version in use: $PG_MAJOR, else what is installed ready for building, else the
# development version.
pg_major() {
  local major
  if [ -n "${PG_MAJOR:-}" ]; then echo "$PG_MAJOR"; return; fi
  for major in 15 17 18; do
    if [ -x "/usr/lib/postgresql/$major/bin/postgres" ] &&
       [ -d "/usr/include/postgresql/$major/server" ]; then
      echo "$major"; return
    fi
  done
  for major in 15 17 18; do
    if apt-cache show "postgresql-$major" >/dev/null 2>&1; then echo "$major"; return; fi
  done
  echo 15
}

# The pg_config of that version; an explicit PG_CONFIG wins.
pg_config_path() {
  echo "${PG_CONFIG:-/usr/lib/postgresql/$(pg_major)/bin/pg_config}"
}
