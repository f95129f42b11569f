/*
 * sql/cluster/question.h
 *		What one node asks another one for a view: the questions that shard_peer.stats() answers.
 */
#pragma once

#include "lib/stringinfo.h"

/* What shard_peer.stats() is asked, after the header. */
typedef enum ShardInternalQuestion
{
	SHARD_INTERNAL_SHARDS = 1, /* answer, repeated: name of the type, shard, entities */
	SHARD_INTERNAL_REGIONS,	   /* answer, repeated: name of the type, mode */
	SHARD_INTERNAL_RUNNING,	   /* type_id, shard, entity; answer: 1 if it is in memory, else 0 */
	SHARD_INTERNAL_MOVES,	   /* answer, repeated: phase of an import, or kind of decision, of the
								* last hour; 1 for imports, else 0; type_id, shard, epoch, from, to,
								* rows copied, rows in all, started, changed (microseconds since 1970,
								* 0: unknown); error, or why */
	SHARD_INTERNAL_DECISIONS, /* answer, repeated, newest first: kind, at in microseconds since 1970,
								* type_id, shard, from_node, to_node, epoch (-1: null), why */
	SHARD_INTERNAL_ALIVE,	  /* answer: 1 if entities may run there, else 0; 1 if the control
								* worker answers, else 0 */
	SHARD_INTERNAL_WITNESS /* how many nodes, and which, each once, and not the asked node; answer: the coordinator that is
						    * heard there, 0: none; for each of them: 1 if it is heard there, else 0; if its database answers
						    * there: 1, and what that says, as above; else 0 */
} ShardInternalQuestion;

/* Appends the front of a call to that node: the asking node, and the asked one. */
extern void shard_question_put_header(StringInfo out, int32 to);
