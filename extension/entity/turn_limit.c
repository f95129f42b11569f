/*
 * entity/turn_limit.c
 *		How much of what a turn may take: messages, time, memory; of each source, and of each type, its share
 *		(doc/protocol.md D6, E27).
 *
 * Comes from: the files that begin another message: process/region_turn.c, stash.c, order.c.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "entity/internal.h"
#include "entity/record.h"

#include "base/compat.h"

/*
 * Small messages that have no code of users run take neither time nor memory that counts: one of this many is looked
 * at. They are those for batch handlers, and such as are put into the stash.
 */
#define LOOK_EVERY 16

/*
 * While calls since the clock was read last took no longer than BRIEF_US on average, BRIEF_CALLS of them go by until it
 * is read again: reading it is a noticeable part of a short one. If longer ones follow, the tick of their timer says
 * so.
 */
#define BRIEF_CALLS 16
#define BRIEF_US 50

void
shard_turn_set_limit(int limit, bool exactly)
{
	shard_turn.limit = limit;
	shard_turn.exactly = exactly;
}

void
shard_turn_set_single(bool single)
{
	shard_turn.single = single;
}

/* ---- which type's turn it is -------------------------------------------------------------------- */

/* No other node is there, whose messages and news wait in the log, too. */
static bool one_node = false;

/* Whether nobody else is there who could wait for the only type. */
static inline bool
is_alone(void)
{
	return shard_turn.one_type && one_node;
}

void
shard_turn_set_members(int members)
{
	one_node = members <= 1;
}

/* A turn that looks for a message that failed leaves none out. */
static void
set_line(void)
{
	shard_turn.fair_line = shard_turn.exactly || shard_turn.careful || is_alone()
							   ? PG_INT64_MAX
							   : shard_turn.fair.clock + SHARD_FAIR_AHEAD;
}

void
shard_turn_measure_begin(void)
{
	shard_fair_begin_turn(&shard_turn.fair, shard_turn.ran > 0,
						  shard_turn.read_at == 0 ? 0 : shard_turn.now - shard_turn.read_at);
	shard_turn.read_at = shard_turn.now;
	shard_turn.unread = shard_turn.batched = 0;
	set_line();
}

static void
spend(ShardLocalType *local, TimestampTz now, int calls)
{
	int64 took = now - shard_turn.read_at;

	if (is_alone())
		shard_fair_spend_alone(&shard_turn.fair, &local->share, took);
	else
		shard_fair_spend(&shard_turn.fair, &local->share, took, calls, shard_turn.batched);
	shard_turn.batched = 0;
	set_line();
}

void
shard_turn_measure(ShardLocalType *local, int calls)
{
	TimestampTz now = GetCurrentTimestamp();

	spend(local, now, calls);
	shard_turn.read_at = now;
}

void
shard_turn_join(ShardLocalType *local)
{
	shard_fair_join(&shard_turn.fair, &local->share);
}

void
shard_turn_note_put_off(ShardLocalType *local)
{
	shard_turn_join(local);
	shard_fair_put_off(&shard_turn.fair, &local->share);
}

bool
shard_turn_has_put_off(void)
{
	return shard_turn.fair.next != 0;
}

/* ---- how far each source may go ----------------------------------------------------------------- */

/*
 * Until when a source may go on. One that others have left no time has some of its own; the log has as much as what
 * waited has taken before it, be that one long call.
 */
static TimestampTz
deadline_of(ShardSource source)
{
	static const int64 until[SHARD_SOURCES] = {50000, 75000, 100000, 125000, 125000};
	static const int64 own[SHARD_SOURCES] = {50000, 25000, 25000, 25000, 25000};
	TimestampTz now = GetCurrentTimestamp();
	int64 least = own[source];

	if (source == SHARD_SOURCE_LOG)
		least = Max(least, now - shard_turn.now);
	return Max(shard_turn.now + until[source], now + least);
}

void
shard_turn_begin_source(ShardSource source)
{
	shard_turn.source = source;
	shard_turn.before = shard_turn.count;
	shard_turn.begun = false;
	shard_turn.look = true;
	shard_turn.read_each = 1;
	set_line();
	shard_turn.deadline = deadline_of(source);
}

/* Whether the turn holds as much as it may: states and messages, and entities that it has brought. */
static bool
is_large(void)
{
	int64 bytes = (int64) MemoryContextMemAllocated(shard_turn.context, true);

	bytes += (int64) shard_record_bytes();
	return bytes + shard_cache_bytes() - shard_turn.cached > (int64) shard_cache_turn_limit();
}

bool
shard_turn_is_large(void)
{
	return is_large();
}

/* Whether the source's time is over, as the clock said when it was read last, which may be now. */
static bool
is_past_deadline(void)
{
	TimestampTz now;
	TimestampTz took;

	if (++shard_turn.unread < shard_turn.read_each && !shard_turn.ticked)
		return shard_turn.past;
	shard_turn.ticked = false;
	now = GetCurrentTimestamp();
	took = now - shard_turn.read_at;
	/* a clock that was set back says nothing */
	shard_turn.read_each =
		took >= 0 && took <= (TimestampTz) shard_turn.unread * BRIEF_US ? BRIEF_CALLS : 1;
	if (shard_turn.at != NULL)
		spend(shard_turn.at->local, now, shard_turn.unread);
	shard_turn.unread = 0;
	shard_turn.read_at = now;
	shard_turn.past = now > shard_turn.deadline;
	return shard_turn.past;
}

/* Whether the turn is late, as of the last look if no look is due. */
static bool
is_late(void)
{
	if (!shard_turn.look)
	{
		if (++shard_turn.unlooked < LOOK_EVERY)
			return shard_turn.late;
		shard_turn.read_each = 1; /* no call has a timer running */
	}
	shard_turn.look = false;
	shard_turn.unlooked = 0;
	shard_turn.late = is_large() || is_past_deadline();
	return shard_turn.late;
}

int
shard_turn_count(void)
{
	return shard_turn.count;
}

/* Whether the source at hand ends by the limit alone. */
static inline bool
is_untimed(void)
{
	return shard_turn.exactly && shard_turn.source < SHARD_SOURCE_ASKS;
}

bool
shard_turn_is_over(void)
{
	if (shard_turn.full || (shard_turn.single && shard_turn.ran > 0))
		return true;
	if (shard_turn.count == shard_turn.before && !shard_turn.begun)
		return false;
	return shard_turn.count >= shard_turn.limit || (!is_untimed() && is_late());
}

void
shard_turn_end_soon(void)
{
	shard_turn.full = true;
}

bool
shard_turn_is_late(void)
{
	return is_late();
}

void
shard_turn_put_aside(bool aside)
{
	shard_turn.aside = aside;
}

ShardSource
shard_turn_source(int *before)
{
	*before = shard_turn.before;
	return shard_turn.source;
}

void
shard_turn_pass(void)
{
	shard_turn.count++;
	shard_turn.passed = true;
}

bool
shard_turn_has_passed(void)
{
	return shard_turn.passed;
}
