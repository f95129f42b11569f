/*
 * shared/import_progress.h
 *		Copying a shard from its old home to this node, its new one (M4).
 *
 * The control worker asks its own database, over a libpq connection of its own
 * (control_import.c), to CALL shard_peer.import(); that runs in a backend, which pulls the shard
 * from the old home by calls of shard_peer.export(), each of a bounded number of bytes, and stages it in
 * one transaction. How far it is stands in shared memory.
 */
#pragma once

#include "core/map/control.h"
#include "datatype/timestamp.h"
#include "shared/shmem.h"

typedef enum ShardImportPhase
{
	SHARD_IMPORT_NONE = 0,
	SHARD_IMPORT_PREPARING, /* tables are compared, rows are counted */
	SHARD_IMPORT_COPYING,
	SHARD_IMPORT_STAGING, /* everything is here; the transaction ends */
	SHARD_IMPORT_STAGED,
	SHARD_IMPORT_FAILED
} ShardImportPhase;

/* One import of this node, under way or among the last ones. */
typedef struct ShardImportProgress
{
	ShardShardRef shard; /* the epoch and the move to come */
	int32 node;			 /* the old home */
	int pid;			 /* the backend that copies; 0: it has ended */
	ShardImportPhase phase;
	int64 rows_copied;
	int64 rows_total;
	int64 bytes_copied;
	TimestampTz started;
	TimestampTz changed; /* decisions since then are about more than the note */
	char error[256];	 /* of FAILED */
} ShardImportProgress;

/* Importing backend: notes how far the import is. The oldest note of an import that has ended is overwritten. */
extern void shard_import_note(ShardDatabase *db, const ShardImportProgress *progress);

/* Copies of all notes, palloc'd; *count: their number. */
extern ShardImportProgress *shard_import_list(ShardDatabase *db, int *count);

extern const char *const shard_import_phase_names[];

/* The part of shared memory for imports. */
extern const ShardShmemPart shard_import_part;
