/*
 * link/pool.h
 *		Connections of this process to one place, for one purpose: a limited number, each with one call at a time.
 *
 * The owner keeps the queue of what waits, says whose turn it is, makes the bytes of a call and reads the answer. The
 * pool opens connections as calls need them, follows the address, tells which call an answer or a failure belongs to,
 * and closes a connection that was not used for a minute. The back-off is the connection's own (peer.h).
 *
 * A call gets its connection by shard_pool_reserve(), before that is open, so that no other call takes it; or by
 * shard_pool_send(), over any that is ready, so that the owner can withdraw the call until then. In each turn of the
 * process the owner calls shard_pool_poll(), reserves, calls shard_pool_open(), and sends.
 *
 * Nothing is durable; no error is raised but for lack of memory.
 */
#pragma once

#include "link/peer.h"

typedef struct ShardPool ShardPool;
typedef struct ShardPoolLink ShardPoolLink;

/* What the pool knows of a call, all zeroes at first: a member of the owner's struct, which the owner frees when the call is over. */
typedef struct ShardPoolCall
{
	ShardPoolLink *link; /* its connection; NULL: it waits for its turn */
	bool sent;			 /* over that */
} ShardPoolCall;

typedef struct ShardPoolUse
{
	const char *purpose;	/* as shard_peer_create() takes it */
	int most;				/* connections, SHARD_POOL_MOST at most */
	int longest_backoff_ms; /* 0: peer.h's own */
	bool
		patient; /* a reserved call outlives failures to connect; else it is over with the first one */

	/*
	 * A call is over, and its connection free, by an answer (shard_peer_answer()) or a failure (shard_peer_error()) that is to be
	 * read before the pool is used again. call: NULL if a connection failed that had none.
	 */
	void (*answered)(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer);
	void (*failed)(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer);
} ShardPoolUse;

#define SHARD_POOL_MOST 24

struct ShardPoolLink
{
	ShardPeer *peer;	 /* NULL: not made yet */
	ShardPoolCall *call; /* NULL: free */
	int64 used;			 /* when it was opened, or when a call was over */
};

/* All zeroes at first, but for use, which lives as long. */
struct ShardPool
{
	const ShardPoolUse *use;
	ShardPoolLink links[SHARD_POOL_MOST];
};

/* The owner's struct of which a pool, or a call, is that member. */
#define shard_pool_container(type, member, pointer) \
	((type *) ((char *) (pointer) -offsetof(type, member)))

/* Tells the owner what happened; closes connections that are needed no more. True: something happened. */
extern bool shard_pool_poll(ShardPool *pool);

/* Is there a connection, open or not, that no call has? */
extern bool shard_pool_has_room(const ShardPool *pool);

/* Gives a call a connection, open or not, that has none. False: all have. */
extern bool shard_pool_reserve(ShardPool *pool, ShardPoolCall *call);

/*
 * Begins to connect for calls that are reserved, and the given number of connections that have no call, of which none
 * is tried beside one that waits for its back-off: a node that cannot be reached is tried by one. incarnation: as
 * shard_peer_heard() takes it; 0: not known.
 */
extern void shard_pool_open(ShardPool *pool, const char *dsn, int32 incarnation, int wanted);

/* A reserved call whose connection is ready; NULL: none. */
extern ShardPoolCall *shard_pool_next(const ShardPool *pool);

/* Is a connection ready that has no call? */
extern bool shard_pool_is_ready(const ShardPool *pool);

/* Sends a call as shard_peer_call() does, over the connection that it has reserved, or one without a call: it is ready. */
extern void shard_pool_send(ShardPool *pool, ShardPoolCall *call, const char *procedure,
							const StringInfoData *bytes, int timeout_ms);

/* The call waits for its turn again; one that was sent is cancelled, by closing its connection. */
extern void shard_pool_cancel(ShardPoolCall *call);

/* Closes all connections; all calls wait again. */
extern void shard_pool_forget(ShardPool *pool);
