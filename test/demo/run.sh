#!/bin/bash
# Runs the worked example, from a bare machine to the result; README.md explains it.
#
# DEMO_EVENTS, DEMO_GAMES and DEMO_SEED choose the input; the senders take DEMO_SECONDS at least.
# DEMO_BINDIR: programs of a PostgreSQL that has shard, instead of building one. Exits non-zero unless
# the judges and plain SQL agree.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"

events=${DEMO_EVENTS:-1000000}
games=${DEMO_GAMES:-5000}
seed=${DEMO_SEED:-1}
seconds=${DEMO_SECONDS:-20}
service=events_${events}_${games}_$seed  # the game service's own database
keeper=third                             # the server that has it
watch=third                              # whose view of the cluster is shown; never the killed one
members=(first second third)             # who is in the cluster: events come in there
newcomer=fourth                          # joins later ...
leaver=second                            # ... and takes over the part of this one, which leaves
sessions=2    # that tell at each server, beside the one that copies
patience=${DEMO_PATIENCE:-120}  # seconds in which nothing happens until we give up

# The rules of the game need so many events.
least=$((games * 40))
if [ "$events" -lt "$least" ]; then
  echo "DEMO_EVENTS is $events: $games games (DEMO_GAMES) need $least events at least" >&2
  exit 2
fi

main() {
  trap at_exit EXIT
  prepare
  start_servers
  say "$events events of $games games, seed $seed"
  generate
  say 'three databases become one cluster'
  make_nodes
  join
  say 'judging: each server takes the events of a third of the games'
  load_gateways
  play
  say 'result'
  gather
  "$bindir/psql" -Xq -P pager=off -v ON_ERROR_STOP=1 -p "$(port $keeper)" -d "$service" \
    -f "$here/result.sql" -f "$here/verify.sql"
  goodbye
}

senders=()

# Whatever ends the run ends the senders; when it failed, it says what it knows.
at_exit() {
  local status=$?
  trap - EXIT
  set +e
  [ ${#senders[@]} = 0 ] || stop_senders
  [ "$status" = 0 ] || [ -z "${up:-}" ] || explain >&2
  exit "$status"
}

# What the servers themselves say, which games wait for which event, and how to look on.
explain() {
  local server
  for server in "${servers[@]}"; do
    echo
    if ! is_up "$server"; then
      say "server $server is down; the end of $folder/$server.log:"
      tail -n 5 "$folder/$server.log"
      continue
    fi
    say "server $server"
    PGOPTIONS='-c statement_timeout=60s -c client_min_messages=error' \
      "$bindir/psql" -Xq -P pager=off -P footer=off -p "$(port "$server")" -f "$here/explain.sql"
  done
  echo
  say 'the servers run on, to be looked at:'
  connections
  cat <<END

$folder/*.log     what they say; $folder/senders: what ended senders
make demo-stop    stops them and removes their folder
END
}

# How to get in.
connections() {
  local server
  echo
  for server in "${servers[@]}"; do
    printf 'psql -h %s -p %s -U postgres demo         # %s\n' "$folder" "$(port "$server")" "$server"
  done
}

# ---- servers ----------------------------------------------------------------------------------

# The servers run on from one run to the next, which then has its events already. They belong to the
# folder's private PostgreSQL; the one of the system is left alone.
prepare() {
  local library before after
  if [ -z "${DEMO_BINDIR:-}" ]; then
    say 'packages, build, servers'
    "$root/test/setup.sh"
    ensure_user
  fi
  if [ ! -s "$note" ] || [ ! -d "$(<"$note")" ]; then
    mktemp -d "${TMPDIR:-/tmp}/shard-demo.XXXXXX" >"$note"
    if [ "$(id -u)" = 0 ]; then chown "$TEST_USER" "$(<"$note")"; fi
  fi
  use_folder "$(<"$note")"
  [ -z "${DEMO_BINDIR:-}" ] || return 0
  library=$folder/tree$("$(pg_config_path)" --pkglibdir)/shard.so
  before=$(cksum "$library" 2>/dev/null) || :
  "$root/test/private.sh" "$root/build/demo" "$folder/tree" >/dev/null
  after=$(cksum "$library")
  # A server keeps the library that it was started with.
  if [ "$before" != "$after" ]; then stop_servers; fi
}

start_servers() {
  local server
  if [ ! -s "$folder/passfile" ]; then
    password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    as_user sh -c "umask 077; cat >'$folder/passfile'" <<<"127.0.0.1:*:*:link:$password"
  fi
  for server in "${servers[@]}"; do
    [ -s "$folder/$server.port" ] || free_port >"$folder/$server.port"
  done
  each make_server
  each start_server
  up=1
  echo "first, second, third and fourth run in $folder"
}

# Does something with all servers at the same time.
each() { # FUNCTION
  local server process processes=()
  for server in "${servers[@]}"; do
    "$1" "$server" & processes+=($!)
  done
  for process in "${processes[@]}"; do
    wait "$process" || exit 1
  done
}

make_server() { # SERVER
  [ ! -s "$folder/$1/PG_VERSION" ] || return 0
  pg_ctl "$1" initdb -o '-U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync' >/dev/null
  as_user tee -a "$folder/$1/postgresql.conf" >/dev/null <<END
listen_addresses = '127.0.0.1'
unix_socket_directories = '$folder'
port = $(port "$1")
cluster_name = '$1'
shard.peer_passfile = '$folder/passfile'
shared_preload_libraries = 'shard'
shared_buffers = 128MB
max_wal_size = 4GB
END
  as_user tee "$folder/$1/pg_hba.conf" >/dev/null <<END
local all   all                trust
host  demo  link 127.0.0.1/32  scram-sha-256
END
}

start_server() { # SERVER
  ! is_up "$1" || return 0
  if ! pg_ctl "$1" start -t "$patience" -l "$folder/$1.log" >/dev/null 2>&1; then
    tail "$folder/$1.log" >&2
    die "server $1 does not start"
  fi
}

# A port that nobody listens on and nobody of us has.
free_port() {
  local candidate
  while true; do
    candidate=$((20000 + RANDOM % 10000))
    grep -qsx "$candidate" "$folder"/*.port && continue
    (exec 3<>"/dev/tcp/127.0.0.1/$candidate") 2>/dev/null || break
  done
  echo "$candidate"
}

# ---- the service's events, and the cluster ------------------------------------------------------

# The events are made once. Their database gets its name last, so it is whole if it exists.
generate() {
  local unfinished=unfinished_events
  if [ "$(sql $keeper -d postgres -c "SELECT count(*) FROM pg_database WHERE datname = '$service'")" = 1 ]
  then
    echo 'kept from an earlier run'
    return
  fi
  sql $keeper -d postgres -c "DROP DATABASE IF EXISTS $unfinished" \
    -c "CREATE DATABASE $unfinished" 2>/dev/null
  SECONDS=0
  sql $keeper -d $unfinished --single-transaction -v events="$events" -v games="$games" \
    -v seed="$seed" -f "$here/schema.sql" -f "$here/generate.sql" >/dev/null
  sql $keeper -d postgres -c "ALTER DATABASE $unfinished RENAME TO \"$service\""
  echo "made in $SECONDS s"
}

# Every run has new databases.
make_nodes() {
  password=$(cut -d : -f 5 "$folder/passfile")
  each make_node
}

make_node() { # SERVER
  sql "$1" -d postgres -c 'SET client_min_messages = warning' \
    -c 'DROP DATABASE IF EXISTS demo WITH (FORCE)' -c 'CREATE DATABASE demo'
  sql "$1" >/dev/null <<END
SET client_min_messages = warning;
CREATE EXTENSION shard;
DROP ROLE IF EXISTS link;
CREATE ROLE link LOGIN PASSWORD '$password';
SELECT shard_allow_peer('link');
END
}

join() {
  local server
  for server in second third; do
    show "$server" "SELECT shard_join('$(address first)', '$(address "$server")');"
    join_to first "$server"
  done
  for server in "${members[@]}"; do
    sql "$server" -f "$here/judge.sql" >/dev/null
  done
  deadline=$((SECONDS + 60))
  until [ "$(sql first -c "SELECT count(*) FROM shard_members WHERE status = 'up' AND voter")" = 3 ]; do
    [ "$SECONDS" -lt "$deadline" ] || die "the servers did not become a cluster of three voters in a minute"
    sleep 0.1
  done
  echo
  "$bindir/psql" -Xq -P footer=off -p "$(port first)" -c "
    SELECT node, substring(dsn FROM 'port=\d+') AS at, status, voter, coordinator
    FROM shard_members ORDER BY node"
}

join_to() { # MEMBER SERVER
  sql "$2" -o /dev/null -c "SELECT shard_join('$(address "$1")', '$(address "$2")')"
}

# A statement as one would type it; the folder is left out, being the same in all of them.
show() { # SERVER STATEMENT
  printf '%s=# %s\n' "$1" "${2//"$folder"/…}"
}

# Each has the part that it begins with, and the one that it takes over from the one before it.
load_gateways() {
  local i before loader loaders=()
  for i in 0 1 2; do
    before=$(((i + 2) % 3))
    load_gateway "${members[i]}" "$i" "$before" & loaders+=($!)
    if [ "${members[i]}" = $leaver ]; then load_gateway $newcomer "$before" & loaders+=($!); fi
  done
  for loader in "${loaders[@]}"; do
    wait "$loader" || die 'the events could not be brought to the servers'
  done
}

load_gateway() { # SERVER PART …
  local part
  sql "$1" -v sessions="$sessions" -f "$here/gateway.sql"
  for part in "${@:2}"; do
    copy $keeper "$service" "SELECT server, session, slice, game_id, seq, event_time, message FROM outgoing
                             WHERE server = $part" "$1" demo outgoing
  done
  sql "$1" -c 'CREATE INDEX ON outgoing (part, session, slice)' -c 'ANALYZE outgoing'
}

copy() { # SERVER DATABASE QUERY SERVER DATABASE TABLE
  sql "$1" -d "$2" -c "COPY ($3) TO STDOUT" | sql "$4" -d "$5" -c "COPY $6 FROM STDIN"
}

# ---- senders ------------------------------------------------------------------------------------

# One session of the game service, for a part of the stream. When it has lost its server it waits for its return, or
# for another one to take over the part, and goes on where the table "sent" says.
stream() { # PART SESSION
  local status server gateway
  while true; do
    # as long as it sends, the part stays where it is
    exec {gateway}<"$folder/gateway.$1"
    flock -s "$gateway"
    status=0 server=$(<"$folder/gateway.$1")
    if [ "$server" = nobody ]; then
      status=$LOST
    elif [ "$2" = 0 ]; then
      copy_games "$1" "$server" || status=$?
    else
      PGAPPNAME="demo sender $1" sql "$server" -v part="$1" -v session="$2" -v began="$start" \
        -v step="$step" -f "$here/tell.sql" >/dev/null 2>>"$folder/senders" || status=$?
    fi
    exec {gateway}<&-
    [ "$status" = 0 ] && return
    if [ "$status" != $LOST ]; then
      tail -n 5 "$folder/senders" >&2
      return "$status"
    fi
    deadline=$((SECONDS + patience))
    until server=$(<"$folder/gateway.$1") && [ "$server" != nobody ] && sql "$server" -c 'SELECT' >/dev/null 2>&1
    do
      [ "$SECONDS" -lt "$deadline" ] || return "$status"
      sleep 0.2
    done
  done
}

# Reads a script of COPY commands with their rows, a transaction for each slice. It may break off
# anywhere: without its COMMIT a slice was not sent.
copy_games() { # PART SERVER
  local status
  {
    sql "$2" -c "COPY (SELECT slice, 'judge', game_id, message FROM outgoing
                       WHERE part = $1 AND session = 0
                         AND slice > (SELECT slice FROM sent WHERE part = $1 AND session = 0)
                       ORDER BY slice, event_time, game_id, seq) TO STDOUT" 2>>"$folder/senders" &&
      echo 'whole'
  } | awk -F '\t' -v OFS='\t' -v part="$1" '
      BEGIN { slice = "" }  # a text, which no number equals
      function finish() { printf "\\.\nUPDATE sent SET slice = %d WHERE part = %d AND session = 0;\nCOMMIT;\n", slice, part }
      $0 == "whole" { if (slice != "") finish(); exit }
      $1 != slice {
        if (slice != "") finish()
        slice = $1
        printf "SELECT pace(%d, :'\''began'\'', :step);\nBEGIN;\n", slice
        print "COPY shard_inbox (type_name, entity_id, message) FROM STDIN;"
      }
      { print $2, $3, $4 }' |
    PGAPPNAME="demo sender $1" sql "$2" -v began="$start" -v step="$step" -f - \
      >/dev/null 2>>"$folder/senders" || status=("${PIPESTATUS[@]}")
  [ -n "${status:-}" ] || return 0
  [ "${status[2]}" != 0 ] || return "${status[0]}"
  return "${status[2]}"
}

stop_senders() {
  local server
  for server in "${servers[@]}"; do
    sql "$server" -o /dev/null -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                                   WHERE application_name LIKE 'demo sender%'" 2>/dev/null || :
  done
  kill "${senders[@]}" 2>/dev/null || :
  senders=()
}

# ---- the play -----------------------------------------------------------------------------------

# All sessions send; meanwhile the coordinator's server is killed, and comes back; a fourth one joins; and one leaves.
play() {
  local server session part sender slices
  victim='' progress=0 told=-1 homes=() homes_then=''
  : >"$folder/senders"
  slices=$(sql first -c 'SELECT max(slice) + 1 FROM outgoing')
  step=$(awk -v s="$seconds" -v n="$slices" 'BEGIN { print s / n }')
  start=$(sql first -c 'SELECT clock_timestamp()')
  began=$(now) progress_at=$began
  for part in 0 1 2; do
    echo "${members[part]}" >"$folder/gateway.$part"
    for ((session = 0; session <= sessions; session++)); do
      stream "$part" "$session" & senders+=($!)
    done
  done

  printf '%s\n' '                                        shards whose home is' \
    '   time    handled      %   events/s    first  second  third  fourth'
  until_handled 30
  kill_coordinator
  until_survivors 10
  bring_back
  rotate
  draw_map
  add_newcomer
  replace_leaver
  leave
  while [ -n "$(jobs -rp)" ]; do
    tick
  done
  for sender in "${senders[@]}"; do
    wait "$sender" || die 'a sender failed'
  done
  senders=()
  until ((progress == events)) && is_quiet; do tick; done
  told=-1
  look
  draw_map
}

# Nobody has anything to do for anybody, and no shard moves. One may give work to another one that had none when it was
# asked: so each is asked twice.
is_quiet() {
  local server
  for server in "${members[@]}" "${members[@]}"; do
    [ "$(sql "$server" -c "SELECT shard_drain('500 ms') AND NOT EXISTS (SELECT FROM shard_rebalances)")" = t ] ||
      return 1
  done
}

until_handled() { # PERCENT
  while ((progress * 100 < events * $1)); do tick; done
}

# As if its machine had lost its power, but for the disks' caches.
kill_coordinator() {
  local node=''
  until [ -n "$node" ]; do
    tick
    node=$(sql $watch -c 'SELECT node FROM shard_members WHERE coordinator')
  done
  victim=${servers[node - 1]}
  [ $watch != "$victim" ] || watch=first
  look
  postmaster=$(head -n 1 "$folder/$victim/postmaster.pid")
  as_user kill -STOP "$postmaster"  # so that it starts nobody whom we do not see
  mapfile -t processes < <(ps -o pid= --ppid "$postmaster" | tr -d ' ')
  processes+=("$postmaster")
  as_user kill -9 "${processes[@]}"
  killed=$(now) killed_at=$progress
  event "kill -9: server $victim, the coordinator, is gone; the others go on"
}

# Lets the other two handle so much without it, and choose another coordinator.
until_survivors() { # PERCENT
  local node='' patient=20000000
  until [ -n "$node" ] && ((progress - killed_at > events * $1 / 100 || $(now) - killed > patient)); do
    tick
    [ -z "$node" ] || continue
    node=$(sql $watch -c "SELECT node FROM shard_members
                           WHERE coordinator AND node <> $(node_of "$victim")")
    [ -z "$node" ] || event "server ${servers[node - 1]} is the coordinator now"
  done
}

node_of() { # SERVER
  local i
  for i in 0 1 2 3; do
    [ "${servers[i]}" != "$1" ] || echo $((i + 1))
  done
}

bring_back() {
  local meanwhile=$((progress - killed_at)) away=$(($(now) - killed))
  # till the system is rid of it
  deadline=$((SECONDS + patience))
  while as_user kill -0 "$postmaster" 2>/dev/null; do
    [ "$SECONDS" -lt "$deadline" ] ||
      die "process $postmaster was killed and is still listed: nobody reaps it, which in a container takes an init"
    sleep 0.1
  done
  start_server "$victim"
  event "server $victim is back; $meanwhile events were handled without it in $((away / 1000000)).$((away / 100000 % 10)) s"
  victim=''
}

# A character for each shard: its home as one of them knows it, a dot while it has none.
draw_map() {
  event 'the shards, 0 to 999, each by the number of its node'
  sql $watch -c "SELECT string_agg(coalesce(node::text, '.'), '' ORDER BY shard)
                 FROM generate_series(0, 999) shard
                      LEFT JOIN (SELECT * FROM shard_homes WHERE type_name = 'judge') h USING (shard)
                 GROUP BY shard / 100 ORDER BY shard / 100" | sed 's/^/          /'
}

add_newcomer() {
  join_to $watch $newcomer 2>"$folder/join" || die "server $newcomer could not join: $(<"$folder/join")"
  sql $newcomer -f "$here/judge.sql" >/dev/null
  members+=($newcomer)
  event "server $newcomer has joined, and may have judges"
}

# Parts of the stream come in at other servers from now on, as when the consumers of a group are given others. What
# was sent of them says the table "sent", as soon as nobody sends. Nobody waits until it has reached the judges.
reassign() { # PART=SERVER …
  local change part to from lock
  for change in "$@"; do
    part=${change%=*} to=${change#*=} from=$(<"$folder/gateway.${change%=*}")
    echo nobody >"$folder/gateway.$part"
    exec {lock}<"$folder/gateway.$part"
    # nobody sends any more, nor is about to
    deadline=$((SECONDS + patience))
    until end_senders "$from" "$part" && flock -n "$lock"; do
      [ "$SECONDS" -lt "$deadline" ] || die "server $from still sends events after $patience s"
      sleep 0.05
    done
    sql "$to" -c "DELETE FROM sent WHERE part = $part"
    copy "$from" demo "SELECT * FROM sent WHERE part = $part" "$to" demo sent
    echo "$to" >"$folder/gateway.$part"
    exec {lock}<&-
    event "the events that came in at $from come in at $to"
  done
}

# True if there were none.
end_senders() { # SERVER PART
  [ "$(sql "$1" -c "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE application_name = 'demo sender $2'")" = 0 ]
}

# Each server takes over the part of the one before it.
rotate() {
  reassign "0=${members[1]}" "1=${members[2]}" "2=${members[0]}"
}

# The newcomer takes over the part of the one that is about to leave.
replace_leaver() {
  local part
  for part in 0 1 2; do
    [ "$(<"$folder/gateway.$part")" != $leaver ] || reassign "$part=$newcomer"
  done
}

# Its shards move to the others while events flow on; then it is no member any more.
leave() {
  local left before=$progress from=$(now) shards
  count_homes
  shards=${homes[$(node_of $leaver)]}
  # how long it takes is a matter of the machine: as long as shards move, it is waited for
  sql $leaver -c "SELECT shard_leave('1 h')" >"$folder/leave" 2>&1 & left=$!
  while kill -0 "$left" 2>/dev/null; do tick; done
  wait "$left" && [ "$(<"$folder/leave")" = t ] || die "server $leaver could not leave: $(<"$folder/leave")"
  until count_homes && [ "${homes[$(node_of $leaver)]}" = 0 ]; do tick; done  # till $watch knows
  event "server $leaver has left; its $shards shards moved in $((($(now) - from) / 1000)) ms, while $((progress - before)) events were handled"
  members=(first third fourth)
}

now() { echo "${EPOCHREALTIME/[.,]/}"; }  # in microseconds

stamp() { awk -v us=$(($(now) - began)) 'BEGIN { printf "%5.1f s", us / 1e6 }'; }

event() { printf '%s   ---- %s\n' "$(stamp)" "$1"; }

tick() {
  sleep 0.2  # the pace of the display
  look
}

# Handled is what the committed states say: each knows the number of its last event. While a shard moves two servers
# have it; the one that goes on has the higher number. A line for each second.
look() {
  local server time sum line files=()
  for server in "${members[@]}"; do
    [ "$server" = "$victim" ] ||
      sql "$server" -c 'SELECT shard, sum(last_seq) FROM shard_entity.judge GROUP BY shard' >"$folder/$server.handled"
    files+=("$folder/$server.handled")
  done
  sum=$(awk -F '|' '$2 > most[$1] { most[$1] = $2 } END { for (shard in most) sum += most[shard]; print sum + 0 }' \
    "${files[@]}")
  time=$(now)
  if ((sum != progress)) || [ "${homes[*]}" != "$homes_then" ]; then
    progress=$sum progress_at=$time homes_then=${homes[*]}
  elif ((time - progress_at > patience * 1000000)); then
    die "no event was handled and no shard moved for $patience s"
  fi
  (((time - began) / 1000000 > told)) || return 0
  told=$(((time - began) / 1000000))
  count_homes
  line=$(printf '%10d %5d %% %10d    %5d %7d %6d %7d' "$progress" $((progress * 100 / events)) \
    $((progress * 1000000 / (time - began + 1))) "${homes[@]:1:4}")
  printf '%s %s\n' "$(stamp)" "$line"
}

# As one of them knows it.
count_homes() {
  local node count
  homes=(0 0 0 0 0)
  while IFS='|' read -r node count; do
    homes[node]=$count
  done < <(sql $watch -c "SELECT node, count(*) FROM shard_homes WHERE type_name = 'judge' GROUP BY 1")
}

# ---- the end ------------------------------------------------------------------------------------

# Verdicts and states are where their judges are; for one answer they come to one place.
gather() {
  local server node
  sql $keeper -d "$service" -c 'TRUNCATE verdict, judged, home, remains'
  for server in "${servers[@]}"; do
    copy "$server" demo 'TABLE verdict' $keeper "$service" verdict
    copy "$server" demo "SELECT '$server', shard, entity_id, last_seq, disorder, started, ended,
                           cardinality(players), cardinality(offences) FROM shard_entity.judge" \
      $keeper "$service" judged
    copy "$server" demo "SELECT '$server', (SELECT count(*) FROM shard_region_state),
                           (SELECT count(*) FROM shard_inbox),
                           (SELECT count(*) FROM shard_dead_letters)" $keeper "$service" remains
    node=$(node_of "$server")
    copy $watch demo "SELECT shard, '$server' FROM shard_homes WHERE type_name = 'judge' AND node = $node" \
      $keeper "$service" home
  done
}

goodbye() {
  say 'the servers run on; play with them (the second one has left):'
  connections
  cat <<END

  SELECT * FROM shard_members;
  SELECT node, count(*) FROM shard_homes GROUP BY node;
  SELECT * FROM shard_location('judge', '17');                -- where is the judge of game 17?
  SELECT shard_ask('judge', '17', '{"kind": "look"}');        -- ask it, from any of them
  -- a game of your own
  SELECT shard_tell('judge', '-1', '{"kind": "game_start", "seq": 1, "time": "now"}');
  SELECT shard_tell('judge', '-1', '{"kind": "join", "seq": 2, "time": "now", "player": 1}');
  SELECT shard_ask('judge', '-1', '{"kind": "look"}');
  SELECT shard_tell('judge', '-1', '{"kind": "game_end", "seq": 3, "time": "now"}');

make demo         runs it again in new databases: yours are dropped, the events are kept
make demo-stop    stops the servers and removes their folder
END
}

main
