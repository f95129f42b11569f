/*
 * copies_backup.c
 *		A member of mode copies that is not home: calls judge and store records (Q8, Q9, Q36).
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})

/* Without a backend that is free a call is lost. */
void
copies_backup_receive(Node *backup, const Message *message)
{
	for (int i = 0; i < COPIES_CALLS; i++)
	{
		Call *call = &backup->stores[i];

		if (call->step != CALL_FREE)
			continue;
		memset(call, 0, sizeof(*call));
		call->step = CALL_JUDGE;
		call->req = message->req;
		call->from = message->from;
		call->length = message->length;
		call->bytes = pg_malloc(message->length + 1);
		memcpy(call->bytes, message->bytes, message->length);
		return;
	}
}

/* Where a call reads what is stored. */
typedef struct Stored
{
	Node *backup;
	StoreTransaction *tx;
	int32 shard;
} Stored;

/* By its record, or, if that is forgotten, the one behind it. */
static bool
find_turn(void *context, int64 turn, ShardTurnPoint *point)
{
	const Stored *stored = context;
	ShardTurnRecord record;

	if (copies_read_turn(stored->backup->store, stored->tx, stored->shard, turn, &record))
		*point = shard_turn_record_point(&record);
	else if (copies_read_turn(stored->backup->store, stored->tx, stored->shard, turn + 1, &record))
		*point = shard_turn_record_before(&record);
	else
		return false;
	return true;
}

static void
store_record(Stored *stored, const ShardTurnRecord *record, bool replaces, int64 last)
{
	for (int64 turn = record->turn; replaces && turn <= last; turn++)
		store_remove(stored->tx, T_TURN, KEY(stored->shard, turn));
	copies_store_record(stored->tx, stored->shard, record);
}

/*
 * The records of an offer, one after the other. False: rows have to be taken anew before one of them is stored, so nothing is
 * answered.
 */
static bool
judge_records(Stored *stored, CopyRow *row, const ShardReplicaSender *sender,
			  const ShardReplicaOffer *offer, ShardReader *reader, ShardReplicaAnswer *answer,
			  ShardReplicaVerdict *verdict)
{
	ShardReplicaCopy *twin = &row->copy;
	bool may = true;
	ShardTurnRecord record;
	ShardTurnFault fault;

	for (int i = 0; i < offer->n_records && shard_turn_record_next(reader, &record, &fault); i++)
	{
		if (*verdict > SHARD_REPLICA_STORED || !may)
			continue;
		*verdict = shard_replica_judge(twin, sender, &record, find_turn, stored, &answer->need);
		may = shard_takeover_may_store(*verdict, &record, row->shows);
		if (!may)
			continue;
		if (*verdict == SHARD_REPLICA_STORE || *verdict == SHARD_REPLICA_REPLACE)
		{
			store_record(stored, &record, *verdict == SHARD_REPLICA_REPLACE, twin->end.turn);
			shard_replica_stored(twin, &record);
			*verdict = SHARD_REPLICA_STORED;
		}
		if (*verdict == SHARD_REPLICA_STORED)
			answer->stored = record.turn;
	}
	return may;
}

/* What a call says of one shard. False: the call waits for a fact. */
static bool
judge_offer(CopiesWorld *world, Call *call, Node *backup, const ShardReplicaOffer *offer,
			ShardReader *reader)
{
	CopyRow *row = &call->twins[offer->shard];
	ShardReplicaCopy *twin = &row->copy;
	const ShardHomeRecord *home = copies_fact(world, backup->own.n);
	ShardReplicaSender sender = {offer->epoch, backup->own.own.epoch,
								 shard_record_home_node(home) == call->from + 1};
	ShardReplicaAnswer *answer = &call->answers[call->n_answers++];
	CopyRow before = *row;
	bool judges =
		backup->own.own.state != SHARD_TAKEOVER_NONE && backup->own.own.state != SHARD_TAKEOVER_OUT;
	ShardReplicaVerdict verdict = SHARD_REPLICA_STORED;
	Stored stored = {backup, call->tx, offer->shard};

	*answer =
		(ShardReplicaAnswer){.type_id = COPIES_TYPE, .shard = offer->shard, .epoch = offer->epoch};
	if (!judges)
		verdict = offer->epoch > sender.learned ? SHARD_REPLICA_AHEAD : SHARD_REPLICA_REFUSED;
	else if (offer->asks)
	{
		verdict =
			shard_replica_ask(twin, &sender, &offer->point, find_turn, &stored, &answer->need);
		if (verdict == SHARD_REPLICA_STORED)
			answer->stored = offer->point.turn;
	}
	if (!judge_records(&stored, row, &sender, offer, reader, answer, &verdict))
	{
		if (backup->fetching[offer->shard] == 0)
			backup->fetching[offer->shard] = ++world->order;
		call->n_answers--;
		return true;
	}
	answer->verdict = verdict;
	if (verdict == SHARD_REPLICA_AHEAD)
		return false;
	if (verdict != SHARD_REPLICA_REFUSED)
	{
		shard_replica_promise(twin, offer->epoch);
		shard_replica_told(twin, offer->epoch, offer->released);
	}
	call->changed[offer->shard] = memcmp(&before, row, sizeof(before)) != 0;
	if (call->changed[offer->shard])
		store_put(call->tx, T_COPY, KEY(offer->shard), row);
	return true;
}

static void
judge(CopiesWorld *world, Call *call, Node *backup)
{
	ShardReader reader = {call->bytes, call->bytes + call->length, false};
	ShardReplicaOffer offer;
	bool waits = false;

	call->tx = store_begin(backup->store);
	call->fact = backup->own.n;
	memcpy(call->twins, backup->copies, sizeof(call->twins));
	while (!waits && shard_replica_get_offer(&reader, &offer))
		waits = !judge_offer(world, call, backup, &offer, &reader);
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
commit(CopiesWorld *world, Call *call, Node *backup)
{
	call->lsn = store_commit(call->tx);
	call->tx = NULL;
#ifndef SHARD_MUTANT_COPY_ANSWERS_UNFLUSHED
	call->lsn = store_last_lsn(backup->store);
#endif
	backup->lock = -1;
	call->step = CALL_ANSWER;
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		if (!call->changed[shard])
			continue;
		backup->copies[shard] = call->twins[shard];
		copies_check_copy(world, backup, shard);
	}
}

static void
answer(CopiesWorld *world, Call *call, Node *backup)
{
	StringInfoData bytes;

	initStringInfo(&bytes);
	for (int i = 0; i < call->n_answers; i++)
		shard_replica_put_answer(&bytes, &call->answers[i]);
	copies_send(world, &(Message){.kind = M_ANSWER,
								  .from = backup->index,
								  .to = call->from,
								  .number = call->fact,
								  .req = call->req,
								  .length = bytes.len,
								  .bytes = bytes.data});
	pfree(bytes.data);
	free(call->bytes);
	call->bytes = NULL;
	call->step = CALL_FREE;
}

/* One of the calls goes on by a step; a home has some, too, which come from a former one. */
bool
copies_backup_call(CopiesWorld *world, Node *backup)
{
	int i = (int) copies_random(world, COPIES_CALLS);
	Call *call = &backup->stores[i];

	switch (call->step)
	{
		case CALL_FREE:
			return false;
		case CALL_JUDGE:
			if (backup->lock >= 0)
				return false;
			backup->lock = i;
			judge(world, call, backup);
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

bool
copies_backup_step(CopiesWorld *world, Node *backup)
{
	if (copies_percent(world, 5) && copies_backup_apply(world, backup))
		return true;
	if (copies_percent(world, 20))
		store_flush(backup->store);
	if (copies_percent(world, 10) && copies_turn(world, backup))
		return true;
	return copies_backup_call(world, backup);
}
