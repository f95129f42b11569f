/*
 * flow_route.c
 *		What the routes of a worker want done in its turn: durable changes, in the turn's transaction.
 */
#include "flow_turn.h"

/* Write, or remember that the turn cannot commit. */
static void
put(Worker *worker, int table, StoreKey key, const void *value)
{
	if (!store_put(worker->tx, table, key, value))
		worker->failed = true;
}

static void
drop(Worker *worker, int table, StoreKey key)
{
	if (!store_remove(worker->tx, table, key))
		worker->failed = true;
}

/* Something that follows the commit. */
void
turn_output(Worker *worker, ReleaseKind kind, const ShardRoute *route, int64 id, int32 peer,
			int64 number)
{
	Release *release;

	if (worker->n_outputs == worker->output_space)
	{
		worker->output_space = Max(32, worker->output_space * 2);
		worker->outputs = pg_realloc(worker->outputs, worker->output_space * sizeof(Release));
	}
	release = &worker->outputs[worker->n_outputs++];
	memset(release, 0, sizeof(*release));
	release->kind = kind;
	release->id = id;
	release->peer = peer;
	release->number = number;
	release->ref.type_id = route->type_id;
	release->ref.shard = route->shard;
	release->ref.epoch = route->own.epoch;
	release->ref.move_id = route->own.move_id;
	release->epoch = route->own.epoch;
}

static void
do_load(void *context, ShardRoute *route)
{
	Worker *worker = context;
	Store *store = worker->flow->store;
	int64 shard_key = SHARD_KEY(route->type_id, route->shard);
	StoreKey key = KEY(shard_key);
	const RouteRow *row = store_get(store, worker->tx, T_ROUTE, KEY(route->type_id, route->shard));
	const ShardOwn *own = store_get(store, worker->tx, T_OWN, KEY(route->type_id, route->shard));

	if (row != NULL)
	{
		route->node = row->node;
		route->epoch = row->epoch;
		route->lost = row->lost;
		route->doubt = row->doubt;
		route->n = row->n;
	}
	if (own != NULL)
		route->own = *own;
	route->parked =
		store_at_or_next(store, worker->tx, T_PARKED, &key) != NULL && key.k[0] == shard_key;
}

static void
do_load_base(void *context, ShardRoute *route)
{
	Worker *worker = context;
	int64 shard_key = SHARD_KEY(route->type_id, route->shard);
	StoreKey key = KEY(shard_key, PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN);
	const int64 *seq;

	while ((seq = store_at_or_next(worker->flow->store, worker->tx, T_BASE, &key)) != NULL &&
		   key.k[0] == shard_key)
	{
		shard_mark_raise(&route->marks,
						 (ShardStamp){(int32) key.k[1], (int32) key.k[2], (int32) key.k[3], *seq});
		key.k[3]++;
	}
}

static void
do_write_route(void *context, const ShardRoute *route)
{
	Worker *worker = context;
	RouteRow row = {.node = route->node,
					.epoch = route->epoch,
					.lost = route->lost,
					.doubt = route->doubt,
					.n = route->n};

	put(worker, T_ROUTE, KEY(route->type_id, route->shard), &row);
}

/* Is the ownership row as it was read? If not, somebody else changed it: the turn reads it anew. */
static bool
is_still(Worker *worker, const ShardRoute *route, const ShardOwn *before)
{
	const ShardOwn *row =
		store_get(worker->flow->store, worker->tx, T_OWN, KEY(route->type_id, route->shard));

	if (row == NULL)
		return before->state == SHARD_HOME_NONE;
	return row->state == before->state && row->epoch == before->epoch &&
		   row->move_id == before->move_id;
}

static void
do_write_own(void *context, const ShardRoute *route, const ShardOwn *before)
{
	Worker *worker = context;

#ifndef SHARD_MUTANT_OWN_WRITE_WITHOUT_COMPARE
	if (!is_still(worker, route, before))
	{
		flow_note(worker->flow, "worker %d: shard %d/%d was changed by another process",
				  worker->index, route->type_id, route->shard);
		worker->failed = true;
		return;
	}
#endif
	if (route->own.state == SHARD_HOME_ACTIVE && before->state != SHARD_HOME_ACTIVE &&
		before->state != SHARD_HOME_NONE && before->state != SHARD_HOME_CLEARING)
		order_load(worker, route);
	if (route->own.state == SHARD_HOME_NONE)
		drop(worker, T_OWN, KEY(route->type_id, route->shard));
	else
		put(worker, T_OWN, KEY(route->type_id, route->shard), &route->own);
	if (worker->n_owned < (int) lengthof(worker->owned))
	{
		worker->owned[worker->n_owned].type_id = route->type_id;
		worker->owned[worker->n_owned].shard = route->shard;
		worker->owned[worker->n_owned].lost = worker->fact_lost;
		worker->owned[worker->n_owned].before = *before;
		worker->owned[worker->n_owned].after = route->own;
		worker->n_owned++;
	}
}

static void
do_write_base(void *context, const ShardRoute *route)
{
	Worker *worker = context;
	int64 shard_key = SHARD_KEY(route->type_id, route->shard);

	for (int i = 0; i < route->marks.n_marks; i++)
	{
		const ShardStamp *stamp = &route->marks.marks[i].stamp;

		if (stamp->seq > 0)
			put(worker, T_BASE, KEY(shard_key, stamp->kind, stamp->a, stamp->b), &stamp->seq);
	}
}

static void
do_discard(void *context, const ShardRoute *route)
{
	Worker *worker = context;
	int64 shard_key = SHARD_KEY(route->type_id, route->shard);
	const StashRow *row;
	StoreKey key;

	/* What it had taken in and not handled ends with its state: the product has dead letters of it, which nobody here sends again. */
	for (int table = T_STASH; table <= T_WAITING; table++)
	{
		key = KEY(shard_key, PG_INT64_MIN, PG_INT64_MIN);
		while ((row = store_at_or_next(worker->flow->store, worker->tx, table, &key)) != NULL &&
			   key.k[0] == shard_key)
		{
			check_stranded(worker->flow->check, row->row.id);
			key.k[3]++;
		}
	}
	order_discard(worker, route);
	if (!move_forget_waiting(worker->tx, worker->flow->store, shard_key))
		worker->failed = true;
}

static int64
do_next_rseq(void *context, int32 lane)
{
	Worker *worker = context;
	const int64 *row = store_get(worker->flow->store, worker->tx, T_LANE, KEY(lane));
	int64 rseq = Max(row != NULL ? *row + 1 : 1, SHARD_FIRST_RSEQ(worker->flow->inc));

	put(worker, T_LANE, KEY(lane), &rseq);
	return rseq;
}

static int64
do_last_rseq(void *context, int32 lane)
{
	Worker *worker = context;
	const int64 *row = store_get(worker->flow->store, worker->tx, T_LANE, KEY(lane));

	return Max(row != NULL ? *row : 0, SHARD_FIRST_RSEQ(worker->flow->inc));
}

static int32
do_lane(void *context, int32 type_id, int32 shard)
{
	return flow_lane(((Worker *) context)->flow, type_id, shard);
}

static void
do_append(void *context, int32 node, const ShardItem *item)
{
	Worker *worker = context;
	const FlowRow *body = item->body;
	FlowRow row = *body;
	Peer *peer = flow_peer(worker->flow, node);
	int lane = flow_lane(worker->flow, item->type_id, item->shard);

	if (peer == NULL)
	{
		worker->failed = true;
		return;
	}
	row.item = *item;
	row.item.body = NULL;
	worker->appended |= 1u << lane;
	put(worker, T_OUTBOX, KEY(lane, node, shard_stream_next(&peer->streams[lane])), &row);
}

static StoreKey
parked_key(Flow *flow, const ShardItem *item)
{
	int64 shard_key = SHARD_KEY(item->type_id, item->shard);

	if (item->stamp.kind != SHARD_PREFIX_NONE)
		return KEY(shard_key, 0, item->stamp.seq);
	return KEY(shard_key, 1, ++flow->arrival);
}

static void
do_park(void *context, const ShardItem *item)
{
	Worker *worker = context;
	FlowRow row = *(const FlowRow *) item->body;

	row.item = *item;
	row.item.body = NULL;
	put(worker, T_PARKED, parked_key(worker->flow, item), &row);
}

static bool
do_first_parked(void *context, const ShardRoute *route, ShardItem *item)
{
	Worker *worker = context;
	int64 shard_key = SHARD_KEY(route->type_id, route->shard);
	StoreKey key = KEY(shard_key);
	const FlowRow *row = store_at_or_next(worker->flow->store, worker->tx, T_PARKED, &key);

	if (row == NULL || key.k[0] != shard_key)
		return false;
	worker->parked_row = *row;
	worker->parked_at = key;
	*item = row->item;
	item->body = &worker->parked_row;
	return true;
}

static void
do_unpark(void *context, const ShardRoute *route pg_attribute_unused(),
		  const ShardItem *item pg_attribute_unused())
{
	Worker *worker = context;

	drop(worker, T_PARKED, worker->parked_at);
}

/* Kept items of one table whose keys begin with the lane. */
static void
collect_from(Worker *worker, int table, int lane, const ShardRoute *route)
{
	Store *store = worker->flow->store;
	StoreKey key = KEY(lane);
	const FlowRow *row;

	while ((row = store_at_or_next(store, worker->tx, table, &key)) != NULL && key.k[0] == lane)
	{
		if (row->kind == ROW_TELL && row->item.type_id == route->type_id &&
			row->item.shard == route->shard && shard_route_kept(route, &row->item))
		{
			FlowRow copy = *row;

			if (table == T_KEPT)
			{
				copy.item.sent = true;
				drop(worker, table, key);
			}
			else if (shard_stream_possibly_sent(
						 &flow_peer(worker->flow, (int32) key.k[1])->streams[lane], key.k[2]))
				copy.item.sent = true;
			copy.item.body = &copy;
			do_park(worker, &copy.item);
		}
		key.k[3]++;
	}
}

static void
do_collect(void *context, const ShardRoute *route)
{
	Worker *worker = context;
	int lane = flow_lane(worker->flow, route->type_id, route->shard);

	collect_from(worker, T_OUTBOX, lane, route);
	collect_from(worker, T_KEPT, lane, route);
}

static void
do_take(void *context, const ShardRoute *route, const ShardItem *item)
{
	turn_take(context, route, item->body);
}

static void
do_in_doubt(void *context, const ShardRoute *route, const ShardItem *item)
{
	Worker *worker = context;
	const FlowRow *row = item->body;

	put(worker, T_DEAD, KEY(row->id), row);
	turn_output(worker, R_DEAD, route, row->id, 0, 0);
	flow_note(worker->flow, "message " INT64_FORMAT " is in doubt", row->id);
}

static void
do_refused(void *context, const ShardRoute *route, const ShardItem *item)
{
	Worker *worker = context;
	const FlowRow *row = item->body;

	flow_note(worker->flow, "refuses message " INT64_FORMAT " of shard %d/%d, tag %d, own %s(%d)",
			  row->id, item->type_id, item->shard, item->epoch,
			  shard_home_machine.state_names[route->own.state], route->own.epoch);
	turn_output(worker, R_REFUSED, route, 0, item->stamp.a, 0);
}

static void
do_announce(void *context, const ShardRoute *route, ShardStamp mark)
{
	Worker *worker = context;

	if (mark.a != worker->flow->node)
		turn_output(worker, R_MARK, route, 0, mark.a, mark.seq);
}

static void
do_want_home(void *context, const ShardRoute *route)
{
	Worker *worker = context;
	ShardShardRef ref = {route->type_id, route->shard, 0, 0};

	flow_event(worker->flow, SHARD_EVENT_HOMES_WANTED, &ref);
}

static void
do_started(void *context, const ShardRoute *route)
{
	turn_output(context, R_STARTED, route, 0, 0, 0);
}

static void
do_wrong(void *context, const ShardRoute *route, const ShardHomeRecord *home)
{
	Worker *worker = context;

	flow_note(worker->flow, "shard %d/%d: home here in epoch %d contradicts %s(%d)", route->type_id,
			  route->shard, home->epoch, shard_home_machine.state_names[route->own.state],
			  route->own.epoch);
}

static bool
do_resend_lost(void *context pg_attribute_unused(), const ShardRoute *route pg_attribute_unused())
{
	return false;
}

const ShardRouteHost turn_route_host = {
	.load = do_load,
	.load_base = do_load_base,
	.write_route = do_write_route,
	.write_own = do_write_own,
	.write_base = do_write_base,
	.discard = do_discard,
	.next_rseq = do_next_rseq,
	.last_rseq = do_last_rseq,
	.lane = do_lane,
	.append = do_append,
	.park = do_park,
	.first_parked = do_first_parked,
	.unpark = do_unpark,
	.collect = do_collect,
	.take = do_take,
	.in_doubt = do_in_doubt,
	.refused = do_refused,
	.announce = do_announce,
	.want_home = do_want_home,
	.started = do_started,
	.wrong = do_wrong,
	.resend_lost = do_resend_lost,
};
