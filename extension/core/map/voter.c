/*
 * core/map/voter.c
 *		A voter of the replicated map (R1, R3, R4, R12).
 *
 * A voter's word is its durable state: what it has promised, and the map with the point that it has
 * accepted. Each step changes the state in memory, gathers the same change as writes, and answers;
 * the host sends the answer after the writes are durable. Therefore:
 * - A death before that loses change and answer together: no node has heard of it.
 * - A death between write and answer, or a lost answer, is met by the question's repetition, which
 *   finds the work done and answers again.
 * - Such an answer must not overtake the transaction of the first one, which may still be on its
 *   way to the disk; so every answer that others count (PROMISE, SYNCED, ACCEPTED) is given by a
 *   step that writes, even when there is nothing new to write.
 *
 * What was accepted is not yet decided: the proposer alone knows what is (proposer.c), and nothing
 * here is shown.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/era.h"
#include "core/map/voter_private.h"

static const ShardMapKey row_key = {0, 0, 0};
static const ShardMapKey voters_key = {SHARD_MAP_VOTERS, 0, 0};
static const ShardMapKey counters_key = {SHARD_MAP_COUNTERS, 0, 0};

ShardVoter *
shard_voter_create(int32 self)
{
	ShardVoter *voter = palloc0(sizeof(ShardVoter));

	voter->self = self;
	voter->map = shard_map_create();
	return voter;
}

void
shard_voter_destroy(ShardVoter *voter)
{
	shard_map_destroy(voter->map);
	pfree(voter);
}

void
shard_voter_set_self(ShardVoter *voter, int32 self)
{
	voter->self = self;
}

/*
 * The row has what is remembered of other voters, too: losing the newest of that weakens a check,
 * no promise.
 */
void
shard_voter_save(const ShardVoter *voter, ShardActions *out)
{
	ShardMapPoint point = shard_map_point(voter->map);
	ShardMapEntry entry;
	StringInfoData value;

	initStringInfo(&value);
	shard_wire_put_int(&value, voter->promised);
	shard_wire_put_int(&value, point.b);
	shard_wire_put_int(&value, point.n);
	shard_wire_put_uint(&value, voter->state);
	shard_voter_memory_fields(&(ShardFields){.out = &value}, unconstify(ShardVoter *, voter));

	memset(&entry, 0, sizeof(entry));
	entry.key = row_key;
	entry.length = (uint32) value.len;
	entry.value = value.data;
	shard_action_write(out, SHARD_STORE_VOTER, &entry);
	pfree(value.data);
}

/*
 * Take the row that shard_voter_save() wrote. False, and nothing is taken, if it is damaged.
 */
static bool
load_row(ShardVoter *voter, const ShardMapEntry *entry)
{
	ShardReader reader = {entry->value, entry->value + entry->length, false};
	ShardVoter row = *voter;
	ShardMapPoint point;
	uint64 state;

	row.promised = shard_wire_get_int(&reader);
	point.b = shard_wire_get_int(&reader);
	point.n = shard_wire_get_int(&reader);
	state = shard_wire_get_uint(&reader);
	shard_voter_memory_fields(&(ShardFields){.reader = &reader}, &row);
	if (reader.failed || state > SHARD_VOTER_UNUSED || reader.at != reader.end)
		return false;
	row.state = (ShardVoterState) state;
	*voter = row;
	shard_map_set_point(voter->map, point);
	return true;
}

int
shard_voter_load(ShardVoter *voter, ShardStore store, const ShardMapEntry *entries, int count)
{
	if (store == SHARD_STORE_ACCEPTED)
		shard_map_expect(voter->map, entries, count);
	for (int i = 0; i < count; i++)
	{
		if (store == SHARD_STORE_VOTER ? entries[i].length == 0 || !load_row(voter, &entries[i])
									   : entries[i].key.kind <= 0)
			return i;
		if (store == SHARD_STORE_ACCEPTED)
			shard_map_put(voter->map, &entries[i]);
	}
	return count;
}

/*
 * Take entries into the map, and write them. Where they raise purge_n, tombstones that all have
 * passed go, too (R8).
 */
static void
apply(ShardVoter *voter, const ShardMapEntry *entries, int count, ShardActions *out)
{
	bool counters = false;

	shard_map_expect(voter->map, entries, count);
	for (int i = 0; i < count; i++)
	{
		shard_map_put(voter->map, &entries[i]);
		shard_action_write(out, SHARD_STORE_ACCEPTED, &entries[i]);
		counters = counters || entries[i].key.kind == SHARD_MAP_COUNTERS;
		if (entries[i].key.kind == SHARD_MAP_VOTERS)
			shard_voter_forget_removed(voter);
	}
	if (counters)
	{
		ShardCountersRecord record;
		ShardMapKey *keys;
		int n_keys;

		shard_record_get_counters(shard_map_value(voter->map, counters_key), &record);
		keys = shard_map_tombstones(voter->map, record.purge_n, out->arena, &n_keys);
		for (int i = 0; i < n_keys; i++)
			shard_action_remove(out, SHARD_STORE_ACCEPTED, keys[i]);
		shard_map_purge(voter->map, record.purge_n);
	}
}

void
shard_voter_found(ShardVoter *voter, int64 b, const ShardMapEntry *entries, int n_entries,
				  ShardActions *out)
{
	ShardMapPoint point = {b, 1};
	ShardMapEntry term;

	shard_map_clear(voter->map);
	shard_action_clear(out, SHARD_STORE_ACCEPTED);
	for (int i = 0; i < n_entries; i++)
	{
		ShardMapEntry entry = entries[i];

		entry.n = point.n;
		apply(voter, &entry, 1, out);
	}
	term = shard_record_append_term(voter->map, b, point.n, out->arena);
	term.n = point.n;
	apply(voter, &term, 1, out);
	shard_map_set_point(voter->map, point);
	voter->promised = b;
	voter->state = SHARD_VOTER_OK;
	shard_voter_save(voter, out);
}

/*
 * Homes go on in a later era under epochs, and versions, above all that lost voters may have decided: a node that acts on
 * such a decision hears from the new era where the home is (R29).
 */
static void
carry_homes(ShardMapEntry *entries, int count, int64 n, ShardArena *arena)
{
	for (int i = 0; i < count; i++)
	{
		ShardHomeRecord home;

		if (entries[i].key.kind != SHARD_MAP_HOME || entries[i].deleted ||
			!shard_record_get_home(&entries[i], &home))
			continue;
		home.epoch = shard_era_carry(home.epoch, n);
		entries[i] = shard_record_put_home(entries[i].key.a, entries[i].key.b, &home, n, arena);
	}
}

void
shard_voter_force(ShardVoter *voter, int64 b, const ShardMap *learned, const int32 *nodes,
				  int n_nodes, int32 era, ShardActions *out)
{
	ShardMapPoint point = {b, 0};
	ShardVotersRecord voters;
	ShardCountersRecord counters;
	ShardMapEntry changed[3];
	ShardMapEntry *entries;
	int count;

	Assert(n_nodes > 0 && n_nodes <= SHARD_MAX_VOTERS);
	shard_record_get_voters(shard_map_value(learned, voters_key), &voters);
	voters.n_current = n_nodes;
	memcpy(voters.current, nodes, sizeof(int32) * n_nodes);
	voters.n_next = 0;
	point.n = shard_map_point(learned).n + (era - voters.era) * SHARD_ERA_LEAP;
	voters.era = era;
	changed[0] = shard_record_put_voters(&voters, point.n, out->arena);
	changed[1] = shard_record_append_term(learned, b, point.n, out->arena);
	changed[1].n = point.n;
	/* Nor are ids given twice that the lost voters may have given. */
	shard_record_get_counters(shard_map_value(learned, counters_key), &counters);
	counters.last_node_id = Min(counters.last_node_id + SHARD_ERA_IDS, SHARD_MAX_NODE_ID);
	counters.last_type_id =
		Min(counters.last_type_id, PG_INT32_MAX - SHARD_ERA_IDS) + SHARD_ERA_IDS;
	changed[2] = shard_record_put_counters(&counters, point.n, out->arena);

	entries = shard_map_since(learned, -1, out->arena, &count);
#ifndef SHARD_MUTANT_ERAS_KEEP_HOMES
	carry_homes(entries, count, point.n, out->arena);
#endif
	shard_map_clear(voter->map);
	shard_action_clear(out, SHARD_STORE_ACCEPTED);
	apply(voter, entries, count, out);
	apply(voter, changed, lengthof(changed), out);
	shard_map_set_point(voter->map, point);
	voter->promised = b;
	voter->state = SHARD_VOTER_OK;
	voter->n_memory = 0; /* of an era that is over */
	shard_voter_save(voter, out);
}

/*
 * Refuse a message: the sender was outbid, or this voter must not vote.
 */
static void
nack(const ShardVoter *voter, const ShardControl *message, ShardActions *out)
{
	ShardControl *answer = shard_action_send(out, message->from, SHARD_CONTROL_NACK);

	answer->b = message->b;
	answer->ballot = voter->promised;
	answer->text = voter->state == SHARD_VOTER_OK ? "outbid" : "amnesiac";
}

/*
 * May the voter take part at all (R12)?
 */
static bool
may_vote(const ShardVoter *voter)
{
#ifdef SHARD_MUTANT_AMNESIAC_VOTES
	return true;
#endif
	return voter->state == SHARD_VOTER_OK;
}

/*
 * Put into an answer which voters the accepted state names, if any (R2).
 */
static void
name_voters(const ShardVoter *voter, ShardControl *answer, ShardArena *arena)
{
	const ShardMapEntry *voters = shard_map_value(voter->map, voters_key);

	answer->accepted = shard_map_point(voter->map);
	if (voters == NULL)
		return;
	answer->n_entries = 1;
	answer->entries = shard_arena_copy(arena, voters, sizeof(ShardMapEntry));
	answer->entries->value = shard_arena_copy(arena, voters->value, voters->length);
}

/*
 * PRE_VOTE: would a campaign be welcome? Nothing is promised. The ballot to come is chosen after the
 * answers, above all that they name, so it is not judged here.
 */
static void
pre_vote(const ShardVoter *voter, const ShardControl *message, bool heard, ShardActions *out)
{
	ShardControl *answer = shard_action_send(out, message->from, SHARD_CONTROL_PRE_VOTE_REPLY);

	answer->b = message->b;
	answer->flag = may_vote(voter) && !heard;
	answer->ballot = voter->promised;
	answer->voter_state = voter->state;
	name_voters(voter, answer, out->arena);
}

/*
 * PREPARE (R1). The same ballot again is the same candidate, whose first question or answer was lost.
 * Not so from the own node: that asks once, before all others, so that the ballot is new to it even
 * if it has died since it used the last one.
 */
static void
prepare(ShardVoter *voter, const ShardControl *message, ShardActions *out)
{
	bool outbid = message->b < voter->promised ||
				  (message->b == voter->promised && message->from == voter->self);
	ShardControl *answer;

	shard_voter_reminded(voter, message, out);
	if (!may_vote(voter) || outbid)
	{
		nack(voter, message, out);
		return;
	}
	voter->promised = message->b;
#ifndef SHARD_MUTANT_PROMISE_NOT_PERSISTED
	shard_voter_save(voter, out);
#endif
	answer = shard_action_send(out, message->from, SHARD_CONTROL_PROMISE);
	answer->b = message->b;
	name_voters(voter, answer, out->arena);
	answer->uuid = shard_voter_seal(voter, answer->b, answer->accepted);
}

/*
 * May a candidate have the map now? A map is long, and a candidate asks for it a second time only when the first one may be
 * lost (R2). The candidate's own voter answers over no link.
 */
static bool
may_give(ShardVoter *voter, int32 candidate, int64 now)
{
	VoterGiven *place = NULL;

#ifdef SHARD_MUTANT_STATE_AT_WILL
	return true;
#endif
	if (candidate == voter->self)
		return true;
	for (int i = 0; i < VOTER_GIVEN_SIZE; i++)
	{
		VoterGiven *given = &voter->given[i];

		if (given->node == 0 || now - given->at >= SHARD_RESEND_INTERVAL)
			place = given;
		else if (given->node == candidate)
			return false;
	}
	if (place == NULL)
		return false;
	*place = (VoterGiven){candidate, now};
	return true;
}

/*
 * FETCH (R2): give the whole state, as long as the promise to that candidate is the newest one.
 * Promises become durable in their order, so the state that is given here is durable, too.
 */
static void
fetch(ShardVoter *voter, int64 now, const ShardControl *message, ShardActions *out)
{
	ShardControl *answer;

	if (!may_vote(voter) || message->b != voter->promised)
	{
		nack(voter, message, out);
		return;
	}
	if (!may_give(voter, message->from, now))
		return;
	answer = shard_action_send(out, message->from, SHARD_CONTROL_STATE);
	answer->b = message->b;
	answer->accepted = shard_map_point(voter->map);
	answer->above = message->above;
	answer->entries = shard_map_since(voter->map, message->above > 0 ? message->above : -1,
									  out->arena, &answer->n_entries);
}

/*
 * Say where the voter is, so that the coordinator brings it where it must be.
 */
static void
need_sync(const ShardVoter *voter, const ShardControl *message, ShardActions *out)
{
	ShardControl *answer = shard_action_send(out, message->from, SHARD_CONTROL_NEED_SYNC);

	answer->b = message->b;
	answer->batch_n = message->batch_n;
	answer->accepted = shard_map_point(voter->map);
}

/*
 * Is this the map that a journal begins with (R14)? One that counts the journal among its voters
 * already is proof that it was used, and has lost what it knew.
 */
static bool
begins_journal(const ShardVoter *voter, const ShardControl *message)
{
	ShardVotersRecord voters = {0};

	if (voter->state != SHARD_VOTER_UNUSED || message->above != 0)
		return false;
	for (int i = 0; i < message->n_entries; i++)
	{
		if (message->entries[i].key.kind == SHARD_MAP_VOTERS &&
			!shard_record_get_voters(&message->entries[i], &voters))
			return false;
	}
	for (int i = 0; i < voters.n_current; i++)
	{
		if (voters.current[i] == voter->self)
			return false;
	}
	return voters.n_current > 0;
}

/*
 * SYNC (R3): take exactly the coordinator's state, even if it is older than the own one, which then
 * was never decided. But what was accepted under this ballot is never taken back: the message is an
 * old one. A delta fits one base only, which it names.
 */
static void
sync_state(ShardVoter *voter, const ShardControl *message, ShardActions *out)
{
	ShardMapPoint mine = shard_map_point(voter->map);
	ShardMapPoint base = {message->ballot, message->above};
	bool there = shard_map_compare(mine, message->target) == 0;
	ShardControl *answer;

	if (begins_journal(voter, message))
		voter->state = SHARD_VOTER_OK;
	if (!may_vote(voter) || message->b < voter->promised)
	{
		nack(voter, message, out);
		return;
	}
	if (mine.b == message->b && shard_map_compare(mine, message->target) > 0)
		there = true;
	if (!there && message->above > 0 && shard_map_compare(mine, base) != 0)
	{
		need_sync(voter, message, out);
		return;
	}
	if (!there)
	{
		if (message->above == 0)
		{
			shard_map_clear(voter->map);
			shard_action_clear(out, SHARD_STORE_ACCEPTED);
		}
		apply(voter, message->entries, message->n_entries, out);
		shard_map_set_point(voter->map, message->target);
	}
	voter->promised = message->b;
	shard_voter_save(voter, out);
	answer = shard_action_send(out, message->from, SHARD_CONTROL_SYNCED);
	answer->b = message->b;
	answer->accepted = shard_map_point(voter->map);
	answer->uuid = shard_voter_seal(voter, answer->b, answer->accepted);
}

/*
 * ACCEPT (R4): a batch is taken on exactly the state that it was made for, or not at all.
 */
static void
accept_batch(ShardVoter *voter, const ShardControl *message, ShardActions *out)
{
	ShardMapPoint mine = shard_map_point(voter->map);
	ShardControl *answer;
	bool outbid = message->b < voter->promised;

#ifdef SHARD_MUTANT_ACCEPT_BELOW_PROMISE
	outbid = false;
#endif
	if (voter->state == SHARD_VOTER_UNUSED)
	{
		need_sync(voter, message, out);
		return;
	}
	if (!may_vote(voter) || outbid)
	{
		nack(voter, message, out);
		return;
	}
	if (mine.b != message->b || mine.n < message->batch_n)
	{
		ShardMapPoint point = {message->b, message->batch_n};

#ifndef SHARD_MUTANT_ACCEPT_ANY_PREV
		if (shard_map_compare(mine, message->prev) != 0)
		{
			need_sync(voter, message, out);
			return;
		}
#endif
		apply(voter, message->entries, message->n_entries, out);
		shard_map_set_point(voter->map, point);
		voter->promised = message->b;
	}
	shard_voter_save(voter, out);
	answer = shard_action_send(out, message->from, SHARD_CONTROL_ACCEPTED);
	answer->b = message->b;
	answer->batch_n = message->batch_n;
	answer->uuid = shard_voter_seal(voter, answer->b, (ShardMapPoint){answer->b, answer->batch_n});
}

void
shard_voter_receive(ShardVoter *voter, int64 now, const ShardControl *message, bool heard,
					ShardActions *out)
{
	switch (message->kind)
	{
		case SHARD_CONTROL_PRE_VOTE:
			pre_vote(voter, message, heard, out);
			break;
		case SHARD_CONTROL_PREPARE:
			prepare(voter, message, out);
			break;
		case SHARD_CONTROL_FETCH:
			fetch(voter, now, message, out);
			break;
		case SHARD_CONTROL_SYNC:
			sync_state(voter, message, out);
			break;
		case SHARD_CONTROL_ACCEPT:
			accept_batch(voter, message, out);
			break;
		default:
			break;
	}
}

void
shard_voter_set_state(ShardVoter *voter, ShardVoterState state, ShardActions *out)
{
	if (voter->state == state)
		return;
#ifdef SHARD_MUTANT_JOURNAL_EMPTY_ADOPTED
	if (state == SHARD_VOTER_AMNESIAC && voter->self > PG_INT16_MAX / 4)
	{
		shard_map_clear(voter->map);
		shard_action_clear(out, SHARD_STORE_ACCEPTED);
		state = SHARD_VOTER_OK;
	}
#endif
	voter->state = state;
	shard_voter_save(voter, out);
}

/*
 * The old map goes: it may name former voters of which this node alone was a quorum, and which have
 * decided to remove it without leaving it any memory of that.
 */
void
shard_voter_readmit(ShardVoter *voter, ShardActions *out)
{
	if (voter->state == SHARD_VOTER_OK)
		return;
	shard_map_clear(voter->map);
	shard_action_clear(out, SHARD_STORE_ACCEPTED);
	shard_voter_set_state(voter, SHARD_VOTER_OK, out);
}

ShardVoterState
shard_voter_state(const ShardVoter *voter)
{
	return voter->state;
}

int64
shard_voter_promised(const ShardVoter *voter)
{
	return voter->promised;
}

const ShardMap *
shard_voter_map(const ShardVoter *voter)
{
	return voter->map;
}
