/*
 * copies_rewind.c
 *		A member of mode copies takes its rows anew, for they show turns that the home lacks (Q17); and drops a copy at last.
 *
 * All rows of a shard come at once, as of the home's end, with the records that not all have; one transaction puts them in
 * the place of what was there. That is the copy of Q16, in one piece.
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})

static const int tables[] = {T_STATE, T_MARK, T_UNDONE};
static const size_t sizes[] = {sizeof(int64), sizeof(int64), sizeof(UndoneRow)};

typedef struct Piece
{
	ShardTurnPoint end;
	int64 oseq;
	int64 released;
	int64 kept;
} Piece;

/* Who has to take them asks, again and again. */
void
copies_rewind_ask(CopiesWorld *world, Node *node)
{
	const ShardHomeRecord *home = copies_fact(world, node->own.n);

	for (int32 i = 0; i < COPIES_SHARDS; i++)
		if (node->fetching[i] != 0)
			copies_send(world, &(Message){.kind = M_FETCH,
										  .from = node->index,
										  .to = shard_record_home_node(home) - 1,
										  .shard = i,
										  .epoch = home->epoch,
										  .req = node->fetching[i]});
}

/*
 * A question that left before may come behind the rows, which have more than it says: whatever is answered to the call under way,
 * it says nothing of the shard.
 */
static void
lose_offer(Node *home, const Message *question)
{
	Connection *call = &home->calls[question->from];

	if (call->offered[question->shard])
		shard_replica_call_lost(&home->shards[question->shard].replica, question->from + 1);
	call->offered[question->shard] = false;
}

/* The answer leaves when what it shows is past the gate. */
static void
send_rows(CopiesWorld *world, Node *home, const Message *question)
{
	const HomeShard *shard = &home->shards[question->shard];
	Piece piece = {shard->replica.end, shard->replica.oseq, shard->replica.released,
				   shard->replica.kept};
	StringInfoData bytes;

	lose_offer(home, question);
	store_flush(home->store);
	initStringInfo(&bytes);
	appendBinaryStringInfo(&bytes, (char *) &piece, sizeof(piece));
	for (int i = 0; i < (int) lengthof(tables); i++)
	{
		StoreKey key = KEY(question->shard, PG_INT64_MIN);
		const void *row;
		int at = bytes.len;
		int64 n = 0;

		appendBinaryStringInfo(&bytes, (char *) &n, sizeof(n));
		while ((row = store_at_or_next(home->store, NULL, tables[i], &key)) != NULL &&
			   key.k[0] == question->shard)
		{
			appendBinaryStringInfo(&bytes, (char *) &key, sizeof(key));
			appendBinaryStringInfo(&bytes, row, (int) sizes[i]);
			key.k[3]++;
			n++;
		}
		memcpy(bytes.data + at, &n, sizeof(n));
	}
	for (int64 turn = piece.kept; turn <= piece.end.turn; turn++)
	{
		const KeptRecord *record = &shard->records[turn % COPIES_TURNS];

		appendBinaryStringInfo(&bytes, record->bytes, record->length);
	}
	copies_send(world, &(Message){.kind = M_COPY,
								  .from = home->index,
								  .to = question->from,
								  .shard = question->shard,
								  .epoch = home->own.own.epoch,
								  .req = question->req,
								  .length = bytes.len,
								  .bytes = bytes.data});
	pfree(bytes.data);
}

static void
remove_rows(StoreTransaction *tx, const Store *store, int table, int32 shard)
{
	StoreKey key = KEY(shard, PG_INT64_MIN);

	while (store_at_or_next(store, tx, table, &key) != NULL && key.k[0] == shard)
	{
		store_remove(tx, table, key);
		key.k[3]++;
	}
}

/* Records that are there as they come stay as they are; those of turns that were applied before are not needed. */
static void
put_records(StoreTransaction *tx, const Node *node, int32 shard, const Piece *piece,
			ShardReader *reader)
{
	StoreKey key = KEY(shard, piece->end.turn + 1);
	ShardTurnRecord record;
	ShardTurnFault fault;

	while (store_at_or_next(node->store, tx, T_TURN, &key) != NULL && key.k[0] == shard)
	{
		store_remove(tx, T_TURN, key);
		key.k[3]++;
	}
	while (shard_turn_record_next(reader, &record, &fault))
	{
		ShardTurnRecord here;
		ShardTurnPoint point = shard_turn_record_point(&record);
		ShardTurnPoint own = {0};

		if (copies_read_turn(node->store, tx, shard, record.turn, &here))
			own = shard_turn_record_point(&here);
		if (record.turn > node->copies[shard].copy.applied && !shard_turn_point_equal(&point, &own))
			copies_store_record(tx, shard, &record);
	}
}

static void
take_rows(CopiesWorld *world, Node *node, const Message *message)
{
	const char *at = message->bytes + sizeof(Piece);
	CopyRow row = node->copies[message->shard];
	StoreTransaction *tx = store_begin(node->store);
	ShardReader reader;
	Piece piece;

	memcpy(&piece, message->bytes, sizeof(piece));
	for (int i = 0; i < (int) lengthof(tables); i++)
	{
		int64 n;

		remove_rows(tx, node->store, tables[i], message->shard);
		memcpy(&n, at, sizeof(n));
		at += sizeof(n);
		for (; n > 0; n--)
		{
			StoreKey key;
			UndoneRow value; /* the largest */

			memcpy(&key, at, sizeof(key));
			memcpy(&value, at + sizeof(key), sizes[i]);
			store_put(tx, tables[i], key, &value);
			at += sizeof(key) + sizes[i];
		}
	}
	reader = (ShardReader){at, message->bytes + message->length, false};
	put_records(tx, node, message->shard, &piece, &reader);
	row.shows = shard_takeover_copied(&row.copy, &piece.end, piece.oseq, piece.released);
	store_put(tx, T_COPY, KEY(message->shard), &row);
	store_commit(tx);
	node->copies[message->shard] = row;
	node->fetching[message->shard] = 0;
	node->rewinds++;
	copies_trace(world, "node %d: rows of shard %d as of turn %d", node->index + 1, message->shard,
				 (int) piece.end.turn);
	copies_check_copy(world, node, message->shard);
	copies_check_applied(world, node, message->shard);
}

void
copies_rewind_receive(CopiesWorld *world, Node *node, const Message *message)
{
	bool is_home = shard_takeover_is_home(&node->own.own);

	if (message->epoch != node->own.own.epoch)
		return;
	if (message->kind == M_FETCH && is_home && !node->draft.runs)
		send_rows(world, node, message);
	else if (message->kind == M_COPY && !is_home && node->lock < 0 &&
			 message->req == node->fetching[message->shard])
		take_rows(world, node, message);
}

/* Who was put out drops what it has once the set is whole. */
bool
copies_drop(CopiesWorld *world, Node *node)
{
	StoreTransaction *tx;
	bool whole = false;

	if (node->lock >= 0 || node->draft.runs ||
		!shard_takeover_may_drop(&node->own.own, node->whole >= node->own.n))
		return false;
	for (int64 n = node->own.n; n <= world->n; n++)
		whole |= world->facts[n].whole;
	if (!whole)
		check_fail(world->check, "Q17: node %d drops its copy, and the set is not whole",
				   node->index + 1);
	copies_trace(world, "node %d drops its copy", node->index + 1);
	tx = store_begin(node->store);
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		for (int i = 0; i < (int) lengthof(tables); i++)
			remove_rows(tx, node->store, tables[i], shard);
		remove_rows(tx, node->store, T_TURN, shard);
		store_remove(tx, T_COPY, KEY(shard));
		node->copies[shard] = (CopyRow){0};
	}
	shard_takeover_step(&node->own.own, SHARD_TAKEOVER_DROPPED, 0);
	store_put(tx, T_OWN, KEY(0), &node->own);
	store_commit(tx);
	return true;
}
