/*
 * control/control_stop.c
 *		The server shuts down: hand over the office, and what else can be done in shard.shutdown_timeout.
 *
 * Clients cannot connect any more, so no shard can be copied from here: what this node is home of stays until it is
 * started again. But what it has for others can still be pushed, seals of moves that are under way are finished, and
 * another node takes the office at once. Pushed is enough: that messages which others have stored are done, they can
 * only tell after the next start, as that takes a connection to here. Without the setting only the office is handed
 * over, in passing.
 *
 * A smart shutdown waits for clients, and takes the connections of other nodes for such: when no other client is left,
 * they are ended here.
 */
#include "postgres.h"

#include <signal.h>

#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"

#include "control/control_private.h"
#include "base/fault.h"
#include "base/guc.h"
#include "shared/visitor.h"
#include "process/worker.h"
#include "shared/worker_log.h"
#include "registry/statement.h"

#include "base/compat.h"

/* How often the control worker looks whether the server waits for clients. */
#define LOOK_INTERVAL (1 * SHARD_SECOND)

/* Without shard.shutdown_timeout: for the office alone. */
#define PASSING_MS 300

#define NAP_MS 10

static bool told = false;		  /* the machine knows that the server goes down */
static bool said_goodbye = false; /* and its last words are said */
static int64 deadline = 0;
static ControlDrain drain;

/* Another machine does not know yet. */
void
shard_control_stop_forget(void)
{
	told = false;
	said_goodbye = false;
}

/* ---- the office ------------------------------------------------------------------------------- */

static void
tell_machine(int64 until)
{
	if (told)
		return;
	told = true;
	shard_control_event(&(ShardNodeEvent){.kind = SHARD_EVENT_STOPPING, .number = until});
}

/*
 * Says good-bye to the other nodes, as far as that goes out at once.
 */
static void
say_goodbye(void)
{
	int64 until = shard_clock_now() + PASSING_MS * SHARD_MS;

	said_goodbye = true;
	shard_control_event(&(ShardNodeEvent){.kind = SHARD_EVENT_GOODBYE});
	while (shard_control.view.members > 1 && shard_clock_now() < until)
	{
		(void) shard_control_link_run();
		if (!shard_control_link_waits())
			break;
		(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, NAP_MS, PG_WAIT_EXTENSION);
	}
}

/*
 * At the end of the process, when its server shuts down: the last words of this node's control plane, as far as they go
 * out at once.
 */
void
shard_control_last_words(void)
{
	int64 until = shard_clock_now() + PASSING_MS * SHARD_MS;

	if (said_goodbye || shard_control.node == NULL)
		return;
	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(shard_control.step_context);
	tell_machine(until);
	say_goodbye();
	RESUME_INTERRUPTS();
}

/* ---- lingering -------------------------------------------------------------------------------- */

/* How many shards live here; -1: another session has the table locked. */
static int64
count_shards(void)
{
	static const char *const tables[] = {"own"};
	static ShardStatement select = {"SELECT count(*) FROM shard.own WHERE state = 'active'"};
	int64 count = 0;

	if (!shard_control_try(tables, lengthof(tables)))
		return -1;
	SPI_connect();
	shard_statement_read(&select, &(ShardArguments){0}, 1);
	count = shard_statement_int8(0, 1);
	SPI_finish();
	shard_control_commit();
	return count;
}

/*
 * Asks a region worker to end after its turn, or at once. False: it has ended.
 */
static bool
end_worker(int worker, bool at_once)
{
	ShardWorkerSlot *slot = &shard_control.db->worker[worker];
	bool running;

	SpinLockAcquire(&slot->mutex);
	running = slot->in_use;
	slot->stop_wanted = true;
	SpinLockRelease(&slot->mutex);
	if (running && at_once)
		(void) shard_worker_log_terminate(
			slot, "the server shuts down, and the turn did not end in time");
	if (running && !at_once)
		shard_shmem_wake_worker(shard_control.db, worker);
	return running;
}

/*
 * All of them; one that is in a handler for long may not keep the server from going down.
 */
static void
end_workers(void)
{
	int64 patience = shard_clock_now() + PASSING_MS * SHARD_MS;
	bool running = true;

	while (running)
	{
		bool at_once = shard_clock_now() >= patience;

		running = false;
		for (int worker = 0; worker < SHARD_MAX_WORKERS; worker++)
			running |= end_worker(worker, at_once);
		if (at_once)
			break;
		if (running)
			(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, NAP_MS, PG_WAIT_EXTENSION);
	}
}

/*
 * However this process ends while it lingers, an error included, even before its first look: no other process would end
 * a handler that takes long, and the server would wait for it as long as region workers may linger.
 */
static void
end_workers_at_exit(int code, Datum argument)
{
	if (!shard_worker_lingers())
		return;
	for (int worker = 0; worker < SHARD_MAX_WORKERS; worker++)
		(void) end_worker(worker, true);
}

void
shard_control_stop_prepare(void)
{
	before_shmem_exit(end_workers_at_exit, (Datum) 0);
}

/*
 * Says what was managed, has the region workers end, and ends.
 */
static void
end(bool drained)
{
	int64 shards = count_shards();

	ereport(LOG, (errmsg("shard: node %d goes down; %s shards stay here until it is started again",
						 shard_node_id(shard_control.node),
						 shards < 0 ? "its" : psprintf(INT64_FORMAT, shards)),
				  drained ? errdetail("Messages for other nodes were stored there.")
						  : errdetail(
								"Messages wait here, some of them for other nodes perhaps: "
								"shard.shutdown_timeout was over before they were stored there.")));
	end_workers();
	HOLD_INTERRUPTS();
	say_goodbye();
	RESUME_INTERRUPTS();
	proc_exit(0);
}

/*
 * One look while the server goes down.
 */
static void
linger(void)
{
	int64 now = shard_clock_now();
	bool drained;

	if (deadline == 0)
	{
		shard_fault("linger_begin");
		deadline = now + shard_shutdown_timeout * SHARD_MS;
		ereport(LOG, (errmsg("shard: node %d stays for up to %d ms, as its server shuts down",
							 shard_node_id(shard_control.node), shard_shutdown_timeout),
					  errdetail("The node pushes the messages that it has for other nodes; see "
								"shard.shutdown_timeout.")));
		shard_control_drain_begin(&drain);
	}
	tell_machine(deadline);
	/* The WAL writer is gone, on which commits of region workers rely. */
	shard_control_drain_flush();
	if (shard_control_drain_is_void(&drain))
		shard_control_drain_begin(&drain);
	drained = shard_control_drain_over(&drain);
	if (now >= deadline || (drained && !shard_control_move_waits() && !shard_control_link_waits()))
		end(drained);
}

/* ---- smart shutdown --------------------------------------------------------------------------- */

/*
 * Is a client connected that is no other node?
 */
static bool
has_clients(void)
{
	static ShardStatement select = {
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"};
	bool any = false;

	shard_control_begin();
	SPI_connect();
	shard_statement_read(&select, &(ShardArguments){0}, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		any |= !shard_visitor_is(shard_statement_int4(i, 1));
	SPI_finish();
	shard_control_commit();
	return any;
}

void
shard_control_stop_run(void)
{
	static int64 next_look = 0;
	int64 now = shard_clock_now();

	if (shard_worker_lingers())
	{
		linger();
		return;
	}
	if (now < next_look)
		return;
	next_look = now + LOOK_INTERVAL;
	if (!shard_worker_server_stops() || has_clients())
		return;
	/* First of all: on a busy machine this process may be ended only after a lease that is not renewed runs out. */
	tell_machine(now + PASSING_MS * SHARD_MS);
	(void) shard_visitor_end(MyDatabaseId);
}
