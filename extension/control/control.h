/*
 * control/control.h
 *		What SQL functions ask of the control worker, through the ring.
 *
 * The control worker (control.c) drives the node's control plane, core/node/node.h. It is asked for three things: to take
 * control messages that a peer brought (SHARD_REQUEST_CONTROL), to carry out an operator's command
 * (SHARD_REQUEST_COMMAND), and what it knows of the members (SHARD_REQUEST_MEMBERS). The caller must hold no lock that
 * a step of the control worker needs: none on shard.control, shard.node, or, after writing it, shard.type.
 */
#pragma once

#include "core/node/node.h"
#include "core/map/command.h"
#include "core/map/record.h"
#include "core/map/who.h"
#include "core/base/wire.h"
#include "nodes/pg_list.h"

/*
 * For shard_peer.control(bytea): a list of control messages, each as shard_wire_put_bytes() writes it;
 * the answers come back over the same link, in the same form. palloc'd; never NULL.
 */
extern char *shard_control_control(const char *bytes, int length, int *answer_length);

/*
 * Has a command carried out and returns its result, 0 if it has none. Refused: error 55000 with the
 * reason and a hint. No answer in time: error 55P03, and the command may still be carried out.
 */
extern int64 shard_control_command(const ShardCommand *command, int64 timeout_us);

/* A move of a shard that would begin now. */
typedef struct ShardPlannedMove
{
	int32 type_id;
	int32 shard;
	int32 from;
	int32 to;
	int32 reason; /* ShardHomeReason */
} ShardPlannedMove;

typedef struct ShardPlan
{
	List *moves; /* ShardPlannedMove *, palloc'd, in the order in which they would begin */
	bool more;	 /* than the answer has room for */
} ShardPlan;

/* Has SHARD_COMMAND_PLAN answered. Errors as above. */
extern void shard_control_plan(const ShardCommand *command, int64 timeout_us, ShardPlan *plan);

/* A member as the control worker of this node sees it, beside its record (directory.h). */
typedef struct ShardMemberReport
{
	int32 node;
	bool reachable;			/* by this node's failure detector; the node itself always is */
	bool voter;				/* votes now, or will */
	bool coordinator;		/* as far as heard of */
	bool link;				/* the control link to the member is open */
	ShardNodeClaim claimed; /* a claim of its place by another database, until shard_admit() */
	bool link_spoke;		/* link_error is the answer of a server, not its silence */
	int64 heard_us; /* how long ago the member was heard of; -1: never since the worker started */
	int64 answering_us;		/* how long the member has answered all calls; -1: it does not */
	int64 failing_us;		/* how long calls failed, while it was heard; -1: they do not */
	const char *link_error; /* of the last failure of the link; "": none, or it works again */

	/* for shard_health alone, which asks which members are silent (N7) */
	bool entities_run;
	bool coordinator_runs;
	bool coordinator_fails; /* its control worker does not run, and has said why */
	bool mute;				/* its server takes connections, and answers nothing */
	const char
		*heard_by; /* members that hear it, as in "nodes 2, 4"; NULL: none, or it was not asked */
	bool heard_by_several;
} ShardMemberReport;

/* All of them, palloc'd ShardMemberReport *, by node id. Errors as above. */
extern List *shard_control_members(int64 timeout_us);

/*
 * For shard_peer.who(): writes the identity of this node. False: the identity is unknown yet (the worker has not spoken
 * since the server started), or this is a copy that is not to be taken for a node: answer SQL NULL.
 */
extern bool shard_control_who(ShardWho *who);

/*
 * Codecs, for control.c: what goes through the ring. A command that is read lives in the current memory context.
 */
extern bool shard_control_get_command(ShardReader *reader, ShardCommand *command);
extern void
shard_control_put_plan(StringInfo out, bool more, const ShardMapEntry *homes, int n_homes);
extern void shard_control_put_report(StringInfo out, const ShardMemberReport *report);
