/*
 * takeover_test.c
 *		Take-over: what a fact makes of what a node has, what a former home is as a copy, and what may go.
 */
#include "postgres_fe.h"

#include "core/flow/takeover.h"
#include "unit.h"

static ShardTakeover own;

static void
have(ShardTakeoverState state, int32 epoch)
{
	own = (ShardTakeover){state, epoch};
}

/* A fact for node 1 of that epoch: the set, home first; 0: nobody. */
static ShardTakeoverEvent
meet(int32 epoch, int32 first, int32 second)
{
	ShardHomeRecord home = {.epoch = epoch, .n_nodes = 1 + (second != 0), .nodes = {first, second}};
	ShardTakeoverEvent event = shard_takeover_read(&own, 1, &home);

	if (event != SHARD_TAKEOVER_NOTHING && event != SHARD_TAKEOVER_WRONG)
		shard_takeover_step(&own, event, epoch);
	return event;
}

static void
test_backup(void)
{
	have(SHARD_TAKEOVER_BACKUP, 3);
	is_int(meet(3, 1, 2), SHARD_TAKEOVER_NOTHING,
		   "a fact of an epoch that was met changes nothing");
	is_int(meet(2, 1, 2), SHARD_TAKEOVER_NOTHING, "nor does an older one");
	is_int(meet(4, 2, 1), SHARD_TAKEOVER_FOLLOWS, "a backup follows");
	is_int(own.epoch, 4, "into the newer epoch");
	is_int(meet(5, 1, 2), SHARD_TAKEOVER_CHOSEN, "it is chosen");
	ok(own.state == SHARD_TAKEOVER_HOME && own.epoch == 5, "and is home");

	have(SHARD_TAKEOVER_BACKUP, 3);
	is_int(meet(7, 1, 2), SHARD_TAKEOVER_CHOSEN, "also if it has missed epochs");
	have(SHARD_TAKEOVER_BACKUP, 3);
	is_int(meet(4, 2, 3), SHARD_TAKEOVER_PUT_OUT, "it is put out");
	is_int(meet(6, 3, 2), SHARD_TAKEOVER_PUT_OUT, "stays so");
	is_int(own.epoch, 6, "and knows the newest epoch");
	is_int(meet(7, 1, 3), SHARD_TAKEOVER_WRONG, "who was put out is no home again without a copy");
	is_int(meet(7, 3, 1), SHARD_TAKEOVER_WRONG, "nor a member");
}

static void
test_home(void)
{
	have(SHARD_TAKEOVER_HOME, 3);
	is_int(meet(4, 1, 2), SHARD_TAKEOVER_BACK, "home once more, as nobody else was: it goes on");
	is_int(meet(6, 1, 2), SHARD_TAKEOVER_CHOSEN,
		   "somebody else may have been: the epoch has a first record");
	ok(shard_takeover_step(&own, SHARD_TAKEOVER_SEAL, 0) && own.epoch == 6, "it seals its epoch");
	ok(!shard_takeover_step(&own, SHARD_TAKEOVER_SEAL, 0), "once");
	ok(shard_takeover_is_home(&own), "and is still home");
	is_int(meet(7, 1, 2), SHARD_TAKEOVER_BACK, "until the move is aborted");
	is_int(own.state, SHARD_TAKEOVER_HOME, "then it goes on");
	is_int(meet(8, 2, 1), SHARD_TAKEOVER_FOLLOWS, "a former home that stays in the set");
	ok(own.state == SHARD_TAKEOVER_BACKUP && !shard_takeover_is_home(&own), "is a backup");
	have(SHARD_TAKEOVER_SEALED, 3);
	is_int(meet(4, 2, 3), SHARD_TAKEOVER_PUT_OUT, "or it is put out");
}

static void
test_nothing(void)
{
	have(SHARD_TAKEOVER_NONE, 0);
	is_int(meet(4, 2, 3), SHARD_TAKEOVER_NOTHING, "what is elsewhere is no concern of others");
	is_int(meet(4, 1, 2), SHARD_TAKEOVER_WRONG, "who has nothing cannot take over");
	is_int(meet(4, 2, 1), SHARD_TAKEOVER_FOLLOWS, "but follows");
}

static void
test_tags(void)
{
	have(SHARD_TAKEOVER_HOME, 3);
	ok(shard_takeover_takes(&own, 3), "a home takes rows of its epoch");
	ok(!shard_takeover_takes(&own, 2), "and no older ones");
	have(SHARD_TAKEOVER_SEALED, 3);
	ok(!shard_takeover_takes(&own, 3), "a sealed one takes none");
	have(SHARD_TAKEOVER_BACKUP, 3);
	ok(!shard_takeover_takes(&own, 3), "nor does a backup");
}

/* A home of epoch 3 whose turns go to 9; records are there from 5 on. */
static ShardReplicaHome
home_at_nine(int64 released)
{
	ShardReplicaHome home;

	shard_replica_begin(&home, 3, &(ShardTurnPoint){3, 9, 77}, 20, 5);
	shard_replica_require(&home, 1, 1, (const int32[]){1, 2}, 2);
	shard_replica_passed(&home, 9);
	if (released > 0)
		shard_replica_answered(&home, 2,
							   &(ShardReplicaAnswer){7, 5, 3, SHARD_REPLICA_STORED, released, 0});
	return home;
}

static void
test_former_home(void)
{
	ShardReplicaCopy copy = {.promise = 3, .end = {2, 3, 5}, .released = 2, .applied = 2};
	ShardReplicaHome home = home_at_nine(0);

	is_int(shard_takeover_park_from(&home), 4, "what is forgotten was released");
	is_int(shard_takeover_lay_down(&home, 4, &copy), 9, "its rows show all of its turns");
	ok(copy.promise == 4 && copy.end.turn == 9 && copy.end.sum == 77 && copy.oseq == 20,
	   "it promises, and ends where it stood");
	ok(copy.released == 4 && copy.applied == 4, "and knows what was released");

	home = home_at_nine(7);
	is_int(shard_takeover_park_from(&home), 7, "what was released is not parked");
	copy = (ShardReplicaCopy){.released = 8, .applied = 2};
	shard_takeover_lay_down(&home, 4, &copy);
	is_int(copy.released, 8, "what it was told before it was home stays true");
}

static void
test_rows(void)
{
	ShardTurnRecord record = {.turn = 8};
	ShardReplicaCopy copy = {.promise = 4, .end = {3, 9, 77}, .released = 5, .applied = 5};

	ok(shard_takeover_may_store(SHARD_REPLICA_REPLACE, &record, 7),
	   "records behind what the rows show are dropped");
	ok(!shard_takeover_may_store(SHARD_REPLICA_REPLACE, &record, 8),
	   "those that they show are not, before the rows were taken anew");
	ok(shard_takeover_may_store(SHARD_REPLICA_STORE, &record, 9), "what is appended drops nothing");
	ok(shard_takeover_may_store(SHARD_REPLICA_NEED, &record, 9), "and a need nothing either");
	is_int(shard_takeover_copied(&copy, &(ShardTurnPoint){4, 12, 5}, 30, 6), 12,
		   "rows of a home show all of its turns");
	ok(copy.end.turn == 12 && copy.oseq == 30 && copy.released == 6 && copy.applied == 6,
	   "of which those are applied for good that are released");
	shard_takeover_copied(&copy, &(ShardTurnPoint){4, 12, 5}, 30, 0);
	is_int(copy.released, 6, "a home that does not know what was released takes nothing away");
}

static void
test_whole(void)
{
	ShardReplicaHome home = home_at_nine(7);
	ShardHomeRecord set = {.epoch = 3, .n_nodes = 2, .nodes = {1, 2}, .want = 2};

	ok(shard_takeover_is_whole(&home, &set, 7), "a set is whole when the first turn is released");
	ok(!shard_takeover_is_whole(&home, &set, 8), "and not before");
	ok(!shard_takeover_is_whole(&home, &set, 0), "nor if there is none yet");
	set.want = 3;
	ok(!shard_takeover_is_whole(&home, &set, 7), "nor with fewer members than are wished");
	have(SHARD_TAKEOVER_OUT, 4);
	ok(!shard_takeover_may_drop(&own, false), "who was put out keeps what it has");
	ok(shard_takeover_may_drop(&own, true), "until the set is whole");
	have(SHARD_TAKEOVER_BACKUP, 4);
	ok(!shard_takeover_may_drop(&own, true), "a member never drops it");
	have(SHARD_TAKEOVER_OUT, 4);
	ok(shard_takeover_step(&own, SHARD_TAKEOVER_DROPPED, 0) && own.state == SHARD_TAKEOVER_NONE &&
		   own.epoch == 4,
	   "then it has nothing, and knows the epoch");
}

int
main(void)
{
	test_backup();
	test_home();
	test_nothing();
	test_tags();
	test_former_home();
	test_rows();
	test_whole();
	return unit_done();
}
