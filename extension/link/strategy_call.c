/*
 * link/strategy_call.c
 *		A question to a type's own allocation functions, from the control worker to a backend.
 */
#include "postgres.h"

#include "lib/stringinfo.h"

#include "link/strategy_call.h"

#include "base/compat.h"

static void
put_numbers(StringInfo out, const int32 *numbers, int count)
{
	shard_wire_put_int(out, count);
	for (int i = 0; i < count; i++)
		shard_wire_put_int(out, numbers[i]);
}

/*
 * A list; each number takes at least one byte, so nothing is allocated for what is not there.
 */
static int32 *
get_numbers(ShardReader *reader, int *count)
{
	int32 *numbers;

	*count = shard_wire_get_int32(reader);
	if (*count < 0 || *count > reader->end - reader->at)
	{
		*count = 0;
		reader->failed = true;
	}
	numbers = palloc(sizeof(int32) * Max(*count, 1));
	for (int i = 0; i < *count; i++)
		numbers[i] = shard_wire_get_int32(reader);
	return numbers;
}

void
shard_strategy_put_question(StringInfo out, const ShardStrategyQuestion *question)
{
	shard_wire_put_uint(out, question->secret);
	shard_wire_put_int(out, question->type_id);
	shard_wire_put_uint(out, question->rebalance ? 1 : 0);
	shard_wire_put_int(out, question->n_regions);
	for (int i = 0; i < question->n_regions; i++)
	{
		shard_wire_put_int(out, question->regions[i].node);
		put_numbers(out, question->regions[i].shards,
					question->regions[i].shards ? question->regions[i].n_shards : 0);
	}
	shard_wire_put_text(out, question->members);
	put_numbers(out, question->shards, question->n_shards);
	if (!question->rebalance)
		put_numbers(out, question->requesters, question->n_shards);
}

bool
shard_strategy_get_question(ShardReader *reader, ShardStrategyQuestion *question)
{
	int n_requesters;

	memset(question, 0, sizeof(ShardStrategyQuestion));
	question->secret = shard_wire_get_uint(reader);
	question->type_id = shard_wire_get_int32(reader);
	question->rebalance = shard_wire_get_uint(reader) != 0;
	question->n_regions = shard_wire_get_int32(reader);
	if (reader->failed || question->n_regions < 0 ||
		question->n_regions > SHARD_ALLOCATION_MAX_REGIONS)
		return false;
	question->regions = palloc0(sizeof(ShardAllocationRegion) * Max(question->n_regions, 1));
	for (int i = 0; i < question->n_regions; i++)
	{
		question->regions[i].node = shard_wire_get_int32(reader);
		question->regions[i].shards = get_numbers(reader, &question->regions[i].n_shards);
	}
	question->members = shard_wire_get_text(reader);
	question->shards = get_numbers(reader, &question->n_shards);
	if (!question->rebalance)
	{
		question->requesters = get_numbers(reader, &n_requesters);
		if (n_requesters != question->n_shards)
			return false;
	}
	return !reader->failed && reader->at == reader->end;
}

void
shard_strategy_put_answer(StringInfo out, const ShardStrategyAnswer *answer)
{
	const char *error = answer->error ? answer->error : "";

	shard_wire_put_uint(out, answer->error ? 1 : 0);
	shard_wire_put_int(out, answer->sqlstate);
	shard_wire_put_text(out, error);
	put_numbers(out, answer->numbers, answer->n);
}

bool
shard_strategy_get_answer(ShardReader *reader, ShardStrategyAnswer *answer)
{
	bool failed = shard_wire_get_uint(reader) != 0;

	answer->sqlstate = shard_wire_get_int32(reader);
	answer->error = shard_wire_get_text(reader);
	if (!failed)
		answer->error = NULL;
	answer->numbers = get_numbers(reader, &answer->n);
	return !reader->failed;
}
