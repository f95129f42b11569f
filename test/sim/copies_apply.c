/*
 * copies_apply.c
 *		A backup's worker in mode copies: it applies what is released, and forgets records that are applied (Q10).
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

static void
apply_record(StoreTransaction *tx, const Store *store, const ShardTurnRecord *record)
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
			UndoneRow undone = {output.type_id, output.shard, 0};

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

/* Some turns: their rows, and how far that is, in one transaction. No call is between judging and its commit. */
static bool
apply(CopiesWorld *world, BackupNode *backup, int32 shard)
{
	ShardReplicaCopy twin = backup->copies[shard];
	int64 most = twin.applied + 1 + copies_random(world, APPLY_TURNS);
	int64 upto = shard_replica_may_apply(&twin);
	StoreTransaction *tx;

#ifdef SHARD_MUTANT_APPLIED_BEFORE_RELEASED
	upto = twin.end.turn;
#endif
	upto = Min(upto, most);
	if (upto <= twin.applied)
		return false;
	tx = store_begin(backup->store);
	for (int64 turn = twin.applied + 1; turn <= upto; turn++)
	{
		TurnRow row = *(const TurnRow *) store_get(backup->store, tx, T_TURN, KEY(shard, turn));
		ShardReader reader = {row.bytes, row.bytes + row.length, false};
		ShardTurnRecord record;
		ShardTurnFault fault;

		if (shard_turn_record_next(&reader, &record, &fault))
			apply_record(tx, backup->store, &record);
	}
#ifdef SHARD_MUTANT_APPLIED_BEFORE_RELEASED
	twin.applied = upto;
#else
	shard_replica_applied(&twin, upto);
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
forget(BackupNode *backup, int32 shard)
{
	const ShardReplicaCopy *copy = &backup->copies[shard];
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
copies_backup_apply(CopiesWorld *world, BackupNode *backup)
{
	int32 shard = (int32) copies_random(world, COPIES_SHARDS);

	if (backup->lock >= 0)
		return false;
	if (copies_percent(world, 20))
		return forget(backup, shard);
	return apply(world, backup, shard);
}
