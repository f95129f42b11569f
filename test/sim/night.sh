#!/bin/bash
# usage: night.sh
#
# Runs histories for HOURS (8) on JOBS (all) cores, block after block, each from a random seed that is
# printed. Stops at the first violation, made as small as possible, with the command that brings it
# back. SAN=1: under the sanitizers; slower by far.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

hours=${HOURS:-8}
jobs=${JOBS:-$(nproc)}
build=build/sound${SAN:+-san}

make -s -j "$jobs" SAN="${SAN:-}"
end=$(awk -v hours="$hours" 'BEGIN { printf "%d", hours * 3600 }')
work=$(mktemp -d "${TMPDIR:-/tmp}/shard-sim-night.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Blocks: mode, histories, options. About half a minute each.
blocks=("whole 800" "whole 800" "whole 400 --leased" "whole 400 --liveness" "whole 400 --storm"
  "whole 400 --journal" "control 3000" "flow 4000" "flow 4000 --returns"
  "life 4000"
  "copies 2000")

# A core's night. Others end after the block that they are at when one has failed.
run_core() {  # number
  local log=$work/$1.log mode seeds options seed
  while true; do
    for block in "${blocks[@]}"; do
      [ "$SECONDS" -lt "$end" ] && [ ! -e "$work/failed" ] || return 0
      read -r mode seeds options <<<"$block"
      seed=$((SRANDOM * 65536 + SRANDOM % 65536))
      echo "# core $1: $mode${options:+ $options} --seed $seed --seeds $seeds"
      # shellcheck disable=SC2086
      if "$build/sim" --mode "$mode" --seed "$seed" --seeds "$seeds" $options >"$log" 2>&1; then
        grep '^# [0-9]' "$log" >>"$work/$1.done" || true
      elif mkdir "$work/failed" 2>/dev/null; then
        { echo "$build/sim --mode $mode${options:+ $options} --seed $seed"; cat "$log"; } >"$work/verdict"
      fi
    done
  done
}

for ((core = 1; core <= jobs; core++)); do run_core "$core" & done
wait
cat "$work"/*.done 2>/dev/null | awk '{ n += $2 } END { printf "# %d histories in whole blocks\n", n }'
[ -e "$work/failed" ] || { echo "ok - nothing was broken in $hours hours"; exit 0; }
echo "not ok - a promise is broken"
cat "$work/verdict"
exit 1
