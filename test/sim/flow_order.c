/*
 * flow_order.c
 *		Messages in the order of their numbers, as the product keeps it (D25).
 *
 * What is durable: the position of an entity, a row, and the messages that wait for lower numbers. What a
 * worker has in memory of an entity: its position, read when it is first needed, and its queue (how many wait,
 * the lowest of them, since when), counted when its shard becomes active or the worker starts. It goes by
 * memory alone, and both are thrown away when the shard has left.
 */
#include "flow_turn.h"

#define EVICT_PERCENT 25
#define LOOK_AGAIN (20 * MS)

bool
flow_is_ordered(const Flow *flow, int32 type_id, int32 shard, int32 entity)
{
	return flow->settings.ordered_timeout > 0 && entity == 0 && shard % 2 == 0 &&
		   shard < flow->settings.shards && !flow_is_leased(flow, type_id);
}

static bool
has_order(const Worker *worker, const ShardRoute *route, int32 entity)
{
	return flow_is_ordered(worker->flow, route->type_id, route->shard, entity);
}

/* ---- memory ----------------------------------------------------------------------------------- */

static OrderedEntity *
find(Worker *worker, int64 shard_key, int32 entity)
{
	for (int i = 0; i < worker->n_ordered; i++)
	{
		if (worker->ordered[i].shard_key == shard_key && worker->ordered[i].entity == entity)
			return &worker->ordered[i];
	}
	return NULL;
}

/* The entity in the turn. */
static OrderedEntity *
enlist(Worker *worker, int64 shard_key, int32 entity)
{
	OrderedEntity *ordered = find(worker, shard_key, entity);

	if (ordered == NULL)
	{
		if (worker->n_ordered == MAX_ORDERED)
		{
			check_fail(worker->flow->check, "too many entities with an order");
			worker->n_ordered--;
		}
		ordered = &worker->ordered[worker->n_ordered++];
		*ordered = (OrderedEntity){.shard_key = shard_key, .entity = entity};
	}
	if (!ordered->in_turn)
	{
		ordered->in_turn = true;
		ordered->dirty = ordered->ended = false;
		ordered->now = ordered->saved;
	}
	return ordered;
}

static void
drop_at(Worker *worker, int i)
{
	worker->ordered[i] = worker->ordered[--worker->n_ordered];
}

/* The first that waits of an entity, at or above a number. */
static const StashRow *
first_waiting(const Worker *worker, int64 shard_key, int32 entity, int64 *number)
{
	StoreKey key = KEY(shard_key, entity, *number);
	const StashRow *row = store_at_or_next(worker->flow->store, worker->tx, T_WAITING, &key);

	if (row == NULL || key.k[0] != shard_key || key.k[1] != entity)
		return NULL;
	*number = key.k[2];
	return row;
}

/* What waits, by the table. */
static void
count_queue(const Worker *worker, const OrderedEntity *ordered, Order *order)
{
	int64 number = PG_INT64_MIN;

	order->waiting = 0;
	while (first_waiting(worker, ordered->shard_key, ordered->entity, &number) != NULL)
	{
		if (order->waiting++ == 0)
			order->lowest = number;
		number++;
	}
}

static void
read_position(const Worker *worker, const OrderedEntity *ordered, Order *order)
{
	const OrderedRow *row = store_get(worker->flow->store, worker->tx, T_ORDERED,
									  KEY(ordered->shard_key, ordered->entity));

	order->known = true;
	order->begun = row != NULL;
	if (row != NULL)
		order->row = *row;
}

/* The order of an entity in the turn, with its position. */
static Order *
order_of(Worker *worker, OrderedEntity *ordered)
{
	if (!ordered->now.known)
	{
#ifdef SHARD_MUTANT_ORDER_QUEUE_FORGOTTEN
		read_position(worker, ordered, &ordered->saved);
		ordered->now = ordered->saved;
#else
		read_position(worker, ordered, &ordered->now);
#endif
	}
	return &ordered->now;
}

static bool
is_ready(const Worker *worker, const Order *order)
{
	return order->waiting > 0 && (!order->begun || order->lowest == order->row.expected ||
								  worker->flow->settings.ordered_no_more);
}

/* What waits of a shard that becomes active becomes known, in the turn. */
void
order_load(Worker *worker, const ShardRoute *route)
{
	int64 shard_key = SHARD_KEY(route->type_id, route->shard);
	StoreKey key = KEY(shard_key, PG_INT64_MIN, PG_INT64_MIN);

#ifdef SHARD_MUTANT_ORDER_NOT_LOADED
	return;
#endif
	while (store_at_or_next(worker->flow->store, worker->tx, T_WAITING, &key) != NULL &&
		   key.k[0] == shard_key)
	{
		OrderedEntity *ordered = enlist(worker, shard_key, (int32) key.k[1]);

		count_queue(worker, ordered, &ordered->now);
		ordered->now.since = flow_now(worker->flow);
		key = KEY(shard_key, key.k[1] + 1, PG_INT64_MIN);
	}
}

/* The worker starts: of everything that is not on its way. */
void
order_load_all(Worker *worker)
{
	Flow *flow = worker->flow;
	StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN);

	worker->n_ordered = 0;
	worker->read_until = worker->reading_seq = 0;
	while (store_at_or_next(flow->store, NULL, T_WAITING, &key) != NULL)
	{
		int32 type_id = (int32) (key.k[0] >> 32);
		int32 shard = (int32) key.k[0];

		if (worker->lanes & (1u << flow_lane(flow, type_id, shard)))
		{
			const ShardRoute *route = shard_route_get(worker->routes, type_id, shard);

			if (route->own.state != SHARD_HOME_SEALED && route->own.state != SHARD_HOME_STAGED)
				order_load(worker, route);
		}
		key = KEY(key.k[0] + 1, PG_INT64_MIN, PG_INT64_MIN);
	}
	order_end(worker, true);
}

/* The shard has left. */
void
order_forget(Worker *worker, const ShardRoute *route)
{
	for (int i = worker->n_ordered - 1; i >= 0; i--)
	{
		if (worker->ordered[i].shard_key == SHARD_KEY(route->type_id, route->shard))
			drop_at(worker, i);
	}
}

/* The shard begins anew. */
void
order_discard(Worker *worker, const ShardRoute *route)
{
	for (int i = 0; i < worker->n_ordered; i++)
	{
		OrderedEntity *ordered = &worker->ordered[i];

		if (ordered->shard_key != SHARD_KEY(route->type_id, route->shard))
			continue;
		enlist(worker, ordered->shard_key, ordered->entity);
		ordered->now = (Order){.known = true};
		ordered->dirty = false;
	}
}

/* ---- a message -------------------------------------------------------------------------------- */

/* A number is passed: handled, or given up. */
static void
pass(OrderedEntity *ordered, int64 number)
{
	ordered->now.row.expected = number + 1;
	ordered->now.not_before = 0;
	ordered->dirty = true;
}

/* Gives up the numbers in front of what waits. Never backwards: the table says what waits. */
static void
skip_gap(Worker *worker, OrderedEntity *ordered)
{
	Order *order = &ordered->now;

	count_queue(worker, ordered, order);
	if (order->waiting == 0 || order->lowest <= order->row.expected)
		return;
	flow_note(worker->flow, "entity %d skips from " INT64_FORMAT " to " INT64_FORMAT,
			  ordered->entity, order->row.expected, order->lowest);
	order->row.skipped += order->lowest - order->row.expected;
	order->row.expected = order->lowest;
	ordered->dirty = true;
}

static void
bury_late(Worker *worker, OrderedEntity *ordered, const ShardRoute *route, const FlowRow *row)
{
	ordered->now.row.late++;
	ordered->dirty = true;
	turn_give_up(worker, route, row);
}

/* The message waits for lower numbers. Too many that wait make an end of the gap before them. */
static void
wait_for_lower(Worker *worker, OrderedEntity *ordered, const ShardRoute *route, const FlowRow *row)
{
	Flow *flow = worker->flow;
	Order *order = &ordered->now;
	StoreKey key = KEY(ordered->shard_key, ordered->entity, row->number);
	StashRow waits = {.row = *row};

	if (store_get(flow->store, worker->tx, T_WAITING, key) != NULL)
	{
		bury_late(worker, ordered, route, row);
		return;
	}
	waits.row.item.body = NULL;
	if (!store_put(worker->tx, T_WAITING, key, &waits))
		worker->failed = true;
	turn_output(worker, R_STASHED, route, row->id, 0, 0);
	flow_note(flow, "message " INT64_FORMAT ", number " INT64_FORMAT ", waits for " INT64_FORMAT,
			  row->id, row->number, order->row.expected);
	if (order->waiting++ == 0)
	{
		order->lowest = row->number;
		order->since = flow_now(flow);
	}
	order->lowest = Min(order->lowest, row->number);
	if (order->waiting > flow->settings.ordered_window && !is_ready(worker, order))
		skip_gap(worker, ordered);
}

/* The entity begins, with the first number that its type gives, or else with this one. */
static void
begin(const Worker *worker, OrderedEntity *ordered, int64 number)
{
	Order *order = &ordered->now;

	order->begun = true;
	order->row = (OrderedRow){0};
	order->row.began = order->waiting > 0 ? Min(number, order->lowest) : number;
	if (worker->flow->settings.ordered_from)
		order->row.began = 1;
	order->row.expected = order->row.began;
	ordered->dirty = true;
}

/* What is published of the position, for the checkers. */
static void
tell_position(Worker *worker, const OrderedEntity *ordered)
{
	const ShardRoute *route = shard_route_get(worker->routes, (int32) (ordered->shard_key >> 32),
											  (int32) ordered->shard_key);
	Release *release;

	turn_output(worker, R_POSITION, route, 0, 0, 0);
	release = &worker->outputs[worker->n_outputs - 1];
	release->entity = ordered->entity;
	release->begun = ordered->now.begun;
	release->position = ordered->now.row;
}

/* The handler has ended the entity: the next number begins anew. What waits belongs to the old order. */
static void
heed(Worker *worker, OrderedEntity *ordered)
{
	if (ordered->ended && ordered->now.waiting == 0)
	{
		ordered->now = (Order){.known = true};
		ordered->dirty = true;
		tell_position(worker, ordered);
	}
	ordered->ended = false;
}

/* False: it rests, and is to be tried again. */
static bool
run_number(Worker *worker, OrderedEntity *ordered, const ShardRoute *route, const FlowRow *row,
		   bool again)
{
	Order *order = order_of(worker, ordered);

	if (!order->begun)
		begin(worker, ordered, row->number);
	if (row->number > order->row.expected)
		wait_for_lower(worker, ordered, route, row);
	else if (row->number < order->row.expected || is_ready(worker, order))
		bury_late(worker, ordered, route, row);
	else if (turn_run(worker, route, row, again))
	{
		pass(ordered, row->number);
		heed(worker, ordered);
	}
	else
		return false;
	return true;
}

/* The first that waits is expected now. False: it rests, or there is none. */
static bool
run_first(Worker *worker, OrderedEntity *ordered, const ShardRoute *route)
{
	Flow *flow = worker->flow;
	Order *order = &ordered->now;
	int64 number = PG_INT64_MIN;
	const StashRow *first = first_waiting(worker, ordered->shard_key, ordered->entity, &number);
	StashRow row;
	StoreKey key;

	if (first == NULL)
	{
		check_fail(flow->check, "D25: %lld messages wait of shard %d/%d, but there is none",
				   (long long) order->waiting, route->type_id, route->shard);
		return false;
	}
	row = *first;
	key = KEY(ordered->shard_key, ordered->entity, number);
	order->lowest = number;
	if (!is_ready(worker, order))
		return false;
	order->not_before = turn_due_here(row.due, flow_now(flow));
	if (order->not_before > flow_now(flow))
		return false;
	worker->handled++;
	if (!turn_run(worker, route, &row.row, row.due != 0))
	{
		row.due = order->not_before = turn_again_at(flow);
		if (!store_put(worker->tx, T_WAITING, key, &row))
			worker->failed = true;
		return false;
	}
	if (!store_remove(worker->tx, T_WAITING, key))
		worker->failed = true;
	if (!order->begun)
		order->row.began = number;
	order->begun = true;
	order->waiting--;
	pass(ordered, number);
	heed(worker, ordered);
	if (first_waiting(worker, ordered->shard_key, ordered->entity, &number) != NULL)
		order->lowest = number;
	return true;
}

/* What waited and is expected now, as far as the turn goes. */
static void
run_ready(Worker *worker, OrderedEntity *ordered, const ShardRoute *route)
{
	Order *order = &ordered->now;

	if (order->waiting == 0)
		return;
	(void) order_of(worker, ordered);
	while (is_ready(worker, order) && worker->handled < worker->flow->settings.turn_messages &&
		   run_first(worker, ordered, route))
		;
}

bool
order_goes_first(Worker *worker, const ShardRoute *route, int32 entity)
{
	OrderedEntity *ordered;

	if (!has_order(worker, route, entity))
		return false;
	ordered = enlist(worker, SHARD_KEY(route->type_id, route->shard), entity);
	run_ready(worker, ordered, route);
	return is_ready(worker, &ordered->now);
}

bool
order_take(Worker *worker, const ShardRoute *route, const FlowRow *row, bool again)
{
	OrderedEntity *ordered;

	if (!has_order(worker, route, row->entity))
		return turn_run(worker, route, row, again);
#ifndef SHARD_MUTANT_ORDER_DROPPED_OVERTAKEN
	if (worker->flow->settings.ordered_no_more && order_goes_first(worker, route, row->entity))
		return false;
#endif
	ordered = enlist(worker, row_shard_key(row), row->entity);
	if (row->number != 0 && !worker->flow->settings.ordered_no_more)
	{
		if (!run_number(worker, ordered, route, row, again))
			return false;
	}
	else if (turn_run(worker, route, row, again))
		heed(worker, ordered);
	else
		return false;
	run_ready(worker, ordered, route);
	return true;
}

/* The handler has returned: does the entity end with this message? Nothing overtakes what is free to go. */
void
order_handled(Worker *worker, const FlowRow *row)
{
	const Flow *flow = worker->flow;
	OrderedEntity *ordered = find(worker, row_shard_key(row), row->entity);
	int64 number = PG_INT64_MIN;

	if (ordered != NULL && ordered->in_turn)
		ordered->ended = row->stops;
	if (flow->settings.ordered_no_more && !flow->retired &&
		first_waiting(worker, row_shard_key(row), row->entity, &number) != NULL &&
		number != row->number)
		check_fail(flow->check,
				   "D25: message " INT64_FORMAT " of shard %d/%d overtakes number " INT64_FORMAT
				   " in an order that was dropped",
				   row->id, row->item.type_id, row->item.shard, number);
}

/* ---- time ------------------------------------------------------------------------------------- */

/* The route of an entity of which messages wait, if it runs here. */
static const ShardRoute *
route_of(Worker *worker, const OrderedEntity *ordered)
{
	const ShardRoute *route = shard_route_get(worker->routes, (int32) (ordered->shard_key >> 32),
											  (int32) ordered->shard_key);

	return route->own.state == SHARD_HOME_ACTIVE ? route : NULL;
}

/* When it has waited for too long. */
static int64
over_at(const Worker *worker, const Order *order)
{
	return order->since + worker->flow->settings.ordered_timeout;
}

/* When something of an entity is due, by memory. */
static int64
due_at(Worker *worker, const OrderedEntity *ordered)
{
	const Order *order = &ordered->saved;

	if (order->waiting == 0 || route_of(worker, ordered) == NULL ||
		turn_has_stash(worker, ordered->shard_key, ordered->entity))
		return PG_INT64_MAX;
	if (!order->known)
		return 0;
	if (is_ready(worker, order))
		return order->not_before;
	/* the turn that began it may not have read the log yet: there will be another one */
	return worker->phase != TURN_NONE ? over_at(worker, order)
									  : Max(over_at(worker, order), worker->turn_at + LOOK_AGAIN);
}

int64
order_due_at(Worker *worker)
{
	int64 due = PG_INT64_MAX;

	for (int i = 0; i < worker->n_ordered; i++)
		due = Min(due, due_at(worker, &worker->ordered[i]));
	return due;
}

/* What is due of all entities: gaps that are given up, and what can go on. */
void
order_run_due(Worker *worker)
{
	int64 now = flow_now(worker->flow);

	for (int i = 0; i < worker->n_ordered; i++)
	{
		OrderedEntity *ordered = &worker->ordered[i];
		const ShardRoute *route = route_of(worker, ordered);
		Order *order;

		if (due_at(worker, ordered) > now || route == NULL ||
			worker->handled >= worker->flow->settings.turn_messages)
			continue;
		enlist(worker, ordered->shard_key, ordered->entity);
		if (ordered->now.waiting == 0)
			continue;
		turn_runs(worker, route);
		order = order_of(worker, ordered);
		if (!is_ready(worker, order) && over_at(worker, order) <= worker->read_until)
			skip_gap(worker, ordered);
		run_ready(worker, ordered, route);
	}
}

/* ---- the end of a turn ------------------------------------------------------------------------ */

/* Nothing that waits may be below what is expected. */
static void
check_queue(const Worker *worker, const OrderedEntity *ordered)
{
	const Flow *flow = worker->flow;
	int64 number = PG_INT64_MIN;

	if (flow->retired || !ordered->now.begun ||
		first_waiting(worker, ordered->shard_key, ordered->entity, &number) == NULL)
		return;
	if (number < ordered->now.row.expected)
		check_fail(
			flow->check,
			"D25: number %lld of shard %d/%d, entity %d, waits on %d, where %lld is expected",
			(long long) number, (int32) (ordered->shard_key >> 32), (int32) ordered->shard_key,
			ordered->entity, flow->instance, (long long) ordered->now.row.expected);
}

/* Positions that changed, before the commit. */
void
order_write(Worker *worker)
{
	for (int i = 0; i < worker->n_ordered; i++)
	{
		OrderedEntity *ordered = &worker->ordered[i];
		StoreKey key = KEY(ordered->shard_key, ordered->entity);

		if (!ordered->in_turn || !ordered->dirty)
			continue;
		if (!(ordered->now.begun ? store_put(worker->tx, T_ORDERED, key, &ordered->now.row)
								 : store_remove(worker->tx, T_ORDERED, key)))
			worker->failed = true;
		check_queue(worker, ordered);
		tell_position(worker, ordered);
	}
}

/* What the turn did is true, or never was. An entity of which nothing waits may leave memory at any time. */
void
order_end(Worker *worker, bool committed)
{
	for (int i = worker->n_ordered - 1; i >= 0; i--)
	{
		OrderedEntity *ordered = &worker->ordered[i];

		if (committed && ordered->in_turn)
			ordered->saved = ordered->now;
		ordered->in_turn = ordered->dirty = ordered->ended = false;
		if (ordered->saved.waiting == 0 && flow_percent(worker->flow, EVICT_PERCENT))
			drop_at(worker, i);
	}
}

/*
 * Until when the log was looked at: while turns leave something to read, up to where it went at some time,
 * once that is passed.
 */
void
order_has_read(Worker *worker, bool clean, int64 passed)
{
	if (clean)
	{
		worker->read_until = worker->turn_at;
		worker->reading_seq = 0;
	}
	else if (worker->reading_seq == 0)
	{
		worker->reading_seq = worker->flow->seq;
		worker->reading_at = worker->turn_at;
	}
	else if (passed >= worker->reading_seq)
	{
		worker->read_until = worker->reading_at;
		worker->reading_seq = 0;
	}
}
