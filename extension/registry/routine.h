/*
 * registry/routine.h
 *		The functions that a user gives an entity type: which may serve, what a name means.
 */
#pragma once

#include "utils/jsonb.h"

#include "registry/registry.h"

/* ---- routine.c: The functions that a user gives an entity type: which may serve, what a name means ---- */

/* What a function is as a handler. */
typedef struct ShardRoutine
{
	Oid function;
	char *name; /* qualified, with argument types; palloc'd */
	bool batch; /* takes an array of messages */
	Oid state_type;
	bool composite; /* the state type's attributes are columns of the state table */
} ShardRoutine;

/* Functions that an entity type may have beside its handler. */
typedef enum ShardExtractor
{
	SHARD_EXTRACTOR_ENTITY_ID,	/* f(jsonb) returns text */
	SHARD_EXTRACTOR_MESSAGE,	/* f(jsonb) returns jsonb */
	SHARD_EXTRACTOR_SHARD_ID,	/* f(text) returns int, immutable */
	SHARD_EXTRACTOR_ORDERED_BY, /* f(jsonb) returns int8; runs at the home */
	SHARD_EXTRACTOR_DECIDER,	/* f(text, text, int) returns text; likewise */
	SHARD_EXTRACTORS
} ShardExtractor;

/*
 * The handler that a user names, "name" if unique or "name(argtypes)", in the
 * present search_path. Error if there is none, if it cannot be a handler, or if
 * the current user may not execute it.
 */
extern void shard_routine_resolve_handler(const char *text, ShardRoutine *routine);

/* The same for an extractor; *name is its qualified name. */
extern Oid shard_routine_resolve_extractor(ShardExtractor which, const char *text, char **name);

/* Functions of allocation strategy "function"; their arguments are those of the planners. */
typedef enum ShardStrategyFunction
{
	SHARD_STRATEGY_ALLOCATE, /* as shard_plan_allocation */
	SHARD_STRATEGY_REBALANCE /* as shard_plan_rebalance: rows of which the first two columns count */
} ShardStrategyFunction;

/*
 * The same for a function of a strategy. Its name alone is kept, so it must belong to a role that has the rights of the
 * current user, under which it will run.
 */
extern Oid
shard_routine_resolve_strategy(ShardStrategyFunction which, const char *text, char **name);

/* What a strategy function's qualified name means today, for a type with that owner; InvalidOid if there is none. */
extern Oid shard_routine_find_strategy(ShardStrategyFunction which, const char *name, Oid owner);

/*
 * What a stored name means today. bound is the function's OID when the name
 * was given. Another function of that name is taken only if its owner has the
 * rights of the type's owner anyway, as it will run with them. InvalidOid if
 * there is none.
 */
extern Oid
shard_routine_find_handler(const char *name, Oid bound, Oid owner, Oid state_type, bool batch);

/* The same for an extractor, which may also have been renamed. */
extern Oid
shard_routine_find_extractor(ShardExtractor which, const char *name, Oid bound, Oid owner);

/* ---- extractor.c: Extractors of an entity type: entity id and payload out of a message ---- */

/*
 * The entity id in a message, by the type's entity_id_extractor, and its
 * payload, by message_extractor (the message itself if there is none). They run
 * as the type's owner. Error if the type has no entity_id_extractor or one of
 * them answers NULL. Both results are palloc'd.
 */
extern text *shard_extractor_entity_id(ShardType *type, Jsonb *message);
extern Jsonb *shard_extractor_message(ShardType *type, Jsonb *message);
