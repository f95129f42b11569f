/*
 * plane_turn.h
 *		Between the turn of a worker and what its routes want done.
 */
#pragma once

#include "plane_private.h"

extern const ShardRouteHost turn_route_host;

/* Handle it, or put it into the stash. */
extern void turn_take(Worker *worker, const ShardRoute *route, const PlaneRow *row);

/* Something that follows the commit of the running turn. */
extern void turn_output(Worker *worker, ReleaseKind kind, const ShardRoute *route, int64 id,
						int32 peer, int64 number);
