title="an empty third node joins two with $shards shards, $entities entities, under load"

# Limits of the strategy by name; without limits all that has to move may begin at once.
declare -A limits=(
  [default]='{}'
  [unlimited]='{"rebalance_absolute_limit": 1000000, "rebalance_relative_limit": 1.0}'
)

host_wide() { # NODE LIMIT
  on "$1" "SELECT shard_start('wide', 'bench.counted(jsonb,jsonb)', number_of_shards => $shards,
             buffer_size => 1000000, allocation_settings => '${limits[$2]}')" >/dev/null
}

# Until all three have the same number of shards, or one more, which is as even as the strategy can make it; and
# nothing moves, as a node sees it.
await_balance() { # NODE
  await "$1" "(SELECT count(*) = 3 AND max(n) - min(n) <= 1
                      AND NOT EXISTS (SELECT FROM shard_rebalances WHERE type_name = 'wide')
               FROM (SELECT count(*) AS n FROM shard_homes WHERE type_name = 'wide' GROUP BY node) c)" "$join_limit"
}

# Nothing to wait for: what happens in these seconds is measured and drawn.
let_pass() { # SECONDS
  on 1 "SELECT pg_sleep($1)" >/dev/null
}

moment() { on 1 'SELECT clock_timestamp()'; }

seconds_between() { # FROM TO
  on 1 "SELECT extract(epoch FROM timestamptz '$2' - timestamptz '$1')"
}

for limit in default unlimited; do
  start_cluster 2
  for node in 1 2; do
    PGPORT=${port[node]} sql_file move.sql >/dev/null
    host_wide "$node" "$limit"
  done
  populating=()
  on 1 "CALL bench.populate('wide', 0, $((entities / 2)))" & populating+=($!)
  on 2 "CALL bench.populate('wide', $((entities / 2)), $entities)" & populating+=($!)
  for process in "${populating[@]}"; do wait "$process"; done
  drain_all

  # The load: tells at a steady pace from both nodes to entities anywhere, each tenth with the time.
  processes=()
  began=$(moment)
  for node in 1 2; do
    on "$node" "CALL bench.trickle('wide', $entities, $load, 10, $((join_limit + 60)))" & processes+=($!)
    on "$node" "CALL bench.watch('wide', 0.1, $((join_limit + 60)))" & processes+=($!)
  done
  start_node 3
  for file in cluster.sql move.sql; do PGPORT=${port[3]} sql_file "$file" >/dev/null; done
  on 3 "CALL bench.watch('', 0.1, $((join_limit + 60)))" & processes+=($!)
  let_pass 10
  asked=$(moment)
  join_node 3
  host_wide 3 "$limit"
  await_balance 1
  balanced=$(moment)
  let_pass 10
  ended=$(moment)
  for node in "${nodes[@]}"; do await "$node" "EXISTS (SELECT FROM bench.sample WHERE at > '$ended')"; done
  on_all 'INSERT INTO bench.stop DEFAULT VALUES'
  for process in "${processes[@]}"; do wait "$process"; done
  drain_all
  verify_told wide
  gather 1

  runs_before=$runs runs=1 run=1
  record "limits $limit: shard_join called → balanced" s "$(seconds_between "$asked" "$balanced")"
  read -r fewest most <<<"$(on 1 "SELECT min(n), max(n) FROM (
    SELECT count(*) AS n FROM shard_homes WHERE type_name = 'wide' GROUP BY node) c")"
  record "  $limit: shards of the node with the most − the fewest" "" "$((most - fewest))" "<= 1"
  while read -r when rate p50 p99 longest; do
    record "  $limit: handled, $when" "messages/s" "$rate"
    record "    $limit, $when: p50 from sent to handled" ms "$p50"
    record "    $limit, $when: p99" ms "$p99"
    record "    $limit, $when: longest" ms "$longest"
  done < <(on 1 "
    SELECT name, bench.rate(since, until), w.*
    FROM (VALUES ('before', timestamptz '$began' + interval '1 s', timestamptz '$asked'),
                 ('meanwhile', '$asked', '$balanced'), ('afterwards', '$balanced', '$ended')) t (name, since, until)
         CROSS JOIN LATERAL bench.waits(since, until) w")
  runs=$runs_before

  on 1 "COPY (SELECT * FROM bench.curve('wide', timestamptz '$began' + interval '1 s', '$ended')) TO STDOUT" \
    >"$results/join-$limit.tsv"
  perl "$bench/plot.pl" "$results/join-$limit.tsv" \
    "$entities entities in $shards shards: a third node joins, limits of the strategy: $limit" \
    "$(seconds_between "$began" "$asked")=joins" "$(seconds_between "$began" "$balanced")=balanced" \
    >"$results/join-$limit.svg"
done
