/*
 * core/base/timing.h
 *		Times of the control plane. All in microseconds of a monotonic clock that runs on while the
 *		machine sleeps; order and uniqueness never depend on them (T5).
 */
#pragma once

#define SHARD_MS INT64CONST(1000)
#define SHARD_SECOND (1000 * SHARD_MS)

/* How often a node's machine must be told that time passes: no deadline here is much shorter. */
#define SHARD_TICK_INTERVAL (100 * SHARD_MS)

/* The coordinator's heartbeat, and how long its silence is borne (R1, R10). */
#define SHARD_HEARTBEAT_INTERVAL (500 * SHARD_MS)
#define SHARD_ELECTION_TIMEOUT (1500 * SHARD_MS)

/* A node that has not heard the coordinator for this long knows of no coordinator. */
#define SHARD_CONTROL_FORGOTTEN (4 * SHARD_SECOND)

/* A candidate waits this long for each member that is older (R15). */
#define SHARD_CANDIDATE_STEP (150 * SHARD_MS)

/* An unanswered request is sent again after this; the reference's retry-interval is 2 s. */
#define SHARD_RESEND_INTERVAL (500 * SHARD_MS)
#define SHARD_RETRY_INTERVAL (2 * SHARD_SECOND)

#define SHARD_MEMBER_HEARTBEAT_INTERVAL (1 * SHARD_SECOND)

/* Leases (L3, L4, L5). */
#define SHARD_LEASE_TTL_MS 4000
#define SHARD_LEASE_RENEWAL (1 * SHARD_SECOND)
#define SHARD_LEASE_SAFETY (50 * SHARD_MS)

/* The longest that the new home's side of a lease may take beyond ttl: clock rates, and a margin. */
#define SHARD_LEASE_WAIT(ttl_us) ((ttl_us) + (ttl_us) / 100 + 500 * SHARD_MS)

/*
 * Numbers of registrations are times. A node that speaks in another node's name may say any number up to FAR, and above the
 * newest number that was taken it advances by STEP at most: so there is always room above it for the node's own numbers,
 * whose numbering starts afresh with each coordinator (T7).
 */
#define SHARD_REGISTRATION_FAR (INT64CONST(1) << 61)
#define SHARD_REGISTRATION_STEP (INT64CONST(1) << 32)

/* A number that was given to a joiner is given up if it was not admitted by then (I17). */
#define SHARD_NEWCOMER_PATIENCE (600 * SHARD_SECOND)

#define SHARD_WEAKLY_UP_AFTER (7 * SHARD_SECOND)
#define SHARD_VOTER_REPLACE_AFTER (60 * SHARD_SECOND)

/* HostShard is repeated until ShardStarted; the reference's shard-start-timeout. */
#define SHARD_START_TIMEOUT (10 * SHARD_SECOND)
#define SHARD_HANDOFF_TIMEOUT (60 * SHARD_SECOND)
#define SHARD_REBALANCE_INTERVAL (10 * SHARD_SECOND)

/* A home that does not host the type for so long loses its shards (C17). */
#define SHARD_STRAY_AFTER (5 * SHARD_SECOND)

/* A target's answer whether a shard can be copied to it, and the pauses after a move that failed (M16). */
#define SHARD_PREPARE_TIMEOUT (15 * SHARD_SECOND)
#define SHARD_MOVE_PAUSE (1 * SHARD_SECOND)
#define SHARD_MOVE_LONGEST_PAUSE (300 * SHARD_SECOND)

/* A move that is ready waits this long for one of the places at its target before it takes a place of its own (M24). */
#define SHARD_PLACE_PATIENCE (5 * SHARD_SECOND)

/* The answer of a type's own strategy functions (C11): hosts have one in less, with the time until its turn. */
#define SHARD_STRATEGY_TIMEOUT (40 * SHARD_SECOND)

/* An operator's command that another node carries out (C12). */
#define SHARD_COMMAND_PATIENCE (15 * SHARD_SECOND)
