/*
 * copy/export_private.h
 *		A copy at the old home, between the call that asks for it (export.c) and the rows (export_rows.c).
 */
#pragma once

#include "lib/stringinfo.h"

#include "core/flow/copy.h"
#include "link/callee.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "registry/statement.h"

typedef struct ShardExport
{
	ShardCallee callee;
	ShardExportCall call;
	const ShardType *type;
	ShardSecurity security;
	bool locked;		  /* a lock of another transaction keeps the state table from being read */
	XLogRecPtr sealed_at; /* the seal is in force when the gate has released this */
	StringInfoData sections; /* of the answer */
	StringInfoData rows;	 /* of the chunk that is being made */
	int32 n_rows;
	StringInfoData after; /* key of its last row */
	int left;			  /* bytes that the answer has room for */
} ShardExport;

/* Whether there are states: of a type that was dropped here, or is a proxy, there is no table (D28). */
extern bool shard_export_has_states(const ShardExport *export);

/* Runs one of our statements for the shard, as the system; its first two arguments are the shard. */
extern void
shard_export_run(ShardExport *export, ShardStatement *statement, ShardArguments *arguments);
extern void shard_export_add_shard(const ShardExport *export, ShardArguments *arguments);

/*
 * Appends rows of a part behind the given key to the answer; true: there are no more.
 */
extern bool
shard_export_put_part(ShardExport *export, int32 part, const char *after, int after_len);
