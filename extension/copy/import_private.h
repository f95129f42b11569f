/*
 * copy/import_private.h
 *		What the import's files share: the link to the old home, and the rows that are staged.
 */
#pragma once

#include "lib/stringinfo.h"

#include "core/flow/copy.h"
#include "core/flow/route.h"
#include "registry/security.h"
#include "entity/state_copy.h"

/*
 * ---- import_source.c: The old home of a shard, as a backend that copies calls it.
 *
 * One connection for the life of the backend, to the node that was called last. One call at a time; the old home may
 * answer it while this process does something else.
 */

/*
 * Connects, unless the connection stands; waits for timeout_ms at most, with nothing held. Raises errors of the
 * connection.
 */
extern void shard_import_source_open(int32 node, const char *dsn, int timeout_ms);

/* Begins a call of shard_peer.export(), without waiting for its answer. */
extern void shard_import_source_ask(const StringInfoData *call, int timeout_ms);

/* Waits for the answer, palloc'd. Serves interrupts; raises errors of the connection and of the old home. */
extern char *shard_import_source_take(int *length);

/*
 * ---- import_stage.c: A shard that is copied to this node, in the one transaction that stages it (M4).
 *
 * The caller has begun the transaction, with the lock on the extension object; no snapshot is pushed. Before
 * anything else it takes shard_import_stage_lock().
 */

typedef struct ShardImportStage
{
	const ShardType *type;
	ShardShardRef shard; /* the epoch to come, and the move */
	int32 node;			 /* the old home, */
	int32 self;			 /* this node */
	ShardStateCopy copy;
	ShardSecurity security;
	int32 last_node; /* the greatest number of a node, as it was learned when the copy began */
	int64 seq;		 /* of the last message that waits */
	int64 wanted[SHARD_COPY_PARTS];
	int64 rows[SHARD_COPY_PARTS]; /* stored so far */
} ShardImportStage;

/* What another transaction has locked. */
typedef enum ShardImportBusy
{
	SHARD_IMPORT_FREE = 0, /* nothing */
	SHARD_IMPORT_TABLE_BUSY,
	SHARD_IMPORT_SHARD_BUSY
} ShardImportBusy;

/*
 * Locks the state table; for rows the shard too, against other copies. Does not wait for locks: unless it returns FREE,
 * the caller commits, waits with nothing held, and tries again.
 */
extern ShardImportBusy shard_import_stage_lock(const ShardImportStage *stage, bool rows);

/*
 * Raises an error unless the type's table here can take the old home's columns. In a transaction of its own, or before
 * begin.
 */
extern void shard_import_stage_check(ShardImportStage *stage, ShardReader columns);

/* Makes room: removes what is left of the shard here. */
extern void shard_import_stage_begin(ShardImportStage *stage, ShardReader columns);

/* Stores the rows of a chunk. */
extern void shard_import_stage_take(ShardImportStage *stage, const ShardCopyChunk *chunk);

/* All rows have come: raises an error unless their numbers are those that the old home announced. Triggers fire. */
extern void shard_import_stage_complete(ShardImportStage *stage);

/*
 * Last: takes the lane's turn lock, looks at the ownership row once more, and writes there that the shard is staged.
 * Returns what the row says of the import; anything but DO: nothing was changed. The caller commits at once.
 */
extern ShardHandoffAnswer shard_import_stage_own(ShardImportStage *stage);

/* Reads the ownership row, and judges the import by it. own: NULL, or the row. */
extern ShardHandoffAnswer shard_import_stage_judge(ShardImportStage *stage, ShardOwn *own);

/* Appends a row of the log, in the running transaction, that has the lane's worker read the ownership row again. */
extern void shard_import_stage_announce(const ShardImportStage *stage);
