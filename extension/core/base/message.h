/*
 * core/base/message.h
 *		Where a message belongs, entity id -> shard -> lane, and its identity.
 *
 * Pure arithmetic on the arguments, and part of the protocol version: two
 * nodes, or one node before and after an upgrade, must come to the same
 * answers.
 */
#pragma once

#include "shard.h"

/* How a type maps an entity id to a shard; the values are stored on disk. */
typedef enum ShardHashKind
{
	SHARD_HASH_MURMUR2 = 1, /* as Kafka's default partitioner */
	SHARD_HASH_JAVA = 2		/* as Akka's HashCodeMessageExtractor */
} ShardHashKind;

/* Room for the text form of a message id: int4, '-', int8, terminator. */
#define SHARD_MESSAGE_MID_SIZE 32

extern int32 shard_message_hash_murmur2(const char *id, size_t len);
extern int32 shard_message_hash_java(const char *utf8, size_t len);
extern int
shard_message_shard_id(ShardHashKind kind, const char *id, size_t len, int number_of_shards);
extern int shard_message_group(int32 type_id);
extern int shard_message_lane(int32 type_id, int32 shard);

extern void shard_message_format_mid(int32 node, int64 seq, char buf[SHARD_MESSAGE_MID_SIZE]);
