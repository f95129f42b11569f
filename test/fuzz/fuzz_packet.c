/*
 * fuzz_packet.c
 *		Any bytes as a call between nodes, its answer, and every part of one.
 *
 * The first byte says as what the rest is read.
 */
#include "fuzz.h"

#include "core/flow/copy.h"
#include "core/flow/packet.h"
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

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	static void (*const readers[])(ShardReader *, StringInfo) = {
		read_call,	  read_parcels, read_facts,	 read_done,	  read_received, read_positions,
		read_streams, read_ask,		read_answer, read_export, read_import,	 read_columns,
		read_counts,  read_chunks,	read_next,	 read_held,	  read_ordered,	 read_copy_marks,
		read_fields,  read_timers,	read_history};
	ShardReader reader;
	StringInfoData out;

	if (size == 0)
		return 0;
	reader.at = (const char *) data + 1;
	reader.end = (const char *) data + size;
	reader.failed = false;
	initStringInfo(&out);
	readers[data[0] % lengthof(readers)](&reader, &out);
	pfree(out.data);
	return 0;
}
