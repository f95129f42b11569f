/*
 * core/map/voter_private.h
 *		What the two files of a voter share: voter.c its votes, voter_memory.c what it remembers of others.
 */
#pragma once

#include "core/base/timing.h"
#include "core/map/voter.h"

/* The most voters that are remembered: in a change from seven voters to seven others. */
#define VOTER_MEMORY_SIZE (2 * SHARD_MAX_VOTERS)

/* The most that another voter is known to have promised and accepted, and its seal on that. */
typedef struct VoterMemory
{
	int32 node;
	int64 promised;
	ShardMapPoint point; /* of that ballot or an older one */
	ShardUuid seal;
} VoterMemory;

/* The most candidates that are given the whole map within SHARD_RESEND_INTERVAL. */
#define VOTER_GIVEN_SIZE (2 * SHARD_MAX_VOTERS)

/* When a candidate was given the map; node 0: an unused place. */
typedef struct VoterGiven
{
	int32 node;
	int64 at;
} VoterGiven;

struct ShardVoter
{
	int32 self;
	ShardVoterState state;
	int64 promised;
	ShardMap *map; /* its point is (vb, vn) */
	ShardVoterSeal seal;
	const void *seal_arg;
	int n_memory;
	VoterMemory memory[VOTER_MEMORY_SIZE];
	VoterGiven given[VOTER_GIVEN_SIZE];
};

/* voter.c: write the one row that is not the map. */
extern void shard_voter_save(const ShardVoter *voter, ShardActions *out);

/* voter_memory.c: the part of that row that is about others. */
extern void shard_voter_memory_fields(ShardFields *fields, ShardVoter *voter);

/* Forget the nodes that do not vote any more, by the voter's map. */
extern void shard_voter_forget_removed(ShardVoter *voter);

/* The own seal on a promise and the point that goes with it. */
extern ShardUuid shard_voter_seal(const ShardVoter *voter, int64 promised, ShardMapPoint point);
