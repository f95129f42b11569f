#!/bin/bash
# usage: mutants.sh [--list] [--few | NAME ...]
#
# Proves that the checkers of the simulator notice what they are there to notice: each mutant is the
# core or the model with one rule broken (SHARD_MUTANT_<name> in the sources), and must be caught within
# a bounded number of seeds. Only the files that know a mutant are compiled anew. So that being caught
# means something, each judge first runs without a mutant, with the same options and seeds.
#
# All of them take long: --few takes one for each judge, which shows that none of these passes whatever is broken.
#
# Prints TAP. JOBS is the number of mutants that run at the same time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

mutants=$(sed '/^#/d; /^$/d' mutants.list)
[ "${1:-}" != --list ] || { awk '{print $1}' <<<"$mutants"; exit 0; }
if [ "${1:-}" = --few ]; then
  mutants=$(awk '!seen[$2]++' <<<"$mutants")
elif [ $# -gt 0 ]; then
  mutants=$(awk -v names=" $* " 'index(names, " " $1 " ")' <<<"$mutants")
fi
jobs=${JOBS:-$(nproc)}

make -s -j "$jobs"
work=$(mktemp -d "${TMPDIR:-/tmp}/shard-sim-mutants.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The program of a judge: a unit test, or a mode of the simulator.
program_of() {  # judge
  case $1 in
    *_test) echo "$1" ;;
    *) echo sim ;;
  esac
}

# A unit test catches a mutant by a failed test or assertion, not by ending in any other way; the
# simulator by finding a violation, which it is told to expect.
caught() {  # log, build, judge, seeds, options
  local log=$1 program=$2/$(program_of "$3") judge=$3 seeds=$4
  shift 4
  case $judge in
    *_test)
      ! timeout 100 "$program" >"$log" 2>&1 && grep -qE '^not ok|Assertion .* failed|^TRAP' "$log"
      ;;
    *)
      timeout 300 "$program" --mode "$judge" --expect-violation --no-shrink --seeds "$seeds" "$@" \
        >"$log" 2>&1
      ;;
  esac
}

# The same judges find nothing in what is sound.
sound() {  # number, judge, seeds, options
  local number=$1 judge=$2 seeds=$3 log=$work/sound-$1.log
  shift 3
  local command=("build/sound/$(program_of "$judge")")
  [[ $judge == *_test ]] || command+=(--mode "$judge" --no-shrink --seeds "$seeds" "$@")
  if timeout 600 "${command[@]}" >"$log" 2>&1; then
    echo "ok $number - without a mutant $judge${*:+ $*} finds nothing"
  else
    echo "not ok $number - without a mutant $judge${*:+ $*} finds something"
    grep -E '^(# )?seed|^not ok' "$log" | head -5 | sed 's/^/# /' || tail -3 "$log" | sed 's/^/# /'
  fi
}

run_one() {  # number, name, judge, seeds, options
  local number=$1 name=$2 judge=$3 seeds=$4 log=$work/$2.log
  shift 4
  if ! grep -rqlw "SHARD_MUTANT_$name" --include='*.[ch]' ../../extension/core . ; then
    echo "not ok $number - mutant $name is in no source"
  elif ! make -s MUTANT="$name" "build/$name/$(program_of "$judge")" >"$log" 2>&1; then
    echo "not ok $number - mutant $name does not build"
    tail -20 "$log" | sed 's/^/# /'
  elif caught "$log" "build/$name" "$judge" "$seeds" "$@"; then
    echo "ok $number - mutant $name is caught by $judge"
    grep -m1 -E '^(# )?seed|^not ok' "$log" | cut -c1-150 | sed 's/^\(# \)\?/# /' || true
  else
    echo "not ok $number - mutant $name is not caught by $judge in $seeds seeds"
    tail -3 "$log" | sed 's/^/# /'
  fi
  rm -rf "build/$name"
}

# Each judge with each of its options, and as many seeds as any mutant is given with them.
judges=$(awk '{ judge = $2; seeds = $3; $1 = $2 = $3 = ""; sub(/^ +/, "")
                key = judge " " $0; if (seeds > most[key]) most[key] = seeds }
              END { for (key in most) { split(key, part, " "); options = key
                      sub(/^[^ ]+ ?/, "", options); print part[1], most[key], options } }' <<<"$mutants" |
  sort)
mapfile -t tests < <(awk '$1 ~ /_test$/ { print "build/sound/" $1 }' <<<"$judges")
[ ${#tests[@]} = 0 ] || make -s -j "$jobs" "${tests[@]}"

count=$(($(grep -c . <<<"$judges") + $(grep -c . <<<"$mutants")))
echo "1..$count"
number=0
one_more() {
  number=$((number + 1))
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
}
while read -r judge seeds options; do
  one_more
  # shellcheck disable=SC2086
  sound "$number" "$judge" "$seeds" $options >"$work/$number.tap" 2>&1 &
done <<<"$judges"
while read -r name judge seeds options; do
  one_more
  # shellcheck disable=SC2086
  run_one "$number" "$name" "$judge" "$seeds" $options >"$work/$number.tap" 2>&1 &
done <<<"$mutants"
wait
for ((i = 1; i <= count; i++)); do cat "$work/$i.tap"; done
! grep -q '^not ok' "$work"/*.tap
