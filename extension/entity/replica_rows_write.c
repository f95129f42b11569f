/*
 * entity/replica_rows_write.c
 *		What records have beside states, in our own tables, as a backup has it (Q10).
 *
 * Comes from: replica_apply.c, with the newest of each row of a pass (replica_rows.c). Times are those of the calendar
 * (core/flow/record.h), numbers those of the home. Of what was failures only inserts are told; the oldest go here as there
 * (history.c).
 *
 * If the process dies right here, the transaction is gone with all that it has written, and with what it says is applied.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "core/base/message.h"
#include "entity/internal.h"
#include "entity/replica_pass.h"
#include "entity/replica_rows.h"
#include "log/log.h"
#include "registry/statement.h"

#include "base/compat.h"

static ShardStatement put_held = {
	"INSERT INTO shard.held (type_id, shard, entity, place, seq, kind, epoch, stamp, src_type,"
	" src_entity, mid_node, mid_seq, payload, attempts, next_at, sqlstate, error, held_at, number,"
	" pauses) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,"
	" $18, $19, $20)"
	" ON CONFLICT (type_id, shard, entity, place, seq) DO UPDATE SET kind = EXCLUDED.kind,"
	" epoch = EXCLUDED.epoch, stamp = EXCLUDED.stamp, src_type = EXCLUDED.src_type,"
	" src_entity = EXCLUDED.src_entity, mid_node = EXCLUDED.mid_node, mid_seq = EXCLUDED.mid_seq,"
	" payload = EXCLUDED.payload, attempts = EXCLUDED.attempts, next_at = EXCLUDED.next_at,"
	" sqlstate = EXCLUDED.sqlstate, error = EXCLUDED.error, held_at = EXCLUDED.held_at,"
	" number = EXCLUDED.number, pauses = EXCLUDED.pauses",
	20,
	{INT4OID,		 INT4OID, TEXTOID, TEXTOID,		   INT8OID, INT2OID,  INT4OID,
	 BYTEAOID,		 INT4OID, TEXTOID, INT4OID,		   INT8OID, BYTEAOID, INT4OID,
	 TIMESTAMPTZOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, INT8OID, BOOLOID}};

static ShardStatement delete_held = {
	"DELETE FROM shard.held WHERE type_id = $1 AND shard = $2 AND entity = $3 AND place = $4"
	" AND seq = $5",
	5,
	{INT4OID, INT4OID, TEXTOID, TEXTOID, INT8OID}};

static ShardStatement put_ordered = {
	"INSERT INTO shard.ordered (type_id, shard, entity, began, expected, skipped, late)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (type_id, shard, entity) DO UPDATE SET"
	" began = EXCLUDED.began, expected = EXCLUDED.expected, skipped = EXCLUDED.skipped,"
	" late = EXCLUDED.late",
	7,
	{INT4OID, INT4OID, TEXTOID, INT8OID, INT8OID, INT8OID, INT8OID}};

static ShardStatement delete_ordered = {
	"DELETE FROM shard.ordered WHERE type_id = $1 AND shard = $2 AND entity = $3",
	3,
	{INT4OID, INT4OID, TEXTOID}};

static ShardStatement insert_timer = {
	"INSERT INTO shard.timer (type_id, shard, entity, name, lane, due, generation, first, period,"
	" every, zone, missed, fired, idle, message)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
	15,
	{INT4OID, INT4OID, TEXTOID, TEXTOID, INT2OID, TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID, INT8OID,
	 INTERVALOID, TEXTOID, INT2OID, INT8OID, INT8OID, BYTEAOID}};

/* Its time is a part of the key, and another one with each firing. */
static ShardStatement delete_timer = {
	"DELETE FROM shard.timer WHERE type_id = $1 AND shard = $2 AND entity = $3 AND name = $4",
	4,
	{INT4OID, INT4OID, TEXTOID, TEXTOID}};

static ShardStatement put_mark = {
	"INSERT INTO shard.shard_input AS i (type_id, shard, prefix_kind, a, b, seq)"
	" VALUES ($1, $2, $3, $4, $5, $6)"
	" ON CONFLICT (type_id, shard, prefix_kind, a, b) DO UPDATE SET seq = EXCLUDED.seq"
	" WHERE i.seq < EXCLUDED.seq",
	6,
	{INT4OID, INT4OID, INT2OID, INT4OID, INT4OID, INT8OID}};

static ShardStatement put_output = {
	"INSERT INTO shard.output (type_id, shard, oseq, kind, to_type, to_shard, entity, src_entity,"
	" payload) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
	" ON CONFLICT (type_id, shard, oseq) DO UPDATE SET kind = EXCLUDED.kind,"
	" to_type = EXCLUDED.to_type, to_shard = EXCLUDED.to_shard, entity = EXCLUDED.entity,"
	" src_entity = EXCLUDED.src_entity, payload = EXCLUDED.payload",
	9,
	{INT4OID, INT4OID, INT8OID, INT2OID, INT4OID, INT4OID, TEXTOID, TEXTOID, BYTEAOID}};

static ShardStatement delete_done = {
	"DELETE FROM shard.output WHERE type_id = $1 AND shard = $2 AND oseq <= $3"
	" AND ($4 = 0 OR to_type = $4 AND to_shard = $5)",
	5,
	{INT4OID, INT4OID, INT8OID, INT4OID, INT4OID}};

static ShardStatement put_letter = {
	"INSERT INTO shard.letter (type_id, shard, number, at, entity, kind, epoch, stamp, src_type,"
	" src_entity, mid_node, mid_seq, payload, sqlstate, error, detail, hint, context, attempts)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)"
	" ON CONFLICT (type_id, shard, number) DO NOTHING",
	19,
	{INT4OID, INT4OID, INT8OID, TIMESTAMPTZOID, TEXTOID, INT2OID, INT4OID, BYTEAOID, INT4OID,
	 TEXTOID, INT4OID, INT8OID, BYTEAOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID}};

static ShardStatement delete_letter = {
	"DELETE FROM shard.letter WHERE type_id = $1 AND shard = $2 AND number = $3",
	3,
	{INT4OID, INT4OID, INT8OID}};

/* type_id, shard */
static void
add_shard(ShardArguments *arguments, const ShardCopySetKey *shard)
{
	shard_statement_add(arguments, Int32GetDatum(shard->type_id), false);
	shard_statement_add(arguments, Int32GetDatum(shard->shard), false);
}

/* type_id, shard, entity */
static void
add_entity(ShardArguments *arguments, const ShardCopySetKey *shard, const ShardReplicaRow *row)
{
	add_shard(arguments, shard);
	shard_statement_add_text(arguments, row->id.entity, row->id.entity_len);
}

/* NULL, if it has no bytes. */
static void
add_some_text(ShardArguments *arguments, const char *text, int len)
{
	shard_statement_add_text(arguments, len == 0 ? NULL : text, len);
}

static void
add_int8(ShardArguments *arguments, int64 number)
{
	shard_statement_add(arguments, Int64GetDatum(number), false);
}

/* epoch, stamp, src_type, src_entity, mid_node, mid_seq, payload */
static void
add_message(ShardArguments *arguments, const ShardCopyHeld *held)
{
	char stamp[SHARD_LOG_STAMP_BYTES];
	/* a start that failed is no message, and has no origin; records have to name one (record_key.c) */
	bool is_start = held->kind == SHARD_KIND_RESTART;

	shard_log_put_stamp(stamp, held->stamp);
	shard_statement_add(arguments, Int32GetDatum(held->epoch), held->epoch < 0);
	shard_statement_add_text(arguments, held->stamp.kind == SHARD_PREFIX_NONE ? NULL : stamp,
							 sizeof(stamp));
	shard_statement_add(arguments, Int32GetDatum(held->src_type), held->src_type == 0);
	shard_statement_add_text(arguments, held->src_type == 0 ? NULL : held->src_entity,
							 held->src_entity_len);
	shard_statement_add(arguments, Int32GetDatum(is_start ? 0 : held->mid_node), false);
	add_int8(arguments, held->mid_seq);
	shard_statement_add_text(arguments, held->payload, held->payload_len);
}

static void
write_held(const ShardCopySetKey *shard, const ShardReplicaRow *row, ShardReader *reader)
{
	ShardArguments arguments = {0};
	ShardCopyHeld held;

	add_entity(&arguments, shard, row);
	shard_statement_add_text(&arguments, row->id.name, row->id.name_len);
	add_int8(&arguments, row->id.number);
	if (reader->at == NULL)
	{
		shard_statement_change(&delete_held, &arguments, SPI_OK_DELETE);
		return;
	}
	(void) shard_copy_get_held(reader, &held);
	shard_statement_add(&arguments, Int16GetDatum((int16) held.kind), false);
	add_message(&arguments, &held);
	shard_statement_add(&arguments, Int32GetDatum(held.attempts), false);
	shard_statement_add(&arguments, TimestampTzGetDatum(held.next_us), !held.has_next);
	add_some_text(&arguments, held.sqlstate, held.sqlstate_len);
	shard_statement_add_text(&arguments, held.sqlstate_len == 0 ? NULL : held.error,
							 held.error_len);
	shard_statement_add(&arguments, TimestampTzGetDatum(held.waited_us), false);
	shard_statement_add(&arguments, Int64GetDatum(held.number), !held.ordered);
	shard_statement_add(&arguments, BoolGetDatum(held.pauses), false);
	shard_statement_change_one(&put_held, &arguments, SPI_OK_INSERT);
}

static void
write_ordered(const ShardCopySetKey *shard, const ShardReplicaRow *row, ShardReader *reader)
{
	ShardArguments arguments = {0};
	ShardCopyOrdered ordered;

	add_entity(&arguments, shard, row);
	if (reader->at == NULL)
	{
		shard_statement_change(&delete_ordered, &arguments, SPI_OK_DELETE);
		return;
	}
	(void) shard_copy_get_ordered(reader, &ordered);
	add_int8(&arguments, ordered.began);
	add_int8(&arguments, ordered.expected);
	add_int8(&arguments, ordered.skipped);
	add_int8(&arguments, ordered.late);
	shard_statement_change_one(&put_ordered, &arguments, SPI_OK_INSERT);
}

static void
put_timer(ShardArguments *arguments, const ShardCopySetKey *shard, const ShardCopyTimer *timer)
{
	Interval every = {.month = timer->months, .day = timer->days, .time = timer->time};

	shard_statement_add(arguments,
						Int16GetDatum((int16) shard_message_lane(shard->type_id, shard->shard)),
						false);
	shard_statement_add(arguments, TimestampTzGetDatum(timer->due), false);
	add_int8(arguments, timer->generation);
	shard_statement_add(arguments, TimestampTzGetDatum(timer->first), false);
	add_int8(arguments, timer->period);
	shard_statement_add(arguments, IntervalPGetDatum(&every), !timer->repeats);
	add_some_text(arguments, timer->zone, timer->zone_len);
	shard_statement_add(arguments, Int16GetDatum((int16) timer->missed), false);
	add_int8(arguments, timer->fired);
	shard_statement_add(arguments, Int64GetDatum(timer->idle), timer->idle == 0);
	shard_statement_add_text(arguments, timer->message, timer->message_len);
	shard_statement_change_one(&insert_timer, arguments, SPI_OK_INSERT);
}

static void
write_timer(const ShardCopySetKey *shard, const ShardReplicaRow *row, ShardReader *reader)
{
	ShardArguments arguments = {0};
	ShardCopyTimer timer;

	add_entity(&arguments, shard, row);
	shard_statement_add_text(&arguments, row->id.name, row->id.name_len);
	shard_statement_change(&delete_timer, &arguments, SPI_OK_DELETE);
	if (reader->at != NULL && shard_copy_get_timer(reader, &timer))
		put_timer(&arguments, shard, &timer);
}

static void
write_key(const ShardType *type, const ShardCopySetKey *shard, const ShardReplicaRow *row)
{
	ShardReader item = row->item;
	ShardReader reader;
	ShardCopyHistory history;
	ShardTurnKey key;

	(void) shard_turn_get_key(&item, &key);
	reader = (ShardReader){key.row, key.row == NULL ? NULL : key.row + key.row_len};
	switch (key.part)
	{
		case SHARD_COPY_STASH:
			write_held(shard, row, &reader);
			break;
		case SHARD_COPY_ORDERED:
			write_ordered(shard, row, &reader);
			break;
		case SHARD_COPY_TIMERS:
			write_timer(shard, row, &reader);
			break;
		default:
			if (shard_copy_get_history(&reader, &history))
				shard_history_store(type, shard->shard, &history);
	}
}

static void
write_mark(const ShardCopySetKey *shard, const ShardReplicaRow *row)
{
	ShardArguments arguments = {0};

	add_shard(&arguments, shard);
	shard_statement_add(&arguments, Int16GetDatum((int16) row->id.number), false);
	shard_statement_add(&arguments, Int32GetDatum(row->id.a), false);
	shard_statement_add(&arguments, Int32GetDatum(row->id.b), false);
	add_int8(&arguments, row->seq);
	shard_statement_change(&put_mark, &arguments, SPI_OK_INSERT);
}

/*
 * What is done of outputs, as a record says it of one shard, or, type 0, of those that no shard takes in: today these are all,
 * which are done when they were appended.
 */
static bool
is_done_by(const ShardTurnOutput *output, int64 oseq, const ShardReplicaRow *done)
{
	return oseq <= done->seq &&
		   (done->id.a == 0 || (done->id.a == output->type_id && done->id.b == output->shard));
}

static void
write_output(const ShardCopySetKey *shard, const ShardReplicaRow *row, HTAB *rows)
{
	ShardReader item = row->item;
	ShardArguments arguments = {0};
	ShardReplicaRowName id = {.copy = row->id.copy,
							  .section = SHARD_TURN_ODONE,
							  .entity = "",
							  .name = ""};
	const ShardReplicaRow *done;
	ShardTurnOutput output;

	(void) shard_turn_get_output(&item, &output);
	done = hash_search(rows, &id, HASH_FIND, NULL);
	if (done != NULL && is_done_by(&output, row->id.number, done))
		return;
	id.a = output.type_id;
	id.b = output.shard;
	done = hash_search(rows, &id, HASH_FIND, NULL);
	if (done != NULL && is_done_by(&output, row->id.number, done))
		return;
	add_shard(&arguments, shard);
	add_int8(&arguments, row->id.number);
	shard_statement_add(&arguments, Int16GetDatum((int16) output.kind), false);
	shard_statement_add(&arguments, Int32GetDatum(output.type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(output.shard), false);
	shard_statement_add_text(&arguments, output.entity, output.entity_len);
	shard_statement_add_text(&arguments, output.src_entity, output.src_entity_len);
	shard_statement_add_text(&arguments, output.payload, output.payload_len);
	shard_statement_change_one(&put_output, &arguments, SPI_OK_INSERT);
}

static void
write_done(const ShardCopySetKey *shard, const ShardReplicaRow *row)
{
	ShardArguments arguments = {0};

#ifdef SHARD_MUTANT_OUTPUTS_NEVER_DONE
	return;
#endif
	add_shard(&arguments, shard);
	add_int8(&arguments, row->seq);
	shard_statement_add(&arguments, Int32GetDatum(row->id.a), false);
	shard_statement_add(&arguments, Int32GetDatum(row->id.b), false);
	shard_statement_change(&delete_done, &arguments, SPI_OK_DELETE);
}

static void
write_letter(const ShardCopySetKey *shard, const ShardReplicaRow *row)
{
	ShardReader item = row->item;
	ShardArguments arguments = {0};
	ShardTurnLetter letter;
	char stamp[SHARD_LOG_STAMP_BYTES];

	(void) shard_turn_get_letter(&item, &letter);
	add_shard(&arguments, shard);
	add_int8(&arguments, letter.number);
	if (letter.gone)
	{
		shard_statement_change(&delete_letter, &arguments, SPI_OK_DELETE);
		return;
	}
	shard_log_put_stamp(stamp, letter.stamp);
	shard_statement_add(&arguments, TimestampTzGetDatum(letter.at), false);
	shard_statement_add_text(&arguments, letter.entity, letter.entity_len);
	shard_statement_add(&arguments, Int16GetDatum((int16) letter.kind), false);
	shard_statement_add(&arguments, Int32GetDatum(letter.epoch), letter.epoch < 0);
	shard_statement_add_text(&arguments, letter.stamp.kind == SHARD_PREFIX_NONE ? NULL : stamp,
							 sizeof(stamp));
	shard_statement_add(&arguments, Int32GetDatum(letter.src_type), letter.src_type == 0);
	shard_statement_add_text(&arguments, letter.src_type == 0 ? NULL : letter.src_entity,
							 letter.src_entity_len);
	shard_statement_add(&arguments, Int32GetDatum(letter.mid_node), false);
	add_int8(&arguments, letter.mid_seq);
	shard_statement_add_text(&arguments, letter.payload, letter.payload_len);
	shard_statement_add_text(&arguments, letter.sqlstate, letter.sqlstate_len);
	shard_statement_add_text(&arguments, letter.error, letter.error_len);
	add_some_text(&arguments, letter.detail, letter.detail_len);
	add_some_text(&arguments, letter.hint, letter.hint_len);
	add_some_text(&arguments, letter.context, letter.context_len);
	shard_statement_add(&arguments, Int32GetDatum(letter.attempts), false);
	shard_statement_change(&put_letter, &arguments, SPI_OK_INSERT);
}

void
shard_replica_rows_write(const ShardReplicaPass *pass, const ShardType *type)
{
	MemoryContext memory =
		AllocSetContextCreate(CurrentMemoryContext, "shard replica write", ALLOCSET_DEFAULT_SIZES);
	int count;
	ShardReplicaRow **list = shard_replica_rows_list(pass->rows, &count);
	MemoryContext old = MemoryContextSwitchTo(memory);

	for (int i = 0; i < count; i++)
	{
		const ShardReplicaRow *row = list[i];
		const ShardCopySetKey *shard = &pass->copies[row->id.copy].item.key;

		switch (row->id.section)
		{
			case SHARD_TURN_KEYS:
				write_key(type, shard, row);
				break;
			case SHARD_TURN_MARKS:
				write_mark(shard, row);
				break;
			case SHARD_TURN_OUTPUTS:
				write_output(shard, row, pass->rows);
				break;
			case SHARD_TURN_ODONE:
				write_done(shard, row);
				break;
			default:
				write_letter(shard, row);
		}
		MemoryContextReset(memory);
		CHECK_FOR_INTERRUPTS();
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(memory);
}
