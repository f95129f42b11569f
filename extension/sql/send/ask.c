/*
 * sql/send/ask.c
 *		shard_ask: run a message now, return its reply (doc/protocol.md D19).
 *
 * An ask does not go through the log. It carries the highest seq there was
 * when it was made, and its worker runs it after everything up to that: what
 * this session has told, and committed, comes first. What may go wrong on the
 * way, and with which SQLSTATE, is written in ring_call.c.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "sql/send/api.h"
#include "registry/catalog.h"
#include "core/base/message.h"
#include "base/duration.h"
#include "entity/execution.h"
#include "base/guc.h"
#include "log/log.h"
#include "registry/identity.h"
#include "shared/board.h"
#include "registry/registry.h"
#include "shared/ring.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "log/session.h"
#include "base/argument.h"
#include "sql/send/handler_guard.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_ask);

/*
 * Errors where a session cannot ask: in a handler, as a region worker would wait for itself or for another that waits
 * for it, on a standby, in a transaction that may not write.
 */
static void
check_place(void)
{
	shard_handler_guard_check("ask", "The ask would wait for the worker that runs the handler.",
							  "Use shard_request(): the reply comes as a message.");
	PreventCommandDuringRecovery("shard_ask()");
	PreventCommandIfReadOnly("shard_ask()");
	PreventCommandIfParallelMode("shard_ask()");
}

/*
 * Errors if no worker will take an ask until an operator changes something. That workers do not run at the moment is no
 * such thing.
 */
static void
check_node(const ShardDatabase *db, const ShardBoardView *view)
{
	if (!shard_enabled)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot ask while shard.enabled is off"),
						errhint("Messages sent with shard_tell() wait until it is on.")));
	if (db->paused)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot ask while this node is paused"),
				 errdetail("The database is a copy: its positions speak of another server."),
				 errhint("shard_reset_cluster_data() makes it a node of its own. Messages sent "
						 "with shard_tell() wait.")));
	if (view->fenced)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("this node is fenced"),
				 errdetail("%s", view->why), errhint("Ask through another node of the cluster.")));
}

/* Whether entities of the type are on their way to other shards. */
static bool
is_resharded(const ShardType *type)
{
	const ShardStatement look = {"SELECT FROM shard.reshard WHERE type_id = $1 AND moving",
								 1,
								 {INT4OID}};
	ShardArguments arguments = {0};
	ShardSecurity security = {0};
	bool result;

	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_security_open_system(&security);
	shard_statement_once(&look, &arguments, SPI_OK_SELECT);
	result = SPI_processed > 0;
	shard_security_close_system(&security);
	return result;
}

/*
 * Errors unless messages of the type are handled here, or maybe elsewhere, and the
 * ask would not overtake what this transaction has told. What keeps a type from
 * running at the entity's home is told by the worker there.
 */
static void
check_type(const ShardType *type, const ShardBoardView *view)
{
	bool alone = view->known && view->members <= 1;

	if (type->mode == SHARD_MODE_STOPPED || (type->mode == SHARD_MODE_PROXY && alone))
	{
		bool resharded = is_resharded(type);

		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("entity type \"%s\" is not handled here", type->name),
				 errdetail("It is %s.", type->mode == SHARD_MODE_STOPPED ? "stopped" : "a proxy"),
				 resharded ? errhint("Call shard_reshard() again, which goes on where it "
									 "was; then start it with shard_start().")
						   : errhint("Start it with shard_start().")));
	}
	if (type->problem != NULL && alone)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("entity type \"%s\" is suspended", type->name),
						errdetail("%s", type->problem),
						errhint("See shard_types. Messages sent with shard_tell() wait.")));
	if (shard_session_has_told(type))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot ask entity type \"%s\" after telling it in the same transaction",
						type->name),
				 errdetail("The ask would overtake messages that are not committed."),
				 errhint("Commit first.")));
}

/*
 * Puts a text argument that names an entity into the request.
 */
static void
set_entity(ShardRequest *request, text *entity)
{
	int length = VARSIZE_ANY_EXHDR(entity);

	shard_api_check_entity(length);
	memcpy(request->entity, VARDATA_ANY(entity), length);
	request->entity_len = length;
}

/*
 * Puts the message into the request: the body of the jsonb, without header.
 */
static void
set_message(ShardRequest *request, const ShardType *type, Jsonb *message)
{
	request->payload = VARDATA(message);
	request->payload_len = VARSIZE(message) - VARHDRSZ;
	shard_api_check_size(type, request->payload_len);
}

/*
 * A limit in microseconds; error if it is below zero.
 */
static int64
limit_of(const Interval *timeout)
{
	int64 limit = shard_duration_from_interval(timeout);

	if (limit < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("timeout must not be negative")));
	return limit;
}

/*
 * Errors if an argument is NULL.
 */
static void
check_arguments(FunctionCallInfo fcinfo)
{
	shard_argument_check(fcinfo, 0, "entity type must not be null");
	shard_argument_check(fcinfo, 1, "entity id must not be null");
	shard_argument_check(fcinfo, 2, "message must not be null");
	shard_argument_check(fcinfo, 3, "timeout must not be null");
}

/*
 * shard_ask(type_name text, entity_id text, message jsonb, timeout interval)
 *		returns jsonb
 */
Datum
shard_ask(PG_FUNCTION_ARGS)
{
	ShardRequest request = {.kind = SHARD_REQUEST_ASK};
	ShardBoardView view;
	ShardType *type;
	ShardDatabase *db;
	int worker;
	char *reply;
	int length;
	Jsonb *result;

	check_arguments(fcinfo);
	shard_shmem_require();
	check_place();
	(void) shard_catalog_lock(false);
	shard_identity_check_open();
	type = shard_registry_get(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	shard_security_check_send(type);
	set_entity(&request, PG_GETARG_TEXT_PP(1));
	set_message(&request, type, PG_GETARG_JSONB_P(2));
	db = shard_shmem_database_or_make(MyDatabaseId);
	shard_board_get(db, &view);
	check_type(type, &view);
	check_node(db, &view);

	(void) shard_log_attach();
	request.type_id = type->type_id;
	request.type_name = type->name;
	request.shard = shard_registry_shard_id(type, request.entity, request.entity_len);
	request.after = shard_log_last_seq(db);
	worker = shard_shmem_lane_worker(db, shard_message_lane(request.type_id, request.shard));
	reply = shard_ring_call(db, worker, &request, limit_of(PG_GETARG_INTERVAL_P(3)), &length);
	if (reply == NULL)
		PG_RETURN_NULL();

	result = palloc(VARHDRSZ + length);
	SET_VARSIZE(result, VARHDRSZ + length);
	memcpy(VARDATA(result), reply, length);
	PG_RETURN_JSONB_P(result);
}
