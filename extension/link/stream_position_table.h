/*
 * link/stream_position_table.h
 *		Positions of streams from peers as they are stored: table shard.position, rows of the log.
 *
 * A position is a row of the log. Before the segment with a stream's newest row is emptied, the
 * position goes to the table, in the same transaction. So the table is never newer than the log, and
 * the newest row of the log counts, if there is one.
 */
#pragma once

#include "log/log.h"
#include "shared/stream_position.h"

/*
 * A region worker at its start, in the load transaction and with a snapshot: begin reads the table; then the worker
 * shows each row of kind POSITION of its lanes; then, when the transaction has seen all of them, the worker says that
 * its lanes are ready. (shard_cursor_register() with shard_stream_position_row.)
 */
extern void shard_stream_position_load(ShardDatabase *db);
extern void shard_stream_position_row(const ShardRow *row);
extern void shard_stream_position_loaded(ShardDatabase *db, ShardLanes lanes);

/*
 * Rotation, within SPI, in the transaction that empties a segment and holds its lock: writes the
 * positions whose newest row is there, or below. After the commit shard_stream_position_saved(), which is
 * about what the last save wrote.
 */
extern void shard_stream_position_save(int64 last_seq);
extern void shard_stream_position_saved(void);

/*
 * Within SPI and as the system: writes a position that the log has already, or gets in this transaction,
 * with what its origin says about the link.
 */
extern void shard_stream_position_store(const ShardPeerPosition *position);

/* The name of a quarantine for people; NULL: there is none. */
extern const char *shard_stream_position_quarantine(int32 state);

/* Says loudly what the origin found out about a stream: the receiver takes nothing on it until an operator decides. */
extern void
shard_stream_position_tell_quarantine(ShardDatabase *db, const ShardPeerPosition *position);
