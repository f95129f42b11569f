/*
 * oracle_homes.c
 *		The oracle: where shards live, and their moves.
 */
#include "oracle.h"

/* Tell every node, some time; those that are cut off hear of it later. */
static void
spread(OracleWorld *world, int i)
{
	Home *home = &world->homes[i];

	for (int j = 0; j < world->n_nodes; j++)
	{
		Event *event;

		if (world->nodes[j].gone || (world->chaos && world->nodes[j].cut))
			continue;
		if (world->chaos && oracle_percent(world, 15))
			continue;
		event =
			oracle_event(world, EVENT_FACT, j,
						 (world->chaos && oracle_percent(world, 20) ? oracle_random(world, 1500)
																	: oracle_random(world, 20)) *
							 MS);
		event->shard = i;
		event->n = home->n;
		event->home = home->home;
	}
}

static void
decide(OracleWorld *world, int i)
{
	Home *home = &world->homes[i];

	home->n = ++world->n;
	oracle_trace(world,
				 "decided: shard %d/%d at node %d epoch %d phase %d lost %d (n " INT64_FORMAT ")",
				 type_of(i), shard_of(i), home->home.nodes[0], home->home.epoch, home->home.phase,
				 home->home.lost, home->n);
	spread(world, i);
}

static void
allocate(OracleWorld *world, int i)
{
	Home *home = &world->homes[i];

	memset(&home->home, 0, sizeof(home->home));
	home->known = true;
	home->home.n_nodes = 1;
	home->home.nodes[0] = oracle_draw_node(world, 0);
	decide(world, i);
}

void
oracle_begin_move(OracleWorld *world, int i, int32 to)
{
	Home *home = &world->homes[i];

	if (!home->known || !home->started || home->step != MOVE_NONE || to == 0 ||
		to == home->home.nodes[0])
		return;
	home->again = 0;
	home->home.phase = SHARD_HOME_MOVING;
	home->home.to = to;
	home->home.move_id = ++world->moves;
	home->step = MOVE_STOPPING;
	home->deadline = world->now + (500 + oracle_random(world, 3000)) * MS;
	home->command_at = 0;
	decide(world, i);
}

static void
end_move(OracleWorld *world, int i, int32 node)
{
	Home *home = &world->homes[i];

	home->step = MOVE_NONE;
	home->started = false;
	home->home.phase = SHARD_HOME_STABLE;
	home->home.nodes[0] = node;
	home->home.to = 0;
	home->home.epoch++;
	decide(world, i);
}

/*
 * A move is given up although its target has all, and begins anew soon after that: the workers of the
 * target may have read nothing in between, or stand in the middle of it.
 */
static void
abort_staged(OracleWorld *world, int i)
{
	Home *home = &world->homes[i];
	OracleNode *target = oracle_node(world, home->home.to);

	home->again = home->home.to;
	end_move(world, i, home->home.nodes[0]);
	if (target == NULL || oracle_percent(world, 30))
		return;
	if (oracle_percent(world, 50))
		target->traps_until = world->now + 1000 * MS;
	for (int p = 0; p < FLOW_WORKERS && target->traps_until <= world->now; p++)
		target->frozen[p] = world->now + 2000 * MS;
}

/*
 * The shard comes back at once. The workers of its home hear of nothing before it is copied there again: then
 * they find facts that are older than the ownership row.
 */
static void
return_shard(OracleWorld *world, int i, int32 from)
{
	OracleNode *node = oracle_node(world, from);

	if (node == NULL || node->gone || !flow_running(node->flow))
		return;
	world->homes[i].again = from;
	for (int p = 0; p < FLOW_WORKERS; p++)
	{
		if (!flow_midway(node->flow, p))
			node->frozen[p] = world->now + 2000 * MS;
	}
}

static void
send_command(OracleWorld *world, int i, ShardActionKind kind, int32 to, int32 epoch, int32 source)
{
	const Home *home = &world->homes[i];
	OracleNode *node = oracle_node(world, to);
	int copies = world->chaos && oracle_percent(world, 20) ? 2 : 1;

	while (node != NULL && copies-- > 0)
	{
		Event *event =
			oracle_event(world, EVENT_ACTION, (int) (node - world->nodes),
						 (world->chaos && oracle_percent(world, 15) ? oracle_random(world, 3000)
																	: oracle_random(world, 10)) *
							 MS);

		event->action.kind = kind;
		event->action.shard.type_id = type_of(i);
		event->action.shard.shard = shard_of(i);
		event->action.shard.epoch = epoch;
		event->action.shard.move_id = home->home.move_id;
		event->action.node = source;
	}
}

/* Drive the moves: repeat commands, decide, abort. */
void
oracle_drive_moves(OracleWorld *world)
{
	for (int i = 0; i < TYPES * SHARDS; i++)
	{
		Home *home = &world->homes[i];
		int32 owner = home->home.nodes[0];

		if (home->step == MOVE_NONE && home->again != 0)
			oracle_begin_move(world, i, home->again);
		if (home->step == MOVE_NONE)
			continue;
		if (home->step == MOVE_STAGED)
		{
			/* Now and then something comes between. */
			if (world->chaos && oracle_percent(world, 15))
				abort_staged(world, i);
			else
			{
				end_move(world, i, home->home.to);
				if (world->with_returns && world->chaos && oracle_percent(world, 50))
					return_shard(world, i, owner);
			}
			continue;
		}
		if (world->now > home->deadline)
		{
			end_move(world, i, owner);
			continue;
		}
		if (world->now < home->command_at)
			continue;
		home->command_at = world->now + 400 * MS;
		if (home->step == MOVE_STOPPING)
			send_command(world, i, SHARD_ACTION_STOP_SHARD, owner, home->home.epoch, 0);
		else
			send_command(world, i, SHARD_ACTION_IMPORT_SHARD, home->home.to, home->home.epoch + 1,
						 owner);
	}
}

/* All shards of a node begin anew: elsewhere if it is gone, else there (it is not fenced). */
void
oracle_lose_shards(OracleWorld *world, const OracleNode *node)
{
	for (int i = 0; i < TYPES * SHARDS; i++)
	{
		Home *home = &world->homes[i];

		if (!home->known)
			continue;
		if (home->step != MOVE_NONE && home->home.to == node->id)
			end_move(world, i, home->home.nodes[0]);
		if (home->home.nodes[0] != node->id)
			continue;
		home->home.lost = home->home.epoch + 1;
		end_move(world, i, node->gone ? oracle_draw_node(world, node->id) : node->id);
	}
}

void
oracle_hear(void *context, const ShardNodeEvent *event)
{
	OracleNode *node = context;
	OracleWorld *world = node->world;

	for (int j = 0; j < event->n_shards && !world->ghost; j++)
	{
		const ShardShardRef *ref = &event->shards[j];
		int i = (ref->type_id - 1) * SHARDS + ref->shard;
		Home *home = &world->homes[i];

		switch (event->kind)
		{
			case SHARD_EVENT_HOMES_WANTED:
				if (!home->known)
					allocate(world, i);
				break;
			case SHARD_EVENT_SHARDS_STARTED:
				if (home->known && home->home.nodes[0] == node->id &&
					home->home.epoch == ref->epoch)
					home->started = true;
				break;
			case SHARD_EVENT_SHARD_STOPPED:
				if (home->step == MOVE_STOPPING && home->home.move_id == ref->move_id)
				{
					home->step = MOVE_IMPORTING;
					home->command_at = 0;
				}
				break;
			case SHARD_EVENT_STAGED:
				if (home->step == MOVE_IMPORTING && home->home.move_id == ref->move_id)
					home->step = MOVE_STAGED;
				if (world->with_returns)
					memset(node->frozen, 0, sizeof(node->frozen));
				break;
			case SHARD_EVENT_IMPORT_FAILED:
				if (home->step == MOVE_IMPORTING && home->home.move_id == ref->move_id)
					end_move(world, i, home->home.nodes[0]);
				break;
			default:
				break;
		}
	}
}
