/*
 * flow_action.c
 *		What the control plane wants of the node, and hears from it.
 */
#include "flow_private.h"

/*
 * The control plane asks again whether a shard is active here, by telling its fact once more: it may
 * have been started anew and know nothing of what was said before.
 */
static void
confirm_start(Flow *flow, const ShardMapEntry *entry)
{
	ShardShardRef ref = {entry->key.a, entry->key.b, 0, 0};
	ShardHomeRecord home;

	if (!shard_record_get_home(entry, &home) || shard_record_home_node(&home) != flow->node ||
		flow_active_epoch(flow, ref.type_id, ref.shard) != home.epoch)
		return;
	ref.epoch = home.epoch;
	flow_event(flow, SHARD_EVENT_SHARDS_STARTED, &ref);
}

/* A fact that comes as an entry of the map. */
static void
take_entry(Flow *flow, const ShardMapEntry *entry)
{
	ShardHomeRecord home;

	if (entry->key.kind == SHARD_MAP_HOME && !entry->deleted && shard_record_get_home(entry, &home))
		flow_fact(flow, entry->key.a, entry->key.b, &home, entry->n);
}

void
flow_action(Flow *flow, const ShardAction *action)
{
	Operation *operation;

	if (!flow->up)
		return;
	switch (action->kind)
	{
		case SHARD_ACTION_FACT:
			take_entry(flow, action->entry);
			confirm_start(flow, action->entry);
			break;
		case SHARD_ACTION_STOP_SHARD:
			/* A worker that does not come to its end is terminated; the next one is asked again. */
			if (flow_percent(flow, 10))
				flow_kill_worker(flow, flow_lane(flow, action->shard.type_id, action->shard.shard));
			flow_operation(flow, OP_STOP, &action->shard);
			break;
		case SHARD_ACTION_PREPARE_IMPORT:
			/* Now and then the tables do not fit, or nobody answers. */
			if (!flow_percent(flow, 5))
				flow_event(flow,
						   flow_percent(flow, 5) ? SHARD_EVENT_IMPORT_FAILED
												 : SHARD_EVENT_IMPORT_READY,
						   &action->shard);
			break;
		case SHARD_ACTION_IMPORT_SHARD:
			operation = flow_operation(flow, OP_IMPORT, &action->shard);
			if (operation != NULL)
				operation->node = action->node;
			break;
		case SHARD_ACTION_START_WORKERS:
			flow->node = flow->host.node(flow->host.context);
			flow->inc = flow->host.incarnation(flow->host.context);
			flow->handles = true;
			flow->pushes = action->flag;
			/* What was held may go on now. */
			for (int i = 0; i < FLOW_WORKERS; i++)
				flow->workers[i].more = true;
			break;
		case SHARD_ACTION_STOP_WORKERS:
			flow->handles = flow->pushes = false;
			break;
		case SHARD_ACTION_LEASE:
			flow->lease_until = action->until;
			break;
		default:
			break; /* parking early is a hint */
	}
	flow_poke(flow);
}

void
flow_event(Flow *flow, ShardNodeEventKind kind, const ShardShardRef *ref)
{
	ShardNodeEvent event = {.kind = kind, .n_shards = 1, .shards = ref};

	if (kind == SHARD_EVENT_IMPORT_FAILED)
		event.text = "could not be copied";
	flow->host.node_event(flow->host.context, &event);
}

/* The ownership row was changed outside its worker. */
void
flow_reload(Flow *flow, int32 type_id, int32 shard)
{
	int lane = flow_lane(flow, type_id, shard);

	for (int i = 0; i < flow->n_reloads; i++)
	{
		if (flow->reloads[i].type_id == type_id && flow->reloads[i].shard == shard)
			return;
	}
	if (flow->n_reloads == lengthof(flow->reloads))
		return;
	flow->reloads[flow->n_reloads].type_id = type_id;
	flow->reloads[flow->n_reloads].shard = shard;
	flow->reloads[flow->n_reloads].lanes = 1u << lane;
	flow->n_reloads++;
	flow_poke(flow);
}

/* The worker of a lane dies; another one will take its lanes. */
void
flow_kill_worker(Flow *flow, int lane)
{
	int owner = flow->owner[lane];

	if (owner < 0)
		return;
	flow_note(flow, "worker %d is terminated", owner);
	if (flow->workers[owner].phase != TURN_NONE)
		turn_abort(&flow->workers[owner]);
	turn_stop_worker(&flow->workers[owner]);
}

/* Is a turn of that lane open? Whoever takes the turn lock exclusively waits for it (W3). */
bool
flow_turn_runs(const Flow *flow, int lane)
{
#ifdef SHARD_MUTANT_NO_TURN_LOCK
	(void) flow;
	(void) lane;
	return false;
#else
	int owner = flow->owner[lane];

	return owner >= 0 && flow->workers[owner].phase != TURN_NONE;
#endif
}

void
flow_own_changed(Flow *flow, int32 type_id, int32 shard, const ShardOwn *before,
				 const ShardOwn *after, int32 lost)
{
	flow_note(flow, "shard %d/%d: %s(%d) -> %s(%d)", type_id, shard,
			  shard_home_machine.state_names[before->state], before->epoch,
			  shard_home_machine.state_names[after->state], after->epoch);
	if (!flow->retired)
		check_owner(flow->check, flow->instance, type_id, shard, before, after, lost,
					flow_is_leased(flow, type_id));
}
