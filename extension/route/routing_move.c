/*
 * route/routing_move.c
 *		A shard leaves this node: stopped, sealed, its rows deleted (M2, M3, M7); and one that comes (M6), or begins
 *		again.
 *
 * The region worker of the shard's lane does all of it, in its own transactions, so that no turn of the
 * lane can be under way, and the marks are at hand. Every ownership row is written only if it is still
 * what was read, since an import writes it, too.
 *
 * If the process dies right here: the ownership row says how far it came. A stopping shard is sealed by the next
 * worker, a sealed one is reported when the coordinator asks again, and rows of one that lives elsewhere, of a copy
 * whose move was aborted, or from before a shard began again are found by every worker that starts.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "entity/turn.h"
#include "base/fault.h"
#include "shared/import_progress.h"
#include "registry/registry.h"
#include "registry/turn_lock.h"
#include "route/routing_private.h"

#include "base/compat.h"

/* The route of a shard, read if need be. */
static ShardRoute *
route_of(const ShardShardRef *ref)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);
	ShardRoute *route = shard_route_get(shard_routing.routes, ref->type_id, ref->shard);

	MemoryContextSwitchTo(old);
	return route;
}

/* Whether the shard is in a state in which rows may wait to be deleted. */
static bool
may_be_left(const ShardRoute *route)
{
	return route->own.state == SHARD_HOME_SEALED || route->own.state == SHARD_HOME_STAGED ||
		   route->own.state == SHARD_HOME_CLEARING;
}

static bool
take_step(ShardRoute *route, ShardHomeEvent event)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);
	bool taken = shard_route_step(shard_routing.routes, route, event);

	MemoryContextSwitchTo(old);
	return taken;
}

ShardHandoffAnswer
shard_routing_stop(const ShardShardRef *ref)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);
	ShardHandoffAnswer answer = shard_route_stop(shard_routing.routes, ref);

	MemoryContextSwitchTo(old);
	return answer;
}

bool
shard_routing_seal(const ShardShardRef *ref)
{
	ShardRoute *route = route_of(ref);

	if (route->own.state != SHARD_HOME_STOPPING || route->own.epoch != ref->epoch ||
		route->own.move_id != ref->move_id)
		return false;
	return take_step(route, SHARD_HOME_SEAL);
}

void
shard_routing_overtaken(const ShardRoute *route)
{
	shard_routing.overtaken = true;
	ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("ownership of shard %d of entity type %d was changed by another process",
						   route->shard, route->type_id),
					errdetail("The ownership is read again, and the turn starts again.")));
}

bool
shard_routing_was_overtaken(void)
{
	return shard_routing.overtaken;
}

void
shard_routing_note_left(const ShardRoute *route)
{
	shard_routing.leftovers |= may_be_left(route);
}

/* Whether nothing of the shard runs or waits here any more. */
static bool
leaves_memory(const ShardRoute *route)
{
	return !shard_handoff_takes(&route->own) && route->own.state != SHARD_HOME_STOPPING;
}

void
shard_routing_own_changed(const ShardRoute *route, const ShardOwn *before)
{
	bool was = before->state == SHARD_HOME_ACTIVE;
	bool is = route->own.state == SHARD_HOME_ACTIVE;

	shard_routing_note_left(route);
	shard_routing.arrived |= is && before->state == SHARD_HOME_STAGED;

	if (is && !was)
		shard_timer_due_again(route->type_id, route->shard);

	/*
	 * the shard's stash came with it, or was let go when it was sealed; the stash of a shard that was clearing is known
	 */
	if (is && before->state == SHARD_HOME_NONE)
		shard_residents_begin(route->type_id, route->shard);
	else if (is && !was && before->state != SHARD_HOME_CLEARING)
		shard_residents_load(route->type_id, route->shard);
	if (is && !was)
		shard_residents_arrive(route->type_id, route->shard);
	if (leaves_memory(route))
	{
		MemoryContext old = MemoryContextSwitchTo(shard_routing.later);

		shard_routing.ended =
			list_append_unique_ptr(shard_routing.ended, unconstify(ShardRoute *, route));
		MemoryContextSwitchTo(old);
	}
}

void
shard_routing_forget_ended(void)
{
	ListCell *cell;

	foreach (cell, shard_routing.ended)
	{
		const ShardRoute *route = lfirst(cell);

		/* the shard may have come back in the same turn */
		if (leaves_memory(route))
			shard_residents_forget(route->type_id, route->shard);
	}
	shard_routing.ended = shard_routing.unheard = NIL;
	MemoryContextReset(shard_routing.later);
}

static bool
is_active(int32 type_id, int32 shard)
{
	const ShardRoute *route = shard_route_known(shard_routing.routes, type_id, shard);

	if (route != NULL && !route->loaded && IsTransactionState())
	{
		MemoryContext old = MemoryContextSwitchTo(shard_routing.context);

		route = shard_route_get(shard_routing.routes, type_id, shard);
		MemoryContextSwitchTo(old);
	}
	return route != NULL && route->loaded && route->own.state == SHARD_HOME_ACTIVE;
}

/* Whether the rows that are here of the shard are a copy of those of its home, which is another node (Q10). */
static bool
is_backup(const ShardRoute *route)
{
#ifdef SHARD_MUTANT_STASH_OF_COPIES_COUNTS
	return false;
#endif
	return shard_route_role(route, shard_routing.self) == SHARD_SET_BACKUP && leaves_memory(route);
}

static bool
is_moving(int32 type_id, int32 shard)
{
	const ShardRoute *route = shard_route_known(shard_routing.routes, type_id, shard);

	return route != NULL && route->loaded &&
		   (route->own.state == SHARD_HOME_SEALED || route->own.state == SHARD_HOME_STAGED ||
			is_backup(route));
}

static bool
is_here(int32 type_id, int32 shard)
{
	ShardShardRef ref = {.type_id = type_id, .shard = shard};

	return !leaves_memory(route_of(&ref));
}

static bool
home_of(int32 type_id, int32 shard, int32 *epoch, int32 *lost)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);
	const ShardRoute *route = shard_route_get(shard_routing.routes, type_id, shard);

	MemoryContextSwitchTo(old);
	*epoch = route->own.epoch;
	*lost = route->lost;
	return shard_handoff_takes(&route->own);
}

const ShardPresence shard_routing_presence = {
	.is_active = is_active,
	.is_moving = is_moving,
	.is_here = is_here,
	.home_of = home_of,
};

/* For shard_route_each. */
typedef struct Visit
{
	ShardRoutingEach visit;
	void *arg;
} Visit;

static void
visit_stopping(void *context, ShardRoute *route)
{
	Visit *visit = context;
	ShardShardRef ref = {route->type_id, route->shard, route->own.epoch, route->own.move_id};

	if (route->own.state == SHARD_HOME_STOPPING)
		visit->visit(&ref, visit->arg);
}

void
shard_routing_each_stopping(ShardRoutingEach visit, void *arg)
{
	Visit context = {visit, arg};

	shard_route_each(shard_routing.routes, visit_stopping, &context);
}

XLogRecPtr
shard_routing_lsn(void)
{
	return shard_routing.lsn;
}

/* ---- rows that are left ----------------------------------------------------------------------- */

/*
 * Whether the shard's rows here are of no use any more (M7). Those of a state that was given up, with this node or
 * without it, or with the voters that decided it, are nowhere else: they stay, for users who want to look at them (N1),
 * unless the shard begins again here.
 */
static bool
is_left_behind(const ShardRoute *route)
{
	if (Max(route->lost, route->doubt) > route->own.epoch)
		return false;
	return shard_handoff_delete(&route->own, route->own.epoch, shard_routing.self, route->node,
								route->epoch);
}

/* The same for an entry that an undone transaction has changed: it is read again before anything is deleted. */
static bool
may_be_left_behind(const ShardRoute *route)
{
	return may_be_left(route) || route->own.state == SHARD_HOME_NONE;
}

/* For shard_route_each: finds the one that comes after another, or the first. */
typedef struct Search
{
	ShardShardRef after;
	bool passed; /* the shard was met */
	ShardShardRef first;
	ShardShardRef next;
} Search;

static void
find_left_behind(void *context, ShardRoute *route)
{
	Search *search = context;
	ShardShardRef ref = {route->type_id, route->shard, route->own.epoch, route->own.move_id};

	if (route->loaded ? !is_left_behind(route) : !may_be_left_behind(route))
		return;
	if (search->first.type_id == 0)
		search->first = ref;
	if (search->passed && search->next.type_id == 0)
		search->next = ref;
	search->passed |= ref.type_id == search->after.type_id && ref.shard == search->after.shard;
}

bool
shard_routing_next_purge(ShardShardRef *ref)
{
	Search search = {.after = *ref};

	if (shard_routing.routes == NULL || !shard_routing.leftovers)
		return false;
	shard_route_each(shard_routing.routes, find_left_behind, &search);
	*ref = search.next.type_id != 0 ? search.next : search.first;
	shard_routing.leftovers = ref->type_id != 0;
	return ref->type_id != 0;
}

bool
shard_routing_purge(const ShardShardRef *ref, ShardStatePurge *purge, int64 limit)
{
	const ShardType *type = shard_registry_by_id(ref->type_id);
	bool has_table = type != NULL && OidIsValid(type->state_table);
	ShardRoute *route;
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);

	/* an import, which stages the shard again, may have run since */
	shard_route_reload(shard_routing.routes, ref->type_id, ref->shard);
	MemoryContextSwitchTo(old);
	route = route_of(ref);
	if (route->own.epoch != ref->epoch || !is_left_behind(route))
		return false;

	/* one that is coming back deletes the same rows */
	if (!shard_turn_lock_import(ref->type_id, ref->shard))
	{
		purge->left = purge->busy = true;
		return true;
	}
	if (has_table)
	{
		/* for a copy, or a state that was given up, it does not matter which transaction changed it */
		if (route->own.state == SHARD_HOME_SEALED)
			purge->since = shard_routing_store_own_writer(ref->type_id, ref->shard);
		shard_state_purge(purge, type->state_table, ref->shard, limit);
		shard_state_purge_report(purge, type->name, ref->shard);
	}
	if (has_table && purge->left)
		return true;

	/* messages that wait are for the shard's new life, which the next turn begins */
	if (route->own.state == SHARD_HOME_CLEARING)
		return false;
	if (!shard_routing_store_discard(ref->type_id, ref->shard, limit))
		return true;
	shard_fault("m7_before_own");
	(void) take_step(route, SHARD_HOME_DELETED);
	return false;
}

bool
shard_routing_is_clearing(const ShardShardRef *ref)
{
	const ShardRoute *route = shard_route_known(shard_routing.routes, ref->type_id, ref->shard);

	return route != NULL && route->loaded && route->own.state == SHARD_HOME_CLEARING &&
		   route->own.epoch == ref->epoch;
}

void
shard_routing_start_again(const ShardShardRef *ref)
{
	ShardRoute *route = route_of(ref);

	if (route->own.state == SHARD_HOME_CLEARING && route->own.epoch == ref->epoch)
		(void) take_step(route, SHARD_HOME_DELETED);
}

void
shard_routing_purge_committed(XLogRecPtr lsn)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);

	if (!XLogRecPtrIsInvalid(lsn))
		shard_routing.lsn = lsn;
	shard_route_commit(shard_routing.routes);
	MemoryContextSwitchTo(old);
	shard_routing_forget_ended();
}

void
shard_routing_purge_aborted(void)
{
	shard_routing.ended = NIL;
	MemoryContextReset(shard_routing.scratch);
	shard_route_abort(shard_routing.routes);
}

/* ---- faults ----------------------------------------------------------------------------------- */

void
shard_routing_before_commit(void)
{
	if (shard_routing.arrived)
		shard_fault("m6_before_commit");
	if (shard_routing.resent)
		shard_fault("m8_before_commit");
}

void
shard_routing_after_commit(XLogRecPtr lsn)
{
	if (!shard_routing.arrived && !shard_routing.resent)
		return;
#ifdef SHARD_ASSERTIONS
	if (shard_fault_point != NULL && shard_fault_point[0] != '\0' && !XLogRecPtrIsInvalid(lsn))
		XLogFlush(lsn);
#endif
	if (shard_routing.arrived)
		shard_fault("m6_after_commit");
	if (shard_routing.resent)
		shard_fault("m8_after_commit");
}
