/*
 * core/map/control.h
 *		Messages of the control plane: what nodes say to one another beside the streams.
 *
 * One struct for all kinds, since most of them use the same few fields; the list of kinds says which.
 * Encoded, a message is its kind, a bitmap of the fields that are not zero, and those fields, so an
 * unused field costs nothing and a decoder that does not know a kind can still skip it.
 */
#pragma once

#include "core/map/command.h"
#include "core/map/record.h"
#include "core/base/fields.h"
#include "core/base/arena.h"

typedef enum ShardControlKind
{
	/* Replicated map (section 3). b: ballot of the sender */
	SHARD_CONTROL_PRE_VOTE = 1,	  /* b: the ballot to come */
	SHARD_CONTROL_PRE_VOTE_REPLY, /* b; flag: yes; ballot: promised; accepted; entries: as
									* PROMISE; voter_state; uuid: start of a journal */
	SHARD_CONTROL_PREPARE, /* b; uuid2: own seal on it; ballot, remembered, uuid: what the sender remembers of
							  * the voter, and its seal (R12) */
	SHARD_CONTROL_PROMISE, /* b; accepted; uuid: seal; entries: the voters value, if any */
	SHARD_CONTROL_FETCH,   /* b; above */
	SHARD_CONTROL_STATE,   /* b; accepted; above: as asked; entries */
	SHARD_CONTROL_SYNC, /* b; target; (ballot, above): the point that the entries fit, above 0: any; entries */
	SHARD_CONTROL_SYNCED,	 /* b; accepted; uuid: seal */
	SHARD_CONTROL_ACCEPT,	 /* b; batch_n; prev; commit_n; entries */
	SHARD_CONTROL_ACCEPTED,	 /* b; batch_n; uuid: seal */
	SHARD_CONTROL_NEED_SYNC, /* b; batch_n; accepted */
	SHARD_CONTROL_NACK,		 /* b: of the refused message; ballot: promised; text: why */
	SHARD_CONTROL_HEARTBEAT, /* b; token: number of the heartbeat; commit_n; nodes: nodes whose place is claimed
							  * in vain (I14), nodes2: those of them at whose address no node was found;
							  * ballot, remembered, uuid: as PREPARE */
	SHARD_CONTROL_HEARTBEAT_ACK, /* b; token; learned_n; nodes: those that the sender cannot reach; accepted; ballot:
								  * promised; voter_state; uuid: code; flag: it exits, and has not left everything
								  * yet (M20) */
	SHARD_CONTROL_LEARN,	 /* above; commit_n: up to; learned: of a journal; entries */
	SHARD_CONTROL_GET_DELTA, /* learned_n */
	SHARD_CONTROL_COLLECT, /* uuid: start of the journal, which forgot; new_era: the one to come: say
							  * what you know, learn no more (R14) */
	SHARD_CONTROL_COLLECTED, /* uuid; new_era: the least one to come; flag: it is the one asked for;
							  * learned: b is the era; entries: all of it */
	SHARD_CONTROL_RESTORE_JOURNAL, /* b; uuid: start of the journal; new_era; learned; entries */

	/* Members (sections 1 and 5) */
	SHARD_CONTROL_MEMBER_HEARTBEAT = 32, /* nothing: that it came is the message */
	SHARD_CONTROL_JOIN,					 /* uuid: token; member; types; store_mode */
	SHARD_CONTROL_JOIN_REPLY, /* flag: welcome; node: granted id; uuid: cluster; uuid2: token; text: why not;
							   * waits: not yet */
	SHARD_CONTROL_ADMIT,	   /* node, inc_no: the previous one, uuid: new incarnation, start_kind;
						  * entries: one member value, as its settings are now. Without uuid
						  * it claims nothing, and asks whether another incarnation lives (I4) */
	SHARD_CONTROL_ADMIT_REPLY, /* flag: granted; inc_no; uuid; text: why not */
	SHARD_CONTROL_I_AM =
		38, /* of a host alone, never sent: uuid2: the incarnation found at an address */
	SHARD_CONTROL_FENCED, /* inc_no: the one that lives; member_status; entries: its record, if the
						   * node is no member any more */
	SHARD_CONTROL_RENEW,  /* token: k */
	SHARD_CONTROL_GRANT,  /* token: k; facts_n; ttl_ms */
	SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ, /* the member wishes to leave; wish; uuid: code */
	SHARD_CONTROL_COORDINATOR_HINT, /* node, text: the coordinator, as far as the sender knows; uuid2: token */
	SHARD_CONTROL_CANNOT_LEAVE, /* token of the wish; text: why */
	SHARD_CONTROL_GOODBYE,		/* nothing: this incarnation ends now */

	/* Shards (sections 4 and 9) */
	SHARD_CONTROL_REGISTER = 64, /* learned_n; nodes: type ids hosted here; nodes2: others that are
								  * here, or may be about to be; commit_n: both say all, as of that n
								  * (C9); token: to be answered; flag: the node is going down; gate */
	SHARD_CONTROL_REGISTER_ACK,	 /* commit_n, token */
	SHARD_CONTROL_START_TYPE,	 /* entries: one type value, key.a: the id wished for, or 0 */
	SHARD_CONTROL_TYPE_STARTED,	 /* type_id; flag: equal or new; text: why not; refusal */
	SHARD_CONTROL_GET_SHARD_HOMES, /* shards */
	SHARD_CONTROL_SHARD_HOMES,	   /* entries: homes; the point of what is learned stays */
	SHARD_CONTROL_HOST_SHARDS,	   /* shards with epochs: start these if their facts say so */
	SHARD_CONTROL_SHARDS_STARTED,  /* shards with epochs: active here */
	SHARD_CONTROL_HAND_OFF = 73,   /* shard, its epoch and move: stop, seal (M2, M3) */
	SHARD_CONTROL_SHARD_STOPPED,   /* shard, epoch, move: sealed; token: rows */
	SHARD_CONTROL_IMPORT,		   /* shard, epoch: the new one, move, node: copy from */
	SHARD_CONTROL_STAGED,		   /* shard, epoch, move */
	SHARD_CONTROL_IMPORT_FAILED,   /* shard, epoch, move; text: why */
	/* shard, epoch and move to come, node: may it be copied from there (M16)? */
	SHARD_CONTROL_PREPARE_IMPORT = 79,
	SHARD_CONTROL_IMPORT_READY, /* shard, epoch, move: it may */

	/* Operators' commands, from any member to the coordinator (C12) */
	SHARD_CONTROL_COMMAND = 96, /* token; uuid: code; command; node; number; flag; text; shards */
	SHARD_CONTROL_COMMAND_ANSWER, /* token; flag: done; outcome; result; text: why not; entries of PLAN */
	SHARD_CONTROL_RESIGN,		  /* b: the office of that ballot is given up (R32) */
	SHARD_CONTROL_COMMAND_CODE /* b: of the office; uuid: the code that a command, a wish to leave or a report was without */
} ShardControlKind;

/* Where the map is kept (shard.state_store_mode), as a joiner says it. */
typedef enum ShardStoreMode
{
	SHARD_STORE_MODE_UNSAID = 0,
	SHARD_STORE_MODE_MEMBERS = 1, /* ddata */
	SHARD_STORE_MODE_JOURNAL = 2  /* persistence (R14) */
} ShardStoreMode;

/* Why a type is not taken. */
typedef enum ShardTypeRefusal
{
	SHARD_TYPE_NOT_TAKEN = 0,	/* as it is: it has to change */
	SHARD_TYPE_LACKS_GROUP = 1, /* there is no group of lanes for its owner now (C19) */
	SHARD_TYPE_LACKS_ROOM = 2	/* nor room for so many types or shards (C20) */
} ShardTypeRefusal;

/* One shard of a list. */
typedef struct ShardShardRef
{
	int32 type_id;
	int32 shard;
	int32 epoch;
	int64 move_id;
} ShardShardRef;

/* Its fields as bytes. */
extern void shard_control_shard_fields(ShardFields *fields, ShardShardRef *shard);

typedef struct ShardControl
{
	ShardControlKind kind;

	/* Header (I5): every message carries it; the sender's node fills it in. */
	ShardUuid cluster;
	int32 era;
	int32 protocol_version;
	int32 from;		/* 0: not a member yet; then the host knows where answers go */
	int32 from_inc; /* 0: not admitted yet */
	int32 to;		/* 0: the node at the address, whatever its id */
	int32 to_inc;	/* 0: not known */

	int64 b;
	int64 ballot;
	union /* each of these unions is one field of the wire; the kind says which member it is */
	{
		ShardMapPoint any_point;  /* for the codec, and for limits that hold for all kinds */
		ShardMapPoint accepted;	  /* PRE_VOTE_REPLY, PROMISE, STATE, SYNCED, NEED_SYNC,
								   * HEARTBEAT_ACK: of the map of the sender's voter */
		ShardMapPoint remembered; /* PREPARE, HEARTBEAT: of the receiver's voter */
		ShardMapPoint target;	  /* SYNC: of the coordinator's map */
		ShardMapPoint prev;		  /* ACCEPT: the one that the batch was made for */
		ShardMapPoint learned;	  /* COLLECTED, RESTORE_JOURNAL, LEARN: of the map in entries */
	};
	union
	{
		int64 any_n;   /* as any_point */
		int64 above;   /* FETCH, STATE, SYNC, LEARN: entries are those newer than this, 0: all */
		int64 batch_n; /* ACCEPT, ACCEPTED, NEED_SYNC */
		int64
			learned_n; /* HEARTBEAT_ACK, GET_DELTA, REGISTER: up to where the sender has learned */
		int64 facts_n; /* GRANT: of the facts that the lease presupposes */
		int64 wish;	   /* GRACEFUL_SHUTDOWN_REQ: number of the wish (N6) */
		int64 number;  /* COMMAND: as in ShardCommand */
		int64 result;  /* COMMAND_ANSWER */
	};
	int64 commit_n;
	int64 token;
	bool flag;
	int32 node;
	union
	{
		int32 word1;   /* for the codec */
		int32 inc_no;  /* ADMIT, ADMIT_REPLY, FENCED */
		int32 new_era; /* COLLECT, COLLECTED, RESTORE_JOURNAL */
	};
	union
	{
		int32 word2;			  /* for the codec */
		int32 voter_state;		  /* PRE_VOTE_REPLY, HEARTBEAT_ACK: ShardVoterState */
		int32 store_mode;		  /* JOIN: ShardStoreMode */
		int32 waits;			  /* JOIN_REPLY: 1, not welcome yet, ask on */
		int32 start_kind;		  /* ADMIT: ShardStartKind */
		int32 member_status;	  /* FENCED: ShardMemberStatus */
		int32 ttl_ms;			  /* GRANT */
		int32 gate;				  /* REGISTER: ShardGateKind */
		int32 refusal;			  /* TYPE_STARTED: ShardTypeRefusal */
		ShardCommandKind command; /* COMMAND; any number, if it comes from another node */
		int32 outcome;			  /* COMMAND_ANSWER: NODE_ANSWER_KNOWN and others (core/node) */
	};
	int32 type_id;
	ShardUuid uuid;
	ShardUuid uuid2;
	const char *text;

	int n_entries;
	ShardMapEntry *entries;
	int n_shards;
	ShardShardRef *shards;
	int n_nodes;
	int32 *nodes;
	int n_nodes2;
	int32 *nodes2;
} ShardControl;

/* Append the encoded message. */
extern void shard_control_encode(StringInfo out, const ShardControl *message);

/*
 * Decode bytes from anywhere; texts, lists and values are copied to the arena. False if the bytes
 * are not one whole message of a known kind.
 */
extern bool
shard_control_decode(const char *bytes, size_t length, ShardArena *arena, ShardControl *message);

/*
 * The same of kind and header alone, which have no lists and no texts: memory that does not depend on the bytes. True does
 * not mean that they are a message.
 */
extern bool shard_control_decode_header(const char *bytes, size_t length, ShardControl *message);

/*
 * The bytes of one call, or of one answer, at most. A message is one that brings a whole map, of two million homes and more,
 * or a small one. No list has more elements than that: the shortest ones have a tenth of the bytes that they take in memory.
 */
#define SHARD_CONTROL_MAX_BYTES (64 * 1024 * 1024)
#define SHARD_CONTROL_MAX_ELEMENTS (4 * 1024 * 1024)

/* The messages of one call, or of one answer, at most. */
#define SHARD_CONTROL_MAX_MESSAGES 1000

/* "prepare": for traces and logs. */
extern const char *shard_control_name(ShardControlKind kind);
