/*
 * core/map/action.h
 *		What a machine wants done: the list that a step leaves to its host.
 *
 * The host carries actions out in their order. Texts, messages and values live in the list's arena:
 * they are valid until the next step.
 */
#pragma once

#include "core/allocation/allocation.h"
#include "core/map/control.h"
#include "core/base/arena.h"

typedef enum ShardActionKind
{
	SHARD_ACTION_NONE = 0, /* nothing; to be skipped */
	SHARD_ACTION_SEND,	   /* node, bytes, length: to that node; node 0: to the address in text, or
						   * without one over the link by which the event came */
	SHARD_ACTION_PERSIST,  /* ticket, writes: one transaction, durable and past the gate; then tell
							* shard_node_persisted(ticket). Until then other events may come. */
	SHARD_ACTION_FACT,	   /* entry, n: a decided home; for the workers of this node */
	SHARD_ACTION_STOP_SHARD,	 /* shard: stop and seal it (M2, M3) */
	SHARD_ACTION_IMPORT_SHARD,	 /* shard (new epoch), node: copy it from there, staged (M4) */
	SHARD_ACTION_PREPARE_IMPORT, /* shard (epoch and move to come), node: may it be copied from there?
								  * Nothing changes (M16) */
	SHARD_ACTION_STRATEGY,		 /* token, shard.type_id, strategy: ask the type's own functions */
	SHARD_ACTION_STATES, /* token, shard: of which shards, of any type, behind that one are there states?
						  * SHARD_EVENT_STATES says the next ones (C21) */
	SHARD_ACTION_DECISION, /* shard, node: from, to, decision, text: why; for people.
							* Before anything else of its step */
	SHARD_ACTION_START_WORKERS, /* handle messages, as node, inc_no, uuid; flag: push and receive, too (I4) */
	SHARD_ACTION_STOP_WORKERS, /* text: why, as fenced or removed */
	SHARD_ACTION_LEASE,		   /* until: leased shards may run up to then, monotonic time */
	SHARD_ACTION_WHO_AT, /* node, uuid: ask at the registered address (I3). Node 0: at text, token:
								 * of the question, uuid: of the join that the node there has begun (I17) */
	SHARD_ACTION_COMMAND_DONE, /* token, flag, text, result: what became of an operator's command, durably. Of a command that
								* changes the map, done means decided (G6). Not done and unknown 1: whether it was carried out
								* cannot be found out. n_entries, entry: of PLAN */
	SHARD_ACTION_LOG /* level, text; about: NULL, or, if a peer can cause the line as often as it likes, the kind of line;
					  * then node: the peer, to: the kind of its message */
} ShardActionKind;

/* What a decision was about; stored as its name. */
typedef enum ShardDecision
{
	SHARD_DECISION_MOVE_BEGUN = 1, /* M1 is decided; text: what or which operator began it */
	SHARD_DECISION_MOVED,		   /* M5 is decided */
	SHARD_DECISION_MOVE_ABORTED,   /* stays after all; text: why */
	SHARD_DECISION_MOVE_REFUSED,   /* did not begin: could not be prepared; text: why */
	SHARD_DECISION_STATE_LOST,	   /* begins with empty states; text: written off, or given up */
	SHARD_DECISION_PINNED,		   /* to: the wish; 0: none any more */
	SHARD_DECISION_EVACUATION,	   /* node: begins or ends to be emptied; text */
	SHARD_DECISION_MEMBER,	 /* node: its status changed; text: to what, and by which operator */
	SHARD_DECISION_STRATEGY, /* of a type, shard -1: its functions have failed; text: how */
	SHARD_DECISION_MOVE_WITHDRAWN /* did not begin: nobody wants it any more; text: why not */
} ShardDecision;

/* Arguments of a type's own strategy functions (allocation strategy "function"). */
typedef struct ShardStrategyCall
{
	bool rebalance;					 /* which shards should move; else: where shards go */
	const ShardAllocationView *view; /* with the settings: what the planners in SQL take */
	int n_shards;
	const int32 *shards;	 /* allocate: these; rebalance: those that move already */
	const int32 *requesters; /* allocate: the node that asked first, 0: none */
} ShardStrategyCall;

/* Where a durable record lives: all that hosts know of a record's meaning. */
typedef enum ShardStore
{
	SHARD_STORE_NODE = 1, /* identity; key all 0 */
	SHARD_STORE_VOTER,	  /* promises and state point; key all 0 */
	SHARD_STORE_ACCEPTED, /* the voter's map, by key */
	SHARD_STORE_LEARNED,  /* decided map as far as this node knows, by key; kind 0: its point */
	SHARD_STORE_PAST	  /* the same of an earlier era, until this one's is learned; a: era */
} ShardStore;

/* A durable change. */
typedef struct ShardWrite
{
	ShardStore store;
	bool clear;	 /* empty the store first; entry.key.kind -1: and nothing else */
	bool remove; /* the row of the key goes, tombstone included */
	ShardMapEntry entry;
} ShardWrite;

typedef struct ShardAction
{
	ShardActionKind kind;
	int32 node;
	int64 ticket;
	int n_writes;
	ShardWrite *writes;
	const ShardControl *message; /* SEND, until the node has encoded it with its header */
	const char *bytes;
	size_t length;
	int n_entries;
	const ShardMapEntry *entry;
	ShardShardRef shard;
	union
	{
		int64 until;  /* LEASE */
		int64 result; /* COMMAND_DONE */
	};
	int64 token;
	int32 to;
	const ShardStrategyCall *strategy;
	bool flag;
	union
	{
		int32 decision; /* DECISION: ShardDecision */
		int32 unknown;	/* COMMAND_DONE: 1, it is not known whether it was carried out */
		int32 level;	/* LOG */
		int32 inc_no;	/* START_WORKERS */
	};
	ShardUuid uuid;
	const char *text;
	const char *about;
} ShardAction;

typedef struct ShardActions
{
	ShardArena *arena;
	int n_actions;
	int space;
	ShardAction *actions;
	int n_writes; /* of the transaction that is being gathered */
	int write_space;
	ShardWrite *writes;
} ShardActions;

/* An empty list, in the current memory context; the caller owns it. */
extern ShardActions *shard_action_create(void);
extern void shard_action_destroy(ShardActions *actions);

/* Empty the list and its arena, before a step. */
extern void shard_action_reset(ShardActions *actions);

/* A new, zeroed action at the end of the list; valid until the next one is added. */
extern ShardAction *shard_action_add(ShardActions *actions, ShardActionKind kind);

/*
 * A new, zeroed message in the arena, and a SEND of it at the end of the list. The caller fills the
 * message; the node puts the header.
 */
extern ShardControl *shard_action_send(ShardActions *actions, int32 to, ShardControlKind kind);

/*
 * Gather a write. All writes of a step are one transaction, and everything that the step sends waits
 * for it (T3), wherever in the list it stands.
 */
extern void shard_action_write(ShardActions *actions, ShardStore store, const ShardMapEntry *entry);
extern void shard_action_remove(ShardActions *actions, ShardStore store, ShardMapKey key);
extern void shard_action_clear(ShardActions *actions, ShardStore store);

/* A line for the server's log; the text is formatted into the arena. */
extern void shard_action_log(ShardActions *actions, int level, const char *format, ...)
	pg_attribute_printf(3, 4);

/*
 * A line about what a peer can do as often as it likes: the host bounds how often it is written (T11). node, which: lines with
 * the same node and the same which, the kind of the message or of what is said, are bounded together.
 */
extern void shard_action_log_peer(ShardActions *actions, int level, int32 node, int which,
								  const char *format, ...) pg_attribute_printf(5, 6);
