/*
 * core/map/era.h
 *		Epochs of homes in a cluster era: what was decided by voters that were lost never looks newer (R29).
 *
 * An era begins each time that an operator forces voters. SHARD_ERA_EPOCHS epochs belong to an era. First homes of an era begin
 * with its first epoch, and their state is marked as lost; homes that the era takes over go on as far above that epoch as they
 * were in the era before. A node that learned an older home from the lost voters keeps the rows and is not active any more.
 */
#pragma once

#define SHARD_ERA_EPOCHS (1 << 16)

/*
 * How far versions of the map leap at the beginning of an era. A fact that is further ahead of the learned map and of the
 * beginning of the era was not decided.
 */
#define SHARD_ERA_LEAP (INT64CONST(1) << 32)

/*
 * The epoch of first homes in the era of version n of the map: later than any epoch of the eras before; SHARD_FIRST_EPOCH in
 * the first era.
 */
extern int32 shard_era_first_epoch(int64 n);

/* The epoch of a home that the era of version n of the map takes over from an earlier one: above all epochs of that era. */
extern int32 shard_era_carry(int32 epoch, int64 n);
