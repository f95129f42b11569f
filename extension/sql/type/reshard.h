/*
 * sql/type/reshard.h
 *		Entities on their way to other shards: what the procedure and its tables share (doc/protocol/resharding.md).
 */
#pragma once

#include "registry/registry.h"

#include "sql/type/admin.h"

/* A row of shard.reshard. */
typedef struct ShardReshard
{
	int32 type_id;
	int32 number_of_shards;
	const char *hash;
	const char *extractor; /* NULL: the hash */
	bool moving;		   /* the cluster has the type no more */
	int32 next_shard;
	int64 entities;
} ShardReshard;

/*
 * reshard_check.c, errors: unless the type is stopped, with its states, all of its shards are here and none moves, as the
 * system; and at a node that leaves, whose shards all go elsewhere.
 */
extern void shard_reshard_check_still(const ShardAdminType *type);
extern void shard_reshard_check_stays(const char *name);

/*
 * reshard_row.c: the row. As the system, connected to SPI. Read locks it; its texts outlive SPI. False: there is none.
 */
extern bool shard_reshard_read(int32 type_id, ShardReshard *reshard);
extern void shard_reshard_write(const ShardReshard *reshard);
extern void shard_reshard_delete(int32 type_id);

/*
 * A node that is alone numbers its types by itself: it gives no type the number that the cluster has given, also if this
 * transaction is rolled back. Not as the system.
 */
extern void shard_reshard_number_given(int32 number);

/* For shard_start(): error if entities of the type are on their way; a way that has not begun is given up. */
extern void shard_reshard_end_or_refuse(const ShardAdminType *type);

/*
 * reshard_rows.c: waits for sessions that send dead letters of the type again, or discard them, before senders wait for us;
 * 55P03 after ten seconds. Later ones wait for the end of this transaction. Not as the system.
 */
extern void shard_reshard_lock_letters(int32 type_id);

/*
 * reshard_rows.c: gives all that is kept by the number of the type its new number, and its shard by the type to come,
 * whose extractor runs as a guest. Not as the system; in the transaction that is open.
 */
extern void shard_reshard_rows(int32 type_id, int32 number, ShardType *target);
