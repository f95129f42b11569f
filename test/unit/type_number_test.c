/*
 * type_number_test.c
 *		Numbers of types: owners in groups of their own, as long as there are some.
 */
#include "postgres_fe.h"

#include "core/message.h"
#include "core/type_number.h"
#include "unit.h"

static ShardNumberedType types[100];
static int count = 0;
static int32 last = 0;

/* Another type of an owner; 0: he is refused. */
static int32
start(const char *owner, bool may_share)
{
	int group = shard_type_number_group(types, count, owner, last, may_share);

	if (group < 0)
		return 0;
	last = shard_type_number_next(last, group);
	types[count++] = (ShardNumberedType){last, owner};
	return last;
}

static void
test_owners(void)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};

	is_int(start("a", false), 1, "the first type");
	is_int(start("b", false), 2, "of another owner: the next group");
	is_int(start("a", false), 9, "again of the first: his group");
	is_int(start("c", false), 11, "a third owner: a group that nobody has");
	is_int(start("b", false), 18, "and the second");
	for (int i = 3; i < 8; i++)
		ok(start(names[i], false) != 0, "there is a group for owner %s", names[i]);
	for (int group = 0; group < SHARD_GROUPS; group++)
		is_int(shard_type_number_owners(types, count, group), 1, "group %d has one owner", group);
	is_int(start("i", false), 0, "none for the ninth");
	ok(start("h", false) != 0, "who has one gets more types");
	ok(start("i", true) != 0, "or the ninth shares");
	is_int(shard_message_group(start("i", false)), shard_message_group(last),
		   "then he has that group");
	ok(start("j", true) != 0, "and the tenth shares, too");
	for (int group = 0; group < SHARD_GROUPS; group++)
		ok(shard_type_number_owners(types, count, group) <= 2,
		   "the tenth goes where the ninth is not");
}

/* A type keeps its group when it changes hands. */
static void
test_changed_owner(void)
{
	ShardNumberedType given[] = {{1, "a"}, {2, "a"}, {10, "b"}, {3, "c"}};

	is_int(shard_type_number_group(given, 4, "a", 10, false), 1,
		   "of two groups that one where nobody else is");
	is_int(shard_type_number_group(given, 4, "b", 10, false), 2, "who shares goes on to");
}

static void
test_ends(void)
{
	is_int(shard_type_number_next(0, -1), 1, "the first number");
	is_int(shard_type_number_next(7, 0), 8, "the next of a group is at once the next");
	is_int(shard_type_number_next(8, 0), 16, "or one round later");
	is_int(shard_type_number_next(PG_INT32_MAX - 1, 7), PG_INT32_MAX, "the last number");
	is_int(shard_type_number_next(PG_INT32_MAX - 1, 3), 0, "nothing is behind it");
	is_int(shard_type_number_next(PG_INT32_MAX, -1), 0, "nor behind that one");
}

int
main(void)
{
	test_owners();
	test_changed_owner();
	test_ends();
	return unit_done();
}
