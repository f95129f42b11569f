/*
 * core/map/proposer.c
 *		Candidate and coordinator of the replicated map: the way into office and out of it.
 *
 * The way: would I be welcome (PRE_VOTE)? promise me your votes (PREPARE); the voter with the
 * greatest state among the answers gives it to me (FETCH); bring the voters to that state (SYNC) and
 * accept my first batch on it, which says under which ballot batches follow (TERM); so far proposer_campaign.c.
 * Once that is decided the office is held, and further batches follow one by one (proposer_batch.c),
 * are learned by members, and heartbeats show that the voters still follow (proposer_members.c).
 *
 * Why decided maps form one chain (V4). A state is a point (ballot, n) and the map there; each batch
 * was made for exactly one state and is accepted on no other (R4), so a point stands for one map
 * and one history. A batch is decided once a quorum has durably accepted it under its own ballot.
 *	 1. One ballot makes one chain. A ballot is a round and a node's id, and a node uses a round
 *		once: no other voter is asked for a promise before the own voter's promise of the ballot is
 *		durable, after which this node bids higher, also in another life. One batch is outstanding.
 *	 2. A later ballot b continues what was decided. Let batch D be decided under a lower ballot. The
 *		quorum that promised b shares a voter with the one that accepted D. That voter accepted
 *		first, since a promise of b excludes lower ballots; so it reported D or a later state. The
 *		candidate adopts the greatest state reported: of a ballot between, which continues D by
 *		induction, or of D's own, which is D or follows it. Nothing of it is acted on, and no other
 *		batch is built on it, before the term batch is decided: that makes the adopted state, with
 *		all that lay undecided in it, decided under b, and lets nothing from before b return.
 *	 3. The two quorums share a voter although the voters change. The voters are a value of the map,
 *		a quorum is a majority of those before the batch and of those after it, and of both sets
 *		while a change is under way; a change is made in two batches, each of which touches one set
 *		only. A candidate needs the quorum of the voters in the very state that it adopts (R2), and
 *		a change begins only on a decided term batch, so that no two changes can be built on one
 *		state by coordinators that do not know of each other.
 *	 4. SYNC may take a voter back, but only from a state that was not decided: it was accepted under
 *		a lower ballot, and all decided ones are part of what the coordinator adopted. What was
 *		accepted under the same ballot is never taken back.
 *
 * What if ...
 *	 - the process dies right here? Everything in this file is volatile. Voters know what they have
 *	   promised and accepted; a batch that reached no quorum is adopted by the next coordinator, or
 *	   is gone, and no node was told that it was decided. A promise of the own voter outlives the
 *	   campaign, so its ballot is not used again.
 *	 - a reply is lost? The question is repeated, and the voter answers what it has done.
 *	 - a message arrives twice, or late? Answers name the ballot, and count for that one only; a late
 *	   promise of this ballot is still true, a late ACCEPTED still counts, both set what is set.
 *	   Questions are harmless by the voter's rules.
 *	 - the clock jumps? It makes campaigns begin, be given up, and offices end; nothing else.
 *	 - the other side is frozen? It does not answer; a quorum without it goes on. Thawed, a voter finds
 *	   itself behind and is synced; a coordinator is refused by voters that promised more, or sees
 *	   that no majority answers its heartbeats, and drops everything (R10).
 *
 * A candidate need not vote itself: with one journal database as the voter, any member campaigns
 * (R14). Its own voter is then asked for the promise that guards its ballots, and counts for nothing.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/proposer_private.h"

/* Greater ones are nonsense; the bound keeps the next round from overflowing. */
#define MAX_BALLOT (PG_INT64_MAX / 2)

#define FIRST_PEERS 8

static const char *const office_names[] = {"none", "pre-vote", "prepare", "fetch", "term", "held"};
static const char *const event_names[] = {"campaign", "welcome", "outbid at home", "promised",
										  "fetched",  "decided", "ended"};

static const ShardStep office_steps[] = {
	{SHARD_OFFICE_NONE, EVENT_CAMPAIGN, SHARD_OFFICE_PRE_VOTE, "ask the voters that are known"},
	{SHARD_OFFICE_PRE_VOTE, EVENT_WELCOME, SHARD_OFFICE_PREPARE, "bid above all that was seen"},
	{SHARD_OFFICE_PREPARE, EVENT_OUTBID_AT_HOME, SHARD_OFFICE_PREPARE, "bid above that"},
	{SHARD_OFFICE_PREPARE, EVENT_PROMISED, SHARD_OFFICE_FETCH,
	 "ask a holder of the greatest state"},
	{SHARD_OFFICE_FETCH, EVENT_FETCHED, SHARD_OFFICE_TERM, "sync the voters, send the term batch"},
	{SHARD_OFFICE_TERM, EVENT_DECIDED, SHARD_OFFICE_HELD, "act; finish a change of voters"},
	{SHARD_OFFICE_HELD, EVENT_DECIDED, SHARD_OFFICE_HELD, "announce, send what was gathered"},
	{SHARD_OFFICE_NONE, EVENT_ENDED, SHARD_OFFICE_NONE, "there was none"},
	{SHARD_OFFICE_PRE_VOTE, EVENT_ENDED, SHARD_OFFICE_NONE, "not welcome, or too slow"},
	{SHARD_OFFICE_PREPARE, EVENT_ENDED, SHARD_OFFICE_NONE, "outbid, or too slow"},
	{SHARD_OFFICE_FETCH, EVENT_ENDED, SHARD_OFFICE_NONE, "outbid, or too slow"},
	{SHARD_OFFICE_TERM, EVENT_ENDED, SHARD_OFFICE_NONE, "outbid, or too slow"},
	{SHARD_OFFICE_HELD, EVENT_ENDED, SHARD_OFFICE_NONE, "outbid, or no majority is heard"},
};

const ShardMachine shard_proposer_machine = {"office", office_names, event_names, office_steps,
											 lengthof(office_steps)};

void
shard_proposer_move(ShardProposer *proposer, OfficeEvent event)
{
	int next = shard_machine_next(&shard_proposer_machine, proposer->office, event);

	Assert(next >= 0);
	proposer->office = (ShardOffice) next;
}

ShardProposer *
shard_proposer_create(int32 self)
{
	ShardProposer *proposer = palloc0(sizeof(ShardProposer));

	Assert(self >= 0 && self <= PG_UINT16_MAX);
	proposer->self = self;
	proposer->map = shard_map_create();
	proposer->gathered = shard_map_create();
	proposer->outstanding = shard_map_create();
	proposer->peer_space = FIRST_PEERS;
	proposer->peers = palloc(sizeof(ProposerPeer) * FIRST_PEERS);
	return proposer;
}

void
shard_proposer_destroy(ShardProposer *proposer)
{
	shard_map_destroy(proposer->map);
	shard_map_destroy(proposer->gathered);
	shard_map_destroy(proposer->outstanding);
	pfree(proposer->peers);
	pfree(proposer);
}

void
shard_proposer_step_down(ShardProposer *proposer)
{
	if (proposer->office == SHARD_OFFICE_NONE)
		return;
	shard_proposer_move(proposer, EVENT_ENDED);
	shard_map_clear(proposer->map);
	shard_map_clear(proposer->gathered);
	shard_map_clear(proposer->outstanding);
	proposer->n_peers = 0;
}

void
shard_proposer_saw_ballot(ShardProposer *proposer, int64 ballot)
{
	if (ballot > proposer->seen && ballot < MAX_BALLOT)
		proposer->seen = ballot;
}

int64
shard_proposer_seen(const ShardProposer *proposer)
{
	return proposer->seen;
}

void
shard_proposer_forget_ballots(ShardProposer *proposer)
{
	proposer->seen = 0;
}

/*
 * Index of the first peer whose node is not below the given one.
 */
static int
peer_place(const ShardProposer *proposer, int32 node)
{
	int low = 0;
	int high = proposer->n_peers;

	while (low < high)
	{
		int middle = (low + high) / 2;

		if (proposer->peers[middle].node < node)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

ProposerPeer *
shard_proposer_peer(const ShardProposer *proposer, int32 node)
{
	int place = peer_place(proposer, node);

	if (place < proposer->n_peers && proposer->peers[place].node == node)
		return &proposer->peers[place];
	return NULL;
}

ProposerPeer *
shard_proposer_add_peer(ShardProposer *proposer, int32 node)
{
	int place = peer_place(proposer, node);
	ProposerPeer *peer;

	if (place < proposer->n_peers && proposer->peers[place].node == node)
		return &proposer->peers[place];
	if (proposer->n_peers == proposer->peer_space)
	{
		proposer->peer_space *= 2;
		proposer->peers = repalloc(proposer->peers, sizeof(ProposerPeer) * proposer->peer_space);
	}
	peer = &proposer->peers[place];
	memmove(peer + 1, peer, sizeof(ProposerPeer) * (proposer->n_peers - place));
	proposer->n_peers++;
	memset(peer, 0, sizeof(ProposerPeer));
	peer->node = node;
	peer->synced_at = PG_INT64_MIN;
	peer->heartbeat = PG_INT64_MIN;
	peer->learned = -1;
	peer->told = -1;
	peer->taught_at = PG_INT64_MIN;
	peer->lessons_since = PG_INT64_MIN;
	return peer;
}

int32
shard_proposer_voter(const ShardVotersRecord *voters, int i)
{
	if (i < voters->n_current)
		return voters->current[i];
	i -= voters->n_current;
	return i < voters->n_next ? voters->next[i] : 0;
}

/*
 * Does more than half of the nodes count?
 */
static bool
majority(const ShardProposer *proposer, const int32 *nodes, int n_nodes,
		 bool (*counts)(const ProposerPeer *peer, int64 number), int64 number)
{
	int votes = 0;

	for (int i = 0; i < n_nodes; i++)
	{
		const ProposerPeer *peer = shard_proposer_peer(proposer, nodes[i]);

		if (peer && counts(peer, number))
			votes++;
	}
	return votes > n_nodes / 2;
}

bool
shard_proposer_quorum(const ShardProposer *proposer, const ShardVotersRecord *voters,
					  bool (*counts)(const ProposerPeer *peer, int64 number), int64 number)
{
#ifdef SHARD_MUTANT_NEW_MAJORITY_ONLY
	if (voters->n_next > 0)
		return majority(proposer, voters->next, voters->n_next, counts, number);
#endif
	return majority(proposer, voters->current, voters->n_current, counts, number) &&
		   (voters->n_next == 0 ||
			majority(proposer, voters->next, voters->n_next, counts, number));
}

static bool
has_acknowledged(const ProposerPeer *peer, int64 begun)
{
	return peer->heartbeat >= begun;
}

/*
 * NACK: outbid (R10), or refused by a voter that does not vote, which others must make up for. At
 * home the bid is raised at once, since no other node has heard it.
 */
static void
refused(ShardProposer *proposer, int64 now, const ShardControl *message, ShardActions *out)
{
	bool home = proposer->office == SHARD_OFFICE_PREPARE && message->from == proposer->self;

	if (home && !proposer->own_promise && message->ballot >= proposer->ballot)
		shard_proposer_begin_prepare(proposer, now, EVENT_OUTBID_AT_HOME, out);
	else if (home || message->ballot > proposer->ballot)
		shard_proposer_step_down(proposer);
}

/* An answer to another ballot only tells how high others bid. */
void
shard_proposer_receive(ShardProposer *proposer, int64 now, const ShardControl *message,
					   ShardActions *out)
{
	shard_proposer_saw_ballot(proposer, message->ballot);
	if (proposer->office == SHARD_OFFICE_NONE)
		return;
	if (message->kind == SHARD_CONTROL_GET_DELTA)
	{
		shard_proposer_get_delta(proposer, now, message, out);
		return;
	}
	if (message->b != proposer->ballot)
		return;

	switch (message->kind)
	{
		case SHARD_CONTROL_PRE_VOTE_REPLY:
			shard_proposer_pre_vote_reply(proposer, now, message, out);
			break;
		case SHARD_CONTROL_PROMISE:
			shard_proposer_promise(proposer, now, message, out);
			break;
		case SHARD_CONTROL_STATE:
			shard_proposer_state(proposer, now, message, out);
			break;
		case SHARD_CONTROL_NACK:
			refused(proposer, now, message, out);
			break;
		case SHARD_CONTROL_SYNCED:
		case SHARD_CONTROL_ACCEPTED:
		case SHARD_CONTROL_NEED_SYNC:
			shard_proposer_batch_answer(proposer, now, message, out);
			break;
		case SHARD_CONTROL_HEARTBEAT_ACK:
			shard_proposer_heartbeat_ack(proposer, now, message, out);
			break;
		default:
			break;
	}
}

/* Is the own voter the only one, so that no other node can take the office without its word? */
static bool
votes_alone(const ShardProposer *proposer)
{
	const ShardVotersRecord *voters = &proposer->voters;

	return voters->n_current == 1 && voters->n_next == 0 && voters->current[0] == proposer->self &&
		   shard_map_count(proposer->outstanding) == 0;
}

/*
 * Until when the stage or office may go on as it is (R10): a stage of the campaign that comes no
 * further, an office whose heartbeats no majority acknowledges. A node that votes alone and has nothing
 * to decide may sleep longer than that; it would only take the same office again, and write for it.
 */
static int64
deadline(const ShardProposer *proposer)
{
	int64 since = proposer->stage_at;

	if (proposer->office == SHARD_OFFICE_HELD && votes_alone(proposer))
		return PG_INT64_MAX;
	if (proposer->office == SHARD_OFFICE_HELD)
		since = Max(since, shard_proposer_majority_heartbeat(proposer));
	return since + SHARD_ELECTION_TIMEOUT;
}

void
shard_proposer_tick(ShardProposer *proposer, int64 now, const int32 *members, int n_members,
					ShardActions *out)
{
	bool resend;

	if (proposer->office == SHARD_OFFICE_NONE)
		return;
	if (now > deadline(proposer))
	{
		shard_proposer_step_down(proposer);
		return;
	}

	resend = now - proposer->sent_at >= SHARD_RESEND_INTERVAL;
	switch (proposer->office)
	{
		case SHARD_OFFICE_PRE_VOTE:
		case SHARD_OFFICE_PREPARE:
			if (resend)
				shard_proposer_ask(proposer, now, out);
			break;
		case SHARD_OFFICE_FETCH:
			if (resend)
				shard_proposer_fetch(proposer, now, out);
			break;
		case SHARD_OFFICE_TERM:
		case SHARD_OFFICE_HELD:
			if (resend)
				shard_proposer_push_all(proposer, now, out);
			shard_proposer_heartbeats(proposer, now, members, n_members, out);
			shard_proposer_look_for_tombstones(proposer, now, out);
			break;
		default:
			break;
	}
}

ShardOffice
shard_proposer_office(const ShardProposer *proposer)
{
	return proposer->office;
}

int64
shard_proposer_ballot(const ShardProposer *proposer)
{
	return proposer->ballot;
}

const ShardMap *
shard_proposer_decided(const ShardProposer *proposer)
{
	return proposer->office == SHARD_OFFICE_HELD ? proposer->map : NULL;
}

int64
shard_proposer_last_promise(const ShardProposer *proposer)
{
	return proposer->last_promise;
}

int64
shard_proposer_learned_by(const ShardProposer *proposer, int32 member)
{
	const ProposerPeer *peer = shard_proposer_peer(proposer, member);

	return peer ? peer->learned : -1;
}

static bool
has_learned(const ProposerPeer *peer, int64 n)
{
	return peer->learned >= n;
}

bool
shard_proposer_quorum_learned(const ShardProposer *proposer, int64 n)
{
	return shard_proposer_quorum(proposer, &proposer->voters, has_learned, n);
}

/*
 * The newest time that a quorum has acknowledged is one that some voter has acknowledged.
 */
int64
shard_proposer_majority_heartbeat(const ShardProposer *proposer)
{
	int64 newest = PG_INT64_MIN;

	for (int i = 0; i < proposer->voters.n_current + proposer->voters.n_next; i++)
	{
		const ProposerPeer *peer =
			shard_proposer_peer(proposer, shard_proposer_voter(&proposer->voters, i));

		if (peer && peer->heartbeat > newest &&
			shard_proposer_quorum(proposer, &proposer->voters, has_acknowledged, peer->heartbeat))
			newest = peer->heartbeat;
	}
	return newest;
}
