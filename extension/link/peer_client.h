/*
 * link/peer_client.h
 *		A call to another node for a backend whose client waits for it.
 */
#pragma once

#include "core/map/record.h"
#include "shard.h"

/*
 * Connects, calls a procedure of shard_peer once, closes. Returns the answer, palloc'd, NULL for SQL NULL. Serves
 * interrupts while it waits. Raises what fails, with SQLSTATE, detail and hint as they came; whom names the other node
 * in the error's text: "the node at \"host=...\"". timeout_ms is for all of it.
 */
extern char *
shard_peer_client_call(const char *dsn, const char *whom, const char *procedure, const char *bytes,
					   int length, int timeout_ms, int *answer_length);

/* A question to one of several nodes that are asked at the same time. */
typedef struct ShardPeerQuestion
{
	const char *dsn;
	const char *bytes;
	int length;
	bool looks;	 /* asked: is the connection passed on by a process in between? */
	uint64 most; /* bytes of the answer; 0: what the procedure may answer */

	/* how the question ended: all zeroes at first */
	bool answered;
	char *answer; /* palloc'd; NULL: SQL NULL */
	int answer_length;
	const char *error;		   /* palloc'd; NULL: none */
	bool mute;				   /* no answer in time, though the connection was taken */
	ShardAddressGround ground; /* if this database itself has answered */
	bool taken;				   /* for peer_client.c */
} ShardPeerQuestion;

/*
 * Asks all questions at once, except for those that are answered already, and returns when all are answered or
 * failed, or the time is up.
 */
extern void shard_peer_client_ask(ShardPeerQuestion *questions, int count, const char *procedure,
								  int timeout_ms);
