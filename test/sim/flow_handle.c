/*
 * flow_handle.c
 *		What a turn does with a row: the handler is called, or it goes into the stash.
 */
#include "flow_turn.h"

#define MAX_DEPTH 3
#define DEFER_MOST (400 * MS)

/* The first stashed message of an entity at or after a place, for the worker's active shards. */
static const StashRow *
next_stash(Worker *worker, StoreKey *key, ShardRoute **route)
{
	Store *store = worker->flow->store;
	const StashRow *row;

	while ((row = store_at_or_next(store, worker->tx, T_STASH, key)) != NULL)
	{
		int32 type_id = row->row.item.type_id;
		int32 shard = row->row.item.shard;

		if (turn_has_lane(worker, flow_lane(worker->flow, type_id, shard)))
		{
			*route = shard_route_get(worker->routes, type_id, shard);
			if ((*route)->own.state == SHARD_HOME_ACTIVE)
				return row;
		}
		*key = KEY(key->k[0] + 1);
	}
	return NULL;
}

/*
 * When is a deferred message due? Clocks are the databases' own here, so a time that no handler of
 * this one can have asked for came with a copy, from another clock: it is due at once.
 */
int64
turn_due_here(int64 due, int64 now)
{
	return due > now + DEFER_MOST ? now : due;
}

int64
turn_again_at(const Flow *flow)
{
	return flow_now(flow) + flow_random(flow, DEFER_MOST / MS) * MS;
}

/* When is the first stashed message due? */
int64
turn_stash_due(Worker *worker)
{
	int64 now = flow_now(worker->flow);
	StoreKey key = KEY(PG_INT64_MIN);
	int64 due = PG_INT64_MAX;
	ShardRoute *route;
	const StashRow *row;

	while ((row = next_stash(worker, &key, &route)) != NULL)
	{
		due = Min(due, turn_due_here(row->due, now));
		key = KEY(key.k[0], key.k[1] + 1);
	}
	return due;
}

/* To the end of the entity's stash. */
static void
stash(Worker *worker, const ShardRoute *route, const FlowRow *row, int64 due)
{
	Flow *flow = worker->flow;
	StashRow stashed = {.due = due, .row = *row};

	stashed.row.item.body = NULL;
	if (!store_put(worker->tx, T_STASH, KEY(row_shard_key(row), row->entity, ++flow->arrival),
				   &stashed))
		worker->failed = true;
	turn_output(worker, R_STASHED, route, row->id, 0, 0);
}

/* The handler tells somebody, as a client of its own node would. */
static void
tell_child(Worker *worker, const ShardRoute *route, const FlowRow *row)
{
	Flow *flow = worker->flow;
	const FlowSettings *settings = &flow->settings;
	FlowRow child = {.kind = ROW_TELL, .depth = row->depth + 1};
	int64 session = ((int64) 1 << 62) | ((int64) route->type_id << 52) |
					((int64) route->shard << 36) | ((int64) row->entity << 24) | route->own.epoch;

	child.item.type_id = 1 + (int32) flow_random(flow, settings->types);
	child.item.shard = (int32) flow_random(flow, settings->shards);
	child.entity = (int32) flow_random(flow, settings->entities);
	child.item.epoch = SHARD_NO_EPOCH;
	child.id = check_tell(flow->check, flow->instance, session, child.item.type_id,
						  child.item.shard, child.entity);
	if (worker->n_children == worker->child_space)
	{
		worker->child_space = Max(16, worker->child_space * 2);
		worker->children = pg_realloc(worker->children, worker->child_space * sizeof(int64));
		worker->child_rows = pg_realloc(worker->child_rows, worker->child_space * sizeof(int64));
	}
	if (!flow_append(flow, worker->tx, &child))
		worker->failed = true;
	worker->child_rows[worker->n_children] = flow->seq;
	worker->children[worker->n_children++] = child.id;
	turn_output(worker, R_REPORTED, route, child.id, 0, 0);
}

/* The handler: the entity's state remembers what it was told. */
static void
handle(Worker *worker, const ShardRoute *route, const FlowRow *row)
{
	Flow *flow = worker->flow;
	int64 shard_key = row_shard_key(row);
	StateRow state = {0};
	const StateRow *old = store_get(flow->store, worker->tx, T_STATE, KEY(shard_key, row->entity));

	if (old != NULL)
		state = *old;
	state.version++;
	state.epoch = route->own.epoch;
	if (!store_put(worker->tx, T_STATE, KEY(shard_key, row->entity), &state) ||
		!store_put(worker->tx, T_LEDGER, KEY(shard_key, row->entity, state.version), &row->id))
		worker->failed = true;
	turn_output(worker, R_HANDLED, route, row->id, 0,
				flow->settings.ordered_no_more ? 0 : row->number);
	order_handled(worker, row);
	flow_note(flow,
			  "handles message " INT64_FORMAT
			  ", shard %d/%d entity %d, epoch %d, rseq " INT64_FORMAT,
			  row->id, route->type_id, route->shard, row->entity, route->own.epoch,
			  row->item.stamp.seq);
	if (flow->settings.types > 0 && !flow->settings.no_tells_from_now && row->depth < MAX_DEPTH &&
		flow_percent(flow, flow->settings.tell_percent))
		tell_child(worker, route, row);
}

void
turn_give_up(Worker *worker, const ShardRoute *route, const FlowRow *row)
{
	FlowRow dead = *row;

	dead.given_up = true;
	dead.item.body = NULL;
	if (!store_put(worker->tx, T_DEAD, KEY(row->id), &dead))
		worker->failed = true;
	turn_output(worker, R_GIVEN_UP, route, row->id, 0, 0);
	flow_note(worker->flow, "gives up message " INT64_FORMAT ", number " INT64_FORMAT, row->id,
			  row->number);
}

bool
turn_run(Worker *worker, const ShardRoute *route, const FlowRow *row, bool again)
{
	const FlowSettings *settings = &worker->flow->settings;

	if (!again && !settings->no_tells_from_now &&
		flow_percent(worker->flow, settings->defer_percent))
		return false;
	if (!settings->no_tells_from_now && flow_percent(worker->flow, settings->bury_percent))
		turn_give_up(worker, route, row);
	else
		handle(worker, route, row);
	return true;
}

bool
turn_has_stash(const Worker *worker, int64 shard_key, int32 entity)
{
	StoreKey key = KEY(shard_key, entity);

	return store_at_or_next(worker->flow->store, worker->tx, T_STASH, &key) != NULL &&
		   key.k[0] == shard_key && key.k[1] == entity;
}

/* The turn runs a shard: a leased one needs the lease until the commit. */
void
turn_runs(Worker *worker, const ShardRoute *route)
{
	Flow *flow = worker->flow;

	if (!flow_is_leased(flow, route->type_id))
		return;
	worker->leased = true;
	if (!flow->retired)
		check_turn_began(flow->check, flow->instance, route->type_id, route->shard,
						 route->own.epoch);
}

void
turn_take(Worker *worker, const ShardRoute *route, const FlowRow *row)
{
	Flow *flow = worker->flow;

	turn_runs(worker, route);
	if (worker->arriving && row->item.epoch != route->own.epoch && !flow->retired)
		check_fail(flow->check, "V9: message " INT64_FORMAT " with tag %d taken in epoch %d",
				   row->id, row->item.epoch, route->own.epoch);
	worker->handled++;
	if (turn_has_stash(worker, row_shard_key(row), row->entity) ||
		route->own.state == SHARD_HOME_CLEARING)
		stash(worker, route, row, 0);
	else if (!order_take(worker, route, row, false))
		stash(worker, route, row, turn_again_at(flow));
}

/* A row of the log, in its turn. */
void
turn_process(Worker *worker, const FlowRow *stored)
{
	FlowRow row = *stored;
	ShardHomeRecord home = {0};

	row.item.body = &row;
	switch (row.kind)
	{
		case ROW_TELL:
			worker->arriving = row.item.epoch != SHARD_NO_EPOCH;
			if (worker->arriving)
				shard_route_arrived(worker->routes, &row.item);
			else
				shard_route_local(worker->routes, &row.item);
			worker->arriving = false;
			break;
		case ROW_FACT:
			home.epoch = row.fact_epoch;
			home.n_nodes = 1;
			home.nodes[0] = row.fact_node;
			home.lost = row.fact_lost;
			home.move_id = row.fact_move;
			worker->fact_lost = row.fact_lost;
			shard_route_fact(worker->routes, row.item.type_id, row.item.shard, &home, row.fact_n);
			/* This turn has looked at parked messages already. */
			worker->more |=
				shard_route_get(worker->routes, row.item.type_id, row.item.shard)->parked;
			break;
		case ROW_FLOOR:
			shard_route_floor(worker->routes, row.item.stamp);
			break;
		case ROW_OWN:
			worker->fact_lost = 0;
			shard_route_own_changed(worker->routes, row.item.type_id, row.item.shard);
			break;
		default:
			break;
	}
}

void
turn_drain_stash(Worker *worker)
{
	Flow *flow = worker->flow;
	int budget = flow->settings.step_messages;
	int64 now = flow_now(flow);
	const StashRow *row;
	ShardRoute *route;

	if (!worker->orders_done)
		order_run_due(worker);
	worker->orders_done = true;
	while ((row = next_stash(worker, &worker->stash_at, &route)) != NULL)
	{
		StashRow stashed = *row;

		if (turn_due_here(stashed.due, now) > now)
		{
			worker->stash_at = KEY(worker->stash_at.k[0], worker->stash_at.k[1] + 1);
			continue;
		}
		turn_runs(worker, route);
		if (order_goes_first(worker, route, stashed.row.entity))
		{
			worker->stash_at = KEY(worker->stash_at.k[0], worker->stash_at.k[1] + 1);
			continue;
		}
		if (!store_remove(worker->tx, T_STASH, worker->stash_at))
			worker->failed = true;
		order_take(worker, route, &stashed.row, true);
		worker->handled++;
		if (worker->handled >= flow->settings.turn_messages)
		{
			worker->more = true;
			worker->phase = TURN_COMMIT;
			return;
		}
		if (--budget == 0)
			return;
	}
	worker->phase = TURN_PARKED;
}
