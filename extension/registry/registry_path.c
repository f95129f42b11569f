/*
 * registry/registry_path.c
 *		The search_paths of the types that this process knows, each once.
 *
 * Types of one path run one after the other without its being set again, so equal paths have to be known as such at a
 * glance. A path that no type has any more is freed: owners may alter their types without limit.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "registry/registry_private.h"

#include "base/compat.h"

typedef struct PathEntry
{
	const char *text; /* the key, by content */
	uint64 number;
	int types;
} PathEntry;

static HTAB *paths = NULL;
static uint64 last_number = 0;

static uint32
hash_path(const void *key, Size size)
{
	const char *text = *(const char *const *) key;

	return hash_bytes((const unsigned char *) text, (int) strlen(text));
}

static int
compare_paths(const void *a, const void *b, Size size)
{
	return strcmp(*(const char *const *) a, *(const char *const *) b);
}

const char *
shard_registry_path_take(const char *path, uint64 *number)
{
	PathEntry *entry = paths == NULL ? NULL : hash_search(paths, &path, HASH_FIND, NULL);

	if (paths == NULL)
	{
		HASHCTL control = {.keysize = sizeof(char *),
						   .entrysize = sizeof(PathEntry),
						   .hash = hash_path,
						   .match = compare_paths};

		paths = hash_create("shard paths of types", 16, &control,
							HASH_ELEM | HASH_FUNCTION | HASH_COMPARE);
	}
	if (entry == NULL)
	{
		const char *copy = MemoryContextStrdup(TopMemoryContext, path);

		entry = hash_search(paths, &copy, HASH_ENTER, NULL);
		entry->number = ++last_number;
		entry->types = 0;
	}
	entry->types++;
	*number = entry->number;
	return entry->text;
}

void
shard_registry_path_give_back(const char *path)
{
	PathEntry *entry = hash_search(paths, &path, HASH_FIND, NULL);
	const char *text = entry->text;

	if (--entry->types > 0)
		return;
	(void) hash_search(paths, &text, HASH_REMOVE, NULL);
	pfree(unconstify(char *, text));
}
