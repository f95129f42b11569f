/*
 * sql/type/reshard_check.c
 *		What has to be still before entities of a type go to other shards (E60).
 *
 * Nothing is written here. Comes from: reshard.c, when a call begins.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"

#include "core/map/record.h"
#include "core/member/membership.h"
#include "registry/cluster_map.h"
#include "registry/identity.h"
#include "registry/statement.h"
#include "sql/operate/command.h"
#include "sql/type/reshard.h"

#include "base/compat.h"

/* Errors unless the type is stopped, with its states. Waits for turns that were begun before it was (E61). */
static void
check_stopped(const ShardAdminType *type)
{
	const char *name = quote_literal_cstr(type->name);

	if (strcmp(type->mode, "proxy") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("entity type \"%s\" is a proxy on this node", type->name),
				 errdetail("Its entities are at other members."),
				 errhint("Call shard_reshard() at the member that has them, once it is the only "
						 "one that has the type.")));
	if (strcmp(type->mode, "stopped") != 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot reshard entity type \"%s\" while it runs", type->name),
						errhint("Stop its senders, and the type with shard_stop_type(%s).", name)));
	if (!shard_admin_table_exists(type))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("the state table of entity type \"%s\" was dropped", type->name),
						errhint("shard_start() creates it again; see shard_types.")));
	(void) shard_admin_table_lock(type);
}

/* Errors while a shard of the type moves, as this node knows it. */
static void
check_moves(const ShardAdminType *type)
{
	const ShardStatement look = {
		"SELECT o.shard, o.state FROM shard.own o WHERE o.type_id = $1 AND o.state <> 'active'"
		" ORDER BY o.shard LIMIT 1",
		1,
		{INT4OID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_once(&look, &arguments, SPI_OK_SELECT);
	if (SPI_processed > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot reshard entity type \"%s\" while shards of it move", type->name),
				 errdetail("Shard %d is %s here.", shard_statement_int4(0, 1),
						   shard_statement_text(0, 2)),
				 errhint("Try again when it is over; see shard_rebalances.")));
}

/*
 * Errors while a shard of the type lives at another member: as soon as this one has the type no more, all of its shards
 * would go there.
 */
static void
check_homes(const ShardAdminType *type)
{
	ShardMap *map = shard_cluster_map_read();
	int32 here = shard_identity_name().node;

#ifdef SHARD_MUTANT_RESHARD_BEFORE_LEAVING
	return;
#endif
	for (int32 shard = 0;
		 shard < (int32) shard_settings_number(&type->settings, SHARD_SETTING_NUMBER_OF_SHARDS);
		 shard++)
	{
		const ShardMapEntry *entry =
			shard_map_value(map, (ShardMapKey){SHARD_MAP_HOME, type->type_id, shard});
		const ShardMemberRecord *member;
		ShardHomeRecord home;
		int32 node;

		if (entry == NULL || !shard_record_get_home(entry, &home))
			continue;
		node = shard_record_home_node(&home);
		member = node == here ? NULL : shard_command_member(node);
		if (member != NULL && !shard_membership_is_gone(member->status))
			ereport(
				ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot reshard entity type \"%s\": the cluster has it still", type->name),
				 errdetail("Shard %d lives at node %d.", shard, node),
				 errhint("Bring all of its shards here, and drop the type at all other members: "
						 "see \"Another number of shards\" in doc/operations.md.")));
	}
	shard_map_destroy(map);
}

void
shard_reshard_check_still(const ShardAdminType *type)
{
	check_stopped(type);
	check_moves(type);
	check_homes(type);
}

void
shard_reshard_check_stays(const char *name)
{
	const ShardMemberRecord *member = shard_command_member(shard_identity_name().node);

	if (member != NULL &&
		(member->status == SHARD_MEMBER_LEAVING || member->status == SHARD_MEMBER_EXITING))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot reshard entity type \"%s\" while this node leaves its cluster",
						name),
				 errhint("Call shard_reshard() at a member that stays.")));
}
