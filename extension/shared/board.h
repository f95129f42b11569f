/*
 * shared/board.h
 *		What the control worker and the rest of a node tell each other through shared memory.
 *
 * The control worker publishes the node's identity and what its region workers may do (ShardBoardView); region workers
 * report to it which homes they want and which shards are active (events). Nothing here is durable: after a crash of
 * the server the control worker writes it again; events may be lost, since a worker that still wants a thing asks
 * again. Decided homes do not go this way: they are rows of the log (SHARD_KIND_FACT), appended by the control worker
 * or with a peer's call.
 */
#pragma once

#include "base/clock.h"
#include "core/flow/packet.h"
#include "core/node/node.h"
#include "shared/shmem.h"

/* What the node is at the moment; a copy. */
typedef struct ShardBoardView
{
	uint32 generation; /* rises with each change of the fields below that workers have to notice */
	bool known;		   /* the control worker has spoken since the server started */
	bool handle;	   /* local messages may be handled (I4) */
	bool push;		   /* messages go to peers and come from them, too */
	bool fenced;
	bool
		downed; /* this start was: the next one is admitted, or an operator's word lets it go on (I9) */
	bool superseded; /* another incarnation of the node lives: this is a former life of it (I4) */
	bool unadmitted; /* this start is to be admitted yet: another incarnation may live (I4) */
	int32 node;
	int32 inc_no;
	ShardUuid incarnation;
	ShardUuid cluster;
	ShardUuid join_token; /* of the join that is under way; 0: none is */
	int32 era;
	int32 coordinator; /* as far as heard of; 0: none */
	int32 gate;		   /* ShardGateKind, as decided */
	int32 members;	   /* that are not removed or written off */
	int64 learned_n;
	int64 lease_until; /* microseconds of CLOCK_BOOTTIME */
	bool leased;	   /* turns may run here only under that lease (L7) */
	char why[160];	   /* why nothing is handled, when handle is false */
	char lacks[400];   /* the types of this node that get no number (C19, C20); empty: none */
	char unread
		[160]; /* the states that keep nodes from joining this one, which is alone (C21); empty: none */
	char refusal[400];	  /* why this start is not admitted, if the coordinator has said so */
	ShardNodePlace place; /* what was found at this node's own address lately */
	uint32 types; /* the state of shard.type, by shard_board_types(), that is told to the cluster */
	bool registered; /* and that the coordinator has acknowledged */
} ShardBoardView;

/* A copy of the view; all zero if the database has no slot. */
extern void shard_board_get(ShardDatabase *db, ShardBoardView *view);

/*
 * The header that this node, as of a view, puts in front of a call to node `to`, or of an answer; to_inc 0: the
 * incarnation of that node is not known.
 */
extern ShardCallHeader shard_board_header(const ShardBoardView *view, int32 to, int32 to_inc);

/* The generation of the view alone: cheap, for each turn. */
extern uint32 shard_board_generation(ShardDatabase *db);

/*
 * Until when turns may be run here, on shard_clock_now(); PG_INT64_MAX: as long as the node handles at all.
 * Cheap, for each turn.
 */
extern int64 shard_board_lease(ShardDatabase *db);

/* Control worker: publishes a view; wakes all region workers if the generation changes. */
extern void shard_board_set(ShardDatabase *db, const ShardBoardView *view);

/*
 * While a node joins a cluster, sending is refused: its types are about to get other numbers. Closed under an exclusive
 * lock on the extension, and looked at by senders under their shared one. A fenced node never takes messages again
 * (I6).
 */
typedef enum ShardBoardDoor
{
	SHARD_BOARD_OPEN = 0,
	SHARD_BOARD_JOINING,
	SHARD_BOARD_FENCED,
	SHARD_BOARD_WRITTEN_OFF, /* fenced as well */
	SHARD_BOARD_LEAVING,	 /* its shards live elsewhere, the rest is on its way */
	SHARD_BOARD_LEFT,		 /* no member any more: fenced as well */
	SHARD_BOARD_JOURNAL,	 /* no node at all (R14) */
	SHARD_BOARD_DOWNED,		 /* until its next start */
	SHARD_BOARD_SUPERSEDED,	 /* not admitted, while another incarnation lives (I4) */
	SHARD_BOARD_UNSAID		 /* the control worker has not spoken yet since the server started */
} ShardBoardDoor;

extern void shard_board_close(ShardDatabase *db, ShardBoardDoor door);

/* Raises error 55000, which says why sending is refused on this node. The door is closed. */
extern void shard_board_refuse(ShardBoardDoor door);

/*
 * Raises error 55000 if the door is closed. True: open. False: the control worker has not said yet whether it is open.
 */
extern bool shard_board_check_open(void);

/* A number that rises when the record of any member was learned (directory.h); and its rise. */
extern uint32 shard_board_directory(ShardDatabase *db);
extern void shard_board_directory_changed(ShardDatabase *db);

/*
 * A number that rises when a node that could not be reached is heard again; and its rise, which wakes region workers.
 */
extern uint32 shard_board_returns(ShardDatabase *db);
extern void shard_board_returned(ShardDatabase *db);

/* An event of a region worker or of a command, for shard_node_event(). */
typedef struct ShardBoardEvent
{
	ShardNodeEventKind kind; /* HOMES_WANTED, SHARDS_STARTED, SHARD_STOPPED */
	ShardShardRef shard;
} ShardBoardEvent;

/* Region worker: reports an event; wakes the control worker. False: the queue is full, ask again later. */
extern bool shard_board_report(ShardDatabase *db, const ShardBoardEvent *event);

/* Control worker: takes at most `most` events, oldest first; returns how many. */
extern int shard_board_take(ShardDatabase *db, ShardBoardEvent *events, int most);

/*
 * What the control worker orders of the region worker of a shard's lane: to stop the shard, named with its
 * present epoch and the move, and to seal it (M2, M3); reported by SHARD_EVENT_SHARD_STOPPED. Volatile: the
 * coordinator of the cluster repeats its question until it is answered (M11), so an order may be lost.
 *
 * Control worker: gives an order; wakes the lane's worker. False: no room, the order is lost. Each group of lanes has
 * room of its own, and an order that waits already is not given twice.
 */
extern bool shard_board_order(ShardDatabase *db, const ShardShardRef *order);

/*
 * Region worker: whether an order for one of these lanes waits. Cheap.
 */
extern bool shard_board_is_ordered(ShardDatabase *db, ShardLanes lanes);

/*
 * Region worker: takes at most `most` orders for these lanes, those of a lane oldest first; returns how many. Cheap if
 * there is none.
 */
extern int
shard_board_take_orders(ShardDatabase *db, ShardLanes lanes, ShardShardRef *orders, int most);

/*
 * The next number of a stamp of that lane under the incarnation (X9): rises as long as the server runs and this
 * database is the same node of the same cluster, its life, and begins above SHARD_FIRST_RSEQ(inc_no). In another life,
 * of an extension that was created again or reset, the incarnations are counted from the start again: numbers that went
 * on would be above those of the next one, which members would take for what they know. The lane's worker only.
 */
extern int64 shard_board_next_rseq(ShardDatabase *db, int lane, uint64 life, int32 inc_no);

/* Every stamp of the lane so far has this number or a lower one. */
extern int64 shard_board_last_rseq(ShardDatabase *db, int lane, uint64 life, int32 inc_no);

/* By the lane's worker: numbers up to there were given in that life. */
extern void shard_board_raise_rseq(ShardDatabase *db, int lane, uint64 life, int64 rseq);

/*
 * When this transaction commits, the control worker looks at table shard.type. The number rises then;
 * invalidations come a moment later.
 */
extern void shard_board_types_change(void);

/* The control worker looks at table shard.type now, and announces its types to the cluster again. */
extern void shard_board_types_announce(void);

/* Whether this transaction has announced a change of types; and the number. */
extern bool shard_board_types_changing(void);
extern uint32 shard_board_types(ShardDatabase *db);

/*
 * The incarnation of this start of the server, and what kind of start it was: the same for all control workers of that
 * extension, however often they start (I1). False: not known yet; shard_board_keep sets it.
 */
extern bool shard_board_incarnation(ShardDatabase *db, Oid extension, ShardUuid *incarnation,
									ShardStartKind *kind);
extern void
shard_board_keep(ShardDatabase *db, Oid extension, ShardUuid incarnation, ShardStartKind kind);

/*
 * A random number that only processes of this server know, as long as it runs: a caller of a procedure of shard_peer
 * that passes it is one of them.
 */
extern uint64 shard_board_secret(ShardDatabase *db);

/* The board's part of shared memory. */
extern const ShardShmemPart shard_board_part;
extern void shard_board_forget(ShardDatabase *db);
