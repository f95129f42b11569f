/*
 * core/member/membership_voters.c
 *		Which members vote (R11, R12).
 *
 * Voters are the oldest members that are up, an odd number of them. A voter that does its work stays,
 * whatever other members there are: each change is a risk. A voter that is silent for long is
 * replaced if another member can take its place; until then it stays, since it may come back and its
 * place costs nothing. A voter that forgot its promises goes at once. One that leaves goes as soon as
 * another member can take its place, else with its last home: its shards may take minutes to move, and
 * the loss of any other voter must not stop them meanwhile.
 * Only members that know what was decided become voters. The result never depends on more than the
 * candidates say, and is never proposed without a majority of the members that vote now and of those
 * that shall.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/membership.h"

/* How much a candidate is wanted, best first. */
typedef enum Rank
{
	RANK_SELF,	  /* the coordinator, if it votes already */
	RANK_KEPT,	  /* votes, does its work */
	RANK_NEW,	  /* could */
	RANK_LEAVING, /* votes, and has homes to give away before it goes */
	RANK_SILENT,  /* votes, silent for long: better than none */
	RANK_NEVER
} Rank;

int
shard_membership_voter_count(int members, int wish)
{
	int most = wish > 0 ? Min(wish, SHARD_MAX_VOTERS) : 5;
	int count = members < 3 ? 1 : members;

	count = Min(count, most);
	return count % 2 == 0 ? count - 1 : count;
}

static bool
votes(const ShardVotersRecord *voters, int32 node)
{
	for (int i = 0; i < voters->n_current; i++)
	{
		if (voters->current[i] == node)
			return true;
	}
	return false;
}

/*
 * How much a candidate is wanted.
 */
static Rank
rank_of(const ShardVoterCandidate *candidate, int32 self, const ShardVotersRecord *voters,
		int64 replace_after)
{
	if (!candidate->up && !candidate->leaving)
		return RANK_NEVER;
#ifndef SHARD_MUTANT_AMNESIAC_BECOMES_VOTER_AT_ONCE
	if (candidate->amnesiac)
		return RANK_NEVER;
#endif
	if (!votes(voters, candidate->node))
		return candidate->up && candidate->silent == 0 && candidate->caught_up ? RANK_NEW
																			   : RANK_NEVER;
#ifndef SHARD_MUTANT_LEAVERS_VOTE_ON
	if (candidate->leaving)
		return candidate->silent < replace_after ? RANK_LEAVING : RANK_SILENT;
#endif
	if (candidate->node == self)
		return RANK_SELF;
	return candidate->silent < replace_after ? RANK_KEPT : RANK_SILENT;
}

/* Oldest first; the node decides between equals. */
static int
compare_ages(const void *left, const void *right)
{
	const ShardVoterCandidate *a = left;
	const ShardVoterCandidate *b = right;

	if (a->age != b->age)
		return a->age < b->age ? -1 : 1;
	return a->node < b->node ? -1 : a->node > b->node;
}

static int
compare_nodes(const void *left, const void *right)
{
	const int32 a = *(const int32 *) left;
	const int32 b = *(const int32 *) right;

	return a < b ? -1 : a > b;
}

/*
 * Are most of the given voters there to decide? Amnesiac ones are there, but do not vote. Of those to
 * come it has to be known that they are well, also of those that vote already: a coordinator that has
 * just taken office has not heard from all of them (R28).
 */
static bool
has_majority(const ShardVoterCandidate *candidates, int n_candidates, const int32 *nodes, int n,
			 bool known)
{
	int present = 0;

	for (int i = 0; i < n; i++)
		for (int j = 0; j < n_candidates; j++)
		{
			if (candidates[j].node == nodes[i] && candidates[j].silent == 0 &&
				!candidates[j].amnesiac && (candidates[j].caught_up || !known))
				present++;
		}
	return present * 2 > n;
}

/*
 * Take the most wanted candidates, oldest first; returns how many there are, up to a number.
 */
static int
take(const ShardVoterCandidate *candidates, int n_candidates, const Rank *ranks, int count,
	 int32 *next)
{
	int n = 0;

	for (int rank = RANK_SELF; rank < RANK_NEVER; rank++)
		for (int i = 0; i < n_candidates && n < count; i++)
		{
			if ((int) ranks[i] == rank)
				next[n++] = candidates[i].node;
		}
	return n;
}

/*
 * Are both sets the same? The second has no duplicates.
 */
static bool
same_voters(const ShardVotersRecord *voters, const int32 *next, int n)
{
	if (voters->n_current != n)
		return false;
	for (int i = 0; i < n; i++)
	{
		if (!votes(voters, next[i]))
			return false;
	}
	return true;
}

int
shard_membership_plan_voters(ShardVoterCandidate *candidates, int n_candidates, int32 self,
							 const ShardVotersRecord *voters, int wish, int64 replace_after,
							 int32 next[SHARD_MAX_VOTERS])
{
	Rank *ranks = palloc(sizeof(Rank) * Max(n_candidates, 1));
	int members = 0;
	int n;

	if (n_candidates > 1)
		qsort(candidates, n_candidates, sizeof(*candidates), compare_ages);
	for (int i = 0; i < n_candidates; i++)
	{
		ranks[i] = rank_of(&candidates[i], self, voters, replace_after);
		members += candidates[i].up || candidates[i].leaving ? 1 : 0;
	}
	n = take(candidates, n_candidates, ranks, shard_membership_voter_count(members, wish), next);
	pfree(ranks);
	if (n > 0 && n % 2 == 0)
		n--;
	if (n > 1)
		qsort(next, n, sizeof(int32), compare_nodes);
	if (n == 0 || voters->n_next != 0 || same_voters(voters, next, n) ||
		!has_majority(candidates, n_candidates, voters->current, voters->n_current, false) ||
		!has_majority(candidates, n_candidates, next, n, true))
		return 0;
	return n;
}
