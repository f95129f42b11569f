/*
 * core/map/set.h
 *		The set of a shard of a type with replicas: the nodes that keep copies of it (Q1 to Q4).
 *
 * The set is a part of the decided home: nodes[0] is the home, the others are backups. It is decided with the first home
 * and stays. A home is required to hear from all of them but itself before anything that a turn did is shown (Q4).
 *
 * No side effects, no errors, no allocation.
 */
#pragma once

#include "core/map/record.h"

/* A decided set. All zero: there is none, as of every shard of a type without replicas. */
typedef struct ShardSet
{
	int64 n;	   /* version of the home's key that has it */
	int32 epoch;   /* of that home; a newer home is another one, also with the same nodes */
	int32 lost;	   /* newest epoch that began without the state of the one before, as of the home */
	int32 want;	   /* wished number of nodes, the home included: k + 1; 2 to SHARD_MAX_HOMES */
	int32 n_nodes; /* those that it has; 1: the home is alone, nothing is required */
	int32 nodes[SHARD_MAX_HOMES];
} ShardSet;

/* What a node is in a set. */
typedef enum ShardSetRole
{
	SHARD_SET_NONE = 0, /* not in it */
	SHARD_SET_HOME,
	SHARD_SET_BACKUP
} ShardSetRole;

/* Is it the home of a shard of a type with replicas? Such a home moves in no way yet, nor is it given to another node. */
#define shard_set_is_of(home) ((home)->want > 1)

/* The set of a decided home whose key has version n. False, and all zero: a home without one. */
extern bool shard_set_get(const ShardHomeRecord *home, int64 n, ShardSet *set);

/*
 * A node learns a decided home whose key has version n: its set takes the place of the one that the node has of the shard,
 * or none does (all zero), if the node is not in it. Only nodes that are in a set, or were, keep it (Q3). False: the node
 * had none, and has none.
 */
extern bool shard_set_learn(ShardSet *set, const ShardHomeRecord *home, int64 n, int32 node);

/* What a node is in the set. */
extern ShardSetRole shard_set_role(const ShardSet *set, int32 node);

/*
 * The nodes of the set but one, which is the home as a rule: the backups that it requires, in the order of the set.
 * nodes: room for SHARD_MAX_HOMES. Returns how many; 0: nobody has to be waited for.
 */
extern int shard_set_others(const ShardSet *set, int32 node, int32 *nodes);

/* Is a node among the nodes of a home, as home or backup? For the homes of any type. */
extern bool shard_set_has(const ShardHomeRecord *home, int32 node);
