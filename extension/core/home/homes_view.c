/*
 * core/home/homes_view.c
 *		One type as allocation sees it: its regions, their shards, pins, and the members.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/home/homes_plan.h"
#include "core/member/membership.h"

/* A member that is to be emptied is treated as if it left. */
static ShardAllocationStage
stage_of(const ShardMemberRecord *member)
{
	switch (member->status)
	{
		case SHARD_MEMBER_UP:
			return member->evacuated ? SHARD_ALLOCATION_LEAVING : SHARD_ALLOCATION_STAYING;
		case SHARD_MEMBER_JOINING:
		case SHARD_MEMBER_WEAKLY_UP:
			return SHARD_ALLOCATION_JOINING;
		default:
			return SHARD_ALLOCATION_LEAVING;
	}
}

/* ---- pins ------------------------------------------------------------------------------------- */

static int
compare_pins(const void *a, const void *b)
{
	const PlanPin *x = a;
	const PlanPin *y = b;

	return x->shard < y->shard ? -1 : x->shard > y->shard;
}

int32
shard_homes_view_pin(const PlanView *plan, int32 shard)
{
	PlanPin wanted = {shard, 0};
	const PlanPin *pin =
		plan->n_pins > 0 ? bsearch(&wanted, plan->pins, plan->n_pins, sizeof(PlanPin), compare_pins)
						 : NULL;

	return pin ? pin->node : 0;
}

/* The pin of a shard, for the strategy that looks at pins only. */
static int32
pin_of(int32 shard, void *arg)
{
	return shard_homes_view_pin(arg, shard);
}

/* The pins of the type that count, in the order of the map: by shard. */
static void
view_pins(PlanView *plan, ShardHomes *homes, ShardArena *arena)
{
	ShardMapRange range = shard_map_range(homes->decided, SHARD_MAP_PIN, plan->type_id);
	const ShardMapEntry *entry;

	plan->pins = shard_arena_alloc(arena, sizeof(PlanPin) * Max(range.end - range.next, 1));
	while ((entry = shard_map_range_next(&range)) != NULL)
	{
		int32 node = shard_membership_pinned(homes->decided, entry);

		if (node != 0)
			plan->pins[plan->n_pins++] = (PlanPin){entry->key.b, node};
	}
}

/* ---- shards and members ----------------------------------------------------------------------- */

static int
compare_age(const void *a, const void *b)
{
	const HomesShard *x = *(const HomesShard *const *) a;
	const HomesShard *y = *(const HomesShard *const *) b;

	if (x->n != y->n)
		return x->n < y->n ? -1 : 1;
	return x->key.shard < y->key.shard ? -1 : x->key.shard > y->key.shard;
}

HomesShard *
shard_homes_next_shard(ShardHomes *homes, ShardMapRange *range)
{
	const ShardMapEntry *entry;

	while ((entry = shard_map_range_next(range)) != NULL)
	{
		HomesShard *shard = shard_homes_shard(homes, entry->key.a, entry->key.b);

		homes->n_visited++;
		if (shard)
			return shard;
	}
	return NULL;
}

HomesShard **
shard_homes_view_shards(ShardHomes *homes, int32 type_id, int *count)
{
	ShardMapRange range = shard_map_range(homes->decided, SHARD_MAP_HOME, type_id);
	HomesShard **list =
		shard_arena_alloc(homes->arena, sizeof(HomesShard *) * Max(range.end - range.next, 1));
	HomesShard *shard;
#ifdef SHARD_MUTANT_VIEW_OF_ALL_HOMES
	homes_shard_iterator iterator;

	homes_shard_start_iterate(homes->shards, &iterator);
	while (homes_shard_iterate(homes->shards, &iterator) != NULL)
		homes->n_visited++;
#endif

	*count = 0;
	while ((shard = shard_homes_next_shard(homes, &range)) != NULL)
		list[(*count)++] = shard;
	if (*count > 1)
		qsort(list, *count, sizeof(HomesShard *), compare_age);
	return list;
}

/* The members, as allocation sees them. Those that are gone are not in the view. */
static void
view_members(PlanView *plan, ShardHomes *homes, int64 now, const ShardRoster *roster,
			 ShardArena *arena)
{
	int count;
	ShardMapEntry *entries = shard_map_list(homes->decided, SHARD_MAP_MEMBER, homes->arena, &count);
	ShardAllocationMember *members =
		shard_arena_alloc(arena, sizeof(ShardAllocationMember) * Max(count, 1));
	int n = 0;

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord record;

		if (!shard_record_get_member(&entries[i], &record, arena) ||
			record.status == SHARD_MEMBER_REMOVED || record.status == SHARD_MEMBER_WRITTEN_OFF)
			continue;
		members[n].node = entries[i].key.a;
		members[n].stage = stage_of(&record);
		members[n].reachable = shard_roster_reachable(roster, entries[i].key.a, now);
		/* A member that lacks a bit which the type's settings need cannot run it (I5). */
		members[n].suitable = shard_membership_has_role(&record, plan->type.role) &&
							  (plan->type.features & ~record.features) == 0;
		members[n].weight = shard_membership_weight(&record);
		members[n++].app_version = record.app_version;
	}
	plan->view.members = members;
	plan->view.n_members = n;
}

/* Where a region is in the view, -1 if it is not there. */
static int
region_of(const ShardAllocationRegion *regions, int n_regions, int32 node)
{
	for (int i = 0; i < n_regions; i++)
	{
		if (regions[i].node == node)
			return i;
	}
	return -1;
}

/* The node of a home, or the node that it moves to. */
static int32
end_of(const ShardMapEntry *entry)
{
	ShardHomeRecord home;

	if (!shard_record_get_home(entry, &home))
		return 0;
	return home.phase == SHARD_HOME_MOVING ? home.to : shard_record_home_node(&home);
}

/* Where the shard is, or will be, as far as is decided or proposed. */
static int32
place_of(const ShardHomes *homes, const HomesShard *shard)
{
	bool moves = shard->move != SHARD_MOVE_NONE && shard->move != SHARD_MOVE_ABORTING &&
				 shard->move != SHARD_MOVE_STARTING;
	const ShardMapEntry *proposed =
		shard_proposer_undecided(homes->proposer, (ShardMapKey){SHARD_MAP_HOME, shard->key.type_id,
																shard->key.shard});

	if (proposed && !proposed->deleted)
		return end_of(proposed);
	return moves ? shard->target : shard->node;
}

/* A shard, and which region of the view has it; -1: none. */
typedef struct PlacedShard
{
	int32 shard;
	int place;
	bool pinned;
} PlacedShard;

static void
place(PlacedShard *list, int *count, int32 shard, int region, const PlanView *plan)
{
	list[(*count)++] = (PlacedShard){shard, region, shard_homes_view_pin(plan, shard) != 0};
}

/*
 * The shards of the type, oldest first. First homes that are proposed and not decided yet are the newest:
 * the choice of further homes has to count them. Shards whose move is not decided yet are listed as
 * moving.
 */
static PlacedShard *
place_shards(PlanView *plan, ShardHomes *homes, const ShardAllocationRegion *regions, int n_regions,
			 ShardArena *arena, int *count)
{
	int n_shards;
	HomesShard **shards = shard_homes_view_shards(homes, plan->type_id, &n_shards);
	ShardMapRange proposed[2];
	PlacedShard *list;

	shard_proposer_undecided_range(homes->proposer, SHARD_MAP_HOME, plan->type_id, proposed);
	list = shard_arena_alloc(homes->arena,
							 sizeof(PlacedShard) * (n_shards + proposed[0].end - proposed[0].next +
													proposed[1].end - proposed[1].next + 1));
	*count = 0;
	plan->moving = shard_arena_alloc(arena, sizeof(int32) * Max(n_shards, 1));
	for (int i = 0; i < n_shards; i++)
	{
		if (shards[i]->move != SHARD_MOVE_NONE && shards[i]->move != SHARD_MOVE_STARTING)
			plan->moving[plan->n_moving++] = shards[i]->key.shard;
		place(list, count, shards[i]->key.shard,
			  region_of(regions, n_regions, place_of(homes, shards[i])), plan);
	}
	for (int i = 0; i < 2; i++)
	{
		const ShardMapEntry *entry;

		while ((entry = shard_map_range_next(&proposed[i])) != NULL)
		{
			if (!shard_homes_shard(homes, entry->key.a, entry->key.b))
				place(list, count, entry->key.b, region_of(regions, n_regions, end_of(entry)),
					  plan);
		}
	}
	return list;
}

/*
 * The shards of each region of the view, oldest first, and behind them the pinned ones, so that those
 * are not the ones to be moved away. A moving shard counts where it will be.
 */
static void
view_shards(PlanView *plan, ShardHomes *homes, ShardAllocationRegion *regions, int n_regions,
			ShardArena *arena)
{
	int n_shards;
	PlacedShard *shards = place_shards(plan, homes, regions, n_regions, arena, &n_shards);
	int32 **lists = shard_arena_alloc(homes->arena, sizeof(int32 *) * Max(n_regions, 1));

	for (int i = 0; i < n_shards; i++)
	{
		if (shards[i].place >= 0)
			regions[shards[i].place].n_shards++;
	}
	for (int r = 0; r < n_regions; r++)
	{
		lists[r] = shard_arena_alloc(arena, sizeof(int32) * Max(regions[r].n_shards, 1));
		regions[r].shards = lists[r];
	}
	for (int pinned = 0; pinned <= 1; pinned++)
	{
		for (int i = 0; i < n_shards; i++)
		{
			if (shards[i].place >= 0 && shards[i].pinned == (pinned == 1))
				*lists[shards[i].place]++ = shards[i].shard;
		}
	}
}

/* One more shard, or less, at a node, if that is in the view. */
static void
count_at(ShardAllocationRegion *regions, int n_regions, int32 node, int by)
{
	int region = region_of(regions, n_regions, node);

	if (region >= 0)
		regions[region].n_shards += by;
}

/*
 * How many shards each region has: as view_shards() counts, but from what is counted already and what changes just now,
 * without a look at each home.
 */
static void
count_shards(const PlanView *plan, ShardHomes *homes, ShardAllocationRegion *regions, int n_regions)
{
	ShardMapRange proposed[2];

	for (int r = 0; r < n_regions; r++)
		regions[r].n_shards = shard_homes_number_of_type(homes, plan->type_id, regions[r].node);
	for (int i = 0; i < homes->n_moves; i++)
	{
		ShardShardKey key = homes->moves[i];
		const HomesShard *shard;

		if (key.type_id != plan->type_id)
			continue;
		shard = shard_homes_shard(homes, key.type_id, key.shard);
		count_at(regions, n_regions, shard->node, -1);
		count_at(regions, n_regions, place_of(homes, shard), 1);
	}
	shard_proposer_undecided_range(homes->proposer, SHARD_MAP_HOME, plan->type_id, proposed);
	for (int i = 0; i < 2; i++)
	{
		const ShardMapEntry *entry;

		while ((entry = shard_map_range_next(&proposed[i])) != NULL)
		{
			const HomesShard *shard = shard_homes_shard(homes, entry->key.a, entry->key.b);

			homes->n_visited++;
			/* One that moves has been counted where it will be. */
			if (shard && shard->move != SHARD_MOVE_NONE)
				continue;
			if (shard)
				count_at(regions, n_regions, shard->node, -1);
			count_at(regions, n_regions, end_of(entry), 1);
		}
	}
}

/* The regions that host the type, with their shards, or only the number of them. */
static void
view_regions(PlanView *plan, ShardHomes *homes, bool with_shards, ShardArena *arena)
{
	ShardAllocationRegion *regions =
		shard_arena_alloc(arena, sizeof(ShardAllocationRegion) * Max(homes->n_regions, 1));
	int n = 0;

	for (int r = 0; r < homes->n_regions && n < SHARD_ALLOCATION_MAX_REGIONS; r++)
	{
		if (!homes->regions[r].stopped && shard_homes_hosts(&homes->regions[r], plan->type_id))
			regions[n++].node = homes->regions[r].node;
	}
	if (with_shards)
		view_shards(plan, homes, regions, n, arena);
	else
		count_shards(plan, homes, regions, n);
	plan->view.regions = regions;
	plan->view.n_regions = n;
}

/* The settings of the type's strategy: its own, or those of this coordinator's node. */
static ShardAllocationSettings
settings_of(const ShardHomes *homes, const ShardTypeRecord *type)
{
	ShardAllocationSettings settings = shard_allocation_defaults(
		type->strategy ? (ShardAllocationKind) type->strategy : SHARD_ALLOCATION_LEAST_SHARD);

	if (type->allocation.kind != 0)
		return type->allocation;
	if (homes->settings.absolute_limit > 0)
		settings.rebalance_absolute_limit = homes->settings.absolute_limit;
	if (homes->settings.relative_limit > 0)
		settings.rebalance_relative_limit = homes->settings.relative_limit;
	return settings;
}

/* The view of a type; false if the type is not known. */
static bool
view_type(PlanView *plan, ShardHomes *homes, int64 now, int32 type_id, bool with_shards,
		  const ShardRoster *roster, ShardArena *arena)
{
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0});

	memset(plan, 0, sizeof(PlanView));
	plan->type_id = type_id;
	if (!entry || !shard_record_get_type(entry, &plan->type, arena))
		return false;
	plan->settings = settings_of(homes, &plan->type);
	plan->view.pin = pin_of;
	plan->view.pin_arg = plan;
	view_pins(plan, homes, arena);
	view_members(plan, homes, now, roster, arena);
	view_regions(plan, homes, with_shards, arena);
	shard_homes_view_hosts(plan, homes, arena);
	return true;
}

bool
shard_homes_view(PlanView *plan, ShardHomes *homes, int64 now, int32 type_id,
				 const ShardRoster *roster, ShardArena *arena)
{
	return view_type(plan, homes, now, type_id, true, roster, arena);
}

bool
shard_homes_view_numbers(PlanView *plan, ShardHomes *homes, int64 now, int32 type_id,
						 const ShardRoster *roster)
{
	return view_type(plan, homes, now, type_id, false, roster, homes->arena);
}

bool
shard_homes_view_is_good(const PlanView *plan, int32 node)
{
#ifndef SHARD_MUTANT_HOME_AT_NON_HOST
	if (region_of(plan->view.regions, plan->view.n_regions, node) < 0)
		return false;
#endif
	for (int i = 0; i < plan->view.n_members; i++)
	{
		const ShardAllocationMember *member = &plan->view.members[i];

		if (member->node == node)
			return member->stage == SHARD_ALLOCATION_STAYING && member->reachable &&
				   member->suitable;
	}
	return false;
}

ShardAllocationView
shard_homes_view_good(const PlanView *plan, ShardArena *arena)
{
	ShardAllocationView view = plan->view;
	ShardAllocationRegion *regions =
		shard_arena_alloc(arena, sizeof(ShardAllocationRegion) * Max(view.n_regions, 1));
	int n = 0;

	for (int i = 0; i < view.n_regions; i++)
	{
		if (shard_homes_view_is_good(plan, view.regions[i].node))
			regions[n++] = view.regions[i];
	}
	view.regions = regions;
	view.n_regions = n;
	return view;
}
