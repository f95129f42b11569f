/*
 * record_test.c
 *		Values of the replicated map: round trips, what a newer version added, damaged bytes.
 */
#include "postgres_fe.h"

#include "common/pg_prng.h"
#include "core/map/record.h"
#include "unit.h"

static ShardArena *arena;

/* Every getter over the same bytes: none may read beyond them, a failed one leaves zeros. */
static void
read_all(const char *bytes, uint32 length)
{
	char *copy = malloc(Max(length, 1));
	ShardMapEntry entry = {{1, 0, 0}, 1, false, length, copy};
	ShardTermRecord term;
	ShardVotersRecord voters;
	ShardCountersRecord counters;
	ShardSettingsRecord settings;
	ShardMemberRecord member;
	ShardTypeRecord type;
	ShardHomeRecord home;

	memcpy(copy, bytes, length);
	if (!shard_record_get_term(&entry, &term) && term.n_terms != 0)
		ok(false, "a term that is none is zero");
	if (!shard_record_get_voters(&entry, &voters) && voters.n_current != 0)
		ok(false, "voters that are none are zero");
	shard_record_get_counters(&entry, &counters);
	shard_record_get_settings(&entry, &settings);
	if (!shard_record_get_member(&entry, &member, arena) && member.dsn != NULL)
		ok(false, "a member that is none is zero");
	shard_record_get_type(&entry, &type, arena);
	if (!shard_record_get_home(&entry, &home) && home.n_nodes != 0)
		ok(false, "a home that is none is zero");
	shard_record_get_pin(&entry);
	shard_arena_reset(arena);
	free(copy);
}

static ShardMapEntry
sample_member(void)
{
	ShardMemberRecord member;

	memset(&member, 0, sizeof(member));
	member.status = SHARD_MEMBER_UP;
	member.inc_no = 7;
	member.inc_uuid.high = PG_UINT64_MAX;
	member.inc_uuid.low = 1;
	member.join_token.low = 99;
	member.age = 12;
	member.gate = SHARD_GATE_STANDBY;
	member.identity_lease = true;
	member.protocol_version = 1;
	member.features = 5;
	member.dsn = "host=a";
	member.app_version = "1.2";
	member.n_roles = 2;
	member.roles[0] = "front";
	member.roles[1] = "back";
	member.evacuated = true;
	member.weight = 1500;
	member.extra.bytes = "newer";
	member.extra.length = 5;
	return shard_record_put_member(3, &member, 41, arena);
}

static void
test_member(void)
{
	ShardMapEntry entry = sample_member();
	ShardMapEntry again;
	ShardMemberRecord member;

	ok(entry.key.kind == SHARD_MAP_MEMBER && entry.key.a == 3 && entry.n == 41, "key and n");
	ok(shard_record_get_member(&entry, &member, arena), "a member is read");
	ok(member.status == SHARD_MEMBER_UP && member.inc_no == 7 && member.age == 12 &&
		   member.inc_uuid.high == PG_UINT64_MAX && member.join_token.low == 99 &&
		   member.identity_lease && member.features == 5 && member.evacuated &&
		   member.weight == 1500,
	   "with its numbers");
	ok(strcmp(member.dsn, "host=a") == 0 && strcmp(member.app_version, "1.2") == 0 &&
		   member.n_roles == 2 && strcmp(member.roles[1], "back") == 0,
	   "and texts");
	ok(member.extra.length == 5 && memcmp(member.extra.bytes, "newer", 5) == 0,
	   "what a newer version added is kept");
	again = shard_record_put_member(3, &member, 41, arena);
	ok(again.length == entry.length && memcmp(again.value, entry.value, entry.length) == 0,
	   "and written again");
	entry.deleted = true;
	ok(!shard_record_get_member(&entry, &member, arena), "a tombstone is no member");
	ok(!shard_record_get_member(NULL, &member, arena), "nothing is none, either");
}

static void
test_others(void)
{
	ShardMapEntry entry;
	ShardVotersRecord voters = {2, {1, 2}, 1, {3}, 4, {NULL, 0}};
	ShardVotersRecord voters2;
	ShardCountersRecord counters = {1, 2, 4, 5, {NULL, 0}};
	ShardCountersRecord counters2;
	ShardSettingsRecord settings = {4000, 5000, 3, 1, {{7, 2}}, {NULL, 0}};
	ShardSettingsRecord settings2;
	ShardTypeRecord type = {.name = "cart",
							.number_of_shards = 10,
							.settings_hash = 77,
							.leased = true,
							.strategy = 2,
							.role = "front",
							.features = 8,
							.hashing = "java",
							.owner = "alice",
							.by = 3,
							.own_worker = true,
							.claims = true,
							.replicas = 2,
							.min_insync = 3,
							.on_too_few = SHARD_TOO_FEW_STOP};
	ShardTypeRecord type2;
	ShardMapEntry again;
	char owner[NAMEDATALEN + 1];
	ShardHomeRecord home = {
		6, 1, {2}, 1, SHARD_HOME_MOVING, 9, 3, SHARD_HOME_REASON_OPERATOR, 5, {NULL, 0}};
	ShardHomeRecord home2;

	entry = shard_record_put_voters(&voters, 1, arena);
	ok(shard_record_get_voters(&entry, &voters2) && voters2.n_current == 2 &&
		   voters2.current[1] == 2 && voters2.next[0] == 3 && voters2.era == 4,
	   "voters");
	entry = shard_record_put_counters(&counters, 1, arena);
	ok(shard_record_get_counters(&entry, &counters2) && counters2.last_type_id == 2 &&
		   counters2.purge_n == 5,
	   "counters");
	entry = shard_record_put_settings(&settings, 1, arena);
	ok(shard_record_get_settings(&entry, &settings2) && settings2.min_members == 3 &&
		   settings2.n_role_minimums == 1 && settings2.role_minimums[0].role == 7 &&
		   settings2.role_minimums[0].members == 2,
	   "settings");
	entry = shard_record_put_type(5, &type, 1, arena);
	ok(shard_record_get_type(&entry, &type2, arena) && strcmp(type2.name, "cart") == 0 &&
		   type2.settings_hash == 77 && type2.leased && strcmp(type2.role, "front") == 0 &&
		   strcmp(type2.hashing, "java") == 0 && strcmp(type2.owner, "alice") == 0 &&
		   type2.by == 3 && type2.own_worker && type2.claims && type2.replicas == 2 &&
		   type2.min_insync == 3 && type2.on_too_few == SHARD_TOO_FEW_STOP,
	   "a type");
	type.min_insync = 4;
	again = shard_record_put_type(5, &type, 1, arena);
	ok(!shard_record_get_type(&again, &type2, arena),
	   "one that wants more copies in its sets than they can have is none");
	type.min_insync = 3;
	ok(shard_record_get_type(&entry, &type2, NULL) && type2.number_of_shards == 10 &&
		   type2.leased && type2.by == 3 && type2.owner[0] == '\0' && type2.name[0] == '\0',
	   "its numbers without an arena");
	memset(owner, 'o', sizeof(owner) - 1);
	owner[sizeof(owner) - 1] = '\0';
	type.owner = owner;
	again = shard_record_put_type(5, &type, 1, arena);
	ok(!shard_record_get_type(&again, &type2, arena) &&
		   !shard_record_get_type(&again, &type2, NULL),
	   "of an owner with a longer name than a role can have there is none");
	type.owner = owner + 1;
	again = shard_record_put_type(5, &type, 1, arena);
	ok(shard_record_get_type(&again, &type2, arena) && strcmp(type2.owner, owner + 1) == 0,
	   "of one with the longest name there is");
	entry.length -= 3;
	ok(shard_record_get_type(&entry, &type2, arena) && type2.replicas == 0 && type2.claims,
	   "one of an older version has no replicas");
	entry.length--;
	ok(shard_record_get_type(&entry, &type2, arena) && !type2.claims && type2.by == 3,
	   "one of an older version claims nothing");
	entry.length--;
	ok(shard_record_get_type(&entry, &type2, arena) && !type2.own_worker && type2.by == 3,
	   "one of an older version shares its workers");
	entry.length--;
	ok(shard_record_get_type(&entry, &type2, arena) && type2.by == 0 &&
		   strcmp(type2.owner, "alice") == 0,
	   "one of an older version is brought by nobody");
	entry.length -= sizeof("alice");
	ok(shard_record_get_type(&entry, &type2, arena) && type2.owner[0] == '\0',
	   "one of an older version has no owner");
	entry = shard_record_put_home(5, 8, &home, 1, arena);
	ok(shard_record_get_home(&entry, &home2) && home2.epoch == 6 && home2.to == 3 &&
		   home2.lost == 5 && home2.reason == SHARD_HOME_REASON_OPERATOR &&
		   shard_record_home_node(&home2) == 2 && entry.key.b == 8,
	   "a home");
	entry.length--;
	ok(shard_record_get_home(&entry, &home2) && home2.lost == 5 && home2.reason == 0,
	   "one of an older version has no reason");
	home.n_nodes = 0;
	entry = shard_record_put_home(5, 8, &home, 1, arena);
	ok(!shard_record_get_home(&entry, &home2), "a home without a node is none");
	home.n_nodes = 3;
	home.nodes[1] = 4;
	home.nodes[2] = 2;
	entry = shard_record_put_home(5, 8, &home, 1, arena);
	ok(!shard_record_get_home(&entry, &home2), "a set with a node twice is none");
	entry = shard_record_put_pin(5, 8, 4, 1, arena);
	is_int(shard_record_get_pin(&entry), 4, "a pin");
	entry = shard_record_put_formed(2, 0, arena);
	ok(entry.key.kind == SHARD_MAP_FORMED && entry.key.a == 2 && entry.length == 0, "formed");
}

/* The settings of a type's strategy, and what is none. */
static void
test_allocation(void)
{
	ShardTypeRecord type = {.name = "cart", .role = "", .hashing = "", .handoff_timeout_ms = 7000};
	ShardTypeRecord read;
	ShardMapEntry entry = shard_record_put_type(5, &type, 1, arena);
	uint32 length = entry.length;

	ok(shard_record_get_type(&entry, &read, arena) && read.allocation.kind == 0 &&
		   read.handoff_timeout_ms == 7000,
	   "a type need not set anything");
	entry.length = length - 12;
	ok(shard_record_get_type(&entry, &read, arena) && read.handoff_timeout_ms == 0 &&
		   read.extra.length == 0,
	   "in an older version it did not");
	entry.length = length - 8;
	ok(shard_record_get_type(&entry, &read, arena) && !read.dropping, "nor was one about to go");
	type.dropping = true;
	entry = shard_record_put_type(5, &type, 1, arena);
	ok(shard_record_get_type(&entry, &read, arena) && read.dropping, "as it may be now");
	type.allocation = shard_allocation_defaults(SHARD_ALLOCATION_FUNCTION);
	type.allocation.rebalance_relative_limit = 0.25;
	type.allocation.virtual_nodes = 17;
	type.allocation.weighted = true;
	entry = shard_record_put_type(5, &type, 1, arena);
	ok(shard_record_get_type(&entry, &read, arena) &&
		   read.allocation.kind == SHARD_ALLOCATION_FUNCTION &&
		   read.allocation.rebalance_relative_limit == 0.25 &&
		   read.allocation.virtual_nodes == 17 && read.allocation.weighted &&
		   read.allocation.rebalance_threshold == 1 && read.handoff_timeout_ms == 7000,
	   "its settings are read");
	type.allocation.virtual_nodes = 100000;
	entry = shard_record_put_type(5, &type, 1, arena);
	ok(!shard_record_get_type(&entry, &read, arena), "a setting has bounds");
	type.allocation.virtual_nodes = 1;
	type.allocation.rebalance_relative_limit = strtod("nan", NULL);
	entry = shard_record_put_type(5, &type, 1, arena);
	ok(!shard_record_get_type(&entry, &read, arena), "and is a number");
	type.allocation = shard_allocation_defaults((ShardAllocationKind) 7);
	entry = shard_record_put_type(5, &type, 1, arena);
	ok(!shard_record_get_type(&entry, &read, arena), "of a strategy that is known");
}

static void
test_lineage(void)
{
	ShardMap *map = shard_map_create();
	ShardTermRecord term;

	for (int i = 1; i <= SHARD_TERM_MEMORY + 3; i++)
	{
		ShardMapEntry entry = shard_record_append_term(map, i * 10, i, arena);

		entry.n = i;
		shard_map_put(map, &entry);
	}
	shard_record_get_term(shard_map_value(map, (ShardMapKey){SHARD_MAP_TERM, 0, 0}), &term);
	is_int(term.n_terms, SHARD_TERM_MEMORY, "the lineage is bounded");
	is_int(term.terms[0].b, 40, "it forgets the oldest ballots");
	is_int(term.terms[SHARD_TERM_MEMORY - 1].n, SHARD_TERM_MEMORY + 3, "and knows the newest");
	shard_map_destroy(map);
}

static void
test_damage(void)
{
	pg_prng_state random;
	ShardMapEntry entry = sample_member();
	char bytes[256];
	uint32 length = entry.length;

	memcpy(bytes, entry.value, length);
	for (uint32 i = 0; i <= length; i++)
		read_all(bytes, i);
	pg_prng_seed(&random, 7);
	for (int round = 0; round < 20000; round++)
	{
		char noise[256];
		uint32 size = (uint32) pg_prng_uint64_range(&random, 0, sizeof(noise));

		for (uint32 i = 0; i < size; i++)
			noise[i] = (char) (pg_prng_bool(&random) ? pg_prng_uint64_range(&random, 0, 9)
													 : pg_prng_uint64_range(&random, 0, 255));
		read_all(noise, size);
		memcpy(noise, bytes, length);
		noise[pg_prng_uint64_range(&random, 0, length - 1)] = (char) pg_prng_uint32(&random);
		read_all(noise, length);
	}
	ok(true, "damaged values are read without harm");
}

int
main(void)
{
	arena = shard_arena_create();
	test_member();
	test_others();
	test_allocation();
	test_lineage();
	test_damage();
	shard_arena_destroy(arena);
	return unit_done();
}
