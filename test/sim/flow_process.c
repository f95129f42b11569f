/*
 * flow_process.c
 *		The processes of the node: which of them could do something, and one step of one.
 */
#include "flow_private.h"

#define FLUSH_MOST (3 * MS)

/* Which lanes a worker is to have; and does it have them? */
static uint32
wanted_lanes(const Flow *flow, int index)
{
	uint32 lanes = 0;

	if (!flow->handles || index >= flow->settings.workers)
		return 0;
	for (int lane = index; lane < FLOW_LANES; lane += flow->settings.workers)
		lanes |= 1u << lane;
	return lanes;
}

static bool
lanes_free(const Flow *flow, uint32 lanes)
{
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if ((lanes & (1u << lane)) && flow->owner[lane] >= 0)
			return false;
	}
	return true;
}

/* One step: changes of the lanes first, then turns, pushes, tidying up. False: nothing to do. */
static bool
worker_step(Worker *worker)
{
	Flow *flow = worker->flow;
	uint32 wanted;

	if (worker->phase != TURN_NONE)
	{
		turn_step(worker);
		return true;
	}
	wanted = wanted_lanes(flow, worker->index);
	if (wanted != worker->lanes)
	{
		if (worker->lanes != 0)
			turn_stop_worker(worker);
		else if (lanes_free(flow, wanted))
		{
			worker->lanes = wanted;
			turn_start_worker(worker);
		}
		return true;
	}
	if (worker->lanes == 0)
	{
		worker->poke = false;
		worker->wake_at = PG_INT64_MAX;
		return false;
	}
	if (turn_due(worker))
	{
		turn_step(worker);
		return true;
	}
	if ((flow->pushes && link_push(worker)) || link_truncate(worker))
		return true;
	worker->poke = false;
	worker->wake_at = Min(turn_wake(worker), link_wake(worker));
	return false;
}

static bool
worker_ready(const Worker *worker, int64 now)
{
	const Flow *flow = worker->flow;
	uint32 wanted = wanted_lanes(flow, worker->index);

	if (worker->phase != TURN_NONE)
		return true;
	if (wanted != worker->lanes)
		return worker->lanes != 0 || lanes_free(flow, wanted);
	return worker->lanes != 0 && (worker->poke || worker->wake_at <= now);
}

/* Commits wait for one another: the log is flushed a while after the first that it has to be for. */
static bool
flush_due(Flow *flow, int64 now)
{
	if (store_full(flow->store) || store_flushed(flow->store) >= store_last_lsn(flow->store))
		return false;
	if (flow->flush_at == 0)
		flow->flush_at = now + 1 + flow_random(flow, FLUSH_MOST);
	return now >= flow->flush_at;
}

uint32
flow_ready(Flow *flow)
{
	uint32 ready = 0;
	int64 now;

	if (!flow->up)
		return 0;
	now = flow_now(flow);
	for (int i = 0; i < FLOW_WORKERS; i++)
	{
		if (worker_ready(&flow->workers[i], now))
			ready |= 1u << i;
	}
	for (int i = 0; i < FLOW_BACKENDS; i++)
	{
		if (flow->backends[i].state != BACKEND_FREE && link_backend_ready(flow, &flow->backends[i]))
			ready |= 1u << FLOW_BACKEND(i);
	}
	if (move_due(flow))
		ready |= 1u << FLOW_KEEPER;
	if (flush_due(flow, now))
		ready |= 1u << FLOW_FLUSHER;
	else if (flow->released_seen != store_release_position(flow->store) ||
			 (flow->n_releases > 0 && store_released(flow->store, flow->releases[0].lsn)) ||
			 flow_commits_return(flow))
		ready |= 1u << FLOW_FLUSHER;
	return ready;
}

int64
flow_wake(Flow *flow)
{
	int64 wake = PG_INT64_MAX;

	if (!flow->up)
		return wake;
	for (int i = 0; i < FLOW_WORKERS; i++)
	{
		if (flow->workers[i].lanes != 0)
			wake = Min(wake, flow->workers[i].wake_at);
	}
	if (flow->flush_at != 0 && !store_full(flow->store))
		wake = Min(wake, flow->flush_at);
	return Min(wake, move_wake(flow));
}

bool
flow_step(Flow *flow, int process)
{
	if (!flow->up)
		return false;
	if (process < FLOW_WORKERS)
		return worker_step(&flow->workers[process]);
	if (process < FLOW_KEEPER)
		link_backend_step(&flow->backends[process - FLOW_WORKERS], flow);
	else if (process == FLOW_KEEPER)
		move_step(flow);
	else
	{
		store_flush(flow->store);
		flow->flush_at = 0;
		flow_let_go(flow);
	}
	return true;
}
