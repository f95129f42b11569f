/*
 * route/routing_recount.c
 *		What memory counts of shard.parked, and what is there.
 *
 * A shard of which nothing is believed to be parked is never looked at, so a mistake in memory makes its messages stand
 * still without end. Now and then an idle worker compares (like recount.c). Reading is all that is done; if the process
 * dies right here, its successor reads the table.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "core/base/message.h"
#include "entity/execution.h"
#include "entity/turn.h"
#include "registry/registry.h"
#include "route/routing_private.h"

#include "base/compat.h"

/* Messages that are looked at in one piece. */
#define PARKED_AT_ONCE 1000

/* How far the recount is. */
static ShardParkedPlace place;

static void
say(int32 type_id, const char *what, const char *detail)
{
	const ShardType *type = shard_registry_known(type_id);

	shard_recount_differs(psprintf("%s of type \"%s\" were counted wrongly", what,
								   type == NULL ? "" : type->name),
						  detail);
}

/*
 * A type's messages begin to be counted. Pieces are of several turns: if any was parked or taken away before the
 * last one, the sum is of no time, and worth nothing.
 */
static void
begin_count(ShardParkedCount *count)
{
	count->found = 0;
	count->changes_then = count->changes;
}

/* All of a type's were counted. */
static void
end_count(ShardParkedCount *count)
{
	int64 believed = count->committed + count->change;

	if (count->changes != count->changes_then || count->found == believed)
		return;

	/* a type may have been dropped just now, with what was parked of it */
	shard_registry_reload();
	if (shard_registry_known(count->type_id) == NULL)
		return;
	say(count->type_id, "parked messages",
		psprintf("The region worker had counted " INT64_FORMAT ", there are " INT64_FORMAT ". "
				 "The worker goes on with the latter.",
				 believed, count->found));
	count->change = count->found - count->committed;
}

/* A message. */
static void
compare(int32 type_id, int32 shard, int64 parked, void *arg)
{
	int32 *last = arg;
	ShardRoute *route;

	if ((shard_routing.lanes & shard_lane_bit(shard_message_lane(type_id, shard))) == 0)
		return;
	if (*last != type_id)
	{
		if (*last != 0)
			end_count(shard_routing_count_of(*last));
		begin_count(shard_routing_count_of(type_id));
	}
	*last = type_id;
	shard_routing_count_of(type_id)->found += parked;
	route = shard_route_get(shard_routing.routes, type_id, shard);
	if (route->parked)
		return;
	say(type_id, psprintf("parked messages of shard %d", shard),
		"The region worker had counted none. The worker looks at them now.");
	shard_route_reload(shard_routing.routes, type_id, shard);
}

bool
shard_routing_recount(int64 *messages)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);
	int32 last = place.type_id;
	int rows;

	shard_execution_end_user_code();
	for (int i = 0; place.type_id == 0 && i < shard_routing.count_count; i++)
		begin_count(&shard_routing.counts[i]);
	rows = shard_routing_store_some(&place, PARKED_AT_ONCE, compare, &last);
	*messages += rows;
	if (rows < PARKED_AT_ONCE)
	{
		for (int i = 0; i < shard_routing.count_count; i++)
			end_count(&shard_routing.counts[i]);
		place = (ShardParkedPlace){0};
	}
	MemoryContextSwitchTo(old);
	return rows == PARKED_AT_ONCE;
}

void
shard_routing_forget_recount(void)
{
	place = (ShardParkedPlace){0};
}
