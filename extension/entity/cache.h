/*
 * entity/cache.h
 *		Entities in a region worker's memory: copies of their state rows.
 *
 * Dropping one is always safe: the row is the truth. A copy is believed only
 * after its row was found unchanged in the turn's snapshot (state.c).
 */
#pragma once

#include "datatype/timestamp.h"
#include "lib/ilist.h"
#include "storage/itemptr.h"

#include "registry/registry.h"

/* What a state row says. */
typedef struct ShardCopy
{
	bool known;	 /* false: the fields below mean nothing */
	bool exists; /* there is a row */
	bool remembered;
	bool state_null; /* always true without a row */
	Datum state;
	ItemPointerData tid;
	TransactionId xmin;
	int64 version;
} ShardCopy;

/* Why and how long messages of an entity wait in the stash (D5). */
typedef struct ShardWait
{
	bool deferred;			/* there may be some: they go before its inbox rows */
	bool suspended;			/* for its type, not for itself */
	int attempts;			/* of the message in front; 0: it has not failed */
	TimestampTz not_before; /* the stash is not looked at earlier */
	int blocked_by;			/* pid that holds the row, 0: none */
	int64 waiting;			/* rows in the stash, and those that wait for their number */
} ShardWait;

/* How far an entity is in the numbers of its messages: its row of shard.ordered (D25). */
typedef struct ShardOrderedPosition
{
	bool known; /* the row was looked for; else nothing below means anything */
	bool begun; /* there is one; else the next four mean nothing */
	int64 began;
	int64 expected;
	int64 skipped;
	int64 late;
} ShardOrderedPosition;

/* What waits of it for lower numbers: its rows of shard.held, place ordered. */
typedef struct ShardOrderedQueue
{
	int64 waiting;	   /* messages; 0: the next two mean nothing */
	int64 lowest;	   /* their lowest number */
	TimestampTz since; /* the oldest waits since then, or has been known of */
} ShardOrderedQueue;

/* Two things, each known from a table of its own: who reads one leaves the other as it is. */
typedef struct ShardOrder
{
	ShardOrderedPosition position;
	ShardOrderedQueue queue;
} ShardOrder;

typedef struct ShardOrdering
{
	ShardOrder now;	  /* in this turn */
	ShardOrder saved; /* as of the last commit, which alone sets it */
	bool dirty;		  /* the position has to be written; if not begun, deleted */
	bool ended;		  /* the message that ran last has said that nothing more comes */
} ShardOrdering;

typedef struct ShardEntity
{
	struct ShardRun *run; /* its type, in this worker */
	int shard;
	dlist_node lru; /* in run->lru, least recently used first */
	TimestampTz last_message_at;
	Size bytes; /* accounted for */

	ShardCopy saved; /* as of the last commit; state in cache memory */
	ShardCopy now;	 /* in this turn; state in turn memory or saved's */
	bool in_turn;
	bool checked; /* now is the turn's truth */
	bool dirty;	  /* a handler has returned */
	bool let_go;  /* leaves memory after this turn */
	bool stale;	  /* saved was found to be wrong */
	int handled;  /* messages */
	slist_node turn_link;

	ShardWait wait;		  /* in this turn */
	ShardWait saved_wait; /* as of the last commit */
	uint32 recounted;	  /* the last recount that found something held of it */
	bool listed;
	dlist_node due; /* in shard_turn.due, while listed */

	ShardOrdering *ordering; /* NULL: its type never had ordered_by */

	/* batch handlers: this turn's messages */
	Datum *batch;
	int batch_count;
	int batch_capacity;

	int id_len;
	char id[FLEXIBLE_ARRAY_MEMBER];
} ShardEntity;

/* Creates the cache. */
extern void shard_cache_init(void);

/* Finds an entity; makes it if make. */
extern ShardEntity *
shard_cache_get(struct ShardRun *run, int shard, const char *id, int id_len, bool make);

/* Takes over the turn's copy of an entity: its state moves into cache memory. */
extern void shard_cache_keep(ShardEntity *entity);

/* Drops the saved copy, so that it is read anew. */
extern void shard_cache_forget(ShardEntity *entity);

/* Gives an entity its ordering. */
extern void shard_cache_make_ordering(ShardEntity *entity);

/* Removes an entity, of which nothing may wait. */
extern void shard_cache_remove(ShardEntity *entity);

/* A message came: it is the most recently used of its type. */
extern void shard_cache_touch(ShardEntity *entity, TimestampTz now);

/* Between turns: the least recently used ones go as long as memory is short, but for those of which messages wait. */
extern void shard_cache_evict(void);

/* Bytes that one turn may add, but for those of its last message. */
extern Size shard_cache_turn_limit(void);

/* Between turns: removes what was idle for too long. Returns when to look again, 0: never. */
extern TimestampTz shard_cache_passivate(TimestampTz now);

extern int64 shard_cache_entities(void);
extern int64 shard_cache_bytes(void);

/* Calls visit for each entity; it may not remove any. */
extern void shard_cache_each(void (*visit)(ShardEntity *entity, void *arg), void *arg);

/* How far a walk over all of them is; all 0: it begins. It begins anew when the cache has grown. */
typedef struct ShardCacheWalk
{
	uint64 size;
	uint64 left;
} ShardCacheWalk;

/* The same for those in so many places of the cache. False: all were visited. */
extern bool shard_cache_some(ShardCacheWalk *walk, int places,
							 void (*visit)(ShardEntity *entity, void *arg), void *arg);
