/*
 * shared/told.c
 *		Lines of the server's log about what a peer does.
 *
 * In shared memory, since a peer that calls may have any number of backends. Where there are more kinds and nodes at a
 * time than entries, all that find none have one together.
 *
 * Nothing here is durable. If a process dies right here, a count is lost.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/timestamp.h"

#include "shared/told.h"
#include "core/base/quiet.h"

#include "base/compat.h"

bool
shard_told_may(ShardDatabase *db, int32 node, const char *kind, int number, const char **more)
{
	uint64 hash = hash_bytes_extended((const unsigned char *) kind, (int) strlen(kind), number);
	TimestampTz now = GetCurrentTimestamp();
	int64 left_out;
	bool may;

	SpinLockAcquire(&db->trouble_mutex);
	may = shard_quiet_may(db->told, SHARD_TOLD, node, hash, now, &left_out);
	SpinLockRelease(&db->trouble_mutex);
	*more = may && left_out > 0
				? psprintf(" (" INT64_FORMAT " lines like this were left out)", left_out)
				: "";
	return may;
}
