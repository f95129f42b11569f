/*
 * core/allocation/allocation.h
 *		Where a shard gets its home, and which shards move.
 *
 * Pure functions over a view: the regions of one entity type with their shards, and the members of
 * the cluster. The caller decides when, and what becomes of the answer. Equal arguments give equal
 * answers on every machine: all arithmetic is in integers, except for the relative limit, which is
 * defined in floating point.
 *
 * A region counts only if its member is in the view and suitable. Candidates are ordered by
 * suitability: those that stay before those that leave; then the newer application version; then
 * fewer shards; then the order of registration.
 */
#pragma once

#include "shard.h"

/*
 * The strategies: member of the enum, its number, the name that users give. Numbers are stored in types: they count up from 1,
 * and none is ever given to another strategy. The names, their list in shard_start's errors and what is a valid number come
 * from here; what a strategy does, and which settings it has, are switches that name each one, so that the compiler finds those
 * where a new strategy is missing. FUNCTION is the user's own pair of functions, asked through the host (core/map/action.h).
 */
#define SHARD_ALLOCATION_STRATEGIES(STRATEGY) \
	STRATEGY(LEAST_SHARD, 1, "least_shard") \
	STRATEGY(LEAST_SHARD_THRESHOLD, 2, "least_shard_threshold") \
	STRATEGY(CONSISTENT_HASHING, 3, "consistent_hashing") \
	STRATEGY(EXTERNAL, 4, "external") \
	STRATEGY(LOCALITY, 5, "locality") \
	STRATEGY(FUNCTION, 6, "function")

typedef enum ShardAllocationKind
{
#define SHARD_ALLOCATION_MEMBER(member, number, name) SHARD_ALLOCATION_##member = (number),
	SHARD_ALLOCATION_STRATEGIES(SHARD_ALLOCATION_MEMBER)
#undef SHARD_ALLOCATION_MEMBER
} ShardAllocationKind;

/* How many there are: the numbers are 1 to this one. */
#define SHARD_ALLOCATION_ONE_MORE(member, number, name) +1
#define SHARD_ALLOCATION_KINDS (0 SHARD_ALLOCATION_STRATEGIES(SHARD_ALLOCATION_ONE_MORE))

/* Their names as one text, each followed by a comma. */
#define SHARD_ALLOCATION_NAME(member, number, name) name ","
#define SHARD_ALLOCATION_NAMES SHARD_ALLOCATION_STRATEGIES(SHARD_ALLOCATION_NAME)

/* What allocation needs to know of a member's status; removed members are not in the view. */
typedef enum ShardAllocationStage
{
	SHARD_ALLOCATION_JOINING, /* joining, weakly up: nothing is rebalanced meanwhile */
	SHARD_ALLOCATION_STAYING, /* up */
	SHARD_ALLOCATION_LEAVING  /* leaving, exiting, down: taken only if no other member is left */
} ShardAllocationStage;

/* Weights are in thousandths, so that comparing them is exact. */
#define SHARD_ALLOCATION_WEIGHT_ONE 1000
#define SHARD_ALLOCATION_MAX_WEIGHT (1000 * SHARD_ALLOCATION_WEIGHT_ONE)

/* Beyond, sums of weights could overflow. */
#define SHARD_ALLOCATION_MAX_REGIONS 1000

typedef struct ShardAllocationMember
{
	int32 node;
	ShardAllocationStage stage;
	bool reachable;
	bool suitable;			 /* may host the type: has its role */
	int32 weight;			 /* 1 .. MAX_WEIGHT; looked at with the setting "weighted" only */
	const char *app_version; /* "" is the same as 0 */
} ShardAllocationMember;

typedef struct ShardAllocationRegion
{
	int32 node;
	int n_shards;
	const int32 *shards; /* oldest first; not looked at by allocation, may be NULL there */
} ShardAllocationRegion;

/* The node that an operator wishes for a shard, 0 for none. */
typedef int32 (*ShardAllocationPin)(int32 shard, void *arg);

typedef struct ShardAllocationView
{
	int n_members;
	const ShardAllocationMember *members;
	int n_regions;						  /* at most MAX_REGIONS */
	const ShardAllocationRegion *regions; /* in order of registration, one of a node */
	ShardAllocationPin pin;				  /* for "external"; NULL: no shard is pinned */
	void *pin_arg;
} ShardAllocationView;

typedef struct ShardAllocationSettings
{
	ShardAllocationKind kind;
	int32 rebalance_absolute_limit;
	double rebalance_relative_limit;
	int32 rebalance_threshold;
	int32 max_simultaneous_rebalance;
	int32 rebalance_limit;
	int32 virtual_nodes;
	bool weighted;
} ShardAllocationSettings;

typedef enum ShardAllocationSettingType
{
	SHARD_ALLOCATION_INTEGER,
	SHARD_ALLOCATION_FRACTION,
	SHARD_ALLOCATION_SWITCH
} ShardAllocationSettingType;

/* A setting by name, and where it lies: an int32, a double or a bool. */
typedef struct ShardAllocationSetting
{
	const char *name;
	ShardAllocationSettingType type;
	size_t offset; /* in ShardAllocationSettings */
	int32 least;
	int32 most;
} ShardAllocationSetting;

/* A shard that is to move. to = from: it would come back at once, so leave it where it is. */
typedef struct ShardAllocationMove
{
	int32 shard;
	int32 from;
	int32 to;
} ShardAllocationMove;

/* Homes for many shards, one after the other, each seen by the next. */
typedef struct ShardAllocation ShardAllocation;

extern const char *const shard_allocation_kind_names[]; /* by kind; NULL ends the list */

/* Is that the number of a strategy that this version knows? Numbers come from other nodes, too. */
extern bool shard_allocation_is_known(int32 kind);

extern const ShardAllocationSetting shard_allocation_setting_list[];
extern const int shard_allocation_n_settings;

extern ShardAllocationSettings shard_allocation_defaults(ShardAllocationKind kind);

/* Is every setting within its bounds, and the strategy one that is known? */
extern bool shard_allocation_settings_valid(const ShardAllocationSettings *settings);
extern int shard_allocation_compare_versions(const char *a, const char *b);

extern ShardAllocation *
shard_allocation_begin(const ShardAllocationSettings *settings, const ShardAllocationView *view);
extern int32 shard_allocation_next(ShardAllocation *allocation, int32 shard, int32 requester);
extern void shard_allocation_end(ShardAllocation *allocation);
extern int32
shard_allocation_allocate(const ShardAllocationSettings *settings, const ShardAllocationView *view,
						  int32 shard, int32 requester);

extern ShardAllocationMove *
shard_allocation_rebalance(const ShardAllocationSettings *settings, const ShardAllocationView *view,
						   const int32 *in_progress, int n_in_progress, int *n_moves);
