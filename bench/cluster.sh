# Several servers, one cluster, for the scenarios that need it; sourced by run.sh after lib.sh.
# shellcheck shell=bash

nodes=(1 2 3)
cores=${BENCH_CORES:-0,1}
kills=${BENCH_KILLS:-20}
moves=${BENCH_MOVES:-20}
move_gap=${BENCH_MOVE_GAP:-1.5}
residents=${BENCH_RESIDENTS:-10000}
shards=${BENCH_SHARDS:-1000}
entities=${BENCH_ENTITIES:-1000000}
load=${BENCH_LOAD:-5000}
join_limit=${BENCH_JOIN_LIMIT:-600}

# ---- servers ----------------------------------------------------------------------------------

# A new cluster of so many nodes. Its servers reach one another by TCP on the loopback address, as role "link".
start_cluster() { # [NODES]
  local node password
  prepare
  stop_servers
  rm -rf "$temp"/node?
  # Everything on the same cores, clients as well.
  taskset -cp "$cores" $$ >/dev/null
  password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  (umask 077 && echo "127.0.0.1:*:*:link:$password" >"$temp/passfile")
  if ((EUID == 0)); then chown "$TEST_USER" "$temp/passfile"; fi
  # for commits that have no setting for it
  export PGPASSFILE=$temp/passfile
  nodes=()
  for ((node = 1; node <= ${1:-3}; node++)); do
    start_node "$node"
    ((node == 1)) || join_node "$node"
  done
  for node in "${nodes[@]}"; do
    PGPORT=${port[node]} sql_file cluster.sql >/dev/null
  done
  export PGPORT=${port[1]}  # for what needs any server
  ((${#nodes[@]} == 2)) || await_members 1
}

# A server with the extension, for itself as yet.
start_node() { # NODE
  local node=$1 password
  password=$(cut -d : -f 5 "$temp/passfile")
  port[node]=$(free_port)
  make_server "node$node" "
    listen_addresses = '127.0.0.1'
    port = ${port[node]}
    cluster_name = 'node$node'
    shard.peer_passfile = '$temp/passfile'"
  as_user tee "$temp/node$node/pg_hba.conf" >/dev/null <<END
local all   all               trust
host  bench link 127.0.0.1/32 scram-sha-256
END
  run_server "node$node"
  PGPORT=${port[node]} "$bindir/createdb" bench
  on "$node" "CREATE EXTENSION shard"
  on "$node" "CREATE ROLE link LOGIN PASSWORD '$password'"
  on "$node" "SELECT shard_allow_peer('link')" >/dev/null
  nodes+=("$node")
}

join_node() { # NODE
  on "$1" "SELECT shard_join('$(address 1)', '$(address "$1")')" >/dev/null
}

declare -a port

free_port() {
  local candidate
  while true; do
    candidate=$((30000 + RANDOM % 2000))
    [[ " ${port[*]} " != *" $candidate "* ]] || continue
    (exec 3<>"/dev/tcp/127.0.0.1/$candidate") 2>/dev/null || break
  done
  echo "$candidate"
}

address() { # NODE
  echo "host=127.0.0.1 port=${port[$1]} dbname=bench user=link"
}

# Runs a statement at a node.
on() { # NODE STATEMENT
  PGPORT=${port[$1]} sql "$2"
}

on_all() { # STATEMENT
  local node
  for node in "${nodes[@]}"; do on "$node" "$1"; done
}

# Until a condition holds, as this node sees it.
await() { # NODE CONDITION [SECONDS]
  on "$1" "CALL bench.await(\$condition\$$2\$condition\$, ${3:-60})"
}

# Until every member is there, reachable, and votes, as this node sees it.
await_members() { # NODE
  await "$1" "(SELECT count(*) = 3 FROM shard_members WHERE status = 'up' AND reachable AND voter)"
}

kill_node() { # NODE
  local postmaster
  postmaster=$(head -n 1 "$temp/node$1/postmaster.pid")
  # shellcheck disable=SC2046 # a list of process ids
  as_user kill -9 "$postmaster" $(ps -o pid= --ppid "$postmaster")
  killed=${EPOCHREALTIME/,/.}
  # It is no child of ours, so we can only look.
  while as_user kill -0 "$postmaster" 2>/dev/null; do sleep 0.01; done
}

# ---- measuring ----------------------------------------------------------------------------------

# Picks 1 000 entities for each place as node 1 sees it: local, remote (all at node 2), any. Their shards
# get homes by it.
choose_targets() { # TYPE
  on 1 "SELECT bench.touch('$1', 20000)" >/dev/null
  drain_all
  on_all "DELETE FROM bench.target WHERE type_name = '$1'"
  on 1 "SELECT bench.choose('$1')" >/dev/null
  for node in 2 3; do
    on 1 "COPY (SELECT * FROM bench.target WHERE type_name = '$1') TO STDOUT" |
      PGPORT=${port[node]} sql "COPY bench.target FROM STDIN"
  done
}

drain_all() {
  on_all "SELECT bench.drain()" >/dev/null
}

total() { # TYPE
  on_all "SELECT bench.total('$1')" | awk '{ sum += $1 } END { print sum }'
}

# spread TYPE PLACE NODE…: each of the nodes sends its part of the messages to entities of that place, in
# transactions of 1 000. Until everything is handled.
# Sets rate (messages/s), wal (bytes/message, of all nodes), sender and receiver (µs of the region
# workers of node 1 and of the others, per message). Fails if a message is missing.
spread() {
  local type=$1 place=$2 node before after started mark w c senders=() sent=0
  shift 2
  on_all 'CHECKPOINT'
  before=$(total "$type")
  local -a wal_before cpu_before
  for node in "${nodes[@]}"; do
    mark=$(on "$node" 'SELECT * FROM bench.mark()')
    read -r "wal_before[node]" "cpu_before[node]" <<<"$mark"
  done
  started=${EPOCHREALTIME/[.,]/}
  for node; do
    PGPORT=${port[node]} sql "CALL bench.send('$type', '$place', $((messages / $#)))" >/dev/null &
    senders+=($!)
    sent=$((sent + messages / $# / 1000 * 1000))
  done
  for node in "${senders[@]}"; do wait "$node"; done
  for node; do on "$node" 'SELECT bench.drain()' >/dev/null; done
  rate=$(ratio "$sent" "$(ratio "$((${EPOCHREALTIME/[.,]/} - started))" 1000000)")
  wal=0 sender=0 receiver=0
  for node in "${nodes[@]}"; do
    mark=$(on "$node" 'SELECT * FROM bench.mark()')
    read -r w c <<<"$mark"
    wal=$(sum "$wal" "$(ratio "$((w - wal_before[node]))" "$sent")")
    c=$(awk -v a="$c" -v b="${cpu_before[node]}" -v n="$sent" 'BEGIN { print (a - b) / n }')
    if ((node == 1)); then sender=$c; else receiver=$(sum "$receiver" "$c"); fi
  done
  after=$(total "$type")
  if ((after - before != sent)); then
    die "$type, $place: $sent messages sent, $((after - before)) handled"
  fi
}

# What move.sql noted at each node comes to one of them.
gather() { # NODE
  local node
  for node in "${nodes[@]}"; do
    on "$node" "COPY (SELECT $node, * FROM bench.seen) TO STDOUT" | PGPORT=${port[$1]} sql 'COPY bench.all_seen FROM STDIN'
    on "$node" "COPY (SELECT $node, * FROM bench.sample) TO STDOUT" |
      PGPORT=${port[$1]} sql 'COPY bench.all_samples FROM STDIN'
  done
  on "$1" 'ANALYZE bench.all_seen, bench.all_samples'
}

# Fails unless every message told or asked by move.sql has had its effect, once.
verify_told() { # TYPE
  local told handled
  told=$(on_all "SELECT coalesce(sum(messages), 0) FROM bench.told WHERE type_name = '$1'" | awk '{ n += $1 } END { print n }')
  handled=$(total "$1")
  [[ $told == "$handled" ]] || die "$1: $told messages sent, $handled handled"
}

sum() { awk -v a="$1" -v b="$2" 'BEGIN { print a + b }'; }

# asks PLACE CLIENTS: pgbench at node 1 asks 100 of the entities of that place.
# Sets rate and p50 (µs). Fails unless each ask had its effect once.
asks() {
  local before after i=0 id scripts=()
  rm -f "$temp"/ask-*
  while read -r id; do
    i=$((i + 1))
    echo "SELECT shard_ask('account', '$id', '{\"delta\": 1}');" >"$temp/ask-$i"
    scripts+=(-f "$temp/ask-$i")
  done < <(on 1 "SELECT id FROM bench.target WHERE (type_name, place) = ('account', '$1') ORDER BY k LIMIT 100")
  before=$(total account)
  PGPORT=${port[1]} run_pgbench "$2" "${scripts[@]}"
  after=$(total account)
  if ((after - before != transactions)); then
    die "asks, $1: $transactions answered, $((after - before)) handled"
  fi
}

# A round trip to the server without shard, by TCP.
selects() {
  echo 'SELECT 1;' >"$temp/select"
  PGHOST=127.0.0.1 PGPORT=${port[1]} PGUSER=link PGPASSFILE=$temp/passfile \
    run_pgbench 1 -f "$temp/select"
}

run_pgbench() { # CLIENTS OPTIONS…
  local log=$temp/pgbench
  rm -f "$log".*
  "$bindir/pgbench" -n -M prepared -c "$1" -j 2 -T "$seconds" -l --log-prefix="$log" "${@:2}" \
    >"$log.out" 2>"$log.err" || die "pgbench: $(cat "$log.err")"
  transactions=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$log.out")
  rate=$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$log.out")
  p50=$(cut -d ' ' -f 3 "$log".[0-9]* | sort -n |
    awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }')
}
