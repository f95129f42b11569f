/*
 * flow.h
 *		The data plane of one node, modelled over a store: inbox, cursors, turns, outbox, streams,
 *		parked and stashed messages, ownership, moves.
 *
 * The rules are those of core/route.h, core/mark.h, core/stream.h and core/handoff.h, used unchanged;
 * what is modelled here is what surrounds them: transactions, processes that may stop between any two
 * steps, the network, the disk.
 *
 * The world owns time, network and scheduling. It lets a process of the node make one small step at a
 * time, carries the bytes that flows send to one another (it may delay, lose, repeat and reorder
 * them: flows number their connections and requests), and feeds the control plane's actions in.
 * Everything a flow keeps in memory is gone at flow_crash; what is in its store stays, as far as
 * the store had flushed it.
 */
#pragma once

#include "postgres_fe.h"

#include "check.h"
#include "core/node/node.h"
#include "store.h"

#define FLOW_NO_TIMEOUT (3600 * INT64CONST(1000000)) /* of a gap: it is kept */
#define FLOW_LANES 4								 /* few, so that lanes are shared */
#define FLOW_WORKERS 4								 /* at most */
#define FLOW_BACKENDS 8 /* transactions of peers' calls at the same time, zombies included */
#define FLOW_SESSIONS 8 /* clients' sessions */

/*
 * Processes, by number: a mask of those that could do something now is flow_ready(). The flusher is
 * the WAL writer (and every waiting commit); the keeper does what is not a turn: seals, imports,
 * delayed deletes, rotation, truncation.
 */
#define FLOW_BACKEND(i) (FLOW_WORKERS + (i))
#define FLOW_KEEPER (FLOW_WORKERS + FLOW_BACKENDS)
#define FLOW_FLUSHER (FLOW_KEEPER + 1)
#define FLOW_PROCESSES (FLOW_FLUSHER + 1)

typedef struct Flow Flow;

/* What the world does for a flow; context is the world's. */
typedef struct FlowHost
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
} FlowHost;

/* How a flow behaves; zero means the default. */
typedef struct FlowSettings
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
} FlowSettings;

/*
 * instance: a number below 64 that the checkers know the database by; a restored copy or a promoted
 * standby gets another one. retire: this database is not the node's any more (frozen old primary,
 * files that were put back over): the checkers hear of it no more.
 */
extern Flow *flow_create(const FlowHost *host, Store *store, Check *check, int instance,
						 const FlowSettings *settings);
extern void flow_retire(Flow *flow);

/* Its state is lost for good (after a crash): what its shards had in the stash went with them. */
extern void flow_strand(Flow *flow);
extern void flow_destroy(Flow *flow);
extern FlowSettings *flow_settings(Flow *flow); /* workers may be changed at any time */
extern Store *flow_store(Flow *flow);

/*
 * The database came up: clients may tell. Region workers run from START_WORKERS on (flag: push and
 * receive, too) until STOP_WORKERS or a crash.
 */
extern void flow_start(Flow *flow, ShardStartKind kind, ShardUuid incarnation);
extern bool flow_running(const Flow *flow);
extern void flow_crash(Flow *flow); /* the store's unflushed commits go, too */

/*
 * An action of the control plane: FACT (a home's entry; others are ignored), STOP_SHARD, PARK_SHARD,
 * IMPORT_SHARD, START_WORKERS, STOP_WORKERS, LEASE. Facts are kept in memory until a transaction has
 * taken them, so after a crash the world gives all homes that the control plane knows once more,
 * after START_WORKERS; what is known already changes nothing.
 */
extern void flow_action(Flow *flow, const ShardAction *action);

/* The same for a fact that is no map entry. */
extern void flow_fact(Flow *flow, int32 type_id, int32 shard, const ShardHomeRecord *home, int64 n);

/* The node tells another one that the shard's home is at node, in the next epoch: a lie, of that version of the map (T6). */
extern void flow_lie(Flow *flow, int32 to, int32 type_id, int32 shard, int32 node, int64 n);

extern void flow_receive(Flow *flow, int32 from, const void *bytes, size_t length);

/*
 * Processes. wake: when time alone makes another one ready, PG_INT64_MAX if never. A step may find
 * that there is nothing to do: false.
 */
extern uint32 flow_ready(Flow *flow);
extern int64 flow_wake(Flow *flow);
extern bool flow_step(Flow *flow, int process);

/* Is the process in the middle of a transaction? Keeper and flusher never are. */
extern bool flow_midway(const Flow *flow, int process);

/*
 * Clients. A tell opens the session's transaction if none is open; it returns the message's number,
 * 0 if it was refused (disk full). Commit returns later, when the flusher was there. A new tell waits
 * for that: false from flow_session_idle.
 */
extern int64 flow_tell(Flow *flow, int session, int32 type_id, int32 shard, int32 entity);
extern bool flow_session_open(const Flow *flow, int session);
extern bool flow_session_idle(const Flow *flow, int session);
extern void flow_commit(Flow *flow, int session);
extern void flow_rollback(Flow *flow, int session);

/*
 * Of entities that have an order the messages get numbers (check_draw_number); these are entity 0 of every
 * other shard of a type without a lease.
 */
extern bool flow_is_ordered(const Flow *flow, int32 type_id, int32 shard, int32 entity);

/* Dead letters that had no effect are sent again, some at a time. A transaction of the session does it. */
extern void flow_redrive(Flow *flow, int session);

/* shard_link_accept(): go on with a quarantined link, the gap is dead. */
extern void flow_link_accept(Flow *flow, int32 peer);

/*
 * What is undone: messages in inbox, outbox, parked, stash; operations under way. 0 at rest. text
 * (may be NULL) gets the first few, for people.
 */
extern int flow_pending(Flow *flow, char *text, size_t size);

/* Is nothing here of any shard, and no message for another node? Workers run. */
extern bool flow_is_empty(Flow *flow);

/* Questions of the checkers. The epoch, or -1 if the shard is not active here (durably). */
extern int32 flow_active_epoch(Flow *flow, int32 type_id, int32 shard);
extern bool flow_quarantined(Flow *flow);

/* Facts that contradicted what is here, since the start: the shards stay stopped, loud (M6). */
extern int flow_wrong(const Flow *flow);

/* At any time between two steps: is what the origin keeps in one place (V7)? */
extern void flow_check_places(Flow *flow);

/* At the end, over all flows of a history: is every message where it must be? */
extern void flow_check_end(Flow *const *flows, int n_flows, Check *check);
