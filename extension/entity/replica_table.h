/*
 * entity/replica_table.h
 *		shard_replica.<type>: states of shards whose home is another node, as a backup has them (Q10).
 *
 * A table like that of the type's states, of the same owner, with the same columns and key, and nothing of the users'. It is
 * written in the same way, through the same door, by the worker of the shard's lane alone.
 */
#pragma once

#include "core/flow/record.h"
#include "entity/state_copy.h"

/* Schema of the copies of states, as install/10-tables.sql makes it. */
#define SHARD_REPLICA_SCHEMA "shard_replica"

/* Of a type, by its name; InvalidOid: there is none. */
extern Oid shard_replica_table_of(const ShardType *type);

/*
 * Opens it for writing, as the type's owner, whose stretch has begun; waits for no lock. label: what errors call it. Error
 * 55P03 if another transaction has it locked, others if something is the matter with it. Ended by shard_state_close() of
 * copy->table.
 */
extern void shard_replica_table_open(ShardStateCopy *copy, const ShardType *type, Oid table);

/* What errors call the table of that type. */
extern char *shard_replica_table_label(const ShardType *type);

/*
 * Images that come next are of these columns, of the shard's home at node; error if these do not fit the table.
 */
extern void shard_replica_table_columns(ShardStateCopy *copy, const char *columns, int length,
										int32 node, int32 self);

/* The row of the image takes the place of what there is; or the row goes. Error 55P03 if another transaction holds it. */
extern void shard_replica_table_put(ShardStateCopy *copy, int32 shard, const ShardTurnImage *image);
