/*
 * core/node/node_private.h
 *		What the files of core/node share: the node itself, and the parts of a step.
 *
 * now: microseconds of the clock that the host passes, as in all of core. Functions without another word append their actions
 * to node->out. Messages and what they point at live as long as the step.
 */
#pragma once

#include "core/member/detector.h"
#include "core/member/lease.h"
#include "core/member/membership.h"
#include "core/node/node.h"
#include "core/base/timing.h"
#include "core/base/arena.h"
#include "lib/stringinfo.h"

/* Claims whose grant may have been decided without this node hearing of it. */
#define NODE_CLAIMS 8

/* Calls that wait for this node to leave; when more come, the first call ends and is told that a later one waits. */
#define NODE_LEAVES 8

/* Another member, as this node's failure detector sees it. */
typedef struct NodePeer
{
	int32 node;
	bool unreachable;
	ShardDetector detector;
	ShardUuid code; /* the one that it was told last, by this node in office (T7), */
	int64 told;		/* and when */
} NodePeer;

/* A type that runs here. */
typedef struct NodeType
{
	char *name;
	bool proxy;
	bool refused;		/* the cluster has another type of that name */
	int32 type_id;		/* 0: not learned yet */
	ShardMapEntry wish; /* the type's value and number as this node would have it; owned */
	uint64 settings_hash;
	bool foreign; /* it has another owner in the cluster: it runs nowhere here (C18) */
	bool altered; /* its states have another structure than the cluster's, which is to be told */
	int64 since;  /* n of the learned map when the type was first told */
	int32 taken;  /* id of the type that it is, as the coordinator says */
	int64 asked;  /* when the coordinator was first asked for it; 0: not yet */
	ShardTypeRefusal lacks; /* what the cluster has not got for it (C19, C20), */
	int64 ask_again;		/* and when the coordinator is asked again */
} NodeType;

/* A type that was dropped here, while the map may still have it. */
typedef struct NodeDrop
{
	char *name;
	int32 type_id; /* 0: not in the map, as far as known */
} NodeDrop;

/*
 * A message that waits for a transaction to be durable (T3), or to be looped back to ourselves; or the
 * end of a command, whose bytes are its text.
 */
typedef struct NodeHeld
{
	struct NodeHeld *next;
	int64 ticket;
	int32 to;
	bool stays; /* a command or the answer to one: is not dropped to make room (C12) */
	bool is_done;
	bool good;	  /* of a command's end: it was carried out; */
	bool unknown; /* whether it was is not known; */
	int64 number; /* its result; */
	int64 token;  /* and the command's number */
	size_t length;
	char bytes[FLEXIBLE_ARRAY_MEMBER];
} NodeHeld;

typedef struct NodeQueue
{
	NodeHeld *first;
	NodeHeld *last;
	int count;
	size_t bytes;
} NodeQueue;

/* What a join needs until it is done (R16). */
typedef struct NodeJoin
{
	ShardUuid token;
	char *address; /* NULL: no join under way */
	int64 command; /* token of the command that COMMAND_DONE answers */
	int64 next_try;
	char why[160]; /* why the cluster has this node ask on; "": it does not */
} NodeJoin;

/* A member that told what it knows, or was given up by an operator. */
typedef struct NodeAnswer
{
	int32 node;
	bool given_up;
} NodeAnswer;

/* A command of this node's operator, for the coordinator (C12). */
typedef struct NodeCommand
{
	ShardCommand command; /* its text is owned */
	int64 number;
	int64 ballot; /* of the coordinator that it was sent to; 0: it was not sent */
	int64 next_send;
	int64 deadline;
} NodeCommand;

/* What a command of another node was answered. */
typedef struct NodeAnswered
{
	int64 token; /* 0: none */
	bool good;
	int status;
	int64 number;
	char *why; /* owned; NULL: nothing */
} NodeAnswered;

/* COMMAND_ANSWER's status. */
#define NODE_ANSWER_KNOWN 0
#define NODE_ANSWER_UNKNOWN 1 /* it may be carried out */
#define NODE_ANSWER_NOT_ME \
	2 /* the node that was asked does not hold that office: nothing was done */

/* A command that was carried out, and is answered when that is decided (G6). */
typedef struct NodeEnd
{
	ShardAsker asker;
	int64 number;	/* its result */
	int64 n;		/* it is decided when the map has come to this n, */
	int64 since;	/* and a later heartbeat shows the office; PG_INT64_MIN: n itself does */
	int32 admitted; /* or, if not 0, when this node has */
	ShardUuid uuid; /* the incarnation that the operator has admitted; */
	int64 deadline; /* until when the end waits for that admission */
} NodeEnd;

/* The newest command that came from a node, and the answers that were given to it last. */
#define NODE_ANSWERS 8
typedef struct NodeAsked
{
	int32 node;
	int32 inc_no;
	int64 token;
	int next; /* place of the next answer */
	NodeAnswered answers[NODE_ANSWERS];
} NodeAsked;

/* What is known in a cluster whose journal forgot (R14). */
typedef struct NodeJournal
{
	int32 sealed; /* durable: the era to come for which this node told what it knew; 0: none */
	ShardUuid sealed_for; /* durable: the start of the journal for which it told that */
	ShardMap *map;		  /* the greatest that was told, while this node collects; else NULL */
	ShardUuid start;	  /* of the journal, */
	int32 era;			  /* to come, */
	int32 least;		  /* and the least era that members have asked for; 0: they ask for none */
	NodeAnswer *answers;
	int n_answers;
	int space;
	int64 next_try;
} NodeJournal;

struct ShardNode
{
	ShardNodeConfig config;

	/* Identity, durable but for the kind of start. */
	ShardUuid cluster;
	int32 era;
	int32 id;
	int32 inc_no; /* 0 until admitted for the first time */
	ShardUuid inc_uuid;
	ShardUuid claimed[NODE_CLAIMS]; /* incarnations claimed since the last admission, newest last */
	int n_claimed;
	ShardUuid secret; /* for seals; as old as the identity (R23) */
	bool fenced;
	int32 fenced_by
		[SHARD_MAX_MEMBERS]; /* nodes that said, when asked, that this incarnation is over */
	int n_fenced_by;
	int32
		superseded_by; /* not admitted: the incarnation that lives, which this database never claimed; 0: none */
	int64 stepped;	   /* when the last step was */
	int64 awake_since; /* before that there was a pause: a silent node may have spoken meanwhile */
	int32
		via; /* of the message that is looked at (shard_node_receive); the node itself: by its loop */
	NodeJoin join;
	bool has_identity;
	ShardStartKind start_kind;

	/* This start. */
	bool running;
	bool admitted;
	bool found_itself; /* at its registered address, so it is no copy of a running machine */
	int64 next_look;
	char *looked_at;	  /* the address; owned, NULL: none yet */
	int64 look_since;	  /* the first look without an answer; 0: there is none */
	ShardNodePlace place; /* as the last answer said */
	bool handling;		  /* workers were told to run */
	bool pushing;
	int32 status;	   /* ShardMemberStatus, as learned */
	char refusal[400]; /* why the claim was refused, as last told */

	ShardVoter *voter;
	ShardMap *learned;
	ShardMap *past; /* durable: learned in an earlier era; NULL: what is learned replaces it */
	ShardProposer *proposer;
	NodeJournal journal;
	ShardRoster *roster;
	ShardHomes *homes;
	bool in_office; /* roster and homes are set up for the office held */

	/* The coordinator, as far as heard of. */
	int32 coordinator;
	int64 coordinator_ballot;
	int64 coordinator_heard;
	int64 heartbeat;		/* number of its last one, */
	int64 heartbeat_ballot; /* and the ballot that it came under */
	bool heartbeat_unnamed; /* it was answered before this incarnation had a number */
	int64 next_campaign;
	int campaigns; /* in vain since a coordinator was heard */

	/* Nodes whose place is claimed in vain, as it said last (I14). */
	int n_claimed_nodes; /* by an incarnation that was found at its address, */
	int32 claimed_nodes[SHARD_MAX_CLAIMS];
	int n_claimed_elsewhere; /* or only by others */
	int32 claimed_elsewhere[SHARD_MAX_CLAIMS];

	NodePeer *peers;
	int n_peers;
	int64 next_heartbeat;

	ShardLease lease;
	int64 next_renewal;
	int64 lease_told; /* the end of the lease that the workers know */

	/* The region's side. */
	NodeType *types;
	int n_types;
	NodeDrop *drops;
	int n_drops;
	bool registered;
	int64 registration; /* number of the last one that was sent */
	int64 next_register;
	int64 types_n;					 /* the newest record of a type that was learned */
	int64 types_as_of;				 /* SHARD_EVENT_TYPES_TOLD */
	bool tell_as_of;				 /* types_as_of is still to be told to the coordinator */
	struct node_shards_hash *wanted; /* shards without a known home that workers want homes for */
	int64 next_want;
	struct node_shards_hash *started; /* epochs of the shards that are active here */
	int64 next_plan;				  /* moves are planned again from then on */
	NodeCommand *commands;
	int n_commands;
	int64 last_command;
	ShardUuid
		code; /* by which the coordinator takes commands, and the wish to leave, for this node's */
	int64 next_try_of_code; /* from then on another code has the waiting commands sent at once */
	NodeAsked *asked;
	int n_asked;
	NodeEnd *ends; /* in office; the oldest first */
	int n_ends;
	int64 first_office; /* ballot of the first office of this process; 0: there was none */
	bool stopping;		/* the server is going down */
	bool leave_wished;
	bool emptied;	 /* it exits, and has left nothing undone (M20) */
	int64 own_homes; /* rises when a home here is known to change */
	int n_leaves;
	int64 leaves[NODE_LEAVES]; /* commands that wait for it, newest last */
	int64 leave_number;		   /* rises, as those of commands do (N6) */
	bool leave_sent; /* a wish, to any node, maybe by an earlier process of this incarnation */
	int64 next_leave;
	int64 next_admit;
	int64 next_delta;

	/* Durability. */
	int64 last_ticket;
	int64 persisted;
	int64 disk_moved; /* the last time that a transaction became durable, or none waited */
	NodeQueue held;
	NodeQueue loop;

	/* The step under way. */
	ShardActions *out;
	int first_action;
	ShardArena *arena; /* of received messages */
};

/* ---- node_identity.c -------------------------------------------------------------------------- */

/* Writes the durable identity in the transaction of this step. */
extern void shard_node_write_identity(ShardNode *node);

/* Takes the durable identity from its record. False: the bytes are damaged. */
extern bool shard_node_load_identity(ShardNode *node, const ShardMapEntry *entry);

/* Makes a voter that seals by this identity; the caller owns it. */
extern ShardVoter *shard_node_create_voter(const ShardNode *node);

/* Replaces node->voter by a new one, and clears its stores: this node is in another cluster or era. */
extern void shard_node_new_voter(ShardNode *node);

/* ---- node.c ----------------------------------------------------------------------------------- */

/* Is this node its whole cluster, so that there is no other node to which it could have promised anything? */
extern bool shard_node_is_alone(const ShardNode *node);

/* A member's record as learned, with texts in the arena of received messages. False: there is no such member. */
extern bool shard_node_get_member(const ShardNode *node, int32 id, ShardMemberRecord *record);

/* Whether the command was to end this node's own part, and has: no answer comes to a node that takes none any more. */
extern bool shard_node_obeyed(const ShardNode *node, const ShardCommand *command);

/* A new message to the coordinator that is heard, for the caller to fill in; NULL: no coordinator is heard. */
extern ShardControl *shard_node_to_coordinator(ShardNode *node, ShardControlKind kind);

/* ---- node_step.c: the parts of a step --------------------------------------------------------- */

/* Appends a copy of a message that waits for the transaction with that ticket. to: the node that it is for. */
extern void
shard_node_step_queue(NodeQueue *queue, int64 ticket, int32 to, const char *bytes, size_t length);

/* Takes out the first message, which the caller frees; NULL: there is none. */
extern NodeHeld *shard_node_step_take(NodeQueue *queue);

/* Answers a command of this node's operator once this step is durable. why: valid until the step has ended; NULL: none. */
extern void shard_node_step_done(ShardNode *node, int64 token, bool good, const char *why);

/* Answers a command likewise, with a number as its result. unknown: it is not known whether the command was carried out. */
extern void shard_node_step_answer(ShardNode *node, int64 token, bool good, int64 number,
								   bool unknown, const char *why);

/*
 * Ends a step: its writes become one transaction, its messages get their headers and wait for what they presuppose. An answer
 * over the link by which a message came (node 0) does not wait, since no such answer says more than what is durable already.
 */
extern void shard_node_step_finish(ShardNode *node);

/* Sends the messages, and answers the commands, that waited for transactions which are durable now. */
extern void shard_node_step_release(ShardNode *node);

/* Is it an ADMIT that claims nothing, and only asks which incarnation lives (I4)? */
extern bool shard_node_step_asks(const ShardControl *message);

/*
 * Has the disk made no progress for a while, with something to be done? Then this node can decide nothing, and as coordinator
 * would only keep others from deciding, since its heartbeats presuppose nothing durable.
 */
extern bool shard_node_step_is_stuck(const ShardNode *node, int64 now);

/* ---- node_join.c: joining another cluster ----------------------------------------------------- */

/* Puts into a member's record what the settings say of this node now. Texts are those of the configuration. */
extern void shard_node_join_describe(const ShardNode *node, ShardMemberRecord *member);

/* Asks the seed, or the node that the seed named, again; not before it is durable that this node joins (R16). */
extern void shard_node_join_tick(ShardNode *node, int64 now);

/* JOIN_REPLY, COORDINATOR_HINT: what the other cluster answers. */
extern void shard_node_join_receive(ShardNode *node, int64 now, const ShardControl *message);

/* The command JOIN: begins to join, or refuses. From then on this node is no seed for others (R16). */
extern void shard_node_join_begin(ShardNode *node, const ShardCommand *command);

/* ---- node_member.c, node_place.c: admission, heartbeats, leases ------------------------------- */

/* The node starts with the records that it has loaded. */
extern void shard_node_member_start(ShardNode *node, int64 now);

/* Due work of a member: claims its place, sends heartbeats, renews its lease; while it joins, the join alone. */
extern void shard_node_member_tick(ShardNode *node, int64 now);

/* JOIN_REPLY, COORDINATOR_HINT, HEARTBEAT, GRANT, ADMIT_REPLY, GOODBYE, FENCED: what concerns this node as a member. */
extern void shard_node_member_receive(ShardNode *node, int64 now, const ShardControl *message);

/* EMPTIED: nothing is left here of a node that leaves (M20). GOODBYE: the process ends. */
extern void shard_node_member_event(ShardNode *node, const ShardNodeEvent *event);

/* Tells the region workers what they may do, if that has changed. why: the reason for people if they may do nothing. */
extern void shard_node_member_workers(ShardNode *node, const char *why);

/* A message came from that node: if it is a member, it lives. Other nodes are not watched. */
extern void shard_node_member_heard(ShardNode *node, int64 now, int32 from);

/*
 * A caller that was written off, or has left, is told so in the answer: its registered address may lead elsewhere by now, and
 * a message would not reach it.
 */
extern void shard_node_member_called(ShardNode *node, const ShardControl *message);

/* A former life votes nothing, but is reminded of what the node has voted since (R23), for it may be admitted. */
extern void shard_node_member_remind_former(ShardNode *node, const ShardControl *message);

/* Is this database the one at the node's address (I11), and no former life of the node (I4)? Else it neither votes nor handles. */
static inline bool
shard_node_is_in_place(const ShardNode *node)
{
	return node->found_itself && node->superseded_by == 0;
}

/* Is the incarnation one that this database has claimed since it was admitted last (I7)? */
extern bool shard_node_member_claimed(const ShardNode *node, ShardUuid uuid);

/* Takes in which incarnation was found at this node's registered address, and how it was reached. */
extern void
shard_node_place_who(ShardNode *node, int64 now, ShardUuid uuid, ShardAddressGround ground);

/* Has the host look at this node's registered address when it is time (I11). */
extern void shard_node_place_tick(ShardNode *node, int64 now);

/* This node's operator says where it is: the node counts as found there. */
extern void shard_node_place_said(ShardNode *node);

/*
 * The record of this node itself was learned, or that there is none: follows its status, or ends as a node that has left or
 * was removed.
 */
extern void shard_node_member_self(ShardNode *node);

/* ---- node_learn.c: decided facts and what follows from them ----------------------------------- */

/*
 * Learns decided entries: all that are newer than from_n (0: the whole map), up to upto_n. Entries that do not continue what
 * is known are ignored; the caller asks for what is missing.
 */
extern void shard_node_learn(ShardNode *node, const ShardMapEntry *entries, int n_entries,
							 int64 from_n, int64 upto_n);

/* Makes the map of a cluster that was founded here durable. */
extern void shard_node_learn_founded(ShardNode *node);

/* Takes the own voter's map, with which the new voters begin an era, as the learned one, durably (R13). */
extern void shard_node_learn_forced(ShardNode *node);

/* The newest map that this node has learned, of this era or an earlier one, owned by the node; *point: its era and n. */
extern const ShardMap *shard_node_learn_known(const ShardNode *node, ShardMapPoint *point);

/* Forgets the map of an earlier era: the map of this era is known, or the cluster is another one. */
extern void shard_node_learn_drop_past(ShardNode *node);

/*
 * Forgets the map but for these members, through whose addresses the rest can be learned; they are older than anything that
 * will be learned. members: their values are not those of the map, which is emptied first.
 */
extern void shard_node_learn_addresses(ShardNode *node, const ShardMapEntry *members, int count);

/*
 * Enters an era in which an operator gave the cluster new voters (R13), as node from says: what was promised, accepted and
 * learned under the old voters counts no more. Each node enters an era once, by this transaction; a voter of the old era that
 * returns has no vote in the new one until it is made a voter there.
 */
extern void shard_node_learn_era(ShardNode *node, int32 era, int32 from);

/* Tells the region workers all homes: at their start. */
extern void shard_node_learn_tell(ShardNode *node);

/* Tells the region workers one home; they ignore what they know. Homes of a type that is being dropped are not told. */
extern void shard_node_learn_tell_home(ShardNode *node, const ShardMapEntry *home);

/* Asks the node that told of decided facts which are missing here for them, at most once in SHARD_RESEND_INTERVAL. */
extern void shard_node_learn_ask(ShardNode *node, int64 now, int32 from);

/* Takes in a decided entry ahead of the delta that will bring it again: the point of the learned map stays. */
extern void shard_node_learn_end(ShardNode *node, const ShardMapEntry *entry);

/* LEARN, SHARD_HOMES: decided facts. */
extern void shard_node_learn_receive(ShardNode *node, int64 now, const ShardControl *message);

/* ---- node_journal.c: the journal forgot what it had accepted ---------------------------------- */

/* Is the journal the voter, as far as learned, so that every member that is up may campaign? */
extern bool shard_node_journal_votes(const ShardNode *node);

/* COLLECT, COLLECTED, RESTORE_JOURNAL, GET_DELTA, and PRE_VOTE_REPLY of the journal. */
extern void shard_node_journal_receive(ShardNode *node, int64 now, const ShardControl *message);

/* Goes on collecting what members know; with all answers, gives the journal its map. */
extern void shard_node_journal_tick(ShardNode *node, int64 now);

/* An operator gives up a member that has not told what it knows: it is not waited for. False: this node collects nothing. */
extern bool shard_node_journal_give_up(ShardNode *node, int32 id);

/* Another era begins: drops the seal for the old one. The caller writes the identity. */
extern void shard_node_journal_new_era(ShardNode *node);

/* A member still asks in an era that is over: the header of the answer tells it the new one. */
extern void shard_node_journal_late(ShardNode *node, const ShardControl *message);

/* A journal without cluster belongs to that of the first HEARTBEAT, PRE_VOTE or GET_DELTA that comes. */
extern void shard_node_journal_claimed(ShardNode *node, const ShardControl *message);

/* ---- node_type.c: types that run here, registration ------------------------------------------- */

/* TYPE, DROP_TYPE, TYPES_TOLD: what the host says of its types. */
extern void shard_node_type_event(ShardNode *node, const ShardNodeEvent *event);

/* TYPE_STARTED, REGISTER_ACK of the coordinator. */
extern void shard_node_type_receive(ShardNode *node, int64 now, const ShardControl *message);

/* The type of that name that runs here; NULL: there is none. Valid until the types change. */
extern NodeType *shard_node_find_type(const ShardNode *node, const char *name);

/*
 * Registers what runs here, until the present coordinator has acknowledged it (C3). Wishes for types are sent after that: a
 * type that was just dropped may be wished for again.
 */
extern void shard_node_type_announce(ShardNode *node, int64 now);

/*
 * Takes types that were dropped here out of the map, if this node is its whole cluster. A type whose number is just being
 * decided is taken out when that is decided.
 */
extern void shard_node_type_finish_drops(ShardNode *node, int64 now);

/* A type was learned, or that it is gone: what waited for that goes on. */
extern void shard_node_type_learned(ShardNode *node, const ShardMapEntry *entry);

/* START_TYPE of this node itself: does it still wish for the type, with what the message says? */
extern bool shard_node_type_is_wished(const ShardNode *node, const ShardControl *message);

/* Another coordinator is heard: it knows nothing of what runs here, and may take a type that the former one refused. */
extern void shard_node_type_new_coordinator(ShardNode *node);

/* Forgets the numbers of types: they belong to a former cluster or era. */
extern void shard_node_type_forget(ShardNode *node);

/* The learned map was replaced by another one: finds the newest record of a type in it. */
extern void shard_node_type_recount(ShardNode *node);

/* Frees the types of a node that is being destroyed. */
extern void shard_node_type_destroy(ShardNode *node);

/* ---- node_region.c: wanted homes, starts and stops of shards ---------------------------------- */

/*
 * The type with that number was dropped: no request waits for its homes any more, and none of its shards counts as running
 * here.
 */
extern void shard_node_region_drop(ShardNode *node, int32 type_id);

/* Due work for the region workers: types, registration, homes that they want, the wish to leave. */
extern void shard_node_region_tick(ShardNode *node, int64 now);

/* HOST_SHARDS, CANNOT_LEAVE, HAND_OFF, PREPARE_IMPORT, IMPORT of the coordinator. */
extern void shard_node_region_receive(ShardNode *node, int64 now, const ShardControl *message);

/* HOMES_WANTED, SHARDS_STARTED, and what region workers and importers report of moves. */
extern void shard_node_region_event(ShardNode *node, const ShardNodeEvent *event);

/* Another coordinator is heard: requests and reports are sent to it again. */
extern void shard_node_region_new_coordinator(ShardNode *node);

/* The region workers were stopped: no shard counts as running here. */
extern void shard_node_region_stopped(ShardNode *node);

/* Forgets the numbers of types, and what is kept under them: they belong to a former cluster or era. */
extern void shard_node_region_forget(ShardNode *node);

#define SHARD_NODE_LEAVE_CANCELLED "the leave was cancelled by shard_leave(cancel => true)"

/* The command LEAVE: this node wishes to leave, and the command with that token waits for the end. */
extern void shard_node_region_leave(ShardNode *node, int64 now, int64 token);

/*
 * This node no longer wishes to leave, or has left: answers the commands that wait for it. why: as for
 * shard_node_step_done().
 */
extern void shard_node_region_end_leave(ShardNode *node, bool good, const char *why);

/* Frees what this file keeps of a node that is being destroyed. */
extern void shard_node_region_destroy(ShardNode *node);

/* ---- node_command.c: operators' commands, from this node or another one ----------------------- */

/* Does any node take a command of that kind, for the coordinator? kind: also a number that came from another node. */
extern bool shard_node_command_forwards(ShardCommandKind kind);

/*
 * Takes a command of this node's operator: carries it out, forwards it to the coordinator, or answers it. Its text is copied.
 */
extern void shard_node_command_give(ShardNode *node, int64 now, const ShardCommand *command);

/* This node is to leave after all: a command to stay that waits for a coordinator counts no more (N6). */
extern void shard_node_command_end_stays(ShardNode *node);

/* Is there a coordinator: this node, or one that it hears? */
extern bool shard_node_command_heard(const ShardNode *node, int64 now);

/* COMMAND of another node, COMMAND_ANSWER and COMMAND_CODE of the coordinator. */
extern void shard_node_command_receive(ShardNode *node, int64 now, const ShardControl *message);

/* Due work of commands: sends those that wait for the coordinator again, and answers those whose time is over. */
extern void shard_node_command_tick(ShardNode *node, int64 now);

/* Frees the commands, and their answers, of a node that is being destroyed. */
extern void shard_node_command_destroy(ShardNode *node);

/* ---- node_answer.c: what commands are answered ------------------------------------------------ */

/*
 * Tells the end of a command to the node that asked for it, this node (0) or another one. status: a NODE_ANSWER; why: as for
 * shard_node_step_done().
 */
extern void shard_node_answer(ShardNode *node, ShardAsker asker, bool good, int status,
							  int64 number, const char *why);

/* Answers PLAN, likewise, with the homes as they would be. more: more moves would begin than those. */
extern void shard_node_answer_plan(ShardNode *node, ShardAsker asker, bool more,
								   const ShardMapEntry *homes, int n_homes);

/* What is known of a node that has sent commands; NULL: nothing. Valid until another node sends its first one. */
extern NodeAsked *shard_node_answer_asked(const ShardNode *node, int32 id);

/* A command has come again: if it was answered, the answer was lost and is sent again. False: it was not answered yet. */
extern bool shard_node_answer_again(ShardNode *node, const ShardControl *message);

/*
 * Answers a command that was meant for an office which this node does not hold. may_be_done: this node has held it, and may
 * have carried out the command.
 */
extern void
shard_node_answer_not_me(ShardNode *node, const ShardControl *message, bool may_be_done);

/* Is there room for one more command whose end has to wait? */
extern bool shard_node_answer_has_room(const ShardNode *node);

/*
 * Answers a command as done, with that number, when all that was proposed up to now is decided; admitted: or, if not 0, when
 * the admission of that node is.
 */
extern void shard_node_answer_when_decided(ShardNode *node, int64 now, ShardAsker asker,
										   int64 number, int32 admitted);

/* Tells the ends that have come meanwhile. */
extern void shard_node_answer_tick(ShardNode *node, int64 now);

/* The office is lost: it cannot be known how the commands end that wait here, and their askers are told so. */
extern void shard_node_answer_lose_office(ShardNode *node);

/* Frees what is kept of commands and answers. */
extern void shard_node_answer_destroy(ShardNode *node);

/* ---- node_office.c: campaigns, and the coordinator's duties ----------------------------------- */

/* Campaigns if it is time, and does the due work of a coordinator; a node whose disk is stuck steps down. */
extern void shard_node_office_tick(ShardNode *node, int64 now);

/* Answers of voters, and what members send to the coordinator. */
extern void shard_node_office_receive(ShardNode *node, int64 now, const ShardControl *message);

/* WHO_ANSWERED, STRATEGY, STATES: answers of the host to what the coordinator asked. */
extern void shard_node_office_event(ShardNode *node, int64 now, const ShardNodeEvent *event);

/*
 * The command FORCE_VOTERS, where all voters are lost: this node, which knows what was decided, becomes the first of the new
 * ones (R13). The state that it has is the beginning of an era that refuses the old voters.
 */
extern void shard_node_office_force(ShardNode *node, int64 now, const ShardCommand *command);

/* The end of each step: batches go out, decisions are taken in. */
extern void shard_node_office_after(ShardNode *node, int64 now);
