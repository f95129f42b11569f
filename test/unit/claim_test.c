/*
 * claim_test.c
 *		Who is let in as a node that starts anew, when others claim its place (I16).
 */
#include "postgres_fe.h"

#include "roster_world.h"

/* Somebody claims a node's place, in the name of from; what the coordinator wants done then is not. */
static void
claims(int32 from, int32 node, uint64 uuid)
{
	ShardControl message = {.kind = SHARD_CONTROL_ADMIT,
							.from = from,
							.node = node,
							.inc_no = 1,
							.uuid = {uuid, 1},
							.start_kind = SHARD_START_RESTART};

	shard_roster_receive(peers[0].roster, now, &message, peers[0].proposer, out);
	for (int i = 0; i < out->n_actions; i++)
		if (out->actions[i].kind == SHARD_ACTION_LOG)
		{
			strlcpy(last_log, out->actions[i].text, sizeof(last_log));
			last_which = out->actions[i].to;
		}
	shard_action_reset(out);
}

static void
claims_many(int32 node, uint64 first_uuid)
{
	for (uint64 i = 0; i < 3 * SHARD_MAX_CLAIMS; i++)
		claims(node, node, first_uuid + i);
}

static void
is_found(int32 node, uint64 uuid)
{
	ShardControl message = {.kind = SHARD_CONTROL_I_AM, .node = node, .uuid2 = {uuid, 1}};

	shard_roster_receive(peers[0].roster, now, &message, peers[0].proposer, out);
	shard_action_reset(out);
}

/* P54: who sits at the address is let in, however many others claim its place meanwhile. */
static void
test_false_claims(void)
{
	int32 nodes[SHARD_MAX_CLAIMS];

	form(3);
	peers[2].cut = true;
	run(4 * S);
	last_log[0] = '\0';
	claims(2, 3, 300);
	ok(strstr(last_log, "node 2, or a caller in its name, claims to be node 3") != NULL,
	   "nobody claims the place of another node: %s", last_log);
	is_found(3, 300);
	run(S);
	is_member(3, SHARD_MEMBER_UP, 1, "nor is it given that");

	/* The true one is found while its claim has been pushed out, and claims again behind many others. */
	run(5 * S);
	claims_many(3, 1000);
	claims(3, 3, 300);
	claims_many(3, 2000);
	is_found(3, 300);
	claims_many(3, 3000);
	is_member(3, SHARD_MEMBER_UP, 1, "so far nobody is admitted");
	claims(3, 3, 300);
	run(S);
	is_member(3, SHARD_MEMBER_UP, 2, "who sits at the address is");

	/* What is refused is no copy for that. */
	claims_many(3, 4000);
	is_int(shard_roster_claimed(peers[0].roster, true, nodes), 0, "nobody there claims the place,");
	is_int(shard_roster_claimed(peers[0].roster, false, nodes), 1, "somebody else does");
	claims(3, 3, 5000);
	is_found(3, 5000);
	is_int(shard_roster_claimed(peers[0].roster, true, nodes), 1, "a copy there is one");
	is_int(shard_roster_claimed(peers[0].roster, false, nodes), 0, "whoever claims it besides");
	run(5 * S);
	is_int(shard_roster_claimed(peers[0].roster, true, nodes), 0, "until it claims no more");
	finish();
}

/* The same, by a node that starts anew. */
static void
test_restart_among_false_claims(void)
{
	form(3);
	(void) restart(2, 300, SHARD_START_RESTART);
	for (uint64 i = 0; i < 100; i++)
	{
		claims_many(3, 1000 * (i + 1));
		run(STEP);
	}
	is_member(3, SHARD_MEMBER_UP, 2, "a node that starts anew is let in");
	is_int(peers[2].inc_no, 2, "and hears it");
	finish();
}

/* I16: who was found at an address is nobody at the next one. */
static void
test_another_address(void)
{
	ShardAddress address = {.dsn = "elsewhere", .ground = SHARD_ADDRESS_SAID};
	const char *why;
	bool taken;

	form(3);
	peers[2].cut = true;
	run(5 * S);
	is_found(3, 300);
	ok(shard_roster_set_address(peers[0].roster, now, 3, &address, peers[0].proposer, &taken,
								&why) &&
		   taken,
	   "a node gets another address");
	is_found(3, 300);
	run(STEP);
	claims(3, 3, 300);
	run(S);
	claims(3, 3, 300);
	run(S);
	is_member(3, SHARD_MEMBER_UP, 1, "who was found at the one before is not let in");
	is_found(3, 300);
	run(S);
	is_member(3, SHARD_MEMBER_UP, 2, "who is found there is");
	finish();
}

/* T11: each reason for which a claim is refused has its line. */
static void
test_reasons(void)
{
	int32 unknown;

	form(3);
	last_log[0] = '\0';
	claims(99, 99, 300);
	ok(strstr(last_log, "a claim to be node 99 is refused") != NULL, "a claim: %s", last_log);
	unknown = last_which;
	last_log[0] = '\0';
	is_found(3, 999);
	claims(3, 3, 300);
	run(5 * S);
	is_found(3, 999);
	claims(3, 3, 300);
	ok(strstr(last_log, "a claim to be node 3 is refused") != NULL, "another one: %s", last_log);
	ok(last_which != unknown, "for another reason, which is of another kind");
	finish();
}

int
main(void)
{
	settings.stable_after = 20 * S;
	settings.voter_replace_after = SHARD_VOTER_REPLACE_AFTER;
	settings.weakly_up_after = SHARD_WEAKLY_UP_AFTER;
	out = shard_action_create();
	arena = shard_arena_create();
	test_false_claims();
	test_restart_among_false_claims();
	test_another_address();
	test_reasons();
	shard_arena_destroy(arena);
	shard_action_destroy(out);
	return unit_done();
}
