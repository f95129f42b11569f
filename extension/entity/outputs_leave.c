/*
 * entity/outputs_leave.c
 *		What entities of a shard with replicas have told becomes messages, once the turns are released (Q29).
 *
 * Comes from: the region worker, in a turn. Goes to: output_address.c, for where each goes, and the log. The turn's record says up
 * to where outputs were appended (section ODONE), and is one commit with their rows.
 *
 * If the process dies right here: outputs.c says what the next worker finds.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/fault.h"
#include "entity/internal.h"
#include "entity/outputs_private.h"
#include "entity/record.h"

#include "base/compat.h"

/* Outputs that leave in one turn; one at least. */
#define MOST_IN_TURN 10000

/* Before the next look for the place of an output, in microseconds: while a session reshards, and while it cannot be found. */
#define BUSY_PAUSE (INT64CONST(20) * 1000)
#define UNPLACED_PAUSE (INT64CONST(1000) * 1000)

/* How far the running turn has come with a shard. */
typedef struct Leaving
{
	ShardReplicaShard *shard;
	int64 oseq; /* appended up to here */
} Leaving;

static List *leaving = NIL; /* Leaving *, in the turn's memory */
static int left = 0;
static Size left_bytes = 0;

/* The next output had no place, and is looked at after a pause; or it had. */
static void
set_pause(ShardReplicaShard *shard, ShardOutputPlace place)
{
	shard->paused = 0;
	if (place == SHARD_OUTPUT_BUSY)
		shard->paused = shard_clock_now() + BUSY_PAUSE;
	else if (place == SHARD_OUTPUT_UNPLACED)
		shard->paused = shard_clock_now() + UNPLACED_PAUSE;
	shard->unplaced = place == SHARD_OUTPUT_UNPLACED;
}

/* It is a message of this node from here on. False: it stays, for it has no place now. *slow: set if code of its receiver's owner ran. */
static bool
append(ShardReplicaShard *shard, const ShardTurnOutput *output, bool *slow)
{
	ShardOutputPlace place;
	ShardRow row = {.type_id = output->type_id,
					.shard = output->shard,
					.kind = output->kind,
					.entity = output->entity,
					.entity_len = output->entity_len,
					.payload = output->payload,
					.payload_len = output->payload_len,
					.epoch = -1};

	if (output->src_entity_len > 0)
	{
		row.src_type = shard->key.type_id;
		row.src_entity = output->src_entity;
		row.src_entity_len = output->src_entity_len;
	}
	place = shard_output_address(&row);
	*slow |= place != SHARD_OUTPUT_PLACED;
	if (unlikely(place != SHARD_OUTPUT_PLACED || shard->paused != 0))
		set_pause(shard, place);
	if (unlikely(shard->paused != 0))
		return false;
	shard_log_append(&row);
	left++;
	left_bytes += output->payload_len;
	return true;
}

/* The items were written here, or are of a record that has its sum. */
static void
damaged(const ShardReplicaShard *shard, int64 turn)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED), errmsg("the outputs of turn " INT64_FORMAT
													 " of shard %d of entity type %d are damaged",
													 turn, shard->key.shard, shard->key.type_id)));
}

/* Whether the turn appends no more. Appending alone takes no time to speak of; each turn does one at least. */
static bool
is_enough(bool slow)
{
	return left >= MOST_IN_TURN || left_bytes >= SHARD_OUTPUTS_BYTES ||
		   (unlikely(slow) && shard_turn_is_late());
}

/* Returns how far it came. *slow: as append() says. */
static int64
leave_of(ShardReplicaShard *shard, bool *slow)
{
	int64 oseq = shard->done;
	dlist_iter iter;

	dlist_foreach (iter, &shard->outputs)
	{
		const Outputs *outputs = dlist_container(Outputs, node, iter.cur);
		ShardReader items;
		ShardTurnOutput output;

		if (!shard_replica_is_released(&shard->home, outputs->turn) || is_enough(*slow))
			break;
		if (outputs->items == NULL)
			shard_outputs_fill(shard, outputs->turn);
		if (outputs->items == NULL)
		{
			shard->unread = outputs->turn;
			break;
		}
		items = (ShardReader){outputs->items, outputs->items + outputs->len};
		for (int i = 0; i < outputs->count; i++)
		{
			if (!shard_turn_get_output(&items, &output))
				damaged(shard, outputs->turn);
			if (outputs->first + i <= oseq)
				continue;
			if (is_enough(*slow) || !append(shard, &output, slow))
				return oseq;
			oseq = outputs->first + i;
		}
	}
	return oseq;
}

bool
shard_outputs_leave(void)
{
	dlist_mutable_iter iter;
	bool slow = false;

	left = 0;
	left_bytes = 0;
	if (likely(dlist_is_empty(&shard_outputs_due)))
		return false;
	dlist_foreach_modify (iter, &shard_outputs_due)
	{
		ShardReplicaShard *shard = dlist_container(ShardReplicaShard, due_node, iter.cur);
		MemoryContext old;
		Leaving *one;
		int64 oseq;

		if (shard_outputs_pause_left(shard) > 0)
			continue;
		oseq = leave_of(shard, &slow);
		if (oseq == shard->done)
		{
			if (!shard_outputs_may_leave(shard))
				shard_outputs_not_due(shard);
			continue;
		}
		shard_record_done(shard->key.type_id, shard->key.shard, oseq);
		shard_fault_step("output_left");
		old = MemoryContextSwitchTo(shard_turn.context);
		one = palloc(sizeof(Leaving));
		*one = (Leaving){shard, oseq};
		leaving = lappend(leaving, one);
		MemoryContextSwitchTo(old);
	}
	return left > 0;
}

void
shard_outputs_committed(void)
{
	ListCell *cell;

	foreach (cell, leaving)
	{
		const Leaving *one = lfirst(cell);

		shard_outputs_not_due(one->shard);
		shard_outputs_done(one->shard, one->oseq);
		shard_outputs_released(one->shard);
	}
	leaving = NIL;
}

void
shard_outputs_aborted(void)
{
	leaving = NIL;
}
