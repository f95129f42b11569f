/*
 * core/member/roster_join.c
 *		Nodes that join (R16). Whether they are where they say: roster_newcomer.c; their incarnations: roster_claim.c.
 *
 * A joiner gets a node id for its token, and is a stranger until its incarnation is admitted like any
 * other. It repeats what it wants until it gets it, so that an answer need not be kept until its
 * decision has come: it is given when it asks again.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/membership.h"
#include "core/member/roster_private.h"
#include "core/map/type_number.h"

/* ---- joining ------------------------------------------------------------------------------------ */

/*
 * Answer a JOIN over the link it came by. The cluster's id is the node's to fill in, as in each
 * message's header.
 */
static ShardControl *
join_reply(const ShardControl *message, ShardActions *out)
{
	ShardControl *reply = shard_action_send(out, 0, SHARD_CONTROL_JOIN_REPLY);

	reply->uuid = message->cluster;
	reply->uuid2 = message->uuid;
	return reply;
}

static void
refuse_join(const ShardControl *message, const char *why, ShardActions *out)
{
	join_reply(message, out)->text = shard_arena_copy(out->arena, why, strlen(why) + 1);
}

/* It is not refused, and is to ask on. */
static void
put_off(const ShardControl *message, const char *why, ShardActions *out)
{
	ShardControl *reply = join_reply(message, out);

	reply->waits = 1;
	reply->text = shard_arena_copy(out->arena, why, strlen(why) + 1);
}

/*
 * The joiner's record, the first of the entries. False: there is none.
 */
static bool
get_joiner(const ShardRoster *roster, const ShardControl *message, ShardMemberRecord *joiner)
{
	return message->n_entries > 0 && message->entries[0].key.kind == SHARD_MAP_MEMBER &&
		   shard_record_get_member(&message->entries[0], joiner, roster->arena);
}

/* The node id that a joiner gets: one that no node ever had. */
static int32
next_node_id(const ShardRoster *roster, const ShardMap *decided,
			 const ShardCountersRecord *counters)
{
#ifdef SHARD_MUTANT_NODE_ID_REUSED
	for (int32 node = 1; node <= counters->last_node_id; node++)
	{
		ShardMemberRecord record;

		if (!shard_roster_record(roster, decided, node, &record) ||
			record.status == SHARD_MEMBER_REMOVED || record.status == SHARD_MEMBER_WRITTEN_OFF)
			return node;
	}
#endif
	(void) roster;
	(void) decided;
	return counters->last_node_id + 1;
}

/*
 * Is a node id left? They are part of ballots, and one that is too large would be taken for another
 * one (R18).
 */
static bool
has_node_id(const ShardMap *decided)
{
	const ShardMapEntry *entry = shard_map_value(decided, (ShardMapKey){SHARD_MAP_COUNTERS, 0, 0});
	ShardCountersRecord counters;

	return entry && shard_record_get_counters(entry, &counters) &&
		   counters.last_node_id < SHARD_MAX_NODE_ID;
}

/*
 * Allot a node id to the joiner's token, as one change with the counter. If another joiner is about to
 * get that id the change fails, and this one is served when it asks again.
 */
static void
allot(ShardRoster *roster, const ShardControl *message, const ShardMemberRecord *joiner,
	  ShardProposer *proposer)
{
	const ShardMap *decided = shard_proposer_decided(proposer);
	const ShardMapEntry *entry = shard_map_value(decided, (ShardMapKey){SHARD_MAP_COUNTERS, 0, 0});
	const ShardMapEntry *former;
	ShardCountersRecord counters;
	ShardMemberRecord record = *joiner;
	ShardMapEntry changes[2];
	int32 node;

	if (!entry || !shard_record_get_counters(entry, &counters))
		return;
	node = next_node_id(roster, decided, &counters);
	counters.last_node_id = Max(counters.last_node_id, node);
	record.status = SHARD_MEMBER_NONE;
	(void) shard_membership_step(&record, SHARD_MEMBERSHIP_JOIN);
	record.inc_no = 0;
	record.inc_uuid = (ShardUuid){0, 0};
	record.join_token = message->uuid;
	record.age = 0;
	record.protocol_version = message->protocol_version;
	former = shard_map_find(decided, (ShardMapKey){SHARD_MAP_MEMBER, node, 0});
	changes[0] = shard_record_put_member(node, &record, former ? former->n : 0, roster->arena);
	changes[1] = shard_record_put_counters(&counters, entry->n, roster->arena);
	(void) shard_proposer_propose(proposer, changes, 2);
}

/*
 * Members that look for the map in different places would be two clusters. NULL: the joiner looks where
 * this coordinator does.
 */
static const char *
judge_store_mode(const ShardRoster *roster, const ShardControl *message)
{
	bool journal = roster->settings.journal_node != 0;

	if (message->store_mode == SHARD_STORE_MODE_UNSAID ||
		(message->store_mode == SHARD_STORE_MODE_JOURNAL) == journal)
		return NULL;
	return journal
			   ? "\"shard.state_store_mode\" is \"persistence\" in the cluster, \"ddata\" on the node"
			   : "\"shard.state_store_mode\" is \"ddata\" in the cluster, \"persistence\" on the node";
}

/* What costs nothing to see, of a joiner that was not called back yet. NULL, or why it gets no number. */
static const char *
judge_claims(ShardRoster *roster, const ShardControl *message, const ShardMemberRecord *joiner,
			 const ShardMap *decided)
{
	const char *why;

#ifndef SHARD_MUTANT_JOINERS_OF_ANY_SIZE
	if (message->entries[0].length > ROSTER_MAX_SETTINGS)
		return "address, version and roles of the node are too long";
#endif
	why = shard_type_number_bounds(&message->entries[1], message->n_entries - 1, roster->arena);
	if (!why)
		why = judge_store_mode(roster, message);
	if (!why)
		why = shard_membership_judge_join(decided, message->protocol_version, joiner, message->flag,
										  roster->arena);
	if (!why && !has_node_id(decided))
		why = "the cluster has given all its node ids";
	if (!why)
		why = shard_roster_why_full(roster, decided);
	if (!why && (!joiner->dsn || joiner->dsn[0] == '\0'))
		why = "the node does not say its address";
	return why;
}

/* Its types, which are compared with all of the cluster. */
static const char *
judge_types(const ShardRoster *roster, const ShardControl *message, const ShardMap *decided)
{
	const char *why = shard_membership_judge_types(decided, &message->entries[1],
												   message->n_entries - 1, roster->arena);

	if (!why)
		why = shard_type_number_judge(decided, &message->entries[1], message->n_entries - 1,
									  roster->live->owners_may_share, roster->arena);
	return why;
}

/* Give a number to a node that asks for the first time, refuse it, or have it ask on. */
static void
judge_joiner(ShardRoster *roster, int64 now, const ShardControl *message, ShardProposer *proposer,
			 ShardActions *out)
{
	const ShardMap *decided = shard_proposer_decided(proposer);
	ShardMemberRecord joiner;
	const char *why;
	bool found;

	if (!get_joiner(roster, message, &joiner))
	{
		refuse_join(message, "the node does not describe itself", out);
		return;
	}
	why = judge_claims(roster, message, &joiner, decided);
#ifdef SHARD_MUTANT_TYPES_BEFORE_CALL
	if (!why)
		why = judge_types(roster, message, decided);
#endif
	found = !why && shard_roster_is_found(roster, now, message, joiner.dsn, &why, out);
	if (found)
	{
		why = judge_types(roster, message, decided);
		/*
		 * Each judgement costs a call back: a node that repeats what was refused is judged as a new
		 * joiner.
		 */
		if (why)
			shard_roster_forget_join(roster, message->uuid);
	}
	if (why)
		refuse_join(message, why, out);
	else if (found && shard_roster_states_have_homes(roster, now, decided))
		allot(roster, message, &joiner, proposer);
	else if (found && shard_roster_states_refuse(roster))
		refuse_join(message, shard_roster_states_why(roster), out);
	else if (found)
		put_off(message, shard_roster_states_why(roster), out);
}

void
shard_roster_join(ShardRoster *roster, int64 now, const ShardControl *message,
				  ShardProposer *proposer, ShardActions *out)
{
	const ShardMap *decided = shard_proposer_decided(proposer);
	int32 node = shard_membership_find_token(decided, message->uuid, roster->arena);
	ShardMemberRecord joiner;
	ShardControl *reply;

	if (message->uuid.high == 0 && message->uuid.low == 0)
		return;
	if (node == 0)
	{
		judge_joiner(roster, now, message, proposer, out);
		return;
	}
	shard_roster_forget_join(roster, message->uuid);
	(void) shard_roster_record(roster, decided, node, &joiner);
	if (!shard_membership_is_member(joiner.status) && joiner.status != SHARD_MEMBER_DOWN)
	{
		refuse_join(message, "the node that this join made is gone; join again", out);
		return;
	}
	reply = join_reply(message, out);
	reply->flag = true;
	reply->node = node;
}
