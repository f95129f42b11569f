/*
 * entity/handler.h
 *		A type's handler, compiled to an expression.
 */
#pragma once

#include "executor/execdesc.h"
#include "nodes/params.h"
#include "utils/plancache.h"

#include "registry/registry.h"

typedef struct ShardHandler
{
	MemoryContext context; /* of what follows; NULL: not compiled */
	CachedExpression *cached;
	ExprState *expr;
	ExprContext *econtext; /* its per-tuple memory is reset by each call */
	ParamListInfo params;
	ExprState *to_jsonb; /* state as jsonb; NULL: it is jsonb */
	CachedExpression *cached_to_jsonb;
} ShardHandler;

/*
 * Why the type's handler cannot be called as it is now, as a palloc'd message
 * with its SQLSTATE; NULL if it can.
 */
extern char *shard_handler_problem(const ShardType *type, int *sqlstate);

/* Why the type has no handler, palloc'd. */
extern char *shard_handler_missing(const ShardType *type);

/* The same for the other functions of the type that run at its home: ordered_by and the decider, if it has them. */
extern char *shard_handler_home_problem(const ShardType *type, int *sqlstate);

/* Compiles the type's handler, in the owner's security context; the others compile its ordered_by, and its decider. */
extern void shard_handler_compile(ShardHandler *handler, const ShardType *type);
extern void shard_handler_compile_ordered_by(ShardHandler *handler, const ShardType *type);
extern void shard_handler_compile_decider(ShardHandler *handler, const ShardType *type);

/* Whether the handler is compiled, and nothing that its plan depends on has changed. */
extern bool shard_handler_valid(const ShardHandler *handler);

extern void shard_handler_free(ShardHandler *handler);

/*
 * Calls the handler. The result lives in memory that the next call resets. The caller has begun the security context.
 */
extern Datum shard_handler_call(ShardHandler *handler, Datum state, bool state_null, Datum message,
								bool *isnull);

/* Calls ordered_by, in the same way. False: it returned NULL. */
extern bool shard_handler_call_ordered_by(ShardHandler *handler, Datum message, int64 *number);

/* Calls the decider, likewise. Its answer is a copy in the current memory; NULL: it returned NULL. */
extern char *shard_handler_call_decider(ShardHandler *handler, const char *sqlstate,
										const char *message, int attempts);

/* The state as a jsonb datum, in memory that the next call resets. */
extern Datum shard_handler_state_to_jsonb(ShardHandler *handler, Datum state);
