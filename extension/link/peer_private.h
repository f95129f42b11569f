/*
 * link/peer_private.h
 *		A connection from the inside. For peer.c and the other files of its name only.
 */
#pragma once

#include "lib/ilist.h"
#include "libpq-fe.h"

#include "link/peer.h"

/* What is under way on a connection; each error and each close ends it. */
typedef enum ShardPeerStep
{
	SHARD_PEER_STEP_CONNECT, /* PQconnectPoll; -> CHECK */
	SHARD_PEER_STEP_CHECK,	 /* are the procedures the extension's? late settings; -> IDLE */
	SHARD_PEER_STEP_IDLE,	 /* -> PREPARE, EXECUTE */
	SHARD_PEER_STEP_PREPARE, /* first call of a procedure; -> EXECUTE */
	SHARD_PEER_STEP_EXECUTE	 /* -> IDLE */
} ShardPeerStep;

/* Procedures that a connection may have called. */
#define SHARD_PEER_PROCEDURES 8
#define SHARD_PEER_PROCEDURE_NAME 32

typedef struct ShardPeerFailure
{
	int sqlstate; /* 0: none came */
	int refused;  /* SQLSTATE with which a server refused the login; 0: none did */
	char text[1024];
	char detail[1024];
	char hint[512];
} ShardPeerFailure;

/* How far a login is, by what the server has said (peer_login.c). */
typedef enum ShardPeerLoginStep
{
	SHARD_PEER_LOGIN_BEGINS,
	SHARD_PEER_LOGIN_NONCE, /* is asked for */
	SHARD_PEER_LOGIN_ASKED, /* for something else */
	SHARD_PEER_LOGIN_OVER,	/* nothing that is said can be work */
} ShardPeerLoginStep;

/* What is to be done with what a server has said. */
typedef enum ShardPeerLogin
{
	SHARD_PEER_LOGIN_READ,
	SHARD_PEER_LOGIN_WAIT, /* for the socket */
	SHARD_PEER_LOGIN_REFUSED,
} ShardPeerLogin;

struct ShardPeer
{
	dlist_node link; /* in shard_peer_list */
	char purpose[NAMEDATALEN];

	PGconn *conn; /* NULL: closed; else a descriptor is reserved for it */
	ShardPeerStep step;
	PostgresPollingStatusType connecting; /* CONNECT: what the socket is waited for */
	bool flushed;						  /* nothing is left to be written */
	int64 opened_at;					  /* CONNECT is over since */
	int64 deadline;						  /* of the step; 0: none */
	int timeout_ms;						  /* of the call */
	PGresult *result;					  /* of the step, or the answer */
	char procedure[SHARD_PEER_PROCEDURE_NAME];
	uint64 expected; /* bytes of the answer, at most; 0: what the procedure may answer */
	char *argument;	 /* of a call that waits for PREPARE; in TopMemoryContext */
	int argument_length;
	int n_prepared;
	char prepared[SHARD_PEER_PROCEDURES][SHARD_PEER_PROCEDURE_NAME];

	uint32 address;		/* hash of the dsn */
	int silent;			/* how often connecting took too long */
	int failures;		/* in a row */
	int32 incarnation;	/* of the other node, as last heard of */
	int64 last_backoff; /* the longest one, microseconds */
	int64 backoff;		/* of the last failure, microseconds */
	int64 next_open;	/* not before */
	bool open_refused;	/* a caller waits for next_open */
	bool unreported;	/* failed since the last poll */
	ShardPeerFailure failure;

	ShardPeerLoginStep login;
	int64 began_at;	  /* to connect, last */
	int64 looking_up; /* microseconds that libpq worked on that, and names were looked up */
	bool has_names;	  /* the address has any */

	/* peer_surplus.c */
	uint64 read;	  /* bytes of the connection, up to the end of the last step */
	uint64 surplus;	  /* of those bytes, the ones that were sent unasked */
	int64 reading;	  /* what came since then, in microseconds */
	uint64 addresses; /* of the process, in bytes, before it was looked at last */

	/* peer_turn.c */
	int64 turn;		  /* it waits for; 0: for none */
	int64 asked_turn; /* last */
	int64 heard_at;	  /* the other node, for all that is known; 0: never */

	/* peer_wait.c */
	int position;	 /* the socket in the set; -1: none */
	pgsocket socket; /* as it is there */
	uint32 events;
};

/* All connections of this process. */
extern dlist_head shard_peer_list;

/* A connection came, went, or has another socket: the set of sockets is made again. */
extern void shard_peer_wait_changed(void);

/* peer_turn.c: may another connection be open; may this one be made now? If not, the owner may try again at next_open. */
extern bool shard_peer_has_room(void);
extern bool shard_peer_take_turn(ShardPeer *peer);

/* peer_surplus.c: a connection begins, of which nothing was read. */
extern void shard_peer_surplus_begin(ShardPeer *peer);

/* A step is over, with an answer of the given number of bytes. */
extern void shard_peer_surplus_step(ShardPeer *peer, uint64 answer);

/* Reads what has come; false: the connection is gone. */
extern bool shard_peer_receive(ShardPeer *peer);
extern bool shard_peer_is_encrypted(const ShardPeer *peer);

/* Has the server said too much, unasked or in answer? Then *failure says so, and the connection is to be closed. */
extern bool shard_peer_surplus_fails(ShardPeer *peer);

/*
 * Before what was read is looked into, and after that: does a message begin that is longer than any may be? Then *failure says so,
 * and the connection is to be closed.
 */
extern void shard_peer_note_addresses(ShardPeer *peer);
extern bool shard_peer_announces_much(ShardPeer *peer);

/* peer_login.c: whether libpq may read what has come while it connects. REFUSED: *failure says why, the connection is to be closed. */
extern ShardPeerLogin shard_peer_login_look(ShardPeer *peer);

/* What its socket is to be waited for; 0: nothing. */
extern uint32 shard_peer_wanted_events(const ShardPeer *peer);

/* Notes a failure; SQL fields may be NULL. Texts are cut, and made valid. */
extern void shard_peer_set_failure(ShardPeerFailure *failure, int sqlstate, const char *text,
								   const char *detail, const char *hint);

/* Notes that no connection could be made: what libpq says, and what to do if a server refused the login. */
extern void shard_peer_set_login_failure(ShardPeerFailure *failure, const PGconn *conn);

/* Number of hosts that an address names. */
extern int shard_peer_dsn_hosts(const char *dsn);

/* Whether the system's resolver has to look up any of them. */
extern bool shard_peer_dsn_has_names(const char *dsn);

/*
 * Begins to connect: the options of the dsn and this node's. NULL, with *failure set: the dsn may not be used, or there
 * is no memory. *address: what to tell shard_peer_dsn_silent().
 */
extern PGconn *shard_peer_dsn_connect(const char *dsn, const char *purpose, uint32 *address,
									  int *timeout_ms, ShardPeerFailure *failure);

/* That number of an address. */
extern uint32 shard_peer_dsn_hash(const char *dsn);

/* The host at this address did not answer in time: the next connection of this process begins with the next host. */
extern void shard_peer_dsn_silent(uint32 address);

/* peer_files.c: what settings say of how connections are made. */
#define SHARD_PEER_SECURE_OPTIONS 9

typedef struct ShardPeerOption
{
	const char *keyword;
	const char *value;
} ShardPeerOption;

/* The options, and their number; values live as long as the settings. */
extern int shard_peer_secure_options(ShardPeerOption *options);

/* Whether the files that the options name can be read without waiting. False: *failure says which. */
extern bool shard_peer_secure_check(ShardPeerFailure *failure);
