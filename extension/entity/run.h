/*
 * entity/run.h
 *		An entity type in a region worker: handler, state table, entities, counts.
 */
#pragma once

#include "entity/cache.h"
#include "entity/handler.h"
#include "entity/state.h"

typedef struct ShardShardCount
{
	int64 entities;
	int64 handled;
	int64 errors;
} ShardShardCount;

typedef struct ShardRun
{
	ShardType *type;
	bool by_value; /* of the state type */
	int16 length;
	ShardStateParts parts;
	ShardHandler handler;
	ShardHandler ordered_by;
	ShardStateTable table;
	dlist_head lru;
	bool runnable;			 /* messages are handled, as of this turn */
	bool followed;			 /* the same, as its entities were told */
	uint64 looked_at;		 /* registry generation of that */
	bool burying;			 /* the type was dropped, and the turn gives up what is held of it, */
	int64 given_up;			 /* so many messages */
	bool buried;			 /* that was committed: nothing is held of it */
	Oid state_table;		 /* as of what memory has of its entities; InvalidOid: proxy, dropped */
	bool dropped;			 /* the type was dropped here, as of the same */
	bool reread;			 /* what is held of it has to be read anew */
	ShardShardCount **pages; /* of SHARD_RUN_PAGE shards each; NULL: none of them was met */
	int n_pages;
	int64 dead_room;			 /* dead letters that may come before they are counted again */
	int64 dead_room_bytes;		 /* the same */
	TimestampTz dead_looked;	 /* the turn in which they were counted */
	TimestampTz dead_full_until; /* there is no room before that */
	bool in_turn;
	slist_head touched; /* its entities in the turn */
	slist_node turn_link;
} ShardRun;

/* Shards whose counts are allocated together: a type may have many that this worker never meets. */
#define SHARD_RUN_PAGE 256

/* The counts of a shard; and NULL if nothing was counted. */
extern ShardShardCount *shard_run_count(ShardRun *run, int shard);
extern const ShardShardCount *shard_run_counted(const ShardRun *run, int shard);

/* Its type is gone, and has no entities in memory: nor has it counts. */
extern void shard_run_forget_counts(ShardRun *run);

/* The run of a type, made on first use; NULL for an unknown type id. */
extern ShardRun *shard_run_get(int32 type_id);

/* The same, but NULL if it was not used yet: outside transactions, too. */
extern ShardRun *shard_run_known(int32 type_id);

/* Calls visit for each run. */
extern void shard_run_each(void (*visit)(ShardRun *run, void *arg), void *arg);

/* Whether this process is the keeper, in which no code of anybody's runs: no type can (W5). */
extern bool shard_run_keeps(void);

/* Whether the type is here, with the keeper, only until a worker of its owner's has started, since there is a place for one. */
extern bool shard_run_awaits_worker(const ShardRun *run);

/* What bars the type's code from running at all, whatever the message; palloc'd, NULL: nothing. */
extern char *shard_run_problem(const ShardType *type, int *sqlstate);

/*
 * Looks whether the type can run, once per registry generation. Stores or clears the type's problem. Needs a snapshot; writes only
 * if the problem changed.
 */
extern void shard_run_refresh(ShardRun *run);
