title="new entities: one message each, against INSERT into a table with a primary key"

count=$((messages / 10))
for ((run = 1; run <= runs; run++)); do
  batched keyed fresh "$count" "$count"
  keyed=$rate
  record "INSERT with primary key" "rows/s" "$rate"
  batched tell_many fresh "$count" "$count" "run-$run-"
  record "new entities" "messages/s" "$rate"
  record "  / INSERT" "×" "$(ratio "$rate" "$keyed")"
  record "  per entity" "µs" "$(ratio 1000000 "$rate")"
  record "  region worker per entity" "µs" "$cpu"
  record "  WAL per entity" "bytes" "$wal"
done
