/*
 * registry/control_store.h
 *		Durable records of the control plane: table shard.control (core/map/action.h).
 */
#pragma once

#include "core/map/action.h"
#include "core/flow/fact.h"

/* Hands out the records of each store that has some, oldest first; a value is valid during its call. Needs a snapshot. */
typedef void (*ShardControlStoreVisit)(ShardStore store, const ShardMapEntry *entries, int count,
									   void *arg);

extern void shard_control_store_load(ShardControlStoreVisit visit, void *arg);

/* Makes the writes, in their order. Needs a transaction. */
extern void shard_control_store_apply(const ShardWrite *writes, int count);

/* The records of a kind of map entry among those that were learned; values as above. */
extern void
shard_control_store_learned(ShardMapKind kind, void (*visit)(const ShardMapEntry *entry, void *arg),
							void *arg);

/*
 * Up to where the map was learned; what it says of a shard's home, into all fields of *learned except upto_n; and what
 * it says of a type, into all fields. The caller has connected to SPI, and has one snapshot for all that belongs
 * together.
 */
extern int64 shard_control_store_upto(void);
extern void shard_control_store_target(int32 type_id, ShardTargetLearned *learned);
extern void shard_control_store_home(int32 type_id, int32 shard, ShardFactLearned *learned);

/* The greatest number that was given to a node, as it was learned; 0: it is not known. As above. */
extern int32 shard_control_store_last_node(void);

/* A member's status as it was learned (ShardMemberStatus); SHARD_MEMBER_NONE: it is not known. As above. */
extern int32 shard_control_store_status(int32 node);
