/*
 * plane_link.c
 *		Between planes: pushing outboxes, receiving, acknowledging, announcing (X1-X6).
 *
 * A call may be lost, repeated, late, or carried out long after its sender gave it up: nothing of the
 * network is trusted, and the numbers of connections serve only to match answers.
 */
#include "plane_private.h"

#define KEEP_ALIVE (1000 * MS)
#define KEPT_AFTER (2000 * MS)
#define TRUNCATE_EVERY (200 * MS)

/* What a home told of its marks may be lost with its memory: hello asks for all of them once more (X13). */
#define HELLO_AGAIN (5000 * MS)
#define LAST_HELLO_AGAIN (60000 * MS)

/* ---- streams as stored ------------------------------------------------------------------------ */

/* Read the durable part; what the connection knows stays. */
void
link_load_stream(Plane *plane, Peer *peer, int lane)
{
	ShardStream *stream = &peer->streams[lane];
	const StreamRow *row = store_get(plane->store, NULL, T_STREAM, KEY(lane, peer->node));

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
		shard_stream_begin(stream, plane->uuid);
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
link_send(Plane *plane, int32 to, Letter *letter)
{
	Datagram *head = &letter->head;
	size_t length = sizeof(Datagram) + head->n_sections * sizeof(Section) +
					head->n_rows * sizeof(PlaneRow) + head->n_facts * sizeof(FactItem) +
					head->n_marks * sizeof(MarkItem) + head->n_exports * sizeof(ExportItem);
	char *bytes = pg_malloc(length);
	char *at = bytes;

	head->from = plane->node;
	head->from_inc = plane->inc;
	put_bytes(&at, head, sizeof(Datagram));
	put_bytes(&at, letter->sections, head->n_sections * sizeof(Section));
	put_bytes(&at, letter->rows, head->n_rows * sizeof(PlaneRow));
	put_bytes(&at, letter->facts, head->n_facts * sizeof(FactItem));
	put_bytes(&at, letter->marks, head->n_marks * sizeof(MarkItem));
	if (head->n_exports > 0)
		put_bytes(&at, letter->exports, head->n_exports * sizeof(ExportItem));
	plane->host.send(plane->host.context, to, bytes, length);
	free(bytes);
}

static void
get_bytes(const char **at, void *to, size_t length)
{
	memcpy(to, *at, length);
	*at += length;
}

void
plane_receive(Plane *plane, int32 from, const void *bytes, size_t length)
{
	Letter *letter = &plane->scratch;
	Datagram *head = &letter->head;
	const char *at = bytes;

	if (!plane->up || !plane->pushes || length < sizeof(Datagram))
		return;
	get_bytes(&at, head, sizeof(Datagram));
	if (head->from != from)
		return;
	get_bytes(&at, letter->sections, head->n_sections * sizeof(Section));
	get_bytes(&at, letter->rows, head->n_rows * sizeof(PlaneRow));
	get_bytes(&at, letter->facts, head->n_facts * sizeof(FactItem));
	get_bytes(&at, letter->marks, head->n_marks * sizeof(MarkItem));
	if (head->n_exports > letter->export_space)
	{
		letter->export_space = head->n_exports;
		letter->exports = pg_realloc(letter->exports, head->n_exports * sizeof(ExportItem));
	}
	if (head->n_exports > 0)
		get_bytes(&at, letter->exports, head->n_exports * sizeof(ExportItem));
	link_receive(plane, letter);
}

/* ---- origin ----------------------------------------------------------------------------------- */

static void
close_link(Worker *worker, int i, int64 pause)
{
	Plane *plane = worker->plane;
	Link *link = &worker->links[i];

	link->state = LINK_CLOSED;
	memset(link->calls, 0, sizeof(link->calls));
	link->not_before = plane_now(plane) + pause;
	for (int lane = 0; lane < PLANE_LANES; lane++)
	{
		if (worker->lanes & (1u << lane))
			shard_stream_close(&plane->peers[i].streams[lane]);
	}
}

/* Is there anything stored for a peer, or of a lane that somebody may still have to confirm? */
static bool
has_rows(const Worker *worker, const Peer *peer)
{
	Store *store = worker->plane->store;

	if (store_count(store, T_OUTBOX) == 0 && store_count(store, T_KEPT) == 0)
		return false;
	for (int lane = 0; lane < PLANE_LANES; lane++)
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
	Plane *plane = worker->plane;
	Peer *peer = &plane->peers[i];
	Link *link = &worker->links[i];
	Letter *letter = &plane->scratch;

	memset(&letter->head, 0, sizeof(Datagram));
	letter->head.kind = D_HELLO;
	letter->head.worker = worker->index;
	letter->head.conn = link->conn =
		((int64) plane->inc << 32) | ((int64) ++plane->next_conn & 0x7fffffff);
	for (int lane = 0; lane < PLANE_LANES; lane++)
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
	link->hello_at = plane_now(plane);
	link->req = 0;
	memset(link->calls, 0, sizeof(link->calls));
	link->deadline = plane_now(plane) + plane->settings.call_timeout;
	memset(link->told, 0, sizeof(link->told));
	link_send(plane, peer->node, letter);
}

/* The decided home that a row was addressed to goes before it (X3). */
static void
add_fact(Plane *plane, Letter *letter, Link *link, int32 type_id, int32 shard)
{
	const RouteRow *route = store_get(plane->store, NULL, T_ROUTE, KEY(type_id, shard));
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
	Plane *plane = worker->plane;
	Peer *peer = &plane->peers[i];
	ShardStream *stream = &peer->streams[lane];
	Section *section = &letter->sections[letter->head.n_sections];
	StoreKey key = KEY(lane, peer->node, stream->sent + 1);
	const PlaneRow *stored;
	int64 seq = stream->sent;

	if (stream->state != SHARD_STREAM_OPEN || stream->sent >= stream->last)
		return;
	memset(section, 0, sizeof(*section));
	while (letter->head.n_rows < plane->settings.batch_rows &&
		   (stored = store_at_or_next(plane->store, NULL, T_OUTBOX, &key)) != NULL &&
		   key.k[0] == lane && key.k[1] == peer->node && key.k[2] == seq + 1)
	{
		PlaneRow *row = &letter->rows[letter->head.n_rows];

#ifndef SHARD_MUTANT_SEND_BEFORE_GATE
		if (!store_released(plane->store, store_row_lsn(stored)))
			break;
#endif
		if (!plane->retired && !store_released(plane->store, store_row_lsn(stored)))
			check_fail(plane->check, "V8: node %d sends before the gate", plane->node);
		*row = *stored;
		if (row->kind == ROW_TELL)
		{
			const ShardRoute *route =
				shard_route_get(worker->routes, row->item.type_id, row->item.shard);

			if (shard_route_superseded(route, &row->item))
				row->kind = ROW_VOID;
			else
				add_fact(plane, letter, &worker->links[i], row->item.type_id, row->item.shard);
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
	Plane *plane = worker->plane;
	Link *link = &worker->links[i];
	Letter *letter = &plane->scratch;
	int slot;

	memset(&letter->head, 0, sizeof(Datagram));
	for (int lane = 0; lane < PLANE_LANES; lane++)
	{
		if (worker->lanes & (1u << lane))
			add_section(worker, i, lane, letter);
	}
	if (letter->head.n_rows == 0 && !even_empty)
		return false;
	letter->head.kind = D_CALL;
	letter->head.era = plane_era(plane);
	letter->head.worker = worker->index;
	letter->head.conn = link->conn;
	letter->head.req = ++link->req;
	letter->head.to_inc = link->to_inc;
	slot = link_call(link, 0);
	link->calls[slot].req = link->req;
	link->calls[slot].deadline = plane_now(plane) + plane->settings.call_timeout;
	link->last_call = plane_now(plane);
	link_send(plane, plane->peers[i].node, letter);
	return true;
}

/* Is there anything a peer has received, or somebody has, of which nobody has said that it is done? */
static bool
is_unconfirmed(const Worker *worker, const Peer *peer)
{
	Store *store = worker->plane->store;

	for (int lane = 0; lane < PLANE_LANES; lane++)
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
	Plane *plane = worker->plane;
	Link *link = &worker->links[i];

	if (link->state != LINK_OPEN)
		return false;
	if (!is_unconfirmed(worker, &plane->peers[i]))
	{
		link->unconfirmed_at = 0;
		link->hello_again = 0;
		return false;
	}
	if (link->unconfirmed_at == 0)
		link->unconfirmed_at = plane_now(plane);
	if (plane_now(plane) - Max(link->unconfirmed_at, link->hello_at) <
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
	Plane *plane = worker->plane;
	int64 now = plane_now(plane);

	for (int i = 0; i < plane->n_peers; i++)
	{
		Link *link = &worker->links[i];

		if (plane->peers[i].node == plane->node)
			continue;
		if (hello_is_due(worker, i))
			close_link(worker, i, 0);
		if (link->state == LINK_CLOSED && now >= link->not_before &&
			has_rows(worker, &plane->peers[i]))
		{
			say_hello(worker, i);
			return true;
		}
		if (link->state != LINK_CLOSED && link_timed_out(link, now))
		{
			close_link(worker, i, (50 + plane_random(plane, 100)) * MS);
			return true;
		}
		if (link->state == LINK_OPEN && link_call(link, 0) >= 0 &&
			send_call(worker, i,
					  now - link->last_call > KEEP_ALIVE && has_rows(worker, &plane->peers[i])))
			return true;
	}
	return false;
}

int64
link_wake(Worker *worker)
{
	Plane *plane = worker->plane;
	int64 now = plane_now(plane);

	if (!plane->pushes)
		return PG_INT64_MAX;
	for (int i = 0; i < plane->n_peers; i++)
	{
		if (plane->peers[i].node != plane->node &&
			(worker->links[i].calls[0].req + worker->links[i].calls[1].req > 0 ||
			 has_rows(worker, &plane->peers[i])))
			return now + 100 * MS;
	}
	return PG_INT64_MAX;
}

/* ---- truncation and floors -------------------------------------------------------------------- */

static bool
is_kept(Worker *worker, const PlaneRow *row)
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
	Plane *plane = worker->plane;
	ShardStream *stream = &peer->streams[lane];
	StoreKey key = KEY(lane, peer->node);
	const PlaneRow *row;
	bool any = false;
	int64 now = plane_now(plane);

	while ((row = store_at_or_next(plane->store, tx, T_OUTBOX, &key)) != NULL && key.k[0] == lane &&
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
	Plane *plane = worker->plane;
	StoreKey key = KEY(lane, PG_INT64_MIN);
	const PlaneRow *row;
	bool any = false;

	while ((row = store_at_or_next(plane->store, tx, T_KEPT, &key)) != NULL && key.k[0] == lane)
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
	Plane *plane = worker->plane;
	static const int tables[] = {T_OUTBOX, T_KEPT, T_PARKED};
	const int64 *last = store_get(plane->store, NULL, T_LANE, KEY(lane));
	int64 floor;

	if (last == NULL)
		return 0;
	floor = *last + 1;
	for (int i = 0; i < (int) lengthof(tables); i++)
	{
		StoreKey key = tables[i] == T_PARKED ? KEY(PG_INT64_MIN) : KEY(lane, PG_INT64_MIN);
		const PlaneRow *row;

		while ((row = store_at_or_next(plane->store, NULL, tables[i], &key)) != NULL &&
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
	Plane *plane = worker->plane;
	int64 floor = stored_floor(worker, lane);
	StoreTransaction *tx = store_begin(plane->store);
	bool any = false;

	for (int i = 0; i < plane->n_peers; i++)
	{
		Peer *peer = &plane->peers[i];
		PlaneRow row = {.kind = ROW_FLOOR};

		if (peer->node == plane->node || peer->streams[lane].last == 0 ||
			peer->floor_told[lane] >= floor)
			continue;
		row.item.stamp = (ShardStamp){SHARD_PREFIX_NODE, plane->node, lane, floor};
		if (!store_put(tx, T_OUTBOX, KEY(lane, peer->node, shard_stream_next(&peer->streams[lane])),
					   &row) ||
			!link_store_stream(tx, peer, lane))
		{
			store_abort(tx);
			for (int j = 0; j <= i; j++)
				link_load_stream(plane, &plane->peers[j], lane);
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
	Plane *plane = worker->plane;
	StoreTransaction *tx = store_begin(plane->store);
	uint32 changed = 0;

	for (int lane = 0; lane < PLANE_LANES; lane++)
	{
		if (!(worker->lanes & (1u << lane)))
			continue;
		if (truncate_kept(worker, tx, lane))
			changed |= 1u << lane;
		for (int i = 0; i < plane->n_peers; i++)
		{
			if (truncate_stream(worker, tx, &plane->peers[i], lane))
			{
				changed |= 1u << lane;
				link_store_stream(tx, &plane->peers[i], lane);
			}
		}
	}
	if (changed == 0)
	{
		store_abort(tx);
		return false;
	}
	plane->floors_lsn = store_commit(tx);
	plane->floors |= changed;
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
save_row(Worker *worker, StoreTransaction *tx, const PlaneRow *row, bool in_doubt)
{
	PlaneRow copy = *row;

	if (in_doubt)
	{
		plane_note(worker->plane, "message " INT64_FORMAT " is in doubt", row->id);
		return store_put(tx, T_DEAD, KEY(row->id), row);
	}
	copy.item.sent = true;
	return store_put(tx, T_PARKED, KEY(row_shard_key(row), 0, row->item.stamp.seq), &copy);
}

/* What was sent to that peer on that lane, in the outbox and out of it. False: the disk is full. */
static bool
clear_stream(Worker *worker, StoreTransaction *tx, const Peer *peer, int lane)
{
	Plane *plane = worker->plane;
	const ShardStream *stream = &peer->streams[lane];
	bool regressed = stream->state == SHARD_STREAM_ORIGIN_REGRESSED;
	StoreKey key = KEY(lane, peer->node);
	const PlaneRow *row;

	while ((row = store_at_or_next(plane->store, tx, T_OUTBOX, &key)) != NULL && key.k[0] == lane &&
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
	while ((row = store_at_or_next(plane->store, tx, T_KEPT, &key)) != NULL && key.k[0] == lane)
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
release_dead(Plane *plane, int64 lsn)
{
	StoreKey key = KEY(PG_INT64_MIN);
	const PlaneRow *row;

	while ((row = store_at_or_next(plane->store, NULL, T_DEAD, &key)) != NULL)
	{
		Release release = {.kind = R_DEAD, .id = row->id, .lsn = lsn};

		if (store_row_lsn(row) == lsn)
			plane_release_at(plane, &release);
		key.k[3]++;
	}
}

/* shard_link_accept(), between two turns of the worker. True: something was done. */
static bool
accept_link(Worker *worker, Peer *peer)
{
	Plane *plane = worker->plane;
	uint32 lanes = peer->accepted & worker->lanes;
	StoreTransaction *tx;
	bool good = true;
	int64 lsn;

	if (lanes == 0 || store_full(plane->store))
		return false;
	tx = store_begin(plane->store);
	for (int lane = 0; lane < PLANE_LANES && good; lane++)
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
	release_dead(plane, lsn);
	plane->floors_lsn = store_last_lsn(plane->store);
	plane->floors |= lanes;
	shard_route_each(worker->routes, reload_route, worker->routes);
	close_link(worker, (int) (peer - plane->peers), 0);
	worker->more = true;
	plane_note(plane, "link to node %d goes on, lanes %x", peer->node, lanes);
	return true;
}

bool
link_truncate(Worker *worker)
{
	Plane *plane = worker->plane;
	int64 now = plane_now(plane);

	if (store_full(plane->store))
		return false;
	for (int i = 0; i < plane->n_peers; i++)
	{
		if (accept_link(worker, &plane->peers[i]))
			return true;
	}
	for (int lane = 0; lane < PLANE_LANES; lane++)
	{
		if ((plane->floors & worker->lanes & (1u << lane)) &&
			store_released(plane->store, plane->floors_lsn))
		{
			plane->floors &= ~(1u << lane);
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
answer(Plane *plane, const Datagram *call, Letter *letter, Verdict verdict)
{
	letter->head.kind = D_ANSWER;
	letter->head.worker = call->worker;
	letter->head.conn = call->conn;
	letter->head.req = call->req;
	letter->head.verdict = verdict;
	letter->head.to_inc = call->from_inc;
	link_send(plane, call->from, letter);
}

static void
answer_error(Plane *plane, const Datagram *call, Verdict verdict)
{
	Letter *letter = &plane->scratch;
	Datagram copy = *call;

	memset(&letter->head, 0, sizeof(Datagram));
	answer(plane, &copy, letter, verdict);
}

/* A call comes in: a backend takes it, if one is free. */
static void
take_call(Plane *plane, const Letter *letter)
{
	if (letter->head.to_inc != 0 && letter->head.to_inc != plane->inc)
	{
		answer_error(plane, &letter->head, V_AGAIN);
		return;
	}
	for (int i = 0; i < PLANE_BACKENDS; i++)
	{
		Backend *backend = &plane->backends[i];

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
link_backend_ready(const Plane *plane, const Backend *backend)
{
	if (backend->state == BACKEND_FREE)
		return false;
	if (backend->state == BACKEND_BEGIN)
	{
		const Peer *peer = plane_peer(unconstify(Plane *, plane), backend->call.head.from);

		return peer != NULL && (peer->stream_locks & section_lanes(&backend->call)) == 0;
	}
#ifndef SHARD_MUTANT_ACK_BEFORE_GATE
	if (backend->state == BACKEND_ANSWER)
		return store_released(plane->store, backend->lsn);
#endif
	return true;
}

/* Facts that came with the call, before its rows, if the control plane says the same; those that are known already are left out. */
static bool
append_facts(Plane *plane, StoreTransaction *tx, const Letter *call)
{
	for (int i = 0; i < call->head.n_facts; i++)
	{
		FactItem fact = call->facts[i];
		const RouteRow *route =
			store_get(plane->store, NULL, T_ROUTE, KEY(fact.type_id, fact.shard));
		PlaneRow row = {.kind = ROW_FACT};

		if ((route != NULL && route->n >= fact.n) || !plane_fact_is_learned(plane, &fact))
			continue;
		row.item.type_id = fact.type_id;
		row.item.shard = fact.shard;
		row.item.epoch = SHARD_NO_EPOCH;
		row.fact_node = shard_record_home_node(&fact.home);
		row.fact_epoch = fact.home.epoch;
		row.fact_lost = fact.home.lost;
		row.fact_move = fact.home.move_id;
		row.fact_n = fact.n;
		if (!plane_append(plane, tx, &row))
			return false;
	}
	return true;
}

/* A home forgets marks when it passes a floor, not before; only a mutant does it here. */
static void
receive_row(Plane *plane, const PlaneRow *row)
{
#ifdef SHARD_MUTANT_MARKS_DROPPED_AT_FLOOR_AT_ONCE
	int owner = row->kind == ROW_FLOOR ? plane->owner[row->item.stamp.b] : -1;

	if (owner >= 0)
		shard_route_floor(plane->workers[owner].routes, row->item.stamp);
	if (owner >= 0 && plane->workers[owner].phase == TURN_NONE)
		shard_route_commit(plane->workers[owner].routes);
#else
	(void) plane;
	(void) row;
#endif
}

/* One section, under its stream's lock. */
static Verdict
receive_section(Plane *plane, Backend *backend, const Section *section, int first_row)
{
	const Letter *call = &backend->call;
	StoreKey key = KEY(call->head.from, section->lane);
	const ShardStreamPosition *stored = store_get(plane->store, backend->tx, T_POSITION, key);
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
		if (!plane_append(plane, backend->tx, &call->rows[first_row + i]))
			return V_REFUSED;
		receive_row(plane, &call->rows[first_row + i]);
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
free_backend(Plane *plane, Backend *backend)
{
	Peer *peer = plane_peer(plane, backend->call.head.from);

	peer->stream_locks &= ~backend->locks;
	backend->locks = 0;
	backend->state = BACKEND_FREE;
	free(backend->answer);
	backend->answer = NULL;
}

/* The transaction of a call, up to its commit. */
static void
begin_call(Plane *plane, Backend *backend)
{
	Letter *call = &backend->call;
	Peer *peer = plane_peer(plane, call->head.from);
	Verdict verdict = V_OK;
	int row = 0;

	backend->locks = section_lanes(call);
	peer->stream_locks |= backend->locks;
	backend->tx = store_begin(plane->store);
	/* rows of an epoch that is not known here cannot be met (H3): the caller comes again */
	if (plane_facts_are_ahead(plane, call))
		verdict = V_AGAIN;
	else if (!append_facts(plane, backend->tx, call))
		verdict = V_REFUSED;
	for (int i = 0; i < call->head.n_sections && verdict == V_OK; i++)
	{
		verdict = receive_section(plane, backend, &call->sections[i], row);
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
		answer_error(plane, &call->head, verdict);
	free_backend(plane, backend);
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
prepare_answer(Plane *plane, Backend *backend)
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
		for (int i = 0; i < PLANE_WORKERS; i++)
		{
			if (plane->workers[i].routes != NULL)
				shard_route_each(plane->workers[i].routes, collect_marks, &collect);
		}
	}
	backend->answer = letter;
	backend->lsn = store_last_lsn(plane->store);
	backend->state = BACKEND_ANSWER;
}

/* Rows and position are stored: the stream's lock is free. */
static void
end_call(Plane *plane, Backend *backend)
{
	Peer *peer = plane_peer(plane, backend->call.head.from);

	peer->stream_locks &= ~backend->locks;
	backend->locks = 0;
	prepare_answer(plane, backend);
}

#ifdef SHARD_MUTANT_POSITION_AFTER_COMMIT
static void
store_positions(Plane *plane, Backend *backend)
{
	StoreTransaction *tx = store_begin(plane->store);

	for (int i = 0; i < backend->call.head.n_sections; i++)
	{
		int lane = backend->call.sections[i].lane;

		store_put(tx, T_POSITION, KEY(backend->call.head.from, lane), &backend->fresh[lane]);
	}
	store_commit(tx);
}
#endif

static void
commit_call(Plane *plane, Backend *backend)
{
	store_commit(backend->tx);
	backend->tx = NULL;
	plane_poke(plane);
#ifdef SHARD_MUTANT_POSITION_AFTER_COMMIT
	backend->state = BACKEND_POSITION;
#else
	end_call(plane, backend);
#endif
}

void
link_backend_step(Backend *backend, Plane *plane)
{
	if (!link_backend_ready(plane, backend))
		return;
	switch (backend->state)
	{
		case BACKEND_FREE:
			break;
		case BACKEND_BEGIN:
			begin_call(plane, backend);
			break;
		case BACKEND_COMMIT:
			commit_call(plane, backend);
			break;
		case BACKEND_POSITION:
#ifdef SHARD_MUTANT_POSITION_AFTER_COMMIT
			store_positions(plane, backend);
#endif
			end_call(plane, backend);
			break;
		case BACKEND_ANSWER:
			answer(plane, &backend->call.head, backend->answer, V_OK);
			free_backend(plane, backend);
			break;
	}
}

/* ---- answers and notes ------------------------------------------------------------------------ */

static void
take_marks(Plane *plane, const Letter *letter)
{
	for (int i = 0; i < letter->head.n_marks; i++)
	{
		const MarkItem *mark = &letter->marks[i];
		int owner = plane->owner[plane_lane(plane, mark->type_id, mark->shard)];

		/* a shard of which nothing was sent has no entry, and gets none (T9) */
		if (owner >= 0 &&
			shard_route_known(plane->workers[owner].routes, mark->type_id, mark->shard) != NULL)
			(void) shard_route_done(plane->workers[owner].routes, mark->type_id, mark->shard,
									letter->head.from, mark->rseq);
	}
}

static void
take_facts(Plane *plane, const Letter *letter)
{
	for (int i = 0; i < letter->head.n_facts; i++)
	{
		FactItem fact = letter->facts[i];

		if (plane_fact_is_learned(plane, &fact))
			plane_fact(plane, fact.type_id, fact.shard, &fact.home, fact.n);
	}
}

/* Positions that the receiver told: the link opens, or rows are acknowledged. */
static void
take_positions(Worker *worker, Peer *peer, const Letter *letter, bool hello)
{
	Plane *plane = worker->plane;
	StoreTransaction *tx = store_begin(plane->store);

	for (int i = 0; i < letter->head.n_sections; i++)
	{
		const Section *section = &letter->sections[i];
		ShardStream *stream = &peer->streams[section->lane];

		if (!(worker->lanes & (1u << section->lane)))
			continue;
		if (hello && shard_stream_greeted(stream, &section->position) != SHARD_STREAM_OPEN)
		{
			plane_note(plane,
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
take_answer(Plane *plane, const Letter *letter)
{
	const Datagram *head = &letter->head;
	Worker *worker = &plane->workers[head->worker];
	Peer *peer = plane_peer(plane, head->from);
	Link *link;
	int i;

	if (peer == NULL || worker->routes == NULL)
		return;
	i = (int) (peer - plane->peers);
	link = &worker->links[i];
	if (link->state == LINK_CLOSED || link->conn != head->conn)
		return;
	if (head->verdict != V_OK)
	{
		close_link(worker, i, (head->verdict == V_FENCED ? 1000 : 20) * MS);
		worker->poke = true;
		return;
	}
	take_marks(plane, letter);
	if (link->state == LINK_HELLO)
	{
		if (head->req != 0)
			return;
		link->state = LINK_OPEN;
		link->to_inc = head->from_inc;
		link->last_call = plane_now(plane);
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
link_add_note(Plane *plane, int32 node, int32 type_id, int32 shard, int64 rseq, bool refused)
{
	Peer *peer;
	PendingNote *note;

	if (node == plane->node || (peer = plane_peer(plane, node)) == NULL)
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
send_notes(Plane *plane, Peer *peer)
{
	Letter *letter = &plane->scratch;
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
			add_fact(plane, letter, &nothing_told, note->type_id, note->shard);
		}
	}
	peer->notes_sent = n;
	peer->note_req = letter->head.req = ++plane->next_conn;
	peer->note_deadline = plane_now(plane) + plane->settings.call_timeout;
	peer->note_tries++;
	link_send(plane, peer->node, letter);
}

/* An origin that does not answer says hello when it is back, and hears all marks then. */
bool
link_notes(Plane *plane)
{
	int64 now = plane_now(plane);

	for (int i = 0; i < plane->n_peers; i++)
	{
		Peer *peer = &plane->peers[i];

		if (!plane->pushes || peer->n_notes == 0 ||
			(peer->note_req != 0 && now < peer->note_deadline))
			continue;
		if (peer->note_tries > 20)
			peer->n_notes = peer->notes_sent = peer->note_tries = 0;
		else
			send_notes(plane, peer);
		return true;
	}
	return false;
}

static void
take_note(Plane *plane, const Letter *letter)
{
	Datagram head = letter->head;

	take_marks(plane, letter);
	take_facts(plane, letter);
	plane_poke(plane);
	memset(&plane->scratch.head, 0, sizeof(Datagram));
	plane->scratch.head.kind = D_NOTE_ANSWER;
	plane->scratch.head.req = head.req;
	plane->scratch.head.to_inc = head.from_inc;
	link_send(plane, head.from, &plane->scratch);
}

static void
take_note_answer(Plane *plane, const Datagram *head)
{
	Peer *peer = plane_peer(plane, head->from);

	if (peer == NULL || peer->note_req != head->req || head->to_inc != plane->inc)
		return;
	peer->n_notes -= peer->notes_sent;
	if (peer->n_notes > 0)
		memmove(peer->notes, peer->notes + peer->notes_sent, peer->n_notes * sizeof(PendingNote));
	peer->notes_sent = 0;
	peer->note_tries = 0;
	peer->note_req = 0;
}

void
link_receive(Plane *plane, const Letter *letter)
{
	switch (letter->head.kind)
	{
		case D_HELLO:
		case D_CALL:
			take_call(plane, letter);
			break;
		case D_ANSWER:
			if (letter->head.to_inc == plane->inc)
				take_answer(plane, letter);
			break;
		case D_NOTE:
			take_note(plane, letter);
			break;
		case D_NOTE_ANSWER:
			take_note_answer(plane, &letter->head);
			break;
		default:
			move_receive(plane, letter);
			break;
	}
}

void
plane_link_accept(Plane *plane, int32 node)
{
	Peer *peer = plane_peer(plane, node);

	for (int lane = 0; peer != NULL && lane < PLANE_LANES; lane++)
	{
		if (is_quarantined(&peer->streams[lane]))
			peer->accepted |= 1u << lane;
	}
	plane_poke(plane);
}

bool
plane_quarantined(Plane *plane)
{
	for (int i = 0; i < plane->n_peers; i++)
	{
		for (int lane = 0; lane < PLANE_LANES; lane++)
		{
			if (is_quarantined(&plane->peers[i].streams[lane]))
				return true;
		}
	}
	return false;
}
