/*
 * admin_cluster.c
 *		SQL functions of operators: join a cluster, leave it, and what to do about a lost node.
 *
 * Called by clients. All of it is decided by the control plane: these functions check what only the
 * client's backend can find out, hand a command to the coordinator worker, and wait for its answer. They
 * write nothing themselves, so a cancel or a crash on the way leaves it to the control plane to go on
 * with the command or not; calling the function again tells, and is harmless.
 *
 * shard_join in steps:
 * 1. the seed is asked to call back at our own address, and has to find this very incarnation there;
 * 2. the coordinator worker asks the cluster, and in one transaction gives up its own map and takes
 *    the cluster's id (R16). If anything dies before: nothing has happened, or "joining" is durable and
 *    the coordinator worker goes on by itself. After: this is a member that is not up yet;
 * 3. wait until it is.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "admin.h"
#include "catalog.h"
#include "cluster_view.h"
#include "control_store.h"
#include "coordinator.h"
#include "core/membership.h"
#include "directory.h"
#include "duration.h"
#include "executor.h"
#include "peer.h"
#include "peer_client.h"
#include "plane.h"
#include "way_back.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(shard_admin_join);
PG_FUNCTION_INFO_V1(shard_admin_leave);
PG_FUNCTION_INFO_V1(shard_admin_down);
PG_FUNCTION_INFO_V1(shard_admin_write_off);
PG_FUNCTION_INFO_V1(shard_admin_admit);
PG_FUNCTION_INFO_V1(shard_admin_force_voters);

/* The seed itself connects to us in that time (internal.c). */
#define CALL_BACK_TIMEOUT_MS 15000

/* A coordinator worker that has just been started knows its node after that. */
#define START_TIMEOUT (10 * SECOND)

/* The cluster's answer, and then the first time up. */
#define JOIN_TIMEOUT (60 * SECOND)
#define COMMAND_TIMEOUT (10 * SECOND)

#define SECOND INT64CONST(1000000)

/* How often a state that nobody announces is looked at, in ms. */
#define LOOK_INTERVAL 50

/*
 * What each command needs. A lock of the caller's on our tables would keep the coordinator worker from
 * answering, so he must not have written in this transaction.
 */
static void
begin(const char *function)
{
	PreventCommandDuringRecovery(function);
	PreventCommandIfParallelMode(function);
	shard_shmem_require();
	if (InSecurityRestrictedOperation() || shard_executor_in_handler())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot execute %s from within a handler", function)));
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("cannot execute %s in a transaction that has written", function),
						errhint("Commit first.")));
	(void) shard_catalog_get();
}

static void
nap(void)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = ShardWaitEvent("ShardCluster");
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LOOK_INTERVAL,
					 wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * The record of a member as decided now; NULL if there is none. Valid until the next call.
 */
static const ShardMemberRecord *
find_member(int32 node)
{
	const ShardDirectoryMember *member;
	ShardSecurity security = {0};

	PushActiveSnapshot(GetLatestSnapshot());
	shard_admin_open(&security);
	(void) shard_directory_refresh();
	shard_admin_close(&security);
	PopActiveSnapshot();
	member = shard_directory_find(node);
	return member != NULL ? &member->record : NULL;
}

/* ---- join ------------------------------------------------------------------------------------- */

/*
 * Who we are; waits for a coordinator worker that has just been started.
 */
static ShardWho
who_am_i(void)
{
	int64 deadline = shard_plane_now() + START_TIMEOUT;
	ShardWho who;

	while (!shard_coordinator_who(&who))
	{
		if (shard_plane_now() >= deadline)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("this node does not know yet who it is"),
							errdetail("Its coordinator worker has not spoken."),
							errhint("See shard_health() and the server's log.")));
		nap();
	}
	return who;
}

/*
 * The folder of this server's sockets, "" if it has none.
 */
static const char *
socket_folder(void)
{
	char *folders = pstrdup(Unix_socket_directories != NULL ? Unix_socket_directories : "");
	List *list = NIL;

	if (!SplitDirectoriesString(folders, ',', &list) || list == NIL)
		return "";
	return linitial(list);
}

/*
 * Has the seed call us back. own_dsn NULL: by the way that we come.
 */
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
		call.socket = socket_folder();
		if (call.rest == NULL)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("cannot tell this node's own address from seed_dsn"),
							errdetail("seed_dsn names a service."), errhint("Give own_dsn.")));
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
 * Errors unless the seed can be ours. Of another protocol version nothing else was read.
 */
static void
check_seed(const ShardWayBack *back, const char *seed_dsn)
{
	if (back->protocol_version != SHARD_PROTOCOL_VERSION)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("the seed speaks another version of the cluster protocol"),
						errdetail("It speaks version %d, this node version %d.",
								  back->protocol_version, SHARD_PROTOCOL_VERSION),
						errhint("Install the same version of the extension on both.")));
	if (!back->known)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the seed does not know yet who it is"),
				 errdetail("Asked at \"%s\".", seed_dsn),
				 errhint("See shard_health() there. Seeds are members: a copy, or a node whose "
						 "workers do not run, is none.")));
	if (strcmp(back->encoding, GetDatabaseEncodingName()) != 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the seed's database has another encoding"),
						errdetail("It is %s, that of this database is %s.", back->encoding,
								  GetDatabaseEncodingName()),
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
											  : "nobody who knows who he is"),
						errhint("Give the address of this database in own_dsn.")));
}

/*
 * Errors unless we find ourselves there, too: as the coordinator we shall look for our own next start.
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
	if (answer == NULL || !shard_coordinator_get_who(&reader, &there) ||
		!shard_record_uuid_equal(there.incarnation, me->incarnation))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("another node answers this node at its own address"),
				 errdetail("Tried \"%s\".", back->dsn),
				 errhint("Give an address in own_dsn that means this database everywhere.")));
}

/*
 * Waits until we are a member of that cluster and up, and returns our number.
 */
static int32
wait_until_up(ShardUuid cluster)
{
	int64 deadline = shard_plane_now() + JOIN_TIMEOUT;
	ShardPlaneView view;

	for (;;)
	{
		const ShardMemberRecord *record = NULL;

		shard_plane_get(shard_shmem_database(), &view);
		if (view.known && shard_record_uuid_equal(view.cluster, cluster))
			record = find_member(view.node);
		if (record != NULL && view.push &&
			(record->status == SHARD_MEMBER_UP || record->status == SHARD_MEMBER_WEAKLY_UP))
			return view.node;
		if (shard_plane_now() >= deadline)
			break;
		nap();
	}
	if (!shard_record_uuid_equal(view.cluster, cluster))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("the cluster did not answer in time"),
				 errdetail("This node is %s.", view.why[0] != '\0' ? view.why : "not joined"),
				 errhint("Call shard_join() again; see shard_health().")));
	ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("this node has joined as node %d, but is not up in time", view.node),
					errhint("It comes up by itself; see shard_members and shard_health().")));
	pg_unreachable();
}

/*
 * Of two members one votes (R11); whoever makes a cluster of two should know now.
 */
static void
notice_two(void)
{
	ShardPlaneView view;

	shard_plane_get(shard_shmem_database(), &view);
	if (view.members == 2)
		ereport(NOTICE,
				(errmsg("of two members only the older one votes"),
				 errdetail("If it is lost, known shards go on, but no shard gets a home and nobody "
						   "joins until it is back."),
				 errhint(
					 "With a third member, which need not host anything, any one may be lost.")));
}

/*
 * shard_join(seed_dsn text, own_dsn text = NULL) returns int
 */
Datum
shard_admin_join(PG_FUNCTION_ARGS)
{
	char *seed_dsn = shard_admin_text(fcinfo, 0, "seed_dsn");
	char *own_dsn = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	ShardCommand command = {.kind = SHARD_COMMAND_JOIN, .text = seed_dsn};
	ShardWayBack back;
	ShardWho me;
	int32 node;

	begin("shard_join()");
	shard_peer_check_dsn(seed_dsn, "seed_dsn");
	if (own_dsn != NULL)
		shard_peer_check_dsn(own_dsn, "own_dsn");
	me = who_am_i();
	back = try_way_back(seed_dsn, own_dsn);
	check_seed(&back, seed_dsn);
	if (shard_record_uuid_equal(back.seed.incarnation, me.incarnation))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("seed_dsn is the address of this node itself"),
						errhint("Give the address of a member of the cluster to be joined.")));
	/* A member already: an earlier call came that far. */
	if (!shard_record_uuid_equal(back.seed.cluster, me.cluster))
	{
		check_way_back(&back, &me);
		check_way_to_self(&back, &me);
		command.text2 = back.dsn;
		(void) shard_coordinator_command(&command, JOIN_TIMEOUT);
	}
	node = wait_until_up(back.seed.cluster);
	notice_two();
	PG_RETURN_INT32(node);
}

/* ---- the rest --------------------------------------------------------------------------------- */

/*
 * Errors unless this node is the coordinator, and so can carry out such a command.
 */
static void
check_coordinator(const char *function)
{
	const ShardMemberRecord *record;
	ShardPlaneView view;
	int32 node;

	shard_plane_get(shard_shmem_database(), &view);
	node = shard_cluster_view_coordinator(shard_cluster_view_reports(), &view);
	if (node == view.node)
		return;
	record = node != 0 ? find_member(node) : NULL;
	if (record == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot execute %s: there is no coordinator", function),
						errdetail("A coordinator needs a majority of the voters."),
						errhint("See shard_members. If the voters are lost for good, see "
								"shard_force_voters().")));
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("cannot execute %s here: this node is not the coordinator", function),
					errhint("Call it on node %d, \"%s\".", node, record->dsn)));
}

/*
 * A command about one node, carried out by the coordinator.
 */
static void
command_about(FunctionCallInfo fcinfo, const char *function, ShardCommandKind kind)
{
	ShardCommand command = {.kind = kind, .node = PG_GETARG_INT32(0)};

	begin(function);
	if (find_member(command.node) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("there is no node %d", command.node),
				 errhint("See shard_members.")));
	check_coordinator(function);
	(void) shard_coordinator_command(&command, COMMAND_TIMEOUT);
}

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

	if (shard_record_get_home(entry, &record) && shard_record_home_node(&record) == homes->node)
		homes->count++;
}

/*
 * Errors if shards live here: they would have to move first, and the node would be leaving for ever.
 */
static void
check_no_homes(int32 node)
{
	HomeCount homes = {.node = node};
	ShardSecurity security = {0};

	PushActiveSnapshot(GetLatestSnapshot());
	shard_admin_open(&security);
	shard_control_store_learned(SHARD_MAP_HOME, count_home, &homes);
	shard_admin_close(&security);
	PopActiveSnapshot();
	if (homes.count > 0)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("a node that is home of shards cannot leave"),
						errdetail("This one is home of " INT64_FORMAT
								  " shards, and moving shards is not supported yet.",
								  homes.count),
						errhint("See shard_homes.")));
}

/*
 * shard_leave(timeout interval = '60 s') returns boolean
 */
Datum
shard_admin_leave(PG_FUNCTION_ARGS)
{
	ShardCommand command = {.kind = SHARD_COMMAND_LEAVE};
	int64 timeout = shard_duration_from_interval(PG_GETARG_INTERVAL_P(0));
	ShardPlaneView view;

	begin("shard_leave()");
	if (timeout < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("timeout must not be negative")));
	shard_plane_get(shard_shmem_database(), &view);
	if (view.known && view.members <= 1)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("this node is the only member of its cluster"),
						errhint("There is nobody to leave to; drop the extension to end it.")));
	check_no_homes(view.node);
	(void) shard_coordinator_command(&command, timeout);
	PG_RETURN_BOOL(true);
}

/*
 * shard_down(node int) returns void
 */
Datum
shard_admin_down(PG_FUNCTION_ARGS)
{
	command_about(fcinfo, "shard_down()", SHARD_COMMAND_DOWN);
	PG_RETURN_VOID();
}

/*
 * shard_write_off(node int) returns void
 */
Datum
shard_admin_write_off(PG_FUNCTION_ARGS)
{
	command_about(fcinfo, "shard_write_off()", SHARD_COMMAND_WRITE_OFF);
	PG_RETURN_VOID();
}

/*
 * shard_admit(node int, incarnation int) returns void. The number says which newcomer is meant: that
 * which would follow the one that the caller knows.
 */
Datum
shard_admin_admit(PG_FUNCTION_ARGS)
{
	int32 node = PG_GETARG_INT32(0);
	int32 incarnation = PG_GETARG_INT32(1);
	const ShardMemberRecord *record;

	begin("shard_admit()");
	record = find_member(node);
	if (record != NULL && incarnation != record->inc_no + 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the next incarnation of node %d is %d, not %d", node,
							   record->inc_no + 1, incarnation),
						errhint("See shard_members; somebody may have been admitted meanwhile.")));
	command_about(fcinfo, "shard_admit()", SHARD_COMMAND_ADMIT);
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

	begin("shard_force_voters()");
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
	(void) shard_coordinator_command(&command, COMMAND_TIMEOUT);
	PG_RETURN_VOID();
}
