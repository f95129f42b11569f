/*
 * check_copy.c
 *		Checkers of mode copies: VR1 and VR3 to VR9, and that each message has one effect. They see all nodes.
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})

static const TurnRow *
durable_turn(const Node *node, int32 shard, int64 turn)
{
	const TurnRow *row = store_get(node->store, NULL, T_TURN, KEY(shard, turn));

	if (row == NULL || store_row_lsn(row) > store_flushed(node->store))
		return NULL;
	return row;
}

/* Its record has gone, for all that it did is in the tables. */
static bool
has_applied(const Node *node, int32 shard, int64 turn)
{
	const CopyRow *row = store_get(node->store, NULL, T_COPY, KEY(shard));

	return row != NULL && turn <= row->copy.applied &&
		   store_get(node->store, NULL, T_TURN, KEY(shard, turn)) == NULL;
}

/* What was shipped of a record: its bytes are followed by the length of its inputs, of which a copy has none. */
#define is_same_turn(row, bytes_of, length) \
	((row)->shipped == (length) -4 && memcmp((row)->bytes, bytes_of, (row)->shipped) == 0)

/* A member of the newest set. */
static const Node *
member(const CopiesWorld *world, int i)
{
	return &world->nodes[world->facts[world->n].home.nodes[i] - 1];
}

/* A home that was put back lacks what was shown before (Q23); the others have it. */
static bool
is_excused(const CopiesWorld *world, const Node *node)
{
	return world->restored && node == copies_home(world);
}

static int
count_members(const CopiesWorld *world)
{
	return world->facts[world->n].home.n_nodes;
}

/* VR1, VR7: all of the newest set have it, durably, before anybody hears of it; whoever shows it, and whatever home that was. */
void
copies_check_shown(CopiesWorld *world, const Node *home, int32 shard, int64 turn, const char *what)
{
	const Truth *truth = &world->truths[shard][Min(Max(turn, 0), COPIES_TURNS - 1)];
	const KeptRecord *kept;
	const char *bytes = truth->bytes;
	int length = truth->length;

	if (turn <= 0 || turn >= COPIES_TURNS)
		return;
	kept = &home->shards[shard].records[turn % COPIES_TURNS];
	if (bytes == NULL)
	{
		bytes = kept->bytes;
		length = kept->length;
	}
	else if (kept->bytes != NULL && turn >= home->shards[shard].replica.kept &&
			 (kept->length != length || memcmp(kept->bytes, bytes, length) != 0))
		check_fail(world->check,
				   "VR4: %s of shard %d shows turn " INT64_FORMAT
				   " of node %d, which was released otherwise",
				   what, shard, turn, home->index + 1);
	for (int i = 0; i < count_members(world); i++)
	{
		const Node *node = member(world, i);
		const TurnRow *row = durable_turn(node, shard, turn);

		if (is_excused(world, node) || has_applied(node, shard, turn))
			continue;
		if (row == NULL || bytes == NULL || !is_same_turn(row, bytes, length))
			check_fail(world->check,
					   "VR7: %s of shard %d shows turn " INT64_FORMAT ", which node %d %s", what,
					   shard, turn, node->index + 1,
					   row == NULL ? "has not stored" : "has otherwise");
	}
}

/* P3: what comes from one sender is handled in the order in which it was sent. */
static void
check_order_of(CopiesWorld *world, int32 shard, int64 id)
{
	int64 *newest = &world->newest[shard][world->senders[id]];

	if (id <= *newest)
		check_fail(world->check,
				   "P3: shard %d handles message " INT64_FORMAT " behind " INT64_FORMAT, shard, id,
				   *newest);
	*newest = Max(*newest, id);
}

/* What the turn took in, by its marks (VR5): each message that the other node told up to its mark, in order; inputs have one. */
static void
check_taken(CopiesWorld *world, int32 shard, ShardReader sections)
{
	ShardReader items;
	int32 kind;
	bool mandatory;
	bool has_input = false;
	bool input_marked = false;
	int64 mark_of_other = world->released_mark[shard];

	while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
	{
		ShardTurnImage image;
		ShardStamp mark;

		while (kind == SHARD_TURN_IMAGES && shard_turn_get_image(&items, &image))
		{
			int64 id;

			memcpy(&id, image.row, sizeof(id));
			if (++world->handled[id] > 1)
				check_fail(world->check, "P2: message " INT64_FORMAT " was handled twice", id);
			else
				check_order_of(world, shard, id);
			has_input |= world->kinds[id] == LOG_INPUT;
		}
		while (kind == SHARD_TURN_MARKS && shard_turn_get_mark(&items, &mark))
		{
			if (mark.kind != SHARD_PREFIX_NODE)
				continue;
			if (mark.a == COPIES_OTHER)
				mark_of_other = Max(mark_of_other, mark.seq);
			else
				input_marked = true;
		}
	}
	for (int64 n = world->released_mark[shard] + 1; n <= mark_of_other; n++)
		if (world->handled[world->told_ids[shard][n]] == 0)
			check_fail(world->check,
					   "VR5: shard %d says that it has number " INT64_FORMAT ", and has not", shard,
					   n);
	world->released_mark[shard] = mark_of_other;
	if (has_input && !input_marked)
		check_fail(world->check, "VR5: shard %d took in a message without a stamp", shard);
}

/* Turns that are released now, in their order; what was released stays what it was (VR4). */
void
copies_check_released(CopiesWorld *world, const Node *node, int32 shard)
{
	const HomeShard *home = &node->shards[shard];
	int64 upto = Min(home->replica.released, COPIES_TURNS - 1);

	for (int64 turn = world->released[shard] + 1; turn <= upto; turn++)
	{
		const KeptRecord *kept = &home->records[turn % COPIES_TURNS];
		Truth *truth = &world->truths[shard][turn];
		ShardReader reader = {kept->bytes, kept->bytes + kept->length, false};
		ShardTurnRecord record;
		ShardTurnFault fault;

		copies_check_shown(world, node, shard, turn, "a reply");
		if (kept->bytes == NULL || !shard_turn_record_next(&reader, &record, &fault) ||
			record.turn != turn || record.shard != shard)
		{
			check_fail(world->check, "VR8: turn " INT64_FORMAT " of shard %d has no record", turn,
					   shard);
			return;
		}
		truth->point = shard_turn_record_point(&record);
		truth->length = kept->length;
		truth->bytes = pg_malloc(kept->length);
		memcpy(truth->bytes, kept->bytes, kept->length);
		check_taken(world, shard, record.sections);
		world->released[shard] = turn;
	}
}

/* VR6, VR7: an output in the log. */
void
copies_check_appended(CopiesWorld *world, const Node *home, int32 shard, const Output *output)
{
	int64 *content = &world->contents[shard][Min(output->oseq, COPIES_TURNS - 1)];

	copies_check_shown(world, home, shard, output->turn, "an output");
	if (*content != 0 && *content != output->id)
		check_fail(world->check, "VR6: output " INT64_FORMAT " of shard %d has two contents",
				   output->oseq, shard);
	*content = output->id;
}

void
copies_check_received(CopiesWorld *world, int32 shard, int64 oseq, int64 id)
{
	if (world->contents[shard][Min(oseq, COPIES_TURNS - 1)] != id)
		check_fail(world->check, "VR6: output " INT64_FORMAT " of shard %d came with two contents",
				   oseq, shard);
	if (++world->received[id] > 1)
		check_fail(world->check, "P2: message " INT64_FORMAT " was received twice", id);
	else if (id <= world->newest_received[shard])
		check_fail(world->check, "P3: output " INT64_FORMAT " of shard %d came out of order", oseq,
				   shard);
	world->newest_received[shard] = Max(world->newest_received[shard], id);
}

/* A backup has stored something: (epoch, turn) has one content, and only what is released is known as such (VR3, VR4). */
void
copies_check_copy(CopiesWorld *world, const Node *backup, int32 shard)
{
	const ShardReplicaCopy *copy = &backup->copies[shard].copy;
	ShardTurnPoint *stored = &world->stored[shard][copy->end.turn % COPIES_TURNS];

	if (stored->turn == copy->end.turn && stored->epoch == copy->end.epoch &&
		stored->sum != copy->end.sum && !world->restored)
		check_fail(world->check, "VR4: turn " INT64_FORMAT " of shard %d has two contents",
				   copy->end.turn, shard);
	*stored = copy->end;
	if (copy->applied > copy->released)
		check_fail(world->check,
				   "VR3: node %d has applied turn " INT64_FORMAT
				   " of shard %d, released is " INT64_FORMAT,
				   backup->index + 1, copy->applied, shard, copy->released);
	if (copy->released > world->released[shard])
		check_fail(world->check,
				   "VR3: node %d takes turn " INT64_FORMAT " of shard %d for released",
				   backup->index + 1, copy->released, shard);
}

/* VR8: an output of an applied turn is there until it is done. */
static void
check_undone(CopiesWorld *world, const Node *backup, int32 shard, int64 oseq,
			 const ShardTurnOutput *output)
{
	const UndoneRow *undone = store_get(backup->store, NULL, T_UNDONE, KEY(shard, oseq));
	int64 id;

	memcpy(&id, output->payload, sizeof(id));
	if (output->type_id == COPIES_PLAIN ? world->received[id] > 0 : world->handled[id] > 0)
		return;
	if (undone == NULL || undone->id != id)
		check_fail(world->check,
				   "VR8: node %d has no more output " INT64_FORMAT
				   " of shard %d, which is not done",
				   backup->index + 1, oseq, shard);
}

/* VR3: its rows are what released turns made, up to the one that it says, and nothing else. */
void
copies_check_applied(CopiesWorld *world, const Node *backup, int32 shard)
{
	int64 upto = Max(backup->copies[shard].copy.applied, backup->copies[shard].shows);
	int64 count = 0;

	for (int64 turn = 1; turn <= Min(upto, world->released[shard]); turn++)
	{
		const Truth *truth = &world->truths[shard][turn];
		ShardReader reader = {truth->bytes, truth->bytes + truth->length, false};
		ShardReader items;
		ShardTurnRecord record;
		ShardTurnFault fault;
		int64 oseq;
		int32 kind;
		bool mandatory;

		shard_turn_record_next(&reader, &record, &fault);
		oseq = record.first_oseq;
		while (shard_turn_record_section_next(&record.sections, &kind, &mandatory, &items))
		{
			ShardTurnImage image;
			ShardTurnOutput output;

			while (kind == SHARD_TURN_IMAGES && shard_turn_get_image(&items, &image))
			{
				const int64 *id = store_get(backup->store, NULL, T_STATE, KEY(shard, count++));

				if (id == NULL || memcmp(id, image.row, sizeof(*id)) != 0)
					check_fail(world->check,
							   "VR3: node %d has not applied turn " INT64_FORMAT " of shard %d",
							   backup->index + 1, turn, shard);
			}
			while (kind == SHARD_TURN_OUTPUTS && shard_turn_get_output(&items, &output))
				check_undone(world, backup, shard, oseq++, &output);
		}
	}
	if (upto <= world->released[shard] &&
		store_get(backup->store, NULL, T_STATE, KEY(shard, count)) != NULL)
		check_fail(world->check, "VR3: node %d has rows of no applied turn of shard %d",
				   backup->index + 1, shard);
}

/* VR1: everything that was released is at each of the newest set. */
static void
check_set(CopiesWorld *world)
{
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		for (int64 turn = 1; turn <= world->released[shard]; turn++)
		{
			const Truth *truth = &world->truths[shard][turn];

			for (int i = 0; i < count_members(world); i++)
			{
				const Node *node = member(world, i);
				const TurnRow *row = durable_turn(node, shard, turn);

				if (is_excused(world, node) || has_applied(node, shard, turn))
					continue;
				if (row == NULL || !is_same_turn(row, truth->bytes, truth->length))
					check_fail(world->check,
							   "VR1: node %d has lost released turn " INT64_FORMAT " of shard %d",
							   node->index + 1, turn, shard);
			}
		}
	}
}

/* VR9: below min_insync only by a decision that may. */
void
copies_check_decided(CopiesWorld *world)
{
	if (count_members(world) == 0 || (!world->runs && count_members(world) < COPIES_MIN_INSYNC))
		check_fail(world->check, "VR9: a set of %d", count_members(world));
	check_set(world);
}

void
copies_check_stopped(CopiesWorld *world, const Node *home)
{
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		world->stopped_turn[shard] = home->shards[shard].seal;
		copies_check_shown(world, home, shard, world->stopped_turn[shard], "a seal");
	}
	world->stopped_epoch = home->own.own.epoch;
}

/* Nothing follows a seal in its epoch. */
void
copies_check_made(CopiesWorld *world, int32 shard, const ShardTurnRecord *record)
{
	if (world->stopped_epoch > 0 && record->epoch == world->stopped_epoch &&
		record->turn > world->stopped_turn[shard])
		check_fail(world->check,
				   "M3: shard %d has turn " INT64_FORMAT " behind the seal of epoch %d", shard,
				   record->turn, record->epoch);
}

/* What waits at a node, or was taken in there by a turn that is not released. */
static void
find_inputs(CopiesWorld *world, const Node *node, bool *there)
{
	StoreKey key = KEY(0);
	const LogRow *row;
	const int64 *id;

	while ((row = store_at_or_next(node->store, NULL, T_LOG, &key)) != NULL)
	{
		if (row->kind == LOG_INPUT)
		{
			there[row->id] = true;
			world->reported[row->id] |= store_row_lsn(row) <= store_flushed(node->store);
		}
		key.k[3]++;
	}
	key = KEY(0);
	while ((id = store_at_or_next(node->store, NULL, T_PARKED, &key)) != NULL)
	{
		there[*id] = true;
		key.k[3]++;
	}
}

/* VR8: an input is at its node until its turn is released. */
static void
check_inputs(CopiesWorld *world)
{
	static bool there[COPIES_IDS];

	memset(there, 0, sizeof(there));
	for (int i = 0; i < world->n_nodes; i++)
		find_inputs(world, &world->nodes[i], there);
	for (int64 id = 1; id <= world->ids; id++)
		if (world->reported[id] && !there[id] && world->handled[id] == 0)
			check_fail(world->check,
					   "VR8: message " INT64_FORMAT " left its node before its turn was released",
					   id);
}

void
copies_check_step(CopiesWorld *world)
{
	world->steps++;
	if (!world->restored && world->steps % 16 == 0)
		check_inputs(world);
	if (world->steps % 128 == 0)
		check_set(world);
}
