/*
 * store_log.c
 *		The log: what is flushed and released, what a crash takes back and a standby replays, copies.
 */
#include "store_private.h"

/* Append both images of a row to the log. */
void
store_log_change(Store *store, int table, const Row *row)
{
	size_t size = store->tables[table].size;
	Change *change;

	if (store->n_changes == store->change_space)
	{
		store->change_space = Max(256, store->change_space * 2);
		store->changes = pg_realloc(store->changes, store->change_space * sizeof(Change));
	}
	if (store->n_bytes + 2 * size > store->byte_space)
	{
		store->byte_space = Max(32768, store->byte_space * 2);
		store->bytes = pg_realloc(store->bytes, store->byte_space);
	}
	change = &store->changes[store->n_changes++];
	change->lsn = store->last_lsn;
	change->table = table;
	change->key = row->key;
	change->existed = row->exists;
	change->exists = row->pending_exists;
	change->images = store->n_bytes;
	memcpy(store->bytes + store->n_bytes, row->data, 2 * size);
	store->n_bytes += 2 * size;
}

int64
store_last_lsn(const Store *store)
{
	return store->last_lsn;
}

int64
store_flushed(const Store *store)
{
	return store->flushed;
}

/* Forget the log when nobody can need any of it. */
static void
trim_log(Store *store)
{
	if (store->flushed == store->last_lsn &&
		(store->standby == NULL || store->standby_position == store->last_lsn))
	{
		store->n_changes = 0;
		store->n_bytes = 0;
	}
}

void
store_flush(Store *store)
{
	if (store->full)
		return;
	store->flushed = store->last_lsn;
	trim_log(store);
}

void
store_set_gate(Store *store, StoreGate gate)
{
	store->gate = gate;
}

bool
store_released(const Store *store, int64 lsn)
{
	if (lsn > store->flushed)
		return false;
	return store->gate == STORE_GATE_LOCAL || lsn <= store->standby_position;
}

int64
store_release_position(const Store *store)
{
	if (store->gate == STORE_GATE_LOCAL)
		return store->flushed;
	return Min(store->flushed, store->standby_position);
}

/* Take back all commits above a position, newest first; log is whose log it is. */
static void
undo_commits(Store *store, const Store *log, int64 upto)
{
	for (int i = log->n_changes - 1; i >= 0 && log->changes[i].lsn > upto; i--)
	{
		const Change *change = &log->changes[i];

		store_put_image(store, change->table, &change->key, change->existed,
						log->bytes + change->images, 0);
	}
}

void
store_crash(Store *store)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &store->open)
		store_abort(dlist_container(StoreTransaction, node, iter.cur));
	undo_commits(store, store, store->flushed);
	while (store->n_changes > 0 && store->changes[store->n_changes - 1].lsn > store->flushed)
	{
		store->n_changes--;
		store->n_bytes = store->changes[store->n_changes].images;
	}
	store->last_lsn = store->flushed;
	trim_log(store);
}

void
store_set_full(Store *store, bool full)
{
	store->full = full;
}

bool
store_full(const Store *store)
{
	return store->full;
}

Store *
store_copy(const Store *store)
{
	Store *copy = store_create();

	for (int i = 0; i < STORE_MAX_TABLES; i++)
	{
		const Table *table = &store->tables[i];

		if (table->size == 0)
			continue;
		store_define(copy, i, table->name, table->size);
		for (int j = table->first; j < table->end; j++)
		{
			const Row *row = table->rows[j];

			if (row->exists)
				store_put_image(copy, i, &row->key, true, row->data, 0);
		}
	}
	undo_commits(copy, store, store->flushed);
	copy->next_xid = store->next_xid;
	copy->last_lsn = store->flushed;
	copy->flushed = store->flushed;
	return copy;
}

Store *
store_standby(Store *primary)
{
	Store *standby = store_copy(primary);

	Assert(primary->standby == NULL);
	primary->standby = standby;
	primary->standby_position = primary->flushed;
	standby->primary = primary;
	return standby;
}

void
store_replay(Store *standby, int64 upto)
{
	Store *primary = standby->primary;

	if (primary == NULL)
		return;
	upto = Min(upto, primary->flushed);
	for (int i = 0; i < primary->n_changes && primary->changes[i].lsn <= upto; i++)
	{
		const Change *change = &primary->changes[i];

		if (change->lsn <= standby->flushed)
			continue;
		store_put_image(standby, change->table, &change->key, change->exists,
						primary->bytes + change->images + standby->tables[change->table].size, 0);
	}
	if (upto > standby->flushed)
	{
		standby->flushed = upto;
		standby->last_lsn = upto;
		primary->standby_position = upto;
	}
	standby->next_xid = Max(standby->next_xid, primary->next_xid);
	trim_log(primary);
}

int64
store_replayed(const Store *standby)
{
	return standby->flushed;
}

/* The old primary keeps its gate: nothing that it commits from now on is released. */
void
store_promote(Store *standby)
{
	if (standby->primary == NULL)
		return;
	standby->primary->standby = NULL;
	standby->primary = NULL;
}
