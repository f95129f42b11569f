/*
 * shared/shared.c
 *		All that is in shared memory, in the order in which it is made.
 */
#include "postgres.h"

#include "shared/board.h"
#include "shared/copy_set.h"
#include "shared/import_progress.h"
#include "shared/ring.h"
#include "shared/shmem.h"
#include "shared/stream_position.h"
#include "shared/visitor.h"

#include "base/compat.h"

static const ShardShmemPart *const parts[] = {
	&shard_board_part,
	&shard_visitor_part,
	&shard_import_part,
	&shard_stream_position_part,
	&shard_copy_set_part,
	&shard_ring_slot_part,
	NULL,
};

void
shard_shared_init(void)
{
	shard_shmem_init(parts);
}
