/*
 * sql/operate/admin_reset.c
 *		SQL function shard_reset_cluster_data: this database forgets its cluster and is a node of its own.
 *
 * While none of the extension's workers runs. One transaction: what the node knew of its cluster goes - map, identity,
 * homes, marks, streams, copies of shards whose move was not decided - and the log is emptied. The states of entities,
 * the types and the dead letters stay, and messages that wait are appended to the log again, as if they had just been
 * sent: first those of the stash, then those that were parked, then those of the log. At its next start the control
 * worker finds no identity, and founds a cluster of one; shards get their homes, in their first epoch, when they are
 * met.
 *
 * If the process dies before the commit, nothing has happened. Shared memory is told in between; what it is
 * told makes the next reader look into the tables, whatever they say.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

#include "registry/catalog.h"
#include "registry/control_store.h"
#include "core/member/membership.h"
#include "registry/directory.h"
#include "base/guc.h"
#include "log/log_position.h"
#include "log/log_read.h"
#include "registry/identity.h"
#include "shared/board.h"
#include "shared/copy_set.h"
#include "shared/stream_position.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "entity/replica_rows.h"
#include "entity/state_purge.h"
#include "base/argument.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_admin_reset);

/* Columns of a message that waits, in the tuplestore. */
enum
{
	WAITING_TYPE,
	WAITING_SHARD,
	WAITING_KIND,
	WAITING_ENTITY,
	WAITING_PAYLOAD,
	WAITING_SRC_TYPE,
	WAITING_SRC_ENTITY,
	WAITING_MID_NODE,
	WAITING_MID_SEQ,
	WAITING_COLUMNS
};

typedef struct Waiting
{
	Tuplestorestate *store;
	TupleDesc desc;
	ShardLogPositions positions;
	int32 self;
	int64 count;
} Waiting;

/* Held messages of shards that live here, then the parked ones. */
static const char *const waiting_queries[] = {
	"SELECT type_id, shard, kind::int4, entity, payload, src_type, src_entity, mid_node, mid_seq "
	"FROM shard.held_here ORDER BY seq, number",
	"SELECT type_id, shard, kind::int4, entity, payload, src_type, src_entity, mid_node, mid_seq "
	"FROM shard.parked WHERE turn IS NULL ORDER BY rseq, arrival"};

/* Copies of shards that do not live here, and what is left of a state that was given up: rows would become states. */
static const char *const strangers =
	"SELECT t.state_table::oid, o.shard, t.type_name "
	"FROM shard.own o JOIN shard.type t USING (type_id) LEFT JOIN shard.route r "
	"ON r.type_id OPERATOR(pg_catalog.=) o.type_id AND r.shard OPERATOR(pg_catalog.=) o.shard "
	"WHERE (o.state OPERATOR(pg_catalog.=) 'staged' OR o.state OPERATOR(pg_catalog.=) 'clearing' "
	"OR (o.state OPERATOR(pg_catalog.=) 'sealed' AND r.epoch OPERATOR(pg_catalog.>) o.epoch)) "
	"AND EXISTS (SELECT FROM pg_catalog.pg_class c "
	"WHERE c.oid OPERATOR(pg_catalog.=) t.state_table::oid)";

static const char *const clearing[] = {
	"DELETE FROM shard.control",
	"DELETE FROM shard.own",
	"DELETE FROM shard.shard_input",
	"DELETE FROM shard.route",
	"DELETE FROM shard.copy",
	"DELETE FROM shard.turn_kept",
	"DELETE FROM shard.output",
	"DELETE FROM shard.letter",
	"DELETE FROM shard.held",
	"DELETE FROM shard.parked",
	"DELETE FROM shard.stream",
	"DELETE FROM shard.position",
	"DELETE FROM shard.outbox_kept",
	"DELETE FROM shard.decision",
	"DELETE FROM shard.type WHERE mode OPERATOR(pg_catalog.=) 'dropped'",
	"TRUNCATE shard.inbox_0, shard.inbox_1, shard.inbox_2, shard.inbox_3, shard.inbox_4, "
	"shard.inbox_5, shard.inbox_6, shard.inbox_7",
	"UPDATE shard.node SET cluster_id = pg_catalog.gen_random_uuid(), node_id = 1, inc_no = 1, "
	"inc_uuid = pg_catalog.gen_random_uuid(), voter_state = 'ok', fenced = NULL, dsn = '', "
	"system_identifier = (SELECT s.system_identifier FROM pg_catalog.pg_control_system() s), "
	"database_oid = (SELECT d.oid FROM pg_catalog.pg_database d "
	"WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())"};

/* ---- may it be --------------------------------------------------------------------------------- */

static void
check_workers(ShardDatabase *db)
{
	bool any = false;

	for (int i = 0; db != NULL && i < SHARD_WORKER_SLOTS; i++)
		any |= shard_shmem_worker_runs(db, i);
	if (!shard_enabled && !any)
		return;
	ereport(
		ERROR,
		(errcode(ERRCODE_OBJECT_IN_USE),
		 errmsg("cannot reset the data of the cluster while workers run"),
		 errdetail("%s", shard_enabled ? "Setting shard.enabled is on."
									   : "Setting shard.enabled is off; they are about to end."),
		 errhint("Set shard.enabled = off, reload, and wait until shard_stat_workers is empty.")));
}

/*
 * What this node had for other members would be lost; one that has left had nothing any more.
 */
static void
check_members(int32 self, bool force)
{
	const ShardDirectoryMember *members;
	int others = 0;
	bool left = false;
	int count;

	(void) shard_directory_refresh();
	members = shard_directory_list(&count);
	for (int i = 0; i < count; i++)
	{
		int32 status = members[i].record.status;

		if (members[i].node == self)
			left = status == SHARD_MEMBER_REMOVED;
		else if (status != SHARD_MEMBER_REMOVED && status != SHARD_MEMBER_WRITTEN_OFF)
			others++;
	}
	if (others == 0 || left)
		return;
	if (!force)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this node is a member of a cluster with other members"),
				 errdetail("Messages that it has for them would be lost, and shards that live here "
						   "would live in two clusters if those go on."),
				 errhint(
					 "Have it leave with shard_leave(). If the cluster is lost, call "
					 "shard_reset_cluster_data(force => true), and write the node off at members "
					 "that remain.")));
	ereport(WARNING, (errmsg("messages of this node for other members are given up"),
					  errdetail("%d other members are known.", others)));
}

/* ---- messages that wait ------------------------------------------------------------------------ */

static TupleDesc
make_desc(void)
{
	static const Oid types[WAITING_COLUMNS] = {INT4OID, INT4OID, INT4OID, TEXTOID, BYTEAOID,
											   INT4OID, TEXTOID, INT4OID, INT8OID};
	TupleDesc desc = CreateTemplateTupleDesc(WAITING_COLUMNS);

	for (int i = 0; i < WAITING_COLUMNS; i++)
		TupleDescInitEntry(desc, (AttrNumber) (i + 1), "column", types[i], -1, 0);
	return desc;
}

static void
keep_query(Waiting *waiting, const char *query)
{
	ShardStatement look = {query};

	shard_statement_once_read(&look, NULL, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(waiting->store, SPI_tuptable->vals[i]);
	waiting->count += SPI_processed;
	SPI_freetuptable(SPI_tuptable);
}

static bool
is_waiting(const ShardRowFixed *row, void *arg)
{
	Waiting *waiting = arg;

	return shard_kind_is_for_entity(row->kind) &&
		   !shard_log_position_handled(&waiting->positions, row);
}

static Datum
bytes_of(const char *bytes, int length)
{
	bytea *copy = palloc(VARHDRSZ + length);

	SET_VARSIZE(copy, VARHDRSZ + length);
	memcpy(VARDATA(copy), bytes, length);
	return PointerGetDatum(copy);
}

static void
keep_row(const ShardRow *row, void *arg)
{
	Waiting *waiting = arg;
	Datum values[WAITING_COLUMNS];
	bool nulls[WAITING_COLUMNS] = {false};

	values[WAITING_TYPE] = Int32GetDatum(row->type_id);
	values[WAITING_SHARD] = Int32GetDatum(row->shard);
	values[WAITING_KIND] = Int32GetDatum(row->kind);
	values[WAITING_ENTITY] = bytes_of(row->entity, row->entity_len);
	values[WAITING_PAYLOAD] = bytes_of(row->payload, row->payload_len);
	values[WAITING_SRC_TYPE] = Int32GetDatum(row->src_type);
	values[WAITING_SRC_ENTITY] =
		bytes_of(row->src_entity ? row->src_entity : "", row->src_entity ? row->src_entity_len : 0);
	nulls[WAITING_SRC_TYPE] = nulls[WAITING_SRC_ENTITY] = row->src_type == 0;
	values[WAITING_MID_NODE] = Int32GetDatum(row->mid_node ? row->mid_node : waiting->self);
	values[WAITING_MID_SEQ] = Int64GetDatum(row->mid_node ? row->mid_seq : row->seq);
	tuplestore_putvalues(waiting->store, waiting->desc, values, nulls);
	waiting->count++;
}

/*
 * All of them, in the order in which they are to be handled.
 */
static void
collect(Waiting *waiting)
{
	ShardLogScan scan = {.payload = true, .want = is_waiting, .visit = keep_row, .arg = waiting};

	waiting->desc = make_desc();
	waiting->store = tuplestore_begin_heap(false, false, work_mem);
	for (int i = 0; i < (int) lengthof(waiting_queries); i++)
		keep_query(waiting, waiting_queries[i]);
	scan.snapshot = GetActiveSnapshot();
	shard_log_position_read(scan.snapshot, &waiting->positions);
	scan.from = waiting->positions.lowest;
	shard_log_read(&scan);
}

static void
append(TupleTableSlot *slot)
{
	ShardRow row = {.epoch = -1};
	bool isnull;
	text *entity = DatumGetTextPP(slot_getattr(slot, WAITING_ENTITY + 1, &isnull));
	bytea *payload = DatumGetByteaPP(slot_getattr(slot, WAITING_PAYLOAD + 1, &isnull));

	row.type_id = DatumGetInt32(slot_getattr(slot, WAITING_TYPE + 1, &isnull));
	row.shard = DatumGetInt32(slot_getattr(slot, WAITING_SHARD + 1, &isnull));
	row.kind = (ShardKind) DatumGetInt32(slot_getattr(slot, WAITING_KIND + 1, &isnull));
	row.entity = VARDATA_ANY(entity);
	row.entity_len = VARSIZE_ANY_EXHDR(entity);
	row.payload = VARDATA_ANY(payload);
	row.payload_len = VARSIZE_ANY_EXHDR(payload);
	row.src_type = DatumGetInt32(slot_getattr(slot, WAITING_SRC_TYPE + 1, &isnull));
	if (isnull)
		row.src_type = 0;
	else
	{
		text *source = DatumGetTextPP(slot_getattr(slot, WAITING_SRC_ENTITY + 1, &isnull));

		row.src_entity = isnull ? NULL : VARDATA_ANY(source);
		row.src_entity_len = isnull ? 0 : VARSIZE_ANY_EXHDR(source);
	}
	row.mid_node = DatumGetInt32(slot_getattr(slot, WAITING_MID_NODE + 1, &isnull));
	row.mid_seq = DatumGetInt64(slot_getattr(slot, WAITING_MID_SEQ + 1, &isnull));
	shard_log_append(&row);
}

static void
append_again(Waiting *waiting)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(waiting->desc, &TTSOpsMinimalTuple);

	while (tuplestore_gettupleslot(waiting->store, true, false, slot))
		append(slot);
	ExecDropSingleTupleTableSlot(slot);
	tuplestore_end(waiting->store);
}

/* ---- what goes --------------------------------------------------------------------------------- */

static void
execute(const char *command, int expected)
{
	ShardStatement statement = {command};

	shard_statement_once(&statement, NULL, expected);
}

/* The rows of a shard, without any trigger, rule or child of a table that belongs to a user (state_purge.h). */
static void
delete_states(Oid table, int32 shard, const char *type_name)
{
	ShardStatePurge purge = {0};

	shard_state_purge(&purge, table, shard, PG_INT64_MAX);
	if (purge.left)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("states of shard %d of entity type \"%s\" are in use", shard, type_name),
				 errdetail("These states are left from before the shard moved away, and another "
						   "transaction holds some of them."),
				 errhint("End that transaction, see pg_locks, and try again.")));
}

/* Of shards that do not live here. */
#define OF_STRANGERS \
	" x WHERE EXISTS (SELECT FROM shard.own o LEFT JOIN shard.route r " \
	"ON r.type_id OPERATOR(pg_catalog.=) o.type_id AND r.shard OPERATOR(pg_catalog.=) o.shard " \
	"WHERE o.type_id OPERATOR(pg_catalog.=) x.type_id AND o.shard OPERATOR(pg_catalog.=) x.shard " \
	"AND (o.state OPERATOR(pg_catalog.=) 'staged' OR (o.state OPERATOR(pg_catalog.=) 'sealed' " \
	"AND r.epoch OPERATOR(pg_catalog.>) o.epoch)))"

static void
delete_strangers(void)
{
	shard_replica_rows_drop(0);
	execute("DELETE FROM shard.ordered" OF_STRANGERS, SPI_OK_DELETE);
	execute("DELETE FROM shard.timer" OF_STRANGERS, SPI_OK_DELETE);
	execute("DELETE FROM shard.history" OF_STRANGERS, SPI_OK_DELETE);
	execute(strangers, SPI_OK_SELECT);
	PushActiveSnapshot(GetLatestSnapshot());
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool isnull;

		delete_states(DatumGetObjectId(shard_statement_column(i, 1, &isnull)),
					  shard_statement_int4(i, 2), shard_statement_text(i, 3));
	}
	PopActiveSnapshot();
}

/*
 * Numbers of the log name messages, also after the reset: the emptied log goes on where it was. The row says that a
 * shard's ownership is to be read again, which is always true.
 */
static void
keep_seq(int64 last_seq)
{
	const ShardStatement insert = {
		"INSERT INTO shard.inbox_0 (seq, sender, type_id, shard, kind, flags, "
		"chunk, chunks, entity, payload, epoch) VALUES ($1, "
		"pg_catalog.pg_current_xact_id()::text::int8, 1, 0, $2, 0, 0, 1, '', "
		"''::bytea, NULL)",
		2,
		{INT8OID, INT2OID}};
	ShardArguments arguments = {0};

	if (last_seq <= 0)
		return;
	shard_statement_add(&arguments, Int64GetDatum(last_seq), false);
	shard_statement_add(&arguments, Int16GetDatum(SHARD_KIND_OWN), false);
	shard_statement_once(&insert, &arguments, SPI_OK_INSERT);
}

/* In this transaction; what shared memory says of the log is as of its end. */
static bool resetting = false;

static void
reread_log(XactEvent event, void *arg)
{
	ShardDatabase *db = shard_shmem_database();

	if (!resetting || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT))
		return;
	resetting = false;
	if (db == NULL || event == XACT_EVENT_COMMIT)
		return;
	LWLockAcquire(db->append_lock, LW_EXCLUSIVE);
	db->log.ready = false;
	LWLockRelease(db->append_lock);
}

static void
expect_end(void)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(reread_log, NULL);
	registered = true;
	resetting = true;
}

/*
 * Everything that came from the cluster, in the tables and in shared memory.
 */
static void
forget_cluster(ShardDatabase *db, int64 last_seq)
{
	int level = NewGUCNestLevel();

	/* Not the log's guard. */
	(void) set_config_option("session_replication_role", "replica", PGC_SUSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	delete_strangers();
	for (int i = 0; i < (int) lengthof(clearing); i++)
		execute(clearing[i], 0);
	keep_seq(last_seq);
	AtEOXact_GUC(true, level);
	expect_end();
	LWLockAcquire(db->append_lock, LW_EXCLUSIVE);
	db->log.ready = false;
	LWLockRelease(db->append_lock);
	/*
	 * A node that joins may get the number of a former peer. After a rollback the positions are read again, as flushed
	 * (stream_position.c).
	 */
	XLogFlush(XactLastRecEnd);
	shard_stream_position_free(db, MyDatabaseId);
	shard_copy_set_free(db, MyDatabaseId);
	shard_board_forget(db);
	shard_board_keep(db, InvalidOid, (ShardUuid){0, 0}, SHARD_START_RESTART);
}

/*
 * All of it.
 */
static void
reset_all(ShardDatabase *db, int32 self)
{
	Waiting waiting = {.self = self};
	int64 last_seq;

	(void) shard_log_attach();
	last_seq = shard_log_last_seq(db);
	collect(&waiting);
	forget_cluster(db, last_seq);
	append_again(&waiting);
	(void) shard_log_flush();
	if (waiting.count > 0)
		ereport(NOTICE, (errmsg(INT64_FORMAT " messages that wait are handled by the new node",
								waiting.count)));
}

/* ---- some types --------------------------------------------------------------------------------- */

/*
 * The numbers of types by their names; error for one that is not there.
 */
static Datum
type_ids(ArrayType *names)
{
	Datum *elements;
	bool *nulls;
	Datum *ids;
	int count;

	deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
	ids = palloc(sizeof(Datum) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("the name of an entity type cannot be null")));
		ids[i] =
			Int32GetDatum(shard_registry_get_present(TextDatumGetCString(elements[i]))->type_id);
	}
	return PointerGetDatum(construct_array(ids, count, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

/* Resets homes, epochs and marks of some types, where no other node has any of them. */
static void
reset_types(Datum ids)
{
	static const ShardStatement look = {
		"SELECT FROM shard.held WHERE type_id OPERATOR(pg_catalog.=) ANY ($1)", 1, {INT4ARRAYOID}};
	static const ShardStatement commands[] = {
		{"DELETE FROM shard.own WHERE type_id OPERATOR(pg_catalog.=) ANY ($1)", 1, {INT4ARRAYOID}},
		{"DELETE FROM shard.shard_input WHERE type_id OPERATOR(pg_catalog.=) ANY ($1)",
		 1,
		 {INT4ARRAYOID}},
		{"DELETE FROM shard.route WHERE type_id OPERATOR(pg_catalog.=) ANY ($1)",
		 1,
		 {INT4ARRAYOID}},
		{"DELETE FROM shard.copy WHERE type_id OPERATOR(pg_catalog.=) ANY ($1)", 1, {INT4ARRAYOID}},
		{"DELETE FROM shard.turn_kept WHERE type_id OPERATOR(pg_catalog.=) ANY ($1)",
		 1,
		 {INT4ARRAYOID}},
		{"DELETE FROM shard.output WHERE type_id OPERATOR(pg_catalog.=) ANY ($1)",
		 1,
		 {INT4ARRAYOID}},
		{"DELETE FROM shard.letter WHERE type_id OPERATOR(pg_catalog.=) ANY ($1)",
		 1,
		 {INT4ARRAYOID}}};
	static const ShardStatement records = {
		"DELETE FROM shard.control WHERE kind OPERATOR(pg_catalog.=) ANY ($2) "
		"AND a OPERATOR(pg_catalog.=) ANY ($1)",
		2,
		{INT4ARRAYOID, INT4ARRAYOID}};
	Datum kinds[2] = {Int32GetDatum(SHARD_MAP_HOME), Int32GetDatum(SHARD_MAP_PIN)};
	ShardArguments arguments = {0};
	Datum *types;
	int count;

	deconstruct_array(DatumGetArrayTypeP(ids), INT4OID, sizeof(int32), true, TYPALIGN_INT, &types,
					  NULL, &count);
	for (int i = 0; i < count; i++)
		shard_replica_rows_drop(DatumGetInt32(types[i]));
	shard_statement_add(&arguments, ids, false);
	shard_statement_once_read(&look, &arguments, 1);
	if (SPI_processed > 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("messages of these entity types wait in the stash"),
						errhint("Let them be handled, or reset all data of the cluster, without "
								"names.")));
	for (int i = 0; i < (int) lengthof(commands); i++)
		shard_statement_once(&commands[i], &arguments, SPI_OK_DELETE);
	shard_statement_add(&arguments,
						PointerGetDatum(
							construct_array(kinds, 2, INT4OID, sizeof(int32), true, TYPALIGN_INT)),
						false);
	shard_statement_once(&records, &arguments, SPI_OK_DELETE);
}

static void
check_always_alone(void)
{
	int count;

	(void) shard_directory_refresh();
	(void) shard_directory_list(&count);
	if (count > 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot reset single entity types of a node that has had other members"),
				 errdetail("Where their shards live is decided by the cluster."),
				 errhint("Reset all data of the cluster, without names.")));
}

/*
 * shard_reset_cluster_data(type_names text[] = NULL, force boolean = false) returns void
 */
Datum
shard_admin_reset(PG_FUNCTION_ARGS)
{
	ShardDatabase *db;
	ShardSecurity security = {0};
	ShardIdentity row;
	Datum ids = (Datum) 0;

	PreventCommandDuringRecovery("shard_reset_cluster_data()");
	PreventCommandIfParallelMode("shard_reset_cluster_data()");
	shard_shmem_require();
	shard_argument_check(fcinfo, 1, "force cannot be null");
	db = shard_shmem_database_or_make(MyDatabaseId);
	check_workers(db);
	if (strcmp(shard_journal_database, get_database_name(MyDatabaseId)) == 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("this database is the journal of a cluster")));
	/* No session sends, and no worker begins, until this transaction has ended. */
	(void) shard_catalog_get();
	(void) shard_catalog_lock_alone(false);
	check_workers(db);
	if (!PG_ARGISNULL(0))
		ids = type_ids(PG_GETARG_ARRAYTYPE_P(0));

	PushActiveSnapshot(GetLatestSnapshot());
	SPI_connect();
	shard_security_begin_system(&security);
	shard_identity_read(&row);
	if (ids != (Datum) 0)
	{
		check_always_alone();
		reset_types(ids);
	}
	else
	{
		check_members(row.node, PG_GETARG_BOOL(1));
		reset_all(db, row.node);
	}
	shard_security_end(&security);
	SPI_finish();
	PopActiveSnapshot();
	PG_RETURN_VOID();
}
