/*
 * voter_test.c
 *		What voters remember of one another, and are reminded of (R12, R23).
 */
#include "postgres_fe.h"

#include "core/base/timing.h"
#include "core/map/voter.h"
#include "unit.h"

/* A seal for a world that breaks no codes; arg: the voter's secret. */
static ShardUuid
seal(const void *arg, int64 promised, ShardMapPoint point)
{
	uint64 hash = *(const uint64 *) arg;

	hash = (hash ^ (uint64) promised) * UINT64CONST(0x100000001b3);
	hash = (hash ^ (uint64) point.b) * UINT64CONST(0x100000001b3);
	hash = (hash ^ (uint64) point.n) * UINT64CONST(0x100000001b3);
	return (ShardUuid){hash, ~hash};
}

/* A voter of two, 1 and 2. */
static ShardVoter *
new_voter(int32 self, const uint64 *secret, ShardActions *out)
{
	ShardVoter *voter = shard_voter_create(self);
	ShardVotersRecord voters = {2, {1, 2}, 0, {0}, 0, {NULL, 0}};
	ShardMapEntry entry = shard_record_put_voters(&voters, 1, out->arena);

	shard_voter_set_seal(voter, seal, secret);
	shard_voter_found(voter, 1 << 16 | 1, &entry, 1, out);
	return voter;
}

/* The last answer of the step, as from that node. */
static ShardControl
last_sent(const ShardActions *out, int32 from)
{
	ShardControl message = {0};

	for (int i = 0; i < out->n_actions; i++)
	{
		if (out->actions[i].kind == SHARD_ACTION_SEND)
			message = *out->actions[i].message;
	}
	message.from = from;
	return message;
}

/*
 * R12, R23, P41: node 1 votes, is put back, and is reminded by node 2 of each kind of vote: by its seal, and once. Without
 * it, or with that of something else that it said, nobody makes it forgetful.
 */
static void
test_reminders(void)
{
	static const uint64 secrets[] = {11, 22};
	static const ShardControlKind kinds[] = {SHARD_CONTROL_PREPARE, SHARD_CONTROL_SYNC,
											 SHARD_CONTROL_ACCEPT};
	ShardActions *out = shard_action_create();

	for (int i = 0; i < (int) lengthof(kinds); i++)
	{
		const char *name = shard_control_name(kinds[i]);
		ShardVoter *voter = new_voter(1, &secrets[0], out);
		ShardVoter *other = new_voter(2, &secrets[1], out);
		ShardVoter *before = new_voter(1, &secrets[0], out);
		ShardControl message = {.kind = SHARD_CONTROL_PREPARE, .from = 2, .b = 7 << 16 | 2};
		ShardControl reminder = {.kind = SHARD_CONTROL_HEARTBEAT, .from = 2};
		ShardControl forged;

		/* An ACCEPT is for who is where the coordinator is, so after a SYNC. */
		for (int k = 0; k <= i; k++)
		{
			message.kind = kinds[k];
			message.any_point =
				k == 1 ? (ShardMapPoint){message.b, 2} : shard_map_point(shard_voter_map(voter));
			message.batch_n = k == 2 ? 3 : 0;
			shard_action_reset(out);
			shard_voter_receive(voter, 0, &message, false, out);
			message = last_sent(out, 1);
			shard_voter_observe(other, &message);
			message = (ShardControl){.from = 2, .b = 7 << 16 | 2};
		}
		shard_voter_remind(other, 1, &reminder);
		is_int(reminder.ballot, 7 << 16 | 2, "%s: the ballot is remembered", name);
		is_int(reminder.remembered.n, i + 1, "and the point");

		shard_action_reset(out);
		shard_voter_reminded(voter, &reminder, out);
		is_int(shard_voter_state(voter), SHARD_VOTER_OK, "who has forgotten nothing is not told");
		ok(out->n_writes == 0 && out->n_actions == 0, "nor writes");

		forged = reminder;
		forged.uuid = (ShardUuid){0, 0};
		shard_voter_reminded(before, &forged, out);
		forged = reminder;
		forged.ballot += 1 << 16;
		shard_voter_reminded(before, &forged, out);
		forged = reminder;
		forged.remembered.n++;
		shard_voter_reminded(before, &forged, out);
		is_int(shard_voter_state(before), SHARD_VOTER_OK, "nor who is told without its seal");
		ok(out->n_writes == 0, "which writes nothing");
		is_int(out->n_actions, 3, "and is said");

		shard_action_reset(out);
		shard_voter_reminded(before, &reminder, out);
		is_int(shard_voter_state(before), SHARD_VOTER_AMNESIAC, "who has forgotten is told");
		ok(out->n_writes > 0, "durably");
		shard_voter_readmit(before, out);
		message = (ShardControl){.kind = SHARD_CONTROL_SYNC,
								 .from = 2,
								 .b = 8 << 16 | 2,
								 .target = {8 << 16 | 2, 5}};
		shard_voter_receive(before, 0, &message, false, out);
		shard_action_reset(out);
		shard_voter_reminded(before, &reminder, out);
		is_int(shard_voter_state(before), SHARD_VOTER_OK, "and once");
		shard_voter_destroy(voter);
		shard_voter_destroy(other);
		shard_voter_destroy(before);
	}
	shard_action_destroy(out);
}

/* A candidate's own ballot is remembered, with its seal; and nothing of an era that is over. */
static void
test_reminders_of_candidates(void)
{
	static const uint64 secrets[] = {11, 22};
	ShardActions *out = shard_action_create();
	ShardVoter *candidate = new_voter(1, &secrets[0], out);
	ShardVoter *other = new_voter(2, &secrets[1], out);
	ShardControl message = {.kind = SHARD_CONTROL_PREPARE, .from = 1, .b = 9 << 16 | 1};
	ShardControl reminder = {.kind = SHARD_CONTROL_HEARTBEAT, .from = 2};
	int32 voters[] = {2};

	shard_voter_remind(candidate, 2, &message);
	shard_voter_observe(other, &message);
	shard_voter_remind(other, 1, &reminder);
	shard_voter_reminded(candidate, &reminder, out);
	is_int(shard_voter_state(candidate), SHARD_VOTER_AMNESIAC,
		   "a candidate that has forgotten its ballot is told");
	shard_voter_force(other, 20 << 16 | 2, shard_voter_map(other), voters, 1, 1, out);
	reminder = (ShardControl){.kind = SHARD_CONTROL_HEARTBEAT, .from = 2};
	shard_voter_remind(other, 1, &reminder);
	is_int(reminder.ballot, 0, "forced voters remind nobody of the era before");
	shard_voter_destroy(candidate);
	shard_voter_destroy(other);
	shard_action_destroy(out);
}

/* How many maps a voter gives to that candidate, who asks for it then. */
static int
fetches(ShardVoter *voter, int32 from, int64 b, int64 at)
{
	ShardActions *out = shard_action_create();
	ShardControl message = {.kind = SHARD_CONTROL_FETCH, .from = from, .b = b};
	int count = 0;

	shard_voter_receive(voter, at, &message, false, out);
	for (int i = 0; i < out->n_actions; i++)
		count += out->actions[i].kind == SHARD_ACTION_SEND &&
				 out->actions[i].message->kind == SHARD_CONTROL_STATE;
	shard_action_destroy(out);
	return count;
}

static int64
prepares(ShardVoter *voter, int64 round, int32 from, ShardActions *out)
{
	ShardControl message = {.kind = SHARD_CONTROL_PREPARE, .from = from, .b = round << 16 | from};

	shard_voter_receive(voter, 0, &message, false, out);
	return message.b;
}

/* R2, P68: a candidate is given the map again when it may have been lost, whatever its ballot is meanwhile. */
static void
test_fetch(void)
{
	static const uint64 secret = 11;
	const int64 begin = 7 * SHARD_SECOND;
	ShardActions *out = shard_action_create();
	ShardVoter *voter = new_voter(1, &secret, out);
	int64 b = prepares(voter, 7, 2, out);
	int given = 0;

	for (int i = 0; i < 1000; i++)
		given += fetches(voter, 2, b, begin + i);
	is_int(given, 1, "a candidate that asks again and again is given the map once");
	for (int round = 8; round < 100; round++)
	{
		b = prepares(voter, round, 2, out);
		given += fetches(voter, 2, b, begin + SHARD_RESEND_INTERVAL - 1);
	}
	is_int(given, 1, "nor again for another ballot");
	is_int(fetches(voter, 2, b, begin + SHARD_RESEND_INTERVAL), 1, "but when it may be lost");

	b = prepares(voter, 100, 3, out);
	is_int(fetches(voter, 3, b, begin + SHARD_RESEND_INTERVAL), 1, "another candidate is, too");
	given = 0;
	for (int node = 4; node < 1000; node++)
	{
		b = prepares(voter, 100 + node, node, out);
		given += fetches(voter, node, b, begin + SHARD_RESEND_INTERVAL);
	}
	is_int(given, 2 * SHARD_MAX_VOTERS - 2, "not hundreds at once");
	b = prepares(voter, 2000, 1, out);
	is_int(fetches(voter, 1, b, begin + SHARD_RESEND_INTERVAL) +
			   fetches(voter, 1, b, begin + SHARD_RESEND_INTERVAL),
		   2, "the own node always");
	shard_voter_destroy(voter);
	shard_action_destroy(out);
}

int
main(void)
{
	test_fetch();
	test_reminders();
	test_reminders_of_candidates();
	return unit_done();
}
