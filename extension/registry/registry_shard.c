/*
 * registry/registry_shard.c
 *		The shard of an entity id, by hash or by the type's own function.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "registry/guest.h"
#include "registry/registry.h"

#include "base/compat.h"

/* A prepared call of a type's shard id extractor. */
typedef struct ShardRegistryCall
{
	LocalTransactionId lxid; /* its memory is of this transaction */
	uint64 generation;
	bool good;	  /* false: the last call of it failed, or there is none */
	bool running; /* it must not come to call itself */
	MemoryContext context;
	FmgrInfo function;
} ShardRegistryCall;

/* Prepares the call again. The previous one is in no use: a call that runs cannot come here. */
static void
prepare(ShardRegistryCall *call, Oid function)
{
	call->good = false;
	if (call->lxid == ShardMyLxid)
		MemoryContextDelete(call->context);
	call->lxid = InvalidLocalTransactionId;
	call->context = AllocSetContextCreate(TopTransactionContext, "shard_id_extractor call",
										  ALLOCSET_SMALL_SIZES);
	call->lxid = ShardMyLxid;
	call->generation = shard_registry_generation();
	fmgr_info_cxt(function, &call->function, call->context);
	call->good = true;
}

/*
 * The prepared call of the type's extractor. Functions keep private state in it: those in SQL the query that they
 * run, which goes on with the next call. So one that failed is never used again: a subtransaction may have taken away
 * what that query had open.
 */
static ShardRegistryCall *
prepare_call(ShardType *type)
{
	ShardRegistryCall *call = type->shard_id_call;

	if (call == NULL)
		call = type->shard_id_call =
			MemoryContextAllocZero(TopMemoryContext, sizeof(ShardRegistryCall));
	if (call->running)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("shard_id_extractor of entity type \"%s\" uses the type itself",
							   type->name),
						errhint("Compute the shard from the entity id alone.")));
	if (!call->good || call->lxid != ShardMyLxid || call->generation != shard_registry_generation())
		prepare(call, type->shard_id_extractor);
	return call;
}

/* Calls the type's extractor as a guest; *isnull if it answers NULL. */
static int32
call_extractor(ShardType *type, const char *id, size_t len, bool *isnull)
{
	ShardRegistryCall *call = prepare_call(type);
	LOCAL_FCINFO(fcinfo, 1);
	Datum result = (Datum) 0;

	InitFunctionCallInfoData(*fcinfo, &call->function, 1, DEFAULT_COLLATION_OID, NULL, NULL);
	fcinfo->args[0].value = PointerGetDatum(cstring_to_text_with_len(id, (int) len));
	fcinfo->args[0].isnull = false;

	call->running = true;
	PG_TRY();
	{
		result = shard_guest_call(type, SHARD_GUEST_READS, fcinfo);
	}
	PG_CATCH();
	{
		type->shard_id_call->good = false;
		type->shard_id_call->running = false;
		PG_RE_THROW();
	}
	PG_END_TRY();
	type->shard_id_call->running = false;

	*isnull = fcinfo->isnull;
	return DatumGetInt32(result);
}

/* The shard that the type's extractor gives, checked. */
static int
extracted_shard(ShardType *type, const char *id, size_t len)
{
	bool isnull;
	int32 shard = call_extractor(type, id, len, &isnull);

	if (isnull || shard < 0 || shard >= type->number_of_shards)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("shard_id_extractor of entity type \"%s\" gave no valid shard for \"%.*s\"",
						type->name, (int) len, id),
				 isnull ? errdetail("The function returned null.")
						: errdetail("The function returned %d.", shard),
				 errhint("The function must return a number from 0 to %d.",
						 type->number_of_shards - 1)));
	return shard;
}

int
shard_registry_hash_id(ShardHashKind hash, const char *id, size_t len, int number_of_shards)
{
	int encoding = GetDatabaseEncoding();

	if (encoding != PG_UTF8 && encoding != PG_SQL_ASCII)
	{
		const char *converted = pg_server_to_any(id, (int) len, PG_UTF8);

		/* the same pointer comes back if there was nothing to convert; it has no end then */
		if (converted != id)
			len = strlen(converted);
		id = converted;
	}
	return shard_message_shard_id(hash, id, len, number_of_shards);
}

/*
 * The shard of an entity id that is no longer than SHARD_MAX_ENTITY_ID. Error
 * 55000 if any extractor of the type is missing, because without it the
 * message would go astray.
 */
int
shard_registry_shard_id(ShardType *type, const char *id, size_t len)
{
	if (unlikely(type->missing_extractor != NULL))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("extractor %s of entity type \"%s\" does not exist",
							   type->missing_extractor, type->name),
						errhint("Create the function again.")));
	if (OidIsValid(type->shard_id_extractor))
		return extracted_shard(type, id, len);
	return shard_registry_hash_id(type->hash, id, len, type->number_of_shards);
}
