/*
 * link/transport_private.h
 *		What the transport's files share: links, and what is to be told over them.
 */
#pragma once

#include "lib/ilist.h"
#include "lib/stringinfo.h"
#include "utils/hsearch.h"

#include "registry/directory.h"
#include "link/outbox.h"
#include "link/peer.h"
#include "shared/board.h"
#include "link/transport.h"

/* What an origin is to be told about one of its shards; freed when its answer has come. */
typedef struct LinkNews
{
	int32 type_id; /* key: this and shard */
	int32 shard;

	/* marks: released; behind the gate; behind the second one, so that a stream of new marks delays none */
	int64 ready;
	int64 waiting;
	XLogRecPtr waiting_lsn;
	int64 later;
	XLogRecPtr later_lsn;
	int64 sent; /* in the call under way; 0: none */

	/* a refusal's fact; n = 0: none */
	ShardFact fact;
	XLogRecPtr fact_lsn;
	int64 fact_sent; /* key: n */
} LinkNews;

/* A fact that was told over this connection. */
typedef struct LinkFact
{
	int32 type_id; /* key: this and shard */
	int32 shard;
	int64 n;
} LinkFact;

typedef enum LinkCall
{
	LINK_CALL_NONE = 0, /* next: any */
	LINK_CALL_HELLO,	/* next: NONE */
	LINK_CALL_RECEIVE	/* next: NONE */
} LinkCall;

/* This worker's link to a peer. */
typedef struct Link
{
	int32 node;
	ShardPeer *peer;
	LinkCall call;			/* under way */
	bool greeted;			/* hello was answered over this connection */
	int32 to_inc;			/* the incarnation that answered hello */
	int64 known_n;			/* the peer has learned the map up to here */
	ShardLanes quarantined; /* lanes, to be told to the peer */
	int first_lane;			/* the lane that comes first in the next call */
	HTAB *told;				/* LinkFact; NULL: none */
	TimestampTz open_since;
	TimestampTz hello_at; /* of the last hello */
	long hello_again_ms;  /* the pause before the next hello, if the last answer brought nothing */

	HTAB *news; /* LinkNews; NULL: none yet */
	long n_news;
	TimestampTz news_since; /* 0: nothing that was not sent */
	dlist_head replies;		/* LinkReply: to asks that the node holds, oldest first */
	Size reply_bytes;

	bool gathering; /* rows were taken for a call that was not made: an error came between */
	bool poll_gate; /* something waits for the gate */
	int naps;		/* naps in a row */

	/* the last failure, for people; sqlstate 0 and no text: none */
	bool failing;
	int sqlstate;
	TimestampTz failed_at;
	char error[256];
	bool troubled; /* the link has failed since the peer last received something */
	int erred;	   /* SQLSTATE of an error here since the peer last received something; 0: none */
} Link;

typedef struct Transport
{
	ShardDatabase *db;
	int worker;
	ShardLanes lanes;
	ShardRoutes *routes;
	uint32 generation; /* of the view */
	uint32 directory;  /* as of the last refresh */
	bool refreshed;
	uint32 returns; /* of nodes, that links have heard of */
	ShardBoardView view;
	MemoryContext scratch; /* of one run */
	int n_links;
	Link **links;
} Transport;

extern Transport shard_transport;

/* transport.c */
extern Link *shard_transport_link_of(int32 node);

/* Where a member can be called; NULL: it cannot. */
extern const char *shard_transport_address_of(int32 node);
extern void shard_transport_link_failed(Link *link, int sqlstate, const char *text);
extern void shard_transport_link_works(Link *link);

/* transport_call.c */
extern void shard_transport_link_say_hello(Link *link);
extern bool shard_transport_link_send(Link *link, TimestampTz now);
extern void shard_transport_link_take_answer(Link *link);

/* transport_news.c */
extern void shard_transport_link_put_news(Link *link, StringInfo out, XLogRecPtr *waiting);
extern void shard_transport_link_news_answered(Link *link);
extern void shard_transport_link_news_lost(Link *link);

/* transport_reply.c */
extern bool shard_transport_link_has_replies(Link *link);
extern void shard_transport_link_put_replies(Link *link, StringInfo out, XLogRecPtr *waiting);
extern void shard_transport_link_replies_answered(Link *link);
extern void shard_transport_link_replies_gone(Link *link);
