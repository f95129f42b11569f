#!/bin/bash
# usage: run.sh [WHOLE [CONTROL [FLOW [LIFE [COPIES]]]]]
#
# Runs histories: of whole clusters (240), of the control plane alone (600), of the data plane alone (500), of the life of
# entities (600) and of copies of shards (200); a sixth as many as of whole clusters have nodes that host their types no
# more for a while, half as many as of the control plane a type that comes and goes, and as many somebody who speaks in
# members' names; a third as many coordinators that die at a step of a leave; a seventh has a type with replicas. The first quarter of each
# mode, but none of those with options, runs under the address and undefined-behaviour sanitizers, which take five times as long; see night.sh for more.
# Prints TAP; what fails is made small and printed with the seed that brings it back.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

whole=${1:-240}
control=${2:-600}
flow=${3:-500}
life=${4:-600}
copies=${5:-200}
jobs=$(nproc)
parts=4

make -s -j "$jobs" SAN=1
make -s -j "$jobs"
work=$(mktemp -d "${TMPDIR:-/tmp}/shard-sim.XXXXXX")
trap 'rm -rf "$work"' EXIT

run_part() {  # number, mode, first seed, seeds, options
  local log=$work/$1.log program=build/sound/sim
  [ "$1" -gt 5 ] || program=build/sound-san/sim
  if timeout 1200 "$program" --mode "$2" --seed "$3" --seeds "$4" "${@:5}" >"$log" 2>&1; then
    echo "ok $1 - $2 ${*:5}: $4 histories from seed $3"
    grep '^# [0-9]' "$log" || true
  else
    echo "not ok $1 - $2 ${*:5}: histories from seed $3"
    tail -60 "$log" | sed 's/^/# /'
  fi
}

echo "1..$((5 * parts + 6))"
number=0
for ((part = 0; part < parts; part++)); do
  for mode in whole control flow life copies; do
    case $mode in whole) seeds=$whole ;; control) seeds=$control ;; flow) seeds=$flow ;; life) seeds=$life ;; copies) seeds=$copies ;; esac
    seeds=$(((seeds + parts - 1) / parts))
    number=$((number + 1))
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    run_part "$number" "$mode" $((1 + part * seeds)) "$seeds" >"$work/$number.tap" &
  done
done
number=$((number + 1))
run_part "$number" whole 1 $(((whole + 5) / 6)) --only unhost,move,pin,rebalance,crash,control_crash,partition,leave,join \
  >"$work/$number.tap" &
number=$((number + 1))
run_part "$number" control 1 $(((control + 1) / 2)) --only types,crash,control_crash,partition,down >"$work/$number.tap" &
number=$((number + 1))
run_part "$number" control 1 $(((control + 1) / 2)) --only lie,crash,control_crash,partition,move >"$work/$number.tap" &
number=$((number + 1))
run_part "$number" control 1 $(((control + 2) / 3)) --only headless,join >"$work/$number.tap" &
number=$((number + 1))
run_part "$number" control 80001 $(((control + 6) / 7)) --journal >"$work/$number.tap" &
number=$((number + 1))
run_part "$number" control 90001 $(((control + 6) / 7)) --replicas 1 >"$work/$number.tap" &
wait
for ((i = 1; i <= number; i++)); do cat "$work/$i.tap"; done
! grep -q '^not ok' "$work"/*.tap
