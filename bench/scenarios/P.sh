title="1 000 000 entities with a state, 10 000 of them in memory at a time, against all of them in memory"

# Memory of the largest region worker, MB: its own, without the server's shared buffers.
own_memory() {
  local pid largest=0 size
  for pid in $(sql 'SELECT pid FROM shard_stat_workers WHERE pid IS NOT NULL'); do
    size=$(awk '/^RssAnon/ { print $2 / 1024 }' "/proc/$pid/status")
    largest=$(awk -v a="$largest" -v b="$size" 'BEGIN { print (a > b ? a : b) }')
  done
  echo "$largest"
}

entities=${BENCH_ENTITIES:-1000000}
limit=$((entities / 100))
sql "INSERT INTO bench.types SELECT t, 'bench.counter(jsonb,jsonb)', \$\$sum((state->>'count')::int8)\$\$
       FROM unnest('{kept,limited}'::text[]) t;
     SELECT shard_start('kept', 'bench.counter(jsonb,jsonb)', passivation_strategy => 'none');
     SELECT shard_start('limited', 'bench.counter(jsonb,jsonb)', passivation_strategy => 'lru',
                        active_entity_limit => $limit)" >/dev/null
# The one with few in memory first: memory that was used once stays the process's.
for ((run = 1; run <= runs; run++)); do
  for type in limited kept; do
    if ((run == 1)); then
      progress "$scenario: $entities entities of type $type"
      batched tell_many "$type" "$entities" "$entities"
    fi
    before=$(sql "SELECT coalesce(sum(left_limit), 0) FROM shard_region_stats WHERE type_name = '$type'")
    batched tell_many "$type" "$entities" "$entities"
    if [[ $type == limited ]]; then limited=$rate; else kept=$rate; fi
    record "$type: each entity once" "messages/s" "$rate"
    record "  region worker per message" "µs" "$cpu"
    record "  entities that left memory, per message" "×" "$(ratio $(($(sql "SELECT sum(left_limit)
      FROM shard_region_stats WHERE type_name = '$type'") - before)) "$entities")"
    batched tell_many "$type" $((limit / 2)) "$entities"
    record "$type: half as many entities as may be in memory" "messages/s" "$rate"
    record "  region worker per message there" "µs" "$cpu"
    record "  region worker's memory after $type" "MB" "$(own_memory)" "$([[ $type == limited ]] && echo '<= 100')"
  done
  record "each entity once: limited / kept" "×" "$(ratio "$limited" "$kept")"
done
