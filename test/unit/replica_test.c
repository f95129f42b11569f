/*
 * replica_test.c
 *		Copies: what a copy does about what is offered, and what a home waits for, ships and forgets.
 */
#include "postgres_fe.h"

#include "core/flow/replica.h"
#include "forms.h"

FORM_FUNCTIONS(shard_replica, answer, ShardReplicaAnswer, _answer)
FORM_FUNCTIONS(shard_replica, offer, ShardReplicaOffer, _offer)

static const Form forms[] = {FORM(answer, ShardReplicaAnswer), FORM(offer, ShardReplicaOffer)};

#define TURNS 16

/* A history: epochs and sums by turn. */
typedef struct History
{
	int64 turns;
	int64 forgotten; /* nothing up to here is stored */
	ShardTurnPoint points[TURNS];
} History;

/* A turn of that epoch; content tells turns of the same number apart. */
static void
add_turn(History *history, int32 epoch, int content)
{
	ShardTurnPoint *last = &history->points[history->turns];

	last[1] = (ShardTurnPoint){epoch, last->turn + 1, last->sum * 31 + content};
	history->turns++;
}

static bool
find_turn(void *context, int64 turn, ShardTurnPoint *point)
{
	const History *history = context;

	if (turn <= history->forgotten)
		return false;
	*point = history->points[turn];
	return true;
}

static ShardTurnRecord
record_of(const History *history, int64 turn)
{
	const ShardTurnPoint *point = &history->points[turn];

	return (ShardTurnRecord){.type_id = 7,
							 .shard = 5,
							 .epoch = point->epoch,
							 .turn = turn,
							 .before_epoch = point[-1].epoch,
							 .before_sum = point[-1].sum,
							 .first_oseq = turn,
							 .n_outputs = 1,
							 .sum = point->sum};
}

/* A copy that has a history, and what it makes of a record of another one, sent by the home of that epoch. */
static ShardReplicaCopy copy;
static History stored;
static int64 need;

static ShardReplicaVerdict
judge(const History *history, int64 turn, int32 epoch)
{
	ShardReplicaSender sender = {epoch, epoch, true};
	ShardTurnRecord record = record_of(history, turn);

	copy.end = stored.points[stored.turns];
	return shard_replica_judge(&copy, &sender, &record, find_turn, &stored, &need);
}

static ShardReplicaVerdict
ask(const History *history, int64 turn, int32 epoch)
{
	ShardReplicaSender sender = {epoch, epoch, true};

	copy.end = stored.points[stored.turns];
	return shard_replica_ask(&copy, &sender, &history->points[turn], find_turn, &stored, &need);
}

static void
begin(History *history)
{
	memset(&copy, 0, sizeof(copy));
	memset(&stored, 0, sizeof(stored));
	memset(history, 0, sizeof(*history));
}

static void
test_chain(void)
{
	History home;

	begin(&home);
	for (int i = 0; i < 6; i++)
		add_turn(&home, 1, i);
	is_int(ask(&home, 0, 1), SHARD_REPLICA_STORED, "an empty copy has what an empty home has");
	is_int(ask(&home, 6, 1), SHARD_REPLICA_NEED, "not what another one has");
	is_int(need, 1, "it needs all");
	is_int(judge(&home, 3, 1), SHARD_REPLICA_NEED, "a record behind a gap");
	is_int(need, 1, "waits for that");
	is_int(judge(&home, 1, 1), SHARD_REPLICA_STORE, "the first one is stored");
	for (int i = 0; i < 4; i++)
		add_turn(&stored, 1, i);
	is_int(judge(&home, 5, 1), SHARD_REPLICA_STORE, "one that follows, too");
	is_int(judge(&home, 4, 1), SHARD_REPLICA_STORED, "the last one again is");
	is_int(judge(&home, 2, 1), SHARD_REPLICA_STORED, "so is an old one");
	is_int(judge(&home, 6, 1), SHARD_REPLICA_NEED, "a gap");
	is_int(need, 5, "is filled first");
	is_int(ask(&home, 4, 1), SHARD_REPLICA_STORED, "it has what it has");
	is_int(ask(&home, 5, 1), SHARD_REPLICA_NEED, "and not more");
	is_int(need, 5, "it needs what is behind its end");
	stored.forgotten = copy.applied = copy.released = 3;
	is_int(judge(&home, 2, 1), SHARD_REPLICA_STORED, "what is applied and forgotten is stored");
	copy.applied = copy.released = 1;
	is_int(judge(&home, 2, 1), SHARD_REPLICA_NEED_COPY,
		   "what is only forgotten cannot be compared");
}

static void
test_promise(void)
{
	History home;
	ShardReplicaSender sender = {2, 2, true};
	ShardTurnRecord record;

	begin(&home);
	add_turn(&home, 1, 1);
	add_turn(&home, 2, 2);
	ok(shard_replica_promise(&copy, 2) && !shard_replica_promise(&copy, 2),
	   "a promise is news once");
	ok(!shard_replica_promise(&copy, 1) && copy.promise == 2, "it never falls");
	is_int(judge(&home, 1, 2), SHARD_REPLICA_STORE,
		   "who is home now sends records of epochs before its own");
	is_int(judge(&home, 1, 1), SHARD_REPLICA_REFUSED, "who was home does not");
	record = record_of(&home, 1);
	sender.learned = 1;
	is_int(shard_replica_judge(&copy, &sender, &record, find_turn, &stored, &need),
		   SHARD_REPLICA_AHEAD, "of who will be home nothing is known yet");
	sender.learned = 3;
	is_int(shard_replica_judge(&copy, &sender, &record, find_turn, &stored, &need),
		   SHARD_REPLICA_REFUSED, "what is learned counts before it is promised");
	sender = (ShardReplicaSender){2, 2, false};
	is_int(shard_replica_judge(&copy, &sender, &record, find_turn, &stored, &need),
		   SHARD_REPLICA_REFUSED, "another node is not home");
	sender = (ShardReplicaSender){2, 2, true};
	record.epoch = 3;
	is_int(shard_replica_judge(&copy, &sender, &record, find_turn, &stored, &need),
		   SHARD_REPLICA_REFUSED, "no home has records of epochs to come");
}

/* A tail of an epoch that is over; and one of the home's own epoch. */
static void
test_forks(void)
{
	History home;

	begin(&home);
	for (int i = 1; i <= 3; i++)
		add_turn(&home, 1, i);
	stored = home;
	for (int i = 0; i < 3; i++)
	{
		add_turn(&stored, 1, 50 + i);
		add_turn(&home, 2, 60 + i);
	}
	is_int(ask(&home, 6, 2), SHARD_REPLICA_NEED, "another tail of the same length");
	is_int(need, 6, "is compared back");
	is_int(judge(&home, 6, 2), SHARD_REPLICA_NEED, "turn");
	is_int(need, 5, "for");
	is_int(judge(&home, 5, 2), SHARD_REPLICA_NEED, "turn");
	is_int(need, 4, "until one fits,");
	is_int(judge(&home, 4, 2), SHARD_REPLICA_REPLACE, "which takes the place of the tail");
	is_int(ask(&home, 3, 2), SHARD_REPLICA_STORED, "a home before its first turn");
	stored.turns = 4;
	is_int(judge(&home, 6, 2), SHARD_REPLICA_NEED, "a shorter tail,");
	is_int(need, 5, "offered what is behind its end");
	is_int(judge(&home, 5, 2), SHARD_REPLICA_NEED, "is compared back, too:");
	is_int(need, 4, "lengths say nothing");
	stored.turns = 6;
	copy.released = 4;
	is_int(judge(&home, 4, 2), SHARD_REPLICA_BROKEN, "what is released is never cut");
	copy.released = 0;
	stored.forgotten = 3;
	is_int(judge(&home, 4, 2), SHARD_REPLICA_NEED_COPY,
		   "nor what stands behind something forgotten");
	stored.forgotten = 0;
	home.turns = 3;
	add_turn(&home, 1, 70);
	is_int(judge(&home, 4, 1), SHARD_REPLICA_FORKED,
		   "turns of the sender's own epoch that it does not know");
	is_int(ask(&home, 3, 1), SHARD_REPLICA_FORKED, "also if it asks");
	is_int(ask(&home, 0, 1), SHARD_REPLICA_FORKED, "or has nothing at all");
	stored.turns = 3;
	home.turns = 3;
	add_turn(&home, 2, 60);
	is_int(judge(&home, 4, 2), SHARD_REPLICA_STORE, "without the tail it goes on");
}

static void
test_told(void)
{
	History home;
	ShardTurnRecord record;

	begin(&home);
	add_turn(&home, 2, 1);
	add_turn(&home, 2, 2);
	copy.promise = 2;
	for (int turn = 1; turn <= 2; turn++)
	{
		record = record_of(&home, turn);
		shard_replica_stored(&copy, &record);
	}
	ok(copy.end.turn == 2 && copy.oseq == 2, "what is stored is the end");
	shard_replica_told(&copy, 1, 2);
	is_int(shard_replica_may_apply(&copy), 0, "a home of before says nothing of it");
	shard_replica_told(&copy, 2, 1);
	shard_replica_told(&copy, 2, 0);
	is_int(shard_replica_may_apply(&copy), 1, "released never falls");
	shard_replica_told(&copy, 2, 9);
	is_int(shard_replica_may_apply(&copy), 2, "nor is it behind the end");
	shard_replica_applied(&copy, 2);
	is_int(copy.applied, 2, "it is applied");
}

/* ---- the home's side ------------------------------------------------------------------------- */

static ShardReplicaHome home;
static ShardReplicaShipment shipment;

static void
commit(int turns, bool passed)
{
	for (int i = 0; i < turns; i++)
	{
		ShardTurnRecord record = {.type_id = 7, .shard = 5};

		shard_replica_next(&home, 2, &record);
		record.sum = record.before_sum * 31 + 1;
		shard_replica_committed(&home, &record);
		if (passed)
			shard_replica_passed(&home, record.turn);
	}
}

static bool
ship(int32 node)
{
	if (!shard_replica_shipment(&home, node, &shipment))
		return false;
	shard_replica_shipped(&home, node, &shipment);
	return true;
}

static bool
answer(int32 node, ShardReplicaVerdict verdict, int64 up_to, int64 from)
{
	ShardReplicaAnswer said = {7, 5, home.epoch, verdict, up_to, from};

	return shard_replica_answered(&home, node, &said);
}

static void
start(int64 turns, int32 backups)
{
	static const int32 nodes[] = {1, 2, 3, 4};
	ShardTurnPoint end = {turns > 0 ? 1 : 0, turns, turns > 0 ? 77 : 0};

	shard_replica_begin(&home, 1, &end, turns, 1);
	shard_replica_require(&home, 1, 10, nodes, 1 + backups);
}

static void
test_release(void)
{
	ShardTurnPoint nothing = {0, 0, 0};

	shard_replica_begin(&home, 1, &nothing, 0, 1);
	commit(1, true);
	is_int(home.released, 0, "nothing is released before it is known who is required");
	start(0, 0);
	commit(1, true);
	is_int(home.released, 1, "a home alone waits for its gate only");

	start(0, 2);
	ok(ship(2) && shipment.asks && shipment.from > shipment.to, "a copy is asked first");
	ok(!ship(2), "a call at a time");
	ok(!answer(2, SHARD_REPLICA_STORED, 0, 0), "it has as much as the home: nothing");
	ok(!ship(2), "then there is nothing to say");
	commit(2, false);
	ok(!ship(2), "nothing leaves before the gate");
	shard_replica_passed(&home, 1);
	ok(ship(2) && shipment.from == 1 && shipment.to == 1 && !shipment.asks, "then what has passed");
	ok(!answer(2, SHARD_REPLICA_STORED, 1, 0), "one of two is not enough");
	ship(3);
	ok(!answer(3, SHARD_REPLICA_NEED, 0, 1), "the other one needs all");
	ok(ship(3) && shipment.from == 1, "gets it");
	ok(answer(3, SHARD_REPLICA_STORED, 1, 0) && home.released == 1, "and releases it");
	shard_replica_passed(&home, 2);
	ok(ship(2) && shipment.from == 2 && shipment.released == 1 && shipment.tells,
	   "released goes with the next record");
	answer(2, SHARD_REPLICA_STORED, 2, 0);
	ok(ship(3) && shipment.tells, "to each");
	ok(answer(3, SHARD_REPLICA_STORED, 2, 0) && home.released == 2, "the next turn is released");
	ok(shard_replica_is_released(&home, 2) && !shard_replica_is_released(&home, 3), "and no other");
	ok(ship(2) && shipment.tells && shipment.from > shipment.to, "which is told without a record");
	answer(2, SHARD_REPLICA_STORED, 0, 0);
	ok(!ship(2), "once");
}

/* Whether the connection has ended while a call was under way, or between calls: what was told is told again. */
static void
test_told_again(void)
{
	start(0, 1);
	ship(2);
	answer(2, SHARD_REPLICA_STORED, 0, 0);
	commit(2, true);
	ship(2);
	answer(2, SHARD_REPLICA_STORED, 2, 0);
	ok(ship(2) && shipment.tells && shipment.released == 2, "what is released is told");
	answer(2, SHARD_REPLICA_STORED, 2, 0);
	ok(!ship(2), "once in a connection");
	shard_replica_link_ended(&home, 3);
	ok(!ship(2), "whatever becomes of another one");
	shard_replica_link_ended(&home, 2);
	ok(ship(2) && shipment.tells && shipment.released == 2 && !shipment.asks,
	   "and again, without a question, when it has ended");
	answer(2, SHARD_REPLICA_STORED, 2, 0);
	ok(!ship(2), "once");
	commit(1, true);
	ship(2);
	shard_replica_call_lost(&home, 2);
	shard_replica_link_ended(&home, 2);
	ok(ship(2) && shipment.asks && shipment.released == 2,
	   "with the question, if a call was under way");
	answer(2, SHARD_REPLICA_STORED, 3, 0);
	ok(ship(2) && shipment.tells && shipment.released == 3, "then what that releases");
}

static void
test_restart(void)
{
	static const int32 without[] = {1, 3};

	start(5, 2);
	shard_replica_passed(&home, 5);
	is_int(home.released, 0, "what was released is not known after a start");
	ok(ship(2) && shipment.asks, "all are asked");
	answer(2, SHARD_REPLICA_STORED, 5, 0);
	ship(3);
	ok(!answer(3, SHARD_REPLICA_NEED, 0, 4), "what it needs from there on is no acknowledgement");
	is_int(home.released, 0, "its turns up to there may be others");
	ok(ship(3) && shipment.from == 4 && shipment.to == 5, "it is shipped");
	shard_replica_call_lost(&home, 3);
	ok(ship(3) && shipment.asks, "a call that was lost: it is asked");
	ok(answer(3, SHARD_REPLICA_STORED, 5, 0) && home.released == 5, "and has all");

	start(5, 2);
	shard_replica_passed(&home, 5);
	ship(2);
	answer(2, SHARD_REPLICA_STORED, 5, 0);
	ok(!shard_replica_require(&home, 1, 10, without, 2), "a fact that is known changes nothing");
	ok(shard_replica_require(&home, 1, 11, without, 2) && shard_replica_peer(&home, 2) == NULL,
	   "who was put out is not waited for");
	is_int(home.released, 0, "the other one is");
	ship(3);
	ok(answer(3, SHARD_REPLICA_STORED, 5, 0), "which releases it");
	ok(shard_replica_require(&home, 1, 12, (const int32[]){1, 3, 2}, 3) &&
		   shard_replica_peer(&home, 2)->acked == 0,
	   "who comes back has acknowledged nothing");
	is_int(home.released, 5, "and what is released stays so");
}

static void
test_lacking(void)
{
	ShardReplicaAnswer old = {7, 5, 0, SHARD_REPLICA_STORED, 5, 0};

	start(5, 1);
	shard_replica_passed(&home, 5);
	shard_replica_forgotten(&home, 3);
	ship(2);
	ok(!shard_replica_answered(&home, 2, &old) && home.released == 0,
	   "an acknowledgement of another epoch does not count");
	answer(2, SHARD_REPLICA_NEED, 0, 2);
	is_int(shard_replica_peer(&home, 2)->state, SHARD_REPLICA_LACKS,
		   "who needs what the home has not needs a copy");
	ok(!ship(2), "nothing is shipped to it");
	start(5, 1);
	ship(2);
	answer(2, SHARD_REPLICA_REFUSED, 0, 0);
	is_int(shard_replica_peer(&home, 2)->state, SHARD_REPLICA_LEFT, "who knows of a newer home");
	ok(!ship(2), "is left alone");
	start(5, 1);
	ship(2);
	answer(2, SHARD_REPLICA_FORKED, 0, 0);
	is_int(shard_replica_peer(&home, 2)->state, SHARD_REPLICA_PARTED,
		   "so is who knows more of the epoch than its home");
	start(5, 1);
	shard_replica_passed(&home, 5);
	ship(2);
	answer(2, SHARD_REPLICA_STORED, 5, 0);
	commit(1, true);
	ship(2);
	answer(2, SHARD_REPLICA_NEED, 0, 3);
	ok(shard_replica_peer(&home, 2)->acked == 2 && home.released == 5,
	   "who has dropped its copy has acknowledged nothing of it any more");
	start(5, 1);
	shard_replica_passed(&home, 5);
	ship(2);
	shard_replica_is_lacking(&home, 2);
	is_int(shard_replica_peer(&home, 2)->state, SHARD_REPLICA_UNASKED,
		   "who is called is left to the answer");
	answer(2, SHARD_REPLICA_STORED, 3, 0);
	shard_replica_is_lacking(&home, 2);
	ok(shard_replica_peer(&home, 2)->state == SHARD_REPLICA_LACKS && !ship(2),
	   "who needs a record that is gone needs a copy");
	start(5, 1);
	shard_replica_passed(&home, 5);
	ship(2);
	answer(2, SHARD_REPLICA_STORED, 3, 0);
	ship(2);
	answer(2, SHARD_REPLICA_DAMAGED, 0, 0);
	ok(ship(2) && shipment.asks, "who finds records damaged is asked again");
	answer(2, SHARD_REPLICA_NEED, 0, 4);
	ok(ship(2) && shipment.from == 4, "and shipped them again");
	answer(2, SHARD_REPLICA_DAMAGED, 0, 0);
	ship(2);
	answer(2, SHARD_REPLICA_NEED, 0, 4);
	ship(2);
	answer(2, SHARD_REPLICA_STORED, 4, 0);
	for (int i = 1; i <= SHARD_REPLICA_MOST_SPOILED; i++)
	{
		is_int(shard_replica_peer(&home, 2)->state, SHARD_REPLICA_FOLLOWS,
			   "what was stored between them begins the count anew");
		ship(2);
		answer(2, SHARD_REPLICA_DAMAGED, 0, 0);
		if (ship(2))
			answer(2, SHARD_REPLICA_NEED, 0, 5);
	}
	ok(shard_replica_peer(&home, 2)->state == SHARD_REPLICA_PARTED && !ship(2),
	   "who finds them damaged each time is not shipped them without end");
}

static void
test_forgetting(void)
{
	start(0, 1);
	ship(2);
	answer(2, SHARD_REPLICA_STORED, 0, 0);
	commit(5, true);
	is_int(shard_replica_may_forget(&home, PG_INT64_MAX), 1, "what is not released is kept");
	ship(2);
	answer(2, SHARD_REPLICA_STORED, 3, 0);
	is_int(shard_replica_may_forget(&home, PG_INT64_MAX), 4, "what is released is not");
	is_int(shard_replica_may_forget(&home, 2), 2, "unless its outputs are not done");
	shard_replica_forgotten(&home, 4);
	is_int(shard_replica_may_forget(&home, 2), 4, "what is forgotten stays forgotten");
	is_int(home.oseq, 10, "outputs are counted on");
}

static void
test_forms(void)
{
	ShardReplicaAnswer said = {7, 999999, 3, SHARD_REPLICA_NEED, 5, 6};
	ShardReplicaOffer offer = {7, 999999, 3, 5, 4, false, {0, 0, 0}};
	ShardReplicaOffer question = {7, 0, 3, 0, 0, true, {2, SHARD_TURN_MAX - 1, PG_UINT32_MAX}};

	check_round_trip(find_form(forms, lengthof(forms), "answer"), &said, "an answer");
	check_round_trip(find_form(forms, lengthof(forms), "offer"), &offer, "records");
	check_round_trip(find_form(forms, lengthof(forms), "offer"), &question, "a question");
}

int
main(void)
{
	test_chain();
	test_promise();
	test_forks();
	test_told();
	test_release();
	test_told_again();
	test_restart();
	test_lacking();
	test_forgetting();
	test_forms();
	return unit_done();
}
