/*
 * link/way_back.h
 *		What a node that wants to join and its seed say before: can it be reached?
 */
#pragma once

#include "core/map/who.h"
#include "shard.h"

/* The call: which node to look for, and where. */
typedef struct ShardWayBackCall
{
	const char *seed;	/* the address by which the seed was reached */
	const char *dsn;	/* the caller's, given by its operator; "": by which it comes */
	const char *rest;	/* then: the options beside the host */
	const char *socket; /* and the folder of sockets, if the caller comes by one */
} ShardWayBackCall;

/* The answer. */
typedef struct ShardWayBack
{
	int32 protocol_version; /* of the seed */
	const char *encoding;	/* of the seed's database */
	const char *dsn;		/* that was tried */
	bool known;				/* the seed knows itself */
	ShardWho seed;
	bool found; /* that node is there */
	ShardWho there;
} ShardWayBack;

extern void shard_way_back_put_call(StringInfo out, const ShardWayBackCall *call);
extern bool shard_way_back_get_call(ShardReader *reader, ShardWayBackCall *call);
extern void shard_way_back_put(StringInfo out, const ShardWayBack *back);
extern bool shard_way_back_get(ShardReader *reader, ShardWayBack *back);
