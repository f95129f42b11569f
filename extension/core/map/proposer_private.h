/*
 * core/map/proposer_private.h
 *		What the parts of the proposer share.
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

/* proposer.c */
extern void shard_proposer_move(ShardProposer *proposer, OfficeEvent event);
extern ProposerPeer *shard_proposer_peer(const ShardProposer *proposer, int32 node);
extern ProposerPeer *shard_proposer_add_peer(ShardProposer *proposer, int32 node);
extern int32 shard_proposer_voter(const ShardVotersRecord *voters, int i);
extern bool
shard_proposer_quorum(const ShardProposer *proposer, const ShardVotersRecord *voters,
					  bool (*counts)(const ProposerPeer *peer, int64 number), int64 number);

/* proposer_campaign.c */
extern void shard_proposer_ask(ShardProposer *proposer, int64 now, ShardActions *out);
extern void shard_proposer_begin_prepare(ShardProposer *proposer, int64 now, OfficeEvent event,
										 ShardActions *out);
extern void shard_proposer_fetch(ShardProposer *proposer, int64 now, ShardActions *out);
extern void shard_proposer_pre_vote_reply(ShardProposer *proposer, int64 now,
										  const ShardControl *message, ShardActions *out);
extern void shard_proposer_promise(ShardProposer *proposer, int64 now, const ShardControl *message,
								   ShardActions *out);
extern void shard_proposer_state(ShardProposer *proposer, int64 now, const ShardControl *message,
								 ShardActions *out);

/* proposer_batch.c */
extern void shard_proposer_begin_term(ShardProposer *proposer, int64 now, ShardActions *out);
extern void
shard_proposer_push(ShardProposer *proposer, ProposerPeer *peer, int64 now, ShardActions *out);
extern void shard_proposer_push_all(ShardProposer *proposer, int64 now, ShardActions *out);
extern void shard_proposer_batch_answer(ShardProposer *proposer, int64 now,
										const ShardControl *message, ShardActions *out);
extern int64 shard_proposer_purge_n(const ShardProposer *proposer);

/* proposer_members.c */
extern void shard_proposer_heartbeats(ShardProposer *proposer, int64 now, const int32 *members,
									  int n_members, ShardActions *out);
extern void shard_proposer_heartbeat_ack(ShardProposer *proposer, int64 now,
										 const ShardControl *message, ShardActions *out);
extern void shard_proposer_get_delta(ShardProposer *proposer, int64 now,
									 const ShardControl *message, ShardActions *out);
extern void shard_proposer_announce(ShardProposer *proposer, int64 before, ShardActions *out);
extern void
shard_proposer_look_for_tombstones(ShardProposer *proposer, int64 now, ShardActions *out);
