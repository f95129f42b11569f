/*
 * shared/gate.h
 *		The release gate: whether a commit may be shown outside this database (G1, G4).
 *
 * Every output that another shard, node or client can observe asks it. The gate alone compares LSNs: what it looks at
 * will change (section 10).
 */
#pragma once

#include "access/xlogdefs.h"
#include "datatype/timestamp.h"

#include "shard.h"

/* Whether the commit that ends at lsn may be shown now. Takes no long lock and never waits. */
extern bool shard_gate_released(XLogRecPtr lsn);

/* A position behind every commit so far, of all processes; one that can be flushed. */
extern XLogRecPtr shard_gate_newest(void);

/*
 * Waits until the commit may be shown; flushes WAL if need be. Serves interrupts, so an
 * error may end the wait: the commit stands, but may be forgotten by a crash.
 */
extern void shard_gate_wait(XLogRecPtr lsn);

/* The same, for some microseconds at most; false if that was not enough. */
extern bool shard_gate_wait_for(XLogRecPtr lsn, int64 microseconds);

/* The gate to the standbys, as it is now, for shard_health. Times are 0 if there is nothing to say. */
typedef struct ShardGateLook
{
	int wanted;	   /* synchronous standbys that it takes; 0: none are named */
	int connected; /* of these, streaming */
	TimestampTz waits_since;
	TimestampTz alone_since; /* fewer are connected than it takes */
} ShardGateLook;

/* Control workers, at least once a second: notes since when standbys are missing. */
extern void shard_gate_watch(void);

/* False: the gate is here, and lets pass whatever is flushed. */
extern bool shard_gate_look(ShardGateLook *look);
