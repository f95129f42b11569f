/*
 * entity/timer.c
 *		Timers of an entity, in the turn: made, ended, met when they are due, passed (E31 - E36).
 *
 * Comes from: handle.c, a SCHEDULE, CANCEL or TIMER that is next for its entity; failure.c, a TIMER that is given up;
 * shard_schedule(), shard_cancel() and shard_set_receive_timeout(), which the entity's handler calls; call.c, for
 * shard_stop() and shard_passivate(). Goes to: timer_table.c, the timer's row; timer_due.c, which is told when the timer
 * is due.
 *
 * A TIMER names one firing, by time and generation. Only if the timer's row still says the same does its message run, and
 * the row is deleted, or moved on, in the same transaction (in a careful turn in the same subtransaction) as the handler's
 * effects: each firing has effect once, whatever is aborted, and however often it is in the log. That is done before the
 * handler is called, so what the handler makes under the name stays.
 *
 * What a handler makes and ends of its own entity is a row at once, in its transaction and subtransaction. What timer_due.c
 * has in memory of a row that was undone is a time to look, which finds nothing.
 *
 * If the process dies right here, the turn did not happen: the rows are as before, and the message is met again.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/fault.h"
#include "core/base/text.h"
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
make_error(int sqlstate, char *message, char *detail, char *hint)
{
	ErrorData *error = palloc0(sizeof(ErrorData));

	error->elevel = ERROR;
	error->sqlerrcode = sqlstate;
	error->message = message;
	error->detail = detail;
	error->hint = hint;
	return error;
}

static ErrorData *
refuse_damaged(void)
{
	return make_error(ERRCODE_DATA_CORRUPTED, "what is said of a timer is damaged", NULL, NULL);
}

static ErrorData *
refuse_name(const ShardEntity *entity, const ShardTimer *timer, const ShardTimer *other)
{
	return make_error(
		ERRCODE_DUPLICATE_OBJECT,
		psprintf("entity \"%s\" of type \"%s\" has a timer \"%s\" already", entity->id,
				 entity->local->type->name, timer->name),
		psprintf("That timer is due at %s, and stays as it is.", timestamptz_to_str(other->due)),
		"Call shard_cancel() before shard_schedule() to put another one in its place.");
}

/* The name is in use: returns an error. */
static ErrorData *
make(const ShardEntity *entity, const ShardTimer *timer)
{
	ShardTimerOwner owner = owner_of(entity);
	ShardTimer other;

	if (shard_timer_find(&owner, timer->name, timer->name_len, &other))
		return refuse_name(entity, timer, &other);
	shard_timer_insert(&owner, timer);
	shard_timer_note_due(&owner, timer);
	shard_fault_step("timer_made");
	return NULL;
}

/* One that is not there, or has fired, changes nothing. */
static void
end(const ShardEntity *entity, const char *name, int name_len)
{
	ShardTimerOwner owner = owner_of(entity);
	ShardTimer found;

	if (!shard_timer_find(&owner, name, name_len, &found))
		return;
#ifndef SHARD_MUTANT_TIMER_CANCEL_IGNORED
	shard_timer_delete(&owner, &found);
#endif
	shard_fault_step("timer_ended");
}

static ErrorData *
obey(const ShardEntity *entity, const ShardRow *row)
{
	ShardTimer timer;

	if (row->kind == SHARD_KIND_SCHEDULE)
	{
		if (!shard_timer_get_schedule(row->payload, row->payload_len, &timer) ||
			shard_request_is_name(timer.name, timer.name_len))
			return refuse_damaged();
		timer.generation = row->seq;
		return make(entity, &timer);
	}
	if (!shard_timer_get_cancel(row->payload, row->payload_len, &timer))
		return refuse_damaged();
	end(entity, timer.name, timer.name_len);
	return NULL;
}

ErrorData *
shard_timer_obey(const ShardEntity *entity, const ShardRow *row)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ErrorData *error = obey(entity, row);

	MemoryContextSwitchTo(old);
	return error;
}

/* ---- by the entity's handler ------------------------------------------------------------------- */

/* Any number that no timer of the entity had before, which may have had its name and have been due at the same time. */
static int64
new_generation(void)
{
	return (int64) (pg_prng_uint64(&pg_global_prng_state) & PG_INT64_MAX) | 1;
}

void
shard_timer_make_own(const ShardEntity *entity, ShardTimer *timer)
{
	ErrorData *error;

	timer->generation = new_generation();
	error = make(entity, timer);
	if (error != NULL)
		ThrowErrorData(error);
}

void
shard_timer_end_own(const ShardEntity *entity, const char *name, int name_len)
{
	end(entity, name, name_len);
}

/* ---- the receive time-out ---------------------------------------------------------------------- */

/* The time so long from now, or the last one that there is. */
static TimestampTz
after(TimestampTz now, int64 idle)
{
	return Min(now, END_TIMESTAMP - 1 - idle) + idle;
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
		shard_timer_delete(&owner, &timer);
	MemoryContextSwitchTo(old);
}

/* ---- met --------------------------------------------------------------------------------------- */

/* Whether it is the same firing of the same timer. */
static bool
is_same(const ShardTimer *one, const ShardTimer *other)
{
	return one->due == other->due && one->generation == other->generation;
}

/* The timer that a TIMER names, if that firing is still to come. */
static bool
find_firing(const ShardTimerOwner *owner, const ShardRow *row, ShardTimer *timer)
{
	ShardTimer firing;

	if (!shard_timer_get_firing(row->payload, row->payload_len, &firing))
		return false;
#ifdef SHARD_MUTANT_TIMER_GENERATION_IGNORED
	return shard_timer_find(owner, firing.name, firing.name_len, timer);
#endif
	if (likely(shard_timer_find_firing(owner, &firing, timer)))
		return true;
	return shard_timer_find(owner, firing.name, firing.name_len, timer) && is_same(timer, &firing);
}

/* Only a superuser, or a dump that was changed, can have stored such a row; this is said as the row ends, and again if that is undone. */
static void
report_damage(const ShardEntity *entity, const ShardTimer *timer)
{
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("timer \"%s\" of entity \"%s\" of type \"%s\" is damaged: its next time is not "
					"later than this one",
					shard_text_shown(timer->name), shard_text_shown(entity->id),
					entity->local->type->name),
			 errdetail("It fires this time, and ends."),
			 errhint("Schedule it again with shard_schedule().")));
}

/* What comes after this firing. Returns whether it runs. */
static bool
plan(const ShardEntity *entity, ShardFiring *firing)
{
	ShardTimer *timer = &firing->timer;
	ShardTimerStep step;

	firing->goes_on = false;
	if (!timer->repeats)
		return true;
	if (!shard_timer_advances(timer->period, shard_timer_at, timer) &&
		shard_timer_at(timer, timer->period) != SHARD_TIMER_NEVER)
		report_damage(entity, timer);
	step = shard_timer_step(timer->missed, timer->period, GetCurrentTimestamp(), shard_timer_at,
							timer);
	firing->goes_on = step.goes_on;
	firing->next_period = step.period;
	return step.runs;
}

/* The timer is due at another time. */
static void
move(const ShardEntity *entity, const ShardTimer *timer, TimestampTz due)
{
	ShardTimerOwner owner = owner_of(entity);
	ShardTimer moved = *timer;

	moved.due = due;
	shard_timer_update(&owner, &moved);
	shard_timer_note_due(&owner, &moved);
}

/* The firing is over; what is in memory of it stays, for shard_timer_of(). */
static void
pass(ShardEntity *entity, const ShardFiring *firing)
{
	ShardTimer next = firing->timer;

	next.fired++;
	if (next.idle != 0)
		move(entity, &next, after(GetCurrentTimestamp(), next.idle));
	else if (firing->goes_on)
	{
		next.period = firing->next_period;
		move(entity, &next, shard_timer_at(&next, next.period));
	}
	else
	{
		ShardTimerOwner owner = owner_of(entity);

		shard_timer_delete(&owner, &next);
	}
	shard_fault_step("timer_fired");
}

/* A timer that skips a firing has not fired. */
static void
skip(ShardEntity *entity, ShardFiring *firing)
{
	firing->timer.fired--;
	pass(entity, firing);
}

/* Whether it is a receive time-out that rests, since the entity was spoken to; then it is due later. */
static bool
rests(const ShardEntity *entity, const ShardTimer *timer)
{
	TimestampTz until;

	if (timer->idle == 0)
		return false;
	until = shard_timer_rests_until(entity->heard_at, timer->idle, GetCurrentTimestamp());
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
	else if (rests(entity, timer))
		pfree(firing);
	else if (!plan(entity, firing))
		skip(entity, firing);
	else
	{
		firing->row = *row;
		firing->row.kind = SHARD_KIND_TELL;
		firing->row.payload = timer->message;
		firing->row.payload_len = timer->message_len;
		firing->starts = shard_start_is_due(entity);
		shard_turn.firing = firing;
	}
	MemoryContextSwitchTo(old);
}

/* Whether the start message, which the entity had meanwhile, has ended the timer, or put another one in its place. */
static bool
is_ended(const ShardEntity *entity, const ShardFiring *firing)
{
	const ShardTimer *timer = &firing->timer;
	ShardTimerOwner owner = owner_of(entity);
	ShardTimer found;

#ifdef SHARD_MUTANT_OWN_FIRING_ENDED
	return false;
#endif
	return firing->starts && (!shard_timer_find(&owner, timer->name, timer->name_len, &found) ||
							  !is_same(&found, timer));
}

/* Whether it is left as it was, in builds that are broken on purpose. */
static inline bool
is_kept(const ShardFiring *firing)
{
#ifdef SHARD_MUTANT_TIMER_KEPT
	return firing->timer.idle == 0 && !firing->goes_on;
#elif defined(SHARD_MUTANT_REQUEST_KEPT)
	return shard_request_is_name(firing->timer.name, firing->timer.name_len) &&
		   firing->row.payload != firing->timer.message;
#elif defined(SHARD_MUTANT_REQUEST_ANSWERED_LATE)
	return shard_request_is_name(firing->timer.name, firing->timer.name_len) &&
		   firing->row.payload == firing->timer.message;
#else
	return false;
#endif
}

bool
shard_timer_begin(ShardEntity *entity)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ShardFiring *firing = shard_turn.firing;
	bool runs = !is_ended(entity, firing) && !rests(entity, &firing->timer);

	if (runs && !is_kept(firing))
		pass(entity, firing);
	entity->spoken |= runs;
	MemoryContextSwitchTo(old);
	return runs;
}

void
shard_timer_give_up(ShardEntity *entity, ShardRow *dead)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ShardTimerOwner owner = owner_of(entity);
	ShardFiring firing;

	if (find_firing(&owner, dead, &firing.timer))
	{
		(void) plan(entity, &firing);
		dead->kind = SHARD_KIND_TELL;
		dead->payload = firing.timer.message;
		dead->payload_len = firing.timer.message_len;
		pass(entity, &firing);
	}
	MemoryContextSwitchTo(old);
}

bool
shard_timer_is_receive(void)
{
	return shard_turn.firing != NULL && shard_turn.firing->timer.idle != 0;
}

const ShardTimer *
shard_timer_of(const ShardRow *message)
{
	const ShardFiring *firing = shard_turn.firing;

	return firing != NULL && message == &firing->row ? &firing->timer : NULL;
}
