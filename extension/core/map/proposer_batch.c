/*
 * core/map/proposer_batch.c
 *		Batches of changes: gathering them, bringing them to the voters, counting which voters accepted.
 *
 * Changes are compared with the decided state when they are proposed, and again hold when they are
 * decided: a key with a change gathered or outstanding takes no other one, and nothing else changes
 * the decided state. The argument for safety is in proposer.c.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/proposer_private.h"
#include "core/map/set.h"

static const ShardMapKey term_key = {SHARD_MAP_TERM, 0, 0};
static const ShardMapKey voters_key = {SHARD_MAP_VOTERS, 0, 0};
static const ShardMapKey counters_key = {SHARD_MAP_COUNTERS, 0, 0};

static bool
has_accepted(const ProposerPeer *peer, int64 n)
{
	return peer->accepted_n >= n;
}

int64
shard_proposer_purge_n(const ShardProposer *proposer)
{
	ShardCountersRecord counters;

	shard_record_get_counters(shard_map_value(proposer->map, counters_key), &counters);
	return counters.purge_n;
}

/*
 * Is a voter's point part of the history of the coordinator's state, and young enough that what it
 * lacks can be told apart from what was purged (R3)? Then a delta brings it up to date.
 */
static bool
on_lineage(const ShardProposer *proposer, ShardMapPoint point)
{
	ShardTermRecord terms;

	if (point.n <= 0 || point.n < shard_proposer_purge_n(proposer))
		return false;
#ifdef SHARD_MUTANT_DELTA_WITHOUT_LINEAGE
	return true;
#endif
	shard_record_get_term(shard_map_value(proposer->map, term_key), &terms);
	for (int i = 0; i < terms.n_terms; i++)
	{
		int64 last = shard_map_point(proposer->map).n;

		if (i + 1 < terms.n_terms)
			last = terms.terms[i + 1].n - 1;
		if (terms.terms[i].b == point.b)
			return point.n >= terms.terms[i].n && point.n <= last;
	}
	return false;
}

/*
 * Bring a voter to the coordinator's state (R3), but not again while the last attempt may still be
 * on its way.
 */
static void
sync_peer(ShardProposer *proposer, ProposerPeer *peer, int64 now, ShardActions *out)
{
	ShardMapPoint target = shard_map_point(proposer->map);
	ShardControl *message;

	if (shard_map_compare(peer->synced_to, target) == 0 && peer->synced_at != PG_INT64_MIN &&
		now - peer->synced_at < SHARD_RESEND_INTERVAL)
		return;
	peer->synced_at = now;
	peer->synced_to = target;

	message = shard_action_send(out, peer->node, SHARD_CONTROL_SYNC);
	message->b = proposer->ballot;
	message->target = target;
	if (on_lineage(proposer, peer->point))
	{
		message->ballot = peer->point.b;
		message->above = peer->point.n;
	}
	message->entries = shard_map_since(proposer->map, message->above > 0 ? message->above : -1,
									   out->arena, &message->n_entries);
}

void
shard_proposer_push(ShardProposer *proposer, ProposerPeer *peer, int64 now, ShardActions *out)
{
	ShardMapPoint from = shard_map_point(proposer->map);
	bool batch = shard_map_count(proposer->outstanding) > 0;
	ShardControl *message;

	if (peer->accepted_n >= (batch ? proposer->batch_n : from.n))
		return;
	if (!batch || (peer->point_known && shard_map_compare(peer->point, from) != 0))
	{
		sync_peer(proposer, peer, now, out);
		return;
	}
	message = shard_action_send(out, peer->node, SHARD_CONTROL_ACCEPT);
	message->b = proposer->ballot;
	message->batch_n = proposer->batch_n;
	message->prev = from;
	message->commit_n = proposer->office == SHARD_OFFICE_HELD ? from.n : 0;
	message->entries = shard_map_since(proposer->outstanding, -1, out->arena, &message->n_entries);
}

void
shard_proposer_push_all(ShardProposer *proposer, int64 now, ShardActions *out)
{
	proposer->sent_at = now;
	if (shard_map_count(proposer->outstanding) == 0)
		return;
	for (int i = 0; i < proposer->n_peers; i++)
	{
		ProposerPeer *peer = &proposer->peers[i];

		if (shard_record_votes(&proposer->voters, peer->node) ||
			shard_record_votes(&proposer->after, peer->node))
			shard_proposer_push(proposer, peer, now, out);
	}
}

/*
 * Put a change into the batch that is to be sent, under the batch's number.
 */
static void
put_outstanding(ShardProposer *proposer, const ShardMapEntry *entry)
{
	ShardMapEntry stamped = *entry;

	stamped.n = proposer->batch_n;
	shard_map_put(proposer->outstanding, &stamped);
}

/* The batch is complete: find out which nodes vote once it is decided, and send it. */
static void
begin_batch(ShardProposer *proposer, int64 now, ShardActions *out)
{
	const ShardMapEntry *voters = shard_map_value(proposer->outstanding, voters_key);

	proposer->after = proposer->voters;
	if (voters)
	{
		shard_record_get_voters(voters, &proposer->after);
		memset(&proposer->after.extra, 0, sizeof(ShardExtra));
	}
	for (int i = 0; i < proposer->after.n_current + proposer->after.n_next; i++)
		shard_proposer_add_peer(proposer, shard_proposer_voter(&proposer->after, i));
	shard_proposer_push_all(proposer, now, out);
}

/*
 * Is the change of voters a legal step from the decided ones (R9)? Either voters to come are named,
 * and the present ones stay; or the voters that were to come become the present ones.
 */
static bool
legal_voters(const ShardProposer *proposer, const ShardMapEntry *entry)
{
	ShardVotersRecord voters;
	const ShardVotersRecord *old = &proposer->voters;
	const int32 *current = old->n_next > 0 ? old->next : old->current;
	int n_current = old->n_next > 0 ? old->n_next : old->n_current;

	if (!shard_record_get_voters(entry, &voters) || voters.era != old->era)
		return false;
	if (voters.n_current != n_current ||
		memcmp(voters.current, current, sizeof(int32) * n_current) != 0)
		return false;
	for (int i = 0; i < voters.n_next; i++)
	{
		if (voters.next[i] <= 0)
			return false;
		for (int k = 0; k < i; k++)
		{
			if (voters.next[k] == voters.next[i])
				return false;
		}
	}
	return (old->n_next > 0) == (voters.n_next == 0);
}

/*
 * Does one proposed change match the decided state? A tombstone counts as absent, too.
 */
static bool
may_change(const ShardProposer *proposer, const ShardMapEntry *entry)
{
	const ShardMapEntry *old = shard_map_find(proposer->map, entry->key);

	if (entry->key.kind <= SHARD_MAP_TERM || shard_proposer_pending(proposer, entry->key))
		return false;
	if (entry->key.kind == SHARD_MAP_VOTERS && !legal_voters(proposer, entry))
		return false;
#ifdef SHARD_MUTANT_NO_CAS
	return true;
#endif
	if (entry->n == 0)
		return old == NULL || old->deleted;
	return old != NULL && old->n == entry->n;
}

bool
shard_proposer_propose(ShardProposer *proposer, const ShardMapEntry *entries, int n_entries)
{
	if (proposer->office != SHARD_OFFICE_HELD)
		return false;
	for (int i = 0; i < n_entries; i++)
	{
		if (!may_change(proposer, &entries[i]))
			return false;
	}
	for (int i = 0; i < n_entries; i++)
	{
		ShardMapEntry entry = entries[i];

		Assert(shard_map_find(proposer->gathered, entry.key) == NULL); /* each key once */
		entry.n = 0;
		shard_map_put(proposer->gathered, &entry);
	}
	return true;
}

/* Batches have successive numbers, and the next one takes all that is gathered. */
bool
shard_proposer_proposed(const ShardProposer *proposer, int64 *n)
{
	bool gathered = shard_map_count(proposer->gathered) > 0;

	*n = shard_map_point(proposer->map).n + (shard_map_count(proposer->outstanding) > 0) + gathered;
	return gathered;
}

const ShardMapEntry *
shard_proposer_undecided(const ShardProposer *proposer, ShardMapKey key)
{
	const ShardMapEntry *entry = shard_map_find(proposer->gathered, key);

	return entry ? entry : shard_map_find(proposer->outstanding, key);
}

bool
shard_proposer_pending(const ShardProposer *proposer, ShardMapKey key)
{
	return shard_proposer_undecided(proposer, key) != NULL;
}

/* All changes of a kind that are gathered or outstanding, removals aside, as by shard_map_list(). */
static ShardMapEntry *
list_undecided(const ShardProposer *proposer, ShardMapKind kind, ShardArena *arena, int *count)
{
	int n_first;
	int n_second;
	ShardMapEntry *first = shard_map_list(proposer->outstanding, kind, arena, &n_first);
	ShardMapEntry *second = shard_map_list(proposer->gathered, kind, arena, &n_second);
	ShardMapEntry *both =
		shard_arena_alloc(arena, sizeof(ShardMapEntry) * Max(n_first + n_second, 1));

	if (n_first > 0)
		memcpy(both, first, sizeof(ShardMapEntry) * n_first);
	if (n_second > 0)
		memcpy(both + n_first, second, sizeof(ShardMapEntry) * n_second);
	*count = n_first + n_second;
	return both;
}

void
shard_proposer_undecided_range(const ShardProposer *proposer, ShardMapKind kind, int32 a,
							   ShardMapRange ranges[2])
{
	ranges[0] = shard_map_range(proposer->outstanding, kind, a);
	ranges[1] = shard_map_range(proposer->gathered, kind, a);
}

/* Is a home or pin of a type gathered or outstanding? */
static bool
has_shard_of(const ShardProposer *proposer, ShardMapKind kind, int32 type_id)
{
	ShardMapRange ranges[2];

	shard_proposer_undecided_range(proposer, kind, type_id, ranges);
	return shard_map_range_next(&ranges[0]) || shard_map_range_next(&ranges[1]);
}

bool
shard_proposer_pending_type(const ShardProposer *proposer, int32 type_id)
{
	return shard_proposer_pending(proposer, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0}) ||
		   has_shard_of(proposer, SHARD_MAP_HOME, type_id) ||
		   has_shard_of(proposer, SHARD_MAP_PIN, type_id);
}

bool
shard_proposer_pending_home(const ShardProposer *proposer, int32 node, ShardArena *arena)
{
	int count;
	ShardMapEntry *entries = list_undecided(proposer, SHARD_MAP_HOME, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardHomeRecord home;

		if (shard_record_get_home(&entries[i], &home) &&
			(shard_set_has(&home, node) || (home.phase == SHARD_HOME_MOVING && home.to == node)))
			return true;
	}
	return false;
}

/*
 * A change of voters that was begun, maybe by a coordinator before, is brought to its end (R9).
 */
static void
finish_voters(ShardProposer *proposer, ShardArena *arena)
{
	const ShardMapEntry *entry = shard_map_value(proposer->map, voters_key);
	ShardVotersRecord voters;
	ShardMapEntry change;

	if (!shard_record_get_voters(entry, &voters) || voters.n_next == 0)
		return;
	memcpy(voters.current, voters.next, sizeof(voters.current));
	voters.n_current = voters.n_next;
	voters.n_next = 0;
	change = shard_record_put_voters(&voters, entry->n, arena);
	shard_proposer_propose(proposer, &change, 1);
}

/*
 * The outstanding batch is decided: it is part of the state now, and members learn it.
 */
static void
decided(ShardProposer *proposer, int64 now, ShardActions *out)
{
	ShardMapPoint point = {proposer->ballot, proposer->batch_n};
	int64 before = shard_map_point(proposer->map).n;
	bool term = proposer->office == SHARD_OFFICE_TERM;
	int count;
	ShardMapEntry *entries = shard_map_since(proposer->outstanding, -1, out->arena, &count);

	shard_map_expect(proposer->map, entries, count);
	for (int i = 0; i < count; i++)
		shard_map_put(proposer->map, &entries[i]);
	shard_map_set_point(proposer->map, point);
	if (shard_map_find(proposer->outstanding, counters_key))
		shard_map_purge(proposer->map, shard_proposer_purge_n(proposer));
	shard_map_clear(proposer->outstanding);
	proposer->voters = proposer->after;
	shard_proposer_move(proposer, EVENT_DECIDED);
	if (term)
	{
		proposer->stage_at = now;
		proposer->purge_at = now;
		finish_voters(proposer, out->arena);
	}
	shard_proposer_announce(proposer, before, out);
}

/*
 * Is the outstanding batch accepted by the quorum before it and by the one after it (R6)?
 */
static void
count_accepted(ShardProposer *proposer, int64 now, ShardActions *out)
{
	if (shard_map_count(proposer->outstanding) == 0)
		return;
#ifndef SHARD_MUTANT_NEW_MAJORITY_ONLY
	if (!shard_proposer_quorum(proposer, &proposer->voters, has_accepted, proposer->batch_n))
		return;
#endif
	if (shard_proposer_quorum(proposer, &proposer->after, has_accepted, proposer->batch_n))
		decided(proposer, now, out);
}

void
shard_proposer_begin_term(ShardProposer *proposer, int64 now, ShardActions *out)
{
	int64 n = shard_map_point(proposer->map).n + 1;
	ShardMapEntry term = shard_record_append_term(proposer->map, proposer->ballot, n, out->arena);

	proposer->batch_n = n;
#ifndef SHARD_MUTANT_VOTER_CHANGE_BEFORE_TERM
	put_outstanding(proposer, &term);
#endif
	begin_batch(proposer, now, out);
#if defined(SHARD_MUTANT_ACT_BEFORE_TERM) || defined(SHARD_MUTANT_VOTER_CHANGE_BEFORE_TERM)
	shard_proposer_move(proposer, EVENT_DECIDED);
#endif
}

void
shard_proposer_flush(ShardProposer *proposer, int64 now, ShardActions *out)
{
	int count;
	ShardMapEntry *entries;

	if (proposer->office != SHARD_OFFICE_HELD || shard_map_count(proposer->gathered) == 0)
		return;
#ifdef SHARD_MUTANT_TWO_BATCHES_OUTSTANDING
	if (shard_map_count(proposer->outstanding) > 0)
		decided(proposer, now, out);
#endif
	if (shard_map_count(proposer->outstanding) > 0)
		return;
	proposer->batch_n = shard_map_point(proposer->map).n + 1;
	entries = shard_map_since(proposer->gathered, -1, out->arena, &count);
	for (int i = 0; i < count; i++)
		put_outstanding(proposer, &entries[i]);
	shard_map_clear(proposer->gathered);
	begin_batch(proposer, now, out);
}

/*
 * Where a voter durably stands. Only what it took under this ballot counts as accepted.
 */
static void
stands(ShardProposer *proposer, ProposerPeer *peer, int64 now, ShardMapPoint point)
{
	if (point.b == proposer->ballot && point.n > peer->accepted_n)
		peer->accepted_n = point.n;
	else if (peer->point_known && shard_map_compare(peer->point, point) == 0)
		return;
	peer->point = point;
	peer->point_known = true;
	if (proposer->office == SHARD_OFFICE_TERM)
		proposer->stage_at = now;
}

void
shard_proposer_batch_answer(ShardProposer *proposer, int64 now, const ShardControl *message,
							ShardActions *out)
{
	ProposerPeer *peer = shard_proposer_peer(proposer, message->from);
	ShardMapPoint accepted = {message->b, message->batch_n};

	if (peer == NULL ||
		(proposer->office != SHARD_OFFICE_TERM && proposer->office != SHARD_OFFICE_HELD))
		return;
	if (message->kind == SHARD_CONTROL_ACCEPTED)
	{
		if (message->batch_n > peer->accepted_n)
			stands(proposer, peer, now, accepted);
		count_accepted(proposer, now, out);
		return;
	}
	if (message->kind == SHARD_CONTROL_SYNCED)
		stands(proposer, peer, now, message->accepted);
	else
	{
		peer->point = message->accepted;
		peer->point_known = true;
	}
	shard_proposer_push(proposer, peer, now, out);
	count_accepted(proposer, now, out);
}
