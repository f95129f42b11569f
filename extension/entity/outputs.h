/*
 * entity/outputs.h
 *		What entities tell: to the log at once, or, if the shard has replicas, once the turn is released (Q29).
 */
#pragma once

#include "core/flow/record.h"
#include "log/log.h"

struct ShardReplicaShard;

/*
 * Code of an entity, or of what belongs to it, tells that, in whichever process: the row is appended to the log. Of a shard
 * with replicas it becomes an output of the turn's record instead, and is appended when that is released: then false, and
 * nobody is to be woken for it. Limits have been looked at.
 */
extern bool shard_outputs_tell(const ShardRow *row);

typedef enum ShardOutputPlace
{
	SHARD_OUTPUT_PLACED,
	SHARD_OUTPUT_PLACED_BY_CODE, /* by an extractor, which may take long */
	SHARD_OUTPUT_BUSY,			 /* the receiver's type is being resharded at this moment */
	SHARD_OUTPUT_UNPLACED		 /* as the server's log says */
} ShardOutputPlace;

/*
 * output_address.c: an output is about to be appended, to the log of this turn: type and shard are those of its receiver today, of
 * which the session takes note. A type that is gone for good keeps its number. What has no place now stays.
 */
extern ShardOutputPlace shard_output_address(ShardRow *row);

/*
 * After the commit of a turn, or at the start, of each record found: its outputs wait for the release. items: of section
 * OUTPUTS; copied. The second function: outputs up to that number were appended by a turn that has committed.
 */
extern void shard_outputs_add(struct ShardReplicaShard *shard, const ShardTurnRecord *record,
							  ShardReader items);
extern void shard_outputs_done(struct ShardReplicaShard *shard, int64 oseq);

/*
 * At the start, of a record that cannot be read: what it told cannot be told, nor what was told behind it. If it said that outputs
 * before it were appended, they would be appended again; a record behind it that says so of its own ends that doubt. When all were
 * shown: what is in doubt still stays (ShardReplicaShard.unread).
 */
extern void
shard_outputs_add_damaged(struct ShardReplicaShard *shard, const ShardTurnRecord *record);
extern void shard_outputs_loaded(struct ShardReplicaShard *shard);

/* Released has risen: a turn is wanted for outputs up to there. */
extern void shard_outputs_released(struct ShardReplicaShard *shard);

/* Whether one is; and when to come again for outputs that had no place, in ms; -1: there are none. */
extern bool shard_outputs_are_due(void);
extern long shard_outputs_pause(void);

/* The home has ended: what was not released is not told. */
extern void shard_outputs_drop(struct ShardReplicaShard *shard);

/* The oldest turn with outputs that were not appended; PG_INT64_MAX: there is none. */
extern int64 shard_outputs_undone(const struct ShardReplicaShard *shard);

/*
 * In a turn, before its record is written: appends released outputs, in the order of their numbers, as many as the turn may.
 * Returns whether there were any. What has left counts after the commit; after an abort it leaves again.
 */
extern bool shard_outputs_leave(void);
extern void shard_outputs_committed(void);
extern void shard_outputs_aborted(void);
