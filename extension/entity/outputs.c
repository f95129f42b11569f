/*
 * entity/outputs.c
 *		What entities tell: to the log at once, or, if the shard has replicas, once the turn is released (Q29).
 *
 * Comes from: functions that handlers call (sql/send), request.c and stop_row.c, while the turn runs; replica_home.c, when
 * turns are released. Goes to: the log, or record.c; and to the log again in a later turn, as a message of this node like
 * any. That turn's record says up to where outputs were appended (section ODONE), and is one commit with their rows.
 *
 * If the process dies right here: before that commit the outputs are in the records of their turns, which the next worker
 * finds; after it they are in the log, and the record says so. So each leaves once.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/fault.h"
#include "core/base/message.h"
#include "entity/internal.h"
#include "entity/outputs.h"
#include "entity/record.h"
#include "entity/replica_home.h"
#include "log/session.h"
#include "log/turn_chain.h"

#include "base/compat.h"

/* Outputs that leave in one turn, and their bytes; one at least. */
#define MOST_IN_TURN 10000
#define MOST_BYTES (16 * 1024 * 1024)

/* Outputs that wait in memory have these bytes at most; others are in their records alone. */
#define MOST_WAITING ((Size) 64 * 1024 * 1024)

/* The outputs of one turn that are not appended yet. */
typedef struct Outputs
{
	dlist_node node;
	int64 turn;
	int64 first; /* oseq of the first one */
	int count;
	Size held; /* what counts as waiting */
	int len;
	char *
		items; /* ShardTurnOutput, one after the other; NULL: they are to be read from the record */
} Outputs;

/* How far the running turn has come with a shard. */
typedef struct Leaving
{
	ShardReplicaShard *shard;
	int64 oseq; /* appended up to here */
} Leaving;

static MemoryContext memory = NULL; /* of outputs that wait, */
static Size waiting = 0;			/* and the bytes of their items */

/* Shards of which some are released, those that leave in this turn, and how many outputs. */
static dlist_head due = DLIST_STATIC_INIT(due);
static List *leaving = NIL; /* Leaving *, in the turn's memory */
static int left = 0;
static Size left_bytes = 0;

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
				take_items(outputs, items, filling->any ? MOST_BYTES : MaxAllocHugeSize);
		if (outputs->items == NULL)
			return false;
		filling->any = true;
	}
	return record->turn < dlist_tail_element(Outputs, node, &filling->shard->outputs)->turn;
}

/* Reads the items of the first outputs, and of some behind them, from the records of their turns. False: it cannot. */
static bool
fill(ShardReplicaShard *shard, int64 turn)
{
	const ShardTurnChain *chain =
		shard_turn_chain_get(shard->key.type_id, shard->key.shard, shard->lost);
	Filling filling = {shard, false};

	if (chain != NULL && turn >= chain->kept && turn <= chain->end.turn)
		shard_turn_log_read_shard(shard->key.type_id, shard->key.shard, shard->lost, turn,
								  chain->low[turn - chain->kept], fill_from, shard_turn_log_pass,
								  &filling);
	if (!filling.any)
		shard->unread = turn;
	return filling.any;
}

/* Whether the next outputs of the shard are released. */
static bool
may_leave(const ShardReplicaShard *shard)
{
	dlist_head *outputs = unconstify(dlist_head *, &shard->outputs);

	return !dlist_is_empty(outputs) && shard->unread == 0 &&
		   shard_replica_is_released(&shard->home,
									 dlist_head_element(Outputs, node, outputs)->turn);
}

void
shard_outputs_released(ShardReplicaShard *shard)
{
	if (shard->due || !may_leave(shard))
		return;
	dlist_push_tail(&due, &shard->due_node);
	shard->due = true;
}

bool
shard_outputs_are_due(void)
{
	return !dlist_is_empty(&due);
}

static void
not_due(ShardReplicaShard *shard)
{
	if (shard->due)
		dlist_delete(&shard->due_node);
	shard->due = false;
}

void
shard_outputs_drop(ShardReplicaShard *shard)
{
	not_due(shard);
	shard_outputs_done(shard, PG_INT64_MAX);
}

int64
shard_outputs_undone(const ShardReplicaShard *shard)
{
	dlist_head *outputs = unconstify(dlist_head *, &shard->outputs);

	return dlist_is_empty(outputs) ? PG_INT64_MAX
								   : dlist_head_element(Outputs, node, outputs)->turn;
}

/* It is a message of this node from here on. */
static void
append(const ShardReplicaShard *shard, const ShardTurnOutput *output)
{
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
	shard_output_address(&row);
	shard_log_append(&row);
	left++;
	left_bytes += output->payload_len;
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

/* Whether the turn appends no more. */
static bool
is_enough(void)
{
	return left >= MOST_IN_TURN || left_bytes >= MOST_BYTES;
}

/* Returns how far it came. */
static int64
leave_of(ShardReplicaShard *shard)
{
	int64 oseq = shard->done;
	dlist_iter iter;

	dlist_foreach (iter, &shard->outputs)
	{
		const Outputs *outputs = dlist_container(Outputs, node, iter.cur);
		ShardReader items;
		ShardTurnOutput output;

		if (!shard_replica_is_released(&shard->home, outputs->turn) || is_enough())
			break;
		if (outputs->items == NULL && !fill(shard, outputs->turn))
			break;
		items = (ShardReader){outputs->items, outputs->items + outputs->len};
		for (int i = 0; i < outputs->count; i++)
		{
			if (!shard_turn_get_output(&items, &output))
				damaged(shard, outputs->turn);
			if (outputs->first + i <= oseq)
				continue;
			if (is_enough())
				return oseq;
			append(shard, &output);
			oseq = outputs->first + i;
		}
	}
	return oseq;
}

bool
shard_outputs_leave(void)
{
	dlist_mutable_iter iter;

	left = 0;
	left_bytes = 0;
	if (likely(dlist_is_empty(&due)))
		return false;
	dlist_foreach_modify (iter, &due)
	{
		ShardReplicaShard *shard = dlist_container(ShardReplicaShard, due_node, iter.cur);
		int64 oseq = leave_of(shard);
		MemoryContext old;
		Leaving *one;

		if (oseq == shard->done)
		{
			if (!may_leave(shard))
				not_due(shard);
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

		not_due(one->shard);
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
