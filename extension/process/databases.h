/*
 * process/databases.h
 *		The launcher's view of pg_database.
 */
#pragma once

#include "shared/shmem.h"

/* What pg_database said about the database of a slot. */
typedef enum ShardStanding
{
	SHARD_STANDING_UNKNOWN, /* the slot was made since the last look */
	SHARD_STANDING_GONE,	/* dropped */
	SHARD_STANDING_CLOSED,	/* a template, or does not allow connections */
	SHARD_STANDING_OPEN
} ShardStanding;

/* Reads pg_database, in a transaction of its own. */
extern void shard_databases_read(void);

/* Where the database of a slot stood at the last look. */
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
