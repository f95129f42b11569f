/*
 * hook/hook.h
 *		Hooks of the extension in the server: for databases and tables that come and go, and for lines of the log.
 */
#pragma once

/* ---- database_hook.c: DROP, ALTER and CREATE DATABASE while our workers run ---- */

/* Chains the utility hook; from _PG_init. */
extern void shard_database_hook_init(void);

/* ---- drop_hook.c: What is said when a database that is a member of a cluster is dropped, or its extension ---- */

/* Chains the hook; from _PG_init. */
extern void shard_drop_hook_init(void);

/* Warns if the database is a member of a cluster with others. */
extern void shard_drop_hook_warn(Oid dboid, const char *name);

/* ---- table_hook.c: SQL commands on the extension's own tables ---- */

/* Chains the hook; from _PG_init. */
extern void shard_table_hook_init(void);

/* ---- install.c: CREATE EXTENSION, seen from the server: a database wants workers ---- */

/* Registers the transaction callback; from _PG_init. */
extern void shard_install_init(void);

/* ---- log_hook.c: What of statements that have addresses in them reaches the server's log: how they begin ---- */

/* Chains the hook; from _PG_init. */
extern void shard_log_hook_init(void);

/* ---- log_call.c: Where a statement gives an address ---- */

/*
 * Whether a statement, which need not be well-formed, calls a function with an address or sets one; also within its
 * literals, which may be code. A word in a comment, or a name alone, is no call. *shown: the number of bytes at the
 * beginning that come before any literal, comment or call.
 */
extern bool shard_log_call_in_statement(const char *statement, size_t *shown);

/* The same for a text that has statements in it, whatever their quotes. */
extern bool shard_log_call_in_text(const char *text);
