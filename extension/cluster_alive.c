/*
 * cluster_alive.c
 *		Whether entities run at members that are not heard (N7).
 *
 * A backend of the member answers, of shared memory: it depends on no worker there, and on no table but the one that says
 * for whom the caller's role may speak. Nothing is kept of an answer. Who lies can say that he runs, which has nobody
 * written off but by force, or that he does not, which is what silence says.
 */
#include "postgres.h"

#include "attempt.h"
#include "cluster_alive.h"
#include "cluster_view.h"
#include "core/wire.h"
#include "internal.h"
#include "peer_client.h"
#include "plane.h"

#include "compat.h"

/* A coordinator worker that has not answered a question on its own node by then stands still; in microseconds. */
#define STANDS_STILL (500 * INT64CONST(1000))

static void
ask_coordinator(void *arg)
{
	(void) shard_coordinator_members(STANDS_STILL);
}

static bool
coordinator_answers(ShardDatabase *db)
{
	ErrorData *error;

	if (!shard_cluster_view_worker_runs(db, SHARD_COORDINATOR))
		return false;
	error = shard_attempt(ask_coordinator, NULL);
	if (error != NULL && ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
		ReThrowError(error);
	return error == NULL;
}

/*
 * May anybody's handler run here? A worker that is in one, or is frozen, answers no question, and may commit all the
 * same: so it is not asked.
 */
static bool
entities_run(ShardDatabase *db)
{
	ShardPlaneView view;

	shard_plane_get(db, &view);
	if (!view.known || !view.handle || shard_plane_lease(db) <= shard_plane_now())
		return false;
	shard_each_worker (worker, db)
	{
		if (shard_cluster_view_worker_runs(db, worker))
			return true;
	}
	return false;
}

void
shard_cluster_alive_put(StringInfo out)
{
	ShardDatabase *db = shard_shmem_database();

	shard_wire_put_uint(out, db != NULL && entities_run(db) ? 1 : 0);
	shard_wire_put_uint(out, db != NULL && coordinator_answers(db) ? 1 : 0);
}

static ShardPeerQuestion
question_to(int32 node)
{
	const ShardDirectoryMember *member = shard_directory_find(node);
	ShardPeerQuestion question = {.bytes = ""};
	StringInfoData call;

	if (member == NULL || member->record.dsn == NULL || member->record.dsn[0] == '\0')
	{
		question.error = "no address";
		return question;
	}
	initStringInfo(&call);
	shard_internal_put_header(&call, node);
	shard_wire_put_int(&call, SHARD_INTERNAL_ALIVE);
	question.dsn = pstrdup(member->record.dsn);
	question.bytes = call.data;
	question.length = call.len;
	return question;
}

void
shard_cluster_alive(ShardAlive *asked, int count, int timeout_ms)
{
	ShardPeerQuestion *questions = palloc0(Max(count, 1) * sizeof(ShardPeerQuestion));

	for (int i = 0; i < count; i++)
		questions[i] = question_to(asked[i].node);
	shard_peer_client_ask(questions, count, "stats", timeout_ms);
	for (int i = 0; i < count; i++)
	{
		ShardReader reader = {questions[i].answer, questions[i].answer + questions[i].answer_length,
							  false};
		uint64 entities;
		uint64 coordinator;

		asked[i].entities = asked[i].coordinator = false;
		if (!questions[i].answered || questions[i].answer == NULL)
			continue;
		entities = shard_wire_get_uint(&reader);
		coordinator = shard_wire_get_uint(&reader);
		if (reader.failed || reader.at != reader.end)
			continue;
		asked[i].entities = entities == 1;
		asked[i].coordinator = coordinator == 1;
	}
}
