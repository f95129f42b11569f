/*
 * plans.c
 *		Operators ask which moves would begin (C12). In some histories they ask the coordinator's own node, in some
 *		any node.
 *
 * A plan changes nothing. What is asked of the coordinator's node is sent nowhere and draws nothing by chance, so the nodes of
 * the same history with questions that are refused have to say the same: every message, at the same time. And a plan says what
 * would be: now and then a round of rebalancing is ordered in the same moment, which has to begin the moves that the plan lists.
 */
#include "world.h"

#include "core/base/timing.h"

#define MOST_MOVES 64
#define NO_TYPE 9999

/* A plan that nobody answered for so long will not be answered. */
#define PATIENCE (SHARD_COMMAND_PATIENCE + 3 * SHARD_SECOND)

/* A question, or an order that follows one. */
typedef struct Question
{
	Instance *instance;
	int control_generation; /* of the process that was asked */
	int64 at;
	bool round;	  /* of rebalancing */
	int expected; /* moves that the round is to begin; -1: not known */
	bool over;
} Question;

/* A move of a plan. */
typedef struct Move
{
	ShardShardRef shard;
	int32 to;
	bool begun;
} Move;

typedef struct Plans
{
	uint64 random;
	int n_questions;
	int space;
	Question *questions;
	bool asks;	   /* now: what is answered is as of now */
	bool answered; /* the plan that was asked last, */
	bool complete; /* and it lists nothing that begins by itself */
	int n_moves;
	Move moves[MOST_MOVES];
	uint64 *said; /* digests of what nodes have said, by second */
	int n_said;
} Plans;

static uint32
chance(Plans *plans, uint32 below)
{
	plans->random =
		plans->random * UINT64CONST(6364136223846793005) + UINT64CONST(1442695040888963407);
	return (uint32) (plans->random >> 33) % below;
}

/* ---- what is asked ---------------------------------------------------------------------------- */

static int64
add_question(World *world, Instance *instance, bool round)
{
	Plans *plans = world->plans;

	if (plans->n_questions == plans->space)
	{
		plans->space = Max(16, 2 * plans->space);
		plans->questions = plans->questions
							   ? repalloc(plans->questions, sizeof(Question) * plans->space)
							   : palloc(sizeof(Question) * plans->space);
	}
	plans->questions[plans->n_questions++] =
		(Question){.instance = instance,
				   .control_generation = instance->control_generation,
				   .at = world->now,
				   .round = round,
				   .expected = -1};
	return WORLD_PLAN + plans->n_questions;
}

static void
ask(World *world, Instance *instance)
{
	ShardCommand command = {.kind = SHARD_COMMAND_PLAN};

	if (world->options.plans_refused)
		command.type_id = NO_TYPE;
	world->plans->answered = false;
	world->plans->asks = true;
	command.asker.token = add_question(world, instance, false);
	host_command(world, instance, &command);
	world->plans->asks = false;
	world->n_plans++;
}

/* The plan that was answered just now has said what a round of rebalancing would do: it is held against that. */
static void
rebalance(World *world, Instance *instance)
{
	Plans *plans = world->plans;
	ShardCommand command = {.kind = SHARD_COMMAND_REBALANCE};
	bool known = plans->answered && plans->complete && instance->n_tickets == 0;

	command.asker.token = add_question(world, instance, true);
	if (known && !world->options.functions)
		plans->questions[plans->n_questions - 1].expected = plans->n_moves;
	host_command(world, instance, &command);
	/* what waits for a transaction of the same step is said later */
	known = known && instance->node && instance->n_tickets == 0;
	for (int i = 0; known && i < plans->n_moves; i++)
	{
		const Move *move = &plans->moves[i];

		if (!move->begun)
			check_fail(world->check,
					   "C12: %s plans that shard %d/%d would move to node %d; a round in the same "
					   "moment does not ask that node",
					   instance->dsn, move->shard.type_id, move->shard.shard, move->to);
	}
	world->n_plans_followed += known && plans->n_moves > 0;
}

/* A node that can be asked. */
static bool
is_there(const Instance *instance)
{
	return instance->up && instance->node && instance->joined && !instance->journal &&
		   !instance->retired && !instance->shadow && !instance->frozen &&
		   !shard_node_fenced(instance->node);
}

static void
asked_at_the_coordinator(World *world)
{
	Plans *plans = world->plans;
	Instance *coordinator = host_coordinator(world);
	bool follows = chance(plans, 2) == 0;

	if (!coordinator || !is_there(coordinator))
		return;
	ask(world, coordinator);
	if (follows && is_there(coordinator))
		rebalance(world, coordinator);
}

/* Every other time it is the coordinator's node. A second plan so early waits until the coordinator has time for it. */
static void
asked_anywhere(World *world)
{
	Plans *plans = world->plans;
	Instance *instance = &world->instances[chance(plans, (uint32) world->n_instances)];
	int times = 1 + (int) chance(plans, 2);

	if (chance(plans, 2) == 0)
		instance = host_coordinator(world);
	for (int i = 0; i < times && instance && is_there(instance); i++)
		ask(world, instance);
}

/* Which questions should have been answered by now? A process that is no more answers nothing. True: some may yet be. */
static bool
look_for_answers(World *world)
{
	Plans *plans = world->plans;
	bool waits = false;

	for (int i = 0; i < plans->n_questions; i++)
	{
		Question *question = &plans->questions[i];
		const Instance *instance = question->instance;

		if (question->over || question->round)
			continue;
		if (!instance->node || instance->control_generation != question->control_generation)
			question->over = true;
		else if (!instance->frozen && world->now > Max(question->at, instance->thaw_at) + PATIENCE)
			check_fail(world->check, "C12: %s has not answered a plan that was asked %.1f s ago",
					   instance->dsn, (world->now - question->at) / (double) SHARD_SECOND);
		waits |= !question->over;
	}
	return waits;
}

static void
plan_due(World *world, Instance *none, int64 a, int64 b, const char *bytes, size_t length)
{
	if (!look_for_answers(world) && world->quiet)
		return;
	world_later(world, SHARD_SECOND / 2 + chance(world->plans, 5000) * SHARD_MS, plan_due, NULL,
				false, 0, 0, NULL, 0);
	if (world->healed)
		return;
	if (world->options.plans == WORLD_PLANS_COORDINATOR)
		asked_at_the_coordinator(world);
	else
		asked_anywhere(world);
}

/* ---- what is answered ------------------------------------------------------------------------- */

/* Does a home of a plan move, and to another node? */
static bool
would_move(const ShardMapEntry *entry, ShardHomeRecord *home)
{
	return entry->key.kind == SHARD_MAP_HOME && !entry->deleted &&
		   shard_record_get_home(entry, home) && home->phase == SHARD_HOME_MOVING &&
		   home->to != 0 && home->to != shard_record_home_node(home);
}

/* As far as the asked node knows: is the home where the plan says, at rest, and not changed since? */
static bool
is_at_rest(const Instance *instance, const ShardMapEntry *entry, const ShardHomeRecord *home)
{
	const ShardMapEntry *known = shard_map_value(shard_node_learned(instance->node), entry->key);
	ShardHomeRecord now;

	return known && shard_record_get_home(known, &now) && known->n == entry->n &&
		   now.phase == SHARD_HOME_STABLE && now.epoch == home->epoch &&
		   shard_record_home_node(&now) == shard_record_home_node(home) &&
		   home->move_id == now.move_id + 1;
}

/* Is the node a member that is up, and not to be emptied, as far as the asked node knows? */
static bool
is_good_home(const Instance *instance, int32 node)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(instance->node),
												 (ShardMapKey){SHARD_MAP_MEMBER, node, 0});
	ShardArena *arena = shard_arena_create();
	ShardMemberRecord member;
	bool good = entry && shard_record_get_member(entry, &member, arena) &&
				member.status == SHARD_MEMBER_UP && !member.evacuated;

	shard_arena_destroy(arena);
	return good;
}

/* One home of a plan. exact: it is what the node knows now. */
static void
planned(World *world, const Instance *instance, const ShardMapEntry *entry, bool exact)
{
	Plans *plans = world->plans;
	ShardHomeRecord home;

	if (!would_move(entry, &home) ||
		(exact && (!is_at_rest(instance, entry, &home) || !is_good_home(instance, home.to))))
	{
		check_fail(world->check, "C12: %s plans a move of shard %d/%d that could not begin",
				   instance->dsn, entry->key.a, entry->key.b);
		return;
	}
	for (int i = 0; i < plans->n_moves; i++)
	{
		if (plans->moves[i].shard.type_id == entry->key.a &&
			plans->moves[i].shard.shard == entry->key.b)
			check_fail(world->check, "C12: %s plans two moves of shard %d/%d", instance->dsn,
					   entry->key.a, entry->key.b);
	}
	if (home.reason != SHARD_HOME_REASON_REBALANCE || plans->n_moves == MOST_MOVES)
		plans->complete = false;
	else
		plans->moves[plans->n_moves++] =
			(Move){{entry->key.a, entry->key.b, 0, home.move_id}, home.to, false};
}

static void
plan_answered(World *world, const Instance *instance, const ShardAction *action)
{
	Plans *plans = world->plans;
	bool exact = plans->asks && host_coordinator(world) == instance;

	plans->answered = true;
	plans->complete = action->flag && action->result == 0;
	plans->n_moves = 0;
	if (!action->flag && action->unknown != 0)
		check_fail(world->check, "C12: %s does not know whether a plan was carried out",
				   instance->dsn);
	for (int i = 0; i < action->n_entries; i++)
		planned(world, instance, &action->entry[i], exact);
}

void
plans_done(World *world, const Instance *instance, const ShardAction *action)
{
	Plans *plans = world->plans;
	Question *question;

	if (!plans || action->token <= WORLD_PLAN || action->token > WORLD_PLAN + plans->n_questions)
		return;
	question = &plans->questions[action->token - WORLD_PLAN - 1];
	if (question->over)
		check_fail(world->check, "C12: %s answers a plan twice", instance->dsn);
	question->over = true;
	if (!question->round)
		plan_answered(world, instance, action);
	else if (action->flag && question->expected >= 0 && action->result != question->expected)
		check_fail(world->check,
				   "C12: %s has begun %d moves in a round where its plan had listed %d",
				   instance->dsn, (int) action->result, question->expected);
}

/* ---- what nodes say --------------------------------------------------------------------------- */

void
plans_prepares(World *world, int32 node, const ShardShardRef *shard)
{
	Plans *plans = world->plans;

	for (int i = 0; plans && i < plans->n_moves; i++)
	{
		Move *move = &plans->moves[i];

		move->begun |= move->shard.type_id == shard->type_id && move->shard.shard == shard->shard &&
					   move->shard.move_id == shard->move_id && move->to == node;
	}
}

void
plans_sent(World *world, const Instance *instance, const ShardAction *action)
{
	Plans *plans = world->plans;
	int second = (int) (world->now / SHARD_SECOND);
	uint64 h;

	if (!plans || world->healed || second >= plans->n_said)
		return;
	h = plans->said[second] ^ (uint64) world->now ^ (uint64) instance->index << 40 ^
		(uint64) action->node << 48;
	for (size_t i = 0; i < action->length; i++)
		h = (h ^ (unsigned char) action->bytes[i]) * UINT64CONST(1099511628211);
	plans->said[second] = h * UINT64CONST(0x9E3779B97F4A7C15) + 1;
	if (action->message && action->message->kind == SHARD_CONTROL_PREPARE_IMPORT)
		plans_prepares(world, action->node, action->message->shards);
}

bool
plans_have_no_trace(const World *with, const World *refused, char *text, size_t size)
{
	for (int i = 0; i < with->plans->n_said; i++)
	{
		if (with->plans->said[i] == refused->plans->said[i])
			continue;
		snprintf(text, size,
				 "C12: a plan changes something: where plans are refused nodes say other things, "
				 "from second %d on",
				 i);
		return false;
	}
	return true;
}

void
plans_begin(World *world)
{
	Plans *plans;

	if (world->options.plans == WORLD_PLANS_NONE)
		return;
	plans = world->plans = palloc0(sizeof(Plans));
	plans->random = world->options.seed ^ UINT64CONST(0x6A09E667F3BCC909);
	plans->n_said = (int) (world->options.duration / SHARD_SECOND) + 1;
	plans->said = palloc0(sizeof(uint64) * plans->n_said);
	world_later(world, 4 * SHARD_SECOND, plan_due, NULL, false, 0, 0, NULL, 0);
}

void
plans_destroy(World *world)
{
	if (!world->plans)
		return;
	if (world->plans->questions)
		pfree(world->plans->questions);
	pfree(world->plans->said);
	pfree(world->plans);
}
