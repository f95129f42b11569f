title="homes: 10 000 shards over three nodes"

# Rates are compared at the node where the one shard is, for entities that are there: then only the
# number of shards differs.
on_all "SELECT shard_start('narrow', 'bench.counter(jsonb,jsonb)', number_of_shards => 1)" >/dev/null
for node in "${nodes[@]}"; do
  on "$node" "SELECT bench.touch('narrow', 1000)" >/dev/null
done
drain_all
home=$(on 1 "SELECT node FROM shard_homes WHERE type_name = 'narrow'")
on "$home" "INSERT INTO bench.target SELECT 'narrow', 'here', i, 'e' || i FROM generate_series(0, 999) i"

for ((run = 1; run <= runs; run++)); do
  type=wide_$run
  on_all "SELECT shard_start('$type', 'bench.counter(jsonb,jsonb)', number_of_shards => 10000,
            buffer_size => 1000000)" >/dev/null
  # An entity for each shard.
  on 1 "INSERT INTO bench.target
        SELECT '$type', 'each', shard, min(id)
        FROM (SELECT shard_shard_id('$type', 'e' || i) AS shard, 'e' || i AS id
              FROM generate_series(1, 200000) i) e
        GROUP BY shard"
  [[ $(on 1 "SELECT count(*) FROM bench.target WHERE type_name = '$type'") == 10000 ]] ||
    die "too few entities for 10 000 shards"
  started=${EPOCHREALTIME/[.,]/}
  on 1 "SELECT shard_tell_many('$type', array_agg(id), array_agg(bench.message()))
        FROM bench.target WHERE type_name = '$type'" >/dev/null
  on 1 'SELECT bench.drain()' >/dev/null
  record "first messages of 10 000 shards, until all are handled" "s" \
    "$(ratio "$((${EPOCHREALTIME/[.,]/} - started))" 1000000)" "<= 20"
  found=$(on 1 "SELECT count(*) FROM shard_homes WHERE type_name = '$type'")
  [[ $found == 10000 && $(total "$type") == 10000 ]] || die "$found homes, $(total "$type") messages handled"
  record "  shards of the node that has fewest" "" "$(on 1 "
    SELECT min(n) FROM (SELECT count(*) AS n FROM shard_homes WHERE type_name = '$type' GROUP BY node) c")"

  on 1 "COPY (SELECT '$type', 'here', (row_number() OVER ())::int - 1, id
              FROM bench.target JOIN shard_homes h ON h.shard = k AND h.type_name = '$type'
              WHERE target.type_name = '$type' AND place = 'each' AND node = $home LIMIT 1000) TO STDOUT" |
    PGPORT=${port[home]} sql "COPY bench.target FROM STDIN"
  spread narrow here "$home"
  narrow=$rate
  record "known homes: 1 shard, 1 000 entities" "messages/s" "$rate"
  spread "$type" here "$home"
  record "known homes: 1 000 of 10 000 shards, an entity each" "messages/s" "$rate"
  record "  / 1 shard" "×" "$(ratio "$rate" "$narrow")" ">= 0.9"
done
