/*
 * log/log_read.c
 *		Reading the log with a snapshot: for views, and for code that looks back.
 *
 * Segments are read in order of their first seq, page by page; a page is
 * copied, its rows are judged by visibility and put in order of seq, wherever
 * they lie on it. Pages of a segment follow one another in order of seq (D3).
 *
 * A segment may be emptied while the segments are being listed, and used again. What it has then was appended after the
 * list was begun: no snapshot taken before that sees it, and who reads with a dirty one cannot count on it either.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "common/pg_lzcompress.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "registry/catalog.h"
#include "log/log_read.h"

#include "base/compat.h"

typedef struct PageItem
{
	int64 seq;
	int16 chunk;
	OffsetNumber offset;
} PageItem;

typedef struct Reader
{
	const ShardLogScan *scan;
	Relation rel;
	PGAlignedBlock page; /* a private copy */
	PageItem item[MaxHeapTuplesPerPage];
	int items;
	int64 lowest;	 /* seq on the page, wanted or not; 0: none */
	int chunks_read; /* of the message at hand */
	StringInfoData assembly;
	bool done;
	MemoryContext scratch; /* of one visit */
} Reader;

/* A segment as found before reading. */
typedef struct Segment
{
	Oid relid;
	int64 first_seq;
} Segment;

/* This node's id, for messages that became durable here. */
static int32 self = SHARD_FIRST_NODE;

void
shard_log_read_set_self(int32 node)
{
	self = node;
}

int32
shard_log_read_self(void)
{
	return self;
}

void
shard_log_read_columns(TupleDesc desc, HeapTuple tuple, ShardRow *row)
{
	Datum values[SHARD_LOG_COLUMNS];
	bool nulls[SHARD_LOG_COLUMNS];
	const ShardRowFixed *fixed = shard_log_fixed(tuple->t_data);

	heap_deform_tuple(tuple, desc, values, nulls);
	memset(row, 0, sizeof(ShardRow));
	row->seq = fixed->seq;
	row->sender = fixed->sender;
	row->type_id = fixed->type_id;
	row->shard = fixed->shard;
	row->kind = fixed->kind;
	row->entity = VARDATA_ANY(DatumGetPointer(values[SHARD_LOG_ENTITY - 1]));
	row->entity_len = VARSIZE_ANY_EXHDR(DatumGetPointer(values[SHARD_LOG_ENTITY - 1]));
	row->payload = VARDATA_ANY(DatumGetPointer(values[SHARD_LOG_PAYLOAD - 1]));
	row->payload_len = VARSIZE_ANY_EXHDR(DatumGetPointer(values[SHARD_LOG_PAYLOAD - 1]));
	row->epoch = nulls[SHARD_LOG_EPOCH - 1] ? -1 : DatumGetInt32(values[SHARD_LOG_EPOCH - 1]);
	if (!nulls[SHARD_LOG_STAMP - 1])
		row->stamp = shard_log_get_stamp(VARDATA_ANY(DatumGetPointer(values[SHARD_LOG_STAMP - 1])));
	if (!nulls[SHARD_LOG_SRC_TYPE - 1])
	{
		Pointer src = DatumGetPointer(values[SHARD_LOG_SRC_ENTITY - 1]);

		row->src_type = DatumGetInt32(values[SHARD_LOG_SRC_TYPE - 1]);
		row->src_entity = VARDATA_ANY(src);
		row->src_entity_len = VARSIZE_ANY_EXHDR(src);
	}
	row->mid_node = self;
	row->mid_seq = fixed->seq;
	if (!nulls[SHARD_LOG_MID_NODE - 1])
	{
		row->mid_node = DatumGetInt32(values[SHARD_LOG_MID_NODE - 1]);
		row->mid_seq = DatumGetInt64(values[SHARD_LOG_MID_SEQ - 1]);
	}
}

char *
shard_log_read_unpack(int64 seq, int kind, const char *packed, int packed_len, int *len)
{
	int32 size = 0;
	char *result = NULL;

	if (packed_len >= (int) sizeof(int32))
		memcpy(&size, packed, sizeof(int32));
	if (size > 0 && AllocSizeIsValid(size))
		result = palloc(size);
	if (result != NULL && pglz_decompress(packed + sizeof(int32), packed_len - sizeof(int32),
										  result, size, true) >= 0)
	{
		*len = size;
		return result;
	}
	if (kind != SHARD_KIND_TURN)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("message " INT64_FORMAT " of the inbox is damaged", seq)));
	*len = 0;
	return result != NULL ? result : palloc(1);
}

/*
 * The row of a copied page at an offset.
 */
static HeapTuple
tuple_at(Reader *reader, HeapTuple tuple, OffsetNumber offset)
{
	Page page = (Page) reader->page.data;
	ItemId id = PageGetItemId(page, offset);

	tuple->t_data = (HeapTupleHeader) PageGetItem(page, id);
	tuple->t_len = ItemIdGetLength(id);
	tuple->t_tableOid = RelationGetRelid(reader->rel);
	ItemPointerSetInvalid(&tuple->t_self);
	return tuple;
}

static int
compare_items(const void *a, const void *b)
{
	const PageItem *x = a;
	const PageItem *y = b;

	if (x->seq != y->seq)
		return x->seq < y->seq ? -1 : 1;
	return x->chunk - y->chunk;
}

/*
 * Lists the rows of a page that are wanted and visible. The page is share-locked.
 */
static void
list_items(Reader *reader, Buffer buffer, BlockNumber block)
{
	const ShardLogScan *scan = reader->scan;
	Page page = BufferGetPage(buffer);

	for (OffsetNumber o = FirstOffsetNumber; o <= PageGetMaxOffsetNumber(page); o++)
	{
		ItemId id = PageGetItemId(page, o);
		const ShardRowFixed *row;
		HeapTupleData tuple;

		if (!ItemIdIsNormal(id))
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, id);
		tuple.t_len = ItemIdGetLength(id);
		tuple.t_tableOid = RelationGetRelid(reader->rel);
		ItemPointerSet(&tuple.t_self, block, o);
		row = shard_log_fixed(tuple.t_data);
		if (reader->lowest == 0 || row->seq < reader->lowest)
			reader->lowest = row->seq;
		if (!scan->want(row, scan->arg) ||
			!HeapTupleSatisfiesVisibility(&tuple, scan->snapshot, buffer))
			continue;
		reader->item[reader->items++] = (PageItem){row->seq, row->chunk, o};
	}
}

/*
 * Copies a page and lists its rows in order.
 */
static void
load_page(Reader *reader, BlockNumber block)
{
	Buffer buffer = ReadBuffer(reader->rel, block);

	reader->items = 0;
	reader->lowest = 0;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (!PageIsNew(BufferGetPage(buffer)))
		list_items(reader, buffer, block);
	if (reader->items > 0)
		memcpy(reader->page.data, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	qsort(reader->item, reader->items, sizeof(PageItem), compare_items);
}

/*
 * Takes a row; visits its message when that is complete.
 */
static void
take_row(Reader *reader, HeapTuple tuple)
{
	const ShardLogScan *scan = reader->scan;
	const ShardRowFixed *fixed = shard_log_fixed(tuple->t_data);
	ShardRow row;

	if (!scan->payload && fixed->chunk > 0)
		return;
	shard_log_read_columns(RelationGetDescr(reader->rel), tuple, &row);
	if (fixed->chunk == 0)
	{
		reader->chunks_read = 0;
		resetStringInfo(&reader->assembly);
	}
	if (!scan->payload)
	{
		row.payload = NULL;
		row.payload_len = 0;
	}
	else if (fixed->chunks > 1 || (fixed->flags & SHARD_ROW_COMPRESSED))
	{
		if (fixed->chunk != reader->chunks_read)
			return; /* the message's first chunks are gone: the snapshot is older than a TRUNCATE */
		appendBinaryStringInfo(&reader->assembly, row.payload, row.payload_len);
		reader->chunks_read++;
		if (reader->chunks_read < fixed->chunks)
			return;
		row.payload = reader->assembly.data;
		row.payload_len = reader->assembly.len;
		if (fixed->flags & SHARD_ROW_COMPRESSED)
			row.payload = shard_log_read_unpack(row.seq, row.kind, reader->assembly.data,
												reader->assembly.len, &row.payload_len);
	}
	scan->visit(&row, scan->arg);
}

/*
 * A page from which on everything at or above seq is found. One page earlier
 * than the search says: a rewritten table may have moved a few rows across a
 * page's edge.
 */
static BlockNumber
find_block(Relation rel, BlockNumber blocks, int64 seq)
{
	BlockNumber low = 0;
	BlockNumber high = blocks;

	while (low < high)
	{
		BlockNumber middle = low + (high - low) / 2;
		BlockNumber probe = middle;
		int64 lowest;
		int64 highest = 0;

		/* pages without rows say nothing; the next one that has some does */
		while (probe < high && !shard_log_page_seqs(rel, probe, &lowest, &highest))
			probe++;
		if (highest == 0 || highest >= seq)
			high = middle;
		else
			low = probe + 1;
		CHECK_FOR_INTERRUPTS();
	}
	return low > 0 ? low - 1 : 0;
}

/*
 * Reads one segment, under a lock that ends with it.
 */
static void
read_segment(Reader *reader, Oid relid)
{
	BlockNumber blocks;
	MemoryContext old;
	int beyond = 0;

	reader->rel = table_open(relid, AccessShareLock);
	blocks = RelationGetNumberOfBlocks(reader->rel);
	old = MemoryContextSwitchTo(reader->scratch);
	for (BlockNumber block = find_block(reader->rel, blocks, reader->scan->from);
		 block < blocks && beyond < 2 && !reader->done; block++)
	{
		CHECK_FOR_INTERRUPTS();
		load_page(reader, block);
		for (int i = 0; i < reader->items; i++)
		{
			HeapTupleData tuple;

			take_row(reader, tuple_at(reader, &tuple, reader->item[i].offset));
			MemoryContextReset(reader->scratch);
		}

		/* one page more, as in find_block() */
		if (reader->scan->upto > 0 && reader->lowest > reader->scan->upto)
			beyond++;
		reader->done = reader->scan->done != NULL && reader->scan->done(reader->scan->arg);
	}
	MemoryContextSwitchTo(old);
	table_close(reader->rel, AccessShareLock);
}

/*
 * First seq of a segment, 0 if it is empty.
 */
static int64
first_seq_of(Oid relid)
{
	Relation rel = table_open(relid, AccessShareLock);
	BlockNumber blocks = RelationGetNumberOfBlocks(rel);
	int64 lowest;
	int64 highest = 0;

	for (BlockNumber block = 0; block < blocks && highest == 0; block++)
		(void) shard_log_page_seqs(rel, block, &lowest, &highest);
	table_close(rel, AccessShareLock);
	return highest;
}

static int
compare_segments(const void *a, const void *b)
{
	const Segment *x = a;
	const Segment *y = b;

	return x->first_seq < y->first_seq ? -1 : x->first_seq > y->first_seq;
}

/*
 * The segments that have rows, oldest first. Any seq of the first page will
 * do: segments do not overlap.
 */
static int
list_segments(Segment *segments)
{
	const ShardCatalog *catalog = shard_catalog_get();
	int count = 0;

	for (int i = 0; i < SHARD_SEGMENTS; i++)
	{
		int64 first = first_seq_of(catalog->segment[i]);

		if (first != 0)
			segments[count++] = (Segment){catalog->segment[i], first};
	}
	qsort(segments, count, sizeof(Segment), compare_segments);
	return count;
}

static Reader *
make_reader(const ShardLogScan *scan)
{
	Reader *reader = palloc(sizeof(Reader));

	reader->scan = scan;
	reader->chunks_read = 0;
	reader->done = false;
	initStringInfo(&reader->assembly);
	reader->scratch =
		AllocSetContextCreate(CurrentMemoryContext, "shard log reader", ALLOCSET_DEFAULT_SIZES);
	return reader;
}

static void
free_reader(Reader *reader)
{
	MemoryContextDelete(reader->scratch);
	pfree(reader->assembly.data);
	pfree(reader);
}

void
shard_log_read(const ShardLogScan *scan)
{
	Reader *reader = make_reader(scan);
	Segment segments[SHARD_SEGMENTS];
	int count = list_segments(segments);

	for (int i = 0; i < count; i++)
	{
		int at = scan->enough ? count - 1 - i : i;

		/* if the next one begins no later than wanted, this one has nothing */
		if (at + 1 < count && segments[at + 1].first_seq <= scan->from)
			continue;
		read_segment(reader, segments[at].relid);
		if (reader->done || (scan->enough && scan->enough(scan->arg)))
			break;
	}
	free_reader(reader);
}
