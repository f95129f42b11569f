title="single: one shard_tell per transaction, everything handled meanwhile"

declare -A bound=([1]=">= 0.8" [8]="" [32]=">= 0.65")
for ((run = 1; run <= runs; run++)); do
  for clients in 1 8 32; do
    label="$clients client$( ((clients == 1)) || echo s)"
    sql 'TRUNCATE bench.bare'
    single insert "$clients"
    insert=$rate insert_p50=$p50
    record "$label: bare INSERT" "tx/s" "$rate"
    record "$label:   WAL per row" "bytes" "$wal"

    single tell "$clients" single
    record "$label: shard_tell" "tx/s" "$rate"
    record "$label:   / bare INSERT" "×" "$(ratio "$rate" "$insert")" "${bound[$clients]}"
    record "$label:   p50 more than INSERT" "µs" "$((p50 - insert_p50))"
    record "$label:   region worker per message" "µs" "$cpu"
    record "$label:   WAL per message, handling included" "bytes" "$wal"
    record "$label:   rest handled after the end" "ms" "$lag"
  done
done
