/*
 * registry/catalog.h
 *		OIDs of the extension's own objects, and "is the extension here".
 *
 * OIDs are cached per process and looked up again after an invalidation of one of its tables (DROP EXTENSION, CREATE
 * EXTENSION).
 */
#pragma once

#include "shard.h"

typedef struct ShardCatalog
{
	Oid extension;
	Oid schema;		   /* "shard" */
	Oid public_schema; /* the extension's schema: shard_tell and so on */
	Oid node;
	Oid type;
	Oid held;
	Oid dead_letter;
	Oid timer;
	Oid timer_pkey;
	Oid timer_due;
	Oid segment[SHARD_SEGMENTS];
	Oid touched; /* function shard.state_touched() */
} ShardCatalog;

/* NULL if the extension is not in this database. Needs a transaction. */
extern const ShardCatalog *shard_catalog_find(void);

/* The same with error 55000 and a hint. */
extern const ShardCatalog *shard_catalog_get(void);

/*
 * Takes the shared lock of the extension, once per transaction, before anything else of the extension (W3): DROP and
 * ALTER EXTENSION wait for its holders, and no cycle arises. With nowait, false if another session holds it alone,
 * or held it a moment ago and dropped the extension; error 55000 if that was gone before. It is no lock that SQL can name.
 */
extern bool shard_catalog_lock(bool nowait);

/*
 * Takes it exclusively: no session sends, and no turn begins, until the transaction has ended. With nowait, false if
 * another session has it. True without a lock if the extension is not here. The caller has looked at rights before:
 * senders wait behind a session that waits here.
 */
extern bool shard_catalog_lock_alone(bool nowait);

/* Registers the invalidation callbacks; from _PG_init. */
extern void shard_catalog_init(void);
