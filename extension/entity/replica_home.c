/*
 * entity/replica_home.c
 *		Shards with replicas that are active at this worker: up to which turn they are released, and who waits for that
 *		(Q4, Q11, Q12, Q37).
 *
 * Comes from: record_write.c and routing, after commits; region.c, between turns; link, with answers of copies. Goes to:
 * whoever waits.
 *
 * If the process dies right here: nothing that waited was shown. The next worker begins with what is durable, asks the
 * copies what they have, and shows what it can: outputs and marks; asks end as those of any worker that has died.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "entity/internal.h"
#include "entity/outputs.h"
#include "entity/replica_home.h"
#include "entity/replica_inputs.h"
#include "log/turn_chain.h"
#include "shared/copy_set.h"
#include "shared/gate.h"

#include "base/compat.h"

/* How often the gate is looked at while a standby is waited for. */
#define GATE_MS 5

/* The gate may say that a commit is flushed without anybody's doing, when the server does that by itself. */
#define FLUSHED_MS 100

int shard_replica_shards = 0;

static HTAB *table = NULL;
static dlist_head ungated = DLIST_STATIC_INIT(ungated);

static HTAB *
make_table(void)
{
	HASHCTL info = {.keysize = sizeof(ShardShardKey), .entrysize = sizeof(ShardReplicaShard)};

	info.hcxt = TopMemoryContext;
	return hash_create("shards with replicas", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

ShardReplicaShard *
shard_replica_shard_find(int32 type_id, int32 shard)
{
	ShardShardKey key = {type_id, shard};
	ShardReplicaShard *found =
		shard_replica_any() ? hash_search(table, &key, HASH_FIND, NULL) : NULL;

	return found != NULL && found->begun ? found : NULL;
}

void
shard_replica_shard_each(ShardReplicaVisit visit, void *arg)
{
	HASH_SEQ_STATUS all;
	ShardReplicaShard *shard;

	if (!shard_replica_any())
		return;
	hash_seq_init(&all, table);
	while ((shard = hash_seq_search(&all)) != NULL)
		if (shard->begun)
			visit(shard, arg);
}

void
shard_replica_shard_look(ShardReplicaHome *home, int32 type_id, int32 shard, int32 epoch,
						 int32 lost)
{
	const ShardTurnChain *chain = shard_turn_chain_get(type_id, shard, lost);
	ShardTurnPoint nothing = {0};

	/* as X9 has it for nodes: a number of a life whose end is lost is given to nothing else */
	if (chain == NULL)
		shard_replica_begin(home, epoch, &nothing, (int64) lost << 40, 1);
	else
		shard_replica_begin(home, epoch, &chain->end, chain->oseq, chain->kept);
}

int32
shard_replica_shard_stands(ShardReplicaHome *home, int32 type_id, int32 shard)
{
	const ShardReplicaShard *known = shard_replica_shard_find(type_id, shard);
	int32 epoch;
	int32 lost;

	if (!shard_presence->home_of(type_id, shard, &epoch, &lost))
		elog(ERROR, "shard %d of entity type %d has changed, and is not active here", shard,
			 type_id);
	if (known != NULL && known->home.epoch == epoch)
		*home = known->home;
	else
		shard_replica_shard_look(home, type_id, shard, epoch, lost);
	return lost;
}

/* Of those that wait, all up to a turn hear it. */
static void
end_waits(ShardReplicaShard *shard, int64 turn, bool released)
{
	while (!dlist_is_empty(&shard->waits))
	{
		ShardReplicaWait *wait = dlist_head_element(ShardReplicaWait, node, &shard->waits);

		if (wait->turn > turn)
			break;
		dlist_delete(&wait->node);
		shard_replica_shard_let_go(shard, wait->bytes);
		wait->end(wait, released);
	}
}

/* Nothing is left of what it was. */
static void
clear(ShardReplicaShard *shard)
{
	end_waits(shard, PG_INT64_MAX, false);
	shard_outputs_drop(shard);
	if (shard->ungated)
		dlist_delete(&shard->ungated_node);
	shard->ungated = false;
	shard->waiting = shard->later = shard->noted = 0;
	shard->columns = 0;
	shard->unread = 0;
	shard->paused = 0;
	shard->unplaced = false;
}

/* Turns up to there wait for the gate, by a commit that ends at lsn. */
static void
expect(ShardReplicaShard *shard, int64 turn, XLogRecPtr lsn)
{
	if (turn == 0)
		return;
	if (!shard->ungated)
	{
		dlist_push_tail(&ungated, &shard->ungated_node);
		shard->ungated = true;
	}
	if (shard->waiting == 0)
	{
		shard->waiting = turn;
		shard->waiting_lsn = lsn;
	}
	else
	{
		shard->later = turn;
		shard->later_lsn = lsn;
	}
}

ShardReplicaShard *
shard_replica_shard_begin(int32 type_id, int32 shard, int32 epoch, int32 lost)
{
	ShardShardKey key = {type_id, shard};
	ShardReplicaShard *entry;
	bool found;

	if (table == NULL)
		table = make_table();
	entry = hash_search(table, &key, HASH_ENTER, &found);
	if (!found)
	{
		memset((char *) entry + sizeof(key), 0, sizeof(*entry) - sizeof(key));
		dlist_init(&entry->waits);
		dlist_init(&entry->outputs);
		shard_replica_shards++;
	}
	if (entry->begun && entry->home.epoch == epoch)
		return entry;
	clear(entry);
	if (entry->lost != lost)
		shard_replica_inputs_drop(entry);
	shard_replica_shard_look(&entry->home, type_id, shard, epoch, lost);
	entry->lost = lost;
	entry->done = entry->home.oseq;
	entry->begun = true;
	expect(entry, entry->home.end.turn, shard_gate_newest());
	return entry;
}

void
shard_replica_shard_require(ShardReplicaShard *shard, int32 self, const ShardSet *set)
{
	if (shard_replica_require(&shard->home, self, set->n, set->nodes, set->n_nodes))
		shard_replica_shard_follow(shard);
}

void
shard_replica_shard_end(ShardReplicaShard *shard)
{
	if (shard->begun)
		clear(shard);
	shard_replica_inputs_drop(shard);
	shard->begun = false;
}

void
shard_replica_shard_drop(int32 type_id, int32 shard)
{
	ShardShardKey key = {type_id, shard};
	ShardReplicaShard *entry =
		shard_replica_any() ? hash_search(table, &key, HASH_FIND, NULL) : NULL;

	if (entry == NULL)
		return;
	shard_replica_shard_end(entry);
	(void) hash_search(table, &key, HASH_REMOVE, NULL);
	shard_replica_shards--;
}

void
shard_replica_shard_committed(ShardReplicaShard *shard, const ShardTurnRecord *record,
							  XLogRecPtr lsn)
{
	shard_replica_committed(&shard->home, record);
	expect(shard, record->turn, lsn);
}

void
shard_replica_shard_forget(ShardReplicaShard *shard)
{
	ShardReplicaHome *home = &shard->home;
	int64 kept = shard_replica_may_forget(home, shard_outputs_undone(shard));
	ShardCopySetKey key = {MyDatabaseId, shard->key.type_id, shard->key.shard};
	ShardTurnChain *chain;

	if (kept <= home->kept)
		return;
	shard_replica_forgotten(home, kept);
	chain = shard_turn_chain_get(key.type_id, key.shard, shard->lost);
	if (chain == NULL)
		return;

	/* the newest one says where the shard stands */
	kept = Min(kept, home->end.turn);
	shard_turn_chain_forget(chain, kept);
	shard_copy_end_keep(&key, kept);
}

void
shard_replica_shard_follow(ShardReplicaShard *shard)
{
	end_waits(shard, shard->home.released, true);
	shard_outputs_released(shard);
	shard_replica_inputs_released(shard);
	shard_replica_shard_forget(shard);
}

bool
shard_replica_shard_has_to_wait(const ShardReplicaShard *shard)
{
#ifdef SHARD_MUTANT_SHOWN_UNRELEASED
	return false;
#endif
	return !shard_replica_is_released(&shard->home, shard->home.end.turn);
}

void
shard_replica_shard_wait(ShardReplicaShard *shard, ShardReplicaWait *wait)
{
	wait->turn = shard->home.end.turn;
	dlist_push_tail(&shard->waits, &wait->node);
	shard_replica_shard_hold(shard, wait->bytes);
}

void
shard_replica_shard_wait_on(ShardReplicaShard *shard, ShardReplicaWait *wait)
{
	wait->turn = shard->home.end.turn;
	dlist_delete(&wait->node);
	dlist_push_tail(&shard->waits, &wait->node);
}

bool
shard_replica_shard_rests(int32 type_id, int32 shard)
{
	const ShardReplicaShard *found = shard_replica_shard_find(type_id, shard);

	return found != NULL && shard_replica_shard_holds_much(found);
}

/* Turns that the gate has let pass move up. Returns whether any are released by that. */
static bool
move_up(ShardReplicaShard *shard)
{
	bool risen = false;

	while (shard->waiting > 0 && shard_gate_released(shard->waiting_lsn))
	{
		risen |= shard_replica_passed(&shard->home, shard->waiting);
		shard->waiting = shard->later;
		shard->waiting_lsn = shard->later_lsn;
		shard->later = 0;
	}
	if (shard->waiting == 0)
	{
		dlist_delete(&shard->ungated_node);
		shard->ungated = false;
	}
	if (risen)
		shard_replica_shard_follow(shard);
	return risen;
}

/* Whether somebody wants to see what the shard has done. */
static bool
is_wanted(const ShardReplicaShard *shard)
{
	return !dlist_is_empty(unconstify(dlist_head *, &shard->waits)) ||
		   !dlist_is_empty(unconstify(dlist_head *, &shard->outputs));
}

/* Returns up to where WAL is to be flushed; invalid: it is flushed, or nobody waits for it. *released: set if any turns are. */
static XLogRecPtr
pass_all(bool *released)
{
	XLogRecPtr wanted = InvalidXLogRecPtr;
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &ungated)
	{
		ShardReplicaShard *shard = dlist_container(ShardReplicaShard, ungated_node, iter.cur);

		*released |= move_up(shard);
		if (shard->ungated && is_wanted(shard))
			wanted = Max(wanted, shard->later > 0 ? shard->later_lsn : shard->waiting_lsn);
	}
	return wanted;
}

bool
shard_replica_shards_pass(void)
{
	XLogRecPtr wanted;
	bool released = false;

	if (likely(dlist_is_empty(&ungated)))
		return false;
	wanted = pass_all(&released);
	if (wanted <= GetFlushRecPtr(NULL))
		return released;
	XLogFlush(wanted);
	(void) pass_all(&released);
	return released;
}

long
shard_replica_shards_due(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &ungated)
	{
		if (is_wanted(dlist_container(ShardReplicaShard, ungated_node, iter.cur)))
			return GATE_MS;
	}
	return dlist_is_empty(&ungated) ? -1 : FLUSHED_MS;
}

static void
note(ShardReplicaShard *shard, void *arg)
{
	shard->noted = shard->home.end.turn;
}

void
shard_replica_shards_note(void)
{
	shard_replica_shard_each(note, NULL);
}

static void
has_shown(ShardReplicaShard *shard, void *arg)
{
	bool *all = arg;

#ifdef SHARD_MUTANT_DRAIN_WAITS_FOR_NEWER
	shard->noted = shard->home.end.turn;
#endif
	*all &= shard_replica_is_released(&shard->home, shard->noted) &&
			shard_outputs_undone(shard) > shard->noted;
}

bool
shard_replica_shards_have_shown(void)
{
	bool all = true;

	shard_replica_shard_each(has_shown, &all);
	return all;
}
