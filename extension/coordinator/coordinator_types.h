/*
 * coordinator/coordinator_types.h
 *		Types of this database as the coordinator worker has them, beside those of the cluster.
 */
#pragma once

#include "coordinator/coordinator_private.h"
#include "core/member/difference.h"
#include "nodes/pg_list.h"

/* A type of this database, as the machine was told. */
typedef struct CoordinatorType
{
	int32 type_id;
	ShardTypeRecord record;
	bool proxy;
	const char
		*cluster_owner; /* who owns it in the cluster, as the row says; NULL: who does here */
	bool wished;		/* the machine was told of another one since, which may never get a row */
	bool unread;		/* its structure cannot be described: it is as it was last, or unknown */
} CoordinatorType;

/* A type that was learned, by name or by id. */
typedef struct CoordinatorLearned
{
	int32 type_id;
	const char *name;
	uint64 settings_hash;
	const char *owner;
} CoordinatorLearned;

/*
 * coordinator_number.c: does a number of ours mean another type to the cluster? *done: that was mended, as far as it
 * can be now.
 */
extern bool shard_coordinator_number_conflict(List *types, const CoordinatorLearned *learned,
											  int count, bool *done);

/*
 * coordinator_owner.c: keeps in the rows who owns a type in the cluster, if that is another role than here. False: there
 * is something left to do.
 */
extern bool
shard_coordinator_owner_follow(List *types, const CoordinatorLearned *learned, int count);
