/*
 * main.c
 *		sim: runs histories and reports the first that breaks a promise.
 */
#include "mode.h"
#include "world.h"

#include <getopt.h>
#include <time.h>

static const char *const usage =
	"usage: sim [options]\n"
	"  --mode MODE     what is simulated (whole)\n"
	"                    whole    clusters: the control plane, and the flow of messages\n"
	"                    control  clusters whose shards only stop and start\n"
	"                    flow     the flow of messages, under a coordinator that knows all\n"
	"                    life     entities: remembered, passivated, timed, and their failures\n"
	"                    copies   a home with replicated shards, and its backups\n"
	"  --seed N        first seed (1)\n"
	"  --seeds N       number of histories (1)\n"
	"  --minutes N     go on with further seeds for that long\n"
	"  --trace         print what happens\n"
	"  --no-shrink     report a failure as it is\n"
	"  --keep-going    a line for each failure, and on to the next seed\n"
	"  --expect-violation  succeed if a history fails (for mutants)\n"
	"  --help          print this\n"
	"of whole and control:\n"
	"  --nodes N       nodes at the start, 1 to 9 (from the seed)\n"
	"  --seconds N     troubled part of a history (60)\n"
	"  --faults N      faults of a history (from the seed)\n"
	"  --only A,B      kinds of faults (all but unhost, types, lie and headless)\n"
	"  --list          print the kinds of faults\n"
	"  --liveness      nodes are lost for ever, and the others must go on (from the seed)\n"
	"  --leased        with a type that needs leases (from the seed)\n"
	"  --replicas N    the type that needs leases has N backups for each home\n"
	"  --journal       with a journal as the only voter\n"
	"  --storm         short troubles of the coordinator without a pause (from the seed)\n"
	"of flow:\n"
	"  --returns       many shards come back to where they were before anything is read there\n"
	"A history fails by itself in the same way with the same options. Exit status: 0 all were good,\n"
	"1 one failed, 2 the options are wrong.\n";

static const struct option known[] = {{"mode", required_argument, NULL, OPTION_MODE},
									  {"seed", required_argument, NULL, OPTION_SEED},
									  {"seeds", required_argument, NULL, OPTION_SEEDS},
									  {"minutes", required_argument, NULL, OPTION_MINUTES},
									  {"trace", no_argument, NULL, OPTION_TRACE},
									  {"no-shrink", no_argument, NULL, OPTION_NO_SHRINK},
									  {"keep-going", no_argument, NULL, OPTION_KEEP_GOING},
									  {"expect-violation", no_argument, NULL,
									   OPTION_EXPECT_VIOLATION},
									  {"list", no_argument, NULL, OPTION_LIST},
									  {"help", no_argument, NULL, OPTION_HELP},
									  {"nodes", required_argument, NULL, OPTION_NODES},
									  {"seconds", required_argument, NULL, OPTION_SECONDS},
									  {"faults", required_argument, NULL, OPTION_FAULTS},
									  {"only", required_argument, NULL, OPTION_ONLY},
									  {"liveness", no_argument, NULL, OPTION_LIVENESS},
									  {"leased", no_argument, NULL, OPTION_LEASED},
									  {"replicas", required_argument, NULL, OPTION_REPLICAS},
									  {"journal", no_argument, NULL, OPTION_JOURNAL},
									  {"storm", no_argument, NULL, OPTION_STORM},
									  {"returns", no_argument, NULL, OPTION_RETURNS},
									  {NULL, 0, NULL, 0}};

/* What is to be run. */
typedef struct Run
{
	const Mode *mode;
	Arguments arguments;
	uint64 seed;
	int64 seeds;
	double minutes;
	bool keep_going;
	bool expect;
} Run;

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

static const Mode *
mode_of(const char *name)
{
	static const Mode *const modes[] = {&mode_whole, &mode_control, &mode_flow, &mode_life,
										&mode_copies};

	for (int i = 0; i < (int) lengthof(modes); i++)
	{
		if (strcmp(name, modes[i]->name) == 0)
			return modes[i];
	}
	fprintf(stderr, "unknown mode \"%s\"\n", name);
	exit(2);
}

static void
list_kinds(void)
{
	for (int kind = 0; kind < FAULT_KINDS; kind++)
		printf("%s\n", fault_name((FaultKind) kind));
}

/* Options that go into histories. */
static void
read_argument(Arguments *arguments, Option option)
{
	arguments->given |= option_bit(option);
	switch (option)
	{
		case OPTION_TRACE:
			arguments->trace = true;
			break;
		case OPTION_NO_SHRINK:
			arguments->shrink = false;
			break;
		case OPTION_NODES:
			arguments->nodes = Min(Max(atoi(optarg), 1), WORLD_MAX_NODES);
			break;
		case OPTION_SECONDS:
			arguments->seconds = Max(atoi(optarg), 10);
			break;
		case OPTION_FAULTS:
			arguments->faults = Min(Max(atoi(optarg), 0), WORLD_MAX_FAULTS);
			break;
		case OPTION_ONLY:
			arguments->kinds = kinds_of(optarg);
			break;
		case OPTION_LIVENESS:
			arguments->liveness = 1;
			break;
		case OPTION_LEASED:
			arguments->leased = 1;
			break;
		case OPTION_REPLICAS:
			arguments->replicas = Min(Max(atoi(optarg), 0), SHARD_MAX_REPLICAS);
			break;
		case OPTION_JOURNAL:
			arguments->journal = true;
			break;
		case OPTION_STORM:
			arguments->storm = 1;
			break;
		case OPTION_RETURNS:
			arguments->returns = true;
			break;
		default:
			break;
	}
}

static void
read_option(Run *run, int option)
{
	switch (option)
	{
		case OPTION_MODE:
			run->mode = mode_of(optarg);
			break;
		case OPTION_SEED:
			run->seed = strtoull(optarg, NULL, 10);
			break;
		case OPTION_SEEDS:
			run->seeds = atoll(optarg);
			break;
		case OPTION_MINUTES:
			run->minutes = atof(optarg);
			run->seeds = PG_INT64_MAX;
			break;
		case OPTION_KEEP_GOING:
			run->keep_going = true;
			break;
		case OPTION_EXPECT_VIOLATION:
			run->expect = true;
			break;
		case OPTION_LIST:
			list_kinds();
			exit(0);
		case OPTION_HELP:
			fputs(usage, stdout);
			exit(0);
		case '?':
			fputs(usage, stderr);
			exit(2);
		default:
			read_argument(&run->arguments, option);
			break;
	}
}

static Run
read_options(int argc, char **argv)
{
	Run run = {
		.mode = &mode_whole,
		.arguments = {.seconds = 60,
					  .faults = -1,
					  .leased = -1,
					  .liveness = -1,
					  .storm = -1,
					  .shrink = true},
		.seed = 1,
		.seeds = 1,
	};
	int option;

	run.arguments.kinds = ~fault_wanted();
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
		read_option(&run, option);
	if (optind < argc)
	{
		fputs(usage, stderr);
		exit(2);
	}
	for (int i = 0; known[i].name; i++)
	{
		uint64 bit = option_bit(known[i].val);

		if (known[i].val >= OPTION_FIRST_OF_MODES &&
			(run.arguments.given & bit & ~run.mode->options))
		{
			fprintf(stderr, "mode %s has no option --%s\n", run.mode->name, known[i].name);
			exit(2);
		}
	}
	return run;
}

int
main(int argc, char **argv)
{
	Run run = read_options(argc, argv);
	char text[1024];
	int64 done = 0;
	time_t start = time(NULL);
	bool failed = false;

	for (; done < run.seeds && (!failed || run.keep_going); done++)
	{
		uint64 seed = run.seed + done;

		if (run.minutes > 0 && difftime(time(NULL), start) > run.minutes * 60)
			break;
		if (run.mode->run(&run.arguments, seed, text, sizeof(text)))
			continue;
		failed = true;
		if (run.expect || run.keep_going)
			printf("# seed %llu: %s\n", (unsigned long long) seed, text);
		else
			run.mode->report(&run.arguments, seed, text);
	}
	run.mode->sum(done, difftime(time(NULL), start));
	return failed == run.expect ? 0 : 1;
}
