/*
 * core/map/command.h
 *		An operator's command: one struct from the SQL function to the machine that carries it out.
 *
 * A backend fills it, the control worker gives it to its node (core/node/node.h), and the coordinator, maybe of another node,
 * carries it out (C12). A kind that is added here has to be named wherever kinds are told apart: those switches have no
 * default, so that the compiler finds them. They are serve_command() of control/control_request.c, where the control worker
 * does something of its own first, and, in core/node/node_command.c, what goes to the coordinator, what a node does itself, and
 * what the coordinator does.
 */
#pragma once

#include "core/map/record.h"

/* Numbers are on the wire (SHARD_CONTROL_COMMAND): never renumbered, none is given again. */
typedef enum ShardCommandKind
{
	/* type, again: it is wanted here. The result is the id that the cluster gave */
	SHARD_COMMAND_TYPE = 9,

	/*
	 * text: address of any member; own_dsn, "": none; look_only, named. For the machine uuid: the token of the join, has_data.
	 * The result is the id of the node
	 */
	SHARD_COMMAND_JOIN = 10,
	SHARD_COMMAND_LEAVE = 11,		 /* nothing */
	SHARD_COMMAND_DOWN = 12,		 /* node */
	SHARD_COMMAND_WRITE_OFF = 13,	 /* node */
	SHARD_COMMAND_ADMIT = 14,		 /* node */
	SHARD_COMMAND_MOVE = 15,		 /* type_id, shard, node: the target */
	SHARD_COMMAND_PIN = 16,			 /* type_id, shard, node: the wish, 0: none */
	SHARD_COMMAND_EVACUATE = 17,	 /* node, empty: it is to be, or no more */
	SHARD_COMMAND_GIVE_UP = 18,		 /* type_id, shard: its state is lost */
	SHARD_COMMAND_REBALANCE = 19,	 /* type_id, 0: all types. The result is how many moves begin */
	SHARD_COMMAND_LEASE_TTL = 20,	 /* ttl_ms: from now on (L3) */
	SHARD_COMMAND_FORCE_VOTERS = 21, /* nodes (R13) */

	/*
	 * node, 0: this one; text: its address, at which it was found; ground; lapsed: the one before leads there no more. The
	 * result is 1: it is taken (I15)
	 */
	SHARD_COMMAND_ADDRESS = 24,

	/* the node is not to leave any more (N6). For the coordinator number: of the wish */
	SHARD_COMMAND_STAY = 29,

	/* type_id, record_n: of its record as the operator saw it; text: the name of its owner to be (C18) */
	SHARD_COMMAND_OWNER = 32,

	/*
	 * type_id, 0: all types. Which moves would begin now, by themselves or by REBALANCE? Nothing is moved, so it may be
	 * carried out twice, and by any coordinator. The result is 1 if there are more than the answer lists: it has entries, each
	 * home as it would be while it moves
	 */
	SHARD_COMMAND_PLAN = 33
} ShardCommandKind;

/* The node that asked for something, 0: this one; and the number of the question there. */
typedef struct ShardAsker
{
	int32 node;
	int64 token;
} ShardAsker;

typedef struct ShardCommand
{
	ShardCommandKind kind;
	ShardAsker asker; /* the node that hears the end */
	int32 node;
	int32 type_id;
	int32 shard;
	union
	{
		int64 number; /* as it goes over the wire */
		int64 ttl_ms;
		int64 ground; /* ShardAddressGround */
		int64 record_n;
	};
	union
	{
		bool flag; /* as it goes over the wire */
		bool empty;
		bool lapsed;
		bool has_data;
		bool again; /* of TYPE: the transaction that waits has changed types before */
	};
	bool look_only;	  /* of JOIN: only say what keeps this node from joining */
	bool named;		  /* of JOIN: the operator may hear whose transactions do */
	const char *text; /* unless the kind says otherwise, the operator that wants it */
	const char *own_dsn;
	ShardUuid uuid;
	int n_nodes;
	const int32 *nodes;
	const ShardTypeRecord *type;
} ShardCommand;
