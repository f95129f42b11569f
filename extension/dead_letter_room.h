/*
 * dead_letter_room.h
 *		How many dead letters a type may have, and what happens when it has them.
 */
#pragma once

#include "log.h"
#include "run.h"

/* The bytes of a row of shard.dead_letter that count, before compression, in SQL. */
#define SHARD_DEAD_LETTER_BYTES \
	"octet_length(payload) + octet_length(error) + coalesce(octet_length(detail), 0)" \
	" + coalesce(octet_length(hint), 0) + coalesce(octet_length(context), 0)"

/*
 * May a message become a dead letter of the type, for this error? If the type's choice is so, the oldest are
 * deleted for it, in the turn's transaction. False: it has to wait. The turn's user code has ended.
 */
extern bool shard_dead_letter_has_room(ShardRun *run, const ShardRow *row, const ErrorData *error);
