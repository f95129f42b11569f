/*
 * route/routing_reply.c
 *		Replies that come later: to the ask, if it is open here, or to the node that holds it (E43, E44).
 *
 * A turn that passes the row of a reply does nothing durable for it. What it has found is kept until the turn has
 * committed, which is later in WAL than the commit of whoever replied: so an asker who believes the reply when WAL is
 * flushed and the gate passed up to there believes nothing that a crash may take back.
 *
 * If the process dies right here: an ask that was open here is gone with it, and its asker told so. What is on its way
 * to another node the next worker finds in the log (link/transport_reply.c).
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "core/flow/reply.h"
#include "entity/turn.h"
#include "link/transport.h"
#include "log/cursor.h"
#include "registry/directory.h"
#include "route/routing_private.h"
#include "shared/ring.h"

#include "base/compat.h"

/* A turn that has met as many bytes of replies ends soon; a worker that starts finds no more than as many again. */
#define ENOUGH_BYTES ((Size) 4 * 1024 * 1024)
#define MOST_BYTES ((Size) 64 * 1024 * 1024)

/* A reply that this turn has met. */
typedef struct Met
{
	int32 node;
	ShardRingLater ask;
	const char *reply; /* in the payload of the row, */
	int reply_len;
	ShardRow row; /* which is a copy, as far as it is needed */
} Met;

static MemoryContext context = NULL; /* of the list */
static List *met = NIL;
static Size met_bytes = 0;

/* Whether a member of that number is known, to which replies can go. */
static bool
is_member(int32 node)
{
	const ShardDirectoryMember *member;

	(void) shard_directory_refresh();
	member = shard_directory_find(node);
	return member != NULL && member->record.status != SHARD_MEMBER_REMOVED &&
		   member->record.status != SHARD_MEMBER_WRITTEN_OFF;
}

/* Keeps it until the commit. */
static void
keep(const ShardReplyToken *token, const ShardRingLater *ask, const ShardReplyParcel *reply,
	 const ShardRow *row)
{
	MemoryContext old;
	Met *one;
	char *copy;

	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "shard replies", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	one = palloc(sizeof(Met));
	copy = MemoryContextAllocHuge(context, row->payload_len);
	memcpy(copy, row->payload, row->payload_len);
	*one = (Met){.node = token->node,
				 .ask = *ask,
				 .reply = reply->payload_len > 0 ? copy + (reply->payload - row->payload) : NULL,
				 .reply_len = reply->payload_len,
				 .row = {.seq = row->seq,
						 .kind = row->kind,
						 .type_id = row->type_id,
						 .shard = row->shard,
						 .payload = copy,
						 .payload_len = row->payload_len}};
	met = lappend(met, one);
	MemoryContextSwitchTo(old);
	met_bytes += row->payload_len;
	if (met_bytes > ENOUGH_BYTES)
		shard_turn_end_soon();
}

/* It finds nobody who waits. */
static void
count_void(const ShardReplyToken *token)
{
	pg_atomic_fetch_add_u64(&shard_shmem_my_worker()->void_replies, 1);
	elog(DEBUG1, "a reply to an ask of entity \"%.*s\" comes too late", token->entity_len,
		 token->entity);
}

void
shard_routing_reply(const ShardRow *row)
{
	ShardReader reader = {row->payload, row->payload + row->payload_len};
	ShardReplyParcel reply;
	ShardReplyToken token;
	ShardRingLater ask;

	if (!shard_packet_get_reply(&reader, &reply) ||
		!shard_reply_get_token(reply.token, reply.token_len, &token) ||
		token.kind != SHARD_REPLY_ASK)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("row " INT64_FORMAT " of the inbox is damaged", row->seq)));
	ask = (ShardRingLater){token.slot, (uint32) token.generation, token.type_id, token.shard,
						   token.key};
	if (token.node == shard_routing.self ? shard_ring_is_open(shard_routing.db, &ask)
										 : is_member(token.node))
		keep(&token, &ask, &reply, row);
	else
		count_void(&token);
}

/*
 * Start: a row that a former worker has passed. What was for an ask here is over; to other nodes it is told again, as far
 * as there is room: no turn ends meanwhile.
 */
static void
again(const ShardRow *row)
{
	uint64 before = pg_atomic_read_u64(&shard_shmem_my_worker()->void_replies);
	static bool told = false;

	if (met_bytes > MOST_BYTES)
	{
		if (!told)
			ereport(LOG,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("replies for other nodes are dropped"),
					 errdetail("Those that the worker tells again at its start have %zu bytes. "
							   "The asks of the others end by their time-outs.",
							   met_bytes)));
		told = true;
		return;
	}
	shard_routing_reply(row);
	pg_atomic_write_u64(&shard_shmem_my_worker()->void_replies, before);
}

void
shard_routing_replies_register(void)
{
	shard_cursor_register(SHARD_KIND_REPLY, again);
}

/* Forgets the turn's. */
static void
forget(void)
{
	met = NIL;
	met_bytes = 0;
	if (context != NULL)
		MemoryContextReset(context);
}

void
shard_routing_replies_committed(void)
{
	ListCell *cell;

	if (likely(met == NIL))
		return;
	foreach (cell, met)
	{
		const Met *one = lfirst(cell);
		bool taken;

		if (one->node != shard_routing.self)
			taken = shard_transport_reply(one->node, &one->row, shard_routing.lsn);
		else
			taken =
				shard_ring_reply_later(&one->ask, one->reply, one->reply_len, shard_routing.lsn);
		if (!taken)
			pg_atomic_fetch_add_u64(&shard_shmem_my_worker()->void_replies, 1);
	}
	forget();
}

void
shard_routing_replies_aborted(void)
{
	forget();
}
