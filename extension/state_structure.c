/*
 * state_structure.c
 *		The structure of a type's states as text.
 *
 * Types count by their names, since the binary form of their values does: a composite by its attributes,
 * an enum by its labels, a domain by what it is made of, an array by its elements. A text that is too long
 * is cut, and ends with a hash of the whole.
 */
#include "postgres.h"

#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "core/message.h"
#include "state_structure.h"

#include "compat.h"

#define LONGEST 4000

/* Relations of the composites that were described; beyond, any change counts. */
#define MOST_RELATIONS 256

static Oid relations[MOST_RELATIONS];
static int n_relations = 0;
static uint64 changes = 0;

static void describe_parts(StringInfo out, const char *path, Oid type);

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
describe_attributes(StringInfo out, const char *path, Oid type)
{
	TupleDesc desc = lookup_rowtype_tupdesc(type, -1);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		char *name;

		if (att->attisdropped)
			continue;
		name = psprintf("%s%s", path, quote_identifier(NameStr(att->attname)));
		appendStringInfo(out, "\n%s %s", name, name_of(att->atttypid, att->atttypmod));
		describe_parts(out, psprintf("%s.", name), att->atttypid);
	}
	ReleaseTupleDesc(desc);
}

/*
 * The labels of an enum, in their order.
 */
static void
describe_labels(StringInfo out, Oid type)
{
	CatCList *labels = SearchSysCacheList1(ENUMTYPOIDNAME, ObjectIdGetDatum(type));
	const char *sign = " (";

	for (int i = 0; i < labels->n_members; i++)
	{
		Form_pg_enum label = (Form_pg_enum) GETSTRUCT(&labels->members[i]->tuple);

		appendStringInfo(out, "%s%s", sign, quote_literal_cstr(NameStr(label->enumlabel)));
		sign = ", ";
	}
	appendStringInfoString(out, labels->n_members > 0 ? ")" : "");
	ReleaseSysCacheList(labels);
}

/*
 * What a type is made of, if it is the user's. path: that of the value, with a point behind, or "".
 */
static void
describe_parts(StringInfo out, const char *path, Oid type)
{
	Oid element = get_element_type(type);
	Oid base;
	int32 typmod = -1;

	check_stack_depth();
	watch(type);
	if (OidIsValid(element))
		describe_parts(out, path, element);
	else if (get_typtype(type) == TYPTYPE_DOMAIN)
	{
		base = getBaseTypeAndTypmod(type, &typmod);
		appendStringInfo(out, " = %s", name_of(base, typmod));
		describe_parts(out, path, base);
	}
	else if (get_typtype(type) == TYPTYPE_ENUM)
		describe_labels(out, type);
	else if (get_typtype(type) == TYPTYPE_COMPOSITE)
		describe_attributes(out, path, type);
}

char *
shard_state_structure(Oid type)
{
	StringInfoData out;

	initStringInfo(&out);
	if (!SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(type)))
		return out.data;
	appendStringInfoString(&out, name_of(type, -1));
	describe_parts(&out, "", type);
	if (out.len > LONGEST)
	{
		uint32 hash = shard_message_hash_murmur2(out.data, (size_t) out.len);

		out.len = pg_mbcliplen(out.data, out.len, LONGEST);
		out.data[out.len] = '\0';
		appendStringInfo(&out, "\nand more, with hash %08x", hash);
	}
	return out.data;
}

uint64
shard_state_structure_changes(void)
{
	return changes;
}
