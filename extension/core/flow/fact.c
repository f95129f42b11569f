/*
 * core/flow/fact.c
 *		What another node says of homes, beside the map that this node has learned (T6).
 *
 * Decided maps form one chain (V4), so of a version that the learned map has passed it knows better than any node that
 * tells. Contradictions are not always lies: a node may still have a home of which the voters that were forced do not
 * know (R29). Contradictions are without effect either way.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/flow/fact.h"
#include "core/map/era.h"

/*
 * Can a version that was not learned have been decided in this era? Each era begins a leap above the one before (R29), and
 * a node that has entered it knows nothing of its map at first (R13).
 */
static bool
is_within_leap(int64 n, int64 upto_n, int32 era)
{
#ifdef SHARD_MUTANT_ERA_BEGINS_WITHOUT_LEAP
	era = 0;
#endif
	return n - Max(upto_n, era * SHARD_ERA_LEAP) < SHARD_ERA_LEAP;
}

ShardFactVerdict
shard_fact_judge(const ShardFact *fact, const ShardFactLearned *learned)
{
	bool known = learned->n >= 0;

#ifdef SHARD_MUTANT_FACTS_BELIEVED
	return SHARD_FACT_LEARNED;
#endif
	if (known && learned->n == fact->n)
		return !learned->deleted && shard_record_home_node(&learned->home) == fact->node &&
					   learned->home.epoch == fact->epoch && learned->home.lost == fact->lost
				   ? SHARD_FACT_LEARNED
				   : SHARD_FACT_FALSE;
	if (known && learned->n > fact->n)
		return SHARD_FACT_PAST;
	if (fact->n > learned->upto_n)
		return is_within_leap(fact->n, learned->upto_n, learned->era) ? SHARD_FACT_AHEAD
																	  : SHARD_FACT_FALSE;
	/* tombstones are purged: what has no entry may have had one (R8) */
	return known ? SHARD_FACT_FALSE : SHARD_FACT_PAST;
}

/*
 * Numbers of types only rise, so the greatest number says of each type whether it was given, also
 * when the type is gone.
 */
ShardTargetVerdict
shard_fact_judge_target(int32 type_id, int32 shard, int64 known_n,
						const ShardTargetLearned *learned)
{
#ifdef SHARD_MUTANT_TARGETS_BELIEVED
	return SHARD_TARGET_THERE;
#endif
	if (learned->number_of_shards > 0)
		return shard >= 0 && shard < learned->number_of_shards ? SHARD_TARGET_THERE
															   : SHARD_TARGET_FALSE;
	if (type_id <= learned->last_type_id)
		return SHARD_TARGET_GONE;
	/* an era has begun here and there, and nothing of it is known yet */
	if (learned->upto_n == 0 && known_n == 0)
		return SHARD_TARGET_AHEAD;
	return known_n > learned->upto_n && is_within_leap(known_n, learned->upto_n, learned->era)
			   ? SHARD_TARGET_AHEAD
			   : SHARD_TARGET_FALSE;
}
