/*
 * copy/timer_copy.c
 *		Timers of a shard that moves (E36): from the table of the old home, into that of the new one.
 *
 * Comes from: export.c, in answers of the old home; import_stage.c, in the transaction that stages the shard.
 *
 * A timer keeps its time, its generation and what it has fired, so a message that was on its way to the entity when the
 * shard moved means the same firing at the new home. That home fires what is due when the shard becomes active there
 * (timer_due.c). If the process dies right here: the copy is not stored, and the old home has its rows.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/timestamp.h"

#include "copy/timer_copy.h"
#include "core/base/message.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Rows that one statement reads. */
#define BATCH 200

static ShardStatement select_timers = {
	"SELECT entity, name, due, generation, first, period, every, zone, missed, fired, idle, message"
	" FROM shard.timer WHERE type_id = $1 AND shard = $2 AND (entity, name) > ($3, $4)"
	" ORDER BY entity, name LIMIT $5",
	5,
	{INT4OID, INT4OID, TEXTOID, TEXTOID, INT4OID}};

static ShardStatement insert_timer = {
	"INSERT INTO shard.timer (type_id, shard, entity, name, lane, due, generation, first, period,"
	" every, zone, missed, fired, idle, message)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
	15,
	{INT4OID, INT4OID, TEXTOID, TEXTOID, INT2OID, TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID, INT8OID,
	 INTERVALOID, TEXTOID, INT2OID, INT8OID, INT8OID, BYTEAOID}};

static void
put_timer(uint64 number, StringInfo rows, StringInfo next)
{
	MemoryContext memory = CurrentMemoryContext;
	ShardCopyTimer timer = {0};
	bool isnull;
	Datum every;

	timer.entity = shard_statement_bytes(number, 1, memory, &timer.entity_len);
	timer.name = shard_statement_bytes(number, 2, memory, &timer.name_len);
	timer.due = shard_statement_int8(number, 3);
	timer.generation = shard_statement_int8(number, 4);
	timer.first = shard_statement_int8(number, 5);
	timer.period = shard_statement_int8(number, 6);
	every = shard_statement_column(number, 7, &isnull);
	timer.repeats = !isnull;
	if (timer.repeats)
	{
		const Interval *interval = DatumGetIntervalP(every);

		timer.months = interval->month;
		timer.days = interval->day;
		timer.time = interval->time;
	}
	timer.zone = shard_statement_bytes(number, 8, memory, &timer.zone_len);
	timer.missed = DatumGetInt16(shard_statement_column(number, 9, &isnull));
	timer.fired = shard_statement_int8(number, 10);
	timer.idle = shard_statement_int8(number, 11);
	timer.message = shard_statement_bytes(number, 12, memory, &timer.message_len);
	shard_copy_put_timer(rows, &timer);

	resetStringInfo(next);
	shard_wire_put_int(next, timer.entity_len);
	appendBinaryStringInfo(next, timer.entity, timer.entity_len);
	appendBinaryStringInfo(next, timer.name, timer.name_len);
}

/* Arguments 3 and 4 of select_timers: behind the timer that the key names. */
static void
add_key(ShardArguments *arguments, const char *after, int after_len)
{
	ShardReader reader = {after, after + after_len, after_len == 0};
	int64 length = shard_wire_get_int(&reader);
	bool good = !reader.failed && length > 0 && length <= reader.end - reader.at;

	/* no entity is called "" */
	shard_statement_add_text(arguments, good ? reader.at : "", good ? (int) length : 0);
	shard_statement_add_text(arguments, good ? reader.at + length : "",
							 good ? (int) (reader.end - reader.at - length) : 0);
}

int32
shard_copy_timers_put(int32 type_id, int32 shard, const char *after, int after_len, int left,
					  StringInfo rows, StringInfo next, bool *all)
{
	ShardArguments arguments = {0};
	uint64 found;
	uint64 put = 0;

	SPI_connect();
	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(shard), false);
	add_key(&arguments, after, after_len);
	shard_statement_add(&arguments, Int32GetDatum(BATCH), false);
	shard_statement_run(&select_timers, &arguments, SPI_OK_SELECT);
	found = SPI_processed;
	while (put < found && (put == 0 || rows->len < left))
		put_timer(put++, rows, next);
	SPI_finish();
	*all = found < BATCH && put == found;
	return (int32) put;
}

void
shard_copy_timers_store(int32 type_id, int32 shard, const ShardCopyTimer *timer)
{
	ShardArguments arguments = {0};
	Interval every = {.month = timer->months, .day = timer->days, .time = timer->time};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(shard), false);
	shard_statement_add_text(&arguments, timer->entity, timer->entity_len);
	shard_statement_add_text(&arguments, timer->name, timer->name_len);
	shard_statement_add(&arguments, Int16GetDatum((int16) shard_message_lane(type_id, shard)),
						false);
	shard_statement_add(&arguments, TimestampTzGetDatum(timer->due), false);
	shard_statement_add(&arguments, Int64GetDatum(timer->generation), false);
	shard_statement_add(&arguments, TimestampTzGetDatum(timer->first), false);
	shard_statement_add(&arguments, Int64GetDatum(timer->period), false);
	shard_statement_add(&arguments, IntervalPGetDatum(&every), !timer->repeats);
	shard_statement_add_text(&arguments, timer->zone_len == 0 ? NULL : timer->zone,
							 timer->zone_len);
	shard_statement_add(&arguments, Int16GetDatum((int16) timer->missed), false);
	shard_statement_add(&arguments, Int64GetDatum(timer->fired), false);
	shard_statement_add(&arguments, Int64GetDatum(timer->idle), timer->idle == 0);
	shard_statement_add_text(&arguments, timer->message, timer->message_len);
	shard_statement_change_one(&insert_timer, &arguments, SPI_OK_INSERT);
}
