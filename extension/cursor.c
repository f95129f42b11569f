/*
 * cursor.c
 *		A worker's way through the log (doc/protocol.md D4).
 *
 * Durable position: q per lane and P, the senders that were in progress when
 * their rows were passed. A row is handled iff seq <= q of its lane and its
 * sender is not in P with that lane and first <= seq.
 *
 * A turn first drains the senders of P that have ended, merged by seq, from
 * the pages remembered for them; only then it scans forward from q. Sizes of
 * the segments are read before the snapshot is taken, and a seq is drawn and
 * its row placed under one lock; so when a row is seen, every row with a
 * smaller seq is on a page already listed, and each row looked at ends in
 * exactly one of: handed out, noted in P, aborted, not ours.
 *
 * Places (segment, block) are hints only: when a file was replaced or got
 * shorter, everything is scanned again under the rule above.
 *
 * If the process dies right here: the next one reads the newest committed
 * cursor row and begins there. What this turn did was not committed either.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "common/pg_lzcompress.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "core/message.h"
#include "cursor.h"
#include "cursor_record.h"
#include "cursor_senders.h"

#include "compat.h"

/* What the pages are read for. */
typedef enum Phase
{
	PHASE_LOAD,	  /* cursor rows; at start */
	PHASE_REFILL, /* pages of the senders in P, after places became void; -> DRAIN */
	PHASE_DRAIN,  /* rows of ended senders; -> FORWARD */
	PHASE_FORWARD /* rows above q */
} Phase;

typedef enum ItemState
{
	ITEM_READ,		  /* to hand out */
	ITEM_IN_PROGRESS, /* to note in P */
	ITEM_PASS,		  /* aborted, not ours, or the log's own */
	ITEM_STOP		  /* written by this very turn: the scan ends before it */
} ItemState;

typedef struct ScanItem
{
	int64 seq;
	int16 chunk;
	OffsetNumber offset;
	uint8 state;
} ScanItem;

typedef struct OpenSegment
{
	int no;
	Oid relid;
	BlockNumber blocks;
} OpenSegment;

struct ShardCursor
{
	int worker;
	uint32 lanes;
	ShardDatabase *db;
	MemoryContext context; /* of the cursor itself */

	/* position: in memory as of the last commit */
	int64 q[SHARD_LANES];
	uint64 turn[SHARD_LANES];
	ShardSenders senders;
	bool moved;		   /* differs from the last cursor row */
	bool void_places;  /* scan from the oldest segment, fill P's pages anew */
	bool refilled;	   /* P's pages are known again, as of this turn */
	ShardPlace resume; /* page of the last row passed */

	/* hints about the files behind the places */
	uint64 generation;
	Oid file[SHARD_SEGMENTS];
	BlockNumber blocks[SHARD_SEGMENTS];

	/* this turn */
	bool begun; /* the first peek has looked at P */
	Phase phase;
	int segments;
	OpenSegment segment[SHARD_SEGMENTS];
	int next_segment; /* index into segment */
	BlockNumber next_block;
	ShardPlace *drain; /* pages of ended senders, in order */
	int drain_count;
	int drain_next;
	int64 drained; /* every row of ended senders up to here is passed */
	int64 upto;	   /* forward: last seq looked at */
	int64 floor;   /* lowest q of our lanes */
	ShardPlace new_resume;
	ShardPlace head; /* page of the first chunk of the message at hand */
	Relation rel;
	int rel_no;
	uint64 own_xid;
	uint64 next_xid;
	uint64 memo_xid; /* last answer of in_progress() */
	bool memo_answer;

	/* the page at hand, a private copy */
	PGAlignedBlock page;
	ShardPlace place;
	ScanItem item[MaxHeapTuplesPerPage];
	int items;
	int next_item;

	/* the message at hand */
	bool peeked;
	ShardRow row;
	int chunks_read;
	StringInfoData assembly;
	char *unpacked;
};

ShardCursor *
shard_cursor_create(int worker, uint32 lanes)
{
	ShardCursor *c = MemoryContextAllocZero(TopMemoryContext, sizeof(ShardCursor));
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	c->worker = worker;
	c->lanes = lanes;
	c->db = shard_shmem_database();
	c->context = TopMemoryContext;
	c->resume.segment = -1;
	initStringInfo(&c->assembly);
	shard_senders_init(&c->senders);
	MemoryContextSwitchTo(old);
	return c;
}

static inline bool
owns(const ShardCursor *c, int lane)
{
	return (c->lanes & (1u << lane)) != 0;
}

/* Reads the list of segments and their sizes, the current one last. */
void
shard_cursor_open(ShardCursor *c)
{
	const ShardCatalog *catalog = shard_catalog_get();
	ShardLog *log = shard_log_attach();
	uint64 generation;
	bool live[SHARD_SEGMENTS] = {false};

	LWLockAcquire(c->db->append_lock, LW_SHARED);
	c->segments = log->live_count;
	for (int i = 0; i < log->live_count; i++)
		c->segment[i].no = log->live[i];
	generation = log->generation;
	LWLockRelease(c->db->append_lock);

	if (generation != c->generation)
		c->void_places = true;
	c->generation = generation;
	for (int i = 0; i < c->segments; i++)
	{
		OpenSegment *segment = &c->segment[i];
		Relation rel = table_open(catalog->segment[segment->no], AccessShareLock);
		Oid file = ShardFileNumber(rel);

		segment->relid = RelationGetRelid(rel);
		segment->blocks = RelationGetNumberOfBlocks(rel);
		live[segment->no] = true;
		if ((c->file[segment->no] != 0 && c->file[segment->no] != file) ||
			segment->blocks < c->blocks[segment->no])
			c->void_places = true;
		c->file[segment->no] = file;
		c->blocks[segment->no] = segment->blocks;
		table_close(rel, AccessShareLock);
	}
	for (int i = 0; i < SHARD_SEGMENTS; i++)
		if (!live[i])
			c->file[i] = c->blocks[i] = 0;

	c->begun = false;
	c->peeked = false;
	c->items = c->next_item = 0;
	c->upto = 0;
	c->drained = 0;
	c->chunks_read = 0;
	c->floor = PG_INT64_MAX;
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (owns(c, lane))
			c->floor = Min(c->floor, c->q[lane]);
	c->memo_xid = 0;
	c->next_xid = U64FromFullTransactionId(ReadNextFullTransactionId());
}

/* Starts reading pages at the oldest segment. */
static void
rewind_to_start(ShardCursor *c, Phase phase)
{
	c->phase = phase;
	c->next_segment = 0;
	c->next_block = 0;
}

/* Starts reading forward at the resume page, or at the start if that is void. */
static void
start_forward(ShardCursor *c)
{
	rewind_to_start(c, PHASE_FORWARD);
	c->new_resume = c->resume;
	if (c->void_places || c->resume.segment < 0)
		return;
	for (int i = 0; i < c->segments; i++)
		if (c->segment[i].no == c->resume.segment)
		{
			c->next_segment = i;
			c->next_block = c->resume.block;
		}
}

/* Whether a sender was in progress when the snapshot was taken. */
static bool
in_progress(ShardCursor *c, uint64 xid, Snapshot snapshot)
{
	if (xid == c->memo_xid)
		return c->memo_answer;
	c->memo_xid = xid;

	/* too old for 32-bit comparison: it has ended */
	if (c->next_xid > xid && c->next_xid - xid > PG_INT32_MAX)
		c->memo_answer = false;
	else
		c->memo_answer = XidInMVCCSnapshot((TransactionId) xid, snapshot);
	return c->memo_answer;
}

/* Decides what a row is to this scan; false if it is not listed at all. */
static bool
classify(ShardCursor *c, HeapTuple tuple, Buffer buffer, Snapshot snapshot, uint8 *state)
{
	const ShardRowFixed *row = shard_log_fixed(tuple->t_data);
	int lane;

	if (row->sender == c->own_xid)
	{
		*state = ITEM_STOP;
		return c->phase == PHASE_FORWARD;
	}
	if (row->kind == SHARD_KIND_CURSOR)
	{
		*state = c->phase == PHASE_LOAD ? ITEM_READ : ITEM_PASS;
		if (c->phase == PHASE_LOAD)
			return !in_progress(c, row->sender, snapshot) &&
				   HeapTupleSatisfiesVisibility(tuple, snapshot, buffer);
		return c->phase == PHASE_FORWARD && row->seq > c->floor;
	}
	if (c->phase == PHASE_LOAD)
		return false;

	lane = shard_message_lane(row->type_id, row->shard);
	if (c->phase == PHASE_FORWARD)
	{
		*state = ITEM_PASS;
		if (!owns(c, lane))
			return row->seq > c->floor;
#ifndef SHARD_MUTANT_NO_DEDUP
		if (row->seq <= c->q[lane])
			return false;
#endif
#ifndef SHARD_MUTANT_CURSOR_BY_ID
		if (in_progress(c, row->sender, snapshot))
		{
			*state = ITEM_IN_PROGRESS;
			return true;
		}
#endif
		if (HeapTupleSatisfiesVisibility(tuple, snapshot, buffer))
			*state = ITEM_READ;
		return true;
	}

	/* REFILL and DRAIN want rows that the position has passed */
	if (!owns(c, lane) || row->seq > c->q[lane])
		return false;
	if (c->phase == PHASE_REFILL)
	{
		*state = ITEM_IN_PROGRESS;
		return shard_senders_open(&c->senders, row->sender, lane, row->seq);
	}
	*state = ITEM_READ;
	return shard_senders_ended(&c->senders, row->sender, lane, row->seq) &&
		   HeapTupleSatisfiesVisibility(tuple, snapshot, buffer);
}

static int
compare_items(const void *a, const void *b)
{
	const ScanItem *x = a;
	const ScanItem *y = b;

#ifdef SHARD_MUTANT_NO_ORDER
	if (x->seq != y->seq)
		return x->seq < y->seq ? 1 : -1;
#endif
	if (x->seq != y->seq)
		return x->seq < y->seq ? -1 : 1;
	return x->chunk - y->chunk;
}

/* Opens the segment of a page, closing the one before. */
static void
switch_relation(ShardCursor *c, int no)
{
	if (c->rel != NULL && c->rel_no == no)
		return;
	if (c->rel != NULL)
		table_close(c->rel, AccessShareLock);
	c->rel = NULL;
	c->rel = table_open(shard_catalog_get()->segment[no], AccessShareLock);
	c->rel_no = no;
}

/*
 * Copies a page and lists its rows in order of seq. Within a page rows may lie
 * in any order, because VACUUM frees line pointers of aborted senders.
 */
static void
load_page(ShardCursor *c, ShardPlace place, Snapshot snapshot)
{
	Buffer buffer;
	Page page;
	bool sorted = true;

	switch_relation(c, place.segment);
	c->place = place;
	c->items = c->next_item = 0;
	c->own_xid = U64FromFullTransactionId(GetTopFullTransactionIdIfAny());
	buffer = ReadBuffer(c->rel, place.block);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (!PageIsNew(page))
	{
		for (OffsetNumber o = FirstOffsetNumber; o <= PageGetMaxOffsetNumber(page); o++)
		{
			ItemId id = PageGetItemId(page, o);
			ScanItem *item = &c->item[c->items];
			HeapTupleData tuple;

			if (!ItemIdIsNormal(id))
				continue;
			tuple.t_data = (HeapTupleHeader) PageGetItem(page, id);
			tuple.t_len = ItemIdGetLength(id);
			tuple.t_tableOid = RelationGetRelid(c->rel);
			ItemPointerSet(&tuple.t_self, place.block, o);
			if (!classify(c, &tuple, buffer, snapshot, &item->state))
				continue;
			item->seq = shard_log_fixed(tuple.t_data)->seq;
			item->chunk = shard_log_fixed(tuple.t_data)->chunk;
			item->offset = o;
			if (c->items > 0 && compare_items(item - 1, item) > 0)
				sorted = false;
			c->items++;
		}
		if (c->items > 0)
			memcpy(c->page.data, page, BLCKSZ);
	}
	UnlockReleaseBuffer(buffer);
#ifdef SHARD_MUTANT_NO_ORDER
	sorted = false;
#endif
	if (!sorted)
		qsort(c->item, c->items, sizeof(ScanItem), compare_items);
}

/* Loads the next page of the phase, going to the next phase at its end; false at the very end. */
static bool
next_page(ShardCursor *c, Snapshot snapshot)
{
	if (c->phase == PHASE_DRAIN)
	{
		if (c->drain_next < c->drain_count)
		{
			load_page(c, c->drain[c->drain_next++], snapshot);
			return true;
		}
		start_forward(c);
	}
	while (c->next_segment < c->segments)
	{
		OpenSegment *segment = &c->segment[c->next_segment];

		if (c->next_block < segment->blocks)
		{
			ShardPlace place = {segment->no, c->next_block++};

			load_page(c, place, snapshot);
			return true;
		}
		c->next_segment++;
		c->next_block = 0;
	}
	return false;
}

/* Reads all pages for P's rows, which gives the senders their places again. */
static void
refill(ShardCursor *c, Snapshot snapshot)
{
	shard_senders_forget_places(&c->senders);
	rewind_to_start(c, PHASE_REFILL);
	while (next_page(c, snapshot))
	{
		for (int i = 0; i < c->items; i++)
		{
			Page page = (Page) c->page.data;
			HeapTupleHeader tuple =
				(HeapTupleHeader) PageGetItem(page, PageGetItemId(page, c->item[i].offset));
			const ShardRowFixed *row = shard_log_fixed(tuple);

			shard_senders_note(&c->senders, row->sender,
							   shard_message_lane(row->type_id, row->shard), row->seq, c->place);
		}
		CHECK_FOR_INTERRUPTS();
	}
	c->items = c->next_item = 0;
}

/* First peek of a turn: which senders of P have ended, and where are their rows. */
static void
begin(ShardCursor *c, Snapshot snapshot)
{
	int order[SHARD_SEGMENTS];

	c->begun = true;
	for (int i = 0; i < c->segments; i++)
		order[i] = c->segment[i].no;
	if (c->void_places && !shard_senders_empty(&c->senders))
		refill(c, snapshot);
	for (ShardSender *s = c->senders.list; s < c->senders.list + c->senders.count; s++)
		s->ended = !in_progress(c, s->xid, snapshot);
	c->drain = shard_senders_ended_places(&c->senders, order, c->segments, &c->drain_count);
	c->drain_next = 0;
	c->phase = PHASE_DRAIN;
}

/* A row of the forward scan was looked at for good. */
static void
pass(ShardCursor *c, const ShardRowFixed *row)
{
	if (c->phase != PHASE_FORWARD)
		return;
	if (row->chunk == 0)
		c->head = c->place;

	/* not before the last chunk: the others may lie on pages not listed yet */
	if (row->chunk < row->chunks - 1)
		c->upto = Max(c->upto, row->seq - 1);
	else
	{
		c->upto = Max(c->upto, row->seq);
		c->new_resume = c->head;
	}
}

/* The payload of all chunks, unpacked if need be, into row. */
static void
finish_assembly(ShardCursor *c, int flags)
{
	c->row.payload = c->assembly.data;
	c->row.payload_len = c->assembly.len;
	if (flags & SHARD_ROW_COMPRESSED)
	{
		int32 size;

		memcpy(&size, c->assembly.data, sizeof(int32));
		if (c->unpacked != NULL)
			pfree(c->unpacked);
		c->unpacked = MemoryContextAlloc(c->context, size);
		if (pglz_decompress(c->assembly.data + sizeof(int32), c->assembly.len - sizeof(int32),
							c->unpacked, size, true) < 0)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("message " INT64_FORMAT " of the inbox is damaged", c->row.seq)));
		c->row.payload = c->unpacked;
		c->row.payload_len = size;
	}
}

/* Points row at the tuple's columns. Those behind the payload are mostly NULL. */
static void
read_columns(ShardCursor *c, HeapTuple tuple, ShardRow *row)
{
	TupleDesc desc = RelationGetDescr(c->rel);
	Datum values[SHARD_LOG_COLUMNS];
	bool nulls[SHARD_LOG_COLUMNS];
	const ShardRowFixed *fixed = shard_log_fixed(tuple->t_data);

	heap_deform_tuple(tuple, desc, values, nulls);
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
	row->src_type = 0;
	row->src_entity = NULL;
	row->src_entity_len = 0;
	if (!nulls[SHARD_LOG_SRC_TYPE - 1])
	{
		struct varlena *src = (struct varlena *) DatumGetPointer(values[SHARD_LOG_SRC_ENTITY - 1]);

		row->src_type = DatumGetInt32(values[SHARD_LOG_SRC_TYPE - 1]);
		row->src_entity = VARDATA_ANY(src);
		row->src_entity_len = VARSIZE_ANY_EXHDR(src);
	}
	row->mid_node = SHARD_FIRST_NODE;
	row->mid_seq = fixed->seq;
	if (!nulls[SHARD_LOG_MID_NODE - 1])
	{
		row->mid_node = DatumGetInt32(values[SHARD_LOG_MID_NODE - 1]);
		row->mid_seq = DatumGetInt64(values[SHARD_LOG_MID_SEQ - 1]);
	}
}

/* Takes a row into the message at hand; true if that is complete. */
static bool
read_row(ShardCursor *c, HeapTuple tuple)
{
	const ShardRowFixed *row = shard_log_fixed(tuple->t_data);

	if (row->chunks > 1 && row->chunk != (row->chunk == 0 ? 0 : c->chunks_read))
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("message " INT64_FORMAT " of the inbox lacks a part", row->seq)));
	read_columns(c, tuple, &c->row);
	if (row->chunk == 0)
	{
		c->head = c->place;
		c->chunks_read = 0;
		resetStringInfo(&c->assembly);
	}
	if (row->chunks == 1)
		return true;
	appendBinaryStringInfo(&c->assembly, c->row.payload, c->row.payload_len);
	c->chunks_read++;
	if (c->chunks_read < row->chunks)
		return false;
	finish_assembly(c, row->flags);
	return true;
}

/* The next row in the current phase that is to be read; false at the end. */
static bool
advance(ShardCursor *c, Snapshot snapshot)
{
	for (;;)
	{
		Page page = (Page) c->page.data;
		ScanItem *item;
		ItemId id;
		HeapTupleData tuple;
		const ShardRowFixed *row;

		if (c->next_item >= c->items)
		{
			CHECK_FOR_INTERRUPTS();
			if (!next_page(c, snapshot))
				return false;
			continue;
		}
		item = &c->item[c->next_item];
		if (item->state == ITEM_STOP)
			return false;
		id = PageGetItemId(page, item->offset);
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, id);
		tuple.t_len = ItemIdGetLength(id);
		tuple.t_tableOid = RelationGetRelid(c->rel);
		ItemPointerSet(&tuple.t_self, c->place.block, item->offset);
		row = shard_log_fixed(tuple.t_data);
		if (item->state == ITEM_READ)
		{
			if (read_row(c, &tuple))
				return true;
		}
		else
		{
			if (item->state == ITEM_IN_PROGRESS)
				shard_senders_note(&c->senders, row->sender,
								   shard_message_lane(row->type_id, row->shard), row->seq,
								   c->place);
			pass(c, row);
		}
		c->next_item++;
	}
}

bool
shard_cursor_peek(ShardCursor *c, Snapshot snapshot, ShardRow *row)
{
	if (!c->peeked)
	{
		if (!c->begun)
			begin(c, snapshot);
		c->peeked = advance(c, snapshot);
	}
	if (c->peeked)
		*row = c->row;
	return c->peeked;
}

void
shard_cursor_accept(ShardCursor *c)
{
	Page page = (Page) c->page.data;
	HeapTupleHeader tuple =
		(HeapTupleHeader) PageGetItem(page, PageGetItemId(page, c->item[c->next_item].offset));

	ShardAssert(c->peeked);
	if (c->phase == PHASE_DRAIN)
	{
		c->drained = shard_log_fixed(tuple)->seq;
#ifdef SHARD_MUTANT_CURSOR_BEFORE_LATE
		c->drained = PG_INT64_MAX - 1;
#endif
	}
	else
		pass(c, shard_log_fixed(tuple));
	c->peeked = false;
	c->next_item++;
}

void
shard_cursor_close(ShardCursor *c)
{
	if (c->rel != NULL)
		table_close(c->rel, AccessShareLock);
	c->rel = NULL;
}

/* Forgets the turn; the drain list goes with the turn's memory. */
static void
forget_turn(ShardCursor *c)
{
	c->drain = NULL;
	c->drain_count = c->drain_next = 0;
	c->items = c->next_item = 0;
	c->peeked = false;
	c->begun = false;
}

/* Every row of the ended senders is passed: there is nothing left of the drain phase. */
static bool
drained_all(const ShardCursor *c)
{
	return c->begun && (c->phase == PHASE_FORWARD ||
						(c->drain_next >= c->drain_count && c->next_item >= c->items));
}

bool
shard_cursor_draining(const ShardCursor *c)
{
	return c->begun && !drained_all(c);
}

int64
shard_cursor_upto(const ShardCursor *c)
{
	return Max(c->upto, c->floor);
}

uint64
shard_cursor_turn(const ShardCursor *c)
{
	uint64 result = 0;

	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (owns(c, lane))
			result = Max(result, c->turn[lane]);
	return result;
}

bool
shard_cursor_moved(const ShardCursor *c)
{
	return c->moved || c->upto > c->floor || !shard_senders_empty(&c->senders);
}

/* Settles P for this turn, once, before it is written or committed. */
static void
settle_senders(ShardCursor *c)
{
	if (!c->begun)
		return;
	shard_senders_drained(&c->senders, drained_all(c) ? PG_INT64_MAX : c->drained);
}

/* Lanes with equal position and turn, as one group each. */
static void
group_lanes(const ShardCursor *c, ShardRecord *record)
{
	record->groups = 0;
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		int64 q = Max(c->q[lane], c->upto);
		uint64 turn = c->turn[lane] + 1;
		int g = 0;

		if (!owns(c, lane))
			continue;
		while (g < record->groups && (record->group[g].q != q || record->group[g].turn != turn))
			g++;
		if (g == record->groups)
			record->group[record->groups++] = (ShardRecordGroup){0, q, turn};
		record->group[g].lanes |= 1u << lane;
	}
}

void
shard_cursor_save(ShardCursor *c)
{
	ShardRecord record;
	StringInfoData body;
	ShardRow row = {.kind = SHARD_KIND_CURSOR, .shard = c->worker, .entity = "", .epoch = -1};

	settle_senders(c);
	group_lanes(c, &record);
	record.senders = 0;
	record.sender = palloc(Max(c->senders.count, 1) * sizeof(ShardRecordSender));
	for (int i = 0; i < c->senders.count; i++)
	{
		const ShardSender *s = &c->senders.list[i];

		if (s->new_lanes != 0)
			record.sender[record.senders++] =
				(ShardRecordSender){s->xid, s->new_lanes, s->new_first};
	}
	initStringInfo(&body);
	shard_cursor_record_write(&body, &record);
	row.payload = body.data;
	row.payload_len = body.len;
	shard_log_append(&row);
}

/* Makes the durable position known to rotation and views. */
static void
publish(ShardCursor *c, int64 record_seq)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		ShardLane *shared = &c->db->lane[lane];

		if (!owns(c, lane))
			continue;
		pg_atomic_write_u64(&shared->q, c->q[lane]);
		pg_atomic_write_u64(&shared->needed,
							Min(c->q[lane] + 1, shard_senders_first(&c->senders, lane)));
		pg_atomic_write_u64(&shared->cursor_seq, record_seq);
		pg_atomic_write_u64(&shared->turn, c->turn[lane]);
	}
}

void
shard_cursor_committed(ShardCursor *c, int64 record_seq)
{
	if (record_seq == 0)
		settle_senders(c);
	if (c->upto > c->floor || !shard_senders_empty(&c->senders))
		c->moved = true;
	shard_senders_committed(&c->senders);
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (owns(c, lane))
		{
			c->q[lane] = Max(c->q[lane], c->upto);
			if (record_seq != 0)
				c->turn[lane]++;
		}
	if (c->begun && c->phase == PHASE_FORWARD)
	{
		c->resume = c->new_resume;
		c->void_places = false;
	}
	if (record_seq != 0)
	{
		c->moved = false;
		publish(c, record_seq);
	}
	forget_turn(c);
}

void
shard_cursor_aborted(ShardCursor *c)
{
	/* the abort has closed it */
	c->rel = NULL;
	shard_senders_aborted(&c->senders);
	c->upto = 0;
	forget_turn(c);
}

/* Newest cursor row that names a lane. */
typedef struct Found
{
	int64 seq;
	StringInfoData payload; /* only of rows with senders: the rest is in the cursor */
} Found;

/* Takes over a cursor row's lanes for which it is the newest so far. */
static void
take_record(ShardCursor *c, Found *found, const ShardRow *row, MemoryContext scratch)
{
	MemoryContext old = MemoryContextSwitchTo(scratch);
	ShardRecord record;

	shard_cursor_record_read(&record, row->payload, row->payload_len);
	MemoryContextSwitchTo(old);
	for (int g = 0; g < record.groups; g++)
		for (int lane = 0; lane < SHARD_LANES; lane++)
		{
			if (!owns(c, lane) || (record.group[g].lanes & (1u << lane)) == 0 ||
				found[lane].seq > row->seq)
				continue;
			found[lane].seq = row->seq;
			c->q[lane] = record.group[g].q;
			c->turn[lane] = record.group[g].turn;
			resetStringInfo(&found[lane].payload);
			if (record.senders > 0)
				appendBinaryStringInfo(&found[lane].payload, row->payload, row->payload_len);
		}
	MemoryContextReset(scratch);
}

/* Rebuilds P: each sender of the newest row of a lane, for that lane. */
static void
take_senders(ShardCursor *c, Found *found)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		ShardRecord record;
		uint32 same = 0;

		if (!owns(c, lane) || found[lane].payload.len == 0)
			continue;
		for (int other = lane; other < SHARD_LANES; other++)
			if (owns(c, other) && found[other].seq == found[lane].seq)
				same |= 1u << other;
		shard_cursor_record_read(&record, found[lane].payload.data, found[lane].payload.len);
		for (int i = 0; i < record.senders; i++)
			if (record.sender[i].lanes & same)
				shard_senders_add(&c->senders, record.sender[i].xid, record.sender[i].lanes & same,
								  record.sender[i].first);
		for (int other = lane; other < SHARD_LANES; other++)
			if (same & (1u << other))
				resetStringInfo(&found[other].payload);
	}
}

void
shard_cursor_load(ShardCursor *c)
{
	MemoryContext scratch =
		AllocSetContextCreate(CurrentMemoryContext, "shard cursor load", ALLOCSET_DEFAULT_SIZES);
	Found found[SHARD_LANES] = {0};
	Snapshot snapshot = GetActiveSnapshot();

	for (int lane = 0; lane < SHARD_LANES; lane++)
		initStringInfo(&found[lane].payload);
	rewind_to_start(c, PHASE_LOAD);
	while (advance(c, snapshot))
	{
		take_record(c, found, &c->row, scratch);
		c->next_item++;
	}
	take_senders(c, found);
	c->void_places = true;
	c->resume.segment = -1;
	c->upto = 0;
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (owns(c, lane))
		{
			ShardLane *shared = &c->db->lane[lane];

			pg_atomic_write_u64(&shared->q, c->q[lane]);
			pg_atomic_write_u64(&shared->needed,
								Min(c->q[lane] + 1, shard_senders_first(&c->senders, lane)));
			pg_atomic_write_u64(&shared->cursor_seq, found[lane].seq);
			pg_atomic_write_u64(&shared->turn, c->turn[lane]);
		}
	forget_turn(c);
	shard_cursor_close(c);
	MemoryContextDelete(scratch);
}
