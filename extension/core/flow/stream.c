/*
 * core/flow/stream.c
 *		Streams: dense sequences from one lane of a node to another node (X1-X5).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/flow/stream.h"

void
shard_stream_free(ShardStream *stream)
{
	if (stream->begins != NULL)
		pfree(stream->begins);
	memset(stream, 0, sizeof(*stream));
}

/* Same uuid? Inline, as it is asked per section. */
static bool
same_incarnation(ShardUuid a, ShardUuid b)
{
	return a.high == b.high && a.low == b.low;
}

/*
 * Drop what no peer can name any more: positions below what was acknowledged are a regression,
 * whichever incarnation wrote them. The entry that covers the acknowledged row itself stays.
 */
static void
trim_lineage(ShardStream *stream)
{
	int old = 0;

	while (old + 1 < stream->n_begins && stream->begins[old + 1].first <= stream->acked)
		old++;
	if (old == 0)
		return;
	stream->n_begins -= old;
	memmove(stream->begins, stream->begins + old, stream->n_begins * sizeof(ShardStreamBegin));
}

void
shard_stream_begin(ShardStream *stream, ShardUuid incarnation)
{
	int64 first = stream->last + 1;

	trim_lineage(stream);

	/* An incarnation that appended nothing leaves no trace. */
	if (stream->n_begins > 0 && stream->begins[stream->n_begins - 1].first == first)
		stream->n_begins--;
	if (stream->n_begins == stream->begin_space)
	{
		int space = Max(4, stream->begin_space * 2);

		stream->begins = stream->begins == NULL
							 ? palloc(space * sizeof(ShardStreamBegin))
							 : repalloc(stream->begins, space * sizeof(ShardStreamBegin));
		stream->begin_space = space;
	}
	stream->begins[stream->n_begins].incarnation = incarnation;
	stream->begins[stream->n_begins].first = first;
	stream->n_begins++;

	stream->state = SHARD_STREAM_CLOSED;
	stream->sent = stream->acked;
	stream->ever_sent = stream->last;
}

int64
shard_stream_next(ShardStream *stream)
{
	return ++stream->last;
}

ShardUuid
shard_stream_writer(const ShardStream *stream, int64 seq)
{
	ShardUuid nobody = {0, 0};

	for (int i = stream->n_begins - 1; i >= 0; i--)
	{
		if (stream->begins[i].first <= seq)
			return stream->begins[i].incarnation;
	}
	return nobody;
}

/* Is that row, as the receiver knows it, one that this node wrote? Row 0 is the empty stream. */
static bool
in_lineage(const ShardStream *stream, const ShardStreamPosition *position)
{
	if (position->gen != stream->gen)
		return false;
	if (position->seq == 0)
		return true;
	if (position->seq > stream->last)
		return false;
#ifdef SHARD_MUTANT_LINEAGE_BY_NUMBER
	return true;
#endif

	/* The begin of a generation, as told by hello; the row itself may be gone. */
	if (position->writer.high == 0 && position->writer.low == 0)
		return true;
	return same_incarnation(shard_stream_writer(stream, position->seq), position->writer);
}

ShardStreamState
shard_stream_greeted(ShardStream *stream, const ShardStreamPosition *position)
{
	if (!in_lineage(stream, position))
		stream->state = SHARD_STREAM_ORIGIN_REGRESSED;
	else if (position->seq < Max(stream->acked, stream->truncated))
		stream->state = SHARD_STREAM_RECEIVER_REGRESSED;
	else
	{
		stream->state = SHARD_STREAM_OPEN;
		stream->sent = position->seq;
	}
	return stream->state;
}

void
shard_stream_close(ShardStream *stream)
{
	if (stream->state == SHARD_STREAM_OPEN)
		stream->state = SHARD_STREAM_CLOSED;
}

void
shard_stream_sent(ShardStream *stream, int64 seq)
{
	stream->sent = Max(stream->sent, seq);
	stream->ever_sent = Max(stream->ever_sent, seq);
}

bool
shard_stream_acked(ShardStream *stream, int64 seq)
{
	if (seq <= stream->acked || seq > stream->last)
		return false;
	stream->acked = seq;
	stream->sent = Max(stream->sent, seq);
	stream->ever_sent = Max(stream->ever_sent, seq);
	return true;
}

bool
shard_stream_possibly_sent(const ShardStream *stream, int64 seq)
{
	return seq <= stream->ever_sent;
}

/* How far a generation is ahead of another one: they go round, and have no last one. */
static int32
ahead_of(int32 gen, int32 other)
{
	return (int32) (((uint32) gen - (uint32) other) & PG_INT32_MAX);
}

/*
 * The next generation: within reach of the receiver's generation. Counted within the reach, so that no generation
 * comes again of which something may still be stored.
 */
static int32
next_generation(int32 gen, int32 heard)
{
#ifdef SHARD_MUTANT_GENERATION_BY_NUMBER
	return (int32) (((uint32) Max(gen, heard) + 1) & PG_INT32_MAX);
#else
	uint32 step = 1 + ((uint32) gen - (uint32) heard) % SHARD_STREAM_REACH;

	return (int32) (((uint32) heard + step) & PG_INT32_MAX);
#endif
}

void
shard_stream_accept(ShardStream *stream, const ShardStreamPosition *position)
{
	stream->gen = next_generation(stream->gen, position->gen);
	stream->acked = stream->last;
	stream->truncated = stream->last;
	stream->sent = stream->last;
	stream->state = SHARD_STREAM_CLOSED;
}

ShardStreamVerdict
shard_stream_greet(ShardStreamPosition *position, int32 from_inc, int32 gen, int64 base)
{
	if (from_inc < position->inc)
		return SHARD_STREAM_FENCED;
	position->inc = from_inc;
#ifdef SHARD_MUTANT_GENERATION_LEAPS
	if (gen > position->gen)
#else
	if (gen != position->gen && ahead_of(gen, position->gen) <= SHARD_STREAM_REACH)
#endif
	{
		memset(&position->writer, 0, sizeof(position->writer));
		position->gen = gen;
		position->seq = base;
	}
	return SHARD_STREAM_TAKE;
}

ShardStreamVerdict
shard_stream_receive(const ShardStreamPosition *position, int32 from_inc, int32 gen,
					 int64 first_seq, int n_rows, int *skip)
{
	*skip = 0;
	if (from_inc < position->inc)
		return SHARD_STREAM_FENCED;
	if (from_inc > position->inc || gen != position->gen)
		return SHARD_STREAM_HELLO_FIRST;
#ifndef SHARD_MUTANT_NO_GAP_CHECK
	if (first_seq > position->seq + 1)
		return SHARD_STREAM_GAP;
#endif
	if (first_seq <= position->seq)
		*skip = (int) Min(position->seq - first_seq + 1, (int64) n_rows);
#ifdef SHARD_MUTANT_SKIP_OFF_BY_ONE
	if (*skip > 0)
		(*skip)--;
#endif
	return SHARD_STREAM_TAKE;
}

void
shard_stream_took(ShardStreamPosition *position, int64 last_seq, ShardUuid writer)
{
	position->seq = last_seq;
	position->writer = writer;
}
