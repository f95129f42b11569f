/*
 * sql/view/inbox.h
 *		View shard_inbox, to which messages may be written, and the segments of the log as people see them.
 */
#pragma once

#include "shared/shmem.h"

/* ---- inbox_view.c: View shard_inbox: sending by writing to it ---- */

/* Registers the hook; from _PG_init. */
extern void shard_inbox_view_init(void);

/* ---- inbox_segments.c: The log's segments as people see them: size, and what keeps them ---- */

/* Bytes of all segments on disk; needs a transaction. */
extern int64 shard_inbox_segments_bytes(void);

/*
 * Why a segment that is not current cannot be emptied, as far as the workers' positions tell (D9); palloc'd, NULL: the
 * workers do not need it.
 */
extern char *shard_inbox_segments_reason(const ShardDatabase *db, int64 first_seq, int64 last_seq);
