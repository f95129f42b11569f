/*
 * copies.h
 *		The world of mode copies: a home with replicated shards, its backups, and another node.
 *
 * One node has two shards of a type with replicas, in one lane; one or two others are their backups, the set never changes. A
 * further node tells these shards something, and has a plain shard that hears from them; nothing happens to it, as it is not what
 * is tried here. What is modelled is what surrounds core/flow/record and core/flow/replica: turns, the log, the gate, calls,
 * processes that stop between any two steps, crashes that lose what was not flushed, a network that loses, repeats, delays and
 * reorders, and a home that is put back from an old copy. Now and then a coordinator has the shards sealed, and home once more in
 * a newer epoch, as by a move that is aborted; while they are sealed the lane stands still.
 */
#pragma once

#include "postgres_fe.h"

#include "check.h"
#include "core/flow/mark.h"
#include "core/flow/replica.h"
#include "store.h"

#define COPIES_MS INT64CONST(1000)
#define COPIES_SHARDS 2
#define COPIES_BACKUPS 2  /* at most */
#define COPIES_HOME 1	  /* node ids; backups are 2 and 3 */
#define COPIES_OTHER 9	  /* the other node */
#define COPIES_TYPE 1	  /* the type with replicas */
#define COPIES_PLAIN 2	  /* that of the other node's shard 0 */
#define COPIES_TURNS 2048 /* of a shard in a history */
#define COPIES_IDS 8192	  /* messages of a history */
#define COPIES_ROW 1600	  /* bytes of a row of the log */
#define COPIES_TOLD 512	  /* messages that the other node tells a shard */

/* Tables of the home; a backup has T_TURN, T_COPY, T_STATE and T_UNDONE. */
enum
{
	T_LOG = 0, /* seq: LogRow */
	T_CURSOR,  /* int64 */
	T_STATE,   /* shard, index: int64, the message that was handled */
	T_OWN,	   /* OwnRow */
	T_END,	   /* shard: EndRow, as of records that are forgotten */
	T_MARK,	   /* shard, kind, a, b: int64, likewise */
	T_TAKEN,   /* shard: int64, position in what the other node tells */
	T_TURN,	   /* shard, turn: TurnRow */
	T_COPY,	   /* shard: ShardReplicaCopy */
	T_UNDONE   /* shard, oseq: UndoneRow, of records that are applied */
};

typedef enum LogKind
{
	LOG_INPUT = 1, /* told here */
	LOG_ARRIVED,   /* from the other node */
	LOG_OUTPUT,	   /* of a shard, released */
	LOG_TURN	   /* records of a transaction */
} LogKind;

typedef struct LogRow
{
	int32 kind;
	int32 type_id; /* for whom */
	int32 shard;
	int64 id;
	ShardStamp stamp;
	int32 length;
	char bytes[COPIES_ROW];
} LogRow;

typedef struct OwnRow
{
	int32 epoch;
	bool sealed;
} OwnRow;

typedef struct EndRow
{
	ShardTurnPoint end;
	int64 oseq;
	int64 kept;
} EndRow;

typedef struct TurnRow
{
	int64 length; /* a row's size is a multiple of 8 */
	char bytes[COPIES_ROW];
} TurnRow;

/* An output that no record says is done. */
typedef struct UndoneRow
{
	int32 type_id;
	int32 shard;
	int64 id;
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
	int64 row; /* seq of the row of the log */
	int32 length;
	char *bytes; /* as it is shipped */
} KeptRecord;

typedef struct HomeShard
{
	ShardReplicaHome replica;
	ShardMarks marks;
	int64 count; /* messages in the state */
	int64 seal;	 /* turn of the seal; 0: there is none in this epoch */
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
	int32 epoch; /* the shards are home in it now; 0: no change */
	int64 cursor;
	int64 row; /* of the records */
	struct
	{
		bool dirty;
		int64 count;
		int n_dones;
		ShardTurnRecord record;
		char *bytes; /* shipped */
		int32 length;
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
	int lives; /* of the backup that it was opened to */
} Connection;

typedef struct HomeNode
{
	Store *store;
	Store *backup; /* an old copy of its files */
	bool up;
	int64 restart_at;
	int64 frozen_until;
	int32 inc;
	int64 seq;
	int64 rseq;
	OwnRow own;
	int32 fact_epoch; /* newest fact that is learned here */
	int32 stop_epoch; /* asked to seal this one */
	bool stopped;	  /* and it was told that it is */
	HomeShard shards[COPIES_SHARDS];
	Draft draft;
	int n_gates;
	Gate gates[256];
	Connection calls[COPIES_BACKUPS];
	int64 resend_at;
} HomeNode;

/* ---- a backup -------------------------------------------------------------------------------- */

typedef struct Message
{
	int64 at;
	int64 order;
	int32 kind; /* MessageKind */
	int32 to;	/* backup; else the home or the other node, as its kind says */
	int32 shard;
	int64 number;
	int64 id;
	int64 req;
	int32 length;
	char *bytes;
} Message;

typedef enum MessageKind
{
	M_STORE = 1, /* home to backup: offers with records */
	M_ANSWER,	 /* backup to home: answers; to: from which backup */
	M_TELL,		 /* other node to home */
	M_MARK,		 /* home to other node: taken in up to number */
	M_OUTPUT,	 /* home to other node: output number of a shard */
	M_DONE,		 /* other node to home: outputs of a shard are taken in up to number */
	M_FACT,		 /* coordinator to node to: epoch number */
	M_STOP,		 /* coordinator to home: seal epoch number */
	M_STOPPED	 /* home to coordinator */
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
	ShardReplicaCopy twins[COPIES_SHARDS];
	int n_answers;
	ShardReplicaAnswer answers[COPIES_SHARDS];
} Call;

#define COPIES_CALLS 3

typedef struct BackupNode
{
	int index;
	Store *store;
	bool up;
	int lives; /* times that it was started */
	int64 restart_at;
	int64 frozen_until;
	int32 fact_epoch;
	int lock; /* call that holds it; -1: none */
	ShardReplicaCopy copies[COPIES_SHARDS];
	Call calls[COPIES_CALLS];
} BackupNode;

/* ---- all of it ------------------------------------------------------------------------------- */

/* What checkers know of a released turn. */
typedef struct Truth
{
	ShardTurnPoint point;
	int32 length;
	char *bytes;
} Truth;

typedef struct CopiesWorld
{
	uint64 state;
	bool trace;
	bool chaos;
	int64 now;
	int64 order;
	Check *check;
	int n_backups;
	HomeNode home;
	BackupNode backups[COPIES_BACKUPS];
	int loss;
	int n_messages;
	Message messages[512];
	int64 ids;
	bool restores; /* the home is put back from an old copy */
	bool restored;

	/* the coordinator */
	int32 epoch;
	int64 stop_at;
	int64 stop_deadline; /* 0: no shard is to be sealed */

	/* the other node: what it tells, and its own shard */
	int64 told[COPIES_SHARDS];
	int64 done[COPIES_SHARDS];
	int64 told_ids[COPIES_SHARDS][COPIES_TOLD];
	int64 heard[COPIES_SHARDS]; /* its marks */
	int64 tell_at;

	/* the checkers: what is released, by shard and turn; messages by id; outputs by shard and number */
	int64 steps;
	int64 released[COPIES_SHARDS];
	int64 released_mark[COPIES_SHARDS]; /* of what the other node told */
	Truth truths[COPIES_SHARDS][COPIES_TURNS];
	ShardTurnPoint stored[COPIES_SHARDS][COPIES_TURNS]; /* by any backup, ever */
	uint8 kinds[COPIES_IDS];							/* LogKind: where it came from */
	bool reported[COPIES_IDS];							/* an input that is durable */
	uint8 handled[COPIES_IDS];							/* by released turns */
	uint8 received[COPIES_IDS];							/* by the other node's shard */
	int64 contents[COPIES_SHARDS][COPIES_TURNS];		/* messages of outputs that were appended */
	int64 stopped_turn[COPIES_SHARDS]; /* of the newest seals that were told, and their epoch */
	int32 stopped_epoch;
} CopiesWorld;

/* copies.c */
extern uint32 copies_random(CopiesWorld *world, uint32 below);
extern bool copies_percent(CopiesWorld *world, int chance);
extern void copies_trace(CopiesWorld *world, const char *format, ...) pg_attribute_printf(2, 3);
extern void copies_send(CopiesWorld *world, const Message *message);

/* copies_home.c */
extern void copies_home_start(CopiesWorld *world);
extern void copies_home_crash(CopiesWorld *world);
extern void copies_home_receive(CopiesWorld *world, const Message *message);
extern void copies_home_tell(CopiesWorld *world, int32 shard);
extern bool copies_home_step(CopiesWorld *world);
extern bool copies_home_rests(const CopiesWorld *world);
extern void copies_home_report(CopiesWorld *world); /* why it does not, as a violation */

/* copies_turn.c */
extern void copies_load(CopiesWorld *world);
extern bool copies_turn(CopiesWorld *world);
extern void copies_turn_abort(HomeNode *home);
extern void copies_add_done(HomeNode *home, int32 source, const ShardTurnDone *done);

/* copies_backup.c */
extern void copies_backup_start(BackupNode *backup);
extern void copies_backup_crash(BackupNode *backup);
extern void copies_backup_receive(BackupNode *backup, const Message *message);
extern bool copies_backup_step(CopiesWorld *world, BackupNode *backup);
extern bool copies_backup_rests(const BackupNode *backup);
extern void copies_backup_report(CopiesWorld *world, const BackupNode *backup);

/* copies_apply.c */
extern bool copies_backup_apply(CopiesWorld *world, BackupNode *backup);

/* check_copy.c: VR1, VR3 to VR8 */
extern void copies_check_shown(CopiesWorld *world, int32 shard, int64 turn, const char *what);
extern void copies_check_released(CopiesWorld *world, int32 shard);
extern void copies_check_appended(CopiesWorld *world, int32 shard, const Output *output);
extern void copies_check_received(CopiesWorld *world, int32 shard, int64 oseq, int64 id);
extern void copies_check_copy(CopiesWorld *world, BackupNode *backup, int32 shard);
extern void copies_check_applied(CopiesWorld *world, const BackupNode *backup, int32 shard);
extern void copies_check_stopped(CopiesWorld *world);
extern void copies_check_made(CopiesWorld *world, int32 shard, const ShardTurnRecord *record);
extern void copies_check_step(CopiesWorld *world);
extern void copies_check_end(CopiesWorld *world);
