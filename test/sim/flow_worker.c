/*
 * flow_worker.c
 *		A region worker takes its lanes and gives them back; what it knows between turns is saved and rebuilt (H7).
 */
#include "flow_turn.h"

#define MARKS_EVERY 24 /* rows of the log between two savings of the marks */
#define CHUNK 3

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
bool
turn_save_marks(Worker *worker)
{
	if (worker->flow->seq - worker->marks_saved_at < MARKS_EVERY || worker->changed == 0)
		return false;
#ifndef SHARD_MUTANT_ROTATE_WITHOUT_MARKS
	shard_route_each(worker->routes, save_marks_of, worker);
#endif
	return true;
}

/* Was a row of the log taken in before the worker started, as far as the cursor says? */
static bool
is_passed(Worker *worker, int lane, const FlowRow *row, int64 seq)
{
	const Sender *sender;

	if (seq > worker->cursors[lane].q)
		return false;
	sender = turn_find_sender(&worker->cursors[lane], row->xid);
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

		if (turn_has_lane(worker, lane) &&
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
		if (turn_has_lane(worker, flow_lane(flow, (int32) key.k[0], (int32) key.k[1])))
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
		if (turn_has_lane(worker, flow_lane(flow, row->item.type_id, row->item.shard)))
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
		if (turn_has_lane(worker, lane))
			flow->owner[lane] = worker->index;
	}
	worker->routes = shard_route_create(flow->node, &turn_route_host, worker, CHUNK);
	worker->tx = NULL;
	worker->n_outputs = worker->n_owned = worker->n_children = 0;
	turn_read_cursors(worker);
	load_entries(worker);
	order_load_all(worker);
	rebuild_marks(worker);
	turn_publish(worker, 0);
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
		if (!turn_has_lane(worker, lane))
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
