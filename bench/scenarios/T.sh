timers=${BENCH_TIMERS:-1000000}
rate_of_timers=${BENCH_TIMER_RATE:-50000}
idle_seconds=${BENCH_IDLE:-60}
title="Timers: $timers pending, of a tenth as many entities"

# How far WAL and transaction ids have come.
place_of_node() {
  sql "SELECT pg_current_wal_insert_lsn() - '0/0', pg_snapshot_xmax(pg_current_snapshot())"
}

# The region workers' CPU time, in µs.
worker_time() {
  local pid sum=0
  for pid in $(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'shard region' AND datname = current_database()"); do
    sum=$((sum + $(cut -d ' ' -f 1 "/proc/$pid/schedstat") / 1000))
  done
  echo "$sum"
}

# schedule RATE: makes the timers, due some time after that is done; sets start, the time of the first.
schedule() {
  local begin made
  sql 'TRUNCATE shard_entity.timed'
  begin=$(sql 'SELECT extract(epoch FROM clock_timestamp())')
  start=$(sql "SELECT extract(epoch FROM clock_timestamp() + interval '20 s' + $timers * interval '200 us')")
  sql "CALL bench.schedule($timers, to_timestamp($start), $1)"
  sql "SELECT shard_drain('1 h')" >/dev/null
  made=$(sql "SELECT $timers / (extract(epoch FROM clock_timestamp()) - $begin)")
  [[ $(sql "SELECT clock_timestamp() < to_timestamp($start)") == t ]] || die "timers were due before all were made"
  record "made" "timers/s" "$made"
  # what was made is not paid for by what fires, nor by autovacuum while nothing does
  sql 'VACUUM ANALYZE'
  sql 'CHECKPOINT'
}

fired() {
  local handled
  handled=$(sql "SELECT sum(messages_handled) + $timers FROM shard_stat_workers")
  sql "SELECT pg_sleep_until(to_timestamp($start))" >/dev/null
  sql "CALL bench.until_fired($handled)"
}

sql_file timers.sql >/dev/null
for ((run = 1; run <= runs; run++)); do
  schedule 0
  sleep 2 # what statistics and checkpoints have left to do
  read -r wal_before xid_before < <(place_of_node)
  wait_seconds=$(sql "SELECT least($idle_seconds, extract(epoch FROM to_timestamp($start) - clock_timestamp())::int - 2)")
  sleep "$wait_seconds"
  read -r wal_after xid_after < <(place_of_node)
  record "idle for $idle_seconds s: WAL" "bytes" "$((wal_after - wal_before))"
  record "idle for $idle_seconds s: transaction ids" "" "$((xid_after - xid_before))"

  before=$(worker_time)
  fired
  took=$(sql "SELECT extract(epoch FROM clock_timestamp()) - $start")
  record "all due at once, fired" "timers/s" "$(ratio "$timers" "$took")"
  record "  region workers per timer" "µs" "$(ratio $(($(worker_time) - before)) "$timers")"

  schedule "$rate_of_timers"
  fired
  record "due at $rate_of_timers/s: worst lateness" "ms" "$(sql 'SELECT max(state) / 1000.0 FROM shard_entity.timed')"
done
