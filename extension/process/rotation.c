/*
 * process/rotation.c
 *		Segments of the log: taking a new one, emptying those that all lanes have passed (doc/protocol.md D9-D11).
 *
 * Any region worker does this, between its turns, one at a time: a handler that takes long in one worker does not hold
 * it up for the others. Senders go on while it happens: the current segment changes under the append lock, and a
 * segment is emptied by TRUNCATE only
 * - when it is not current,
 * - when the committed cursor of every lane has passed it, open senders included,
 * - when no lane's newest cursor row is in it,
 * - when no worker has to read a row of it to know where a peer's stream was received up to: such
 *	 positions are saved in the same transaction (stream_position_table.c), as are turn records that are needed (turn_log.c),
 * - when no transaction has it locked now: senders keep their lock to the end of their
 *	 transaction, so none of them has rows in it.
 *
 * TRUNCATE and not RelationTruncate: its commit is flushed, and follows the
 * cursors' in WAL. If the process dies right here, before the commit nothing
 * happened; after it shared memory still calls the segment full, and it is
 * simply emptied once more.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "registry/catalog.h"
#include "base/guc.h"
#include "log/log.h"
#include "log/turn_log.h"
#include "link/stream_position_table.h"
#include "process/rotation.h"
#include "registry/statement.h"

#include "base/compat.h"

/*
 * A segment is left at SMALL bytes, but not more often than each PERIOD_MS,
 * because each TRUNCATE costs catalog rows; at LARGE in any case, because a
 * restart reads what is left.
 */
#define SMALL ((uint64) 64 * 1024 * 1024)
#define LARGE ((uint64) 512 * 1024 * 1024)
#define PERIOD_MS 10000

/* How often a worker is asked for the same thing: by the caretaker, by others. */
#define REPEAT_MS 100
#define OTHERS_REPEAT_MS 1000

/* A segment that is worth to be emptied when the inbox is about to be full. */
#define TINY ((uint64) 128 * 1024)

static bool emptying = false;

/*
 * Whether the current segment is long enough to be left. With a small inbox it
 * is so earlier, since only a segment that is not current makes room.
 */
static bool
is_long(ShardLog *log)
{
	uint64 bytes = (uint64) log->segment[log->current].blocks * BLCKSZ;
	uint64 limit = (uint64) shard_inbox_max_size * 1024;

	if (bytes >= LARGE || (limit > 0 && bytes >= Max(TINY, limit / 16) &&
						   pg_atomic_read_u64(&log->bytes) > limit / 4))
		return true;
	return bytes >= SMALL &&
		   TimestampDifferenceExceeds(log->switched_at, GetCurrentTimestamp(), PERIOD_MS);
}

/* Makes an empty segment current if the present one is long enough. */
static void
switch_current(ShardDatabase *db)
{
	ShardLog *log = &db->log;
	bool used[SHARD_SEGMENTS] = {false};

	LWLockAcquire(db->append_lock, LW_EXCLUSIVE);
	if (log->ready && is_long(log))
	{
		for (int i = 0; i < log->live_count; i++)
			used[log->live[i]] = true;
		for (int i = 0; i < SHARD_SEGMENTS; i++)
			/* the segment may have pages of senders that were rolled back */
			if (!used[i] && log->segment[i].first_seq == 0)
			{
				log->live[log->live_count++] = i;
				log->current = i;
				pg_atomic_fetch_add_u64(&log->switches, 1);
				log->switched_at = GetCurrentTimestamp();
				break;
			}
	}
	LWLockRelease(db->append_lock);
}

/*
 * Asks the worker of a lane to leave everything up to a seq behind, and to wake this worker when it has. The wish
 * stands until then. The worker is woken for it at once, but again only now and then: a sender whose transaction stays
 * open for an hour may be in the way.
 */
static void
want_passed(ShardDatabase *db, int lane, int64 seq)
{
	int worker = shard_shmem_lane_worker(db, lane);
	ShardWorkerSlot *slot = &db->worker[worker];
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz asked_at = (TimestampTz) pg_atomic_read_u64(&slot->pass_asked_at);
	bool mine = shard_shmem_my_worker() == &db->worker[shard_shmem_caretaker(db)];

	if ((int64) pg_atomic_read_u64(&slot->pass_wanted) == seq &&
		!TimestampDifferenceExceeds(asked_at, now, mine ? REPEAT_MS : OTHERS_REPEAT_MS))
		return;
	pg_atomic_write_u64(&slot->pass_asked_at, (uint64) now);
	pg_atomic_write_u64(&slot->pass_wanted, (uint64) seq);
	shard_shmem_wake_worker(db, worker);
}

/* Whether every lane has passed the segment; asks those lanes that have not to pass it, all at once. */
static bool
is_passed(ShardDatabase *db, const ShardSegment *segment)
{
	bool passed = true;

	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		const ShardLane *shared = &db->lane[lane];
		int64 cursor = pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &shared->cursor_seq));
		int64 needed = pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &shared->needed));

		if (cursor <= segment->last_seq || needed <= segment->last_seq)
		{
			want_passed(db, lane, segment->last_seq);
			passed = false;
		}
	}
	return passed;
}

/* The oldest segment if it can go; -1 if none can. */
static int
find_passed(ShardDatabase *db)
{
	ShardLog *log = &db->log;
	ShardSegment segment;
	int oldest = -1;

	LWLockAcquire(db->append_lock, LW_SHARED);
	if (log->ready && log->live_count > 1 && log->live[0] != log->current)
	{
		oldest = log->live[0];
		segment = log->segment[oldest];
	}
	LWLockRelease(db->append_lock);
	return oldest >= 0 && is_passed(db, &segment) ? oldest : -1;
}

/* Publishes that a segment is empty now. */
static void
publish_empty(ShardDatabase *db, int number, Oid filenumber)
{
	ShardLog *log = &db->log;
	ShardSegment *segment = &log->segment[number];
	uint64 bytes = 0;
	int kept = 0;

	LWLockAcquire(db->append_lock, LW_EXCLUSIVE);
	segment->filenumber = filenumber;
	segment->blocks = 0;
	segment->first_seq = segment->last_seq = 0;
	for (int i = 0; i < log->live_count; i++)
		if (log->live[i] != number)
			log->live[kept++] = log->live[i];
	log->live_count = kept;
	for (int i = 0; i < SHARD_SEGMENTS; i++)
		bytes += (uint64) log->segment[i].blocks * BLCKSZ;
	pg_atomic_write_u64(&log->bytes, bytes);
	LWLockRelease(db->append_lock);
}

bool
shard_rotation_is_emptying(void)
{
	return emptying;
}

/* Truncates a segment that is locked already; positions and records that are rows of it go to their tables. */
static void
truncate_segment(int number, int64 last_seq)
{
	char command[64];
	ShardStatement truncate = {command};

	snprintf(command, sizeof(command), "TRUNCATE shard.inbox_%d", number);
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	shard_stream_position_save(last_seq);
	shard_turn_log_leave(last_seq);
	emptying = true;
	PG_TRY();
	{
		shard_statement_once(&truncate, NULL, SPI_OK_UTILITY);
	}
	PG_FINALLY();
	{
		emptying = false;
	}
	PG_END_TRY();
	SPI_finish();
	PopActiveSnapshot();
	CommandCounterIncrement();
}

/* Highest seq of a segment that is not written to any more. */
static int64
last_seq_of(ShardDatabase *db, int number)
{
	int64 last;

	LWLockAcquire(db->append_lock, LW_SHARED);
	last = db->log.segment[number].last_seq;
	LWLockRelease(db->append_lock);
	return last;
}

/* Empties a segment unless another transaction has it locked. Returns whether it did. */
static bool
empty_segment(ShardDatabase *db, int number, Oid extension)
{
	int64 last_seq = 0;
	Oid filenumber = InvalidOid;
	bool emptied = false;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (shard_catalog_lock(true) && shard_catalog_get()->extension == extension)
	{
		Oid relid = shard_catalog_get()->segment[number];

		if (ConditionalLockRelationOid(relid, AccessExclusiveLock))
		{
			Relation rel;

			last_seq = last_seq_of(db, number);
			truncate_segment(number, last_seq);
			rel = table_open(relid, NoLock);
			filenumber = ShardFileNumber(rel);
			table_close(rel, NoLock);
			emptied = true;
		}
	}
	CommitTransactionCommand();
	if (emptied)
	{
		shard_stream_position_saved();
		publish_empty(db, number, filenumber);
	}
	return emptied;
}

/* Whether there may be anything to do, without a lock. */
static bool
is_worth_a_look(ShardLog *log)
{
	return *((volatile int *) &log->live_count) > 1 || is_long(log);
}

/* Only the worker that owns the rotation calls this. */
static bool
rotate(ShardDatabase *db, Oid extension)
{
	int number;

	switch_current(db);
	number = find_passed(db);
	return number >= 0 && empty_segment(db, number, extension);
}

bool
shard_rotation_run(ShardDatabase *db, Oid extension)
{
	volatile bool emptied = false;

	if (!is_worth_a_look(&db->log))
		return false;
	if (!shard_shmem_own(db, SHARD_OWNER_ROTATION))
	{
		/* the worker that is at it may have looked before this worker got out of the way */
		if (shard_shmem_my_worker() != &db->worker[shard_shmem_caretaker(db)])
			shard_shmem_wake_worker(db, shard_shmem_caretaker(db));
		return false;
	}
	PG_TRY();
	{
		emptied = rotate(db, extension);
	}
	PG_FINALLY();
	{
		/* after an error the segment's lock is held until the transaction is aborted: others find it taken */
		shard_shmem_disown(db, SHARD_OWNER_ROTATION);
	}
	PG_END_TRY();
	return emptied;
}

int64
shard_rotation_presses(ShardDatabase *db)
{
	ShardLog *log = &db->log;
	uint64 limit = (uint64) shard_inbox_max_size * 1024;
	uint8 groups = db->division.groups;
	int64 upto = 0;

	if (limit == 0 || pg_atomic_read_u64(&log->bytes) <= limit / 4 || (groups & (groups - 1)) == 0)
		return 0;
	LWLockAcquire(db->append_lock, LW_SHARED);
	if (log->ready && log->live_count > 1)
		upto = log->segment[log->live[log->live_count - 2]].last_seq;
	LWLockRelease(db->append_lock);
	return upto;
}
