#!/bin/bash
# usage: run.sh [--keep] [SECONDS]
#
# Fuzzes decoders and nodes for so many seconds (60), all programs side by side: first with the inputs of
# corpus/, then with what libFuzzer makes of them. Prints TAP. An input that breaks a program stays in
# build/, is printed, and is run again by "build/PROGRAM FILE".
#
# --keep: afterwards corpus/ becomes the fewest inputs that reach all code that was reached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

keep=
if [ "${1:-}" = --keep ]; then keep=1; shift; fi
seconds=${1:-60}
programs=(control packet node)
# an input takes long there: it finds something in hours, not in a minute
[ "$seconds" -lt 600 ] || programs+=(peer)
jobs=$(nproc)

make -s -j "$jobs"
work=$(mktemp -d "${TMPDIR:-/tmp}/shard-fuzz.XXXXXX")
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

fuzz() {  # program
  local program=$1
  mkdir -p "$work/$program"
  exec "build/$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1024 -max_len=4096 \
    -print_final_stats=1 -artifact_prefix="build/$program-" "$work/$program" "corpus/$program"
}

tell() {  # number, program, exit status
  local log=$work/$2.log runs file
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  if [ "$3" = 0 ]; then
    echo "ok $1 - fuzz: $2 took ${runs:-some} inputs"
    return
  fi
  echo "not ok $1 - fuzz: $2"
  grep -vE '^(#[0-9]|INFO|NEW_FUNC|[[:space:]]+NEW_FUNC|stat::)' "$log" | head -60 | sed 's/^/# /'
  file=$(sed -n 's/.*Test unit written to \([^ ]*\).*/\1/p' "$log" | head -1)
  [ -z "$file" ] || { echo "# $file:"; base64 "$file" | sed 's/^/# /'; }
}

echo "1..${#programs[@]}"
for program in "${programs[@]}"; do
  fuzz "$program" >"$work/$program.log" 2>&1 &
  pids+=($!)
done
failed=0
for i in "${!programs[@]}"; do
  status=0
  wait "${pids[$i]}" || status=$?
  tell $((i + 1)) "${programs[$i]}" "$status"
  [ "$status" = 0 ] || failed=1
done
if [ -n "$keep" ] && [ "$failed" = 0 ]; then
  for program in "${programs[@]}"; do
    mkdir "$work/fewest"
    "build/$program" -use_counters=0 -set_cover_merge=1 -max_len=2048 "$work/fewest" \
      "corpus/$program" "$work/$program" >/dev/null 2>&1
    rm -f "corpus/$program"/*
    mv "$work/fewest"/* "corpus/$program/"
    rmdir "$work/fewest"
    echo "# corpus/$program: $(find "corpus/$program" -type f | wc -l) inputs, $(du -sb "corpus/$program" | cut -f1) bytes"
  done
fi
exit "$failed"
