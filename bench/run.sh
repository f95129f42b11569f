#!/usr/bin/env bash
# Runs the benchmarks against throw-away servers: bench/run.sh [SCENARIO…], default all.
# Settings and the meaning of every line: bench/README.md.
set -euo pipefail
bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$bench/lib.sh"
source "$bench/cluster.sh"

scenarios=("$@")
if ((${#scenarios[@]} == 0)); then
  scenarios=(A B C D E F L N O P T R Q H K M J)
fi
for scenario in "${scenarios[@]}"; do
  [[ -f $bench/scenarios/$scenario.sh ]] || die "no scenario \"$scenario\"; there are: $(
    cd "$bench/scenarios" && echo *.sh | sed 's/\.sh//g')"
done

prepare
start_results
for scenario in "${scenarios[@]}"; do
  case $scenario in
    R | Q | H | K | M) start_cluster ;;
    F | J) ;;  # begin by themselves
    *) start_server ;;
  esac
  source "$bench/scenarios/$scenario.sh"
  report
done
conclude
