/*
 * entity/dead_letter_room.h
 *		How many dead letters a type may have, and all together that are not here, and what happens then.
 */
#pragma once

#include "log/log.h"
#include "entity/run.h"

/* The bytes of a row of shard.dead_letter that count, before compression, in SQL. */
#define SHARD_DEAD_LETTER_BYTES \
	"octet_length(payload) + octet_length(error) + coalesce(octet_length(detail), 0)" \
	" + coalesce(octet_length(hint), 0) + coalesce(octet_length(context), 0)"

/*
 * May a message become a dead letter of the type, for this error? If the type's choice is so, the oldest are
 * deleted for it, in the turn's transaction. False: it has to wait. The turn's user code has ended.
 */
extern bool shard_dead_letter_has_room(ShardRun *run, const ShardRow *row, const ErrorData *error);

/*
 * The same of a message whose type neither is here nor left anything here: the oldest dead letters of all such types go, where
 * there are too many. False: there was room made just now, and it is used up; the message is counted, and no more. The turn's user
 * code has ended.
 */
extern bool shard_dead_letter_has_stray_room(const ShardRow *row, const ErrorData *error);
