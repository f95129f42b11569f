/*
 * sql/cluster/cluster_view.h
 *		What this node knows of its cluster, for views and functions that show it.
 */
#pragma once

#include "control/control.h"
#include "registry/directory.h"
#include "shared/board.h"
#include "shared/shmem.h"

/* The members as decided and learned, by node id; valid until the next call. Needs a snapshot. */
extern const ShardDirectoryMember *shard_cluster_view_directory(int *count);

/* What the control worker has observed; NIL if it does not run or answer, and in a handler. */
extern List *shard_cluster_view_reports(void);
extern const ShardMemberReport *shard_cluster_view_report_of(List *reports, int32 node);

/*
 * Is the member unreachable, and not only while its server restarts? A server that goes down in good order says so at
 * once.
 */
extern bool shard_cluster_view_is_silent(const ShardMemberReport *report);

/*
 * A link may work in one direction alone. Answers: the member runs and can be called, whether it is heard or not. Deaf:
 * it is heard, and cannot be called.
 */
extern bool shard_cluster_view_answers(const ShardMemberReport *report);
extern bool shard_cluster_view_is_deaf(const ShardMemberReport *report);

/* Members that are down or not heard, as in "nodes 3, 4"; NULL: there is none. Needs a snapshot. */
extern const char *shard_cluster_view_not_heard(List *reports);

/* The coordinator, as far as this node hears it; 0: none. */
extern int32 shard_cluster_view_coordinator(List *reports);
