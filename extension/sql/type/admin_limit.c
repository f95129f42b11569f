/*
 * sql/type/admin_limit.c
 *		What an administrator allows owners of types: how many, how large, and for how long.
 *
 * The bounds are settings of the server that only a superuser changes, so also those of a role or a database (ALTER
 * ROLE ... SET). They are looked at when a type is started or altered, not later: what is there already stays.
 * Superusers are not bound.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/acl.h"

#include "sql/type/admin.h"
#include "base/duration.h"
#include "base/guc.h"
#include "registry/registry.h"

#include "base/compat.h"

/* A value that is more than an administrator allows. */
static void
refuse(const char *type, const char *setting, const char *value, const char *bound,
	   const char *limit)
{
	ereport(
		ERROR,
		(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
		 errmsg("value of setting \"%s\" of entity type \"%s\" is not allowed", setting, type),
		 errdetail("It is %s; setting \"%s\" of this server allows %s.", value, bound, limit),
		 errhint(
			 "Ask for less; or an administrator raises \"%s\", for all roles or with ALTER ROLE.",
			 bound)));
}

void
shard_admin_limit_setting(const ShardAdminType *type, ShardSettingId id)
{
	int64 value;

	if (superuser())
		return;
	if (id == SHARD_SETTING_HANDLER_TIMEOUT && shard_max_handler_timeout > 0)
	{
		int64 limit = shard_max_handler_timeout * INT64CONST(1000);

		value = shard_settings_number(&type->settings, id);
		if (value > limit)
			refuse(type->name, shard_settings_name(id), shard_duration_format(value),
				   "shard.max_handler_timeout", shard_duration_format(limit));
	}
	else if (id == SHARD_SETTING_NUMBER_OF_SHARDS && shard_max_shards_per_type > 0)
	{
		value = shard_settings_number(&type->settings, id);
		if (value > shard_max_shards_per_type)
			refuse(type->name, shard_settings_name(id), psprintf(INT64_FORMAT, value),
				   "shard.max_shards_per_type", psprintf("%d", shard_max_shards_per_type));
	}
}

/* Types of a role, and their shards, while they are counted, but for one. */
typedef struct Owned
{
	const char *but;
	Oid owner;
	int types;
	int64 shards;
} Owned;

/*
 * A role that gives a table away counts as the one that has made the type, until the other role says that it wants it
 * (S07).
 */
static void
count_owned(ShardType *type, void *arg)
{
	Owned *owned = arg;

	if (!type->exists || type->mode == SHARD_MODE_DROPPED ||
		(type->owner != owned->owner && type->runs_as != owned->owner) ||
		strcmp(type->name, owned->but) == 0)
		return;
	owned->types++;
	owned->shards += type->number_of_shards;
}

/* All owners share the room of a cluster (C20): no owner may take half of it. */
void
shard_admin_limit_types(const char *name, Oid owner, int64 number_of_shards)
{
	Owned owned = {.but = name, .owner = owner};

	if (superuser() || (shard_max_types_per_owner == 0 && shard_max_shards_per_owner == 0))
		return;
	shard_registry_refresh();
	shard_registry_each(count_owned, &owned);
	if (shard_max_types_per_owner > 0 && owned.types >= shard_max_types_per_owner)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("role \"%s\" has too many entity types", GetUserNameFromId(owner, false)),
				 errdetail("It has %d; setting \"shard.max_types_per_owner\" allows %d.",
						   owned.types, shard_max_types_per_owner),
				 errhint("Drop one with shard_drop_type(); or an administrator raises "
						 "\"shard.max_types_per_owner\", for all roles or with ALTER ROLE.")));
	if (shard_max_shards_per_owner > 0 &&
		owned.shards + number_of_shards > shard_max_shards_per_owner)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("the entity types of role \"%s\" have too many shards",
						GetUserNameFromId(owner, false)),
				 errdetail("They have " INT64_FORMAT ", and entity type \"%s\" has " INT64_FORMAT
						   "; setting \"shard.max_shards_per_owner\" allows %d.",
						   owned.shards, name, number_of_shards, shard_max_shards_per_owner),
				 errhint(
					 "Ask for fewer, or drop a type with shard_drop_type(); or an administrator "
					 "raises \"shard.max_shards_per_owner\", for all roles or with ALTER ROLE.")));
}
