/*
 * set_test.c
 *		The set of a shard: from decided home to fact, to a node's route, and who has to be waited for (Q1 to Q4).
 */
#include "postgres_fe.h"

#include "core/flow/packet.h"
#include "core/map/set.h"
#include "unit.h"

static const ShardHomeRecord home = {
	.epoch = 5, .n_nodes = 3, .nodes = {4, 1, 7}, .want = 4, .lost = 2, .move_id = 9};
static const ShardHomeRecord plain = {.epoch = 5, .n_nodes = 1, .nodes = {4}, .want = 1};

static void
test_roles(void)
{
	int32 others[SHARD_MAX_HOMES];
	ShardSet set;

	ok(shard_set_get(&home, 11, &set), "a home that wants copies has a set");
	ok(set.n == 11 && set.epoch == 5 && set.lost == 2 && set.want == 4 && set.n_nodes == 3,
	   "which is of that version and epoch");
	is_int(shard_set_role(&set, 4), SHARD_SET_HOME, "the first node is the home");
	is_int(shard_set_role(&set, 7), SHARD_SET_BACKUP, "the others are backups");
	is_int(shard_set_role(&set, 2), SHARD_SET_NONE, "no other node is in it");
	is_int(shard_set_others(&set, 4, others), 2, "the home requires all but itself");
	ok(others[0] == 1 && others[1] == 7, "in the order of the set");
	ok(shard_set_has(&home, 7) && !shard_set_has(&home, 2), "nodes of a home");
	ok(!shard_set_get(&plain, 11, &set) && set.n == 0 && set.n_nodes == 0,
	   "of a type without replicas there is no set");
	is_int(shard_set_role(&set, 4), SHARD_SET_NONE, "in which nobody is anything");
}

/* Who is in a set keeps it; others have none. */
static void
test_learning(void)
{
	ShardHomeRecord moved = home;
	ShardSet set = {0};

	ok(!shard_set_learn(&set, &home, 11, 2) && set.n_nodes == 0, "who is in no set learns none");
	ok(!shard_set_learn(&set, &plain, 11, 4) && set.n_nodes == 0,
	   "nor does the home of a plain type");
	ok(shard_set_learn(&set, &home, 11, 7) && set.n_nodes == 3, "a backup learns its set");
	ok(shard_set_learn(&set, &home, 12, 7) && set.n == 12, "and a newer version of it");
	moved.epoch = 6;
	moved.n_nodes = 2;
	ok(shard_set_learn(&set, &moved, 13, 7) && set.n == 0 && set.n_nodes == 0,
	   "who is in it no more has none");
	ok(!shard_set_learn(&set, &moved, 14, 7), "of which nobody has to hear twice");
}

static void
test_facts(void)
{
	ShardFact fact = shard_packet_fact(1, 8, 11, &home);
	ShardHomeRecord back = shard_packet_fact_home(&fact);

	ok(fact.node == 4 && fact.n == 11 && fact.n_backups == 2 && fact.want == 4,
	   "a fact has the set");
	ok(back.n_nodes == 3 && back.want == 4 &&
		   memcmp(back.nodes, home.nodes, sizeof(back.nodes)) == 0,
	   "which comes back from it");
	shard_packet_set_fact(&fact, &plain);
	back = shard_packet_fact_home(&fact);
	ok(fact.want == 0 && back.n_nodes == 1 && back.want == 1, "the map's word replaces a caller's");
}

int
main(void)
{
	test_roles();
	test_learning();
	test_facts();
	return unit_done();
}
