#!/bin/bash
# usage: mutants.sh [--few | NAME ...]
#
# Proves that the tests notice what they are there to notice: builds the extension broken in one way at a
# time and runs a test, which then passes only if it finds what is wrong: a scenario in which the mistake must
# show (test/perl/ShardMutant.pm), or the audit of a ledger, for mistakes that spoil thousands of messages
# under any load. A build or a server that does not work at all counts as not noticed.
#
# All of them take long (make check-long): --few takes one for every other test; of those of types with replicas (36x to
# 39x), of which there are many, one for each six. It shows that a build that is broken on purpose is built, and is noticed.
#
# Prints TAP. MUTANT_SECONDS is how long a ledger's load may go on.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

# Switches SHARD_MUTANT_<name> in the C sources, and the tests, each of which has to notice:
one_node=test/t/038_order_in_narrow_places.pl
move=test/t/167_order_across_a_move.pl
numbers=test/t/164_numbered_messages_move.pl
stop=test/t/302_stop_messages_in_narrow_places.pl
judged=test/t/310_failures_are_judged_once.pl
timers=test/t/322_timers_in_narrow_places.pl
remembered=test/t/330_remembered_entities_run_again.pl
timers_move=test/t/166_timers_move_with_their_shards.pl
remembered_move=test/t/165_remembered_entities_move.pl
back_off_moves=test/t/169_back_off_moves_with_its_shard.pl
later=test/t/340_replies_come_later.pl
requests=test/t/345_requests_survive_crashes.pl
request_marks=test/t/174_marks_of_requests.pl
reshard=test/t/350_resharding_survives_crashes.pl
reshard_cluster=test/t/177_resharding_in_a_cluster.pl
walls=test/attack/423_resharding_is_a_guests_stay.pl
records=test/t/363_turns_are_recorded.pl
touched=test/t/376_changes_by_sql_are_recorded.pl
declare -A noticed_by=(
  # of what one node does
  [CURSOR_BY_ID]="$one_node test/t/020_crash_ledger.pl"  # rows of senders still open are passed for ever, as by a plain increasing id
  [CURSOR_BEFORE_LATE]=$one_node  # q moves on while rows of an ended sender are still being drained
  [NO_DEDUP]=$one_node            # rows at or below the cursor are handled again
  [NO_ORDER]=$one_node            # a batch is handled in reverse order
  [STASH_OVERTAKEN]=$one_node     # an entity's inbox row is handled before its stashed ones
  [STASH_READ_AGAIN]=test/t/314_backlogs_beside_an_old_transaction.pl  # each piece of a backlog is read from its beginning
  [SEQ_FROM_ONE]=test/t/331_ids_of_another_life.pl  # a new log begins with the numbers of the one before
  [TIMER_READ_AGAIN]=test/t/314_backlogs_beside_an_old_transaction.pl  # a look for a timer passes all rows that it has left behind
  [HISTORY_READ_AGAIN]=test/t/314_backlogs_beside_an_old_transaction.pl  # a failure passes all rows that its entity has left behind
  [RECOUNT_DROPPED]=test/t/197_what_a_drop_takes_is_not_missed.pl  # what was held of a type that was dropped just now counts still
  [PLAN_BY_SIZE]=test/t/314_backlogs_beside_an_old_transaction.pl  # statements are planned for the size that a table had then
  [HEALTH_IN_SPI]=test/t/315_health_says_it_whole.pl  # what health says is in memory that is given back before it is returned
  [STASH_KEPT]="$one_node test/t/020_crash_ledger.pl"  # a stashed row is still there after it was handled, and is handled again
  [FILE_UNSEEN]=test/t/084_tables_are_rewritten.pl  # a turn goes on in a file of the inbox that was replaced meanwhile
  [LIST_BELIEVED]=test/t/037_segments_in_use_again.pl  # the oldest segment is read first, though it was emptied and used again since it was listed
  [READS_UNGATED]=test/t/085_reads_wait_for_the_gate.pl  # an answer that only reads does not wait for the gate
  [STOP_OVERTAKES]=$stop          # a stop message goes before what waits of its entity
  [STOP_AGAIN]=$stop              # a command that waits brings the stop message once more
  [STOP_NOT_UNDONE]=$stop         # what a handler asked is not forgotten with its turn
  [STOP_NEVER_VOID]=$stop         # a stop message comes to an entity that has had another message since
  [STOP_TWICE]=$stop              # what a handler asks twice is done twice
  [PASSIVATED_WAITING]=$stop      # an entity of which messages wait leaves memory
  [TIMER_GENERATION_IGNORED]=$timers  # a timer fires whichever firing the message means
  [TIMER_PLACE_BELIEVED]=$timers  # a firing takes the row that is where its own was
  [STUCK_NUMBER_NOT_PASSED]=test/t/038_stuck_messages_pass_their_numbers.pl  # those behind a message that ended its worker wait for its number
  [TIMER_KEPT]=$timers            # a timer that has fired is there still
  [TIMER_CANCEL_IGNORED]=$timers  # a timer that is cancelled fires all the same
  [TIMER_ENDS_EARLY]=$timers      # a timer's row is gone before its message is met
  [TIMERS_OF_STOPPED_FIRE]=$timers  # timers of a type that is stopped become messages that wait, once more with each worker
  [TIMERS_LEFT_FOR_GOOD]=$timers  # they are not looked at again when it is started
  [OWN_TIMER_SENT]=$timers        # what a handler makes and ends of its own entity are messages to it
  [OWN_FIRING_REPLACED]=$timers   # a timer has fired when its handler has returned, whatever that has made
  [OWN_FIRING_ENDED]=$timers      # a timer fires that the start message before has ended
  [STARTS_ARE_HEARD]=$timers      # what a start or stop message writes puts off a receive time-out
  [DECIDER_IGNORED]=$judged       # what a decider says is not looked at
  [PAUSE_OF_OTHERS]=$judged       # a pause is one of all shards
  [REMEMBERED_LATE]=$remembered   # an entity's first effect commits without its flag
  [START_LATE]=$remembered        # a start message is handled behind the first one
  [PASSIVATE_REMEMBERS]=$remembered  # who is passivated stays remembered
  [RECOVERY_SKIPS]=$remembered    # a turn that is undone has walked all the same
  [REPLY_TO_NEXT]=$later          # a reply finds whatever ask has the slot by now
  [REPLY_UNKEYED]=$later          # the key of a token is not looked at
  [REPLY_UNFLUSHED]=$later        # a reply that comes later is believed before it is durable
  [REQUEST_KEPT]=$requests        # a request that was answered is open still
  [REQUEST_ANSWERED_LATE]=$requests  # a request whose time is over is open still
  [REQUEST_UNANSWERED]=$requests  # who has asked is not told that the message was given up
  [REQUESTS_UNMARKED]=$request_marks  # a worker that starts does not know which requests and responses were taken in
  [RESHARD_SKIPS_ROWS]=$reshard   # entities of a step that is done again are passed
  [RESHARD_LEAVES_TIMERS]=$reshard   # timers stay with the former shards
  # of what nodes do to one another
  [RESHARD_BESIDE_SENDERS]=$reshard  # a type gets its new number while senders commit messages to the old one
  [RESHARD_BEFORE_LEAVING]=$reshard_cluster  # a type is resharded here while other nodes have entities of it
  [CLAIMS_FORGOTTEN]=$reshard_cluster  # shards that a node has are given to others as new ones
  [NOTES_NOT_UNDONE]=$records     # what a subtransaction told is told, though it was undone
  [MARKS_OF_INPUTS_FORGOTTEN]=test/t/387_inputs_are_numbered.pl  # marks of inputs are in no table when their records have left
  [STASH_BY_NODE]=test/t/387_inputs_are_numbered.pl  # what waits of a shard with replicas has numbers of the node
  [INPUTS_NOT_KEPT]=test/t/388_inputs_stay_until_released.pl  # rows that were taken in leave the log before the release
  [INPUTS_NOT_PARKED]=test/t/388_inputs_stay_until_released.pl  # a former home does not send again what it has taken in
  [TOLD_NOT_UNDONE]=$touched      # an entity that an undone subtransaction has touched is not told again
  [TOUCHED_NOT_HELD]=$touched     # what SQL changes while its table has a problem is forgotten
  [LETTERS_OF_ANOTHER_LIFE]=test/t/377_dead_letters_that_go_are_recorded.pl  # a letter's name is taken for one of the shard's present life
  [OUTPUTS_AT_ONCE]=$records      # what a shard with replicas tells does not wait for the release
  [SHOWN_UNRELEASED]=test/t/364_nothing_is_shown_before.pl  # replies do not wait for the release
  [SETS_IN_MEMORY_ALONE]=test/t/360_sets_of_shards_stay.pl  # a node forgets at its end which copies it has
  [ENDS_MAPPED_AFTER_COMMIT]=test/t/379_ends_are_reserved.pl  # a backup's memory of what it has stored is looked for when that has committed
  [REFUSED_TOGETHER]=test/t/380_refused_calls_are_taken_apart.pl  # a call that is refused as a whole is made again as it was, without end
  [RECORDS_BLAMED_FOR_ALL]=test/t/380_refused_calls_are_taken_apart.pl  # any error of the code for damaged bytes is taken for one of the records in the call
  [OUTPUTS_TO_FORMER_SHARDS]=test/t/381_outputs_follow_their_receivers.pl  # what a shard with replicas told leaves for the number that its receiver had then
  [OUTPUTS_BESIDE_RESHARDING]=test/t/381_outputs_follow_their_receivers.pl  # a turn commits no output of a type that is being resharded, and nothing else
  [EXTRACTOR_UNWATCHED]=test/t/381_outputs_follow_their_receivers.pl  # the extractor that finds an output's receiver may take as long as it likes
  [CALLS_WITHOUT_BOUND]=test/t/382_backups_come_back_late.pl  # all that a backup lacks goes into one call
  [RECORDS_LEAVE_WITH_LOG]=test/t/361_copies_store_what_their_home_ships.pl  # turn records go with the segment that they are in
  [APPLIED_UNRELEASED]=test/t/373_copies_are_applied.pl  # a copy is applied before all have stored the turn
  [OLDER_ROWS_APPLIED]=test/t/390_copies_have_all_rows.pl  # of a row that is told several times a backup applies the first
  [OUTPUTS_NEVER_DONE]=test/t/390_copies_have_all_rows.pl  # a backup keeps outputs that are done
  [STASH_OF_COPIES_COUNTS]=test/t/390_copies_have_all_rows.pl  # a worker takes what waits at another node's shard for its own
  [TIMERS_OF_COPIES_FIRE]=test/t/390_copies_have_all_rows.pl  # a backup fires timers of another node's shard
  [LANES_LOCKED_AS_MET]=test/t/365_turns_and_calls_lock_lanes.pl  # a turn locks lanes for its copies in the order of its facts
  [COPIES_OF_GONE_TYPES]=test/t/366_gone_types_have_no_copies.pl  # copies stay in memory when their type is gone
  [GIVEN_UP_TURNS_READ]=test/t/367_what_was_given_up_is_not_told.pl  # outputs of a history that was given up leave after a start
  [DRAIN_WAITS_FOR_NEWER]=test/t/368_drain_waits_for_what_was_there.pl  # shard_drain waits for a moment at which nothing waits for copies
  [WAITS_WITHOUT_BOUND]=test/t/369_homes_rest_when_too_much_waits.pl  # a home keeps whatever waits for its copies in memory
  [STORED_UNGATED]=test/t/071_answers_wait_for_the_gate.pl  # a copy acknowledges what another call has stored and not flushed
  [QUARANTINE_LEFT]=$remembered_move  # entities that cannot start are as others at the new home of their shard
  [ARRIVAL_UNSEEN]=$remembered_move   # remembered entities of a shard that comes do not start
  [IMPORT_FORGETS_BACKOFF]=$back_off_moves  # attempts, pauses and the next time do not move
  [TIMER_MARK_KEPT]=$timers_move      # a shard that has come has its timers looked at behind the lane's place
  [TIMERS_STAY]=$timers_move          # timers do not move with their shard
  [NO_RESEND]=$move               # what a former home has refused is not sent to the new one
  [NEWER_BEFORE_RESENT]=$move     # newer messages do not wait for what is sent again
  [IMPORT_WITHOUT_MARKS]=$move    # a new home does not learn what the old one has taken in
  [IMPORT_WITHOUT_STASH]=$move    # messages that wait at the old home stay there
  [REDRIVE_OLD_STAMP]=$move       # a dead letter that is sent again keeps the stamp that marks have passed
  [QUEUE_FORGOTTEN]=$numbers      # what waits of an entity is forgotten when its position is read
  [ORDER_IGNORED]=test/t/159_partitions_are_reassigned.pl  # numbers of messages are not looked at
  [GONE_TYPES_KEPT]=test/t/192_dropped_after_a_leave.pl  # packets of a type that is gone are kept
  [RESHARD_STASH_UNSEEN]=$reshard # what waits for a shard that has its first home is not looked for
  [STUCK_GUEST_NOT_COUNTED]=test/attack/426_extractors_of_strangers_end_workers.pl  # a stranger's extractor that ends workers is counted to the type that tells it
  [RESHARD_WITHOUT_WALLS]=$walls  # triggers that resharding fires are no guests
  [RESHARD_DEFERS]=$walls         # triggers that are deferred are left to the commit
  [RECEIVED_TWICE]=test/t/109_load_without_faults.pl  # rows are stored twice, and marks are not looked at
)
mapfile -t mutants < <(for name in "${!noticed_by[@]}"; do echo "${noticed_by[$name]} $name"; done | sort | sed 's/.* //')
if [ "${1:-}" = --few ]; then
  mapfile -t mutants < <(for name in "${mutants[@]}"; do echo "$name ${noticed_by[$name]}"; done |
    awk '{ test = $2 } match(test, /\/t\/3[6-9]/) { test = int(substr(test, RSTART + 3, 3) / 3) } !seen[test]++ && seen_tests++ % 2 == 0 { print $1 }')
elif [ $# -gt 0 ]; then
  mutants=("$@")
fi

# A load under which the broken server hangs altogether proves nothing about the audit: then another
# one is tried, a few times, soon. The scenarios do not wait in vain, whatever is broken.
noticed() {  # name
  local attempt patience=20
  case ${noticed_by[$1]} in "$one_node" | "$move" | "$numbers" | "$stop" | "$judged" | "$timers" | "$remembered" | \
    "$timers_move" | "$remembered_move" | "$back_off_moves" | "$later" | \
    "$requests" | "$request_marks" | "$reshard" | "$reshard_cluster") patience=90 ;; esac
  for attempt in 1 2 3; do
    MUTANT=$1 PROVE_TESTS=${noticed_by[$1]} SHARD_SECONDS=${MUTANT_SECONDS:-30} \
      PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-$patience} CHECK_TIMEOUT=${CHECK_TIMEOUT:-300} \
      test/check.sh tap >"$logs/$1" 2>&1 && return 0
  done
  return 1
}

# Tries one, and says in file NAME.result what came of it.
try() {  # name
  # A name that no source knows would test the sound build.
  if ! grep -rqw "SHARD_MUTANT_$1" --include='*.[ch]' extension || [ -z "${noticed_by[$1]:-}" ]; then
    echo "is in no source or has no test" >"$logs/$1.result"
  elif noticed "$1"; then
    echo "is noticed" >"$logs/$1.result"
  else
    echo "is not noticed" >"$logs/$1.result"
  fi
}

logs=$(mktemp -d "${TMPDIR:-/tmp}/shard-mutants.XXXXXX")
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM
failed=0
number=0
echo "1..${#mutants[@]}"
# Two at a time: while one is built, another one is tested.
for name in "${mutants[@]}"; do
  [ "$(jobs -rp | wc -l)" -lt 2 ] || wait -n || true
  try "$name" &
done
wait
for name in "${mutants[@]}"; do
  number=$((number + 1))
  result=$(cat "$logs/$name.result" 2>/dev/null || echo "was not tried")
  if [ "$result" = "is noticed" ]; then
    echo "ok $number - mutant $name is noticed"
  else
    echo "not ok $number - mutant $name $result"
    [ ! -f "$logs/$name" ] || sed 's/^/# /' "$logs/$name" | grep -v '^# ok ' || true
    failed=1
  fi
done
exit "$failed"
