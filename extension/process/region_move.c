/*
 * process/region_move.c
 *		Shards that leave this node, as the region worker sees them (M2, M3, M7).
 *
 * An order of the control worker stops a shard in the next turn, and the turn after that seals it; each is a step of
 * its ownership row (routing_move.c). Many orders share their turns and one flush. That a shard is sealed is told as
 * soon as the gate has let that commit pass, without waiting for it. Later its rows are deleted, some at a time,
 * between turns. So are those of a copy whose move was aborted, and those from before a shard began again here; that
 * shard begins in the turn after the deletion.
 *
 * A hint that a shard is about to be stopped is not used: origins keep what is refused, and send it to
 * the new home as soon as they hear of it.
 *
 * If the process dies right here: what the worker was asked is asked again (M11), and what it has done stands in
 * shard.own.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "registry/catalog.h"
#include "base/fault.h"
#include "shared/gate.h"
#include "process/region_private.h"
#include "registry/turn_lock.h"
#include "route/routing.h"

#include "base/compat.h"

/* Orders that one turn takes at most. */
#define ORDERS_PER_TURN 128

/* Rows that one transaction deletes at most. */
#define PURGE_ROWS 1000

/* How soon rows that another transaction held are looked at again, in ms. */
#define PURGE_AGAIN_MS 1000

/* How soon the gate is looked at again, in ms: no process is woken when it lets something pass. */
#define GATE_MS 5

/* How soon again when the control worker's queue was full. */
#define FULL_MS 100

/* Where a shard is on its way out. A turn sets next, its commit makes it true. */
typedef enum MoveStep
{
	MOVE_ORDERED = 1, /* to be stopped; -> STOPPING, SEALED, OVER */
	MOVE_STOPPING,	  /* the shard is stopping, to be sealed; -> SEALED, OVER */
	MOVE_CLEARED, /* the shard does not leave: its rows from before are gone, and it may begin; -> OVER */
	MOVE_SEALED, /* to be told; -> OVER */
	MOVE_OVER	 /* leaves the list */
} MoveStep;

typedef struct ShardRegionMove
{
	ShardShardRef ref;
	MoveStep step;
	MoveStep next;
	XLogRecPtr lsn; /* of the commit that sealed it, or one after that */
} ShardRegionMove;

/* Adds a shard to those that leave, unless it is among them. */
static void
add_move(ShardRegion *region, const ShardShardRef *ref, MoveStep step)
{
	for (int i = 0; i < region->move_count; i++)
	{
		const ShardShardRef *other = &region->moves[i].ref;

		if (other->type_id == ref->type_id && other->shard == ref->shard &&
			other->epoch == ref->epoch && other->move_id == ref->move_id)
			return;
	}
	if (region->move_count == region->move_space)
	{
		region->move_space = Max(64, region->move_space * 2);
		region->moves =
			region->moves == NULL
				? MemoryContextAlloc(TopMemoryContext, region->move_space * sizeof(ShardRegionMove))
				: repalloc(region->moves, region->move_space * sizeof(ShardRegionMove));
	}
	region->moves[region->move_count++] =
		(ShardRegionMove){.ref = *ref, .step = step, .next = step};
	region->moves_wait = true;
}

/* For shard_routing_each_stopping. */
static void
add_stopping(const ShardShardRef *ref, void *arg)
{
	add_move(arg, ref, MOVE_STOPPING);
}

void
shard_region_load_moves(ShardRegion *region)
{
	region->purge.memory =
		AllocSetContextCreate(TopMemoryContext, "shard purge", ALLOCSET_SMALL_SIZES);
	shard_routing_each_stopping(add_stopping, region);
}

static void
take_orders(ShardRegion *region)
{
	ShardShardRef orders[ORDERS_PER_TURN];
	int count = shard_board_take_orders(region->db, region->lanes, orders, lengthof(orders));

	for (int i = 0; i < count; i++)
		add_move(region, &orders[i], MOVE_ORDERED);
}

/* Carries out an order to stop; the step that the move is at then. */
static MoveStep
stop(const ShardRegionMove *move)
{
	switch (shard_routing_stop(&move->ref))
	{
		case SHARD_HANDOFF_DO:
			return MOVE_STOPPING;
		case SHARD_HANDOFF_DONE:
			return MOVE_SEALED;
		case SHARD_HANDOFF_IGNORE:
			break;
	}
	return MOVE_OVER;
}

void
shard_region_move(ShardRegion *region)
{
	take_orders(region);
	if (!region->moves_wait)
		return;
	for (int i = 0; i < region->move_count; i++)
	{
		ShardRegionMove *move = &region->moves[i];

		if (move->step == MOVE_ORDERED)
			move->next = stop(move);
		else if (move->step == MOVE_STOPPING)
			move->next = shard_routing_seal(&move->ref) ? MOVE_SEALED : MOVE_OVER;
		else if (move->step == MOVE_CLEARED)
		{
			shard_routing_start_again(&move->ref);
			move->next = MOVE_OVER;
		}
	}
}

/* Whether a move takes that step with this turn's commit. */
static bool
takes_step(const ShardRegion *region, MoveStep step)
{
	for (int i = 0; i < region->move_count; i++)
		if (region->moves[i].next == step && region->moves[i].step < step)
			return true;
	return false;
}

void
shard_region_moves_before_commit(const ShardRegion *region)
{
	shard_routing_before_commit();
	if (!region->moves_wait)
		return;
	if (takes_step(region, MOVE_STOPPING))
		shard_fault("m2_before_commit");
	if (takes_step(region, MOVE_SEALED))
		shard_fault("m3_before_commit");
}

/* Drops the moves that are over. */
static void
compact(ShardRegion *region)
{
	int kept = 0;

	for (int i = 0; i < region->move_count; i++)
		if (region->moves[i].step != MOVE_OVER)
			region->moves[kept++] = region->moves[i];
	region->move_count = kept;
}

void
shard_region_moves_committed(ShardRegion *region, XLogRecPtr lsn)
{
	bool stopped;

	shard_routing_after_commit(lsn);
	if (!region->moves_wait)
		return;
	stopped = takes_step(region, MOVE_STOPPING);
	region->moves_wait = false;
	for (int i = 0; i < region->move_count; i++)
	{
		ShardRegionMove *move = &region->moves[i];

		if (move->step < MOVE_SEALED && move->next == MOVE_SEALED)
		{
			/* the seal of a shard that was sealed before is not newer than the newest commit that is known */
			move->lsn = XLogRecPtrIsInvalid(lsn) ? shard_routing_lsn() : lsn;
			region->flush_wanted = true;
		}
		move->step = move->next;
		region->moves_wait |= move->step < MOVE_SEALED;
	}
	compact(region);
	if (stopped)
	{
#ifdef SHARD_ASSERTIONS
		XLogFlush(lsn);
#endif
		shard_fault("m2_after_commit");
	}
}

void
shard_region_moves_aborted(ShardRegion *region)
{
	for (int i = 0; i < region->move_count; i++)
		region->moves[i].next = region->moves[i].step;
}

bool
shard_region_report_sealed(ShardRegion *region)
{
	bool told = false;

	if (region->flush_wanted)
	{
		XLogRecPtr last = InvalidXLogRecPtr;

		for (int i = 0; i < region->move_count; i++)
			last = Max(last, region->moves[i].lsn);
		XLogFlush(last);
		region->flush_wanted = false;
		shard_fault("m3_after_commit");
	}
	for (int i = 0; i < region->move_count; i++)
	{
		ShardRegionMove *move = &region->moves[i];
		ShardBoardEvent event = {.kind = SHARD_EVENT_SHARD_STOPPED, .shard = move->ref};

		if (move->step != MOVE_SEALED || !shard_gate_released(move->lsn))
			continue;
		if (!shard_board_report(region->db, &event))
			break;
		move->step = move->next = MOVE_OVER;
		told = true;
	}
	if (told)
	{
		compact(region);
		shard_fault("m3_after_report");
	}
	return false;
}

/* ---- rows that are left ----------------------------------------------------------------------- */

/* One transaction of it, under the turn locks. Returns whether the shard has more. */
static bool
purge_some(ShardRegion *region)
{
	bool left;
	bool wrote;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (!shard_catalog_lock(true) || shard_catalog_get()->extension != region->extension ||
		!shard_turn_lock(region->lanes))
	{
		CommitTransactionCommand();
		region->purge.busy = true;
		return true;
	}
	PushActiveSnapshot(GetTransactionSnapshot());
	left = shard_routing_purge(&region->purged, &region->purge, PURGE_ROWS);
	PopActiveSnapshot();
	wrote = TransactionIdIsValid(GetTopTransactionIdIfAny());
	shard_fault("m7_before_commit");
	CommitTransactionCommand();
	shard_routing_purge_committed(wrote ? XactLastCommitEnd : InvalidXLogRecPtr);
	if (left)
		shard_fault("m7_after_commit");
	else if (shard_routing_is_clearing(&region->purged))
	{
		shard_fault("cleared");
		add_move(region, &region->purged, MOVE_CLEARED);
	}
	return left;
}

/* Goes on with another shard, if there is one. */
static void
purge_next(ShardRegion *region)
{
	MemoryContext memory = region->purge.memory;

	MemoryContextReset(memory);
	region->purge = (ShardStatePurge){.memory = memory};
	(void) shard_routing_next_purge(&region->purged);
}

bool
shard_region_purge(ShardRegion *region)
{
	TimestampTz now;
	volatile bool left = false;
	bool held;

	if (region->purged.type_id == 0)
		purge_next(region);
	if (region->purged.type_id == 0)
		return false;
	now = GetCurrentTimestamp();
	if (now < region->purge_at)
		return false;

	/* a purge that fails now is not tried again at once */
	region->purge_at = TimestampTzPlusMilliseconds(now, PURGE_AGAIN_MS);
	PG_TRY();
	{
		left = purge_some(region);
	}
	PG_CATCH();
	{
		shard_routing_purge_aborted();
		purge_next(region);
		PG_RE_THROW();
	}
	PG_END_TRY();
	held = left && region->purge.busy;
	if (held || !left)
		purge_next(region);
	if (!held)
		region->purge_at = 0;
	return !held;
}

long
shard_region_moves_due(const ShardRegion *region)
{
	if (region->move_count > 0)
		return region->flush_wanted ? 0 : GATE_MS;
	if (region->purge_at != 0)
		return Max(0, TimestampDifferenceMilliseconds(GetCurrentTimestamp(), region->purge_at));
	return -1;
}
