/*
 * registry/registry_dropped.h
 *		What a type that was dropped here leaves where others may host it (D28).
 *
 * Its row of table shard.type, in mode dropped, and all that says where its shards are and what they have taken
 * in. Call between SPI_connect and SPI_finish, as the system (security.h).
 */
#pragma once

#include "shard.h"

/* Makes the row of a type whose state table is gone one of mode dropped. */
extern void shard_registry_dropped_leave(int32 type_id);

/*
 * Deletes the row, with all that is kept by its number but messages, which workers make dead letters. False: it is not
 * there, or another session changes it just now.
 */
extern bool shard_registry_dropped_end(int32 type_id);

/*
 * A type is started: what a dropped type of that name has left belongs to it, if the numbers agree, and is deleted if
 * not.
 */
extern void shard_registry_dropped_take(const char *name, int32 type_id);
