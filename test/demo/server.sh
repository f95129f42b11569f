# The throw-away servers of the worked example, for run.sh and stop.sh; sourced, never run.
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

here=$root/test/demo
note=${DEMO_NOTE:-$here/.server}  # names the folder of the servers, while there is one
servers=(first second third fourth)

# Everything is in one folder, which only its owner and root may enter. People come in by the sockets
# there and need no password. The servers reach one another by TCP on the loopback address, as role
# "link", with the password that is in the folder's passfile.
use_folder() {
  folder=$1
  bindir=${DEMO_BINDIR:-$folder/tree$("$(pg_config_path)" --bindir)}
  export PGHOST=$folder PGUSER=postgres PGDATABASE=demo
  unset PGOPTIONS PGSERVICE PGHOSTADDR PGPORT PGPASSFILE
}

# The port of a server, chosen once, for others know it by it. It names the socket, too.
port() { echo "$(<"$folder/$1.port")"; }

# How the other servers reach this one.
address() { echo "host=127.0.0.1 port=$(port "$1") dbname=demo user=link"; }

pg_ctl() { # SERVER, what and options
  (cd "$folder" && as_user "$bindir/pg_ctl" -D "$folder/$1" -s -w "${@:2}")
}

is_up() { pg_ctl "$1" status >/dev/null 2>&1; }

stop_servers() {
  local server
  for server in "${servers[@]}"; do
    ! is_up "$server" || pg_ctl "$server" stop -m fast
  done
}

# What psql says when it has lost its connection, or gets none.
LOST=2

sql() { # SERVER, options of psql
  "$bindir/psql" -XAtq -v ON_ERROR_STOP=1 -p "$(port "$1")" "${@:2}"
}
