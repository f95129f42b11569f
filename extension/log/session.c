/*
 * log/session.c
 *		What a backend remembers about its transaction: tells, locks, wake-ups.
 *
 * Tells are written to the log at the latest before commit; workers are woken after it, when the rows are visible.
 * COMMIT PREPARED, which another session may run, wakes no worker: the workers' slow poll covers that.
 */
#include "postgres.h"

#include "access/xact.h"
#include "nodes/pg_list.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "core/base/message.h"
#include "registry/guest.h"
#include "registry/reshard_lock.h"
#include "log/log.h"
#include "log/session.h"
#include "shared/shmem.h"

#include "base/compat.h"

static ShardLanes told_lanes = 0; /* of this transaction */

/*
 * A type that was sent to. Of guests, whose code sent in between, it is known apart: they have no promised places in the
 * order of what the session sends, so their messages keep the guests from asking, and leave the session free to ask.
 */
typedef struct Sent
{
	int32 type_id;
	SubTransactionId level; /* that sent; rises */
	bool guest;
	bool told; /* a message whose place in the order is promised; or an answer */
} Sent;

/* In TopTransactionContext; NULL: nothing was sent. */
static struct
{
	Sent *type;
	int types;
	int room;
} sent;

/* A type that this transaction drops, whatever is sent to it. */
typedef struct GivenUp
{
	int32 type_id;
	SubTransactionId level;
} GivenUp;

static List *given_up = NIL; /* in TopTransactionContext */

static void
note_sent(const Sent *new)
{
	for (int i = sent.types - 1; i >= 0 && sent.type[i].level == new->level; i--)
	{
		Sent *old = &sent.type[i];

		if (old->type_id == new->type_id && old->guest == new->guest)
		{
			old->told |= new->told;
			return;
		}
	}
	if (sent.type == NULL)
	{
		sent.room = 8;
		sent.type = MemoryContextAlloc(TopTransactionContext, sent.room * sizeof(Sent));
	}
	else if (sent.types == sent.room)
	{
		sent.room *= 2;
		sent.type = repalloc(sent.type, sent.room * sizeof(Sent));
	}
	sent.type[sent.types++] = *new;
}

static void
note(int32 type_id, int shard, bool told)
{
	told_lanes |= shard_lane_bit(shard_message_lane(type_id, shard));
	note_sent(&(Sent){.type_id = type_id,
					  .level = GetCurrentSubTransactionId(),
					  .guest = shard_guest_here() != SHARD_GUEST_NONE,
					  .told = told});
}

void
shard_session_told(const ShardType *type, int shard)
{
	note(type->type_id, shard, true);
}

void
shard_session_answered(int32 type_id, int shard)
{
	note(type_id, shard, false);
}

void
shard_session_appended(int lane)
{
	told_lanes |= shard_lane_bit(lane);
}

bool
shard_session_has_told(const ShardType *type)
{
	bool guest = shard_guest_here() != SHARD_GUEST_NONE;

	for (int i = 0; i < sent.types; i++)
	{
		const Sent *other = &sent.type[i];

		if (other->type_id == type->type_id && other->told && (guest || !other->guest))
			return true;
	}
	return false;
}

/* A subtransaction has ended: what it sent is its parent's after a commit, and was not sent after an abort. */
static void
follow_sent(bool committed, SubTransactionId level, SubTransactionId parent)
{
	int first = sent.types;

	while (first > 0 && sent.type[first - 1].level >= level)
		first--;
	if (first == sent.types)
		return;
	if (committed)
	{
		int last = sent.types;

		sent.types = first;
		for (int i = first; i < last; i++)
		{
			Sent risen = sent.type[i];

			risen.level = parent;
			note_sent(&risen);
		}
	}
	else
		sent.types = first;
}

void
shard_session_gives_up(int32 type_id)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	GivenUp *type = palloc(sizeof(GivenUp));

	*type = (GivenUp){type_id, GetCurrentSubTransactionId()};
	given_up = lappend(given_up, type);
	MemoryContextSwitchTo(old);
}

static bool
is_given_up(int32 type_id)
{
	ListCell *cell;

	foreach (cell, given_up)
	{
		if (((const GivenUp *) lfirst(cell))->type_id == type_id)
			return true;
	}
	return false;
}

/*
 * A subtransaction has ended: after a commit its parent gives up what it gave up; after an abort nothing is given up.
 */
static void
follow_given_up(bool committed, SubTransactionId level, SubTransactionId parent)
{
	ListCell *cell;

	foreach (cell, given_up)
	{
		GivenUp *type = lfirst(cell);

		if (type->level != level)
			continue;
		if (committed)
			type->level = parent;
		else
			given_up = foreach_delete_current(given_up, cell);
	}
}

static void
forget(void)
{
	told_lanes = 0;
	sent.type = NULL;
	sent.types = 0;
	given_up = NIL;
}

/* A row that is about to be written. Most have the type of the one before. */
static void
note_type(const ShardRowFixed *row, void *arg)
{
	List **types = arg;

	if (row->type_id != 0 && (*types == NIL || llast_int(*types) != row->type_id))
		*types = list_append_unique_int(*types, row->type_id);
}

/*
 * The types of what is to be written now, in TopTransactionContext. Empty for handlers, whose errors reach no client,
 * and for a backend that writes what peers have sent: their messages to a type that is gone become dead letters.
 */
static List *
pending_types(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	List *types = NIL;

	if (sent.types > 0 && shard_shmem_my_worker() == NULL)
		shard_log_each_pending(note_type, &types);
	MemoryContextSwitchTo(old);
	return types;
}

/*
 * Another type has the name now, so the sender may send to that. In a worker the error makes the turn begin again: then
 * its handlers do. To a type that has none they have sent for the last time (see below).
 */
static void
check_name(int32 type_id)
{
	const char *name = shard_registry_last_name(type_id);

	if (name != NULL && shard_registry_find(name) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("entity type \"%s\" was resharded, or started anew, while it was sent to",
						name),
				 errdetail("Nothing that this transaction has sent is sent."),
				 errhint("Run the transaction again.")));
}

/*
 * A type may have been dropped since this transaction sent to it, by a backend that could not see the message. So the
 * sender looks once more when its messages are written at commit, and gets an error. From then on a backend that drops
 * the type sees the messages. What is written and looked for between the last look of that backend and the end of its
 * commit becomes dead letters, which the server's log names. The same becomes of what a handler sends in a worker,
 * where an error would reach no client.
 */
static void
check_types(const List *types)
{
	ListCell *cell;

	foreach (cell, types)
	{
		int32 type_id = lfirst_int(cell);
		const char *name;

		if (shard_registry_known(type_id) != NULL || is_given_up(type_id))
			continue;
		name = shard_registry_last_name(type_id);
		check_name(type_id);
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("entity type \"%s\" was dropped before messages to it were committed",
						name != NULL ? name : ""),
				 errdetail("Nothing that this transaction has sent is sent."),
				 errhint("See view shard_types for what there is.")));
	}
}

/*
 * A type that is stopped may get another number (E64): its senders wait here while that is being done. Returns those types,
 * which are to be looked at once more.
 */
static List *
wait_for_resharding(void)
{
	bool worker = shard_shmem_my_worker() != NULL;
	List *stopped = NIL;

	for (int i = 0; i < sent.types; i++)
	{
		int32 type_id = sent.type[i].type_id;
		const ShardType *type = shard_registry_known(type_id);

		if (type == NULL && worker)
			check_name(type_id);
		if (type == NULL || type->mode != SHARD_MODE_STOPPED)
			continue;
		if (!shard_reshard_lock_send(type_id, worker))
			ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
							errmsg("entity type \"%s\" is being resharded", type->name)));
		stopped = list_append_unique_int(stopped, type_id);
	}
	return stopped;
}

static void
write_rows(void)
{
	const List *types = pending_types();
	List *stopped;
	ListCell *cell;

	shard_log_flush();
	if (sent.types == 0)
		return;
	AcceptInvalidationMessages();
	stopped = wait_for_resharding();
	if (stopped != NIL)
		AcceptInvalidationMessages();
	check_types(types);
	if (shard_shmem_my_worker() == NULL)
		check_types(stopped);
	else
		foreach (cell, stopped)
			if (shard_registry_known(lfirst_int(cell)) == NULL)
				check_name(lfirst_int(cell));
}

static void
wake_workers(void)
{
	ShardDatabase *db = shard_shmem_database();

	if (told_lanes != 0 && db != NULL)
		shard_shmem_wake_lanes(db, told_lanes);
}

static void
at_xact_event(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			write_rows();
			break;
		case XACT_EVENT_COMMIT:
			wake_workers();
			forget();
			break;
		case XACT_EVENT_ABORT:
			shard_log_discard();
			forget();
			break;
		case XACT_EVENT_PREPARE:
			forget();
			break;
		default:
			break;
	}
}

static void
at_subxact_event(SubXactEvent event, SubTransactionId level, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB || event == SUBXACT_EVENT_ABORT_SUB)
	{
		follow_given_up(event == SUBXACT_EVENT_COMMIT_SUB, level, parent);
		follow_sent(event == SUBXACT_EVENT_COMMIT_SUB, level, parent);
	}
	if (!shard_log_is_pending())
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		shard_log_join_level(level, parent);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		shard_log_discard_level(level);
}

void
shard_session_init(void)
{
	RegisterXactCallback(at_xact_event, NULL);
	RegisterSubXactCallback(at_subxact_event, NULL);
}
