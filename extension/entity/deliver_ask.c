/*
 * entity/deliver_ask.c
 *		One ask: from the ring to its entity, and the reply back; or none, if it comes later (E41).
 *
 * Comes from: process/region_asks.c, once the scan has passed the newest seq that the asker saw. Goes to: handle.c, in
 * a fence, so that an ask that fails harms no other message; the reply waits here until shard_turn_committed().
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/peer_errors.h"
#include "core/flow/reply.h"
#include "entity/internal.h"
#include "entity/replica_home.h"

#include "base/compat.h"

/* A reply that leaves after commit. */
typedef struct ShardReply
{
	ShardRequest *request;
	char *data; /* NULL: SQL NULL */
	int len;
	ErrorData *error; /* instead of data */
	bool later;		  /* nothing leaves now: the ask stays open, under this key */
	ShardUuid key;
} ShardReply;

/* For how long the process that was found to hold a lock is named without another look, in microseconds. */
#define LOCKER_INTERVAL USECS_PER_SEC

/* The reply to an ask, to be sent after commit. */
static ShardReply *
keep_reply(ShardRequest *request, char *reply, ErrorData *error)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ShardReply *kept = palloc0(sizeof(ShardReply));

	/* a reply that is sent after the commit must not be in the transaction's memory */
	ShardAssert(error == NULL || error->assoc_context == NULL ||
				(error->assoc_context == shard_turn.context &&
				 GetMemoryChunkContext(error->message) == shard_turn.context));
	kept->request = request;
	kept->error = error;
	if (reply != NULL)
	{
		kept->data = VARDATA_ANY(reply);
		kept->len = VARSIZE_ANY_EXHDR(reply);
	}
	shard_turn.replies = lappend(shard_turn.replies, kept);
	MemoryContextSwitchTo(old);
	return kept;
}

/* The handler has put its reply off. Until the commit the ask is no other than one without a reply. */
static void
keep_open(ShardRequest *request, const ShardReplyToken *token)
{
	ShardReply *kept = keep_reply(request, NULL, NULL);

	kept->later = true;
	kept->key = token->key;
}

static void
send_reply(const ShardReply *reply, XLogRecPtr lsn)
{
	if (reply->error != NULL)
		shard_ring_reply_error(reply->request, reply->error, lsn);
	else
		shard_ring_reply(reply->request, reply->data, reply->len, lsn);
}

/* A reply that waits until its turn is released, in memory of its own (Q37, Q38). */
typedef struct Waiting
{
	ShardReplicaWait wait; /* the first field */
	MemoryContext context;
	XLogRecPtr lsn;
	ShardRequest request;
	ShardReply reply;
} Waiting;

/* The home has ended: what it did may be discarded, or may be shown by the next one. */
static void
give_up_reply(Waiting *waiting)
{
	ErrorData error = {.sqlerrcode = SHARD_ERRCODE_OUTCOME_UNKNOWN,
					   .message = "the shard left this node before its copies had what the ask "
								  "did, its outcome is unknown",
					   .hint = "Look at the entity's state before you ask again."};

	waiting->reply.error = &error;
	send_reply(&waiting->reply, waiting->lsn);
}

static void
end_waiting(ShardReplicaWait *wait, bool released)
{
	Waiting *waiting = (Waiting *) wait;

	if (released)
		send_reply(&waiting->reply, waiting->lsn);
	else
		give_up_reply(waiting);
	MemoryContextDelete(waiting->context);
}

static char *
copy_text(const char *text)
{
	return text == NULL ? NULL : pstrdup(text);
}

/* What of an error is told to who has asked. */
static ErrorData *
copy_error(const ErrorData *error)
{
	ErrorData *copy = palloc0(sizeof(ErrorData));

	copy->sqlerrcode = error->sqlerrcode;
	copy->message = copy_text(error->message);
	copy->detail = copy_text(error->detail);
	copy->hint = copy_text(error->hint);
	copy->context = copy_text(error->context);
	return copy;
}

/* Keeps the reply over the turn's end, and those of later ones. */
static Waiting *
make_waiting(const ShardReply *reply, XLogRecPtr lsn)
{
	MemoryContext context =
		AllocSetContextCreate(TopMemoryContext, "shard reply", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Waiting *waiting = palloc0(sizeof(Waiting));

	waiting->wait.end = end_waiting;
	waiting->wait.bytes = ALLOCSET_SMALL_INITSIZE + reply->len;
	waiting->context = context;
	waiting->lsn = lsn;
	waiting->request = *reply->request;
	waiting->request.payload = NULL;
	waiting->reply = *reply;
	waiting->reply.request = &waiting->request;
	if (reply->data != NULL)
	{
		waiting->reply.data = MemoryContextAllocHuge(context, Max(reply->len, 1));
		memcpy(waiting->reply.data, reply->data, reply->len);
	}
	if (reply->error != NULL)
		waiting->reply.error = copy_error(reply->error);
	MemoryContextSwitchTo(old);
	return waiting;
}

/*
 * What the reply shows is the shard's newest turn, this one or an earlier one that the handler has seen. If that is not
 * released, the reply waits (Q12).
 */
static bool
has_to_wait(const ShardReply *reply, XLogRecPtr lsn)
{
	ShardReplicaShard *shard =
		shard_replica_shard_find(reply->request->type_id, reply->request->shard);

	if (shard == NULL || !shard_replica_shard_has_to_wait(shard))
		return false;
	shard_replica_shard_wait(shard, &make_waiting(reply, lsn)->wait);
	return true;
}

void
shard_deliver_replies(XLogRecPtr lsn)
{
	ListCell *cell;

	foreach (cell, shard_turn.replies)
	{
		ShardReply *reply = lfirst(cell);

		if (reply->later)
			shard_ring_defer(reply->request, reply->key);
		else if (!shard_replica_any() || !has_to_wait(reply, lsn))
			send_reply(reply, lsn);
	}
	shard_turn.replies = NIL;
}

/* Whether other types go first (E27). Then a later turn comes back to the ask. */
static bool
is_put_off(ShardLocalType *local)
{
	if (!shard_turn_puts_off(local))
		return false;
	shard_turn_note_put_off(local);
	return true;
}

bool
shard_deliver_can_ask(const ShardRequest *request)
{
	ShardLocalType *local = shard_turn_ready_type(request->type_id);
	ShardEntity *entity;

	if (local == NULL || !local->runnable)
		return local == NULL || !shard_local_awaits_worker(local); /* it gets an error */
	if (is_put_off(local))
		return false;
	if (shard_pause_until(local, request->shard) != 0)
		return false;
	entity = shard_cache_get(local, request->shard, request->entity, request->entity_len, false);
	return entity == NULL || !(entity->wait.deferred || shard_order_has_ready(entity));
}

/*
 * The process that keeps the type's table locked; 0: none. A list of all locks is too dear to be made for each ask.
 */
static int
table_locker(const ShardType *type)
{
	static int32 type_id = 0;
	static TimestampTz looked = 0;
	static int pid = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (type_id == type->type_id && now - looked < LOCKER_INTERVAL)
		return pid;
	if (!IsTransactionState())
		return 0;
	type_id = type->type_id;
	looked = now;
	pid = shard_state_table_locker(type);
	return pid;
}

const char *
shard_deliver_why_not(const ShardRequest *request)
{
	ShardLocalType *local = shard_turn_ready_type(request->type_id);
	const ShardEntity *entity =
		local == NULL
			? NULL
			: shard_cache_get(local, request->shard, request->entity, request->entity_len, false);
	const ShardWait *wait = entity == NULL ? NULL : &entity->wait;

	int pid;

	if (local != NULL && shard_turn_puts_off(local))
		return "Its type has used up its share of the worker's time: the worker looks first for "
			   "what other types have to do.";
	if (shard_replica_shard_rests(request->type_id, request->shard))
		return psprintf("Shard %d of its type rests: as much of what it did as may waits for its "
						"copies; see shard_health().",
						request->shard);
	if (local != NULL && shard_pause_until(local, request->shard) != 0)
		return psprintf("Shard %d of its type pauses until %s: a message of it has failed.",
						request->shard,
						timestamptz_to_str(shard_pause_until(local, request->shard)));
	if (wait == NULL)
		return "";
	if (wait->waiting > 0 && (pid = table_locker(local->type)) != 0)
		return psprintf(
			"Process %d has locked the table of the entity's states, or a type of them.", pid);
	if (wait->start && wait->not_before == DT_NOEND)
		return psprintf("The entity is quarantined: it has failed to start in %d attempt(s).",
						wait->starts);
	if (wait->start && wait->starts > 0)
		return psprintf("The entity has failed to start in %d attempt(s), and tries again at %s.",
						wait->starts, timestamptz_to_str(wait->not_before));
	if (wait->blocked_by != 0)
		return psprintf("Process %d holds the entity's state row.", wait->blocked_by);
	if (wait->attempts > 0)
		return psprintf("The entity rests until %s: its first message has failed in %d attempt(s).",
						timestamptz_to_str(wait->not_before), wait->attempts);
	return psprintf("Messages of the entity go first: " INT64_FORMAT " wait.", wait->waiting);
}

bool
shard_deliver_ask(ShardRequest *request)
{
	ShardLocalType *local = shard_turn_ready_type(request->type_id);
	ShardEntity *entity;
	ShardExecution execution = {0};
	ErrorData *error = NULL;
	bool overtaken = false;

	/* asks of its type may have run since it was looked at */
	if (local != NULL && local->runnable && is_put_off(local))
		return false;
	shard_turn.count++;
	if (!shard_ring_begin(request))
		return true;
	if (local == NULL || !local->runnable)
	{
		(void) keep_reply(request, NULL, shard_failure_of_type(local != NULL ? local->type : NULL));
		return true;
	}
	entity = shard_cache_get(local, request->shard, request->entity, request->entity_len, true);
	shard_turn_enlist(entity);
	shard_turn.at = entity;
	shard_life_wake(entity);
	if (shard_turn_is_given_up(entity, NULL, request))
		error = shard_turn_given_up_error();
	else
		overtaken = !shard_turn_hold(local) || (!shard_turn.careful && !shard_turn_check(entity));
	if (error == NULL && !overtaken)
	{
		shard_turn_note_ran(entity, NULL, request);
		shard_passivate_touch(entity, shard_turn.now);
		shard_life_hear(entity);
		if (!shard_turn.careful)
			shard_call_batch(entity);
		shard_order_heed(entity);
		error = shard_handle_fenced(entity, NULL, request, &execution, &overtaken);
		shard_order_heed(entity);
	}
	if (overtaken)
	{
		ErrorData locked = {.sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE,
							.message = "another transaction holds the state row of the entity",
							.hint = "Ask again when that transaction has ended. If it "
									"is your own, end it first."};

		shard_cache_forget(entity);
		entity->checked = false;
		entity->now = entity->saved;
		error = shard_failure_keep(&locked);
	}
	if (error != NULL)
	{
		shard_turn.errors++;
		shard_local_count(local, entity->shard)->errors++;
	}
	else
		entity->handled++;
	if (error == NULL && execution.token != NULL)
		keep_open(request, execution.token);
	else
		(void) keep_reply(request, error == NULL ? execution.reply : NULL, error);
	return true;
}
