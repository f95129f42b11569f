/*
 * sql/view/history.c
 *		Whose failures the reader of shard_history() may see.
 */
#include "postgres.h"

#include "fmgr.h"

#include "registry/registry.h"
#include "registry/security.h"
#include "sql/operate/command.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_history_type);

/*
 * shard.history_type(type_name text) RETURNS int: the type, for members of its owner.
 */
Datum
shard_history_type(PG_FUNCTION_ARGS)
{
	ShardType *type = shard_registry_get_present(shard_command_text(fcinfo, 0, "type name"));

	shard_security_check_owner(type, "see failures of entity type");
	PG_RETURN_INT32(type->type_id);
}
