/*
 * life_world.c
 *		Chance, clocks, clients and faults of mode life.
 */
#include "life.h"
#include "life_world.h"

/* splitmix64: the same history from the same seed. */
uint32
life_random(LifeWorld *world, uint32 below)
{
	uint64 z = (world->state += UINT64CONST(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94d049bb133111eb);
	z ^= z >> 31;
	return below > 0 ? (uint32) (z >> 32) % below : 0;
}

bool
life_percent(LifeWorld *world, int chance)
{
	return (int) life_random(world, 100) < chance;
}

void
life_note(LifeWorld *world, const char *format, ...)
{
	va_list args;

	if (!world->trace)
		return;
	printf("%8.3f ", (double) world->now / 1000000);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

/* The clock of a node's machine. */
int64
life_wall(const LifeNode *node)
{
	return INT64CONST(1000000000) + node->world->now + node->offset;
}

static LifeType
draw_type(LifeWorld *world)
{
	LifeType type = {.remembers = life_percent(world, 60),
					 .start_message = life_percent(world, 50),
					 .stop_message = life_percent(world, 60),
					 .recovery = {.number = 1 + life_random(world, 2), .workers = 1}};
	ShardPassivationStrategy strategy =
		(ShardPassivationStrategy) life_random(world, SHARD_PASSIVATION_STRATEGIES);

	if (life_percent(world, 40))
		type.recovery.period = (50 + life_random(world, 200)) * LIFE_MS;
	type.limits =
		(ShardEntityLimits){.max_attempts = 2 + (int) life_random(world, 4),
							.retry_backoff = (20 + life_random(world, 80)) * LIFE_MS,
							.max_retry_backoff = 1500 * LIFE_MS,
							.restart_backoff = (100 + life_random(world, 300)) * LIFE_MS,
							.max_restarts = -1,
							.failure_backoff = (200 + life_random(world, 1800)) * LIFE_MS};
	/* shorter than the longest pause: attempts count, too, and a message that fails for good would else pause for ever */
	if (life_percent(world, 60))
		type.limits.max_restarts = 1 + (int) life_random(world, LIFE_FAILURES - 2);
	type.restart_window = (100 + life_random(world, 900)) * LIFE_MS;
	type.passivation = shard_passivation_defaults(strategy);
	type.passivation.active_entity_limit = 1 + (int) life_random(world, 8);
	if (strategy != SHARD_PASSIVATION_NONE)
		type.passivation.idle_after = (200 + life_random(world, 1500)) * LIFE_MS;
	return type;
}

void
life_world_make(LifeWorld *world, uint64 seed, bool trace)
{
	memset(world, 0, sizeof(*world));
	world->state = seed * UINT64CONST(0x2545f4914f6cdd1d) + 1;
	world->trace = trace;
	world->chaos = true;
	world->check = life_check_create(world);
	world->n_nodes = 1 + (int) life_random(world, LIFE_NODES);
	world->clocks_jump = life_percent(world, 50);
	world->jumped_at = -1;
	world->midnight = life_percent(world, 25);
	for (int type = 0; type < LIFE_TYPES; type++)
		world->types[type] = draw_type(world);
	for (int i = 0; i < world->n_nodes; i++)
		life_node_create(world, i);
	for (int32 shard = 0; shard < LIFE_SHARDS; shard++)
	{
		LifeHome *home = &world->homes[shard];
		LifeOwn own = {LIFE_OWN_ACTIVE, 1};
		StoreTransaction *tx;

		*home = (LifeHome){.node = (int) life_random(world, world->n_nodes), .epoch = 1};
		tx = store_begin(world->nodes[home->node].store);
		store_put(tx, LIFE_OWN, LIFE_KEY(shard), &own);
		store_commit(tx);
		store_flush(world->nodes[home->node].store);
	}
	for (int i = 0; i < world->n_nodes; i++)
		life_node_start(&world->nodes[i]);
}

void
life_world_free(LifeWorld *world)
{
	for (int i = 0; i < world->n_nodes; i++)
		life_node_destroy(&world->nodes[i]);
	life_check_destroy(world->check);
}

/* Within some seconds; half of them at times that others have, too. */
int64
life_draw_due(LifeWorld *world, const LifeNode *node)
{
	int64 due = life_wall(node) + life_random(world, 3000) * LIFE_MS;
	int64 round = (world->midnight ? 4000 : 500) * LIFE_MS;

	return world->midnight || life_percent(world, 50) ? due - due % round + round : due;
}

/* Any message, to any entity; session 0: a handler's. */
LifeRow
life_draw_message(LifeWorld *world, LifeNode *node, int64 session)
{
	LifeRow row = {.shard = (int32) life_random(world, LIFE_SHARDS),
				   .entity = (int32) life_random(world, LIFE_ENTITIES),
				   .name = (int32) life_random(world, LIFE_NAMES)};
	uint32 kind = life_random(world, 100);
	uint32 decision = life_random(world, 100);

	row.kind = kind < 62 || session == 0 ? LIFE_TELL
			   : kind < 78				 ? LIFE_SCHEDULE
			   : kind < 84				 ? LIFE_CANCEL
			   : kind < 92				 ? LIFE_PASSIVATE
										 : LIFE_START;
	if (life_percent(world, 15))
		row.fails = life_percent(world, 20) ? LIFE_FAILS_FOR_GOOD : 1 + (int) life_random(world, 3);
	row.hope = row.fails == LIFE_FAILS_FOR_GOOD
				   ? SHARD_ENTITY_LASTS
				   : (int32) life_random(world, SHARD_ENTITY_PASSES + 1);
	row.decided = life_percent(world, 50);
	row.decision = decision < 70									   ? SHARD_ENTITY_RESTART
				   : decision < 80									   ? SHARD_ENTITY_RESUME
				   : decision < 90 || row.fails == LIFE_FAILS_FOR_GOOD ? SHARD_ENTITY_STOP
																	   : SHARD_ENTITY_ESCALATE;
	if (row.kind == LIFE_TELL && life_percent(world, 25))
		row.deed = 1 + (int) life_random(world, LIFE_DEED_STOP);
	if (row.kind == LIFE_SCHEDULE)
	{
		row.due = life_draw_due(world, node);
		row.missed = SHARD_TIMER_ONCE + (int32) life_random(world, 3);
		if (life_percent(world, 25))
			row.every = (400 + life_random(world, 2000)) * LIFE_MS;
	}
	return row;
}

/* A client sends some messages by one transaction. */
static void
send(LifeWorld *world, LifeNode *node, int64 session, LifeRow *rows, int n)
{
	StoreTransaction *tx = store_begin(node->store);
	bool well = true;
	int64 lsn;

	for (int i = 0; i < n; i++)
	{
		rows[i].id = life_check_send(world->check, node->id, session, &rows[i]);
		well &= life_append(node, tx, &rows[i]);
		life_note(world, "node %d sends message %d of kind %d to %d/%d, deed %d, fails %d",
				  node->id, (int) rows[i].id, rows[i].kind, rows[i].shard, rows[i].entity,
				  rows[i].deed, rows[i].fails);
	}
	if (!well)
	{
		store_abort(tx);
		for (int i = 0; i < n; i++)
			life_check_aborted(world->check, rows[i].id);
		return;
	}
	lsn = store_commit(tx);
	for (int i = 0; i < n; i++)
		life_check_committed(world->check, rows[i].id, lsn);
}

void
life_client_step(LifeWorld *world)
{
	LifeNode *node = &world->nodes[life_random(world, world->n_nodes)];
	LifeRow rows[3];
	int64 session = node->sessions[life_random(world, LIFE_SESSIONS)];
	int n = 1 + (int) life_random(world, lengthof(rows));

	if (!node->up)
		return;
	for (int i = 0; i < n; i++)
	{
		rows[i] = life_draw_message(world, node, session);
		/* Often to the same entity: then order is tried. */
		if (i > 0 && life_percent(world, 50))
		{
			rows[i].shard = rows[0].shard;
			rows[i].entity = rows[0].entity;
		}
	}
	send(world, node, session, rows, n);
}

void
life_fault_step(LifeWorld *world)
{
	LifeNode *node = &world->nodes[life_random(world, world->n_nodes)];
	uint32 what = life_random(world, 100);

	if (what < 15)
	{
		if (!node->up)
			return;
		life_note(world, "node %d crashes", node->id);
		store_set_full(node->store, false);
		life_node_crash(node);
		node->restart_at = world->now + life_random(world, 800) * LIFE_MS;
	}
	else if (what < 40)
		life_move_begin(world, (int32) life_random(world, LIFE_SHARDS));
	else if (what < 55)
		node->frozen = world->now + life_random(world, 1200) * LIFE_MS;
	else if (what < 65)
	{
		if (!world->clocks_jump)
			return;
		world->jumped_at = world->now;
		node->offset = ((int64) life_random(world, 16000) - 8000) * LIFE_MS;
		life_note(world, "the clock of node %d is %d ms off", node->id,
				  (int) (node->offset / LIFE_MS));
	}
	else if (what < 72)
		store_set_full(node->store, node->up && !store_full(node->store));
	else if (what < 84)
		world->aside_until[life_random(world, LIFE_SHARDS)][life_random(world, LIFE_ENTITIES)] =
			world->now + life_random(world, 1500) * LIFE_MS;
	else
		world->sick[life_random(world, LIFE_SHARDS)][life_random(world, LIFE_ENTITIES)] ^= true;
}

/* All faults end; an operator starts what is in quarantine. */
void
life_heal(LifeWorld *world)
{
	world->chaos = false;
	if (world->clocks_jump)
		world->jumped_at = world->now;
	memset(world->sick, 0, sizeof(world->sick));
	memset(world->aside_until, 0, sizeof(world->aside_until));
	for (int i = 0; i < world->n_nodes; i++)
	{
		LifeNode *node = &world->nodes[i];

		node->frozen = 0;
		node->offset = 0;
		store_set_full(node->store, false);
		if (!node->up)
			life_node_start(node);
	}
	life_note(world, "all is well again");
}

/* What would never come to rest by itself: entities in quarantine are started, timers that go on are cancelled. */
void
life_operator_step(LifeWorld *world)
{
	for (int32 shard = 0; shard < LIFE_SHARDS; shard++)
	{
		LifeNode *node = &world->nodes[world->homes[shard].node];
		StoreKey key = LIFE_KEY(shard);
		const LifeTimerRow *timer = store_at_or_next(node->store, NULL, LIFE_TIMER, &key);

		for (; timer != NULL && key.k[0] == shard;
			 timer = store_next(node->store, NULL, LIFE_TIMER, &key))
		{
			LifeRow row = {.kind = LIFE_CANCEL,
						   .shard = shard,
						   .entity = (int32) key.k[1],
						   .name = (int32) key.k[2]};

			if (timer->every > 0)
				send(world, node, node->sessions[0], &row, 1);
		}
		for (int32 entity = 0; entity < LIFE_ENTITIES; entity++)
		{
			const LifeHeldRow *held = store_get(node->store, NULL, LIFE_HELD,
												LIFE_KEY(shard, entity, LIFE_PLACE_START, 0));
			LifeRow row = {.kind = LIFE_START, .shard = shard, .entity = entity};

			if (held != NULL && held->next_at == LIFE_NEVER)
				send(world, node, node->sessions[0], &row, 1);
		}
	}
}
