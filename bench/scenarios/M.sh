title="a shard of $residents entities of 200 bytes moves between two nodes, $moves times; times in ms"

# One shard that moves, and 30 that stay; all of its messages come in at the third node.
for node in "${nodes[@]}"; do
  PGPORT=${port[node]} sql_file move.sql >/dev/null
done
on_all "SELECT shard_start('moving', 'bench.resident(jsonb,jsonb)', number_of_shards => 1),
               shard_start('other', 'bench.counted(jsonb,jsonb)', number_of_shards => 30)" >/dev/null
on 1 "CALL bench.populate('moving', 0, $residents)"
on 1 "CALL bench.populate('other', 0, 20000)"
drain_all
home=$(on 1 "SELECT node FROM shard_homes WHERE type_name = 'moving'")
if ((home == 3)); then on 3 "SELECT shard_move('moving', 0, 1)" >/dev/null; fi
for node in 1 2; do
  on "$node" "INSERT INTO bench.target
              SELECT 'other', 'here', row_number() OVER (), entity_id FROM shard_entity.other LIMIT 1000"
done

# Starts the work of one phase; moves when it is under way: when each of the two nodes has handled so many messages;
# ends it, and waits till all is handled.
go_through() { # MESSAGES COMMAND…, each "NODE STATEMENT"
  local command node process processes=() handled=() enough=$1
  shift
  on_all 'TRUNCATE bench.stop, bench.move, bench.sample, bench.seen, bench.asked, bench.all_seen, bench.all_samples'
  for node in 1 2; do handled[node]=$(on "$node" 'SELECT last_value FROM bench.handled'); done
  for command; do
    on "${command%% *}" "${command#* }" & processes+=($!)
  done
  for node in 1 2; do await "$node" "(SELECT last_value >= $((handled[node] + enough)) FROM bench.handled)"; done
  on 3 "CALL bench.move_back_and_forth('moving', 0, 1, 2, $moves, $move_gap)"
  on_all 'INSERT INTO bench.stop DEFAULT VALUES'
  for process in "${processes[@]}"; do wait "$process"; done
  drain_all
  gather 3
}

# All work ends when the moves have; this only bounds it.
lasts=3600

# What it looks like to the shard's messages: 500 tells a second and somebody who asks; and some work everywhere.
go_through 2000 "3 CALL bench.trickle('moving', $residents, 500, 1, $lasts)" \
  "3 CALL bench.question('moving', $residents, $lasts)" \
  "1 CALL bench.trickle('other', 20000, 1000, 20, $lasts)" \
  "2 CALL bench.trickle('other', 20000, 1000, 20, $lasts)"
runs_before=$runs runs=$moves run=0
while read -r decided lasted p50 p99 longest ask failed; do
  run=$((run + 1))
  record "shard_move() called → it returns" ms "$decided"
  record "  → a message is handled at the new home" ms "$lasted" "<= 1000"
  record "messages of the shard meanwhile, p50 from sent to handled" ms "$p50"
  record "  p99" ms "$p99" "<= 300"
  record "  longest" ms "$longest"
  record "longest ask of the shard meanwhile" ms "$ask"
  record "asks that failed meanwhile" "" "$failed"
done < <(on 3 "SELECT decided_ms, lasted_ms, p50_ms, p99_ms, longest_ms, ask_ms, asks_failed FROM bench.moved ORDER BY no")
((run == moves)) || die "$run of $moves moves ended"
while read -r type p50 p99; do
  record "between moves, $type: p50 from sent to handled" ms "$p50"
  record "between moves, $type: p99" ms "$p99"
done < <(on 3 "SELECT type_name, (bench.in_peace(type_name)).* FROM (VALUES ('moving'), ('other')) t (type_name)")

# What it costs the others: the shards that stay have as much to do as both nodes can.
go_through 50000 "1 CALL bench.pump('other', 'here', $lasts)" "2 CALL bench.pump('other', 'here', $lasts)" \
  "1 CALL bench.watch('', 0.02, $lasts)" "2 CALL bench.watch('', 0.02, $lasts)" \
  "3 CALL bench.trickle('moving', $residents, 500, 1, $lasts)"
run=0
while read -r decided lasted p50 p99 longest before during after; do
  run=$((run + 1))
  record "under full load: called → it returns" ms "$decided"
  record "  → handled at the new home (full load)" ms "$lasted"
  record "  messages of the shard meanwhile, p50 (full load)" ms "$p50"
  record "  p99 (full load)" ms "$p99" "<= 300"
  record "  longest (full load)" ms "$longest"
  record "  others, before" "messages/s" "$before"
  record "  others, during the move" "messages/s" "$during"
  record "  during / before" "×" "$(ratio "$during" "$before")" ">= 0.8"
  record "  others, half a second afterwards / before" "×" "$(ratio "$after" "$before")"
done < <(on 3 "SELECT decided_ms, lasted_ms, p50_ms, p99_ms, longest_ms, bench.rate(asked - interval '500 ms', asked), bench.rate(asked, done),
                 bench.rate(done, done + interval '500 ms') FROM bench.moved ORDER BY no")
read -r p50 p99 <<<"$(on 3 "SELECT (bench.in_peace('moving')).*")"
record "between moves (full load): p50 from sent to handled" ms "$p50"
record "between moves (full load): p99" ms "$p99"
runs=$runs_before
for type in moving other; do verify_told "$type"; done
