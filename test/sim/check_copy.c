/*
 * check_copy.c
 *		Checkers of mode copies: VR1 and VR3 to VR8, and that each message has one effect. They see all nodes.
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})

static const TurnRow *
durable_turn(const BackupNode *backup, int32 shard, int64 turn)
{
	const TurnRow *row = store_get(backup->store, NULL, T_TURN, KEY(shard, turn));

	if (row == NULL || store_row_lsn(row) > store_flushed(backup->store))
		return NULL;
	return row;
}

/* Its record has gone, for all that it did is in the tables. */
static bool
has_applied(const BackupNode *backup, int32 shard, int64 turn)
{
	const ShardReplicaCopy *copy = store_get(backup->store, NULL, T_COPY, KEY(shard));

	return copy != NULL && turn <= copy->applied &&
		   store_get(backup->store, NULL, T_TURN, KEY(shard, turn)) == NULL;
}

/* The turn as its home has it, or as it was released before. */
static const char *
bytes_of(const CopiesWorld *world, int32 shard, int64 turn, int *length)
{
	const Truth *truth = &world->truths[shard][turn];
	const KeptRecord *kept = &world->home.shards[shard].records[turn % COPIES_TURNS];

	*length = truth->bytes != NULL ? truth->length : kept->length;
	return truth->bytes != NULL ? truth->bytes : kept->bytes;
}

/* VR1, VR7: all of the set have it, durably, before anybody hears of it. */
void
copies_check_shown(CopiesWorld *world, int32 shard, int64 turn, const char *what)
{
	int length;
	const char *bytes;

	if (turn <= 0 || turn >= COPIES_TURNS)
		return;
	bytes = bytes_of(world, shard, turn, &length);
	for (int i = 0; i < world->n_backups; i++)
	{
		const TurnRow *row = durable_turn(&world->backups[i], shard, turn);

		if (has_applied(&world->backups[i], shard, turn))
			continue;
		if (row == NULL || bytes == NULL || row->length != length ||
			memcmp(row->bytes, bytes, length) != 0)
			check_fail(world->check,
					   "VR7: %s of shard %d shows turn " INT64_FORMAT ", which backup %d %s", what,
					   shard, turn, i, row == NULL ? "has not stored" : "has otherwise");
	}
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
copies_check_released(CopiesWorld *world, int32 shard)
{
	const HomeShard *home = &world->home.shards[shard];
	int64 upto = Min(home->replica.released, COPIES_TURNS - 1);

	for (int64 turn = world->released[shard] + 1; turn <= upto; turn++)
	{
		const KeptRecord *kept = &home->records[turn % COPIES_TURNS];
		Truth *truth = &world->truths[shard][turn];
		ShardReader reader = {kept->bytes, kept->bytes + kept->length, false};
		ShardTurnRecord record;
		ShardTurnFault fault;

		copies_check_shown(world, shard, turn, "a reply");
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
copies_check_appended(CopiesWorld *world, int32 shard, const Output *output)
{
	int64 *content = &world->contents[shard][Min(output->oseq, COPIES_TURNS - 1)];

	copies_check_shown(world, shard, output->turn, "an output");
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
}

/* A backup has stored something: (epoch, turn) has one content, and only what is released is known as such (VR3, VR4). */
void
copies_check_copy(CopiesWorld *world, BackupNode *backup, int32 shard)
{
	const ShardReplicaCopy *copy = &backup->copies[shard];
	ShardTurnPoint *stored = &world->stored[shard][copy->end.turn % COPIES_TURNS];

	if (stored->turn == copy->end.turn && stored->epoch == copy->end.epoch &&
		stored->sum != copy->end.sum && !world->restored)
		check_fail(world->check, "VR4: turn " INT64_FORMAT " of shard %d has two contents",
				   copy->end.turn, shard);
	*stored = copy->end;
	if (copy->applied > copy->released)
		check_fail(world->check,
				   "VR3: backup %d has applied turn " INT64_FORMAT
				   " of shard %d, released is " INT64_FORMAT,
				   backup->index, copy->applied, shard, copy->released);
	if (copy->released > world->released[shard])
		check_fail(world->check,
				   "VR3: backup %d takes turn " INT64_FORMAT " of shard %d for released",
				   backup->index, copy->released, shard);
}

/* VR8: an output of an applied turn is there until it is done. */
static void
check_undone(CopiesWorld *world, const BackupNode *backup, int32 shard, int64 oseq,
			 const ShardTurnOutput *output)
{
	const UndoneRow *undone = store_get(backup->store, NULL, T_UNDONE, KEY(shard, oseq));
	int64 id;

	memcpy(&id, output->payload, sizeof(id));
	if (output->type_id == COPIES_PLAIN ? world->received[id] > 0 : world->handled[id] > 0)
		return;
	if (undone == NULL || undone->id != id)
		check_fail(world->check,
				   "VR8: backup %d has no more output " INT64_FORMAT
				   " of shard %d, which is not done",
				   backup->index, oseq, shard);
}

/* VR3: its rows are what released turns made, up to the one that it says, and nothing else. */
void
copies_check_applied(CopiesWorld *world, const BackupNode *backup, int32 shard)
{
	int64 count = 0;

	for (int64 turn = 1; turn <= Min(backup->copies[shard].applied, world->released[shard]); turn++)
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
							   "VR3: backup %d has not applied turn " INT64_FORMAT " of shard %d",
							   backup->index, turn, shard);
			}
			while (kind == SHARD_TURN_OUTPUTS && shard_turn_get_output(&items, &output))
				check_undone(world, backup, shard, oseq++, &output);
		}
	}
	if (store_get(backup->store, NULL, T_STATE, KEY(shard, count)) != NULL)
		check_fail(world->check, "VR3: backup %d has rows of no applied turn of shard %d",
				   backup->index, shard);
}

void
copies_check_stopped(CopiesWorld *world)
{
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		world->stopped_turn[shard] = world->home.shards[shard].seal;
		copies_check_shown(world, shard, world->stopped_turn[shard], "a seal");
	}
	world->stopped_epoch = world->home.own.epoch;
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

/* VR8: an input is in its node's log until its turn is released. */
static void
check_inputs(CopiesWorld *world)
{
	static bool there[COPIES_IDS];
	const Store *store = world->home.store;
	StoreKey key = KEY(0);
	const LogRow *row;

	memset(there, 0, sizeof(there));
	while ((row = store_at_or_next(store, NULL, T_LOG, &key)) != NULL)
	{
		if (row->kind == LOG_INPUT)
		{
			there[row->id] = true;
			world->reported[row->id] |= store_row_lsn(row) <= store_flushed(store);
		}
		key.k[3]++;
	}
	for (int64 id = 1; id <= world->ids; id++)
		if (world->reported[id] && !there[id] && world->handled[id] == 0)
			check_fail(world->check,
					   "VR8: message " INT64_FORMAT " left its node before its turn was released",
					   id);
}

/* Everything that was released is at each of the set. */
static void
check_set(CopiesWorld *world)
{
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		for (int64 turn = 1; turn <= world->released[shard]; turn++)
		{
			const Truth *truth = &world->truths[shard][turn];

			for (int i = 0; i < world->n_backups; i++)
			{
				const TurnRow *row = durable_turn(&world->backups[i], shard, turn);

				if (has_applied(&world->backups[i], shard, turn))
					continue;
				if (row == NULL || row->length != truth->length ||
					memcmp(row->bytes, truth->bytes, row->length) != 0)
					check_fail(world->check,
							   "VR1: backup %d has lost released turn " INT64_FORMAT " of shard %d",
							   i, turn, shard);
			}
		}
	}
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

/* Outputs of released turns came to their end; those of turns that were not are nobody's. */
static void
check_outputs(CopiesWorld *world, int32 shard, ShardReader sections)
{
	ShardReader items;
	ShardTurnOutput output;
	int32 kind;
	bool mandatory;

	while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
	{
		while (kind == SHARD_TURN_OUTPUTS && shard_turn_get_output(&items, &output))
		{
			int64 id;

			memcpy(&id, output.payload, sizeof(id));
			if (output.type_id == COPIES_PLAIN ? world->received[id] != 1 : world->handled[id] != 1)
				check_fail(world->check, "P1: output " INT64_FORMAT " of shard %d was lost", id,
						   shard);
		}
	}
}

/* The records of a shard, one after the other, make its state. */
static void
check_state(CopiesWorld *world, int32 shard)
{
	const Store *store = world->home.store;
	int64 count = 0;

	for (int64 turn = 1; turn <= world->released[shard]; turn++)
	{
		const Truth *truth = &world->truths[shard][turn];
		ShardReader reader = {truth->bytes, truth->bytes + truth->length, false};
		ShardReader sections;
		ShardReader items;
		ShardTurnRecord record;
		ShardTurnFault fault;
		ShardTurnImage image;
		int32 kind;
		bool mandatory;

		shard_turn_record_next(&reader, &record, &fault);
		sections = record.sections;
		check_outputs(world, shard, sections);
		while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
		{
			while (kind == SHARD_TURN_IMAGES && shard_turn_get_image(&items, &image))
			{
				const int64 *id = store_get(store, NULL, T_STATE, KEY(shard, count++));

				if (id == NULL || memcmp(id, image.row, sizeof(*id)) != 0)
					check_fail(world->check,
							   "VR4: shard %d and its records differ at " INT64_FORMAT, shard,
							   count - 1);
			}
		}
	}
	if (store_get(store, NULL, T_STATE, KEY(shard, count)) != NULL)
		check_fail(world->check, "VR4: shard %d has states that no record has", shard);
}

void
copies_check_end(CopiesWorld *world)
{
	check_set(world);
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		check_state(world, shard);
		for (int64 n = 1; n <= world->told[shard]; n++)
			if (world->handled[world->told_ids[shard][n]] != 1)
				check_fail(world->check, "P1: number " INT64_FORMAT " for shard %d was lost", n,
						   shard);
	}
	for (int64 id = 1; id <= world->ids; id++)
		if (world->reported[id] && world->handled[id] != 1)
			check_fail(world->check, "P1: message " INT64_FORMAT " was lost", id);
}
