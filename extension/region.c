/*
 * region.c
 *		The region worker: turns of the lanes it owns (doc/protocol.md D6, W1-W3).
 *
 * One turn is one transaction: lock the extension object and the lanes' turn
 * locks, take asks, look at the sizes of the log, take the snapshot, handle
 * stashed messages that are due, then rows of the log, then asks; write states
 * and the cursor; commit without waiting for the disk. Who needs the commit to
 * be durable (an asker, shard_drain) flushes it himself.
 *
 * Nothing is waited for with a transaction open: locks of others are tried, not
 * queued for, with lock_timeout as the backstop inside handlers.
 *
 * A failure rolls the turn back. If it is a message's, the next turn ends
 * before it and the one after that runs it carefully (executor.c); if nobody is
 * to blame, turns are halved until they are careful. So a poisonous message
 * costs a few short turns, and the others go on.
 *
 * If the process dies right here: the transaction is gone, the launcher starts
 * another worker, which reads the newest cursor row. Asks that were taken are
 * answered "outcome unknown" by it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "cursor.h"
#include "executor.h"
#include "log.h"
#include "node.h"
#include "position_table.h"
#include "region.h"
#include "registry.h"
#include "ring.h"
#include "rotation.h"
#include "worker.h"

#include "compat.h"

/* A turn ends at this many messages or after this time, if there are so many. */
#define TURN_MESSAGES 50000
#define TURN_MICROSECONDS (100 * INT64CONST(1000))

/* Messages of a careful turn: each costs a subtransaction, and 64 overflow. */
#define CAREFUL_MESSAGES 32
#define ASKS_PER_TURN 32

/* The safety net for lost wake-ups, and for COMMIT PREPARED. */
#define POLL_MS 1000

/* Somebody has the extension or a lane: look again so soon. */
#define BUSY_MS 20

typedef struct Region
{
	ShardDatabase *db;
	int number;
	uint32 lanes;
	Oid extension;
	ShardWorkerSlot *slot;
	ShardCursor *cursor;
	MemoryContext ask_context;	 /* of requests */
	MemoryContext spare_context; /* empty, for compact_asks() */
	List *asks;					 /* ShardRequest *, oldest first */
	bool busy;					 /* the turn found a lock taken */

	/* how the next turn is to be run */
	bool careful;
	bool careful_next; /* the one after it */
	int limit;
	int streak;	   /* failures since the last clean careful turn */
	int overtaken; /* turns in a row */
	int troubles;  /* failures in a row that are no message's */
} Region;

/* What a turn has to carry over its commit. */
typedef struct TurnResult
{
	int limit;	  /* of messages */
	bool more;	  /* there is more to do at once */
	bool clean;	  /* everything that could be seen is passed */
	uint64 drain; /* request that was there before the snapshot */
	int64 record_seq;
	int64 pass_wanted; /* rotation's wish, */
	bool in_the_way;   /* which was not fulfilled yet */
	int asks;		   /* the first so many are answered */
	uint64 errors;
	TimestampTz start;
} TurnResult;

/*
 * The owner's lock of a lane (W2). A session lock of the user method, because
 * an abort releases session locks of the default one. SQL has no name for its
 * last field, but pg_advisory_unlock_all() releases it: see still_owns().
 */
static void
owner_tag(LOCKTAG *tag, int lane)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, shard_catalog_get()->node, lane, 3);
}

/* Takes all lanes, or ends the process: another worker has one still. */
static void
own_lanes(Region *region)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		LOCKTAG tag;

		if ((region->lanes & (1u << lane)) == 0)
			continue;
		owner_tag(&tag, lane);
		if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
			ereport(FATAL, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("lane %d is still owned by another region worker", lane)));
	}
}

/*
 * The turn locks (W3). Their mode conflicts with itself, so turns of two
 * workers, and the reading of a position, can never overlap, whatever became
 * of the owners' locks; and with that of a seal.
 */
static bool
lock_turn(Region *region)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		LOCKTAG tag;

		if ((region->lanes & (1u << lane)) == 0)
			continue;
		SET_LOCKTAG_OBJECT(tag, MyDatabaseId, shard_catalog_get()->node, lane, 0);
		if (LockAcquire(&tag, ShareUpdateExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
			return false;
	}
	return true;
}

/*
 * At the start of a turn. A handler of the last one may have released the
 * owners' locks; another worker may have been at work since, so what is known
 * here is void.
 */
static void
check_lanes(Region *region)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		LOCKTAG tag;

		if ((region->lanes & (1u << lane)) == 0)
			continue;
		owner_tag(&tag, lane);
		if (!ShardLockHeldByMe(&tag, ExclusiveLock))
			ereport(FATAL, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("a handler released the region worker's locks"),
							errhint("Do not call pg_advisory_unlock_all() in a handler.")));
	}
}

/*
 * Releases advisory locks that handlers left behind, which survive commit and
 * abort. Ours go with them for a moment, in which the turn locks keep others out.
 */
static bool
release_advisory_locks(Region *region)
{
	StartTransactionCommand();
	if (shard_catalog_lock(true) && shard_catalog_get()->extension == region->extension &&
		lock_turn(region))
	{
		check_lanes(region);
		LockReleaseAll(USER_LOCKMETHOD, true);
		own_lanes(region);
	}
	CommitTransactionCommand();
	return false;
}

/*
 * No constraint is deferred, from the start: a deferred trigger of a user's
 * would run at commit, with this worker's rights.
 */
static void
make_constraints_immediate(void)
{
	ConstraintsSetStmt *statement = makeNode(ConstraintsSetStmt);

	statement->constraints = NIL;
	statement->deferred = false;
	AfterTriggerSetState(statement);
}

/* Takes new requests; reports are answered at once. */
static void
take_requests(Region *region)
{
	MemoryContext old;
	List *taken;
	ListCell *cell;

	taken = shard_ring_take(region->db, region->number, region->ask_context);
	old = MemoryContextSwitchTo(region->ask_context);
	foreach (cell, taken)
	{
		ShardRequest *request = lfirst(cell);

		if (request->kind == SHARD_REQUEST_ASK)
			region->asks = lappend(region->asks, request);
		else
		{
			StringInfoData report;

			initStringInfo(&report);
			shard_executor_report(request->kind, &report);
			shard_ring_reply(request, report.data, report.len, InvalidXLogRecPtr);
			pfree(report.data);
		}
	}
	MemoryContextSwitchTo(old);
}

/* Moves the asks that wait on into fresh memory, so that those answered leave none behind. */
static void
compact_asks(Region *region)
{
	MemoryContext fresh = region->spare_context;
	MemoryContext old = MemoryContextSwitchTo(fresh);
	List *kept = NIL;
	ListCell *cell;

	foreach (cell, region->asks)
	{
		ShardRequest *request = lfirst(cell);
		ShardRequest *copy = palloc(sizeof(ShardRequest));

		*copy = *request;
		if (request->payload != NULL)
		{
			copy->payload = palloc(request->payload_len);
			memcpy(copy->payload, request->payload, request->payload_len);
		}
		kept = lappend(kept, copy);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(region->ask_context);
	region->spare_context = region->ask_context;
	region->ask_context = fresh;
	region->asks = kept;
}

/* Handles rows until the turn is long enough; *all: nothing readable is left. */
static void
run_rows(Region *region, Snapshot snapshot, TimestampTz start, int limit, bool *all)
{
	ShardRow row;

	*all = false;
	while (shard_executor_count() < limit && !shard_executor_is_full())
	{
		if (!shard_cursor_peek(region->cursor, snapshot, &row))
		{
			*all = true;
			return;
		}
		shard_executor_row(&row);
		shard_cursor_accept(region->cursor);
		if ((shard_executor_count() & 15) == 0 && GetCurrentTimestamp() - start > TURN_MICROSECONDS)
			return;
	}
}

/* Runs the asks whose turn it is; returns how many of the list are done. */
static int
run_asks(Region *region, bool all)
{
	int done = 0;
	List *later = NIL;
	List *now = NIL;
	ListCell *cell;
	MemoryContext old = MemoryContextSwitchTo(region->ask_context);

	foreach (cell, region->asks)
	{
		ShardRequest *request = lfirst(cell);

		if (!shard_ring_alive(request))
			continue;
		if (done < ASKS_PER_TURN &&
			(all || shard_cursor_has_passed(region->cursor, request->after)) &&
			shard_executor_can_ask(request))
		{
			now = lappend(now, request);
			done++;
		}
		else
			later = lappend(later, request);
	}
	region->asks = list_concat(list_copy(now), later);
	MemoryContextSwitchTo(old);
	foreach (cell, now)
		shard_executor_ask(lfirst(cell));
	return done;
}

/* The turn's work between its snapshot and its commit. */
static void
handle(Region *region, TimestampTz start, TurnResult *result)
{
	Snapshot snapshot = GetActiveSnapshot();
	bool all = false;

	(void) shard_executor_stash(result->limit);
	run_rows(region, snapshot, start, result->limit, &all);
	result->asks = run_asks(region, all);
	shard_executor_finish();

	result->pass_wanted = pg_atomic_read_u64(&region->slot->pass_wanted);
	result->in_the_way = !shard_cursor_is_past(region->cursor, result->pass_wanted);
	if (shard_executor_has_passed() ||
		(result->in_the_way && shard_cursor_would_help(region->cursor, result->pass_wanted)))
	{
		shard_cursor_save(region->cursor);
		result->record_seq = shard_log_flush();
	}
	result->more = !all || result->asks == ASKS_PER_TURN;
	result->clean = all;
}

/* Publishes what the turn did. */
static void
publish(Region *region, const TurnResult *result, XLogRecPtr lsn)
{
	ShardWorkerSlot *slot = region->slot;

	pg_atomic_write_u64(&slot->messages, shard_executor_messages());
	pg_atomic_write_u64(&slot->errors, shard_executor_errors());
	pg_atomic_write_u64(&slot->cache_entities, shard_cache_entities());
	pg_atomic_write_u64(&slot->cache_bytes, shard_cache_bytes());
	if (!XLogRecPtrIsInvalid(lsn))
	{
		pg_atomic_fetch_add_u64(&slot->turns, 1);
		pg_atomic_write_u64(&slot->commit_lsn, lsn);
	}
	if (result->clean)
	{
		pg_atomic_write_u64(&slot->drain_done, result->drain);
		pg_atomic_write_u64(&slot->caught_up_at, result->start);
	}
	if (result->in_the_way && shard_cursor_is_past(region->cursor, result->pass_wanted))
		shard_shmem_wake_worker(region->db, shard_shmem_lane_worker(region->db, 0));
}

/* How the turn after a good one is to be run. */
static void
plan_after_success(Region *region, bool failed)
{
	region->overtaken = region->troubles = 0;
	if (region->careful_next)
	{
		region->careful_next = false;
		region->careful = true;
		region->limit = region->streak >= 3 ? CAREFUL_MESSAGES : 1;
		return;
	}
	if (region->careful)
	{
		if (!failed)
			region->streak = 0;
		region->careful = failed && region->streak >= 3;
		region->limit = region->careful ? CAREFUL_MESSAGES : Max(region->limit, CAREFUL_MESSAGES);
	}
	if (!region->careful)
		region->limit = Min(region->limit * 4, TURN_MESSAGES);
}

/* One turn. Raises whatever happens in it. */
static bool
turn(Region *region)
{
	TurnResult result = {0};
	TimestampTz start;
	XLogRecPtr lsn = InvalidXLogRecPtr;

	region->busy = false;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	start = GetCurrentTransactionStartTimestamp();
	if (!shard_catalog_lock(true) || !lock_turn(region))
	{
		CommitTransactionCommand();
		region->busy = true;
		return false;
	}
	if (shard_catalog_get()->extension != region->extension)
	{
		CommitTransactionCommand();
		shard_worker_leave_absent();
	}
	check_lanes(region);
	make_constraints_immediate();
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_registry_refresh();
	result.limit = region->limit;
	if (shard_executor_begin(region->careful))
		result.limit = Min(result.limit, CAREFUL_MESSAGES);
	PopActiveSnapshot();

	take_requests(region);
	result.drain = pg_atomic_read_u64(&region->slot->drain_wanted);
	result.errors = shard_executor_errors();
	result.start = start;
	shard_cursor_open(region->cursor);
	PushActiveSnapshot(GetTransactionSnapshot());
	handle(region, start, &result);
	shard_cursor_close(region->cursor);
	PopActiveSnapshot();
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
	{
		CommitTransactionCommand();
		lsn = XactLastCommitEnd;
	}
	else
		CommitTransactionCommand();

	shard_cursor_committed(region->cursor, result.record_seq);
	shard_executor_committed(lsn);
	region->asks = list_delete_first_n(region->asks, result.asks);
	compact_asks(region);
	publish(region, &result, lsn);
	plan_after_success(region, shard_executor_errors() != result.errors);
	return result.more || region->careful || region->careful_next;
}

/* How the turn after a failed one is to be run. */
static void
plan_after_failure(Region *region, ErrorData *error, int count, bool blamed, bool overtaken)
{
	region->careful_next = false;
	if (overtaken && ++region->overtaken < 3)
		return;
	if (region->careful)
	{
		/* no message's fault: the disk, memory, a damaged table, an operator */
		region->troubles++;
		if (region->troubles == 1 || region->troubles % 100 == 0)
			ThrowErrorData(error);
		return;
	}
	region->streak++;
	if (blamed && count > 1)
	{
		region->limit = count - 1;
		region->careful_next = true;
	}
	else if (blamed || count <= CAREFUL_MESSAGES)
	{
		region->careful = true;
		region->limit = blamed && region->streak < 3 ? 1 : CAREFUL_MESSAGES;
	}
	else
		region->limit = Max(CAREFUL_MESSAGES, count / 2);
}

/* Ends the process if the extension is gone or another one. */
static void
check_extension(Region *region)
{
	const ShardCatalog *catalog;
	bool gone;

	StartTransactionCommand();
	catalog = shard_catalog_find();
	gone = catalog == NULL || catalog->extension != region->extension;
	CommitTransactionCommand();
	if (gone)
		shard_worker_leave_absent();
}

/* Cleans up after an error in a turn. */
static void
recover(Region *region, MemoryContext context)
{
	ErrorData *error;
	int count = shard_executor_count();
	bool blamed = shard_executor_blames_last();
	bool overtaken = shard_executor_was_overtaken();

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	HOLD_INTERRUPTS();
	AbortCurrentTransaction();
	shard_executor_explain(error);
	shard_cursor_aborted(region->cursor);
	shard_executor_aborted();
	RESUME_INTERRUPTS();
	MemoryContextSwitchTo(context);
	check_extension(region);
	error->elevel = LOG;
	plan_after_failure(region, error, count, blamed, overtaken);
	FreeErrorData(error);
}

/* A turn that survives its errors. Returns whether to come again at once. */
static bool
fenced_turn(Region *region)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool more = true;

	PG_TRY();
	{
		more = turn(region);
	}
	PG_CATCH();
	{
		recover(region, context);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return more;
}

/* Rotation, whose failure harms nobody: it is tried again later. */
static bool
rotate(Region *region)
{
	return (region->lanes & 1) != 0 && shard_rotation_run(region->db, region->extension);
}

/* Housekeeping that survives its errors. Returns whether to come again at once. */
static bool
fenced_chore(Region *region, bool (*chore)(Region *region))
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool more = false;

	PG_TRY();
	{
		more = chore(region);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return more;
}

/* How long there is nothing to do, in ms. */
static long
idle_time(Region *region)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = TimestampTzPlusMilliseconds(now, POLL_MS);
	TimestampTz due = shard_executor_next_due();
	TimestampTz passivation = shard_cache_passivate(now);

	if (region->troubles > 0)
		return shard_worker_backoff(region->troubles);
	if (region->busy)
		return BUSY_MS;
	if (due != 0)
		next = Min(next, due);
	if (passivation != 0)
		next = Min(next, passivation);
	return Max(0, TimestampDifferenceMilliseconds(now, next));
}

/* Reads position and stash; waits while the node's identity is not clear. */
static void
load(Region *region, uint32 wait_event)
{
	for (;;)
	{
		bool clear;

		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		clear = shard_catalog_lock(true) && lock_turn(region);
		if (clear)
		{
			region->extension = shard_catalog_get()->extension;
			PushActiveSnapshot(GetTransactionSnapshot());
			clear = shard_node_is_clear(region->db);
			if (clear)
			{
				own_lanes(region);
				shard_registry_refresh();
				shard_executor_load_stash(region->lanes);
				shard_position_load(region->db);
			}
			PopActiveSnapshot();
		}
		if (clear)
		{
			shard_cursor_open(region->cursor);
			PushActiveSnapshot(GetTransactionSnapshot());
			shard_cursor_load(region->cursor);
			shard_cursor_revisit(region->cursor);
			shard_position_loaded(region->db, region->lanes);
			shard_cursor_publish(region->cursor);
			PopActiveSnapshot();
		}
		CommitTransactionCommand();
		if (clear)
			return;
		shard_worker_wait(POLL_MS, wait_event);
	}
}

void
ShardRegionMain(Datum argument)
{
	Region region = {.limit = TURN_MESSAGES};
	uint32 wait_event;
	uint64 cleaned = 0;
	TimestampTz cleaned_at = 0;

	region.db = shard_worker_start(argument, &region.number);
	wait_event = ShardWaitEvent("ShardRegionMain");
	region.slot = shard_shmem_my_worker();
	region.lanes = shard_shmem_worker_lanes(region.db, region.number);
	region.ask_context =
		AllocSetContextCreate(TopMemoryContext, "shard asks", ALLOCSET_DEFAULT_SIZES);
	region.spare_context =
		AllocSetContextCreate(TopMemoryContext, "shard asks", ALLOCSET_DEFAULT_SIZES);
	shard_ring_attach(region.db, region.number);
	shard_executor_init(region.lanes);
	if (pg_atomic_exchange_u32(&region.slot->batch_stuck, 0) != 0)
	{
		region.careful = true;
		region.limit = CAREFUL_MESSAGES;
	}
	region.cursor = shard_cursor_create(region.number, region.lanes);
	shard_cursor_register(SHARD_KIND_POSITION, shard_position_row);
	MemoryContextSwitchTo(TopMemoryContext);
	load(&region, wait_event);
	for (;;)
	{
		bool more = fenced_turn(&region);

		more |= fenced_chore(&region, rotate);
		if (shard_executor_messages() != cleaned &&
			(!more || TimestampDifferenceExceeds(cleaned_at, GetCurrentTimestamp(), POLL_MS)))
		{
			(void) fenced_chore(&region, release_advisory_locks);
			cleaned = shard_executor_messages();
			cleaned_at = GetCurrentTimestamp();
		}
		if (more && region.troubles == 0)
		{
			shard_worker_interrupts();
			continue;
		}
		shard_executor_sleep();
		shard_worker_wait(idle_time(&region), wait_event);
	}
}
