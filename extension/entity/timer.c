/*
 * entity/timer.c
 *		Timers of an entity, in the turn: made, ended, met when they are due, passed (E31 - E36).
 *
 * Comes from: handle.c, a SCHEDULE, CANCEL or TIMER that is next for its entity; failure.c, a TIMER that is given up;
 * shard_set_receive_timeout(), which a handler calls; call.c, for shard_stop() and shard_passivate(). Goes to:
 * timer_table.c, the timer's row; timer_due.c, which is told when the timer is due.
 *
 * A TIMER names one firing, by time and generation. Only if the timer's row still says the same does its message run, and
 * the row is deleted, or moved on, in the same transaction (in a careful turn in the same subtransaction) as the handler's
 * effects: each firing has effect once, whatever is aborted, and however often it is in the log. If the process dies
 * right here, the turn did not happen: the row is as before, and the TIMER is met again.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/fault.h"
#include "entity/internal.h"
#include "entity/request.h"

#include "base/compat.h"

static ShardTimerOwner
owner_of(const ShardEntity *entity)
{
	return (ShardTimerOwner){.type_id = entity->local->type->type_id,
							 .shard = entity->shard,
							 .entity = entity->id,
							 .entity_len = entity->id_len};
}

/* ---- made and ended ---------------------------------------------------------------------------- */

static ErrorData *
keep_error(int sqlstate, char *message, char *detail, char *hint)
{
	ErrorData *error = MemoryContextAllocZero(shard_turn.context, sizeof(ErrorData));

	error->sqlerrcode = sqlstate;
	error->message = message;
	error->detail = detail;
	error->hint = hint;
	return error;
}

static ErrorData *
refuse_damaged(void)
{
	return keep_error(ERRCODE_DATA_CORRUPTED, "what is said of a timer is damaged", NULL, NULL);
}

static ErrorData *
refuse_name(const ShardEntity *entity, const ShardTimer *timer, const ShardTimer *other)
{
	return keep_error(
		ERRCODE_DUPLICATE_OBJECT,
		psprintf("entity \"%s\" of type \"%s\" has a timer \"%s\" already", entity->id,
				 entity->local->type->name, timer->name),
		psprintf("That timer is due at %s, and stays as it is.", timestamptz_to_str(other->due)),
		"Call shard_cancel() before shard_schedule() to put another one in its place.");
}

/* A SCHEDULE. */
static ErrorData *
make(ShardEntity *entity, const ShardRow *row)
{
	ShardTimerOwner owner = owner_of(entity);
	ShardTimer timer;
	ShardTimer other;

	if (!shard_timer_get_schedule(row->payload, row->payload_len, &timer) ||
		shard_request_is_name(timer.name, timer.name_len))
		return refuse_damaged();
	if (shard_timer_find(&owner, timer.name, timer.name_len, &other))
		return refuse_name(entity, &timer, &other);
	timer.generation = row->seq;
	shard_timer_insert(&owner, &timer);
	shard_timer_note_due(&owner, &timer);
	shard_fault_step("timer_made");
	return NULL;
}

/* A CANCEL: one of a timer that is not there, or has fired, changes nothing. */
static ErrorData *
end(ShardEntity *entity, const ShardRow *row)
{
	ShardTimerOwner owner = owner_of(entity);
	ShardTimer timer;
	ShardTimer found;

	if (!shard_timer_get_cancel(row->payload, row->payload_len, &timer))
		return refuse_damaged();
	if (!shard_timer_find(&owner, timer.name, timer.name_len, &found))
		return NULL;
#ifndef SHARD_MUTANT_TIMER_CANCEL_IGNORED
	shard_timer_delete(&found);
#endif
	shard_fault_step("timer_ended");
	return NULL;
}

ErrorData *
shard_timer_obey(ShardEntity *entity, const ShardRow *row)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ErrorData *error = row->kind == SHARD_KIND_SCHEDULE ? make(entity, row) : end(entity, row);

	MemoryContextSwitchTo(old);
	return error;
}

/* ---- the receive time-out ---------------------------------------------------------------------- */

/* The time so long from now, or the last one that there is. */
static TimestampTz
after(TimestampTz now, int64 idle)
{
	return Min(now, END_TIMESTAMP - 1 - idle) + idle;
}

/* Any number that no time-out of the entity before had, which may have been due at the same time. */
static int64
new_generation(void)
{
	return (int64) (pg_prng_uint64(&pg_global_prng_state) & PG_INT64_MAX) | 1;
}

void
shard_timer_set_receive(const ShardEntity *entity, int64 idle, const Jsonb *message)
{
	ShardTimerOwner owner = owner_of(entity);
	ShardTimer timer = {.name = SHARD_TIMER_RECEIVE,
						.generation = new_generation(),
						.missed = SHARD_TIMER_ONCE,
						.idle = idle,
						.message = VARDATA(message),
						.message_len = VARSIZE(message) - VARHDRSZ};
	ShardTimer other;

	timer.due = timer.first = after(shard_turn.now, idle);
	if (shard_timer_find(&owner, timer.name, timer.name_len, &other))
	{
		timer.tid = other.tid;
		shard_timer_update(&owner, &timer);
	}
	else
		shard_timer_insert(&owner, &timer);
	shard_timer_note_due(&owner, &timer);
	shard_fault_step("timer_made");
}

void
shard_timer_end_receive(const ShardEntity *entity)
{
	ShardTimerOwner owner = owner_of(entity);
	MemoryContext old;
	ShardTimer timer;

	if (likely(!shard_timer_any()))
		return;
	old = MemoryContextSwitchTo(shard_turn.context);
	if (shard_timer_find(&owner, SHARD_TIMER_RECEIVE, 0, &timer))
		shard_timer_delete(&timer);
	MemoryContextSwitchTo(old);
}

/* ---- met --------------------------------------------------------------------------------------- */

/* The timer that a TIMER names, if that firing is still to come. */
static bool
find_firing(const ShardTimerOwner *owner, const ShardRow *row, ShardTimer *timer)
{
	ShardTimer firing;

	if (!shard_timer_get_firing(row->payload, row->payload_len, &firing) ||
		!shard_timer_find(owner, firing.name, firing.name_len, timer))
		return false;
#ifdef SHARD_MUTANT_TIMER_GENERATION_IGNORED
	return true;
#endif
	return timer->due == firing.due && timer->generation == firing.generation;
}

/* What comes after this firing. Returns whether it runs. */
static bool
plan(ShardFiring *firing)
{
	ShardTimer *timer = &firing->timer;
	ShardTimerStep step;

	firing->goes_on = false;
	if (!timer->repeats)
		return true;
	step = shard_timer_step(timer->missed, timer->period, GetCurrentTimestamp(), shard_timer_at,
							timer);
	firing->goes_on = step.goes_on;
	firing->next_period = step.period;
	return step.runs;
}

/* The timer is due at another time. */
static void
move(const ShardEntity *entity, ShardTimer *timer, TimestampTz due)
{
	ShardTimerOwner owner = owner_of(entity);

	timer->due = due;
	shard_timer_update(&owner, timer);
	shard_timer_note_due(&owner, timer);
}

/* The firing is over. */
static void
pass(ShardEntity *entity, ShardFiring *firing)
{
	ShardTimer *timer = &firing->timer;

	timer->fired++;
	if (timer->idle != 0)
		move(entity, timer, after(GetCurrentTimestamp(), timer->idle));
	else if (firing->goes_on)
	{
		timer->period = firing->next_period;
		move(entity, timer, shard_timer_at(timer, timer->period));
	}
	else
		shard_timer_delete(timer);
	shard_fault_step("timer_fired");
}

/* A timer that skips a firing has not fired. */
static void
skip(ShardEntity *entity, ShardFiring *firing)
{
	firing->timer.fired--;
	pass(entity, firing);
}

/* Whether a receive time-out rests, since the entity had a message at that time; then it is due later. */
static bool
rests(ShardEntity *entity, ShardTimer *timer, TimestampTz heard)
{
	TimestampTz until = shard_timer_rests_until(heard, timer->idle, GetCurrentTimestamp());

	if (until == 0)
		return false;
	move(entity, timer, until);
	return true;
}

void
shard_timer_meet(ShardEntity *entity, const ShardRow *row)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ShardTimerOwner owner = owner_of(entity);
	ShardFiring *firing = palloc(sizeof(ShardFiring));
	ShardTimer *timer = &firing->timer;

	if (!find_firing(&owner, row, timer))
		pfree(firing);
	else if (timer->idle != 0 && rests(entity, timer, entity->last_message_at))
		pfree(firing);
	else if (!plan(firing))
		skip(entity, firing);
	else
	{
		firing->row = *row;
		firing->row.kind = SHARD_KIND_TELL;
		firing->row.payload = timer->message;
		firing->row.payload_len = timer->message_len;
		firing->heard = entity->last_message_at;
		shard_turn.firing = firing;
	}
	MemoryContextSwitchTo(old);
}

bool
shard_timer_rests(ShardEntity *entity, TimestampTz written)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	bool result = rests(entity, &shard_turn.firing->timer, written);

	MemoryContextSwitchTo(old);
	return result;
}

void
shard_timer_pass(ShardEntity *entity)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ShardTimerOwner owner = owner_of(entity);
	ShardTimer found;

#ifdef SHARD_MUTANT_TIMER_KEPT
	if (shard_turn.firing->timer.idle == 0 && !shard_turn.firing->goes_on)
		return;
#endif
#ifdef SHARD_MUTANT_REQUEST_KEPT
	if (shard_request_is_name(shard_turn.firing->timer.name, shard_turn.firing->timer.name_len) &&
		shard_turn.firing->row.payload != shard_turn.firing->timer.message)
		return;
#endif
#ifdef SHARD_MUTANT_REQUEST_ANSWERED_LATE
	if (shard_request_is_name(shard_turn.firing->timer.name, shard_turn.firing->timer.name_len) &&
		shard_turn.firing->row.payload == shard_turn.firing->timer.message)
		return;
#endif
	/* the handler may have ended its receive time-out, or set another one */
	if (shard_turn.firing->timer.idle == 0 ||
		(shard_timer_find(&owner, SHARD_TIMER_RECEIVE, 0, &found) &&
		 found.generation == shard_turn.firing->timer.generation))
		pass(entity, shard_turn.firing);
	MemoryContextSwitchTo(old);
}

void
shard_timer_give_up(ShardEntity *entity, ShardRow *dead)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ShardTimerOwner owner = owner_of(entity);
	ShardFiring firing;

	if (find_firing(&owner, dead, &firing.timer))
	{
		(void) plan(&firing);
		dead->kind = SHARD_KIND_TELL;
		dead->payload = firing.timer.message;
		dead->payload_len = firing.timer.message_len;
		pass(entity, &firing);
	}
	MemoryContextSwitchTo(old);
}

void
shard_timer_put_off(ShardEntity *entity)
{
#ifndef SHARD_MUTANT_HEARD_ITSELF
	if (shard_turn.firing->timer.idle != 0)
		entity->last_message_at = shard_turn.firing->heard;
#endif
}

const ShardTimer *
shard_timer_of(const ShardRow *message)
{
	const ShardFiring *firing = shard_turn.firing;

	return firing != NULL && message == &firing->row ? &firing->timer : NULL;
}
