/*
 * core/map/era.c
 *		Epochs of homes in a cluster era.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/era.h"
#include "core/map/record.h"

int32
shard_era_first_epoch(int64 n)
{
	int64 era = n / SHARD_ERA_LEAP;

#ifdef SHARD_MUTANT_ERAS_SHARE_EPOCHS
	return SHARD_FIRST_EPOCH;
#endif
	return (int32) Min(era, PG_INT32_MAX / SHARD_ERA_EPOCHS - 1) * SHARD_ERA_EPOCHS;
}

int32
shard_era_carry(int32 epoch, int64 n)
{
	int32 carried = shard_era_first_epoch(n) + epoch % SHARD_ERA_EPOCHS;

	return epoch < PG_INT32_MAX ? Max(carried, epoch + 1) : epoch;
}
