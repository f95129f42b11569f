/*
 * life_move.c
 *		Shards come and go: sealed at one node, copied, decided, and activated at the other; what is left at the first
 *		one is deleted later.
 */
#include "life.h"

/* A shard is active here from now on: in a new life, with nothing in memory, and what is remembered to be started. */
void
life_activate(LifeNode *node, int32 shard, int32 epoch)
{
	LifeShard *s = &node->memory.shards[shard];
	dlist_head victims;

	*s = (LifeShard){.active = true, .epoch = epoch, .life = ++node->world->number};
	s->walking = node->world->types[life_type_of(shard)].remembers;
#ifdef SHARD_MUTANT_RECOVERY_BY_PROCESS
	s->walking &= epoch == 1;
#endif
	memset(node->memory.entities[shard], 0, sizeof(node->memory.entities[shard]));
	memset(node->tracked[shard], 0, sizeof(node->tracked[shard]));
	for (int32 entity = 0; entity < LIFE_ENTITIES; entity++)
	{
		life_load_held(node, shard, entity);
		life_follow(node, shard, entity);
	}
#ifndef SHARD_MUTANT_PAUSE_FORGOTTEN_OVER_MOVE
	life_load_pause(node, shard);
#endif
#ifndef SHARD_MUTANT_MARK_OUTLIVES_IMPORT
	node->memory.mark.again = true;
#endif
	dlist_init(&victims);
	node->places[shard] = shard_passivation_add_shard(node->regions[life_type_of(shard)], &victims);
	life_event(node, LIFE_EVENT_ACTIVATED, shard, 0);
	life_leave(node, &victims);
}

static void
deactivate(LifeNode *node, int32 shard)
{
	dlist_head victims;

	for (int32 entity = 0; entity < LIFE_ENTITIES; entity++)
	{
		if (node->memory.entities[shard][entity].state != SHARD_ENTITY_NONE)
			life_step(node, shard, entity, SHARD_ENTITY_ON_SHARD_LEFT);
	}
	memset(node->memory.entities[shard], 0, sizeof(node->memory.entities[shard]));
	memset(&node->memory.shards[shard], 0, sizeof(LifeShard));
	dlist_init(&victims);
	shard_passivation_remove_shard(node->regions[life_type_of(shard)], node->places[shard],
								   &victims);
	node->places[shard] = NULL;
	life_leave(node, &victims);
}

static bool
put_own(LifeNode *node, int32 shard, LifeOwnState state, int32 epoch)
{
	StoreTransaction *tx = store_begin(node->store);
	LifeOwn own = {state, epoch};

	if (!store_put(tx, LIFE_OWN, LIFE_KEY(shard), &own))
	{
		store_abort(tx);
		return false;
	}
	store_commit(tx);
	return true;
}

static LifeOwn
own_of(const LifeNode *node, int32 shard)
{
	const LifeOwn *own = store_get(node->store, NULL, LIFE_OWN, LIFE_KEY(shard));

	return own != NULL ? *own : (LifeOwn){0};
}

/* Is the ownership row durable as it is? */
static bool
is_durable(const LifeNode *node, int32 shard)
{
	return store_row_lsn(store_get(node->store, NULL, LIFE_OWN, LIFE_KEY(shard))) <=
		   store_flushed(node->store);
}

/* Rows of a shard leave a database. */
static bool
delete_rows(LifeNode *node, StoreTransaction *tx, int32 shard)
{
	for (int table = LIFE_FIRST_OF_SHARD; table < LIFE_TABLES; table++)
	{
		StoreKey key = LIFE_KEY(shard);

		while (store_at_or_next(node->store, tx, table, &key) != NULL && key.k[0] == shard)
		{
			if (!store_remove(tx, table, key))
				return false;
		}
	}
	return true;
}

/* Is a row left behind? */
static bool
is_left_out(int table, StoreKey key)
{
#ifdef SHARD_MUTANT_QUARANTINE_FORGOTTEN_OVER_MOVE
	return table == LIFE_HELD && key.k[2] == LIFE_PLACE_START;
#endif
#ifdef SHARD_MUTANT_COPY_WITHOUT_TIMERS
	return table == LIFE_TIMER;
#endif
#ifdef SHARD_MUTANT_FAILURES_FORGOTTEN_OVER_MOVE
	return table == LIFE_HISTORY;
#endif
	return false;
}

/* All rows of a shard come from its old home, in one transaction. */
static bool
import(LifeNode *to, const LifeNode *from, int32 shard, int32 epoch)
{
	StoreTransaction *tx = store_begin(to->store);
	LifeOwn own = {LIFE_OWN_STAGED, epoch};
	bool well = delete_rows(to, tx, shard) && store_put(tx, LIFE_OWN, LIFE_KEY(shard), &own);

	for (int table = LIFE_FIRST_OF_SHARD; well && table < LIFE_TABLES; table++)
	{
		StoreKey key = LIFE_KEY(shard);
		const void *row = store_at_or_next(from->store, NULL, table, &key);

		for (; well && row != NULL && key.k[0] == shard;
			 row = store_next(from->store, NULL, table, &key))
		{
#ifdef SHARD_MUTANT_BACK_OFF_FORGOTTEN_OVER_MOVE
			LifeHeldRow held;

			if (table == LIFE_HELD && key.k[2] == LIFE_PLACE_STASH)
			{
				held = *(const LifeHeldRow *) row;
				held.attempts = held.next_at = 0;
				row = &held;
			}
#endif
			well = is_left_out(table, key) || store_put(tx, table, key, row);
		}
	}
	if (well)
		store_commit(tx);
	else
		store_abort(tx);
	return well;
}

void
life_move_begin(LifeWorld *world, int32 shard)
{
	LifeHome *home = &world->homes[shard];

	if (home->step != LIFE_MOVE_NONE || world->n_nodes == 1)
		return;
	home->to = (home->node + 1 + (int) life_random(world, world->n_nodes - 1)) % world->n_nodes;
	home->step = LIFE_MOVE_SEAL;
	life_note(world, "shard %d is to move from node %d to %d", shard, home->node + 1, home->to + 1);
}

/* The decided home has the shard, if it is not there yet; others delete what they have of it. */
static bool
settle(LifeWorld *world, int32 shard)
{
	LifeHome *home = &world->homes[shard];
	LifeNode *node = &world->nodes[home->node];
	LifeOwn own = own_of(node, shard);

	if (node->up && node->phase == LIFE_IDLE && own.state == LIFE_OWN_STAGED &&
		put_own(node, shard, LIFE_OWN_ACTIVE, own.epoch))
	{
		life_activate(node, shard, own.epoch);
		life_note(world, "shard %d is active at node %d", shard, node->id);
		return true;
	}
	for (int i = 0; i < world->n_nodes; i++)
	{
		LifeNode *former = &world->nodes[i];
		StoreTransaction *tx;
		LifeOwn gone = {LIFE_OWN_NONE, own.epoch};

		if (home->delete_at[i] == 0 || home->delete_at[i] > world->now || !former->up)
			continue;
		if (i != home->node)
		{
			tx = store_begin(former->store);
			if (!delete_rows(former, tx, shard) || !store_put(tx, LIFE_OWN, LIFE_KEY(shard), &gone))
			{
				store_abort(tx);
				continue;
			}
			store_commit(tx);
		}
		home->delete_at[i] = 0;
		return true;
	}
	return false;
}

/* A shard's move, or what is left of it, goes on. False: it cannot now. */
bool
life_move_step(LifeWorld *world, int32 shard)
{
	LifeHome *home = &world->homes[shard];
	LifeNode *from = &world->nodes[home->node];
	LifeNode *to = &world->nodes[home->to];
	LifeOwn own;

	switch (home->step)
	{
		case LIFE_MOVE_NONE:
			return settle(world, shard);
		case LIFE_MOVE_SEAL:
			own = own_of(from, shard);
			if (own.state == LIFE_OWN_STAGED)
				return settle(world, shard);
			if (!from->up || from->phase != LIFE_IDLE)
				return false;
			if (own.state == LIFE_OWN_ACTIVE)
			{
				if (!put_own(from, shard, LIFE_OWN_SEALED, own.epoch))
					return false;
				deactivate(from, shard);
				return true;
			}
			if (!is_durable(from, shard))
				return false;
			home->step = LIFE_MOVE_COPY;
			return true;
		case LIFE_MOVE_COPY:
			if (!from->up || !to->up || !import(to, from, shard, home->epoch + 1))
				return false;
			home->delete_at[home->to] = 0;
			home->step = LIFE_MOVE_STAGED;
			return true;
		case LIFE_MOVE_STAGED:
			own = own_of(to, shard);
			if (own.state != LIFE_OWN_STAGED || own.epoch != home->epoch + 1)
				home->step = LIFE_MOVE_COPY; /* a crash took it back */
			else if (!is_durable(to, shard))
				return false;
			else
			{
				home->delete_at[home->node] = world->now + (1 + life_random(world, 3000)) * LIFE_MS;
				home->node = home->to;
				home->epoch++;
				home->step = LIFE_MOVE_NONE;
			}
			return true;
	}
	return false;
}
