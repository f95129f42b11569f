/*
 * registry/registry_row.h
 *		A row of table shard.type as a ShardType.
 */
#pragma once

#include "access/htup.h"
#include "access/tupdesc.h"

#include "registry/routine.h"
#include "registry/registry.h"

/*
 * Reads a row into *type, which is all zeroes. Strings belong to the current
 * memory context. bound receives the OIDs of the row's functions as they were
 * when named: the handler's, then those of the extractors (InvalidOid: none).
 */
extern void shard_registry_row_read(HeapTuple tuple, TupleDesc desc, ShardType *type,
									Oid bound[1 + SHARD_EXTRACTORS]);
