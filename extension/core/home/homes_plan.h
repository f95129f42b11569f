/*
 * core/home/homes_plan.h
 *		What plans for homes look at: one type, as allocation sees it.
 */
#pragma once

#include "core/allocation/allocation.h"
#include "core/home/homes_private.h"
#include "core/base/arena.h"

/* A shard that an operator wishes at a node. */
typedef struct PlanPin
{
	int32 shard;
	int32 node;
} PlanPin;

/* A node that can have one more backup of the type, and how many it has or is about to have. */
typedef struct PlanHost
{
	int32 node;
	int n_backups;
} PlanHost;

/* What allocation looks at, for one type; all of it in one arena. */
struct PlanView
{
	int32 type_id;
	ShardTypeRecord type;
	ShardAllocationSettings settings;
	ShardAllocationView view;
	int32 *moving;
	int n_moving;
	int n_pins;
	PlanPin *pins; /* by shard */
	int n_hosts;   /* of a type with replicas; else 0 */
	PlanHost *hosts;
};

/* ---- homes_view.c: one type, as allocation sees it -------------------------------------------- */

/* The view of a type, as allocation sees it, in the arena. False: there is no such type. */
extern bool shard_homes_view(PlanView *plan, ShardHomes *homes, int64 now, int32 type_id,
							 const ShardRoster *roster, ShardArena *arena);

/* The same without the lists of shards, in the arena of the call: their numbers are enough to give homes, and cost little. */
extern bool shard_homes_view_numbers(PlanView *plan, ShardHomes *homes, int64 now, int32 type_id,
									 const ShardRoster *roster);

/*
 * May that node be given a shard now? Strategies order nodes by suitability and refuse none. Only a host of the type may
 * (C16), so neither a proxy nor a member that does not know the type.
 */
extern bool shard_homes_view_is_good(const PlanView *plan, int32 node);

/*
 * The view without regions that cannot be given a shard: those of members that are unreachable, leave, or are not up yet. In
 * the arena.
 */
extern ShardAllocationView shard_homes_view_good(const PlanView *plan, ShardArena *arena);

/* The node where an operator wants the shard; 0: none. */
extern int32 shard_homes_view_pin(const PlanView *plan, int32 shard);

/*
 * The shards of a type in the order in which they got their homes, *count of them, in homes->arena. The map has the homes of
 * a type beside each other, so the homes of other types cost nothing.
 */
extern HomesShard **shard_homes_view_shards(ShardHomes *homes, int32 type_id, int *count);

/* The next shard of a range of homes in the map; NULL: there is none left. */
extern HomesShard *shard_homes_next_shard(ShardHomes *homes, ShardMapRange *range);

/* ---- homes_set.c: who keeps copies of a shard ------------------------------------------------- */

/* Part of a view: the hosts that can have backups, if the type has replicas. In the arena. */
extern void shard_homes_view_hosts(PlanView *plan, ShardHomes *homes, ShardArena *arena);

/*
 * The set of a home that begins, whose node the record has: its backups are added, and the wished number of nodes. What is
 * chosen counts in the view for the next shard. Of a type without replicas that is the home alone.
 */
extern void shard_homes_choose_set(const PlanView *plan, int32 shard, ShardHomeRecord *record);

/* ---- homes_plan.c: what a strategy said is carried out ---------------------------------------- */

/* Proposes the first home of a shard, with its set. */
extern void shard_homes_give(ShardHomes *homes, const PlanView *plan, int32 shard, int32 node,
							 ShardProposer *proposer);

/*
 * A round of rebalancing of one type by a strategy with these settings. who: as for shard_homes_begin_move(). Returns how
 * many moves begin.
 */
extern int shard_homes_plan_type(ShardHomes *homes, int64 now, const PlanView *plan,
								 const ShardAllocationSettings *settings, const char *who,
								 const ShardRoster *roster);

/* Gives homes to the requested shards of one type, by a strategy with these settings, in one batch (C2). */
extern void
shard_homes_allocate_type(ShardHomes *homes, const PlanView *plan,
						  const ShardAllocationSettings *settings, const HomesRequest *requests,
						  int n_requests, ShardProposer *proposer);
