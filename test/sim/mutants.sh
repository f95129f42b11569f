#!/bin/bash
# usage: mutants.sh [--list] [NAME ...]
#
# Proves that the simulator's checkers notice what they are there to notice: each mutant is the core or
# the model with one rule broken (SHARD_MUTANT_<name> in the sources), and must be caught within a
# bounded number of seeds. Only the files that know a mutant are compiled anew.
#
# Prints TAP. JOBS is the number of mutants that run at the same time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# name, program, most seeds, further options
mutants=$(sed '/^#/d; /^$/d' mutants.list)
[ "${1:-}" != --list ] || { awk '{print $1}' <<<"$mutants"; exit 0; }
if [ $# -gt 0 ]; then
  mutants=$(awk -v names=" $* " 'index(names, " " $1 " ")' <<<"$mutants")
fi

make -s SAN= >/dev/null
work=$(mktemp -d "${TMPDIR:-/tmp}/shard-sim-mutants.XXXXXX")
trap 'rm -rf "$work"' EXIT

run_one() {  # number, name, program, seeds, options
  local number=$1 name=$2 program=$3 seeds=$4 log=$work/$2.log
  shift 4
  if ! grep -rqlw "SHARD_MUTANT_$name" --include='*.[ch]' ../../extension/core . ; then
    echo "not ok $number - mutant $name is in no source"
  elif ! make -s SAN= MUTANT="$name" OUT="$work/$name" "$work/$name/$program" >"$log" 2>&1; then
    echo "not ok $number - mutant $name does not build"
    sed 's/^/# /' "$log" | tail -20
  elif "$work/$name/$program" --expect-violation --no-shrink --seeds "$seeds" "$@" >"$log" 2>&1; then
    echo "ok $number - mutant $name is caught: $(sed -n 's/^# seed/seed/p' "$log" | head -1 | cut -c1-110)"
  else
    echo "not ok $number - mutant $name is not caught in $seeds seeds"
    tail -3 "$log" | sed 's/^/# /'
  fi
}

count=$(grep -c . <<<"$mutants")
echo "1..$count"
number=0
running=0
while read -r name program seeds options; do
  number=$((number + 1))
  # shellcheck disable=SC2086
  run_one "$number" "$name" "$program" "$seeds" $options >"$work/$number.tap" 2>&1 &
  running=$((running + 1))
  if [ "$running" -ge "${JOBS:-$(nproc)}" ]; then wait -n; running=$((running - 1)); fi
done <<<"$mutants"
wait
for ((i = 1; i <= count; i++)); do cat "$work/$i.tap"; done
! grep -q '^not ok' "$work"/*.tap
