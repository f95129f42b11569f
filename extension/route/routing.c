/*
 * route/routing.c
 *		core/route in a region worker: where each message goes, durably (sections 8 and 9).
 *
 * A look-up per message in memory and nothing else, if the shard is active here. What changes tables, asks the control
 * worker or goes to another node is in routing_host.c. News for other nodes and processes leave after the commit.
 *
 * If the process dies right here: before the commit nothing of the turn happened, and the rows are met
 * again. After it, what was to be told is lost, and each of it comes again: homes are asked for as long
 * as something is parked; the coordinator asks for shards that it does not know to be active; origins
 * send again what they have not heard to be done, and are answered by marks, which the next worker
 * reads: the base from shard.shard_input, newer ones from the rows of the log, which is kept from the
 * first row on whose mark is not in the base (shard_routing_needed).
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/fault.h"
#include "core/base/message.h"
#include "log/cursor.h"
#include "entity/execution.h"
#include "entity/record.h"
#include "entity/turn.h"
#include "shared/gate.h"
#include "log/log_read.h"
#include "link/outbox.h"
#include "registry/registry.h"
#include "route/routing_private.h"
#include "link/transport.h"

#include "base/compat.h"

/* Parked messages that one call moves (H4). Those that run here may each need a subtransaction. */
#define CHUNK 100

/* How often a home is asked for. */
#define ASK_MS 2000

/* How soon again when the control worker's queue was full. */
#define FULL_MS 100

/* Shards that asks wait for, and of which it is remembered when their home was asked for. */
#define ASKED_SHARDS 64

ShardRouting shard_routing;

void
shard_routing_forget_ahead(void)
{
	shard_routing.ahead_of = NULL;
	shard_routing.parked_count = shard_routing.parked_next = 0;
	MemoryContextReset(shard_routing.ahead);
}

void
shard_routing_report(ShardNodeEventKind kind, const ShardShardRef *shard)
{
	ShardRouting *r = &shard_routing;
	ShardBoardEvent event = {kind, *shard};

	if (r->report_count == 0 && shard_board_report(r->db, &event))
		return;
	if (r->report_count == r->report_space)
	{
		r->report_space = Max(64, r->report_space * 2);
		r->reports = r->reports == NULL
						 ? MemoryContextAlloc(r->context, r->report_space * sizeof(ShardBoardEvent))
						 : repalloc_huge(r->reports, r->report_space * sizeof(ShardBoardEvent));
	}
	r->reports[r->report_count++] = event;
}

/* Tells the control worker what its queue had no room for. */
static void
flush_reports(void)
{
	ShardRouting *r = &shard_routing;
	int done = 0;

	while (done < r->report_count && shard_board_report(r->db, &r->reports[done]))
		done++;
	if (done == 0)
		return;
	r->report_count -= done;
	memmove(r->reports, r->reports + done, r->report_count * sizeof(ShardBoardEvent));
}

/* A shard that has an ownership row or parked messages: its entry is there from the start. */
static void
load_shard(int32 type_id, int32 shard, int64 parked, void *arg)
{
	MemoryContext old;

	if ((shard_routing.lanes & shard_lane_bit(shard_message_lane(type_id, shard))) == 0)
		return;
	old = MemoryContextSwitchTo(shard_routing.context);
	(void) shard_route_get(shard_routing.routes, type_id, shard);
	if (parked > 0)
		shard_routing_count(type_id, parked);
	MemoryContextSwitchTo(old);
}

/* The item that a row of the log is. */
static inline ShardItem
item_of(const ShardRow *row)
{
	return (ShardItem){.type_id = row->type_id,
					   .shard = row->shard,
					   .epoch = row->epoch,
					   .stamp = row->stamp,
					   .body = row};
}

/* Start: a row of the log that was taken in, maybe (H7). */
static void
rebuild(const ShardRow *row)
{
	ShardItem item = item_of(row);
	int lane = shard_message_lane(row->type_id, row->shard);
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);

	shard_route_rebuild(shard_routing.routes, &item);
	shard_routing.unsaved[lane] = Min(shard_routing.unsaved[lane], row->seq);
	MemoryContextSwitchTo(old);
}

ShardRoutes *
shard_routing_load(ShardDatabase *db, ShardLanes lanes, int32 self)
{
	ShardRouting *r = &shard_routing;
	MemoryContext old;

	r->db = db;
	r->lanes = lanes;
	r->self = self;
	r->held = true;
	/* commits of a former worker may not be flushed yet */
	r->lsn = shard_gate_newest();
	r->turn = CurrentMemoryContext;
	r->context = AllocSetContextCreate(TopMemoryContext, "shard routes", ALLOCSET_DEFAULT_SIZES);
	r->scratch = AllocSetContextCreate(TopMemoryContext, "shard routing", ALLOCSET_DEFAULT_SIZES);
	r->ahead =
		AllocSetContextCreate(TopMemoryContext, "shard parked messages", ALLOCSET_DEFAULT_SIZES);
	r->later = AllocSetContextCreate(TopMemoryContext, "shard news", ALLOCSET_DEFAULT_SIZES);
	for (int lane = 0; lane < SHARD_LANES; lane++)
		r->unsaved[lane] = r->passed[lane] = PG_INT64_MAX;
	shard_log_read_set_self(self);
	old = MemoryContextSwitchTo(r->context);
	r->routes = shard_route_create(self, &shard_routing_host, NULL, CHUNK);
	MemoryContextSwitchTo(old);
	shard_route_hold(r->routes, true);
	shard_routing_store_each(load_shard, NULL);
	shard_routing_set_load();
	r->leftovers = true;
	shard_routing_publish_counts();
	before_shmem_exit(shard_routing_uncount, 0);
	shard_cursor_register(SHARD_KIND_TELL, rebuild);
	return r->routes;
}

void
shard_routing_follow(const ShardBoardView *view)
{
	ShardAssert(view->handle && view->node == shard_routing.self);
	shard_routing.life = hash_bytes_extended((const unsigned char *) &view->cluster,
											 sizeof(view->cluster), view->node);
	shard_routing.inc_no = view->inc_no;
	shard_routing.held = !view->push;
	shard_route_hold(shard_routing.routes, shard_routing.held);
}

/* Nothing is to be told of this turn (any more). */
static void
forget_news(void)
{
	shard_routing.refusals = shard_routing.hellos = shard_routing.started = NIL;
	shard_routing.unheard = shard_routing.ended = shard_routing.undone = NIL;
	shard_routing.sets = NIL;
	shard_routing.set_lanes = 0;
	MemoryContextReset(shard_routing.later);
}

void
shard_routing_begin(void)
{
	shard_routing.turn = CurrentMemoryContext;
	shard_routing.known_type = 0;
	shard_routing.draining = shard_routing.drained = shard_routing.left = false;
	shard_routing.saved = shard_routing.overtaken = shard_routing.arrived = false;
	shard_routing.resent = false;
	forget_news();
	shard_routing_forget_ahead();
	shard_routing.types_now = shard_registry_generation(); /* what changes now is the next turn's */
	if (shard_routing.types_seen != shard_routing.types_now)
	{
		shard_outbox_types_changed();
		shard_routing_set_drop();
	}
	if (shard_routing.types_seen != shard_routing.types_now || shard_routing.strays)
		shard_routing_bury_dropped();
}

/* A row of the log that names what no version of this code writes. */
static void
damaged(const ShardRow *row)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
					errmsg("row " INT64_FORMAT " of the inbox is damaged", row->seq)));
}

/* Parked messages may be handled from now on. */
static void
begin_draining(void)
{
	shard_routing.draining = true;
	shard_routing.before = shard_turn_count();
}

static void
take_fact(const ShardRow *row)
{
	ShardReader reader = {row->payload, row->payload + row->payload_len};
	ShardFact fact;

	begin_draining();
	while (shard_packet_get_fact(&reader, &fact))
	{
		ShardHomeRecord home = shard_packet_fact_home(&fact);

		shard_route_fact(shard_routing.routes, fact.type_id, fact.shard, &home, fact.n);
		shard_routing.left |=
			shard_route_get(shard_routing.routes, fact.type_id, fact.shard)->parked;
	}
	shard_routing.draining = false;
	if (reader.failed)
		damaged(row);
}

static void
take_done(const ShardRow *row)
{
	ShardReader reader = {row->payload, row->payload + row->payload_len};
	ShardDone done;

	while (shard_packet_get_done(&reader, &done))
	{
		/*
		 * the shard of each message that was sent and is kept is known; for any other shard nothing is looked up, and
		 * no entry is made
		 */
		if (shard_route_known(shard_routing.routes, done.type_id, done.shard) != NULL &&
			shard_route_done(shard_routing.routes, done.type_id, done.shard, row->mid_node,
							 done.rseq))
			shard_outbox_look_again(done.type_id, done.shard);
	}
	if (reader.failed)
		damaged(row);
}

static void
take_hello(const ShardRow *row)
{
	int32 node;
	MemoryContext old;

	if (row->payload_len != sizeof(node))
		damaged(row);
	memcpy(&node, row->payload, sizeof(node));
	old = MemoryContextSwitchTo(shard_routing.later);
	shard_routing.hellos = list_append_unique_int(shard_routing.hellos, node);
	MemoryContextSwitchTo(old);
}

/* What SQL has done to a shard with replicas, if its home is here; elsewhere it says nothing (Q33, Q35). */
static void
take_outside(const ShardRow *row)
{
	ShardLetterGone gone;
	int32 epoch;
	int32 lost;

	if (!shard_routing_presence.home_of(row->type_id, row->shard, &epoch, &lost))
		return;
	shard_fault("outside_met");
	if (row->kind == SHARD_KIND_TOUCHED)
	{
		const ShardRoute *route = shard_route_known(shard_routing.routes, row->type_id, row->shard);
		MemoryContext old = MemoryContextSwitchTo(shard_routing.turn);

		shard_deliver_touched(row, route->own.state == SHARD_HOME_CLEARING);
		MemoryContextSwitchTo(old);
		return;
	}
	if (row->payload_len != sizeof(gone))
		damaged(row);
	memcpy(&gone, row->payload, sizeof(gone));
#ifndef SHARD_MUTANT_LETTERS_OF_ANOTHER_LIFE
	if (gone.lost != lost)
		return;
#endif
	shard_record_letter_gone(row->type_id, row->shard, gone.number);
}

static void
take_message(const ShardRow *row)
{
	ShardItem item = item_of(row);

	if (row->epoch >= 0 && !shard_routing_ends_here(row))
	{
		int lane = shard_message_lane(row->type_id, row->shard);

		shard_routing.passed[lane] = Min(shard_routing.passed[lane], row->seq);
		shard_route_arrived(shard_routing.routes, &item);
	}
	else if (row->epoch < 0)
	{
		shard_routing.buried = false;
		shard_route_local(shard_routing.routes, &item);
		if (shard_routing.buried)
			shard_route_reload(shard_routing.routes, row->type_id, row->shard);
	}
}

void
shard_routing_row(const ShardRow *row)
{
	int count = shard_turn_count();
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);

	switch (row->kind)
	{
		case SHARD_KIND_FACT:
			take_fact(row);
			break;
		case SHARD_KIND_DONE:
			take_done(row);
			break;
		case SHARD_KIND_HELLO:
			take_hello(row);
			break;
		case SHARD_KIND_OWN:
			shard_route_own_changed(shard_routing.routes, row->type_id, row->shard);
			break;
		case SHARD_KIND_REPLY:
			shard_routing_reply(row);
			break;
		case SHARD_KIND_TOUCHED:
		case SHARD_KIND_LETTERS_GONE:
			take_outside(row);
			break;
		default:
			take_message(row);
			break;
	}
	MemoryContextSwitchTo(old);
	if (shard_turn_count() == count)
		shard_turn_pass();
}

bool
shard_routing_drain(void)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);
	bool more;

	begin_draining();
	more = shard_route_drain(shard_routing.routes);
	shard_routing.draining = false;
	MemoryContextSwitchTo(old);
	return more;
}

bool
shard_routing_is_left(void)
{
	return shard_routing.left;
}

bool
shard_routing_was_draining(int *before)
{
	*before = shard_routing.before;
	return shard_routing.draining;
}

bool
shard_routing_has_drained(void)
{
	return shard_routing.drained;
}

/* For shard_route_each: all marks of one origin. */
static void
announce_all(void *context, ShardRoute *route)
{
	int32 node = *(int32 *) context;

	for (int i = 0; i < route->marks.n_marks; i++)
	{
		const ShardMark *mark = &route->marks.marks[i];
		ShardDone done = {route->type_id, route->shard, mark->committed};

		if (mark->stamp.kind == SHARD_PREFIX_NODE && mark->stamp.a == node && mark->committed > 0 &&
			(likely(route->set == NULL) ||
			 !shard_routing_set_holds_mark(route, node, mark->committed)))
			shard_transport_announce(node, &done, shard_routing.lsn);
	}
}

/* Sends what other nodes may know once the turn has committed. */
static void
tell_others(void)
{
	ListCell *cell;

	foreach (cell, shard_routing.refusals)
	{
		const ShardRefusal *refusal = lfirst(cell);

		shard_transport_refuse(refusal->origin, &refusal->fact, shard_routing.lsn);
	}
	foreach (cell, shard_routing.hellos)
	{
		int32 node = lfirst_int(cell);

		shard_route_each(shard_routing.routes, announce_all, &node);
	}
	foreach (cell, shard_routing.started)
		shard_routing_report(SHARD_EVENT_SHARDS_STARTED, lfirst(cell));
	shard_routing.refusals = shard_routing.hellos = shard_routing.started = NIL;
	shard_routing_log_undone();
}

void
shard_routing_committed(XLogRecPtr lsn)
{
	ShardRouting *r = &shard_routing;
	MemoryContext old = MemoryContextSwitchTo(r->context);

	if (!XLogRecPtrIsInvalid(lsn))
		r->lsn = lsn;
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		r->unsaved[lane] = r->saved ? PG_INT64_MAX : Min(r->unsaved[lane], r->passed[lane]);
		r->passed[lane] = PG_INT64_MAX;
	}
	r->types_seen = r->types_now;
	r->strays = r->stray;
	r->stray = false;
	shard_routing_inputs_committed();
	shard_route_commit(r->routes);
	shard_routing_set_committed();
	tell_others();
	shard_routing_publish_counts();
	flush_reports();
	MemoryContextSwitchTo(old);
}

void
shard_routing_aborted(void)
{
	ShardRouting *r = &shard_routing;

	for (int lane = 0; lane < SHARD_LANES; lane++)
		r->passed[lane] = PG_INT64_MAX;
	for (int i = 0; i < r->count_count; i++)
		r->counts[i].change = 0;
	r->stray = false;
	r->aborts++;
	shard_routing_forget_recount();
	forget_news();
	shard_routing_store_forget_base();
	shard_routing_inputs_aborted();
	shard_routing_forget_ahead();
	MemoryContextReset(r->scratch);
	shard_route_abort(r->routes);
}

long
shard_routing_ask(void)
{
	ShardRouting *r = &shard_routing;
	TimestampTz now;

	if (r->routes == NULL)
		return -1;
	flush_reports();
	if (r->report_count > 0)
		return FULL_MS;
	now = GetCurrentTimestamp();
	if (TimestampDifferenceExceeds(r->asked_at, now, ASK_MS))
	{
		r->asked_at = now;
		shard_route_ask(r->routes);
	}
	return ASK_MS;
}

/* An ask has no parked message that speaks for it. It is looked at in each turn while it waits. */
static void
want_for_ask(const ShardRoute *route)
{
	static struct
	{
		ShardShardRef shard;
		TimestampTz at;
	} asked[ASKED_SHARDS];
	ShardShardRef ref = {.type_id = route->type_id, .shard = route->shard};
	TimestampTz now = GetCurrentTimestamp();
	int oldest = 0;

	if (route->parked)
		return;
	for (int i = 0; i < ASKED_SHARDS; i++)
	{
		if (asked[i].shard.type_id == ref.type_id && asked[i].shard.shard == ref.shard &&
			!TimestampDifferenceExceeds(asked[i].at, now, ASK_MS))
			return;
		if (asked[i].at < asked[oldest].at)
			oldest = i;
	}
	asked[oldest].shard = ref;
	asked[oldest].at = now;
	shard_routing_report(SHARD_EVENT_HOMES_WANTED, &ref);
}

ShardRoutingAnswer
shard_routing_where(int32 type_id, int32 shard, int32 *node, int32 *epoch)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);
	const ShardRoute *route = shard_route_get(shard_routing.routes, type_id, shard);

	MemoryContextSwitchTo(old);
	if (route->node == 0)
		want_for_ask(route);
	if (route->node == 0 || route->parked)
		return SHARD_ROUTING_LATER;
	*node = route->node;
	*epoch = route->epoch;
	if (route->node != shard_routing.self)
		return shard_routing.held ? SHARD_ROUTING_LATER : SHARD_ROUTING_THERE;
	return shard_handoff_active(&route->own, route->epoch) ? SHARD_ROUTING_HERE
														   : SHARD_ROUTING_LATER;
}

bool
shard_routing_is_known(int32 type_id, int32 shard)
{
	const ShardRoute *route = shard_route_known(shard_routing.routes, type_id, shard);

	return route != NULL && route->loaded && route->node != 0;
}

bool
shard_routing_is_home(int32 type_id, int32 shard, int32 epoch)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);
	const ShardRoute *route = shard_route_get(shard_routing.routes, type_id, shard);

	MemoryContextSwitchTo(old);
	return shard_handoff_active(&route->own, epoch);
}

void
shard_routing_accept(int32 node, ShardRoutingAccepted *accepted)
{
	shard_execution_end_user_code();
	memset(accepted, 0, sizeof(*accepted));
	accepted->any = shard_outbox_accept(node, shard_routing_save_item, accepted);
	shard_routing.left = true;
	shard_turn_pass();
}

int64
shard_routing_needed(int lane)
{
	return shard_routing.unsaved[lane];
}

/* For shard_route_each: the marks of a shard whose home is here, those of this turn included. */
static void
save_marks(void *context, ShardRoute *route)
{
	/* not read again since an abort: its marks are those of the last commit */
	if (!route->loaded && route->marks.n_marks > 0)
		(void) shard_route_get(shard_routing.routes, route->type_id, route->shard);
	if (route->loaded && shard_handoff_takes(&route->own))
		shard_routing_store_write_base(route);
}

bool
shard_routing_leave(int64 seq)
{
	MemoryContext old;
	bool wanted = false;

	for (int lane = 0; lane < SHARD_LANES; lane++)
		wanted |= shard_routing.unsaved[lane] <= seq;
	if (!wanted)
		return false;
	shard_execution_end_user_code();
	old = MemoryContextSwitchTo(shard_routing.context);
	shard_route_each(shard_routing.routes, save_marks, NULL);
	MemoryContextSwitchTo(shard_routing.scratch);
	shard_routing_store_flush_base();
	MemoryContextSwitchTo(old);
	MemoryContextReset(shard_routing.scratch);
	shard_routing.saved = true;
	return true;
}
