/*
 * store.h
 *		Model of one PostgreSQL database: tables of small rows, transactions, write-ahead log.
 *
 * What matters of the original is here: a commit is visible at once and durable later; a crash loses
 * a suffix of the commits, of all tables together; rows of open transactions exist but are nobody
 * else's to read; a copy of the files is a database of its own; a standby replays the log with lag;
 * the disk may be full. Row conflicts do not wait: the caller's locks prevent them, and a write that
 * meets another transaction's uncommitted row fails as if by lock_timeout.
 *
 * A row has a key of four numbers, by which its table is ordered, and a value of the table's size.
 */
#pragma once

#include "postgres_fe.h"

#define STORE_MAX_TABLES 24

typedef struct Store Store;
typedef struct StoreTransaction StoreTransaction;

typedef struct StoreKey
{
	int64 k[4];
} StoreKey;

typedef enum StoreGate
{
	STORE_GATE_LOCAL = 0,
	STORE_GATE_STANDBY = 1
} StoreGate;

extern Store *store_create(void);
extern void store_destroy(Store *store);

/* Tables are numbered by the caller; a table is made by its first definition, and is never dropped. */
extern void store_define(Store *store, int table, const char *name, size_t value_size);

/*
 * Transactions. Ids rise for ever, over crashes too. A commit is visible at once; its position in the
 * log is the result, 0 if it wrote nothing. False from a write: disk full or somebody else's
 * uncommitted row; the caller aborts.
 */
extern StoreTransaction *store_begin(Store *store);
extern int64 store_xid(const StoreTransaction *transaction);
extern int64 store_commit(StoreTransaction *transaction);
extern void store_abort(StoreTransaction *transaction);
extern bool store_put(StoreTransaction *transaction, int table, StoreKey key, const void *value);
extern bool store_remove(StoreTransaction *transaction, int table, StoreKey key);

/*
 * Reading as a transaction sees it (NULL: committed rows only); pointers are valid until the next
 * write to that table. store_next: the first row with a key above the given one, *key gets its key.
 * store_at_or_next: the same, at or above.
 */
extern const void *
store_get(const Store *store, const StoreTransaction *transaction, int table, StoreKey key);
extern const void *
store_next(const Store *store, const StoreTransaction *transaction, int table, StoreKey *key);
extern const void *
store_at_or_next(const Store *store, const StoreTransaction *transaction, int table, StoreKey *key);
extern int store_count(const Store *store, int table);

/*
 * The same for readers of a log that must know of rows in the making: rows that open transactions
 * inserted are returned, too; *open says so.
 */
extern const void *store_scan(const Store *store, int table, StoreKey *key, bool *open);

/* Position of the commit that wrote the row that this is the value of; 0: older than memory. */
extern int64 store_row_lsn(const void *value);

/* Is that transaction still open? */
extern bool store_in_progress(const Store *store, int64 xid);
extern int64 store_next_xid(const Store *store);

/* Ids of the open transactions, ascending; returns their number, at most space. */
extern int store_open_xids(const Store *store, int64 *xids, int space);

/* The log. Everything up to the flushed position survives a crash. */
extern int64 store_last_lsn(const Store *store);
extern int64 store_flushed(const Store *store);
extern void store_flush(Store *store); /* nothing happens while the disk is full */

/* The release gate (G1): local flush, or what the standby has flushed, too. */
extern void store_set_gate(Store *store, StoreGate gate);
extern bool store_released(const Store *store, int64 lsn);
extern int64 store_release_position(const Store *store);

/* Open transactions are aborted, commits above the flushed position never were. */
extern void store_crash(Store *store);

/* Full: every write and flush fails from now on. */
extern void store_set_full(Store *store, bool full);
extern bool store_full(const Store *store);

/* A copy of the files as they are on disk now: flushed commits only. No standby, gate local. */
extern Store *store_copy(const Store *store);

/*
 * A standby: a copy that replays. store_replay lets it take (and flush) the primary's flushed log up
 * to a position. Promotion cuts the tie: afterwards both are databases of their own.
 */
extern Store *store_standby(Store *primary);
extern void store_replay(Store *standby, int64 upto);
extern int64 store_replayed(const Store *standby);
extern void store_promote(Store *standby);
