/*
 * core/base/quiet.c
 *		How often lines of one kind about one node are written.
 *
 * The clock may be set back: what was written later than now counts as over, or its kind were silent for as long as the
 * clock was ahead.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/quiet.h"

static bool
is_over(const ShardQuiet *entry, int64 now)
{
#ifdef SHARD_MUTANT_QUIET_UNTIL_THE_CLOCK_IS_BACK
	return entry->since == 0 || now - entry->since > SHARD_QUIET;
#endif
	return entry->since == 0 || now < entry->since || now - entry->since > SHARD_QUIET;
}

/* The entry of a kind and a node, else one that is of no use any more, else the one of all. */
static ShardQuiet *
find(ShardQuiet *entries, int count, int32 node, uint64 kind, int64 now)
{
	ShardQuiet *free = NULL;

	for (int i = 0; i < count; i++)
	{
		ShardQuiet *entry = &entries[i];

		if (entry->since != 0 && entry->node == node && entry->kind == kind)
			return entry;
		if (is_over(entry, now) && (free == NULL || entry->since < free->since))
			free = entry;
	}
	if (free == NULL)
		return &entries[count];
	*free = (ShardQuiet){.kind = kind, .node = node};
	return free;
}

bool
shard_quiet_may(ShardQuiet *entries, int count, int32 node, uint64 kind, int64 now, int64 *left_out)
{
	ShardQuiet *entry = find(entries, count, node, kind, now);
	bool may = is_over(entry, now);

	*left_out = may ? entry->left_out : 0;
	entry->since = may ? now : entry->since;
	entry->left_out = may ? 0 : entry->left_out + 1;
	return may;
}
