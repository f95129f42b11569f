/*
 * admin_lost.c
 *		SQL functions of operators: what to do about a lost node, or lost voters.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "admin_command.h"
#include "cluster_alive.h"
#include "cluster_view.h"
#include "core/membership.h"
#include "plane.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(shard_admin_down);
PG_FUNCTION_INFO_V1(shard_admin_write_off);
PG_FUNCTION_INFO_V1(shard_admin_admit);
PG_FUNCTION_INFO_V1(shard_admin_force_voters);

/* A node that is there answers within that time. */
#define ALIVE_TIMEOUT_MS 3000

/* A node that was downed hears of it within that time, if of anything; one that has ended is missed by all. */
#define PATIENCE (5 * INT64CONST(1000000))

/* Between two questions. */
#define NAPS 10

/*
 * A command about one node. Returns what it was before, as far as is known here.
 */
static ShardMemberStatus
command_about(FunctionCallInfo fcinfo, const char *function, ShardCommandKind kind)
{
	ShardCommand command = {.kind = kind, .node = shard_command_int(fcinfo, 0, "node")};
	ShardMemberStatus before;

	shard_command_begin(function);
	command.text = shard_command_who();
	before = (ShardMemberStatus) shard_command_get_member(command.node)->status;
	shard_command_need_coordinator(function);
	(void) shard_command_send(&command, SHARD_COMMAND_TIMEOUT,
							  psprintf("%s is refused for node %d", function, command.node));
	return before;
}

/*
 * shard_down(node int) returns void
 */
Datum
shard_admin_down(PG_FUNCTION_ARGS)
{
	if (command_about(fcinfo, "shard_down()", SHARD_COMMAND_DOWN) == SHARD_MEMBER_DOWN)
		ereport(NOTICE, (errmsg("node %d was downed already", PG_GETARG_INT32(0))));
	PG_RETURN_VOID();
}

/* Is it up to this side to look whether entities run there? The coordinator refuses itself, and who is gone is told so. */
static bool
may_run(int32 node, const ShardMemberRecord *record)
{
	ShardPlaneView view;

	shard_plane_get(shard_shmem_database(), &view);
	return record != NULL && node != view.node &&
		   (shard_membership_is_member(record->status) || record->status == SHARD_MEMBER_DOWN) &&
		   node != shard_cluster_view_coordinator(shard_cluster_view_reports());
}

/* ---- does it run? ------------------------------------------------------------------------------ */

/*
 * Asks the node itself, and, if that says nothing, those whom this node hears. What they hear of one that was downed is
 * no matter: it is to hear of that, and then to handle nothing.
 */
static bool
is_there(ShardAlive *asked, ShardMemberStatus status)
{
	int32 witness;

	shard_cluster_alive(asked, 1, ALIVE_TIMEOUT_MS);
	if (asked->entities)
		return true;
	(void) shard_cluster_alive_ask_others(asked, 1, shard_cluster_view_reports(), ALIVE_TIMEOUT_MS,
										  &witness);
	return asked->runs_by != 0 || (status != SHARD_MEMBER_DOWN && asked->heard_by != NIL);
}

static const char *
verb(const List *nodes, const char *verb)
{
	return psprintf("%s%s", verb, list_length(nodes) > 1 ? "" : "s");
}

/* Who knows that it runs. */
static const char *
how_it_runs(const ShardAlive *asked, ShardMemberStatus status)
{
	const char *names;

	if (asked->entities)
		return asked->coordinator ? "Its region workers run and handle messages."
								  : "Its region workers run and handle messages; its coordinator "
									"worker alone stands still.";
	if (asked->heard_by == NIL || status == SHARD_MEMBER_DOWN)
		return psprintf("Node %d reaches it: its region workers run and handle messages.",
						asked->runs_by);
	names = shard_cluster_alive_names(asked->heard_by);
	return psprintf("%c%s %s it, though this node does not.", pg_toupper((unsigned char) names[0]),
					names + 1, verb(asked->heard_by, "hear"));
}

/*
 * The error of a write-off.
 */
static void
refuse_write_off(const ShardAlive *asked, ShardMemberStatus status)
{
	int32 node = asked->node;
	const char *detail = how_it_runs(asked, status);
	const char *hint;

	if (!asked->entities)
		hint = psprintf(
			"See shard_members and shard_health() at each of them, and mend the links. If you have cut it "
			"off, or are about to stop it, for good: shard_write_off(%d, force => true).",
			node);
	else if (asked->coordinator && status != SHARD_MEMBER_DOWN)
		hint = psprintf(
			"Call shard_leave() there. If its server is about to be stopped for good, and you "
			"see to it: shard_down(%d), then shard_write_off(%d, force => true).",
			node, node);
	else
		hint = psprintf("See shard_health(), pg_stat_activity and pg_locks there; have the process "
						"go on (SIGCONT), or restart the server. If you have cut it off, or are "
						"about to stop it, for good: shard_write_off(%d, force => true).",
						node);
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("shard_write_off() is refused for node %d", node),
					errdetail_internal("%s", detail), errhint("%s", hint)));
}

/*
 * Errors while the node is found to run (N7). One that was downed a moment ago may hear of it yet, and others may still
 * hear one that has just ended.
 */
static void
check_entities_ended(int32 node)
{
	int64 deadline = shard_plane_now() + PATIENCE;
	ShardAlive asked = {.node = node};
	ShardMemberStatus status;
	bool runs;

	for (;;)
	{
		const ShardMemberRecord *record = shard_command_member(node);

		if (!may_run(node, record))
			return;
		status = (ShardMemberStatus) record->status;
		if (!is_there(&asked, status))
			return;
		runs = asked.entities || asked.runs_by != 0;
		if ((runs && status != SHARD_MEMBER_DOWN) || shard_plane_now() >= deadline)
			break;
		for (int i = 0; i < NAPS; i++)
			shard_command_nap();
	}
	refuse_write_off(&asked, status);
}

static bool
is_forced(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("force cannot be null")));
	return PG_GETARG_BOOL(1);
}

/*
 * shard_write_off(node int, force boolean = false) returns void
 */
Datum
shard_admin_write_off(PG_FUNCTION_ARGS)
{
	int32 node = shard_command_int(fcinfo, 0, "node");
	bool forced;

	shard_command_begin("shard_write_off()");
	forced = is_forced(fcinfo);
	shard_command_not_downed();
	if (!forced)
		check_entities_ended(node);
	if (command_about(fcinfo, "shard_write_off()", SHARD_COMMAND_WRITE_OFF) ==
		SHARD_MEMBER_WRITTEN_OFF)
		ereport(NOTICE, (errmsg("node %d was written off already", PG_GETARG_INT32(0))));
	PG_RETURN_VOID();
}

/*
 * shard_admit(node int, incarnation int) returns void. The number says which newcomer is meant: that
 * which would follow the one that the caller knows.
 */
Datum
shard_admin_admit(PG_FUNCTION_ARGS)
{
	int32 node = shard_command_int(fcinfo, 0, "node");
	int32 incarnation = shard_command_int(fcinfo, 1, "incarnation");
	const ShardMemberRecord *record;
	ShardPlaneView view;

	shard_command_begin("shard_admit()");
	record = shard_command_member(node);
	if (record != NULL && incarnation != record->inc_no + 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the next incarnation of node %d is %d, not %d", node,
							   record->inc_no + 1, incarnation),
						errhint("See shard_members; somebody may have been admitted meanwhile.")));
	shard_plane_get(shard_shmem_database(), &view);
	if (view.downed && view.node == node)
	{
		/* No coordinator is heard here: it is this node that has to go on. */
		ShardCommand command = {.kind = SHARD_COMMAND_ADMIT, .node = node};

		(void) shard_command_send(&command, SHARD_COMMAND_TIMEOUT, "this node cannot go on now");
		PG_RETURN_VOID();
	}
	(void) command_about(fcinfo, "shard_admit()", SHARD_COMMAND_ADMIT);
	PG_RETURN_VOID();
}

/*
 * shard_force_voters(nodes int[]) returns void
 */
Datum
shard_admin_force_voters(PG_FUNCTION_ARGS)
{
	ShardCommand command = {.kind = SHARD_COMMAND_FORCE_VOTERS};
	Datum *nodes;
	bool *nulls;
	int count;

	shard_command_begin("shard_force_voters()");
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("nodes cannot be null")));
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), INT4OID, sizeof(int32), true, TYPALIGN_INT, &nodes,
					  &nulls, &count);
	if (count < 1 || count > SHARD_MAX_VOTERS)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("voters must be between 1 and %d nodes", SHARD_MAX_VOTERS)));
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("a voter cannot be null")));
		command.nodes[command.n_nodes++] = DatumGetInt32(nodes[i]);
	}
	(void) shard_command_send(&command, SHARD_COMMAND_TIMEOUT,
							  "these nodes cannot be made the voters");
	PG_RETURN_VOID();
}
