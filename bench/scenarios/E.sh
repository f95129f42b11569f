title="good guest: scenario A beside an old snapshot, and beside an open sender"

# measure LABEL: all runs beside whatever the second session holds. It is held for all of them, so
# that what grows with it grows to be seen; hence the runs are not interleaved.
rates=()
measure() {
  for ((run = 1; run <= runs; run++)); do
    batched tell_many counter 1000
    record "$1" "messages/s" "$rate"
    if [[ -z ${rates[run]:-} ]]; then
      rates[run]=$rate peaks[run]=$peak
    else
      record "$1:   / nobody" "×" "$(ratio "$rate" "${rates[run]}")" ">= 0.9"
      record "$1:   inbox / nobody" "×" "$(ratio "$peak" "${peaks[run]}")" "<= 1.5"
    fi
    record "$1:   inbox at its largest" "MB" "$peak"
    record "$1:   state table" "MB" \
      "$(sql "SELECT pg_total_relation_size('shard_entity.counter') / 1e6")"
  done
}

measure "nobody"

open_session
in_session 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM shard_entity.counter;'
measure "snapshot"
in_session 'COMMIT;'

in_session "BEGIN; SELECT shard_tell('counter', 'late', bench.message());"
measure "open sender"
in_session 'COMMIT;'
record "late message handled after its commit" "ms" "$(sql 'SELECT bench.drain()')"
close_session
late=$(sql "SELECT state->>'count' FROM shard_entity.counter WHERE entity_id = 'late'")
[[ $late == 1 ]] || die "the late message was handled ${late:-0} times"
