/*
 * copy/timer_copy.h
 *		Timers of a shard that moves (E36): from the table of the old home, into that of the new one.
 */
#pragma once

#include "core/flow/copy.h"

/*
 * Appends timers behind the key, as many as have left bytes, one at least, to rows, and the key of the last to next.
 * Returns how many; *all: there are no more. As the system.
 */
extern int32 shard_copy_timers_put(int32 type_id, int32 shard, const char *after, int after_len,
								   int left, StringInfo rows, StringInfo next, bool *all);

/* Stores a timer, whose texts were checked. As the system. */
extern void shard_copy_timers_store(int32 type_id, int32 shard, const ShardCopyTimer *timer);
