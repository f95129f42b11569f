/*
 * import_turn_test.c
 *		Whose shard a target copies next: one owner's locks and triggers hold up nobody else (M27).
 */
#include "postgres_fe.h"

#include "core/home/import_turn.h"
#include "unit.h"

#define PREPARE(who) \
	{ \
		.owner = (who) \
	}
#define ROWS(who) \
	{ \
		.owner = (who), .rows = true \
	}
#define FAILED(who) \
	{ \
		.owner = (who), .failed = true \
	}

#define NEXT(running, waiting, rows) \
	shard_import_turn(running, lengthof(running), waiting, lengthof(waiting), rows)

static void
test_prepares(void)
{
	ShardImportJob mallory[] = {PREPARE(1)};
	ShardImportJob waiting[] = {PREPARE(1), ROWS(2), PREPARE(1), PREPARE(2), PREPARE(3)};
	ShardImportJob only[] = {PREPARE(1), PREPARE(1)};
	ShardImportJob others[] = {PREPARE(1), PREPARE(4), PREPARE(5), PREPARE(6)};
	ShardImportJob unknown[] = {PREPARE(0)};

	is_int(shard_import_turn(NULL, 0, waiting, lengthof(waiting), false), 0, "the oldest begins");
	is_int(NEXT(mallory, waiting, false), 3, "then another owner's");
	is_int(NEXT(mallory, only, false), -1, "one owner prepares one at a time");
	is_int(NEXT(others, waiting, false), 3, "beside others");
	is_int(NEXT(unknown, unknown, false), -1, "owners that are not known are one");
	is_int(NEXT(mallory, waiting, true), 1, "who prepares is in no copy's way");
	is_int(shard_import_turn(NULL, 0, NULL, 0, false), -1, "nobody waits");
}

static void
test_copies(void)
{
	ShardImportJob three[] = {ROWS(1), ROWS(1), ROWS(1), PREPARE(1)};
	ShardImportJob mixed[] = {ROWS(1), ROWS(2), ROWS(1), PREPARE(1)};
	ShardImportJob four[] = {ROWS(1), ROWS(1), ROWS(1), ROWS(2)};
	ShardImportJob only[] = {PREPARE(2), ROWS(1)};
	ShardImportJob waiting[] = {ROWS(1), PREPARE(2), ROWS(2)};

	is_int(NEXT(three, only, true), 1, "the only owner who waits has all places");
	is_int(NEXT(three, waiting, true), 2, "but the last one is another's who waits");
	is_int(NEXT(mixed, waiting, true), 0, "of those that have one the oldest begins");
	is_int(NEXT(four, waiting, true), -1, "there are no more places");
}

/* Who has no place has one of his own, however many others hold theirs. */
static void
test_own_places(void)
{
	ShardImportJob running[SHARD_IMPORT_BY_OWNER] = {0};
	ShardImportJob third[] = {ROWS(1), ROWS(3)};
	ShardImportJob home[] = {ROWS(1), {.owner = 1, .home = 9, .rows = true}};

	for (int i = 0; i < SHARD_IMPORT_BY_OWNER; i++)
		running[i] = (ShardImportJob){.owner = 1 + i % 2, .rows = true};
	is_int(shard_import_turn(running, 4, third, 2, true), 1, "a third owner beside two");
	is_int(shard_import_turn(running, 4, home, 2, true), 1, "another home beside one");
	is_int(shard_import_turn(running, SHARD_IMPORT_BY_HOME, home, 2, true), -1,
		   "as long as there are few");
	is_int(shard_import_turn(running, SHARD_IMPORT_BY_OWNER - 1, third, 2, true), 1,
		   "an owner beside many");
	is_int(shard_import_turn(running, SHARD_IMPORT_BY_OWNER, third, 2, true), -1,
		   "as long as they are not too many");
	for (int i = 0; i < SHARD_IMPORT_BY_OWNER; i++)
		running[i].rows = false;
	third[1].rows = home[1].rows = false;
	is_int(shard_import_turn(running, 4, third, 2, false), 1, "so it is with those that prepare");
	is_int(shard_import_turn(running, 4, home, 2, false), 1, "of each home");
}

static void
test_failed(void)
{
	ShardImportJob failed[] = {FAILED(1), FAILED(2), PREPARE(3)};
	ShardImportJob three[] = {PREPARE(3)};

	is_int(shard_import_turn(NULL, 0, failed, lengthof(failed), false), 2,
		   "others come before who has failed");
	is_int(NEXT(three, failed, false), 0, "who is tried again when nobody else waits");
}

int
main(void)
{
	test_prepares();
	test_copies();
	test_own_places();
	test_failed();
	return unit_done();
}
