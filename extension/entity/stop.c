/*
 * entity/stop.c
 *		Stop messages: what an entity handles before it leaves memory (doc/protocol/passivation.md E4 to E8).
 *
 * Comes from: turn.c, at the end of a turn: entities that are to leave by themselves; handle.c and deliver.c: a row of
 * kind PASSIVATE. Goes to: the log (stop_row.c), which brings the row back in its order.
 *
 * A row of kind PASSIVATE is one of five:
 * - without payload, from shard_passivate(type, id): the entity leaves if it is in memory, with its type's message;
 * - with a payload, from an entity, which is itself: the message that a handler gave, or that failed or had to wait when
 *   it was met first. It is delivered whatever happened meanwhile, as any message;
 * - with a payload, from nobody: a number. The worker itself has decided that the entity leaves, idle or over a limit,
 *   and has noted the number with the entity. It counts only as long as the entity has it and nothing else was handled;
 * - with a payload, from an entity without an id: the message of such a decision, which failed or had to wait. Who leaves
 *   so is still remembered; who was told to leave is not;
 * - without payload, from an entity without an id: the command alone of one that was told to leave, whose stop message is
 *   over, or was none. It had to wait, since another transaction had the row.
 *
 * If the process dies after the turn that decided, or the shard moves, no entity has the number: the row is passed over,
 * and nothing is missed, since the entity has left memory with the process. If it dies before, nothing was decided.
 */
#include "postgres.h"

#include "utils/jsonb.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "entity/internal.h"

#include "base/compat.h"

/* The most entities that one turn decides about. */
#define MOST_DECIDED 10000

/* The lowest bit of a number is the reason. */
#define NUMBER_LIMIT 1

/* Numbers are drawn from a random one on, so that no two processes have the same. */
static int64
next_number(ShardLeaveReason reason)
{
	static int64 last = 0;

	while (last <= 0)
	{
		if (!pg_strong_random(&last, sizeof(last)))
			elog(ERROR, "could not draw a random number");
		last = (last & (PG_INT64_MAX >> 1)) & ~(int64) NUMBER_LIMIT;
	}
	last += 2;
	return last | (reason == SHARD_LEAVES_LIMIT ? NUMBER_LIMIT : 0);
}

/* ---- the worker decides ------------------------------------------------------------------------- */

typedef struct Decision
{
	ShardLeaveReason reason;
	int left; /* entities that may still be decided about */
} Decision;

/*
 * It is to leave. An entity whose shard is leaving goes with that, without a message; and so does one that has never
 * started, as after an ask that failed.
 */
static void
decide(ShardEntity *entity, void *arg)
{
	Decision *decision = arg;

	if (decision->left <= 0 || !shard_passivate_may_leave(entity) ||
		shard_pause_until(entity->local, entity->shard) != 0)
		return;
	decision->left--;
	shard_turn_enlist(entity);
	if (!shard_presence->is_active(entity->local->type->type_id, entity->shard) ||
		shard_start_is_due(entity))
	{
		entity->reason = decision->reason;
		shard_life_passivate(entity, false);
		return;
	}
	if (entity->life == SHARD_ENTITY_NONE)
		return;
	(void) shard_life_step(entity, SHARD_ENTITY_ON_PASSIVATE);
	entity->stop = next_number(decision->reason);
	shard_stop_append_number(entity, entity->stop);
	shard_turn.passed = true;
}

static void
decide_type(ShardLocalType *local, void *arg)
{
	Decision *decision = arg;
	dlist_iter iter;
	TimestampTz due;

	if (!shard_stop_is_due(local))
		return;
	decision->reason = SHARD_LEAVES_LIMIT;
	shard_passivate_each_victim(local, decide, decision);
	decision->reason = SHARD_LEAVES_IDLE;
	dlist_foreach (iter, &local->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		if (!shard_passivate_may_leave(entity))
			continue;
		if (decision->left <= 0 || !shard_passivate_is_idle(entity, shard_turn.now, &due))
			break;
		decide(entity, decision);
	}
}

void
shard_stop_decide(void)
{
	Decision decision = {.left = MOST_DECIDED};

	if (likely(shard_turn.stops == 0))
		return;
	shard_execution_end_user_code();
	shard_local_each(decide_type, &decision);
	if (decision.left < MOST_DECIDED)
		shard_fault_step("stop_decided");
}

/* ---- a row is met ------------------------------------------------------------------------------- */

/* Whether the row's number counts: the entity has had nothing else to do since. */
static bool
counts(const ShardEntity *entity, const ShardRow *row)
{
#ifdef SHARD_MUTANT_STOP_NEVER_VOID
	return entity->life != SHARD_ENTITY_NONE && shard_stop_number(row) != 0;
#else
	return entity->life == SHARD_ENTITY_PASSIVATING && entity->stop == shard_stop_number(row);
#endif
}

bool
shard_stop_passes_over(ShardEntity *entity, const ShardRow *row, bool waits)
{
	if (!shard_stop_is_number(row) || (!waits && counts(entity, row)))
		return false;
	if (counts(entity, row))
		shard_life_come(entity);
	return true;
}

/* The message as the entity's own, in the turn's memory: if it has to wait, it is met again as such. */
static void
make_own(const ShardEntity *entity, const char *payload, int len, bool told, ShardRow *row)
{
	char *copy = MemoryContextAlloc(shard_turn.context, len);

	memcpy(copy, payload, len);
	row->payload = copy;
	row->payload_len = len;
	row->src_type = entity->local->type->type_id;
	row->src_entity = entity->id;
	row->src_entity_len = told ? entity->id_len : 0;
}

void
shard_stop_make_command(ShardRow *row)
{
	row->payload_len = 0;
	row->src_type = row->type_id;
	row->src_entity = "";
	row->src_entity_len = 0;
}

static inline bool
is_command(const ShardRow *row)
{
#ifdef SHARD_MUTANT_STOP_AGAIN
	return false;
#endif
	return row->payload_len == 0 && row->src_type != 0 && row->src_entity_len == 0;
}

ShardStop
shard_stop_read(ShardEntity *entity, const ShardRow *row, ShardRow *message)
{
	const Jsonb *usual = entity->local->type->stop_message;

	*message = *row;
	entity->reason = SHARD_LEAVES_ITSELF;
	if (row->payload_len > 0 && !shard_stop_is_number(row))
	{
		make_own(entity, row->payload, row->payload_len, shard_stop_was_told(row), message);
		return SHARD_STOP_MESSAGE;
	}
	if (entity->life == SHARD_ENTITY_NONE)
		return SHARD_STOP_VOID;
	if (row->payload_len > 0)
	{
		if (!counts(entity, row))
			return SHARD_STOP_VOID;
		entity->reason =
			(entity->stop & NUMBER_LIMIT) != 0 ? SHARD_LEAVES_LIMIT : SHARD_LEAVES_IDLE;
	}
	/* one that has not started has nothing to stop */
	if (usual == NULL || entity->wait.start || is_command(row))
		return SHARD_STOP_NONE;
	make_own(entity, VARDATA(usual), VARSIZE(usual) - VARHDRSZ, shard_stop_was_told(row), message);
	return SHARD_STOP_MESSAGE;
}
