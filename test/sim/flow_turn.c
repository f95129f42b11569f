/*
 * flow_turn.c
 *		A region worker's turn: one transaction over its lanes, in steps (D4-D7, W3).
 *
 * The order is the product's: senders that ended since they were met, stashed messages that are due,
 * parked ones that can go on, then the log forward. A turn is bounded, so it may end in the middle of
 * any of them; what is to be seen of the log is fixed when it begins.
 */
#include "flow_turn.h"

#define ASK_AGAIN (2000 * MS)

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
			turn_has_lane(worker, flow_lane(flow, (int32) key.k[0], (int32) key.k[1])))
			return true;
		key.k[3]++;
	}
	return false;
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

	if (!turn_has_lane(worker, lane))
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
	if (worker->more || flow->seq > worker->seen || turn_has_operations(worker))
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

		if (turn_has_lane(worker, lane))
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
	return turn_stash_due(worker) <= now || order_due_at(worker) <= now;
}

int64
turn_wake(Worker *worker)
{
	int64 wake = Min(turn_stash_due(worker), order_due_at(worker));
	StoreKey key = KEY(PG_INT64_MIN);

	if (store_full(worker->flow->store) || worker->flow->exclusive != 0)
		wake = Min(wake, flow_now(worker->flow) + 100 * MS);
	if (worker->flow->host.leased != NULL)
		wake = Min(wake, flow_now(worker->flow) + 500 * MS);
	if (store_at_or_next(worker->flow->store, NULL, T_PARKED, &key) != NULL)
		wake = Min(wake, worker->ask_at);
	return Max(wake, worker->not_before);
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

		if (turn_has_lane(worker, flow_lane(flow, fact.type_id, fact.shard)))
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
	turn_read_cursors(worker);
	shard_route_hold(worker->routes, !flow->pushes);
	apply_facts(worker);
	turn_take_operations(worker);
	worker->phase = TURN_SENDERS;
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
void
turn_publish(Worker *worker, int64 lsn)
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
	turn_end_operations(worker, true, lsn != 0 ? lsn : store_last_lsn(flow->store));
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
	turn_publish(worker, lsn);
	order_has_read(worker, worker->seen >= worker->tail && !worker->more, turn_lowest_q(worker));
	for (int lane = 0; worker->saves && lane < FLOW_LANES; lane++)
	{
		int64 q = worker->cursors[lane].q;

		if (!turn_has_lane(worker, lane))
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
	worker->saves = turn_save_marks(worker);
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
	turn_end_operations(worker, false, 0);
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
		senders |= turn_has_lane(worker, lane) && worker->cursors[lane].n_senders > 0;
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
			turn_drain_senders(worker);
			break;
		case TURN_STASH:
			turn_drain_stash(worker);
			break;
		case TURN_PARKED:
			worker->more |= shard_route_drain(worker->routes);
			worker->phase = TURN_FORWARD;
			break;
		case TURN_FORWARD:
			turn_scan_forward(worker);
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
