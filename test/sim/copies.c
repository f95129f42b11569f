/*
 * copies.c
 *		Mode copies: time, chance, the network, the other node, the coordinator, and what goes wrong.
 */
#include "copies.h"

#include "mode.h"

#define CHAOS (4000 * COPIES_MS)
#define REST (60000 * COPIES_MS)

/* Counts of all histories. */
static int64 turns;
static int violations;

/* splitmix64: the same history from the same seed. */
uint32
copies_random(CopiesWorld *world, uint32 below)
{
	uint64 z = (world->state += UINT64CONST(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94d049bb133111eb);
	z ^= z >> 31;
	return below > 0 ? (uint32) (z >> 32) % below : 0;
}

bool
copies_percent(CopiesWorld *world, int chance)
{
	return (int) copies_random(world, 100) < chance;
}

void
copies_trace(CopiesWorld *world, const char *format, ...)
{
	va_list args;

	if (!world->trace)
		return;
	printf("%8.3f ", (double) world->now / 1000000);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

/* ---- the network ----------------------------------------------------------------------------- */

void
copies_send(CopiesWorld *world, const Message *message)
{
	int copies = 1;

	if (world->chaos && copies_percent(world, world->loss))
		copies = 0;
	else if (world->chaos && copies_percent(world, 6))
		copies = 2;
	while (copies-- > 0 && world->n_messages < (int) lengthof(world->messages))
	{
		Message *sent = &world->messages[world->n_messages++];

		*sent = *message;
		sent->order = ++world->order;
		sent->at = world->now + (1 + copies_random(world, 4)) * COPIES_MS;
		if (world->chaos && copies_percent(world, 8))
			sent->at = world->now + copies_random(world, 900) * COPIES_MS;
		sent->bytes = pg_malloc(message->length + 1);
		memcpy(sent->bytes, message->bytes != NULL ? message->bytes : "", message->length);
	}
}

/* The other node's shard: its mark for each source shard passes each output once. */
static void
hear_output(CopiesWorld *world, const Message *message)
{
	int64 *mark = &world->heard[message->shard];

	if (message->number > *mark)
	{
#ifndef SHARD_MUTANT_COPIES_PLAIN_MARK_STANDS
		*mark = message->number;
#endif
		copies_check_received(world, message->shard, message->number, message->id);
	}
	copies_send(world, &(Message){.kind = M_DONE,
								  .shard = message->shard,
								  .number = Max(*mark, message->number)});
}

static void
deliver(CopiesWorld *world, const Message *message)
{
	BackupNode *backup = &world->backups[message->to];

	switch (message->kind)
	{
		case M_STORE:
			if (backup->up)
				copies_backup_receive(backup, message);
			break;
		case M_FACT:
			if (message->to >= COPIES_BACKUPS)
				copies_home_receive(world, message);
			else
				copies_backup_receive(backup, message);
			break;
		case M_MARK:
			world->done[message->shard] = Max(world->done[message->shard], message->number);
			break;
		case M_OUTPUT:
			hear_output(world, message);
			break;
		case M_STOPPED:
			if (world->stop_deadline > 0 && message->number == world->epoch)
				world->stop_deadline = world->now;
			break;
		default:
			if (world->home.up)
				copies_home_receive(world, message);
			break;
	}
}

/* What is due, oldest first. */
static void
deliver_due(CopiesWorld *world)
{
	for (;;)
	{
		int first = -1;
		Message message;

		for (int i = 0; i < world->n_messages; i++)
		{
			const Message *other = &world->messages[i];

			if (other->at <= world->now && (first < 0 || other->at < world->messages[first].at ||
											(other->at == world->messages[first].at &&
											 other->order < world->messages[first].order)))
				first = i;
		}
		if (first < 0)
			return;
		message = world->messages[first];
		world->messages[first] = world->messages[--world->n_messages];
		deliver(world, &message);
		free(message.bytes);
	}
}

/* ---- others ---------------------------------------------------------------------------------- */

/* Clients of the home; the other node tells, and sends again what is not done. */
static void
tell(CopiesWorld *world)
{
	int32 shard = (int32) copies_random(world, COPIES_SHARDS);

	if (world->now < world->tell_at)
		return;
	world->tell_at = world->now + copies_random(world, 30) * COPIES_MS;
	if (world->chaos && world->home.up && world->ids + 2 < COPIES_IDS && copies_percent(world, 60))
		copies_home_tell(world, shard);
	if (world->chaos && world->told[shard] + 1 < COPIES_TOLD && world->ids + 2 < COPIES_IDS)
	{
		world->kinds[++world->ids] = LOG_ARRIVED;
		world->told_ids[shard][++world->told[shard]] = world->ids;
	}
	for (int64 n = world->done[shard] + 1; n <= Min(world->done[shard] + 4, world->told[shard]);
		 n++)
		copies_send(world, &(Message){.kind = M_TELL,
									  .shard = shard,
									  .number = n,
									  .id = world->told_ids[shard][n]});
}

static void
spread(CopiesWorld *world)
{
	for (int to = 0; to <= COPIES_BACKUPS; to++)
		copies_send(world, &(Message){.kind = M_FACT, .to = to, .number = world->epoch});
}

/* Seals, and then one more epoch at the same home, whether or not it heard of the seal; facts are said again. */
static void
coordinate(CopiesWorld *world)
{
	if (world->now < world->stop_at)
		return;
	world->stop_at = world->now + (50 + copies_random(world, 100)) * COPIES_MS;
	if (world->stop_deadline > 0 && world->now >= world->stop_deadline)
	{
		world->stop_deadline = 0;
		world->epoch++;
		copies_trace(world, "epoch %d", world->epoch);
	}
	else if (world->stop_deadline == 0 && world->chaos && !world->restores &&
			 copies_percent(world, 6))
	{
		world->stop_deadline = world->now + (100 + copies_random(world, 1200)) * COPIES_MS;
		copies_trace(world, "seal epoch %d", world->epoch);
	}
	if (world->stop_deadline > 0)
		copies_send(world, &(Message){.kind = M_STOP, .number = world->epoch});
	spread(world);
}

static void
define_tables(Store *store)
{
	store_define(store, T_LOG, "log", sizeof(LogRow));
	store_define(store, T_CURSOR, "cursor", sizeof(int64));
	store_define(store, T_STATE, "state", sizeof(int64));
	store_define(store, T_OWN, "own", sizeof(OwnRow));
	store_define(store, T_END, "end", sizeof(EndRow));
	store_define(store, T_MARK, "mark", sizeof(int64));
	store_define(store, T_TAKEN, "taken", sizeof(int64));
	store_define(store, T_TURN, "turn", sizeof(TurnRow));
	store_define(store, T_COPY, "copy", sizeof(ShardReplicaCopy));
	store_define(store, T_UNDONE, "undone", sizeof(UndoneRow));
}

/* An old copy of its files comes up in the home's place (Q23). */
static void
restore(CopiesWorld *world)
{
	HomeNode *home = &world->home;

	copies_trace(world, "the home is put back from a copy");
	if (home->up)
		copies_home_crash(world);
	store_destroy(home->store);
	home->store = home->backup;
	home->backup = NULL;
	home->restart_at = world->now;
	world->restored = true;
}

static void
fail(CopiesWorld *world)
{
	HomeNode *home = &world->home;
	BackupNode *backup = &world->backups[copies_random(world, world->n_backups)];

	switch (copies_random(world, 6))
	{
		case 0:
			if (!home->up)
				break;
			copies_trace(world, "the home crashes");
			copies_home_crash(world);
			home->restart_at = world->now + copies_random(world, 400) * COPIES_MS;
			break;
		case 1:
			if (!backup->up)
				break;
			copies_trace(world, "backup %d crashes", backup->index);
			copies_backup_crash(backup);
			backup->restart_at = world->now + copies_random(world, 400) * COPIES_MS;
			break;
		case 2:
			home->frozen_until = world->now + copies_random(world, 600) * COPIES_MS;
			break;
		case 3:
			backup->frozen_until = world->now + copies_random(world, 600) * COPIES_MS;
			break;
		case 4:
			if (world->restores && home->backup == NULL && !world->restored)
				home->backup = store_copy(home->store);
			break;
		default:
			if (home->backup != NULL && copies_percent(world, 20))
				restore(world);
			break;
	}
}

static void
step(CopiesWorld *world)
{
	HomeNode *home = &world->home;

	deliver_due(world);
	tell(world);
	coordinate(world);
	if (world->chaos && copies_percent(world, 1) && copies_percent(world, 40))
		fail(world);
	if (!home->up && world->now >= home->restart_at)
		copies_home_start(world);
	if (home->up && (!world->chaos || world->now >= home->frozen_until))
		copies_home_step(world);
	for (int i = 0; i < world->n_backups; i++)
	{
		BackupNode *backup = &world->backups[i];

		if (!backup->up && world->now >= backup->restart_at)
			copies_backup_start(backup);
		if (backup->up && (!world->chaos || world->now >= backup->frozen_until))
			copies_backup_step(world, backup);
	}
	copies_check_step(world);
	world->now += 200 + copies_random(world, 1500);
}

static void
make_world(CopiesWorld *world, uint64 seed, bool tracing)
{
	memset(world, 0, sizeof(*world));
	world->state = seed * UINT64CONST(0x2545f4914f6cdd1d) + 1;
	world->trace = tracing;
	world->chaos = true;
	world->check = check_create();
	world->n_backups = 1 + (int) (seed % COPIES_BACKUPS);
	world->restores = seed % 5 == 4;
	world->loss = (int) copies_random(world, 15);
	world->epoch = 1;
	world->home.store = store_create();
	define_tables(world->home.store);
	for (int i = 0; i < world->n_backups; i++)
	{
		world->backups[i].index = i;
		world->backups[i].store = store_create();
		define_tables(world->backups[i].store);
	}
}

static void
free_world(CopiesWorld *world)
{
	if (world->home.up)
		copies_home_crash(world);
	store_destroy(world->home.store);
	if (world->home.backup != NULL)
		store_destroy(world->home.backup);
	for (int i = 0; i < world->n_backups; i++)
	{
		copies_backup_crash(&world->backups[i]);
		store_destroy(world->backups[i].store);
	}
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		for (int turn = 0; turn < COPIES_TURNS; turn++)
			free(world->truths[shard][turn].bytes);
	for (int i = 0; i < world->n_messages; i++)
		free(world->messages[i].bytes);
	check_destroy(world->check);
}

static bool
backups_rest(const CopiesWorld *world)
{
	for (int i = 0; i < world->n_backups; i++)
		if (!copies_backup_rests(&world->backups[i]))
			return false;
	return true;
}

/* Until the home has nothing to do, and the backups neither. */
static void
settle_until(CopiesWorld *world, bool backups)
{
	while (world->now < CHAOS + REST && check_violation(world->check) == NULL &&
		   !(copies_home_rests(world) && (!backups || backups_rest(world))) && !world->restored)
		step(world);
}

/* Backups die once more when their home has nothing more to say, but what is released. */
static void
crash_backups(CopiesWorld *world)
{
	for (int i = 0; i < world->n_backups; i++)
	{
		if (world->backups[i].up)
			copies_backup_crash(&world->backups[i]);
		world->backups[i].restart_at = world->now + copies_random(world, 400) * COPIES_MS;
	}
}

/* Where the home was put back, copies say so, and it stands still; what was shown stays with them. */
static void
settle(CopiesWorld *world)
{
	settle_until(world, false);
	if (!world->restored)
		crash_backups(world);
	settle_until(world, true);
	if (check_violation(world->check) != NULL)
		return;
	if (world->restored)
		copies_check_step(world);
	else if (!copies_home_rests(world))
		copies_home_report(world);
	else if (!backups_rest(world))
		for (int i = 0; i < world->n_backups; i++)
			copies_backup_report(world, &world->backups[i]);
	else
		copies_check_end(world);
}

static bool
run(const Arguments *arguments, uint64 seed, char *violation, size_t size)
{
	CopiesWorld *world = pg_malloc(sizeof(CopiesWorld));
	bool well;

	make_world(world, seed, arguments->trace);
	while (world->now < CHAOS && check_violation(world->check) == NULL)
		step(world);
	world->chaos = false;
	settle(world);
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		turns += world->released[shard];
	well = check_violation(world->check) == NULL;
	if (!well)
		strlcpy(violation, check_violation(world->check), size);
	violations += !well;
	free_world(world);
	free(world);
	return well;
}

/* Nothing of a history can be left out. */
static void
report(const Arguments *arguments, uint64 seed, const char *text)
{
	printf("seed %llu: %s\n", (unsigned long long) seed, text);
}

static void
sum(int64 histories, double seconds)
{
	printf("# %lld histories, %lld turns released, %d violations\n", (long long) histories,
		   (long long) turns, violations);
}

const Mode mode_copies = {.name = "copies", .run = run, .report = report, .sum = sum};
