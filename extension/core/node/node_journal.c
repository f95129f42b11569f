/*
 * core/node/node_journal.c
 *		A cluster whose journal forgot (R14): what all members know together is its new beginning.
 *
 * With state_store_mode = persistence one database, the journal, is the only voter. If it comes up
 * without knowing whether it remembers everything (put back from a copy, or promoted without
 * gate = standby), it is amnesiac for good: it neither promises nor accepts in this era again. A
 * candidate that meets such a journal asks every member what it knows to be decided, and gives the
 * greatest answer back to the journal, which begins a new era with it (R13).
 *
 * Why nothing is lost that a node acted upon:
 *	 1. Only nodes that have learned a fact act upon it, and each has it durably before (T2, T3);
 *		the coordinator that decided it comes first. Answers hold all that is learned, also homes that
 *		were answered ahead of the rest. What no answer holds no node acted upon.
 *	 2. A member that answers is sealed, durably and before the answer leaves: it learns nothing more in this era
 *		and holds no office in it. So an answer stays true; an acceptance or a delta that was still on
 *		its way comes too late. A collector is sealed itself, and acts on nothing it was told before
 *		the new era brings it.
 *	 3. All that may have learned something are asked: the members of the greatest map so far, until
 *		each of them has answered. The node that decided what comes next was a member of that map, so
 *		that no later fact, and no member added by one, is missed. Only an operator can let a member
 *		off, by writing it off: what it alone knew goes with it.
 *	 4. An era begins once. The journal takes a map only for the very start that the collector has
 *		heard of, and one for each start. If it is lost again, all are asked again for its new start,
 *		and each answers only for an era above all that it answered for under other starts; since all
 *		have answered before an era can begin, a later beginning has a greater number. No node enters
 *		an era before the journal's transaction.
 *		A member that answered for another start tells a greater number. Before a collector asks for that, the journal
 *		has to say that the start is its own: a collector that does not reach the journal can begin nothing, and must
 *		not use up the eras that are in reach.
 *	 5. Entering an era, a node keeps the map of the one before until it has learned the new one, and
 *		an answer may be of either: (era, n) says which is greater. So the loss of those few nodes that
 *		know a young era does not lose the old map.
 *	 6. All this holds already while the journal is a voter to come: whatever is decided then it has to accept, and so has the
 *		node that voted alone, which is a member. As long as that one has only accepted the change, and not seen it decided,
 *		no other node can have: then its own map is all that was ever decided, once it is sealed.
 *
 * What if ...
 *	 - the collector dies? Seals are durable; the next candidate meets the journal and asks again.
 *	 - a question or answer is lost? It is asked again; answers are repeated, equal.
 *	 - the journal is lost again? Its start has another number; the collector, which asks it all the time, hears of it from its next
 *		answer, and asks all members again.
 *	 - the clock jumps? Questions are repeated sooner or later.
 *	 - a member is frozen? The cluster waits for it, or for the operator's word.
 *
 * A journal that never voted is unused. It takes the first map from a coordinator in office, and only
 * one that does not name the journal as its voter yet; so an empty database in the place of a lost
 * journal is not mistaken for the beginning.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"
#include "core/node/trust_private.h"

static const ShardMapKey voters_key = {SHARD_MAP_VOTERS, 0, 0};

/* Does a map name the journal as the voter? */
static bool
has_journal(const ShardNode *node, const ShardMap *map)
{
	const ShardMapEntry *entry = shard_map_value(map, voters_key);
	ShardVotersRecord voters;

	return node->config.journal_node != 0 && entry && shard_record_get_voters(entry, &voters) &&
		   voters.n_current == 1 && voters.current[0] == node->config.journal_node;
}

/*
 * Does a map name the journal among the voters of today or those to come (R9)? Then nothing is decided without it, so if it has
 * forgotten nothing is ever decided again in this era.
 */
static bool
needs_journal(const ShardNode *node, const ShardMap *map)
{
	const ShardMapEntry *entry = shard_map_value(map, voters_key);
	ShardVotersRecord voters;

#ifdef SHARD_MUTANT_JOURNAL_TO_COME_PASSED_OVER
	return has_journal(node, map);
#endif
	return node->config.journal_node != 0 && entry && shard_record_get_voters(entry, &voters) &&
		   shard_record_votes(&voters, node->config.journal_node);
}

/*
 * Is the vote on its way from this node alone to the journal? It has accepted the change, and cannot decide it, nor anything
 * else, if the journal has forgotten.
 */
static bool
is_handing_over(const ShardNode *node, const ShardMap *map)
{
	const ShardMapEntry *entry = shard_map_value(map, voters_key);
	ShardVotersRecord voters;

#ifdef SHARD_MUTANT_JOURNAL_CHANGE_NOT_FOLLOWED
	return false;
#endif
	return entry && shard_record_get_voters(entry, &voters) && voters.n_current == 1 &&
		   voters.n_next == 0 && voters.current[0] == node->id &&
		   shard_voter_state(node->voter) == SHARD_VOTER_OK &&
		   needs_journal(node, shard_voter_map(node->voter));
}

/* May the journal take a map as the beginning of an era, when all members have answered? */
static bool
is_for_journal(const ShardNode *node, const ShardMap *map)
{
	return needs_journal(node, map) || is_handing_over(node, map);
}

bool
shard_node_journal_votes(const ShardNode *node)
{
	return has_journal(node, node->learned);
}

/* The era after another one; the last one stays the last. */
static int32
next_era(int32 era)
{
	return Min(era, PG_INT32_MAX - 1) + 1;
}

/* Is a node a member in a map, so that it may have learned what was decided next? */
static bool
is_in(const ShardNode *node, const ShardMap *map, int32 id)
{
	const ShardMapEntry *entry = shard_map_value(map, (ShardMapKey){SHARD_MAP_MEMBER, id, 0});
	ShardMemberRecord member;

	return entry && shard_record_get_member(entry, &member, node->out->arena) &&
		   member.status != SHARD_MEMBER_REMOVED && member.status != SHARD_MEMBER_WRITTEN_OFF;
}

/* ---- members ---------------------------------------------------------------------------------- */

/*
 * From now on nothing is learned in this era, and no office is held. The era to come must be above all
 * that this node was sealed for before, unless it is for the same start of the journal: that takes one
 * map only. Gives the least era that it may be; durable before another node hears it.
 */
static int32
seal(ShardNode *node, ShardUuid start, int32 era)
{
	NodeJournal *journal = &node->journal;
	int32 least = Max(next_era(node->era), journal->sealed);

	if (journal->sealed != 0 && !shard_record_uuid_equal(journal->sealed_for, start))
		least = next_era(journal->sealed);
	if (era < least || era == journal->sealed)
		return least;
	journal->sealed = era;
	journal->sealed_for = start;
	shard_node_write_identity(node);
	shard_proposer_step_down(node->proposer);
	return era;
}

/* All that a map holds, into a message. */
static void
put_map(const ShardNode *node, ShardControl *message, const ShardMap *map, ShardMapPoint point)
{
	message->learned = point;
	message->entries = shard_map_since(map, -1, node->out->arena, &message->n_entries);
}

/*
 * COLLECT. The collector may be a member that this node has not heard of yet, but none that has
 * gone.
 */
static void
answer_collector(ShardNode *node, const ShardControl *message)
{
	ShardControl *answer;
	ShardMapPoint point;
	const ShardMap *map = shard_node_learn_known(node, &point);

	if (!node->found_itself || node->config.journal_voter || message->from == 0 ||
		(shard_map_value(map, (ShardMapKey){SHARD_MAP_MEMBER, message->from, 0}) &&
		 !is_in(node, map, message->from)))
		return;
	answer = shard_action_send(node->out, message->from, SHARD_CONTROL_COLLECTED);
	answer->uuid = message->uuid;
	answer->new_era = seal(node, message->uuid, message->new_era);
	answer->flag = answer->new_era == message->new_era;
	if (answer->flag)
		put_map(node, answer, map, point);
}

/* ---- the collector ---------------------------------------------------------------------------- */

static bool
has_answered(const NodeJournal *journal, int32 id)
{
	for (int i = 0; i < journal->n_answers; i++)
	{
		if (journal->answers[i].node == id)
			return true;
	}
	return false;
}

static void
note_answer(NodeJournal *journal, int32 id, bool given_up)
{
	if (has_answered(journal, id))
		return;
	if (journal->n_answers == journal->space)
	{
		journal->space = Max(8, 2 * journal->space);
		journal->answers = journal->answers
							   ? repalloc(journal->answers, sizeof(NodeAnswer) * journal->space)
							   : palloc(sizeof(NodeAnswer) * journal->space);
	}
	journal->answers[journal->n_answers++] = (NodeAnswer){id, given_up};
}

/*
 * Begin to ask for another start of the journal, or another era to come: earlier answers were given
 * before it, and their authors may know more by now. The operator's word still holds.
 */
static void
ask_again(ShardNode *node, int64 now, ShardUuid start, int32 era)
{
	NodeJournal *journal = &node->journal;
	int kept = 0;

	for (int i = 0; i < journal->n_answers; i++)
	{
		if (journal->answers[i].given_up)
			journal->answers[kept++] = journal->answers[i];
	}
	journal->n_answers = kept;
	journal->start = start;
	journal->least = 0;
	journal->era = seal(node, start, era);
	if (journal->era != era)
		journal->era = seal(node, start, journal->era);
	note_answer(journal, node->id, false);
	journal->next_try = now;
}

/* Take homes that are newer than all else of a map: they were answered ahead of the rest. */
static void
take_homes_ahead(ShardMap *map, const ShardMapEntry *entries, int n_entries)
{
	for (int i = 0; i < n_entries; i++)
	{
		if (entries[i].key.kind == SHARD_MAP_HOME && entries[i].n > shard_map_point(map).n)
			(void) shard_map_learn(map, &entries[i]);
	}
}

/* Keep the greater of two answers, with what the other one knows ahead of it. */
static void
take_answer(ShardNode *node, const ShardMapEntry *entries, int n_entries, ShardMapPoint point)
{
	ShardMap *map = node->journal.map;
	int count;
	ShardMapEntry *known;

	if (shard_map_compare(point, shard_map_point(map)) <= 0)
	{
		take_homes_ahead(map, entries, n_entries);
		return;
	}
	known = shard_map_since(map, shard_map_point(map).n, node->out->arena, &count);
	shard_map_clear(map);
	shard_map_set_point(map, point);
	shard_map_expect(map, entries, n_entries);
	for (int i = 0; i < n_entries; i++)
		shard_map_put(map, &entries[i]);
	take_homes_ahead(map, known, count);
}

/* The journal's answer to a question: it does not vote in this era, or this node does not any more. */
static void
journal_answered(ShardNode *node, int64 now, const ShardControl *message)
{
	NodeJournal *journal = &node->journal;
	ShardMapPoint point;
	const ShardMap *map = shard_node_learn_known(node, &point);
	int count;
	ShardMapEntry *entries;

	if (message->from != node->config.journal_node || !is_for_journal(node, map) ||
		(message->voter_state == SHARD_VOTER_OK && journal->sealed == 0))
		return;
	if (journal->map)
	{
		if (!shard_record_uuid_equal(journal->start, message->uuid))
			ask_again(node, now, message->uuid, Max(next_era(journal->era), journal->least));
		else if (journal->least > journal->era)
			ask_again(node, now, journal->start, journal->least);
		return;
	}
	shard_action_log(node->out, 19 /* WARNING */,
					 "the journal may have forgotten decisions: node %d asks all members what they "
					 "know",
					 node->id);
	journal->map = shard_map_create();
	entries = shard_map_since(map, -1, node->out->arena, &count);
	take_answer(node, entries, count, point);
	ask_again(node, now, message->uuid, next_era(node->era));
}

/*
 * A member's answer; it counts if it was given for this start of the journal and this era to come. A member that was sealed for
 * a later era may have been asked for another start: the journal says which start counts. Otherwise two collectors that collect
 * for two starts would outbid each other until no era is in reach any more (T7).
 */
static void
member_answered(ShardNode *node, int64 now, const ShardControl *message)
{
	NodeJournal *journal = &node->journal;

	if (!journal->map || !shard_record_uuid_equal(message->uuid, journal->start) ||
		!is_in(node, journal->map, message->from))
		return;
	if (message->new_era > journal->era)
	{
		journal->least = Max(journal->least, message->new_era);
#ifdef SHARD_MUTANT_JOURNAL_OUTBID_UNASKED
		ask_again(node, now, journal->start, message->new_era);
#endif
		return;
	}
	if (!message->flag || message->new_era != journal->era)
		return;
	take_answer(node, message->entries, message->n_entries, message->learned);
	note_answer(journal, message->from, false);
	journal->next_try = now;
}

/*
 * Ask the members that have not answered. False: there are none. One that was never admitted has acted
 * upon nothing, and may not even know that it is a member.
 */
static bool
ask_members(ShardNode *node)
{
	NodeJournal *journal = &node->journal;
	bool missing = false;
	int count;
	ShardMapEntry *members =
		shard_map_list(journal->map, SHARD_MAP_MEMBER, node->out->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;
		ShardControl *message;

		if (!shard_record_get_member(&members[i], &member, node->arena) ||
			member.status == SHARD_MEMBER_REMOVED || member.status == SHARD_MEMBER_WRITTEN_OFF ||
			member.inc_no == 0 || has_answered(journal, members[i].key.a))
			continue;
		missing = true;
		message = shard_action_send(node->out, members[i].key.a, SHARD_CONTROL_COLLECT);
		message->uuid = journal->start;
		message->new_era = journal->era;
	}
#ifdef SHARD_MUTANT_JOURNAL_WITHOUT_ALL
	missing = false;
#endif
	return missing;
}

/*
 * Is it for this node to ask the journal, though it does not collect, nor campaign where the journal votes? A coordinator
 * hears thereby that what it waits for will never come; a node that is sealed, or in an era of which it knows nothing, hears
 * what became of that: the journal may be the only one left that knows.
 */
static bool
asks_journal(const ShardNode *node, int64 now)
{
	bool left_behind =
		node->past || (node->journal.sealed != 0 && !has_journal(node, node->learned));

	if (node->in_office)
		return is_handing_over(node, node->learned);
#ifdef SHARD_MUTANT_JOURNAL_SEALED_LEFT_BEHIND
	left_behind = node->past && has_journal(node, node->past);
#endif
	return left_behind && node->found_itself &&
		   now - node->coordinator_heard >= SHARD_ELECTION_TIMEOUT;
}

void
shard_node_journal_tick(ShardNode *node, int64 now)
{
	NodeJournal *journal = &node->journal;
	ShardControl *message;

	if (now < journal->next_try || node->config.journal_voter || node->config.journal_node == 0)
		return;
	if (!journal->map && !node->past && !asks_journal(node, now))
	{
		journal->next_try = 0;
		return;
	}
	if (!journal->map && journal->next_try == 0)
	{
		/* Another node that knows the era that was just entered will tell. */
		journal->next_try = now + 2 * SHARD_ELECTION_TIMEOUT;
		return;
	}
	journal->next_try = now + SHARD_RESEND_INTERVAL;
	if (!journal->map)
	{
		if (asks_journal(node, now))
			shard_action_send(node->out, node->config.journal_node, SHARD_CONTROL_GET_DELTA);
		return;
	}
#ifndef SHARD_MUTANT_JOURNAL_START_NOT_ASKED
	/*
	 * Is it still the same start? A node that knows nothing of this era does not hear that by
	 * campaigning.
	 */
	shard_action_send(node->out, node->config.journal_node, SHARD_CONTROL_GET_DELTA);
#endif
	if (ask_members(node) || !is_for_journal(node, journal->map))
		return;
	message =
		shard_action_send(node->out, node->config.journal_node, SHARD_CONTROL_RESTORE_JOURNAL);
	message->b = shard_node_trust_next_ballot(node);
	message->uuid = journal->start;
	message->new_era = journal->era;
	put_map(node, message, journal->map, shard_map_point(journal->map));
}

bool
shard_node_journal_give_up(ShardNode *node, int32 id)
{
	if (!node->journal.map)
		return false;
	note_answer(&node->journal, id, true);
	return true;
}

void
shard_node_journal_new_era(ShardNode *node)
{
	if (node->journal.map)
		shard_map_destroy(node->journal.map);
	if (node->journal.answers)
		pfree(node->journal.answers);
	memset(&node->journal, 0, sizeof(NodeJournal));
}

/* ---- the journal ------------------------------------------------------------------------------ */

void
shard_node_journal_claimed(ShardNode *node, const ShardControl *message)
{
	if (!node->config.journal_voter || node->cluster.high != 0 || node->cluster.low != 0 ||
		(message->kind != SHARD_CONTROL_HEARTBEAT && message->kind != SHARD_CONTROL_PRE_VOTE &&
		 message->kind != SHARD_CONTROL_GET_DELTA))
		return;
	node->cluster = message->cluster;
	node->era = message->era;
	shard_node_write_identity(node);
}

/*
 * Everything that is decided in this era, for a member that may know nothing of it. It goes back over the link on which the
 * question came: only there does the member believe it (T7), and a journal calls no member. A member that has not got it asks
 * again.
 */
static void
teach(ShardNode *node)
{
	ShardControl *message = shard_action_send(node->out, 0, SHARD_CONTROL_LEARN);

	put_map(node, message, node->learned, shard_map_point(node->learned));
	message->commit_n = message->learned.n;
}

/* What is decided in this era, or that the journal may have forgotten it. */
static void
answer_member(ShardNode *node, int32 to)
{
	ShardControl *answer;

	if (shard_voter_state(node->voter) == SHARD_VOTER_OK)
	{
		teach(node);
		return;
	}
	answer = shard_action_send(node->out, to, SHARD_CONTROL_PRE_VOTE_REPLY);
	answer->voter_state = shard_voter_state(node->voter);
}

void
shard_node_journal_late(ShardNode *node, const ShardControl *message)
{
	if (node->config.journal_voter &&
		(message->kind == SHARD_CONTROL_PRE_VOTE || message->kind == SHARD_CONTROL_RESTORE_JOURNAL))
		answer_member(node, message->from);
}

/* RESTORE_JOURNAL, of the era that ends. */
static void
restore_journal(ShardNode *node, const ShardControl *message)
{
	ShardMapPoint point = {0, message->learned.n};
	ShardMap *map;
	bool of_member;

	if (!node->config.journal_voter || !shard_record_uuid_equal(message->uuid, node->inc_uuid) ||
		message->new_era <= node->era)
		return;
	map = shard_map_create();
	shard_map_expect(map, message->entries, message->n_entries);
	for (int i = 0; i < message->n_entries; i++)
		shard_map_put(map, &message->entries[i]);
	of_member = is_in(node, map, message->from);
	shard_map_destroy(map);
	if (!of_member)
		return;
	shard_map_clear(node->learned);
	shard_map_expect(node->learned, message->entries, message->n_entries);
	for (int i = 0; i < message->n_entries; i++)
		shard_map_put(node->learned, &message->entries[i]);
	shard_map_set_point(node->learned, point);
	shard_node_new_voter(node);
	shard_voter_force(node->voter, message->b, node->learned, &node->id, 1, message->new_era,
					  node->out);
	shard_node_learn_forced(node);
	node->coordinator = 0;
	node->coordinator_ballot = 0;
	shard_action_log(node->out, 15 /* LOG */, "the journal begins era %d", node->era);
	teach(node);
}

void
shard_node_journal_receive(ShardNode *node, int64 now, const ShardControl *message)
{
	if (!shard_node_trust_journal(node, message))
		return;
	switch (message->kind)
	{
		case SHARD_CONTROL_PRE_VOTE_REPLY:
			journal_answered(node, now, message);
			break;
		case SHARD_CONTROL_COLLECT:
			answer_collector(node, message);
			break;
		case SHARD_CONTROL_COLLECTED:
			member_answered(node, now, message);
			break;
		case SHARD_CONTROL_GET_DELTA:
			/* Of a member that knows nothing of this era. */
			if (node->config.journal_voter)
				answer_member(node, message->from);
			break;
		case SHARD_CONTROL_RESTORE_JOURNAL:
			restore_journal(node, message);
			break;
		default:
			break;
	}
}
