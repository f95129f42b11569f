/*
 * entity/timer.h
 *		Timers of entities: a row of shard.timer, and the messages that make, end and fire one (E30 - E39).
 *
 * What other rooms use of it: shard_schedule() and its relatives make the messages (timer_message.c); the worker fires
 * what is due (turn.h).
 */
#pragma once

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

#include "core/entity/timer.h"
#include "log/log.h"

/* Bytes of a name. */
#define SHARD_TIMER_MAX_NAME 255

/* The receive time-out of an entity is a timer without a name, which no other timer can have. */
#define SHARD_TIMER_RECEIVE ""

typedef struct ShardTimer
{
	const char *name;
	int name_len;
	TimestampTz due;
	int64 generation;
	TimestampTz first;
	int64 period;
	bool repeats;
	Interval every;
	const char *zone; /* NULL: every is as long at any time */
	ShardTimerMissed missed;
	int64 fired;		 /* how often */
	int64 idle;			 /* of a receive time-out, in microseconds; else 0 */
	const char *message; /* jsonb without its header */
	int message_len;
	ItemPointerData tid; /* as it was found; invalid: not known */
} ShardTimer;

/* ---- timer_message.c: the contents of SCHEDULE, CANCEL and TIMER, jsonb like any message's ------- */

/* Contents of a SCHEDULE and of a CANCEL, palloc'd. */
extern Jsonb *shard_timer_put_schedule(const ShardTimer *timer);
extern Jsonb *shard_timer_put_cancel(const char *name, int name_len);

/* Reads them, into the current memory context. False: damaged. */
extern bool shard_timer_get_schedule(const char *payload, int payload_len, ShardTimer *timer);
extern bool shard_timer_get_cancel(const char *payload, int payload_len, ShardTimer *timer);

/* The content of a TIMER, which names one firing of a timer, and where its row was; and reads it. */
extern Jsonb *shard_timer_put_firing(const ShardTimer *timer);
extern bool shard_timer_get_firing(const char *payload, int payload_len, ShardTimer *timer);

/* ---- timer_time.c ------------------------------------------------------------------------------ */

/* The time of a period of the timer, a ShardTimerAt; SHARD_TIMER_NEVER: beyond all times. */
extern int64 shard_timer_at(const void *timer, int64 period);

/* ---- timer_table.c: rows of shard.timer ---------------------------------------------------------- */

/* Whose timers: those of an entity, in its shard. */
typedef struct ShardTimerOwner
{
	int32 type_id;
	int32 shard;
	const char *entity;
	int entity_len;
} ShardTimerOwner;

/*
 * In a turn. The rows as this transaction has left them, in whichever subtransaction; none of it is SQL. find: false if
 * the owner has no timer of that name; texts go to the current memory context. insert sets no tid.
 */
extern bool
shard_timer_find(const ShardTimerOwner *owner, const char *name, int name_len, ShardTimer *timer);
extern void shard_timer_insert(const ShardTimerOwner *owner, const ShardTimer *timer);
extern void shard_timer_delete(const ShardTimerOwner *owner, const ShardTimer *timer);

/*
 * The timer of a firing, if its row is where the firing says. False: it may be elsewhere. An entity may have had any
 * number of timers there since, and so may others: what is found is the firing's.
 */
extern bool
shard_timer_find_firing(const ShardTimerOwner *owner, const ShardTimer *firing, ShardTimer *timer);

/* Writes when a timer that was found is due again. */
extern void shard_timer_update(const ShardTimerOwner *owner, const ShardTimer *timer);

/* A place in the order in which the timers of a lane are due. */
typedef struct ShardTimerPlace
{
	TimestampTz due;
	int64 generation;
} ShardTimerPlace;

/* False: no more. Texts are good until it returns. */
typedef bool (*ShardTimerVisit)(const ShardTimerOwner *owner, const ShardTimer *timer, void *arg);

/* Visits the timers of a lane behind that place, in order, without their messages. Returns whether there were any. */
extern bool shard_timer_each(int lane, ShardTimerPlace after, ShardTimerVisit visit, void *arg);

/* ---- timer.c ------------------------------------------------------------------------------------- */

struct ShardEntity;

/*
 * For the entity's handler, whose transaction it belongs to, in whichever subtransaction: makes a timer, whose generation
 * is set here; error 42710 if the name is in use. Ends one, if it is there.
 */
extern void shard_timer_make_own(const struct ShardEntity *entity, ShardTimer *timer);
extern void shard_timer_end_own(const struct ShardEntity *entity, const char *name, int name_len);

/* Likewise, and in a turn: sets the receive time-out, in the place of the one before; ends it, if there is one. */
extern void
shard_timer_set_receive(const struct ShardEntity *entity, int64 idle, const Jsonb *message);
extern void shard_timer_end_receive(const struct ShardEntity *entity);

/* The timer with whose firing a handler was given this message; NULL: with none. Until the handler has returned. */
extern const ShardTimer *shard_timer_of(const ShardRow *message);
