/*
 * core/homes_plan.c
 *		Where shards get their homes, and which ones should move: the coordinator's plans.
 *
 * Plans are made from the decided state (C5), and each step of one is a compare-and-set on its key, so
 * a plan made from yesterday's state does no harm. A home without its old owner's consent is given
 * only in three cases: there never was one; the member was written off; or the type is leased and no
 * lease of the member can be valid any more (T4).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/allocation.h"
#include "core/homes_private.h"
#include "core/membership.h"
#include "core/message.h"

/* A leaving member's shards that move at the same time. */
#define EVACUATION_LIMIT 64

/* What allocation looks at, for one type; in the arena. */
typedef struct PlanView
{
	ShardTypeRecord type;
	ShardAllocationSettings settings;
	ShardAllocationView view;
	int32 *moving;
	int n_moving;
	const ShardHomes *homes;
	int32 type_id;
} PlanView;

static ShardAllocationStage
stage_of(int32 status)
{
	switch (status)
	{
		case SHARD_MEMBER_UP:
			return SHARD_ALLOCATION_STAYING;
		case SHARD_MEMBER_JOINING:
		case SHARD_MEMBER_WEAKLY_UP:
			return SHARD_ALLOCATION_JOINING;
		default:
			return SHARD_ALLOCATION_LEAVING;
	}
}

/* The node that an operator wishes for a shard. */
static int32
pin_of(int32 shard, void *arg)
{
	const PlanView *plan = arg;
	const ShardMapEntry *entry =
		shard_map_value(plan->homes->decided, (ShardMapKey){SHARD_MAP_PIN, plan->type_id, shard});

	return entry ? shard_record_get_pin(entry) : 0;
}

static int
compare_age(const void *a, const void *b)
{
	const HomesShard *x = *(const HomesShard *const *) a;
	const HomesShard *y = *(const HomesShard *const *) b;

	if (x->n != y->n)
		return x->n < y->n ? -1 : 1;
	return x->key.shard < y->key.shard ? -1 : x->key.shard > y->key.shard;
}

/* Shards of a type in the order in which they got their homes. */
static HomesShard **
shards_of(ShardHomes *homes, int32 type_id, int *count)
{
	HomesShard **list =
		shard_arena_alloc(homes->arena, sizeof(HomesShard *) * Max(homes->shards->members, 1));
	homes_shard_iterator iterator;
	HomesShard *shard;

	*count = 0;
	homes_shard_start_iterate(homes->shards, &iterator);
	while ((shard = homes_shard_iterate(homes->shards, &iterator)) != NULL)
	{
		if (shard->key.type_id == type_id)
			list[(*count)++] = shard;
	}
	qsort(list, *count, sizeof(HomesShard *), compare_age);
	return list;
}

/* The members, as allocation sees them. Those that are gone are not in the view. */
static void
view_members(PlanView *plan, ShardHomes *homes, int64 now, const ShardRoster *roster)
{
	int count;
	ShardMapEntry *entries = shard_map_list(homes->decided, SHARD_MAP_MEMBER, homes->arena, &count);
	ShardAllocationMember *members =
		shard_arena_alloc(homes->arena, sizeof(ShardAllocationMember) * Max(count, 1));
	int n = 0;

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord record;

		if (!shard_record_get_member(&entries[i], &record, homes->arena) ||
			record.status == SHARD_MEMBER_REMOVED || record.status == SHARD_MEMBER_WRITTEN_OFF)
			continue;
		members[n].node = entries[i].key.a;
		members[n].stage = stage_of(record.status);
		members[n].reachable = shard_roster_reachable(roster, entries[i].key.a, now);
		/* A member that lacks a bit which the type's settings need cannot run it (I5). */
		members[n].suitable = shard_membership_has_role(&record, plan->type.role) &&
							  (plan->type.features & ~record.features) == 0;
		members[n].weight = SHARD_ALLOCATION_WEIGHT_ONE;
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

/*
 * The shards of each region of the view. A moving shard counts where it will be, and is among those
 * that move until that is decided.
 */
static void
view_shards(PlanView *plan, ShardHomes *homes, ShardAllocationRegion *regions, int n_regions)
{
	int n_shards;
	HomesShard **shards = shards_of(homes, plan->type_id, &n_shards);
	int *places = shard_arena_alloc(homes->arena, sizeof(int) * Max(n_shards, 1));
	int32 **lists = shard_arena_alloc(homes->arena, sizeof(int32 *) * Max(n_regions, 1));

	plan->moving = shard_arena_alloc(homes->arena, sizeof(int32) * Max(n_shards, 1));
	for (int i = 0; i < n_shards; i++)
	{
		HomesShard *shard = shards[i];

		if (shard->move != SHARD_MOVE_NONE && shard->move != SHARD_MOVE_STARTING)
			plan->moving[plan->n_moving++] = shard->key.shard;
		places[i] = region_of(regions, n_regions, shard->to != 0 ? shard->to : shard->node);
		if (places[i] >= 0)
			regions[places[i]].n_shards++;
	}
	for (int r = 0; r < n_regions; r++)
	{
		lists[r] = shard_arena_alloc(homes->arena, sizeof(int32) * Max(regions[r].n_shards, 1));
		regions[r].shards = lists[r];
	}
	for (int i = 0; i < n_shards; i++)
	{
		if (places[i] >= 0)
			*lists[places[i]]++ = shards[i]->key.shard;
	}
}

/* The regions that host the type, with their shards. */
static void
view_regions(PlanView *plan, ShardHomes *homes)
{
	ShardAllocationRegion *regions =
		shard_arena_alloc(homes->arena, sizeof(ShardAllocationRegion) * Max(homes->n_regions, 1));
	int n = 0;

	for (int r = 0; r < homes->n_regions && n < SHARD_ALLOCATION_MAX_REGIONS; r++)
	{
		if (!homes->regions[r].stopped && shard_homes_hosts(&homes->regions[r], plan->type_id))
			regions[n++].node = homes->regions[r].node;
	}
	view_shards(plan, homes, regions, n);
	plan->view.regions = regions;
	plan->view.n_regions = n;
}

/* The view of a type; false if the type is not known. */
static bool
make_view(PlanView *plan, ShardHomes *homes, int64 now, int32 type_id, const ShardRoster *roster)
{
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0});

	memset(plan, 0, sizeof(PlanView));
	plan->homes = homes;
	plan->type_id = type_id;
	if (!entry || !shard_record_get_type(entry, &plan->type, homes->arena))
		return false;
	plan->settings =
		shard_allocation_defaults(plan->type.strategy ? (ShardAllocationKind) plan->type.strategy
													  : SHARD_ALLOCATION_LEAST_SHARD);
	if (homes->settings.absolute_limit > 0)
		plan->settings.rebalance_absolute_limit = homes->settings.absolute_limit;
	if (homes->settings.relative_limit > 0)
		plan->settings.rebalance_relative_limit = homes->settings.relative_limit;
	plan->view.pin = pin_of;
	plan->view.pin_arg = plan;
	view_members(plan, homes, now, roster);
	view_regions(plan, homes);
	return true;
}

/* May that node be given a shard now? Strategies order by suitability, they do not refuse. */
static bool
is_good(const PlanView *plan, int32 node)
{
	for (int i = 0; i < plan->view.n_members; i++)
	{
		const ShardAllocationMember *member = &plan->view.members[i];

		if (member->node == node)
			return member->stage == SHARD_ALLOCATION_STAYING && member->reachable &&
				   member->suitable;
	}
	return false;
}

/*
 * A view without the regions that cannot be given anything: members that are unreachable, leaving or
 * not up yet.
 */
static ShardAllocationView
good_regions(const PlanView *plan, ShardArena *arena)
{
	ShardAllocationView view = plan->view;
	ShardAllocationRegion *regions =
		shard_arena_alloc(arena, sizeof(ShardAllocationRegion) * Max(view.n_regions, 1));
	int n = 0;

	for (int i = 0; i < view.n_regions; i++)
	{
		if (is_good(plan, view.regions[i].node))
			regions[n++] = view.regions[i];
	}
	view.regions = regions;
	view.n_regions = n;
	return view;
}

/* ---- first homes ------------------------------------------------------------------------------ */

/*
 * Has the role of the type had its minimum of members once (C4)? When it has just now, that is
 * proposed; homes are given after it is decided.
 */
static bool
is_formed(ShardHomes *homes, const PlanView *plan, ShardProposer *proposer)
{
	int32 number = shard_record_role(plan->type.role);
	int32 minimum = 0;
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_SETTINGS, 0, 0});
	ShardSettingsRecord settings;
	ShardMapEntry change;

	if (shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_FORMED, number, 0}))
		return true;
	if (entry && shard_record_get_settings(entry, &settings))
	{
		minimum = settings.min_members;
		for (int i = 0; i < settings.n_role_minimums; i++)
		{
			if (settings.role_minimums[i].role == number)
				minimum = Max(minimum, settings.role_minimums[i].members);
		}
	}
	if (plan->view.n_regions < minimum)
		return false;
	change = shard_record_put_formed(number, 0, homes->arena);
	(void) shard_proposer_propose(proposer, &change, 1);
	return false;
}

/* Homes for the requests of one type, as many as there are: one batch (C2). */
static void
allocate_type(ShardHomes *homes, int64 now, const HomesRequest *requests, int n_requests,
			  ShardProposer *proposer, const ShardRoster *roster)
{
	int32 type_id = requests[0].key.type_id;
	PlanView plan;
	ShardAllocationView view;
	ShardAllocation *allocation;

	/* A type that is about to go gets no home that its removal does not know of. */
	if (shard_proposer_pending(proposer, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0}) ||
		!make_view(&plan, homes, now, type_id, roster) || !is_formed(homes, &plan, proposer))
		return;
	view = good_regions(&plan, homes->arena);
	if (view.n_regions == 0)
		return;
	allocation = shard_allocation_begin(&plan.settings, &view);
	for (int i = 0; i < n_requests; i++)
	{
		int32 shard = requests[i].key.shard;
		ShardHomeRecord record = {.n_nodes = 1, .want = 1};
		ShardMapEntry change;

		record.nodes[0] = shard_allocation_next(allocation, shard, requests[i].requester);
		if (record.nodes[0] == 0)
			continue;
		change = shard_record_put_home(type_id, shard, &record, 0, homes->arena);
		(void) shard_proposer_propose(proposer, &change, 1);
	}
	shard_allocation_end(allocation);
}

static int
compare_requests(const void *a, const void *b)
{
	const ShardShardKey *x = &((const HomesRequest *) a)->key;
	const ShardShardKey *y = &((const HomesRequest *) b)->key;

	if (x->type_id != y->type_id)
		return x->type_id < y->type_id ? -1 : 1;
	return x->shard < y->shard ? -1 : x->shard > y->shard;
}

/* See homes_private.h. In the order of the map, since that takes keys in their order faster. */
void
shard_homes_allocate(ShardHomes *homes, int64 now, ShardProposer *proposer,
					 const ShardRoster *roster)
{
	homes_request_iterator iterator;
	HomesRequest *request;
	HomesRequest *list;
	int n = 0;
	int first = 0;

	if (homes->requests->members == 0)
		return;
	list = shard_arena_alloc(homes->arena, sizeof(HomesRequest) * homes->requests->members);
	homes_request_start_iterate(homes->requests, &iterator);
	while ((request = homes_request_iterate(homes->requests, &iterator)) != NULL)
	{
		if (!shard_proposer_pending(proposer, (ShardMapKey){SHARD_MAP_HOME, request->key.type_id,
															request->key.shard}))
			list[n++] = *request;
	}
	if (n > 1)
		qsort(list, n, sizeof(HomesRequest), compare_requests);
	for (int i = 1; i <= n; i++)
	{
		if (i < n && list[i].key.type_id == list[first].key.type_id)
			continue;
		allocate_type(homes, now, &list[first], i - first, proposer, roster);
		first = i;
	}
}

/* ---- rebalancing ------------------------------------------------------------------------------ */

static void
plan_type(ShardHomes *homes, int64 now, int32 type_id, ShardProposer *proposer,
		  const ShardRoster *roster)
{
	PlanView plan;
	ShardAllocationMove *moves;
	int n_moves;

	if (!make_view(&plan, homes, now, type_id, roster))
		return;
	moves = shard_allocation_rebalance(&plan.settings, &plan.view, plan.moving, plan.n_moving,
									   &n_moves);
	for (int i = 0; i < n_moves; i++)
	{
		HomesShard *shard = shard_homes_shard(homes, type_id, moves[i].shard);
		const char *why;

		if (shard && moves[i].to != 0 && moves[i].to != moves[i].from &&
			is_good(&plan, moves[i].to))
			(void) shard_homes_begin_move(homes, now, shard, moves[i].to, proposer, roster, &why);
	}
	if (moves)
		pfree(moves);
}

/* A round of rebalancing when it is due. */
void
shard_homes_plan(ShardHomes *homes, int64 now, ShardProposer *proposer, const ShardRoster *roster)
{
	int count;
	ShardMapEntry *types;

	if (now < homes->next_rebalance)
		return;
	homes->next_rebalance = shard_homes_next_rebalance(homes, now);
	types = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &count);
	for (int i = 0; i < count; i++)
		plan_type(homes, now, types[i].key.a, proposer, roster);
}

/* ---- members that go or are lost -------------------------------------------------------------- */

/* How the shards of a member get other homes. */
typedef enum Resettlement
{
	BY_MOVE,	  /* it leaves: by handoff, with their state */
	ANEW_DURABLE, /* it was written off: those with state of their own begin without it */
	ANEW_LEASED	  /* its lease has ended: those that may be started elsewhere */
} Resettlement;

/* Is that shard one to get another home? Not one whose move can still end forward (M9). */
static bool
goes(const HomesShard *shard, int32 node, Resettlement how)
{
	if (shard->node != node)
		return false;
	if (how == BY_MOVE)
		return shard->move == SHARD_MOVE_NONE && shard->confirmed;
	return shard->leased == (how == ANEW_LEASED) && shard->move != SHARD_MOVE_DECIDING;
}

/* A new home whose state begins empty: a newer epoch, marked as lost (N1). */
void
shard_homes_replace(ShardHomes *homes, HomesShard *shard, int32 to, int32 leap,
					ShardProposer *proposer)
{
	ShardHomeRecord record;
	ShardMapEntry change;
	int64 n;

	if (!shard_homes_record(homes, shard, &record, &n))
		return;
	record.epoch += leap;
	record.lost = record.epoch;
	record.phase = SHARD_HOME_STABLE;
	record.n_nodes = 1;
	record.nodes[0] = to;
	record.to = 0;
	change = shard_record_put_home(shard->key.type_id, shard->key.shard, &record, n, homes->arena);
	(void) shard_proposer_propose(proposer, &change, 1);
}

/*
 * How many of a member's shards may be given other homes now? Moves are counted that are not decided
 * yet: later, the new homes may start them when they like.
 */
static int
room_for(ShardHomes *homes, int32 node, Resettlement how)
{
	homes_shard_iterator iterator;
	HomesShard *shard;
	int under_way = 0;
	int waiting = 0;

	homes_shard_start_iterate(homes->shards, &iterator);
	while ((shard = homes_shard_iterate(homes->shards, &iterator)) != NULL)
	{
		if (goes(shard, node, how))
			waiting++;
		else if (shard->node == node && shard->move != SHARD_MOVE_NONE &&
				 shard->move != SHARD_MOVE_STARTING)
			under_way++;
	}
	return how == BY_MOVE ? Min(waiting, EVACUATION_LIMIT - under_way) : waiting;
}

/* Other homes for the shards of a member, among those that can be given any. */
static void
resettle(ShardHomes *homes, int64 now, int32 node, Resettlement how, ShardProposer *proposer,
		 const ShardRoster *roster)
{
	int n_types;
	ShardMapEntry *types = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &n_types);
	int room = room_for(homes, node, how);

	for (int t = 0; t < n_types && room > 0; t++)
	{
		PlanView plan;
		ShardAllocationView view;
		ShardAllocation *allocation;
		int n_shards;
		HomesShard **shards;

		if (!make_view(&plan, homes, now, types[t].key.a, roster))
			continue;
		view = good_regions(&plan, homes->arena);
		if (view.n_regions == 0)
			continue;
		shards = shards_of(homes, types[t].key.a, &n_shards);
		allocation = shard_allocation_begin(&plan.settings, &view);
		for (int i = 0; i < n_shards && room > 0; i++)
		{
			const char *why;
			int32 to;

			if (!goes(shards[i], node, how))
				continue;
			to = shard_allocation_next(allocation, shards[i]->key.shard, 0);
			if (to == 0 || to == node)
				continue;
			if (how == BY_MOVE)
				room -= shard_homes_begin_move(homes, now, shards[i], to, proposer, roster, &why);
			else
				shard_homes_replace(homes, shards[i], to, 1, proposer);
		}
		shard_allocation_end(allocation);
	}
}

/* See homes_private.h. */
void
shard_homes_evacuate(ShardHomes *homes, int64 now, ShardProposer *proposer,
					 const ShardRoster *roster)
{
	int count;
	ShardMapEntry *members;

	if (homes->settings.rebalance_interval <= 0)
		return;
	members = shard_map_list(homes->decided, SHARD_MAP_MEMBER, homes->arena, &count);
	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		if (shard_record_get_member(&members[i], &member, homes->arena) &&
			member.status == SHARD_MEMBER_LEAVING && shard_homes_count(homes, members[i].key.a) > 0)
			resettle(homes, now, members[i].key.a, BY_MOVE, proposer, roster);
	}
}

/* Is a home of a leased shard of the member being changed? */
static bool
is_replacing(ShardHomes *homes, int32 node, const ShardProposer *proposer)
{
	homes_shard_iterator iterator;
	HomesShard *shard;
	bool any = false;

	homes_shard_start_iterate(homes->shards, &iterator);
	while ((shard = homes_shard_iterate(homes->shards, &iterator)) != NULL)
	{
		if (shard->leased && shard->node == node)
			any |=
				shard_proposer_pending(proposer, (ShardMapKey){SHARD_MAP_HOME, shard->key.type_id,
															   shard->key.shard});
	}
	return any;
}

/* Is the lease of a member closed by us? Where in the list; -1: no. */
static int
find_closed(const ShardHomes *homes, int32 node)
{
	for (int i = 0; i < homes->n_closed; i++)
	{
		if (homes->closed[i] == node)
			return i;
	}
	return -1;
}

/*
 * New homes for the leased shards of a member that is lost. No grant is given to it from before its
 * lease is found to have ended until the change is decided (L9).
 */
static void
replace_leased(ShardHomes *homes, int64 now, int32 node, ShardProposer *proposer,
			   ShardRoster *roster)
{
	if (find_closed(homes, node) < 0)
	{
		/* So many at a time; the others' turn comes when these are done. */
		if (homes->n_closed == HOMES_MAX_CLOSED)
			return;
		homes->closed[homes->n_closed++] = node;
		shard_roster_close_lease(roster, node);
	}
	if (shard_roster_lease_ended(roster, node, now, homes->decided))
		resettle(homes, now, node, ANEW_LEASED, proposer, roster);
}

/* The member is there again, or has nothing leased any more: it may be granted a lease. */
static void
reopen(ShardHomes *homes, int32 node, const ShardProposer *proposer, ShardRoster *roster)
{
	int at = find_closed(homes, node);

	if (at < 0 || is_replacing(homes, node, proposer))
		return;
	homes->closed[at] = homes->closed[--homes->n_closed];
	shard_roster_open_lease(roster, node);
}

/* New homes for what nobody will hand off: see Resettlement. */
void
shard_homes_replace_lost(ShardHomes *homes, int64 now, ShardProposer *proposer, ShardRoster *roster)
{
	int count;
	ShardMapEntry *members = shard_map_list(homes->decided, SHARD_MAP_MEMBER, homes->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;
		int32 node = members[i].key.a;
		bool gone;

		if (!shard_record_get_member(&members[i], &member, homes->arena))
			continue;
		gone = member.status == SHARD_MEMBER_WRITTEN_OFF;
		if (gone && shard_homes_number(homes, node, false) > 0)
			resettle(homes, now, node, ANEW_DURABLE, proposer, roster);
		if ((gone || member.status == SHARD_MEMBER_DOWN ||
			 !shard_roster_reachable(roster, node, now)) &&
			shard_homes_number(homes, node, true) > 0)
			replace_leased(homes, now, node, proposer, roster);
		else
			reopen(homes, node, proposer, roster);
	}
}
