/*
 * log/log.c
 *		The append side of the segment log (doc/protocol.md D1-D3).
 *
 * The callers: client backends (shard_tell), the region worker (handlers' tells, cursor rows), triggers on state
 * tables. A row is formed and buffered in the process; shard_log_flush() appends up to BATCH_ROWS of them under one
 * hold of the database's append lock: draw seq, patch it into the ready tuple, insert on the last page, publish.
 *
 * Rules of the locked stretch (each was a lost message once):
 * - everything that can fail or be slow comes before: xid, command id, table,
 *   tuples. No TOAST, no allocation of ours, no invalidation inside.
 * - rows go to the last page of the file, always: no other target is
 *   remembered, so an error between extending the file and publishing leaves
 *   nothing that could be wrong.
 * - rows lie in the order of seq on a page, too: what VACUUM FULL writes to two
 *   pages is read page by page.
 * - a file shorter than published (VACUUM cut an aborted tail) or another file
 *   (TRUNCATE, VACUUM FULL) raises the generation: readers scan it again.
 *
 * If the process dies right here: before the insert nothing happened; after
 * it the rows belong to a transaction that never commits, and readers pass
 * them by visibility. Seqs may repeat after a crash only where no row and no
 * cursor row with a higher one survived (init_from_segments).
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "common/pg_lzcompress.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "storage/lmgr.h"
#include "catalog/pg_class.h"

#include "registry/catalog.h"
#include "log/log.h"
#include "log/log_seq.h"

#include "base/compat.h"

/* One hold of the append lock: this many rows or bytes, or one message that is longer. */
#define BATCH_ROWS 64
#define BATCH_BYTES (4 * BLCKSZ)

/*
 * Payload bytes of one row: with the longest ids it still fits a page. Larger
 * messages are cut. The columns are STORAGE PLAIN and there is no TOAST table,
 * so the toaster changes nothing and opens nothing.
 */
#define CHUNK_BYTES 7168
#define MAX_CHUNKS PG_INT16_MAX

/*
 * Rows of this transaction that are not written yet. A row can be written only
 * by the (sub)transaction that told it, or one that this has become part of, or
 * its fate would be another's. So inside a savepoint the rows from outside wait
 * for its end, and the rows of the savepoint behind them.
 */
typedef struct Pending
{
	MemoryContext context;	 /* of the tuples; reset when there are none */
	TupleDesc desc;			 /* of a segment */
	HeapTuple *tuple;		 /* these two have room for capacity rows */
	SubTransactionId *level; /* that told it; rises */
	int capacity;
	int rows;
	Size bytes;
	TupleTableSlot **slot; /* for one hold */
	int slots;
} Pending;

static Pending pending;

bool
shard_log_page_seqs(Relation rel, BlockNumber block, int64 *first, int64 *last)
{
	Buffer buffer = ReadBuffer(rel, block);
	Page page;

	*first = PG_INT64_MAX;
	*last = 0;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (!PageIsNew(page))
	{
		for (OffsetNumber o = FirstOffsetNumber; o <= PageGetMaxOffsetNumber(page); o++)
		{
			ItemId item = PageGetItemId(page, o);
			int64 seq;

			if (!ItemIdIsNormal(item))
				continue;
			seq = shard_log_fixed((HeapTupleHeader) PageGetItem(page, item))->seq;
			*first = Min(*first, seq);
			*last = Max(*last, seq);
		}
	}
	UnlockReleaseBuffer(buffer);
	return *last > 0;
}

/* Largest seq of a segment, 0 if it is empty: later pages have higher ones. */
static int64
last_seq_of(Relation rel, BlockNumber blocks)
{
	int64 first;
	int64 last;

	while (blocks > 0)
	{
		if (shard_log_page_seqs(rel, --blocks, &first, &last))
			return last;
		CHECK_FOR_INTERRUPTS();
	}
	return 0;
}

/* Smallest seq of a segment, 0 if it is empty. */
static int64
first_seq_of(Relation rel, BlockNumber blocks)
{
	int64 first;
	int64 last;

	for (BlockNumber block = 0; block < blocks; block++)
	{
		if (shard_log_page_seqs(rel, block, &first, &last))
			return first;
		CHECK_FOR_INTERRUPTS();
	}
	return 0;
}

/* Facts of one segment, read from its file. */
static void
read_segment(Oid relid, ShardSegment *segment)
{
	Relation rel = table_open(relid, AccessShareLock);

	segment->relid = relid;
	segment->filenumber = ShardFileNumber(rel);
	segment->blocks = RelationGetNumberOfBlocks(rel);
	segment->first_seq = first_seq_of(rel, segment->blocks);
	segment->last_seq = last_seq_of(rel, segment->blocks);
	table_close(rel, AccessShareLock);
}

/* Orders the non-empty segments by age; the one with the greatest seq is current. */
static void
order_segments(ShardLog *log)
{
	log->live_count = 0;
	for (int i = 0; i < SHARD_SEGMENTS; i++)
	{
		int at = log->live_count;

		if (log->segment[i].first_seq == 0)
			continue;
		while (at > 0 && log->segment[log->live[at - 1]].first_seq > log->segment[i].first_seq)
		{
			log->live[at] = log->live[at - 1];
			at--;
		}
		log->live[at] = i;
		log->live_count++;
	}
	if (log->live_count == 0)
		log->live[log->live_count++] = 0;
	log->current = log->live[log->live_count - 1];
}

/*
 * Fills the shared state from the tables. Every cursor row is a live row, and
 * its seq is above the position it records, so one above the greatest seq of
 * all segments is above everything any cursor has passed.
 */
static void
init_from_segments(ShardDatabase *db, ShardLog *log, const ShardCatalog *catalog)
{
	int64 last = 0;
	uint64 bytes = 0;
	ShardSegment segment[SHARD_SEGMENTS];

	for (int i = 0; i < SHARD_SEGMENTS; i++)
	{
		read_segment(catalog->segment[i], &segment[i]);
		last = Max(last, segment[i].last_seq);
		bytes += (uint64) segment[i].blocks * BLCKSZ;
	}
	LWLockAcquire(db->append_lock, LW_EXCLUSIVE);
	memcpy(log->segment, segment, sizeof(segment));
	order_segments(log);
	log->next_seq = shard_log_first_seq(last);
	log->generation++;
	pg_atomic_fetch_add_u64(&log->switches, 1);
	log->switched_at = GetCurrentTimestamp();
	pg_atomic_write_u64(&log->last_seq, last);
	pg_atomic_write_u64(&log->bytes, bytes);
	log->ready = true;
	LWLockRelease(db->append_lock);
}

/* Whether the shared state describes the segments of this extension. Under the lock. */
static bool
is_ready(const ShardLog *log, const ShardCatalog *catalog)
{
	return log->ready && log->segment[0].relid == catalog->segment[0];
}

ShardLog *
shard_log_attach(void)
{
	const ShardCatalog *catalog = shard_catalog_get();
	ShardDatabase *db = shard_shmem_database_or_make(MyDatabaseId);
	ShardLog *log = &db->log;
	bool ready;

	LWLockAcquire(db->append_lock, LW_SHARED);
	ready = is_ready(log, catalog);
	LWLockRelease(db->append_lock);
	if (ready)
		return log;
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the inbox cannot be read on a standby"), errhint("Look at the primary.")));

	/*
	 * The heavyweight lock serialises the processes that read the tables, so that no table is opened under the LWLock.
	 * Appenders wait here, too, as long as the log is not ready.
	 */
	LockDatabaseObject(RelationRelationId, catalog->node, 0, ShareUpdateExclusiveLock);
	LWLockAcquire(db->append_lock, LW_SHARED);
	ready = is_ready(log, catalog);
	LWLockRelease(db->append_lock);
	if (!ready)
		init_from_segments(db, log, catalog);
	UnlockDatabaseObject(RelationRelationId, catalog->node, 0, ShareUpdateExclusiveLock);
	return log;
}

int64
shard_log_last_seq(ShardDatabase *db)
{
	return (int64) pg_atomic_read_u64(&db->log.last_seq);
}

void
shard_log_put_stamp(char bytes[SHARD_LOG_STAMP_BYTES], ShardStamp stamp)
{
	memcpy(bytes, &stamp.seq, 8);
	memcpy(bytes + 8, &stamp.a, 4);
	memcpy(bytes + 12, &stamp.b, 4);
	memcpy(bytes + 16, &stamp.kind, 4);
}

ShardStamp
shard_log_get_stamp(const char bytes[SHARD_LOG_STAMP_BYTES])
{
	ShardStamp stamp;

	memcpy(&stamp.seq, bytes, 8);
	memcpy(&stamp.a, bytes + 8, 4);
	memcpy(&stamp.b, bytes + 12, 4);
	memcpy(&stamp.kind, bytes + 16, 4);
	return stamp;
}

/* A text at *room, which is moved behind it. */
static Datum
put_text(char **room, const char *bytes, int len)
{
	char *result = *room;

	SET_VARSIZE(result, VARHDRSZ + len);
	memcpy(VARDATA(result), bytes, len);
	*room += MAXALIGN(VARHDRSZ + len);
	return PointerGetDatum(result);
}

/* The bytes that put_text() takes for a text of len bytes. */
#define TEXT_ROOM(len) MAXALIGN(VARHDRSZ + (Size) (len))

/* Builds the tuple of one (chunk) row in the pending context. */
static HeapTuple
form_row(TupleDesc desc, const ShardRow *row, const char *payload, int payload_len, int flags,
		 int chunk, int chunks)
{
	Datum values[SHARD_LOG_COLUMNS] = {0};
	bool nulls[SHARD_LOG_COLUMNS] = {false};
	char stamp[SHARD_LOG_STAMP_BYTES];
	int src_entity_len = row->src_type == 0 ? 0 : row->src_entity_len;
	Size size = TEXT_ROOM(row->entity_len) + TEXT_ROOM(payload_len) + TEXT_ROOM(sizeof(stamp)) +
				TEXT_ROOM(src_entity_len);
	/* the tuple has copies of them; to allocate and free two texts for each message costs more than they do */
	pg_attribute_aligned(MAXIMUM_ALIGNOF) char usual[TEXT_ROOM(CHUNK_BYTES) + BLCKSZ / 8];
	char *room = size <= sizeof(usual) ? usual : palloc(size);

	values[SHARD_LOG_SEQ - 1] = Int64GetDatum(0);
	values[SHARD_LOG_SENDER - 1] = UInt64GetDatum(row->sender);
	values[SHARD_LOG_TYPE - 1] = Int32GetDatum(row->type_id);
	values[SHARD_LOG_SHARD - 1] = Int32GetDatum(row->shard);
	values[SHARD_LOG_KIND - 1] = Int16GetDatum(row->kind);
	values[SHARD_LOG_FLAGS - 1] = Int16GetDatum(flags);
	values[SHARD_LOG_CHUNK - 1] = Int16GetDatum(chunk);
	values[SHARD_LOG_CHUNKS - 1] = Int16GetDatum(chunks);
	values[SHARD_LOG_ENTITY - 1] = put_text(&room, row->entity, row->entity_len);
	values[SHARD_LOG_PAYLOAD - 1] = put_text(&room, payload, payload_len);
	values[SHARD_LOG_EPOCH - 1] = Int32GetDatum(row->epoch);
	nulls[SHARD_LOG_EPOCH - 1] = row->epoch < 0;
	nulls[SHARD_LOG_STAMP - 1] = row->stamp.kind == SHARD_PREFIX_NONE;
	if (row->stamp.kind != SHARD_PREFIX_NONE)
	{
		shard_log_put_stamp(stamp, row->stamp);
		values[SHARD_LOG_STAMP - 1] = put_text(&room, stamp, sizeof(stamp));
	}
	values[SHARD_LOG_SRC_TYPE - 1] = Int32GetDatum(row->src_type);
	nulls[SHARD_LOG_SRC_TYPE - 1] = nulls[SHARD_LOG_SRC_ENTITY - 1] = row->src_type == 0;
	if (row->src_type != 0)
		values[SHARD_LOG_SRC_ENTITY - 1] = put_text(&room, row->src_entity, src_entity_len);
	values[SHARD_LOG_MID_NODE - 1] = Int32GetDatum(row->mid_node);
	values[SHARD_LOG_MID_SEQ - 1] = Int64GetDatum(row->mid_seq);
	nulls[SHARD_LOG_MID_NODE - 1] = nulls[SHARD_LOG_MID_SEQ - 1] = row->mid_node == 0;

	return heap_form_tuple(desc, values, nulls);
}

/* First use in this process. */
static void
init_pending(void)
{
	Relation rel = table_open(shard_catalog_get()->segment[0], AccessShareLock);
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	pending.desc = CreateTupleDescCopy(RelationGetDescr(rel));
	pending.capacity = BATCH_ROWS;
	pending.tuple = palloc(pending.capacity * sizeof(HeapTuple));
	pending.level = palloc(pending.capacity * sizeof(SubTransactionId));
	pending.slot = palloc(BATCH_ROWS * sizeof(TupleTableSlot *));
	pending.context =
		AllocSetContextCreate(TopMemoryContext, "shard log batch", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(old);
	table_close(rel, AccessShareLock);
}

/* Makes slots for one hold of the append lock with this many rows. */
static void
reserve_slots(int rows)
{
	MemoryContext old;

	if (rows <= pending.slots)
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	if (rows > BATCH_ROWS)
		pending.slot = repalloc(pending.slot, rows * sizeof(TupleTableSlot *));
	while (pending.slots < rows)
		pending.slot[pending.slots++] = MakeSingleTupleTableSlot(pending.desc, &TTSOpsHeapTuple);
	MemoryContextSwitchTo(old);
}

/* Adds a row to those that the process keeps. */
static void
add_row(const ShardRow *row, const char *payload, int payload_len, int flags, int chunk, int chunks)
{
	MemoryContext old;
	HeapTuple tuple;

	if (pending.rows == pending.capacity)
	{
		pending.capacity *= 2;
		pending.tuple = repalloc_huge(pending.tuple, pending.capacity * sizeof(HeapTuple));
		pending.level = repalloc_huge(pending.level, pending.capacity * sizeof(SubTransactionId));
	}
	old = MemoryContextSwitchTo(pending.context);
	tuple = form_row(pending.desc, row, payload, payload_len, flags, chunk, chunks);
	MemoryContextSwitchTo(old);
	pending.tuple[pending.rows] = tuple;
	pending.level[pending.rows++] = GetCurrentSubTransactionId();
	pending.bytes += tuple->t_len;
}

/*
 * A message that fits no row: compressed if that helps, cut into rows of one seq. Packets and turn records are never
 * compressed: many messages at a time, they cost a multiple of what the room is worth.
 */
static void
add_chunks(const ShardRow *row)
{
	const char *payload = row->payload;
	int length = row->payload_len;
	int flags = 0;
	int chunks;
	char *packed = NULL;
	int32 packed_len = -1;

	if (row->kind != SHARD_KIND_PACKET && row->kind != SHARD_KIND_TURN)
	{
		packed = palloc(PGLZ_MAX_OUTPUT(length) + sizeof(int32));
		packed_len = pglz_compress(payload, length, packed + sizeof(int32), PGLZ_strategy_default);
	}
	if (packed_len >= 0)
	{
		memcpy(packed, &length, sizeof(int32));
		payload = packed;
		length = packed_len + sizeof(int32);
		flags = SHARD_ROW_COMPRESSED;
	}
	chunks = (length + CHUNK_BYTES - 1) / CHUNK_BYTES;
	if (chunks > MAX_CHUNKS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("message of %d bytes is too large for the inbox", row->payload_len)));
	for (int chunk = 0; chunk < chunks; chunk++)
		add_row(row, payload + (Size) chunk * CHUNK_BYTES,
				Min(CHUNK_BYTES, length - chunk * CHUNK_BYTES), flags, chunk, chunks);
	if (packed != NULL)
		pfree(packed);
}

void
shard_log_append(const ShardRow *row)
{
	ShardRow stamped = *row;

	/* a tag speaks of a stream, and whom to refuse it to is in the stamp */
	ShardAssert((row->epoch < 0) == (row->stamp.kind == SHARD_PREFIX_NONE) ||
				!shard_kind_is_for_entity(row->kind));
	if (pending.context == NULL)
		init_pending();
	stamped.sender = U64FromFullTransactionId(GetTopFullTransactionId());
	if ((pending.rows >= BATCH_ROWS || pending.bytes >= BATCH_BYTES) &&
		pending.level[0] == GetCurrentSubTransactionId())
		shard_log_flush();
	if (row->payload_len > CHUNK_BYTES)
		add_chunks(&stamped);
	else
		add_row(&stamped, row->payload, row->payload_len, 0, 0, 1);
}

bool
shard_log_is_pending(void)
{
	return pending.rows > 0;
}

void
shard_log_each_pending(void (*visit)(const ShardRowFixed *row, void *arg), void *arg)
{
	for (int i = 0; i < pending.rows; i++)
		visit(shard_log_fixed(pending.tuple[i]->t_data), arg);
}

Size
shard_log_pending_bytes(void)
{
	return pending.bytes;
}

void
shard_log_discard(void)
{
	pending.rows = 0;
	pending.bytes = 0;
	if (pending.context != NULL)
		MemoryContextReset(pending.context);

	/* a large message has a slot for each of its rows */
	while (pending.slots > BATCH_ROWS)
		ExecDropSingleTupleTableSlot(pending.slot[--pending.slots]);
}

void
shard_log_discard_level(SubTransactionId level)
{
	while (pending.rows > 0 && pending.level[pending.rows - 1] >= level)
	{
		HeapTuple tuple = pending.tuple[--pending.rows];

		pending.bytes -= tuple->t_len;
		heap_freetuple(tuple);
	}
	if (pending.rows == 0)
		shard_log_discard();
}

void
shard_log_join_level(SubTransactionId level, SubTransactionId parent)
{
	for (int i = pending.rows - 1; i >= 0 && pending.level[i] >= level; i--)
		pending.level[i] = parent;
}

/*
 * Opens the current segment and takes the append lock; both are held on
 * return. The number is read without the lock and looked at again under it,
 * because it may change in between.
 */
static Relation
lock_current(ShardDatabase *db, ShardLog *log)
{
	for (;;)
	{
		const ShardCatalog *catalog = shard_catalog_get();
		int current = *((volatile int *) &log->current);
		Relation rel = table_open(catalog->segment[current], RowExclusiveLock);
		bool ready;

		LWLockAcquire(db->append_lock, LW_EXCLUSIVE);
		ready = is_ready(log, catalog);
		if (ready && log->current == current)
			return rel;
		LWLockRelease(db->append_lock);

		/* the lock on the table stays until the end of the transaction, which is harmless */
		table_close(rel, NoLock);
		if (!ready)
			shard_log_attach();
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Notices, under the lock, that the segment's file is not the one that was
 * published, or shorter: readers' positions in it are void then.
 */
static void
check_file(ShardLog *log, ShardSegment *segment, Relation rel, BlockNumber blocks)
{
	if (segment->filenumber != ShardFileNumber(rel) || blocks < segment->blocks)
	{
		log->generation++;
		segment->filenumber = ShardFileNumber(rel);
	}
}

/* Draws the seqs of rows [from, to), one for the chunks of a message. Under the lock. */
static int64
draw_seqs(ShardLog *log, int from, int to)
{
	int64 seq = log->next_seq - 1;

	for (int i = from; i < to; i++)
	{
		HeapTupleHeader header = pending.tuple[i]->t_data;
		ShardRowFixed *fixed = (ShardRowFixed *) ((char *) header + header->t_hoff);

		if (fixed->chunk == 0)
			seq++;
		fixed->seq = seq;
	}
	return seq;
}

/*
 * On a page, too, rows are to lie in the order of their seqs: VACUUM FULL writes them in that in which it finds them,
 * over the ends of pages, and readers count on the order of pages. So line pointers in front of others that VACUUM has
 * freed are not used again. Until the buffer is released VACUUM frees no more of them.
 */
static Buffer
pin_tail(Relation rel, BlockNumber blocks)
{
	Buffer buffer;

	if (blocks == 0)
		return InvalidBuffer;
	buffer = ReadBuffer(rel, blocks - 1);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	PageClearHasFreeLinePointers(BufferGetPage(buffer));
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return buffer;
}

/* Writes rows [from, to) in one hold of the lock; returns the last seq. */
static int64
write_rows(int from, int to)
{
	ShardDatabase *db = shard_shmem_database_or_make(MyDatabaseId);
	ShardLog *log = &db->log;
	int rows = to - from;
	CommandId cid = GetCurrentCommandId(true);
	ShardSegment *segment;
	Relation rel;
	BlockNumber blocks;
	Buffer tail;
	int64 last;

	(void) GetCurrentTransactionId();
	reserve_slots(rows);
	for (int i = 0; i < rows; i++)
		ExecStoreHeapTuple(pending.tuple[from + i], pending.slot[i], false);

	rel = lock_current(db, log);
	segment = &log->segment[log->current];
	blocks = RelationGetNumberOfBlocks(rel);
	check_file(log, segment, rel, blocks);
	last = draw_seqs(log, from, to);
	if (segment->first_seq == 0)
		segment->first_seq = log->next_seq;

	/*
	 * Published before the insert: should that fail, these seqs are just never
	 * seen, while numbers drawn twice would lose a message.
	 */
	log->next_seq = last + 1;
	segment->last_seq = last;
	tail = pin_tail(rel, blocks);
	RelationSetTargetBlock(rel, blocks > 0 ? blocks - 1 : InvalidBlockNumber);
	heap_multi_insert(rel, pending.slot, rows, cid, TABLE_INSERT_SKIP_FSM, NULL);
	if (BufferIsValid(tail))
		ReleaseBuffer(tail);
	segment->blocks = RelationGetTargetBlock(rel) + 1;
	if (segment->blocks > blocks)
		pg_atomic_write_u64(&log->bytes, pg_atomic_read_u64(&log->bytes) +
											 (uint64) (segment->blocks - blocks) * BLCKSZ);
	pg_atomic_write_u64(&log->last_seq, last);
	LWLockRelease(db->append_lock);

	table_close(rel, NoLock);
	for (int i = 0; i < rows; i++)
		ExecClearTuple(pending.slot[i]);
	return last;
}

/* The end of the hold that begins at row from: full, but never inside a message. */
static int
end_of_hold(int from)
{
	Size bytes = 0;
	int to = from;

	while (to < pending.rows)
	{
		HeapTupleHeader header = pending.tuple[to]->t_data;

		if (((ShardRowFixed *) ((char *) header + header->t_hoff))->chunk == 0 &&
			(to - from >= BATCH_ROWS || bytes >= BATCH_BYTES))
			break;
		bytes += pending.tuple[to++]->t_len;
	}
	return to;
}

int64
shard_log_flush(void)
{
	int64 last = 0;

	if (pending.rows == 0)
		return 0;
	ShardAssert(pending.level[0] == GetCurrentSubTransactionId());

	/* heap_insert by-passes the executor and its checks */
	PreventCommandIfReadOnly("shard_tell()");
	PreventCommandIfParallelMode("shard_tell()");
#ifdef USE_ASSERT_CHECKING
	/* Nothing of a row is ever toasted, but a server with assertions wants a snapshot for any table that has a TOAST table. */
	PushActiveSnapshot(GetTransactionSnapshot());
#endif
	for (int from = 0; from < pending.rows;)
	{
		int to = end_of_hold(from);

		last = write_rows(from, to);
		from = to;
	}
#ifdef USE_ASSERT_CHECKING
	PopActiveSnapshot();
#endif
	shard_log_discard();
	return last;
}
