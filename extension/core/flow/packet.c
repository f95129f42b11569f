/*
 * core/flow/packet.c
 *		What nodes send one another beside the control plane: messages, facts, marks (X2, X3).
 *
 * For each struct one function says what is a good one: the encoder asserts it, the decoder fails on
 * anything else. So a damaged or hostile packet ends at the decoder, and no number that comes out of
 * one overflows when it is compared or counted up.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/flow/packet.h"
#include "core/flow/stream.h"

#define MIN_ROW_BYTES 1 /* a VOID */

/* ---- what is good ---------------------------------------------------------------------------- */

static bool
good_seq(int64 seq)
{
	return seq >= 0 && seq < SHARD_PACKET_MAX_SEQ;
}

static bool
good_lane(int32 lane)
{
	return lane >= 0 && lane < SHARD_LANES;
}

/* A shard of a type of the cluster, in an epoch that it may have. */
static bool
good_home(int32 type_id, int32 shard, int32 epoch)
{
	return type_id > 0 && shard >= 0 && epoch >= SHARD_FIRST_EPOCH;
}

/* An entity id: a text that PostgreSQL can hold. */
static bool
good_entity(const char *entity, int length)
{
	return length >= 0 && length <= SHARD_PACKET_MAX_ENTITY &&
		   (length == 0 || memchr(entity, '\0', length) == NULL);
}

/* Stamps of nodes are in use; those of shards are reserved. */
static bool
good_stamp(const ShardStamp *stamp)
{
	return stamp->kind == SHARD_PREFIX_NODE && stamp->a > 0 && good_lane(stamp->b) &&
		   stamp->seq > 0 && good_seq(stamp->seq);
}

static bool
good_parcel(const ShardParcel *parcel)
{
	if (parcel->kind == SHARD_KIND_VOID)
		return true;
	if (!shard_kind_is_message(parcel->kind) && parcel->kind != SHARD_KIND_START &&
		parcel->kind != SHARD_KIND_PASSIVATE)
		return false;
	return good_home(parcel->type_id, parcel->shard, parcel->epoch) && good_stamp(&parcel->stamp) &&
		   good_entity(parcel->entity, parcel->entity_len) && parcel->src_type >= 0 &&
		   good_entity(parcel->src_entity, parcel->src_entity_len) && parcel->mid_node >= 0 &&
		   good_seq(parcel->mid_seq) && parcel->payload_len >= 0;
}

static bool
good_fact(const ShardFact *fact)
{
	return good_home(fact->type_id, fact->shard, fact->epoch) && fact->n > 0 && good_seq(fact->n) &&
		   fact->node > 0 && fact->lost >= 0 && fact->lost <= fact->epoch &&
		   good_seq(fact->move_id);
}

static bool
good_done(const ShardDone *done)
{
	return good_home(done->type_id, done->shard, SHARD_FIRST_EPOCH) && good_seq(done->rseq);
}

static bool
good_header(const ShardCallHeader *header)
{
	return header->era >= 0 && header->from > 0 && header->from <= SHARD_MAX_NODE_ID &&
		   header->from_inc >= 0 && header->to > 0 && header->to <= SHARD_MAX_NODE_ID &&
		   header->to_inc >= 0 && good_seq(header->known_n);
}

static bool
good_stream(const ShardStreamSection *stream)
{
	return good_lane(stream->lane) && stream->channel >= 0 && stream->gen >= 0 &&
		   good_seq(stream->first_seq) && stream->n_rows >= 0 &&
		   good_seq(stream->first_seq + stream->n_rows);
}

static bool
good_received(const ShardReceived *received)
{
	return good_lane(received->lane) && received->channel >= 0 && good_seq(received->seq);
}

static bool
good_position(const ShardStreamPositionSection *position)
{
	return good_lane(position->lane) && position->channel >= 0 && position->inc >= 0 &&
		   position->gen >= 0 && good_seq(position->seq);
}

static bool
good_quarantine(const ShardQuarantineSection *quarantine)
{
	return good_lane(quarantine->lane) && quarantine->channel >= 0 &&
		   (quarantine->why == SHARD_STREAM_ORIGIN_REGRESSED ||
			quarantine->why == SHARD_STREAM_RECEIVER_REGRESSED);
}

static bool
good_ask(const ShardAskCall *ask)
{
	return good_home(ask->type_id, ask->shard, ask->epoch) && good_lane(ask->lane) &&
		   good_seq(ask->after) && ask->timeout_us >= 0 &&
		   good_entity(ask->entity, ask->entity_len) && ask->payload_len >= 0;
}

/* A reply may be NULL; an error has its fields; "not here" says nothing more. */
static bool
good_answer(const ShardAskAnswer *answer)
{
	if (answer->payload_len < 0 || (!answer->has_payload && answer->payload_len > 0))
		return false;
	switch (answer->outcome)
	{
		case SHARD_ASK_REPLY:
			return true;
		case SHARD_ASK_ERROR:
			return answer->has_payload;
		case SHARD_ASK_NOT_HERE:
			return !answer->has_payload;
		default:
			return false;
	}
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/*
 * NULL if it is empty.
 */
static const char *
get_payload(ShardReader *reader, int *length)
{
	const char *bytes = shard_wire_get_piece(reader, length);

	return *length > 0 ? bytes : NULL;
}

/* ---- messages -------------------------------------------------------------------------------- */

void
shard_packet_put(StringInfo out, const ShardParcel *parcel)
{
	Assert(good_parcel(parcel));

	shard_wire_put_uint(out, parcel->kind);
	if (parcel->kind == SHARD_KIND_VOID)
		return;
	shard_wire_put_int(out, parcel->type_id);
	shard_wire_put_int(out, parcel->shard);
	shard_wire_put_int(out, parcel->epoch);
	shard_wire_put_int(out, parcel->stamp.kind);
	shard_wire_put_int(out, parcel->stamp.a);
	shard_wire_put_int(out, parcel->stamp.b);
	shard_wire_put_int(out, parcel->stamp.seq);
	shard_wire_put_bytes(out, parcel->entity, parcel->entity_len);
	shard_wire_put_int(out, parcel->src_type);
	shard_wire_put_bytes(out, parcel->src_entity, parcel->src_entity_len);
	shard_wire_put_int(out, parcel->mid_node);
	shard_wire_put_int(out, parcel->mid_seq);
	shard_wire_put_bytes(out, parcel->payload, parcel->payload_len);
}

bool
shard_packet_get(ShardReader *reader, ShardParcel *parcel)
{
	uint64 kind;

	if (!shard_wire_more(reader, parcel, sizeof(*parcel)))
		return false;
	kind = shard_wire_get_uint(reader);
	parcel->kind = (int32) Min(kind, PG_INT32_MAX);
	if (parcel->kind == SHARD_KIND_VOID)
		return true;
	parcel->type_id = shard_wire_get_int32(reader);
	parcel->shard = shard_wire_get_int32(reader);
	parcel->epoch = shard_wire_get_int32(reader);
	parcel->stamp.kind = shard_wire_get_int32(reader);
	parcel->stamp.a = shard_wire_get_int32(reader);
	parcel->stamp.b = shard_wire_get_int32(reader);
	parcel->stamp.seq = shard_wire_get_int(reader);
	parcel->entity = shard_wire_get_piece(reader, &parcel->entity_len);
	parcel->src_type = shard_wire_get_int32(reader);
	parcel->src_entity = shard_wire_get_piece(reader, &parcel->src_entity_len);
	parcel->mid_node = shard_wire_get_int32(reader);
	parcel->mid_seq = shard_wire_get_int(reader);
	parcel->payload = get_payload(reader, &parcel->payload_len);
	return shard_wire_taken(reader, good_parcel(parcel), parcel, sizeof(*parcel));
}

/* ---- facts and marks ------------------------------------------------------------------------- */

void
shard_packet_put_fact(StringInfo out, const ShardFact *fact)
{
	Assert(good_fact(fact));
	shard_wire_put_int(out, fact->type_id);
	shard_wire_put_int(out, fact->shard);
	shard_wire_put_int(out, fact->n);
	shard_wire_put_int(out, fact->node);
	shard_wire_put_int(out, fact->epoch);
	shard_wire_put_int(out, fact->lost);
	shard_wire_put_int(out, fact->move_id);
}

bool
shard_packet_get_fact(ShardReader *reader, ShardFact *fact)
{
	if (!shard_wire_more(reader, fact, sizeof(*fact)))
		return false;
	fact->type_id = shard_wire_get_int32(reader);
	fact->shard = shard_wire_get_int32(reader);
	fact->n = shard_wire_get_int(reader);
	fact->node = shard_wire_get_int32(reader);
	fact->epoch = shard_wire_get_int32(reader);
	fact->lost = shard_wire_get_int32(reader);
	fact->move_id = shard_wire_get_int(reader);
	return shard_wire_taken(reader, good_fact(fact), fact, sizeof(*fact));
}

/* Routes do not look at a move that is under way. */
ShardHomeRecord
shard_packet_fact_home(const ShardFact *fact)
{
	ShardHomeRecord home;

	memset(&home, 0, sizeof(home));
	home.epoch = fact->epoch;
	home.n_nodes = 1;
	home.nodes[0] = fact->node;
	home.want = 1;
	home.phase = SHARD_HOME_STABLE;
	home.move_id = fact->move_id;
	home.lost = fact->lost;
	return home;
}

void
shard_packet_put_done(StringInfo out, const ShardDone *done)
{
	Assert(good_done(done));
	shard_wire_put_int(out, done->type_id);
	shard_wire_put_int(out, done->shard);
	shard_wire_put_int(out, done->rseq);
}

bool
shard_packet_get_done(ShardReader *reader, ShardDone *done)
{
	if (!shard_wire_more(reader, done, sizeof(*done)))
		return false;
	done->type_id = shard_wire_get_int32(reader);
	done->shard = shard_wire_get_int32(reader);
	done->rseq = shard_wire_get_int(reader);
	return shard_wire_taken(reader, good_done(done), done, sizeof(*done));
}

/* ---- calls ----------------------------------------------------------------------------------- */

void
shard_packet_put_header(StringInfo out, const ShardCallHeader *header)
{
	Assert(header->protocol_version == SHARD_PROTOCOL_VERSION && good_header(header));
	shard_wire_put_int(out, header->protocol_version);
	shard_wire_put_uuid(out, header->cluster);
	shard_wire_put_int(out, header->era);
	shard_wire_put_int(out, header->from);
	shard_wire_put_int(out, header->from_inc);
	shard_wire_put_uuid(out, header->incarnation);
	shard_wire_put_int(out, header->to);
	shard_wire_put_int(out, header->to_inc);
	shard_wire_put_int(out, header->known_n);
}

bool
shard_packet_get_header(ShardReader *reader, ShardCallHeader *header)
{
	if (!shard_wire_more(reader, header, sizeof(*header)))
		return false;
	header->protocol_version = shard_wire_get_int32(reader);
	if (header->protocol_version != SHARD_PROTOCOL_VERSION)
	{
		bool good = header->protocol_version > 0;

		reader->at = reader->end;
		return shard_wire_taken(reader, good, header, sizeof(*header));
	}
	header->cluster = shard_wire_get_uuid(reader);
	header->era = shard_wire_get_int32(reader);
	header->from = shard_wire_get_int32(reader);
	header->from_inc = shard_wire_get_int32(reader);
	header->incarnation = shard_wire_get_uuid(reader);
	header->to = shard_wire_get_int32(reader);
	header->to_inc = shard_wire_get_int32(reader);
	header->known_n = shard_wire_get_int(reader);
	return shard_wire_taken(reader, good_header(header), header, sizeof(*header));
}

void
shard_packet_put_section(StringInfo out, ShardSectionKind kind, int flags, const char *bytes,
						 int length)
{
	Assert(kind > 0 && (flags & ~SHARD_SECTION_MANDATORY) == 0 && length >= 0);
	shard_wire_put_uint(out, kind);
	shard_wire_put_uint(out, flags);
	shard_wire_put_bytes(out, bytes, length);
}

bool
shard_packet_get_section(ShardReader *reader, int32 *kind, int32 *flags, ShardReader *section)
{
	uint64 number;
	uint64 bits;
	const char *bytes;
	size_t length;

	*kind = 0;
	*flags = 0;
	if (!shard_wire_more(reader, section, sizeof(*section)))
		return false;
	number = shard_wire_get_uint(reader);
	bits = shard_wire_get_uint(reader);
	bytes = shard_wire_get_bytes(reader, &length);
	section->at = bytes;
	section->end = bytes + length;
	if (!shard_wire_taken(reader,
						  number > 0 && number <= PG_INT32_MAX &&
							  (bits & ~(uint64) SHARD_SECTION_MANDATORY) == 0,
						  section, sizeof(*section)))
		return false;
	*kind = (int32) number;
	*flags = (int32) bits;
	return true;
}

/* ---- streams --------------------------------------------------------------------------------- */

void
shard_packet_put_stream(StringInfo out, const ShardStreamSection *stream)
{
	Assert(good_stream(stream));
	shard_wire_put_int(out, stream->lane);
	shard_wire_put_int(out, stream->channel);
	shard_wire_put_int(out, stream->gen);
	shard_wire_put_int(out, stream->first_seq);
	shard_wire_put_int(out, stream->n_rows);
	shard_wire_put_uuid(out, stream->writer);
}

bool
shard_packet_get_stream(ShardReader *reader, ShardStreamSection *stream)
{
	if (!shard_wire_more(reader, stream, sizeof(*stream)))
		return false;
	stream->lane = shard_wire_get_int32(reader);
	stream->channel = shard_wire_get_int32(reader);
	stream->gen = shard_wire_get_int32(reader);
	stream->first_seq = shard_wire_get_int(reader);
	stream->n_rows = shard_wire_get_int32(reader);
	stream->writer = shard_wire_get_uuid(reader);
	return shard_wire_taken(reader,
							good_stream(stream) &&
								stream->n_rows <= (reader->end - reader->at) / MIN_ROW_BYTES,
							stream, sizeof(*stream));
}

void
shard_packet_put_received(StringInfo out, const ShardReceived *received)
{
	Assert(good_received(received));
	shard_wire_put_int(out, received->lane);
	shard_wire_put_int(out, received->channel);
	shard_wire_put_int(out, received->seq);
}

bool
shard_packet_get_received(ShardReader *reader, ShardReceived *received)
{
	if (!shard_wire_more(reader, received, sizeof(*received)))
		return false;
	received->lane = shard_wire_get_int32(reader);
	received->channel = shard_wire_get_int32(reader);
	received->seq = shard_wire_get_int(reader);
	return shard_wire_taken(reader, good_received(received), received, sizeof(*received));
}

void
shard_packet_put_position(StringInfo out, const ShardStreamPositionSection *position)
{
	Assert(good_position(position));
	shard_wire_put_int(out, position->lane);
	shard_wire_put_int(out, position->channel);
	shard_wire_put_int(out, position->inc);
	shard_wire_put_int(out, position->gen);
	shard_wire_put_int(out, position->seq);
	shard_wire_put_uuid(out, position->writer);
}

bool
shard_packet_get_position(ShardReader *reader, ShardStreamPositionSection *position)
{
	if (!shard_wire_more(reader, position, sizeof(*position)))
		return false;
	position->lane = shard_wire_get_int32(reader);
	position->channel = shard_wire_get_int32(reader);
	position->inc = shard_wire_get_int32(reader);
	position->gen = shard_wire_get_int32(reader);
	position->seq = shard_wire_get_int(reader);
	position->writer = shard_wire_get_uuid(reader);
	return shard_wire_taken(reader, good_position(position), position, sizeof(*position));
}

void
shard_packet_put_quarantine(StringInfo out, const ShardQuarantineSection *quarantine)
{
	Assert(good_quarantine(quarantine));
	shard_wire_put_int(out, quarantine->lane);
	shard_wire_put_int(out, quarantine->channel);
	shard_wire_put_int(out, quarantine->why);
}

bool
shard_packet_get_quarantine(ShardReader *reader, ShardQuarantineSection *quarantine)
{
	if (!shard_wire_more(reader, quarantine, sizeof(*quarantine)))
		return false;
	quarantine->lane = shard_wire_get_int32(reader);
	quarantine->channel = shard_wire_get_int32(reader);
	quarantine->why = shard_wire_get_int32(reader);
	return shard_wire_taken(reader, good_quarantine(quarantine), quarantine, sizeof(*quarantine));
}

/* ---- asks ------------------------------------------------------------------------------------ */

void
shard_packet_put_ask(StringInfo out, const ShardAskCall *ask)
{
	Assert(good_ask(ask));
	shard_wire_put_int(out, ask->type_id);
	shard_wire_put_int(out, ask->shard);
	shard_wire_put_int(out, ask->epoch);
	shard_wire_put_int(out, ask->lane);
	shard_wire_put_int(out, ask->after);
	shard_wire_put_int(out, ask->timeout_us);
	shard_wire_put_bytes(out, ask->entity, ask->entity_len);
	shard_wire_put_bytes(out, ask->payload, ask->payload_len);
}

bool
shard_packet_get_ask(ShardReader *reader, ShardAskCall *ask)
{
	if (!shard_wire_more(reader, ask, sizeof(*ask)))
		return false;
	ask->type_id = shard_wire_get_int32(reader);
	ask->shard = shard_wire_get_int32(reader);
	ask->epoch = shard_wire_get_int32(reader);
	ask->lane = shard_wire_get_int32(reader);
	ask->after = shard_wire_get_int(reader);
	ask->timeout_us = shard_wire_get_int(reader);
	ask->entity = shard_wire_get_piece(reader, &ask->entity_len);
	ask->payload = get_payload(reader, &ask->payload_len);
	return shard_wire_taken(reader, good_ask(ask), ask, sizeof(*ask));
}

void
shard_packet_put_answer(StringInfo out, const ShardAskAnswer *answer)
{
	Assert(good_answer(answer));
	shard_wire_put_int(out, answer->outcome);
	shard_wire_put_uint(out, answer->has_payload ? 1 : 0);
	if (answer->has_payload)
		shard_wire_put_bytes(out, answer->payload, answer->payload_len);
}

bool
shard_packet_get_answer(ShardReader *reader, ShardAskAnswer *answer)
{
	uint64 has;

	if (!shard_wire_more(reader, answer, sizeof(*answer)))
		return false;
	answer->outcome = shard_wire_get_int32(reader);
	has = shard_wire_get_uint(reader);
	answer->has_payload = has == 1;
	if (answer->has_payload)
		answer->payload = get_payload(reader, &answer->payload_len);
	return shard_wire_taken(reader, has <= 1 && good_answer(answer), answer, sizeof(*answer));
}
