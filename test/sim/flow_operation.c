/*
 * flow_operation.c
 *		Operations of moves, and those of them that a turn carries out: shards stop, are sealed, begin anew.
 */
#include "flow_turn.h"

Operation *
flow_operation(Flow *flow, OperationKind kind, const ShardShardRef *ref)
{
	Operation *unused = NULL;

	for (int i = 0; i < MAX_OPERATIONS; i++)
	{
		Operation *operation = &flow->operations[i];

		if (operation->kind == OP_NONE)
			unused = unused == NULL ? operation : unused;
		else if (operation->ref.type_id == ref->type_id && operation->ref.shard == ref->shard &&
				 operation->ref.move_id == ref->move_id && operation->ref.epoch == ref->epoch &&
				 (operation->kind == kind || kind == OP_STOP))
			return NULL; /* under way */
	}
	if (unused == NULL)
		return NULL;
	flow->n_operations = Max(flow->n_operations, (int) (unused - flow->operations) + 1);
	memset(unused, 0, sizeof(*unused));
	unused->kind = kind;
	unused->ref = *ref;
	return unused;
}

/* One for a shard of the worker, due now. */
static bool
is_due(const Worker *worker, const Operation *operation)
{
	const Flow *flow = worker->flow;

	return (operation->kind == OP_STOP || operation->kind == OP_SEAL ||
			operation->kind == OP_BEGIN) &&
		   operation->not_before <= flow_now(flow) &&
		   turn_has_lane(worker, flow_lane(flow, operation->ref.type_id, operation->ref.shard));
}

bool
turn_has_operations(const Worker *worker)
{
	const Flow *flow = worker->flow;

	for (int i = 0; i < flow->n_operations; i++)
	{
		if (is_due(worker, &flow->operations[i]))
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
start_again(Worker *worker, const ShardShardRef *ref)
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
void
turn_take_operations(Worker *worker)
{
	Flow *flow = worker->flow;

	for (int i = 0; i < flow->n_operations; i++)
	{
		Operation *operation = &flow->operations[i];

		if (!is_due(worker, operation))
			continue;
		worker->fact_lost = 0;
		if (operation->kind == OP_STOP)
			operation->next = stop_shard(worker, &operation->ref);
		else if (operation->kind == OP_SEAL)
			operation->next = seal_shard(worker, &operation->ref);
		else
			operation->next = start_again(worker, &operation->ref);
	}
}

/* The turn with them ended. That a shard is sealed is told past the gate. */
void
turn_end_operations(Worker *worker, bool committed, int64 lsn)
{
	Flow *flow = worker->flow;

	for (int i = 0; i < flow->n_operations; i++)
	{
		Operation *operation = &flow->operations[i];
		Release stopped = {.kind = R_STOPPED, .ref = operation->ref, .lsn = lsn};

		if (operation->next == OP_NONE ||
			!turn_has_lane(worker, flow_lane(flow, operation->ref.type_id, operation->ref.shard)))
			continue;
		if (committed && operation->next == OP_TELL)
			flow_release_at(flow, &stopped);
		if (committed)
			operation->kind = operation->next == OP_SEAL ? OP_SEAL : OP_NONE;
		operation->not_before = flow_now(flow) + flow_random(flow, 100) * MS;
		operation->next = OP_NONE;
	}
}
