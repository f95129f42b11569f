/*
 * owner_test.c
 *		Unit tests of the owners of types, on whole nodes (C18).
 */
#include "postgres_fe.h"

#include "type_world.h"

static void
let_owners_share(int at)
{
	ShardLiveSettings live = *shard_node_live(machines[at].node);

	live.owners_may_share = true;
	shard_node_reload(machines[at].node, now, &live, out);
	act(at, NO_LINK);
}

static void
wish_as(int at, const char *name, int32 number, bool proxy, const char *owner)
{
	ShardTypeRecord type = {.name = name,
							.number_of_shards = 100,
							.settings_hash = 1,
							.owner = owner};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type, .flag = proxy};

	event.number = number;
	happen(at, &event);
	deliver();
}

/* Is that the owner of the type, as a machine has learned? */
static bool
owner_is(int at, const char *name, const char *owner)
{
	int count;
	ShardMapEntry *types =
		shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_TYPE, out->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (shard_record_get_type(&types[i], &type, out->arena) && strcmp(type.name, name) == 0)
			return strcmp(type.owner, owner) == 0;
	}
	return false;
}

static void
give(int at, int32 type_id, int64 n, const char *owner)
{
	ShardCommand event = {.kind = SHARD_COMMAND_OWNER,
						  .type_id = type_id,
						  .record_n = n,
						  .text = owner};

	event.asker.token = 4711;
	order(at, &event);
	deliver();
}

static int64
n_of(int at, int32 type_id)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[at].node),
												 (ShardMapKey){SHARD_MAP_TYPE, type_id, 0});

	return entry ? entry->n : 0;
}

/* Two users take the same name, at two nodes. */
static void
test_owners(void)
{
	char long_name[10000];
	int64 n;

	fresh_world();
	start(0);
	start(1);
	run(SHARD_SECOND);
	join(1, 0);
	run(10 * SHARD_SECOND);
	wish_as(0, "bank", 1, false, "alice");
	run(2 * SHARD_SECOND);
	wish_as(1, "bank", 0, true, "mallory");
	run(2 * SHARD_SECOND);
	ok(!shard_node_asks_for_type(machines[1].node, "bank"), "another one's wish is refused");
	drop(1, "bank");
	wish_as(1, "bank", 7, false, "mallory");
	run(2 * SHARD_SECOND);
	for (int i = 0; i < 20; i++)
		want(1, 1, i);
	run(SHARD_SECOND);
	is_int(count_homes(1, 2), 0, "what she has all the same gets no shards");
	ok(owner_is(1, "bank", "alice"), "nor is the type hers");
	drop(1, "bank");
	wish_as(1, "bank", 1, false, "alice");
	run(2 * SHARD_SECOND);
	for (int i = 20; i < 40; i++)
		want(1, 1, i);
	run(SHARD_SECOND);
	ok(count_homes(1, 2) > 0, "who is the same role hosts it");

	/* the owner of what is hosted at both is changed at one of them */
	wish_as(1, "bank", 1, false, "bob");
	run(6 * SHARD_SECOND);
	ok(owner_is(0, "bank", "alice"), "what two have nobody takes from the other one");
	ok(!shard_node_asks_for_type(machines[1].node, "bank"), "which is not asked for ever");
	n = n_of(1, 1);
	give(1, 1, n - 1, "bob");
	run(SHARD_SECOND);
	ok(owner_is(0, "bank", "alice"), "an operator who has seen another record changes nothing");
	for (size_t length = NAMEDATALEN; length < sizeof(long_name); length *= 4)
	{
		memset(long_name, 'o', length);
		long_name[length] = '\0';
		give(1, 1, n, long_name);
		run(SHARD_SECOND);
		ok(owner_is(0, "bank", "alice") && n_of(0, 1) == n, "no role has %zu letters", length);
	}
	give(1, 1, n, "bob");
	run(2 * SHARD_SECOND);
	ok(owner_is(0, "bank", "bob") && owner_is(1, "bank", "bob"), "the present one gives it away");
	n = homes_of_type(0, 1);
	for (int i = 40; i < 60; i++)
		want(0, 1, i);
	run(SHARD_SECOND);
	ok(homes_of_type(0, 1) > n, "then it goes on where he has it");
	hosts_tell = true;
	drop(0, "bank");
	run(6 * SHARD_SECOND);
	wish_as(1, "bank", 1, false, "carol");
	run(3 * SHARD_SECOND);
	ok(owner_is(0, "bank", "carol"), "who has it alone says whose it is");
	hosts_tell = false;
}

/* Owners are in groups of their own, whatever is wished for (C19). */
static void
test_groups(void)
{
	char name[NAMEDATALEN];
	char owner[NAMEDATALEN];

	fresh_world();
	start(0);
	start(1);
	run(SHARD_SECOND);
	wish_as(0, "first", 1, false, "owner0");
	run(SHARD_SECOND);
	join(1, 0);
	run(10 * SHARD_SECOND);
	wish_as(0, "second", 0, false, "owner0");
	run(SHARD_SECOND);
	is_int(id_of(0, "second"), 9, "the owner's group");
	wish_as(1, "other", 17, false, "owner1");
	run(2 * SHARD_SECOND);
	is_int(id_of(0, "other"), 10, "another owner's wish for it is not granted");
	wish_as(1, "fitting", 18, false, "owner1");
	run(2 * SHARD_SECOND);
	is_int(id_of(0, "fitting"), 18, "one that fits is");
	for (int i = 2; i < 10; i++)
	{
		snprintf(name, sizeof(name), "of%d", i);
		snprintf(owner, sizeof(owner), "owner%d", i);
		wish_as(0, name, 0, false, owner);
		run(SHARD_SECOND);
		ok((id_of(0, name) != 0) == (i < 8), "owner %d of eight%s", i + 1,
		   i < 8 ? "" : " is refused");
	}
	ok(shard_node_type_lacks(machines[0].node, "of8") &&
		   !shard_node_type_lacks(machines[0].node, "of7"),
	   "the host can ask why");

	/* A joiner's types are judged before it is a member. */
	start(2);
	run(SHARD_SECOND);
	wish_as(2, "brought", 1, false, "owner9");
	run(SHARD_SECOND);
	join(2, 0);
	run(2 * SHARD_SECOND);
	ok(machines[2].command == 1 && !machines[2].command_good &&
		   strstr(machines[2].command_text, "\"brought\" of role \"owner9\""),
	   "a joiner with a ninth owner's type is refused: %s", machines[2].command_text);
	is_int(count_members(0), 2, "and is no member");

	let_owners_share(0);
	let_owners_share(1);
	wish_as(0, "ninth", 0, false, "owner8");
	run(2 * SHARD_SECOND);
	ok(id_of(0, "ninth") != 0, "unless owners may share");
	run(5 * SHARD_SECOND);
	ok(id_of(0, "of8") != 0 && id_of(0, "of9") != 0, "who was refused asks again");
	ok(!shard_node_type_lacks(machines[0].node, "of8"), "and lacks nothing then");
	join(2, 0);
	run(10 * SHARD_SECOND);
	ok(machines[2].command_good && id_of(2, "brought") != 0, "the joiner is welcome, too");
}

int
main(void)
{
	begin_world();
	test_owners();
	test_groups();
	end_world();
	return unit_done();
}
