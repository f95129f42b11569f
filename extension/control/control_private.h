/*
 * control/control_private.h
 *		What the files of the control worker share.
 */
#pragma once

#include "access/xlogdefs.h"

#include "core/node/node.h"
#include "core/flow/packet.h"
#include "core/base/timing.h"
#include "control/control.h"
#include "registry/identity.h"
#include "shared/board.h"
#include "shared/ring.h"

/* The id of a journal: no member has it (R14). */
#define SHARD_JOURNAL_NODE PG_UINT16_MAX

/* A transaction of the control plane that is committed, and waits for the gate. */
typedef struct ControlTicket
{
	int64 ticket;
	XLogRecPtr lsn;
} ControlTicket;

/* A command of a backend that waits in the ring. */
typedef struct ControlCommand
{
	ShardCommandKind kind;
	int64 token;
	int64 since;		  /* shard_clock_now() */
	ShardRequest request; /* the request's payload is not kept */
	ShardMapEntry type;	  /* of TYPE: until the cluster has given it an id; else without a value */
	bool first;			  /* the transaction that waits has changed no type before */
} ControlCommand;

/* Messages that answer a call of a peer. */
typedef struct ControlAnswers
{
	StringInfoData bytes;
	int count;
} ControlAnswers;

typedef struct ControlState
{
	ShardDatabase *db;
	Oid extension;
	bool journal;				/* this database is a journal, no member */
	MemoryContext context;		/* the machine's, for its life */
	MemoryContext step_context; /* reset at each round */
	ShardNode *node;
	ShardActions *out;
	ShardIdentity row; /* as stored in shard.node; texts in TopMemoryContext */
	ShardBoardView view;

	int n_tickets;
	int ticket_space;
	ControlTicket *tickets; /* oldest first */

	/* to the call of a peer that is being served, over its link; NULL: none is */
	ControlAnswers *answers;

	List *commands; /* ControlCommand *, in TopMemoryContext */
	int64 last_token;

	List *asked;	   /* ShardBoardEvent *: homes of types that are not known yet */
	bool starting;	   /* workers may run, as soon as all types have their ids, */
	bool pushing;	   /* and exchange messages with peers */
	char stopped[160]; /* why workers were stopped; "": they were not */
	int64 downed_at;   /* when this start was downed; 0: it was not */
	int64 revive_at;   /* when it starts as a new incarnation, by an operator (I9); 0: never */
	bool again;		   /* something happened: tick at once */
	int64 next_tick;   /* shard_clock_now() */
} ControlState;

extern ControlState shard_control;

/*
 * control.c: one step of the machine, and what follows from it. These functions set shard_control.again.
 */
extern void shard_control_event(const ShardNodeEvent *event);
extern void shard_control_give(const ShardCommand *command);
extern void shard_control_receive(int32 via, const char *bytes, int length);

/*
 * Starts the machine again from what is durable, because settings have changed; or as another incarnation, because this
 * one was downed.
 */
extern void shard_control_restart(bool revive);

/* A transaction with the extension locked; ends the process if the extension is gone. */
extern void shard_control_begin(void);

/* The same for one that is certain to write, and has a number at once; appends: to the log, with its segments, too. */
extern void shard_control_begin_writing(bool appends);

/*
 * Locks, in a transaction, all that may be written and the log, without waiting: false if another session has one of
 * them locked.
 */
extern bool shard_control_lock_all(void);

/*
 * Locks tables of schema shard until the transaction ends, without waiting: false if another session has one locked, or
 * waits for it. The control plane stands still for no table that a step does not write; shard_health() names the
 * session that has it.
 */
extern bool shard_control_lock(const char *const *tables, int count);

/* Both: a transaction that has these tables locked; false: it was not begun, come back. */
extern bool shard_control_try(const char *const *tables, int count);

/* Is this node the only member that its map has ever had? */
extern bool shard_control_was_always_alone(void);

/* 128 random bits that cannot be guessed. ERROR if the server has none. */
extern ShardUuid shard_control_random_uuid(void);

extern void shard_control_commit(void);

/* control_actions.c: carries out the actions that a step left in out. */
extern void shard_control_carry_out(void);
extern bool shard_control_report_tickets(void);

/*
 * control_fact.c: makes newer facts rows of the log, in the step's transaction; returns the lanes that have news.
 * active: shards that run here already, as the facts say.
 */
extern ShardLanes
shard_control_facts(const ShardFact *facts, int count, ShardShardRef *active, int *n_active);
extern void shard_control_wake_lanes(ShardLanes lanes);

/* The type was dropped here: its facts need not be remembered any more. */
extern void shard_control_facts_forget(int32 type_id);

/* control_decision.c: writes the decisions among the actions, in the step's transaction; their number. */
extern int shard_control_decisions(const ShardActions *actions);

/* control_move.c: orders for region workers; their answer; region workers that do not answer; forget all. */
extern void shard_control_stop_shard(const ShardShardRef *shard);
extern void shard_control_shard_stopped(const ShardShardRef *shard);
extern bool shard_control_move_run(void);
extern bool shard_control_move_waits(void);
extern void shard_control_move_forget(void);

/*
 * control_import.c: IMPORT_SHARD or PREPARE_IMPORT, after the list of actions has been read. Each
 * round; true: something came.
 */
extern void shard_control_import(const ShardAction *action);
extern bool shard_control_import_run(void);
extern void shard_control_import_forget(void);

/* control_owner.c: the role that owns a type, in a transaction of its own; 0: that is not known. */
extern Oid shard_control_owner_of(int32 type_id);

/* control_strategy.c: SHARD_ACTION_STRATEGY, at once; each round, true: something came; forget all. */
extern void shard_control_strategy(const ShardAction *action);
extern bool shard_control_strategy_run(void);
extern void shard_control_strategy_forget(void);

/* control_states.c: SHARD_ACTION_STATES; each round, true: the machine was told; forget all. */
extern void shard_control_states(const ShardAction *action);
extern bool shard_control_states_run(void);
extern void shard_control_states_forget(void);
extern const char *shard_control_states_unread(void);

/* control_drain.c: a round of all region workers; is void when the lanes were divided again. */
typedef struct ControlDrain
{
	uint64 workers; /* mask */
	uint32 division;
	uint64 wanted[SHARD_MAX_WORKERS];
} ControlDrain;

extern void shard_control_drain_begin(ControlDrain *drain);
extern bool shard_control_drain_is_void(const ControlDrain *drain);
extern bool shard_control_drain_over(const ControlDrain *drain);

/* What region workers have committed becomes durable here. */
extern void shard_control_drain_flush(void);

/* control_stop.c: at the start of the process; each round; at the end of the process. */
extern void shard_control_stop_prepare(void);
extern void shard_control_stop_run(void);
extern void shard_control_stop_forget(void);
extern void shard_control_last_words(void);

/* control_leave.c: when this node exits; each round, true: the machine was told; start from the beginning. */
extern bool shard_control_leave_run(void);
extern void shard_control_leave_forget(void);

/* The status of this node as learned, a ShardMemberStatus. */
extern int32 shard_control_own_status(void);

/* control_members.c: log what changed among the members, and which node is coordinator. */
extern void shard_control_members_follow(bool changed);

/* control_publish.c: the view in shared memory. */
extern void shard_control_publish(void);

/* control_types.c: shard.type and the cluster's types. True: something was done. */
extern void shard_control_types_forget(void);
extern bool shard_control_types_run(void);
extern bool shard_control_types_known(int32 type_id);
extern bool shard_control_types_settled(void);

/* Types of this node that get no number (C19), with their owners, as many as fit; "": none. */
extern void shard_control_types_lack(char *names, size_t size);

/* What the machine was told of: a number of shard_board_types(). False: nothing yet. */
extern bool shard_control_types_told(uint32 *changes);

/* The id by which the cluster knows a type; 0: it knows none. */
extern int32 shard_control_types_learned(const char *name, uint64 *settings_hash);

/*
 * The same; and in what its settings or states differ from those wanted, palloc'd; NULL: in nothing. owner: the role
 * that owns it, if that is another one than wanted. dropping: it is about to go.
 */
extern int32 shard_control_types_compare(const ShardTypeRecord *wanted, const char **difference,
										 const char **owner, bool *dropping);

/* A session wants to start a type, whose row is not committed, if it ever is. */
extern void shard_control_types_wish(const ShardTypeRecord *type, bool first);

/* control_dropped.c: what types that were dropped have left; each round, and when shard.type was read. */
extern void shard_control_dropped_follow(void);
extern void shard_control_dropped_read(void);

/* A transaction that has the extension to itself; false if another session uses it now. */
extern bool shard_control_begin_alone(void);

/* What the cluster says of a type that is wanted here. */
typedef struct ControlTypeAnswer
{
	const char *difference; /* NULL: none */
	const char *owner;		/* the type belongs to that other role; or NULL */
	bool dropping;
} ControlTypeAnswer;

/*
 * control_reply.c: to a request of the ring, an error; a number; that the machine, or the cluster, does not do what a
 * command wants; or that it is unknown whether it does (G6); that the cluster has another type of that name, or a type
 * of another owner; that no coordinator has said in time what the type is; that there is no group of lanes for its
 * owner, the coordinator says, or no room (C19, C20). And what an operator can do about a refusal; NULL: nothing.
 */
extern const char *shard_control_hint(const char *why);
extern void shard_control_reply_error(const ShardRequest *request, int sqlstate,
									  const char *message, const char *detail, const char *hint);
extern void shard_control_reply_number(const ShardRequest *request, int64 number);
extern void shard_control_reply_refused(const ShardRequest *request, const char *why);
extern void shard_control_reply_unknown(const ShardRequest *request, const char *why);
extern void shard_control_reply_differs(const ShardRequest *request, const char *name,
										const ControlTypeAnswer *answer);
extern void shard_control_reply_late(const ShardRequest *request, const char *name,
									 const ControlTypeAnswer *answer);
extern void
shard_control_reply_lacks(const ShardRequest *request, const char *name, ShardTypeRefusal lacks);

/* control_request.c: requests of the ring. */
extern bool shard_control_requests(void);

/*
 * control_messages.c: takes a peer's call, whose payload it owns from now on; serves some of the calls for a while.
 * True: there were any.
 */
extern void shard_control_control_take(ShardRequest *request);
extern bool shard_control_control_run(void);
extern void shard_control_command_done(const ShardAction *done);
extern void shard_control_commands_look(void);

/* The type that shard_start() waits for here, in a transaction that has changed no other; NULL: none. */
extern const char *shard_control_awaited(void);

/* control_data.c: whether the database has anything that a join would lose. */
extern const char *shard_control_data(void);

/* The same of the log and one type; 0: of all types. Both connected to SPI, alone. */
extern bool shard_control_data_in_log(int32 type_id);

/* What the settings say; texts are valid until the next reload. */
extern void shard_control_config(ShardNodeConfig *config, const char *dsn);

/* Those that a reload of the configuration may change; equal ones have equal bytes. */
extern void shard_control_live(ShardLiveSettings *live);

/* Is this database the journal of a cluster, and may it be (R14)? */
extern bool shard_control_is_journal(void);
extern bool shard_control_journal_may_run(void);

/*
 * ---- control_link.c: The control worker's connections to other nodes: control messages, and which node is there.
 *
 * One connection for a node, by its registered address, and some for addresses of nodes that are not
 * known yet. Messages may be lost, as the control plane expects: a queue that is full forgets its
 * oldest, and a connection that breaks forgets what it had.
 */

/* Send to a member; to an address; back to where the message came from that is being looked at. */
extern void shard_control_link_send(int32 node, const char *bytes, int length);
extern void shard_control_link_send_to(const char *dsn, const char *bytes, int length);
extern void shard_control_link_send_back(const char *bytes, int length);

/* Ask which node is at a member's registered address; the answer is an event. */
extern void shard_control_link_who(int32 node);

/* Ask at an address whether the node there joins under that token; answer or failure is an event with that question. */
extern void shard_control_link_joiner(const char *dsn, ShardUuid token, int64 question);

/* This message came, via as for shard_node_receive: its sender lives. */
extern void shard_control_link_heard(int32 via, const char *bytes, int length);

/* Connects, polls, sends; takes answers as steps of the machine. True: something came. */
extern bool shard_control_link_run(void);

/* Has a link that is open messages that have not been sent, or not been answered? */
extern bool shard_control_link_waits(void);

/* Fills in what is known of the link to a member. */
extern void shard_control_link_report(int32 node, int64 now, ShardMemberReport *report);

/* The registered address of a member, in the current memory context; "" if it is not known. */
extern const char *shard_control_link_address(int32 node);

/* Closes all, and forgets which nodes were heard. */
extern void shard_control_link_forget(void);

/* ---- control_seal.c: a code that only a holder of the secret can make (R23) ---- */

/*
 * The first 128 bits of HMAC-SHA-256 of the bytes, with the secret as key. ERROR if the server's library cannot compute it;
 * in and out of transactions.
 */
extern ShardUuid shard_control_seal(ShardUuid secret, const void *bytes, size_t length);
