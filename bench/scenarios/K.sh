title="coordinator killed (kill -9 of its server): until a shard without a home gets one"

on_all "SELECT shard_start('many', 'bench.counter(jsonb,jsonb)', number_of_shards => 100000)" >/dev/null
entity=0
runs_before=$runs runs=$kills
for ((run = 1; run <= kills; run++)); do
  await 1 'EXISTS (SELECT FROM shard_members WHERE coordinator)'
  coordinator=$(on 1 'SELECT node FROM shard_members WHERE coordinator')
  survivor=$((coordinator % 3 + 1))
  # An entity whose shard has no home.
  while true; do
    entity=$((entity + 1))
    shard=$(on "$survivor" "SELECT shard_shard_id('many', 'k$entity')")
    [[ $(on "$survivor" "SELECT count(*) FROM shard_homes WHERE (type_name, shard) = ('many', $shard)") == 1 ]] ||
      break
  done
  export PGPORT=${port[survivor]}
  open_session
  in_session 'SELECT 1;'
  kill_node "$coordinator"
  in_session "SELECT shard_tell('many', 'k$entity', bench.message());"
  in_session "CALL bench.await_home('many', $shard, $coordinator, to_timestamp($killed)) \\g $temp/ms"
  close_session
  read -r office home <"$temp/ms"
  record "kill → another coordinator, as a third node knows it" "ms" "$office"
  record "kill → home of a shard that had none" "ms" "$home" "<= 5000"
  run_server "node$coordinator"
  await_members "$survivor"
done
runs=$runs_before
