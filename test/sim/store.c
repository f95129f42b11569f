/*
 * store.c
 *		Tables of small rows, and transactions that write and read them.
 */
#include "store_private.h"

Store *
store_create(void)
{
	Store *store = pg_malloc0(sizeof(Store));

	dlist_init(&store->open);
	dlist_init(&store->idle);
	store->next_xid = 1;
	return store;
}

void
store_define(Store *store, int table, const char *name, size_t value_size)
{
	store->tables[table].name = name;
	store->tables[table].size = MAXALIGN(value_size);
}

static void
destroy_transaction(StoreTransaction *transaction)
{
	free(transaction->touched);
	free(transaction);
}

void
store_destroy(Store *store)
{
	dlist_mutable_iter iter;

	if (store->primary != NULL)
		store->primary->standby = NULL;
	if (store->standby != NULL)
		store->standby->primary = NULL;
	for (int i = 0; i < STORE_MAX_TABLES; i++)
	{
		Table *table = &store->tables[i];

		for (int j = table->first; j < table->end; j++)
			free(table->rows[j]);
		while (table->unused != NULL)
		{
			Row *row = table->unused;

			table->unused = (Row *) row->writer;
			free(row);
		}
		free(table->rows);
	}
	dlist_foreach_modify (iter, &store->open)
		destroy_transaction(dlist_container(StoreTransaction, node, iter.cur));
	dlist_foreach_modify (iter, &store->idle)
		destroy_transaction(dlist_container(StoreTransaction, node, iter.cur));
	free(store->changes);
	free(store->bytes);
	free(store);
}

/* Order of keys. */
static inline int
compare_keys(const StoreKey *a, const StoreKey *b)
{
	if (a->k[0] != b->k[0])
		return a->k[0] < b->k[0] ? -1 : 1;
	for (int i = 1; i < 4; i++)
	{
		if (a->k[i] != b->k[i])
			return a->k[i] < b->k[i] ? -1 : 1;
	}
	return 0;
}

/* Index of the first row at or above a key. */
static int
find_place(const Table *table, const StoreKey *key)
{
	int low = table->first;
	int high = table->end;

	if (high == low || compare_keys(&table->rows[high - 1]->key, key) < 0)
		return high;
	if (compare_keys(key, &table->rows[low]->key) <= 0)
		return low;
	while (low < high)
	{
		int middle = (low + high) / 2;

		if (compare_keys(&table->rows[middle]->key, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static Row *
find_row(const Table *table, const StoreKey *key)
{
	int place = find_place(table, key);

	if (place < table->end && compare_keys(&table->rows[place]->key, key) == 0)
		return table->rows[place];
	return NULL;
}

static Row *
insert_row(Table *table, const StoreKey *key)
{
	Row *row = table->unused;
	int place;

	if (row != NULL)
		table->unused = (Row *) row->writer;
	else
		row = pg_malloc(offsetof(Row, data) + 2 * table->size);
	memset(row, 0, offsetof(Row, data));
	row->key = *key;

	if (table->end == table->space)
	{
		if (table->first > table->space / 2)
		{
			memmove(table->rows, table->rows + table->first,
					(table->end - table->first) * sizeof(Row *));
			table->end -= table->first;
			table->first = 0;
		}
		else
		{
			table->space = Max(64, table->space * 2);
			table->rows = pg_realloc(table->rows, table->space * sizeof(Row *));
		}
	}
	place = find_place(table, key);
	memmove(table->rows + place + 1, table->rows + place, (table->end - place) * sizeof(Row *));
	table->rows[place] = row;
	table->end++;
	return row;
}

static void
delete_row(Table *table, Row *row)
{
	int place = find_place(table, &row->key);

	if (place == table->first)
		table->first++;
	else
	{
		table->end--;
		memmove(table->rows + place, table->rows + place + 1, (table->end - place) * sizeof(Row *));
	}
	row->writer = (StoreTransaction *) table->unused;
	table->unused = row;
}

/* Put an image into a table, as if it had always been there. */
void
store_put_image(Store *store, int table, const StoreKey *key, bool exists, const char *image,
				int64 lsn)
{
	Table *t = &store->tables[table];
	Row *row = find_row(t, key);

	if (!exists)
	{
		if (row != NULL)
			delete_row(t, row);
		return;
	}
	if (row == NULL)
		row = insert_row(t, key);
	row->exists = true;
	row->lsn = lsn;
	memcpy(row->data, image, t->size);
}

StoreTransaction *
store_begin(Store *store)
{
	StoreTransaction *transaction;

	if (dlist_is_empty(&store->idle))
		transaction = pg_malloc0(sizeof(StoreTransaction));
	else
		transaction = dlist_container(StoreTransaction, node, dlist_pop_head_node(&store->idle));
	transaction->store = store;
	transaction->xid = store->next_xid++;
	transaction->n_touched = 0;
	dlist_push_tail(&store->open, &transaction->node);
	return transaction;
}

int64
store_xid(const StoreTransaction *transaction)
{
	return transaction->xid;
}

/* The row to write to, NULL if somebody else is writing it. */
static Row *
touch_row(StoreTransaction *transaction, int table, const StoreKey *key)
{
	Table *t = &transaction->store->tables[table];
	Row *row = find_row(t, key);

	if (row == NULL)
		row = insert_row(t, key);
	if (row->writer == transaction)
		return row;
	if (row->writer != NULL)
		return NULL;
	row->writer = transaction;
	if (transaction->n_touched == transaction->space)
	{
		transaction->space = Max(16, transaction->space * 2);
		transaction->touched =
			pg_realloc(transaction->touched, transaction->space * sizeof(Touched));
	}
	transaction->touched[transaction->n_touched].table = table;
	transaction->touched[transaction->n_touched].row = row;
	transaction->n_touched++;
	return row;
}

bool
store_put(StoreTransaction *transaction, int table, StoreKey key, const void *value)
{
	Row *row;
	size_t size = transaction->store->tables[table].size;

	Assert(size > 0);
	if (transaction->store->full)
		return false;
	row = touch_row(transaction, table, &key);
	if (row == NULL)
		return false;
	row->pending_exists = true;
	memcpy(row->data + size, value, size);
	return true;
}

bool
store_remove(StoreTransaction *transaction, int table, StoreKey key)
{
	Row *row;

	if (transaction->store->full)
		return false;
	if (find_row(&transaction->store->tables[table], &key) == NULL)
		return true;
	row = touch_row(transaction, table, &key);
	if (row == NULL)
		return false;
	row->pending_exists = false;
	return true;
}

static void
end_transaction(StoreTransaction *transaction)
{
	dlist_delete(&transaction->node);
	dlist_push_head(&transaction->store->idle, &transaction->node);
}

int64
store_commit(StoreTransaction *transaction)
{
	Store *store = transaction->store;
	int64 lsn = 0;

	if (transaction->n_touched > 0)
		lsn = ++store->last_lsn;
	for (int i = 0; i < transaction->n_touched; i++)
	{
		int table = transaction->touched[i].table;
		size_t size = store->tables[table].size;
		Row *row = transaction->touched[i].row;

		if (row->exists || row->pending_exists)
			store_log_change(store, table, row);
		row->writer = NULL;
		row->lsn = lsn;
		row->exists = row->pending_exists;
		if (row->exists)
			memcpy(row->data, row->data + size, size);
		else
			delete_row(&store->tables[table], row);
	}
	end_transaction(transaction);
	return lsn;
}

void
store_abort(StoreTransaction *transaction)
{
	Store *store = transaction->store;

	for (int i = 0; i < transaction->n_touched; i++)
	{
		Row *row = transaction->touched[i].row;

		row->writer = NULL;
		if (!row->exists)
			delete_row(&store->tables[transaction->touched[i].table], row);
	}
	end_transaction(transaction);
}

/* What a reader sees of a row. */
static const void *
visible_value(const Table *table, const Row *row, const StoreTransaction *reader)
{
	if (reader != NULL && row->writer == reader)
		return row->pending_exists ? row->data + table->size : NULL;
	return row->exists ? row->data : NULL;
}

const void *
store_get(const Store *store, const StoreTransaction *transaction, int table, StoreKey key)
{
	const Table *t = &store->tables[table];
	const Row *row = find_row(t, &key);

	return row != NULL ? visible_value(t, row, transaction) : NULL;
}

const void *
store_at_or_next(const Store *store, const StoreTransaction *transaction, int table, StoreKey *key)
{
	const Table *t = &store->tables[table];

	for (int i = find_place(t, key); i < t->end; i++)
	{
		const void *value = visible_value(t, t->rows[i], transaction);

		if (value != NULL)
		{
			*key = t->rows[i]->key;
			return value;
		}
	}
	return NULL;
}

const void *
store_next(const Store *store, const StoreTransaction *transaction, int table, StoreKey *key)
{
	key->k[3]++;
	return store_at_or_next(store, transaction, table, key);
}

const void *
store_scan(const Store *store, int table, StoreKey *key, bool *open)
{
	const Table *t = &store->tables[table];

	for (int i = find_place(t, key); i < t->end; i++)
	{
		const Row *row = t->rows[i];

		*open = !row->exists;
		if (row->exists || row->pending_exists)
		{
			*key = row->key;
			return row->exists ? row->data : row->data + t->size;
		}
	}
	return NULL;
}

int64
store_row_lsn(const void *value)
{
	const Row *row = (const Row *) ((const char *) value - offsetof(Row, data));

	return row->lsn;
}

int
store_count(const Store *store, int table)
{
	return store->tables[table].end - store->tables[table].first;
}

bool
store_in_progress(const Store *store, int64 xid)
{
	dlist_iter iter;

	dlist_foreach (iter, &unconstify(Store *, store)->open)
	{
		if (dlist_container(StoreTransaction, node, iter.cur)->xid == xid)
			return true;
	}
	return false;
}

int64
store_next_xid(const Store *store)
{
	return store->next_xid;
}

int
store_open_xids(const Store *store, int64 *xids, int space)
{
	dlist_iter iter;
	int count = 0;

	dlist_foreach (iter, &unconstify(Store *, store)->open)
	{
		if (count < space)
			xids[count++] = dlist_container(StoreTransaction, node, iter.cur)->xid;
	}
	return count;
}
