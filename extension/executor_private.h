/*
 * executor_private.h
 *		What the executor's files share: the turn, and running one message.
 */
#pragma once

#include "executor.h"
#include "held.h"
#include "run.h"
#include "security.h"

/* A reply that leaves after commit. */
typedef struct ShardReply
{
	ShardRequest *request;
	char *data; /* NULL: SQL NULL */
	int len;
	ErrorData *error; /* instead of data */
} ShardReply;

typedef struct ShardTurn
{
	MemoryContext context; /* reset by each turn */
	bool careful;
	bool fenced; /* a message runs in a subtransaction of its own */
	TimestampTz now;
	int count;		  /* messages begun */
	bool blames_last; /* a handler is running */
	bool overtaken;
	bool reloaded;	 /* the registry, for a type that it did not know */
	bool passed;	 /* a message was handled, stashed or buried */
	bool full;		 /* ends here, so that what was done is committed */
	slist_head runs; /* whose entities are in the turn */
	dlist_head due;	 /* entities that wait, but not for their type; outlives turns */
	List *replies;
	ShardSecurity security;
	uint64 messages; /* since start */
	uint64 errors;
} ShardTurn;

extern ShardTurn shard_turn;

/* At start: reads what workers of these lanes got stuck in (executor_run.c). */
extern void shard_turn_init(uint32 lanes);

/* The run of a type, ready to be used; NULL if the type was dropped. */
extern ShardRun *shard_turn_ready_run(int32 type_id);

/* Takes messages onto the counter of what cannot be handled now, or (negative) off it. */
extern void shard_turn_count_held(ShardRun *run, int64 delta);

/* An entity joins or leaves those whose stash is looked at when its time has come. */
static inline bool
shard_turn_is_due(const ShardWait *wait)
{
	return wait->deferred && !wait->suspended;
}

extern void shard_turn_set_due(ShardEntity *entity, bool was, bool is);

/* An entity leaves memory, with what is known of its stash. Between turns. */
extern void shard_turn_forget(ShardEntity *entity);

/* Takes an entity into the turn. */
extern void shard_turn_enlist(ShardEntity *entity);

/* Entity of a message, enlisted. */
extern ShardEntity *shard_turn_entity(ShardRun *run, const ShardRow *row);

/* Ends user code: what follows is ours. */
extern void shard_turn_end_user_code(void);

/*
 * Makes the entity's copy tell the truth, once per turn; false if another
 * transaction holds its row.
 */
extern bool shard_turn_check(ShardEntity *entity);

/* Writes a dirty entity; false if it was overtaken. The caller closes the table. */
extern bool shard_turn_write(ShardEntity *entity);

/* Calls the handler with one message (call.c): sets the entity's state, execution's reply. */
extern void shard_call_message(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
							   ShardExecution *execution);

/* Calls a batch handler with the messages kept for the entity. */
extern void shard_call_batch(ShardEntity *entity);

/* Keeps a message for it. */
extern void shard_call_collect(ShardEntity *entity, const ShardRow *row);

/* Handlers' timer (call.c). */
extern void shard_call_init(void);
extern void shard_call_sleep(void);
extern void shard_call_explain(ErrorData *error);
extern void shard_call_aborted(void);

/* What becomes of a message that cannot run now, or failed (failure.c). */
extern void
shard_failure_defer(ShardEntity *entity, const ShardRow *row, TimestampTz until, bool suspended);

/* True: it became a dead letter; false: it waits in the stash for another attempt. */
extern bool shard_failure_dispose(ShardEntity *entity, const ShardRow *row, int attempts,
								  bool from_stash, ErrorData *error);
