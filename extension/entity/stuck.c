/*
 * entity/stuck.c
 *		Messages and types because of which a worker had to end: what it leaves to the next one (D15).
 *
 * Comes from: call.c, as the process ends. Goes to: handle.c, which gives such a message up instead of running it, and
 * order.c, which passes its number, as that of any message that is given up.
 *
 * A lane has one, in shared memory, which outlives the process but not the server: after a crash of that the message
 * runs once more, and ends its worker again. The number is known as far as the type's ordered_by had returned it; where
 * that was what had to be ended, the number is a gap (D25).
 *
 * Where a handler tells a type of another owner, that type's extractors run in the handler's worker. If one has it ended, that
 * is counted apart, to its own type, or whoever is replied to could have the type that replies suspended. That type is not
 * suspended for it, since what else of it runs is not known to be bad. A place in shared memory counts for one type alone, the
 * last: two that take turns are not found.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "core/base/message.h"
#include "entity/stuck.h"

#include "base/compat.h"

typedef struct Stuck
{
	ShardShardKey shard;
	int64 seq;
	bool fatal;
	ShardStuckNumber number;
} Stuck;

/* Ends of a process for the same type are in a row if no more than this is between two of them. */
#define STUCK_ROW_MS (10 * 60 * 1000)

static Stuck stuck[SHARD_LANES];
static int count = 0;
static const ShardType *guest = NULL;

void
shard_stuck_note(ShardShardKey shard, int64 seq, bool fatal, ShardStuckNumber number)
{
	ShardLane *of = &shard_shmem_database()->lane[shard_message_lane(shard.type_id, shard.shard)];

	pg_atomic_write_u32(&of->stuck_type, (uint32) shard.type_id);
	pg_atomic_write_u32(&of->stuck_shard, (uint32) shard.shard);
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
		stuck[count].shard = (ShardShardKey){(int32) pg_atomic_read_u32(&of->stuck_type),
											 (int32) pg_atomic_read_u32(&of->stuck_shard)};
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
		if (stuck[i].seq == row->seq && stuck[i].shard.type_id == row->type_id &&
			stuck[i].shard.shard == row->shard)
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

static bool
is_in_row(const ShardStuckCount *of, const ShardType *type)
{
	return of->type_id == type->type_id &&
		   !TimestampDifferenceExceeds(of->at, GetCurrentTimestamp(), STUCK_ROW_MS);
}

void
shard_stuck_count(const ShardType *type)
{
	ShardStuckCount *of = &shard_shmem_my_worker()->stuck;

#ifndef SHARD_MUTANT_STUCK_GUEST_NOT_COUNTED
	if (guest != NULL)
	{
		of = &shard_shmem_my_worker()->stuck_guest;
		type = guest;
	}
#endif
	if (!is_in_row(of, type))
		of->times = 0;
	of->type_id = type->type_id;
	of->times++;
	of->at = GetCurrentTimestamp();
}

void
shard_stuck_guest_comes(const ShardType *type, Oid owner)
{
	const ShardWorkerSlot *slot = shard_shmem_my_worker();

	guest = NULL;
	if (slot == NULL || type->owner == owner)
		return;
	if (slot->stuck_guest.times >= SHARD_STUCK_MOST && is_in_row(&slot->stuck_guest, type))
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extractors of entity type \"%s\" are not called from handlers now",
					type->name),
			 errdetail(
				 "One could not be cancelled, or ended the region worker of a handler that tells the type, %d "
				 "times in a row.",
				 SHARD_STUCK_MOST),
			 errhint("Its owner has to mend it. It is called again when %d minutes have passed.",
					 STUCK_ROW_MS / (60 * 1000))));
	guest = type;
}

void
shard_stuck_guest_goes(void)
{
	guest = NULL;
}

const ShardType *
shard_stuck_guest(void)
{
	return guest;
}
