/*
 * core/entity/entity.h
 *		Life of an entity in its shard's memory, and what a failure does to it.
 *
 * The region worker steps it (entity/life.c), and shard_state_machine() shows it.
 *
 * The state row is the truth, an entity in memory a copy of it: leaving is always safe. For types
 * with remember_entities a store says which entities run, so that they start again with their shard;
 * a start is stored before the first message is handled, a stop before the entity is forgotten.
 * Time is in microseconds.
 */
#pragma once

#include "core/base/machine.h"

/* Where an entity is; an entity that nothing is known of is in state none. */
typedef enum ShardEntityState
{
	SHARD_ENTITY_NONE, /* -> remembering_start, remembered_not_created, waiting, quarantined */
	SHARD_ENTITY_REMEMBERED, /* stored, not in memory -> active, remembering_stop, quarantined */
	SHARD_ENTITY_REMEMBERING_START, /* its start is being stored -> active, quarantined */
	SHARD_ENTITY_ACTIVE,			/* -> passivating, waiting_for_restart, quarantined */
	SHARD_ENTITY_PASSIVATING,		/* the stop message is due -> remembering_stop,
									* remembered_not_created, active, waiting, quarantined */
	SHARD_ENTITY_WAITING,			/* backs off -> active, quarantined */
	SHARD_ENTITY_REMEMBERING_STOP,	/* its stop is being stored -> none */
	SHARD_ENTITY_QUARANTINED,		/* cannot run until something is mended -> remembering_start */
	SHARD_ENTITY_STATES				/* and each of them -> none, when its shard leaves */
} ShardEntityState;

/* What may happen to it. */
typedef enum ShardEntityEvent
{
	SHARD_ENTITY_ON_RECOVERED, /* its shard came up and found it in the store */
	SHARD_ENTITY_ON_START,	   /* it shall run, without a message: recovery, shard_start_entity() */
	SHARD_ENTITY_ON_MESSAGE,   /* a message arrived */
	SHARD_ENTITY_ON_STORED,	   /* its start or stop is in the store */
	SHARD_ENTITY_ON_STORE_FAILED, /* it could not be stored */
	SHARD_ENTITY_ON_BURIED,		  /* a message of it became a dead letter */
	SHARD_ENTITY_ON_FAILED,		  /* a message of it failed and is tried again */
	SHARD_ENTITY_ON_ENDED,		  /* it ended without having been asked to */
	SHARD_ENTITY_ON_DUE,		  /* the pause is over */
	SHARD_ENTITY_ON_GIVEN_UP,	  /* it ended too often */
	SHARD_ENTITY_ON_PASSIVATE,	  /* it shall leave: idle, over the limit, shard_passivate(), ... */
	SHARD_ENTITY_ON_UNLOADED,	  /* it has left memory and is still remembered */
	SHARD_ENTITY_ON_STOPPED,	  /* it has left memory for good: shard_stop() */
	SHARD_ENTITY_ON_MOVED,		  /* the store knows it under another shard */
	SHARD_ENTITY_ON_SUSPENDED,	  /* its type cannot run, or it kills the server */
	SHARD_ENTITY_ON_RESUMED,	  /* that was mended */
	SHARD_ENTITY_ON_SHARD_LEFT,	  /* its shard was handed off or stopped */
	SHARD_ENTITY_ON_HELD,		  /* messages of it wait, though none has failed */
	SHARD_ENTITY_ON_RECALLED,	  /* a message came before its stop message: it stays */
	SHARD_ENTITY_EVENTS
} ShardEntityEvent;

/* What the caller does about it. */
typedef enum ShardEntityAction
{
	SHARD_ENTITY_DO_NOTHING,
	SHARD_ENTITY_DO_HANDLE,		 /* handle what waits, the oldest first */
	SHARD_ENTITY_DO_HOLD,		 /* the message waits */
	SHARD_ENTITY_DO_STORE_START, /* then SHARD_ENTITY_ON_STORED */
	SHARD_ENTITY_DO_STORE_STOP,
	SHARD_ENTITY_DO_UNLOAD,	  /* hand it the stop message; then ..._ON_UNLOADED, ..._ON_STOPPED */
	SHARD_ENTITY_DO_BACK_OFF, /* set a timer; then SHARD_ENTITY_ON_DUE */
	SHARD_ENTITY_DO_REPORT,	  /* to the log and shard_health() */
	SHARD_ENTITY_DO_FORGET /* drop it; a message that waits starts it again with ..._ON_MESSAGE */
} ShardEntityAction;

extern const ShardMachine shard_entity_machine;

/*
 * One step of the life of an entity whose type has remember_entities or not. False: the step is
 * illegal, and next and action are not set; that is a bug of the caller, and the caller keeps the
 * state as it was.
 *
 * The table is that of a type that remembers. Without, whatever is to be stored counts as stored at
 * once and nothing is remembered: remembering_start is active, remembering_stop and
 * remembered_not_created are none, and an entity that ended unasked is gone.
 */
extern bool shard_entity_step(ShardEntityState state, ShardEntityEvent event, bool remembers,
							  ShardEntityState *next, ShardEntityAction *action);

/* Column state of shard_region_state. */
typedef enum ShardEntityListing
{
	SHARD_ENTITY_IS_STARTING,
	SHARD_ENTITY_IS_RUNNING,
	SHARD_ENTITY_IS_PASSIVATING,
	SHARD_ENTITY_IS_BACKING_OFF,
	SHARD_ENTITY_IS_QUARANTINED,
	SHARD_ENTITY_LISTINGS
} ShardEntityListing;

/* How an entity in a state is listed; one in state none is not. */
extern ShardEntityListing shard_entity_listing(ShardEntityState state);

/* The name of a listing in shard_region_state; NULL for a number that has none. */
extern const char *shard_entity_listing_name(int listing);

/* The most restarts of an entity that a type may allow: so many are remembered of each. */
#define SHARD_MOST_RESTARTS 100

/* A type's settings for failures. */
typedef struct ShardEntityLimits
{
	int max_attempts;	 /* of a message, and of starts in a row of a remembered entity */
	int64 retry_backoff; /* before the second attempt */
	int64 max_retry_backoff;
	int64
		restart_backoff; /* of an entity that ended unasked, or failed to start; doubled by each further time */
	int max_restarts; /* failures of an entity within its window that its shard bears; -1: all */
	int64 failure_backoff; /* of a shard, after an escalation */
} ShardEntityLimits;

/* What may be hoped of another attempt. */
typedef enum ShardEntityHope
{
	SHARD_ENTITY_LASTS,	   /* it would fail again */
	SHARD_ENTITY_MAY_PASS, /* it may help */
	SHARD_ENTITY_PASSES /* it helps sooner or later: others are to blame, or the server is short of something */
} ShardEntityHope;

/* By SQLSTATE, five characters. */
extern ShardEntityHope shard_entity_hope(const char *sqlstate);

/* What supervision, or the type's decider, says of a failure. */
typedef enum ShardEntityDecision
{
	SHARD_ENTITY_RESTART,  /* try again, if that may help, or if a decider says so */
	SHARD_ENTITY_RESUME,   /* give the message up, go on with the next */
	SHARD_ENTITY_STOP,	   /* give the message up, stop the entity */
	SHARD_ENTITY_ESCALATE, /* keep the message, pause the shard */
	SHARD_ENTITY_DECISIONS
} ShardEntityDecision;

#define SHARD_ENTITY_DECISION_NAMES "restart,resume,stop,escalate,"

/* A decision's name; and the decision of a name, DECISIONS: there is none. */
extern const char *shard_entity_decision_name(ShardEntityDecision decision);
extern ShardEntityDecision shard_entity_decision(const char *name);

/* A message has failed. Attempts are its own; those of the next one begin at 0, whatever becomes of this one. */
typedef struct ShardEntityFailure
{
	ShardEntityHope hope;
	ShardEntityDecision decision;
	bool decided; /* by the type's decider; else it is the type's setting */
	int attempts; /* this one included, as in the next */
	int failures; /* of the entity's messages within restart_window; without max_restarts any number */
	uint32 random; /* for the jitter */
} ShardEntityFailure;

/* What becomes of the message that failed, and of its entity. */
typedef enum ShardEntityVerdict
{
	SHARD_ENTITY_RETRY,			/* it waits, and the messages behind it: ..._ON_FAILED */
	SHARD_ENTITY_BURY,			/* dead letter: ..._ON_BURIED */
	SHARD_ENTITY_BURY_AND_STOP, /* dead letter, then ..._ON_PASSIVATE */
	SHARD_ENTITY_PAUSE_SHARD	/* as ..._RETRY, and all others of its shard wait, too */
} ShardEntityVerdict;

/* Judge a failure. pause is set with SHARD_ENTITY_RETRY and SHARD_ENTITY_PAUSE_SHARD only. */
extern ShardEntityVerdict shard_entity_judge(const ShardEntityLimits *limits,
											 const ShardEntityFailure *failure, int64 *pause);

/* The longest pause after an escalation. */
extern int64 shard_entity_longest_pause(const ShardEntityLimits *limits);

/*
 * Judge an entity that ended unasked, or failed to start, ends times in a row, this time included. transient: it may
 * help to wait, however long that takes. True: it starts again after the pause. False: ..._ON_GIVEN_UP.
 */
extern bool
shard_entity_restarts(const ShardEntityLimits *limits, int ends, bool transient, int64 *pause);

/* The longest such pause: entity_restart_backoff itself, if that is longer than an hour. */
extern int64 shard_entity_longest_restart(const ShardEntityLimits *limits);

/* The pause after failures in a row: the first one, doubled by each further one, up to most. */
extern int64 shard_entity_backoff(int64 first, int64 most, int failures);

/*
 * A pause shortened by up to a fifth, so that what failed together does not come back together. Never longer: the most
 * that a pause may be is a promise.
 */
extern int64 shard_entity_jitter(int64 pause, uint32 random);
