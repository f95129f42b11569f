/*
 * process/worker.h
 *		What every background process of the extension does: start, wait, leave.
 */
#pragma once

#include "shared/shmem.h"

/* The argument of a worker's main function: database slot and worker number. */
static inline Datum
shard_worker_argument(int database, int worker)
{
	return Int32GetDatum(database * SHARD_WORKER_SLOTS + worker);
}

/*
 * First call of a worker's main function: signals, attaching to its slot, connection, settings, and a look whether the
 * extension is in the database. Returns the database and the worker's number; otherwise the process ends in there: it
 * is not wanted any more, or there is no extension (which it tells the launcher).
 */
extern ShardDatabase *shard_worker_start(Datum argument, int *worker);

/* The first part of shard_worker_start, for a process without a database: installs the signal handlers. */
extern void shard_worker_signals(void);

/* Sets the settings that a worker runs under, over those of database and role. */
extern void shard_worker_settings(void);

/*
 * Outside a transaction: serves interrupts, and reloads the configuration. Ends the process when the postmaster died,
 * the launcher wants it to leave or shard.enabled is off. To be called between turns; each wait calls it, too.
 */
extern void shard_worker_interrupts(void);

/*
 * Whether the server is shutting down, by the postmaster's file, which it reads.
 */
extern bool shard_worker_server_stops(void);

/*
 * Whether this worker was asked to end by a shutdown of the server and may go on for shard.shutdown_timeout. It ends
 * when the launcher or the control worker tells it to, or somewhat after that time.
 */
extern bool shard_worker_lingers(void);

/* Sets a function that is called once, outside a transaction, before this worker ends in a shutdown of the server. */
extern void shard_worker_at_stop(void (*callback)(void));

/*
 * Waits until another process wakes this worker or time is up (-1: no limit), then does shard_worker_interrupts and
 * clears the wake flag: look for work after it. Returns at once if the flag is set. Must hold no transaction, snapshot
 * or lock. wait_event: ShardWaitEvent of compat.h, kept by the caller. True: it was woken.
 */
extern bool shard_worker_wait(long timeout_ms, uint32 wait_event);

/*
 * Ends the process because the extension is gone: final until CREATE EXTENSION
 * commits again. For a worker that finds it dropped or replaced by another one
 * (other OID). Outside a transaction. Does not return.
 */
extern void shard_worker_leave_absent(void);

/* The pause in ms after this many failures in a row: 0, 1 s, 2 s, 4 s ... 30 s. */
extern int shard_worker_backoff(int failures);
