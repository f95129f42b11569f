/*
 * copies.h
 *		The world of mode copies: nodes that have copies of replicated shards, one of them their home, and another node.
 *
 * Two or three nodes have two shards of a type with replicas, in one lane. One is home of both, the others are their backups,
 * until a decision names another member of the set; the former home stays in it, or is put out. A further node tells these shards
 * something, and has a plain shard that hears from them; nothing happens to it, as it is not what is tried here. What is modelled
 * is what surrounds core/flow/record, core/flow/replica and core/flow/takeover: turns, the log, the gate, calls, processes that
 * stop between any two steps, crashes that lose what was not flushed, a network that loses, repeats, delays and reorders, facts
 * that come late, and a home that is put back from an old copy. Now and then a coordinator has the shards sealed, and home once
 * more in a newer epoch, as by a move that is aborted; while they are sealed the lane stands still.
 *
 * A node's tables are the same in each of its roles: a home's turn writes its record, and applies it, in one transaction.
 */
#pragma once

#include "postgres_fe.h"

#include "check.h"
#include "core/flow/mark.h"
#include "core/flow/takeover.h"
#include "store.h"

#define COPIES_MS INT64CONST(1000)
#define COPIES_SHARDS 2
#define COPIES_NODES 3 /* at most; their ids are their places + 1 */
#define COPIES_OTHER 9 /* id of the other node */
#define COPIES_FACTS 64
#define COPIES_NONE (-1) /* no epoch */
#define COPIES_MIN_INSYNC 2
#define COPIES_SENDERS (COPIES_NODES + 1 + COPIES_SHARDS)
#define COPIES_TYPE 1	  /* the type with replicas */
#define COPIES_PLAIN 2	  /* that of the other node's shard 0 */
#define COPIES_TURNS 2048 /* of a shard in a history */
#define COPIES_IDS 8192	  /* messages of a history */
#define COPIES_ROW 1600	  /* bytes of a row of the log */
#define COPIES_TOLD 512	  /* messages that the other node tells a shard */

/* Tables of a node. */
enum
{
	T_LOG = 0, /* seq: LogRow */
	T_CURSOR,  /* int64 */
	T_OWN,	   /* OwnRow */
	T_TAKEN,   /* shard, node: TakenRow, position in what that node sends */
	T_PARKED, /* shard, rseq: int64, a message that was told here; it has a stamp, and is on its way to the home */
	T_TURN,	  /* shard, turn: TurnRow */
	T_COPY,	  /* shard: CopyRow */
	T_STATE,  /* shard, index: int64, the message that was handled */
	T_MARK,	  /* shard, kind, a, b: int64 */
	T_UNDONE  /* shard, oseq: UndoneRow */
};

typedef enum LogKind
{
	LOG_INPUT = 1, /* told here */
	LOG_ARRIVED,   /* from another node */
	LOG_OUTPUT	   /* of a shard, released */
} LogKind;

typedef struct LogRow
{
	int32 kind;
	int32 type_id; /* for whom */
	int32 shard;
	int32 epoch; /* of that shard, under which it came, or was appended; of an input 0 */
	int64 id;
	ShardStamp stamp;
} LogRow;

typedef struct OwnRow
{
	ShardTakeover own;
	int64 n; /* of the newest fact that was met */
} OwnRow;

typedef struct TakenRow
{
	int64 epoch;
	int64 number;
} TakenRow;

typedef struct TurnRow
{
	int32 length;
	int32 shipped; /* of these; a home's has inputs behind them */
	char bytes[COPIES_ROW];
} TurnRow;

typedef struct CopyRow
{
	ShardReplicaCopy copy;
	int64
		shows; /* rows show what is not released up to that turn; what is applied is not more than that or copy.applied */
} CopyRow;

/* An output that no record says is done. */
typedef struct UndoneRow
{
	int32 type_id;
	int32 shard;
	int64 id;
	int64 turn;
} UndoneRow;

/* ---- the home -------------------------------------------------------------------------------- */

typedef struct Output
{
	int64 oseq;
	int64 turn;
	int64 id;
	int32 type_id;
	int32 shard;
	int64 lsn; /* of the commit that appended it; 0: not yet */
	bool done;
} Output;

/* What is told when its turn is released. */
typedef struct Tell
{
	int64 turn;
	ShardStamp mark;
} Tell;

typedef struct KeptRecord
{
	int32 length;
	char *bytes; /* as it is shipped */
} KeptRecord;

typedef struct HomeShard
{
	ShardReplicaHome replica;
	ShardMarks marks;
	int64 count; /* messages in the state */
	int64 seal;	 /* turn of the seal; 0: there is none in this epoch */
	int64 first; /* turn at which the epoch began: when all have it, the set is whole */
	KeptRecord records[COPIES_TURNS];
	int64 shown; /* turns up to here were shown */
	int n_outputs;
	Output outputs[COPIES_TURNS];
	int n_tells;
	Tell tells[COPIES_TURNS];
	int n_dones; /* what the next turn says is done */
	ShardTurnDone dones[64];
} HomeShard;

/* What a turn that is not committed has done. */
typedef struct Draft
{
	bool runs;
	StoreTransaction *tx;
	bool seals;
	bool activates;
	int64 cursor;
	struct
	{
		bool dirty;
		CopyRow copy;
		int64 count;
		int n_dones;
		ShardTurnRecord record;
		int n_outputs;
		Output outputs[16];
		int n_appended;
		int appended[64]; /* places in outputs of the shard */
		int n_inputs;
		ShardTurnInput inputs[16];
		int n_ids;
		int64 ids[16];
	} shards[COPIES_SHARDS];
} Draft;

typedef struct Gate
{
	int64 lsn;
	int32 shard;
	int64 turn;
} Gate;

typedef struct Connection
{
	int64 req; /* of the call under way; 0: none */
	int64 deadline;
	bool offered[COPIES_SHARDS];
	int32 inc; /* of the process that it was opened to */
} Connection;

/* ---- calls, and a node ----------------------------------------------------------------------- */

typedef struct Message
{
	int64 at;
	int64 order;
	int32 kind; /* MessageKind */
	int32 from; /* places of nodes; the other node is COPIES_NODES */
	int32 to;
	int32 shard;
	int32 epoch;
	int64 number;
	int64 id;
	int64 req;
	int64 before; /* TELL: number of the one sent before it that is not done; 0: none */
	ShardStamp stamp;
	int32 length;
	char *bytes;
} Message;

typedef enum MessageKind
{
	M_STORE = 1, /* home to another member: offers with records */
	M_ANSWER,	 /* its answers; number: of the newest fact that is known there */
	M_TELL,		 /* to the home: a message with its stamp, under an epoch */
	M_MARK,		 /* home to where that came from: taken in up to number */
	M_OUTPUT,	 /* to the other node: output number of a shard */
	M_DONE,		 /* from it: outputs of a shard are taken in up to number */
	M_FACT,		 /* of version number */
	M_STOP,		 /* coordinator to home: seal epoch number */
	M_STOPPED,	 /* home to coordinator */
	M_FETCH,	 /* to the home, by who has to take its rows anew */
	M_COPY,		 /* the rows of a shard, as of turn number, and its records */
	M_WHOLE		 /* home to who was put out: the set of fact number is whole */
} MessageKind;

typedef enum CallStep
{
	CALL_FREE = 0,
	CALL_JUDGE,	 /* next: COMMIT, or FREE if it is to wait */
	CALL_COMMIT, /* next: ANSWER */
	CALL_ANSWER	 /* waits for the gate; next: FREE */
} CallStep;

typedef struct Call
{
	CallStep step;
	int64 req;
	int32 length;
	char *bytes;
	StoreTransaction *tx;
	int64 lsn;
	int32 from;
	int64 fact; /* what was known when it was judged */
	CopyRow twins[COPIES_SHARDS];
	bool changed[COPIES_SHARDS];
	int n_answers;
	ShardReplicaAnswer answers[COPIES_SHARDS];
} Call;

#define COPIES_CALLS 3

typedef struct Node
{
	int index;
	Store *store;
	Store *backup; /* an old copy of its files */
	bool up;
	int64 restart_at;
	int64 frozen_until;
	int64 deaf_until; /* no fact comes here */
	int32 inc;		  /* times that it was started */
	int64 fact;	 /* version of the newest fact that is known here, though it may not be met yet */
	int64 whole; /* of that fact, and older ones, the sets are whole */
	OwnRow own;
	int64 seq;
	int64 rseq;
	int64 resend_at;

	/* as home, or one that has been: outputs that it has appended leave, whoever is home */
	int32 stop_epoch; /* asked to seal this one */
	bool stopped;	  /* and it was told that it is */
	HomeShard shards[COPIES_SHARDS];
	Draft draft;
	int n_gates;
	Gate gates[256];
	Connection calls[COPIES_NODES];

	/* as another member */
	int lock; /* call that holds it; -1: none */
	CopyRow copies[COPIES_SHARDS];
	Call stores[COPIES_CALLS];
	int64 fetching[COPIES_SHARDS]; /* question for rows; 0: none are to be taken anew */

	/* counted over crashes */
	int64 takeovers;
	int64 rewinds;
	int64 resent;
} Node;

/* ---- all of it ------------------------------------------------------------------------------- */

/* What checkers know of a released turn. */
typedef struct Truth
{
	ShardTurnPoint point;
	int32 length;
	char *bytes;
} Truth;

/* A decided set. */
typedef struct Fact
{
	ShardHomeRecord home;
	bool whole;
} Fact;

typedef struct CopiesWorld
{
	uint64 state;
	bool trace;
	bool chaos;
	int64 now;
	int64 order;
	Check *check;
	int n_nodes;
	Node nodes[COPIES_NODES];
	int loss;
	int n_messages;
	Message messages[512];
	int64 ids;
	bool restores; /* the home is put back from an old copy */
	bool restored;

	/* the coordinator: facts by version, from 1 on */
	int64 n;
	Fact facts[COPIES_FACTS];
	bool runs; /* on_too_few => run */
	int64 stop_at;
	int64 stop_deadline; /* 0: no shard is to be sealed */

	/* the other node: what it tells, and its own shard */
	int64 fact; /* that it knows */
	int64 told[COPIES_SHARDS];
	int64 done[COPIES_SHARDS];
	int64 told_ids[COPIES_SHARDS][COPIES_TOLD];
	int64 heard[COPIES_SHARDS]; /* its marks */
	int64 sent[COPIES_SHARDS];	/* under the epoch of that fact, or older */
	int64 tell_at;

	/* the checkers: what is released, by shard and turn; messages by id; outputs by shard and number */
	int64 steps;
	int64 released[COPIES_SHARDS];
	int64 released_mark[COPIES_SHARDS]; /* of what the other node told */
	Truth truths[COPIES_SHARDS][COPIES_TURNS];
	ShardTurnPoint stored[COPIES_SHARDS][COPIES_TURNS]; /* by any backup, ever */
	uint8 kinds[COPIES_IDS];							/* LogKind: where it came from */
	uint8 senders[COPIES_IDS];							/* nodes, the other one, shards behind it */
	int64 newest[COPIES_SHARDS][COPIES_SENDERS];		/* handled by released turns */
	int64 newest_received[COPIES_SHARDS];
	bool reported[COPIES_IDS];					 /* an input that is durable */
	uint8 handled[COPIES_IDS];					 /* by released turns */
	uint8 received[COPIES_IDS];					 /* by the other node's shard */
	int64 contents[COPIES_SHARDS][COPIES_TURNS]; /* messages of outputs that were appended */
	int64 stopped_turn[COPIES_SHARDS]; /* of the newest seals that were told, and their epoch */
	int32 stopped_epoch;
} CopiesWorld;

/* copies.c */
extern uint32 copies_random(CopiesWorld *world, uint32 below);
extern bool copies_percent(CopiesWorld *world, int chance);
extern void copies_trace(CopiesWorld *world, const char *format, ...) pg_attribute_printf(2, 3);
extern void copies_send(CopiesWorld *world, const Message *message);
extern Node *copies_home(const CopiesWorld *world); /* by the newest decision */

/* copies_node.c */
extern void copies_node_start(CopiesWorld *world, Node *node);
extern void copies_node_crash(Node *node);
extern void copies_node_forget_home(Node *node);
extern void copies_node_receive(CopiesWorld *world, Node *node, const Message *message);
extern void copies_node_tell(CopiesWorld *world, Node *node, int32 shard);
extern void copies_node_send(CopiesWorld *world, Node *node);
extern bool copies_node_step(CopiesWorld *world, Node *node);

/* copies_home.c */
extern void copies_home_receive(CopiesWorld *world, Node *home, const Message *message);
extern void copies_home_tell(CopiesWorld *world, Node *home);
extern bool copies_home_forget(Node *home);
extern bool copies_home_step(CopiesWorld *world, Node *home);
extern bool copies_home_rests(CopiesWorld *world);
extern void copies_home_report(CopiesWorld *world); /* why it does not, as a violation */

/* copies_turn.c */
extern void copies_load(CopiesWorld *world, Node *home, StoreTransaction *tx);
extern bool copies_turn(CopiesWorld *world, Node *node);
extern void copies_turn_abort(Node *home);
extern void copies_add_done(Node *home, int32 source, const ShardTurnDone *done);

/* copies_fact.c */
extern bool copies_meet_fact(CopiesWorld *world, Node *node);
extern void copies_activate(CopiesWorld *world, Node *node);
extern const ShardHomeRecord *copies_fact(const CopiesWorld *world, int64 n);

/* copies_backup.c */
extern void copies_backup_receive(Node *backup, const Message *message);
extern bool copies_backup_call(CopiesWorld *world, Node *backup);
extern bool copies_backup_step(CopiesWorld *world, Node *backup);

/* copies_apply.c */
extern void
copies_apply_record(StoreTransaction *tx, const Store *store, const ShardTurnRecord *record);
extern bool copies_row_record(const TurnRow *row, ShardTurnRecord *record);
extern bool copies_read_turn(const Store *store, const StoreTransaction *tx, int32 shard,
							 int64 turn, ShardTurnRecord *record);
extern void copies_store_record(StoreTransaction *tx, int32 shard, const ShardTurnRecord *record);
extern bool copies_backup_apply(CopiesWorld *world, Node *backup);

/* copies_rewind.c */
extern void copies_rewind_ask(CopiesWorld *world, Node *node);
extern void copies_rewind_receive(CopiesWorld *world, Node *node, const Message *message);
extern bool copies_drop(CopiesWorld *world, Node *node);

/* check_copy.c: VR1, VR3 to VR9 */
extern void
copies_check_shown(CopiesWorld *world, const Node *home, int32 shard, int64 turn, const char *what);
extern void copies_check_released(CopiesWorld *world, const Node *home, int32 shard);
extern void
copies_check_appended(CopiesWorld *world, const Node *home, int32 shard, const Output *output);
extern void copies_check_received(CopiesWorld *world, int32 shard, int64 oseq, int64 id);
extern void copies_check_copy(CopiesWorld *world, const Node *backup, int32 shard);
extern void copies_check_applied(CopiesWorld *world, const Node *backup, int32 shard);
extern void copies_check_decided(CopiesWorld *world);
extern void copies_check_stopped(CopiesWorld *world, const Node *home);
extern void copies_check_made(CopiesWorld *world, int32 shard, const ShardTurnRecord *record);
extern void copies_check_step(CopiesWorld *world);

/* check_copy_end.c */
extern bool copies_members_rest(const CopiesWorld *world);
extern void copies_members_report(CopiesWorld *world); /* why they do not, as a violation */
extern void copies_check_end(CopiesWorld *world);
