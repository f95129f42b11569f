/*
 * entity/state_orphan.h
 *		State tables without an entity type: a restored dump has them, and no types.
 */
#pragma once

#include "nodes/pg_list.h"

typedef struct ShardStateOrphan
{
	char *table; /* its name, as SQL has it */
	bool busy;	 /* somebody has it locked: it may be empty */
} ShardStateOrphan;

/*
 * The first one that has rows, or may have, in the order of names; NULL: there is none. Nobody is waited for. Connected to
 * SPI, in whose memory it is.
 */
extern const ShardStateOrphan *shard_state_orphan(void);

/* All of them, some hundred at most, as a List. */
extern List *shard_state_orphans(void);
