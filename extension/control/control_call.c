/*
 * control/control_call.c
 *		What SQL functions ask of the control worker: requests and replies as bytes.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"

#include "registry/catalog.h"
#include "control/control.h"
#include "core/base/timing.h"
#include "shared/board.h"
#include "shared/ring.h"

#include "base/compat.h"

/* A peer that waits longer takes the link for broken anyway. */
#define CONTROL_TIMEOUT (5 * SHARD_SECOND)

/* ---- codecs ----------------------------------------------------------------------------------- */

/* A type as it stands in the map. */
static void
put_type(StringInfo out, const ShardTypeRecord *type)
{
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entry = shard_record_put_type(0, type, 0, arena);

	shard_wire_put_bytes(out, entry.value, entry.length);
	shard_arena_destroy(arena);
}

static const ShardTypeRecord *
get_type(ShardReader *reader)
{
	ShardTypeRecord *type = palloc0(sizeof(ShardTypeRecord));
	ShardMapEntry entry = {.key = {SHARD_MAP_TYPE, 0, 0}};
	ShardArena *arena = shard_arena_create();
	size_t length;
	bool good;

	entry.value = shard_wire_get_bytes(reader, &length);
	entry.length = (uint32) length;
	good = !reader->failed && shard_record_get_type(&entry, type, arena);
	if (good)
	{
		type->name = pstrdup(type->name);
		type->role = pstrdup(type->role);
		type->hashing = pstrdup(type->hashing);
		type->state = pstrdup(type->state);
		type->owner = pstrdup(type->owner);
		type->extra = (ShardExtra){0};
	}
	shard_arena_destroy(arena);
	return good ? type : NULL;
}

static void
put_command(StringInfo out, const ShardCommand *command)
{
	shard_wire_put_int(out, command->kind);
	shard_wire_put_int(out, command->node);
	shard_wire_put_int(out, command->type_id);
	shard_wire_put_int(out, command->shard);
	shard_wire_put_int(out, command->number);
	shard_wire_put_uint(out, command->flag);
	shard_wire_put_uint(out, command->look_only);
	shard_wire_put_uint(out, command->named);
	shard_wire_put_int(out, command->n_nodes);
	for (int i = 0; i < command->n_nodes; i++)
		shard_wire_put_int(out, command->nodes[i]);
	shard_wire_put_text(out, command->text);
	shard_wire_put_text(out, command->own_dsn);
	if (command->kind == SHARD_COMMAND_TYPE)
		put_type(out, command->type);
}

bool
shard_control_get_command(ShardReader *reader, ShardCommand *command)
{
	int32 *nodes;

	memset(command, 0, sizeof(ShardCommand));
	command->kind = (ShardCommandKind) shard_wire_get_int32(reader);
	command->node = shard_wire_get_int32(reader);
	command->type_id = shard_wire_get_int32(reader);
	command->shard = shard_wire_get_int32(reader);
	command->number = shard_wire_get_int(reader);
	command->flag = shard_wire_get_uint(reader) != 0;
	command->look_only = shard_wire_get_uint(reader) != 0;
	command->named = shard_wire_get_uint(reader) != 0;
	command->n_nodes = shard_wire_get_int32(reader);
	if (command->n_nodes < 0 || command->n_nodes > SHARD_MAX_VOTERS)
		return false;
	command->nodes = nodes = palloc(Max(command->n_nodes, 1) * sizeof(int32));
	for (int i = 0; i < command->n_nodes; i++)
		nodes[i] = shard_wire_get_int32(reader);
	command->text = shard_wire_get_text(reader);
	command->own_dsn = shard_wire_get_text(reader);
	if (command->kind == SHARD_COMMAND_TYPE && (command->type = get_type(reader)) == NULL)
		return false;
	return !reader->failed && reader->at == reader->end;
}

/*
 * The homes of shards as they would be while they move. What another node sent for such, and is none, is left out.
 */
void
shard_control_put_plan(StringInfo out, bool more, const ShardMapEntry *homes, int n_homes)
{
	shard_wire_put_uint(out, more);
	for (int i = 0; i < n_homes; i++)
	{
		ShardHomeRecord home;

		if (homes[i].key.kind != SHARD_MAP_HOME || !shard_record_get_home(&homes[i], &home))
			continue;
		shard_wire_put_int(out, homes[i].key.a);
		shard_wire_put_int(out, homes[i].key.b);
		shard_wire_put_int(out, shard_record_home_node(&home));
		shard_wire_put_int(out, home.to);
		shard_wire_put_int(out, home.reason);
	}
}

static ShardPlannedMove *
get_move(ShardReader *reader)
{
	ShardPlannedMove *move = palloc(sizeof(ShardPlannedMove));

	move->type_id = shard_wire_get_int32(reader);
	move->shard = shard_wire_get_int32(reader);
	move->from = shard_wire_get_int32(reader);
	move->to = shard_wire_get_int32(reader);
	move->reason = shard_wire_get_int32(reader);
	return move;
}

void
shard_control_put_report(StringInfo out, const ShardMemberReport *report)
{
	shard_wire_put_int(out, report->node);
	shard_wire_put_uint(out, report->reachable ? 1 : 0);
	shard_wire_put_uint(out, report->voter ? 1 : 0);
	shard_wire_put_uint(out, report->coordinator ? 1 : 0);
	shard_wire_put_uint(out, report->link ? 1 : 0);
	shard_wire_put_uint(out, report->claimed);
	shard_wire_put_int(out, report->heard_us);
	shard_wire_put_int(out, report->answering_us);
	shard_wire_put_int(out, report->failing_us);
	shard_wire_put_text(out, report->link_error);
	shard_wire_put_uint(out, report->link_spoke ? 1 : 0);
}

static ShardMemberReport *
get_report(ShardReader *reader)
{
	ShardMemberReport *report = palloc0(sizeof(ShardMemberReport));

	report->node = shard_wire_get_int32(reader);
	report->reachable = shard_wire_get_uint(reader) != 0;
	report->voter = shard_wire_get_uint(reader) != 0;
	report->coordinator = shard_wire_get_uint(reader) != 0;
	report->link = shard_wire_get_uint(reader) != 0;
	report->claimed = (ShardNodeClaim) shard_wire_get_uint(reader);
	report->heard_us = shard_wire_get_int(reader);
	report->answering_us = shard_wire_get_int(reader);
	report->failing_us = shard_wire_get_int(reader);
	report->link_error = shard_wire_get_text(reader);
	report->link_spoke = shard_wire_get_uint(reader) != 0;
	return report;
}

/* ---- calls ------------------------------------------------------------------------------------ */

/*
 * One request to the control worker of this database.
 */
static char *
call(ShardRequestKind kind, const char *payload, int length, int64 timeout_us, int *answer_length)
{
	ShardRequest request = {.kind = kind};

	request.payload = unconstify(char *, payload);
	request.payload_len = length;
	return shard_ring_call(shard_shmem_database_or_make(MyDatabaseId), SHARD_CONTROL_WORKER,
						   &request, timeout_us, answer_length);
}

char *
shard_control_control(const char *bytes, int length, int *answer_length)
{
	char *answer = call(SHARD_REQUEST_CONTROL, bytes, length, CONTROL_TIMEOUT, answer_length);

	if (answer == NULL)
	{
		*answer_length = 0;
		return pstrdup("");
	}
	return answer;
}

/* The answer to a command; without bytes if there is none. */
static ShardReader
call_command(const ShardCommand *command, int64 timeout_us)
{
	StringInfoData payload;
	char *answer;
	int length;

	initStringInfo(&payload);
	put_command(&payload, command);
	answer = call(SHARD_REQUEST_COMMAND, payload.data, payload.len, timeout_us, &length);
	return (ShardReader){answer, answer == NULL ? NULL : answer + length, false};
}

int64
shard_control_command(const ShardCommand *command, int64 timeout_us)
{
	ShardReader reader = call_command(command, timeout_us);

	return reader.at == NULL ? 0 : shard_wire_get_int(&reader);
}

void
shard_control_plan(const ShardCommand *command, int64 timeout_us, ShardPlan *plan)
{
	ShardReader reader = call_command(command, timeout_us);

	plan->moves = NIL;
	plan->more = reader.at != NULL && shard_wire_get_uint(&reader) != 0;
	while (reader.at < reader.end && !reader.failed)
		plan->moves = lappend(plan->moves, get_move(&reader));
}

List *
shard_control_members(int64 timeout_us)
{
	List *members = NIL;
	ShardReader reader;
	char *answer;
	int length;

	answer = call(SHARD_REQUEST_MEMBERS, NULL, 0, timeout_us, &length);
	if (answer == NULL)
		return NIL;
	reader = (ShardReader){answer, answer + length, false};
	while (reader.at < reader.end && !reader.failed)
		members = lappend(members, get_report(&reader));
	return members;
}

/*
 * A copy does not start its control plane, so it has no incarnation to tell.
 */
bool
shard_control_who(ShardWho *who)
{
	ShardDatabase *db = shard_shmem_database();
	ShardBoardView view;
	ShardStartKind kind;

	memset(who, 0, sizeof(ShardWho));
	if (db == NULL ||
		!shard_board_incarnation(db, shard_catalog_get()->extension, &who->incarnation, &kind))
		return false;
	shard_board_get(db, &view);
	if (!view.known)
		return false;
	who->cluster = view.cluster;
	who->node = view.node;
	who->inc_no = view.inc_no;
	return true;
}
