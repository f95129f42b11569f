/*
 * link/receive.c
 *		Messages, facts and marks from another node: hello and receive (X3, X4).
 *
 * One call is one transaction: the lock of the extension, then the locks of the streams it speaks of, ascending by
 * lane; what is new of each stream is appended to the log behind the facts that came with it, and the new positions as
 * rows of the same transaction. After the commit the positions in shared memory follow, and only then are the locks
 * released; workers of the lanes are woken. Then, with nothing held, the call waits for the release gate, and answers
 * (T3). A call that brings only marks and refusals does not wait: the node that tells them will tell them again.
 *
 * If the process dies right here: before the commit nothing happened. After it rows and positions are there, both or
 * none, and the caller, which got no answer, says hello, hears the position and goes on behind it. A backend that
 * carries out a call of a connection long gone commits before or after the lock; rows up to the position are skipped,
 * and rows behind a gap are refused (X5). An answer that was given tells what is durable (G1), as a position is told
 * only when the gate has passed the commit that made it, in whichever backend.
 *
 * Snapshots play no part: a position is read under the stream's lock from shared memory, which each
 * commit changes before it releases that lock.
 *
 * The bytes come from anywhere. core/flow/packet.c takes only what fits together; what it cannot judge, texts
 * and messages, is looked at here. A call with one bad byte is refused as a whole.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lock.h"

#include "link/callee.h"
#include "registry/catalog.h"
#include "core/base/message.h"
#include "shared/gate.h"
#include "log/log.h"
#include "registry/payload.h"
#include "base/peer_errors.h"
#include "link/stream_position_table.h"
#include "link/receive.h"
#include "registry/security.h"
#include "log/session.h"
#include "base/damage.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_receive_hello);
PG_FUNCTION_INFO_V1(shard_receive_rows);

/* Channel of plain items; the others are for shards that have replicas. */
#define PLAIN_CHANNEL 0

/* One call. */
typedef struct Receive
{
	ShardCallee callee;
	bool hello;
	ShardLanes lanes;	 /* of the streams that the call names: locked */
	ShardLanes answered; /* of those that the answer speaks of: the call greets them or has rows */
	ShardLanes changed;	 /* of the positions that changed */
	ShardPeerPosition position[SHARD_LANES]; /* as of this transaction */
	ShardLanes goes_on;						 /* of those that are certainly not quarantined */
	ShardLanes news;						 /* the lanes whose quarantine began or ended */
	int32 quarantine[SHARD_LANES];			 /* as the origin says now; 0: nothing */
	ShardFact *facts;						 /* decided homes that came with it, and are true */
	int n_facts;
	ShardReceiveTarget target;
} Receive;

/* Positions of this transaction, for its end. */
static ShardPeerPosition committing[SHARD_LANES];
static int n_committing = 0;

/* ---- the end of the transaction ----------------------------------------------------------------- */

/*
 * Before the transaction's locks are released. The log and table shard.position are the truth, so
 * nothing happens to positions at an abort.
 */
static void
at_xact_event(XactEvent event, void *arg)
{
	ShardDatabase *db;

	if (n_committing == 0)
		return;
	if (event == XACT_EVENT_COMMIT && (db = shard_shmem_database()) != NULL)
		for (int i = 0; i < n_committing; i++)
		{
			committing[i].lsn = XactLastCommitEnd;
			shard_stream_position_set(db, &committing[i]);
		}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
		n_committing = 0;
}

void
shard_receive_init(void)
{
	RegisterXactCallback(at_xact_event, NULL);
}

/* ---- damage ------------------------------------------------------------------------------------- */

/* Raises that the bytes are not those of a call. */
static void
damaged(const Receive *receive, const char *what)
{
	shard_damage_raise(psprintf("the call of node %d", receive->callee.header.from), what,
					   "Nothing of it was taken.");
}

/* ---- streams: locks and positions ----------------------------------------------------------------- */

static ShardStreamPositionKey
key_of(const Receive *receive, int lane)
{
	return (ShardStreamPositionKey){.dboid = MyDatabaseId,
									.origin = receive->callee.header.from,
									.lane = lane,
									.channel = PLAIN_CHANNEL};
}

/*
 * The lock of a stream. It differs from the turn locks (region.c), of which the last field is 0.
 */
static void
lock_stream(int32 origin, int lane)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, shard_catalog_get()->node, (Oid) origin,
					   1 + PLAIN_CHANNEL * SHARD_LANES + lane);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/* Errors unless positions of the lane are known since the start of the server. */
static void
check_ready(const Receive *receive, int lane)
{
	if (shard_stream_position_is_ready(receive->callee.db, shard_catalog_get()->node, lane))
		return;
	ereport(ERROR,
			(errcode(SHARD_ERRCODE_NOT_YET),
			 errmsg("node %d is starting up", receive->callee.view.node),
			 errdetail("The region worker of lane %d has not read its position yet.", lane)));
}

/* Locks the streams of the call, ascending, and reads their positions. */
static void
lock_streams(Receive *receive)
{
	shard_each_lane (lane, receive->lanes)
	{
		ShardStreamPositionKey key = key_of(receive, lane);

		lock_stream(key.origin, lane);
		check_ready(receive, lane);
		if (!shard_stream_position_get(&key, &receive->position[lane]))
			shard_stream_position_reserve(&key);
	}
}

/* What the call says of a stream was judged; errors unless its rows are taken. */
static void
check_verdict(const Receive *receive, ShardStreamVerdict verdict, const ShardStreamSection *stream)
{
	const ShardCallHeader *header = &receive->callee.header;
	const ShardStreamPosition *position = &receive->position[stream->lane].stream;

	switch (verdict)
	{
		case SHARD_STREAM_TAKE:
			return;
		case SHARD_STREAM_FENCED:
			ereport(ERROR,
					(errcode(SHARD_ERRCODE_FENCED),
					 errmsg("incarnation %d of node %d is fenced", header->from_inc, header->from),
					 errdetail("Incarnation %d of the node has said hello.", position->inc)));
			break;
		case SHARD_STREAM_GAP:
			ereport(ERROR,
					(errcode(SHARD_ERRCODE_HELLO_FIRST),
					 errmsg("rows of node %d are missing on lane %d", header->from, stream->lane),
					 errdetail("The call begins with row " INT64_FORMAT
							   ", the last one received is " INT64_FORMAT ".",
							   stream->first_seq, position->seq)));
			break;
		case SHARD_STREAM_HELLO_FIRST:
			ereport(
				ERROR,
				(errcode(SHARD_ERRCODE_HELLO_FIRST),
				 errmsg("node %d has not said hello on lane %d", header->from, stream->lane),
				 errdetail("Known are incarnation %d and generation %d, the call has %d and %d.",
						   position->inc, position->gen, header->from_inc, stream->gen)));
			break;
	}
}

/* ---- rows of the log ------------------------------------------------------------------------------ */

/* Appends a row of a lane, that lane's worker is woken at commit. */
static void
append(const ShardRow *row, int lane)
{
	shard_log_append(row);
	shard_session_appended(lane);
}

/* Appends a row with a payload that this node makes. from: the node whose word it is, where that matters; else 0. */
static void
append_bytes(ShardKind kind, int32 from, int32 type_id, int32 shard, int lane,
			 const StringInfoData *bytes)
{
	ShardRow row = {.kind = kind,
					.type_id = type_id,
					.shard = shard,
					.entity = "",
					.payload = bytes->data,
					.payload_len = bytes->len,
					.epoch = -1,
					.mid_node = from};

	append(&row, lane);
}

/* Decided homes of this call, each as a row for the worker of its shard's lane. */
static void
append_facts(Receive *receive)
{
	StringInfoData bytes;

	initStringInfo(&bytes);
	for (int i = 0; i < receive->n_facts; i++)
	{
		const ShardFact *fact = &receive->facts[i];

		resetStringInfo(&bytes);
		shard_packet_put_fact(&bytes, fact);
		append_bytes(SHARD_KIND_FACT, 0, fact->type_id, fact->shard,
					 shard_message_lane(fact->type_id, fact->shard), &bytes);
	}
	pfree(bytes.data);
}

/* Marks for this node as origin, which the home of a shard alone knows (T6): one row for each lane. */
static void
take_done(Receive *receive, ShardReader *section)
{
	StringInfoData bytes[SHARD_LANES] = {0};
	ShardDone first[SHARD_LANES];
	ShardDone done;

	while (shard_packet_get_done(section, &done))
	{
		int lane = shard_message_lane(done.type_id, done.shard);

		CHECK_FOR_INTERRUPTS();
		if (!shard_receive_target_marks(&receive->target, &receive->callee, done.type_id,
										done.shard))
			continue;
		if (bytes[lane].data == NULL)
		{
			initStringInfo(&bytes[lane]);
			first[lane] = done;
		}
		shard_packet_put_done(&bytes[lane], &done);
	}
	if (section->failed)
		damaged(receive, "a mark");
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		if (bytes[lane].data == NULL)
			continue;
		append_bytes(SHARD_KIND_DONE, receive->callee.header.from, first[lane].type_id,
					 first[lane].shard, lane, &bytes[lane]);
		pfree(bytes[lane].data);
	}
}

/* Errors unless a message is one that this origin can have sent on this lane, and fit to be handled. */
static void
check_parcel(const Receive *receive, const ShardParcel *parcel, int lane)
{
	if (shard_message_lane(parcel->type_id, parcel->shard) != lane)
		damaged(receive, "the lane of a message");
	if (parcel->stamp.a != receive->callee.header.from || parcel->stamp.b != lane)
		damaged(receive, "the stamp of a message");
	if (parcel->mid_node <= 0 || parcel->mid_seq <= 0)
		damaged(receive, "the id of a message");
	if (!shard_payload_is_entity(parcel->entity, parcel->entity_len))
		damaged(receive, "the entity id of a message");
	/* a stop message of a worker's own has a type, but nobody has sent it (entity/stop.c) */
	if (parcel->src_type != 0 &&
		!(parcel->kind == SHARD_KIND_PASSIVATE && parcel->src_entity_len == 0) &&
		!shard_payload_is_entity(parcel->src_entity, parcel->src_entity_len))
		damaged(receive, "the sender of a message");
	if ((parcel->kind == SHARD_KIND_TELL || parcel->payload_len > 0) &&
		!shard_payload_is_jsonb(parcel->payload, parcel->payload_len))
		damaged(receive, "the content of a message");
}

/* A message, with its tag and stamp. */
static void
append_parcel(const ShardParcel *parcel, int lane)
{
	ShardRow row = {.type_id = parcel->type_id,
					.shard = parcel->shard,
					.kind = (ShardKind) parcel->kind,
					.entity = parcel->entity,
					.entity_len = parcel->entity_len,
					.payload = parcel->payload,
					.payload_len = parcel->payload_len,
					.epoch = parcel->epoch,
					.stamp = parcel->stamp,
					.src_type = parcel->src_type,
					.src_entity = parcel->src_entity,
					.src_entity_len = parcel->src_entity_len,
					.mid_node = parcel->mid_node,
					.mid_seq = parcel->mid_seq};

	append(&row, lane);
}

/* Rows of a stream: those that are new. */
static void
take_stream(Receive *receive, ShardReader *section)
{
	ShardStreamSection stream;
	ShardStreamPosition *position;
	ShardParcel parcel;
	int skip;

	if (!shard_packet_get_stream(section, &stream))
		damaged(receive, "a stream");
	position = &receive->position[stream.lane].stream;
	check_verdict(receive,
				  shard_stream_receive(position, receive->callee.header.from_inc, stream.gen,
									   stream.first_seq, stream.n_rows, &skip),
				  &stream);
	for (int i = 0; i < stream.n_rows; i++)
	{
		if (!shard_packet_get(section, &parcel))
			damaged(receive, "a message");
		if (i < skip || parcel.kind == SHARD_KIND_VOID)
			continue;
		check_parcel(receive, &parcel, stream.lane);
		if (!shard_receive_target_takes(&receive->target, &receive->callee, parcel.type_id,
										parcel.shard))
			continue;
		append_parcel(&parcel, stream.lane);
#ifdef SHARD_MUTANT_RECEIVED_TWICE
		append_parcel(&parcel, stream.lane);
#endif
		CHECK_FOR_INTERRUPTS();
	}
	if (section->at != section->end)
		damaged(receive, "the end of a stream");
	if (skip < stream.n_rows)
	{
		shard_stream_took(position, stream.first_seq + stream.n_rows - 1, stream.writer);
		receive->changed |= shard_lane_bit(stream.lane);
	}
	receive->goes_on |= shard_lane_bit(stream.lane);
}

/* Hello on streams. */
static void
take_greetings(Receive *receive, ShardReader *section)
{
	ShardStreamSection stream;

	while (shard_packet_get_stream(section, &stream))
	{
		ShardPeerPosition *position = &receive->position[stream.lane];
		ShardStreamPosition before = position->stream;

		if (stream.n_rows != 0)
			damaged(receive, "a greeting");
		check_verdict(receive,
					  shard_stream_greet(&position->stream, receive->callee.header.from_inc,
										 stream.gen, stream.first_seq),
					  &stream);
		if (position->stream.inc != before.inc || position->stream.gen != before.gen)
			receive->changed |= shard_lane_bit(stream.lane);
		if (position->stream.gen != before.gen)
			receive->goes_on |= shard_lane_bit(stream.lane);
	}
	if (section->failed)
		damaged(receive, "a greeting");
}

/* ---- sections ------------------------------------------------------------------------------------- */

/* Notes the lane of a stream that a section names. */
static void
note_lane(Receive *receive, int32 kind, int32 lane, int32 channel)
{
	if (channel != PLAIN_CHANNEL)
		shard_callee_unknown_section(&receive->callee, kind, channel);
	receive->lanes |= shard_lane_bit(lane);
	if (kind != SHARD_SECTION_QUARANTINE)
		receive->answered |= shard_lane_bit(lane);
}

/* Streams that a section names, before any of them is locked. */
static void
note_streams(Receive *receive, int32 kind, ShardReader section)
{
	ShardStreamSection stream;
	ShardQuarantineSection quarantine;

	if (kind == SHARD_SECTION_QUARANTINE)
	{
		while (shard_packet_get_quarantine(&section, &quarantine))
		{
			note_lane(receive, kind, quarantine.lane, quarantine.channel);
			receive->quarantine[quarantine.lane] = quarantine.why;
		}
		if (section.failed)
			damaged(receive, "a quarantine");
		return;
	}
	if (kind == SHARD_SECTION_STREAM)
	{
		if (!shard_packet_get_stream(&section, &stream))
			damaged(receive, "a stream");
		note_lane(receive, kind, stream.lane, stream.channel);
		return;
	}
	while (shard_packet_get_stream(&section, &stream))
		note_lane(receive, kind, stream.lane, stream.channel);
}

/* First reading: is everything known that must be, and which streams are concerned? */
static void
survey(Receive *receive)
{
	ShardReader reader = receive->callee.reader;
	ShardReader section;
	int32 kind;
	int32 flags;

	while (shard_packet_get_section(&reader, &kind, &flags, &section))
	{
		switch (kind)
		{
			case SHARD_SECTION_FACTS:
			case SHARD_SECTION_REFUSED:
			case SHARD_SECTION_DONE:
			case SHARD_SECTION_REPLIES:
				break;
			case SHARD_SECTION_STREAM:
			case SHARD_SECTION_GREET:
				if ((kind == SHARD_SECTION_GREET) != receive->hello)
					damaged(receive, "its sections");
				note_streams(receive, kind, section);
				break;
			case SHARD_SECTION_QUARANTINE:
				note_streams(receive, kind, section);
				break;
			default:
				if (flags & SHARD_SECTION_MANDATORY)
					shard_callee_unknown_section(&receive->callee, kind, PLAIN_CHANNEL);
				break;
		}
	}
	if (reader.failed)
		damaged(receive, "its sections");
}

/* Second reading: gives the sections to what takes them. */
static void
take_sections(Receive *receive)
{
	ShardReader reader = receive->callee.reader;
	ShardReader section;
	const char *damage = NULL;
	int32 kind;
	int32 flags;

	while (shard_packet_get_section(&reader, &kind, &flags, &section))
	{
		if (kind == SHARD_SECTION_DONE)
			take_done(receive, &section);
		else if (kind == SHARD_SECTION_REPLIES)
			damage = shard_receive_replies(&receive->callee, &section);
		else if (kind == SHARD_SECTION_STREAM)
			take_stream(receive, &section);
		else if (kind == SHARD_SECTION_GREET)
			take_greetings(receive, &section);
		if (damage != NULL)
			damaged(receive, damage);
	}
}

/*
 * Hello asks the workers of its lanes to tell all marks of this origin again; they do so with calls of
 * their own, as with any mark.
 */
static void
append_hello(Receive *receive)
{
	StringInfoData bytes;

	initStringInfo(&bytes);
	appendBinaryStringInfo(&bytes, (const char *) &receive->callee.header.from, sizeof(int32));
	shard_each_lane (lane, receive->answered)
		append_bytes(SHARD_KIND_HELLO, 0, 0, lane, lane, &bytes);
	pfree(bytes.data);
}

/*
 * Appends the new positions. Rows that spoke of these streams before have seqs up to the log's last one of now, as this
 * call holds the locks.
 */
static void
append_positions(Receive *receive)
{
	int64 row_seq = shard_log_last_seq(receive->callee.db) + 1;
	StringInfoData bytes;

	initStringInfo(&bytes);
	shard_each_lane (lane, receive->changed)
	{
		ShardPeerPosition *position = &receive->position[lane];

		resetStringInfo(&bytes);
		position->key = key_of(receive, lane);
		shard_stream_position_put(&bytes, &position->key, &position->stream);
		append_bytes(SHARD_KIND_POSITION, 0, 0, lane, lane, &bytes);
		position->row_seq = row_seq;
		position->in_table = false;
		committing[n_committing++] = *position;
	}
	pfree(bytes.data);
}

/* Stores what the origin says about its streams, or that they go on, where that is news (X4). */
static void
store_quarantines(Receive *receive)
{
	ShardSecurity security = {0};

	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		ShardPeerPosition *position = &receive->position[lane];
		int32 why = receive->quarantine[lane];

		if (why == position->quarantine ||
			(why == 0 && (receive->goes_on & shard_lane_bit(lane)) == 0))
			continue;
		position->key = key_of(receive, lane);
		position->quarantine = why;
		receive->news |= shard_lane_bit(lane);
		shard_security_begin_system(&security);
		shard_stream_position_store(position);
		shard_security_end(&security);
		if (why != 0)
			shard_stream_position_tell_quarantine(receive->callee.db, position);
	}
}

/* After the commit: what is stored is known. */
static void
publish_quarantines(const Receive *receive)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (receive->news & shard_lane_bit(lane))
			shard_stream_position_set_quarantine(&receive->position[lane].key,
												 receive->position[lane].quarantine);
}

/* ---- calls ---------------------------------------------------------------------------------------- */

/* The transaction of a call. */
static void
run(Receive *receive)
{
	n_committing = 0;
	survey(receive);
	receive->n_facts = shard_receive_fact_read(&receive->callee, &receive->facts);
	(void) shard_log_attach();
	lock_streams(receive);
	append_facts(receive);
	take_sections(receive);
	append_positions(receive);
	if (receive->hello)
		append_hello(receive);
	store_quarantines(receive);
	shard_callee_commit();
	publish_quarantines(receive);
}

/* What is told is past the gate: positions as they are now, by whomever. Holds nothing while it waits. */
static void
pass_gate(Receive *receive)
{
	XLogRecPtr lsn = InvalidXLogRecPtr;

	shard_each_lane (lane, receive->answered)
	{
		ShardStreamPositionKey key = key_of(receive, lane);

		(void) shard_stream_position_get(&key, &receive->position[lane]);
		lsn = Max(lsn, receive->position[lane].lsn);
	}
	shard_gate_wait(lsn);
}

/* The sections of the answer: where each stream stands. */
static void
put_positions(const Receive *receive, StringInfo out)
{
	StringInfoData bytes;

	initStringInfo(&bytes);
	shard_each_lane (lane, receive->answered)
	{
		const ShardStreamPosition *stream = &receive->position[lane].stream;

		resetStringInfo(&bytes);
		if (receive->hello)
			shard_packet_put_position(&bytes,
									  &(ShardStreamPositionSection){.lane = lane,
																	.channel = PLAIN_CHANNEL,
																	.inc = stream->inc,
																	.gen = stream->gen,
																	.seq = stream->seq,
																	.writer = stream->writer});
		else
			shard_packet_put_received(&bytes, &(ShardReceived){.lane = lane,
															   .channel = PLAIN_CHANNEL,
															   .seq = stream->seq});
		shard_packet_put_section(out,
								 receive->hello ? SHARD_SECTION_POSITION : SHARD_SECTION_RECEIVED,
								 SHARD_SECTION_MANDATORY, bytes.data, bytes.len);
	}
	pfree(bytes.data);
}

/* All of a call. */
static Datum
serve(FunctionCallInfo fcinfo, bool hello)
{
	Receive receive = {.hello = hello};
	StringInfoData answer;

	shard_callee_begin(fcinfo, &receive.callee);
	run(&receive);
	pass_gate(&receive);
	initStringInfo(&answer);
	shard_callee_put_header(&receive.callee, &answer);
	put_positions(&receive, &answer);
	return shard_callee_answer(&receive.callee, &answer);
}

/*
 * shard_peer.hello(call bytea, INOUT answer bytea)
 *
 * The caller begins a connection: where do its streams stand?
 */
Datum
shard_receive_hello(PG_FUNCTION_ARGS)
{
	return serve(fcinfo, true);
}

/*
 * shard_peer.receive(call bytea, INOUT answer bytea)
 *
 * Messages, facts and marks of the caller.
 */
Datum
shard_receive_rows(PG_FUNCTION_ARGS)
{
	return serve(fcinfo, false);
}
