/*
 * registry/guest_timer.h
 *		How long a guest may stay: the handler_timeout of his type.
 */
#pragma once

#include "datatype/timestamp.h"

#include "registry/registry.h"

/*
 * A guest of that type comes. Who is here already has his own time, which is not lengthened. Returns what to end it
 * with.
 */
extern TimestampTz shard_guest_timer_begin(const ShardType *type);

/*
 * The same for whoever has so much time, and so much more until the session ends; negative: it does not.
 */
extern TimestampTz shard_guest_timer_begin_for(int64 allowed_ms, int64 more_ms);

/* He goes. Whether his time was over; what that had cancelled is not any more. Raises nothing. */
extern bool shard_guest_timer_end(TimestampTz begun);
