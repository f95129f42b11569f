/*
 * sql/operate/admin_lost.c
 *		SQL functions of operators: what to do about a lost node, or lost voters.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "sql/operate/command.h"
#include "sql/cluster/cluster_alive.h"
#include "sql/cluster/cluster_view.h"
#include "core/member/membership.h"
#include "registry/identity.h"
#include "shared/board.h"
#include "base/argument.h"

#include "base/compat.h"

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
	shard_command_not_gone();
	if (kind != SHARD_COMMAND_WRITE_OFF)
		shard_command_member_remains(function, command.node);
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

/*
 * Is it up to this side to look whether entities run there? The coordinator refuses itself, and tells the caller of a
 * member that is gone.
 */
static bool
may_run(int32 node, const ShardMemberRecord *record)
{
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	return record != NULL && node != view.node &&
		   (shard_membership_is_member(record->status) || record->status == SHARD_MEMBER_DOWN) &&
		   node != shard_cluster_view_coordinator(shard_cluster_view_reports());
}

/* ---- does it run? ------------------------------------------------------------------------------ */

/*
 * Asks the node itself, and, if that says nothing, members that this node hears. What they hear of a member that was
 * downed is no matter: that member is to hear of it, and then to handle nothing. A member whose server is frozen hears
 * of nothing.
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
	return asked->runs_by != 0 || asked->mute ||
		   (status != SHARD_MEMBER_DOWN && asked->heard_by != NIL);
}

static const char *
verb(const List *nodes, const char *verb)
{
	return psprintf("%s%s", verb, list_length(nodes) > 1 ? "" : "s");
}

/* Says how it is known that the member runs. */
static const char *
how_it_runs(const ShardAlive *asked, ShardMemberStatus status)
{
	const char *names;

	if (asked->entities)
		return asked->coordinator ? "Its region workers run and handle messages."
								  : "Its region workers run and handle messages; its control "
									"worker alone stands still.";
	if (asked->heard_by == NIL || status == SHARD_MEMBER_DOWN)
		return asked->runs_by != 0
				   ? psprintf("Node %d reaches it: its region workers run and handle messages.",
							  asked->runs_by)
				   : psprintf(
						 "The server of node %d takes connections, and answers nothing: it may "
						 "be frozen, and handles messages again as soon as it goes on.",
						 asked->node);
	names = shard_cluster_alive_names(asked->heard_by);
	return psprintf("%c%s %s it, though this node does not.", pg_toupper((unsigned char) names[0]),
					names + 1, verb(asked->heard_by, "hear"));
}

/* Is all that is known of it that its server takes connections? */
static bool
is_mute(const ShardAlive *asked, ShardMemberStatus status)
{
	return asked->mute && asked->runs_by == 0 &&
		   (asked->heard_by == NIL || status == SHARD_MEMBER_DOWN);
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

	if (is_mute(asked, status))
		hint = psprintf(
			"Have the server go on (SIGCONT); or end it for good, so that it is not started "
			"again, then call shard_write_off(%d). If you have cut the node off, or are about to "
			"stop it, for good: shard_write_off(%d, force => true).",
			node, node);
	else if (!asked->entities)
		hint = psprintf(
			"See shard_members and shard_health() at each of these nodes, and mend the links. If "
			"you have cut node %d off, or are about to stop it, for good: shard_write_off(%d, "
			"force => true).",
			node, node);
	else if (asked->coordinator && status != SHARD_MEMBER_DOWN)
		hint = psprintf(
			"Call shard_leave() there. If its server is about to be stopped for good, and you "
			"see to that: shard_down(%d), then shard_write_off(%d, force => true).",
			node, node);
	else
		hint = psprintf("See shard_health(), pg_stat_activity and pg_locks there; have the "
						"process go on (SIGCONT), or restart the server. If you have cut the "
						"node off, or are about to stop it, for good: shard_write_off(%d, force "
						"=> true).",
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
	int64 deadline = shard_clock_now() + PATIENCE;
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
		if ((runs && status != SHARD_MEMBER_DOWN) || shard_clock_now() >= deadline)
			break;
		for (int i = 0; i < NAPS; i++)
			shard_command_nap();
	}
	refuse_write_off(&asked, status);
}

/*
 * Errors at the node itself, which runs, whatever is forced: its data would be lost by a word at the wrong place. Who calls
 * it there may mean a node for which messages wait, so that this one does not leave.
 */
static void
check_not_self(int32 node)
{
	const char *others;

	if (node != shard_identity_name().node)
		return;
	others = shard_command_list("SELECT format('shard_write_off(%s)', p.node) FROM shard.peers() p"
								" GROUP BY p.node HAVING sum(p.outbox_messages) > 0"
								" ORDER BY p.node",
								", ");
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("shard_write_off() is refused for node %d", node),
			 errdetail("This is node %d, which runs: a node gives up others, and never itself.",
					   node),
			 others[0] != '\0'
				 ? errhint("If the node for which messages wait here is gone for good, name that "
						   "one: %s. To end this node's part call shard_leave() here.",
						   others)
				 : errhint("Call shard_leave() here; or stop this server for good, then call "
						   "shard_write_off(%d) at another member.",
						   node)));
}

static bool
is_forced(FunctionCallInfo fcinfo)
{
	shard_argument_check(fcinfo, 1, "force cannot be null");
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
	shard_command_not_gone();
	shard_command_not_downed();
	check_not_self(node);
	if (!forced)
		check_entities_ended(node);
	if (command_about(fcinfo, "shard_write_off()", SHARD_COMMAND_WRITE_OFF) ==
		SHARD_MEMBER_WRITTEN_OFF)
		ereport(NOTICE, (errmsg("node %d was written off already", PG_GETARG_INT32(0))));
	PG_RETURN_VOID();
}

/*
 * Error at the very start that is to be admitted: until it is, no coordinator hears what it says but its claim, and the
 * command would wait in vain.
 */
static void
check_not_refused_here(int32 node, int32 incarnation)
{
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (view.node != node || view.handle || view.downed || view.refusal[0] == '\0' ||
		shard_cluster_view_coordinator(shard_cluster_view_reports()) == node)
		return;
	ereport(
		ERROR,
		(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		 errmsg("shard_admit() is refused for node %d here", node),
		 errdetail("This server is the start of node %d that waits to be admitted: no coordinator "
				   "takes commands from it.",
				   node),
		 errhint("Call shard_admit(%d, %d) at another member.", node, incarnation)));
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
	ShardBoardView view;

	shard_command_begin("shard_admit()");
	shard_command_not_gone();
	record = shard_command_member(node);
	if (record != NULL && record->status != SHARD_MEMBER_WRITTEN_OFF &&
		incarnation != record->inc_no + 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the next incarnation of node %d is %d, not %d", node,
							   record->inc_no + 1, incarnation),
						errhint("See shard_members; another incarnation may have been admitted "
								"meanwhile.")));
	shard_board_get(shard_shmem_database(), &view);
	if (view.downed && view.node == node)
	{
		/* No coordinator is heard here: it is this node that has to go on. */
		ShardCommand command = {.kind = SHARD_COMMAND_ADMIT, .node = node};

		(void) shard_command_send(&command, SHARD_COMMAND_TIMEOUT, "this node cannot go on now");
		PG_RETURN_VOID();
	}
	check_not_refused_here(node, incarnation);
	(void) command_about(fcinfo, "shard_admit()", SHARD_COMMAND_ADMIT);
	PG_RETURN_VOID();
}

/* ---- voters ------------------------------------------------------------------------------------ */

/* The voters that an operator leaves out. */
typedef struct Lost
{
	List *reports; /* of members, as heard here */
	ShardAlive asked[2 * SHARD_MAX_VOTERS];
	int count;
	int voters;
	int heard; /* of the voters, this node among them */
} Lost;

StaticAssertDecl(2 * SHARD_MAX_VOTERS <= SHARD_ALIVE_MOST, "voters that can be asked about");

static bool
is_listed(const ShardCommand *command, int32 node)
{
	for (int i = 0; i < command->n_nodes; i++)
	{
		if (command->nodes[i] == node)
			return true;
	}
	return false;
}

static void
look_for_lost(const ShardCommand *command, Lost *lost)
{
	ListCell *cell;

	lost->reports = shard_cluster_view_reports();
	foreach (cell, lost->reports)
	{
		const ShardMemberReport *report = lfirst(cell);

		if (!report->voter)
			continue;
		lost->voters++;
		lost->heard += report->reachable;
		if (!is_listed(command, report->node) && lost->count < (int) lengthof(lost->asked))
			lost->asked[lost->count++].node = report->node;
	}
}

static void
add_line(StringInfo lines, const char *line)
{
	if (lines->len > 0)
		appendStringInfoChar(lines, '\n');
	appendStringInfo(lines, "%c%s", pg_toupper((unsigned char) line[0]), line + 1);
}

/*
 * How a voter is there that is left out; NULL: it is not, as far as members say. NULL, too, for a voter that is heard
 * here while the voters that are heard are no majority: it enters the new era by itself.
 */
static const char *
how_it_is_there(const Lost *lost, const ShardAlive *asked)
{
	const ShardMemberReport *report = shard_cluster_view_report_of(lost->reports, asked->node);

	if (report != NULL && report->reachable)
		return 2 * lost->heard > lost->voters
				   ? psprintf("node %d is heard, and with it a majority of the voters", asked->node)
				   : NULL;
	if (asked->answers && asked->coordinator)
		return psprintf("node %d answers, though it is not heard", asked->node);
	if (asked->answers)
		return psprintf("node %d answers, and its control worker stands still", asked->node);
	if (asked->heard_by != NIL)
		return psprintf("%s %s node %d", shard_cluster_alive_names(asked->heard_by),
						verb(asked->heard_by, "hear"), asked->node);
	if (asked->reached_by != NIL)
		return psprintf("node %d answers %s", asked->node,
						shard_cluster_alive_names(asked->reached_by));
	if (asked->mute)
		return psprintf("the server of node %d takes connections, and answers nothing: it may be "
						"frozen",
						asked->node);
	return NULL;
}

static void
refuse_voters(const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("these nodes cannot be made the voters: the old ones are not lost"),
			 errdetail_internal("%s", why),
			 errhint("Have them go on: see shard_health(), pg_stat_activity and pg_locks there "
					 "(SIGCONT), and mend the links; or name them, too. One that has just ended is "
					 "missed after some seconds: try again then. If you have stopped them, or cut "
					 "them off, for good: force => true.")));
}

/*
 * Errors if a coordinator, or a voter that is left out, is found to be there (N8): with others that are only away it would
 * be a majority, beside the one that begins here. What the control plane refuses by itself is left to it.
 */
static void
check_voters_lost(const ShardCommand *command)
{
	Lost lost = {0};
	StringInfoData lines;
	int32 coordinator;
	int32 witness;
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (command->n_nodes % 2 == 0 || !is_listed(command, view.node))
		return;
	look_for_lost(command, &lost);
	/* refreshes the addresses */
	(void) shard_command_member(view.node);
	shard_cluster_alive(lost.asked, lost.count, ALIVE_TIMEOUT_MS);
	coordinator = shard_cluster_alive_ask_others(lost.asked, lost.count, lost.reports,
												 ALIVE_TIMEOUT_MS, &witness);
	initStringInfo(&lines);
	if (coordinator != 0)
		add_line(&lines, psprintf("node %d hears a coordinator, node %d, which has a majority of "
								  "the voters.",
								  witness, coordinator));
	for (int i = 0; i < lost.count; i++)
	{
		const char *how = how_it_is_there(&lost, &lost.asked[i]);

		if (how != NULL)
			add_line(&lines, psprintf("%s.", how));
	}
	if (lines.len > 0)
		refuse_voters(lines.data);
}

static void
read_nodes(FunctionCallInfo fcinfo, ShardCommand *command)
{
	int32 *voters = palloc(SHARD_MAX_VOTERS * sizeof(int32));
	Datum *nodes;
	bool *nulls;
	int count;

	shard_argument_check(fcinfo, 0, "nodes cannot be null");
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
		voters[command->n_nodes++] = DatumGetInt32(nodes[i]);
	}
	command->nodes = voters;
}

/*
 * shard_force_voters(nodes int[], force boolean = false) returns void
 */
Datum
shard_admin_force_voters(PG_FUNCTION_ARGS)
{
	ShardCommand command = {.kind = SHARD_COMMAND_FORCE_VOTERS};

	shard_command_begin("shard_force_voters()");
	shard_command_not_gone();
	read_nodes(fcinfo, &command);
	if (!is_forced(fcinfo))
		check_voters_lost(&command);
	(void) shard_command_send(&command, SHARD_COMMAND_TIMEOUT,
							  "these nodes cannot be made the voters");
	PG_RETURN_VOID();
}
