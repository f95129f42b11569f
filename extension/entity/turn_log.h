/*
 * entity/turn_log.h
 *		What a turn says in the server's log: a part of internal.h, which includes it.
 */
#pragma once

/* ---- turn_log.c: lines for the server's log, once the turn is committed ----------------------- */

typedef enum ShardTurnLogKind
{
	SHARD_TURN_LOG_GAP,			/* numbers were skipped */
	SHARD_TURN_LOG_NUMBER,		/* a dead letter, because of its number */
	SHARD_TURN_LOG_DEAD_LETTER, /* because it failed */
	SHARD_TURN_LOG_RECOUNT,
	SHARD_TURN_LOG_BURIED,	/* messages of a type that was dropped */
	SHARD_TURN_LOG_LEFT,	/* messages that waited for a shard that begins again */
	SHARD_TURN_LOG_FULL,	/* there are as many dead letters as may be */
	SHARD_TURN_LOG_START,	/* entities that fail to start */
	SHARD_TURN_LOG_PAUSE,	/* a shard pauses */
	SHARD_TURN_LOG_DECIDER, /* a decider could not decide */
	SHARD_TURN_LOG_TOUCHED, /* states that cannot be read for their replicas */
	SHARD_TURN_LOG_KINDS
} ShardTurnLogKind;

/* Counts an event of the kind. True: it is the turn's first one, and the caller writes its line. */
extern bool shard_turn_log_counts(ShardTurnLogKind kind);
extern void shard_turn_log(ShardTurnLogKind kind, int sqlstate, const char *message,
						   const char *detail, const char *hint);

/* After the commit: writes the lines. After an abort: forgets them. */
extern void shard_turn_log_committed(void);
extern void shard_turn_log_forget(void);

/*
 * Logs how many messages of types that are not here became dead letters, once a minute at most, and when the worker
 * ends.
 */
extern void shard_turn_log_strays(bool ending);
