/*
 * sql/view/health_cluster.c
 *		What is wrong with the cluster, as this node knows it; a part of shard_health.
 *
 * Read from shared memory and from what was decided; the control worker is asked for what it has observed. Other nodes
 * are not asked, for a node that cannot be reached must not make this slow, with two exceptions: where a silent node's
 * address answers, it is asked for its identity; and silent nodes are asked, for a moment, whether entities run there,
 * and other members, whether they hear those that do not say so.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "sql/cluster/cluster_alive.h"
#include "sql/cluster/cluster_view.h"
#include "registry/control_store.h"
#include "core/member/membership.h"
#include "core/map/type_number.h"
#include "base/guc.h"
#include "base/next_start.h"
#include "sql/view/health.h"
#include "shared/link_trouble.h"
#include "link/peer.h"
#include "link/peer_client.h"
#include "shared/board.h"
#include "registry/security.h"
#include "base/rights.h"

#include "base/compat.h"

/* Silence for this time counts as a problem even before the failure detector says so; in seconds. */
#define NOT_HEARD 60

/* A node that answers the control worker's calls answers this one, too. */
#define WHO_TIMEOUT_MS 1000

/* A link that failed once is tried again within that time, and most often with success; in seconds. */
#define DATA_LINK_FAILS 5

/* Why this node is fenced, as far as it has learned. */
static const char *
why_fenced(int32 self)
{
	const ShardDirectoryMember *member;
	int count;

	(void) shard_cluster_view_directory(&count);
	member = shard_directory_find(self);
	if (member == NULL)
		return "its cluster does not know it any more; see the server log";
	switch ((ShardMemberStatus) member->record.status)
	{
		case SHARD_MEMBER_REMOVED:
			return "it has left its cluster; read from it what is needed, then drop the extension or the "
				   "database, and join an empty one, or make it a node of its own with "
				   "shard_reset_cluster_data()";
		case SHARD_MEMBER_WRITTEN_OFF:
			return "it was written off, for good, and its shards start again, empty, at other "
				   "members; read from it what is needed, then drop the extension or the "
				   "database, or make it a node of its own with shard_reset_cluster_data(force "
				   "=> true)";
		case SHARD_MEMBER_DOWN:
			return "this start of it was downed; the next one will be admitted";
		default:
			return "another start of it was admitted; see the server log";
	}
}

/*
 * What the coordinator says to the claim of this start, to be added to a sentence. It may name addresses.
 */
static const char *
refusal(const ShardBoardView *view)
{
	if (view->refusal[0] == '\0')
		return "";
	return shard_rights_all_stats() ? psprintf("; %s", view->refusal) : "; see the server log";
}

/* Why there is no control worker, for which a region worker has to find the extension, as far as anybody has told. */
static const char *
why_no_control(ShardDatabase *db)
{
	ShardWorkerTurns turns;
	ShardWorkerSlot *slot = &db->worker[SHARD_CONTROL_WORKER];
	const char *no_room = shard_health_no_room(slot);

	for (int i = 0; no_room == NULL && i < SHARD_MAX_WORKERS; i++)
		no_room = shard_health_no_room(&db->worker[i]);
	if (no_room != NULL)
		return no_room;
	shard_shmem_turns(slot, &turns);
	if (turns.failures > 0)
		return psprintf("it has ended with an error, and is started again after a pause: %s",
						shard_rights_all_stats() ? turns.error : "see the server log");
	return "it starts within a second of CREATE EXTENSION or of the server; if not, see the log";
}

/*
 * This node itself: may it handle messages, and does it hear of a coordinator?
 */
static void
check_self(ShardHealth *health, ShardDatabase *db, const ShardBoardView *view)
{
	if (shard_next_start_lacks_quorum())
		shard_health_add(health,
						 "this server will not start again: in its configuration files "
						 "shard.downing_strategy is static_quorum, and shard.static_quorum_size is "
						 "not set; set it to more than half of the members that are planned, or "
						 "choose another strategy");
	if (!shard_shmem_worker_runs(db, SHARD_CONTROL_WORKER))
		shard_health_add(health,
						 psprintf("the control worker does not run: %s", why_no_control(db)));
	else if (!view->known)
		shard_health_add(health, "the control worker has not read the node's identity yet: "
								 "messages wait");
	if (!view->known)
		return;
	if (view->fenced)
		shard_health_add(health, psprintf("this node is fenced, its data can only be read: %s",
										  why_fenced(view->node)));
	else if (view->downed)
		shard_health_add(
			health, psprintf("this node was downed: it handles nothing, takes no messages and does "
							 "not vote, and its shards wait; restart its server, or call "
							 "shard_admit(%d, %d) here",
							 view->node, view->inc_no + 1));
	else if (!view->handle)
		shard_health_add(health, psprintf("this node handles no messages: %s%s",
										  view->why[0] != '\0' ? view->why : "not admitted yet",
										  refusal(view)));
	else if (!view->push)
		shard_health_add(
			health, psprintf("this node is not admitted to its cluster yet: it handles its own "
							 "messages, and exchanges none with other nodes%s",
							 refusal(view)));
	if (view->unread[0] != '\0')
		shard_health_add(
			health, psprintf("no node can join: %s; see the server log, and drop the type with "
							 "shard_drop_type() if its table cannot be mended",
							 view->unread));
	if (view->lacks[0] != '\0')
		shard_health_add(
			health,
			strstr(view->lacks, SHARD_TYPE_NUMBER_WHY) != NULL
				? psprintf(
					  "the cluster has no number for entity type %s, which was here before "
					  "this node joined; drop it with shard_drop_type(), or let owners share "
					  "workers with shard.owners_may_share_workers at the coordinator, node %d",
					  view->lacks, view->coordinator)
				: psprintf(
					  "the cluster does not take entity type %s as it is here; drop others with "
					  "shard_drop_type(), or start those of this node at other members, too",
					  view->lacks));
}

/* The voters, as far as this node knows. */
typedef struct Voters
{
	int number;
	int missing;
	bool answers;		  /* one of them does */
	StringInfoData names; /* of those that are missing */
} Voters;

/* The voters that are not reached. A start that was downed does not vote (C7). */
static void
look_at_voters(Voters *voters, List *reports)
{
	ListCell *cell;
	int count;

	memset(voters, 0, sizeof(*voters));
	initStringInfo(&voters->names);
	(void) shard_cluster_view_directory(&count);
	foreach (cell, reports)
	{
		const ShardMemberReport *report = lfirst(cell);
		const ShardDirectoryMember *member = shard_directory_find(report->node);

		if (!report->voter)
			continue;
		voters->number++;
		if (report->reachable && (!member || member->record.status != SHARD_MEMBER_DOWN))
			continue;
		voters->answers |= shard_cluster_view_answers(report);
		appendStringInfo(&voters->names, voters->missing++ == 0 ? "%d" : ", %d", report->node);
	}
}

/*
 * Why there is no coordinator. With a journal no member votes (R14); of two members one does (R11).
 */
static const char *
why_no_coordinator(const ShardBoardView *view, const Voters *voters)
{
	if (voters->number == 0 && shard_journal_dsn[0] != '\0')
		return "no member that is heard reaches the journal";
	if (voters->number == 0 && view->era > 0)
		return psprintf(
			"the cluster's era %d is known here, and no member has told yet what was decided in "
			"it: see the server log for the node that began the era; if that node does not go "
			"on, call shard_force_voters() at the node that has learned most",
			view->era);
	if (voters->missing <= (voters->number - 1) / 2)
		return "none was elected yet, or the one that was elected is not heard";
	if (voters->answers)
		return psprintf(
			"the voters that this node does not hear, node%s %s, answer it, and one of them may "
			"be the coordinator",
			voters->missing > 1 ? "s" : "", voters->names.data);
	return psprintf("there is no majority of the voters: node%s %s %s not heard%s",
					voters->missing > 1 ? "s" : "", voters->names.data,
					voters->missing > 1 ? "are" : "is",
					view->members != 2 ? ""
									   : ". Of two members only one votes, so this lasts "
										 "until it is back; a third member, which need not host "
										 "anything, would let the others go on");
}

/*
 * What is lost while there is no coordinator; known homes go on (L1). If voters answer this node but cannot call it, it
 * has a link to mend before all else, which is said first. A former life of a node votes with nobody and hears no
 * coordinator, whoever is one.
 */
static void
check_coordinator(ShardHealth *health, const ShardBoardView *view, List *reports, bool answers)
{
	Voters voters;

	if (view->superseded || shard_cluster_view_coordinator(reports) != 0)
		return;
	look_at_voters(&voters, reports);
	if (voters.answers != answers)
		return;
	shard_health_add(health,
					 psprintf("%s: shards without a home get none and nodes cannot join%s; %s",
							  answers ? "this node hears of no coordinator"
									  : "there is no coordinator",
							  answers ? " here" : "", why_no_coordinator(view, &voters)));
}

/*
 * Does the coordinator know what runs here? Homes that it gives before are at other nodes, and stay there until shards
 * are rebalanced. While this node is alone no other node could get them.
 */
static void
check_types(ShardHealth *health, ShardDatabase *db, const ShardBoardView *view, List *reports)
{
	if (!view->push || view->members < 2 || shard_cluster_view_coordinator(reports) == 0)
		return;
	if (!view->registered || view->types != shard_board_types(db))
		shard_health_add(health, "the coordinator does not know all entity types of this node yet: "
								 "their shards get no home here before");
}

static const char *
since(const ShardMemberReport *report)
{
	if (report->heard_us < 0)
		return "since the control worker started";
	return psprintf("for " INT64_FORMAT " s", report->heard_us / 1000000);
}

/* Which role has to be let in where, for a link that works in one direction alone. */
static char *
let_in(int32 node)
{
	return psprintf(
		"see to it that the server of node %d listens where its dsn in shard_members says (host, "
		"port, firewall), and lets the role in that is named there: pg_hba.conf, password, LOGIN, "
		"shard_allow_peer()",
		node);
}

/*
 * The node that answers at the address of a silent member, if that is not the member: the member's database was dropped
 * there and created again, or the address leads elsewhere. NULL: it is the member, or that is unknown (yet). The
 * database there answers the calls of others, so this is short.
 */
static const char *
other_there(const ShardBoardView *view, const ShardMemberRecord *record, int32 node)
{
	ShardPeerQuestion question = {.dsn = record->dsn, .bytes = ""};
	ShardReader reader;
	ShardWho who;

	shard_peer_client_ask(&question, 1, "who", WHO_TIMEOUT_MS);
	if (!question.answered)
		return NULL;
	/* a copy, or a node that does not know its identity yet: that is no reason to write off a member */
	if (question.answer == NULL)
		return NULL;
	reader = (ShardReader){question.answer, question.answer + question.answer_length, false};
	if (!shard_who_get(&reader, &who))
		return NULL;
	if (!shard_record_uuid_equal(who.cluster, view->cluster))
		return psprintf("node %d of another cluster", who.node);
	return who.node != node ? psprintf("node %d", who.node) : NULL;
}

/* How messages for it fare, whose links are others. */
static const char *
what_waits(int32 node)
{
	ShardLinkTrouble trouble;

	if (!shard_link_trouble_of(shard_shmem_database(), node, SHARD_LINK_ROWS, &trouble))
		return "";
	return psprintf("; messages for it wait here%s%s",
					shard_rights_all_stats() ? ", the link for them has failed: " : "",
					shard_rights_all_stats() ? trouble.error : "");
}

/*
 * The link to a member that is there. What is silent and answers needs no start: it cannot call.
 */
static void
check_link(ShardHealth *health, const ShardBoardView *view, const ShardDirectoryMember *member,
		   const ShardMemberReport *report)
{
	int32 node = member->node;
	const char *error = shard_rights_all_stats() ? report->link_error : "";
	const char *other = NULL;
	bool silent =
		shard_cluster_view_is_silent(report) || report->heard_us > NOT_HEARD * INT64CONST(1000000);

	if (silent && shard_cluster_view_answers(report))
		other = other_there(view, &member->record, node);
	if (other != NULL)
		shard_health_add(
			health,
			psprintf("another database answers at the address of node %d, %s: if that of node %d "
					 "was dropped and created again, what it had is lost; give the node up with "
					 "shard_write_off(%d), then shard_join() makes the new database a member; if "
					 "the node is elsewhere, say where, with shard_set_address()",
					 node, other, node, node));
	else if (silent && shard_cluster_view_answers(report))
		shard_health_add(
			health, psprintf("node %d answers calls, but has not called node %d %s: it cannot, as "
							 "shard_health() there says; %s",
							 node, view->node, since(report), let_in(view->node)));
	else if (silent && report->entities_run)
		shard_health_add(
			health,
			psprintf(
				"node %d has not been heard %s, but its region workers run there and may handle "
				"messages: its control worker %s; do not give the node up: its entities "
				"would be active at two nodes%s",
				node, since(report),
				report->coordinator_runs ? "cannot call, as shard_health() there says"
				: report->coordinator_fails
					? "does not run, for a reason that shard_health() there says, such as a full disk"
					: "stands still; look there at shard_health(), pg_stat_activity and "
					  "pg_locks, end transactions that lock tables of schema shard, have "
					  "the process go on (SIGCONT), or restart the server",
				what_waits(node)));
	else if (silent && report->heard_by != NULL)
		shard_health_add(
			health,
			psprintf("node %d has not been heard %s, but %s hear%s it: the link between this "
					 "node, node %d, and node %d is cut%s%s; mend it, and do not give the "
					 "node up",
					 node, since(report), report->heard_by, report->heard_by_several ? "" : "s",
					 view->node, node, error[0] != '\0' ? ": " : "", error));
	else if (silent && report->mute)
		shard_health_add(
			health, psprintf("node %d has not been heard %s: its server takes connections, and "
							 "answers nothing, so it may be frozen; have it go on (SIGCONT), or "
							 "end it for good before the node is given up",
							 node, since(report)));
	else if (silent)
		shard_health_add(health,
						 psprintf("node %d has not been heard %s%s%s; see shard_members", node,
								  since(report), error[0] != '\0' ? ": " : "", error));
	else if (shard_cluster_view_is_deaf(report))
		shard_health_add(
			health, psprintf("node %d calls node %d, but calls to it have failed for " INT64_FORMAT
							 " s%s%s; what is for it waits; %s",
							 node, view->node, report->failing_us / 1000000,
							 error[0] != '\0' ? ": " : "", error, let_in(node)));
}

/* What follows from a link that has failed for that long. error: to be shown behind it. */
static char *
data_link_fails(ShardLinkUse use, int32 node, int64 seconds, const char *error)
{
	switch (use)
	{
		case SHARD_LINK_ROWS:
			return psprintf(
				"messages for node %d wait, the link for them has failed for " INT64_FORMAT
				" s%s; see shard_peers",
				node, seconds, error);
		case SHARD_LINK_RECORDS:
			return psprintf(
				"node %d does not store turns of shards that it has copies of, for " INT64_FORMAT
				" s%s; what these shards do is not shown; see shard_replicas",
				node, seconds, error);
		default:
			return psprintf(
				"asks of entities at node %d fail, no connection for them could be made "
				"for " INT64_FORMAT " s%s; see at its server to max_connections, and to CONNECTION "
				"LIMIT and login of the role in its dsn",
				node, seconds, error);
	}
}

/*
 * Links of region workers to a member that answers the calls of the control worker: they alone meet some obstacles, a
 * table there that cannot grow, or a limit of connections.
 */
static void
check_data_links(ShardHealth *health, const ShardMemberReport *report)
{
	ShardDatabase *db = shard_shmem_database();
	TimestampTz now = GetCurrentTimestamp();
	ShardLinkTrouble trouble;

	if (!report->reachable || !shard_cluster_view_answers(report))
		return;
	for (ShardLinkUse use = SHARD_LINK_ROWS; use <= SHARD_LINK_RECORDS; use++)
	{
		const char *error;

		if (!shard_link_trouble_of(db, report->node, use, &trouble) ||
			now - trouble.since < DATA_LINK_FAILS * USECS_PER_SEC)
			continue;
		error = shard_rights_all_stats() ? psprintf(": %s", trouble.error) : "";
		shard_health_add(health, data_link_fails(use, report->node,
												 (now - trouble.since) / USECS_PER_SEC, error));
	}
}

/*
 * A member that tells homes that were not decided, as far as this node knows (T6), or sends to what there is not (T9).
 */
static void
check_facts(ShardHealth *health, int32 node)
{
	ShardLinkTrouble trouble;

	if (shard_link_trouble_of(shard_shmem_database(), node, SHARD_LINK_FACTS, &trouble))
		shard_health_add(health, psprintf("node %d, or a caller in its name, tells homes that the "
										  "cluster has not decided, and is not believed: %s",
										  node, trouble.error));
	if (shard_link_trouble_of(shard_shmem_database(), node, SHARD_LINK_TARGETS, &trouble))
		shard_health_add(health, psprintf("node %d, or a caller in its name, sends to shards "
										  "that do not exist, and what it sends is passed over: "
										  "%s",
										  node, trouble.error));
}

/* One other member. */
static void
check_member(ShardHealth *health, const ShardBoardView *view, const ShardDirectoryMember *member,
			 const ShardMemberReport *report)
{
	int32 node = member->node;

	check_facts(health, node);
	switch ((ShardMemberStatus) member->record.status)
	{
		case SHARD_MEMBER_DOWN:
			/* No node talks to it, so none hears whether its server runs (I9). */
			shard_health_add(
				health,
				psprintf(
					"node %d is down: its shards wait for another start of it; restart its "
					"server if it runs, or call shard_admit(%d, %d) there; if not, start it; "
					"if it is lost, promote its standby, or give it up with shard_write_off(%d)",
					node, node, member->record.inc_no + 1, node));
			return;
		case SHARD_MEMBER_NONE:
		case SHARD_MEMBER_REMOVED:
		case SHARD_MEMBER_WRITTEN_OFF:
			return;
		case SHARD_MEMBER_JOINING:
		case SHARD_MEMBER_WEAKLY_UP:
		case SHARD_MEMBER_UP:
		case SHARD_MEMBER_LEAVING:
		case SHARD_MEMBER_EXITING:
			break;
	}
	if (report == NULL)
		return;
	check_link(health, view, member, report);
	check_data_links(health, report);
}

/*
 * Another node wants a member's place (I14). Of this node itself that is news only while it has the place.
 */
static void
check_claim(ShardHealth *health, const ShardBoardView *view, const ShardDirectoryMember *member,
			const ShardMemberReport *report, int32 coordinator)
{
	if (report == NULL || report->claimed == SHARD_NODE_UNCLAIMED ||
		(member->node == view->node && !view->push))
		return;
	if (report->claimed == SHARD_NODE_CLAIMED_ELSEWHERE)
	{
		shard_health_add(
			health,
			psprintf(
				"a clone or copy of node %d wants its place and is refused, and the address of "
				"node %d does not lead to it, or a caller speaks to node %d in its name: the "
				"server log of node %d has the role and where the call came from; end that "
				"server, if it is an old primary or a copy; to let it in, make sure that the one "
				"before does not live, and call shard_admit(%d, %d) at a member other than node %d",
				member->node, member->node, coordinator, coordinator, member->node,
				member->record.inc_no + 1, member->node));
		return;
	}
	shard_health_add(
		health,
		psprintf(
			"another start or a copy of node %d wants its place and is refused, see the "
			"server log of node %d; end that server, if it is an old primary or a copy; to let "
			"it in, make sure that the one before does not live, and call shard_admit(%d, %d) "
			"at a member other than node %d",
			member->node, coordinator, member->node, member->record.inc_no + 1, member->node));
}

static void
check_members(ShardHealth *health, const ShardBoardView *view, List *reports)
{
	const ShardDirectoryMember *members;
	int count;

	members = shard_cluster_view_directory(&count);
	for (int i = 0; i < count; i++)
	{
		const ShardMemberReport *report = shard_cluster_view_report_of(reports, members[i].node);

		if (members[i].node != view->node)
			check_member(health, view, &members[i], report);
		check_claim(health, view, &members[i], report, shard_cluster_view_coordinator(reports));
	}
}

/*
 * Connections that are not even begun: because of this server's own settings, or of what an address has.
 */
static void
check_connections(ShardHealth *health)
{
	bool all = shard_rights_all_stats();
	const char *problem = shard_peer_settings_problem();
	const ShardDirectoryMember *members;
	int count;

	if (problem != NULL)
		shard_health_add(health,
						 psprintf("this node connects to no other: %s",
								  all ? problem : "a file that a setting names cannot be used"));
	members = shard_cluster_view_directory(&count);
	for (int i = 0; i < count; i++)
	{
		const ShardMemberRecord *record = &members[i].record;

		if (record->dsn == NULL || record->dsn[0] == '\0' ||
			record->status == SHARD_MEMBER_REMOVED || record->status == SHARD_MEMBER_WRITTEN_OFF)
			continue;
		problem = shard_peer_dsn_problem(record->dsn);
		if (problem != NULL)
			shard_health_add(health,
							 psprintf("the address of node %d cannot be used, and is not: %s",
									  members[i].node, problem));
	}
}

/*
 * Names the database that others reach instead of this node: only a node that knows that it should be at that address
 * can see that.
 */
static void
check_own_address(ShardHealth *health, const ShardBoardView *view)
{
	const ShardDirectoryMember *member;
	const char *dsn = "";
	int count;

	(void) shard_cluster_view_directory(&count);
	member = shard_directory_find(view->node);
	if (member == NULL || member->record.dsn[0] == '\0')
		return;
	if (shard_rights_all_stats())
		dsn = psprintf(", \"%s\"", member->record.dsn);
	if (view->place == SHARD_NODE_PLACE_OTHER)
		shard_health_add(
			health, psprintf("another database answers at the address of this node, node %d%s: "
							 "other members call that database; if this one is no copy, say at "
							 "the coordinator where this node is, with shard_set_address()",
							 view->node, dsn));
	else if (view->place == SHARD_NODE_PLACE_NOBODY)
		shard_health_add(
			health, psprintf("no database answers this node at its own address, that of node "
							 "%d%s; let the address lead here, or say at the coordinator where "
							 "this node is, with shard_set_address()",
							 view->node, dsn));
	else if (view->place == SHARD_NODE_PLACE_RELAYED && member->record.ground != SHARD_ADDRESS_SAID)
		shard_health_add(health,
						 psprintf("the address of this node, node %d%s, is what a caller said, "
								  "and what members send there is passed on: by an attacker, or "
								  "by a proxy or router of yours; say where the node is with "
								  "shard_set_address()",
								  view->node, dsn));
}

/* For shard_control_store_learned: the minimum of members, 0 once it was met. */
static void
see_minimum(const ShardMapEntry *entry, void *arg)
{
	ShardSettingsRecord settings;
	int *minimum = arg;

	if (entry->key.kind == SHARD_MAP_FORMED && entry->key.a == 0 && !entry->deleted)
		*minimum = 0;
	else if (entry->key.kind == SHARD_MAP_SETTINGS && shard_record_get_settings(entry, &settings))
		*minimum = settings.min_members;
}

/*
 * Too few members have ever been there for the first homes (C4).
 */
static void
check_minimum(ShardHealth *health)
{
	ShardSecurity security = {0};
	const ShardDirectoryMember *members;
	int minimum = 0;
	int up = 0;
	int count;

	members = shard_cluster_view_directory(&count);
	for (int i = 0; i < count; i++)
		up += members[i].record.status == SHARD_MEMBER_UP;
	shard_security_begin_system(&security);
	shard_control_store_learned(SHARD_MAP_SETTINGS, see_minimum, &minimum);
	shard_control_store_learned(SHARD_MAP_FORMED, see_minimum, &minimum);
	shard_security_end(&security);
	if (up < minimum)
		shard_health_add(health, psprintf("%d of the %d members that shard.min_members wants are "
										  "up: shards get no homes before",
										  up, minimum));
}

/* The control worker runs, and does not answer. */
static void
say_still(ShardHealth *health, ShardDatabase *db)
{
	int pid = shard_shmem_worker_pid(db, SHARD_CONTROL_WORKER);

	shard_health_add(
		health,
		psprintf(
			"the control worker of this node, process %d, does not answer; if it was stopped "
			"have it go on (SIGCONT), end transactions that lock tables of schema shard "
			"(pg_locks), or end the process (pg_terminate_backend), for another one that takes "
			"its place; see pg_stat_activity and the server log",
			pid));
}

void
shard_health_cluster(ShardHealth *health)
{
	ShardDatabase *db = shard_shmem_database();
	ShardBoardView view;

	if (db == NULL || db->paused)
		return;
	shard_board_get(db, &view);
	check_self(health, db, &view);
	/* No node talks to a fenced or downed node: that it hears of none says nothing about them. */
	if (view.fenced || view.downed)
		return;
	if (view.known && shard_shmem_worker_runs(db, SHARD_CONTROL_WORKER))
	{
		List *reports = shard_cluster_view_reports();

		if (reports == NIL)
		{
			say_still(health, db);
			return;
		}
		shard_cluster_alive_ask_silent(reports);
		check_connections(health);
		check_coordinator(health, &view, reports, false);
		check_types(health, db, &view, reports);
		check_members(health, &view, reports);
		check_coordinator(health, &view, reports, true);
		check_own_address(health, &view);
		check_minimum(health);
		shard_health_room(health);
		shard_health_moves(health, reports);
	}
}
