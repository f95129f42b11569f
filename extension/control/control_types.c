/*
 * control/control_types.c
 *		Entity types of this database, and those of the cluster.
 *
 * What shard.type holds is told to the machine: types that run here, with the numbers that they have, and those that
 * are gone. Where this node is alone, its numbers are granted as they are. A node that joins a cluster takes the
 * cluster's numbers: its types are renumbered, in one transaction under an exclusive lock on the extension, which keeps
 * out all senders and turns. That needs types without entities and messages, as every joiner's are; until it is done
 * the node handles nothing, since a number of its own may mean another type to the others.
 *
 * The cluster forgets a type that no node has (C9), and asks each node for that. What a node has are its rows, and what
 * a transaction that is open may still commit: a session that adds one to shard.type has a lock of its own
 * (shard_admin_lock_list), so when that is free, or its holder has changed nothing yet and waits for the control
 * worker, rows are all there is. If the process dies right here: the next one looks again.
 *
 * What a state is made of is read from relations of its owner. The control worker waits for no lock there, and no error
 * in one type ends the process for all: meanwhile the structure is the one that was read last, or unknown, which
 * differs from none.
 *
 * If the process dies right here: the renumbering is one transaction, or is done by the next process.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "registry/catalog.h"
#include "control/control_types.h"
#include "core/allocation/allocation.h"
#include "core/member/difference.h"
#include "core/member/membership.h"
#include "core/map/type_number.h"
#include "shared/gate.h"
#include "base/guc.h"
#include "registry/registry.h"
#include "registry/settings.h"
#include "entity/state_structure.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Types that another session has locked are looked at again after this time. */
#define LOCKED_MS 1000

static List *local = NIL; /* ControlType *, by id */
static MemoryContext local_context = NULL;
static uint64 seen = 0; /* of the registry */
static uint64 seen_structures = 0;
static uint32 seen_changes = 0;	 /* of the board */
static TimestampTz again_at = 0; /* something was locked: read again at that time; 0: never */
static bool read_once = false;
static bool wished = false; /* the machine was told of types that may never get a row */
static int64 complete_n =
	-1; /* all is told as of that version of the map, once the gate has passed */
static XLogRecPtr complete_lsn = InvalidXLogRecPtr;
static bool settled = false; /* no number of this database means another type to the cluster */
static int64 settled_n = -1; /* as of that version of the map */
static int64 owners_n = -1;	 /* the rows name the owners in the cluster as of that version */

void
shard_control_types_forget(void)
{
	read_once = false;
	wished = false;
	complete_n = -1;
	settled = false;
	settled_n = owners_n = -1;
}

/* ---- what is here ----------------------------------------------------------------------------- */

static ControlType *
find_local(List *types, const char *name)
{
	ListCell *cell;

	foreach (cell, types)
		if (strcmp(((ControlType *) lfirst(cell))->record.name, name) == 0)
			return lfirst(cell);
	return NULL;
}

/*
 * The structure of its states, or what is known of it.
 */
static void
read_structure(ControlType *type, Oid state_type)
{
	const ControlType *before = find_local(local, type->record.name);
	Oid locked;
	char *why;

	if (before != NULL && before->type_id != type->type_id)
		before = NULL;
	type->record.state = shard_state_structure_now(state_type, &locked, &why);
	type->unread = type->record.state == NULL;
	if (!type->unread)
		return;
	type->record.state =
		before != NULL && before->record.state != NULL ? pstrdup(before->record.state) : "";
	if (OidIsValid(locked))
		again_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), LOCKED_MS);
	else if (before == NULL || !before->unread)
		ereport(
			WARNING,
			(errmsg(
				 "shard: the states of entity type \"%s\" cannot be compared with those of other nodes",
				 type->record.name),
			 errdetail("%s", why)));
}

static ControlType *
read_type(HeapTuple row, TupleDesc desc)
{
	ControlType *type = palloc0(sizeof(ControlType));
	ShardSettings settings;
	uint64 hash;
	bool isnull;

	type->type_id = DatumGetInt32(SPI_getbinval(row, desc, 1, &isnull));
	shard_settings_from_jsonb(&settings, DatumGetJsonbP(SPI_getbinval(row, desc, 6, &isnull)));
	settings.value[SHARD_SETTING_NUMBER_OF_SHARDS] = SPI_getvalue(row, desc, 4);
	settings.value[SHARD_SETTING_HASH] = SPI_getvalue(row, desc, 5);
	shard_settings_to_record(SPI_getvalue(row, desc, 2), &settings, &type->record);
	type->record.owner = SPI_getvalue(row, desc, 8);
	type->cluster_owner = SPI_getvalue(row, desc, 9);
	type->proxy = strcmp(SPI_getvalue(row, desc, 3), "proxy") == 0;
	if (!type->proxy)
		read_structure(type, DatumGetObjectId(SPI_getbinval(row, desc, 7, &isnull)));
	/* A proxy has only what it needs to find a shard, and that from the cluster. */
	if (type->proxy && shard_control_types_learned(type->record.name, &hash) != 0)
		type->record.settings_hash = hash;
	type->proxy |= !shard_guc_has_role(type->record.role);
	return type;
}

/*
 * The rows of shard.type, ordered by id, in a context of their own. A type that never had a state table here is a proxy,
 * whatever its mode: older versions stopped proxies. A type that is resharded has left the cluster (E62).
 */
static List *
read_types(MemoryContext context)
{
	static ShardStatement select = {
		"SELECT t.type_id, t.type_name, CASE WHEN t.state_table = 0 THEN 'proxy' ELSE t.mode END,"
		" t.number_of_shards::text, t.hash, t.settings,"
		" t.state_type::oid, pg_get_userbyid(coalesce(c.relowner, t.owner)), t.cluster_owner"
		" FROM shard.type t LEFT JOIN pg_class c ON c.oid = t.state_table"
		" WHERE t.mode <> 'dropped'"
		" AND NOT EXISTS (SELECT FROM shard.reshard r WHERE r.type_id = t.type_id)"
		" ORDER BY t.type_id"};
	List *types = NIL;
	MemoryContext old;

	SPI_connect();
	shard_statement_read(&select, &(ShardArguments){0}, 0);
	old = MemoryContextSwitchTo(context);
	for (uint64 i = 0; i < SPI_processed; i++)
		types = lappend(types, read_type(SPI_tuptable->vals[i], SPI_tuptable->tupdesc));
	MemoryContextSwitchTo(old);
	SPI_finish();
	return types;
}

static void
tell_type(const ControlType *type)
{
	shard_control_event(&(ShardNodeEvent){.kind = SHARD_EVENT_TYPE,
										  .type = &type->record,
										  .flag = type->proxy,
										  .number = type->type_id});
}

static void
tell_gone(const char *name, int32 type_id)
{
	shard_control_facts_forget(type_id);
	shard_control_event(&(ShardNodeEvent){.kind = SHARD_EVENT_DROP_TYPE, .text = name});
}

static bool
same_text(const char *a, const char *b)
{
	return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

static bool
same_type(const ControlType *a, const ControlType *b)
{
	return a->type_id == b->type_id && strcmp(a->record.name, b->record.name) == 0 &&
		   a->record.settings_hash == b->record.settings_hash && a->proxy == b->proxy &&
		   same_text(a->record.state, b->record.state) &&
		   same_text(a->record.owner, b->record.owner);
}

/* ---- what the cluster has --------------------------------------------------------------------- */

/*
 * All learned types but those that leave the map now, in the current memory context.
 */
static ControlLearned *
learned_types(int *count)
{
	ShardArena *arena = shard_arena_create();
	int n_entries;
	ShardMapEntry *entries =
		shard_map_list(shard_node_learned(shard_control.node), SHARD_MAP_TYPE, arena, &n_entries);
	ControlLearned *types = palloc(sizeof(ControlLearned) * Max(n_entries, 1));

	*count = 0;
	for (int i = 0; i < n_entries; i++)
	{
		ShardTypeRecord record;

		if (shard_node_drops_type(shard_control.node, entries[i].key.a))
			continue;
		if (!shard_record_get_type(&entries[i], &record, arena))
			record = (ShardTypeRecord){.name = ""};
		types[*count].type_id = entries[i].key.a;
		types[*count].name = pstrdup(record.name);
		types[*count].owner = pstrdup(record.owner ? record.owner : "");
		types[*count].state = pstrdup(record.state ? record.state : "");
		types[(*count)++].settings_hash = record.settings_hash;
	}
	shard_arena_destroy(arena);
	return types;
}

bool
shard_control_types_known(int32 type_id)
{
	return shard_map_value(shard_node_learned(shard_control.node),
						   (ShardMapKey){SHARD_MAP_TYPE, type_id, 0}) != NULL;
}

int32
shard_control_types_compare(const ShardTypeRecord *wanted, const char **difference,
							const char **owner, bool *dropping)
{
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *entries =
		shard_map_list(shard_node_learned(shard_control.node), SHARD_MAP_TYPE, arena, &count);
	int32 type_id = 0;

	*difference = *owner = NULL;
	*dropping = false;
	for (int i = 0; i < count && type_id == 0; i++)
	{
		ShardTypeRecord record;

		if (shard_node_drops_type(shard_control.node, entries[i].key.a) ||
			!shard_record_get_type(&entries[i], &record, arena) ||
			strcmp(record.name, wanted->name) != 0)
			continue;
		*difference = shard_difference_of_types(&record, wanted, true, arena);
		if (*difference != NULL)
			*difference = pstrdup(*difference);
		if (shard_difference_of_owners(&record, wanted))
			*owner = pstrdup(record.owner);
		/* what this node has renumbered may not meet a type that others have begun under its name */
		if (wanted->claims && !(record.claims && record.by == shard_node_id(shard_control.node)) &&
			*difference == NULL)
			*difference = psprintf("node %d has started it", record.by);
		*dropping = record.dropping;
		type_id = entries[i].key.a;
	}
	shard_arena_destroy(arena);
	return type_id;
}

int32
shard_control_types_learned(const char *name, uint64 *settings_hash)
{
	int count;
	ControlLearned *types = learned_types(&count);

	for (int i = 0; i < count; i++)
	{
		if (strcmp(types[i].name, name) != 0)
			continue;
		*settings_hash = types[i].settings_hash;
		return types[i].type_id;
	}
	return 0;
}

/* ---- numbers ---------------------------------------------------------------------------------- */

/*
 * Compares with what was learned meanwhile. True: numbers were changed.
 */
static bool
settle(void)
{
	int64 n = shard_map_point(shard_node_learned(shard_control.node)).n;
	ControlLearned *learned;
	int count;
	bool conflict;
	bool done;

	if (settled_n == n)
		return false;
	learned = learned_types(&count);
	conflict = shard_control_number_conflict(local, learned, count, &done);
	/* Of another cluster's map there are only addresses at first, whose n is 0. */
	settled = !conflict && n > 0;
	if (!conflict)
		settled_n = n;
	return done;
}

/* The owners of the types in the cluster: again, when rows or map are others. */
static void
follow_owners(void)
{
	int64 n = shard_map_point(shard_node_learned(shard_control.node)).n;
	ControlLearned *learned;
	int count;

	if (owners_n == n || n == 0)
		return;
	learned = learned_types(&count);
	if (shard_control_owner_follow(local, learned, count))
		owners_n = n;
}

void
shard_control_types_lack(char *names, size_t size)
{
	StringInfoData list;
	ListCell *cell;

	initStringInfo(&list);
	foreach (cell, local)
	{
		const ControlType *type = lfirst(cell);
		ShardTypeRefusal lacks = shard_node_type_lacks(shard_control.node, type->record.name);

		if (lacks)
			appendStringInfo(&list, "%s\"%s\" of role \"%s\" (%s)", list.len > 0 ? ", " : "",
							 type->record.name, type->record.owner, shard_type_number_why(lacks));
	}
	if (list.len >= (int) size)
		list.data[pg_mbcliplen(list.data, list.len, (int) size - 1)] = '\0';
	strlcpy(names, list.data, size);
	pfree(list.data);
}

bool
shard_control_types_settled(void)
{
	return settled;
}

/*
 * The number was read before the snapshot, so whatever counts in it was seen.
 */
bool
shard_control_types_told(uint32 *changes)
{
	*changes = seen_changes;
	return read_once;
}

/* ---- rounds ----------------------------------------------------------------------------------- */

/*
 * Is a type of the map one that this database dropped, maybe to make another one of that name? At the start any type
 * that the map has beside those of this database was dropped by a process that died; later, what changed its number and
 * is not the one that the map has.
 */
static bool
was_dropped(const ControlLearned *learned, const ControlType *mine)
{
	const ControlType *before = read_once ? find_local(local, learned->name) : NULL;

	if (mine != NULL && mine->type_id == learned->type_id)
		return false;
	if (!read_once)
		return shard_control_was_always_alone();
	return mine != NULL && before != NULL && before->type_id == learned->type_id;
}

/* Does the cluster have another structure of the states than this host of the type, which has read its own? */
static bool
is_misunderstood(const ControlType *type, const ControlLearned *learned, int count)
{
	if (type->proxy || type->unread)
		return false;
	for (int i = 0; i < count; i++)
		if (learned[i].type_id == type->type_id)
			return !same_text(learned[i].state, type->record.state);
	return false;
}

/*
 * Tells the machine what has changed in shard.type: first what is gone, since a type of the same name
 * may have come. At its start it hears of all, and of those that only the map still has. What it was told of
 * a wish meanwhile is true no more once that is over; then it hears of the row again. announced: a session here has
 * started, altered or dropped a type; then this host corrects what the cluster has of its states (C9).
 */
static void
tell_changes(List *types, bool over, const char *awaited, bool announced)
{
	ListCell *cell;
	int count;
	ControlLearned *learned = learned_types(&count);

	foreach (cell, local)
	{
		const ControlType *type = lfirst(cell);

		if (find_local(types, type->record.name) == NULL)
			tell_gone(type->record.name, type->type_id);
	}
	for (int i = 0; i < count; i++)
		if (was_dropped(&learned[i], find_local(types, learned[i].name)))
			tell_gone(learned[i].name, learned[i].type_id);
	foreach (cell, types)
	{
		ControlType *type = lfirst(cell);
		ControlType *before = read_once ? find_local(local, type->record.name) : NULL;

		if (before == NULL || !same_type(type, before) ||
			(announced && is_misunderstood(type, learned, count)))
			tell_type(type);
		else if (!before->wished)
			continue;
		else if (over && (awaited == NULL || strcmp(awaited, type->record.name) != 0))
			tell_type(type);
		else
			type->wished = true;
	}
}

/* ---- all that is here ------------------------------------------------------------------------- */

/*
 * Is no session in the middle of adding to shard.type? Then none is, to the end of this transaction.
 */
static bool
lock_changes(void)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, shard_catalog_get()->type, 1);
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * Types that the machine was told of have no row, and will not get one: the transactions that wished for them are
 * over, but for one that waits.
 */
static void
forget_wishes(const char *awaited)
{
	const char *name;
	int at = 0;

	while ((name = shard_node_type_name(shard_control.node, at)) != NULL)
	{
		if (find_local(local, name) != NULL || (awaited != NULL && strcmp(awaited, name) == 0))
			at++;
		else
			shard_control_event(
				&(ShardNodeEvent){.kind = SHARD_EVENT_DROP_TYPE, .text = pstrdup(name)});
	}
	wished = awaited != NULL;
}

/*
 * The machine has heard of all rows, as of what was learned before they were read. No session has changed any
 * meanwhile, unless the awaited session is not awaited any more: then the rows are looked at again. A row that is gone
 * may be there again after a crash, or at the standby, until the gate has passed the commit of the transaction that
 * looked.
 */
static void
note_complete(int64 n, const char *awaited)
{
	const char *now = awaited != NULL ? shard_control_awaited() : NULL;

	if (awaited != NULL && (now == NULL || strcmp(now, awaited) != 0))
		return;
	forget_wishes(awaited);
	complete_n = n;
}

/*
 * True: the machine was told.
 */
static bool
tell_complete(void)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPES_TOLD, .number = complete_n};

	if (complete_n < 0 || !shard_gate_released(complete_lsn))
		return false;
	complete_n = -1;
	shard_control_event(&event);
	return true;
}

/*
 * An earlier session that wanted the same has ended, as the one that wants it now has the lock. first: the session has
 * changed no type before. Otherwise it may have dropped a type of that name, and stay open for long, or be rolled back.
 * If the row says already what is wanted, the machine hears of nothing new.
 */
void
shard_control_types_wish(const ShardTypeRecord *type, bool first)
{
	ControlType *before = find_local(local, type->name);
	const char *name = NULL;

	for (int at = 0; first && before == NULL; at++)
	{
		name = shard_node_type_name(shard_control.node, at);
		if (name == NULL || strcmp(name, type->name) == 0)
			break;
	}
	if (name != NULL)
		shard_control_event(&(ShardNodeEvent){.kind = SHARD_EVENT_DROP_TYPE, .text = type->name});
	wished = true;
	if (before != NULL && before->record.settings_hash == type->settings_hash &&
		same_text(before->record.state, type->state) &&
		same_text(before->record.owner, type->owner))
	{
		if (before->wished)
			tell_type(before);
		before->wished = false;
		return;
	}
	if (before != NULL)
		before->wished = true;
	shard_control_event(&(ShardNodeEvent){.kind = SHARD_EVENT_TYPE, .type = type, .flag = true});
}

/* New rows in the place of those before. over: no session changes any, except for one that waits. */
static void
keep_types(List *types, MemoryContext context, bool over, const char *awaited, bool announced)
{
	tell_changes(types, over, awaited, announced);
	if (local_context != NULL)
		MemoryContextDelete(local_context);
	local_context = context;
	local = types;
	read_once = true;
	settled_n = owners_n = -1;
}

/*
 * Looks whether shard.type has changed; then, whether the numbers here are the cluster's. True: something was done.
 */
bool
shard_control_types_run(void)
{
	List *types = NIL;
	MemoryContext context = NULL;
	uint32 changes = shard_board_types(shard_control.db);
	int64 n = shard_map_point(shard_node_learned(shard_control.node)).n;
	const char *awaited = shard_control_awaited();
	bool complete = shard_node_asks_for_types(shard_control.node) || (wished && !awaited);
	bool announced = changes != seen_changes;
	static const char *const tables[] = {"type", "reshard"};
	bool told;

	if (shard_control.journal)
		return false;
	complete = complete && complete_n < 0;
	if (!shard_control_try(tables, lengthof(tables)))
		return false;
	shard_registry_refresh();
	complete = complete && (awaited != NULL || lock_changes());
	if (complete || !read_once || changes != seen_changes || seen != shard_registry_generation() ||
		seen_structures != shard_state_structure_changes() ||
		(again_at != 0 && GetCurrentTimestamp() >= again_at))
	{
		again_at = 0;
		seen_changes = changes;
		seen_structures = shard_state_structure_changes();
		seen = shard_registry_generation();
		context = AllocSetContextCreate(TopMemoryContext, "shard types of the coordinator",
										ALLOCSET_SMALL_SIZES);
		/* what was committed before the lock was free has to be seen */
		PushActiveSnapshot(GetLatestSnapshot());
		types = read_types(context);
		shard_shmem_found_groups(shard_control.db, shard_registry_groups());
		PopActiveSnapshot();
		shard_control_dropped_read();
	}
	if (complete)
	{
		/* a commit of its own, behind all that were seen */
		(void) GetCurrentTransactionId();
		ForceSyncCommit();
	}
	shard_control_commit();
	complete_lsn = complete ? XactLastCommitEnd : complete_lsn;
	if (context != NULL)
		keep_types(types, context, complete, awaited, announced);
	if (complete)
		note_complete(n, awaited);
	told = tell_complete();
	shard_control_dropped_follow();
	follow_owners();
	return settle() || context != NULL || told;
}
