/*
 * link/record_private.h
 *		What the files that ship turn records share: a backup's connection, and what a call says.
 */
#pragma once

#include "lib/stringinfo.h"

#include "entity/replica_home.h"
#include "link/peer.h"

/* What a call says, or is to say, of a shard. */
typedef struct ShipItem
{
	ShardShardKey key;
	ShardReplicaShard
		*shard;	 /* while the call is made; the shard may end before the answer comes */
	int32 epoch; /* of its home, when the call was made */
	ShardReplicaShipment ship;
	bool answered;

	/* while the call is made */
	StringInfoData *records; /* of the turns from .. to, without inputs; len 0: not read */
} ShipItem;

/* Shards that cannot go on, as of the last look, and one of them. */
typedef struct ShipTrouble
{
	int count;
	ShardShardKey key;
	int state;	/* ShardReplicaState of that one */
	int64 said; /* for shard_health; 0: there are none */
} ShipTrouble;

/* A backup. */
typedef struct ShipLink
{
	int32 node;
	ShardPeer *peer;
	ShipItem *items; /* of the call under way, by type and shard; in TopMemoryContext */
	int n_items;	 /* 0: there is no call */
	int64
		called_at; /* on shard_clock_now(), as what follows: the calendar's time may be set back */
	int64 not_before; /* the next call; 0: at once */
	bool wanted;	  /* there is something to say, as of the last look */
	bool tells;		  /* only that something is released, which may wait */
	bool opened;	  /* calls have gone over the connection, or may */
	bool failing;
	int sqlstate; /* of the last failure */

	ShipTrouble stuck; /* copies that cannot follow */

	/*
	 * Calls with records that were refused as a whole, with none taken in between; and shards whose records go in calls of their
	 * own since then, sorted: one of them spoils what it is in (Q8).
	 */
	int refused;
	ShardShardKey *alone; /* in TopMemoryContext; NULL: there are none */
	int n_alone;
} ShipLink;

/* record_call.c: begins a call, over a connection that is ready, if there is anything to say. True: it has left. */
extern bool shard_record_call(ShipLink *link);

/* The call under way has failed with SHARD_ERRCODE_UNREADABLE: refused as a whole; or its answer has come. Before its items go. */
extern void shard_record_call_refused(ShipLink *link);
extern void shard_record_call_taken(ShipLink *link);

/* The home, if it is still the one that has shipped; else NULL: what that one has heard means nothing to another one. */
extern ShardReplicaShard *shard_record_call_home(const ShipItem *item);

/* What a call says of a shard; NULL: nothing. */
extern ShipItem *shard_record_call_find(ShipItem *items, int n_items, int32 type_id, int32 shard);
