/*
 * core/map/proposer_campaign.c
 *		The way into office: pre-vote, promises, the greatest state.
 *
 * The argument for safety is in proposer.c. A candidate asks the voters that it has learned, and
 * those that it hears of on the way: answers name the voters of the state that they speak of, and
 * the greatest state counts.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/proposer_private.h"

#define NODE_BITS 16 /* of a ballot */

static const ShardMapKey voters_key = {SHARD_MAP_VOTERS, 0, 0};

/*
 * A ballot of this node above all that were seen.
 */
static void
bid(ShardProposer *proposer)
{
	int64 round = (proposer->seen >> NODE_BITS) + 1;

	proposer->ballot = round << NODE_BITS | proposer->self;
	proposer->seen = proposer->ballot;
}

static bool
has_replied(const ProposerPeer *peer, int64 number)
{
	(void) number;
	return peer->replied;
}

static bool
is_welcome(const ProposerPeer *peer, int64 number)
{
	(void) number;
	return peer->welcome;
}

static bool
has_promised(const ProposerPeer *peer, int64 number)
{
	(void) number;
	return peer->promised;
}

void
shard_proposer_ask(ShardProposer *proposer, int64 now, ShardActions *out)
{
	bool prepare = proposer->office == SHARD_OFFICE_PREPARE;

	proposer->sent_at = now;
	if (prepare && !proposer->own_promise)
		return;
	for (int i = 0; i < proposer->n_peers; i++)
	{
		const ProposerPeer *peer = &proposer->peers[i];

		if (!peer->asked || (prepare ? peer->promised : peer->welcome))
			continue;
		shard_action_send(out, peer->node, prepare ? SHARD_CONTROL_PREPARE : SHARD_CONTROL_PRE_VOTE)
			->b = proposer->ballot;
	}
}

/* Ignored if an office or campaign is under way. */
void
shard_proposer_campaign(ShardProposer *proposer, int64 now, const ShardMap *learned,
						ShardActions *out)
{
	if (proposer->office != SHARD_OFFICE_NONE)
		return;
	shard_record_get_voters(shard_map_value(learned, voters_key), &proposer->voters);
	memset(&proposer->voters.extra, 0, sizeof(ShardExtra)); /* lies in the learned map */

	shard_proposer_move(proposer, EVENT_CAMPAIGN);
	bid(proposer);
	proposer->stage_at = now;
	proposer->own_promise = false;
	proposer->attempts = 0;
	proposer->heartbeat_at = PG_INT64_MIN;
	for (int i = 0; i < proposer->voters.n_current + proposer->voters.n_next; i++)
		shard_proposer_add_peer(proposer, shard_proposer_voter(&proposer->voters, i))->asked = true;
	shard_proposer_add_peer(proposer, proposer->self)->asked = true;
	shard_proposer_ask(proposer, now, out);
}

void
shard_proposer_begin_prepare(ShardProposer *proposer, int64 now, OfficeEvent event,
							 ShardActions *out)
{
	shard_proposer_move(proposer, event);
	bid(proposer);
	proposer->stage_at = now;
	proposer->sent_at = now;
	shard_action_send(out, proposer->self, SHARD_CONTROL_PREPARE)->b = proposer->ballot;
}

/*
 * The peer with the greatest state among those that count; NULL if none does.
 */
static const ProposerPeer *
greatest(const ShardProposer *proposer, bool (*counts)(const ProposerPeer *peer, int64 number))
{
	const ProposerPeer *best = NULL;

	for (int i = 0; i < proposer->n_peers; i++)
	{
		const ProposerPeer *peer = &proposer->peers[i];
		int order;

		if (!counts(peer, 0))
			continue;
		order = best ? shard_map_compare(peer->point, best->point) : 1;
#ifdef SHARD_MUTANT_LEAST_STATE_ADOPTED
		order = best ? -order : 1;
#endif
		if (order > 0)
			best = peer;
	}
	return best;
}

/*
 * Take what an answer says of the voter's state and of the voters in it.
 */
static void
take_claim(ProposerPeer *peer, const ShardControl *message)
{
	peer->point = message->accepted;
	peer->point_known = true;
	memset(&peer->claimed, 0, sizeof(ShardVotersRecord));
	if (message->n_entries == 1)
		shard_record_get_voters(&message->entries[0], &peer->claimed);
	memset(&peer->claimed.extra, 0, sizeof(ShardExtra)); /* lies in the message */
}

/*
 * Does a quorum say yes (R2), of the voters that the greatest state among the answers names? Those
 * that were not asked yet are asked, and may bring a greater state. *voters gets them.
 */
static bool
quorum_of_greatest(ShardProposer *proposer, int64 now, ShardVotersRecord *voters,
				   bool (*answered)(const ProposerPeer *peer, int64 number),
				   bool (*says_yes)(const ProposerPeer *peer, int64 number), ShardActions *out)
{
	bool more = false;

	*voters = greatest(proposer, answered)->claimed;
#ifdef SHARD_MUTANT_VOTERS_NOT_REREAD
	if (proposer->voters.n_current > 0)
		*voters = proposer->voters;
#endif
	for (int i = 0; i < voters->n_current + voters->n_next; i++)
	{
		ProposerPeer *peer = shard_proposer_add_peer(proposer, shard_proposer_voter(voters, i));

		more = more || !peer->asked;
		peer->asked = true;
	}
	if (more)
		shard_proposer_ask(proposer, now, out);
	return shard_proposer_quorum(proposer, voters, says_yes, 0);
}

void
shard_proposer_pre_vote_reply(ShardProposer *proposer, int64 now, const ShardControl *message,
							  ShardActions *out)
{
	ProposerPeer *peer = shard_proposer_peer(proposer, message->from);
	ShardVotersRecord voters;

	if (proposer->office != SHARD_OFFICE_PRE_VOTE || peer == NULL)
		return;
	peer->replied = true;
	peer->welcome = peer->welcome || message->flag;
	take_claim(peer, message);
	if (quorum_of_greatest(proposer, now, &voters, has_replied, is_welcome, out))
		shard_proposer_begin_prepare(proposer, now, EVENT_WELCOME, out);
}

void
shard_proposer_fetch(ShardProposer *proposer, int64 now, ShardActions *out)
{
	const ProposerPeer *best = greatest(proposer, has_promised);
	ShardMapPoint point = best->point;
	int holders = 0;
	int skip;

	for (int i = 0; i < proposer->n_peers; i++)
	{
		const ProposerPeer *peer = &proposer->peers[i];

		if (peer->promised && shard_map_compare(peer->point, point) == 0)
		{
			holders++;
			if (peer->node == proposer->self && proposer->attempts == 0)
				best = peer;
		}
	}
	skip = proposer->attempts % holders;
	for (int i = 0; i < proposer->n_peers && proposer->attempts > 0; i++)
	{
		const ProposerPeer *peer = &proposer->peers[i];

		if (peer->promised && shard_map_compare(peer->point, point) == 0 && skip-- == 0)
			best = peer;
	}
	proposer->attempts++;
	proposer->sent_at = now;
	shard_action_send(out, best->node, SHARD_CONTROL_FETCH)->b = proposer->ballot;
}

void
shard_proposer_promise(ShardProposer *proposer, int64 now, const ShardControl *message,
					   ShardActions *out)
{
	ProposerPeer *peer = shard_proposer_peer(proposer, message->from);
	ShardVotersRecord voters;

	if (proposer->office != SHARD_OFFICE_PREPARE || peer == NULL || !peer->asked)
		return;
	if (!proposer->own_promise && peer->node != proposer->self)
		return;
	peer->promised = true;
	take_claim(peer, message);
	if (!proposer->own_promise)
	{
		proposer->own_promise = true;
		shard_proposer_ask(proposer, now, out);
	}
	if (!quorum_of_greatest(proposer, now, &voters, has_promised, has_promised, out))
		return;
	proposer->voters = voters;
	proposer->last_promise = now;
	proposer->stage_at = now;
	shard_proposer_move(proposer, EVENT_PROMISED);
	shard_proposer_fetch(proposer, now, out);
}

void
shard_proposer_state(ShardProposer *proposer, int64 now, const ShardControl *message,
					 ShardActions *out)
{
	const ProposerPeer *best;

	if (proposer->office != SHARD_OFFICE_FETCH || message->above != 0)
		return;
	best = greatest(proposer, has_promised);
	if (shard_map_compare(message->accepted, best->point) != 0)
		return;
	shard_map_clear(proposer->map);
	shard_map_expect(proposer->map, message->entries, message->n_entries);
	for (int i = 0; i < message->n_entries; i++)
		shard_map_put(proposer->map, &message->entries[i]);
	shard_map_set_point(proposer->map, message->accepted);
#ifdef SHARD_MUTANT_VOTERS_NOT_REREAD
	if (proposer->voters.n_current == 0)
#endif
		shard_record_get_voters(shard_map_value(proposer->map, voters_key), &proposer->voters);
	memset(&proposer->voters.extra, 0, sizeof(ShardExtra));
	proposer->stage_at = now;
	shard_proposer_move(proposer, EVENT_FETCHED);
	shard_proposer_begin_term(proposer, now, out);
}
