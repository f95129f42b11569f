/*
 * quiet_test.c
 *		How often lines of one kind about one node are written (T11).
 */
#include "postgres_fe.h"

#include "core/base/quiet.h"
#include "unit.h"

#define ENTRIES 4
#define START (1000 * SHARD_QUIET)

static ShardQuiet entries[ENTRIES + 1];
static int64 left_out;

static bool
may(int32 node, uint64 kind, int64 now)
{
	return shard_quiet_may(entries, ENTRIES, node, kind, now, &left_out);
}

int
main(void)
{
	ok(may(1, 1, START), "the first line is written");
	ok(!may(1, 1, START + 1) && !may(1, 1, START + SHARD_QUIET), "more of it are not");
	ok(may(1, 2, START) && may(2, 1, START), "those of another kind, or node, are");
	ok(may(1, 1, START + SHARD_QUIET + 1), "and after a while the next one");
	is_int(left_out, 2, "with how many were left out");

	memset(entries, 0, sizeof(entries));
	for (int node = 1; node <= ENTRIES; node++)
		ok(may(node, 1, START), "node %d has an entry", node);
	ok(may(9, 1, START) && !may(10, 1, START + 1), "those beyond have one together");
	ok(may(10, 1, START - SHARD_QUIET), "nobody is silent for as long as the clock was ahead");
	ok(may(11, 1, START - SHARD_QUIET), "nor those that share what is left");
	ok(!may(11, 1, START - SHARD_QUIET + 1), "but for the usual time");
	ok(may(2, 1, START - SHARD_QUIET), "nor who has an entry");
	return unit_done();
}
