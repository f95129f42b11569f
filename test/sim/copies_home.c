/*
 * copies_home.c
 *		The home of mode copies beside its turns: the gate, calls to other members, and what is shown when a turn is released.
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})
#define CALL_RECORDS 6 /* of a shard in a call */

/* Something is shown: what is told when its turn is released. */
static void
show(CopiesWorld *world, Node *home, int32 number)
{
	HomeShard *shard = &home->shards[number];
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
		else if (mark->kind == SHARD_PREFIX_NODE)
		{
			copies_check_shown(world, home, number, tell->turn, "a mark");
			copies_send(world,
						&(Message){.kind = M_MARK,
								   .to = mark->a == COPIES_OTHER ? COPIES_NODES : mark->a - 1,
								   .shard = number,
								   .number = mark->seq});
		}
		else if (mark->kind == SHARD_PREFIX_SHARD)
		{
			copies_check_shown(world, home, number, tell->turn, "a mark");
			copies_add_done(home, mark->b, &(ShardTurnDone){COPIES_TYPE, number, mark->seq});
		}
	}
	shard->n_tells = kept;
	copies_check_released(world, home, number);
}

/* The gate: what was flushed is past it. */
static bool
pass_gate(CopiesWorld *world, Node *home)
{
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
		show(world, home, i);
	return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void
lose_call(Node *home, int i)
{
	Connection *call = &home->calls[i];

	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		if (call->offered[shard])
			shard_replica_call_lost(&home->shards[shard].replica, i + 1);
	*call = (Connection){.inc = call->inc};
}

/* The connection ended with the member's process, and a new one is opened. Of what was told in it nobody knows any more. */
static void
open_anew(Node *home, const Node *member)
{
	Connection *call = &home->calls[member->index];

	lose_call(home, member->index);
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		shard_replica_link_ended(&home->shards[shard].replica, member->index + 1);
	call->inc = member->inc;
}

static void
put_offer(Node *home, int32 number, ShardReplicaShipment *shipment, StringInfo bytes)
{
	HomeShard *shard = &home->shards[number];
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
call_member(CopiesWorld *world, Node *home, int i)
{
	Connection *call = &home->calls[i];
	StringInfoData bytes;

	if (world->nodes[i].up && call->inc != world->nodes[i].inc)
		open_anew(home, &world->nodes[i]);
	if (call->req != 0)
	{
		if (world->now < call->deadline)
			return false;
		lose_call(home, i);
		return true;
	}
	initStringInfo(&bytes);
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		ShardReplicaHome *replica = &home->shards[shard].replica;
		ShardReplicaShipment shipment;

		if (!shard_replica_shipment(replica, i + 1, &shipment))
			continue;
		put_offer(home, shard, &shipment, &bytes);
		shard_replica_shipped(replica, i + 1, &shipment);
		call->offered[shard] = true;
	}
	if (bytes.len > 0)
	{
		call->req = ++world->order;
		call->deadline = world->now + 300 * COPIES_MS;
		copies_send(world, &(Message){.kind = M_STORE,
									  .from = home->index,
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
take_answer(CopiesWorld *world, Node *home, const Message *message)
{
	Connection *call = &home->calls[message->from];
	ShardReader reader = {message->bytes, message->bytes + message->length, false};
	ShardReplicaAnswer answer;

	/* Who refuses has the newest fact (Q8). */
	home->fact = Max(home->fact, message->number);
	if (call->req == 0 || call->req != message->req)
		return;
	while (shard_replica_get_answer(&reader, &answer))
	{
		if (!call->offered[answer.shard])
			continue;
		shard_replica_answered(&home->shards[answer.shard].replica, message->from + 1, &answer);
		call->offered[answer.shard] = false;
	}
	lose_call(home, message->from);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		show(world, home, i);
}

/* ---- rest ------------------------------------------------------------------------------------ */

/* Outputs to the other node leave past the gate, one after the other, until they are done. */
static void
send_outputs(CopiesWorld *world, Node *home)
{
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
											  .from = home->index,
											  .to = COPIES_NODES,
											  .shard = number,
											  .number = output->oseq,
											  .id = output->id});
			break;
		}
	}
}

/* That the shards are sealed is answered when the seal is released (Q27). */
static void
tell_stopped(CopiesWorld *world, Node *home)
{
	if (home->own.own.state != SHARD_TAKEOVER_SEALED)
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
		copies_check_stopped(world, home);
	home->stopped = true;
	copies_send(world, &(Message){.kind = M_STOPPED, .epoch = home->own.own.epoch});
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

/* Has a record that is not released yet, or no record at all, taken the row in? Its row is needed (Q30). */
static bool
is_needed(const Node *home, const LogRow *row, int64 seq, int64 passed)
{
	const HomeShard *shard = &home->shards[row->shard];

	if (seq > passed)
		return true;
#ifdef SHARD_MUTANT_COPIES_INPUTS_NOT_KEPT
	return false;
#endif
	for (int64 turn = Max(shard->replica.released + 1, shard->replica.kept);
		 turn <= shard->replica.end.turn; turn++)
	{
		ShardTurnRecord record;
		ShardTurnInput input = {0, 0};

		if (!copies_read_turn(home->store, NULL, row->shard, turn, &record))
			continue;
		while (shard_turn_get_input(&record.inputs, &input))
			if (input.seq == seq)
				return true;
	}
	return false;
}

/* Members that were put out may drop what they have, once all of the set have what was there when the epoch began (Q17). */
static void
tell_whole(CopiesWorld *world, const Node *home)
{
	const ShardHomeRecord *set = copies_fact(world, home->own.n);

	for (int32 i = 0; i < COPIES_SHARDS; i++)
		if (!shard_takeover_is_whole(&home->shards[i].replica, set, home->shards[i].first))
			return;
	world->facts[home->own.n].whole = true;
	for (int to = 0; to < world->n_nodes; to++)
	{
		bool member = false;

		for (int i = 0; i < set->n_nodes; i++)
			member |= set->nodes[i] == to + 1;
		if (!member)
			copies_send(world, &(Message){.kind = M_WHOLE, .to = to, .number = home->own.n});
	}
}

/* Rows of the log that nobody needs go, and a home's records, between turns, in a transaction of their own. */
bool
copies_home_forget(Node *home)
{
	const int64 *cursor = store_get(home->store, NULL, T_CURSOR, KEY(0));
	int64 passed = cursor != NULL ? *cursor : 0;
	bool is_home = shard_takeover_is_home(&home->own.own);
	StoreTransaction *tx;
	StoreKey key = KEY(0);
	const LogRow *row;

	if (home->draft.runs)
		return false;
	tx = store_begin(home->store);
	for (int32 i = 0; i < COPIES_SHARDS && is_home; i++)
	{
		HomeShard *shard = &home->shards[i];
		int64 kept = shard_replica_may_forget(&shard->replica, undone(shard));

		for (int64 turn = shard->replica.kept; turn < kept; turn++)
			store_remove(tx, T_TURN, KEY(i, turn));
		shard_replica_forgotten(&shard->replica, kept);
		if (kept - 1 <= home->copies[i].copy.applied)
			continue;
		home->copies[i].copy.released = Max(home->copies[i].copy.released, kept - 1);
		home->copies[i].copy.applied = kept - 1;
		store_put(tx, T_COPY, KEY(i), &home->copies[i]);
	}
	while ((row = store_at_or_next(home->store, tx, T_LOG, &key)) != NULL && key.k[0] <= passed)
	{
		if (!is_home || row->kind != LOG_INPUT || !is_needed(home, row, key.k[0], passed))
			store_remove(tx, T_LOG, key);
		key.k[3]++;
	}
	store_commit(tx);
	return true;
}

void
copies_home_receive(CopiesWorld *world, Node *home, const Message *message)
{
	bool is_home = shard_takeover_is_home(&home->own.own);

	if (message->kind == M_ANSWER && is_home)
		take_answer(world, home, message);
	else if (message->kind == M_DONE)
		copies_add_done(home, message->shard, &(ShardTurnDone){COPIES_PLAIN, 0, message->number});
	else if (message->kind == M_STOP)
		home->stop_epoch = message->epoch;
}

/* What a home says again; who was home sends outputs that it has appended. */
void
copies_home_tell(CopiesWorld *world, Node *home)
{
	send_outputs(world, home);
	if (!shard_takeover_is_home(&home->own.own))
		return;
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		show(world, home, i);
	tell_stopped(world, home);
	tell_whole(world, home);
}

bool
copies_home_step(CopiesWorld *world, Node *home)
{
	if (copies_percent(world, 6))
		store_flush(home->store);
	if (pass_gate(world, home))
		return true;
	if (copies_random(world, 3) == 0)
		return call_member(world, home, (int) copies_random(world, world->n_nodes));
	return copies_turn(world, home);
}

/* Is nothing left here of what was told here? */
static bool
is_empty(const Node *node)
{
	const int64 *cursor = store_get(node->store, NULL, T_CURSOR, KEY(0));
	StoreKey key = KEY(cursor != NULL ? *cursor + 1 : 0);
	StoreKey first = KEY(0, 0);

	return store_at_or_next(node->store, NULL, T_LOG, &key) == NULL &&
		   store_at_or_next(node->store, NULL, T_PARKED, &first) == NULL;
}

bool
copies_home_rests(CopiesWorld *world)
{
	const Node *home = copies_home(world);

	if (!home->up || home->draft.runs || home->own.n != world->n ||
		home->own.own.state != SHARD_TAKEOVER_HOME)
		return false;
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		const HomeShard *shard = &home->shards[i];

		if (shard->replica.released != shard->replica.end.turn || undone(shard) != PG_INT64_MAX ||
			world->done[i] != world->told[i])
			return false;
	}
	for (int i = 0; i < world->n_nodes; i++)
		if (!world->nodes[i].up || world->nodes[i].own.n != world->n || !is_empty(&world->nodes[i]))
			return false;
	return true;
}

void
copies_home_report(CopiesWorld *world)
{
	const Node *home = copies_home(world);

	for (int i = 0; i < world->n_nodes; i++)
	{
		const Node *node = &world->nodes[i];

		copies_trace(world, "node %d: %s, epoch %d, fact %d of %d%s", i + 1,
					 shard_takeover_machine.state_names[node->own.own.state], node->own.own.epoch,
					 (int) node->own.n, (int) world->n, is_empty(node) ? "" : ", something waits");
		for (int32 k = 0; k < COPIES_SHARDS; k++)
			copies_trace(world, "  shard %d: end (%d, %d), released %d, applied %d, shows %d%s", k,
						 node->copies[k].copy.end.epoch, (int) node->copies[k].copy.end.turn,
						 (int) node->copies[k].copy.released, (int) node->copies[k].copy.applied,
						 (int) node->copies[k].shows, node->fetching[k] ? ", fetches" : "");
	}
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		const HomeShard *shard = &home->shards[i];
		const ShardReplicaHome *replica = &shard->replica;
		bool last = i == COPIES_SHARDS - 1;

		if (!last && replica->released == replica->end.turn && undone(shard) == PG_INT64_MAX &&
			world->done[i] == world->told[i])
			continue;
		check_fail(world->check,
				   "P6: not at rest: fact " INT64_FORMAT " of " INT64_FORMAT
				   ", %s; shard %d: turn " INT64_FORMAT ", passed " INT64_FORMAT
				   ", released " INT64_FORMAT ", kept " INT64_FORMAT
				   ", others %s %s, undone turn " INT64_FORMAT ", told " INT64_FORMAT
				   " of " INT64_FORMAT,
				   home->own.n, world->n, shard_takeover_machine.state_names[home->own.own.state],
				   i, replica->end.turn, replica->passed, replica->released, replica->kept,
				   shard_replica_machine.state_names[replica->peers[0].state],
				   shard_replica_machine.state_names[replica->peers[1].state],
				   undone(shard) == PG_INT64_MAX ? 0 : undone(shard), world->done[i],
				   world->told[i]);
		return;
	}
}
