/*
 * core/flow/route.c
 *		Where messages go: routes, parked messages, arrivals, refusal, re-send (section 8).
 *
 * A message is kept by its origin until its home has taken it in. It carries the epoch of the home
 * that it was sent to, and a home takes its own epoch only, so an origin that learns a newer home
 * sends everything once more that is not done, before anything newer: first it is collected among the
 * parked messages, which are ordered by stamp, and then it leaves from there. Until that queue is
 * empty everything newer joins it.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/flow/route.h"
#include "core/flow/route_private.h"

ShardRoutes *
shard_route_create(int32 self, const ShardRouteHost *host, void *context, int chunk)
{
	ShardRoutes *routes = palloc0(sizeof(ShardRoutes));

	routes->self = self;
	routes->host = host;
	routes->context = context;
	routes->chunk = chunk;
	route_map_begin(&routes->map);
	dlist_init(&routes->touched);
	dlist_init(&routes->drains);
	return routes;
}

void
shard_route_destroy(ShardRoutes *routes)
{
	routemap_iterator iterator;
	RouteEntry *entry;

	routemap_start_iterate(routes->map.hash, &iterator);
	while ((entry = routemap_iterate(routes->map.hash, &iterator)) != NULL)
	{
		shard_mark_free(&entry->route->marks);
		if (entry->route->set != NULL)
			pfree(entry->route->set);
		pfree(entry->route);
	}
	routemap_destroy(routes->map.hash);
	pfree(routes);
}

/* The running transaction changes the entry; commit and abort will visit it. */
static void
touch(ShardRoutes *routes, ShardRoute *route)
{
	if (route->touched)
		return;
	route->touched = true;
	dlist_push_tail(&routes->touched, &route->touched_node);
}

/* Keep the list of entries with parked messages in step with the flag. */
static void
note_parked(ShardRoutes *routes, ShardRoute *route)
{
	if (route->parked && !route->drains)
		dlist_push_tail(&routes->drains, &route->drains_node);
	else if (!route->parked && route->drains)
		dlist_delete(&route->drains_node);
	route->drains = route->parked;
}

/*
 * Read the durable part. The marks in memory hold as long as the row is of the epoch that they belong to, also
 * one that began in this transaction, with what was taken in since; else they begin with the base.
 */
static void
load_route(ShardRoutes *routes, ShardRoute *route)
{
	int32 marks_epoch = route->touched && route->loaded ? route->own.epoch : route->marks_epoch;

	route->node = route->epoch = route->lost = route->doubt = 0;
	route->n = 0;
	route->parked = false;
	memset(&route->own, 0, sizeof(route->own));
	if (route->set != NULL)
		memset(route->set, 0, sizeof(*route->set));
	routes->host->load(routes->context, route);
	route->loaded = true;
	note_parked(routes, route);

	if (route->own.state == SHARD_HOME_NONE || route->own.state == SHARD_HOME_STAGED)
	{
		shard_mark_clear(&route->marks);
		route->marks_epoch = SHARD_NO_EPOCH;
	}
	else if (marks_epoch != route->own.epoch)
	{
		shard_mark_clear(&route->marks);
#ifndef SHARD_MUTANT_BASE_NOT_MERGED
		routes->host->load_base(routes->context, route);
#endif
		shard_mark_commit(&route->marks, NULL, NULL);
		route->marks_epoch = route->own.epoch;
	}
}

ShardRoute *
shard_route_known(ShardRoutes *routes, int32 type_id, int32 shard)
{
	return route_map_find(&routes->map, type_id, shard);
}

ShardRoute *
shard_route_get(ShardRoutes *routes, int32 type_id, int32 shard)
{
	ShardRoute *route = route_map_find(&routes->map, type_id, shard);

	if (route == NULL)
	{
		route = palloc0(sizeof(ShardRoute));
		route->type_id = type_id;
		route->shard = shard;
		route->marks_epoch = SHARD_NO_EPOCH;
		route_map_add(&routes->map, route);
	}
	if (!route->loaded)
		load_route(routes, route);
	return route;
}

void
shard_route_hold(ShardRoutes *routes, bool held)
{
#ifndef SHARD_MUTANT_STAMPS_BEFORE_ADMISSION
	routes->held = held;
#endif
}

void
shard_route_each(ShardRoutes *routes, ShardRouteVisit visit, void *context)
{
	routemap_iterator iterator;
	RouteEntry *entry;

	routemap_start_iterate(routes->map.hash, &iterator);
	while ((entry = routemap_iterate(routes->map.hash, &iterator)) != NULL)
		visit(context, entry->route);
}

void
shard_route_each_touched(ShardRoutes *routes, ShardRouteVisit visit, void *context)
{
	dlist_iter iter;

	dlist_foreach (iter, &routes->touched)
		visit(context, dlist_container(ShardRoute, touched_node, iter.cur));
}

void
shard_route_reload(ShardRoutes *routes, int32 type_id, int32 shard)
{
	ShardRoute *route = shard_route_known(routes, type_id, shard);

	if (route != NULL)
		load_route(routes, route);
}

/*
 * Only what was passed under the own epoch was taken in; rows of other tags were refused, and a shard
 * whose home is not here takes nothing: its base says all.
 */
void
shard_route_rebuild(ShardRoutes *routes, const ShardItem *item)
{
	ShardRoute *route = shard_route_get(routes, item->type_id, item->shard);

	if (!shard_handoff_takes(&route->own) || item->stamp.kind == SHARD_PREFIX_NONE)
		return;
#ifndef SHARD_MUTANT_REBUILD_ANY_TAG
	if (route->own.epoch != item->epoch)
		return;
#endif
	shard_mark_raise(&route->marks, item->stamp);
	shard_mark_commit(&route->marks, NULL, NULL);
}

/* To the shard's parked messages. */
static void
park(ShardRoutes *routes, ShardRoute *route, const ShardItem *item)
{
	touch(routes, route);
	routes->host->park(routes->context, item);
	route->parked = true;
	note_parked(routes, route);
}

/* To the home's stream, with stamp and tag. */
static void
append(ShardRoutes *routes, const ShardRoute *route, const ShardItem *item)
{
	ShardItem row = *item;

	shard_route_give_stamp(routes, &row);
	row.epoch = route->epoch;
	routes->host->append(routes->context, route->node, &row);
}

/* Is the home here, and does it run in the epoch of the route? */
static bool
active_here(const ShardRoutes *routes, const ShardRoute *route)
{
	return route->node == routes->self && shard_handoff_active(&route->own, route->epoch);
}

/* Must a new message join the parked ones? What waits there is older. */
static bool
joins_parked(const ShardRoutes *routes pg_attribute_unused(), const ShardRoute *route)
{
#ifdef SHARD_MUTANT_NEWER_BEFORE_RESENT
	if (route->node != routes->self)
		return false;
#endif
#ifdef SHARD_MUTANT_LOCAL_BEFORE_PARKED
	if (route->node == routes->self)
		return false;
#endif
	return route->parked;
}

void
shard_route_local(ShardRoutes *routes, const ShardItem *item)
{
	ShardRoute *route = shard_route_get(routes, item->type_id, item->shard);

	if (route->node == 0)
	{
		if (!route->parked)
			routes->host->want_home(routes->context, route);
		park(routes, route, item);
	}
	else if (joins_parked(routes, route) ||
			 (routes->held && shard_route_is_numbered(routes, route)))
		park(routes, route, item);
	else if (route->node != routes->self)
		append(routes, route, item);
	else if (!active_here(routes, route))
		park(routes, route, item);
	else if (shard_route_stamps_inputs(routes, route))
	{
		touch(routes, route);
		shard_route_take_input(routes, route, item);
	}
	else
		routes->host->take(routes->context, route, item);
}

/* Does the home take rows of this tag? */
static bool
takes_tag(const ShardRoute *route, const ShardItem *item)
{
#ifdef SHARD_MUTANT_TAKE_ANY_TAG
	if (route->own.state == SHARD_HOME_ACTIVE)
		return true;
#endif
#ifdef SHARD_MUTANT_CLEARING_REFUSES
	return shard_handoff_active(&route->own, item->epoch);
#endif
	return shard_handoff_takes(&route->own) && route->own.epoch == item->epoch;
}

/*
 * Refused rows have no effect and move no mark: their origin keeps them, and sends them again when it
 * learns the newer home. What was taken in already is only announced again.
 */
void
shard_route_arrived(ShardRoutes *routes, const ShardItem *item)
{
	ShardRoute *route = shard_route_get(routes, item->type_id, item->shard);

	if (!takes_tag(route, item))
	{
#ifdef SHARD_MUTANT_REFUSED_MOVES_MARK
		touch(routes, route);
		shard_mark_raise(&route->marks, item->stamp);
#endif
		routes->host->refused(routes->context, route, item);
		return;
	}
	touch(routes, route);
#ifndef SHARD_MUTANT_RECEIVED_TWICE
	if (!shard_mark_passed(&route->marks, item->stamp))
#endif
		routes->host->take(routes->context, route, item);
	shard_mark_raise(&route->marks, item->stamp);
}

/*
 * Called per floor row, of which there are few: all entries are visited. Marks of shards whose home is
 * not here are history, which a move takes along as it is.
 */
void
shard_route_floor(ShardRoutes *routes, ShardStamp floor)
{
	routemap_iterator iterator;
	RouteEntry *entry;

	routemap_start_iterate(routes->map.hash, &iterator);
	while ((entry = routemap_iterate(routes->map.hash, &iterator)) != NULL)
	{
		ShardRoute *route = entry->route;

		if (!shard_handoff_takes(&route->own))
			continue;
		touch(routes, route);
		shard_mark_floor(&route->marks, floor);
	}
}

/*
 * The ownership row takes a step, with what belongs to it in the same transaction: messages that end,
 * marks that become the base of the new epoch. States are not touched: deleting them takes more than one
 * turn, and must not keep the lane's other shards waiting (M23).
 */
static void
change_own(ShardRoutes *routes, ShardRoute *route, ShardHomeEvent event,
		   const ShardHomeRecord *home)
{
	ShardOwn before = route->own;

	if (!shard_handoff_step(&route->own, event, home->epoch, home->move_id))
	{
		Assert(false);
		return;
	}
	switch (event)
	{
		case SHARD_HOME_FIRST:
			shard_mark_drop(&route->marks);
			break;
		case SHARD_HOME_LOST:
			shard_mark_drop(&route->marks);
			if (before.state != SHARD_HOME_NONE)
				routes->host->discard(routes->context, route);
			break;
		case SHARD_HOME_DECIDED:
			shard_mark_drop(&route->marks);
			routes->host->load_base(routes->context, route);
			break;
		case SHARD_HOME_BACK:
			routes->host->write_base(routes->context, route);
			break;
		case SHARD_HOME_ELSEWHERE:
			shard_mark_drop(&route->marks);
			break;
		default:
			break;
	}
	routes->host->write_own(routes->context, route, &before);
	if (route->own.state == SHARD_HOME_ACTIVE)
		routes->host->started(routes->context, route);
}

void
shard_route_own_changed(ShardRoutes *routes, int32 type_id, int32 shard)
{
	load_route(routes, shard_route_get(routes, type_id, shard));
}

/* What the fact says of the shard here. False: it cannot be true, and nothing is changed. */
static bool
own_fact(ShardRoutes *routes, ShardRoute *route, const ShardHomeRecord *home)
{
	ShardHomeEvent event = shard_handoff_read(&route->own, routes->self, home, route->doubt);

	route->wrong = event == SHARD_HOME_WRONG;
	if (route->wrong)
	{
		routes->host->wrong(routes->context, route, home);
		return false;
	}
	if (event == SHARD_HOME_ELSEWHERE && route->own.state != SHARD_HOME_SEALED &&
		route->doubt == home->epoch && routes->host->undone != NULL)
		routes->host->undone(routes->context, route, home);
	if (event != SHARD_HOME_NOTHING)
		change_own(routes, route, event, home);
	return true;
}

/* Is there anything to send again to that home? */
static bool
must_resend(const ShardRoute *route, const ShardHomeRecord *home pg_attribute_unused())
{
#ifdef SHARD_MUTANT_NO_RESEND
	return false;
#endif
#ifdef SHARD_MUTANT_NO_RESEND_SAME_NODE
	if (route->node == shard_record_home_node(home))
		return false;
#endif
	return route->node != 0;
}

/* All that is kept joins the parked messages; if it is nothing, the next look at them finds out. */
static void
collect(ShardRoutes *routes, ShardRoute *route)
{
	routes->host->collect(routes->context, route);
	route->parked = true;
	note_parked(routes, route);
}

static int drain_route(ShardRoutes *routes, ShardRoute *route, int limit);

/* The set of a newer fact, whose epoch may be the same. Usually the type has no replicas. */
static void
learn_set(ShardRoutes *routes, ShardRoute *route, const ShardHomeRecord *home, int64 n)
{
	if ((!shard_set_is_of(home) && route->set == NULL) || routes->host->write_set == NULL)
		return;
	if (route->set == NULL)
		route->set = palloc0(sizeof(ShardSet));
	if (shard_set_learn(route->set, home, n, routes->self))
		routes->host->write_set(routes->context, route);
}

void
shard_route_fact(ShardRoutes *routes, int32 type_id, int32 shard, const ShardHomeRecord *home,
				 int64 n)
{
	ShardRoute *route = shard_route_get(routes, type_id, shard);
	bool newer = route->node == 0 || home->epoch > route->epoch;

	if (home->n_nodes < 1 || n <= route->n || (!newer && home->epoch < route->epoch))
		return;
	touch(routes, route);
#if defined(SHARD_MUTANT_EQUAL_EPOCH_ACTIVATES) || defined(SHARD_MUTANT_UNSEAL_SAME_EPOCH)
	if (!newer)
		own_fact(routes, route, home);
#endif
	if (newer)
	{
#ifndef SHARD_MUTANT_UNDONE_HOMES_LEAVE_NO_DOUBT
		if (shard_handoff_undone(route->node, route->epoch, home))
			route->doubt = home->epoch;
#endif
		own_fact(routes, route, home);
		if (must_resend(route, home))
			collect(routes, route);
		route->node = shard_record_home_node(home);
		route->epoch = home->epoch;
	}
	/* as the map has it, since others are told so: it only rises, unless what it was raised by was undone (R29) */
	route->lost = home->lost;
	route->n = n;
	learn_set(routes, route, home, n);
#ifndef SHARD_MUTANT_VOLATILE_ROUTE
	routes->host->write_route(routes->context, route);
#endif
	if (newer)
		drain_route(routes, route, routes->chunk);
}

bool
shard_route_kept(const ShardRoute *route, const ShardItem *item)
{
	return item->stamp.kind == SHARD_PREFIX_NODE && item->stamp.seq > route->done &&
		   item->epoch == route->epoch;
}

bool
shard_route_superseded(const ShardRoute *route, const ShardItem *item)
{
	return item->epoch < route->epoch;
}

bool
shard_route_done(ShardRoutes *routes, int32 type_id, int32 shard, int32 from, int64 rseq)
{
	ShardRoute *route = shard_route_get(routes, type_id, shard);

#ifdef SHARD_MUTANT_MARKS_BEFORE_A_HOME
	if (from != routes->self && route->node != 0 && route->node != from)
		return false;
#else
	if (from != routes->self && route->node != from)
		return false;
#endif
#ifndef SHARD_MUTANT_MARKS_OF_THE_FUTURE
	rseq = Min(rseq, routes->host->last_rseq(routes->context,
											 routes->host->lane(routes->context, type_id, shard)));
#endif
	route->done = Max(route->done, rseq);
	return true;
}

/* Was it sent to a home whose state is lost, or that was undone, so that its fate cannot be known (N2)? */
static bool
is_in_doubt(const ShardRoute *route, const ShardItem *item)
{
#ifdef SHARD_MUTANT_WRITE_OFF_RESENDS
	return false;
#endif
	return item->stamp.kind != SHARD_PREFIX_NONE && item->sent &&
		   item->epoch < Max(route->lost, route->doubt);
}

static inline bool
is_over(const ShardRoutes *routes)
{
	return routes->host->is_over != NULL && routes->host->is_over(routes->context);
}

/*
 * Let parked messages go on, at most limit of them, and one at least, in their order: what is done is dropped,
 * what is in doubt is a dead letter, the rest goes to the home or is taken in here. Returns how many left.
 */
static int
drain_route(ShardRoutes *routes, ShardRoute *route, int limit)
{
	const ShardRouteHost *host = routes->host;
	void *context = routes->context;
	bool here = route->node == routes->self;
	ShardItem item;
	int moved = 0;

	if (route->node == 0 || (here && !active_here(routes, route)) ||
		(routes->held && shard_route_is_numbered(routes, route)))
		return 0;
	for (;;)
	{
		if (!host->first_parked(context, route, &item))
		{
			route->parked = false;
			break;
		}
		if (moved == limit || (moved > 0 && is_over(routes)))
			break;
		touch(routes, route);
		moved++;
		if (item.stamp.kind == SHARD_PREFIX_NODE && item.stamp.seq <= route->done)
			;
		else if (is_in_doubt(route, &item))
			host->in_doubt(context, route, &item);
		else if (!here)
			append(routes, route, &item);
		else
		{
			shard_route_take_parked(routes, route, &item);
			continue;
		}
		host->unpark(context, route);
	}
	note_parked(routes, route);
	return moved;
}

bool
shard_route_drain(ShardRoutes *routes)
{
	dlist_mutable_iter iter;
	int left = routes->chunk;
	bool more = false;

	dlist_foreach_modify (iter, &routes->drains)
	{
		ShardRoute *route = dlist_container(ShardRoute, drains_node, iter.cur);
		int moved;

		if (!route->loaded)
			load_route(routes, route);
		if (!route->parked)
			continue;
		moved = drain_route(routes, route, left);
		left -= moved;
		more |= moved > 0 && route->parked;
		if (left > 0 && (moved == 0 || !is_over(routes)))
			continue;
		if (route->parked) /* the others come first then */
			dlist_move_tail(&routes->drains, &route->drains_node);
		return !dlist_is_empty(&routes->drains);
	}
	return more;
}

void
shard_route_ask(ShardRoutes *routes)
{
	dlist_iter iter;

	dlist_foreach (iter, &routes->drains)
	{
		ShardRoute *route = dlist_container(ShardRoute, drains_node, iter.cur);

		if (route->loaded && route->node == 0)
			routes->host->want_home(routes->context, route);
	}
}

ShardHandoffAnswer
shard_route_stop(ShardRoutes *routes, const ShardShardRef *ref)
{
	ShardRoute *route = shard_route_get(routes, ref->type_id, ref->shard);
	ShardHandoffAnswer answer = shard_handoff_stop(&route->own, route->epoch, ref);
	ShardOwn before = route->own;

	if (answer != SHARD_HANDOFF_DO || route->own.state != SHARD_HOME_ACTIVE)
		return answer;
	touch(routes, route);
	shard_handoff_step(&route->own, SHARD_HOME_STOP, ref->epoch, ref->move_id);
#ifndef SHARD_MUTANT_MARKS_AT_SEAL
	routes->host->write_base(routes->context, route);
#endif
	routes->host->write_own(routes->context, route, &before);
	return answer;
}

bool
shard_route_step(ShardRoutes *routes, ShardRoute *route, ShardHomeEvent event)
{
	ShardHomeRecord home = {.epoch = route->own.epoch, .move_id = route->own.move_id};

	if (shard_machine_next(&shard_home_machine, route->own.state, event) < 0)
		return false;
	touch(routes, route);
	change_own(routes, route, event, &home);
	return true;
}

/* For shard_mark_commit. */
typedef struct TellContext
{
	ShardRoutes *routes;
	ShardRoute *route;
} TellContext;

static void
tell_mark(void *context, ShardStamp mark)
{
	TellContext *tell = context;

	tell->routes->host->announce(tell->routes->context, tell->route, mark);
}

void
shard_route_commit(ShardRoutes *routes)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &routes->touched)
	{
		ShardRoute *route = dlist_container(ShardRoute, touched_node, iter.cur);
		TellContext tell = {routes, route};

		shard_mark_commit(&route->marks, tell_mark, &tell);
		if (route->own.state != SHARD_HOME_NONE && route->own.state != SHARD_HOME_STAGED)
			route->marks_epoch = route->own.epoch;
		route->touched = false;
		dlist_delete(iter.cur);
	}
}

void
shard_route_abort(ShardRoutes *routes)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &routes->touched)
	{
		ShardRoute *route = dlist_container(ShardRoute, touched_node, iter.cur);

		shard_mark_abort(&route->marks);
		route->loaded = false;
		route->touched = false;
		dlist_delete(iter.cur);

		/* maybe it had parked messages, and they are there again: the next drain looks */
		if (!route->drains)
			dlist_push_tail(&routes->drains, &route->drains_node);
		route->drains = true;
	}
}
