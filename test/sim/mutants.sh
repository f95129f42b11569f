#!/bin/bash
# usage: mutants.sh [--list] [NAME ...]
#
# Proves that the checkers of the simulator notice what they are there to notice: each mutant is the
# core or the model with one rule broken (SHARD_MUTANT_<name> in the sources), and must be caught within
# a bounded number of seeds. Only the files that know a mutant are compiled anew.
#
# Prints TAP. JOBS is the number of mutants that run at the same time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

mutants=$(sed '/^#/d; /^$/d' mutants.list)
[ "${1:-}" != --list ] || { awk '{print $1}' <<<"$mutants"; exit 0; }
if [ $# -gt 0 ]; then
  mutants=$(awk -v names=" $* " 'index(names, " " $1 " ")' <<<"$mutants")
fi
jobs=${JOBS:-$(nproc)}

make -s -j "$jobs"
work=$(mktemp -d "${TMPDIR:-/tmp}/shard-sim-mutants.XXXXXX")
trap 'rm -rf "$work"' EXIT

# A unit test catches a mutant by failing, a simulator by finding a violation, which it is told to expect.
caught() {  # program, seeds, options
  local program=$1 seeds=$2
  shift 2
  case $program in
    *_test) ! timeout 100 "$program" ;;
    *) timeout 100 "$program" --expect-violation --no-shrink --seeds "$seeds" "$@" ;;
  esac
}

run_one() {  # number, name, program, seeds, options
  local number=$1 name=$2 program=$3 seeds=$4 log=$work/$2.log
  shift 4
  if ! grep -rqlw "SHARD_MUTANT_$name" --include='*.[ch]' ../../extension/core . ; then
    echo "not ok $number - mutant $name is in no source"
  elif ! make -s MUTANT="$name" "build/$name/$program" >"$log" 2>&1; then
    echo "not ok $number - mutant $name does not build"
    tail -20 "$log" | sed 's/^/# /'
  elif caught "build/$name/$program" "$seeds" "$@" >"$log" 2>&1; then
    echo "ok $number - mutant $name is caught by $program"
    grep -m1 -E '^(# )?seed|^not ok' "$log" | cut -c1-150 | sed 's/^\(# \)\?/# /' || true
  else
    echo "not ok $number - mutant $name is not caught by $program in $seeds seeds"
    tail -3 "$log" | sed 's/^/# /'
  fi
  rm -rf "build/$name"
}

count=$(grep -c . <<<"$mutants")
echo "1..$count"
number=0
while read -r name program seeds options; do
  number=$((number + 1))
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
  # shellcheck disable=SC2086
  run_one "$number" "$name" "$program" "$seeds" $options >"$work/$number.tap" 2>&1 &
done <<<"$mutants"
wait
for ((i = 1; i <= count; i++)); do cat "$work/$i.tap"; done
! grep -q '^not ok' "$work"/*.tap
