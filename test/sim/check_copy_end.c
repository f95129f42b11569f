/*
 * check_copy_end.c
 *		Checkers of mode copies at the end of a history: each message had one effect, and all of the newest set are equal.
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})

/* A table of a shard at two nodes, row by row. */
static bool
tables_equal(const Node *a, const Node *b, int table, int32 shard, size_t size)
{
	StoreKey key = KEY(shard, PG_INT64_MIN);
	StoreKey other = key;

	for (;;)
	{
		const void *row = store_at_or_next(a->store, NULL, table, &key);
		const void *twin = store_at_or_next(b->store, NULL, table, &other);
		bool ends = row == NULL || key.k[0] != shard;

		if (ends != (twin == NULL || other.k[0] != shard))
			return false;
		if (ends)
			return true;
		if (memcmp(&key, &other, sizeof(key)) != 0 || memcmp(row, twin, size) != 0)
			return false;
		key.k[3]++;
		other = key;
	}
}

/* The members of the newest set, one after the other, without its home. */
static const Node *
next_member(const CopiesWorld *world, int *i)
{
	const ShardHomeRecord *set = copies_fact(world, world->n);

	while (*i < set->n_nodes)
	{
		const Node *node = &world->nodes[set->nodes[(*i)++] - 1];

		if (node != copies_home(world))
			return node;
	}
	return NULL;
}

static bool
has_all(const CopiesWorld *world, const Node *node, int32 shard)
{
	const ShardReplicaCopy *copy = &node->copies[shard].copy;

	return node->up && copy->applied == copy->end.turn &&
		   shard_turn_point_equal(&copy->end, &copies_home(world)->shards[shard].replica.end);
}

/* Each has stored all that the home has, and applied it. */
bool
copies_members_rest(const CopiesWorld *world)
{
	const Node *node;

	for (int i = 0; (node = next_member(world, &i)) != NULL;)
		for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
			if (!has_all(world, node, shard))
				return false;
	return true;
}

void
copies_members_report(CopiesWorld *world)
{
	const Node *node;

	for (int i = 0; (node = next_member(world, &i)) != NULL;)
		for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
		{
			const ShardReplicaCopy *copy = &node->copies[shard].copy;

			if (!has_all(world, node, shard))
				check_fail(world->check,
						   "P6: node %d%s has not applied all of shard %d: turn " INT64_FORMAT
						   ", released " INT64_FORMAT ", applied " INT64_FORMAT,
						   node->index + 1, node->up ? "" : ", which is away,", shard,
						   copy->end.turn, copy->released, copy->applied);
		}
}

static void
check_members(CopiesWorld *world)
{
	const Node *home = copies_home(world);
	const Node *node;

	for (int i = 0; (node = next_member(world, &i)) != NULL;)
		for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
			if (!tables_equal(home, node, T_STATE, shard, sizeof(int64)) ||
				!tables_equal(home, node, T_MARK, shard, sizeof(int64)) ||
				!tables_equal(home, node, T_UNDONE, shard, sizeof(UndoneRow)))
				check_fail(world->check, "VR1: nodes %d and %d differ in shard %d", home->index + 1,
						   node->index + 1, shard);
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
	const Store *store = copies_home(world)->store;
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
	copies_check_decided(world);
	check_members(world);
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
