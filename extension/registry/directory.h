/*
 * registry/directory.h
 *		Members of the cluster as this node has learned them: addresses, incarnations.
 *
 * A process-local copy of the member records in table shard.control, read again when shard_board_directory() has risen.
 */
#pragma once

#include "core/map/record.h"

typedef struct ShardDirectoryMember
{
	int32 node;
	ShardMemberRecord record; /* its texts live as long as the copy */
} ShardDirectoryMember;

/* Reads the records again if they changed. Needs a transaction and a snapshot. True: they changed. */
extern bool shard_directory_refresh(void);

/* As of the last refresh; NULL: no such member. Valid until the next refresh. */
extern const ShardDirectoryMember *shard_directory_find(int32 node);

/* All of them, ordered by node id; the number in *count. */
extern const ShardDirectoryMember *shard_directory_list(int *count);
