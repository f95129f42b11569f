/*
 * entity/replica_pass.h
 *		The records of some copies of one type that are to be applied, and the newest image of each row in them (Q10).
 *
 * Memory of the caller's, which it resets when the pass is over.
 */
#pragma once

#include "utils/hsearch.h"

#include "core/flow/record.h"
#include "shared/copy_set.h"

/* A record that was read. */
typedef struct ShardReplicaPassRecord
{
	int64 turn;
	int64 seq; /* of its row of the log; 0: it was in the table */
	const char *bytes;
	int length;
} ShardReplicaPassRecord;

typedef struct ShardReplicaPassCopy
{
	ShardCopySetItem item; /* as when the pass began */
	int64 to;			   /* up to this turn all may be applied */
	int64 applied;		   /* as of the last commit; */
	int64 reached;		   /* as of this pass */
	const char *columns;   /* of images that come next */
	int columns_len;
	bool told;			 /* they are others than before the pass */
	const char *said;	 /* why its next record was not applied, as its row says; NULL: it was; */
	const char *problem; /* as of this pass */
	ShardReplicaPassRecord *records;
	int n_records; /* of applied + 1, and so on */
	int space;
} ShardReplicaPassCopy;

typedef struct ShardReplicaPassImageKey
{
	int copy;
	int len;
	const char *entity;
} ShardReplicaPassImageKey;

typedef struct ShardReplicaPassImage
{
	ShardReplicaPassImageKey key;
	ShardTurnImage image;
	const char *columns;
	int columns_len;
} ShardReplicaPassImage;

typedef struct ShardReplicaPass
{
	int32 type_id;
	int32 self;
	Oid table;
	ShardReplicaPassCopy *copies; /* by shard */
	int n_copies;
	int64 bytes; /* of records */
	bool full;	 /* there may be more than this pass takes */
	HTAB *images;
	HTAB *rows; /* what the records have beside states (replica_rows.h) */
} ShardReplicaPass;

/* A pass over copies of one type, in the order of their shards. */
extern ShardReplicaPass *
shard_replica_pass_begin(const ShardCopySetItem *items, int count, int32 self);

/*
 * In the transaction, when applied and columns of each copy are set: reads what is to be applied, about 8 MB, and sets
 * what the copies reach by it; problem, where a copy cannot go on, since its next record is gone, damaged, or of a newer version.
 */
extern void shard_replica_pass_read(ShardReplicaPass *pass);

/*
 * After the commit: the next pass looks for records of the copy behind those that are applied; or, as its next one cannot be
 * applied, it is left alone for a while.
 */
extern void shard_replica_pass_note(const ShardReplicaPassCopy *copy);
extern void shard_replica_pass_rest(const ShardReplicaPassCopy *copy, int64 until);
extern bool shard_replica_pass_rests(const ShardCopySetKey *copy, int64 now);
