/*
 * entity/life.h
 *		How entities come into memory, stay there, and leave: a part of internal.h, which includes it.
 *
 * Its files have their places in the order of internal.h: start restart stop_row passivate remember life.
 */
#pragma once

/* ---- start.c: an entity starts ---------------------------------------------------------------- */

/* Whether something is to be done before a message of the entity is handled, since it has come into memory. */
static inline bool
shard_start_is_due(const ShardEntity *entity)
{
	return unlikely(entity->local->type->starts) && !entity->started;
}

/* A row that stands for the start of an entity. */
extern ShardRow shard_start_row(const ShardEntity *entity);

/* Starts an entity whose copy is true: its start message is handled. Raises what that raises. */
extern void shard_start_run(ShardEntity *entity);

/*
 * When an entity may start that failed to, so often; DT_NOEND: in a quarantine. A clock that was set back holds it for
 * the pause after so many failures at most.
 */
extern TimestampTz shard_start_latest(const ShardType *type, int attempts, TimestampTz at);
extern TimestampTz shard_start_not_before(const ShardType *type, const ShardHeldCount *held);

/* ---- restart.c: remembered entities that supervision has stopped ------------------------------ */

typedef struct ShardRestart
{
	dlist_node node;
	TimestampTz at; /* not before */
	int64 pause;	/* from when it was stopped, in microseconds */
	bool tried;		/* in this turn */
	int32 type_id;
	int shard;
	int id_len;
	char id[FLEXIBLE_ARRAY_MEMBER];
} ShardRestart;

/* The turn has stopped an entity that is remembered: it is to start again after entity_restart_backoff. */
extern void shard_restart_note(const ShardEntity *entity);

/* When the next one is to start; infinity: there is none. */
extern TimestampTz shard_restart_next_due(void);

/* Calls start for those whose time has come; it returns 0, or when to try again since the entity cannot start now. */
extern void shard_restart_each_due(TimestampTz (*start)(const ShardRestart *restart));

/* The clock was set back: none waits for longer than its pause. */
extern void shard_restart_follow_clock(void);

/* After the commit, and after an abort. */
extern void shard_restart_committed(void);
extern void shard_restart_aborted(void);

/* ---- stop_row.c: the rows that bring a stop message ------------------------------------------- */

/* Appends what a handler has asked for; or the number by which the worker has an entity leave. */
extern void shard_stop_ask(ShardEntity *entity, const Jsonb *message);
extern void shard_stop_append_number(const ShardEntity *entity, int64 number);

/* Whether a row, which may be of any kind, has such a number; and the number, 0: it is none. */
extern bool shard_stop_is_number(const ShardRow *row);

extern int64 shard_stop_number(const ShardRow *row);

/* Whether the entity was told to leave, by itself or from outside: not if the worker has decided so. */
extern bool shard_stop_was_told(const ShardRow *row);

/* Makes the row the command alone, without a message (stop.c). */
extern void shard_stop_make_command(ShardRow *row);

/* ---- passivate.c: which entities leave memory, and when --------------------------------------- */

/* The entity is the most recently used one of its type (cache.c). */
extern void shard_cache_touch(ShardEntity *entity, TimestampTz now);

/* A message, or an ask, of a type with a limit. */
extern void shard_passivate_access(ShardEntity *entity, TimestampTz now);

/* The same of any type: the entity is the most recently used one. */
static inline void
shard_passivate_touch(ShardEntity *entity, TimestampTz now)
{
	shard_cache_touch(entity, now);
	if (unlikely(entity->local->region != NULL))
		shard_passivate_access(entity, now);
}

/* Whether entities have to leave for others. */
extern bool shard_passivate_is_short(void);

/* Settings of the type may have changed, or it was dropped. */
extern void shard_passivate_follow(ShardLocalType *local);

/* Whether nothing of the entity waits; and whether its time is over, or when it will be, DT_NOEND: never. */
extern bool shard_passivate_may_leave(const ShardEntity *entity);
extern bool shard_passivate_is_idle(const ShardEntity *entity, TimestampTz now, TimestampTz *due);

/* Calls visit for each entity that is to leave because of its type's limit; it may not remove any. */
extern void shard_passivate_each_victim(ShardLocalType *local,
										void (*visit)(ShardEntity *entity, void *arg), void *arg);

/* After a commit: entities over the limit go; and the least recently used as long as memory is short. */
extern void shard_passivate_between_turns(void);

/* ---- remember.c: whether an entity is remembered ---------------------------------------------- */

/* From this turn on it is, if its type remembers; it leaves memory, and is not. */
extern void shard_remember_entity(ShardEntity *entity);
extern void shard_remember_forget(ShardEntity *entity);

/* Whether remembered entities of the shard are still to be started. */
extern bool shard_remember_recovers(const ShardLocalType *local, int shard);

/* At the commit: the entity began to be remembered, or no longer is. */
extern void shard_remember_count(const ShardEntity *entity, bool remembered);

/* ---- life.c: where the life of an entity stands ----------------------------------------------- */

/* Whether the type remembers its entities. */
static inline bool
shard_life_remembers(const ShardLocalType *local)
{
	return local->type->remember;
}

/* One step of the machine, which must be legal. */
extern ShardEntityAction shard_life_step(ShardEntity *entity, ShardEntityEvent event);

/* It starts with its shard, without a message. */
extern void shard_life_start(ShardEntity *entity);

/* A message, or an ask, is about to be handled. */
extern void shard_life_come(ShardEntity *entity);

static inline void
shard_life_wake(ShardEntity *entity)
{
	if (unlikely(entity->life != SHARD_ENTITY_ACTIVE))
		shard_life_come(entity);
}

/* A message of somebody, or an ask, is about to be handled: it puts the receive time-out off (E37). */
static inline void
shard_life_hear(ShardEntity *entity)
{
	entity->heard_at = shard_turn.now;
	entity->spoken = true;
}

/* What waits in front of the entity has changed. */
extern void shard_life_follow(ShardEntity *entity);

/* It leaves, unless messages wait for it; stop: for good. The next message begins another life, in this turn, too. */
extern void shard_life_passivate(ShardEntity *entity, bool stop);

/* Its shard or its type leaves, and it with them. */
extern void shard_life_leave(ShardEntity *entity);
