/*
 * core/base/live_settings.h
 *		Settings of this node that may change while it runs.
 *
 * The host fills the whole struct, at the start and after each reload of the configuration; shard_node_reload() takes it in
 * as a whole. Roster and homes read it where the node keeps it. So a new one needs a member here, its value from the host, and
 * the code that reads it.
 */
#pragma once

typedef struct ShardLiveSettings
{
	int32 gate;			   /* ShardGateKind: the wish of the setting shard.gate (G3) */
	bool owners_may_share; /* owners may share a group of lanes when no group is free (C19) */
	int64
		rebalance_interval; /* microseconds; 0: no shard moves by a strategy's own wish; members that leave or are
							   * evacuated are emptied, and pins followed, all the same */
} ShardLiveSettings;
