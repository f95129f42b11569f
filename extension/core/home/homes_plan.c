/*
 * core/home/homes_plan.c
 *		Where shards get their first homes, and which ones should move: the coordinator's plans.
 *
 * Plans are made from the decided state (C5), and each step of one is a compare-and-set on its key, so
 * a plan made from yesterday's state does no harm. What an operator wishes, a pin, goes before every
 * strategy, as long as its node can have the shard.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/era.h"
#include "core/home/homes_plan.h"
#include "core/member/membership.h"
#include "core/base/message.h"

/* Pinned shards that begin to move, and pins that end, at a time. */
#define PIN_LIMIT 64

/* Where a region is in a view, -1 if it is not there. */
static int
region_of(const ShardAllocationView *view, int32 node)
{
	for (int i = 0; i < view->n_regions; i++)
	{
		if (view->regions[i].node == node)
			return i;
	}
	return -1;
}

/* ---- first homes ------------------------------------------------------------------------------ */

/* Members that are up and have a role, "": any. Whether they host a type makes no difference. */
static int
count_members(ShardHomes *homes, const char *role)
{
	int count;
	int up = 0;
	ShardMapEntry *members = shard_map_list(homes->decided, SHARD_MAP_MEMBER, homes->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

#ifdef SHARD_MUTANT_MINIMUM_OF_HOSTS
		const HomesRegion *region = shard_homes_region(homes, members[i].key.a);

		if (!region || region->n_hosted == 0)
			continue;
#endif
		up += shard_record_get_member(&members[i], &member, homes->arena) &&
			  member.status == SHARD_MEMBER_UP && shard_membership_has_role(&member, role);
	}
	return up;
}

/* The minimum of members, or of members with a role; 0: there is none. */
static int32
minimum_of(const ShardHomes *homes, const char *role)
{
	int32 number = shard_record_role(role);
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_SETTINGS, 0, 0});
	ShardSettingsRecord settings;

	if (!entry || !shard_record_get_settings(entry, &settings))
		return 0;
	for (int i = 0; i < settings.n_role_minimums; i++)
	{
		if (settings.role_minimums[i].role == number)
			return settings.role_minimums[i].members;
	}
	return number == 0 ? settings.min_members : 0;
}

/*
 * Has a role, "": the cluster, had its minimum of members once (C4)? When it has just now, that is proposed;
 * homes are given after it is decided.
 */
static bool
is_formed(ShardHomes *homes, const char *role, ShardProposer *proposer)
{
	int32 number = shard_record_role(role);
	int32 minimum = minimum_of(homes, role);
	ShardMapEntry change;

	if ((number != 0 && minimum == 0) ||
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_FORMED, number, 0}))
		return true;
	if (count_members(homes, role) < minimum)
		return false;
	change = shard_record_put_formed(number, 0, homes->arena);
	(void) shard_proposer_propose(proposer, &change, 1);
	return false;
}

void
shard_homes_give(ShardHomes *homes, const PlanView *plan, int32 shard, int32 node,
				 ShardProposer *proposer)
{
	ShardHomeRecord record = {.n_nodes = 1, .want = 1, .reason = SHARD_HOME_REASON_FIRST};
	ShardMapEntry change;

	record.nodes[0] = node;
	record.epoch = record.lost = shard_era_first_epoch(shard_map_point(homes->decided).n);
	shard_homes_choose_set(plan, shard, &record);
	change = shard_record_put_home(plan->type_id, shard, &record, 0, homes->arena);
	(void) shard_proposer_propose(proposer, &change, 1);
}

void
shard_homes_allocate_type(ShardHomes *homes, const PlanView *plan,
						  const ShardAllocationSettings *settings, const HomesRequest *requests,
						  int n_requests, ShardProposer *proposer)
{
	ShardAllocationView view = shard_homes_view_good(plan, homes->arena);
	ShardAllocation *allocation;

	if (view.n_regions == 0)
		return;
	allocation = shard_allocation_begin(settings, &view);
	for (int i = 0; i < n_requests; i++)
	{
		int32 shard = requests[i].key.shard;
		int32 node = shard_homes_view_pin(plan, shard);

		if (region_of(&view, node) < 0)
			node = shard_allocation_next(allocation, shard, requests[i].requester);
		if (node != 0)
			shard_homes_give(homes, plan, shard, node, proposer);
	}
	shard_allocation_end(allocation);
}

/* What gives first homes looks at numbers alone. */
static bool
view_for_homes(PlanView *plan, ShardHomes *homes, int64 now, int32 type_id,
			   const ShardRoster *roster)
{
#ifdef SHARD_MUTANT_FIRST_HOMES_SEE_ALL
	return shard_homes_view(plan, homes, now, type_id, roster, homes->arena);
#else
	return shard_homes_view_numbers(plan, homes, now, type_id, roster);
#endif
}

/* The same by the type's own strategy. */
static void
allocate_type(ShardHomes *homes, int64 now, const HomesRequest *requests, int n_requests,
			  ShardProposer *proposer, const ShardRoster *roster)
{
	int32 type_id = requests[0].key.type_id;
	PlanView plan;

	/* A type that is about to go gets no home that its removal does not know of. */
	if (shard_proposer_pending(proposer, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0}) ||
		!view_for_homes(&plan, homes, now, type_id, roster) || !is_formed(homes, "", proposer) ||
		!is_formed(homes, plan.type.role, proposer))
		return;
#ifndef SHARD_MUTANT_CLAIMS_FORGOTTEN
	/* its shards get them with the end of the claim */
	if (plan.type.claims)
		return;
#endif
	if (plan.settings.kind != SHARD_ALLOCATION_FUNCTION ||
		!shard_homes_ask_homes(homes, now, type_id, requests, n_requests, roster))
		shard_homes_allocate_type(homes, &plan, &plan.settings, requests, n_requests, proposer);
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

/*
 * A view of the regions that stay: a member that leaves or is evacuated has no share, and is
 * emptied by other means.
 */
static ShardAllocationView
settled_regions(const PlanView *plan, ShardArena *arena)
{
	ShardAllocationView view = plan->view;
	ShardAllocationRegion *regions =
		shard_arena_alloc(arena, sizeof(ShardAllocationRegion) * Max(view.n_regions, 1));
	int n = 0;

	for (int i = 0; i < view.n_regions; i++)
	{
		for (int k = 0; k < view.n_members; k++)
		{
			if (view.members[k].node == view.regions[i].node &&
				view.members[k].stage != SHARD_ALLOCATION_LEAVING)
				regions[n++] = view.regions[i];
		}
	}
	view.regions = regions;
	view.n_regions = n;
	return view;
}

/*
 * Shards that a plan leaves alone: those that move already, and pinned ones where each shard has one
 * right place.
 */
static int32 *
find_fixed(const ShardHomes *homes, const PlanView *plan, const ShardAllocationSettings *settings,
		   int *count)
{
	int32 *fixed =
		shard_arena_alloc(homes->arena, sizeof(int32) * Max(plan->n_moving + plan->n_pins, 1));

	*count = plan->n_moving;
	if (plan->n_moving > 0)
		memcpy(fixed, plan->moving, sizeof(int32) * plan->n_moving);
	if (settings->kind == SHARD_ALLOCATION_CONSISTENT_HASHING)
	{
		for (int i = 0; i < plan->n_pins; i++)
			fixed[(*count)++] = plan->pins[i].shard;
	}
	return fixed;
}

int
shard_homes_plan_type(ShardHomes *homes, int64 now, const PlanView *plan,
					  const ShardAllocationSettings *settings, const char *who,
					  const ShardRoster *roster)
{
	ShardAllocationView view = settled_regions(plan, homes->arena);
	ShardAllocationMove *moves;
	int32 *fixed;
	int n_fixed;
	int n_moves;
	int n_begun = 0;

	fixed = find_fixed(homes, plan, settings, &n_fixed);
	moves = shard_allocation_rebalance(settings, &view, fixed, n_fixed, &n_moves);
	for (int i = 0; i < n_moves; i++)
	{
		HomesShard *shard = shard_homes_shard(homes, plan->type_id, moves[i].shard);
		int32 pin = shard_homes_view_pin(plan, moves[i].shard);
		const char *why;

		if (!shard || moves[i].to == 0 || moves[i].to == moves[i].from ||
			(pin != 0 && pin != moves[i].to) || now < shard->not_before ||
			!shard_homes_view_is_good(plan, moves[i].to))
			continue;
		n_begun += shard_homes_begin_move(homes, now, shard, moves[i].to,
										  SHARD_HOME_REASON_REBALANCE, who, roster, &why);
	}
	if (moves)
		pfree(moves);
	return n_begun;
}

/* The round of one type. Returns how many moves begin; *n_pending: see shard_homes_round. */
static int
plan_type(ShardHomes *homes, int64 now, int32 type_id, const char *who, const ShardRoster *roster,
		  int *n_pending)
{
	PlanView plan;

	/* A type with functions of its own gets its whole view when the functions are asked. */
	if (!shard_homes_view_numbers(&plan, homes, now, type_id, roster))
		return 0;
	/* Shards with copies stay where their sets are. */
	if (plan.type.replicas > 0)
		return 0;
	if (plan.settings.kind == SHARD_ALLOCATION_FUNCTION)
	{
		if (homes->dry.runs)
			return 0;
		*n_pending += shard_homes_ask_moves(homes, now, type_id, who, roster);
		return 0;
	}
	/* Where there is one region, nothing can move. */
	if (plan.view.n_regions <= 1 ||
		!shard_homes_view(&plan, homes, now, type_id, roster, homes->arena))
		return 0;
	return shard_homes_plan_type(homes, now, &plan, &plan.settings, who, roster);
}

int
shard_homes_round(ShardHomes *homes, int64 now, int32 type_id, const char *who,
				  const ShardRoster *roster, int *n_pending)
{
	int count;
	int n_begun = 0;
	ShardMapEntry *types = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &count);

	*n_pending = 0;
	for (int i = 0; i < count; i++)
	{
		if (type_id == 0 || types[i].key.a == type_id)
			n_begun += plan_type(homes, now, types[i].key.a, who, roster, n_pending);
	}
	return n_begun;
}

/*
 * The periodic round goes on: as many types as their homes allow, one at least. A type with many homes so takes time
 * from the next round, not from what else the coordinator has to do. Is the round over?
 */
static bool
go_on_with_round(ShardHomes *homes, int64 now, const ShardRoster *roster)
{
	int count;
	ShardMapEntry *types = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &count);
	int64 enough = homes->n_visited + HOMES_AT_A_TIME;
	int n_pending = 0;

	for (int i = 0; i < count; i++)
	{
		if (types[i].key.a <= homes->rebalanced)
			continue;
#ifndef SHARD_MUTANT_ROUND_IN_ONE_GO
		if (homes->n_visited >= enough)
			return false;
#endif
		homes->rebalanced = types[i].key.a;
		(void) plan_type(homes, now, types[i].key.a, NULL, roster, &n_pending);
	}
	homes->rebalanced = 0;
	return true;
}

/* The node of a pin is gone for good, and so is the pin. */
static void
end_pin(const ShardMapEntry *pin, ShardProposer *proposer)
{
	ShardMapEntry change = {.key = pin->key, .n = pin->n, .deleted = true};

	/* With another change of the pin under way, a later round looks at it again. */
	(void) shard_proposer_propose(proposer, &change, 1);
}

/* A shard begins to move to where an operator wishes it, if it is elsewhere and can. True: it does. */
static bool
follow_pin(ShardHomes *homes, int64 now, const ShardMapEntry *pin, int32 node,
		   const ShardRoster *roster)
{
	HomesShard *shard = shard_homes_shard(homes, pin->key.a, pin->key.b);
	const char *why;

	if (!shard || shard->replicated || node == shard->node || shard->move != SHARD_MOVE_NONE ||
		now < shard->not_before)
		return false;
	return shard_homes_begin_move(homes, now, shard, node, SHARD_HOME_REASON_PIN,
								  shard_homes_pinned_by(homes, shard->key, true), roster, &why);
}

/* Shards go where an operator wishes them, as soon as they can. */
static void
follow_pins(ShardHomes *homes, int64 now, ShardProposer *proposer, const ShardRoster *roster)
{
	int count;
	ShardMapEntry *pins = shard_map_list(homes->decided, SHARD_MAP_PIN, homes->arena, &count);
	int room = PIN_LIMIT;

	for (int i = 0; i < count && room > 0; i++)
	{
		int32 node = shard_membership_pinned(homes->decided, &pins[i]);

		if (node == 0)
		{
			end_pin(&pins[i], proposer);
			room--;
			continue;
		}
		room -= follow_pin(homes, now, &pins[i], node, roster);
	}
}

void
shard_homes_plan_dry(ShardHomes *homes, int64 now, int32 type_id, const ShardRoster *roster)
{
	ShardMapRange range = shard_map_range(homes->decided, SHARD_MAP_PIN, type_id);
	const ShardMapEntry *pin;
	int n_pending = 0;

	while ((pin = shard_map_range_next(&range)) != NULL)
	{
		int32 node = shard_membership_pinned(homes->decided, pin);

		if (node != 0)
			(void) follow_pin(homes, now, pin, node, roster);
	}
	(void) plan_type(homes, now, type_id, NULL, roster, &n_pending);
}

void
shard_homes_plan(ShardHomes *homes, int64 now, ShardProposer *proposer, const ShardRoster *roster)
{
	if (now >= homes->next_pins)
	{
		homes->next_pins = now + SHARD_RESEND_INTERVAL;
		follow_pins(homes, now, proposer, roster);
	}
	if (now >= homes->next_rebalance && go_on_with_round(homes, now, roster))
		homes->next_rebalance = shard_homes_next_rebalance(homes, now);
}
