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

#include "core/base/fields.h"
#include "core/flow/packet.h"
#include "core/map/set.h"
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
	if (!shard_kind_is_for_entity(parcel->kind))
		return false;
	return good_home(parcel->type_id, parcel->shard, parcel->epoch) && good_stamp(&parcel->stamp) &&
		   good_entity(parcel->entity, parcel->entity_len) && parcel->src_type >= 0 &&
		   good_entity(parcel->src_entity, parcel->src_entity_len) && parcel->mid_node >= 0 &&
		   good_seq(parcel->mid_seq) && parcel->payload_len >= 0;
}

/* Backups are other nodes than the home, and each is there once. */
static bool
good_backups(const ShardFact *fact)
{
	for (int i = 0; i < fact->n_backups; i++)
	{
		if (fact->backups[i] <= 0 || fact->backups[i] == fact->node)
			return false;
		for (int k = 0; k < i; k++)
		{
			if (fact->backups[k] == fact->backups[i])
				return false;
		}
	}
	return fact->want == 0 ? fact->n_backups == 0 : fact->want > 1 && fact->want <= SHARD_MAX_HOMES;
}

static bool
good_fact(const ShardFact *fact)
{
	return good_home(fact->type_id, fact->shard, fact->epoch) && fact->n > 0 && good_seq(fact->n) &&
		   fact->node > 0 && fact->lost >= 0 && fact->lost <= fact->epoch &&
		   good_seq(fact->move_id) && good_backups(fact);
}

static bool
good_done(const ShardDone *done)
{
	return good_home(done->type_id, done->shard, SHARD_FIRST_EPOCH) && good_seq(done->rseq);
}

static bool
good_header(const ShardCallHeader *header)
{
	if (header->protocol_version != SHARD_PROTOCOL_VERSION)
		return header->protocol_version > 0;
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

static void
payload_fields(ShardFields *fields, const char **payload, int *length)
{
	if (fields->out)
		shard_wire_put_bytes(fields->out, *payload, *length);
	else
		*payload = get_payload(fields->reader, length);
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

static void
fact_fields(ShardFields *fields, ShardFact *fact)
{
	shard_fields_int32(fields, &fact->type_id);
	shard_fields_int32(fields, &fact->shard);
	shard_fields_int64(fields, &fact->n);
	shard_fields_int32(fields, &fact->node);
	shard_fields_int32(fields, &fact->epoch);
	shard_fields_int32(fields, &fact->lost);
	shard_fields_int64(fields, &fact->move_id);
	shard_fields_int32(fields, &fact->want);
	if (fact->want == 0)
		return;
	shard_fields_count(fields, &fact->n_backups, SHARD_MAX_HOMES - 1);
	for (int i = 0; i < fact->n_backups; i++)
		shard_fields_int32(fields, &fact->backups[i]);
}

static void
done_fields(ShardFields *fields, ShardDone *done)
{
	shard_fields_int32(fields, &done->type_id);
	shard_fields_int32(fields, &done->shard);
	shard_fields_int64(fields, &done->rseq);
}

SHARD_FIELDS_CODEC(shard_packet_put_fact, shard_packet_get_fact, ShardFact, fact)
SHARD_FIELDS_CODEC(shard_packet_put_done, shard_packet_get_done, ShardDone, done)

bool
shard_packet_fact_is_good(const ShardFact *fact)
{
	return good_fact(fact);
}

void
shard_packet_set_fact(ShardFact *fact, const ShardHomeRecord *home)
{
	bool has_set = shard_set_is_of(home);

	fact->want = has_set ? home->want : 0;
	fact->n_backups = has_set ? home->n_nodes - 1 : 0;
	memset(fact->backups, 0, sizeof(fact->backups));
	memcpy(fact->backups, &home->nodes[1], sizeof(int32) * fact->n_backups);
}

ShardFact
shard_packet_fact(int32 type_id, int32 shard, int64 n, const ShardHomeRecord *home)
{
	ShardFact fact = {.type_id = type_id,
					  .shard = shard,
					  .n = n,
					  .node = shard_record_home_node(home),
					  .epoch = home->epoch,
					  .lost = home->lost,
					  .move_id = home->move_id};

	shard_packet_set_fact(&fact, home);
	return fact;
}

/* Routes do not look at a move that is under way. */
ShardHomeRecord
shard_packet_fact_home(const ShardFact *fact)
{
	ShardHomeRecord home;

	memset(&home, 0, sizeof(home));
	home.epoch = fact->epoch;
	home.n_nodes = 1 + fact->n_backups;
	home.nodes[0] = fact->node;
	memcpy(&home.nodes[1], fact->backups, sizeof(int32) * fact->n_backups);
	home.want = fact->want > 1 ? fact->want : 1;
	home.phase = SHARD_HOME_STABLE;
	home.move_id = fact->move_id;
	home.lost = fact->lost;
	return home;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Of another protocol version only its number is taken. */
static void
header_fields(ShardFields *fields, ShardCallHeader *header)
{
	shard_fields_int32(fields, &header->protocol_version);
	if (!fields->out && header->protocol_version != SHARD_PROTOCOL_VERSION)
	{
		fields->reader->at = fields->reader->end;
		return;
	}
	shard_fields_uuid(fields, &header->cluster);
	shard_fields_int32(fields, &header->era);
	shard_fields_int32(fields, &header->from);
	shard_fields_int32(fields, &header->from_inc);
	shard_fields_uuid(fields, &header->incarnation);
	shard_fields_int32(fields, &header->to);
	shard_fields_int32(fields, &header->to_inc);
	shard_fields_int64(fields, &header->known_n);
}

SHARD_FIELDS_CODEC(shard_packet_put_header, shard_packet_get_header, ShardCallHeader, header)

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

/* At most as many rows as bytes are left. */
static void
stream_fields(ShardFields *fields, ShardStreamSection *stream)
{
	shard_fields_int32(fields, &stream->lane);
	shard_fields_int32(fields, &stream->channel);
	shard_fields_int32(fields, &stream->gen);
	shard_fields_int64(fields, &stream->first_seq);
	shard_fields_int32(fields, &stream->n_rows);
	shard_fields_uuid(fields, &stream->writer);
	if (!fields->out && stream->n_rows > (fields->reader->end - fields->reader->at) / MIN_ROW_BYTES)
		fields->reader->failed = true;
}

static void
received_fields(ShardFields *fields, ShardReceived *received)
{
	shard_fields_int32(fields, &received->lane);
	shard_fields_int32(fields, &received->channel);
	shard_fields_int64(fields, &received->seq);
}

static void
position_fields(ShardFields *fields, ShardStreamPositionSection *position)
{
	shard_fields_int32(fields, &position->lane);
	shard_fields_int32(fields, &position->channel);
	shard_fields_int32(fields, &position->inc);
	shard_fields_int32(fields, &position->gen);
	shard_fields_int64(fields, &position->seq);
	shard_fields_uuid(fields, &position->writer);
}

static void
quarantine_fields(ShardFields *fields, ShardQuarantineSection *quarantine)
{
	shard_fields_int32(fields, &quarantine->lane);
	shard_fields_int32(fields, &quarantine->channel);
	shard_fields_int32(fields, &quarantine->why);
}

SHARD_FIELDS_CODEC(shard_packet_put_stream, shard_packet_get_stream, ShardStreamSection, stream)
SHARD_FIELDS_CODEC(shard_packet_put_received, shard_packet_get_received, ShardReceived, received)
SHARD_FIELDS_CODEC(shard_packet_put_position, shard_packet_get_position, ShardStreamPositionSection,
				   position)
SHARD_FIELDS_CODEC(shard_packet_put_quarantine, shard_packet_get_quarantine, ShardQuarantineSection,
				   quarantine)

/* ---- asks ------------------------------------------------------------------------------------ */

static void
ask_fields(ShardFields *fields, ShardAskCall *ask)
{
	shard_fields_int32(fields, &ask->type_id);
	shard_fields_int32(fields, &ask->shard);
	shard_fields_int32(fields, &ask->epoch);
	shard_fields_int32(fields, &ask->lane);
	shard_fields_int64(fields, &ask->after);
	shard_fields_int64(fields, &ask->timeout_us);
	shard_fields_piece(fields, &ask->entity, &ask->entity_len);
	payload_fields(fields, &ask->payload, &ask->payload_len);
}

static void
answer_fields(ShardFields *fields, ShardAskAnswer *answer)
{
	shard_fields_int32(fields, &answer->outcome);
	shard_fields_bool(fields, &answer->has_payload);
	if (answer->has_payload)
		payload_fields(fields, &answer->payload, &answer->payload_len);
}

SHARD_FIELDS_CODEC(shard_packet_put_ask, shard_packet_get_ask, ShardAskCall, ask)
SHARD_FIELDS_CODEC(shard_packet_put_answer, shard_packet_get_answer, ShardAskAnswer, answer)
