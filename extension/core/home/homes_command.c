/*
 * core/home/homes_command.c
 *		What operators want of shards, and which of them wait for the end.
 *
 * Everything that waits here is volatile: when the office is lost it is forgotten, and those that wait
 * are told that the end is not known. What was decided stays decided; the views show it.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/home/homes_plan.h"
#include "core/member/membership.h"
#include "core/base/text.h"

/* Commands that wait at the same time; more are refused. */
#define MAX_WAITERS 1000

/* ---- askers that wait ------------------------------------------------------------------------- */

/* shard -1: a round of rebalancing. NULL: too many wait. */
static HomesWaiter *
add_waiter(ShardHomes *homes, const ShardCommand *command, int32 shard)
{
	HomesWaiter *waiter;
	size_t size = sizeof(HomesWaiter) * (homes->n_waiters + 1);

	if (homes->n_waiters == MAX_WAITERS)
		return NULL;
	homes->waiters = homes->waiters ? repalloc(homes->waiters, size) : palloc(size);
	waiter = &homes->waiters[homes->n_waiters++];
	memset(waiter, 0, sizeof(*waiter));
	waiter->asker = command->asker;
	waiter->key = (ShardShardKey){command->type_id, shard};
	if (command->text)
		shard_text_copy(waiter->who, command->text, sizeof(waiter->who));
	return waiter;
}

/* The end of the command at that place of the list. */
static void
answer(ShardHomes *homes, int at, bool good, const char *why)
{
	size_t size = sizeof(ShardHomesAnswer) * (homes->n_answers + 1);
	ShardHomesAnswer *end;

	homes->answers = homes->answers ? repalloc(homes->answers, size) : palloc(size);
	end = &homes->answers[homes->n_answers++];
	memset(end, 0, sizeof(*end));
	end->asker = homes->waiters[at].asker;
	end->good = good;
	end->number = homes->waiters[at].number;
	if (!good)
		shard_text_copy(end->why, why, sizeof(end->why));
	homes->n_waiters--;
	memmove(&homes->waiters[at], &homes->waiters[at + 1],
			sizeof(HomesWaiter) * (homes->n_waiters - at));
}

bool
shard_homes_next_answer(ShardHomes *homes, ShardHomesAnswer *end)
{
	if (homes->n_answers == 0)
		return false;
	*end = homes->answers[0];
	homes->n_answers--;
	memmove(&homes->answers[0], &homes->answers[1], sizeof(ShardHomesAnswer) * homes->n_answers);
	return true;
}

void
shard_homes_lose_office(ShardHomes *homes)
{
	while (homes->n_waiters > 0)
	{
		answer(homes, 0, false,
			   "the coordinator has changed meanwhile: perhaps the command is carried out all "
			   "the same");
		homes->answers[homes->n_answers - 1].unknown = true;
	}
}

/* ---- moves ------------------------------------------------------------------------------------ */

void
shard_homes_move_ended(ShardHomes *homes, const HomesShard *shard, bool good, const char *why)
{
	for (int i = homes->n_waiters - 1; i >= 0; i--)
	{
		const HomesWaiter *waiter = &homes->waiters[i];

		if (waiter->begun && SHARD_SHARD_KEY_EQUAL(NULL, waiter->key, shard->key))
			answer(homes, i, good, why);
	}
}

/* May the move that an operator wants begin later, though not now? */
static bool
may_begin_later(const HomesShard *shard, const ShardRoster *roster, int64 now, int64 deadline)
{
	return now < deadline &&
		   (shard->move != SHARD_MOVE_NONE ||
			(!shard->confirmed && shard_roster_reachable(roster, shard->node, now)));
}

/* Begin the move of one waiter, if it can begin now. */
static ShardHomesResult
serve(ShardHomes *homes, int64 now, HomesWaiter *waiter, const ShardRoster *roster,
	  const char **why)
{
	HomesShard *shard = homes_shard_lookup(homes->shards, waiter->key);

	*why = "the shard has no home yet";
	if (!shard)
		return SHARD_HOMES_REFUSED;
	if (shard->move == SHARD_MOVE_NONE && shard->node == waiter->to)
		return SHARD_HOMES_DONE;
	waiter->begun = shard_homes_begin_move(homes, now, shard, waiter->to,
										   SHARD_HOME_REASON_OPERATOR, waiter->who, roster, why);
	if (waiter->begun || may_begin_later(shard, roster, now, waiter->deadline))
		return SHARD_HOMES_WAITS;
	return SHARD_HOMES_REFUSED;
}

void
shard_homes_serve(ShardHomes *homes, int64 now, const ShardRoster *roster)
{
	for (int i = homes->n_waiters - 1; i >= 0; i--)
	{
		HomesWaiter *waiter = &homes->waiters[i];
		ShardHomesResult result;
		const char *why;

		if (waiter->begun || waiter->key.shard < 0)
			continue;
		result = serve(homes, now, waiter, roster, &why);
		if (result != SHARD_HOMES_WAITS)
			answer(homes, i, result == SHARD_HOMES_DONE, why);
	}
}

ShardHomesResult
shard_homes_move(ShardHomes *homes, int64 now, const ShardCommand *command,
				 const ShardRoster *roster, ShardActions *out, const char **why)
{
	HomesWaiter *waiter;
	ShardHomesResult result;

	shard_homes_begin(homes, now, out);
	waiter = add_waiter(homes, command, command->shard);
	*why = "too many commands wait for moves";
	if (!waiter)
		return SHARD_HOMES_REFUSED;
	waiter->to = command->node;
	waiter->deadline = now + homes->settings.handoff_timeout + SHARD_PREPARE_TIMEOUT;
	result = serve(homes, now, waiter, roster, why);
	if (result != SHARD_HOMES_WAITS)
		homes->n_waiters--;
	return result;
}

/* ---- rounds of rebalancing -------------------------------------------------------------------- */

void
shard_homes_round_ended(ShardHomes *homes, int32 type_id, int64 number)
{
	for (int i = homes->n_waiters - 1; i >= 0; i--)
	{
		HomesWaiter *waiter = &homes->waiters[i];

		if (waiter->key.shard >= 0 || (waiter->key.type_id != 0 && waiter->key.type_id != type_id))
			continue;
		waiter->number += number;
		if (--waiter->n_pending <= 0)
			answer(homes, i, true, NULL);
	}
}

ShardHomesResult
shard_homes_rebalance(ShardHomes *homes, int64 now, const ShardCommand *command,
					  const ShardRoster *roster, ShardActions *out, int64 *number, const char **why)
{
	int32 type_id = command->type_id;
	HomesWaiter *waiter;
	ShardTypeRecord type;
	int n_pending;

	shard_homes_begin(homes, now, out);
	*number = 0;
	*why = "there is no such type";
	if (type_id != 0 && !shard_homes_type(homes, type_id, &type))
		return SHARD_HOMES_REFUSED;
	*number = shard_homes_round(homes, now, type_id, command->text, roster, &n_pending);
	if (type_id == 0)
		homes->rebalanced = 0;
	if (homes->rebalanced == 0)
		homes->next_rebalance = shard_homes_next_rebalance(homes, now);
	if (n_pending == 0)
		return SHARD_HOMES_DONE;
	waiter = add_waiter(homes, command, -1);
	*why = "too many commands wait for moves";
	if (!waiter)
		return SHARD_HOMES_REFUSED;
	waiter->n_pending = n_pending;
	waiter->number = *number;
	return SHARD_HOMES_WAITS;
}

/* ---- acts that are decided at once ------------------------------------------------------------ */

void
shard_homes_note_who(ShardHomes *homes, int32 node, const char *who)
{
	shard_text_copy(shard_homes_node(homes, node)->who, who ? who : "", HOMES_WHO);
}

/* Remember which operator wants a pin, or an end of it. */
static void
note_pin(ShardHomes *homes, ShardShardKey key, bool pinned, const char *who)
{
	HomesPinNote *note;

	if (homes->n_pin_notes == HOMES_MAX_PIN_NOTES)
		memmove(&homes->pin_notes[0], &homes->pin_notes[1],
				--homes->n_pin_notes * sizeof(HomesPinNote));
	note = &homes->pin_notes[homes->n_pin_notes++];
	note->key = key;
	note->pinned = pinned;
	shard_text_copy(note->who, who ? who : "", sizeof(note->who));
}

bool
shard_homes_pin(ShardHomes *homes, int64 now, const ShardCommand *command, ShardProposer *proposer,
				ShardActions *out, const char **why)
{
	ShardMapKey key = {SHARD_MAP_PIN, command->type_id, command->shard};
	int32 node = command->node;
	const ShardMapEntry *known;
	const ShardMapEntry *tombstone;
	ShardMapEntry change = {.key = key, .deleted = true};
	ShardMemberRecord member;
	ShardTypeRecord type;

	shard_homes_begin(homes, now, out);
	*why = "there is no such shard";
	if (!shard_homes_type(homes, key.a, &type) || key.b < 0 || key.b >= type.number_of_shards)
		return false;
	*why = "the node is no member of the cluster";
	if (node != 0 &&
		(!shard_homes_member(homes, node, &member) ||
		 (!shard_membership_is_member(member.status) && member.status != SHARD_MEMBER_DOWN)))
		return false;
	known = shard_map_value(homes->decided, key);
	tombstone = shard_map_find(homes->decided, key);
	*why = "another change of the pin is being decided; try again";
	if (shard_proposer_pending(proposer, key))
		return false;
	if (known ? shard_record_get_pin(known) == node : node == 0)
		return true;
	change.n = tombstone ? tombstone->n : 0;
	if (node != 0)
		change = shard_record_put_pin(key.a, key.b, node, change.n, homes->arena);
	if (!shard_proposer_propose(proposer, &change, 1))
		return false;
	note_pin(homes, (ShardShardKey){key.a, key.b}, node != 0, command->text);
	return true;
}

bool
shard_homes_give_up(ShardHomes *homes, int64 now, const ShardCommand *command,
					ShardProposer *proposer, const ShardRoster *roster, ShardActions *out,
					const char **why)
{
	HomesShard *shard;

	shard_homes_begin(homes, now, out);
	shard = shard_homes_shard(homes, command->type_id, command->shard);
	if (!shard || (shard->move != SHARD_MOVE_NONE && shard->move != SHARD_MOVE_STARTING))
		*why = "the shard has no home, or is moving";
	else if (shard->confirmed)
		*why = "the shard runs at its home";
	else if (!shard_roster_reachable(roster, shard->node, now))
		*why = "the shard's home cannot be reached: it is not known whether the shard runs there";
	else if (shard->asked == 0 || now - shard->asked < SHARD_RETRY_INTERVAL)
		*why = "the shard's home was asked just now whether it runs; try again";
	else
	{
		*why = "another change of the shard is being decided; try again";
		return shard_homes_replace(homes, shard, shard->node, SHARD_EPOCH_LEAP, NULL, proposer);
	}
	return false;
}
