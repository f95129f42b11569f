/*
 * entity/turn_commit.c
 *		What fails when a turn is committed, or takes long, by what its messages did elsewhere.
 *
 * Comes from: handle.c, order.c and deliver_ask.c, which note whose code runs; process/region_turn.c around the commit.
 * Goes to: handle.c and order.c again, which give the noted message up when it is met next.
 *
 * Handlers leave nothing to run at commit in this database. But what they did through libraries may be decided there
 * alone: a foreign server commits, and checks its deferred constraints, right before we do. That is the handlers' work,
 * so it is under their handler_timeout, up to the point behind which nothing of the kind can follow. Should it fail,
 * the turn does not know which message is to blame; so turns become shorter until code of one message alone has run in
 * it (region_plan.c). That one is noted here, with the error, and given up or stashed when it is met next, as if its
 * handler had failed, in a turn in which no code of its owner runs.
 *
 * If the process dies right here, the note is gone: the message is run once more, and no attempt was counted.
 */
#include "postgres.h"

#include "access/xact.h"
#include "lib/ilist.h"
#include "utils/memutils.h"

#include "core/base/message.h"
#include "entity/internal.h"
#include "registry/registry.h"

#include "base/compat.h"

/* The message, or ask, whose code ran. */
typedef struct Ran
{
	int32 type_id;
	int32 shard;
	int entity_len;
	char entity[SHARD_MAX_ENTITY_ID + 1];
	int64 seq; /* of a message; as its seq, or its place among parked messages, names it */
	bool is_ask;
	int slot; /* of an ask, */
	uint32 generation;
	bool numbered; /* of a message with this number */
	int64 number;
	ShardSource source;
} Ran;

/* The last one of the turn. Its entity's id is not copied for each of them. */
static Ran last;
static const ShardEntity *last_entity = NULL;

/* The type with the longest handler_timeout of those whose code ran in the turn. */
static const ShardType *patient = NULL;

static bool committing = false;

/*
 * Messages that failed at commit, until what becomes of them is committed. Due messages come turn by turn, so others
 * may fail before the first one is met again; each is noted, this many at most; then one of those that are noted is met
 * next.
 */
#define MOST_FAILED 1024

typedef struct Failed
{
	dlist_node node; /* in failed */
	Ran ran;
	uint64 generation; /* of the registry: after a mend the message may run once more */
	ErrorData error;
	MemoryContext context; /* its own */
} Failed;

static dlist_head failed = DLIST_STATIC_INIT(failed);
static int n_failed = 0;
static Failed *given_up = NULL; /* in this turn */

static bool
is_last(const ShardEntity *entity, const ShardRow *row, const ShardRequest *ask)
{
	if (shard_turn.ran == 0 || entity != last_entity || last.is_ask != (row == NULL))
		return false;
	return row != NULL ? last.seq == row->seq
					   : last.slot == ask->slot && last.generation == ask->generation;
}

void
shard_turn_note_ran(const ShardEntity *entity, const ShardRow *row, const ShardRequest *ask)
{
	const ShardType *type = entity->local->type;

	if (is_last(entity, row, ask))
		return;
	if (shard_turn.ran++ == 0 || patient->handler_timeout < type->handler_timeout)
		patient = type;
	last_entity = entity;
	last.is_ask = row == NULL;
	last.seq = row != NULL ? row->seq : 0;
	last.slot = ask != NULL ? ask->slot : 0;
	last.generation = ask != NULL ? ask->generation : 0;
	last.numbered = false;
	last.source = shard_turn.source;
}

void
shard_turn_note_number(bool numbered, int64 number)
{
	last.numbered = numbered;
	last.number = number;
}

void
shard_turn_begin_commit(void)
{
	committing = true;
	if (shard_turn.ran > 0)
		shard_call_watch_commit(patient, shard_turn.ran == 1 && !last.is_ask, last.seq,
								(ShardShardKey){last_entity->local->type->type_id,
												last_entity->shard},
								(ShardStuckNumber){last.numbered, last.number});
}

/*
 * It was registered before anything of users could be, so it is called last: what follows are libraries that the
 * administrator has every process load, and the server's own work. So no cancel of the timer is on its way when the commit
 * is written.
 */
static void
transaction_changed(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT && committing && shard_turn.ran > 0)
		shard_call_watched();
}

void
shard_turn_commit_init(void)
{
	RegisterXactCallback(transaction_changed, NULL);
}

int
shard_turn_end_commit(void)
{
	committing = false;
	shard_call_commit_over();
	return shard_turn.ran;
}

int
shard_turn_failed_at_commit(const ErrorData *error, bool *overtaken)
{
	if (!committing || shard_turn.ran == 0)
		return 0;
	if (!shard_call_was_cancelled(error))
		return shard_turn.ran;
	*overtaken = true;
	return 0;
}

static char *
keep(MemoryContext context, const char *text)
{
	return text == NULL ? NULL : MemoryContextStrdup(context, text);
}

/* Copies the part of an error that is kept when its message is given up. */
static void
copy_error(MemoryContext context, ErrorData *to, const ErrorData *from)
{
	*to = (ErrorData){.sqlerrcode = from->sqlerrcode,
					  .message = keep(context, from->message),
					  .detail = keep(context, from->detail),
					  .hint = keep(context, from->hint),
					  .context = keep(context, from->context)};
}

static void
forget(Failed *one)
{
	dlist_delete(&one->node);
	n_failed--;
	MemoryContextDelete(one->context);
}

/* Forgets failed messages whose type or handler was changed since. */
static void
forget_old(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &failed)
	{
		Failed *one = dlist_container(Failed, node, iter.cur);

		if (one->generation != shard_registry_generation())
			forget(one);
	}
}

ShardSource
shard_turn_blame(const ErrorData *error)
{
	MemoryContext context;
	Failed *one;

	forget_old();
	if (n_failed >= MOST_FAILED)
		return last.source;
	context = AllocSetContextCreate(TopMemoryContext, "shard failed commit", ALLOCSET_SMALL_SIZES);
	one = MemoryContextAllocZero(context, sizeof(Failed));
	one->context = context;
	one->ran = last;
	one->ran.type_id = last_entity->local->type->type_id;
	one->ran.shard = last_entity->shard;
	one->ran.entity_len = last_entity->id_len;
	memcpy(one->ran.entity, last_entity->id, last_entity->id_len);
	one->generation = shard_registry_generation();
	copy_error(context, &one->error, error);
	dlist_push_tail(&failed, &one->node);
	n_failed++;
	return last.source;
}

static bool
is_failed(const Failed *one, const ShardEntity *entity, const ShardRow *row,
		  const ShardRequest *ask)
{
	const Ran *ran = &one->ran;

	if (ran->is_ask != (row == NULL) ||
		(row != NULL ? ran->seq != row->seq
					 : ran->slot != ask->slot || ran->generation != ask->generation))
		return false;
	return ran->type_id == entity->local->type->type_id && ran->shard == entity->shard &&
		   ran->entity_len == entity->id_len &&
		   memcmp(ran->entity, entity->id, entity->id_len) == 0 &&
		   one->generation == shard_registry_generation();
}

bool
shard_turn_is_given_up(const ShardEntity *entity, const ShardRow *row, const ShardRequest *ask)
{
	dlist_iter iter;

	if (likely(n_failed == 0))
		return false;
	dlist_foreach (iter, &failed)
	{
		Failed *one = dlist_container(Failed, node, iter.cur);

		if (!is_failed(one, entity, row, ask))
			continue;
		given_up = one;
		shard_turn.full = true;
		return true;
	}
	return false;
}

ErrorData *
shard_turn_given_up_error(void)
{
	ErrorData *error = MemoryContextAlloc(shard_turn.context, sizeof(ErrorData));

	copy_error(shard_turn.context, error, &given_up->error);
	return error;
}

bool
shard_turn_given_up_number(int64 *number)
{
	*number = given_up->ran.number;
	return given_up->ran.numbered;
}

void
shard_turn_commit_over(bool committed)
{
	if (committed && given_up != NULL)
		forget(given_up);
	given_up = NULL;
	committing = false;
	shard_call_commit_over();
}

void
shard_turn_commit_forget(int32 type_id, int32 shard)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &failed)
	{
		Failed *one = dlist_container(Failed, node, iter.cur);

		if (one->ran.type_id == type_id && one->ran.shard == shard && one != given_up)
			forget(one);
	}
}

const ShardType *
shard_turn_commits_for(const char **entity, int *entity_len)
{
	if (!committing || shard_turn.ran == 0)
		return NULL;
	*entity = shard_turn.ran == 1 ? last_entity->id : "";
	*entity_len = shard_turn.ran == 1 ? last_entity->id_len : 0;
	return patient;
}
