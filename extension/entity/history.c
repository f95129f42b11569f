/*
 * entity/history.c
 *		Failures of an entity, as they were judged: the last of each, in shard.history (E26).
 *
 * Comes from: failure.c, for each message that fails; start_failure.c, for each start. Read by shard_history(), and by
 * failure.c itself for types with max_restarts.
 *
 * A row is written by the turn that judges, so it tells what was committed, and moves with the shard. If the process dies
 * right here, the failure was not judged, and is met again. Of a type there are as many rows as MOST_ROWS, and those that
 * all workers write before they look again.
 *
 * Rows that are gone stay in the index as long as a transaction of the database is older, and an entity that fails often
 * leaves many. So what there is of an entity is read from its end, and no further than to the row that goes.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "entity/internal.h"
#include "entity/record.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Rows of one entity: of its messages, of which max_restarts may ask for more, and as many of its starts. */
#define ROWS_EACH 20

/* Rows of a type, how many a worker writes before it looks again, and how many it deletes then. */
#define MOST_ROWS 50000
#define LOOK_EVERY 1000
#define MOST_AT_ONCE (2 * LOOK_EVERY)

/* The front of an error's message that is kept. */
#define ERROR_BYTES 500

/*
 * Numbers are those of one entity, which one worker alone writes. The row takes the place of the oldest of its kind, if
 * there are as many as may be: starts that fail leave those of messages, which are counted. The new row is not among
 * those that are looked at. If there are more, since max_restarts was higher, they lie right before that row, and go, too.
 */
#define TRIM \
	" DELETE FROM shard.history WHERE ctid = ANY (ARRAY(SELECT h.ctid" \
	" FROM (SELECT h.seq FROM shard.history h" \
	" WHERE h.type_id = $1 AND h.shard = $2 AND h.entity = $3" \
	" AND (h.decision = 'start') = ($7 = 'start') ORDER BY h.seq DESC OFFSET $10 - 1 LIMIT 1) k," \
	" LATERAL (SELECT h.ctid FROM shard.history h" \
	" WHERE h.type_id = $1 AND h.shard = $2 AND h.entity = $3" \
	" AND (h.decision = 'start') = ($7 = 'start')" \
	" AND h.seq >= k.seq - $11 AND h.seq <= k.seq FOR UPDATE SKIP LOCKED) h))"

static ShardStatement note = {
	"WITH new AS (INSERT INTO shard.history (type_id, shard, entity, seq, sqlstate, error, attempts,"
	" decision, outcome, pause)"
	" SELECT $1, $2, $3, coalesce((SELECT h.seq FROM shard.history h"
	" WHERE h.type_id = $1 AND h.shard = $2 AND h.entity = $3 ORDER BY h.seq DESC LIMIT 1), 0) + 1,"
	" $4, $5, $6, $7, $8, $9)" TRIM,
	11,
	{INT4OID, INT4OID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, TEXTOID, INT8OID, INT4OID,
	 INT4OID}};

/* The same at a backup, of a failure that the home has noted. */
static ShardStatement store = {
	"WITH new AS (INSERT INTO shard.history (type_id, shard, entity, seq, at, sqlstate, error,"
	" attempts, decision, outcome, pause)"
	" VALUES ($1, $2, $3, $12, $13, $4, $5, $6, $7, $8, $9))" TRIM,
	13,
	{INT4OID, INT4OID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, TEXTOID, INT8OID, INT4OID,
	 INT4OID, INT8OID, TIMESTAMPTZOID}};

/* Of as many as there may be. Starts that failed are none of its messages. */
static ShardStatement count = {
	"SELECT pg_catalog.count(*) FROM (SELECT h.at FROM shard.history h"
	" WHERE h.type_id = $1 AND h.shard = $2 AND h.entity = $3 AND h.decision <> 'start'"
	" ORDER BY h.seq DESC LIMIT $5) h WHERE h.at > $4",
	5,
	{INT4OID, INT4OID, TEXTOID, TIMESTAMPTZOID, INT4OID}};

/*
 * Rows that another worker deletes just now are passed over, without waiting; and those of shards that are not active,
 * which may be on their way to another node.
 */
static ShardStatement delete_oldest = {
	"DELETE FROM shard.history WHERE ctid = ANY (ARRAY(SELECT h.ctid FROM shard.history h"
	" WHERE h.type_id = $1 AND h.at <= (SELECT at FROM shard.history WHERE type_id = $1"
	" ORDER BY at DESC OFFSET $2 LIMIT 1)"
	" AND EXISTS (SELECT FROM shard.own o"
	" WHERE o.type_id = h.type_id AND o.shard = h.shard AND o.state = 'active')"
	" ORDER BY h.at LIMIT $3 FOR UPDATE OF h SKIP LOCKED))",
	3,
	{INT4OID, INT4OID, INT4OID}};

/* Of a type with replicas the rows that a backup has are counted apart from those of homes. */
#define OF_SAME(row) \
	" AND CASE WHEN $4 THEN EXISTS (SELECT FROM shard.backup_here b" \
	" WHERE b.type_id = " row ".type_id AND b.shard = " row ".shard)" \
	" ELSE EXISTS (SELECT FROM shard.own o WHERE o.type_id = " row ".type_id" \
	" AND o.shard = " row ".shard AND o.state = 'active') END"

static ShardStatement delete_oldest_of_same = {
	"DELETE FROM shard.history WHERE ctid = ANY (ARRAY(SELECT h.ctid FROM shard.history h"
	" WHERE h.type_id = $1 AND h.at <= (SELECT n.at FROM shard.history n WHERE n.type_id = $1" OF_SAME(
		"n") " ORDER BY n.at DESC OFFSET $2 LIMIT 1)" OF_SAME("h") " ORDER BY h.at LIMIT $3 FOR UPDATE OF h SKIP LOCKED))",
	4,
	{INT4OID, INT4OID, INT4OID, BOOLOID}};

static const char *const outcomes[] = {[SHARD_ENTITY_RETRY] = "retry",
									   [SHARD_ENTITY_BURY] = "dead letter",
									   [SHARD_ENTITY_BURY_AND_STOP] = "dead letter",
									   [SHARD_ENTITY_PAUSE_SHARD] = "pause of the shard"};

/* type_id, shard, entity */
static void
add_entity(ShardArguments *arguments, const ShardEntity *entity)
{
	shard_statement_add(arguments, Int32GetDatum(entity->local->type->type_id), false);
	shard_statement_add(arguments, Int32GetDatum(entity->shard), false);
	shard_statement_add_text(arguments, entity->id, entity->id_len);
}

/* How many of its messages' failures are kept, and of its starts' as many: those that max_restarts asks for are among them. */
static Datum
most_of(const ShardType *type)
{
	return Int32GetDatum(Max(ROWS_EACH, type->max_restarts + 1));
}

int
shard_history_count(const ShardEntity *entity, int64 window)
{
	ShardArguments arguments = {0};
	int result;

	add_entity(&arguments, entity);
	shard_statement_add(&arguments, TimestampTzGetDatum(GetCurrentTimestamp() - window), false);
	shard_statement_add(&arguments, most_of(entity->local->type), false);
	SPI_connect();
	shard_statement_run(&count, &arguments, SPI_OK_SELECT);
	result = (int) shard_statement_int8(0, 1);
	SPI_finish();
	return result;
}

static void
run(ShardStatement *statement, ShardArguments *arguments)
{
	SPI_connect();
	shard_statement_run(statement, arguments, SPI_OK_DELETE);
	SPI_finish();
}

/* Of a type with replicas, of what homes here have; then, copies, of what a backup has. */
static void
delete_some(const ShardLocalType *local, bool copies)
{
	bool replicated = local->type->replicas > 0;
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(local->type->type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(MOST_ROWS), false);
	shard_statement_add(&arguments, Int32GetDatum(MOST_AT_ONCE), false);
	if (replicated)
		shard_statement_add(&arguments, BoolGetDatum(copies), false);
	run(replicated ? &delete_oldest_of_same : &delete_oldest, &arguments);
}

/* The count is no truth: a turn that is undone has only looked too early. */
static void
make_room(ShardLocalType *local)
{
	if (local->history_noted++ % LOOK_EVERY != 0)
		return;
	delete_some(local, false);
	if (local->type->replicas > 0)
		delete_some(local, true);
}

/* How far behind the row that goes others are looked for. */
static void
add_reach(ShardArguments *arguments)
{
#ifdef SHARD_MUTANT_HISTORY_READ_AGAIN
	shard_statement_add(arguments, Int32GetDatum(PG_INT32_MAX), false);
#else
	shard_statement_add(arguments, Int32GetDatum(SHARD_MOST_RESTARTS), false);
#endif
}

/* pause 0: none. */
static void
add(ShardEntity *entity, const ErrorData *error, int attempts, const char *decision,
	const char *outcome, int64 pause)
{
	const char *message = error->message == NULL ? "" : error->message;
	int bytes = (int) strlen(message);
	ShardArguments arguments = {0};

	add_entity(&arguments, entity);
	shard_statement_add_string(&arguments, unpack_sql_state(error->sqlerrcode));
	shard_statement_add_text(&arguments, message, pg_mbcliplen(message, bytes, ERROR_BYTES));
	shard_statement_add(&arguments, Int32GetDatum(attempts), false);
	shard_statement_add_string(&arguments, decision);
	shard_statement_add_string(&arguments, outcome);
	shard_statement_add(&arguments, Int64GetDatum(pause), pause == 0);
	shard_statement_add(&arguments, most_of(entity->local->type), false);
	add_reach(&arguments);
	run(&note, &arguments);
	shard_record_history(entity->local->type->type_id, entity->shard, entity->id, entity->id_len);
	make_room(entity->local);
}

void
shard_history_note(ShardEntity *entity, const ErrorData *error, const ShardEntityFailure *failure,
				   ShardEntityVerdict verdict, int64 pause)
{
	bool waits = verdict == SHARD_ENTITY_RETRY || verdict == SHARD_ENTITY_PAUSE_SHARD;

	add(entity, error, failure->attempts, shard_entity_decision_name(failure->decision),
		outcomes[verdict], waits ? pause : 0);
}

void
shard_history_note_start(ShardEntity *entity, const ErrorData *error, int attempts, int64 pause)
{
	if (pause != 0 && shard_entity_hope(unpack_sql_state(error->sqlerrcode)) == SHARD_ENTITY_PASSES)
		return;
	add(entity, error, attempts, "start", pause != 0 ? "retry" : "quarantine", pause);
}

void
shard_history_store(const ShardType *type, int32 shard, const ShardCopyHistory *history)
{
	ShardLocalType *local = shard_local_known(type->type_id);
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(shard), false);
	shard_statement_add_text(&arguments, history->entity, history->entity_len);
	shard_statement_add_text(&arguments, history->sqlstate, history->sqlstate_len);
	shard_statement_add_text(&arguments, history->error, history->error_len);
	shard_statement_add(&arguments, Int32GetDatum(history->attempts), false);
	shard_statement_add_text(&arguments, history->decision, history->decision_len);
	shard_statement_add_text(&arguments, history->outcome, history->outcome_len);
	shard_statement_add(&arguments, Int64GetDatum(history->pause_us), history->pause_us < 0);
	shard_statement_add(&arguments, most_of(type), false);
	add_reach(&arguments);
	shard_statement_add(&arguments, Int64GetDatum(history->seq), false);
	shard_statement_add(&arguments, TimestampTzGetDatum(history->ago_us), false);
	run(&store, &arguments);
	if (local != NULL)
		make_room(local);
}
