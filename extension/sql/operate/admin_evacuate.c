/*
 * sql/operate/admin_evacuate.c
 *		SQL function of operators: shard_evacuate; and why shards are still at a node that is to have none, for
 *		shard_leave, too.
 */
#include "postgres.h"

#include "fmgr.h"

#include "sql/operate/command.h"
#include "sql/cluster/cluster_view.h"
#include "core/member/membership.h"
#include "shared/board.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_admin_evacuate);

/* ---- what is said ------------------------------------------------------------------------------ */

/* "shards 1, 2, 3", of rows x that are grouped. */
#define NUMBERS \
	"CASE count(*) WHEN 1 THEN 'shard ' ELSE 'shards ' END" \
	" || array_to_string((array_agg(x.shard ORDER BY x.shard))[:10], ', ')" \
	" || CASE WHEN count(*) > 10 THEN ', ...' ELSE '' END"

/*
 * Lines of text, after WITH given (node). A type has no other host if all members that are up and may have shards have
 * answered, and none of them hosts it; a stopped type counts as hosted. Shards that stand still while others of their
 * type move come after the moving ones, since the number of moves at a time is limited.
 */
static const char *const why_query =
	"moves AS MATERIALIZED (SELECT r.type_name, r.shard, r.to_node, r.phase, coalesce(r.error,"
	"   CASE WHEN NOT m.reachable THEN format('%s, but node %s is not reached', r.phase, r.to_node) END) AS error"
	"  FROM shard.rebalances r JOIN given g ON r.from_node = g.node"
	"  LEFT JOIN shard.members() m ON m.node = r.to_node),"
	" up AS MATERIALIZED (SELECT m.node, m.reachable FROM shard.members() m JOIN given g ON m.node <> g.node"
	"  WHERE m.status = 'up' AND NOT m.evacuated),"
	" said AS MATERIALIZED (SELECT r.type_name, r.mode, r.error FROM shard.current_regions() r JOIN up USING (node)),"
	" homes AS MATERIALIZED (SELECT h.type_name, h.shard, h.node = g.node AS there"
	"  FROM shard.homes() h JOIN given g ON g.node IN (h.node, h.to_node)),"
	" still AS (SELECT x.type_name, " NUMBERS " AS numbers, EXISTS (SELECT FROM moves m"
	"   WHERE m.type_name = x.type_name AND m.phase <> 'failed') AS others_move"
	"  FROM homes x WHERE x.there AND NOT EXISTS (SELECT FROM moves m"
	"   WHERE m.type_name = x.type_name AND m.shard = x.shard) GROUP BY x.type_name)"
	" (SELECT format('To node %s, %s of entity type \"%s\": %s', x.to_node, " NUMBERS ","
	"   x.type_name, coalesce(x.error, x.phase))"
	"  FROM moves x GROUP BY x.to_node, x.type_name, x.error, coalesce(x.error, x.phase)"
	"  ORDER BY x.error IS NULL, x.to_node, x.type_name LIMIT 5)"
	" UNION ALL"
	" (SELECT CASE WHEN s.others_move"
	"   THEN format('After these: %s of entity type \"%s\".', s.numbers, s.type_name)"
	"   ELSE format('No shard of entity type \"%s\" is moving%s.', s.type_name,"
	"    CASE WHEN NOT EXISTS (SELECT FROM up) THEN ': no other member is up that could have it'"
	"    WHEN NOT EXISTS (SELECT FROM up WHERE reachable) THEN ': no other member that is up is reached'"
	"    WHEN EXISTS (SELECT FROM said r WHERE r.type_name = s.type_name AND r.mode IN ('hosting', 'stopped'))"
	"    OR EXISTS (SELECT FROM said r WHERE r.error IS NOT NULL) THEN ''"
	"    ELSE ': no other member that is up hosts it' END) END"
	"  FROM still s ORDER BY s.others_move, s.type_name LIMIT 5)"
	" UNION ALL"
	" (SELECT format('On the way there: %s of entity type \"%s\".', " NUMBERS ", x.type_name)"
	"  FROM homes x WHERE NOT x.there GROUP BY x.type_name ORDER BY x.type_name LIMIT 5)";

const char *
shard_command_shards_at(int32 node)
{
	return shard_command_list(
		psprintf("SELECT format('%%s of entity type \"%%s\"', count(*), h.type_name)"
				 " FROM shard.homes() h WHERE %d IN (h.node, h.to_node)"
				 " GROUP BY h.type_name ORDER BY h.type_name",
				 node),
		", ");
}

const char *
shard_command_why_at(int32 node)
{
	if (!shard_command_has_coordinator())
		return "There is no coordinator that could move them: it needs a majority of the voters.";
	return shard_command_list(psprintf("WITH given (node) AS (VALUES (%d)), %s", node, why_query),
							  "\n");
}

/*
 * Whether that node is seen from here.
 */
static bool
is_reachable(int32 node)
{
	const ShardMemberReport *report =
		shard_cluster_view_report_of(shard_cluster_view_reports(), node);

	return report == NULL || report->reachable;
}

/*
 * Says what keeps shards there: a caller that waited for the evacuation would stop the server now.
 */
static void
warn_of_rest(int32 node)
{
	const ShardMemberRecord *member = shard_command_member(node);
	const char *shards = shard_command_shards_at(node);
	const char *why;

	if (member == NULL || !shard_membership_is_member(member->status))
		why = psprintf("It is %s.", shard_membership_status_name(
										member != NULL ? member->status : SHARD_MEMBER_NONE));
	else if (!member->evacuated)
		why = psprintf("The node is not being emptied any more: its server was started again, or "
					   "shard_evacuate(%d, false) was called.",
					   node);
	else if (!is_reachable(node))
		why = "The node is not reached from here.";
	else
		why = shard_command_why_at(node);
	ereport(WARNING,
			(errmsg("node %d still has shards: %s", node, shards),
			 why[0] != '\0' ? errdetail_internal("%s", why) : 0,
			 errhint("The node goes on being emptied as long as shard_members says so: shards "
					 "move as soon as a member that is up and has started their type can have "
					 "them. See shard_rebalances, or call shard_evacuate() again.")));
}

/* ---- the function ------------------------------------------------------------------------------ */

/*
 * Shards are copied from a node that runs; the mark would end with its next start.
 */
static void
check_reachable(int32 node)
{
	if (!is_reachable(node))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("node %d cannot be evacuated", node),
				 errdetail("The node is not reached from here."),
				 errhint("Start its server first; see shard_members. If only this node does not "
						 "reach it, call shard_evacuate() at another member.")));
}

/*
 * Waits until no shard lives at the node. False: time is up, or the node is not being emptied any more.
 */
static bool
wait_until_empty(int32 node, int64 timeout)
{
	int64 deadline = shard_clock_now() + timeout;
	bool begun = false;

	while (shard_command_homes_of(node) > 0)
	{
		const ShardMemberRecord *member = shard_command_member(node);
		bool marked = member != NULL && member->evacuated;

		/* The mark was decided, but this node may not have heard of it yet. */
		if ((begun && !marked) || shard_clock_now() >= deadline)
			return false;
		begun = marked;
		shard_command_nap();
	}
	return true;
}

/*
 * shard_evacuate(node int, evacuate boolean = true, timeout interval = '0 s') returns boolean: whether no shard lives
 * there any more after that time. A caller that does not wait is not told why not: the evacuation has just begun.
 */
Datum
shard_admin_evacuate(PG_FUNCTION_ARGS)
{
	ShardCommand command = {.kind = SHARD_COMMAND_EVACUATE,
							.node = shard_command_int(fcinfo, 0, "node"),
							.empty = PG_ARGISNULL(1) || PG_GETARG_BOOL(1)};
	int64 timeout = shard_command_timeout(fcinfo, 2);
	const ShardMemberRecord *member;
	bool empty;

	shard_command_begin("shard_evacuate()");
	shard_command_not_gone();
	member = shard_command_get_member(command.node);
	if (!shard_membership_is_member(member->status))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("node %d cannot be evacuated", command.node),
				 errdetail("It is %s.", shard_membership_status_name(member->status)),
				 errhint("Shards are copied from a node that runs; see shard_write_off() for "
						 "one that is lost.")));
	shard_command_need_coordinator("shard_evacuate()");
	if (command.empty)
		check_reachable(command.node);
	command.text = shard_command_who();
	(void) shard_command_send(&command, SHARD_COMMAND_TIMEOUT,
							  psprintf("could not evacuate node %d", command.node));
	if (!command.empty)
		timeout = 0;
	empty = wait_until_empty(command.node, timeout);
	if (!empty && timeout > 0)
		warn_of_rest(command.node);
	PG_RETURN_BOOL(empty);
}
