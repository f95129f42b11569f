/*
 * core/map/map.c
 *		The replicated map as one node holds it: keys, values, versions (R4, R6, R8).
 *
 * Two orders over the same items: an array sorted by key, in which look-ups search by halves and
 * kinds are neighbours, and a list by age (n), from whose young end the newer entries are read.
 * Nothing depends on addresses or hashes, so equal maps answer equally everywhere. An item is
 * reused when its key's value changes and fits.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/map.h"
#include "lib/ilist.h"

#define FIRST_SPACE 32

typedef struct Item
{
	dlist_node age; /* in ShardMap.ages */
	ShardMapEntry entry;
	uint32 space; /* for the value */
	char value[FLEXIBLE_ARRAY_MEMBER];
} Item;

/* The key stands here, too, so that a search touches the array alone. */
typedef struct Slot
{
	ShardMapKey key;
	Item *item;
} Slot;

struct ShardMap
{
	ShardMapPoint point;
	int n_slots;
	int space;
	Slot *slots;	 /* by key */
	dlist_head ages; /* of items, oldest first; no order among those of one n */
	int n_tombstones;
	int64 n_shifted; /* slots that made room for others */
};

ShardMap *
shard_map_create(void)
{
	ShardMap *map = palloc0(sizeof(ShardMap));

	map->space = FIRST_SPACE;
	map->slots = palloc(sizeof(Slot) * map->space);
	dlist_init(&map->ages);
	return map;
}

void
shard_map_destroy(ShardMap *map)
{
	shard_map_clear(map);
	pfree(map->slots);
	pfree(map);
}

void
shard_map_clear(ShardMap *map)
{
	for (int i = 0; i < map->n_slots; i++)
		pfree(map->slots[i].item);
	map->n_slots = 0;
	map->n_tombstones = 0;
	dlist_init(&map->ages);
	map->point.b = 0;
	map->point.n = 0;
}

ShardMapPoint
shard_map_point(const ShardMap *map)
{
	return map->point;
}

void
shard_map_set_point(ShardMap *map, ShardMapPoint point)
{
	map->point = point;
}

int
shard_map_compare(ShardMapPoint a, ShardMapPoint b)
{
	if (a.b != b.b)
		return a.b < b.b ? -1 : 1;
	if (a.n != b.n)
		return a.n < b.n ? -1 : 1;
	return 0;
}

/* Order of keys: kind, then its two numbers. */
int
shard_map_key_compare(ShardMapKey a, ShardMapKey b)
{
	if (a.kind != b.kind)
		return a.kind < b.kind ? -1 : 1;
	if (a.a != b.a)
		return a.a < b.a ? -1 : 1;
	if (a.b != b.b)
		return a.b < b.b ? -1 : 1;
	return 0;
}

/*
 * Index of the first slot whose key is not below the given one. Keys often come in ascending order,
 * so the end is looked at first.
 */
static int
search(const ShardMap *map, ShardMapKey key)
{
	int low = 0;
	int high = map->n_slots;

	if (high > 0 && shard_map_key_compare(map->slots[high - 1].key, key) < 0)
		return high;
	while (low < high)
	{
		int middle = (low + high) / 2;

		if (shard_map_key_compare(map->slots[middle].key, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * The item of a key, NULL if there is none; *place gets where it is, or where it belongs.
 */
static Item *
find_item(const ShardMap *map, ShardMapKey key, int *place)
{
	*place = search(map, key);
	if (*place < map->n_slots && shard_map_key_compare(map->slots[*place].key, key) == 0)
		return map->slots[*place].item;
	return NULL;
}

const ShardMapEntry *
shard_map_find(const ShardMap *map, ShardMapKey key)
{
	int place;
	Item *item = find_item(map, key, &place);

	return item ? &item->entry : NULL;
}

const ShardMapEntry *
shard_map_value(const ShardMap *map, ShardMapKey key)
{
	const ShardMapEntry *entry = shard_map_find(map, key);

	return entry && !entry->deleted ? entry : NULL;
}

/*
 * Put an item where its n belongs among the ages. New entries are nearly always the youngest.
 */
static void
link_by_age(ShardMap *map, Item *item)
{
	dlist_node *node = &map->ages.head;

	while (node->prev != &map->ages.head &&
		   dlist_container(Item, age, node->prev)->entry.n > item->entry.n)
		node = node->prev;
	if (node == &map->ages.head)
		dlist_push_tail(&map->ages, &item->age);
	else
		dlist_insert_before(node, &item->age);
}

/* Space for so many more slots. */
static void
make_space(ShardMap *map, int more)
{
	if (map->space - map->n_slots >= more)
		return;
	map->space = Max(2 * map->space, map->n_slots + more);
	map->slots = repalloc(map->slots, sizeof(Slot) * map->space);
}

/*
 * Make room for one more slot at a place.
 */
static void
open_slot(ShardMap *map, int place)
{
	make_space(map, 1);
	memmove(&map->slots[place + 1], &map->slots[place], sizeof(Slot) * (map->n_slots - place));
	map->n_shifted += map->n_slots - place;
	map->n_slots++;
}

/*
 * Store an entry in the slot that was found for its key; item is what is there now, or NULL. The
 * entry's value must not lie in that item.
 */
static void
store(ShardMap *map, const ShardMapEntry *entry, Item *item, int place)
{
	if (item)
	{
		dlist_delete(&item->age);
		map->n_tombstones -= item->entry.deleted ? 1 : 0;
		if (item->space < entry->length)
		{
			pfree(item);
			item = NULL;
		}
	}
	else
		open_slot(map, place);
	if (item == NULL)
	{
		item = palloc(offsetof(Item, value) + entry->length);
		item->space = entry->length;
	}

	item->entry = *entry;
	item->entry.value = item->value;
	if (entry->length > 0)
		memcpy(item->value, entry->value, entry->length);
	map->n_tombstones += entry->deleted ? 1 : 0;
	map->slots[place].key = entry->key;
	map->slots[place].item = item;
	link_by_age(map, item);
}

void
shard_map_put(ShardMap *map, const ShardMapEntry *entry)
{
	int place;
	Item *item = find_item(map, entry->key, &place);

	store(map, entry, item, place);
}

/* Order of qsort. */
static int
compare_keys(const void *a, const void *b)
{
	return shard_map_key_compare(*(const ShardMapKey *) a, *(const ShardMapKey *) b);
}

/* The keys of entries that the map does not have, in ascending order, each once. Returns how many. */
static int
new_keys(const ShardMap *map, const ShardMapEntry *entries, int count, ShardMapKey *keys)
{
	int n = 0;
	int different = 0;
	int place;

	for (int i = 0; i < count; i++)
	{
		if (find_item(map, entries[i].key, &place) == NULL)
			keys[n++] = entries[i].key;
	}
	qsort(keys, n, sizeof(ShardMapKey), compare_keys);
	for (int i = 0; i < n; i++)
	{
		if (different == 0 || compare_keys(&keys[different - 1], &keys[i]) != 0)
			keys[different++] = keys[i];
	}
	return different;
}

/* An item that was not put yet, older than all others. */
static Item *
add_blank(ShardMap *map, ShardMapKey key)
{
	Item *item = palloc0(offsetof(Item, value));

	item->entry = (ShardMapEntry){.key = key, .n = -1, .deleted = true, .value = item->value};
	dlist_push_head(&map->ages, &item->age);
	map->n_tombstones++;
	return item;
}

/*
 * A node that takes a whole map gets it by age, and homes have changed in any order: inserted one after the
 * other, each would shift half of the others. So each slot is shifted once, to where it stays.
 */
void
shard_map_expect(ShardMap *map, const ShardMapEntry *entries, int count)
{
	ShardMapKey *keys;
	int from = map->n_slots - 1;
	int n;

	if (count < FIRST_SPACE)
		return;
#ifdef SHARD_MUTANT_SLOTS_ONE_BY_ONE
	return;
#endif
	keys = palloc(sizeof(ShardMapKey) * count);
	n = new_keys(map, entries, count, keys);
	make_space(map, n);
	map->n_slots += n;
	for (int to = map->n_slots - 1; n > 0; to--)
	{
		if (from >= 0 && shard_map_key_compare(map->slots[from].key, keys[n - 1]) > 0)
		{
			map->slots[to] = map->slots[from--];
			map->n_shifted++;
			continue;
		}
		n--;
		map->slots[to] = (Slot){keys[n], add_blank(map, keys[n])};
	}
	pfree(keys);
}

int64
shard_map_shifted(const ShardMap *map)
{
	return map->n_shifted;
}

bool
shard_map_learn(ShardMap *map, const ShardMapEntry *entry)
{
	int place;
	Item *item = find_item(map, entry->key, &place);

	if (item && item->entry.n >= entry->n)
		return false;
	store(map, entry, item, place);
	return true;
}

/*
 * What hangs in the list of ages at a node.
 */
static const ShardMapEntry *
entry_of(const dlist_node *node)
{
	return &((const Item *) ((const char *) node - offsetof(Item, age)))->entry;
}

/*
 * Order of qsort: by n, then by key.
 */
static int
compare_entries(const void *a, const void *b)
{
	const ShardMapEntry *left = a;
	const ShardMapEntry *right = b;

	if (left->n != right->n)
		return left->n < right->n ? -1 : 1;
	return shard_map_key_compare(left->key, right->key);
}

ShardMapEntry *
shard_map_since(const ShardMap *map, int64 n, ShardArena *arena, int *count)
{
	const dlist_node *head = &map->ages.head;
	const dlist_node *node = head->prev;
	size_t bytes = 0;
	ShardMapEntry *entries;
	char *values;

	*count = 0;
	for (; node != head && entry_of(node)->n > n; node = node->prev)
	{
		bytes += entry_of(node)->length;
		(*count)++;
	}
	if (*count == 0)
		return NULL;

	entries = shard_arena_alloc(arena, sizeof(ShardMapEntry) * *count);
	values = shard_arena_alloc(arena, bytes);
	for (int i = 0; i < *count; i++)
	{
		node = node->next;
		entries[i] = *entry_of(node);
		memcpy(values, entries[i].value, entries[i].length);
		entries[i].value = values;
		values += entries[i].length;
	}
	qsort(entries, *count, sizeof(ShardMapEntry), compare_entries);
	return entries;
}

ShardMapEntry *
shard_map_list(const ShardMap *map, ShardMapKind kind, ShardArena *arena, int *count)
{
	ShardMapKey from = {kind, PG_INT32_MIN, PG_INT32_MIN};
	int first = search(map, from);
	int end = first;
	ShardMapEntry *entries;

	while (end < map->n_slots && map->slots[end].key.kind == (int32) kind)
		end++;
	entries = shard_arena_alloc(arena, sizeof(ShardMapEntry) * (end - first));
	*count = 0;
	for (int i = first; i < end; i++)
	{
		if (!map->slots[i].item->entry.deleted)
			entries[(*count)++] = map->slots[i].item->entry;
	}
	return entries;
}

ShardMapRange
shard_map_range(const ShardMap *map, ShardMapKind kind, int32 a)
{
	ShardMapKey last = {kind, a, PG_INT32_MAX};
	ShardMapRange range = {map, 0, 0};

	range.next = search(map, (ShardMapKey){kind, a, PG_INT32_MIN});
	range.end = search(map, last);
	if (range.end < map->n_slots && shard_map_key_compare(map->slots[range.end].key, last) == 0)
		range.end++;
	return range;
}

const ShardMapEntry *
shard_map_range_next(ShardMapRange *range)
{
	while (range->next < range->end)
	{
		const ShardMapEntry *entry = &range->map->slots[range->next++].item->entry;

		if (!entry->deleted)
			return entry;
	}
	return NULL;
}

ShardMapKey *
shard_map_tombstones(const ShardMap *map, int64 n, ShardArena *arena, int *count)
{
	ShardMapKey *keys = NULL;

	*count = 0;
	if (map->n_tombstones == 0)
		return NULL;
	keys = shard_arena_alloc(arena, sizeof(ShardMapKey) * map->n_tombstones);
	for (int i = 0; i < map->n_slots; i++)
	{
		const ShardMapEntry *entry = &map->slots[i].item->entry;

		if (entry->deleted && entry->n <= n)
			keys[(*count)++] = entry->key;
	}
	return keys;
}

int64
shard_map_oldest_tombstone(const ShardMap *map)
{
	int64 oldest = 0;

	if (map->n_tombstones == 0)
		return 0;
	for (int i = 0; i < map->n_slots; i++)
	{
		const ShardMapEntry *entry = &map->slots[i].item->entry;

		if (entry->deleted && (oldest == 0 || entry->n < oldest))
			oldest = entry->n;
	}
	return oldest;
}

void
shard_map_purge(ShardMap *map, int64 n)
{
	int kept = 0;

	if (map->n_tombstones == 0)
		return;
	for (int i = 0; i < map->n_slots; i++)
	{
		Item *item = map->slots[i].item;

		if (item->entry.deleted && item->entry.n <= n)
		{
			dlist_delete(&item->age);
			pfree(item);
			map->n_tombstones--;
		}
		else
			map->slots[kept++] = map->slots[i];
	}
	map->n_slots = kept;
}

int
shard_map_count(const ShardMap *map)
{
	return map->n_slots;
}
