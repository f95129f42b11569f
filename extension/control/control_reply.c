/*
 * control/control_reply.c
 *		What the control worker replies to requests of the ring: numbers, and refusals with what can be done about them.
 */
#include "postgres.h"

#include "control/control_private.h"
#include "core/member/membership.h"
#include "core/map/type_number.h"
#include "base/peer_errors.h"

#include "base/compat.h"

void
shard_control_reply_error(const ShardRequest *request, int sqlstate, const char *message,
						  const char *detail, const char *hint)
{
	ErrorData error = {0};

	error.sqlerrcode = sqlstate;
	error.message = unconstify(char *, message);
	error.detail = unconstify(char *, detail);
	error.hint = unconstify(char *, hint);
	shard_ring_reply_error(request, &error, InvalidXLogRecPtr);
}

void
shard_control_reply_number(const ShardRequest *request, int64 number)
{
	StringInfoData out;

	initStringInfo(&out);
	shard_wire_put_int(&out, number);
	shard_ring_reply(request, out.data, out.len, InvalidXLogRecPtr);
}

/* What an operator can do about a refusal. */
const char *
shard_control_hint(const char *why)
{
	if (strstr(why, "not the coordinator") != NULL)
	{
		int32 node = shard_node_coordinator(shard_control.node, shard_clock_now());

		return node == 0 ? "No coordinator is known here. See shard_members and shard_health()."
						 : psprintf("Call it at node %d, see shard_members.", node);
	}
	if (strstr(why, SHARD_JOIN_BUSY_WHY) != NULL)
		return "Other joins take some seconds: call shard_join() again.";
	if (strstr(why, SHARD_JOIN_LIMIT_WHY) != NULL)
		return "Nodes that were never admitted are \"joining\" in shard_members: start their servers, or give them up with "
			   "shard_write_off(); after 10 minutes that happens by itself.";
	if (strstr(why, SHARD_JOIN_UNREACHED_WHY) != NULL ||
		strstr(why, SHARD_JOIN_ELSEWHERE_WHY) != NULL)
		return "In own_dsn, name an address by which all members reach this database. In this database, call "
			   "shard_allow_peer() for the role of that address, and have its server let it in.";
	if (strstr(why, SHARD_JOIN_ORPHAN_WHY) != NULL)
		return "A restored dump brings state tables and no types. There, bring the type back as \"Backup and restore\" in "
			   "doc/operations.md says, and let nodes without states join that one; or drop the table, or move it to "
			   "another schema.";
	if (strstr(why, "the database has") != NULL || strstr(why, "hosts shards") != NULL)
		return "Join with a database in which the extension was just created; its entity types may "
			   "have been started. shard_drop_type() drops a type with all that it has here.";
	if (strstr(why, "is locked") != NULL)
		return "End the transaction that holds the lock, see pg_locks, and join again.";
	if (strstr(why, "state_store_mode") != NULL)
		return "Set shard.state_store_mode as the members have it, with shard.journal_dsn, and "
			   "restart the server.";
	if (strstr(why, "other settings") != NULL)
		return "shard_types at a member shows its settings; shard_drop_type() drops the type here.";
	if (strstr(why, SHARD_TYPE_NUMBER_WHY) != NULL)
		return "Drop the type with shard_drop_type(), and join again; or let owners share workers "
			   "with shard.owners_may_share_workers at the cluster's coordinator.";
	if (strstr(why, SHARD_TYPE_ROOM_WHY) != NULL)
		return "Drop types with shard_drop_type(), or start them with fewer shards, and join again.";
	if (strstr(why, "other members") != NULL)
		return "A node can be in one cluster. In another one, drop and create the extension first.";
	return NULL;
}

/* What more there is to say of why a type gets no number. */
static char *
detail_of(ShardTypeRefusal lacks)
{
	return lacks == SHARD_TYPE_LACKS_GROUP ? psprintf(SHARD_TYPE_NUMBER_DETAIL, SHARD_GROUPS)
										   : psprintf(SHARD_TYPE_ROOM_DETAIL, SHARD_ROOM_SHARDS,
													  SHARD_ROOM_TYPES, SHARD_ROOM_BYTES);
}

/* The same as the coordinator says it to joiners. */
static ShardTypeRefusal
lacks_by(const char *why)
{
	if (strstr(why, SHARD_TYPE_NUMBER_WHY) != NULL)
		return SHARD_TYPE_LACKS_GROUP;
	return strstr(why, SHARD_TYPE_ROOM_WHY) != NULL ? SHARD_TYPE_LACKS_ROOM : SHARD_TYPE_NOT_TAKEN;
}

/*
 * The machine, or the cluster, does not do what a command wants.
 */
void
shard_control_reply_refused(const ShardRequest *request, const char *why)
{
	ShardTypeRefusal lacks = lacks_by(why);
	bool limit = lacks || strstr(why, SHARD_JOIN_LIMIT_WHY) != NULL;
	bool unreached = strstr(why, SHARD_JOIN_UNREACHED_WHY) != NULL;

	shard_control_reply_error(request,
							  limit		  ? ERRCODE_CONFIGURATION_LIMIT_EXCEEDED
							  : unreached ? ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION
										  : ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							  why, lacks ? detail_of(lacks) : NULL, shard_control_hint(why));
}

/*
 * The command may be carried out, or not.
 */
void
shard_control_reply_unknown(const ShardRequest *request, const char *why)
{
	shard_control_reply_error(request, SHARD_ERRCODE_OUTCOME_UNKNOWN, why, NULL, NULL);
}

/*
 * The cluster has another type of that name, or another one's.
 */
void
shard_control_reply_differs(const ShardRequest *request, const char *name,
							const ControlTypeAnswer *answer)
{
	if (answer->owner != NULL)
		shard_control_reply_error(
			request, ERRCODE_INSUFFICIENT_PRIVILEGE,
			psprintf("permission denied to start entity type \"%s\"", name),
			psprintf("It belongs to role \"%s\" in the cluster.", answer->owner),
			"Members of that role start it, and superusers, by another call; or take another name.");
	else
		shard_control_reply_error(
			request, ERRCODE_DUPLICATE_OBJECT,
			psprintf("the cluster has entity type \"%s\" with other settings", name),
			psprintf("What differs: %s.", answer->difference),
			"Start it with the settings that shard_types shows at another member, and with "
			"the same type of state; or take another name.");
}

/* No coordinator has said in time what the type is. */
void
shard_control_reply_late(const ShardRequest *request, const char *name,
						 const ControlTypeAnswer *answer)
{
	if (answer->dropping)
		shard_control_reply_error(
			request, ERRCODE_OBJECT_IN_USE,
			psprintf("entity type \"%s\" is being dropped in the cluster", name),
			"The type is gone when every member has been heard, and no member has anything of "
			"the type, nor an open transaction that changes entity types.",
			"See shard_members, and try again.");
	else if (answer->difference != NULL)
		shard_control_reply_differs(request, name, answer);
	else
		shard_control_reply_error(
			request, ERRCODE_LOCK_NOT_AVAILABLE,
			psprintf("the cluster did not give entity type \"%s\" a number", name),
			"No coordinator was reached, or it has no majority of the voters.",
			"See shard_members, and try again.");
}

/*
 * There is no group of lanes for the type's owner, the coordinator says, or no room (C19, C20).
 */
void
shard_control_reply_lacks(const ShardRequest *request, const char *name, ShardTypeRefusal lacks)
{
	shard_control_reply_error(request, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
							  psprintf(SHARD_TYPE_NUMBER_ERROR, name, shard_type_number_why(lacks)),
							  detail_of(lacks),
							  lacks == SHARD_TYPE_LACKS_ROOM
								  ? SHARD_TYPE_ROOM_HINT
								  : psprintf("%s The setting of the coordinator, node %d, counts.",
											 SHARD_TYPE_NUMBER_HINT,
											 shard_node_coordinator(shard_control.node,
																	shard_clock_now())));
}
