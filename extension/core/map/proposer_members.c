/*
 * core/map/proposer_members.c
 *		Heartbeats, what members have learned, and tombstones that are no longer needed.
 *
 * A heartbeat's number is the time when it began, so the acknowledgement says by itself what it
 * proves: at that time or later the voter had promised no other candidate (L2, R10).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/proposer_private.h"
#include "core/map/voter.h"

#define PURGE_INTERVAL (10 * SHARD_SECOND)

static const ShardMapKey counters_key = {SHARD_MAP_COUNTERS, 0, 0};

void
shard_proposer_heartbeats(ShardProposer *proposer, int64 now, const int32 *members, int n_members,
						  ShardActions *out)
{
	if (now < proposer->heartbeat_at + SHARD_HEARTBEAT_INTERVAL)
		return;
	proposer->heartbeat_at = now;

	for (int i = 0; i < proposer->n_peers; i++)
		proposer->peers[i].member = false;
	for (int i = 0; i < n_members; i++)
		shard_proposer_add_peer(proposer, members[i])->member = true;
	for (int i = 0; i < proposer->n_peers; i++)
	{
		const ProposerPeer *peer = &proposer->peers[i];
		ShardControl *message;

		if (!peer->member && !shard_record_votes(&proposer->voters, peer->node) &&
			!shard_record_votes(&proposer->after, peer->node))
			continue;
		message = shard_action_send(out, peer->node, SHARD_CONTROL_HEARTBEAT);
		message->b = proposer->ballot;
		message->token = now;
		if (proposer->office == SHARD_OFFICE_HELD)
			message->commit_n = shard_map_point(proposer->map).n;
	}
}

/* A member that learns step by step is told as often in an interval of resending, at most. */
#define MOST_LESSONS 4

/*
 * May a member be told now what it lacks? Not again while the last time may still be on its way, unless it has got further
 * since; and only so often in an interval, whatever it says meanwhile: that may be the whole map each time.
 */
static bool
may_teach(ProposerPeer *peer, int64 now)
{
	if (peer->taught_at != PG_INT64_MIN && now - peer->taught_at < SHARD_RESEND_INTERVAL &&
		peer->learned <= peer->taught_from)
		return false;
#ifndef SHARD_MUTANT_TAUGHT_AS_ASKED
	if (peer->lessons_since == PG_INT64_MIN || now - peer->lessons_since >= SHARD_RESEND_INTERVAL)
	{
		peer->lessons_since = now;
		peer->lessons = 0;
	}
	if (peer->lessons >= MOST_LESSONS)
		return false;
	peer->lessons++;
#endif
	return true;
}

/* Tell a member what it lacks, all if it has missed purged tombstones (R8). */
static void
teach(ShardProposer *proposer, ProposerPeer *peer, int64 now, ShardActions *out)
{
	int64 n = shard_map_point(proposer->map).n;
	ShardControl *message;

	if (proposer->office != SHARD_OFFICE_HELD || peer->learned >= n || !may_teach(peer, now))
		return;
	peer->told = n;
	peer->taught_at = now;
	peer->taught_from = peer->learned;

	message = shard_action_send(out, peer->node, SHARD_CONTROL_LEARN);
	message->b = proposer->ballot;
	message->commit_n = n;
	if (peer->learned > 0 && peer->learned >= shard_proposer_purge_n(proposer))
		message->above = peer->learned;
	message->entries = shard_map_since(proposer->map, message->above > 0 ? message->above : -1,
									   out->arena, &message->n_entries);
}

void
shard_proposer_announce(ShardProposer *proposer, int64 before, ShardActions *out)
{
	int64 n = shard_map_point(proposer->map).n;
	ShardMapEntry *entries = NULL;
	int count = 0;

	if (before < shard_proposer_purge_n(proposer))
		return;
	for (int i = 0; i < proposer->n_peers; i++)
	{
		ProposerPeer *peer = &proposer->peers[i];
		ShardControl *message;

		if (!peer->member || (peer->learned < before && peer->told < before))
			continue;
		if (entries == NULL)
			entries = shard_map_since(proposer->map, before, out->arena, &count);
		message = shard_action_send(out, peer->node, SHARD_CONTROL_LEARN);
		message->b = proposer->ballot;
		message->above = before;
		message->commit_n = n;
		message->n_entries = count;
		message->entries = entries;
		peer->told = n;
	}
}

void
shard_proposer_heartbeat_ack(ShardProposer *proposer, int64 now, const ShardControl *message,
							 ShardActions *out)
{
	ProposerPeer *peer = shard_proposer_peer(proposer, message->from);

	if (peer == NULL || message->token > now || message->token <= peer->heartbeat)
		return;
	if (proposer->office != SHARD_OFFICE_TERM && proposer->office != SHARD_OFFICE_HELD)
		return;
		/*
		 * A voter that may have forgotten its promises says nothing about the office: a majority with
		 * it might have promised another ballot already, and a lease granted on its word might
		 * overlap (L2).
		 */
#ifndef SHARD_MUTANT_AMNESIAC_HOLDS_OFFICE
	if (message->voter_state == SHARD_VOTER_OK)
#endif
		peer->heartbeat = message->token;
	peer->learned = message->learned_n;
	if (shard_record_votes(&proposer->voters, peer->node) &&
		shard_map_count(proposer->outstanding) == 0 &&
		peer->accepted_n < shard_map_point(proposer->map).n)
	{
		/* a batch that the voter missed was decided without it */
		peer->point = message->accepted;
		peer->point_known = true;
		shard_proposer_push(proposer, peer, now, out);
	}
	if (peer->member)
		teach(proposer, peer, now, out);
}

void
shard_proposer_get_delta(ShardProposer *proposer, int64 now, const ShardControl *message,
						 ShardActions *out)
{
	ProposerPeer *peer = shard_proposer_peer(proposer, message->from);

	if (peer == NULL || !peer->member || proposer->office != SHARD_OFFICE_HELD)
		return;
	peer->learned = message->learned_n;
	teach(proposer, peer, now, out);
}

/*
 * The batch that every voter has accepted and every member has learned (R8); none of them can need
 * an older tombstone. -1 if one was not heard.
 */
static int64
passed_by_all(const ShardProposer *proposer)
{
	int64 n = shard_map_point(proposer->map).n;

#ifdef SHARD_MUTANT_TOMBSTONES_PURGED_EARLY
	return n;
#endif
	for (int i = 0; i < proposer->n_peers; i++)
	{
		const ProposerPeer *peer = &proposer->peers[i];

		if (shard_record_votes(&proposer->voters, peer->node))
			n = Min(n, peer->accepted_n > 0 ? peer->accepted_n : -1);
		if (peer->member)
			n = Min(n, peer->learned);
	}
	return n;
}

void
shard_proposer_look_for_tombstones(ShardProposer *proposer, int64 now, ShardActions *out)
{
	ShardCountersRecord counters;
	const ShardMapEntry *old;
	ShardMapEntry change;
	int64 oldest;
	int64 n;

	if (proposer->office != SHARD_OFFICE_HELD || now < proposer->purge_at)
		return;
	proposer->purge_at = now + PURGE_INTERVAL;
	oldest = shard_map_oldest_tombstone(proposer->map);
	if (oldest == 0)
		return;
	n = passed_by_all(proposer);
	if (n < oldest)
		return;

	old = shard_map_value(proposer->map, counters_key);
	shard_record_get_counters(old, &counters);
	counters.purge_n = n;
	change = shard_record_put_counters(&counters, old ? old->n : 0, out->arena);
	shard_proposer_propose(proposer, &change, 1);
}
