/*
 * sql/operate/admin_address.c
 *		SQL function of operators: shard_set_address.
 *
 * The operator's word for where a node is (I15). The address is tried first, so that a slip of the pen cuts off no
 * node, and set at the coordinator alone, by a role that may call the function there: a command that other nodes could
 * send would be theirs to forge. A node that does not find itself, and so cannot be the coordinator that it would have
 * to be, learns by the same call where it is.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "sql/operate/command.h"
#include "link/peer.h"
#include "link/peer_client.h"
#include "shared/board.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_admin_set_address);

#define LOOK_TIMEOUT_MS 15000

/*
 * Errors unless the node answers there: this very start of it if it is this one.
 */
static void
look_there(const char *dsn, int32 node, const ShardBoardView *view)
{
	ShardWho who = {0};
	ShardReader reader;
	char *answer;
	int length;
	bool good;

	answer = shard_peer_client_call(dsn, psprintf("node %d, \"%s\"", node, dsn), "who", "", 0,
									LOOK_TIMEOUT_MS, &length);
	reader = (ShardReader){answer, answer + (answer != NULL ? length : 0), false};
	good = answer != NULL && shard_who_get(&reader, &who) && who.node == node &&
		   shard_record_uuid_equal(who.cluster, view->cluster) &&
		   (node != view->node || shard_record_uuid_equal(who.incarnation, view->incarnation));
	if (good)
		return;
	ereport(
		ERROR,
		(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		 errmsg("node %d is not at that address", node),
		 errdetail("Tried \"%s\" and found %s.", dsn,
				   who.node != 0 ? psprintf("node %d of another cluster or start, or another "
											"node",
											who.node)
								 : "no node that knows its identity"),
		 errhint(
			 "Give an address that means its database for all members; its server has to run.")));
}

/*
 * Errors where others decide.
 */
static void
check_office(const char *dsn, int32 node, const ShardBoardView *view)
{
	if (view->coordinator == view->node)
		return;
	if (view->coordinator != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot execute shard_set_address() here: node %d is the coordinator",
						view->coordinator),
				 errdetail("A role that can speak for a member could send such a command from "
						   "there."),
				 errhint("Call it at node %d: SELECT shard_set_address(%s, %d)", view->coordinator,
						 quote_literal_cstr(dsn), node)));
	if (node != view->node)
		shard_command_need_coordinator("shard_set_address()");
}

/*
 * shard_set_address(dsn text, node int = NULL) returns void
 */
Datum
shard_admin_set_address(PG_FUNCTION_ARGS)
{
	char *dsn = shard_command_text(fcinfo, 0, "dsn");
	ShardCommand command = {.kind = SHARD_COMMAND_ADDRESS, .ground = SHARD_ADDRESS_SAID};
	ShardBoardView view;

	shard_command_begin("shard_set_address()");
	shard_peer_check_dsn(dsn, "dsn");
	dsn = shard_peer_complete_dsn(dsn, shard_command_socket_folder());
	shard_command_not_gone();
	shard_command_not_downed();
	shard_command_wait_known();
	shard_board_get(shard_shmem_database(), &view);
	command.node = PG_ARGISNULL(1) ? view.node : PG_GETARG_INT32(1);
	command.text = dsn;
	shard_command_member_remains("shard_set_address()", command.node);
	check_office(dsn, command.node, &view);
	look_there(dsn, command.node, &view);
	(void) shard_command_send(&command, SHARD_COMMAND_TIMEOUT,
							  psprintf("the address of node %d cannot be changed now",
									   command.node));
	PG_RETURN_VOID();
}
