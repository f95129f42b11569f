/*
 * registry/guest_hook.c
 *		What a guest is refused, because it belongs to the session that the guest is in.
 *
 * The server has functions for what a session keeps beside its transaction: descriptors of large objects, advisory
 * locks, the seed of random(), what nextval() has given last, prepared statements, the text of the client's query.
 * They ask for no right, so they are refused by name.
 *
 * The hook sees a function when an expression is prepared. PL/pgSQL keeps those for a transaction: a function that was
 * prepared before the guest came, in a worker by a handler of the same owner in the same transaction, or by a guest
 * that may do more, would be run unseen. Such plans are dropped.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/objectaccess.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"

#include "registry/guest.h"
#include "registry/owner_session.h"

#include "base/compat.h"

static object_access_hook_type previous_hook = NULL;

/* The transaction in which a call of a function was prepared that is refused to such guests. */
static LocalTransactionId prepared_in[SHARD_GUEST_READS + 1] = {InvalidLocalTransactionId};

static const char *const places[] = {
	[SHARD_GUEST_STORES] = "while entities move to other shards",
	[SHARD_GUEST_TRIES] = "in a handler that is tried",
	[SHARD_GUEST_READS] = "in an extractor",
};

/* The statement within EXPLAIN and CREATE TABLE AS; or else itself. */
static const Node *
innermost(const Node *statement)
{
	while (statement != NULL)
	{
		if (IsA(statement, ExplainStmt))
			statement = ((const ExplainStmt *) statement)->query;
		else if (IsA(statement, CreateTableAsStmt))
			statement = ((const CreateTableAsStmt *) statement)->query;
		else if (IsA(statement, Query) && ((const Query *) statement)->utilityStmt != NULL)
			statement = ((const Query *) statement)->utilityStmt;
		else
			break;
	}
	return statement;
}

/* Whether it is about what the session has, and not refused by the server in such an operation anyway. */
static bool
is_about_session(const Node *statement)
{
	const Node *inner = innermost(statement);

	if (inner == NULL)
		return false;
	/* What the client has set, and its path, in which its temporary objects come first. */
	if (IsA(inner, VariableSetStmt))
	{
		VariableSetKind kind = ((const VariableSetStmt *) inner)->kind;

		return kind == VAR_RESET || kind == VAR_RESET_ALL || kind == VAR_SET_DEFAULT;
	}
	return IsA(inner, ConstraintsSetStmt) || IsA(inner, ExecuteStmt);
}

void
shard_guest_check_statement(const Node *statement)
{
	ShardGuestKind kind = shard_guest_here();

	if (likely(kind == SHARD_GUEST_NONE) ||
		(kind != SHARD_GUEST_READS && !is_about_session(statement)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("cannot run %s %s", CreateCommandName(unconstify(Node *, statement)),
					places[kind]),
			 errdetail("The statement runs in the session and the transaction of the caller."),
			 kind == SHARD_GUEST_READS
				 ? errhint("Extractors may run queries only. What has to be set can be set with "
						   "CREATE FUNCTION ... SET.")
				 : errhint("The code can do so when a message is handled.")));
}

/* The least strict kind of guest that is refused the function; stricter kinds are, too. SHARD_GUEST_NONE: no guest is. */
static ShardGuestKind
least_refused(Oid function)
{
	switch (function)
	{
		/* descriptors, and what closes them */
		case F_LO_OPEN:
		case F_LO_CLOSE:
		case F_LOREAD:
		case F_LOWRITE:
		case F_LO_LSEEK:
		case F_LO_LSEEK64:
		case F_LO_TELL:
		case F_LO_TELL64:
		case F_LO_TRUNCATE:
		case F_LO_TRUNCATE64:
		case F_LO_UNLINK:
		/* locks of the session */
		case F_PG_ADVISORY_LOCK_INT8:
		case F_PG_ADVISORY_LOCK_INT4_INT4:
		case F_PG_ADVISORY_LOCK_SHARED_INT8:
		case F_PG_ADVISORY_LOCK_SHARED_INT4_INT4:
		case F_PG_TRY_ADVISORY_LOCK_INT8:
		case F_PG_TRY_ADVISORY_LOCK_INT4_INT4:
		case F_PG_TRY_ADVISORY_LOCK_SHARED_INT8:
		case F_PG_TRY_ADVISORY_LOCK_SHARED_INT4_INT4:
		case F_PG_ADVISORY_UNLOCK_INT8:
		case F_PG_ADVISORY_UNLOCK_INT4_INT4:
		case F_PG_ADVISORY_UNLOCK_SHARED_INT8:
		case F_PG_ADVISORY_UNLOCK_SHARED_INT4_INT4:
		case F_PG_ADVISORY_UNLOCK_ALL:
		/* the rest of it */
		case F_SETSEED:
		case F_PG_PREPARED_STATEMENT:
		case F_PG_LISTENING_CHANNELS:
		case F_CURRENT_QUERY:
			return SHARD_GUEST_STORES;

		/* what is good until the transaction ends, or is not undone with a subtransaction */
		case F_PG_ADVISORY_XACT_LOCK_INT8:
		case F_PG_ADVISORY_XACT_LOCK_INT4_INT4:
		case F_PG_ADVISORY_XACT_LOCK_SHARED_INT8:
		case F_PG_ADVISORY_XACT_LOCK_SHARED_INT4_INT4:
		case F_PG_TRY_ADVISORY_XACT_LOCK_INT8:
		case F_PG_TRY_ADVISORY_XACT_LOCK_INT4_INT4:
		case F_PG_TRY_ADVISORY_XACT_LOCK_SHARED_INT8:
		case F_PG_TRY_ADVISORY_XACT_LOCK_SHARED_INT4_INT4:
		case F_NEXTVAL:
		case F_SETVAL_REGCLASS_INT8:
		case F_SETVAL_REGCLASS_INT8_BOOL:
		case F_CURRVAL:
		case F_LASTVAL:
		case F_PG_NOTIFY:
		case F_PG_EXPORT_SNAPSHOT:
		/* the name of a setting stays in the session for good */
		case F_SET_CONFIG:
			return SHARD_GUEST_READS;
		default:
			return SHARD_GUEST_NONE;
	}
}

static void
check_function(Oid function)
{
	ShardGuestKind kind = shard_guest_here();
	ShardGuestKind least;

	if (kind == SHARD_GUEST_NONE && !shard_owner_session_is_owners())
		return;
	least = least_refused(function);
	if (likely(least == SHARD_GUEST_NONE))
		return;
	if (kind >= least)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot use function %s() %s", get_func_name(function), places[kind]),
				 errdetail("The function works on the session, which is the caller's.")));
	for (int i = least; i <= SHARD_GUEST_READS; i++)
		prepared_in[i] = ShardMyLxid;
}

static void
on_access(ObjectAccessType access, Oid class, Oid object, int part, void *argument)
{
	if (previous_hook != NULL)
		previous_hook(access, class, object, part, argument);
	if (access == OAT_FUNCTION_EXECUTE && object < FirstGenbkiObjectId)
		check_function(object);
}

/* What a handler has prepared in its worker is its owner's, but what a guest has is prepared in another user's session. */
void
shard_guest_comes(ShardGuestKind kind, Oid owner, Oid user)
{
	if (likely(prepared_in[kind] != ShardMyLxid) ||
		(owner == user && shard_guest_here() == SHARD_GUEST_NONE))
		return;
	ResetPlanCache();
	memset(prepared_in, 0, sizeof(prepared_in));
}

void
shard_guest_hook_init(void)
{
	previous_hook = object_access_hook;
	object_access_hook = on_access;
}
