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
	chain->oseq = record->first_oseq - 1 + record->n_outputs;
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
}

/* ---- start ---------------------------------------------------------------------------------------- */

static bool
add_logged(const ShardTurnRecord *record, int64 seq, void *arg)
{
	shard_turn_chain_add(record, seq);
	return true;
}

static void
take_row(const ShardRow *row)
{
	(void) shard_turn_log_row(row, add_logged, NULL);
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

/* What the table has of a shard goes before what the log has, unless something lacks between the two. */
static void
load_kept(int32 type_id, int32 shard)
{
	ShardTurnChain *chain = find(type_id, shard, true);
	ShardTurnChain front = {.kept = 1};
	int64 count;

	(void) shard_turn_log_read_kept(type_id, shard, 0,
									chain->end.turn > 0 ? chain->kept - 1 : PG_INT64_MAX, add_kept,
									&front);
	if (front.low == NULL)
		return;
	if (chain->end.turn == 0)
	{
		chain->end = front.end;
		chain->oseq = front.oseq;
		chain->kept = front.kept;
		chain->space = front.space;
		chain->low = front.low;
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
