/*
 * route/routing_count.c
 *		Parked messages of each type: how many, for its buffer_size, and what becomes of those of a type that was dropped.
 *
 * If the process dies right here: the counters are shared memory, which goes with it, or shard_routing_uncount takes its share off.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "core/base/message.h"
#include "entity/execution.h"
#include "entity/turn.h"
#include "registry/registry.h"
#include "route/routing_private.h"
#include "shared/shmem.h"

#include "base/compat.h"

static ShardParkedOf
parked_of(int32 type_id)
{
	const ShardType *type = shard_registry_known(type_id);

	return type == NULL ? (ShardParkedOf){InvalidOid, 0}
						: (ShardParkedOf){type->state_table,
										  type->mode == SHARD_MODE_PROXY ? type->row_version : 0};
}

ShardParkedCount *
shard_routing_count_of(int32 type_id)
{
	ShardRouting *r = &shard_routing;
	ShardParkedCount *count;

	for (int i = 0; i < r->count_count; i++)
		if (r->counts[i].type_id == type_id)
			return &r->counts[i];
	if (r->counts == NULL)
		r->counts = MemoryContextAlloc(r->context, sizeof(ShardParkedCount));
	else
		r->counts = repalloc(r->counts, (r->count_count + 1) * sizeof(ShardParkedCount));
	count = &r->counts[r->count_count++];
	*count = (ShardParkedCount){.type_id = type_id};
	count->of = count->of_now = parked_of(type_id);
	return count;
}

void
shard_routing_count(int32 type_id, int64 change)
{
	ShardParkedCount *count = shard_routing_count_of(type_id);

	count->change += change;
	count->changes++;
}

void
shard_routing_publish_counts(void)
{
	for (int i = 0; i < shard_routing.count_count; i++)
	{
		ShardParkedCount *count = &shard_routing.counts[i];

		count->of = count->of_now;
		if (count->change == 0)
			continue;
		shard_shmem_count_held(&count->counter, MyDatabaseId, count->type_id, count->change);
		count->committed += count->change;
		count->change = 0;
	}
}

void
shard_routing_uncount(int code, Datum arg)
{
	for (int i = 0; i < shard_routing.count_count; i++)
	{
		ShardParkedCount *count = &shard_routing.counts[i];

		if (count->committed != 0)
			shard_shmem_count_held(&count->counter, MyDatabaseId, count->type_id,
								   -count->committed);
	}
}

/* For shard_route_each: what was parked of a dropped type is gone. */
static void
reload_dropped(void *context, ShardRoute *route)
{
	if (route->type_id == *(int32 *) context && route->parked)
		shard_route_reload(shard_routing.routes, route->type_id, route->shard);
}

/* For shard_routing_store_each: parked messages of a type. */
static void
count_parked(int32 type_id, int32 shard, int64 parked, void *arg)
{
	ShardParkedCount *count = arg;

	if (type_id == count->type_id &&
		(shard_routing.lanes & shard_lane_bit(shard_message_lane(type_id, shard))) != 0)
		count->found += parked;
}

/* Was the type of the count dropped since the last commit, and started again under its number? */
static bool
is_another(ShardParkedCount *count)
{
	count->of_now = parked_of(count->type_id);
	return count->of.state_table != count->of_now.state_table ||
		   count->of.row_version != count->of_now.row_version;
}

void
shard_routing_bury_dropped(void)
{
	for (int i = 0; i < shard_routing.count_count; i++)
	{
		ShardParkedCount *count = &shard_routing.counts[i];
		int32 type_id = count->type_id;
		ShardType *type = shard_registry_known(type_id);
		bool another = is_another(count);
		MemoryContext old;

		if (count->committed <= 0 || (type != NULL && type->mode != SHARD_MODE_DROPPED && !another))
			continue;
		shard_execution_end_user_code();
		count->found = 0;
		count->changes++; /* nor can a recount that is under way go on */
		if (type != NULL)
			shard_routing_store_each(count_parked, count);
		else
			shard_turn_count_strays(shard_routing_store_bury(type_id), 0);
		count->change = count->found - count->committed;
		old = MemoryContextSwitchTo(shard_routing.context);
		shard_route_each(shard_routing.routes, reload_dropped, &type_id);
		MemoryContextSwitchTo(old);
	}
}
