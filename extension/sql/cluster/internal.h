/*
 * sql/cluster/internal.h
 *		What procedures of shard_peer and the functions that call them share.
 */
#pragma once

#include "core/base/wire.h"
#include "shard.h"
#include "sql/cluster/question.h"

/* Whether an entity is in memory on this node. */
extern bool shard_internal_is_running(int32 type_id, int32 shard, const char *entity, int length);

/* The answer of this node to a question about all of it. */
extern void shard_internal_put_answer(StringInfo out, ShardInternalQuestion question);
