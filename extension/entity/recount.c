/*
 * entity/recount.c
 *		What memory counts of shard.held, and what is there.
 *
 * Comes from: turn.c, at the end of each turn; process/region_turn.c, when there is nothing else to do.
 * Goes to: queue.c, which takes over what the table says.
 *
 * A worker knows without looking how many messages of an entity are held, and the lowest number of those that wait for
 * one; it never looks at entities that it believes to have none. So a mistake in memory makes entities stand still
 * without end, or gives messages up. Therefore two counts that are kept apart are compared at the end of each turn that
 * touched an entity; what is given up is counted in the table first; and now and then an idle worker compares all of
 * it, a piece in each turn. A difference is logged as a warning, and the table is right.
 *
 * Reading is all that is done. If the process dies right here, its successor reads the table.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "core/base/message.h"
#include "entity/internal.h"
#include "registry/statement.h"

#include "base/compat.h"

static inline int64
ordered_of(const ShardEntity *entity)
{
	return entity->ordering == NULL ? 0 : entity->ordering->now.queue.waiting;
}

/* Whether memory has the same counts. */
static bool
agrees(const ShardEntity *entity, const ShardHeldCount *held)
{
	return entity->wait.waiting == held->stash + held->ordered &&
		   ordered_of(entity) == held->ordered && (held->stash == 0 || entity->wait.deferred) &&
		   (held->ordered == 0 || entity->ordering->now.queue.lowest == held->lowest) &&
		   entity->wait.start == held->start && entity->wait.touched == held->touched;
}

void
shard_recount_differs(const char *message, const char *detail)
{
	shard_turn.recounts++;
	if (shard_turn_log_counts(SHARD_TURN_LOG_RECOUNT))
		shard_turn_log(
			SHARD_TURN_LOG_RECOUNT, ERRCODE_INTERNAL_ERROR, message, detail,
			"Nothing is lost. Unless tables of schema shard were changed by hand, please report "
			"this.");
}

static ShardStatement select_type = {
	"SELECT FROM shard.type WHERE type_id OPERATOR(pg_catalog.=) $1", 1, {INT4OID}};

/*
 * Whether the type was dropped, or has another number, since the turn began: what was held of it went in the same
 * transaction. Other processes see that before they are told of the type.
 */
static bool
is_gone(int32 type_id)
{
	ShardArguments arguments = {0};
	bool gone;

	SPI_connect();
	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_run(&select_type, &arguments, SPI_OK_SELECT);
	gone = SPI_processed == 0;
	SPI_finish();
	return gone;
}

static void
report(const ShardEntity *entity, const ShardHeldCount *held)
{
	shard_recount_differs(
		psprintf("what is held of entity \"%s\" of type \"%s\" was counted wrongly", entity->id,
				 entity->local->type->name),
		psprintf("The region worker had counted " INT64_FORMAT " message(s), " INT64_FORMAT " of "
				 "them waiting for lower numbers; there are " INT64_FORMAT ", and " INT64_FORMAT
				 ". The worker goes on with the latter.",
				 entity->wait.waiting, ordered_of(entity), held->stash + held->ordered,
				 held->ordered));
}

/* Memory was wrong. */
static void
correct(ShardEntity *entity, const ShardHeldCount *held)
{
	if (!is_gone(entity->local->type->type_id))
		report(entity, held);
	shard_queue_set(entity, held);
}

void
shard_recount_entity(ShardEntity *entity)
{
	MemoryContext old;
	ShardHeldCount held;

	shard_execution_end_user_code();
	old = MemoryContextSwitchTo(shard_turn.context);
	held =
		shard_held_count(entity->local->type->type_id, entity->shard, entity->id, entity->id_len);
	if (agrees(entity, &held))
		shard_queue_set(entity, &held);
	else
		correct(entity, &held);
	MemoryContextSwitchTo(old);
}

/* If nothing of it is in the stash, all that is held waits for its number. */
static void
recount_doubtful(ShardEntity *entity, void *arg)
{
	if (!entity->wait.deferred && entity->wait.waiting != ordered_of(entity))
		shard_recount_entity(entity);
}

void
shard_recount_touched(void)
{
	shard_turn_each(recount_doubtful, NULL);
}

/* ---- all of them ------------------------------------------------------------------------------ */

/* Messages, and places in memory, that are looked at in one piece. */
#define HELD_AT_ONCE 1000
#define PLACES_AT_ONCE 1000

/*
 * How far the recount is. First it goes over the table, then over memory, for entities of which that believes
 * that something is held and the table has said nothing; of those that came to it meanwhile the table is asked again.
 */
static struct
{
	uint32 number; /* of the recount; 0: there was none yet */
	ShardLanes lanes;
	bool in_memory;
	ShardHeldPlace place;
	ShardCacheWalk walk;
} recount;

/* Compares the counts of an entity of which something is held. */
static void
compare(int32 type_id, int shard, const char *id, int id_len, const ShardHeldCount *held, void *arg)
{
	ShardLocalType *local;
	ShardEntity *entity;

	if ((recount.lanes & shard_lane_bit(shard_message_lane(type_id, shard))) == 0 ||
		!shard_presence->is_here(type_id, shard))
		return;
	local = shard_turn_ready_type(type_id);
	if (local == NULL || shard >= local->type->number_of_shards)
		return; /* the type was dropped: its held messages are given up */
	entity = shard_cache_get(local, shard, id, id_len, true);
	entity->recounted = recount.number;
	if (agrees(entity, held))
		return;
	shard_turn_enlist(entity);
	correct(entity, held);
}

/* Collects an entity of which memory alone may believe that something is held. */
static void
collect_doubtful(ShardEntity *entity, void *arg)
{
	List **doubts = arg;

	if ((entity->wait.waiting > 0 || entity->wait.start) && entity->recounted != recount.number &&
		shard_presence->is_here(entity->local->type->type_id, entity->shard))
		*doubts = lappend(*doubts, entity);
}

/* A piece of memory. Returns whether there is more. */
static bool
recount_memory(void)
{
	List *doubts = NIL;
	ListCell *cell;
	bool more = shard_cache_some(&recount.walk, PLACES_AT_ONCE, collect_doubtful, &doubts);

	/* a type may have been dropped just now, with its held messages; if others host it, its row stays (D28) */
	if (doubts != NIL)
	{
		shard_fault("recount_doubts");
		shard_registry_reload();
	}
	foreach (cell, doubts)
	{
		ShardEntity *entity = lfirst(cell);

#ifdef SHARD_MUTANT_RECOUNT_DROPPED
		if (!entity->local->type->exists)
			continue;
#else
		if (!entity->local->type->exists || shard_local_is_another(entity->local))
			continue;
#endif
		shard_turn_enlist(entity);
		shard_recount_entity(entity);
	}
	return more;
}

bool
shard_recount_some(ShardLanes lanes, int64 *messages)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	bool more = true;

	shard_execution_end_user_code();
	recount.lanes = lanes;
	if (recount.in_memory)
		more = recount.in_memory = recount_memory();
	else
	{
		if (recount.place.type_id == 0)
			recount.number++;
		*messages += shard_held_some(&recount.place, HELD_AT_ONCE, compare, NULL, &more);
		if (!more)
			recount.place = (ShardHeldPlace){0};
		recount.in_memory = !more;
		more = true;
	}
	MemoryContextSwitchTo(old);
	return more;
}
