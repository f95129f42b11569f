/*
 * sql/view/worker_owners.h
 *		The owners of the types that a region worker runs, as people see it.
 */
#pragma once

#include "shared/shmem.h"

/* Names of the roles whose types the worker runs, a comma between two of them; ""; *count: how many. palloc'd. */
extern char *shard_worker_owners(const ShardDatabase *db, int worker, int *count);

/* Owners whose types wait for a region worker, in the same form; "": none. */
extern char *shard_worker_waiting_owners(const ShardDatabase *db);
