/*
 * sql/cluster/internal.c
 *		What only other nodes call: messages of the control plane, the identity of this node, what runs here.
 *
 * A peer's backend is a go-between: it carries messages to the control worker and back, and writes nothing itself, so
 * there is nothing to leave behind. The bytes come from anywhere; a caller with the right to call may also be mistaken
 * about the identity of this node (I5), which the control plane judges for its messages, and this file for the rest.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"

#include "registry/catalog.h"
#include "sql/cluster/cluster_alive.h"
#include "sql/cluster/cluster_view.h"
#include "control/control.h"
#include "core/entity/entity.h"
#include "core/base/message.h"
#include "core/flow/packet.h"
#include "core/map/type_number.h"
#include "sql/cluster/internal.h"
#include "sql/cluster/question.h"
#include "libpq/pqformat.h"
#include "registry/identity.h"
#include "link/peer.h"
#include "link/peer_client.h"
#include "base/peer_errors.h"
#include "link/peer_role.h"
#include "shared/board.h"
#include "shared/ring.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "shared/told.h"
#include "shared/visitor.h"
#include "link/way_back.h"
#include "base/argument.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_internal_control);
PG_FUNCTION_INFO_V1(shard_internal_who);
PG_FUNCTION_INFO_V1(shard_internal_call_back);
PG_FUNCTION_INFO_V1(shard_internal_stats);
PG_FUNCTION_INFO_V1(shard_internal_allow_peer);

/* The joining node waits for longer. */
#define CALL_BACK_TIMEOUT_MS 5000

/* The address is decided by the cluster, mostly of one. */
#define ADDRESS_TIMEOUT (5 * 1000 * 1000)

/* A worker answers after its turn. */
#define REPORT_TIMEOUT (3 * 1000 * 1000)

/*
 * The bytes of the call; error 22004 if there are none.
 */
static ShardReader
call_of(FunctionCallInfo fcinfo)
{
	bytea *call;

	shard_shmem_require();
	shard_visitor_here();
	shard_argument_check(fcinfo, 0, "call cannot be null");
	call = PG_GETARG_BYTEA_PP(0);
	return (ShardReader){VARDATA_ANY(call), VARDATA_ANY(call) + VARSIZE_ANY_EXHDR(call), false};
}

/*
 * The result of a procedure: its one INOUT argument. bytes NULL: SQL NULL.
 */
static Datum
answer(FunctionCallInfo fcinfo, const char *bytes, int length)
{
	bool isnull = bytes == NULL;
	Datum value = (Datum) 0;
	TupleDesc desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (!isnull)
	{
		bytea *copy = palloc(VARHDRSZ + length);

		SET_VARSIZE(copy, VARHDRSZ + length);
		memcpy(VARDATA(copy), bytes, length);
		value = PointerGetDatum(copy);
	}
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), &value, &isnull));
}

static void
refuse_bytes(void)
{
	ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION), errmsg("malformed call from another node"),
					errhint("Compare the versions of the extension on both nodes.")));
}

/*
 * The number of this node, for an error that its caller shows elsewhere: whether or not the control worker has
 * spoken.
 */
static int32
own_number(void)
{
	ShardSecurity security = {0};
	ShardIdentity row;

	PushActiveSnapshot(GetTransactionSnapshot());
	shard_security_begin_system(&security);
	shard_identity_read(&row);
	shard_security_end(&security);
	PopActiveSnapshot();
	return row.node;
}

/*
 * The client's address, NULL if it comes by a socket of this machine.
 */
static const char *
client_host(void)
{
	LOCAL_FCINFO(info, 0);
	Datum address;

	InitFunctionCallInfoData(*info, NULL, 0, InvalidOid, NULL, NULL);
	address = inet_client_addr(info);
	if (info->isnull)
		return NULL;
	return TextDatumGetCString(DirectFunctionCall1(network_host, address));
}

/*
 * Names a node that claims a node's place in the log, with what this backend alone knows of it: its role, and from
 * where it calls.
 */
static void
name_claimant(ShardDatabase *db, int32 node)
{
	const char *host;
	const char *more;
	const char *role;
	int count;

	/* a caller without a role of its own may name any node */
	(void) shard_cluster_view_directory(&count);
	if (!shard_told_may(db, shard_directory_find(node) != NULL ? node : 0, "claimant", 0, &more))
		return;
	host = client_host();
	role = GetUserNameFromId(GetSessionUserId(), true);
	ereport(LOG, (errmsg("shard: node %d asks to be let in by role \"%s\", from %s%s", node,
						 role != NULL ? role : "(dropped)", host != NULL ? host : "this machine",
						 more)));
}

/*
 * Errors unless the role may speak for all senders in a call, and unless its messages are at most as many as a node
 * has for another one. Bytes without a header have no sender.
 */
static void
check_speakers(ShardDatabase *db, ShardReader call)
{
	int count = 0;

	while (call.at < call.end && !call.failed)
	{
		size_t length;
		const char *bytes = shard_wire_get_bytes(&call, &length);
		ShardControl message;

		if (++count > SHARD_CONTROL_MAX_MESSAGES)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("a call of another node has too many messages for node %d",
							own_number()),
					 errdetail("The call has more than %d messages.", SHARD_CONTROL_MAX_MESSAGES)));
		if (call.failed || !shard_control_decode_header(bytes, length, &message))
			continue;
		/*
		 * A joiner with a shorter description hears of its mistakes from the coordinator: one of this length is not
		 * even read.
		 */
		if (message.kind == SHARD_CONTROL_JOIN && length > SHARD_JOIN_MAX_BYTES)
			ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
							errmsg("a node that wants to join describes itself to node %d in too "
								   "many bytes",
								   own_number()),
							errdetail("The description takes %zu bytes, and can take %d.", length,
									  SHARD_JOIN_MAX_BYTES)));
		shard_peer_role_check(message.from);
		if (message.kind == SHARD_CONTROL_ADMIT)
			name_claimant(db, message.from);
	}
}

/*
 * shard_peer.control(call bytea, INOUT answer bytea)
 */
Datum
shard_internal_control(PG_FUNCTION_ARGS)
{
	ShardReader call = call_of(fcinfo);
	ShardDatabase *db = shard_shmem_database();
	size_t size = call.end - call.at;
	char *bytes;
	int length;

	/* Before anything is made of it, here or in the worker. */
	if (size > SHARD_CONTROL_MAX_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a call of another node is too large for node %d", own_number()),
				 errdetail("The call has %zu bytes; calls of the control plane have %d at most.",
						   size, SHARD_CONTROL_MAX_BYTES),
				 errhint(
					 "A map of that size has millions of homes: start types with fewer shards.")));
	/* The caller comes again, soon; to wait here for a start would only hold up its other messages. */
	if (db == NULL || !shard_shmem_worker_runs(db, SHARD_CONTROL_WORKER))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the control worker of node %d does not run", own_number()),
						errhint("See shard_health() there, and the server's log.")));
	check_speakers(db, call);
	bytes = shard_control_control(call.at, (int) (call.end - call.at), &length);
	return answer(fcinfo, bytes, length);
}

/*
 * shard_peer.who(call bytea, INOUT answer bytea). The call may name a join: whether it is that of this node is said
 * behind the answer (I17). The token of the join itself is told to no caller.
 */
Datum
shard_internal_who(PG_FUNCTION_ARGS)
{
	ShardReader call = call_of(fcinfo);
	StringInfoData out;
	ShardBoardView view;
	ShardWho who;
	bool joins;

	if (!shard_control_who(&who))
		return answer(fcinfo, NULL, 0);
	initStringInfo(&out);
	shard_who_put(&out, &who);
	if (call.at < call.end)
	{
		ShardUuid token = shard_wire_get_uuid(&call);

		if (call.failed || call.at < call.end)
			refuse_bytes();
		shard_board_get(shard_shmem_database(), &view);
		joins =
			(token.high != 0 || token.low != 0) && shard_record_uuid_equal(token, view.join_token);
		shard_wire_put_uint(&out, joins ? 1 : 0);
	}
	return answer(fcinfo, out.data, out.len);
}

/* ---- call back -------------------------------------------------------------------------------- */

/*
 * The address to try: as given, or that by which the caller comes.
 */
static const char *
address_of(const ShardWayBackCall *call)
{
	const char *host;

	if (call->dsn[0] != '\0')
		return call->dsn;
	host = client_host();
	return psprintf("host=%s %s", host != NULL ? host : call->socket, call->rest);
}

static ShardPeerQuestion
who_at(const char *dsn)
{
	return (ShardPeerQuestion){.dsn = dsn, .bytes = "", .looks = true};
}

/* The identity that has answered; false: no answer, or one without an identity. */
static bool
is_answered(const ShardPeerQuestion *question, ShardWho *who)
{
	ShardReader reader;

	if (!question->answered || question->answer == NULL)
		return false;
	reader = (ShardReader){question->answer, question->answer + question->answer_length, false};
	return shard_who_get(&reader, who);
}

/*
 * The joining node has to be reached; error, for its operator, if it is not.
 */
static void
look_back(ShardWayBack *back)
{
	ShardPeerQuestion question = who_at(back->dsn);

	shard_peer_client_ask(&question, 1, "who", CALL_BACK_TIMEOUT_MS);
	back->found = is_answered(&question, &back->there);
	if (question.error != NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("the joining node cannot be reached at its own address"),
			 errdetail("Tried from the seed: \"%s\": %s", back->dsn, question.error),
			 errhint(
				 "In own_dsn, name an address by which all members reach it. There, call "
				 "shard_allow_peer() for the role of that address, and have the server let it in.")));
}

/*
 * The address that this node goes by, NULL if it is not up to a caller (I15).
 */
static const ShardMemberRecord *
guessed_address(int32 node)
{
	const ShardDirectoryMember *member;
	int count;

	(void) shard_cluster_view_directory(&count);
	member = shard_directory_find(node);
	if (member == NULL ||
		(member->record.dsn[0] != '\0' && member->record.ground == SHARD_ADDRESS_SAID))
		return NULL;
	return &member->record;
}

static bool
is_myself(const ShardPeerQuestion *question, const ShardWho *me)
{
	ShardWho there;

	return is_answered(question, &there) &&
		   shard_record_uuid_equal(there.incarnation, me->incarnation);
}

/*
 * A founder of a cluster has no address of its own: it is known by the address under which a caller has reached it, if
 * it reaches itself there, as all other members will have to. A caller may say what it likes, so that address gives way
 * to a better one, and is never more than a guess (I15). Only the coordinator takes one.
 */
static void
take_address(const char *dsn, const ShardWho *me)
{
	const ShardMemberRecord *known = guessed_address(me->node);
	ShardCommand command = {.kind = SHARD_COMMAND_ADDRESS, .text = dsn};
	ShardPeerQuestion questions[2] = {who_at(dsn)};
	int count = 1;
	ShardAddressGround before;
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (known == NULL || (known->dsn[0] != '\0' && view.coordinator != me->node))
		return;
	if (known->dsn[0] != '\0' && strcmp(known->dsn, dsn) != 0)
		questions[count++] = who_at(pstrdup(known->dsn));
	before = (ShardAddressGround) known->ground;
	shard_peer_client_ask(questions, count, "who", CALL_BACK_TIMEOUT_MS);
	if (!is_myself(&questions[0], me))
	{
		if (count > 1 && is_myself(&questions[1], me))
			return;
		ereport(ERROR,
				(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
				 errmsg("the seed does not find itself at seed_dsn"),
				 errdetail("Tried from the seed: \"%s\": %s", dsn,
						   questions[0].error != NULL ? questions[0].error
													  : "another node answered"),
				 errhint("The address in seed_dsn becomes the seed's address for all members: "
						 "name a host, database and role that work from everywhere, the seed "
						 "itself included; or say its address there with shard_set_address().")));
	}
	command.ground = questions[0].ground;
	/* the address before does not lead here any more, or only through a process in between */
	command.lapsed =
		count > 1 &&
		(!is_myself(&questions[1], me) ||
		 (before == SHARD_ADDRESS_DIRECT && questions[1].ground != SHARD_ADDRESS_DIRECT));
	if (shard_control_command(&command, ADDRESS_TIMEOUT) != 0)
		ereport(LOG,
				(errmsg("shard: this node goes by the address at which a caller has reached it, "
						"\"%s\"",
						dsn),
				 errdetail("The caller is role \"%s\".", GetUserNameFromId(GetUserId(), false)),
				 errhint("If that is wrong, or is not to change any more, see "
						 "shard_set_address().")));
}

/*
 * shard_peer.call_back(call bytea, INOUT answer bytea)
 */
Datum
shard_internal_call_back(PG_FUNCTION_ARGS)
{
	ShardReader reader = call_of(fcinfo);
	ShardWayBack back = {.protocol_version = SHARD_PROTOCOL_VERSION};
	ShardWayBackCall call;
	StringInfoData out;

	if (!shard_way_back_get_call(&reader, &call))
		refuse_bytes();
	shard_peer_role_check(0);
	back.encoding = GetDatabaseEncodingName();
	shard_peer_check_dsn(call.seed, "seed_dsn");
	back.dsn = address_of(&call);
	shard_peer_check_dsn(back.dsn, "own_dsn");
	back.known = shard_control_who(&back.seed);
	if (back.known)
	{
		look_back(&back);
		/* A node that asks itself is told so, and changes nothing. */
		if (!shard_record_uuid_equal(back.there.incarnation, back.seed.incarnation))
			take_address(call.seed, &back.seed);
	}
	initStringInfo(&out);
	shard_way_back_put(&out, &back);
	return answer(fcinfo, out.data, out.len);
}

/* ---- stats ------------------------------------------------------------------------------------ */

/*
 * Errors unless the call is from a member of this node's cluster, and for this node. Nothing is written for it, so its
 * incarnation does not matter.
 */
static void
check_header(ShardReader *reader)
{
	ShardCallHeader header;
	ShardBoardView view;

	if (!shard_packet_get_header(reader, &header))
		refuse_bytes();
	shard_peer_role_check(header.from);
	shard_board_get(shard_shmem_database(), &view);
	if (header.protocol_version != SHARD_PROTOCOL_VERSION || !view.known ||
		!shard_record_uuid_equal(header.cluster, view.cluster) || header.to != view.node)
		ereport(ERROR,
				(errcode(SHARD_ERRCODE_STRANGER),
				 errmsg("call is for another node, cluster or protocol version"),
				 errdetail("This is node %d, of protocol version %d; the call is for node %d, "
						   "of version %d.",
						   view.node, SHARD_PROTOCOL_VERSION, header.to, header.protocol_version)));
}

/* Questions about all of the node: queries of rows whose first column is a text. */
static const char *const queries[] = {
	[SHARD_INTERNAL_SHARDS] = "SELECT t.type_name::text, s.shard, sum(s.entities)::int8"
							  " FROM shard.region_shards() s JOIN shard.type t USING (type_id)"
							  " GROUP BY t.type_name, s.shard",
	[SHARD_INTERNAL_REGIONS] =
		"SELECT t.type_name::text,"
		" shard.type_mode(t.mode, t.settings OPERATOR(pg_catalog.->>) 'role') FROM shard.type t"
		" WHERE t.mode <> 'dropped'",
	[SHARD_INTERNAL_MOVES] =
		"SELECT i.phase, 1, i.type_id, i.shard, i.epoch, i.from_node, n.node_id,"
		" i.rows_copied, i.rows_total,"
		" coalesce(EXTRACT(epoch FROM i.started) OPERATOR(pg_catalog.*) 1000000, 0)::int8,"
		" coalesce(EXTRACT(epoch FROM i.changed) OPERATOR(pg_catalog.*) 1000000, 0)::int8,"
		" coalesce(i.error, '') FROM shard.imports() i CROSS JOIN shard.node n"
		" UNION ALL "
		"(SELECT d.kind, 0, d.type_id, d.shard, coalesce(d.epoch, -1), coalesce(d.from_node, -1),"
		" coalesce(d.to_node, -1), 0::int8, 0::int8, 0::int8,"
		" (EXTRACT(epoch FROM d.at) OPERATOR(pg_catalog.*) 1000000)::int8, d.why"
		" FROM (SELECT DISTINCT ON (type_id, shard) * FROM shard.decision WHERE shard IS NOT NULL"
		" AND kind LIKE 'move%' ORDER BY type_id, shard, id DESC) d"
		" WHERE d.at > clock_timestamp() - interval '1 hour' ORDER BY d.id DESC LIMIT 2000)"
		/* of what is tried again, how it failed before */
		" UNION ALL "
		"(SELECT d.kind, 0, d.type_id, d.shard, coalesce(d.epoch, -1), coalesce(d.from_node, -1),"
		" coalesce(d.to_node, -1), 0::int8, 0::int8, 0::int8,"
		" (EXTRACT(epoch FROM d.at) OPERATOR(pg_catalog.*) 1000000)::int8, d.why"
		" FROM (SELECT DISTINCT ON (type_id, shard) * FROM shard.decision WHERE shard IS NOT NULL"
		" AND kind IN ('moved', 'move aborted', 'move refused', 'move withdrawn')"
		" ORDER BY type_id, shard, id DESC) d"
		" WHERE d.kind NOT IN ('moved', 'move withdrawn') AND d.at > clock_timestamp() - interval '1 hour' ORDER BY d.id DESC LIMIT 2000)",
	[SHARD_INTERNAL_DECISIONS] =
		"SELECT kind, (EXTRACT(epoch FROM at) OPERATOR(pg_catalog.*) 1000000)::int8,"
		" coalesce(type_id, -1), coalesce(shard, -1), coalesce(from_node, -1),"
		" coalesce(to_node, -1), coalesce(epoch, -1), why FROM shard.decision ORDER BY id DESC",
};

/*
 * A column as its type goes over the wire.
 */
static void
put_column(StringInfo out, HeapTuple row, TupleDesc desc, int column)
{
	bool isnull;
	Datum value = SPI_getbinval(row, desc, column, &isnull);
	struct varlena *bytes;

	switch (SPI_gettypeid(desc, column))
	{
		case INT4OID:
			shard_wire_put_int(out, DatumGetInt32(value));
			break;
		case INT8OID:
			shard_wire_put_int(out, DatumGetInt64(value));
			break;
		default:
			/* A long one is compressed, or elsewhere. */
			bytes = PG_DETOAST_DATUM_PACKED(value);
			shard_wire_put_bytes(out, VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));
	}
}

void
shard_internal_put_answer(StringInfo out, ShardInternalQuestion question)
{
	ShardStatement look = {queries[question]};
	ShardSecurity security = {0};

	shard_security_begin_system(&security);
	SPI_connect();
	shard_statement_once_read(&look, NULL, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		for (int column = 1; column <= SPI_tuptable->tupdesc->natts; column++)
			put_column(out, SPI_tuptable->vals[i], SPI_tuptable->tupdesc, column);
	SPI_finish();
	shard_security_end(&security);
}

/*
 * Whether an entity is in memory here. Its lane's worker is asked between two turns, so this is for people, not for
 * programs.
 */
bool
shard_internal_is_running(int32 type_id, int32 shard, const char *entity, int length)
{
	ShardDatabase *db = shard_shmem_database();
	ShardRequest request = {.kind = SHARD_REQUEST_ENTITIES,
							.type_id = type_id,
							.shard = shard,
							.entity_len = length};
	int rows_len = 0;
	const char *rows;

	if (db == NULL || length == 0 || length > SHARD_MAX_ENTITY_ID)
		return false;
	memcpy(request.entity, entity, length);
	rows = shard_ring_call(db, shard_shmem_lane_worker(db, shard_message_lane(type_id, shard)),
						   &request, REPORT_TIMEOUT, &rows_len);
	return rows != NULL && rows_len > 0;
}

/*
 * shard_peer.stats(call bytea, INOUT answer bytea)
 */
Datum
shard_internal_stats(PG_FUNCTION_ARGS)
{
	ShardReader reader = call_of(fcinfo);
	StringInfoData out;
	const char *entity;
	size_t length;
	int32 question;
	int32 type_id;
	int32 shard;

	check_header(&reader);
	initStringInfo(&out);
	question = shard_wire_get_int32(&reader);
	switch (question)
	{
		case SHARD_INTERNAL_SHARDS:
		case SHARD_INTERNAL_REGIONS:
		case SHARD_INTERNAL_DECISIONS:
		case SHARD_INTERNAL_MOVES:
			shard_internal_put_answer(&out, question);
			break;
		case SHARD_INTERNAL_RUNNING:
			type_id = shard_wire_get_int32(&reader);
			shard = shard_wire_get_int32(&reader);
			entity = shard_wire_get_bytes(&reader, &length);
			if (reader.failed || type_id <= 0 || shard < 0 || shard >= SHARD_MAX_SHARDS)
				refuse_bytes();
			shard_wire_put_uint(
				&out, shard_internal_is_running(type_id, shard, entity, (int) length) ? 1 : 0);
			break;
		case SHARD_INTERNAL_ALIVE:
			shard_cluster_alive_put(&out);
			break;
		case SHARD_INTERNAL_WITNESS:
			if (!shard_cluster_alive_put_witness(&out, &reader))
				refuse_bytes();
			break;
		default:
			refuse_bytes();
	}
	return answer(fcinfo, out.data, out.len);
}

/* ---- rights ----------------------------------------------------------------------------------- */

/*
 * shard_allow_peer(role regrole, node int) returns void
 */
Datum
shard_internal_allow_peer(PG_FUNCTION_ARGS)
{
	Oid role = PG_GETARG_OID(0);
	int32 node = PG_GETARG_INT32(1);
	const char *name = quote_identifier(GetUserNameFromId(role, false));
	ShardSecurity security = {0};
	ShardStatement commands[2] = {0};

	PreventCommandIfReadOnly("shard_allow_peer()");
	PreventCommandIfParallelMode("shard_allow_peer()");
	if (node < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("node must not be negative"),
				 errhint("Numbers of nodes are in shard_members; 0: any node.")));
	shard_catalog_lock(false);
	commands[0].sql = psprintf("GRANT USAGE ON SCHEMA shard_peer TO %s", name);
	commands[1].sql = psprintf("GRANT EXECUTE ON ALL ROUTINES IN SCHEMA shard_peer TO %s", name);
	SPI_connect();
	shard_security_begin_system(&security);
	for (int i = 0; i < lengthof(commands); i++)
		shard_statement_once(&commands[i], NULL, SPI_OK_UTILITY);
	shard_security_end(&security);
	SPI_finish();
	shard_peer_role_bind(role, node);
	PG_RETURN_VOID();
}
