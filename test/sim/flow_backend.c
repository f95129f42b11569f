/*
 * flow_backend.c
 *		The receiver: backends that carry out the calls of peers, each in a transaction.
 */
#include "flow_private.h"

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
void
link_take_call(Flow *flow, const Letter *letter)
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
