/*
 * entity/crash.h
 *		Marks of crashes of the server in which code of a type ran.
 */
#pragma once

#include "registry/registry.h"

/* The second crash of the same code of a type suspends the type. */
#define SHARD_MOST_CRASHES 2

/* The type whose code runs in this process. */
typedef struct ShardCrashCode
{
	const ShardType *type;
	int64 seq;			/* of the message; 0: an ask, or no single message */
	const char *entity; /* of entity_len bytes; 0: for no entity */
	int entity_len;
} ShardCrashCode;

/*
 * At the start of a region worker: reads the marks that are there. From now on the worker leaves a mark itself if it
 * crashes while running() says that code of a type runs. Both functions are called in the signal handler of the crash:
 * running sets type and message, and looks at nothing that may be damaged; for_entity adds the entity.
 */
extern void
shard_crash_init(bool (*running)(ShardCrashCode *code), void (*for_entity)(ShardCrashCode *code));

/* How many of the marks that were read are of this type in its present form, not started, altered or replaced since. */
extern int shard_crash_count(const ShardType *type);

/*
 * Writes a line into the server's log for each mark of this database that has no line yet. In one process of a
 * database.
 */
extern void shard_crash_tell(void);
