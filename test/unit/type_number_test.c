/*
 * type_number_test.c
 *		Numbers of types: owners in groups of their own, as long as there are some.
 */
#include "postgres_fe.h"

#include "core/base/message.h"
#include "core/map/type_number.h"
#include "unit.h"

static ShardNumberedType types[100];
static int count = 0;
static int32 last = 0;

/* Another type of a party; 0: it is refused. */
static int32
start_for(ShardTypeParty party, bool may_share)
{
	int group = shard_type_number_group(types, count, party, last, may_share);

	if (group < 0)
		return 0;
	last = shard_type_number_next(last, group);
	shard_type_number_add(types, &count, last, party);
	return last;
}

/* Another type of an owner. */
static int32
start(const char *owner, bool may_share)
{
	return start_for((ShardTypeParty){owner, NULL}, may_share);
}

/* One that wants its workers to itself. */
static int32
start_alone(const char *owner, const char *name, bool may_share)
{
	ShardTypeRecord type = {.name = name, .owner = owner, .own_worker = true};

	return start_for(shard_type_number_party(&type), may_share);
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

/* A type may have its workers to itself: no other one comes to its group, though owners share. */
static void
test_own_workers(void)
{
	int shared, own, other, group;

	count = 0;
	last = 0;
	shared = shard_message_group(start("a", false));
	own = shard_message_group(start_alone("a", "t", false));
	other = shard_message_group(start_alone("a", "u", false));
	ok(own != shared && other != shared && own != other, "each has a group");
	is_int(shard_message_group(start("a", false)), shared, "the owner's others stay together");
	is_int(shard_message_group(start_alone("a", "t", false)), own,
		   "the same type has the same one");
	ok(start_alone("b", "v", false) != 0 && start_alone("b", "w", false) != 0,
	   "there are some more");
	is_int(start_alone("b", "one more", false), 0, "until half of all groups are taken");
	is_int(start_alone("b", "one more", true), 0, "what shares a group has it not to itself");
	ok(start("c", false) != 0 && start("d", false) != 0 && start("e", false) != 0,
	   "owners have the other half");
	is_int(start("f", false), 0, "until there is none left");
	group = shard_message_group(start("f", true));
	for (int i = 0; i < count; i++)
		ok(types[i].party.alone == NULL || shard_message_group(types[i].type_id) != group,
		   "and share no group that a type has to itself");
}

/* A type keeps its group when it changes hands. */
static void
test_changed_owner(void)
{
	const ShardTypeParty a = {"a", NULL}, b = {"b", NULL}, c = {"c", NULL};
	ShardNumberedType given[] = {{1, a}, {2, a}, {10, b}, {3, c}};

	is_int(shard_type_number_group(given, 4, a, 10, false), 1,
		   "of two groups that one where nobody else is");
	is_int(shard_type_number_group(given, 4, b, 10, false), 2, "who shares goes on to");
}

/* Who drops the newest type and starts another one stays with its workers. */
static void
test_gone(void)
{
	const ShardTypeParty a = {"a", NULL}, b = {"b", NULL};
	ShardNumberedType given[] = {{1, a}, {2, b}};

	is_int(shard_type_number_group(given, 0, a, 2, false), 2, "of the newest, which is gone");
	is_int(shard_type_number_group(given, 1, b, 2, false), 2, "though others have some");
	is_int(shard_type_number_group(given, 2, (ShardTypeParty){"c", NULL}, 2, false), 3,
		   "not that of a type that is there");
	is_int(shard_type_number_group(given, 0, a, PG_INT32_MAX, false), 7, "nor is there an end");
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

static ShardMapEntry
type_of(ShardArena *arena, int32 number, const char *name, const char *owner)
{
	ShardTypeRecord type = {
		.name = name, .number_of_shards = 8, .settings_hash = 1, .role = "", .owner = owner};

	return shard_record_put_type(number, &type, 1, arena);
}

/* May a node join with these types? says: what the refusal names; NULL: it may. */
static void
is_judged(const ShardMap *map, const ShardMapEntry *brought, int n_brought, bool may_share,
		  const char *says)
{
	ShardArena *arena = shard_arena_create();
	const char *why = shard_type_number_judge(map, brought, n_brought, may_share, arena);

	ok(says ? why && strstr(why, says) : !why, "a joiner with %d types: %s", n_brought,
	   why ? why : "welcome");
	shard_arena_destroy(arena);
}

/* A joiner's types: what the cluster has not is judged as it will be asked for. */
static void
test_joiners(void)
{
	static const char *const names[] = {"t1", "t2", "t3", "t4", "t5", "t6", "t7"};
	static const char *const owners[] = {"a", "b", "c", "d", "e", "f", "g"};
	ShardArena *arena = shard_arena_create();
	ShardMap *map = shard_map_create();
	ShardCountersRecord counters = {.last_type_id = 7};
	ShardMapEntry entry = shard_record_put_counters(&counters, 1, arena);
	ShardMapEntry brought[4];

	is_judged(map, NULL, 0, false, NULL);
	shard_map_put(map, &entry);
	for (int i = 0; i < 6; i++)
	{
		entry = type_of(arena, i + 1, names[i], owners[i]);
		shard_map_put(map, &entry);
	}
	brought[0] = type_of(arena, 1, "new", "x");
	brought[1] = type_of(arena, 2, "t2", "b");
	brought[2] = type_of(arena, 3, "newer", "y");
	is_judged(map, brought, 3, false, NULL);
	brought[3] = type_of(arena, 4, "newest", "z");
	is_judged(map, brought, 4, false, "\"newest\" of role \"z\": " SHARD_TYPE_NUMBER_WHY);
	is_judged(map, brought, 4, true, NULL);
	brought[3] = type_of(arena, 4, "newest", "x");
	is_judged(map, brought, 4, false, NULL);
	brought[3] = type_of(arena, 4, "newest", "");
	is_judged(map, brought, 4, false, NULL);

	/* wishes that fit are granted: the first owner gets the two groups that are left */
	brought[0] = type_of(arena, 0, "last", "y");
	brought[1] = type_of(arena, 16, "second", "x");
	brought[2] = type_of(arena, 15, "first", "x");
	is_judged(map, brought, 3, false, "\"last\" of role \"y\"");
	entry = type_of(arena, 7, names[6], owners[6]);
	shard_map_put(map, &entry);
	is_judged(map, brought, 3, false, "\"last\"");
	is_judged(map, &brought[1], 2, false, NULL);
	shard_map_destroy(map);
	shard_arena_destroy(arena);
}

static ShardMapEntry
wide_type_of(ShardArena *arena, const char *name, int32 shards)
{
	ShardTypeRecord type = {.name = name, .number_of_shards = shards, .owner = "a"};

	return shard_record_put_type(0, &type, 1, arena);
}

/* A joiner's types have to find room, too (C20). */
static void
test_room(void)
{
	static const char *const why = "of role \"a\": " SHARD_TYPE_ROOM_WHY;
	ShardArena *arena = shard_arena_create();
	ShardMap *map = shard_map_create();
	ShardMapEntry brought[2];
	ShardTypeRoom all = {SHARD_ROOM_TYPES, SHARD_ROOM_SHARDS, SHARD_ROOM_BYTES};
	ShardTypeRoom alone = {SHARD_ROOM_TYPES / 2, SHARD_ROOM_SHARDS / 2, SHARD_ROOM_BYTES / 2};

	brought[0] = wide_type_of(arena, "one", SHARD_MAX_SHARDS + 1);
	is_judged(map, brought, 1, true, why);
	brought[0] = wide_type_of(arena, "one", SHARD_MAX_SHARDS);
	is_judged(map, brought, 1, true, NULL);
	brought[1] = wide_type_of(arena, "two", 1);
	is_judged(map, brought, 2, true, why);
	shard_map_put(map, &brought[0]);
	is_judged(map, brought, 2, true, NULL);
	brought[0] = wide_type_of(arena, "three", SHARD_MAX_SHARDS);
	is_judged(map, brought, 1, true, NULL);
	is_judged(map, brought, 2, true, why);

	ok(shard_type_room_fits(&all, &alone), "all is full");
	all.types++;
	ok(!shard_type_room_fits(&all, &alone), "one type too many");
	all.types--;
	all.bytes++;
	ok(!shard_type_room_fits(&all, &alone), "one byte too many");
	all.bytes--;
	alone.types++;
	ok(!shard_type_room_fits(&all, &alone), "one of a member's own");
	shard_map_destroy(map);
	shard_arena_destroy(arena);
}

/* How many types a joiner brings, and how many bytes of them, is all that is looked at before it is called back. */
static void
test_bounds(void)
{
	ShardArena *arena = shard_arena_create();
	ShardMapEntry *types = shard_arena_alloc(arena, (SHARD_JOIN_TYPES + 1) * sizeof(ShardMapEntry));
	const char *why;

	for (int i = 0; i <= SHARD_JOIN_TYPES; i++)
		types[i] = (ShardMapEntry){.length = SHARD_JOIN_TYPE_BYTES / SHARD_JOIN_TYPES};
	ok(!shard_type_number_bounds(types, SHARD_JOIN_TYPES, arena), "as many types as can be");
	why = shard_type_number_bounds(types, SHARD_JOIN_TYPES + 1, arena);
	ok(why && strstr(why, SHARD_TYPE_ROOM_WHY) && strstr(why, "1025 entity types"), "one more: %s",
	   why ? why : "welcome");
	types[0].length++;
	why = shard_type_number_bounds(types, SHARD_JOIN_TYPES, arena);
	ok(why && strstr(why, SHARD_TYPE_ROOM_WHY) && strstr(why, "4194305 bytes"), "one byte more: %s",
	   why ? why : "welcome");
	shard_arena_destroy(arena);
}

/* As many types as can be, of a cluster that is full, are judged at once: each map is decoded once. */
static void
test_many(void)
{
	ShardArena *arena = shard_arena_create();
	ShardMap *map = shard_map_create();
	ShardMapEntry *brought = shard_arena_alloc(arena, SHARD_JOIN_TYPES * sizeof(ShardMapEntry));
	int count;
	const ShardTypeRecord *names;

	for (int i = 0; i < SHARD_ROOM_TYPES; i++)
	{
		char *name = psprintf("t%04d", (i * 7) % SHARD_ROOM_TYPES);
		ShardMapEntry entry = type_of(arena, i + 1, name, "a");

		shard_map_put(map, &entry);
		if (i < SHARD_JOIN_TYPES)
			brought[i] = entry;
		pfree(name);
	}
	is_judged(map, brought, SHARD_JOIN_TYPES, true, NULL);
	names = shard_type_number_names(map, arena, &count);
	is_int(count, SHARD_ROOM_TYPES, "all types have names");
	for (int i = 1; i < count; i++)
	{
		if (strcmp(names[i - 1].name, names[i].name) >= 0)
			ok(false, "in their order");
	}
	ok(shard_type_number_find(names, count, "t1023") != NULL, "one that is there");
	ok(shard_type_number_find(names, count, "t2048") == NULL, "one that is not");
	shard_map_destroy(map);
	shard_arena_destroy(arena);
}

int
main(void)
{
	test_owners();
	test_own_workers();
	test_changed_owner();
	test_gone();
	test_ends();
	test_joiners();
	test_room();
	test_bounds();
	test_many();
	return unit_done();
}
