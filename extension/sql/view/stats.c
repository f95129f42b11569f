/*
 * sql/view/stats.c
 *		What runs on this node: rows behind the views of regions and workers.
 *
 * What a region worker has in memory it is asked for over the ring; the rest
 * is read from shared memory, field by field: rows may be a moment apart.
 */
#include "postgres.h"

#include "access/commit_ts.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/numeric.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "core/base/message.h"
#include "log/log_position.h"
#include "link/stream_position_table.h"
#include "log/log_read.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "shared/ring.h"
#include "shared/shmem.h"
#include "sql/view/worker_owners.h"
#include "sql/cluster/worker_survey.h"
#include "sql/send/handler_guard.h"
#include "entity/turn.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_stats_entities);
PG_FUNCTION_INFO_V1(shard_stats_shards);
PG_FUNCTION_INFO_V1(shard_stats_workers);
PG_FUNCTION_INFO_V1(shard_stats_streams);

/* Backlog of each worker, as the reader's snapshot sees it. */
typedef struct Backlog
{
	const ShardDatabase *db;
	ShardLogPositions positions;
	int64 messages[SHARD_MAX_WORKERS];
	uint64 oldest_sender[SHARD_MAX_WORKERS]; /* of the first one that waits */
} Backlog;

/*
 * Asks all workers that run for a report.
 */
static void
collect_reports(FunctionCallInfo fcinfo, ShardRequest *request, const char *what,
				ShardWorkerVisit read_row)
{
	ShardDatabase *db = shard_shmem_database();

	InitMaterializedSRF(fcinfo, 0);
	shard_handler_guard_check("look at regions", SHARD_WAITS_FOR_ITSELF, NULL);
	if (db != NULL)
		shard_worker_survey(db, request, what, read_row, fcinfo->resultinfo);
}

static void
add_readable(ShardType *type, void *arg)
{
	if (shard_security_is_owner(type))
		shard_report_put_type(arg, type->type_id);
}

/*
 * shard.region_entities() returns setof record
 *
 * Of the types whose entities the caller may know. Workers make no list for a user that may know none: all users may
 * ask, and all owners would wait for it.
 */
Datum
shard_stats_entities(PG_FUNCTION_ARGS)
{
	ShardRequest request = {.kind = SHARD_REQUEST_ENTITIES};
	StringInfoData types;

	initStringInfo(&types);
	if (!superuser())
	{
		shard_registry_catch_up();
		shard_registry_each(add_readable, &types);
		request.payload = types.data;
		request.payload_len = types.len;
	}
	if (request.payload != NULL && types.len == 0)
		InitMaterializedSRF(fcinfo, 0);
	else
		collect_reports(fcinfo, &request, "its entities", shard_report_read_entity);
	return (Datum) 0;
}

/*
 * shard.region_shards() returns setof record
 */
Datum
shard_stats_shards(PG_FUNCTION_ARGS)
{
	ShardRequest request = {.kind = SHARD_REQUEST_STATS};

	collect_reports(fcinfo, &request, "its counts", shard_report_read_shard);
	return (Datum) 0;
}

static bool
is_waiting(const ShardRowFixed *row, void *arg)
{
	Backlog *backlog = arg;

	return shard_kind_is_message(row->kind) && row->chunk == 0 &&
		   !shard_log_position_handled(&backlog->positions, row);
}

static void
count_waiting(const ShardRow *row, void *arg)
{
	Backlog *backlog = arg;
	int lane = shard_message_lane(row->type_id, row->shard);
	int worker = shard_shmem_lane_worker(backlog->db, lane);

	if (backlog->messages[worker]++ == 0)
		backlog->oldest_sender[worker] = row->sender;
}

/*
 * Counts what waits in the log. Seqs have gaps, so it has to be read; what is
 * handled already is not.
 */
static Backlog *
read_backlog(const ShardDatabase *db)
{
	Backlog *backlog = palloc0(sizeof(Backlog));
	ShardLogScan scan = {
		.snapshot = GetActiveSnapshot(),
		.want = is_waiting,
		.visit = count_waiting,
		.arg = backlog,
	};

	backlog->db = db;
	shard_log_position_read(scan.snapshot, &backlog->positions);
	scan.from = backlog->positions.lowest;
	shard_log_read(&scan);
	return backlog;
}

/*
 * How long the oldest message waits. The server keeps the times of commits only
 * with track_commit_timestamp; without, the time since the worker last had
 * nothing to read is an upper bound.
 */
static Datum
lag_of(const Backlog *backlog, int worker, bool *isnull)
{
	TransactionId sender = (TransactionId) backlog->oldest_sender[worker];
	ShardDatabase *db = shard_shmem_database();
	TimestampTz caught_up = pg_atomic_read_u64(&db->worker[worker].caught_up_at);
	TimestampTz sent;
	Interval *lag = palloc0(sizeof(Interval));

	*isnull = false;
	if (backlog->messages[worker] == 0)
		return IntervalPGetDatum(lag);
	if (track_commit_timestamp && TransactionIdGetCommitTsData(sender, &sent, NULL))
		lag->time = Max(GetCurrentTimestamp() - sent, 0);
	else if (shard_shmem_worker_runs(db, worker) && caught_up != 0)
		lag->time = Max(GetCurrentTimestamp() - caught_up, 0);
	else
		*isnull = true;
	return IntervalPGetDatum(lag);
}

/*
 * A worker's lanes as text: 0-15, 1 3-5.
 */
static Datum
format_lanes(ShardLanes lanes)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int lane = shard_lane_next(lanes, 0); lane < SHARD_LANES;)
	{
		int last = shard_lane_next(~lanes, lane) - 1;

		appendStringInfo(&text, text.len > 0 ? " %d" : "%d", lane);
		if (last > lane)
			appendStringInfo(&text, "-%d", last);
		lane = shard_lane_next(lanes, last + 1);
	}
	return CStringGetTextDatum(text.data);
}

/*
 * Messages per turn, with one digit.
 */
static Datum
batch_average(uint64 messages, uint64 turns)
{
	Datum average = DirectFunctionCall2(numeric_div, NumericGetDatum(int64_to_numeric(messages)),
										NumericGetDatum(int64_to_numeric(turns)));

	return DirectFunctionCall2(numeric_round, average, Int32GetDatum(1));
}

/*
 * The row of one worker.
 */
static void
put_worker(ReturnSetInfo *result, ShardDatabase *db, int worker, const Backlog *backlog)
{
	ShardWorkerSlot *slot = &db->worker[worker];
	uint64 messages = pg_atomic_read_u64(&slot->messages);
	uint64 turns = pg_atomic_read_u64(&slot->turns);
	int pid = shard_shmem_worker_pid(db, worker);
	Datum values[15];
	bool nulls[15] = {false};
	int owners;

	values[0] = Int32GetDatum(worker);
	values[1] = Int32GetDatum(pid);
	nulls[1] = pid == 0;
	values[2] = format_lanes(shard_shmem_worker_lanes(db, worker));
	values[3] = Int64GetDatum(messages);
	values[4] = Int64GetDatum(turns);
	nulls[5] = turns == 0;
	if (turns > 0)
		values[5] = batch_average(messages, turns);
	values[6] = Int64GetDatum(pg_atomic_read_u64(&slot->errors));
	values[7] = Int64GetDatum(backlog->messages[worker]);
	values[8] = lag_of(backlog, worker, &nulls[8]);
	values[9] = Int64GetDatum(pg_atomic_read_u64(&slot->cache_entities));
	values[10] = Int64GetDatum(pg_atomic_read_u64(&slot->cache_bytes));
	values[11] = Int64GetDatum(pg_atomic_read_u64(&slot->recounts));
	values[12] = CStringGetTextDatum(shard_worker_owners(db, worker, &owners));
	values[13] = Int64GetDatum(shard_ring_count_open(db, worker));
	values[14] = Int64GetDatum(pg_atomic_read_u64(&slot->void_replies));
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * shard.worker_stats() returns setof record
 */
Datum
shard_stats_workers(PG_FUNCTION_ARGS)
{
	ShardDatabase *db = shard_shmem_database();
	Backlog *backlog;

	InitMaterializedSRF(fcinfo, 0);
	if (db == NULL)
		return (Datum) 0;
	backlog = read_backlog(db);
	shard_each_worker (worker, db)
		put_worker((ReturnSetInfo *) fcinfo->resultinfo, db, worker, backlog);
	return (Datum) 0;
}

/*
 * shard.streams_in() returns setof record
 *
 * Streams from other nodes to this database.
 */
Datum
shard_stats_streams(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ShardPeerPosition *list;
	int count;

	shard_shmem_require();
	InitMaterializedSRF(fcinfo, 0);
	list = shard_stream_position_list(MyDatabaseId, &count);
	for (int i = 0; i < count; i++)
	{
		const ShardPeerPosition *position = &list[i];
		const char *quarantine = shard_stream_position_quarantine(position->quarantine);
		bool nulls[7] = {false};
		Datum values[7] = {Int32GetDatum(position->key.origin),
						   Int32GetDatum(position->key.lane),
						   Int32GetDatum(position->key.channel),
						   Int32GetDatum(position->stream.inc),
						   Int32GetDatum(position->stream.gen),
						   Int64GetDatum(position->stream.seq),
						   quarantine == NULL ? (Datum) 0 : CStringGetTextDatum(quarantine)};

		nulls[lengthof(nulls) - 1] = quarantine == NULL;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
