#!/usr/bin/env bash
# Where the time goes in scenario A: profiles the sender and the region workers, and prints the 40
# hottest symbols of each. Arguments: HOW TYPE ENTITIES as for "batched" in lib.sh (default:
# tell_many counter 1000).
set -euo pipefail
bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$bench/lib.sh"
command -v perf >/dev/null || die "perf is missing (Debian: linux-perf)"

# perf chooses the software clock by itself where the hardware has no counters.
profile() { # NAME PIDS
  perf record -q -p "$2" -o "$temp/$1.perf" &
  recorders+=($!)
}

print_profile() { # NAME TITLE
  printf '\n%s (event: %s)\n' "$2" "$(perf evlist -i "$temp/$1.perf" | head -n 1)"
  perf report -i "$temp/$1.perf" --stdio -q --no-children --sort symbol,dso 2>/dev/null |
    awk 'NF && n++ < 40 { sub(/( +-)* *$/, ""); print }'
}

start_server
open_session
in_session 'SELECT 1;'
sender=$(sql "SELECT pid FROM pg_stat_activity WHERE application_name = 'session'")
workers=$(sql "SELECT string_agg(DISTINCT pid::text, ',') FROM shard_stat_workers")

recorders=()
profile sender "$sender"
profile workers "$workers"
in_session "CALL bench.send('${1:-tell_many}', '${2:-counter}', $messages, ${3:-1000}, 'e');
  SELECT bench.drain();"
kill -INT "${recorders[@]}"
# Being interrupted is how perf ends.
wait "${recorders[@]}" || true
close_session

print_profile sender "Sender"
print_profile workers "Region workers"
