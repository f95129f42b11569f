/*
 * joiner_test.c
 *		Who may join: joiners are asked back, their types are looked at, newcomers expire.
 */
#include "postgres_fe.h"

#include "core/map/type_number.h"
#include "roster_world.h"

/* What a node that joins says of its version. */
static const char *version = "";

/* And of its types: values of SHARD_MAP_TYPE. */
static ShardMapEntry *joiner_types;
static int n_joiner_types;

/* Somebody says that a node joins: under that token, at the place of a peer. The answer, "": none yet. */
static const char *
says_join(uint64 token, uint64 uuid, int at)
{
	static char text[800];
	ShardMemberRecord record = {.app_version = version};
	ShardControl message = {.kind = SHARD_CONTROL_JOIN,
							.protocol_version = SHARD_PROTOCOL_VERSION,
							.uuid = {token, 2},
							.uuid2 = {uuid, 1},
							.n_entries = 1 + n_joiner_types};

	record.dsn = psprintf("host=%d", at);
	message.entries = shard_arena_alloc(out->arena, message.n_entries * sizeof(ShardMapEntry));
	message.entries[0] = shard_record_put_member(0, &record, 0, out->arena);
	pfree((char *) record.dsn);
	if (n_joiner_types > 0)
		memcpy(&message.entries[1], joiner_types, n_joiner_types * sizeof(ShardMapEntry));
	shard_roster_receive(peers[0].roster, now, &message, peers[0].proposer, out);
	text[0] = '\0';
	for (int i = 0; i < out->n_actions; i++)
	{
		const ShardControl *reply = out->actions[i].message;

		if (out->actions[i].kind == SHARD_ACTION_SEND && reply->kind == SHARD_CONTROL_JOIN_REPLY)
			strlcpy(text, reply->flag ? "welcome" : reply->text, sizeof(text));
	}
	post(0, -1);
	deliver();
	return text;
}

/* I17: who is not where it says gets no number. */
static void
test_joins_are_asked_back(void)
{
	const char *text = "";
	int64 end;

	found();
	questions = 0;
	for (uint64 token = 500; token < 508; token++)
		is_int(strlen(says_join(token, token, 9)), 0, "nobody is there: no answer yet");
	is_int(questions, 8, "all are called back");
	text = says_join(508, 508, 9);
	ok(says(text, SHARD_JOIN_LIMIT_WHY) && questions == 8, "a ninth is refused: %s", text);
	end = now + 22 * S;
	while (now < end && !says(text, SHARD_JOIN_UNREACHED_WHY))
	{
		run(S / 2);
		for (uint64 token = 507; token >= 500; token--)
			text = says_join(token, token, 9);
	}
	ok(says(text, SHARD_JOIN_UNREACHED_WHY), "who is not found hears it: %s", text);
	is_member(2, SHARD_MEMBER_NONE, 0, "and gets no number");

	/* Another one's address, incarnation or join. */
	run(5 * S);
	(void) start(1, 0, 0, 101, SHARD_START_RESTART);
	peers[1].silent = true;
	for (int i = 0; i < 48 && !says(text, SHARD_JOIN_ELSEWHERE_WHY); i++)
	{
		text = says_join(600, 101, 1);
		(void) says_join(101, 600, 1);
		run(S / 2);
	}
	ok(says(text, SHARD_JOIN_ELSEWHERE_WHY), "another join is there: %s", text);
	is_member(2, SHARD_MEMBER_NONE, 0, "nor another one's start or join");
	peers[1].silent = false;
	run(4 * S);
	is_member(2, SHARD_MEMBER_UP, 1, "whose address it is joins");

	/* Found at one address, it names another one. */
	(void) start(3, 0, 0, 103, SHARD_START_RESTART);
	peers[3].silent = true;
	questions = 0;
	for (uint64 uuid = 300; uuid < 310; uuid++)
		(void) says_join(103, uuid, 9);
	ok(questions <= 1, "one that says another start each time is asked once");
	run(6 * S);
	(void) says_join(103, 103, 3);
	run(S / 2);
	(void) says_join(103, 103, 9);
	run(3 * S);
	is_member(3, SHARD_MEMBER_NONE, 0, "nor gets it a number for an address where it is not");
	peers[3].silent = false;
	run(4 * S);
	is_member(3, SHARD_MEMBER_UP, 1, "where it is it joins");

	/* A record of millions of bytes would be in every map. */
	version = memset(malloc(9001), 'v', 9000);
	((char *) version)[9000] = '\0';
	text = says_join(700, 700, 1);
	ok(says(text, "too long"), "what a node says of itself is short: %s", text);
	free((char *) version);
	version = "";
	finish();
}

/* I17: types are counted before who brings them is called back, and looked at after that. */
static void
test_types_of_joiners(void)
{
	ShardArena *types = shard_arena_create();
	ShardTypeRecord type = {.name = "wide", .number_of_shards = SHARD_MAX_SHARDS + 1};
	const char *text;

	found();
	(void) start(1, 0, 0, 101, SHARD_START_RESTART);
	peers[1].silent = true;
	joiner_types = shard_arena_alloc(types, (SHARD_JOIN_TYPES + 1) * sizeof(ShardMapEntry));
	for (int i = 0; i <= SHARD_JOIN_TYPES; i++)
		joiner_types[i] = shard_record_put_type(0, &type, 0, types);
	questions = 0;
	n_joiner_types = SHARD_JOIN_TYPES + 1;
	text = says_join(101, 101, 1);
	ok(says(text, SHARD_TYPE_ROOM_WHY) && questions == 0, "too many are refused at once: %s", text);
	n_joiner_types = 1;
	text = says_join(101, 101, 9);
	ok(strlen(text) == 0 && questions == 1, "of others nothing is said before it is called back");
	for (int i = 0; i < 4; i++)
	{
		run(S);
		text = says_join(101, 101, 9);
	}
	is_int(strlen(text), 0, "nor of who is not there");
	text = says_join(101, 101, 1);
	for (int i = 0; i < 4 && strlen(text) == 0; i++)
	{
		run(S / 2);
		text = says_join(101, 101, 1);
	}
	ok(says(text, "\"wide\"") && says(text, SHARD_TYPE_ROOM_WHY), "then they are judged: %s", text);
	questions = 0;
	text = says_join(101, 101, 1);
	ok(strlen(text) == 0 && questions == 1, "who comes again is called back again");
	n_joiner_types = 0;
	shard_arena_destroy(types);
	finish();
}

/* I17: numbers for which nobody comes end by themselves, and are few meanwhile. */
static void
test_newcomers_expire(void)
{
	Peer *last;

	found();
	for (int i = 1; i <= SHARD_MAX_NEWCOMERS; i++)
	{
		Peer *peer = start(i, 0, 0, 100 + i, SHARD_START_RESTART);

		for (int k = 0; k < 100 && peer->id == 0; k++)
			run(STEP);
		is_int(peer->id, i + 1, "a node has a number");
		peer->cut = true;
	}
	last = start(9, 0, 0, 200, SHARD_START_RESTART);
	run(3 * S);
	ok(last->id == 0 && says(last->text, SHARD_JOIN_LIMIT_WHY), "one more is refused: %s",
	   last->text);
	last->silent = true;
	run(SHARD_NEWCOMER_PATIENCE - 30 * S);
	is_member(2, SHARD_MEMBER_JOINING, 0, "patience");
	run(40 * S);
	for (int i = 1; i <= SHARD_MAX_NEWCOMERS; i++)
		is_member(i + 1, SHARD_MEMBER_WRITTEN_OFF, 0, "nobody came");
	last->silent = false;
	run(4 * S);
	is_member(10, SHARD_MEMBER_UP, 1, "another one joins");
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
	test_joins_are_asked_back();
	test_types_of_joiners();
	test_newcomers_expire();
	shard_arena_destroy(arena);
	shard_action_destroy(out);
	return unit_done();
}
