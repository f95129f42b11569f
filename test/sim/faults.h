/*
 * faults.h
 *		What is done to a world: deeds of the kinds of faults, by who does them.
 */
#pragma once

#include "world.h"

/* fault_machine.c */
extern void fault_crash(World *world, Instance *instance, int64 duration); /* NULL: nobody */
extern void fault_crash_control(World *world, Instance *instance, const Fault *fault);
extern void fault_freeze(World *world, Instance *instance, int64 duration); /* NULL: nobody */
extern void fault_freeze_worker(World *world, Instance *instance, const Fault *fault);
extern void fault_stop(World *world, Instance *instance, const Fault *fault); /* NULL: nobody */
extern void fault_partition(World *world, uint32 mask, int64 duration);
extern void fault_one_way(World *world, const Fault *fault);
extern void fault_loss(World *world, const Fault *fault);
extern void fault_slow_disk(World *world, Instance *instance, const Fault *fault);
extern void fault_full_disk(World *world, Instance *instance, const Fault *fault);
extern void fault_unhost(World *world, Instance *instance, const Fault *fault);

/* fault_operator.c */
/* An operator's word about a node or a shard; what a setting is to be stands in for the node. */
extern void
fault_operate(World *world, ShardCommandKind kind, int32 node, const ShardShardRef *shard);
extern void fault_move(World *world, uint32 number, int32 to);
extern void fault_move_back_and_forth(World *world, const Fault *fault);
extern void fault_pin(World *world, uint32 number, int32 node);
extern void fault_join(World *world, const Fault *fault);
extern void fault_leave(World *world, Instance *instance, const Fault *fault);
extern void fault_write_off(World *world, Instance *instance, const Fault *fault);
extern void fault_operator_looks(World *world, Instance *none, int64 a, int64 b, const char *bytes,
								 size_t length);
extern Instance *fault_new_instance(World *world); /* NULL: there are enough */

/* fault_leave.c */
extern void fault_headless(World *world, Instance *leaver, const Fault *fault);

/* fault_copy.c */
extern void fault_clone(World *world, Instance *instance, const Fault *fault);
extern void fault_restore(World *world, Instance *instance, const Fault *fault);
extern void fault_restore_journal(World *world, const Fault *fault);
extern void fault_promote(World *world, Instance *instance, const Fault *fault);
/* Is a node among the voters that a map names? */
extern bool fault_names_voter(const ShardMap *map, int32 node);
