/*
 * route/routing_host.c
 *		What core/route has the worker do in its turn: durable changes, in the turn's transaction.
 *
 * The core calls with routing's own memory as the current one, where entries and marks live; the functions here work in
 * the turn's memory.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/lsyscache.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "core/base/message.h"
#include "entity/execution.h"
#include "entity/turn.h"
#include "base/peer_errors.h"
#include "entity/held.h"
#include "link/outbox.h"
#include "route/routing_private.h"
#include "shared/told.h"
#include "link/transport.h"

#include "base/compat.h"

/* Parked messages that are read at once. */
#define READ_AHEAD 100

/* Shards that one line of the log names. */
#define UNDONE_NAMED 20

/* Ends user code and enters memory for one statement. */
static MemoryContext
begin_sql(void)
{
	shard_execution_end_user_code();
	return MemoryContextSwitchTo(shard_routing.scratch);
}

static void
end_sql(MemoryContext old)
{
	MemoryContextSwitchTo(old);
	MemoryContextReset(shard_routing.scratch);
}

static void
do_load(void *context, ShardRoute *route)
{
	MemoryContext old = begin_sql();

	shard_routing_store_load(route, shard_routing.context);
	shard_routing_note_left(route);
	end_sql(old);
}

static void
do_load_base(void *context, ShardRoute *route)
{
	MemoryContext old = begin_sql();

	shard_routing_store_load_base(route, shard_routing.context);
	end_sql(old);
}

static void
do_write_route(void *context, const ShardRoute *route)
{
	MemoryContext old = begin_sql();

	shard_routing_store_write_route(route);
	shard_routing_note_left(route);
	end_sql(old);
}

static void
do_write_own(void *context, const ShardRoute *route, const ShardOwn *before)
{
	MemoryContext old = begin_sql();

	if (!shard_routing_store_write_own(route->type_id, route->shard, &route->own, before))
		shard_routing_overtaken(route);
	shard_routing_own_changed(route, before);
	end_sql(old);
}

static void
do_write_base(void *context, const ShardRoute *route)
{
	MemoryContext old = begin_sql();

	shard_routing_store_write_base(route);
	shard_routing_store_flush_base();
	end_sql(old);
}

/* The ownership row is stored as it was; of the fact that comes in its place the route has the epoch. */
static void
bury_held(const ShardRoute *route)
{
	ShardRoute before = {.type_id = route->type_id, .shard = route->shard};

	shard_routing_store_load(&before, NULL);
	if (shard_handoff_waits_alone(&before.own, route->own.epoch))
		shard_residents_bury(route->type_id, route->shard, route->doubt > before.own.epoch);
}

static void
do_discard(void *context, const ShardRoute *route)
{
	MemoryContext old = begin_sql();

	bury_held(route);
	(void) shard_routing_store_discard(route->type_id, route->shard, PG_INT64_MAX);
	shard_routing_inputs_discard(route);
	shard_residents_discard(route->type_id, route->shard);
	end_sql(old);
}

static int64
do_next_rseq(void *context, int32 lane)
{
	if (unlikely(shard_routing.given[lane] != 0))
	{
		shard_board_raise_rseq(shard_routing.db, lane, shard_routing.life,
							   shard_routing.given[lane]);
		shard_routing.given[lane] = 0;
	}
	return shard_board_next_rseq(shard_routing.db, lane, shard_routing.life, shard_routing.inc_no);
}

static int64
do_last_rseq(void *context, int32 lane)
{
	return Max(shard_routing.given[lane],
			   shard_board_last_rseq(shard_routing.db, lane, shard_routing.life,
									 shard_routing.inc_no));
}

static int32
do_lane(void *context, int32 type_id, int32 shard)
{
	return shard_message_lane(type_id, shard);
}

static void
do_append(void *context, int32 node, const ShardItem *item)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.turn);

	shard_outbox_append(node, item);
	MemoryContextSwitchTo(old);
}

/*
 * A message of a type that is not known any more needs no home: it is given up at once. A message with a stamp, which
 * was kept for another node, joins the parked messages; these are given up in the order of the stamps, in the next turn
 * (shard_routing_bury_dropped).
 */
static bool
bury(const ShardItem *item)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.turn);
	bool unknown = !shard_deliver_knows(item->body);
	bool buried = unknown && item->stamp.kind == SHARD_PREFIX_NONE;

	if (buried)
		shard_deliver_row(item->body);
	else if (unknown)
		shard_routing.stray = shard_routing.left = true;
	shard_routing.buried |= buried;
	MemoryContextSwitchTo(old);
	return buried;
}

/* Whether it is known up to where parked messages of the shard are gone. */
static inline bool
knows_front(const ShardRoute *route)
{
	return route->front_in == shard_routing.aborts + 1;
}

/* A message was parked. If it goes before what is gone, that is not known any more. */
static void
note_parked(const ShardItem *item)
{
	ShardParkedPlace place = shard_routing_store_place(item, item->body);
	ShardRoute *route = shard_route_known(shard_routing.routes, item->type_id, item->shard);

	if (route != NULL &&
		(place.rseq < route->front_rseq ||
		 (place.rseq == route->front_rseq && place.arrival <= route->front_arrival)))
		route->front_in = 0;
}

static void
do_park(void *context, const ShardItem *item)
{
	MemoryContext old;

	if (bury(item))
		return;
	old = begin_sql();
	shard_routing_store_park(item, item->body);
	shard_routing_count(item->type_id, 1);
	shard_routing_forget_ahead();
	note_parked(item);
	end_sql(old);
}

/*
 * Where the parked messages of a shard begin: behind those that have left, which are still there to be passed as long as
 * any transaction of the database is older.
 */
static ShardParkedPlace
begin_of(const ShardRoute *route)
{
	bool known = knows_front(route);

	return (ShardParkedPlace){.type_id = route->type_id,
							  .shard = route->shard,
							  .rseq = known ? route->front_rseq : PG_INT64_MIN,
							  .arrival = known ? route->front_arrival : PG_INT64_MIN};
}

/* Reads the first parked messages of a shard. */
static void
read_ahead(const ShardRoute *route)
{
	ShardParkedPlace begin = begin_of(route);
	MemoryContext old;

	shard_execution_end_user_code();
	shard_routing_forget_ahead();
	old = MemoryContextSwitchTo(shard_routing.ahead);
	shard_routing.parked =
		shard_routing_store_parked(&begin, READ_AHEAD, &shard_routing.parked_count,
								   &shard_routing.parked_last);
	shard_routing.ahead_of = route;
	MemoryContextSwitchTo(old);
}

/* Whether all that was read ahead of the shard has left. */
static bool
is_read_up(const ShardRoute *route)
{
	return shard_routing.ahead_of != route ||
		   shard_routing.parked_next == shard_routing.parked_count;
}

static bool
do_first_parked(void *context, const ShardRoute *route, ShardItem *item)
{
	if (is_read_up(route) && (shard_routing.ahead_of != route || !shard_routing.parked_last))
		read_ahead(route);
	if (is_read_up(route) && knows_front(route))
	{
		/* once more from the beginning: nobody is to wait because a place was wrong */
		unconstify(ShardRoute *, route)->front_in = 0;
		read_ahead(route);
	}
	if (is_read_up(route))
		return false;
	*item = shard_routing.parked[shard_routing.parked_next].item;
	return true;
}

/* The first parked message is parked no more. item: it is kept, with that stamp; NULL: it goes. */
static void
unpark(const ShardRoute *route, const ShardItem *item, bool again)
{
	const ShardParked *first = &shard_routing.parked[shard_routing.parked_next++];
	MemoryContext old = begin_sql();

	if (item != NULL)
		shard_routing_inputs_keep(route, first, item, again);
	else
		shard_routing_store_unpark(first);
	shard_routing_count(route->type_id, -1);
#ifndef SHARD_MUTANT_STASH_READ_AGAIN
	unconstify(ShardRoute *, route)->front_in = shard_routing.aborts + 1;
	unconstify(ShardRoute *, route)->front_rseq = first->rseq;
	unconstify(ShardRoute *, route)->front_arrival = first->arrival;
#endif
	end_sql(old);
	shard_turn_pass();
}

static void
do_unpark(void *context, const ShardRoute *route)
{
	unpark(route, NULL, false);
}

static void
do_keep(void *context, const ShardRoute *route, const ShardItem *item, bool again)
{
	unpark(route, item, again);
}

static void
do_input(void *context, const ShardRoute *route, const ShardItem *item)
{
	shard_routing_inputs_take(route, item);
}

/* Parks an item of the outbox that this node still has to keep. */
static void
collect_item(const ShardItem *item, const ShardRow *row, void *arg)
{
	const ShardRoute *route = arg;
	ShardItem kept = *item;

	if (!shard_route_kept(route, item))
		return;
	kept.body = row;
	do_park(NULL, &kept);
}

static void
do_collect(void *context, const ShardRoute *route)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.turn);

	shard_routing.resent = true;
	shard_execution_end_user_code();
	shard_outbox_collect(route->type_id, route->shard, collect_item,
						 unconstify(ShardRoute *, route));
	shard_outbox_look_again(route->type_id, route->shard);
	shard_routing_inputs_collect(route);
	MemoryContextSwitchTo(old);
}

static void
do_take(void *context, const ShardRoute *route, const ShardItem *item)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.turn);

	shard_routing.drained |= shard_routing.draining;
	if (route->own.state == SHARD_HOME_CLEARING)
		shard_deliver_to_stash(item->body);
	else
		shard_deliver_row(item->body);
	MemoryContextSwitchTo(old);
}

static void
do_in_doubt(void *context, const ShardRoute *route, const ShardItem *item)
{
	ErrorData error = {
		.sqlerrcode = SHARD_ERRCODE_OUTCOME_UNKNOWN,
		.message = "it is not known whether the message was handled",
		.detail =
			"The message was sent to a node whose state was given up since, or that was the home "
			"by a decision that went with lost voters, or by a database that was restored from "
			"an older copy.",
		.hint = "Find out whether the message was handled; shard_redrive() sends it again."};
	MemoryContext old = begin_sql();

	shard_held_dead_letter(item->body, 0, &error, true);
	end_sql(old);
}

void
shard_routing_save_item(const ShardItem *item, const ShardRow *row, bool in_doubt, void *arg)
{
	ShardRoutingAccepted *accepted = arg;
	ShardItem kept = *item;
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);

	kept.body = row;
	if (in_doubt)
	{
		do_in_doubt(NULL, NULL, &kept);
		accepted->in_doubt++;
	}
	else
	{
		do_park(NULL, &kept);
		shard_route_reload(shard_routing.routes, item->type_id, item->shard);
		accepted->again++;
	}
	MemoryContextSwitchTo(old);
}

static void
do_want_home(void *context, const ShardRoute *route)
{
	ShardShardRef ref = {.type_id = route->type_id, .shard = route->shard};

	shard_routing_report(SHARD_EVENT_HOMES_WANTED, &ref);
}

/* A message came without its home: logged once per shard and turn. */
static void
log_unheard(const ShardRoute *route, const ShardItem *item)
{
	MemoryContext old;
	const char *more;

	if (list_member_ptr(shard_routing.unheard, route))
		return;
	old = MemoryContextSwitchTo(shard_routing.later);
	shard_routing.unheard = lappend(shard_routing.unheard, unconstify(ShardRoute *, route));
	MemoryContextSwitchTo(old);
	if (shard_told_may(shard_shmem_database(), item->stamp.a, "unheard", 0, &more))
		ereport(
			LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("node %d sent a message for shard %d of entity type %d in epoch %d, which is "
					"not known here%s",
					item->stamp.a, route->shard, route->type_id, item->epoch, more),
			 errdetail("The home of the shard should have been sent before the message (H3). The "
					   "message stays at that node.")));
	do_want_home(NULL, route);
}

/*
 * Its type is gone from the cluster, and so from its origin, which keeps nothing of it (X6): this is the message's
 * last place, and it is a dead letter as one that comes before the shard was forgotten here.
 */
static bool
give_up(const ShardItem *item)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.turn);
	bool unknown = !shard_deliver_knows(item->body);

	if (unknown)
		shard_deliver_row(item->body);
	MemoryContextSwitchTo(old);
	return unknown;
}

bool
shard_routing_ends_here(const ShardRow *row)
{
	ShardRoute route = {.type_id = row->type_id, .shard = row->shard};
	const ShardItem item = {.type_id = row->type_id, .shard = row->shard, .body = row};

	if (row->type_id == shard_routing.known_type)
		return false;
	if (shard_deliver_knows(row))
	{
		shard_routing.known_type = row->type_id;
		return false;
	}
	if (shard_route_known(shard_routing.routes, row->type_id, row->shard) != NULL)
		return false;
	do_load(NULL, &route);
	return route.node == 0 && !route.parked && route.own.state == SHARD_HOME_NONE && give_up(&item);
}

static void
do_refused(void *context, const ShardRoute *route, const ShardItem *item)
{
	MemoryContext old;
	ShardRefusal *refusal;

	if (item->stamp.kind != SHARD_PREFIX_NODE)
		return;
	if (route->node == 0 && give_up(item))
		return;
	if (route->node == 0 || item->epoch > route->epoch)
	{
		log_unheard(route, item);
		return;
	}
	refusal = shard_routing.refusals == NIL ? NULL : llast(shard_routing.refusals);
	if (refusal != NULL && refusal->origin == item->stamp.a &&
		refusal->fact.type_id == route->type_id && refusal->fact.shard == route->shard)
		return;
	old = MemoryContextSwitchTo(shard_routing.later);
	refusal = palloc(sizeof(ShardRefusal));
	*refusal = (ShardRefusal){.origin = item->stamp.a,
							  .fact = {.type_id = route->type_id,
									   .shard = route->shard,
									   .n = route->n,
									   .node = route->node,
									   .epoch = route->epoch,
									   .lost = route->lost}};
	shard_routing.refusals = lappend(shard_routing.refusals, refusal);
	MemoryContextSwitchTo(old);
}

/* After the commit whose LSN is known by then. */
static void
do_announce(void *context, const ShardRoute *route, ShardStamp mark)
{
	ShardDone done = {route->type_id, route->shard, mark.seq};

	if (mark.kind == SHARD_PREFIX_NODE && mark.a != shard_routing.self &&
		(likely(route->set == NULL) || !shard_routing_set_holds_mark(route, mark.a, mark.seq)))
		shard_transport_announce(mark.a, &done, shard_routing.lsn);
}

static void
do_started(void *context, const ShardRoute *route)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.later);
	ShardShardRef *ref = palloc(sizeof(ShardShardRef));

	*ref = (ShardShardRef){route->type_id, route->shard, route->own.epoch, route->own.move_id};
	shard_routing.started = lappend(shard_routing.started, ref);
	MemoryContextSwitchTo(old);
}

static void
do_wrong(void *context, const ShardRoute *route, const ShardHomeRecord *home)
{
	ereport(
		LOG,
		(errcode(ERRCODE_DATA_CORRUPTED),
		 errmsg(
			 "shard %d of entity type %d stands still: the cluster says that it is here in epoch "
			 "%d, which cannot be",
			 route->shard, route->type_id, home->epoch),
		 errdetail("Here the shard is %s, of epoch %d. This database may have been restored from "
				   "a copy that is older than the shard's arrival.",
				   route->own.state == SHARD_HOME_NONE
					   ? "nothing"
					   : shard_home_machine.state_names[route->own.state],
				   route->own.epoch),
		 errhint("See shard_health().")));
}

/* Notes it for the log: one line for a turn, however many shards there are. */
static void
do_undone(void *context, const ShardRoute *route, const ShardHomeRecord *home)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.later);
	const ShardType *type = shard_registry_by_id(route->type_id);
	int32 node = shard_record_home_node(home);
	ShardUndone *undone = NULL;
	ListCell *cell;

	foreach (cell, shard_routing.undone)
	{
		ShardUndone *other = lfirst(cell);

		if (other->type_id == route->type_id && other->node == node)
			undone = other;
	}
	if (undone == NULL)
	{
		undone = palloc0(sizeof(ShardUndone));
		undone->type_id = route->type_id;
		undone->node = node;
		undone->type_name = type == NULL ? "" : pstrdup(type->name);
		initStringInfo(&undone->shards);
		shard_routing.undone = lappend(shard_routing.undone, undone);
	}
	if (undone->count++ < UNDONE_NAMED)
		appendStringInfo(&undone->shards, "%s%d", undone->count > 1 ? ", " : "", route->shard);
	MemoryContextSwitchTo(old);
}

/* Two homes were active. What was done here counts no more, and only an operator can tell what is missed. */
static void
log_undone(ShardUndone *undone)
{
	if (undone->count > UNDONE_NAMED)
		appendStringInfo(&undone->shards, " and %d more", undone->count - UNDONE_NAMED);
	ereport(WARNING,
			(errmsg_plural("shard %s of entity type \"%s\" was active at this node, %d, by a "
						   "decision that went with lost voters: node %d is its home",
						   "shards %s of entity type \"%s\" were active at this node, %d, by "
						   "decisions that went with lost voters: node %d is their home",
						   undone->count, undone->shards.data, undone->type_name,
						   shard_routing.self, undone->node),
			 errdetail("The shards end here, their rows are kept, and messages of which it is "
					   "not known whether they were handled become dead letters."),
			 errhint("See shard_health().")));
}

void
shard_routing_log_undone(void)
{
	ListCell *cell;

	foreach (cell, shard_routing.undone)
		log_undone(lfirst(cell));
	shard_routing.undone = NIL;
}

static void
do_write_set(void *context, const ShardRoute *route)
{
	MemoryContext old = begin_sql();

	shard_routing_set_write(route);
	end_sql(old);
}

static bool
do_is_over(void *context)
{
	return shard_turn_is_over();
}

const ShardRouteHost shard_routing_host = {
	.load = do_load,
	.load_base = do_load_base,
	.write_route = do_write_route,
	.write_own = do_write_own,
	.write_base = do_write_base,
	.discard = do_discard,
	.next_rseq = do_next_rseq,
	.last_rseq = do_last_rseq,
	.lane = do_lane,
	.append = do_append,
	.park = do_park,
	.first_parked = do_first_parked,
	.unpark = do_unpark,
	.collect = do_collect,
	.take = do_take,
	.in_doubt = do_in_doubt,
	.refused = do_refused,
	.announce = do_announce,
	.want_home = do_want_home,
	.started = do_started,
	.wrong = do_wrong,
	.undone = do_undone,
	.is_over = do_is_over,
	.write_set = do_write_set,
	.input = do_input,
	.keep = do_keep,
};
