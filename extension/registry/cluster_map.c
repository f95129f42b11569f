/*
 * registry/cluster_map.c
 *		What was decided and learned (table shard.control), for functions and views: one key, or all.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/snapmgr.h"

#include "registry/cluster_map.h"
#include "registry/control_store.h"
#include "core/member/membership.h"
#include "registry/security.h"
#include "registry/statement.h"

#include "base/compat.h"

/*
 * The value of one key, palloc'd; false: there is none.
 */
static bool
read_key(ShardMapKey key, ShardMapEntry *entry)
{
	static ShardStatement select = {
		"SELECT value FROM shard.control WHERE store = $1 AND kind = $2 AND a = $3 AND b = $4"
		" AND NOT deleted",
		4,
		{INT2OID, INT4OID, INT4OID, INT4OID}};
	ShardArguments arguments = {0};
	ShardSecurity security = {0};
	bool found;

	memset(entry, 0, sizeof(ShardMapEntry));
	entry->key = key;
	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_begin_system(&security);
	SPI_connect();
	shard_statement_add(&arguments, Int16GetDatum(SHARD_STORE_LEARNED), false);
	shard_statement_add(&arguments, Int32GetDatum(key.kind), false);
	shard_statement_add(&arguments, Int32GetDatum(key.a), false);
	shard_statement_add(&arguments, Int32GetDatum(key.b), false);
	shard_statement_read(&select, &arguments, 1);
	found = SPI_processed == 1;
	if (found)
	{
		bool isnull;
		bytea *value = DatumGetByteaPP(
			SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
		char *copy = SPI_palloc(VARSIZE_ANY_EXHDR(value) + 1);

		entry->length = VARSIZE_ANY_EXHDR(value);
		entry->value = memcpy(copy, VARDATA_ANY(value), entry->length);
	}
	SPI_finish();
	shard_security_end(&security);
	PopActiveSnapshot();
	return found;
}

bool
shard_cluster_map_home(int32 type_id, int32 shard, ShardHomeRecord *home)
{
	ShardMapEntry entry;

	return read_key((ShardMapKey){SHARD_MAP_HOME, type_id, shard}, &entry) &&
		   shard_record_get_home(&entry, home);
}

const char *
shard_cluster_map_type_name(int32 type_id)
{
	ShardArena *arena = shard_arena_create();
	const char *name = NULL;
	ShardMapEntry entry;
	ShardTypeRecord type;

	if (read_key((ShardMapKey){SHARD_MAP_TYPE, type_id, 0}, &entry) &&
		shard_record_get_type(&entry, &type, arena))
		name = pstrdup(type.name);
	shard_arena_destroy(arena);
	return name;
}

int32
shard_cluster_map_pin(int32 type_id, int32 shard)
{
	ShardMapEntry entry;
	ShardMemberRecord member;
	int32 node;

	if (!read_key((ShardMapKey){SHARD_MAP_PIN, type_id, shard}, &entry))
		return 0;
	node = shard_record_get_pin(&entry);
	return read_key((ShardMapKey){SHARD_MAP_MEMBER, node, 0}, &entry) &&
				   shard_record_get_member(&entry, &member, NULL) &&
				   !shard_membership_is_gone(member.status)
			   ? node
			   : 0;
}

/* ---- types by name ---------------------------------------------------------------------------- */

/* What is looked for among the learned types. */
typedef struct Wanted
{
	const char *name;
	MemoryContext context;
	ShardClusterType *type; /* type_id 0: not found */
} Wanted;

static void
look_at_type(const ShardMapEntry *entry, void *arg)
{
	Wanted *wanted = arg;
	ShardTypeRecord record;
	ShardArena *arena = shard_arena_create();
	MemoryContext old = MemoryContextSwitchTo(wanted->context);

	if (shard_record_get_type(entry, &record, arena) && strcmp(record.name, wanted->name) == 0)
	{
		wanted->type->type_id = entry->key.a;
		wanted->type->record = record;
		wanted->type->record.name = pstrdup(record.name);
		wanted->type->record.role = pstrdup(record.role);
		wanted->type->record.hashing = pstrdup(record.hashing);
		wanted->type->record.state = pstrdup(record.state);
		wanted->type->record.owner = pstrdup(record.owner);
		wanted->type->n = entry->n;
		wanted->type->record.extra = (ShardExtra){0};
	}
	MemoryContextSwitchTo(old);
	shard_arena_destroy(arena);
}

/*
 * Hands out all learned entries of a kind, as of now.
 */
static void
visit(ShardMapKind kind, void (*look)(const ShardMapEntry *entry, void *arg), void *arg)
{
	ShardSecurity security = {0};

	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_begin_system(&security);
	shard_control_store_learned(kind, look, arg);
	shard_security_end(&security);
	PopActiveSnapshot();
}

bool
shard_cluster_map_type(const char *name, ShardClusterType *type)
{
	Wanted wanted = {.name = name, .context = CurrentMemoryContext, .type = type};

	memset(type, 0, sizeof(ShardClusterType));
	visit(SHARD_MAP_TYPE, look_at_type, &wanted);
	return type->type_id != 0;
}

void
shard_cluster_map_get_type(const char *name, ShardClusterType *type)
{
	if (!shard_cluster_map_type(name, type))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the cluster has no entity type \"%s\"", name),
				 errhint("See shard_types; a type that was just started takes a moment to be "
						 "known.")));
}

/* ---- all of it -------------------------------------------------------------------------------- */

typedef struct Filling
{
	ShardMap *map;
	MemoryContext context;
} Filling;

static void
put_entry(const ShardMapEntry *entry, void *arg)
{
	Filling *filling = arg;
	MemoryContext old = MemoryContextSwitchTo(filling->context);

	shard_map_put(filling->map, entry);
	MemoryContextSwitchTo(old);
}

ShardMap *
shard_cluster_map_read(void)
{
	static const ShardMapKind kinds[] = {SHARD_MAP_SETTINGS, SHARD_MAP_FORMED, SHARD_MAP_MEMBER,
										 SHARD_MAP_TYPE,	 SHARD_MAP_HOME,   SHARD_MAP_PIN};
	Filling filling = {.map = shard_map_create(), .context = CurrentMemoryContext};

	for (int i = 0; i < (int) lengthof(kinds); i++)
		visit(kinds[i], put_entry, &filling);
	return filling.map;
}

/* ---- words ------------------------------------------------------------------------------------ */

static const char *const reason_names[] = {[SHARD_HOME_REASON_NONE] = "none",
										   [SHARD_HOME_REASON_FIRST] = "first message",
										   [SHARD_HOME_REASON_REBALANCE] = "rebalance",
										   [SHARD_HOME_REASON_OPERATOR] = "operator",
										   [SHARD_HOME_REASON_PIN] = "pin",
										   [SHARD_HOME_REASON_LEAVING] = "leaving",
										   [SHARD_HOME_REASON_EVACUATION] = "evacuation",
										   [SHARD_HOME_REASON_ABORTED] = "aborted",
										   [SHARD_HOME_REASON_LOST] = "lost",
										   [SHARD_HOME_REASON_UNHOSTED] = "not hosted",
										   [SHARD_HOME_REASON_STATES] = "states"};

const char *
shard_cluster_map_reason(int32 reason)
{
	return reason >= 0 && reason < (int) lengthof(reason_names) ? reason_names[reason] : "unknown";
}
