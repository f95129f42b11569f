/*
 * core/map/who.h
 *		What a node says of its identity when it is asked at an address: cluster, node, incarnation.
 */
#pragma once

#include "lib/stringinfo.h"

#include "core/base/wire.h"
#include "core/map/record.h"

typedef struct ShardWho
{
	ShardUuid cluster;
	int32 node;
	int32 inc_no;
	ShardUuid incarnation;
} ShardWho;

/* Appends it as bytes. */
extern void shard_who_put(StringInfo out, const ShardWho *who);

/* Reads these bytes. False: they are cut off. */
extern bool shard_who_get(ShardReader *reader, ShardWho *who);
