/*
 * flow_link.c
 *		Between nodes: pushing outboxes, receiving, acknowledging, announcing (X1-X6).
 *
 * A call may be lost, repeated, late, or carried out long after its sender gave it up: nothing of the
 * network is trusted, and the numbers of connections serve only to match answers.
 */
#include "flow_private.h"

#define KEEP_ALIVE (1000 * MS)
#define KEPT_AFTER (2000 * MS)
#define TRUNCATE_EVERY (200 * MS)

/* What a home told of its marks may be lost with its memory: hello asks for all of them once more (X13). */
#define HELLO_AGAIN (5000 * MS)
#define LAST_HELLO_AGAIN (60000 * MS)

/* ---- streams as stored ------------------------------------------------------------------------ */

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

/* ---- letters ---------------------------------------------------------------------------------- */

static void
put_bytes(char **at, const void *bytes, size_t length)
{
	memcpy(*at, bytes, length);
	*at += length;
}

void
link_send(Flow *flow, int32 to, Letter *letter)
{
	Datagram *head = &letter->head;
	size_t length = sizeof(Datagram) + head->n_sections * sizeof(Section) +
					head->n_rows * sizeof(FlowRow) + head->n_facts * sizeof(FactItem) +
					head->n_marks * sizeof(MarkItem) + head->n_exports * sizeof(ExportItem);
	char *bytes = pg_malloc(length);
	char *at = bytes;

	head->from = flow->node;
	head->from_inc = flow->inc;
	put_bytes(&at, head, sizeof(Datagram));
	put_bytes(&at, letter->sections, head->n_sections * sizeof(Section));
	put_bytes(&at, letter->rows, head->n_rows * sizeof(FlowRow));
	put_bytes(&at, letter->facts, head->n_facts * sizeof(FactItem));
	put_bytes(&at, letter->marks, head->n_marks * sizeof(MarkItem));
	if (head->n_exports > 0)
		put_bytes(&at, letter->exports, head->n_exports * sizeof(ExportItem));
	flow->host.send(flow->host.context, to, bytes, length);
	free(bytes);
}

static void
get_bytes(const char **at, void *to, size_t length)
{
	memcpy(to, *at, length);
	*at += length;
}

void
flow_receive(Flow *flow, int32 from, const void *bytes, size_t length)
{
	Letter *letter = &flow->scratch;
	Datagram *head = &letter->head;
	const char *at = bytes;

	if (!flow->up || !flow->pushes || length < sizeof(Datagram))
		return;
	get_bytes(&at, head, sizeof(Datagram));
	if (head->from != from)
		return;
	get_bytes(&at, letter->sections, head->n_sections * sizeof(Section));
	get_bytes(&at, letter->rows, head->n_rows * sizeof(FlowRow));
	get_bytes(&at, letter->facts, head->n_facts * sizeof(FactItem));
	get_bytes(&at, letter->marks, head->n_marks * sizeof(MarkItem));
	if (head->n_exports > letter->export_space)
	{
		letter->export_space = head->n_exports;
		letter->exports = pg_realloc(letter->exports, head->n_exports * sizeof(ExportItem));
	}
	if (head->n_exports > 0)
		get_bytes(&at, letter->exports, head->n_exports * sizeof(ExportItem));
	link_receive(flow, letter);
}

/* ---- origin ----------------------------------------------------------------------------------- */

static void
close_link(Worker *worker, int i, int64 pause)
{
	Flow *flow = worker->flow;
	Link *link = &worker->links[i];

	link->state = LINK_CLOSED;
	memset(link->calls, 0, sizeof(link->calls));
	link->not_before = flow_now(flow) + pause;
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if (worker->lanes & (1u << lane))
			shard_stream_close(&flow->peers[i].streams[lane]);
	}
}

/* Is there anything stored for a peer, or of a lane that somebody may still have to confirm? */
static bool
has_rows(const Worker *worker, const Peer *peer)
{
	Store *store = worker->flow->store;

	if (store_count(store, T_OUTBOX) == 0 && store_count(store, T_KEPT) == 0)
		return false;
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		StoreKey key = KEY(lane, peer->node);

		if (!(worker->lanes & (1u << lane)))
			continue;
		if (store_at_or_next(store, NULL, T_OUTBOX, &key) != NULL && key.k[0] == lane &&
			key.k[1] == peer->node)
			return true;
		key = KEY(lane, PG_INT64_MIN);
		if (store_at_or_next(store, NULL, T_KEPT, &key) != NULL && key.k[0] == lane)
			return true;
	}
	return false;
}

static void
say_hello(Worker *worker, int i)
{
	Flow *flow = worker->flow;
	Peer *peer = &flow->peers[i];
	Link *link = &worker->links[i];
	Letter *letter = &flow->scratch;

	memset(&letter->head, 0, sizeof(Datagram));
	letter->head.kind = D_HELLO;
	letter->head.worker = worker->index;
	letter->head.conn = link->conn =
		((int64) flow->inc << 32) | ((int64) ++flow->next_conn & 0x7fffffff);
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		Section *section = &letter->sections[letter->head.n_sections];
		const ShardStream *stream = &peer->streams[lane];

		if (!(worker->lanes & (1u << lane)))
			continue;
		memset(section, 0, sizeof(*section));
		section->lane = lane;
		section->gen = stream->gen;
		section->base = stream->truncated;
		letter->head.n_sections++;
	}
	link->state = LINK_HELLO;
	link->hello_at = flow_now(flow);
	link->req = 0;
	memset(link->calls, 0, sizeof(link->calls));
	link->deadline = flow_now(flow) + flow->settings.call_timeout;
	memset(link->told, 0, sizeof(link->told));
	link_send(flow, peer->node, letter);
}

/* The decided home that a row was addressed to goes before it (X3). */
static void
add_fact(Flow *flow, Letter *letter, Link *link, int32 type_id, int32 shard)
{
	const RouteRow *route = store_get(flow->store, NULL, T_ROUTE, KEY(type_id, shard));
	int slot = (type_id * 7 + shard) % (int) lengthof(link->told);
	FactItem *fact;

#ifdef SHARD_MUTANT_TAG_ABOVE_REFUSED
	return;
#endif
	if (route == NULL || (link->told[slot].type_id == type_id && link->told[slot].shard == shard &&
						  link->told[slot].n == route->n))
		return;
	link->told[slot].type_id = type_id;
	link->told[slot].shard = shard;
	link->told[slot].n = route->n;
	fact = &letter->facts[letter->head.n_facts++];
	memset(fact, 0, sizeof(*fact));
	fact->type_id = type_id;
	fact->shard = shard;
	fact->n = route->n;
	fact->home.epoch = route->epoch;
	fact->home.n_nodes = 1;
	fact->home.nodes[0] = route->node;
	fact->home.lost = route->lost;
	fact->home.move_id = route->move_id;
}

/* The rows of a lane that may leave, as a section. */
static void
add_section(Worker *worker, int i, int lane, Letter *letter)
{
	Flow *flow = worker->flow;
	Peer *peer = &flow->peers[i];
	ShardStream *stream = &peer->streams[lane];
	Section *section = &letter->sections[letter->head.n_sections];
	StoreKey key = KEY(lane, peer->node, stream->sent + 1);
	const FlowRow *stored;
	int64 seq = stream->sent;

	if (stream->state != SHARD_STREAM_OPEN || stream->sent >= stream->last)
		return;
	memset(section, 0, sizeof(*section));
	while (letter->head.n_rows < flow->settings.batch_rows &&
		   (stored = store_at_or_next(flow->store, NULL, T_OUTBOX, &key)) != NULL &&
		   key.k[0] == lane && key.k[1] == peer->node && key.k[2] == seq + 1)
	{
		FlowRow *row = &letter->rows[letter->head.n_rows];

#ifndef SHARD_MUTANT_SEND_BEFORE_GATE
		if (!store_released(flow->store, store_row_lsn(stored)))
			break;
#endif
		if (!flow->retired && !store_released(flow->store, store_row_lsn(stored)))
			check_fail(flow->check, "V8: node %d sends before the gate", flow->node);
		*row = *stored;
		if (row->kind == ROW_TELL)
		{
			const ShardRoute *route =
				shard_route_get(worker->routes, row->item.type_id, row->item.shard);

			if (shard_route_superseded(route, &row->item))
				row->kind = ROW_VOID;
			else
				add_fact(flow, letter, &worker->links[i], row->item.type_id, row->item.shard);
		}
		letter->head.n_rows++;
		section->n_rows++;
		seq++;
	}
	if (section->n_rows == 0)
		return;
	section->lane = lane;
	section->gen = stream->gen;
	section->first_seq = stream->sent + 1;
	section->writer = shard_stream_writer(stream, seq);
	letter->head.n_sections++;
	shard_stream_sent(stream, seq);
}

/* The slot of a call that waits for its answer, or with 0 a free one; -1: none. */
static int
link_call(const Link *link, int64 req)
{
	for (int i = 0; i < LINK_CALLS; i++)
	{
		if (link->calls[i].req == req)
			return i;
	}
	return -1;
}

/*
 * Did hello or any call wait too long? Each for itself: a peer that answers later calls does not make
 * up for one that was lost.
 */
static bool
link_timed_out(const Link *link, int64 now)
{
	if (link->state == LINK_HELLO)
		return now >= link->deadline;
	for (int i = 0; i < LINK_CALLS; i++)
	{
		if (link->calls[i].req != 0 && now >= link->calls[i].deadline)
			return true;
	}
	return false;
}

/* A call with what there is; without rows it only asks whether the peer still knows me. */
static bool
send_call(Worker *worker, int i, bool even_empty)
{
	Flow *flow = worker->flow;
	Link *link = &worker->links[i];
	Letter *letter = &flow->scratch;
	int slot;

	memset(&letter->head, 0, sizeof(Datagram));
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if (worker->lanes & (1u << lane))
			add_section(worker, i, lane, letter);
	}
	if (letter->head.n_rows == 0 && !even_empty)
		return false;
	letter->head.kind = D_CALL;
	letter->head.era = flow_era(flow);
	letter->head.worker = worker->index;
	letter->head.conn = link->conn;
	letter->head.req = ++link->req;
	letter->head.to_inc = link->to_inc;
	slot = link_call(link, 0);
	link->calls[slot].req = link->req;
	link->calls[slot].deadline = flow_now(flow) + flow->settings.call_timeout;
	link->last_call = flow_now(flow);
	link_send(flow, flow->peers[i].node, letter);
	return true;
}

/* Is there anything a peer has received, or somebody has, of which nobody has said that it is done? */
static bool
is_unconfirmed(const Worker *worker, const Peer *peer)
{
	Store *store = worker->flow->store;

	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		StoreKey key = KEY(lane, peer->node);

		if (!(worker->lanes & (1u << lane)))
			continue;
		if (store_at_or_next(store, NULL, T_OUTBOX, &key) != NULL && key.k[0] == lane &&
			key.k[1] == peer->node && key.k[2] <= peer->streams[lane].acked)
			return true;
		key = KEY(lane, PG_INT64_MIN);
		if (store_at_or_next(store, NULL, T_KEPT, &key) != NULL && key.k[0] == lane)
			return true;
	}
	return false;
}

/* Is it time to ask once more for marks? Not with a call on its way: its answer would be given up. */
static bool
hello_is_due(Worker *worker, int i)
{
	Flow *flow = worker->flow;
	Link *link = &worker->links[i];

	if (link->state != LINK_OPEN)
		return false;
	if (!is_unconfirmed(worker, &flow->peers[i]))
	{
		link->unconfirmed_at = 0;
		link->hello_again = 0;
		return false;
	}
	if (link->unconfirmed_at == 0)
		link->unconfirmed_at = flow_now(flow);
	if (flow_now(flow) - Max(link->unconfirmed_at, link->hello_at) <
		Max(link->hello_again, HELLO_AGAIN))
		return false;
	for (int k = 0; k < LINK_CALLS; k++)
	{
		if (link->calls[k].req != 0)
			return false;
	}
	link->hello_again = Min(2 * Max(link->hello_again, HELLO_AGAIN), LAST_HELLO_AGAIN);
	return true;
}

bool
link_push(Worker *worker)
{
	Flow *flow = worker->flow;
	int64 now = flow_now(flow);

	for (int i = 0; i < flow->n_peers; i++)
	{
		Link *link = &worker->links[i];

		if (flow->peers[i].node == flow->node)
			continue;
		if (hello_is_due(worker, i))
			close_link(worker, i, 0);
		if (link->state == LINK_CLOSED && now >= link->not_before &&
			has_rows(worker, &flow->peers[i]))
		{
			say_hello(worker, i);
			return true;
		}
		if (link->state != LINK_CLOSED && link_timed_out(link, now))
		{
			close_link(worker, i, (50 + flow_random(flow, 100)) * MS);
			return true;
		}
		if (link->state == LINK_OPEN && link_call(link, 0) >= 0 &&
			send_call(worker, i,
					  now - link->last_call > KEEP_ALIVE && has_rows(worker, &flow->peers[i])))
			return true;
	}
	return false;
}

int64
link_wake(Worker *worker)
{
	Flow *flow = worker->flow;
	int64 now = flow_now(flow);

	if (!flow->pushes)
		return PG_INT64_MAX;
	for (int i = 0; i < flow->n_peers; i++)
	{
		if (flow->peers[i].node != flow->node &&
			(worker->links[i].calls[0].req + worker->links[i].calls[1].req > 0 ||
			 has_rows(worker, &flow->peers[i])))
			return now + 100 * MS;
	}
	return PG_INT64_MAX;
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
	close_link(worker, (int) (peer - flow->peers), 0);
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

/* ---- receiver --------------------------------------------------------------------------------- */

static void
answer(Flow *flow, const Datagram *call, Letter *letter, Verdict verdict)
{
	letter->head.kind = D_ANSWER;
	letter->head.worker = call->worker;
	letter->head.conn = call->conn;
	letter->head.req = call->req;
	letter->head.verdict = verdict;
	letter->head.to_inc = call->from_inc;
	link_send(flow, call->from, letter);
}

static void
answer_error(Flow *flow, const Datagram *call, Verdict verdict)
{
	Letter *letter = &flow->scratch;
	Datagram copy = *call;

	memset(&letter->head, 0, sizeof(Datagram));
	answer(flow, &copy, letter, verdict);
}

/* A call comes in: a backend takes it, if one is free. */
static void
take_call(Flow *flow, const Letter *letter)
{
	if (letter->head.to_inc != 0 && letter->head.to_inc != flow->inc)
	{
		answer_error(flow, &letter->head, V_AGAIN);
		return;
	}
	for (int i = 0; i < FLOW_BACKENDS; i++)
	{
		Backend *backend = &flow->backends[i];

		if (backend->state == BACKEND_FREE)
		{
			backend->call = *letter;
			backend->call.exports = NULL;
			backend->call.export_space = 0;
			backend->state = BACKEND_BEGIN;
			return;
		}
	}
}

static uint32
section_lanes(const Letter *letter)
{
	uint32 lanes = 0;

	for (int i = 0; i < letter->head.n_sections; i++)
		lanes |= 1u << letter->sections[i].lane;
	return lanes;
}

bool
link_backend_ready(const Flow *flow, const Backend *backend)
{
	if (backend->state == BACKEND_FREE)
		return false;
	if (backend->state == BACKEND_BEGIN)
	{
		const Peer *peer = flow_peer(unconstify(Flow *, flow), backend->call.head.from);

		return peer != NULL && (peer->stream_locks & section_lanes(&backend->call)) == 0;
	}
#ifndef SHARD_MUTANT_ACK_BEFORE_GATE
	if (backend->state == BACKEND_ANSWER)
		return store_released(flow->store, backend->lsn);
#endif
	return true;
}

/* Facts that came with the call, before its rows, if the control plane says the same; those that are known already are left out. */
static bool
append_facts(Flow *flow, StoreTransaction *tx, const Letter *call)
{
	for (int i = 0; i < call->head.n_facts; i++)
	{
		FactItem fact = call->facts[i];
		const RouteRow *route =
			store_get(flow->store, NULL, T_ROUTE, KEY(fact.type_id, fact.shard));
		FlowRow row = {.kind = ROW_FACT};

		if ((route != NULL && route->n >= fact.n) || !flow_fact_is_learned(flow, &fact))
			continue;
		row.item.type_id = fact.type_id;
		row.item.shard = fact.shard;
		row.item.epoch = SHARD_NO_EPOCH;
		row.fact_node = shard_record_home_node(&fact.home);
		row.fact_epoch = fact.home.epoch;
		row.fact_lost = fact.home.lost;
		row.fact_move = fact.home.move_id;
		row.fact_n = fact.n;
		if (!flow_append(flow, tx, &row))
			return false;
	}
	return true;
}

/* A home forgets marks when it passes a floor, not before; only a mutant does it here. */
static void
receive_row(Flow *flow, const FlowRow *row)
{
#ifdef SHARD_MUTANT_MARKS_DROPPED_AT_FLOOR_AT_ONCE
	int owner = row->kind == ROW_FLOOR ? flow->owner[row->item.stamp.b] : -1;

	if (owner >= 0)
		shard_route_floor(flow->workers[owner].routes, row->item.stamp);
	if (owner >= 0 && flow->workers[owner].phase == TURN_NONE)
		shard_route_commit(flow->workers[owner].routes);
#else
	(void) flow;
	(void) row;
#endif
}

/* One section, under its stream's lock. */
static Verdict
receive_section(Flow *flow, Backend *backend, const Section *section, int first_row)
{
	const Letter *call = &backend->call;
	StoreKey key = KEY(call->head.from, section->lane);
	const ShardStreamPosition *stored = store_get(flow->store, backend->tx, T_POSITION, key);
	ShardStreamPosition *position = &backend->fresh[section->lane];
	ShardStreamVerdict verdict;
	int skip = 0;

	memset(position, 0, sizeof(*position));
	if (stored != NULL)
		*position = *stored;
	if (call->head.kind == D_HELLO)
		verdict = shard_stream_greet(position, call->head.from_inc, section->gen, section->base);
	else
		verdict = shard_stream_receive(position, call->head.from_inc, section->gen,
									   section->first_seq, section->n_rows, &skip);
	if (verdict == SHARD_STREAM_FENCED)
		return V_FENCED;
	if (verdict != SHARD_STREAM_TAKE)
		return V_AGAIN;
	for (int i = skip; i < section->n_rows; i++)
	{
		if (!flow_append(flow, backend->tx, &call->rows[first_row + i]))
			return V_REFUSED;
		receive_row(flow, &call->rows[first_row + i]);
	}
	if (skip < section->n_rows)
		shard_stream_took(position, section->first_seq + section->n_rows - 1, section->writer);
#ifndef SHARD_MUTANT_POSITION_AFTER_COMMIT
	if (!store_put(backend->tx, T_POSITION, key, position))
		return V_REFUSED;
#endif
	return V_OK;
}

static void
free_backend(Flow *flow, Backend *backend)
{
	Peer *peer = flow_peer(flow, backend->call.head.from);

	peer->stream_locks &= ~backend->locks;
	backend->locks = 0;
	backend->state = BACKEND_FREE;
	free(backend->answer);
	backend->answer = NULL;
}

/* The transaction of a call, up to its commit. */
static void
begin_call(Flow *flow, Backend *backend)
{
	Letter *call = &backend->call;
	Peer *peer = flow_peer(flow, call->head.from);
	Verdict verdict = V_OK;
	int row = 0;

	backend->locks = section_lanes(call);
	peer->stream_locks |= backend->locks;
	backend->tx = store_begin(flow->store);
	/* rows of an epoch that is not known here cannot be met (H3): the caller comes again */
	if (flow_facts_are_ahead(flow, call))
		verdict = V_AGAIN;
	else if (!append_facts(flow, backend->tx, call))
		verdict = V_REFUSED;
	for (int i = 0; i < call->head.n_sections && verdict == V_OK; i++)
	{
		verdict = receive_section(flow, backend, &call->sections[i], row);
		row += call->sections[i].n_rows;
	}
	if (verdict == V_OK)
	{
		backend->state = BACKEND_COMMIT;
		return;
	}
	store_abort(backend->tx);
	backend->tx = NULL;
	if (verdict != V_REFUSED)
		answer_error(flow, &call->head, verdict);
	free_backend(flow, backend);
}

typedef struct CollectMarks
{
	Letter *letter;
	int32 origin;
} CollectMarks;

/* For shard_route_each: what a home has of an origin, as far as it is committed. */
static void
collect_marks(void *context, ShardRoute *route)
{
	CollectMarks *collect = context;

	if (!route->loaded || !shard_handoff_takes(&route->own))
		return;
	for (int i = 0; i < route->marks.n_marks; i++)
	{
		const ShardMark *mark = &route->marks.marks[i];
		MarkItem *item = &collect->letter->marks[collect->letter->head.n_marks];

		if (mark->stamp.a != collect->origin || mark->committed == 0 ||
			collect->letter->head.n_marks == MAX_CALL_ROWS)
			continue;
		item->type_id = route->type_id;
		item->shard = route->shard;
		item->rseq = mark->committed;
		collect->letter->head.n_marks++;
	}
}

/* What the answer will say is what is committed by now; it leaves when that is past the gate. */
static void
prepare_answer(Flow *flow, Backend *backend)
{
	Letter *call = &backend->call;
	Letter *letter = pg_malloc0(sizeof(Letter));
	CollectMarks collect = {letter, call->head.from};

	for (int i = 0; i < call->head.n_sections; i++)
	{
		letter->sections[i].lane = call->sections[i].lane;
		letter->sections[i].position = backend->fresh[call->sections[i].lane];
	}
	letter->head.n_sections = call->head.n_sections;
	if (call->head.kind == D_HELLO)
	{
		for (int i = 0; i < FLOW_WORKERS; i++)
		{
			if (flow->workers[i].routes != NULL)
				shard_route_each(flow->workers[i].routes, collect_marks, &collect);
		}
	}
	backend->answer = letter;
	backend->lsn = store_last_lsn(flow->store);
	backend->state = BACKEND_ANSWER;
}

/* Rows and position are stored: the stream's lock is free. */
static void
end_call(Flow *flow, Backend *backend)
{
	Peer *peer = flow_peer(flow, backend->call.head.from);

	peer->stream_locks &= ~backend->locks;
	backend->locks = 0;
	prepare_answer(flow, backend);
}

#ifdef SHARD_MUTANT_POSITION_AFTER_COMMIT
static void
store_positions(Flow *flow, Backend *backend)
{
	StoreTransaction *tx = store_begin(flow->store);

	for (int i = 0; i < backend->call.head.n_sections; i++)
	{
		int lane = backend->call.sections[i].lane;

		store_put(tx, T_POSITION, KEY(backend->call.head.from, lane), &backend->fresh[lane]);
	}
	store_commit(tx);
}
#endif

static void
commit_call(Flow *flow, Backend *backend)
{
	store_commit(backend->tx);
	backend->tx = NULL;
	flow_poke(flow);
#ifdef SHARD_MUTANT_POSITION_AFTER_COMMIT
	backend->state = BACKEND_POSITION;
#else
	end_call(flow, backend);
#endif
}

void
link_backend_step(Backend *backend, Flow *flow)
{
	if (!link_backend_ready(flow, backend))
		return;
	switch (backend->state)
	{
		case BACKEND_FREE:
			break;
		case BACKEND_BEGIN:
			begin_call(flow, backend);
			break;
		case BACKEND_COMMIT:
			commit_call(flow, backend);
			break;
		case BACKEND_POSITION:
#ifdef SHARD_MUTANT_POSITION_AFTER_COMMIT
			store_positions(flow, backend);
#endif
			end_call(flow, backend);
			break;
		case BACKEND_ANSWER:
			answer(flow, &backend->call.head, backend->answer, V_OK);
			free_backend(flow, backend);
			break;
	}
}

/* ---- answers and notes ------------------------------------------------------------------------ */

static void
take_marks(Flow *flow, const Letter *letter)
{
	for (int i = 0; i < letter->head.n_marks; i++)
	{
		const MarkItem *mark = &letter->marks[i];
		int owner = flow->owner[flow_lane(flow, mark->type_id, mark->shard)];

		/* a shard of which nothing was sent has no entry, and gets none (T9) */
		if (owner >= 0 &&
			shard_route_known(flow->workers[owner].routes, mark->type_id, mark->shard) != NULL)
			(void) shard_route_done(flow->workers[owner].routes, mark->type_id, mark->shard,
									letter->head.from, mark->rseq);
	}
}

static void
take_facts(Flow *flow, const Letter *letter)
{
	for (int i = 0; i < letter->head.n_facts; i++)
	{
		FactItem fact = letter->facts[i];

		if (flow_fact_is_learned(flow, &fact))
			flow_fact(flow, fact.type_id, fact.shard, &fact.home, fact.n);
	}
}

/* Positions that the receiver told: the link opens, or rows are acknowledged. */
static void
take_positions(Worker *worker, Peer *peer, const Letter *letter, bool hello)
{
	Flow *flow = worker->flow;
	StoreTransaction *tx = store_begin(flow->store);

	for (int i = 0; i < letter->head.n_sections; i++)
	{
		const Section *section = &letter->sections[i];
		ShardStream *stream = &peer->streams[section->lane];

		if (!(worker->lanes & (1u << section->lane)))
			continue;
		if (hello && shard_stream_greeted(stream, &section->position) != SHARD_STREAM_OPEN)
		{
			flow_note(flow,
					  "link to node %d, lane %d is quarantined (%d): it has " INT64_FORMAT
					  ", here " INT64_FORMAT " .. " INT64_FORMAT,
					  peer->node, section->lane, stream->state, section->position.seq,
					  stream->acked, stream->last);
			peer->quarantine[section->lane] = section->position;
			continue;
		}
		if (shard_stream_acked(stream, section->position.seq) && worker->phase == TURN_NONE)
			link_store_stream(tx, peer, section->lane);
	}
	store_commit(tx);
}

static void
take_answer(Flow *flow, const Letter *letter)
{
	const Datagram *head = &letter->head;
	Worker *worker = &flow->workers[head->worker];
	Peer *peer = flow_peer(flow, head->from);
	Link *link;
	int i;

	if (peer == NULL || worker->routes == NULL)
		return;
	i = (int) (peer - flow->peers);
	link = &worker->links[i];
	if (link->state == LINK_CLOSED || link->conn != head->conn)
		return;
	if (head->verdict != V_OK)
	{
		close_link(worker, i, (head->verdict == V_FENCED ? 1000 : 20) * MS);
		worker->poke = true;
		return;
	}
	take_marks(flow, letter);
	if (link->state == LINK_HELLO)
	{
		if (head->req != 0)
			return;
		link->state = LINK_OPEN;
		link->to_inc = head->from_inc;
		link->last_call = flow_now(flow);
		take_positions(worker, peer, letter, true);
	}
	else if (head->req != 0)
	{
		int slot = link_call(link, head->req);

		/* Repeated answers are none. */
		if (slot < 0)
			return;
		link->calls[slot].req = 0;
		take_positions(worker, peer, letter, false);
	}
	worker->poke = true;
}

void
link_add_note(Flow *flow, int32 node, int32 type_id, int32 shard, int64 rseq, bool refused)
{
	Peer *peer;
	PendingNote *note;

	if (node == flow->node || (peer = flow_peer(flow, node)) == NULL)
		return;
	for (int i = peer->notes_sent; i < peer->n_notes; i++)
	{
		note = &peer->notes[i];
		if (note->type_id == type_id && note->shard == shard)
		{
			note->rseq = Max(note->rseq, rseq);
			note->refused |= refused;
			return;
		}
	}
	if (peer->n_notes == peer->note_space)
	{
		peer->note_space = Max(16, peer->note_space * 2);
		peer->notes = pg_realloc(peer->notes, peer->note_space * sizeof(PendingNote));
	}
	note = &peer->notes[peer->n_notes++];
	note->type_id = type_id;
	note->shard = shard;
	note->rseq = rseq;
	note->refused = refused;
}

/* Marks and refusals to one origin; repeated until it answers. */
static void
send_notes(Flow *flow, Peer *peer)
{
	Letter *letter = &flow->scratch;
	Link nothing_told = {0};
	int n = Min(peer->n_notes, MAX_CALL_ROWS / 2);

	memset(&letter->head, 0, sizeof(Datagram));
	letter->head.kind = D_NOTE;
	for (int i = 0; i < n; i++)
	{
		const PendingNote *note = &peer->notes[i];

		if (note->rseq > 0)
		{
			MarkItem *mark = &letter->marks[letter->head.n_marks++];

			mark->type_id = note->type_id;
			mark->shard = note->shard;
			mark->rseq = note->rseq;
		}
		if (note->refused)
		{
			memset(nothing_told.told, 0, sizeof(nothing_told.told));
			add_fact(flow, letter, &nothing_told, note->type_id, note->shard);
		}
	}
	peer->notes_sent = n;
	peer->note_req = letter->head.req = ++flow->next_conn;
	peer->note_deadline = flow_now(flow) + flow->settings.call_timeout;
	peer->note_tries++;
	link_send(flow, peer->node, letter);
}

/* An origin that does not answer says hello when it is back, and hears all marks then. */
bool
link_notes(Flow *flow)
{
	int64 now = flow_now(flow);

	for (int i = 0; i < flow->n_peers; i++)
	{
		Peer *peer = &flow->peers[i];

		if (!flow->pushes || peer->n_notes == 0 ||
			(peer->note_req != 0 && now < peer->note_deadline))
			continue;
		if (peer->note_tries > 20)
			peer->n_notes = peer->notes_sent = peer->note_tries = 0;
		else
			send_notes(flow, peer);
		return true;
	}
	return false;
}

static void
take_note(Flow *flow, const Letter *letter)
{
	Datagram head = letter->head;

	take_marks(flow, letter);
	take_facts(flow, letter);
	flow_poke(flow);
	memset(&flow->scratch.head, 0, sizeof(Datagram));
	flow->scratch.head.kind = D_NOTE_ANSWER;
	flow->scratch.head.req = head.req;
	flow->scratch.head.to_inc = head.from_inc;
	link_send(flow, head.from, &flow->scratch);
}

static void
take_note_answer(Flow *flow, const Datagram *head)
{
	Peer *peer = flow_peer(flow, head->from);

	if (peer == NULL || peer->note_req != head->req || head->to_inc != flow->inc)
		return;
	peer->n_notes -= peer->notes_sent;
	if (peer->n_notes > 0)
		memmove(peer->notes, peer->notes + peer->notes_sent, peer->n_notes * sizeof(PendingNote));
	peer->notes_sent = 0;
	peer->note_tries = 0;
	peer->note_req = 0;
}

void
link_receive(Flow *flow, const Letter *letter)
{
	switch (letter->head.kind)
	{
		case D_HELLO:
		case D_CALL:
			take_call(flow, letter);
			break;
		case D_ANSWER:
			if (letter->head.to_inc == flow->inc)
				take_answer(flow, letter);
			break;
		case D_NOTE:
			take_note(flow, letter);
			break;
		case D_NOTE_ANSWER:
			take_note_answer(flow, &letter->head);
			break;
		default:
			move_receive(flow, letter);
			break;
	}
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
