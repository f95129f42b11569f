/*
 * registry/directory.c
 *		Members of the cluster as this node has learned them: addresses, incarnations.
 *
 * A copy of the decoded records lives in a memory context and an arena of its own, which are freed as a whole when it
 * is read again.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "registry/control_store.h"
#include "registry/directory.h"
#include "shared/board.h"

#include "base/compat.h"

static ShardDirectoryMember *members = NULL;
static int n_members = 0;
static int space = 0;
static ShardArena *texts = NULL;
static bool valid = false;
static uint32 generation = 0; /* of the board, at the last refresh */

static void
add(const ShardMapEntry *entry, void *arg)
{
	MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);
	ShardDirectoryMember *member;

	if (n_members == space)
	{
		space = Max(2 * space, 8);
		members = members ? repalloc(members, space * sizeof(ShardDirectoryMember))
						  : palloc(space * sizeof(ShardDirectoryMember));
	}
	member = &members[n_members];
	member->node = entry->key.a;
	if (shard_record_get_member(entry, &member->record, texts))
	{
		/* Texts are in the arena, these bytes are not. */
		member->record.extra = (ShardExtra){NULL, 0};
		n_members++;
	}
	MemoryContextSwitchTo(context);
}

bool
shard_directory_refresh(void)
{
	ShardDatabase *db = shard_shmem_database();
	uint32 now = db == NULL ? 0 : shard_board_directory(db);
	MemoryContext context;

	if (valid && now == generation)
		return false;
	/* An error leaves an empty copy, which is read again. */
	valid = false;
	n_members = 0;
	context = MemoryContextSwitchTo(TopMemoryContext);
	if (texts == NULL)
		texts = shard_arena_create();
	shard_arena_reset(texts);
	MemoryContextSwitchTo(context);
	/* What was announced by that number is committed: the caller's snapshot may be older. */
	PushActiveSnapshot(GetLatestSnapshot());
	shard_control_store_learned(SHARD_MAP_MEMBER, add, NULL);
	PopActiveSnapshot();
	generation = now;
	valid = true;
	return true;
}

const ShardDirectoryMember *
shard_directory_find(int32 node)
{
	for (int i = 0; i < n_members; i++)
		if (members[i].node == node)
			return &members[i];
	return NULL;
}

const ShardDirectoryMember *
shard_directory_list(int *count)
{
	*count = n_members;
	return members;
}
