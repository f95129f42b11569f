/*
 * base/peer_errors.h
 *		SQLSTATEs of our own: class SH.
 *
 * SH0nn: what one node answers another. All of them mean that nothing was done. The caller closes the connection (X5)
 * and starts again with hello, at once or later, as the table says. After any other error the caller waits with
 * back-off.
 *
 * code   name         meaning, and what the caller does
 * SH001  FENCED       a newer incarnation of the caller lives: stop, ask for admission (I6)
 * SH002  HELLO_FIRST  the stream is not known in this form, rows are missing, or the call was meant for
 *					   another incarnation of this node: hello, at once
 * SH003  NOT_YET      this node cannot take it yet: it starts, is not admitted, or has not heard of the
 *					   caller's incarnation: again after a short pause
 * SH004  STRANGER     another cluster, era, protocol version or node than the caller thinks: again
 *					   after a long pause, and an operator should look
 * SH005  UNREADABLE	 turn records were in the call, and it is not to be seen where they end: again with back-off,
 *					   and after some calls each shard alone (Q8). No other code says that of records: bytes that
 *					   are damaged elsewhere are 08P01, which the server, and what is between the nodes, raise, too
 * 08P01  (PostgreSQL's protocol_violation) the bytes are damaged
 * 0A000  (feature_not_supported) a mandatory section that this version does not know
 *
 * SH1nn: what clients are told, and dead letters say.
 *
 * SH100  OUTCOME_UNKNOWN  it may have been done, or be done yet: not to be repeated blindly. SQL's own code
 *		  for that, 08007, is of the class of broken connections: at such an error pools throw away the connection, and
 *		  drivers and frameworks repeat the statement. They know nothing of class SH.
 */
#pragma once

#define SHARD_ERRCODE_FENCED MAKE_SQLSTATE('S', 'H', '0', '0', '1')
#define SHARD_ERRCODE_HELLO_FIRST MAKE_SQLSTATE('S', 'H', '0', '0', '2')
#define SHARD_ERRCODE_NOT_YET MAKE_SQLSTATE('S', 'H', '0', '0', '3')
#define SHARD_ERRCODE_STRANGER MAKE_SQLSTATE('S', 'H', '0', '0', '4')
#define SHARD_ERRCODE_UNREADABLE MAKE_SQLSTATE('S', 'H', '0', '0', '5')
#define SHARD_ERRCODE_OUTCOME_UNKNOWN MAKE_SQLSTATE('S', 'H', '1', '0', '0')
