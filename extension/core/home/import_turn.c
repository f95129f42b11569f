/*
 * core/home/import_turn.c
 *		Whose shard a target copies next (doc/protocol.md M27).
 *
 * How long it takes to prepare or to copy a shard is up to the owner of its type: by a lock on the owner's table,
 * by a trigger on it. So the oldest job is not always the next: owners take turns.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/home/import_turn.h"

bool
shard_import_own_place(const ShardImportPlaces *taken)
{
#ifdef SHARD_MUTANT_NO_OWN_PLACES
	return false;
#endif
	return (taken->from_home == 0 && taken->all < SHARD_IMPORT_BY_HOME) ||
		   (taken->of_owner == 0 && taken->all < SHARD_IMPORT_BY_OWNER);
}

/*
 * Count the jobs that do the same work as a job, copying or preparing: all, of its owner, and of
 * its owner from its home.
 */
static ShardImportPlaces
count(const ShardImportJob *jobs, int n_jobs, const ShardImportJob *job)
{
	ShardImportPlaces places = {0};

	for (int i = 0; i < n_jobs; i++)
	{
		if (jobs[i].rows != job->rows)
			continue;
		places.all++;
		places.of_owner += jobs[i].owner == job->owner;
		places.from_home += jobs[i].owner == job->owner && jobs[i].home == job->home;
	}
	return places;
}

static bool
may_begin(const ShardImportJob *running, int n_running, const ShardImportJob *waiting,
		  int n_waiting, const ShardImportJob *job)
{
	ShardImportPlaces taken = count(running, n_running, job);
	ShardImportPlaces wanted;

#ifdef SHARD_MUTANT_IMPORTS_AS_THEY_COME
	return taken.all < SHARD_IMPORT_COPIES;
#endif
	if (shard_import_own_place(&taken))
		return true;
	if (!job->rows || taken.all >= SHARD_IMPORT_COPIES)
		return false;
	wanted = count(waiting, n_waiting, job);
	return taken.of_owner < SHARD_IMPORT_COPIES - 1 || wanted.all == wanted.of_owner;
}

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
