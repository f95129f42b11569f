/*
 * log/turn_log.h
 *		Turn records of shards with replicas, as this node has them: rows of kind TURN of the log, and table shard.turn_kept (Q5, Q7).
 *
 * A row of the log has the records of one transaction in one lane, one after the other. A record of a shard takes the
 * place of all of that shard that were stored before it and have its turn, or a later one (Q8). When rotation empties a
 * segment, records that are needed go to the table in the same transaction, in the order of the log, which is that of
 * the segments: so what the log has of a shard is newer than what the table has of it.
 *
 * Needed are all records from a turn on that the shard's entry in shared/copy_set.h says, and in any case the newest one,
 * which says where the shard's history stands (its end, its newest oseq). Records of a history that was given up, of
 * epochs before the one that began without its state, are needed by nobody.
 */
#pragma once

#include "core/flow/record.h"
#include "log/log.h"

/* Appends a row of the lane with these records, in the transaction and at the place where it is called (D2). */
extern void shard_turn_log_append(int lane, const char *records, int length);

/*
 * A record; what it points to lives until the visit ends, which runs in the memory context of who reads. seq: of its row;
 * 0: it is in the table. False: no more of them are wanted.
 */
typedef bool (*ShardTurnVisit)(const ShardTurnRecord *record, int64 seq, void *arg);

/*
 * In all that follows: what cannot be read back goes to damaged in visit's place, as a record without sections: as its head says (shard_turn_record_head),
 * or, in the table, as the columns say. All zero but for the lane's place in shard: it is not to be seen whose it was; then nothing
 * may be left of what stood behind it in that row. The server's log says so once a minute. damaged NULL: error XX001.
 */

/* The records of a row of kind TURN. False: a visit wanted no more. */
extern bool
shard_turn_log_row(const ShardRow *row, ShardTurnVisit visit, ShardTurnVisit damaged, void *arg);

/* Those of the log in rows of these lanes from a seq on (a hint), with a snapshot of now, in the order of the log. */
extern void shard_turn_log_read(ShardLanes lanes, int64 from, ShardTurnVisit visit,
								ShardTurnVisit damaged, void *arg);

/* Those of the table for turns of one shard, with a snapshot of now, in their order. False: a visit wanted no more. */
extern bool shard_turn_log_read_kept(int32 type_id, int32 shard, int64 from, int64 to,
									 ShardTurnVisit visit, ShardTurnVisit damaged, void *arg);

/* For readers to whom what cannot be read is not there: for damaged. */
extern bool shard_turn_log_pass(const ShardTurnRecord *record, int64 seq, void *arg);

/*
 * All records of a shard from a turn on, of epochs from lost on: first those of the table, then those of the log from a seq on
 * (a hint), of which each takes the place of those visited before it that have its turn, or a later one. One at a time is in
 * memory. Rotation leaves the log alone meanwhile, so each is visited once.
 */
extern void
shard_turn_log_read_shard(int32 type_id, int32 shard, int32 lost, int64 turn, int64 from,
						  ShardTurnVisit visit, ShardTurnVisit damaged, void *arg);

/*
 * What is in the log stays there, and what is in the table, too, until the hold is ended, or the transaction: the segments are
 * locked, which rotation needs for itself, and does not wait for.
 */
extern void shard_turn_log_hold(bool lock);

/* The point of a turn in a shard's history, which is below its end: by its record, or the one behind it. False: neither is stored any more. */
extern bool shard_turn_log_find(int32 type_id, int32 shard, int64 turn, ShardTurnPoint *point);

/*
 * Rotation, within SPI, in the transaction that empties a segment and holds its lock: what is needed of it, and of those
 * before it, goes to the table, and what the table has that is needed no more goes. Nothing to do without replicas.
 */
extern void shard_turn_log_leave(int64 last_seq);
