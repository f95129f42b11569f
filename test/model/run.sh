#!/bin/bash
# usage: run.sh [--long] [WORD ...]
#
# Searches the models of this folder exhaustively with spin and prints TAP. A search passes when it
# visited every state of its scope without a violation; one that was cut short (depth, memory, time)
# has shown nothing and fails. A mutant is a rule broken on purpose: it passes when the model's
# assertions catch it. WORDs pick the runs whose line contains one; --long adds larger scopes.
#
# Environment: MODEL_JOBS (2) searches at a time, MODEL_MEMORY (1400; --long: 6000) MB for each,
# MODEL_KEEP=1 leaves the folder, which has the steps of each violation in a file "steps".
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
models=$root/test/model

long=
[ "${1:-}" != --long ] || { long=1; shift; }
words=("$@")
jobs=${MODEL_JOBS:-2}
memory=1400
limit=600
MODEL_KEEP=${MODEL_KEEP:-}
[ -z "$long" ] || { memory=6000; limit=14400; }
memory=${MODEL_MEMORY:-$memory}

command -v spin >/dev/null || die "spin is missing: test/setup.sh model installs it"
work=$(mktemp -d "${TMPDIR:-/tmp}/shard-model.XXXXXX")
clean_up() {
  [ -z "$(jobs -pr)" ] || kill $(jobs -pr) 2>/dev/null || true
  if [ -n "$MODEL_KEEP" ]; then say "kept: $work"; else rm -rf "$work"; fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Compiles a model with its settings and searches it. The output stays in the folder.
search() {  # kind, folder, model, NAME=VALUE ...
  local kind=$1 folder=$2 model=$3 setting
  local flags settings=()
  shift 3
  for setting in "$@"; do settings+=("-D$setting"); done
  mkdir "$folder"
  cd "$folder"
  spin -a "${settings[@]}" "$models/$model.pml" >out 2>&1 || return 1
  # Only assertions and ends are looked at. No partial order reduction: all state is shared. A
  # violation is found soon, so that compiling a mutant well would cost more than it saves.
  flags=(-DSAFETY -DNOREDUCE "-DMEMLIM=$memory" ${long:+-DCOLLAPSE})
  if [ "$kind" = mutant ]; then flags+=(-O0); else flags+=(-O2); fi
  # So do the searches of copies, which are short: most of their source is steps.
  [ -n "$long" ] || [[ $model != replicas* ]] || flags+=(-O1)
  gcc -w "${flags[@]}" -o pan pan.c >>out 2>&1 || return 1
  # In the foreground, so that who ends this run ends the search, too.
  timeout --foreground "$limit" ./pan -m1000000 -w24 >>out 2>&1
  [ ! -f "$model.pml.trail" ] || [ "$kind$MODEL_KEEP" = mutant ] || steps "$model" "${settings[@]}"
}

# What happened, in the words of the model.
steps() {  # model, flags
  local model=$1
  shift
  spin "$@" -t -k "$model.pml.trail" "$models/$model.pml" | sed 's/^ *//' | sed '/^#processes:/,$d' >steps 2>&1
}

# One run, one line: kind is "search" or "mutant".
run() {  # kind, title, model, NAME=VALUE ...
  local kind=$1 title=$2 model=$3 folder states verdict='not ok' note
  folder=$(mktemp -u "$work/$model.XXXXXX")
  shift 3
  (search "$kind" "$folder" "$model" "$@") || true
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
    [ -n "$MODEL_KEEP" ] || rm -rf "$folder"
    return 0
  fi
  [ "$kind" = search ] || title="$model mutant $title is caught"
  printf 'not ok - %s\n# %s, after %s states\n' "$title" "$note" "${states:-no}"
  [ ! -f "$folder/steps" ] || head -80 "$folder/steps" | sed 's/^/#   /'
  grep -iE 'error' "$folder/out" | head -5 | sed 's/^/# /' || true
  return 1
}

failed=0
running=0
started=0
finish_one() {
  wait -n || failed=$((failed + 1))
  running=$((running - 1))
}
start() {
  local word wanted=${#words[@]}
  for word in "${words[@]}"; do [[ "$*" != *"$word"* ]] || wanted=0; done
  [ "$wanted" = 0 ] || return 0
  started=$((started + 1))
  [ "$running" -lt "$jobs" ] || finish_one
  run "$@" &
  running=$((running + 1))
}
scope() { start search "$@"; }                              # title, model, settings
mutant() { start mutant "$1" "$2" "MUTANT_$1" "${@:3}"; }   # name, model, settings
long() { [ -z "$long" ] || start search "$@"; }

# ---- the map: section 3 -----------------------------------------------------------------------

three="VOTERS=3 CHANGES=0"
scope "map: 3 ballots, joint change, a crash" map BALLOTS=2 LENGTH=3
scope "map: 3 voters, 4 ballots, a crash" map $three BALLOTS=3 LENGTH=4
long "map: 4 ballots, joint change" map BALLOTS=3 LENGTH=3 CRASHES=0 VALUES=0
scope "map: 3 ballots, joint change, a restored voter" map BALLOTS=2 LENGTH=3 CRASHES=0 RESTORES=1
long "map: 3 ballots, joint change, longer, a crash" map BALLOTS=2 LENGTH=4
long "map: 4 ballots, joint change, a restored voter" map BALLOTS=3 LENGTH=3 CRASHES=0 VALUES=0 RESTORES=1
long "map: 4 ballots, joint change, values" map BALLOTS=3 LENGTH=3 CRASHES=0

mutant promise_not_persisted map $three BALLOTS=2 LENGTH=2
mutant accept_below_promise map $three BALLOTS=2 LENGTH=3 CRASHES=0
mutant act_before_term map $three BALLOTS=2 LENGTH=3 CRASHES=0
mutant undecided_shown map $three BALLOTS=2 LENGTH=3 CRASHES=0
mutant least_adopted map $three BALLOTS=2 LENGTH=3 CRASHES=0
mutant sync_repeated map $three BALLOTS=2 LENGTH=3 CRASHES=0
mutant sync_without_promise map $three BALLOTS=3 LENGTH=3 CRASHES=0
mutant fetch_unchecked map $three BALLOTS=3 LENGTH=3 CRASHES=0
mutant change_before_term map BALLOTS=3 LENGTH=3 CRASHES=0 VALUES=0
mutant new_majority_only map BALLOTS=2 LENGTH=3 CRASHES=0
mutant voters_not_reread map BALLOTS=2 LENGTH=3 CRASHES=0
mutant amnesiac_votes map $three BALLOTS=2 LENGTH=3 CRASHES=0 RESTORES=1

# ---- the log: D4 and D9 ----------------------------------------------------------------------

scope "log: 3 segments, 5 rows, the worker starts anew" log
long "log: 3 segments, 7 rows, 2 starts" log ROWS=7 STARTS=2
long "log: 4 segments, 7 rows, a start" log SEGMENTS=4 ROWS=7

mutant list_believed log
mutant file_unseen log
mutant unpassed_emptied log
mutant places_of_another_file log
mutant places_of_no_segment log

# ---- routing by re-send: sections 8 and 9 -----------------------------------------------------

faults="MOVES=3 ABORTS=1 CRASHES=1"     # several settings, to be split
scope "resend: 3 moves, an abort, a crash" resend $faults
scope "resend: the same with floors" resend $faults FLOORS=1
scope "resend: a contended entity, 2 moves, an abort, a crash" resend MOVES=2 ABORTS=1 CRASHES=1 DEFERS=1
scope "resend: 3 messages, 2 moves, an abort, a crash" resend KS=3 MOVES=2 ABORTS=1 CRASHES=1
scope "resend: the first home tells" resend KS=0 K0=2 $faults DEFERS=1
scope "resend: the other host tells" resend KS=0 K1=2 $faults DEFERS=1
scope "resend: two origins" resend KS=1 K0=1 $faults
scope "resend: three hosts" resend HOSTS=3 KS=1 $faults
long "resend: three hosts, two messages" resend HOSTS=3 KS=2 $faults QUEUE=14
long "resend: 3 moves, an abort, a crash, floors, a contended entity" resend $faults FLOORS=1 DEFERS=1 QUEUE=14
long "resend: two origins, two messages each" resend KS=2 K0=2 MOVES=2 ABORTS=1 CRASHES=1 QUEUE=14
long "resend: two aborts, two crashes" resend MOVES=4 ABORTS=2 CRASHES=2 QUEUE=14
long "resend: everybody tells" resend KS=1 K0=1 K1=1 $faults

mutant take_any_tag resend MOVES=2
mutant no_resend resend MOVES=2
mutant no_resend_same_node resend MOVES=2 ABORTS=1
mutant import_without_marks resend MOVES=2
mutant base_not_merged resend MOVES=2
mutant marks_at_seal resend MOVES=2 CRASHES=1
mutant unseal_same_epoch resend MOVES=2 ABORTS=1
mutant newer_first resend MOVES=2
mutant volatile_route resend MOVES=2 CRASHES=1
mutant own_queue_unchecked resend MOVES=2 KS=0 K0=2
mutant stash_left resend MOVES=2 DEFERS=1
mutant refused_moves_mark resend MOVES=2 ABORTS=1
mutant rebuild_any_tag resend MOVES=2 CRASHES=1
mutant rotation_without_marks resend MOVES=2 CRASHES=1
mutant row_above_known_refused resend MOVES=2
mutant floor_at_once resend MOVES=2 ABORTS=1 FLOORS=1
mutant floor_of_heard resend KS=1 MOVES=2 CRASHES=1
mutant import_repeated resend MOVES=2
mutant older_fact_applied resend MOVES=2
mutant equal_epoch_activates resend MOVES=1
mutant delete_without_epoch resend MOVES=2
mutant seal_volatile resend MOVES=1 CRASHES=1
mutant rebuild_while_stopping resend MOVES=2 ABORTS=1 CRASHES=1

# ---- the stream: section 7 --------------------------------------------------------------------

crashes="ORIGIN_CRASHES=1 RECEIVER_CRASHES=1"
scope "stream: zombie receives, both crash" stream $crashes CLOSES=2
long "stream: an older origin writes first, after a crash" stream ORIGIN_RESTORES=1 ORIGIN_CRASHES=1
scope "stream: an older receiver, after a crash" stream RECEIVER_RESTORES=1 RECEIVER_CRASHES=1
scope "stream: both put back" stream ORIGIN_RESTORES=1 RECEIVER_RESTORES=1
long "stream: both put back, both crash" stream ORIGIN_RESTORES=1 RECEIVER_RESTORES=1 $crashes
long "stream: two copies of the origin" stream ROWS=3 ORIGIN_RESTORES=2 $crashes

mutant position_after_commit stream ROWS=3
mutant gap_check_dropped stream ROWS=3
mutant greater_or_equal stream ROWS=3
mutant position_not_compared stream ROWS=3
mutant lineage_by_number stream ROWS=3 ORIGIN_RESTORES=1
mutant incarnation_counted_locally stream ROWS=3 ORIGIN_RESTORES=1 ORIGIN_CRASHES=1
mutant acked_not_compared stream ROWS=3 RECEIVER_RESTORES=1
mutant ack_before_gate stream ROWS=3 RECEIVER_CRASHES=1
mutant send_before_gate stream ROWS=3 ORIGIN_CRASHES=1
mutant fence_dropped stream ROWS=3 ORIGIN_RESTORES=1
mutant truncate_before_durable stream ROWS=3 ORIGIN_CRASHES=1 RECEIVER_RESTORES=1
mutant next_not_raised stream ROWS=3

# ---- copies of a shard: replicas => k, a plan ---------------------------------------------------

abc="START=7"           # three copies; else A and B
faults="SUSPICIONS=1 LOSSES=1"
scope "replicas: two origins, a suspicion, a crash, a loss" replicas SECOND=1 $faults CRASHES=1
scope "replicas: three copies, a suspicion, a crash, 2 losses" replicas $abc SUSPICIONS=1 CRASHES=1 LOSSES=2
scope "replicas: three copies, one put out, the same with one loss" replicas $abc MIN=2 $faults CRASHES=1 SHRINKS=1
scope "replicas: a copy grows, a suspicion, a crash, a loss" replicas $faults CRASHES=1 GROWTHS=1
scope "replicas: a move, a suspicion, a loss" replicas $faults MOVES=1
scope "replicas: three copies, a suspect is taken out, a loss" replicas $abc $faults SUSPECT_OUT=1
long "replicas: three copies, 2 messages, a suspicion, a loss" replicas $abc FIRST=2 $faults
long "replicas: three copies, 2 suspicions, a loss" replicas $abc SUSPICIONS=2 LOSSES=1
long "replicas: three copies, 2 messages, 2 losses" replicas $abc FIRST=2 LOSSES=2
long "replicas: 2 messages, a copy grows, a suspicion, a loss" replicas FIRST=2 $faults GROWTHS=1
long "replicas: a copy is put out and grows again" replicas $abc MIN=2 SUSPICIONS=1 CRASHES=1 SHRINKS=1 GROWTHS=1
long "replicas: a move, a suspicion, a crash, a loss" replicas $faults CRASHES=1 MOVES=1
long "replicas: a move, a copy grows, a suspicion, a loss" replicas $faults GROWTHS=1 MOVES=1
long "replicas: 2 messages, a move, a suspicion, a loss" replicas FIRST=2 $faults MOVES=1
long "replicas: two origins, a move, a suspicion, a loss" replicas SECOND=1 $faults MOVES=1

mutant gate_without_acks replicas LOSSES=1
mutant marks_before_release replicas CRASHES=1
mutant ship_before_flush replicas SECOND=1 CRASHES=1
mutant below_promise_taken replicas $abc SUSPICIONS=1
mutant shrink_before_decided replicas SHRINKS=1
mutant learner_required_late replicas GROWTHS=1
mutant growth_without_bound replicas GROWTHS=1 CRASHES=1
mutant learner_given_up replicas GROWTHS=1
mutant append_by_position replicas SUSPICIONS=1
mutant suspect_put_out replicas SUSPICIONS=1 LOSSES=1
mutant applied_before_release replicas $abc SUSPICIONS=1
mutant copy_of_unreleased replicas SUSPICIONS=1 GROWTHS=1
mutant tail_kept replicas SUSPICIONS=1
mutant old_tags_taken replicas FIRST=2 SUSPICIONS=2
mutant old_home_forwards replicas FIRST=2 SUSPICIONS=1
mutant no_resend replicas SUSPICIONS=1
mutant seal_not_gated replicas SUSPICIONS=1 MOVES=1
mutant unsealed_at_equal_epoch replicas $abc MIN=2 SHRINKS=1 MOVES=1
mutant local_output_not_gated replicas SUSPICIONS=1
mutant marks_not_in_record replicas SUSPICIONS=1
mutant take_over_by_learner replicas SUSPICIONS=1 GROWTHS=1
mutant hello_counts replicas SUSPICIONS=2
mutant shrink_below_min replicas MIN=2 SHRINKS=1 LOSSES=1
mutant start_without_fact replicas CRASHES=1 GROWTHS=1
mutant proposal_outlives replicas CRASHES=1 GROWTHS=1
mutant acks_outlive_copy replicas $abc SHRINKS=1 GROWTHS=1
mutant learner_behind replicas $abc SHRINKS=1 GROWTHS=1
mutant records_of_older_epochs_refused replicas $abc SUSPICIONS=1

# ---- what stands around a take-over: outputs, inputs, lapses, copies in pieces, rewinds ----------

scope "replicas: outputs, 2 suspicions, a crash, a move" replicas_outputs SUSPICIONS=2 RECORDS=4
scope "replicas: outputs to a shard here, a suspicion, a crash, a loss, a move" replicas_outputs LOSSES=1 RECORDS=4 DEST=0
scope "replicas: outputs to a replicated shard, a suspicion, a crash, a take-over" replicas_outputs RECORDS=4 DEST_REPLICATED=1
long "replicas: outputs, 2 suspicions, a crash, 2 moves" replicas_outputs SUSPICIONS=2 RECORDS=4 MOVES=2
long "replicas: outputs to a replicated shard, 2 suspicions, 2 take-overs" replicas_outputs SUSPICIONS=2 RECORDS=4 MOVES=2 DEST_REPLICATED=1
long "replicas: 3 outputs, 2 suspicions, a crash, a loss, a move" replicas_outputs TURNS=3 SUSPICIONS=2 RECORDS=4 LOSSES=1
scope "replicas: 3 inputs, 4 suspicions, 2 crashes" replicas_inputs ITEMS=3 SUSPICIONS=4 CRASHES=2
long "replicas: 3 inputs, 7 suspicions, 4 crashes" replicas_inputs ITEMS=3 SUSPICIONS=7 CRASHES=4
scope "replicas: a lapse, a suspicion, a crash" replicas_lapse
long "replicas: 2 lapses, a suspicion, a crash" replicas_lapse LEASES=2
long "replicas: a lapse, 3 messages, a suspicion, 2 crashes" replicas_lapse MESSAGES=3 CRASHES=2
scope "replicas: a copy in pieces, a crash, a loss" replicas_copy
scope "replicas: a copy in pieces of a home alone, marks, a crash" replicas_copy ALONE=1 MARKS=1
long "replicas: a copy in pieces, marks, a crash, a loss" replicas_copy MARKS=1
long "replicas: a copy in pieces of a home alone, 2 crashes" replicas_copy ALONE=1 CRASHES=2
long "replicas: a copy in pieces, 4 turns, a crash, a loss" replicas_copy TURNS=4
long "replicas: a copy in pieces, 2 crashes, a loss" replicas_copy CRASHES=2
scope "replicas: rewinds, 2 suspicions, a loss" replicas_rewind RECORDS=3
long "replicas: rewinds, 2 suspicions, a loss, 4 records" replicas_rewind
long "replicas: rewinds, 2 suspicions, a loss, 5 records" replicas_rewind RECORDS=5 TURNS=4
long "replicas: rewinds, 3 suspicions, a loss" replicas_rewind SUSPICIONS=3

mutant local_output_early replicas_outputs DEST=0
mutant marks_stay replicas_outputs
mutant local_not_compared replicas_outputs DEST=0
mutant outputs_once replicas_outputs
mutant done_when_appended replicas_outputs LOSSES=1
mutant floor_of_source replicas_outputs
mutant mark_before_release replicas_outputs DEST_REPLICATED=1
mutant inputs_unstamped replicas_inputs
mutant rows_go_early replicas_inputs
mutant parked_rows_go_early replicas_inputs
mutant inputs_not_sent_again replicas_inputs
mutant parked_after_the_promise replicas_inputs
mutant numbers_of_rows_alone replicas_inputs
mutant active_again replicas_lapse
mutant lapse_forgotten replicas_lapse
mutant refused_before_lapsed replicas_lapse
mutant equal_epoch_ends_a_lapse replicas_lapse
mutant bound_left_out replicas_copy
mutant members_by_end replicas_copy
mutant end_in_memory replicas_copy
mutant answer_before_gate replicas_copy
mutant turn_begun replicas_copy
mutant records_behind_the_pieces replicas_copy
mutant half_a_copy_stays replicas_copy
mutant records_from_now_on replicas_copy MARKS=1
mutant rewound_at_once replicas_rewind
mutant rewound_once replicas_rewind
mutant former_home_forgotten replicas_rewind
mutant tail_dropped_first replicas_rewind

while [ "$running" -gt 0 ]; do finish_one; done
[ "$started" -gt 0 ] || die "no run contains ${words[*]}"
[ "$failed" = 0 ]
