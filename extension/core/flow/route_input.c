/*
 * core/flow/route_input.c
 *		What a home takes in that was told at its own node, or was parked there (H1, H4, Q30).
 *
 * Of a type without replicas it is handled, and that is all. Of a shard with replicas another home may go on without the turn
 * that has taken it in; then the message goes there from here. So it gets a stamp, which the turn's record has as a mark, and it
 * stays where it is, as a row of the log or a parked one, until the turn is released.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/flow/route.h"
#include "core/flow/route_private.h"

void
shard_route_give_stamp(ShardRoutes *routes, ShardItem *item)
{
	int32 lane;

	if (item->stamp.kind != SHARD_PREFIX_NONE)
		return;
	lane = routes->host->lane(routes->context, item->type_id, item->shard);
	item->stamp.kind = SHARD_PREFIX_NODE;
	item->stamp.a = routes->self;
	item->stamp.b = lane;
	item->stamp.seq = routes->host->next_rseq(routes->context, lane);
}

void
shard_route_take_input(ShardRoutes *routes, ShardRoute *route, const ShardItem *item)
{
	ShardItem input = *item;

	shard_route_give_stamp(routes, &input);
	routes->host->take(routes->context, route, &input);
	routes->host->input(routes->context, route, &input);
	shard_mark_raise(&route->marks, input.stamp);
}

/* The home is here: has it taken in this one, before it came back to its origin? */
static bool
taken_before(const ShardRoute *route, const ShardItem *item)
{
#ifdef SHARD_MUTANT_OWN_QUEUE_WITHOUT_MARKS
	return false;
#endif
	return shard_mark_passed(&route->marks, item->stamp);
}

/*
 * The first parked message goes to the home, which is here. One that needs it no more by a mark needs it all the same, as long
 * as the turn with that mark is not released: another home may lack it (Q30). An output's source shard keeps it (Q29).
 */
void
shard_route_take_parked(ShardRoutes *routes, ShardRoute *route, ShardItem *item)
{
	const ShardRouteHost *host = routes->host;
	bool passed = taken_before(route, item);
	bool again = shard_mark_committed(&route->marks, item->stamp);

	if (!shard_route_stamps_inputs(routes, route))
	{
		if (!passed)
			host->take(routes->context, route, item);
		host->unpark(routes->context, route);
		return;
	}
	shard_route_give_stamp(routes, item);
	if (!passed)
		host->take(routes->context, route, item);
	shard_mark_raise(&route->marks, item->stamp);
#ifdef SHARD_MUTANT_PARKED_INPUTS_GO
	host->unpark(routes->context, route);
#else
	if (item->stamp.kind == SHARD_PREFIX_NODE)
		host->keep(routes->context, route, item, again);
	else
		host->unpark(routes->context, route);
#endif
}
