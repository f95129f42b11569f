/*
 * passivation_test.c
 *		The passivation strategies beside a model that scans, and the frequency sketch.
 *
 * The published cases are in sql/plan_passivation.sql. Here random operations go to the strategies
 * and to a model that keeps nothing in order: it looks for each victim among all entities.
 */
#include "postgres_fe.h"

#include "core/entity/passivation.h"
#include "core/entity/passivation_private.h"
#include "unit.h"

#define ENTITIES 48
#define SHARDS 4
#define OPERATIONS 8000
#define WINDOW (-1)

/* Of the words of a sketch; a changed hash changes whom composite lets go. */
#define SKETCH_CHECKSUM INT64CONST(3665701699920352691)

typedef struct ModelEntity
{
	bool in;
	int level;	 /* WINDOW: in that of composite */
	int64 place; /* when it got into its level */
	int64 turn;	 /* of its last access */
	int64 at;	 /* time of its last access */
	int64 count; /* of accesses since it came */
	int64 priority;
	int64 ever; /* accesses since the shares changed: what the sketch should say */
} ModelEntity;

typedef struct Model
{
	ShardPassivationSettings settings;
	ModelEntity entity[ENTITIES]; /* entity i is one of shard i mod SHARDS */
	int active[SHARDS];			  /* 0: not; else the number of its activation */
	int activations;
	int64 age[SHARDS];
	int64 turn;
	int64 place;
	int victims[ENTITIES * 2];
	int n_victims;
} Model;

/* What orders the entities of a level, or of a shard. */
typedef int64 (*ModelKey)(const ModelEntity *entity);

static int64
by_place(const ModelEntity *entity)
{
	return entity->place;
}

static int64
by_newest(const ModelEntity *entity)
{
	return -entity->turn;
}

static int64
by_priority(const ModelEntity *entity)
{
	return entity->priority * 1000000 + entity->turn;
}

static int64
by_age(const ModelEntity *entity)
{
	return entity->turn;
}

static bool
is_at(const Model *model, int i, int shard, int level)
{
	return model->entity[i].in && i % SHARDS == shard && model->entity[i].level == level;
}

static int
level_size(const Model *model, int shard, int level)
{
	int size = 0;

	for (int i = 0; i < ENTITIES; i++)
		size += is_at(model, i, shard, level);
	return size;
}

/* Entities of a shard in the main area. */
static int
main_size(const Model *model, int shard)
{
	int size = 0;

	for (int i = 0; i < ENTITIES; i++)
		size += model->entity[i].in && i % SHARDS == shard && model->entity[i].level != WINDOW;
	return size;
}

/* The least entity of a level, but except; -1 if there is none. */
static int
least(const Model *model, int shard, int level, ModelKey key, int except)
{
	int found = -1;

	for (int i = 0; i < ENTITIES; i++)
		if (is_at(model, i, shard, level) && i != except &&
			(found < 0 || key(&model->entity[i]) < key(&model->entity[found])))
			found = i;
	return found;
}

static void
leave(Model *model, int i)
{
	model->entity[i].in = false;
	model->victims[model->n_victims++] = i;
}

static void
enter(Model *model, int i, int level)
{
	model->entity[i].in = true;
	model->entity[i].level = level;
	model->entity[i].place = ++model->place;
}

static int
share(const Model *model)
{
	int shards = 0;

	for (int i = 0; i < SHARDS; i++)
		shards += model->active[i] != 0;
	return model->settings.active_entity_limit / Max(shards, 1);
}

static int
levels(const Model *model)
{
	bool has = model->settings.strategy == SHARD_PASSIVATION_SLRU ||
			   model->settings.strategy == SHARD_PASSIVATION_COMPOSITE;

	return has ? model->settings.levels : 1;
}

static int
window_limit(const Model *model)
{
	if (model->settings.strategy != SHARD_PASSIVATION_COMPOSITE)
		return 0;
	return (int) ((int64) share(model) * model->settings.window_proportion / 1000000);
}

static int
level_limit(const Model *model, int level)
{
	return (int) ((int64) (share(model) - window_limit(model)) * model->settings.proportion[level] /
				  1000000);
}

static void
demote(Model *model, int shard, int level)
{
	while (level_size(model, shard, level) > level_limit(model, level))
		enter(model, least(model, shard, level, by_place, -1), level - 1);
}

/* Whatever the main area of lru, slru and composite has too many. */
static void
trim(Model *model, int shard)
{
	while (main_size(model, shard) > share(model) - window_limit(model))
	{
		for (int level = levels(model) - 1; level > 0; level--)
			demote(model, shard, level);
		leave(model, least(model, shard, 0, by_place, -1));
	}
}

static void
trim_recent(Model *model, int shard, int except)
{
	while (main_size(model, shard) > Max(share(model), except < 0 ? 0 : 1))
		leave(model, least(model, shard, 0, by_newest, except));
}

static void
trim_frequent(Model *model, int shard, int keep)
{
	while (main_size(model, shard) > keep)
	{
		int victim = least(model, shard, 0, by_priority, -1);

		if (model->settings.strategy == SHARD_PASSIVATION_LFU_AGING)
			model->age[shard] = model->entity[victim].priority;
		leave(model, victim);
	}
}

/* Whatever the window has too many is admitted or leaves; then the main area is as small as asked. */
static void
trim_window(Model *model, int shard, bool shares_changed)
{
	while (level_size(model, shard, WINDOW) > window_limit(model))
	{
		int candidate = least(model, shard, WINDOW, by_place, -1);
		int selected = least(model, shard, 0, by_place, -1);

		if (main_size(model, shard) >= share(model) - window_limit(model) && selected >= 0 &&
			model->entity[candidate].ever <= model->entity[selected].ever)
		{
			leave(model, candidate);
			continue;
		}
		enter(model, candidate, 0);
		if (!shares_changed)
			trim(model, shard);
	}
}

/* A shard gets its share. */
static void
new_share(Model *model, int shard)
{
	switch (model->settings.strategy)
	{
		case SHARD_PASSIVATION_MRU:
			trim_recent(model, shard, -1);
			break;
		case SHARD_PASSIVATION_LFU:
		case SHARD_PASSIVATION_LFU_AGING:
			trim_frequent(model, shard, share(model));
			break;
		case SHARD_PASSIVATION_IDLE:
			break;
		default:
			trim_window(model, shard, true);
			trim(model, shard);
	}
}

/* All of them do, in the order in which they became active. */
static void
new_shares(Model *model)
{
	for (int i = 0; i < ENTITIES; i++)
		model->entity[i].ever = 0;
	for (int activation = 1; activation <= model->activations; activation++)
		for (int shard = 0; shard < SHARDS; shard++)
			if (model->active[shard] == activation)
				new_share(model, shard);
}

/* An access by priority: room is made before the newcomer enters. */
static void
access_priority(Model *model, int i)
{
	ModelEntity *entity = &model->entity[i];
	int shard = i % SHARDS;

	if (!entity->in)
	{
		trim_frequent(model, shard, Max(share(model) - 1, 0));
		enter(model, i, 0);
		entity->count = 0;
	}
	entity->count++;
	entity->priority = entity->count + model->age[shard];
}

/* An access in levels; a promotion may make the new level overflow. */
static void
access_levels(Model *model, int i)
{
	ModelEntity *entity = &model->entity[i];
	bool composite = model->settings.strategy == SHARD_PASSIVATION_COMPOSITE;
	int shard = i % SHARDS;

	if (!entity->in)
		enter(model, i, composite ? WINDOW : 0);
	else if (entity->level == WINDOW || entity->level == levels(model) - 1)
		enter(model, i, entity->level);
	else
	{
		enter(model, i, entity->level + 1);
		demote(model, shard, entity->level);
	}
	if (composite)
		trim_window(model, shard, false);
	else if (model->settings.strategy == SHARD_PASSIVATION_MRU)
		trim_recent(model, shard, i);
	else if (model->settings.strategy != SHARD_PASSIVATION_IDLE)
		trim(model, shard);
}

static void
model_access(Model *model, int i, int64 now)
{
	ModelEntity *entity = &model->entity[i];

	entity->turn = ++model->turn;
	entity->at = now;
	entity->ever++;
	if (model->settings.strategy == SHARD_PASSIVATION_LFU ||
		model->settings.strategy == SHARD_PASSIVATION_LFU_AGING)
		access_priority(model, i);
	else
		access_levels(model, i);
}

static void
model_idle(Model *model, int64 now)
{
	for (;;)
	{
		int found = -1;

		for (int i = 0; i < ENTITIES; i++)
			if (model->entity[i].in &&
				(found < 0 || by_age(&model->entity[i]) < by_age(&model->entity[found])))
				found = i;
		if (found < 0 || now - model->entity[found].at <= model->settings.idle_after)
			return;
		leave(model, found);
	}
}

/* The strategy and the model side by side. */
typedef struct Pair
{
	Model model;
	ShardPassivation *region;
	ShardPassivationShard *shard[SHARDS];
	ShardPassivationEntity entity[ENTITIES];
	dlist_head victims;
	uint64 random;
	int64 now;
	int left; /* victims so far */
} Pair;

/* The next of a fixed row of numbers below a limit. */
static int
draw(Pair *pair, int limit)
{
	pair->random =
		pair->random * UINT64CONST(6364136223846793005) + UINT64CONST(1442695040888963407);
	return (int) ((pair->random >> 33) % (uint64) limit);
}

/* A random operation on both. */
static void
operate(Pair *pair)
{
	Model *model = &pair->model;
	int kind = draw(pair, 100);
	int i = Min(draw(pair, ENTITIES), draw(pair, ENTITIES)); /* some are popular */
	int shard = i % SHARDS;

	if (kind < 80)
	{
		if (model->active[shard] == 0)
		{
			model->active[shard] = ++model->activations;
			new_shares(model);
			pair->shard[shard] = shard_passivation_add_shard(pair->region, &pair->victims);
		}
		model_access(model, i, pair->now);
		shard_passivation_accessed(pair->region, pair->shard[shard], &pair->entity[i], pair->now,
								   &pair->victims);
	}
	else if (kind < 88)
	{
		model->entity[i].in = false;
		shard_passivation_remove(pair->region, &pair->entity[i]);
	}
	else if (kind < 97)
	{
		pair->now += draw(pair, 400);
		if (model->settings.idle_after > 0)
			model_idle(model, pair->now);
		shard_passivation_idle(pair->region, pair->now, &pair->victims);
	}
	else if (kind < 99)
	{
		model->settings.active_entity_limit = 1 + draw(pair, ENTITIES);
		new_shares(model);
		shard_passivation_set_limit(pair->region, model->settings.active_entity_limit,
									&pair->victims);
	}
	else if (model->active[shard] != 0)
	{
		for (int j = shard; j < ENTITIES; j += SHARDS)
			model->entity[j].in = false;
		model->active[shard] = 0;
		model->age[shard] = 0;
		new_shares(model);
		shard_passivation_remove_shard(pair->region, pair->shard[shard], &pair->victims);
	}
}

/* Whether both let the same entities go, in the same order, and have the same ones left. */
static bool
agree(Pair *pair)
{
	Model *model = &pair->model;
	bool equal = true;
	int n = 0;

	while (!dlist_is_empty(&pair->victims))
	{
		ShardPassivationEntity *victim =
			dlist_container(ShardPassivationEntity, place, dlist_pop_head_node(&pair->victims));

		equal = equal && n < model->n_victims && model->victims[n] == (int) (victim - pair->entity);
		n++;
	}
	equal = equal && n == model->n_victims;
	pair->left += n;
	model->n_victims = 0;
	for (int i = 0; i < ENTITIES; i++)
		equal = equal && model->entity[i].in == (pair->entity[i].shard != NULL);
	for (int shard = 0; shard < SHARDS; shard++)
		if (model->active[shard] != 0)
			equal = equal && shard_passivation_size(pair->shard[shard]) ==
								 main_size(model, shard) + level_size(model, shard, WINDOW);
	return equal;
}

/* Many random operations, after each of which both must agree. */
static void
compare(const char *name, int64 idle_after, uint64 seed)
{
	static Pair pair;
	ShardPassivationStrategy strategy = SHARD_PASSIVATION_NONE;
	ShardPassivationSettings settings;
	int agreed = 0;

	memset(&pair, 0, sizeof(pair));
	ok(shard_passivation_find(name, &strategy), "there is a strategy %s", name);
	settings = shard_passivation_defaults(strategy);
	settings.active_entity_limit = 20;
	if (idle_after > 0)
		settings.idle_after = idle_after;
	settings.levels = 3;
	settings.proportion[0] = 400000;
	settings.proportion[1] = 350000;
	settings.proportion[2] = 250000;
	settings.window_proportion = 300000;
	/* so wide and deep that estimates are exact */
	settings.sketch_counter_bits = 32;
	settings.sketch_depth = 8;
	settings.sketch_width_multiplier = 1000;
	settings.sketch_reset_multiplier = 1000000;
	pair.model.settings = settings;
	pair.random = seed;
	pair.region = shard_passivation_create(&settings);
	dlist_init(&pair.victims);
	for (int i = 0; i < ENTITIES; i++)
		pair.entity[i].hash = (uint32) i;

	while (agreed < OPERATIONS)
	{
		operate(&pair);
		if (!agree(&pair))
			break;
		agreed++;
	}
	is_int(agreed, OPERATIONS, "%s%s does as the model, seed %d", name,
		   idle_after > 0 ? " with idle_after" : "", (int) seed);
	ok(pair.left > OPERATIONS / 100, "%s let some go: %d", name, pair.left);
	shard_passivation_destroy(pair.region);
}

static void
test_strategies(void)
{
	static const char *const limited[] = {"lru", "slru", "mru", "lfu", "lfu_aging", "composite"};

	compare("idle", 1000, 1);
	for (int i = 0; i < (int) lengthof(limited); i++)
	{
		compare(limited[i], 0, 2);
		compare(limited[i], 1000, 3);
	}
}

/* A sketch for so many entities. */
static ShardSketch
sketch_for(int entities, int depth, int bits, int width, int reset)
{
	ShardSketch sketch;

	shard_passivation_sketch_init(&sketch, depth, bits);
	shard_passivation_sketch_reset(&sketch, entities, width, reset);
	return sketch;
}

static void
add_times(ShardSketch *sketch, uint32 hash, int times)
{
	for (int i = 0; i < times; i++)
		shard_passivation_sketch_add(sketch, hash);
}

/* Counters are full at their greatest value; accesses that find them full do not count. */
static void
test_sketch_counters(void)
{
	static const int bits[] = {2, 4, 8, 16};

	for (int i = 0; i < (int) lengthof(bits); i++)
	{
		ShardSketch sketch = sketch_for(100, 4, bits[i], 4, 1000000);
		int full = (1 << bits[i]) - 1;

		is_int(shard_passivation_sketch_estimate(&sketch, 7), 0, "%d bits: nothing counted yet",
			   bits[i]);
		add_times(&sketch, 7, full - 1);
		is_int(shard_passivation_sketch_estimate(&sketch, 7), full - 1, "%d bits: almost full",
			   bits[i]);
		add_times(&sketch, 7, 10);
		is_int(shard_passivation_sketch_estimate(&sketch, 7), full, "%d bits: full", bits[i]);
		is_int(sketch.size, full, "%d bits: what finds counters full is not counted", bits[i]);
		is_int(shard_passivation_sketch_estimate(&sketch, 8), 0,
			   "%d bits: the neighbour is not touched", bits[i]);
		shard_passivation_sketch_free(&sketch);
	}
}

/* The reset halves all counters, rounding down, and the count of accesses with them. */
static void
test_sketch_halves(void)
{
	ShardSketch sketch = sketch_for(10, 4, 4, 64, 2);

	add_times(&sketch, 1, 9);
	add_times(&sketch, 2, 4);
	add_times(&sketch, 3, 6);
	is_int(sketch.size, 19, "before the twentieth access");
	is_int(shard_passivation_sketch_estimate(&sketch, 1), 9, "nothing is halved");
	add_times(&sketch, 4, 1);
	is_int(shard_passivation_sketch_estimate(&sketch, 1), 4, "9 becomes 4");
	is_int(shard_passivation_sketch_estimate(&sketch, 2), 2, "4 becomes 2");
	is_int(shard_passivation_sketch_estimate(&sketch, 3), 3, "6 becomes 3");
	is_int(shard_passivation_sketch_estimate(&sketch, 4), 0, "1 becomes 0");
	is_int(sketch.size, 9, "20 accesses become 9: two counters were odd");
	add_times(&sketch, 5, 11);
	is_int(shard_passivation_sketch_estimate(&sketch, 1), 2,
		   "the next reset comes after another 11");
	shard_passivation_sketch_reset(&sketch, 20, 64, 2);
	is_int(shard_passivation_sketch_estimate(&sketch, 1) + sketch.size, 0,
		   "it can begin anew, larger");
	shard_passivation_sketch_reset(&sketch, 0, 64, 2);
	add_times(&sketch, 1, 100);
	is_int(shard_passivation_sketch_estimate(&sketch, 1), 15,
		   "a sketch for nothing is never halved");
	shard_passivation_sketch_free(&sketch);
}

/* Estimates are never too low, and seldom too high; the same on every machine. */
static void
test_sketch_estimates(void)
{
	ShardSketch sketch = sketch_for(1000, 4, 8, 4, 1000000);
	uint64 checksum = 0;
	int low = 0;
	int high = 0;

	for (uint32 i = 0; i < 1000; i++)
		add_times(&sketch, i * 7919, (int) (i % 10));
	for (uint32 i = 0; i < 1000; i++)
	{
		uint32 estimate = shard_passivation_sketch_estimate(&sketch, i * 7919);

		low += estimate < i % 10;
		high += estimate > i % 10;
	}
	is_int(low, 0, "no estimate is too low");
	ok(high < 20, "%d of 1000 estimates are too high", high);
	for (int64 i = 0; i < sketch.row_words * sketch.depth; i++)
		checksum = checksum * 31 + sketch.words[i];
	is_int((int64) (checksum >> 1), SKETCH_CHECKSUM, "known answer");
	shard_passivation_sketch_reset(&sketch, PG_INT32_MAX, 1000, 1000000);
	is_int(sketch.width, SHARD_SKETCH_MAX_WIDTH, "the width has a limit");
	shard_passivation_sketch_free(&sketch);
}

/* A region of one shard that lets go of who was not accessed for longer than a time. */
static void
test_idle_times(void)
{
	ShardPassivationSettings settings = shard_passivation_defaults(SHARD_PASSIVATION_IDLE);
	ShardPassivationEntity entity[2] = {{0}};
	ShardPassivation *region;
	ShardPassivationShard *shard;
	dlist_head victims;

	dlist_init(&victims);
	settings.idle_after = 100;
	region = shard_passivation_create(&settings);
	shard = shard_passivation_add_shard(region, &victims);
	is_int(shard_passivation_next_idle(region), PG_INT64_MAX, "nobody is there to leave");
	shard_passivation_accessed(region, shard, &entity[0], 1000, &victims);
	shard_passivation_accessed(region, shard, &entity[1], 500, &victims);
	is_int(entity[1].accessed_at, 1000, "a clock that is set back stands still");
	is_int(shard_passivation_next_idle(region), 1101, "the first leaves after more than the time");
	shard_passivation_idle(region, 1100, &victims);
	ok(dlist_is_empty(&victims), "not before");
	shard_passivation_accessed(region, shard, &entity[0], 1100, &victims);
	shard_passivation_idle(region, 1101, &victims);
	ok(entity[1].shard == NULL && entity[0].shard == shard, "who was accessed again stays");
	is_int(shard_passivation_size(shard), 1, "one is left");
	shard_passivation_accessed(region, shard, &entity[0], PG_INT64_MAX - 1, &victims);
	is_int(shard_passivation_next_idle(region), PG_INT64_MAX, "the end of time is no overflow");
	shard_passivation_remove(region, &entity[1]);
	is_int(shard_passivation_size(shard), 1, "to remove who has left does nothing");
	shard_passivation_destroy(region);
}

/* Where the limit is 0, everybody is his own victim, and may come again at once. */
static void
test_own_victim(void)
{
	ShardPassivationSettings settings = shard_passivation_defaults(SHARD_PASSIVATION_LRU);
	ShardPassivationEntity entity = {0};
	ShardPassivation *region;
	ShardPassivationShard *shard;
	dlist_head victims;

	dlist_init(&victims);
	settings.active_entity_limit = 1;
	region = shard_passivation_create(&settings);
	shard = shard_passivation_add_shard(region, &victims);
	(void) shard_passivation_add_shard(region, &victims);
	is_int(shard_passivation_share(shard), 0, "half of 1 is 0");
	for (int i = 0; i < 2; i++)
	{
		shard_passivation_accessed(region, shard, &entity, i, &victims);
		ok(entity.shard == NULL && !dlist_is_empty(&victims) &&
			   dlist_pop_head_node(&victims) == &entity.place && dlist_is_empty(&victims),
		   "access %d: comes and leaves", i + 1);
	}
	shard_passivation_destroy(region);
}

/* Settings that are right and wrong. */
static void
test_settings(void)
{
	ShardPassivationStrategy strategy = SHARD_PASSIVATION_STRATEGIES;
	ShardPassivationSettings settings;
	ShardPassivationSettings other;

	for (int i = 0; i < SHARD_PASSIVATION_STRATEGIES; i++)
	{
		const char *name = shard_passivation_name((ShardPassivationStrategy) i);

		settings = shard_passivation_defaults((ShardPassivationStrategy) i);
		ok(shard_passivation_find(name, &strategy) && (int) strategy == i,
		   "%s is found by its name", name);
		ok(shard_passivation_problem(&settings) == NULL, "the defaults of %s have no problem",
		   name);
	}
	ok(!shard_passivation_find("fifo", &strategy), "there is no strategy fifo");

	settings = shard_passivation_defaults(SHARD_PASSIVATION_SLRU);
	settings.proportion[0] = 200003;
	ok(shard_passivation_problem(&settings) != NULL, "proportions beyond 1");
	settings.proportion[0] = 200002;
	ok(shard_passivation_problem(&settings) == NULL, "rounding may lead a little beyond 1");
	settings.levels = SHARD_PASSIVATION_MAX_LEVELS + 1;
	ok(shard_passivation_problem(&settings) != NULL, "too many levels");
	settings = shard_passivation_defaults(SHARD_PASSIVATION_COMPOSITE);
	other = settings;
	other.active_entity_limit++;
	ok(shard_passivation_is_like(&settings, &other), "another limit is no other strategy");
	settings.sketch_counter_bits = 64;
	ok(shard_passivation_problem(&settings) != NULL, "counters too large");
	ok(!shard_passivation_is_like(&settings, &other), "other counters are");
}

int
main(void)
{
	test_strategies();
	test_sketch_counters();
	test_sketch_halves();
	test_sketch_estimates();
	test_idle_times();
	test_own_victim();
	test_settings();
	return unit_done();
}
