/*
 * core/base/shard_key.h
 *		A shard as the key of a hash table: its type and its number.
 *
 * For lib/simplehash.h: SH_KEY_TYPE is ShardShardKey, and the two macros are its hash and its equality.
 */
#pragma once

/* simplehash reports its own failures, in programs without a server by this */
#ifdef FRONTEND
#include "common/logging.h"
#endif

typedef struct ShardShardKey
{
	int32 type_id;
	int32 shard;
} ShardShardKey;

#define SHARD_SHARD_KEY_HASH(table, k) \
	((uint32) (k).type_id * 0x9E3779B1U ^ (uint32) (k).shard * 0x85EBCA6BU)
#define SHARD_SHARD_KEY_EQUAL(table, a, b) ((a).type_id == (b).type_id && (a).shard == (b).shard)
