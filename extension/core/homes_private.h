/*
 * core/homes_private.h
 *		What the files of core/homes share.
 */
#pragma once

#include "core/homes.h"
#include "core/move.h"
#include "core/shard_key.h"
#include "core/timing.h"

#define HOMES_MAX_CLOSED 16

/*
 * A shard that is given up takes an epoch that nobody can know already, not even from decisions that
 * went with lost voters (R13): regions act on newer epochs only (T2).
 */
#define SHARD_EPOCH_LEAP 1024

/* A registered region. */
typedef struct HomesRegion
{
	int32 node;
	bool stopped; /* its workers said that they end */
	int n_hosted;
	int32 *hosted; /* type ids; NULL if none */
} HomesRegion;

/* What the homes come to for one node. */
typedef struct HomesNode
{
	int32 node;
	int32 inc_no;  /* as decided */
	int n_durable; /* homes of types that are not leased */
	int n_leased;
	int n_coming; /* by moves that are not decided */
} HomesNode;

/* What the coordinator knows of one home beyond the key itself. */
typedef struct HomesShard
{
	ShardShardKey key;
	char status; /* of the hash */
	int64 n;	 /* of the key's last change seen */
	int32 epoch;
	int32 node;
	int32 to;		/* while moving */
	bool confirmed; /* ShardStarted of that epoch came (M10) */
	bool leased;
	int64 asked; /* its home was first asked to start it then, in vain so far; 0: not yet */
	ShardMoveState move;
	int64 move_id;
	int64 deadline;	 /* of the move */
	int64 next_send; /* of its last command */
} HomesShard;

/* A shard without a home, and who asked first. */
typedef struct HomesRequest
{
	ShardShardKey key;
	char status;
	int32 requester;
} HomesRequest;

#define SH_PREFIX homes_shard
#define SH_ELEMENT_TYPE HomesShard
#define SH_KEY_TYPE ShardShardKey
#define SH_KEY key
#define SH_HASH_KEY SHARD_SHARD_KEY_HASH
#define SH_EQUAL SHARD_SHARD_KEY_EQUAL
#define SH_SCOPE static inline
#define SH_RAW_ALLOCATOR palloc0
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

#define SH_PREFIX homes_request
#define SH_ELEMENT_TYPE HomesRequest
#define SH_KEY_TYPE ShardShardKey
#define SH_KEY key
#define SH_HASH_KEY SHARD_SHARD_KEY_HASH
#define SH_EQUAL SHARD_SHARD_KEY_EQUAL
#define SH_SCOPE static inline
#define SH_RAW_ALLOCATOR palloc0
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

struct ShardHomes
{
	int32 self;
	ShardHomesSettings settings;
	const ShardMap *decided; /* the proposer's, while the office is held */
	int64 seen_n;			 /* changes of homes up to this are in shards */
	homes_shard_hash *shards;
	homes_request_hash *requests;
	HomesRegion *regions; /* in the order of registration */
	int n_regions;
	HomesNode *nodes;
	int n_nodes;
	int n_moves; /* shards whose move is not NONE */
	int64 next_host;
	int64 next_rebalance;
	int n_closed;
	int32 closed[HOMES_MAX_CLOSED]; /* nodes whose lease is closed for a change of homes */
	ShardArena *arena;				/* of one call */
};

/* homes.c */
extern HomesRegion *shard_homes_region(ShardHomes *homes, int32 node);
extern bool shard_homes_hosts(const HomesRegion *region, int32 type_id);
extern int shard_homes_number(const ShardHomes *homes, int32 node, bool leased);
extern int64 shard_homes_next_rebalance(const ShardHomes *homes, int64 now);
extern HomesShard *shard_homes_shard(ShardHomes *homes, int32 type_id, int32 shard);
extern bool shard_homes_record(const ShardHomes *homes, const HomesShard *shard,
							   ShardHomeRecord *record, int64 *n);
extern bool shard_homes_member(const ShardHomes *homes, int32 node, ShardMemberRecord *member);
extern void shard_homes_asked(HomesShard *shard, int64 now);
extern void shard_homes_set_move(ShardHomes *homes, HomesShard *shard, ShardMoveEvent event);

extern void shard_homes_follow(ShardHomes *homes, int64 now);

/* homes_type.c */
extern void shard_homes_start_type(ShardHomes *homes, const ShardControl *message,
								   ShardProposer *proposer, ShardActions *out);
extern int32
shard_homes_number_of_shards(const ShardHomes *homes, int32 wanted, int32 *type_id, int32 *number);

/* homes_move.c */
extern bool
shard_homes_begin_move(ShardHomes *homes, int64 now, HomesShard *shard, int32 to,
					   ShardProposer *proposer, const ShardRoster *roster, const char **why);
extern void
shard_homes_drive(ShardHomes *homes, int64 now, ShardProposer *proposer, ShardActions *out);
extern void shard_homes_stopped(ShardHomes *homes, const ShardControl *message);
extern void shard_homes_staged(ShardHomes *homes, const ShardControl *message);
extern void shard_homes_import_failed(ShardHomes *homes, const ShardControl *message);

/* homes_plan.c */
extern void shard_homes_allocate(ShardHomes *homes, int64 now, ShardProposer *proposer,
								 const ShardRoster *roster);
extern void shard_homes_replace(ShardHomes *homes, HomesShard *shard, int32 to, int32 leap,
								ShardProposer *proposer);
extern void
shard_homes_plan(ShardHomes *homes, int64 now, ShardProposer *proposer, const ShardRoster *roster);
extern void shard_homes_evacuate(ShardHomes *homes, int64 now, ShardProposer *proposer,
								 const ShardRoster *roster);
extern void shard_homes_replace_lost(ShardHomes *homes, int64 now, ShardProposer *proposer,
									 ShardRoster *roster);
