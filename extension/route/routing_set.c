/*
 * route/routing_set.c
 *		Copies of shards that this node has, as home or backup: their sets, durably and for other processes (Q3, Q4).
 *
 * The lane's worker writes the set (table shard.copy) in the turn that meets the fact, beside the route, and puts it into
 * shared memory after the commit. If the process dies before the commit, nothing happened: the fact is met again. If it
 * dies behind it, the next worker reads the table and puts what is there.
 *
 * A turn that meets the fact promises its epoch (Q9): nothing is stored any more for a home of an older one. That is in memory
 * before the commit, under the locks of the lanes' records, which the turn takes at its end, in the order in which calls do;
 * what of it an abort or a death leaves or undoes comes again with the fact, and nobody was told of it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "core/base/message.h"
#include "entity/record.h"
#include "entity/replica_apply.h"
#include "entity/replica_home.h"
#include "entity/replica_rows.h"
#include "link/transport.h"
#include "log/turn_chain.h"
#include "registry/catalog.h"
#include "registry/registry.h"
#include "registry/statement.h"
#include "registry/turn_lock.h"
#include "route/routing_private.h"
#include "shared/copy_set.h"

#include "base/compat.h"

static ShardStatement write_set = {
	"INSERT INTO shard.copy AS c (type_id, shard, n, epoch, lost, want, nodes)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7)"
	" ON CONFLICT (type_id, shard) DO UPDATE SET n = EXCLUDED.n, epoch = EXCLUDED.epoch,"
	" lost = EXCLUDED.lost, want = EXCLUDED.want, nodes = EXCLUDED.nodes,"
	/* what was applied is of a history that was given up */
	" applied = CASE WHEN c.lost = EXCLUDED.lost THEN c.applied ELSE 0 END,"
	" columns = CASE WHEN c.lost = EXCLUDED.lost THEN c.columns END,"
	" problem = CASE WHEN c.lost = EXCLUDED.lost THEN c.problem END",
	7,
	{INT4OID, INT4OID, INT8OID, INT4OID, INT4OID, INT4OID, INT4ARRAYOID}};

static ShardStatement delete_set = {"DELETE FROM shard.copy WHERE type_id = $1 AND shard = $2",
									2,
									{INT4OID, INT4OID}};

static ShardStatement select_copies = {"SELECT type_id, shard, applied FROM shard.copy", 0, {0}};

/* The OID of table shard.node: of the extension that this worker belongs to. */
static Oid extension = InvalidOid;

static ShardCopySetKey
key_of(const ShardRoute *route)
{
	return (ShardCopySetKey){MyDatabaseId, route->type_id, route->shard};
}

void
shard_routing_set_read(ShardRoute *route, int column, MemoryContext memory)
{
	ShardSet set = {.n = shard_statement_int8(0, column)};

	if (set.n == 0)
		return;
	shard_routing.sets_known = true;
	set.epoch = shard_statement_int4(0, column + 1);
	set.lost = shard_statement_int4(0, column + 2);
	set.want = shard_statement_int4(0, column + 3);
	for (int i = 0; i < SHARD_MAX_HOMES; i++)
	{
		set.nodes[i] = shard_statement_int4(0, column + 4 + i);
		set.n_nodes += set.nodes[i] != 0;
	}
	if (route->set == NULL)
		route->set = MemoryContextAlloc(memory, sizeof(ShardSet));
	*route->set = set;
}

/* One row, as the set in memory is. */
static void
store(const ShardRoute *route)
{
	const ShardSet *set = route->set;
	ShardArguments arguments = {0};
	Datum nodes[SHARD_MAX_HOMES];

#ifdef SHARD_MUTANT_SETS_IN_MEMORY_ALONE
	return;
#endif
	shard_statement_add(&arguments, Int32GetDatum(route->type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(route->shard), false);
	if (set->n_nodes == 0)
	{
		shard_statement_change(&delete_set, &arguments, SPI_OK_DELETE);

		/* what a former home has left goes in pieces (M7) */
		if (route->own.state == SHARD_HOME_NONE)
			shard_replica_rows_clear(route->type_id, route->shard);
		return;
	}
	shard_replica_rows_give_up(route->type_id, route->shard, set->lost);
	for (int i = 0; i < set->n_nodes; i++)
		nodes[i] = Int32GetDatum(set->nodes[i]);
	shard_statement_add(&arguments, Int64GetDatum(set->n), false);
	shard_statement_add(&arguments, Int32GetDatum(set->epoch), false);
	shard_statement_add(&arguments, Int32GetDatum(set->lost), false);
	shard_statement_add(&arguments, Int32GetDatum(set->want), false);
	shard_statement_add(&arguments,
						PointerGetDatum(construct_array(nodes, set->n_nodes, INT4OID, sizeof(int32),
														true, TYPALIGN_INT)),
						false);
	shard_statement_change_one(&write_set, &arguments, SPI_OK_INSERT);
}

void
shard_routing_set_write(const ShardRoute *route)
{
	ShardCopySetKey key = key_of(route);
	MemoryContext old;

	shard_routing.sets_known = true;
	store(route);
	if (route->set->n_nodes > 0)
		shard_copy_set_reserve(&key);
	shard_routing.set_lanes |= shard_lane_bit(shard_message_lane(route->type_id, route->shard));
#ifdef SHARD_MUTANT_LANES_LOCKED_AS_MET
	shard_turn_lock_records(shard_message_lane(route->type_id, route->shard));
#endif
	old = MemoryContextSwitchTo(shard_routing.later);
	shard_routing.sets =
		list_append_unique_ptr(shard_routing.sets, unconstify(ShardRoute *, route));
	MemoryContextSwitchTo(old);
}

void
shard_routing_set_promise(void)
{
	ListCell *cell;

	if (likely(shard_routing.set_lanes == 0))
		return;
	shard_each_lane (lane, shard_routing.set_lanes)
		shard_turn_lock_records(lane);
	foreach (cell, shard_routing.sets)
	{
		const ShardRoute *route = lfirst(cell);
		ShardCopySetKey key = key_of(route);

		shard_copy_end_promise(&key, route->epoch);
	}
}

/* Where the copy ends, unless that is known. */
static void
find_end(const ShardCopySetKey *key, const ShardSet *set)
{
	const ShardTurnChain *chain = shard_turn_chain_get(key->type_id, key->shard, set->lost);
	ShardReplicaCopy copy = {.promise = set->epoch};

	if (chain != NULL)
	{
		/* what a backup cannot read it has not stored: it needs it, and all behind it, again */
		bool whole = chain->damaged == 0 || set->nodes[0] == shard_routing.self;

		copy.end = whole ? chain->end : chain->sound;
		copy.oseq = whole ? chain->oseq : chain->sound_oseq;
	}
	shard_copy_end_found(key, extension, &copy);
}

/* The shard's home is here, with that set, or is not any more. */
static void
follow_home(const ShardRoute *route)
{
	bool here = shard_route_role(route, shard_routing.self) == SHARD_SET_HOME &&
				shard_handoff_takes(&route->own) && route->own.epoch == route->set->epoch;
	ShardReplicaShard *shard;

	if (here)
	{
		shard =
			shard_replica_shard_begin(route->type_id, route->shard, route->own.epoch, route->lost);
		shard_replica_shard_require(shard, shard_routing.self, route->set);
	}
	else if ((shard = shard_replica_shard_find(route->type_id, route->shard)) != NULL)
		shard_replica_shard_end(shard);
}

void
shard_routing_set_committed(void)
{
	ListCell *cell;

	foreach (cell, shard_routing.sets)
	{
		const ShardRoute *route = lfirst(cell);
		ShardCopySetKey key = key_of(route);

		if (route->set->n_nodes > 0)
			find_end(&key, route->set);
		shard_copy_set_put(&key, route->set);
		follow_home(route);
	}
	if (unlikely(shard_routing.sets != NIL))
		shard_replica_apply_look();
	shard_routing.sets = NIL;
	shard_routing.set_lanes = 0;
}

/* For shard_route_each. The tables have nothing of it since the commit that the registry has seen. */
static void
drop_set(void *context, ShardRoute *route)
{
	ShardCopySetKey key = key_of(route);

#ifdef SHARD_MUTANT_COPIES_OF_GONE_TYPES
	return;
#endif
	if (route->set == NULL || shard_registry_known(route->type_id) != NULL)
		return;
	shard_replica_shard_drop(route->type_id, route->shard);
	shard_turn_chain_drop(route->type_id, route->shard);
	memset(route->set, 0, sizeof(*route->set));
	shard_copy_set_drop(&key);
}

void
shard_routing_set_drop(void)
{
	if (unlikely(shard_routing.sets_known))
		shard_route_each(shard_routing.routes, drop_set, NULL);
}

/* The entry of a copy's shard is there from the start. */
static void
load_copy(int32 type_id, int32 shard, int64 applied)
{
	MemoryContext old;
	const ShardRoute *route;
	ShardCopySetKey key;

	if ((shard_routing.lanes & shard_lane_bit(shard_message_lane(type_id, shard))) == 0)
		return;
	old = MemoryContextSwitchTo(shard_routing.context);
	route = shard_route_get(shard_routing.routes, type_id, shard);
	MemoryContextSwitchTo(old);
	if (route->set == NULL || route->set->n_nodes == 0)
		return;
	key = key_of(route);
	shard_copy_set_reserve(&key);
	shard_copy_set_put(&key, route->set);
	shard_copy_end_load(&key, extension, applied);
}

void
shard_routing_set_load(void)
{
	ShardArguments arguments = {0};
	ShardShardRef *copies;
	int64 *applied;
	int count;

	extension = shard_catalog_get()->node;
	shard_copy_set_begin(MyDatabaseId, shard_routing.lanes);
	shard_fault("sets_forgotten");
	SPI_connect();
	shard_statement_run(&select_copies, &arguments, SPI_OK_SELECT);
	count = (int) SPI_processed;
	copies = SPI_palloc(sizeof(ShardShardRef) * Max(count, 1));
	applied = SPI_palloc(sizeof(int64) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		copies[i] = (ShardShardRef){.type_id = shard_statement_int4(i, 1),
									.shard = shard_statement_int4(i, 2)};
		applied[i] = shard_statement_int8(i, 3);
	}
	SPI_finish();
	for (int i = 0; i < count; i++)
		load_copy(copies[i].type_id, copies[i].shard, applied[i]);
	pfree(copies);
	pfree(applied);
}

/* At start: where the copy ends, and whether it is the home's. */
static void
load_home(const ShardCopySetKey *key, const ShardSet *set)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);
	const ShardRoute *route = shard_route_get(shard_routing.routes, key->type_id, key->shard);

	MemoryContextSwitchTo(old);
	if (set->nodes[0] == shard_routing.self)
		shard_turn_chain_settle(key->type_id, key->shard, set->epoch, set->lost);
	find_end(key, set);
	if (route->set != NULL && route->set->n_nodes > 0)
		follow_home(route);
}

void
shard_routing_set_loaded(void)
{
	int count;
	ShardCopySetItem *copies = shard_copy_set_list(MyDatabaseId, &count);

	for (int i = 0; i < count; i++)
	{
		const ShardCopySetKey *key = &copies[i].key;

		if (copies[i].set.n_nodes > 0 &&
			(shard_routing.lanes & shard_lane_bit(shard_message_lane(key->type_id, key->shard))) !=
				0)
			load_home(key, &copies[i].set);
	}
	shard_copy_set_loaded(MyDatabaseId, shard_routing.lanes);
}

const ShardSet *
shard_routing_set(int32 type_id, int32 shard)
{
	const ShardRoute *route = shard_route_known(shard_routing.routes, type_id, shard);

	/* a turn was aborted that had changed it */
	if (route != NULL && !route->loaded)
	{
		MemoryContext old = MemoryContextSwitchTo(shard_routing.context);

		route = shard_route_get(shard_routing.routes, type_id, shard);
		MemoryContextSwitchTo(old);
	}
	return route != NULL && route->set != NULL && route->set->n_nodes > 0 ? route->set : NULL;
}

/* ---- what waits for the release of turns ---------------------------------------------------------- */

/* For shard_route_each_touched: the marks that the turn has raised. */
static void
record_marks(void *context, ShardRoute *route)
{
	if (route->set == NULL || route->set->n_nodes == 0 || !shard_handoff_takes(&route->own))
		return;
	for (int i = 0; i < route->marks.n_marks; i++)
	{
		const ShardMark *mark = &route->marks.marks[i];
		int lane = shard_message_lane(route->type_id, route->shard);

		if (!mark->touched || mark->stamp.seq <= mark->committed)
			continue;
		shard_record_mark(route->type_id, route->shard, &mark->stamp);

		/* the record, which will have a higher number, is kept until the mark is in the base */
		shard_routing.passed[lane] =
			Min(shard_routing.passed[lane], shard_log_last_seq(shard_routing.db) + 1);
	}
}

void
shard_routing_record_marks(void)
{
	if (likely(!shard_routing.sets_known))
		return;
	shard_route_each_touched(shard_routing.routes, record_marks, NULL);
	shard_routing_inputs_record();
}

/* A mark that is told once the turn is released. If the process dies before, the origin asks for it with its hello. */
typedef struct WaitingMark
{
	ShardReplicaWait wait; /* the first field */
	int32 origin;
	ShardDone done;
	struct WaitingMark *next; /* of the same origin, for a later turn */
} WaitingMark;

/*
 * The marks of a shard that wait for one origin: two at most. The first one is told when its turn is released; the second
 * says what came since, for the newest of those turns, and is the first one then.
 */
typedef struct OriginMarks
{
	int32 type_id; /* key: these three */
	int32 shard;
	int32 origin;
	WaitingMark *first;
} OriginMarks;

static HTAB *waiting_marks = NULL;

static OriginMarks *
marks_of(int32 type_id, int32 shard, int32 origin)
{
	int32 key[3] = {type_id, shard, origin};
	OriginMarks *marks;
	bool found;

	if (waiting_marks == NULL)
	{
		HASHCTL info = {.keysize = sizeof(key), .entrysize = sizeof(OriginMarks)};

		info.hcxt = shard_routing.context;
		waiting_marks =
			hash_create("shard marks that wait", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	marks = hash_search(waiting_marks, key, HASH_ENTER, &found);
	if (!found)
		marks->first = NULL;
	return marks;
}

static void
end_mark(ShardReplicaWait *wait, bool released)
{
	WaitingMark *mark = (WaitingMark *) wait;
	OriginMarks *marks = marks_of(mark->done.type_id, mark->done.shard, mark->origin);

	if (released)
		shard_transport_announce(mark->origin, &mark->done, shard_routing.lsn);
	marks->first = mark->next;
	if (marks->first == NULL)
		(void) hash_search(waiting_marks, marks, HASH_REMOVE, NULL);
	pfree(mark);
}

bool
shard_routing_set_holds_mark(const ShardRoute *route, int32 origin, int64 rseq)
{
	ShardReplicaShard *shard = shard_replica_shard_find(route->type_id, route->shard);
	OriginMarks *marks;
	WaitingMark *mark;

#ifdef SHARD_MUTANT_MARKS_UNRELEASED
	return false;
#endif
	if (shard == NULL || !shard_replica_shard_has_to_wait(shard))
		return false;
	marks = marks_of(route->type_id, route->shard, origin);
	if (marks->first != NULL && (mark = marks->first->next) != NULL)
	{
		mark->done.rseq = Max(mark->done.rseq, rseq);
		shard_replica_shard_wait_on(shard, &mark->wait);
		return true;
	}
	mark = MemoryContextAlloc(shard_routing.context, sizeof(WaitingMark));
	*mark = (WaitingMark){.wait = {.end = end_mark, .bytes = sizeof(WaitingMark)},
						  .origin = origin,
						  .done = {route->type_id, route->shard, rseq}};
	if (marks->first == NULL)
		marks->first = mark;
	else
		marks->first->next = mark;
	shard_replica_shard_wait(shard, &mark->wait);
	return true;
}
