/*
 * control/control_seal.c
 *		A code that only a holder of the secret can make: HMAC with SHA-256 (RFC 2104) of the server's own library.
 *
 * The library ties its contexts to a resource owner, and the control worker has none outside of transactions.
 */
#include "postgres.h"

#include "common/hmac.h"
#include "common/sha2.h"
#include "utils/resowner.h"

#include "control/control_private.h"

ShardUuid
shard_control_seal(ShardUuid secret, const void *bytes, size_t length)
{
	static ResourceOwner own = NULL;
	ResourceOwner owner = CurrentResourceOwner;
	pg_hmac_ctx *context;
	uint8 code[PG_SHA256_DIGEST_LENGTH];
	ShardUuid seal;
	bool made;

	if (own == NULL)
		own = ResourceOwnerCreate(NULL, "shard seal");
	CurrentResourceOwner = own;
	PG_TRY();
	{
		context = pg_hmac_create(PG_SHA256);
		made = context != NULL &&
			   pg_hmac_init(context, (const uint8 *) &secret, sizeof(secret)) >= 0 &&
			   pg_hmac_update(context, bytes, length) >= 0 &&
			   pg_hmac_final(context, code, sizeof(code)) >= 0;
		if (context != NULL)
			pg_hmac_free(context);
	}
	PG_FINALLY();
	{
		CurrentResourceOwner = owner;
	}
	PG_END_TRY();
	if (!made)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compute a code with SHA-256")));
	memcpy(&seal, code, sizeof(seal));
	return seal;
}
