/*
 * core/home/homes_resettle.c
 *		Other homes for the shards of members that go, are emptied, or are lost.
 *
 * A home without its old owner's consent is given only in two cases: the member was written off; or the
 * type is leased and no lease of the member can be valid any more (T4). A shard of a type with replicas waits for the
 * nodes of its set, and begins anew when all of them were written off (Q18).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/home/homes_plan.h"
#include "core/member/membership.h"

/*
 * The most shards of a leaving member that move, or wait for their targets, at the same time. Types share
 * this number evenly: a type whose targets refuse, or do not answer, may not keep the shards of other types
 * here.
 */
#define EVACUATION_LIMIT 64

static bool
by_move(HomesResettlement how)
{
	return how == HOMES_BY_MOVE || how == HOMES_STRAYS;
}

/* Does the home of a shard not host its type, and not only for a moment (C17)? */
static bool
is_stray(ShardHomes *homes, const HomesShard *shard, int64 now)
{
	const HomesRegion *region = shard_homes_region(homes, shard->node);

#ifdef SHARD_MUTANT_STRAYS_STAY
	return false;
#endif
#ifndef SHARD_MUTANT_STRAYS_AT_ONCE
	if (region && now - region->since < SHARD_STRAY_AFTER)
		return false;
#endif
	return region && !region->stopped && !shard_homes_hosts(region, shard->key.type_id);
}

/*
 * Is that shard to get another home? A shard whose move can still end forward is not (M9): what is
 * being copied may be staged already, with all of its state.
 */
static bool
goes(ShardHomes *homes, const HomesShard *shard, int32 node, HomesResettlement how, int64 now)
{
	if (shard->node != node || (how == HOMES_STRAYS && !is_stray(homes, shard, now)))
		return false;
	if (shard->replicated && (by_move(how) || !shard_homes_set_is_gone(homes, shard)))
		return false;
	if (by_move(how))
		return shard->move == SHARD_MOVE_NONE && shard->confirmed && now >= shard->not_before;
	if (how == HOMES_LOST_DURABLE && shard->move == SHARD_MOVE_IMPORTING)
		return false;
	return shard->leased == (how == HOMES_LOST_LEASED) && shard->move != SHARD_MOVE_DECIDING;
}

bool
shard_homes_replace(ShardHomes *homes, HomesShard *shard, int32 to, int32 leap,
					const PlanView *plan, ShardProposer *proposer)
{
	ShardHomeRecord record;
	ShardMapEntry change;
	int64 n;

	if (!shard_homes_record(homes, shard, &record, &n))
		return false;
	record.epoch += leap;
	record.lost = record.epoch;
	record.reason = SHARD_HOME_REASON_LOST;
	record.phase = SHARD_HOME_STABLE;
	record.nodes[0] = to;
	record.to = 0;
	if (plan)
		shard_homes_choose_set(plan, shard->key.shard, &record);
	change = shard_record_put_home(shard->key.type_id, shard->key.shard, &record, n, homes->arena);
	return shard_proposer_propose(proposer, &change, 1);
}

/* Shards of a member, of one type. */
typedef struct TypeShards
{
	bool waiting; /* some are to be given another home */
	int under_way; /* their move is not decided yet: later, the new homes may start them when they like */
} TypeShards;

static int
compare_type(const void *a, const void *b)
{
	int32 type_a = *(const int32 *) a;
	int32 type_b = ((const ShardMapEntry *) b)->key.a;

	return (type_a > type_b) - (type_a < type_b);
}

/* Has a member a shard of a type that is to be given another home? */
static bool
has_waiting(ShardHomes *homes, int32 node, int32 type_id, HomesResettlement how, int64 now)
{
	const HomesRegion *region = shard_homes_region(homes, node);
	ShardMapRange range;
	HomesShard *shard;

	if (shard_homes_number_of_type(homes, type_id, node) == 0 ||
		(how == HOMES_STRAYS && (!region || shard_homes_hosts(region, type_id))))
		return false;
	range = shard_map_range(homes->decided, SHARD_MAP_HOME, type_id);
	while ((shard = shard_homes_next_shard(homes, &range)) != NULL)
	{
		if (goes(homes, shard, node, how, now))
			return true;
	}
	return false;
}

/* Shards of a member, by type as in the list. Returns how many types have any. */
static int
count_shards(ShardHomes *homes, int32 node, HomesResettlement how, int64 now,
			 const ShardMapEntry *types, int n_types, TypeShards *counts)
{
	int busy = 0;

	memset(counts, 0, sizeof(TypeShards) * n_types);
	for (int i = 0; i < homes->n_moves; i++)
	{
		const HomesShard *shard = homes_shard_lookup(homes->shards, homes->moves[i]);
		const ShardMapEntry *type;

		if (shard->node != node || shard->move == SHARD_MOVE_STARTING)
			continue;
		type = bsearch(&shard->key.type_id, types, n_types, sizeof(*types), compare_type);
		if (type)
			counts[type - types].under_way++;
	}
	for (int t = 0; t < n_types; t++)
	{
		counts[t].waiting = has_waiting(homes, node, types[t].key.a, how, now);
		busy += counts[t].waiting || counts[t].under_way > 0;
	}
	return busy;
}

/* Is a change of the home proposed already? */
static bool
is_changing(const ShardHomes *homes, const HomesShard *shard)
{
	return shard_proposer_pending(homes->proposer, (ShardMapKey){SHARD_MAP_HOME, shard->key.type_id,
																 shard->key.shard});
}

/* How many shards of a type may be given other homes now? */
static int
room_for(const TypeShards *shards, int n_busy, HomesResettlement how)
{
	int share = Max(EVACUATION_LIMIT / Max(n_busy, 1), 1);

	if (!shards->waiting)
		return 0;
	return by_move(how) ? share - shards->under_way : PG_INT32_MAX;
}

/* Other homes for room shards of a member, of one type, among those that can be given any. */
static void
resettle_type(ShardHomes *homes, int64 now, int32 node, int32 type_id, int room,
			  HomesResettlement how, ShardHomeReason reason, ShardProposer *proposer,
			  const ShardRoster *roster)
{
	PlanView plan;
	ShardAllocationView view;
	ShardAllocation *allocation;
	int n_shards;
	HomesShard **shards;

	if (!shard_homes_view_numbers(&plan, homes, now, type_id, roster))
		return;
	view = shard_homes_view_good(&plan, homes->arena);
	if (view.n_regions == 0)
		return;
	shards = shard_homes_view_shards(homes, type_id, &n_shards);
	allocation = shard_allocation_begin(&plan.settings, &view);
	for (int i = 0; i < n_shards && room > 0; i++)
	{
		const char *why;
		int32 to;

		/* What is proposed counts in the view already. */
		if (!goes(homes, shards[i], node, how, now) || is_changing(homes, shards[i]))
			continue;
		to = shard_homes_view_pin(&plan, shards[i]->key.shard);
		if (to == 0 || !shard_homes_view_is_good(&plan, to))
			to = shard_allocation_next(allocation, shards[i]->key.shard, 0);
		if (to == 0 || to == node)
			continue;
		if (by_move(how))
			room -= shard_homes_begin_move(homes, now, shards[i], to, reason, NULL, roster, &why);
		else
			(void) shard_homes_replace(homes, shards[i], to, 1, &plan, proposer);
	}
	shard_allocation_end(allocation);
}

/*
 * Give other homes to the shards of a member: types one after the other until enough homes were looked at, one type at
 * least; the next tick goes on with the other types.
 */
static void
resettle(ShardHomes *homes, int64 now, int32 node, HomesResettlement how, ShardHomeReason reason,
		 ShardProposer *proposer, const ShardRoster *roster)
{
	int n_types;
	ShardMapEntry *types = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &n_types);
	TypeShards *counts = shard_arena_alloc(homes->arena, sizeof(TypeShards) * Max(n_types, 1));
	int n_busy = count_shards(homes, node, how, now, types, n_types, counts);
	int32 done = shard_homes_node(homes, node)->resettled[how];
	int64 enough = homes->n_visited + HOMES_AT_A_TIME;

	for (int t = 0; t < n_types; t++)
	{
		int room = room_for(&counts[t], n_busy, how);

		if (room <= 0 || types[t].key.a <= done)
			continue;
#ifndef SHARD_MUTANT_ROUND_IN_ONE_GO
		if (homes->n_visited >= enough)
			return;
#endif
		shard_homes_node(homes, node)->resettled[how] = types[t].key.a;
		resettle_type(homes, now, node, types[t].key.a, room, how, reason, proposer, roster);
	}
	shard_homes_node(homes, node)->resettled[how] = 0;
}

/* Does a node lack some types of the cluster? */
static bool
lacks_types(ShardHomes *homes, int32 node)
{
	const HomesRegion *region = shard_homes_region(homes, node);
	int n_types;

	(void) shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &n_types);
	return region && region->n_hosted < n_types;
}

bool
shard_homes_gives_away(const ShardMemberRecord *member)
{
	return member->status == SHARD_MEMBER_LEAVING || member->status == SHARD_MEMBER_EXITING ||
		   (member->evacuated && shard_membership_is_member(member->status));
}

/* How the shards of a member are to get other homes by a move, and why; false: they stay. */
static bool
is_departing(ShardHomes *homes, const ShardMapEntry *entry, bool strays, HomesResettlement *how,
			 ShardHomeReason *reason)
{
	ShardMemberRecord member;

	if (!shard_record_get_member(entry, &member, homes->arena) ||
		shard_homes_count(homes, entry->key.a) == 0)
		return false;
	*how = HOMES_BY_MOVE;
	/* A home that was being decided when the member was found empty may have come after that. */
	if (member.status == SHARD_MEMBER_LEAVING || member.status == SHARD_MEMBER_EXITING)
		*reason = SHARD_HOME_REASON_LEAVING;
	else if (shard_homes_gives_away(&member))
		*reason = SHARD_HOME_REASON_EVACUATION;
	else
	{
		*how = HOMES_STRAYS;
		*reason = SHARD_HOME_REASON_UNHOSTED;
		return strays && lacks_types(homes, entry->key.a);
	}
	return true;
}

void
shard_homes_evacuate(ShardHomes *homes, int64 now, ShardProposer *proposer,
					 const ShardRoster *roster)
{
	int count;
	ShardMapEntry *members;
	bool strays = now >= homes->next_strays;

	if (strays)
		homes->next_strays = now + SHARD_RESEND_INTERVAL;
	members = shard_map_list(homes->decided, SHARD_MAP_MEMBER, homes->arena, &count);
	for (int i = 0; i < count; i++)
	{
		HomesResettlement how;
		ShardHomeReason reason;

		if (is_departing(homes, &members[i], strays, &how, &reason))
			resettle(homes, now, members[i].key.a, how, reason, proposer, roster);
	}
}

void
shard_homes_evacuate_dry(ShardHomes *homes, int64 now, int32 type_id, const ShardRoster *roster)
{
	int count;
	ShardMapEntry *members = shard_map_list(homes->decided, SHARD_MAP_MEMBER, homes->arena, &count);

	for (int i = 0; i < count; i++)
	{
		HomesResettlement how;
		ShardHomeReason reason;

		if (is_departing(homes, &members[i], true, &how, &reason) &&
			has_waiting(homes, members[i].key.a, type_id, how, now))
			resettle_type(homes, now, members[i].key.a, type_id, PG_INT32_MAX, how, reason, NULL,
						  roster);
	}
}

/* Is a home of a leased shard of the member being changed? */
static bool
is_replacing(ShardHomes *homes, int32 node)
{
	homes_shard_iterator iterator;
	HomesShard *shard;
	bool any = false;

	homes_shard_start_iterate(homes->shards, &iterator);
	while ((shard = homes_shard_iterate(homes->shards, &iterator)) != NULL)
	{
		if (shard->leased && shard->node == node)
			any |= is_changing(homes, shard);
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
		/* The turn of the others comes when these are done. */
		if (homes->n_closed == HOMES_MAX_CLOSED)
			return;
		homes->closed[homes->n_closed++] = node;
		shard_roster_close_lease(roster, node);
	}
	if (shard_roster_lease_ended(roster, node, now, homes->decided))
		resettle(homes, now, node, HOMES_LOST_LEASED, SHARD_HOME_REASON_LOST, proposer, roster);
}

/* The member is there again, or has nothing leased any more: it may be granted a lease. */
static void
reopen(ShardHomes *homes, int32 node, ShardRoster *roster)
{
	int at = find_closed(homes, node);

	if (at < 0 || is_replacing(homes, node))
		return;
	homes->closed[at] = homes->closed[--homes->n_closed];
	shard_roster_open_lease(roster, node);
}

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
		/* One that has left has homes only of types that were nowhere any more then (C9). */
		gone = member.status == SHARD_MEMBER_WRITTEN_OFF || member.status == SHARD_MEMBER_REMOVED;
		if (gone && shard_homes_number(homes, node, false) > 0)
			resettle(homes, now, node, HOMES_LOST_DURABLE, SHARD_HOME_REASON_LOST, proposer,
					 roster);
		if ((gone || member.status == SHARD_MEMBER_DOWN ||
			 !shard_roster_reachable(roster, node, now)) &&
			shard_homes_number(homes, node, true) > 0)
			replace_leased(homes, now, node, proposer, roster);
		else
			reopen(homes, node, roster);
	}
}
