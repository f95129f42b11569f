/*
 * sql/operate/command.c
 *		What operators' functions share: they hand a command to the control worker and wait.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "sql/operate/command.h"
#include "registry/catalog.h"
#include "sql/cluster/cluster_view.h"
#include "core/map/set.h"
#include "registry/control_store.h"
#include "registry/directory.h"
#include "base/duration.h"
#include "entity/execution.h"
#include "base/peer_errors.h"
#include "registry/identity.h"
#include "shared/board.h"
#include "shared/shmem.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "base/nap.h"
#include "base/argument.h"
#include "base/attempt.h"

#include "base/compat.h"

/* How often a state whose change is not announced is looked at, in ms. */
#define LOOK_INTERVAL 50

/*
 * A lock of the caller's on the extension's tables would keep the control worker from answering, so the caller must not
 * have written in this transaction.
 */
void
shard_command_begin(const char *function)
{
	PreventCommandDuringRecovery(function);
	PreventCommandIfParallelMode(function);
	shard_shmem_require();
	if (InSecurityRestrictedOperation() || shard_execution_in_handler())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot execute %s from within a handler", function)));
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("cannot execute %s in a transaction that has written", function),
						errhint("Commit first.")));
	(void) shard_catalog_get();
}

char *
shard_command_text(FunctionCallInfo fcinfo, int number, const char *what)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s cannot be null", what),
						errhint("Give the %s as text.", what)));
	return text_to_cstring(PG_GETARG_TEXT_PP(number));
}

int32
shard_command_int(FunctionCallInfo fcinfo, int number, const char *what)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s cannot be null", what)));
	return PG_GETARG_INT32(number);
}

int64
shard_command_timeout(FunctionCallInfo fcinfo, int number)
{
	int64 timeout;

	shard_argument_check(fcinfo, number, "timeout cannot be null");
	timeout = shard_duration_from_interval(PG_GETARG_INTERVAL_P(number));
	if (timeout < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("timeout must not be negative")));
	return Min(timeout, PG_INT64_MAX / 4);
}

void
shard_command_nap(void)
{
	shard_nap(LOOK_INTERVAL, "ShardCluster");
}

void
shard_command_look(void (*look)(void *arg), void *arg)
{
	ErrorData *error = shard_attempt_undone(look, arg);

	if (error != NULL)
		ReThrowError(error);
}

typedef struct TextList
{
	ShardStatement look;
	const char *separator;
	StringInfoData text; /* in the caller's memory */
} TextList;

static void
read_list(void *arg)
{
	TextList *list = arg;
	ShardSecurity security = {0};

	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_open_system(&security);
	shard_statement_once_read(&list->look, NULL, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		const char *text = shard_statement_text(i, 1);

		appendStringInfo(&list->text, "%s%s", list->text.len > 0 ? list->separator : "",
						 text != NULL ? text : "");
	}
	shard_security_close_system(&security);
	PopActiveSnapshot();
}

char *
shard_command_list(const char *query, const char *separator)
{
	TextList list = {.look = {query}, .separator = separator};

	initStringInfo(&list.text);
	shard_command_look(read_list, &list);
	return list.text.data;
}

static void
refresh_directory(void *arg)
{
	ShardSecurity security = {0};

	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_open_system(&security);
	(void) shard_directory_refresh();
	shard_security_close_system(&security);
	PopActiveSnapshot();
}

const ShardMemberRecord *
shard_command_member(int32 node)
{
	const ShardDirectoryMember *member;

	shard_command_look(refresh_directory, NULL);
	member = shard_directory_find(node);
	return member != NULL ? &member->record : NULL;
}

void
shard_command_wait_known(void)
{
	int64 deadline = shard_clock_now() + SHARD_COMMAND_START_TIMEOUT;
	ShardWho who;

	while (!shard_control_who(&who))
	{
		if (shard_clock_now() >= deadline)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("this node does not know its identity yet"),
							errdetail("The control worker has not told the identity yet."),
							errhint("See shard_health() and the server's log.")));
		shard_command_nap();
	}
}

/* A control worker that has just been started has written nothing down. */
const ShardMemberRecord *
shard_command_get_member(int32 node)
{
	const ShardMemberRecord *record = shard_command_member(node);
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (record == NULL && !view.known)
	{
		shard_command_wait_known();
		record = shard_command_member(node);
	}
	if (record == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("there is no node %d", node),
						errhint("See shard_members.")));
	return record;
}

void
shard_command_not_written_off(void)
{
	const ShardMemberRecord *record;
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (!view.fenced)
		return;
	record = shard_command_member(view.node);
	if (record == NULL || record->status != SHARD_MEMBER_WRITTEN_OFF)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("this node was written off, for good"),
			 errdetail("This node was node %d of its cluster: its shards start again, empty, at "
					   "other members, and no start of it is admitted any more.",
					   view.node),
			 errhint(
				 "Read from it what is needed, then drop the extension or the database, and join "
				 "an empty one; or make it a node of its own with "
				 "shard_reset_cluster_data(force => true).")));
}

void
shard_command_not_gone(void)
{
	const ShardMemberRecord *record;
	ShardBoardView view;

	shard_command_not_written_off();
	shard_board_get(shard_shmem_database(), &view);
	if (!view.fenced)
		return;
	record = shard_command_member(view.node);
	if (record == NULL || record->status != SHARD_MEMBER_REMOVED)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("this node has left its cluster"),
			 errdetail("It was node %d there: its shards live at other members, and it takes no "
					   "part in what they decide.",
					   view.node),
			 errhint("Call it at a member. To join again, read from this database what is needed, "
					 "DROP EXTENSION shard CASCADE, create it anew, start the types, and call "
					 "shard_join(); or make it a node of its own with "
					 "shard_reset_cluster_data().")));
}

void
shard_command_member_remains(const char *function, int32 node)
{
	if (shard_command_get_member(node)->status != SHARD_MEMBER_WRITTEN_OFF)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot execute %s: node %d was written off, for good", function, node),
			 errdetail("The node's shards start again, empty, at other members, and no start of "
					   "it is admitted any more."),
			 errhint("Read from it what is needed; its database joins under another number, "
					 "empty, when the extension was dropped there and created again.")));
}

void
shard_command_not_downed(void)
{
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (view.downed)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("this node was downed"),
				 errdetail("This node is node %d of a cluster, and its shards wait for it.",
						   view.node),
				 errhint("Restart its server, or call shard_admit(%d, %d) here.", view.node,
						 view.inc_no + 1)));
}

bool
shard_command_has_coordinator(void)
{
	return shard_cluster_view_coordinator(shard_cluster_view_reports()) != 0;
}

void
shard_command_need_coordinator(const char *function)
{
	shard_command_not_gone();
	shard_command_not_downed();
	if (shard_command_has_coordinator())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot execute %s: there is no coordinator", function),
			 errdetail("This node hears of no coordinator: a coordinator needs a majority of the "
					   "voters, and this node a control worker that runs."),
			 errhint(
				 "See shard_health() here, and shard_members at other nodes. Only if the voters "
				 "are lost for good, see shard_force_voters().")));
}

char *
shard_command_who(void)
{
	return psprintf("%s@%d", GetUserNameFromId(GetUserId(), false), shard_identity_name().node);
}

/* ---- refusals --------------------------------------------------------------------------------- */

/* What an operator can do about a refusal of the control plane. */
static const char *
hint_for(const char *why)
{
	static const struct
	{
		const char *part;
		const char *hint;
	} hints[] = {
		{"was downed", "Restart its server, or call shard_admit() there."},
		{"being removed", "Join again with an empty database when it has left."},
		{"had not come up", "See shard_members; it joins again when it has left."},
		{"was cancelled", NULL},
		{"belongs to role",
		 "Give the type the same owner at both nodes, with shard_alter(), then try again."},
		{"tate table", "Make the state tables of both nodes alike, then try again."},
		{"cannot be copied",
		 "Make the type and its state table alike at both nodes, then try again."},
		{"let it leave, or stop", "Call shard_leave() there, or stop its server."},
		{"is reachable", "Call shard_down() first, or shard_leave() there."},
		{"changed meanwhile", "See shard_decisions."},
		{"office was lost", "See shard_members, and shard_decisions."},
		{"has a majority",
		 "Voters are forced only when a majority of them is lost for good, see shard_members. A "
		 "coordinator that has just ended is heard no more in two seconds: try again then."},
		{"coordinator", "See shard_members and shard_health()."},
		{"majority",
		 "Bring a voter back; if the voters are lost for good, see shard_force_voters()."},
		{"is locked on node", "End the transaction that locks it; see pg_locks there."},
		{"odd number",
		 "Name this node, and beside it an even number of members that are there, or none."},
		{"with replicas", "See shard_replicas; such shards stay where their copies are."},
		{"being emptied", "shard_evacuate() with evacuate => false ends that."},
		{"could have its shards", "See shard_members, and roles of the entity types."},
		{"member that is up", "See shard_members; a node that is down has to be started first."},
		{"does not host", "Start the type there with shard_start(); the node needs its role."},
		{"said yet what it hosts", "It has just started, or the coordinator has; try again."},
		{"reached", "See shard_members and shard_peers."},
		{"is moving", "See shard_rebalances, and try again."},
		{"not started", "It is being started; try again. See shard_homes and shard_health()."},
		{"asks to be admitted", "See shard_members, and the log of the coordinator's server."},
		{"try again", NULL},
		{"no member", "See shard_members."},
		{"of the node", "See shard_members."},
	};

	for (int i = 0; i < (int) lengthof(hints); i++)
		if (strstr(why, hints[i].part) != NULL)
			return hints[i].hint;
	return "See shard_rebalances, shard_decisions and shard_health().";
}

/* The error of a command in words of the function that was called. */
static void
explain(ErrorData *error, const char *what)
{
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		error->detail = error->message;
		error->message = psprintf("%s: no answer in time", what);
		error->hint = pstrdup("The command may still be carried out: see shard_rebalances and "
							  "shard_decisions.");
	}
	else if (error->sqlerrcode == SHARD_ERRCODE_OUTCOME_UNKNOWN && error->detail == NULL)
	{
		const char *why = error->message;

		error->detail = psprintf("%c%s.", pg_toupper((unsigned char) why[0]), why + 1);
		error->message = pstrdup("it is not known whether the command was carried out");
		error->hint = pstrdup(
			"Look at shard_members, shard_homes and shard_decisions; call the function again if "
			"the command was not carried out.");
	}
	else if (error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE && error->detail == NULL)
	{
		const char *why = error->message;

		error->hint = unconstify(char *, hint_for(why));
		error->detail = psprintf("%c%s.", pg_toupper((unsigned char) why[0]), why + 1);
		error->message = unconstify(char *, what);
	}
}

/* Has a command carried out, and returns its result; or, unless plan is NULL, has the plan answered. */
static int64
hand_over(const ShardCommand *command, int64 timeout_us, const char *what, ShardPlan *plan)
{
	MemoryContext context = CurrentMemoryContext;
	volatile int64 result = 0;

	PG_TRY();
	{
		if (plan != NULL)
			shard_control_plan(command, timeout_us, plan);
		else
			result = shard_control_command(command, timeout_us);
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		explain(error, what);
		if (plan != NULL && error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
			error->hint = pstrdup("Nothing was moved. See shard_members and shard_health().");
		ReThrowError(error);
	}
	PG_END_TRY();
	return result;
}

int64
shard_command_send(const ShardCommand *command, int64 timeout_us, const char *what)
{
	return hand_over(command, timeout_us, what, NULL);
}

void
shard_command_plan(const ShardCommand *command, int64 timeout_us, const char *what, ShardPlan *plan)
{
	(void) hand_over(command, timeout_us, what, plan);
}

/* ---- homes ------------------------------------------------------------------------------------ */

typedef struct HomeCount
{
	int32 node;
	int64 count;
} HomeCount;

static void
count_home(const ShardMapEntry *entry, void *arg)
{
	HomeCount *homes = arg;
	ShardHomeRecord record;

	if (shard_record_get_home(entry, &record) &&
		(shard_record_home_node(&record) == homes->node || record.to == homes->node) &&
		!shard_set_is_of(&record))
		homes->count++;
}

static void
count_homes(void *arg)
{
	ShardSecurity security = {0};

	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_open_system(&security);
	shard_control_store_learned(SHARD_MAP_HOME, count_home, arg);
	shard_security_close_system(&security);
	PopActiveSnapshot();
}

int64
shard_command_homes_of(int32 node)
{
	HomeCount homes = {.node = node};

	shard_command_look(count_homes, &homes);
	return homes.count;
}
