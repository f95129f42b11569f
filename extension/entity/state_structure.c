/*
 * entity/state_structure.c
 *		The structure of a type's states as text.
 *
 * Types count by their names, since the binary form of their values does: a composite by its attributes,
 * an enum by its labels, a domain by what it is made of, an array by its elements. A text that is too long
 * is cut, and ends with a hash of the whole.
 *
 * Relations of composites are their owners', who may have them locked for any time: a process that works for all owners
 * tries those locks and waits for none. Composites that are twice in one another make a text that doubles with each, so
 * there is an end to it.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "base/attempt.h"
#include "core/base/message.h"
#include "entity/state_structure.h"

#include "base/compat.h"

#define LONGEST 4000

/* The most bytes of a description: some thousand attributes. */
#define LARGEST (128 * 1024)

/* Relations of the composites that were described; beyond, any change counts. */
#define MOST_RELATIONS 256

static Oid relations[MOST_RELATIONS];
static int n_relations = 0;
static uint64 changes = 0;

typedef struct Description
{
	Oid type; /* of the states */
	bool wait;
	Oid locked; /* a relation that was to be waited for; then the text is not whole */
	StringInfoData text;
} Description;

static void describe_parts(Description *out, const char *path, Oid type);

/*
 * A relation was altered, or any may have been.
 */
static void
relation_changed(Datum argument, Oid relation)
{
	bool ours = !OidIsValid(relation) || n_relations == MOST_RELATIONS;

	for (int i = 0; i < n_relations && !ours; i++)
		ours = relations[i] == relation;
	if (ours)
		changes++;
}

static void
labels_changed(Datum argument, int cache, uint32 hash)
{
	changes++;
}

/*
 * Whatever a type is made of may be altered; of a composite it is its relation.
 */
static void
watch(Oid type)
{
	static bool registered = false;
	Oid relation = get_typ_typrelid(type);

	if (!registered)
	{
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(ENUMTYPOIDNAME, labels_changed, (Datum) 0);
	}
	registered = true;
	if (!OidIsValid(relation))
		return;
	for (int i = 0; i < n_relations; i++)
		if (relations[i] == relation)
			return;
	if (n_relations < MOST_RELATIONS)
		relations[n_relations++] = relation;
}

/*
 * A type by its name, without the schema that all servers have.
 */
static char *
name_of(Oid type, int32 typmod)
{
	char *name = format_type_extended(type, typmod,
									  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY |
										  FORMAT_TYPE_ALLOW_INVALID);

	return strncmp(name, "pg_catalog.", 11) == 0 ? name + 11 : name;
}

static void
check_size(const Description *out)
{
	if (out->text.len > LARGEST)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("type %s has too many attributes for states", format_type_be(out->type)),
				 errdetail("Written out, with those of composites in it, they have more than %d "
						   "bytes.",
						   LARGEST),
				 errhint("Use fewer composites within one another, or jsonb.")));
}

/*
 * False: another transaction has it locked.
 */
static bool
lock(Description *out, Oid type)
{
	Oid relation = get_typ_typrelid(type);

	if (out->wait || !OidIsValid(relation) || ConditionalLockRelationOid(relation, AccessShareLock))
		return true;
	out->locked = relation;
	return false;
}

static void
describe_attributes(Description *out, const char *path, Oid type)
{
	TupleDesc desc;

	if (!lock(out, type))
		return;
	desc = lookup_rowtype_tupdesc(type, -1);
	for (int i = 0; i < desc->natts && !OidIsValid(out->locked); i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		char *name;

		if (att->attisdropped)
			continue;
		name = psprintf("%s%s", path, quote_identifier(NameStr(att->attname)));
		appendStringInfo(&out->text, "\n%s %s", name, name_of(att->atttypid, att->atttypmod));
		describe_parts(out, psprintf("%s.", name), att->atttypid);
	}
	ReleaseTupleDesc(desc);
}

/*
 * The labels of an enum, by name.
 */
static void
describe_labels(Description *out, Oid type)
{
	Relation rel = table_open(EnumRelationId, AccessShareLock);
	const char *sign = " (";
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_enum_enumtypid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(type));
	scan = systable_beginscan(rel, EnumTypIdLabelIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_enum label = (Form_pg_enum) GETSTRUCT(tuple);

		appendStringInfo(&out->text, "%s%s", sign, quote_literal_cstr(NameStr(label->enumlabel)));
		sign = ", ";
		check_size(out);
	}
	if (sign[0] == ',')
		appendStringInfoChar(&out->text, ')');
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

/*
 * What a type is made of, if it is the user's. path: that of the value, with a point behind, or "".
 */
static void
describe_parts(Description *out, const char *path, Oid type)
{
	Oid element = get_element_type(type);
	Oid base;
	int32 typmod = -1;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	check_size(out);
	watch(type);
	if (OidIsValid(element))
		describe_parts(out, path, element);
	else if (get_typtype(type) == TYPTYPE_DOMAIN)
	{
		base = getBaseTypeAndTypmod(type, &typmod);
		appendStringInfo(&out->text, " = %s", name_of(base, typmod));
		describe_parts(out, path, base);
	}
	else if (get_typtype(type) == TYPTYPE_ENUM)
		describe_labels(out, type);
	else if (get_typtype(type) == TYPTYPE_COMPOSITE)
		describe_attributes(out, path, type);
}

static void
describe(void *argument)
{
	Description *out = argument;
	StringInfo text = &out->text;

	initStringInfo(text);
	if (!SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(out->type)))
		return;
	appendStringInfoString(text, name_of(out->type, -1));
	describe_parts(out, "", out->type);
	if (text->len > LONGEST)
	{
		uint32 hash = shard_message_hash_murmur2(text->data, (size_t) text->len);

		text->len = pg_mbcliplen(text->data, text->len, LONGEST);
		text->data[text->len] = '\0';
		appendStringInfo(text, "\nand more, with hash %08x", hash);
	}
}

char *
shard_state_structure(Oid type)
{
	Description out = {.type = type, .wait = true};

	describe(&out);
	return out.text.data;
}

char *
shard_state_structure_now(Oid type, Oid *locked, char **why)
{
	Description out = {.type = type};
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "shard structure", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	ErrorData *error = shard_attempt(describe, &out);
	char *text = NULL;

	MemoryContextSwitchTo(caller);
	*why = error != NULL ? pstrdup(error->message) : NULL;
	*locked = error != NULL ? InvalidOid : out.locked;
	if (error == NULL && !OidIsValid(out.locked))
		text = pstrdup(out.text.data);
	MemoryContextDelete(context);
	return text;
}

uint64
shard_state_structure_changes(void)
{
	return changes;
}
