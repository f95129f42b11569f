/*
 * mark_test.c
 *		Marks: the greatest number of each prefix, what a turn makes of it, and which can be (H7).
 */
#include "postgres_fe.h"

#include <time.h>

#include "core/flow/mark.h"
#include "core/base/message.h"
#include "core/map/record.h"
#include "unit.h"

#define PREFIXES 200
#define MANY SHARD_MAX_NODE_ID

static ShardStamp
stamp(int32 a, int32 b, int64 seq)
{
	return (ShardStamp){SHARD_PREFIX_NODE, a, b, seq};
}

/* Are they in their order, each once? */
static bool
is_sorted(const ShardMarks *marks)
{
	for (int i = 1; i < marks->n_marks; i++)
	{
		const ShardStamp *x = &marks->marks[i - 1].stamp;
		const ShardStamp *y = &marks->marks[i].stamp;

		if (x->a > y->a || (x->a == y->a && x->b >= y->b))
			return false;
	}
	return true;
}

static void
count_told(void *context, ShardStamp mark)
{
	*(int64 *) context += mark.seq;
}

/* The same is kept in an array, by prefix; turns are committed, aborted, dropped. */
static void
test_against_array(void)
{
	int64 committed[PREFIXES] = {0};
	int64 now[PREFIXES] = {0};
	uint32 random = 1;
	ShardMarks marks;
	int wrong = 0;
	int most = 0;

	shard_mark_init(&marks);
	for (int step = 0; step < 20000; step++)
	{
		int32 prefix;
		int64 seq;

		random = random * 1664525 + 1013904223;
		prefix = (random >> 8) % PREFIXES;
		seq = 1 + (random >> 20);
		switch (random % 97 >> 2)
		{
			case 0:
				shard_mark_abort(&marks);
				memcpy(now, committed, sizeof(now));
				break;
			case 1:
				shard_mark_commit(&marks, NULL, NULL);
				memcpy(committed, now, sizeof(now));
				break;
			case 2:
				shard_mark_floor(&marks, stamp(1 + prefix / 4, prefix % 4, seq));
				now[prefix] = now[prefix] < seq ? 0 : now[prefix];
				break;
			case 3:
				if (random % 30 == 0)
				{
					shard_mark_drop(&marks);
					memset(now, 0, sizeof(now));
				}
				break;
			default:
				shard_mark_raise(&marks, stamp(1 + prefix / 4, prefix % 4, seq));
				now[prefix] = Max(now[prefix], seq);
		}
		prefix = (random >> 4) % PREFIXES;
		wrong += shard_mark_passed(&marks, stamp(1 + prefix / 4, prefix % 4, now[prefix] + 1));
		wrong += now[prefix] > 0 &&
				 !shard_mark_passed(&marks, stamp(1 + prefix / 4, prefix % 4, now[prefix]));
		wrong += !is_sorted(&marks);
		most = Max(most, marks.n_marks);
	}
	is_int(wrong, 0, "%d answers are wrong", wrong);
	ok(most > PREFIXES / 2, "there were up to %d marks", most);
	shard_mark_free(&marks);
}

static void
test_turns(void)
{
	ShardMarks marks;
	int64 told = 0;

	shard_mark_init(&marks);
	shard_mark_raise(&marks, stamp(2, 0, 5));
	shard_mark_raise(&marks, stamp(1, 0, 7));
	shard_mark_commit(&marks, count_told, &told);
	is_int(told, 12, "what the turn has set is told: %d", (int) told);
	shard_mark_raise(&marks, stamp(1, 1, 9));
	shard_mark_raise(&marks, stamp(2, 0, 6));
	shard_mark_abort(&marks);
	is_int(marks.n_marks, 2, "%d marks after an abort", marks.n_marks);
	ok(shard_mark_passed(&marks, stamp(2, 0, 5)) && !shard_mark_passed(&marks, stamp(2, 0, 6)),
	   "as they were before");
	shard_mark_free(&marks);
}

/* As many as a shard can have, of which each is looked for: of a linear look that is 4 000 million steps. */
static void
test_many(void)
{
	clock_t start = clock();
	ShardMarks marks;
	int wrong = 0;

	shard_mark_init(&marks);
	for (int32 node = 1; node <= MANY; node++)
		shard_mark_raise(&marks, stamp(node, 3, node));
	for (int32 node = 1; node <= MANY; node++)
		wrong += !shard_mark_passed(&marks, stamp(node, 3, node));
	is_int(wrong, 0, "%d were not found", wrong);
	is_int(marks.n_marks, MANY, "there are %d", marks.n_marks);
	ok((clock() - start) / CLOCKS_PER_SEC < 5, "in no time: %.1f s",
	   (double) (clock() - start) / CLOCKS_PER_SEC);
	shard_mark_free(&marks);
}

static void
test_what_can_be(void)
{
	int32 lane = shard_message_lane(7, 11);

	ok(shard_mark_can_be(stamp(1, lane, 1), 7, 11, 3), "of the first node");
	ok(shard_mark_can_be(stamp(3, lane, PG_INT64_MAX), 7, 11, 3), "of the last node");
	ok(!shard_mark_can_be(stamp(4, lane, 1), 7, 11, 3), "of a node above it");
	ok(!shard_mark_can_be(stamp(0, lane, 1), 7, 11, 3), "of none");
	ok(!shard_mark_can_be(stamp(1, lane ^ 1, 1), 7, 11, 3), "of another lane");
	ok(!shard_mark_can_be(stamp(1, lane, 0), 7, 11, 3), "of no number");
	ok(!shard_mark_can_be((ShardStamp){SHARD_PREFIX_SHARD, 1, lane, 1}, 7, 11, 3), "of a shard");
	ok(!shard_mark_can_be(stamp(1, lane, 1), 7, 11, 0), "when no node is known");
}

int
main(void)
{
	test_against_array();
	test_turns();
	test_many();
	test_what_can_be();
	return unit_done();
}
