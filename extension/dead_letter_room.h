/*
 * dead_letter_room.h
 *		How many dead letters a type may have, and what happens when it has them.
 */
#pragma once

#include "run.h"

/*
 * May a message with a body of so many bytes become a dead letter of the type? If the type's choice is so, the oldest are
 * deleted for it, in the turn's transaction. False: it has to wait, or be told of and lost. The turn's user code has
 * ended.
 */
extern bool shard_dead_letter_has_room(ShardRun *run, int64 bytes);
