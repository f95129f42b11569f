/*
 * shared/shmem.h
 *		Shared memory: one slot per database, its workers, lanes and log.
 *
 * Beside each field stands which process may write it, and under which lock. Nothing here is durable: after a crash it
 * is rebuilt from tables (log.c, cursor.c).
 */
#pragma once

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/block.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#include "core/base/division.h"
#include "core/base/quiet.h"
#include "shard.h"

/*
 * Which of a database's workers run; the launcher is the only writer. In addition, any state goes to UNUSED when the
 * database is gone, and to BARRED when it is barred.
 */
typedef enum ShardDatabaseState
{
	SHARD_DATABASE_UNUSED, /* slot free, or just made by a backend; -> PROBE */
	SHARD_DATABASE_PROBE,  /* worker 0 finds out whether the extension is here; -> ACTIVE, ABSENT */
	SHARD_DATABASE_ACTIVE, /* all workers wanted; -> PROBE, ABSENT */
	SHARD_DATABASE_ABSENT, /* no extension; -> PROBE, UNUSED */
	SHARD_DATABASE_BARRED  /* a backend drops, renames or copies it; -> PROBE */
} ShardDatabaseState;

/* What the workers of a database found; set by them, reset by the launcher. */
typedef enum ShardProbeOutcome
{
	SHARD_PROBE_NONE,	 /* no worker has looked yet; -> PRESENT, ABSENT */
	SHARD_PROBE_PRESENT, /* -> ABSENT */
	SHARD_PROBE_ABSENT	 /* final until the launcher resets it */
} ShardProbeOutcome;

/*
 * How the turns of a region worker go (shmem_turns.c). For shard_health, which must not depend on an answer of that
 * worker.
 */
#define SHARD_TURN_ERROR 256

typedef struct ShardWorkerTurns
{
	TimestampTz moved_at;  /* a turn passed a row or left nothing to do, or no turn was to be run */
	TimestampTz looked_at; /* start of the last turn that did all that was due outside of the log */
	int failures;		   /* in a row */
	int ended; /* processes that ended by themselves since moved_at, one after the other */
	TimestampTz failing_since;
	int32 type_id; /* of the entity at which the last turn failed; 0: at none */
	char entity[SHARD_MAX_ENTITY_ID + 1];
	char error[SHARD_TURN_ERROR];
	TimestampTz began_at; /* when the process began */
} ShardWorkerTurns;

/* A call of a handler that runs for long; entity and type are valid while since does not change. */
typedef struct ShardLongCall
{
	pg_atomic_uint64 since; /* TimestampTz; 0: none */
	int32 type_id;
	int entity_len;
	char entity[SHARD_MAX_ENTITY_ID];
} ShardLongCall;

/*
 * One background worker. generation rises at each attach, so a process that remembers (slot, generation) notices a
 * restart.
 */
#define SHARD_AWAY_COUNTERS 64

/* How often in a row workers of a slot had to end for code of a type, the last one that it was; the worker's alone. */
typedef struct ShardStuckCount
{
	int32 type_id;
	int times;
	TimestampTz at; /* the last time */
} ShardStuckCount;

typedef struct ShardWorkerSlot
{
	slock_t mutex; /* guards the fields up to counters */
	bool in_use;
	uint32 generation;
	pid_t pid;
	Latch *latch;		/* NULL: no process to wake */
	ShardLanes lanes;	/* mask of the lanes held */
	bool keeper;		/* it runs no types (division.h) */
	int ask_head;		/* newest ask slot handed to this worker, -1: none (ring.c) */
	bool stop_wanted;	/* launcher: leave after this turn */
	bool no_room;		/* launcher: the server has no slot for one more background worker */
	uint32 start_token; /* launcher: only the worker started with it may attach */
	bool starts_again;	/* it ended so that its successor starts at once */
	char why[192];		/* it was terminated; "": no reason was given (worker_log.c) */
	ShardWorkerTurns turns_now; /* written by the worker alone */

	/* the launcher's alone */
	int failures;			/* ends in a row that were not asked for */
	TimestampTz next_start; /* not before */
	int pause;				/* from the failure to then, in ms */

	/* set by anyone, cleared by the worker before it looks for work */
	pg_atomic_uint32 wake;
	/* rotation waits for cursor rows that leave everything up to this seq behind */
	pg_atomic_uint64 pass_wanted;
	pg_atomic_uint64 pass_asked_at; /* TimestampTz: it was woken for that last */

	/* shard_drain: a turn begun after request n has ended clean */
	pg_atomic_uint64 drain_wanted;
	pg_atomic_uint64 drain_done;

	/* a worker here had to be ended in a batch handler: the next one begins carefully */
	pg_atomic_uint32 batch_stuck;

	/* code of a type had to be ended with its worker: its handlers and what is its own; its extractors, told by others' handlers */
	ShardStuckCount stuck;
	ShardStuckCount stuck_guest;

	/* TimestampTz: when the turn began, 0: in none; and when it was last seen to begin another call, or began */
	pg_atomic_uint64 turn_since;
	pg_atomic_uint64 turn_at;

	/* written by the worker's signal handler */
	ShardLongCall long_call;

	/* counters since start, written by the worker alone */
	pg_atomic_uint64 messages;
	pg_atomic_uint64 turns;
	pg_atomic_uint64 errors;
	pg_atomic_uint64 recounts; /* recounts that found a wrong count */
	pg_atomic_uint64 cache_entities;
	pg_atomic_uint64 cache_bytes;
	pg_atomic_uint64 void_replies; /* that found no ask (ring_later.c) */
	pg_atomic_uint64 commit_lsn;   /* of the last turn that wrote */
	pg_atomic_uint64 caught_up_at; /* TimestampTz of the last turn that left nothing to read */
} ShardWorkerSlot;

/*
 * Committed position of a lane, published by its worker after commit. Zero
 * until a worker that owns the lane has started: nothing is truncated then.
 */
typedef struct ShardLane
{
	pg_atomic_uint64 q;			 /* every row up to here was looked at */
	pg_atomic_uint64 needed;	 /* lowest seq the lane may still read */
	pg_atomic_uint64 cursor_seq; /* of the newest committed cursor row */

	/* the message whose handler had to be ended with its worker: not run again; type, shard, seq, as a seq may be one of the shard (Q34) */
	pg_atomic_uint32 stuck_type;
	pg_atomic_uint32 stuck_shard;
	pg_atomic_uint64 stuck_seq;
	pg_atomic_uint32 stuck_fatal;	 /* it ended the worker by its error */
	pg_atomic_uint32 stuck_numbered; /* its type has ordered_by, and this is its number */
	pg_atomic_uint64 stuck_number;
} ShardLane;

/* One segment table of the log; all under append_lock. */
typedef struct ShardSegment
{
	Oid relid;
	Oid filenumber;		/* of the file that the facts below describe */
	BlockNumber blocks; /* length after the last append */
	int64 first_seq;	/* 0: empty */
	int64 last_seq;
} ShardSegment;

/* The segment log of one database (log.c); all under append_lock. */
typedef struct ShardLog
{
	bool ready;		/* false: rebuild from the tables before use */
	int64 next_seq; /* also readable without lock through last_seq */
	int current;	/* segment that receives rows */
	int live_count;
	int live[SHARD_SEGMENTS];  /* not empty ones and current, oldest first */
	uint64 generation;		   /* rises when a file got shorter or was replaced */
	pg_atomic_uint64 switches; /* how often another segment became current; read without the lock */
	TimestampTz switched_at;
	ShardSegment segment[SHARD_SEGMENTS];
	pg_atomic_uint64 last_seq; /* = next_seq - 1 */
	pg_atomic_uint64 bytes;	   /* of all segments, as of the last append or rotation */
} ShardLog;

/* Links of region workers that fail (link_trouble.c); since = 0: the entry is free. */
#define SHARD_LINK_TROUBLES 32

typedef struct ShardLinkTrouble
{
	int32 node;
	int worker;
	int use; /* ShardLinkUse */
	TimestampTz since;
	TimestampTz last; /* failure */
	char error[SHARD_TURN_ERROR];
} ShardLinkTrouble;

/* Lines of the log that peers can have written (told.c). */
#define SHARD_TOLD 64

/* What a process may own beside lanes: the role of the control worker, and for a moment the rotation (D9). */
#define SHARD_OWNER_COORDINATOR SHARD_LANES
#define SHARD_OWNER_ROTATION (SHARD_LANES + 1)
#define SHARD_OWNERS (SHARD_LANES + 2)

typedef struct ShardDatabase
{
	/* guarded by the control lock */
	Oid dboid;
	ShardDatabaseState state;
	bool paused; /* identity is not clear: see shard.node */

	/*
	 * Which worker has which lanes, read by workers that start; a worker may still be on its way to these. Under the
	 * lock, too.
	 */
	ShardDivision division;
	TimestampTz group_missed_at[SHARD_GROUPS]; /* the launcher's alone */

	ShardProbeOutcome probe_outcome;
	bool probe_wanted; /* CREATE EXTENSION committed: stop all workers, probe again */
	int installing;	   /* open transactions that run CREATE EXTENSION */

	/* copies of parts of the division, for readers without the lock */
	pg_atomic_uint64 workers;	  /* mask: those that are to run */
	pg_atomic_uint32 division_no; /* rises with each new one */

	/* mask: groups of lanes that have types here, as the control worker found last */
	pg_atomic_uint32 groups;

	/* workers whose link to a node is down, by the node's number (buffer.c) */
	pg_atomic_uint32 away[SHARD_AWAY_COUNTERS];

	/* counters of types get scarce: a worker is to give back those of types that are gone (shmem_counter.c) */
	pg_atomic_uint32 counters_wanted;

	slock_t trouble_mutex; /* guards the next two */
	ShardLinkTrouble trouble[SHARD_LINK_TROUBLES];
	ShardQuiet told[SHARD_TOLD + 1];

	LWLock *append_lock;
	ShardLog log;
	ShardWorkerSlot worker[SHARD_WORKER_SLOTS]; /* region workers, then the control worker */
	ShardLane lane[SHARD_LANES];

	/* process that owns a lane, or one of the things behind them (W2); 0: none */
	pg_atomic_uint32 owner[SHARD_OWNERS];
} ShardDatabase;

/* Messages of a type that cannot be handled now, for buffer_size. */
typedef struct ShardTypeCounter
{
	Oid dboid; /* key, first two fields; InvalidOid: free. Changed under the control lock alone */
	int32 type_id;
	pg_atomic_uint64 held; /* written by workers, after commit, under that lock in shared mode */
	pg_atomic_uint32
		aside; /* some were put aside to make room in the inbox; a hint, like the next look at held */
} ShardTypeCounter;

#define SHARD_TYPE_COUNTERS 1024

/* One database does not take all of them. */
#define SHARD_DATABASE_COUNTERS (SHARD_TYPE_COUNTERS / 8 * 7)

/*
 * Our workers stay out of a database until a transaction ends (bar.c). The backend of that transaction makes and
 * removes the entry; the launcher sets ready, and removes entries of transactions that ended, too.
 */
typedef struct ShardBar
{
	Oid dboid;				   /* InvalidOid: entry is free */
	VirtualTransactionId vxid; /* of the transaction that raised the bar */
	bool ready;				   /* the workers are gone */
} ShardBar;

#define SHARD_MAX_BARS 64

/*
 * What waits at the gate to the standbys, for shard_health (gate.c). One for the whole server, as the standbys are,
 * too.
 */
typedef struct ShardGateWatch
{
	slock_t mutex; /* guards the rest */
	uint64
		lsn; /* a commit that an asker gave up waiting for; past the gate, if the standbys have it by now */
	TimestampTz waits_since; /* since when it has been waited for */
	TimestampTz alone_since; /* there are fewer synchronous standbys than it takes; 0: enough */
} ShardGateWatch;

typedef struct ShardShared
{
	LWLock *lock; /* "the control lock" */

	slock_t launcher_mutex; /* guards the next two */
	pid_t launcher_pid;		/* 0: not running */
	Latch *launcher_latch;
	pg_atomic_uint32 launcher_wake;
	pg_atomic_uint32 list_wanted;	 /* databases came or went: read pg_database again */
	ConditionVariable launcher_done; /* broadcast when it set a bar ready */

	ShardGateWatch gate;

	/* guarded by the control lock */
	ShardBar bar[SHARD_MAX_BARS];
	int databases; /* high-water mark of slots ever used */
	ShardDatabase database[SHARD_MAX_DATABASES];
	ShardTypeCounter counter[SHARD_TYPE_COUNTERS];
} ShardShared;

extern PGDLLIMPORT ShardShared *shard_shared;

/* Whether the library was loaded at server start; if not, there is no shared memory. */
extern PGDLLIMPORT bool shard_preloaded;

/* What another file keeps in shared memory; the first two functions are required, the others optional. */
typedef struct ShardShmemPart
{
	Size (*size)(void);
	void (*startup)(void);			   /* makes or finds the memory; with AddinShmemInitLock */
	void (*request)(void);			   /* locks, beside memory */
	void (*forget)(ShardDatabase *db); /* a slot is for another database now */
	void (*free)(ShardDatabase *db, Oid dboid); /* a slot is given back; before it is forgotten */
} ShardShmemPart;

/* Called from _PG_init: requests memory and locks, chains the hooks. parts: kept by reference, ends with NULL. */
extern void shard_shmem_init(const ShardShmemPart *const *parts);

/* shared.c: calls it with all parts there are; from _PG_init. */
extern void shard_shared_init(void);

/* Error 55000 with a hint unless the library was preloaded. */
extern void shard_shmem_require(void);

/* This backend's database slot; NULL if none was made yet. Takes no lock once found. */
extern ShardDatabase *shard_shmem_database(void);

/* The same, making the slot if needed; error when SHARD_MAX_DATABASES are in use. */
extern ShardDatabase *shard_shmem_database_or_make(Oid dboid);

/* The slot of any database; NULL if there is none. The caller holds the control lock. */
extern ShardDatabase *shard_shmem_find_database(Oid dboid);

/* A new slot for a database; NULL if all are taken. The caller holds the control lock exclusively. */
extern ShardDatabase *shard_shmem_make_database(Oid dboid);

/* Gives a slot and the database's counters back. The caller knows that no worker and no sender runs. */
extern void shard_shmem_free_database(ShardDatabase *db);

/* Forgets what former workers published of their lanes; nothing is truncated then. */
extern void shard_shmem_forget_lanes(ShardDatabase *db);

/* Reports at this level, ERROR or WARNING, that all slots are taken. */
extern void shard_shmem_too_many_databases(int level);

/* Number of a slot. */
static inline int
shard_shmem_database_index(const ShardDatabase *db)
{
	return (int) (db - shard_shared->database);
}

/*
 * Counters of types (shmem_counter.c).
 */

/* Whether a counter, to which a pointer was kept, still is that of the type. */
static inline bool
shard_shmem_is_counter(const ShardTypeCounter *counter, Oid dboid, int32 type_id)
{
	return counter != NULL && counter->dboid == dboid && counter->type_id == type_id;
}

/*
 * The counter of a type, made on first use. Never NULL; error when all are taken, or as many as a database may have.
 * Takes the control lock: callers keep the pointer, and check with shard_shmem_is_counter() before each use.
 */
extern ShardTypeCounter *shard_shmem_type_counter(Oid dboid, int32 type_id);

/* The value of a type's counter, whose pointer is kept in *counter; 0 if the type has none. Makes none. No error. */
extern int64 shard_shmem_held(ShardTypeCounter **counter, Oid dboid, int32 type_id);

/*
 * Adds to a type's counter, whose pointer is kept in *counter. Counts nothing when all counters are taken, and takes
 * nothing off a counter that is gone. No error.
 */
extern void
shard_shmem_count_held(ShardTypeCounter **counter, Oid dboid, int32 type_id, int64 change);

/* The counters of a database, at most SHARD_TYPE_COUNTERS, with their values; returns how many. */
extern int shard_shmem_list_counters(Oid dboid, ShardTypeCounter **counters, int64 *held);

/*
 * Worker: whether to look for counters that are not needed any more. True once for each time that a process wanted it.
 */
extern bool shard_shmem_counters_wanted(void);

/* Gives back the counter of a type that is gone, unless its value differs from held by now. */
extern void
shard_shmem_free_counter(ShardTypeCounter *counter, Oid dboid, int32 type_id, int64 held);

/*
 * The division of lanes among region workers (shmem_worker.c).
 */

/* The worker of a lane; it may not run, or not have the lane yet. Without lock. */
static inline int
shard_shmem_lane_worker(const ShardDatabase *db, int lane)
{
	return db->division.worker[lane];
}

/*
 * The worker that looks after what all owners have in common: the keeper, or, without one, that of lane 0. Without
 * lock.
 */
static inline int
shard_shmem_caretaker(const ShardDatabase *db)
{
	uint64 keeper = db->division.keeper;

	return keeper != 0 ? shard_lane_next(keeper, 0) : shard_shmem_lane_worker(db, 0);
}

/* The region workers that are to run, as a mask. Without lock. */
static inline uint64
shard_shmem_workers(ShardDatabase *db)
{
	return pg_atomic_read_u64(&db->workers);
}

/* Goes through the region workers that are to run, in order of their numbers. */
#define shard_each_worker(worker, db) \
	for (int worker = shard_lane_next(shard_shmem_workers(db), 0); worker < SHARD_MAX_WORKERS; \
		 worker = shard_lane_next(shard_shmem_workers(db), worker + 1))

/* Rises with each new division. Without lock. */
static inline uint32
shard_shmem_division(ShardDatabase *db)
{
	return pg_atomic_read_u32(&db->division_no);
}

/*
 * Divides the lanes again, for these groups and the present settings; an unchanged division stays as it is. The caller
 * holds the control lock exclusively.
 */
extern void shard_shmem_divide(ShardDatabase *db, uint8 groups);

/* Notes the groups of lanes that have types in the database; the launcher hears of a change. */
extern void shard_shmem_found_groups(ShardDatabase *db, uint8 groups);

/* Wakes the region workers of these lanes. */
extern void shard_shmem_wake_lanes(ShardDatabase *db, ShardLanes lanes);

/* Wakes all region workers. */
extern void shard_shmem_wake_region(ShardDatabase *db);

/*
 * Worker slots (shmem_worker.c).
 */

/* The lanes of a worker under the present configuration, as a mask. */
extern ShardLanes shard_shmem_worker_lanes(const ShardDatabase *db, int worker);

/*
 * Wakes the worker of this number; harmless if it does not run. Cheap if the worker was woken already and has not
 * looked since.
 */
extern void shard_shmem_wake_worker(ShardDatabase *db, int worker);

/* Wakes the launcher. */
extern void shard_shmem_wake_launcher(void);

/*
 * Attaches the calling process to a worker slot, until it exits. Called again,
 * it only sets the lanes. Error if another process has the slot.
 */
extern void shard_shmem_attach_worker(ShardDatabase *db, int worker, ShardLanes lanes);

/*
 * Makes this process, which is attached, the owner of a lane, or of one of SHARD_OWNER_..., until it gives that back or
 * exits. False: another process is the owner. Not a lock of the server, since SQL could release such a lock.
 */
extern bool shard_shmem_own(ShardDatabase *db, int lane);

/* Gives back a lane, or one of SHARD_OWNER_..., that this process owns. */
extern void shard_shmem_disown(ShardDatabase *db, int lane);

/* The slot that this process is attached to, or NULL. */
extern ShardWorkerSlot *shard_shmem_my_worker(void);

/* The process that is attached to a worker's slot; 0: the worker does not run. */
extern int shard_shmem_worker_pid(ShardDatabase *db, int worker);

static inline bool
shard_shmem_worker_runs(ShardDatabase *db, int worker)
{
	return shard_shmem_worker_pid(db, worker) != 0;
}

/*
 * How turns go (shmem_turns.c). The worker: a turn was committed. moved: the turn passed something or left nothing to
 * do; looked_at: its start, if it did all that was due in stashes and all parked messages that could go on, else 0.
 */
extern void shard_shmem_turn_done(ShardWorkerSlot *slot, bool moved, TimestampTz looked_at);

/*
 * The worker: a turn begins; it has ended, also if there was none; in a signal handler: the turn is at another call of
 * users' code than at the last tick. So a turn that is long because it makes many calls is not taken for one that
 * stands still.
 */
extern void shard_shmem_turn_began(ShardWorkerSlot *slot, TimestampTz at);
extern void shard_shmem_turn_ended(ShardWorkerSlot *slot);
extern void shard_shmem_turn_goes_on(ShardWorkerSlot *slot);

/* Any process: since when the worker is in a turn, 0: in none; *at: since when that turn has come no further. */
extern TimestampTz shard_shmem_turn(ShardWorkerSlot *slot, TimestampTz *at);

/* The worker: a turn failed (type_id 0: at no entity). */
extern void shard_shmem_turn_failed(ShardWorkerSlot *slot, int32 type_id, const char *entity,
									const char *error);

/* Any process: what the worker told last. */
extern void shard_shmem_turns(ShardWorkerSlot *slot, ShardWorkerTurns *turns);

/* The worker, in a signal handler: a call has been running for long. The worker: the call has ended. */
extern void shard_shmem_call_is_long(ShardWorkerSlot *slot, TimestampTz since, int32 type_id,
									 const char *entity, int entity_len);
extern void shard_shmem_call_ended(ShardWorkerSlot *slot);

/* Any process: since when a long call runs, 0: none; entity is palloc'd. */
extern TimestampTz shard_shmem_long_call(ShardWorkerSlot *slot, int32 *type_id, char **entity);
