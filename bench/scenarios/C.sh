title="ask: a reply with a durable effect, against UPDATE … RETURNING by primary key"

for ((run = 1; run <= runs; run++)); do
  single update 1
  update=$p50
  record "1 client: UPDATE p50" "µs" "$p50"
  single ask 1 account
  record "1 client: ask p50" "µs" "$p50"
  record "1 client:   / UPDATE" "×" "$(ratio "$p50" "$update")" "<= 1.5"
  record "1 client:   WAL per ask" "bytes" "$wal"
  single ask-read 1
  record "1 client: read-only ask p50" "µs" "$p50" "<= 300"
  record "1 client:   WAL per read-only ask" "bytes" "$wal"

  single update 32
  update=$rate
  record "32 clients: UPDATE" "tx/s" "$rate"
  single ask 32 account
  record "32 clients: ask" "tx/s" "$rate"
  record "32 clients:   / UPDATE" "×" "$(ratio "$rate" "$update")" ">= 0.8"
  record "32 clients:   region worker per ask" "µs" "$cpu"

  single update-hot 32
  update=$rate
  record "32 clients, one hot row: UPDATE" "tx/s" "$rate"
  single ask-hot 32 account
  record "32 clients, one hot entity: ask" "tx/s" "$rate"
  record "32 clients, one hot entity:   / UPDATE" "×" "$(ratio "$rate" "$update")" ">= 4"
done
