/*
 * sql/view/health_strategy.c
 *		Allocation functions that do not come to an end; a part of shard_health.
 *
 * They are cancelled after 5 s, and their backend ends after 7 (strategy.c). What runs for longer looks at no
 * interrupts: nothing is asked of its owner's functions as long as it is there (control_strategy.c).
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "sql/view/health.h"
#include "registry/registry.h"
#include "shared/visitor.h"

#include "base/compat.h"

/* A backend that should have ended by itself is given this time, in seconds. */
#define STAYS_SECONDS 10

static void
say_stays(ShardHealth *health, const ShardVisitorRun *run, int64 seconds)
{
	const ShardType *type = shard_registry_by_id(run->type_id);
	const char *owner = GetUserNameFromId(run->owner, true);

	shard_health_add(
		health,
		psprintf(
			"allocation functions of type \"%s\", owner %s, run in process %d for " INT64_FORMAT
			" s and cannot be cancelled: no functions of this owner are asked while it is "
			"there, and shards go where least_shard says; if pg_terminate_backend(%d) does not "
			"end it, only an immediate restart of the server does (pg_ctl -m immediate)",
			type != NULL ? type->name : psprintf("%d", run->type_id),
			owner != NULL ? quote_identifier(owner) : psprintf("%u", run->owner), run->pid, seconds,
			run->pid));
}

void
shard_health_strategies(ShardHealth *health)
{
	TimestampTz now = GetCurrentTimestamp();
	ShardVisitorRun run;
	int at = 0;

	while (shard_visitor_next_run(MyDatabaseId, &at, &run))
		if (now - run.since > STAYS_SECONDS * USECS_PER_SEC)
			say_stays(health, &run, (now - run.since) / USECS_PER_SEC);
}
