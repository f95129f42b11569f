/*
 * log/buffer.h
 *		buffer_size: how many messages of a type that cannot be handled now this node keeps (D11).
 */
#pragma once

#include "registry/registry.h"

/* Messages of the type that cannot be handled now, on this node. */
extern int64 shard_buffer_held(ShardType *type);

/* The same for a sender: from its message on the type is counted. Error if too many types are counted. */
extern int64 shard_buffer_enter(ShardType *type);

/*
 * Whether a message for an entity could not be handled now, and would have to wait here. Reads tables, so
 * it is for a sender that meets a full buffer.
 */
extern bool shard_buffer_takes(const ShardType *type, int32 shard, const char *entity, int len);

/*
 * Region worker: messages of the type are put aside to make room in the inbox. From then on a full buffer refuses every
 * message for an entity here, until shard_buffer_catch_up, called when fewer are put aside, has found the buffer half
 * empty.
 */
extern void shard_buffer_put_aside(ShardType *type);
extern void shard_buffer_catch_up(ShardType *type);

/*
 * Region worker: gives back counters of types that are gone. The registry is read again after the counters: a type that
 * was counted by then is known to it. In a transaction.
 */
extern void shard_buffer_free_counters(void);

/* Whether the buffer is half full. */
extern bool shard_buffer_is_half(ShardType *type);

/* Logs which buffers have become half full, once for each time. Called now and then, in a transaction. */
extern void shard_buffer_warn(void);

/* Region worker: a node can be reached by its link, or not. The worker that says "not" takes it back later. */
extern void shard_buffer_away(int32 node, bool away);
