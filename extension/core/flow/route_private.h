/*
 * core/flow/route_private.h
 *		Routes by type and shard. Nothing leaves the map before it ends.
 *
 * The region worker looks for a route with each message. In front of the hash table, whose probing would be a good part
 * of what is done for a short message, are RECENT places: most find theirs there.
 */
#pragma once

#include "common/hashfn.h"
#ifdef FRONTEND
#include "common/logging.h" /* simplehash.h reports a table that is too large */
#endif

#include "core/flow/route.h"

typedef struct RouteKey
{
	int32 type_id;
	int32 shard;
} RouteKey;

typedef struct RouteEntry
{
	RouteKey key;
	char status;
	ShardRoute *route;
} RouteEntry;

#define SH_PREFIX routemap
#define SH_ELEMENT_TYPE RouteEntry
#define SH_KEY_TYPE RouteKey
#define SH_KEY key
#define SH_HASH_KEY(map, key) murmurhash32((uint32) (key).shard ^ murmurhash32((key).type_id))
#define SH_EQUAL(map, a, b) ((a).type_id == (b).type_id && (a).shard == (b).shard)
#define SH_SCOPE static inline
#ifdef FRONTEND
#define SH_RAW_ALLOCATOR pg_malloc0
#endif
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* A power of two: a type of the usual size has no more shards. */
#define RECENT 1024

typedef struct RouteMap
{
	routemap_hash *hash;
	ShardRoute *recent[RECENT];
} RouteMap;

static inline void
route_map_begin(RouteMap *map)
{
#ifdef FRONTEND
	map->hash = routemap_create(64, NULL);
#else
	map->hash = routemap_create(CurrentMemoryContext, 64, NULL);
#endif
}

/* NULL: there is none. */
static inline ShardRoute *
route_map_find(RouteMap *map, int32 type_id, int32 shard)
{
	ShardRoute **recent = &map->recent[((uint32) shard + (uint32) type_id * 31) % RECENT];
	RouteEntry *entry;

	if (*recent != NULL && (*recent)->shard == shard && (*recent)->type_id == type_id)
		return *recent;
	entry = routemap_lookup(map->hash, (RouteKey){type_id, shard});
	if (entry == NULL)
		return NULL;
	*recent = entry->route;
	return entry->route;
}

/*
 * For a route that is not there: an insert may make the table grow, so no iteration may be under
 * way.
 */
static inline void
route_map_add(RouteMap *map, ShardRoute *route)
{
	bool found;

	routemap_insert(map->hash, (RouteKey){route->type_id, route->shard}, &found)->route = route;
}

struct ShardRoutes
{
	int32 self;
	const ShardRouteHost *host;
	void *context;
	int chunk;
	bool held; /* nothing is given to streams */
	RouteMap map;
	dlist_head touched; /* changed in the running transaction */
	dlist_head drains;	/* have parked messages, or had them before an abort */
};

/* ---- route_input.c: what this node takes in of its own messages ---------------------------------- */

/*
 * Has what this node takes in for the shard a stamp (Q30)? Another home may lack the turn, and then gets the message from here.
 */
static inline bool
shard_route_stamps_inputs(const ShardRoutes *routes, const ShardRoute *route)
{
#ifdef SHARD_MUTANT_INPUTS_WITHOUT_STAMPS
	return false;
#endif
	return unlikely(route->set != NULL) && shard_route_role(route, routes->self) == SHARD_SET_HOME;
}

/* Does a message that goes to the route's home get a number, if it has none? */
static inline bool
shard_route_is_numbered(const ShardRoutes *routes, const ShardRoute *route)
{
	return route->node != routes->self || shard_route_stamps_inputs(routes, route);
}

/* The item gets the next number of this node and its lane. A stamp that it has it keeps (X2). */
extern void shard_route_give_stamp(ShardRoutes *routes, ShardItem *item);

/*
 * The home is here, and active; the route is touched: a message of this node, if it is to have a stamp; and the first parked
 * one, which is parked no more.
 */
extern void shard_route_take_input(ShardRoutes *routes, ShardRoute *route, const ShardItem *item);
extern void shard_route_take_parked(ShardRoutes *routes, ShardRoute *route, ShardItem *item);
