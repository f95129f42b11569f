/*
 * process/drop_hook.h
 *		What is said when a database that is a member of a cluster is dropped, or its extension.
 */
#pragma once

/* From _PG_init. */
extern void shard_drop_hook_init(void);

/* Warns if the database is a member of a cluster with others. */
extern void shard_drop_hook_warn(Oid dboid, const char *name);
