/*
 * strategy_test.c
 *		Unit tests of strategy functions, by whole nodes: they are asked, they fail.
 */
#include "postgres_fe.h"

#include "core/node/node_private.h"
#include "moves_world.h"

/* SQLSTATE of errors of the functions; 0: they come from elsewhere. */
static int32 raised = 0;

/* Somebody's word about a type whose strategy is its functions. */
static void
say(bool rebalance, int n, const int32 *shards, const int32 *nodes, const char *error)
{
	ShardShardRef refs[SHARDS];
	ShardNodeEvent event = {.kind = SHARD_EVENT_STRATEGY,
							.flag = rebalance,
							.text = error,
							.node = error ? raised : 0};

	for (int i = 0; i < n; i++)
		refs[i] =
			(ShardShardRef){.type_id = machines[0].question.shard.type_id, .shard = shards[i]};
	event.number = machines[0].question.token;
	event.n_shards = n;
	event.shards = refs;
	event.n_nodes = nodes ? n : 0;
	event.nodes = nodes;
	happen(0, &event);
	deliver();
}

/* A type with functions of its own: asked, believed within limits, and done without. */
static void
test_function(void)
{
	ShardTypeRecord type = {.name = "own",
							.number_of_shards = SHARDS,
							.strategy = SHARD_ALLOCATION_FUNCTION,
							.role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};
	ShardShardRef refs[3] = {{2, 0, 0, 0}, {2, 1, 0, 0}, {2, 2, 0, 0}};
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 2, .shards = refs};
	const int32 shards[] = {0, 1};
	const int32 nodes[] = {3, 3};
	const int32 wrong[] = {3, 8};
	const int32 first[] = {0};
	const int32 target[] = {2};
	int64 token;

	three(0);
	for (int i = 0; i < 3; i++)
		happen(i, &event);
	run(3 * SHARD_SECOND);
	happen(1, &wanted);
	run(SHARD_SECOND);
	is_int(machines[0].question.shard.type_id, 2, "the functions are asked");
	ok(!machines[0].question_rebalances && machines[0].question_shards == 2, "where shards go");
	is_int(count_homes(0, 0), SHARDS, "until then they have no home");
	token = machines[0].question.token;
	run(2 * SHARD_SECOND);
	is_int(machines[0].question.token, token, "one question at a time");
	say(false, 2, shards, nodes, NULL);
	run(SHARD_SECOND);
	is_int(count_homes(0, 3), SHARDS / 3 + 2, "they get what was said");

	/* Nonsense and errors. */
	wanted.shards = &refs[2];
	wanted.n_shards = 1;
	happen(1, &wanted);
	run(2 * SHARD_SECOND);
	ok(machines[0].question.token > token, "the next question");
	token = machines[0].question.token;
	say(false, 2, shards, wrong, NULL);
	run(SHARD_SECOND);
	is_int(count_homes(0, 0), SHARDS + 3, "nonsense is done without");
	say(false, 1, first, target, NULL);
	run(SHARD_SECOND);
	is_int(count_homes(0, 0), SHARDS + 3, "a late answer finds nobody");

	/* Moves: which, and then where to. */
	command(0, SHARD_COMMAND_REBALANCE, -1, 0, 50);
	ok(machines[0].command != 50, "a round waits for the functions");
	ok(machines[0].question_rebalances, "which are asked for moves");
	say(true, 1, first, NULL, NULL);
	ok(!machines[0].question_rebalances && machines[0].question_shards == 1, "and for targets");
	say(false, 1, first, target, NULL);
	ok(ended(0, 50, true), "then it is over");
	ok(machines[0].command_number == 1, "with one move");
	run(5 * SHARD_SECOND);
	command(0, SHARD_COMMAND_REBALANCE, -1, 0, 51);
	wait_for(0, 51, 2 * SHARD_STRATEGY_TIMEOUT + 10 * SHARD_SECOND);
	ok(ended(0, 51, true), "functions that never answer are done without");
	command(0, SHARD_COMMAND_REBALANCE, -1, 0, 52);
	say(true, 0, NULL, NULL, "division by zero");
	ok(ended(0, 52, true), "nor do errors keep anybody waiting");

	/* A round by way of another node, as long as two answers may take. */
	run(5 * SHARD_SECOND);
	token = machines[0].question.token;
	command(1, SHARD_COMMAND_REBALANCE, -1, 0, 53);
	run(SHARD_STRATEGY_TIMEOUT - 2 * SHARD_SECOND);
	ok(machines[0].question.token == token + 1 && machines[0].question_rebalances, "asked once");
	say(true, 1, first, NULL, NULL);
	ok(machines[0].question.token == token + 2, "asked for targets");
	run(SHARD_STRATEGY_TIMEOUT - 2 * SHARD_SECOND);
	ok(machines[1].command != 53, "whoever wants it waits");
	say(false, 1, first, nodes, NULL);
	wait_for(1, 53, 5 * SHARD_SECOND);
	ok(ended(1, 53, true) && machines[1].command_number == 1, "and hears how it ends: %s",
	   machines[1].command_text);
}

static int last_round = 1000;

/* Rounds in each of which the functions fail, with words of its own. */
static void
fail_rounds(int n_rounds, int32 sqlstate, int32 step)
{
	for (int i = 0; i < n_rounds; i++)
	{
		char words[40];

		snprintf(words, sizeof(words), "attempt %d has failed", i);
		raised = sqlstate + i * step;
		command(0, SHARD_COMMAND_REBALANCE, -1, 0, ++last_round);
		say(true, 0, NULL, NULL, words);
		ok(ended(0, last_round, true), "round %d is over", last_round);
	}
	raised = 0;
}

/* People are told of functions that go on failing, but not each time, whatever the words. */
static void
test_failing_function(void)
{
	ShardTypeRecord type = {.name = "own",
							.number_of_shards = SHARDS,
							.strategy = SHARD_ALLOCATION_FUNCTION,
							.role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};
	const int *told = &machines[0].decisions[SHARD_DECISION_STRATEGY];

	three(0);
	for (int i = 0; i < 3; i++)
		happen(i, &event);
	run(3 * SHARD_SECOND);
	fail_rounds(10, 100, 0);
	is_int(*told, 1, "one failure is told of ten");
	fail_rounds(10, 200, 0);
	is_int(*told, 2, "and one of another kind");
	fail_rounds(10, 0, 0);
	is_int(*told, 3, "that it cannot be asked is another one");
	run(61 * SHARD_SECOND);
	fail_rounds(10, 100, 0);
	is_int(*told, 4, "after a minute it is told again");
	run(61 * SHARD_SECOND);
	fail_rounds(50, 100, 1);
	is_int(*told, 12, "of many kinds not all are told");
}

int
main(void)
{
	begin_world();
	test_function();
	test_failing_function();
	end_world();
	return unit_done();
}
