/*
 * log/log_position.c
 *		Which rows of the log are handled, as a snapshot sees it (D4).
 *
 * A lane's position is in the newest cursor row that names it. Read with the
 * reader's own snapshot, position and rows fit together: what the snapshot
 * does not see handled, it sees waiting.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "core/base/message.h"
#include "log/log_position.h"
#include "log/log_read.h"

#include "base/compat.h"

typedef struct Search
{
	ShardLogPositions *positions;
	MemoryContext context; /* of the result */
} Search;

static bool
is_cursor(const ShardRowFixed *row, void *arg)
{
	return row->kind == SHARD_KIND_CURSOR;
}

/*
 * Takes over a cursor row for the lanes that it names and that have no newer one.
 */
static void
take_cursor(const ShardRow *row, void *arg)
{
	Search *search = arg;
	MemoryContext old = MemoryContextSwitchTo(search->context);
	ShardRecord record;

	shard_cursor_record_read(&record, row->payload, row->payload_len);
	for (int g = 0; g < record.groups; g++)
		for (int lane = 0; lane < SHARD_LANES; lane++)
		{
			ShardLogPosition *position = &search->positions->lane[lane];

			if ((record.group[g].lanes & shard_lane_bit(lane)) == 0 ||
				position->record_seq > row->seq)
				continue;
			*position =
				(ShardLogPosition){row->seq, record.group[g].q, record.senders, record.sender};
		}
	MemoryContextSwitchTo(old);
}

/*
 * Older segments have older cursors only.
 */
static bool
has_all_lanes(void *arg)
{
	Search *search = arg;

	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (search->positions->lane[lane].record_seq == 0)
			return false;
	return true;
}

/*
 * The lowest seq that a lane may still have to handle.
 */
static int64
needed_by(const ShardLogPosition *position, int lane)
{
	int64 needed = position->q + 1;

	for (int i = 0; i < position->senders; i++)
		if (position->sender[i].lanes & shard_lane_bit(lane))
			needed = Min(needed, position->sender[i].first);
	return needed;
}

/*
 * Where to look first: where the workers say that their newest cursor rows are.
 * A snapshot may be too old to see those.
 */
static int64
guess_start(void)
{
	ShardDatabase *db = shard_shmem_database();
	int64 start = PG_INT64_MAX;

	if (db == NULL)
		return 0;
	for (int lane = 0; lane < SHARD_LANES; lane++)
		start = Min(start, (int64) pg_atomic_read_u64(&db->lane[lane].cursor_seq));
	return start;
}

void
shard_log_position_read(Snapshot snapshot, ShardLogPositions *positions)
{
	Search search = {positions, CurrentMemoryContext};
	ShardLogScan scan = {
		.snapshot = snapshot,
		.from = guess_start(),
		.payload = true,
		.want = is_cursor,
		.visit = take_cursor,
		.arg = &search,
		.enough = has_all_lanes,
	};

	memset(positions, 0, sizeof(ShardLogPositions));
	shard_log_read(&scan);
	if (scan.from > 0 && !has_all_lanes(&search))
	{
		scan.from = 0;
		shard_log_read(&scan);
	}
	positions->lowest = PG_INT64_MAX;
	for (int lane = 0; lane < SHARD_LANES; lane++)
		positions->lowest = Min(positions->lowest, needed_by(&positions->lane[lane], lane));
}

bool
shard_log_position_handled(const ShardLogPositions *positions, const ShardRowFixed *row)
{
	int lane = shard_log_lane(row);
	const ShardLogPosition *position = &positions->lane[lane];

	if (row->seq > position->q)
		return false;
	for (int i = 0; i < position->senders; i++)
	{
		const ShardRecordSender *sender = &position->sender[i];

		if (sender->xid == row->sender && (sender->lanes & shard_lane_bit(lane)) != 0 &&
			row->seq >= sender->first)
			return false;
	}
	return true;
}
