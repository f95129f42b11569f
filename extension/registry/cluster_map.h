/*
 * registry/cluster_map.h
 *		What was decided and learned (table shard.control), for functions and views: one key, or all.
 *
 * Read from the table, so the map is there when no worker runs; the table of a node that is cut off may be behind.
 */
#pragma once

#include "core/map/map.h"
#include "core/map/record.h"

typedef struct ShardClusterType
{
	int32 type_id;
	int64 n;				/* of the record */
	ShardTypeRecord record; /* its texts are palloc'd */
} ShardClusterType;

/* The newest there is, not that of the statement's snapshot. False: there is none. */
extern bool shard_cluster_map_type(const char *name, ShardClusterType *type);
extern void shard_cluster_map_get_type(const char *name, ShardClusterType *type); /* or 42704 */

/* The name of a type, palloc'd; NULL: there is none of that number. */
extern const char *shard_cluster_map_type_name(int32 type_id);
extern bool shard_cluster_map_home(int32 type_id, int32 shard, ShardHomeRecord *home);

/* The node that an operator wishes for a shard; 0: none. */
extern int32 shard_cluster_map_pin(int32 type_id, int32 shard);

/* Why a home is as it is (ShardHomeReason), in words. */
extern const char *shard_cluster_map_reason(int32 reason);

/* A copy of all settings, members, types, homes and pins; the caller destroys it. */
extern ShardMap *shard_cluster_map_read(void);
