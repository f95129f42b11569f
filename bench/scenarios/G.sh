remembered=${BENCH_ENTITIES:-1000000}
title="remembered entities: what remembering costs; and how soon they run again when the server has started"

mean() { awk -v a="$1" -v b="$2" 'BEGIN { print (a + b) / 2 }'; }

# Of as much work at one rate and at another.
both_rates() { awk -v a="$1" -v b="$2" 'BEGIN { print 2 / (1 / a + 1 / b) }'; }

# measure_recovery TYPE COUNT [MESSAGES]: restarts the server and waits until all of them were started; sets took (s).
measure_recovery() {
  local begin
  stop_servers
  run_server single
  begin=$(sql "SELECT extract(epoch FROM pg_postmaster_start_time())")
  if [[ -n ${3:-} ]]; then
    batched tell_many counter 1000 "$3"
  fi
  sql "CALL bench.until_recovered('$1', $2)"
  took=$(sql "SELECT extract(epoch FROM clock_timestamp()) - $begin")
}

sql "INSERT INTO bench.types SELECT t, 'bench.counter(jsonb,jsonb)', \$\$sum((state->>'count')::int8)\$\$
       FROM unnest('{remembered,tenth,all}'::text[]) t;
     SELECT shard_start('remembered', 'bench.counter(jsonb,jsonb)', remember_entities => true);
     CREATE PROCEDURE bench.until_recovered(name text, most int8) LANGUAGE plpgsql AS \$\$
     BEGIN
       LOOP
         EXIT WHEN (SELECT sum(remembered) = most AND NOT bool_or(recovering)
                    FROM shard_region_stats WHERE type_name = name);
         COMMIT;
         PERFORM pg_sleep(0.02);
       END LOOP;
     END \$\$" >/dev/null
for type in counter remembered; do
  batched tell_many "$type" 1000 100000
done
# Plain, remembered, remembered, plain: what becomes of the machine meanwhile counts for both.
for ((run = 1; run <= runs; run++)); do
  batched tell_many counter 1000
  plain=$rate plain_cpu=$cpu plain_wal=$wal
  batched tell_many remembered 1000
  kept=$rate kept_cpu=$cpu kept_wal=$wal
  batched tell_many remembered 1000
  kept=$(both_rates "$kept" "$rate") kept_cpu=$(mean "$kept_cpu" "$cpu") kept_wal=$(mean "$kept_wal" "$wal")
  batched tell_many counter 1000
  plain=$(both_rates "$plain" "$rate") plain_cpu=$(mean "$plain_cpu" "$cpu") plain_wal=$(mean "$plain_wal" "$wal")
  record "tell_many to 1 000 entities" "messages/s" "$plain"
  record "the same, remembered" "messages/s" "$kept"
  record "  / not" "×" "$(ratio "$kept" "$plain")" ">= 0.9"
  record "  region worker per message / not" "×" "$(ratio "$kept_cpu" "$plain_cpu")"
  record "  WAL per message / not" "×" "$(ratio "$kept_wal" "$plain_wal")"
done
sql "SELECT shard_alter('remembered', 'remember_entities', 'false')" >/dev/null

# A tenth first, then all of them: the larger type is not there yet while the smaller one is measured.
for type in tenth all; do
  count=$remembered
  if [[ $type == tenth ]]; then count=$((remembered / 10)); fi
  sql "SELECT shard_start('$type', 'bench.counter(jsonb,jsonb)', remember_entities => true, passivation_strategy => 'lru',
                          active_entity_limit => 100000)" >/dev/null
  batched tell_many "$type" "$count" "$count"
  for ((run = 1; run <= runs; run++)); do
    measure_recovery "$type" "$count"
    record "$count run again after" "s" "$took" "$([[ $type == tenth ]] && echo '<= 3' || echo '<= 40')"
    if [[ $type == all ]]; then
      batched tell_many counter 1000
      plain=$rate
      measure_recovery "$type" "$count" "$messages"
      meanwhile=$rate
      batched tell_many counter 1000
      record "messages meanwhile / without" "×" "$(ratio "$meanwhile" "$(both_rates "$plain" "$rate")")" ">= 0.8"
      record "$count run again beside messages, after" "s" "$took" "<= 40"
    fi
  done
  sql "SELECT shard_alter('$type', 'remember_entities', 'false')" >/dev/null
done
