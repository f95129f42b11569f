/*
 * shared/ring_later.c
 *		Asks whose replies come later: they stay in the slots of their askers (E41, E43).
 *
 * What a death leaves behind. Worker: the asker is told that the outcome is unknown, as for any ask that was begun; the
 * reply finds nothing. Asker: the slot is free, or another request's, which has another generation and key.
 */
#include "postgres.h"

#include "shared/ring_private.h"
#include "shared/shmem.h"

#include "base/compat.h"

void
shard_ring_defer(const ShardRequest *request, ShardUuid key)
{
	shard_ring_slot_defer(shard_ring_slot_get(request->slot), request->generation, key);
}

bool
shard_ring_is_open(ShardDatabase *db, const ShardRingLater *ask)
{
	return shard_ring_slot_is_open(db, NULL, ask);
}

bool
shard_ring_reply_later(const ShardRingLater *ask, const char *data, int len, XLogRecPtr lsn)
{
	ShardRequest request = {.slot = ask->slot, .generation = ask->generation};

	if (!shard_ring_slot_is_open(shard_shmem_database(), shard_shmem_my_worker(), ask))
		return false;
#ifdef SHARD_MUTANT_REPLY_TO_NEXT
	request.generation = shard_ring_slot_get(ask->slot)->generation;
#endif
#ifdef SHARD_MUTANT_REPLY_UNFLUSHED
	lsn = InvalidXLogRecPtr;
#endif
	/* should the asker give up at this moment, the reply is dropped: its generation is over */
	shard_ring_reply(&request, data, len, lsn);
	return true;
}

int
shard_ring_count_open(ShardDatabase *db, int worker)
{
	uint32 generation;
	int count = 0;

	for (int slot = -1; (slot = shard_ring_slot_next_open(db, worker, slot + 1, &generation)) >= 0;)
		count++;
	return count;
}

void
shard_ring_fail_open(ShardDatabase *db, int worker, const ErrorData *error)
{
	ShardRequest request = {0};

	for (request.slot = -1; (request.slot = shard_ring_slot_next_open(db, worker, request.slot + 1,
																	  &request.generation)) >= 0;)
		shard_ring_reply_error(&request, error, InvalidXLogRecPtr);
}
