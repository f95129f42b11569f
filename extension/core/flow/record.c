/*
 * core/flow/record.c
 *		Turn records: what one transaction of a worker did to one shard that has replicas, as bytes (Q5, Q28 to Q35).
 *
 * For each struct one function says what is a good one, as in core/flow/packet.c: the writer asserts it, the reader fails
 * on anything else.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "port/pg_crc32c.h"

#include "core/base/fields.h"
#include "core/flow/record.h"

#define VERSION 1

#define LENGTH_BYTES 4
#define FRAME_BYTES (2 * LENGTH_BYTES) /* length and sum, before what is shipped */

#define MANDATORY 1 /* flag of a section */

const char *const shard_turn_section_names[SHARD_TURN_SECTIONS] = {"none",	  "images",	 "keys",
																   "marks",	  "outputs", "odone",
																   "letters", "control", "columns"};

const char *const shard_turn_fault_names[SHARD_TURN_FAULTS] = {
	"it is sound",
	"it ends too early",
	"it does not have its sum",
	"it is of a version that is not known",
	"its head has a number that none can have",
	"its sections do not fill it"};

bool
shard_turn_point_equal(const ShardTurnPoint *a, const ShardTurnPoint *b)
{
	return a->turn == b->turn && a->epoch == b->epoch && a->sum == b->sum;
}

ShardTurnPoint
shard_turn_record_point(const ShardTurnRecord *record)
{
	return (ShardTurnPoint){record->epoch, record->turn, record->sum};
}

ShardTurnPoint
shard_turn_record_before(const ShardTurnRecord *record)
{
	return (ShardTurnPoint){record->before_epoch, record->turn - 1, record->before_sum};
}

/* ---- what is good ---------------------------------------------------------------------------- */

static bool
good_seq(int64 seq)
{
	return seq >= 0 && seq < SHARD_PACKET_MAX_SEQ;
}

static bool
good_text(const char *text, int length, int most)
{
	return length >= 0 && length <= most && (length == 0 || memchr(text, '\0', length) == NULL);
}

static bool
good_entity(const char *entity, int length)
{
	return length > 0 && good_text(entity, length, SHARD_PACKET_MAX_ENTITY);
}

/* The first record has nothing before it, and any other something. */
static bool
good_head(const ShardTurnRecord *record)
{
	return record->type_id > 0 && record->shard >= 0 && record->epoch >= SHARD_FIRST_EPOCH &&
		   record->turn > 0 && record->turn < SHARD_TURN_MAX &&
		   record->before_epoch >= SHARD_FIRST_EPOCH && record->before_epoch <= record->epoch &&
		   (record->turn > 1 || (record->before_epoch == 0 && record->before_sum == 0)) &&
		   record->first_oseq > 0 && good_seq(record->first_oseq) && record->n_outputs >= 0 &&
		   good_seq(record->first_oseq + record->n_outputs);
}

static bool
good_image(const ShardTurnImage *image)
{
	return good_entity(image->entity, image->entity_len) && image->row_len >= 0;
}

static bool
good_key(const ShardTurnKey *key)
{
	switch (key->part)
	{
		case SHARD_COPY_STASH:
		case SHARD_COPY_ORDERED:
		case SHARD_COPY_TIMERS:
		case SHARD_COPY_HISTORY:
			return good_entity(key->entity, key->entity_len) &&
				   good_text(key->name, key->name_len, SHARD_PACKET_MAX_ENTITY) &&
				   good_seq(key->number) && key->row_len >= 0;
		default:
			return false;
	}
}

static bool
good_output_kind(int32 kind)
{
	return shard_kind_is_message(kind) || kind == SHARD_KIND_START ||
		   kind == SHARD_KIND_PASSIVATE || kind == SHARD_KIND_SCHEDULE ||
		   kind == SHARD_KIND_CANCEL || kind == SHARD_KIND_REPLY;
}

static bool
good_output(const ShardTurnOutput *output)
{
	return good_output_kind(output->kind) && output->type_id > 0 && output->shard >= 0 &&
		   good_text(output->entity, output->entity_len, SHARD_PACKET_MAX_ENTITY) &&
		   good_text(output->src_entity, output->src_entity_len, SHARD_PACKET_MAX_ENTITY) &&
		   output->payload_len >= 0;
}

static bool
good_done(const ShardTurnDone *done)
{
	return done->type_id >= 0 && done->shard >= 0 && (done->type_id > 0 || done->shard == 0) &&
		   done->oseq > 0 && good_seq(done->oseq);
}

static bool
good_letter(const ShardTurnLetter *letter)
{
	if (letter->number <= 0 || !good_seq(letter->number))
		return false;
	if (letter->gone)
		return true;
	return good_entity(letter->entity, letter->entity_len) && letter->kind > 0 &&
		   letter->epoch >= -1 && letter->stamp.kind >= SHARD_PREFIX_NONE &&
		   letter->stamp.kind <= SHARD_PREFIX_SHARD && good_seq(letter->stamp.seq) &&
		   letter->src_type >= 0 &&
		   good_text(letter->src_entity, letter->src_entity_len, SHARD_PACKET_MAX_ENTITY) &&
		   letter->mid_node > 0 && good_seq(letter->mid_seq) && letter->payload_len >= 0 &&
		   letter->sqlstate_len == 5 && good_text(letter->sqlstate, 5, 5) &&
		   good_text(letter->error, letter->error_len, PG_INT32_MAX) &&
		   good_text(letter->detail, letter->detail_len, PG_INT32_MAX) &&
		   good_text(letter->hint, letter->hint_len, PG_INT32_MAX) &&
		   good_text(letter->context, letter->context_len, PG_INT32_MAX) && letter->attempts >= 0;
}

static bool
good_mark(const ShardStamp *mark)
{
	if (mark->seq <= 0 || !good_seq(mark->seq) || mark->a <= 0 || mark->b < 0)
		return false;
	return mark->kind == SHARD_PREFIX_SHARD ||
		   (mark->kind == SHARD_PREFIX_NODE && mark->b < SHARD_LANES);
}

static bool
good_input(const ShardTurnInput *input)
{
	return input->seq > 0 && good_seq(input->seq) && input->rseq > 0 && good_seq(input->rseq);
}

/* ---- four bytes, lowest first ---------------------------------------------------------------- */

static void
set_four(char *at, uint32 value)
{
	for (int i = 0; i < LENGTH_BYTES; i++)
		at[i] = (char) (value >> (8 * i));
}

static uint32
four_at(const char *at)
{
	uint32 value = 0;

	for (int i = LENGTH_BYTES - 1; i >= 0; i--)
		value = value << 8 | (unsigned char) at[i];
	return value;
}

/* Place for four bytes, which are set later; returns the offset behind them. */
static int
leave_four(StringInfo out)
{
	enlargeStringInfo(out, LENGTH_BYTES);
	set_four(out->data + out->len, 0);
	out->len += LENGTH_BYTES;
	out->data[out->len] = '\0';
	return out->len;
}

/* False: they are not there; nothing is read. */
static bool
get_four(ShardReader *reader, uint32 *value)
{
	*value = 0;
	if (reader->end - reader->at < LENGTH_BYTES)
		return false;
	*value = four_at(reader->at);
	reader->at += LENGTH_BYTES;
	return true;
}

/* As many bytes as the four before them say; false: they are not there. */
static bool
get_counted(ShardReader *reader, ShardReader *bytes)
{
	uint32 length;

	if (!get_four(reader, &length) || length > (uint64) (reader->end - reader->at))
		return false;
	bytes->at = reader->at;
	bytes->end = reader->at + length;
	bytes->failed = false;
	reader->at = bytes->end;
	return true;
}

static uint32
sum_of(const char *bytes, size_t length)
{
	pg_crc32c crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, bytes, length);
	FIN_CRC32C(crc);
	return crc;
}

/* ---- writing a record ------------------------------------------------------------------------ */

static void
head_fields(ShardFields *fields, ShardTurnRecord *record)
{
	uint64 before = record->before_sum;

	shard_fields_int32(fields, &record->type_id);
	shard_fields_int32(fields, &record->shard);
	shard_fields_int32(fields, &record->epoch);
	shard_fields_int64(fields, &record->turn);
	shard_fields_int32(fields, &record->before_epoch);
	shard_fields_uint64(fields, &before);
	shard_fields_check(fields, before <= PG_UINT32_MAX);
	shard_fields_int64(fields, &record->first_oseq);
	shard_fields_int32(fields, &record->n_outputs);
	if (!fields->out)
		record->before_sum = (uint32) before;
}

void
shard_turn_record_begin(ShardTurnWriter *writer, StringInfo out, const ShardTurnRecord *record)
{
	Assert(good_head(record));
	*writer = (ShardTurnWriter){.out = out, .begin = out->len};
	leave_four(out); /* length */
	leave_four(out); /* sum */
	shard_wire_put_uint(out, VERSION);
	head_fields(&(ShardFields){.out = out}, unconstify(ShardTurnRecord *, record));
}

/* The section that is open has its items; without any it is taken back. */
static void
end_section(ShardTurnWriter *writer)
{
	StringInfo out = writer->out;

	if (writer->section == 0)
		return;
	if (out->len > writer->body)
		set_four(out->data + writer->body - LENGTH_BYTES, (uint32) (out->len - writer->body));
	else
	{
		out->len = writer->section;
		out->data[out->len] = '\0';
	}
	writer->section = 0;
}

/* All kinds of today have to be known to who applies them. */
void
shard_turn_record_section(ShardTurnWriter *writer, ShardTurnSection kind)
{
	Assert(writer->inputs == 0 && kind > 0 && kind < SHARD_TURN_SECTIONS);
	end_section(writer);
	writer->section = writer->out->len;
	shard_wire_put_uint(writer->out, kind);
	shard_wire_put_uint(writer->out, MANDATORY);
	writer->body = leave_four(writer->out);
}

void
shard_turn_record_inputs(ShardTurnWriter *writer)
{
	StringInfo out = writer->out;
	int shipped = writer->begin + FRAME_BYTES;

	Assert(writer->inputs == 0);
	end_section(writer);
	set_four(out->data + writer->begin, (uint32) (out->len - shipped));
	set_four(out->data + writer->begin + LENGTH_BYTES,
			 sum_of(out->data + shipped, out->len - shipped));
	writer->inputs = leave_four(out);
}

uint32
shard_turn_record_end(ShardTurnWriter *writer)
{
	StringInfo out = writer->out;

	if (writer->inputs == 0)
		shard_turn_record_inputs(writer);
	set_four(out->data + writer->inputs - LENGTH_BYTES, (uint32) (out->len - writer->inputs));
	return four_at(out->data + writer->begin + LENGTH_BYTES);
}

/* ---- reading a record ------------------------------------------------------------------------ */

static bool
sections_are_sound(ShardReader sections)
{
	ShardReader items;
	int32 kind;
	bool mandatory;

	while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
		continue;
	return !sections.failed;
}

/* The record at the reader, which has one. */
static ShardTurnFault
read_record(ShardReader *reader, ShardTurnRecord *record)
{
	ShardReader body;
	uint32 length;

	record->shipped = reader->at;
	if (!get_four(reader, &length) || !get_four(reader, &record->sum) ||
		length > (uint64) (reader->end - reader->at) || length > PG_INT32_MAX - FRAME_BYTES)
		return SHARD_TURN_CUT;
	body = (ShardReader){.at = reader->at, .end = reader->at + length};
	reader->at = body.end;
	record->shipped_len = FRAME_BYTES + (int) length;
	if (!get_counted(reader, &record->inputs))
		return SHARD_TURN_CUT;
	if (sum_of(body.at, length) != record->sum)
		return SHARD_TURN_SUM;
	if (shard_wire_get_uint(&body) != VERSION)
		return SHARD_TURN_VERSION;
	head_fields(&(ShardFields){.reader = &body}, record);
	if (body.failed || !good_head(record))
		return SHARD_TURN_HEAD;
	record->sections = body;
	return sections_are_sound(body) ? SHARD_TURN_SOUND : SHARD_TURN_FRAME;
}

bool
shard_turn_record_next(ShardReader *reader, ShardTurnRecord *record, ShardTurnFault *fault)
{
	*fault = SHARD_TURN_SOUND;
	if (!shard_wire_more(reader, record, sizeof(*record)))
		return false;
	*fault = read_record(reader, record);
	return shard_wire_taken(reader, *fault == SHARD_TURN_SOUND, record, sizeof(*record));
}

bool
shard_turn_record_skip(ShardReader *reader)
{
	ShardReader inputs;
	uint32 length;
	uint32 sum;

	if (!get_four(reader, &length) || !get_four(reader, &sum) ||
		length > (uint64) (reader->end - reader->at) || length > PG_INT32_MAX - FRAME_BYTES)
		return false;
	reader->at += length;
	return get_counted(reader, &inputs);
}

bool
shard_turn_record_head(const ShardReader *reader, ShardTurnRecord *record)
{
	ShardReader body = *reader;
	ShardReader behind = *reader;
	uint32 length;

	memset(record, 0, sizeof(*record));
	if (get_four(&body, &length) && get_four(&body, &record->sum) &&
		shard_wire_get_uint(&body) == VERSION)
		head_fields(&(ShardFields){.reader = &body}, record);
	if (body.failed || !good_head(record))
	{
		memset(record, 0, sizeof(*record));
		return false;
	}
	record->shipped = reader->at;
	record->sections = (ShardReader){body.at, body.at, false};
	if (shard_turn_record_skip(&behind))
	{
		behind = (ShardReader){reader->at + FRAME_BYTES + length, reader->end, false};
		record->shipped_len = FRAME_BYTES + (int) length;
		(void) get_counted(&behind, &record->inputs);
	}
	return true;
}

int
shard_turn_record_ship_len(const ShardTurnRecord *record)
{
	return record->shipped_len + LENGTH_BYTES;
}

void
shard_turn_record_ship(StringInfo out, const ShardTurnRecord *record)
{
	appendBinaryStringInfo(out, record->shipped, record->shipped_len);
	leave_four(out);
}

bool
shard_turn_record_section_next(ShardReader *sections, int32 *kind, bool *mandatory,
							   ShardReader *items)
{
	uint64 number;
	uint64 flags;
	bool whole;

	*kind = 0;
	*mandatory = false;
	if (!shard_wire_more(sections, items, sizeof(*items)))
		return false;
	number = shard_wire_get_uint(sections);
	flags = shard_wire_get_uint(sections);
	whole = get_counted(sections, items);
	if (!shard_wire_taken(sections,
						  whole && number > 0 && number <= PG_INT32_MAX && flags <= MANDATORY,
						  items, sizeof(*items)))
		return false;
	*kind = (int32) number;
	*mandatory = flags == MANDATORY;
	return true;
}

/* ---- items ----------------------------------------------------------------------------------- */

/* A row, or that it is gone. */
static void
row_fields(ShardFields *fields, const char **row, int *length)
{
	if (fields->out)
		shard_copy_put_field(fields->out, *row, *length);
	else
		shard_fields_check(fields, shard_copy_get_field(fields->reader, row, length));
}

static void
mark_fields(ShardFields *fields, ShardStamp *mark)
{
	shard_fields_int32(fields, &mark->kind);
	shard_fields_int32(fields, &mark->a);
	shard_fields_int32(fields, &mark->b);
	shard_fields_int64(fields, &mark->seq);
}

static void
image_fields(ShardFields *fields, ShardTurnImage *image)
{
	shard_fields_piece(fields, &image->entity, &image->entity_len);
	row_fields(fields, &image->row, &image->row_len);
}

static void
key_fields(ShardFields *fields, ShardTurnKey *key)
{
	shard_fields_int32(fields, &key->part);
	shard_fields_piece(fields, &key->entity, &key->entity_len);
	shard_fields_piece(fields, &key->name, &key->name_len);
	shard_fields_int64(fields, &key->number);
	row_fields(fields, &key->row, &key->row_len);
}

static void
output_fields(ShardFields *fields, ShardTurnOutput *output)
{
	shard_fields_int32(fields, &output->kind);
	shard_fields_int32(fields, &output->type_id);
	shard_fields_int32(fields, &output->shard);
	shard_fields_piece(fields, &output->entity, &output->entity_len);
	shard_fields_piece(fields, &output->src_entity, &output->src_entity_len);
	shard_fields_piece(fields, &output->payload, &output->payload_len);
}

static void
done_fields(ShardFields *fields, ShardTurnDone *done)
{
	shard_fields_int32(fields, &done->type_id);
	shard_fields_int32(fields, &done->shard);
	shard_fields_int64(fields, &done->oseq);
}

static void
letter_fields(ShardFields *fields, ShardTurnLetter *letter)
{
	shard_fields_int64(fields, &letter->number);
	shard_fields_bool(fields, &letter->gone);
	if (letter->gone)
		return;
	shard_fields_int64(fields, &letter->at);
	shard_fields_piece(fields, &letter->entity, &letter->entity_len);
	shard_fields_int32(fields, &letter->kind);
	shard_fields_int32(fields, &letter->epoch);
	mark_fields(fields, &letter->stamp);
	shard_fields_int32(fields, &letter->src_type);
	shard_fields_piece(fields, &letter->src_entity, &letter->src_entity_len);
	shard_fields_int32(fields, &letter->mid_node);
	shard_fields_int64(fields, &letter->mid_seq);
	shard_fields_piece(fields, &letter->payload, &letter->payload_len);
	shard_fields_piece(fields, &letter->sqlstate, &letter->sqlstate_len);
	shard_fields_piece(fields, &letter->error, &letter->error_len);
	shard_fields_piece(fields, &letter->detail, &letter->detail_len);
	shard_fields_piece(fields, &letter->hint, &letter->hint_len);
	shard_fields_piece(fields, &letter->context, &letter->context_len);
	shard_fields_int32(fields, &letter->attempts);
}

SHARD_FIELDS_CODEC(shard_turn_put_image, shard_turn_get_image, ShardTurnImage, image)
SHARD_FIELDS_CODEC(shard_turn_put_key, shard_turn_get_key, ShardTurnKey, key)
SHARD_FIELDS_CODEC(shard_turn_put_mark, shard_turn_get_mark, ShardStamp, mark)
SHARD_FIELDS_CODEC(shard_turn_put_output, shard_turn_get_output, ShardTurnOutput, output)
SHARD_FIELDS_CODEC(shard_turn_put_done, shard_turn_get_done, ShardTurnDone, done)
SHARD_FIELDS_CODEC(shard_turn_put_letter, shard_turn_get_letter, ShardTurnLetter, letter)

void
shard_turn_put_control(StringInfo out, ShardTurnControl control)
{
	Assert(control == SHARD_TURN_ACTIVATE || control == SHARD_TURN_SEAL);
	shard_wire_put_uint(out, control);
}

bool
shard_turn_get_control(ShardReader *items, ShardTurnControl *control)
{
	uint64 number;

	if (!shard_wire_more(items, control, sizeof(*control)))
		return false;
	number = shard_wire_get_uint(items);
	if (!shard_wire_taken(items, number == SHARD_TURN_ACTIVATE || number == SHARD_TURN_SEAL,
						  control, sizeof(*control)))
		return false;
	*control = (ShardTurnControl) number;
	return true;
}

void
shard_turn_put_input(StringInfo out, const ShardTurnInput *before, const ShardTurnInput *input)
{
	Assert(good_input(input));
	shard_wire_put_int(out, input->seq - before->seq);
	shard_wire_put_int(out, input->rseq - before->rseq);
}

/* Distances from anywhere may add up to anything: they are added as bits, and then looked at. */
bool
shard_turn_get_input(ShardReader *items, ShardTurnInput *input)
{
	if (items->failed || items->at >= items->end)
	{
		memset(input, 0, sizeof(*input));
		return false;
	}
	input->seq = (int64) ((uint64) input->seq + (uint64) shard_wire_get_int(items));
	input->rseq = (int64) ((uint64) input->rseq + (uint64) shard_wire_get_int(items));
	return shard_wire_taken(items, good_input(input), input, sizeof(*input));
}
