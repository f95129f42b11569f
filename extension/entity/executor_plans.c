/*
 * entity/executor_plans.c
 *		Plans that a language keeps, and that an altered type has made wrong.
 *
 * A plan is made anew when a relation or function that it names changes. It is not when the type of a variable does: a
 * PL/pgSQL function that assigns to a field of its composite argument fails after ALTER TYPE ... ALTER ATTRIBUTE for as long
 * as its session lasts, and what is a client's session elsewhere is the worker here, which never ends.
 *
 * So nobody is blamed for such an error before plans were made anew. Nothing of this is durable.
 */
#include "postgres.h"

#include "utils/inval.h"
#include "utils/plancache.h"

#include "entity/internal.h"

/* Rises when a relation changes that this process has heard of; and what it was when plans were last made anew. */
static uint64 changes = 0;
static uint64 renewed_at = 0;

/* Relcache callback. */
static void
note_change(Datum arg, Oid relid)
{
	changes++;
}

void
shard_plans_init(void)
{
	CacheRegisterRelcacheCallback(note_change, (Datum) 0);
}

/* What the server says of a plan or a value that does not fit its type any more. */
static bool
is_about_types(int sqlstate)
{
	return sqlstate == ERRCODE_DATATYPE_MISMATCH || sqlstate == ERRCODE_FEATURE_NOT_SUPPORTED ||
		   sqlstate == ERRCODE_INTERNAL_ERROR;
}

bool
shard_plans_renew(const ErrorData *error)
{
	if (changes == renewed_at || !is_about_types(error->sqlerrcode))
		return false;
	renewed_at = changes;
	ResetPlanCache();
	return true;
}
