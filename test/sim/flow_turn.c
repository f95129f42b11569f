/*
 * flow_turn.c
 *		A region worker's turn: one transaction over its lanes, in steps (D4-D7, W3).
 *
 * The order is the product's: senders that ended since they were met, stashed messages that are due,
 * parked ones that can go on, then the log forward. A turn is bounded, so it may end in the middle of
 * any of them; what is to be seen of the log is fixed when it begins.
 */
#include "flow_turn.h"

#define MAX_DEPTH 3
#define MARKS_EVERY 24 /* rows of the log between two savings of the marks */
#define CHUNK 3
#define ASK_AGAIN (2000 * MS)
#define DEFER_MOST (400 * MS)

static int64
lowest_q(const Worker *worker)
{
	int64 lowest = PG_INT64_MAX;

	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if (worker->lanes & (1u << lane))
			lowest = Min(lowest, worker->cursors[lane].q);
	}
	return lowest;
}

static bool
was_open(const Worker *worker, int64 xid)
{
	for (int i = 0; i < worker->n_open; i++)
	{
		if (worker->open[i] == xid)
			return true;
	}
	return false;
}

static Sender *
find_sender(CursorRow *cursor, int64 xid)
{
	for (int i = 0; i < cursor->n_senders; i++)
	{
		if (cursor->senders[i].xid == xid)
			return &cursor->senders[i];
	}
	return NULL;
}

/* Of which lane is a row of the log? Rows of the log itself are of none. */
static int
row_lane(const Flow *flow, const FlowRow *row)
{
	if (row->kind == ROW_MARK)
		return -1;
	if (row->kind == ROW_FLOOR)
		return row->item.stamp.b;
	return flow_lane(flow, row->item.type_id, row->item.shard);
}

static bool
is_mine(const Worker *worker, int lane)
{
	return lane >= 0 && (worker->lanes & (1u << lane)) != 0;
}

static void
read_cursors(Worker *worker)
{
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		const CursorRow *row;

		if (!is_mine(worker, lane))
			continue;
		row = store_get(worker->flow->store, NULL, T_CURSOR, KEY(lane));
		if (row != NULL)
			worker->cursors[lane] = *row;
		else
			memset(&worker->cursors[lane], 0, sizeof(CursorRow));
	}
}

/* Does the worker have something of a leased type, and no lease to run it (L5)? */
static bool
lease_is_missing(const Worker *worker)
{
	Flow *flow = worker->flow;
	StoreKey key = KEY(0);
	const ShardOwn *own;

	if (flow->host.leased == NULL || flow_now(flow) + 50 * MS < flow->lease_until)
		return false;
	while ((own = store_at_or_next(flow->store, NULL, T_OWN, &key)) != NULL)
	{
		if (shard_handoff_takes(own) && flow_is_leased(flow, (int32) key.k[0]) &&
			is_mine(worker, flow_lane(flow, (int32) key.k[0], (int32) key.k[1])))
			return true;
		key.k[3]++;
	}
	return false;
}

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

		if (is_mine(worker, flow_lane(worker->flow, type_id, shard)))
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
static int64
stash_due(Worker *worker)
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

/*
 * May the worker take a fact? All facts are rows of the log, behind what they follow from; of that order
 * one thing counts here: a row that says that another process changed the shard's ownership row, which
 * the worker has not come to yet, goes before the fact.
 */
static bool
is_met(const Worker *worker, const FactItem *fact)
{
	const Flow *flow = worker->flow;
	int lane = flow_lane(flow, fact->type_id, fact->shard);
	const CursorRow *cursor;
	int64 q;

	if (!is_mine(worker, lane))
		return false;
	cursor = store_get(flow->store, NULL, T_CURSOR, KEY(lane));
	q = cursor != NULL ? cursor->q : 0;
	for (int i = 0; i < flow->n_notices; i++)
	{
		const OwnNotice *notice = &flow->notices[i];

		if (notice->type_id == fact->type_id && notice->shard == fact->shard && notice->seq > q &&
			notice->seq <= fact->seq)
			return false;
	}
	return true;
}

bool
turn_due(Worker *worker)
{
	Flow *flow = worker->flow;
	int64 now = flow_now(flow);

	if ((flow->exclusive & worker->lanes) != 0 || now < worker->not_before ||
		store_full(flow->store) || lease_is_missing(worker))
		return false;
	if (worker->more || flow->seq > worker->seen || turn_has_orders(worker))
		return true;
	for (int i = 0; i < flow->n_facts; i++)
	{
		if (is_met(worker, &flow->facts[i]))
			return true;
	}
	for (int i = 0; i < flow->n_reloads; i++)
	{
		if (flow->reloads[i].lanes & worker->lanes)
			return true;
	}
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		const CursorRow *cursor = NULL;

		if (is_mine(worker, lane))
			cursor = store_get(flow->store, NULL, T_CURSOR, KEY(lane));
		for (int i = 0; cursor != NULL && i < cursor->n_senders; i++)
		{
			if (!store_in_progress(flow->store, cursor->senders[i].xid))
				return true;
		}
	}
	if (now >= worker->ask_at)
	{
		worker->ask_at = now + ASK_AGAIN;
		shard_route_ask(worker->routes);
	}
	return stash_due(worker) <= now || order_due_at(worker) <= now;
}

int64
turn_wake(Worker *worker)
{
	int64 wake = Min(stash_due(worker), order_due_at(worker));
	StoreKey key = KEY(PG_INT64_MIN);

	if (store_full(worker->flow->store) || worker->flow->exclusive != 0)
		wake = Min(wake, flow_now(worker->flow) + 100 * MS);
	if (worker->flow->host.leased != NULL)
		wake = Min(wake, flow_now(worker->flow) + 500 * MS);
	if (store_at_or_next(worker->flow->store, NULL, T_PARKED, &key) != NULL)
		wake = Min(wake, worker->ask_at);
	return Max(wake, worker->not_before);
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
static void
process_row(Worker *worker, const FlowRow *stored)
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

/* Does a newer fact of the same shard wait, too? */
static bool
is_overtaken(const Flow *flow, const FactItem *fact)
{
	for (int i = 0; i < flow->n_facts; i++)
	{
		const FactItem *other = &flow->facts[i];

		if (other->type_id == fact->type_id && other->shard == fact->shard && other->n > fact->n)
			return true;
	}
	return false;
}

/*
 * Facts that came from the control plane or in an answer; of a shard the newest alone. A node that was
 * frozen learns at once that a leased shard became its own and was taken away again: it must not run
 * it in between (L12).
 */
static void
apply_facts(Worker *worker)
{
	Flow *flow = worker->flow;

	for (int i = 0; i < flow->n_facts; i++)
	{
		FactItem fact = flow->facts[i];

		if (!is_met(worker, &fact))
			continue;
		flow->facts[i].taken = true;
#ifndef SHARD_MUTANT_FACTS_ONE_BY_ONE
		if (is_overtaken(flow, &fact))
			continue;
#endif
		worker->fact_lost = fact.home.lost;
		shard_route_fact(worker->routes, fact.type_id, fact.shard, &fact.home, fact.n);
	}
}

static void
end_facts(Worker *worker, bool committed)
{
	Flow *flow = worker->flow;
	int kept = 0;

	for (int i = 0; i < flow->n_facts; i++)
	{
		FactItem fact = flow->facts[i];

		if (is_mine(worker, flow_lane(flow, fact.type_id, fact.shard)))
		{
			if (committed && fact.taken)
				continue;
			fact.taken = false;
		}
		flow->facts[kept++] = fact;
	}
	flow->n_facts = kept;
}

static void
apply_reloads(Worker *worker)
{
	Flow *flow = worker->flow;
	int kept = 0;

	for (int i = 0; i < flow->n_reloads; i++)
	{
		if (flow->reloads[i].lanes & worker->lanes)
			shard_route_reload(worker->routes, flow->reloads[i].type_id, flow->reloads[i].shard);
		else
			flow->reloads[kept++] = flow->reloads[i];
	}
	flow->n_reloads = kept;
}

/* An order for one of the worker's shards, due now. */
static bool
is_order(const Worker *worker, const Operation *operation)
{
	const Flow *flow = worker->flow;

	return (operation->kind == OP_STOP || operation->kind == OP_SEAL ||
			operation->kind == OP_BEGIN) &&
		   operation->not_before <= flow_now(flow) &&
		   is_mine(worker, flow_lane(flow, operation->ref.type_id, operation->ref.shard));
}

bool
turn_has_orders(const Worker *worker)
{
	const Flow *flow = worker->flow;

	for (int i = 0; i < flow->n_operations; i++)
	{
		if (is_order(worker, &flow->operations[i]))
			return true;
	}
	return false;
}

static OperationKind
stop_shard(Worker *worker, const ShardShardRef *ref)
{
	switch (shard_route_stop(worker->routes, ref))
	{
		case SHARD_HANDOFF_DO:
			return OP_SEAL;
		case SHARD_HANDOFF_DONE:
			return OP_TELL;
		default:
			return OP_OVER;
	}
}

static OperationKind
seal_shard(Worker *worker, const ShardShardRef *ref)
{
	ShardRoute *route = shard_route_get(worker->routes, ref->type_id, ref->shard);

	if (route->own.state != SHARD_HOME_STOPPING || route->own.epoch != ref->epoch ||
		route->own.move_id != ref->move_id)
		return OP_OVER;
#ifdef SHARD_MUTANT_MARKS_AT_SEAL
	turn_route_host.write_base(worker, route);
#endif
	return shard_route_step(worker->routes, route, SHARD_HOME_SEAL) ? OP_TELL : OP_OVER;
}

/* What was left of the shard's former life is gone (M23). */
static OperationKind
begin_anew(Worker *worker, const ShardShardRef *ref)
{
	Flow *flow = worker->flow;
	ShardRoute *route = shard_route_get(worker->routes, ref->type_id, ref->shard);

	if (route->own.state != SHARD_HOME_CLEARING || route->own.epoch != ref->epoch)
		return OP_OVER;
	if (!flow->retired && move_has_states(flow->store, SHARD_KEY(ref->type_id, ref->shard)))
		check_fail(flow->check, "M23: shard %d/%d on %d begins anew with states of before",
				   ref->type_id, ref->shard, flow->instance);
	(void) shard_route_step(worker->routes, route, SHARD_HOME_DELETED);
	return OP_OVER;
}

/* Shards that are to be stopped, that stop, or begin anew: a step of each, with what else the turn does. */
static void
take_orders(Worker *worker)
{
	Flow *flow = worker->flow;

	for (int i = 0; i < flow->n_operations; i++)
	{
		Operation *operation = &flow->operations[i];

		if (!is_order(worker, operation))
			continue;
		worker->fact_lost = 0;
		if (operation->kind == OP_STOP)
			operation->next = stop_shard(worker, &operation->ref);
		else if (operation->kind == OP_SEAL)
			operation->next = seal_shard(worker, &operation->ref);
		else
			operation->next = begin_anew(worker, &operation->ref);
	}
}

/* The turn with the orders ended. That a shard is sealed is told past the gate. */
static void
end_orders(Worker *worker, bool committed, int64 lsn)
{
	Flow *flow = worker->flow;

	for (int i = 0; i < flow->n_operations; i++)
	{
		Operation *operation = &flow->operations[i];
		Release stopped = {.kind = R_STOPPED, .ref = operation->ref, .lsn = lsn};

		if (operation->next == OP_NONE ||
			!is_mine(worker, flow_lane(flow, operation->ref.type_id, operation->ref.shard)))
			continue;
		if (committed && operation->next == OP_TELL)
			flow_release_at(flow, &stopped);
		if (committed)
			operation->kind = operation->next == OP_SEAL ? OP_SEAL : OP_NONE;
		operation->not_before = flow_now(flow) + flow_random(flow, 100) * MS;
		operation->next = OP_NONE;
	}
}

/* The tail of the log first, then who is open: a row below it is of a known sender. */
static void
begin_turn(Worker *worker)
{
	Flow *flow = worker->flow;

	worker->tail = flow->seq;
	worker->n_open = store_open_xids(flow->store, worker->open, lengthof(worker->open));
	worker->tx = store_begin(flow->store);
	worker->failed = worker->leased = worker->more = worker->saves = false;
	worker->lease_until = flow->lease_until;
	worker->handled = 0;
	worker->changed = worker->appended = 0;
	worker->at = 0;
	worker->stash_at = KEY(PG_INT64_MIN);
	worker->orders_done = false;
	worker->turn_at = flow_now(flow);
	worker->n_children = worker->n_outputs = worker->n_owned = 0;
	apply_reloads(worker);
	read_cursors(worker);
	shard_route_hold(worker->routes, !flow->pushes);
	apply_facts(worker);
	take_orders(worker);
	worker->phase = TURN_SENDERS;
}

static void
remove_ended(Worker *worker)
{
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		CursorRow *cursor = &worker->cursors[lane];
		int kept = 0;

		if (!is_mine(worker, lane))
			continue;
		for (int i = 0; i < cursor->n_senders; i++)
		{
			if (was_open(worker, cursor->senders[i].xid))
				cursor->senders[kept++] = cursor->senders[i];
		}
		if (kept != cursor->n_senders)
			worker->changed |= worker->lanes;
		cursor->n_senders = kept;
	}
}

/* The first row that a sender which has ended left behind. */
static int64
first_of_ended(Worker *worker)
{
	int64 first = PG_INT64_MAX;

	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		for (int i = 0; is_mine(worker, lane) && i < worker->cursors[lane].n_senders; i++)
		{
			const Sender *sender = &worker->cursors[lane].senders[i];

			if (!was_open(worker, sender->xid))
				first = Min(first, sender->first);
		}
	}
	return first;
}

/* Rows of ended senders, merged by seq. All of them go before q moves (D7). */
static void
drain_senders(Worker *worker)
{
	Flow *flow = worker->flow;
	int budget = flow->settings.step_messages;
	StoreKey key = KEY(Max(worker->at, first_of_ended(worker)));
	const FlowRow *row;
	bool open;

	while (key.k[0] <= worker->tail &&
		   (row = store_scan(flow->store, T_INBOX, &key, &open)) != NULL &&
		   key.k[0] <= worker->tail)
	{
		int lane = row_lane(flow, row);
		CursorRow *cursor = is_mine(worker, lane) ? &worker->cursors[lane] : NULL;
		Sender *sender = cursor != NULL ? find_sender(cursor, row->xid) : NULL;

		if (sender != NULL && !open && !was_open(worker, row->xid) && key.k[0] >= sender->first &&
			key.k[0] <= cursor->q)
		{
			sender->first = key.k[0] + 1;
			worker->changed |= worker->lanes;
			process_row(worker, row);
			worker->at = key.k[0] + 1;
			if (worker->handled >= flow->settings.turn_messages)
			{
				worker->more = true;
				worker->phase = TURN_COMMIT;
				return;
			}
			if (--budget == 0)
				return;
		}
		key = KEY(key.k[0] + 1);
	}
	remove_ended(worker);
	worker->phase = TURN_STASH;
}

static void
drain_stash(Worker *worker)
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

/* A sender that is still open is remembered and passed. False: no room for it. */
static bool
pass_sender(Worker *worker, CursorRow *cursor, int64 xid, int64 seq)
{
#ifdef SHARD_MUTANT_P_PASSED
	return true;
#endif
	if (find_sender(cursor, xid) != NULL)
		return true;
	if (cursor->n_senders == MAX_SENDERS)
		return false;
	cursor->senders[cursor->n_senders].xid = xid;
	cursor->senders[cursor->n_senders].first = seq;
	cursor->n_senders++;
	worker->changed |= worker->lanes;
	return true;
}

/* q of all lanes is the last row that was looked at. */
static void
move_q(Worker *worker, int64 q)
{
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if (is_mine(worker, lane))
			worker->cursors[lane].q = Max(worker->cursors[lane].q, q);
	}
}

static void
scan_forward(Worker *worker)
{
	Flow *flow = worker->flow;
	int budget = flow->settings.step_messages;
	StoreKey key = KEY(lowest_q(worker) + 1);
	const FlowRow *row;
	bool open;

	while (key.k[0] <= worker->tail &&
		   (row = store_scan(flow->store, T_INBOX, &key, &open)) != NULL &&
		   key.k[0] <= worker->tail)
	{
		int lane = row_lane(flow, row);

		if (is_mine(worker, lane) && key.k[0] > worker->cursors[lane].q)
		{
			CursorRow *cursor = &worker->cursors[lane];

			if (budget == 0)
				return;
			budget--;
			if (open || was_open(worker, row->xid) || find_sender(cursor, row->xid) != NULL)
			{
				if (!pass_sender(worker, cursor, row->xid, key.k[0]))
				{
					worker->phase = TURN_COMMIT;
					return;
				}
			}
			else
				process_row(worker, row);
			worker->changed |= worker->lanes;
		}
		move_q(worker, key.k[0]);
		if (worker->handled >= flow->settings.turn_messages)
		{
			worker->more = true;
			worker->phase = TURN_COMMIT;
			return;
		}
		key = KEY(key.k[0] + 1);
	}
	worker->seen = worker->tail;
	worker->phase = TURN_COMMIT;
}

/* For shard_route_each: a mark of a shard whose home is here becomes a row of the log. */
static void
save_marks_of(void *context, ShardRoute *route)
{
	Worker *worker = context;

	if (!route->loaded || !shard_handoff_takes(&route->own))
		return;
	for (int i = 0; i < route->marks.n_marks; i++)
	{
		FlowRow row = {.kind = ROW_MARK};

		row.item.type_id = route->type_id;
		row.item.shard = route->shard;
		row.item.epoch = route->own.epoch;
		row.item.stamp = route->marks.marks[i].stamp;
		if (row.item.stamp.seq > 0 && !flow_append(worker->flow, worker->tx, &row))
			worker->failed = true;
	}
}

/* Before rows that are the only place of a mark can be rotated away (H7). */
static bool
save_marks(Worker *worker)
{
	if (worker->flow->seq - worker->marks_saved_at < MARKS_EVERY || worker->changed == 0)
		return false;
#ifndef SHARD_MUTANT_ROTATE_WITHOUT_MARKS
	shard_route_each(worker->routes, save_marks_of, worker);
#endif
	return true;
}

static void
write_turn(Worker *worker)
{
	Flow *flow = worker->flow;

	order_write(worker);
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if ((worker->changed & (1u << lane)) &&
			!store_put(worker->tx, T_CURSOR, KEY(lane), &worker->cursors[lane]))
			worker->failed = true;
		for (int i = 0; (worker->appended & (1u << lane)) && i < flow->n_peers; i++)
		{
			if (!link_store_stream(worker->tx, &flow->peers[i], lane))
				worker->failed = true;
		}
	}
}

/* Shards that left memory in this turn, and did not come back in it. */
static void
forget_left(Worker *worker)
{
	for (int i = 0; i < worker->n_owned; i++)
	{
		const ShardRoute *route =
			shard_route_get(worker->routes, worker->owned[i].type_id, worker->owned[i].shard);

#ifndef SHARD_MUTANT_ORDER_REMEMBERED
		if (!shard_handoff_takes(&route->own) && route->own.state != SHARD_HOME_STOPPING)
			order_forget(worker, route);
#endif
	}
}

/* What the commit made true; what may leave waits for the gate. */
static void
publish_turn(Worker *worker, int64 lsn)
{
	Flow *flow = worker->flow;

	for (int i = 0; i < worker->n_children; i++)
		check_committed(flow->check, worker->children[i]);
	for (int i = 0; i < worker->n_owned; i++)
	{
		const ShardOwn *after = &worker->owned[i].after;
		int32 type_id = worker->owned[i].type_id;
		int32 shard = worker->owned[i].shard;
		int32 lost = worker->owned[i].lost;

		flow_own_changed(flow, type_id, shard, &worker->owned[i].before, after, lost);
		/* Before what the same turn handled in that epoch: what was lost cannot come before it. */
		if (shard_handoff_takes(after) && lost > 0 &&
			(after->epoch == lost ||
			 (worker->owned[i].before.epoch < lost && (after->epoch - lost) % (1 << 16) == 0)))
			flow_release_at(flow, &(Release){.kind = R_LOST,
											 .lsn = lsn,
											 .epoch = after->epoch,
											 .ref = {.type_id = type_id, .shard = shard}});
	}
	order_end(worker, true);
	forget_left(worker);
	shard_route_commit(worker->routes);
	for (int i = 0; i < worker->n_outputs; i++)
	{
		worker->outputs[i].lsn = lsn != 0 ? lsn : store_last_lsn(flow->store);
		flow_release_at(flow, &worker->outputs[i]);
	}
	worker->n_outputs = 0;
	end_facts(worker, true);
	end_orders(worker, true, lsn != 0 ? lsn : store_last_lsn(flow->store));
}

/* Was an output made by a turn of a leased shard? */
static bool
is_leased_output(const Worker *worker, const Release *output)
{
	return flow_is_leased(worker->flow, output->ref.type_id);
}

/* The last look at the lease before the commit: by the end that was known at the start (L5, L12). */
static bool
lease_holds(const Worker *worker)
{
	const Flow *flow = worker->flow;
	int64 until = worker->lease_until;

#ifdef SHARD_MUTANT_LEASE_BY_NEWEST
	until = flow->lease_until;
#endif
	if (!worker->leased)
		return true;
	if (flow_now(flow) + 50 * MS >= until)
		return false;
	for (int i = 0; i < worker->n_outputs && !flow->retired; i++)
	{
		const Release *output = &worker->outputs[i];

		if ((output->kind == R_HANDLED || output->kind == R_STASHED) &&
			is_leased_output(worker, output))
			check_turn_commits(flow->check, flow->instance, output->ref.type_id, output->ref.shard,
							   output->epoch);
	}
	return true;
}

/*
 * The worker looks once more after the commit. A turn whose lease had ended by then stood frozen
 * between the last look and the commit: the shard may run elsewhere. What the turn did stays in this
 * database, which is the one local commit of P4; what it wants to tell is held back: its marks, so
 * that origins keep what it took in, and what its handlers told.
 */
static void
hold_back(Worker *worker)
{
	Flow *flow = worker->flow;
	StoreTransaction *tx;
	int kept = 0;

	if (!worker->leased || flow_now(flow) < worker->lease_until)
		return;
	flow_note(flow, "worker %d: a turn was committed after its lease", worker->index);
	tx = store_begin(flow->store);
	for (int i = 0; i < worker->n_outputs; i++)
	{
		const Release *output = &worker->outputs[i];

		if (is_leased_output(worker, output) && output->kind <= R_REFUSED)
		{
			if (!flow->retired && output->id > 0)
				check_stranded(flow->check, output->id);
			for (int k = 0; output->kind == R_REPORTED && k < worker->n_children; k++)
			{
				if (worker->children[k] == output->id)
					store_remove(tx, T_INBOX, KEY(worker->child_rows[k]));
			}
		}
		else
			worker->outputs[kept++] = *output;
	}
	worker->n_outputs = kept;
	store_commit(tx);
}

/* All is written: commit, and what follows. */
static void
end_turn(Worker *worker)
{
	Flow *flow = worker->flow;
	int64 lsn = store_commit(worker->tx);

	worker->tx = NULL;
	worker->phase = TURN_NONE;
	hold_back(worker);
	publish_turn(worker, lsn);
	order_has_read(worker, worker->seen >= worker->tail && !worker->more, lowest_q(worker));
	for (int lane = 0; worker->saves && lane < FLOW_LANES; lane++)
	{
		int64 q = worker->cursors[lane].q;

		if (!is_mine(worker, lane))
			continue;
		for (int i = 0; i < worker->cursors[lane].n_senders; i++)
			q = Min(q, worker->cursors[lane].senders[i].first - 1);
		flow->saved[lane] = q;
	}
	if (worker->saves)
		worker->marks_saved_at = flow->seq;
	worker->poke = true;
	flow_let_go(flow);
}

/* A process may stand still between the last look at the lease and the commit. */
static void
commit_turn(Worker *worker)
{
	worker->saves = save_marks(worker);
	write_turn(worker);
	if (worker->failed || !lease_holds(worker))
		turn_abort(worker);
	else if (worker->leased)
		worker->phase = TURN_CHECKED;
	else
		end_turn(worker);
}

void
turn_abort(Worker *worker)
{
	Flow *flow = worker->flow;

	flow_note(flow, "worker %d aborts a turn", worker->index);
	store_abort(worker->tx);
	worker->tx = NULL;
	worker->phase = TURN_NONE;
	for (int i = 0; i < worker->n_children; i++)
		check_aborted(flow->check, worker->children[i]);
	shard_route_abort(worker->routes);
	order_end(worker, false);
	for (int i = 0; i < flow->n_peers; i++)
	{
		for (int lane = 0; lane < FLOW_LANES; lane++)
		{
			if (worker->appended & (1u << lane))
				link_load_stream(flow, &flow->peers[i], lane);
		}
	}
	end_facts(worker, false);
	end_orders(worker, false, 0);
	worker->more = true;
	worker->seen = 0;
	worker->not_before = flow_now(flow) + 50 * MS;
	worker->poke = true;
}

/* Phases that have nothing to do are no steps of their own. */
static void
skip_phases(Worker *worker)
{
	Store *store = worker->flow->store;
	bool senders = false;

	for (int lane = 0; lane < FLOW_LANES; lane++)
		senders |= is_mine(worker, lane) && worker->cursors[lane].n_senders > 0;
	if (worker->phase == TURN_SENDERS && !senders)
		worker->phase = TURN_STASH;
	if (worker->phase == TURN_STASH && store_count(store, T_STASH) == 0 &&
		order_due_at(worker) > flow_now(worker->flow))
		worker->phase = TURN_PARKED;
	if (worker->phase == TURN_PARKED && store_count(store, T_PARKED) == 0)
	{
		worker->more |= shard_route_drain(worker->routes);
		worker->phase = TURN_FORWARD;
	}
}

void
turn_step(Worker *worker)
{
	skip_phases(worker);
	switch (worker->phase)
	{
		case TURN_NONE:
			begin_turn(worker);
			break;
		case TURN_SENDERS:
			drain_senders(worker);
			break;
		case TURN_STASH:
			drain_stash(worker);
			break;
		case TURN_PARKED:
			worker->more |= shard_route_drain(worker->routes);
			worker->phase = TURN_FORWARD;
			break;
		case TURN_FORWARD:
			scan_forward(worker);
			break;
		case TURN_COMMIT:
			commit_turn(worker);
			break;
		case TURN_CHECKED:
			end_turn(worker);
			break;
	}
	if (worker->phase != TURN_NONE && worker->failed)
		turn_abort(worker);
}

/* Was a row of the log taken in before the worker started, as far as the cursor says? */
static bool
is_passed(Worker *worker, int lane, const FlowRow *row, int64 seq)
{
	const Sender *sender;

	if (seq > worker->cursors[lane].q)
		return false;
	sender = find_sender(&worker->cursors[lane], row->xid);
	return sender == NULL || seq < sender->first;
}

/* Marks from the log: what was saved, and what was passed (H7). */
static void
rebuild_marks(Worker *worker)
{
	Flow *flow = worker->flow;
	StoreKey key = KEY(0);
	const FlowRow *row;

	while ((row = store_at_or_next(flow->store, NULL, T_INBOX, &key)) != NULL)
	{
		int lane = flow_lane(flow, row->item.type_id, row->item.shard);

		if (is_mine(worker, lane) &&
			(row->kind == ROW_MARK || (row->kind == ROW_TELL && row->item.epoch != SHARD_NO_EPOCH &&
									   is_passed(worker, lane, row, key.k[0]))))
			shard_route_rebuild(worker->routes, &row->item);
		key.k[3]++;
	}
}

/* The shards that the worker must know from the start. */
static void
load_entries(Worker *worker)
{
	Flow *flow = worker->flow;
	StoreKey key = KEY(0);
	const ShardOwn *own;
	const FlowRow *row;

	while ((own = store_at_or_next(flow->store, NULL, T_OWN, &key)) != NULL)
	{
		if (is_mine(worker, flow_lane(flow, (int32) key.k[0], (int32) key.k[1])))
		{
			ShardRoute *route = shard_route_get(worker->routes, (int32) key.k[0], (int32) key.k[1]);

			if (own->state == SHARD_HOME_ACTIVE)
				turn_output(worker, R_STARTED, route, 0, 0, 0);
		}
		key.k[3]++;
	}
	key = KEY(PG_INT64_MIN);
	while ((row = store_at_or_next(flow->store, NULL, T_PARKED, &key)) != NULL)
	{
		if (is_mine(worker, flow_lane(flow, row->item.type_id, row->item.shard)))
			shard_route_get(worker->routes, row->item.type_id, row->item.shard);
		key = KEY(key.k[0] + 1);
	}
}

void
turn_start_worker(Worker *worker)
{
	Flow *flow = worker->flow;

	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if (is_mine(worker, lane))
			flow->owner[lane] = worker->index;
	}
	worker->routes = shard_route_create(flow->node, &turn_route_host, worker, CHUNK);
	worker->tx = NULL;
	worker->n_outputs = worker->n_owned = worker->n_children = 0;
	read_cursors(worker);
	load_entries(worker);
	order_load_all(worker);
	rebuild_marks(worker);
	publish_turn(worker, 0);
	worker->more = worker->poke = true;
	worker->seen = 0;
	worker->marks_saved_at = 0;
	worker->ask_at = 0;
	flow_note(flow, "worker %d starts, lanes %x", worker->index, worker->lanes);
}

/* Between two turns: the lanes become free, and with them everything in memory. */
void
turn_stop_worker(Worker *worker)
{
	Flow *flow = worker->flow;

	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if (!is_mine(worker, lane))
			continue;
		flow->owner[lane] = -1;
		flow->saved[lane] = 0;
		for (int i = 0; i < flow->n_peers; i++)
			shard_stream_close(&flow->peers[i].streams[lane]);
	}
	shard_route_destroy(worker->routes);
	worker->routes = NULL;
	worker->lanes = 0;
	memset(worker->links, 0, sizeof(worker->links));
	flow_poke(flow);
}
