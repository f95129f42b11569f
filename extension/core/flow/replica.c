/*
 * core/flow/replica.c
 *		Copies of a shard that has replicas: what its home waits for, and what a copy takes (Q4, Q8, Q9, Q11, Q13).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/fields.h"
#include "core/flow/replica.h"

/* ---- the copy's side ------------------------------------------------------------------------- */

const char *const shard_replica_verdict_names[SHARD_REPLICA_VERDICTS] = {
	"none",	   "store", "replace", "stored", "need",   "need copy",
	"refused", "ahead", "forked",  "broken", "damaged"};

/* Who may say that of the shard, by the epoch of what is said (T6, Q8, Q9). STORE: the sender may. */
static ShardReplicaVerdict
judge_sender(const ShardReplicaCopy *copy, const ShardReplicaSender *sender, int32 epoch)
{
	int32 counts = sender->epoch;

	if (sender->epoch > sender->learned)
		return SHARD_REPLICA_AHEAD;
#ifdef SHARD_MUTANT_PROMISE_BY_RECORD
	counts = epoch;
#endif
#ifdef SHARD_MUTANT_PROMISE_NOT_KEPT
	return SHARD_REPLICA_STORE;
#endif
	if (counts < copy->promise || sender->epoch < sender->learned || !sender->is_home ||
		epoch > sender->epoch)
		return SHARD_REPLICA_REFUSED;
	return SHARD_REPLICA_STORE;
}

/* The copy's own point of a turn up to its end. */
static bool
find_point(const ShardReplicaCopy *copy, int64 turn, ShardReplicaFind find, void *context,
		   ShardTurnPoint *point)
{
	memset(point, 0, sizeof(*point));
	if (turn == copy->end.turn)
		*point = copy->end;
	else if (turn > 0)
		return find(context, turn, point);
	return true;
}

/*
 * The copy has something else at that turn than the sender: what may be done about it? Turns of the sender's own epoch
 * only its home can have made, which has forgotten them; and what is released, every home has. STORE: they may be replaced.
 */
static ShardReplicaVerdict
judge_difference(const ShardReplicaCopy *copy, const ShardReplicaSender *sender, int64 turn)
{
	if (copy->end.epoch == sender->epoch)
		return SHARD_REPLICA_FORKED;
	if (turn <= Max(copy->released, copy->applied))
		return SHARD_REPLICA_BROKEN;
	return SHARD_REPLICA_STORE;
}

/*
 * Has the copy what the sender has up to a point, which is not behind the copy's end? STORED, or what to do about the
 * difference. Of a turn that is applied and forgotten there is nothing to compare, and no need: it was released.
 */
static ShardReplicaVerdict
compare(const ShardReplicaCopy *copy, const ShardReplicaSender *sender, const ShardTurnPoint *point,
		ShardReplicaFind find, void *context)
{
	ShardTurnPoint own;

	if (!find_point(copy, point->turn, find, context, &own))
		return point->turn <= copy->applied ? SHARD_REPLICA_STORED : SHARD_REPLICA_NEED_COPY;
	if (shard_turn_point_equal(point, &own))
		return SHARD_REPLICA_STORED;
	return judge_difference(copy, sender, point->turn);
}

ShardReplicaVerdict
shard_replica_judge(const ShardReplicaCopy *copy, const ShardReplicaSender *sender,
					const ShardTurnRecord *record, ShardReplicaFind find, void *context,
					int64 *need)
{
	ShardReplicaVerdict verdict = judge_sender(copy, sender, record->epoch);
	ShardTurnPoint before = shard_turn_record_before(record);
	ShardTurnPoint point = shard_turn_record_point(record);

	*need = 0;
	if (verdict != SHARD_REPLICA_STORE)
		return verdict;
#ifdef SHARD_MUTANT_STORED_BY_NUMBER
	if (before.turn == copy->end.turn)
		return SHARD_REPLICA_STORE;
#endif
	if (shard_turn_point_equal(&before, &copy->end))
		return SHARD_REPLICA_STORE;
	if (before.turn > copy->end.turn)
	{
		*need = copy->end.turn + 1;
		return SHARD_REPLICA_NEED;
	}
	if (point.turn <= copy->end.turn)
	{
		verdict = compare(copy, sender, &point, find, context);
		if (verdict != SHARD_REPLICA_STORE)
			return verdict;
	}

	/* It does not have this one; has it the one before? Else that is to be offered first. */
	verdict = compare(copy, sender, &before, find, context);
#ifdef SHARD_MUTANT_TAIL_KEPT
	if (verdict == SHARD_REPLICA_STORED && point.turn <= copy->end.turn)
		return SHARD_REPLICA_STORED;
#endif
	if (verdict == SHARD_REPLICA_STORED)
		return SHARD_REPLICA_REPLACE;
	if (verdict != SHARD_REPLICA_STORE)
		return verdict;
	*need = before.turn;
	return SHARD_REPLICA_NEED;
}

ShardReplicaVerdict
shard_replica_ask(const ShardReplicaCopy *copy, const ShardReplicaSender *sender,
				  const ShardTurnPoint *point, ShardReplicaFind find, void *context, int64 *need)
{
	ShardReplicaVerdict verdict = judge_sender(copy, sender, point->epoch);

	*need = 0;
	if (verdict != SHARD_REPLICA_STORE)
		return verdict;
	if (point->turn > copy->end.turn)
	{
		*need = copy->end.turn + 1;
		return SHARD_REPLICA_NEED;
	}

	/* The home has no turn of its epoch behind that. */
	if (point->turn < copy->end.turn && copy->end.epoch == sender->epoch)
		return SHARD_REPLICA_FORKED;
	verdict = compare(copy, sender, point, find, context);
	if (verdict == SHARD_REPLICA_STORE)
	{
		*need = point->turn;
		return SHARD_REPLICA_NEED;
	}
	return verdict;
}

bool
shard_replica_promise(ShardReplicaCopy *copy, int32 epoch)
{
	if (epoch <= copy->promise)
		return false;
	copy->promise = epoch;
	return true;
}

void
shard_replica_stored(ShardReplicaCopy *copy, const ShardTurnRecord *record)
{
	copy->end = shard_turn_record_point(record);
	copy->oseq = record->first_oseq - 1 + record->n_outputs;
}

/* What is told has been acknowledged here under that epoch (Q11), so it is in this copy's history. */
void
shard_replica_told(ShardReplicaCopy *copy, int32 epoch, int64 released)
{
	if (epoch == copy->promise)
		copy->released = Max(copy->released, Min(released, copy->end.turn));
}

int64
shard_replica_may_apply(const ShardReplicaCopy *copy)
{
#ifdef SHARD_MUTANT_APPLIED_UNRELEASED
	return copy->end.turn;
#endif
	return copy->released;
}

void
shard_replica_applied(ShardReplicaCopy *copy, int64 turn)
{
	Assert(turn >= copy->applied && turn <= copy->released);
	copy->applied = turn;
}

/* ---- calls and answers ----------------------------------------------------------------------- */

static bool
good_shard(int32 type_id, int32 shard, int32 epoch)
{
	return type_id > 0 && shard >= 0 && epoch >= SHARD_FIRST_EPOCH;
}

static bool
good_turn(int64 turn)
{
	return turn >= 0 && turn < SHARD_TURN_MAX;
}

static bool
good_answer(const ShardReplicaAnswer *answer)
{
	return good_shard(answer->type_id, answer->shard, answer->epoch) &&
		   answer->verdict >= SHARD_REPLICA_STORED && answer->verdict < SHARD_REPLICA_VERDICTS &&
		   answer->verdict != SHARD_REPLICA_AHEAD && good_turn(answer->stored) &&
		   good_turn(answer->need) && (answer->need > 0) == (answer->verdict == SHARD_REPLICA_NEED);
}

static bool
good_offer(const ShardReplicaOffer *offer)
{
	const ShardTurnPoint *point = &offer->point;

	return good_shard(offer->type_id, offer->shard, offer->epoch) && good_turn(offer->released) &&
		   offer->n_records >= 0 && (!offer->asks || offer->n_records == 0) && point->epoch >= 0 &&
		   point->epoch <= offer->epoch && good_turn(point->turn) &&
		   (point->turn > 0 || (point->epoch == 0 && point->sum == 0));
}

static void
answer_fields(ShardFields *fields, ShardReplicaAnswer *answer)
{
	shard_fields_int32(fields, &answer->type_id);
	shard_fields_int32(fields, &answer->shard);
	shard_fields_int32(fields, &answer->epoch);
	shard_fields_int32(fields, &answer->verdict);
	shard_fields_int64(fields, &answer->stored);
	shard_fields_int64(fields, &answer->need);
}

static void
point_fields(ShardFields *fields, ShardTurnPoint *point)
{
	uint64 sum = point->sum;

	shard_fields_int32(fields, &point->epoch);
	shard_fields_int64(fields, &point->turn);
	shard_fields_uint64(fields, &sum);
	shard_fields_check(fields, sum <= PG_UINT32_MAX);
	if (!fields->out)
		point->sum = (uint32) sum;
}

static void
offer_fields(ShardFields *fields, ShardReplicaOffer *offer)
{
	shard_fields_int32(fields, &offer->type_id);
	shard_fields_int32(fields, &offer->shard);
	shard_fields_int32(fields, &offer->epoch);
	shard_fields_int64(fields, &offer->released);
	shard_fields_int32(fields, &offer->n_records);
	shard_fields_bool(fields, &offer->asks);
	if (offer->asks)
		point_fields(fields, &offer->point);
}

SHARD_FIELDS_CODEC(shard_replica_put_answer, shard_replica_get_answer, ShardReplicaAnswer, answer)
SHARD_FIELDS_CODEC(shard_replica_put_offer, shard_replica_get_offer, ShardReplicaOffer, offer)

/* ---- the home's side ------------------------------------------------------------------------- */

static const char *const state_names[] = {"unasked", "follows", "lacks", "left", "parted", NULL};

static const char *const event_names[] = {"acknowledged", "needs", "needs copy", "refuses",
										  "parts",		  "lost",  "spoiled",	 NULL};

static const ShardStep steps[] = {
	{SHARD_REPLICA_UNASKED, SHARD_REPLICA_ACKNOWLEDGED, SHARD_REPLICA_FOLLOWS,
	 "has what was asked for; what is behind that is shipped"},
	{SHARD_REPLICA_UNASKED, SHARD_REPLICA_NEEDS, SHARD_REPLICA_FOLLOWS, "is shipped from there on"},
	{SHARD_REPLICA_UNASKED, SHARD_REPLICA_NEEDS_COPY, SHARD_REPLICA_LACKS,
	 "what it acknowledged does not count any more"},
	{SHARD_REPLICA_UNASKED, SHARD_REPLICA_REFUSES, SHARD_REPLICA_LEFT, "a fact will come"},
	{SHARD_REPLICA_UNASKED, SHARD_REPLICA_PARTS, SHARD_REPLICA_PARTED, "nothing is cut"},
	{SHARD_REPLICA_UNASKED, SHARD_REPLICA_CALL_LOST, SHARD_REPLICA_UNASKED, "is asked again"},
	{SHARD_REPLICA_UNASKED, SHARD_REPLICA_SPOILED, SHARD_REPLICA_UNASKED, "is asked again"},

	{SHARD_REPLICA_FOLLOWS, SHARD_REPLICA_ACKNOWLEDGED, SHARD_REPLICA_FOLLOWS, "released may rise"},
	{SHARD_REPLICA_FOLLOWS, SHARD_REPLICA_NEEDS, SHARD_REPLICA_FOLLOWS,
	 "is shipped from there on; what it acknowledged above that does not count any more"},
	{SHARD_REPLICA_FOLLOWS, SHARD_REPLICA_NEEDS_COPY, SHARD_REPLICA_LACKS,
	 "what it acknowledged does not count any more"},
	{SHARD_REPLICA_FOLLOWS, SHARD_REPLICA_REFUSES, SHARD_REPLICA_LEFT, "a fact will come"},
	{SHARD_REPLICA_FOLLOWS, SHARD_REPLICA_PARTS, SHARD_REPLICA_PARTED, "nothing is cut"},
	{SHARD_REPLICA_FOLLOWS, SHARD_REPLICA_CALL_LOST, SHARD_REPLICA_UNASKED,
	 "it may have stored what was shipped, or not"},
	{SHARD_REPLICA_FOLLOWS, SHARD_REPLICA_SPOILED, SHARD_REPLICA_UNASKED,
	 "it has stored nothing of it, and is shipped it again"},
};

const ShardMachine shard_replica_machine = {
	.name = "replica",
	.state_names = state_names,
	.event_names = event_names,
	.steps = steps,
	.n_steps = lengthof(steps),
};

static ShardReplicaPeer *
find_peer(ShardReplicaHome *home, int32 node)
{
	for (int i = 0; i < home->n_peers; i++)
		if (home->peers[i].node == node)
			return &home->peers[i];
	return NULL;
}

const ShardReplicaPeer *
shard_replica_peer(const ShardReplicaHome *home, int32 node)
{
	return find_peer(unconstify(ShardReplicaHome *, home), node);
}

/* Q11: past the gate here, and acknowledged by all that are required; who that is, a fact has said. */
static bool
release(ShardReplicaHome *home)
{
	int64 released = home->passed;

	if (home->n == 0)
		return false;
#ifndef SHARD_MUTANT_GATE_WITHOUT_ACKS
	for (int i = 0; i < home->n_peers; i++)
		released = Min(released, home->peers[i].acked);
#endif
	if (released <= home->released)
		return false;
	home->released = released;
	return true;
}

void
shard_replica_begin(ShardReplicaHome *home, int32 epoch, const ShardTurnPoint *end, int64 oseq,
					int64 kept)
{
	Assert(kept > 0 && kept <= end->turn + 1);
	memset(home, 0, sizeof(*home));
	home->epoch = epoch;
	home->end = *end;
	home->oseq = oseq;
	home->kept = kept;
}

bool
shard_replica_require(ShardReplicaHome *home, int32 self, int64 n, const int32 *nodes, int n_nodes)
{
	ShardReplicaPeer before[SHARD_REPLICA_PEERS];
	int n_before = home->n_peers;

	Assert(n > 0 && n_nodes <= SHARD_REPLICA_PEERS);
	if (n <= home->n)
		return false;
	memcpy(before, home->peers, sizeof(before));
	home->n = n;
	home->n_peers = 0;
	for (int i = 0; i < n_nodes; i++)
	{
		ShardReplicaPeer *peer = &home->peers[home->n_peers];

		if (nodes[i] == self)
			continue;
		*peer = (ShardReplicaPeer){.node = nodes[i]};
		for (int j = 0; j < n_before; j++)
			if (before[j].node == nodes[i])
				*peer = before[j];
		home->n_peers++;
	}
	release(home);
	return true;
}

void
shard_replica_next(const ShardReplicaHome *home, int32 n_outputs, ShardTurnRecord *record)
{
	record->epoch = home->epoch;
	record->turn = home->end.turn + 1;
	record->before_epoch = home->end.epoch;
	record->before_sum = home->end.sum;
	record->first_oseq = home->oseq + 1;
	record->n_outputs = n_outputs;
}

void
shard_replica_committed(ShardReplicaHome *home, const ShardTurnRecord *record)
{
	Assert(record->epoch == home->epoch && record->turn == home->end.turn + 1);
	home->end = shard_turn_record_point(record);
	home->oseq = record->first_oseq - 1 + record->n_outputs;
#ifdef SHARD_MUTANT_SHIPPED_BEFORE_GATE
	shard_replica_passed(home, home->end.turn);
#endif
}

bool
shard_replica_passed(ShardReplicaHome *home, int64 turn)
{
	Assert(turn <= home->end.turn);
	home->passed = Max(home->passed, turn);
	return release(home);
}

bool
shard_replica_shipment(const ShardReplicaHome *home, int32 node, ShardReplicaShipment *shipment)
{
	const ShardReplicaPeer *peer = shard_replica_peer(home, node);

	memset(shipment, 0, sizeof(*shipment));
	if (peer == NULL || peer->calling)
		return false;
	shipment->from = peer->next;
	shipment->to = peer->next - 1;
	shipment->asks = peer->state == SHARD_REPLICA_UNASKED;
	if (peer->state == SHARD_REPLICA_FOLLOWS)
		shipment->to = Max(shipment->to, home->passed);

	/* It has said that it has this: released is what all have said. */
	shipment->released = Min(home->released, peer->acked);
	shipment->tells = peer->state == SHARD_REPLICA_FOLLOWS && shipment->released > peer->told;
	return shipment->asks || shipment->from <= shipment->to || shipment->tells;
}

void
shard_replica_shipped(ShardReplicaHome *home, int32 node, const ShardReplicaShipment *shipment)
{
	ShardReplicaPeer *peer = find_peer(home, node);

	Assert(peer != NULL && !peer->calling);
	peer->calling = true;
	peer->telling = shipment->released;
}

static ShardReplicaEvent
event_of(const ShardReplicaHome *home, const ShardReplicaPeer *peer,
		 const ShardReplicaAnswer *answer)
{
	switch (answer->verdict)
	{
		case SHARD_REPLICA_STORED:
			return SHARD_REPLICA_ACKNOWLEDGED;
		case SHARD_REPLICA_NEED:
			return answer->need >= home->kept && answer->need <= home->end.turn
					   ? SHARD_REPLICA_NEEDS
					   : SHARD_REPLICA_NEEDS_COPY;
		case SHARD_REPLICA_NEED_COPY:
			return SHARD_REPLICA_NEEDS_COPY;
		case SHARD_REPLICA_REFUSED:
			return SHARD_REPLICA_REFUSES;
		case SHARD_REPLICA_DAMAGED:
			return peer->spoiled + 1 < SHARD_REPLICA_MOST_SPOILED ? SHARD_REPLICA_SPOILED
																  : SHARD_REPLICA_PARTS;
		default:
			return SHARD_REPLICA_PARTS;
	}
}

/* The one transition function. False: in that state nothing is said to the node, so it has nothing to say. */
static bool
step(ShardReplicaPeer *peer, ShardReplicaEvent event)
{
	int next = shard_machine_next(&shard_replica_machine, peer->state, event);

	peer->calling = false;
	if (next < 0)
		return false;
	peer->state = next;
	if (event == SHARD_REPLICA_CALL_LOST)
		peer->told = 0;
	return true;
}

bool
shard_replica_answered(ShardReplicaHome *home, int32 node, const ShardReplicaAnswer *answer)
{
	ShardReplicaPeer *peer = find_peer(home, node);
	ShardReplicaEvent event;

	if (peer == NULL || answer->epoch != home->epoch)
		return false;
	event = event_of(home, peer, answer);
	if (!step(peer, event))
		return false;
	if (answer->stored <= home->end.turn && answer->stored > peer->acked)
	{
		peer->acked = answer->stored;
		peer->spoiled = 0;
	}
	peer->next = peer->acked + 1;
	switch (event)
	{
		case SHARD_REPLICA_ACKNOWLEDGED:
			peer->told = peer->telling;
			break;
		case SHARD_REPLICA_NEEDS:
			/* It has something up to there, which need not be what the home has: no acknowledgement. */
			peer->acked = Min(peer->acked, answer->need - 1);
			peer->next = answer->need;
			break;
		case SHARD_REPLICA_NEEDS_COPY:
			peer->acked = 0;
			break;
		case SHARD_REPLICA_SPOILED:
			peer->spoiled++;
			break;
		default:
			break;
	}
	return release(home);
}

void
shard_replica_call_lost(ShardReplicaHome *home, int32 node)
{
	ShardReplicaPeer *peer = find_peer(home, node);

	if (peer != NULL)
		step(peer, SHARD_REPLICA_CALL_LOST);
}

void
shard_replica_link_ended(ShardReplicaHome *home, int32 node)
{
	ShardReplicaPeer *peer = find_peer(home, node);

#ifdef SHARD_MUTANT_TOLD_OUTLIVES_LINK
	return;
#endif
	if (peer != NULL)
		peer->told = 0;
}

void
shard_replica_is_lacking(ShardReplicaHome *home, int32 node)
{
	ShardReplicaPeer *peer = find_peer(home, node);

	if (peer == NULL || peer->calling)
		return;
	if (step(peer, SHARD_REPLICA_NEEDS_COPY))
		peer->acked = 0;
}

int64
shard_replica_may_forget(const ShardReplicaHome *home, int64 undone)
{
	int64 needed = Min(home->released + 1, undone);

	for (int i = 0; i < home->n_peers; i++)
		needed = Min(needed, home->peers[i].acked + 1);
	return Max(needed, home->kept);
}

void
shard_replica_forgotten(ShardReplicaHome *home, int64 kept)
{
	Assert(kept <= home->end.turn + 1);
	home->kept = Max(home->kept, kept);
}
