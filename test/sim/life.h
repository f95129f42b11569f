/*
 * life.h
 *		Mode life: the life of entities over a model of their host.
 *
 * Nodes with a database and one region worker each; clients that send, schedule, cancel, start and
 * passivate; shards that move; crashes that lose what was not flushed, turns that are aborted, processes
 * that freeze, clocks that jump. Then everything heals. Real are the machine of an entity, the judgement
 * of failures, pauses, due times and passivation strategies of core/entity; modelled is the worker around
 * them. How messages find a home is mode flow's matter: here a message for a shard that is elsewhere
 * waits in its node's outbox, in order, until a durable turn of the shard's home has met it, and the
 * shard takes with it how far it has come with each node.
 */
#pragma once

#include "postgres_fe.h"

#include "core/entity/entity.h"
#include "core/entity/passivation.h"
#include "core/entity/recovery.h"
#include "core/entity/timer.h"
#include "store.h"

#define LIFE_MS INT64CONST(1000)
#define LIFE_NODES 3
#define LIFE_TYPES 3
#define LIFE_SHARDS 6		   /* of all types */
#define LIFE_ENTITIES 4		   /* of a shard */
#define LIFE_NAMES 2		   /* of an entity's timers */
#define LIFE_SESSIONS 2		   /* of a node */
#define LIFE_MOST_CHILDREN 128 /* messages that the handlers of a turn send */
#define LIFE_NEVER PG_INT64_MAX

#define life_type_of(shard) ((shard) % LIFE_TYPES)
#define LIFE_KEY(...) ((StoreKey){{__VA_ARGS__}})

/* Tables; those of a shard begin with it in their keys, and move with it. */
typedef enum LifeTable
{
	LIFE_LOG = 0, /* seq: LifeRow */
	LIFE_CURSOR,  /* int64, the last seq that was met */
	LIFE_OUTBOX,  /* shard, seq: LifeRow */
	LIFE_SENT,	  /* shard: int64, the last seq of its outbox */
	LIFE_OWN,	  /* shard: LifeOwn */
	LIFE_TAKEN,	  /* shard, node: int64, the last seq of its outbox that was met */
	LIFE_STATE,	  /* shard, entity: LifeStateRow */
	LIFE_HELD,	  /* shard, entity, place, order: LifeHeldRow */
	LIFE_TIMER,	  /* shard, entity, name: LifeTimerRow */
	LIFE_HISTORY, /* shard, entity, number: int64, when a message has failed */
	LIFE_TABLES
} LifeTable;

#define LIFE_FIRST_OF_SHARD LIFE_TAKEN

typedef enum LifeKind
{
	LIFE_TELL = 1,
	LIFE_START,		/* shard_start_entity() */
	LIFE_PASSIVATE, /* life: of the worker's own accord; else shard_passivate(): deed: in a handler */
	LIFE_SCHEDULE,
	LIFE_CANCEL,
	LIFE_DUE /* a timer's message */
} LifeKind;

/* What a handler does beside its effect. */
typedef enum LifeDeed
{
	LIFE_DEED_NONE = 0,
	LIFE_DEED_TELL,
	LIFE_DEED_SCHEDULE,
	LIFE_DEED_CANCEL,
	LIFE_DEED_PASSIVATE,
	LIFE_DEED_STOP
} LifeDeed;

#define LIFE_FAILS_FOR_GOOD 99

#define LIFE_FAILURES 5 /* that are kept of an entity: more than a type bears */

/* A row of a log, an outbox, or held. */
typedef struct LifeRow
{
	int32 kind;
	int32 shard;
	int32 entity;
	int32 origin; /* the node from whose outbox it came; 0: it began in this log */
	int64 origin_seq;
	int64 id;  /* a message's, as the checker knows it; 0: of a worker's own accord */
	int64 seq; /* in the log in which it was met */
	int64 life;
	int64 queued_at; /* a timer's message, by the clock of the home */
	int32 deed;
	int32 fails;	/* so many attempts */
	int32 hope;		/* of these errors */
	int32 decision; /* of supervision on them, */
	bool decided;	/* or of the decider */
	int32 name;		/* a timer's from here on */
	int32 missed;
	int64 generation;
	int64 due;
	int64 every; /* 0: once */
} LifeRow;

typedef enum LifeOwnState
{
	LIFE_OWN_NONE = 0,
	LIFE_OWN_STAGED,
	LIFE_OWN_ACTIVE,
	LIFE_OWN_SEALED
} LifeOwnState;

typedef struct LifeOwn
{
	int32 state;
	int32 epoch;
} LifeOwn;

typedef struct LifeStateRow
{
	int64 version; /* effects */
	int64 remembered;
} LifeStateRow;

/* Places of held rows: what is in front of the messages, and the messages. */
#define LIFE_PLACE_START 0
#define LIFE_PLACE_STASH 1

typedef struct LifeHeldRow
{
	int64 attempts;
	bool pauses;   /* the shard, until then */
	int64 next_at; /* LIFE_NEVER: quarantined */
	LifeRow row;
} LifeHeldRow;

typedef struct LifeTimerRow
{
	int64 generation;
	int64 first;
	int64 period;
	int64 due; /* first, so many periods later */
	int64 every;
	int64 fired;
	int32 missed;
	int32 hope;
	bool decided;
	int32 fails; /* its message's */
	int32 deed;
	int32 decision;
} LifeTimerRow;

/* A type's settings. */
typedef struct LifeType
{
	bool remembers;
	bool start_message;
	bool stop_message;
	ShardRecoveryRate recovery; /* period 0: all, as fast as turns go */
	ShardEntityLimits limits;
	int64 restart_window;
	ShardPassivationSettings passivation;
} LifeType;

/* What a worker has in memory; an abort of the turn makes it what it was. */
typedef struct LifeEntity
{
	ShardEntityState state;
	int64 incarnation;
	int waiting;	  /* held rows */
	int64 next_at;	  /* of the first */
	int64 restart_at; /* it ended, and comes back then; 0: it did not */
	bool wants;		  /* to leave: a row has to be written; then it is passivating, */
	int64 decided_at; /* since then */
} LifeEntity;

typedef struct LifeShard
{
	bool active;
	int32 epoch;
	int64 life;
	bool walking;		/* over the remembered entities, */
	int walked;			/* so many of which were looked at */
	int64 paused_until; /* by the clock */
} LifeShard;

/*
 * Up to where timers were queued, in the order of their due times; and up to where they are in the log. While some have
 * not come up no others are queued.
 */
typedef struct LifeMark
{
	int64 due;
	int64 key;
	bool again; /* from the beginning, when nothing is on its way */
	int64 upto;
} LifeMark;

typedef struct LifeMemory
{
	LifeShard shards[LIFE_SHARDS];
	LifeEntity entities[LIFE_SHARDS][LIFE_ENTITIES];
	LifeMark mark;
	ShardRecoveryPace paces[LIFE_TYPES];
	int64 walk_at[LIFE_TYPES]; /* not before */
} LifeMemory;

typedef enum LifeEventKind
{
	LIFE_EVENT_ACTIVATED = 1, /* a shard */
	LIFE_EVENT_BEGAN,		  /* an incarnation */
	LIFE_EVENT_START_MESSAGE,
	LIFE_EVENT_START_FAILED,
	LIFE_EVENT_STOP_MESSAGE,
	LIFE_EVENT_ENDED,
	LIFE_EVENT_REMEMBERED,
	LIFE_EVENT_FORGOTTEN,
	LIFE_EVENT_HANDLED, /* a message, */
	LIFE_EVENT_FAILED,	/* which is tried again */
	LIFE_EVENT_DEAD,
	LIFE_EVENT_DONE, /* without a handler */
	LIFE_EVENT_SCHEDULED,
	LIFE_EVENT_CANCELLED,
	LIFE_EVENT_FIRED,
	LIFE_EVENT_FIRING_FAILED,
	LIFE_EVENT_SKIPPED
} LifeEventKind;

/* Why an incarnation began or ended. */
typedef enum LifeCause
{
	LIFE_BY_MESSAGE = 1,
	LIFE_BY_RECOVERY,
	LIFE_BY_ORDER,	/* shard_start_entity(), shard_passivate() */
	LIFE_BY_WORKER, /* idle, over the limit */
	LIFE_BY_ITSELF	/* shard_stop(), or a failure */
} LifeCause;

/* What a turn did; the checker hears of it when the turn is durable. */
typedef struct LifeEvent
{
	LifeEventKind kind;
	LifeCause cause;
	int64 lsn;
	int node;
	int32 shard;
	int32 entity;
	int32 epoch;
	int64 life; /* of the shard's memory */
	int64 incarnation;
	int64 id;
	int64 attempts; /* this time included */
	int64 next_at;	/* of the next attempt; a timer's next due, 0: it has none */
	bool pauses;	/* its shard, until then */
	int64 at;		/* of the world */
	int64 wall;		/* of the home's clock */
	LifeRow row;
} LifeEvent;

typedef enum LifePhase
{
	LIFE_IDLE = 0,	 /* next: HELD */
	LIFE_HELD_DUE,	 /* next: LOG */
	LIFE_LOG_ROWS,	 /* next: WORKER */
	LIFE_OWN_ACCORD, /* timers, starts, passivations; next: COMMIT */
	LIFE_COMMIT		 /* next: IDLE */
} LifePhase;

typedef struct LifeWorld LifeWorld;
typedef struct LifeCheck LifeCheck;

typedef struct LifeNode
{
	LifeWorld *world;
	Store *store;
	int id;
	bool up;
	int64 restart_at;
	int64 frozen; /* its worker, until then */
	int64 offset; /* of its clock */
	int64 sessions[LIFE_SESSIONS];
	int64 seq; /* the last of its log */

	/* its outboxes, by shard */
	int64 sent[LIFE_SHARDS];
	int64 again_at[LIFE_SHARDS];

	/* its worker */
	LifeMemory memory;
	ShardPassivation *regions[LIFE_TYPES];
	ShardPassivationShard *places[LIFE_SHARDS];
	ShardPassivationEntity tracked[LIFE_SHARDS][LIFE_ENTITIES];

	/* the running turn */
	LifePhase phase;
	LifeMemory saved;
	StoreTransaction *tx;
	bool failed;
	int64 tail;
	int64 cursor;
	int looked_at;
	bool accessed[LIFE_SHARDS][LIFE_ENTITIES];
	int n_children;
	int64 children[LIFE_MOST_CHILDREN]; /* messages of its handlers */

	/* what it did, and what durable turns will tell the checker */
	int n_events;
	int turn_events; /* the first of the running turn */
	int event_space;
	LifeEvent *events;
} LifeNode;

typedef enum LifeMoveStep
{
	LIFE_MOVE_NONE = 0, /* next: SEAL */
	LIFE_MOVE_SEAL,		/* next: COPY */
	LIFE_MOVE_COPY,		/* next: STAGED */
	LIFE_MOVE_STAGED	/* decided when that is durable; next: NONE */
} LifeMoveStep;

typedef struct LifeHome
{
	int node;
	int32 epoch;
	LifeMoveStep step;
	int to;
	int64 lsn;
	int64 delete_at[LIFE_NODES]; /* rows of a former home; 0: there are none */
} LifeHome;

struct LifeWorld
{
	uint64 state;
	bool trace;
	bool chaos;
	int64 now;
	int n_nodes;
	LifeNode nodes[LIFE_NODES];
	LifeType types[LIFE_TYPES];
	LifeHome homes[LIFE_SHARDS];
	bool sick[LIFE_SHARDS][LIFE_ENTITIES]; /* its start message fails */
	int64 aside_until[LIFE_SHARDS]
					 [LIFE_ENTITIES]; /* its row is locked, or its messages are put aside */
	LifeCheck *check;
	bool clocks_jump;
	bool midnight;	 /* all timers are due at the same few times */
	int64 jumped_at; /* a clock, for the last time */
	int64 number;	 /* the last of lives, incarnations and generations */
};

/* life_world.c */
extern uint32 life_random(LifeWorld *world, uint32 below);
extern bool life_percent(LifeWorld *world, int chance);
extern void life_note(LifeWorld *world, const char *format, ...) pg_attribute_printf(2, 3);
extern int64 life_wall(const LifeNode *node);
extern int64 life_draw_due(LifeWorld *world, const LifeNode *node);
extern LifeRow life_draw_message(LifeWorld *world, LifeNode *node, int64 session);

/* life_node.c: databases and their logs */
extern void life_node_create(LifeWorld *world, int index);
extern void life_node_destroy(LifeNode *node);
extern void life_node_start(LifeNode *node);
extern void life_node_crash(LifeNode *node);
extern void life_node_flush(LifeNode *node);
extern bool life_append(LifeNode *node, StoreTransaction *tx, LifeRow *row);
extern bool life_link_step(LifeNode *node);
extern LifeEvent *life_event(LifeNode *node, LifeEventKind kind, int32 shard, int32 entity);

/* life_move.c: shards come and go */
extern void life_activate(LifeNode *node, int32 shard, int32 epoch);
extern void life_move_begin(LifeWorld *world, int32 shard);
extern bool life_move_step(LifeWorld *world, int32 shard);

/* life_turn.c: turns */
extern bool life_turn_step(LifeNode *node);
extern void life_turn_abort(LifeNode *node);

/* life_entity.c: messages and their entities */
extern ShardEntityAction
life_step(LifeNode *node, int32 shard, int32 entity, ShardEntityEvent event);
extern void life_put(LifeNode *node, LifeTable table, StoreKey key, const void *value);
extern void life_remove(LifeNode *node, LifeTable table, StoreKey key);
extern void life_deliver(LifeNode *node, const LifeRow *row);
extern void life_run_held(LifeNode *node, int32 shard, int32 entity);
extern void life_load_held(LifeNode *node, int32 shard, int32 entity);
extern void life_effect(LifeNode *node, int32 shard, int32 entity);
extern void life_load_pause(LifeNode *node, int32 shard);
extern void life_follow(LifeNode *node, int32 shard, int32 entity);
extern bool life_is_aside(const LifeNode *node, int32 shard, int32 entity);
extern bool life_run_due(const LifeNode *node, int32 shard, int32 entity);

/* life_start.c: entities begin, and are remembered */
extern bool life_begin(LifeNode *node, const LifeRow *row, LifeCause cause);
extern void life_remember(LifeNode *node, int32 shard, int32 entity, LifeCause cause);
extern void life_forget(LifeNode *node, int32 shard, int32 entity);
extern bool life_is_remembered(const LifeNode *node, int32 shard, int32 entity);
extern void life_start_ordered(LifeNode *node, const LifeRow *row);
extern void life_recover(LifeNode *node, int32 shard, int32 entity);
extern bool life_meet_start(LifeNode *node, const LifeRow *row);
extern bool life_walk_due(const LifeNode *node, int32 shard);
extern void life_walk(LifeNode *node, int32 shard);

/* life_leave.c: entities end, and leave memory */
extern bool life_meet_passivate(LifeNode *node, const LifeRow *row, int64 *attempts, int64 *pause);
extern void life_drop(LifeNode *node, int32 shard, int32 entity);
extern void life_end(LifeNode *node, int32 shard, int32 entity, ShardEntityEvent how);
extern void life_leave(LifeNode *node, dlist_head *victims);
extern void life_after_turn(LifeNode *node);
extern bool life_leavers(LifeNode *node, bool write);

/* life_timer.c: timers */
extern void life_meet_schedule(LifeNode *node, const LifeRow *row);
extern void life_meet_cancel(LifeNode *node, const LifeRow *row);
extern bool life_firing(LifeNode *node, const LifeRow *row, int64 attempts, LifeTimerRow *timer);
extern void life_fired(LifeNode *node, const LifeRow *row, const LifeTimerRow *timer,
					   int64 attempts, LifeEventKind kind);
extern bool life_timers_due(const LifeNode *node);
extern void life_queue_timers(LifeNode *node);

/* life_check.c: what must not happen; stands outside and sees everything */
extern LifeCheck *life_check_create(LifeWorld *world);
extern void life_check_destroy(LifeCheck *check);
extern const char *life_check_violation(const LifeCheck *check);
extern void life_check_fail(LifeCheck *check, const char *format, ...) pg_attribute_printf(2, 3);
extern int64 life_check_send(LifeCheck *check, int node, int64 session, const LifeRow *row);
extern void life_check_committed(LifeCheck *check, int64 id, int64 lsn);
extern void life_check_aborted(LifeCheck *check, int64 id);
extern void life_check_crashed(LifeCheck *check, int node, int64 flushed);
extern void life_check_event(LifeCheck *check, const LifeEvent *event);
extern void life_check_rows(LifeCheck *check, const LifeNode *node);
extern bool life_check_sleeps(const LifeCheck *check, int32 shard, int32 entity);
extern void life_check_end(LifeCheck *check);
extern int life_check_count(const LifeCheck *check);
