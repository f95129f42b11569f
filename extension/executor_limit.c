/*
 * executor_limit.c
 *		How much of what a turn may take: messages, time, memory; of each source its share (doc/protocol.md D6).
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "executor_private.h"

#include "compat.h"

void
shard_executor_set_limit(int limit, bool exactly)
{
	shard_turn.limit = limit;
	shard_turn.exactly = exactly;
}

void
shard_executor_begin_source(ShardSource source)
{
	/* until when each may go on, in microseconds */
	static const int64 shares[SHARD_SOURCES] = {50000, 75000, 100000, 125000};

	shard_turn.source = source;
	shard_turn.before = shard_turn.count;
	shard_turn.begun = false;
	shard_turn.exactly &= source != SHARD_SOURCE_ASKS;
	shard_turn.deadline = shard_turn.now + shares[source];
}

/* Whether the turn holds as much as it may: states and messages, and entities that it has brought. */
bool
shard_executor_is_large(void)
{
	int64 bytes = (int64) MemoryContextMemAllocated(shard_turn.context, true);

	return bytes + shard_cache_bytes() - shard_turn.cached > (int64) shard_cache_turn_limit();
}

int
shard_executor_count(void)
{
	return shard_turn.count;
}

bool
shard_executor_is_over(void)
{
	if (shard_turn.full)
		return true;
	if (shard_turn.count == shard_turn.before && !shard_turn.begun)
		return false;
	return shard_turn.count >= shard_turn.limit ||
		   (!shard_turn.exactly && shard_executor_is_late());
}

bool
shard_executor_is_late(void)
{
	return shard_executor_is_large() || GetCurrentTimestamp() > shard_turn.deadline;
}

void
shard_executor_put_aside(bool aside)
{
	shard_turn.aside = aside;
}

bool
shard_executor_left_stash(void)
{
	return shard_turn.stash_left;
}

ShardSource
shard_executor_source(int *before)
{
	*before = shard_turn.before;
	return shard_turn.source;
}
