/*
 * route/routing_parked.h
 *		Table shard.parked: messages that wait for a home.
 *
 * Within the worker's running turn, outside of any subtransaction. What the turn adds and removes is gathered in memory; it is
 * in the table at the latest after shard_routing_parked_write.
 */
#pragma once

#include "core/flow/route.h"
#include "log/log.h"
#include "route/routing_store.h"

/* A parked message, as it is stored; its strings live in the memory of the load. */
typedef struct ShardParked
{
	ShardItem item; /* body: row */
	ShardRow row;	/* seq: where it belongs in a stash */
	int64 rseq;		/* key */
	int64 arrival;
} ShardParked;

/* How far a walk over parked messages has come, by their keys; all 0: it begins. */
typedef struct ShardParkedPlace
{
	int32 type_id;
	int32 shard;
	int64 rseq;
	int64 arrival;
} ShardParkedPlace;

/* Where a parked message is. */
extern ShardParkedPlace shard_routing_parked_place(const ShardItem *item, const ShardRow *row);

/* Parks a message. row: the item's body, whose memory may go at once. */
extern void shard_routing_parked_add(const ShardItem *item, const ShardRow *row);

/*
 * Removes a parked message of the shard: the first one behind those that were removed before, all of which were read from the
 * table since anything was added to the shard.
 */
extern void shard_routing_parked_remove(ShardRoute *route, const ShardParked *parked);

/* Whether messages were added that are not in the table yet. */
extern bool shard_routing_parked_has_added(void);

/* Brings the table up to date. */
extern void shard_routing_parked_write(void);

/* The turn was aborted: nothing was added or removed. */
extern void shard_routing_parked_forget(void);

/*
 * Reads the first parked messages of a shard behind a place from the table, at most limit, and fewer if they are large, in
 * the current memory context; *count: how many. *last: there are no others.
 */
extern ShardParked *
shard_routing_parked_read(const ShardParkedPlace *after, int limit, int *count, bool *last);

/* The parked messages of a type that was dropped become dead letters; returns how many. */
extern int64 shard_routing_parked_bury(int32 type_id);

/* The next rows of the table, at most limit, in the order of their keys; returns how many there were. */
extern int
shard_routing_parked_some(ShardParkedPlace *place, int limit, ShardRoutingVisit visit, void *arg);
