/*
 * sql/view/inbox_segments.h
 *		The log's segments as people see them: size, and what keeps them.
 */
#pragma once

#include "shared/shmem.h"

/* Bytes of all segments on disk; needs a transaction. */
extern int64 shard_inbox_segments_bytes(void);

/*
 * Why a segment that is not current cannot be emptied, as far as the workers'
 * positions tell (D9); palloc'd, NULL: they do not need it.
 */
extern char *shard_inbox_segments_reason(const ShardDatabase *db, int64 first_seq, int64 last_seq);
