/*
 * log/cursor_senders.c
 *		P: senders that were in progress when their rows were passed.
 *
 * Entries are keyed (xid, lanes): after the number of workers changed, a
 * worker may hold two entries of one sender for different lanes that were
 * drained to different points. A lane is added to an entry only while the
 * sender is in progress; none of its rows is handled then, so the lower first
 * is right for both.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "log/cursor_private.h"

void
shard_cursor_senders_init(ShardSenders *senders)
{
	memset(senders, 0, sizeof(*senders));
	senders->capacity = 16;
	senders->list = palloc0(senders->capacity * sizeof(ShardSender));
}

bool
shard_cursor_senders_empty(const ShardSenders *senders)
{
	return senders->count == 0;
}

/* The entry of a sender for a lane; with lane < 0 any entry of the sender. */
static ShardSender *
find(ShardSenders *senders, uint64 xid, int lane)
{
	ShardLanes mask = lane < 0 ? SHARD_ALL_LANES : shard_lane_bit(lane);

	for (int i = 0; i < senders->count; i++)
	{
		int at = (senders->memo + i) % senders->count;
		ShardSender *s = &senders->list[at];

		if (s->xid == xid && (s->new_lanes & mask) != 0)
		{
			senders->memo = at;
			return s;
		}
	}
	return NULL;
}

static ShardSender *
add(ShardSenders *senders, uint64 xid)
{
	ShardSender *s;

	if (senders->count == senders->capacity)
	{
		senders->capacity *= 2;
		senders->list = repalloc(senders->list, senders->capacity * sizeof(ShardSender));
	}
	s = &senders->list[senders->count++];
	memset(s, 0, sizeof(*s));
	s->xid = xid;
	return s;
}

void
shard_cursor_senders_add(ShardSenders *senders, uint64 xid, ShardLanes lanes, int64 first)
{
	ShardSender *s = add(senders, xid);

	s->lanes = s->new_lanes = lanes;
	s->first = s->new_first = first;
}

static void
add_place(ShardSenders *senders, ShardSender *s, ShardPlace place)
{
	if (s->places > 0 && s->place[s->places - 1].segment == place.segment &&
		s->place[s->places - 1].block == place.block)
		return;
	if (s->places == s->capacity)
	{
		Size bytes;

		s->capacity = Max(8, s->capacity * 2);
		bytes = s->capacity * sizeof(ShardPlace);
		s->place = s->place == NULL
					   ? MemoryContextAlloc(GetMemoryChunkContext(senders->list), bytes)
					   : repalloc_huge(s->place, bytes);
	}
	s->place[s->places++] = place;
}

void
shard_cursor_senders_note(ShardSenders *senders, uint64 xid, int lane, int64 seq, ShardPlace place)
{
	ShardSender *s = find(senders, xid, lane);

	if (s == NULL)
		s = find(senders, xid, -1);
	if (s == NULL)
	{
		s = add(senders, xid);
		s->new_first = seq;
	}
	s->new_lanes |= shard_lane_bit(lane);
	s->new_first = Min(s->new_first, seq);
	add_place(senders, s, place);
}

bool
shard_cursor_senders_open(ShardSenders *senders, uint64 xid, int lane, int64 seq)
{
	ShardSender *s = find(senders, xid, lane);

	return s != NULL && seq >= s->new_first;
}

bool
shard_cursor_senders_ended(ShardSenders *senders, uint64 xid, int lane, int64 seq)
{
	ShardSender *s = find(senders, xid, lane);

	return s != NULL && s->ended && seq >= s->new_first;
}

void
shard_cursor_senders_forget_places(ShardSenders *senders)
{
	for (int i = 0; i < senders->count; i++)
		senders->list[i].places = senders->list[i].kept = 0;
}

/* By the age of the segment, which is another one for each, and block. */
static int
compare_places(const void *a, const void *b, void *arg)
{
	const ShardPlace *x = a;
	const ShardPlace *y = b;
	const int *age = arg;

	if (x->segment != y->segment)
		return age[x->segment] - age[y->segment];
	return x->block < y->block ? -1 : x->block > y->block;
}

ShardPlace *
shard_cursor_senders_ended_places(const ShardSenders *senders, const int *order, int segments,
								  int *count)
{
	int age[SHARD_SEGMENTS];
	int total = 0;
	int kept = 0;
	ShardPlace *result;

	for (int i = 0; i < SHARD_SEGMENTS; i++)
		age[i] = -1;
	for (int i = 0; i < segments; i++)
		age[order[i]] = i;
	for (int i = 0; i < senders->count; i++)
		if (senders->list[i].ended)
			total += senders->list[i].places;
	*count = 0;
	if (total == 0)
		return NULL;
	result = palloc_extended(total * sizeof(ShardPlace), MCXT_ALLOC_HUGE);
	for (int i = 0; i < senders->count; i++)
	{
		const ShardSender *s = &senders->list[i];

		/* the rows of a segment that is empty now were drained in former turns */
		for (int p = 0; s->ended && p < s->places; p++)
			if (age[s->place[p].segment] >= 0)
				result[kept++] = s->place[p];
	}
	if (kept == 0)
		return NULL;
	qsort_arg(result, kept, sizeof(ShardPlace), compare_places, age);
	*count = 1;
	for (int i = 1; i < kept; i++)
		if (compare_places(&result[i], &result[*count - 1], age) != 0)
			result[(*count)++] = result[i];
	return result;
}

void
shard_cursor_senders_drained(ShardSenders *senders, int64 seq)
{
	for (int i = 0; i < senders->count; i++)
	{
		ShardSender *s = &senders->list[i];

		if (!s->ended)
			continue;
		if (seq == PG_INT64_MAX)
			s->new_lanes = 0;
		else
			s->new_first = Max(s->new_first, seq + 1);
	}
}

int64
shard_cursor_senders_first(const ShardSenders *senders, int lane)
{
	int64 result = PG_INT64_MAX;

	for (int i = 0; i < senders->count; i++)
		if (senders->list[i].new_lanes & shard_lane_bit(lane))
			result = Min(result, senders->list[i].new_first);
	return result;
}

/* Removes the entries without lanes. */
static void
sweep(ShardSenders *senders)
{
	int kept = 0;

	for (int i = 0; i < senders->count; i++)
	{
		ShardSender *s = &senders->list[i];

		s->ended = false;
		if (s->lanes != 0)
			senders->list[kept++] = *s;
		else if (s->place != NULL)
			pfree(s->place);
	}
	senders->count = kept;
	senders->memo = 0;
}

void
shard_cursor_senders_committed(ShardSenders *senders)
{
	for (int i = 0; i < senders->count; i++)
	{
		ShardSender *s = &senders->list[i];

		s->lanes = s->new_lanes;
		s->first = s->new_first;
		s->kept = s->places;
	}
	sweep(senders);
}

void
shard_cursor_senders_aborted(ShardSenders *senders)
{
	for (int i = 0; i < senders->count; i++)
	{
		ShardSender *s = &senders->list[i];

		s->new_lanes = s->lanes;
		s->new_first = s->first;
		s->places = s->kept;
	}
	sweep(senders);
}
