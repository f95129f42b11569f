/*
 * sql/view/inbox_segments.c
 *		The log's segments as people see them: size, and what keeps them.
 */
#include "postgres.h"

#include "access/table.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "registry/catalog.h"
#include "sql/view/inbox.h"
#include "log/log.h"
#include "sql/view/worker_owners.h"
#include "base/rights.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_inbox_segments);

/* The shortest row there can be: header, fixed columns, an id, a message. */
#define SHORTEST_ROW 72

/*
 * Bytes of a segment's table.
 */
static int64
bytes_of(Oid relid)
{
	Relation rel = table_open(relid, AccessShareLock);
	int64 bytes = (int64) RelationGetNumberOfBlocks(rel) * BLCKSZ;

	table_close(rel, AccessShareLock);
	return bytes;
}

int64
shard_inbox_segments_bytes(void)
{
	const ShardCatalog *catalog = shard_catalog_get();
	int64 bytes = 0;

	for (int i = 0; i < SHARD_SEGMENTS; i++)
		bytes += bytes_of(catalog->segment[i]);
	return bytes;
}

/* The owners of the types that the worker runs. */
static char *
owners_of(const ShardDatabase *db, int worker)
{
	int count;
	char *owners = shard_worker_owners(db, worker, &count);

	return count == 0 ? owners : psprintf(", which runs types of %s", owners);
}

/* The table of the segment that has a row; 0: none has. */
static Oid
segment_of(const ShardDatabase *db, int64 seq)
{
	Oid relid = InvalidOid;

	LWLockAcquire(db->append_lock, LW_SHARED);
	for (int i = 0; i < SHARD_SEGMENTS; i++)
		if (db->log.segment[i].first_seq > 0 && db->log.segment[i].first_seq <= seq &&
			seq <= db->log.segment[i].last_seq)
			relid = db->log.segment[i].relid;
	LWLockRelease(db->append_lock);
	return relid;
}

/* The session that has the lock of a segment that senders keep to their end; NULL: none. */
static char *
sender_of(Oid relid)
{
	LockData *locks = GetLockStatusData();
	LOCKTAG tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];
		PGPROC *proc;

		if (memcmp(&lock->locktag, &tag, sizeof(tag)) != 0 ||
			(lock->holdMask & LOCKBIT_ON(RowExclusiveLock)) == 0)
			continue;
		if (lock->pid == 0)
			return pstrdup("a prepared transaction, see pg_prepared_xacts");
		proc = BackendPidGetProc(lock->pid);
		if (proc != NULL)
			return psprintf("process %d of role \"%s\", which pg_terminate_backend(%d) ends, or "
							"idle_in_transaction_session_timeout of that role",
							lock->pid, GetUserNameFromId(proc->roleId, true), lock->pid);
	}
	return NULL;
}

/* A sender whose transaction is open: all that was sent after its first message stays until it ends. */
static char *
say_sender(const ShardDatabase *db, int64 seq)
{
	Oid relid = segment_of(db, seq);
	char *who = NULL;

	if (!shard_rights_all_stats())
		who = pstrdup("members of pg_read_all_stats see whose it is");
	else if (OidIsValid(relid))
		who = sender_of(relid);
	return psprintf("a transaction that was open at seq " INT64_FORMAT "%s%s", seq,
					who != NULL ? ": " : "", who != NULL ? who : "");
}

/* *sender: a transaction that is open keeps it. */
static char *
find_reason(const ShardDatabase *db, int64 first_seq, int64 last_seq, bool *sender)
{
	for (int i = 0; i < SHARD_LANES; i++)
	{
		ShardLane *lane = unconstify(ShardLane *, &db->lane[i]);
		int worker = shard_shmem_lane_worker(db, i);
		int64 q = (int64) pg_atomic_read_u64(&lane->q);
		int64 needed = (int64) pg_atomic_read_u64(&lane->needed);
		int64 cursor = (int64) pg_atomic_read_u64(&lane->cursor_seq);

		if (needed == 0)
			return psprintf("worker %d%s, which has not started", worker, owners_of(db, worker));
		if (q < last_seq)
			return psprintf("unhandled messages of worker %d%s", worker, owners_of(db, worker));
		if (needed <= last_seq)
		{
			*sender = true;
			return say_sender(db, needed);
		}
		if (first_seq <= cursor && cursor <= last_seq)
			return psprintf("position of worker %d", worker);
	}
	return NULL;
}

char *
shard_inbox_segments_reason(const ShardDatabase *db, int64 first_seq, int64 last_seq)
{
	bool sender = false;

	return find_reason(db, first_seq, last_seq, &sender);
}

/*
 * The oldest one goes first, and what was sent later waits for it: no worker has been asked to pass that yet, so its
 * workers are not to blame. NULL: the oldest is not kept by a sender, or there is nothing but the current one.
 */
static char *
sender_before(const ShardDatabase *db, const ShardSegment *segments, int current)
{
	const ShardSegment *oldest = &segments[current];
	bool sender = false;
	char *reason;

	for (int i = 0; i < SHARD_SEGMENTS; i++)
		if (segments[i].first_seq > 0 &&
			(oldest->first_seq == 0 || segments[i].first_seq < oldest->first_seq))
			oldest = &segments[i];
	if (oldest == &segments[current])
		return NULL;
	reason = find_reason(db, oldest->first_seq, oldest->last_seq, &sender);
	return sender ? reason : NULL;
}

/*
 * The facts about the segments, taken at one moment.
 */
static void
copy_log(ShardDatabase *db, ShardSegment *segments, int *current)
{
	LWLockAcquire(db->append_lock, LW_SHARED);
	memcpy(segments, db->log.segment, sizeof(db->log.segment));
	*current = db->log.current;
	LWLockRelease(db->append_lock);
}

/*
 * shard.inbox_segments() returns setof record
 *
 * segment, relid, bytes, rows, current, oldest, blocked_by. Seqs have gaps, so
 * rows is an upper bound, but no more than fit into the bytes. A segment that is just being emptied has
 * its bytes as long as they count against shard.inbox_max_size.
 */
Datum
shard_inbox_segments(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ShardDatabase *db;
	ShardSegment segments[SHARD_SEGMENTS];
	int current;
	char *sender;

	InitMaterializedSRF(fcinfo, 0);
	db = shard_shmem_database_or_make(MyDatabaseId);
	(void) shard_log_attach();
	copy_log(db, segments, &current);
	sender = sender_before(db, segments, current);
	for (int i = 0; i < SHARD_SEGMENTS; i++)
	{
		const ShardSegment *segment = &segments[i];
		bool empty = segment->first_seq == 0;
		int64 bytes = Max(bytes_of(segment->relid), (int64) segment->blocks * BLCKSZ);
		char *reason = NULL;
		Datum values[7];
		bool nulls[7] = {false};

		if (!empty && i != current)
			reason = sender != NULL
						 ? sender
						 : shard_inbox_segments_reason(db, segment->first_seq, segment->last_seq);
		values[0] = Int32GetDatum(i);
		values[1] = ObjectIdGetDatum(segment->relid);
		values[2] = Int64GetDatum(bytes);
		values[3] = Int64GetDatum(
			empty ? 0 : Min(segment->last_seq - segment->first_seq + 1, bytes / SHORTEST_ROW));
		values[4] = BoolGetDatum(i == current);
		values[5] = Int64GetDatum(segment->first_seq);
		nulls[5] = empty;
		values[6] = reason != NULL ? CStringGetTextDatum(reason) : (Datum) 0;
		nulls[6] = reason == NULL;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
