/*
 * registry/payload.c
 *		Messages as people may see them: by members of the type's owner only.
 *
 * The SQL functions are granted to PUBLIC because the views call them as the user who reads the view; no user can name
 * them, as their schema is closed.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "registry/payload.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "base/rights.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_payload_json);
PG_FUNCTION_INFO_V1(shard_payload_readable);
PG_FUNCTION_INFO_V1(shard_payload_shards_readable);

bool
shard_payload_is_readable(int32 type_id)
{
	ShardType *type = shard_registry_by_id(type_id);

	return type != NULL ? shard_security_is_owner(type) : superuser();
}

Jsonb *
shard_payload_to_jsonb(const char *payload, int len)
{
	Jsonb *result = palloc(VARHDRSZ + len);

	SET_VARSIZE(result, VARHDRSZ + len);
	memcpy(VARDATA(result), payload, len);
	return result;
}

/*
 * shard.payload_json(type_id int4, payload bytea) returns jsonb
 *
 * A stored message; NULL for a user without the right to read it.
 */
Datum
shard_payload_json(PG_FUNCTION_ARGS)
{
	bytea *payload;

	if (!shard_payload_is_readable(PG_GETARG_INT32(0)))
		PG_RETURN_NULL();
	payload = PG_GETARG_BYTEA_PP(1);
	if (VARSIZE_ANY_EXHDR(payload) == 0)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(shard_payload_to_jsonb(VARDATA_ANY(payload), VARSIZE_ANY_EXHDR(payload)));
}

/*
 * shard.payload_readable(type_id int4) returns boolean
 *
 * Whether the current user may read a type's messages, and errors that quote
 * them.
 */
Datum
shard_payload_readable(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(shard_payload_is_readable(PG_GETARG_INT32(0)));
}

/*
 * shard.shards_readable(type_id int4) returns boolean
 *
 * Whether the current user may know which shards of a type are in use: as its owner, or as a role that looks after the
 * server.
 */
Datum
shard_payload_shards_readable(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(shard_rights_all_stats() || shard_payload_is_readable(PG_GETARG_INT32(0)));
}
