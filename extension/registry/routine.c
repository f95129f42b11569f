/*
 * registry/routine.c
 *		The functions that a user gives an entity type: which may serve, what a name means.
 *
 * A type is bound to its handler by name and OID both: the name decides, so that a renamed or dropped handler is
 * noticed and one that is created again is taken, also in a restored database; the OID keeps another role that may
 * create functions in the same schema from slipping in one that would run as the type's owner.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#include "registry/routine.h"

#include "base/compat.h"

static const struct
{
	const char *setting;
	const char *form; /* for hints */
	Oid result;
	int n_arguments;
	Oid arguments[3];
} extractor_table[SHARD_EXTRACTORS] = {
	[SHARD_EXTRACTOR_ENTITY_ID] =
		{"entity_id_extractor", "f(jsonb) RETURNS text", TEXTOID, 1, {JSONBOID}},
	[SHARD_EXTRACTOR_MESSAGE] =
		{"message_extractor", "f(jsonb) RETURNS jsonb", JSONBOID, 1, {JSONBOID}},
	[SHARD_EXTRACTOR_SHARD_ID] =
		{"shard_id_extractor", "f(text) RETURNS int IMMUTABLE", INT4OID, 1, {TEXTOID}},
	[SHARD_EXTRACTOR_ORDERED_BY] = {"ordered_by", "f(jsonb) RETURNS int8", INT8OID, 1, {JSONBOID}},
	[SHARD_EXTRACTOR_DECIDER] = {"decider",
								 "f(sqlstate text, message text, attempts int) RETURNS text",
								 TEXTOID,
								 3,
								 {TEXTOID, TEXTOID, INT4OID}}};

#define HANDLER_HINT \
	"Write h(state T, message jsonb) RETURNS T, or for batches " \
	"h(state T, messages jsonb[]) RETURNS T."

/* The qualified signature of a function, palloc'd: schema.name(type,type). */
static char *
format_signature(HeapTuple tuple)
{
	Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(tuple);
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "%s(",
					 quote_qualified_identifier(get_namespace_name(proc->pronamespace),
												NameStr(proc->proname)));
	for (int i = 0; i < proc->pronargs; i++)
	{
		Oid type = proc->proargtypes.values[i];

		/* The server's own types read better without their schema. */
		appendStringInfo(&buf, "%s%s", i > 0 ? "," : "",
						 type < FirstUnpinnedObjectId ? format_type_be(type)
													  : format_type_be_qualified(type));
	}
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/* Points at the "(" of a signature that begins its argument types; NULL if there is none. */
static const char *
find_arguments(const char *text)
{
	bool in_quote = false;

	for (; *text != '\0'; text++)
	{
		if (*text == '"')
			in_quote = !in_quote;
		else if (*text == '(' && !in_quote)
			return text;
	}
	return NULL;
}

/*
 * The function that a user means by name or signature, in the present
 * search_path. what says which function it is, for errors.
 */
static Oid
look_up(const char *text, const char *what)
{
	LOCAL_FCINFO(fcinfo, 1);
	bool signature = find_arguments(text) != NULL;
	Datum result;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = CStringGetTextDatum(text);
	fcinfo->args[0].isnull = false;
	result = signature ? to_regprocedure(fcinfo) : to_regproc(fcinfo);
	if (!fcinfo->isnull)
		return DatumGetObjectId(result);

	if (!signature && FuncnameGetCandidates(shard_qualified_name(text), -1, NIL, false, false,
											false, true) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_AMBIGUOUS_FUNCTION), errmsg("%s \"%s\" is not unique", what, text),
				 errhint("Give its argument types: name(type, type).")));
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("%s \"%s\" does not exist", what, text),
			 errhint("Create the function first; give its schema if it is not in search_path.")));
}

/* Error unless the current user may execute the function. */
static void
check_execute(Oid function, const char *what, const char *name)
{
	if (shard_proc_aclcheck(function, GetUserId(), ACL_EXECUTE) == ACLCHECK_OK)
		return;
	ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("permission denied for %s %s", what, name),
					errhint("GRANT EXECUTE ON FUNCTION %s to the role.", name)));
}

/* Raises that a function cannot be a handler. */
static void
refuse(HeapTuple tuple, const char *detail, const char *hint)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
					errmsg("function %s cannot be a handler", format_signature(tuple)),
					errdetail("%s", detail), errhint("%s", hint)));
}

/* Refuses a function whose kind, arity or way of returning is not a handler's. */
static void
check_shape(HeapTuple tuple)
{
	Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(tuple);
	const Oid *argument = proc->proargtypes.values;

	if (proc->prokind != PROKIND_FUNCTION)
		refuse(tuple, "The function is not a plain function.", HANDLER_HINT);
	if (proc->pronargs != 2)
		refuse(tuple, psprintf("The function takes %d instead of 2 arguments.", proc->pronargs),
			   HANDLER_HINT);
	if (proc->proretset)
		refuse(tuple, "The function returns a set.", "Return the new state, one value.");
	if (proc->prorettype == VOIDOID)
		refuse(tuple, "The function returns void.",
			   "Return the new state, or null to forget the entity.");
	if (IsPolymorphicType(proc->prorettype) || IsPolymorphicType(argument[0]))
		refuse(tuple, "The function is polymorphic.", "Write out the type of the state.");
	if (argument[1] != JSONBOID && argument[1] != JSONBARRAYOID)
		refuse(tuple, psprintf("The second argument is of type %s.", format_type_be(argument[1])),
			   "Take the message as jsonb, or an entity's messages as jsonb[].");
	if (get_typtype(argument[0]) == TYPTYPE_PSEUDO)
		refuse(tuple,
			   psprintf("The first argument is of pseudo-type %s.", format_type_be(argument[0])),
			   "Use jsonb, or a composite type for typed columns.");
}

/* Refuses a function whose result or way of being called is not a handler's. */
static void
check_result(HeapTuple tuple)
{
	Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(tuple);
	Oid state_type = proc->proargtypes.values[0];

	if (proc->prorettype != state_type)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("function %s cannot be a handler", format_signature(tuple)),
						errdetail("The first argument is of type %s, the result of type %s.",
								  format_type_be(state_type), format_type_be(proc->prorettype)),
						errhint("Return the type of the first argument: the new state.")));
	if (proc->proisstrict)
		refuse(tuple, "The function is STRICT, so it would not see the first message of an entity.",
			   psprintf("ALTER FUNCTION %s CALLED ON NULL INPUT; a null state is a new entity's.",
						format_signature(tuple)));
	if (isAnyTempNamespace(proc->pronamespace))
		refuse(tuple, "The function is temporary, so workers cannot see it.",
			   "Create it in an ordinary schema.");
}

void
shard_routine_resolve_handler(const char *text, ShardRoutine *routine)
{
	Oid function = look_up(text, "handler function");
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc proc;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	check_shape(tuple);
	check_result(tuple);

	proc = (Form_pg_proc) GETSTRUCT(tuple);
	routine->function = function;
	routine->name = format_signature(tuple);
	routine->batch = proc->proargtypes.values[1] == JSONBARRAYOID;
	routine->state_type = proc->proargtypes.values[0];
	routine->composite = get_typtype(routine->state_type) == TYPTYPE_COMPOSITE;
	ReleaseSysCache(tuple);

	check_execute(function, "handler function", routine->name);
}

/* Whether a function has the argument and result of an extractor. */
static bool
is_extractor(ShardExtractor which, Form_pg_proc proc)
{
	return proc->prokind == PROKIND_FUNCTION && !proc->proretset &&
		   proc->pronargs == extractor_table[which].n_arguments &&
		   memcmp(proc->proargtypes.values, extractor_table[which].arguments,
				  proc->pronargs * sizeof(Oid)) == 0 &&
		   proc->prorettype == extractor_table[which].result;
}

Oid
shard_routine_resolve_extractor(ShardExtractor which, const char *text, char **name)
{
	const char *setting = extractor_table[which].setting;
	Oid function = look_up(text, setting);
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc proc;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	*name = format_signature(tuple);
	if (!is_extractor(which, proc))
		ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
						errmsg("function %s cannot be the %s", *name, setting),
						errhint("Write %s.", extractor_table[which].form)));
	if (which == SHARD_EXTRACTOR_SHARD_ID && proc->provolatile != PROVOLATILE_IMMUTABLE)
		ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
						errmsg("function %s cannot be the %s", *name, setting),
						errdetail("The function is not IMMUTABLE, and an entity never changes "
								  "its shard."),
						errhint("ALTER FUNCTION %s IMMUTABLE, if it is so.", *name)));
	ReleaseSysCache(tuple);

	check_execute(function, setting, *name);
	return function;
}

/*
 * The function of this qualified name and these argument types if it is the
 * bound one, or if running it as the role gives its owner no new rights;
 * InvalidOid else.
 */
static Oid
find_by_name(const char *name, const Oid *types, int ntypes, Oid bound, Oid role)
{
	const char *end = find_arguments(name);
	char *schema;
	char *function;
	Oid namespace;
	HeapTuple tuple;
	Oid result = InvalidOid;

	if (end == NULL)
		return InvalidOid;
	DeconstructQualifiedName(shard_qualified_name(pnstrdup(name, end - name)), &schema, &function);
	namespace = schema == NULL ? InvalidOid : get_namespace_oid(schema, true);
	if (!OidIsValid(namespace))
		return InvalidOid;

	tuple = SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum(function),
							PointerGetDatum(buildoidvector(types, ntypes)),
							ObjectIdGetDatum(namespace));
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(tuple);

		if (proc->oid == bound || has_privs_of_role(proc->proowner, role))
			result = proc->oid;
		ReleaseSysCache(tuple);
	}
	return result;
}

Oid
shard_routine_find_handler(const char *name, Oid bound, Oid owner, Oid state_type, bool batch)
{
	Oid types[2] = {state_type, batch ? JSONBARRAYOID : JSONBOID};

	return find_by_name(name, types, 2, bound, owner);
}

/* Whether the OID is that of a function which can be the extractor. */
static bool
can_extract(ShardExtractor which, Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = is_extractor(which, (Form_pg_proc) GETSTRUCT(tuple));
	ReleaseSysCache(tuple);
	return result;
}

Oid
shard_routine_find_extractor(ShardExtractor which, const char *name, Oid bound, Oid owner)
{
	Oid found = find_by_name(name, extractor_table[which].arguments,
							 extractor_table[which].n_arguments, bound, owner);

	if (OidIsValid(found) && can_extract(which, found))
		return found;
	return can_extract(which, bound) ? bound : InvalidOid;
}

/* ---- strategies ------------------------------------------------------------------------------- */

/*
 * Types of the arguments, and how many there are.
 */
static const struct
{
	const char *what; /* for errors */
	const char *form; /* for hints */
	int n_arguments;
	Oid arguments[6];
} strategy_table[] = {
	[SHARD_STRATEGY_ALLOCATE] = {"allocation function",
								 "f(shard int, requester int, allocations jsonb, strategy text, "
								 "settings jsonb, members jsonb) RETURNS int",
								 6,
								 {INT4OID, INT4OID, JSONBOID, TEXTOID, JSONBOID, JSONBOID}},
	[SHARD_STRATEGY_REBALANCE] = {"rebalance function",
								  "g(allocations jsonb, strategy text, settings jsonb, members "
								  "jsonb, in_progress int[]) RETURNS TABLE (shard int, from_node "
								  "int)",
								  5,
								  {JSONBOID, TEXTOID, JSONBOID, JSONBOID, INT4ARRAYOID}}};

/*
 * Rows that begin with two integers?
 */
static bool
returns_moves(HeapTuple tuple)
{
	Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(tuple);
	TupleDesc desc = NULL;

	if (proc->proretset)
		(void) get_func_result_type(proc->oid, NULL, &desc);
	return desc != NULL && desc->natts >= 2 && TupleDescAttr(desc, 0)->atttypid == INT4OID &&
		   TupleDescAttr(desc, 1)->atttypid == INT4OID;
}

static bool
is_strategy(ShardStrategyFunction which, HeapTuple tuple)
{
	Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(tuple);

	if (proc->prokind != PROKIND_FUNCTION || proc->pronargs != strategy_table[which].n_arguments ||
		memcmp(proc->proargtypes.values, strategy_table[which].arguments,
			   proc->pronargs * sizeof(Oid)) != 0)
		return false;
	if (which == SHARD_STRATEGY_ALLOCATE)
		return !proc->proretset && proc->prorettype == INT4OID;
	return returns_moves(tuple);
}

/* Refuses a function that another role could change into one that does more than the user may. */
static void
check_strategy_owner(HeapTuple tuple, const char *what, const char *name)
{
	Oid owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;

	if (has_privs_of_role(owner, GetUserId()))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("%s %s belongs to another role", what, name),
			 errdetail("The function would run as \"%s\", but \"%s\" could change it.",
					   GetUserNameFromId(GetUserId(), false), GetUserNameFromId(owner, true)),
			 errhint("Make a function of your own that calls it.")));
}

Oid
shard_routine_resolve_strategy(ShardStrategyFunction which, const char *text, char **name)
{
	const char *what = strategy_table[which].what;
	Oid function = look_up(text, what);
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	*name = format_signature(tuple);
	if (!is_strategy(which, tuple))
		ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
						errmsg("function %s cannot be the %s", *name, what),
						errhint("Write %s.", strategy_table[which].form)));
	if (isAnyTempNamespace(((Form_pg_proc) GETSTRUCT(tuple))->pronamespace))
		ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
						errmsg("function %s cannot be the %s", *name, what),
						errdetail("The function is temporary, so other sessions cannot see it."),
						errhint("Create it in an ordinary schema.")));
	check_execute(function, what, *name);
	check_strategy_owner(tuple, what, *name);
	ReleaseSysCache(tuple);
	return function;
}

Oid
shard_routine_find_strategy(ShardStrategyFunction which, const char *name, Oid owner)
{
	Oid function = find_by_name(name, strategy_table[which].arguments,
								strategy_table[which].n_arguments, InvalidOid, owner);
	HeapTuple tuple;

	if (!OidIsValid(function))
		return InvalidOid;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	if (!is_strategy(which, tuple))
		function = InvalidOid;
	ReleaseSysCache(tuple);
	return function;
}
