/*
 * link/record_send.c
 *		A region worker ships the turn records of its shards with replicas to their backups (Q6, Q7).
 *
 * What is to be said to a node of a shard core/flow/replica.h says: first a question, where its copy stands, then records
 * from there on, each time with what is released. All that there is for a node goes into one call, up to a size, in the
 * order of types and shards. Whatever happens to a call, each shard in it hears of it once: by its answer, or that the call
 * was lost, after which the copy is asked again.
 *
 * Nothing here is durable. If the process dies right here: the call may be carried out or not; the next worker asks.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "base/attempt.h"
#include "base/clock.h"
#include "base/peer_errors.h"
#include "core/base/text.h"
#include "link/record_private.h"
#include "link/record_send.h"
#include "link/transport_private.h"
#include "registry/catalog.h"
#include "registry/registry.h"
#include "shared/link_trouble.h"
#include "shared/told.h"

#include "base/compat.h"

/* What is released goes with the next record, or alone after this time, in microseconds (Q13). */
#define TELL_AFTER (INT64CONST(200) * 1000)

/*
 * Before the next call, if the node could not say anything of a shard, since its worker has not met the home yet; or what it was
 * offered of one was damaged.
 */
#define SILENCE (INT64CONST(100) * 1000)

/* How often it is said again for shard_health that a copy cannot follow. */
#define SAY_AFTER (INT64CONST(1000) * 1000)

static ShardDatabase *db;
static int worker;
static ShipLink **links = NULL;
static int n_links = 0;

/* Shards whose outputs stay: they cannot be read; or the shard of their receiver cannot be found now. */
static ShipTrouble untold;
static ShipTrouble unplaced;

/* In place of a ShardReplicaState. */
#define STATE_UNREAD (-1)
#define STATE_UNPLACED (-2)

/* Of one run. */
static MemoryContext scratch = NULL;
static bool released;

void
shard_record_send_start(ShardDatabase *database, int number)
{
	db = database;
	worker = number;
}

static ShipLink *
link_of(int32 node)
{
	MemoryContext old;
	char purpose[32];
	ShipLink *link;

	for (int i = 0; i < n_links; i++)
		if (links[i]->node == node)
			return links[i];
	old = MemoryContextSwitchTo(TopMemoryContext);
	link = palloc0(sizeof(ShipLink));
	link->node = node;
	snprintf(purpose, sizeof(purpose), "records %d", worker);
	link->peer = shard_peer_create(purpose);
	links = links == NULL ? palloc(sizeof(ShipLink *))
						  : repalloc(links, (n_links + 1) * sizeof(ShipLink *));
	links[n_links++] = link;
	MemoryContextSwitchTo(old);
	return link;
}

/* ---- the end of a call ---------------------------------------------------------------------------- */

/* For shard_replica_shard_each. */
static void
forget_told(ShardReplicaShard *shard, void *arg)
{
	const ShipLink *link = arg;

	shard_replica_link_ended(&shard->home, link->node);
}

/* The connection has ended: the node may be another process by now, which knows only what it has stored. */
static void
link_ended(ShipLink *link)
{
	if (link->opened)
		shard_replica_shard_each(forget_told, link);
	link->opened = false;
}

/* The call is over; shards of which nothing was answered are asked again. */
static void
end_call(ShipLink *link)
{
	for (int i = 0; i < link->n_items; i++)
	{
		ShardReplicaShard *shard =
			link->items[i].answered ? NULL : shard_record_call_home(&link->items[i]);

		if (shard != NULL)
			shard_replica_call_lost(&shard->home, link->node);
	}
	if (link->items != NULL)
		pfree(link->items);
	link->items = NULL;
	link->n_items = 0;
}

/* What the node says of one shard. False: it was not asked. *pauses: set if it is to be said again, after a pause. */
static bool
take_one(ShipLink *link, const ShardReplicaAnswer *answer, bool *pauses)
{
	ShipItem *item =
		shard_record_call_find(link->items, link->n_items, answer->type_id, answer->shard);
	ShardReplicaShard *shard;

	if (item == NULL || item->answered)
		return false;
	shard = shard_record_call_home(item);
	/* an answer under another epoch is none */
	if (answer->epoch != item->epoch || shard == NULL)
		return true;
	item->answered = true;
	*pauses |= answer->verdict == SHARD_REPLICA_DAMAGED;
	if (shard_replica_answered(&shard->home, link->node, answer))
	{
		released = true;
		shard_replica_shard_follow(shard);
	}
	return true;
}

static bool
take_answers(ShipLink *link, ShardReader *reader, bool *pauses)
{
	ShardCallHeader header;
	ShardReader section;
	ShardReplicaAnswer answer;
	int32 kind;
	int32 flags;

	if (!shard_packet_get_header(reader, &header) ||
		header.protocol_version != SHARD_PROTOCOL_VERSION || header.from != link->node)
		return false;
	while (shard_packet_get_section(reader, &kind, &flags, &section))
	{
		if (kind != SHARD_SECTION_TURNS)
			continue;
		while (shard_replica_get_answer(&section, &answer))
			if (!take_one(link, &answer, pauses))
				return false;
		if (section.failed)
			return false;
	}
	return !reader->failed;
}

/* Said once in a run of failures of a kind. */
static void
link_failed(ShipLink *link, int sqlstate, const char *text)
{
	char error[256];
	bool news = !link->failing || link->sqlstate != sqlstate;

	link->failing = true;
	link->sqlstate = sqlstate;
	end_call(link);
	link_ended(link);
	shard_text_copy_words(error, text == NULL ? "" : text, sizeof(error));
	shard_link_trouble_note(db, worker, link->node, SHARD_LINK_RECORDS, error);
	if (news)
		ereport(LOG, (errcode(sqlstate == 0 ? ERRCODE_CONNECTION_FAILURE : sqlstate),
					  errmsg("turn records cannot be stored at node %d: %s", link->node, error),
					  errdetail("What their shards do is not shown until they are. It is tried "
								"again.")));
}

static void
link_works(ShipLink *link)
{
	if (!link->failing)
		return;
	link->failing = false;
	shard_link_trouble_over(db, worker, link->node, SHARD_LINK_RECORDS);
	ereport(LOG, (errmsg("turn records are stored at node %d again", link->node)));
}

static void
take_answer(ShipLink *link)
{
	int length = 0;
	const char *bytes = shard_peer_answer(link->peer, &length);
	ShardReader reader = {.at = bytes, .end = bytes};
	bool pauses = false;

	if (bytes != NULL)
		reader.end += length;
	if (bytes == NULL || !take_answers(link, &reader, &pauses))
	{
		shard_peer_close(link->peer, true);
		link_failed(link, ERRCODE_PROTOCOL_VIOLATION, "the node's answer is damaged");
		return;
	}
	for (int i = 0; i < link->n_items; i++)
		pauses |= !link->items[i].answered;
	shard_record_call_taken(link);
	end_call(link);
	link_works(link);
	link->not_before = pauses ? shard_clock_now() + SILENCE : 0;
}

/* ---- what is to be said --------------------------------------------------------------------------- */

/* Is it time for a call? One that tells alone that something is released may wait. */
static bool
is_due(const ShipLink *link, int64 now)
{
	return now >= link->not_before &&
		   (link->wanted || (link->tells && now - link->called_at >= TELL_AFTER));
}

static void
note_trouble(ShipTrouble *trouble, const ShardReplicaShard *shard, int state)
{
	if (trouble->count++ > 0)
		return;
	trouble->key = shard->key;
	trouble->state = state;
}

/* Why not, and what is to be done about it. */
static const char *
why_stuck(int state)
{
	if (state == SHARD_REPLICA_LACKS)
		return "it lacks turns whose records are not here any more: its database was put back from "
			   "a copy, or lost, or the records are damaged, as this node's log says";
	if (state == SHARD_REPLICA_PARTED)
		return "it has other turns than this node: one of the two databases was put back from a "
			   "copy, or its records come damaged each time, as that node's log says";
	if (state == STATE_UNPLACED)
		return "the shard of an entity that it has told something is not to be found, as this node's "
			   "log says";
	return "a record of it cannot be read here, as this node's log says";
}

/* Which shards do not go on. Their type goes by its number while the extension's tables are another session's. */
static void
describe(const ShipTrouble *trouble, char *text, Size size)
{
	const char *name = NULL;
	char type[80];

	StartTransactionCommand();
	if (shard_catalog_lock(true))
		name = shard_registry_last_name(trouble->key.type_id);
	if (name == NULL)
		snprintf(type, sizeof(type), "type %d", trouble->key.type_id);
	else
		snprintf(type, sizeof(type), "entity type \"%.64s\"", name);
	snprintf(text, size, "%d, one of them that of shard %d of %s: %s", trouble->count,
			 trouble->key.shard, type, why_stuck(trouble->state));
	CommitTransactionCommand();
	MemoryContextSwitchTo(scratch);
}

/*
 * An operator has to know, as long as it lasts: shard_health says it, and the log once a minute. What shared memory says
 * is believed for a minute. True: a line is to be written; *more: what to put behind it.
 */
static bool
report(ShipTrouble *trouble, int32 node, ShardLinkUse use, int64 now, char *text, Size size,
	   const char **more)
{
	if (trouble->count == 0)
	{
		if (trouble->said != 0)
			shard_link_trouble_over(db, worker, node, use);
		trouble->said = 0;
		return false;
	}
	if (trouble->said != 0 && now - trouble->said < SAY_AFTER)
		return false;
	trouble->said = now;
	describe(trouble, text, size);
	(void) shard_link_trouble_note(db, worker, node, use, text);
	return use != SHARD_LINK_UNPLACED &&
		   shard_told_may(db, node, use == SHARD_LINK_COPIES ? "stuck copy" : "untold outputs",
						  worker, more);
}

static void
report_stuck(ShipLink *link, int64 now)
{
	const char *more;
	char text[256];

	if (report(&link->stuck, link->node, SHARD_LINK_COPIES, now, text, sizeof(text), &more))
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("copies at node %d do not follow their home%s", link->node, more),
				 errdetail("Copies: %s.", text),
				 errhint("What these shards do is not shown until the copies have stored it. See "
						 "shard_health(), and the server's log on that node.")));
}

/* What they have told stays (entity/outputs.c). */
static void
report_untold(int64 now)
{
	const char *more;
	char text[256];

	if (report(&untold, shard_transport.view.node, SHARD_LINK_OUTPUTS, now, text, sizeof(text),
			   &more))
		ereport(WARNING, (errcode(ERRCODE_DATA_CORRUPTED),
						  errmsg("what shards with replicas have told is not sent%s", more),
						  errdetail("Shards: %s.", text), errhint("See shard_health().")));
	/* the error itself is in the log once a minute (entity/output_address.c) */
	(void) report(&unplaced, shard_transport.view.node, SHARD_LINK_UNPLACED, now, text,
				  sizeof(text), &more);
}

/* For shard_replica_shard_each: notes which nodes are to be called. */
static void
look_at(ShardReplicaShard *shard, void *arg)
{
	if (unlikely(shard->unread != 0))
		note_trouble(&untold, shard, STATE_UNREAD);
	else if (unlikely(shard->unplaced))
		note_trouble(&unplaced, shard, STATE_UNPLACED);
	for (int i = 0; i < shard->home.n_peers; i++)
	{
		const ShardReplicaPeer *peer = &shard->home.peers[i];
		ShardReplicaShipment ship;
		ShipLink *link;

		if (peer->state == SHARD_REPLICA_LACKS || peer->state == SHARD_REPLICA_PARTED)
			note_trouble(&link_of(peer->node)->stuck, shard, peer->state);
		if (!shard_replica_shipment(&shard->home, shard->home.peers[i].node, &ship))
			continue;
		link = link_of(shard->home.peers[i].node);
		if (ship.asks || ship.from <= ship.to)
			link->wanted = true;
		else
			link->tells = true;
	}
}

/* ---- links ---------------------------------------------------------------------------------------- */

static void
poll_link(ShipLink *link)
{
	for (;;)
	{
		const char *text;
		int sqlstate;

		switch (shard_peer_poll(link->peer))
		{
			case SHARD_PEER_NOTHING:
				return;
			case SHARD_PEER_OPENED:
				link->opened = true;
				break;
			case SHARD_PEER_ANSWER:
				take_answer(link);
				break;
			case SHARD_PEER_FAILED:
				sqlstate = shard_peer_error(link->peer, &text);
#ifdef SHARD_MUTANT_RECORDS_BLAMED_FOR_ALL
				if (sqlstate == ERRCODE_PROTOCOL_VIOLATION)
					sqlstate = SHARD_ERRCODE_UNREADABLE;
#endif
				if (sqlstate == SHARD_ERRCODE_UNREADABLE)
					shard_record_call_refused(link);
				link_failed(link, sqlstate, text);
				break;
		}
	}
}

static void
take_events(ShipLink *link, int64 now)
{
	poll_link(link);
}

/* Connects, and calls. */
static void
run_link(ShipLink *link, int64 now)
{
	const char *dsn = shard_transport_address_of(link->node);

	if (dsn == NULL ||
		(shard_peer_state(link->peer) != SHARD_PEER_CLOSED && !shard_peer_is_at(link->peer, dsn)))
	{
		shard_peer_close(link->peer, false);
		end_call(link);
		link_ended(link);
	}
	poll_link(link);
	if (dsn == NULL)
		return;
	if (shard_peer_state(link->peer) == SHARD_PEER_CLOSED && (link->wanted || link->tells))
	{
		shard_peer_heard(link->peer, shard_directory_find(link->node)->record.inc_no);
		if (shard_peer_open(link->peer, dsn))
			poll_link(link);
	}

	/* small calls go at once; and the kernel may have taken this one */
	if (shard_peer_state(link->peer) == SHARD_PEER_READY && is_due(link, now) &&
		shard_record_call(link))
		poll_link(link);
}

/* A link that survives its errors: each attempt meets a record that cannot be read again, which is reported once. */
static void
run_fenced(ShipLink *link, int64 now, void (*run)(ShipLink *link, int64 now))
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		run(link, now);
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(context);
		if (!link->failing || link->sqlstate != geterrcode())
			EmitErrorReport();
		error = shard_attempt_take_error();
		AbortCurrentTransaction();
		MemoryContextSwitchTo(context);
		shard_peer_close(link->peer, true);
		link_failed(link, error->sqlerrcode, error->message);
		shard_attempt_free_error(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
}

bool
shard_record_send_wants(void)
{
	return shard_replica_any() || n_links > 0;
}

bool
shard_record_send_run(void)
{
	int64 now;
	MemoryContext old;

	if (!shard_record_send_wants())
		return false;
	now = shard_clock_now();
	released = false;
	if (scratch == NULL)
		scratch = AllocSetContextCreate(TopMemoryContext, "shard records", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(scratch);
	for (int i = 0; i < n_links; i++)
	{
		links[i]->wanted = links[i]->tells = false;
		links[i]->stuck.count = 0;
		run_fenced(links[i], now, take_events);
	}
	untold.count = unplaced.count = 0;
	shard_replica_shard_each(look_at, NULL);
	report_untold(now);
	for (int i = 0; i < n_links; i++)
	{
		run_fenced(links[i], now, report_stuck);
		run_fenced(links[i], now, run_link);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(scratch);
	return released;
}

void
shard_record_send_close(void)
{
	for (int i = 0; i < n_links; i++)
	{
		if (shard_peer_state(links[i]->peer) != SHARD_PEER_CLOSED)
			shard_peer_close(links[i]->peer, false);
		end_call(links[i]);
		link_ended(links[i]);
	}
}

/* The earlier of two; -1: never. */
static long
earlier(long a, long b)
{
	if (a < 0 || b < 0)
		return Max(a, b);
	return Min(a, b);
}

static long
link_due(const ShipLink *link, int64 now)
{
	int64 at;

	if (!link->wanted && !link->tells)
		return -1;
	if (shard_peer_state(link->peer) == SHARD_PEER_CLOSED)
		return 1000;
	if (shard_peer_state(link->peer) != SHARD_PEER_READY)
		return -1;
	at = link->wanted ? now : link->called_at + TELL_AFTER;
	at = Max(at, link->not_before);
	return at <= now ? 0 : (long) ((at - now + 999) / 1000);
}

long
shard_record_send_due(void)
{
	int64 now;
	long due;

	if (n_links == 0)
		return -1;
	now = shard_clock_now();
	due = shard_peer_next_due();
	for (int i = 0; i < n_links; i++)
		due = earlier(due, link_due(links[i], now));
	return due;
}
