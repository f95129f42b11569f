/*
 * sql/type/admin_drop.c
 *		shard_drop_type: removes an entity type and what this database has of it (doc/protocol.md D28).
 *
 * Without force only what has nothing to lose goes. That is looked at when the caller asks, and, where others cannot go
 * on with the type, when the caller's transaction commits, too, which may be much later. Sessions that send meanwhile
 * neither wait nor are waited for; a sender whose messages the second look does not see yet finds the type gone at its
 * commit (session.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "sql/type/admin.h"
#include "sql/type/reshard.h"
#include "registry/catalog.h"
#include "registry/cluster_map.h"
#include "base/fault.h"
#include "log/log.h"
#include "registry/registry.h"
#include "registry/registry_dropped.h"
#include "registry/statement.h"
#include "log/session.h"
#include "entity/replica_rows.h"
#include "entity/request.h"
#include "entity/state_door.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_drop_type);

/* What waits here for a type, and what was given up of it. */
typedef struct Waiting
{
	ShardLogWaiting log; /* no worker has read it yet */
	uint64 kept;		 /* in the stash, in the order of numbers, or parked */
	uint64 timers;
	uint64 dead;
} Waiting;

/* A type that this transaction drops, unless something comes for it before it commits. */
typedef struct Drop
{
	int32 type_id;
	const char *name;
	SubTransactionId level;
} Drop;

static List *drops = NIL; /* in TopTransactionContext */

/* Of shard.held those rows that are messages; the others are entities that cannot start, and nobody drains them (E15). */
#define MESSAGES " AND place OPERATOR(pg_catalog.<>) 'start'"

/* Deletes rows of the type from a table of the extension, all or those that match, and returns how many there were. */
static uint64
delete_rows(const ShardAdminType *type, const char *table, const char *match)
{
	ShardStatement statement = {
		psprintf("DELETE FROM shard.%s WHERE type_id OPERATOR(pg_catalog.=) $1%s", table, match),
		1,
		{INT4OID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_once(&statement, &arguments, SPI_OK_DELETE);
	return SPI_processed;
}

/*
 * Error if a shard of the type is staged here: it is another node's until the move is decided, which only looks at its
 * ownership row (M5). A session that has locked the state table sees every copy that was stored, if it looks at what is
 * committed now, and bars new copies: they lock it first, and until their commit (M18). What can become home no more
 * does not count, since it may stay without end: the known epoch is a later one, or another's (M14); or the cluster gave
 * the name another number, so no fact of this one will come.
 */
static void
refuse_staged(const ShardAdminType *type)
{
	const ShardStatement look = {
		"SELECT FROM shard.own o LEFT JOIN shard.route r ON r.type_id OPERATOR(pg_catalog.=) o.type_id"
		" AND r.shard OPERATOR(pg_catalog.=) o.shard"
		" WHERE o.type_id OPERATOR(pg_catalog.=) $1 AND o.state OPERATOR(pg_catalog.=) 'staged'"
		" AND (r.epoch OPERATOR(pg_catalog.>) o.epoch OR r.epoch OPERATOR(pg_catalog.=) o.epoch"
		"  AND r.node OPERATOR(pg_catalog.<>) (SELECT n.node_id FROM shard.node n)) IS NOT TRUE",
		1,
		{INT4OID}};
	ShardArguments arguments = {0};
	uint64 staged;
	ShardClusterType learned;

	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	PushActiveSnapshot(GetLatestSnapshot());
	shard_statement_once_read(&look, &arguments, 0);
	staged = SPI_processed;
	PopActiveSnapshot();
	if (staged > 0 &&
		!(shard_cluster_map_type(type->name, &learned) && learned.type_id != type->type_id))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot drop entity type \"%s\" because shards of it are being copied to "
						"this node",
						type->name),
				 errdetail("Shards that are copied, and not yet this node's: " UINT64_FORMAT ".",
						   staged),
				 errhint("Try again when they are; see shard_rebalances.")));
}

/* How many rows of the type, all or those that match, a table of the extension has, as the active snapshot sees it. */
static uint64
count_rows(int32 type_id, const char *table, const char *match)
{
	ShardStatement look = {psprintf("SELECT pg_catalog.count(*) FROM shard.%s"
									" WHERE type_id OPERATOR(pg_catalog.=) $1%s",
									table, match),
						   1,
						   {INT4OID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_once_read(&look, &arguments, 0);
	return (uint64) shard_statement_int8(0, 1);
}

/*
 * What is here now. One snapshot for all of it: a turn moves messages from one place to another, and each is in one.
 */
static Waiting
look(int32 type_id)
{
	Waiting waiting;

	PushActiveSnapshot(GetLatestSnapshot());
	waiting.log = shard_log_waiting(type_id, false, GetActiveSnapshot());
	waiting.kept = count_rows(type_id, "held", MESSAGES) + count_rows(type_id, "parked", "");
	waiting.timers = count_rows(type_id, "timer", "");
	waiting.dead = count_rows(type_id, "dead_letter", "");
	PopActiveSnapshot();
	return waiting;
}

static uint64
in_log(const Waiting *waiting)
{
	return waiting->log.committed + waiting->log.own;
}

static bool
anything(const Waiting *waiting)
{
	return in_log(waiting) + waiting->log.open + waiting->kept + waiting->timers + waiting->dead >
		   0;
}

/* What is said of what waits, behind the state table. */
static char *
describe(const Waiting *waiting)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "waiting messages: " UINT64_FORMAT "; dead letters: " UINT64_FORMAT ".",
					 in_log(waiting) + waiting->kept, waiting->dead);
	if (waiting->timers > 0)
		appendStringInfo(&buf, " Timers: " UINT64_FORMAT ".", waiting->timers);
	if (waiting->log.own > 0)
		appendStringInfo(&buf, " Messages that this transaction has sent: " UINT64_FORMAT ".",
						 waiting->log.own);
	if (waiting->log.open > 0)
		appendStringInfo(&buf, " Messages of transactions that are open: " UINT64_FORMAT ".",
						 waiting->log.open);
	return buf.data;
}

/*
 * Error: something of the type is here. In a cluster it is here alone, and can be moved.
 */
static void
refuse_drop(const ShardAdminType *type, bool has_state, bool others, const Waiting *waiting)
{
	const char *name = quote_literal_cstr(type->name);
	bool has_table = shard_admin_table_exists(type);
	bool unread = in_log(waiting) + waiting->log.open > 0;
	char *detail = psprintf("Its state table %s; %s",
							!has_table	? "was dropped"
							: has_state ? "is not empty"
										: "is empty",
							describe(waiting));

	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("cannot drop entity type \"%s\" because it is in use", type->name),
			 has_state && others ? errdetail("%s These states are at this node alone.", detail)
								 : errdetail("%s", detail),
			 has_state && others
				 ? errhint("shard_evacuate() moves the shards of this node to other members that "
						   "host the type, with their states. shard_drop_type(%s, force => true) "
						   "deletes all that is here.",
						   name)
			 : !has_table
				 ? errhint("shard_stop_type() and shard_start() create the table again, empty, "
						   "and messages that wait go on. shard_drop_type(%s, force => true) "
						   "deletes all that is here.",
						   name)
			 : unread
				 ? errhint("Try again when what was sent is committed and handled, for which "
						   "shard_drain() waits. shard_drop_type(%s, force => true) gives up all "
						   "that is here.",
						   name)
				 : errhint("Use shard_drop_type(%s, force => true) to delete all that.", name)));
}

/*
 * What was deleted though the type may go on elsewhere is lost.
 */
static void
warn_of_states(const ShardAdminType *type, uint64 states)
{
	ereport(WARNING,
			(errmsg("deleted states of entity type \"%s\": " UINT64_FORMAT, type->name, states),
			 errdetail("The states were at this node alone. Where the type goes on, the shards "
					   "that had their home here begin empty; their positions of ordered_by stay."),
			 errhint("Roll back if they are wanted; shard_evacuate() moves shards with their "
					 "states.")));
}

/* What was not read yet, and is not deleted: the workers meet it when the type is gone. */
static const char *
fate(bool others)
{
	return others ? "They wait until their shards are at a member that hosts the type."
				  : "They become dead letters without a type, which cannot be sent again.";
}

/* What force takes, and what it leaves in the log: for the caller. */
static void
tell_caller(const ShardAdminType *type, uint64 deleted, uint64 dead, uint64 left, bool others)
{
	if (deleted > 0)
		ereport(NOTICE, (errmsg("deleted waiting messages of entity type \"%s\": " UINT64_FORMAT,
								type->name, deleted)));
	if (left > 0)
		ereport(
			NOTICE,
			(errmsg("messages of entity type \"%s\" that are still in the inbox: " UINT64_FORMAT,
					type->name, left),
			 errdetail_internal("%s", fate(others))));
	if (dead > 0)
		ereport(NOTICE, (errmsg("deleted dead letters of entity type \"%s\": " UINT64_FORMAT,
								type->name, dead)));
}

/* The same for the server's log (P8). */
static void
tell_log(const ShardAdminType *type, uint64 deleted, uint64 dead, uint64 left, bool others)
{
	if (deleted + dead + left == 0)
		return;
	ereport(
		LOG_SERVER_ONLY,
		(errmsg(
			 "role \"%s\" drops entity type \"%s\" with force, and gives up messages: " UINT64_FORMAT,
			 GetUserNameFromId(GetUserId(), false), type->name, deleted + dead + left),
		 errdetail("Waiting ones that are deleted: " UINT64_FORMAT
				   "; dead letters that are deleted: " UINT64_FORMAT
				   "; still in the inbox: " UINT64_FORMAT ". %s",
				   deleted, dead, left, left > 0 ? fate(others) : "")));
}

/* Has the type looked at again before the commit. */
static void
look_again_later(const ShardAdminType *type)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	Drop *drop = palloc(sizeof(Drop));

	*drop = (Drop){type->type_id, pstrdup(type->name), GetCurrentSubTransactionId()};
	drops = lappend(drops, drop);
	MemoryContextSwitchTo(old);
}

/*
 * shard_drop_type(type_name text, force boolean): removes a type and its state table. Unless forced, not while there is
 * state, a message waits, read or not, or there is a dead letter, which could not be sent again. With force messages
 * that are still in the inbox become dead letters, or, where other members may host the type, wait for its shards to
 * move there (D28). Not while shards are copied here. Members of the owner.
 */
Datum
shard_drop_type(PG_FUNCTION_ARGS)
{
	ShardAdminType type = {0};
	ShardSecurity security = {0};
	bool force = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
	bool others;
	bool has_state;
	Waiting waiting;
	uint64 deleted;
	uint64 timers;
	uint64 dead;
	uint64 left;
	uint64 states = 0;

	shard_admin_begin("shard_drop_type()");
	others = shard_admin_had_others();
	shard_admin_open_type(fcinfo, "drop entity type", &type, &security);
	/* Waits for turns that use the table; from here on no worker handles the type. */
	has_state = shard_admin_table_lock(&type);
	if (others)
		refuse_staged(&type);
	/* what other nodes' shards have here is theirs, and goes without a word */
	shard_replica_rows_drop(type.type_id);
	waiting = look(type.type_id);
	if (!force && (has_state || anything(&waiting)))
		refuse_drop(&type, has_state, others, &waiting);
	shard_fault("drop_looked");
	if (force)
	{
		shard_request_refuse_kept(type.type_id, false);
		shard_request_refuse_kept(type.type_id, true);
	}
	deleted = delete_rows(&type, "held", MESSAGES) + delete_rows(&type, "parked", "");
	(void) delete_rows(&type, "held", "");
	timers = delete_rows(&type, "timer", "");
	dead = delete_rows(&type, "dead_letter", "");
	if (!force && deleted + timers + dead > 0)
	{
		/* sent and put aside since the look */
		waiting = (Waiting){.kept = deleted, .timers = timers, .dead = dead};
		refuse_drop(&type, has_state, others, &waiting);
	}
	/* what a turn has stashed since is deleted, too */
	left = in_log(&waiting) + waiting.kept;
	left = left > deleted ? left - deleted : 0;
	if (has_state && others)
		states = shard_state_door_count(type.state_table);
	shard_admin_table_drop(&type);
	shard_reshard_delete(type.type_id);
	if (others)
		shard_registry_dropped_leave(type.type_id);
	else
	{
		(void) delete_rows(&type, "route", "");
		(void) delete_rows(&type, "ordered", "");
		(void) delete_rows(&type, "history", "");
		shard_admin_row_delete(&type);
	}
	shard_security_close_system(&security);

	if (force)
		shard_session_gives_up(type.type_id);
	else if (!others)
		look_again_later(&type);
	if (states > 0)
		warn_of_states(&type, states);
	if (timers > 0)
		ereport(NOTICE, (errmsg("deleted timers of entity type \"%s\": " UINT64_FORMAT, type.name,
								timers)));
	tell_caller(&type, deleted, dead, left, others);
	tell_log(&type, deleted, dead, left, others);
	PG_RETURN_VOID();
}

/* The second look. A type that was started again under its number has what was sent meanwhile. */
static void
check_drop(const Drop *drop)
{
	ShardSecurity security = {0};
	Waiting waiting;

	if (shard_catalog_find() == NULL || shard_registry_by_id(drop->type_id) != NULL)
		return; /* the extension may be gone, too */
	shard_security_open_system(&security);
	waiting = look(drop->type_id);
	shard_security_close_system(&security);
	if (anything(&waiting))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop entity type \"%s\" because messages were sent to it meanwhile",
						drop->name),
				 errdetail_internal("Since shard_drop_type(): %s", describe(&waiting)),
				 errhint("Try again when they are handled, for which shard_drain() waits, and "
						 "commit at once.")));
}

static void
at_xact_event(XactEvent event, void *arg)
{
	ListCell *cell;

	if (drops == NIL)
		return;
	if (event == XACT_EVENT_PRE_COMMIT)
		foreach (cell, drops)
			check_drop(lfirst(cell));
	else if (event == XACT_EVENT_PRE_PREPARE)
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot prepare a transaction that has dropped an entity type without force"),
			 errdetail("Between PREPARE TRANSACTION and COMMIT PREPARED messages may be sent to "
					   "the type, and no check would find them."),
			 errhint("Commit it at once, or use shard_drop_type() with force => true.")));
	else
		drops = NIL;
}

static void
at_subxact_event(SubXactEvent event, SubTransactionId level, SubTransactionId parent, void *arg)
{
	ListCell *cell;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	foreach (cell, drops)
	{
		Drop *drop = lfirst(cell);

		if (drop->level != level)
			continue;
		if (event == SUBXACT_EVENT_ABORT_SUB)
			drops = foreach_delete_current(drops, cell);
		else
			drop->level = parent;
	}
}

void
shard_admin_drop_init(void)
{
	RegisterXactCallback(at_xact_event, NULL);
	RegisterSubXactCallback(at_subxact_event, NULL);
}
