/*
 * copies_home.c
 *		The home of mode copies beside its turns: the gate, calls to backups, and what is shown when a turn is released.
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})
#define CALL_RECORDS 6 /* of a shard in a call */

void
copies_home_start(CopiesWorld *world)
{
	HomeNode *home = &world->home;

	home->up = true;
	home->inc++;
	copies_load(world);
}

void
copies_home_crash(CopiesWorld *world)
{
	HomeNode *home = &world->home;

	copies_turn_abort(home);
	store_crash(home->store);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		HomeShard *shard = &home->shards[i];

		for (int j = 0; j < COPIES_TURNS; j++)
			free(shard->records[j].bytes);
		shard_mark_free(&shard->marks);
		memset(shard, 0, sizeof(*shard));
	}
	memset(home->calls, 0, sizeof(home->calls));
	home->n_gates = 0;
	home->up = home->stopped = false;
	home->stop_epoch = 0;
}

/* A client's transaction, which commits at once. */
void
copies_home_tell(CopiesWorld *world, int32 shard)
{
	HomeNode *home = &world->home;
	StoreTransaction *tx = store_begin(home->store);
	LogRow row = {.kind = LOG_INPUT, .type_id = COPIES_TYPE, .shard = shard, .id = ++world->ids};

	world->kinds[row.id] = LOG_INPUT;
	store_put(tx, T_LOG, KEY(++home->seq), &row);
	store_commit(tx);
}

/* What the other node tells comes in the order of its numbers, each once, or not at all (X1 to X4). */
static void
arrive(CopiesWorld *world, const Message *message)
{
	HomeNode *home = &world->home;
	const int64 *position = store_get(home->store, NULL, T_TAKEN, KEY(message->shard));
	int64 taken = position != NULL ? *position : 0;
	StoreTransaction *tx;
	LogRow row = {.kind = LOG_ARRIVED,
				  .type_id = COPIES_TYPE,
				  .shard = message->shard,
				  .id = message->id,
				  .stamp = {SHARD_PREFIX_NODE, COPIES_OTHER, message->shard, message->number}};

	if (message->number > taken + 1)
		return;
	taken = Max(taken, message->number); /* a repeat is met in the log, and its mark told again */
	tx = store_begin(home->store);
	store_put(tx, T_LOG, KEY(++home->seq), &row);
	store_put(tx, T_TAKEN, KEY(message->shard), &taken);
	store_commit(tx);
}

/* Something is shown: what is told when its turn is released. */
static void
show(CopiesWorld *world, int32 number)
{
	HomeShard *shard = &world->home.shards[number];
	int64 upto = shard->replica.released;
	int kept = 0;

#ifdef SHARD_MUTANT_COPIES_MARKS_EARLY
	upto = shard->replica.passed;
#endif
	for (int i = 0; i < shard->n_tells; i++)
	{
		const Tell *tell = &shard->tells[i];
		const ShardStamp *mark = &tell->mark;

		if (tell->turn > upto)
			shard->tells[kept++] = *tell;
		else if (mark->kind == SHARD_PREFIX_NODE && mark->a == COPIES_OTHER)
		{
			copies_check_shown(world, number, tell->turn, "a mark");
			copies_send(world, &(Message){.kind = M_MARK, .shard = number, .number = mark->seq});
		}
		else if (mark->kind == SHARD_PREFIX_SHARD)
		{
			copies_check_shown(world, number, tell->turn, "a mark");
			copies_add_done(&world->home, mark->b,
							&(ShardTurnDone){COPIES_TYPE, number, mark->seq});
		}
	}
	shard->n_tells = kept;
	copies_check_released(world, number);
}

/* The gate: what was flushed is past it. */
static bool
pass_gate(CopiesWorld *world)
{
	HomeNode *home = &world->home;
	int n = 0;

	while (n < home->n_gates && store_released(home->store, home->gates[n].lsn))
	{
		const Gate *gate = &home->gates[n++];

		shard_replica_passed(&home->shards[gate->shard].replica, gate->turn);
	}
	if (n == 0)
		return false;
	home->n_gates -= n;
	memmove(home->gates, home->gates + n, home->n_gates * sizeof(Gate));
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		show(world, i);
	return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void
lose_call(CopiesWorld *world, int i)
{
	Connection *call = &world->home.calls[i];

	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		if (call->offered[shard])
			shard_replica_call_lost(&world->home.shards[shard].replica, COPIES_HOME + 1 + i);
	*call = (Connection){.lives = call->lives};
}

/* The connection ended with the backup's process, and a new one is opened. Of what was told in it nobody knows any more. */
static void
open_anew(CopiesWorld *world, int i)
{
	Connection *call = &world->home.calls[i];

	lose_call(world, i);
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		shard_replica_link_ended(&world->home.shards[shard].replica, COPIES_HOME + 1 + i);
	call->lives = world->backups[i].lives;
}

static void
put_offer(CopiesWorld *world, int32 number, ShardReplicaShipment *shipment, StringInfo bytes)
{
	HomeShard *shard = &world->home.shards[number];
	ShardReplicaOffer offer = {.type_id = COPIES_TYPE,
							   .shard = number,
							   .epoch = shard->replica.epoch,
							   .released = shipment->released,
							   .asks = shipment->asks};

	shipment->to = Min(shipment->to, shipment->from + CALL_RECORDS - 1);
	if (shipment->asks)
		offer.point = shard->replica.end;
	else
		offer.n_records = (int32) Max(shipment->to - shipment->from + 1, 0);
	shard_replica_put_offer(bytes, &offer);
	for (int i = 0; i < offer.n_records; i++)
	{
		const KeptRecord *record = &shard->records[(shipment->from + i) % COPIES_TURNS];

		appendBinaryStringInfo(bytes, record->bytes, record->length);
	}
}

static bool
call_backup(CopiesWorld *world, int i)
{
	HomeNode *home = &world->home;
	Connection *call = &home->calls[i];
	StringInfoData bytes;

	if (world->backups[i].up && call->lives != world->backups[i].lives)
		open_anew(world, i);
	if (call->req != 0)
	{
		if (world->now < call->deadline)
			return false;
		lose_call(world, i);
		return true;
	}
	initStringInfo(&bytes);
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		ShardReplicaHome *replica = &home->shards[shard].replica;
		ShardReplicaShipment shipment;

		if (!shard_replica_shipment(replica, COPIES_HOME + 1 + i, &shipment))
			continue;
		put_offer(world, shard, &shipment, &bytes);
		shard_replica_shipped(replica, COPIES_HOME + 1 + i, &shipment);
		call->offered[shard] = true;
	}
	if (bytes.len > 0)
	{
		call->req = ++world->order;
		call->deadline = world->now + 300 * COPIES_MS;
		copies_send(world, &(Message){.kind = M_STORE,
									  .to = i,
									  .req = call->req,
									  .length = bytes.len,
									  .bytes = bytes.data});
	}
	pfree(bytes.data);
	return call->req != 0;
}

/* The answer to the call under way; others are those of calls that were given up. */
static void
take_answer(CopiesWorld *world, const Message *message)
{
	HomeNode *home = &world->home;
	Connection *call = &home->calls[message->to];
	ShardReader reader = {message->bytes, message->bytes + message->length, false};
	ShardReplicaAnswer answer;

	if (call->req == 0 || call->req != message->req)
		return;
	while (shard_replica_get_answer(&reader, &answer))
	{
		shard_replica_answered(&home->shards[answer.shard].replica, COPIES_HOME + 1 + message->to,
							   &answer);
		call->offered[answer.shard] = false;
	}
	lose_call(world, message->to);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		show(world, i);
}

/* ---- rest ------------------------------------------------------------------------------------ */

/* Outputs to the other node leave past the gate, one after the other, until they are done. */
static void
send_outputs(CopiesWorld *world)
{
	HomeNode *home = &world->home;

	for (int32 number = 0; number < COPIES_SHARDS; number++)
	{
		HomeShard *shard = &home->shards[number];

		for (int i = 0; i < shard->n_outputs; i++)
		{
			const Output *output = &shard->outputs[i];

			if (output->type_id != COPIES_PLAIN || output->done)
				continue;
			if (output->lsn > 1 && store_released(home->store, output->lsn))
				copies_send(world, &(Message){.kind = M_OUTPUT,
											  .shard = number,
											  .number = output->oseq,
											  .id = output->id});
			break;
		}
	}
}

/* That the shards are sealed is answered when the seal is released (Q27). */
static void
tell_stopped(CopiesWorld *world)
{
	HomeNode *home = &world->home;

	if (!home->own.sealed)
		return;
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		const HomeShard *shard = &home->shards[i];

#ifdef SHARD_MUTANT_COPIES_SEAL_UNRELEASED
		if (shard->seal > shard->replica.passed)
#else
		if (!shard_replica_is_released(&shard->replica, shard->seal))
#endif
			return;
	}
	if (!home->stopped)
		copies_check_stopped(world);
	home->stopped = true;
	copies_send(world, &(Message){.kind = M_STOPPED, .number = home->own.epoch});
}

/* The oldest turn with outputs that are not done. */
static int64
undone(const HomeShard *shard)
{
	for (int i = 0; i < shard->n_outputs; i++)
		if (!shard->outputs[i].done)
			return shard->outputs[i].turn;
	return PG_INT64_MAX;
}

static void
write_end(StoreTransaction *tx, int32 number, const HomeShard *shard, int64 kept)
{
	EndRow end = {shard->replica.end, shard->replica.oseq, kept};

	store_put(tx, T_END, KEY(number), &end);
	for (int i = 0; i < shard->marks.n_marks; i++)
	{
		const ShardStamp *stamp = &shard->marks.marks[i].stamp;

		store_put(tx, T_MARK, KEY(number, stamp->kind, stamp->a, stamp->b), &stamp->seq);
	}
}

/* Has a record that is not released yet, or no record at all, taken the row in? Its row is needed (Q30). */
static bool
is_needed(CopiesWorld *world, const LogRow *row, int64 seq, int64 passed)
{
	const HomeShard *shard = &world->home.shards[row->shard];

	if (seq > passed)
		return true;
#ifdef SHARD_MUTANT_COPIES_INPUTS_NOT_KEPT
	return false;
#endif
	for (int64 turn = Max(shard->replica.released + 1, shard->replica.kept);
		 turn <= shard->replica.end.turn; turn++)
	{
		const KeptRecord *kept = &shard->records[turn % COPIES_TURNS];
		const LogRow *whole = store_get(world->home.store, NULL, T_LOG, KEY(kept->row));
		ShardReader reader = {whole->bytes, whole->bytes + whole->length, false};
		ShardTurnRecord record;
		ShardTurnFault fault;
		ShardTurnInput input = {0, 0};

		while (shard_turn_record_next(&reader, &record, &fault))
		{
			while (record.shard == row->shard && shard_turn_get_input(&record.inputs, &input))
				if (input.seq == seq)
					return true;
		}
	}
	return false;
}

/* Rows of the log that nobody needs go, between turns, in a transaction of their own. */
static bool
forget(CopiesWorld *world)
{
	HomeNode *home = &world->home;
	const int64 *cursor = store_get(home->store, NULL, T_CURSOR, KEY(0));
	StoreTransaction *tx;
	StoreKey key = KEY(0);
	const LogRow *row;
	int64 kept[COPIES_SHARDS];
	int64 passed = cursor != NULL ? *cursor : 0;

	if (home->draft.runs)
		return false;
	tx = store_begin(home->store);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		HomeShard *shard = &home->shards[i];

		kept[i] = shard_replica_may_forget(&shard->replica, undone(shard));
		write_end(tx, i, shard, kept[i]);
		shard_replica_forgotten(&shard->replica, kept[i]);
	}
	while ((row = store_at_or_next(home->store, tx, T_LOG, &key)) != NULL && key.k[0] <= passed)
	{
		LogRow copy = *row;
		ShardReader reader = {copy.bytes, copy.bytes + copy.length, false};
		ShardTurnRecord record;
		ShardTurnFault fault;
		bool needed = copy.kind == LOG_INPUT && is_needed(world, &copy, key.k[0], passed);

		while (copy.kind == LOG_TURN && shard_turn_record_next(&reader, &record, &fault))
			needed |= record.turn >= kept[record.shard];
		if (!needed)
			store_remove(tx, T_LOG, key);
		key.k[3]++;
	}
	store_commit(tx);
	return true;
}

void
copies_home_receive(CopiesWorld *world, const Message *message)
{
	HomeNode *home = &world->home;
	switch (message->kind)
	{
		case M_ANSWER:
			take_answer(world, message);
			break;
		case M_TELL:
			arrive(world, message);
			break;
		case M_DONE:
			copies_add_done(home, message->shard,
							&(ShardTurnDone){COPIES_PLAIN, 0, message->number});
			break;
		case M_FACT:
			home->fact_epoch = Max(home->fact_epoch, (int32) message->number);
			break;
		case M_STOP:
			home->stop_epoch = (int32) message->number;
			break;
		default:
			break;
	}
}

bool
copies_home_step(CopiesWorld *world)
{
	HomeNode *home = &world->home;

	if (world->now >= home->resend_at)
	{
		home->resend_at = world->now + 60 * COPIES_MS;
		for (int32 i = 0; i < COPIES_SHARDS; i++)
			show(world, i);
		send_outputs(world);
		tell_stopped(world);
	}
	if (copies_percent(world, 3) && forget(world))
		return true;
	if (copies_percent(world, 6))
		store_flush(home->store);
	if (pass_gate(world))
		return true;
	switch (copies_random(world, 3))
	{
		case 0:
			return call_backup(world, (int) copies_random(world, world->n_backups));
		default:
			return copies_turn(world);
	}
}

bool
copies_home_rests(const CopiesWorld *world)
{
	const HomeNode *home = &world->home;
	const int64 *cursor = store_get(home->store, NULL, T_CURSOR, KEY(0));

	if (!home->up || home->draft.runs || home->own.sealed || cursor == NULL ||
		home->own.epoch != world->epoch)
		return false;
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		const HomeShard *shard = &home->shards[i];

		if (shard->replica.released != shard->replica.end.turn || undone(shard) != PG_INT64_MAX ||
			world->done[i] != world->told[i])
			return false;
	}
	return true;
}

void
copies_home_report(CopiesWorld *world)
{
	const HomeNode *home = &world->home;

	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		const HomeShard *shard = &home->shards[i];
		const ShardReplicaHome *replica = &shard->replica;

		check_fail(world->check,
				   "P6: not at rest: epoch %d of %d%s; shard %d: turn " INT64_FORMAT
				   ", passed " INT64_FORMAT ", released " INT64_FORMAT ", kept " INT64_FORMAT
				   ", backups %s %s, undone turn " INT64_FORMAT ", told " INT64_FORMAT
				   " of " INT64_FORMAT,
				   home->own.epoch, world->epoch, home->own.sealed ? ", sealed" : "", i,
				   replica->end.turn, replica->passed, replica->released, replica->kept,
				   shard_replica_machine.state_names[replica->peers[0].state],
				   shard_replica_machine.state_names[replica->peers[1].state],
				   undone(shard) == PG_INT64_MAX ? 0 : undone(shard), world->done[i],
				   world->told[i]);
		if (replica->released != replica->end.turn || undone(shard) != PG_INT64_MAX ||
			world->done[i] != world->told[i])
			return;
	}
}
