/*
 * sql/cluster/cluster_copies.c
 *		SQL function behind view shard_replicas: the sets of shards, as far as this node has learned them.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"

#include "core/map/set.h"
#include "registry/control_store.h"
#include "registry/security.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_cluster_copies);

/* Each node of a set is a row: the home, then its backups. */
static void
put_set(const ShardMapEntry *entry, void *arg)
{
	ReturnSetInfo *result = arg;
	ShardHomeRecord home;
	ShardSet set;

	if (!shard_record_get_home(entry, &home) || !shard_set_get(&home, entry->n, &set))
		return;
	for (int i = 0; i < set.n_nodes; i++)
	{
		bool is_home = shard_set_role(&set, set.nodes[i]) == SHARD_SET_HOME;
		Datum values[6] = {Int32GetDatum(entry->key.a),
						   Int32GetDatum(entry->key.b),
						   Int32GetDatum(set.nodes[i]),
						   CStringGetTextDatum(is_home ? "home" : "backup"),
						   Int32GetDatum(set.n_nodes),
						   Int32GetDatum(set.want)};
		bool nulls[6] = {false};

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

	InitMaterializedSRF(fcinfo, 0);
	shard_security_begin_system(&security);
	shard_control_store_learned(SHARD_MAP_HOME, put_set, fcinfo->resultinfo);
	shard_security_end(&security);
	return (Datum) 0;
}
