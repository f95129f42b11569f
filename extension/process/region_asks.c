/*
 * process/region_asks.c
 *		Asks in a region worker: of sessions here, and of peers' backends (doc/protocol.md D19, X8).
 *
 * An ask waits until the turn has passed what its session told before, until its shard's home is known
 * and nothing of the shard is parked. Then it is run, or, after the turn's commit, sent to its home.
 */
#include "postgres.h"

#include "access/xact.h"
#include "lib/stringinfo.h"
#include "utils/memutils.h"

#include "registry/catalog.h"
#include "core/base/message.h"
#include "entity/turn.h"
#include "link/outbox.h"
#include "process/region_private.h"
#include "link/remote_ask.h"
#include "route/routing.h"
#include "link/transport.h"
#include "core/base/text.h"
#include "base/peer_errors.h"

#include "base/compat.h"

/* The fate of an ask in this turn. */
typedef enum Decision
{
	ASK_LATER,
	ASK_NOW,
	ASK_THERE,
	ASK_ANSWERED
} Decision;

/* A report that was made for a request. */
typedef struct Report
{
	const ShardRequest *request;
	StringInfoData bytes;
} Report;

/* Whether both ask for the same. */
static bool
is_same(const ShardRequest *a, const ShardRequest *b)
{
	return a->kind == b->kind && a->type_id == b->type_id && a->shard == b->shard &&
		   a->entity_len == b->entity_len && memcmp(a->entity, b->entity, a->entity_len) == 0 &&
		   (a->payload == NULL) == (b->payload == NULL) &&
		   (a->payload == NULL || (a->payload_len == b->payload_len &&
								   memcmp(a->payload, b->payload, a->payload_len) == 0));
}

/* The report that a request asks for: once for all of these. */
static const StringInfoData *
report_for(const ShardRequest *request, List **reports)
{
	Report *report;
	ListCell *cell;

	foreach (cell, *reports)
	{
		report = lfirst(cell);
		if (is_same(report->request, request))
			return &report->bytes;
	}
	report = palloc(sizeof(Report));
	report->request = request;
	initStringInfo(&report->bytes);
	if (request->kind == SHARD_REQUEST_PEERS)
		shard_transport_report(&report->bytes);
	else
		shard_report_append(request, &report->bytes);
	*reports = lappend(*reports, report);
	return &report->bytes;
}

/*
 * Answers each report with what this worker has in memory. Many backends may ask, all the time, so the cost for a turn
 * is bounded.
 */
static void
answer_reports(List *requests)
{
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "shard reports", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	List *reports = NIL;
	ListCell *cell;

	foreach (cell, requests)
	{
		const StringInfoData *report;

		if (!shard_ring_alive(lfirst(cell)))
			continue;
		report = report_for(lfirst(cell), &reports);
		shard_ring_reply(lfirst(cell), report->data, report->len, InvalidXLogRecPtr);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	foreach (cell, requests)
	{
		ShardRequest *request = lfirst(cell);

		if (request->payload != NULL)
			pfree(request->payload);
		pfree(request);
	}
	list_free(requests);
}

void
shard_region_take_requests(ShardRegion *region)
{
	MemoryContext old;
	List *reports = NIL;
	List *taken;
	ListCell *cell;

	taken = shard_ring_take(region->db, region->number, region->ask_context);
	old = MemoryContextSwitchTo(region->ask_context);
	foreach (cell, taken)
	{
		ShardRequest *request = lfirst(cell);

		if (request->kind == SHARD_REQUEST_ASK || request->kind == SHARD_REQUEST_ACCEPT)
			region->asks = lappend(region->asks, request);
		else
			reports = lappend(reports, request);
	}
	list_free(taken);
	if (reports != NIL)
		answer_reports(reports);
	MemoryContextSwitchTo(old);
}

/* A copy of a request in current memory. */
static ShardRequest *
copy_request(const ShardRequest *request)
{
	ShardRequest *copy = palloc(sizeof(ShardRequest));

	*copy = *request;
	if (request->payload != NULL)
	{
		copy->payload = palloc(request->payload_len);
		memcpy(copy->payload, request->payload, request->payload_len);
	}
	return copy;
}

/* Moves the asks that wait on into fresh memory, so that those answered leave none behind. */
static void
compact_asks(ShardRegion *region)
{
	MemoryContext fresh = region->spare_context;
	MemoryContext old = MemoryContextSwitchTo(fresh);
	List *kept = NIL;
	ListCell *cell;

	foreach (cell, region->asks)
		kept = lappend(kept, copy_request(lfirst(cell)));
	MemoryContextSwitchTo(old);
	MemoryContextReset(region->ask_context);
	region->spare_context = region->ask_context;
	region->ask_context = fresh;
	region->asks = kept;
}

/* Lets go of asks whose askers are gone; no turn is under way. */
static void
drop_asks(ShardRegion *region)
{
	int count = list_length(region->asks);
	ListCell *cell;

	region->accept = NULL;
	region->forwards = 0;
	foreach (cell, region->asks)
		if (!shard_ring_alive(lfirst(cell)))
			region->asks = foreach_delete_current(region->asks, cell);
	if (list_length(region->asks) < count)
		compact_asks(region);
}

/* Asks that wait because this node may not handle anything. */
static void
note_idle(const ShardRegion *region)
{
	ShardBoardView view;
	char why[SHARD_RING_WHY];
	ListCell *cell;

	shard_board_get(region->db, &view);
	if (view.handle || region->asks == NIL)
		return;
	if (view.known)
		snprintf(why, sizeof(why), "Node %d handles nothing: %s.", view.node, view.why);
	else
		shard_text_copy(
			why, "This node handles nothing: its control worker has not begun; see shard_health().",
			sizeof(why));
	foreach (cell, region->asks)
		shard_ring_note(lfirst(cell), why);
}

bool
shard_region_answer_reports(ShardRegion *region)
{
	StartTransactionCommand();
	shard_region_take_requests(region);
	CommitTransactionCommand();
	drop_asks(region);
	note_idle(region);
	return false;
}

/* Why an ask cannot go to its shard's home. */
static const char *
why_later(const ShardRegion *region, const ShardRequest *request)
{
	ShardBoardView view;

	if (shard_routing_is_known(request->type_id, request->shard))
		return psprintf(
			"Shard %d of its type is about to move, or has messages that go first and wait.",
			request->shard);
	shard_board_get(region->db, &view);
	if (view.coordinator == 0)
		return psprintf(
			"Shard %d of its type has no home yet, and there is no coordinator to give it one.",
			request->shard);
	return psprintf(
		"Shard %d of its type has no home yet: node %d, the coordinator, has given it none.",
		request->shard, view.coordinator);
}

static Decision
decide(ShardRegion *region, const ShardRequest *request, bool all, ShardForward *forward)
{
	/* handed to this worker before the lanes were divided again: its asker takes it to the right worker */
	if ((region->lanes & shard_lane_bit(shard_message_lane(request->type_id, request->shard))) == 0)
		return ASK_LATER;
	if (!all && !shard_cursor_has_passed(region->cursor, request->after))
	{
		shard_ring_note(
			request, "Messages that were sent before it to entities of the same worker, of other "
					 "types too, are not handled yet; see shard_inbox.");
		return ASK_LATER;
	}
	if (request->tagged && !shard_routing_is_home(request->type_id, request->shard, request->epoch))
	{
		shard_ring_reply_not_here(request);
		return ASK_ANSWERED;
	}
	switch (shard_routing_where(request->type_id, request->shard, &forward->node, &forward->epoch))
	{
		case SHARD_ROUTING_HERE:
			if (shard_deliver_can_ask(request))
				return ASK_NOW;
			shard_ring_note(request, shard_deliver_why_not(request));
			return ASK_LATER;
		case SHARD_ROUTING_THERE:
			if (shard_remote_ask_room() > region->forwards)
				return ASK_THERE;
			shard_ring_note(request, "Too many asks wait for nodes that cannot be reached.");
			return ASK_LATER;
		case SHARD_ROUTING_LATER:
			shard_ring_note(request, why_later(region, request));
			break;
	}
	return ASK_LATER;
}

/* The node that shard_link_accept() names. */
static int32
accepted_node(const ShardRequest *request)
{
	ShardReader reader = {request->payload, request->payload + request->payload_len};

	return shard_wire_get_int32(&reader);
}

void
shard_region_accept_link(ShardRegion *region)
{
	ListCell *cell;

	region->accept = NULL;
	foreach (cell, region->asks)
	{
		ShardRequest *request = lfirst(cell);

		if (request->kind != SHARD_REQUEST_ACCEPT || !shard_ring_begin(request))
			continue;
		region->accept = request;
		shard_routing_accept(accepted_node(request), &region->accepted);
		return;
	}
}

/* The same after the turn's commit: the links say hello again, and the operator is told. */
static void
answer_accept(ShardRegion *region, XLogRecPtr lsn)
{
	StringInfoData answer;

	if (region->accept == NULL)
		return;
	shard_transport_restart(accepted_node(region->accept));
	initStringInfo(&answer);
	shard_wire_put_uint(&answer, region->accepted.any);
	shard_wire_put_int(&answer, region->accepted.again);
	shard_wire_put_int(&answer, region->accepted.in_doubt);
	shard_ring_reply(region->accept, answer.data, answer.len, lsn);
	pfree(answer.data);
	region->asks = list_delete_ptr(region->asks, region->accept);
	region->accept = NULL;
}

/* Runs of these what the turn comes to, and moves the others, in their order, to *left. */
static List *
run_asks(List *asks, List **left)
{
	List *ran = NIL;
	ListCell *cell;
	bool over = false;

	shard_turn_begin_source(SHARD_SOURCE_ASKS);
	foreach (cell, asks)
	{
		over = over || shard_turn_is_over();
		if (!over && shard_deliver_ask(lfirst(cell)))
			ran = lappend(ran, lfirst(cell));
		else
			*left = lappend(*left, lfirst(cell));
	}
	return ran;
}

int
shard_region_run_asks(ShardRegion *region, bool all, bool *left)
{
	int done = 0;
	List *later = NIL;
	List *now = NIL;
	List *ran;
	List *rest = NIL;
	ListCell *cell;
	MemoryContext old = MemoryContextSwitchTo(region->ask_context);

	region->forwards = 0;
	foreach (cell, region->asks)
	{
		ShardRequest *request = lfirst(cell);
		ShardForward forward = {.request = request};
		Decision decision = ASK_LATER;

		if (!shard_ring_alive(request))
			continue;

		/* in memory of the turn, since the asks' is not cleared by a turn that fails */
		MemoryContextSwitchTo(old);
		if (request->kind == SHARD_REQUEST_ASK && done + region->forwards < SHARD_ASKS_PER_TURN)
			decision = decide(region, request, all, &forward);
		MemoryContextSwitchTo(region->ask_context);
		if (decision == ASK_THERE)
			region->forward[region->forwards++] = forward;
		if (decision == ASK_NOW)
		{
			now = lappend(now, request);
			done++;
		}
		else if (decision != ASK_ANSWERED)
			later = lappend(later, request);
	}
	region->asks = list_concat(list_copy(now), later);
	MemoryContextSwitchTo(old);

	/* an error leaves all of them there */
	ran = run_asks(now, &rest);
	*left = rest != NIL || done + region->forwards == SHARD_ASKS_PER_TURN;
	if (rest != NIL)
	{
		old = MemoryContextSwitchTo(region->ask_context);
		region->asks = list_concat(list_concat(list_copy(ran), rest), later);
		MemoryContextSwitchTo(old);
	}
	return list_length(ran);
}

/* Sends an ask to its home. */
static void
send_ask(const ShardForward *forward)
{
	const ShardRequest *request = forward->request;
	int lane = shard_message_lane(request->type_id, request->shard);
	ShardAskCall call = {.type_id = request->type_id,
						 .shard = request->shard,
						 .epoch = forward->epoch,
						 .lane = lane,
						 .after = shard_outbox_last(lane, forward->node),
						 .timeout_us = request->timeout_us,
						 .entity = request->entity,
						 .entity_len = request->entity_len,
						 .payload = request->payload,
						 .payload_len = request->payload_len};

	shard_remote_ask_begin(request, forward->node, &call);
}

void
shard_region_forward_asks(ShardRegion *region, int done, XLogRecPtr lsn)
{
	region->asks = list_delete_first_n(region->asks, done);
	answer_accept(region, lsn);
	for (int i = 0; i < region->forwards; i++)
	{
		send_ask(&region->forward[i]);
		region->asks = list_delete_ptr(region->asks, region->forward[i].request);
	}
	region->forwards = 0;
	compact_asks(region);
}

void
shard_region_fail_open_asks(const ShardRegion *region, const ShardBoardView *view)
{
	ErrorData error = {.sqlerrcode = SHARD_ERRCODE_OUTCOME_UNKNOWN,
					   .message =
						   "the node that holds an ask handles nothing any more, its outcome "
						   "is unknown",
					   .hint = "Look at the entity's state before you ask again."};

	error.detail = psprintf("The message was handled, and its reply put off until later. Node %d "
							"takes no replies: %s.",
							view->node, view->why);
	shard_ring_fail_open(region->db, region->number, &error);
	pfree(error.detail);
}

/* An ask came back unexecuted: its home has to be looked up again. */
static void
ask_again(const ShardRequest *request, void *arg)
{
	ShardRegion *region = arg;
	MemoryContext old = MemoryContextSwitchTo(region->ask_context);

	region->asks = lappend(region->asks, copy_request(request));
	MemoryContextSwitchTo(old);
}

bool
shard_region_poll_asks(ShardRegion *region)
{
	return shard_remote_ask_run(ask_again, region);
}
