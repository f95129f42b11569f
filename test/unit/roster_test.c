/*
 * roster_test.c
 *		The coordinator's duties towards members, in a small world of real voters and proposers.
 */
#include "postgres_fe.h"

#include "roster_world.h"

static void
test_alone(void)
{
	Peer *peer;

	found();
	is_member(1, SHARD_MEMBER_UP, 1, "alone");
	is_voters("1", "alone");
	ok(shard_roster_reachable(peers[0].roster, 1, now), "the coordinator can reach itself");
	ok(!shard_roster_reachable(peers[0].roster, 2, now), "but not who is not there");
	peers[0].asks_lease = true;
	run(2 * S);
	ok(shard_lease_valid(&peers[0].lease, shard_map_point(peers[0].learned).n, now),
	   "it grants itself a lease");

	/* It starts again, takes office, and admits its own new incarnation. */
	peer = restart(0, 200, SHARD_START_RESTART);
	peer->campaign_at = now;
	run(3 * S);
	is_member(1, SHARD_MEMBER_UP, 2, "alone, restarted");
	is_int(peer->inc_no, 2, "it knows");
	finish();
}

static void
test_join(void)
{
	Peer *peer;

	found();
	peer = start(1, 0, 0, 101, SHARD_START_RESTART);
	peer->loaded = true;
	run(2 * S);
	ok(peer->refusals > 0 && strstr(peer->text, "only an empty node"), "a loaded joiner: %s",
	   peer->text);
	peer->loaded = false;
	run(4 * S);
	is_member(2, SHARD_MEMBER_UP, 1, "joined");
	is_int(peer->id, 2, "the joiner knows its id");
	is_int(peer->inc_no, 1, "and its incarnation");
	is_int(age_of(2), 2, "it is the second oldest");
	is_voters("1", "two members");

	/* Several at once: each gets an id and an age of its own. */
	(void) start(2, 0, 0, 102, SHARD_START_RESTART);
	(void) start(3, 0, 0, 103, SHARD_START_RESTART);
	(void) start(4, 0, 0, 104, SHARD_START_RESTART);
	run(8 * S);
	for (int32 node = 3; node <= 5; node++)
		is_member(node, SHARD_MEMBER_UP, 1, "three at once");
	ok(age_of(3) != age_of(4) && age_of(4) != age_of(5) && age_of(3) != age_of(5),
	   "all ages differ");
	is_voters("12345", "five members");

	/* A repeated join is the same node. */
	peers[1].id = 0;
	run(1 * S);
	is_int(peers[1].id, 2, "a join that is repeated gets the same id");
	is_member(6, SHARD_MEMBER_NONE, 0, "and no new node");
	finish();
}

static void
test_admission(void)
{
	Peer *clone;
	Peer *peer;
	const char *why = "";

	form(3);
	is_voters("123", "three members");

	/* A clone of node 3 elsewhere, with the right predecessor. */
	clone = start(5, 3, 1, 500, SHARD_START_RESTART);
	run(4 * S);
	is_member(3, SHARD_MEMBER_UP, 1, "a clone while the node lives");
	ok(clone->refusals > 0, "it is refused: %s", clone->text);
	ok(strstr(clone->text, "is alive") != NULL, "because the other one lives");
	peers[2].cut = true;
	run(4 * S);
	is_member(3, SHARD_MEMBER_UP, 1, "a clone while the node is away");

	/* The node itself comes back: found at its address. */
	peers[2].cut = false;
	peer = restart(2, 300, SHARD_START_RESTART);
	run(5 * S);
	is_member(3, SHARD_MEMBER_UP, 2, "restarted");
	is_int(peer->inc_no, 2, "and told so");
	is_int(rivals, 1, "two claimants are shown once");
	run(3 * S);
	is_member(3, SHARD_MEMBER_UP, 2, "the clone still claims");
	ok(strstr(clone->text, "incarnation 1 of node 3") != NULL, "now it is too late: %s",
	   clone->text);
	end_peer(clone);

	/* A copy is the operator's matter. */
	peer = restart(2, 301, SHARD_START_COPY);
	run(4 * S);
	is_member(3, SHARD_MEMBER_UP, 2, "a copy");
	ok(strstr(peer->text, "shard_admit(3, 3)") != NULL, "with a hint: %s", peer->text);
	ok(!shard_roster_admit(peers[0].roster, now, 2, peers[0].proposer, &why), "nobody else asks");
	ok(shard_roster_admit(peers[0].roster, now, 3, peers[0].proposer, &why), "admitted by hand");
	run(2 * S);
	is_member(3, SHARD_MEMBER_UP, 3, "a copy, admitted by hand");

	/* Promoted, gate local: not by itself. */
	peer = restart(2, 302, SHARD_START_PROMOTED);
	run(4 * S);
	is_member(3, SHARD_MEMBER_UP, 3, "promoted");
	ok(strstr(peer->text, "promoted standby") != NULL, "refused: %s", peer->text);
	finish();
}

/*
 * Does the coordinator refuse to give that status? Why it does is an argument of the report only after the call:
 * arguments have no order.
 */
static void
is_refused(int32 node, ShardMemberStatus status, const char *name)
{
	const char *why = "it was done";
	bool done =
		shard_roster_set_status(peers[0].roster, now, node, status, peers[0].proposer, &why);

	ok(!done, "%s: %s", name, why);
}

/* Nobody is unreachable at once when an office begins, however long he has been away. */
static void
test_write_off_in_a_new_office(void)
{
	const char *why = "";
	bool done;

	form(3);
	peers[2].cut = true;
	run(8 * S);
	restart(0, 200, SHARD_START_RESTART)->campaign_at = now;
	run(1 * S);
	done = shard_roster_set_status(peers[0].roster, now, 3, SHARD_MEMBER_WRITTEN_OFF,
								   peers[0].proposer, &why);
	ok(!done && strstr(why, "not taken for unreachable yet; try again") != NULL,
	   "who was not heard yet is not said to be reachable: %s", why);
	done = shard_roster_set_status(peers[0].roster, now, 2, SHARD_MEMBER_WRITTEN_OFF,
								   peers[0].proposer, &why);
	ok(!done && strstr(why, "is reachable") != NULL, "who was, is: %s", why);
	run(8 * S);
	ok(shard_roster_set_status(peers[0].roster, now, 3, SHARD_MEMBER_WRITTEN_OFF, peers[0].proposer,
							   &why),
	   "later it is written off");
	finish();
}

static void
test_status(void)
{
	const char *why = "";

	form(3);
	/* A fourth one comes while the third is away. */
	peers[2].cut = true;
	run(8 * S);
	ok(!shard_roster_reachable(peers[0].roster, 3, now), "node 3 is unreachable");
	(void) start(3, 0, 0, 103, SHARD_START_RESTART);
	run(4 * S);
	is_member(4, SHARD_MEMBER_JOINING, 1, "not converged");
	run(5 * S);
	is_member(4, SHARD_MEMBER_WEAKLY_UP, 1, "not converged for long");
	is_int(age_of(4), 0, "no age yet");
	is_voters("123", "a weakly up member does not vote");

	is_refused(1, SHARD_MEMBER_DOWN, "the coordinator cannot be downed");
	is_refused(2, SHARD_MEMBER_WRITTEN_OFF, "who is reachable cannot be written off");
	is_refused(2, SHARD_MEMBER_DOWN, "with node 3 away, node 2 cannot be downed");
	is_refused(9, SHARD_MEMBER_DOWN, "who is nobody cannot be downed");
	ok(shard_roster_set_status(peers[0].roster, now, 3, SHARD_MEMBER_DOWN, peers[0].proposer, &why),
	   "node 3 is downed");
	run(5 * S);
	is_member(3, SHARD_MEMBER_DOWN, 1, "downed");
	is_member(4, SHARD_MEMBER_UP, 1, "converged without it");
	is_voters("124", "its vote goes to another");
	ok(shard_roster_set_status(peers[0].roster, now, 3, SHARD_MEMBER_DOWN, peers[0].proposer, &why),
	   "downed twice is downed");

	/* It comes back as a new incarnation, as old as before. */
	peers[2].cut = false;
	(void) restart(2, 300, SHARD_START_RESTART);
	run(5 * S);
	is_member(3, SHARD_MEMBER_UP, 2, "back");
	is_int(age_of(3), 3, "with its age");

	/* Written off: for good. */
	peers[2].cut = true;
	run(8 * S);
	ok(shard_roster_set_status(peers[0].roster, now, 3, SHARD_MEMBER_WRITTEN_OFF, peers[0].proposer,
							   &why),
	   "node 3 is written off");
	run(2 * S);
	is_member(3, SHARD_MEMBER_WRITTEN_OFF, 2, "written off");
	peers[2].cut = false;
	(void) restart(2, 301, SHARD_START_RESTART);
	run(5 * S);
	is_member(3, SHARD_MEMBER_WRITTEN_OFF, 2, "it never comes back");
	ok(strstr(peers[2].text, "for good") != NULL, "and hears why: %s", peers[2].text);
	(void) start(4, 0, 0, 104, SHARD_START_RESTART);
	run(5 * S);
	is_int(peers[4].id, 5, "its id is burnt");
	finish();
}

static void
test_leave(void)
{
	const char *why = "";

	form(3);
	homes[2] = 7;
	ok(shard_roster_set_status(peers[0].roster, now, 2, SHARD_MEMBER_LEAVING, peers[0].proposer,
							   &why),
	   "node 2 is to leave");
	is_refused(3, SHARD_MEMBER_LEAVING, "not two at once");
	run(3 * S);
	is_member(2, SHARD_MEMBER_LEAVING, 1, "while it has homes");
	is_voters("123", "it votes on");
	homes[2] = 0;
	run(3 * S);
	is_voters("1", "it votes no longer");
	is_member(2, SHARD_MEMBER_REMOVED, 1, "without homes");

	/* The coordinator itself leaves: somebody else must vote first. */
	shard_action_send(out, 1, SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ);
	post(0, 0);
	deliver();
	run(4 * S);
	peers[2].campaign_at = now;
	run(3 * S);
	ok(peers[0].fenced, "the coordinator has left");
	is_member(1, SHARD_MEMBER_REMOVED, 1, "under its successor");
	is_voters("3", "which votes alone");

	shard_action_send(out, 3, SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ);
	post(2, 2);
	deliver();
	run(1 * S);
	is_member(3, SHARD_MEMBER_UP, 1, "the last one stays");
	ok(strstr(last_log, "last one cannot leave") != NULL, "and says why: %s", last_log);
	finish();
}

static void
test_voters(void)
{
	form(4);
	is_voters("123", "four members");
	shard_voter_set_state(peers[2].voter, SHARD_VOTER_AMNESIAC, out);
	post(2, 2);
	run(2 * S);
	is_voters("124", "an amnesiac voter is replaced at once");
	peers[1].cut = true;
	run(30 * S);
	is_voters("124", "a silent one is not");
	run(60 * S);
	is_voters("124", "nor later, if nobody can take its place");
	shard_voter_set_state(peers[2].voter, SHARD_VOTER_OK, out);
	post(2, 2);
	run(2 * S);
	is_voters("134", "but when somebody can");
	peers[1].cut = false;
	run(5 * S);
	is_voters("134", "who does its work is not replaced");
	finish();
}

/* A lease across a change of coordinators, and with an old one that is cut off. */
static void
test_lease(void)
{
	int64 until;
	int64 wait = SHARD_LEASE_WAIT(4 * S);
	int64 taken;
	int grants;

	form(3);
	peers[1].asks_lease = true;
	run(3 * S);
	until = shard_lease_until(&peers[1].lease, shard_map_point(peers[1].learned).n);
	ok(until > now + 2 * S && until <= now + 4 * S, "node 2 has a lease");
	ok(shard_lease_until(&peers[1].lease, 0) == 0, "which presupposes facts");
	ok(!shard_roster_lease_ended(peers[0].roster, 2, now, decided()), "the coordinator knows");
	ok(shard_roster_lease_ended(peers[0].roster, 3, now, decided()), "node 3 has none");

	shard_roster_close_lease(peers[0].roster, 2);
	grants = peers[1].grants;
	run(6 * S);
	is_int(peers[1].grants, grants, "no grants while closed");
	ok(shard_roster_lease_ended(peers[0].roster, 2, now, decided()), "so it ends");
	ok(!shard_lease_valid(&peers[1].lease, PG_INT64_MAX, now), "at the member before that");
	shard_roster_open_lease(peers[0].roster, 2);
	run(2 * S);
	ok(peers[1].grants > grants, "grants again when open");

	/* The coordinator can reach nobody but the holder: no majority, no grants. */
	peers[2].cut = true;
	run(2 * S);
	ok(shard_lease_valid(&peers[1].lease, PG_INT64_MAX, now), "two of three are enough");
	peers[2].cut = false;
	run(1 * S);
	peers[0].cut = true;
	peers[2].campaign_at = now;
	peers[1].silent = true;
	until = shard_lease_until(&peers[1].lease, PG_INT64_MAX);
	run(1 * S);
	ok(peers[2].in_office, "node 3 takes office");
	taken = shard_proposer_last_promise(peers[2].proposer);
	ok(!shard_roster_lease_ended(peers[2].roster, 2, taken + wait - 1, decided()) &&
		   shard_roster_lease_ended(peers[2].roster, 2, taken + wait, decided()),
	   "the next coordinator waits from its last promise");
	ok(until < taken + wait, "which is longer than the lease");
	finish();
}

/* Decide something as if the coordinator's homes had. */
static void
decide(ShardMapEntry entry)
{
	ok(shard_proposer_propose(peers[0].proposer, &entry, 1), "proposed");
	run(1 * S);
}

/* L7 and its like: a promoted standby waits for the leases of the primary, which may only be frozen. */
static void
test_lease_and_admission(void)
{
	ShardTypeRecord type = {.name = "cart", .number_of_shards = 4, .leased = true, .role = ""};
	ShardMemberRecord record;
	ShardSettingsRecord ttl = {.lease_ttl_ms = 4000};
	Peer *peer;
	const char *why = "";
	int64 until;

	form(3);
	decide(shard_record_put_type(1, &type, 0, arena));
	(void) get_member(decided(), 3, &record);
	record.gate = SHARD_GATE_STANDBY;
	decide(shard_record_put_member(
		3, &record, shard_map_find(decided(), (ShardMapKey){SHARD_MAP_MEMBER, 3, 0})->n, arena));
	peers[2].asks_lease = true;
	run(2 * S);
	until = shard_lease_until(&peers[2].lease, PG_INT64_MAX);
	ok(until > now, "the primary has a lease");
	peer = restart(2, 300, SHARD_START_PROMOTED);
	peer->asks_lease = true;
	run(until - now);
	is_member(3, SHARD_MEMBER_UP, 1, "promoted, while the lease of the primary runs");
	run(2 * S);
	is_member(3, SHARD_MEMBER_UP, 2, "promoted, after it");
	run(2 * S);
	ok(shard_lease_valid(&peer->lease, PG_INT64_MAX, now), "and has a lease of its own");

	/* An operator admits a copy while the original lives: its lease must run out first. */
	peer = start(5, 3, 1, 500, SHARD_START_COPY);
	run(1 * S);
	ok(shard_roster_admit(peers[0].roster, now, 3, peers[0].proposer, &why), "admitted by hand");
	until = shard_lease_until(&peers[2].lease, PG_INT64_MAX);
	run(2 * S);
	is_int(shard_lease_until(&peers[2].lease, PG_INT64_MAX), until, "no grants to the original");
	is_member(3, SHARD_MEMBER_UP, 2, "by hand, while the lease of the original runs");
	run(3 * S);
	is_member(3, SHARD_MEMBER_UP, 3, "by hand, after it");
	ok(now > until && peers[2].fenced, "the original is fenced");
	end_peer(peer);

	/* L3: after a shorter time was decided, the longer one counts until its grants are over. */
	ok(shard_lease_change_ttl(&ttl, 1000), "shorter");
	decide(shard_record_put_settings(
		&ttl, shard_map_find(decided(), (ShardMapKey){SHARD_MAP_SETTINGS, 0, 0})->n, arena));
	(void) shard_record_get_settings(shard_map_find(decided(),
													(ShardMapKey){SHARD_MAP_SETTINGS, 0, 0}),
									 &ttl);
	is_int(shard_lease_longest_ttl_ms(&ttl), 4000, "the longer time still counts");
	run(5 * S);
	(void) shard_record_get_settings(shard_map_find(decided(),
													(ShardMapKey){SHARD_MAP_SETTINGS, 0, 0}),
									 &ttl);
	is_int(shard_lease_longest_ttl_ms(&ttl), 1000, "not any more");
	finish();
}

/* A partition: the strategy of the side with the majority downs the others, after quiet time. */
static void
test_downing(void)
{
	settings.downing = SHARD_DOWNING_KEEP_MAJORITY;
	form(5);
	peers[3].cut = peers[4].cut = true;
	run(15 * S);
	is_member(4, SHARD_MEMBER_UP, 1, "before stable-after");
	run(20 * S);
	is_member(4, SHARD_MEMBER_DOWN, 1, "after it");
	is_member(5, SHARD_MEMBER_DOWN, 1, "after it");
	is_member(1, SHARD_MEMBER_UP, 1, "after it");
	is_voters("123", "after it");
	finish();

	/* A broken link between two members that the coordinator reaches: both are given up, but not if
	 * the voters need them. */
	form(3);
	peers[1].unreachable[0] = 3;
	peers[2].unreachable[0] = 2;
	peers[1].n_unreachable = peers[2].n_unreachable = 1;
	run(30 * S);
	is_member(2, SHARD_MEMBER_UP, 1, "a link between voters");
	is_member(3, SHARD_MEMBER_UP, 1, "a link between voters");
	ok(strstr(last_log, "no node is downed") != NULL, "said in the log: %s", last_log);
	finish();
	form(5);
	peers[3].unreachable[0] = 5;
	peers[4].unreachable[0] = 4;
	peers[3].n_unreachable = peers[4].n_unreachable = 1;
	run(30 * S);
	is_member(3, SHARD_MEMBER_UP, 1, "a link between two of five");
	is_member(4, SHARD_MEMBER_DOWN, 1, "a link between two of five");
	is_member(5, SHARD_MEMBER_DOWN, 1, "a link between two of five");
	is_voters("123", "a link between two of five");
	finish();

	/* A quorum: the coordinator's side has it; has it not; all members together could have it twice. */
	settings.downing = SHARD_DOWNING_STATIC_QUORUM;
	for (settings.static_quorum_size = 2; settings.static_quorum_size <= 4;
		 settings.static_quorum_size++)
	{
		bool downs = settings.static_quorum_size == 3;

		form(5);
		peers[3].cut = peers[4].cut = true;
		last_log[0] = '\0';
		run(40 * S);
		is_member(3, SHARD_MEMBER_UP, 1, "static_quorum");
		is_member(4, downs ? SHARD_MEMBER_DOWN : SHARD_MEMBER_UP, 1, "static_quorum");
		is_member(5, downs ? SHARD_MEMBER_DOWN : SHARD_MEMBER_UP, 1, "static_quorum");
		ok((strstr(last_log, "no node is downed") != NULL) == !downs, "said in the log: %s",
		   last_log);
		finish();
	}
	settings.static_quorum_size = 0;

	/* The side of the coordinator should go: nobody does. */
	settings.downing = SHARD_DOWNING_ALL;
	form(3);
	peers[2].cut = true;
	run(40 * S);
	for (int32 node = 1; node <= 3; node++)
		is_member(node, SHARD_MEMBER_UP, 1, "down_all");
	ok(strstr(last_log, "no node is downed") != NULL, "said in the log: %s", last_log);
	finish();
	settings.downing = SHARD_DOWNING_MANUAL;
}

/* Messages that are garbage, or come from strangers. */
static void
test_strange(void)
{
	static const ShardControlKind kinds[] = {SHARD_CONTROL_JOIN,
											 SHARD_CONTROL_ADMIT,
											 SHARD_CONTROL_I_AM,
											 SHARD_CONTROL_RENEW,
											 SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ,
											 SHARD_CONTROL_HEARTBEAT_ACK};
	int32 nodes[] = {1, 2, 3, -7, PG_INT32_MAX};

	form(3);
	for (int i = 0; i < (int) lengthof(kinds); i++)
		for (int from = -1; from <= 9; from++)
		{
			ShardControl message = {.kind = kinds[i],
									.from = from,
									.from_inc = 77,
									.node = from,
									.token = -1,
									.word1 = -1,
									.word2 = -1,
									.n_nodes = lengthof(nodes),
									.nodes = nodes};

			shard_roster_reported(peers[0].roster, &message, peers[0].proposer);
			shard_roster_receive(peers[0].roster, now, &message, peers[0].proposer, out);
			message.uuid = (ShardUuid){9, from};
			message.uuid2 = (ShardUuid){9, 9};
			shard_roster_receive(peers[0].roster, now, &message, peers[0].proposer, out);
			shard_action_reset(out);
		}
	run(5 * S);
	for (int32 node = 1; node <= 3; node++)
		is_member(node, SHARD_MEMBER_UP, 1, "strange messages");
	is_voters("123", "strange messages");
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
	test_alone();
	test_join();
	test_admission();
	test_status();
	test_write_off_in_a_new_office();
	test_leave();
	test_voters();
	test_lease();
	test_lease_and_admission();
	test_downing();
	test_strange();
	shard_arena_destroy(arena);
	shard_action_destroy(out);
	return unit_done();
}
