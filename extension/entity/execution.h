/*
 * entity/execution.h
 *		The handler that runs in this process: what it may ask about, and whether there is one.
 */
#pragma once

#include "utils/jsonb.h"

#include "entity/entity.h"
#include "log/log.h"
#include "shared/ring.h"

/* What the handler that is running may ask about; NULL outside of handlers. */
typedef struct ShardExecution
{
	ShardEntity *entity;
	const ShardRow *message; /* NULL: an ask */
	const ShardRequest *ask; /* NULL: a tell */
	bool batch;				 /* a batch handler runs for several messages: no sender, id or reply */
	bool replied;
	bool trial;			  /* shard_try: nothing is kept */
	char *reply;		  /* jsonb, palloc'd in the turn's memory; NULL: none */
	List *told;			  /* trial: the messages that it told, instead of sending them (trial.c) */
	MemoryContext memory; /* of the reply */
	bool stop;			  /* shard_stop(), shard_passivate() */
	bool passivate;
	Jsonb *stop_message; /* that it is to handle before it is passivated; NULL: it is at once */
	struct ShardReplyToken
		*token; /* shard_defer_reply(), in memory; NULL: the reply is not put off */
} ShardExecution;

extern ShardExecution *shard_execution_current(void);

/* A trial begins; NULL: it has ended, by return or by error. Not in a region worker. */
extern void shard_execution_set_current(ShardExecution *execution);

/* Whether a handler may be running: in a region worker, or in a trial. */
extern bool shard_execution_in_handler(void);

/* In a turn: ends user code, so that SQL of ours may follow. */
extern void shard_execution_end_user_code(void);

/* Chains the hook that refuses handlers statements that would harm others; from _PG_init. */
extern void shard_execution_hook_init(void);
