/*
 * sql/cluster/cluster_copies.c
 *		SQL function behind view shard_replicas: the sets of shards, as far as this node has learned them.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "core/map/set.h"
#include "registry/catalog.h"
#include "registry/control_store.h"
#include "registry/security.h"
#include "shared/board.h"
#include "shared/copy_set.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_cluster_copies);

typedef struct Copies
{
	ReturnSetInfo *result;
	int32 self;
} Copies;

/* How many turns a backup here has stored and not applied (Q10). False: it is none, or its end is not known. */
static bool
unapplied(const ShardMapEntry *entry, int64 *turns)
{
	ShardCopySetKey key = {MyDatabaseId, entry->key.a, entry->key.b};
	ShardCopyEnd end;

	if (!shard_copy_end_get(&key, shard_catalog_get()->node, &end))
		return false;
	*turns = end.copy.end.turn - end.copy.applied;
	return true;
}

/* Each node of a set is a row: the home, then its backups. */
static void
put_set(const ShardMapEntry *entry, void *arg)
{
	const Copies *copies = arg;
	ReturnSetInfo *result = copies->result;
	ShardHomeRecord home;
	ShardSet set;

	if (!shard_record_get_home(entry, &home) || !shard_set_get(&home, entry->n, &set))
		return;
	for (int i = 0; i < set.n_nodes; i++)
	{
		bool is_home = shard_set_role(&set, set.nodes[i]) == SHARD_SET_HOME;
		int64 turns = 0;
		bool known = !is_home && set.nodes[i] == copies->self && unapplied(entry, &turns);
		Datum values[7] = {Int32GetDatum(entry->key.a),
						   Int32GetDatum(entry->key.b),
						   Int32GetDatum(set.nodes[i]),
						   CStringGetTextDatum(is_home ? "home" : "backup"),
						   Int32GetDatum(set.n_nodes),
						   Int32GetDatum(set.want),
						   Int64GetDatum(turns)};
		bool nulls[7] = {[6] = !known};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
}

/*
 * shard.copies() returns setof record
 */
Datum
shard_cluster_copies(PG_FUNCTION_ARGS)
{
	ShardSecurity security = {0};
	Copies copies;
	ShardBoardView view;

	InitMaterializedSRF(fcinfo, 0);
	shard_board_get(shard_shmem_database(), &view);
	copies = (Copies){(ReturnSetInfo *) fcinfo->resultinfo, view.node};
	shard_security_begin_system(&security);
	shard_control_store_learned(SHARD_MAP_HOME, put_set, &copies);
	shard_security_end(&security);
	return (Datum) 0;
}
