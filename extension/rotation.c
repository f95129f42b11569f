/*
 * rotation.c
 *		Segments of the log: taking a new one, emptying those that all passed
 *		(doc/protocol.md D9-D11).
 *
 * Only the worker of lane 0 does this, between its turns. Senders go on while
 * it happens: the current segment changes under the append lock, and a segment
 * is emptied by TRUNCATE only
 * - when it is not current,
 * - when the committed cursor of every lane has passed it, open senders included,
 * - when no lane's newest cursor row is in it,
 * - when no worker has to read a row of it to know where a peer's stream was received up to: such
 *	 positions are saved in the same transaction (position_table.c),
 * - when nobody has it locked now: senders keep their lock to the end of their
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

#include "catalog.h"
#include "guc.h"
#include "log.h"
#include "position_table.h"
#include "rotation.h"

#include "compat.h"

/*
 * A segment is left at SMALL bytes, but not more often than each PERIOD_MS,
 * because each TRUNCATE costs catalog rows; at LARGE in any case, because a
 * restart reads what is left.
 */
#define SMALL ((uint64) 64 * 1024 * 1024)
#define LARGE ((uint64) 512 * 1024 * 1024)
#define PERIOD_MS 10000

/* How often a worker is asked for the same thing. */
#define REPEAT_MS 100

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

	if (bytes >= LARGE ||
		(limit > 0 && bytes >= TINY && pg_atomic_read_u64(&log->bytes) > limit / 2))
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
			/* it may have pages, of senders that were rolled back */
			if (!used[i] && log->segment[i].first_seq == 0)
			{
				log->live[log->live_count++] = i;
				log->current = i;
				log->switched_at = GetCurrentTimestamp();
				break;
			}
	}
	LWLockRelease(db->append_lock);
}

/*
 * Asks the worker of a lane to leave everything up to a seq behind, and to wake
 * us when it has. The wish stands until then; it is woken for it at once, but
 * again only now and then: in the way may be a sender that stays open for an hour.
 */
static void
want_passed(ShardDatabase *db, int lane, int64 seq)
{
	static struct
	{
		int64 seq;
		TimestampTz at;
	} asked[SHARD_MAX_WORKERS];
	int worker = shard_shmem_lane_worker(db, lane);
	TimestampTz now = GetCurrentTimestamp();

	if (asked[worker].seq == seq && !TimestampDifferenceExceeds(asked[worker].at, now, REPEAT_MS))
		return;
	asked[worker].seq = seq;
	asked[worker].at = now;
	pg_atomic_write_u64(&db->worker[worker].pass_wanted, seq);
	shard_shmem_wake_worker(db, worker);
}

/* Whether every lane has passed the segment; those that have not are asked to, all at once. */
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

/* Tells everybody that a segment is empty now. */
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

/* Truncates a segment that is locked already; positions that are rows of it go to their table. */
static void
truncate_segment(int number, int64 last_seq)
{
	char command[64];

	snprintf(command, sizeof(command), "TRUNCATE shard.inbox_%d", number);
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	shard_position_save(last_seq);
	emptying = true;
	PG_TRY();
	{
		if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
			elog(ERROR, "could not run \"%s\"", command);
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

/* Highest seq of a segment that nobody writes to. */
static int64
last_seq_of(ShardDatabase *db, int number)
{
	int64 last;

	LWLockAcquire(db->append_lock, LW_SHARED);
	last = db->log.segment[number].last_seq;
	LWLockRelease(db->append_lock);
	return last;
}

/* Empties a segment unless somebody has it locked. Returns whether it did. */
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
		shard_position_saved();
		publish_empty(db, number, filenumber);
	}
	return emptied;
}

bool
shard_rotation_run(ShardDatabase *db, Oid extension)
{
	int number;

	switch_current(db);
	number = find_passed(db);
	return number >= 0 && empty_segment(db, number, extension);
}
