/*
 * sql/type/admin_lock.c
 *		A session that changes entity types keeps others from doing the same, to the end of its transaction.
 *
 * There are two locks. One is a type's own: a session that alters, stops, starts again or drops the type has that, as
 * its owner or an administrator. The other one is the list of types: a session that adds a type here, or gives one to
 * another role, has it, because types are numbered and counted by what is there, and because the cluster forgets a type
 * only when no open transaction may still add it (control_types.c). An owner's open transaction holds up other owners
 * through the second one alone; no session waits for it without end, and one that waited is told for which session.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"

#include "sql/type/admin.h"
#include "base/attempt.h"
#include "registry/catalog.h"
#include "registry/registry.h"

#include "base/compat.h"

/* A command waits this long for a lock. */
#define PATIENCE "10s"
#define PATIENCE_MS (10 * 1000)

/*
 * The sessions that have the locks, and what is said of them. Of a prepared transaction there is no process, but its
 * lock on its own number.
 */
#define HOLDERS \
	" LEFT JOIN pg_stat_activity a ON a.pid = l.pid" \
	" LEFT JOIN (SELECT x.virtualtransaction, p.* FROM pg_prepared_xacts p" \
	"  JOIN pg_locks x ON x.locktype = 'transactionid' AND x.transactionid = p.transaction AND x.pid IS NULL) p" \
	" ON l.pid IS NULL AND p.virtualtransaction = l.virtualtransaction" \
	" WHERE l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"
#define OURS " AND l.locktype = 'object' AND l.granted AND l.mode = 'ExclusiveLock'"
#define HOLDER \
	"CASE WHEN l.pid IS NULL THEN format('prepared transaction \"%s\" of role \"%s\"', p.gid, p.owner)" \
	" ELSE format('process %s of role \"%s\"', l.pid, a.usename) END"
#define SINCE "date_trunc('second', coalesce(p.prepared, a.xact_start))"

/* $1, $2, $3: the lock */
static const char *const holder_query =
	"SELECT format('%s, in a transaction %s since %s', " HOLDER
	", CASE WHEN l.pid IS NULL THEN 'prepared' ELSE 'open' END, " SINCE ") FROM pg_locks l" HOLDERS
	" AND l.classid = $1 AND l.objid = $2 AND l.objsubid = $3";

/* $1: shard.type */
static const char *const health_query =
	"SELECT CASE WHEN t.type_name IS NULL"
	" THEN format('%s keeps others from starting entity types, since %s', " HOLDER ", " SINCE ")"
	" ELSE format('%s keeps others from altering entity type \"%s\", since %s', " HOLDER
	", t.type_name, " SINCE ") END || '; its transaction is to be ended'"
	" FROM pg_locks l LEFT JOIN shard.type t ON l.classid = $1 AND t.type_id = l.objid::int8" HOLDERS
		OURS
	" AND (l.classid = $1 OR (l.classid = 'pg_class'::regclass AND l.objid = $1 AND l.objsubid = 1))"
	" AND coalesce(p.prepared, a.xact_start) < clock_timestamp() - interval '10 seconds'";

/* $1: a relation; the session that has it locked, or waits to have it */
static const char *const relation_query =
	"SELECT format('%s has type or table %s locked since %s; its transaction is to be ended', " HOLDER
	", l.relation::regclass, " SINCE ") FROM pg_locks l" HOLDERS
	" AND l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' AND l.relation = $1"
	" AND coalesce(p.prepared, a.xact_start) < clock_timestamp() - interval '10 seconds'"
	" ORDER BY l.granted DESC LIMIT 1";

/* The lock of a type; that of the list, if there is none. */
static LOCKTAG
tag_of(const ShardType *type)
{
	LOCKTAG tag;
	Oid table = shard_catalog_get()->type;

	if (type != NULL)
		SET_LOCKTAG_OBJECT(tag, MyDatabaseId, table, type->type_id, 0);
	else
		SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, table, 1);
	return tag;
}

/* Waits for a lock for as long as a command may. */
static void
wait_for(void *argument)
{
	if (LockTimeout == 0 || LockTimeout > PATIENCE_MS)
		(void) set_config_option("lock_timeout", PATIENCE, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	(void) LockAcquire(argument, ExclusiveLock, false, false);
}

/* The first row of a query, in the caller's memory; NULL: there is none. */
static char *
ask(const char *query, int count, Oid *types, Datum *values)
{
	MemoryContext caller = CurrentMemoryContext;
	ShardSecurity security = {0};
	char *holder = NULL;

	shard_security_open_system(&security);
	if (SPI_execute_with_args(query, count, types, values, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read pg_locks");
	if (SPI_processed > 0)
	{
		const char *text = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);

		holder = text == NULL ? NULL : MemoryContextStrdup(caller, text);
	}
	shard_security_close_system(&security);
	return holder;
}

/* The session that has a lock. */
static char *
holder_of(const LOCKTAG *tag)
{
	Oid types[] = {OIDOID, OIDOID, INT4OID};
	Datum values[] = {ObjectIdGetDatum(tag->locktag_field2), ObjectIdGetDatum(tag->locktag_field3),
					  Int32GetDatum(tag->locktag_field4)};

	return ask(holder_query, 3, types, values);
}

char *
shard_admin_relation_holder(Oid relation)
{
	return ask(relation_query, 1, (Oid[]){OIDOID}, (Datum[]){ObjectIdGetDatum(relation)});
}

/* The wait was in vain: names the session that it was for. */
static void
refuse(const LOCKTAG *tag, const ShardType *type)
{
	const char *holder = holder_of(tag);

	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 type != NULL
				 ? errmsg("entity type \"%s\" is being changed by somebody else", type->name)
				 : errmsg("somebody else is starting an entity type, or giving one away"),
			 holder != NULL ? errdetail_internal("It is %s.", holder)
							: errdetail("His transaction has just ended."),
			 errhint("Try again when that transaction has ended. An administrator may end it with "
					 "pg_terminate_backend() or ROLLBACK PREPARED.")));
}

/* Takes a lock to the end of the transaction. Errors: 55P03. */
static void
take(LOCKTAG tag, const ShardType *type)
{
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
	{
		ErrorData *error = shard_attempt(wait_for, &tag);

		if (error != NULL && error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
			refuse(&tag, type);
		if (error != NULL)
			ReThrowError(error);
	}
	AcceptInvalidationMessages();
}

void
shard_admin_lock_list(void)
{
	take(tag_of(NULL), NULL);
}

/* False: meanwhile it is no type any more; look again. */
static bool
lock_type(ShardType *type)
{
	int32 type_id = type->type_id;

	take(tag_of(type), type);
	return shard_registry_by_id(type_id) == type;
}

ShardType *
shard_admin_lock_name(const char *name, const char *what)
{
	ShardType *type;

	do
	{
		type = shard_registry_get_present(name);
		shard_security_check_owner(type, what);
	} while (!lock_type(type));
	shard_security_check_owner(type, what);
	return type;
}

ShardType *
shard_admin_lock_start(const char *name)
{
	bool list = false;

	for (;;)
	{
		ShardType *type = shard_registry_find(name);

		if (type != NULL)
		{
			shard_security_check_owner(type, "start entity type");
			if (!lock_type(type))
				continue;
			shard_security_check_owner(type, "start entity type");
		}
		if (list || (type != NULL && type->mode != SHARD_MODE_PROXY))
			return type;
		shard_admin_lock_list();
		list = true;
	}
}

List *
shard_admin_lock_holders(void)
{
	MemoryContext context = CurrentMemoryContext;
	ShardSecurity security = {0};
	List *holders = NIL;
	const ShardCatalog *catalog = shard_catalog_find();
	Oid types[] = {OIDOID};
	Datum values[1];

	if (catalog == NULL)
		return NIL;
	values[0] = ObjectIdGetDatum(catalog->type);
	shard_security_open_system(&security);
	if (SPI_execute_with_args(health_query, 1, types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read pg_locks");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		const char *text = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
		MemoryContext old = MemoryContextSwitchTo(context);

		holders = lappend(holders, pstrdup(text));
		MemoryContextSwitchTo(old);
	}
	shard_security_close_system(&security);
	return holders;
}
