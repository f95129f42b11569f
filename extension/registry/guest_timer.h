/*
 * registry/guest_timer.h
 *		How long a guest may stay: the handler_timeout of its type.
 */
#pragma once

#include "datatype/timestamp.h"

#include "registry/registry.h"

/*
 * A guest of that type comes. A guest that is here already has its own time, which is not lengthened. Returns what to
 * end the stay with.
 */
extern TimestampTz shard_guest_timer_begin(const ShardType *type);

/*
 * The same for a guest that has allowed_ms, and more_ms after that until the session ends; negative: the session does
 * not end.
 */
extern TimestampTz shard_guest_timer_begin_for(int64 allowed_ms, int64 more_ms);

/* The guest goes. True: its time was over; a cancel that came of that is withdrawn. Raises nothing. */
extern bool shard_guest_timer_end(TimestampTz begun);
