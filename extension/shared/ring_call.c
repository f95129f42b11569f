/*
 * shared/ring_call.c
 *		The asker's side of the ring: submit, wait, believe.
 *
 * How a call may end:
 * - the answer came: its WAL is flushed and the gate has passed, then it is
 *   believed (G1); an error is raised with the SQLSTATE it had;
 * - time-out before a worker took the request: withdrawn, certainly not
 *   executed, SQLSTATE 55P03;
 * - time-out or end of the worker after that: the outcome is unknown, SQLSTATE
 *   SH100. A cancel is 57014 as ever, and its detail says so, until the reply
 *   is believed: without that detail it was not executed;
 * - the worker waits for a lock of the asker's transaction, which the server's
 *   own detector cannot see: 40P01 if the request was not begun, or its handler
 *   has given up the lock, so that it may be repeated like any transaction; else
 *   SH100 too, as the worker goes on when the lock is gone.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "common/int.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "core/base/message.h"
#include "base/duration.h"
#include "shared/gate.h"
#include "base/fault.h"
#include "base/guc.h"
#include "base/peer_errors.h"
#include "shared/board.h"
#include "shared/ring.h"
#include "shared/ring_private.h"
#include "base/nap.h"
#include "base/clock.h"
#include "base/rights.h"

#include "base/compat.h"

/* The asker looks whether the worker is alive at least once in this time, in microseconds. */
#define LIVENESS_INTERVAL (1000 * 1000)

/* A handler that has less patience with locks than twice this may end before it is looked at. */
#define SHORTEST_LOOK (50 * 1000)

#define DEADLOCK_HINT "Ask before you lock rows that handlers need, or in a transaction of its own."

/* Why a wait ended. */
typedef enum Outcome
{
	OUTCOME_ANSWERED,
	OUTCOME_NOT_TAKEN, /* timed out, withdrawn */
	OUTCOME_TIMED_OUT, /* timed out, taken */
	OUTCOME_DEFERRED,  /* timed out, handled; the reply was to come later */
	OUTCOME_GATE,	   /* timed out, handled */
	OUTCOME_LOST,	   /* the worker ended */
	OUTCOME_DEADLOCK,  /* the worker waits for a lock of the asker; withdrawn */
	OUTCOME_SELF_LOCK  /* the same, taken */
} Outcome;

/* One call of the asker's side. */
typedef struct Call
{
	ShardRingSlot *slot;
	ShardDatabase *db;
	int worker;
	const ShardRequest *request;
	int64 timeout;		  /* microseconds */
	int64 deadline;		  /* on shard_clock_now() */
	int64 look_at;		  /* once the request has begun: when to look for a lock of the asker */
	int64 deadlock_check; /* the same, even if it has not begun */
	int64 self_lock;	  /* first seen to wait for one, having begun; 0: not at the last look */
	bool was_ours;		  /* the last lock that it was seen to wait for */
	int pid;			  /* of the worker when last seen, 0: none */
} Call;

/*
 * Gives up what this backend still has under way.
 */
static void
leave_at_exit(int code, Datum arg)
{
	(void) shard_ring_slot_leave(shard_ring_slot_mine());
}

/*
 * This backend's slot, to be written to. An earlier request, given up, may
 * still be in a worker's hands, for the time of a copy.
 */
static ShardRingSlot *
own_slot(void)
{
	static bool registered = false;
	ShardRingSlot *slot = shard_ring_slot_mine();
	int pid;

	if (!registered)
		before_shmem_exit(leave_at_exit, (Datum) 0);
	registered = true;
	while (shard_ring_slot_look(slot, &pid) != SHARD_RING_FREE)
		shard_nap(1, "ShardAsk");
	return slot;
}

/*
 * Whether the worker waits for a lock that this backend holds.
 */
static bool
waits_for_us(Call *call)
{
	MemoryContext context;
	MemoryContext old;
	ArrayType *blockers;
	int32 *pids;
	bool waits = false;
	int n;

	if (call->pid == 0)
		return false;
	/* pg_blocking_pids() leaves some bytes for each process that the server may have. */
	context = AllocSetContextCreate(CurrentMemoryContext, "shard asks for blockers",
									ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	blockers = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(call->pid)));
	pids = (int32 *) ARR_DATA_PTR(blockers);
	n = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));
	for (int i = 0; i < n; i++)
		waits |= pids[i] == MyProcPid;
	/* a worker that has stopped waiting may have given that lock up, and not yet have said so */
	if (n > 0)
		call->was_ours = waits;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return waits;
}

/*
 * How often to look at a request that a worker executes: before its handler gives up a lock.
 */
static int64
look_interval(void)
{
	return Min(Max(shard_handler_lock_timeout * INT64CONST(500), SHORTEST_LOOK),
			   DeadlockTimeout * INT64CONST(1000));
}

/*
 * Whether the request is to be given up, since the worker waits for a lock of the asker. A wait that the handler's own
 * time limit ends before the asker's is left to the handler: then the outcome is known.
 */
static bool
is_deadlocked(Call *call)
{
	int64 patience = DeadlockTimeout * INT64CONST(1000);
	int64 now = shard_clock_now();
	bool is_due = now >= call->deadlock_check;
	bool begun;
	bool blocked;

	if (now < call->look_at)
		return false;
	call->look_at = now + look_interval();
	begun = shard_ring_slot_is_begun(call->slot);
	if (is_due)
		call->deadlock_check = now + Min(LIVENESS_INTERVAL, patience);
	blocked = (begun || is_due) && waits_for_us(call);
	if (!blocked || !begun)
	{
		call->self_lock = 0;
		return blocked;
	}
	if (call->self_lock == 0)
		call->self_lock = now;
	return shard_handler_lock_timeout < DeadlockTimeout ? now - call->self_lock >= patience
														: is_due;
}

/*
 * The lanes may have been regrouped while the request was in a queue: moves it
 * to the worker that has its lane now.
 */
static void
follow_lane(Call *call)
{
	int lane = shard_message_lane(call->request->type_id, call->request->shard);
	int worker = shard_shmem_lane_worker(call->db, lane);

	if (call->request->kind != SHARD_REQUEST_ASK || worker == call->worker ||
		!shard_ring_slot_withdraw(call->slot))
		return;
	call->worker = worker;
	shard_ring_slot_submit(call->slot, call->db, worker);
}

/*
 * Waits for the end of a submitted request.
 */
static Outcome
wait_for_answer(Call *call)
{
	for (;;)
	{
		ShardRingState state = shard_ring_slot_look(call->slot, &call->pid);
		int64 left;

		if (state == SHARD_RING_DONE)
			return OUTCOME_ANSWERED;
		if (state == SHARD_RING_LOST)
			return OUTCOME_LOST;
		left = call->deadline - shard_clock_now();
		if (left <= 0)
		{
			if (shard_ring_slot_withdraw(call->slot))
				return OUTCOME_NOT_TAKEN;
			left += call->request->patience_us;
			if (left <= 0 && shard_ring_slot_is_deferred(call->slot))
				return OUTCOME_DEFERRED;
			if (left <= 0)
				return call->self_lock != 0 ? OUTCOME_SELF_LOCK : OUTCOME_TIMED_OUT;
		}
		if (is_deadlocked(call))
		{
			if (shard_ring_slot_withdraw(call->slot))
				return OUTCOME_DEADLOCK;
			/* one that has begun meanwhile may not meet that lock */
			if (call->self_lock != 0)
				return OUTCOME_SELF_LOCK;
		}
		if (state == SHARD_RING_SUBMITTED || state == SHARD_RING_TAKEN)
			follow_lane(call);
		left = Min(left, LIVENESS_INTERVAL);
		left = Max(Min(left, call->look_at - shard_clock_now()), 1000);
		shard_nap((long) ((left + 999) / 1000), "ShardAsk");
	}
}

/*
 * Whom the call was for, as people know it.
 */
static const char *
worker_name(const Call *call)
{
	return call->worker == SHARD_CONTROL_WORKER ? "control worker"
												: psprintf("shard worker %d", call->worker);
}

/*
 * The same at the beginning of a sentence.
 */
static const char *
worker_title(const Call *call)
{
	return call->worker == SHARD_CONTROL_WORKER ? "The control worker"
												: psprintf("Shard worker %d", call->worker);
}

/*
 * Whom an ask was for.
 */
static const char *
target_name(const Call *call)
{
	return psprintf("entity \"%s\" of type \"%s\"", call->request->entity,
					call->request->type_name);
}

/*
 * The time-out that the asker has given; one at another node has kept a part of it for the answer.
 */
static const char *
given_time(const Call *call)
{
	return shard_duration_rounded(call->timeout + call->request->patience_us);
}

/*
 * Why the time of a request ran out before it was answered.
 */
static const char *
reason(const Call *call, const char *limit)
{
	int length = strlen(call->slot->why);

	if (length > 0 && call->slot->cause[0] != '\0' && shard_rights_all_stats())
		return psprintf("%.*s: %s", length - (call->slot->why[length - 1] == '.' ? 1 : 0),
						call->slot->why, call->slot->cause);
	if (length > 0)
		return pstrdup(call->slot->why);
	if (call->pid == 0)
		return psprintf("%s does not run.", worker_title(call));
	return psprintf("%s was busy for %s.", worker_title(call), limit);
}

/*
 * Raises the error of a command that the control worker took, and has not answered.
 */
static void
report_command(Outcome outcome, const char *limit)
{
	ereport(ERROR,
			(errcode(SHARD_ERRCODE_OUTCOME_UNKNOWN),
			 outcome == OUTCOME_LOST
				 ? errmsg("control worker ended during a command, outcome unknown")
				 : errmsg("command timed out, outcome unknown"),
			 outcome == OUTCOME_LOST
				 ? errdetail("The control worker may have carried out the command.")
				 : errdetail("The command was taken, but not answered within %s. The control "
							 "worker may still carry it out.",
							 limit),
			 errhint("See shard_health() and shard_members before you try again.")));
}

/*
 * Raises the error of a request whose worker waits for a lock of the asker.
 */
static void
report_deadlock(const Call *call, bool taken)
{
	ereport(ERROR,
			(errcode(taken ? SHARD_ERRCODE_OUTCOME_UNKNOWN : ERRCODE_T_R_DEADLOCK_DETECTED),
			 taken ? errmsg("deadlock detected in an ask of %s, outcome unknown", target_name(call))
				   : errmsg("deadlock detected in an ask of %s, it was not executed",
							target_name(call)),
			 errdetail("%s (process %d) waits for a lock of this transaction, "
					   "which waits for its answer.%s",
					   worker_title(call), call->pid,
					   taken
						   ? " If the lock is gone before shard.handler_lock_timeout is over, the "
							 "message will be handled."
						   : ""),
			 errhint(DEADLOCK_HINT)));
}

/*
 * Raises the error that a request was answered with. A handler that gave up waiting for a lock of the asker cannot know
 * that it was the asker's.
 */
static void
report_failure(const Call *call, const char *data, int length)
{
	ErrorData error;

	if (call->request->kind != SHARD_REQUEST_ASK || !call->was_ours ||
		!shard_ring_body_unpack_error(data, length, &error) ||
		error.sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		shard_ring_body_throw(data, length);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected in an ask of %s, it was not executed", target_name(call)),
			 errdetail("%s (process %d) waited for a lock of this transaction, "
					   "which waited for its answer.",
					   worker_title(call), call->pid),
			 errhint(DEADLOCK_HINT), error.context != NULL ? errcontext("%s", error.context) : 0));
}

/*
 * What is known about an ask whose outcome is unknown.
 */
static const char *
what_became(const Call *call, Outcome outcome, const char *limit)
{
	switch (outcome)
	{
		case OUTCOME_LOST:
			return "Its effect may have been committed.";
		case OUTCOME_DEFERRED:
			return psprintf("The message was handled, and its reply put off until later. That has "
							"not come within %s.",
							limit);
		case OUTCOME_GATE:
			return psprintf(
				"The message was handled, but its commit has not passed the gate within "
				"%s: see shard.gate.",
				limit);
		default:
			return psprintf(
				"The message was taken, but not answered within %s. Its effect may still "
				"be committed.%s%s",
				limit, call->slot->why[0] != '\0' ? " " : "", call->slot->why);
	}
}

/*
 * Where to look: the asker may be at another node, which does not know this node's troubles.
 */
static const char *
where(const Call *call)
{
	ShardBoardView view;

	shard_board_get(call->db, &view);
	return view.members > 1 ? psprintf(" at node %d", view.node) : "";
}

/*
 * Raises the error of a request that got no answer.
 */
static void
report_outcome(const Call *call, Outcome outcome)
{
	char *limit = shard_duration_rounded(call->timeout);
	bool ask = call->request->kind == SHARD_REQUEST_ASK;

	if (call->request->kind == SHARD_REQUEST_COMMAND && outcome != OUTCOME_NOT_TAKEN)
		report_command(outcome, limit);
	if (!ask || outcome == OUTCOME_NOT_TAKEN)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 ask ? errmsg("ask of %s timed out after %s, it was not executed",
							  target_name(call), given_time(call))
					 : errmsg("%s did not answer in time", worker_name(call)),
				 errdetail_internal("%s", reason(call, limit)),
				 ask ? errhint("See shard_health(), shard_inbox, shard_members and shard_peers%s.",
							   where(call))
					 : errhint("See shard_health() and shard_stat_workers.")));
	if (outcome == OUTCOME_DEADLOCK || outcome == OUTCOME_SELF_LOCK)
		report_deadlock(call, outcome == OUTCOME_SELF_LOCK);
	ereport(
		ERROR,
		(errcode(SHARD_ERRCODE_OUTCOME_UNKNOWN),
		 outcome == OUTCOME_LOST
			 ? errmsg("shard worker ended during an ask of %s, outcome unknown", target_name(call))
			 : errmsg("ask of %s timed out after %s, outcome unknown", target_name(call),
					  given_time(call)),
		 errdetail_internal("%s", what_became(call, outcome, limit)),
		 outcome == OUTCOME_DEFERRED
			 ? errhint("The answer may come later, and nobody hears it then. Look at the entity's "
					   "state before you ask again.")
			 : errhint("Look at the entity's state before you ask again, and mind that it may "
					   "still be handled.")));
}

/*
 * In a PG_CATCH block: raises the error of a request that was taken again. Its detail says that the outcome is unknown.
 */
static void
rethrow_taken(MemoryContext context)
{
	ErrorData *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	if (error->detail == NULL)
		error->detail = "The message was taken already: the outcome of the ask is unknown.";
	ReThrowError(error);
}

/*
 * Writes the request into the slot, submits it, and waits. Returns the
 * mapping of its segment, if it has one.
 */
static dsm_segment *
submit_and_wait(Call *call, Outcome *outcome)
{
	ShardRingSlot *slot = call->slot;
	const ShardRequest *request = call->request;
	dsm_segment *segment;

	slot->kind = request->kind;
	slot->after = request->after;
	slot->tagged = request->tagged;
	slot->epoch = request->epoch;
	slot->timeout_us = call->timeout;
	slot->type_id = request->type_id;
	slot->shard = request->shard;
	slot->entity_len = request->entity_len;
	memcpy(slot->entity, request->entity, request->entity_len);
	segment = shard_ring_body_write(&slot->request, request->payload, request->payload_len, false);
	shard_ring_slot_submit(slot, call->db, call->worker);
	*outcome = wait_for_answer(call);
	return segment;
}

/*
 * Waits for the gate for the rest of the time, which may be over: an ask that has begun is waited for longer.
 */
static void
pass_gate(const Call *call, XLogRecPtr lsn)
{
	const ShardRequest *request = call->request;
	int64 left;

	if (pg_add_s64_overflow(call->deadline - shard_clock_now(), request->patience_us, &left))
		left = PG_INT64_MAX;
	if (!shard_gate_wait_for(lsn, left))
		report_outcome(call, OUTCOME_GATE);
}

/*
 * Believes an answer. What interrupts the asker meanwhile is raised here: behind this function nobody knows any more
 * that there is something to be said of it. A handler's error is that anyway.
 */
static void
believe(const Call *call, XLogRecPtr lsn, bool failed, MemoryContext context)
{
	PG_TRY();
	{
		pass_gate(call, lsn);
		shard_fault("ask_answered");
		if (call->request->kind == SHARD_REQUEST_ASK && !failed)
			CHECK_FOR_INTERRUPTS();
	}
	PG_CATCH();
	{
		rethrow_taken(context);
	}
	PG_END_TRY();
}

char *
shard_ring_call(ShardDatabase *db, int worker, const ShardRequest *request, int64 timeout_us,
				int *len)
{
	int64 start = shard_clock_now();
	Call call = {.slot = own_slot(), .db = db, .worker = worker, .request = request};
	MemoryContext context = CurrentMemoryContext;
	dsm_segment *segment = NULL;
	Outcome outcome = OUTCOME_LOST;
	XLogRecPtr lsn = InvalidXLogRecPtr;
	bool failed = false;
	bool not_here = false;
	char *data = NULL;

	call.timeout = timeout_us;
	call.deadline = timeout_us > PG_INT64_MAX - start ? PG_INT64_MAX : start + timeout_us;
	call.look_at = start + look_interval();
	call.deadlock_check = start + (int64) DeadlockTimeout * 1000;
	PG_TRY();
	{
		segment = submit_and_wait(&call, &outcome);
		if (outcome == OUTCOME_ANSWERED)
		{
			lsn = call.slot->lsn;
			failed = call.slot->failed;
			not_here = call.slot->not_here;
			if (!shard_ring_body_read(&call.slot->reply, &data, len))
				outcome = OUTCOME_LOST;
		}
	}
	PG_CATCH();
	{
		ShardRingState state = shard_ring_slot_leave(call.slot);

		if (state == SHARD_RING_FREE || state == SHARD_RING_SUBMITTED)
			PG_RE_THROW();
		rethrow_taken(context);
	}
	PG_END_TRY();
	(void) shard_ring_slot_leave(call.slot);
	if (segment != NULL)
		dsm_detach(segment);

	if (outcome != OUTCOME_ANSWERED)
		report_outcome(&call, outcome);
	believe(&call, lsn, failed, context);
	if (failed)
		report_failure(&call, data, *len);
	if (not_here)
		*len = SHARD_RING_NOT_HERE;
	return data;
}
