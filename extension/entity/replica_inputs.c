/*
 * entity/replica_inputs.c
 *		Messages of this node that shards with replicas have taken in: they are kept until the turn is released (Q30).
 *
 * Comes from: record_write.c and routing, after commits and at a start; replica_home.c, with what is released. Goes to:
 * process/region_turn.c, which tells rotation what the log is needed for.
 *
 * If the process dies right here: the rows are there. The next worker reads in the records which they are, and keeps all of
 * them until it hears again what is released.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "core/base/message.h"
#include "entity/replica_inputs.h"

#include "base/compat.h"

static dlist_head having = DLIST_STATIC_INIT(having);
static bool changed = false;
static int parked = 0; /* shards of which parked rows are kept */

/* Rises in both: a row that is kept for a later turn, too, needs no place of its own for an earlier one. */
void
shard_replica_inputs_add(ShardReplicaShard *shard, int64 turn, int64 seq)
{
#ifdef SHARD_MUTANT_INPUTS_NOT_KEPT
	return;
#endif
	while (shard->n_inputs > 0 && shard->inputs[shard->n_inputs - 1].seq >= seq)
		shard->n_inputs--;
	if (shard->n_inputs == shard->inputs_space)
	{
		int space = Max(16, 2 * shard->inputs_space);

		shard->inputs =
			shard->inputs == NULL
				? MemoryContextAllocHuge(TopMemoryContext, space * sizeof(ShardReplicaInput))
				: repalloc_huge(shard->inputs, space * sizeof(ShardReplicaInput));
		shard->inputs_space = space;
	}
	shard->inputs[shard->n_inputs++] = (ShardReplicaInput){turn, seq};
	if (!shard->has_inputs)
		dlist_push_tail(&having, &shard->inputs_node);
	shard->has_inputs = true;
}

void
shard_replica_inputs_parked(ShardReplicaShard *shard, int64 turn)
{
	parked += shard->parked_from == 0 ? 1 : 0;
	shard->parked_from = shard->parked_from == 0 ? turn : Min(shard->parked_from, turn);
	shard->parked_to = Max(shard->parked_to, turn);
}

bool
shard_replica_inputs_are_parked(void)
{
	return parked > 0;
}

void
shard_replica_inputs_gone(ShardReplicaShard *shard, int64 turn)
{
	if (shard->parked_from == 0)
		return;
	if (turn < shard->parked_to)
	{
		shard->parked_from = Max(shard->parked_from, turn + 1);
		return;
	}
	shard->parked_from = shard->parked_to = 0;
	parked--;
}

/* Forgets the first ones. */
static void
forget(ShardReplicaShard *shard, int count)
{
	if (count == 0)
		return;
	changed = true;
	shard->n_inputs -= count;
	memmove(shard->inputs, shard->inputs + count, shard->n_inputs * sizeof(ShardReplicaInput));
	if (shard->n_inputs > 0)
		return;
	dlist_delete(&shard->inputs_node);
	shard->has_inputs = false;
	pfree(shard->inputs);
	shard->inputs = NULL;
	shard->inputs_space = 0;
}

void
shard_replica_inputs_released(ShardReplicaShard *shard)
{
	int count = 0;

	while (count < shard->n_inputs && shard->inputs[count].turn <= shard->home.released)
		count++;
	forget(shard, count);
}

void
shard_replica_inputs_drop(ShardReplicaShard *shard)
{
	forget(shard, shard->n_inputs);
	shard_replica_inputs_gone(shard, PG_INT64_MAX);
}

const int64 *
shard_replica_inputs_needed(void)
{
	static int64 needed[SHARD_LANES];
	dlist_iter iter;

	changed = false;
	if (likely(dlist_is_empty(&having)))
		return NULL;
	for (int lane = 0; lane < SHARD_LANES; lane++)
		needed[lane] = PG_INT64_MAX;
	dlist_foreach (iter, &having)
	{
		const ShardReplicaShard *shard = dlist_container(ShardReplicaShard, inputs_node, iter.cur);
		int lane = shard_message_lane(shard->key.type_id, shard->key.shard);

		needed[lane] = Min(needed[lane], shard->inputs[0].seq);
	}
	return needed;
}

bool
shard_replica_inputs_changed(void)
{
	return changed;
}
