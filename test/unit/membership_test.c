/*
 * membership_test.c
 *		Status of members, who may join, which incarnation is the real one, who votes.
 */
#include "postgres_fe.h"

#include "core/member/membership.h"
#include "core/node/node.h"
#include "core/base/timing.h"
#include "shard.h"
#include "unit.h"

/* ---- status -------------------------------------------------------------------------------------- */

static const char *
status_name(int32 status)
{
	return shard_membership_status_name((ShardMemberStatus) status);
}

/* The step must lead there; NONE: it must be illegal. */
static void
is_step(ShardMemberStatus from, ShardMembershipEvent event, ShardMemberStatus to)
{
	ShardMemberRecord record = {.status = from};
	bool legal = shard_membership_step(&record, event);

	if (to == SHARD_MEMBER_NONE)
		ok(!legal && record.status == (int32) from, "%s, %s: illegal", status_name(from),
		   shard_member_machine.event_names[event]);
	else
		ok(legal && record.status == (int32) to, "%s, %s -> %s", status_name(from),
		   shard_member_machine.event_names[event], status_name(to));
}

/* The whole table, by event and by status: n none, j joining, w weakly up, and so on. */
static void
test_status(void)
{
	static const struct
	{
		ShardMembershipEvent event;
		const char *to;
	} table[] = {
		/*                                njwulerdo */
		{SHARD_MEMBERSHIP_FOUND, "u........"},		   {SHARD_MEMBERSHIP_JOIN, "j........"},
		{SHARD_MEMBERSHIP_ADMITTED, ".jwule.j."},	   {SHARD_MEMBERSHIP_CONVERGED, ".uu......"},
		{SHARD_MEMBERSHIP_NOT_CONVERGED, ".w......."}, {SHARD_MEMBERSHIP_LEAVE, ".llller.."},
		{SHARD_MEMBERSHIP_EMPTIED, "....e...."},	   {SHARD_MEMBERSHIP_CONFIRMED, ".....r..."},
		{SHARD_MEMBERSHIP_DOWNED, ".ddddd.d."},		   {SHARD_MEMBERSHIP_WRITE_OFF, ".ooooo.oo"},
		{SHARD_MEMBERSHIP_STAY, "....u...."},
	};
	static const char letters[] = "njwulerdo";

	is_int(lengthof(table), SHARD_MEMBERSHIP_EVENTS, "all events are in the table");
	for (int i = 0; i < (int) lengthof(table); i++)
		for (int from = 0; from < SHARD_MEMBERSHIP_STATES; from++)
		{
			char to = table[i].to[from];

			is_step((ShardMemberStatus) from, table[i].event,
					to == '.' ? SHARD_MEMBER_NONE
							  : (ShardMemberStatus) (strchr(letters, to) - letters));
		}
	ok(strcmp(status_name(99), "unknown") == 0, "a status that does not exist");
	ok(!shard_membership_is_member(SHARD_MEMBER_DOWN) &&
		   shard_membership_is_member(SHARD_MEMBER_EXITING),
	   "who is down is no member, who exits still is");
}

/* ---- admission ----------------------------------------------------------------------------------- */

#define OLD ((ShardUuid){1, 8})
#define NEW ((ShardUuid){1, 9})

/* Member 3, incarnation 8, up. */
static ShardMemberRecord
member(int32 gate, bool identity_lease)
{
	ShardMemberRecord record = {.status = SHARD_MEMBER_UP,
								.inc_no = 8,
								.inc_uuid = OLD,
								.gate = gate,
								.identity_lease = identity_lease,
								.dsn = "host=c",
								.app_version = ""};

	return record;
}

/* A claim in good order: restart, follows 8, found at its address, silent predecessor, no leases. */
static ShardClaim
claim(int32 kind)
{
	ShardClaim it = {.node = 3,
					 .previous = 8,
					 .uuid = NEW,
					 .kind = kind,
					 .leases_ended = true,
					 .callback = SHARD_CALLBACK_SAME};

	return it;
}

static void
is_verdict(const ShardMemberRecord *record, const ShardClaim *it, ShardAdmission verdict,
		   const char *name)
{
	ShardArena *arena = shard_arena_create();
	const char *reason = shard_membership_reason(verdict, record, it, arena);

	is_int(shard_membership_judge(record, it), verdict, "%s", name);
	if (verdict > SHARD_ADMISSION_GRANTED)
		ok(reason[0] != '\0' && (strstr(reason, "shard_admit(3, ") != NULL) ==
									(verdict >= SHARD_ADMISSION_OLD_LIVES),
		   "%s: %s", name, reason);
	shard_arena_destroy(arena);
}

static void
test_restart(void)
{
	ShardMemberRecord local = member(SHARD_GATE_LOCAL, false);
	ShardClaim it = claim(SHARD_START_RESTART);

	is_verdict(&local, &it, SHARD_ADMISSION_GRANT, "a restart that follows");
	it.leases_ended = false;
	is_verdict(&local, &it, SHARD_ADMISSION_GRANT, "a restart ends its own leases");
	it.old_heard = true;
	is_verdict(&local, &it, SHARD_ADMISSION_OLD_LIVES, "the one before still sends");
	it = claim(SHARD_START_RESTART);
	it.previous = 7;
	is_verdict(&local, &it, SHARD_ADMISSION_STALE, "an old copy put back");
	it.previous = 9;
	is_verdict(&local, &it, SHARD_ADMISSION_STALE, "a number that was never granted");
	it = claim(SHARD_START_RESTART);
	it.callback = SHARD_CALLBACK_NONE;
	is_verdict(&local, &it, SHARD_ADMISSION_ASK, "nobody answered yet at its address");
	it.callback = SHARD_CALLBACK_OTHER;
	is_verdict(&local, &it, SHARD_ADMISSION_ELSEWHERE, "a clone of the machine elsewhere");
	it.callback = SHARD_CALLBACK_SAME;
	it.listening = true;
	is_verdict(&local, &it, SHARD_ADMISSION_LISTEN, "the one before was heard a moment ago");
	it.listening = false;
	it.callback = SHARD_CALLBACK_NEEDLESS;
	is_verdict(&local, &it, SHARD_ADMISSION_GRANT, "a cluster of one without an address");
	it.uuid = OLD;
	is_verdict(&local, &it, SHARD_ADMISSION_GRANTED, "it is the decided one already");
	local.status = SHARD_MEMBER_DOWN;
	is_verdict(&local, &it, SHARD_ADMISSION_DOWNED, "a downed incarnation does not come back");
	it = claim(SHARD_START_RESTART);
	is_verdict(&local, &it, SHARD_ADMISSION_GRANT, "but its node does, as a new one");
	local.status = SHARD_MEMBER_REMOVED;
	is_verdict(&local, &it, SHARD_ADMISSION_GONE, "a node that left does not");
	local.status = SHARD_MEMBER_WRITTEN_OFF;
	is_verdict(&local, &it, SHARD_ADMISSION_GONE, "nor one that was written off");
	it.forced = true;
	is_verdict(&local, &it, SHARD_ADMISSION_GONE, "whatever the operator says");
	is_verdict(NULL, &it, SHARD_ADMISSION_UNKNOWN, "a node that nobody knows");
}

static void
test_promoted(void)
{
	ShardMemberRecord standby = member(SHARD_GATE_STANDBY, false);
	ShardMemberRecord local = member(SHARD_GATE_LOCAL, false);
	ShardMemberRecord leased = member(SHARD_GATE_LOCAL, true);
	ShardClaim it = claim(SHARD_START_PROMOTED);

	is_verdict(&standby, &it, SHARD_ADMISSION_GRANT, "promoted, gate standby");
	is_verdict(&local, &it, SHARD_ADMISSION_PROMOTED, "promoted, gate local");
	is_verdict(&leased, &it, SHARD_ADMISSION_GRANT, "promoted, its identity lease has ended");
	it.leases_ended = false;
	is_verdict(&leased, &it, SHARD_ADMISSION_WAIT, "promoted, its identity lease still runs");
	is_verdict(&standby, &it, SHARD_ADMISSION_WAIT, "gate standby, the old one's leases still run");
	it.leases_ended = true;
	it.alone = true;
	is_verdict(&local, &it, SHARD_ADMISSION_GRANT, "promoted, gate local, alone in its cluster");
	it.alone = false;
	it.previous = 7;
	is_verdict(&standby, &it, SHARD_ADMISSION_STALE, "a standby that had fallen behind");
	it.previous = 8;
	it.callback = SHARD_CALLBACK_OTHER;
	is_verdict(&standby, &it, SHARD_ADMISSION_ELSEWHERE, "promoted beside a living primary");
	it = claim(SHARD_START_PROMOTED);
	it.old_heard = true;
	is_verdict(&standby, &it, SHARD_ADMISSION_OLD_LIVES, "promoted, the primary still sends");
}

static void
test_copy(void)
{
	ShardMemberRecord local = member(SHARD_GATE_LOCAL, false);
	ShardMemberRecord standby = member(SHARD_GATE_STANDBY, true);
	ShardMemberRecord fresh = {.status = SHARD_MEMBER_JOINING, .dsn = "host=c"};
	ShardClaim it = claim(SHARD_START_COPY);

	is_verdict(&local, &it, SHARD_ADMISSION_COPY, "a copy");
	is_verdict(&standby, &it, SHARD_ADMISSION_COPY, "a copy, gate standby");
	it.alone = true;
	is_verdict(&local, &it, SHARD_ADMISSION_COPY, "a copy alone in its cluster");
	it.kind = 77;
	is_verdict(&local, &it, SHARD_ADMISSION_COPY, "a kind of start that is not known");
	it.forced = true;
	it.callback = SHARD_CALLBACK_OTHER;
	it.old_heard = true;
	is_verdict(&local, &it, SHARD_ADMISSION_GRANT, "the operator overrules");
	it.leases_ended = false;
	is_verdict(&local, &it, SHARD_ADMISSION_WAIT, "but not a lease");

	it = claim(SHARD_START_COPY);
	it.previous = 0;
	is_verdict(&fresh, &it, SHARD_ADMISSION_GRANT, "a joiner, however its server came up");
	it.callback = SHARD_CALLBACK_OTHER;
	is_verdict(&fresh, &it, SHARD_ADMISSION_ELSEWHERE, "a clone of a joiner");
	it = claim(SHARD_START_RESTART);
	is_verdict(&fresh, &it, SHARD_ADMISSION_STALE, "a joiner that was somebody before");
}

static void
test_may_force(void)
{
	for (int verdict = 0; verdict <= SHARD_ADMISSION_ELSEWHERE; verdict++)
		ok(shard_membership_may_force((ShardAdmission) verdict) ==
			   (verdict == SHARD_ADMISSION_ASK || verdict == SHARD_ADMISSION_LISTEN ||
				verdict >= SHARD_ADMISSION_OLD_LIVES),
		   "verdict %d may be overruled or not", verdict);
}

/* ---- joining, age, roles ------------------------------------------------------------------------- */

static void
put_member(ShardMap *map, ShardArena *arena, int32 node, int32 status, int64 age, const char *role)
{
	ShardMemberRecord record = {.status = status, .age = age, .inc_no = 1, .app_version = ""};
	ShardMapEntry entry;

	record.dsn = psprintf("host=%d", node);
	record.join_token = (ShardUuid){7, node};
	record.n_roles = role ? 1 : 0;
	record.roles[0] = role;
	entry = shard_record_put_member(node, &record, 1, arena);
	shard_map_put(map, &entry);
	pfree((char *) record.dsn);
}

static ShardMapEntry
type_value(ShardArena *arena, const char *name, int32 shards, uint64 hash)
{
	ShardTypeRecord type = {.name = name,
							.number_of_shards = shards,
							.settings_hash = hash,
							.role = ""};

	return shard_record_put_type(1, &type, 1, arena);
}

/* A join is refused with a text that says this; NULL: it is welcome. */
static void
is_join(const ShardMap *map, int32 version, const char *dsn, bool loaded,
		const ShardMapEntry *types, int n_types, const char *says)
{
	ShardArena *arena = shard_arena_create();
	ShardMemberRecord joiner = {.dsn = dsn, .app_version = ""};
	const char *why = shard_membership_judge_join(map, version, &joiner, loaded, arena);

	if (!why)
		why = shard_membership_judge_types(map, types, n_types, arena);
	ok(says ? why && strstr(why, says) : !why, "joiner: %s", why ? why : "welcome");
	shard_arena_destroy(arena);
}

static void
test_join(void)
{
	ShardArena *arena = shard_arena_create();
	ShardMap *map = shard_map_create();
	ShardMapEntry types[3];
	ShardMapEntry garbage = {.key = {SHARD_MAP_TYPE, 0, 0}, .length = 1, .value = "\377"};

	put_member(map, arena, 1, SHARD_MEMBER_UP, 1, NULL);
	put_member(map, arena, 2, SHARD_MEMBER_DOWN, 2, NULL);
	put_member(map, arena, 3, SHARD_MEMBER_WRITTEN_OFF, 3, NULL);
	types[0] = type_value(arena, "cart", 16, 5);
	shard_map_put(map, &types[0]);
	types[1] = type_value(arena, "other", 8, 9);

	is_join(map, SHARD_PROTOCOL_VERSION, "host=9", false, NULL, 0, NULL);
	is_join(map, SHARD_PROTOCOL_VERSION, "", false, types, 2, NULL);
	is_join(map, SHARD_PROTOCOL_VERSION, NULL, false, types, 2, NULL);
	is_join(map, SHARD_PROTOCOL_VERSION + 1, "host=9", false, NULL, 0, "protocol version");
	is_join(map, SHARD_PROTOCOL_VERSION, "host=9", true, NULL, 0, "only an empty node");
	is_join(map, SHARD_PROTOCOL_VERSION, "host=1", false, NULL, 0, "node 1 has the same address");
	is_join(map, SHARD_PROTOCOL_VERSION, "host=2", false, NULL, 0, "shard_write_off(2)");
	is_join(map, SHARD_PROTOCOL_VERSION, "host=3", false, NULL, 0, NULL);
	types[2] = type_value(arena, "cart", 17, 6);
	is_join(
		map, SHARD_PROTOCOL_VERSION, "host=9", false, &types[1], 2,
		"\"cart\" has other settings in the cluster: \"number_of_shards\" is 16 in the cluster, 17 "
		"on the node");
	types[2] = type_value(arena, "cart", 16, 6);
	is_join(map, SHARD_PROTOCOL_VERSION, "host=9", false, &types[2], 1,
			"\"cart\" has other settings");
	is_join(map, SHARD_PROTOCOL_VERSION, "host=9", false, &garbage, 1, "cannot be read");

	is_int(shard_membership_find_token(map, (ShardUuid){7, 2}, arena), 2, "a token is found");
	is_int(shard_membership_find_token(map, (ShardUuid){8, 2}, arena), 0, "or not");
	shard_map_destroy(map);
	shard_arena_destroy(arena);
}

static void
test_age(void)
{
	ShardArena *arena = shard_arena_create();
	ShardMap *map = shard_map_create();

	put_member(map, arena, 1, SHARD_MEMBER_LEAVING, 1, NULL);
	put_member(map, arena, 2, SHARD_MEMBER_UP, 5, "shop");
	put_member(map, arena, 3, SHARD_MEMBER_UP, 3, NULL);
	put_member(map, arena, 4, SHARD_MEMBER_UP, 4, "shop");
	put_member(map, arena, 5, SHARD_MEMBER_JOINING, 0, "shop");
	is_int(shard_membership_rank(map, 3, arena), 0, "the oldest goes first");
	is_int(shard_membership_rank(map, 2, arena), 2, "the youngest last");
	is_int(shard_membership_rank(map, 1, arena), 3, "who leaves, behind all who are up");
	is_int(shard_membership_rank(map, 5, arena), 3, "and so who is not up yet");
	shard_map_destroy(map);
	shard_arena_destroy(arena);
}

/* ---- voters -------------------------------------------------------------------------------------- */

/*
 * A plan. Members by letter, node 1 first and oldest: u up, a amnesiac, s silent since lately,
 * S silent for long, l up and behind, j not up, d down, g leaving with homes, G so and silent for long.
 * Digits: voters now and then.
 */
static void
is_plan_for(const char *members, int32 self, int wish, const char *now, const char *then)
{
	ShardVoterCandidate candidates[16] = {0};
	ShardVotersRecord voters = {0};
	int32 next[SHARD_MAX_VOTERS];
	char got[SHARD_MAX_VOTERS + 1] = "";
	int n = (int) strlen(members);

	for (int i = 0; i < n; i++)
	{
		/* Given in reverse: the plan must not depend on the order. */
		ShardVoterCandidate *it = &candidates[n - 1 - i];
		char is = members[i];

		it->node = i + 1;
		it->age = i + 1;
		it->leaving = is == 'g' || is == 'G';
		it->up = is != 'j' && is != 'd' && !it->leaving;
		it->amnesiac = is == 'a';
		it->caught_up = is != 'l';
		it->silent = is == 's' ? 1 : is == 'S' || is == 'G' ? SHARD_VOTER_REPLACE_AFTER : 0;
		if (is == 'd')
			it->silent = PG_INT64_MAX;
	}
	for (const char *digit = now; *digit; digit++)
		voters.current[voters.n_current++] = *digit - '0';
	n = shard_membership_plan_voters(candidates, n, self, &voters, wish, SHARD_VOTER_REPLACE_AFTER,
									 next);
	for (int i = 0; i < n; i++)
		got[i] = (char) ('0' + next[i]);
	ok(strcmp(got, then) == 0, "members %s, coordinator %d, wish %d, voters %s -> %s (%s)", members,
	   self, wish, now, then[0] ? then : "no change", got);
}

static void
is_plan(const char *members, const char *now, const char *then)
{
	is_plan_for(members, 1, 0, now, then);
}

static void
test_voters(void)
{
	static const int counts[] = {1, 1, 1, 3, 3, 5, 5, 5, 5, 5};
	ShardVoterCandidate one = {.node = 1, .up = true, .caught_up = true};
	ShardVotersRecord changing = {.n_current = 1, .current = {2}, .n_next = 3, .next = {1, 2, 3}};
	int32 next[SHARD_MAX_VOTERS];

	/* A coordinator that leaves, and has heard of nobody yet, does not leave the office to them. */
	is_plan_for("lljl", 3, 0, "234", "");

	for (int i = 0; i < (int) lengthof(counts); i++)
		is_int(shard_membership_voter_count(i, 0), counts[i], "voters of %d members", i);
	is_int(shard_membership_voter_count(9, 7), 7, "seven if wished");
	is_int(shard_membership_voter_count(6, 7), 5, "as far as there are members");
	is_int(shard_membership_voter_count(9, 1), 1, "one if wished");
	is_int(shard_membership_voter_count(2, 3), 1, "never two");
	is_int(shard_membership_voter_count(9, 99), 7, "at most seven");

	/* Growing and at rest. */
	is_plan("u", "1", "");
	is_plan("uu", "1", "");
	is_plan("uuu", "1", "123");
	is_plan("uuuu", "123", "");
	is_plan("uuuuu", "123", "12345");
	is_plan("uuuuuuuuu", "12345", "");
	is_plan_for("uuuuuuuuu", 1, 7, "12345", "1234567");
	is_plan_for("uuuuuuuuu", 1, 3, "12345", "123");
	/* Learners first, and only such as can vote. */
	is_plan("uul", "1", "");
	is_plan("uuluu", "1", "124");
	is_plan("uuj", "1", "");
	is_plan("uus", "1", "");
	is_plan("uua", "1", "");
	is_plan("uuuul", "123", "");
	/* Who does its work stays, though older members are there; else the oldest is taken. */
	is_plan_for("uuuuu", 3, 3, "345", "");
	is_plan_for("uuuSu", 3, 3, "345", "135");
	/* Silent voters: replaced in time, and only by somebody. */
	is_plan("uus", "123", "");
	is_plan("uuS", "123", "");
	is_plan("uusu", "123", "");
	is_plan("uuSu", "123", "124");
	is_plan("uuSs", "123", "");
	is_plan("uuSl", "123", "");
	is_plan("uuuSSuu", "12345", "12367");
	is_plan("uuuSSu", "12345", "12346");
	/* Not without the majority of those who vote now. */
	is_plan("uSSuu", "123", "");
	is_plan("ussuu", "123", "");
	is_plan("uaSuu", "123", "");
	/* Members that go: downed, leaving. */
	is_plan("uud", "123", "1");
	is_plan("uudu", "123", "124");
	is_plan("uuj", "123", "1");
	is_plan_for("juu", 1, 0, "123", "2");
	is_plan_for("juuu", 1, 0, "123", "234");
	is_plan_for("ju", 1, 0, "1", "2");
	is_plan("j", "1", "");
	is_plan("uuuud", "12345", "123");
	is_plan("uuudd", "12345", "123");
	/* Who leaves votes while it has homes, unless somebody else can; then those who stay are enough. */
	is_plan("uug", "123", "");
	is_plan("ugg", "123", "");
	is_plan("usg", "123", "");
	is_plan("uSg", "123", "");
	is_plan("uuG", "123", "");
	is_plan_for("ugu", 2, 0, "123", "");
	is_plan("uguu", "123", "134");
	is_plan("uguj", "123", "");
	is_plan("ugul", "123", "");
	is_plan("ugSu", "123", "124");
	is_plan("uGgu", "123", "134");
	is_plan("uuuug", "12345", "");
	is_plan("uuugg", "12345", "");
	is_plan("uuugj", "12345", "123");
	is_plan("ujg", "123", "1");
	is_plan("ug", "1", "");
	is_plan_for("gu", 1, 0, "1", "2");
	is_plan_for("gul", 1, 0, "1", "2");
	is_plan("uug", "1", "");
	is_plan("uugu", "1", "124");
	/* Amnesiac voters go at once, and are taken again when they are not any more. */
	is_plan("uua", "123", "1");
	is_plan("uuau", "123", "124");
	is_plan("uuaul", "123", "124");
	is_plan("uuu", "1", "123");
	is_plan("a", "1", "");
	/* The coordinator keeps its vote when there are too many. */
	is_plan_for("uuuud", 4, 0, "12345", "124");
	is_plan_for("uuSu", 4, 0, "134", "124");
	/* Voters of whom nothing is known. */
	is_plan("uuu", "129", "123");
	is_plan("uu", "129", "1");
	is_plan("uuu", "189", "");

	is_int(shard_membership_plan_voters(&one, 1, 1, &changing, 0, 1, next), 0,
		   "not while a change is under way");
	is_int(shard_membership_plan_voters(&one, 0, 1, &changing, 0, 1, next), 0, "nobody is there");
}

int
main(void)
{
	test_status();
	test_restart();
	test_promoted();
	test_copy();
	test_may_force();
	test_join();
	test_age();
	test_voters();
	return unit_done();
}
