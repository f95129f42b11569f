# Shared by run.sh and profile.sh: the throw-away server, the two kinds of measurement, the results.
# Expects `bench`, the folder of this file.
# shellcheck shell=bash
source "$bench/../test/lib.sh"

runs=${BENCH_RUNS:-5}
seconds=${BENCH_SECONDS:-10}
messages=${BENCH_MESSAGES:-2000000}

pg_config=$(pg_config_path)
bindir=$("$pg_config" --bindir)

# ---- server ---------------------------------------------------------------------------------

# Stops all servers and removes everything.
clean_up() {
  local status=$? log
  if ((status != 0)); then
    for log in "$temp"/*.log; do
      [[ -f $log ]] || continue
      echo "bench: failed; the end of $(basename "$log"):" >&2
      tail -n 20 "$log" >&2
    done
  fi
  stop_servers
  rm -rf "$temp"
}

stop_servers() {
  local pidfile
  for pidfile in "$temp"/*/postmaster.pid; do
    [[ -f $pidfile ]] || continue
    as_user "$bindir/pg_ctl" -D "${pidfile%/*}" -m fast -s stop || true
  done
}

# Builds, once, into a folder of its own.
prepare() {
  [[ -z ${temp:-} ]] || return 0
  temp=$(mktemp -d "${TMPDIR:-/tmp}/shard-bench.XXXXXX")
  trap clean_up EXIT
  ensure_user
  if ((EUID == 0)); then
    chown "$TEST_USER" "$temp"
  fi
  chmod 755 "$temp"

  # A release build in a private tree: what is measured is this source, whatever is installed.
  bindir=$("$root/test/private.sh" "$root/build/bench" "$temp/tree" 2>"$temp/make") ||
    { cat "$temp/make" >&2; die "the extension does not build"; }
  pg_config=$bindir/pg_config
  make -s -C "$bench" PG_CONFIG="$pg_config" >"$temp/make" 2>&1 ||
    die "the C handler does not build: $(cat "$temp/make")"
  # The server's user may have no access to the source tree.
  install -m 755 "$bench/handler.so" "$temp/"
  export PGHOST=$temp PGUSER=postgres PGDATABASE=bench
}

# One server. No TCP, and a folder of its own: no port can be taken.
start_server() {
  prepare
  stop_servers
  export PGPORT=5432
  if [[ -d $temp/single ]]; then
    run_server single
    return
  fi
  make_server single "listen_addresses = ''"
  run_server single
  "$bindir/createdb" bench
  sql_file schema.sql -v handler="$temp/handler" >/dev/null
}

make_server() { # NAME SETTINGS
  as_user "$bindir/initdb" -D "$temp/$1" -U postgres -A trust -E UTF8 \
    --locale=C.UTF-8 >/dev/null
  { cat "$bench/server.conf"; printf '%s\n' "unix_socket_directories = '$temp'" "$2"; } |
    as_user tee -a "$temp/$1/postgresql.conf" >/dev/null
}

run_server() { # NAME
  as_user "$bindir/pg_ctl" -D "$temp/$1" -l "$temp/$1.log" -w -s start -o "${BENCH_OPTIONS:-}" \
    2>"$temp/pg_ctl" || die "$1 does not start: $(<"$temp/pg_ctl")"
}

# ---- SQL ------------------------------------------------------------------------------------

psql_quiet() {
  "$bindir/psql" -X -q -A -t -F ' ' -v ON_ERROR_STOP=1 "$@"
}

sql() {
  psql_quiet -c "$1"
}

sql_file() {
  psql_quiet -f "$bench/sql/$1" "${@:2}"
}

# A second session that stays open while others are measured.
open_session() {
  coproc SESSION { PGAPPNAME=session psql_quiet; }
  session_pid=$SESSION_PID
}

# Returns when the session has run the statement.
in_session() {
  local line
  printf '%s\n\\echo done\n' "$1" >&"${SESSION[1]}"
  until [[ ${line:-} == done ]]; do
    read -r line <&"${SESSION[0]}" || die "the second session has ended"
  done
}

close_session() {
  echo '\q' >&"${SESSION[1]}"
  wait "$session_pid"
}

# ---- measuring ------------------------------------------------------------------------------

# batched HOW TYPE ENTITIES [MESSAGES [PREFIX]]: sends in transactions of 1 000 and waits for the
# last state; the entities are PREFIX (e) and a number.
# Sets rate (messages/s), wal (bytes/message), cpu (region workers' µs/message), peak (the inbox's
# largest size, MB). Fails if the result is wrong.
batched() {
  local line
  line=$(sql_file batched.sql -v how="$1" -v type="$2" -v entities="$3" \
    -v messages="${4:-$messages}" -v prefix="${5:-e}")
  read -r rate wal cpu peak <<<"$line"
}

# single SCRIPT CLIENTS [TYPE]: runs a pgbench script for the time set. With a TYPE every
# transaction must have added one to the sum of its states.
# Sets rate (transactions/s), p50 (µs), wal (bytes/transaction), cpu (region workers' µs/transaction),
# lag (ms from the last transaction's end until everything is handled).
single() {
  local before after handled transactions log=$temp/pgbench
  rm -f "$log".*
  # No run shall pay for the writes of the one before.
  sql 'CHECKPOINT'
  before=$(sql_file mark.sql -v type="${3:-}")
  "$bindir/pgbench" -n -M prepared -c "$2" -j 2 -T "$seconds" -l --log-prefix="$log" \
    -f "$bench/pgbench/$1.sql" >"$log.out" 2>"$log.err" || die "pgbench: $(cat "$log.err")"
  lag=$(sql 'SELECT bench.drain()')
  after=$(sql_file mark.sql -v type="${3:-}")

  transactions=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$log.out")
  rate=$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$log.out")
  p50=$(cut -d ' ' -f 3 "$log".[0-9]* | sort -n |
    awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }')
  read -r wal cpu handled <<<"$(per_transaction "$transactions" "$before" "$after")"
  if [[ -n ${3:-} && $handled != "$transactions" ]]; then
    die "$1: $transactions messages committed, $handled handled"
  fi
}

# The change between two marks: WAL bytes and worker µs per transaction, messages handled.
per_transaction() {
  awk -v n="$1" -v before="$2" -v after="$3" 'BEGIN {
    split(before, b, " "); split(after, a, " ")
    print (a[1] - b[1]) / n, (a[2] - b[2]) / n, a[3] - b[3]
  }'
}

ratio() {
  awk -v a="$1" -v b="$2" 'BEGIN { print b == 0 ? "NaN" : a / b }'
}

# ---- results --------------------------------------------------------------------------------

start_results() {
  results=$bench/results/$(date -u +%Y%m%dT%H%M%SZ)
  mkdir -p "$results"
  {
    echo "$("$bindir/postgres" --version), $(nproc) cores, $runs runs"
    grep -v '^#' "$bench/server.conf"
    echo "${BENCH_OPTIONS:-}"
  } >"$results/environment"
  head -n 1 "$results/environment"
  printf 'scenario\tmetric\tunit\tvalue\tbound\n' >"$results/samples.tsv"
  printf 'scenario\tmetric\tunit\truns\tmedian\tmin\tmax\tbound\tverdict\n' >"$results/summary.tsv"
}

# record METRIC UNIT VALUE [BOUND]: one run's value; BOUND is like '>= 0.8' and holds for the median.
record() {
  printf '%s\t%s\t%s\t%s\t%s\n' "$scenario" "$1" "$2" "$3" "${4:-}" >>"$results/samples.tsv"
  progress "$scenario, run $run of $runs: $1"
}

# What is being measured, on one line that the table overwrites.
progress() {
  if [[ -t 2 ]]; then
    printf '\r\033[K%s' "$1" >&2
  fi
}

# Prints the table of the scenario just run, and appends it to the summary.
report() {
  progress ''
  "$bindir/psql" -X -q -v ON_ERROR_STOP=1 -v scenario="$scenario" -v title="$title" \
    -v summary="$results/summary.tsv" -f "$bench/sql/report.sql" <"$results/samples.tsv"
}

# Says how many of the bounds hold.
conclude() {
  awk -F '\t' '
    $8 ~ /=/ { bounds++; kept += $9 == "PASS" }
    END { printf "%d of %d bounds kept.\n", kept, bounds }' "$results/summary.tsv"
  echo "Results: $results"
}
