/*
 * fact_test.c
 *		What another node says of homes is judged by what was learned (T6).
 */
#include "postgres_fe.h"

#include "core/flow/fact.h"
#include "core/map/era.h"
#include "unit.h"

#define EPOCH 3
#define NODE 2

/* Learned: shard 7 at node 2 in epoch 3 by version 50, everything up to 60. */
static ShardFactVerdict
judge(int64 n, int32 node, int32 epoch, int32 lost)
{
	ShardFactLearned learned = {.upto_n = 60, .n = 50};
	ShardFact fact = {.type_id = 1, .shard = 7, .n = n, .node = node, .epoch = epoch, .lost = lost};

	learned.home = shard_packet_fact_home(&(ShardFact){.node = NODE, .epoch = EPOCH});
	return shard_fact_judge(&fact, &learned);
}

static ShardFactVerdict
judge_unknown(int64 n, int64 entry_n, bool deleted)
{
	ShardFactLearned learned = {.upto_n = 60, .n = entry_n, .deleted = deleted};
	ShardFact fact = {.type_id = 1, .shard = 7, .n = n, .node = NODE, .epoch = EPOCH};

	return shard_fact_judge(&fact, &learned);
}

/* Nothing of the map of this era is learned yet, as after voters were forced: a fact of version n of era 3 (R29). */
static ShardFactVerdict
judge_entered(int64 upto_n, int64 n)
{
	ShardFactLearned learned = {.upto_n = upto_n, .era = 3, .n = -1};
	ShardFact fact = {.type_id = 1, .shard = 7, .n = n, .node = NODE, .epoch = EPOCH};

	return shard_fact_judge(&fact, &learned);
}

static void
test_eras(void)
{
	const int64 begin = 3 * SHARD_ERA_LEAP;
	ShardTargetLearned nothing = {.era = 3};

	is_int(judge_entered(0, begin + 422), SHARD_FACT_AHEAD,
		   "who has entered an era, and learned nothing yet, takes nobody for a liar");
	is_int(judge_entered(2 * SHARD_ERA_LEAP + 400, begin + 422), SHARD_FACT_AHEAD,
		   "nor who still has the map of the one before");
	is_int(judge_entered(begin + 400, begin + 422), SHARD_FACT_AHEAD,
		   "nor who lacks the last of it");
	is_int(judge_entered(begin + 400, begin + 400 + SHARD_ERA_LEAP), SHARD_FACT_FALSE,
		   "a leap above its map is false");
	is_int(judge_entered(0, begin + SHARD_ERA_LEAP), SHARD_FACT_FALSE,
		   "what a later era begins with is, too");
	is_int(judge_entered(0, INT64CONST(1) << 62), SHARD_FACT_FALSE, "and all above");
	is_int(shard_fact_judge_target(21, 9, begin + 422, &nothing), SHARD_TARGET_AHEAD,
		   "a type that was not learned yet in this era may be there");
	is_int(shard_fact_judge_target(21, 9, 0, &nothing), SHARD_TARGET_AHEAD,
		   "also if the teller has learned nothing either");
	is_int(shard_fact_judge_target(21, 9, begin + SHARD_ERA_LEAP, &nothing), SHARD_TARGET_FALSE,
		   "not if the teller knows of another era's map");
}

/* Of a type with so many shards, or none; types up to 20 were given by version 60. */
static ShardTargetVerdict
judge_target(int32 type_id, int32 shard, int64 known_n, int32 number_of_shards)
{
	ShardTargetLearned learned = {.number_of_shards = number_of_shards,
								  .last_type_id = 20,
								  .upto_n = 60};

	return shard_fact_judge_target(type_id, shard, known_n, &learned);
}

static void
test_targets(void)
{
	is_int(judge_target(7, 0, 60, 4), SHARD_TARGET_THERE, "the first shard of a type");
	is_int(judge_target(7, 3, 60, 4), SHARD_TARGET_THERE, "its last one");
	is_int(judge_target(7, 4, 60, 4), SHARD_TARGET_FALSE, "one behind it");
	is_int(judge_target(7, 4, 70, 4), SHARD_TARGET_FALSE, "also if the teller knows more");
	is_int(judge_target(7, -1, 60, 4), SHARD_TARGET_FALSE, "one before the first");
	is_int(judge_target(20, 9, 60, 0), SHARD_TARGET_GONE, "of a type that was there");
	is_int(judge_target(21, 9, 60, 0), SHARD_TARGET_FALSE, "of a type that never was");
	is_int(judge_target(21, 9, 59, 0), SHARD_TARGET_FALSE, "by one who knows less");
	is_int(judge_target(21, 9, 61, 0), SHARD_TARGET_AHEAD, "of one that may be");
	is_int(judge_target(21, 9, 60 + SHARD_ERA_LEAP, 0), SHARD_TARGET_FALSE,
		   "not if the teller says that he knows what nobody does");
	is_int(judge_target(PG_INT32_MAX, 0, (INT64CONST(1) << 62) - 1, 0), SHARD_TARGET_FALSE,
		   "the greatest number there is");
}

int
main(void)
{
	test_targets();
	test_eras();
	is_int(judge(50, NODE, EPOCH, 0), SHARD_FACT_LEARNED, "what was learned is true");
	is_int(judge(50, 1, EPOCH, 0), SHARD_FACT_FALSE, "of the same version at another node: false");
	is_int(judge(50, NODE, EPOCH + 1, 0), SHARD_FACT_FALSE, "in another epoch: false");
	is_int(judge(50, NODE, EPOCH, EPOCH), SHARD_FACT_FALSE, "with another loss: false");
	is_int(judge(49, 1, EPOCH - 1, 0), SHARD_FACT_PAST, "an older version is past");
	is_int(judge(55, 1, EPOCH + 1, 0), SHARD_FACT_FALSE,
		   "a version between, which was learned and is not so: false");
	is_int(judge(60, 1, EPOCH + 1, 0), SHARD_FACT_FALSE, "also the newest one");
	is_int(judge(61, 1, EPOCH + 1, 0), SHARD_FACT_AHEAD, "one that was not learned may be true");
	is_int(judge(60 + SHARD_ERA_LEAP - 1, 1, EPOCH + 1, 0), SHARD_FACT_AHEAD, "within a leap");
	is_int(judge(60 + SHARD_ERA_LEAP, 1, EPOCH + 1, 0), SHARD_FACT_FALSE, "beyond it: false");
	is_int(judge(INT64CONST(1) << 62, 1, EPOCH + 1, 0), SHARD_FACT_FALSE, "far beyond it: false");

	is_int(judge_unknown(40, -1, false), SHARD_FACT_PAST, "of no entry: it may have been purged");
	is_int(judge_unknown(61, -1, false), SHARD_FACT_AHEAD, "or is not learned yet");
	is_int(judge_unknown(40, 50, true), SHARD_FACT_PAST, "before its end: past");
	is_int(judge_unknown(50, 50, true), SHARD_FACT_FALSE, "of the version that ended it: false");
	is_int(judge_unknown(70, 70, false), SHARD_FACT_FALSE,
		   "an entry that was learned ahead of the rest counts, too");
	return unit_done();
}
