/*
 * core/entity/passivation.c
 *		Which entities leave memory: the passivation strategies.
 *
 * All entities of a region are in one list by their last access, which idle_after needs. Besides,
 * each is in the structure that its shard's strategy picks victims from: segments, or a heap by
 * frequency, or one of the two areas of composite, which are segments as well.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/entity/passivation.h"
#include "core/entity/passivation_private.h"

struct ShardPassivationShard
{
	dlist_node link; /* in the region's list */
	int share;		 /* of the region's limit */

	/* lru, slru, mru, idle; composite: the main area */
	ShardSegments main;

	/* composite */
	ShardSegments window;
	int main_share;
	ShardSketch sketch;
	bool sketch_stale; /* the next access resets it */

	/* lfu, lfu_aging */
	ShardFrequency frequency;
};

struct ShardPassivation
{
	ShardPassivationSettings settings;
	dlist_head shards; /* in the order in which they became active */
	int n_shards;
	dlist_head recency; /* all entities, the least recent first */
	int64 now;			/* the latest time that was heard of */
	uint64 turn;		/* number of accesses */
};

static const char *const strategy_names[] = {
	[SHARD_PASSIVATION_NONE] = "none",
	[SHARD_PASSIVATION_IDLE] = "idle",
	[SHARD_PASSIVATION_LRU] = "lru",
	[SHARD_PASSIVATION_SLRU] = "slru",
	[SHARD_PASSIVATION_MRU] = "mru",
	[SHARD_PASSIVATION_LFU] = "lfu",
	[SHARD_PASSIVATION_LFU_AGING] = "lfu_aging",
	[SHARD_PASSIVATION_COMPOSITE] = "composite",
};

/* ---- settings --------------------------------------------------------------------------------- */

const char *
shard_passivation_name(ShardPassivationStrategy strategy)
{
	return strategy_names[strategy];
}

bool
shard_passivation_find(const char *name, ShardPassivationStrategy *strategy)
{
	for (int i = 0; i < SHARD_PASSIVATION_STRATEGIES; i++)
	{
		if (strcmp(strategy_names[i], name) == 0)
		{
			*strategy = (ShardPassivationStrategy) i;
			return true;
		}
	}
	return false;
}

/* Those of the reference. */
ShardPassivationSettings
shard_passivation_defaults(ShardPassivationStrategy strategy)
{
	return (ShardPassivationSettings){
		.strategy = strategy,
		.active_entity_limit = 100000,
		.idle_after = strategy == SHARD_PASSIVATION_IDLE ? INT64CONST(120000000) : 0,
		.levels = 2,
		.proportion = {SHARD_PASSIVATION_WHOLE / 5, SHARD_PASSIVATION_WHOLE / 5 * 4},
		.window_proportion = SHARD_PASSIVATION_WHOLE / 100,
		.filter = true,
		.sketch_depth = 4,
		.sketch_counter_bits = 4,
		.sketch_width_multiplier = 4,
		.sketch_reset_multiplier = 10,
	};
}

/* What is wrong with the levels. Each proportion may have been rounded up by half a millionth. */
static const char *
levels_problem(const ShardPassivationSettings *settings)
{
	int sum = 0;

	if (settings->levels < 1 || settings->levels > SHARD_PASSIVATION_MAX_LEVELS)
		return "There can be 1 to 10 levels.";
	for (int level = 0; level < settings->levels && !settings->equal_levels; level++)
	{
		if (settings->proportion[level] < 0 ||
			settings->proportion[level] > SHARD_PASSIVATION_WHOLE)
			return "Proportions are between 0 and 1.";
		sum += settings->proportion[level];
	}
	if (sum > SHARD_PASSIVATION_WHOLE + settings->levels)
		return "The proportions of the levels add up to more than 1.";
	return NULL;
}

/* What is wrong with the admission to the main area. */
static const char *
admission_problem(const ShardPassivationSettings *settings)
{
	int bits = settings->sketch_counter_bits;

	if (settings->window_proportion < 0 || settings->window_proportion > SHARD_PASSIVATION_WHOLE)
		return "The proportion of the window is between 0 and 1.";
	if (settings->sketch_depth < 1 || settings->sketch_depth > SHARD_SKETCH_MAX_DEPTH)
		return "The depth of the frequency sketch is between 1 and 8.";
	if (bits != 2 && bits != 4 && bits != 8 && bits != 16 && bits != 32)
		return "Counters of the frequency sketch have 2, 4, 8, 16 or 32 bits.";
	if (settings->sketch_width_multiplier < 1 || settings->sketch_width_multiplier > 1000 ||
		settings->sketch_reset_multiplier < 1 || settings->sketch_reset_multiplier > 1000000)
		return "The multiplier of the frequency sketch's width is between 1 and 1000, that of its "
			   "reset between 1 and 1000000.";
	return NULL;
}

const char *
shard_passivation_problem(const ShardPassivationSettings *settings)
{
	const char *problem;

	if (settings->active_entity_limit < 1)
		return "The limit of active entities is at least 1.";
	if (settings->idle_after < 0)
		return "The time after which an idle entity leaves is not negative.";
	if (settings->strategy == SHARD_PASSIVATION_IDLE && settings->idle_after == 0)
		return "Strategy \"idle\" needs the time after which an idle entity leaves.";
	problem = levels_problem(settings);
	return problem != NULL ? problem : admission_problem(settings);
}

/* Fields that a strategy does not use are compared, too: they have their defaults. */
bool
shard_passivation_is_like(const ShardPassivationSettings *a, const ShardPassivationSettings *b)
{
	return a->strategy == b->strategy && a->idle_after == b->idle_after && a->levels == b->levels &&
		   a->equal_levels == b->equal_levels &&
		   memcmp(a->proportion, b->proportion, sizeof(a->proportion)) == 0 &&
		   a->window_proportion == b->window_proportion && a->filter == b->filter &&
		   a->sketch_depth == b->sketch_depth && a->sketch_counter_bits == b->sketch_counter_bits &&
		   a->sketch_width_multiplier == b->sketch_width_multiplier &&
		   a->sketch_reset_multiplier == b->sketch_reset_multiplier;
}

/* ---- the region and its shards ---------------------------------------------------------------- */

/* Whether a strategy keeps entities by frequency. */
static bool
by_frequency(const ShardPassivation *region)
{
	return region->settings.strategy == SHARD_PASSIVATION_LFU ||
		   region->settings.strategy == SHARD_PASSIVATION_LFU_AGING;
}

ShardPassivation *
shard_passivation_create(const ShardPassivationSettings *settings)
{
	ShardPassivation *region = palloc0(sizeof(ShardPassivation));

	Assert(shard_passivation_problem(settings) == NULL);
	region->settings = *settings;
	region->now = PG_INT64_MIN;
	dlist_init(&region->shards);
	dlist_init(&region->recency);
	return region;
}

/* Free a shard that is in no list. */
static void
free_shard(ShardPassivation *region, ShardPassivationShard *shard)
{
	if (by_frequency(region))
		shard_passivation_frequency_free(&shard->frequency);
	if (region->settings.strategy == SHARD_PASSIVATION_COMPOSITE)
		shard_passivation_sketch_free(&shard->sketch);
	pfree(shard);
}

void
shard_passivation_destroy(ShardPassivation *region)
{
	while (!dlist_is_empty(&region->shards))
		free_shard(region, dlist_container(ShardPassivationShard, link,
										   dlist_pop_head_node(&region->shards)));
	pfree(region);
}

/* An entity that is in no structure of its shard any more leaves memory. */
static void
let_go(ShardPassivationEntity *entity, dlist_head *victims)
{
	dlist_delete(&entity->recency);
	entity->shard = NULL;
	dlist_push_tail(victims, &entity->place);
}

/* ---- composite -------------------------------------------------------------------------------- */

/*
 * Whether a candidate from the window is more frequent than the entity that it would replace. The
 * frequencies of a stale sketch are all 0.
 */
static bool
is_admitted(const ShardPassivation *region, const ShardPassivationShard *shard,
			const ShardPassivationEntity *candidate, const ShardPassivationEntity *selected)
{
	if (!region->settings.filter)
		return true;
	return !shard->sketch_stale &&
		   shard_passivation_sketch_estimate(&shard->sketch, candidate->hash) >
			   shard_passivation_sketch_estimate(&shard->sketch, selected->hash);
}

/*
 * An entity that drops out of the window gets into the main area, or leaves. With an empty lowest
 * level there is no entity to compare with: the newcomer enters it, and the segments decide.
 */
static void
admit(ShardPassivation *region, ShardPassivationShard *shard, ShardPassivationEntity *candidate,
	  dlist_head *victims)
{
	const ShardPassivationEntity *selected = shard_passivation_segments_least(&shard->main);
	ShardPassivationEntity *victim;

	if (shard->main.size >= shard->main_share && selected != NULL &&
		!is_admitted(region, shard, candidate, selected))
	{
		let_go(candidate, victims);
		return;
	}
	candidate->in_window = false;
	shard_passivation_segments_insert(&shard->main, candidate);
	while ((victim = shard_passivation_segments_pop(&shard->main)) != NULL)
		let_go(victim, victims);
}

/* Whatever the window has too many. */
static void
shrink_window(ShardPassivation *region, ShardPassivationShard *shard, dlist_head *victims)
{
	ShardPassivationEntity *candidate;

	while ((candidate = shard_passivation_segments_pop(&shard->window)) != NULL)
		admit(region, shard, candidate, victims);
}

/* Count an access, in a sketch that fits the shard's share. */
static void
count_access(ShardPassivation *region, ShardPassivationShard *shard, uint32 hash)
{
	const ShardPassivationSettings *settings = &region->settings;

	if (!settings->filter)
		return;
	if (shard->sketch_stale)
		shard_passivation_sketch_reset(&shard->sketch, shard->share,
									   settings->sketch_width_multiplier,
									   settings->sketch_reset_multiplier);
	shard->sketch_stale = false;
	shard_passivation_sketch_add(&shard->sketch, hash);
}

/* An access in a shard of composite. */
static void
access_composite(ShardPassivation *region, ShardPassivationShard *shard,
				 ShardPassivationEntity *entity, bool is_new, dlist_head *victims)
{
	count_access(region, shard, entity->hash);
	if (!is_new)
	{
		shard_passivation_segments_touch(entity->in_window ? &shard->window : &shard->main, entity);
		return;
	}
	entity->in_window = true;
	shard_passivation_segments_insert(&shard->window, entity);
	shrink_window(region, shard, victims);
}

/* ---- limits ----------------------------------------------------------------------------------- */

/* The proportions of the levels; NULL: equal. */
static const int *
proportions(const ShardPassivation *region)
{
	return region->settings.equal_levels ? NULL : region->settings.proportion;
}

/* Give a shard of composite its share; first the window gives way, then the main area. */
static void
share_composite(ShardPassivation *region, ShardPassivationShard *shard, dlist_head *victims)
{
	int64 window =
		(int64) shard->share * region->settings.window_proportion / SHARD_PASSIVATION_WHOLE;
	ShardPassivationEntity *victim;

	shard->main_share = shard->share - (int) window;
	shard->sketch_stale = true;
	shard_passivation_segments_set_limit(&shard->window, (int) window, NULL);
	shrink_window(region, shard, victims);
	shard_passivation_segments_set_limit(&shard->main, shard->main_share, proportions(region));
	while ((victim = shard_passivation_segments_pop(&shard->main)) != NULL)
		let_go(victim, victims);
}

/* Give a shard its share; the entities beyond it leave. */
static void
give_share(ShardPassivation *region, ShardPassivationShard *shard, int share, dlist_head *victims)
{
	ShardPassivationEntity *victim;

	shard->share = share;
	switch (region->settings.strategy)
	{
		case SHARD_PASSIVATION_LRU:
		case SHARD_PASSIVATION_SLRU:
			shard_passivation_segments_set_limit(&shard->main, share, proportions(region));
			while ((victim = shard_passivation_segments_pop(&shard->main)) != NULL)
				let_go(victim, victims);
			break;
		case SHARD_PASSIVATION_MRU:
			while ((victim = shard_passivation_segments_pop_recent(&shard->main, share, NULL)) !=
				   NULL)
				let_go(victim, victims);
			break;
		case SHARD_PASSIVATION_LFU:
		case SHARD_PASSIVATION_LFU_AGING:
			while ((victim = shard_passivation_frequency_pop(&shard->frequency, share)) != NULL)
				let_go(victim, victims);
			break;
		case SHARD_PASSIVATION_COMPOSITE:
			share_composite(region, shard, victims);
			break;
		case SHARD_PASSIVATION_NONE:
		case SHARD_PASSIVATION_IDLE:
		case SHARD_PASSIVATION_STRATEGIES:
			break;
	}
}

/* Divide the region's limit. */
static void
divide_limit(ShardPassivation *region, dlist_head *victims)
{
	dlist_iter iter;

	dlist_foreach (iter, &region->shards)
		give_share(region, dlist_container(ShardPassivationShard, link, iter.cur),
				   region->settings.active_entity_limit / region->n_shards, victims);
}

void
shard_passivation_set_limit(ShardPassivation *region, int limit, dlist_head *victims)
{
	Assert(limit >= 1);
	region->settings.active_entity_limit = limit;
	divide_limit(region, victims);
}

ShardPassivationShard *
shard_passivation_add_shard(ShardPassivation *region, dlist_head *victims)
{
	const ShardPassivationSettings *settings = &region->settings;
	ShardPassivationShard *shard = palloc0(sizeof(ShardPassivationShard));
	bool composite = settings->strategy == SHARD_PASSIVATION_COMPOSITE;
	bool levels = composite || settings->strategy == SHARD_PASSIVATION_SLRU;

	shard_passivation_segments_init(&shard->main, levels ? settings->levels : 1);
	shard_passivation_segments_init(&shard->window, 1);
	if (composite)
		shard_passivation_sketch_init(&shard->sketch, settings->sketch_depth,
									  settings->sketch_counter_bits);
	if (by_frequency(region))
		shard_passivation_frequency_init(&shard->frequency,
										 settings->strategy == SHARD_PASSIVATION_LFU_AGING);

	dlist_push_tail(&region->shards, &shard->link);
	region->n_shards++;
	divide_limit(region, victims);
	return shard;
}

/* Take an entity out of its shard's structures. */
static void
take_out(ShardPassivation *region, ShardPassivationEntity *entity)
{
	ShardPassivationShard *shard = entity->shard;

	if (by_frequency(region))
		shard_passivation_frequency_remove(&shard->frequency, entity);
	else
		shard_passivation_segments_remove(entity->in_window ? &shard->window : &shard->main,
										  entity);
}

/* The entities of segments are no longer tracked. */
static void
forget_segments(ShardSegments *segments)
{
	for (int level = 0; level < segments->levels; level++)
	{
		while (!dlist_is_empty(&segments->list[level]))
		{
			ShardPassivationEntity *entity =
				dlist_container(ShardPassivationEntity, place,
								dlist_pop_head_node(&segments->list[level]));

			dlist_delete(&entity->recency);
			entity->shard = NULL;
		}
	}
}

void
shard_passivation_remove_shard(ShardPassivation *region, ShardPassivationShard *shard,
							   dlist_head *victims)
{
	ShardPassivationEntity *entity;

	forget_segments(&shard->window);
	forget_segments(&shard->main);
	while (by_frequency(region) &&
		   (entity = shard_passivation_frequency_pop(&shard->frequency, 0)) != NULL)
	{
		dlist_delete(&entity->recency);
		entity->shard = NULL;
	}
	dlist_delete(&shard->link);
	region->n_shards--;
	free_shard(region, shard);
	divide_limit(region, victims);
}

/* ---- accesses --------------------------------------------------------------------------------- */

/* Note the time of an access; a clock that is set back stands still here. */
static void
note_time(ShardPassivation *region, ShardPassivationShard *shard, ShardPassivationEntity *entity,
		  int64 now)
{
	region->now = Max(region->now, now);
	region->turn++;
	entity->accessed_at = region->now;
	if (entity->shard != NULL)
		dlist_delete(&entity->recency);
	entity->shard = shard;
	dlist_push_tail(&region->recency, &entity->recency);
}

/* An access in a shard with segments only. */
static void
access_segments(ShardPassivation *region, ShardPassivationShard *shard,
				ShardPassivationEntity *entity, bool is_new, dlist_head *victims)
{
	ShardPassivationStrategy strategy = region->settings.strategy;
	ShardPassivationEntity *victim;

	if (is_new)
		shard_passivation_segments_insert(&shard->main, entity);
	else
		shard_passivation_segments_touch(&shard->main, entity);
	if (strategy == SHARD_PASSIVATION_MRU)
		while ((victim = shard_passivation_segments_pop_recent(&shard->main, shard->share,
															   entity)) != NULL)
			let_go(victim, victims);
	else if (strategy != SHARD_PASSIVATION_IDLE)
		while ((victim = shard_passivation_segments_pop(&shard->main)) != NULL)
			let_go(victim, victims);
}

/*
 * An access in a shard by frequency. Room is made before a newcomer enters: it is not its own victim,
 * and begins with the age that its predecessor leaves.
 */
static void
access_frequency(ShardPassivation *region, ShardPassivationShard *shard,
				 ShardPassivationEntity *entity, bool is_new, dlist_head *victims)
{
	ShardPassivationEntity *victim;

	if (!is_new)
	{
		shard_passivation_frequency_touch(&shard->frequency, entity, region->turn);
		return;
	}
	while ((victim = shard_passivation_frequency_pop(&shard->frequency,
													 Max(shard->share - 1, 0))) != NULL)
		let_go(victim, victims);
	shard_passivation_frequency_insert(&shard->frequency, entity, region->turn);
}

void
shard_passivation_accessed(ShardPassivation *region, ShardPassivationShard *shard,
						   ShardPassivationEntity *entity, int64 now, dlist_head *victims)
{
	bool is_new = entity->shard == NULL;

	Assert(is_new || entity->shard == shard);
	if (region->settings.strategy == SHARD_PASSIVATION_NONE)
		return;
	note_time(region, shard, entity, now);
	if (is_new)
		entity->in_window = false;
	if (by_frequency(region))
		access_frequency(region, shard, entity, is_new, victims);
	else if (region->settings.strategy == SHARD_PASSIVATION_COMPOSITE)
		access_composite(region, shard, entity, is_new, victims);
	else
		access_segments(region, shard, entity, is_new, victims);
}

void
shard_passivation_remove(ShardPassivation *region, ShardPassivationEntity *entity)
{
	if (entity->shard == NULL)
		return;
	take_out(region, entity);
	dlist_delete(&entity->recency);
	entity->shard = NULL;
}

/* The entity that was not accessed for longest; NULL if there is none. */
static ShardPassivationEntity *
least_recent(const ShardPassivation *region)
{
	dlist_head *list = (dlist_head *) &region->recency;

	return dlist_is_empty(list) ? NULL : dlist_head_element(ShardPassivationEntity, recency, list);
}

void
shard_passivation_idle(ShardPassivation *region, int64 now, dlist_head *victims)
{
	ShardPassivationEntity *entity;

	if (region->settings.idle_after == 0)
		return;
	region->now = Max(region->now, now);
	while ((entity = least_recent(region)) != NULL && shard_passivation_next_idle(region) <= now)
	{
		take_out(region, entity);
		let_go(entity, victims);
	}
}

/* "Longer than" is a microsecond more. */
int64
shard_passivation_next_idle(const ShardPassivation *region)
{
	const ShardPassivationEntity *entity = least_recent(region);
	int64 idle_after = region->settings.idle_after;

	if (entity == NULL || idle_after == 0 || entity->accessed_at >= PG_INT64_MAX - idle_after)
		return PG_INT64_MAX;
	return entity->accessed_at + idle_after + 1;
}

int
shard_passivation_size(const ShardPassivationShard *shard)
{
	return shard->main.size + shard->window.size + shard->frequency.size;
}

int
shard_passivation_share(const ShardPassivationShard *shard)
{
	return shard->share;
}
