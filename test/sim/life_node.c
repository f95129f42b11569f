/*
 * life_node.c
 *		A node: its database and log, its outboxes, what it told the checker.
 */
#include "life.h"

static const struct
{
	const char *name;
	size_t size;
} tables[LIFE_TABLES] = {
	[LIFE_LOG] = {"log", sizeof(LifeRow)},			[LIFE_CURSOR] = {"cursor", sizeof(int64)},
	[LIFE_OUTBOX] = {"outbox", sizeof(LifeRow)},	[LIFE_SENT] = {"sent", sizeof(int64)},
	[LIFE_OWN] = {"own", sizeof(LifeOwn)},			[LIFE_TAKEN] = {"taken", sizeof(int64)},
	[LIFE_STATE] = {"state", sizeof(LifeStateRow)}, [LIFE_HELD] = {"held", sizeof(LifeHeldRow)},
	[LIFE_TIMER] = {"timer", sizeof(LifeTimerRow)}, [LIFE_HISTORY] = {"history", sizeof(int64)},
};

void
life_node_create(LifeWorld *world, int index)
{
	LifeNode *node = &world->nodes[index];

	node->world = world;
	node->id = index + 1;
	node->store = store_create();
	for (int table = 0; table < LIFE_TABLES; table++)
		store_define(node->store, table, tables[table].name, tables[table].size);
}

static void
free_memory(LifeNode *node)
{
	for (int type = 0; type < LIFE_TYPES; type++)
	{
		if (node->regions[type] != NULL)
			shard_passivation_destroy(node->regions[type]);
		node->regions[type] = NULL;
	}
	memset(&node->memory, 0, sizeof(node->memory));
	memset(node->places, 0, sizeof(node->places));
	memset(node->tracked, 0, sizeof(node->tracked));
	memset(node->accessed, 0, sizeof(node->accessed));
}

void
life_node_destroy(LifeNode *node)
{
	free_memory(node);
	store_destroy(node->store);
	free(node->events);
}

/* The server comes up: a new process, which knows what the database says. */
void
life_node_start(LifeNode *node)
{
	StoreKey key = {{0}};
	const int64 *cursor = store_get(node->store, NULL, LIFE_CURSOR, LIFE_KEY(0));

	node->up = true;
	node->seq = cursor != NULL ? *cursor : 0;
	while (store_at_or_next(node->store, NULL, LIFE_LOG, &key) != NULL)
		node->seq = Max(node->seq, key.k[0]++);
	for (int type = 0; type < LIFE_TYPES; type++)
		node->regions[type] = shard_passivation_create(&node->world->types[type].passivation);
	for (int i = 0; i < LIFE_SESSIONS; i++)
		node->sessions[i] = ++node->world->number;
	for (int32 shard = 0; shard < LIFE_SHARDS; shard++)
	{
		const LifeOwn *own = store_get(node->store, NULL, LIFE_OWN, LIFE_KEY(shard));

		node->sent[shard] = 0;
		node->again_at[shard] = 0;
		if (own != NULL && own->state == LIFE_OWN_ACTIVE)
			life_activate(node, shard, own->epoch);
	}
}

/* All processes end; what was not flushed never was. */
void
life_node_crash(LifeNode *node)
{
	if (node->phase != LIFE_IDLE)
		life_turn_abort(node);
	node->up = false;
	node->frozen = 0;
	life_check_crashed(node->world->check, node->id, store_flushed(node->store));
	store_crash(node->store);
	node->n_events = node->turn_events = 0;
	free_memory(node);
	life_check_rows(node->world->check, node);
}

/* What is durable now is told, in the order in which it was done; what was met leaves the log. */
void
life_node_flush(LifeNode *node)
{
	int told = 0;
	const int64 *cursor;

	store_flush(node->store);
	while (told < node->turn_events && node->events[told].lsn <= store_flushed(node->store))
		life_check_event(node->world->check, &node->events[told++]);
	if (told > 0)
		memmove(node->events, node->events + told, (node->n_events - told) * sizeof(LifeEvent));
	node->n_events -= told;
	node->turn_events -= told;
	cursor = store_get(node->store, NULL, LIFE_CURSOR, LIFE_KEY(0));
	if (cursor != NULL && store_count(node->store, LIFE_LOG) > 64 && life_percent(node->world, 10))
	{
		StoreTransaction *tx = store_begin(node->store);
		StoreKey key = {{0}};
		bool well = true;

		while (well && store_at_or_next(node->store, tx, LIFE_LOG, &key) != NULL &&
			   key.k[0] <= *cursor)
			well = store_remove(tx, LIFE_LOG, key);
		if (well)
			store_commit(tx);
		else
			store_abort(tx);
	}
	if (told > 0 && node->n_events == 0 && node->phase == LIFE_IDLE &&
		store_flushed(node->store) == store_last_lsn(node->store))
		life_check_rows(node->world->check, node);
}

/* A row joins the log. */
bool
life_append(LifeNode *node, StoreTransaction *tx, LifeRow *row)
{
	return store_put(tx, LIFE_LOG, LIFE_KEY(++node->seq), row);
}

/* What the worker did; lsn and time are filled in here, and by the commit. */
LifeEvent *
life_event(LifeNode *node, LifeEventKind kind, int32 shard, int32 entity)
{
	LifeEvent *event;
	const LifeShard *s = &node->memory.shards[shard];

	if (node->n_events == node->event_space)
	{
		node->event_space = Max(64, node->event_space * 2);
		node->events = pg_realloc(node->events, node->event_space * sizeof(LifeEvent));
	}
	event = &node->events[node->n_events++];
	memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->lsn = store_last_lsn(node->store);
	event->node = node->id;
	event->shard = shard;
	event->entity = entity;
	event->epoch = s->epoch;
	event->life = s->life;
	event->incarnation = node->memory.entities[shard][entity].incarnation;
	event->at = node->world->now;
	event->wall = life_wall(node);
	if (node->phase == LIFE_IDLE)
		node->turn_events = node->n_events;
	return event;
}

/* How far the home is with this node's outbox: as it sees it, or durably. */
static int64
taken_by(const LifeNode *home, const LifeNode *node, int32 shard, bool durably)
{
	const int64 *taken = store_get(home->store, NULL, LIFE_TAKEN, LIFE_KEY(shard, node->id));

	if (taken == NULL || (durably && store_row_lsn(taken) > store_flushed(home->store)))
		return durably ? -1 : 0;
	return *taken;
}

/* The next rows of a shard's outbox reach its home's log, or get lost on the way. */
static bool
send_rows(LifeNode *node, LifeNode *home, int32 shard)
{
	StoreKey key = LIFE_KEY(shard, node->sent[shard] + 1);
	StoreTransaction *tx = store_begin(home->store);
	const LifeRow *stored = store_at_or_next(node->store, NULL, LIFE_OUTBOX, &key);
	int64 upto = node->sent[shard];
	bool lost = node->world->chaos && life_percent(node->world, 10);
	bool well = true;

	for (int n = 0; n < 3 && stored != NULL && key.k[0] == shard; n++)
	{
		LifeRow row = *stored;

		if (store_row_lsn(stored) > store_flushed(node->store))
			break;
		row.origin = node->id;
		row.origin_seq = upto = key.k[1];
		well &= lost || life_append(home, tx, &row);
		key.k[1]++;
		stored = store_at_or_next(node->store, NULL, LIFE_OUTBOX, &key);
	}
	if (!well || upto == node->sent[shard])
	{
		store_abort(tx);
		return false;
	}
	store_commit(tx);
	node->sent[shard] = upto;
	return true;
}

/* Rows of the outbox that the home has durably taken are deleted. */
static bool
confirm(LifeNode *node, int32 shard, int64 upto)
{
	StoreTransaction *tx;
	StoreKey key = LIFE_KEY(shard, 0);

	if (store_at_or_next(node->store, NULL, LIFE_OUTBOX, &key) == NULL || key.k[0] != shard ||
		key.k[1] > upto)
		return false;
	tx = store_begin(node->store);
	do
	{
		if (!store_remove(tx, LIFE_OUTBOX, key))
		{
			store_abort(tx);
			return false;
		}
	} while (store_next(node->store, tx, LIFE_OUTBOX, &key) != NULL && key.k[0] == shard &&
			 key.k[1] <= upto);
	store_commit(tx);
	return true;
}

/* The node's link makes a step: for one shard of which something waits. */
bool
life_link_step(LifeNode *node)
{
	LifeWorld *world = node->world;
	int32 shard = (int32) life_random(world, LIFE_SHARDS);
	LifeNode *home = &world->nodes[world->homes[shard].node];
	StoreKey key = LIFE_KEY(shard, 0);
	const LifeOwn *own;

	if (store_at_or_next(node->store, NULL, LIFE_OUTBOX, &key) == NULL || key.k[0] != shard ||
		!home->up)
		return false;
	own = store_get(home->store, NULL, LIFE_OWN, LIFE_KEY(shard));
	if (own == NULL || own->state != LIFE_OWN_ACTIVE)
		return false;
	if (confirm(node, shard, taken_by(home, node, shard, true)))
		return true;
	if (node->again_at[shard] <= world->now)
	{
		node->sent[shard] = taken_by(home, node, shard, false);
		node->again_at[shard] = world->now + 300 * LIFE_MS;
	}
	return send_rows(node, home, shard);
}
