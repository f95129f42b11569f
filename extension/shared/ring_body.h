/*
 * shared/ring_body.h
 *		What a request or a reply carries: bytes, in its slot or in a DSM segment.
 *
 * A body has one writer and one reader at a time; ring.c's states say who. The
 * writer makes the segment of a large one. That of a request lives as long as
 * the asker's mapping, that of a reply is pinned until shard_ring_body_drop().
 */
#pragma once

#include "storage/dsm.h"

#include "shard.h"

/* Longer bodies go through a DSM segment. */
#define SHARD_RING_INLINE 8192

typedef struct ShardRingBody
{
	int len;		   /* -1: SQL NULL */
	dsm_handle handle; /* of a large body, else DSM_HANDLE_INVALID */
	char data[SHARD_RING_INLINE];
} ShardRingBody;

/* An empty body: SQL NULL. */
extern void shard_ring_body_clear(ShardRingBody *body);

/*
 * Writes a body; data NULL is SQL NULL. Returns the mapping of the segment that
 * a large one needed and that ends with it, or NULL. With pin the segment
 * outlives the mapping, which is gone then. Errors: lack of memory.
 */
extern dsm_segment *shard_ring_body_write(ShardRingBody *body, const char *data, int len, bool pin);

/*
 * A copy of the body in the current memory context, NULL for SQL NULL. False if
 * its segment is gone, with its writer. Errors: lack of memory.
 */
extern bool shard_ring_body_read(const ShardRingBody *body, char **data, int *len);

/* Lets go of a segment that was pinned; no error. */
extern void shard_ring_body_drop(ShardRingBody *body);

/* An error as bytes, with all that clients are shown of one, and raised again on the other side. */
extern char *shard_ring_body_pack_error(const ErrorData *error, int *len);
extern void shard_ring_body_throw(const char *data, int len);

/*
 * The error that bytes from anywhere stand for; its texts are copies. False: they stand for none, or are
 * not in the database's encoding.
 */
extern bool shard_ring_body_unpack_error(const char *data, int len, ErrorData *error);
