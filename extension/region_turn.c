/*
 * region_turn.c
 *		Turns of a region worker: one transaction each (doc/protocol.md D6, W1-W3).
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
 * If the process dies right here: the transaction is gone, and the next worker
 * reads the newest cursor row.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "executor.h"
#include "log.h"
#include "outbox.h"
#include "region_private.h"
#include "registry.h"
#include "routing.h"
#include "transport.h"
#include "worker.h"

#include "compat.h"

/* A turn ends after this time. */
#define TURN_MICROSECONDS (100 * INT64CONST(1000))

/* What a turn has to carry over its commit. */
typedef struct TurnResult
{
	int limit;	 /* of messages */
	bool more;	 /* there is more to do at once */
	bool clean;	 /* everything that could be seen is passed */
	bool parked; /* parked messages are left that could go on */
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

/*
 * Handles rows until the turn is long enough, or a shard is to be stopped, whose messages wait from that on;
 * *all: nothing readable is left.
 */
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
		if (shard_plane_is_ordered(region->db, region->lanes))
			return;
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

	shard_region_move(region);
	shard_region_accept_link(region);
	/* a turn that stops or seals does nothing else, so that it ends soon */
	result->parked = region->moves_wait;
	if (!region->moves_wait)
	{
		(void) shard_executor_stash(result->limit);
		result->parked = run_parked(region, start, result->limit);
		run_rows(region, snapshot, start, result->limit, &all);
	}
	result->asks = shard_region_run_asks(region, all);
	shard_executor_finish();
	write_log(region, result);
	result->more = !all || result->parked || shard_routing_is_left() ||
				   result->asks + region->forwards == SHARD_ASKS_PER_TURN;
	result->clean = all;
}

/*
 * The newest request of shard_drain; one at a time. Before the turn's transaction: so that sees what was
 * committed before the request, messages as well as the end of a type.
 */
static void
begin_drain(ShardRegion *region)
{
	ShardRegionDrain *drain = &region->drain;
	uint64 wanted = pg_atomic_read_u64(&region->slot->drain_wanted);

	if (drain->number != 0 || pg_atomic_read_u64(&region->slot->drain_done) >= wanted)
		return;
	*drain = (ShardRegionDrain){.number = wanted, .seq = shard_log_last_seq(region->db)};
}

void
shard_region_follow_drain(ShardRegion *region, bool clean)
{
	ShardRegionDrain *drain = &region->drain;

	if (drain->number == 0)
		return;
	if (!drain->passed && (clean || shard_cursor_has_left(region->cursor, drain->seq)))
	{
		drain->passed = true;
		drain->outbox = shard_outbox_mark();
	}

	/*
	 * A server that goes down lets nobody in to tell it marks. Messages that are stored at their home
	 * need it no more; what of them is still kept here, the next start asks for.
	 */
	if (!drain->passed || !shard_outbox_passed(drain->outbox, shard_worker_lingers()))
		return;
	pg_atomic_write_u64(&region->slot->drain_done, drain->number);
	drain->number = 0;
}

/*
 * Until when the log was looked at: while turns leave something to read, up to where it went at some
 * time, once that is passed.
 */
static void
follow_reading(ShardRegion *region, const TurnResult *result)
{
	if (result->clean && !result->parked)
	{
		shard_executor_has_read(result->start);
		region->reading.seq = 0;
	}
	else if (region->reading.seq == 0)
		region->reading = (ShardRegionReading){shard_log_last_seq(region->db), result->start};
	else if (!result->parked && shard_cursor_has_left(region->cursor, region->reading.seq))
	{
		shard_executor_has_read(region->reading.at);
		region->reading.seq = 0;
	}
}

void
shard_region_keep_log(ShardRegion *region)
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
	shard_region_follow_drain(region, result->clean);
	follow_reading(region, result);
	shard_region_keep_log(region);
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
		region->limit = region->streak >= 3 ? SHARD_CAREFUL_MESSAGES : 1;
		return;
	}
	if (region->careful)
	{
		if (!failed)
			region->streak = 0;
		region->careful = failed && region->streak >= 3;
		region->limit =
			region->careful ? SHARD_CAREFUL_MESSAGES : Max(region->limit, SHARD_CAREFUL_MESSAGES);
	}
	if (!region->careful)
		region->limit = Min(region->limit * 4, SHARD_TURN_MESSAGES);
}

/*
 * The last look at the lease, by the end that was known at the start (L5, L12): a newer one may be of another
 * grant.
 */
static void
check_lease(ShardRegion *region)
{
	if (region->lease == PG_INT64_MAX || shard_plane_now() + SHARD_LEASE_RESERVE < region->lease)
		return;
	region->lease_over = true;
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("the lease of this node ended during a turn of region worker %d",
						   region->number)));
}

/*
 * The process stood still between that look and the commit: this node may live elsewhere by now. What the
 * turn did stays in this database; nobody is told of it.
 */
static void
check_late(const ShardRegion *region)
{
	if (region->lease != PG_INT64_MAX && shard_plane_now() >= region->lease)
		ereport(FATAL, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("region worker %d committed a turn after the lease of this node",
							   region->number),
						errdetail("The machine or the process stood still.")));
}

/* One turn. Raises whatever happens in it. */
static bool
turn(ShardRegion *region)
{
	TurnResult result = {0};
	TimestampTz start;
	XLogRecPtr lsn = InvalidXLogRecPtr;

	region->busy = region->lease_over = false;
	region->lease = shard_plane_lease(region->db);
	begin_drain(region);
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
		result.limit = Min(result.limit, SHARD_CAREFUL_MESSAGES);
	shard_executor_set_limit(result.limit);
	shard_routing_begin();
	PopActiveSnapshot();

	shard_region_take_requests(region);
	result.errors = shard_executor_errors();
	result.start = start;
	shard_cursor_open(region->cursor);
	PushActiveSnapshot(GetTransactionSnapshot());
	handle(region, start, &result);
	shard_cursor_close(region->cursor);
	PopActiveSnapshot();
	shard_region_moves_before_commit(region);
	check_lease(region);
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
	{
		CommitTransactionCommand();
		lsn = XactLastCommitEnd;
	}
	else
		CommitTransactionCommand();

	region->committed = true;
	check_late(region);
	shard_region_moves_committed(region, lsn);

	/* what they need of the log is published before the position, which lets rotation take it */
	shard_outbox_committed(lsn);
	shard_routing_committed(lsn);
	shard_region_keep_log(region);
	shard_cursor_committed(region->cursor, result.record_seq);
	shard_executor_committed(lsn);
	shard_routing_forget_ended();
	shard_region_forward_asks(region, result.asks, lsn);
	publish(region, &result, lsn);
	region->committed = false;
	plan_after_success(region, shard_executor_errors() != result.errors);
	return result.more || region->moves_wait || region->careful || region->careful_next;
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
	else if (blamed || count <= SHARD_CAREFUL_MESSAGES || shard_routing_has_drained())
	{
		region->careful = true;
		region->limit = blamed && region->streak < 3 ? 1 : SHARD_CAREFUL_MESSAGES;
	}
	else
		region->limit = Max(SHARD_CAREFUL_MESSAGES, count / 2);
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
	bool overtaken = shard_executor_was_overtaken() || shard_routing_was_overtaken();

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
	shard_region_moves_aborted(region);
	RESUME_INTERRUPTS();
	MemoryContextSwitchTo(context);
	check_extension(region);
	error->elevel = LOG;
	if (!region->lease_over)
		plan_after_failure(region, error, count, blamed, overtaken);
	FreeErrorData(error);
}

bool
shard_region_turn(ShardRegion *region)
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
