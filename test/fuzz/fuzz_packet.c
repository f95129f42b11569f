/*
 * fuzz_packet.c
 *		Any bytes as a call between nodes, its answer, a row of turn records, and every part of these.
 *
 * The first byte says as what the rest is read.
 */
#include "fuzz.h"

#include "port/pg_crc32c.h"

#include "core/flow/copy.h"
#include "core/flow/packet.h"
#include "core/flow/replica.h"
#include "core/flow/reply.h"

/* What was read from "from" to "to" is what would have been written. */
static void
check_same(const StringInfo out, const char *from, const char *to)
{
	FUZZ_CHECK(out->len == to - from && memcmp(out->data, from, out->len) == 0);
	resetStringInfo(out);
}

/* One after the other to the end; texts and payloads are looked at. */
#define READ_ALL(type, get, put, reader, out, look) \
	do \
	{ \
		type record; \
		const char *from = (reader)->at; \
		while (get(reader, &record)) \
		{ \
			FUZZ_CHECK(!(reader)->failed && (reader)->at <= (reader)->end); \
			look; \
			put(out, &record); \
			check_same(out, from, (reader)->at); \
			from = (reader)->at; \
		} \
		FUZZ_CHECK((reader)->failed || (reader)->at == (reader)->end); \
	} while (0)

/* Every byte of it can be read. */
static void
look_at(const char *bytes, int length)
{
	uint32 sum = 0;
	volatile uint32 seen;

	FUZZ_CHECK(length >= 0);
	for (int i = 0; i < length; i++)
		sum += (unsigned char) bytes[i];
	seen = sum;
	(void) seen;
}

static void
look_at_parcel(const ShardParcel *parcel)
{
	if (parcel->kind == SHARD_KIND_VOID)
		return;
	FUZZ_CHECK(parcel->entity != NULL && parcel->src_entity != NULL);
	look_at(parcel->entity, parcel->entity_len);
	look_at(parcel->src_entity, parcel->src_entity_len);
	look_at(parcel->payload, parcel->payload_len);
}

static void
read_parcels(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardParcel, shard_packet_get, shard_packet_put, reader, out, look_at_parcel(&record));
}

static void
read_facts(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardFact, shard_packet_get_fact, shard_packet_put_fact, reader, out,
			 (void) shard_packet_fact_home(&record));
}

static void
read_done(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardDone, shard_packet_get_done, shard_packet_put_done, reader, out, (void) 0);
}

static void
read_received(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardReceived, shard_packet_get_received, shard_packet_put_received, reader, out,
			 (void) 0);
}

static void
read_positions(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardStreamPositionSection, shard_packet_get_position, shard_packet_put_position,
			 reader, out, (void) 0);
}

static void
read_streams(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardStreamSection, shard_packet_get_stream, shard_packet_put_stream, reader, out,
			 FUZZ_CHECK(record.n_rows <= reader->end - reader->at));
}

static void
read_stream(ShardReader *reader, StringInfo out)
{
	ShardStreamSection stream;

	if (shard_packet_get_stream(reader, &stream))
		read_parcels(reader, out);
}

static void
read_ask(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardAskCall, shard_packet_get_ask, shard_packet_put_ask, reader, out,
			 (look_at(record.entity, record.entity_len),
			  look_at(record.payload, record.payload_len)));
}

static void
read_answer(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardAskAnswer, shard_packet_get_answer, shard_packet_put_answer, reader, out,
			 look_at(record.payload, record.payload_len));
}

/* A token that was read is what would have been made. */
static void
look_at_reply(const ShardReplyParcel *reply)
{
	ShardReplyToken token;
	StringInfoData out;

	look_at(reply->payload, reply->payload_len);
	if (!shard_reply_get_token(reply->token, reply->token_len, &token))
		return;
	look_at(token.entity, token.entity_len);
	initStringInfo(&out);
	shard_reply_put_token(&out, &token);
	check_same(&out, reply->token, reply->token + reply->token_len);
	pfree(out.data);
}

static void
read_replies(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardReplyParcel, shard_packet_get_reply, shard_packet_put_reply, reader, out,
			 look_at_reply(&record));
}

static void
read_export(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardExportCall, shard_copy_get_export, shard_copy_put_export, reader, out,
			 (look_at(record.type_name, record.type_name_len),
			  look_at(record.position.after, record.position.after_len)));
}

static void
read_import(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardImportCall, shard_copy_get_import, shard_copy_put_import, reader, out, (void) 0);
}

static void
read_columns(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardCopyColumn, shard_copy_get_column, shard_copy_put_column, reader, out,
			 (look_at(record.name, record.name_len), look_at(record.type, record.type_len)));
}

static void
read_counts(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardCopyCount, shard_copy_get_count, shard_copy_put_count, reader, out, (void) 0);
}

static void
read_next(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardCopyPosition, shard_copy_get_position, shard_copy_put_position, reader, out,
			 look_at(record.after, record.after_len));
}

static void
read_held(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardCopyHeld, shard_copy_get_held, shard_copy_put_held, reader, out,
			 (look_at(record.entity, record.entity_len),
			  look_at(record.payload, record.payload_len),
			  look_at(record.error, record.error_len)));
}

static void
read_ordered(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardCopyOrdered, shard_copy_get_ordered, shard_copy_put_ordered, reader, out,
			 look_at(record.entity, record.entity_len));
}

static void
read_timers(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardCopyTimer, shard_copy_get_timer, shard_copy_put_timer, reader, out,
			 look_at(record.message, record.message_len));
}

static void
read_history(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardCopyHistory, shard_copy_get_history, shard_copy_put_history, reader, out,
			 (look_at(record.entity, record.entity_len), look_at(record.error, record.error_len),
			  look_at(record.outcome, record.outcome_len)));
}

static void
read_copy_marks(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardStamp, shard_copy_get_mark, shard_copy_put_mark, reader, out, (void) 0);
}

/* Fields of state rows have one form, too. */
static void
read_fields(ShardReader *reader, StringInfo out)
{
	const char *from = reader->at;
	const char *bytes;
	int length;

	while (shard_copy_get_field(reader, &bytes, &length))
	{
		look_at(bytes, length);
		shard_copy_put_field(out, bytes, length);
		check_same(out, from, reader->at);
		from = reader->at;
	}
	FUZZ_CHECK(reader->failed || reader->at == reader->end);
}

/* Rows of a shard, as what their part says. Their checksum is right seldom enough by chance. */
static void
read_chunks(ShardReader *reader, StringInfo out)
{
	static void (*const parts[SHARD_COPY_PARTS])(ShardReader *, StringInfo) = {
		NULL, read_fields, read_held, read_copy_marks, read_ordered, read_timers, read_history};
	const char *from = reader->at;
	ShardCopyChunk chunk;

	while (shard_copy_get_chunk(reader, &chunk))
	{
		ShardReader rows = {chunk.rows, chunk.rows + chunk.rows_len, false};

		shard_copy_put_chunk(out, &chunk);
		check_same(out, from, reader->at);
		from = reader->at;
		parts[chunk.part](&rows, out);
	}
	FUZZ_CHECK(reader->failed || reader->at == reader->end);
}

static void read_shipment(ShardReader *reader, StringInfo out);
static void read_replica_answers(ShardReader *reader, StringInfo out);

/* A whole call or answer: its header, and each section as what its kind says. */
static void
read_call(ShardReader *reader, StringInfo out)
{
	const char *from = reader->at;
	ShardCallHeader header;
	ShardReader section;
	int32 kind;
	int32 flags;

	if (!shard_packet_get_header(reader, &header) ||
		header.protocol_version != SHARD_PROTOCOL_VERSION)
		return;
	shard_packet_put_header(out, &header);
	check_same(out, from, reader->at);
	from = reader->at;
	while (shard_packet_get_section(reader, &kind, &flags, &section))
	{
		FUZZ_CHECK(section.at <= section.end && section.end == reader->at);
		shard_packet_put_section(out, (ShardSectionKind) kind, flags, section.at,
								 (int) (section.end - section.at));
		check_same(out, from, reader->at);
		from = reader->at;
		switch (kind)
		{
			case SHARD_SECTION_STREAM:
				read_stream(&section, out);
				break;
			case SHARD_SECTION_FACTS:
			case SHARD_SECTION_REFUSED:
				read_facts(&section, out);
				break;
			case SHARD_SECTION_DONE:
				read_done(&section, out);
				break;
			case SHARD_SECTION_REPLIES:
				read_replies(&section, out);
				break;
			case SHARD_SECTION_GREET:
				read_streams(&section, out);
				break;
			case SHARD_SECTION_RECEIVED:
				read_received(&section, out);
				break;
			case SHARD_SECTION_POSITION:
				read_positions(&section, out);
				break;
			case SHARD_SECTION_RECORDS:
				read_shipment(&section, out);
				break;
			case SHARD_SECTION_TURNS:
				read_replica_answers(&section, out);
				break;
			case SHARD_SECTION_COLUMNS:
				read_columns(&section, out);
				break;
			case SHARD_SECTION_COUNTS:
				read_counts(&section, out);
				break;
			case SHARD_SECTION_CHUNK:
				read_chunks(&section, out);
				break;
			case SHARD_SECTION_NEXT:
				read_next(&section, out);
				break;
			default:
				break;
		}
	}
}

/* ---- turn records ------------------------------------------------------------------------------ */

static void
read_images(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardTurnImage, shard_turn_get_image, shard_turn_put_image, reader, out,
			 (look_at(record.entity, record.entity_len), look_at(record.row, record.row_len)));
}

static void
read_keys(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardTurnKey, shard_turn_get_key, shard_turn_put_key, reader, out,
			 (look_at(record.entity, record.entity_len), look_at(record.name, record.name_len),
			  look_at(record.row, record.row_len)));
}

static void
read_turn_marks(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardStamp, shard_turn_get_mark, shard_turn_put_mark, reader, out, (void) 0);
}

static void
read_outputs(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardTurnOutput, shard_turn_get_output, shard_turn_put_output, reader, out,
			 (look_at(record.entity, record.entity_len),
			  look_at(record.src_entity, record.src_entity_len),
			  look_at(record.payload, record.payload_len)));
}

static void
read_odone(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardTurnDone, shard_turn_get_done, shard_turn_put_done, reader, out, (void) 0);
}

static void
read_letters(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardTurnLetter, shard_turn_get_letter, shard_turn_put_letter, reader, out,
			 (look_at(record.entity, record.entity_len), look_at(record.error, record.error_len),
			  look_at(record.context, record.context_len)));
}

static void
read_controls(ShardReader *reader, StringInfo out)
{
	ShardTurnControl control;

	while (shard_turn_get_control(reader, &control))
		shard_turn_put_control(out, control);
	resetStringInfo(out);
}

static void
read_inputs(ShardReader *reader, StringInfo out)
{
	const char *from = reader->at;
	ShardTurnInput before = {0, 0};
	ShardTurnInput input = {0, 0};

	while (shard_turn_get_input(reader, &input))
	{
		shard_turn_put_input(out, &before, &input);
		check_same(out, from, reader->at);
		from = reader->at;
		before = input;
	}
}

static void
read_replica_answers(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardReplicaAnswer, shard_replica_get_answer, shard_replica_put_answer, reader, out,
			 (void) 0);
}

static void
read_offers(ShardReader *reader, StringInfo out)
{
	READ_ALL(ShardReplicaOffer, shard_replica_get_offer, shard_replica_put_offer, reader, out,
			 (void) 0);
}

/* A row of the log: what a copy stores of it is a row of the same records, without inputs. */
static void
read_row(ShardReader *reader, StringInfo out)
{
	static void (*const items_of[SHARD_TURN_SECTIONS])(ShardReader *, StringInfo) = {
		NULL,		read_images,  read_keys,	 read_turn_marks, read_outputs,
		read_odone, read_letters, read_controls, read_columns};
	ShardTurnRecord record;
	ShardTurnRecord again;
	ShardTurnFault fault;

	while (shard_turn_record_next(reader, &record, &fault))
	{
		ShardReader items;
		ShardReader copy;
		int32 kind;
		bool mandatory;

		FUZZ_CHECK(fault == SHARD_TURN_SOUND && record.turn > 0);
		shard_turn_record_ship(out, &record);
		FUZZ_CHECK(out->len == shard_turn_record_ship_len(&record));
		copy = (ShardReader){out->data, out->data + out->len, false};
		FUZZ_CHECK(shard_turn_record_next(&copy, &again, &fault) && again.sum == record.sum &&
				   copy.at == copy.end && again.inputs.at == again.inputs.end);
		resetStringInfo(out);
		while (shard_turn_record_section_next(&record.sections, &kind, &mandatory, &items))
		{
			if (kind < SHARD_TURN_SECTIONS)
				items_of[kind](&items, out);
		}
		FUZZ_CHECK(!record.sections.failed);
		read_inputs(&record.inputs, out);
	}
	FUZZ_CHECK(reader->failed == (fault != SHARD_TURN_SOUND));
}

/* What a call offers: of each shard what it says, then the records that it counts. */
static void
read_shipment(ShardReader *reader, StringInfo out)
{
	const char *from = reader->at;
	ShardReplicaOffer offer;

	while (shard_replica_get_offer(reader, &offer))
	{
		shard_replica_put_offer(out, &offer);
		check_same(out, from, reader->at);
		for (int i = 0; i < offer.n_records; i++)
		{
			ShardTurnRecord record;
			ShardTurnFault fault;

			if (!shard_turn_record_next(reader, &record, &fault))
				return;
			FUZZ_CHECK(shard_turn_record_before(&record).turn == record.turn - 1);
		}
		from = reader->at;
	}
}

/* The bytes as what is shipped of a record: with their length and sum, which chance would not find. */
static void
read_body(ShardReader *reader, StringInfo out)
{
	int length = (int) (reader->end - reader->at);
	StringInfoData row;
	ShardReader rows;
	pg_crc32c crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, reader->at, length);
	FIN_CRC32C(crc);
	initStringInfo(&row);
	for (int i = 0; i < 32; i += 8)
		appendStringInfoChar(&row, (char) (length >> i));
	for (int i = 0; i < 32; i += 8)
		appendStringInfoChar(&row, (char) (crc >> i));
	appendBinaryStringInfo(&row, reader->at, length);
	appendBinaryStringInfo(&row, "\0\0\0", 4);
	rows = (ShardReader){row.data, row.data + row.len, false};
	read_row(&rows, out);
	pfree(row.data);
}

/* First bytes from here on say as which part of turn records and their calls the rest is read. */
#define RECORDS 192

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	static void (*const readers[])(ShardReader *, StringInfo) = {
		read_call,	  read_parcels, read_facts,	 read_done,	  read_received, read_positions,
		read_streams, read_ask,		read_answer, read_export, read_import,	 read_columns,
		read_counts,  read_chunks,	read_next,	 read_held,	  read_ordered,	 read_copy_marks,
		read_fields,  read_timers,	read_history};
	static void (*const record_readers[])(ShardReader *, StringInfo) = {
		read_row,	read_body,	  read_images,	 read_keys,	  read_turn_marks,		read_outputs,
		read_odone, read_letters, read_controls, read_inputs, read_replica_answers, read_offers};
	ShardReader reader;
	StringInfoData out;

	if (size == 0)
		return 0;
	reader.at = (const char *) data + 1;
	reader.end = (const char *) data + size;
	reader.failed = false;
	initStringInfo(&out);
	if (data[0] >= RECORDS)
		record_readers[(data[0] - RECORDS) % lengthof(record_readers)](&reader, &out);
	else
		readers[data[0] % lengthof(readers)](&reader, &out);
	pfree(out.data);
	return 0;
}
