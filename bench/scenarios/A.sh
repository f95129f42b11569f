title="batched: transactions of 1 000 messages of 100 bytes, until the last state is committed"

for ((run = 1; run <= runs; run++)); do
  batched bare counter 1000
  bare=$rate
  record "bare INSERT … SELECT, same transactions" "rows/s" "$rate"
  record "  WAL per row" "bytes" "$wal"

  batched tell_many counter 1000
  counter=$rate
  record "tell_many, 1 000 entities, PL/pgSQL" "messages/s" "$rate" ">= 150000"
  record "  / bare INSERT" "×" "$(ratio "$rate" "$bare")" ">= 0.35"
  record "  WAL per message" "bytes" "$wal"
  record "  region worker per message" "µs" "$cpu"
  record "  inbox at its largest" "MB" "$peak"

  batched tell counter 1000
  record "SELECT shard_tell(…) FROM generate_series" "messages/s" "$rate"
  record "  / tell_many (set)" "×" "$(ratio "$rate" "$counter")"

  batched copy counter 1000
  record "COPY shard_inbox" "messages/s" "$rate"
  record "  / tell_many (COPY)" "×" "$(ratio "$rate" "$counter")"

  batched tell_many counter 1
  record "one hot entity" "messages/s" "$rate" ">= 150000"
  record "  / 1 000 entities" "×" "$(ratio "$rate" "$counter")" ">= 1"
  record "  WAL per message (hot)" "bytes" "$wal"

  batched tell_many composite 1000
  record "composite state" "messages/s" "$rate"
  record "  / jsonb state" "×" "$(ratio "$rate" "$counter")" ">= 0.8"

  batched tell_many batch 1000
  record "batch handler, 1 000 entities" "messages/s" "$rate" ">= 250000"
  record "  region worker per message (batch)" "µs" "$cpu"
  batched tell_many batch 1
  record "batch handler, one hot entity" "messages/s" "$rate" ">= 250000"
done
