/*
 * entity/replica_apply.c
 *		A backup applies what it has stored: the states of its copies, in shard_replica.<type>, and their other rows (Q10).
 *
 * Comes from: process/region.c, between turns, when a call has stored something, or told that it is released
 * (shard_copy_apply_soon). Reads records (log/turn_log.h), collects the newest of each row (replica_pass.c, replica_rows.c), and
 * writes states as the type's owner (replica_table.c), other rows as the extension (replica_rows_write.c), in one transaction.
 *
 * If the process dies right here: before the commit nothing was applied, and all records are there. After it the row of
 * shard.copy says what is applied, which the next worker, or server, goes on from; rotation learns later that records may go.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/attempt.h"
#include "base/clock.h"
#include "base/constraints.h"
#include "base/fault.h"
#include "core/base/message.h"
#include "entity/internal.h"
#include "entity/replica_apply.h"
#include "entity/replica_pass.h"
#include "entity/replica_rows.h"
#include "entity/replica_table.h"
#include "entity/state_door.h"
#include "entity/state_purge.h"
#include "registry/catalog.h"
#include "registry/statement.h"
#include "registry/turn_lock.h"

#include "base/compat.h"

/* Another process has the extension or a lane locked: again after this time. */
#define BUSY_MS 20

/* What fails is tried again after twice as long each time, up to this. */
#define MOST_PAUSE_MS 5000

/* Locks of others that last no longer are nobody's problem. */
#define FAILURES_TO_SAY 3

/* Rows of shards that are no copies here any more: deleted at a time, and how many shards are looked at. */
#define SWEEP_ROWS 10000
#define SWEEP_SHARDS 64
#define SWEEP_AGAIN_MS 1000

static ShardStatement select_copy = {
	"SELECT lost, applied, columns, problem FROM shard.copy WHERE type_id = $1 AND shard = $2",
	2,
	{INT4OID, INT4OID}};

static ShardStatement update_copy = {
	"UPDATE shard.copy SET applied = $3, columns = coalesce($4, columns), problem = $5"
	" WHERE type_id = $1 AND shard = $2",
	5,
	{INT4OID, INT4OID, INT8OID, BYTEAOID, TEXTOID}};

static ShardStatement update_problem = {
	"UPDATE shard.copy SET problem = $3 WHERE type_id = $1 AND shard = ANY ($2)",
	3,
	{INT4OID, INT4ARRAYOID, TEXTOID}};

/* A type whose records could not be applied; in memory alone. */
typedef struct Trouble
{
	int32 type_id;
	int failures; /* in a row; 0: none */
	int64 again;  /* not before */
	char *said;	  /* what is written of it; NULL: nothing */
} Trouble;

/* Where a look at tables for rows of shards that are no copies here has come to. */
typedef struct Sweep
{
	bool wanted;
	int32 type_id; /* types up to this one are done, but for it */
	int32 after;   /* shards of it up to this one are */
	int64 again;   /* not before */
} Sweep;

static int64 due = 0; /* by shard_clock_now(); 0: when something comes */
static Sweep sweep;
static List *troubles = NIL; /* Trouble * */
static MemoryContext context = NULL;

void
shard_replica_apply_look(void)
{
	due = 1;
	sweep = (Sweep){.wanted = true, .after = -1, .again = 1};
}

static void
come_again(int64 at)
{
	due = due == 0 ? at : Min(due, at);
}

long
shard_replica_apply_due(void)
{
	int64 at = shard_copy_apply_at();
	int64 left;

	if (at == 0 || (due != 0 && due < at))
		at = due;
	if (likely(at == 0))
		return -1;
	left = at - shard_clock_now();
	return left <= 0 ? 0 : (long) ((left + 999) / 1000);
}

/* ---- troubles ------------------------------------------------------------------------------------- */

static Trouble *
trouble_of(int32 type_id)
{
	MemoryContext old;
	Trouble *trouble;
	ListCell *cell;

	foreach (cell, troubles)
	{
		trouble = lfirst(cell);
		if (trouble->type_id == type_id)
			return trouble;
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	trouble = palloc0(sizeof(Trouble));
	trouble->type_id = type_id;
	troubles = lappend(troubles, trouble);
	MemoryContextSwitchTo(old);
	return trouble;
}

static void
has_worked(Trouble *trouble)
{
	trouble->failures = 0;
	trouble->again = 0;
	if (trouble->said != NULL)
		pfree(trouble->said);
	trouble->said = NULL;
}

/* Writes what is the matter to the rows of the copies, for health. */
static void
write_problem(const ShardReplicaPass *pass, const char *problem)
{
	Datum *shards = palloc(pass->n_copies * sizeof(Datum));
	ShardArguments arguments = {0};

	for (int i = 0; i < pass->n_copies; i++)
		shards[i] = Int32GetDatum(pass->copies[i].item.key.shard);
	shard_statement_add(&arguments, Int32GetDatum(pass->type_id), false);
	shard_statement_add(&arguments,
						PointerGetDatum(construct_array(shards, pass->n_copies, INT4OID,
														sizeof(int32), true, TYPALIGN_INT)),
						false);
	shard_statement_add_string(&arguments, problem);
	SPI_connect();
	shard_statement_change(&update_problem, &arguments, SPI_OK_UPDATE);
	SPI_finish();
}

/* To the server's log, and to the rows of the copies; in a transaction of its own. */
static void
say(const ShardReplicaPass *pass, Trouble *trouble, const ErrorData *error)
{
	const char *name;

	if (trouble->said != NULL && strcmp(trouble->said, error->message) == 0)
		return;
	if (trouble->said != NULL)
		pfree(trouble->said);
	trouble->said = MemoryContextStrdup(TopMemoryContext, error->message);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (shard_catalog_lock(true))
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		name = shard_registry_last_name(pass->type_id);
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("copies of entity type \"%s\" are not applied: %s", name ? name : "",
						error->message),
				 errdetail(
					 "%sWhat their homes ship is stored, and applied as soon as that is possible.",
					 error->detail ? psprintf("%s ", error->detail) : ""),
				 error->hint ? errhint("%s", error->hint) : 0));
		write_problem(pass, trouble->said);
		PopActiveSnapshot();
	}
	CommitTransactionCommand();
}

/* The transaction was aborted. */
static void
has_failed(const ShardReplicaPass *pass, const ErrorData *error)
{
	Trouble *trouble = trouble_of(pass->type_id);
	int64 pause = SHARD_APPLY_MS << Min(trouble->failures, 8);

	trouble->failures++;
	trouble->again = shard_clock_now() + Min(pause, MOST_PAUSE_MS) * INT64CONST(1000);
	come_again(trouble->again);
	if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE || trouble->failures >= FAILURES_TO_SAY)
		say(pass, trouble, error);
}

/* ---- one type ------------------------------------------------------------------------------------- */

/* A transaction under the locks of a turn, in memory that outlives it. False: others have one of them, or the extension is another. */
static bool
begin(ShardLanes lanes, Oid extension)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (shard_catalog_lock(true) && shard_catalog_get()->extension == extension &&
		shard_turn_lock(lanes))
	{
		shard_constraints_immediate();
		PushActiveSnapshot(GetTransactionSnapshot());
		shard_registry_refresh();
		MemoryContextSwitchTo(context); /* what is read is looked at once more after the commit */
		return true;
	}
	CommitTransactionCommand();
	come_again(shard_clock_now() + BUSY_MS * INT64CONST(1000));
	return false;
}

/* What table shard.copy says. A copy without a row is none any more. */
static void
read_copies(ShardReplicaPass *pass)
{
	SPI_connect();
	for (int i = 0; i < pass->n_copies; i++)
	{
		ShardReplicaPassCopy *copy = &pass->copies[i];
		ShardArguments arguments = {0};
		int said_len;

		shard_statement_add(&arguments, Int32GetDatum(pass->type_id), false);
		shard_statement_add(&arguments, Int32GetDatum(copy->item.key.shard), false);
		shard_statement_run(&select_copy, &arguments, SPI_OK_SELECT);
		if (SPI_processed == 0 || shard_statement_int4(0, 1) != copy->item.set.lost)
		{
			copy->to = 0;
			continue;
		}
		copy->applied = shard_statement_int8(0, 2);
		copy->columns = shard_statement_bytes(0, 3, context, &copy->columns_len);
		copy->reached = copy->applied;
		copy->said = shard_statement_bytes(0, 4, context, &said_len);
		SPI_freetuptable(SPI_tuptable);
	}
	SPI_finish();
}

/* What rows there are of a copy that nothing was applied to are of a history that was given up, or of a dump. */
static void
clear_fresh(const ShardReplicaPass *pass, const char *label)
{
	for (int i = 0; i < pass->n_copies; i++)
	{
		ShardStatePurge purge = {0};

		if (pass->copies[i].applied > 0 || pass->copies[i].reached == 0)
			continue;
		shard_state_purge(&purge, pass->table, pass->copies[i].item.key.shard, PG_INT64_MAX);
		if (purge.left)
			ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
							errmsg("rows of table %s are in use", label)));
		shard_replica_rows_clear(pass->type_id, pass->copies[i].item.key.shard);
	}
	CommandCounterIncrement();
}

/* Writes the newest images, as the type's owner. */
static void
write_images(ShardReplicaPass *pass, const ShardType *type)
{
	ShardSecurity security = {0};
	ShardStateCopy copy;
	HASH_SEQ_STATUS all;
	ShardReplicaPassImage *image;
	const char *columns = NULL;
	int columns_len = 0;

	PushActiveSnapshot(GetTransactionSnapshot());
	shard_security_begin(&security, type);
	shard_call_watch(type);
	shard_replica_table_open(&copy, type, pass->table);
	shard_call_watched();
	hash_seq_init(&all, pass->images);
	while ((image = hash_seq_search(&all)) != NULL)
	{
		const ShardReplicaPassCopy *of = &pass->copies[image->key.copy];

		shard_call_watch(type);
		if (image->image.row != NULL && (columns == NULL || columns_len != image->columns_len ||
										 memcmp(columns, image->columns, columns_len) != 0))
		{
			columns = image->columns;
			columns_len = image->columns_len;
			shard_replica_table_columns(&copy, columns, columns_len, of->item.set.nodes[0],
										pass->self);
		}
		shard_replica_table_put(&copy, of->item.key.shard, &image->image);
		shard_call_watched();
	}
	shard_call_watch(type);
	shard_state_close(&copy.table);
	shard_call_watched();
	shard_security_end(&security);
	PopActiveSnapshot();
}

static bool
is_same(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* What is applied, and why not more. */
static void
write_copies(const ShardReplicaPass *pass)
{
	SPI_connect();
	for (int i = 0; i < pass->n_copies; i++)
	{
		const ShardReplicaPassCopy *copy = &pass->copies[i];
		ShardArguments arguments = {0};

		if (copy->to == 0 || (copy->reached == copy->applied && is_same(copy->said, copy->problem)))
			continue;
		shard_statement_add(&arguments, Int32GetDatum(pass->type_id), false);
		shard_statement_add(&arguments, Int32GetDatum(copy->item.key.shard), false);
		shard_statement_add(&arguments, Int64GetDatum(copy->reached), false);
		shard_statement_add_text(&arguments, copy->told ? copy->columns : NULL, copy->columns_len);
		shard_statement_add_string(&arguments, copy->problem);
		shard_statement_change_one(&update_copy, &arguments, SPI_OK_UPDATE);
	}
	SPI_finish();
}

/* Why nothing of the type is applied now; an error. */
static void
check_type(const ShardReplicaPass *pass, const ShardType *type)
{
	int sqlstate = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	char *problem = NULL;

	if (type->mode != SHARD_MODE_HOSTING)
		problem = pstrdup("the type is stopped here");
	else if (shard_local_keeps())
		problem = pstrdup("no region worker is left for the owner of the type");
	else if (type->problem != NULL)
		problem = pstrdup(type->problem);
	else
		problem = shard_local_suspends(type, &sqlstate);
	if (problem == NULL && !OidIsValid(pass->table))
	{
		sqlstate = ERRCODE_UNDEFINED_TABLE;
		problem = psprintf("table %s does not exist", shard_replica_table_label(type));
	}
	if (problem != NULL)
		ereport(ERROR, (errcode(sqlstate), errmsg_internal("%s", problem)));
}

/* Applies a piece. False: nothing of it, since others have locks. */
static bool
apply_piece(ShardReplicaPass *pass, ShardLanes lanes, Oid extension)
{
	const ShardType *type;

	if (!begin(lanes, extension))
		return false;
	type = shard_registry_by_id(pass->type_id);
	if (type != NULL)
	{
		pass->table = shard_replica_table_of(type);
		check_type(pass, type);
		read_copies(pass);
		shard_replica_pass_read(pass);
		clear_fresh(pass, shard_replica_table_label(type));
		write_images(pass, type);
		shard_fault("apply_written");
		shard_replica_rows_write(pass, type);
		shard_fault("apply_rows_written");
		write_copies(pass);
	}
	PopActiveSnapshot();
	shard_fault("apply_before_commit");
	CommitTransactionCommand();
	shard_fault("apply_after_commit");
	return true;
}

/* The piece has committed. */
static void
publish(const ShardReplicaPass *pass)
{
	int64 again = shard_clock_now() + MOST_PAUSE_MS * INT64CONST(1000);

	for (int i = 0; i < pass->n_copies; i++)
	{
		const ShardReplicaPassCopy *copy = &pass->copies[i];

		/* what another process of this worker had applied may be news, too */
		if (copy->reached > copy->item.end.copy.applied)
			shard_copy_end_applied(&copy->item.key, copy->reached);
		shard_replica_pass_note(copy);
		if (copy->problem != NULL)
		{
			shard_replica_pass_rest(copy, again);
			come_again(again);
		}
	}
}

/* Returns whether there is more. */
static bool
apply_type(ShardReplicaPass *pass, ShardLanes lanes, Oid extension)
{
	volatile bool applied = false;
	ErrorData *error;

	PG_TRY();
	{
		applied = apply_piece(pass, lanes, extension);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = shard_attempt_take_error();
		AbortCurrentTransaction();
		MemoryContextSwitchTo(context);
		shard_call_aborted();
		shard_call_explain(error);
		has_failed(pass, error);
		shard_attempt_free_error(error);
		MemoryContextSwitchTo(context);
		return false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	if (!applied)
		return false;
	publish(pass);
	has_worked(trouble_of(pass->type_id));
	return pass->full;
}

/* ---- copies that are none any more ---------------------------------------------------------------- */

/* The type whose table is looked at next. */
static void
find_next(ShardType *type, void *arg)
{
	ShardType **next = arg;

	if (type->replicas > 0 && type->type_id >= sweep.type_id &&
		(*next == NULL || type->type_id < (*next)->type_id))
		*next = type;
}

static bool
is_backup(int32 type_id, int32 shard, int32 self)
{
	ShardCopySetKey key = {MyDatabaseId, type_id, shard};
	ShardSet set;

	return shard_copy_set_get(&key, &set) && shard_set_role(&set, self) == SHARD_SET_BACKUP;
}

/* Rows of some shards of one type. */
static void
sweep_type(const ShardType *type, Oid table, ShardLanes lanes, int32 self)
{
	ShardStatePurge purge = {0};
	int32 shards[SWEEP_SHARDS];
	int count = 0;

	if (OidIsValid(table) &&
		shard_state_door_shards(table, sweep.after, PG_INT32_MAX, false, shards, SWEEP_SHARDS,
								&count) == SHARD_DOOR_BUSY)
		purge.busy = true;
	for (int i = 0; i < count && !purge.left; i++)
	{
		if ((lanes & shard_lane_bit(shard_message_lane(type->type_id, shards[i]))) != 0 &&
			!is_backup(type->type_id, shards[i], self))
			shard_state_purge(&purge, table, shards[i], SWEEP_ROWS);
		if (!purge.left)
			sweep.after = shards[i];
	}
	if (purge.busy)
		sweep.again = shard_clock_now() + SWEEP_AGAIN_MS * INT64CONST(1000);
	else if (count < SWEEP_SHARDS && !purge.left)
		sweep = (Sweep){.wanted = true, .type_id = type->type_id + 1, .after = -1, .again = 1};
}

static void
sweep_some(ShardLanes lanes, int32 self, Oid extension)
{
	ShardType *type = NULL;

	sweep.again = 1;
	if (!begin(lanes, extension))
	{
		sweep.again = shard_clock_now() + BUSY_MS * INT64CONST(1000);
		return;
	}
	shard_registry_each(find_next, &type);
	if (type == NULL)
		sweep.wanted = false;
	else
	{
		if (type->type_id != sweep.type_id)
			sweep.after = -1;
		sweep.type_id = type->type_id;
		sweep_type(type, shard_replica_table_of(type), lanes, self);
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* A piece of the look, whose failure is tried again later. */
static void
sweep_safely(ShardLanes lanes, int32 self, Oid extension)
{
	PG_TRY();
	{
		sweep_some(lanes, self, extension);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
		sweep.again = shard_clock_now() + SWEEP_AGAIN_MS * INT64CONST(1000);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	if (sweep.wanted)
		come_again(sweep.again);
}

/* ---- all ------------------------------------------------------------------------------------------ */

/* The copies to which something is to be applied, in the order of their types and shards. */
static ShardCopySetItem *
list_due(ShardLanes lanes, int32 self, int *count)
{
	ShardCopySetItem *items = shard_copy_set_list(MyDatabaseId, count);
	int64 now = shard_clock_now();
	int kept = 0;

	for (int i = 0; i < *count; i++)
	{
		const ShardCopySetItem *item = &items[i];

		if ((lanes & shard_lane_bit(shard_message_lane(item->key.type_id, item->key.shard))) != 0 &&
			item->set.n_nodes > 0 && shard_set_role(&item->set, self) == SHARD_SET_BACKUP &&
			shard_replica_may_apply(&item->end.copy) > item->end.copy.applied &&
			!shard_replica_pass_rests(&item->key, now))
			items[kept++] = *item;
	}
	*count = kept;
	if (kept > 1)
		qsort(items, kept, sizeof(ShardCopySetItem), shard_copy_set_compare);
	return items;
}

/* Those of the type of the first one. */
static int
of_type(const ShardCopySetItem *items, int count)
{
	int n = 1;

	while (n < count && items[n].key.type_id == items[0].key.type_id)
		n++;
	return n;
}

bool
shard_replica_apply(ShardLanes lanes, int32 self, Oid extension)
{
	MemoryContext old = CurrentMemoryContext;
	ShardCopySetItem *items;
	bool more = false;
	int count;

	if (likely(shard_replica_apply_due() != 0))
		return false;
	shard_copy_apply_begin();
	due = 0;
	if (context == NULL)
		context =
			AllocSetContextCreate(TopMemoryContext, "shard replica apply", ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(context);
	MemoryContextSwitchTo(context);
	items = list_due(lanes, self, &count);
	for (int i = 0; i < count;)
	{
		int n = of_type(&items[i], count - i);
		const Trouble *trouble = trouble_of(items[i].key.type_id);

		if (trouble->again > shard_clock_now())
			come_again(trouble->again);
		else
			more |= apply_type(shard_replica_pass_begin(&items[i], n, self), lanes, extension);
		i += n;
	}
	if (sweep.wanted && sweep.again <= shard_clock_now())
		sweep_safely(lanes, self, extension);
	else if (sweep.wanted)
		come_again(sweep.again);
	MemoryContextSwitchTo(old);
	MemoryContextReset(context);
	if (more)
		come_again(1);
	return more;
}
