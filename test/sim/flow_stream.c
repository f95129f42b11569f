/*
 * flow_stream.c
 *		Streams as the origin stores them: what leaves them at the front, floors, the end of a quarantine (X4-X6).
 */
#include "flow_private.h"

#define KEPT_AFTER (2000 * MS)
#define TRUNCATE_EVERY (200 * MS)

/* Read the durable part; what the connection knows stays. */
void
link_load_stream(Flow *flow, Peer *peer, int lane)
{
	ShardStream *stream = &peer->streams[lane];
	const StreamRow *row = store_get(flow->store, NULL, T_STREAM, KEY(lane, peer->node));

	stream->last = 0;
	if (row != NULL)
	{
		stream->gen = row->gen;
		stream->last = row->last;
		stream->acked = Max(stream->acked, row->acked);
		stream->truncated = row->truncated;
		if (stream->begin_space < MAX_BEGINS)
		{
			if (stream->begins != NULL)
				pfree(stream->begins);
			stream->begins = palloc(MAX_BEGINS * sizeof(ShardStreamBegin));
			stream->begin_space = MAX_BEGINS;
		}
		stream->n_begins = row->n_begins;
		memcpy(stream->begins, row->begins, row->n_begins * sizeof(ShardStreamBegin));
	}
	else if (stream->n_begins == 0)
		shard_stream_begin(stream, flow->uuid);
}

bool
link_store_stream(StoreTransaction *tx, const Peer *peer, int lane)
{
	const ShardStream *stream = &peer->streams[lane];
	StreamRow row = {0};
	int skip = Max(0, stream->n_begins - MAX_BEGINS);

	if (stream->last == 0 && stream->gen == 0)
		return true;
	row.gen = stream->gen;
	row.last = stream->last;
	row.acked = stream->acked;
	row.truncated = stream->truncated;
	row.n_begins = stream->n_begins - skip;
	memcpy(row.begins, stream->begins + skip, row.n_begins * sizeof(ShardStreamBegin));
	return store_put(tx, T_STREAM, KEY(lane, peer->node), &row);
}

/* ---- truncation and floors -------------------------------------------------------------------- */

static bool
is_kept(Worker *worker, const FlowRow *row)
{
	const ShardRoute *route;

	if (row->kind != ROW_TELL)
		return false;
	route = shard_route_get(worker->routes, row->item.type_id, row->item.shard);
	return shard_route_kept(route, &row->item);
}

/* Rows at the front of a stream that are received and not kept go; kept ones move after a time. */
static bool
truncate_stream(Worker *worker, StoreTransaction *tx, Peer *peer, int lane)
{
	Flow *flow = worker->flow;
	ShardStream *stream = &peer->streams[lane];
	StoreKey key = KEY(lane, peer->node);
	const FlowRow *row;
	bool any = false;
	int64 now = flow_now(flow);

	while ((row = store_at_or_next(flow->store, tx, T_OUTBOX, &key)) != NULL && key.k[0] == lane &&
		   key.k[1] == peer->node && key.k[2] <= stream->acked)
	{
		if (is_kept(worker, row))
		{
			if (peer->head[lane] != key.k[2])
			{
				peer->head[lane] = key.k[2];
				peer->head_since[lane] = now;
			}
			if (now - peer->head_since[lane] < KEPT_AFTER)
				break;
			if (!store_put(tx, T_KEPT, KEY(lane, row_shard_key(row), row->item.stamp.seq), row))
				return false;
		}
		if (!store_remove(tx, T_OUTBOX, key))
			return false;
		stream->truncated = key.k[2];
		any = true;
		key.k[3]++;
	}
	return any;
}

/* Kept rows that are done, or were appended anew. */
static bool
truncate_kept(Worker *worker, StoreTransaction *tx, int lane)
{
	Flow *flow = worker->flow;
	StoreKey key = KEY(lane, PG_INT64_MIN);
	const FlowRow *row;
	bool any = false;

	while ((row = store_at_or_next(flow->store, tx, T_KEPT, &key)) != NULL && key.k[0] == lane)
	{
		if (!is_kept(worker, row))
		{
			store_remove(tx, T_KEPT, key);
			any = true;
		}
		key.k[3]++;
	}
	return any;
}

/* The lowest number of a stamp of the lane that is still stored, in any table (X6). */
static int64
stored_floor(Worker *worker, int lane)
{
	Flow *flow = worker->flow;
	static const int tables[] = {T_OUTBOX, T_KEPT, T_PARKED};
	const int64 *last = store_get(flow->store, NULL, T_LANE, KEY(lane));
	int64 floor;

	if (last == NULL)
		return 0;
	floor = *last + 1;
	for (int i = 0; i < (int) lengthof(tables); i++)
	{
		StoreKey key = tables[i] == T_PARKED ? KEY(PG_INT64_MIN) : KEY(lane, PG_INT64_MIN);
		const FlowRow *row;

		while ((row = store_at_or_next(flow->store, NULL, tables[i], &key)) != NULL &&
			   (tables[i] == T_PARKED || key.k[0] == lane))
		{
			key.k[3]++;
			if (row->kind != ROW_TELL || row->item.stamp.kind != SHARD_PREFIX_NODE ||
				row->item.stamp.b != lane)
				continue;
#ifdef SHARD_MUTANT_FLOOR_FROM_MARKS
			if (tables[i] != T_PARKED && !is_kept(worker, row))
				continue;
#endif
			floor = Min(floor, row->item.stamp.seq);
		}
	}
	return floor;
}

/* Tell the floor of a lane in every stream that carried any of it. */
static bool
append_floor(Worker *worker, int lane)
{
	Flow *flow = worker->flow;
	int64 floor = stored_floor(worker, lane);
	StoreTransaction *tx = store_begin(flow->store);
	bool any = false;

	for (int i = 0; i < flow->n_peers; i++)
	{
		Peer *peer = &flow->peers[i];
		FlowRow row = {.kind = ROW_FLOOR};

		if (peer->node == flow->node || peer->streams[lane].last == 0 ||
			peer->floor_told[lane] >= floor)
			continue;
		row.item.stamp = (ShardStamp){SHARD_PREFIX_NODE, flow->node, lane, floor};
		if (!store_put(tx, T_OUTBOX, KEY(lane, peer->node, shard_stream_next(&peer->streams[lane])),
					   &row) ||
			!link_store_stream(tx, peer, lane))
		{
			store_abort(tx);
			for (int j = 0; j <= i; j++)
				link_load_stream(flow, &flow->peers[j], lane);
			return false;
		}
		peer->floor_told[lane] = floor;
		any = true;
	}
	store_commit(tx);
	return any;
}

/* One transaction over all streams of the worker. True: something was done. */
static bool
truncate_all(Worker *worker)
{
	Flow *flow = worker->flow;
	StoreTransaction *tx = store_begin(flow->store);
	uint32 changed = 0;

	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if (!(worker->lanes & (1u << lane)))
			continue;
		if (truncate_kept(worker, tx, lane))
			changed |= 1u << lane;
		for (int i = 0; i < flow->n_peers; i++)
		{
			if (truncate_stream(worker, tx, &flow->peers[i], lane))
			{
				changed |= 1u << lane;
				link_store_stream(tx, &flow->peers[i], lane);
			}
		}
	}
	if (changed == 0)
	{
		store_abort(tx);
		return false;
	}
	flow->floors_lsn = store_commit(tx);
	flow->floors |= changed;
	return true;
}

/* ---- the end of a quarantine ------------------------------------------------------------------ */

static bool
is_quarantined(const ShardStream *stream)
{
	return stream->state == SHARD_STREAM_ORIGIN_REGRESSED ||
		   stream->state == SHARD_STREAM_RECEIVER_REGRESSED;
}

/* A row that is still kept: it is sent again, through the parked ones, or in doubt. */
static bool
save_row(Worker *worker, StoreTransaction *tx, const FlowRow *row, bool in_doubt)
{
	FlowRow copy = *row;

	if (in_doubt)
	{
		flow_note(worker->flow, "message " INT64_FORMAT " is in doubt", row->id);
		return store_put(tx, T_DEAD, KEY(row->id), row);
	}
	copy.item.sent = true;
	return store_put(tx, T_PARKED, KEY(row_shard_key(row), 0, row->item.stamp.seq), &copy);
}

/* What was sent to that peer on that lane, in the outbox and out of it. False: the disk is full. */
static bool
clear_stream(Worker *worker, StoreTransaction *tx, const Peer *peer, int lane)
{
	Flow *flow = worker->flow;
	const ShardStream *stream = &peer->streams[lane];
	bool regressed = stream->state == SHARD_STREAM_ORIGIN_REGRESSED;
	StoreKey key = KEY(lane, peer->node);
	const FlowRow *row;

	while ((row = store_at_or_next(flow->store, tx, T_OUTBOX, &key)) != NULL && key.k[0] == lane &&
		   key.k[1] == peer->node)
	{
		if (is_kept(worker, row) &&
			!save_row(worker, tx, row, regressed && shard_stream_possibly_sent(stream, key.k[2])))
			return false;
		if (!store_remove(tx, T_OUTBOX, key))
			return false;
		key.k[3]++;
	}
	key = KEY(lane, PG_INT64_MIN);
	while ((row = store_at_or_next(flow->store, tx, T_KEPT, &key)) != NULL && key.k[0] == lane)
	{
		const ShardRoute *route =
			shard_route_get(worker->routes, row->item.type_id, row->item.shard);

		if (route->node == peer->node)
		{
			if (is_kept(worker, row) && !save_row(worker, tx, row, regressed))
				return false;
			if (!store_remove(tx, T_KEPT, key))
				return false;
		}
		key.k[3]++;
	}
	return true;
}

/* For shard_route_each: shards may have got parked messages. */
static void
reload_route(void *context, ShardRoute *route)
{
	if (route->loaded)
		shard_route_reload(context, route->type_id, route->shard);
}

/* Dead letters are told when they are past the gate. */
static void
release_dead(Flow *flow, int64 lsn)
{
	StoreKey key = KEY(PG_INT64_MIN);
	const FlowRow *row;

	while ((row = store_at_or_next(flow->store, NULL, T_DEAD, &key)) != NULL)
	{
		Release release = {.kind = R_DEAD, .id = row->id, .lsn = lsn};

		if (store_row_lsn(row) == lsn)
			flow_release_at(flow, &release);
		key.k[3]++;
	}
}

/* shard_link_accept(), between two turns of the worker. True: something was done. */
static bool
accept_link(Worker *worker, Peer *peer)
{
	Flow *flow = worker->flow;
	uint32 lanes = peer->accepted & worker->lanes;
	StoreTransaction *tx;
	bool good = true;
	int64 lsn;

	if (lanes == 0 || store_full(flow->store))
		return false;
	tx = store_begin(flow->store);
	for (int lane = 0; lane < FLOW_LANES && good; lane++)
	{
		ShardStream *stream = &peer->streams[lane];

		if (!(lanes & (1u << lane)) || !is_quarantined(stream))
			continue;
		good = clear_stream(worker, tx, peer, lane);
		shard_stream_accept(stream, &peer->quarantine[lane]);
		good = good && link_store_stream(tx, peer, lane);
		peer->floor_told[lane] = 0;
	}
	Assert(good);
	peer->accepted &= ~lanes;
	lsn = store_commit(tx);
	release_dead(flow, lsn);
	flow->floors_lsn = store_last_lsn(flow->store);
	flow->floors |= lanes;
	shard_route_each(worker->routes, reload_route, worker->routes);
	link_close(worker, (int) (peer - flow->peers), 0);
	worker->more = true;
	flow_note(flow, "link to node %d goes on, lanes %x", peer->node, lanes);
	return true;
}

bool
link_truncate(Worker *worker)
{
	Flow *flow = worker->flow;
	int64 now = flow_now(flow);

	if (store_full(flow->store))
		return false;
	for (int i = 0; i < flow->n_peers; i++)
	{
		if (accept_link(worker, &flow->peers[i]))
			return true;
	}
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if ((flow->floors & worker->lanes & (1u << lane)) &&
			store_released(flow->store, flow->floors_lsn))
		{
			flow->floors &= ~(1u << lane);
			if (append_floor(worker, lane))
				return true;
		}
	}
	if (now < worker->truncate_at)
		return false;
	worker->truncate_at = now + TRUNCATE_EVERY;
	return truncate_all(worker);
}

void
flow_link_accept(Flow *flow, int32 node)
{
	Peer *peer = flow_peer(flow, node);

	for (int lane = 0; peer != NULL && lane < FLOW_LANES; lane++)
	{
		if (is_quarantined(&peer->streams[lane]))
			peer->accepted |= 1u << lane;
	}
	flow_poke(flow);
}

bool
flow_quarantined(Flow *flow)
{
	for (int i = 0; i < flow->n_peers; i++)
	{
		for (int lane = 0; lane < FLOW_LANES; lane++)
		{
			if (is_quarantined(&flow->peers[i].streams[lane]))
				return true;
		}
	}
	return false;
}
