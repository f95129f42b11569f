/*
 * sql/type/strategy.c
 *		Runs a type's own allocation functions for the control worker of this node.
 *
 * A peer procedure, since the control worker comes over libpq as a peer does; but it answers this node's own processes
 * only, which know a number that is in shared memory and nowhere else. The functions run as the type's owner, in a
 * security-restricted operation, read only, and for a limited time. What they raise is the answer. Nothing is written:
 * there is nothing to leave behind.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "base/attempt.h"
#include "registry/guest_timer.h"
#include "shared/board.h"
#include "registry/routine.h"
#include "registry/security.h"
#include "registry/settings.h"
#include "registry/statement.h"
#include "link/strategy_call.h"
#include "shared/visitor.h"
#include "base/argument.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_strategy_call);

/*
 * For all functions of one question, and how much longer they may catch that it is over: then the backend ends, before
 * the control worker gives it up (control_strategy.c) and asks another one. Where the server's own code looks at no
 * interrupts nothing ends the backend; other processes know that by its place as a visitor, and ask nothing of the
 * owner as long as it is there.
 */
#define TIMEOUT_MS 5000
#define OVERDUE_MS 2000

typedef struct Strategy
{
	ShardStrategyQuestion question;
	ShardType *type;
	char *settings; /* setting allocation_settings of the type */
	char *function; /* qualified and quoted, for SQL */
	ShardStrategyAnswer answer;
	StringInfoData out; /* the answer as it is told */
} Strategy;

/* ---- what is to be called --------------------------------------------------------------------- */

/*
 * What the stored signature means today.
 */
static void
find_function(Strategy *strategy, const char *name)
{
	Oid function =
		shard_routine_find_strategy(strategy->question.rebalance ? SHARD_STRATEGY_REBALANCE
																 : SHARD_STRATEGY_ALLOCATE,
									name, strategy->type->owner);

	if (!OidIsValid(function))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION),
						errmsg("function %s does not exist any more", name)));
	strategy->function =
		quote_qualified_identifier(get_namespace_name(get_func_namespace(function)),
								   get_func_name(function));
}

/*
 * The stored settings of a type that runs here; error if it does not.
 */
static void
read_type(Strategy *strategy)
{
	const ShardStatement look = {"SELECT settings FROM shard.type "
								 "WHERE type_id OPERATOR(pg_catalog.=) $1",
								 1,
								 {INT4OID}};
	ShardArguments arguments = {0};
	ShardSecurity security = {0};
	ShardSettings settings;
	const char *name;
	bool isnull;

	strategy->type = shard_registry_by_id(strategy->question.type_id);
	if (strategy->type == NULL || strategy->type->mode == SHARD_MODE_PROXY)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("the entity type does not run at the coordinator's node")));
	shard_security_begin_system(&security);
	shard_statement_add(&arguments, Int32GetDatum(strategy->question.type_id), false);
	shard_statement_once_read(&look, &arguments, 1);
	if (SPI_processed != 1)
		elog(ERROR, "could not read shard.type");
	shard_settings_from_jsonb(&settings, DatumGetJsonbPCopy(shard_statement_column(0, 1, &isnull)));
	shard_security_end(&security);
	strategy->settings = pstrdup(settings.value[SHARD_SETTING_ALLOCATION_SETTINGS]);
	name = shard_settings_strategy_function(&settings, strategy->question.rebalance);
	if (name != NULL)
		find_function(strategy, name);
}

/*
 * {"1": [7, 9], "2": []}
 */
static Datum
allocations_of(const ShardStrategyQuestion *question)
{
	StringInfoData out;

	initStringInfo(&out);
	appendStringInfoChar(&out, '{');
	for (int i = 0; i < question->n_regions; i++)
	{
		appendStringInfo(&out, "%s\"%d\": [", i > 0 ? ", " : "", question->regions[i].node);
		for (int k = 0; k < question->regions[i].n_shards; k++)
			appendStringInfo(&out, "%s%d", k > 0 ? ", " : "", question->regions[i].shards[k]);
		appendStringInfoChar(&out, ']');
	}
	appendStringInfoChar(&out, '}');
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(out.data));
}

static Datum
json_of(const char *text)
{
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(text));
}

static void
check_column(const Strategy *strategy)
{
	if (SPI_tuptable->tupdesc->natts < 1 || SPI_gettypeid(SPI_tuptable->tupdesc, 1) != INT4OID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("function %s does not return type %s", strategy->function, "integer")));
}

/*
 * ---- the calls ----
 *
 * They run by SPI alone: statement.h is for the extension's own SQL, and what these functions raise is the answer.
 */

/*
 * The chosen node has the shard from now on, for the next one.
 */
static void
note_home(ShardStrategyQuestion *question, int32 shard, int32 node)
{
	for (int i = 0; i < question->n_regions; i++)
	{
		ShardAllocationRegion *region = &question->regions[i];
		int32 *shards;

		if (region->node != node)
			continue;
		shards = palloc(sizeof(int32) * (region->n_shards + 1));
		memcpy(shards, region->shards, sizeof(int32) * region->n_shards);
		shards[region->n_shards] = shard;
		pfree(unconstify(int32 *, region->shards));
		region->shards = shards;
		region->n_shards++;
	}
}

/*
 * f(shard int, requester int, allocations jsonb, strategy text, settings jsonb, members jsonb) RETURNS int
 */
static void
ask_allocate(Strategy *strategy)
{
	ShardStrategyQuestion *question = &strategy->question;
	Oid types[6] = {INT4OID, INT4OID, JSONBOID, TEXTOID, JSONBOID, JSONBOID};
	char *query = psprintf("SELECT %s($1, $2, $3, $4, $5, $6)", strategy->function);
	MemoryContext step = AllocSetContextCreate(CurrentMemoryContext, "shard strategy allocations",
											   ALLOCSET_DEFAULT_SIZES);
	Datum values[6];

	values[3] = CStringGetTextDatum("function");
	values[4] = json_of(strategy->settings);
	values[5] = json_of(question->members);
	strategy->answer.numbers = palloc0(sizeof(int32) * Max(question->n_shards, 1));
	for (int i = 0; i < question->n_shards; i++)
	{
		const char *nulls = question->requesters[i] == 0 ? " n    " : "      ";
		int32 *node = &strategy->answer.numbers[strategy->answer.n++];
		bool isnull = true;
		MemoryContext old;

		values[0] = Int32GetDatum(question->shards[i]);
		values[1] = Int32GetDatum(question->requesters[i]);
		old = MemoryContextSwitchTo(step);
		values[2] = allocations_of(question);
		MemoryContextSwitchTo(old);
		if (SPI_execute_with_args(query, 6, types, values, nulls, true, 1) != SPI_OK_SELECT)
			elog(ERROR, "could not execute \"%s\"", query);
		check_column(strategy);
		if (SPI_processed == 1)
			*node = DatumGetInt32(
				SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
		if (isnull)
			*node = 0;
		SPI_freetuptable(SPI_tuptable);
		note_home(question, question->shards[i], *node);
		MemoryContextReset(step);
	}
}

/*
 * g(allocations jsonb, strategy text, settings jsonb, members jsonb, in_progress int[]) RETURNS SETOF int,
 * or a table whose first column is the shard
 */
static void
ask_rebalance(Strategy *strategy)
{
	ShardStrategyQuestion *question = &strategy->question;
	Oid types[5] = {JSONBOID, TEXTOID, JSONBOID, JSONBOID, INT4ARRAYOID};
	char *query = psprintf("SELECT * FROM %s($1, $2, $3, $4, $5)", strategy->function);
	Datum *moving = palloc(sizeof(Datum) * Max(question->n_shards, 1));
	Datum values[5];

	for (int i = 0; i < question->n_shards; i++)
		moving[i] = Int32GetDatum(question->shards[i]);
	values[0] = allocations_of(question);
	values[1] = CStringGetTextDatum("function");
	values[2] = json_of(strategy->settings);
	values[3] = json_of(question->members);
	values[4] = PointerGetDatum(
		construct_array(moving, question->n_shards, INT4OID, sizeof(int32), true, TYPALIGN_INT));
	/* as many as there can be */
	if (SPI_execute_with_args(query, 5, types, values, NULL, true,
							  strategy->type->number_of_shards) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", query);
	check_column(strategy);
	strategy->answer.numbers = palloc0(sizeof(int32) * Max(SPI_processed, 1));
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool isnull;
		Datum shard = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);

		if (!isnull)
			strategy->answer.numbers[strategy->answer.n++] = DatumGetInt32(shard);
	}
}

/*
 * As the type's owner. Without a function to rebalance nothing moves.
 */
static void
ask(Strategy *strategy)
{
	ShardSecurity security = {0};

	SPI_connect();
	read_type(strategy);
	if (strategy->function == NULL)
		return;
	shard_visitor_runs_for(strategy->type->owner, strategy->question.type_id);
	shard_security_begin(&security, strategy->type);
	if (strategy->question.rebalance)
		ask_rebalance(strategy);
	else
		ask_allocate(strategy);
	shard_security_end(&security);
}

static void
ask_read_only(void *strategy)
{
	XactReadOnly = true;
	ask(strategy);
	shard_strategy_put_answer(&((Strategy *) strategy)->out, &((Strategy *) strategy)->answer);
	SPI_finish();
}

static void
answer_error(Strategy *strategy, const char *message, int sqlstate)
{
	resetStringInfo(&strategy->out);
	shard_strategy_put_answer(&strategy->out,
							  &(ShardStrategyAnswer){.error = message, .sqlstate = sqlstate});
}

/*
 * The same in its time, and so that an error is an answer.
 */
static void
ask_safely(Strategy *strategy)
{
	TimestampTz begun = shard_guest_timer_begin_for(TIMEOUT_MS, OVERDUE_MS);
	ErrorData *error = shard_attempt(ask_read_only, strategy);
	bool late = shard_guest_timer_end(begun);

	shard_visitor_runs_for_nobody();
	if (error != NULL && error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
		ReThrowError(error);
	if (late && (error == NULL || error->sqlerrcode == ERRCODE_QUERY_CANCELED))
		answer_error(strategy,
					 psprintf("the allocation functions ran longer than %d s", TIMEOUT_MS / 1000),
					 ERRCODE_QUERY_CANCELED);
	else if (error != NULL)
		answer_error(strategy, error->message, error->sqlerrcode);
}

/*
 * The result of a procedure: its one INOUT argument.
 */
static Datum
result_of(FunctionCallInfo fcinfo, const StringInfoData *out)
{
	bytea *copy = palloc(VARHDRSZ + out->len);
	Datum value = PointerGetDatum(copy);
	bool isnull = false;
	TupleDesc desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	SET_VARSIZE(copy, VARHDRSZ + out->len);
	memcpy(VARDATA(copy), out->data, out->len);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), &value, &isnull));
}

/*
 * shard_peer.strategy(call bytea, INOUT answer bytea)
 */
Datum
shard_strategy_call(PG_FUNCTION_ARGS)
{
	Strategy strategy = {0};
	ShardReader reader;
	bytea *call;

	shard_shmem_require();
	shard_visitor_here();
	shard_argument_check(fcinfo, 0, "call cannot be null");
	call = PG_GETARG_BYTEA_PP(0);
	reader = (ShardReader){VARDATA_ANY(call), VARDATA_ANY(call) + VARSIZE_ANY_EXHDR(call), false};
	if (!shard_strategy_get_question(&reader, &strategy.question))
		ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION),
						errmsg("malformed call of this node itself")));
	if (shard_shmem_database() == NULL ||
		strategy.question.secret != shard_board_secret(shard_shmem_database()))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("only this node itself may ask its allocation functions"),
						errhint("Use shard_rebalance_plan() to see what they would do.")));

	initStringInfo(&strategy.out);
	ask_safely(&strategy);
	return result_of(fcinfo, &strategy.out);
}
