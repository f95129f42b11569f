/*
 * shared/seal.h
 *		A code that only who has the secret can make (R23).
 */
#pragma once

#include "core/map/record.h"

/*
 * The first 128 bits of HMAC-SHA-256 of the bytes, with the secret as key. ERROR if the server's library cannot compute it;
 * in and out of transactions.
 */
extern ShardUuid shard_seal(ShardUuid secret, const void *bytes, size_t length);
