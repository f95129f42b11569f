/*
 * entity/state_copy.c
 *		Rows of state tables on their way from one node to another (M4, M17).
 *
 * Columns are matched by name and type, so that tables may differ in the order of their columns, in
 * indexes, triggers and storage. Values go in the binary form of their types, as COPY has it, or as
 * text where a type has none, or where that would be a number of this database's catalogs.
 *
 * Rows are read by the primary key, not by SQL, and written through the executor: indexes, constraints
 * and generated columns hold; views, rules and row security have no say.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "registry/payload.h"
#include "entity/state_copy.h"
#include "entity/state_door.h"

#include "base/compat.h"

/* Rows are counted for this time when nothing depends on the number; the clock is looked at after COUNT_LOOK rows. */
#define COUNT_PATIENCE_MS 5000
#define COUNT_LOOK 4096

/* ---- the table -------------------------------------------------------------------------------- */

void
shard_state_copy_open(ShardStateCopy *copy, const ShardType *type)
{
	int sqlstate = 0;
	char *problem;

	memset(copy, 0, sizeof(*copy));
	copy->type = type;
	copy->row =
		AllocSetContextCreate(CurrentMemoryContext, "shard state copy", ALLOCSET_DEFAULT_SIZES);
	LockRelationOid(type->state_table, RowExclusiveLock);
	problem = shard_state_problem(type, &sqlstate);
	if (problem != NULL)
		ereport(ERROR,
				(errcode(sqlstate),
				 errmsg("states of entity type \"%s\" cannot be copied: %s", type->name, problem)));
	if (!shard_state_open(&copy->table, type))
		elog(ERROR, "could not open the state table of entity type \"%s\"", type->name);
}

void
shard_state_copy_close(ShardStateCopy *copy)
{
	shard_state_close(&copy->table);
	MemoryContextDelete(copy->row);
	memset(copy, 0, sizeof(*copy));
}

static const char *
table_name(const ShardStateCopy *copy)
{
	return copy->label != NULL ? copy->label : RelationGetRelationName(copy->table.rel);
}

/* Begins to look at rows of a shard, in the order of their ids, behind one of them. */
static SysScanDesc
begin_scan(ShardStateCopy *copy, Relation index, Snapshot snapshot, int32 shard, const char *after,
		   int after_len)
{
	ShardStateTable *table = &copy->table;
	ScanKeyData key[2];
	int keys = 1;

	ScanKeyInit(&key[0], table->shard_column, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(shard));
	if (after != NULL)
		ScanKeyEntryInitialize(
			&key[keys++], 0, table->entity_column, BTGreaterStrategyNumber, TEXTOID,
			TupleDescAttr(RelationGetDescr(table->rel), table->entity_column - 1)->attcollation,
			F_TEXT_GT, PointerGetDatum(cstring_to_text_with_len(after, after_len)));
	return systable_beginscan_ordered(table->rel, index, snapshot, keys, key);
}

/* ---- the old home ----------------------------------------------------------------------------- */

/* Types whose binary form is a number of this database's catalogs. */
static bool
is_catalog_number(Oid type)
{
	switch (type)
	{
		case REGPROCOID:
		case REGPROCEDUREOID:
		case REGOPEROID:
		case REGOPERATOROID:
		case REGCLASSOID:
		case REGTYPEOID:
		case REGROLEOID:
		case REGNAMESPACEOID:
		case REGCONFIGOID:
		case REGDICTIONARYOID:
		case REGCOLLATIONOID:
			return true;
		default:
			return false;
	}
}

static bool goes_as_text(Oid type);

/* Whether values of an array's elements or of a composite's columns do. */
static bool
has_text_part(Oid type)
{
	Oid element = get_element_type(type);
	bool text = false;

	check_stack_depth();
	if (OidIsValid(element))
		return goes_as_text(element);
	if (get_typtype(type) == TYPTYPE_COMPOSITE)
	{
		TupleDesc desc = lookup_rowtype_tupdesc(type, -1);

		for (int i = 0; i < desc->natts && !text; i++)
			text = !TupleDescAttr(desc, i)->attisdropped &&
				   goes_as_text(TupleDescAttr(desc, i)->atttypid);
		ReleaseTupleDesc(desc);
	}
	return text;
}

/* Whether values of a type go as text: it lacks a function for the binary form. */
static bool
goes_as_text(Oid type)
{
	HeapTuple tuple;
	Form_pg_type form;
	bool text;

	if (is_catalog_number(getBaseType(type)) || has_text_part(getBaseType(type)))
		return true;
	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type %u", type);
	form = (Form_pg_type) GETSTRUCT(tuple);
	text = !OidIsValid(form->typsend) || !OidIsValid(form->typreceive);
	ReleaseSysCache(tuple);
	return text;
}

/* How the values of a column are written. */
static void
add_output(ShardStateCopy *copy, Form_pg_attribute att, bool text)
{
	ShardStateField *field = &copy->fields[copy->n_fields++];
	Oid function;
	bool varlena;

	field->number = att->attnum;
	field->text = text;
	if (text)
		getTypeOutputInfo(att->atttypid, &function, &varlena);
	else
		getTypeBinaryOutputInfo(att->atttypid, &function, &varlena);
	fmgr_info(function, &field->function);
}

/* The type of a column as people write it; palloc'd. */
static char *
type_name(Form_pg_attribute att)
{
	return format_type_extended(att->atttypid, att->atttypmod,
								FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);
}

void
shard_state_copy_put_columns(ShardStateCopy *copy, StringInfo out)
{
	TupleDesc desc = RelationGetDescr(copy->table.rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		ShardCopyColumn column = {.name = NameStr(att->attname)};

		if (att->attisdropped)
			continue;
		column.name_len = (int) strlen(column.name);
		column.type = type_name(att);
		column.type_len = (int) strlen(column.type);
		if (att->attgenerated != '\0')
			column.flags |= SHARD_COPY_COLUMN_GENERATED;
		else if (goes_as_text(att->atttypid))
			column.flags |= SHARD_COPY_COLUMN_TEXT;
		shard_copy_put_column(out, &column);
	}
}

void
shard_state_copy_prepare(ShardStateCopy *copy)
{
	TupleDesc desc = RelationGetDescr(copy->table.rel);

	if (copy->fields != NULL)
		return;
	copy->fields = palloc0(desc->natts * sizeof(ShardStateField));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && att->attgenerated == '\0')
			add_output(copy, att, goes_as_text(att->atttypid));
	}
}

/*
 * The transaction that has a row locked in order to change it, as SELECT ... FOR UPDATE does. Such a row counts as
 * changed, for the holder relies on it to stay as it is. Locks that many can share are no sign of a change.
 */
static TransactionId
locker_of(SysScanDesc scan)
{
	BufferHeapTupleTableSlot *slot = (BufferHeapTupleTableSlot *) scan->slot;
	TransactionId locker = InvalidTransactionId;
	MultiXactMember *members;
	TransactionId xmax;
	uint16 infomask;
	int count;

	LockBuffer(slot->buffer, BUFFER_LOCK_SHARE);
	infomask = slot->base.tuple->t_data->t_infomask;
	xmax = HeapTupleHeaderGetRawXmax(slot->base.tuple->t_data);
	LockBuffer(slot->buffer, BUFFER_LOCK_UNLOCK);
	if ((infomask & HEAP_XMAX_INVALID) != 0 || !HEAP_XMAX_IS_LOCKED_ONLY(infomask) ||
		HEAP_LOCKED_UPGRADED(infomask))
		return InvalidTransactionId;
	if ((infomask & HEAP_XMAX_IS_MULTI) == 0)
		return HEAP_XMAX_IS_EXCL_LOCKED(infomask) && TransactionIdIsInProgress(xmax)
				   ? xmax
				   : InvalidTransactionId;
	count = GetMultiXactIdMembers(xmax, &members, false, true);
	for (int i = 0; i < count; i++)
	{
		if (members[i].status >= MultiXactStatusForNoKeyUpdate &&
			TransactionIdIsInProgress(members[i].xid))
			locker = members[i].xid;
	}
	if (count > 0)
		pfree(members);
	return locker;
}

int64
shard_state_copy_count(ShardStateCopy *copy, int32 shard, TransactionId *writer)
{
	Relation index = index_open(copy->table.primary_key, AccessShareLock);
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), COUNT_PATIENCE_MS);
	SnapshotData dirty;
	SysScanDesc scan;
	int64 count = 0;

	InitDirtySnapshot(dirty);
	scan = begin_scan(copy, index, writer != NULL ? &dirty : GetActiveSnapshot(), shard, NULL, 0);
	while (HeapTupleIsValid(systable_getnext_ordered(scan, ForwardScanDirection)))
	{
		CHECK_FOR_INTERRUPTS();
		count++;
		if (writer == NULL && count % COUNT_LOOK == 0 && GetCurrentTimestamp() > end)
			break;
		if (writer == NULL)
			continue;
		if (TransactionIdIsValid(dirty.xmin))
			*writer = dirty.xmin;
		else if (TransactionIdIsValid(dirty.xmax))
			*writer = dirty.xmax;
		else if (!TransactionIdIsValid(*writer))
			*writer = locker_of(scan);
	}
	systable_endscan_ordered(scan);
	index_close(index, NoLock);
	return count;
}

/* The values of a row as fields; what that takes is in memory of the row. */
static void
put_fields(ShardStateCopy *copy, const Datum *values, const bool *nulls, StringInfo out)
{
	for (int i = 0; i < copy->n_fields; i++)
	{
		ShardStateField *field = &copy->fields[i];
		Datum value = values[field->number - 1];

		if (nulls[field->number - 1])
			shard_copy_put_field(out, NULL, 0);
		else if (field->text)
		{
			char *string = OutputFunctionCall(&field->function, value);

			shard_copy_put_field(out, string, (int) strlen(string));
		}
		else
		{
			bytea *bytes = SendFunctionCall(&field->function, value);

			shard_copy_put_field(out, VARDATA(bytes), VARSIZE(bytes) - VARHDRSZ);
		}
	}
}

void
shard_state_copy_put_slot(ShardStateCopy *copy, TupleTableSlot *slot, StringInfo out)
{
	MemoryContext old = MemoryContextSwitchTo(copy->row);

	slot_getallattrs(slot);
	put_fields(copy, slot->tts_values, slot->tts_isnull, out);
	MemoryContextSwitchTo(old);
	MemoryContextReset(copy->row);
}

/* A row as fields. */
static void
put_row(ShardStateCopy *copy, HeapTuple tuple, StringInfo out, StringInfo entity)
{
	TupleDesc desc = RelationGetDescr(copy->table.rel);
	MemoryContext old = MemoryContextSwitchTo(copy->row);
	Datum *values = palloc(desc->natts * sizeof(Datum));
	bool *nulls = palloc(desc->natts * sizeof(bool));
	text *id;

	heap_deform_tuple(tuple, desc, values, nulls);
	put_fields(copy, values, nulls, out);
	id = DatumGetTextPP(values[copy->table.entity_column - 1]);
	resetStringInfo(entity);
	appendBinaryStringInfo(entity, VARDATA_ANY(id), VARSIZE_ANY_EXHDR(id));
	MemoryContextSwitchTo(old);
	MemoryContextReset(copy->row);
}

int
shard_state_copy_put_rows(ShardStateCopy *copy, int32 shard, const char *after, int after_len,
						  int max_bytes, StringInfo out, StringInfo entity, bool *all)
{
	Relation index = index_open(copy->table.primary_key, AccessShareLock);
	SysScanDesc scan = begin_scan(copy, index, GetActiveSnapshot(), shard, after, after_len);
	int begin = out->len;
	int count = 0;

	shard_state_copy_prepare(copy);
	*all = false;
	while (out->len - begin < max_bytes || count == 0)
	{
		HeapTuple tuple = systable_getnext_ordered(scan, ForwardScanDirection);

		CHECK_FOR_INTERRUPTS();
		if (!HeapTupleIsValid(tuple))
		{
			*all = true;
			break;
		}
		put_row(copy, tuple, out, entity);
		count++;
	}
	systable_endscan_ordered(scan);
	index_close(index, NoLock);
	return count;
}

/* ---- the new home ----------------------------------------------------------------------------- */

/* Column of the table by its name; NULL: there is none. */
static Form_pg_attribute
find_column(ShardStateCopy *copy, const char *name)
{
	TupleDesc desc = RelationGetDescr(copy->table.rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && strcmp(NameStr(att->attname), name) == 0)
			return att;
	}
	return NULL;
}

/* Errors unless the column here can take what the other node's has. */
static void
check_column(ShardStateCopy *copy, const char *name, const char *type, bool generated)
{
	Form_pg_attribute att = find_column(copy, name);

	if (att == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("state table \"%s\" on node %d lacks column \"%s\"",
							   table_name(copy), copy->self, name),
						errdetail("On node %d the column is of type %s.", copy->node, type),
						errhint("Add the column to the state table on node %d.", copy->self)));
	if (strcmp(type_name(att), type) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of state table \"%s\" is of type %s on node %d, and of "
						"type %s on node %d",
						name, table_name(copy), type_name(att), copy->self, type, copy->node),
				 errhint("Give the column the same type on both nodes.")));
	if ((att->attgenerated != '\0') != generated)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of state table \"%s\" is generated on node %d, and not on "
						"node %d",
						name, table_name(copy), generated ? copy->node : copy->self,
						generated ? copy->self : copy->node),
				 errhint("Define the column in the same way on both nodes.")));
}

/* How the values of a column are read. */
static void
add_input(ShardStateCopy *copy, Form_pg_attribute att, bool text)
{
	ShardStateField *field = &copy->fields[copy->n_fields++];
	Oid function;

	field->number = att->attnum;
	field->text = text;
	field->modifier = att->atttypmod;
	if (text)
		getTypeInputInfo(att->atttypid, &function, &field->parameter);
	else
		getTypeBinaryInputInfo(att->atttypid, &function, &field->parameter);
	fmgr_info(function, &field->function);
}

/* A column that the other node does not have: what rows get there. */
static void
check_own_column(ShardStateCopy *copy, Form_pg_attribute att)
{
	if (att->attisdropped || !att->attnotnull || att->atthasdef || att->attidentity != '\0')
		return;
	for (int i = 0; i < copy->n_fields; i++)
		if (copy->fields[i].number == att->attnum)
			return;
	ereport(ERROR, (errcode(ERRCODE_NOT_NULL_VIOLATION),
					errmsg("state table \"%s\" on node %d lacks column \"%s\"", table_name(copy),
						   copy->node, NameStr(att->attname)),
					errdetail("On node %d it must not be null, and has no default.", copy->self),
					errhint("Add the column there, or give it a default on node %d.", copy->self)));
}

void
shard_state_copy_match(ShardStateCopy *copy, ShardReader *columns, int32 node, int32 self)
{
	TupleDesc desc = RelationGetDescr(copy->table.rel);
	ShardCopyColumn column;

	copy->node = node;
	copy->self = self;
	copy->fields = palloc0(desc->natts * sizeof(ShardStateField));
	copy->n_fields = 0;
	/* the other node has no states: the type was dropped there (D28) */
	if (columns->at == columns->end && !columns->failed)
		return;
	while (shard_copy_get_column(columns, &column))
	{
		char *name = shard_payload_text(column.name, column.name_len);
		bool generated = (column.flags & SHARD_COPY_COLUMN_GENERATED) != 0;

		check_column(copy, name, shard_payload_text(column.type, column.type_len), generated);
		if (generated)
			continue;
		if (copy->n_fields == desc->natts)
			ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION),
							errmsg("node %d names column \"%s\" twice", node, name)));
		add_input(copy, find_column(copy, name), (column.flags & SHARD_COPY_COLUMN_TEXT) != 0);
	}
	if (columns->failed || copy->n_fields == 0)
		ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION),
						errmsg("the columns that node %d tells are damaged", node)));
	for (int i = 0; i < desc->natts; i++)
		check_own_column(copy, TupleDescAttr(desc, i));
}

static void
damaged_row(ShardStateCopy *copy)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("a row for state table \"%s\" is damaged", table_name(copy)),
			 errhint("Compare the versions of the extension, and of the types, on both nodes.")));
}

/* The next field as a value; bytes NULL: null, which domains want to see, too. */
static Datum
read_value(ShardStateCopy *copy, ShardStateField *field, const char *bytes, int length)
{
	StringInfoData buffer;
	Datum value;

	if (field->text)
		return InputFunctionCall(&field->function,
								 bytes == NULL ? NULL : shard_payload_text(bytes, length),
								 field->parameter, field->modifier);
	if (bytes == NULL)
		return ReceiveFunctionCall(&field->function, NULL, field->parameter, field->modifier);
	/* receive functions may want a zero behind the last byte */
	buffer = (StringInfoData){.data = palloc(length + 1), .len = length, .maxlen = length + 1};
	memcpy(buffer.data, bytes, length);
	buffer.data[length] = '\0';
	value = ReceiveFunctionCall(&field->function, &buffer, field->parameter, field->modifier);
	if (buffer.cursor != buffer.len)
		damaged_row(copy);
	return value;
}

void
shard_state_copy_form(ShardStateCopy *copy, int32 shard, ShardReader *rows)
{
	TupleTableSlot *slot = copy->table.next;
	int n = slot->tts_tupleDescriptor->natts;

	ExecClearTuple(slot);
	memset(slot->tts_values, 0, n * sizeof(Datum));
	memset(slot->tts_isnull, true, n * sizeof(bool));
	shard_state_door_fill_defaults(&copy->table, slot);
	for (int i = 0; i < copy->n_fields; i++)
	{
		ShardStateField *field = &copy->fields[i];
		const char *bytes;
		int length;

		if (!shard_copy_get_field(rows, &bytes, &length))
			damaged_row(copy);
		slot->tts_values[field->number - 1] = read_value(copy, field, bytes, length);
		slot->tts_isnull[field->number - 1] = bytes == NULL;
	}
	if (slot->tts_isnull[copy->table.shard_column - 1] ||
		DatumGetInt32(slot->tts_values[copy->table.shard_column - 1]) != shard)
		damaged_row(copy);
	ItemPointerSetInvalid(&slot->tts_tid);
	ExecStoreVirtualTuple(slot);
}

/*
 * A copy fires what a replica fires, of this table alone: session_replication_role would hold for all
 * that the owner's triggers do elsewhere, too.
 */
void
shard_state_copy_begin_write(ShardStateCopy *copy)
{
	TriggerDesc *triggers;

	if (copy->table.estate != NULL)
		return;
	shard_state_door_begin_write(&copy->table);
	triggers = copy->table.result->ri_TrigDesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA)
			trigger->tgenabled = TRIGGER_FIRES_ALWAYS;
		else if (trigger->tgenabled != TRIGGER_FIRES_ALWAYS)
			trigger->tgenabled = TRIGGER_DISABLED;
	}
}

void
shard_state_copy_insert(ShardStateCopy *copy, int32 shard, ShardReader *rows, int count)
{
	ShardStateTable *table = &copy->table;

	shard_state_copy_begin_write(copy);
	for (int i = 0; i < count; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(copy->row);

		shard_state_copy_form(copy, shard, rows);
		shard_state_door_insert(table);
		if (!ItemPointerIsValid(&table->next->tts_tid))
			ereport(ERROR,
					(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
					 errmsg("a trigger on state table \"%s\" suppressed a row that was copied",
							table_name(copy)),
					 errhint("Let BEFORE triggers that are enabled always return the row.")));
		MemoryContextSwitchTo(old);
		MemoryContextReset(copy->row);
		ResetPerTupleExprContext(table->estate);
		CHECK_FOR_INTERRUPTS();
	}
	if (rows->at != rows->end || rows->failed)
		damaged_row(copy);
}
