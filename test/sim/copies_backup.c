/*
 * copies_backup.c
 *		A backup of mode copies: calls judge and store records, its worker promises epochs (Q8, Q9, Q36).
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})

/* What is in shared memory, from the table; which does not say what is released beyond what is applied. */
void
copies_backup_start(BackupNode *backup)
{
	backup->up = true;
	backup->lives++;
	backup->lock = -1;
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		const ShardReplicaCopy *row = store_get(backup->store, NULL, T_COPY, KEY(shard));

		memset(&backup->copies[shard], 0, sizeof(ShardReplicaCopy));
		if (row == NULL)
			continue;
		backup->copies[shard] = *row;
		backup->copies[shard].released = row->applied;
	}
}

void
copies_backup_crash(BackupNode *backup)
{
	store_crash(backup->store);
	for (int i = 0; i < COPIES_CALLS; i++)
		free(backup->calls[i].bytes);
	memset(backup->calls, 0, sizeof(backup->calls));
	backup->up = false;
}

/* Without a backend that is free a call is lost. */
void
copies_backup_receive(BackupNode *backup, const Message *message)
{
	if (message->kind == M_FACT)
		backup->fact_epoch = Max(backup->fact_epoch, (int32) message->number);
	for (int i = 0; message->kind == M_STORE && i < COPIES_CALLS; i++)
	{
		Call *call = &backup->calls[i];

		if (call->step != CALL_FREE)
			continue;
		memset(call, 0, sizeof(*call));
		call->step = CALL_JUDGE;
		call->req = message->req;
		call->length = message->length;
		call->bytes = pg_malloc(message->length + 1);
		memcpy(call->bytes, message->bytes, message->length);
		return;
	}
}

/* Where a call reads what is stored. */
typedef struct Stored
{
	BackupNode *backup;
	StoreTransaction *tx;
	int32 shard;
} Stored;

static bool
read_turn(const Stored *stored, int64 turn, ShardTurnRecord *record)
{
	const TurnRow *row =
		store_get(stored->backup->store, stored->tx, T_TURN, KEY(stored->shard, turn));
	ShardTurnFault fault;
	ShardReader reader;

	if (row == NULL)
		return false;
	reader = (ShardReader){row->bytes, row->bytes + row->length, false};
	return shard_turn_record_next(&reader, record, &fault);
}

/* By its record, or, if that is forgotten, the one behind it. */
static bool
find_turn(void *context, int64 turn, ShardTurnPoint *point)
{
	const Stored *stored = context;
	ShardTurnRecord record;

	if (read_turn(stored, turn, &record))
		*point = shard_turn_record_point(&record);
	else if (read_turn(stored, turn + 1, &record))
		*point = shard_turn_record_before(&record);
	else
		return false;
	return true;
}

static void
store_record(Stored *stored, const ShardTurnRecord *record, bool replaces, int64 last)
{
	StringInfoData bytes;
	TurnRow row;

	for (int64 turn = record->turn; replaces && turn <= last; turn++)
		store_remove(stored->tx, T_TURN, KEY(stored->shard, turn));
	initStringInfo(&bytes);
	shard_turn_record_ship(&bytes, record);
	memset(&row, 0, sizeof(row));
	row.length = bytes.len;
	memcpy(row.bytes, bytes.data, Min(bytes.len, COPIES_ROW));
	pfree(bytes.data);
	store_put(stored->tx, T_TURN, KEY(stored->shard, record->turn), &row);
}

/* What a call says of one shard. False: the call waits for a fact. */
static bool
judge_offer(Call *call, BackupNode *backup, const ShardReplicaOffer *offer, ShardReader *reader)
{
	ShardReplicaCopy *twin = &call->twins[offer->shard];
	ShardReplicaSender sender = {offer->epoch, backup->fact_epoch, true};
	ShardReplicaAnswer *answer = &call->answers[call->n_answers++];
	ShardReplicaCopy before = *twin;
	ShardReplicaVerdict verdict = SHARD_REPLICA_STORED;
	Stored stored = {backup, call->tx, offer->shard};
	ShardTurnRecord record;
	ShardTurnFault fault;

	*answer =
		(ShardReplicaAnswer){.type_id = COPIES_TYPE, .shard = offer->shard, .epoch = offer->epoch};
	if (offer->asks)
	{
		verdict =
			shard_replica_ask(twin, &sender, &offer->point, find_turn, &stored, &answer->need);
		if (verdict == SHARD_REPLICA_STORED)
			answer->stored = offer->point.turn;
	}
	for (int i = 0; i < offer->n_records && shard_turn_record_next(reader, &record, &fault); i++)
	{
		if (verdict > SHARD_REPLICA_STORED)
			continue;
		verdict = shard_replica_judge(twin, &sender, &record, find_turn, &stored, &answer->need);
		if (verdict == SHARD_REPLICA_STORE || verdict == SHARD_REPLICA_REPLACE)
		{
			store_record(&stored, &record, verdict == SHARD_REPLICA_REPLACE, twin->end.turn);
			shard_replica_stored(twin, &record);
			verdict = SHARD_REPLICA_STORED;
		}
		if (verdict == SHARD_REPLICA_STORED)
			answer->stored = record.turn;
	}
	answer->verdict = verdict;
	if (verdict == SHARD_REPLICA_AHEAD)
		return false;
	if (verdict != SHARD_REPLICA_REFUSED)
	{
		shard_replica_promise(twin, offer->epoch);
		shard_replica_told(twin, offer->epoch, offer->released);
	}
	if (memcmp(&before, twin, sizeof(before)) != 0)
		store_put(call->tx, T_COPY, KEY(offer->shard), twin);
	return true;
}

static void
judge(Call *call, BackupNode *backup)
{
	ShardReader reader = {call->bytes, call->bytes + call->length, false};
	ShardReplicaOffer offer;
	bool waits = false;

	call->tx = store_begin(backup->store);
	memcpy(call->twins, backup->copies, sizeof(call->twins));
	while (!waits && shard_replica_get_offer(&reader, &offer))
		waits = !judge_offer(call, backup, &offer, &reader);
	call->step = CALL_COMMIT;
	if (!waits)
		return;
	store_abort(call->tx);
	call->tx = NULL;
	call->step = CALL_FREE;
	free(call->bytes);
	call->bytes = NULL;
	backup->lock = -1;
}

/* What is stored already may be so by another call, whose commit is not flushed yet: the newest one counts. */
static void
commit(CopiesWorld *world, Call *call, BackupNode *backup)
{
	call->lsn = store_commit(call->tx);
	call->tx = NULL;
#ifndef SHARD_MUTANT_COPY_ANSWERS_UNFLUSHED
	call->lsn = store_last_lsn(backup->store);
#endif
	memcpy(backup->copies, call->twins, sizeof(call->twins));
	backup->lock = -1;
	call->step = CALL_ANSWER;
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		copies_check_copy(world, backup, shard);
}

static void
answer(CopiesWorld *world, Call *call, BackupNode *backup)
{
	StringInfoData bytes;

	initStringInfo(&bytes);
	for (int i = 0; i < call->n_answers; i++)
		shard_replica_put_answer(&bytes, &call->answers[i]);
	copies_send(world, &(Message){.kind = M_ANSWER,
								  .to = backup->index,
								  .req = call->req,
								  .length = bytes.len,
								  .bytes = bytes.data});
	pfree(bytes.data);
	free(call->bytes);
	call->bytes = NULL;
	call->step = CALL_FREE;
}

/* The worker has met the fact. */
static bool
promise(BackupNode *backup)
{
	bool news = false;

	for (int32 shard = 0; shard < COPIES_SHARDS && backup->lock < 0; shard++)
	{
		ShardReplicaCopy *copy = &backup->copies[shard];
		StoreTransaction *tx;

		if (!shard_replica_promise(copy, backup->fact_epoch))
			continue;
		tx = store_begin(backup->store);
		store_put(tx, T_COPY, KEY(shard), copy);
		store_commit(tx);
		news = true;
	}
	return news;
}

bool
copies_backup_step(CopiesWorld *world, BackupNode *backup)
{
	int i = (int) copies_random(world, COPIES_CALLS);
	Call *call = &backup->calls[i];

	if (copies_percent(world, 5) && promise(backup))
		return true;
	if (copies_percent(world, 5) && copies_backup_apply(world, backup))
		return true;
	if (copies_percent(world, 20))
		store_flush(backup->store);
	switch (call->step)
	{
		case CALL_FREE:
			return false;
		case CALL_JUDGE:
			if (backup->lock >= 0)
				return false;
			backup->lock = i;
			judge(call, backup);
			return true;
		case CALL_COMMIT:
			commit(world, call, backup);
			return true;
		case CALL_ANSWER:
			if (call->lsn > 0 && !store_released(backup->store, call->lsn))
				return false;
			answer(world, call, backup);
			return true;
	}
	return false;
}

/* All that is stored is applied. */
bool
copies_backup_rests(const BackupNode *backup)
{
	if (!backup->up)
		return false;
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		if (backup->copies[shard].applied < backup->copies[shard].end.turn)
			return false;
	return true;
}

void
copies_backup_report(CopiesWorld *world, const BackupNode *backup)
{
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		const ShardReplicaCopy *copy = &backup->copies[shard];

		if (!backup->up || copy->applied < copy->end.turn)
			check_fail(world->check,
					   "P6: backup %d%s has not applied all of shard %d: turn " INT64_FORMAT
					   ", released " INT64_FORMAT ", applied " INT64_FORMAT,
					   backup->index, backup->up ? "" : ", which is away,", shard, copy->end.turn,
					   copy->released, copy->applied);
	}
}
