/*
 * executor_ordered.c
 *		Messages in the order of their numbers, for types with ordered_by (doc/protocol.md D25).
 *
 * A message whose number is the expected one is handled, a later one is put into shard.held, place
 * ordered, an earlier one is given up. How far an entity is, is in memory with its entity, and a row of
 * shard.ordered, written once per turn. All of it is the turn's own transaction: if the process dies
 * right here, neither the message nor the position moved, or both did.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "duration.h"
#include "executor_private.h"
#include "statement.h"

#include "compat.h"

/* Rows of one entity that are read at once: few at first, since often few are ready. */
#define FIRST_ROWS 4
#define MOST_ROWS 1000

/* A number that leaves out more than these is none, but a mistake: it would end the order for good. */
#define LONGEST_GAP PG_INT32_MAX

#define COLUMNS 7

static ShardStatement select_position = {"SELECT began, expected, skipped, late FROM shard.ordered"
										 " WHERE type_id = $1 AND shard = $2 AND entity = $3",
										 3,
										 {INT4OID, INT4OID, TEXTOID}};

static ShardStatement write_positions = {
	"INSERT INTO shard.ordered (type_id, shard, entity, began, expected, skipped, late)"
	/* unnest() of several arrays is a matter of its bare name, which is not safe to use. */
	" SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3),"
	" pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6), pg_catalog.unnest($7))"
	" ON CONFLICT (type_id, shard, entity) DO UPDATE SET began = EXCLUDED.began,"
	" expected = EXCLUDED.expected, skipped = EXCLUDED.skipped, late = EXCLUDED.late",
	COLUMNS,
	{INT4ARRAYOID, INT4ARRAYOID, TEXTARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID,
	 INT8ARRAYOID}};

static ShardStatement delete_position = {
	"DELETE FROM shard.ordered WHERE type_id = $1 AND shard = $2 AND entity = $3",
	3,
	{INT4OID, INT4OID, TEXTOID}};

/* type_id, shard, entity */
static void
add_key(ShardArguments *arguments, const ShardEntity *entity)
{
	shard_statement_add(arguments, Int32GetDatum(entity->run->type->type_id), false);
	shard_statement_add(arguments, Int32GetDatum(entity->shard), false);
	shard_statement_add_text(arguments, entity->id, entity->id_len);
}

/* Reads where the entity is; what waits of it is known already. */
static void
read_position(const ShardEntity *entity, ShardOrder *order)
{
	ShardArguments arguments = {0};

	SPI_connect();
	add_key(&arguments, entity);
	shard_statement_run(&select_position, &arguments, SPI_OK_SELECT);
	order->known = true;
	order->begun = SPI_processed > 0;
	if (order->begun)
	{
		order->began = shard_statement_int8(0, 1);
		order->expected = shard_statement_int8(0, 2);
		order->skipped = shard_statement_int8(0, 3);
		order->late = shard_statement_int8(0, 4);
	}
	SPI_finish();
}

/* The order of an entity in the turn, with its position. */
static ShardOrder *
order_of(ShardEntity *entity)
{
	ShardOrdering *ordering;

	if (entity->ordering == NULL)
		shard_cache_make_ordering(entity);
	ordering = entity->ordering;
	if (!ordering->now.known)
	{
		/* nobody else writes the row, so it is that of the last commit */
		shard_turn_end_user_code();
		read_position(entity, &ordering->saved);
		ordering->now = ordering->saved;
	}
	return &ordering->now;
}

/* Whether what waits needs to wait no longer. A type may have lost its ordered_by meanwhile. */
static bool
is_ready(const ShardEntity *entity)
{
	const ShardOrder *order = &entity->ordering->now;

	return order->waiting > 0 && (!order->begun || order->lowest == order->expected ||
								  entity->run->type->ordered_by_name == NULL);
}

/* A number is passed: handled, or given up. */
static void
pass(ShardEntity *entity, int64 number)
{
	entity->ordering->now.expected = number + 1;
	entity->ordering->dirty = true;
}

/* One line in the log for each kind of event, but no more than one a second. */
static bool
may_report(TimestampTz *last, int *silent)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now - *last >= USECS_PER_SEC)
	{
		*last = now;
		return true;
	}
	(*silent)++;
	return false;
}

static void
report_gap(const ShardEntity *entity, bool timed_out)
{
	static TimestampTz last = 0;
	static int silent = 0;
	const ShardOrder *order = &entity->ordering->now;
	const ShardType *type = entity->run->type;

	if (!may_report(&last, &silent))
		return;
	ereport(
		LOG,
		(errmsg("messages " INT64_FORMAT " to " INT64_FORMAT
				" of entity \"%s\" of type \"%s\" were skipped",
				order->expected, order->lowest - 1, entity->id, type->name),
		 timed_out ? errdetail("They did not come while later ones waited for %s; %d more "
							   "gap(s) since the last such message in the log.",
							   shard_duration_format(type->ordered_timeout), silent)
				   : errdetail("More than %d later ones wait; %d more gap(s) since the last such "
							   "message in the log.",
							   type->ordered_window, silent),
		 errhint("See view shard_ordered; a message that comes after all becomes a dead letter.")));
	silent = 0;
}

/* Gives up the numbers in front of what waits, which is expected then. */
static void
skip_gap(ShardEntity *entity, bool timed_out)
{
	ShardOrder *order = &entity->ordering->now;
	int64 length;

	report_gap(entity, timed_out);
	if (pg_sub_s64_overflow(order->lowest, order->expected, &length) ||
		pg_add_s64_overflow(order->skipped, length, &order->skipped))
		order->skipped = PG_INT64_MAX;
	order->expected = order->lowest;
	entity->ordering->dirty = true;
}

/* Why a message comes too late. */
static ErrorData
late_error(const ShardOrder *order, int64 number)
{
	bool waits = number > order->expected ||
				 (order->waiting > 0 && number == order->lowest && number == order->expected);
	ErrorData error = {0};

	error.sqlerrcode = ERRCODE_UNIQUE_VIOLATION;
	error.detail =
		psprintf("The entity began with number " INT64_FORMAT " and expects " INT64_FORMAT
				 "; " INT64_FORMAT " number(s) were skipped.",
				 order->began, order->expected, order->skipped);
	error.hint = "If it has to be handled, send it in a form for which the type's ordered_by "
				 "returns null.";
	if (waits)
		error.message =
			psprintf("another message with number " INT64_FORMAT " waits already", number);
	else if (number >= order->began && order->skipped == 0)
		error.message = psprintf("a message with number " INT64_FORMAT " was there before", number);
	else
		error.sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	if (error.message == NULL && number < order->began)
		error.message = psprintf("message number " INT64_FORMAT " is below " INT64_FORMAT
								 ", with which the entity began",
								 number, order->began);
	else if (error.message == NULL)
		error.message = psprintf("message number " INT64_FORMAT
								 " comes too late: that number was handled or skipped",
								 number);
	return error;
}

static void
report_dead_letter(const ShardEntity *entity, const ErrorData *error)
{
	static TimestampTz last = 0;
	static int silent = 0;

	if (!may_report(&last, &silent))
		return;
	ereport(LOG, (errcode(error->sqlerrcode),
				  errmsg("a message of entity \"%s\" of type \"%s\" became a dead letter: %s",
						 entity->id, entity->run->type->name, error->message),
				  errdetail("%d more of this kind since the last such message in the log.", silent),
				  errhint("See shard_dead_letters and shard_ordered.")));
	silent = 0;
}

/* Why a number cannot be one of the entity's. */
static ErrorData
far_error(const ShardOrder *order, int64 number)
{
	ErrorData error = {0};

	error.sqlerrcode = ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE;
	error.message =
		psprintf("message number " INT64_FORMAT " is too far ahead: " INT64_FORMAT " is expected",
				 number, order->expected);
	error.detail = psprintf("A message may leave out %d numbers at most.", LONGEST_GAP);
	error.hint = "Number the messages of an entity 1, 2, 3 and so on.";
	return error;
}

/* The message is given up for its number. */
static ShardOutcome
bury(ShardEntity *entity, const ShardRow *row, const ErrorData *error)
{
	shard_turn_end_user_code();
	shard_held_dead_letter(row, 0, error);
	report_dead_letter(entity, error);
	return SHARD_MESSAGE_GONE;
}

/* Its number was passed, or is taken. */
static ShardOutcome
bury_late(ShardEntity *entity, const ShardRow *row, int64 number)
{
	ShardOrder *order = &entity->ordering->now;
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ErrorData error = late_error(order, number);

	MemoryContextSwitchTo(old);
	order->late++;
	entity->ordering->dirty = true;
	return bury(entity, row, &error);
}

static ShardOutcome
bury_far(ShardEntity *entity, const ShardRow *row, int64 number)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ErrorData error = far_error(&entity->ordering->now, number);

	MemoryContextSwitchTo(old);
	return bury(entity, row, &error);
}

/* Whether a number is so far ahead that it cannot be meant. */
static bool
is_far_ahead(const ShardOrder *order, int64 number)
{
	int64 gap;

	return number > order->expected &&
		   (pg_sub_s64_overflow(number, order->expected, &gap) || gap > LONGEST_GAP);
}

/* The message waits for lower numbers. Too many that wait make an end of the gap before them. */
static ShardOutcome
wait_for_lower(ShardEntity *entity, const ShardRow *row, int64 number)
{
	ShardOrder *order = &entity->ordering->now;

	shard_turn_end_user_code();
	if (!shard_held_insert_ordered(row, number))
		return bury_late(entity, row, number);
	entity->wait.waiting++;
	if (order->waiting++ == 0)
	{
		order->lowest = number;
		order->since = shard_turn.now;
	}
	order->lowest = Min(order->lowest, number);
	entity->ordering->dirty = true;
	if (order->waiting > entity->run->type->ordered_window && !is_ready(entity))
		skip_gap(entity, false);
	return SHARD_MESSAGE_GONE;
}

/*
 * The message's number, in a subtransaction. Returns the error of the function, NULL if there was none;
 * *numbered: whether it has one.
 */
static ErrorData *
read_number_fenced(ShardEntity *entity, const ShardRow *row, int64 *number, bool *numbered)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData *volatile error = NULL;

	/* what is opened in the subtransaction must be closed in it, and the reverse */
	shard_state_close(&entity->run->table);
	shard_security_begin(&shard_turn.security, entity->run->type);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(shard_turn.context);
	PG_TRY();
	{
		*numbered = shard_call_ordered_by(entity, row, number);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(shard_turn.context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		shard_call_aborted();
		shard_call_explain(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
	return error;
}

/* What becomes of a message whose number could not be found out. */
static ShardOutcome
judge_failure(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held,
			  ErrorData *error)
{
	int sqlstate;

	/* the function was dropped meanwhile: the message is not to blame */
	if (shard_handler_ordered_by_problem(entity->run->type, &sqlstate) != NULL)
		return shard_turn_rest(entity, row, is_held);
	return shard_failure_dispose(entity, row, attempts, is_held, error) ? SHARD_MESSAGE_GONE
																		: SHARD_MESSAGE_RESTS;
}

/* The entity begins, with the first number that its type gives, or else with this one. */
static void
begin(ShardEntity *entity, int64 number)
{
	const ShardType *type = entity->run->type;
	ShardOrder *order = &entity->ordering->now;

	order->begun = true;
	if (type->has_ordered_from)
		order->began = type->ordered_from;
	else
		order->began = order->waiting > 0 ? Min(number, order->lowest) : number;
	order->expected = order->began;
	entity->ordering->dirty = true;
}

/* Runs a message with a number, or finds it another place. */
static ShardOutcome
run_number(ShardEntity *entity, const ShardRow *row, int64 number, int attempts, bool is_held)
{
	ShardOrder *order = order_of(entity);
	ShardOutcome outcome;

	if (!order->begun)
		begin(entity, number);
	if (number != order->expected || is_ready(entity))
	{
		if (is_held)
			shard_turn_handled(entity, row);
		if (is_far_ahead(order, number))
			return bury_far(entity, row, number);
		return number > order->expected ? wait_for_lower(entity, row, number)
										: bury_late(entity, row, number);
	}
	outcome = shard_turn_run(entity, row, attempts, is_held);
	if (outcome != SHARD_MESSAGE_RESTS)
		pass(entity, number);
	return outcome;
}

ShardOutcome
shard_ordered_run(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	int64 number = 0;
	bool numbered = false;

	if (row->kind != SHARD_KIND_TELL || shard_turn_is_stuck(row))
		return shard_turn_run(entity, row, attempts, is_held);
	if (shard_turn.careful)
	{
		ErrorData *error = read_number_fenced(entity, row, &number, &numbered);

		if (error != NULL)
			return judge_failure(entity, row, attempts, is_held, error);
	}
	else
	{
		shard_turn.blames_last = true;
		numbered = shard_call_ordered_by(entity, row, &number);
		shard_turn.blames_last = false;
	}
	return numbered ? run_number(entity, row, number, attempts, is_held)
					: shard_turn_run(entity, row, attempts, is_held);
}

/* The first rows that wait of an entity, by number. */
static List *
load_lowest(const ShardEntity *entity, int limit)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	List *rows;

	shard_turn_end_user_code();
	rows = shard_held_load_ordered(entity->run->type->type_id, entity->shard, entity->id,
								   entity->id_len, limit);
	MemoryContextSwitchTo(old);
	return rows;
}

/* Runs rows that wait, but the last, as long as each is the expected one; returns how many. */
static int
run_rows(ShardEntity *entity, List *rows, int limit, bool *rests)
{
	ShardOrder *order = &entity->ordering->now;
	ListCell *cell;
	int done = 0;

	foreach (cell, rows)
	{
		ShardHeld *held = lfirst(cell);
		ShardOutcome outcome;

		order->lowest = held->number;
		if (done == limit || !is_ready(entity) || shard_turn.full)
			break;
		*rests = shard_turn_is_early(entity, held);
		if (*rests)
			break;
		shard_turn.count++;
		shard_turn.passed = true;
		outcome = shard_turn_run(entity, &held->row, held->attempts, true);
		*rests = outcome == SHARD_MESSAGE_RESTS;
		if (*rests)
			break;
		if (outcome == SHARD_MESSAGE_DONE)
			shard_turn_handled(entity, &held->row);
		if (!order->begun)
			order->began = held->number;
		order->begun = true;
		order->waiting--;
		pass(entity, held->number);
		done++;
	}
	return done;
}

int
shard_ordered_run_ready(ShardEntity *entity, bool *rests)
{
	int read = FIRST_ROWS;
	int done = 0;

	*rests = false;
	if (entity->ordering == NULL || entity->ordering->now.waiting == 0)
		return 0;
	(void) order_of(entity);
	while (!*rests && is_ready(entity) && shard_turn.count < shard_turn.limit && !shard_turn.full)
	{
		int limit = Min(read, shard_turn.limit - shard_turn.count);

		/* one more, whose number is the lowest then */
		done += run_rows(entity, load_lowest(entity, limit + 1), limit, rests);
		read = Min(read * 4, MOST_ROWS);
	}
	return done;
}

/* Some that waited are handled: since when the oldest of the others waits. */
static void
look_at_oldest(ShardEntity *entity)
{
	ShardOrder *order = &entity->ordering->now;
	ShardHeldOrdered ordered;

	shard_turn_end_user_code();
	ordered = shard_held_count_ordered(entity->run->type->type_id, entity->shard, entity->id,
									   entity->id_len);
	ShardAssert(ordered.waiting == order->waiting && ordered.lowest == order->lowest);

	/* what came before this process knew of it, counts from then on */
	order->since = Min(Max(order->since, ordered.oldest), shard_turn.now);
}

/* Whether the oldest message has waited for too long, as far as the log was read. */
static bool
is_over(const ShardEntity *entity)
{
	return entity->ordering->now.since + entity->run->type->ordered_timeout <=
		   shard_turn.read_until;
}

void
shard_ordered_time_out(ShardEntity *entity)
{
	if (entity->ordering == NULL || entity->ordering->now.waiting == 0)
		return;
	(void) order_of(entity);
	if (is_ready(entity) || !is_over(entity))
		return;
	look_at_oldest(entity);
	if (is_over(entity))
		skip_gap(entity, true);
}

bool
shard_ordered_is_due(const ShardEntity *entity)
{
	return entity->ordering != NULL && entity->ordering->saved.waiting > 0;
}

TimestampTz
shard_ordered_due_at(const ShardEntity *entity)
{
	const ShardOrder *order = &entity->ordering->now;

	if (!order->known || is_ready(entity))
		return 1;
	return order->since + entity->run->type->ordered_timeout;
}

void
shard_ordered_begin(ShardEntity *entity)
{
	ShardOrdering *ordering = entity->ordering;

	if (ordering == NULL)
		return;
	ordering->now = ordering->saved;
	ordering->dirty = ordering->ended = false;
}

void
shard_ordered_keep(ShardEntity *entity)
{
	if (entity->ordering != NULL)
		entity->ordering->saved = entity->ordering->now;
}

void
shard_ordered_load(ShardEntity *entity, const ShardHeldOrdered *ordered)
{
	ShardOrder *order;

	if (entity->ordering == NULL)
		shard_cache_make_ordering(entity);
	order = &entity->ordering->now;
	entity->wait.waiting += ordered->waiting - order->waiting;
	order->waiting = ordered->waiting;
	order->lowest = ordered->lowest;
	order->since = GetCurrentTimestamp();
}

/* A column for write_positions. */
static Datum
make_column(List *entities, int column)
{
	static const Oid types[COLUMNS] = {INT4OID, INT4OID, TEXTOID, INT8OID,
									   INT8OID, INT8OID, INT8OID};
	Datum *values = palloc(list_length(entities) * sizeof(Datum));
	int count = 0;
	ListCell *cell;

	foreach (cell, entities)
	{
		const ShardEntity *entity = lfirst(cell);
		const ShardOrder *order = &entity->ordering->now;
		Datum *value = &values[count++];

		switch (column)
		{
			case 0:
				*value = Int32GetDatum(entity->run->type->type_id);
				break;
			case 1:
				*value = Int32GetDatum(entity->shard);
				break;
			case 2:
				*value = PointerGetDatum(cstring_to_text_with_len(entity->id, entity->id_len));
				break;
			case 3:
				*value = Int64GetDatum(order->began);
				break;
			case 4:
				*value = Int64GetDatum(order->expected);
				break;
			case 5:
				*value = Int64GetDatum(order->skipped);
				break;
			default:
				*value = Int64GetDatum(order->late);
		}
	}
	if (types[column] == TEXTOID)
		return PointerGetDatum(construct_array(values, count, TEXTOID, -1, false, TYPALIGN_INT));
	return PointerGetDatum(
		construct_array(values, count, types[column], types[column] == INT4OID ? 4 : 8,
						types[column] == INT4OID || FLOAT8PASSBYVAL,
						types[column] == INT4OID ? TYPALIGN_INT : TYPALIGN_DOUBLE));
}

/* Writes the positions of these entities with one statement. */
static void
write_all(List *entities)
{
	ShardArguments arguments = {0};

	if (entities == NIL)
		return;
	for (int column = 0; column < COLUMNS; column++)
		shard_statement_add(&arguments, make_column(entities, column), false);
	shard_statement_change(&write_positions, &arguments, SPI_OK_INSERT);
}

/* Deletes the position of an entity that has come to its end. */
static void
end(ShardEntity *entity)
{
	ShardArguments arguments = {0};

	add_key(&arguments, entity);
	shard_statement_change(&delete_position, &arguments, SPI_OK_DELETE);
	entity->ordering->now = (ShardOrder){.known = true};
}

void
shard_ordered_write(void)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	List *entities = NIL;
	slist_iter run_iter;
	slist_iter iter;

	slist_foreach (run_iter, &shard_turn.runs)
	{
		ShardRun *run = slist_container(ShardRun, turn_link, run_iter.cur);

		slist_foreach (iter, &run->touched)
		{
			ShardEntity *entity = slist_container(ShardEntity, turn_link, iter.cur);

			if (entity->ordering == NULL || !entity->ordering->dirty)
				continue;
			if (entity->ordering->ended && entity->ordering->now.waiting == 0)
				end(entity);
			else
				entities = lappend(entities, entity);
		}
	}
	write_all(entities);
	MemoryContextSwitchTo(old);
}

void
shard_ordered_forget(ShardEntity *entity)
{
	if (entity->ordering == NULL)
		return;
	entity->ordering->now = (ShardOrder){.known = true};
	entity->ordering->dirty = false;
}
