/*
 * core/import_turn.c
 *		Whose shard a target copies next (doc/protocol.md M27).
 *
 * How long it takes to prepare or to copy a shard is up to the owner of its type: by a lock of his own table, by a
 * trigger on it. So whatever comes first is not served first: it is one owner's turn, and another one's.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/import_turn.h"

/* Of those jobs that do the same, how many are of that owner, or of all others? */
static int
count(const ShardImportJob *jobs, int n_jobs, const ShardImportJob *job, bool same_owner)
{
	int n = 0;

	for (int i = 0; i < n_jobs; i++)
		n += jobs[i].rows == job->rows && (jobs[i].owner == job->owner) == same_owner;
	return n;
}

static bool
may_begin(const ShardImportJob *running, int n_running, const ShardImportJob *waiting,
		  int n_waiting, const ShardImportJob *job)
{
	int own = count(running, n_running, job, true);
	int others = count(running, n_running, job, false);

#ifdef SHARD_MUTANT_IMPORTS_AS_THEY_COME
	return own + others < (job->rows ? SHARD_IMPORT_COPIES : SHARD_IMPORT_PREPARES);
#endif
	if (own + others >= (job->rows ? SHARD_IMPORT_COPIES : SHARD_IMPORT_PREPARES))
		return false;
	if (!job->rows)
		return own == 0;
	return own < SHARD_IMPORT_COPIES - 1 || count(waiting, n_waiting, job, false) == 0;
}

/* See import_turn.h. */
int
shard_import_turn(const ShardImportJob *running, int n_running, const ShardImportJob *waiting,
				  int n_waiting, bool rows)
{
	int late = -1;

	for (int i = 0; i < n_waiting; i++)
	{
		if (waiting[i].rows != rows ||
			!may_begin(running, n_running, waiting, n_waiting, &waiting[i]))
			continue;
		if (!waiting[i].failed)
			return i;
		if (late < 0)
			late = i;
	}
	return late;
}
