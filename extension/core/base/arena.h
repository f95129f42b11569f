/*
 * core/base/arena.h
 *		Memory of one step of a machine: taken piece by piece, given back at once.
 */
#pragma once

typedef struct ShardArena ShardArena;

/* An empty arena; the caller destroys it. All of its memory comes from the memory context that is current now. */
extern ShardArena *shard_arena_create(void);
extern void shard_arena_destroy(ShardArena *arena);

/* Zeroed memory, aligned for any type, valid until the next reset. */
extern void *shard_arena_alloc(ShardArena *arena, size_t size);

/* A copy of bytes, valid until the next reset; NULL for none. */
extern void *shard_arena_copy(ShardArena *arena, const void *bytes, size_t size);

/* Forget everything that was taken; the memory is kept for the next step. */
extern void shard_arena_reset(ShardArena *arena);
