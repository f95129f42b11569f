/*
 * copies_node.c
 *		A node of mode copies in any role: starts and crashes, clients, what comes, what is parked here and leaves for the home.
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})
#define SENT_PARKED 3 /* of a shard, at a time */

/* A home's memory goes. Outputs that it has appended are rows of the node, and leave, whoever is home. */
void
copies_node_forget_home(Node *node)
{
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		HomeShard *shard = &node->shards[i];
		int kept = 0;

		for (int j = 0; j < COPIES_TURNS; j++)
			free(shard->records[j].bytes);
		memset(shard->records, 0, sizeof(shard->records));
		shard_mark_free(&shard->marks);
		memset(&shard->replica, 0, sizeof(shard->replica));
		for (int j = 0; j < shard->n_outputs; j++)
			if (shard->outputs[j].type_id == COPIES_PLAIN && shard->outputs[j].lsn > 1)
				shard->outputs[kept++] = shard->outputs[j];
		shard->n_outputs = kept;
		shard->count = shard->seal = shard->first = shard->n_tells = shard->n_dones = 0;
	}
	memset(node->calls, 0, sizeof(node->calls));
	node->n_gates = 0;
	node->stopped = false;
}

/* What is in memory, from the tables; which does not say what is released beyond what is applied. */
void
copies_node_start(CopiesWorld *world, Node *node)
{
	const int64 *cursor = store_get(node->store, NULL, T_CURSOR, KEY(0));
	StoreKey key = KEY(0);

	node->up = true;
	node->inc++;
	node->own = *(const OwnRow *) store_get(node->store, NULL, T_OWN, KEY(0));
	node->fact = node->own.n;
	node->seq = cursor != NULL ? *cursor : 0;
	node->rseq = (int64) node->inc << 40;
	while (store_at_or_next(node->store, NULL, T_LOG, &key) != NULL)
	{
		node->seq = Max(node->seq, key.k[0]);
		key.k[3]++;
	}
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		const CopyRow *row = store_get(node->store, NULL, T_COPY, KEY(shard));

		node->copies[shard] = row != NULL ? *row : (CopyRow){0};
		node->copies[shard].copy.released = node->copies[shard].copy.applied;
	}
	node->lock = -1;
	if (shard_takeover_is_home(&node->own.own))
		copies_load(world, node, NULL);
}

void
copies_node_crash(Node *node)
{
	copies_turn_abort(node);
	copies_node_forget_home(node);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		node->shards[i].n_outputs = 0;
	store_crash(node->store);
	for (int i = 0; i < COPIES_CALLS; i++)
		free(node->stores[i].bytes);
	memset(node->stores, 0, sizeof(node->stores));
	memset(node->fetching, 0, sizeof(node->fetching));
	node->whole = 0;
	node->stop_epoch = COPIES_NONE;
	node->up = false;
}

/* A client's transaction, which commits at once. */
void
copies_node_tell(CopiesWorld *world, Node *node, int32 shard)
{
	StoreTransaction *tx = store_begin(node->store);
	LogRow row = {.kind = LOG_INPUT, .type_id = COPIES_TYPE, .shard = shard, .id = ++world->ids};

	world->kinds[row.id] = LOG_INPUT;
	world->senders[row.id] = (uint8) node->index;
	store_put(tx, T_LOG, KEY(++node->seq), &row);
	store_commit(tx);
}

/*
 * What comes for a shard is taken under the epoch in which this node is its home, in the order in which it was sent under that,
 * each once, or not at all (X1 to X4): behind the one sent before it, or if all before it is done.
 */
static void
arrive(Node *node, const Message *message)
{
	StoreKey key = KEY(message->shard, message->from);
	const TakenRow *row = store_get(node->store, NULL, T_TAKEN, key);
	TakenRow taken = {message->epoch, 0};
	StoreTransaction *tx;
	LogRow come = {.kind = LOG_ARRIVED,
				   .type_id = COPIES_TYPE,
				   .shard = message->shard,
				   .epoch = message->epoch,
				   .id = message->id,
				   .stamp = message->stamp};

	if (!shard_takeover_is_home(&node->own.own) || node->own.own.epoch != message->epoch)
		return;
	if (row != NULL && row->epoch == message->epoch)
		taken = *row;
	if (message->before > taken.number)
		return;
	taken.number = Max(taken.number,
					   message->number); /* a repeat is met in the log, and its mark told again */
	tx = store_begin(node->store);
	store_put(tx, T_LOG, KEY(++node->seq), &come);
	store_put(tx, T_TAKEN, key, &taken);
	store_commit(tx);
}

/* What was told here was taken in by a turn that is released. */
static void
forget_parked(Node *node, int32 shard, int64 upto)
{
	StoreTransaction *tx = store_begin(node->store);
	StoreKey key = KEY(shard, 0);

	while (store_at_or_next(node->store, tx, T_PARKED, &key) != NULL && key.k[0] == shard &&
		   key.k[1] <= upto)
	{
		store_remove(tx, T_PARKED, key);
		key.k[3]++;
	}
	store_commit(tx);
}

/* What is parked leaves for the home of the fact that was met, in the order of its stamps, until it is done (H4, Q21). */
void
copies_node_send(CopiesWorld *world, Node *node)
{
	const ShardHomeRecord *home = copies_fact(world, node->own.n);

	if (shard_takeover_is_home(&node->own.own))
		return;
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		StoreKey key = KEY(shard, 0);
		int64 before = 0;
		const int64 *id;

		for (int n = 0; n < SENT_PARKED; n++)
		{
			if ((id = store_at_or_next(node->store, NULL, T_PARKED, &key)) == NULL ||
				key.k[0] != shard)
				break;
			if (store_released(node->store, store_row_lsn(id)))
				copies_send(world,
							&(Message){.kind = M_TELL,
									   .from = node->index,
									   .to = shard_record_home_node(home) - 1,
									   .shard = shard,
									   .epoch = home->epoch,
									   .number = key.k[1],
									   .before = before,
									   .stamp = {SHARD_PREFIX_NODE, node->index + 1, 0, key.k[1]},
									   .id = *id});
			before = key.k[1];
			key.k[3]++;
		}
	}
}

void
copies_node_receive(CopiesWorld *world, Node *node, const Message *message)
{
	switch (message->kind)
	{
		case M_STORE:
			copies_backup_receive(node, message);
			break;
		case M_TELL:
			arrive(node, message);
			break;
		case M_MARK:
			forget_parked(node, message->shard, message->number);
			break;
		case M_FACT:
			if (world->now >= node->deaf_until)
				node->fact = Max(node->fact, message->number);
			break;
		case M_FETCH:
		case M_COPY:
			copies_rewind_receive(world, node, message);
			break;
		case M_WHOLE:
			node->whole = Max(node->whole, message->number);
			break;
		default:
			copies_home_receive(world, node, message);
			break;
	}
}

bool
copies_node_step(CopiesWorld *world, Node *node)
{
	bool is_home;

	if (world->now >= node->resend_at)
	{
		node->resend_at = world->now + 60 * COPIES_MS;
		copies_node_send(world, node);
		copies_rewind_ask(world, node);
		copies_home_tell(world, node);
	}
	if (copies_percent(world, 5) && copies_meet_fact(world, node))
		return true;
	is_home = shard_takeover_is_home(&node->own.own);
	if (copies_percent(world, 2) && copies_drop(world, node))
		return true;
	if (copies_percent(world, 3) && copies_home_forget(node))
		return true;
	if (is_home && copies_percent(world, 10) && copies_backup_call(world, node))
		return true;
	return is_home ? copies_home_step(world, node) : copies_backup_step(world, node);
}
