title="languages: the same counter on an int8, 1 000 entities, by shard_tell_many"

for ((run = 1; run <= runs; run++)); do
  for language in c plpgsql sql; do
    batched tell_many "counter_$language" 1000
    record "$language: region worker per message" "µs" "$cpu"
    record "$language" "messages/s" "$rate"
  done
done
