/*
 * link/remote_ask.h
 *		Asks for entities whose home is another node (X8): the asker's side, in a region worker.
 *
 * A few connections per peer, opened when needed and closed after a while, each with one ask at a
 * time. The asker's backend waits in its slot of the ring as for a local ask. An ask that was written
 * to a socket is never repeated, unless the home answers that it was certainly not executed.
 */
#pragma once

#include "core/flow/packet.h"
#include "shared/ring.h"

/* At start of a region worker. */
extern void shard_remote_ask_start(ShardDatabase *db, int worker);

/*
 * Begin: the request belongs to this file from now on (it copies it). call names the entity; its texts are taken from
 * the request. The caller has looked that there is room.
 */
extern void
shard_remote_ask_begin(const ShardRequest *request, int32 node, const ShardAskCall *call);

/* How many asks can be begun before the next poll. */
extern int shard_remote_ask_room(void);

/*
 * Polls; answers askers by shard_ring_reply(). again(): an ask that was certainly not executed, whose home has to be
 * looked up again; the callee takes a copy. True: come again at once.
 */
extern bool shard_remote_ask_run(void (*again)(const ShardRequest *request, void *arg), void *arg);

/* Nodes to which asks went; why no connection for asks to one can be made now, NULL: it can, or no connection is wanted. */
extern void shard_remote_ask_each(void (*visit)(int32 node));
extern const char *shard_remote_ask_error(int32 node);

/* When it has to run again, in ms, though nothing happens; -1: not. */
extern long shard_remote_ask_due(void);
