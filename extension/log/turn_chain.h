/*
 * log/turn_chain.h
 *		In a region worker: where the history of each shard with replicas stands, and where its records are in the log (Q5, Q7).
 *
 * Found again at the worker's start, from the log and table shard.turn_kept; then the worker adds each record that it has
 * committed. What backends append for other homes (link/receive_record.c) is not added: of a shard whose home is
 * elsewhere, a chain is what was there at the start.
 */
#pragma once

#include "log/turn_log.h"

typedef struct ShardTurnChain
{
	int32 type_id; /* key: this and shard */
	int32 shard;
	ShardTurnPoint end; /* newest record; all 0: there is none */
	int64 oseq;			/* of the newest output up to the end */
	int64 kept;			/* all records from this turn on are there; end.turn + 1: none is */
	int space;
	int64 *
		low; /* for each of these: no row of the log below that seq has it; 0: table shard.turn_kept may */

	/* of these, the oldest that could not be read at the start; 0: none. And where a copy stands that has nothing from there on. */
	int64 damaged;
	ShardTurnPoint sound;
	int64 sound_oseq;
} ShardTurnChain;

/*
 * At start, in the load transaction: register before shard_cursor_revisit(), and afterwards, with the segments still
 * locked, loaded reads the table, for these lanes.
 */
extern void shard_turn_chain_register(void);
extern void shard_turn_chain_loaded(ShardLanes lanes);

/*
 * At start, when the sets are known: of a shard whose home is here, in that epoch. If what could not be read may have been its
 * newest record, it is: so no number is given twice. Its sum is one that no copy has, and who needs it does not get it (Q5).
 */
extern void shard_turn_chain_settle(int32 type_id, int32 shard, int32 epoch, int32 lost);

/*
 * The chain of a shard. lost: the newest epoch that began without the state of the one before. NULL: there is no record of that
 * epoch or a newer one, so the shard's history begins with the next one.
 */
extern ShardTurnChain *shard_turn_chain_get(int32 type_id, int32 shard, int32 lost);

/*
 * After the commit: this record is the newest one of its shard, in a row of the log that is not below that seq
 * (shard_log_last_seq() + 1, before it was flushed).
 */
extern void shard_turn_chain_add(const ShardTurnRecord *record, int64 low);

/* The shard's type is gone: nothing of its history is known any more. */
extern void shard_turn_chain_drop(int32 type_id, int32 shard);

/* Records of turns below are needed no more; the newest one stays. */
extern void shard_turn_chain_forget(ShardTurnChain *chain, int64 kept);
