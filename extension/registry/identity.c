/*
 * registry/identity.c
 *		The identity of this database: table shard.node (doc/protocol.md I2, D22).
 *
 * Rows of the log name transactions of the server that wrote them. In a copy
 * those numbers mean nothing, or something else, so a copy handles nothing.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/uuid.h"

#include "registry/catalog.h"
#include "registry/control_store.h"
#include "registry/identity.h"
#include "shared/board.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "registry/statement.h"

#include "base/compat.h"

/* What recovery writes when it was not told where to stop: a standby that was promoted. */
#define NO_TARGET "no recovery target specified"

bool
shard_identity_is_clear(ShardDatabase *db)
{
	static ShardStatement select = {"SELECT system_identifier, database_oid FROM shard.node"};
	bool isnull;
	bool clear = false;

	SPI_connect();
	shard_statement_read(&select, &(ShardArguments){0}, 1);
	if (SPI_processed == 1)
		clear = (uint64) shard_statement_int8(0, 1) == GetSystemIdentifier() &&
				DatumGetObjectId(shard_statement_column(0, 2, &isnull)) == MyDatabaseId;
	SPI_finish();
	if (!clear && !db->paused)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this database is a copy of another node and handles no messages"),
				 errdetail("shard.node names another server or database."),
				 errhint(
					 "In a copy that is to work on its own, drop and create the extension; or, to "
					 "keep its entities, call shard_reset_cluster_data().")));
	db->paused = !clear;
	return clear;
}

/* ---- the row ---------------------------------------------------------------------------------- */

static ShardUuid
get_uuid(int column)
{
	bool isnull;
	pg_uuid_t *uuid = DatumGetUUIDP(shard_statement_column(0, column, &isnull));
	uint64 half[2];

	memcpy(half, uuid->data, sizeof(half));
	return (ShardUuid){pg_ntoh64(half[0]), pg_ntoh64(half[1])};
}

static Datum
make_uuid(ShardUuid uuid)
{
	pg_uuid_t *result = palloc(sizeof(pg_uuid_t));
	uint64 half[2] = {pg_hton64(uuid.high), pg_hton64(uuid.low)};

	memcpy(result->data, half, sizeof(half));
	return UUIDPGetDatum(result);
}

void
shard_identity_read(ShardIdentity *row)
{
	static ShardStatement select = {
		"SELECT cluster_id, node_id, inc_no, inc_uuid, timeline, voter_state, fenced, dsn"
		" FROM shard.node"};
	MemoryContext context = CurrentMemoryContext;
	int length;

	SPI_connect();
	shard_statement_read(&select, &(ShardArguments){0}, 1);
	if (SPI_processed != 1)
		elog(ERROR, "could not read shard.node");
	row->cluster = get_uuid(1);
	row->node = shard_statement_int4(0, 2);
	row->inc_no = shard_statement_int4(0, 3);
	row->incarnation = get_uuid(4);
	row->timeline = shard_statement_int4(0, 5);
	row->voter_state = shard_statement_bytes(0, 6, context, &length);
	row->fenced = shard_statement_bytes(0, 7, context, &length);
	row->dsn = shard_statement_bytes(0, 8, context, &length);
	SPI_finish();
}

/* Nobody waits for a table of the extension that another session has locked exclusively: error 55P03, which says what. */
static void
lock_to_read(const char *const *tables, int count, const char *what)
{
	for (int i = 0; i < count; i++)
	{
		Oid table = get_relname_relid(tables[i], shard_catalog_get()->schema);

		if (!OidIsValid(table) || ConditionalLockRelationOid(table, AccessShareLock))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("it is not known %s", what),
				 errdetail("This node handles nothing: its control worker has not begun; see "
						   "shard_health(). Table shard.%s, which says so, is locked.",
						   tables[i]),
				 errhint("End the transaction that has locked the table, or that waits to lock it; "
						 "see pg_locks.")));
	}
}

ShardIdentityName
shard_identity_name(void)
{
	static const char *const tables[] = {"node"};
	ShardSecurity security = {0};
	ShardIdentity row;
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (likely(view.known))
		return (ShardIdentityName){.cluster = view.cluster, .node = view.node};
	lock_to_read(tables, lengthof(tables), "which node this is");
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_security_begin_system(&security);
	shard_identity_read(&row);
	shard_security_end(&security);
	PopActiveSnapshot();
	return (ShardIdentityName){.cluster = row.cluster, .node = row.node};
}

/* Has the cluster another number for a type of this database? */
static void
compare_number(const ShardMapEntry *entry, void *arg)
{
	bool *differs = arg;
	ShardArena *arena = shard_arena_create();
	ShardTypeRecord record;

	if (shard_record_get_type(entry, &record, arena))
	{
		const ShardType *type = shard_registry_find(record.name);

		*differs |= type != NULL && type->type_id != entry->key.a;
	}
	shard_arena_destroy(arena);
}

void
shard_identity_check_open(void)
{
	static const char *const tables[] = {"node", "control", "type"};
	ShardSecurity security = {0};
	ShardIdentity row;
	int32 status;
	bool renumbers = false;

	if (likely(shard_board_check_open()))
		return;
	lock_to_read(tables, lengthof(tables), "whether this node takes messages");
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_security_begin_system(&security);
	shard_identity_read(&row);
	shard_registry_refresh();
	SPI_connect();
	status = shard_control_store_status(row.node);
	SPI_finish();
	shard_control_store_learned(SHARD_MAP_TYPE, compare_number, &renumbers);
	shard_security_end(&security);
	PopActiveSnapshot();
	if (row.fenced != NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("this node is fenced and takes no messages"),
						errdetail("Table shard.node says: %s.", row.fenced),
						errhint("Send at another member.")));
	/* It may have said that nothing is left before its server went down, and be removed since (M20). */
	if (status == SHARD_MEMBER_EXITING)
		shard_board_refuse(SHARD_BOARD_LEAVING);
	/*
	 * The node has joined a cluster, and its server went down before the types had the cluster's numbers: under the old
	 * ones no other node would know them.
	 */
	if (renumbers)
		shard_board_refuse(SHARD_BOARD_JOINING);
}

void
shard_identity_write(const ShardIdentity *row)
{
	static ShardStatement update = {
		"UPDATE shard.node SET cluster_id = $1, node_id = $2, inc_no = $3,"
		" inc_uuid = $4, timeline = $5, voter_state = $6, fenced = $7, dsn = $8",
		8,
		{UUIDOID, INT4OID, INT4OID, UUIDOID, INT4OID, TEXTOID, TEXTOID, TEXTOID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, make_uuid(row->cluster), false);
	shard_statement_add(&arguments, Int32GetDatum(row->node), false);
	shard_statement_add(&arguments, Int32GetDatum(row->inc_no), false);
	shard_statement_add(&arguments, make_uuid(row->incarnation), false);
	shard_statement_add(&arguments, Int32GetDatum(row->timeline), false);
	shard_statement_add_string(&arguments, row->voter_state);
	shard_statement_add_string(&arguments, row->fenced);
	shard_statement_add_string(&arguments, row->dsn);
	shard_statement_change_one(&update, &arguments, SPI_OK_UPDATE);
}

/* ---- timelines -------------------------------------------------------------------------------- */

int32
shard_identity_timeline(void)
{
	return (int32) GetWALInsertionTimeLine();
}

/*
 * Looks into the timeline's history: each line says why a timeline was left. A copy that was put back up
 * to a point in time is no promoted standby: it may lack what was promised (I2). So is one that was
 * promoted later; lines before the timeline that the caller knows say nothing about it.
 */
bool
shard_identity_was_restored(int32 timeline, int32 since)
{
	char path[MAXPGPATH];
	char line[MAXPGPATH];
	bool known = false;
	bool restored = false;
	FILE *file;

	TLHistoryFilePath(path, (TimeLineID) timeline);
	file = AllocateFile(path, "r");
	if (file == NULL)
		return true;
	while (fgets(line, sizeof(line), file) != NULL)
	{
		unsigned int parent;

		if (line[0] == '\n' || line[0] == '#')
			continue;
		if (sscanf(line, "%u", &parent) != 1)
			restored = true;
		else if (parent >= (unsigned int) since)
		{
			known = true;
			restored |= strstr(line, NO_TARGET) == NULL;
		}
	}
	FreeFile(file);
	return restored || !known;
}
