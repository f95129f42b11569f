/*
 * history.c
 *		Modes whole and control: histories of the simulated world. What a seed does not say, faults among it, is what
 *		was given; a history that breaks a promise is made as small as it can be.
 */
#include "mode.h"
#include "world.h"

#include "core/base/timing.h"

/* Counts of all histories. */
static World totals;

/* All options of a history from its seed and what was given. */
static WorldOptions
options_of(const Arguments *arguments, uint64 seed, const FlowModel *model)
{
	uint64 state = seed * UINT64CONST(0x2545F4914F6CDD1D) + 7;
	WorldOptions options = {.seed = seed, .model = model};

#define PICK(below) \
	((state = state * UINT64CONST(6364136223846793005) + 1442695040888963407ULL) >> 33) % (below)
	options.nodes = 1 + (int) (PICK(9));
	if (PICK(3) != 0)
		options.nodes = 3 + (int) (PICK(3));
	if (arguments->nodes)
		options.nodes = arguments->nodes;
	options.shards = 4 + (int) (PICK(9));
	options.entities = 1 + (int) (PICK(3));
	options.duration = arguments->seconds * SHARD_SECOND;
	options.settle = 90 * SHARD_SECOND;
	options.leased = arguments->leased >= 0 ? arguments->leased : PICK(3) == 0;
	options.replicas = arguments->replicas;
	options.leased |= options.replicas > 0;
	options.loss_percent = (int) (PICK(3));
	options.delay = 500 + (int64) (PICK(4000));
	/* Two clocks differ by twice that at most: 1 %, as leases allow for. */
	options.clock_ppm = (int) (PICK(2)) * 5000;
	options.standby_gate = PICK(4) == 0;
	options.n_faults = arguments->faults >= 0 ? arguments->faults : 2 + (int) (PICK(24));
	options.kinds = arguments->kinds;
	options.storm = arguments->storm >= 0 ? arguments->storm : PICK(4) == 0;
	if (options.storm)
	{
		options.n_faults = WORLD_MAX_FAULTS;
		options.loss_percent += (int) (PICK(8));
		options.kinds &= fault_storm();
	}
	options.functions = PICK(3) == 0;
	options.gap_timeout = PICK(4) == 0 ? FLOW_NO_TIMEOUT : (300 + (int64) (PICK(4000))) * SHARD_MS;
	options.gap_from_one = PICK(3) == 0;
	options.journal = arguments->journal;
	if (!options.journal)
		options.kinds &= ~(UINT64CONST(1) << FAULT_JOURNAL_RESTORE);
	options.liveness = arguments->liveness >= 0 ? arguments->liveness : PICK(8) == 0;
	if (options.replicas > 0)
	{
		/* who has copies does not leave, and a shard waits for its home, whatever becomes of that */
		options.liveness = false;
		options.kinds &= ~(fault_operator() | UINT64CONST(1) << FAULT_LEAVE |
						   UINT64CONST(1) << FAULT_DOWN | UINT64CONST(1) << FAULT_WRITE_OFF);
	}
	if (options.journal)
		options.liveness = false; /* there is no minority of one voter */
	if (options.liveness)
	{
		/* What needs an operator's judgement is another matter. */
		options.shards += WORLD_RESERVED_SHARDS;
		options.settle = 60 * SHARD_SECOND;
		options.kinds &= ~fault_operator();
	}
	switch (PICK(8))
	{
		case 0:
			options.plans = WORLD_PLANS_COORDINATOR;
			break;
		case 1:
			options.plans = WORLD_PLANS_ANYWHERE;
			break;
	}
#undef PICK
	if (arguments->trace)
		options.trace = stdout;
	fault_plan(&options);
	return options;
}

/* The same history, with plans that are refused: nodes say the same in it. */
static bool
is_the_same_without_plans(const World *world, char *text, size_t size)
{
	WorldOptions options = world->options;
	World *other;
	bool same;

	options.plans_refused = true;
	options.trace = NULL;
	other = world_create(&options);
	(void) world_run(other);
	same = plans_have_no_trace(world, other, text, size);
	world_destroy(other);
	return same;
}

/* True: all was well. */
static bool
run_once(const WorldOptions *options, char *text, size_t size, World *counts)
{
	World *world = world_create(options);
	const char *violation = world_run(world);

	if (violation)
		strlcpy(text, violation, size);
	else if (options->plans == WORLD_PLANS_COORDINATOR &&
			 !is_the_same_without_plans(world, text, size))
		violation = text;
	counts->n_events += world->n_events;
	counts->n_messages += world->n_messages;
	counts->n_applied += world->n_applied;
	for (int kind = 0; kind < FAULT_KINDS; kind++)
		counts->applied[kind] += world->applied[kind];
	counts->n_lost += world->n_lost;
	counts->n_moves += check_told(world->check);
	counts->n_offices += world->n_offices;
	counts->n_plans += world->n_plans;
	counts->n_plans_followed += world->n_plans_followed;
	world_destroy(world);
	return violation == NULL;
}

/* Leave out whatever is not needed for the history to fail: larger parts first, then single faults. */
static void
shrink(WorldOptions *options, char *text, size_t size)
{
	World others = {0};
	char other[1024];

	for (int part = Max(options->n_faults / 2, 1); part >= 1; part /= 2)
	{
		for (int from = 0; from < options->n_faults; from += part)
		{
			WorldOptions less = *options;
			bool any = false;

			for (int i = from; i < Min(from + part, options->n_faults); i++)
			{
				any |= !less.faults[i].off;
				less.faults[i].off = true;
			}
			/* Another failure is another story. */
			if (any && !run_once(&less, other, sizeof(other), &others) &&
				strncmp(other, text, strcspn(text, ":")) == 0)
			{
				*options = less;
				strlcpy(text, other, size);
			}
		}
	}
}

static void
print_history(const WorldOptions *options, const char *text)
{
	printf("seed %llu: %s\n", (unsigned long long) options->seed, text);
	printf(
		"  %d nodes, %d shards, %d entities, %lld s, loss %d %%, delay %lld us, clocks %d ppm%s%s%s%s%s%s%s\n",
		options->nodes, options->shards, options->entities,
		(long long) (options->duration / SHARD_SECOND), options->loss_percent,
		(long long) options->delay, options->clock_ppm,
		options->replicas > 0 ? ", replicas"
		: options->leased	  ? ", leased type"
							  : "",
		options->journal ? ", journal" : "", options->standby_gate ? ", standbys" : "",
		options->storm ? ", storm" : "", options->functions ? ", functions" : "",
		options->liveness ? ", liveness" : "", options->plans ? ", plans" : "");
	for (int i = 0; i < options->n_faults; i++)
	{
		if (options->faults[i].off)
			continue;
		printf("  ");
		fault_print(&options->faults[i], stdout);
	}
}

static void
report(const Arguments *arguments, WorldOptions *options, const char *violation)
{
	char text[1024];

	strlcpy(text, violation, sizeof(text));
	if (arguments->shrink && !arguments->trace)
	{
		printf("# seed %llu fails (%s); leaving out what is not needed\n",
			   (unsigned long long) options->seed, text);
		shrink(options, text, sizeof(text));
	}
	print_history(options, text);
}

/* With how often each kind of fault happened. */
static void
sum(int64 histories, double seconds)
{
	printf(
		"# %lld histories, %d faults, %lld messages, %d tells, %d terms of office, %lld events, %.0f s\n",
		(long long) histories, totals.n_applied, (long long) totals.n_messages, totals.n_moves,
		totals.n_offices, (long long) totals.n_events, seconds);
	printf("#");
	for (int kind = 0; kind < FAULT_KINDS; kind++)
		printf(" %s %d,", fault_name((FaultKind) kind), totals.applied[kind]);
	printf(" lost for ever %d, plans %d, with moves of a round %d\n", totals.n_lost, totals.n_plans,
		   totals.n_plans_followed);
}

static bool
run_whole(const Arguments *arguments, uint64 seed, char *text, size_t size)
{
	WorldOptions options = options_of(arguments, seed, &flow_messages);

	return run_once(&options, text, size, &totals);
}

static void
report_whole(const Arguments *arguments, uint64 seed, const char *text)
{
	WorldOptions options = options_of(arguments, seed, &flow_messages);

	report(arguments, &options, text);
}

static bool
run_control(const Arguments *arguments, uint64 seed, char *text, size_t size)
{
	WorldOptions options = options_of(arguments, seed, &flow_ownership);

	return run_once(&options, text, size, &totals);
}

static void
report_control(const Arguments *arguments, uint64 seed, const char *text)
{
	WorldOptions options = options_of(arguments, seed, &flow_ownership);

	report(arguments, &options, text);
}

#define WORLD_OPTIONS \
	(option_bit(OPTION_NODES) | option_bit(OPTION_SECONDS) | option_bit(OPTION_FAULTS) | \
	 option_bit(OPTION_ONLY) | option_bit(OPTION_LIVENESS) | option_bit(OPTION_LEASED) | \
	 option_bit(OPTION_REPLICAS) | option_bit(OPTION_JOURNAL) | option_bit(OPTION_STORM))

const Mode mode_whole = {.name = "whole",
						 .options = WORLD_OPTIONS,
						 .run = run_whole,
						 .report = report_whole,
						 .sum = sum};

const Mode mode_control = {.name = "control",
						   .options = WORLD_OPTIONS,
						   .run = run_control,
						   .report = report_control,
						   .sum = sum};
