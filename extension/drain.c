/*
 * drain.c
 *		shard_drain: wait until what was sent is handled.
 *
 * A round: each worker is given a number, and publishes it after a turn that
 * began later, passed every row that it could read, and drained ended senders.
 * Under a load that never lets it come so far, it is enough that its lanes'
 * positions have passed the newest row from before the call. Then no stash row
 * from before the call may be left, but those of types that cannot run. Two
 * rounds lie around the look at the stash, so that the last turn's position in
 * WAL is known when it is flushed.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "duration.h"
#include "executor.h"
#include "gate.h"
#include "log.h"
#include "security.h"
#include "shmem.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(shard_drain);

/* Workers wake nobody when they are done, so we look again after so many ms. */
#define FIRST_NAP 1
#define LONGEST_NAP 20

static const char *const waiting_query =
	"SELECT 1 FROM shard.held h JOIN shard.type t USING (type_id)"
	" WHERE h.place = 'stash' AND h.seq <= $1 AND t.mode = 'hosting' AND t.problem IS NULL LIMIT 1";

typedef struct Drain
{
	ShardDatabase *db;
	int64 mark; /* the newest seq that counts */
	instr_time start;
	int64 limit; /* microseconds */
	long nap;	 /* ms */
} Drain;

/* What a round waits for. */
typedef struct Round
{
	int workers;
	uint64 wanted[SHARD_MAX_WORKERS]; /* drain_done to reach, or */
	uint64 turns[SHARD_MAX_WORKERS];  /* turns, since the positions have passed; 0: not yet */
} Round;

/*
 * What is left of the time, in microseconds; 0 if it is up.
 */
static int64
time_left(const Drain *drain)
{
	instr_time now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, drain->start);
	return Max(drain->limit - (int64) INSTR_TIME_GET_MICROSEC(now), 0);
}

/*
 * Sleeps a little, each time longer. False if the time is up.
 */
static bool
sleep_a_little(Drain *drain)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = ShardWaitEvent("ShardDrain");
	if (time_left(drain) == 0)
		return false;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, drain->nap,
					 wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	drain->nap = Min(drain->nap * 2, LONGEST_NAP);
	return true;
}

/*
 * Whether a worker's lanes have passed every row from before the call.
 */
static bool
has_passed(const Drain *drain, int worker)
{
	uint32 lanes = shard_shmem_worker_lanes(drain->db, worker);

	for (int lane = 0; lane < SHARD_LANES; lane++)
		if ((lanes & (1u << lane)) != 0 &&
			(int64) pg_atomic_read_u64(&drain->db->lane[lane].needed) <= drain->mark)
			return false;
	return true;
}

/*
 * Whether a worker is done. A worker publishes positions first, then its
 * number of turns, then the turn's position in WAL; so two turns later the
 * latter is known.
 */
static bool
is_done(const Drain *drain, Round *round, int worker)
{
	ShardWorkerSlot *slot = &drain->db->worker[worker];

	if (pg_atomic_read_u64(&slot->drain_done) >= round->wanted[worker])
		return true;
	if (round->turns[worker] != 0)
		return pg_atomic_read_u64(&slot->turns) >= round->turns[worker];
	if (has_passed(drain, worker))
		round->turns[worker] = pg_atomic_read_u64(&slot->turns) + 2;
	return false;
}

/*
 * Gives each worker its number.
 */
static void
begin_round(const Drain *drain, Round *round)
{
	round->workers = drain->db->workers;
	for (int worker = 0; worker < round->workers; worker++)
	{
		ShardWorkerSlot *slot = &drain->db->worker[worker];

		round->wanted[worker] = pg_atomic_fetch_add_u64(&slot->drain_wanted, 1) + 1;
		round->turns[worker] = 0;
		shard_shmem_wake_worker(drain->db, worker);
	}
}

static bool
is_over(const Drain *drain, Round *round)
{
	for (int worker = 0; worker < round->workers; worker++)
		if (!is_done(drain, round, worker))
			return false;
	return true;
}

/*
 * One round over all workers; begun anew when their number changes. False if
 * the time is up.
 */
static bool
run_round(Drain *drain)
{
	Round round = {0};

	while (round.workers != drain->db->workers || !is_over(drain, &round))
	{
		if (round.workers != drain->db->workers)
			begin_round(drain, &round);
		if (!sleep_a_little(drain))
			return false;
	}
	return true;
}

/*
 * Whether a message from before the call is in the stash of a type that runs;
 * as committed now, whatever the transaction's own snapshot is.
 */
static bool
stash_waits(const Drain *drain)
{
	static SPIPlanPtr plan = NULL;
	ShardSecurity security = {0};
	Datum mark = Int64GetDatum(drain->mark);
	Oid type = INT8OID;
	bool waits;

	shard_security_begin_system(&security);
	SPI_connect();
	if (plan == NULL)
	{
		plan = SPI_prepare(waiting_query, 1, &type);
		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not prepare \"%s\"", waiting_query);
	}
	if (SPI_execute_snapshot(plan, &mark, NULL, GetLatestSnapshot(), InvalidSnapshot, true, false,
							 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", waiting_query);
	waits = SPI_processed > 0;
	SPI_finish();
	shard_security_end(&security);
	return waits;
}

/*
 * Waits for the gate of what the workers have committed.
 */
static bool
pass_gate(const Drain *drain)
{
	XLogRecPtr newest = InvalidXLogRecPtr;

	for (int worker = 0; worker < SHARD_MAX_WORKERS; worker++)
		newest = Max(newest, pg_atomic_read_u64(&drain->db->worker[worker].commit_lsn));
	return shard_gate_wait_for(0, 0, 0, newest, time_left(drain));
}

/*
 * Errors where waiting makes no sense.
 */
static void
check_place(void)
{
	if (shard_executor_in_handler())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot wait for messages from within a handler"),
						errdetail("The worker that runs the handler would wait for itself.")));
	PreventCommandDuringRecovery("shard_drain()");
}

/*
 * shard_drain(timeout interval) returns boolean
 *
 * True when every message committed before the call is handled and durable,
 * given up, or waits for a type that cannot run; false if the time is up.
 */
Datum
shard_drain(PG_FUNCTION_ARGS)
{
	Drain drain = {.nap = FIRST_NAP};

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("timeout must not be null")));
	shard_shmem_require();
	check_place();
	(void) shard_catalog_lock(false);
	(void) shard_log_attach();
	INSTR_TIME_SET_CURRENT(drain.start);
	drain.limit = shard_duration_from_interval(PG_GETARG_INTERVAL_P(0));
	drain.db = shard_shmem_database_or_make(MyDatabaseId);
	drain.mark = shard_log_last_seq(drain.db);

	if (!run_round(&drain))
		PG_RETURN_BOOL(false);
	while (stash_waits(&drain))
		if (!sleep_a_little(&drain))
			PG_RETURN_BOOL(false);
	drain.nap = FIRST_NAP;
	PG_RETURN_BOOL(run_round(&drain) && pass_gate(&drain));
}
