/*
 * sql/operate/admin_move.c
 *		SQL functions of operators: move shards, say where they should be.
 *
 * The caller's mistakes are found here, as far as this node knows the cluster; the coordinator judges again. To cancel
 * a function that waits does not cancel the move (command.h).
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "sql/operate/command.h"
#include "registry/cluster_map.h"
#include "core/member/membership.h"
#include "core/base/timing.h"
#include "shared/board.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_admin_move);
PG_FUNCTION_INFO_V1(shard_admin_pin);
PG_FUNCTION_INFO_V1(shard_admin_unpin);
PG_FUNCTION_INFO_V1(shard_admin_give_up);
PG_FUNCTION_INFO_V1(shard_admin_rebalance);

/* To be prepared, to wait for others, and to be aborted, beyond the time that the type allows. */
#define MOVE_SLACK (120 * SHARD_COMMAND_SECOND)

/* Functions of types are asked twice: what should move, and where to. */
#define REBALANCE_TIMEOUT (SHARD_COMMAND_TIMEOUT + 2 * SHARD_STRATEGY_TIMEOUT)
#define DEFAULT_HANDOFF_MS 60000

static void
check_shard(const ShardClusterType *type, int32 shard)
{
	if (shard < 0 || shard >= type->record.number_of_shards)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("entity type \"%s\" has no shard %d", type->record.name, shard),
				 errdetail("The type's shards are 0 to %d.", type->record.number_of_shards - 1),
				 errhint("shard_shard_id() tells the shard of an entity.")));
}

static void
check_role(const ShardClusterType *type, int32 node, const ShardMemberRecord *member)
{
	if (!shard_membership_has_role(member, type->record.role))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("node %d does not host entity type \"%s\"", node, type->record.name),
				 errdetail("The type is hosted by members with role \"%s\".", type->record.role),
				 errhint("Set shard.roles there, and restart its server.")));
}

/*
 * Errors unless the node may be given shards of the type, as far as this is decided.
 */
static void
check_target(const ShardClusterType *type, int32 node)
{
	const ShardMemberRecord *member = shard_command_get_member(node);

	if (member->status != SHARD_MEMBER_UP)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("node %d cannot be given shards", node),
						errdetail("It is %s.", shard_membership_status_name(member->status)),
						errhint("Only members that are up can; see shard_members.")));
	if (member->evacuated)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("node %d cannot be given shards", node),
						errdetail("The node is being emptied."),
						errhint("Call shard_evacuate(%d, false) first.", node)));
	check_role(type, node, member);
}

/*
 * Errors where there is nothing to be moved.
 */
static void
check_home(const ShardClusterType *type, int32 shard, int32 node)
{
	int32 pin = shard_cluster_map_pin(type->type_id, shard);
	ShardHomeRecord home;

	if (!shard_cluster_map_home(type->type_id, shard, &home))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("shard %d of entity type \"%s\" has no home yet", shard, type->record.name),
				 errdetail("The shard's first message gives it a home."),
				 errhint("shard_pin() says where that should be.")));
	if (pin != 0 && pin != node)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("shard %d of entity type \"%s\" is pinned to node %d", shard,
						type->record.name, pin),
				 errdetail("The shard would be moved back at once."),
				 errhint("Pin it to node %d with shard_pin(), or shard_unpin() it first.", node)));
	if (home.phase != SHARD_HOME_MOVING && shard_record_home_node(&home) == node)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("shard %d of entity type \"%s\" is on node %d already", shard,
							   type->record.name, node),
						errhint("See shard_homes.")));
}

/* What a command is about, as far as this node knows the cluster. */
typedef struct Look
{
	const char *name; /* of the type */
	const ShardCommand *command;
	ShardClusterType type; /* found */
} Look;

static void
look_at_type(void *arg)
{
	Look *look = arg;

	shard_cluster_map_get_type(look->name, &look->type);
}

static void
look_at_move(void *arg)
{
	Look *look = arg;

	look_at_type(look);
	check_shard(&look->type, look->command->shard);
	check_target(&look->type, look->command->node);
	check_home(&look->type, look->command->shard, look->command->node);
}

/*
 * shard_move(type_name text, shard int, node int) returns void: when the move is decided, or has failed.
 */
Datum
shard_admin_move(PG_FUNCTION_ARGS)
{
	char *name = shard_command_text(fcinfo, 0, "type_name");
	ShardCommand command = {.kind = SHARD_COMMAND_MOVE,
							.shard = shard_command_int(fcinfo, 1, "shard"),
							.node = shard_command_int(fcinfo, 2, "node")};
	Look look = {.name = name, .command = &command};
	int32 timeout_ms;

	shard_command_begin("shard_move()");
	shard_command_not_gone();
	shard_command_look(look_at_move, &look);
	shard_command_need_coordinator("shard_move()");
	command.type_id = look.type.type_id;
	command.text = shard_command_who();
	timeout_ms = look.type.record.handoff_timeout_ms;
	/* The move before it, if any, and its own. */
	(void) shard_command_send(&command,
							  2 * (timeout_ms > 0 ? timeout_ms : DEFAULT_HANDOFF_MS) *
									  INT64CONST(1000) +
								  MOVE_SLACK,
							  psprintf("could not move shard %d of entity type \"%s\" to node %d",
									   command.shard, name, command.node));
	PG_RETURN_VOID();
}

/*
 * Errors unless the node may ever have shards of the type; it need not be up now.
 */
static void
check_pin(const ShardClusterType *type, int32 node)
{
	const ShardMemberRecord *member = shard_command_member(node);

	if (member == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("there is no node %d", node),
				 errdetail("A shard can be pinned to a node that has joined; it need not be up."),
				 errhint("Join it first, with shard_join(). See shard_members.")));
	if (member->status == SHARD_MEMBER_REMOVED || member->status == SHARD_MEMBER_WRITTEN_OFF)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("shards cannot be pinned to node %d", node),
						errdetail("It is %s.", shard_membership_status_name(member->status)),
						errhint("See shard_members.")));
	check_role(type, node, member);
}

static void
look_at_pin(void *arg)
{
	Look *look = arg;

	look_at_type(look);
	check_shard(&look->type, look->command->shard);
	if (look->command->node != 0)
		check_pin(&look->type, look->command->node);
}

/*
 * Tells the cluster where a shard should be; node 0: anywhere.
 */
static void
pin(FunctionCallInfo fcinfo, const char *function, int32 node)
{
	char *name = shard_command_text(fcinfo, 0, "type_name");
	ShardCommand command = {.kind = SHARD_COMMAND_PIN,
							.shard = shard_command_int(fcinfo, 1, "shard"),
							.node = node};
	Look look = {.name = name, .command = &command};

	shard_command_begin(function);
	shard_command_not_gone();
	shard_command_look(look_at_pin, &look);
	shard_command_need_coordinator(function);
	command.type_id = look.type.type_id;
	command.text = shard_command_who();
	(void) shard_command_send(&command, SHARD_COMMAND_TIMEOUT,
							  psprintf("could not %s shard %d of entity type \"%s\"",
									   node != 0 ? "pin" : "unpin", command.shard, name));
}

/*
 * shard_pin(type_name text, shard int, node int) returns void
 */
Datum
shard_admin_pin(PG_FUNCTION_ARGS)
{
	int32 node = shard_command_int(fcinfo, 2, "node");

	/* 0 would mean that there is no wish. */
	if (node <= 0)
		(void) shard_command_get_member(node);
	pin(fcinfo, "shard_pin()", node);
	PG_RETURN_VOID();
}

/*
 * shard_unpin(type_name text, shard int) returns void; harmless if it is not pinned
 */
Datum
shard_admin_unpin(PG_FUNCTION_ARGS)
{
	pin(fcinfo, "shard_unpin()", 0);
	PG_RETURN_VOID();
}

/*
 * shard_give_up(type_name text, shard int) returns void; refused while the shard's home runs it (N4)
 */
Datum
shard_admin_give_up(PG_FUNCTION_ARGS)
{
	char *name = shard_command_text(fcinfo, 0, "type_name");
	ShardCommand command = {.kind = SHARD_COMMAND_GIVE_UP,
							.shard = shard_command_int(fcinfo, 1, "shard")};
	Look look = {.name = name, .command = &command};

	shard_command_begin("shard_give_up()");
	shard_command_not_gone();
	shard_command_look(look_at_pin, &look);
	shard_command_need_coordinator("shard_give_up()");
	command.type_id = look.type.type_id;
	command.text = shard_command_who();
	(void) shard_command_send(&command, SHARD_COMMAND_TIMEOUT,
							  psprintf("could not give up shard %d of entity type \"%s\"",
									   command.shard, name));
	PG_RETURN_VOID();
}

/*
 * shard_rebalance(type_name text = NULL) returns int: how many moves begin
 */
Datum
shard_admin_rebalance(PG_FUNCTION_ARGS)
{
	ShardCommand command = {.kind = SHARD_COMMAND_REBALANCE};
	Look look = {.command = &command};

	shard_command_begin("shard_rebalance()");
	shard_command_not_gone();
	if (!PG_ARGISNULL(0))
	{
		look.name = text_to_cstring(PG_GETARG_TEXT_PP(0));
		shard_command_look(look_at_type, &look);
		command.type_id = look.type.type_id;
	}
	shard_command_need_coordinator("shard_rebalance()");
	command.text = shard_command_who();
	PG_RETURN_INT32((int32) shard_command_send(&command, REBALANCE_TIMEOUT, "could not rebalance"));
}
