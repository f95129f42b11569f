/*
 * link/peer.h
 *		An asynchronous libpq connection to another node: one call at a time.
 *
 * Used by background processes (control worker, region workers), and by backends whose client waits (peer_client.h).
 * Nothing here blocks, but for the look-up of a host's name: the owner calls shard_peer_poll() when it was woken, and
 * sleeps with shard_worker_wait(), which also wakes for the sockets of all connections of this process. After any error
 * or time-out the connection is closed, with a bounded attempt to cancel the call; a connection that is in doubt is
 * never reused (X5). A new one is not begun before its back-off, with jitter, is over.
 */
#pragma once

#include "core/map/record.h"
#include "lib/stringinfo.h"
#include "utils/timestamp.h"

typedef struct ShardPeer ShardPeer;

typedef enum ShardPeerState
{
	SHARD_PEER_CLOSED = 0, /* -> CONNECTING, by open, when the back-off is over */
	SHARD_PEER_CONNECTING, /* -> READY, CLOSED */
	SHARD_PEER_READY,	   /* -> BUSY, by call; CLOSED */
	SHARD_PEER_BUSY		   /* a call is under way; -> READY by its answer; CLOSED */
} ShardPeerState;

typedef enum ShardPeerEvent
{
	SHARD_PEER_NOTHING = 0,
	SHARD_PEER_OPENED, /* ready for the first call: hello */
	SHARD_PEER_ANSWER, /* of the call: shard_peer_answer() */
	SHARD_PEER_FAILED  /* closed, and why: shard_peer_error() */
} ShardPeerEvent;

/* A closed connection; purpose is a part of its application_name: "region 0". Never freed by errors. */
extern ShardPeer *shard_peer_create(const char *purpose);
extern void shard_peer_destroy(ShardPeer *peer);

/*
 * Begin to connect, unless it is open or in back-off. dsn was checked when it was stored; it is checked again. False:
 * not yet.
 */
extern bool shard_peer_open(ShardPeer *peer, const char *dsn);

/* Is the connection closed, or open to that address? */
extern bool shard_peer_is_at(const ShardPeer *peer, const char *dsn);

/*
 * For a connection that has led to this very database, as the answering side's incarnation shows: did it come directly,
 * or through a process in between that passes it on (peer_ground.c)?
 */
extern ShardAddressGround shard_peer_ground(const ShardPeer *peer);

/*
 * The other node lives, under this incarnation number: if it was another number when this was last said, what kept the
 * node away is over, and so is a back-off.
 */
extern void shard_peer_heard(ShardPeer *peer, int32 incarnation);

/* The other node was heard just now: among the peers that wait for their turn to connect its peer is one of the first. */
extern void shard_peer_prefer(ShardPeer *peer);

/*
 * The longest back-off, in ms; 5 s if it was never set. A short one is for calls by which the absence of a node is
 * noticed. After a login that a server refused it is always 10 s.
 */
extern void shard_peer_limit_backoff(ShardPeer *peer, int longest_ms);

/* Close now; failed: the next open waits for a longer back-off. A call under way is cancelled. */
extern void shard_peer_close(ShardPeer *peer, bool failed);

/*
 * Limits the answers to calls from now on to this length, though the procedure's longest answer is longer; 0: the
 * procedure's own limit.
 */
extern void shard_peer_expect(ShardPeer *peer, uint64 bytes);

/*
 * Begin a call of a procedure of schema shard_peer, name(call bytea, INOUT answer bytea): "receive".
 * READY only; the bytes may go at once. After timeout_ms without an answer, and
 * half a second for each megabyte of the call, the connection fails.
 *
 * The statement is "CALL shard_peer.NAME($1, NULL)", by itself and outside of a transaction block, with
 * the parameter and the result in binary: the procedure commits what it has to, waits for the release
 * gate without a snapshot, and only then answers (T3). So the answer may be believed once the
 * connection is ready again (PQgetResult has given NULL) without an error.
 */
extern void shard_peer_call(ShardPeer *peer, const char *procedure, const char *bytes, int length,
							int timeout_ms);

/* A node was heard again: no connection of this process waits any longer before its next open. */
extern void shard_peer_hurry(void);

/* What happened since; call until NOTHING. */
extern ShardPeerEvent shard_peer_poll(ShardPeer *peer);

extern ShardPeerState shard_peer_state(const ShardPeer *peer);

/* The answer's bytes, until the next call of any function but state. NULL: SQL NULL. */
extern const char *shard_peer_answer(const ShardPeer *peer, int *length);

/* Of the last failure: SQLSTATE (0: none came), and a text for people; until the next failure. */
extern int shard_peer_error(const ShardPeer *peer, const char **text);

/*
 * Raises the last failure, for a client's backend: SQLSTATE, detail and hint as they came. context names the call and
 * the node that was called. what: NULL, or what is said before the text if the other side has raised nothing. Close the
 * connection before.
 */
extern void shard_peer_throw(const ShardPeer *peer, const char *what, const char *context);

/* When a connection of this process needs to be polled though no socket is ready, as ms from now; -1: never. */
extern long shard_peer_next_due(void);

/*
 * Waits for the latch, the sockets of this process's connections, or timeout_ms milliseconds (-1: no limit). For
 * worker.c: what shard_worker_wait() sleeps in. Returns when anything happened; does not reset the latch.
 */
extern void shard_peer_wait(long timeout_ms, uint32 wait_event);

/*
 * The same for a backend, which then lets a cancel or the end of the process come through as an error; resets the latch.
 * name: of the wait event; evaluated once.
 */
#define shard_peer_nap(timeout_ms, name) \
	do \
	{ \
		static uint32 nap_event = 0; \
\
		if (nap_event == 0) \
			nap_event = ShardWaitEvent(name); \
		shard_peer_nap_until(timeout_ms, nap_event); \
	} while (0)

extern void shard_peer_nap_until(long timeout_ms, uint32 wait_event);

/*
 * Error 22023 with a hint unless the text is a connection string that names only options of the
 * allow-list (doc/operations.md), and no password. what: "own_dsn".
 */
extern void shard_peer_check_dsn(const char *dsn, const char *what);

/* What is wrong with an address, palloc'd; NULL: nothing. */
extern const char *shard_peer_dsn_problem(const char *dsn);

/* Why settings keep this node from connecting to any other, palloc'd; NULL: they do not. */
extern const char *shard_peer_settings_problem(void);

/*
 * The address of this database without its host, with the user and the limits of another address;
 * palloc'd. NULL: that is none.
 */
extern char *shard_peer_own_dsn(const char *dsn, const char *database);

/*
 * An address, palloc'd, that has been checked: one that names no host means this server, and gets its socket folder
 * ("": it has none) and port.
 */
extern char *shard_peer_complete_dsn(const char *dsn, const char *socket_folder);
