title="remote tells: three servers on the same cores, transactions of 1 000, until everything is handled"

choose_targets counter
for ((run = 1; run <= runs; run++)); do
  spread counter local 1
  local=$rate
  record "node 1 to itself" "messages/s" "$rate"
  record "  WAL per message" "bytes" "$wal"
  record "  region worker per message" "µs" "$sender"

  spread counter remote 1
  record "node 1 to node 2" "messages/s" "$rate"
  record "  / to itself" "×" "$(ratio "$rate" "$local")" ">= 0.5"
  record "  WAL per message, both nodes" "bytes" "$wal"
  record "  region worker of the origin per message" "µs" "$sender"
  record "  region worker of the home per message" "µs" "$receiver"

  spread counter any 1
  record "node 1 to entities anywhere" "messages/s" "$rate"
  record "  / to itself (anywhere)" "×" "$(ratio "$rate" "$local")"

  spread counter any 1 2 3
  record "all three to entities anywhere" "messages/s" "$rate"
  record "  / node 1 to itself (all three)" "×" "$(ratio "$rate" "$local")"
done
