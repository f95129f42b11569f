#!/bin/bash
# Runs the worked example, from a bare machine to the result; README.md explains it.
#
# DEMO_EVENTS, DEMO_GAMES and DEMO_SEED choose the input. Exits non-zero unless the judges and plain
# SQL agree.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"

events=${DEMO_EVENTS:-1000000}
games=${DEMO_GAMES:-5000}
seed=${DEMO_SEED:-1}
sessions=4   # that tell, beside the one that copies
patience=60  # seconds without progress until we give up

main() {
  say 'packages, build, server'
  "$root/test/setup.sh"
  ensure_user
  build
  start_server
  say "$events events of $games games, seed $seed"
  generate
  load_judge
  say "judging; half of the games come by COPY, half from $sessions sessions with shard_tell"
  ingest
  say 'result'
  "$bindir/psql" -Xq -P pager=off -v ON_ERROR_STOP=1 -f "$here/result.sql" -f "$here/verify.sql"
  goodbye
}

# The server runs on from one run to the next, which then has its events already. It belongs to the
# folder's private PostgreSQL; the one of the system is left alone.
build() {
  local library before after
  if [ ! -s "$note" ] || [ ! -d "$(<"$note")" ]; then
    mktemp -d "${TMPDIR:-/tmp}/shard-demo.XXXXXX" >"$note"
  fi
  use_folder "$(<"$note")"
  library=$folder/tree$("$(pg_config_path)" --pkglibdir)/shard.so
  before=$(cksum "$library" 2>/dev/null) || :
  "$root/test/private.sh" "$root/build/demo" "$folder/tree" >/dev/null
  after=$(cksum "$library")
  # A server keeps the library that it was started with.
  if [ "$before" != "$after" ] && pg_ctl status >/dev/null 2>&1; then
    pg_ctl stop -m fast
  fi
}

start_server() {
  if [ ! -s "$folder/data/PG_VERSION" ]; then
    if [ "$(id -u)" = 0 ]; then chown "$TEST_USER" "$folder"; fi
    pg_ctl initdb -o '-U postgres -A trust -E UTF8 --locale=C.UTF-8' >/dev/null
    as_user tee -a "$folder/data/postgresql.conf" >/dev/null <<END
listen_addresses = ''
unix_socket_directories = '$folder'
port = $PGPORT
shared_preload_libraries = 'shard'
shard.region_workers = $(( ($(nproc) + 1) / 2 ))  # the other cores are for the senders
shared_buffers = 256MB
max_wal_size = 4GB
END
  fi
  if ! pg_ctl status >/dev/null; then
    if ! pg_ctl start -l "$folder/log" >/dev/null; then
      tail "$folder/log" >&2
      die 'the server does not start'
    fi
  fi
  echo "the server runs in $folder"
}

# The events are made once, in a database that serves as template. It gets its name last, so it is
# whole if it exists.
generate() {
  local unfinished=unfinished_events
  generated=events_${events}_${games}_$seed
  if [ "$(sql -d postgres -c "SELECT count(*) FROM pg_database WHERE datname = '$generated'")" = 1 ]
  then
    echo 'kept from an earlier run'
    return
  fi
  sql -d postgres -c "DROP DATABASE IF EXISTS $unfinished" -c "CREATE DATABASE $unfinished" \
    2>/dev/null
  SECONDS=0
  sql -d $unfinished --single-transaction -v events="$events" -v games="$games" -v seed="$seed" \
    -f "$here/schema.sql" -f "$here/generate.sql" >/dev/null
  sql -d postgres -c "ALTER DATABASE $unfinished RENAME TO \"$generated\""
  echo "made in $SECONDS s"
}

# Every run has a new database.
load_judge() {
  sql -d postgres -c 'SET client_min_messages = warning' \
    -c 'DROP DATABASE IF EXISTS demo WITH (FORCE)' -c "CREATE DATABASE demo TEMPLATE \"$generated\""
  sql -c 'CREATE EXTENSION shard' -f "$here/judge.sql" >/dev/null
}

ingest() {
  local senders=() sender session
  began=$(now) progress=0 progress_at=$began tenths=-1
  # Senders learn that we were interrupted by losing their connections.
  trap stop_senders EXIT
  copy_games & senders+=($!)
  for (( session = 1; session <= sessions; session++ )); do
    tell_games "$session" & senders+=($!)
  done

  while [ -n "$(jobs -rp)" ]; do
    show_progress
    sleep 0.2  # the pace of the bar
  done
  for sender in "${senders[@]}"; do
    wait "$sender" || die 'a sender failed'
  done
  until [ "$(sql -c "SELECT shard_drain('500 ms')")" = t ]; do
    show_progress
  done
  show_progress end
  trap - EXIT
}

# One session. It reads a script of COPY commands with their rows, each a transaction.
copy_games() {
  sql -c "COPY (SELECT 'judge', game_id, message FROM outgoing WHERE game_id % 2 = 0
                ORDER BY event_time, game_id, seq) TO STDOUT" |
    awk 'NR % 5000 == 1 {
           if (NR > 1) print "\\."
           print "COPY shard_inbox (type_name, entity_id, message) FROM STDIN;"
         }
         { print }
         END { if (NR) print "\\." }' |
    PGAPPNAME='demo sender' sql -f -
}

tell_games() {
  PGAPPNAME='demo sender' sql -v session="$1" -v sessions="$sessions" -f "$here/tell.sql" >/dev/null
}

stop_senders() {
  sql -o /dev/null -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE application_name = 'demo sender'" || :
}

now() { echo "${EPOCHREALTIME/[.,]/}"; }  # in microseconds

# Handled is what the committed states say: each knows the number of its last event.
show_progress() {
  local handled time rate bar
  handled=$(sql -c 'SELECT coalesce(sum(last_seq), 0) FROM shard_entity.judge')
  time=$(now)
  if [ "$handled" != "$progress" ]; then
    progress=$handled progress_at=$time
  elif (( time - progress_at > patience * 1000000 )); then
    die "no progress for $patience s; see shard_health() and $folder/log"
  fi
  rate=$(( handled * 1000000 / (time - began + 1) ))
  if [ -t 1 ]; then
    bar=$(printf '%*s' $(( handled * 40 / events )) '')
    bar=$(printf '%-40s' "${bar// /#}")
    printf '\r[%s] %d / %d events, %d/s ' "${bar// /.}" "$handled" "$events" "$rate"
    if [ "${1-}" = end ]; then echo; fi
  elif [ "${1-}" = end ] || (( handled * 10 / events > tenths )); then
    tenths=$(( handled * 10 / events ))
    echo "$handled / $events events, $rate/s"
  fi
}

goodbye() {
  say 'the server runs on; play with it:'
  cat <<END

psql -h $folder -p $PGPORT -U $PGUSER $PGDATABASE

  SELECT * FROM shard_entity.judge LIMIT 1 \\gx
  SELECT shard_ask('judge', '17', '{"kind": "look"}');        -- ask the judge of game 17
  -- a game of your own
  SELECT shard_tell('judge', '-1', '{"kind": "game_start", "seq": 1, "time": "now"}');
  SELECT shard_tell('judge', '-1', '{"kind": "join", "seq": 2, "time": "now", "player": 1}');
  SELECT * FROM shard_region_state;                           -- its judge is at work
  SELECT shard_tell('judge', '-1', '{"kind": "game_end", "seq": 3, "time": "now"}');

make demo         runs it again in a new database: yours is dropped, the events are kept
make demo-stop    stops the server and removes its folder
END
}

main
