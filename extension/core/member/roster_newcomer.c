/*
 * core/member/roster_newcomer.c
 *		Joiners before they have a number, and after it until they are admitted (I17).
 *
 * A number is for good, every member calls each node that has one, and a node that may call can ask for as many as it likes.
 * So a node that asks is called back first, few are looked after at a time, and a number with which no joiner comes is given
 * up without an operator. Nothing of it is durable: joiners repeat what they want, and a new coordinator starts to wait from
 * its own beginning.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/roster_private.h"
#include "core/base/text.h"

/* ---- before ------------------------------------------------------------------------------------ */

static void
drop_join(ShardRoster *roster, int at)
{
	pfree(roster->joins[at].dsn);
	roster->n_joins--;
	memmove(&roster->joins[at], &roster->joins[at + 1],
			sizeof(RosterJoin) * (roster->n_joins - at));
}

void
shard_roster_forget_join(ShardRoster *roster, ShardUuid token)
{
	for (int i = roster->n_joins - 1; i >= 0; i--)
	{
		if (shard_record_uuid_equal(roster->joins[i].token, token))
			drop_join(roster, i);
	}
}

/* Drop the joins that are not repeated any more. */
static void
drop_silent_joins(ShardRoster *roster, int64 now)
{
	for (int i = roster->n_joins - 1; i >= 0; i--)
	{
		if (now - roster->joins[i].seen > ROSTER_CLAIM_PATIENCE)
			drop_join(roster, i);
	}
}

/* What is known of a joiner that asks again, or for the first time. NULL: there are too many. */
static RosterJoin *
note_join(ShardRoster *roster, int64 now, const ShardControl *message, const char *dsn)
{
	RosterJoin *join = NULL;

	for (int i = 0; i < roster->n_joins && !join; i++)
	{
		if (shard_record_uuid_equal(roster->joins[i].token, message->uuid))
			join = &roster->joins[i];
	}
	if (!join)
	{
		drop_silent_joins(roster, now);
		if (roster->n_joins == ROSTER_MAX_JOINS)
			return NULL;
		join = &roster->joins[roster->n_joins++];
		memset(join, 0, sizeof(*join));
		join->token = message->uuid;
		join->dsn = pstrdup(dsn);
		join->since = now;
		join->next_ask = now;
	}
	if (join->number == 0 || !shard_record_uuid_equal(join->incarnation, message->uuid2) ||
		strcmp(join->dsn, dsn) != 0)
	{
		/*
		 * Answers to what was asked of an earlier start, elsewhere, or by an earlier office, are not about
		 * this one. It is asked no sooner for that: otherwise a caller that names another start each time
		 * would have as many calls made.
		 */
		join->number = roster->join_number = Max(roster->join_number + 1, now);
		join->incarnation = message->uuid2;
		pfree(join->dsn);
		join->dsn = pstrdup(dsn);
		join->callback = SHARD_CALLBACK_NONE;
	}
	join->seen = now;
	return join;
}

/* Why a joiner gets no number that was called in vain. */
static const char *
why_not_found(const ShardRoster *roster, const RosterJoin *join, const char *dsn)
{
	char text[700];

	if (join->callback == SHARD_CALLBACK_OTHER)
		snprintf(text, sizeof(text),
				 "another node answers the coordinator, node %d, " SHARD_JOIN_ELSEWHERE_WHY
				 ", \"%.*s\"",
				 roster->self, shard_text_fit(dsn, 200), dsn);
	else
		snprintf(text, sizeof(text),
				 "the coordinator, node %d, " SHARD_JOIN_UNREACHED_WHY ", \"%.*s\": %s",
				 roster->self, shard_text_fit(dsn, 200), dsn,
				 join->error[0] != '\0' ? join->error : "no answer");
	return shard_arena_copy(roster->arena, text, strlen(text) + 1);
}

bool
shard_roster_is_found(ShardRoster *roster, int64 now, const ShardControl *message, const char *dsn,
					  const char **why, ShardActions *out)
{
	RosterJoin *join = note_join(roster, now, message, dsn);
	ShardAction *action;

	*why = NULL;
#ifdef SHARD_MUTANT_JOINS_UNASKED
	return true;
#endif
	if (!join)
	{
		char text[120];

		snprintf(text, sizeof(text), "%d other nodes are about to join, which " SHARD_JOIN_BUSY_WHY,
				 ROSTER_MAX_JOINS);
		*why = shard_arena_copy(roster->arena, text, strlen(text) + 1);
		return false;
	}
	if (join->callback == SHARD_CALLBACK_SAME)
		return true;
	if (now - join->since >= ROSTER_JOIN_PATIENCE)
	{
		*why = why_not_found(roster, join, dsn);
		shard_roster_forget_join(roster, message->uuid);
		return false;
	}
	if (now < join->next_ask)
		return false;
	join->next_ask = now + SHARD_RESEND_INTERVAL;
	action = shard_action_add(out, SHARD_ACTION_WHO_AT);
	action->uuid = join->token;
	action->token = join->number;
	action->text = shard_arena_copy(out->arena, dsn, strlen(dsn) + 1);
	return false;
}

void
shard_roster_joiner_answered(ShardRoster *roster, const ShardControl *message)
{
	for (int i = 0; i < roster->n_joins; i++)
	{
		RosterJoin *join = &roster->joins[i];

		if (join->number != message->token)
			continue;
		shard_text_copy(join->error, message->text ? message->text : "", sizeof(join->error));
		if (message->text)
			join->callback = SHARD_CALLBACK_NONE;
		else
			join->callback =
				message->flag && shard_record_uuid_equal(join->incarnation, message->uuid2)
					? SHARD_CALLBACK_SAME
					: SHARD_CALLBACK_OTHER;
	}
}

/* ---- after ------------------------------------------------------------------------------------- */

/* Has the member a number, and was never admitted under it? */
static bool
is_newcomer(const ShardMemberRecord *record)
{
	return record->status == SHARD_MEMBER_JOINING && record->inc_no == 0;
}

const char *
shard_roster_why_full(const ShardRoster *roster, const ShardMap *decided)
{
	int count;
	int members = 0;
	int newcomers = 0;
	ShardMapEntry *entries = shard_map_list(decided, SHARD_MAP_MEMBER, roster->arena, &count);
	char text[200];

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord record;

		if (!shard_record_get_member(&entries[i], &record, roster->arena))
			continue;
		members += shard_membership_is_member(record.status) || record.status == SHARD_MEMBER_DOWN;
		newcomers += is_newcomer(&record);
	}
	if (newcomers >= SHARD_MAX_NEWCOMERS)
		snprintf(text, sizeof(text),
				 "%d nodes have joined and were never admitted, which " SHARD_JOIN_LIMIT_WHY,
				 newcomers);
	else if (members >= SHARD_MAX_MEMBERS)
		snprintf(text, sizeof(text), "the cluster has %d members, which " SHARD_JOIN_LIMIT_WHY,
				 members);
	else
		return NULL;
	return shard_arena_copy(roster->arena, text, strlen(text) + 1);
}

/* Since when this office knows of a newcomer. */
static int64
known_since(ShardRoster *roster, int64 now, int32 node)
{
	size_t size = sizeof(RosterNewcomer) * (roster->n_newcomers + 1);

	for (int i = 0; i < roster->n_newcomers; i++)
	{
		if (roster->newcomers[i].node == node)
			return roster->newcomers[i].since;
	}
	roster->newcomers = roster->newcomers ? repalloc(roster->newcomers, size) : palloc(size);
	roster->newcomers[roster->n_newcomers++] = (RosterNewcomer){node, now};
	return now;
}

void
shard_roster_expire(ShardRoster *roster, int64 now, ShardProposer *proposer, ShardActions *out)
{
	int count;
	ShardMapEntry *entries =
		shard_map_list(shard_proposer_decided(proposer), SHARD_MAP_MEMBER, roster->arena, &count);

	drop_silent_joins(roster, now);
#ifdef SHARD_MUTANT_NEWCOMERS_STAY
	return;
#endif
	for (int i = 0; i < count; i++)
	{
		int32 node = entries[i].key.a;
		ShardMemberRecord record;

		if (!shard_record_get_member(&entries[i], &record, roster->arena) ||
			!is_newcomer(&record) ||
			now - known_since(roster, now, node) < SHARD_NEWCOMER_PATIENCE ||
			shard_roster_pending(proposer, SHARD_MAP_MEMBER, node) ||
			!shard_membership_step(&record, SHARD_MEMBERSHIP_WRITE_OFF))
			continue;
		if (shard_roster_propose(roster, proposer, &entries[i], &record))
			shard_action_log(out, ROSTER_WARNING,
							 "node %d has joined and was not admitted in time; it is written off",
							 node);
	}
}

void
shard_roster_forget_newcomers(ShardRoster *roster)
{
	while (roster->n_joins > 0)
		drop_join(roster, roster->n_joins - 1);
	if (roster->newcomers)
		pfree(roster->newcomers);
	roster->newcomers = NULL;
	roster->n_newcomers = 0;
}
