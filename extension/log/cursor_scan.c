/*
 * log/cursor_scan.c
 *		Reading the pages of the log, in order of seq (doc/protocol.md D4).
 *
 * Sizes of the segments are read before the snapshot is taken, and a seq is drawn and its row placed under one lock; so
 * when a row is seen, every row with a smaller seq is on a page already listed, and each row looked at ends in exactly
 * one of: handed out, noted in P, aborted, another worker's.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "registry/catalog.h"
#include "log/cursor_private.h"
#include "log/log_read.h"

#include "base/compat.h"

void
shard_cursor_rewind(ShardCursor *c, ShardCursorPhase phase)
{
	c->phase = phase;
	c->next_segment = 0;
	c->end_segment = c->segments;
	c->next_block = 0;
}

/* Starts reading forward at the resume page, or at the start if that is void. */
static void
start_forward(ShardCursor *c)
{
	shard_cursor_rewind(c, PHASE_FORWARD);
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

/* The log's own rows, which carry no messages. */
static inline bool
is_own(int16 kind)
{
	return kind == SHARD_KIND_CURSOR || kind == SHARD_KIND_PACKET || kind == SHARD_KIND_POSITION ||
		   kind == SHARD_KIND_TURN;
}

/* Whether a message came from a stream: it has a home epoch tag. */
static inline bool
is_tagged(HeapTupleHeader tuple)
{
	return (tuple->t_infomask & HEAP_HASNULL) == 0 ||
		   !att_isnull(SHARD_LOG_EPOCH - 1, tuple->t_bits);
}

/* Whether others rebuild from the row as soon as the position has passed it (cursor.h). */
static bool
is_rebuilt_from(HeapTupleHeader tuple, int16 kind)
{
	if (kind == SHARD_KIND_REPLY)
		return true;
#ifdef SHARD_MUTANT_REQUESTS_UNMARKED
	if (shard_kind_is_request(kind))
		return false;
#endif
	return shard_kind_is_for_entity(kind) && is_tagged(tuple);
}

/* The rows of a start: newest cursors, or what others rebuild from (cursor.h). */
static bool
classify_start(ShardCursor *c, HeapTuple tuple, Buffer buffer, Snapshot snapshot)
{
	const ShardRowFixed *row = shard_log_fixed(tuple->t_data);
	int lane;

	if (c->phase == PHASE_LOAD)
		return row->kind == SHARD_KIND_CURSOR && !in_progress(c, row->sender, snapshot) &&
			   HeapTupleSatisfiesVisibility(tuple, snapshot, buffer);
	lane = shard_log_lane(row);
	if (row->kind == SHARD_KIND_CURSOR || !owns(c, lane))
		return false;
	if (!is_own(row->kind) &&
		(!is_rebuilt_from(tuple->t_data, row->kind) || row->seq > c->q[lane] ||
		 shard_cursor_senders_open(&c->senders, row->sender, lane, row->seq)))
		return false;
	return !in_progress(c, row->sender, snapshot) &&
		   HeapTupleSatisfiesVisibility(tuple, snapshot, buffer);
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
	if (c->phase == PHASE_LOAD || c->phase == PHASE_REVISIT)
	{
		*state = ITEM_READ;
		return classify_start(c, tuple, buffer, snapshot);
	}
	if (is_own(row->kind))
	{
		*state = ITEM_PASS;
		return c->phase == PHASE_FORWARD && row->seq > c->floor;
	}

	lane = shard_log_lane(row);
	if (c->phase == PHASE_FORWARD)
	{
		*state = ITEM_PASS;
		if (!owns(c, lane))
			return row->seq > c->floor;
		if (row->seq <= c->q[lane])
			return false;
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
		return shard_cursor_senders_open(&c->senders, row->sender, lane, row->seq);
	}
	*state = ITEM_READ;
	return shard_cursor_senders_ended(&c->senders, row->sender, lane, row->seq) &&
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

/*
 * A segment that was opened again must still be the file whose pages this turn counts on: not replaced, nor shorter,
 * nor, as its next sender would have noted (log.c), cut and grown again. With the lock the file stays so. Where the
 * segment was locked already when it was listed, a sender can only have noted what happened before that.
 */
static void
check_file(ShardCursor *c)
{
	uint64 generation = *((volatile uint64 *) &c->db->log.generation);

#ifdef SHARD_MUTANT_FILE_UNSEEN
	return;
#endif
	if (ShardFileNumber(c->rel) == c->file[c->rel_no] &&
		RelationGetNumberOfBlocks(c->rel) >= c->blocks[c->rel_no] &&
		(c->kept || generation == c->generation))
		return;
	c->overtaken = true;
	ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("segment %d of the inbox was emptied or rewritten during the turn",
						   c->rel_no)));
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
	check_file(c);
}

/*
 * Copies a page and lists its rows in order of seq: that of the line pointers, as a rule (D3).
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
		/* First of all: a copy in one go brings the page into the processor's cache faster than what looks at its rows. */
		memcpy(c->page.data, page, BLCKSZ);
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
	}
	UnlockReleaseBuffer(buffer);
#ifdef SHARD_MUTANT_NO_ORDER
	/* not where it would end all handling: chunks of a message, homes that messages wait for */
	sorted = false;
	for (int i = 0; i < c->items; i++)
	{
		Page copy = (Page) c->page.data;
		const ShardRowFixed *row = shard_log_fixed(
			(HeapTupleHeader) PageGetItem(copy, PageGetItemId(copy, c->item[i].offset)));

		sorted |= row->chunks > 1 || row->kind == SHARD_KIND_FACT;
	}
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
		while (c->drain_next < c->drain_count)
		{
			ShardPlace place = c->drain[c->drain_next++];

			/* drained in turns before: the segment was emptied since, and is in use again */
			if (place.block >= c->blocks[place.segment])
				continue;
			load_page(c, place, snapshot);
			return true;
		}
		start_forward(c);
	}
	while (c->next_segment < c->end_segment)
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
	shard_cursor_senders_forget_places(&c->senders);
	shard_cursor_rewind(c, PHASE_REFILL);
	while (next_page(c, snapshot))
	{
		for (int i = 0; i < c->items; i++)
		{
			Page page = (Page) c->page.data;
			HeapTupleHeader tuple =
				(HeapTupleHeader) PageGetItem(page, PageGetItemId(page, c->item[i].offset));
			const ShardRowFixed *row = shard_log_fixed(tuple);

			shard_cursor_senders_note(&c->senders, row->sender, shard_log_lane(row), row->seq,
									  c->place);
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
	if (c->void_places && !shard_cursor_senders_empty(&c->senders))
		refill(c, snapshot);
	for (ShardSender *s = c->senders.list; s < c->senders.list + c->senders.count; s++)
		s->ended = !in_progress(c, s->xid, snapshot);
	c->drain = shard_cursor_senders_ended_places(&c->senders, order, c->segments, &c->drain_count);
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
		MemoryContext old = MemoryContextSwitchTo(c->context);

		if (c->unpacked != NULL)
			pfree(c->unpacked);
		c->unpacked = NULL;
		c->unpacked = shard_log_read_unpack(c->row.seq, c->row.kind, c->assembly.data,
											c->assembly.len, &c->row.payload_len);
		MemoryContextSwitchTo(old);
		c->row.payload = c->unpacked;
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
	shard_log_read_columns(RelationGetDescr(c->rel), tuple, &c->row);
	if (row->chunk == 0)
	{
		c->head = c->place;
		c->chunks_read = 0;
		resetStringInfo(&c->assembly);
	}
	if (row->chunks == 1 && (row->flags & SHARD_ROW_COMPRESSED) == 0)
		return true;
	appendBinaryStringInfo(&c->assembly, c->row.payload, c->row.payload_len);
	c->chunks_read++;
	if (c->chunks_read < row->chunks)
		return false;
	finish_assembly(c, row->flags);
	return true;
}

bool
shard_cursor_advance(ShardCursor *c, Snapshot snapshot)
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
				shard_cursor_senders_note(&c->senders, row->sender, shard_log_lane(row), row->seq,
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
		c->peeked = shard_cursor_advance(c, snapshot);
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
