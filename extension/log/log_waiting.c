/*
 * log/log_waiting.c
 *		How many messages of a type are in the log that no worker has read yet.
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"

#include "log/log_position.h"
#include "log/log_read.h"
#include "log/log.h"

#include "base/compat.h"

typedef struct Count
{
	int32 type_id;
	bool commands;
	ShardLogPositions positions;
	ShardLogWaiting found;
} Count;

/* What is to be a timer counts as well. */
static bool
is_message(const Count *count, const ShardRowFixed *row)
{
	return row->type_id == count->type_id && row->chunk == 0 &&
		   (count->commands ? shard_kind_is_for_entity(row->kind)
							: shard_kind_is_message(row->kind) || row->kind == SHARD_KIND_SCHEDULE);
}

static bool
is_waiting(const ShardRowFixed *row, void *arg)
{
	const Count *count = arg;

	return is_message(count, row) && !shard_log_position_handled(&count->positions, row);
}

/*
 * Rows of transactions that the snapshot saw as aborted are left out already. A transaction that was open then and has
 * ended since counts as committed, which at worst refuses once too often: for rows that stay unread for long its
 * outcome would not be known any more.
 */
static void
count_row(const ShardRow *row, void *arg)
{
	Count *count = arg;
	TransactionId xid = XidFromFullTransactionId(FullTransactionIdFromU64(row->sender));

	if (TransactionIdIsCurrentTransactionId(xid))
		count->found.own++;
	else if (TransactionIdIsInProgress(xid))
		count->found.open++;
	else
		count->found.committed++;
}

static void
count_pending(const ShardRowFixed *row, void *arg)
{
	Count *count = arg;

	if (is_message(count, row))
		count->found.own++;
}

ShardLogWaiting
shard_log_waiting(int32 type_id, bool commands, Snapshot snapshot)
{
	Count *count = palloc0(sizeof(Count));
	SnapshotData dirty;
	ShardLogScan scan = {.snapshot = &dirty, .want = is_waiting, .visit = count_row, .arg = count};
	ShardLogWaiting found;

	InitDirtySnapshot(dirty);
	count->type_id = type_id;
	count->commands = commands;
	shard_log_position_read(snapshot, &count->positions);
	scan.from = count->positions.lowest;
	shard_log_read(&scan);
	shard_log_each_pending(count_pending, count);
	found = count->found;
	pfree(count);
	return found;
}
