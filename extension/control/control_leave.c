/*
 * control/control_leave.c
 *		A node that exits its cluster: nothing of it may be left when it is removed (M20).
 *
 * All its shards live elsewhere by then. The door is closed to senders, and when those that had begun have ended, what
 * is in the log is passed and what it put into the outbox is taken in by its homes (the rounds of drain.c); the rows of
 * former shards are deleted, but for those of a state that was given up since, and nothing is parked. Then the machine
 * is told, and the coordinator removes the node; if a home that stayed here moves before that, all is looked at again.
 * Nothing here is durable: another process starts from the beginning.
 */
#include "postgres.h"

#include "executor/spi.h"

#include "control/control_private.h"
#include "process/worker.h"
#include "registry/statement.h"

#include "base/compat.h"

#define LOOK_INTERVAL (50 * SHARD_MS)

/* The lock that keeps senders out is a strong one, and another session may hold a conflicting lock for long. */
#define ALONE_INTERVAL (200 * SHARD_MS)

/* What was parked at the first may have gone to the outbox since. */
#define CLEAN_ROUNDS 2

static struct
{
	bool closed;  /* no sender is left */
	bool round;	  /* one is under way */
	int clean;	  /* rounds that left nothing, in a row */
	bool emptied; /* it was told */
	int64 homes;  /* as known then: what waits for them may be able to go when they change */
	int64 next_look;
	ControlDrain drain;
} leaving;

void
shard_control_leave_forget(void)
{
	memset(&leaving, 0, sizeof(leaving));
}

/* Closes the door, and looks whether all senders that came in before have gone. */
static bool
close_door(void)
{
	shard_board_close(shard_control.db, SHARD_BOARD_LEAVING);
	if (!shard_control_begin_alone())
		return false;
	shard_control_commit();
	return true;
}

/*
 * Is anything of a shard left, or a message for another node? Messages of types that no node has, or can host, do not
 * count: no node could take them. A table that another session has locked may have some.
 */
static bool
has_remains(void)
{
	static const char *const tables[] = {"own", "route", "type", "outbox_kept", "parked"};
	static ShardStatement look = {"SELECT 1 WHERE EXISTS (SELECT FROM shard.own_remains)"
								  " OR EXISTS (SELECT FROM shard.outbox_kept)"
								  " OR EXISTS (SELECT FROM shard.parked_remains)"};
	ShardArguments arguments = {0};
	bool any;

	if (!shard_control_try(tables, lengthof(tables)))
		return true;
	SPI_connect();
	shard_statement_read(&look, &arguments, 1);
	any = SPI_processed > 0;
	SPI_finish();
	shard_control_commit();
	return any;
}

static void
look(void)
{
	if (!leaving.closed)
	{
		leaving.closed = close_door();
		leaving.next_look = shard_clock_now() + (leaving.closed ? 0 : ALONE_INTERVAL);
	}
	else if (!leaving.round || shard_control_drain_is_void(&leaving.drain))
	{
		shard_control_drain_begin(&leaving.drain);
		leaving.round = true;
	}
	else if (shard_control_drain_over(&leaving.drain))
	{
		/* while the server goes down it says too little (control_drain.c) */
		if (shard_worker_server_stops())
			return;
		leaving.round = false;
		leaving.clean = has_remains() ? 0 : leaving.clean + 1;
		leaving.emptied = leaving.clean == CLEAN_ROUNDS;
	}
}

/*
 * True: the machine was told.
 */
bool
shard_control_leave_run(void)
{
	int64 now = shard_clock_now();

	if (leaving.homes != shard_node_own_homes(shard_control.node))
	{
		leaving.homes = shard_node_own_homes(shard_control.node);
		leaving.round = leaving.emptied = false;
		leaving.clean = 0;
	}
	if (leaving.emptied || now < leaving.next_look || shard_control.journal ||
		shard_node_fenced(shard_control.node))
		return false;
	if (shard_control_own_status() != SHARD_MEMBER_EXITING)
	{
		shard_control_leave_forget();
		leaving.next_look = now + LOOK_INTERVAL;
		return false;
	}
	leaving.next_look = now + LOOK_INTERVAL;
	look();
	if (!leaving.emptied)
		return false;
	shard_control_event(&(ShardNodeEvent){.kind = SHARD_EVENT_EMPTIED});
	return true;
}
