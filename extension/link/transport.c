/*
 * link/transport.c
 *		A region worker's links to the other nodes: when to connect, call, and give up (section 7).
 *
 * A link has one connection, and on it one call at a time. It is opened when there is something to say
 * and stays open; without anything to say nothing is called. All that a link knows is volatile: after
 * any failure the connection is closed, and hello tells where to go on (X5).
 *
 * If the process dies right here: as after a failure.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/attempt.h"
#include "registry/catalog.h"
#include "shared/link_trouble.h"
#include "link/record_send.h"
#include "link/remote_ask.h"
#include "link/transport_private.h"
#include "core/base/text.h"

#include "base/compat.h"

/*
 * When packets were received but are not known to be done for this long, hello asks once more: the home may have lost
 * its memory of what it has to tell.
 */
#define HELLO_AGAIN_MS 5000
#define LAST_HELLO_AGAIN_MS 60000

/* Marks that go alone wait this long for others (transport_call.c), and a little more. */
#define NEWS_DUE_MS 21

Transport shard_transport;

void
shard_transport_start(ShardDatabase *db, int worker, ShardLanes lanes, ShardRoutes *routes)
{
	shard_transport.db = db;
	shard_transport.worker = worker;
	shard_transport.lanes = lanes;
	shard_transport.routes = routes;
	shard_link_trouble_forget(db, worker);
	shard_record_send_start(db, worker);
}

Link *
shard_transport_link_of(int32 node)
{
	Transport *t = &shard_transport;
	MemoryContext old;
	char purpose[32];
	Link *link;

	for (int i = 0; i < t->n_links; i++)
		if (t->links[i]->node == node)
			return t->links[i];
	old = MemoryContextSwitchTo(TopMemoryContext);
	link = palloc0(sizeof(Link));
	link->node = node;
	snprintf(purpose, sizeof(purpose), "region %d", t->worker);
	link->peer = shard_peer_create(purpose);
	link->hello_again_ms = HELLO_AGAIN_MS;
	dlist_init(&link->replies);
	t->links = t->links == NULL ? palloc(sizeof(Link *))
								: repalloc(t->links, (t->n_links + 1) * sizeof(Link *));
	t->links[t->n_links++] = link;
	MemoryContextSwitchTo(old);
	return link;
}

/* The connection is gone: what it knew is void. */
static void
forget_connection(Link *link)
{
	link->call = LINK_CALL_NONE;
	link->gathering = false;
	link->greeted = false;
	link->poll_gate = false;
	link->naps = 0;
	link->known_n = 0;
	link->quarantined = 0;
	if (link->told != NULL)
		hash_destroy(link->told);
	link->told = NULL;
	shard_outbox_close(link->node);
	shard_transport_link_news_lost(link);
}

/* Said once in a run of failures of a kind. */
void
shard_transport_link_failed(Link *link, int sqlstate, const char *text)
{
	bool news = (!link->failing || link->sqlstate != sqlstate) &&
				(link->erred == 0 || link->erred != sqlstate);

	link->failing = true;
	link->sqlstate = sqlstate;
	link->failed_at = GetCurrentTimestamp();
	shard_text_copy_words(link->error, text == NULL ? "" : text, sizeof(link->error));
	forget_connection(link);
	shard_outbox_reachable(link->node, false);
	link->troubled = true;
	shard_link_trouble_note(shard_transport.db, shard_transport.worker, link->node, SHARD_LINK_ROWS,
							link->error);
	if (news)
		ereport(LOG, (errcode(sqlstate == 0 ? ERRCODE_CONNECTION_FAILURE : sqlstate),
					  errmsg("link to node %d failed: %s", link->node, link->error),
					  errdetail("Messages for the node wait. The link is tried again; see "
								"shard_peers.")));
}

/* Something went through. */
void
shard_transport_link_works(Link *link)
{
	if (link->troubled)
		shard_link_trouble_over(shard_transport.db, shard_transport.worker, link->node,
								SHARD_LINK_ROWS);
	link->troubled = false;
}

/* Whether the peer is to be told anything beside rows. */
static bool
has_news(Link *link)
{
	return link->n_news > 0 || shard_transport_link_has_replies(link);
}

/* Whether the link is to be open: something waits, or has not been told to be done. */
static bool
is_wanted(Link *link, TimestampTz *unconfirmed)
{
	return shard_outbox_waits(link->node, unconfirmed) || *unconfirmed != 0 || has_news(link);
}

/* Hello was answered. */
static void
link_is_open(Link *link)
{
	TimestampTz unconfirmed;

	link->open_since = GetCurrentTimestamp();
	shard_outbox_reachable(link->node, true);
	if (link->failing && link->erred == 0)
		ereport(LOG, (errmsg("link to node %d is open again", link->node)));
	link->failing = false;
	link->sqlstate = 0;

	/* a peer that greets may still be unable to receive */
	if (!shard_outbox_waits(link->node, &unconfirmed) && !has_news(link))
		shard_transport_link_works(link);
}

static void
poll_link(Link *link)
{
	for (;;)
	{
		const char *text;
		int sqlstate;
		bool greeted = link->greeted;

		switch (shard_peer_poll(link->peer))
		{
			case SHARD_PEER_NOTHING:
				return;
			case SHARD_PEER_OPENED:
				break;
			case SHARD_PEER_ANSWER:
				shard_transport_link_take_answer(link);
				if (link->greeted && !greeted)
					link_is_open(link);
				break;
			case SHARD_PEER_FAILED:
				sqlstate = shard_peer_error(link->peer, &text);
				shard_transport_link_failed(link, sqlstate, text);
				break;
		}
	}
}

void
shard_transport_restart(int32 node)
{
	for (int i = 0; i < shard_transport.n_links; i++)
	{
		Link *link = shard_transport.links[i];

		if (link->node != node)
			continue;
		shard_peer_close(link->peer, false);
		forget_connection(link);
	}
}

/* Can that member be called at all? NULL: no. */
const char *
shard_transport_address_of(int32 node)
{
	const ShardDirectoryMember *member = shard_directory_find(node);

	if (member != NULL && (member->record.status == SHARD_MEMBER_REMOVED ||
						   member->record.status == SHARD_MEMBER_WRITTEN_OFF))
		shard_outbox_gone(node);
	if (member == NULL || member->record.dsn == NULL || member->record.dsn[0] == '\0')
		return NULL;
	switch (member->record.status)
	{
		case SHARD_MEMBER_NONE:
		case SHARD_MEMBER_DOWN:
		case SHARD_MEMBER_REMOVED:
		case SHARD_MEMBER_WRITTEN_OFF:
			return NULL;
		default:
			return member->record.dsn;
	}
}

/* Is it time to ask once more for marks? */
static bool
hello_is_due(Link *link, TimestampTz unconfirmed, TimestampTz now)
{
	if (unconfirmed == 0)
	{
		link->hello_again_ms = HELLO_AGAIN_MS;
		return false;
	}
	if (!TimestampDifferenceExceeds(Max(unconfirmed, link->hello_at), now, link->hello_again_ms))
		return false;
	link->hello_again_ms = Min(link->hello_again_ms * 2, LAST_HELLO_AGAIN_MS);
	return true;
}

/*
 * A node that is no member any more has nothing to say: its link ends before it fails, and earlier failures of the link
 * are dropped. A quarantine stays until an operator ends it.
 */
static void
close_gone(Link *link)
{
	const ShardDirectoryMember *member = shard_directory_find(link->node);

	if (member == NULL || link->quarantined != 0 ||
		(member->record.status != SHARD_MEMBER_REMOVED &&
		 member->record.status != SHARD_MEMBER_WRITTEN_OFF))
		return;
	shard_outbox_gone(link->node);
	shard_transport_link_replies_gone(link);
	shard_transport_link_works(link); /* its troubles are not reported any more */
	link->failing = false;
	if (shard_peer_state(link->peer) == SHARD_PEER_CLOSED)
		return;
	shard_peer_close(link->peer, false);
	forget_connection(link);
}

/* The member has another address: the server at the one before shall neither hear nor speak any more. */
static void
follow_address(Link *link)
{
	const char *dsn;

	if (shard_peer_state(link->peer) == SHARD_PEER_CLOSED ||
		(dsn = shard_transport_address_of(link->node)) == NULL || shard_peer_is_at(link->peer, dsn))
		return;
	shard_peer_close(link->peer, false);
	forget_connection(link);
}

/* What happened on a link, and what follows. */
static void
run_link(Link *link, TimestampTz now)
{
	TimestampTz unconfirmed;
	bool wanted;
	const char *dsn;

	if (link->gathering)
	{
		shard_peer_close(link->peer, true);
		forget_connection(link);
	}
	close_gone(link);
	follow_address(link);
	poll_link(link);
	wanted = is_wanted(link, &unconfirmed);
	if (shard_peer_state(link->peer) == SHARD_PEER_CLOSED && wanted)
	{
		dsn = shard_transport_address_of(link->node);
		if (dsn != NULL)
			shard_peer_heard(link->peer, shard_directory_find(link->node)->record.inc_no);
		if (dsn == NULL)
			shard_outbox_reachable(link->node, false);
		else if (shard_peer_open(link->peer, dsn))
			poll_link(link);
	}
	/* nothing is missed on a link that nobody needs: whether it would fail again is not known before it is needed */
	if (shard_peer_state(link->peer) == SHARD_PEER_CLOSED && !wanted)
		shard_transport_link_works(link);
	if (shard_peer_state(link->peer) != SHARD_PEER_READY)
		return;
	if (!link->greeted || hello_is_due(link, unconfirmed, now))
		shard_transport_link_say_hello(link);
	else if (!shard_transport_link_send(link, now))
		return;

	/* small calls go at once; and the kernel may have taken this one */
	poll_link(link);
}

/*
 * A link that survives its errors: a packet that cannot be read harms the node alone that it is for. Each
 * attempt meets it again, which is reported once.
 */
static void
run_fenced_link(Link *link, TimestampTz now)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		run_link(link, now);
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(context);
		if (link->erred != geterrcode())
			EmitErrorReport();
		error = shard_attempt_take_error();
		AbortCurrentTransaction();
		MemoryContextSwitchTo(context);
		shard_peer_close(link->peer, true);
		shard_transport_link_failed(link, error->sqlerrcode, error->message);
		link->erred = error->sqlerrcode;
		shard_attempt_free_error(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
}

static void
close_all(void)
{
	for (int i = 0; i < shard_transport.n_links; i++)
	{
		Link *link = shard_transport.links[i];

		if (shard_peer_state(link->peer) == SHARD_PEER_CLOSED)
			continue;
		shard_peer_close(link->peer, false);
		forget_connection(link);
	}
	shard_record_send_close();
}

/* Learns which node this is, if that changed. False: nothing may leave now. */
static bool
follow_view(void)
{
	Transport *t = &shard_transport;
	ShardBoardView *view = &t->view;
	uint32 generation = shard_board_generation(t->db);

	if (generation != t->generation)
	{
		ShardBoardView before = *view;

		shard_board_get(t->db, view);
		t->generation = view->generation;
		if (before.node != view->node || before.inc_no != view->inc_no || before.era != view->era ||
			!shard_record_uuid_equal(before.cluster, view->cluster) ||
			!shard_record_uuid_equal(before.incarnation, view->incarnation))
			close_all();
	}
	if (view->push && !view->fenced && shard_outbox_is_ready(view->incarnation))
		return true;
	close_all();
	return false;
}

/* Reads the members' records, if they changed. */
static void
refresh_directory(void)
{
	uint32 directory = shard_board_directory(shard_transport.db);

	if (shard_transport.refreshed && directory == shard_transport.directory)
		return;
	StartTransactionCommand();
	if (shard_catalog_lock(true))
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		(void) shard_directory_refresh();
		PopActiveSnapshot();
		shard_transport.directory = directory;
		shard_transport.refreshed = true;
	}
	CommitTransactionCommand();
}

/* A node is back: links that wait with their next attempt need not. */
static void
follow_returns(void)
{
	uint32 returns = shard_board_returns(shard_transport.db);

	if (returns == shard_transport.returns)
		return;
	shard_transport.returns = returns;
	shard_peer_hurry();
}

/* Links, with memory that goes in any case. */
static void
run_links(void)
{
	Transport *t = &shard_transport;
	TimestampTz now = GetCurrentTimestamp();
	MemoryContext old;

	for (int i = 0; i < shard_outbox_nodes(); i++)
		(void) shard_transport_link_of(shard_outbox_node(i));
	if (t->scratch == NULL)
		t->scratch =
			AllocSetContextCreate(TopMemoryContext, "shard transport", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(t->scratch);
	for (int i = 0; i < t->n_links; i++)
		run_fenced_link(t->links[i], now);
	MemoryContextSwitchTo(old);
	MemoryContextReset(t->scratch);
}

bool
shard_transport_run(void)
{
	if (shard_outbox_nodes() == 0 && shard_transport.n_links == 0 && !shard_record_send_wants())
		return false;
	if (!follow_view())
		return false;
	refresh_directory();
	follow_returns();
	run_links();
	return shard_record_send_run();
}

static long
earlier(long a, long b)
{
	if (a < 0 || b < 0)
		return Max(a, b);
	return Min(a, b);
}

/* When a link has to be looked at, though nothing happened. */
static long
link_due(Link *link, TimestampTz now)
{
	TimestampTz unconfirmed;
	bool waits = shard_outbox_waits(link->node, &unconfirmed);
	long due = -1;

	if (shard_peer_state(link->peer) != SHARD_PEER_READY)
		return waits || has_news(link) ? 1000 : -1;
	if (link->poll_gate)
		due = Max(link->naps, 1);
	else if (shard_transport_link_has_replies(link))
		due = 0;
	/* news that wait for the gate wait for the next nap's end, too */
	if (link->news_since != 0 && !link->poll_gate)
		due = earlier(due,
					  Max(0, NEWS_DUE_MS - TimestampDifferenceMilliseconds(link->news_since, now)));
	if (unconfirmed != 0)
		due = earlier(due, link->hello_again_ms);
	return due;
}

long
shard_transport_due(void)
{
	TimestampTz now;
	long due = shard_record_send_due();

	if (shard_transport.n_links == 0)
		return due;
	now = GetCurrentTimestamp();
	due = earlier(due, shard_peer_next_due());
	for (int i = 0; i < shard_transport.n_links; i++)
		due = earlier(due, link_due(shard_transport.links[i], now));
	return due;
}

/* ---- for people ------------------------------------------------------------------------------- */

/* Why lanes of a link are quarantined; NULL: none is. */
static const char *
quarantine_of(int32 node)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if ((shard_transport.lanes & shard_lane_bit(lane)) != 0 &&
			shard_outbox_quarantined(node, lane) != NULL)
			return shard_outbox_quarantined(node, lane);
	return NULL;
}

static void
report_link(Link *link, const ShardOutboxStatus *status, StringInfo out)
{
	ShardTransportState state = SHARD_TRANSPORT_CLOSED;
	const char *text = quarantine_of(link->node);
	TimestampTz unconfirmed;

	if (text != NULL)
		state = SHARD_TRANSPORT_QUARANTINED;
	else if (link->greeted)
		state = SHARD_TRANSPORT_OPEN;
	else if (shard_peer_state(link->peer) != SHARD_PEER_CLOSED)
		state = SHARD_TRANSPORT_CONNECTING;
	else if (!is_wanted(link, &unconfirmed))
		state = SHARD_TRANSPORT_IDLE;
	if (text == NULL)
		text = link->failing && state != SHARD_TRANSPORT_IDLE ? link->error : "";
	if (text[0] == '\0' && shard_remote_ask_error(link->node) != NULL)
		text = psprintf("asks: %s", shard_remote_ask_error(link->node));
	shard_wire_put_int(out, link->node);
	shard_wire_put_int(out, state);
	shard_wire_put_int(out, link->greeted ? link->open_since : 0);
	shard_wire_put_int(out, status->messages);
	shard_wire_put_int(out, status->bytes);
	shard_wire_put_int(out, status->oldest);
	shard_wire_put_text(out, text);
}

void
shard_transport_read_report(ShardReader *in, ShardTransportReport *report)
{
	report->node = shard_wire_get_int32(in);
	report->state = (ShardTransportState) shard_wire_get_int32(in);
	report->open_since = shard_wire_get_int(in);
	report->messages = shard_wire_get_int(in);
	report->bytes = shard_wire_get_int(in);
	report->oldest = shard_wire_get_int(in);
	report->error = shard_wire_get_piece(in, &report->error_len);
}

static void
know_link(int32 node)
{
	(void) shard_transport_link_of(node);
}

void
shard_transport_report(StringInfo out)
{
	for (int i = 0; i < shard_outbox_nodes(); i++)
		know_link(shard_outbox_node(i));
	shard_remote_ask_each(know_link);
	for (int i = 0; i < shard_transport.n_links; i++)
	{
		ShardOutboxStatus status = {0};

		for (int n = 0; n < shard_outbox_nodes(); n++)
			if (shard_outbox_node(n) == shard_transport.links[i]->node)
				shard_outbox_status(n, &status);
		report_link(shard_transport.links[i], &status, out);
	}
}
