/*
 * sql/view/cluster_moves.c
 *		Moves of shards, for people: rows behind shard_rebalances and shard_decisions.
 *
 * Which shards move is decided, so every node knows it: view shard.rebalances joins the homes with what nodes say. How far
 * a copy is only its target knows, and why a move failed only the coordinator and the target: they are asked, all at the
 * same time, if the reader may have this node connect to others; else there is what this node itself knows.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "sql/cluster/cluster_survey.h"
#include "entity/execution.h"
#include "shared/import_progress.h"
#include "shared/board.h"
#include "shared/shmem.h"
#include "sql/send/handler_guard.h"
#include "base/rights.h"
#include "sql/cluster/question.h"
#include "sql/cluster/internal.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_cluster_moves_imports);
PG_FUNCTION_INFO_V1(shard_cluster_moves_notes);
PG_FUNCTION_INFO_V1(shard_cluster_moves_decisions);

#define VIEW_TIMEOUT_MS 2000

/* Lines that a node has about moves: each of two queries has 2 000 at most (internal.c), beside the copies that it remembers. */
#define MOST_NOTES 4200

/* Decisions that a node has: ten thousand are kept (control_decision.c), and those of a step until they are counted. */
#define MOST_DECISIONS 20000

/* ---- imports of this node --------------------------------------------------------------------- */

static Datum
time_of(TimestampTz at, bool *isnull)
{
	*isnull = at == 0;
	return TimestampTzGetDatum(at);
}

/*
 * shard.imports() returns setof record: copies of shards to this node, under way or of the last.
 */
Datum
shard_cluster_moves_imports(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ShardDatabase *db = shard_shmem_database();
	ShardImportProgress *list;
	int count = 0;

	InitMaterializedSRF(fcinfo, 0);
	list = db != NULL ? shard_import_list(db, &count) : NULL;
	for (int i = 0; i < count; i++)
	{
		const ShardImportProgress *import = &list[i];
		Datum values[12];
		bool nulls[12] = {false};

		values[0] = Int32GetDatum(import->shard.type_id);
		values[1] = Int32GetDatum(import->shard.shard);
		values[2] = Int32GetDatum(import->shard.epoch);
		values[3] = Int64GetDatum(import->shard.move_id);
		values[4] = Int32GetDatum(import->node);
		values[5] = CStringGetTextDatum(shard_import_phase_names[import->phase]);
		values[6] = Int64GetDatum(import->rows_copied);
		values[7] = Int64GetDatum(import->rows_total);
		values[8] = Int64GetDatum(import->bytes_copied);
		values[9] = time_of(import->started, &nulls[9]);
		values[10] = time_of(import->changed, &nulls[10]);
		values[11] = CStringGetTextDatum(import->error);
		nulls[11] = import->phase != SHARD_IMPORT_FAILED;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ---- what nodes say --------------------------------------------------------------------------- */

/* Microseconds since 1970; 0: none. */
static Datum
read_time(ShardReader *reader, bool *isnull)
{
	int64 at = shard_wire_get_int(reader);

	if (at < 0 || !IS_VALID_TIMESTAMP(at))
		reader->failed = true;
	return time_of(at == 0 ? 0 : at - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY,
				   isnull);
}

/* NULL: below 0. */
static Datum
read_number(ShardReader *reader, bool *isnull)
{
	int32 number = shard_wire_get_int32(reader);

	*isnull = number < 0;
	return Int32GetDatum(number);
}

/*
 * How long a copy will still take, at the speed that it had so far.
 */
static Datum
guess_rest(int64 copied, int64 total, int64 spent)
{
	Interval *rest = palloc0(sizeof(Interval));

	rest->time = (int64) ((double) Max(spent, 0) * (double) (total - copied) / (double) copied);
	return IntervalPGetDatum(rest);
}

/*
 * How far a copy is, or a decision about a shard: what, import, type_id, shard, epoch, from_node, to_node, rows_copied,
 * rows_total, started, changed, note, node, eta.
 */
static void
read_note(ShardReader *reader, int32 node, Datum *values, bool *nulls)
{
	int64 copied;
	int64 total;

	values[0] = shard_cluster_survey_text(reader);
	values[1] = BoolGetDatum(shard_wire_get_int32(reader) != 0);
	for (int i = 2; i < 7; i++)
		values[i] = read_number(reader, &nulls[i]);
	values[7] = Int64GetDatum(copied = shard_wire_get_int(reader));
	values[8] = Int64GetDatum(total = shard_wire_get_int(reader));
	values[9] = read_time(reader, &nulls[9]);
	values[10] = read_time(reader, &nulls[10]);
	values[11] = shard_cluster_survey_text(reader);
	nulls[11] = !shard_rights_all_stats();
	values[12] = Int32GetDatum(node);
	nulls[13] = nulls[9] || copied <= 0 || total < copied;
	if (!nulls[13])
		values[13] = guess_rest(copied, total,
								DatumGetTimestampTz(values[10]) - DatumGetTimestampTz(values[9]));
}

/*
 * shard.move_notes() returns setof record: what this node knows, as node 0, and, if the reader may ask, what the other
 * nodes do. Rows of a node that does not answer are missing.
 */
Datum
shard_cluster_moves_notes(PG_FUNCTION_ARGS)
{
	ShardBoardView view;
	ShardSurvey all;

	InitMaterializedSRF(fcinfo, 0);
	if (shard_rights_all_stats() && shard_preloaded && !shard_execution_in_handler())
	{
		shard_board_get(shard_shmem_database(), &view);
		all = shard_cluster_survey(SHARD_INTERNAL_MOVES, VIEW_TIMEOUT_MS);
		for (int i = 0; i < all.count; i++)
			if (all.node[i] == view.node)
				all.node[i] = 0;
	}
	else
		all = shard_cluster_survey_here(SHARD_INTERNAL_MOVES);
	for (int i = 0; i < all.count; i++)
		(void) shard_cluster_survey_put((ReturnSetInfo *) fcinfo->resultinfo, &all, i, MOST_NOTES,
										read_note);
	return (Datum) 0;
}

/* ---- decisions -------------------------------------------------------------------------------- */

/*
 * A decision of a node: kind, at, type_id, shard, from_node, to_node, epoch, why, node.
 */
static void
read_decision(ShardReader *reader, int32 node, Datum *values, bool *nulls)
{
	values[0] = shard_cluster_survey_text(reader);
	values[1] = read_time(reader, &nulls[1]);
	for (int i = 2; i < 7; i++)
		values[i] = read_number(reader, &nulls[i]);
	values[7] = shard_cluster_survey_text(reader);
	values[8] = Int32GetDatum(node);
}

/*
 * A node that did not tell its decisions, and why.
 */
static void
put_silent(ReturnSetInfo *result, int32 node, const char *error)
{
	Datum values[9] = {0};
	bool nulls[9] = {false, true, true, true, true, true, true, false, false};

	values[0] = CStringGetTextDatum("no answer");
	values[7] = CStringGetTextDatum(error);
	values[8] = Int32GetDatum(node);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * shard.decisions() returns setof record
 */
Datum
shard_cluster_moves_decisions(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ShardSurvey all;

	shard_shmem_require();
	shard_handler_guard_check("read shard_decisions", NULL, NULL);
	InitMaterializedSRF(fcinfo, 0);
	all = shard_cluster_survey(SHARD_INTERNAL_DECISIONS, VIEW_TIMEOUT_MS);
	for (int i = 0; i < all.count; i++)
	{
		const char *error =
			shard_cluster_survey_put(result, &all, i, MOST_DECISIONS, read_decision);

		if (error != NULL)
			put_silent(result, all.node[i], error);
	}
	return (Datum) 0;
}
