/*
 * control/control_types.h
 *		Types of this database as the control worker has them, beside those of the cluster.
 */
#pragma once

#include "control/control_private.h"
#include "core/member/difference.h"
#include "nodes/pg_list.h"

/* A type of this database, as the machine was told. */
typedef struct ControlType
{
	int32 type_id;
	ShardTypeRecord record;
	bool proxy;
	const char *cluster_owner; /* the owner in the cluster, as the row says; NULL: the owner here */
	bool wished; /* the machine was told of another one since, which may never get a row */
	bool unread; /* its structure cannot be described: it is as it was last, or unknown */
} ControlType;

/* A type that was learned, by name or by id. */
typedef struct ControlLearned
{
	int32 type_id;
	const char *name;
	uint64 settings_hash;
	const char *owner;
	const char *state; /* the structure of its states; "": not known */
} ControlLearned;

/*
 * control_number.c: does a number of this database mean another type to the cluster? *done: that was mended, as far as
 * it can be now.
 */
extern bool
shard_control_number_conflict(List *types, const ControlLearned *learned, int count, bool *done);

/*
 * control_owner.c: keeps in the rows which role owns a type in the cluster, if that is another role than here. False:
 * there is something left to do.
 */
extern bool shard_control_owner_follow(List *types, const ControlLearned *learned, int count);
