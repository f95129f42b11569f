/*
 * shared/gate.h
 *		The release gate: whether a commit may be shown outside this database (G1, G4).
 *
 * Every output that another shard, node or client can observe asks the gate. The gate alone compares LSNs: what it
 * looks at will change (section 10).
 */
#pragma once

#include "access/xlogdefs.h"
#include "datatype/timestamp.h"

#include "shard.h"

/* Whether the commit that ends at lsn may be shown now. Takes no long lock and never waits. */
extern bool shard_gate_released(XLogRecPtr lsn);

/* A position in WAL after every commit so far, of all processes, that can be flushed. */
extern XLogRecPtr shard_gate_newest(void);

/*
 * Waits until the commit may be shown; flushes WAL if need be. Serves interrupts, so an
 * error may end the wait: the commit stands, but may be forgotten by a crash.
 */
extern void shard_gate_wait(XLogRecPtr lsn);

/* The same, for this time at most; false if the commit may not be shown yet then. */
extern bool shard_gate_wait_for(XLogRecPtr lsn, int64 microseconds);

/* The gate to the standbys, as it is now, for shard_health. A time of 0: nothing waits, or no standby is missing. */
typedef struct ShardGateLook
{
	int wanted;	   /* synchronous standbys that it takes; 0: none are named */
	int connected; /* of these, those that stream */
	TimestampTz waits_since;
	TimestampTz alone_since; /* fewer are connected than it takes */
} ShardGateLook;

/* Control workers, at least once a second: notes since when standbys are missing. */
extern void shard_gate_watch(void);

/* False: no standbys take part; the gate is this server's flushed WAL alone. */
extern bool shard_gate_look(ShardGateLook *look);
