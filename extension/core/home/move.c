/*
 * core/home/move.c
 *		The states of a shard's move at its coordinator.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/home/move.h"

static const char *const state_names[] = {
	[SHARD_MOVE_NONE] = "none",			  [SHARD_MOVE_PREPARING] = "preparing",
	[SHARD_MOVE_PROPOSED] = "proposed",	  [SHARD_MOVE_STOPPING] = "stopping",
	[SHARD_MOVE_IMPORTING] = "importing", [SHARD_MOVE_DECIDING] = "deciding",
	[SHARD_MOVE_ABORTING] = "aborting",	  [SHARD_MOVE_STARTING] = "starting",
};

static const char *const event_names[] = {
	[SHARD_MOVE_PREPARE] = "prepare",
	[SHARD_MOVE_PROPOSE] = "propose",
	[SHARD_MOVE_REFUSED] = "refused",
	[SHARD_MOVE_FOUND] = "found",
	[SHARD_MOVE_M1_DECIDED] = "moving decided",
	[SHARD_MOVE_STOPPED] = "ShardStopped",
	[SHARD_MOVE_STAGED] = "Staged",
	[SHARD_MOVE_IMPORT_FAILED] = "import failed",
	[SHARD_MOVE_TIMED_OUT] = "timed out",
	[SHARD_MOVE_DECIDED] = "new epoch decided",
	[SHARD_MOVE_STARTED] = "ShardStarted",
	[SHARD_MOVE_OVERTAKEN] = "overtaken",
};

static const ShardStep steps[] = {
	{SHARD_MOVE_NONE, SHARD_MOVE_PREPARE, SHARD_MOVE_PREPARING,
	 "PrepareImport to the target (M16)"},
	{SHARD_MOVE_PREPARING, SHARD_MOVE_PROPOSE, SHARD_MOVE_PROPOSED,
	 "phase moving is proposed (M1)"},
	{SHARD_MOVE_PREPARING, SHARD_MOVE_REFUSED, SHARD_MOVE_NONE,
	 "nothing has changed; a pause before the next try"},
	{SHARD_MOVE_PREPARING, SHARD_MOVE_OVERTAKEN, SHARD_MOVE_NONE, "another change came first"},
	{SHARD_MOVE_PREPARING, SHARD_MOVE_FOUND, SHARD_MOVE_STOPPING, "HandOff is sent again (M2)"},
	{SHARD_MOVE_NONE, SHARD_MOVE_FOUND, SHARD_MOVE_STOPPING, "HandOff is sent again (M2)"},
	{SHARD_MOVE_PROPOSED, SHARD_MOVE_M1_DECIDED, SHARD_MOVE_STOPPING, "HandOff to the old home"},
	{SHARD_MOVE_PROPOSED, SHARD_MOVE_OVERTAKEN, SHARD_MOVE_NONE, "another change came first"},
	{SHARD_MOVE_STOPPING, SHARD_MOVE_STOPPED, SHARD_MOVE_IMPORTING, "Import to the new home (M4)"},
	{SHARD_MOVE_STOPPING, SHARD_MOVE_TIMED_OUT, SHARD_MOVE_ABORTING,
	 "epoch + 1 at the old home is proposed"},
	{SHARD_MOVE_STOPPING, SHARD_MOVE_OVERTAKEN, SHARD_MOVE_NONE, "written off"},
	{SHARD_MOVE_IMPORTING, SHARD_MOVE_STAGED, SHARD_MOVE_DECIDING,
	 "epoch + 1 at the new home is proposed (M5)"},
	{SHARD_MOVE_IMPORTING, SHARD_MOVE_IMPORT_FAILED, SHARD_MOVE_ABORTING,
	 "epoch + 1 at the old home is proposed"},
	{SHARD_MOVE_IMPORTING, SHARD_MOVE_TIMED_OUT, SHARD_MOVE_ABORTING,
	 "epoch + 1 at the old home is proposed"},
	{SHARD_MOVE_IMPORTING, SHARD_MOVE_OVERTAKEN, SHARD_MOVE_NONE, "written off"},
	{SHARD_MOVE_DECIDING, SHARD_MOVE_DECIDED, SHARD_MOVE_STARTING, "the only point of decision"},
	{SHARD_MOVE_DECIDING, SHARD_MOVE_TIMED_OUT, SHARD_MOVE_ABORTING,
	 "only before M5 was proposed: the target is gone"},
	{SHARD_MOVE_DECIDING, SHARD_MOVE_OVERTAKEN, SHARD_MOVE_NONE, "written off"},
	{SHARD_MOVE_ABORTING, SHARD_MOVE_DECIDED, SHARD_MOVE_STARTING, "the old home goes on"},
	{SHARD_MOVE_ABORTING, SHARD_MOVE_OVERTAKEN, SHARD_MOVE_NONE, "written off"},
	{SHARD_MOVE_STARTING, SHARD_MOVE_STARTED, SHARD_MOVE_NONE,
	 "done; the shard may move again (M10)"},
	{SHARD_MOVE_STARTING, SHARD_MOVE_OVERTAKEN, SHARD_MOVE_NONE, "written off"},
};

const ShardMachine shard_move_machine = {"move", state_names, event_names, steps, lengthof(steps)};

ShardMoveState
shard_move_step(ShardMoveState state, ShardMoveEvent event)
{
	int next = shard_machine_next(&shard_move_machine, state, event);

	return next < 0 ? state : (ShardMoveState) next;
}
