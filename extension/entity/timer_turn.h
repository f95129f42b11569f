/*
 * entity/timer_turn.h
 *		What timers do in a turn: a part of internal.h, which includes it.
 */
#pragma once

#include "entity/timer.h"

/* A timer that is due, and met. */
typedef struct ShardFiring
{
	ShardTimer timer;
	ShardRow row;	   /* the message that the handler is given, instead of the one that was met */
	bool starts;	   /* the entity has a start message before */
	int64 next_period; /* of a timer that repeats; */
	bool goes_on;	   /* false: it was the last time */
} ShardFiring;

/* ---- timer.c: timers of an entity, in the turn ------------------------------------------------- */

/*
 * Makes or ends a timer, as a SCHEDULE or CANCEL says. NULL: done; else why it cannot be, an error in the turn's memory.
 */
extern ErrorData *shard_timer_obey(const ShardEntity *entity, const ShardRow *row);

/*
 * A TIMER is met: sets shard_turn.firing, unless nothing is to be run: the timer was ended, or has fired, or rests, or
 * skips what it missed.
 */
extern void shard_timer_meet(ShardEntity *entity, const ShardRow *row);

/*
 * The entity's copy is true, and its handler is about to be given the message of the firing: the timer is deleted, or due
 * again. False: it is not given the message, for the start message has ended the timer; or it is a receive time-out that
 * rests after all, as the row says of an entity that was not in memory.
 */
extern bool shard_timer_begin(ShardEntity *entity);

/*
 * A TIMER is given up: the same, and the dead letter becomes the message, to be told again by shard_redrive(). In the
 * turn's memory.
 */
extern void shard_timer_give_up(ShardEntity *entity, ShardRow *dead);

/* Whether what is met is a receive time-out. */
extern bool shard_timer_is_receive(void);

/* ---- timer_due.c: when timers are due ---------------------------------------------------------- */

/* A type as of this turn; NULL: there is none. */
typedef ShardLocalType *(*ShardReadyType)(int32 type_id);

/* At start, with what says whether a type can run; the second function: after an abort. */
extern void shard_timer_due_init(ShardLanes lanes, ShardReadyType ready);
extern void shard_timer_due_aborted(void);

/* The type was looked at: if it can run, timers that were left because it could not are looked at again. */
extern void shard_timer_follow(ShardLocalType *local);

/* Whether there may be timers in the lanes of this worker. */
extern bool shard_timer_any(void);

/* In a turn: a timer was made, or is due again. */
extern void shard_timer_note_due(const ShardTimerOwner *owner, const ShardTimer *timer);
