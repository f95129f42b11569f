/*
 * entity/replica_rows_clear.c
 *		Rows that a backup has of a shard in our own tables, and that it is not to have any more (Q10).
 *
 * Comes from: replica_apply.c, for a copy that begins; routing, in the turn that meets the fact by which the shard begins anew,
 * or by which this node has no copy of it any more; operators' functions, which drop a type, or reset what is known of a
 * cluster.
 *
 * If the process dies right here: each is part of its caller's transaction.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"

#include "entity/replica_rows.h"
#include "registry/statement.h"

#include "base/compat.h"

#define OF_SHARD " WHERE type_id OPERATOR(pg_catalog.=) $1 AND shard OPERATOR(pg_catalog.=) $2"
#define OF_BACKUPS \
	" x USING shard.backup_here b WHERE x.type_id OPERATOR(pg_catalog.=) b.type_id" \
	" AND x.shard OPERATOR(pg_catalog.=) b.shard" \
	" AND ($1 OPERATOR(pg_catalog.=) 0 OR b.type_id OPERATOR(pg_catalog.=) $1)"

#define CLEAR(table) \
	{ \
		"DELETE FROM shard." table OF_SHARD, 2, \
		{ \
			INT4OID, INT4OID \
		} \
	}
#define DROP(table) \
	{ \
		"DELETE FROM shard." table OF_BACKUPS, 1, \
		{ \
			INT4OID \
		} \
	}

static ShardStatement clear[] = {CLEAR("held"),	   CLEAR("ordered"),	 CLEAR("timer"),
								 CLEAR("history"), CLEAR("shard_input"), CLEAR("output"),
								 CLEAR("letter")};

static ShardStatement drop[] = {DROP("held"),	 DROP("ordered"),	  DROP("timer"),
								DROP("history"), DROP("shard_input"), DROP("output"),
								DROP("letter")};

static ShardStatement select_older = {"SELECT FROM shard.copy" OF_SHARD
									  " AND lost OPERATOR(pg_catalog.<) $3",
									  3,
									  {INT4OID, INT4OID, INT4OID}};

void
shard_replica_rows_clear(int32 type_id, int32 shard)
{
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(shard), false);
	for (int i = 0; i < (int) lengthof(clear); i++)
		shard_statement_change(&clear[i], &arguments, SPI_OK_DELETE);
}

void
shard_replica_rows_give_up(int32 type_id, int32 shard, int32 lost)
{
	ShardArguments arguments = {0};
	bool older;

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(shard), false);
	shard_statement_add(&arguments, Int32GetDatum(lost), false);
	SPI_connect();
	shard_statement_run(&select_older, &arguments, SPI_OK_SELECT);
	older = SPI_processed > 0;
	SPI_finish();
	if (older)
		shard_replica_rows_clear(type_id, shard);
}

void
shard_replica_rows_drop(int32 type_id)
{
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	for (int i = 0; i < (int) lengthof(drop); i++)
		shard_statement_change(&drop[i], &arguments, SPI_OK_DELETE);
}
