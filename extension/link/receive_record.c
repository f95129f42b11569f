/*
 * link/receive_record.c
 *		Turn records of homes that this node keeps copies for: store (Q8, Q9, Q36).
 *
 * One call is one transaction: the lock of the extension, then the locks of the lanes whose shards it speaks of, ascending.
 * Under them each offer is judged by core/flow/replica.h on a twin of the copy's end; what is to be stored of a lane becomes
 * one row of the log, of kind TURN. At the commit, before the locks are released, the twins take the place of the ends in
 * shared memory. Then, with nothing held, the call waits for the gate of whatever has committed here by then, and answers:
 * what it found stored already another backend may have committed a moment ago, and the promise under which it was judged
 * the lane's worker (mutant 23, Q9).
 *
 * If the process dies right here: before the commit nothing happened. After it the records are there, and are the copy's
 * end for whoever reads the log; the home, which got no answer, asks where the copy stands.
 *
 * Who is home of a shard, and in which epoch, is what the lane's worker has met of the map of the cluster (T6). For a newer
 * home a call waits a moment, as for rows of its epoch (X3); what is still unknown then is left out of the answer, and asked
 * again. The bytes come from anywhere. Where an offer, or a record, ends is needed for all that comes behind: if that is not to
 * be seen, the call is refused as a whole. Records that are no good otherwise are refused for their shard alone.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "base/peer_errors.h"
#include "core/base/message.h"
#include "core/flow/replica.h"
#include "link/callee.h"
#include "link/receive.h"
#include "log/log.h"
#include "log/turn_log.h"
#include "registry/catalog.h"
#include "registry/turn_lock.h"
#include "shared/copy_set.h"
#include "shared/gate.h"
#include "shared/told.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_receive_records);

/* How long a call waits for homes that the workers of their lanes have not met, in microseconds. */
#define HOME_PATIENCE (200 * INT64CONST(1000))

/* A shard that the call speaks of. */
typedef struct StoreItem
{
	ShardCopySetKey key;
	ShardReplicaOffer offer;
	ShardReader records; /* n_records of them */
	bool damaged;		 /* they are not */
	bool judged;		 /* else nothing is answered */
	bool changed;		 /* the twin */
	int place;			 /* of the end that it takes the place of, in reserved */
	ShardReplicaCopy copy;
	ShardReplicaAnswer answer;
} StoreItem;

/* One call; in the caller's memory, which outlives transactions. */
typedef struct Store
{
	ShardCallee callee;
	StoreItem *items; /* by type and shard */
	int n_items;
	int space;
	ShardLanes lanes;
	StringInfoData rows[SHARD_LANES];
} Store;

/* The call whose transaction is about to end; NULL: none. */
static const Store *committing = NULL;

/* Places of ends that the transaction has, for as long as it lasts; in TopMemoryContext, since an abort comes after the call. */
static struct
{
	ShardCopyPlace *places;
	int count;
	int space;
} reserved;

/* ---- the end of the transaction ------------------------------------------------------------------- */

static void
reserve(StoreItem *item)
{
	if (reserved.count == reserved.space)
	{
		int space = Max(16, 2 * reserved.space);

		reserved.places =
			reserved.places == NULL
				? MemoryContextAllocHuge(TopMemoryContext, space * sizeof(ShardCopyPlace))
				: repalloc_huge(reserved.places, space * sizeof(ShardCopyPlace));
		reserved.space = space;
	}
	shard_copy_end_reserve(&item->key, &reserved.places[reserved.count]);
	item->place = reserved.count++;
}

/* Before the locks are released. The log is the truth, so at an abort no end changes. */
static void
at_xact_event(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	if (event == XACT_EVENT_COMMIT && committing != NULL)
	{
		for (int i = 0; i < committing->n_items; i++)
			if (committing->items[i].changed)
				shard_copy_end_put(&reserved.places[committing->items[i].place],
								   &committing->items[i].copy);
	}
	else
		for (int i = 0; i < reserved.count; i++)
			shard_copy_end_put(&reserved.places[i], NULL);
	reserved.count = 0;
	committing = NULL;
}

void
shard_receive_record_init(void)
{
	RegisterXactCallback(at_xact_event, NULL);
}

/* ---- what the call says --------------------------------------------------------------------------- */

static void
damaged(const Store *store, const char *what)
{
	ereport(ERROR,
			(errcode(SHARD_ERRCODE_UNREADABLE),
			 errmsg("the call of node %d is damaged, in %s", store->callee.header.from, what),
			 errdetail("Nothing of it was taken."),
			 errhint("Both nodes should run the same version of the extension.")));
}

/* Says that records of the caller are no good. */
static void
report_damaged(const Store *store, const StoreItem *item, const char *what)
{
	int32 from = store->callee.header.from;
	const char *more;

	if (shard_told_may(store->callee.db, from, "damaged records", 0, &more))
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("turn records of shard %d of type %d that node %d has sent are damaged%s",
						item->offer.shard, item->offer.type_id, from, more),
				 errdetail("What is damaged: %s. Nothing of the shard was taken.", what),
				 errhint("What the shard does is not shown until this node has stored it. See "
						 "shard_health() on node %d.",
						 from)));
}

/* Does the record belong to the offer, behind that point, as a copy stores it? */
static bool
is_in_place(const StoreItem *item, const ShardTurnRecord *record, const ShardTurnPoint *end)
{
	ShardTurnPoint before = shard_turn_record_before(record);

	return record->type_id == item->offer.type_id && record->shard == item->offer.shard &&
		   record->epoch <= item->offer.epoch && record->inputs.at == record->inputs.end &&
		   (end == NULL || shard_turn_point_equal(&before, end));
}

/* Reads the records of an offer, good or not. */
static void
check_records(const Store *store, StoreItem *item, ShardReader *section)
{
	ShardTurnRecord record;
	ShardTurnFault fault;
	ShardTurnPoint end = {0};
	const char *what = NULL;

	item->records = *section;
	for (int i = 0; i < item->offer.n_records; i++)
	{
		ShardReader next = *section;

		if (!shard_turn_record_skip(section))
			damaged(store, "the length of a turn record");
		if (what != NULL)
			continue;
		if (!shard_turn_record_next(&next, &record, &fault))
			what = shard_turn_fault_names[fault];
		else if (!is_in_place(item, &record, i > 0 ? &end : NULL))
			what = "the place of a record";
		else
			end = shard_turn_record_point(&record);
		CHECK_FOR_INTERRUPTS();
	}
	item->records.end = section->at;
	item->damaged = what != NULL;
	if (what != NULL)
		report_damaged(store, item, what);
}

/* Offers of a section, behind those before them. */
static void
read_offers(Store *store, ShardReader *section)
{
	ShardReplicaOffer offer;

	while (shard_replica_get_offer(section, &offer))
	{
		StoreItem *item;

		if (store->n_items == SHARD_STORE_SHARDS)
			damaged(store, "the number of its shards");
		if (store->n_items == store->space)
		{
			store->space = Max(16, 2 * store->space);
			store->items = store->items == NULL
							   ? palloc(store->space * sizeof(StoreItem))
							   : repalloc_huge(store->items, store->space * sizeof(StoreItem));
		}
		item = &store->items[store->n_items];
		memset(item, 0, sizeof(*item));
		item->key = (ShardCopySetKey){MyDatabaseId, offer.type_id, offer.shard};
		item->offer = offer;
		if (store->n_items > 0 && shard_copy_set_compare(&item[-1].key, &item->key) >= 0)
			damaged(store, "the order of its shards");
		check_records(store, item, section);
		store->n_items++;
		store->lanes |= shard_lane_bit(shard_message_lane(offer.type_id, offer.shard));
	}
	if (section->failed)
		damaged(store, "what it offers");
}

/* All that the call says. */
static void
read_call(Store *store)
{
	MemoryContext old = MemoryContextSwitchTo(store->callee.context);
	ShardReader reader = store->callee.reader;
	ShardReader section;
	int32 kind;
	int32 flags;

	while (shard_packet_get_section(&reader, &kind, &flags, &section))
	{
		if (kind == SHARD_SECTION_RECORDS)
			read_offers(store, &section);
		else if (flags & SHARD_SECTION_MANDATORY)
			shard_callee_unknown_section(&store->callee, kind, 0);
	}
	if (reader.failed)
		damaged(store, "its sections");
	MemoryContextSwitchTo(old);
}

/* ---- judging -------------------------------------------------------------------------------------- */

/* The copy's set and end. False: they are not known (yet), or the caller is ahead of what the lane's worker has met. */
static bool
find_copy(const StoreItem *item, ShardSet *set, ShardCopyEnd *end)
{
	return shard_copy_set_get(&item->key, set) && item->offer.epoch <= set->epoch &&
		   shard_copy_end_get(&item->key, shard_catalog_get()->node, end);
}

/* Waits a little, with nothing held, for homes that are not known here yet. */
static void
wait_for_homes(Store *store)
{
	int64 deadline = shard_clock_now() + HOME_PATIENCE;

	for (int i = 0; i < store->n_items; i++)
	{
		ShardSet set;
		ShardCopyEnd end;

		while (!find_copy(&store->items[i], &set, &end) && shard_clock_now() < deadline)
			shard_callee_nap(&store->callee);
	}
}

/* For core/flow/replica.h: a point of the copy's history. context: StoreItem. */
static bool
find_point(void *context, int64 turn, ShardTurnPoint *point)
{
	const StoreItem *item = context;

	return shard_turn_log_find(item->offer.type_id, item->offer.shard, turn, point);
}

/* Judges the records of an offer; those that are to be stored go to the lane's row. */
static ShardReplicaVerdict
take_records(Store *store, StoreItem *item, const ShardReplicaSender *sender)
{
	StringInfo row = &store->rows[shard_message_lane(item->offer.type_id, item->offer.shard)];
	ShardReader reader = item->records;
	ShardTurnRecord record;
	ShardTurnFault fault;

	while (shard_turn_record_next(&reader, &record, &fault))
	{
		ShardReplicaVerdict verdict =
			shard_replica_judge(&item->copy, sender, &record, find_point, item, &item->answer.need);

		if (verdict != SHARD_REPLICA_STORE && verdict != SHARD_REPLICA_REPLACE &&
			verdict != SHARD_REPLICA_STORED)
			return verdict;
		item->answer.stored = record.turn;
		if (verdict == SHARD_REPLICA_STORED)
			continue;
		if (row->data == NULL)
			initStringInfo(row);
		shard_turn_record_ship(row, &record);
		shard_replica_stored(&item->copy, &record);
		item->changed = true;
	}
	return SHARD_REPLICA_STORED;
}

/* Says loudly that a copy and its home do not fit: one of them was put back from a copy of its database. */
static void
report_parted(const Store *store, const StoreItem *item, ShardReplicaVerdict verdict)
{
	int32 from = store->callee.header.from;
	const char *more;

	if (!shard_told_may(store->callee.db, from, "parted copy", 0, &more))
		return;
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the copy of shard %d of type %d here is not one of node %d, its home%s",
					item->offer.shard, item->offer.type_id, from, more),
			 verdict == SHARD_REPLICA_FORKED
				 ? errdetail("It has turns up to " INT64_FORMAT
							 " of epoch %d that the home does not know to have made.",
							 item->copy.end.turn, item->copy.end.epoch)
				 : errdetail("Turns up to " INT64_FORMAT
							 " are known to be stored by all, and the home has others.",
							 Max(item->copy.released, item->copy.applied)),
			 errhint("One of the two databases was put back from a copy. The copy takes nothing "
					 "of this home; see shard_replicas.")));
}

/* Judges what the call says of one shard. */
static void
take_item(Store *store, StoreItem *item)
{
	const ShardReplicaOffer *offer = &item->offer;
	ShardReplicaSender sender = {.epoch = offer->epoch};
	ShardReplicaVerdict verdict;
	ShardCopyEnd end;
	ShardSet set;
	int64 released;

	if (!find_copy(item, &set, &end))
		return;
	sender.learned = set.epoch;
	sender.is_home = set.nodes[0] == store->callee.header.from;
	item->judged = true;
	item->copy = end.copy;
	released = end.copy.released;
	if (item->damaged)
		verdict = SHARD_REPLICA_DAMAGED;
	else if (offer->n_records > 0)
		verdict = take_records(store, item, &sender);
	else
		/* what it tells alone is about what is here already */
		verdict =
			shard_replica_ask(&item->copy, &sender, offer->asks ? &offer->point : &item->copy.end,
							  find_point, item, &item->answer.need);
	if (offer->asks && verdict == SHARD_REPLICA_STORED)
		item->answer.stored = offer->point.turn;
	if (verdict == SHARD_REPLICA_STORED)
		shard_replica_told(&item->copy, offer->epoch, offer->released);
	else if (verdict == SHARD_REPLICA_FORKED || verdict == SHARD_REPLICA_BROKEN)
		report_parted(store, item, verdict);
	item->changed |= item->copy.released != released;
	item->answer.type_id = offer->type_id;
	item->answer.shard = offer->shard;
	item->answer.epoch = offer->epoch;
	item->answer.verdict = verdict;
}

/* ---- the call ------------------------------------------------------------------------------------- */

/* What may be applied by now is (Q10). */
static void
have_applied(const Store *store)
{
	for (int i = 0; i < store->n_items; i++)
	{
		const StoreItem *item = &store->items[i];

		if (item->judged && shard_replica_may_apply(&item->copy) > item->copy.applied)
			shard_copy_apply_soon(store->callee.db,
								  shard_message_lane(item->offer.type_id, item->offer.shard));
	}
}

/* Judges and stores all, in the transaction that is open. */
static void
store_all(Store *store)
{
	MemoryContext old;

	(void) shard_log_attach();
	shard_each_lane (lane, store->lanes)
		shard_turn_lock_records(lane);
	old = MemoryContextSwitchTo(store->callee.context);
	for (int i = 0; i < store->n_items; i++)
	{
		take_item(store, &store->items[i]);
		CHECK_FOR_INTERRUPTS();
	}
	MemoryContextSwitchTo(old);
	shard_each_lane (lane, store->lanes)
		if (store->rows[lane].len > 0)
			shard_turn_log_append(lane, store->rows[lane].data, store->rows[lane].len);
	(void) shard_log_flush();
	for (int i = 0; i < store->n_items; i++)
		if (store->items[i].changed)
			reserve(&store->items[i]);
	shard_fault("copy_ends_reserved");
	shard_fault("store_before_commit");
	committing = store;
	shard_callee_commit();
	have_applied(store);
	shard_fault("store_after_commit");
}

/* The section of the answer; shards that were not judged are left out. */
static void
put_answers(const Store *store, StringInfo out)
{
	StringInfoData bytes;

	initStringInfo(&bytes);
	for (int i = 0; i < store->n_items; i++)
		if (store->items[i].judged)
			shard_replica_put_answer(&bytes, &store->items[i].answer);
	shard_packet_put_section(out, SHARD_SECTION_TURNS, SHARD_SECTION_MANDATORY, bytes.data,
							 bytes.len);
	pfree(bytes.data);
}

/*
 * shard_peer.store(call bytea, INOUT answer bytea)
 *
 * Turn records of shards of the caller that this node has copies of; questions of what it has, and what is released.
 */
Datum
shard_receive_records(PG_FUNCTION_ARGS)
{
	Store store = {0};
	StringInfoData answer;

	committing = NULL;
	shard_callee_begin(fcinfo, &store.callee);
	read_call(&store);
	wait_for_homes(&store);
	store_all(&store);
#ifndef SHARD_MUTANT_STORED_UNGATED
	shard_gate_wait(shard_gate_newest());
#endif
	shard_fault("store_past_gate");
	initStringInfo(&answer);
	shard_callee_put_header(&store.callee, &answer);
	put_answers(&store, &answer);
	return shard_callee_answer(&store.callee, &answer);
}
