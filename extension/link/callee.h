/*
 * link/callee.h
 *		The called side of a call between nodes: the caller, transactions, the answer (I5, T3).
 *
 * Peers call procedures, name(call bytea, INOUT answer bytea), outside of a transaction block. So the
 * procedure ends its transactions itself: it waits without a snapshot and without locks, and answers
 * when what it did is committed and past the release gate. The work may be done by any role that may
 * execute the procedure: it needs no right on a table, and what it calls asks for none.
 */
#pragma once

#include "fmgr.h"

#include "core/flow/packet.h"
#include "shared/board.h"

typedef struct ShardCallee
{
	ShardDatabase *db;
	ShardBoardView view;	/* of this node, when the call was checked */
	ShardCallHeader header; /* of the call */
	ShardReader reader;		/* the call's bytes behind the header; they live as long as the call */
	MemoryContext context;	/* the caller's, for the answer */
	bool own;				/* the caller is this node itself */
} ShardCallee;

/*
 * First: ends the statement's transaction, begins one of its own, READ COMMITTED and with the lock on the extension
 * object, and checks that the caller is the node that the header names, and that the call is for this node and
 * incarnation. Errors as in peer_errors.h. Nothing else of the extension was locked or read in the transaction before.
 */
extern void shard_callee_begin(FunctionCallInfo fcinfo, ShardCallee *callee);

/*
 * The same in two parts, for a call that says how long its caller waits: the check waits at most patience microseconds
 * for facts that this node has not heard of yet. The first part tells nothing of the caller.
 */
extern void shard_callee_open(FunctionCallInfo fcinfo, ShardCallee *callee);
extern void shard_callee_check(ShardCallee *callee, int64 patience);

/* How long a call waits at most for facts that its sender has and this node lacks, in microseconds. */
#define SHARD_CALLEE_PATIENCE (1000 * INT64CONST(1000))

/* Ends the transaction, waits a moment with nothing held, begins another one and checks the call again. */
extern void shard_callee_nap(ShardCallee *callee);

/*
 * The same for a procedure that only this node itself calls, in its present incarnation. Any role that may execute the
 * procedure can claim to be this node: the procedure asks for a proof of its own.
 */
extern void shard_callee_begin_own(FunctionCallInfo fcinfo, ShardCallee *callee);

/*
 * Ends the transaction, and with it all locks, and begins another one that holds nothing. The commit is
 * asynchronous: shard_gate_wait() for its LSN makes it durable.
 */
extern void shard_callee_commit(void);
extern void shard_callee_rollback(void);

/* Raises that the call has something mandatory that this version does not know: a section of that kind and channel. */
_Noreturn extern void
shard_callee_unknown_section(const ShardCallee *callee, int32 kind, int32 channel);

/* Appends the header of the answer: as far as this node has learned the map by now. */
extern void shard_callee_put_header(const ShardCallee *callee, StringInfo out);

/* Last: the procedure's result. */
extern Datum shard_callee_answer(ShardCallee *callee, const StringInfoData *answer);
