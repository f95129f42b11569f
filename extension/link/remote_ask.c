/*
 * link/remote_ask.c
 *		Asks for entities whose home is another node (X8): the asker's side, in a region worker.
 *
 * Per peer a queue, and a few connections that take from it. An ask in the queue can be withdrawn by
 * its asker; from the moment that it is written to a socket it cannot. How it may end then:
 * - an answer: a reply, an error with all its parts, or NOT_HERE;
 * - the peer refuses the call by an SQLSTATE that says it looked at no more than the header: certainly
 *	not executed, as with NOT_HERE; the home is looked up again, after the connection's back-off;
 * - anything else: outcome unknown, SH100, never repeated.
 * To a home that is down nothing is sent: it would be refused, and its time might be over just then.
 * The asker waits in its slot of the ring and keeps the time itself; when it is gone the connection is
 * closed, and with it the call.
 *
 * Nothing is durable here. If the process dies right here: the ring tells the askers of what it had
 * taken that the outcome is unknown.
 */
#include "postgres.h"

#include "access/xact.h"
#include "lib/ilist.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "registry/catalog.h"
#include "registry/directory.h"
#include "shared/link_trouble.h"
#include "registry/payload.h"
#include "link/pool.h"
#include "base/peer_errors.h"
#include "shared/board.h"
#include "link/remote_ask.h"
#include "shared/ring_private.h"
#include "core/base/text.h"

#include "base/compat.h"

/* Connections to a peer. */
#define MAX_LINKS 8

/* Asks that wait for a connection, of all peers. */
#define MAX_QUEUED 4096

/*
 * After a failure a connection is tried for this long after the last ask, so that what is said of it stays true; in
 * microseconds.
 */
#define PROBE_LIMIT (60 * INT64CONST(1000000))

/* An ask that was not executed is looked at again after this time: home and asker learn of a move apart. */
#define AGAIN_AFTER (20 * INT64CONST(1000))

/* How often a queue is looked through, in microseconds. */
#define SWEEP_EVERY INT64CONST(1000000)

/* The home answers a time-out itself; a connection that is silent beyond that is given up. */
#define GRACE_MS 2000

#define LONGEST_CALL_MS (24 * 3600 * 1000)

/* One ask; a memory context of its own holds it. */
typedef struct RemoteAsk
{
	dlist_node link; /* queued, sent, or postponed */
	ShardPoolCall sent;
	MemoryContext context;
	ShardRequest request;
	ShardAskCall call;
	int64 deadline; /* on shard_clock_now() */
	int64 again_at; /* the same */
} RemoteAsk;

typedef struct RemotePeer
{
	dlist_node node_link;
	int32 node;
	int64 swept;				  /* when askers that are gone were last looked for */
	int64 asked;				  /* when the last ask came */
	TimestampTz away_since;		  /* no connection succeeded since; 0: the last one did */
	char error[SHARD_RING_CAUSE]; /* why; may name addresses */
	bool down;					  /* by the cluster's word: it takes no asks */
	dlist_head queue;
	dlist_head sent;
	ShardPool pool;
} RemotePeer;

static ShardDatabase *database;
static int worker_number;
static dlist_head peers = DLIST_STATIC_INIT(peers);
static dlist_head postponed = DLIST_STATIC_INIT(postponed); /* by again_at */
static int n_queued = 0;
static char purpose[32];

static void take_answer(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer);
static void take_failure(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer);

static const ShardPoolUse use = {.purpose = purpose,
								 .most = MAX_LINKS,
								 .answered = take_answer,
								 .failed = take_failure};

void
shard_remote_ask_start(ShardDatabase *db, int worker)
{
	database = db;
	worker_number = worker;
	snprintf(purpose, sizeof(purpose), "ask %d", worker);
}

/* ---- asks ------------------------------------------------------------------------------------- */

static RemotePeer *
peer_of(int32 node)
{
	dlist_iter iter;
	RemotePeer *peer;

	dlist_foreach (iter, &peers)
	{
		peer = dlist_container(RemotePeer, node_link, iter.cur);
		if (peer->node == node)
			return peer;
	}
	peer = MemoryContextAllocZero(TopMemoryContext, sizeof(RemotePeer));
	peer->node = node;
	peer->pool.use = &use;
	dlist_init(&peer->queue);
	dlist_init(&peer->sent);
	dlist_push_tail(&peers, &peer->node_link);
	return peer;
}

int
shard_remote_ask_room(void)
{
	return MAX_QUEUED - n_queued;
}

/* What an ask waits for that is not sent yet. */
static void
note_wait(const RemotePeer *peer, const ShardRequest *request)
{
	char why[SHARD_RING_WHY];
	const char *cause = "";

	if (peer->down)
		snprintf(why, sizeof(why), "Its home, node %d, is down.", peer->node);
	else if (peer->away_since == 0)
		snprintf(why, sizeof(why), "No connection to its home, node %d, was free in time.",
				 peer->node);
	else
	{
		snprintf(why, sizeof(why), "Its home, node %d, cannot be reached for asks since %s.",
				 peer->node, timestamptz_to_str(peer->away_since));
		cause = peer->error;
	}
	shard_ring_note_cause(request, why, cause);
}

/* What they wait for has changed. */
static void
note_all(RemotePeer *peer)
{
	dlist_iter iter;

	dlist_foreach (iter, &peer->queue)
		note_wait(peer, &dlist_container(RemoteAsk, link, iter.cur)->request);
}

/* A connection failed: those that wait are told. */
static void
note_failure(RemotePeer *peer, const char *error)
{
	bool news = peer->away_since == 0 || strncmp(peer->error, error, sizeof(peer->error) - 1) != 0;

	shard_link_trouble_note(database, worker_number, peer->node, SHARD_LINK_ASKS, error);
	if (peer->away_since == 0)
		peer->away_since = GetCurrentTimestamp();
	shard_text_copy(peer->error, error, sizeof(peer->error));
	peer->error[pg_mbcliplen(peer->error, strlen(peer->error), sizeof(peer->error) - 1)] = '\0';
	if (news)
		note_all(peer);
}

/* One stands. */
static void
note_reached(RemotePeer *peer)
{
	if (peer->away_since == 0)
		return;
	shard_link_trouble_over(database, worker_number, peer->node, SHARD_LINK_ASKS);
	peer->away_since = 0;
	note_all(peer);
}

/* Though no ask waits, a connection is tried. */
static bool
is_probed(const RemotePeer *peer)
{
	return peer->away_since != 0 && shard_clock_now() - peer->asked < PROBE_LIMIT;
}

void
shard_remote_ask_each(void (*visit)(int32 node))
{
	dlist_iter iter;

	dlist_foreach (iter, &peers)
		visit(dlist_container(RemotePeer, node_link, iter.cur)->node);
}

const char *
shard_remote_ask_error(int32 node)
{
	dlist_iter iter;

	dlist_foreach (iter, &peers)
	{
		const RemotePeer *peer = dlist_container(RemotePeer, node_link, iter.cur);

		if (peer->node == node && !peer->down && is_probed(peer))
			return peer->error;
	}
	return NULL;
}

/* The cluster says that it is down, or not any longer. */
static void
note_down(RemotePeer *peer, bool down)
{
	if (down == peer->down)
		return;
	peer->down = down;
	note_all(peer);
}

void
shard_remote_ask_begin(const ShardRequest *request, int32 node, const ShardAskCall *call)
{
	MemoryContext context;
	RemoteAsk *ask;
	RemotePeer *peer;

	peer = peer_of(node);
	context = AllocSetContextCreate(TopMemoryContext, "shard remote ask", ALLOCSET_SMALL_SIZES);
	ask = MemoryContextAllocZero(context, sizeof(RemoteAsk));
	ask->context = context;
	ask->request = *request;
	if (request->payload != NULL)
	{
		ask->request.payload = MemoryContextAllocHuge(context, Max(request->payload_len, 1));
		memcpy(ask->request.payload, request->payload, request->payload_len);
	}
	ask->call = *call;
	ask->call.entity = ask->request.entity;
	ask->call.entity_len = ask->request.entity_len;
	ask->call.payload = ask->request.payload;
	ask->call.payload_len = ask->request.payload_len;
	ask->deadline = shard_clock_now();
	if (request->timeout_us < PG_INT64_MAX - ask->deadline)
		ask->deadline += request->timeout_us;
	else
		ask->deadline = PG_INT64_MAX;
	peer->asked = shard_clock_now();
	dlist_push_tail(&peer->queue, &ask->link);
	n_queued++;
	note_wait(peer, request);
}

/* The oldest of a queue whose asker still waits, out of the queue; NULL: none. */
static RemoteAsk *
next_ask(RemotePeer *peer)
{
	while (!dlist_is_empty(&peer->queue))
	{
		RemoteAsk *ask = dlist_container(RemoteAsk, link, dlist_pop_head_node(&peer->queue));

		n_queued--;
		if (shard_ring_alive(&ask->request))
			return ask;
		MemoryContextDelete(ask->context);
	}
	return NULL;
}

/* Drops asks whose askers are gone, and their connections with them; returns how many. */
static int
drop_abandoned(dlist_head *asks)
{
	dlist_mutable_iter iter;
	int count = 0;

	dlist_foreach_modify (iter, asks)
	{
		RemoteAsk *ask = dlist_container(RemoteAsk, link, iter.cur);

		if (shard_ring_alive(&ask->request))
			continue;
		shard_pool_cancel(&ask->sent);
		dlist_delete(&ask->link);
		MemoryContextDelete(ask->context);
		count++;
	}
	return count;
}

/* Now and then: of a queue that stands still. */
static void
sweep(RemotePeer *peer)
{
	int64 now = shard_clock_now();

	if (now - peer->swept < SWEEP_EVERY)
		return;
	peer->swept = now;
	n_queued -= drop_abandoned(&peer->queue);
}

/* ---- ends ------------------------------------------------------------------------------------- */

/* Hands an error to the asker, with a line that names the home. */
static void
reply_error(RemoteAsk *ask, int32 node, ErrorData *error)
{
	MemoryContext old = MemoryContextSwitchTo(ask->context);
	char *line = psprintf("ask of an entity at node %d", node);

	error->context = error->context == NULL ? line : psprintf("%s\n%s", error->context, line);
	shard_ring_reply_error(&ask->request, error, InvalidXLogRecPtr);
	MemoryContextSwitchTo(old);
}

/* It is unknown whether the ask was executed. */
static void
reply_unknown(RemoteAsk *ask, int32 node, const char *why)
{
	ErrorData error = {
		.sqlerrcode = SHARD_ERRCODE_OUTCOME_UNKNOWN,
		.message = "connection to the entity's home was lost during an ask, outcome unknown",
		.hint =
			"Look at the entity's state before you ask again, and mind that it may still be handled."};
	MemoryContext old = MemoryContextSwitchTo(ask->context);

	error.detail = psprintf("Its effect may have been committed. %s", why);
	MemoryContextSwitchTo(old);
	reply_error(ask, node, &error);
}

/* The home refused it for a reason that will not go away by itself. */
static void
reply_refused(RemoteAsk *ask, int32 node, int sqlstate, const char *why)
{
	ErrorData error = {.sqlerrcode = sqlstate,
					   .message = "the entity's home refused an ask, it was not executed",
					   .detail = unconstify(char *, why),
					   .hint = "See shard_peers."};

	reply_error(ask, node, &error);
}

/* A reply, or the error that the handler raised. */
static void
reply_answer(RemoteAsk *ask, int32 node, const ShardAskAnswer *answer)
{
	MemoryContext old = MemoryContextSwitchTo(ask->context);
	ErrorData error;

	if (answer->outcome == SHARD_ASK_ERROR)
	{
		if (shard_ring_body_unpack_error(answer->payload, answer->payload_len, &error))
			reply_error(ask, node, &error);
		else
			reply_unknown(ask, node, "Its answer, an error, was damaged.");
	}
	else if (answer->has_payload && !shard_payload_is_jsonb(answer->payload, answer->payload_len))
		reply_unknown(ask, node, "Its reply was damaged.");
	else
		shard_ring_reply(&ask->request, answer->has_payload ? answer->payload : NULL,
						 answer->payload_len, InvalidXLogRecPtr);
	MemoryContextSwitchTo(old);
}

/* The ask was certainly not executed: its home is looked up again, soon. */
static void
postpone(RemoteAsk *ask)
{
	shard_ring_unbegin(&ask->request);
	shard_ring_note(&ask->request,
					"Its home is being looked up again: its shard has moved, or its home starts.");
	ask->again_at = shard_clock_now() + AGAIN_AFTER;
	dlist_push_tail(&postponed, &ask->link);
}

/* Gives back asks whose time has come; true: there were some. */
static bool
give_back(void (*again)(const ShardRequest *request, void *arg), void *arg)
{
	int64 now = shard_clock_now();
	bool any = false;

	while (!dlist_is_empty(&postponed))
	{
		RemoteAsk *ask = dlist_head_element(RemoteAsk, link, &postponed);

		if (ask->again_at > now)
			break;
		dlist_delete(&ask->link);
		if (shard_ring_alive(&ask->request))
			again(&ask->request, arg);
		MemoryContextDelete(ask->context);
		any = true;
	}
	return any;
}

long
shard_remote_ask_due(void)
{
	int64 left;

	if (dlist_is_empty(&postponed))
		return -1;
	left = dlist_head_element(RemoteAsk, link, &postponed)->again_at - shard_clock_now();
	return (long) (Max(left, 0) + 999) / 1000;
}

/* Reads an answer; false if the bytes are none. */
static bool
read_answer(const ShardPeer *peer, ShardAskAnswer *answer)
{
	int length;
	const char *bytes = shard_peer_answer(peer, &length);
	ShardReader reader;
	ShardCallHeader header;

	if (bytes == NULL)
		return false;
	reader = (ShardReader){.at = bytes, .end = bytes + length};
	return shard_packet_get_header(&reader, &header) && shard_packet_get_answer(&reader, answer) &&
		   reader.at == reader.end;
}

static void
take_answer(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer)
{
	int32 node = shard_pool_container(RemotePeer, pool, pool)->node;
	RemoteAsk *ask = shard_pool_container(RemoteAsk, sent, call);
	ShardAskAnswer answer;

	dlist_delete(&ask->link);
	if (!read_answer(peer, &answer))
		reply_unknown(ask, node, "Its answer was damaged.");
	else if (answer.outcome == SHARD_ASK_NOT_HERE)
	{
		postpone(ask);
		return;
	}
	else
		reply_answer(ask, node, &answer);
	MemoryContextDelete(ask->context);
}

/* Refusals that speak of the moment, or of what this node does not know yet. */
static bool
may_pass(int sqlstate)
{
	return sqlstate == SHARD_ERRCODE_HELLO_FIRST || sqlstate == SHARD_ERRCODE_NOT_YET;
}

/*
 * Errors that are raised before the call was looked into: shard_peer.ask answers all others. What is
 * not in this list may have happened after that.
 */
static bool
is_refusal(int sqlstate)
{
	switch (sqlstate)
	{
		case SHARD_ERRCODE_FENCED:
		case SHARD_ERRCODE_STRANGER:
		case ERRCODE_PROTOCOL_VIOLATION:
		case ERRCODE_FEATURE_NOT_SUPPORTED:
		case ERRCODE_INSUFFICIENT_PRIVILEGE:
		case ERRCODE_UNDEFINED_FUNCTION:
		case ERRCODE_INVALID_SCHEMA_NAME:
			return true;
		default:
			return false;
	}
}

/* The connection of an ask is gone in its midst. */
static void
end_cut_off(RemoteAsk *ask, int32 node, int sqlstate, const char *text)
{
	dlist_delete(&ask->link);
	if (may_pass(sqlstate))
	{
		postpone(ask);
		return;
	}
	if (is_refusal(sqlstate))
		reply_refused(ask, node, sqlstate, text);
	else
		reply_unknown(ask, node, text);
	MemoryContextDelete(ask->context);
}

static void
take_failure(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer)
{
	RemotePeer *home = shard_pool_container(RemotePeer, pool, pool);
	const char *text;
	int sqlstate = shard_peer_error(peer, &text);

	if (call != NULL)
		end_cut_off(shard_pool_container(RemoteAsk, sent, call), home->node, sqlstate, text);
	note_failure(home, text);
}

/* ---- links ------------------------------------------------------------------------------------ */

/* Sends an ask. False: its asker has just given up. */
static bool
send_ask(RemotePeer *peer, const ShardBoardView *view, const ShardDirectoryMember *member,
		 RemoteAsk *ask)
{
	ShardCallHeader header = shard_board_header(view, member->node, member->record.inc_no);
	int64 left = Max(ask->deadline - shard_clock_now(), 0);
	StringInfoData bytes;

	char why[64];

	if (!shard_ring_begin(&ask->request))
		return false;
	snprintf(why, sizeof(why), "It was sent to its home, node %d.", member->node);
	shard_ring_note(&ask->request, why);
	ask->call.timeout_us = left;
	initStringInfo(&bytes);
	shard_packet_put_header(&bytes, &header);
	shard_packet_put_ask(&bytes, &ask->call);
	dlist_push_tail(&peer->sent, &ask->link);
	shard_pool_send(&peer->pool, &ask->sent, "ask", &bytes,
					(int) Min(left / 1000 + GRACE_MS, LONGEST_CALL_MS));
	pfree(bytes.data);
	return true;
}

/* Sends asks of the queue over connections that are ready. */
static bool
dispatch(RemotePeer *peer, const ShardBoardView *view, const ShardDirectoryMember *member)
{
	bool any = false;
	RemoteAsk *ask;

	while (shard_pool_is_ready(&peer->pool) && (ask = next_ask(peer)) != NULL)
	{
		any = true;
		if (!send_ask(peer, view, member, ask))
			MemoryContextDelete(ask->context);
	}
	return any;
}

/* How many connections the queue keeps busy; one, to try it, if no ask waits. */
static int
connections_wanted(RemotePeer *peer)
{
	int waiting = 0;
	dlist_iter iter;

	dlist_foreach (iter, &peer->queue)
	{
		if (++waiting == MAX_LINKS)
			break;
	}
	return Max(waiting, 1);
}

/* Knows members as of now; false: they cannot be read at the moment. */
static bool
refresh_directory(void)
{
	static bool known = false;
	static uint32 seen;
	uint32 now = shard_board_directory(database);

	if (known && seen == now)
		return true;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	known = shard_catalog_lock(true);
	if (known)
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		(void) shard_directory_refresh();
		PopActiveSnapshot();
	}
	CommitTransactionCommand();
	seen = now;
	return known;
}

/* Moves the asks of one peer on. */
static bool
run_peer(RemotePeer *peer)
{
	bool any;
	ShardBoardView view;
	const ShardDirectoryMember *member;

	(void) drop_abandoned(&peer->sent);
	any = shard_pool_poll(&peer->pool);
	if (shard_pool_is_ready(&peer->pool))
		note_reached(peer);
	sweep(peer);
	if (dlist_is_empty(&peer->queue) && !is_probed(peer))
		return any;
	shard_board_get(database, &view);
	if (!view.push || !refresh_directory() || (member = shard_directory_find(peer->node)) == NULL)
		return any;
	note_down(peer, member->record.status == SHARD_MEMBER_DOWN);
	if (peer->down)
		return any;
	any |= dispatch(peer, &view, member);
	if (!dlist_is_empty(&peer->queue) || is_probed(peer))
		shard_pool_open(&peer->pool, member->record.dsn, member->record.inc_no,
						connections_wanted(peer));
	return any;
}

bool
shard_remote_ask_run(void (*again)(const ShardRequest *request, void *arg), void *arg)
{
	dlist_iter iter;
	bool any = false;

	dlist_foreach (iter, &peers)
		any |= run_peer(dlist_container(RemotePeer, node_link, iter.cur));
	return give_back(again, arg) || any;
}
