/*
 * store_private.h
 *		What the files of the store share.
 *
 * A table is an array of rows, ordered by key. A row has a committed value and, while a transaction
 * that wrote it is open, a pending one. A commit makes pending values the committed ones and appends
 * both images to the log, from which a crash undoes and a standby replays; what is flushed and
 * replayed is forgotten.
 */
#pragma once

#include "store.h"

#include "lib/ilist.h"

typedef struct Row
{
	StoreKey key;
	bool exists; /* has a committed value */
	bool pending_exists;
	StoreTransaction *writer; /* NULL: no pending value */
	int64 lsn;
	char data[FLEXIBLE_ARRAY_MEMBER]; /* committed value, pending value */
} Row;

typedef struct Table
{
	const char *name;
	size_t size; /* of a value, rounded up */
	int first;	 /* rows below were removed from the front */
	int end;
	int space;
	Row **rows;
	Row *unused; /* free rows, linked by writer */
} Table;

/* One changed row of a commit; the images follow in the log's bytes. */
typedef struct Change
{
	int64 lsn;
	int table;
	StoreKey key;
	bool existed;
	bool exists;
	size_t images; /* before, after */
} Change;

typedef struct Touched
{
	int table;
	Row *row;
} Touched;

struct StoreTransaction
{
	Store *store;
	int64 xid;
	int n_touched;
	int space;
	Touched *touched;
	dlist_node node;
};

struct Store
{
	Table tables[STORE_MAX_TABLES];
	dlist_head open;
	dlist_head idle; /* transactions to be used again */
	int64 next_xid;
	int64 last_lsn;
	int64 flushed;
	bool full;
	StoreGate gate;
	int64 standby_position;
	Store *standby;
	Store *primary;

	int n_changes;
	int change_space;
	Change *changes;
	size_t n_bytes;
	size_t byte_space;
	char *bytes;
};

/* store.c: put an image into a table, as if it had always been there */
extern void store_put_image(Store *store, int table, const StoreKey *key, bool exists,
							const char *image, int64 lsn);

/* store_log.c: a row of the transaction that is being committed */
extern void store_log_change(Store *store, int table, const Row *row);
