/*
 * flow.h
 *		The data plane of one node, modelled over a store: how messages flow, and shards move.
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
 * A model of data planes: with messages (flow_messages.h), or with ownership rows only, so that many
 * more histories of the control plane fit into a minute.
 */
typedef struct FlowModel
{
	/*
	 * instance: a number below 64 that the checkers know the database by; a restored copy or a
	 * promoted standby gets another one.
	 */
	Flow *(*create)(const FlowHost *host, Store *store, Check *check, int instance,
					const FlowSettings *settings);
	void (*destroy)(Flow *flow);

	/*
	 * This database is not the node's any more (frozen old primary, files that were put back over):
	 * the checkers hear of it no more.
	 */
	void (*retire)(Flow *flow);

	/* Its state is lost for good (after a crash): what its shards had in the stash went with them. */
	void (*strand)(Flow *flow);

	FlowSettings *(*settings)(Flow *flow); /* workers may be changed at any time */

	/*
	 * The database came up: clients may tell. Region workers run from START_WORKERS on (flag: push and
	 * receive, too) until STOP_WORKERS or a crash.
	 */
	void (*start)(Flow *flow, ShardStartKind kind, ShardUuid incarnation);
	void (*crash)(Flow *flow); /* the store's unflushed commits go, too */

	/*
	 * An action of the control plane: FACT (a home's entry; others are ignored), STOP_SHARD,
	 * PARK_SHARD, IMPORT_SHARD, START_WORKERS, STOP_WORKERS, LEASE. Facts are kept in memory until a
	 * transaction has taken them, so after a crash the world gives all homes that the control plane
	 * knows once more, after START_WORKERS; what is known already changes nothing.
	 */
	void (*action)(Flow *flow, const ShardAction *action);

	void (*receive)(Flow *flow, int32 from, const void *bytes, size_t length);

	/*
	 * Processes. wake: when time alone makes another one ready, PG_INT64_MAX if never. A step may find
	 * that there is nothing to do: false. midway: is the process in the middle of a transaction?
	 * Keeper and flusher never are.
	 */
	uint32 (*ready)(Flow *flow);
	int64 (*wake)(Flow *flow);
	bool (*step)(Flow *flow, int process);
	bool (*midway)(const Flow *flow, int process);

	/*
	 * Clients. A tell opens the session's transaction if none is open; it returns the message's
	 * number, 0 if it was refused (disk full). Commit returns later, when the flusher was there. A new
	 * tell waits for that: false from session_idle.
	 */
	int64 (*tell)(Flow *flow, int session, int32 type_id, int32 shard, int32 entity);
	bool (*session_open)(const Flow *flow, int session);
	bool (*session_idle)(const Flow *flow, int session);
	void (*commit)(Flow *flow, int session);
	void (*rollback)(Flow *flow, int session);

	/* Dead letters that had no effect are sent again, some at a time, by the session's transaction. */
	void (*redrive)(Flow *flow, int session);

	/* shard_link_accept(): go on with a quarantined link, the gap is dead. */
	void (*link_accept)(Flow *flow, int32 peer);
	bool (*quarantined)(Flow *flow);

	/*
	 * What is undone: messages in inbox, outbox, parked, stash; operations under way. 0 at rest. text
	 * (may be NULL) gets the first few, for people.
	 */
	int (*pending)(Flow *flow, char *text, size_t size);

	/* Is nothing here of any shard, and no message for another node? Workers run. */
	bool (*is_empty)(Flow *flow);

	/* The epoch, or -1 if the shard is not active here (durably). */
	int32 (*active_epoch)(Flow *flow, int32 type_id, int32 shard);

	/* At the end, over all flows of a history: is every message where it must be? */
	void (*check_end)(Flow *const *flows, int n_flows, Check *check);
} FlowModel;

extern const FlowModel flow_messages;
extern const FlowModel flow_ownership;
