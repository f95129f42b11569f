#!/bin/bash
# usage: run.sh [--long] [WORD ...]
#
# Searches the models of this folder exhaustively with spin and prints TAP. A search passes when it
# visited every state of its scope without a violation; one that was cut short (depth, memory, time)
# has shown nothing and fails. A mutant is a rule broken on purpose: it passes when the model's
# assertions catch it. WORD picks the runs whose line contains it; --long adds larger scopes.
#
# Environment: MODEL_JOBS (2) searches at a time, MODEL_MEMORY (1400) MB for each, MODEL_KEEP=1
# leaves the folder; a failed or caught run has its trace there: cd FOLDER && ./pan -r -C
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
models=$root/test/model

long=
[ "${1:-}" != --long ] || { long=1; shift; }
words=("$@")
jobs=${MODEL_JOBS:-2}
memory=${MODEL_MEMORY:-1400}
limit=600
[ -z "$long" ] || limit=14400

command -v spin >/dev/null || die "spin is missing: test/setup.sh model installs it"
work=$(mktemp -d "${TMPDIR:-/tmp}/shard-model.XXXXXX")
clean_up() {
  [ -z "$(jobs -pr)" ] || kill $(jobs -pr) 2>/dev/null || true
  if [ -n "${MODEL_KEEP:-}" ]; then say "kept: $work"; else rm -rf "$work"; fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Compiles a model with its settings and searches it. The output stays in the folder.
search() {  # folder, model, NAME=VALUE ...
  local folder=$1 model=$2 setting
  local flags=()
  shift 2
  for setting in "$@"; do flags+=("-D$setting"); done
  mkdir "$folder"
  cd "$folder"
  spin -a "${flags[@]}" "$models/$model.pml" >out 2>&1 || return 1
  # Only assertions and ends are looked at. No partial order reduction: all state is shared.
  gcc -w -O2 -DSAFETY -DNOREDUCE -DCOLLAPSE "-DMEMLIM=$memory" -o pan pan.c >>out 2>&1 || return 1
  timeout "$limit" ./pan -m1000000 -w24 >>out 2>&1
}

# One run, one line: kind is "search" or "mutant".
run() {  # kind, title, model, NAME=VALUE ...
  local kind=$1 title=$2 model=$3 folder states verdict='not ok' note
  folder=$(mktemp -u "$work/$model.XXXXXX")
  shift 3
  (search "$folder" "$model" "$@") || true
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$folder/out")
  if grep -q 'assertion violated' "$folder/out"; then
    note="violation: $(grep -m1 'assertion violated' "$folder/out")"
    [ "$kind" != mutant ] || verdict=ok
  elif ! grep -q 'errors: 0$' "$folder/out"; then
    note='the search did not finish'
  elif grep -qiE 'search depth too small|not completed|truncated|out of memory' "$folder/out"; then
    note='the search was cut short'
  else
    note='no violation'
    [ "$kind" != search ] || verdict=ok
  fi
  if [ "$verdict" = ok ]; then
    if [ "$kind" = search ]; then
      echo "ok - $title: $states states"
    else
      echo "ok - $model mutant $title is caught"
    fi
    [ -n "${MODEL_KEEP:-}" ] || rm -rf "$folder"
    return 0
  fi
  [ "$kind" = search ] || title="$model mutant $title is caught"
  printf 'not ok - %s\n# %s, after %s states\n' "$title" "$note" "${states:-no}"
  (cd "$folder" && [ ! -f "$model.pml.trail" ] || ./pan -r -C 2>/dev/null | head -80 | sed 's/^/#   /')
  grep -iE 'error' "$folder/out" | head -5 | sed 's/^/# /' || true
  return 1
}

failed=0
running=0
finish_one() {
  wait -n || failed=$((failed + 1))
  running=$((running - 1))
}
start() {
  local word
  for word in "${words[@]}"; do [[ "$*" == *"$word"* ]] || return 0; done
  [ "$running" -lt "$jobs" ] || finish_one
  run "$@" &
  running=$((running + 1))
}
scope() { start search "$@"; }                              # title, model, settings
mutant() { start mutant "$1" "$2" "MUTANT_$1" "${@:3}"; }   # name, model, settings
long() { [ -z "$long" ] || start search "$@"; }

# ---- the map: section 3 -----------------------------------------------------------------------

three="VOTERS=3 CHANGES=0"
scope "map: 3 voters, 4 ballots, a crash" map $three BALLOTS=3 LENGTH=4
scope "map: 3 ballots, joint change, a crash" map BALLOTS=2 LENGTH=3
scope "map: 3 ballots, joint change, values" map BALLOTS=2 LENGTH=4 CRASHES=0
scope "map: 4 ballots, joint change" map BALLOTS=3 LENGTH=3 CRASHES=0 VALUES=0
scope "map: 3 ballots, joint change, a restored voter" map BALLOTS=2 LENGTH=3 CRASHES=0 RESTORES=1
long "map: 3 ballots, joint change, values, a crash" map BALLOTS=2 LENGTH=4
long "map: 4 ballots, joint change, a restored voter" map BALLOTS=3 LENGTH=3 CRASHES=0 VALUES=0 RESTORES=1
long "map: 4 ballots, joint change, values" map BALLOTS=3 LENGTH=3 CRASHES=0

mutant promise_not_persisted map $three BALLOTS=2 LENGTH=2
mutant accept_below_promise map $three BALLOTS=2 LENGTH=3 CRASHES=0
mutant act_before_term map $three BALLOTS=2 LENGTH=3 CRASHES=0
mutant undecided_shown map $three BALLOTS=2 LENGTH=3 CRASHES=0
mutant least_adopted map $three BALLOTS=2 LENGTH=3 CRASHES=0
mutant sync_repeated map $three BALLOTS=2 LENGTH=3 CRASHES=0
mutant change_before_term map BALLOTS=3 LENGTH=3 CRASHES=0 VALUES=0
mutant new_majority_only map BALLOTS=2 LENGTH=4 CRASHES=0
mutant voters_not_reread map BALLOTS=2 LENGTH=4 CRASHES=0
mutant amnesiac_votes map $three BALLOTS=2 LENGTH=3 CRASHES=0 RESTORES=1

while [ "$running" -gt 0 ]; do finish_one; done
[ "$failed" = 0 ]
