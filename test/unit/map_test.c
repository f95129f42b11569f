/*
 * map_test.c
 *		The replicated map of one node against a naive one, and the arena it answers from.
 */
#include "postgres_fe.h"

#include "common/pg_prng.h"
#include "core/map/map.h"
#include "unit.h"

#define KEYS 40

/* The naive map: one place for every key that the test uses. */
typedef struct Naive
{
	bool present;
	bool deleted;
	int64 n;
	uint32 length;
	char value[64];
} Naive;

static ShardMapKey
key_of(int i)
{
	ShardMapKey key = {SHARD_MAP_MEMBER + i % 3, i / 3 - 5, i % 2 ? -i : i};

	return key;
}

static ShardMapEntry
entry_of(int i, int64 n, bool deleted, const char *value)
{
	ShardMapEntry entry = {key_of(i), n, deleted, (uint32) strlen(value), value};

	return entry;
}

static void
test_points(void)
{
	ShardMapPoint a = {1, 9};
	ShardMapPoint b = {2, 3};
	ShardMapPoint c = {2, 4};

	ok(shard_map_compare(a, b) < 0 && shard_map_compare(c, b) > 0 && shard_map_compare(b, b) == 0,
	   "the ballot counts first, then n");
}

static void
test_basics(void)
{
	ShardMap *map = shard_map_create();
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entry = entry_of(1, 5, false, "five");
	int count;

	ok(shard_map_find(map, entry.key) == NULL, "an empty map has nothing");
	ok(shard_map_learn(map, &entry), "what is new is learned");
	entry = entry_of(1, 5, false, "again");
	ok(!shard_map_learn(map, &entry), "the same n changes nothing");
	ok(memcmp(shard_map_value(map, entry.key)->value, "five", 4) == 0, "the first stays");
	entry = entry_of(1, 4, true, "");
	shard_map_put(map, &entry);
	ok(shard_map_find(map, entry.key)->n == 4 && shard_map_value(map, entry.key) == NULL,
	   "put puts, and a tombstone is found but has no value");
	is_int(shard_map_oldest_tombstone(map), 4, "the oldest tombstone");
	shard_map_purge(map, 3);
	ok(shard_map_find(map, entry.key) != NULL, "a younger tombstone survives a purge");
	shard_map_tombstones(map, 4, arena, &count);
	is_int(count, 1, "tombstones up to n");
	shard_map_purge(map, 4);
	ok(shard_map_find(map, entry.key) == NULL, "an old one does not");
	is_int(shard_map_count(map), 0, "nothing is left");
	shard_map_destroy(map);
	shard_arena_destroy(arena);
}

/* One a after the other, what is in the list of a kind. */
static bool
same_ranges(const ShardMap *map, ShardMapKind kind, const ShardMapEntry *list, int count)
{
	int seen = 0;

	for (int a = -6; a <= KEYS / 3 - 4; a++)
	{
		ShardMapRange range = shard_map_range(map, kind, a);
		const ShardMapEntry *entry;

		while ((entry = shard_map_range_next(&range)) != NULL)
		{
			if (seen == count || entry->key.a != a ||
				shard_map_key_compare(entry->key, list[seen++].key) != 0)
				return false;
		}
	}
	return seen == count;
}

/* Everything that the map answers must be what the naive one holds. */
static bool
same(const ShardMap *map, const Naive *naive, int64 since, ShardArena *arena)
{
	int count;
	int expected = 0;
	int live[3] = {0, 0, 0};
	ShardMapEntry *entries = shard_map_since(map, since, arena, &count);

	for (int i = 0; i < KEYS; i++)
	{
		const ShardMapEntry *found = shard_map_find(map, key_of(i));

		if ((found != NULL) != naive[i].present)
			return false;
		if (!found)
			continue;
		if (found->n != naive[i].n || found->deleted != naive[i].deleted ||
			found->length != naive[i].length ||
			memcmp(found->value, naive[i].value, found->length) != 0)
			return false;
		expected += naive[i].n > since;
		live[i % 3] += !naive[i].deleted;
	}
	for (int i = 1; i < count; i++)
	{
		if (entries[i - 1].n > entries[i].n ||
			(entries[i - 1].n == entries[i].n &&
			 shard_map_key_compare(entries[i - 1].key, entries[i].key) >= 0))
			return false;
	}
	if (count != expected)
		return false;
	for (int kind = 0; kind < 3; kind++)
	{
		entries = shard_map_list(map, SHARD_MAP_MEMBER + kind, arena, &count);
		if (count != live[kind])
			return false;
		for (int i = 1; i < count; i++)
		{
			if (shard_map_key_compare(entries[i - 1].key, entries[i].key) >= 0)
				return false;
		}
		if (!same_ranges(map, SHARD_MAP_MEMBER + kind, entries, count))
			return false;
	}
	return true;
}

static void
test_random(void)
{
	static const char text[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefgh";
	pg_prng_state random;
	ShardArena *arena = shard_arena_create();
	int differences = 0;

	pg_prng_seed(&random, 4711);
	for (int round = 0; round < 50; round++)
	{
		ShardMap *map = shard_map_create();
		Naive naive[KEYS];

		memset(naive, 0, sizeof(naive));
		for (int step = 0; step < 200; step++)
		{
			int i = (int) pg_prng_uint64_range(&random, 0, KEYS - 1);
			int64 n = (int64) pg_prng_uint64_range(&random, 1, 60);
			bool deleted = pg_prng_uint64_range(&random, 0, 3) == 0;
			ShardMapEntry entry = entry_of(i, n, deleted, "");
			bool learn = pg_prng_bool(&random);

			entry.value = text;
			entry.length = deleted ? 0 : (uint32) pg_prng_uint64_range(&random, 0, 60);
			if (step % 50 == 49)
			{
				shard_map_purge(map, n);
				for (int k = 0; k < KEYS; k++)
					naive[k].present = naive[k].present && !(naive[k].deleted && naive[k].n <= n);
			}
			if (learn)
				shard_map_learn(map, &entry);
			else
				shard_map_put(map, &entry);
			if (!learn || !naive[i].present || naive[i].n < n)
			{
				naive[i].present = true;
				naive[i].deleted = deleted;
				naive[i].n = n;
				naive[i].length = entry.length;
				memcpy(naive[i].value, text, entry.length);
			}
			if (!same(map, naive, n, arena))
				differences++;
			shard_arena_reset(arena);
		}
		shard_map_destroy(map);
	}
	is_int(differences, 0, "10000 random steps answer as a naive map does");
	shard_arena_destroy(arena);
}

#define MANY 3000

/* Many entries at once, whose keys come in no order: a slot is shifted once, and the map is the same. */
static void
test_expect(void)
{
	ShardMap *maps[2] = {shard_map_create(), shard_map_create()};
	ShardArena *arena = shard_arena_create();
	ShardMapEntry *entries = shard_arena_alloc(arena, sizeof(ShardMapEntry) * MANY);
	ShardMapEntry *all[2];
	int64 before;
	int count[2];
	int differences = 0;

	for (int half = 0; half < 2; half++)
	{
		/* the second half has other keys, and some of before; one key comes twice */
		for (int i = 0; i < MANY; i++)
		{
			int k = i * 1009 % MANY * (half + 1);

			entries[i] = (ShardMapEntry){
				{SHARD_MAP_HOME, k / 100, k % 100}, half * MANY + i, false, 3, "abc"};
		}
		entries[MANY - 1].key = entries[7].key;
		before = shard_map_shifted(maps[0]);
		shard_map_expect(maps[0], entries, MANY);
		for (int i = 0; i < MANY; i++)
		{
			if (half == 0)
				shard_map_put(maps[0], &entries[i]);
			else
				differences += !shard_map_learn(maps[0], &entries[i]);
			shard_map_put(maps[1], &entries[i]);
		}
		ok(shard_map_shifted(maps[0]) - before <= half * MANY,
		   "no slot is shifted twice: " INT64_FORMAT, shard_map_shifted(maps[0]) - before);
	}
	is_int(differences, 0, "all that is expected is learned");
	for (int m = 0; m < 2; m++)
		all[m] = shard_map_since(maps[m], -2, arena, &count[m]);
	is_int(count[0], count[1], "as many as one after the other");
	for (int i = 0; i < count[0] && count[0] == count[1]; i++)
		differences += all[0][i].n != all[1][i].n || all[0][i].deleted ||
					   shard_map_key_compare(all[0][i].key, all[1][i].key) != 0 ||
					   shard_map_find(maps[0], all[0][i].key)->n != all[0][i].n;
	is_int(differences, 0, "and the same");
	is_int(shard_map_oldest_tombstone(maps[0]), shard_map_oldest_tombstone(maps[1]),
		   "nothing of what was expected is left");
	for (int m = 0; m < 2; m++)
		shard_map_destroy(maps[m]);
	shard_arena_destroy(arena);
}

static void
test_arena(void)
{
	ShardArena *arena = shard_arena_create();
	bool clean = true;
	bool aligned = true;

	for (int round = 0; round < 5; round++)
	{
		for (size_t size = 0; size < 600000; size = size * 3 + 1)
		{
			char *piece = shard_arena_alloc(arena, size);

			aligned = aligned && (uintptr_t) piece == MAXALIGN((uintptr_t) piece);
			for (size_t i = 0; i < size; i++)
				clean = clean && piece[i] == 0;
			if (size > 0)
				memset(piece, 'x', size);
		}
		shard_arena_reset(arena);
	}
	ok(clean, "an arena's memory is zero, again after a reset");
	ok(aligned, "and aligned");
	ok(shard_arena_copy(arena, NULL, 3) == NULL, "a copy of nothing is nothing");
	ok(memcmp(shard_arena_copy(arena, "abc", 4), "abc", 4) == 0, "a copy is a copy");
	shard_arena_destroy(arena);
}

int
main(void)
{
	test_points();
	test_basics();
	test_random();
	test_expect();
	test_arena();
	return unit_done();
}
