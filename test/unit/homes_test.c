/*
 * homes_test.c
 *		Unit tests of the shard coordinator's duties, by whole nodes: bulk allocation.
 */
#include "postgres_fe.h"

#include "node_world.h"

static ShardShardRef refs[MANY];

/* Three members; a region meets ten thousand shards at once. */
static void
test_bulk(void)
{
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = MANY, .shards = refs};
	int persists;
	int letters_before;

	for (int i = 0; i < 3; i++)
		start(i);
	run(2 * SHARD_SECOND);
	ok(is_coordinator(0), "the first node is the coordinator");
	join(1, 0);
	join(2, 0);
	run(10 * SHARD_SECOND);
	for (int i = 0; i < 3; i++)
		add_type(i, "thing", MANY);
	run(3 * SHARD_SECOND);
	is_int(shard_node_id(machines[2].node), 3, "the third is node 3");

	for (int i = 0; i < MANY; i++)
		refs[i] = (ShardShardRef){.type_id = 1, .shard = i};
	persists = machines[0].persists;
	letters_before = letters;
	happen(1, &wanted);
	run(3 * SHARD_SECOND);
	is_int(count_homes(0, 0), MANY, "all have homes");
	is_int(count_homes(1, 0), MANY, "the one that asked knows them");
	for (int i = 0; i < 3; i++)
	{
		int homes = count_homes(0, i + 1);

		ok(homes >= MANY / 3 && homes <= MANY / 3 + 1, "node %d has its share", i + 1);
	}
	printf("# persists %d letters %d\n", machines[0].persists - persists, letters - letters_before);
	ok(machines[0].persists - persists <= 10, "in few transactions");
	ok(letters - letters_before <= 200, "and few messages");
}

int
main(void)
{
	begin_world();
	test_bulk();
	end_world();
	return unit_done();
}
