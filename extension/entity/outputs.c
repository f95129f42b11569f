/*
 * entity/outputs.c
 *		What entities tell: to the log at once, or, if the shard has replicas, once the turn is released (Q29).
 *
 * Comes from: functions that handlers call (sql/send), request.c and stop_row.c, while the turn runs; replica_home.c, when
 * turns are released. Goes to: the log, or record.c; and to the log again in a later turn (outputs_leave.c).
 *
 * If the process dies right here: before that commit the outputs are in the records of their turns, which the next worker
 * finds; after it they are in the log, and the record says so. So each leaves once.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/clock.h"
#include "core/base/message.h"
#include "entity/internal.h"
#include "entity/outputs_private.h"
#include "entity/record.h"
#include "entity/replica_home.h"
#include "log/session.h"
#include "log/turn_chain.h"

#include "base/compat.h"

/* Outputs that wait in memory have these bytes at most; others are in their records alone. */
#define MOST_WAITING ((Size) 64 * 1024 * 1024)

static MemoryContext memory = NULL; /* of outputs that wait, */
static Size waiting = 0;			/* and the bytes of their items */

/* Shards of which some are released. */
dlist_head shard_outputs_due = DLIST_STATIC_INIT(shard_outputs_due);

bool
shard_outputs_tell(const ShardRow *row)
{
	const ShardEntity *at = shard_turn.at;
	ShardTurnOutput output = {.kind = row->kind,
							  .type_id = row->type_id,
							  .shard = row->shard,
							  .entity = row->entity,
							  .entity_len = row->entity_len,
							  .payload = row->payload,
							  .payload_len = row->payload_len};

#ifndef SHARD_MUTANT_OUTPUTS_AT_ONCE
	if (likely(at == NULL || at->local->type->replicas == 0))
#endif
	{
		shard_log_append(row);
		return true;
	}
	if (row->src_type != 0)
	{
		output.src_entity = row->src_entity;
		output.src_entity_len = row->src_entity_len;
	}
	shard_record_output(at->local->type->type_id, at->shard, &output);
	return false;
}

/* Takes the items into memory, if there is room; they are the turn's own. */
static void
take_items(Outputs *outputs, ShardReader items, Size most)
{
	int len = (int) (items.end - items.at);

	if (waiting + len > most)
		return;
	outputs->items = MemoryContextAllocHuge(memory, Max(len, 1));
	outputs->len = len;
	memcpy(outputs->items, items.at, len);
	waiting += len;
}

static void
drop_items(Outputs *outputs)
{
	if (outputs->items == NULL)
		return;
	waiting -= outputs->len;
	pfree(outputs->items);
	outputs->items = NULL;
}

/* Those of a record wait. NULL: there is nothing to wait. */
static Outputs *
add(ShardReplicaShard *shard, const ShardTurnRecord *record, Size bytes)
{
	Outputs *outputs;

	if (record->n_outputs == 0 || record->first_oseq - 1 + record->n_outputs <= shard->done)
		return NULL;
	if (memory == NULL)
		memory = AllocSetContextCreate(TopMemoryContext, "shard outputs", ALLOCSET_DEFAULT_SIZES);
	outputs = MemoryContextAllocZero(memory, sizeof(Outputs));
	outputs->turn = record->turn;
	outputs->first = record->first_oseq;
	outputs->count = record->n_outputs;
	outputs->held = sizeof(Outputs) + bytes;
	shard_replica_shard_hold(shard, outputs->held);
	dlist_push_tail(&shard->outputs, &outputs->node);
	return outputs;
}

void
shard_outputs_add(ShardReplicaShard *shard, const ShardTurnRecord *record, ShardReader items)
{
	Outputs *outputs = add(shard, record, items.end - items.at);

	if (outputs != NULL)
		take_items(outputs, items, MOST_WAITING);
}

void
shard_outputs_add_damaged(ShardReplicaShard *shard, const ShardTurnRecord *record)
{
	shard->unread = record->turn;
	(void) add(shard, record, 0);
}

void
shard_outputs_loaded(ShardReplicaShard *shard)
{
	if (shard_outputs_undone(shard) >= shard->unread)
		shard->unread = 0;
}

void
shard_outputs_done(ShardReplicaShard *shard, int64 oseq)
{
	shard->done = Max(shard->done, oseq);
	while (!dlist_is_empty(&shard->outputs))
	{
		Outputs *first = dlist_head_element(Outputs, node, &shard->outputs);

		if (first->first - 1 + first->count > shard->done)
			break;
		dlist_delete(&first->node);
		drop_items(first);
		shard_replica_shard_let_go(shard, first->held);
		pfree(first);
	}
}

/* For shard_turn_log_read_shard: takes what one turn after the other told. */
typedef struct Filling
{
	ShardReplicaShard *shard;
	bool any;
} Filling;

static bool
fill_from(const ShardTurnRecord *record, int64 seq, void *arg)
{
	Filling *filling = arg;
	dlist_iter iter;

	dlist_foreach (iter, &filling->shard->outputs)
	{
		Outputs *outputs = dlist_container(Outputs, node, iter.cur);
		ShardReader sections = record->sections;
		ShardReader items;
		int32 kind;
		bool mandatory;

		if (outputs->turn > record->turn)
			break;
		if (outputs->turn < record->turn || outputs->items != NULL)
			continue;
		while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
			if (kind == SHARD_TURN_OUTPUTS)
				/* the first one in any case */
				take_items(outputs, items, filling->any ? SHARD_OUTPUTS_BYTES : MaxAllocHugeSize);
		if (outputs->items == NULL)
			return false;
		filling->any = true;
	}
	return record->turn < dlist_tail_element(Outputs, node, &filling->shard->outputs)->turn;
}

void
shard_outputs_fill(ShardReplicaShard *shard, int64 turn)
{
	const ShardTurnChain *chain =
		shard_turn_chain_get(shard->key.type_id, shard->key.shard, shard->lost);
	Filling filling = {shard, false};

	if (chain != NULL && turn >= chain->kept && turn <= chain->end.turn)
		shard_turn_log_read_shard(shard->key.type_id, shard->key.shard, shard->lost, turn,
								  chain->low[turn - chain->kept], fill_from, shard_turn_log_pass,
								  &filling);
}

bool
shard_outputs_may_leave(const ShardReplicaShard *shard)
{
	dlist_head *outputs = unconstify(dlist_head *, &shard->outputs);

	return !dlist_is_empty(outputs) && shard->unread == 0 &&
		   shard_replica_is_released(&shard->home,
									 dlist_head_element(Outputs, node, outputs)->turn);
}

void
shard_outputs_released(ShardReplicaShard *shard)
{
	if (shard->due || !shard_outputs_may_leave(shard))
		return;
	dlist_push_tail(&shard_outputs_due, &shard->due_node);
	shard->due = true;
}

int64
shard_outputs_pause_left(const ShardReplicaShard *shard)
{
	return likely(shard->paused == 0) ? 0 : Max(0, shard->paused - shard_clock_now());
}

bool
shard_outputs_are_due(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &shard_outputs_due)
		if (shard_outputs_pause_left(dlist_container(ShardReplicaShard, due_node, iter.cur)) == 0)
			return true;
	return false;
}

long
shard_outputs_pause(void)
{
	int64 least = PG_INT64_MAX;
	dlist_iter iter;

	dlist_foreach (iter, &shard_outputs_due)
		least =
			Min(least,
				shard_outputs_pause_left(dlist_container(ShardReplicaShard, due_node, iter.cur)));
	return least == PG_INT64_MAX ? -1 : (long) ((least + 999) / 1000);
}

void
shard_outputs_not_due(ShardReplicaShard *shard)
{
	if (shard->due)
		dlist_delete(&shard->due_node);
	shard->due = false;
}

void
shard_outputs_drop(ShardReplicaShard *shard)
{
	shard_outputs_not_due(shard);
	shard_outputs_done(shard, PG_INT64_MAX);
}

int64
shard_outputs_undone(const ShardReplicaShard *shard)
{
	dlist_head *outputs = unconstify(dlist_head *, &shard->outputs);

	return dlist_is_empty(outputs) ? PG_INT64_MAX
								   : dlist_head_element(Outputs, node, outputs)->turn;
}
