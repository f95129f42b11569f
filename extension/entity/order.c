/*
 * entity/order.c
 *		Messages in the order of their numbers, for types with ordered_by (doc/protocol.md D25).
 *
 * Comes from: deliver.c and stash.c: an entity that can run, and its next message. Goes to: handle.c, if the number is
 * the expected one or there is none; shard.held, if lower ones are missing; the dead letters, if the number was passed.
 *
 * A message whose number is the expected one is handled, a later one is put into shard.held, place
 * ordered, an earlier one is given up. How far an entity is, is in memory with its entity, and a row of
 * shard.ordered, written once per turn. All of it is the turn's own transaction: if the process dies
 * right here, neither the message nor the position moved, or both did.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/int.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "base/duration.h"
#include "base/attempt.h"
#include "entity/internal.h"
#include "entity/record.h"

#include "base/compat.h"

/* Rows of one entity that are read at once: few at first, since often few are ready. */
#define FIRST_ROWS 5
#define MOST_ROWS 256

/* A number that leaves out more than these is a mistake: it would end the order without remedy. */
#define LONGEST_GAP PG_INT32_MAX

/* The order of an entity in the turn, with its position; what waits of it is known already. */
static ShardOrder *
order_of(ShardEntity *entity)
{
	ShardOrdering *ordering;

	if (entity->ordering == NULL)
		shard_cache_make_ordering(entity);
	ordering = entity->ordering;
	if (!ordering->now.position.known)
	{
		shard_execution_end_user_code();
		shard_order_read_position(entity, &ordering->now.position);
#ifdef SHARD_MUTANT_QUEUE_FORGOTTEN
		ordering->now.queue = ordering->saved.queue;
#endif
	}
	return &ordering->now;
}

/* Whether the type has lost its ordered_by. Then messages need to wait for their numbers no longer. */
static inline bool
is_free(const ShardEntity *entity)
{
	return entity->local->type->ordered_by_name == NULL;
}

/*
 * Whether the first one that waits needs to wait no longer: it is expected, or begins; or its number was
 * passed, by which it is too late.
 */
static bool
is_ready(const ShardEntity *entity)
{
	const ShardOrderedPosition *position = &entity->ordering->now.position;
	const ShardOrderedQueue *queue = &entity->ordering->now.queue;

	return queue->waiting > 0 &&
		   (!position->begun || queue->lowest <= position->expected || is_free(entity));
}

/* A number is passed: handled, or given up. */
static void
pass(ShardEntity *entity, int64 number)
{
	entity->ordering->now.position.expected = number + 1;
	entity->ordering->dirty = true;
}

static void
report_gap(const ShardEntity *entity, bool timed_out)
{
	const ShardOrder *order = &entity->ordering->now;
	const ShardType *type = entity->local->type;

	if (!shard_turn_log_counts(SHARD_TURN_LOG_GAP))
		return;
	shard_turn_log(SHARD_TURN_LOG_GAP, 0,
				   psprintf("messages " INT64_FORMAT " to " INT64_FORMAT
							" of entity \"%s\" of type \"%s\" "
							"were skipped",
							order->position.expected, order->queue.lowest - 1, entity->id,
							type->name),
				   timed_out ? psprintf("They did not come while later ones waited for %s;",
										shard_duration_format(type->ordered_timeout))
							 : psprintf("More than %d later ones wait;", type->ordered_window),
				   "See view shard_ordered; a message that comes after all becomes a dead letter.");
}

/*
 * Gives up the numbers in front of what waits, which is expected then. The caller has counted what waits:
 * a mistake in memory must not cost messages.
 */
static void
skip_gap(ShardEntity *entity, bool timed_out)
{
	ShardOrder *order = &entity->ordering->now;
	int64 length;

	if (order->queue.waiting == 0 || is_ready(entity))
		return;
	report_gap(entity, timed_out);
	if (pg_sub_s64_overflow(order->queue.lowest, order->position.expected, &length) ||
		pg_add_s64_overflow(order->position.skipped, length, &order->position.skipped))
		order->position.skipped = PG_INT64_MAX;
	order->position.expected = order->queue.lowest;
	entity->ordering->dirty = true;
}

/* Why a message comes too late. */
static ErrorData
late_error(const ShardOrder *order, int64 number)
{
	const ShardOrderedPosition *position = &order->position;
	bool waits =
		number > position->expected ||
		(order->queue.waiting > 0 && number == order->queue.lowest && number == position->expected);
	ErrorData error = {0};

	error.sqlerrcode = ERRCODE_UNIQUE_VIOLATION;
	error.detail =
		psprintf("The entity began with number " INT64_FORMAT " and expects " INT64_FORMAT
				 "; " INT64_FORMAT " number(s) were skipped.",
				 position->began, position->expected, position->skipped);
	error.hint = "If it has to be handled, send it in a form for which the type's ordered_by "
				 "returns null.";
	if (waits)
		error.message =
			psprintf("another message with number " INT64_FORMAT " waits already", number);
	else if (number >= position->began && position->skipped == 0)
		error.message = psprintf("a message with number " INT64_FORMAT " was there before", number);
	else
		error.sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	if (error.message == NULL && number < position->began)
		error.message = psprintf("message number " INT64_FORMAT " is below " INT64_FORMAT
								 ", with which the entity began",
								 number, position->began);
	else if (error.message == NULL)
		error.message = psprintf("message number " INT64_FORMAT
								 " comes too late: that number was handled or skipped",
								 number);
	return error;
}

static void
report_dead_letter(const ShardEntity *entity, const ErrorData *error)
{
	if (shard_turn_log_counts(SHARD_TURN_LOG_NUMBER))
		shard_turn_log(
			SHARD_TURN_LOG_NUMBER, error->sqlerrcode,
			psprintf("a message of entity \"%s\" of type \"%s\" became a dead letter: %s",
					 entity->id, entity->local->type->name, error->message),
			"", "See shard_dead_letters and shard_ordered.");
}

/* Why a number cannot be one of the entity's. */
static ErrorData
far_error(const ShardOrderedPosition *position, int64 number)
{
	ErrorData error = {0};

	error.sqlerrcode = ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE;
	error.message =
		psprintf("message number " INT64_FORMAT " is too far ahead: " INT64_FORMAT " is expected",
				 number, position->expected);
	error.detail = psprintf("A message may leave out %d numbers at most.", LONGEST_GAP);
	error.hint = "Number the messages of an entity 1, 2, 3 and so on.";
	return error;
}

/* The message is given up for its number, or waits for room among the dead letters. */
static ShardOutcome
bury(ShardEntity *entity, const ShardRow *row, const ErrorData *error)
{
	shard_execution_end_user_code();
	if (!shard_dead_letter_has_room(entity->local, row, error))
	{
		shard_queue_wait_for_room(entity, row, error);
		return SHARD_MESSAGE_RESTS;
	}
	shard_held_dead_letter(row, 0, error, false);
	report_dead_letter(entity, error);
	return SHARD_MESSAGE_GONE;
}

/* Gives up a message whose number was passed, or is taken. */
static ShardOutcome
bury_late(ShardEntity *entity, const ShardRow *row, int64 number)
{
	ShardOrder *order = &entity->ordering->now;
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ErrorData error = late_error(order, number);
	ShardOutcome outcome;

	MemoryContextSwitchTo(old);
	outcome = bury(entity, row, &error);
	if (outcome == SHARD_MESSAGE_GONE)
	{
		order->position.late++;
		entity->ordering->dirty = true;
	}
	return outcome;
}

static ShardOutcome
bury_far(ShardEntity *entity, const ShardRow *row, int64 number)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ErrorData error = far_error(&entity->ordering->now.position, number);

	MemoryContextSwitchTo(old);
	return bury(entity, row, &error);
}

/* Whether a number is so far ahead that it cannot be meant. */
static bool
is_far_ahead(const ShardOrderedPosition *position, int64 number)
{
	int64 gap;

	return number > position->expected &&
		   (pg_sub_s64_overflow(number, position->expected, &gap) || gap > LONGEST_GAP);
}

/* The message waits for lower numbers. Too many that wait make an end of the gap before them. */
static ShardOutcome
wait_for_lower(ShardEntity *entity, const ShardRow *row, int64 number)
{
	ShardOrderedQueue *queue = &entity->ordering->now.queue;

	shard_execution_end_user_code();
	if (!shard_held_insert_ordered(row, number))
		return bury_late(entity, row, number);
	entity->wait.waiting++;
	if (queue->waiting++ == 0)
	{
		queue->lowest = number;
		queue->since = shard_turn.now;
	}
	queue->lowest = Min(queue->lowest, number);
	if (queue->waiting > entity->local->type->ordered_window && !is_ready(entity))
	{
		shard_recount_entity(entity);
		if (queue->waiting > entity->local->type->ordered_window)
			skip_gap(entity, false);
	}
	return SHARD_MESSAGE_GONE;
}

/*
 * The message's number, in a subtransaction. Returns the error of the function, NULL if there was none;
 * *numbered: whether it has one.
 */
static ErrorData *
read_number_fenced(ShardEntity *entity, const ShardRow *row, int64 *number, bool *numbered,
				   bool *cancelled)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData *volatile error = NULL;

	/* a table that is opened in the subtransaction must be closed in it, and the reverse */
	shard_security_begin(&shard_turn.security, entity->local->type);
	shard_state_close(&entity->local->table);
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
		shard_attempt_cut_error(error);
		RollbackAndReleaseCurrentSubTransaction();
		*cancelled = shard_call_was_cancelled(error);
		shard_call_aborted();
		shard_call_explain(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
	return error;
}

/* Decides what becomes of a message whose number could not be found out. */
static ShardOutcome
judge_failure(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held,
			  ErrorData *error, bool cancelled)
{
	int sqlstate;

	/* the function was dropped meanwhile, or the worker was cancelled: the message is not to blame */
	if (cancelled || shard_handler_home_problem(entity->local->type, &sqlstate) != NULL)
		return shard_queue_rest(entity, row, is_held);
	return shard_failure_dispose(entity, row, attempts, is_held, error) ? SHARD_MESSAGE_GONE
																		: SHARD_MESSAGE_RESTS;
}

/* The entity begins, with the first number that its type gives, or else with this one. */
static void
begin(ShardEntity *entity, int64 number)
{
	const ShardType *type = entity->local->type;
	const ShardOrderedQueue *queue = &entity->ordering->now.queue;
	ShardOrderedPosition *position = &entity->ordering->now.position;

	*position = (ShardOrderedPosition){.known = true, .begun = true};
	if (type->has_ordered_from)
		position->began = type->ordered_from;
	else
		position->began = queue->waiting > 0 ? Min(number, queue->lowest) : number;
	position->expected = position->began;
	entity->ordering->dirty = true;
}

/* Whether anything waits for lower numbers; its entity has a position then. */
static bool
waits(ShardEntity *entity)
{
	if (entity->ordering == NULL || entity->ordering->now.queue.waiting == 0)
		return false;
	if (!order_of(entity)->position.begun)
		begin(entity, entity->ordering->now.queue.lowest);
	return true;
}

void
shard_order_heed(ShardEntity *entity)
{
	ShardOrdering *ordering = entity->ordering;

	if (ordering == NULL || !ordering->ended)
		return;
	ordering->ended = false;
	if (ordering->now.queue.waiting > 0)
		return;
	ordering->now.position = (ShardOrderedPosition){.known = true};
	ordering->dirty = true;
}

/* Runs a message as the turn's mode wants it, and ends the order if the handler says so. */
static ShardOutcome
run_message(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	ShardOutcome outcome = shard_handle_message(entity, row, attempts, is_held);

	shard_order_heed(entity);
	return outcome;
}

/*
 * Runs the message whose number is expected. If it fails for good its number is passed, so when it is sent again it runs
 * outside of the order.
 */
static ShardOutcome
run_expected(ShardEntity *entity, const ShardRow *row, int64 number, int attempts, bool is_held)
{
	ShardOutcome outcome;

	shard_turn.numbered = true;
	shard_turn.number = number;
	outcome = shard_handle_message(entity, row, attempts, is_held);
	shard_turn.numbered = false;
	return outcome;
}

/* Runs a message with a number, or finds it another place. */
static ShardOutcome
run_number(ShardEntity *entity, const ShardRow *row, int64 number, int attempts, bool is_held)
{
	const ShardOrderedPosition *position = &order_of(entity)->position;
	ShardOutcome outcome;

	/* a batch that its handler has not seen yet may be the end of the order, after which this one begins */
	if (entity->batch_count > 0 && number != position->expected &&
		entity->ordering->now.queue.waiting == 0)
	{
		shard_call_batch(entity);
		shard_order_heed(entity);
	}
	if (!position->begun)
		begin(entity, number);
	if (number != position->expected || is_ready(entity))
	{
		if (is_held)
			shard_queue_remove(entity, row);
		if (is_far_ahead(position, number))
			return bury_far(entity, row, number);
		return number > position->expected ? wait_for_lower(entity, row, number)
										   : bury_late(entity, row, number);
	}
	outcome = run_expected(entity, row, number, attempts, is_held);
	if (outcome != SHARD_MESSAGE_RESTS)
		pass(entity, number);
	shard_order_heed(entity);
	return outcome;
}

ShardOutcome
shard_order_run(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	int64 number = 0;
	bool numbered = false;

	/* an error may have ended what ran before */
	shard_turn.numbered = false;
	if (row->kind != SHARD_KIND_TELL)
		return run_message(entity, row, attempts, is_held);
	if (shard_stuck_is(row))
	{
		const ShardStuckNumber known = shard_stuck_number(row);

		return known.known ? run_number(entity, row, known.number, attempts, is_held)
						   : run_message(entity, row, attempts, is_held);
	}
	shard_life_wake(entity);
	if (shard_turn_is_given_up(entity, row, NULL))
		return shard_turn_given_up_number(&number)
				   ? run_number(entity, row, number, attempts, is_held)
				   : run_message(entity, row, attempts, is_held);
	shard_turn_note_ran(entity, row, NULL);
	if (shard_turn.careful)
	{
		bool cancelled = false;
		ErrorData *error = read_number_fenced(entity, row, &number, &numbered, &cancelled);

		if (error != NULL)
			return judge_failure(entity, row, attempts, is_held, error, cancelled);
	}
	else
	{
		shard_turn.blames_last = true;
		numbered = shard_call_ordered_by(entity, row, &number);
		shard_turn.blames_last = false;
	}
	shard_turn_note_number(numbered, number);
	return numbered ? run_number(entity, row, number, attempts, is_held)
					: run_message(entity, row, attempts, is_held);
}

/* The first rows that wait of an entity, by number. *last: there are no others. */
static List *
load_lowest(const ShardEntity *entity, MemoryContext context, int limit, bool *last)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	int64 lowest = entity->ordering->now.queue.lowest;
	List *rows;

#ifdef SHARD_MUTANT_STASH_READ_AGAIN
	lowest = PG_INT64_MIN;
#endif
	shard_execution_end_user_code();
	rows = shard_held_load_ordered(entity->local->type->type_id, entity->shard, entity->id,
								   entity->id_len, lowest, limit, last);
	MemoryContextSwitchTo(old);
	return rows;
}

/* Whether the number of a message that waits has been passed. */
static bool
is_late(const ShardEntity *entity, const ShardHeld *held)
{
	const ShardOrderedPosition *position = &entity->ordering->now.position;

	return position->begun && held->number < position->expected && !is_free(entity);
}

/* Runs the first one that waits. Its number is passed, unless it rests; one that is late is gone from the queue even then. */
static ShardOutcome
run_first(ShardEntity *entity, const ShardHeld *held)
{
	ShardOrder *order = &entity->ordering->now;
	ShardOutcome outcome;

	if (is_late(entity, held))
	{
		order->queue.waiting--;
		shard_queue_remove(entity, &held->row);
		return bury_late(entity, &held->row, held->number);
	}
	outcome = run_expected(entity, &held->row, held->number, held->attempts, true);
	if (outcome == SHARD_MESSAGE_RESTS)
		return outcome;
	if (outcome == SHARD_MESSAGE_DONE)
		shard_queue_remove(entity, &held->row);
	order->queue.waiting--;
	pass(entity, held->number);
	shard_order_heed(entity);
	return outcome;
}

/* Runs the first of these rows, as long as each is ready. What follows them is the lowest then. */
static void
run_rows(ShardEntity *entity, List *rows, int limit, bool *rests)
{
	ShardOrderedQueue *queue = &entity->ordering->now.queue;
	ListCell *cell;
	int done = 0;

	if (rows == NIL || ((ShardHeld *) linitial(rows))->number != queue->lowest)
		shard_recount_entity(entity);
	foreach (cell, rows)
	{
		const ShardHeld *held = lfirst(cell);
		bool late;

		queue->lowest = held->number;
		if (*rests || done++ == limit || !is_ready(entity) || shard_turn_is_over())
			break;
		*rests = shard_queue_is_early(entity, held);
		if (*rests)
			break;
		shard_turn.count++;
		shard_turn.passed = true;
		late = is_late(entity, held);
		*rests = run_first(entity, held) == SHARD_MESSAGE_RESTS;
		if (*rests && !late)
			break;
	}
}

void
shard_order_run_ready(ShardEntity *entity, bool *rests)
{
	MemoryContext piece = NULL;
	int read = FIRST_ROWS;

	*rests = false;
	while (!*rests && shard_order_has_ready(entity) && !shard_turn_is_over())
	{
		List *rows;
		bool last;

		if (piece == NULL)
			piece = AllocSetContextCreate(shard_turn.context, "shard ordered messages",
										  ALLOCSET_DEFAULT_SIZES);
		MemoryContextReset(piece);
		rows = load_lowest(entity, piece, read, &last);
		run_rows(entity, rows, list_length(rows) - (last ? 0 : 1), rests);
		read = Min(read * 4, MOST_ROWS);
	}
	if (piece != NULL)
		MemoryContextDelete(piece);
}

bool
shard_order_has_ready(ShardEntity *entity)
{
	return waits(entity) && is_ready(entity);
}

/* Whether the oldest message has waited for too long, as far as the log was read. */
static bool
is_over(const ShardEntity *entity)
{
	return entity->ordering->now.queue.since + entity->local->type->ordered_timeout <=
		   shard_turn.read_until;
}

void
shard_order_time_out(ShardEntity *entity)
{
	if (!waits(entity) || is_ready(entity) || !is_over(entity))
		return;

	/* some that waited may be handled: since when the oldest of the others waits */
	shard_recount_entity(entity);
	if (entity->ordering->now.queue.waiting > 0 && is_over(entity))
		skip_gap(entity, true);
}

TimestampTz
shard_order_due_at(const ShardEntity *entity)
{
	const ShardOrder *order = &entity->ordering->now;

	if (!order->position.known || is_ready(entity))
		return 1;
	return order->queue.since + entity->local->type->ordered_timeout;
}

/* Deletes a position that has ended; lists one that has changed, to be written with others. */
static void
write_position(ShardEntity *entity, void *arg)
{
	List **changed = arg;

	if (entity->ordering == NULL || !entity->ordering->dirty)
		return;
	if (entity->ordering->now.position.begun)
		*changed = lappend(*changed, entity);
	else
		shard_order_delete_position(entity);
}

void
shard_order_write(void)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	List *changed = NIL;

	shard_turn_each(write_position, &changed);
	shard_order_write_positions(changed);
	MemoryContextSwitchTo(old);
}

void
shard_order_forget(ShardEntity *entity)
{
	if (entity->ordering == NULL)
		return;
	entity->ordering->now = (ShardOrder){.position = {.known = true}};
	entity->ordering->dirty = entity->ordering->ended = false;
}
