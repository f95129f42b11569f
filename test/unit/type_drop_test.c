/*
 * type_drop_test.c
 *		Unit tests of types that are dropped, on whole nodes.
 */
#include "postgres_fe.h"

#include "type_world.h"

/* Everything that can still name a type that is gone. */
static void
say_old_things(int at, int32 type_id)
{
	ShardShardRef ref = {.type_id = type_id, .shard = 2};
	ShardNodeEvent started = {.kind = SHARD_EVENT_SHARDS_STARTED, .n_shards = 1, .shards = &ref};

	happen(at, &started);
	deliver();
	want(at, type_id, 3);
}

static void
test_drop(void)
{
	fresh_world();
	start(0);
	wish(0, "thing", 4, false, 1);
	wish(0, "other", 5, false, 1);
	run(2 * SHARD_SECOND);
	for (int i = 0; i < 50; i++)
		want(0, 4, i);
	want(0, 5, 0);
	run(SHARD_SECOND);
	is_int(homes_of_type(0, 4), 50, "a type with homes");

	/* Of the last ones it is not decided yet where they are; some are only wished for. */
	machines[0].slow = true;
	for (int i = 50; i < 60; i++)
		want(0, 4, i);
	tick(0);
	want(0, 4, 60);
	tick(0);
	want(0, 4, 61);
	drop(0, "thing");
	machines[0].facts = 0;
	want(0, 4, 1);
	is_int(machines[0].facts, 0, "of a type that goes the workers hear nothing");
	tick(0);
	settle(0);
	ok(homes_of_type(0, 4) > 50, "decided is what was on its way");
	run(SHARD_SECOND);
	is_int(homes_of_type(0, 4), 0, "goes with all of them");
	is_int(id_of(0, "thing"), 0, "and is gone");
	is_int(homes_of_type(0, 5), 1, "others stay");
	say_old_things(0, 4);
	run(SHARD_START_TIMEOUT + SHARD_SECOND);
	is_int(homes_of_type(0, 4), 0, "nothing of it comes back");
	stop(0);
	start(0);
	wish(0, "other", 5, false, 1);
	run(2 * SHARD_SECOND);
	say_old_things(0, 4);
	run(SHARD_START_TIMEOUT);
	is_int(homes_of_type(0, 4) + id_of(0, "thing"), 0, "not after a restart either");

	wish(0, "thing", 4, false, 1);
	run(SHARD_SECOND);
	is_int(id_of(0, "thing"), 6, "its number is not given again");
	is_int(homes_of_type(0, 6), 0, "it begins anew");
}

/* A pin that goes with its type was ended by nobody. */
static void
test_drop_pinned(void)
{
	ShardCommand pin = {.kind = SHARD_COMMAND_PIN,
						.type_id = 4,
						.shard = 2,
						.node = 1,
						.asker.token = 1,
						.text = "eve@somewhere"};

	fresh_world();
	start(0);
	wish(0, "thing", 4, false, 1);
	run(2 * SHARD_SECOND);
	order(0, &pin);
	run(SHARD_SECOND);
	ok(strcmp(machines[0].decision_text, "pinned, by eve@somewhere") == 0, "who pins is told: %s",
	   machines[0].decision_text);
	drop(0, "thing");
	run(SHARD_SECOND);
	is_int(machines[0].decisions[SHARD_DECISION_PINNED], 2, "a pin goes with its type");
	ok(strcmp(machines[0].decision_text, "no longer pinned") == 0, "which nobody wished: %s",
	   machines[0].decision_text);
}

/* Dropped and made again before anything of it was decided. */
static void
test_drop_at_once(void)
{
	fresh_world();
	start(0);
	run(2 * SHARD_SECOND);
	machines[0].slow = true;
	wish(0, "thing", 1, false, 1);
	tick(0);
	drop(0, "thing");
	wish(0, "thing", 2, false, 7);
	tick(0);
	want(0, 1, 0);
	want(0, 2, 0);
	settle(0);
	run(2 * SHARD_SECOND);
	is_int(id_of(0, "thing"), 2, "the second one stays");
	is_int(homes_of_type(0, 1), 0, "nothing of the first one");
	is_int(homes_of_type(0, 2), 1, "what was asked of the second one was answered");

	drop(0, "never was");
	drop(0, "thing");
	drop(0, "thing");
	run(SHARD_SECOND);
	is_int(count_homes(0, 0) + id_of(0, "thing"), 0, "twice is once");

	/* The host lacks a type that the map has: it died between the two. */
	wish(0, "left over", 3, false, 1);
	run(SHARD_SECOND);
	stop(0);
	start(0);
	drop(0, "left over");
	run(3 * SHARD_SECOND);
	is_int(id_of(0, "left over"), 0, "it can be dropped at the next start");
}

/* In a cluster with others the type is the cluster's. */
static void
test_drop_of_many(void)
{
	fresh_world();
	start(0);
	start(1);
	run(SHARD_SECOND);
	join(1, 0);
	run(10 * SHARD_SECOND);
	wish(0, "thing", 1, false, 1);
	wish(1, "thing", 1, false, 1);
	run(2 * SHARD_SECOND);
	want(0, 1, 0);
	run(SHARD_SECOND);
	drop(0, "thing");
	run(SHARD_SECOND);
	is_int(id_of(0, "thing"), 1, "a type that others have stays");
	is_int(count_homes(0, 0), 1, "with its homes");
	for (int i = 1; i < 20; i++)
		want(1, 1, i);
	run(SHARD_SECOND);
	ok(count_homes(0, 2) >= 19, "which this node gets no more of");
}

int
main(void)
{
	begin_world();
	test_drop();
	test_drop_pinned();
	test_drop_at_once();
	test_drop_of_many();
	end_world();
	return unit_done();
}
