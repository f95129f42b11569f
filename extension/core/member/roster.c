/*
 * core/member/roster.c
 *		The coordinator's duties towards members: what it hears from them, and operators' acts.
 *
 * Joining: roster_join.c; admission: roster_claim.c; steps of status, downing, voters: roster_status.c; leases:
 * roster_lease.c.
 *
 * Nothing here is durable, and nothing decides by itself: each change is proposed against the version
 * of the key that was looked at, so that of two that were thought up from the same state one fails and
 * is thought over. What is answered is read from the decided state when the question comes again, or
 * after the decision; a lost answer is asked for again. So a new coordinator that knows nothing of all
 * this goes on where the old one ended.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/roster_private.h"
#include "core/map/voter.h"

ShardRoster *
shard_roster_create(int32 self, const ShardRosterSettings *settings, const ShardLiveSettings *live)
{
	ShardRoster *roster = palloc0(sizeof(ShardRoster));

	roster->self = self;
	roster->settings = *settings;
	roster->live = live;
	roster->arena = shard_arena_create();
	roster->leases = shard_lease_book_create(0);
	return roster;
}

void
shard_roster_destroy(ShardRoster *roster)
{
	if (roster->members)
		pfree(roster->members);
	shard_roster_forget_claims(roster);
	shard_lease_book_destroy(roster->leases);
	shard_arena_destroy(roster->arena);
	pfree(roster);
}

/* ---- what was observed -------------------------------------------------------------------------- */

RosterMember *
shard_roster_member(const ShardRoster *roster, int32 node)
{
	for (int i = 0; i < roster->n_members; i++)
	{
		if (roster->members[i].node == node)
			return &roster->members[i];
	}
	return NULL;
}

/*
 * Watch a member from now on: one that never says anything must come under suspicion, too.
 */
static RosterMember *
watch(ShardRoster *roster, int64 now, int32 node)
{
	RosterMember *member = shard_roster_member(roster, node);
	size_t size = sizeof(RosterMember) * (roster->n_members + 1);

	if (member)
		return member;
	roster->members = roster->members ? repalloc(roster->members, size) : palloc(size);
	member = &roster->members[roster->n_members++];
	memset(member, 0, sizeof(*member));
	member->node = node;
	member->heard_at = now;
	member->had_homes = true;
	shard_detector_init(&member->detector, NULL);
	shard_detector_heartbeat(&member->detector, now);
	return member;
}

/*
 * Watch all members that were ever admitted.
 */
static void
watch_members(ShardRoster *roster, int64 now, const ShardMap *decided)
{
	int count;
	ShardMapEntry *entries = shard_map_list(decided, SHARD_MAP_MEMBER, roster->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord record;

		if (shard_record_get_member(&entries[i], &record, roster->arena) && record.inc_no > 0)
			(void) watch(roster, now, entries[i].key.a);
	}
}

void
shard_roster_heard(ShardRoster *roster, int64 now, int32 node, bool answers)
{
	RosterMember *member = watch(roster, now, node);

	member->heard = true;
	member->heard_at = now;
	if (answers)
		shard_detector_heartbeat(&member->detector, now);
}

bool
shard_roster_reachable(const ShardRoster *roster, int32 node, int64 now)
{
	const RosterMember *member = shard_roster_member(roster, node);

	return node == roster->self || (member && shard_detector_available(&member->detector, now));
}

/*
 * A new office takes every member for reachable until its silence says otherwise.
 */
static bool
was_heard(const ShardRoster *roster, int32 node)
{
	const RosterMember *member = shard_roster_member(roster, node);

	return member && member->heard;
}

void
shard_roster_take_office(ShardRoster *roster, int64 now, const ShardProposer *proposer)
{
	const ShardMap *decided = shard_proposer_decided(proposer);
	ShardDowningSettings downing = SHARD_DOWNING_DEFAULTS(SHARD_DOWNING_MANUAL);

	shard_arena_reset(roster->arena);
	roster->n_members = 0;
	shard_roster_forget_claims(roster);
	shard_lease_book_destroy(roster->leases);
	roster->leases = shard_lease_book_create(shard_proposer_last_promise(proposer));
	roster->ttl_n = 0;
	downing.stable_after = roster->settings.stable_after;
	shard_downing_timer_init(&roster->downing, &downing, now);
	roster->states = (RosterStates){.number = roster->states.number};
	roster->told_side = false;
	roster->next_leave_log = now;
	roster->caught_up_n = roster->next_caught_up_n = shard_map_point(decided).n;
	roster->next_mark = now + SHARD_HEARTBEAT_INTERVAL;
	watch_members(roster, now, decided);
}

/* ---- proposals ---------------------------------------------------------------------------------- */

const ShardMapEntry *
shard_roster_record(const ShardRoster *roster, const ShardMap *decided, int32 node,
					ShardMemberRecord *record)
{
	const ShardMapEntry *entry = shard_map_value(decided, (ShardMapKey){SHARD_MAP_MEMBER, node, 0});

	return entry && shard_record_get_member(entry, record, roster->arena) ? entry : NULL;
}

bool
shard_roster_pending(const ShardProposer *proposer, ShardMapKind kind, int32 a)
{
	return shard_proposer_pending(proposer, (ShardMapKey){kind, a, 0});
}

bool
shard_roster_propose(ShardRoster *roster, ShardProposer *proposer, const ShardMapEntry *entry,
					 const ShardMemberRecord *record)
{
	ShardMapEntry change = shard_record_put_member(entry->key.a, record, entry->n, roster->arena);

	return shard_proposer_propose(proposer, &change, 1);
}

/* ---- operators' acts ---------------------------------------------------------------------------- */

/* Is a change of any member under way? */
static bool
is_changing(const ShardRoster *roster, const ShardProposer *proposer, const char **why)
{
	int count;
	ShardMapEntry *entries =
		shard_map_list(shard_proposer_decided(proposer), SHARD_MAP_MEMBER, roster->arena, &count);

	*why = "another change of the members is being decided; try again";
	for (int i = 0; i < count; i++)
	{
		if (shard_roster_pending(proposer, SHARD_MAP_MEMBER, entries[i].key.a))
			return true;
	}
	return false;
}

/* Is a member up beside a node, perhaps one that is to be emptied? */
static bool
has_other_up(const ShardRoster *roster, const ShardProposer *proposer, int32 node)
{
	int count;
	ShardMapEntry *entries =
		shard_map_list(shard_proposer_decided(proposer), SHARD_MAP_MEMBER, roster->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord record;

		if (entries[i].key.a != node &&
			shard_record_get_member(&entries[i], &record, roster->arena) &&
			record.status == SHARD_MEMBER_UP)
			return true;
	}
	return false;
}

/*
 * Could another member have the shards of a node? A member whose record is being changed does not count:
 * otherwise of several members that are to be emptied at once each would count on the others.
 */
static bool
may_be_emptied(const ShardRoster *roster, const ShardProposer *proposer, int32 node,
			   const char **why)
{
	int count;
	ShardMapEntry *entries =
		shard_map_list(shard_proposer_decided(proposer), SHARD_MAP_MEMBER, roster->arena, &count);

	*why = "no other member is up that could have its shards";
	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord record;

		if (entries[i].key.a == node ||
			!shard_record_get_member(&entries[i], &record, roster->arena) ||
			record.status != SHARD_MEMBER_UP || record.evacuated)
			continue;
		if (!shard_roster_pending(proposer, SHARD_MAP_MEMBER, entries[i].key.a))
			return true;
		*why = "another change of the members is being decided; try again";
	}
	return false;
}

/*
 * Is a change of any member under way, or is none up beside a node? If two left at once, each
 * counting on the other, no member could take over.
 */
static bool
may_leave(const ShardRoster *roster, const ShardProposer *proposer, int32 node, const char **why)
{
	if (is_changing(roster, proposer, why))
		return false;
	*why = "no other member is up; the last one cannot leave";
	return has_other_up(roster, proposer, node);
}

/*
 * A member wishes to leave, or its operator does. True also if it is on its way already.
 */
static bool
leave(ShardRoster *roster, ShardProposer *proposer, int32 node, const char **why)
{
	ShardMemberRecord record;
	const ShardMapEntry *entry =
		shard_roster_record(roster, shard_proposer_decided(proposer), node, &record);
	int before = entry ? record.status : SHARD_MEMBER_NONE;

	*why = "the node is no member that could leave";
	if (!entry || !shard_membership_step(&record, SHARD_MEMBERSHIP_LEAVE))
		return false;
	if (record.status == before)
		return true;
	return may_leave(roster, proposer, node, why) &&
		   shard_roster_propose(roster, proposer, entry, &record);
}

static bool
is_among(int32 node, const int32 *nodes, int n_nodes)
{
	for (int i = 0; i < n_nodes; i++)
	{
		if (nodes[i] == node)
			return true;
	}
	return false;
}

/*
 * Are most of these voters there, and not among the members that are to go?
 */
static bool
keeps_majority(const ShardRoster *roster, int64 now, const ShardMap *decided, const int32 *voters,
			   int n_voters, const int32 *nodes, int n_nodes)
{
	int present = 0;

	for (int i = 0; i < n_voters; i++)
	{
		ShardMemberRecord record;

		if (shard_roster_record(roster, decided, voters[i], &record) &&
			shard_membership_is_member(record.status) &&
			shard_roster_reachable(roster, voters[i], now) && !is_among(voters[i], nodes, n_nodes))
			present++;
	}
	return n_voters == 0 || present * 2 > n_voters;
}

/* With a journal as the voter (R14): is a member there that could take office, and is not to go? */
static bool
keeps_candidate(const ShardRoster *roster, int64 now, const ShardMap *decided, const int32 *nodes,
				int n_nodes)
{
	int count;
	ShardMapEntry *entries = shard_map_list(decided, SHARD_MAP_MEMBER, roster->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord record;

		if (shard_record_get_member(&entries[i], &record, roster->arena) &&
			record.status == SHARD_MEMBER_UP &&
			shard_roster_reachable(roster, entries[i].key.a, now) &&
			!is_among(entries[i].key.a, nodes, n_nodes))
			return true;
	}
	return false;
}

bool
shard_roster_may_lose(const ShardRoster *roster, int64 now, const ShardProposer *proposer,
					  const int32 *nodes, int n_nodes)
{
	const ShardMap *decided = shard_proposer_decided(proposer);
	const ShardMapEntry *entry = shard_map_value(decided, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});
	ShardVotersRecord voters;

	if (!entry || !shard_record_get_voters(entry, &voters))
		return true;
	if (shard_roster_has_journal(roster, &voters))
		return keeps_candidate(roster, now, decided, nodes, n_nodes);
	return keeps_majority(roster, now, decided, voters.current, voters.n_current, nodes, n_nodes) &&
		   keeps_majority(roster, now, decided, voters.next, voters.n_next, nodes, n_nodes);
}

/*
 * May an operator down or write off the node?
 */
static bool
may_give_up(const ShardRoster *roster, int64 now, int32 node, const ShardMemberRecord *record,
			ShardMembershipEvent event, const ShardProposer *proposer, const char **why)
{
	if (node == roster->self)
		*why = "the node is the coordinator; let it leave, or stop it";
	else if (event == SHARD_MEMBERSHIP_WRITE_OFF && shard_membership_counts(record) &&
			 shard_roster_reachable(roster, node, now))
		*why =
			was_heard(roster, node)
				? "the node is reachable; down it first, or let it leave"
				: "the node was not heard since this coordinator took office, but is not taken for "
				  "unreachable yet; try again in some seconds";
	else if (shard_membership_is_member(record->status) &&
			 shard_roster_reachable(roster, node, now) &&
			 !shard_roster_may_lose(roster, now, proposer, &node, 1))
		*why = "without the node the voters have no majority";
	else
		return true;
	return false;
}

/* Reasons are constants, they outlive the call. */
bool
shard_roster_set_status(ShardRoster *roster, int64 now, int32 node, ShardMemberStatus status,
						ShardProposer *proposer, const char **why)
{
	ShardMembershipEvent event =
		status == SHARD_MEMBER_DOWN ? SHARD_MEMBERSHIP_DOWNED : SHARD_MEMBERSHIP_WRITE_OFF;
	ShardMemberRecord record;
	const ShardMapEntry *entry;
	int before;

	shard_arena_reset(roster->arena);
	if (shard_proposer_office(proposer) != SHARD_OFFICE_HELD)
	{
		*why = "the office was lost";
		return false;
	}
	if (status == SHARD_MEMBER_LEAVING)
		return leave(roster, proposer, node, why);
	entry = shard_roster_record(roster, shard_proposer_decided(proposer), node, &record);
	*why = "there is no such member, or it is gone";
	if (!entry || (status != SHARD_MEMBER_DOWN && status != SHARD_MEMBER_WRITTEN_OFF))
		return false;
	before = record.status;
	if (!may_give_up(roster, now, node, &record, event, proposer, why))
		return false;
	*why = "the status of the node does not allow it";
	if (!shard_membership_step(&record, event))
		return false;
	*why = "another change of the node is being decided; try again";
	if (shard_roster_pending(proposer, SHARD_MAP_MEMBER, node))
		return false;
	return record.status == before || shard_roster_propose(roster, proposer, entry, &record);
}

bool
shard_roster_evacuate(ShardRoster *roster, int32 node, bool evacuated, ShardProposer *proposer,
					  const char **why)
{
	ShardMemberRecord record;
	const ShardMapEntry *entry;

	shard_arena_reset(roster->arena);
	entry = shard_roster_record(roster, shard_proposer_decided(proposer), node, &record);
	*why = "the node is no member of the cluster";
	if (!entry ||
		(!shard_membership_is_member(record.status) && record.status != SHARD_MEMBER_DOWN))
		return false;
	if (record.evacuated != evacuated && evacuated && !may_be_emptied(roster, proposer, node, why))
		return false;
	*why = "another change of the node is being decided; try again";
	if (shard_roster_pending(proposer, SHARD_MAP_MEMBER, node))
		return false;
	if (record.evacuated == evacuated)
		return true;
	record.evacuated = evacuated;
	return shard_roster_propose(roster, proposer, entry, &record);
}

/*
 * What an incarnation of a member wished last (N6).
 */
static RosterMember *
wishes_of(ShardRoster *roster, int64 now, int32 node, int32 inc_no)
{
	RosterMember *member = watch(roster, now, node);

	if (member->wish_inc != inc_no)
		member->stays = member->leaves = 0;
	member->wish_inc = inc_no;
	return member;
}

/* A member that leaves before it was ever up goes on leaving: it has no age to be up with. */
bool
shard_roster_stay(ShardRoster *roster, int64 now, int32 node, int64 number, ShardProposer *proposer,
				  const char **why)
{
	ShardMemberRecord record;
	const ShardMapEntry *entry;
	RosterMember *member;

	shard_arena_reset(roster->arena);
	entry = shard_roster_record(roster, shard_proposer_decided(proposer), node, &record);
	*why = "the node is no member of the cluster";
	if (!entry || !shard_membership_is_member(record.status))
		return false;
	member = wishes_of(roster, now, node, record.inc_no);
	*why = "a later shard_leave() was called";
#ifndef SHARD_MUTANT_LATE_STAY_COUNTS
	if (number < member->leaves)
		return false;
#endif
	member->stays = number;
	*why = "another change of the node is being decided; try again";
	if (shard_roster_pending(proposer, SHARD_MAP_MEMBER, node))
		return false;
	if (record.status < SHARD_MEMBER_LEAVING)
		return true;
	*why = record.status == SHARD_MEMBER_EXITING
			   ? "all its shards have moved, and it is being removed"
			   : "the node had not come up yet";
	if (record.age == 0 || !shard_membership_step(&record, SHARD_MEMBERSHIP_STAY))
		return false;
	*why = "another change of the node is being decided; try again";
	return shard_roster_propose(roster, proposer, entry, &record);
}

/* ---- messages and time -------------------------------------------------------------------------- */

/*
 * Is the sender the decided incarnation of a member?
 */
static bool
is_from_member(const ShardRoster *roster, const ShardMap *decided, const ShardControl *message)
{
	ShardMemberRecord record;

	return shard_roster_record(roster, decided, message->from, &record) && record.inc_no > 0 &&
		   record.inc_no == message->from_inc && shard_membership_is_member(record.status);
}

/*
 * HEARTBEAT_ACK: how the sender's voter is. A voter speaks before its node is admitted, too, but then
 * a copy may be speaking; it is believed while the real one is silent.
 */
static void
note_ack(ShardRoster *roster, int64 now, const ShardMap *decided, const ShardControl *message)
{
	RosterMember *member = shard_roster_member(roster, message->from);
	bool admitted = is_from_member(roster, decided, message);

	if (!member)
		return;
	if (admitted || message->from == roster->self ||
		!shard_roster_reachable(roster, message->from, now))
		member->amnesiac = message->voter_state != 0;
	if (!admitted)
		return;
	member->vouched = member->amnesiac ? 0 : message->from_inc;
}

void
shard_roster_reported(ShardRoster *roster, const ShardControl *message,
					  const ShardProposer *proposer)
{
	RosterMember *member = shard_roster_member(roster, message->from);

	if (shard_proposer_office(proposer) != SHARD_OFFICE_HELD || !member)
		return;
	shard_arena_reset(roster->arena);
	if (!is_from_member(roster, shard_proposer_decided(proposer), message))
		return;
	if (!message->flag)
		member->confirmed = Max(member->confirmed, message->learned_n);
	member->n_reports = 0;
	for (int i = 0; i < message->n_nodes && i < SHARD_DOWNING_MAX_MEMBERS; i++)
		member->reports[member->n_reports++] = message->nodes[i];
}

/*
 * A member repeats its wish to leave until it is decided. If no member would be left it hears so;
 * what else is in the way passes.
 */
static void
leave_wished(ShardRoster *roster, int64 now, const ShardControl *message, ShardProposer *proposer,
			 ShardActions *out)
{
	int32 node = message->from;
	RosterMember *member = wishes_of(roster, now, node, message->from_inc);
	const char *why;

#ifndef SHARD_MUTANT_LATE_LEAVE_COUNTS
	if (message->wish < member->stays)
		return;
#endif
	member->leaves = Max(member->leaves, message->wish);
	if (leave(roster, proposer, node, &why))
		return;
	if (!has_other_up(roster, proposer, node))
	{
		ShardControl *reply = shard_action_send(out, node, SHARD_CONTROL_CANNOT_LEAVE);

		reply->token = message->token;
		reply->text = "no other member is up; the last one cannot leave";
	}
	if (now < roster->next_leave_log)
		return;
	roster->next_leave_log = now + ROSTER_TELL_INTERVAL;
	shard_action_log(out, ROSTER_LOG, "node %d cannot leave now: %s", node, why);
}

void
shard_roster_receive(ShardRoster *roster, int64 now, const ShardControl *message,
					 ShardProposer *proposer, ShardActions *out)
{
	if (shard_proposer_office(proposer) != SHARD_OFFICE_HELD)
		return;
	shard_arena_reset(roster->arena);
	switch (message->kind)
	{
		case SHARD_CONTROL_JOIN:
			shard_roster_join(roster, now, message, proposer, out);
			break;
		case SHARD_CONTROL_ADMIT:
			shard_roster_claim(roster, now, message, proposer, out);
			break;
		case SHARD_CONTROL_I_AM:
			shard_roster_called_back(roster, now, message, proposer, out);
			break;
		case SHARD_CONTROL_RENEW:
			if (is_from_member(roster, shard_proposer_decided(proposer), message))
				shard_lease_book_request(roster->leases, message->from, message->from_inc,
										 message->token, now);
			break;
		case SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ:
			if (is_from_member(roster, shard_proposer_decided(proposer), message))
				leave_wished(roster, now, message, proposer, out);
			break;
		case SHARD_CONTROL_GOODBYE:
			if (is_from_member(roster, shard_proposer_decided(proposer), message))
				shard_detector_goodbye(&watch(roster, now, message->from)->detector, now);
			break;
		case SHARD_CONTROL_HEARTBEAT_ACK:
			if (message->from == roster->settings.journal_node)
				roster->journal_heard = message->voter_state != SHARD_VOTER_AMNESIAC;
			note_ack(roster, now, shard_proposer_decided(proposer), message);
			shard_roster_send_grants(roster, now, proposer, out);
			break;
		default:
			break;
	}
}

/* Let pass what was decided an interval ago: a member that has learned that much has caught up. */
static void
mark_time(ShardRoster *roster, int64 now, const ShardMap *decided)
{
	if (now < roster->next_mark)
		return;
	roster->caught_up_n = roster->next_caught_up_n;
	roster->next_caught_up_n = shard_map_point(decided).n;
	roster->next_mark = now + SHARD_HEARTBEAT_INTERVAL;
}

void
shard_roster_tick(ShardRoster *roster, int64 now, ShardProposer *proposer,
				  int (*homes_of)(const void *context, int32 node), const void *context,
				  ShardActions *out)
{
	if (shard_proposer_office(proposer) != SHARD_OFFICE_HELD)
		return;
	shard_arena_reset(roster->arena);
	watch_members(roster, now, shard_proposer_decided(proposer));
	mark_time(roster, now, shard_proposer_decided(proposer));
	shard_roster_judge(roster, now, proposer, out);
	shard_roster_expire(roster, now, proposer, out);
	shard_roster_states_tick(roster, now, proposer, out);
	shard_roster_steps(roster, now, proposer, homes_of, context);
	shard_roster_down(roster, now, proposer, out);
	shard_roster_voters(roster, now, proposer);
	shard_roster_settle_ttl(roster, now, proposer);
	shard_roster_send_grants(roster, now, proposer, out);
}
