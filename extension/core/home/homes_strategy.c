/*
 * core/home/homes_strategy.c
 *		Types whose strategy is the user's own pair of functions (C11).
 *
 * They are asked through the host and answer later, or not at all: there is one question at a time for
 * a type, and it has an end. What they say is wanted, not trusted: each node must be one that may host
 * the shard now, each shard one of those that were asked about. An error, nonsense or silence is told,
 * and least_shard does what was asked. Nothing of this is durable; each step that follows from an
 * answer is a compare-and-set like any other.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/home/homes_plan.h"
#include "core/base/text.h"

/* Moves that begin by one answer; the next round goes on. */
#define MOVE_LIMIT 64

/* Shards of one question. */
#define QUESTION_LIMIT 500

/* A failure of the same kind is told again only after this time, even in other words. */
#define TELL_AGAIN (60 * SHARD_SECOND)

/* What is known of a type's functions, NULL: nothing was asked yet. */
static HomesStrategy *
find_strategy(const ShardHomes *homes, int32 type_id)
{
	for (int i = 0; i < homes->n_strategies; i++)
	{
		if (homes->strategies[i].type_id == type_id)
			return &homes->strategies[i];
	}
	return NULL;
}

static HomesStrategy *
make_strategy(ShardHomes *homes, int32 type_id)
{
	HomesStrategy *strategy = find_strategy(homes, type_id);
	size_t size = sizeof(HomesStrategy) * (homes->n_strategies + 1);

	if (strategy)
		return strategy;
	homes->strategies = homes->strategies ? repalloc(homes->strategies, size) : palloc(size);
	strategy = &homes->strategies[homes->n_strategies++];
	memset(strategy, 0, sizeof(*strategy));
	strategy->type_id = type_id;
	return strategy;
}

/* The question has its end. */
static void
close_question(HomesStrategy *strategy)
{
	if (strategy->shards)
		pfree(strategy->shards);
	strategy->shards = NULL;
	strategy->n_shards = 0;
	strategy->question = HOMES_ASK_NOTHING;
}

void
shard_homes_forget_strategies(ShardHomes *homes)
{
	for (int i = 0; i < homes->n_strategies; i++)
		close_question(&homes->strategies[i]);
	homes->n_strategies = 0;
}

static int
compare_shards(const void *a, const void *b)
{
	int32 x = *(const int32 *) a;
	int32 y = *(const int32 *) b;

	return x < y ? -1 : x > y;
}

/* Is a shard in a sorted list? */
static bool
is_among(const int32 *shards, int n_shards, int32 shard)
{
	return n_shards > 0 && bsearch(&shard, shards, n_shards, sizeof(int32), compare_shards);
}

/* ---- questions -------------------------------------------------------------------------------- */

/* The regions of a view without some shards, in rising order, that are to be given other homes. */
static void
take_out(ShardAllocationView *view, const int32 *shards, int n_shards, ShardArena *arena)
{
	ShardAllocationRegion *regions =
		shard_arena_alloc(arena, sizeof(ShardAllocationRegion) * Max(view->n_regions, 1));

	for (int r = 0; r < view->n_regions; r++)
	{
		const ShardAllocationRegion *from = &view->regions[r];
		int32 *kept = shard_arena_alloc(arena, sizeof(int32) * Max(from->n_shards, 1));

		regions[r] = *from;
		regions[r].n_shards = 0;
		for (int i = 0; i < from->n_shards; i++)
		{
			if (!is_among(shards, n_shards, from->shards[i]))
				kept[regions[r].n_shards++] = from->shards[i];
		}
		regions[r].shards = kept;
	}
	view->regions = regions;
}

/* Ask the functions of a type; requesters may be NULL. */
static void
ask(ShardHomes *homes, int64 now, HomesStrategy *strategy, HomesQuestion question, PlanView *plan,
	const int32 *shards, const int32 *requesters, int n_shards)
{
	ShardArena *arena = homes->out->arena;
	ShardStrategyCall *call = shard_arena_alloc(arena, sizeof(ShardStrategyCall));
	ShardAction *action = shard_action_add(homes->out, SHARD_ACTION_STRATEGY);
	int32 *copy = shard_arena_alloc(arena, sizeof(int32) * Max(n_shards, 1));
	int32 *from = shard_arena_alloc(arena, sizeof(int32) * Max(n_shards, 1));

	if (n_shards > 0)
		memcpy(copy, shards, sizeof(int32) * n_shards);
	if (n_shards > 0 && requesters)
		memcpy(from, requesters, sizeof(int32) * n_shards);
	strategy->question = question;
	strategy->token = ++homes->next_token;
	strategy->deadline = now + SHARD_STRATEGY_TIMEOUT;
	strategy->n_shards = n_shards;
	strategy->shards = palloc(sizeof(int32) * Max(n_shards, 1));
	if (n_shards > 0)
		memcpy(strategy->shards, copy, sizeof(int32) * n_shards);
	qsort(strategy->shards, n_shards, sizeof(int32), compare_shards);
	call->rebalance = question == HOMES_ASK_MOVES;
	call->view = &plan->view;
	call->n_shards = n_shards;
	call->shards = copy;
	call->requesters = from;
	action->token = strategy->token;
	action->shard.type_id = strategy->type_id;
	action->strategy = call;
}

/* A view that lives until the host has looked at the actions. NULL: there is no such type. */
static PlanView *
make_view(ShardHomes *homes, int64 now, int32 type_id, const ShardRoster *roster)
{
	PlanView *plan = shard_arena_alloc(homes->out->arena, sizeof(PlanView));

	return shard_homes_view(plan, homes, now, type_id, roster, homes->out->arena) ? plan : NULL;
}

/* With one region, or none, there is nothing to choose. */
static bool
has_choice(const ShardHomes *homes, const PlanView *plan)
{
	return shard_homes_view_good(plan, homes->arena).n_regions > 1;
}

bool
shard_homes_ask_homes(ShardHomes *homes, int64 now, int32 type_id, const HomesRequest *requests,
					  int n_requests, const ShardRoster *roster)
{
	HomesStrategy *strategy = make_strategy(homes, type_id);
	int32 *shards;
	int32 *requesters;
	PlanView *plan;
	int n = Min(n_requests, QUESTION_LIMIT);

	if (strategy->question != HOMES_ASK_NOTHING || now < strategy->not_before)
		return true;
	plan = make_view(homes, now, type_id, roster);
	if (!plan || !has_choice(homes, plan))
		return false;
	shards = shard_arena_alloc(homes->arena, sizeof(int32) * n);
	requesters = shard_arena_alloc(homes->arena, sizeof(int32) * n);
	for (int i = 0; i < n; i++)
	{
		shards[i] = requests[i].key.shard;
		requesters[i] = requests[i].requester;
	}
	ask(homes, now, strategy, HOMES_ASK_HOMES, plan, shards, requesters, n);
	return true;
}

bool
shard_homes_ask_moves(ShardHomes *homes, int64 now, int32 type_id, const char *who,
					  const ShardRoster *roster)
{
	HomesStrategy *strategy = make_strategy(homes, type_id);
	PlanView *plan;

	/* An operator that wants a round while one is under way hears how that one ends. */
	if (strategy->question == HOMES_ASK_MOVES || strategy->question == HOMES_ASK_TARGETS)
		return true;
	if (strategy->question != HOMES_ASK_NOTHING)
		return false;
	plan = make_view(homes, now, type_id, roster);
	if (!plan || !has_choice(homes, plan))
		return false;
	shard_text_copy(strategy->who, who ? who : "", sizeof(strategy->who));
	ask(homes, now, strategy, HOMES_ASK_MOVES, plan, plan->moving, NULL, plan->n_moving);
	return true;
}

/* ---- answers ---------------------------------------------------------------------------------- */

/* A text that lives as long as the call. */
static const char *say(const ShardHomes *homes, const char *format, ...) pg_attribute_printf(2, 3);

static const char *
say(const ShardHomes *homes, const char *format, ...)
{
	char text[200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	shard_text_mend(text);
	va_end(args);
	return shard_arena_copy(homes->arena, text, strlen(text) + 1);
}

/* Is a failure of that kind to be told now? If so, the function notes that it was. */
static bool
is_news(HomesStrategy *strategy, int64 now, int32 kind)
{
	HomesTold *free = NULL;

	for (int i = 0; i < HOMES_TOLD; i++)
	{
		HomesTold *told = &strategy->told[i];

		if (told->until <= now)
			free = told;
		else if (told->kind == kind)
			return false;
	}
	if (free)
		*free = (HomesTold){kind, now + TELL_AGAIN};
	return free != NULL;
}

/* People are told that functions have failed, and what comes of it: in the log, and as a decision. */
static void
tell_failure(ShardHomes *homes, int64 now, HomesStrategy *strategy, const PlanView *plan,
			 int32 kind, const char *result, const char *why)
{
	ShardShardRef type = {.type_id = strategy->type_id, .shard = -1};
	const char *text = say(homes, "%s: %s", result, why);

	if (!is_news(strategy, now, kind))
		return;
	shard_homes_decision(homes, SHARD_DECISION_STRATEGY, type, 0, 0, text);
	shard_action_log(homes->out, 19 /* WARNING */,
					 "the allocation strategy of entity type "
					 "\"%s\" failed, %s",
					 plan->type.name, text);
}

/*
 * The functions were asked about these shards and have named no node for them: shards without a home
 * wait, and the functions are asked again; shards that should have moved stay.
 */
static void
tell_unnamed(ShardHomes *homes, int64 now, HomesStrategy *strategy, const PlanView *plan,
			 bool first_homes, const ShardHomesStrategy *answer)
{
	int n_unnamed = 0;
	int32 shard = 0;

	for (int i = answer->n_shards - 1; i >= 0; i--)
	{
		int32 pin = shard_homes_view_pin(plan, answer->shards[i].shard);

		/* A pinned shard goes to its pin in any case. */
		if (answer->nodes[i] != 0 || (pin != 0 && shard_homes_view_is_good(plan, pin)))
			continue;
		n_unnamed++;
		shard = answer->shards[i].shard;
	}
	if (n_unnamed > 0)
		tell_failure(homes, now, strategy, plan, HOMES_FAILED_NONE,
					 first_homes ? "these shards have no home, and are asked about again"
								 : "these shards stay",
					 say(homes, "no node was named (NULL) for shard %d%s", shard,
						 n_unnamed > 1 ? say(homes, " and %d more", n_unnamed - 1) : ""));
}

/* What is wrong with an answer, NULL: nothing; and of which kind the failure is. */
static const char *
find_nonsense(ShardHomes *homes, const HomesStrategy *strategy, const PlanView *plan,
			  const ShardHomesStrategy *answer, int32 *kind)
{
	bool moves = strategy->question == HOMES_ASK_MOVES;

	*kind = answer->sqlstate == 0 ? HOMES_FAILED_NO_ANSWER : HOMES_FAILED_RAISED + answer->sqlstate;
	if (answer->error)
		return answer->error;
	*kind = HOMES_FAILED_QUESTION;
	if (answer->rebalance != moves || (!moves && answer->n_nodes != answer->n_shards))
		return "the answer is to another question";
	for (int i = 0; i < answer->n_shards; i++)
	{
		int32 shard = answer->shards[i].shard;

		if (answer->shards[i].type_id != strategy->type_id)
			return "the answer is about another type";
		*kind = HOMES_FAILED_SHARD;
		if (moves && !shard_homes_shard(homes, strategy->type_id, shard) &&
			!shard_proposer_pending(homes->proposer,
									(ShardMapKey){SHARD_MAP_HOME, strategy->type_id, shard}))
			return "a shard was named that has no home";
		if (!moves && !is_among(strategy->shards, strategy->n_shards, shard))
			return "a shard was named that was not asked about";
		*kind = HOMES_FAILED_NODE;
		if (!moves && answer->nodes[i] != 0 && !shard_homes_view_is_good(plan, answer->nodes[i]))
			return say(homes,
					   "node %d was named for shard %d, which does not host the type, or cannot "
					   "have shards now",
					   answer->nodes[i], shard);
	}
	return NULL;
}

/* What the functions were asked is done by least_shard. Returns how many moves begin. */
static int
fall_back(ShardHomes *homes, int64 now, HomesStrategy *strategy, const PlanView *plan,
		  ShardProposer *proposer, const ShardRoster *roster)
{
	ShardAllocationSettings settings = plan->settings;
	HomesRequest *requests;
	int n = 0;

	settings.kind = SHARD_ALLOCATION_LEAST_SHARD;
	if (strategy->question != HOMES_ASK_HOMES)
		return shard_homes_plan_type(homes, now, plan, &settings, strategy->who, roster);
	requests = shard_arena_alloc(homes->arena, sizeof(HomesRequest) * Max(strategy->n_shards, 1));
	for (int i = 0; i < strategy->n_shards; i++)
	{
		HomesRequest *request =
			homes_request_lookup(homes->requests,
								 (ShardShardKey){strategy->type_id, strategy->shards[i]});

		if (request)
			requests[n++] = *request;
	}
	shard_homes_allocate_type(homes, plan, &settings, requests, n, proposer);
	return 0;
}

/* Shards that have no home get the one that was named, or the one where they are pinned. */
static void
take_homes(ShardHomes *homes, int64 now, HomesStrategy *strategy, const PlanView *plan,
		   const ShardHomesStrategy *answer, ShardProposer *proposer)
{
	for (int i = 0; i < answer->n_shards; i++)
	{
		int32 shard = answer->shards[i].shard;
		int32 pin = shard_homes_view_pin(plan, shard);
		int32 node = pin != 0 && shard_homes_view_is_good(plan, pin) ? pin : answer->nodes[i];

		if (node != 0 &&
			homes_request_lookup(homes->requests, (ShardShardKey){strategy->type_id, shard}))
			shard_homes_give(homes, plan, shard, node, proposer);
	}
	/* Those that were left out are asked for again, not at once. */
	strategy->not_before = now + SHARD_RETRY_INTERVAL;
	if (answer->n_shards >= strategy->n_shards)
		strategy->not_before = now + SHARD_RESEND_INTERVAL;
}

/* A sorted list with each shard once; returns how many. */
static int
drop_repeated(int32 *shards, int n_shards)
{
	int n = 0;

	for (int i = 0; i < n_shards; i++)
	{
		if (n == 0 || shards[n - 1] != shards[i])
			shards[n++] = shards[i];
	}
	return n;
}

/* Shards should move: where to? True: that is asked. */
static bool
take_moves(ShardHomes *homes, int64 now, HomesStrategy *strategy, PlanView *plan,
		   const ShardHomesStrategy *answer)
{
	int32 *shards = shard_arena_alloc(homes->arena, sizeof(int32) * MOVE_LIMIT);
	int n = 0;

	for (int i = 0; i < answer->n_shards && n < MOVE_LIMIT; i++)
	{
		int32 number = answer->shards[i].shard;
		const HomesShard *shard = shard_homes_shard(homes, strategy->type_id, number);

		/* The view names those, too, whose first home is not decided yet. */
		if (shard && shard->move == SHARD_MOVE_NONE && now >= shard->not_before &&
			shard_homes_view_pin(plan, number) == 0)
			shards[n++] = number;
	}
	qsort(shards, n, sizeof(int32), compare_shards);
	n = drop_repeated(shards, n);
	if (n == 0)
		return false;
	take_out(&plan->view, shards, n, homes->out->arena);
	ask(homes, now, strategy, HOMES_ASK_TARGETS, plan, shards, NULL, n);
	return true;
}

/* Begin the moves whose targets are known now. Returns how many. */
static int
take_targets(ShardHomes *homes, int64 now, HomesStrategy *strategy,
			 const ShardHomesStrategy *answer, const ShardRoster *roster)
{
	int n_begun = 0;

	for (int i = 0; i < answer->n_shards; i++)
	{
		HomesShard *shard = shard_homes_shard(homes, strategy->type_id, answer->shards[i].shard);
		const char *why;

		if (shard && answer->nodes[i] != 0)
			n_begun +=
				shard_homes_begin_move(homes, now, shard, answer->nodes[i],
									   SHARD_HOME_REASON_REBALANCE, strategy->who, roster, &why);
	}
	return n_begun;
}

/* Carry out an answer, or what takes its place. */
static void
take_answer(ShardHomes *homes, int64 now, HomesStrategy *strategy, const ShardHomesStrategy *answer,
			ShardProposer *proposer, const ShardRoster *roster)
{
	HomesStrategy asked = *strategy;
	PlanView *plan = make_view(homes, now, strategy->type_id, roster);
	int32 kind = 0;
	const char *why = plan ? find_nonsense(homes, strategy, plan, answer, &kind) : NULL;
	int n_begun = 0;

	/* The answer is judged by what was asked; a new question may come in its place. */
	strategy->shards = NULL;
	close_question(strategy);
	if (!plan)
		n_begun = 0;
	else if (why)
	{
		tell_failure(homes, now, strategy, plan, kind, "least_shard is used", why);
		n_begun = fall_back(homes, now, &asked, plan, proposer, roster);
	}
	else if (asked.question == HOMES_ASK_HOMES)
	{
		take_homes(homes, now, &asked, plan, answer, proposer);
		strategy->not_before = asked.not_before;
	}
	else if (asked.question == HOMES_ASK_TARGETS)
		n_begun = take_targets(homes, now, &asked, answer, roster);
	else
		(void) take_moves(homes, now, strategy, plan, answer);
	if (plan && !why && asked.question != HOMES_ASK_MOVES)
		tell_unnamed(homes, now, strategy, plan, asked.question == HOMES_ASK_HOMES, answer);
	if (asked.question != HOMES_ASK_HOMES && strategy->question == HOMES_ASK_NOTHING)
		shard_homes_round_ended(homes, asked.type_id, n_begun);
	pfree(asked.shards);
}

/* A late answer finds another question, or none. */
void
shard_homes_strategy(ShardHomes *homes, int64 now, const ShardHomesStrategy *answer,
					 ShardProposer *proposer, const ShardRoster *roster, ShardActions *out)
{
	shard_homes_begin(homes, now, out);
	for (int i = 0; i < homes->n_strategies; i++)
	{
		HomesStrategy *strategy = &homes->strategies[i];

		if (strategy->question != HOMES_ASK_NOTHING && strategy->token == answer->token)
		{
			take_answer(homes, now, strategy, answer, proposer, roster);
			return;
		}
	}
}

void
shard_homes_strategy_late(ShardHomes *homes, int64 now, ShardProposer *proposer,
						  const ShardRoster *roster)
{
	for (int i = 0; i < homes->n_strategies; i++)
	{
		HomesStrategy *strategy = &homes->strategies[i];
		ShardHomesStrategy answer = {.token = strategy->token,
									 .error = "the functions have not answered"};

		if (strategy->question != HOMES_ASK_NOTHING && now >= strategy->deadline)
			take_answer(homes, now, strategy, &answer, proposer, roster);
	}
}
