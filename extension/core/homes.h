/*
 * core/homes.h
 *		The shard coordinator's duties towards shards: who hosts them, and moving them (sections 4, 9).
 *
 * Lives while the office is held. Durable are the keys home/…, type/…, pin/…, formed/… alone; the
 * rest (registrations, requests that wait, drivers of moves, who confirmed a start) is volatile and
 * is asked anew after a take-over.
 */
#pragma once

#include "core/roster.h"

typedef struct ShardHomes ShardHomes;

typedef struct ShardHomesSettings
{
	int64 rebalance_interval; /* 0: no shard moves unless an operator says so, not even for a member
							   * that leaves; it stays until it is empty */
	int64 handoff_timeout;
	int64 start_timeout;
	int32 absolute_limit;  /* of least_shard; 20 */
	double relative_limit; /* 0.1 */
} ShardHomesSettings;

extern ShardHomes *shard_homes_create(int32 self, const ShardHomesSettings *settings);
extern void shard_homes_destroy(ShardHomes *homes);
extern void shard_homes_take_office(ShardHomes *homes, int64 now, const ShardMap *decided);

/*
 * REGISTER, START_TYPE, GET_SHARD_HOMES, SHARDS_STARTED, SHARD_STOPPED, STAGED, IMPORT_FAILED,
 * REGION_STOPPED. Stale and repeated ones are harmless.
 */
extern void shard_homes_receive(ShardHomes *homes, int64 now, const ShardControl *message,
								ShardProposer *proposer, ShardActions *out);

/*
 * Due work: answers that waited for a decision, allocation, HostShard again, drivers of moves,
 * rebalance rounds, evacuation of leaving members, new homes for shards of written-off members and
 * for leased shards of members whose lease ended.
 */
extern void shard_homes_tick(ShardHomes *homes, int64 now, ShardProposer *proposer,
							 ShardRoster *roster, ShardActions *out);

/* Operator's acts; false and a reason if it cannot be. */
extern bool shard_homes_move(ShardHomes *homes, int64 now, int32 type_id, int32 shard, int32 to,
							 ShardProposer *proposer, const ShardRoster *roster, const char **why);
extern bool shard_homes_rebalance(ShardHomes *homes, int64 now);

/*
 * The shard's state is not where it should be: its home was put back from a copy that is older than
 * the shard's arrival there. By the operator's word it begins anew, empty, at the same home (N1); not
 * before that home was reached and asked, and has not said for a while that the shard runs.
 */
extern bool
shard_homes_give_up(ShardHomes *homes, int64 now, int32 type_id, int32 shard,
					ShardProposer *proposer, const ShardRoster *roster, const char **why);

/*
 * The node is alone in its cluster, and the type is no more: it goes, with all its homes and pins, as
 * one batch. False: a change of it is under way; try again. Its id is not given again.
 */
extern bool
shard_homes_drop_type(ShardHomes *homes, int64 now, int32 type_id, ShardProposer *proposer);

/* Homes that a member has, moves towards it included. */
extern int shard_homes_count(const ShardHomes *homes, int32 node);
