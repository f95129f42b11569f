/*
 * entity/stuck.c
 *		Messages because of which a worker had to end: what it leaves to the next one (D15).
 *
 * Comes from: call.c, as the process ends. Goes to: handle.c, which gives such a message up instead of running it, and
 * order.c, which passes its number, as that of any message that is given up.
 *
 * A lane has one, in shared memory, which outlives the process but not the server: after a crash of that the message
 * runs once more, and ends its worker again. The number is known as far as the type's ordered_by had returned it; where
 * that was what had to be ended, the number is a gap (D25).
 */
#include "postgres.h"

#include "entity/stuck.h"

#include "base/compat.h"

typedef struct Stuck
{
	int64 seq;
	bool fatal;
	ShardStuckNumber number;
} Stuck;

static Stuck stuck[SHARD_LANES];
static int count = 0;

void
shard_stuck_note(int lane, int64 seq, bool fatal, ShardStuckNumber number)
{
	ShardLane *of = &shard_shmem_database()->lane[lane];

	pg_atomic_write_u32(&of->stuck_fatal, fatal ? 1 : 0);
	pg_atomic_write_u64(&of->stuck_number, (uint64) number.number);
	pg_atomic_write_u32(&of->stuck_numbered, number.known ? 1 : 0);
	pg_atomic_write_u64(&of->stuck_seq, seq);
}

void
shard_stuck_init(ShardLanes lanes)
{
	shard_each_lane (lane, lanes)
	{
		ShardLane *of = &shard_shmem_database()->lane[lane];
		int64 seq = pg_atomic_read_u64(&of->stuck_seq);

		if (seq == 0)
			continue;
		stuck[count].seq = seq;
		stuck[count].fatal = pg_atomic_read_u32(&of->stuck_fatal) != 0;
		stuck[count].number.known = pg_atomic_read_u32(&of->stuck_numbered) != 0;
		stuck[count].number.number = (int64) pg_atomic_read_u64(&of->stuck_number);
		count++;
	}
}

static const Stuck *
find(const ShardRow *row)
{
	for (int i = 0; i < count; i++)
		if (stuck[i].seq == row->seq)
			return &stuck[i];
	return NULL;
}

bool
shard_stuck_is(const ShardRow *row)
{
	return find(row) != NULL;
}

bool
shard_stuck_was_fatal(const ShardRow *row)
{
	const Stuck *found = find(row);

	return found != NULL && found->fatal;
}

ShardStuckNumber
shard_stuck_number(const ShardRow *row)
{
	const Stuck *found = find(row);

#ifdef SHARD_MUTANT_STUCK_NUMBER_NOT_PASSED
	return (ShardStuckNumber){0};
#endif
	return found != NULL ? found->number : (ShardStuckNumber){0};
}
