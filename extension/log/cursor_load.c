/*
 * log/cursor_load.c
 *		Reading a worker's position from the log, when it starts, and what else is rebuilt from it.
 *
 * For each lane the newest committed cursor row that names it counts, of whichever worker: the number of workers may
 * have changed.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "log/cursor_private.h"
#include "log/cursor_record.h"

#include "base/compat.h"

/* The function that wants to see the rows of a kind, by kind. */
static ShardCursorVisit visits[SHARD_KIND_REPLY + 1];

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
			if (!owns(c, lane) || (record.group[g].lanes & shard_lane_bit(lane)) == 0 ||
				found[lane].seq > row->seq)
				continue;
			found[lane].seq = row->seq;
			c->q[lane] = record.group[g].q;
#ifdef SHARD_MUTANT_NO_DEDUP
			c->q[lane] -= 20;
#endif
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
		ShardLanes same = 0;

		if (!owns(c, lane) || found[lane].payload.len == 0)
			continue;
		for (int other = lane; other < SHARD_LANES; other++)
			if (owns(c, other) && found[other].seq == found[lane].seq)
				same |= shard_lane_bit(other);
		shard_cursor_record_read(&record, found[lane].payload.data, found[lane].payload.len);
		for (int i = 0; i < record.senders; i++)
			if (record.sender[i].lanes & same)
				shard_cursor_senders_add(&c->senders, record.sender[i].xid,
										 record.sender[i].lanes & same, record.sender[i].first);
		for (int other = lane; other < SHARD_LANES; other++)
			if (same & shard_lane_bit(other))
				resetStringInfo(&found[other].payload);
	}
}

/* Whether each lane has its cursor row: older segments have older ones only. */
static bool
has_all(const ShardCursor *c, const Found *found)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (owns(c, lane) && found[lane].seq == 0)
			return false;
	return true;
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
	for (int i = c->segments - 1; i >= 0 && !has_all(c, found); i--)
	{
		shard_cursor_rewind(c, PHASE_LOAD);
		c->next_segment = i;
		c->end_segment = i + 1;
		while (shard_cursor_advance(c, snapshot))
		{
			take_record(c, found, &c->row, scratch);
			c->next_item++;
		}
	}
	take_senders(c, found);
	c->void_places = true;
	c->resume.segment = -1;
	c->upto = 0;
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		c->record_seq[lane] = found[lane].seq;
		c->needed[lane] = Min(c->q[lane] + 1, shard_cursor_senders_first(&c->senders, lane));
	}
	shard_cursor_forget_turn(c);
	shard_cursor_close(c);
	MemoryContextDelete(scratch);
}

void
shard_cursor_register(ShardKind kind, ShardCursorVisit visit)
{
	visits[kind] = visit;
}

void
shard_cursor_revisit(ShardCursor *c)
{
	Snapshot snapshot = GetActiveSnapshot();

	shard_cursor_rewind(c, PHASE_REVISIT);
	while (shard_cursor_advance(c, snapshot))
	{
		ShardKind kind = shard_kind_is_for_entity(c->row.kind) ? SHARD_KIND_TELL : c->row.kind;

		if (visits[kind] != NULL)
			visits[kind](&c->row);
		c->next_item++;
	}
	shard_cursor_forget_turn(c);
	shard_cursor_close(c);
}
