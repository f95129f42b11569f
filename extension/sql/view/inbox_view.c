/*
 * sql/view/inbox_view.c
 *		View shard_inbox: what waits on this node; and sending by writing to it.
 *
 * The view is the rows of the log that are not handled, and the held ones. As
 * a target of INSERT and COPY it is shard_tell() for each row, without a
 * statement of SQL in between.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/stratnum.h"
#include "access/subtrans.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "sql/send/api.h"
#include "registry/catalog.h"
#include "sql/view/inbox.h"
#include "log/log_position.h"
#include "log/log_read.h"
#include "registry/payload.h"
#include "registry/registry.h"
#include "entity/state.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_inbox_view_rows);
PG_FUNCTION_INFO_V1(shard_inbox_view_blocker);
PG_FUNCTION_INFO_V1(shard_inbox_view_insert);

/* Columns of the view that a sender fills in; the extension fills in the others. */
enum
{
	COLUMN_TYPE = 1,
	COLUMN_ENTITY,
	COLUMN_MESSAGE,
	SENT_COLUMNS = COLUMN_MESSAGE
};

/* A scan for shard_inbox_view_rows. */
typedef struct Listing
{
	ReturnSetInfo *result;
	ShardLogPositions positions;
} Listing;

static bool
is_waiting(const ShardRowFixed *row, void *arg)
{
	Listing *listing = arg;

	return (shard_kind_is_message(row->kind) || shard_kind_is_timer(row->kind)) &&
		   !shard_log_position_handled(&listing->positions, row);
}

/*
 * Adds a message to the listing: type_id, shard, entity_id, message, seq.
 */
static void
put_message(const ShardRow *row, void *arg)
{
	Listing *listing = arg;
	Datum values[5];
	bool nulls[5] = {false};

	values[0] = Int32GetDatum(row->type_id);
	values[1] = Int32GetDatum(row->shard);
	values[2] = PointerGetDatum(cstring_to_text_with_len(row->entity, row->entity_len));
	nulls[3] = !shard_payload_is_readable(row->type_id);
	if (!nulls[3])
		values[3] = JsonbPGetDatum(shard_payload_to_jsonb(row->payload, row->payload_len));
	values[4] = Int64GetDatum(row->seq);
	tuplestore_putvalues(listing->result->setResult, listing->result->setDesc, values, nulls);
}

/*
 * shard.inbox_rows() returns setof record
 *
 * Messages of the log that are not handled, as the statement's snapshot sees
 * it. The whole list is made before its first row is returned.
 */
Datum
shard_inbox_view_rows(PG_FUNCTION_ARGS)
{
	Listing listing = {0};
	ShardLogScan scan = {
		.snapshot = GetActiveSnapshot(),
		.payload = true,
		.want = is_waiting,
		.visit = put_message,
		.arg = &listing,
	};

	InitMaterializedSRF(fcinfo, 0);
	listing.result = (ReturnSetInfo *) fcinfo->resultinfo;
	shard_log_position_read(scan.snapshot, &listing.positions);
	scan.from = listing.positions.lowest;
	shard_log_read(&scan);
	return (Datum) 0;
}

/*
 * The process of a transaction in progress, 0 if there is none.
 */
static int
pid_of(TransactionId xid)
{
	if (!TransactionIdIsNormal(xid) || !TransactionIdIsInProgress(xid))
		return 0;
	return BackendXidGetPid(SubTransGetTopmostTransaction(xid));
}

/*
 * The process that has locked a row or changed it without having committed yet; 0 if no process has, or a prepared
 * transaction.
 */
static int
locker_of(HeapTupleHeader tuple)
{
	MultiXactMember *members;
	int count;
	int pid = 0;

	if (tuple->t_infomask & HEAP_XMAX_INVALID)
		return 0;
	if ((tuple->t_infomask & HEAP_XMAX_IS_MULTI) == 0)
		return pid_of(HeapTupleHeaderGetRawXmax(tuple));
	if (HEAP_LOCKED_UPGRADED(tuple->t_infomask))
		return 0;
	count = GetMultiXactIdMembers(HeapTupleHeaderGetRawXmax(tuple), &members, false,
								  HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_infomask));
	for (int i = 0; i < count && pid == 0; i++)
		pid = pid_of(members[i].xid);
	return pid;
}

/*
 * The process that holds an entity's state row, or has inserted one without having committed yet; 0 if none has, or it
 * is not found by the primary key. Columns of other types, which the table's owner may have given them, would not be
 * read as what they are.
 */
static int
find_locker(Relation table, int32 shard, Datum entity)
{
	AttrNumber shard_column = get_attnum(RelationGetRelid(table), "shard");
	AttrNumber entity_column = get_attnum(RelationGetRelid(table), "entity_id");
	Oid collation;
	ScanKeyData key[2];
	SnapshotData dirty;
	SysScanDesc scan;
	HeapTuple tuple;
	int pid = 0;

	(void) RelationGetIndexList(table);
	if (!OidIsValid(table->rd_pkindex) || shard_column <= 0 || entity_column <= 0 ||
		TupleDescAttr(RelationGetDescr(table), shard_column - 1)->atttypid != INT4OID ||
		TupleDescAttr(RelationGetDescr(table), entity_column - 1)->atttypid != TEXTOID)
		return 0;
	collation = TupleDescAttr(RelationGetDescr(table), entity_column - 1)->attcollation;
	ScanKeyInit(&key[0], shard_column, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(shard));
	ScanKeyEntryInitialize(&key[1], 0, entity_column, BTEqualStrategyNumber, TEXTOID, collation,
						   F_TEXTEQ, entity);
	InitDirtySnapshot(dirty);
	scan = systable_beginscan(table, table->rd_pkindex, true, &dirty, 2, key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		pid = TransactionIdIsValid(dirty.xmin) ? pid_of(dirty.xmin) : locker_of(tuple->t_data);
	systable_endscan(scan);
	return pid;
}

/* Who has state tables locked, as of the statement's first look at each. */
typedef struct TableLocker
{
	int32 type_id;
	int pid; /* 0: nobody */
} TableLocker;

typedef struct TableLockers
{
	int count;
	int room;
	TableLocker *of;
} TableLockers;

/*
 * The process that has a type's state table locked; 0 if there is none. To find it is to read all locks of the server,
 * which the statement does once for a type, not for each message.
 */
static int
find_table_locker(const ShardType *type, FmgrInfo *function)
{
	TableLockers *lockers = function->fn_extra;

	if (lockers == NULL)
	{
		lockers = MemoryContextAllocZero(function->fn_mcxt, sizeof(TableLockers));
		lockers->room = 16;
		lockers->of = MemoryContextAlloc(function->fn_mcxt, lockers->room * sizeof(TableLocker));
		function->fn_extra = lockers;
	}
	for (int i = 0; i < lockers->count; i++)
		if (lockers->of[i].type_id == type->type_id)
			return lockers->of[i].pid;
	if (lockers->count == lockers->room)
	{
		lockers->room *= 2;
		lockers->of = repalloc(lockers->of, lockers->room * sizeof(TableLocker));
	}
	lockers->of[lockers->count] = (TableLocker){type->type_id, shard_state_table_locker(type)};
	return lockers->of[lockers->count++].pid;
}

/*
 * shard.inbox_blocker(type_id int4, shard int4, entity_id text) returns int4
 *
 * For a message in the stash: the process that keeps its entity's state row, the whole table or a type of the state
 * locked; NULL if it waits for something else. The function waits for no lock.
 */
Datum
shard_inbox_view_blocker(PG_FUNCTION_ARGS)
{
	ShardType *type = shard_registry_by_id(PG_GETARG_INT32(0));
	Relation table;
	int pid;

	if (type == NULL || type->mode != SHARD_MODE_HOSTING || type->problem != NULL)
		PG_RETURN_NULL();
	pid = find_table_locker(type, fcinfo->flinfo);
	if (pid == 0 && ConditionalLockRelationOid(type->state_table, AccessShareLock))
	{
		table = try_table_open(type->state_table, NoLock);
		if (table == NULL)
			PG_RETURN_NULL();
		pid = find_locker(table, PG_GETARG_INT32(1), PG_GETARG_DATUM(2));
		table_close(table, AccessShareLock);
	}
	if (pid == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT32(pid);
}

/*
 * Errors unless exactly the columns of a message are given.
 */
static void
check_columns(TupleTableSlot *slot)
{
	TupleDesc desc = slot->tts_tupleDescriptor;

	slot_getallattrs(slot);
	for (int i = 0; i < desc->natts; i++)
	{
		const char *name = NameStr(TupleDescAttr(desc, i)->attname);

		if (i < SENT_COLUMNS && slot->tts_isnull[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("column \"%s\" of view \"shard_inbox\" must not be null", name)));
		if (i >= SENT_COLUMNS && !slot->tts_isnull[i])
			ereport(ERROR,
					(errcode(ERRCODE_GENERATED_ALWAYS),
					 errmsg("cannot insert into column \"%s\" of view \"shard_inbox\"", name),
					 errhint("Insert into type_name, entity_id and message only.")));
	}
}

/*
 * shard.inbox_insert() returns trigger
 *
 * INSTEAD OF INSERT on the view, for each row: tells the message.
 */
Datum
shard_inbox_view_insert(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	TupleTableSlot *slot;
	text *entity;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_INSTEAD(trigger->tg_event) ||
		!TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("shard.inbox_insert is for INSTEAD OF INSERT triggers")));
	slot = trigger->tg_trigslot;
	check_columns(slot);
	entity = DatumGetTextPP(slot->tts_values[COLUMN_ENTITY - 1]);
	shard_api_tell(TextDatumGetCString(slot->tts_values[COLUMN_TYPE - 1]), VARDATA_ANY(entity),
				   VARSIZE_ANY_EXHDR(entity), DatumGetJsonbP(slot->tts_values[COLUMN_MESSAGE - 1]));
	return PointerGetDatum(trigger->tg_trigtuple);
}

/* ---- where triggers do not fire ---------------------------------------------------------------- */

static ExecutorCheckPerms_hook_type previous_hook = NULL;

/* In an INSERT or COPY: is that what it writes to, or part of it? */
static bool
is_inbox(const ShardPermission *permission)
{
	const ShardCatalog *catalog;
	char *name;

	if (!OidIsValid(permission->relid) || (permission->requiredPerms & ACL_INSERT) == 0)
		return false;
	name = get_rel_name(permission->relid);
	if (name == NULL || strcmp(name, "shard_inbox") != 0)
		return false;
	catalog = shard_catalog_find();
	return catalog != NULL && get_rel_namespace(permission->relid) == catalog->public_schema;
}

/*
 * With session_replication_role = replica the trigger does not fire, and a trigger of a view cannot be made to
 * fire always. So that no message is lost in silence, the statement is refused as if there were no right to it.
 */
static bool
check_replica(SHARD_CHECK_PERMS_PARAMETERS)
{
	ListCell *cell;

	foreach (cell, SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA ? permissions : NIL)
	{
		if (is_inbox(lfirst(cell)))
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("cannot send by INSERT or COPY while session_replication_role "
								   "is replica"),
							errdetail("The trigger of shard_inbox that sends does not fire then."),
							errhint("Use shard_tell().")));
	}
	return previous_hook == NULL || previous_hook(SHARD_CHECK_PERMS_ARGUMENTS);
}

void
shard_inbox_view_init(void)
{
	previous_hook = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = check_replica;
}
