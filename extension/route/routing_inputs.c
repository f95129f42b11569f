/*
 * route/routing_inputs.c
 *		Messages of this node that shards with replicas have taken in (Q30), and what becomes of them when the home is elsewhere
 *		(Q21).
 *
 * Comes from: core/flow/route_input.c, in a turn; the turn's end; a worker's start. Goes to: entity/record.c, which row of the log has
 * which number; entity/replica_inputs.h, what is kept; table shard.parked.
 *
 * A message is a row of the log, or a parked one, and it has a stamp from the turn on that takes it in. That the row has it says the
 * turn's record, in its inputs; of a parked one the table. Rows stay until the turn is released, so until every next home has it.
 *
 * If the process dies right here: before the commit nothing of the turn happened, and the rows are met again, without stamps. After
 * it the record has mark and inputs, the parked row its turn; the next worker finds both, and keeps all rows until it has heard again
 * what is released. A parked row whose turn is released is deleted by a turn of its own: before that commit it is there, and is
 * deleted by the next worker. Rows are parked again in the turn that meets the fact: before that commit the fact is met again.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/fault.h"
#include "core/base/message.h"
#include "core/flow/takeover.h"
#include "entity/execution.h"
#include "entity/record.h"
#include "entity/replica_inputs.h"
#include "log/log_read.h"
#include "log/turn_chain.h"
#include "registry/statement.h"
#include "route/routing_private.h"

#include "base/compat.h"

static ShardStatement keep_parked = {
	"UPDATE shard.parked SET rseq = $5, stamp = $6, turn = $7"
	" WHERE type_id = $1 AND shard = $2 AND rseq = $3 AND arrival = $4",
	7,
	{INT4OID, INT4OID, INT8OID, INT8OID, INT8OID, BYTEAOID, INT8OID}};

static ShardStatement delete_released = {
	"DELETE FROM shard.parked WHERE type_id = $1 AND shard = $2 AND turn <= $3",
	3,
	{INT4OID, INT4OID, INT8OID}};

static ShardStatement park_kept = {"UPDATE shard.parked SET turn = NULL, epoch = $4, sent = true"
								   " WHERE type_id = $1 AND shard = $2 AND turn > $3",
								   4,
								   {INT4OID, INT4OID, INT8OID, INT4OID}};

/* 2^63 - 1 is no number of a stamp. */
static ShardStatement select_kept = {
	"SELECT type_id, shard, coalesce(pg_catalog.min(turn), 0), coalesce(pg_catalog.max(turn), 0),"
	" coalesce(pg_catalog.max(rseq) FILTER (WHERE rseq < 9223372036854775807), 0)"
	" FROM shard.parked GROUP BY type_id, shard",
	0,
	{0}};

/* What the running turn has taken in, and, without row of the log, up to which turn of the shard parked rows are kept. */
typedef struct Input
{
	int32 type_id;
	int32 shard;
	ShardTurnInput input;
} Input;

typedef struct Kept
{
	int32 type_id;
	int32 shard;
	int64 turn;
	bool gone; /* those of turns up to there are deleted */
} Kept;

static Input *inputs = NULL;
static int n_inputs = 0;
static int inputs_space = 0;
static List *kept = NIL; /* Kept *, in shard_routing.later */

static void
add_shard(ShardArguments *arguments, int32 type_id, int32 shard)
{
	shard_statement_add(arguments, Int32GetDatum(type_id), false);
	shard_statement_add(arguments, Int32GetDatum(shard), false);
}

/* ---- in a turn ------------------------------------------------------------------------------------ */

void
shard_routing_inputs_take(const ShardRoute *route, const ShardItem *item)
{
	const ShardRow *row = item->body;

	if (n_inputs == inputs_space)
	{
		int space = Max(256, 2 * inputs_space);

		inputs = inputs == NULL
					 ? MemoryContextAllocHuge(shard_routing.context, space * sizeof(Input))
					 : repalloc_huge(inputs, space * sizeof(Input));
		inputs_space = space;
	}
	inputs[n_inputs++] = (Input){route->type_id, route->shard, {row->seq, item->stamp.seq}};
}

static void
note_kept(int32 type_id, int32 shard, int64 turn, bool gone)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.later);
	Kept *one = palloc(sizeof(Kept));

	*one = (Kept){type_id, shard, turn, gone};
	kept = lappend(kept, one);
	MemoryContextSwitchTo(old);
}

/* The turn's number is that of its record, which it will have for the mark. */
void
shard_routing_inputs_keep(const ShardRoute *route, const ShardParked *parked, const ShardItem *item,
						  bool again)
{
	ShardArguments arguments = {0};
	char stamp[SHARD_LOG_STAMP_BYTES];
	ShardReplicaHome home;
	int64 turn;

	(void) shard_replica_shard_stands(&home, route->type_id, route->shard);
	turn = Max(again ? home.end.turn : home.end.turn + 1, 1);
	shard_log_put_stamp(stamp, item->stamp);
	add_shard(&arguments, route->type_id, route->shard);
	shard_statement_add(&arguments, Int64GetDatum(parked->rseq), false);
	shard_statement_add(&arguments, Int64GetDatum(parked->arrival), false);
	shard_statement_add(&arguments, Int64GetDatum(item->stamp.seq), false);
	shard_statement_add_text(&arguments, stamp, sizeof(stamp));
	shard_statement_add(&arguments, Int64GetDatum(turn), false);
	shard_statement_change_one(&keep_parked, &arguments, SPI_OK_UPDATE);
	note_kept(route->type_id, route->shard, turn, false);
	shard_fault_step("parked_kept");
}

void
shard_routing_inputs_record(void)
{
	for (int i = 0; i < n_inputs; i++)
		shard_record_input(inputs[i].type_id, inputs[i].shard, &inputs[i].input);
}

/* For shard_replica_shard_each. */
static void
leave_of(ShardReplicaShard *shard, void *arg)
{
	ShardArguments arguments = {0};

	if (likely(shard->parked_from == 0) || shard->parked_from > shard->home.released)
		return;
	shard_execution_end_user_code();
	add_shard(&arguments, shard->key.type_id, shard->key.shard);
	shard_statement_add(&arguments, Int64GetDatum(shard->home.released), false);
	shard_statement_change(&delete_released, &arguments, SPI_OK_DELETE);
	note_kept(shard->key.type_id, shard->key.shard, shard->home.released, true);
	shard_fault_step("inputs_left");
}

void
shard_routing_inputs_leave(void)
{
	MemoryContext old;

	if (likely(!shard_replica_inputs_are_parked()))
		return;
	old = MemoryContextSwitchTo(shard_routing.scratch);
	shard_replica_shard_each(leave_of, NULL);
	MemoryContextSwitchTo(old);
	MemoryContextReset(shard_routing.scratch);
}

void
shard_routing_inputs_committed(void)
{
	ListCell *cell;

	foreach (cell, kept)
	{
		const Kept *one = lfirst(cell);
		ShardReplicaShard *shard = shard_replica_shard_find(one->type_id, one->shard);

		if (shard == NULL)
			continue;
		if (one->gone)
			shard_replica_inputs_gone(shard, one->turn);
		else
			shard_replica_inputs_parked(shard, one->turn);
	}
	shard_routing_inputs_aborted();
}

void
shard_routing_inputs_aborted(void)
{
	kept = NIL;
	n_inputs = 0;
}

void
shard_routing_inputs_discard(const ShardRoute *route)
{
	ShardArguments arguments = {0};

	if (likely(route->set == NULL))
		return;
	add_shard(&arguments, route->type_id, route->shard);
	shard_statement_add(&arguments, Int64GetDatum(PG_INT64_MAX), false);
	shard_statement_change(&delete_released, &arguments, SPI_OK_DELETE);
}

/* ---- the home is elsewhere ------------------------------------------------------------------------ */

/* Inputs of the shard's turns, by the rows of the log. */
typedef struct Collection
{
	const ShardRoute *route;
	const ShardReplicaHome *home;
	int count;
	int space;
	ShardTurnInput *inputs;
	int64 parked;
} Collection;

static bool
collect_record(const ShardTurnRecord *record, int64 seq, void *arg)
{
	Collection *collection = arg;
	ShardReader reader = record->inputs;
	ShardTurnInput input = {0};

	while (shard_turn_get_input(&reader, &input))
	{
		if (collection->count == collection->space)
		{
			collection->space *= 2;
			collection->inputs =
				repalloc_huge(collection->inputs, collection->space * sizeof(ShardTurnInput));
		}
		collection->inputs[collection->count++] = input;
	}
	return true;
}

static int
compare_inputs(const void *a, const void *b)
{
	const ShardTurnInput *x = a;
	const ShardTurnInput *y = b;

	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static const ShardTurnInput *
find_input(const Collection *collection, int64 seq)
{
	ShardTurnInput key = {.seq = seq};

	return bsearch(&key, collection->inputs, collection->count, sizeof(ShardTurnInput),
				   compare_inputs);
}

static bool
want_input(const ShardRowFixed *row, void *arg)
{
	const Collection *collection = arg;

	return row->type_id == collection->route->type_id && row->shard == collection->route->shard &&
		   find_input(collection, row->seq) != NULL;
}

/* As what an origin sent to that home: if its state is given up, it is not known whether the message was handled (N2). */
static void
park_input(const ShardRow *row, void *arg)
{
	Collection *collection = arg;
	const ShardTurnInput *input = find_input(collection, row->seq);
	MemoryContext old = MemoryContextSwitchTo(shard_routing.scratch);
	ShardItem item = {.type_id = row->type_id,
					  .shard = row->shard,
					  .epoch = collection->home->epoch,
					  .sent = true,
					  .stamp = {.kind = SHARD_PREFIX_NODE,
								.a = shard_routing.self,
								.b = shard_message_lane(row->type_id, row->shard),
								.seq = input->rseq},
					  .body = row};

	collection->parked += shard_routing_store_park_again(&item, row) ? 1 : 0;
	MemoryContextSwitchTo(old);
	MemoryContextReset(shard_routing.scratch);
}

/* Those that are still there; what is not there was released. */
static void
park_rows(Collection *collection)
{
	ShardLogScan scan = {.payload = true,
						 .want = want_input,
						 .visit = park_input,
						 .arg = collection};

	if (collection->count == 0)
		return;
	qsort(collection->inputs, collection->count, sizeof(ShardTurnInput), compare_inputs);
	scan.from = collection->inputs[0].seq;
	scan.upto = collection->inputs[collection->count - 1].seq;
	PushActiveSnapshot(GetLatestSnapshot());
	scan.snapshot = GetActiveSnapshot();
	shard_log_read(&scan);
	PopActiveSnapshot();
}

/* Parked rows: what is released goes, the rest waits again. */
static void
park_parked(Collection *collection, int64 released)
{
	ShardArguments gone = {0};
	ShardArguments again = {0};

	add_shard(&gone, collection->route->type_id, collection->route->shard);
	shard_statement_add(&gone, Int64GetDatum(released), false);
	shard_statement_change(&delete_released, &gone, SPI_OK_DELETE);
	add_shard(&again, collection->route->type_id, collection->route->shard);
	shard_statement_add(&again, Int64GetDatum(released), false);
	shard_statement_add(&again, Int32GetDatum(collection->home->epoch), false);
	SPI_connect();
	shard_statement_run(&park_kept, &again, SPI_OK_UPDATE);
	collection->parked += (int64) SPI_processed;
	SPI_finish();
}

void
shard_routing_inputs_collect(const ShardRoute *route)
{
	const ShardReplicaShard *shard = shard_replica_shard_find(route->type_id, route->shard);
	Collection collection = {.route = route, .space = 256};
	const ShardTurnChain *chain;
	int64 released;

#ifdef SHARD_MUTANT_INPUTS_NOT_PARKED
	return;
#endif
	if (likely(shard == NULL) || shard_handoff_takes(&route->own))
		return;
	collection.home = &shard->home;
	collection.inputs = palloc(collection.space * sizeof(ShardTurnInput));
	released = shard_takeover_park_from(&shard->home);
	chain = shard_turn_chain_get(route->type_id, route->shard, shard->lost);
	if (chain != NULL && released < chain->end.turn)
		shard_turn_log_read_shard(route->type_id, route->shard, shard->lost, released + 1, 0,
								  collect_record, shard_turn_log_pass, &collection);
	park_rows(&collection);
	park_parked(&collection, released);
	shard_routing_count(route->type_id, collection.parked);
	unconstify(ShardRoute *, route)->front_in = 0;
	shard_routing_forget_ahead();
	pfree(collection.inputs);
	shard_fault_step("inputs_parked");
}

/* ---- start ---------------------------------------------------------------------------------------- */

/* Numbers of this node and lane up to there were given. */
static void
note_given(int lane, int64 rseq)
{
	shard_routing.given[lane] = Max(shard_routing.given[lane], rseq);
}

static void
take_marks(const ShardTurnRecord *record)
{
	MemoryContext old = MemoryContextSwitchTo(shard_routing.context);
	ShardRoute *route = shard_route_get(shard_routing.routes, record->type_id, record->shard);
	ShardReader sections = record->sections;
	ShardReader items;
	ShardStamp mark;
	int32 kind;
	bool mandatory;

#ifdef SHARD_MUTANT_MARKS_OF_INPUTS_FORGOTTEN
	sections.at = sections.end;
#endif
	while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
		while (kind == SHARD_TURN_MARKS && shard_turn_get_mark(&items, &mark))
			shard_mark_raise(&route->marks, mark);
	shard_mark_commit(&route->marks, NULL, NULL);
	MemoryContextSwitchTo(old);
}

/* A record of a home's history. What another one has taken the place of was not taken in. */
static bool
load_record(const ShardTurnRecord *record, int64 seq, void *arg)
{
	ShardReplicaShard *shard = shard_replica_shard_find(record->type_id, record->shard);
	const ShardTurnChain *chain =
		shard == NULL ? NULL : shard_turn_chain_get(record->type_id, record->shard, shard->lost);
	int lane = shard_message_lane(record->type_id, record->shard);
	ShardReader reader = record->inputs;
	ShardTurnInput input = {0};
	int64 lowest = PG_INT64_MAX;

	if (chain == NULL || record->turn < chain->kept || record->turn > chain->end.turn ||
		chain->low[record->turn - chain->kept] != seq)
		return true;
	take_marks(record);
	if (seq != 0)
		shard_routing.unsaved[lane] = Min(shard_routing.unsaved[lane], seq);
	while (shard_turn_get_input(&reader, &input))
	{
		lowest = Min(lowest, input.seq);
		note_given(lane, input.rseq);
	}
	if (lowest != PG_INT64_MAX && record->turn > shard->home.released)
		shard_replica_inputs_add(shard, record->turn, lowest);
	return true;
}

/* For shard_replica_shard_each: records that have left the log. */
static void
load_kept(ShardReplicaShard *shard, void *arg)
{
	const ShardTurnChain *chain =
		shard_turn_chain_get(shard->key.type_id, shard->key.shard, shard->lost);

	if (chain != NULL && chain->low[0] == 0)
		(void) shard_turn_log_read_kept(shard->key.type_id, shard->key.shard, chain->kept,
										chain->end.turn, load_record, shard_turn_log_pass, NULL);
}

static void
load_parked(void)
{
	ShardArguments arguments = {0};

	SPI_connect();
	shard_statement_run(&select_kept, &arguments, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		int32 type_id = shard_statement_int4(i, 1);
		int32 number = shard_statement_int4(i, 2);
		int64 from = shard_statement_int8(i, 3);
		int lane = shard_message_lane(type_id, number);
		ShardReplicaShard *shard = shard_replica_shard_find(type_id, number);

		if ((shard_routing.lanes & shard_lane_bit(lane)) == 0)
			continue;
		note_given(lane, shard_statement_int8(i, 5));
		if (from == 0 || shard == NULL)
			continue;
		shard_replica_inputs_parked(shard, from);
		shard_replica_inputs_parked(shard, shard_statement_int8(i, 4));
	}
	SPI_finish();
}

/* For shard_route_each: of numbers that were given, those whose records are gone. */
static void
load_given(void *context, ShardRoute *route)
{
	for (int i = 0; i < route->marks.n_marks; i++)
	{
		const ShardStamp *stamp = &route->marks.marks[i].stamp;

		if (stamp->kind == SHARD_PREFIX_NODE && stamp->a == shard_routing.self)
			note_given(stamp->b, stamp->seq);
	}
}

void
shard_routing_inputs_load(void)
{
	if (likely(!shard_routing.sets_known))
		return;
	if (shard_replica_any())
	{
		shard_replica_shard_each(load_kept, NULL);
		shard_turn_log_read(shard_routing.lanes, 0, load_record, shard_turn_log_pass, NULL);
	}
	load_parked();
	shard_route_each(shard_routing.routes, load_given, NULL);
}
