/*
 * session.c
 *		What a backend remembers about its transaction: tells, locks, wake-ups.
 *
 * Tells are written to the log at the latest before commit; workers are woken
 * after it, when the rows are visible. Nobody is woken for COMMIT PREPARED,
 * which another session may run: the workers' slow poll covers that.
 */
#include "postgres.h"

#include "access/xact.h"
#include "nodes/pg_list.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "core/message.h"
#include "guest.h"
#include "log.h"
#include "session.h"
#include "shmem.h"

#include "compat.h"

static ShardLanes told_lanes = 0; /* of this transaction */
static List *told_types = NIL;	  /* type ids, in TopTransactionContext */

/*
 * The same of guests, who told in between. Nobody has promised them their places in what the session sends, so they do
 * not keep the session from asking, but themselves.
 */
static List *told_by_guests = NIL;

static List *given_up = NIL; /* type ids that this transaction drops, whatever is sent to them */

void
shard_session_told(const ShardType *type, int shard)
{
	told_lanes |= shard_lane_bit(shard_message_lane(type->type_id, shard));
	if (told_types == NIL || llast_int(told_types) != type->type_id)
	{
		List **told = shard_guest_here() == SHARD_GUEST_NONE ? &told_types : &told_by_guests;
		MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

		*told = list_append_unique_int(*told, type->type_id);
		MemoryContextSwitchTo(old);
	}
}

void
shard_session_appended(int lane)
{
	told_lanes |= shard_lane_bit(lane);
}

bool
shard_session_has_told(const ShardType *type)
{
	return list_member_int(told_types, type->type_id) ||
		   (shard_guest_here() != SHARD_GUEST_NONE &&
			list_member_int(told_by_guests, type->type_id));
}

void
shard_session_gives_up(int32 type_id)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	given_up = list_append_unique_int(given_up, type_id);
	MemoryContextSwitchTo(old);
}

static void
forget(void)
{
	told_lanes = 0;
	told_types = NIL;
	told_by_guests = NIL;
	given_up = NIL;
}

/* A row that is about to be written. Most have the type of the one before. */
static void
check_type(const ShardRowFixed *row, void *arg)
{
	int32 *checked = arg;

	if (row->type_id == *checked || row->type_id == 0)
		return;
	*checked = row->type_id;
	if (shard_registry_known(row->type_id) == NULL && !list_member_int(given_up, row->type_id))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("entity type of a message was dropped by somebody else"),
						errdetail("Nothing that this transaction has sent is sent."),
						errhint("See view shard_types for what there is.")));
}

/*
 * A type may have been dropped since this transaction sent to it, by somebody who could not see that. What is to be written
 * at commit is not lost without a word: the sender hears of it. What he has written before is seen by who drops, and what
 * falls between the two looks becomes dead letters, which the log names. In a worker a handler sends, whom nobody hears:
 * there it is the same.
 */
static void
check_types(void)
{
	int32 checked = 0;

	if ((told_types == NIL && told_by_guests == NIL) || shard_shmem_my_worker() != NULL)
		return;
	AcceptInvalidationMessages();
	shard_log_each_pending(check_type, &checked);
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
			check_types();
			shard_log_flush();
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
