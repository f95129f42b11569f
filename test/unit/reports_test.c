/*
 * reports_test.c
 *		Whom a member cannot reach, and that it has left nothing undone: its own word alone counts (T7, C7, M20).
 */
#include "postgres_fe.h"

#include "core/member/roster_private.h"
#include "trust_world.h"

static int at;	   /* the coordinator, */
static int liar;   /* the one in whose name somebody speaks, */
static int victim; /* the one that is lied about, */
static int fourth; /* and another one */

/* Four nodes whose coordinator downs who cannot be reached for a while. */
static void
four_nodes(ShardDowningKind kind)
{
	ShardRoster *roster;

	three_nodes();
	start(3);
	run(2 * SHARD_SECOND);
	join(3, 0);
	run(20 * SHARD_SECOND);
	is_int(count_members(0), 4, "four nodes are a cluster");
	for (at = 0; !is_coordinator(at);)
		at++;
	liar = (at + 1) % 4;
	victim = (at + 3) % 4; /* no voter: it may be downed with the liar */
	fourth = (at + 2) % 4;
	roster = machines[at].node->roster;
	roster->settings.downing = kind;
	roster->downing.stable_after = 2 * SHARD_SECOND;
}

static const RosterMember *
noted(int who)
{
	return shard_roster_member(machines[at].node->roster, who + 1);
}

static int32
status_of(int who)
{
	ShardMemberRecord member = {0};

	(void) shard_node_get_member(machines[at].node, who + 1, &member);
	return member.status;
}

/* In the name of a member: it cannot reach another one, and has learned, and left behind, all there will ever be. */
static void
report(int32 via, ShardUuid code)
{
	int32 subject = victim + 1;

	give_as(at, liar + 1, via,
			(ShardControl){.kind = SHARD_CONTROL_HEARTBEAT_ACK,
						   .b = shard_proposer_ballot(shard_node_proposer(machines[at].node)),
						   .learned_n = INT64CONST(1) << 60,
						   .uuid = code,
						   .nodes = &subject,
						   .n_nodes = 1});
	deliver();
}

/* P77: nobody is downed since somebody says in a member's name, all the time, that it cannot reach another one. */
static void
test_nobody_is_downed(void)
{
	four_nodes(SHARD_DOWNING_KEEP_MAJORITY);
	for (int i = 0; i < 200; i++)
	{
		report(0, i % 2 ? FORGED : (ShardUuid){0, 0});
		run(STEP);
	}
	for (int who = 0; who < 4; who++)
		is_int(status_of(who), SHARD_MEMBER_UP, "node %d is a member", who + 1);
	is_int(noted(liar)->n_reports, 0, "nothing is noted");
	ok(noted(liar)->confirmed < INT64CONST(1) << 60, "nor that nothing is left undone");
}

/* P77: nor does the coordinator wait for ever with who is gone. */
static void
test_who_is_gone_is_downed(void)
{
	four_nodes(SHARD_DOWNING_AUTO);
	machines[fourth].cut = true;
	for (int i = 0; i < 30; i++)
	{
		report(0, FORGED);
		run(SHARD_SECOND);
	}
	is_int(status_of(fourth), SHARD_MEMBER_DOWN, "who is gone is downed");
	is_int(status_of(victim), SHARD_MEMBER_UP, "who is lied about is not");
}

/* What the member itself says counts: by its answer, and by a call with the code that it has been told. */
static void
test_own_word(void)
{
	four_nodes(SHARD_DOWNING_MANUAL);
	report(liar + 1, (ShardUuid){0, 0});
	is_int(noted(liar)->n_reports, 1, "the answer at its address");
	is_int(noted(liar)->confirmed, INT64CONST(1) << 60, "with what it has learned");
	run(SHARD_SECOND);
	is_int(noted(liar)->n_reports, 0, "until it says otherwise");

	all_call = true;
	run(2 * SHARD_SECOND);
	ok(!shard_record_uuid_equal(machines[liar].node->code, (ShardUuid){0, 0}), "it has the code");
	report(0, machines[victim].node->code);
	is_int(noted(liar)->n_reports, 0, "another one's does not count");
	report(0, machines[liar].node->code);
	is_int(noted(liar)->n_reports, 1, "its own one does");
	report(0, FORGED);
	is_int(noted(liar)->n_reports, 1, "and a liar takes nothing back");
	run(SHARD_SECOND);
	is_int(noted(liar)->n_reports, 0, "as it does itself");
	all_call = false;
}

/* The code is not said again for each message of a flood, and said again after a while. */
static void
test_few_codes(void)
{
	int before;

	four_nodes(SHARD_DOWNING_MANUAL);
	run(SHARD_SECOND);
	before = machines[liar].letters;
	for (int i = 0; i < 100; i++)
		report(0, FORGED);
	is_int(machines[liar].letters - before, 1, "the code is said once");
	run(SHARD_SECOND);
	machines[liar].node->code = FORGED;
	report(0, FORGED);
	ok(!shard_record_uuid_equal(machines[liar].node->code, FORGED), "and again later");
}

int
main(void)
{
	begin_world();
	test_nobody_is_downed();
	test_who_is_gone_is_downed();
	test_own_word();
	test_few_codes();
	end_world();
	return unit_done();
}
