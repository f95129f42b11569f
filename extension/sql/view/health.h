/*
 * sql/view/health.h
 *		shard_health in parts: each adds its problems, one sentence each.
 */
#pragma once

#include "nodes/pg_list.h"

#include "core/base/arena.h"
#include "core/map/map.h"
#include "shared/shmem.h"

typedef struct ShardHealth ShardHealth;

/* Adds a problem; the text is copied. */
extern void shard_health_add(ShardHealth *health, const char *text);

/* health_gate.c: the release gate lets nothing pass, or would not. */
extern void shard_health_gate(ShardHealth *health);

/* health_still.c: messages that could be handled and are not, workers that do not move. Waits for turns. */
extern void shard_health_still(ShardHealth *health);

/* health_strategy.c: allocation functions that run here and do not come to an end. */
extern void shard_health_strategies(ShardHealth *health);

/* health.c: that the server has no slot for that worker, in words; NULL: it has. */
extern const char *shard_health_no_room(ShardWorkerSlot *slot);

/* health_supervision.c: shards that pause, and messages that fail again and again. */
extern void shard_health_supervision(ShardHealth *health);

/* health_timers.c: timers that are late. */
extern void shard_health_timers(ShardHealth *health);

/*
 * health_table.c: tables of the extension that other sessions have locked for a second. False: nothing else can be
 * looked at.
 */
extern bool shard_health_tables(ShardHealth *health);

/* health_cluster.c: what is wrong with the cluster, as this node knows it. */
extern void shard_health_cluster(ShardHealth *health);

/* health_room.c: whether the room for entity types is nearly used. */
extern void shard_health_room(ShardHealth *health);

/* health_moves.c: where shards live; reports as of shard_cluster_view_reports(). */
extern void shard_health_moves(ShardHealth *health, List *reports);

/*
 * health_replicas.c: shards with too few copies, or that wait for one; part of the former. map: of the cluster; self: this
 * node.
 */
extern void shard_health_replicas(ShardHealth *health, const ShardMap *map, ShardArena *arena,
								  List *reports, int32 self);

/* health_states.c: state rows that are of no type, or of shards that do not live here. Needs a snapshot. */
extern void shard_health_states(ShardHealth *health);
