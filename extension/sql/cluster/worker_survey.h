/*
 * sql/cluster/worker_survey.h
 *		A question to all region workers of this database.
 */
#pragma once

#include "core/base/wire.h"
#include "shared/ring.h"
#include "shared/shmem.h"

/* Reads one row of an answer. One that it cannot read fails the reader. */
typedef void (*ShardWorkerVisit)(ShardReader *in, int worker, void *arg);

/*
 * Asks all region workers that run, and visits the rows of their answers. A worker that does not answer within ten
 * seconds, which are those of all together, is left out with a WARNING that names it: it works for one owner, and the
 * rows of the others are still shown. what: what is missing then, for people.
 */
extern void shard_worker_survey(ShardDatabase *db, const ShardRequest *request, const char *what,
								ShardWorkerVisit visit, void *arg);
