/*
 * routing_recount.c
 *		What memory counts of shard.parked, and what is there.
 *
 * A shard of which nothing is believed to be parked is never looked at, so a mistake in memory makes its
 * messages stand still for ever. Now and then an idle worker compares (like executor_recount.c). Reading is all
 * that is done; if the process dies right here, its successor reads the table.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "core/message.h"
#include "executor.h"
#include "registry.h"
#include "routing_private.h"

#include "compat.h"

static void
say(int32 type_id, const char *what, int64 believed, int64 found)
{
	const ShardType *type = shard_registry_by_id(type_id);

	shard_executor_counted_wrongly(psprintf("%s of type \"%s\" were counted wrongly", what,
											type == NULL ? "" : type->name),
								   psprintf("Their worker believed in " INT64_FORMAT
											", there are " INT64_FORMAT
											". It goes on with the latter.",
											believed, found));
}

/* A shard that has an ownership row or parked messages. */
static void
compare(int32 type_id, int32 shard, int64 parked, void *arg)
{
	ShardRoute *route;

	if (parked == 0 || (shard_routing.lanes & (1u << shard_message_lane(type_id, shard))) == 0)
		return;
	shard_routing_count_of(type_id)->found += parked;
	route = shard_route_get(shard_routing.routes, type_id, shard);
	if (route->parked)
		return;
	say(type_id, psprintf("parked messages of shard %d", shard), 0, parked);
	shard_route_reload(shard_routing.routes, type_id, shard);
}

void
shard_routing_recount(void)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);

	shard_executor_end_user_code();
	for (int i = 0; i < shard_routing.count_count; i++)
		shard_routing.counts[i].found = 0;
	shard_routing_store_each(compare, NULL);
	for (int i = 0; i < shard_routing.count_count; i++)
	{
		ShardParkedCount *count = &shard_routing.counts[i];

		if (count->found == count->committed + count->change)
			continue;

		/* a type may have been dropped just now, with what was parked of it */
		shard_registry_reload();
		if (shard_registry_by_id(count->type_id) == NULL)
			continue;
		say(count->type_id, "parked messages", count->committed + count->change, count->found);
		count->change = count->found - count->committed;
	}
	MemoryContextSwitchTo(old);
}
