/*
 * core/member/roster_status.c
 *		What becomes of members in time: their status, downing, and which of them vote.
 *
 * All is judged again in each tick from the decided state and from what was heard; a proposal that
 * is under way, or that failed because its key had changed, is simply met again.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/roster_private.h"

/* ---- status ------------------------------------------------------------------------------------- */

/*
 * Is every member that counts reachable?
 */
static bool
has_converged(const ShardRoster *roster, int64 now, const ShardMapEntry *entries, int count)
{
	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord record;

		if (shard_record_get_member(&entries[i], &record, roster->arena) &&
			shard_membership_counts(&record) &&
			!shard_roster_reachable(roster, entries[i].key.a, now))
			return false;
	}
	return true;
}

/*
 * Has a joining member waited long enough for the others, so that it may begin its work as a guest?
 */
static bool
has_waited(const ShardRoster *roster, int64 now, int32 node, bool converged)
{
	RosterMember *member = shard_roster_member(roster, node);

	if (!member || converged)
	{
		if (member)
			member->unsettled = false;
		return false;
	}
	if (!member->unsettled)
	{
		member->unsettled = true;
		member->unsettled_since = now;
	}
	return roster->settings.weakly_up_after > 0 &&
		   now - member->unsettled_since >= roster->settings.weakly_up_after;
}

/*
 * Does a node vote, or shall it?
 */
static bool
is_voter(const ShardMap *decided, int32 node)
{
	const ShardMapEntry *entry = shard_map_value(decided, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});
	ShardVotersRecord voters;

	return entry && shard_record_get_voters(entry, &voters) && shard_record_votes(&voters, node);
}

/* With a journal as the voter (R14): is this node the only one that could take office? */
static bool
is_last_candidate(const ShardRoster *roster, int64 now, int32 node, const ShardProposer *proposer)
{
	const ShardMapEntry *entry =
		shard_map_value(shard_proposer_decided(proposer), (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});
	ShardVotersRecord voters;

	return entry && shard_record_get_voters(entry, &voters) &&
		   shard_roster_has_journal(roster, &voters) &&
		   !shard_roster_may_lose(roster, now, proposer, &node, 1);
}

/*
 * All members that come up in this tick, with their ages, as one change with the counter of ages.
 */
static void
bring_up(ShardRoster *roster, int64 now, const ShardMapEntry *entries, int count,
		 ShardProposer *proposer)
{
	const ShardMapEntry *entry =
		shard_map_value(shard_proposer_decided(proposer), (ShardMapKey){SHARD_MAP_COUNTERS, 0, 0});
	ShardMapEntry *changes = shard_arena_alloc(roster->arena, sizeof(ShardMapEntry) * (count + 1));
	ShardCountersRecord counters;
	int n = 0;

	if (!entry || !shard_record_get_counters(entry, &counters))
		return;
	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord record;

		if (!shard_record_get_member(&entries[i], &record, roster->arena) || record.inc_no == 0 ||
			!shard_roster_reachable(roster, entries[i].key.a, now) ||
			shard_roster_pending(proposer, SHARD_MAP_MEMBER, entries[i].key.a) ||
			!shard_membership_step(&record, SHARD_MEMBERSHIP_CONVERGED))
			continue;
		if (record.age == 0)
			record.age = ++counters.last_age;
		changes[n++] =
			shard_record_put_member(entries[i].key.a, &record, entries[i].n, roster->arena);
	}
	if (n == 0)
		return;
	changes[n++] = shard_record_put_counters(&counters, entry->n, roster->arena);
	(void) shard_proposer_propose(proposer, changes, n);
}

/*
 * Does the member know that it exits, or is it not there to hear of it? One whose host tells has to say,
 * besides, that it has left nothing undone, and is waited for (M20). It has to know where its homes went then:
 * what waited for them goes after them.
 */
static bool
has_confirmed(const ShardRoster *roster, int64 now, const ShardMapEntry *entry,
			  const ShardProposer *proposer)
{
	const RosterMember *member = shard_roster_member(roster, entry->key.a);

	if (roster->settings.leave_confirmed && entry->key.a != roster->self)
#ifndef SHARD_MUTANT_EMPTIED_FOR_EVER
		return member && !member->had_homes &&
			   member->confirmed >= Max(entry->n, member->without_n);
#else
		return member && member->confirmed >= entry->n;
#endif
	return entry->key.a == roster->self ||
		   shard_proposer_learned_by(proposer, entry->key.a) >= entry->n ||
		   !shard_roster_reachable(roster, entry->key.a, now);
}

/*
 * Is a step due that does not wait for all members? If so it is taken in the record.
 */
static bool
take_step(ShardRoster *roster, int64 now, const ShardMapEntry *entry, ShardMemberRecord *record,
		  bool converged, const ShardProposer *proposer, int n_homes)
{
	int32 node = entry->key.a;
	RosterMember *member = shard_roster_member(roster, node);

	if (member && record->status != SHARD_MEMBER_JOINING)
		member->unsettled = false;
	switch (record->status)
	{
		case SHARD_MEMBER_JOINING:
			return record->inc_no > 0 && has_waited(roster, now, node, converged) &&
				   shard_roster_reachable(roster, node, now) &&
				   shard_membership_step(record, SHARD_MEMBERSHIP_NOT_CONVERGED);
		case SHARD_MEMBER_LEAVING:
			return n_homes == 0 && !is_voter(shard_proposer_decided(proposer), node) &&
				   !is_last_candidate(roster, now, node, proposer) &&
				   shard_membership_step(record, SHARD_MEMBERSHIP_EMPTIED);
		case SHARD_MEMBER_EXITING:
			/*
			 * The coordinator hands over its office first, otherwise no member might know of its
			 * removal.
			 */
			return node != roster->self && n_homes == 0 &&
				   has_confirmed(roster, now, entry, proposer) &&
				   shard_membership_step(record, SHARD_MEMBERSHIP_CONFIRMED);
		default:
			return false;
	}
}

/*
 * The number of homes that a member which goes still has to give away; notes when there are none
 * any more.
 */
static int
look_at_homes(const ShardRoster *roster, const ShardMap *decided, int32 node,
			  int (*homes_of)(const void *context, int32 node), const void *context)
{
	RosterMember *member = shard_roster_member(roster, node);
	int n_homes = homes_of(context, node);

	if (member && member->had_homes && n_homes == 0)
		member->without_n = shard_map_point(decided).n;
	if (member)
		member->had_homes = n_homes > 0;
	return n_homes;
}

void
shard_roster_steps(ShardRoster *roster, int64 now, ShardProposer *proposer,
				   int (*homes_of)(const void *context, int32 node), const void *context)
{
	const ShardMap *decided = shard_proposer_decided(proposer);
	int count;
	ShardMapEntry *entries = shard_map_list(decided, SHARD_MAP_MEMBER, roster->arena, &count);
	bool converged = has_converged(roster, now, entries, count);

	if (converged)
		bring_up(roster, now, entries, count, proposer);
	for (int i = 0; i < count; i++)
	{
		int32 node = entries[i].key.a;
		ShardMemberRecord record;
		int n_homes = 0;

		if (!shard_record_get_member(&entries[i], &record, roster->arena))
			continue;
		if (record.status == SHARD_MEMBER_LEAVING || record.status == SHARD_MEMBER_EXITING)
			n_homes = look_at_homes(roster, decided, node, homes_of, context);
		if (shard_roster_pending(proposer, SHARD_MAP_MEMBER, node) ||
			!take_step(roster, now, &entries[i], &record, converged, proposer, n_homes))
			continue;
		(void) shard_roster_propose(roster, proposer, &entries[i], &record);
	}
}

/* ---- downing ------------------------------------------------------------------------------------ */

/*
 * Bit of a node in the view, 0 if it is not there.
 */
static uint64
bit_of(const ShardDowningView *view, int32 node)
{
	for (int i = 0; i < view->n_members; i++)
	{
		if (view->members[i].node == node)
			return UINT64CONST(1) << i;
	}
	return 0;
}

/*
 * Which members say that they cannot reach which others. What an unreachable member said last is
 * out of date.
 */
static void
add_reports(const ShardRoster *roster, ShardDowningView *view)
{
	for (int i = 0; i < view->n_members; i++)
	{
		const RosterMember *reporter = shard_roster_member(roster, view->members[i].node);

		if (!reporter || !view->members[i].reachable)
			continue;
		for (int j = 0; j < reporter->n_reports; j++)
		{
			uint64 subject = bit_of(view, reporter->reports[j]);

			for (int k = 0; k < view->n_members; k++)
			{
				if (subject == UINT64CONST(1) << k)
					view->members[k].unreachable_by |= UINT64CONST(1) << i;
			}
		}
	}
}

/*
 * The membership as this coordinator sees it. False: there are too many members, or it is none itself.
 */
static bool
make_view(const ShardRoster *roster, int64 now, const ShardProposer *proposer,
		  ShardDowningView *view)
{
	int count;
	ShardMapEntry *entries =
		shard_map_list(shard_proposer_decided(proposer), SHARD_MAP_MEMBER, roster->arena, &count);

	memset(view, 0, sizeof(*view));
	view->self = -1;
	for (int i = 0; i < count; i++)
	{
		int32 node = entries[i].key.a;
		ShardMemberRecord record;
		ShardDowningMember *member;

		if (!shard_record_get_member(&entries[i], &record, roster->arena) || record.inc_no == 0 ||
			(!shard_membership_is_member(record.status) && record.status != SHARD_MEMBER_DOWN))
			continue;
		if (view->n_members == SHARD_DOWNING_MAX_MEMBERS)
			return false;
		if (node == roster->self)
			view->self = view->n_members;
		member = &view->members[view->n_members++];
		member->node = node;
		member->age = record.age != 0 ? record.age : PG_INT64_MAX;
		member->status = (ShardMemberStatus) record.status;
		member->reachable = shard_roster_reachable(roster, node, now);
		member->seen = member->reachable; /* what it has seen since comes through here */
		member->in_role = true;
	}
	add_reports(roster, view);
	return view->self >= 0;
}

/*
 * Fence the incarnations of the given members.
 */
static void
down_members(ShardRoster *roster, int64 now, const ShardDowningView *view, uint64 members,
			 ShardProposer *proposer, ShardActions *out)
{
	for (int i = 0; i < view->n_members; i++)
	{
		ShardMemberRecord record;
		const ShardMapEntry *entry;

		if ((members >> i & 1) == 0)
			continue;
		entry = shard_roster_record(roster, shard_proposer_decided(proposer), view->members[i].node,
									&record);
		if (entry && shard_membership_step(&record, SHARD_MEMBERSHIP_DOWNED) &&
			shard_roster_propose(roster, proposer, entry, &record))
		{
			shard_action_log(out, ROSTER_WARNING, "node %d is downed by strategy %s",
							 view->members[i].node,
							 shard_downing_name((ShardDowningKind) roster->settings.downing));
			shard_downing_timer_acted(&roster->downing, now);
		}
	}
}

/*
 * May the given members be downed: are neither this coordinator among them, nor so many of the voters
 * that nothing could be decided any more?
 */
static bool
may_down(const ShardRoster *roster, int64 now, const ShardDowningView *view, uint64 members,
		 const ShardProposer *proposer)
{
	int32 nodes[SHARD_DOWNING_MAX_MEMBERS];
	int n_nodes = 0;

	for (int i = 0; i < view->n_members; i++)
	{
		if ((members >> i & 1) != 0)
			nodes[n_nodes++] = view->members[i].node;
	}
	return (members >> view->self & 1) == 0 &&
		   shard_roster_may_lose(roster, now, proposer, nodes, n_nodes);
}

void
shard_roster_down(ShardRoster *roster, int64 now, ShardProposer *proposer, ShardActions *out)
{
	ShardDowningKind kind = (ShardDowningKind) roster->settings.downing;
	ShardDowningSettings settings = SHARD_DOWNING_DEFAULTS(kind);
	ShardDowningView view;
	uint64 members;
	int64 next;

	if (kind == SHARD_DOWNING_MANUAL || (int) kind < 0 || (int) kind >= SHARD_DOWNING_KINDS ||
		!make_view(roster, now, proposer, &view))
		return;
	settings.quorum_size = Max(roster->settings.static_quorum_size, 1);
	if (shard_downing_timer_step(&roster->downing, &view, true, now, &next) != SHARD_DOWNING_DECIDE)
	{
		roster->told_side &= next != PG_INT64_MAX;
		return;
	}
	members = shard_downing_decide(&view, &settings);
	if (may_down(roster, now, &view, members, proposer))
		down_members(roster, now, &view, members, proposer, out);
	else if (!roster->told_side)
	{
		roster->told_side = true;
		shard_action_log(out, ROSTER_WARNING,
						 "strategy %s gives up the side of the coordinator: no node is downed; "
						 "down the unreachable nodes with shard_down() if they are lost",
						 shard_downing_name(kind));
	}
}

/* ---- voters ------------------------------------------------------------------------------------- */

/*
 * For how long a node has been unreachable; 0: it is not. One that is no member might as well be
 * away.
 */
static int64
silence(const ShardRoster *roster, int64 now, int32 node, const ShardMemberRecord *record)
{
	const RosterMember *member = shard_roster_member(roster, node);

	if (!shard_membership_is_member(record->status) || !member)
		return PG_INT64_MAX;
	if (shard_roster_reachable(roster, node, now))
		return 0;
	return Max(1, now - shard_detector_deadline(&member->detector));
}

/*
 * The second batch of a change (R9).
 */
static bool
finish_change(ShardRoster *roster, ShardVotersRecord *voters, int64 n, ShardProposer *proposer)
{
	ShardMapEntry change;

	if (voters->n_next == 0)
		return false;
	voters->n_current = voters->n_next;
	memcpy(voters->current, voters->next, sizeof(voters->current));
	voters->n_next = 0;
	memset(voters->next, 0, sizeof(voters->next));
	change = shard_record_put_voters(voters, n, roster->arena);
	(void) shard_proposer_propose(proposer, &change, 1);
	return true;
}

bool
shard_roster_has_journal(const ShardRoster *roster, const ShardVotersRecord *voters)
{
	return roster->settings.journal_node != 0 && voters->n_current == 1 &&
		   voters->current[0] == roster->settings.journal_node;
}

/*
 * The journal becomes the voter when the cluster gets its second member (R14): a node alone may still
 * join another cluster, which has that journal.
 */
static void
change_to_journal(ShardRoster *roster, ShardVotersRecord *voters, int64 n, int n_members,
				  ShardProposer *proposer)
{
	ShardMapEntry change;

	if (shard_roster_has_journal(roster, voters) || n_members < 2 || !roster->journal_heard)
		return;
	voters->n_next = 1;
	voters->next[0] = roster->settings.journal_node;
	change = shard_record_put_voters(voters, n, roster->arena);
	(void) shard_proposer_propose(proposer, &change, 1);
}

void
shard_roster_voters(ShardRoster *roster, int64 now, ShardProposer *proposer)
{
	const ShardMap *decided = shard_proposer_decided(proposer);
	const ShardMapEntry *entry = shard_map_value(decided, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});
	int count;
	ShardMapEntry *entries = shard_map_list(decided, SHARD_MAP_MEMBER, roster->arena, &count);
	ShardVoterCandidate *candidates =
		shard_arena_alloc(roster->arena, sizeof(ShardVoterCandidate) * (count + 1));
	int n_candidates = 0;
	ShardVotersRecord voters;
	ShardMapEntry change;

	if (!entry || shard_roster_pending(proposer, SHARD_MAP_VOTERS, 0) ||
		!shard_record_get_voters(entry, &voters) ||
		finish_change(roster, &voters, entry->n, proposer))
		return;
	if (roster->settings.journal_node != 0)
	{
		change_to_journal(roster, &voters, entry->n, count, proposer);
		return;
	}
	for (int i = 0; i < count; i++)
	{
		ShardVoterCandidate *candidate = &candidates[n_candidates];
		ShardMemberRecord record;
		const RosterMember *member = shard_roster_member(roster, entries[i].key.a);

		if (!shard_record_get_member(&entries[i], &record, roster->arena))
			continue;
		n_candidates++;
		candidate->node = entries[i].key.a;
		candidate->age = record.age;
		candidate->up = record.status == SHARD_MEMBER_UP;
#ifndef SHARD_MUTANT_VOTES_END_WITH_THE_WISH
		candidate->leaving = record.status == SHARD_MEMBER_LEAVING && member && member->had_homes;
#endif
#ifdef SHARD_MUTANT_VOTES_WITHOUT_HOMES
		candidate->leaving = record.status == SHARD_MEMBER_LEAVING;
#endif
		candidate->amnesiac = member && member->amnesiac;
		candidate->silent = silence(roster, now, candidate->node, &record);
		candidate->caught_up =
			candidate->node == roster->self ||
			(member && member->vouched == record.inc_no &&
			 shard_proposer_learned_by(proposer, candidate->node) >= roster->caught_up_n);
	}
	voters.n_next = shard_membership_plan_voters(candidates, n_candidates, roster->self, &voters,
												 roster->settings.voters,
												 roster->settings.voter_replace_after, voters.next);
	if (voters.n_next == 0)
		return;
	change = shard_record_put_voters(&voters, entry->n, roster->arena);
	(void) shard_proposer_propose(proposer, &change, 1);
}
