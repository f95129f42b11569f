/*
 * proposer_test.c
 *		Unit tests of a proposer and the only voter: what it may propose, voters that are forced, rows.
 */
#include "postgres_fe.h"

#include "core/base/timing.h"
#include "core/map/proposer.h"
#include "core/map/voter.h"
#include "unit.h"

static const ShardMapKey voters_key = {SHARD_MAP_VOTERS, 0, 0};
static int64 now;
static ShardArena *arena;

/* Carry messages between the only voter and its proposer until none is left. */
static void
settle(ShardVoter *voter, ShardProposer *proposer, ShardActions *out)
{
	ShardActions *next = shard_action_create();

	shard_proposer_flush(proposer, now, out);
	while (out->n_actions > 0)
	{
		for (int i = 0; i < out->n_actions; i++)
		{
			ShardControl message = *out->actions[i].message;

			message.from = 1;
			shard_voter_receive(voter, now, &message, false, next);
			shard_proposer_receive(proposer, now, &message, next);
		}
		shard_proposer_flush(proposer, now, next);
		shard_action_reset(out);
		for (int i = 0; i < next->n_actions; i++)
		{
			ShardControl *copied_message =
				shard_action_send(out, next->actions[i].node, next->actions[i].message->kind);
			ShardMapEntry *entries;

			*copied_message = *next->actions[i].message;
			entries = shard_arena_copy(out->arena, copied_message->entries,
									   sizeof(ShardMapEntry) * copied_message->n_entries);
			copied_message->entries = entries;
			for (int k = 0; k < copied_message->n_entries; k++)
				entries[k].value =
					shard_arena_copy(out->arena, entries[k].value, entries[k].length);
		}
		shard_action_reset(next);
	}
	shard_action_destroy(next);
}

static ShardMapEntry
change(int kind, int a, int64 n)
{
	ShardMapEntry entry = {{kind, a, 0}, n, false, 1, "x"};

	return entry;
}

static ShardMapEntry
change_of_voters(const ShardMap *map, int n_current, int32 first, int n_next, int32 second)
{
	ShardVotersRecord voters;

	memset(&voters, 0, sizeof(voters));
	voters.n_current = n_current;
	voters.n_next = n_next;
	for (int i = 0; i < 2; i++)
	{
		voters.current[i] = i < n_current ? first : 0;
		voters.next[i] = i < n_next ? second : 0;
	}
	return shard_record_put_voters(&voters, shard_map_value(map, voters_key)->n, arena);
}

static void
test_proposals(void)
{
	ShardVoter *voter = shard_voter_create(1);
	ShardProposer *proposer = shard_proposer_create(1);
	ShardMap *learned = shard_map_create();
	ShardActions *out = shard_action_create();
	ShardVotersRecord voters = {1, {1}, 0, {0}, 0, {NULL, 0}};
	ShardMapEntry entries[3];
	ShardMapEntry *many;
	const ShardMap *map;

	now = SHARD_SECOND;
	entries[0] = shard_record_put_voters(&voters, 0, arena);
	shard_voter_found(voter, 1 << 16 | 1, entries, 1, out);
	shard_action_reset(out);
	entries[0] = change(SHARD_MAP_MEMBER, 1, 0);
	ok(!shard_proposer_propose(proposer, entries, 1), "who holds no office proposes nothing");
	shard_proposer_campaign(proposer, now, learned, out);
	settle(voter, proposer, out);
	is_int(shard_proposer_office(proposer), SHARD_OFFICE_HELD, "a sole voter takes office");
	map = shard_proposer_decided(proposer);
	is_int(shard_map_point(map).n, 2, "with one batch");
	is_int(shard_map_point(map).b, shard_proposer_ballot(proposer), "under its ballot");

	entries[1] = change(SHARD_MAP_MEMBER, 2, 7);
	ok(!shard_proposer_propose(proposer, entries, 2), "all or nothing");
	ok(!shard_proposer_pending(proposer, entries[0].key), "and it was nothing");
	ok(shard_proposer_propose(proposer, entries, 1), "a right expectation");
	ok(!shard_proposer_propose(proposer, entries, 1), "no second change of a key under way");
	settle(voter, proposer, out);
	is_int(shard_map_value(map, entries[0].key)->n, 3, "decided in the next batch");
	ok(!shard_proposer_propose(proposer, entries, 1), "the old expectation is wrong now");
	entries[0].n = 3;
	entries[0].deleted = true;
	entries[0].length = 0;
	ok(shard_proposer_propose(proposer, entries, 1), "delete it");
	settle(voter, proposer, out);
	ok(shard_map_value(map, entries[0].key) == NULL && shard_map_find(map, entries[0].key),
	   "a tombstone stays");
	entries[0] = change(SHARD_MAP_MEMBER, 1, 0);
	ok(shard_proposer_propose(proposer, entries, 1), "and counts as absent");
	settle(voter, proposer, out);

	entries[0] = change(SHARD_MAP_TERM, 0, 2);
	ok(!shard_proposer_propose(proposer, entries, 1), "the lineage is nobody's to change");
	entries[0] = change_of_voters(map, 1, 2, 0, 0);
	ok(!shard_proposer_propose(proposer, entries, 1), "voters do not change in one step");
	entries[0] = change_of_voters(map, 1, 2, 1, 3);
	ok(!shard_proposer_propose(proposer, entries, 1), "today's stay");
	entries[0] = change_of_voters(map, 1, 1, 2, 3);
	ok(!shard_proposer_propose(proposer, entries, 1), "nobody votes twice");
	entries[0] = change_of_voters(map, 1, 1, 1, 1);
	ok(shard_proposer_propose(proposer, entries, 1), "a legal change");
	settle(voter, proposer, out);
	entries[0] = change_of_voters(map, 1, 1, 1, 1);
	ok(!shard_proposer_propose(proposer, entries, 1), "one change at a time");
	entries[0] = change_of_voters(map, 1, 1, 0, 0);
	ok(shard_proposer_propose(proposer, entries, 1), "its end");
	settle(voter, proposer, out);

	many = shard_arena_alloc(arena, sizeof(ShardMapEntry) * 10000);
	for (int i = 0; i < 10000; i++)
		many[i] = change(SHARD_MAP_HOME, 10000 - i, 0);
	ok(shard_proposer_propose(proposer, many, 10000), "10000 homes");
	settle(voter, proposer, out);
	is_int(shard_map_value(map, many[0].key)->n, shard_map_point(map).n, "are one batch");
	is_int(shard_map_count(shard_voter_map(voter)), 10003, "which the voter has");

	now += 2 * SHARD_ELECTION_TIMEOUT;
	shard_proposer_tick(proposer, now, NULL, 0, out);
	is_int(shard_proposer_office(proposer), SHARD_OFFICE_HELD, "who votes alone may sleep");
	entries[0] = change_of_voters(map, 1, 1, 1, 2);
	ok(shard_proposer_propose(proposer, entries, 1), "when others are to vote,");
	settle(voter, proposer, out);
	now += 2 * SHARD_ELECTION_TIMEOUT;
	shard_proposer_tick(proposer, now, NULL, 0, out);
	is_int(shard_proposer_office(proposer), SHARD_OFFICE_NONE, "it ends without heartbeats");
	ok(shard_proposer_decided(proposer) == NULL, "with all that it knew");
	shard_arena_reset(arena);
	shard_voter_destroy(voter);
	shard_proposer_destroy(proposer);
	shard_map_destroy(learned);
	shard_action_destroy(out);
}

/* Two of three voters are lost for good: the operator lets the third go on alone (R13). */
static void
test_force(void)
{
	static const int32 alone[] = {3};
	ShardVoter *voter = shard_voter_create(1);
	ShardProposer *proposer = shard_proposer_create(1);
	ShardMap *learned = shard_map_create();
	ShardActions *out = shard_action_create();
	ShardVotersRecord voters = {3, {1, 2, 3}, 0, {0}, 4, {NULL, 0}};
	ShardMapEntry entry = shard_record_put_voters(&voters, 5, arena);
	const ShardMap *map;

	now = SHARD_SECOND;
	shard_map_put(learned, &entry);
	shard_map_set_point(learned, (ShardMapPoint){1, 7});
	shard_voter_force(voter, 9 << 16 | 1, learned, (const int32[]){1}, 1, 5, out);
	shard_action_reset(out);
	shard_proposer_campaign(proposer, now, shard_voter_map(voter), out);
	settle(voter, proposer, out);
	map = shard_proposer_decided(proposer);
	ok(map && shard_map_point(map).n == 7 + SHARD_ERA_LEAP + 1,
	   "the forced state is adopted and decided");
	ok(map && shard_record_get_voters(shard_map_value(map, voters_key), &voters) &&
		   voters.n_current == 1 && voters.current[0] == 1 && voters.era == 5,
	   "with the forced voters and the next era");
	shard_proposer_step_down(proposer);

	shard_voter_force(voter, 19 << 16 | 1, learned, alone, 1, 6, out);
	shard_action_reset(out);
	shard_proposer_campaign(proposer, now, shard_voter_map(voter), out);
	settle(voter, proposer, out);
	is_int(shard_proposer_office(proposer), SHARD_OFFICE_PRE_VOTE, "others cannot be done without");
	shard_arena_reset(arena);
	shard_voter_destroy(voter);
	shard_proposer_destroy(proposer);
	shard_map_destroy(learned);
	shard_action_destroy(out);
}

/* A voter's stored row: whole it is taken, damaged it is refused. */
static void
test_load(void)
{
	ShardVoter *voter = shard_voter_create(1);
	ShardVoter *again = shard_voter_create(1);
	ShardActions *out = shard_action_create();
	ShardVotersRecord voters = {2, {1, 2}, 0, {0}, 0, {NULL, 0}};
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entry = shard_record_put_voters(&voters, 1, arena);
	ShardControl message;
	ShardWrite row;
	int taken = 0;

	memset(&message, 0, sizeof(message));
	message.kind = SHARD_CONTROL_PREPARE;
	message.from = 2;
	message.b = 7 << 16 | 2;
	shard_voter_observe(voter, &message);
	shard_voter_remind(voter, 2, &message);
	is_int(message.ballot, 0, "who does not vote is not remembered");
	shard_voter_found(voter, 1 << 16 | 1, &entry, 1, out);
	shard_action_reset(out);
	shard_voter_observe(voter, &message);
	shard_voter_receive(voter, 0, &message, false, out);
	row = out->writes[out->n_writes - 1];
	is_int(row.store, SHARD_STORE_VOTER, "a promise is written");
	ok(shard_voter_load(again, row.store, &row.entry, 1) &&
		   shard_voter_promised(again) == message.b,
	   "and read");
	memset(&message, 0, sizeof(message));
	shard_voter_remind(again, 2, &message);
	is_int(message.ballot, 7 << 16 | 2, "with what is remembered of others");

	for (uint32 length = row.entry.length; length-- > 0;)
	{
		ShardWrite damaged = row;

		damaged.entry.length = length;
		taken += shard_voter_load(again, damaged.store, &damaged.entry, 1);
	}
	is_int(taken, 0, "a row that is cut short is refused");
	shard_voter_destroy(voter);
	shard_voter_destroy(again);
	shard_action_destroy(out);
	shard_arena_destroy(arena);
}

int
main(void)
{
	arena = shard_arena_create();
	test_proposals();
	test_force();
	test_load();
	shard_arena_destroy(arena);
	return unit_done();
}
