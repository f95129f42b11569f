/*
 * core/map/proposer_private.h
 *		What the parts of the proposer share.
 *
 * now: microseconds of the clock that the host passes, as in all of core.
 */
#pragma once

#include "core/map/proposer.h"
#include "core/base/timing.h"

/* A node that is asked or told something: a voter, a member, or both. */
typedef struct ProposerPeer
{
	int32 node;
	bool member; /* learns what is decided */

	/* As a voter, in a campaign */
	bool replied;			   /* answered the pre-vote */
	bool welcome;			   /* answered yes to the pre-vote */
	bool asked;				   /* for its promise */
	bool promised;			   /* under this ballot */
	ShardVotersRecord claimed; /* voters in the state that it promised with */

	/* As a voter, in office */
	bool point_known;
	ShardMapPoint point;	 /* where it is, as far as heard; a hint, only its answers count */
	int64 accepted_n;		 /* it has durably accepted up to here under this ballot; 0: nothing */
	int64 synced_at;		 /* when the last SYNC was sent, */
	ShardMapPoint synced_to; /* and the state that it brings */

	/* Heartbeats and learning */
	int64 heartbeat;	 /* when the newest one began that it acknowledged; PG_INT64_MIN: none */
	int64 learned;		 /* -1: not heard */
	int64 told;			 /* everything up to here was sent to it once, maybe in vain */
	int64 taught_at;	 /* when what it lacked was sent, */
	int64 taught_from;	 /* and the n that it had learned then */
	int64 lessons_since; /* when the count of lessons began */
	int lessons;
} ProposerPeer;

typedef enum OfficeEvent
{
	EVENT_CAMPAIGN,
	EVENT_WELCOME,		  /* a majority would have a campaign */
	EVENT_OUTBID_AT_HOME, /* the own voter has promised more */
	EVENT_PROMISED,		  /* the quorum of the greatest state */
	EVENT_FETCHED,
	EVENT_DECIDED, /* a batch; the first one is the term's */
	EVENT_ENDED
} OfficeEvent;

struct ShardProposer
{
	int32 self;
	ShardOffice office;
	int64 seen;		/* greatest ballot met anywhere; outlives an office */
	int64 ballot;	/* of this campaign and office */
	int64 stage_at; /* when the stage of the campaign began or made progress, or the office began */
	int64 sent_at;	/* when what is unanswered was sent last */
	int attempts;	/* of fetching */
	bool own_promise; /* the own voter's, before which no other voter is asked */
	int64 last_promise;
	int64 heartbeat_at; /* when the last ones were sent */
	int64 purge_at;		/* the next look for tombstones */

	/*
	 * Campaign: the voters that are asked first, then those of the state adopted. Office: those of
	 * the map.
	 */
	ShardVotersRecord voters;

	ShardMap *map;			 /* state adopted (TERM), then decided (HELD) */
	ShardMap *gathered;		 /* changes of the next batch */
	ShardMap *outstanding;	 /* the batch on its way, empty if none is */
	int64 batch_n;			 /* its number */
	ShardVotersRecord after; /* voters once it is decided */

	int n_peers;
	int peer_space;
	ProposerPeer *peers; /* by node */
};

/* ---- proposer.c ------------------------------------------------------------------------------- */

/*
 * Takes an event into the state machine of the office: the one place where proposer->office changes. An illegal step is an
 * error in this code, since callers look at the office first.
 */
extern void shard_proposer_move(ShardProposer *proposer, OfficeEvent event);

/* The peer of a node; NULL: it has none. Valid until a peer is added. */
extern ProposerPeer *shard_proposer_peer(const ShardProposer *proposer, int32 node);

/* The peer of a node, made if there is none; other peers may move in memory. */
extern ProposerPeer *shard_proposer_add_peer(ShardProposer *proposer, int32 node);

/* The i-th of the present voters and of the voters to come; 0: behind the last. A node that is both comes twice. */
extern int32 shard_proposer_voter(const ShardVotersRecord *voters, int i);

/*
 * Do the voters for which counts(peer, number) is true make a quorum: a majority of the present voters and, while they
 * change, of those to come (R9)? False without voters.
 */
extern bool
shard_proposer_quorum(const ShardProposer *proposer, const ShardVotersRecord *voters,
					  bool (*counts)(const ProposerPeer *peer, int64 number), int64 number);

/* ---- proposer_campaign.c ---------------------------------------------------------------------- */

/*
 * Asks those voters that have not answered in this stage. The own voter was asked for its promise when the ballot was made;
 * until that promise is durable, no other node hears of the ballot.
 */
extern void shard_proposer_ask(ShardProposer *proposer, int64 now, ShardActions *out);

/* Begins to gather promises, by that event: bids above all that was seen, and asks the own voter first. */
extern void shard_proposer_begin_prepare(ShardProposer *proposer, int64 now, OfficeEvent event,
										 ShardActions *out);

/* Asks a holder of the greatest state for it: the own voter if it is one, else one after the other. */
extern void shard_proposer_fetch(ShardProposer *proposer, int64 now, ShardActions *out);

/* PRE_VOTE_REPLY. A no also says which nodes vote: what the candidate has learned may be old. */
extern void shard_proposer_pre_vote_reply(ShardProposer *proposer, int64 now,
										  const ShardControl *message, ShardActions *out);

/* PROMISE of a voter, under this ballot. */
extern void shard_proposer_promise(ShardProposer *proposer, int64 now, const ShardControl *message,
								   ShardActions *out);

/* STATE: the greatest state, from a holder that has not promised more since (R2). */
extern void shard_proposer_state(ShardProposer *proposer, int64 now, const ShardControl *message,
								 ShardActions *out);

/* ---- proposer_batch.c ------------------------------------------------------------------------- */

/* Sends the first batch (R5): it makes the adopted state, with all that lay undecided in it, decided. */
extern void shard_proposer_begin_term(ShardProposer *proposer, int64 now, ShardActions *out);

/*
 * Brings the outstanding batch, or else the present state, to a voter that has not accepted it: at once if the voter stands
 * where the batch begins, or if it is not known where the voter stands.
 */
extern void
shard_proposer_push(ShardProposer *proposer, ProposerPeer *peer, int64 now, ShardActions *out);

/* Sends the outstanding batch to every voter that has not accepted it, of those before the batch and of those after it. */
extern void shard_proposer_push_all(ShardProposer *proposer, int64 now, ShardActions *out);

/* ACCEPTED, SYNCED, NEED_SYNC of a voter, under this ballot. */
extern void shard_proposer_batch_answer(ShardProposer *proposer, int64 now,
										const ShardControl *message, ShardActions *out);

/* Tombstones up to this n may be gone from the map (R8). */
extern int64 shard_proposer_purge_n(const ShardProposer *proposer);

/* ---- proposer_members.c ----------------------------------------------------------------------- */

/* Sends heartbeats, if they are due, to the voters and to these members, which are the ones that learn from now on. */
extern void shard_proposer_heartbeats(ShardProposer *proposer, int64 now, const int32 *members,
									  int n_members, ShardActions *out);

/* HEARTBEAT_ACK under this ballot; one that is older than the newest of its sender is ignored. */
extern void shard_proposer_heartbeat_ack(ShardProposer *proposer, int64 now,
										 const ShardControl *message, ShardActions *out);

/* GET_DELTA: a member says where its learned map ends, and is sent what follows. */
extern void shard_proposer_get_delta(ShardProposer *proposer, int64 now,
									 const ShardControl *message, ShardActions *out);

/*
 * A batch was decided: tells it to all members that have, or were told, what came before it. A member that cannot use the
 * batch, since it missed what came before, is sent that when it says where it stands.
 */
extern void shard_proposer_announce(ShardProposer *proposer, int64 before, ShardActions *out);

/* From time to time: proposes to forget tombstones that all members have learned. */
extern void
shard_proposer_look_for_tombstones(ShardProposer *proposer, int64 now, ShardActions *out);
