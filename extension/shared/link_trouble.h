/*
 * shared/link_trouble.h
 *		Data links of this node that fail, as its region workers tell others in shared memory.
 *
 * For shard_health, which must not wait for a worker. The worker notes each failure, and the end of the trouble when a
 * call went through: a link that opens and fails again at the next call has failed all the time.
 */
#pragma once

#include "shared/shmem.h"

typedef enum ShardLinkUse
{
	SHARD_LINK_ROWS,	/* messages, marks (transport.c) */
	SHARD_LINK_ASKS,	/* remote_ask.c */
	SHARD_LINK_RECORDS, /* turn records (record_send.c) */
	SHARD_LINK_FACTS,	/* a peer told a fact that was not decided (receive_fact.c) */
	SHARD_LINK_TARGETS, /* a peer sent to a target that does not exist (receive_target.c) */
	SHARD_LINK_COPIES,	/* copies there cannot follow shards whose home is here (record_send.c) */
	SHARD_LINK_OUTPUTS, /* of this node itself: what its shards have told cannot be read (record_send.c) */
	SHARD_LINK_UNPLACED /* so: the shard of whom they have told it cannot be found (record_send.c) */
} ShardLinkUse;

/*
 * The link's worker: note: the link has failed; over: it works. Where there is no room nothing is noted, without an
 * error. True: the trouble is new, after a minute without any.
 */
extern bool shard_link_trouble_note(ShardDatabase *db, int worker, int32 node, ShardLinkUse use,
									const char *error);
extern void shard_link_trouble_over(ShardDatabase *db, int worker, int32 node, ShardLinkUse use);

/* A worker, at its start: forgets the entries that its predecessor has left. */
extern void shard_link_trouble_forget(ShardDatabase *db, int worker);

/*
 * Any process: of the workers' links to the node, the trouble that has lasted longest. False: there is none. A link
 * that was not tried for a minute counts as having none.
 */
extern bool
shard_link_trouble_of(ShardDatabase *db, int32 node, ShardLinkUse use, ShardLinkTrouble *trouble);
