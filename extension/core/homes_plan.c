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

static bool
has_role(const ShardMemberRecord *member, const char *role)
{
	if (!role || role[0] == '\0')
		return true;
	for (int i = 0; i < member->n_roles; i++)
	{
		if (strcmp(member->roles[i], role) == 0)
			return true;
	}
	return false;
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
		members[n].suitable = has_role(&record, plan->type.role);
		members[n].weight = SHARD_ALLOCATION_WEIGHT_ONE;
		members[n++].app_version = record.app_version;
	}
	plan->view.members = members;
	plan->view.n_members = n;
}

/* The regions that host the type, each with its shards, and the shards that are moving. */
static void
view_regions(PlanView *plan, ShardHomes *homes)
{
	int n_shards;
	HomesShard **shards = shards_of(homes, plan->type_id, &n_shards);
	ShardAllocationRegion *regions =
		shard_arena_alloc(homes->arena, sizeof(ShardAllocationRegion) * Max(homes->n_regions, 1));
	int n = 0;

	plan->moving = shard_arena_alloc(homes->arena, sizeof(int32) * Max(n_shards, 1));
	for (int i = 0; i < n_shards; i++)
	{
		if (shards[i]->move != SHARD_MOVE_NONE)
			plan->moving[plan->n_moving++] = shards[i]->key.shard;
	}
	for (int r = 0; r < homes->n_regions; r++)
	{
		int32 *list;

		if (homes->regions[r].stopped || !shard_homes_hosts(&homes->regions[r], plan->type_id))
			continue;
		list = shard_arena_alloc(homes->arena, sizeof(int32) * Max(n_shards, 1));
		regions[n].node = homes->regions[r].node;
		regions[n].shards = list;
		for (int i = 0; i < n_shards; i++)
		{
			/* A moving shard counts where it will be. */
			int32 node = shards[i]->to != 0 ? shards[i]->to : shards[i]->node;

			if (node == regions[n].node)
				list[regions[n].n_shards++] = shards[i]->key.shard;
		}
		n++;
	}
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
	const char *role = plan->type.role ? plan->type.role : "";
	int32 number = role[0] ? (shard_message_hash_murmur2(role, strlen(role)) & 0x7FFFFFFF) : 0;
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_SETTINGS, 0, 0});
	ShardSettingsRecord settings;
	ShardMapEntry change;

	if (shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_FORMED, number, 0}))
		return true;
	if (entry && shard_record_get_settings(entry, &settings) &&
		plan->view.n_regions < settings.min_members)
		return false;
	change = shard_record_put_formed(number, 0, homes->arena);
	(void) shard_proposer_propose(proposer, &change, 1);
	return false;
}

/* Homes for the requests of one type, as many as there are: one batch (C2). */
static void
allocate_type(ShardHomes *homes, int64 now, int32 type_id, ShardProposer *proposer,
			  const ShardRoster *roster)
{
	PlanView plan;
	ShardAllocationView view;
	ShardAllocation *allocation;
	homes_request_iterator iterator;
	HomesRequest *request;

	if (!make_view(&plan, homes, now, type_id, roster) || !is_formed(homes, &plan, proposer))
		return;
	view = good_regions(&plan, homes->arena);
	if (view.n_regions == 0)
		return;
	allocation = shard_allocation_begin(&plan.settings, &view);
	homes_request_start_iterate(homes->requests, &iterator);
	while ((request = homes_request_iterate(homes->requests, &iterator)) != NULL)
	{
		ShardHomeRecord record = {.n_nodes = 1, .want = 1};
		ShardMapEntry change;
		int32 node;

		if (request->key.type_id != type_id || request->key.shard < 0 ||
			request->key.shard >= plan.type.number_of_shards)
			continue;
		if (shard_proposer_pending(proposer,
								   (ShardMapKey){SHARD_MAP_HOME, type_id, request->key.shard}))
			continue;
		node = shard_allocation_next(allocation, request->key.shard, request->requester);
		if (node == 0)
			continue;
		record.nodes[0] = node;
		change = shard_record_put_home(type_id, request->key.shard, &record, 0, homes->arena);
		(void) shard_proposer_propose(proposer, &change, 1);
	}
	shard_allocation_end(allocation);
}

/* See homes_private.h. */
void
shard_homes_allocate(ShardHomes *homes, int64 now, ShardProposer *proposer,
					 const ShardRoster *roster)
{
	int count;
	ShardMapEntry *types;

	if (homes->requests->members == 0)
		return;
	types = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &count);
	for (int i = 0; i < count; i++)
		allocate_type(homes, now, types[i].key.a, proposer, roster);
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
	homes->next_rebalance = now + homes->settings.rebalance_interval;
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
		return shard->move == SHARD_MOVE_NONE;
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

/* Other homes for the shards of a member, among those that can be given any. */
static void
resettle(ShardHomes *homes, int64 now, int32 node, Resettlement how, ShardProposer *proposer,
		 const ShardRoster *roster)
{
	int n_types;
	ShardMapEntry *types = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &n_types);

	for (int t = 0; t < n_types; t++)
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
		for (int i = 0; i < n_shards; i++)
		{
			const char *why;
			int32 to;

			if (!goes(shards[i], node, how) ||
				(how == BY_MOVE && homes->n_moves >= EVACUATION_LIMIT))
				continue;
			to = shard_allocation_next(allocation, shards[i]->key.shard, 0);
			if (to == 0 || to == node)
				continue;
			if (how == BY_MOVE)
				(void) shard_homes_begin_move(homes, now, shards[i], to, proposer, roster, &why);
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
	ShardMapEntry *members = shard_map_list(homes->decided, SHARD_MAP_MEMBER, homes->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		if (shard_record_get_member(&members[i], &member, homes->arena) &&
			member.status == SHARD_MEMBER_LEAVING && shard_homes_count(homes, members[i].key.a) > 0)
			resettle(homes, now, members[i].key.a, BY_MOVE, proposer, roster);
	}
}

/* Does the member have a shard that needs a new home? */
static bool
has_any(ShardHomes *homes, int32 node, Resettlement how)
{
	homes_shard_iterator iterator;
	HomesShard *shard;
	bool any = false;

	homes_shard_start_iterate(homes->shards, &iterator);
	while ((shard = homes_shard_iterate(homes->shards, &iterator)) != NULL)
		any |= goes(shard, node, how);
	return any;
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
		if (gone && has_any(homes, node, ANEW_DURABLE))
			resettle(homes, now, node, ANEW_DURABLE, proposer, roster);
		if ((gone || member.status == SHARD_MEMBER_DOWN ||
			 !shard_roster_reachable(roster, node, now)) &&
			has_any(homes, node, ANEW_LEASED))
			replace_leased(homes, now, node, proposer, roster);
		else
			reopen(homes, node, proposer, roster);
	}
}
