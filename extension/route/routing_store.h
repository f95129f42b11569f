/*
 * route/routing_store.h
 *		What is durable of routing: tables shard.route, own, shard_input and parked.
 *
 * The exceptional path: SQL, within the worker's running turn. The caller has ended any stretch of user
 * code.
 */
#pragma once

#include "core/flow/route.h"
#include "log/log.h"

/* Reads the durable part of an entry; fields without a row stay 0. memory: where its set is to live; NULL: it is not read. */
extern void shard_routing_store_load(ShardRoute *route, MemoryContext memory);

/* Raises the entry's marks by the base (H7). memory: where marks live. */
extern void shard_routing_store_load_base(ShardRoute *route, MemoryContext memory);

extern void shard_routing_store_write_route(const ShardRoute *route);

/*
 * Writes an ownership row (state none: removes it) if it still is as it was before. False: another process
 * changed it, and nothing is written.
 */
extern bool shard_routing_store_write_own(int32 type_id, int32 shard, const ShardOwn *own,
										  const ShardOwn *before);

/* Writes marks as base rows: those of several shards are gathered, and written by shard_routing_store_flush_base. */
extern void shard_routing_store_write_base(const ShardRoute *route);
extern void shard_routing_store_flush_base(void);
extern void shard_routing_store_forget_base(void); /* after an abort */

/* The transaction that wrote the ownership row last; invalid: there is none. */
extern TransactionId shard_routing_store_own_writer(int32 type_id, int32 shard);

/*
 * Deletes the rows of a shard other than its states: held messages, places in an order, base marks; about limit rows at
 * most. True: all of it is gone.
 */
extern bool shard_routing_store_discard(int32 type_id, int32 shard, int64 limit);

/* A parked message, as it is stored; its strings live in the memory of the load. */
typedef struct ShardParked
{
	ShardItem item; /* body: row */
	ShardRow row;	/* seq: where it belongs in a stash */
	int64 rseq;		/* key */
	int64 arrival;
} ShardParked;

/* Stores a parked message. row: the item's body. */
extern void shard_routing_store_park(const ShardItem *item, const ShardRow *row);

/* The same for one that may be there, with its stamp, be it that a turn has taken it in (Q30). False: it is. */
extern bool shard_routing_store_park_again(const ShardItem *item, const ShardRow *row);

/* How far a walk over parked messages has come, by their keys; all 0: it begins. */
typedef struct ShardParkedPlace
{
	int32 type_id;
	int32 shard;
	int64 rseq;
	int64 arrival;
} ShardParkedPlace;

/* Where a parked message is. */
extern ShardParkedPlace shard_routing_store_place(const ShardItem *item, const ShardRow *row);

/*
 * The first parked messages of a shard behind a place, at most limit, and fewer if they are large, in the current memory
 * context; *count: how many. *last: there are no others.
 */
extern ShardParked *
shard_routing_store_parked(const ShardParkedPlace *after, int limit, int *count, bool *last);

/* Removes a parked message. */
extern void shard_routing_store_unpark(const ShardParked *parked);

/* The parked messages of a type that was dropped become dead letters; returns how many. */
extern int64 shard_routing_store_bury(int32 type_id);

/* Each shard that has an ownership row or parked messages, and how many. */
typedef void (*ShardRoutingVisit)(int32 type_id, int32 shard, int64 parked, void *arg);
extern void shard_routing_store_each(ShardRoutingVisit visit, void *arg);

/* The next rows, at most limit, in the order of their keys; returns how many there were. */
extern int
shard_routing_store_some(ShardParkedPlace *place, int limit, ShardRoutingVisit visit, void *arg);
