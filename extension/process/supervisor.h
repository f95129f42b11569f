/*
 * process/supervisor.h
 *		The launcher's workers, region and coordinator: starting, stopping, noticing their end.
 */
#pragma once

#include "shared/shmem.h"

/* A launcher that comes anew takes over what its predecessor started: to stop it. */
extern void shard_supervisor_adopt(void);

/* Notes which workers of a database ended; returns how many are alive. */
extern int shard_supervisor_reap(ShardDatabase *db);

/* How many are alive, as of the last reap and what was started since. */
extern int shard_supervisor_alive(ShardDatabase *db);

/* Starts a worker unless it is alive or has to wait for its back-off. */
extern void shard_supervisor_ensure(ShardDatabase *db, int worker);

/* Whether a worker that runs has other lanes than it is to have. */
extern bool shard_supervisor_has_others_lanes(ShardDatabase *db, int worker);

/* Asks a worker to leave; one that does not is terminated at a later call. */
extern void shard_supervisor_stop(ShardDatabase *db, int worker);

/* How long the worker has been alive, in ms; -1: it is not. */
extern int64 shard_supervisor_age(ShardDatabase *db, int worker);

/* The launcher has to come back at this time, if not earlier. */
extern void shard_supervisor_come_back(TimestampTz at);

/* How long it may sleep, in ms; forgets the times given before. */
extern long shard_supervisor_sleep(void);
