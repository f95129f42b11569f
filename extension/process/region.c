/*
 * process/region.c
 *		The region worker: what it does beside its turns, and when.
 *
 * It starts by reading what is durable; then it runs turns (region_turn.c), and between them talks to other nodes,
 * rotates the log, and sleeps until it is woken.
 *
 * If the process dies right here: the launcher starts another worker, which reads everything again, and answers
 * "outcome unknown" to asks that were taken.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "registry/catalog.h"
#include "entity/outputs.h"
#include "entity/record.h"
#include "entity/replica_apply.h"
#include "entity/replica_home.h"
#include "entity/replica_inputs.h"
#include "entity/turn.h"
#include "registry/identity.h"
#include "link/outbox.h"
#include "link/stream_position_table.h"
#include "log/turn_chain.h"
#include "process/region_private.h"
#include "registry/turn_lock.h"
#include "registry/registry.h"
#include "link/remote_ask.h"
#include "process/rotation.h"
#include "route/routing.h"
#include "registry/setting_hook.h"
#include "link/transport.h"
#include "process/worker.h"

#include "base/compat.h"

/* The safety net for lost wake-ups, and for COMMIT PREPARED. */
#define POLL_MS 1000

/* Another process has the extension or a lane locked: look again after this time. */
#define BUSY_MS 20

/* After the lease has ended: how often the worker looks whether it was renewed. */
#define LEASE_MS 50

/* Memory that names of settings may take in the process. */
#define MOST_NAMES ((Size) (1024 * 1024))

/* The same for names of time zones: room for more than all that exist, of 23 kB each. */
#define MOST_ZONES ((Size) (64 * 1024 * 1024))

/*
 * The same for memory that the server keeps: catalogs, some 20 kB for a table, and the shape of each row that has no
 * type of its own.
 */
#define MOST_KEPT ((Size) (128 * 1024 * 1024))

/*
 * Releases advisory locks that handlers left behind, which survive commit and abort. The extension itself has no such
 * locks.
 */
static bool
release_locks(ShardRegion *region)
{
	StartTransactionCommand();
	LockReleaseAll(USER_LOCKMETHOD, true);
	CommitTransactionCommand();
	return false;
}

/* Housekeeping that survives its errors. Returns whether to come again at once. */
static bool
fenced_chore(ShardRegion *region, bool (*chore)(ShardRegion *region))
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool more = false;

	PG_TRY();
	{
		more = chore(region);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return more;
}

/* Rotation, whose failure is harmless: it is tried again later. */
static bool
rotate(ShardRegion *region)
{
	return shard_rotation_run(region->db, region->extension);
}

/* Whether the node's lease, if it runs under one, holds for this time at least (L5, L7). */
static bool
lease_holds(const ShardRegion *region, int64 microseconds)
{
	int64 until = shard_board_lease(region->db);

	return until == PG_INT64_MAX || shard_clock_now() + microseconds < until;
}

/* Turns of shards with replicas that the gate has let pass. Asks may have waited for that, of shards that rested (Q45). */
static bool
release(ShardRegion *region)
{
	bool released;

	if (!shard_replica_any() || !lease_holds(region, 0))
		return false;
	released = shard_replica_shards_pass();
	shard_region_follow_drain(region, false);
	return released && region->asks != NIL;
}

/* What backups here have stored is applied. */
static bool
apply(ShardRegion *region)
{
	return shard_replica_apply(region->lanes, region->self, region->extension);
}

/* Links to other nodes. */
static bool
talk(ShardRegion *region)
{
	return lease_holds(region, 0) && shard_transport_run();
}

/* Asks that are on their way to other nodes. */
static bool
poll_asks(ShardRegion *region)
{
	return lease_holds(region, 0) && shard_region_poll_asks(region);
}

/* Homes that are still wanted. */
static bool
want_homes(ShardRegion *region)
{
	(void) shard_routing_ask();
	return false;
}

/* After a change of the outbox: lets go of the log that it needs no more. */
static bool
follow_outbox(ShardRegion *region)
{
	bool changed = shard_outbox_changed();

	changed |= shard_transport_replies_changed();
	changed |= shard_replica_inputs_changed();
	if (changed)
		shard_region_keep_log(region);
	if (changed || shard_worker_lingers())
		shard_region_follow_drain(region, false);
	return false;
}

/*
 * Ends the process, because this database has become a node of another cluster: its memory belongs to the old one. The
 * launcher starts another worker.
 */
static void
leave_node(const ShardRegion *region, int32 node)
{
	ereport(
		LOG,
		(errmsg("region worker %d starts again: this database is node %d of another cluster now",
				region->number, node)));
	SpinLockAcquire(&region->slot->mutex);
	region->slot->starts_again = true;
	SpinLockRelease(&region->slot->mutex);
	proc_exit(0);
}

/*
 * Looks at the node's identity, and whether turns may be run (I4). Before the first message for another node under an
 * incarnation its lineage is written (X4). A chore: returns whether to come again at once.
 */
static bool
follow_board(ShardRegion *region)
{
	ShardBoardView view;

	if (shard_board_generation(region->db) == region->generation)
		return false;
	shard_board_get(region->db, &view);
	region->handles = false;
	if (view.handle)
	{
		if (view.node != region->self || !shard_record_uuid_equal(view.cluster, region->cluster))
			leave_node(region, view.node);
		if (view.push && !shard_record_uuid_equal(view.incarnation, region->incarnation))
		{
			shard_outbox_begin_incarnation(view.incarnation);
			region->incarnation = view.incarnation;
		}
		shard_routing_follow(&view);
		region->handles = true;
	}
	else if (view.fenced || view.downed)
		shard_region_fail_open_asks(region, &view);
	shard_turn_set_members(view.members);
	region->generation = view.generation;
	return true;
}

/*
 * How long no turn is run after one that failed for no message's fault, in ms. A process that wakes the worker waits
 * for something, and the trouble may be over: a wake-up shortens the pause to that of a first failure.
 */
static long
rest(const ShardRegion *region)
{
	int64 pause = shard_worker_backoff(region->news ? 1 : region->troubles) * INT64CONST(1000);
	int64 left = region->troubled_at + pause - shard_clock_now();

	return region->troubles == 0 || left <= 0 ? 0 : (left + 999) / 1000;
}

/* How long there is nothing to do, in ms. */
static long
idle_time(ShardRegion *region)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = TimestampTzPlusMilliseconds(now, POLL_MS);
	TimestampTz due = shard_stash_next_due();
	TimestampTz timer = shard_timer_next_due();
	TimestampTz passivation = shard_cache_passivate(now);
	TimestampTz recovery;

	if (region->busy)
		return BUSY_MS;
	if (region->troubles > 0)
		return rest(region);
	if (due != 0)
		next = Min(next, due);
	if (passivation != 0)
		next = Min(next, passivation);
	if (timer != 0)
		next = Min(next, timer);
	shard_recovery_follow_clock();
	recovery = shard_recovery_next_due();
	next = Min(next, recovery);
	return Max(0, TimestampDifferenceMilliseconds(now, next));
}

/* The shorter of two pauses; -1: none. */
static long
shorter(long pause, long other)
{
	return other >= 0 && (pause < 0 || other < pause) ? other : pause;
}

/* How long to wait for something to happen. */
static long
pause_of(ShardRegion *region)
{
	bool leased = lease_holds(region, SHARD_LEASE_RESERVE);
	bool runs = region->handles && leased;
	long pause = runs ? idle_time(region) : POLL_MS;

	pause = shorter(pause, shard_transport_due());
	pause = shorter(pause, shard_remote_ask_due());
	pause = shorter(pause, shard_replica_shards_due());
	if (runs)
		pause = shorter(pause, shard_outputs_pause());
	if (region->handles)
		pause = shorter(pause, shard_routing_ask());
	if (runs)
		pause = shorter(pause, shard_replica_apply_due());
	if (runs && region->troubles == 0)
		pause = shorter(pause, shard_region_moves_due(region));
	if (!leased)
		pause = shorter(pause, LEASE_MS);
	return pause;
}

/* Becomes the owner of all lanes of the worker (W2), or ends the process if another worker still has one. */
static void
own_lanes(const ShardRegion *region)
{
	shard_each_lane (lane, region->lanes)
		if (!shard_shmem_own(region->db, lane))
			ereport(FATAL, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("lane %d is still owned by another region worker", lane)));
}

/* Reads the worker's tables and the log, in a transaction. */
static void
read_all(ShardRegion *region)
{
	ShardRoutes *routes;

	own_lanes(region);
	shard_registry_refresh();
	routes = shard_routing_load(region->db, region->lanes, region->self);
	shard_residents_load_all(region->lanes);
	shard_stream_position_load(region->db);
	PopActiveSnapshot();

	shard_cursor_open(region->cursor, true);
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_cursor_load(region->cursor);
	shard_outbox_load(region->db, region->lanes, routes);
	shard_cursor_revisit(region->cursor);
	shard_turn_chain_loaded(region->lanes);
	shard_outbox_loaded();
	shard_routing_set_loaded();
	shard_record_load(region->lanes);
	shard_routing_inputs_load();
	shard_stream_position_loaded(region->db, region->lanes);
	shard_transport_start(region->db, region->number, region->lanes, routes);
	shard_routing_replies_committed();
	shard_region_keep_log(region);
	shard_cursor_publish(region->cursor);
	shard_remote_ask_start(region->db, region->number);
	shard_region_load_moves(region);
	shard_replica_apply_look();
}

/* Whether the control worker says that messages may be handled here. Notes the node's identity. */
static bool
may_handle(ShardRegion *region)
{
	ShardBoardView view;

	shard_board_get(region->db, &view);
	region->self = view.node;
	region->cluster = view.cluster;
	shard_turn_set_members(view.members);
	return view.handle;
}

/* Reads position, routes and stash; waits while the node's identity is not clear. */
static void
load(ShardRegion *region, uint32 wait_event)
{
	for (;;)
	{
		bool clear;

		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		clear = shard_catalog_lock(true) && shard_turn_lock(region->lanes);
		if (clear)
		{
			region->extension = shard_catalog_get()->extension;
			PushActiveSnapshot(GetTransactionSnapshot());
			clear = shard_identity_is_clear(region->db) && may_handle(region);
			if (clear)
				read_all(region);
			PopActiveSnapshot();
		}
		CommitTransactionCommand();
		if (clear)
			return;
		if (!may_handle(region))
			shard_shmem_turn_done(region->slot, true, 0);
		(void) fenced_chore(region, shard_region_answer_reports);
		(void) shard_worker_wait(POLL_MS, wait_event);
	}
}

/*
 * Ends the process if the memory that handlers have the server keep as long as the process lives has reached its limit.
 * The next worker need not start at once. Memory in contexts of their own is left out: it is given back, and adding it
 * up takes long.
 */
static void
leave_for_memory(const ShardRegion *region)
{
	Size names = shard_setting_name_bytes();
	Size zones = shard_setting_zone_bytes();
	Size kept = MemoryContextMemAllocated(TopMemoryContext, false) +
				MemoryContextMemAllocated(CacheMemoryContext, false);

	if (likely(names <= MOST_NAMES && zones <= MOST_ZONES && kept <= MOST_KEPT))
		return;
	if (names > MOST_NAMES)
		ereport(LOG, (errmsg("region worker %d starts again: names of settings take %zu bytes",
							 region->number, names),
					  errhint("Let handlers use few names in set_config() and SET.")));
	else if (zones > MOST_ZONES)
		ereport(LOG, (errmsg("region worker %d starts again: names of time zones take %zu bytes",
							 region->number, zones),
					  errhint("Let handlers use few names of time zones.")));
	else
		ereport(LOG, (errmsg("region worker %d starts again: what the server keeps for it takes "
							 "%zu bytes",
							 region->number, kept),
					  errhint("Let handlers use few tables, and rows of a type instead of "
							  "records whose columns are different each time.")));
	proc_exit(1);
}

/* Turns and all around them, until there is nothing to do at once. */
static bool
work(ShardRegion *region)
{
	bool more = fenced_chore(region, follow_board);
	bool runs = region->handles && lease_holds(region, SHARD_LEASE_RESERVE);

	if (!runs)
		shard_shmem_turn_done(region->slot, true, 0);
	else if (rest(region) == 0)
	{
		more |= shard_region_turn(region);
		leave_for_memory(region);
	}
	if (!runs || region->troubles > 0)
		(void) fenced_chore(region, shard_region_answer_reports);
	if (runs)
	{
		(void) fenced_chore(region, shard_region_report_sealed);
		more |= fenced_chore(region, shard_region_purge);
		more |= fenced_chore(region, apply);
	}
	more |= fenced_chore(region, release) && runs;
	more |= fenced_chore(region, talk);
	more |= runs && shard_outputs_are_due();
	(void) fenced_chore(region, want_homes);
	more |= fenced_chore(region, poll_asks);
	(void) fenced_chore(region, follow_outbox);
	more |= fenced_chore(region, rotate);
	return more;
}

void
ShardRegionMain(Datum argument)
{
	ShardRegion region = {.limit = SHARD_TURN_MESSAGES, .only = SHARD_SOURCES};
	uint32 wait_event;
	uint64 cleaned = 0;
	TimestampTz cleaned_at = 0;

	region.db = shard_worker_start(argument, &region.number);
	wait_event = ShardWaitEvent("ShardRegionMain");
	region.slot = shard_shmem_my_worker();
	region.lanes = region.slot->lanes;
	region.ask_context =
		AllocSetContextCreate(TopMemoryContext, "shard asks", ALLOCSET_DEFAULT_SIZES);
	region.spare_context =
		AllocSetContextCreate(TopMemoryContext, "shard asks", ALLOCSET_DEFAULT_SIZES);
	shard_ring_attach(region.db, region.number);
	shard_turn_init(region.lanes, &shard_routing_presence);
	if (pg_atomic_exchange_u32(&region.slot->batch_stuck, 0) != 0)
	{
		/* one by one: it may have been in a commit */
		region.careful = region.single = true;
		region.limit = region.searched = SHARD_CAREFUL_MESSAGES;
	}
	region.cursor = shard_cursor_create(region.number, region.lanes);
	shard_cursor_register(SHARD_KIND_POSITION, shard_stream_position_row);
	shard_routing_replies_register();
	shard_turn_chain_register();
	MemoryContextSwitchTo(TopMemoryContext);
	load(&region, wait_event);
	for (;;)
	{
		bool more = work(&region);

		if (shard_turn_messages() != cleaned &&
			(!more || TimestampDifferenceExceeds(cleaned_at, GetCurrentTimestamp(), POLL_MS)))
		{
			(void) fenced_chore(&region, release_locks);
			cleaned = shard_turn_messages();
			cleaned_at = GetCurrentTimestamp();
		}
		if (more && region.troubles == 0)
		{
			shard_worker_interrupts();
			continue;
		}
		shard_turn_sleep();
		region.news |= shard_worker_wait(pause_of(&region), wait_event);
	}
}
