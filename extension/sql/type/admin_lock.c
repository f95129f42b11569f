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
#include "registry/statement.h"

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
static const ShardStatement holder = {
	"SELECT format('%s, in a transaction %s since %s', " HOLDER
	", CASE WHEN l.pid IS NULL THEN 'prepared' ELSE 'open' END, " SINCE ") FROM pg_locks l" HOLDERS
	" AND l.classid = $1 AND l.objid = $2 AND l.objsubid = $3",
	3,
	{OIDOID, OIDOID, INT4OID}};

/* $1: shard.type */
static const ShardStatement long_holders = {
	"SELECT CASE WHEN t.type_name IS NULL"
	" THEN format('%s keeps others from starting entity types, since %s', " HOLDER ", " SINCE ")"
	" ELSE format('%s keeps others from altering entity type \"%s\", since %s', " HOLDER
	", t.type_name, " SINCE ") END || '; its transaction is to be ended'"
	" FROM pg_locks l LEFT JOIN shard.type t ON l.classid = $1 AND t.type_id = l.objid::int8" HOLDERS
		OURS
	" AND (l.classid = $1 AND l.objsubid = 0 OR (l.classid = 'pg_class'::regclass AND l.objid = $1 AND l.objsubid = 1))"
	" AND coalesce(p.prepared, a.xact_start) < clock_timestamp() - interval '10 seconds'",
	1,
	{OIDOID}};

/* $1: a relation; the session that has it locked, or waits to have it */
static const ShardStatement relation_holder = {
	"SELECT format('%s has type or table %s locked since %s; its transaction is to be ended', " HOLDER
	", l.relation::regclass, " SINCE ") FROM pg_locks l" HOLDERS
	" AND l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' AND l.relation = $1"
	" AND coalesce(p.prepared, a.xact_start) < clock_timestamp() - interval '10 seconds'"
	" ORDER BY l.granted DESC LIMIT 1",
	1,
	{OIDOID}};

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

/* The first row of a statement, in the caller's memory; NULL: there is none. */
static char *
ask(const ShardStatement *statement, const ShardArguments *arguments)
{
	MemoryContext caller = CurrentMemoryContext;
	ShardSecurity security = {0};
	char *found = NULL;

	shard_security_open_system(&security);
	shard_statement_once(statement, arguments, SPI_OK_SELECT);
	if (SPI_processed > 0)
	{
		const char *text = shard_statement_text(0, 1);

		found = text == NULL ? NULL : MemoryContextStrdup(caller, text);
	}
	shard_security_close_system(&security);
	return found;
}

/* The session that has a lock. */
static char *
holder_of(const LOCKTAG *tag)
{
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, ObjectIdGetDatum(tag->locktag_field2), false);
	shard_statement_add(&arguments, ObjectIdGetDatum(tag->locktag_field3), false);
	shard_statement_add(&arguments, Int32GetDatum(tag->locktag_field4), false);
	return ask(&holder, &arguments);
}

char *
shard_admin_relation_holder(Oid relation)
{
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, ObjectIdGetDatum(relation), false);
	return ask(&relation_holder, &arguments);
}

/* The wait was in vain: names the session that it was for. */
static void
refuse(const LOCKTAG *tag, const ShardType *type)
{
	const char *who = holder_of(tag);

	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 type != NULL
				 ? errmsg("entity type \"%s\" is being changed by another transaction", type->name)
				 : errmsg("another transaction is starting an entity type, or giving one away"),
			 who != NULL ? errdetail_internal("The lock is held by %s.", who)
						 : errdetail("The other transaction has just ended."),
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
	ShardArguments arguments = {0};

	if (catalog == NULL)
		return NIL;
	shard_statement_add(&arguments, ObjectIdGetDatum(catalog->type), false);
	shard_security_open_system(&security);
	shard_statement_once_read(&long_holders, &arguments, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		const char *text = shard_statement_text(i, 1);
		MemoryContext old = MemoryContextSwitchTo(context);

		holders = lappend(holders, pstrdup(text));
		MemoryContextSwitchTo(old);
	}
	shard_security_close_system(&security);
	return holders;
}
