/*
 * dead_letter_room.c
 *		How many dead letters a type may have, and what happens when it has them.
 *
 * A worker counts them when it needs to know, once a turn, and takes a share of what may still come: so it counts
 * seldom, and all workers together pass the bound only by what was not committed when one of them looked. What is
 * counted here is no truth: if the process dies right here, or the turn is undone, the next look says how many there are.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "dead_letter_room.h"
#include "executor_private.h"
#include "guc.h"
#include "statement.h"

#include "compat.h"

/* A type that is full is looked at again so soon. */
#define LOOK_AGAIN USECS_PER_SEC

/* Where the oldest make room, so many percent go at once. */
#define AT_ONCE 1

/* Rows of one statement. */
#define MOST_AT_ONCE 1000

static ShardStatement count_letters = {"SELECT count(*), coalesce(sum(" SHARD_DEAD_LETTER_BYTES
									   "), 0)::int8 FROM shard.dead_letter"
									   " WHERE type_id = $1",
									   1,
									   {INT4OID}};

/* So many of the oldest. Nobody is waited for who sends some of them again just now. */
static ShardStatement delete_oldest = {
	"WITH gone AS (DELETE FROM shard.dead_letter WHERE id = ANY (ARRAY(SELECT id"
	" FROM shard.dead_letter WHERE type_id = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED))"
	" RETURNING " SHARD_DEAD_LETTER_BYTES " AS size)"
	" SELECT count(*), coalesce(sum(size), 0)::int8 FROM gone",
	2,
	{INT4OID, INT8OID}};

/* What is there, as this turn sees it. */
static void
count(const ShardRun *run, int64 *messages, int64 *bytes)
{
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(run->type->type_id), false);
	SPI_connect();
	shard_statement_run(&count_letters, &arguments, SPI_OK_SELECT);
	*messages = shard_statement_int8(0, 1);
	*bytes = shard_statement_int8(0, 2);
	SPI_finish();
}

static void
delete_some(const ShardRun *run, int64 limit, int64 *messages, int64 *bytes)
{
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(run->type->type_id), false);
	shard_statement_add(&arguments, Int64GetDatum(limit), false);
	SPI_connect();
	shard_statement_run(&delete_oldest, &arguments, SPI_OK_SELECT);
	*messages = shard_statement_int8(0, 1);
	*bytes = shard_statement_int8(0, 2);
	SPI_finish();
}

static void
say_full(const ShardType *type, int64 messages, int64 bytes)
{
	if (shard_turn_log_counts(SHARD_TURN_LOG_FULL))
		shard_turn_log(SHARD_TURN_LOG_FULL, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
					   psprintf("entity type \"%s\" has as many dead letters as it may have",
								type->name),
					   psprintf("They are " INT64_FORMAT ", of " INT64_FORMAT
								" bytes. Messages that fail wait, and those behind them.",
								messages, bytes),
					   "Send them again with shard_redrive(), or drop them; max_dead_letters, "
					   "max_dead_letters_size and dead_letters_full say what is allowed.");
}

static void
say_deleted(const ShardType *type, int64 deleted)
{
	if (shard_turn_log_counts(SHARD_TURN_LOG_FULL))
		shard_turn_log(
			SHARD_TURN_LOG_FULL, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
			psprintf("deleted the oldest dead letters of entity type \"%s\": " INT64_FORMAT,
					 type->name, deleted),
			"It has as many as it may have, and its dead_letters_full is drop_oldest.",
			"See max_dead_letters and max_dead_letters_size.");
}

/* The oldest go. False: all that are left are just being sent again. */
static bool
make_room(ShardRun *run, int64 messages, int64 all_bytes, int64 bytes)
{
	const ShardType *type = run->type;
	int64 too_many = Max(messages - type->max_dead_letters + 1, 0);
	int64 too_much = Max(all_bytes - type->max_dead_letters_size + bytes, 0);
	int64 more = too_many > 0 ? type->max_dead_letters * AT_ONCE / 100 : 0;
	int64 more_bytes = too_much > 0 ? type->max_dead_letters_size * AT_ONCE / 100 : 0;
	int64 limit = Max(too_many + more, 1);
	int64 deleted = 0;
	int64 freed = 0;

	while (deleted < messages && (deleted < too_many + more || freed < too_much + more_bytes))
	{
		int64 n;
		int64 size;

		delete_some(run, limit, &n, &size);
		if (n == 0)
			break;
		deleted += n;
		freed += size;
		limit = Min(2 * limit, MOST_AT_ONCE);
	}
	if (deleted > 0)
		say_deleted(type, deleted);
	run->dead_room = Max(deleted - too_many, 0);
	run->dead_room_bytes = Max(freed - too_much, 0);
	return deleted == messages || (deleted >= too_many && freed >= too_much);
}

static int64
length_of(const char *text)
{
	return text == NULL ? 0 : (int64) strlen(text);
}

/* See dead_letter_room.h. One that is larger than all may be is let in alone. */
bool
shard_dead_letter_has_room(ShardRun *run, const ShardRow *row, const ErrorData *error)
{
	const ShardType *type = run->type;
	const int64 bytes = row->payload_len + length_of(error->message) + length_of(error->detail) +
						length_of(error->hint) + length_of(error->context);
	TimestampTz now = GetCurrentTimestamp();
	int64 there;
	int64 there_bytes;
	int64 room;
	int64 room_bytes;

	if (run->dead_room > 0 && run->dead_room_bytes >= bytes)
	{
		run->dead_room--;
		run->dead_room_bytes -= bytes;
		return true;
	}
	if (run->dead_full_until > now && run->dead_full_until < now + 2 * LOOK_AGAIN)
		return false;
	if (run->dead_looked == shard_turn.now && !type->drop_oldest_dead_letters)
		return false;
	run->dead_looked = shard_turn.now;
	count(run, &there, &there_bytes);
	room = type->max_dead_letters - there;
	room_bytes = type->max_dead_letters_size - there_bytes;
	run->dead_full_until = 0;
	if (there == 0 || (room > 0 && room_bytes >= bytes))
	{
		run->dead_room = Max(room - 1, 0) / shard_region_workers;
		run->dead_room_bytes = Max(room_bytes - bytes, 0) / shard_region_workers;
		return true;
	}
	run->dead_room = run->dead_room_bytes = 0;
	if (type->drop_oldest_dead_letters)
		return make_room(run, there, there_bytes, bytes);
	run->dead_full_until = now + LOOK_AGAIN;
	say_full(type, there, there_bytes);
	return false;
}
