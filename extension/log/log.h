/*
 * log/log.h
 *		The append-only segment log: rows in, rows out (doc/protocol.md D1-D4).
 */
#pragma once

#include "access/htup_details.h"
#include "access/xact.h"
#include "storage/block.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

#include "core/flow/mark.h"
#include "core/base/message.h"
#include "shard.h"
#include "shared/shmem.h"

/* ---- log.c: The append-only segment log: rows in, rows out (doc/protocol.md D1-D4) ---- */

/* flags of a row */
#define SHARD_ROW_COMPRESSED 0x0001 /* payload (all chunks together) is pglz */

/* Columns of a segment, as in install/10-tables.sql. */
enum
{
	SHARD_LOG_SEQ = 1,
	SHARD_LOG_SENDER,
	SHARD_LOG_TYPE,
	SHARD_LOG_SHARD,
	SHARD_LOG_KIND,
	SHARD_LOG_FLAGS,
	SHARD_LOG_CHUNK,
	SHARD_LOG_CHUNKS,
	SHARD_LOG_ENTITY,
	SHARD_LOG_PAYLOAD,
	SHARD_LOG_EPOCH,
	SHARD_LOG_STAMP,
	SHARD_LOG_SRC_TYPE,
	SHARD_LOG_SRC_ENTITY,
	SHARD_LOG_MID_NODE,
	SHARD_LOG_MID_SEQ,
	SHARD_LOG_COLUMNS = SHARD_LOG_MID_SEQ
};

/* The fixed front of a row, which lies at t_hoff of its tuple. */
typedef struct ShardRowFixed
{
	int64 seq;
	uint64 sender;
	int32 type_id;
	int32 shard;
	int16 kind;
	int16 flags;
	int16 chunk;
	int16 chunks;
} ShardRowFixed;

/* Bytes of column stamp: seq, a, b, kind, in this machine's order. */
#define SHARD_LOG_STAMP_BYTES 20

/* A message as it is appended, and as the cursor hands it out. */
typedef struct ShardRow
{
	int64 seq;	   /* set by the log */
	uint64 sender; /* set by the log */
	int32 type_id;
	int32 shard;
	ShardKind kind;
	const char *entity;
	int entity_len;
	const char *payload; /* without varlena header */
	int payload_len;
	int32 epoch;	  /* home epoch tag; -1: not yet routed */
	ShardStamp stamp; /* kind 0: none */
	int32 src_type;	  /* 0: a client sent */
	const char *src_entity;
	int src_entity_len;
	int32 mid_node; /* 0: this node, at seq */
	int64 mid_seq;
} ShardRow;

/* Payload of a row of kind LETTERS_GONE, in this machine's order. */
typedef struct ShardLetterGone
{
	int64 number; /* its name in the shard */
	int64 lost;	  /* the newest epoch that had begun without the shard's state when it was named */
} ShardLetterGone;

/* The stamp as column stamp has it, and back. */
extern void shard_log_put_stamp(char bytes[SHARD_LOG_STAMP_BYTES], ShardStamp stamp);
extern ShardStamp shard_log_get_stamp(const char bytes[SHARD_LOG_STAMP_BYTES]);

/*
 * Appends a row for the current (sub)transaction. It is formed and kept in this
 * process until there are enough for a batch, or the transaction ends, or
 * shard_log_flush() is called; its seq is drawn then, in order of the calls.
 * Needs the extension lock. row's memory may go at once. Errors: payload that
 * is too large for the log (54000).
 */
extern void shard_log_append(const ShardRow *row);

/*
 * Writes what is kept; all of it must belong to the current level. Returns the
 * seq of the last row, 0 if there was none.
 */
extern int64 shard_log_flush(void);

/* Whether rows are kept in the process; and their size in bytes. */
extern bool shard_log_is_pending(void);
extern Size shard_log_pending_bytes(void);

/* Visits each row that is kept, without its seq. */
extern void shard_log_each_pending(void (*visit)(const ShardRowFixed *row, void *arg), void *arg);

/* Drops what is kept: the transaction aborts. */
extern void shard_log_discard(void);

/* The same for a subtransaction; and its rows become its parent's. */
extern void shard_log_discard_level(SubTransactionId level);
extern void shard_log_join_level(SubTransactionId level, SubTransactionId parent);

/*
 * The log's shared state of this database, rebuilt from the segments after a
 * server start. Needs a transaction.
 */
extern ShardLog *shard_log_attach(void);

/* Highest seq ever appended; 0 if none. Takes no lock. */
extern int64 shard_log_last_seq(ShardDatabase *db);

/* Lowest and highest seq on a page of a segment; false if it has no row. */
extern bool shard_log_page_seqs(Relation rel, BlockNumber block, int64 *first, int64 *last);

/* The lane of a row: rows of the log itself name it. */
static inline int
shard_log_lane(const ShardRowFixed *row)
{
	return row->type_id == 0 ? row->shard : shard_message_lane(row->type_id, row->shard);
}

/* The fixed columns of the row at tuple. */
static inline const ShardRowFixed *
shard_log_fixed(HeapTupleHeader tuple)
{
	return (const ShardRowFixed *) ((const char *) tuple + tuple->t_hoff);
}

/* ---- log_waiting.c: How many messages of a type are in the log that no worker has read yet ---- */

typedef struct ShardLogWaiting
{
	uint64 committed;
	uint64 own;	 /* of this transaction, also messages that it has not written yet */
	uint64 open; /* of others that have not ended, prepared ones too: what they wrote */
} ShardLogWaiting;

/*
 * Counts the messages that are still to be handled by the positions that the snapshot sees; rows below are not read.
 * Messages committed since count, too; with commands also what starts and passivates entities and cancels timers. Does
 * not wait for locks.
 */
extern ShardLogWaiting shard_log_waiting(int32 type_id, bool commands, Snapshot snapshot);
