/*
 * shard.h
 *		Ids, limits and constants that every other file may use.
 */
#pragma once

#define SHARD_EXTENSION_NAME "shard"
#define SHARD_EXTENSION_VERSION "0.1.0"

/* Version of the cluster protocol; peers with another one are refused. */
#define SHARD_PROTOCOL_VERSION 1

/*
 * Lanes are part of the protocol version (doc/protocol.md W1): groups of lanes, a group for the types of an
 * owner. A set of lanes is a mask.
 */
#define SHARD_GROUPS 8
#define SHARD_GROUP_LANES 8
#define SHARD_LANES (SHARD_GROUPS * SHARD_GROUP_LANES)

typedef uint64 ShardLanes;

#define SHARD_ALL_LANES (~(ShardLanes) 0)

static inline ShardLanes
shard_lane_bit(int lane)
{
	return (ShardLanes) 1 << lane;
}

/* Sets of groups, and of the places of groups (core/division.h), are masks of 8 bits; those of workers of 64. */
static inline uint8
shard_group_bit(int group)
{
	return (uint8) (1 << group);
}

static inline uint64
shard_worker_bit(int worker)
{
	return (uint64) 1 << worker;
}

static inline ShardLanes
shard_group_lanes(int group)
{
	return (((ShardLanes) 1 << SHARD_GROUP_LANES) - 1) << (group * SHARD_GROUP_LANES);
}

/* The first lane of a set that is not below the given one; SHARD_LANES: there is none. */
static inline int
shard_lane_next(ShardLanes lanes, int lane)
{
	lanes = lane < SHARD_LANES ? lanes >> lane : 0;
	for (; lanes != 0 && (lanes & 1) == 0; lanes >>= 1)
		lane++;
	return lanes != 0 ? lane : SHARD_LANES;
}

/* Goes through a set of lanes, which stays as it is meanwhile, in their order. */
#define shard_each_lane(lane, lanes) \
	for (int lane = shard_lane_next(lanes, 0); lane < SHARD_LANES; \
		 lane = shard_lane_next(lanes, lane + 1))

/* A worker owns at least one lane. */
#define SHARD_MAX_WORKERS SHARD_LANES

/* Slot of the control worker, after those of the region workers. */
#define SHARD_CONTROL_WORKER SHARD_MAX_WORKERS
#define SHARD_WORKER_SLOTS (SHARD_MAX_WORKERS + 1)

/* Tables of the segment log, made at CREATE EXTENSION (D1). */
#define SHARD_SEGMENTS 8

#define SHARD_MAX_DATABASES 64

/* Bytes of an entity id, as text in the database's encoding. */
#define SHARD_MAX_ENTITY_ID 255

/* A node that never joined a cluster is node 1 of its own. */
#define SHARD_FIRST_NODE 1

/* The epoch of a shard's first home. */
#define SHARD_FIRST_EPOCH 0

/*
 * Assertions of our own, on in "make check" on servers built without
 * assertions too.
 */
#ifdef SHARD_ASSERTIONS
#define ShardAssert(condition) \
	do \
	{ \
		if (!(condition)) \
			elog(PANIC, "shard assertion failed: %s, %s:%d", #condition, __FILE__, __LINE__); \
	} while (0)
#else
#define ShardAssert(condition) ((void) 0)
#endif

/*
 * What a row of the log is, and an item of a packet (X2); stored, never renumbered. 3 and 4 are reserved. Rows of kind
 * CURSOR, PACKET, POSITION, HELLO and TURN belong to the log itself: type 0, shard = the lane. FACT, DONE, OWN, TOUCHED and
 * LETTERS_GONE name a shard of the lane whose worker is to read them.
 */
typedef enum ShardKind
{
	SHARD_KIND_TELL = 1,
	SHARD_KIND_CURSOR = 2,	  /* a worker's position, payload by cursor_record.c */
	SHARD_KIND_START = 5,	  /* shard_start_entity */
	SHARD_KIND_PASSIVATE = 6, /* shard_passivate */
	SHARD_KIND_AGAIN = 7, /* as TELL; it failed when its number was due, and is sent again (D25) */
	SHARD_KIND_SCHEDULE = 13, /* shard_schedule, but for the entity whose handler it is (E31) */
	SHARD_KIND_CANCEL = 14,	  /* shard_cancel, likewise */
	SHARD_KIND_TIMER = 15,	  /* a timer is due; what it tells is in its row of shard.timer (E32) */
	SHARD_KIND_RESTART = 8,	  /* of no message: a start that failed (shard.held, place start) */
	SHARD_KIND_PACKET = 16,	  /* messages for another node, by core/packet.h (outbox.c) */
	SHARD_KIND_POSITION = 17, /* up to where a stream from a peer was received (receive.c) */
	SHARD_KIND_FACT = 18,	  /* a decided home, by core/packet.h */
	SHARD_KIND_DONE = 19,  /* a home's marks for this origin: one or more ShardDone of the lane */
	SHARD_KIND_HELLO = 20, /* a peer asks for all marks of its own, payload: int32 node */
	SHARD_KIND_VOID = 21,  /* in packets only: holds a place in the stream, without content */
	SHARD_KIND_OWN = 22,   /* another process changed the shard's ownership row: read it again */
	SHARD_KIND_TURN =
		23, /* turn records of shards with replicas, by core/flow/record.h (turn_log.c) */
	SHARD_KIND_TOUCHED = 24, /* of a shard with replicas: SQL has changed an entity's row (Q33) */
	SHARD_KIND_LETTERS_GONE =
		25, /* likewise: a dead letter is gone (Q35); payload: ShardLetterGone */
	SHARD_KIND_REPLY =
		26, /* a reply to an open ask, by core/flow/reply.h; shard: of the entity that was asked */
	SHARD_KIND_REQUEST = 27, /* shard_request: as TELL, and is answered (E48) */
	SHARD_KIND_RESPONSE = 28 /* what answers it, to who has asked (E49) */
} ShardKind;

/* Whether a row or an item is a message for a handler. */
#define shard_kind_is_message(kind) \
	((kind) == SHARD_KIND_TELL || (kind) == SHARD_KIND_AGAIN || shard_kind_is_request(kind))

/* Whether it is a message with more in it than the handler is given (E48, E49). */
#define shard_kind_is_request(kind) ((kind) == SHARD_KIND_REQUEST || (kind) == SHARD_KIND_RESPONSE)

/* Whether it is about a timer of an entity (E31). */
#define shard_kind_is_timer(kind) ((kind) >= SHARD_KIND_SCHEDULE && (kind) <= SHARD_KIND_TIMER)

/* Whether it is for an entity, and may go to another node: then it has a stamp and a tag, and raises a mark (X2, H7). */
#define shard_kind_is_for_entity(kind) \
	(shard_kind_is_message(kind) || (kind) == SHARD_KIND_START || \
	 (kind) == SHARD_KIND_PASSIVATE || shard_kind_is_timer(kind))
