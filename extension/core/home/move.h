/*
 * core/home/move.h
 *		One move of a shard, as its coordinator drives it (section 9).
 *
 * Durable is only the phase in the key home/…; after a take-over the new coordinator asks the old
 * home again where exactly the move stands.
 */
#pragma once

#include "core/base/machine.h"

typedef enum ShardMoveState
{
	SHARD_MOVE_NONE,	  /* no move under way */
	SHARD_MOVE_PREPARING, /* the target is asked whether the shard can be copied there (M16) */
	SHARD_MOVE_PROPOSED,  /* M1 is being decided */
	SHARD_MOVE_STOPPING,  /* HandOff was sent: waits for ShardStopped (M2, M3) */
	SHARD_MOVE_IMPORTING, /* Import was sent: waits for Staged (M4) */
	SHARD_MOVE_DECIDING,  /* M5 is being decided */
	SHARD_MOVE_ABORTING,  /* the abort is being decided */
	SHARD_MOVE_STARTING	  /* decided: waits for ShardStarted (M6) */
} ShardMoveState;

typedef enum ShardMoveEvent
{
	SHARD_MOVE_PREPARE, /* a plan or an operator wants it */
	SHARD_MOVE_PROPOSE, /* the target is ready, and has room */
	SHARD_MOVE_REFUSED, /* the target cannot have it, or did not answer */
	SHARD_MOVE_FOUND,	/* a new coordinator finds the phase "moving" */
	SHARD_MOVE_M1_DECIDED,
	SHARD_MOVE_STOPPED, /* ShardStopped of this move */
	SHARD_MOVE_STAGED,	/* Staged of this move */
	SHARD_MOVE_IMPORT_FAILED,
	SHARD_MOVE_TIMED_OUT, /* the move takes too long, or its target is gone */
	SHARD_MOVE_DECIDED,	  /* the home has epoch + 1, at the old node or the new one */
	SHARD_MOVE_STARTED,	  /* ShardStarted of the epoch */
	SHARD_MOVE_OVERTAKEN  /* the key says something else: the move was ended by a write-off */
} ShardMoveEvent;

extern const ShardMachine shard_move_machine;

/* The next state; an event that the state does not know leaves it as it is: late and repeated
 * messages are harmless. */
extern ShardMoveState shard_move_step(ShardMoveState state, ShardMoveEvent event);
