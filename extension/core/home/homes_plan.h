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

/* What allocation looks at, for one type; all of it in one arena. */
typedef struct PlanView
{
	int32 type_id;
	ShardTypeRecord type;
	ShardAllocationSettings settings;
	ShardAllocationView view;
	int32 *moving;
	int n_moving;
	int n_pins;
	PlanPin *pins; /* by shard */
} PlanView;

/* homes_view.c: the view of a type, in the arena; false if the type is not known */
extern bool shard_homes_view(PlanView *plan, ShardHomes *homes, int64 now, int32 type_id,
							 const ShardRoster *roster, ShardArena *arena);

/* The same without the lists of shards, in the arena of the call: their numbers are enough to give homes, and cost little. */
extern bool shard_homes_view_numbers(PlanView *plan, ShardHomes *homes, int64 now, int32 type_id,
									 const ShardRoster *roster);
extern bool shard_homes_view_is_good(const PlanView *plan, int32 node);
extern ShardAllocationView shard_homes_view_good(const PlanView *plan, ShardArena *arena);
extern int32 shard_homes_view_pin(const PlanView *plan, int32 shard);
extern HomesShard **shard_homes_view_shards(ShardHomes *homes, int32 type_id, int *count);
extern HomesShard *shard_homes_next_shard(ShardHomes *homes, ShardMapRange *range);

/* homes_plan.c: what a strategy said is carried out */
extern void shard_homes_give(ShardHomes *homes, int32 type_id, int32 shard, int32 node,
							 ShardProposer *proposer);
extern int shard_homes_plan_type(ShardHomes *homes, int64 now, const PlanView *plan,
								 const ShardAllocationSettings *settings, const char *who,
								 const ShardRoster *roster);
extern void
shard_homes_allocate_type(ShardHomes *homes, const PlanView *plan,
						  const ShardAllocationSettings *settings, const HomesRequest *requests,
						  int n_requests, ShardProposer *proposer);
