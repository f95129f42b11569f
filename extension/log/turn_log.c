/*
 * log/turn_log.c
 *		Turn records of shards with replicas, as this node has them: rows of kind TURN of the log, and table shard.turn_kept (Q5, Q7).
 *
 * If the process dies right here: in shard_turn_log_leave() before the commit, the segment is as it was, with its
 * records. After it they are in the table, and the segment is emptied once more.
 *
 * A reader that is not at a worker's start meets a log whose segments may be emptied meanwhile. What it misses in the log
 * has been committed to the table by then: it looks there with a snapshot that is taken afterwards.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "core/base/message.h"
#include "log/log_read.h"
#include "log/session.h"
#include "log/turn_log.h"
#include "registry/catalog.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "shared/copy_set.h"

#include "base/compat.h"

static ShardStatement select_kept = {
	"SELECT record FROM shard.turn_kept WHERE type_id OPERATOR(pg_catalog.=) $1"
	" AND shard OPERATOR(pg_catalog.=) $2 AND turn OPERATOR(pg_catalog.>=) $3"
	" AND turn OPERATOR(pg_catalog.<=) $4 ORDER BY turn LIMIT $5",
	5,
	{INT4OID, INT4OID, INT8OID, INT8OID, INT8OID}};

static ShardStatement insert_kept = {
	"INSERT INTO shard.turn_kept (type_id, shard, turn, epoch, record) VALUES ($1, $2, $3, $4, $5)",
	5,
	{INT4OID, INT4OID, INT8OID, INT4OID, BYTEAOID}};

static ShardStatement replace_kept = {
	"DELETE FROM shard.turn_kept WHERE type_id OPERATOR(pg_catalog.=) $1"
	" AND shard OPERATOR(pg_catalog.=) $2 AND turn OPERATOR(pg_catalog.>=) $3",
	3,
	{INT4OID, INT4OID, INT8OID}};

static ShardStatement forget_kept = {
	"DELETE FROM shard.turn_kept k USING"
	/* unnest() of several arrays is a matter of its bare name, which is not safe to use. */
	" (SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3))"
	" AS r (type_id, shard, turn)) AS n"
	" WHERE k.type_id OPERATOR(pg_catalog.=) n.type_id AND k.shard OPERATOR(pg_catalog.=) n.shard"
	" AND k.turn OPERATOR(pg_catalog.<) n.turn",
	3,
	{INT4ARRAYOID, INT4ARRAYOID, INT8ARRAYOID}};

/* Records that are read from the table at a time: each may be as long as a turn. */
#define FETCH 50

/* ---- rows of the log ------------------------------------------------------------------------------ */

void
shard_turn_log_append(int lane, const char *records, int length)
{
	ShardRow row = {.kind = SHARD_KIND_TURN,
					.shard = lane,
					.entity = "",
					.payload = records,
					.payload_len = length,
					.epoch = -1};

	shard_log_append(&row);
}

/* Raises that records cannot be read. seq: of their row; 0: it is in the table. */
static void
damaged(int64 seq, ShardTurnFault fault)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
					seq != 0 ? errmsg("turn records " INT64_FORMAT " of the inbox are damaged", seq)
							 : errmsg("a turn record in table shard.turn_kept is damaged"),
					errdetail("A record: %s.", shard_turn_fault_names[fault])));
}

/* Visits the records of these bytes. False: no more are wanted. */
static bool
visit_records(const char *bytes, int length, int64 seq, ShardTurnVisit visit, void *arg)
{
	ShardReader reader = {.at = bytes, .end = bytes + length};
	ShardTurnRecord record;
	ShardTurnFault fault;

	while (shard_turn_record_next(&reader, &record, &fault))
		if (!visit(&record, seq, arg))
			return false;
	if (fault != SHARD_TURN_SOUND)
		damaged(seq, fault);
	return true;
}

bool
shard_turn_log_row(const ShardRow *row, ShardTurnVisit visit, void *arg)
{
	return visit_records(row->payload, row->payload_len, row->seq, visit, arg);
}

typedef struct LogSearch
{
	ShardLanes lanes;
	ShardTurnVisit visit;
	void *arg;
	MemoryContext context; /* the caller's, for visits */
	bool done;
} LogSearch;

static bool
want_row(const ShardRowFixed *row, void *arg)
{
	const LogSearch *search = arg;

	return row->kind == SHARD_KIND_TURN && !search->done &&
		   (search->lanes & shard_lane_bit(row->shard)) != 0;
}

static void
visit_row(const ShardRow *row, void *arg)
{
	LogSearch *search = arg;
	MemoryContext old = MemoryContextSwitchTo(search->context);

	if (!search->done)
		search->done = !shard_turn_log_row(row, search->visit, search->arg);
	MemoryContextSwitchTo(old);
}

static bool
is_done(void *arg)
{
	return ((LogSearch *) arg)->done;
}

/* Up to a row of the log; 0: all. */
static void
read_log(ShardLanes lanes, int64 from, int64 upto, ShardTurnVisit visit, void *arg)
{
	LogSearch search = {.lanes = lanes,
						.visit = visit,
						.arg = arg,
						.context = CurrentMemoryContext};
	ShardLogScan scan = {.from = from,
						 .upto = upto,
						 .payload = true,
						 .want = want_row,
						 .visit = visit_row,
						 .arg = &search,
						 .enough = NULL,
						 .done = is_done};

	PushActiveSnapshot(GetLatestSnapshot());
	scan.snapshot = GetActiveSnapshot();
	shard_log_read(&scan);
	PopActiveSnapshot();
}

void
shard_turn_log_read(ShardLanes lanes, int64 from, ShardTurnVisit visit, void *arg)
{
	read_log(lanes, from, 0, visit, arg);
}

/* ---- the table ------------------------------------------------------------------------------------ */

/*
 * Some rows of the table from a turn on. Returns the turn behind the last one; 0: there was none, or no more are wanted, and
 * then *goes_on is false.
 */
static int64
read_some(int32 type_id, int32 shard, int64 from, int64 to, ShardTurnVisit visit, void *arg,
		  bool *goes_on)
{
	MemoryContext caller = CurrentMemoryContext;
	ShardArguments arguments = {0};
	int64 next = 0;

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(shard), false);
	shard_statement_add(&arguments, Int64GetDatum(from), false);
	shard_statement_add(&arguments, Int64GetDatum(to), false);
	shard_statement_add(&arguments, Int64GetDatum(FETCH), false);
	SPI_connect();
	shard_statement_read(&select_kept, &arguments, 0);
	for (uint64 i = 0; i < SPI_processed && *goes_on; i++)
	{
		int length;
		char *bytes = shard_statement_bytes(i, 1, CurrentMemoryContext, &length);
		ShardReader reader = {.at = bytes, .end = bytes + length};
		ShardTurnRecord record;
		ShardTurnFault fault;
		MemoryContext old;

		if (!shard_turn_record_next(&reader, &record, &fault))
			damaged(0, fault);
		next = record.turn + 1;
		old = MemoryContextSwitchTo(caller);
		*goes_on = visit(&record, 0, arg);
		MemoryContextSwitchTo(old);
		pfree(bytes);
	}
	SPI_finish();
	return *goes_on ? next : 0;
}

bool
shard_turn_log_read_kept(int32 type_id, int32 shard, int64 from, int64 to, ShardTurnVisit visit,
						 void *arg)
{
	ShardSecurity security = {0};
	bool goes_on = true;

	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_begin_system(&security);
	from = Max(from, 1); /* the first turn there is */
	while (from != 0 && from <= to)
		from = read_some(type_id, shard, from, to, visit, arg, &goes_on);
	shard_security_end(&security);
	PopActiveSnapshot();
	return goes_on;
}

/* ---- one shard ------------------------------------------------------------------------------------ */

typedef struct ShardSearch
{
	int32 type_id;
	int32 shard;
	int32 lost;
	int64 turn;
	ShardTurnVisit visit;
	void *arg;
} ShardSearch;

/* Those that are looked for. */
static bool
visit_found(const ShardTurnRecord *record, int64 seq, void *arg)
{
	const ShardSearch *search = arg;

	if (record->type_id != search->type_id || record->shard != search->shard ||
		record->turn < search->turn)
		return true;
	if (record->epoch < search->lost)
		return true;
	return search->visit(record, seq, search->arg);
}

/* What is in the log stays there while the segments are locked: rotation needs them for itself, and waits for nobody. */
static void
lock_segments(bool lock)
{
	const Oid *segments = shard_catalog_get()->segment;

	for (int i = 0; i < SHARD_SEGMENTS; i++)
		if (lock)
			LockRelationOid(segments[i], AccessShareLock);
		else
			UnlockRelationOid(segments[i], AccessShareLock);
}

void
shard_turn_log_read_shard(int32 type_id, int32 shard, int32 lost, int64 turn, int64 from,
						  ShardTurnVisit visit, void *arg)
{
	ShardSearch search = {type_id, shard, lost, turn, visit, arg};

	lock_segments(true);
	if (shard_turn_log_read_kept(type_id, shard, turn, PG_INT64_MAX, visit_found, &search))
		shard_turn_log_read(shard_lane_bit(shard_message_lane(type_id, shard)), from, visit_found,
							&search);
	lock_segments(false);
}

typedef struct PointSearch
{
	int32 type_id;
	int32 shard;
	int64 turn;
	bool found;
	ShardTurnPoint point;
} PointSearch;

/* A later one takes its place: of the log, as that is read in its order. */
static bool
find_point(const ShardTurnRecord *record, int64 seq, void *arg)
{
	PointSearch *search = arg;

	if (record->type_id != search->type_id || record->shard != search->shard)
		return true;
	if (record->turn == search->turn)
		search->point = shard_turn_record_point(record);
	else if (record->turn == search->turn + 1)
		search->point = shard_turn_record_before(record);
	else
		return true;
	search->found = true;
	return true;
}

bool
shard_turn_log_find(int32 type_id, int32 shard, int64 turn, ShardTurnPoint *point)
{
	PointSearch search = {.type_id = type_id, .shard = shard, .turn = turn};

	shard_turn_log_read(shard_lane_bit(shard_message_lane(type_id, shard)), 0, find_point, &search);
	if (!search.found)
		(void) shard_turn_log_read_kept(type_id, shard, turn, turn + 1, find_point, &search);
	*point = search.point;
	return search.found;
}

/* ---- rotation ------------------------------------------------------------------------------------- */

/* The copies of this node, in the order of their shards. */
typedef struct Leaving
{
	int64 last_seq; /* of the segment */
	ShardCopySetItem *copies;
	int count;
} Leaving;

static const ShardCopySetItem *
find_copy(const Leaving *leaving, int32 type_id, int32 shard)
{
	ShardCopySetItem item = {.key = {MyDatabaseId, type_id, shard}};

	return bsearch(&item, leaving->copies, leaving->count, sizeof(ShardCopySetItem),
				   shard_copy_set_compare);
}

/*
 * A record of the segment: to the table, if it is needed. So is that of a copy whose set is not known: the worker of its
 * lane is about to start, and what the process before it had passed may leave meanwhile.
 */
static bool
keep(const ShardTurnRecord *record, int64 seq, void *arg)
{
	const Leaving *leaving = arg;
	const ShardCopySetItem *copy;
	ShardArguments arguments = {0};

	if (seq > leaving->last_seq)
		return false;
	copy = find_copy(leaving, record->type_id, record->shard);
	if (copy == NULL || record->epoch < copy->set.lost || record->turn < copy->end.kept)
		return true;
	shard_statement_add(&arguments, Int32GetDatum(record->type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(record->shard), false);
	shard_statement_add(&arguments, Int64GetDatum(record->turn), false);
	shard_statement_change(&replace_kept, &arguments, SPI_OK_DELETE);
	shard_statement_add(&arguments, Int32GetDatum(record->epoch), false);
	shard_statement_add_text(&arguments, record->shipped,
							 (int) (record->inputs.end - record->shipped));
	shard_statement_change_one(&insert_kept, &arguments, SPI_OK_INSERT);
	return true;
}

/* Rows of the table that are needed no more. */
static void
forget(const Leaving *leaving)
{
	Datum *types = palloc(leaving->count * sizeof(Datum));
	Datum *shards = palloc(leaving->count * sizeof(Datum));
	Datum *turns = palloc(leaving->count * sizeof(Datum));
	ShardArguments arguments = {0};

	for (int i = 0; i < leaving->count; i++)
	{
		types[i] = Int32GetDatum(leaving->copies[i].key.type_id);
		shards[i] = Int32GetDatum(leaving->copies[i].key.shard);
		turns[i] = Int64GetDatum(leaving->copies[i].end.kept);
	}
	shard_statement_add(&arguments,
						PointerGetDatum(construct_array(types, leaving->count, INT4OID,
														sizeof(int32), true, TYPALIGN_INT)),
						false);
	shard_statement_add(&arguments,
						PointerGetDatum(construct_array(shards, leaving->count, INT4OID,
														sizeof(int32), true, TYPALIGN_INT)),
						false);
	shard_statement_add(&arguments,
						PointerGetDatum(construct_array(turns, leaving->count, INT8OID,
														sizeof(int64), FLOAT8PASSBYVAL,
														TYPALIGN_DOUBLE)),
						false);
	shard_statement_change(&forget_kept, &arguments, SPI_OK_DELETE);
}

void
shard_turn_log_leave(int64 last_seq)
{
	Leaving leaving = {.last_seq = last_seq};

#ifdef SHARD_MUTANT_RECORDS_LEAVE_WITH_LOG
	return;
#endif
	leaving.copies = shard_copy_set_list(MyDatabaseId, &leaving.count);
	if (leaving.count == 0)
		return;
	qsort(leaving.copies, leaving.count, sizeof(ShardCopySetItem), shard_copy_set_compare);
	forget(&leaving);
	read_log(SHARD_ALL_LANES, 0, last_seq, keep, &leaving);
}
