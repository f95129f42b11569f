/*
 * process/region_turn.c
 *		Turns of a region worker: one transaction each (doc/protocol.md D6, W1-W3).
 *
 * One turn is one transaction: lock the extension and the lanes' turn locks, take asks, look at the sizes of the log,
 * take the snapshot, handle stashed messages that are due, then rows of the log, then asks; write states and the
 * cursor; commit without waiting for the disk. A process that needs the commit to be durable (an asker, shard_drain)
 * flushes it itself.
 *
 * Nothing is waited for with a transaction open: locks of others are tried, not
 * queued for, with lock_timeout as the backstop inside handlers.
 *
 * A failure rolls the turn back. If it is a message's, the next turn ends before it and the one after that runs it
 * carefully (turn.c); if no message is known to be at fault, turns become shorter until one is (region_plan.c). So a
 * poisonous message costs a few short turns, and the others go on.
 *
 * If the process dies right here: the transaction is gone, and the next worker
 * reads the newest cursor row.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/attempt.h"
#include "log/buffer.h"
#include "registry/catalog.h"
#include "entity/outputs.h"
#include "entity/record.h"
#include "entity/replica_home.h"
#include "entity/replica_inputs.h"
#include "entity/turn.h"
#include "base/guc.h"
#include "log/log.h"
#include "link/outbox.h"
#include "process/region_private.h"
#include "registry/turn_lock.h"
#include "registry/registry.h"
#include "process/rotation.h"
#include "route/routing.h"
#include "link/transport.h"
#include "process/worker.h"
#include "base/constraints.h"

#include "base/compat.h"

/* The most that one turn recounts; a piece that was begun is finished. */
#define RECOUNT_MICROSECONDS 10000
#define RECOUNT_MESSAGES 10000

/* The time for which a turn puts messages aside. */
#define ASIDE_MICROSECONDS (500 * INT64CONST(1000))

/*
 * Whether messages from there are handled in this turn. One that looks for a message that failed leaves the
 * others alone, so that it comes to it.
 */
static bool
takes(const ShardRegion *region, ShardSource source)
{
	return region->only == SHARD_SOURCES || region->only == source;
}

/*
 * Up to which seq the log is to be left behind because others need the room; 0: the room is not needed, or the turn
 * looks for a message that failed.
 */
static int64
pressed_upto(const ShardRegion *region)
{
	if (region->only != SHARD_SOURCES || region->careful_next)
		return 0;
	return shard_rotation_presses(region->db);
}

/*
 * Whether the turn ends now, so that its position is committed, though a source had nothing yet: a call took long, and
 * others wait for the room. In the next turn it has.
 */
static bool
gives_way(const ShardRegion *region)
{
	int64 upto = pressed_upto(region);

	return upto != 0 && !shard_cursor_is_past(region->cursor, upto) && shard_turn_is_late();
}

/*
 * Puts messages up to a seq into the stash, as many as the turn may; *all: nothing readable is left. Returns whether
 * there were any: rows of a sender whose transaction is still open cannot be moved.
 */
static bool
put_aside(ShardRegion *region, Snapshot snapshot, int64 upto, bool *all)
{
	TimestampTz end = GetCurrentTimestamp() + ASIDE_MICROSECONDS;
	bool any = false;
	ShardRow row;

	shard_turn_begin_source(SHARD_SOURCE_LOG);
	shard_turn_put_aside(true);
	for (;;)
	{
		if (!shard_cursor_peek(region->cursor, snapshot, &row))
		{
			*all = true;
			break;
		}
		if (row.seq > upto)
			break;
		if (GetCurrentTimestamp() > end || shard_turn_is_large())
			break;
		shard_routing_row(&row);
		shard_cursor_accept(region->cursor);
		any = true;
	}
	shard_turn_put_aside(false);
	return any;
}

/*
 * Handles rows until the turn is over, or a shard is to be stopped, whose messages wait from that on; *all:
 * nothing readable is left.
 */
static void
run_rows(ShardRegion *region, Snapshot snapshot, bool *all)
{
	ShardRow row;

	shard_turn_begin_source(SHARD_SOURCE_LOG);
	while (!shard_turn_is_over())
	{
		if (!shard_cursor_peek(region->cursor, snapshot, &row))
		{
			*all = true;
			return;
		}
		shard_routing_row(&row);
		shard_cursor_accept(region->cursor);
		if (!region->careful_next && shard_board_is_ordered(region->db, region->lanes))
			return;
	}
}

/* Parked messages that can go on. Returns whether some are left. */
static bool
run_parked(void)
{
	bool left = true;

	shard_turn_begin_source(SHARD_SOURCE_PARKED);
	while (left && !shard_turn_is_over())
		left = shard_routing_drain();
	return left;
}

/* Writes what the turn has to write beside states: packets, what rotation waits for, the cursor. */
static void
write_log(ShardRegion *region, ShardTurnResult *result)
{
	int64 leave;
	bool wrote;

	result->pass_wanted = pg_atomic_read_u64(&region->slot->pass_wanted);
	result->in_the_way = !shard_cursor_is_past(region->cursor, result->pass_wanted);
	leave = result->in_the_way ? result->pass_wanted : 0;
	shard_transport_replies_leave(leave);
	wrote = shard_timer_fire(shard_cursor_has_met(region->cursor, shard_timer_on_its_way()));
	wrote |= shard_routing_leave(leave);
	wrote |= shard_outbox_leave(leave);
	wrote |= shard_outputs_leave();
	shard_routing_inputs_leave();
	shard_outbox_flush();
	shard_routing_set_promise();
	shard_routing_record_marks();
	wrote |= shard_record_write();
	if (shard_turn_has_passed() || wrote ||
		(result->in_the_way && shard_cursor_would_help(region->cursor, result->pass_wanted)))
	{
		shard_cursor_save(region->cursor);
		result->record_seq = shard_log_flush();
	}
}

/* A piece of the next. Returns whether there is more. */
static bool
recount_some(ShardRegion *region, int64 *messages)
{
	if (region->recounts_parked)
		return region->recounts_parked = shard_routing_recount(messages);
	region->recounts_parked = !shard_recount_some(region->lanes, messages);
	return true;
}

/*
 * Compares what memory counts with the tables, if the turn has nothing else to do, and not for more than a hundredth of
 * the time. Many messages may be held and parked, so a turn compares a part of them only.
 */
static void
recount(ShardRegion *region)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz interval = region->recounts ? 0 : shard_recount_interval * INT64CONST(1000);
	int64 messages = 0;

	if (shard_recount_interval == 0 ||
		now - region->recounted_at < Max(interval, 100 * region->recount_took))
		return;
	do
	{
		region->recounts = recount_some(region, &messages);
		region->recounted_at = GetCurrentTimestamp();
		region->recount_took = region->recounted_at - now;
	} while (region->recounts && messages < RECOUNT_MESSAGES &&
			 region->recount_took < RECOUNT_MICROSECONDS);
	elog(DEBUG1, "region worker %d recounted " INT64_FORMAT " messages%s", region->number, messages,
		 region->recounts ? "" : ", which were the last");
}

/* The turn's work between its snapshot and its commit. */
static void
handle(ShardRegion *region, ShardTurnResult *result)
{
	Snapshot snapshot = GetActiveSnapshot();
	int64 aside = pressed_upto(region);
	bool all = false;

	shard_region_move(region);
	shard_region_accept_link(region);
	/* a turn that stops or seals does nothing else, so that it ends soon; nor does one that puts aside */
	result->moves = result->parked = region->moves_wait;
	if (!result->moves && aside != 0 && !shard_cursor_has_left(region->cursor, aside) &&
		put_aside(region, snapshot, aside, &all))
		result->parked = result->asks_left = true;
	else if (!result->moves)
	{
		if (takes(region, SHARD_SOURCE_HELD))
			shard_stash_run_due();
		result->parked = !takes(region, SHARD_SOURCE_PARKED) || gives_way(region) || run_parked();
		if (takes(region, SHARD_SOURCE_LOG) && !gives_way(region))
			run_rows(region, snapshot, &all);
		result->asks_left = gives_way(region);
	}
	if (!result->asks_left)
		result->asks = shard_region_run_asks(region, all, &result->asks_left);
	if (!result->moves && takes(region, SHARD_SOURCE_RECOVERY))
		shard_recovery_run();
	if (all && !result->parked && shard_turn_count() == 0)
		recount(region);
	shard_turn_finish();
	write_log(region, result);
	result->more = !all || result->parked || shard_stash_is_left() || shard_routing_is_left() ||
				   result->asks_left || shard_turn_has_put_off() ||
				   shard_recovery_next_due() <= result->start;
	result->clean = all;
}

/*
 * The newest request of shard_drain; one at a time. Called before the turn's transaction, so that the transaction sees
 * all that was committed before the request, messages as well as the end of a type.
 */
static void
begin_drain(ShardRegion *region)
{
	ShardRegionDrain *drain = &region->drain;
	uint64 wanted = pg_atomic_read_u64(&region->slot->drain_wanted);

	/* the backend that wants the drain counts on the lanes that this worker is to have */
	pg_read_barrier();
	if (drain->number != 0 || pg_atomic_read_u64(&region->slot->drain_done) >= wanted ||
		region->lanes != shard_shmem_worker_lanes(region->db, region->number))
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
		shard_replica_shards_note();
	}

	/*
	 * A server that goes down lets no node in to tell it marks. Messages that are stored at their home need it no more;
	 * what of them is still kept here, the next start asks for.
	 */
	if (!drain->passed || !shard_outbox_passed(drain->outbox, shard_worker_lingers()) ||
		!shard_replica_shards_have_shown())
		return;
	pg_atomic_write_u64(&region->slot->drain_done, drain->number);
	drain->number = 0;
}

/*
 * Until when the log was looked at: while turns leave something to read, up to where it went at some
 * time, once that is passed.
 */
static void
follow_reading(ShardRegion *region, const ShardTurnResult *result)
{
	if (result->clean && !result->parked)
	{
		shard_turn_has_read(result->start);
		region->reading.seq = 0;
	}
	else if (region->reading.seq == 0)
		region->reading = (ShardRegionReading){shard_log_last_seq(region->db), result->start};
	else if (!result->parked && shard_cursor_has_left(region->cursor, region->reading.seq))
	{
		shard_turn_has_read(region->reading.at);
		region->reading.seq = 0;
	}
}

void
shard_region_keep_log(ShardRegion *region)
{
	const int64 *inputs = shard_replica_inputs_needed();

	shard_each_lane (lane, region->lanes)
	{
		int64 outbox = shard_outbox_needed(lane);
		int64 routing = shard_routing_needed(lane);
		int64 replies = shard_transport_replies_needed(lane);

		int64 needed = Min(Min(outbox, routing), replies);

		if (unlikely(inputs != NULL))
			needed = Min(needed, inputs[lane]);
		shard_cursor_keep(region->cursor, lane, needed);
	}
}

/* Tells how far the turn has brought things, for shard_health. */
static void
publish_progress(const ShardRegion *region, const ShardTurnResult *result)
{
	bool moved = shard_turn_has_passed() || result->asks > 0 ||
				 (result->clean && !result->parked && !shard_stash_is_left());
	bool looked = !result->parked && !shard_stash_is_left();

	shard_shmem_turn_done(region->slot, moved, looked ? result->start : 0);
}

/* Publishes what the turn did. */
static void
publish(ShardRegion *region, const ShardTurnResult *result, XLogRecPtr lsn)
{
	ShardWorkerSlot *slot = region->slot;

	pg_atomic_write_u64(&slot->messages, shard_turn_messages());
	pg_atomic_write_u64(&slot->errors, shard_turn_errors());
	pg_atomic_write_u64(&slot->recounts, shard_turn_recounts());
	pg_atomic_write_u64(&slot->cache_entities, shard_cache_entities());
	pg_atomic_write_u64(&slot->cache_bytes, shard_cache_bytes());
	if (!XLogRecPtrIsInvalid(lsn))
	{
		pg_atomic_fetch_add_u64(&slot->turns, 1);
		pg_atomic_write_u64(&slot->commit_lsn, lsn);
	}
	if (result->clean)
		pg_atomic_write_u64(&slot->caught_up_at, result->start);
	publish_progress(region, result);
	shard_region_follow_drain(region, result->clean);
	follow_reading(region, result);
	shard_region_keep_log(region);
}

/*
 * The last look at the lease, by the end that was known at the start (L5, L12): a newer one may be of another
 * grant.
 */
static void
check_lease(ShardRegion *region)
{
	if (region->lease == PG_INT64_MAX || shard_clock_now() + SHARD_LEASE_RESERVE < region->lease)
		return;
	region->lease_over = true;
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("the lease of this node ended during a turn of region worker %d",
						   region->number)));
}

/*
 * The process stood still between that look and the commit: this node may live elsewhere by now. What the turn did
 * stays in this database; no other node or client is told of it.
 */
static void
check_late(const ShardRegion *region)
{
	if (region->lease != PG_INT64_MAX && shard_clock_now() >= region->lease)
		ereport(FATAL, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("region worker %d committed a turn after the lease of this node",
							   region->number),
						errdetail("The machine or the process stood still.")));
}

/* One turn. Raises whatever happens in it. */
static bool
turn(ShardRegion *region)
{
	ShardTurnResult result = {0};
	TimestampTz start;
	XLogRecPtr lsn = InvalidXLogRecPtr;
	bool writes;

	region->busy = region->lease_over = false;
	region->lease = shard_board_lease(region->db);
	begin_drain(region);
	SetCurrentStatementStartTimestamp();
	shard_shmem_turn_began(region->slot, GetCurrentStatementStartTimestamp());
	StartTransactionCommand();
	start = GetCurrentTransactionStartTimestamp();
	if (!shard_catalog_lock(true) || !shard_turn_lock(region->lanes))
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
	shard_constraints_immediate();
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_registry_refresh();
	if (region->number == shard_shmem_caretaker(region->db))
		shard_buffer_warn();
	result.limit = region->limit;
	if (shard_turn_begin(region->careful))
		result.limit = Min(result.limit, SHARD_CAREFUL_MESSAGES);
	shard_turn_set_limit(result.limit, region->careful_next);
	shard_turn_set_single(region->single);
	shard_routing_begin();
	PopActiveSnapshot();

	shard_region_take_requests(region);
	result.errors = shard_turn_errors();
	result.start = start;
	shard_cursor_open(region->cursor, false);
	PushActiveSnapshot(GetTransactionSnapshot());
	handle(region, &result);
	shard_cursor_close(region->cursor);
	PopActiveSnapshot();
	shard_region_moves_before_commit(region);
	check_lease(region);
	writes = TransactionIdIsValid(GetTopTransactionIdIfAny());
	shard_turn_begin_commit();
	CommitTransactionCommand();
	if (writes)
		lsn = XactLastCommitEnd;

	/* no cancel may come between the commit and what memory makes of it */
	HOLD_CANCEL_INTERRUPTS();
	result.ran = shard_turn_end_commit();
	region->committed = true;
	check_late(region);
	shard_region_moves_committed(region, lsn);

	/* first of all the record: what else is told of the turn asks for its release */
	shard_record_committed(lsn);

	/* which rows they need is published before the position, which lets rotation empty segments */
	shard_outbox_committed(lsn);
	shard_routing_committed(lsn);
	shard_routing_replies_committed();
	shard_region_keep_log(region);
	shard_cursor_committed(region->cursor, result.record_seq);
#ifdef SHARD_MUTANT_READS_UNGATED
	shard_turn_committed(lsn);
#else
	/* the newest commit that an answer may depend on, also if this turn wrote nothing (D20) */
	shard_turn_committed(shard_routing_lsn());
#endif
	shard_timer_due_committed(result.record_seq);
	shard_routing_forget_ended();
	shard_region_forward_asks(region, result.asks, lsn);
	publish(region, &result, lsn);
	region->committed = false;
	RESUME_CANCEL_INTERRUPTS();
	shard_region_plan_after_success(region, &result, shard_turn_errors() != result.errors);
	return result.more || region->moves_wait || region->careful || region->careful_next;
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

/* Tells of a failed turn, and at which entity it was, for shard_health. */
static void
publish_failure(const ShardRegion *region, const ErrorData *error)
{
	int32 type_id = 0;
	const char *entity = "";
	int entity_len = 0;
	char id[SHARD_MAX_ENTITY_ID + 1];

	(void) shard_turn_at(&type_id, &entity, &entity_len);
	memcpy(id, entity, entity_len);
	id[entity_len] = '\0';
	shard_shmem_turn_failed(region->slot, type_id, id,
							error->message != NULL ? error->message : "");
}

/* Cleans up after an error in a turn. */
static void
recover(ShardRegion *region, MemoryContext context)
{
	ErrorData *error;
	ShardTurnFailure failure = {.count = shard_turn_count(),
								.blamed = shard_turn_blames_last(),
								.overtaken = shard_turn_was_overtaken() ||
											 shard_routing_was_overtaken() ||
											 shard_cursor_was_overtaken(region->cursor)};

	MemoryContextSwitchTo(context);
	error = shard_attempt_take_error();

	/* Memory is neither as before the commit nor as after it: the next worker reads everything again. */
	if (region->committed)
	{
		error->elevel = FATAL;
		ThrowErrorData(error);
	}
	HOLD_INTERRUPTS();
	failure.ran = shard_turn_failed_at_commit(error, &failure.overtaken);
	AbortCurrentTransaction();
	MemoryContextSwitchTo(error->assoc_context);
	shard_turn_explain(error);
	if (failure.ran == 1)
		failure.only = shard_turn_blame(error);
	publish_failure(region, error);
	shard_cursor_aborted(region->cursor);
	shard_record_aborted();
	shard_turn_aborted();
	shard_outbox_aborted();
	shard_routing_aborted();
	shard_routing_replies_aborted();
	shard_region_moves_aborted(region);
	RESUME_INTERRUPTS();
	MemoryContextSwitchTo(context);
	check_extension(region);
	error->elevel = LOG;
	if (!region->lease_over)
		shard_region_plan_after_failure(region, error, &failure);
	shard_attempt_free_error(error);
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
	shard_shmem_turn_ended(region->slot);
	MemoryContextSwitchTo(context);
	return more;
}
