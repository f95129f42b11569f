/*
 * core/base/arena.c
 *		Memory of one step of a machine: taken piece by piece, given back at once.
 *
 * A chain of blocks, of which the first is kept from step to step and grows to what a usual step
 * needs; pieces are cut from the front one.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/arena.h"

#define FIRST_BLOCK 4096
#define KEPT_BLOCK (256 * 1024) /* a larger one was needed once, and is given back */

typedef struct Block
{
	struct Block *next;
	size_t size;
	size_t used;
} Block;

struct ShardArena
{
	Block *blocks; /* the front one is cut from */
#ifndef FRONTEND
	MemoryContext context; /* of all blocks */
#endif
};

#define BLOCK_HEADER MAXALIGN(sizeof(Block))

/*
 * Memory of a block, from the arena's own context: in a server the current context may be SPI's, which
 * ends before the arena does.
 */
static void *
allocate(ShardArena *arena, size_t size)
{
#ifndef FRONTEND
	return MemoryContextAllocExtended(arena->context, size, MCXT_ALLOC_HUGE);
#else
	(void) arena;
	return palloc_extended(size, MCXT_ALLOC_HUGE);
#endif
}

/*
 * A new block of at least that many bytes, in front of the others.
 */
static Block *
add_block(ShardArena *arena, size_t size)
{
	size_t wanted = arena->blocks ? arena->blocks->size * 2 : FIRST_BLOCK;
	Block *block;

	wanted = Max(Min(wanted, KEPT_BLOCK), size);
	block = allocate(arena, BLOCK_HEADER + wanted);
	block->next = arena->blocks;
	block->size = wanted;
	block->used = 0;
	arena->blocks = block;
	return block;
}

ShardArena *
shard_arena_create(void)
{
	ShardArena *arena = palloc0(sizeof(ShardArena));

#ifndef FRONTEND
	arena->context = CurrentMemoryContext;
#endif
	add_block(arena, 0);
	return arena;
}

void
shard_arena_destroy(ShardArena *arena)
{
	while (arena->blocks)
	{
		Block *block = arena->blocks;

		arena->blocks = block->next;
		pfree(block);
	}
	pfree(arena);
}

/*
 * Memory as it is, for callers that fill it.
 */
static void *
take(ShardArena *arena, size_t size)
{
	Block *block = arena->blocks;
	char *piece;

	size = MAXALIGN(size);
	if (block->size - block->used < size)
		block = add_block(arena, size);
	piece = (char *) block + BLOCK_HEADER + block->used;
	block->used += size;
	return piece;
}

void *
shard_arena_alloc(ShardArena *arena, size_t size)
{
	void *piece = take(arena, size);

	memset(piece, 0, size);
	return piece;
}

void *
shard_arena_copy(ShardArena *arena, const void *bytes, size_t size)
{
	void *piece;

	if (bytes == NULL)
		return NULL;
	piece = take(arena, size);
	if (size > 0)
		memcpy(piece, bytes, size);
	return piece;
}

/*
 * The front block, which is the largest usual one, stays. With assertions its bytes are
 * overwritten, so that code that still reads them is noticed.
 */
void
shard_arena_reset(ShardArena *arena)
{
	Block *kept = arena->blocks;

	while (kept->next || kept->size > KEPT_BLOCK)
	{
		Block *block = kept->next;

		if (kept->size > KEPT_BLOCK)
		{
			pfree(kept);
			arena->blocks = block;
			kept = block ? block : add_block(arena, 0);
			continue;
		}
		kept->next = block->next;
		pfree(block);
	}
#ifdef USE_ASSERT_CHECKING
	memset((char *) kept + BLOCK_HEADER, 0x7f, kept->used);
#endif
	kept->used = 0;
}
