/*
 * registry/identity.h
 *		The identity of this database: table shard.node (doc/protocol/members.md).
 *
 * The identity that the control plane works with is in table shard.control; this row tells it to
 * people, and says by which a copy is recognized: server, database, timeline.
 */
#pragma once

#include "core/map/record.h"
#include "shared/shmem.h"

/*
 * Whether this is the database that shard.node describes: not a copy made by
 * CREATE DATABASE or pg_restore, nor another server (I2). If it is not, says so
 * once in the log and in db->paused; nothing may be handled then. Needs a
 * snapshot.
 */
extern bool shard_identity_is_clear(ShardDatabase *db);

/* The columns that the control plane fills in. */
typedef struct ShardIdentity
{
	ShardUuid cluster;
	int32 node;
	int32 inc_no;
	ShardUuid incarnation;
	int32 timeline;			 /* at the last admission */
	const char *voter_state; /* "ok", "amnesiac", "unused" */
	const char *fenced;		 /* NULL: it is not */
	const char *dsn;		 /* own address; "": none */
} ShardIdentity;

/* Reads the row; texts are palloc'd. Writes it. Both need a snapshot. */
extern void shard_identity_read(ShardIdentity *row);
extern void shard_identity_write(const ShardIdentity *row);

/*
 * Which node of which cluster this is: as the control worker says, or, before it has spoken since the server started, as
 * the row says. Error 55P03 if table shard.node is locked then.
 */
typedef struct ShardIdentityName
{
	ShardUuid cluster;
	int32 node;
} ShardIdentityName;

extern ShardIdentityName shard_identity_name(void);

/*
 * Error 55000 unless senders may send here: as the control worker says, or, before it has spoken
 * since the server started, as the row and what was learned of this node's member and of types say. Error 55P03 if one
 * of these tables is locked then.
 */
extern void shard_identity_check_open(void);

/* The server's timeline now. */
extern int32 shard_identity_timeline(void);

/*
 * Whether any recovery that left the timeline since, or one after it, on the way to this one ended at a recovery
 * target; true if that is unknown, too.
 */
extern bool shard_identity_was_restored(int32 timeline, int32 since);
