/*
 * control/control_import.c
 *		Copying shards to this node (M4): which backend does it, how many at a time, what came of it.
 *
 * The control worker must not wait, nor run user code. So it calls shard_peer.import() of its own database, by
 * asynchronous connections to the node's registered address; each call runs in a backend (import.c). One call for a
 * shard at a time, a few at once, the rest in a queue, by turns of the types' owners and of the old homes
 * (core/import_turn): locks, triggers and refusals of one owner hold up that owner alone, a home that does not answer
 * its own shards. The coordinator of the cluster asks again until it is answered or has decided otherwise (M11): what
 * is under way is not begun twice, a copy that is unwanted by now is cancelled, by closing its connection, and a copy
 * that the coordinator does not ask for any more was refused or given up, and leaves the queue.
 *
 * Nothing is durable here. A call that was cancelled or cut may have staged the shard all the same: then
 * the next one is told so by the ownership row, and a newer fact ends what is staged (M14).
 */
#include "postgres.h"

#include "lib/ilist.h"
#include "utils/memutils.h"

#include "control/control_private.h"
#include "core/flow/copy.h"
#include "core/home/import_turn.h"
#include "base/fault.h"
#include "link/pool.h"

#include "base/compat.h"

/* For all of a call: the backend has time-outs for each step, so this is for one that is frozen. */
#define PREPARE_TIMEOUT_MS (60 * 1000)
#define ROWS_TIMEOUT_MS (3600 * 1000)

/*
 * This server's own connections: no other server needs to be spared. An error that a call raises, as every refusal is,
 * ends its connection, too; and the coordinator, which asks again, pauses itself.
 */
#define LONGEST_BACKOFF_MS 20

/* How often it is looked whether a copy is still wanted. */
#define LOOK_EVERY (200 * SHARD_MS)

/* The coordinator asks again at an interval at which it would have been heard by then. */
#define UNASKED (10 * SHARD_RESEND_INTERVAL)

/*
 * For this time after a failed copy other owners come before its owner, for the same home; and the number of failures
 * that are remembered.
 */
#define FAILED_FOR (5 * SHARD_SECOND)
#define FAILED_OWNERS 16

typedef struct Job
{
	dlist_node link; /* of all, oldest first */
	ShardPoolCall call;
	ShardCopyKind kind;
	ShardShardRef shard;
	int32 node;
	int64 asked; /* last */
	Oid owner;	 /* of the type; 0: not looked at, or not known */
	bool looked;
} Job;

/* An owner of a type whose copy has failed. */
typedef struct Failed
{
	Oid owner;
	int32 node; /* its home */
	int64 until;
} Failed;

static void take_answer(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer);
static void take_failure(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer);

static const ShardPoolUse use = {.purpose = "import",
								 .most = SHARD_IMPORT_BY_OWNER,
								 .longest_backoff_ms = LONGEST_BACKOFF_MS,
								 .answered = take_answer,
								 .failed = take_failure};

StaticAssertDecl(SHARD_IMPORT_BY_OWNER <= SHARD_POOL_MOST, "a pool has that many connections");

/* A copy may take long, and moves wait for what is prepared for some seconds only: so each has connections of its own. */
static ShardPool copying = {.use = &use};
static ShardPool preparing = {.use = &use};

static dlist_head jobs = DLIST_STATIC_INIT(jobs);
static Failed failed[FAILED_OWNERS];
static int64 look_at = 0;

/* ---- jobs ------------------------------------------------------------------------------------- */

static Job *
job_of(const ShardShardRef *shard)
{
	dlist_iter iter;

	dlist_foreach (iter, &jobs)
	{
		Job *job = dlist_container(Job, link, iter.cur);

		if (job->shard.type_id == shard->type_id && job->shard.shard == shard->shard)
			return job;
	}
	return NULL;
}

/* Does it wait for its turn? */
static bool
is_queued(const Job *job)
{
	return job->call.link == NULL;
}

/* The backend of a call without a waiting caller notices that itself. */
static void
drop(Job *job)
{
	shard_pool_cancel(&job->call);
	dlist_delete(&job->link);
	pfree(job);
}

/* Tells the machine what came of a job. It may give new ones, so the job is over before. */
static void
report(const ShardShardRef *shard, ShardNodeEventKind kind, const char *text)
{
	ShardShardRef copy = *shard;

	shard_control_event(
		&(ShardNodeEvent){.kind = kind, .n_shards = 1, .shards = &copy, .text = text});
}

/*
 * IMPORT_SHARD or PREPARE_IMPORT. Asked again while it is under way: it will be answered.
 */
void
shard_control_import(const ShardAction *action)
{
	ShardCopyKind kind =
		action->kind == SHARD_ACTION_PREPARE_IMPORT ? SHARD_COPY_PREPARE : SHARD_COPY_ROWS;
	Job *job = job_of(&action->shard);

	if (job != NULL)
	{
		job->asked = shard_clock_now();
		if (job->shard.move_id > action->shard.move_id || job->shard.epoch > action->shard.epoch ||
			(job->shard.move_id == action->shard.move_id &&
			 job->shard.epoch == action->shard.epoch && job->kind >= kind))
			return;
		drop(job);
	}
	job = MemoryContextAllocZero(TopMemoryContext, sizeof(Job));
	job->kind = kind;
	job->shard = action->shard;
	job->node = action->node;
	job->asked = shard_clock_now();
	dlist_push_tail(&jobs, &job->link);
	shard_control.again = true;
}

void
shard_control_import_forget(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &jobs)
		drop(dlist_container(Job, link, iter.cur));
	shard_pool_forget(&copying);
	shard_pool_forget(&preparing);
	memset(failed, 0, sizeof(failed));
}

/* ---- what is wanted --------------------------------------------------------------------------- */

/*
 * Whether the cluster has not decided otherwise, as far as this node has learned, and the coordinator still asks for
 * it. A copy that has begun is worth finishing even if the coordinator is away.
 */
static bool
is_wanted(const Job *job)
{
	const ShardMapEntry *entry =
		shard_map_value(shard_node_learned(shard_control.node),
						(ShardMapKey){SHARD_MAP_HOME, job->shard.type_id, job->shard.shard});
	ShardHomeRecord home;

	if ((is_queued(job) || job->kind == SHARD_COPY_PREPARE) &&
		shard_clock_now() - job->asked > UNASKED)
		return false;
	if (entry == NULL || !shard_record_get_home(entry, &home))
		return true;
	return home.epoch < job->shard.epoch && home.move_id <= job->shard.move_id;
}

static void
drop_unwanted(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &jobs)
	{
		Job *job = dlist_container(Job, link, iter.cur);

		if (!is_wanted(job))
			drop(job);
	}
}

/* ---- owners that failed ----------------------------------------------------------------------- */

/* Another owner's come first for a while. */
static void
note_failed(const Job *job)
{
	Failed *place = &failed[0];

	for (int i = 0; i < FAILED_OWNERS; i++)
	{
		if (failed[i].owner == job->owner && failed[i].node == job->node)
		{
			place = &failed[i];
			break;
		}
		if (failed[i].until < place->until)
			place = &failed[i];
	}
	*place = (Failed){job->owner, job->node, shard_clock_now() + FAILED_FOR};
}

static bool
has_failed(const Job *job)
{
	for (int i = 0; i < FAILED_OWNERS; i++)
		if (failed[i].owner == job->owner && failed[i].node == job->node &&
			shard_clock_now() < failed[i].until)
			return true;
	return false;
}

/* ---- calls ------------------------------------------------------------------------------------ */

static void
send(ShardPool *pool, Job *job)
{
	ControlState *state = &shard_control;
	ShardCallHeader header = shard_board_header(&state->view, state->view.node, state->view.inc_no);
	ShardImportCall what = {.kind = job->kind,
							.shard = job->shard,
							.node = job->node,
							.secret = shard_board_secret(state->db)};
	StringInfoData out;

	initStringInfo(&out);
	shard_packet_put_header(&out, &header);
	shard_copy_put_import(&out, &what);
	shard_pool_send(pool, &job->call, "import", &out,
					what.kind == SHARD_COPY_PREPARE ? PREPARE_TIMEOUT_MS : ROWS_TIMEOUT_MS);
	pfree(out.data);
	shard_fault("import_called");
}

/* The copy is there, or can be made. */
static void
take_answer(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer)
{
	Job *job = shard_pool_container(Job, call, call);
	ShardShardRef shard = job->shard;
	ShardCopyKind kind = job->kind;

	drop(job);
	shard_fault(kind == SHARD_COPY_PREPARE ? "ready_reported" : "staged_reported");
	report(&shard, kind == SHARD_COPY_PREPARE ? SHARD_EVENT_IMPORT_READY : SHARD_EVENT_STAGED,
		   NULL);
}

/*
 * A home could not be reached: whatever waits to be prepared from there hears the same. It would have to wait until each of
 * those before it has found that out, and its coordinator would take this node for the silent one.
 */
static void
fail_queued(int32 node, const char *text)
{
	List *shards = NIL;
	dlist_mutable_iter iter;
	ListCell *cell;

	dlist_foreach_modify (iter, &jobs)
	{
		Job *job = dlist_container(Job, link, iter.cur);
		ShardShardRef *shard;

		if (!is_queued(job) || job->kind != SHARD_COPY_PREPARE || job->node != node)
			continue;
		shard = palloc(sizeof(ShardShardRef));
		*shard = job->shard;
		shards = lappend(shards, shard);
		drop(job);
	}
	foreach (cell, shards)
		report(lfirst(cell), SHARD_EVENT_IMPORT_FAILED, text);
	list_free_deep(shards);
}

static void
take_failure(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer)
{
	Job *job;
	ShardShardRef shard;
	int32 node;
	const char *text;
	char *copy;
	/* said by the backend that copies; this node's own connection to it has no such code */
	bool silent =
		shard_peer_error(peer, &text) == ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION;

	if (call == NULL)
		return;
	job = shard_pool_container(Job, call, call);
	shard = job->shard;
	node = job->node;
	copy = pstrdup(text);
	note_failed(job);
	drop(job);
	report(&shard, SHARD_EVENT_IMPORT_FAILED, copy);
	if (silent)
		fail_queued(node, copy);
}

/* ---- turns ------------------------------------------------------------------------------------ */

/* Looked at once: jobs are few, but the queue is gone through often. */
static ShardImportJob
describe(Job *job)
{
	if (!job->looked)
		job->owner = shard_control_owner_of(job->shard.type_id);
	job->looked = true;
	return (ShardImportJob){.owner = job->owner,
							.home = job->node,
							.rows = job->kind == SHARD_COPY_ROWS,
							.failed = has_failed(job)};
}

/* The job that copies, or prepares, next; NULL: none. */
static Job *
next_job(bool rows)
{
	ShardImportJob running[2 * SHARD_IMPORT_BY_OWNER];
	ShardImportJob *waiting;
	Job **waits;
	Job *job;
	dlist_iter iter;
	int n_jobs = 0;
	int n_running = 0;
	int n_waiting = 0;
	int next;

	dlist_foreach (iter, &jobs)
		n_jobs++;
	waiting = palloc(n_jobs * sizeof(ShardImportJob));
	waits = palloc(n_jobs * sizeof(Job *));
	dlist_foreach (iter, &jobs)
	{
		job = dlist_container(Job, link, iter.cur);
		if (is_queued(job))
		{
			waits[n_waiting] = job;
			waiting[n_waiting++] = describe(job);
		}
		else
			running[n_running++] = describe(job);
	}
	next = shard_import_turn(running, n_running, waiting, n_waiting, rows);
	job = next >= 0 ? waits[next] : NULL;
	pfree(waiting);
	pfree(waits);
	return job;
}

/* ---- all of it -------------------------------------------------------------------------------- */

/* Without an address of its own a node is alone: nothing can be copied to it. */
static void
fail_all(void)
{
	const char *why =
		psprintf("node %d has no address of its own", shard_node_id(shard_control.node));

	while (!dlist_is_empty(&jobs))
	{
		Job *job = dlist_head_element(Job, link, &jobs);
		ShardShardRef shard = job->shard;

		drop(job);
		report(&shard, SHARD_EVENT_IMPORT_FAILED, why);
	}
}

/* Brings forward those that copy, or prepare. */
static void
run_pool(ShardPool *pool, bool rows, const char *dsn)
{
	ShardPoolCall *call;
	Job *job;

	while (shard_pool_has_room(pool) && (job = next_job(rows)) != NULL &&
		   shard_pool_reserve(pool, &job->call))
		;
	shard_pool_open(pool, dsn, 0, 0);
	while ((call = shard_pool_next(pool)) != NULL)
		send(pool, shard_pool_container(Job, call, call));
}

bool
shard_control_import_run(void)
{
	int64 now = shard_clock_now();
	const char *dsn;
	bool any;

	if (now >= look_at)
	{
		look_at = now + LOOK_EVERY;
		drop_unwanted();
	}
	any = shard_pool_poll(&copying);
	any |= shard_pool_poll(&preparing);
	if (dlist_is_empty(&jobs))
		return any;
	dsn = shard_control_link_address(shard_node_id(shard_control.node));
	if (dsn[0] == '\0')
	{
		fail_all();
		return true;
	}
	run_pool(&copying, true, dsn);
	run_pool(&preparing, false, dsn);
	return any;
}
