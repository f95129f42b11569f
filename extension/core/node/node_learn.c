/*
 * core/node/node_learn.c
 *		Decided facts: how a node learns them and keeps them (R7, T2).
 *
 * Decided maps form one chain, counted by n, so "everything up to n" says all: a delta above what is
 * known is applied, one with a gap before it is asked for again, an older one changes nothing. Facts
 * are kept durably so that a restarted node knows the other members' addresses and its homes; losing
 * the last of them in a crash is harmless, since they are learned again.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"
#include "core/node/trust_private.h"

/* The point of the learned map among its durable rows: kind 0. */
static void
write_point(ShardNode *node)
{
	ShardMapEntry entry = {0};

	entry.n = shard_map_point(node->learned).n;
	shard_action_write(node->out, SHARD_STORE_LEARNED, &entry);
}

void
shard_node_learn_tell_home(ShardNode *node, const ShardMapEntry *entry)
{
	ShardMapEntry *copy;
	ShardAction *action;

	if (shard_node_drops_type(node, entry->key.a))
		return;
	copy = shard_arena_copy(node->out->arena, entry, sizeof(ShardMapEntry));
	copy->value = shard_arena_copy(node->out->arena, entry->value, entry->length);
	action = shard_action_add(node->out, SHARD_ACTION_FACT);
	action->entry = copy;
}

void
shard_node_learn_tell(ShardNode *node)
{
	int count;
	ShardMapEntry *homes = shard_map_list(node->learned, SHARD_MAP_HOME, node->out->arena, &count);

	for (int i = 0; i < count; i++)
		shard_node_learn_tell_home(node, &homes[i]);
}

void
shard_node_learn_founded(ShardNode *node)
{
	int count;
	ShardMapEntry *entries = shard_map_since(node->learned, 0, node->out->arena, &count);

	shard_action_clear(node->out, SHARD_STORE_LEARNED);
	for (int i = 0; i < count; i++)
		shard_action_write(node->out, SHARD_STORE_LEARNED, &entries[i]);
	write_point(node);
}

void
shard_node_learn_forced(ShardNode *node)
{
	const ShardMap *state = shard_voter_map(node->voter);
	int count;
	ShardMapEntry *entries = shard_map_since(state, 0, node->out->arena, &count);
	ShardVotersRecord voters;

	shard_map_expect(node->learned, entries, count);
	for (int i = 0; i < count; i++)
		shard_map_put(node->learned, &entries[i]);
	shard_map_set_point(node->learned, shard_map_point(state));
	if (shard_record_get_voters(shard_map_value(node->learned,
												(ShardMapKey){SHARD_MAP_VOTERS, 0, 0}),
								&voters))
		node->era = voters.era;
	shard_node_trust_era_begins(node);
	shard_node_type_recount(node);
	shard_node_journal_new_era(node);
	shard_node_learn_drop_past(node);
	shard_node_write_identity(node);
	shard_node_learn_founded(node);
}

/* Tombstones that all members have passed go (R8). */
static void
purge(ShardNode *node)
{
	const ShardMapEntry *entry =
		shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_COUNTERS, 0, 0});
	ShardCountersRecord counters;
	ShardMapEntry *entries;
	int count;

	if (!entry || !shard_record_get_counters(entry, &counters) || counters.purge_n == 0)
		return;
	entries = shard_map_since(node->learned, 0, node->out->arena, &count);
	for (int i = 0; i < count && entries[i].n <= counters.purge_n; i++)
	{
		if (entries[i].deleted)
			shard_action_remove(node->out, SHARD_STORE_LEARNED, entries[i].key);
	}
	shard_map_purge(node->learned, counters.purge_n);
}

/* Is this node the home that an entry of the map says? */
static bool
is_own_home(const ShardNode *node, const ShardMapEntry *entry)
{
	ShardHomeRecord home;

	return entry && !entry->deleted && entry->key.kind == SHARD_MAP_HOME &&
		   shard_record_get_home(entry, &home) && shard_record_home_node(&home) == node->id;
}

/*
 * What waits here for a home that was this node's may have another home to go to now: whether nothing is left has
 * to be found out again (M20).
 */
static void
own_home_changed(ShardNode *node)
{
	node->own_homes++;
#ifndef SHARD_MUTANT_EMPTIED_FOR_EVER
	node->emptied = false;
#endif
}

/* Keep a decided entry, if it is news. */
static bool
learn_entry(ShardNode *node, const ShardMapEntry *entry)
{
	bool own =
		is_own_home(node, entry) || is_own_home(node, shard_map_value(node->learned, entry->key));

	if (!shard_map_learn(node->learned, entry))
		return false;
	if (own)
		own_home_changed(node);
	shard_action_write(node->out, SHARD_STORE_LEARNED, entry);
	return true;
}

/*
 * A full copy replaces what is here: keys that it lacks are dropped. True: this node's own record is
 * among them.
 */
static bool
drop_absent(ShardNode *node, const ShardMapEntry *entries, int n_entries, int64 upto_n)
{
	ShardMap *given = shard_map_create();
	bool self = false;
	int count;
	ShardMapEntry *known;

	shard_map_expect(given, entries, n_entries);
	for (int i = 0; i < n_entries; i++)
		shard_map_put(given, &entries[i]);
	known = shard_map_since(node->learned, -1, node->out->arena, &count);
	for (int i = 0; i < count; i++)
	{
		ShardMapEntry gone = known[i];

		/* What was answered ahead of this copy is newer than it. */
		if (gone.n > upto_n || shard_map_find(given, gone.key))
			continue;
		self |= gone.key.kind == SHARD_MAP_MEMBER && gone.key.a == node->id;
		if (is_own_home(node, &gone))
			own_home_changed(node);
		gone.deleted = true;
		gone.length = 0;
		gone.value = NULL;
		shard_map_put(node->learned, &gone);
		shard_action_remove(node->out, SHARD_STORE_LEARNED, gone.key);
	}
	shard_map_destroy(given);
	return self;
}

/*
 * A voter that may have forgotten promises votes again after it was removed from the voters (R12). What
 * is known must be later than the forgetting: it includes the grant of this start's incarnation.
 */
static void
readmit_voter(ShardNode *node)
{
	ShardVotersRecord voters;
	const ShardMapEntry *entry =
		shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});

	if (!node->admitted || shard_voter_state(node->voter) != SHARD_VOTER_AMNESIAC || !entry ||
		!shard_record_get_voters(entry, &voters))
		return;
	/* The voters may have changed in what was accepted and not learned yet. */
	if (shard_map_point(node->learned).n < shard_map_point(shard_voter_map(node->voter)).n)
		return;
	if (!shard_record_votes(&voters, node->id))
		shard_voter_readmit(node->voter, node->out);
}

void
shard_node_learn(ShardNode *node, const ShardMapEntry *entries, int n_entries, int64 from_n,
				 int64 upto_n)
{
	ShardMapPoint point = shard_map_point(node->learned);
	bool self = false;
	bool counters = false;

	if (from_n > point.n || upto_n <= point.n)
		return;
	if (from_n == 0)
		self = drop_absent(node, entries, n_entries, upto_n);
	shard_map_expect(node->learned, entries, n_entries);
	for (int i = 0; i < n_entries; i++)
	{
		const ShardMapEntry *entry = &entries[i];

		if (!learn_entry(node, entry))
			continue;
		if (entry->key.kind == SHARD_MAP_HOME && !entry->deleted)
			shard_node_learn_tell_home(node, entry);
		if (entry->key.kind == SHARD_MAP_TYPE)
			shard_node_type_learned(node, entry);
		self |= entry->key.kind == SHARD_MAP_MEMBER && entry->key.a == node->id;
		counters |= entry->key.kind == SHARD_MAP_COUNTERS;
	}
	point.n = upto_n;
	shard_map_set_point(node->learned, point);
	write_point(node);
	shard_node_learn_drop_past(node);
	if (counters)
		purge(node);
	if (self)
		shard_node_member_self(node);
	readmit_voter(node);
}

void
shard_node_learn_addresses(ShardNode *node, const ShardMapEntry *members, int count)
{
	shard_map_clear(node->learned);
	own_home_changed(node);
	shard_action_clear(node->out, SHARD_STORE_LEARNED);
	for (int i = 0; i < count; i++)
	{
		ShardMapEntry entry = members[i];

		if (entry.key.kind != SHARD_MAP_MEMBER)
			continue;
		entry.n = 0;
		shard_map_put(node->learned, &entry);
		shard_action_write(node->out, SHARD_STORE_LEARNED, &entry);
	}
}

/*
 * Another era begins, of which nothing is known here yet: what was learned is kept aside, since the
 * nodes that know the new era may be lost before they tell.
 */
static void
keep_past(ShardNode *node)
{
	int count;
	ShardMapEntry point = {0};
	ShardMapEntry *entries = shard_map_since(node->learned, -1, node->out->arena, &count);

	point.n = shard_map_point(node->learned).n;
	if (point.n == 0)
		return;
	shard_node_learn_drop_past(node);
	node->past = shard_map_create();
	shard_map_expect(node->past, entries, count);
	for (int i = 0; i < count; i++)
	{
		shard_map_put(node->past, &entries[i]);
		shard_action_write(node->out, SHARD_STORE_PAST, &entries[i]);
	}
	shard_map_set_point(node->past, shard_map_point(node->learned));
	shard_action_write(node->out, SHARD_STORE_PAST, &point);
}

void
shard_node_learn_drop_past(ShardNode *node)
{
	if (!node->past)
		return;
	shard_map_destroy(node->past);
	node->past = NULL;
	shard_action_clear(node->out, SHARD_STORE_PAST);
}

const ShardMap *
shard_node_learn_known(const ShardNode *node, ShardMapPoint *point)
{
	const ShardMap *map = node->past ? node->past : node->learned;
	const ShardMapEntry *entry = shard_map_value(map, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});
	ShardVotersRecord voters;

	*point = (ShardMapPoint){0, shard_map_point(map).n};
	if (entry && shard_record_get_voters(entry, &voters))
		point->b = voters.era;
	return map;
}

void
shard_node_learn_era(ShardNode *node, int32 era, int32 from)
{
	int count;
	ShardMapEntry *members =
		shard_map_list(node->learned, SHARD_MAP_MEMBER, node->out->arena, &count);

	shard_action_log(node->out, 15 /* LOG */, "cluster era %d replaces era %d, as node %d says",
					 era, node->era, from);
	for (int i = 0; i < count; i++)
		members[i].value = shard_arena_copy(node->out->arena, members[i].value, members[i].length);
	node->era = era;
	shard_proposer_forget_ballots(node->proposer);
	shard_node_trust_era_begins(node);
	shard_node_journal_new_era(node);
	shard_node_write_identity(node);
	shard_node_new_voter(node);
	keep_past(node);
	if (node->config.journal_voter)
		shard_voter_set_state(node->voter, SHARD_VOTER_AMNESIAC, node->out);
	shard_proposer_step_down(node->proposer);
	node->coordinator = 0;
	node->coordinator_ballot = 0;
	shard_node_region_forget(node);
	shard_node_learn_addresses(node, members, count);
}

void
shard_node_learn_ask(ShardNode *node, int64 now, int32 from)
{
	if (now < node->next_delta)
		return;
	shard_action_send(node->out, from, SHARD_CONTROL_GET_DELTA)->learned_n =
		shard_map_point(node->learned).n;
	node->next_delta = now + SHARD_RESEND_INTERVAL;
}

void
shard_node_learn_end(ShardNode *node, const ShardMapEntry *entry)
{
	if (learn_entry(node, entry))
		shard_node_member_self(node);
}

void
shard_node_learn_receive(ShardNode *node, int64 now, const ShardControl *message)
{
	if (message->kind != SHARD_CONTROL_SHARD_HOMES && message->kind != SHARD_CONTROL_LEARN)
		return;
	if (node->journal.sealed != 0 || !shard_node_trust_facts(node, now, message))
		return;
	if (message->kind == SHARD_CONTROL_SHARD_HOMES)
	{
		/* Decided, but maybe ahead of the delta that will bring the same: the point stays. */
		for (int i = 0; i < message->n_entries; i++)
		{
			const ShardMapEntry *entry = &message->entries[i];

			if (entry->key.kind == SHARD_MAP_HOME && !entry->deleted && learn_entry(node, entry))
				shard_node_learn_tell_home(node, entry);
		}
		return;
	}
	if (message->above > shard_map_point(node->learned).n)
	{
		shard_node_learn_ask(node, now, message->from);
		return;
	}
	shard_node_learn(node, message->entries, message->n_entries, message->above, message->commit_n);
}
