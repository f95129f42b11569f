/*
 * life_turn.c
 *		Turns of a region worker: a transaction, in small steps, between which others run, and at each of which it may
 *		be aborted, freeze or die.
 */
#include "life.h"

/* Rows of a step, and of a turn. */
#define STEP_ROWS 2
#define TURN_ROWS 8

/* The first row behind what was met; NULL: there is none. */
static const LifeRow *
next_row(const LifeNode *node, StoreKey *key)
{
	const int64 *cursor = store_get(node->store, NULL, LIFE_CURSOR, LIFE_KEY(0));

	*key = LIFE_KEY(cursor != NULL ? *cursor + 1 : 0);
	return store_at_or_next(node->store, NULL, LIFE_LOG, key);
}

static bool
is_due(const LifeNode *node)
{
	StoreKey key;

	if (next_row(node, &key) != NULL || life_timers_due(node))
		return true;
	for (int32 shard = 0; shard < LIFE_SHARDS; shard++)
	{
		if (life_walk_due(node, shard))
			return true;
		for (int32 entity = 0; entity < LIFE_ENTITIES; entity++)
		{
			if (node->memory.shards[shard].active && life_run_due(node, shard, entity))
				return true;
		}
	}
	return false;
}

/* After a clock was set back no pause is longer than the longest (D16). */
static void
look_at_clock(LifeNode *node)
{
	int64 wall = life_wall(node);

	for (int32 shard = 0; shard < LIFE_SHARDS; shard++)
	{
		const ShardEntityLimits *limits = &node->world->types[life_type_of(shard)].limits;
		int64 most = wall + shard_entity_longest_pause(limits);
		LifeShard *s = &node->memory.shards[shard];

		s->paused_until = Min(s->paused_until, most);

		for (int32 entity = 0; entity < LIFE_ENTITIES; entity++)
		{
			LifeEntity *e = &node->memory.entities[shard][entity];

			if (e->next_at != LIFE_NEVER && e->incarnation != 0)
				e->next_at = Min(e->next_at, most);
		}
	}
}

static void
begin(LifeNode *node)
{
	const int64 *cursor = store_get(node->store, NULL, LIFE_CURSOR, LIFE_KEY(0));

	node->tx = store_begin(node->store);
	node->saved = node->memory;
	node->failed = false;
	node->turn_events = node->n_events;
	node->tail = node->seq;
	node->cursor = cursor != NULL ? *cursor : 0;
	node->looked_at = 0;
	node->n_children = 0;
	node->phase = LIFE_HELD_DUE;
}

void
life_turn_abort(LifeNode *node)
{
	store_abort(node->tx);
	node->tx = NULL;
#ifdef SHARD_MUTANT_MARK_OUTLIVES_ABORT
	node->saved.mark = node->memory.mark;
#endif
#ifdef SHARD_MUTANT_WALK_OUTLIVES_ABORT
	memcpy(node->saved.shards, node->memory.shards, sizeof(node->saved.shards));
#endif
	node->memory = node->saved;
	node->n_events = node->turn_events;
	for (int i = 0; i < node->n_children; i++)
		life_check_aborted(node->world->check, node->children[i]);
	memset(node->accessed, 0, sizeof(node->accessed));
	node->phase = LIFE_IDLE;
}

static void
commit(LifeNode *node)
{
	int64 cursor = node->cursor;

	if (cursor > 0)
		life_put(node, LIFE_CURSOR, LIFE_KEY(0), &cursor);
	if (node->failed || (node->world->chaos && life_percent(node->world, 6)))
	{
		life_turn_abort(node);
		return;
	}
	store_commit(node->tx);
	node->tx = NULL;
	for (int i = node->turn_events; i < node->n_events; i++)
		node->events[i].lsn = store_last_lsn(node->store);
	for (int i = 0; i < node->n_children; i++)
		life_check_committed(node->world->check, node->children[i], store_last_lsn(node->store));
	node->turn_events = node->n_events;
	node->phase = LIFE_IDLE;
	life_after_turn(node);
}

/*
 * A row of the log is met. One that came from another node, or went through this one's outbox, counts when it is the
 * next of its stream; its origin sends what does not. One that began here goes straight on if its shard is active here
 * and nothing before it waits in the outbox.
 */
static void
meet(LifeNode *node, const LifeRow *row)
{
	bool active = node->memory.shards[row->shard].active;
	StoreKey key;

	if (row->origin != 0)
	{
		const int64 *taken;
		int64 seq;

		key = LIFE_KEY(row->shard, row->origin);
		taken = store_get(node->store, node->tx, LIFE_TAKEN, key);
		seq = (taken != NULL ? *taken : 0) + 1;
		if (!active || row->origin_seq != seq)
			return;
		life_put(node, LIFE_TAKEN, key, &seq);
		life_deliver(node, row);
		return;
	}
	key = LIFE_KEY(row->shard, 0);
	if (active && (store_at_or_next(node->store, node->tx, LIFE_OUTBOX, &key) == NULL ||
				   key.k[0] != row->shard))
		life_deliver(node, row);
	else
	{
		const int64 *sent = store_get(node->store, node->tx, LIFE_SENT, LIFE_KEY(row->shard));
		int64 seq = (sent != NULL ? *sent : 0) + 1;

		life_put(node, LIFE_SENT, LIFE_KEY(row->shard), &seq);
		life_put(node, LIFE_OUTBOX, LIFE_KEY(row->shard, seq), row);
	}
}

static void
run_held(LifeNode *node)
{
	int budget = STEP_ROWS;

	for (int32 shard = 0; shard < LIFE_SHARDS; shard++)
	{
		for (int32 entity = 0; entity < LIFE_ENTITIES; entity++)
		{
			if (!node->memory.shards[shard].active || !life_run_due(node, shard, entity))
				continue;
			if (budget-- == 0)
				return;
			life_run_held(node, shard, entity);
		}
	}
	node->phase = LIFE_LOG_ROWS;
}

static void
run_log(LifeNode *node)
{
	for (int i = 0; i < STEP_ROWS; i++)
	{
		StoreKey key = LIFE_KEY(node->cursor + 1);
		const LifeRow *row = store_at_or_next(node->store, NULL, LIFE_LOG, &key);
		LifeRow met;

		if (row == NULL || key.k[0] > node->tail || node->looked_at >= TURN_ROWS)
		{
			node->phase = LIFE_OWN_ACCORD;
			return;
		}
		met = *row;
		met.seq = key.k[0];
		node->cursor = key.k[0];
		node->looked_at++;
		meet(node, &met);
	}
}

static void
run_own_accord(LifeNode *node)
{
	life_queue_timers(node);
	life_leavers(node, true);
	for (int32 shard = 0; shard < LIFE_SHARDS; shard++)
	{
		if (life_walk_due(node, shard))
			life_walk(node, shard);
	}
	node->phase = LIFE_COMMIT;
}

/* One step of the worker. False: there was nothing to do. */
bool
life_turn_step(LifeNode *node)
{
	switch (node->phase)
	{
		case LIFE_IDLE:
			look_at_clock(node);
			life_after_turn(node);
			if (!is_due(node) && !life_leavers(node, false))
				return false;
			begin(node);
			break;
		case LIFE_HELD_DUE:
			run_held(node);
			break;
		case LIFE_LOG_ROWS:
			run_log(node);
			break;
		case LIFE_OWN_ACCORD:
			run_own_accord(node);
			break;
		case LIFE_COMMIT:
			commit(node);
			break;
	}
	return true;
}
