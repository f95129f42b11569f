/*
 * link/receive.h
 *		Messages, facts and marks from another node: hello and receive (X3, X4).
 */
#pragma once

#include "link/callee.h"
#include "core/flow/fact.h"

/* ---- receive.c: Messages, facts and marks from another node: hello and receive (X3, X4) ---- */

/* Registers the transaction callback; from _PG_init. */
extern void shard_receive_init(void);

/* ---- receive_fact.c: Decided homes that another node tells with its call, beside what this node has learned (T6) ---- */

/*
 * Reads the sections of a call: those facts that the learned map has, as it has them, go to *facts, an array of the
 * call's memory; returns how many. What the map contradicts is left out, and its teller is named in the server's log and by
 * shard_health(). For what the map does not reach yet it waits, with transactions of its own and nothing held, so nothing
 * is locked before; SHARD_CALLEE_PATIENCE at most, then error SH003. Error 08P01 if the bytes are damaged.
 */
extern int shard_receive_fact_read(ShardCallee *callee, ShardFact **facts);

/* ---- receive_record.c: Turn records of homes that this node keeps copies for: store (Q8, Q9, Q36) ---- */

/* Shards of which one call may speak. */
#define SHARD_STORE_SHARDS 10000

/* Registers the transaction callback; from _PG_init. */
extern void shard_receive_record_init(void);

/* ---- receive_reply.c: Replies of another node to asks that are open here (E44) ---- */

/* In the transaction of a call: a section of replies. Returns what of it is damaged; NULL: nothing. */
extern const char *shard_receive_replies(const ShardCallee *callee, ShardReader *section);

/* ---- receive_target.c: What messages and marks of another node are for: types and shards that there are, or were (T9) ---- */

/* Of one call; all 0 at its begin. The type that was asked for last is remembered. */
typedef struct ShardReceiveTarget
{
	int32 type_id; /* 0: none yet */
	bool here;	   /* this node has the type, or what the type has left */
	bool asked;	   /* the map was asked for the type, too */
	bool reported; /* the call has something for what there is not */
	ShardTargetLearned learned;
} ShardReceiveTarget;

/*
 * Is a message to be taken? False: the type or shard that it is for never existed; the message is passed over, and its
 * sender is named. Errors with NOT_YET if the sender may know more of it than this node does.
 */
extern bool shard_receive_target_takes(ShardReceiveTarget *target, const ShardCallee *callee,
									   int32 type_id, int32 shard);

/* Can a mark mean anything here? The node keeps messages of types only that it has, or that have left something here (X6). */
extern bool shard_receive_target_marks(ShardReceiveTarget *target, const ShardCallee *callee,
									   int32 type_id, int32 shard);
