/*
 * core/member/roster_claim.c
 *		Incarnations that claim to be a node (I1, I3), and which of them sits at its address.
 *
 * A claimant repeats what it wants until it gets it, so that an answer need not be kept until its decision has come: it is
 * given when the claimant asks again. Only a grant is told at once, to the registered address; the fact itself takes the same
 * way.
 *
 * Each node that may call can claim another node's place in its name, as often as it likes. So what was found at the address is
 * kept for the node, not with a claim: the incarnation that sits there need not be among the remembered claims to be let in.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/membership.h"
#include "core/member/roster_private.h"

static RosterClaim *
find_claim(ShardRoster *roster, int32 node, ShardUuid uuid)
{
	for (int i = 0; i < roster->n_claims; i++)
	{
		if (roster->claims[i].node == node && shard_record_uuid_equal(roster->claims[i].uuid, uuid))
			return &roster->claims[i];
	}
	return NULL;
}

static void
forget_settings(RosterClaim *claim)
{
	if (claim->settings)
		pfree(claim->settings);
	claim->settings = NULL;
}

static void
drop_claim(ShardRoster *roster, int at)
{
	forget_settings(&roster->claims[at]);
	roster->n_claims--;
	memmove(&roster->claims[at], &roster->claims[at + 1],
			sizeof(RosterClaim) * (roster->n_claims - at));
}

void
shard_roster_forget_claims(ShardRoster *roster)
{
	for (int i = 0; i < roster->n_claims; i++)
		forget_settings(&roster->claims[i]);
	roster->n_claims = roster->n_found = 0;
	shard_roster_forget_newcomers(roster);
}

/* The settings that the claimant has, as it says. */
static void
note_settings(RosterClaim *claim, const ShardControl *message)
{
	const ShardMapEntry *entry = message->entries;

	if (message->n_entries != 1 || entry->key.kind != SHARD_MAP_MEMBER || entry->deleted ||
		entry->length > ROSTER_MAX_SETTINGS)
		return;
	forget_settings(claim);
	claim->settings = palloc(Max(entry->length, 1));
	memcpy(claim->settings, entry->value, entry->length);
	claim->settings_length = entry->length;
}

/* Show two incarnations that claim one node at the same time; once, even if there are more. */
static void
show_rivals(ShardRoster *roster, RosterClaim *claim, int64 now, ShardActions *out)
{
	for (int i = 0; i < roster->n_claims; i++)
	{
		RosterClaim *other = &roster->claims[i];

		if (other == claim || other->node != claim->node ||
			now - other->seen > ROSTER_CLAIM_PATIENCE || other->contested || claim->contested)
			continue;
		other->contested = claim->contested = true;
		shard_action_log_peer(out, ROSTER_WARNING, claim->node, SHARD_CONTROL_ADMIT,
							  "two incarnations claim to be node %d: " UINT64_FORMAT
							  "-" UINT64_FORMAT " and " UINT64_FORMAT "-" UINT64_FORMAT,
							  claim->node, other->uuid.high, other->uuid.low, claim->uuid.high,
							  claim->uuid.low);
	}
}

/* An incarnation was found at a node's registered address. */
static void
note_found(ShardRoster *roster, int64 now, int32 node, ShardUuid uuid)
{
	RosterFound *place = NULL;

	for (int i = 0; i < roster->n_found; i++)
	{
		RosterFound *found = &roster->found[i];

		if (found->node == node)
		{
			place = found;
			break;
		}
		if (roster->n_found == ROSTER_MAX_CLAIMS && (!place || found->at < place->at))
			place = found;
	}
	if (!place)
		place = &roster->found[roster->n_found++];
	*place = (RosterFound){node, uuid, now};
}

/*
 * Was it a claimant itself that was found at its node's address lately? So its claim need not have been remembered
 * then, among many others. That another incarnation was there says nothing: it may have been before the claimant began.
 */
static ShardCallback
what_was_found(const ShardRoster *roster, int64 now, int32 node, ShardUuid uuid)
{
#ifndef SHARD_MUTANT_FOUND_AND_FORGOTTEN
	for (int i = 0; i < roster->n_found; i++)
	{
		if (roster->found[i].node == node && now - roster->found[i].at < ROSTER_CLAIM_PATIENCE &&
			shard_record_uuid_equal(roster->found[i].uuid, uuid))
			return SHARD_CALLBACK_SAME;
	}
#endif
	return SHARD_CALLBACK_NONE;
}

void
shard_roster_forget_found(ShardRoster *roster, int64 now, int32 node)
{
	for (int i = roster->n_found - 1; i >= 0; i--)
		if (roster->found[i].node == node)
			roster->found[i] = roster->found[--roster->n_found];
	for (int i = 0; i < roster->n_claims; i++)
		if (roster->claims[i].node == node)
		{
			roster->claims[i].callback = SHARD_CALLBACK_NONE;
			roster->claims[i].next_ask = now;
		}
}

/* The newest claim goes that was not confirmed, neither at the address nor by an operator. False: there is none. */
static bool
make_room(ShardRoster *roster)
{
	int newest = -1;

#ifdef SHARD_MUTANT_CLAIMS_KEEP_THEIR_PLACE
	return false;
#endif
	for (int i = 0; i < roster->n_claims; i++)
	{
		const RosterClaim *claim = &roster->claims[i];

		if (claim->callback != SHARD_CALLBACK_SAME && !claim->forced &&
			(newest < 0 || claim->since >= roster->claims[newest].since))
			newest = i;
	}
	if (newest >= 0)
		drop_claim(roster, newest);
	return newest >= 0;
}

/*
 * Remember what a claimant says. A claim that is repeated keeps what was found out about it. NULL: there
 * are too many.
 */
static RosterClaim *
note_claim(ShardRoster *roster, int64 now, const ShardControl *message, ShardActions *out)
{
	RosterClaim *claim = find_claim(roster, message->node, message->uuid);

	if (!claim && roster->n_claims == ROSTER_MAX_CLAIMS && !make_room(roster))
		return NULL;
	if (!claim)
	{
		claim = &roster->claims[roster->n_claims++];
		memset(claim, 0, sizeof(*claim));
		claim->node = message->node;
		claim->uuid = message->uuid;
		claim->callback = what_was_found(roster, now, message->node, message->uuid);
		claim->since = now;
		claim->next_ask = now;
		claim->next_tell = now + ROSTER_TELL_INTERVAL;
	}
	claim->previous = message->inc_no;
	claim->kind = message->start_kind;
	claim->seen = now;
	note_settings(claim, message);
	show_rivals(roster, claim, now, out);
	return claim;
}

bool
shard_roster_is_alone(const ShardRoster *roster, const ShardMap *decided, int32 node)
{
	int count;
	ShardMapEntry *entries = shard_map_list(decided, SHARD_MAP_MEMBER, roster->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord record;

		if (entries[i].key.a != node &&
			(!shard_record_get_member(&entries[i], &record, roster->arena) ||
			 (record.inc_no > 0 && record.status != SHARD_MEMBER_REMOVED &&
			  record.status != SHARD_MEMBER_WRITTEN_OFF)))
			return false;
	}
	return true;
}

/*
 * May the decided incarnation hold a lease: does the cluster have leased types, or the node itself a
 * lease (L7)?
 */
static bool
uses_leases(const ShardRoster *roster, const ShardMap *decided, const ShardMemberRecord *record)
{
	int count;
	ShardMapEntry *types = shard_map_list(decided, SHARD_MAP_TYPE, roster->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (!shard_record_get_type(&types[i], &type, NULL) || type.leased)
			return true;
	}
	return record->identity_lease;
}

/*
 * What the rules are to judge. This coordinator's own node is not asked whether it lives: it is the
 * claimant itself, newly started, or the callback finds it at its address.
 */
static ShardClaim
describe_claim(const ShardRoster *roster, const RosterClaim *claim, int64 now,
			   const ShardMap *decided, const ShardMemberRecord *record)
{
	const RosterMember *member = shard_roster_member(roster, claim->node);
	ShardClaim said = {.node = claim->node,
					   .previous = claim->previous,
					   .uuid = claim->uuid,
					   .kind = claim->kind,
					   .forced = claim->forced,
					   .callback = claim->callback};

	if (!record)
		return said;
	said.old_heard = member && member->heard && claim->node != roster->self &&
					 member->heard_at > claim->since && now - member->heard_at < ROSTER_ALIVE;
	said.alone = shard_roster_is_alone(roster, decided, claim->node);
	said.listening = member && claim->node != roster->self && now - claim->since < ROSTER_LISTEN &&
					 now - member->heard_at < ROSTER_ALIVE;
	said.leases_ended = !uses_leases(roster, decided, record) ||
						shard_roster_lease_ended(roster, claim->node, now, decided);
	/*
	 * Whatever its address says, this very process is the node, or no process is. Any caller may claim to be another start
	 * of it.
	 */
#ifdef SHARD_MUTANT_ALONE_FOR_ANYBODY
	if (said.alone)
#else
	if (said.alone && shard_record_uuid_equal(claim->uuid, roster->settings.incarnation))
#endif
		said.callback = SHARD_CALLBACK_NEEDLESS;
	return said;
}

/*
 * With a new start come its settings: version of the application, weight, roles, features. Its address stays the
 * registered one, at which it was found.
 */
static void
take_settings(const ShardRoster *roster, const RosterClaim *claim, ShardMemberRecord *record)
{
	ShardMapEntry entry = {.key = {SHARD_MAP_MEMBER, claim->node, 0},
						   .length = claim->settings_length,
						   .value = claim->settings};
	ShardMemberRecord said;

	if (!claim->settings || !shard_record_get_member(&entry, &said, roster->arena))
		return;
	record->app_version = said.app_version;
	record->weight = said.weight;
	record->features = said.features;
	record->protocol_version = said.protocol_version;
	record->identity_lease = said.identity_lease;
	record->n_roles = said.n_roles;
	memcpy(record->roles, said.roles, sizeof(record->roles));
}

/*
 * Make the claimant its node's incarnation. Its number is one more than that of the former
 * incarnation, so all that the former one sends from now on is recognized as old.
 */
static void
grant(ShardRoster *roster, RosterClaim *claim, const ShardMapEntry *entry,
	  ShardMemberRecord *record, ShardProposer *proposer)
{
	if (!shard_membership_step(record, SHARD_MEMBERSHIP_ADMITTED))
		return;
	record->inc_no++;
	record->inc_uuid = claim->uuid;
	record->evacuated = false;
	take_settings(roster, claim, record);
	claim->proposed |= shard_roster_propose(roster, proposer, entry, record);
}

/*
 * Judge a claim again, and do what follows: ask back, decide. A refusal is logged when it is new.
 */
static ShardAdmission
judge_claim(ShardRoster *roster, RosterClaim *claim, int64 now, ShardProposer *proposer,
			ShardActions *out)
{
	const ShardMap *decided = shard_proposer_decided(proposer);
	ShardMemberRecord record;
	const ShardMapEntry *entry = shard_roster_record(roster, decided, claim->node, &record);
	ShardClaim said = describe_claim(roster, claim, now, decided, entry ? &record : NULL);
	ShardAdmission verdict = shard_membership_judge(entry ? &record : NULL, &said);

	claim->refused = verdict >= SHARD_ADMISSION_OLD_LIVES;
	if (shard_roster_pending(proposer, SHARD_MAP_MEMBER, claim->node))
		return verdict;
	if (verdict == SHARD_ADMISSION_GRANT)
		grant(roster, claim, entry, &record, proposer);
	else if ((verdict == SHARD_ADMISSION_ASK || claim->refused) && now >= claim->next_ask)
	{
		ShardAction *action = shard_action_add(out, SHARD_ACTION_WHO_AT);

		action->node = claim->node;
		action->uuid = claim->uuid;
		claim->next_ask = now + SHARD_RESEND_INTERVAL;
	}
	if (verdict >= SHARD_ADMISSION_UNKNOWN && verdict != claim->verdict)
	{
		shard_action_log_peer(out, ROSTER_WARNING, claim->node, (int) verdict,
							  "a claim to be node %d is refused: %s", claim->node,
							  shard_membership_reason(verdict, entry ? &record : NULL, &said,
													  roster->arena));
		claim->verdict = verdict;
		claim->next_tell = now;
	}
	return verdict;
}

/*
 * Answer a claimant: yes, or now and then why not. To this node itself by its id, there is no link.
 */
static void
tell(ShardRoster *roster, RosterClaim *claim, ShardAdmission verdict, int32 to, int64 now,
	 const ShardMap *decided, ShardActions *out)
{
	ShardMemberRecord record;
	bool known = shard_roster_record(roster, decided, claim->node, &record) != NULL;
	ShardClaim said = describe_claim(roster, claim, now, decided, known ? &record : NULL);
	ShardControl *reply;

	if (verdict != SHARD_ADMISSION_GRANTED &&
		(verdict == SHARD_ADMISSION_GRANT || now < claim->next_tell))
		return;
	claim->next_tell = now + ROSTER_TELL_INTERVAL;
	reply = shard_action_send(out, to, SHARD_CONTROL_ADMIT_REPLY);
	reply->node = claim->node;
	reply->flag = verdict == SHARD_ADMISSION_GRANTED;
	reply->uuid = claim->uuid;
	if (known)
		reply->inc_no = record.inc_no;
	if (!reply->flag)
		reply->text = shard_membership_reason(verdict, known ? &record : NULL, &said, out->arena);
}

void
shard_roster_claim(ShardRoster *roster, int64 now, const ShardControl *message,
				   ShardProposer *proposer, ShardActions *out)
{
	RosterClaim *claim;

	if (message->node == 0 || (message->uuid.high == 0 && message->uuid.low == 0))
		return;
#ifndef SHARD_MUTANT_CLAIMS_FOR_OTHERS
	/*
	 * A node claims its own place: so a role that may speak for one node only (T8) claims no other
	 * one's.
	 */
	if (message->from != message->node)
	{
		shard_action_log_peer(out, ROSTER_WARNING, message->from, message->kind,
							  "node %d, or a caller in its name, claims to be node %d; the "
							  "message is ignored",
							  message->from, message->node);
		return;
	}
#endif
	claim = note_claim(roster, now, message, out);
	if (!claim)
		return;
	tell(roster, claim, judge_claim(roster, claim, now, proposer, out),
		 claim->node == roster->self ? roster->self : 0, now, shard_proposer_decided(proposer),
		 out);
}

void
shard_roster_called_back(ShardRoster *roster, int64 now, const ShardControl *message,
						 ShardProposer *proposer, ShardActions *out)
{
	int32 node = message->node != 0 ? message->node : message->from;

	if (message->token != 0)
		shard_roster_joiner_answered(roster, message);
	if (message->token != 0 || (message->uuid2.high == 0 && message->uuid2.low == 0))
		return;
	/* Its address may be what changes. */
	if (shard_roster_pending(proposer, SHARD_MAP_MEMBER, node))
		return;
	note_found(roster, now, node, message->uuid2);
	for (int i = 0; i < roster->n_claims; i++)
	{
		RosterClaim *claim = &roster->claims[i];

		if (claim->node != node)
			continue;
		claim->callback = shard_record_uuid_equal(claim->uuid, message->uuid2)
							  ? SHARD_CALLBACK_SAME
							  : SHARD_CALLBACK_OTHER;
		if (claim->callback == SHARD_CALLBACK_OTHER)
			claim->next_ask = now + SHARD_RETRY_INTERVAL;
	}
	shard_roster_judge(roster, now, proposer, out);
}

void
shard_roster_judge(ShardRoster *roster, int64 now, ShardProposer *proposer, ShardActions *out)
{
	for (int i = roster->n_claims - 1; i >= 0; i--)
	{
		RosterClaim *claim = &roster->claims[i];
		ShardAdmission verdict;

		if (now - claim->seen > ROSTER_CLAIM_PATIENCE)
		{
			drop_claim(roster, i);
			continue;
		}
		verdict = judge_claim(roster, claim, now, proposer, out);
		if (verdict != SHARD_ADMISSION_GRANTED)
			continue;
		if (claim->proposed)
			tell(roster, claim, verdict, claim->node, now, shard_proposer_decided(proposer), out);
		drop_claim(roster, i);
	}
}

bool
shard_roster_displaces(const ShardRoster *roster, int32 node)
{
	for (int i = 0; i < roster->n_claims; i++)
	{
		const RosterClaim *claim = &roster->claims[i];

		if (claim->node == node && (claim->forced || (claim->kind == SHARD_START_PROMOTED &&
													  claim->callback == SHARD_CALLBACK_SAME)))
			return true;
	}
	return false;
}

/* Is a node's place claimed in vain; and is it so by the one at its address, if *there? */
static bool
is_claimed(const ShardRoster *roster, int32 node, bool *there)
{
	bool claimed = false;

	*there = false;
	for (int i = 0; i < roster->n_claims; i++)
	{
		const RosterClaim *claim = &roster->claims[i];

		if (claim->node != node || !claim->refused)
			continue;
		claimed = true;
		*there |= claim->callback == SHARD_CALLBACK_SAME;
	}
	return claimed;
}

int
shard_roster_claimed(const ShardRoster *roster, bool there, int32 *nodes)
{
	int count = 0;

	for (int i = 0; i < roster->n_claims; i++)
	{
		int32 node = roster->claims[i].node;
		bool confirmed;
		bool known = !is_claimed(roster, node, &confirmed) || confirmed != there;

		for (int j = 0; j < count && !known; j++)
			known = nodes[j] == node;
		if (!known)
			nodes[count++] = node;
	}
	return count;
}

/* Of two that claim the node, the one that sits at its address is meant. */
bool
shard_roster_admit(ShardRoster *roster, int64 now, int32 node, ShardProposer *proposer,
				   const char **why)
{
	RosterClaim *chosen = NULL;
	ShardMemberRecord record;
	const ShardMapEntry *entry;
	ShardClaim said;
	ShardAdmission verdict;
	int claims = 0;

	shard_arena_reset(roster->arena);
	*why = "no incarnation of that node asks to be admitted";
	if (shard_proposer_office(proposer) != SHARD_OFFICE_HELD)
		return false;
	if (shard_roster_record(roster, shard_proposer_decided(proposer), node, &record) &&
		record.status == SHARD_MEMBER_DOWN)
		*why = "its present start was downed, and no other one asks to be admitted";
	for (int i = 0; i < roster->n_claims; i++)
	{
		RosterClaim *claim = &roster->claims[i];

		if (claim->node != node || now - claim->seen > ROSTER_CLAIM_PATIENCE)
			continue;
		claims++;
		if (!chosen || claim->callback == SHARD_CALLBACK_SAME)
			chosen = claim;
	}
	if (!chosen)
		return false;
	*why = "two incarnations of the node ask to be admitted; stop one of them";
	if (claims > 1 && chosen->callback != SHARD_CALLBACK_SAME)
		return false;
	*why = "the node is gone for good, or this incarnation of it was downed";
	entry = shard_roster_record(roster, shard_proposer_decided(proposer), node, &record);
	said = describe_claim(roster, chosen, now, shard_proposer_decided(proposer),
						  entry ? &record : NULL);
	verdict = shard_membership_judge(entry ? &record : NULL, &said);
	if (verdict > SHARD_ADMISSION_WAIT && !shard_membership_may_force(verdict))
		return false;
	chosen->forced = true;
	return true;
}

/* One that its address has confirmed goes before others, as above. */
bool
shard_roster_admitting(const ShardRoster *roster, int32 node, ShardUuid *uuid)
{
	const RosterClaim *chosen = NULL;

	for (int i = 0; i < roster->n_claims; i++)
	{
		const RosterClaim *claim = &roster->claims[i];

		if (claim->node == node && claim->forced &&
			(!chosen || claim->callback == SHARD_CALLBACK_SAME))
			chosen = claim;
	}
	if (chosen)
		*uuid = chosen->uuid;
	return chosen != NULL;
}
