title="fair share: a type with calls of 100 ms beside one with calls of 1 ms, on one worker"

others=${BENCH_OPTIONS:-}
BENCH_OPTIONS="$others -c shard.region_workers=1"
start_server
BENCH_OPTIONS=$others # of the scenarios that follow
sql_file fair.sql >/dev/null

handled() { # TYPE
  sql "SELECT coalesce(sum(messages_handled), 0) FROM shard_region_stats WHERE type_name = '$1'"
}

# Messages of type brief that are handled per second, of a backlog; sets rate.
brief_rate() {
  local before after began ended
  before=$(handled brief) began=$(date +%s%N)
  sleep "$seconds"
  after=$(handled brief) ended=$(date +%s%N)
  rate=$(awk -v n="$((after - before))" -v ns="$((ended - began))" 'BEGIN { print n * 1e9 / ns }')
}

tell() { # TYPE MESSAGES
  sql "SELECT count(shard_tell('$1', 'e' || i % 50, '{}')) FROM generate_series(1, $2) i" >/dev/null
}

clear() { # TYPE: what waits of it goes
  sql "SELECT shard_drop_type('$1', force => true)" >/dev/null 2>&1
  sql_file fair.sql >/dev/null
}

# Sets p99, in ms, of transactions that come at their times, as many in a second that their messages are
# the part of $alone that the type is to keep. What comes faster than a worker handles it waits ever longer.
latency() { # SCRIPT MESSAGES: of one transaction
  local log=$temp/fair
  offered=$(awk -v alone="$alone" -v n="$2" 'BEGIN { print 0.4 * alone / n }')
  rm -f "$log".*
  "$bindir/pgbench" -n -M prepared -c 64 -j 2 -R "$offered" -T "$seconds" -l --log-prefix="$log" \
    -f "$bench/pgbench/$1.sql" >"$log.out" 2>"$log.err" || die "pgbench: $(cat "$log.err")"
  p99=$(cut -d ' ' -f 3 "$log".[0-9]* | sort -n |
    awk '{ value[NR] = $1 } END { print value[int(NR * 0.99)] / 1000 }')
}

for ((run = 1; run <= runs; run++)); do
  clear lasting
  clear brief
  tell brief $((seconds * 1000))
  brief_rate
  alone=$rate
  record "calls of 1 ms alone" "messages/s" "$rate" ">= 700"
  clear brief
  # the long ones come first in the log
  tell lasting $((seconds * 40))
  tell brief $((seconds * 1000))
  before=$(handled lasting)
  brief_rate
  record "calls of 1 ms beside calls of 100 ms" "messages/s" "$rate"
  record "  / alone" "×" "$(ratio "$rate" "$alone")" ">= 0.4"
  record "  calls of 100 ms meanwhile" "messages/s" "$(ratio "$(($(handled lasting) - before))" "$seconds")"
  clear brief
  latency ask-brief 1
  record "asks, p99" "ms" "$p99" "<= 300"
  latency tell-brief 2
  record "tells with the ask behind each, p99" "ms" "$p99" "<= 300"
  # asks of a type wait behind its backlog
  clear lasting
  "$bindir/pgbench" -n -c 4 -T $((seconds + 2)) -f "$bench/pgbench/ask-lasting.sql" >/dev/null 2>&1 &
  askers=$!
  latency ask-brief 1
  record "asks beside asks of 100 ms, too, p99" "ms" "$p99" "<= 300"
  wait "$askers" || true
done
