/*
 * flow_messages.h
 *		The model of a data plane with messages: inbox, cursors, turns, outbox, streams, parked and
 *		stashed messages, ownership, moves.
 *
 * The rules are those of core/flow, used unchanged; what is modelled here is what surrounds them:
 * transactions, processes that may stop between any two steps, the network, the disk.
 */
#pragma once

#include "flow.h"

/* As flow_messages has them: flow.h says what they do. */
extern Flow *flow_create(const FlowHost *host, Store *store, Check *check, int instance,
						 const FlowSettings *settings);
extern void flow_destroy(Flow *flow);
extern void flow_retire(Flow *flow);
extern void flow_strand(Flow *flow);
extern FlowSettings *flow_settings(Flow *flow);
extern void flow_start(Flow *flow, ShardStartKind kind, ShardUuid incarnation);
extern void flow_crash(Flow *flow);
extern void flow_action(Flow *flow, const ShardAction *action);
extern void flow_receive(Flow *flow, int32 from, const void *bytes, size_t length);
extern uint32 flow_ready(Flow *flow);
extern int64 flow_wake(Flow *flow);
extern bool flow_step(Flow *flow, int process);
extern bool flow_midway(const Flow *flow, int process);
extern int64 flow_tell(Flow *flow, int session, int32 type_id, int32 shard, int32 entity);
extern bool flow_session_open(const Flow *flow, int session);
extern bool flow_session_idle(const Flow *flow, int session);
extern void flow_commit(Flow *flow, int session);
extern void flow_rollback(Flow *flow, int session);
extern void flow_redrive(Flow *flow, int session);
extern void flow_link_accept(Flow *flow, int32 peer);
extern bool flow_quarantined(Flow *flow);
extern int flow_pending(Flow *flow, char *text, size_t size);
extern bool flow_is_empty(Flow *flow);
extern int32 flow_active_epoch(Flow *flow, int32 type_id, int32 shard);
extern void flow_check_end(Flow *const *flows, int n_flows, Check *check);

extern Store *flow_store(Flow *flow);
extern bool flow_running(const Flow *flow);

/* An action FACT for a fact that is no map entry. */
extern void flow_fact(Flow *flow, int32 type_id, int32 shard, const ShardHomeRecord *home, int64 n);

/* The node tells another one that the shard's home is at node, in the next epoch: a lie, of that version of the map (T6). */
extern void flow_lie(Flow *flow, int32 to, int32 type_id, int32 shard, int32 node, int64 n);

/*
 * Of entities that have an order the messages get numbers (check_draw_number); these are entity 0 of every
 * other shard of a type without a lease.
 */
extern bool flow_is_ordered(const Flow *flow, int32 type_id, int32 shard, int32 entity);

/* At any time between two steps: is what the origin keeps in one place (V7)? */
extern void flow_check_places(Flow *flow);
