/*
 * control/control_decision.c
 *		What this node decided as coordinator of the cluster, and why: table shard.decision, for people.
 *
 * A row is written in the transaction of the step that decided; the oldest go when there are too many.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "control/control_private.h"

#include "base/compat.h"

/* So many rows are kept. */
#define KEPT 10000

static const char *const kinds[] = {
	[SHARD_DECISION_MOVE_BEGUN] = "move begun",		[SHARD_DECISION_MOVED] = "moved",
	[SHARD_DECISION_MOVE_ABORTED] = "move aborted", [SHARD_DECISION_MOVE_REFUSED] = "move refused",
	[SHARD_DECISION_STATE_LOST] = "state lost",		[SHARD_DECISION_PINNED] = "pinned",
	[SHARD_DECISION_EVACUATION] = "evacuation",		[SHARD_DECISION_MEMBER] = "member",
	[SHARD_DECISION_STRATEGY] = "strategy failed"};

static void
execute(SPIPlanPtr *plan, const char *query, int count, Oid *types, Datum *values,
		const char *nulls)
{
	if (*plan == NULL)
	{
		*plan = SPI_prepare(query, count, types);
		if (*plan == NULL)
			elog(ERROR, "could not prepare a statement on shard.decision");
		SPI_keepplan(*plan);
	}
	if (SPI_execute_plan(*plan, values, nulls, false, 0) < 0)
		elog(ERROR, "could not write shard.decision");
}

static const char *
kind_name(int32 kind)
{
	if (kind > 0 && kind < (int) lengthof(kinds) && kinds[kind] != NULL)
		return kinds[kind];
	return "unknown";
}

static void
insert(const ShardAction *action)
{
	static SPIPlanPtr plan = NULL;
	Oid types[7] = {TEXTOID, INT4OID, INT4OID, INT4OID, INT4OID, INT4OID, TEXTOID};
	bool type = action->shard.type_id != 0;
	bool shard = type && action->shard.shard >= 0;
	const char *why = action->text ? action->text : "";
	int length = (int) strlen(why);
	Datum values[7];
	char nulls[8] = "       ";

	values[0] = CStringGetTextDatum(kind_name(action->decision));
	values[1] = Int32GetDatum(action->shard.type_id);
	values[2] = Int32GetDatum(action->shard.shard);
	values[3] = Int32GetDatum(action->node);
	values[4] = Int32GetDatum(action->to);
	values[5] = Int32GetDatum(action->shard.epoch);
	/* The machine cuts texts at so many bytes, which may be within a character. */
	values[6] = PointerGetDatum(cstring_to_text_with_len(why, pg_mbcliplen(why, length, length)));
	nulls[1] = type ? ' ' : 'n';
	nulls[2] = nulls[5] = shard ? ' ' : 'n';
	nulls[3] = action->node != 0 ? ' ' : 'n';
	nulls[4] = action->to != 0 ? ' ' : 'n';
	execute(&plan,
			"INSERT INTO shard.decision (kind, type_id, shard, from_node, to_node, epoch, why) "
			"VALUES ($1, $2, $3, $4, $5, $6, $7)",
			7, types, values, nulls);
}

int
shard_control_decisions(const ShardActions *actions)
{
	static SPIPlanPtr plan = NULL;
	Oid types[1] = {INT8OID};
	Datum values[1] = {Int64GetDatum(KEPT)};
	int count = 0;

	for (int i = 0; i < actions->n_actions; i++)
	{
		if (actions->actions[i].kind != SHARD_ACTION_DECISION)
			continue;
		if (count++ == 0)
			SPI_connect();
		insert(&actions->actions[i]);
	}
	if (count == 0)
		return 0;
	execute(&plan,
			"DELETE FROM shard.decision WHERE id OPERATOR(pg_catalog.<=) "
			"(SELECT pg_catalog.max(d.id) OPERATOR(pg_catalog.-) $1 FROM shard.decision d)",
			1, types, values, NULL);
	SPI_finish();
	return count;
}

const char *
shard_control_decision_name(int32 kind)
{
	return kind_name(kind);
}
