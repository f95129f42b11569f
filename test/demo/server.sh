# The throw-away server of the worked example, for run.sh and stop.sh; sourced, never run.
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

here=$root/test/demo
note=$here/.server  # names the folder of the server, while there is one

# Everything of the server is in its folder, which only its owner and root may enter; there is no
# TCP port. So it needs no passwords, and any port number will do.
use_folder() {
  folder=$1
  bindir=$folder/tree$("$(pg_config_path)" --bindir)
  export PGHOST=$folder PGPORT=5432 PGUSER=postgres PGDATABASE=demo
  unset PGOPTIONS PGSERVICE PGHOSTADDR
}

pg_ctl() { (cd "$folder" && as_user "$bindir/pg_ctl" -D "$folder/data" -s -w "$@"); }

sql() { "$bindir/psql" -XAtq -v ON_ERROR_STOP=1 "$@"; }
