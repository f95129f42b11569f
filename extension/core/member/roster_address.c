/*
 * core/member/roster_address.c
 *		Where a member is: by its operator's word, or as callers say (I15).
 *
 * The founder of a cluster has no address of its own. It goes by the one at which a caller says that it has reached the
 * founder, and each node that may call can say so: that is a guess, which stays one, and gives way to a better one and to
 * an operator's word.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/membership.h"
#include "core/member/roster_private.h"

/*
 * Is what a caller says better than what the member has? Any node that may call may say it. As long as the member is
 * alone, no other member needs the address, and the latest joiner's word counts; with other members only a way without
 * a relay in between is better.
 */
static bool
is_better(const ShardMemberRecord *record, const ShardAddress *address, bool alone)
{
	bool direct = address->ground == SHARD_ADDRESS_DIRECT;

	if (record->dsn[0] == '\0')
		return true;
#ifdef SHARD_MUTANT_GUESS_IS_FOR_GOOD
	return false;
#endif
#ifndef SHARD_MUTANT_GUESS_BEATS_WORD
	if (record->ground == SHARD_ADDRESS_SAID)
		return false;
#endif
	if (strcmp(record->dsn, address->dsn) == 0 || address->lapsed)
		return true;
	if (record->ground == SHARD_ADDRESS_DIRECT)
		return direct && alone;
	return direct || alone;
}

bool
shard_roster_set_address(ShardRoster *roster, int64 now, int32 node, const ShardAddress *address,
						 ShardProposer *proposer, bool *taken, const char **why)
{
	const ShardMap *decided = shard_proposer_decided(proposer);
	ShardMemberRecord record;
	const ShardMapEntry *entry;

	shard_arena_reset(roster->arena);
	*taken = false;
	entry = shard_roster_record(roster, decided, node, &record);
	*why = "the node is no member";
	if (!entry)
		return false;
	if (address->ground != SHARD_ADDRESS_SAID &&
		!is_better(&record, address, shard_roster_is_alone(roster, decided, node)))
		return true;
	*why = "another change of the node is being decided; try again";
	if (shard_roster_pending(proposer, SHARD_MAP_MEMBER, node))
		return false;
	if (strcmp(record.dsn, address->dsn) == 0 && record.ground == (int32) address->ground)
		return true;
#ifdef SHARD_MUTANT_FOUND_AT_ANOTHER_ADDRESS
	if (node == 0)
#else
	if (strcmp(record.dsn, address->dsn) != 0)
#endif
		shard_roster_forget_found(roster, now, node);
	record.dsn = address->dsn;
	record.ground = address->ground;
	*taken = true;
	return shard_roster_propose(roster, proposer, entry, &record);
}
