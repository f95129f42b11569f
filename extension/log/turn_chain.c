/*
 * log/turn_chain.c
 *		In a region worker: where the history of each shard with replicas stands, and where its records are in the log (Q5, Q7).
 *
 * Memory alone. If the process dies right here, the next worker reads the log and the table.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "core/base/message.h"
#include "log/cursor.h"
#include "log/turn_chain.h"
#include "registry/statement.h"

#include "base/compat.h"

static ShardStatement select_shards = {"SELECT DISTINCT type_id, shard FROM shard.turn_kept",
									   0,
									   {0}};

/* NULL: there is no record of any shard. */
static HTAB *chains = NULL;

/* At the start: of each lane the newest row with records of which it is not to be seen whose they were; 0: none. */
static int64 doubts[SHARD_LANES];

static ShardTurnChain *
find(int32 type_id, int32 shard, bool make)
{
	int32 key[2] = {type_id, shard};
	ShardTurnChain *chain;
	bool found;

	if (chains == NULL)
	{
		HASHCTL info = {.keysize = sizeof(key), .entrysize = sizeof(ShardTurnChain)};

		if (!make)
			return NULL;
		info.hcxt = TopMemoryContext;
		chains = hash_create("shard turn chains", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	chain = hash_search(chains, key, make ? HASH_ENTER : HASH_FIND, &found);
	if (chain != NULL && !found)
	{
		memset((char *) chain + sizeof(key), 0, sizeof(*chain) - sizeof(key));
		chain->kept = 1;
	}
	return chain;
}

/* Appends a record to a chain; of those that it takes the place of, and of those before a gap, nothing is left. */
static void
append(ShardTurnChain *chain, const ShardTurnRecord *record, int64 low)
{
	int64 count;

	if (record->turn > chain->end.turn + 1 || record->turn < chain->kept)
		chain->kept = record->turn;
	if (chain->damaged >= record->turn || chain->damaged < chain->kept)
		chain->damaged = 0;
	count = record->turn - chain->kept;
	if (count >= chain->space)
	{
		int space = Max(16, 2 * chain->space);

		chain->low = chain->low == NULL
						 ? MemoryContextAllocHuge(TopMemoryContext, space * sizeof(int64))
						 : repalloc_huge(chain->low, space * sizeof(int64));
		chain->space = space;
	}
	chain->low[count] = low;
	chain->end = shard_turn_record_point(record);
	if (record->first_oseq > 0)
		chain->oseq = record->first_oseq - 1 + record->n_outputs;
}

/* Appends one that cannot be read, as it, or the table, says. */
static void
append_damaged(ShardTurnChain *chain, const ShardTurnRecord *record, int64 low)
{
	ShardTurnPoint end = chain->end;
	int64 oseq = chain->oseq;

	append(chain, record, low);
	if (chain->damaged != 0)
		return;
	chain->damaged = record->turn;
	chain->sound = end.turn == record->turn - 1 ? end : shard_turn_record_before(record);
	chain->sound_oseq = end.turn == record->turn - 1 ? oseq : Max(record->first_oseq - 1, 0);
}

void
shard_turn_chain_add(const ShardTurnRecord *record, int64 low)
{
	append(find(record->type_id, record->shard, true), record, low);
}

ShardTurnChain *
shard_turn_chain_get(int32 type_id, int32 shard, int32 lost)
{
	ShardTurnChain *chain = find(type_id, shard, false);

	return chain != NULL && chain->end.turn > 0 && chain->end.epoch >= lost ? chain : NULL;
}

void
shard_turn_chain_drop(int32 type_id, int32 shard)
{
	ShardTurnChain *chain = find(type_id, shard, false);

	if (chain == NULL)
		return;
	if (chain->low != NULL)
		pfree(chain->low);
	(void) hash_search(chains, chain, HASH_REMOVE, NULL);
}

void
shard_turn_chain_forget(ShardTurnChain *chain, int64 kept)
{
	kept = Min(kept, chain->end.turn);
	if (kept <= chain->kept)
		return;
	memmove(chain->low, chain->low + (kept - chain->kept),
			(chain->end.turn - kept + 1) * sizeof(int64));
	chain->kept = kept;
	if (chain->damaged < kept)
		chain->damaged = 0;
}

/* ---- start ---------------------------------------------------------------------------------------- */

static bool
add_logged(const ShardTurnRecord *record, int64 seq, void *arg)
{
	shard_turn_chain_add(record, seq);
	return true;
}

/* Whether what a record that cannot be read says of itself is right, as far as the history before it says. */
static bool
fits(const ShardTurnChain *chain, const ShardTurnRecord *record)
{
	ShardTurnPoint before = shard_turn_record_before(record);

	if (record->type_id == 0)
		return false;
	if (chain == NULL || chain->end.turn == 0)
		return true;
	if (record->turn == chain->end.turn + 1)
		return shard_turn_point_equal(&before, &chain->end);
	return record->turn > chain->end.turn && record->epoch >= chain->end.epoch;
}

static bool
add_damaged(const ShardTurnRecord *record, int64 seq, void *arg)
{
	if (fits(find(record->type_id, record->shard, false), record))
		append_damaged(find(record->type_id, record->shard, true), record, seq);
	else
	{
		int lane = record->type_id == 0 ? record->shard
										: shard_message_lane(record->type_id, record->shard);

		doubts[lane] = seq;
	}
	return true;
}

static void
take_row(const ShardRow *row)
{
	(void) shard_turn_log_row(row, add_logged, add_damaged, NULL);
}

void
shard_turn_chain_register(void)
{
	shard_cursor_register(SHARD_KIND_TURN, take_row);
}

static bool
add_kept(const ShardTurnRecord *record, int64 seq, void *arg)
{
	append(arg, record, 0);
	return true;
}

static bool
add_kept_damaged(const ShardTurnRecord *record, int64 seq, void *arg)
{
	append_damaged(arg, record, 0);
	return true;
}

static void
take_damage(ShardTurnChain *chain, const ShardTurnChain *front)
{
	chain->damaged = front->damaged;
	chain->sound = front->sound;
	chain->sound_oseq = front->sound_oseq;
}

/* What the table has of a shard goes before what the log has, unless something lacks between the two. */
static void
load_kept(int32 type_id, int32 shard)
{
	ShardTurnChain *chain = find(type_id, shard, true);
	ShardTurnChain front = {.kept = 1};
	int64 count;

	(void) shard_turn_log_read_kept(type_id, shard, 0,
									chain->end.turn > 0 ? chain->kept - 1 : PG_INT64_MAX, add_kept,
									add_kept_damaged, &front);
	if (front.low == NULL)
		return;
	if (chain->end.turn == 0)
	{
		chain->end = front.end;
		chain->oseq = front.oseq;
		chain->kept = front.kept;
		chain->space = front.space;
		chain->low = front.low;
		take_damage(chain, &front);
		return;
	}
	if (front.end.turn + 1 == chain->kept)
	{
		int64 before = chain->kept - front.kept;

		count = chain->end.turn - chain->kept + 1;
		chain->space = (int) (before + count);
		chain->low = repalloc_huge(chain->low, chain->space * sizeof(int64));
		memmove(chain->low + before, chain->low, count * sizeof(int64));
		memcpy(chain->low, front.low, before * sizeof(int64));
		chain->kept = front.kept;
		if (front.damaged != 0)
			take_damage(chain, &front);
	}
	pfree(front.low);
}

void
shard_turn_chain_loaded(ShardLanes lanes)
{
	ShardArguments arguments = {0};
	int count;
	int32 *shards;

	SPI_connect();
	shard_statement_run(&select_shards, &arguments, SPI_OK_SELECT);
	count = (int) SPI_processed;
	shards = SPI_palloc(2 * sizeof(int32) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		shards[2 * i] = shard_statement_int4(i, 1);
		shards[2 * i + 1] = shard_statement_int4(i, 2);
	}
	SPI_finish();
	for (int i = 0; i < count; i++)
		if ((lanes & shard_lane_bit(shard_message_lane(shards[2 * i], shards[2 * i + 1]))) != 0)
			load_kept(shards[2 * i], shards[2 * i + 1]);
	pfree(shards);
}

void
shard_turn_chain_settle(int32 type_id, int32 shard, int32 epoch, int32 lost)
{
	int64 doubt = doubts[shard_message_lane(type_id, shard)];
	const ShardTurnChain *known = shard_turn_chain_get(type_id, shard, lost);
	ShardTurnRecord record = {.type_id = type_id, .shard = shard, .epoch = epoch, .turn = 1};

	if (doubt == 0 || (known != NULL && known->low[known->end.turn - known->kept] > doubt))
		return;
	record.first_oseq = ((int64) lost << 40) + 1;
	if (known != NULL)
	{
		record.turn = known->end.turn + 1;
		record.before_epoch = known->end.epoch;
		record.before_sum = known->end.sum;
		record.first_oseq = known->oseq + 1;
	}
	record.sum = ~record.before_sum;
	append_damaged(find(type_id, shard, true), &record, doubt);
}
