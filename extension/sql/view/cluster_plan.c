/*
 * sql/view/cluster_plan.c
 *		shard_rebalance_plan: the moves of shards that would begin now.
 *
 * The coordinator says which: it begins them, and takes them back (core/home/homes_dry.c). Here is no opinion of its own.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "entity/execution.h"
#include "registry/cluster_map.h"
#include "shared/shmem.h"
#include "sql/operate/command.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_cluster_plan);

/* A type, and what is looked for: its number or its name. */
typedef struct PlanType
{
	const char *name;
	int32 type_id;
} PlanType;

static void
look_for_number(void *arg)
{
	PlanType *type = arg;
	ShardClusterType known;

	shard_cluster_map_get_type(type->name, &known);
	type->type_id = known.type_id;
}

static void
look_for_name(void *arg)
{
	PlanType *type = arg;

	type->name = shard_cluster_map_type_name(type->type_id);
}

/*
 * One row. The name is kept for the next move of the same type; a type that this node has not learned has none.
 */
static void
put_move(ReturnSetInfo *result, PlanType *type, const ShardPlannedMove *move)
{
	Datum values[5] = {0};
	bool nulls[5] = {false};

	if (type->type_id != move->type_id)
	{
		type->type_id = move->type_id;
		shard_command_look(look_for_name, type);
	}
	if (type->name != NULL)
		values[0] = CStringGetTextDatum(type->name);
	else
		nulls[0] = true;
	values[1] = Int32GetDatum(move->shard);
	values[2] = Int32GetDatum(move->from);
	values[3] = Int32GetDatum(move->to);
	values[4] = CStringGetTextDatum(shard_cluster_map_reason(move->reason));
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * shard_rebalance_plan(type_name text = NULL) returns table (type_name, shard, from_node, to_node, reason)
 */
Datum
shard_cluster_plan(PG_FUNCTION_ARGS)
{
	ShardCommand command = {.kind = SHARD_COMMAND_PLAN};
	PlanType type = {0};
	ShardPlan plan;
	ListCell *cell;

	shard_shmem_require();
	if (shard_execution_in_handler())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot execute %s from within a handler", "shard_rebalance_plan()")));
	InitMaterializedSRF(fcinfo, 0);
	if (!PG_ARGISNULL(0))
	{
		type.name = text_to_cstring(PG_GETARG_TEXT_PP(0));
		shard_command_look(look_for_number, &type);
		command.type_id = type.type_id;
	}
	shard_command_need_coordinator("shard_rebalance_plan()");
	shard_command_plan(&command, SHARD_COMMAND_TIMEOUT, "could not plan moves", &plan);
	foreach (cell, plan.moves)
		put_move((ReturnSetInfo *) fcinfo->resultinfo, &type, lfirst(cell));
	if (plan.more)
		ereport(NOTICE, (errmsg("more shards would move than the %d that are listed",
								list_length(plan.moves)),
						 errhint("The other moves are listed when some of these have been made.")));
	return (Datum) 0;
}
