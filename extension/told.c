/*
 * told.c
 *		Lines of the server's log about what a peer does; see told.h.
 *
 * In shared memory, since whoever calls has as many backends as he likes. Where there are more kinds and nodes at a time than
 * entries, all that find none have one together.
 *
 * Nothing here is durable. If a process dies right here, a count is lost.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/timestamp.h"

#include "told.h"

#include "compat.h"

#define QUIET (60 * INT64CONST(1000000))

/* The entry of a kind and a node, else one that is of no use any more, else the one of all. Needs the mutex. */
static ShardTold *
find(ShardDatabase *db, int32 node, uint64 kind, TimestampTz now)
{
	ShardTold *free = NULL;

	for (int i = 0; i < SHARD_TOLD; i++)
	{
		ShardTold *entry = &db->told[i];

		if (entry->since != 0 && entry->node == node && entry->kind == kind)
			return entry;
		if (entry->since == 0 || now - entry->since > QUIET)
			free = free == NULL || entry->since < free->since ? entry : free;
	}
	if (free == NULL)
		return &db->told[SHARD_TOLD];
	*free = (ShardTold){.kind = kind, .node = node};
	return free;
}

bool
shard_told_may(ShardDatabase *db, int32 node, const char *kind, int number, const char **more)
{
	uint64 hash = hash_bytes_extended((const unsigned char *) kind, (int) strlen(kind), number);
	TimestampTz now = GetCurrentTimestamp();
	ShardTold *entry;
	int64 left_out;
	bool may;

	SpinLockAcquire(&db->trouble_mutex);
	entry = find(db, node, hash, now);
	left_out = entry->left_out;
	may = entry->since == 0 || now - entry->since > QUIET || now < entry->since;
	entry->since = may ? now : entry->since;
	entry->left_out = may ? 0 : left_out + 1;
	SpinLockRelease(&db->trouble_mutex);
	*more = may && left_out > 0
				? psprintf(" (" INT64_FORMAT " lines like this were left out)", left_out)
				: "";
	return may;
}
