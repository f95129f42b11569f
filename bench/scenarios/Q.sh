title="remote asks: p50 against local asks and a bare round trip"

choose_targets account
for ((run = 1; run <= runs; run++)); do
  selects
  select=$p50
  record "SELECT 1 by TCP, p50" "µs" "$p50"
  asks local 1
  local=$p50
  record "ask of a local entity, p50" "µs" "$p50"
  asks remote 1
  record "ask of a remote entity, p50" "µs" "$p50"
  record "  / (2 × local + SELECT)" "×" "$(ratio "$p50" "$((2 * local + select))")" "<= 1"

  asks local 32
  local=$rate
  record "32 clients, local" "asks/s" "$rate"
  asks remote 32
  record "32 clients, remote" "asks/s" "$rate"
  record "  / local" "×" "$(ratio "$rate" "$local")"
done
