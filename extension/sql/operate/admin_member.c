/*
 * sql/operate/admin_member.c
 *		SQL function of operators: shard_join.
 *
 * In steps:
 * 0. what keeps this node itself from joining is said before others are called;
 * 1. the seed is asked to call back at this node's own address, and has to find this very incarnation there;
 * 2. the control worker asks the cluster, and in one transaction gives up its own map and takes
 *    the cluster's id (R16). If anything dies before: nothing has happened, or "joining" is durable and
 *    the control worker goes on by itself. After: this is a member that is not up yet;
 * 3. wait until it is.
 */
#include "postgres.h"

#include "commands/dbcommands.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "sql/operate/command.h"
#include "base/attempt.h"
#include "core/member/membership.h"
#include "link/peer.h"
#include "link/peer_client.h"
#include "shared/board.h"
#include "link/way_back.h"
#include "base/rights.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_admin_join);

/* The seed itself connects to this node in that time (internal.c). */
#define CALL_BACK_TIMEOUT_MS 15000

/* The cluster's answer, and then the first time up. */
#define JOIN_TIMEOUT (60 * SHARD_COMMAND_SECOND)

/* ---- join ------------------------------------------------------------------------------------- */

/* The identity of this node; waits for a control worker that has just been started. */
static ShardWho
who_am_i(void)
{
	ShardWho who;

	do
		shard_command_wait_known();
	while (!shard_control_who(&who));
	return who;
}

const char *
shard_command_socket_folder(void)
{
	char *folders = pstrdup(Unix_socket_directories != NULL ? Unix_socket_directories : "");
	List *list = NIL;

	if (!SplitDirectoriesString(folders, ',', &list) || list == NIL)
		return "";
	return linitial(list);
}

/* Has the seed call back. own_dsn NULL: by the way that the call comes. */
static ShardWayBack
try_way_back(const char *seed_dsn, const char *own_dsn)
{
	ShardWayBackCall call = {.seed = seed_dsn,
							 .dsn = own_dsn != NULL ? own_dsn : "",
							 .rest = "",
							 .socket = ""};
	ShardWayBack back;
	StringInfoData bytes;
	ShardReader reader;
	char *answer;
	int length;

	if (own_dsn == NULL)
	{
		call.rest = shard_peer_own_dsn(seed_dsn, get_database_name(MyDatabaseId));
		call.socket = shard_command_socket_folder();
		if (call.rest == NULL)
			elog(ERROR, "could not tell the own address from seed_dsn");
	}
	initStringInfo(&bytes);
	shard_way_back_put_call(&bytes, &call);
	answer = shard_peer_client_call(seed_dsn, psprintf("the seed, \"%s\"", seed_dsn), "call_back",
									bytes.data, bytes.len, CALL_BACK_TIMEOUT_MS, &length);
	reader = (ShardReader){answer, answer + length, false};
	if (answer == NULL || !shard_way_back_get(&reader, &back))
		ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION),
						errmsg("malformed answer from the seed, \"%s\"", seed_dsn)));
	return back;
}

/*
 * Errors unless the node may be this node's seed. Of another protocol version nothing else was read.
 */
static void
check_seed(const ShardWayBack *back, const char *seed_dsn)
{
	if (back->protocol_version != SHARD_PROTOCOL_VERSION)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("the seed speaks another version of the cluster protocol"),
						errdetail("The seed speaks version %d, this node version %d.",
								  back->protocol_version, SHARD_PROTOCOL_VERSION),
						errhint("Install the same version of the extension on both.")));
	if (!back->known)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the seed does not know its identity yet"),
				 errdetail("Asked at \"%s\".", seed_dsn),
				 errhint("See shard_health() there. Seeds are members: a copy, or a node whose "
						 "workers do not run, is none.")));
	if (strcmp(back->encoding, GetDatabaseEncodingName()) != 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the seed's database has another encoding"),
						errdetail("The seed's encoding is %s, that of this database is %s.",
								  back->encoding, GetDatabaseEncodingName()),
						errhint("Messages travel as they are stored: make a database of the same "
								"encoding.")));
}

/*
 * Errors unless the seed found this very start of this node.
 */
static void
check_way_back(const ShardWayBack *back, const ShardWho *me)
{
	if (!back->found || !shard_record_uuid_equal(back->there.incarnation, me->incarnation))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("another node answers at this node's own address"),
						errdetail("The seed tried \"%s\" and found %s.", back->dsn,
								  back->found ? psprintf("node %d of another cluster or start",
														 back->there.node)
											  : "no node that knows its identity"),
						errhint("Give the address of this database in own_dsn.")));
}

/*
 * Errors unless this node finds itself there, too: as the coordinator it will look for its own next start.
 */
static void
check_way_to_self(const ShardWayBack *back, const ShardWho *me)
{
	ShardWho there = {0};
	ShardReader reader;
	char *answer;
	int length;

	answer =
		shard_peer_client_call(back->dsn, psprintf("this node's own address, \"%s\"", back->dsn),
							   "who", "", 0, CALL_BACK_TIMEOUT_MS, &length);
	reader = (ShardReader){answer, answer + length, false};
	if (answer == NULL || !shard_who_get(&reader, &there) ||
		!shard_record_uuid_equal(there.incarnation, me->incarnation))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("another node answers this node at its own address"),
				 errdetail("Tried \"%s\".", back->dsn),
				 errhint("Give an address in own_dsn that means this database everywhere.")));
}

/*
 * A member already, when an earlier call came that far. Errors if it is to be none any more: no node comes back under
 * its number. It keeps the address that it has, whatever own_dsn says.
 */
static void
check_stays(const char *own_dsn)
{
	const ShardMemberRecord *record;
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	record = shard_command_member(view.node);
	if (record != NULL && record->status > SHARD_MEMBER_UP && record->status != SHARD_MEMBER_DOWN)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this node cannot join that cluster again"),
				 errdetail("This node was node %d there, which is %s.", view.node,
						   shard_membership_status_name(record->status)),
				 errhint(
					 "Join an empty database. shard_reset_cluster_data() makes this one a node of "
					 "its own, with its types and states; to join it has to be empty: here, read "
					 "what you need, DROP EXTENSION shard CASCADE, create it again, call "
					 "shard_allow_peer() again, and start the types.")));
	if (record != NULL && own_dsn != NULL && strcmp(own_dsn, record->dsn) != 0)
		ereport(WARNING,
				(errmsg("this node is node %d of that cluster already, and keeps its address",
						view.node),
				 shard_rights_all_stats() ? errdetail("The address is \"%s\".", record->dsn) : 0,
				 errhint("shard_set_address() changes it.")));
}

static void
check_not_self(const ShardWho *seed, const ShardWho *me)
{
	if (shard_record_uuid_equal(seed->incarnation, me->incarnation))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("seed_dsn is the address of this node itself"),
						errhint("Give the address of a member of the cluster to be joined.")));
}

static void
look_here(void *argument)
{
	ShardCommand command = {.kind = SHARD_COMMAND_JOIN, .look_only = true};

	(void) shard_control_command(&command, SHARD_COMMAND_START_TIMEOUT);
}

/*
 * Whether an earlier call came that far already that this node is a member of the seed's cluster; errors if it
 * cannot join another one, without a look at the way to it and back.
 */
static bool
is_member(const char *seed_dsn, const char *own_dsn, const ShardWho *me)
{
	ErrorData *error = shard_attempt(look_here, NULL);
	ShardPeerQuestion question = {.dsn = seed_dsn, .bytes = ""};
	ShardBoardView view;
	ShardReader reader;
	ShardWho seed;

	if (error == NULL)
		return false;
	shard_peer_client_ask(&question, 1, "who", CALL_BACK_TIMEOUT_MS);
	reader = (ShardReader){question.answer, question.answer + question.answer_length, false};
	if (question.answer == NULL || !shard_who_get(&reader, &seed))
		ReThrowError(error);
	check_not_self(&seed, me);
	if (!shard_record_uuid_equal(seed.cluster, me->cluster))
		ReThrowError(error);
	check_stays(own_dsn);
	shard_board_get(shard_shmem_database(), &view);
	if (view.fenced)
		ReThrowError(error);
	return true;
}

/* Waits until this node is a member of that cluster and up, and returns its number. */
static int32
wait_until_up(ShardUuid cluster)
{
	int64 deadline = shard_clock_now() + JOIN_TIMEOUT;
	ShardBoardView view;

	for (;;)
	{
		const ShardMemberRecord *record = NULL;

		shard_board_get(shard_shmem_database(), &view);
		if (view.known && shard_record_uuid_equal(view.cluster, cluster))
			record = shard_command_member(view.node);
		if (record != NULL && view.push &&
			(record->status == SHARD_MEMBER_UP || record->status == SHARD_MEMBER_WEAKLY_UP))
			return view.node;
		if (shard_clock_now() >= deadline)
			break;
		shard_command_nap();
	}
	if (!shard_record_uuid_equal(view.cluster, cluster))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("the cluster did not answer in time"),
				 errdetail("This node is %s.", view.why[0] != '\0' ? view.why : "not joined"),
				 errhint("Call shard_join() again; see shard_health().")));
	ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("this node has joined as node %d, but is not up in time", view.node),
					errhint("The node comes up by itself; see shard_members and shard_health().")));
	pg_unreachable();
}

/* Of two members one votes (R11); the operator that makes a cluster of two should know now. */
static void
notice_two(void)
{
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (view.members == 2)
		ereport(
			NOTICE,
			(errmsg("of two members only one votes, the older one as a rule"),
			 errdetail("If the member that votes is lost, shards with homes go on, but no shard "
					   "gets a home and no node joins until that member is back."),
			 errhint("With a third member, which need not host anything, any one may be lost.")));
}

/*
 * shard_join(seed_dsn text, own_dsn text = NULL) returns int
 */
Datum
shard_admin_join(PG_FUNCTION_ARGS)
{
	char *seed_dsn = shard_command_text(fcinfo, 0, "seed_dsn");
	char *own_dsn = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	ShardCommand command = {.kind = SHARD_COMMAND_JOIN, .named = shard_rights_all_stats()};
	ShardWayBack back;
	ShardWho me;
	int32 node;

	shard_command_begin("shard_join()");
	shard_peer_check_dsn(seed_dsn, "seed_dsn");
	seed_dsn = shard_peer_complete_dsn(seed_dsn, shard_command_socket_folder());
	if (own_dsn != NULL)
	{
		shard_peer_check_dsn(own_dsn, "own_dsn");
		own_dsn = shard_peer_complete_dsn(own_dsn, shard_command_socket_folder());
	}
	command.text = seed_dsn;
	shard_command_not_downed();
	me = who_am_i();
	if (is_member(seed_dsn, own_dsn, &me))
		PG_RETURN_INT32(wait_until_up(me.cluster));
	back = try_way_back(seed_dsn, own_dsn);
	check_seed(&back, seed_dsn);
	check_not_self(&back.seed, &me);
	if (shard_record_uuid_equal(back.seed.cluster, me.cluster))
		check_stays(own_dsn);
	else
	{
		check_way_back(&back, &me);
		check_way_to_self(&back, &me);
		command.own_dsn = back.dsn;
		(void) shard_control_command(&command, JOIN_TIMEOUT);
	}
	node = wait_until_up(back.seed.cluster);
	notice_two();
	PG_RETURN_INT32(node);
}
