/*
 * link/record_call.c
 *		One call with turn records: what it says to a backup, and the records read back for it (Q6, Q7).
 *
 * Nothing here is durable. If the process dies right here, the next worker asks what the backup has.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/base/message.h"
#include "link/receive.h"
#include "link/record_private.h"
#include "link/transport_private.h"
#include "log/turn_chain.h"
#include "registry/catalog.h"

#include "base/compat.h"

/* The approximate limits of one call, and the records of one shard in it. */
#ifdef SHARD_MUTANT_CALLS_WITHOUT_BOUND
#define CALL_BYTES ((int64) MaxAllocHugeSize)
#else
#define CALL_BYTES (4 * 1024 * 1024)
#endif
#define CALL_RECORDS 5000

/* Without an answer after this time the connection is given up. */
#define CALL_TIMEOUT_MS 30000

/* Records could not be read now, since another session has the extension: look again. */
#define BUSY_PAUSE (INT64CONST(20) * 1000)

/* The call in the making, in the memory of one run. */
typedef struct Draft
{
	ShipLink *link;
	ShipItem *items;
	int n_items;
	int space;
	int64 bytes; /* of the records read so far */
	MemoryContext context;
} Draft;

static int
compare_items(const void *a, const void *b)
{
	const ShardShardKey *x = &((const ShipItem *) a)->key;
	const ShardShardKey *y = &((const ShipItem *) b)->key;

	if (x->type_id != y->type_id)
		return x->type_id < y->type_id ? -1 : 1;
	return x->shard < y->shard ? -1 : x->shard > y->shard;
}

ShipItem *
shard_record_call_find(ShipItem *items, int n_items, int32 type_id, int32 shard)
{
	int low = 0;
	int high = n_items;

	while (low < high)
	{
		int middle = low + (high - low) / 2;
		const ShardShardKey *key = &items[middle].key;

		if (key->type_id < type_id || (key->type_id == type_id && key->shard < shard))
			low = middle + 1;
		else
			high = middle;
	}
	if (low == n_items || items[low].key.type_id != type_id || items[low].key.shard != shard)
		return NULL;
	return &items[low];
}

ShardReplicaShard *
shard_record_call_home(const ShipItem *item)
{
	ShardReplicaShard *shard = shard_replica_shard_find(item->key.type_id, item->key.shard);

	return shard != NULL && shard->home.epoch == item->epoch ? shard : NULL;
}

/* ---- calls that are refused as a whole ------------------------------------------------------------ */

static bool
has_records(const ShipItem *item)
{
	return item->ship.from <= item->ship.to;
}

static ShardShardKey *
find_alone(const ShipLink *link, const ShardShardKey *key)
{
	ShipItem item = {.key = *key};

	return link->n_alone == 0
			   ? NULL
			   : bsearch(&item, link->alone, link->n_alone, sizeof(ShardShardKey), compare_items);
}

static void
end_alone(ShipLink *link)
{
	if (link->alone != NULL)
		pfree(link->alone);
	link->alone = NULL;
	link->n_alone = 0;
}

/* From now on the records of each shard of the call go alone. */
static void
begin_alone(ShipLink *link)
{
#ifdef SHARD_MUTANT_REFUSED_TOGETHER
	return;
#endif
	end_alone(link);
	link->alone = MemoryContextAllocHuge(TopMemoryContext, link->n_items * sizeof(ShardShardKey));
	for (int i = 0; i < link->n_items; i++)
		if (has_records(&link->items[i]))
			link->alone[link->n_alone++] = link->items[i].key;
	link->refused = 0;
}

/* What spoils a call that has nothing else in it is that shard: as if the node had said so of it. */
static void
spoil(ShipLink *link, ShipItem *item)
{
	ShardReplicaAnswer answer = {.type_id = item->key.type_id,
								 .shard = item->key.shard,
								 .epoch = item->epoch,
								 .verdict = SHARD_REPLICA_DAMAGED};
	ShardReplicaShard *shard = shard_record_call_home(item);

	item->answered = true;
	if (shard != NULL)
		(void) shard_replica_answered(&shard->home, link->node, &answer);
}

void
shard_record_call_refused(ShipLink *link)
{
	bool any = false;

	for (int i = 0; i < link->n_items; i++)
		any |= has_records(&link->items[i]);
	if (!any)
		return;
	if (link->n_items == 1)
		spoil(link, &link->items[0]);
	else if (++link->refused >= SHARD_REPLICA_MOST_SPOILED)
		begin_alone(link);
}

void
shard_record_call_taken(ShipLink *link)
{
	for (int i = 0; i < link->n_items; i++)
	{
		const ShipItem *item = &link->items[i];
		ShardShardKey *key;

		if (!item->answered || !has_records(item))
			continue;
		link->refused = 0;
		key = find_alone(link, &item->key);
		if (key == NULL)
			continue;
		link->n_alone--;
		memmove(key, key + 1, (link->alone + link->n_alone - key) * sizeof(ShardShardKey));
	}
}

/* The first one of those whose records go alone, if any has some: it is the whole call. Without any in sight that is over. */
static void
take_alone(ShipLink *link, ShipItem *items, int *n_items)
{
	bool any = false;

	if (likely(link->alone == NULL))
		return;
	for (int i = 0; i < *n_items; i++)
	{
		if (find_alone(link, &items[i].key) == NULL)
			continue;
		any = true;
		if (!has_records(&items[i]))
			continue;
		items[0] = items[i];
		*n_items = 1;
		return;
	}
	if (!any)
		end_alone(link);
}

/* ---- what is to be said --------------------------------------------------------------------------- */

static void
add_item(Draft *draft, ShardReplicaShard *shard, const ShardReplicaShipment *ship)
{
	ShipItem *item;

	if (draft->n_items == SHARD_STORE_SHARDS)
		return;
	if (draft->n_items == draft->space)
	{
		draft->space = Max(16, 2 * draft->space);
		draft->items = draft->items == NULL
						   ? palloc(draft->space * sizeof(ShipItem))
						   : repalloc_huge(draft->items, draft->space * sizeof(ShipItem));
	}
	item = &draft->items[draft->n_items++];
	*item =
		(ShipItem){.key = shard->key, .shard = shard, .epoch = shard->home.epoch, .ship = *ship};
	item->ship.to = Min(item->ship.to, item->ship.from + CALL_RECORDS - 1);
}

/* For shard_replica_shard_each: what the node of the draft is to be told of the shard. */
static void
draft_shard(ShardReplicaShard *shard, void *arg)
{
	Draft *draft = arg;
	ShardReplicaShipment ship;

	if (shard_replica_shipment(&shard->home, draft->link->node, &ship))
		add_item(draft, shard, &ship);
}

/* ---- reading records ------------------------------------------------------------------------------ */

/* A record that is to be shipped, found in the log or the table. */
static bool
take_record(const ShardTurnRecord *record, int64 seq, void *arg)
{
	Draft *draft = arg;
	ShipItem *item =
		shard_record_call_find(draft->items, draft->n_items, record->type_id, record->shard);
	StringInfo bytes;

	if (item == NULL || !shard_replica_shard_owns(item->shard, record) ||
		record->turn < item->ship.from || record->turn > item->ship.to)
		return true;
	bytes = &item->records[record->turn - item->ship.from];
	if (bytes->data == NULL)
	{
		bytes->maxlen = shard_turn_record_ship_len(record) + 1;
		bytes->data = palloc(bytes->maxlen);
	}
	draft->bytes -= bytes->len;
	resetStringInfo(bytes);
	shard_turn_record_ship(bytes, record);
	draft->bytes += bytes->len;
	return draft->bytes < CALL_BYTES;
}

static bool
lacks_first(const ShipItem *item)
{
	return item->ship.from <= item->ship.to && item->records[0].len == 0;
}

/* Records that have left the log; for those whose first one is not read. */
static void
read_kept(Draft *draft)
{
	for (int i = 0; i < draft->n_items && draft->bytes < CALL_BYTES; i++)
	{
		const ShipItem *item = &draft->items[i];

		if (lacks_first(item))
			(void) shard_turn_log_read_kept(item->key.type_id, item->key.shard, item->ship.from,
											item->ship.to, take_record, shard_turn_log_pass, draft);
	}
}

/* From where on the log may have a record of the item; 0: its first ones are in the table. */
static int64
low_of(const ShipItem *item)
{
	const ShardShardKey *key = &item->key;
	const ShardTurnChain *chain = shard_turn_chain_get(key->type_id, key->shard, item->shard->lost);

	/* if it is nowhere, that is found when it is looked for */
	if (chain == NULL || item->ship.from < chain->kept || item->ship.from > chain->end.turn)
		return 0;
	return chain->low[item->ship.from - chain->kept];
}

/* Says that a record which is needed is nowhere. The node has to have a copy of that shard; others go on. */
static void
report_lost(const Draft *draft, const ShipItem *item)
{
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("turn record " INT64_FORMAT " of shard %d of type %d is gone", item->ship.from,
					item->key.shard, item->key.type_id),
			 errdetail("It is neither in the inbox nor in table shard.turn_kept, or cannot be read "
					   "there, and the copy at node %d needs it.",
					   draft->link->node)));
	shard_replica_is_lacking(&item->shard->home, draft->link->node);
}

/*
 * Reads what is to be shipped, in one scan of the log: of each shard the first turns, as many as there is room for. What
 * rotation has moved is in the table, also what it moves meanwhile.
 */
static void
read_records(Draft *draft)
{
	ShardLanes lanes = 0;
	int64 low = PG_INT64_MAX;

	for (int i = 0; i < draft->n_items; i++)
	{
		ShipItem *item = &draft->items[i];

		if (item->ship.from > item->ship.to)
			continue;
		item->records = palloc0((item->ship.to - item->ship.from + 1) * sizeof(StringInfoData));
		lanes |= shard_lane_bit(shard_message_lane(item->key.type_id, item->key.shard));
		low = Min(low, low_of(item));
	}
	if (lanes == 0)
		return;
	StartTransactionCommand();
	MemoryContextSwitchTo(draft->context);
	if (!shard_catalog_lock(true))
	{
		CommitTransactionCommand();
		MemoryContextSwitchTo(draft->context);
		draft->n_items = 0;
		draft->link->not_before = shard_clock_now() + BUSY_PAUSE;
		shard_fault("records_not_read");
		return;
	}
	if (low == 0)
		read_kept(draft);
	if (draft->bytes < CALL_BYTES)
		shard_turn_log_read(lanes, low, take_record, shard_turn_log_pass, draft);
	if (draft->bytes < CALL_BYTES)
		read_kept(draft);
	CommitTransactionCommand();
	MemoryContextSwitchTo(draft->context);
}

/* ---- a call --------------------------------------------------------------------------------------- */

/* Of the records that were read, those that follow one another. */
static void
cut(Draft *draft, ShipItem *item)
{
	int64 turn = item->ship.from;

	if (item->ship.from > item->ship.to)
		return;
	if (lacks_first(item) && draft->bytes < CALL_BYTES)
		report_lost(draft, item);
	while (turn <= item->ship.to && item->records[turn - item->ship.from].len > 0)
		turn++;
	item->ship.to = turn - 1;
}

static void
put_item(StringInfo out, const ShipItem *item)
{
	const ShardReplicaShipment *ship = &item->ship;
	ShardReplicaOffer offer = {.type_id = item->key.type_id,
							   .shard = item->key.shard,
							   .epoch = item->epoch,
							   .released = ship->released,
							   .n_records = (int32) Max(0, ship->to - ship->from + 1),
							   .asks = ship->asks};

	if (ship->asks)
		offer.point = item->shard->home.end;
	shard_replica_put_offer(out, &offer);
	for (int i = 0; i < offer.n_records; i++)
		appendBinaryStringInfo(out, item->records[i].data, item->records[i].len);
}

/* The call leaves: from here on each of its shards waits for the answer. */
static void
send_draft(Draft *draft)
{
	ShipLink *link = draft->link;
	ShardCallHeader header = shard_board_header(&shard_transport.view, link->node, 0);
	ShardBoardView newest;
	StringInfoData section;
	StringInfoData out;

	initStringInfo(&section);
	for (int i = 0; i < draft->n_items; i++)
		put_item(&section, &draft->items[i]);
	shard_board_get(shard_transport.db, &newest);
	header.known_n = newest.learned_n;
	initStringInfo(&out);
	shard_packet_put_header(&out, &header);
	shard_packet_put_section(&out, SHARD_SECTION_RECORDS, SHARD_SECTION_MANDATORY, section.data,
							 section.len);
	link->items = MemoryContextAllocHuge(TopMemoryContext, draft->n_items * sizeof(ShipItem));
	memcpy(link->items, draft->items, draft->n_items * sizeof(ShipItem));
	link->n_items = draft->n_items;
	for (int i = 0; i < link->n_items; i++)
		shard_replica_shipped(&link->items[i].shard->home, link->node, &link->items[i].ship);
	link->called_at = shard_clock_now();
	shard_fault("records_shipped");
	shard_peer_call(link->peer, "store", out.data, out.len, CALL_TIMEOUT_MS);
}

bool
shard_record_call(ShipLink *link)
{
	Draft draft = {.link = link, .context = CurrentMemoryContext};
	int kept = 0;

	shard_replica_shard_each(draft_shard, &draft);
	if (draft.n_items == 0)
		return false;
	qsort(draft.items, draft.n_items, sizeof(ShipItem), compare_items);
	take_alone(link, draft.items, &draft.n_items);
	read_records(&draft);
	for (int i = 0; i < draft.n_items; i++)
	{
		ShipItem *item = &draft.items[i];

		cut(&draft, item);
		/* there was no room for what it has to say */
		if (item->ship.asks || item->ship.tells || item->ship.from <= item->ship.to)
			draft.items[kept++] = *item;
	}
	draft.n_items = kept;
	if (kept > 0)
		send_draft(&draft);
	return kept > 0;
}
