/*
 * sql/send/drain.c
 *		shard_drain: wait until what was sent is handled.
 *
 * A round: each worker is given a number, and publishes it when all that was
 * there before is passed (a turn that began later left nothing to read, or its
 * lanes' positions are beyond the newest row of before), and then what this has
 * put into the outbox is done at its homes (region.c). Then no parked message
 * and no held row from before the call may be left, but those of types that
 * cannot run. Another round follows: parked messages may have gone to the
 * outbox, and the last turn's position in WAL is to be known when it is flushed.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "registry/catalog.h"
#include "base/duration.h"
#include "shared/gate.h"
#include "log/log.h"
#include "shared/board.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "shared/shmem.h"
#include "base/nap.h"
#include "base/clock.h"
#include "base/argument.h"
#include "sql/send/handler_guard.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_drain);

/* Workers wake no backend when they are done, so the backend looks again after this many ms. */
#define FIRST_NAP 1
#define LONGEST_NAP 20

/* With replicas a row's place in the stash says nothing of the log (Q34): its message's own number does, if that is of this node. */
static ShardStatement waiting = {
	"SELECT 1 WHERE EXISTS (SELECT FROM shard.held_here h JOIN shard.type t USING (type_id) CROSS JOIN shard.node n"
	" WHERE CASE WHEN (t.settings->>'replicas')::int4 > 0 AND h.mid_node = n.node_id THEN h.mid_seq ELSE h.seq END <= $1"
	" AND t.mode = 'hosting' AND t.problem IS NULL)"
	" OR EXISTS (SELECT FROM shard.parked p JOIN shard.type t USING (type_id) WHERE p.arrival <= $1 AND p.turn IS NULL)",
	1,
	{INT8OID}};

typedef struct Drain
{
	ShardDatabase *db;
	int64 mark;	 /* the newest seq that counts */
	int64 start; /* on shard_clock_now() */
	int64 limit; /* microseconds */
	long nap;	 /* ms */
} Drain;

/* What a round waits for. */
typedef struct Round
{
	uint64 workers;					  /* mask; 0: none is waited for yet */
	uint32 division;				  /* when it began */
	uint64 wanted[SHARD_MAX_WORKERS]; /* drain_done to reach */
} Round;

/*
 * What is left of the time, in microseconds; 0 if it is up.
 */
static int64
time_left(const Drain *drain)
{
	return Max(drain->limit - (shard_clock_now() - drain->start), 0);
}

/*
 * Errors if nothing is handled here: for good, or until a node that was downed is let in again.
 */
static void
check_part(const Drain *drain)
{
	ShardBoardView view;

	shard_board_get(drain->db, &view);
	if (view.fenced || view.downed)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this node handles no messages"),
				 view.fenced ? errdetail("This node takes no part in its cluster any more.")
							 : errdetail("This node was downed, and its messages wait until it "
										 "is back."),
				 errhint("See shard_health() here.")));
}

/*
 * Sleeps a little, each time longer. False if the time is up.
 */
static bool
sleep_a_little(Drain *drain)
{
	check_part(drain);
	if (time_left(drain) == 0)
		return false;
	shard_nap(drain->nap, "ShardDrain");
	drain->nap = Min(drain->nap * 2, LONGEST_NAP);
	return true;
}

/*
 * Gives each worker its number.
 */
static void
begin_round(const Drain *drain, Round *round)
{
	round->division = shard_shmem_division(drain->db);
	round->workers = shard_shmem_workers(drain->db);
	shard_each_lane (worker, round->workers)
	{
		ShardWorkerSlot *slot = &drain->db->worker[worker];

		round->wanted[worker] = pg_atomic_fetch_add_u64(&slot->drain_wanted, 1) + 1;
		shard_shmem_wake_worker(drain->db, worker);
	}
}

static bool
is_over(const Drain *drain, const Round *round)
{
	shard_each_lane (worker, round->workers)
		if (pg_atomic_read_u64(&drain->db->worker[worker].drain_done) < round->wanted[worker])
			return false;
	return true;
}

static bool
has_changed(const Drain *drain, const Round *round)
{
	return round->workers == 0 || round->division != shard_shmem_division(drain->db);
}

/*
 * One round over all workers; starts again when the lanes are divided again. False if the time is up.
 */
static bool
run_round(Drain *drain)
{
	Round round = {0};

	while (has_changed(drain, &round) || !is_over(drain, &round))
	{
		if (has_changed(drain, &round))
			begin_round(drain, &round);
		if (!sleep_a_little(drain))
			return false;
	}
	return true;
}

/*
 * Whether a message from before the call is parked, or held for a type that
 * runs; as committed now, whatever the transaction's own snapshot is.
 */
static bool
message_waits(const Drain *drain)
{
	ShardArguments arguments = {0};
	ShardSecurity security = {0};
	bool waits;

	shard_statement_add(&arguments, Int64GetDatum(drain->mark), false);
	shard_security_begin_system(&security);
	SPI_connect();
	PushActiveSnapshot(GetLatestSnapshot());
	shard_statement_read(&waiting, &arguments, 1);
	PopActiveSnapshot();
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
	return shard_gate_wait_for(newest, time_left(drain));
}

/*
 * Errors where waiting makes no sense.
 */
static void
check_place(void)
{
	shard_handler_guard_check("wait for messages", SHARD_WAITS_FOR_ITSELF, NULL);
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

	shard_argument_check(fcinfo, 0, "timeout must not be null");
	shard_shmem_require();
	check_place();
	(void) shard_catalog_lock(false);
	(void) shard_log_attach();
	drain.start = shard_clock_now();
	drain.limit = shard_duration_from_interval(PG_GETARG_INTERVAL_P(0));
	if (drain.limit < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("timeout must not be negative")));
	drain.db = shard_shmem_database_or_make(MyDatabaseId);
	drain.mark = shard_log_last_seq(drain.db);

	if (!run_round(&drain))
		PG_RETURN_BOOL(false);
	do
	{
		while (message_waits(&drain))
			if (!sleep_a_little(&drain))
				PG_RETURN_BOOL(false);
		drain.nap = FIRST_NAP;
		if (!run_round(&drain))
			PG_RETURN_BOOL(false);
	} while (message_waits(&drain));
	PG_RETURN_BOOL(pass_gate(&drain));
}
