/*
 * registry/registry_private.h
 *		What the registry's files share: rows of shard.type, and search_paths of types.
 */
#pragma once

#include "access/htup.h"
#include "access/tupdesc.h"

#include "registry/routine.h"
#include "registry/registry.h"

/* ---- registry_row.c: A row of table shard.type as a ShardType ---- */

/*
 * Reads a row into *type, which is all zeroes. Strings belong to the current
 * memory context. bound receives the OIDs of the row's functions as they were
 * when named: the handler's, then those of the extractors (InvalidOid: none).
 */
extern void shard_registry_row_read(HeapTuple tuple, TupleDesc desc, ShardType *type,
									Oid bound[1 + SHARD_EXTRACTORS]);

/* ---- registry_path.c: The search_paths of the types that this process knows, each once ---- */

/*
 * The one copy of a path, for another type that has it, and in *number what tells it from any other one that this
 * process ever had: an address may be another path's later. Lives until as many types have given it back.
 */
extern const char *shard_registry_path_take(const char *path, uint64 *number);
extern void shard_registry_path_give_back(const char *path);
