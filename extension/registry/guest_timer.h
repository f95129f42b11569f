/*
 * registry/guest_timer.h
 *		How long a guest may stay: the handler_timeout of its type, and in a worker of another owner not that long.
 */
#pragma once

#include "datatype/timestamp.h"

#include "registry/registry.h"

/*
 * A guest of that type comes. stranger: code of another owner than the one that calls it, which in a worker has
 * SHARD_GUEST_STRANGER_MS at most: all of the caller's entities wait meanwhile. A guest that is here already has its own
 * time, which is not lengthened. Returns what to end the stay with.
 */
#define SHARD_GUEST_STRANGER_MS 1000
extern TimestampTz shard_guest_timer_begin(const ShardType *type, bool stranger);

/*
 * The same for a guest that has allowed_ms, and more_ms after that until the session ends; negative: the session does
 * not end.
 */
extern TimestampTz shard_guest_timer_begin_for(int64 allowed_ms, int64 more_ms);

/* Is this process a region worker, whose handlers are called again when they have failed? */
extern bool shard_guest_timer_is_worker(void);

/* The guest goes. True: its time was over; a cancel that came of that is withdrawn. Raises nothing. */
extern bool shard_guest_timer_end(TimestampTz begun);
