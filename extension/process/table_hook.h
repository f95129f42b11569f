/*
 * process/table_hook.h
 *		SQL commands on the extension's own tables.
 */
#pragma once

/* Chains the hook; from _PG_init. */
extern void shard_table_hook_init(void);
