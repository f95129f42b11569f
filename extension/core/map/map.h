/*
 * core/map/map.h
 *		The replicated map as one node holds it: keys, values, versions (R4, R6, R8).
 *
 * A map is at a point (b, n): the batch n of ballot b was its last. Each entry carries the n of the
 * batch that wrote it; a deleted key stays as a tombstone until it is purged. Voters hold such a
 * map (voter.h), and proposers know which points are decided (proposer.h).
 */
#pragma once

#include "core/base/arena.h"

typedef enum ShardMapKind
{
	SHARD_MAP_TERM = 1, /* the ballots that wrote the map, newest last */
	SHARD_MAP_VOTERS,	/* nodes that vote, and that will (R9) */
	SHARD_MAP_COUNTERS, /* greatest ids that were given; purge_n (R8) */
	SHARD_MAP_SETTINGS, /* cluster-wide settings: lease time (L3), minimum of members */
	SHARD_MAP_FORMED,	/* a: number of the role; written once (C4) */
	SHARD_MAP_MEMBER,	/* a: node id */
	SHARD_MAP_TYPE,		/* a: type id */
	SHARD_MAP_HOME,		/* a: type id, b: shard */
	SHARD_MAP_PIN		/* a: type id, b: shard; the external strategy's wish */
} ShardMapKind;

typedef struct ShardMapKey
{
	int32 kind;
	int32 a;
	int32 b;
} ShardMapKey;

typedef struct ShardMapPoint
{
	int64 b; /* ballot */
	int64 n; /* batch, counted over all ballots */
} ShardMapPoint;

typedef struct ShardMapEntry
{
	ShardMapKey key;
	int64 n; /* batch that wrote it; in a proposal: the n the key must still have (0: absent) */
	bool deleted;
	uint32 length; /* of value */
	const char *value;
} ShardMapEntry;

typedef struct ShardMap ShardMap;

/* An empty map, in the current memory context; the caller owns it. */
extern ShardMap *shard_map_create(void);
extern void shard_map_destroy(ShardMap *map);

/* Back to the empty map at point (0, 0). */
extern void shard_map_clear(ShardMap *map);

extern ShardMapPoint shard_map_point(const ShardMap *map);
extern void shard_map_set_point(ShardMap *map, ShardMapPoint point);

/* < 0, 0, > 0: lexicographic, ballot first. */
extern int shard_map_compare(ShardMapPoint a, ShardMapPoint b);

/*
 * The entry of a key, tombstones included; NULL if there is none. It belongs to the map and is valid
 * until that key changes. shard_map_value: NULL for tombstones, too.
 */
extern const ShardMapEntry *shard_map_find(const ShardMap *map, ShardMapKey key);
extern const ShardMapEntry *shard_map_value(const ShardMap *map, ShardMapKey key);

/*
 * Store a copy of an entry with the n that it carries, in the place of the key's former entry. Does
 * not move the point.
 */
extern void shard_map_put(ShardMap *map, const ShardMapEntry *entry);

/*
 * Make room for entries that are put, or learned, right afterwards, each of them: at once for all, where one after the
 * other would shift those behind it. Until then a key that is new is a tombstone, older than any entry.
 */
extern void shard_map_expect(ShardMap *map, const ShardMapEntry *entries, int count);

/* Number of slots that were shifted since the map was made: what insertions have cost. */
extern int64 shard_map_shifted(const ShardMap *map);

/* Put an entry, unless the map's entry of that key is as new or newer. True: the map has changed. */
extern bool shard_map_learn(ShardMap *map, const ShardMapEntry *entry);

/*
 * Entries newer than n, tombstones included, oldest first (then by key), in the arena with their
 * values. Costs what it returns, not the size of the map. *count gets their number.
 */
extern ShardMapEntry *shard_map_since(const ShardMap *map, int64 n, ShardArena *arena, int *count);

/*
 * All live entries of a kind in the order of their keys, in the arena; values point into the map.
 */
extern ShardMapEntry *
shard_map_list(const ShardMap *map, ShardMapKind kind, ShardArena *arena, int *count);

/*
 * The live entries of one kind and one a, such as the homes of a type, in the order of their keys. Costs what there are of
 * them, tombstones included, not the size of the map. Valid until the map changes.
 */
typedef struct ShardMapRange
{
	const ShardMap *map;
	int next; /* place of the next entry, */
	int end;  /* and behind the last one */
} ShardMapRange;

extern ShardMapRange shard_map_range(const ShardMap *map, ShardMapKind kind, int32 a);
extern const ShardMapEntry *shard_map_range_next(ShardMapRange *range);

/*
 * Forget tombstones with n up to the given one (R8); their keys, for a host that stores the map in
 * rows.
 */
extern void shard_map_purge(ShardMap *map, int64 n);
extern ShardMapKey *
shard_map_tombstones(const ShardMap *map, int64 n, ShardArena *arena, int *count);

/* The n of the oldest tombstone; 0: there is none. */
extern int64 shard_map_oldest_tombstone(const ShardMap *map);

/* Number of entries, tombstones included. */
extern int shard_map_count(const ShardMap *map);

extern int shard_map_key_compare(ShardMapKey a, ShardMapKey b);
