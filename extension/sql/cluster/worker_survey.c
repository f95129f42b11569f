/*
 * sql/cluster/worker_survey.c
 *		A question to all region workers of this database.
 *
 * A worker answers between turns, which handlers may make long. So all are asked for a moment first, and then those that
 * were busy once more, with the rest of the time. Nothing is kept: if the process dies right here, its questions are
 * withdrawn.
 */
#include "postgres.h"

#include "base/attempt.h"
#include "sql/cluster/worker_survey.h"
#include "base/clock.h"

#include "base/compat.h"

/* In microseconds: for each at first, for each at least, for all. */
#define FIRST_TIMEOUT (500 * INT64CONST(1000))
#define LEAST_TIMEOUT (100 * INT64CONST(1000))
#define TIMEOUT (10 * INT64CONST(1000000))

/* One question to one worker. */
typedef struct Question
{
	ShardDatabase *db;
	const ShardRequest *request;
	int worker;
	int64 timeout;
	char *answer; /* NULL: none */
	int answer_len;
} Question;

static void
ask(void *arg)
{
	Question *question = arg;

	question->answer = shard_ring_call(question->db, question->worker, question->request,
									   question->timeout, &question->answer_len);
}

/* NULL, or why there is no answer, which came too late; other errors are raised. */
static ErrorData *
ask_one(Question *question, ShardWorkerVisit visit, void *arg)
{
	ErrorData *error = shard_attempt(ask, question);
	ShardReader reader = {0};

	if (error != NULL && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
	if (error != NULL)
		return error;
	if (question->answer == NULL)
		return NULL;
	reader.at = question->answer;
	reader.end = question->answer + question->answer_len;
	while (reader.at < reader.end)
		visit(&reader, question->worker, arg);
	if (reader.failed)
		elog(ERROR, "could not read what shard worker %d answered", question->worker);
	return NULL;
}

void
shard_worker_survey(ShardDatabase *db, const ShardRequest *request, const char *what,
					ShardWorkerVisit visit, void *arg)
{
	int64 deadline = shard_clock_now() + TIMEOUT;
	bool busy[SHARD_MAX_WORKERS] = {false};

	shard_each_worker (worker, db)
	{
		Question question = {.db = db,
							 .request = request,
							 .worker = worker,
							 .timeout = FIRST_TIMEOUT};

		if (shard_shmem_worker_runs(db, worker))
			busy[worker] = ask_one(&question, visit, arg) != NULL;
	}
	for (int worker = 0; worker < SHARD_MAX_WORKERS; worker++)
	{
		Question question = {.db = db,
							 .request = request,
							 .worker = worker,
							 .timeout = Max(deadline - shard_clock_now(), LEAST_TIMEOUT)};
		ErrorData *error = busy[worker] ? ask_one(&question, visit, arg) : NULL;

		if (error != NULL)
			ereport(WARNING,
					(errmsg("shard worker %d did not answer in time, %s are missing", worker, what),
					 error->detail != NULL ? errdetail_internal("%s", error->detail) : 0,
					 errhint("See shard_health() and shard_stat_workers.")));
	}
}
