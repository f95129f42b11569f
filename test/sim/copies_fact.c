/*
 * copies_fact.c
 *		A worker of mode copies meets a fact: it becomes home, goes on, follows, or is put out (Q9, Q18, Q19, Q21).
 *
 * Each is one transaction, with what follows from it; a death leaves the fact to be met again.
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})

const ShardHomeRecord *
copies_fact(const CopiesWorld *world, int64 n)
{
	return &world->facts[n].home;
}

static void
write_copy(Node *node, StoreTransaction *tx, int32 shard, const CopyRow *row)
{
	node->copies[shard] = *row;
	store_put(tx, T_COPY, KEY(shard), row);
}

/* What is not applied yet is so now: all that is stored here becomes real (Q19). */
static void
apply_rest(Node *node, StoreTransaction *tx, int32 shard, int32 epoch)
{
	CopyRow row = node->copies[shard];
	ShardTurnRecord record;

	for (int64 turn = Max(row.copy.applied, row.shows) + 1; turn <= row.copy.end.turn; turn++)
		if (copies_read_turn(node->store, tx, shard, turn, &record))
			copies_apply_record(tx, node->store, &record);
	row.shows = row.copy.end.turn;
	shard_replica_promise(&row.copy, epoch);
	write_copy(node, tx, shard, &row);
}

static void
become_home(CopiesWorld *world, Node *node, StoreTransaction *tx, bool chosen)
{
	const int64 *cursor = store_get(node->store, NULL, T_CURSOR, KEY(0));

	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		apply_rest(node, tx, shard, node->own.own.epoch);
	copies_load(world, node, tx);
	if (chosen)
	{
		memset(&node->draft, 0, sizeof(node->draft));
		node->draft.runs = true;
		node->draft.tx = tx;
		node->draft.cursor = cursor != NULL ? *cursor : 0;
		copies_activate(world, node);
		return;
	}
	store_commit(tx);
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		node->gates[node->n_gates++] =
			(Gate){store_last_lsn(node->store), shard, node->copies[shard].copy.end.turn};
}

/* Inputs of a turn that is not known to be released: with the stamps that they have, they go to the new home. */
static void
park_inputs(Node *node, StoreTransaction *tx, int32 shard, int64 turn)
{
	ShardTurnInput input = {0, 0};
	ShardTurnRecord record;

	if (!copies_read_turn(node->store, tx, shard, turn, &record))
		return;
	while (shard_turn_get_input(&record.inputs, &input))
	{
		const LogRow *row = store_get(node->store, tx, T_LOG, KEY(input.seq));
		int64 id = row != NULL ? row->id : 0;

		if (row == NULL || row->kind != LOG_INPUT)
			continue;
		store_put(tx, T_PARKED, KEY(shard, input.rseq), &id);
		store_remove(tx, T_LOG, KEY(input.seq));
		node->resent++;
	}
}

/* Who was home has a copy like any, but for rows that show more than was released (Q17, Q21). */
static void
lay_down(Node *node, StoreTransaction *tx)
{
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		const ShardReplicaHome *replica = &node->shards[i].replica;
		CopyRow row = node->copies[i];

#ifndef SHARD_MUTANT_COPIES_INPUTS_NOT_SENT_AGAIN
		for (int64 turn = shard_takeover_park_from(replica) + 1; turn <= replica->end.turn; turn++)
			park_inputs(node, tx, i, turn);
#endif
		row.shows = shard_takeover_lay_down(replica, node->own.own.epoch, &row.copy);
		write_copy(node, tx, i, &row);
	}
}

static void
follow(Node *node, StoreTransaction *tx)
{
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		CopyRow row = node->copies[i];

		if (shard_replica_promise(&row.copy, node->own.own.epoch))
			write_copy(node, tx, i, &row);
	}
}

static bool
unseal(Node *node)
{
#ifdef SHARD_MUTANT_COPIES_UNSEALED
	StoreTransaction *tx;

	if (node->own.own.state != SHARD_TAKEOVER_SEALED)
		return false;
	tx = store_begin(node->store);
	node->own.own.state = SHARD_TAKEOVER_HOME;
	store_put(tx, T_OWN, KEY(0), &node->own);
	store_commit(tx);
	return true;
#endif
	return false;
}

/* The open turn ends first, and so do calls that are between judging and their commit. */
bool
copies_meet_fact(CopiesWorld *world, Node *node)
{
	const ShardHomeRecord *fact = copies_fact(world, node->fact);
	bool was_home = shard_takeover_is_home(&node->own.own);
	ShardTakeoverEvent event;
	StoreTransaction *tx;

	if (node->draft.runs || node->lock >= 0)
		return false;
	if (node->fact <= node->own.n)
		return unseal(node);
	event = shard_takeover_read(&node->own.own, node->index + 1, fact);
	if (event == SHARD_TAKEOVER_WRONG)
	{
		check_fail(world->check, "Q18: node %d is named home of epoch %d, and has nothing",
				   node->index + 1, fact->epoch);
		return true;
	}
	copies_trace(world, "node %d: %s, epoch %d", node->index + 1,
				 shard_takeover_machine.event_names[event], fact->epoch);
	tx = store_begin(node->store);
	node->own.n = node->fact;
	if (event != SHARD_TAKEOVER_NOTHING)
		shard_takeover_step(&node->own.own, event, fact->epoch);
	store_put(tx, T_OWN, KEY(0), &node->own);
	memset(node->fetching, 0, sizeof(node->fetching));
	node->takeovers += event == SHARD_TAKEOVER_CHOSEN;
	if (event == SHARD_TAKEOVER_CHOSEN || event == SHARD_TAKEOVER_BACK)
	{
		become_home(world, node, tx, event == SHARD_TAKEOVER_CHOSEN);
		return true;
	}
	if (was_home)
		lay_down(node, tx);
	else if (event != SHARD_TAKEOVER_NOTHING)
		follow(node, tx);
	store_commit(tx);
	if (was_home)
		copies_node_forget_home(node);
	return true;
}
