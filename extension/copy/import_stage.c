/*
 * copy/import_stage.c
 *		A shard that is copied to this node, in the one transaction that stages it (M4).
 *
 * Rows of the state table are written through the executor, as their owner. A copy is no change of state,
 * so ordinary triggers and foreign keys of that table say nothing to it, as in logical replication; its
 * triggers ENABLE REPLICA and ENABLE ALWAYS do (state_copy.c). Messages that wait get numbers below all that
 * this node gives itself (H6), and what the old home had taken in becomes the base of the marks (H7).
 *
 * The state table's lock and that of the shard are taken first, before any snapshot, and neither is waited for: another
 * transaction may have the one or the other for long, and all others would wait for what was taken.
 *
 * The turn lock is taken at the end, when nothing is left to do but the ownership row: the lane's worker looks at it
 * without waiting, and goes on with its other shards in a moment. So this transaction takes table locks before a turn
 * lock, against the order of W3. What could wait for it while it holds the turn lock is the deletion of rows of the
 * same shard, which first tries shard_turn_lock_import(), without waiting (M23); no turn writes rows of a shard that is
 * not active there.
 *
 * If the process dies right here: nothing of the copy is here. After the commit the copy waits for the decision. Should
 * the decision be for another home, the lane's worker deletes the copy between its turns, like what is left of a shard
 * that has moved, or the next import of the shard does.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/fault.h"
#include "registry/catalog.h"
#include "registry/control_store.h"
#include "core/base/message.h"
#include "core/entity/timer.h"
#include "entity/held.h"
#include "shared/import_progress.h"
#include "copy/import_private.h"
#include "copy/timer_copy.h"
#include "log/log.h"
#include "registry/payload.h"
#include "route/routing_store.h"
#include "log/session.h"
#include "entity/state_door.h"
#include "entity/state_purge.h"
#include "registry/statement.h"
#include "registry/turn_lock.h"
#include "base/damage.h"
#include "base/constraints.h"

#include "base/compat.h"

/* A turn is over by then; or what the type's own triggers and constraints wait for is not let go. */
#define LOCK_TIMEOUT "10s"

/* Messages that wait are numbered from here on: below those that were parked here (routing_store.c). */
#define FIRST_SEQ (PG_INT64_MIN + 1)

#define STRANGE_HINT \
	"If the mark is of a node that has just joined, this node learns of that node in a moment. " \
	"Else the mark was written to shard.shard_input there by SQL: delete the rows, and end the " \
	"region worker, which has them in memory."

StaticAssertDecl(SHARD_KIND_RESTART == 8,
				 "the statement below knows the kind of a start that failed");

static ShardStatement insert_held = {
	"INSERT INTO shard.held (type_id, shard, entity, seq, kind, epoch, stamp, src_type, src_entity,"
	" mid_node, mid_seq, payload, attempts, next_at, sqlstate, error, held_at, number, pauses, place)"
	" VALUES ($1, $2, $3, CASE WHEN $5 = 8 THEN 0 ELSE $4 END, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,"
	" $16, $17, $18, $19,"
	" CASE WHEN $5 = 8 THEN 'start' WHEN $18 IS NULL THEN 'stash' ELSE 'ordered' END)",
	19,
	{INT4OID, INT4OID, TEXTOID, INT8OID, INT2OID, INT4OID, BYTEAOID, INT4OID, TEXTOID, INT4OID,
	 INT8OID, BYTEAOID, INT4OID, TIMESTAMPTZOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, INT8OID,
	 BOOLOID}};

static ShardStatement insert_mark = {
	"INSERT INTO shard.shard_input (type_id, shard, prefix_kind, a, b, seq)"
	" VALUES ($1, $2, $3, $4, $5, $6)",
	6,
	{INT4OID, INT4OID, INT2OID, INT4OID, INT4OID, INT8OID}};

static ShardStatement insert_ordered = {
	"INSERT INTO shard.ordered (type_id, shard, entity, began, expected, skipped, late)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7)",
	7,
	{INT4OID, INT4OID, TEXTOID, INT8OID, INT8OID, INT8OID, INT8OID}};

static ShardStatement insert_history = {
	"INSERT INTO shard.history (type_id, shard, entity, seq, at, sqlstate, error, attempts, decision,"
	" outcome, pause) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
	11,
	{INT4OID, INT4OID, TEXTOID, INT8OID, TIMESTAMPTZOID, TEXTOID, TEXTOID, INT4OID, TEXTOID,
	 TEXTOID, INT8OID}};

static void
add_shard(const ShardImportStage *stage, ShardArguments *arguments)
{
	shard_statement_add(arguments, Int32GetDatum(stage->shard.type_id), false);
	shard_statement_add(arguments, Int32GetDatum(stage->shard.shard), false);
}

static void
damaged(const ShardImportStage *stage, const char *what)
{
	shard_damage_raise(psprintf("what node %d sends of shard %d of entity type \"%s\"", stage->node,
								stage->shard.shard, stage->type->name),
					   what, "Nothing of it was stored.");
}

/* ---- settings and locks ----------------------------------------------------------------------- */

static void
set_local(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_SUSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0,
							 false);
}

/* ---- begin ------------------------------------------------------------------------------------ */

ShardImportBusy
shard_import_stage_lock(const ShardImportStage *stage, bool rows)
{
	/* state_copy.c takes it once more, and does not wait then */
	if (!ConditionalLockRelationOid(stage->type->state_table, RowExclusiveLock))
		return SHARD_IMPORT_TABLE_BUSY;
	if (rows && !shard_turn_lock_import(stage->shard.type_id, stage->shard.shard))
		return SHARD_IMPORT_SHARD_BUSY;
	return SHARD_IMPORT_FREE;
}

/*
 * Learns how many nodes there were, and raises an error if there are more marks than these can have left. What was
 * learned since the caller began counts, too.
 */
static void
learn_nodes(ShardImportStage *stage)
{
	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_begin_system(&stage->security);
	SPI_connect();
	stage->last_node = shard_control_store_last_node();
	SPI_finish();
	shard_security_end(&stage->security);
	PopActiveSnapshot();
	if (stage->wanted[SHARD_COPY_MARKS] > stage->last_node)
		ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION),
						errmsg("node %d has " INT64_FORMAT " marks of shard %d of entity type "
							   "\"%s\", which can have %d",
							   stage->node, stage->wanted[SHARD_COPY_MARKS], stage->shard.shard,
							   stage->type->name, stage->last_node),
						errdetail("A shard has one mark of each node at most, and node %d knows "
								  "%d nodes.",
								  stage->self, stage->last_node),
						errhint(STRANGE_HINT)));
}

static void
open_states(ShardImportStage *stage, ShardReader columns)
{
	shard_security_begin(&stage->security, stage->type);
	shard_state_copy_open(&stage->copy, stage->type);
	shard_state_copy_match(&stage->copy, &columns, stage->node, stage->self);
}

/* Whether the shard has rows here, and no ownership row. */
static bool
has_strange_rows(ShardImportStage *stage)
{
	int32 shard = stage->shard.shard;
	int32 found = -1;
	int count;
	ShardOwn own;

	(void) shard_import_stage_judge(stage, &own);
	if (own.state != SHARD_HOME_NONE)
		return false;
	if (shard_state_door_shards(stage->type->state_table, shard - 1, shard, false, &found, 1,
								&count) == SHARD_DOOR_BUSY)
		ereport(
			ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg(
				 "the state table of entity type \"%s\" on node %d, or its primary key, is locked",
				 stage->type->name, stage->self),
			 errdetail("It cannot be seen whether the table has rows of the shard."),
			 errhint("End the transaction that holds the lock; see pg_locks.")));
	if (count == 0)
		return false;

	/* a copy that was not called off may have come in between, with its row */
	(void) shard_import_stage_judge(stage, &own);
	return own.state == SHARD_HOME_NONE;
}

/*
 * What a former home or a former copy has left has an ownership row as long as any of its rows is here. Other rows came
 * with a dump that was restored, or by SQL, and are not deleted (M26).
 */
static void
refuse_strange_rows(ShardImportStage *stage)
{
	const char *type = stage->type->name;

	if (!has_strange_rows(stage))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the state table of entity type \"%s\" on node %d has rows of shard %d that no "
					"move has brought: nothing of them was overwritten",
					type, stage->self, stage->shard.shard),
			 errdetail(
				 "A restored dump or SQL has put them there while the shard lived elsewhere."),
			 errhint("Take these rows out of the table there, as \"Restored rows of a shard that "
					 "lives elsewhere\" in doc/operations.md says, and move the shard again.")));
}

void
shard_import_stage_check(ShardImportStage *stage, ShardReader columns)
{
	set_local("lock_timeout", LOCK_TIMEOUT);
	learn_nodes(stage);
	PushActiveSnapshot(GetTransactionSnapshot());
	refuse_strange_rows(stage);
	open_states(stage, columns);
	shard_state_copy_close(&stage->copy);
	shard_security_end(&stage->security);
	PopActiveSnapshot();
}

/*
 * Messages that waited at a former home here and did not move with the shard become dead letters before its other rows
 * are deleted.
 */
static void
bury_held(const ShardImportStage *stage)
{
	ShardRoute route = {.type_id = stage->shard.type_id, .shard = stage->shard.shard};
	bool undone;
	int64 messages;

	shard_routing_store_load(&route, NULL);
	if (!shard_handoff_waits_alone(&route.own, Max(route.lost, route.doubt)))
		return;
	undone = route.doubt > route.own.epoch;
	messages = shard_held_bury_left(route.type_id, route.shard, undone);
	if (messages > 0)
		ereport(LOG, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					  errmsg(INT64_FORMAT
							 " messages for shard %d of entity type \"%s\" that waited here "
							 "become dead letters: the shard comes here again",
							 messages, route.shard, stage->type->name),
					  errdetail("Each %s.", undone ? SHARD_UNDONE_ERROR : SHARD_LOST_ERROR),
					  errhint("See shard_dead_letters.")));
}

/* Removes what a former home of the shard, or a former copy, has left here. */
static void
delete_leftovers(ShardImportStage *stage)
{
	const ShardShardRef *shard = &stage->shard;
	ShardStatePurge purge = {0};
	ShardOwn own;

	shard_security_end(&stage->security);
	(void) shard_import_stage_judge(stage, &own);
	shard_security_begin_system(&stage->security);
	if (own.state == SHARD_HOME_SEALED)
		purge.since = shard_routing_store_own_writer(shard->type_id, shard->shard);
	shard_state_purge(&purge, stage->type->state_table, shard->shard, PG_INT64_MAX);
	if (purge.left)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("states of shard %d of entity type \"%s\" are in use on node %d",
						shard->shard, stage->type->name, stage->self),
				 errdetail("These states are left from when the shard lived there before.")));
	shard_state_purge_report(&purge, stage->type->name, shard->shard);
	bury_held(stage);
	(void) shard_routing_store_discard(shard->type_id, shard->shard, PG_INT64_MAX);
	shard_security_end(&stage->security);
}

void
shard_import_stage_begin(ShardImportStage *stage, ShardReader columns)
{
	set_local("lock_timeout", LOCK_TIMEOUT);
	shard_constraints_immediate();
	stage->seq = FIRST_SEQ - 1;
	learn_nodes(stage);
	PushActiveSnapshot(GetTransactionSnapshot());
	refuse_strange_rows(stage);
	open_states(stage, columns);
	delete_leftovers(stage);
	PopActiveSnapshot();
}

/* ---- rows ------------------------------------------------------------------------------------- */

static bool
is_text(const char *text, int length)
{
	return pg_verify_mbstr(GetDatabaseEncoding(), text, length, true);
}

/* Raises an error unless a message that waits is fit to be handled. */
static void
check_held(const ShardImportStage *stage, const ShardCopyHeld *held)
{
	bool good = shard_payload_is_entity(held->entity, held->entity_len) &&
				is_text(held->error, held->error_len) &&
				is_text(held->sqlstate, held->sqlstate_len);

	/* a stop message of the worker's own has a type, but nobody has sent it (entity/stop.c) */
	if (good && held->src_type != 0 &&
		!(held->kind == SHARD_KIND_PASSIVATE && held->src_entity_len == 0))
		good = shard_payload_is_entity(held->src_entity, held->src_entity_len);
	if (good && (held->kind == SHARD_KIND_TELL || held->payload_len > 0))
		good = shard_payload_is_jsonb(held->payload, held->payload_len);
	if (!good)
		damaged(stage, "a message");
}

static void
store_held(ShardImportStage *stage, const ShardCopyHeld *held)
{
	TimestampTz now = GetCurrentTransactionStartTimestamp();
	ShardArguments arguments = {0};
	char stamp[SHARD_LOG_STAMP_BYTES];

	shard_log_put_stamp(stamp, held->stamp);
	add_shard(stage, &arguments);
	shard_statement_add_text(&arguments, held->entity, held->entity_len);
	shard_statement_add(&arguments, Int64GetDatum(++stage->seq), false);
	shard_statement_add(&arguments, Int16GetDatum((int16) held->kind), false);
	shard_statement_add(&arguments, Int32GetDatum(held->epoch), held->epoch < 0);
	shard_statement_add_text(&arguments, held->stamp.kind == SHARD_PREFIX_NONE ? NULL : stamp,
							 sizeof(stamp));
	shard_statement_add(&arguments, Int32GetDatum(held->src_type), held->src_type == 0);
	shard_statement_add_text(&arguments, held->src_type == 0 ? NULL : held->src_entity,
							 held->src_entity_len);
	shard_statement_add(&arguments, Int32GetDatum(held->mid_node), false);
	shard_statement_add(&arguments, Int64GetDatum(held->mid_seq), false);
	shard_statement_add_text(&arguments, held->payload, held->payload_len);
#ifdef SHARD_MUTANT_IMPORT_FORGETS_BACKOFF
	shard_statement_add(&arguments, Int32GetDatum(0), false);
	shard_statement_add(&arguments, TimestampTzGetDatum(0), true);
#else
	shard_statement_add(&arguments, Int32GetDatum(held->attempts), false);
	shard_statement_add(&arguments, TimestampTzGetDatum(now + held->next_us), !held->has_next);
#endif
	shard_statement_add_text(&arguments, held->sqlstate_len == 0 ? NULL : held->sqlstate,
							 held->sqlstate_len);
	shard_statement_add_text(&arguments, held->sqlstate_len == 0 ? NULL : held->error,
							 held->error_len);
	shard_statement_add(&arguments, TimestampTzGetDatum(now - held->waited_us), false);
	shard_statement_add(&arguments, Int64GetDatum(held->number), !held->ordered);
	shard_statement_add(&arguments, BoolGetDatum(held->pauses), false);
	shard_statement_change_one(&insert_held, &arguments, SPI_OK_INSERT);
}

static int
take_held(ShardImportStage *stage, ShardReader *rows)
{
	ShardCopyHeld held;
	int count = 0;

	while (shard_copy_get_held(rows, &held))
	{
#ifdef SHARD_MUTANT_IMPORT_WITHOUT_STASH
		count++;
		continue;
#endif
#ifdef SHARD_MUTANT_QUARANTINE_LEFT
		if (held.kind == SHARD_KIND_RESTART)
		{
			count++;
			continue;
		}
#endif
		check_held(stage, &held);
		store_held(stage, &held);
		shard_fault(held.kind == SHARD_KIND_RESTART ? "import_start" : "import_held");
		count++;
		CHECK_FOR_INTERRUPTS();
	}
	return count;
}

/* Raises that the shard cannot have such a mark. */
static void
strange_mark(const ShardImportStage *stage, const ShardStamp *mark)
{
	const ShardShardRef *shard = &stage->shard;

	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("node %d has a mark of shard %d of entity type \"%s\" that no shard can have: "
					"of node %d, lane %d",
					stage->node, shard->shard, stage->type->name, mark->a, mark->b),
			 errdetail("The lane of the shard is %d, and nodes have numbers up to %d, as far as "
					   "node %d has learned. Nothing of the shard was stored.",
					   shard_message_lane(shard->type_id, shard->shard), stage->last_node,
					   stage->self),
			 errhint(STRANGE_HINT)));
}

static int
take_marks(ShardImportStage *stage, ShardReader *rows)
{
	ShardStamp mark;
	int count = 0;

	while (shard_copy_get_mark(rows, &mark))
	{
		ShardArguments arguments = {0};

#ifdef SHARD_MUTANT_IMPORT_WITHOUT_MARKS
		count++;
		continue;
#endif
		if (!shard_mark_can_be(mark, stage->shard.type_id, stage->shard.shard, stage->last_node))
			strange_mark(stage, &mark);
		add_shard(stage, &arguments);
		shard_statement_add(&arguments, Int16GetDatum((int16) mark.kind), false);
		shard_statement_add(&arguments, Int32GetDatum(mark.a), false);
		shard_statement_add(&arguments, Int32GetDatum(mark.b), false);
		shard_statement_add(&arguments, Int64GetDatum(mark.seq), false);
		shard_statement_change_one(&insert_mark, &arguments, SPI_OK_INSERT);
		count++;
		CHECK_FOR_INTERRUPTS();
	}
	return count;
}

static int
take_ordered(ShardImportStage *stage, ShardReader *rows)
{
	ShardCopyOrdered ordered;
	int count = 0;

	while (shard_copy_get_ordered(rows, &ordered))
	{
		ShardArguments arguments = {0};

		if (!shard_payload_is_entity(ordered.entity, ordered.entity_len))
			damaged(stage, "an entity id");
		add_shard(stage, &arguments);
		shard_statement_add_text(&arguments, ordered.entity, ordered.entity_len);
		shard_statement_add(&arguments, Int64GetDatum(ordered.began), false);
		shard_statement_add(&arguments, Int64GetDatum(ordered.expected), false);
		shard_statement_add(&arguments, Int64GetDatum(ordered.skipped), false);
		shard_statement_add(&arguments, Int64GetDatum(ordered.late), false);
		shard_statement_change_one(&insert_ordered, &arguments, SPI_OK_INSERT);
		count++;
		CHECK_FOR_INTERRUPTS();
	}
	return count;
}

static int
take_timers(ShardImportStage *stage, ShardReader *rows)
{
	ShardCopyTimer timer;
	int count = 0;

	while (shard_copy_get_timer(rows, &timer))
	{
#ifdef SHARD_MUTANT_TIMERS_STAY
		count++;
		continue;
#endif
		if (timer.due < 0 || !IS_VALID_TIMESTAMP(timer.due) || timer.first < 0 ||
			!IS_VALID_TIMESTAMP(timer.first) || timer.period > PG_INT32_MAX ||
			timer.idle > PG_INT64_MAX / 4 ||
			!shard_payload_is_entity(timer.entity, timer.entity_len) ||
			timer.missed > SHARD_TIMER_SKIP || !is_text(timer.name, timer.name_len) ||
			!is_text(timer.zone, timer.zone_len) ||
			!shard_payload_is_jsonb(timer.message, timer.message_len))
			damaged(stage, "a timer");
		shard_copy_timers_store(stage->shard.type_id, stage->shard.shard, &timer);
		shard_fault("import_timer");
		count++;
	}
	if (rows->failed)
		damaged(stage, "a timer");
	return count;
}

/* Raises an error unless the texts of a failure are texts here. */
static void
check_history(const ShardImportStage *stage, const ShardCopyHistory *history)
{
	if (!shard_payload_is_entity(history->entity, history->entity_len) ||
		!is_text(history->sqlstate, history->sqlstate_len) ||
		!is_text(history->error, history->error_len) ||
		!is_text(history->decision, history->decision_len) ||
		!is_text(history->outcome, history->outcome_len))
		damaged(stage, "a failure");
}

static int
take_history(ShardImportStage *stage, ShardReader *rows)
{
	TimestampTz now = GetCurrentTransactionStartTimestamp();
	ShardCopyHistory history;
	int count = 0;

	while (shard_copy_get_history(rows, &history))
	{
		ShardArguments arguments = {0};

		check_history(stage, &history);
		add_shard(stage, &arguments);
		shard_statement_add_text(&arguments, history.entity, history.entity_len);
		shard_statement_add(&arguments, Int64GetDatum(history.seq), false);
		shard_statement_add(&arguments, TimestampTzGetDatum(now - history.ago_us), false);
		shard_statement_add_text(&arguments, history.sqlstate, history.sqlstate_len);
		shard_statement_add_text(&arguments, history.error, history.error_len);
		shard_statement_add(&arguments, Int32GetDatum(history.attempts), false);
		shard_statement_add_text(&arguments, history.decision, history.decision_len);
		shard_statement_add_text(&arguments, history.outcome, history.outcome_len);
		shard_statement_add(&arguments, Int64GetDatum(history.pause_us), history.pause_us < 0);
		shard_statement_change_one(&insert_history, &arguments, SPI_OK_INSERT);
		shard_fault("import_history");
		count++;
		CHECK_FOR_INTERRUPTS();
	}
	return count;
}

static int (*const takers[SHARD_COPY_PARTS])(ShardImportStage *, ShardReader *) = {
	[SHARD_COPY_STASH] = take_held,		 [SHARD_COPY_MARKS] = take_marks,
	[SHARD_COPY_ORDERED] = take_ordered, [SHARD_COPY_TIMERS] = take_timers,
	[SHARD_COPY_HISTORY] = take_history,
};

void
shard_import_stage_take(ShardImportStage *stage, const ShardCopyChunk *chunk)
{
	ShardReader rows = {chunk->rows, chunk->rows + chunk->rows_len, false};

	PushActiveSnapshot(GetTransactionSnapshot());
	if (chunk->part == SHARD_COPY_STATE)
	{
		shard_security_begin(&stage->security, stage->type);
		shard_state_copy_insert(&stage->copy, stage->shard.shard, &rows, chunk->n_rows);
	}
	else
	{
		MemoryContext chunk_context =
			AllocSetContextCreate(CurrentMemoryContext, "shard import chunk",
								  ALLOCSET_DEFAULT_SIZES);
		MemoryContext old = MemoryContextSwitchTo(chunk_context);

		shard_security_begin_system(&stage->security);
		if (takers[chunk->part](stage, &rows) != chunk->n_rows || rows.failed)
			damaged(stage, shard_copy_part_names[chunk->part]);
		MemoryContextSwitchTo(old);
		MemoryContextDelete(chunk_context);
	}
	shard_security_end(&stage->security);
	PopActiveSnapshot();
	stage->rows[chunk->part] += chunk->n_rows;
}

void
shard_import_stage_complete(ShardImportStage *stage)
{
	for (int part = 0; part < SHARD_COPY_PARTS; part++)
		if (stage->rows[part] != stage->wanted[part])
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("the copy of shard %d of entity type \"%s\" from node %d is incomplete",
							stage->shard.shard, stage->type->name, stage->node),
					 errdetail("Of its %s, " INT64_FORMAT " rows came, not " INT64_FORMAT ".",
							   shard_copy_part_names[part], stage->rows[part], stage->wanted[part]),
					 errhint("Only the extension may change rows of a sealed shard.")));
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_security_begin(&stage->security, stage->type);
	shard_state_copy_close(&stage->copy);
	shard_security_end(&stage->security);
	PopActiveSnapshot();
}

/* ---- the ownership row ------------------------------------------------------------------------ */

ShardHandoffAnswer
shard_import_stage_judge(ShardImportStage *stage, ShardOwn *own)
{
	ShardRoute route = {.type_id = stage->shard.type_id, .shard = stage->shard.shard};

	shard_security_begin_system(&stage->security);
	shard_routing_store_load(&route, NULL);
	shard_security_end(&stage->security);
	if (own != NULL)
		*own = route.own;
	return shard_handoff_import(&route.own, route.n == 0 ? SHARD_NO_EPOCH : route.epoch,
								&stage->shard);
}

/* Writes "staged", if the ownership row has not changed. */
static void
write_own(ShardImportStage *stage, const ShardOwn *before, const ShardOwn *after)
{
	const ShardShardRef *shard = &stage->shard;

	shard_security_begin_system(&stage->security);
	if (!shard_routing_store_write_own(shard->type_id, shard->shard, after, before))
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("the ownership of shard %d of entity type \"%s\" has changed",
							   shard->shard, stage->type->name)));
	shard_security_end(&stage->security);
}

void
shard_import_stage_announce(const ShardImportStage *stage)
{
	ShardRow row = {.type_id = stage->shard.type_id,
					.shard = stage->shard.shard,
					.kind = SHARD_KIND_OWN,
					.entity = "",
					.payload = "",
					.epoch = SHARD_NO_EPOCH};

	shard_log_append(&row);
	shard_session_appended(shard_message_lane(row.type_id, row.shard));
}

ShardHandoffAnswer
shard_import_stage_own(ShardImportStage *stage)
{
	ShardHandoffAnswer answer;
	ShardOwn before;
	ShardOwn after;

	shard_turn_lock_wait(shard_message_lane(stage->shard.type_id, stage->shard.shard));
	answer = shard_import_stage_judge(stage, &before);
	if (answer != SHARD_HANDOFF_DO)
		return answer;
	after = before;
	if (!shard_handoff_step(&after, SHARD_HOME_IMPORT, stage->shard.epoch, stage->shard.move_id))
		elog(ERROR, "an import is no step from state %s",
			 shard_home_machine.state_names[before.state]);
	write_own(stage, &before, &after);
	shard_import_stage_announce(stage);
	return answer;
}
