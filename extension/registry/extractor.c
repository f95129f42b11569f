/*
 * registry/extractor.c
 *		Extractors of an entity type: entity id and payload out of a message.
 *
 * They run in the sender's backend, but as the type's owner in a restricted operation, and as a guest: otherwise a
 * type's owner could have a superuser run the owner's code.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "fmgr.h"

#include "registry/routine.h"
#include "registry/guest.h"

#include "base/compat.h"

/* Calls f(jsonb); error if it answers NULL. */
static Datum
call(ShardType *type, Oid function, const char *setting, Jsonb *message)
{
	FmgrInfo info;
	LOCAL_FCINFO(fcinfo, 1);
	Datum result;

	fmgr_info(function, &info);
	InitFunctionCallInfoData(*fcinfo, &info, 1, DEFAULT_COLLATION_OID, NULL, NULL);
	fcinfo->args[0].value = JsonbPGetDatum(message);
	fcinfo->args[0].isnull = false;
	result = shard_guest_call(type, SHARD_GUEST_READS, fcinfo);
	if (fcinfo->isnull)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("%s of entity type \"%s\" returned null", setting, type->name),
						errhint("Send messages that it understands, or use shard_tell(type_name, "
								"entity_id, message).")));
	return result;
}

text *
shard_extractor_entity_id(ShardType *type, Jsonb *message)
{
	if (!OidIsValid(type->entity_id_extractor))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("entity type \"%s\" has no entity_id_extractor", type->name),
				 errhint("Name the entity with shard_tell(type_name, entity_id, message), or set "
						 "one with shard_alter().")));
	return DatumGetTextPP(call(type, type->entity_id_extractor, "entity_id_extractor", message));
}

Jsonb *
shard_extractor_message(ShardType *type, Jsonb *message)
{
	if (!OidIsValid(type->message_extractor))
		return message;
	return DatumGetJsonbP(call(type, type->message_extractor, "message_extractor", message));
}
