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
#include "shared/told.h"

#include "base/compat.h"

static ShardStatement select_kept = {
	"SELECT record, turn, epoch FROM shard.turn_kept WHERE type_id OPERATOR(pg_catalog.=) $1"
	" AND shard OPERATOR(pg_catalog.=) $2 AND turn OPERATOR(pg_catalog.>=) $3"
	" AND turn OPERATOR(pg_catalog.<=) $4 ORDER BY turn LIMIT $5",
	5,
	{INT4OID, INT4OID, INT8OID, INT8OID, INT8OID}};

static ShardStatement insert_kept = {
	"INSERT INTO shard.turn_kept (type_id, shard, turn, epoch, record) VALUES ($1, $2, $3, $4, $5)",
	5,
	{INT4OID, INT4OID, INT8OID, INT4OID, BYTEAOID}};

static ShardStatement insert_damaged = {
	"INSERT INTO shard.turn_kept (type_id, shard, turn, epoch, record) VALUES ($1, $2, $3, $4, $5)"
	" ON CONFLICT DO NOTHING",
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

/* Says that a record cannot be read. record: as it says, or all zero. seq: of its row; 0: it is in the table. */
static void
report_damaged(const ShardTurnRecord *record, int64 seq, ShardTurnFault fault, int level)
{
	const char *more = "";

	if (level < ERROR && !shard_told_may(shard_shmem_database(), shard_log_read_self(),
										 "damaged own records", 0, &more))
		return;
	ereport(level,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 seq != 0 ? errmsg("turn records in row " INT64_FORMAT " of the inbox are damaged%s",
							   seq, more)
					  : errmsg("a turn record in table shard.turn_kept is damaged%s", more),
			 record->type_id == 0 ? errdetail("A record: %s.", shard_turn_fault_names[fault])
								  : errdetail("A record that says that it is turn " INT64_FORMAT
											  " of shard %d of type %d: %s.",
											  record->turn, record->shard, record->type_id,
											  shard_turn_fault_names[fault]),
			 errhint("If a copy, or this node, needs it, shard_health() says so.")));
}

/*
 * A row's record that cannot be read. Returns false if it is not to be seen where it ends, or no more are wanted: *goes_on.
 * Who knows of the head that it names a shard of another lane believes nothing of it.
 */
static bool
visit_damaged(ShardReader *reader, const ShardReader *at, int lane, int64 seq, ShardTurnFault fault,
			  ShardTurnVisit damaged, void *arg, bool *goes_on)
{
	ShardTurnRecord record;
	bool ends;

	*reader = *at;
	if (!shard_turn_record_head(at, &record) ||
		shard_message_lane(record.type_id, record.shard) != lane)
		memset(&record, 0, sizeof(record));
	report_damaged(&record, seq, fault, damaged == NULL ? ERROR : WARNING);
	if (record.type_id == 0)
		record.shard = lane;
	*goes_on = damaged(&record, seq, arg);
	ends = shard_turn_record_skip(reader);
	if (*goes_on && !ends && record.type_id != 0)
	{
		/* there may have been more of them behind it */
		record = (ShardTurnRecord){.shard = lane};
		*goes_on = damaged(&record, seq, arg);
	}
	return ends && *goes_on;
}

bool
shard_turn_log_row(const ShardRow *row, ShardTurnVisit visit, ShardTurnVisit damaged, void *arg)
{
	ShardReader reader = {.at = row->payload, .end = row->payload + row->payload_len};
	ShardReader at = reader;
	ShardTurnRecord record;
	ShardTurnFault fault;
	bool goes_on = true;

	for (;;)
	{
		at = reader;
		if (shard_turn_record_next(&reader, &record, &fault))
		{
			if (!visit(&record, row->seq, arg))
				return false;
		}
		else if (fault == SHARD_TURN_SOUND && row->payload_len > 0)
			return true;
		else if (!visit_damaged(&reader, &at, row->shard, row->seq,
								fault == SHARD_TURN_SOUND ? SHARD_TURN_CUT : fault, damaged, arg,
								&goes_on))
			return goes_on;
	}
}

bool
shard_turn_log_pass(const ShardTurnRecord *record, int64 seq, void *arg)
{
	return true;
}

typedef struct LogSearch
{
	ShardLanes lanes;
	ShardTurnVisit visit;
	ShardTurnVisit damaged;
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
		search->done = !shard_turn_log_row(row, search->visit, search->damaged, search->arg);
	MemoryContextSwitchTo(old);
}

static bool
is_done(void *arg)
{
	return ((LogSearch *) arg)->done;
}

/* Up to a row of the log; 0: all. */
static void
read_log(ShardLanes lanes, int64 from, int64 upto, ShardTurnVisit visit, ShardTurnVisit damaged,
		 void *arg)
{
	LogSearch search = {.lanes = lanes,
						.visit = visit,
						.damaged = damaged,
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
shard_turn_log_read(ShardLanes lanes, int64 from, ShardTurnVisit visit, ShardTurnVisit damaged,
					void *arg)
{
	read_log(lanes, from, 0, visit, damaged, arg);
}

/* ---- the table ------------------------------------------------------------------------------------ */

/* What a record that cannot be read is, as the columns of the table say, and as it says itself if that fits. */
static void
read_kept_head(const char *bytes, int length, int32 type_id, int32 shard, uint64 i,
			   ShardTurnRecord *record)
{
	ShardReader reader = {.at = bytes, .end = bytes + length};
	int64 turn = shard_statement_int8(i, 2);
	int32 epoch = shard_statement_int4(i, 3);

	if (shard_turn_record_head(&reader, record) && record->type_id == type_id &&
		record->shard == shard && record->turn == turn && record->epoch == epoch)
		return;
	*record = (ShardTurnRecord){.type_id = type_id, .shard = shard, .turn = turn, .epoch = epoch};
}

/*
 * Some rows of the table from a turn on. Returns the turn behind the last one; 0: there was none, or no more are wanted, and
 * then *goes_on is false.
 */
static int64
read_some(int32 type_id, int32 shard, int64 from, int64 to, ShardTurnVisit visit,
		  ShardTurnVisit damaged, void *arg, bool *goes_on)
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
		bool sound = shard_turn_record_next(&reader, &record, &fault);

		next = shard_statement_int8(i, 2) + 1;
		if (!sound)
		{
			read_kept_head(bytes, length, type_id, shard, i, &record);
			report_damaged(&record, 0, fault, damaged == NULL ? ERROR : WARNING);
		}
		old = MemoryContextSwitchTo(caller);
		*goes_on = (sound ? visit : damaged)(&record, 0, arg);
		MemoryContextSwitchTo(old);
		pfree(bytes);
	}
	SPI_finish();
	return *goes_on ? next : 0;
}

bool
shard_turn_log_read_kept(int32 type_id, int32 shard, int64 from, int64 to, ShardTurnVisit visit,
						 ShardTurnVisit damaged, void *arg)
{
	ShardSecurity security = {0};
	bool goes_on = true;

	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_begin_system(&security);
	from = Max(from, 1); /* the first turn there is */
	while (from != 0 && from <= to)
		from = read_some(type_id, shard, from, to, visit, damaged, arg, &goes_on);
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
	ShardTurnVisit damaged;
	void *arg;
} ShardSearch;

static bool
is_found(const ShardSearch *search, const ShardTurnRecord *record)
{
	return record->type_id == search->type_id && record->shard == search->shard &&
		   record->turn >= search->turn && record->epoch >= search->lost;
}

/* Those that are looked for. */
static bool
visit_found(const ShardTurnRecord *record, int64 seq, void *arg)
{
	const ShardSearch *search = arg;

	return !is_found(search, record) || search->visit(record, seq, search->arg);
}

static bool
visit_found_damaged(const ShardTurnRecord *record, int64 seq, void *arg)
{
	const ShardSearch *search = arg;

	return !is_found(search, record) || search->damaged(record, seq, search->arg);
}

void
shard_turn_log_hold(bool lock)
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
						  ShardTurnVisit visit, ShardTurnVisit damaged, void *arg)
{
	ShardSearch search = {type_id, shard, lost, turn, visit, damaged, arg};
	ShardTurnVisit found_damaged = damaged == NULL ? NULL : visit_found_damaged;

	shard_turn_log_hold(true);
	if (shard_turn_log_read_kept(type_id, shard, turn, PG_INT64_MAX, visit_found, found_damaged,
								 &search))
		shard_turn_log_read(shard_lane_bit(shard_message_lane(type_id, shard)), from, visit_found,
							found_damaged, &search);
	shard_turn_log_hold(false);
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

	shard_turn_log_read(shard_lane_bit(shard_message_lane(type_id, shard)), 0, find_point,
						shard_turn_log_pass, &search);
	if (!search.found)
		(void) shard_turn_log_read_kept(type_id, shard, turn, turn + 1, find_point,
										shard_turn_log_pass, &search);
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

/*
 * So with one that cannot be read, if it is one of a copy's history by what it says of itself: the next start has to know that there
 * was one. Nothing that can be read gives way to it.
 */
static bool
keep_damaged(const ShardTurnRecord *record, int64 seq, void *arg)
{
	const Leaving *leaving = arg;
	const ShardCopySetItem *copy;
	ShardArguments arguments = {0};

	if (seq > leaving->last_seq)
		return false;
	copy = record->shipped_len == 0 ? NULL : find_copy(leaving, record->type_id, record->shard);
	if (copy == NULL || record->epoch < copy->set.lost || record->turn < copy->end.kept)
		return true;
	shard_statement_add(&arguments, Int32GetDatum(record->type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(record->shard), false);
	shard_statement_add(&arguments, Int64GetDatum(record->turn), false);
	shard_statement_add(&arguments, Int32GetDatum(record->epoch), false);
	shard_statement_add_text(&arguments, record->shipped,
							 (int) (record->inputs.end - record->shipped));
	shard_statement_change(&insert_damaged, &arguments, SPI_OK_INSERT);
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
	read_log(SHARD_ALL_LANES, 0, last_seq, keep, keep_damaged, &leaving);
}
