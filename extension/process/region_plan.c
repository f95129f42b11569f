/*
 * process/region_plan.c
 *		How the next turn of a region worker is to be run, after what became of the last one (doc/protocol.md D15).
 *
 * All of it is in memory alone. If the process dies right here, the next one begins with large turns, fails as this one did,
 * and comes to the same message.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "core/base/text.h"
#include "entity/turn.h"
#include "process/region_private.h"
#include "route/routing.h"

#include "base/compat.h"

/* The log has a line of what goes on failing so often. */
#define TELL_MICROSECONDS (60 * USECS_PER_SEC)

/* The search for a message that fails at its commit goes on, with the rest of the messages of the failed turn. */
static bool
goes_on_searching(ShardRegion *region, const ShardTurnResult *result)
{
	if (region->searched == 0)
		return false;
	region->only = SHARD_SOURCES;
	region->searched -= Min(region->searched, Max(result->ran, 1));
	if (region->searched > 0 && result->more)
		return true;
	region->searched = 0;
	region->single = region->careful = false;
	region->limit = SHARD_CAREFUL_MESSAGES;
	return true;
}

/* One that moves shards has not come to what failed before. */
void
shard_region_plan_after_success(ShardRegion *region, const ShardTurnResult *result, bool failed)
{
	region->troubles = 0;
	region->told_at = 0;
	if (result->moves)
		return;
	region->overtaken = 0;
	if (!region->careful_next && goes_on_searching(region, result))
		return;
	if (region->careful_next)
	{
		region->careful_next = false;
		region->careful = true;
		region->limit = region->streak >= 3 ? SHARD_CAREFUL_MESSAGES : 1;
		return;
	}
	if (region->careful)
	{
		if (!failed)
			region->streak = 0;
		region->careful = failed && region->streak >= 3;
		region->limit =
			region->careful ? SHARD_CAREFUL_MESSAGES : Max(region->limit, SHARD_CAREFUL_MESSAGES);
	}
	region->only = SHARD_SOURCES;
	if (!region->careful)
		region->limit = Min(region->limit * 4, SHARD_TURN_MESSAGES);
}

/*
 * The log has a failure that is no message's: the disk, memory, a damaged table, an operator; the first one, and
 * one a minute as long as they go on.
 */
static void
tell_trouble(ShardRegion *region, ErrorData *error)
{
	TimestampTz now = GetCurrentTimestamp();
	ShardWorkerTurns turns;
	MemoryContext old;

	if (region->told_at != 0 && now - region->told_at < TELL_MICROSECONDS)
		return;
	region->told_at = now;
	shard_shmem_turns(region->slot, &turns);
	old = MemoryContextSwitchTo(error->assoc_context);
	error->context =
		psprintf("%s%sturn of region worker %d%s%s%s, one of %d in a row that failed",
				 error->context != NULL ? error->context : "", error->context != NULL ? "\n" : "",
				 region->number, turns.type_id != 0 ? ", at entity \"" : "",
				 shard_text_shown(turns.entity), turns.type_id != 0 ? "\"" : "", turns.failures);
	MemoryContextSwitchTo(old);
	ThrowErrorData(error);
}

/*
 * A turn in which code of this many messages ran has failed at its commit, where none of them is at hand. So the same
 * messages run in shorter turns, at last one by one: then there is no doubt. Each turn that fails may have waited for a
 * server far away, so the search takes few of them.
 */
static void
search(ShardRegion *region, int ran, ShardSource only)
{
	region->limit = Max(ran / SHARD_CAREFUL_MESSAGES, SHARD_CAREFUL_MESSAGES);
	region->single = ran / SHARD_CAREFUL_MESSAGES < SHARD_CAREFUL_MESSAGES;
	region->careful = region->single;
	region->searched = ran == 1 ? Max(region->searched, 1) : ran;
	region->only = ran == 1 ? only : SHARD_SOURCES;
}

void
shard_region_plan_after_failure(ShardRegion *region, ErrorData *error,
								const ShardTurnFailure *failure)
{
	int count = failure->count;
	bool blamed = failure->blamed;
	ShardSource source;
	int before;
	int draining;

	region->careful_next = false;
	region->only = SHARD_SOURCES;
	if (failure->overtaken && ++region->overtaken < 3)
		return;
	if (failure->ran > 0)
	{
		search(region, failure->ran, failure->only);
		return;
	}
	if (region->careful)
	{
		region->troubles++;
		region->troubled_at = shard_clock_now();
		region->news = false;
		tell_trouble(region, error);
		return;
	}

	/* a message found this way goes first; the search begins again if the failure is met again */
	region->searched = 0;

	/* parked messages that a fact of the log lets go on are not met again one by one */
	source = shard_turn_source(&before);
	if (source == SHARD_SOURCE_LOG && shard_routing_was_draining(&draining))
		count = draining + 1;
	if (blamed)
	{
		region->only = source;
		count -= before;
	}
	region->streak++;
	if (blamed && count > 1)
	{
		region->limit = count - 1;
		region->careful_next = true;
	}
	else if (blamed || count <= SHARD_CAREFUL_MESSAGES || region->limit <= SHARD_CAREFUL_MESSAGES ||
			 shard_routing_has_drained())
	{
		region->careful = true;
		region->limit = blamed && region->streak < 3 ? 1 : SHARD_CAREFUL_MESSAGES;
	}
	else
		region->limit = Max(SHARD_CAREFUL_MESSAGES, count / 2);
}
