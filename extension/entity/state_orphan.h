/*
 * entity/state_orphan.h
 *		State tables without an entity type: a restored dump has them, and no types.
 */
#pragma once

#include "nodes/pg_list.h"

typedef struct ShardStateOrphan
{
	char *table; /* its name, as SQL has it */
	bool busy;	 /* another transaction has it locked: it may be empty */
} ShardStateOrphan;

/*
 * The first orphan that has rows, or may have, in the order of names; NULL: there is none. Waits for no lock. The
 * caller is connected to SPI, whose memory holds the result.
 */
extern const ShardStateOrphan *shard_state_orphan(void);

/* All of them, some hundred at most, as a List. */
extern List *shard_state_orphans(void);
