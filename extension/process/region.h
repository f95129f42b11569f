/*
 * process/region.h
 *		The region worker: the data plane of the lanes it owns.
 */
#pragma once

#include "postgres.h"

#include "fmgr.h"

/* Main function; argument by shard_worker_argument(). */
extern PGDLLEXPORT void ShardRegionMain(Datum argument);
