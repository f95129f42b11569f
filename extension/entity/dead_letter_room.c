/*
 * entity/dead_letter_room.c
 *		How many dead letters a type may have, and all together that are not here, and what happens then.
 *
 * Comes from: failure.c, order.c, deliver.c, before they give a message up.
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

#include "entity/internal.h"
#include "base/guc.h"
#include "registry/statement.h"

#include "base/compat.h"

/* A type that is full is looked at again after this time. */
#define LOOK_AGAIN USECS_PER_SEC

/* Where the oldest make room, this many percent go at once. */
#define AT_ONCE 1

/*
 * Of types that are not here a larger share goes at once, and once in this time at most: there is no sender here that
 * could be slowed down, and a peer that sends such messages, or a role that drops a type that it has sent to, would
 * have each message stored only to be deleted, with the dead letters of all others.
 */
#define STRAYS_AT_ONCE 10
#define STRAYS_EVERY (60 * USECS_PER_SEC)

/* Dead letters of types that are not here have this many bytes at most, as those of a type by default. */
#define MOST_STRAY_BYTES (256 * INT64CONST(1048576))

/* Rows of one statement. */
#define MOST_AT_ONCE 1000

static ShardStatement count_letters = {"SELECT count(*), coalesce(sum(" SHARD_DEAD_LETTER_BYTES
									   "), 0)::int8 FROM shard.dead_letter"
									   " WHERE type_id = $1",
									   1,
									   {INT4OID}};

/* Of types that neither are here nor left anything here: they have no owner, so they are counted together (D16). */
#define STRAY "NOT EXISTS (SELECT FROM shard.type t WHERE t.type_id = d.type_id)"

static ShardStatement count_strays = {"SELECT count(*), coalesce(sum(" SHARD_DEAD_LETTER_BYTES
									  "), 0)::int8 FROM shard.dead_letter d WHERE " STRAY,
									  0,
									  {0}};

static ShardStatement delete_oldest_strays = {
	"WITH gone AS (DELETE FROM shard.dead_letter WHERE id = ANY (ARRAY(SELECT id"
	" FROM shard.dead_letter d WHERE " STRAY " ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))"
	" RETURNING " SHARD_DEAD_LETTER_BYTES " AS size)"
	" SELECT count(*), coalesce(sum(size), 0)::int8 FROM gone",
	1,
	{INT8OID}};

/* At most $2 of the oldest. Rows that a redrive sends again just now are passed over, without waiting. */
static ShardStatement delete_oldest = {
	"WITH gone AS (DELETE FROM shard.dead_letter WHERE id = ANY (ARRAY(SELECT id"
	" FROM shard.dead_letter WHERE type_id = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED))"
	" RETURNING " SHARD_DEAD_LETTER_BYTES " AS size)"
	" SELECT count(*), coalesce(sum(size), 0)::int8 FROM gone",
	2,
	{INT4OID, INT8OID}};

/* Dead letters that have one bound: those of a type, or of all that are not here. */
typedef struct Pool
{
	const ShardType *type; /* NULL: strays */
	int64 max;
	int64 max_bytes;
	int percent; /* to go at once */
	int64 *room; /* how many, and how much, may come before they are counted again */
	int64 *room_bytes;
} Pool;

static int64 stray_room = 0;
static int64 stray_room_bytes = 0;
static TimestampTz strays_full_until = 0;

static Pool
pool_of(ShardLocalType *local)
{
	return (Pool){local->type,
				  local->type->max_dead_letters,
				  local->type->max_dead_letters_size,
				  AT_ONCE,
				  &local->dead_room,
				  &local->dead_room_bytes};
}

/* Counts the dead letters of a pool, as this turn sees them. */
static void
count(const Pool *pool, int64 *messages, int64 *bytes)
{
	ShardArguments arguments = {0};

	if (pool->type != NULL)
		shard_statement_add(&arguments, Int32GetDatum(pool->type->type_id), false);
	SPI_connect();
	shard_statement_run(pool->type != NULL ? &count_letters : &count_strays, &arguments,
						SPI_OK_SELECT);
	*messages = shard_statement_int8(0, 1);
	*bytes = shard_statement_int8(0, 2);
	SPI_finish();
}

static void
delete_some(const Pool *pool, int64 limit, int64 *messages, int64 *bytes)
{
	ShardArguments arguments = {0};

	if (pool->type != NULL)
		shard_statement_add(&arguments, Int32GetDatum(pool->type->type_id), false);
	shard_statement_add(&arguments, Int64GetDatum(limit), false);
	SPI_connect();
	shard_statement_run(pool->type != NULL ? &delete_oldest : &delete_oldest_strays, &arguments,
						SPI_OK_SELECT);
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
					   psprintf("There are " INT64_FORMAT ", of " INT64_FORMAT " bytes. Messages "
								"that fail wait, and so do the messages behind them.",
								messages, bytes),
					   "Send them again with shard_redrive(), or drop them; max_dead_letters, "
					   "max_dead_letters_size and dead_letters_full say what is allowed.");
}

static void
say_deleted(const ShardType *type, int64 deleted)
{
	if (!shard_turn_log_counts(SHARD_TURN_LOG_FULL))
		return;
	if (type == NULL)
		shard_turn_log(
			SHARD_TURN_LOG_FULL, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
			psprintf("deleted the oldest dead letters of entity types that are not "
					 "here: " INT64_FORMAT,
					 deleted),
			"There are as many such dead letters as may be.",
			"Setting \"shard.max_stray_dead_letters\" says how many. Such messages were in the "
			"inbox or on their way when their type was dropped, or other nodes, or callers in "
			"their names, send them.");
	else
		shard_turn_log(
			SHARD_TURN_LOG_FULL, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
			psprintf("deleted the oldest dead letters of entity type \"%s\": " INT64_FORMAT,
					 type->name, deleted),
			"The type has as many dead letters as it may have, and its dead_letters_full is "
			"drop_oldest.",
			"See max_dead_letters and max_dead_letters_size.");
}

/* The oldest go. False: all that are left are just being sent again. */
static bool
make_room(const Pool *pool, int64 messages, int64 all_bytes, int64 bytes)
{
	int64 too_many = Max(messages - pool->max + 1, 0);
	int64 too_much = Max(all_bytes - pool->max_bytes + bytes, 0);
	int64 more = too_many > 0 ? pool->max * pool->percent / 100 : 0;
	int64 more_bytes = too_much > 0 ? pool->max_bytes * pool->percent / 100 : 0;
	int64 limit = Max(too_many + more, 1);
	int64 deleted = 0;
	int64 freed = 0;

	while (deleted < messages && (deleted < too_many + more || freed < too_much + more_bytes))
	{
		int64 n;
		int64 size;

		delete_some(pool, limit, &n, &size);
		if (n == 0)
			break;
		deleted += n;
		freed += size;
		limit = Min(2 * limit, MOST_AT_ONCE);
	}
	if (deleted > 0)
		say_deleted(pool->type, deleted);
	*pool->room = Max(deleted - too_many, 0);
	*pool->room_bytes = Max(freed - too_much, 0);
	return deleted == messages || (deleted >= too_many && freed >= too_much);
}

static int64
length_of(const char *text)
{
	return text == NULL ? 0 : (int64) strlen(text);
}

static int64
bytes_of(const ShardRow *row, const ErrorData *error)
{
	return row->payload_len + length_of(error->message) + length_of(error->detail) +
		   length_of(error->hint) + length_of(error->context);
}

/* The last ones before all is full are counted for each; one that is larger than all may be is let in alone. */
bool
shard_dead_letter_has_stray_room(const ShardRow *row, const ErrorData *error)
{
	const Pool pool = {NULL,
					   shard_max_stray_dead_letters,
					   MOST_STRAY_BYTES,
					   STRAYS_AT_ONCE,
					   &stray_room,
					   &stray_room_bytes};
	const int64 bytes = bytes_of(row, error);

	if (stray_room <= 0 || stray_room_bytes < bytes)
	{
		TimestampTz now = GetCurrentTimestamp();
		int64 there;
		int64 there_bytes;

		if (strays_full_until > now && strays_full_until < now + 2 * STRAYS_EVERY)
			return false;
		count(&pool, &there, &there_bytes);
		stray_room = (pool.max - there) / shard_region_workers;
		stray_room_bytes = (pool.max_bytes - there_bytes) / shard_region_workers;
		if (there > 0 && (there >= pool.max || there_bytes + bytes > pool.max_bytes))
		{
			strays_full_until = now + STRAYS_EVERY;
			if (!make_room(&pool, there, there_bytes, bytes))
				return false;
		}
	}
	stray_room--;
	stray_room_bytes -= bytes;
	return true;
}

/* One that is larger than all may be is let in alone. */
bool
shard_dead_letter_has_room(ShardLocalType *local, const ShardRow *row, const ErrorData *error)
{
	const ShardType *type = local->type;
	const Pool pool = pool_of(local);
	const int64 bytes = bytes_of(row, error);
	TimestampTz now = GetCurrentTimestamp();
	int64 there;
	int64 there_bytes;
	int64 room;
	int64 room_bytes;

	if (local->dead_room > 0 && local->dead_room_bytes >= bytes)
	{
		local->dead_room--;
		local->dead_room_bytes -= bytes;
		return true;
	}
	if (local->dead_full_until > now && local->dead_full_until < now + 2 * LOOK_AGAIN)
		return false;
	if (local->dead_looked == shard_turn.now && !type->drop_oldest_dead_letters)
		return false;
	local->dead_looked = shard_turn.now;
	count(&pool, &there, &there_bytes);
	room = type->max_dead_letters - there;
	room_bytes = type->max_dead_letters_size - there_bytes;
	local->dead_full_until = 0;
	if (there == 0 || (room > 0 && room_bytes >= bytes))
	{
		local->dead_room = Max(room - 1, 0) / shard_region_workers;
		local->dead_room_bytes = Max(room_bytes - bytes, 0) / shard_region_workers;
		return true;
	}
	local->dead_room = local->dead_room_bytes = 0;
	if (type->drop_oldest_dead_letters)
		return make_room(&pool, there, there_bytes, bytes);
	local->dead_full_until = now + LOOK_AGAIN;
	say_full(type, there, there_bytes);
	return false;
}
