/*
 * core/entity/entity.c
 *		Life of an entity in its shard's memory, and what a failure does to it.
 *
 * Each legal step stands in one line with what is done about it; the table that is printed, and those
 * in which a step and its action are looked up, are made of these lines.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/entity/entity.h"

/* One part of this many of a pause is left to chance. */
#define SHARD_ENTITY_JITTER 5

static const char *const state_names[] = {
	[SHARD_ENTITY_NONE] = "none",
	[SHARD_ENTITY_REMEMBERED] = "remembered_not_created",
	[SHARD_ENTITY_REMEMBERING_START] = "remembering_start",
	[SHARD_ENTITY_ACTIVE] = "active",
	[SHARD_ENTITY_PASSIVATING] = "passivating",
	[SHARD_ENTITY_WAITING] = "waiting_for_restart",
	[SHARD_ENTITY_REMEMBERING_STOP] = "remembering_stop",
	[SHARD_ENTITY_QUARANTINED] = "quarantined",
};

static const char *const event_names[] = {
	[SHARD_ENTITY_ON_RECOVERED] = "recovered",
	[SHARD_ENTITY_ON_START] = "start",
	[SHARD_ENTITY_ON_MESSAGE] = "message",
	[SHARD_ENTITY_ON_STORED] = "stored",
	[SHARD_ENTITY_ON_STORE_FAILED] = "store_failed",
	[SHARD_ENTITY_ON_BURIED] = "buried",
	[SHARD_ENTITY_ON_FAILED] = "failed",
	[SHARD_ENTITY_ON_ENDED] = "ended",
	[SHARD_ENTITY_ON_DUE] = "due",
	[SHARD_ENTITY_ON_GIVEN_UP] = "given_up",
	[SHARD_ENTITY_ON_PASSIVATE] = "passivate",
	[SHARD_ENTITY_ON_UNLOADED] = "unloaded",
	[SHARD_ENTITY_ON_STOPPED] = "stopped",
	[SHARD_ENTITY_ON_MOVED] = "moved",
	[SHARD_ENTITY_ON_SUSPENDED] = "suspended",
	[SHARD_ENTITY_ON_RESUMED] = "resumed",
	[SHARD_ENTITY_ON_SHARD_LEFT] = "shard_left",
	[SHARD_ENTITY_ON_HELD] = "held",
	[SHARD_ENTITY_ON_RECALLED] = "recalled",
};

StaticAssertDecl(lengthof(state_names) == SHARD_ENTITY_STATES, "each state has a name");
StaticAssertDecl(lengthof(event_names) == SHARD_ENTITY_EVENTS, "each event has a name");

#define ENTITY_STEPS(STEP) \
	STEP(NONE, RECOVERED, REMEMBERED, NOTHING, "it starts in its turn, or with a message") \
	STEP(NONE, START, REMEMBERING_START, STORE_START, "stored before it runs") \
	STEP(NONE, MESSAGE, REMEMBERING_START, STORE_START, \
		 "stored before its first message is handled; without remember_entities: active") \
	STEP(NONE, HELD, WAITING, HOLD, "what waits of it came with its shard, or others go first") \
	STEP(NONE, SUSPENDED, QUARANTINED, HOLD, "the message waits for the type") \
	STEP(REMEMBERED, START, ACTIVE, HANDLE, "its turn in the recovery of the shard") \
	STEP(REMEMBERED, MESSAGE, ACTIVE, HANDLE, "it need not be stored again") \
	STEP(REMEMBERED, MOVED, REMEMBERING_STOP, STORE_STOP, \
		 "it started in another shard, this one forgets it") \
	STEP(REMEMBERED, HELD, WAITING, HOLD, "what waits of it came with its shard") \
	STEP(REMEMBERED, SUSPENDED, QUARANTINED, HOLD, "the message waits for the type") \
	STEP(REMEMBERED, SHARD_LEFT, NONE, FORGET, "it stays in the store, for its next home") \
	STEP(REMEMBERING_START, START, REMEMBERING_START, NOTHING, "it is starting") \
	STEP(REMEMBERING_START, MESSAGE, REMEMBERING_START, HOLD, "until it is stored") \
	STEP(REMEMBERING_START, STORED, ACTIVE, HANDLE, "what waits is handled in order") \
	STEP(REMEMBERING_START, STORE_FAILED, REMEMBERING_START, STORE_START, \
		 "tried again, messages wait") \
	STEP(REMEMBERING_START, SUSPENDED, QUARANTINED, HOLD, "messages wait for the type") \
	STEP(REMEMBERING_START, SHARD_LEFT, NONE, FORGET, "what waits moves with the shard") \
	STEP(ACTIVE, START, ACTIVE, NOTHING, "it runs") \
	STEP(ACTIVE, MESSAGE, ACTIVE, HANDLE, "it is handled") \
	STEP(ACTIVE, BURIED, ACTIVE, HANDLE, "the next message, its attempts begin at 0") \
	STEP(ACTIVE, FAILED, WAITING, BACK_OFF, "the message is tried again, those behind it wait") \
	STEP(ACTIVE, HELD, WAITING, HOLD, "its row is locked, or others go first; no attempt counts") \
	STEP(ACTIVE, ENDED, WAITING, BACK_OFF, \
		 "for entity_restart_backoff; without remember_entities: none") \
	STEP(ACTIVE, PASSIVATE, PASSIVATING, UNLOAD, "the stop message is handled, then it leaves") \
	STEP(ACTIVE, SUSPENDED, QUARANTINED, HOLD, "the message waits for the type") \
	STEP(ACTIVE, SHARD_LEFT, NONE, FORGET, "it stays in the store, for its next home") \
	STEP(PASSIVATING, START, PASSIVATING, HOLD, "it starts again when it has left") \
	STEP(PASSIVATING, MESSAGE, PASSIVATING, HOLD, "it starts again when it has left") \
	STEP(PASSIVATING, BURIED, PASSIVATING, NOTHING, \
		 "the stop message failed; it leaves all the same") \
	STEP(PASSIVATING, FAILED, WAITING, BACK_OFF, \
		 "the stop message is tried again, then it leaves") \
	STEP(PASSIVATING, HELD, WAITING, HOLD, "the stop message waits, then it leaves") \
	STEP(PASSIVATING, RECALLED, ACTIVE, HANDLE, \
		 "it is not idle any more; only of what left by itself") \
	STEP(PASSIVATING, PASSIVATE, PASSIVATING, NOTHING, "it is leaving") \
	STEP(PASSIVATING, ENDED, REMEMBERING_STOP, STORE_STOP, \
		 "sooner than the stop message, all the same") \
	STEP(PASSIVATING, UNLOADED, REMEMBERED, FORGET, \
		 "comes back with a message or with its shard; without remember_entities: none") \
	STEP(PASSIVATING, STOPPED, REMEMBERING_STOP, STORE_STOP, \
		 "no longer remembered; without remember_entities: none") \
	STEP(PASSIVATING, SUSPENDED, QUARANTINED, HOLD, "messages wait for the type") \
	STEP(PASSIVATING, SHARD_LEFT, NONE, FORGET, "what waits moves with the shard") \
	STEP(WAITING, START, ACTIVE, HANDLE, "at once, the pause is cut short") \
	STEP(WAITING, MESSAGE, WAITING, HOLD, "behind the one that failed") \
	STEP(WAITING, DUE, ACTIVE, HANDLE, "what waits is handled in order") \
	STEP(WAITING, GIVEN_UP, QUARANTINED, REPORT, \
		 "it ended max_attempts times without handling a message") \
	STEP(WAITING, PASSIVATE, WAITING, NOTHING, "messages wait for it") \
	STEP(WAITING, SUSPENDED, QUARANTINED, HOLD, "messages wait for the type") \
	STEP(WAITING, SHARD_LEFT, NONE, FORGET, "what waits moves with the shard") \
	STEP(REMEMBERING_STOP, START, REMEMBERING_STOP, HOLD, "it starts again when that is stored") \
	STEP(REMEMBERING_STOP, MESSAGE, REMEMBERING_STOP, HOLD, "it starts again when that is stored") \
	STEP(REMEMBERING_STOP, STORED, NONE, FORGET, "what waits starts it again") \
	STEP(REMEMBERING_STOP, STORE_FAILED, REMEMBERING_STOP, STORE_STOP, \
		 "tried again, messages wait") \
	STEP(REMEMBERING_STOP, PASSIVATE, REMEMBERING_STOP, NOTHING, "it has left") \
	STEP(REMEMBERING_STOP, SHARD_LEFT, NONE, FORGET, "what waits moves with the shard") \
	STEP(QUARANTINED, START, QUARANTINED, HOLD, "until it is mended") \
	STEP(QUARANTINED, MESSAGE, QUARANTINED, HOLD, "until it is mended") \
	STEP(QUARANTINED, PASSIVATE, QUARANTINED, NOTHING, "messages wait for it") \
	STEP(QUARANTINED, SUSPENDED, QUARANTINED, NOTHING, "another reason") \
	STEP(QUARANTINED, RESUMED, REMEMBERING_START, STORE_START, \
		 "stored first, it may never have been; without remember_entities: active") \
	STEP(QUARANTINED, SHARD_LEFT, NONE, FORGET, "what waits moves with the shard")

#define AS_STEP(from, event, to, action, note) \
	{SHARD_ENTITY_##from, SHARD_ENTITY_ON_##event, SHARD_ENTITY_##to, note},
#define AS_NEXT(from, event, to, action, note) \
	[SHARD_ENTITY_##from][SHARD_ENTITY_ON_##event] = 1 + SHARD_ENTITY_##to,
#define AS_ACTION(from, event, to, action, note) \
	[SHARD_ENTITY_##from][SHARD_ENTITY_ON_##event] = SHARD_ENTITY_DO_##action,

static const ShardStep steps[] = {ENTITY_STEPS(AS_STEP)};

/* The state after each step, plus 1; 0: the step is illegal. */
static const uint8 nexts[SHARD_ENTITY_STATES][SHARD_ENTITY_EVENTS] = {ENTITY_STEPS(AS_NEXT)};

static const ShardEntityAction actions[SHARD_ENTITY_STATES][SHARD_ENTITY_EVENTS] = {
	ENTITY_STEPS(AS_ACTION)};

const ShardMachine shard_entity_machine = {"entity", state_names, event_names, steps,
										   lengthof(steps)};

/*
 * What a step of a type that does not remember its entities comes to: there is no store to wait for
 * and none to come back from.
 */
static void
skip_store(ShardEntityEvent event, ShardEntityState *next, ShardEntityAction *action)
{
	if (*next == SHARD_ENTITY_REMEMBERING_START)
	{
		*next = SHARD_ENTITY_ACTIVE;
		*action = SHARD_ENTITY_DO_HANDLE;
	}
	else if (*next == SHARD_ENTITY_REMEMBERING_STOP || *next == SHARD_ENTITY_REMEMBERED ||
			 event == SHARD_ENTITY_ON_ENDED)
	{
		*next = SHARD_ENTITY_NONE;
		*action = SHARD_ENTITY_DO_FORGET;
	}
}

/* Whether a state or event exists only where entities are remembered. */
static bool
needs_store(ShardEntityState state, ShardEntityEvent event)
{
	return state == SHARD_ENTITY_REMEMBERING_START || state == SHARD_ENTITY_REMEMBERING_STOP ||
		   state == SHARD_ENTITY_REMEMBERED || event == SHARD_ENTITY_ON_RECOVERED ||
		   event == SHARD_ENTITY_ON_STORED || event == SHARD_ENTITY_ON_STORE_FAILED ||
		   event == SHARD_ENTITY_ON_GIVEN_UP || event == SHARD_ENTITY_ON_MOVED;
}

bool
shard_entity_step(ShardEntityState state, ShardEntityEvent event, bool remembers,
				  ShardEntityState *next, ShardEntityAction *action)
{
	int to = nexts[state][event];

	if (to == 0 || (!remembers && needs_store(state, event)))
		return false;
	*next = (ShardEntityState) (to - 1);
	*action = actions[state][event];
	if (!remembers)
		skip_store(event, next, action);
	return true;
}

ShardEntityListing
shard_entity_listing(ShardEntityState state)
{
	static const ShardEntityListing listing[] = {
		[SHARD_ENTITY_REMEMBERED] = SHARD_ENTITY_IS_STARTING,
		[SHARD_ENTITY_REMEMBERING_START] = SHARD_ENTITY_IS_STARTING,
		[SHARD_ENTITY_ACTIVE] = SHARD_ENTITY_IS_RUNNING,
		[SHARD_ENTITY_PASSIVATING] = SHARD_ENTITY_IS_PASSIVATING,
		[SHARD_ENTITY_WAITING] = SHARD_ENTITY_IS_BACKING_OFF,
		[SHARD_ENTITY_REMEMBERING_STOP] = SHARD_ENTITY_IS_PASSIVATING,
		[SHARD_ENTITY_QUARANTINED] = SHARD_ENTITY_IS_QUARANTINED,
	};

	Assert(state > SHARD_ENTITY_NONE && state < SHARD_ENTITY_STATES);
	return listing[state];
}

const char *
shard_entity_listing_name(int listing)
{
	static const char *const names[] = {
		[SHARD_ENTITY_IS_STARTING] = "starting",
		[SHARD_ENTITY_IS_RUNNING] = "running",
		[SHARD_ENTITY_IS_PASSIVATING] = "passivating",
		[SHARD_ENTITY_IS_BACKING_OFF] = "backing_off",
		[SHARD_ENTITY_IS_QUARANTINED] = "quarantined",
	};

	return listing >= 0 && listing < SHARD_ENTITY_LISTINGS ? names[listing] : NULL;
}

/* Doubling stops short of the limit, so nothing overflows. */
int64
shard_entity_backoff(int64 first, int64 most, int failures)
{
	int64 pause = first;

	Assert(first > 0 && most > 0);
	for (int i = 1; i < failures; i++)
	{
		if (pause >= most - pause)
			return most;
		pause *= 2;
	}
	return Min(pause, most);
}

int64
shard_entity_jitter(int64 pause, uint32 random)
{
	return pause - ((pause / SHARD_ENTITY_JITTER * (int64) (random >> 16)) >> 16);
}

/*
 * A handler is not to blame for a conflict with other transactions, nor for a server that is short of disk, memory or
 * connections: 40001, 40P01, 55P03, class 53.
 */
ShardEntityHope
shard_entity_hope(const char *sqlstate)
{
	static const char *const pass[] = {"40001", "40P01", "55P03", "53"};
	static const char *const may_pass[] = {"08", "40", "58", "57P01", "57P02", "57P03", "57P04"};

	for (int i = 0; i < (int) lengthof(pass); i++)
		if (strncmp(sqlstate, pass[i], strlen(pass[i])) == 0)
			return SHARD_ENTITY_PASSES;
	for (int i = 0; i < (int) lengthof(may_pass); i++)
		if (strncmp(sqlstate, may_pass[i], strlen(may_pass[i])) == 0)
			return SHARD_ENTITY_MAY_PASS;
	return SHARD_ENTITY_LASTS;
}

static const char *const decision_names[SHARD_ENTITY_DECISIONS] = {
	[SHARD_ENTITY_RESTART] = "restart",
	[SHARD_ENTITY_RESUME] = "resume",
	[SHARD_ENTITY_STOP] = "stop",
	[SHARD_ENTITY_ESCALATE] = "escalate",
};

const char *
shard_entity_decision_name(ShardEntityDecision decision)
{
	return decision_names[decision];
}

ShardEntityDecision
shard_entity_decision(const char *name)
{
	int decision = 0;

	while (decision < SHARD_ENTITY_DECISIONS && strcmp(decision_names[decision], name) != 0)
		decision++;
	return (ShardEntityDecision) decision;
}

int64
shard_entity_longest_pause(const ShardEntityLimits *limits)
{
	return Max(limits->max_retry_backoff, limits->failure_backoff);
}

static ShardEntityVerdict
retry(const ShardEntityLimits *limits, const ShardEntityFailure *failure, int64 *pause)
{
	*pause = shard_entity_jitter(shard_entity_backoff(limits->retry_backoff,
													  limits->max_retry_backoff, failure->attempts),
								 failure->random);
	return SHARD_ENTITY_RETRY;
}

static ShardEntityVerdict
escalate(const ShardEntityLimits *limits, const ShardEntityFailure *failure, int64 *pause)
{
	*pause = shard_entity_jitter(shard_entity_backoff(limits->failure_backoff,
													  shard_entity_longest_pause(limits),
													  failure->attempts),
								 failure->random);
	return SHARD_ENTITY_PAUSE_SHARD;
}

/*
 * What passes by itself is no failure of the entity: it does not count, and only a decider that has looked at it may say
 * anything but restart. A decider that says restart of what lasts knows better than a table of SQLSTATEs.
 */
ShardEntityVerdict
shard_entity_judge(const ShardEntityLimits *limits, const ShardEntityFailure *failure, int64 *pause)
{
	ShardEntityDecision decision = failure->decision;
	bool passes = failure->hope == SHARD_ENTITY_PASSES;

#ifndef SHARD_MUTANT_PATIENCE_ENDS
	if (passes && (!failure->decided || decision == SHARD_ENTITY_RESTART))
		return retry(limits, failure, pause);
#endif
	if (decision == SHARD_ENTITY_ESCALATE ||
		(!passes && limits->max_restarts >= 0 && failure->failures > limits->max_restarts))
		return escalate(limits, failure, pause);
	if (decision == SHARD_ENTITY_STOP)
		return SHARD_ENTITY_BURY_AND_STOP;
	if (decision == SHARD_ENTITY_RESUME || failure->attempts >= limits->max_attempts)
		return SHARD_ENTITY_BURY;
	if (failure->hope == SHARD_ENTITY_LASTS && !failure->decided)
		return SHARD_ENTITY_BURY;
	return retry(limits, failure, pause);
}

/* An hour, in microseconds: who mends what an entity fails for does not wait for longer. */
#define LONGEST_RESTART INT64CONST(3600000000)

int64
shard_entity_longest_restart(const ShardEntityLimits *limits)
{
	return Max(limits->restart_backoff, LONGEST_RESTART);
}

bool
shard_entity_restarts(const ShardEntityLimits *limits, int ends, bool transient, int64 *pause)
{
	if (!transient && ends >= limits->max_attempts)
		return false;
	*pause =
		shard_entity_backoff(limits->restart_backoff, shard_entity_longest_restart(limits), ends);
	return true;
}
