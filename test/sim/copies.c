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
static int64 decisions;
static int64 takeovers;
static int64 rewinds;
static int64 resent;
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

Node *
copies_home(const CopiesWorld *world)
{
	Node *nodes = unconstify(CopiesWorld *, world)->nodes;

	return &nodes[shard_record_home_node(&world->facts[world->n].home) - 1];
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
								  .to = message->from,
								  .shard = message->shard,
								  .number = Max(*mark, message->number)});
}

/* From the next call on it sends what is not done to the home of that fact, in order, and under its epoch (Q26). */
static void
learn(CopiesWorld *world, int64 n)
{
	if (n <= world->fact)
		return;
	world->fact = n;
#ifdef SHARD_MUTANT_COPIES_NOT_SENT_AGAIN
	for (int i = 0; i < COPIES_SHARDS; i++)
		world->done[i] = Max(world->done[i], world->sent[i]);
#endif
}

static void
deliver(CopiesWorld *world, const Message *message)
{
	if (message->kind == M_STOPPED)
	{
		if (world->stop_deadline > 0 && message->epoch == world->facts[world->n].home.epoch)
			world->stop_deadline = world->now;
	}
	else if (message->to < COPIES_NODES)
	{
		if (world->nodes[message->to].up)
			copies_node_receive(world, &world->nodes[message->to], message);
	}
	else if (message->kind == M_MARK)
		world->done[message->shard] = Max(world->done[message->shard], message->number);
	else if (message->kind == M_OUTPUT)
		hear_output(world, message);
	else if (message->kind == M_FACT)
		learn(world, message->number);
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

/* What the other node tells, under the epoch of the fact that it knows. */
static void
send_told(CopiesWorld *world, int32 shard)
{
	const ShardHomeRecord *home = copies_fact(world, world->fact);

	for (int64 n = world->done[shard] + 1; n <= Min(world->done[shard] + 4, world->told[shard]);
		 n++)
	{
		world->sent[shard] = Max(world->sent[shard], n);
		copies_send(world, &(Message){.kind = M_TELL,
									  .from = COPIES_NODES,
									  .to = shard_record_home_node(home) - 1,
									  .shard = shard,
									  .epoch = home->epoch,
									  .number = n,
									  .before = n - 1 > world->done[shard] ? n - 1 : 0,
									  .stamp = {SHARD_PREFIX_NODE, COPIES_OTHER, shard, n},
									  .id = world->told_ids[shard][n]});
	}
}

/* Clients of the nodes; the other node tells, and sends again what is not done. */
static void
tell(CopiesWorld *world)
{
	int32 shard = (int32) copies_random(world, COPIES_SHARDS);
	Node *node = &world->nodes[copies_random(world, world->n_nodes)];

	if (world->now < world->tell_at)
		return;
	world->tell_at = world->now + copies_random(world, 30) * COPIES_MS;
	if (world->restores || copies_percent(world, 60))
		node = copies_home(world);
	if (world->chaos && node->up && world->ids + 2 < COPIES_IDS && copies_percent(world, 60))
		copies_node_tell(world, node, shard);
	if (world->chaos && world->told[shard] + 1 < COPIES_TOLD && world->ids + 2 < COPIES_IDS)
	{
		world->kinds[++world->ids] = LOG_ARRIVED;
		world->senders[world->ids] = COPIES_NODES;
		world->told_ids[shard][++world->told[shard]] = world->ids;
	}
	send_told(world, shard);
}

static void
spread(CopiesWorld *world)
{
	for (int to = 0; to <= COPIES_NODES; to++)
		copies_send(world, &(Message){.kind = M_FACT, .to = to, .number = world->n});
}

/* A newer epoch with that home. Who was home stays in the set, at its end, or is put out. */
static void
decide(CopiesWorld *world, int32 chosen, bool stays)
{
	const ShardHomeRecord *before = &world->facts[world->n].home;
	Fact *fact = &world->facts[world->n + 1];
	ShardHomeRecord *home = &fact->home;

	memset(fact, 0, sizeof(*fact));
	home->epoch = before->epoch + 1;
	home->want = before->want;
	home->nodes[home->n_nodes++] = chosen;
	for (int i = 1; i < before->n_nodes; i++)
		if (before->nodes[i] != chosen)
			home->nodes[home->n_nodes++] = before->nodes[i];
	if (stays && before->nodes[0] != chosen)
		home->nodes[home->n_nodes++] = before->nodes[0];
	world->n++;
	world->stop_deadline = 0;
	decisions++;
	for (int i = 0; i < world->n_nodes; i++)
		if (copies_percent(world, 30))
			world->nodes[i].deaf_until = world->now + copies_random(world, 1500) * COPIES_MS;
	copies_trace(world, "fact %d: epoch %d, home %d, set of %d", (int) world->n, home->epoch,
				 chosen, home->n_nodes);
	copies_check_decided(world);
}

/* Some other member, whether or not there is a reason. Who was home is put out where the type may run with too few. */
static void
take_over(CopiesWorld *world)
{
	const ShardHomeRecord *home = &world->facts[world->n].home;
	int chosen = 1 + (int) copies_random(world, Max(home->n_nodes - 1, 1));

	if (home->n_nodes > 1)
		decide(world, home->nodes[chosen],
			   !copies_percent(world, 20) || (!world->runs && home->n_nodes <= COPIES_MIN_INSYNC));
}

/* Take-overs; seals, and then one more epoch at the same home, whether or not it heard of the seal; facts are said again. */
static void
coordinate(CopiesWorld *world)
{
	if (world->now < world->stop_at)
		return;
	world->stop_at = world->now + (50 + copies_random(world, 100)) * COPIES_MS;
	if (world->n + 1 < COPIES_FACTS && world->chaos && !world->restores &&
		copies_percent(world, 12))
		take_over(world);
	else if (world->n + 1 < COPIES_FACTS && world->stop_deadline > 0 &&
			 world->now >= world->stop_deadline)
		decide(world, copies_home(world)->index + 1, true);
	else if (world->stop_deadline == 0 && world->chaos && !world->restores &&
			 world->n + 2 < COPIES_FACTS && copies_percent(world, 6))
	{
		world->stop_deadline = world->now + (100 + copies_random(world, 1200)) * COPIES_MS;
		copies_trace(world, "seal epoch %d", world->facts[world->n].home.epoch);
	}
	if (world->stop_deadline > 0)
		copies_send(world, &(Message){.kind = M_STOP,
									  .to = copies_home(world)->index,
									  .epoch = world->facts[world->n].home.epoch});
	spread(world);
}

static void
define_tables(Store *store)
{
	store_define(store, T_LOG, "log", sizeof(LogRow));
	store_define(store, T_CURSOR, "cursor", sizeof(int64));
	store_define(store, T_OWN, "own", sizeof(OwnRow));
	store_define(store, T_TAKEN, "taken", sizeof(TakenRow));
	store_define(store, T_PARKED, "parked", sizeof(int64));
	store_define(store, T_TURN, "turn", sizeof(TurnRow));
	store_define(store, T_COPY, "copy", sizeof(CopyRow));
	store_define(store, T_STATE, "state", sizeof(int64));
	store_define(store, T_MARK, "mark", sizeof(int64));
	store_define(store, T_UNDONE, "undone", sizeof(UndoneRow));
}

/* An old copy of its files comes up in the home's place (Q23). */
static void
restore(CopiesWorld *world)
{
	Node *home = copies_home(world);

	copies_trace(world, "the home is put back from a copy");
	if (home->up)
		copies_node_crash(home);
	store_destroy(home->store);
	home->store = home->backup;
	home->backup = NULL;
	home->restart_at = world->now;
	world->restored = true;
}

static void
fail(CopiesWorld *world)
{
	Node *home = copies_home(world);
	Node *node =
		copies_percent(world, 50) ? home : &world->nodes[copies_random(world, world->n_nodes)];

	switch (copies_random(world, 6))
	{
		case 0:
		case 1:
			if (!node->up)
				break;
			copies_trace(world, "node %d crashes", node->index + 1);
			copies_node_crash(node);
			node->restart_at = world->now + copies_random(world, 400) * COPIES_MS;
			break;
		case 2:
		case 3:
			node->frozen_until = world->now + copies_random(world, 600) * COPIES_MS;
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
	deliver_due(world);
	tell(world);
	coordinate(world);
	if (world->chaos && copies_percent(world, 1) && copies_percent(world, 40))
		fail(world);
	for (int i = 0; i < world->n_nodes; i++)
	{
		Node *node = &world->nodes[i];

		if (!node->up && world->now >= node->restart_at)
			copies_node_start(world, node);
		if (node->up && (!world->chaos || world->now >= node->frozen_until))
			copies_node_step(world, node);
	}
	copies_check_step(world);
	world->now += 200 + copies_random(world, 1500);
}

/* A node as it is when the first set was decided. */
static void
make_node(Node *node, const ShardHomeRecord *home)
{
	OwnRow own = {{node->index == 0 ? SHARD_TAKEOVER_HOME : SHARD_TAKEOVER_BACKUP, home->epoch}, 1};
	CopyRow row = {{.promise = home->epoch}, 0};
	StoreTransaction *tx;

	node->store = store_create();
	define_tables(node->store);
	tx = store_begin(node->store);
	store_put(tx, T_OWN, (StoreKey){{0}}, &own);
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		store_put(tx, T_COPY, (StoreKey){{shard}}, &row);
	store_commit(tx);
	store_flush(node->store);
}

static void
make_world(CopiesWorld *world, uint64 seed, bool tracing)
{
	ShardHomeRecord *home = &world->facts[1].home;

	memset(world, 0, sizeof(*world));
	world->state = seed * UINT64CONST(0x2545f4914f6cdd1d) + 1;
	world->trace = tracing;
	world->chaos = true;
	world->check = check_create();
	world->n_nodes = 2 + (int) (seed % 2);
	world->restores = seed % 5 == 4;
	world->loss = (int) copies_random(world, 15);
	world->runs = copies_percent(world, 50);
	world->n = world->fact = 1;
	home->epoch = SHARD_FIRST_EPOCH;
	home->want = copies_percent(world, 50) ? world->n_nodes : COPIES_MIN_INSYNC;
	for (int i = 0; i < world->n_nodes; i++)
		home->nodes[home->n_nodes++] = i + 1;
	for (int i = 0; i < world->n_nodes; i++)
	{
		world->nodes[i].index = i;
		world->nodes[i].stop_epoch = COPIES_NONE;
		make_node(&world->nodes[i], home);
	}
}

static void
free_world(CopiesWorld *world)
{
	for (int i = 0; i < world->n_nodes; i++)
	{
		Node *node = &world->nodes[i];

		takeovers += node->takeovers;
		rewinds += node->rewinds;
		resent += node->resent;
		copies_node_crash(node);
		store_destroy(node->store);
		if (node->backup != NULL)
			store_destroy(node->backup);
	}
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		for (int turn = 0; turn < COPIES_TURNS; turn++)
			free(world->truths[shard][turn].bytes);
	for (int i = 0; i < world->n_messages; i++)
		free(world->messages[i].bytes);
	check_destroy(world->check);
}

/* Until the home has nothing to do, and other members neither. */
static void
settle_until(CopiesWorld *world, bool members)
{
	while (world->now < CHAOS + REST && check_violation(world->check) == NULL &&
		   !(copies_home_rests(world) && (!members || copies_members_rest(world))) &&
		   !world->restored)
		step(world);
}

/* All but the home die once more when that has nothing more to say, but what is released. */
static void
crash_others(CopiesWorld *world)
{
	for (int i = 0; i < world->n_nodes; i++)
	{
		Node *node = &world->nodes[i];

		if (node == copies_home(world))
			continue;
		if (node->up)
			copies_node_crash(node);
		node->restart_at = world->now + copies_random(world, 400) * COPIES_MS;
	}
}

/* Where the home was put back, copies say so, and it stands still; what was shown stays with them. */
static void
settle(CopiesWorld *world)
{
	settle_until(world, false);
	if (!world->restored)
		crash_others(world);
	settle_until(world, true);
	if (check_violation(world->check) != NULL)
		return;
	if (world->restored)
		copies_check_step(world);
	else if (!copies_home_rests(world))
		copies_home_report(world);
	else if (!copies_members_rest(world))
		copies_members_report(world);
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
	printf(
		"# %lld histories, %lld turns released, %lld decisions, %lld take-overs, %lld copies whose rows were taken anew, "
		"%lld messages parked, %d violations\n",
		(long long) histories, (long long) turns, (long long) decisions, (long long) takeovers,
		(long long) rewinds, (long long) resent, violations);
}

const Mode mode_copies = {.name = "copies", .run = run, .report = report, .sum = sum};
