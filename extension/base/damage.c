/*
 * base/damage.c
 *		Bytes of another node that cannot be read.
 */
#include "postgres.h"

#include "base/damage.h"

#include "base/compat.h"

void
shard_damage_raise(const char *what, const char *part, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION),
					part != NULL ? errmsg("%s is damaged, in %s", what, part)
								 : errmsg("%s is damaged", what),
					detail != NULL ? errdetail_internal("%s", detail) : 0,
					errhint("Both nodes should run the same version of the extension.")));
}
