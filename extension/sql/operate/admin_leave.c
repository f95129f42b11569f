/*
 * sql/operate/admin_leave.c
 *		SQL function of operators: shard_leave.
 *
 * Leaving is decided by the cluster at once, and goes on whether or not a caller waits for it: shards move away, the
 * node is removed, then what it still has of them is deleted. As long as it has not given away its last shard it can be
 * told to stay.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "sql/operate/command.h"
#include "base/attempt.h"
#include "sql/cluster/cluster_view.h"
#include "core/member/membership.h"
#include "base/peer_errors.h"
#include "shared/board.h"
#include "registry/senders.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_admin_leave);

/*
 * What this node is in its cluster, as far as it has learned.
 */
static ShardMemberStatus
own_status(int32 node)
{
	const ShardMemberRecord *record = shard_command_member(node);

	return record != NULL ? (ShardMemberStatus) record->status : SHARD_MEMBER_NONE;
}

/*
 * Whether rows of shards are still here that live elsewhere now, and are to be deleted.
 */
static bool
has_old_rows(void)
{
	return shard_command_list("SELECT 'yes' FROM shard.own_remains LIMIT 1", "")[0] != '\0';
}

/* ---- what is said ------------------------------------------------------------------------------ */

/* Dead letters do not move with their shards, and no other node shows them. */
static void
notice_dead_letters(bool over)
{
	const char *count =
		shard_command_list("SELECT count(*)::text FROM shard.dead_letter HAVING count(*) > 0", "");

	if (count[0] == '\0')
		return;
	ereport(
		NOTICE,
		(errmsg("dead letters that stay on this node: %s", count),
		 over ? errhint("The messages can only be read, in shard_dead_letters, as long as the "
						"extension is here; to send one again, tell its entity at a member.")
			  : errhint(
					"Send them again with shard_redrive() while shards are still here; after that "
					"they can only be read, in shard_dead_letters.")));
}

/*
 * The node has left. What waited for types that were dropped here, and that no other node can host, stays here (D28).
 */
static void
notice_dropped(void)
{
	const char *counts = shard_command_list(
		"SELECT format('%s of entity type \"%s\"', count(*), t.type_name)"
		" FROM (SELECT h.type_id FROM shard.held h WHERE h.place <> 'start'"
		" UNION ALL SELECT p.type_id FROM shard.parked p WHERE p.turn IS NULL) m JOIN shard.type t USING (type_id)"
		" WHERE t.mode = 'dropped' GROUP BY t.type_name ORDER BY t.type_name",
		", ");

	if (counts[0] != '\0')
		ereport(NOTICE,
				(errmsg("messages that stay on this node: %s", counts),
				 errdetail("The type was dropped here, and no other member could host it."),
				 errhint("The messages can only be read, in shard_inbox, as long as the "
						 "extension is here; to send one again, tell its entity at a member.")));
}

/* Entities that are on their way to other shards have no homes that could move (E62). */
static void
refuse_resharding(void)
{
	const char *types = shard_command_list("SELECT format('\"%s\"', t.type_name)"
										   " FROM shard.reshard r JOIN shard.type t USING (type_id)"
										   " ORDER BY t.type_name",
										   ", ");

	if (types[0] != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot leave the cluster while entities move to other shards"),
				 errdetail("Their types: %s.", types),
				 errhint("Call shard_reshard() again, which goes on where it was, and start the "
						 "types.")));
}

/* Copies stay where the sets of their shards are: the coordinator would not let this node go. */
static void
refuse_copies(void)
{
	const char *types =
		shard_command_list("SELECT format('\"%s\"', t.type_name)"
						   " FROM (SELECT DISTINCT c.type_id FROM shard.copy c) c"
						   " JOIN shard.type t USING (type_id) ORDER BY t.type_name",
						   ", ");

	if (types[0] != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot leave the cluster while this node has copies of shards"),
				 errdetail("Types with replicas that have shards here: %s. Such shards do not move "
						   "yet.",
						   types),
				 errhint("Drop these types at all members with shard_drop_type().")));
}

/* A caller that calls again is told how far the node is. */
static void
notice_progress(int32 node, ShardMemberStatus status)
{
	int64 homes = shard_command_homes_of(node);

	if (status == SHARD_MEMBER_REMOVED)
		ereport(NOTICE, (errmsg("this node has left its cluster")));
	else if (homes > 0)
		ereport(NOTICE, (errmsg("this node is leaving: " INT64_FORMAT " of its shards are still to "
								"move",
								homes),
						 errhint("See shard_rebalances.")));
	else
		ereport(NOTICE, (errmsg("this node is leaving: all its shards have moved")));
}

/*
 * What is the matter with the control worker here, to which commands go; NULL: it answers.
 */
static const char *
worker_still(void)
{
	ShardDatabase *db = shard_shmem_database();
	int pid;

	if (db == NULL)
		return "The control worker of this node does not run.";
	if (shard_cluster_view_reports() != NIL)
		return NULL;
	pid = shard_shmem_worker_pid(db, SHARD_CONTROL_WORKER);
	return pid != 0 ? psprintf("The control worker of this node, process %d, does not answer: "
							   "it stands still.",
							   pid)
					: "The control worker of this node does not run.";
}

/* The cluster has not decided that the node leaves. */
static void
warn_undecided(void)
{
	/* not within ereport(): they look for errors of their own */
	const char *still = worker_still();
	bool asked = still == NULL && shard_command_has_coordinator();

	ereport(
		WARNING,
		(errmsg("the cluster has not decided yet that this node leaves"),
		 still != NULL ? errdetail_internal("%s", still)
		 : asked
			 ? errdetail("The coordinator was asked, and has not answered.")
			 : errdetail(
				   "This node hears of no coordinator that could decide it: one needs a majority of the voters."),
		 errhint("This node goes on asking until its server or its control worker "
				 "is restarted; then call shard_leave() again. See shard_health() and "
				 "shard_members; shard_leave(cancel => true) ends it.")));
}

/*
 * Shards are still here.
 */
static void
warn_of_shards(int32 node, const char *shards)
{
	const char *why = shard_command_why_at(node);

	ereport(WARNING,
			(errmsg("this node still has shards: %s", shards),
			 why[0] != '\0' ? errdetail_internal("%s", why) : 0,
			 errhint("The shards move as soon as a member that is up and has started their type "
					 "can have them; see shard_rebalances, or call shard_leave() again. "
					 "shard_leave(cancel => true) keeps those that are left.")));
}

static void
list_waiting(void *list)
{
	*(char **) list =
		shard_command_list("SELECT format('%s messages for node %s have not been taken in there.',"
						   " sum(p.outbox_messages), p.node) FROM shard.peers() p"
						   " GROUP BY p.node HAVING sum(p.outbox_messages) > 0 ORDER BY p.node",
						   "\n");
}

/* Both, if there is something of each. */
static const char *
join_lines(const char *first, const char *second)
{
	if (first[0] == '\0' || second[0] == '\0')
		return first[0] != '\0' ? first : second;
	return psprintf("%s\n%s", first, second);
}

/*
 * No shard is here any more.
 */
static void
warn_of_exit(ShardMemberStatus status)
{
	char *waiting = pstrdup("");
	const char *parked = shard_command_list(
		"SELECT format('%s messages of entity type \"%s\" are parked: their shards have no"
		" home that can take them.', count(*), t.type_name)"
		" FROM shard.parked_remains p JOIN shard.type t USING (type_id)"
		" GROUP BY t.type_name ORDER BY t.type_name",
		"\n");
	const char *senders;
	const char *detail;

	PushActiveSnapshot(GetLatestSnapshot());
	senders = shard_senders_list(false);
	PopActiveSnapshot();

	/* it waits for a worker in a long turn, in vain maybe */
	(void) shard_attempt(list_waiting, &waiting);
	if (status == SHARD_MEMBER_REMOVED)
		detail = "Rows of its former shards are being deleted.";
	else if (!shard_command_has_coordinator())
		detail = "There is no coordinator that could remove it: it needs a majority of the voters.";
	else
		detail = join_lines(
			senders[0] != '\0'
				? psprintf(
					  "The node waits for the end of transactions that have sent messages: %s.",
					  senders)
				: "",
			waiting[0] != '\0' ? waiting : parked);
	if (detail[0] == '\0')
		detail = has_old_rows() ? "Rows of its former shards are being deleted."
								: "Messages of this node for others are on their way.";
	ereport(WARNING,
			(errmsg("this node has no shards any more, but has not left yet"),
			 errdetail_internal("%s", detail),
			 errhint("The leave goes on, and it is too late to cancel it; see shard_peers and "
					 "shard_members, or call shard_leave() again.")));
}

/* Says what keeps this node: a caller that waited for it would stop the server now. */
static void
warn_of_rest(int32 node, ShardMemberStatus status)
{
	const char *shards;

	if (status < SHARD_MEMBER_LEAVING)
	{
		warn_undecided();
		return;
	}
	shards = shard_command_shards_at(node);
	if (shards[0] != '\0')
		warn_of_shards(node, shards);
	else
		warn_of_exit(status);
}

/* ---- to leave ---------------------------------------------------------------------------------- */

static void
send_leave(void *timeout)
{
	ShardCommand command = {.kind = SHARD_COMMAND_LEAVE, .text = shard_command_who()};

	(void) shard_command_send(&command, *(int64 *) timeout, "cannot leave the cluster");
}

/*
 * Has the cluster decide that this node leaves, and waits for that or for its end. Where many calls wait, a
 * later one ends the wait of the first one's command, not of its caller.
 */
static void
begin_to_leave(int64 timeout)
{
	ErrorData *error = shard_attempt(send_leave, &timeout);

	if (error != NULL && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
		(error->detail == NULL || strstr(error->detail, "later shard_leave()") == NULL))
		ReThrowError(error);
}

/* Errors if the node does not leave any more, so that no caller waits for that. */
static void
check_leaves(ShardMemberStatus before, ShardMemberStatus status)
{
	const char *detail;
	const char *hint = NULL;
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (status == SHARD_MEMBER_WRITTEN_OFF)
		detail = "This node was written off meanwhile: its data can only be read here.";
	else if (status == SHARD_MEMBER_DOWN)
	{
		detail = "This node was downed meanwhile.";
		hint = "Restart its server, or call shard_admit() here; then it can leave.";
	}
	else if (before == SHARD_MEMBER_LEAVING && status == SHARD_MEMBER_UP)
		detail = "The leave was cancelled by shard_leave(cancel => true).";
	else if (view.fenced && status != SHARD_MEMBER_REMOVED)
	{
		detail = "This database is fenced: the cluster knows another one as this node.";
		hint = "See shard_health().";
	}
	else
		return;
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("this node does not leave the cluster any more"),
					errdetail("%s", detail), hint != NULL ? errhint("%s", hint) : 0));
}

/*
 * Waits until this node has left and nothing of its shards is here; false: not in time.
 */
static bool
wait_until_left(int32 node, int64 deadline)
{
	ShardMemberStatus before = SHARD_MEMBER_NONE;
	ShardMemberStatus status;

	while ((status = own_status(node)) != SHARD_MEMBER_REMOVED || has_old_rows())
	{
		check_leaves(before, status);
		if (shard_clock_now() >= deadline)
		{
			warn_of_rest(node, status);
			return false;
		}
		before = status;
		shard_command_nap();
	}
	return true;
}

/* ---- to stay ----------------------------------------------------------------------------------- */

static void
send_stay(void *timeout)
{
	ShardCommand command = {.kind = SHARD_COMMAND_STAY, .text = shard_command_who()};

	(void) shard_command_send(&command, *(int64 *) timeout, "cannot cancel the leave of this node");
}

/* The command was not taken in time, and is withdrawn: no node carries it out any more. */
static void
check_taken(const ErrorData *error)
{
	const char *still;

	if (error == NULL || error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE ||
		(still = worker_still()) == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("cannot cancel the leave of this node: the control worker does not take the "
					"command"),
			 errdetail_internal("%s Nothing has changed.", still),
			 errhint("See shard_health() and pg_stat_activity; have the process go on (SIGCONT), "
					 "or restart the server, then call shard_leave(cancel => true) again.")));
}

/*
 * Is the command to be given again? What is just being decided comes first. And where it is unknown whether a
 * coordinator that is lost has carried it out, its successor says so: the leaving node may have heard already that it
 * was cancelled.
 */
static bool
is_open(const ErrorData *error)
{
	return error->sqlerrcode == SHARD_ERRCODE_OUTCOME_UNKNOWN ||
		   (error->detail != NULL && strstr(error->detail, "try again") != NULL);
}

/*
 * Has the cluster decide that this node stays.
 */
static void
stay(int32 node, int64 deadline)
{
	ErrorData *error;
	ShardMemberStatus status;

	for (;;)
	{
		int64 left = Max(deadline - shard_clock_now(), SHARD_COMMAND_SECOND);

		error = shard_attempt(send_stay, &left);
		check_taken(error);
		if (error != NULL && (!is_open(error) || shard_clock_now() >= deadline))
			ReThrowError(error);
		status = own_status(node);
		if (error == NULL && status != SHARD_MEMBER_LEAVING)
			return;
		if (shard_clock_now() >= deadline)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("the cluster has not decided in time that this node stays"),
					 errhint("See shard_members, and call shard_leave(cancel => true) again.")));
		shard_command_nap();
	}
}

/* ---- the function ------------------------------------------------------------------------------ */

/*
 * shard_leave(timeout interval = '60 s', cancel boolean = false) returns boolean: whether it has left in that time; it
 * goes on in any case. To cancel: true, or an error.
 */
Datum
shard_admin_leave(PG_FUNCTION_ARGS)
{
	int64 timeout = shard_command_timeout(fcinfo, 0);
	bool cancel = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
	int64 deadline = shard_clock_now() + timeout;
	ShardMemberStatus status;
	ShardBoardView view;

	shard_command_begin("shard_leave()");
	shard_command_not_written_off();
	shard_board_get(shard_shmem_database(), &view);
	status = own_status(view.node);
	if (view.known && view.members <= 1 && status != SHARD_MEMBER_REMOVED)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("this node is the only member of its cluster"),
						errhint("There is no member that could have its shards; drop the "
								"extension to end this node.")));
	if (status != SHARD_MEMBER_REMOVED)
		shard_command_not_downed();
	if (cancel && status == SHARD_MEMBER_REMOVED)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot cancel the leave of this node"),
						errdetail("This node has left its cluster, and its shards live at other "
								  "members."),
						errhint("An extension that is created again can join again; see "
								"shard_join().")));
	if (cancel)
	{
		stay(view.node, deadline);
		PG_RETURN_BOOL(true);
	}
	notice_dead_letters(status == SHARD_MEMBER_EXITING || status == SHARD_MEMBER_REMOVED);
	if (status == SHARD_MEMBER_LEAVING || status == SHARD_MEMBER_EXITING ||
		status == SHARD_MEMBER_REMOVED)
		notice_progress(view.node, status);
	else
	{
		refuse_resharding();
		refuse_copies();
		begin_to_leave(Max(timeout, 1));
	}
	if (!wait_until_left(view.node, deadline))
		PG_RETURN_BOOL(false);
	notice_dropped();
	PG_RETURN_BOOL(true);
}
