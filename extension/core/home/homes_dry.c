/*
 * core/home/homes_dry.c
 *		PLAN: which moves would begin now.
 *
 * The coordinator begins them, by the same functions as always, and takes them back before the call ends. That leaves no
 * trace: a move that has begun is a note in memory until its target has been asked (M16), and no target is asked within the
 * call. So the answer is what the coordinator would do, and no second opinion can differ from it. What is bounded at a time
 * because it goes on by itself (homes of members that leave, pins) is listed as a whole.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/home/homes_plan.h"

bool
shard_homes_dry_has_room(ShardHomes *homes)
{
	if (homes->n_moves - homes->dry.first < SHARD_PLAN_MOVES)
		return true;
	homes->dry.more = true;
	return false;
}

/* The home of a shard as it would be while the shard moves. */
static ShardMapEntry
moving_home(const ShardHomes *homes, const HomesShard *shard)
{
	ShardHomeRecord record;
	int64 n = 0;

	(void) shard_homes_record(homes, shard, &record, &n);
	record.phase = SHARD_HOME_MOVING;
	record.to = shard->target;
	record.reason = shard->reason;
	record.move_id = shard->move_id;
	return shard_record_put_home(shard->key.type_id, shard->key.shard, &record, n,
								 homes->out->arena);
}

/* The moves that have begun in this dry run are listed, and have not begun. */
static void
take_back(ShardHomes *homes, ShardHomesPlan *plan)
{
	int first = homes->dry.first;

	plan->homes = shard_arena_alloc(homes->out->arena,
									sizeof(ShardMapEntry) * Max(homes->n_moves - first, 1));
#ifdef SHARD_MUTANT_PLAN_LEAVES_ONE_OUT
	for (int i = first + 1; i < homes->n_moves; i++)
#else
	for (int i = first; i < homes->n_moves; i++)
#endif
		plan->homes[plan->n_homes++] =
			moving_home(homes, homes_shard_lookup(homes->shards, homes->moves[i]));
#ifndef SHARD_MUTANT_PLAN_BEGINS_MOVES
	while (homes->n_moves > first)
		shard_homes_set_move(homes,
							 homes_shard_lookup(homes->shards, homes->moves[homes->n_moves - 1]),
							 SHARD_MOVE_REFUSED);
#endif
}

bool
shard_homes_dry_run(ShardHomes *homes, int64 now, const ShardCommand *command,
					const ShardRoster *roster, ShardActions *out, ShardHomesPlan *plan,
					const char **why)
{
	bool urgent;
	int count;
	ShardMapEntry *types;
	ShardTypeRecord type;

	shard_homes_begin(homes, now, out);
	memset(plan, 0, sizeof(*plan));
	*why = "there is no such type";
	if (command->type_id != 0 && !shard_homes_type(homes, command->type_id, &type))
		return false;
	urgent = homes->urgent;
	homes->dry = (HomesDryRun){.runs = true, .first = homes->n_moves};
	types = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &count);
	plan->looked_at = homes->shards->members;
	for (int i = 0; i < count && !homes->dry.more; i++)
	{
		int32 type_id = types[i].key.a;

		if (command->type_id != 0 && type_id != command->type_id)
			continue;
		shard_homes_evacuate_dry(homes, now, type_id, roster);
		shard_homes_plan_dry(homes, now, type_id, roster);
	}
	take_back(homes, plan);
	homes->dry.runs = false;
	homes->urgent = urgent;
#ifdef SHARD_MUTANT_PLAN_PUTS_ROUNDS_OFF
	homes->next_rebalance = shard_homes_next_rebalance(homes, now);
#endif
	plan->more = homes->dry.more;
	return true;
}
