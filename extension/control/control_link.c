/*
 * control/control_link.c
 *		The control worker's connections to other nodes: control messages, and which node is there.
 *
 * A call carries all messages that have gathered, and its answer brings what the other side says over
 * the same link. Nothing is durable here. A link on which nothing is to be sent for a while is closed.
 *
 * An answer has no more messages than a call, and is served as calls are (control_messages.c): by turns, for a moment
 * each, the rest after a tick, and after it was told what has become durable meanwhile. Until then the link is not called.
 */
#include "postgres.h"

#include "lib/ilist.h"
#include "utils/memutils.h"

#include "control/control_private.h"
#include "core/map/control_queue.h"
#include "base/guc.h"
#include "link/peer.h"
#include "shared/told.h"
#include "core/base/text.h"

#include "base/compat.h"

/* The bytes of the messages of one call, unless a single one is longer. */
#define CALL_BYTES (1024 * 1024)

/* A single one, with its length before it. */
#define CALL_MOST (SHARD_CONTROL_MAX_BYTES - 16)

#define CALL_TIMEOUT_MS 5000
#define WHO_TIMEOUT_MS 3000

/* A link without messages is closed after this. */
#define IDLE (60 * SHARD_SECOND)

/* Links to joiners, at most: as many as are called back at a time (I17), and some that were called before. */
#define JOINER_LINKS 16

/* Members are missed, and heard of again, by these links: a peer that is back must not be kept waiting. */
#define LONGEST_BACKOFF_MS 1000

/* The longest answer to "who". */
#define WHO_MAX_BYTES 4096

/*
 * A node that is heard again after this time was away: calls that failed meanwhile say nothing of the way to it. A node
 * that has answered nothing for this time may be away.
 */
#define AWAY (5 * SHARD_SECOND)

/* How long answers are served at a time, which is twice a round; and the messages of one, before it is another one's turn. */
#define SLICE (20 * SHARD_MS)
#define TURN (2 * SHARD_MS)

typedef struct Link
{
	dlist_node link;
	int32 node;		 /* 0: by address, whichever node is there */
	bool who;		 /* asks which node is there, and no more */
	bool asked;		 /* of "who": waits for the answer */
	int64 question;	 /* of "who": of a joiner, the machine's number; 0: of a member */
	ShardUuid token; /* and the join that is to be there */
	char *dsn;		 /* as last tried */
	ShardPeer *peer;
	ShardControlQueue queue;
	char *answer; /* that is being served; NULL: none is */
	ShardReader unread;
	int64 heard;	 /* when a message of the node came; 0: never */
	int64 answered;	 /* when a call was answered; 0: never */
	int64 answering; /* since when all are; 0: the last one was not */
	int64 failing;	 /* since when none is, while the node is heard; 0: the last one was */
	int64 used;
	char error[256]; /* of the last failure; "": it works */
	bool spoke;		 /* that failure was the answer of a server */
} Link;

static dlist_head links = DLIST_STATIC_INIT(links);
static Link *feeding = NULL; /* the link whose answer is being looked at */

/* ---- links ------------------------------------------------------------------------------------ */

static Link *
find_link(int32 node, const char *dsn, bool who)
{
	dlist_iter iter;

	dlist_foreach (iter, &links)
	{
		Link *link = dlist_container(Link, link, iter.cur);

		if (link->who == who && link->question == 0 && link->node == node &&
			(node != 0 || strcmp(link->dsn, dsn) == 0))
			return link;
	}
	return NULL;
}

static Link *
new_link(int32 node, const char *dsn, bool who)
{
	Link *link = MemoryContextAllocZero(TopMemoryContext, sizeof(Link));

	link->node = node;
	link->who = who;
	link->dsn = MemoryContextStrdup(TopMemoryContext, dsn);
	link->peer = shard_peer_create(who ? "who" : "coordinator");
	shard_peer_limit_backoff(link->peer, LONGEST_BACKOFF_MS);
	link->used = shard_clock_now();
	dlist_init(&link->queue.messages);
	dlist_push_tail(&links, &link->link);
	return link;
}

static Link *
make_link(int32 node, const char *dsn, bool who)
{
	Link *link = find_link(node, dsn, who);

	return link != NULL ? link : new_link(node, dsn, who);
}

static void
end_answer(Link *link)
{
	if (link->answer != NULL)
		pfree(link->answer);
	link->answer = NULL;
}

static void
destroy_link(Link *link)
{
	shard_control_queue_clear(&link->queue);
	end_answer(link);
	shard_peer_destroy(link->peer);
	dlist_delete(&link->link);
	pfree(link->dsn);
	pfree(link);
}

void
shard_control_link_forget(void)
{
	dlist_mutable_iter iter;

	feeding = NULL;
	dlist_foreach_modify (iter, &links)
		destroy_link(dlist_container(Link, link, iter.cur));
}

/*
 * The registered address of a member, in the current memory context; "" if it is not known.
 */
const char *
shard_control_link_address(int32 node)
{
	const ShardMapKey key = {SHARD_MAP_MEMBER, node, 0};
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(shard_control.node), key);
	ShardArena *arena = shard_arena_create();
	ShardMemberRecord member;
	const char *dsn = "";

	if (node == SHARD_JOURNAL_NODE)
		return shard_journal_dsn;
	/* A journal may not have learned yet what it has accepted. */
	if (entry == NULL && shard_control.journal)
		entry = shard_map_value(shard_voter_map(shard_node_voter(shard_control.node)), key);
	if (entry != NULL && shard_record_get_member(entry, &member, arena))
		dsn = pstrdup(member.dsn);
	shard_arena_destroy(arena);
	return dsn;
}

/* ---- sending ---------------------------------------------------------------------------------- */

/*
 * Some messages make room, or find none: the machine sends those that it needs again, and the log tells the operator
 * why that takes long.
 */
static void
say_full(const Link *link, int forgotten)
{
	const char *more;

	if (!shard_told_may(shard_control.db, link->node, "full queue", 0, &more))
		return;
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 link->node != 0
				 ? errmsg("shard: messages to node %d are more than its link takes%s", link->node,
						  more)
				 : errmsg("shard: messages to another node are more than its link takes%s", more),
			 forgotten > 0 ? errdetail("The oldest messages other than commands are sent later, or "
									   "not at all.")
						   : errdetail("Commands of operators are sent later."),
			 errhint("The node, or the network, is slow; see shard_members and shard_health().")));
}

static void
enqueue(Link *link, const char *bytes, int length)
{
	MemoryContext old;
	int forgotten;
	bool taken;

	/* The receiver would not take it. */
	if (length > CALL_MOST)
	{
		ereport(LOG,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("shard: a message to node %d is too large to be sent", link->node),
				 errdetail("The message has %d bytes, which is more than %d.", length, CALL_MOST),
				 errhint(
					 "The map of the cluster has too many homes: start types with fewer shards.")));
		return;
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	taken = shard_control_queue_put(&link->queue, bytes, length, &forgotten);
	MemoryContextSwitchTo(old);
	if (!taken || forgotten > 0)
		say_full(link, forgotten);
	link->used = shard_clock_now();
}

void
shard_control_link_send(int32 node, const char *bytes, int length)
{
	const char *dsn = shard_control_link_address(node);

	if (dsn[0] != '\0')
		enqueue(make_link(node, dsn, false), bytes, length);
}

void
shard_control_link_send_to(const char *dsn, const char *bytes, int length)
{
	enqueue(make_link(0, dsn, false), bytes, length);
}

void
shard_control_link_send_back(const char *bytes, int length)
{
	if (feeding != NULL)
		enqueue(feeding, bytes, length);
}

void
shard_control_link_who(int32 node)
{
	const char *dsn = shard_control_link_address(node);
	Link *link;

	if (dsn[0] == '\0')
		return;
	link = make_link(node, dsn, true);
	link->asked = true;
	link->used = shard_clock_now();
}

/* The link of a question to a joiner. If there are enough, the one that was not used for longest becomes it. */
static Link *
joiner_link(const char *dsn, int64 question)
{
	Link *oldest = NULL;
	int count = 0;
	dlist_iter iter;

	dlist_foreach (iter, &links)
	{
		Link *link = dlist_container(Link, link, iter.cur);

		if (link->question == question)
			return link;
		count += link->question != 0;
		if (link->question != 0 && (oldest == NULL || link->used < oldest->used))
			oldest = link;
	}
	if (count < JOINER_LINKS)
		return new_link(0, dsn, true);
	shard_peer_close(oldest->peer, false);
	pfree(oldest->dsn);
	oldest->dsn = MemoryContextStrdup(TopMemoryContext, dsn);
	return oldest;
}

void
shard_control_link_joiner(const char *dsn, ShardUuid token, int64 question)
{
	Link *link = joiner_link(dsn, question);

	link->question = question;
	link->token = token;
	link->asked = true;
	link->used = shard_clock_now();
}

/*
 * One call with what has gathered.
 */
static void
call(Link *link)
{
	ShardControlQueued *message;
	StringInfoData out;

	if (link->question != 0)
	{
		initStringInfo(&out);
		shard_wire_put_uint(&out, link->token.high);
		shard_wire_put_uint(&out, link->token.low);
		shard_peer_call(link->peer, "who", out.data, out.len, WHO_TIMEOUT_MS);
		pfree(out.data);
		return;
	}
	if (link->who)
	{
		shard_peer_call(link->peer, "who", "", 0, WHO_TIMEOUT_MS);
		return;
	}
	initStringInfo(&out);
	while ((message = shard_control_queue_first(&link->queue)) != NULL)
	{
		if (out.len > 0 && out.len + message->length > CALL_BYTES)
			break;
		shard_wire_put_bytes(&out, message->bytes, message->length);
		shard_control_queue_pop(&link->queue);
	}
	shard_peer_call(link->peer, "control", out.data, out.len, CALL_TIMEOUT_MS);
	pfree(out.data);
}

/* ---- hearing ---------------------------------------------------------------------------------- */

/*
 * A member that speaks can be spoken to: its link need not wait any longer.
 */
static void
heard_of(int32 node)
{
	const char *dsn = shard_control_link_address(node);
	int64 now = shard_clock_now();
	Link *link;

	if (node == shard_node_id(shard_control.node) || dsn[0] == '\0')
		return;
	link = make_link(node, dsn, false);
	if (link->failing != 0 && now - link->heard > AWAY)
		link->failing = now;
	link->heard = now;
	shard_peer_prefer(link->peer);
	if (shard_peer_state(link->peer) != SHARD_PEER_CLOSED || link->error[0] == '\0')
		return;
	shard_peer_close(link->peer, false);
	shard_board_returned(shard_control.db);
}

void
shard_control_link_heard(int32 via, const char *bytes, int length)
{
	ShardControl message;

	if (shard_control_decode_header(bytes, (size_t) length, &message) && message.from > 0 &&
		(via == 0 || message.from == via) &&
		shard_record_uuid_equal(message.cluster, shard_node_cluster(shard_control.node)))
		heard_of(message.from);
}

/* Which node is there, as far as the answer says. */
static void
take_who(const Link *link, ShardReader *reader)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_WHO_ANSWERED,
							.node = link->node,
							.token = link->question,
							.number = shard_peer_ground(link->peer)};
	ShardWho who;

	if (!shard_who_get(reader, &who))
		return;
	event.uuid = who.incarnation;
	if (link->question != 0)
		event.flag = shard_wire_get_uint(reader) == 1 && !reader->failed;
	shard_control_event(&event);
}

/* A joiner was not reached: it hears why. */
static void
take_no_joiner(const Link *link)
{
	const char *text;

	(void) shard_peer_error(link->peer, &text);
	shard_control_event(
		&(ShardNodeEvent){.kind = SHARD_EVENT_WHO_ANSWERED, .token = link->question, .text = text});
}

/* The link does not work: said once for a run of the same failure. */
static void
fail(Link *link, int sqlstate, const char *text)
{
	char error[sizeof(link->error)];

	shard_text_copy_words(error, text, sizeof(error));
	if (strcmp(link->error, error) != 0)
		ereport(LOG, (errcode(sqlstate != 0 ? sqlstate : ERRCODE_CONNECTION_FAILURE),
					  link->node != 0 ? errmsg("shard: no control link to node %d", link->node)
									  : errmsg("shard: no control link to another node"),
					  errdetail_internal("%s", text)));
	strcpy(link->error, error);
	link->spoke = sqlstate != 0 && ERRCODE_TO_CATEGORY(sqlstate) != ERRCODE_CONNECTION_EXCEPTION;
	link->answering = 0;
	if (link->failing == 0)
		link->failing = shard_clock_now();
	shard_control_queue_clear(&link->queue);
}

/*
 * The connection failed.
 */
static void
take_failure(Link *link)
{
	const char *text;
	int sqlstate = shard_peer_error(link->peer, &text);

	fail(link, sqlstate, text);
}

/* Are there more messages than a call may have, too? */
static bool
says_too_much(const char *answer, int length)
{
	ShardReader reader = {answer, answer + length, false};
	int count = 0;

	while (reader.at < reader.end && !reader.failed)
	{
		size_t bytes_length;

		(void) shard_wire_get_bytes(&reader, &bytes_length);
		if (++count > SHARD_CONTROL_MAX_MESSAGES)
			return true;
	}
	return false;
}

static void
take_too_much(Link *link)
{
	char text[sizeof(link->error)];

	snprintf(text, sizeof(text),
			 "the answer to shard_peer.control() has more messages than any may have, %d: find out "
			 "what listens at the address, a node does not do that",
			 SHARD_CONTROL_MAX_MESSAGES);
	shard_peer_close(link->peer, true);
	fail(link, ERRCODE_PROTOCOL_VIOLATION, text);
}

/*
 * What came back over a link.
 */
static void
take_answer(Link *link)
{
	int length;
	const char *answer = shard_peer_answer(link->peer, &length);
	const char *more;

	if (answer != NULL && !link->who && says_too_much(answer, length))
	{
		take_too_much(link);
		return;
	}
	if (link->error[0] != '\0' && !link->who)
		shard_board_returned(shard_control.db);
	link->error[0] = '\0';
	link->failing = 0;
	link->answered = shard_clock_now();
	if (link->answering == 0)
		link->answering = link->answered;
	if (answer == NULL)
		return;
	if (length > (link->who ? WHO_MAX_BYTES : SHARD_CONTROL_MAX_BYTES))
	{
		if (shard_told_may(shard_control.db, link->node, "large answer", 0, &more))
			ereport(LOG,
					(errmsg("an answer of %d bytes from %s is ignored: it has too many%s", length,
							link->node != 0 ? psprintf("node %d", link->node) : "a joiner", more)));
		return;
	}
	/* The peer's own ends with whatever the link does next. */
	end_answer(link);
	link->answer = MemoryContextAlloc(TopMemoryContext, Max(length, 1));
	memcpy(link->answer, answer, length);
	link->unread = (ShardReader){link->answer, link->answer + length, false};
	if (link->who)
	{
		take_who(link, &link->unread);
		end_answer(link);
	}
}

/* ---- answers that are served ------------------------------------------------------------------ */

/*
 * The next message of an answer. False: there is none.
 */
static bool
serve_next(Link *link)
{
	int32 via = link->node != 0 ? link->node : SHARD_VIA_SEED;
	size_t length;
	const char *bytes;

	if (link->unread.at >= link->unread.end)
		return false;
	bytes = shard_wire_get_bytes(&link->unread, &length);
	if (link->unread.failed)
		return false;
	feeding = link;
	shard_control_link_heard(via, bytes, (int) length);
	shard_control_receive(via, bytes, (int) length);
	feeding = NULL;
	return true;
}

/* An answer has its turn. The others' come before its next one. */
static void
serve(Link *link)
{
	int64 end = shard_clock_now() + TURN;

	do
	{
		if (!serve_next(link))
		{
			end_answer(link);
			return;
		}
	} while (shard_clock_now() < end);
	dlist_delete(&link->link);
	dlist_push_tail(&links, &link->link);
}

/* The link whose answer is to be served; NULL: none. */
static Link *
answered_link(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &links)
	{
		Link *link = dlist_container(Link, link, iter.cur);

		if (link->answer != NULL)
			return link;
	}
	return NULL;
}

/* Serves answers for a while. True: there is more. */
static bool
serve_answers(void)
{
	int64 end = shard_clock_now() + SLICE;
	Link *link;

	while ((link = answered_link()) != NULL)
	{
		serve(link);
		if (shard_clock_now() >= end)
			break;
	}
	return answered_link() != NULL;
}

/* ---- running ---------------------------------------------------------------------------------- */

/* Opens the link if it is closed, or if the member's address has changed. */
static void
connect(Link *link)
{
	const char *dsn = link->node != 0 ? shard_control_link_address(link->node) : link->dsn;

	if (strcmp(dsn, link->dsn) != 0)
	{
		pfree(link->dsn);
		link->dsn = MemoryContextStrdup(TopMemoryContext, dsn);
		shard_peer_close(link->peer, false);
	}
	if (shard_peer_state(link->peer) != SHARD_PEER_CLOSED)
		return;
	/* Out of date by the time it could be sent: the machine sends it again if it needs it. */
	if (dsn[0] == '\0' || !shard_peer_open(link->peer, dsn))
		shard_control_queue_clear(&link->queue);
}

/*
 * Brings one link forward. True: something came. *over: it is not needed any more. One that asked in
 * vain stays for its back-off, and for what it said already.
 */
static bool
run_link(Link *link, int64 now, bool *over)
{
	ShardPeerEvent event;
	bool any = false;

	if (link->asked || link->queue.count > 0)
		connect(link);
	while ((event = shard_peer_poll(link->peer)) != SHARD_PEER_NOTHING)
	{
		any = true;
		if (event == SHARD_PEER_ANSWER)
			take_answer(link);
		else if (event == SHARD_PEER_FAILED && link->question != 0)
			take_no_joiner(link);
		else if (event == SHARD_PEER_FAILED)
			take_failure(link);
		if (link->who && event != SHARD_PEER_OPENED)
		{
			link->asked = false;
			*over = event == SHARD_PEER_ANSWER;
			return true;
		}
	}
	if (shard_peer_state(link->peer) == SHARD_PEER_READY && link->answer == NULL &&
		(link->asked || link->queue.count > 0))
		call(link);
	*over = now - link->used > IDLE && link->answer == NULL;
	return any;
}

bool
shard_control_link_run(void)
{
	dlist_mutable_iter iter;
	int64 now = shard_clock_now();
	bool any = false;

	dlist_foreach_modify (iter, &links)
	{
		Link *link = dlist_container(Link, link, iter.cur);
		bool over = false;

		any |= run_link(link, now, &over);
		if (over)
			destroy_link(link);
	}
	return serve_answers() || any;
}

bool
shard_control_link_waits(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &links)
	{
		Link *link = dlist_container(Link, link, iter.cur);
		ShardPeerState state = shard_peer_state(link->peer);

		if (link->answer != NULL || state == SHARD_PEER_BUSY ||
			(state == SHARD_PEER_READY && link->queue.count > 0))
			return true;
	}
	return false;
}

void
shard_control_link_report(int32 node, int64 now, ShardMemberReport *report)
{
	const Link *link = find_link(node, "", false);

	report->heard_us = -1;
	report->answering_us = -1;
	report->failing_us = -1;
	report->link_error = "";
	report->link_spoke = false;
	if (link == NULL)
		return;
	report->link = shard_peer_state(link->peer) == SHARD_PEER_READY ||
				   shard_peer_state(link->peer) == SHARD_PEER_BUSY;
	if (link->heard != 0)
		report->heard_us = now - link->heard;
	if (link->answering != 0 && now - link->answered < AWAY)
		report->answering_us = now - link->answering;
	if (link->failing != 0)
		report->failing_us = now - link->failing;
	report->link_error = link->error;
	report->link_spoke = link->error[0] != '\0' && link->spoke;
}
