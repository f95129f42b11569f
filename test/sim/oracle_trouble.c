/*
 * oracle_trouble.c
 *		What clients of mode flow do, and what goes wrong until everything heals.
 */
#include "oracle.h"

/* What clients do. */
void
oracle_client_step(OracleWorld *world)
{
	OracleNode *node = &world->nodes[oracle_random(world, world->n_nodes)];
	int session = (int) oracle_random(world, FLOW_SESSIONS);

	if (node->gone || !flow_running(node->flow))
		return;
	if (flow_session_open(node->flow, session))
	{
		int what = (int) oracle_random(world, 100);

		if (what < 45)
			flow_commit(node->flow, session);
		else if (what < 52)
			flow_rollback(node->flow, session);
		else if (what < 75)
			flow_tell(node->flow, session, 1 + (int) oracle_random(world, TYPES),
					  (int) oracle_random(world, SHARDS), (int) oracle_random(world, ENTITIES));
	}
	else if (flow_session_idle(node->flow, session))
	{
		if (oracle_percent(world, 4))
			flow_redrive(node->flow, session);
		else
			flow_tell(node->flow, session, 1 + (int) oracle_random(world, TYPES),
					  (int) oracle_random(world, SHARDS), (int) oracle_random(world, ENTITIES));
		if (oracle_percent(world, 50))
			flow_commit(node->flow, session);
	}
}

/* A node says what was not decided: of a version that may come, or of one that never will. */
static void
lie(OracleWorld *world, OracleNode *node)
{
	int i = (int) oracle_random(world, TYPES * SHARDS);
	int64 ahead =
		oracle_percent(world, 50) ? 1 + (int64) oracle_random(world, 5) : INT64CONST(1) << 52;
	int32 to = oracle_draw_node(world, node->id);

	if (to != 0)
		flow_lie(node->flow, to, type_of(i), shard_of(i), oracle_draw_node(world, 0),
				 world->n + ahead);
}

void
oracle_fault_step(OracleWorld *world)
{
	OracleNode *node = &world->nodes[oracle_random(world, world->n_nodes)];
	int what = (int) oracle_random(world, 1000);

	if (node->gone)
		return;
	if (what < 60)
		oracle_crash(world, node);
	else if (what < 200)
		node->frozen[oracle_random(world,
								   oracle_percent(world, 50) ? FLOW_WORKERS : FLOW_PROCESSES)] =
			world->now + oracle_random(world, 1500) * MS;
	else if (what < 240)
		node->cut = !node->cut;
	else if (what < 270)
		store_set_full(node->store, !store_full(node->store));
	else if (what < 330 && flow_running(node->flow))
		flow_settings(node->flow)->workers = 1 + (int) oracle_random(world, FLOW_WORKERS);
	else if (what < 360)
		node->isolated = !node->isolated;
	else if (what < 800)
	{
		int i = (int) oracle_random(world, TYPES * SHARDS);

		oracle_begin_move(world, i, oracle_draw_node(world, world->homes[i].home.nodes[0]));
	}
	else if (what < 830 && world->with_restore && !world->special_done)
	{
		if (node->backup == NULL && world->now < CHAOS / 2)
		{
			node->backup = store_copy(node->store);
			node->backup_at = check_clock(world->check);
		}
		else if (node->backup != NULL && world->now > CHAOS / 2)
			oracle_restore(world, node);
	}
	else if (what < 835 && world->drops_order && world->now > CHAOS / 2)
		flow_settings(node->flow)->ordered_no_more = true;
	else if (what < 840 && node->standby != NULL && world->now > CHAOS / 3)
		oracle_promote(world, node);
	else if (what < 845 && world->with_write_off && !world->special_done && world->now > CHAOS / 3)
		oracle_write_off(world);
	else if (what >= 845 && what < 870 && flow_running(node->flow))
		lie(world, node);
}

/* Faults end, clients go, who is down comes back. */
void
oracle_heal(OracleWorld *world)
{
	world->chaos = false;
	oracle_trace(world, "everything heals");
	for (int j = 0; j < world->n_nodes; j++)
	{
		OracleNode *node = &world->nodes[j];

		node->cut = node->isolated = false;
		if (node->gone)
			continue;
		store_set_full(node->store, false);
		memset(node->frozen, 0, sizeof(node->frozen));
		node->traps_until = 0;
		flow_settings(node->flow)->no_tells_from_now = true;
		for (int i = 0; i < FLOW_SESSIONS; i++)
			flow_commit(node->flow, i);
	}
}
