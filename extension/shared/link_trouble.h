/*
 * shared/link_trouble.h
 *		Data links of this node that fail, as its region workers tell others in shared memory.
 *
 * For shard_health, which must not wait for a worker. Noted at each failure, and over when something went
 * through: a link that opens and fails again at the next call has failed all the time.
 */
#pragma once

#include "shared/shmem.h"

typedef enum ShardLinkUse
{
	SHARD_LINK_ROWS,   /* messages, marks (transport.c) */
	SHARD_LINK_ASKS,   /* remote_ask.c */
	SHARD_LINK_FACTS,  /* what it tells was not decided (receive_fact.c) */
	SHARD_LINK_TARGETS /* what it sends is for what there is not (receive_target.c) */
} ShardLinkUse;

/*
 * Its worker: it has failed; it works. When there is no room for more nothing is noted. No error. True: the trouble is new,
 * there was none for a minute.
 */
extern bool shard_link_trouble_note(ShardDatabase *db, int worker, int32 node, ShardLinkUse use,
									const char *error);
extern void shard_link_trouble_over(ShardDatabase *db, int worker, int32 node, ShardLinkUse use);

/* A worker, at its start: what the one before it has left. */
extern void shard_link_trouble_forget(ShardDatabase *db, int worker);

/*
 * Any process: of the workers' links to the node, the trouble that has lasted longest. False: there is none. A link
 * that was not tried for a minute counts as having none.
 */
extern bool
shard_link_trouble_of(ShardDatabase *db, int32 node, ShardLinkUse use, ShardLinkTrouble *trouble);
