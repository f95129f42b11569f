/*
 * fair_share_test.c
 *		Unit tests of core/entity/fair_share.c: types that share the time of one worker.
 */
#include "core/entity/fair_share.h"
#include "unit.h"

#define TYPES 4

/* A type of the model: as many messages as it gets to handle, or one now and then. */
typedef struct Type
{
	ShardFairShare share;
	int64 call;	 /* microseconds */
	int64 every; /* between its messages; 0: there is always one */
	int64 due;
	int64 handled;
	int64 took;
	int64 put_off;
	int64 longest; /* that a message has waited */
} Type;

static int64 now;
static ShardFairShares shares;

/*
 * Turns of a worker, until some time: first the types with long calls, one after the other, as the stash has them, for
 * 50 ms; then the others, for 100 ms.
 */
static void
run(Type *types, int count, int64 until)
{
	bool served = false;
	int64 slept = 0;

	while (now < until)
	{
		int64 begin = now;
		bool idle = true;

		shard_fair_begin_turn(&shares, served, slept);
		slept = 0;
		served = false;
		for (int i = 0; i < count; i++)
		{
			Type *type = &types[i];
			int64 end = now + (type->call >= SHARD_FAIR_LONG ? 50000 : 100000);

			while (now < end && (type->every == 0 || type->due <= begin))
			{
				idle = false;
				shard_fair_join(&shares, &type->share);
				if (shard_fair_is_used_up(&shares, &type->share))
				{
					shard_fair_put_off(&shares, &type->share);
					type->put_off++;
					break;
				}
				now += type->call;
				shard_fair_spend(&shares, &type->share, type->call, 1, 1);
				served = true;
				type->handled++;
				type->took += type->call;
				if (type->every == 0)
					continue;
				type->longest = Max(type->longest, now - type->due);
				type->due += type->every;
			}
		}
		if (idle)
			now += slept = 1000;
	}
}

static void
begin(void)
{
	now = 0;
	memset(&shares, 0, sizeof(shares));
}

static void
test_two(void)
{
	Type types[2] = {{.call = 100000}, {.call = 1000}};

	begin();
	run(types, 2, 100 * INT64CONST(1000000));
	ok(types[1].took > now * 45 / 100, "the type with short calls has its half: %d ms of %d",
	   (int) (types[1].took / 1000), (int) (now / 1000));
	ok(types[0].took > now * 40 / 100, "the one with long calls has the other");
	is_int(types[1].put_off, 0, "short calls are never put off");
}

static void
test_below_its_share(void)
{
	Type types[2] = {{.call = 100000}, {.call = 1000, .every = 2500}};

	begin();
	run(types, 2, 100 * INT64CONST(1000000));
	ok(types[1].due > now - 300000,
	   "a type that needs four fifths of its share has all that it needs");
	ok(types[1].longest < 300000, "no message of it waits long: %d ms",
	   (int) (types[1].longest / 1000));
	ok(types[0].took > now * 55 / 100, "the other one has the rest");
}

static void
test_many(void)
{
	Type types[TYPES] = {{.call = 100000}, {.call = 50000}, {.call = 20000}, {.call = 1000}};

	begin();
	run(types, TYPES, 100 * INT64CONST(1000000));
	ok(types[3].took > now * 25 / 100, "the one of four with short calls has its quarter");
	for (int i = 0; i < TYPES - 1; i++)
		ok(types[i].took > now * 10 / 100, "nor does type %d starve: %d ms of %d", i,
		   (int) (types[i].took / 1000), (int) (now / 1000));
}

static void
test_alone(void)
{
	Type types[2] = {{.call = 100000}, {.call = 1000, .every = 1000000}};

	begin();
	run(types, 1, 10 * INT64CONST(1000000));
	is_int(types[0].took, now, "a type that is alone has all the time");
	ok(types[0].put_off <= types[0].handled, "at the cost of an empty turn for each long call");
	types[1].due = now;
	run(types, 2, 110 * INT64CONST(1000000));
	ok(types[0].took > 100 * INT64CONST(1000000), "beside one that has little to do, nearly all");
	ok(types[1].longest < 300000, "which does not wait long: %d ms",
	   (int) (types[1].longest / 1000));
}

static void
test_all_short(void)
{
	Type types[2] = {{.call = 10}, {.call = 4900}};

	begin();
	run(types, 2, 10 * INT64CONST(1000000));
	is_int(types[0].put_off + types[1].put_off, 0, "short calls are in the order of the log");
}

/* A batch of 5 000 that takes 20 ms: each of its messages takes less than it would to put it off. */
static void
test_batches(void)
{
	ShardFairShare quick = {0};
	ShardFairShare slow = {0};
	int quick_put_off = 0;
	int slow_put_off = 0;

	begin();
	for (int turn = 0; turn < 100; turn++)
	{
		shard_fair_begin_turn(&shares, true, 0);
		shard_fair_join(&shares, &quick);
		shard_fair_join(&shares, &slow);
		quick_put_off += shard_fair_is_used_up(&shares, &quick);
		slow_put_off += shard_fair_is_used_up(&shares, &slow);
		shard_fair_spend(&shares, &quick, 20000, 1, 5000);
		shard_fair_spend(&shares, &slow, 100000, 1, 50);
	}
	is_int(quick_put_off, 0, "a batch of many short messages is not put off");
	ok(slow_put_off > 0, "one whose messages are long is");
}

/* A type that has been alone for long, and then one beside it that always has something to do. */
static void
test_no_more_alone(void)
{
	Type types[2] = {{.call = 50000}, {.call = 1000}};

	begin();
	for (int call = 0; call < 1000; call++)
	{
		shard_fair_begin_turn(&shares, true, 0);
		shard_fair_join(&shares, &types[0].share);
		now += types[0].call;
		shard_fair_spend_alone(&shares, &types[0].share, types[0].call);
	}
	run(types, 2, now + 1000000);
	ok(types[0].took > 300000,
	   "what it had alone is not held against it: %d ms of the first second",
	   (int) (types[0].took / 1000));
	ok(types[1].took > 300000, "nor does it take more than its share then");
}

static void
test_now_and_then(void)
{
	Type type = {.call = 100000, .every = 1000000};

	begin();
	run(&type, 1, 10 * INT64CONST(1000000));
	is_int(type.put_off, 0, "long calls with time between them are not put off");
}

static void
test_nothing_is_saved(void)
{
	Type types[2] = {{.call = 100000, .every = INT64CONST(60000000)}, {.call = 1000}};
	int64 handled;

	begin();
	types[0].due = 60000000;
	run(types, 2, 59 * INT64CONST(1000000));
	types[0].every = 0;
	run(types, 2, 61 * INT64CONST(1000000));
	handled = types[0].handled;
	ok(handled >= 8 && handled <= 11,
	   "a type that did nothing for long has no more than its half: %d", (int) handled);
}

static void
test_clock_set_forward(void)
{
	ShardFairShare share = {0};

	begin();
	shard_fair_begin_turn(&shares, false, 0);
	shard_fair_join(&shares, &share);
	shard_fair_spend(&shares, &share, INT64CONST(3600000000), 1, 1);
	ok(share.clock - shares.clock <= 10000000, "an hour that passes in a call is not waited for");
	shard_fair_spend(&shares, &share, -5, 1, 1);
	ok(shard_fair_is_used_up(&shares, &share), "a clock that is set back changes nothing");
}

int
main(void)
{
	test_two();
	test_below_its_share();
	test_many();
	test_alone();
	test_all_short();
	test_batches();
	test_no_more_alone();
	test_now_and_then();
	test_nothing_is_saved();
	test_clock_set_forward();
	return unit_done();
}
