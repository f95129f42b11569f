/*
 * life_history.c
 *		Mode life: histories.
 */
#include "life_world.h"
#include "mode.h"

#define BUSY (5000 * LIFE_MS)
#define CHAOS (9000 * LIFE_MS)
#define REST (60000 * LIFE_MS)

/* Counts of all histories. */
static int sent;
static int violations;

/* Somebody makes a step. False: nobody could. */
static bool
step(LifeWorld *world)
{
	bool any = false;
	int offset = (int) life_random(world, world->n_nodes);

	for (int i = 0; i < world->n_nodes; i++)
	{
		LifeNode *node = &world->nodes[(i + offset) % world->n_nodes];

		if (!node->up && world->now >= node->restart_at)
		{
			life_node_start(node);
			life_note(world, "node %d is up again", node->id);
		}
		if (!node->up)
			continue;
		if (node->frozen <= world->now && life_percent(world, 70))
			any |= life_turn_step(node);
		any |= life_link_step(node);
		if (life_percent(world, world->chaos ? 20 : 60))
			life_node_flush(node);
	}
	return life_move_step(world, (int32) life_random(world, LIFE_SHARDS)) || any;
}

/* Rows of a table, of shards whose home this is. */
static bool
has_rows(const LifeNode *node, LifeTable table, char *text, size_t size)
{
	StoreKey key = {{0}};

	while (store_at_or_next(node->store, NULL, table, &key) != NULL)
	{
		if (table == LIFE_OUTBOX || node->memory.shards[key.k[0]].active)
		{
			snprintf(text, size, "node %d has a row %d/%d/%d in table %d", node->id, (int) key.k[0],
					 (int) key.k[1], (int) key.k[2], table);
			return true;
		}
		key.k[3]++;
	}
	return false;
}

static bool
node_at_rest(const LifeNode *node, char *text, size_t size)
{
	const int64 *cursor = store_get(node->store, NULL, LIFE_CURSOR, LIFE_KEY(0));
	StoreKey key = LIFE_KEY(cursor != NULL ? *cursor + 1 : 0);

	snprintf(text, size, "node %d is in a turn, or behind in its log", node->id);
	if (node->phase != LIFE_IDLE || store_at_or_next(node->store, NULL, LIFE_LOG, &key) != NULL ||
		node->n_events > 0)
		return false;
	return !has_rows(node, LIFE_OUTBOX, text, size) && !has_rows(node, LIFE_HELD, text, size);
}

/* Everything has come to its end, each shard is at its home, and all that is remembered runs. */
static bool
at_rest(LifeWorld *world, char *text, size_t size)
{
	for (int i = 0; i < world->n_nodes; i++)
	{
		if (!node_at_rest(&world->nodes[i], text, size))
			return false;
	}
	for (int32 shard = 0; shard < LIFE_SHARDS; shard++)
	{
		const LifeHome *home = &world->homes[shard];
		const LifeNode *node = &world->nodes[home->node];
		StoreKey key = LIFE_KEY(shard);
		const LifeTimerRow *timer;

		snprintf(text, size, "shard %d is on its way to node %d", shard, home->node + 1);
		if (home->step != LIFE_MOVE_NONE || !node->memory.shards[shard].active)
			return false;
		for (int32 entity = 0; entity < LIFE_ENTITIES; entity++)
		{
			snprintf(text, size, "entity %d/%d is remembered and does not run", shard, entity);
			if (life_check_sleeps(world->check, shard, entity) ||
				node->memory.entities[shard][entity].restart_at != 0)
				return false;
		}
		for (timer = store_at_or_next(node->store, NULL, LIFE_TIMER, &key);
			 timer != NULL && key.k[0] == shard;
			 timer = store_next(node->store, NULL, LIFE_TIMER, &key))
		{
			snprintf(text, size, "timer %d/%d/%d is due and does not fire", shard, (int) key.k[1],
					 (int) key.k[2]);
			if (timer->due <= life_wall(node))
				return false;
		}
	}
	return true;
}

static void
pass(LifeWorld *world)
{
	if (step(world))
		world->now += 20 + life_random(world, world->chaos ? 1200 : 200);
	else
		world->now += 5 * LIFE_MS;
}

static bool
run(const Arguments *arguments, uint64 seed, char *violation, size_t size)
{
	LifeWorld *world = pg_malloc(sizeof(LifeWorld));
	char text[200] = "";
	int64 client_at = 0;
	int64 fault_at = 0;
	int64 end;
	bool rests = false;

	life_world_make(world, seed, arguments->trace);
	while (world->now < CHAOS && life_check_violation(world->check) == NULL)
	{
		if (world->now >= client_at)
		{
			life_client_step(world);
			/* What was forgotten must not be brought back by the next message, so later on few come. */
			client_at = world->now + life_random(world, world->now < BUSY ? 50 : 500) * LIFE_MS;
		}
		if (world->now >= fault_at)
		{
			life_fault_step(world);
			fault_at = world->now + life_random(world, 150) * LIFE_MS;
		}
		pass(world);
	}
	life_heal(world);
	end = world->now + REST;
	for (int64 look_at = 0; world->now < end && !rests && !life_check_violation(world->check);)
	{
		pass(world);
		if (world->now < look_at)
			continue;
		rests = at_rest(world, text, sizeof(text));
		if (!rests)
			life_operator_step(world);
		look_at = world->now + 200 * LIFE_MS;
	}
	if (rests)
		life_check_end(world->check);
	else
		life_check_fail(world->check, "not at rest: %s", text);
	sent += life_check_count(world->check);
	violations += life_check_violation(world->check) != NULL;
	if (life_check_violation(world->check) != NULL)
		strlcpy(violation, life_check_violation(world->check), size);
	rests = life_check_violation(world->check) == NULL;
	life_world_free(world);
	free(world);
	return rests;
}

/* Nothing of a history can be left out. */
static void
report(const Arguments *arguments, uint64 seed, const char *text)
{
	printf("seed %llu: %s\n", (unsigned long long) seed, text);
}

static void
sum(int64 histories, double seconds)
{
	printf("# %lld histories, %d messages, %d violations\n", (long long) histories, sent,
		   violations);
}

const Mode mode_life = {.name = "life", .options = 0, .run = run, .report = report, .sum = sum};
