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
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "executor.h"
#include "log.h"
#include "node.h"
#include "outbox.h"
#include "position_table.h"
#include "region.h"
#include "region_private.h"
#include "registry.h"
#include "remote_ask.h"
#include "rotation.h"
#include "routing.h"
#include "transport.h"
#include "worker.h"

#include "compat.h"

/* A turn ends at this many messages or after this time, if there are so many. */
#define TURN_MESSAGES 50000
#define TURN_MICROSECONDS (100 * INT64CONST(1000))

/* Messages of a careful turn: each costs a subtransaction, and 64 overflow. */
#define CAREFUL_MESSAGES 32

/* The safety net for lost wake-ups, and for COMMIT PREPARED. */
#define POLL_MS 1000

/* Somebody has the extension or a lane: look again so soon. */
#define BUSY_MS 20

/* What a turn has to carry over its commit. */
typedef struct TurnResult
{
	int limit;	/* of messages */
	bool more;	/* there is more to do at once */
	bool clean; /* everything that could be seen is passed */
	int64 record_seq;
	int64 pass_wanted; /* rotation's wish, */
	bool in_the_way;   /* which was not fulfilled yet */
	int asks;		   /* the first so many are answered */
	uint64 errors;
	TimestampTz start;
} TurnResult;

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

/* Handles rows until the turn is long enough; *all: nothing readable is left. */
static void
run_rows(ShardRegion *region, Snapshot snapshot, TimestampTz start, int limit, bool *all)
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
		shard_routing_row(&row);
		shard_cursor_accept(region->cursor);
		if ((shard_executor_count() & 15) == 0 && GetCurrentTimestamp() - start > TURN_MICROSECONDS)
			return;
	}
}

/* Parked messages that can go on; those of a careful turn are few. Returns whether some are left. */
static bool
run_parked(ShardRegion *region, TimestampTz start, int limit)
{
	bool left;

	if (shard_executor_count() >= limit || shard_executor_is_full())
		return true;
	left = shard_routing_drain();
	while (left && !region->careful && shard_executor_count() < limit &&
		   !shard_executor_is_full() && GetCurrentTimestamp() - start < TURN_MICROSECONDS)
		left = shard_routing_drain();
	return left;
}

/* Writes what the turn has to write beside states: packets, what rotation waits for, the cursor. */
static void
write_log(ShardRegion *region, TurnResult *result)
{
	int64 leave;
	bool wrote;

	result->pass_wanted = pg_atomic_read_u64(&region->slot->pass_wanted);
	result->in_the_way = !shard_cursor_is_past(region->cursor, result->pass_wanted);
	leave = result->in_the_way ? result->pass_wanted : 0;
	wrote = shard_routing_leave(leave);
	wrote |= shard_outbox_leave(leave);
	shard_outbox_flush();
	if (shard_executor_has_passed() || wrote ||
		(result->in_the_way && shard_cursor_would_help(region->cursor, result->pass_wanted)))
	{
		shard_cursor_save(region->cursor);
		result->record_seq = shard_log_flush();
	}
}

/* The turn's work between its snapshot and its commit. */
static void
handle(ShardRegion *region, TimestampTz start, TurnResult *result)
{
	Snapshot snapshot = GetActiveSnapshot();
	bool all = false;
	bool parked;

	shard_region_accept_link(region);
	(void) shard_executor_stash(result->limit);
	parked = run_parked(region, start, result->limit);
	run_rows(region, snapshot, start, result->limit, &all);
	result->asks = shard_region_run_asks(region, all);
	shard_executor_finish();
	write_log(region, result);
	result->more = !all || parked || shard_routing_is_left() ||
				   result->asks + region->forwards == SHARD_ASKS_PER_TURN;
	result->clean = all;
}

/* The newest request of shard_drain; one at a time. Before the turn's snapshot. */
static void
begin_drain(ShardRegion *region)
{
	ShardRegionDrain *drain = &region->drain;
	uint64 wanted = pg_atomic_read_u64(&region->slot->drain_wanted);

	if (drain->number != 0 || pg_atomic_read_u64(&region->slot->drain_done) >= wanted)
		return;
	*drain = (ShardRegionDrain){.number = wanted, .seq = shard_log_last_seq(region->db)};
}

/*
 * After a turn's commit, and when the outbox changed: is the request of shard_drain fulfilled? First
 * all that was there before must be passed, then what that put into the outbox must be done.
 */
static void
follow_drain(ShardRegion *region, bool clean)
{
	ShardRegionDrain *drain = &region->drain;

	if (drain->number == 0)
		return;
	if (!drain->passed && (clean || shard_cursor_has_left(region->cursor, drain->seq)))
	{
		drain->passed = true;
		drain->outbox = shard_outbox_mark();
	}
	if (!drain->passed || !shard_outbox_passed(drain->outbox))
		return;
	pg_atomic_write_u64(&region->slot->drain_done, drain->number);
	drain->number = 0;
}

/* What others than the cursor need of the log, for rotation. */
static void
keep_log(ShardRegion *region)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if ((region->lanes & (1u << lane)) != 0)
			shard_cursor_keep(region->cursor, lane,
							  Min(shard_outbox_needed(lane), shard_routing_needed(lane)));
}

/* Publishes what the turn did. */
static void
publish(ShardRegion *region, const TurnResult *result, XLogRecPtr lsn)
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
		pg_atomic_write_u64(&slot->caught_up_at, result->start);
	follow_drain(region, result->clean);
	keep_log(region);
	if (result->in_the_way && shard_cursor_is_past(region->cursor, result->pass_wanted))
		shard_shmem_wake_worker(region->db, shard_shmem_lane_worker(region->db, 0));
}

/* How the turn after a good one is to be run. */
static void
plan_after_success(ShardRegion *region, bool failed)
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
turn(ShardRegion *region)
{
	TurnResult result = {0};
	TimestampTz start;
	XLogRecPtr lsn = InvalidXLogRecPtr;

	region->busy = false;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	start = GetCurrentTransactionStartTimestamp();
	if (!shard_catalog_lock(true) || !shard_region_lock_turn(region))
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
	shard_region_check_lanes(region);
	make_constraints_immediate();
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_registry_refresh();
	result.limit = region->limit;
	if (shard_executor_begin(region->careful))
		result.limit = Min(result.limit, CAREFUL_MESSAGES);
	shard_routing_begin();
	PopActiveSnapshot();

	shard_region_take_requests(region);
	begin_drain(region);
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

	region->committed = true;

	/* what they need of the log is published before the position, which lets rotation take it */
	shard_outbox_committed(lsn);
	shard_routing_committed(lsn);
	keep_log(region);
	shard_cursor_committed(region->cursor, result.record_seq);
	shard_executor_committed(lsn);
	shard_region_forward_asks(region, result.asks, lsn);
	publish(region, &result, lsn);
	region->committed = false;
	plan_after_success(region, shard_executor_errors() != result.errors);
	return result.more || region->careful || region->careful_next;
}

/* How the turn after a failed one is to be run. */
static void
plan_after_failure(ShardRegion *region, ErrorData *error, int count, bool blamed, bool overtaken)
{
	int before;

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
	if (shard_routing_was_draining(&before))
		count = before + 1;
	region->streak++;
	if (blamed && count > 1)
	{
		region->limit = count - 1;
		region->careful_next = true;
	}
	else if (blamed || count <= CAREFUL_MESSAGES || shard_routing_has_drained())
	{
		region->careful = true;
		region->limit = blamed && region->streak < 3 ? 1 : CAREFUL_MESSAGES;
	}
	else
		region->limit = Max(CAREFUL_MESSAGES, count / 2);
}

/* Ends the process if the extension is gone or another one. */
static void
check_extension(ShardRegion *region)
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
recover(ShardRegion *region, MemoryContext context)
{
	ErrorData *error;
	int count = shard_executor_count();
	bool blamed = shard_executor_blames_last();
	bool overtaken = shard_executor_was_overtaken();

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();

	/* What is in memory tells neither of the time before the commit nor after it: the next worker reads. */
	if (region->committed)
	{
		error->elevel = FATAL;
		ThrowErrorData(error);
	}
	HOLD_INTERRUPTS();
	AbortCurrentTransaction();
	shard_executor_explain(error);
	shard_cursor_aborted(region->cursor);
	shard_executor_aborted();
	shard_outbox_aborted();
	shard_routing_aborted();
	RESUME_INTERRUPTS();
	MemoryContextSwitchTo(context);
	check_extension(region);
	error->elevel = LOG;
	plan_after_failure(region, error, count, blamed, overtaken);
	FreeErrorData(error);
}

/* A turn that survives its errors. Returns whether to come again at once. */
static bool
fenced_turn(ShardRegion *region)
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

/* Housekeeping that survives its errors. Returns whether to come again at once. */
static bool
fenced_chore(ShardRegion *region, bool (*chore)(ShardRegion *region))
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

/* Rotation, whose failure harms nobody: it is tried again later. */
static bool
rotate(ShardRegion *region)
{
	return (region->lanes & 1) != 0 && shard_rotation_run(region->db, region->extension);
}

/* Links to other nodes. */
static bool
talk(ShardRegion *region)
{
	return shard_transport_run();
}

/* Homes that are still wanted. */
static bool
want_homes(ShardRegion *region)
{
	(void) shard_routing_ask();
	return false;
}

/* What the outbox needs no more. */
static bool
follow_outbox(ShardRegion *region)
{
	if (shard_outbox_changed())
	{
		keep_log(region);
		follow_drain(region, false);
	}
	return false;
}

/*
 * Ends the process, because this database has become a node of another cluster: what is in memory
 * belongs to the old one. The launcher starts another worker.
 */
static void
leave_node(const ShardRegion *region, int32 node)
{
	ereport(LOG,
			(errmsg("region worker %d begins anew: this database is node %d of another cluster now",
					region->number, node)));
	proc_exit(1);
}

/*
 * Looks who the node is, and whether turns may be run (I4). Before the first message for another node
 * under an incarnation its lineage is written (X4). A chore: returns whether to come again at once.
 */
static bool
follow_plane(ShardRegion *region)
{
	ShardPlaneView view;

	if (shard_plane_generation(region->db) == region->generation)
		return false;
	shard_plane_get(region->db, &view);
	region->handles = false;
	if (view.handle)
	{
		if (view.node != region->self || !shard_record_uuid_equal(view.cluster, region->cluster))
			leave_node(region, view.node);
		if (view.push && !shard_record_uuid_equal(view.incarnation, region->incarnation))
		{
			shard_outbox_begin_incarnation(view.node, view.inc_no, view.incarnation);
			region->incarnation = view.incarnation;
		}
		shard_routing_follow(&view);
		region->handles = true;
	}
	region->generation = view.generation;
	return true;
}

/* How long there is nothing to do, in ms. */
static long
idle_time(ShardRegion *region)
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

/* The shorter of two pauses; -1: none. */
static long
shorter(long pause, long other)
{
	return other >= 0 && (pause < 0 || other < pause) ? other : pause;
}

/* How long to wait for something to happen. */
static long
pause_of(ShardRegion *region)
{
	long pause = region->handles ? idle_time(region) : POLL_MS;

	pause = shorter(pause, shard_transport_due());
	pause = shorter(pause, shard_remote_ask_due());
	if (region->handles)
		pause = shorter(pause, shard_routing_ask());
	return pause;
}

/* Reads what is durable, in a transaction. */
static void
read_all(ShardRegion *region)
{
	ShardRoutes *routes;

	shard_region_own_lanes(region);
	shard_registry_refresh();
	routes = shard_routing_load(region->db, region->lanes, region->self);
	shard_executor_load_stash(region->lanes);
	shard_position_load(region->db);
	PopActiveSnapshot();

	shard_cursor_open(region->cursor);
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_cursor_load(region->cursor);
	shard_outbox_load(region->db, region->lanes, routes);
	shard_cursor_revisit(region->cursor);
	shard_position_loaded(region->db, region->lanes);
	keep_log(region);
	shard_cursor_publish(region->cursor);
	shard_transport_start(region->db, region->number, region->lanes, routes);
	shard_remote_ask_start(region->db, region->number);
}

/* Does the coordinator worker say that messages may be handled here? Notes who the node is. */
static bool
may_handle(ShardRegion *region)
{
	ShardPlaneView view;

	shard_plane_get(region->db, &view);
	region->self = view.node;
	region->cluster = view.cluster;
	return view.handle;
}

/* Reads position, routes and stash; waits while the node's identity is not clear. */
static void
load(ShardRegion *region, uint32 wait_event)
{
	for (;;)
	{
		bool clear;

		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		clear = shard_catalog_lock(true) && shard_region_lock_turn(region);
		if (clear)
		{
			region->extension = shard_catalog_get()->extension;
			PushActiveSnapshot(GetTransactionSnapshot());
			clear = shard_node_is_clear(region->db) && may_handle(region);
			if (clear)
				read_all(region);
			PopActiveSnapshot();
		}
		CommitTransactionCommand();
		if (clear)
			return;
		(void) fenced_chore(region, shard_region_answer_reports);
		shard_worker_wait(POLL_MS, wait_event);
	}
}

/* Turns and all around them, until there is nothing to do at once. */
static bool
work(ShardRegion *region)
{
	bool more = fenced_chore(region, follow_plane);

	if (region->handles)
		more |= fenced_turn(region);
	if (!region->handles || region->troubles > 0)
		(void) fenced_chore(region, shard_region_answer_reports);
	more |= fenced_chore(region, talk);
	(void) fenced_chore(region, want_homes);
	more |= fenced_chore(region, shard_region_poll_asks);
	(void) fenced_chore(region, follow_outbox);
	more |= fenced_chore(region, rotate);
	return more;
}

void
ShardRegionMain(Datum argument)
{
	ShardRegion region = {.limit = TURN_MESSAGES};
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
		bool more = work(&region);

		if (shard_executor_messages() != cleaned &&
			(!more || TimestampDifferenceExceeds(cleaned_at, GetCurrentTimestamp(), POLL_MS)))
		{
			(void) fenced_chore(&region, shard_region_release_locks);
			cleaned = shard_executor_messages();
			cleaned_at = GetCurrentTimestamp();
		}
		if (more && region.troubles == 0)
		{
			shard_worker_interrupts();
			continue;
		}
		shard_executor_sleep();
		shard_worker_wait(pause_of(&region), wait_event);
	}
}
