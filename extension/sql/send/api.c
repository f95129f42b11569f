/*
 * sql/send/api.c
 *		Sending: shard_tell and its relatives.
 *
 * A tell checks rights and limits, forms a row and leaves it to log.c. Limits
 * act here and nowhere else (doc/protocol.md X7): a message that was accepted
 * always finds room.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "sql/send/api.h"
#include "log/buffer.h"
#include "registry/catalog.h"
#include "entity/execution.h"
#include "entity/outputs.h"
#include "entity/stuck.h"
#include "registry/routine.h"
#include "base/guc.h"
#include "log/log.h"
#include "registry/identity.h"
#include "registry/registry.h"
#include "process/rotation.h"
#include "entity/entity.h"
#include "registry/security.h"
#include "log/session.h"
#include "shared/shmem.h"
#include "base/argument.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_tell);
PG_FUNCTION_INFO_V1(shard_tell_extracted);
PG_FUNCTION_INFO_V1(shard_tell_many);
PG_FUNCTION_INFO_V1(shard_start_entity);
PG_FUNCTION_INFO_V1(shard_passivate_entity);
PG_FUNCTION_INFO_V1(shard_segment_guard);

void
shard_api_init(void)
{
	shard_session_init();
}

/* A text as a string; short names need no allocation. */
static const char *
name_of(text *name, char buffer[NAMEDATALEN])
{
	int len = VARSIZE_ANY_EXHDR(name);

	if (len >= NAMEDATALEN)
		return text_to_cstring(name);
	memcpy(buffer, VARDATA_ANY(name), len);
	buffer[len] = '\0';
	return buffer;
}

/*
 * Errors unless this session may send. Takes the extension lock, once per transaction, so that DROP EXTENSION waits for
 * the sender.
 */
static void
open_node(const char *function)
{
	shard_shmem_require();
	PreventCommandDuringRecovery(function);
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	(void) shard_catalog_lock(false);
	shard_identity_check_open();
}

/* The type to send to, with the sender's right checked. */
static ShardType *
open_type(const char *name)
{
	ShardType *type;

	open_node("shard_tell()");
	type = shard_registry_get(name);
	shard_security_check_send(type);
	return type;
}

ShardType *
shard_api_open(const char *type_name, int message_len)
{
	ShardType *type = open_type(type_name);

	shard_api_check_size(type, message_len);
	return type;
}

ShardType *
shard_api_open_number(int32 type_id)
{
	ShardType *type;

	open_node("shard_reply()");
	shard_registry_catch_up();
	type = shard_registry_by_id(type_id);
	if (type == NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("the entity type of the reply token is not known at this node"),
			 errdetail("The token is for an entity of type number %d.", type_id),
			 errhint(
				 "Where the type is not hosted, shard_start_proxy() makes it known. A type that "
				 "was dropped or resharded has no tokens any more.")));
	shard_security_check_send(type);
	return type;
}

void
shard_api_check_entity(int len)
{
	if (len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("entity id must not be empty")));
	if (len > SHARD_MAX_ENTITY_ID)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("entity id is too long"),
				 errdetail("It has %d bytes, at most %d are possible.", len, SHARD_MAX_ENTITY_ID)));
}

void
shard_api_check_size(const ShardType *type, int payload_len)
{
	if (payload_len > type->max_message_size)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("message to entity type \"%s\" is too large", type->name),
						errdetail("It has %d bytes, max_message_size is " INT64_FORMAT ".",
								  payload_len, type->max_message_size),
						errhint("Raise it with shard_alter().")));
}

/*
 * The inbox has no room. The caretaker, the worker that empties it, is woken: it may be idle, and the sender tries
 * again.
 */
static void
refuse(ShardDatabase *db)
{
	shard_shmem_wake_worker(db, shard_shmem_caretaker(db));
	ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED), errmsg("inbox is full"),
					errdetail("The inbox has " UINT64_FORMAT " MB, shard.inbox_max_size is %d "
							  "MB.",
							  pg_atomic_read_u64(&db->log.bytes) / (1024 * 1024),
							  shard_inbox_max_size / 1024),
					errhint("See shard_stat_inbox for what keeps it, or raise "
							"shard.inbox_max_size.")));
}

/* Errors when a limit is reached that holds for all: nothing is dropped, and nothing more accepted. */
void
shard_api_check_room(const ShardType *type, int payload_len)
{
	ShardDatabase *db = shard_shmem_database_or_make(MyDatabaseId);
	uint64 limit = (uint64) shard_inbox_max_size * 1024;

	shard_api_check_size(type, payload_len);
	if (limit > 0 && pg_atomic_read_u64(&db->log.bytes) + shard_log_pending_bytes() > limit)
		refuse(db);
}

/*
 * Errors when too many messages wait, and this one would wait, too. That may pass, and a handler tries it again until it
 * does; for a reply to another owner's type, which chose to be replied to and may be stopped for good, so often as errors that
 * may pass are.
 */
static void
check_buffer(ShardType *type, int32 shard, const char *entity, int entity_len, bool is_reply)
{
	int64 held = shard_buffer_enter(type);
	const ShardExecution *execution = shard_execution_current();
	bool has_end = is_reply && execution != NULL && !execution->trial &&
				   execution->entity->local->type->owner != type->owner;

	if (held < type->buffer_size || !shard_buffer_takes(type, shard, entity, entity_len))
		return;
	ereport(ERROR,
			(errcode(has_end ? ERRCODE_TRANSACTION_ROLLBACK : ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("buffer of entity type \"%s\" is full", type->name),
			 errdetail(INT64_FORMAT " messages cannot be handled now, buffer_size is " INT64_FORMAT
									".",
					   held, type->buffer_size),
			 type->mode == SHARD_MODE_STOPPED
				 ? errhint("The type is stopped at this node, and goes on when shard_start() is "
						   "called for it here; or raise buffer_size with shard_alter().")
				 : errhint("See shard_inbox for what they wait for, and shard_peers if nodes are "
						   "away; or raise buffer_size with shard_alter().")));
}

/* A handler on trial runs in a session. */
static void
guest_comes(const ShardExecution *execution, const ShardType *type)
{
	if (!execution->trial)
		shard_stuck_guest_comes(type, execution->entity->local->type->owner);
}

/*
 * An extractor is another role's code: while it runs, the handler that tells or asks for a shard is not the one that
 * functions like shard_reply() act on.
 */
int
shard_api_shard(ShardType *type, const char *entity, int entity_len)
{
	ShardExecution *execution = shard_execution_current();
	volatile int shard = 0;

	if (execution == NULL || !OidIsValid(type->shard_id_extractor))
		return shard_registry_shard_id(type, entity, entity_len);
	guest_comes(execution, type);
	shard_execution_set_current(NULL);
	PG_TRY();
	{
		shard = shard_registry_shard_id(type, entity, entity_len);
	}
	PG_FINALLY();
	{
		shard_stuck_guest_goes();
		shard_execution_set_current(execution);
	}
	PG_END_TRY();
	return shard;
}

/* Entity id and payload of a message, by the type's extractors, which are guarded likewise. */
static void
extract(ShardType *type, Jsonb *message, text **entity, Jsonb **payload)
{
	ShardExecution *execution = shard_execution_current();

	if (execution != NULL)
		guest_comes(execution, type);
	shard_execution_set_current(NULL);
	PG_TRY();
	{
		*entity = shard_extractor_entity_id(type, message);
		*payload = shard_extractor_message(type, message);
	}
	PG_FINALLY();
	{
		shard_stuck_guest_goes();
		shard_execution_set_current(execution);
	}
	PG_END_TRY();
}

/* Appends a message; everything has been checked but the limits. */
static void
append(ShardType *type, ShardKind kind, const char *entity, int entity_len, const char *payload,
	   int payload_len, bool is_reply)
{
	ShardExecution *execution = shard_execution_current();
	ShardRow row = {.type_id = type->type_id,
					.kind = kind,
					.entity = entity,
					.entity_len = entity_len,
					.payload = payload,
					.payload_len = payload_len,
					.epoch = -1};

	shard_api_check_entity(entity_len);
	/* of others the sender has looked at the size */
	shard_api_check_room(type, kind == SHARD_KIND_TELL ? payload_len : 0);
	row.shard = shard_api_shard(type, entity, entity_len);
	check_buffer(type, row.shard, entity, entity_len, is_reply);
	if (execution != NULL && execution->trial)
	{
		if (kind == SHARD_KIND_TELL)
			shard_trial_tell(execution, type, &row);
		return;
	}
	if (execution != NULL)
	{
		row.src_type = execution->entity->local->type->type_id;
		row.src_entity = execution->entity->id;
		row.src_entity_len = execution->entity->id_len;
	}
	if (shard_outputs_tell(&row))
		shard_session_told(type, row.shard);
}

static void
append_message(ShardType *type, const char *entity, int entity_len, Jsonb *message, bool is_reply)
{
	append(type, SHARD_KIND_TELL, entity, entity_len, VARDATA(message), VARSIZE(message) - VARHDRSZ,
		   is_reply);
}

void
shard_api_tell(const char *type_name, const char *entity, int entity_len, Jsonb *message)
{
	append_message(open_type(type_name), entity, entity_len, message, false);
}

void
shard_api_reply(const char *type_name, const char *entity, int entity_len, Jsonb *message)
{
	append_message(open_type(type_name), entity, entity_len, message, true);
}

/* shard_tell(type_name text, entity_id text, message jsonb) returns void */
Datum
shard_tell(PG_FUNCTION_ARGS)
{
	char buffer[NAMEDATALEN];
	text *entity;

	shard_argument_check(fcinfo, 0, "entity type must not be null");
	shard_argument_check(fcinfo, 1, "entity id must not be null");
	shard_argument_check(fcinfo, 2, "message must not be null");
	entity = PG_GETARG_TEXT_PP(1);
	shard_api_tell(name_of(PG_GETARG_TEXT_PP(0), buffer), VARDATA_ANY(entity),
				   VARSIZE_ANY_EXHDR(entity), PG_GETARG_JSONB_P(2));
	PG_RETURN_VOID();
}

/* shard_tell(type_name text, message jsonb) returns void */
Datum
shard_tell_extracted(PG_FUNCTION_ARGS)
{
	char buffer[NAMEDATALEN];
	ShardType *type;
	text *entity;
	Jsonb *message;
	Jsonb *payload;

	shard_argument_check(fcinfo, 0, "entity type must not be null");
	shard_argument_check(fcinfo, 1, "message must not be null");
	type = open_type(name_of(PG_GETARG_TEXT_PP(0), buffer));
	message = PG_GETARG_JSONB_P(1);
	extract(type, message, &entity, &payload);
	append_message(type, VARDATA_ANY(entity), VARSIZE_ANY_EXHDR(entity), payload, false);
	PG_RETURN_VOID();
}

/* shard_tell_many(type_name text, entity_ids text[], messages jsonb[]) returns int8 */
Datum
shard_tell_many(PG_FUNCTION_ARGS)
{
	char buffer[NAMEDATALEN];
	ShardType *type;
	Datum *ids;
	Datum *messages;
	bool *id_nulls;
	bool *message_nulls;
	int id_count;
	int message_count;

	shard_argument_check(fcinfo, 0, "entity type must not be null");
	shard_argument_check(fcinfo, 1, "entity ids must not be null");
	shard_argument_check(fcinfo, 2, "messages must not be null");
	type = open_type(name_of(PG_GETARG_TEXT_PP(0), buffer));
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), TEXTOID, -1, false, TYPALIGN_INT, &ids, &id_nulls,
					  &id_count);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(2), JSONBOID, -1, false, TYPALIGN_INT, &messages,
					  &message_nulls, &message_count);
	if (id_count != message_count)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("there are %d entity ids and %d messages", id_count, message_count)));
	for (int i = 0; i < id_count; i++)
	{
		text *id;

		CHECK_FOR_INTERRUPTS();
		if (id_nulls[i] || message_nulls[i])
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("%s number %d must not be null",
								   id_nulls[i] ? "entity id" : "message", i + 1)));
		id = DatumGetTextPP(ids[i]);
		append_message(type, VARDATA_ANY(id), VARSIZE_ANY_EXHDR(id), DatumGetJsonbP(messages[i]),
					   false);
	}
	PG_RETURN_INT64(id_count);
}

void
shard_api_send(ShardType *type, ShardKind kind, const char *entity, int entity_len,
			   const Jsonb *content)
{
	append(type, kind, entity, entity_len, VARDATA(content), VARSIZE(content) - VARHDRSZ, false);
}

/* A command to an entity, which travels as a message does. */
static Datum
send_command(FunctionCallInfo fcinfo, ShardKind kind)
{
	char buffer[NAMEDATALEN];
	text *entity;

	shard_argument_check(fcinfo, 0, "entity type must not be null");
	shard_argument_check(fcinfo, 1, "entity id must not be null");
	entity = PG_GETARG_TEXT_PP(1);
	append(open_type(name_of(PG_GETARG_TEXT_PP(0), buffer)), kind, VARDATA_ANY(entity),
		   VARSIZE_ANY_EXHDR(entity), "", 0, false);
	PG_RETURN_VOID();
}

/* shard_start_entity(type_name text, entity_id text) returns void */
Datum
shard_start_entity(PG_FUNCTION_ARGS)
{
	return send_command(fcinfo, SHARD_KIND_START);
}

/* shard_passivate(type_name text, entity_id text) returns void */
Datum
shard_passivate_entity(PG_FUNCTION_ARGS)
{
	return send_command(fcinfo, SHARD_KIND_PASSIVATE);
}

/*
 * Trigger on the segments: SQL writes would by-pass the append lock, and a row at the wrong place is a lost message. So
 * is each row of a segment that a client truncates; only the rotation truncates, which knows that all is handled.
 * pg_restore may load them, into a node that handles nothing.
 */
Datum
shard_segment_guard(PG_FUNCTION_ARGS)
{
	ShardDatabase *db = shard_preloaded ? shard_shmem_database() : NULL;

	/* a trigger answers with a null pointer, never with SQL's NULL */
	if ((db != NULL && db->paused) || shard_rotation_is_emptying())
		return PointerGetDatum(NULL);
	if (CALLED_AS_TRIGGER(fcinfo) &&
		TRIGGER_FIRED_BY_TRUNCATE(((TriggerData *) fcinfo->context)->tg_event))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("segments of the inbox cannot be truncated by SQL"),
						errdetail("Messages that are not handled would be lost."),
						errhint("Segments are emptied by themselves; see shard_stat_inbox for what "
								"keeps one.")));
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("segments of the inbox cannot be written to by SQL"),
					errhint("Send messages with shard_tell() or COPY shard_inbox.")));
}
