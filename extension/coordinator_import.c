/*
 * coordinator_import.c
 *		Copying shards to this node (M4), over connections of the coordinator worker's own.
 */
#include "postgres.h"

#include "coordinator_private.h"

#include "compat.h"

void
shard_coordinator_import(const ShardAction *action)
{
	ShardShardRef shard = action->shard;

	shard_coordinator_event(&(ShardNodeEvent){.kind = SHARD_EVENT_IMPORT_FAILED,
											  .n_shards = 1,
											  .shards = &shard,
											  .text = "moving shards is not supported yet"});
}

bool
shard_coordinator_import_run(void)
{
	return false;
}

void
shard_coordinator_import_forget(void)
{
}
