/*
 * sql/send/trial.c
 *		shard_try: a handler runs in the caller's transaction, and nothing is kept.
 *
 * The handler runs as in a region worker: as the type's owner, in a
 * security-restricted operation, with the type's search_path, on the state that
 * the table holds now. All of it happens in a subtransaction that is rolled
 * back, so that only the answer is left. What the handler tells is noted
 * instead of sent, with the subtransaction it was told in: an exception block
 * of the handler takes back what was told in it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "sql/send/api.h"
#include "registry/catalog.h"
#include "registry/cluster_map.h"
#include "registry/guest.h"
#include "registry/identity.h"
#include "entity/state.h"
#include "registry/security.h"
#include "shared/shmem.h"
#include "base/argument.h"
#include "sql/send/handler_guard.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_try);

/* A message that the handler told. */
typedef struct Told
{
	const char *type_name;
	char *entity;
	int entity_len;
	Jsonb *message; /* NULL: a reply of SQL NULL */
	bool is_reply;	/* to an ask of that entity */
	SubTransactionId subtransaction;
} Told;

typedef struct Trial
{
	ShardLocalType local; /* only what reading and calling need */
	ShardEntity *entity;
	ShardRow row;
	Jsonb *message;
	ShardExecution execution;
	ShardHandler handler;
	char *state; /* the new one as text; NULL: forgotten */
} Trial;

/* The end of a subtransaction within a trial: what was told in it goes, or is its parent's. */
static void
end_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	ShardExecution *execution = shard_execution_current();
	ListCell *cell;

	if (execution == NULL || !execution->trial ||
		(event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB))
		return;
	foreach (cell, execution->told)
	{
		Told *told = lfirst(cell);

		if (told->subtransaction != mine)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			told->subtransaction = parent;
		else
			execution->told = foreach_delete_current(execution->told, cell);
	}
}

/* Notes what is sent to an entity; payload without header, NULL: SQL NULL. */
static Told *
note(ShardExecution *execution, const ShardType *type, const char *entity, int entity_len,
	 const char *payload, int payload_len)
{
	static bool registered = false;
	MemoryContext old;
	Told *told;

	if (!registered)
		RegisterSubXactCallback(end_subtransaction, NULL);
	registered = true;
	old = MemoryContextSwitchTo(execution->memory);
	told = palloc0(sizeof(Told));
	told->type_name = pstrdup(type->name);
	told->entity = pnstrdup(entity, entity_len);
	told->entity_len = entity_len;
	if (payload != NULL)
	{
		told->message = palloc(payload_len + VARHDRSZ);
		SET_VARSIZE(told->message, payload_len + VARHDRSZ);
		memcpy(VARDATA(told->message), payload, payload_len);
	}
	told->subtransaction = GetCurrentSubTransactionId();
	execution->told = lappend(execution->told, told);
	MemoryContextSwitchTo(old);
	return told;
}

void
shard_trial_tell(ShardExecution *execution, const ShardType *type, const ShardRow *row)
{
	(void) note(execution, type, row->entity, row->entity_len, row->payload, row->payload_len);
}

void
shard_trial_reply(ShardExecution *execution, const ShardType *type, const char *entity,
				  int entity_len, const Jsonb *message)
{
	note(execution, type, entity, entity_len, message == NULL ? NULL : VARDATA(message),
		 message == NULL ? 0 : VARSIZE(message) - VARHDRSZ)
		->is_reply = true;
}

/* Adds "key": "text" to the object that is being built. */
static void
push_text(JsonbParseState **state, const char *key, const char *text, int len)
{
	JsonbValue value = {.type = jbvString};

	value.val.string.val = unconstify(char *, key);
	value.val.string.len = strlen(key);
	pushJsonbValue(state, WJB_KEY, &value);
	value.val.string.val = unconstify(char *, text);
	value.val.string.len = len;
	pushJsonbValue(state, WJB_VALUE, &value);
}

/* What was told, in order: [{"type": …, "entity": …, "message": …}, …]; of a reply "reply" instead of "message". */
static Jsonb *
told_as_jsonb(List *list)
{
	JsonbParseState *state = NULL;
	JsonbValue value;
	ListCell *cell;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	foreach (cell, list)
	{
		Told *told = lfirst(cell);

		pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
		push_text(&state, "type", told->type_name, strlen(told->type_name));
		push_text(&state, "entity", told->entity, told->entity_len);
		value.type = jbvString;
		value.val.string.val = told->is_reply ? "reply" : "message";
		value.val.string.len = strlen(value.val.string.val);
		pushJsonbValue(&state, WJB_KEY, &value);
		value.type = jbvNull;
		if (told->message != NULL)
		{
			value.type = jbvBinary;
			value.val.binary.data = &told->message->root;
			value.val.binary.len = VARSIZE(told->message) - VARHDRSZ;
		}
		pushJsonbValue(&state, WJB_VALUE, &value);
		pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

/* The entity with its present state. Waits for a lock on the table, as any query does. */
static void
load_state(Trial *trial)
{
	ShardStateTable table = {0};
	ShardType *type = trial->local.type;

	LockRelationOid(type->state_table, RowExclusiveLock);
	if (shard_state_hold(&trial->local.parts, type) == SHARD_STATE_BUSY)
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("the state type of entity type \"%s\" is being altered", type->name),
						errhint("Try again when that transaction has ended.")));
	if (!shard_state_open(&table, type))
		elog(ERROR, "could not open state table of entity type \"%s\"", type->name);
	shard_state_read(&table, trial->entity, &trial->entity->now);
	shard_state_close(&table);
}

/* Runs the handler on the entity. */
static void
run_handler(Trial *trial)
{
	ShardHandler *handler = &trial->handler;
	const ShardType *type = trial->local.type;
	const ShardCopy *now = &trial->entity->now;
	Datum message = JsonbPGetDatum(trial->message);
	Datum state;
	bool isnull;
	Oid output;
	bool is_varlena;

	if (type->batch)
		message = PointerGetDatum(construct_array(&message, 1, JSONBOID, -1, false, TYPALIGN_INT));
	shard_handler_compile(handler, type);
	shard_execution_set_current(&trial->execution);
	state = shard_handler_call(handler, now->state, now->state_null, message, &isnull);
	shard_execution_set_current(NULL);
	if (isnull)
		return;
	if (trial->local.length == -1)
		state = PointerGetDatum(PG_DETOAST_DATUM_COPY(state));
	shard_state_check_result(&trial->local.parts, state);
	getTypeOutputInfo(type->state_type, &output, &is_varlena);
	trial->state = OidOutputFunctionCall(output, state);
}

/* All that runs as the type's owner, a guest here. */
static void
run_as_guest(void *argument)
{
	Trial *trial = argument;

	PushActiveSnapshot(GetTransactionSnapshot());
	load_state(trial);
	run_handler(trial);
	PopActiveSnapshot();
}

/* The trial in a subtransaction, which is rolled back; the handler's error is raised again. */
static void
run_trial(Trial *trial)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	PG_TRY();
	{
		shard_guest_run(trial->local.type, SHARD_GUEST_TRIES, run_as_guest, trial);
	}
	PG_CATCH();
	{
		shard_execution_set_current(NULL);
		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
	shard_handler_free(&trial->handler);
	shard_state_forget_parts(&trial->local.parts);
	if (error != NULL)
		ReThrowError(error);
}

/* Errors where no handler can be tried. */
static void
check_place(void)
{
	shard_handler_guard_check("try a handler", NULL, "Call the function itself.");
	PreventCommandDuringRecovery("shard_try()");
	PreventCommandIfParallelMode("shard_try()");
}

/* Error 55000: the states of the type's entities are at other members. */
static void
report_not_hosted(const ShardType *type)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("entity type \"%s\" is not hosted on this node", type->name),
					errdetail("States of its entities are at other members."),
					errhint("Call shard_try() at a member that hosts it.")));
}

/* The type to be tried, with the right to send checked. A proxy may have no handler. */
static ShardType *
open_type(const char *name)
{
	ShardType *type;
	char *problem;
	int sqlstate;

	shard_shmem_require();
	check_place();
	(void) shard_catalog_lock(false);
	type = shard_registry_get(name);
	shard_security_check_send(type);
	if (type->mode == SHARD_MODE_PROXY &&
		(type->handler_name == NULL || type->handler_name[0] == '\0'))
		report_not_hosted(type);
	problem = shard_security_problem(type, &sqlstate);
	if (problem == NULL)
		problem = shard_handler_problem(type, &sqlstate);
	if (problem != NULL)
		ereport(ERROR, (errcode(sqlstate),
						errmsg("entity type \"%s\" cannot run: %s", type->name, problem),
						errhint("Mend the function; shard_alter() names another handler.")));
	return type;
}

/*
 * Errors if the entity lives at another node: its state is there, and here it would seem to have none. A
 * shard without a home has no state anywhere.
 */
static void
check_home(const ShardType *type, int32 shard)
{
	ShardHomeRecord home;
	bool known = shard_cluster_map_home(type->type_id, shard, &home);

	if (!known ? type->mode != SHARD_MODE_PROXY
			   : shard_record_home_node(&home) == shard_identity_name().node)
		return;
	if (!known)
		report_not_hosted(type);
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("the entity lives at node %d", shard_record_home_node(&home)),
					errdetail("A handler is tried on the state of the entity, and that of shard %d "
							  "of entity type \"%s\" is there.",
							  shard, type->name),
					errhint("Call shard_try() at that node, see shard_members.")));
}

/* The entity that a trial is about, and its message, which has the id that no message has. */
static void
set_entity(Trial *trial, ShardType *type, const char *id, int len)
{
	ShardEntity *entity = palloc0(offsetof(ShardEntity, id) + len + 1);

	trial->local.type = type;
	get_typlenbyval(type->state_type, &trial->local.length, &trial->local.by_value);
	entity->local = &trial->local;
	entity->shard = shard_registry_shard_id(type, id, len);
	entity->id_len = len;
	memcpy(entity->id, id, len);
	trial->entity = entity;
	trial->row.type_id = type->type_id;
	trial->row.shard = entity->shard;
	trial->row.kind = SHARD_KIND_TELL;
	trial->row.entity = entity->id;
	trial->row.entity_len = len;
	trial->row.mid_node = SHARD_FIRST_NODE;
	trial->row.mid_seq = 0;
	trial->execution.entity = entity;
	trial->execution.message = &trial->row;
	trial->execution.batch = type->batch;
	trial->execution.trial = true;
	trial->execution.memory = CurrentMemoryContext;
}

/*
 * The answer: state, reply, told. To a user that is no member of the type's owner it tells no more than shard_ask
 * would: the reply, or else the state.
 */
static Datum
form_result(FunctionCallInfo fcinfo, const Trial *trial)
{
	const ShardExecution *execution = &trial->execution;
	bool trusted = shard_security_is_owner(trial->local.type);
	TupleDesc desc;
	Datum values[3] = {0};
	bool nulls[3] = {true, true, true};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (trial->state != NULL && (trusted || (!execution->replied && execution->token == NULL)))
	{
		values[0] = CStringGetTextDatum(trial->state);
		nulls[0] = false;
	}
	if (execution->reply != NULL)
	{
		values[1] = PointerGetDatum(execution->reply);
		nulls[1] = false;
	}
	if (trusted)
	{
		values[2] = JsonbPGetDatum(told_as_jsonb(execution->told));
		nulls[2] = false;
	}
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

/*
 * shard_try(type_name text, entity_id text, message jsonb,
 *		OUT state text, OUT reply jsonb, OUT told jsonb)
 */
Datum
shard_try(PG_FUNCTION_ARGS)
{
	Trial trial = {0};
	ShardType *type;
	text *entity;

	shard_argument_check(fcinfo, 0, "entity type must not be null");
	shard_argument_check(fcinfo, 1, "entity id must not be null");
	shard_argument_check(fcinfo, 2, "message must not be null");
	type = open_type(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	entity = PG_GETARG_TEXT_PP(1);
	trial.message = PG_GETARG_JSONB_P(2);
	shard_api_check_entity(VARSIZE_ANY_EXHDR(entity));
	shard_api_check_size(type, VARSIZE(trial.message) - VARHDRSZ);
	set_entity(&trial, type, VARDATA_ANY(entity), VARSIZE_ANY_EXHDR(entity));
	check_home(type, trial.entity->shard);
	run_trial(&trial);
	return form_result(fcinfo, &trial);
}
