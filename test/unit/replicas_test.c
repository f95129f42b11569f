/*
 * replicas_test.c
 *		Sets of shards of types with replicas, by whole nodes: who is in them, and that they stay (Q1, Q18).
 */
#include "postgres_fe.h"

#include "core/map/set.h"
#include "node_world.h"

#define SHARDS 24

static int64 last_token = 100;

/* A machine runs the type. */
static void
host(int at, int32 replicas)
{
	ShardTypeRecord type = {.name = "thing",
							.number_of_shards = SHARDS,
							.role = "",
							.leased = replicas > 0,
							.features = replicas > 0 ? SHARD_FEATURE_REPLICAS : 0,
							.replicas = replicas,
							.min_insync = replicas > 0 ? 2 : 0};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};

	happen(at, &event);
	deliver();
}

static void
want(int32 from, int count)
{
	ShardShardRef refs[SHARDS];
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = count, .shards = refs};

	for (int i = 0; i < count; i++)
		refs[i] = (ShardShardRef){.type_id = 1, .shard = from + i};
	happen(0, &wanted);
	run(3 * SHARD_SECOND);
}

/* The decided home of a shard, as a machine has learned it; all zero: it has none. */
static ShardHomeRecord
home_at(int at, int32 shard)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[at].node),
												 (ShardMapKey){SHARD_MAP_HOME, 1, shard});
	ShardHomeRecord home = {0};

	if (entry)
		(void) shard_record_get_home(entry, &home);
	return home;
}

static ShardHomeRecord
home_of(int32 shard)
{
	return home_at(0, shard);
}

/* The first shard of a node with that role in it. */
static int32
shard_of(int32 node, ShardSetRole role)
{
	for (int32 shard = 0; shard < SHARDS; shard++)
	{
		ShardHomeRecord home = home_of(shard);
		ShardSet set;

		if (shard_set_get(&home, 1, &set) && shard_set_role(&set, node) == role)
			return shard;
	}
	ok(false, "node %d is in a set", node);
	return 0;
}

/* An operator's word; true: it is answered, and done. */
static bool
say(int at, ShardCommandKind kind, int32 shard, int32 node)
{
	ShardCommand given = {.kind = kind,
						  .node = node,
						  .type_id = shard >= 0 ? 1 : 0,
						  .shard = Max(shard, 0),
						  .asker.token = ++last_token,
						  .flag = true,
						  .text = "eve@somewhere"};

	order(at, &given);
	deliver();
	for (int i = 0; i < 200 && machines[at].command != last_token; i++)
		run(STEP);
	return machines[at].command == last_token && machines[at].command_good;
}

/* What was decided of all shards, to be compared. */
static void
remember(ShardHomeRecord *homes, int at)
{
	for (int32 shard = 0; shard < SHARDS; shard++)
		homes[shard] = home_at(at, shard);
}

static int
count_changed(const ShardHomeRecord *before, int at)
{
	int changed = 0;

	for (int32 shard = 0; shard < SHARDS; shard++)
	{
		ShardHomeRecord home = home_at(at, shard);

		changed += home.epoch != before[shard].epoch || home.n_nodes != before[shard].n_nodes ||
				   memcmp(home.nodes, before[shard].nodes, sizeof(home.nodes)) != 0;
	}
	return changed;
}

/* Three members that host the type. */
static void
three_hosts(int32 replicas)
{
	three_nodes();
	for (int i = 0; i < 3; i++)
		host(i, replicas);
	run(3 * SHARD_SECOND);
	want(0, SHARDS);
}

static void
test_spread(int32 replicas)
{
	int homes[4] = {0};
	int backups[4] = {0};
	bool good = true;

	three_hosts(replicas);
	for (int32 shard = 0; shard < SHARDS; shard++)
	{
		ShardHomeRecord home = home_of(shard);

		good &= home.want == replicas + 1 && home.n_nodes == Min(replicas, 2) + 1;
		homes[home.nodes[0]]++;
		for (int i = 1; i < home.n_nodes; i++)
			backups[home.nodes[i]]++;
	}
	ok(good, "each shard has its home, and %d of %d backups", Min(replicas, 2), replicas);
	for (int node = 1; node <= 3; node++)
	{
		is_int(homes[node], SHARDS / 3, "node %d has its share of homes", node);
		ok(abs(backups[node] - Min(replicas, 2) * SHARDS / 3) <= 1, "and of backups: %d",
		   backups[node]);
	}
}

/* Nothing but its end changes a set: no move, no pin, no round, no evacuation, no loss, no new host. */
static void
test_stays(void)
{
	ShardHomeRecord before[SHARDS];
	int32 shard;

	three_hosts(1);
	remember(before, 0);
	shard = shard_of(3, SHARD_SET_HOME);
	ok(!say(0, SHARD_COMMAND_MOVE, shard, 1) &&
		   strstr(machines[0].command_text, "with replicas") != NULL,
	   "a move is refused: %s", machines[0].command_text);
	ok(say(0, SHARD_COMMAND_PIN, shard, 1), "a pin is taken,");
	run(10 * SHARD_SECOND);
	ok(say(0, SHARD_COMMAND_REBALANCE, -1, 0), "a round ends,");
	is_int(machines[0].command_number, 0, "and moves nothing");
	ok(say(0, SHARD_COMMAND_EVACUATE, -1, 3), "a member is to be emptied,");
	run(60 * SHARD_SECOND);
	is_int(count_changed(before, 0), 0, "and all sets are what they were");

	stop(2);
	run(60 * SHARD_SECOND);
	ok(say(0, SHARD_COMMAND_DOWN, -1, 3), "a member is downed,");
	run(60 * SHARD_SECOND);
	is_int(count_changed(before, 0), 0, "and all sets are what they were");
	ok(say(0, SHARD_COMMAND_WRITE_OFF, -1, 3), "it is written off,");
	run(60 * SHARD_SECOND);
	is_int(count_changed(before, 0), 0, "and its shards wait for its backups to be of use");
}

/* When all of a set is written off, nothing is left of the shard: it begins anew (N1). */
static void
test_all_gone(void)
{
	ShardHomeRecord before[SHARDS];
	bool good = true;

	three_nodes();
	start(3);
	run(2 * SHARD_SECOND);
	join(3, 0);
	run(30 * SHARD_SECOND);
	is_int(count_members(0), 4, "four nodes are a cluster");
	host(1, 1);
	host(2, 1);
	run(3 * SHARD_SECOND);
	want(0, SHARDS);
	remember(before, 0);
	host(0, 1);
	run(3 * SHARD_SECOND);
	for (int node = 2; node <= 3; node++)
	{
		is_int(count_changed(before, 0), 0, "sets of nodes 2 and 3 stay");
		stop(node - 1);
		run(30 * SHARD_SECOND);
		ok(say(0, SHARD_COMMAND_DOWN, -1, node), "node %d is downed,", node);
		ok(say(0, SHARD_COMMAND_WRITE_OFF, -1, node), "and written off");
		/* until another member votes in its place */
		run(120 * SHARD_SECOND);
	}
	for (int32 shard = 0; shard < SHARDS; shard++)
	{
		ShardHomeRecord home = home_of(shard);

		good &= home.epoch == before[shard].epoch + 1 && home.lost == home.epoch &&
				home.n_nodes == 1 && home.nodes[0] == 1 && home.want == 2;
	}
	ok(good, "when both are gone the shards begin anew, at a host that is left");
}

/* Hosts alone can have copies, and of these who have the code for it. */
static void
test_hosts(void)
{
	ShardHomeRecord before[SHARDS];

	end_world();
	memset(machines, 0, sizeof(machines));
	begin_world();
	for (int i = 0; i < 3; i++)
	{
		features = i == 2 ? 0 : SHARD_FEATURE_REPLICAS;
		start(i);
	}
	features = SHARD_FEATURE_REPLICAS;
	run(2 * SHARD_SECOND);
	join(1, 0);
	join(2, 0);
	run(20 * SHARD_SECOND);
	host(0, 1);
	host(2, 1);
	run(3 * SHARD_SECOND);
	want(0, SHARDS / 2);
	is_int(home_of(0).nodes[0], 1, "the only host that can have a shard gets it");
	ok(home_of(0).n_nodes == 1 && home_of(0).want == 2, "with redundancy 1 of 2");
	remember(before, 0);
	host(1, 1);
	run(60 * SHARD_SECOND);
	is_int(count_changed(before, 0), 0, "which stays when a host comes");
	want(SHARDS / 2, 1);
	ok(home_of(SHARDS / 2).n_nodes == 2, "a shard that comes later has a backup there,");
	is_int(count_homes(0, 3), 0, "and a member of an older version has none");
	for (int32 shard = 0; shard < SHARDS; shard++)
	{
		ShardHomeRecord home = home_of(shard);

		if (shard_set_has(&home, 3))
			ok(false, "shard %d has a backup there", shard);
	}
}

/* Who has a copy, as home or backup, does not leave. */
static void
test_leave(void)
{
	ShardCommand leave = {.kind = SHARD_COMMAND_LEAVE, .asker.token = 7};
	ShardHomeRecord before[SHARDS];

	three_nodes();
	host(0, 1);
	host(1, 1);
	run(3 * SHARD_SECOND);
	want(0, 1);
	host(2, 1);
	run(3 * SHARD_SECOND);
	remember(before, 0);
	order(2, &leave);
	deliver();
	run(60 * SHARD_SECOND);
	ok(machines[2].command == 7 && machines[2].command_good, "one without copies leaves");
	for (int node = 2; node >= 1; node--)
	{
		order(node - 1, &leave);
		deliver();
		run(60 * SHARD_SECOND);
		ok(machines[node - 1].command != 7 || !machines[node - 1].command_good,
		   "node %d has not left", node);
		is_int(count_changed(before, 0), 0, "and the set is what it was");
	}
}

/* Others are not held up: a type without replicas moves as ever, also at a restart (Q40). */
static void
test_beside(void)
{
	ShardShardRef ref = {.type_id = 2, .shard = 0};
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 1, .shards = &ref};
	ShardCommand move = {.kind = SHARD_COMMAND_MOVE, .type_id = 2, .asker.token = 9};
	const ShardMapEntry *entry;
	ShardHomeRecord home;

	three_hosts(1);
	for (int i = 0; i < 3; i++)
		add_type(i, "plain", 8);
	run(3 * SHARD_SECOND);
	happen(0, &wanted);
	run(20 * SHARD_SECOND);
	entry =
		shard_map_value(shard_node_learned(machines[0].node), (ShardMapKey){SHARD_MAP_HOME, 2, 0});
	ok(shard_record_get_home(entry, &home) && home.n_nodes == 1 && home.want == 1,
	   "a plain type has no sets");
	move.node = home.nodes[0] % 3 + 1;
	order(0, &move);
	deliver();
	run(20 * SHARD_SECOND);
	ok(machines[0].command == 9 && machines[0].command_good, "and moves");
}

int
main(void)
{
	begin_world();
	test_spread(1);
	test_spread(2);
	test_spread(3);
	test_stays();
	test_all_gone();
	test_hosts();
	test_leave();
	test_beside();
	end_world();
	return unit_done();
}
