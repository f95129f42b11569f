/*
 * core/member/roster_states.c
 *		A node that is alone takes the homes of all shards that it has states of, before it lets a joiner in (C21).
 *
 * States that a dump or SQL brought are of shards that no message was sent to yet, so they have no home. Once there are two
 * nodes such a shard may get it at the other one, where its entities would begin without their states. Only the host knows
 * which shards have states: it is asked for some at a time, in their order, and the next ones are asked for when the homes of
 * these are decided. Nothing of it is durable but the homes: a new coordinator begins the pass again.
 *
 * What is in the way, mostly a locked table, puts the pass off where it is, and it goes on from there: otherwise a user who
 * locks a table now and then would have the pass start over each time and never end. No shard is missed of which there were
 * states before the pass began: those before the place were looked at in this pass and have homes; those behind it are still to
 * be looked at; and a type that is dropped and made again gets a number above all others, so it lies behind. What was brought
 * behind the back of the pass is found by the next one: so a pass that is held up by something and older than PASS_AGE starts
 * over.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/era.h"
#include "core/member/roster_private.h"
#include "core/base/text.h"

/* How long it counts that all had homes: longer than a joiner takes to ask again. */
#define STATES_FRESH (3 * SHARD_RESEND_INTERVAL)

/* An answer that does not come is asked for again: the host may have restarted. */
#define STATES_PATIENCE (60 * SHARD_SECOND)

/*
 * What SQL brings to shards that were looked at is found by the next pass: so old may be what was seen first, where something
 * was in the way. Many times as long as it takes to find a table free that is locked now and then.
 */
#define PASS_AGE (30 * SHARD_SECOND)

/* From the first shard on, at that time. */
static void
begin(RosterStates *states, int64 at, const char *why, bool refused)
{
	states->going = true;
	states->done = false;
	states->began = at;
	states->after = states->last = (ShardShardKey){0, -1};
	states->next_ask = at;
	shard_text_copy(states->why, why, sizeof(states->why));
	states->refused = refused;
}

/* Something is in the way: later, from there on. */
static void
put_off(RosterStates *states, int64 now, const char *why)
{
	int64 at = now + SHARD_RESEND_INTERVAL;

#ifdef SHARD_MUTANT_STATES_FROM_THE_FIRST
	begin(states, at, why, false);
	return;
#endif
#ifndef SHARD_MUTANT_STATES_OF_LONG_AGO
	if (now - states->began > PASS_AGE)
		begin(states, at, why, false);
#endif
	states->next_ask = at;
	states->refused = false;
	shard_text_copy(states->why, why, sizeof(states->why));
}

bool
shard_roster_states_have_homes(ShardRoster *roster, int64 now, const ShardMap *decided)
{
	RosterStates *states = &roster->states;

#ifdef SHARD_MUTANT_STATES_WITHOUT_HOMES
	return true;
#endif
	if (!shard_roster_is_alone(roster, decided, roster->self) ||
		(states->done && now - states->done_at <= STATES_FRESH))
		return true;
	states->wanted_at = now;
	if (!states->going)
		begin(states, now, "", false);
	return false;
}

void
shard_roster_states_tick(ShardRoster *roster, int64 now, const ShardProposer *proposer,
						 ShardActions *out)
{
	RosterStates *states = &roster->states;
	ShardMapKey last = {SHARD_MAP_HOME, states->last.type_id, states->last.shard};
	ShardAction *action;

	/* No node wants to join any more. While the host reads it hears no joiner. */
#ifdef SHARD_MUTANT_LATE_STATES_FORGOTTEN
	if (now - states->wanted_at > ROSTER_CLAIM_PATIENCE)
		states->going = false;
#endif
	if (now - states->wanted_at > ROSTER_CLAIM_PATIENCE && now >= states->next_ask)
		states->going = false;
	if (!states->going || now < states->next_ask || shard_proposer_pending(proposer, last))
		return;
	states->next_ask = now + STATES_PATIENCE;
	action = shard_action_add(out, SHARD_ACTION_STATES);
	action->token = ++states->number;
	action->shard.type_id = states->after.type_id;
	action->shard.shard = states->after.shard;
}

/*
 * A home here for a shard that has states and no home. False: that cannot be said now.
 */
static bool
take_home(const ShardRoster *roster, const ShardShardRef *shard, int32 replicas,
		  ShardProposer *proposer)
{
	const ShardMap *decided = shard_proposer_decided(proposer);
	ShardMapKey key = {SHARD_MAP_HOME, shard->type_id, shard->shard};
	ShardHomeRecord home = {.n_nodes = 1, .want = replicas + 1, .reason = SHARD_HOME_REASON_STATES};
	ShardMapEntry change;

	if (shard_map_value(decided, key) || shard_proposer_pending(proposer, key))
		return true;
	home.nodes[0] = roster->self;
	home.epoch = home.lost = shard_era_first_epoch(shard_map_point(decided).n);
	change = shard_record_put_home(shard->type_id, shard->shard, &home, 0, roster->arena);
	return shard_proposer_propose(proposer, &change, 1);
}

/* A type's numbers; all zero: it is about to go, or is no type. */
static ShardTypeRecord
read_type(const ShardProposer *proposer, int32 type_id)
{
	ShardMapKey key = {SHARD_MAP_TYPE, type_id, 0};
	const ShardMapEntry *entry = shard_map_value(shard_proposer_decided(proposer), key);
	ShardTypeRecord type = {0};

	if (entry && !shard_proposer_pending(proposer, key))
		(void) shard_record_get_type(entry, &type, NULL);
	return type;
}

/* Homes for all that have none. NULL, or why not now. */
static const char *
take_homes(ShardRoster *roster, const ShardShardRef *shards, int n_shards, ShardProposer *proposer)
{
	ShardTypeRecord type = {0};

	for (int i = 0; i < n_shards; i++)
	{
		if (i == 0 || shards[i].type_id != shards[i - 1].type_id)
			type = read_type(proposer, shards[i].type_id);
		if (type.number_of_shards == 0)
			return "an entity type is being changed there";
		/* No entity has a shard beyond them. */
		if (shards[i].shard >= 0 && shards[i].shard < type.number_of_shards)
		{
#ifdef SHARD_MUTANT_STATES_PASSED_OVER
			if (i > 0)
				continue;
#endif
			if (!take_home(roster, &shards[i], type.replicas, proposer))
				return "other homes are being decided there";
			roster->states.last = (ShardShardKey){shards[i].type_id, shards[i].shard};
		}
		roster->states.after = (ShardShardKey){shards[i].type_id, shards[i].shard};
	}
	return NULL;
}

void
shard_roster_states(ShardRoster *roster, int64 now, const ShardStatesAnswer *answer,
					ShardProposer *proposer)
{
	RosterStates *states = &roster->states;
	const char *why;

	if (!states->going || answer->token != states->number ||
		shard_proposer_office(proposer) != SHARD_OFFICE_HELD)
		return;
	shard_arena_reset(roster->arena);
	why = take_homes(roster, answer->shards, answer->n_shards, proposer);
	if (!why)
		why = answer->why;
	if (why)
	{
		if (answer->why && answer->refuse)
			begin(states, now + SHARD_RESEND_INTERVAL, why, true);
		else
			put_off(states, now, why);
		return;
	}
	states->refused = false;
#ifndef SHARD_MUTANT_LATE_STATES_FORGOTTEN
	/*
	 * A host that reads for long has heard no joiner meanwhile: a joiner that waited is to be heard before
	 * its wish is forgotten.
	 */
	states->wanted_at = now;
#endif
	states->next_ask = now;
	states->why[0] = '\0';
	/* What is proposed after them is decided after them, or with them. */
	if (answer->end)
	{
		states->going = false;
		states->done = true;
		states->done_at = now;
	}
}

const char *
shard_roster_states_why(const ShardRoster *roster)
{
	return roster->states.why[0] != '\0' ? roster->states.why
										 : "the coordinator takes the homes of its states";
}

bool
shard_roster_states_refuse(ShardRoster *roster)
{
	RosterStates *states = &roster->states;

#ifdef SHARD_MUTANT_STATES_OF_NO_TYPE
	return false;
#endif
	if (!states->refused)
		return false;
	states->going = states->refused = false;
	return true;
}
