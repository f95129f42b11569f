/*
 * shared/stream_position.c
 *		Streams from peers: up to where each was received, in shared memory (X3).
 *
 * A hash table for all databases, and per database which lanes are ready, and which processes wait. Entries are a cache
 * of committed rows: a process that dies between commit and shard_stream_position_set() takes the server down, and the
 * table is rebuilt; any other end of a process comes before or after both.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

#include "shared/stream_position.h"
#include "base/clock.h"

#include "base/compat.h"

#define TRANCHE_NAME "shard positions"

/* Streams of all databases of a server: all lanes each of 512 pairs of a database and a peer. */
#define MAX_STREAMS (512 * SHARD_LANES)

typedef struct PositionDatabase
{
	Oid node;				/* table shard.node of the extension that the rest is about */
	pg_atomic_uint64 ready; /* mask of lanes */
	pg_atomic_uint32 waiters;
	ConditionVariable moved; /* a position changed; signalled if there are waiters */
} PositionDatabase;

typedef struct PositionShared
{
	LWLock *lock; /* guards the table, and node */
	PositionDatabase database[SHARD_MAX_DATABASES];
} PositionShared;

static PositionShared *shared = NULL;
static HTAB *streams = NULL;

static Size
shmem_size(void)
{
	return add_size(MAXALIGN(sizeof(PositionShared)),
					hash_estimate_size(MAX_STREAMS, sizeof(ShardPeerPosition)));
}

static void
request(void)
{
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

/* Makes or finds it. The caller holds AddinShmemInitLock. */
static void
startup(void)
{
	HASHCTL info = {.keysize = sizeof(ShardStreamPositionKey),
					.entrysize = sizeof(ShardPeerPosition)};
	bool found;

	shared = ShmemInitStruct("shard positions", sizeof(PositionShared), &found);
	streams =
		ShmemInitHash("shard streams", MAX_STREAMS, MAX_STREAMS, &info, HASH_ELEM | HASH_BLOBS);
	if (found)
		return;
	shared->lock = &GetNamedLWLockTranche(TRANCHE_NAME)->lock;
	for (int i = 0; i < SHARD_MAX_DATABASES; i++)
	{
		PositionDatabase *database = &shared->database[i];

		database->node = InvalidOid;
		pg_atomic_init_u64(&database->ready, 0);
		pg_atomic_init_u32(&database->waiters, 0);
		ConditionVariableInit(&database->moved);
	}
}

static PositionDatabase *
database_of(const ShardDatabase *db)
{
	return &shared->database[shard_shmem_database_index(db)];
}

/* Removes the streams of a database. Under the lock. */
static void
remove_streams(Oid dboid)
{
	HASH_SEQ_STATUS scan;
	ShardPeerPosition *entry;

	hash_seq_init(&scan, streams);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (entry->key.dboid == dboid)
			(void) hash_search(streams, &entry->key, HASH_REMOVE, NULL);
}

void
shard_stream_position_free(ShardDatabase *db, Oid dboid)
{
	PositionDatabase *database = database_of(db);

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	database->node = InvalidOid;
	pg_atomic_write_u64(&database->ready, 0);
	if (OidIsValid(dboid))
		remove_streams(dboid);
	LWLockRelease(shared->lock);
}

bool
shard_stream_position_is_ready(ShardDatabase *db, Oid node, int lane)
{
	PositionDatabase *database = database_of(db);
	bool ready;

	LWLockAcquire(shared->lock, LW_SHARED);
	ready = database->node == node &&
			(pg_atomic_read_u64(&database->ready) & shard_lane_bit(lane)) != 0;
	LWLockRelease(shared->lock);
	return ready;
}

bool
shard_stream_position_get(const ShardStreamPositionKey *key, ShardPeerPosition *position)
{
	const ShardPeerPosition *entry;

	memset(position, 0, sizeof(ShardPeerPosition));
	position->key = *key;
	LWLockAcquire(shared->lock, LW_SHARED);
	entry = hash_search(streams, key, HASH_FIND, NULL);
	if (entry != NULL)
		*position = *entry;
	LWLockRelease(shared->lock);
	return entry != NULL;
}

/* The entry of a stream, made if it is not there; NULL if there is no room. Under the lock. */
static ShardPeerPosition *
make_entry(const ShardStreamPositionKey *key)
{
	bool found;
	ShardPeerPosition *entry = NULL;

	if (hash_get_num_entries(streams) < MAX_STREAMS ||
		hash_search(streams, key, HASH_FIND, NULL) != NULL)
		entry = hash_search(streams, key, HASH_ENTER_NULL, &found);
	if (entry != NULL && !found)
	{
		memset(entry, 0, sizeof(ShardPeerPosition));
		entry->key = *key;
	}
	return entry;
}

void
shard_stream_position_reserve(const ShardStreamPositionKey *key)
{
	const ShardPeerPosition *entry;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	entry = make_entry(key);
	LWLockRelease(shared->lock);
	if (entry == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many streams from other nodes"),
				 errdetail("At most %d streams can come to the databases of a server: %d for "
						   "each node that sends to a database.",
						   MAX_STREAMS, SHARD_LANES)));
}

void
shard_stream_position_set(ShardDatabase *db, const ShardPeerPosition *position)
{
	PositionDatabase *database = database_of(db);
	ShardPeerPosition *entry;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	entry = hash_search(streams, &position->key, HASH_FIND, NULL);
	if (entry != NULL)
	{
		int32 quarantine = entry->quarantine;

		*entry = *position;
		entry->quarantine = quarantine;
	}
	LWLockRelease(shared->lock);

	/* the lock's release and acquisition order this against a waiter's look */
	if (pg_atomic_read_u32(&database->waiters) > 0)
		ConditionVariableBroadcast(&database->moved);
}

void
shard_stream_position_set_quarantine(const ShardStreamPositionKey *key, int32 quarantine)
{
	ShardPeerPosition *entry;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	entry = hash_search(streams, key, HASH_FIND, NULL);
	if (entry != NULL)
		entry->quarantine = quarantine;
	LWLockRelease(shared->lock);
}

/* Copies the streams of a database into list, at most as many as there is room for; returns how many there are. */
static int
copy_streams(Oid dboid, ShardPeerPosition *list, int room)
{
	HASH_SEQ_STATUS scan;
	const ShardPeerPosition *entry;
	int count = 0;

	LWLockAcquire(shared->lock, LW_SHARED);
	hash_seq_init(&scan, streams);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (entry->key.dboid != dboid)
			continue;
		if (count < room)
			list[count] = *entry;
		count++;
	}
	LWLockRelease(shared->lock);
	return count;
}

ShardPeerPosition *
shard_stream_position_list(Oid dboid, int *count)
{
	int room = copy_streams(dboid, NULL, 0);

	for (;;)
	{
		ShardPeerPosition *list = palloc(Max(room, 1) * sizeof(ShardPeerPosition));

		*count = copy_streams(dboid, list, room);
		if (*count <= room)
			return list;
		pfree(list);
		room = *count;
	}
}

/*
 * Whether an entry still equals what was written. Its position may have moved since, to a row of another segment, which
 * its row_seq, a lower bound, need not show.
 */
static bool
is_written(const ShardPeerPosition *entry, const ShardPeerPosition *written)
{
	return entry->row_seq == written->row_seq && entry->stream.inc == written->stream.inc &&
		   entry->stream.gen == written->stream.gen && entry->stream.seq == written->stream.seq;
}

void
shard_stream_position_set_in_table(const ShardPeerPosition *list, int count)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
	{
		ShardPeerPosition *entry = hash_search(streams, &list[i].key, HASH_FIND, NULL);

		if (entry != NULL && is_written(entry, &list[i]))
			entry->in_table = true;
	}
	LWLockRelease(shared->lock);
}

/* ---- waiting ---------------------------------------------------------------------------------- */

static bool
has_received(const ShardStreamPositionKey *key, int64 seq)
{
	ShardPeerPosition position;

	return shard_stream_position_get(key, &position) && position.stream.seq >= seq;
}

/* Sleeps until a position moves or time is up; the waiter is counted and prepared. */
static bool
sleep_until_received(PositionDatabase *database, const ShardStreamPositionKey *key, int64 seq,
					 int64 microseconds)
{
	static uint32 wait_event = 0;
	int64 start = shard_clock_now();

	if (wait_event == 0)
		wait_event = ShardWaitEvent("ShardPosition");
	while (!has_received(key, seq))
	{
		int64 left = microseconds - (shard_clock_now() - start);

		if (left <= 0)
			return false;
		(void) ConditionVariableTimedSleep(&database->moved,
										   (long) Min(left / 1000 + 1, INT64CONST(60000)),
										   wait_event);
	}
	return true;
}

bool
shard_stream_position_wait(ShardDatabase *db, const ShardStreamPositionKey *key, int64 seq,
						   int64 microseconds)
{
	PositionDatabase *database = database_of(db);
	volatile bool received = false;

	if (has_received(key, seq))
		return true;
	pg_atomic_fetch_add_u32(&database->waiters, 1);
	PG_TRY();
	{
		ConditionVariablePrepareToSleep(&database->moved);
		received = sleep_until_received(database, key, seq, microseconds);
	}
	PG_FINALLY();
	{
		ConditionVariableCancelSleep();
		pg_atomic_fetch_sub_u32(&database->waiters, 1);
	}
	PG_END_TRY();
	return received;
}

/* ---- start ------------------------------------------------------------------------------------ */

/*
 * The first worker of an extension begins with no streams: those here may be of an extension that was dropped.
 */
void
shard_stream_position_begin(ShardDatabase *db, Oid node)
{
	PositionDatabase *database = database_of(db);

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (database->node != node)
	{
		remove_streams(MyDatabaseId);
		pg_atomic_write_u64(&database->ready, 0);
		database->node = node;
	}
	LWLockRelease(shared->lock);
}

/*
 * A row that can be seen after the start of the server was flushed, or recovered, before now; one that
 * was committed since is known already with its LSN. So the flush position of now stands for it.
 */
void
shard_stream_position_found(const ShardPeerPosition *position)
{
	XLogRecPtr flushed = GetFlushRecPtr(NULL);
	ShardPeerPosition *entry;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	entry = make_entry(&position->key);
	if (entry != NULL && (entry->stream.inc == 0 || entry->row_seq < position->row_seq))
	{
		XLogRecPtr lsn = Max(entry->lsn, flushed);
		int32 quarantine = Max(entry->quarantine, position->quarantine);

		*entry = *position;
		entry->lsn = lsn;
		entry->quarantine = quarantine;
	}
	LWLockRelease(shared->lock);
	if (entry == NULL)
		shard_stream_position_reserve(&position->key);
}

void
shard_stream_position_ready(ShardDatabase *db, Oid node, ShardLanes lanes)
{
	PositionDatabase *database = database_of(db);

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (database->node == node)
		pg_atomic_fetch_or_u64(&database->ready, (int64) lanes);
	LWLockRelease(shared->lock);
}

/* ---- rows ------------------------------------------------------------------------------------- */

void
shard_stream_position_put(StringInfo out, const ShardStreamPositionKey *key,
						  const ShardStreamPosition *stream)
{
	ShardStreamPositionSection section = {.lane = key->lane,
										  .channel = key->channel,
										  .inc = stream->inc,
										  .gen = stream->gen,
										  .seq = stream->seq,
										  .writer = stream->writer};

	shard_wire_put_int(out, key->origin);
	shard_packet_put_position(out, &section);
}

bool
shard_stream_position_parse(const char *bytes, int length, ShardPeerPosition *position)
{
	ShardReader reader = {.at = bytes, .end = bytes + length};
	ShardStreamPositionSection section;

	memset(position, 0, sizeof(ShardPeerPosition));
	position->key.dboid = MyDatabaseId;
	position->key.origin = shard_wire_get_int32(&reader);
	if (reader.failed || !shard_packet_get_position(&reader, &section))
		return false;
	position->key.lane = section.lane;
	position->key.channel = section.channel;
	position->stream = (ShardStreamPosition){.inc = section.inc,
											 .gen = section.gen,
											 .seq = section.seq,
											 .writer = section.writer};
	return true;
}

const ShardShmemPart shard_stream_position_part = {
	.size = shmem_size,
	.startup = startup,
	.request = request,
	.free = shard_stream_position_free,
};
