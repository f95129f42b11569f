/*
 * process/launcher.h
 *		The launcher: the process that starts and stops the workers of all databases.
 */
#pragma once

#include "shared/shmem.h"

/* ---- launcher.c: The process that starts and stops the workers of all databases ---- */

/* Registers the launcher and the transaction callback of CREATE EXTENSION; from _PG_init. */
extern void shard_launcher_init(void);

/* ---- supervisor.c: The launcher's workers, region and control: starting, stopping, noticing their end ---- */

/* A launcher that is started again takes over the workers that its predecessor started, in order to stop them. */
extern void shard_supervisor_adopt(void);

/* Notes which workers of a database ended; returns how many are alive. */
extern int shard_supervisor_reap(ShardDatabase *db);

/* How many workers of a database are alive: those of the last reap, and those started since. */
extern int shard_supervisor_alive(ShardDatabase *db);

/* Starts a worker unless it is alive or has to wait for its back-off. */
extern void shard_supervisor_ensure(ShardDatabase *db, int worker);

/* Whether a running worker has other lanes than the division gives it. */
extern bool shard_supervisor_has_others_lanes(ShardDatabase *db, int worker);

/* Asks a worker to leave. A worker that stays is terminated at a later call. */
extern void shard_supervisor_stop(ShardDatabase *db, int worker);

/* How long the worker has been alive, in ms; -1: it is not. */
extern int64 shard_supervisor_age(ShardDatabase *db, int worker);

/* Whether there was no slot for a worker, of any database, and none has started since. */
extern bool shard_supervisor_lacks_slots(void);

/* The launcher has to come back at this time, if not earlier. */
extern void shard_supervisor_come_back(TimestampTz at);

/* How long the launcher may sleep, in ms. Forgets the times given before. */
extern long shard_supervisor_sleep(void);

/* ---- databases.c: The launcher's view of pg_database ---- */

/* The state of the database of a slot, by pg_database. */
typedef enum ShardStanding
{
	SHARD_STANDING_UNKNOWN, /* the slot was made since the last look */
	SHARD_STANDING_GONE,	/* dropped */
	SHARD_STANDING_CLOSED,	/* a template, or does not allow connections */
	SHARD_STANDING_OPEN
} ShardStanding;

/* Reads pg_database, in a transaction of its own. */
extern void shard_databases_read(void);

/* The state of the database of a slot at the last look. */
extern ShardStanding shard_databases_standing(const ShardDatabase *db);

/*
 * The next open database that has no slot and was not looked into before;
 * InvalidOid if there is none.
 */
extern Oid shard_databases_next(void);

/* The launcher made a slot for a database that shard_databases_next returned. */
extern void shard_databases_slot_made(const ShardDatabase *db);

/*
 * The launcher is about to give a slot back. If the database is still there, it
 * has no extension and is not returned by shard_databases_next again.
 */
extern void shard_databases_slot_lost(const ShardDatabase *db);
