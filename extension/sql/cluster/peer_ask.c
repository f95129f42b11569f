/*
 * sql/cluster/peer_ask.c
 *		shard_peer.ask: an ask for an entity here from a client of another node (X8).
 *
 * The right to ask was checked where the client is. The ask names the home epoch that it was routed
 * by, and the newest row of the caller's stream on the shard's lane. This backend waits until that row
 * was received, and then hands the ask to the lane's worker like any ask of a client here: behind
 * everything that is in the log by now. The worker runs it if the shard is active here in that very
 * epoch, or says NOT_HERE: then it was certainly not executed, and the caller looks the home up again.
 *
 * What the handler raised, and what went wrong with the ask here, goes back as an answer with all its
 * parts; so does "outcome unknown" (SH100). If this process or the connection ends after the call was
 * sent, the caller tells its client the same.
 *
 * If the caller gives up it cancels this call or closes the connection: an ask that no worker has begun
 * is withdrawn then.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "link/callee.h"
#include "core/base/message.h"
#include "log/log.h"
#include "registry/payload.h"
#include "base/peer_errors.h"
#include "shared/stream_position.h"
#include "registry/registry.h"
#include "shared/ring.h"
#include "shared/ring_private.h"
#include "base/damage.h"
#include "base/duration.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_peer_ask);

/*
 * An ask that was not begun is given up this much earlier than its asker gives up, an eighth of its time at most, so
 * that the asker hears that it was not executed, and why. In microseconds.
 */
#define PATIENCE (500 * INT64CONST(1000))

/* Raises that the bytes are not those of an ask. */
static void
damaged(const ShardCallee *callee)
{
	shard_damage_raise(psprintf("the ask of node %d", callee->header.from), NULL,
					   "It was not executed.");
}

/* Reads the ask; errors unless it is one. */
static void
read_ask(ShardCallee *callee, ShardAskCall *ask)
{
	if (!shard_packet_get_ask(&callee->reader, ask) || callee->reader.at != callee->reader.end ||
		ask->lane != shard_message_lane(ask->type_id, ask->shard) ||
		!shard_payload_is_entity(ask->entity, ask->entity_len) ||
		!shard_payload_is_jsonb(ask->payload, ask->payload_len))
		damaged(callee);
}

/* Errors unless messages are handled here. */
static void
check_node(const ShardCallee *callee)
{
	if (callee->view.handle)
		return;
	ereport(ERROR, (errcode(SHARD_ERRCODE_NOT_YET),
					errmsg("node %d handles nothing at the moment", callee->view.node),
					errdetail("%s", callee->view.why)));
}

/* The name of a type, for errors. Those that the caller knows are known here, or will be. */
static const char *
type_name(int32 type_id)
{
	const ShardType *type = shard_registry_known(type_id);

	return type != NULL ? type->name : psprintf("number %d", type_id);
}

/*
 * Waits until the rows that go before the ask have been received; after that they are in the log, below
 * its last seq. Errors if they do not come in time.
 */
static void
await_stream(const ShardCallee *callee, const ShardAskCall *ask, int64 deadline)
{
	ShardStreamPositionKey key = {.dboid = MyDatabaseId,
								  .origin = callee->header.from,
								  .lane = ask->lane,
								  .channel = 0};

	if (ask->after == 0 ||
		shard_stream_position_wait(callee->db, &key, ask->after, deadline - shard_clock_now()))
		return;
	ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("ask of entity \"%.*s\" of type \"%s\" timed out after %s, it was not "
						   "executed",
						   ask->entity_len, ask->entity, type_name(ask->type_id),
						   shard_duration_rounded(ask->timeout_us)),
					errdetail("Messages that node %d sent before it have not arrived at node %d.",
							  callee->header.from, callee->view.node),
					errhint("See shard_peers.")));
}

/* Runs the ask; raises what it ends with if that is no reply. SHARD_RING_NOT_HERE as there. */
static char *
run_ask(const ShardCallee *callee, const ShardAskCall *ask, int *length)
{
	int64 now = shard_clock_now();
	int64 patience = Min(ask->timeout_us / 8, PATIENCE);
	int64 timeout = ask->timeout_us - patience;
	int64 deadline = timeout > PG_INT64_MAX - now ? PG_INT64_MAX : now + timeout;
	ShardRequest request = {.kind = SHARD_REQUEST_ASK,
							.tagged = true,
							.epoch = ask->epoch,
							.type_id = ask->type_id,
							.shard = ask->shard,
							.entity_len = ask->entity_len,
							.type_name = type_name(ask->type_id),
							.patience_us = patience,
							.payload = unconstify(char *, ask->payload),
							.payload_len = ask->payload_len};

	memcpy(request.entity, ask->entity, ask->entity_len);
	await_stream(callee, ask, deadline);
	request.after = shard_log_last_seq(callee->db);
	return shard_ring_call(callee->db, shard_shmem_lane_worker(callee->db, ask->lane), &request,
						   Max(deadline - shard_clock_now(), 0), length);
}

/* An error as an answer. */
static void
answer_error(const ErrorData *error, ShardAskAnswer *answer)
{
	memset(answer, 0, sizeof(*answer));
	answer->outcome = SHARD_ASK_ERROR;
	answer->has_payload = true;
	answer->payload = shard_ring_body_pack_error(error, &answer->payload_len);
}

/* The same with what went wrong as the answer: a handler's error, or one of the way to it. */
static void
run_answered(ShardCallee *callee, const ShardAskCall *ask, ShardAskAnswer *answer)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		int length = 0;

		answer->payload = run_ask(callee, ask, &length);
		answer->outcome = length == SHARD_RING_NOT_HERE ? SHARD_ASK_NOT_HERE : SHARD_ASK_REPLY;
		answer->has_payload = answer->payload != NULL;
		answer->payload_len = answer->has_payload ? length : 0;
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		shard_callee_rollback();
		answer_error(error, answer);
	}
	PG_END_TRY();
}

/*
 * shard_peer.ask(call bytea, INOUT answer bytea)
 *
 * Runs a message for an entity here and answers with its reply.
 */
Datum
shard_peer_ask(PG_FUNCTION_ARGS)
{
	ShardCallee callee;
	ShardAskCall ask;
	ShardAskAnswer answer = {0};
	StringInfoData bytes;

	shard_callee_open(fcinfo, &callee);
	read_ask(&callee, &ask);
	/* Refused before its time is over, the caller knows that it was not executed. */
	shard_callee_check(&callee, ask.timeout_us / 2);
	check_node(&callee);
	(void) shard_log_attach();
	shard_callee_commit();
	run_answered(&callee, &ask, &answer);
	initStringInfo(&bytes);
	shard_callee_put_header(&callee, &bytes);
	shard_packet_put_answer(&bytes, &answer);
	return shard_callee_answer(&callee, &bytes);
}
