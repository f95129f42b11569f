/*
 * registry/registry.c
 *		Entity types and their settings, as this process knows them.
 *
 * The cache is good as long as two counters agree: changes rises in
 * invalidation callbacks, loaded is its value when the table was last read.
 * Callbacks may come at any moment, also while the table is read, and look
 * nothing up.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "registry/catalog.h"
#include "registry/registry.h"
#include "registry/registry_private.h"

#include "base/compat.h"

/* Entries of the two hash tables; both point at the same types. */
typedef struct IdEntry
{
	int32 type_id;
	ShardType *type;
} IdEntry;

typedef struct NameEntry
{
	char name[NAMEDATALEN];
	ShardType *type;
} NameEntry;

/* What of other catalogs the cache was made from; callbacks compare with it. */
typedef struct Watched
{
	Oid type_table;	   /* InvalidOid: the extension was not here */
	bool any_function; /* a function is missing: any new one may be it */
	int tables;		   /* state tables, whose owner owns the type, and composite state types */
	Oid *table;
	int functions;
	uint32 *function; /* hash values in the syscache PROCOID */
	int owners;
	uint32 *owner; /* the same in AUTHOID: a role may be renamed */
} Watched;

/* A row of shard.type, and the functions' OIDs as they were when named. */
typedef struct Row
{
	ShardType type;
	Oid bound[1 + SHARD_EXTRACTORS];
} Row;

static uint64 changes = 1;
static uint64 loaded = 0;
static bool loading = false; /* also after an error in a load: everything counts as a change */
static bool registered = false;
static Watched watched;
static MemoryContext watched_context = NULL;

static HTAB *types_by_id = NULL;
static HTAB *types_by_name = NULL;
static ShardType *last_found = NULL;

/* Relcache callback: shard.type, a state table, or everything. */
static void
relation_changed(Datum arg, Oid relid)
{
	bool ours = !OidIsValid(relid) || loading || relid == watched.type_table;

	for (int i = 0; !ours && i < watched.tables; i++)
		ours = watched.table[i] == relid;
	if (ours)
		changes++;
}

/* Syscache callback on functions. */
static void
function_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	bool ours = hashvalue == 0 || loading || watched.any_function;

	for (int i = 0; !ours && i < watched.functions; i++)
		ours = watched.function[i] == hashvalue;
	if (ours)
		changes++;
}

/* Syscache callback on roles: an owner may have been renamed. */
static void
role_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	bool ours = hashvalue == 0 || loading;

	for (int i = 0; !ours && i < watched.owners; i++)
		ours = watched.owner[i] == hashvalue;
	if (ours)
		changes++;
}

/* Syscache callback on schemas: a handler's schema may have been renamed. */
static void
schema_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	changes++;
}

/* Makes what lives as long as the process; once. */
static void
register_once(void)
{
	HASHCTL control = {.keysize = sizeof(int32), .entrysize = sizeof(IdEntry)};

	if (registered)
		return;
	if (types_by_id == NULL)
		types_by_id = hash_create("shard types by id", 32, &control, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, function_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, schema_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, role_changed, (Datum) 0);
	registered = true;
}

/* Puts a lasting copy of a string (or NULL) in the place of another. */
static void
replace_string(char **place, const char *value)
{
	char *old = *place;

	if (old != NULL && value != NULL && strcmp(old, value) == 0)
		return;
	*place = value == NULL ? NULL : MemoryContextStrdup(TopMemoryContext, value);
	if (old != NULL)
		pfree(old);
}

/* The same of a message. */
static void
replace_message(Jsonb **place, const Jsonb *value)
{
	Jsonb *old = *place;

	if (old != NULL && value != NULL && VARSIZE(old) == VARSIZE(value) &&
		memcmp(old, value, VARSIZE(value)) == 0)
		return;
	*place = NULL;
	if (value != NULL)
	{
		*place = MemoryContextAlloc(TopMemoryContext, VARSIZE(value));
		memcpy(*place, value, VARSIZE(value));
	}
	if (old != NULL)
		pfree(old);
}

/* The lasting entry of a type id, made if needed. */
static ShardType *
lasting_entry(int32 type_id)
{
	bool found;
	IdEntry *entry = hash_search(types_by_id, &type_id, HASH_ENTER, &found);

	if (!found)
		entry->type = NULL;
	if (entry->type == NULL)
		entry->type = MemoryContextAllocZero(TopMemoryContext, sizeof(ShardType));
	return entry->type;
}

/*
 * Takes over a row that was read into its lasting entry. What does not come
 * from the table stays, but for the right to send to another handler.
 */
static void
take_over(const ShardType *row)
{
	ShardType *type = lasting_entry(row->type_id);
	ShardType merged = *row;
	const char *old_path = type->search_path;

	merged.handler_name = type->handler_name;
	merged.problem = type->problem;
	merged.cluster_owner = type->cluster_owner;
	merged.missing_extractor = type->missing_extractor;
	merged.ordered_by_name = type->ordered_by_name;
	merged.stop_message = type->stop_message;
	merged.start_message = type->start_message;
	merged.decider_name = type->decider_name;
	merged.search_path = shard_registry_path_take(row->search_path, &merged.path_number);
	merged.counter = type->counter;
	merged.shard_id_call = type->shard_id_call;
	if (type->handler == row->handler)
	{
		merged.send_role = type->send_role;
		merged.send_generation = type->send_generation;
	}
	*type = merged;
	if (old_path != NULL)
		shard_registry_path_give_back(old_path);
	replace_string(&type->handler_name, row->handler_name);
	replace_string(&type->problem, row->problem);
	replace_string(&type->cluster_owner, row->cluster_owner);
	replace_string(&type->missing_extractor, row->missing_extractor);
	replace_string(&type->ordered_by_name, row->ordered_by_name);
	replace_message(&type->stop_message, row->stop_message);
	replace_message(&type->start_message, row->start_message);
	replace_string(&type->decider_name, row->decider_name);
}

/* Notes what the rows were made from, for the callbacks, in a context of its own. */
static void
watch_rows(List *rows, Oid type_table)
{
	MemoryContext context =
		AllocSetContextCreate(TopMemoryContext, "shard registry", ALLOCSET_SMALL_SIZES);
	MemoryContext old = watched_context;
	Watched fresh = {.type_table = type_table};
	ListCell *cell;

	fresh.table = MemoryContextAlloc(context, (list_length(rows) + 1) * 2 * sizeof(Oid));
	fresh.function = MemoryContextAlloc(context, (list_length(rows) + 1) * 2 *
													 (1 + SHARD_EXTRACTORS) * sizeof(uint32));
	fresh.owner = MemoryContextAlloc(context, (list_length(rows) + 1) * sizeof(uint32));
	foreach (cell, rows)
	{
		const Row *row = lfirst(cell);
		const Oid found[] = {row->type.handler,			  row->type.entity_id_extractor,
							 row->type.message_extractor, row->type.shard_id_extractor,
							 row->type.ordered_by,		  row->type.decider};

		if (row->type.mode == SHARD_MODE_DROPPED)
			continue;
		fresh.table[fresh.tables++] = row->type.state_table;
		fresh.owner[fresh.owners++] =
			GetSysCacheHashValue1(AUTHOID, ObjectIdGetDatum(row->type.owner));
		if (row->type.composite)
			fresh.table[fresh.tables++] = get_typ_typrelid(row->type.state_type);
		for (int i = 0; i < lengthof(found); i++)
		{
			fresh.function[fresh.functions++] =
				GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(row->bound[i]));
			fresh.function[fresh.functions++] =
				GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(found[i]));
		}
		if (!OidIsValid(row->type.handler) || row->type.missing_extractor != NULL ||
			(row->type.ordered_by_name != NULL && !OidIsValid(row->type.ordered_by)) ||
			(row->type.decider_name != NULL && !OidIsValid(row->type.decider)))
			fresh.any_function = true;
	}

	watched = fresh;
	watched_context = context;
	if (old != NULL)
		MemoryContextDelete(old);
}

/* Makes the look-up by name again from the types that exist. */
static void
rebuild_names(void)
{
	HASHCTL control = {.keysize = NAMEDATALEN, .entrysize = sizeof(NameEntry)};
	HTAB *names = hash_create("shard types by name", 32, &control, HASH_ELEM | HASH_STRINGS);
	HASH_SEQ_STATUS seq;
	IdEntry *entry;

	hash_seq_init(&seq, types_by_id);
	while ((entry = hash_seq_search(&seq)) != NULL)
		if (entry->type != NULL && entry->type->exists && entry->type->mode != SHARD_MODE_DROPPED)
			((NameEntry *) hash_search(names, entry->type->name, HASH_ENTER, NULL))->type =
				entry->type;

	if (types_by_name != NULL)
		hash_destroy(types_by_name);
	types_by_name = names;
	last_found = NULL;
}

/* The rows of shard.type as a list of Row, in the current memory context. */
static List *
read_rows(Oid type_table)
{
	Relation rel = table_open(type_table, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	List *rows = NIL;
	HeapTuple tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Row *row = palloc0(sizeof(Row));

		shard_registry_row_read(tuple, RelationGetDescr(rel), &row->type, row->bound);
		rows = lappend(rows, row);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return rows;
}

/* What is gone needs no path: nothing of it runs any more. */
static void
forget_paths(void)
{
	HASH_SEQ_STATUS seq;
	IdEntry *entry;

	hash_seq_init(&seq, types_by_id);
	while ((entry = hash_seq_search(&seq)) != NULL)
		if (entry->type != NULL && !entry->type->exists && entry->type->search_path != NULL)
		{
			shard_registry_path_give_back(entry->type->search_path);
			entry->type->search_path = NULL;
		}
}

/* Reads the table; without the extension there are no types. */
static void
load(void)
{
	const ShardCatalog *catalog = shard_catalog_find();
	Oid type_table = catalog == NULL ? InvalidOid : catalog->type;
	List *rows = catalog == NULL ? NIL : read_rows(type_table);
	HASH_SEQ_STATUS seq;
	IdEntry *entry;
	ListCell *cell;

	hash_seq_init(&seq, types_by_id);
	while ((entry = hash_seq_search(&seq)) != NULL)
		if (entry->type != NULL)
			entry->type->exists = false;
	foreach (cell, rows)
		take_over(&((Row *) lfirst(cell))->type);
	forget_paths();
	rebuild_names();
	watch_rows(rows, type_table);
}

/*
 * A number that rises when a type, or a function that a type uses, has changed
 * or may have.
 */
uint64
shard_registry_generation(void)
{
	return changes;
}

/* Brings the cache up to date, if it is not. Pointers to types stay good. */
void
shard_registry_refresh(void)
{
	uint64 seen;
	MemoryContext context;
	MemoryContext old;

	/* whether or not anything is to be read this time */
	ShardAssert(IsTransactionState());

	/* Nothing tells when the extension comes. */
	if (likely(loaded == changes && OidIsValid(watched.type_table)))
		return;

	register_once();
	context =
		AllocSetContextCreate(CurrentMemoryContext, "shard registry load", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	seen = changes;
	loading = true;
	load();
	loading = false;
	loaded = seen;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

void
shard_registry_catch_up(void)
{
	/* Where nothing has come it looks at one flag; no catalog is read. */
	AcceptInvalidationMessages();
	shard_registry_refresh();
}

void
shard_registry_reload(void)
{
	changes++;
	shard_registry_refresh();
}

/* The type of this name, NULL if there is none. */
ShardType *
shard_registry_find(const char *name)
{
	NameEntry *entry;

	shard_registry_refresh();
	if (last_found != NULL && strcmp(last_found->name, name) == 0)
		return last_found;
	/* Keys are cut to this length, names never reach it. */
	if (strlen(name) >= NAMEDATALEN)
		return NULL;

	entry = hash_search(types_by_name, name, HASH_FIND, NULL);
	if (entry == NULL)
		return NULL;
	return last_found = entry->type;
}

/* The type of this id, also what it has left; NULL if there is none. */
ShardType *
shard_registry_known(int32 type_id)
{
	IdEntry *entry;

	shard_registry_refresh();
	entry = hash_search(types_by_id, &type_id, HASH_FIND, NULL);
	return entry == NULL || entry->type == NULL || !entry->type->exists ? NULL : entry->type;
}

const char *
shard_registry_last_name(int32 type_id)
{
	IdEntry *entry;

	shard_registry_refresh();
	entry = hash_search(types_by_id, &type_id, HASH_FIND, NULL);
	return entry == NULL || entry->type == NULL ? NULL : entry->type->name;
}

/* The type of this id, NULL if there is none or it was dropped. */
ShardType *
shard_registry_by_id(int32 type_id)
{
	ShardType *type = shard_registry_known(type_id);

	return type != NULL && type->mode != SHARD_MODE_DROPPED ? type : NULL;
}

static ShardType *
get_type(const char *name, const char *hint)
{
	ShardType *type;

	shard_registry_catch_up();
	type = shard_registry_find(name);
	if (type == NULL)
	{
		(void) shard_catalog_get();
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("entity type \"%s\" does not exist", name), errhint("%s", hint)));
	}
	return type;
}

ShardType *
shard_registry_get(const char *name)
{
	return get_type(name, "Start it with shard_start(); where another member hosts it, "
						  "shard_start_proxy() makes it known here. See shard_types and "
						  "shard_current_regions.");
}

ShardType *
shard_registry_get_present(const char *name)
{
	return get_type(name, "View shard_types lists the entity types of this node, "
						  "shard_current_regions those of all members.");
}

uint8
shard_registry_groups(void)
{
	uint8 groups = 0;
	HASH_SEQ_STATUS seq;
	IdEntry *entry;

	shard_registry_refresh();
	hash_seq_init(&seq, types_by_id);
	while ((entry = hash_seq_search(&seq)) != NULL)
		if (entry->type != NULL && entry->type->exists)
			groups |= shard_group_bit(shard_message_group(entry->type->type_id));
	return groups;
}

/* Calls visit for what each dropped type has left; visit must not change types. */
void
shard_registry_each_dropped(void (*visit)(ShardType *type, void *arg), void *arg)
{
	HASH_SEQ_STATUS seq;
	IdEntry *entry;

	shard_registry_refresh();
	hash_seq_init(&seq, types_by_id);
	while ((entry = hash_seq_search(&seq)) != NULL)
		if (entry->type != NULL && entry->type->exists && entry->type->mode == SHARD_MODE_DROPPED)
			visit(entry->type, arg);
}

/* Calls visit for each type; visit must not change types. */
void
shard_registry_each(void (*visit)(ShardType *type, void *arg), void *arg)
{
	HASH_SEQ_STATUS seq;
	NameEntry *entry;

	shard_registry_refresh();
	hash_seq_init(&seq, types_by_name);
	while ((entry = hash_seq_search(&seq)) != NULL)
		visit(entry->type, arg);
}
