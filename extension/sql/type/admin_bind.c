/*
 * sql/type/admin_bind.c
 *		A handler for a type that is there, also when the type of its states was dropped and created again.
 *
 * DROP TYPE ... CASCADE takes a composite state type and the handler, and leaves the rows of the states, whose columns
 * are of other types. So a type that is created again and fits these columns can take its place; the command says why
 * if it does not. The change is one row of shard.type, in the transaction of the caller.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "sql/type/admin.h"
#include "registry/registry.h"
#include "entity/state.h"
#include "entity/state_structure.h"

#include "base/compat.h"

bool
shard_admin_has_state_type(const ShardAdminType *type)
{
	return SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(type->handler.state_type));
}

/* Error unless the rows of the states can be read and written as that type, and it is not too large. */
static void
check_fit(const ShardAdminType *type, const ShardRoutine *handler)
{
	ShardType as = *shard_registry_get(type->name);
	char *problem;
	int sqlstate;

	(void) shard_state_structure(handler->state_type);
	as.state_type = handler->state_type;
	as.composite = handler->composite;
	problem = shard_state_problem(&as, &sqlstate);
	if (problem != NULL)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("type %s does not fit the states of entity type \"%s\"",
							   format_type_be(handler->state_type), type->name),
						errdetail("The type of the states was dropped; of the one that is to take "
								  "its place: %s.",
								  problem),
						errhint("Make the type as the columns of the state table are, or save "
								"what is in the table and drop the entity type.")));
}

void
shard_admin_bind(ShardAdminType *type, const ShardRoutine *handler)
{
	if (handler->state_type != type->handler.state_type)
	{
		if (shard_admin_has_state_type(type))
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("function %s cannot be the handler of entity type \"%s\"",
								   handler->name, type->name),
							errdetail("Its state is of type %s, the entities' of type %s.",
									  format_type_be(handler->state_type),
									  format_type_be(type->handler.state_type)),
							errhint("Start another entity type with it.")));
		check_fit(type, handler);
	}
	type->handler = *handler;
}
