/*
 * control/control_move.c
 *		Stopping shards of this node that move away: orders for the region workers, and their answers.
 *
 * The coordinator of the cluster repeats its question until it is answered or the move is given up (M11), so nothing of
 * an order is durable: an order that is lost comes again. A region worker that is frozen in a turn keeps its shards
 * from being sealed, and no other process may by-pass it (W3): when it has not answered for the type's handoff_timeout,
 * it is terminated, and its successor answers.
 */
#include "postgres.h"

#include <signal.h>

#include "lib/ilist.h"
#include "utils/memutils.h"

#include "control/control_private.h"
#include "core/base/message.h"
#include "base/fault.h"
#include "shared/worker_log.h"

#include "base/compat.h"

/* A stop that was not asked for again after this time has been given up, or is answered by other means. */
#define FORGOTTEN (3 * SHARD_RETRY_INTERVAL)

/* A shard that was told to stop, and has not been reported. */
typedef struct Stop
{
	dlist_node link;
	ShardShardRef shard;
	int64 since;
	int64 asked; /* for the last time */
} Stop;

static dlist_head stops = DLIST_STATIC_INIT(stops);

static Stop *
find_stop(const ShardShardRef *shard)
{
	dlist_iter iter;

	dlist_foreach (iter, &stops)
	{
		Stop *stop = dlist_container(Stop, link, iter.cur);

		if (stop->shard.type_id == shard->type_id && stop->shard.shard == shard->shard &&
			stop->shard.move_id == shard->move_id)
			return stop;
	}
	return NULL;
}

static void
forget(Stop *stop)
{
	dlist_delete(&stop->link);
	pfree(stop);
}

void
shard_control_move_forget(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &stops)
		forget(dlist_container(Stop, link, iter.cur));
}

void
shard_control_stop_shard(const ShardShardRef *shard)
{
	Stop *stop = find_stop(shard);

	if (stop == NULL)
	{
		stop = MemoryContextAllocZero(TopMemoryContext, sizeof(Stop));
		stop->shard = *shard;
		stop->since = shard_clock_now();
		dlist_push_tail(&stops, &stop->link);
	}
	stop->asked = shard_clock_now();
	(void) shard_board_order(shard_control.db, shard);
	shard_fault("stop_ordered");
}

void
shard_control_shard_stopped(const ShardShardRef *shard)
{
	Stop *stop = find_stop(shard);

	if (stop != NULL)
		forget(stop);
	shard_fault("stop_reported");
	shard_control_event(
		&(ShardNodeEvent){.kind = SHARD_EVENT_SHARD_STOPPED, .n_shards = 1, .shards = shard});
}

/*
 * The time that a type's shards may take to stop; and its name, in the current memory context.
 */
static int64
handoff_timeout(int32 type_id, const char **name)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(shard_control.node),
												 (ShardMapKey){SHARD_MAP_TYPE, type_id, 0});
	ShardArena *arena = shard_arena_create();
	ShardTypeRecord type;
	int64 timeout = SHARD_HANDOFF_TIMEOUT;

	*name = "";
	if (entry != NULL && shard_record_get_type(entry, &type, arena))
	{
		*name = pstrdup(type.name);
		if (type.handoff_timeout_ms > 0)
			timeout = type.handoff_timeout_ms * SHARD_MS;
	}
	shard_arena_destroy(arena);
	return timeout;
}

/*
 * Terminates the worker of a shard's lane, if it runs. One that is stopped by a signal ends when it goes on.
 */
static void
terminate_worker(const ShardShardRef *shard, const char *type_name)
{
	ShardDatabase *db = shard_control.db;
	int number = shard_shmem_lane_worker(db, shard_message_lane(shard->type_id, shard->shard));
	pid_t pid = shard_worker_log_terminate(
		&db->worker[number], psprintf("it did not stop shard %d of entity type \"%s\" within the "
									  "type's handoff_timeout",
									  shard->shard, type_name));

	ereport(WARNING,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("region worker %d did not stop shard %d of entity type \"%s\" within its "
					"handoff_timeout",
					number, shard->shard, type_name),
			 pid != 0
				 ? errdetail("Process %d is terminated; its successor stops the shard.", (int) pid)
				 : errdetail("The region worker does not run.")));
}

bool
shard_control_move_waits(void)
{
	return !dlist_is_empty(&stops);
}

bool
shard_control_move_run(void)
{
	int64 now = shard_clock_now();
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &stops)
	{
		Stop *stop = dlist_container(Stop, link, iter.cur);
		const char *type_name;

		if (now - stop->asked > FORGOTTEN)
			forget(stop);
		else if (now - stop->since > handoff_timeout(stop->shard.type_id, &type_name))
		{
			ShardShardRef shard = stop->shard;

			forget(stop);
			terminate_worker(&shard, type_name);
		}
	}
	return false;
}
