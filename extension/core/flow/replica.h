/*
 * core/flow/replica.h
 *		Copies of a shard that has replicas: what its home waits for, and what a copy takes (Q4, Q8, Q9, Q11, Q13).
 *
 * Two sides. The home's worker has a ShardReplicaHome for each such shard of its lanes that is active here: which nodes
 * have to acknowledge, what each has, what is to be shipped, and up to where turns are released. It is memory alone. At
 * the start, and in a new epoch, it begins anew: what was acknowledged before does not count. Nothing in it changes but by
 * what has happened for good: a commit, the gate, an answer, a learned fact; so an abort has nothing to undo here.
 *
 * The copy's backend, and its lane's worker, have a ShardReplicaCopy for each shard of which this node has a copy (table
 * shard.copy): what it has promised, and its end. They judge what a call offers, one record after the other; then,
 * in one transaction, store what is to be stored, and change the ShardReplicaCopy once that has committed.
 *
 * How a home learns what a copy has: it asks with the point at which its own history stands (a question); the answer is
 * that the copy has stored that, or from which turn on it needs records. Then it ships, and each answer is of that kind
 * again. A copy whose history parted from the home's in an older epoch asks for one turn before the other, until one
 * stands behind what it has: so both sides compare sums, and never lengths.
 *
 * Who writes what durably, and what a death leaves behind, is in doc/protocol/replicas.md ("If somebody dies").
 */
#pragma once

#include "core/base/machine.h"
#include "core/flow/record.h"

/* ---- the copy's side --------------------------------------------------------------------------- */

/* A copy, as a row of shard.copy has it, with what came since. */
typedef struct ShardReplicaCopy
{
	int32 promise;		/* nothing is stored any more for a home of an older epoch (Q9) */
	ShardTurnPoint end; /* newest record; all 0: there is none */
	int64 oseq;			/* of the newest output up to the end */
	int64 released;		/* all up to this turn are, as homes have told; 0: not known */
	int64 applied;		/* all up to this turn are in the tables (Q10): never undone */
} ShardReplicaCopy;

/* Under which epoch a call offers or asks something of a shard, and what this node has learned of the shard's home (T6). */
typedef struct ShardReplicaSender
{
	int32 epoch;   /* the call's: its sender says it is home in that */
	int32 learned; /* of the newest home that is learned here */
	bool is_home;  /* is the sender that one? */
} ShardReplicaSender;

/* Shipped in answers, never renumbered. From NEED on, nothing more is judged of the shard in that call. */
typedef enum ShardReplicaVerdict
{
	SHARD_REPLICA_STORE = 1,	 /* append the record: it stands behind the end */
	SHARD_REPLICA_REPLACE = 2,	 /* forget what is behind the record before it, then append it */
	SHARD_REPLICA_STORED = 3,	 /* it is stored: acknowledge again */
	SHARD_REPLICA_NEED = 4,		 /* ask for the records from *need on */
	SHARD_REPLICA_NEED_COPY = 5, /* what is to be compared is not stored here any more */
	SHARD_REPLICA_REFUSED = 6,	 /* a newer home is known here: answer with the newest fact */
	SHARD_REPLICA_AHEAD = 7,	 /* the sender's epoch is not: the call waits, as X3 has it */
	SHARD_REPLICA_FORKED = 8,	 /* the sender was put back: Q23 */
	SHARD_REPLICA_BROKEN = 9,	 /* what is released contradicts it: the copy stops, loudly */
	SHARD_REPLICA_DAMAGED =
		10 /* what was offered are no records of the shard that follow one another */
} ShardReplicaVerdict;

#define SHARD_REPLICA_VERDICTS 11
extern const char *const shard_replica_verdict_names[SHARD_REPLICA_VERDICTS];

/*
 * The point of that turn in the copy's history, which is below the end: from its record, or from that of the turn
 * behind it. False: neither is stored any more.
 */
typedef bool (*ShardReplicaFind)(void *context, int64 turn, ShardTurnPoint *point);

/*
 * What to do with an offered record. Nothing is changed. find is called for what is not at the end only, so a record
 * that follows the end costs some comparisons. *need: for NEED, the turn to ask for; else 0.
 */
extern ShardReplicaVerdict
shard_replica_judge(const ShardReplicaCopy *copy, const ShardReplicaSender *sender,
					const ShardTurnRecord *record, ShardReplicaFind find, void *context,
					int64 *need);

/*
 * The same for a question: has the copy what the home has up to that point? STORED: it has; it never says STORE or
 * REPLACE. Of a home without any turn the point is all 0.
 */
extern ShardReplicaVerdict
shard_replica_ask(const ShardReplicaCopy *copy, const ShardReplicaSender *sender,
				  const ShardTurnPoint *point, ShardReplicaFind find, void *context, int64 *need);

/*
 * Changes of a copy in memory. While a call is judged they are made of a twin, which takes the copy's place when
 * what they say has committed. promise: true if that is news, which has to be durable before any answer leaves; the caller
 * makes it with what it stores, and with a question, too. stored: a record judged STORE or REPLACE. told: what the home
 * says is released, in a call that was not refused; behind the records of that call.
 */
extern bool shard_replica_promise(ShardReplicaCopy *copy, int32 epoch);
extern void shard_replica_stored(ShardReplicaCopy *copy, const ShardTurnRecord *record);
extern void shard_replica_told(ShardReplicaCopy *copy, int32 epoch, int64 released);

/* Up to which turn it may be applied (Q10). */
extern int64 shard_replica_may_apply(const ShardReplicaCopy *copy);
extern void shard_replica_applied(ShardReplicaCopy *copy, int64 turn);

/* What a copy answers of one shard, in one answer: what is stored, and how it went on. */
typedef struct ShardReplicaAnswer
{
	int32 type_id;
	int32 shard;
	int32 epoch;   /* of the call */
	int32 verdict; /* STORED: all that was offered is; else why not more: from NEED on, but AHEAD */
	int64 stored;  /* newest turn that was offered, or asked for, and is stored; 0: none */
	int64 need;	   /* NEED: from this turn on; else 0 */
} ShardReplicaAnswer;

extern void shard_replica_put_answer(StringInfo out, const ShardReplicaAnswer *answer);
extern bool shard_replica_get_answer(ShardReader *reader, ShardReplicaAnswer *answer);

/* What a call says of one shard before the records that it ships, if any: n_records of core/flow/record.h. */
typedef struct ShardReplicaOffer
{
	int32 type_id;
	int32 shard;
	int32 epoch;		  /* of the home */
	int64 released;		  /* as the home tells this copy */
	int32 n_records;	  /* 0: a question, or released alone; then: */
	bool asks;			  /* has the copy this? */
	ShardTurnPoint point; /* all 0 unless asks */
} ShardReplicaOffer;

extern void shard_replica_put_offer(StringInfo out, const ShardReplicaOffer *offer);
extern bool shard_replica_get_offer(ShardReader *reader, ShardReplicaOffer *offer);

/* ---- the home's side --------------------------------------------------------------------------- */

/* What the home knows of a node that has to acknowledge. Next states: shard_replica_machine. */
typedef enum ShardReplicaState
{
	SHARD_REPLICA_UNASKED = 0, /* what it has is not known: ask */
	SHARD_REPLICA_FOLLOWS = 1, /* it is known what to ship next */
	SHARD_REPLICA_LACKS = 2,   /* it needs a copy (Q16): nothing is shipped */
	SHARD_REPLICA_LEFT = 3, /* it knows of a newer home: the fact will come; nothing is shipped */
	SHARD_REPLICA_PARTED =
		4 /* home or copy was put back (Q23), or what is shipped comes damaged each time: nothing is shipped */
} ShardReplicaState;

typedef enum ShardReplicaEvent
{
	SHARD_REPLICA_ACKNOWLEDGED = 0, /* it has what was offered, or asked for */
	SHARD_REPLICA_NEEDS,			/* it needs records that the home has */
	SHARD_REPLICA_NEEDS_COPY,		/* it needs what the home has not (any more), or says so */
	SHARD_REPLICA_REFUSES,			/* it knows of a newer home */
	SHARD_REPLICA_PARTS,	 /* it says FORKED or BROKEN, or DAMAGED so many times in a row */
	SHARD_REPLICA_CALL_LOST, /* whether the call was met is not known */
	SHARD_REPLICA_SPOILED	 /* it says DAMAGED: it has taken nothing of the call */
} ShardReplicaEvent;

extern const ShardMachine shard_replica_machine;

/*
 * What comes damaged is shipped again, since that may have happened on the way; so many times in a row, with nothing stored
 * between them, it is damaged at the home.
 */
#define SHARD_REPLICA_MOST_SPOILED 3

/* A node whose acknowledgement the home waits for. */
typedef struct ShardReplicaPeer
{
	int32 node;
	int32 state;   /* ShardReplicaState */
	bool calling;  /* a call that says something of the shard is not answered yet */
	int64 acked;   /* it has stored all up to this turn, and said so under this epoch */
	int64 next;	   /* FOLLOWS: the turn that is shipped next */
	int64 told;	   /* the newest released turn that an answered call has told it */
	int64 telling; /* that the call under way tells it */
	int spoiled;   /* how often it has said DAMAGED since it has stored something */
} ShardReplicaPeer;

/* The others of a set, and one learner. */
#define SHARD_REPLICA_PEERS SHARD_MAX_HOMES

typedef struct ShardReplicaHome
{
	int32 epoch;
	int64 n;			/* version of the newest fact that is known of the set */
	ShardTurnPoint end; /* newest turn that has committed */
	int64 oseq;			/* of its newest output */
	int64 passed;		/* newest turn that is past this node's gate (Q6) */
	int64 kept;			/* from this turn on records are there; end.turn + 1: none is */
	int64 released;		/* all up to this turn may be shown (Q11); 0: not known yet */
	int n_peers;
	ShardReplicaPeer peers[SHARD_REPLICA_PEERS]; /* required, in no order (Q4) */
} ShardReplicaHome;

/*
 * Of a shard that is active here in that epoch, and whose history ends so: at a start, an activation, a first home (all
 * 0). kept: as above. Nobody is required yet, and nothing is past the gate.
 */
extern void shard_replica_begin(ShardReplicaHome *home, int32 epoch, const ShardTurnPoint *end,
								int64 oseq, int64 kept);

/*
 * The set, by a decided fact of version n; nodes may have this node, self, among them. A fact that is known already, or
 * older, changes nothing: false. Who is required still keeps what it has acknowledged; who is new has acknowledged
 * nothing (Q16); who is not in it any more is no longer waited for, so released may rise.
 */
extern bool
shard_replica_require(ShardReplicaHome *home, int32 self, int64 n, const int32 *nodes, int n_nodes);

/* The head of the next record, for type and shard as they are in record, with n_outputs outputs. Changes nothing. */
extern void
shard_replica_next(const ShardReplicaHome *home, int32 n_outputs, ShardTurnRecord *record);

/*
 * Its transaction has committed (sum is set); then: the gate has passed all up to that turn; true: released has risen.
 * Turns rise.
 */
extern void shard_replica_committed(ShardReplicaHome *home, const ShardTurnRecord *record);
extern bool shard_replica_passed(ShardReplicaHome *home, int64 turn);

/* What a call to a node is to say of the shard. */
typedef struct ShardReplicaShipment
{
	bool asks;	/* a question, for home->end */
	int64 from; /* records of these turns, if from <= to; to may be cut down by the caller */
	int64 to;
	bool tells;		/* released is higher than what the node was told; alone this may wait (Q13) */
	int64 released; /* goes with any call */
} ShardReplicaShipment;

/*
 * False: nothing is to be said to the node now, since it is not required, a call is under way, or it has all. If only tells
 * is set, a call for that alone may wait as Q13 has it.
 */
extern bool
shard_replica_shipment(const ShardReplicaHome *home, int32 node, ShardReplicaShipment *shipment);

/* A call with that shipment leaves now; as the caller has cut it. It ends by exactly one of the two below. */
extern void
shard_replica_shipped(ShardReplicaHome *home, int32 node, const ShardReplicaShipment *shipment);

/*
 * The node's answer to that call, of this shard. True: released has risen. An answer of a node that is not required (any
 * more), or under an epoch that is not the home's any more, changes nothing. Answers of a call that was given up must not
 * come here; nor do those under another epoch than the call's, which are none.
 */
extern bool
shard_replica_answered(ShardReplicaHome *home, int32 node, const ShardReplicaAnswer *answer);

/* No call is under way, and a record that the node needs is not here: it needs a copy. The caller says so loudly. */
extern void shard_replica_is_lacking(ShardReplicaHome *home, int32 node);

/* The call failed, or was given up, or its answer said nothing of the shard: what the node has is to be asked for again. */
extern void shard_replica_call_lost(ShardReplicaHome *home, int32 node);

/* Is turn released (Q11)? turn 0, nothing, always is. */
#define shard_replica_is_released(home, turn) ((turn) <= (home)->released)

/*
 * Records of turns below the one returned are needed no more: they are released, so all that are required have them, and
 * all their outputs are done. undone: the oldest turn with outputs that are not; PG_INT64_MAX: there is none. The caller
 * forgets them, then says so.
 */
extern int64 shard_replica_may_forget(const ShardReplicaHome *home, int64 undone);
extern void shard_replica_forgotten(ShardReplicaHome *home, int64 kept);

/*
 * The connection to the node has ended, and the node perhaps with it: a copy does not keep what it was told. So it is told again.
 * If a call was under way, that is lost, too.
 */
extern void shard_replica_link_ended(ShardReplicaHome *home, int32 node);

/* NULL: the node is not required. */
extern const ShardReplicaPeer *shard_replica_peer(const ShardReplicaHome *home, int32 node);
