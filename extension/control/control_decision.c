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

#include "control/control_private.h"
#include "registry/statement.h"

#include "base/compat.h"

/* The number of rows that are kept. */
#define KEPT 10000

static const char *const kinds[] = {[SHARD_DECISION_MOVE_BEGUN] = "move begun",
									[SHARD_DECISION_MOVED] = "moved",
									[SHARD_DECISION_MOVE_ABORTED] = "move aborted",
									[SHARD_DECISION_MOVE_REFUSED] = "move refused",
									[SHARD_DECISION_STATE_LOST] = "state lost",
									[SHARD_DECISION_PINNED] = "pinned",
									[SHARD_DECISION_EVACUATION] = "evacuation",
									[SHARD_DECISION_MEMBER] = "member",
									[SHARD_DECISION_STRATEGY] = "strategy failed",
									[SHARD_DECISION_MOVE_WITHDRAWN] = "move withdrawn"};

static ShardStatement insert_decision = {
	"INSERT INTO shard.decision (kind, type_id, shard, from_node, to_node, epoch, why)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7)",
	7,
	{TEXTOID, INT4OID, INT4OID, INT4OID, INT4OID, INT4OID, TEXTOID}};

static ShardStatement delete_oldest = {
	"DELETE FROM shard.decision WHERE id <= (SELECT max(d.id) - $1 FROM shard.decision d)",
	1,
	{INT8OID}};

static const char *
kind_name(int32 kind)
{
	if (kind > 0 && kind < (int) lengthof(kinds) && kinds[kind] != NULL)
		return kinds[kind];
	return "unknown";
}

static void
add_number(ShardArguments *arguments, int32 number, bool is_null)
{
	shard_statement_add(arguments, Int32GetDatum(number), is_null);
}

static void
insert(const ShardAction *action)
{
	ShardArguments arguments = {0};
	bool type = action->shard.type_id != 0;
	bool shard = type && action->shard.shard >= 0;
	const char *why = action->text ? action->text : "";
	int length = (int) strlen(why);

	shard_statement_add_string(&arguments, kind_name(action->decision));
	add_number(&arguments, action->shard.type_id, !type);
	add_number(&arguments, action->shard.shard, !shard);
	add_number(&arguments, action->node, action->node == 0);
	add_number(&arguments, action->to, action->to == 0);
	add_number(&arguments, action->shard.epoch, !shard);
	/* The machine cuts texts at a number of bytes, which may be within a character. */
	shard_statement_add_text(&arguments, why, pg_mbcliplen(why, length, length));
	shard_statement_run(&insert_decision, &arguments, SPI_OK_INSERT);
}

int
shard_control_decisions(const ShardActions *actions)
{
	ShardArguments arguments = {0};
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
	shard_statement_add(&arguments, Int64GetDatum(KEPT), false);
	shard_statement_run(&delete_oldest, &arguments, SPI_OK_DELETE);
	SPI_finish();
	return count;
}
