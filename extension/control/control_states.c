/*
 * control/control_states.c
 *		Of which shards this database has states, for the machine of a node that is alone (C21).
 *
 * It asks before it lets another node in, and goes on from where the answer ended, also if that names what is in the
 * way. Tables are read without SQL (state_door.h), since this process is a superuser and the tables' owners are not; it
 * waits for no lock, and a table that cannot be read is an answer, too. The types of shard.type are asked for, not
 * those of the map: also what is stopped or suspended has states. Nothing is durable here; if the process dies, the
 * machine asks again.
 */
#include "postgres.h"

#include "executor/spi.h"

#include "base/attempt.h"
#include "control/control_private.h"
#include "core/member/membership.h"
#include "base/fault.h"
#include "entity/state_door.h"
#include "entity/state_orphan.h"
#include "shared/told.h"
#include "core/base/text.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Shards of one answer: their homes are one transaction. */
#define SHARDS 10000

/* What could not be read is shown for this time after the last look: the machine looks again while a node joins. */
#define UNREAD_FRESH (10 * SHARD_SECOND)

static struct
{
	bool asked;
	int64 token;
	ShardShardRef after;
} question;

static char unread[160] = ""; /* what could not be read, the last time that this worker looked */
static int64 unread_asked_at;

/* An answer that is being made. */
typedef struct Answer
{
	Oid table; /* that is read now, */
	int32 type_id;
	int32 number_of_shards;
	const char *type_name;
	const char *why; /* in step_context */
	bool unread;	 /* why it is, for the log and health */
	bool end;		 /* there are no more; with a reason: it does not pass by itself */
	int n_shards;
	ShardShardRef shards[SHARDS];
	int32 numbers[SHARDS];
} Answer;

void
shard_control_states(const ShardAction *action)
{
	question.asked = true;
	question.token = action->token;
	question.after = action->shard;
	shard_control.again = true;
}

void
shard_control_states_forget(void)
{
	question.asked = false;
}

const char *
shard_control_states_unread(void)
{
	return shard_clock_now() - unread_asked_at < UNREAD_FRESH ? unread : "";
}

/* Puts a reason together: it has to fit where it is shown. */
static const char *
say(const char *what, const char *name)
{
	return MemoryContextStrdup(shard_control.step_context, psprintf(what, name));
}

/* The next shards of one table. */
static void
read_table(void *argument)
{
	Answer *answer = argument;
	int32 after = answer->type_id == question.after.type_id ? question.after.shard : -1;
	int room = SHARDS - answer->n_shards;
	int count = 0;

	switch (shard_state_door_shards(answer->table, after, answer->number_of_shards - 1, true,
									answer->numbers, room, &count))
	{
		case SHARD_DOOR_BUSY:
			answer->why =
				say("the state table of entity type \"%s\" is locked there", answer->type_name);
			return;
		case SHARD_DOOR_UNFIT:
			answer->why =
				say("the state table of entity type \"%s\" has lost its primary key there",
					answer->type_name);
			return;
		default:
			break;
	}
	if (count > 0 && !shard_control_types_known(answer->type_id))
	{
		answer->why =
			say("entity type \"%s\" has states and is not registered there yet", answer->type_name);
		return;
	}
	for (int i = 0; i < count; i++)
		answer->shards[answer->n_shards++] =
			(ShardShardRef){answer->type_id, answer->numbers[i], 0, 0};
}

/* Tables of types that were not brought back with them. */
static void
look_for_orphans(void *argument)
{
	Answer *answer = argument;
	const ShardStateOrphan *orphan = shard_state_orphan();

	if (orphan == NULL)
		return;
	answer->end = !orphan->busy;
	answer->why = say(orphan->busy ? "table %s is locked there"
								   : "there are " SHARD_JOIN_ORPHAN_WHY " there, in table %s",
					  orphan->table);
}

/*
 * What cannot be read is in the way of a join, too. It is asked for again twice a second: told once, and then once a minute,
 * while it lasts.
 */
static void
attempt(void (*read)(void *argument), Answer *answer, const char *what)
{
	ErrorData *error = shard_attempt(read, answer);
	const char *more;

	if (error == NULL)
		return;
	answer->why = what;
	answer->unread = true;
	if (shard_told_may(shard_control.db, shard_control.row.node, "states unread", answer->type_id,
					   &more))
		ereport(WARNING, (errcode(error->sqlerrcode),
						  errmsg("shard: %s; no node can join%s", answer->why, more),
						  errdetail("%s", error->message != NULL ? error->message : "")));
}

static ShardStatement select_tables = {
	"SELECT t.type_id, c.oid, t.type_name, t.number_of_shards FROM shard.type t"
	" JOIN pg_class c ON c.oid = t.state_table::oid"
	" WHERE t.mode <> 'dropped' ORDER BY t.type_id"};

/* The next shards of all tables; within a transaction, connected to SPI. */
static void
read_tables(Answer *answer)
{
	bool isnull;

	attempt(look_for_orphans, answer, "the tables of schema shard_entity cannot be read there");
	if (answer->why != NULL)
		return;
	shard_statement_read(&select_tables, &(ShardArguments){0}, 0);
	for (uint64 i = 0; i < SPI_processed && answer->why == NULL; i++)
	{
		HeapTuple row = SPI_tuptable->vals[i];
		TupleDesc desc = SPI_tuptable->tupdesc;

		answer->type_id = DatumGetInt32(SPI_getbinval(row, desc, 1, &isnull));
		if (answer->type_id < question.after.type_id)
			continue;
		if (answer->n_shards == SHARDS)
			return;
		answer->table = DatumGetObjectId(SPI_getbinval(row, desc, 2, &isnull));
		answer->type_name = SPI_getvalue(row, desc, 3);
		answer->number_of_shards = DatumGetInt32(SPI_getbinval(row, desc, 4, &isnull));
		attempt(read_table, answer,
				say("the state table of entity type \"%s\" cannot be read there",
					answer->type_name));
	}
	answer->end = answer->why == NULL && answer->n_shards < SHARDS;
}

/*
 * True: the machine was told.
 */
bool
shard_control_states_run(void)
{
	static const char *const tables[] = {"type"};
	Answer *answer;

	if (!question.asked)
		return false;
	question.asked = false;
	unread_asked_at = shard_clock_now();
	answer = palloc0(sizeof(Answer));
	if (!shard_control_types_settled())
		answer->why = "entity types are not registered there yet";
	else if (!shard_control_try(tables, lengthof(tables)))
		answer->why = "table shard.type is locked there";
	else
	{
		SPI_connect();
		read_tables(answer);
		SPI_finish();
		shard_control_commit();
	}
	shard_text_copy(unread, answer->unread ? answer->why : "", sizeof(unread));
	shard_control_event(&(ShardNodeEvent){.kind = SHARD_EVENT_STATES,
										  .token = question.token,
										  .n_shards = answer->n_shards,
										  .shards = answer->shards,
										  .flag = answer->end,
										  .text = answer->why});
	shard_fault("states_have_homes");
	return true;
}
