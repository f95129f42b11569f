/*
 * node.c
 *		Who this database is: table shard.node (doc/protocol.md I2, D22).
 *
 * Rows of the log name transactions of the server that wrote them. In a copy
 * those numbers mean nothing, or something else, so a copy handles nothing.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "executor/spi.h"
#include "miscadmin.h"

#include "node.h"

#include "compat.h"

bool
shard_node_is_clear(ShardDatabase *db)
{
	bool isnull;
	bool clear = false;

	SPI_connect();
	if (SPI_execute("SELECT system_identifier, database_oid FROM shard.node", true, 1) !=
		SPI_OK_SELECT)
		elog(ERROR, "could not read shard.node");
	if (SPI_processed == 1)
	{
		HeapTuple row = SPI_tuptable->vals[0];
		TupleDesc desc = SPI_tuptable->tupdesc;
		int64 system = DatumGetInt64(SPI_getbinval(row, desc, 1, &isnull));
		Oid database = DatumGetObjectId(SPI_getbinval(row, desc, 2, &isnull));

		clear = (uint64) system == GetSystemIdentifier() && database == MyDatabaseId;
	}
	SPI_finish();
	if (!clear && !db->paused)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this database is a copy of another node and handles no messages"),
				 errdetail("shard.node names another server or database."),
				 errhint("In a copy that is to work on its own, drop and create the extension.")));
	db->paused = !clear;
	return clear;
}
