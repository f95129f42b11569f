/*
 * flow_turn.h
 *		Between the parts of a worker's turn, and what its routes want done.
 */
#pragma once

#include "flow_private.h"

/* flow_route.c */
extern const ShardRouteHost turn_route_host;

/* Something that follows the commit of the running turn. */
extern void turn_output(Worker *worker, ReleaseKind kind, const ShardRoute *route, int64 id,
						int32 peer, int64 number);

/* flow_cursor.c */
extern bool turn_has_lane(const Worker *worker, int lane);
extern int64 turn_lowest_q(const Worker *worker);
extern Sender *turn_find_sender(CursorRow *cursor, int64 xid);
extern void turn_read_cursors(Worker *worker);
extern void turn_drain_senders(Worker *worker);
extern void turn_scan_forward(Worker *worker);

/* flow_handle.c */
/* A row of the log, in its turn. */
extern void turn_process(Worker *worker, const FlowRow *stored);
extern void turn_drain_stash(Worker *worker);
extern int64 turn_stash_due(Worker *worker); /* the first of it */

/* Handle it, or put it into the stash. */
extern void turn_take(Worker *worker, const ShardRoute *route, const FlowRow *row);

/* The turn runs something of the shard. */
extern void turn_runs(Worker *worker, const ShardRoute *route);

/* The handler is called. False: it is to be called again, later; not if this is again. */
extern bool turn_run(Worker *worker, const ShardRoute *route, const FlowRow *row, bool again);

/* It is given up, without an effect. */
extern void turn_give_up(Worker *worker, const ShardRoute *route, const FlowRow *row);

/* Has the entity anything in the stash? */
extern bool turn_has_stash(const Worker *worker, int64 shard_key, int32 entity);

/* A time when a failed message runs again; it may have been set by another clock. */
extern int64 turn_again_at(const Flow *flow);
extern int64 turn_due_here(int64 due, int64 now);

/* flow_operation.c */
extern bool turn_has_operations(const Worker *worker);
extern void turn_take_operations(Worker *worker);
extern void turn_end_operations(Worker *worker, bool committed, int64 lsn);

/* flow_worker.c */
extern bool turn_save_marks(Worker *worker);

/* flow_turn.c */
extern void turn_publish(Worker *worker, int64 lsn); /* past its commit */

/* flow_order.c: the order of entities by numbers, in a worker's memory (D25) */
/* What waits and can go on does; true: some of that is left, and nothing else of the entity is to run. */
extern bool order_goes_first(Worker *worker, const ShardRoute *route, int32 entity);
extern bool order_take(Worker *worker, const ShardRoute *route, const FlowRow *row, bool again);
extern void order_run_due(Worker *worker);
extern int64 order_due_at(Worker *worker);
extern void order_handled(Worker *worker, const FlowRow *row);
extern void order_load(Worker *worker, const ShardRoute *route);
extern void order_load_all(Worker *worker);
extern void order_forget(Worker *worker, const ShardRoute *route);
extern void order_discard(Worker *worker, const ShardRoute *route);
extern void order_write(Worker *worker);
extern void order_end(Worker *worker, bool committed);
extern void order_has_read(Worker *worker, bool clean, int64 passed);
