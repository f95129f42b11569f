/*
 * main.c
 *		sim: runs histories of the simulated world and reports the first that breaks a promise.
 */
#include "world.h"

#include <getopt.h>
#include <time.h>

#include "core/base/timing.h"

static const char *const usage =
	"usage: sim [options]\n"
	"  --seed N        first seed (1)\n"
	"  --seeds N       number of histories (1)\n"
	"  --nodes N       nodes at the start, 1 to 9 (from the seed)\n"
	"  --seconds N     troubled part of a history (60)\n"
	"  --faults N      faults of a history (from the seed)\n"
	"  --only A,B      kinds of faults (all but unhost and types); --list prints them\n"
	"  --liveness      nodes are lost for ever, and the others must go on (from the seed)\n"
	"  --leased        with a type that needs leases (from the seed)\n"
	"  --journal       with a journal as the only voter\n"
	"  --storm         short troubles of the coordinator without a pause (from the seed)\n"
	"  --trace         print what happens\n"
	"  --no-shrink     report a failure as it is\n"
	"  --keep-going    a line for each failure, and on to the next seed\n"
	"  --minutes N     go on with further seeds for that long\n"
	"  --expect-violation  succeed if a history fails (for mutants)\n"
	"  --list          print the kinds of faults\n"
	"  --help          print this\n"
	"A history fails by itself in the same way with the same options. Exit status: 0 all were good,\n"
	"1 one failed, 2 the options are wrong.\n";

typedef struct Arguments
{
	uint64 seed;
	int64 seeds;
	int nodes;
	int seconds;
	int faults;
	uint64 kinds;
	int liveness;
	int leased;
	int journal;
	int storm;
	bool trace;
	bool shrink;
	bool keep_going;
	double minutes;
	bool expect;
} Arguments;

/* All options of a history from its seed and what was given. */
static WorldOptions
options_of(const Arguments *arguments, uint64 seed)
{
	uint64 state = seed * UINT64CONST(0x2545F4914F6CDD1D) + 7;
	WorldOptions options = {.seed = seed};

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
	if (options.journal)
		options.liveness = false; /* there is no minority of one voter */
	if (options.liveness)
	{
		/* What needs an operator's judgement is another matter. */
		options.shards += WORLD_RESERVED_SHARDS;
		options.settle = 60 * SHARD_SECOND;
		options.kinds &= ~fault_operator();
	}
#undef PICK
	fault_plan(&options);
	return options;
}

static const char *
run_once(const WorldOptions *options, char *text, size_t size, World *totals)
{
	World *world = world_create(options);
	const char *violation = world_run(world);

	if (violation)
		strlcpy(text, violation, size);
	totals->n_events += world->n_events;
	totals->n_messages += world->n_messages;
	totals->n_applied += world->n_applied;
	for (int kind = 0; kind < FAULT_KINDS; kind++)
		totals->applied[kind] += world->applied[kind];
	totals->n_lost += world->n_lost;
	totals->n_moves += check_told(world->check);
	totals->n_offices += world->n_offices;
	world_destroy(world);
	return violation ? text : NULL;
}

/* Leave out whatever is not needed for the history to fail: larger parts first, then single faults. */
static void
shrink(WorldOptions *options, char *text, size_t size)
{
	World totals = {0};
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
			if (any && run_once(&less, other, sizeof(other), &totals) &&
				strncmp(other, text, strcspn(text, ":")) == 0)
			{
				*options = less;
				strlcpy(text, other, size);
			}
		}
	}
}

static void
report(const WorldOptions *options, const char *text)
{
	printf("seed %llu: %s\n", (unsigned long long) options->seed, text);
	printf(
		"  %d nodes, %d shards, %d entities, %lld s, loss %d %%, delay %lld us, clocks %d ppm%s%s%s%s%s%s\n",
		options->nodes, options->shards, options->entities,
		(long long) (options->duration / SHARD_SECOND), options->loss_percent,
		(long long) options->delay, options->clock_ppm, options->leased ? ", leased type" : "",
		options->journal ? ", journal" : "", options->standby_gate ? ", standbys" : "",
		options->storm ? ", storm" : "", options->functions ? ", functions" : "",
		options->liveness ? ", liveness" : "");
	for (int i = 0; i < options->n_faults; i++)
	{
		if (options->faults[i].off)
			continue;
		printf("  ");
		fault_print(&options->faults[i], stdout);
	}
}

/* How often each kind of fault happened. */
static void
report_faults(const World *totals)
{
	printf("#");
	for (int kind = 0; kind < FAULT_KINDS; kind++)
		printf(" %s %d,", fault_name((FaultKind) kind), totals->applied[kind]);
	printf(" lost for ever %d\n", totals->n_lost);
}

static uint64
kinds_of(const char *list)
{
	uint64 kinds = 0;
	char *copy = pstrdup(list);

	for (char *name = strtok(copy, ","); name; name = strtok(NULL, ","))
	{
		int kind = 0;

		while (kind < FAULT_KINDS && strcmp(fault_name((FaultKind) kind), name) != 0)
			kind++;
		if (kind == FAULT_KINDS)
		{
			fprintf(stderr, "unknown kind of fault \"%s\"\n", name);
			exit(2);
		}
		kinds |= UINT64CONST(1) << kind;
	}
	pfree(copy);
	return kinds;
}

static Arguments
read_arguments(int argc, char **argv)
{
	enum
	{
		SEED = 1,
		SEEDS,
		NODES,
		SECONDS,
		FAULTS,
		ONLY,
		LIST,
		LIVENESS,
		LEASED,
		JOURNAL,
		STORM,
		TRACE,
		NO_SHRINK,
		KEEP_GOING,
		MINUTES,
		EXPECT,
		HELP
	};
	static const struct option known[] = {{"seed", required_argument, NULL, SEED},
										  {"seeds", required_argument, NULL, SEEDS},
										  {"nodes", required_argument, NULL, NODES},
										  {"seconds", required_argument, NULL, SECONDS},
										  {"faults", required_argument, NULL, FAULTS},
										  {"only", required_argument, NULL, ONLY},
										  {"list", no_argument, NULL, LIST},
										  {"liveness", no_argument, NULL, LIVENESS},
										  {"leased", no_argument, NULL, LEASED},
										  {"journal", no_argument, NULL, JOURNAL},
										  {"storm", no_argument, NULL, STORM},
										  {"trace", no_argument, NULL, TRACE},
										  {"no-shrink", no_argument, NULL, NO_SHRINK},
										  {"keep-going", no_argument, NULL, KEEP_GOING},
										  {"minutes", required_argument, NULL, MINUTES},
										  {"expect-violation", no_argument, NULL, EXPECT},
										  {"help", no_argument, NULL, HELP},
										  {NULL, 0, NULL, 0}};
	Arguments arguments = {.seed = 1,
						   .seeds = 1,
						   .seconds = 60,
						   .faults = -1,
						   .leased = -1,
						   .liveness = -1,
						   .storm = -1,
						   .shrink = true};
	int option;

	arguments.kinds = ~fault_wanted();
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
	{
		switch (option)
		{
			case SEED:
				arguments.seed = strtoull(optarg, NULL, 10);
				break;
			case SEEDS:
				arguments.seeds = atoll(optarg);
				break;
			case NODES:
				arguments.nodes = Min(Max(atoi(optarg), 1), WORLD_MAX_NODES);
				break;
			case SECONDS:
				arguments.seconds = Max(atoi(optarg), 10);
				break;
			case FAULTS:
				arguments.faults = Min(Max(atoi(optarg), 0), WORLD_MAX_FAULTS);
				break;
			case ONLY:
				arguments.kinds = kinds_of(optarg);
				break;
			case LIST:
				for (int kind = 0; kind < FAULT_KINDS; kind++)
					printf("%s\n", fault_name((FaultKind) kind));
				exit(0);
			case LIVENESS:
				arguments.liveness = 1;
				break;
			case LEASED:
				arguments.leased = 1;
				break;
			case JOURNAL:
				arguments.journal = 1;
				break;
			case STORM:
				arguments.storm = 1;
				break;
			case TRACE:
				arguments.trace = true;
				break;
			case NO_SHRINK:
				arguments.shrink = false;
				break;
			case KEEP_GOING:
				arguments.keep_going = true;
				break;
			case MINUTES:
				arguments.minutes = atof(optarg);
				arguments.seeds = PG_INT64_MAX;
				break;
			case EXPECT:
				arguments.expect = true;
				break;
			case HELP:
				fputs(usage, stdout);
				exit(0);
			default:
				fputs(usage, stderr);
				exit(2);
		}
	}
	return arguments;
}

int
main(int argc, char **argv)
{
	Arguments arguments = read_arguments(argc, argv);
	World totals = {0};
	char text[1024];
	int64 done = 0;
	time_t start = time(NULL);
	bool failed = false;

	for (; done < arguments.seeds && (!failed || arguments.keep_going); done++)
	{
		WorldOptions options = options_of(&arguments, arguments.seed + done);

		if (arguments.minutes > 0 && difftime(time(NULL), start) > arguments.minutes * 60)
			break;
		if (arguments.trace)
			options.trace = stdout;
		if (!run_once(&options, text, sizeof(text), &totals))
			continue;
		failed = true;
		if (arguments.expect || arguments.keep_going)
			printf("# seed %llu: %s\n", (unsigned long long) options.seed, text);
		else
		{
			if (arguments.shrink && !arguments.trace)
			{
				printf("# seed %llu fails (%s); leaving out what is not needed\n",
					   (unsigned long long) options.seed, text);
				shrink(&options, text, sizeof(text));
			}
			report(&options, text);
		}
	}
	printf(
		"# %lld histories, %d faults, %lld messages, %d tells, %d terms of office, %lld events, %.0f s\n",
		(long long) done, totals.n_applied, (long long) totals.n_messages, totals.n_moves,
		totals.n_offices, (long long) totals.n_events, difftime(time(NULL), start));
	report_faults(&totals);
	return failed == arguments.expect ? 0 : 1;
}
