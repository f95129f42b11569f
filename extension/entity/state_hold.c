/*
 * entity/state_hold.c
 *		What a state is made of, held for a turn: the state table and the composite types.
 *
 * A value in memory can be read only with the definition that it was made under. So a turn locks all of it before it
 * looks at the first value, and no other transaction can alter it until the turn has committed; and it compares with
 * what the turn before found: if anything differs, copies from then must not be used. What is held is open, too, so
 * that the server refuses to have it altered by the turn itself, by a handler, as it does for any table in use.
 *
 * Other types need no lock. Values of domains, enums, ranges and arrays are read the same way whatever is done to
 * the type; a new constraint of a domain is checked under a lock on the state table, and a type goes with its column.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/tupmacs.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"

#include "entity/state.h"

#include "base/compat.h"

typedef struct ShardStatePart
{
	Oid relid;
	LOCKMODE mode;
	TupleDesc
		desc; /* as it was when values were read; counted, so that it stays while there is another one */
	Relation rel; /* NULL: not held, or gone */
} ShardStatePart;

/* Locks and opens the part, unless another transaction has it locked or waits for such a lock. */
static bool
take(ShardStatePart *part)
{
	if (!ConditionalLockRelationOid(part->relid, part->mode))
		return false;
	part->rel = try_relation_open(part->relid, NoLock);
	return true;
}

/* A relation's descriptor that is equal after an invalidation is as a rule the very same. */
static bool
is_same(const ShardStatePart *part)
{
	return part->rel != NULL && (part->desc == RelationGetDescr(part->rel) ||
								 equalTupleDescs(part->desc, RelationGetDescr(part->rel)));
}

/*
 * A relation joins the parts. False: another transaction has it locked. *part: NULL if the relation was there already,
 * or is gone.
 */
static bool
add_relation(ShardStateParts *parts, Oid relid, LOCKMODE mode, ShardStatePart **part)
{
	ShardStatePart *added = palloc0(sizeof(ShardStatePart));
	ListCell *cell;

	*part = NULL;
	foreach (cell, parts->list)
		if (((ShardStatePart *) lfirst(cell))->relid == relid)
			return true;
	added->relid = relid;
	added->mode = mode;
	if (!take(added))
	{
		parts->busy = relid;
		return false;
	}
	parts->list = lappend(parts->list, added);
	if (added->rel == NULL)
		return true;
	added->desc = RelationGetDescr(added->rel);
	added->desc->tdrefcount++;
	*part = added;
	return true;
}

/* All that is in a type joins the parts. False: another transaction has some of it locked. */
static bool
add_type(ShardStateParts *parts, Oid type)
{
	ShardStatePart *part;
	Oid element;

	check_stack_depth();
	type = getBaseType(type);
	switch (get_typtype(type))
	{
		case TYPTYPE_RANGE:
			return add_type(parts, get_range_subtype(type));
		case TYPTYPE_MULTIRANGE:
			return add_type(parts, get_multirange_range(type));
		case TYPTYPE_COMPOSITE:
			break;
		default:
			element = get_element_type(type);
			return !OidIsValid(element) || add_type(parts, element);
	}
	if (!add_relation(parts, get_typ_typrelid(type), AccessShareLock, &part))
		return false;
	for (int i = 0; part != NULL && i < part->desc->natts; i++)
		if (!TupleDescAttr(part->desc, i)->attisdropped &&
			!add_type(parts, TupleDescAttr(part->desc, i)->atttypid))
			return false;
	return true;
}

void
shard_state_release(ShardStateParts *parts)
{
	ListCell *cell;

	foreach (cell, parts->list)
	{
		ShardStatePart *part = lfirst(cell);

		if (part->rel != NULL)
			relation_close(part->rel, NoLock);
		part->rel = NULL;
	}
	parts->held = false;
}

void
shard_state_release_forget(ShardStateParts *parts)
{
	ListCell *cell;

	foreach (cell, parts->list)
		((ShardStatePart *) lfirst(cell))->rel = NULL;
	parts->held = false;
}

/* Forgets the descriptors, which are not in use any more. */
static void
forget_descs(ShardStateParts *parts)
{
	ListCell *cell;

	foreach (cell, parts->list)
	{
		ShardStatePart *part = lfirst(cell);

		if (part->desc != NULL && --part->desc->tdrefcount == 0)
			FreeTupleDesc(part->desc);
		part->desc = NULL;
	}
}

/* Forgets what the parts were; nothing is held. */
static void
drop(ShardStateParts *parts)
{
	shard_state_release(parts);
	forget_descs(parts);
	parts->list = NIL;
	parts->row = NULL;
	parts->known = false;
	if (parts->context == NULL)
		parts->context =
			AllocSetContextCreate(TopMemoryContext, "shard state types", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(parts->context);
}

void
shard_state_forget_parts(ShardStateParts *parts)
{
	shard_state_release_forget(parts);
	forget_descs(parts);
	if (parts->context != NULL)
		MemoryContextDelete(parts->context);
	*parts = (ShardStateParts){0};
}

/* The part that values of a type are rows of, if they are. */
static ShardStatePart *
row_of(const ShardStateParts *parts, Oid type)
{
	Oid relid = get_typ_typrelid(getBaseType(type));
	ListCell *cell;

	foreach (cell, OidIsValid(relid) ? parts->list : NIL)
	{
		ShardStatePart *part = lfirst(cell);

		if (part->relid == relid && part->rel != NULL)
			return part;
	}
	return NULL;
}

/*
 * Finds out what the parts are, and holds them. If they were others before, plans go: constants that are rows of
 * a type are in them, and the server does not notice that they mean nothing any more.
 */
static bool
look(ShardStateParts *parts, const ShardType *type)
{
	MemoryContext old;
	ShardStatePart *table;
	bool taken;

	if (parts->was_known)
		ResetPlanCache();
	drop(parts);
	old = MemoryContextSwitchTo(parts->context);
	taken = add_relation(parts, type->state_table, RowExclusiveLock, &table) &&
			add_type(parts, type->state_type);
	MemoryContextSwitchTo(old);
	if (!taken)
		shard_state_release(parts);
	else
		parts->row = row_of(parts, type->state_type);
	parts->known = taken;
	parts->was_known |= taken;
	return taken;
}

ShardStateHold
shard_state_hold(ShardStateParts *parts, const ShardType *type)
{
	ListCell *cell;
	bool same = parts->known;

	if (parts->held)
		return SHARD_STATE_HELD;
	foreach (cell, same ? parts->list : NIL)
	{
		ShardStatePart *part = lfirst(cell);

		if (!take(part))
		{
			shard_state_release(parts);
			return SHARD_STATE_BUSY;
		}
		same = same && is_same(part);
	}
	if (!same && !look(parts, type))
		return SHARD_STATE_BUSY;
	parts->held = true;
	return same ? SHARD_STATE_HELD : SHARD_STATE_ALTERED;
}

/* A composite type in the state that another transaction has locked, by its pg_class; InvalidOid: none. Keeps no lock. */
static Oid
locked_type(const ShardType *type)
{
	ShardStateParts parts = {0};
	ListCell *cell;

	(void) add_type(&parts, type->state_type);
	shard_state_release(&parts);
	forget_descs(&parts);
	foreach (cell, parts.list)
		UnlockRelationOid(((ShardStatePart *) lfirst(cell))->relid, AccessShareLock);
	return parts.busy;
}

/* ---- which process has it locked ------------------------------------------------------------------------ */

/*
 * The process that has one of those locks on a relation, or waits for it; 0 if there is none.
 */
static int
find_relation_locker(Oid relid, LOCKMASK strong)
{
	LockData *locks;
	LOCKTAG tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (memcmp(&lock->locktag, &tag, sizeof(tag)) == 0 &&
			((lock->holdMask | LOCKBIT_ON(lock->waitLockMode)) & strong) != 0)
			return lock->pid;
	}
	return 0;
}

int
shard_state_table_locker(const ShardType *type)
{
	LOCKMASK strong = LOCKBIT_ON(ShareLock) | LOCKBIT_ON(ShareRowExclusiveLock) |
					  LOCKBIT_ON(ExclusiveLock) | LOCKBIT_ON(AccessExclusiveLock);
	Oid part;

	if (RecoveryInProgress() || !ConditionalLockRelationOid(type->state_table, RowExclusiveLock))
		return find_relation_locker(type->state_table, strong);
	UnlockRelationOid(type->state_table, RowExclusiveLock);
	part = locked_type(type);
	return OidIsValid(part) ? find_relation_locker(part, LOCKBIT_ON(AccessExclusiveLock)) : 0;
}

/* ---- is a result what its type says ----------------------------------------------------------- */

/*
 * The turn holds the type, so values made in the turn are made by that definition. But functions keep plans, and plans
 * keep values: a value from before an ALTER TYPE has the type's OID and another layout. Code that took such a value
 * apart would read wherever it says, up to pointers out of its bytes. So before its use each value is walked through by
 * the definition that is held: each attribute must lie in the value, and hold no pointer.
 */

/* The bytes of a variable-length attribute that begins here, with left bytes there at most; 0: it does not fit. */
static Size
varlena_size(const char *at, Size left)
{
	if (left == 0 || VARATT_IS_EXTERNAL(at))
		return 0;
	if (VARATT_IS_1B(at))
		return VARSIZE_1B(at);
	if (left < VARHDRSZ || (VARATT_IS_4B_C(at) && left < VARHDRSZ_COMPRESSED))
		return 0;
	return VARSIZE_4B(at) < (VARATT_IS_4B_C(at) ? VARHDRSZ_COMPRESSED : VARHDRSZ) ? 0
																				  : VARSIZE_4B(at);
}

/* Where the attribute behind these bytes ends; 0: it does not fit. */
static Size
end_of(Form_pg_attribute att, const char *data, Size begin, Size length)
{
	Size size;

	if (begin > length)
		return 0;
	if (att->attlen != -1)
		begin = att_align_nominal(begin, att->attalign);
	else if (begin < length)
		begin = att_align_pointer(begin, att->attalign, -1, data + begin);
	if (begin > length)
		return 0;
	if (att->attlen == -1)
		size = varlena_size(data + begin, length - begin);
	else if (att->attlen == -2)
		size = strnlen(data + begin, length - begin) + 1;
	else
		size = att->attlen;
	return size == 0 || size > length - begin ? 0 : begin + size;
}

static bool
fits(TupleDesc desc, HeapTupleHeader row)
{
	Size size = HeapTupleHeaderGetDatumLength(row);
	int count = HeapTupleHeaderGetNatts(row);
	bool nulls = (row->t_infomask & HEAP_HASNULL) != 0;
	Size at = 0;

	if (size < SizeofHeapTupleHeader || HeapTupleHeaderGetTypeId(row) != desc->tdtypeid ||
		count > desc->natts || row->t_hoff > size || row->t_hoff != MAXALIGN(row->t_hoff) ||
		row->t_hoff < SizeofHeapTupleHeader + (nulls ? BITMAPLEN(count) : 0))
		return false;
	for (int i = 0; i < count; i++)
	{
		if (nulls && att_isnull(i, row->t_bits))
			continue;
		at = end_of(TupleDescAttr(desc, i), (char *) row + row->t_hoff, at, size - row->t_hoff);
		if (at == 0)
			return false;
	}
	return true;
}

void
shard_state_check_row(const ShardStateParts *parts, Datum state)
{
	TupleDesc desc = parts->row == NULL ? NULL : parts->row->desc;

	Assert(parts->held);
	if (fits(desc, (HeapTupleHeader) DatumGetPointer(state)))
		return;
	ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
					errmsg("the handler returned a state that is not of type %s as it is now",
						   format_type_be(desc->tdtypeid)),
					errdetail("The state was made when the type had other attributes."),
					errhint("Replace the functions that make states after the type was altered.")));
}
