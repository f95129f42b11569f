/*
 * log/cursor.c
 *		A worker's way through the log (doc/protocol.md D4).
 *
 * Durable position: q per lane and P, the senders that were in progress when
 * their rows were passed. A row is handled iff seq <= q of its lane and its
 * sender is not in P with that lane and first <= seq.
 *
 * A turn first drains the senders of P that have ended, merged by seq, from
 * the pages remembered for them; only then it scans forward from q
 * (cursor_scan.c).
 *
 * Places (segment, block) are hints only: when a file was replaced or got
 * shorter, everything is scanned again under the rule above. Within a turn, too:
 * between two openings of a segment VACUUM or the rotation may have had it. And between the list of segments and the look
 * at their files the rotation may have emptied the oldest and made it current again: all are listed once more then, since
 * rows are read in the order of the list, and q would pass those that are left.
 *
 * If the process dies right here: the next one reads the newest committed
 * cursor row and begins there. What this turn did was not committed either.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

#include "registry/catalog.h"
#include "log/cursor_private.h"
#include "base/fault.h"
#include "log/cursor_record.h"

#include "base/compat.h"

/* More than this for one message is not kept for the next turn. */
#define LARGE_BYTES (256 * 1024)

ShardCursor *
shard_cursor_create(int worker, ShardLanes lanes)
{
	ShardCursor *c = MemoryContextAllocZero(TopMemoryContext, sizeof(ShardCursor));
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	c->worker = worker;
	c->lanes = lanes;
	c->db = shard_shmem_database();
	c->context = TopMemoryContext;
	c->resume.segment = -1;
	initStringInfo(&c->assembly);
	shard_cursor_senders_init(&c->senders);
	for (int lane = 0; lane < SHARD_LANES; lane++)
		c->keep[lane] = PG_INT64_MAX;
	MemoryContextSwitchTo(old);
	return c;
}

/* Frees what a large message has left; between messages. */
static void
forget_large(ShardCursor *c)
{
	MemoryContext old = MemoryContextSwitchTo(c->context);

	if (c->unpacked != NULL)
		pfree(c->unpacked);
	c->unpacked = NULL;
	if (c->assembly.maxlen > LARGE_BYTES)
	{
		pfree(c->assembly.data);
		initStringInfo(&c->assembly);
	}
	MemoryContextSwitchTo(old);
}

/* Lists the segments, the current one last, and reads their files and sizes. */
static void
list_segments(ShardCursor *c, bool keep)
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
	c->switches = pg_atomic_read_u64(&log->switches);
	LWLockRelease(c->db->append_lock);

	if (generation != c->generation)
		c->void_places = true;
	c->generation = generation;
	if (keep)
		shard_fault("inbox_listed");
	else
		shard_fault("turn_listed");
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
		{
			c->void_places = true;
			if (c->resume.segment == segment->no)
				c->resume.segment = -1;
		}
		c->file[segment->no] = file;
		c->blocks[segment->no] = segment->blocks;
		table_close(rel, keep ? NoLock : AccessShareLock);
	}
	for (int i = 0; i < SHARD_SEGMENTS; i++)
		if (!live[i])
		{
			c->file[i] = c->blocks[i] = 0;
			/* the segment may be in use again before a turn reads on: segments before it would then be left out */
			if (c->resume.segment == i)
				c->resume.segment = -1;
		}
}

/*
 * Whether another segment became current since the segments were listed. It may be one of them, which was emptied
 * meanwhile: then the oldest of the list has the newest rows.
 */
static bool
has_switched(const ShardCursor *c)
{
#ifdef SHARD_MUTANT_LIST_BELIEVED
	return false;
#endif
	pg_read_barrier();
	return pg_atomic_read_u64(&c->db->log.switches) != c->switches;
}

/*
 * Reads the list of segments and their sizes. Their locks are not kept in a turn: rotation would seldom find a segment
 * free. So a segment may be emptied between the list and the look at its file, and be the current one again.
 */
void
shard_cursor_open(ShardCursor *c, bool keep)
{
	do
	{
		CHECK_FOR_INTERRUPTS();
		list_segments(c, keep);
	} while (has_switched(c));
	c->kept = keep;

	c->begun = c->overtaken = false;
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

void
shard_cursor_close(ShardCursor *c)
{
	if (c->rel != NULL)
		table_close(c->rel, AccessShareLock);
	c->rel = NULL;
	forget_large(c);
}

void
shard_cursor_forget_turn(ShardCursor *c)
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
shard_cursor_has_passed(const ShardCursor *c, int64 seq)
{
	return (drained_all(c) || shard_cursor_senders_empty(&c->senders)) &&
		   seq <= Max(c->upto, c->floor);
}

bool
shard_cursor_was_overtaken(const ShardCursor *c)
{
	return c->overtaken;
}

bool
shard_cursor_is_past(const ShardCursor *c, int64 seq)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (owns(c, lane) && ((int64) pg_atomic_read_u64(&c->db->lane[lane].cursor_seq) <= seq ||
							  (int64) pg_atomic_read_u64(&c->db->lane[lane].needed) <= seq))
			return false;
	return true;
}

bool
shard_cursor_would_help(const ShardCursor *c, int64 seq)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		int64 needed = pg_atomic_read_u64(&c->db->lane[lane].needed);

		if (!owns(c, lane))
			continue;
		if ((int64) pg_atomic_read_u64(&c->db->lane[lane].cursor_seq) <= seq)
			return true;
		if (needed <= seq && c->keep[lane] > needed &&
			Min(Max(c->q[lane], c->upto) + 1, shard_cursor_senders_first(&c->senders, lane)) >
				needed)
			return true;
	}
	return false;
}

/* Settles P for this turn, once, before it is written or committed. */
static void
settle_senders(ShardCursor *c)
{
	if (!c->begun)
		return;
	shard_cursor_senders_drained(&c->senders, drained_all(c) ? PG_INT64_MAX : c->drained);
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
		record->group[g].lanes |= shard_lane_bit(lane);
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

/* Publishes the lowest seq that a lane needs. */
static void
publish_needed(ShardCursor *c, int lane)
{
	pg_atomic_write_u64(&c->db->lane[lane].needed, Min(c->needed[lane], c->keep[lane]));
}

void
shard_cursor_keep(ShardCursor *c, int lane, int64 seq)
{
	if (c->keep[lane] == seq)
		return;
	c->keep[lane] = seq;
	publish_needed(c, lane);
}

bool
shard_cursor_has_left(const ShardCursor *c, int64 seq)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (owns(c, lane) &&
			(c->q[lane] < seq || shard_cursor_senders_first(&c->senders, lane) <= seq))
			return false;
	return true;
}

bool
shard_cursor_has_met(const ShardCursor *c, int64 seq)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (owns(c, lane) && Max(c->q[lane], c->upto) < seq)
			return false;
	return true;
}

void
shard_cursor_publish(ShardCursor *c)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		ShardLane *shared = &c->db->lane[lane];

		if (!owns(c, lane))
			continue;
		pg_atomic_write_u64(&shared->q, c->q[lane]);
		publish_needed(c, lane);
		pg_atomic_write_u64(&shared->cursor_seq, c->record_seq[lane]);
	}
}

void
shard_cursor_committed(ShardCursor *c, int64 record_seq)
{
	if (record_seq == 0)
		settle_senders(c);
	shard_cursor_senders_committed(&c->senders);
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (owns(c, lane))
		{
			c->q[lane] = Max(c->q[lane], c->upto);
			if (record_seq != 0)
			{
				c->turn[lane]++;
				c->record_seq[lane] = record_seq;
				c->needed[lane] =
					Min(c->q[lane] + 1, shard_cursor_senders_first(&c->senders, lane));
			}
		}
	if (c->begun && c->phase == PHASE_FORWARD)
	{
		c->resume = c->new_resume;
		c->void_places = false;
	}
	if (record_seq != 0)
		shard_cursor_publish(c);
	shard_cursor_forget_turn(c);
}

void
shard_cursor_aborted(ShardCursor *c)
{
	/* the abort has closed it */
	c->rel = NULL;
	forget_large(c);
	shard_cursor_senders_aborted(&c->senders);
	c->upto = 0;
	shard_cursor_forget_turn(c);
}
