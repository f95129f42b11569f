/*
 * copies_apply.c
 *		Rows of records in mode copies; a backup's worker applies what is released, and forgets records that are applied (Q10).
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})
#define APPLY_TURNS 12 /* in a transaction, at most */

/* Outputs to a shard that are done up to a number, as a record says. */
static void
forget_outputs(StoreTransaction *tx, const Store *store, int32 shard, const ShardTurnDone *done)
{
	StoreKey key = KEY(shard, 0);
	const UndoneRow *row;

	while ((row = store_at_or_next(store, tx, T_UNDONE, &key)) != NULL && key.k[0] == shard &&
		   key.k[1] <= done->oseq)
	{
		if (row->type_id == done->type_id && row->shard == done->shard)
			store_remove(tx, T_UNDONE, key);
		key.k[3]++;
	}
}

/* A record as a node has it. */
bool
copies_row_record(const TurnRow *row, ShardTurnRecord *record)
{
	ShardReader reader = {row->bytes, row->bytes + row->length, false};
	ShardTurnFault fault;

	return shard_turn_record_next(&reader, record, &fault);
}

bool
copies_read_turn(const Store *store, const StoreTransaction *tx, int32 shard, int64 turn,
				 ShardTurnRecord *record)
{
	const TurnRow *row = store_get(store, tx, T_TURN, KEY(shard, turn));

	return row != NULL && copies_row_record(row, record);
}

/* As it is shipped. */
void
copies_store_record(StoreTransaction *tx, int32 shard, const ShardTurnRecord *record)
{
	StringInfoData bytes;
	TurnRow row;

	initStringInfo(&bytes);
	shard_turn_record_ship(&bytes, record);
	memset(&row, 0, sizeof(row));
	row.length = bytes.len;
	row.shipped = record->shipped_len;
	memcpy(row.bytes, bytes.data, Min(bytes.len, COPIES_ROW));
	pfree(bytes.data);
	store_put(tx, T_TURN, KEY(shard, record->turn), &row);
}

/* What a record says goes to the tables. Its bytes must not be in the table that is written here. */
void
copies_apply_record(StoreTransaction *tx, const Store *store, const ShardTurnRecord *record)
{
	ShardReader sections = record->sections;
	ShardReader items;
	int64 oseq = record->first_oseq;
	int32 kind;
	bool mandatory;

	while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
	{
		ShardTurnImage image;
		ShardTurnOutput output;
		ShardTurnDone done;
		ShardStamp mark;

		while (kind == SHARD_TURN_MARKS && shard_turn_get_mark(&items, &mark))
			store_put(tx, T_MARK, KEY(record->shard, mark.kind, mark.a, mark.b), &mark.seq);
		while (kind == SHARD_TURN_IMAGES && shard_turn_get_image(&items, &image))
		{
			char entity[24];
			int64 id;

			strlcpy(entity, image.entity, Min((size_t) image.entity_len + 1, sizeof(entity)));
			memcpy(&id, image.row, sizeof(id));
			store_put(tx, T_STATE, KEY(record->shard, strtoll(entity, NULL, 10)), &id);
		}
		while (kind == SHARD_TURN_OUTPUTS && shard_turn_get_output(&items, &output))
		{
			UndoneRow undone = {output.type_id, output.shard, 0, record->turn};

			memcpy(&undone.id, output.payload, sizeof(undone.id));
#ifndef SHARD_MUTANT_COPY_FORGETS_OUTPUTS
			store_put(tx, T_UNDONE, KEY(record->shard, oseq), &undone);
#endif
			oseq++;
		}
		while (kind == SHARD_TURN_ODONE && shard_turn_get_done(&items, &done))
			forget_outputs(tx, store, record->shard, &done);
	}
}

/*
 * Some turns: their rows, and how far that is, in one transaction. No call is between judging and its commit. Rows that were taken
 * from a home show some turns already.
 */
static bool
apply(CopiesWorld *world, Node *backup, int32 shard)
{
	CopyRow twin = backup->copies[shard];
	int64 most = twin.copy.applied + 1 + copies_random(world, APPLY_TURNS);
	int64 upto = shard_replica_may_apply(&twin.copy);
	StoreTransaction *tx;

#ifdef SHARD_MUTANT_APPLIED_BEFORE_RELEASED
	upto = twin.copy.end.turn;
#endif
	upto = Min(upto, most);
	if (upto <= twin.copy.applied)
		return false;
	tx = store_begin(backup->store);
	for (int64 turn = Max(twin.copy.applied, twin.shows) + 1; turn <= upto; turn++)
	{
		ShardTurnRecord record;

		if (copies_read_turn(backup->store, tx, shard, turn, &record))
			copies_apply_record(tx, backup->store, &record);
	}
#ifdef SHARD_MUTANT_APPLIED_BEFORE_RELEASED
	twin.copy.applied = upto;
#else
	shard_replica_applied(&twin.copy, upto);
#endif
	store_put(tx, T_COPY, KEY(shard), &twin);
	store_commit(tx);
	backup->copies[shard] = twin;
	copies_check_copy(world, backup, shard);
	copies_check_applied(world, backup, shard);
	return true;
}

/* Records that are applied go, but for the newest one (Q5). */
static bool
forget(Node *backup, int32 shard)
{
	const ShardReplicaCopy *copy = &backup->copies[shard].copy;
	StoreTransaction *tx = store_begin(backup->store);
	StoreKey key = KEY(shard, 0);

	while (store_at_or_next(backup->store, tx, T_TURN, &key) != NULL && key.k[0] == shard &&
		   key.k[1] <= copy->applied && key.k[1] < copy->end.turn)
	{
		store_remove(tx, T_TURN, key);
		key.k[3]++;
	}
	store_commit(tx);
	return true;
}

bool
copies_backup_apply(CopiesWorld *world, Node *backup)
{
	int32 shard = (int32) copies_random(world, COPIES_SHARDS);

	if (backup->lock >= 0 || backup->own.own.state != SHARD_TAKEOVER_BACKUP)
		return false;
	if (copies_percent(world, 20))
		return forget(backup, shard);
	return apply(world, backup, shard);
}
