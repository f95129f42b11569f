/*
 * flow_link.c
 *		A worker as origin: says hello, pushes its outboxes, hears what was received (X1-X3).
 *
 * A call may be lost, repeated, late, or carried out long after its sender gave it up: nothing of the
 * network is trusted, and the numbers of connections serve only to match answers.
 */
#include "flow_private.h"

#define KEEP_ALIVE (1000 * MS)

/* What a home told of its marks may be lost with its memory: hello asks for all of them once more (X13). */
#define HELLO_AGAIN (5000 * MS)
#define LAST_HELLO_AGAIN (60000 * MS)

void
link_close(Worker *worker, int i, int64 pause)
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
void
link_add_fact(Flow *flow, Letter *letter, Link *link, int32 type_id, int32 shard)
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
				link_add_fact(flow, letter, &worker->links[i], row->item.type_id, row->item.shard);
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
			link_close(worker, i, 0);
		if (link->state == LINK_CLOSED && now >= link->not_before &&
			has_rows(worker, &flow->peers[i]))
		{
			say_hello(worker, i);
			return true;
		}
		if (link->state != LINK_CLOSED && link_timed_out(link, now))
		{
			link_close(worker, i, (50 + flow_random(flow, 100)) * MS);
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

void
link_take_answer(Flow *flow, const Letter *letter)
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
		link_close(worker, i, (head->verdict == V_FENCED ? 1000 : 20) * MS);
		worker->poke = true;
		return;
	}
	link_take_marks(flow, letter);
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
