/*
 * core/base/shard_hash.h
 *		A hash table of shards by lib/simplehash.h; no include guard, as each inclusion makes one.
 *
 * Before: SH_PREFIX and SH_ELEMENT_TYPE, a struct whose member "key" is a ShardShardKey. Memory is of the context that is
 * current when the table is made, and when it grows.
 */
#include "core/base/shard_key.h"

#define SH_KEY_TYPE ShardShardKey
#define SH_KEY key
#define SH_HASH_KEY SHARD_SHARD_KEY_HASH
#define SH_EQUAL SHARD_SHARD_KEY_EQUAL
#define SH_SCOPE static inline
#define SH_RAW_ALLOCATOR palloc0
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"
