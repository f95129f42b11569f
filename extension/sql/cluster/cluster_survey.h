/*
 * sql/cluster/cluster_survey.h
 *		A question to all members at the same time.
 *
 * Each member is asked over a connection of its own that ends with the question. A member that does not answer in time
 * is named, not waited for.
 */
#pragma once

#include "core/base/wire.h"
#include "sql/cluster/question.h"
#include "nodes/execnodes.h"
#include "link/peer_client.h"

/* Members that were asked, this node among them, and what they said. */
typedef struct ShardSurvey
{
	int count;
	int32 *node;
	ShardPeerQuestion *question;
} ShardSurvey;

/*
 * Asks all members, from joining to exiting; a node that has left its cluster, or was written off, asks none but itself.
 * Needs a snapshot, and must not run in a handler.
 */
extern ShardSurvey shard_cluster_survey(ShardInternalQuestion kind, int timeout_ms);

/* Asks this node alone, as node 0. */
extern ShardSurvey shard_cluster_survey_here(ShardInternalQuestion kind);

/* Reads a row of an answer: all columns of the result. nulls are false at first. */
typedef void ShardSurveyRow(ShardReader *reader, int32 node, Datum *values, bool *nulls);

/*
 * Puts the rows that the i-th node has answered. The node may send any number: so rows are read one by one, up to a
 * limit. Serves interrupts. Returns NULL, or why these are not all.
 */
extern const char *shard_cluster_survey_put(ReturnSetInfo *result, const ShardSurvey *all, int i,
											int most, ShardSurveyRow *read_row);

/* A text of an answer as a Datum. */
extern Datum shard_cluster_survey_text(ShardReader *reader);
