/*
 * link/transport_call.c
 *		Calls to a peer: hello, and rows, facts, marks; and what the answers say (X3, X4).
 *
 * Nothing here is durable but a quarantine. If the process dies right here: the call may be carried out
 * or not; hello will tell.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "shared/told.h"
#include "link/transport_private.h"

#include "base/compat.h"

/* The approximate limit of one call. */
#define CALL_ROWS 50000
#define CALL_BYTES (4 * 1024 * 1024)

/* Without an answer after this time the connection is given up. */
#define CALL_TIMEOUT_MS 30000
#define HELLO_TIMEOUT_MS 10000

/* Marks that go alone wait this long for others. */
#define NEWS_DELAY_MS 20

/* Waiting for a standby: the longest pause between two looks, in ms. */
#define LONGEST_NAP 16

static void
put_header(const Link *link, StringInfo out, int32 to_inc)
{
	ShardBoardView newest;
	ShardCallHeader header = shard_board_header(&shard_transport.view, link->node, to_inc);

	/* only what rises without a generation: the rest is for follow_view() to notice */
	shard_board_get(shard_transport.db, &newest);
	header.known_n = newest.learned_n;
	shard_packet_put_header(out, &header);
}

/* Where each stream of this worker's lanes stands; also of those that are empty yet. */
void
shard_transport_link_say_hello(Link *link)
{
	StringInfoData out;
	StringInfoData section;

	initStringInfo(&out);
	initStringInfo(&section);
	put_header(link, &out, 0);
	shard_each_lane (lane, shard_transport.lanes)
	{
		const ShardStream *stream;
		ShardStreamSection greet = {.lane = lane};

		stream = shard_outbox_stream(link->node, lane);
		greet.gen = stream->gen;
		greet.first_seq = stream->truncated;
		greet.writer = shard_transport.view.incarnation;
		resetStringInfo(&section);
		shard_packet_put_stream(&section, &greet);
		shard_packet_put_section(&out, SHARD_SECTION_GREET, SHARD_SECTION_MANDATORY, section.data,
								 section.len);
	}
	link->call = LINK_CALL_HELLO;
	link->hello_at = GetCurrentTimestamp();
	shard_peer_call(link->peer, "hello", out.data, out.len, HELLO_TIMEOUT_MS);
	pfree(out.data);
	pfree(section.data);
}

/* A call in the making. */
typedef struct Draft
{
	Link *link;
	StringInfoData facts;
	StringInfoData sections;
} Draft;

/* Was a fact told over this connection? If not, it is now. */
static bool
was_told(Link *link, const ShardRoute *route)
{
	int32 key[2] = {route->type_id, route->shard};
	LinkFact *fact;
	bool found;

	if (link->told == NULL)
	{
		HASHCTL info = {.keysize = sizeof(key), .entrysize = sizeof(LinkFact)};

		info.hcxt = TopMemoryContext;
		link->told =
			hash_create("shard facts told", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	fact = hash_search(link->told, key, HASH_ENTER, &found);
	if (found && fact->n >= route->n)
		return true;
	fact->n = route->n;
	return false;
}

/* For each shard of a packet: the home that it was addressed to goes before it. */
static void
put_fact(const ShardRoute *route, void *arg)
{
	Draft *draft = arg;
	ShardFact fact = {.type_id = route->type_id,
					  .shard = route->shard,
					  .n = route->n,
					  .node = route->node,
					  .epoch = route->epoch,
					  .lost = route->lost};

	if (route->node == 0 || route->n <= draft->link->known_n || was_told(draft->link, route))
		return;
	shard_packet_put_fact(&draft->facts, &fact);
}

/* The rows that may leave, of all lanes. */
static void
put_rows(Draft *draft, XLogRecPtr *waiting)
{
	Link *link = draft->link;
	StringInfoData section;
	StringInfoData parcels;
	int rows = CALL_ROWS;
	int bytes = CALL_BYTES;

	initStringInfo(&section);
	initStringInfo(&parcels);
	for (int i = 0; i < SHARD_LANES && rows > 0 && bytes > 0; i++)
	{
		int lane = (link->first_lane + i) % SHARD_LANES;
		ShardStreamSection stream;

		if ((shard_transport.lanes & shard_lane_bit(lane)) == 0)
			continue;
		resetStringInfo(&parcels);
		if (!shard_outbox_next(link->node, lane, &parcels, rows, bytes, &stream, put_fact, draft,
							   waiting))
			continue;
		rows -= stream.n_rows;
		bytes -= parcels.len;
		resetStringInfo(&section);
		shard_packet_put_stream(&section, &stream);
		appendBinaryStringInfo(&section, parcels.data, parcels.len);
		shard_packet_put_section(&draft->sections, SHARD_SECTION_STREAM, SHARD_SECTION_MANDATORY,
								 section.data, section.len);
	}
	link->first_lane = (link->first_lane + 1) % SHARD_LANES;
	pfree(section.data);
	pfree(parcels.data);
}

/* That lanes are quarantined, so that the peer shows it, too. */
static void
put_quarantines(Link *link, StringInfo out)
{
	StringInfoData section;

	if (link->quarantined == 0)
		return;
	initStringInfo(&section);
	shard_each_lane (lane, link->quarantined)
	{
		ShardQuarantineSection quarantine = {.lane = lane};

		quarantine.why = shard_outbox_stream(link->node, lane)->state;
		resetStringInfo(&section);
		shard_packet_put_quarantine(&section, &quarantine);
		shard_packet_put_section(out, SHARD_SECTION_QUARANTINE, 0, section.data, section.len);
	}
	link->quarantined = 0;
	pfree(section.data);
}

/* What there is to say, gathered. False: nothing. */
static bool
gather(Draft *draft, bool news_due, XLogRecPtr *waiting)
{
	*waiting = InvalidXLogRecPtr;
	resetStringInfo(&draft->facts);
	resetStringInfo(&draft->sections);
	put_rows(draft, waiting);
	shard_transport_link_put_replies(draft->link, &draft->sections, waiting);
	if (draft->sections.len > 0 || news_due)
		shard_transport_link_put_news(draft->link, &draft->sections, waiting);
	put_quarantines(draft->link, &draft->sections);
	return draft->sections.len > 0;
}

static void
send_draft(Draft *draft)
{
	Link *link = draft->link;
	StringInfoData out;

	initStringInfo(&out);
	enlargeStringInfo(&out, draft->sections.len + draft->facts.len + 256);
	put_header(link, &out, link->to_inc);
	if (draft->facts.len > 0)
		shard_packet_put_section(&out, SHARD_SECTION_FACTS, SHARD_SECTION_MANDATORY,
								 draft->facts.data, draft->facts.len);
	appendBinaryStringInfo(&out, draft->sections.data, draft->sections.len);
	link->call = LINK_CALL_RECEIVE;
	link->naps = 0;
	link->poll_gate = false;

	/* the next ones that come have their own delay */
	link->news_since = 0;
	shard_peer_call(link->peer, "receive", out.data, out.len, CALL_TIMEOUT_MS);
	pfree(out.data);
}

/*
 * Begins a call if there is anything to say. What waits for the gate, and for nothing else, is flushed
 * here: by then the turns since the last call have gathered behind one flush.
 */
bool
shard_transport_link_send(Link *link, TimestampTz now)
{
	Draft draft = {.link = link};
	XLogRecPtr waiting = InvalidXLogRecPtr;
	TimestampTz unconfirmed;
	bool news_due =
		link->news_since != 0 && TimestampDifferenceExceeds(link->news_since, now, NEWS_DELAY_MS);
	bool any;

	if (!news_due && link->quarantined == 0 && !shard_outbox_waits(link->node, &unconfirmed) &&
		!shard_transport_link_has_replies(link))
		return false;
	initStringInfo(&draft.facts);
	initStringInfo(&draft.sections);
	link->gathering = true;
	any = gather(&draft, news_due, &waiting);
	if (!any && waiting > GetFlushRecPtr(NULL))
	{
		XLogFlush(waiting);
		any = gather(&draft, news_due, &waiting);
	}
	if (any)
		send_draft(&draft);
	else
	{
		link->poll_gate = !XLogRecPtrIsInvalid(waiting);
		link->naps = link->poll_gate ? Min(link->naps + 1, LONGEST_NAP) : 0;
	}
	link->gathering = false;
	pfree(draft.facts.data);
	pfree(draft.sections.data);
	return any;
}

/* ---- answers ---------------------------------------------------------------------------------- */

/* What hello brought: the streams that go on, and those that must not. */
typedef struct Verdicts
{
	ShardLanes origin;	 /* lanes: the receiver knows rows that this node never wrote */
	ShardLanes receiver; /* it lacks rows that it had acknowledged */
	ShardStreamPosition example;
	int64 acked;
	int64 last;
} Verdicts;

static const char *
why_of(ShardStreamState state)
{
	return state == SHARD_STREAM_ORIGIN_REGRESSED
			   ? "origin regressed: the peer has messages that the origin does not know to have sent"
			   : "receiver regressed: the peer lacks messages that it had acknowledged";
}

/* A stream's position, from the answer to hello. */
static void
take_position(Link *link, const ShardStreamPositionSection *section, Verdicts *verdicts)
{
	ShardStreamPosition position = {section->inc, section->gen, section->seq, section->writer};
	ShardStream *stream;
	ShardStreamState state;
	bool known;

	if (section->channel != 0 || (shard_transport.lanes & shard_lane_bit(section->lane)) == 0)
		return;
	stream = shard_outbox_stream(link->node, section->lane);
	state = shard_stream_greeted(stream, &position);
	if (state == SHARD_STREAM_OPEN)
	{
		link->quarantined &= ~shard_lane_bit(section->lane);
		shard_outbox_received(link->node, section->lane, section->seq);
		shard_outbox_quarantine(link->node, section->lane, NULL, &position);
		return;
	}
	link->quarantined |= shard_lane_bit(section->lane);
	known = shard_outbox_quarantined(link->node, section->lane) != NULL;
	shard_outbox_quarantine(link->node, section->lane, why_of(state), &position);
	if (known)
		return;
	if (state == SHARD_STREAM_ORIGIN_REGRESSED)
		verdicts->origin |= shard_lane_bit(section->lane);
	else
		verdicts->receiver |= shard_lane_bit(section->lane);
	verdicts->example = position;
	verdicts->acked = Max(stream->acked, stream->truncated);
	verdicts->last = stream->last;
}

static void
warn_quarantined(const Link *link, const Verdicts *verdicts)
{
	const char *more;

	if ((verdicts->origin == 0 && verdicts->receiver == 0) ||
		!shard_told_may(shard_transport.db, link->node, "quarantined link", 0, &more))
		return;
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("link to node %d is quarantined: %s%s", link->node,
					verdicts->origin != 0
						? "this node seems to have been put back from a copy"
						: "the other node seems to have been put back from a copy",
					more),
			 errdetail("Lanes %llx: %s. The other node has " INT64_FORMAT
					   " of a stream of which " INT64_FORMAT " are acknowledged and " INT64_FORMAT
					   " exist here.",
					   (unsigned long long) (verdicts->origin | verdicts->receiver),
					   why_of(verdicts->origin != 0 ? SHARD_STREAM_ORIGIN_REGRESSED
													: SHARD_STREAM_RECEIVER_REGRESSED),
					   verdicts->example.seq, verdicts->acked, verdicts->last),
			 errhint("Messages of these lanes wait. If the node was put back on purpose, run "
					 "shard_link_accept(%d) here.",
					 link->node)));
}

static void
take_hello(Link *link, ShardReader *reader)
{
	Verdicts verdicts = {0};
	ShardReader section;
	int32 kind;
	int32 flags;

	while (shard_packet_get_section(reader, &kind, &flags, &section))
	{
		ShardStreamPositionSection position;

		if (kind == SHARD_SECTION_POSITION && shard_packet_get_position(&section, &position))
			take_position(link, &position, &verdicts);
		reader->failed |= section.failed;
	}
	warn_quarantined(link, &verdicts);
}

static void
take_received(Link *link, ShardReader *reader)
{
	ShardReader section;
	int32 kind;
	int32 flags;

	while (shard_packet_get_section(reader, &kind, &flags, &section))
	{
		ShardReceived received;

		if (kind == SHARD_SECTION_RECEIVED && shard_packet_get_received(&section, &received) &&
			received.channel == 0 && (shard_transport.lanes & shard_lane_bit(received.lane)) != 0)
			shard_outbox_received(link->node, received.lane, received.seq);
		reader->failed |= section.failed;
	}
	if (reader->failed)
		return;
	if (link->erred != 0)
		ereport(LOG, (errmsg("link to node %d is open again", link->node)));
	link->erred = 0;
	shard_transport_link_works(link);
	shard_transport_link_news_answered(link);
	shard_transport_link_replies_answered(link);
}

/* The peer has learned more of the map: facts up to there need not be told. */
static void
take_known(Link *link, int64 known_n)
{
	HASH_SEQ_STATUS all;
	LinkFact *fact;

	if (known_n <= link->known_n)
		return;
	link->known_n = known_n;
	if (link->told == NULL)
		return;
	hash_seq_init(&all, link->told);
	while ((fact = hash_seq_search(&all)) != NULL)
		if (fact->n <= known_n)
			(void) hash_search(link->told, &fact->type_id, HASH_REMOVE, NULL);
}

void
shard_transport_link_take_answer(Link *link)
{
	int length = 0;
	const char *bytes = shard_peer_answer(link->peer, &length);
	ShardReader reader = {.failed = bytes == NULL};
	ShardCallHeader header;
	LinkCall call = link->call;

	link->call = LINK_CALL_NONE;
	if (bytes != NULL)
	{
		reader.at = bytes;
		reader.end = bytes + length;
	}
	if (reader.failed || !shard_packet_get_header(&reader, &header) ||
		header.protocol_version != SHARD_PROTOCOL_VERSION || header.from != link->node)
		reader.failed = true;
	else
	{
		take_known(link, header.known_n);
		if (call == LINK_CALL_HELLO)
		{
			take_hello(link, &reader);
			link->to_inc = header.from_inc;
			link->greeted = !reader.failed;
		}
		else
			take_received(link, &reader);
	}
	if (reader.failed)
	{
		shard_peer_close(link->peer, true);
		shard_transport_link_failed(link, ERRCODE_PROTOCOL_VIOLATION,
									"the peer's answer is damaged");
	}
}
