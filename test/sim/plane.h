/*
 * plane.h
 *		The data plane of one node, modelled over a store: inbox, cursors, turns, outbox, streams,
 *		parked and stashed messages, ownership, moves.
 *
 * The rules are those of core/route.h, core/mark.h, core/stream.h and core/handoff.h, used unchanged;
 * what is modelled here is what surrounds them: transactions, processes that may stop between any two
 * steps, the network, the disk.
 *
 * The world owns time, network and scheduling. It lets a process of the node make one small step at a
 * time, carries the bytes that planes send to one another (it may delay, lose, repeat and reorder
 * them: planes number their connections and requests), and feeds the control plane's actions in.
 * Everything a plane keeps in memory is gone at plane_crash; what is in its store stays, as far as
 * the store had flushed it.
 */
#pragma once

#include "postgres_fe.h"

#include "check.h"
#include "core/node/node.h"
#include "store.h"

#define PLANE_NO_TIMEOUT (3600 * INT64CONST(1000000)) /* of a gap: it is kept */
#define PLANE_LANES 4								  /* few, so that lanes are shared */
#define PLANE_WORKERS 4								  /* at most */
#define PLANE_BACKENDS 8 /* transactions of peers' calls at the same time, zombies included */
#define PLANE_SESSIONS 8 /* clients' sessions */

/*
 * Processes, by number: a mask of those that could do something now is plane_ready(). The flusher is
 * the WAL writer (and every waiting commit); the keeper does what is not a turn: seals, imports,
 * delayed deletes, rotation, truncation.
 */
#define PLANE_BACKEND(i) (PLANE_WORKERS + (i))
#define PLANE_KEEPER (PLANE_WORKERS + PLANE_BACKENDS)
#define PLANE_FLUSHER (PLANE_KEEPER + 1)
#define PLANE_PROCESSES (PLANE_FLUSHER + 1)

typedef struct Plane Plane;

/* What the world does for a plane; context is the world's. */
typedef struct PlaneHost
{
	void *context;
	void (*send)(void *context, int32 to, const void *bytes, size_t length);
	void (*node_event)(void *context, const ShardNodeEvent *event);
	int64 (*now)(void *context);				   /* microseconds, monotonic, this node's clock */
	uint32 (*random)(void *context, uint32 below); /* deterministic */
	int32 (*node)(void *context);				   /* own id; asked while workers run */
	int32 (*incarnation)(void *context);		   /* own inc_no; asked while workers run */
	bool (*leased)(void *context, int32 type_id);  /* NULL: no type is */
	void (*note)(void *context, const char *text); /* a line of the trace; NULL: no trace */
	int32 (*era)(void *context); /* of the cluster, as known here; NULL: the first one */
} PlaneHost;

/* How a plane behaves; zero means the default. */
typedef struct PlaneSettings
{
	int workers;			/* 1 */
	int turn_messages;		/* rows of a turn at most; 6 */
	int step_messages;		/* rows between two steps of a turn; 2 */
	int batch_rows;			/* rows of a push; 8 */
	int defer_percent;		/* messages that a handler defers to the stash; 5 */
	int tell_percent;		/* messages whose handler tells another entity; 15 */
	int bury_percent;		/* messages that a handler fails at until they are given up; 2 */
	int64 call_timeout;		/* 500 ms */
	int64 delete_delay;		/* of a moved shard's rows, at most; 3 s */
	int types;				/* whom handlers tell: type ids 1..types, */
	int shards;				/* shards 0..shards-1 of each, */
	int entities;			/* entities 0..entities-1 of each; without types they tell nobody */
	int64 ordered_timeout;	/* after which a gap is given up (D25); 0: no entity has an order */
	int ordered_window;		/* messages that may wait; 4 */
	bool ordered_from;		/* an entity begins with 1, not with what comes first */
	bool ordered_no_more;	/* the type has no ordered_by any longer */
	bool no_tells_from_now; /* handlers send nothing new, and defer nothing: a history is to end */
} PlaneSettings;

/*
 * instance: a number below 64 that the checkers know the database by; a restored copy or a promoted
 * standby gets another one. retire: this database is not the node's any more (frozen old primary,
 * files that were put back over): the checkers hear of it no more.
 */
extern Plane *plane_create(const PlaneHost *host, Store *store, Check *check, int instance,
						   const PlaneSettings *settings);
extern void plane_retire(Plane *plane);

/* Its state is lost for good (after a crash): what its shards had in the stash went with them. */
extern void plane_strand(Plane *plane);
extern void plane_destroy(Plane *plane);
extern PlaneSettings *plane_settings(Plane *plane); /* workers may be changed at any time */
extern Store *plane_store(Plane *plane);

/*
 * The database came up: clients may tell. Region workers run from START_WORKERS on (flag: push and
 * receive, too) until STOP_WORKERS or a crash.
 */
extern void plane_start(Plane *plane, ShardStartKind kind, ShardUuid incarnation);
extern bool plane_running(const Plane *plane);
extern void plane_crash(Plane *plane); /* the store's unflushed commits go, too */

/*
 * An action of the control plane: FACT (a home's entry; others are ignored), STOP_SHARD,
 * IMPORT_SHARD, START_WORKERS, STOP_WORKERS, LEASE. Facts are kept in memory until a transaction has
 * taken them, so after a crash the world gives all homes that the control plane knows once more,
 * after START_WORKERS; what is known already changes nothing.
 */
extern void plane_action(Plane *plane, const ShardAction *action);

/* The same for a fact that is no map entry. */
extern void
plane_fact(Plane *plane, int32 type_id, int32 shard, const ShardHomeRecord *home, int64 n);

/* The node tells another one that the shard's home is at node, in the next epoch: a lie, of that version of the map (T6). */
extern void plane_lie(Plane *plane, int32 to, int32 type_id, int32 shard, int32 node, int64 n);

extern void plane_receive(Plane *plane, int32 from, const void *bytes, size_t length);

/*
 * Processes. wake: when time alone makes another one ready, PG_INT64_MAX if never. A step may find
 * that there is nothing to do: false.
 */
extern uint32 plane_ready(Plane *plane);
extern int64 plane_wake(Plane *plane);
extern bool plane_step(Plane *plane, int process);

/* Is the process in the middle of a transaction? Keeper and flusher never are. */
extern bool plane_midway(const Plane *plane, int process);

/*
 * Clients. A tell opens the session's transaction if none is open; it returns the message's number,
 * 0 if it was refused (disk full). Commit returns later, when the flusher was there. A new tell waits
 * for that: false from plane_session_idle.
 */
extern int64 plane_tell(Plane *plane, int session, int32 type_id, int32 shard, int32 entity);
extern bool plane_session_open(const Plane *plane, int session);
extern bool plane_session_idle(const Plane *plane, int session);
extern void plane_commit(Plane *plane, int session);
extern void plane_rollback(Plane *plane, int session);

/*
 * Of entities that have an order the messages get numbers (check_draw_number); these are entity 0 of every
 * other shard of a type without a lease.
 */
extern bool plane_is_ordered(const Plane *plane, int32 type_id, int32 shard, int32 entity);

/* Dead letters that had no effect are sent again, some at a time. A transaction of the session does it. */
extern void plane_redrive(Plane *plane, int session);

/* shard_link_accept(): go on with a quarantined link, the gap is dead. */
extern void plane_link_accept(Plane *plane, int32 peer);

/*
 * What is undone: messages in inbox, outbox, parked, stash; operations under way. 0 at rest. text
 * (may be NULL) gets the first few, for people.
 */
extern int plane_pending(Plane *plane, char *text, size_t size);

/* Is nothing here of any shard, and no message for another node? Workers run. */
extern bool plane_is_empty(Plane *plane);

/* Questions of the checkers. The epoch, or -1 if the shard is not active here (durably). */
extern int32 plane_active_epoch(Plane *plane, int32 type_id, int32 shard);
extern bool plane_quarantined(Plane *plane);

/* Facts that contradicted what is here, since the start: the shards stay stopped, loud (M6). */
extern int plane_wrong(const Plane *plane);

/* At any time between two steps: is what the origin keeps in one place (V7)? */
extern void plane_check_places(Plane *plane);

/* At the end, over all planes of a history: is every message where it must be? */
extern void plane_check_end(Plane *const *planes, int n_planes, Check *check);
