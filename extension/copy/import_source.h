/*
 * copy/import_source.h
 *		The old home of a shard, as a backend that copies calls it.
 *
 * One connection for the life of the backend, to the node that was called last. One call at a time; it may
 * be answered while this process does something else.
 */
#pragma once

#include "lib/stringinfo.h"

/*
 * Connects, unless the connection stands; waits, for so long at most. With nothing held. Raises what
 * fails.
 */
extern void shard_import_source_open(int32 node, const char *dsn, int timeout_ms);

/* Begins a call of shard_peer.export(), and does not wait. */
extern void shard_import_source_ask(const StringInfoData *call, int timeout_ms);

/* Waits for the answer, palloc'd. Serves interrupts; raises what fails. */
extern char *shard_import_source_take(int *length);
