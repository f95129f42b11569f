/*
 * fault_copy.c
 *		A node's database comes up a second time: a clone, an older copy, a standby.
 */
#include "faults.h"

#include "core/base/timing.h"

/* The same files on another machine: both claim to be the node. */
static void
clone(World *world, Instance *original, bool replaces, ShardStartKind kind, Store *files)
{
	Instance *instance = fault_new_instance(world);
	char dsn[16];

	if (!instance)
	{
		store_destroy(files);
		return;
	}
	instance->store = files;
	snprintf(dsn, sizeof(dsn), replaces ? "%s" : "%s-clone", original->dsn);
	if (original->journal)
	{
		instance->journal = true;
		world->journal = instance;
	}
	host_create(world, instance, dsn);
	instance->joined = original->joined;
	instance->copied = kind == SHARD_START_COPY;
	/* A clone is nobody: the checkers look at the original. */
	if (!replaces)
	{
		instance->shadow = true;
		world->model->retire(instance->flow);
	}
	host_start(world, instance, kind);
}

static void
clone_ends(World *world, Instance *instance, int64 index, int64 b, const char *bytes, size_t length)
{
	Instance *copy = &world->instances[index];

	if (copy->up)
		host_stop(world, copy);
	copy->retired = true;
}

void
fault_clone(World *world, Instance *instance, const Fault *fault)
{
	if (!instance->up || instance->retired || instance->node_id == 0)
		return;
	clone(world, instance, false, SHARD_START_RESTART, store_copy(instance->store));
	world_later(world, 2 * fault->duration, clone_ends, NULL, false, world->n_instances - 1, 0,
				NULL, 0);
}

/* Is a node among the voters that a map names? */
bool
fault_names_voter(const ShardMap *map, int32 node)
{
	ShardVotersRecord voters;
	const ShardMapEntry *entry = shard_map_value(map, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});

	return entry && shard_record_get_voters(entry, &voters) && shard_record_votes(&voters, node);
}

/* May a node have voted lately, by what it has learned or has accepted as a voter? */
static bool
may_vote(const Instance *instance)
{
	return !instance->node ||
		   fault_names_voter(shard_node_learned(instance->node), instance->node_id) ||
		   fault_names_voter(shard_voter_map(shard_node_voter(instance->node)), instance->node_id);
}

/* Is there another node that knows what was decided? A copy alone begins a cluster of its own. */
static bool
has_others(World *world, const Instance *instance)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		const Instance *other = &world->instances[i];

		if (other != instance && other->joined && !other->retired && !other->shadow &&
			!other->copied && other->node && !shard_node_fenced(other->node) &&
			shard_map_point(shard_node_learned(other->node)).n > 1)
			return true;
	}
	return false;
}

/* The old database is not the node's any more. */
static void
retire(World *world, Instance *instance)
{
	instance->retired = true;
	world->model->retire(instance->flow);
}

/* What was handled at a node since the copy was made is gone with what the copy replaces. */
static void
lose_homes(World *world, int32 node)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		ShardArena *arena;
		ShardMapEntry *homes;
		int count;

		if (!world->instances[i].node)
			continue;
		arena = shard_arena_create();
		homes = shard_map_list(shard_node_learned(world->instances[i].node), SHARD_MAP_HOME, arena,
							   &count);
		for (int k = 0; k < count; k++)
		{
			ShardHomeRecord home;

			if (shard_record_get_home(&homes[k], &home) && shard_record_home_node(&home) == node)
				check_lost(world->check, homes[k].key.a, homes[k].key.b);
		}
		shard_arena_destroy(arena);
	}
	world->restored = true;
}

/*
 * A node is put back from the copy that was made when the fault began. A voter's files that come back
 * unnoticed may have forgotten a promise, which nothing can find out while the others are away (R12);
 * so that is done to nodes that do not vote.
 */
static void
put_back(World *world, Instance *instance, int64 kind, int64 b, const char *bytes, size_t length)
{
	Store *backup = instance->backup;

	instance->backup = NULL;
	if (instance->retired || !has_others(world, instance) ||
		(kind == SHARD_START_RESTART && may_vote(instance)))
	{
		store_destroy(backup);
		return;
	}
	if (instance->up)
		host_stop(world, instance);
	check_excuse(world->check, instance->index);
	for (int i = 0; i < world->n_instances; i++)
	{
		const Instance *before = &world->instances[i];

		if (before->node_id == instance->node_id && before->retired && !before->shadow)
			check_put_back(world->check, i);
	}
	lose_homes(world, instance->node_id);
	world->model->strand(instance->flow);
	retire(world, instance);
	clone(world, instance, true, (ShardStartKind) kind, backup);
}

void
fault_restore(World *world, Instance *instance, const Fault *fault)
{
	if (instance->retired || instance->backup || !instance->node ||
		!shard_node_admitted(instance->node) || world->options.nodes < 2)
		return;
	instance->backup = store_copy(instance->store);
	world_later(world, fault->duration, put_back, instance, false,
				fault->kind == FAULT_RESTORE ? SHARD_START_COPY : SHARD_START_RESTART, 0, NULL, 0);
}

/*
 * The journal is put back from the copy that was made when the fault began. Its host sees that by the
 * server's identity, or takes it for a promotion: without the gate of a standby both may have lost
 * decisions.
 */
static void
put_journal_back(World *world, Instance *instance, int64 kind, int64 b, const char *bytes,
				 size_t length)
{
	Store *backup = instance->backup;

	instance->backup = NULL;
	if (instance->retired || world->n_instances == WORLD_MAX_INSTANCES)
	{
		store_destroy(backup);
		return;
	}
	if (instance->up)
		host_stop(world, instance);
	retire(world, instance);
	clone(world, instance, true, (ShardStartKind) kind, backup);
}

/* The machine of the old primary is found and switched off at last. */
static void
old_primary_ends(World *world, Instance *instance, int64 a, int64 b, const char *bytes,
				 size_t length)
{
	if (instance->up)
		host_stop(world, instance);
}

/* The primary of a pair freezes or dies, its standby takes over, and the old one may thaw. */
void
fault_promote(World *world, Instance *instance, const Fault *fault)
{
	Store *standby = instance->standby;

	if (!standby || instance->retired || world->n_instances == WORLD_MAX_INSTANCES)
		return;

	/*
	 * What had passed the gate is on both; the rest is the old primary's alone. A primary that died
	 * before has told the checkers what its disk holds, so its standby has got that.
	 */
	if (instance->up)
		world->model->step(instance->flow, FLOW_FLUSHER);
	else
		store_replay(standby, store_flushed(instance->store));
	check_replaced(world->check, instance->index);
	instance->standby = NULL;
	store_promote(standby);
	retire(world, instance);
	if (instance->up && fault->number % 3 == 0)
		host_stop(world, instance);
	else if (instance->up)
	{
		fault_freeze(world, instance, fault->duration);
		world_later(world, fault->duration + 5 * SHARD_SECOND, old_primary_ends, instance, false, 0,
					0, NULL, 0);
	}
	clone(world, instance, true, SHARD_START_PROMOTED, standby);
}

/* The same is done to the journal, or its standby takes over. */
void
fault_restore_journal(World *world, const Fault *fault)
{
	Instance *instance = world->journal;
	bool copy = instance->standby || fault->number % 2 == 0;

	if (instance->standby && fault->number % 3 == 0)
	{
		fault_promote(world, instance, fault);
		return;
	}
	if (instance->backup)
		return;
	instance->backup = store_copy(instance->store);
	world_later(world, fault->duration, put_journal_back, instance, false,
				copy ? SHARD_START_COPY : SHARD_START_PROMOTED, 0, NULL, 0);
}
