/*
 * log/cursor.h
 *		A worker's way through the log: which rows are next, which are handled.
 *
 * One turn: shard_cursor_open(), push a snapshot taken after it, then
 * shard_cursor_peek() / _accept() as long as there is time, then
 * shard_cursor_save() inside the transaction, and _committed() or _aborted()
 * after it.
 */
#pragma once

#include "utils/snapshot.h"

#include "log/log.h"

typedef struct ShardCursor ShardCursor;

/* A cursor for these lanes, in TopMemoryContext. */
extern ShardCursor *shard_cursor_create(int worker, ShardLanes lanes);

/*
 * Reads the newest committed positions of the lanes from the log, with the
 * active snapshot. Cost: reading the newest segment, as a rule.
 */
extern void shard_cursor_load(ShardCursor *cursor);

/*
 * For rooms that rebuild what they know from the log when a worker starts. Register before shard_cursor_revisit(),
 * which reads the whole log once, in order of seq, with the active snapshot, and shows each of these rows of the
 * worker's lanes to the function registered for its kind:
 * - of kind PACKET, POSITION and TURN, all;
 * - for entities (shard_kind_is_for_entity) those that came from a stream (they have a tag) and are handled,
 *	 that is, that the position has passed; registered for as TELL.
 * - of kind REPLY, those that the position has passed.
 * row's memory lasts until the visit returns.
 */
typedef void (*ShardCursorVisit)(const ShardRow *row);
extern void shard_cursor_register(ShardKind kind, ShardCursorVisit visit);

/* After shard_cursor_load, with the same snapshot. */
extern void shard_cursor_revisit(ShardCursor *cursor);

/*
 * Makes the position known to rotation and views. To be called once it is known which rows other rooms need.
 */
extern void shard_cursor_publish(ShardCursor *cursor);

/*
 * Other rooms need a lane's log from this seq on (PG_INT64_MAX: they do not), as of the last commit: the log is kept as
 * long as the cursor or one of them needs it. Published at once if it changed.
 */
extern void shard_cursor_keep(ShardCursor *cursor, int lane, int64 seq);

/* Whether the cursor itself has left every row up to a seq behind, as of the last commit. */
extern bool shard_cursor_has_left(const ShardCursor *cursor, int64 seq);

/* In a turn: whether each row up to a seq whose sender has ended was looked at, in this turn or before. */
extern bool shard_cursor_has_met(const ShardCursor *cursor, int64 seq);

/*
 * Notes what can be read in this turn. Call before the turn's snapshot is taken. keep: the files stay the same to the
 * end of the transaction, and no segment is emptied meanwhile; for the start of a worker.
 */
extern void shard_cursor_open(ShardCursor *cursor, bool keep);

/*
 * The next message to handle, not yet passed; false if there is none. Rows of
 * aborted senders and of other workers' lanes are passed silently, those of
 * senders in progress are noted. row's memory lasts until the next peek after
 * an accept.
 */
extern bool shard_cursor_peek(ShardCursor *cursor, Snapshot snapshot, ShardRow *row);

/*
 * Whether the last error was that a file has been replaced or cut since shard_cursor_open: the turn is to be run again.
 */
extern bool shard_cursor_was_overtaken(const ShardCursor *cursor);

/* Passes the message that was peeked. */
extern void shard_cursor_accept(ShardCursor *cursor);

/* Whether the committed position leaves every row up to a seq behind, its own included. */
extern bool shard_cursor_is_past(const ShardCursor *cursor, int64 seq);

/* Whether a cursor row, written now, would bring the committed position nearer to that seq. */
extern bool shard_cursor_would_help(const ShardCursor *cursor, int64 seq);

/* Appends the position to the log. Its seq is that of the last row of the next flush. */
extern void shard_cursor_save(ShardCursor *cursor);

/* Closes what is open, before commit. */
extern void shard_cursor_close(ShardCursor *cursor);

/* After commit. record_seq = 0 if no cursor row was written. */
extern void shard_cursor_committed(ShardCursor *cursor, int64 record_seq);

/* After an abort: back to the last commit. */
extern void shard_cursor_aborted(ShardCursor *cursor);

/*
 * Whether all that is readable up to a seq was handed out, rows of senders that
 * have ended since they were passed included.
 */
extern bool shard_cursor_has_passed(const ShardCursor *cursor, int64 seq);
