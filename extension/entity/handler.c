/*
 * entity/handler.c
 *		A type's handler, compiled to an expression.
 *
 * A call goes through ExecEvalExpr over two external parameters, planned by
 * GetCachedExpression, so that a simple SQL function is inlined and its
 * dependencies invalidate the expression. What cannot be inlined is called
 * through the same expression.
 *
 * Which function it is, the registry decides, by the name it had at
 * shard_start: DROP and CREATE of the same signature resumes the type.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "entity/handler.h"
#include "registry/security.h"

#include "base/compat.h"

/* A parameter of the expression. */
static Node *
make_param(int number, Oid type)
{
	Param *param = makeNode(Param);

	param->paramkind = PARAM_EXTERN;
	param->paramid = number;
	param->paramtype = type;
	param->paramtypmod = -1;
	param->paramcollid = get_typcollation(type);
	param->location = -1;
	return (Node *) param;
}

char *
shard_handler_missing(const ShardType *type)
{
	LOCAL_FCINFO(fcinfo, 1);

	/* it may have been dropped since the turn looked at it */
	if (type->handler_name[0] == '\0')
		return psprintf(
			"entity type \"%s\" has no handler at this node: it was dropped here, or is a "
			"proxy",
			type->name);
	if (!SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(type->state_type)))
		return psprintf("the type of the states was dropped, which handler %s had",
						type->handler_name);
	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = CStringGetTextDatum(type->handler_name);
	fcinfo->args[0].isnull = false;
	(void) to_regprocedure(fcinfo);
	if (fcinfo->isnull)
		return psprintf("handler %s does not exist", type->handler_name);
	return psprintf("handler %s was created again by a role without the rights of the type's owner",
					type->handler_name);
}

char *
shard_handler_problem(const ShardType *type, int *sqlstate)
{
	HeapTuple tuple;
	Form_pg_proc proc;
	char *problem = NULL;

	*sqlstate = ERRCODE_UNDEFINED_FUNCTION;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(type->handler));
	if (!HeapTupleIsValid(tuple))
		return shard_handler_missing(type);
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	*sqlstate = ERRCODE_INVALID_FUNCTION_DEFINITION;
	if (proc->proisstrict)
		problem = psprintf("handler %s is STRICT", type->handler_name);
	else if (proc->proretset || proc->prokind != PROKIND_FUNCTION)
		problem = psprintf("handler %s is not a plain function", type->handler_name);
	else if (proc->prorettype != type->state_type || proc->pronargs != 2 ||
			 proc->proargtypes.values[0] != type->state_type ||
			 proc->proargtypes.values[1] != (type->batch ? JSONBARRAYOID : JSONBOID))
		problem =
			psprintf("handler %s has another signature than at shard_start", type->handler_name);
	else if (shard_proc_aclcheck(type->handler, type->owner, ACL_EXECUTE) != ACLCHECK_OK)
	{
		*sqlstate = ERRCODE_INSUFFICIENT_PRIVILEGE;
		problem =
			psprintf("owner of the entity type may not execute handler %s", type->handler_name);
	}
	ReleaseSysCache(tuple);
	return problem;
}

/* Why a function that the type has for a setting cannot be called; name NULL: it has none. */
static char *
function_problem(const ShardType *type, const char *setting, const char *name, Oid function,
				 int *sqlstate)
{
	if (name == NULL)
		return NULL;
	if (!OidIsValid(function))
	{
		*sqlstate = ERRCODE_UNDEFINED_FUNCTION;
		return psprintf("function %s of %s does not exist", name, setting);
	}
	if (shard_proc_aclcheck(function, type->owner, ACL_EXECUTE) != ACLCHECK_OK)
	{
		*sqlstate = ERRCODE_INSUFFICIENT_PRIVILEGE;
		return psprintf("owner of the entity type may not execute function %s of %s", name,
						setting);
	}
	return NULL;
}

char *
shard_handler_home_problem(const ShardType *type, int *sqlstate)
{
	char *problem =
		function_problem(type, "ordered_by", type->ordered_by_name, type->ordered_by, sqlstate);

	if (problem == NULL)
		problem = function_problem(type, "decider", type->decider_name, type->decider, sqlstate);
	return problem;
}

/* Plans an expression and prepares it for execution in the current memory context. */
static ExprState *
prepare(Node *expr, ParamListInfo params, CachedExpression **cached)
{
	*cached = GetCachedExpression(expr);
	return ExecInitExprWithParams((Expr *) (*cached)->expr, params);
}

/*
 * Makes memory and parameters of these types for the expression to be compiled; returns the caller's memory context.
 * Planning computes constant expressions, which are code of the owner.
 */
static MemoryContext
begin(ShardHandler *handler, const ShardType *type, int count, const Oid *types)
{
	MemoryContext old;

	shard_security_require(type->owner);
	shard_handler_free(handler);
	handler->context =
		AllocSetContextCreate(TopMemoryContext, "shard handler", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(handler->context);
	handler->params = makeParamList(count);
	for (int i = 0; i < count; i++)
	{
		handler->params->params[i].ptype = types[i];
		handler->params->params[i].pflags = 0;
	}
	handler->econtext = CreateStandaloneExprContext();
	handler->econtext->ecxt_param_list_info = handler->params;
	return old;
}

void
shard_handler_compile(ShardHandler *handler, const ShardType *type)
{
	Oid message_type = type->batch ? JSONBARRAYOID : JSONBOID;
	Oid types[2] = {type->state_type, message_type};
	int sqlstate;
	char *problem = shard_handler_problem(type, &sqlstate);
	MemoryContext old;
	FuncExpr *call;

	/* the handler may have changed since the turn began */
	if (problem != NULL)
		ereport(ERROR, (errcode(sqlstate), errmsg_internal("%s", problem)));
	old = begin(handler, type, 2, types);

	if (type->state_type != JSONBOID)
	{
		call = makeFuncExpr(F_TO_JSONB, JSONBOID, list_make1(make_param(1, type->state_type)),
							InvalidOid, DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL);
		handler->to_jsonb = prepare((Node *) call, handler->params, &handler->cached_to_jsonb);
	}
	/* the last, because with it the handler counts as compiled, whatever fails before */
	call = makeFuncExpr(type->handler, type->state_type,
						list_make2(make_param(1, type->state_type), make_param(2, message_type)),
						get_typcollation(type->state_type), DEFAULT_COLLATION_OID,
						COERCE_EXPLICIT_CALL);
	handler->expr = prepare((Node *) call, handler->params, &handler->cached);
	MemoryContextSwitchTo(old);
}

void
shard_handler_compile_ordered_by(ShardHandler *handler, const ShardType *type)
{
	Oid types[1] = {JSONBOID};
	MemoryContext old = begin(handler, type, 1, types);
	FuncExpr *call = makeFuncExpr(type->ordered_by, INT8OID, list_make1(make_param(1, JSONBOID)),
								  InvalidOid, DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL);

	handler->expr = prepare((Node *) call, handler->params, &handler->cached);
	MemoryContextSwitchTo(old);
}

void
shard_handler_compile_decider(ShardHandler *handler, const ShardType *type)
{
	Oid types[3] = {TEXTOID, TEXTOID, INT4OID};
	MemoryContext old = begin(handler, type, 3, types);
	FuncExpr *call =
		makeFuncExpr(type->decider, TEXTOID,
					 list_make3(make_param(1, TEXTOID), make_param(2, TEXTOID),
								make_param(3, INT4OID)),
					 DEFAULT_COLLATION_OID, DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL);

	handler->expr = prepare((Node *) call, handler->params, &handler->cached);
	MemoryContextSwitchTo(old);
}

bool
shard_handler_valid(const ShardHandler *handler)
{
	return handler->context != NULL && handler->expr != NULL && handler->cached->is_valid &&
		   (handler->to_jsonb == NULL || handler->cached_to_jsonb->is_valid);
}

void
shard_handler_free(ShardHandler *handler)
{
	if (handler->context == NULL)
		return;
	if (handler->cached != NULL)
		FreeCachedExpression(handler->cached);
	if (handler->cached_to_jsonb != NULL)
		FreeCachedExpression(handler->cached_to_jsonb);
	if (handler->econtext != NULL)
		FreeExprContext(handler->econtext, false);
	MemoryContextDelete(handler->context);
	memset(handler, 0, sizeof(*handler));
}

Datum
shard_handler_call(ShardHandler *handler, Datum state, bool state_null, Datum message, bool *isnull)
{
	ResetExprContext(handler->econtext);
	handler->params->params[0].value = state;
	handler->params->params[0].isnull = state_null;
	handler->params->params[1].value = message;
	handler->params->params[1].isnull = false;
	return ExecEvalExprSwitchContext(handler->expr, handler->econtext, isnull);
}

bool
shard_handler_call_ordered_by(ShardHandler *handler, Datum message, int64 *number)
{
	bool isnull;

	ResetExprContext(handler->econtext);
	handler->params->params[0].value = message;
	handler->params->params[0].isnull = false;
	*number = DatumGetInt64(ExecEvalExprSwitchContext(handler->expr, handler->econtext, &isnull));
	return !isnull;
}

char *
shard_handler_call_decider(ShardHandler *handler, const char *sqlstate, const char *message,
						   int attempts)
{
	ParamExternData *params = handler->params->params;
	bool isnull;
	Datum answer;

	ResetExprContext(handler->econtext);
	params[0].value = CStringGetTextDatum(sqlstate);
	params[1].value = CStringGetTextDatum(message);
	params[2].value = Int32GetDatum(attempts);
	params[0].isnull = params[1].isnull = params[2].isnull = false;
	answer = ExecEvalExprSwitchContext(handler->expr, handler->econtext, &isnull);
	return isnull ? NULL : TextDatumGetCString(answer);
}

Datum
shard_handler_state_to_jsonb(ShardHandler *handler, Datum state)
{
	bool isnull;

	if (handler->to_jsonb == NULL)
		return state;
	handler->params->params[0].value = state;
	handler->params->params[0].isnull = false;
	return ExecEvalExprSwitchContext(handler->to_jsonb, handler->econtext, &isnull);
}
