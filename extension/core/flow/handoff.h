/*
 * core/flow/handoff.h
 *		Ownership of a shard on one node: the old home's and the new home's side of a move (section 9).
 *
 * A node's relation to a shard is one durable row, changed in the same transaction as what it guards
 * (W4), and only by the steps of shard_home_machine. What the coordinator asks is a question to which
 * the row has the answer; what it decided comes as a fact, and a fact of the epoch that is known
 * already changes nothing (T2).
 */
#pragma once

#include "core/map/control.h"
#include "core/base/machine.h"

/* Stored, never renumbered. Next states: shard_home_machine. */
typedef enum ShardHomeState
{
	SHARD_HOME_NONE = 0,	 /* nothing here; no row */
	SHARD_HOME_ACTIVE = 1,	 /* home: handles what is tagged with its epoch */
	SHARD_HOME_STOPPING = 2, /* refuses new items; entities come to their end */
	SHARD_HOME_SEALED = 3,	 /* nothing of this epoch is ever handled here again */
	SHARD_HOME_STAGED = 4,	 /* copied here, waits for the decision, or to be deleted */
	SHARD_HOME_CLEARING = 5	 /* home; waits until rows of a former life are deleted */
} ShardHomeState;

typedef enum ShardHomeEvent
{
	SHARD_HOME_NOTHING = 0, /* no step */
	SHARD_HOME_FIRST,		/* fact: allocated for the first time */
	SHARD_HOME_LOST,	  /* fact: begins with empty states, the state of the former home is lost */
	SHARD_HOME_DECIDED,	  /* fact: what is staged here is home now (M6) */
	SHARD_HOME_BACK,	  /* fact: stays here after all, under a newer epoch (abort) */
	SHARD_HOME_ELSEWHERE, /* fact: another node is home of what was here, of a newer epoch (M7) */
	SHARD_HOME_STOP,	  /* the coordinator asks to hand it off (M2) */
	SHARD_HOME_SEAL,	  /* the last turn is over (M3) */
	SHARD_HOME_IMPORT,	  /* copied from the old home (M4) */
	SHARD_HOME_DELETED,	  /* the rows are gone */
	SHARD_HOME_WRONG	  /* a fact that cannot be true with what is here: stop, and warn */
} ShardHomeEvent;

/*
 * The durable row. turn and oseq number the turns and the outputs of a shard that has replicas (N3); without
 * replicas they are 0 (W4).
 */
typedef struct ShardOwn
{
	int32 state; /* ShardHomeState */
	int32 epoch; /* staged: the epoch to come */
	int64 move_id;
	int32 next_node;
	int32 next_epoch;
	int64 turn;
	int64 oseq;
} ShardOwn;

extern const ShardMachine shard_home_machine;

#define shard_handoff_active(own, e) ((own)->state == SHARD_HOME_ACTIVE && (own)->epoch == (e))

/* Home, with marks that rise: items that come are taken in, handled now or later. */
#define shard_handoff_takes(own) \
	((own)->state == SHARD_HOME_ACTIVE || (own)->state == SHARD_HOME_CLEARING)

/*
 * Was the home that is known here, of that node and epoch, decided by voters that were lost, so that the later era, whose home
 * is another one, does not know it? A node that missed all of the new era's first homes until the shard had moved on may not
 * see it.
 */
extern bool shard_handoff_undone(int32 node, int32 epoch, const ShardHomeRecord *home);

/*
 * What a decided home means for the node self. The caller passes newer facts only. doubt: as in
 * ShardRoute.
 */
extern ShardHomeEvent
shard_handoff_read(const ShardOwn *own, int32 self, const ShardHomeRecord *home, int32 doubt);

/*
 * The one transition function: epoch is the new one where the step has one, else ignored. False, and
 * the row unchanged, if the step is illegal.
 */
extern bool shard_handoff_step(ShardOwn *own, ShardHomeEvent event, int32 epoch, int64 move_id);

/* Answers to the coordinator's questions (M11): what a node does about a command. */
typedef enum ShardHandoffAnswer
{
	SHARD_HANDOFF_IGNORE = 0, /* stale, or of another node: facts will tell */
	SHARD_HANDOFF_DO,		  /* carry it out */
	SHARD_HANDOFF_DONE		  /* done already: say so again */
} ShardHandoffAnswer;

/* HandOff: ref has the epoch that is to end; known_epoch: of the newest fact here. */
extern ShardHandoffAnswer
shard_handoff_stop(const ShardOwn *own, int32 known_epoch, const ShardShardRef *ref);

/* Import: ref has the epoch to come. */
extern ShardHandoffAnswer
shard_handoff_import(const ShardOwn *own, int32 known_epoch, const ShardShardRef *ref);

/* May the rows be copied from here for this move? ref as of the import. */
extern bool shard_handoff_export(const ShardOwn *own, const ShardShardRef *ref);

/*
 * Is this node the only one that can have what waits here handled? below: the newest epoch by which the state was given
 * up, or the home that was here, or had taken it along, was undone (M23).
 */
extern bool shard_handoff_waits_alone(const ShardOwn *own, int32 below);

/*
 * May the rows of that epoch be deleted here; of a shard that is clearing, those from before it? node and
 * epoch: of the newest fact.
 */
extern bool shard_handoff_delete(const ShardOwn *own, int32 epoch, int32 self, int32 known_node,
								 int32 known_epoch);
