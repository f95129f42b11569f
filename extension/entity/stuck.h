/*
 * entity/stuck.h
 *		Messages and types because of which a worker had to end: what it leaves to the next one.
 */
#pragma once

#include "core/base/shard_key.h"
#include "log/log.h"
#include "registry/registry.h"
#include "shared/shmem.h"

/* The message, if it is one of an order: the type's ordered_by has returned its number. */
typedef struct ShardStuckNumber
{
	bool known;
	int64 number;
} ShardStuckNumber;

/* This process ends because of a message: its handler cannot be cancelled, or, fatal, raised an error that ends it. */
extern void shard_stuck_note(ShardShardKey shard, int64 seq, bool fatal, ShardStuckNumber number);

/* The process begins, with these lanes. */
extern void shard_stuck_init(ShardLanes lanes);

/* Whether a process before this one has ended because of the message; by an error; and which number the message has. */
extern bool shard_stuck_is(const ShardRow *row);
extern bool shard_stuck_was_fatal(const ShardRow *row);
extern ShardStuckNumber shard_stuck_number(const ShardRow *row);

/*
 * One more end for code of the type, which after so many in a row, with no long time between, is suspended (local_type.c); or, if a
 * guest is here, for that one's, which is no guest any more then, for ten minutes.
 */
#define SHARD_STUCK_MOST 3
extern void shard_stuck_count(const ShardType *type);

/*
 * Code of a type that the running handler, of that owner, tells comes, or has gone: its extractors. Those of the owner's own types, and
 * in sessions, are no guests. Error 55000: it has had workers ended again and again.
 */
extern void shard_stuck_guest_comes(const ShardType *type, Oid owner);
extern void shard_stuck_guest_goes(void);

/* Which one is here; NULL: none. */
extern const ShardType *shard_stuck_guest(void);
