#!/usr/bin/env bash
# Runs the benchmarks against a throw-away server: bench/run.sh [SCENARIO…], default all.
# Settings and the meaning of every line: bench/README.md.
set -euo pipefail
bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$bench/lib.sh"

scenarios=("$@")
if ((${#scenarios[@]} == 0)); then
  scenarios=(A B C D E L N)
fi
for scenario in "${scenarios[@]}"; do
  [[ -f $bench/scenarios/$scenario.sh ]] || die "no scenario \"$scenario\"; there are: $(
    cd "$bench/scenarios" && echo *.sh | sed 's/\.sh//g')"
done

start_server
start_results
for scenario in "${scenarios[@]}"; do
  source "$bench/scenarios/$scenario.sh"
  report
done
conclude
