/*
 * sql/view/turn_records.c
 *		SQL function shard.turn_records(): the turn records of a shard with replicas that this node has, item by item.
 *
 * For operators and tests, who compare what home and copies have. At both it is what log and table shard.turn_kept have;
 * records that are needed no more are in it as long as the segment of the log is there.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"

#include "log/turn_log.h"

#include "base/compat.h"

#define COLUMNS 7

PG_FUNCTION_INFO_V1(shard_turn_records);

/* Texts are of this database's encoding at its home; a copy looks at them when it applies them. */
static Datum
text_of(const char *bytes, int len)
{
	return PointerGetDatum(cstring_to_text_with_len(bytes, len));
}

/* A row of the result; entity NULL: the item is about none. */
static void
put(ReturnSetInfo *result, const ShardTurnRecord *record, int64 seq, const char *section,
	const char *entity, int entity_len, const char *what)
{
	Datum values[COLUMNS] = {Int64GetDatum(seq), Int32GetDatum(record->epoch),
							 Int64GetDatum(record->turn), Int64GetDatum((int64) record->sum),
							 CStringGetTextDatum(section)};
	bool nulls[COLUMNS] = {false};

	nulls[5] = entity == NULL;
	nulls[6] = what == NULL;
	if (entity != NULL)
		values[5] = text_of(entity, entity_len);
	if (what != NULL)
		values[6] = CStringGetTextDatum(what);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* What a text of a record is, as a string. */
static char *
string_of(const char *bytes, int len)
{
	return pnstrdup(bytes, len);
}

static void
put_image(ReturnSetInfo *result, const ShardTurnRecord *record, int64 seq, const char *section,
		  ShardReader *items)
{
	ShardTurnImage image;

	while (shard_turn_get_image(items, &image))
		put(result, record, seq, section, image.entity, image.entity_len,
			image.row == NULL ? "gone" : NULL);
}

static void
put_key(ReturnSetInfo *result, const ShardTurnRecord *record, int64 seq, const char *section,
		ShardReader *items)
{
	ShardTurnKey key;

	while (shard_turn_get_key(items, &key))
		put(result, record, seq, section, key.entity, key.entity_len,
			psprintf("%s %s%s", shard_copy_part_names[key.part], string_of(key.name, key.name_len),
					 key.row == NULL ? " gone" : ""));
}

static void
put_mark(ReturnSetInfo *result, const ShardTurnRecord *record, int64 seq, const char *section,
		 ShardReader *items)
{
	ShardStamp mark;

	while (shard_turn_get_mark(items, &mark))
		put(result, record, seq, section, NULL, 0,
			psprintf("%d %d " INT64_FORMAT, mark.a, mark.b, mark.seq));
}

static void
put_output(ReturnSetInfo *result, const ShardTurnRecord *record, int64 seq, const char *section,
		   ShardReader *items)
{
	ShardTurnOutput output;
	int64 oseq = record->first_oseq;

	while (shard_turn_get_output(items, &output))
		put(result, record, seq, section, output.entity, output.entity_len,
			psprintf(INT64_FORMAT, oseq++));
}

static void
put_done(ReturnSetInfo *result, const ShardTurnRecord *record, int64 seq, const char *section,
		 ShardReader *items)
{
	ShardTurnDone done;

	while (shard_turn_get_done(items, &done))
		put(result, record, seq, section, NULL, 0, psprintf(INT64_FORMAT, done.oseq));
}

static void
put_letter(ReturnSetInfo *result, const ShardTurnRecord *record, int64 seq, const char *section,
		   ShardReader *items)
{
	ShardTurnLetter letter;

	while (shard_turn_get_letter(items, &letter))
		put(result, record, seq, section, letter.gone ? NULL : letter.entity, letter.entity_len,
			letter.gone ? psprintf(INT64_FORMAT " gone", letter.number)
						: string_of(letter.error, letter.error_len));
}

static void
put_columns(ReturnSetInfo *result, const ShardTurnRecord *record, int64 seq, const char *section,
			ShardReader *items)
{
	ShardCopyColumn column;

	while (shard_copy_get_column(items, &column))
		put(result, record, seq, section, NULL, 0, string_of(column.name, column.name_len));
}

/* At the home alone: rows of the log, and their numbers. */
static void
put_inputs(ReturnSetInfo *result, const ShardTurnRecord *record, int64 seq)
{
	ShardReader items = record->inputs;
	ShardTurnInput input = {0};

	while (shard_turn_get_input(&items, &input))
		put(result, record, seq, "inputs", NULL, 0,
			psprintf(INT64_FORMAT " " INT64_FORMAT, input.seq, input.rseq));
}

static void (*const sections[SHARD_TURN_SECTIONS])(ReturnSetInfo *, const ShardTurnRecord *, int64,
												   const char *, ShardReader *) = {
	[SHARD_TURN_IMAGES] = put_image,   [SHARD_TURN_KEYS] = put_key,
	[SHARD_TURN_MARKS] = put_mark,	   [SHARD_TURN_OUTPUTS] = put_output,
	[SHARD_TURN_ODONE] = put_done,	   [SHARD_TURN_LETTERS] = put_letter,
	[SHARD_TURN_COLUMNS] = put_columns};

static bool
put_record(const ShardTurnRecord *record, int64 seq, void *arg)
{
	ReturnSetInfo *result = arg;
	ShardReader all = record->sections;
	ShardReader items;
	int32 kind;
	bool mandatory;

	put(result, record, seq, "record", NULL, 0, NULL);
	while (shard_turn_record_section_next(&all, &kind, &mandatory, &items))
	{
		bool known = kind < SHARD_TURN_SECTIONS;

		if (known && sections[kind] != NULL)
			sections[kind](result, record, seq, shard_turn_section_names[kind], &items);
		else
			put(result, record, seq, known ? shard_turn_section_names[kind] : "unknown", NULL, 0,
				NULL);
	}
	put_inputs(result, record, seq);
	return true;
}

/*
 * shard.turn_records(type_id integer, shard integer) returns setof record
 */
Datum
shard_turn_records(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	shard_turn_log_read_shard(PG_GETARG_INT32(0), PG_GETARG_INT32(1), 0, 0, 0, put_record, NULL,
							  fcinfo->resultinfo);
	return (Datum) 0;
}
