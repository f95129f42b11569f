/*
 * sql/cluster/cluster_stats.c
 *		What the other nodes say of themselves: shard_cluster_stats, shard_current_regions,
 *		shard_location.
 *
 * All members are asked at the same time, each over a connection of its own that ends with the question. A member that
 * does not answer in time is named, not waited for.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "registry/cluster_map.h"
#include "sql/cluster/cluster_survey.h"
#include "sql/cluster/cluster_view.h"
#include "core/map/action.h"
#include "core/member/membership.h"
#include "base/duration.h"
#include "entity/execution.h"
#include "sql/cluster/internal.h"
#include "sql/cluster/question.h"
#include "link/peer_client.h"
#include "shared/board.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "sql/send/handler_guard.h"
#include "base/rights.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_cluster_stats_shards);
PG_FUNCTION_INFO_V1(shard_cluster_stats_regions);
PG_FUNCTION_INFO_V1(shard_cluster_stats_location);

/* For a view, and for one node that is asked for one entity. */
#define VIEW_TIMEOUT_MS 3000

/* Rows that a node can have: all shards of a cluster (C20), and types of which it has a row each, those stopped among them. */
#define MOST_SHARDS (2 * SHARD_MAX_SHARDS)
#define MOST_TYPES 100000

#define MAX_TIMEOUT_MS (24 * 3600 * 1000)

static void
check_place(const char *function)
{
	shard_shmem_require();
	shard_handler_guard_check(psprintf("execute %s", function), NULL, NULL);
}

/*
 * Fills in the reason why it is missing, in a row that is all there is of a node. Only users that may see addresses are
 * told the reason.
 */
static void
put_error(ReturnSetInfo *result, int32 node, const char *error)
{
	int columns = result->setDesc->natts;
	Datum values[5];
	bool nulls[5];

	memset(nulls, true, sizeof(nulls));
	values[0] = Int32GetDatum(node);
	nulls[0] = false;
	values[columns - 1] = CStringGetTextDatum(error);
	nulls[columns - 1] = false;
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * What all have answered, or why they have not.
 */
static void
put_answers(ReturnSetInfo *result, const ShardSurvey *all, int most, ShardSurveyRow *read_row)
{
	for (int i = 0; i < all->count; i++)
	{
		const char *error = shard_cluster_survey_put(result, all, i, most, read_row);

		if (error != NULL)
			put_error(result, all->node[i], error);
	}
}

static void
read_shard(ShardReader *reader, int32 node, Datum *values, bool *nulls)
{
	values[0] = Int32GetDatum(node);
	values[1] = shard_cluster_survey_text(reader);
	values[2] = Int32GetDatum(shard_wire_get_int32(reader));
	values[3] = Int64GetDatum(shard_wire_get_int(reader));
	nulls[4] = true;
}

static void
read_region(ShardReader *reader, int32 node, Datum *values, bool *nulls)
{
	values[0] = Int32GetDatum(node);
	values[1] = shard_cluster_survey_text(reader);
	values[2] = shard_cluster_survey_text(reader);
	nulls[3] = true;
}

/*
 * shard_cluster_stats(timeout interval = '3 s') returns table (node, type_name, shard, entities, error)
 */
Datum
shard_cluster_stats_shards(PG_FUNCTION_ARGS)
{
	int64 timeout = shard_duration_from_interval(PG_GETARG_INTERVAL_P(0));
	ShardSurvey all;

	check_place("shard_cluster_stats()");
	if (timeout <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("timeout must be positive")));
	InitMaterializedSRF(fcinfo, 0);
	all = shard_cluster_survey(SHARD_INTERNAL_SHARDS,
							   (int) Min(Max(timeout / 1000, 1), MAX_TIMEOUT_MS));
	put_answers((ReturnSetInfo *) fcinfo->resultinfo, &all, MOST_SHARDS, read_shard);
	return (Datum) 0;
}

/*
 * shard.current_regions() returns setof (node, type_name, mode, error)
 */
Datum
shard_cluster_stats_regions(PG_FUNCTION_ARGS)
{
	ShardSurvey all;

	check_place("shard_current_regions");
	InitMaterializedSRF(fcinfo, 0);
	all = shard_cluster_survey(SHARD_INTERNAL_REGIONS, VIEW_TIMEOUT_MS);
	put_answers((ReturnSetInfo *) fcinfo->resultinfo, &all, MOST_TYPES, read_region);
	return (Datum) 0;
}

/* ---- where an entity is ----------------------------------------------------------------------- */

/*
 * Whether an entity runs on another node; false if that node does not say.
 */
static bool
ask_running(int32 node, const char *dsn, int32 type_id, int32 shard, text *entity, bool *running)
{
	ShardPeerQuestion question = {.dsn = dsn};
	StringInfoData call;
	ShardReader reader;

	initStringInfo(&call);
	shard_question_put_header(&call, node);
	shard_wire_put_int(&call, SHARD_INTERNAL_RUNNING);
	shard_wire_put_int(&call, type_id);
	shard_wire_put_int(&call, shard);
	shard_wire_put_bytes(&call, VARDATA_ANY(entity), VARSIZE_ANY_EXHDR(entity));
	question.bytes = call.data;
	question.length = call.len;
	question.most = 64 * 1024;
	shard_peer_client_ask(&question, 1, "stats", VIEW_TIMEOUT_MS);
	if (!question.answered || question.answer == NULL)
		return false;
	reader = (ShardReader){question.answer, question.answer + question.answer_length, false};
	*running = shard_wire_get_uint(&reader) != 0;
	return !reader.failed;
}

/* Whether an entity runs at its home; false: unknown. */
static bool
is_running(int32 node, const char *dsn, int32 type_id, int32 shard, text *entity, bool *running)
{
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (node != view.node)
		return dsn != NULL && ask_running(node, dsn, type_id, shard, entity, running);
	*running =
		shard_internal_is_running(type_id, shard, VARDATA_ANY(entity), VARSIZE_ANY_EXHDR(entity));
	return true;
}

static const char *
dsn_of(int32 node)
{
	const ShardDirectoryMember *member;
	int count;

	(void) shard_cluster_view_directory(&count);
	member = shard_directory_find(node);
	return member != NULL ? pstrdup(member->record.dsn) : NULL;
}

/*
 * shard_location(type_name text, entity_id text, OUT shard int, OUT node int, OUT dsn text, OUT running
 * boolean)
 */
Datum
shard_cluster_stats_location(PG_FUNCTION_ARGS)
{
	ShardType *type;
	text *entity = PG_GETARG_TEXT_PP(1);
	Datum values[4];
	bool nulls[4] = {false, true, true, true};
	bool running = false;
	TupleDesc desc;
	ShardHomeRecord home;
	int32 shard;

	check_place("shard_location()");
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	type = shard_registry_get(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	shard_security_check_send(type);
	shard = shard_registry_shard_id(type, VARDATA_ANY(entity), VARSIZE_ANY_EXHDR(entity));
	values[0] = Int32GetDatum(shard);
	if (shard_cluster_map_home(type->type_id, shard, &home))
	{
		int32 node = shard_record_home_node(&home);
		const char *dsn = dsn_of(node);

		values[1] = Int32GetDatum(node);
		nulls[1] = false;
		nulls[2] = dsn == NULL || !shard_rights_all_stats();
		if (!nulls[2])
			values[2] = CStringGetTextDatum(dsn);
		nulls[3] = !is_running(node, dsn, type->type_id, shard, entity, &running);
		values[3] = BoolGetDatum(running);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
