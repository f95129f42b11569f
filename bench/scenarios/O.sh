title="ordered_by: numbered messages of 120 bytes, otherwise as in A"

sql_file ordered.sql >/dev/null
for ((run = 1; run <= runs; run++)); do
  batched numbered counter 1000
  plain=$rate
  record "without ordered_by, 1 000 entities" "messages/s" "$rate"
  record "  region worker per message" "µs" "$cpu"

  batched numbered ordered 1000
  record "with ordered_by, in order" "messages/s" "$rate"
  record "  / without" "×" "$(ratio "$rate" "$plain")"
  record "  region worker per message (ordered)" "µs" "$cpu"

  batched numbered counter 1
  plain=$rate
  batched numbered ordered 1 "$messages" h
  record "one hot entity, in order" "messages/s" "$rate"
  record "  / without (hot)" "×" "$(ratio "$rate" "$plain")"

  batched swapped ordered 1000 $((messages / 10))
  record "each second message before the first" "messages/s" "$rate"
  record "  region worker per message (swapped)" "µs" "$cpu"
done
