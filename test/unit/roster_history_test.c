/*
 * roster_history_test.c
 *		Random histories of members: what must never be, and what must be in the end.
 *
 * usage: roster_history_test [SEEDS]
 */
#include "postgres_fe.h"

#include "roster_world.h"

static uint64 dice_state;

/* A number below a limit. */
static int
dice(int limit)
{
	dice_state = dice_state * UINT64CONST(6364136223846793005) + UINT64CONST(1442695040888963407);
	return (int) ((dice_state >> 33) % (uint64) limit);
}

/* What was seen of each node, to find steps that must not be. */
typedef struct Seen
{
	int32 status;
	int32 inc_no;
	int64 age;
} Seen;

/* NULL, or the promise that the decided state breaks. */
static const char *
check_decided(const ShardMap *map, Seen *seen)
{
	ShardVotersRecord voters;
	ShardCountersRecord counters;

	(void) shard_record_get_voters(shard_map_value(map, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0}),
								   &voters);
	(void) shard_record_get_counters(shard_map_value(map, (ShardMapKey){SHARD_MAP_COUNTERS, 0, 0}),
									 &counters);
	if (voters.n_current % 2 == 0 || (voters.n_next > 0 && voters.n_next % 2 == 0))
		return "an even number of voters";
	for (int32 node = 1; node < PEERS + 20; node++)
	{
		ShardMemberRecord record;
		Seen *it = &seen[node];

		if (!get_member(map, node, &record))
			continue;
		if (node > counters.last_node_id)
			return "a node id beyond the counter";
		if (record.inc_no < it->inc_no)
			return "an incarnation went back";
		if ((it->status == SHARD_MEMBER_REMOVED || it->status == SHARD_MEMBER_WRITTEN_OFF) &&
			record.status != it->status)
			return "a node came back for good";
		if (it->age != 0 && record.age != it->age)
			return "an age changed";
		for (int32 other = 1; other < node; other++)
			if (record.age != 0 && seen[other].age == record.age)
				return "two of an age";
		*it = (Seen){record.status, record.inc_no, record.age};
	}
	return NULL;
}

/* NULL, or the promise that the peers break among themselves. */
static const char *
check_peers(void)
{
	for (int i = 0; i < PEERS; i++)
		for (int j = 0; j < i; j++)
		{
			if (!peers[i].there || !peers[j].there || peers[i].id == 0 ||
				peers[i].id != peers[j].id)
				continue;
			if (peers[i].inc_no != 0 && peers[i].inc_no == peers[j].inc_no)
				return "two of one incarnation";
			if (shard_lease_valid(&peers[i].lease, shard_map_point(peers[i].learned).n, now) &&
				shard_lease_valid(&peers[j].lease, shard_map_point(peers[j].learned).n, now))
				return "two databases of a node hold a lease";
		}
	return NULL;
}

/* A clone goes; the node's address is again that of the place where it was. */
static void
remove_clone(Peer *clone)
{
	addresses[clone->id] = clone->id - 1;
	end_peer(clone);
}

/* Something happens. Nodes 1 to 5 sit at places 0 to 4; the others are for clones. */
static void
disturb(uint64 *uuid)
{
	int at = dice(5);
	Peer *peer = &peers[at];
	Peer *office = NULL;
	const char *why;
	int32 node = 1 + dice(5);

	for (int i = 0; i < PEERS; i++)
		if (peers[i].there && peers[i].in_office && !peers[i].cut && !peers[i].fenced)
			office = &peers[i];
	switch (dice(9))
	{
		case 0:
		case 1:
			peer->cut = dice(2) == 0;
			break;
		case 2:
		case 3:
			(void) restart(at, ++*uuid, SHARD_START_RESTART);
			peer->asks_lease = true;
			break;
		case 4:
			at = 5 + dice(3);
			if (peers[at].there)
				remove_clone(&peers[at]);
			else
			{
				/* A copy of what the node was: it knows the present incarnation, or an older one. */
				Peer *clone = start(at, peer->id, peer->inc_no - dice(2), ++*uuid, dice(3));

				clone->coordinator = peer->coordinator;
				clone->asks_lease = true;
				/* It has none of its primary's promises. */
				shard_voter_set_state(clone->voter, SHARD_VOTER_AMNESIAC, out);
				shard_action_reset(out);
				/* A standby that was promoted takes its primary's address with it. */
				if (clone->kind == SHARD_START_PROMOTED)
					addresses[peer->id] = at;
			}
			break;
		case 5:
			if (office)
				(void) shard_roster_set_status(office->roster, now, node, SHARD_MEMBER_DOWN,
											   office->proposer, &why);
			break;
		case 6:
			if (office)
				(void) shard_roster_admit(office->roster, now, node, office->proposer, &why);
			break;
		case 7:
			homes[node] = dice(2);
			if (office && dice(20) == 0)
				(void) shard_roster_set_status(office->roster, now, node, SHARD_MEMBER_WRITTEN_OFF,
											   office->proposer, &why);
			break;
		default:
			if (office && dice(20) == 0)
				(void) shard_roster_set_status(office->roster, now, node, SHARD_MEMBER_LEAVING,
											   office->proposer, &why);
	}
}

/*
 * The clones go, the network heals, and who was fenced starts again: every node that is not gone for
 * good must come up, the operator helping those whose place a copy has taken.
 */
static const char *
heal(uint64 *uuid)
{
	const char *why;

	memset(homes, 0, sizeof(homes));
	for (int i = 0; i < PEERS; i++)
	{
		if (i >= 5 && peers[i].there)
			remove_clone(&peers[i]);
		peers[i].cut = false;
	}
	for (int round = 0; round < 6; round++)
	{
		for (int i = 0; i < 5; i++)
			if (peers[i].fenced)
				(void) restart(i, ++*uuid, SHARD_START_RESTART);
		run(10 * S);
		for (int i = 0; i < 5; i++)
			for (int j = 0; j < 5; j++)
				if (peers[j].in_office && peers[i].inc_no == 0 && !peers[i].fenced)
					(void) shard_roster_admit(peers[j].roster, now, peers[i].id, peers[j].proposer,
											  &why);
	}
	if (!decided())
		return "nobody is in office";
	for (int32 node = 1; node <= 5; node++)
	{
		ShardMemberRecord record = {0};

		(void) get_member(decided(), node, &record);
		if (record.status != SHARD_MEMBER_UP && record.status != SHARD_MEMBER_REMOVED &&
			record.status != SHARD_MEMBER_WRITTEN_OFF && record.status != SHARD_MEMBER_LEAVING)
		{
			static char text[80];

			snprintf(text, sizeof(text), "node %d is %s in the end", node,
					 shard_membership_status_name((ShardMemberStatus) record.status));
			return text;
		}
	}
	return NULL;
}

static void
test_histories(int seeds)
{
	ShardTypeRecord type = {.name = "cart", .number_of_shards = 4, .leased = true, .role = ""};
	const char *broken = NULL;
	int seed;

	elections = true;
	for (seed = 1; seed <= seeds && !broken; seed++)
	{
		Seen seen[PEERS + 20] = {0};
		uint64 uuid = 1000;
		int64 newest = 0;
		ShardMapEntry entry;

		dice_state = seed;
		settings.downing = dice(2) == 0 ? SHARD_DOWNING_MANUAL : SHARD_DOWNING_KEEP_MAJORITY;
		gate = dice(2) == 0 ? SHARD_GATE_LOCAL : SHARD_GATE_STANDBY;
		form(5);
		while (!decided() || !shard_map_value(decided(), (ShardMapKey){SHARD_MAP_TYPE, 1, 0}))
		{
			entry = shard_record_put_type(1, &type, 0, arena);
			for (int i = 0; i < 5; i++)
				(void) shard_proposer_propose(peers[i].proposer, &entry, 1);
			run(S);
		}
		for (int i = 0; i < 5; i++)
			peers[i].asks_lease = true;
		for (int step = 0; step < 60 && !broken; step++)
		{
			disturb(&uuid);
			for (int pause = 1 + dice(30); pause > 0 && !broken; pause--)
			{
				run(STEP * 2);
				broken = check_peers();
				if (!broken && decided() && shard_map_point(decided()).n >= newest)
				{
					newest = shard_map_point(decided()).n;
					broken = check_decided(decided(), seen);
				}
			}
		}
		if (!broken)
			broken = heal(&uuid);
		finish();
	}
	settings.downing = SHARD_DOWNING_MANUAL;
	gate = SHARD_GATE_LOCAL;
	elections = false;
	ok(!broken, "%d random histories (seed %d: %s)", seeds, seed - 1, broken ? broken : "good");
}

int
main(int argc, char **argv)
{
	settings.stable_after = 20 * S;
	settings.voter_replace_after = SHARD_VOTER_REPLACE_AFTER;
	settings.weakly_up_after = SHARD_WEAKLY_UP_AFTER;
	out = shard_action_create();
	arena = shard_arena_create();
	test_histories(argc > 1 ? atoi(argv[1]) : 20);
	shard_arena_destroy(arena);
	shard_action_destroy(out);
	return unit_done();
}
