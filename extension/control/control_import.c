/*
 * control/control_import.c
 *		Copying shards to this node (M4): who does it, how many at a time, what came of it.
 *
 * The control worker must not wait, nor run user code. So it calls shard_peer.import() of its own
 * database, by asynchronous connections to the node's registered address; each call runs in a backend
 * (import.c). One call for a shard at a time, a few at once, the rest in a queue, by turns of the types' owners
 * and of the old homes (core/import_turn): locks, triggers and refusals of one owner hold up himself, a home that does not
 * answer its own shards. The coordinator of the
 * cluster asks again until it is answered or has decided otherwise (M11): what is under way is not begun
 * twice, what nobody wants any more is cancelled, by closing its connection, and what nobody asks for any more was refused or
 * given up, and leaves the queue.
 *
 * Nothing is durable here. A call that was cancelled or cut may have staged the shard all the same: then
 * the next one is told so by the ownership row, and a newer fact ends what is staged (M14).
 */
#include "postgres.h"

#include "lib/ilist.h"
#include "utils/memutils.h"

#include "control/control_link.h"
#include "control/control_private.h"
#include "core/flow/copy.h"
#include "core/home/import_turn.h"
#include "base/fault.h"
#include "link/peer.h"

#include "base/compat.h"

/* The first half copies, the others prepare: a copy may take long, and moves wait for that answer for some seconds only. */
#define SLOTS (2 * SHARD_IMPORT_BY_OWNER)

/* For all of a call: the backend has time-outs for each step, so this is for one that is frozen. */
#define PREPARE_TIMEOUT_MS (60 * 1000)
#define ROWS_TIMEOUT_MS (3600 * 1000)

/*
 * This server's own connections: there is nobody to be spared. An error that a call raises, as every refusal
 * is, ends its connection, too; and whoever makes us try again pauses himself.
 */
#define LONGEST_BACKOFF_MS 20

/* A connection without a call is closed after this. */
#define IDLE (60 * SHARD_SECOND)

/* How often it is looked whether a copy is still wanted. */
#define LOOK_EVERY (200 * SHARD_MS)

/* Who wants it asks again so often that it would have been heard by then. */
#define UNASKED (10 * SHARD_RESEND_INTERVAL)

/* So long others come before an owner of whom one has failed, from that home; of so many it is remembered. */
#define FAILED_FOR (5 * SHARD_SECOND)
#define FAILED_OWNERS 16

typedef struct Job
{
	dlist_node link; /* in the queue, oldest first; not while it has a slot */
	ShardCopyKind kind;
	ShardShardRef shard;
	int32 node;
	int64 asked; /* last */
	Oid owner;	 /* of the type; 0: not looked at, or not known */
	bool looked;
} Job;

typedef struct Slot
{
	ShardPeer *peer;
	Job *job; /* NULL: free */
	bool called;
	int64 used; /* when a call ended */
} Slot;

/* An owner of whom one has failed. */
typedef struct Failed
{
	Oid owner;
	int32 node; /* its home */
	int64 until;
} Failed;

static dlist_head queue = DLIST_STATIC_INIT(queue);
static Slot slots[SLOTS];
static Failed failed[FAILED_OWNERS];
static int64 look_at = 0;

/* ---- jobs ------------------------------------------------------------------------------------- */

static bool
is_of(const Job *job, const ShardShardRef *shard)
{
	return job->shard.type_id == shard->type_id && job->shard.shard == shard->shard;
}

static Slot *
slot_of(const ShardShardRef *shard)
{
	for (int i = 0; i < SLOTS; i++)
		if (slots[i].job != NULL && is_of(slots[i].job, shard))
			return &slots[i];
	return NULL;
}

static Job *
queued(const ShardShardRef *shard)
{
	dlist_iter iter;

	dlist_foreach (iter, &queue)
	{
		Job *job = dlist_container(Job, link, iter.cur);

		if (is_of(job, shard))
			return job;
	}
	return NULL;
}

static void
free_slot(Slot *slot)
{
	if (slot->job != NULL)
		pfree(slot->job);
	slot->job = NULL;
	slot->called = false;
	slot->used = shard_clock_now();
}

/* Ends a call that nobody waits for: its backend notices. */
static void
cancel(Slot *slot)
{
	shard_peer_close(slot->peer, false);
	free_slot(slot);
}

static void
drop(Job *job)
{
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
	Slot *slot = slot_of(&action->shard);
	Job *job = slot != NULL ? slot->job : queued(&action->shard);

	if (job != NULL)
	{
		job->asked = shard_clock_now();
		if (job->shard.move_id > action->shard.move_id || job->shard.epoch > action->shard.epoch ||
			(job->shard.move_id == action->shard.move_id &&
			 job->shard.epoch == action->shard.epoch && job->kind >= kind))
			return;
		if (slot != NULL)
			cancel(slot);
		else
			drop(job);
	}
	job = MemoryContextAllocZero(TopMemoryContext, sizeof(Job));
	job->kind = kind;
	job->shard = action->shard;
	job->node = action->node;
	job->asked = shard_clock_now();
	dlist_push_tail(&queue, &job->link);
	shard_control.again = true;
}

void
shard_control_import_forget(void)
{
	dlist_mutable_iter iter;

	for (int i = 0; i < SLOTS; i++)
	{
		if (slots[i].peer != NULL)
			shard_peer_destroy(slots[i].peer);
		slots[i].peer = NULL;
		free_slot(&slots[i]);
	}
	dlist_foreach_modify (iter, &queue)
		drop(dlist_container(Job, link, iter.cur));
	memset(failed, 0, sizeof(failed));
}

/* ---- what is wanted --------------------------------------------------------------------------- */

/*
 * Whether the cluster has not decided otherwise, as far as this node has learned, and somebody still asks for it. A copy
 * that has begun is worth to be ended even if the coordinator is away.
 */
static bool
is_wanted(const Job *job, bool waits)
{
	const ShardMapEntry *entry =
		shard_map_value(shard_node_learned(shard_control.node),
						(ShardMapKey){SHARD_MAP_HOME, job->shard.type_id, job->shard.shard});
	ShardHomeRecord home;

	if ((waits || job->kind == SHARD_COPY_PREPARE) && shard_clock_now() - job->asked > UNASKED)
		return false;
	if (entry == NULL || !shard_record_get_home(entry, &home))
		return true;
	return home.epoch < job->shard.epoch && home.move_id <= job->shard.move_id;
}

static void
drop_unwanted(void)
{
	dlist_mutable_iter iter;

	for (int i = 0; i < SLOTS; i++)
		if (slots[i].job != NULL && !is_wanted(slots[i].job, false))
			cancel(&slots[i]);
	dlist_foreach_modify (iter, &queue)
	{
		Job *job = dlist_container(Job, link, iter.cur);

		if (!is_wanted(job, true))
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
call(Slot *slot)
{
	ControlState *state = &shard_control;
	const ShardBoardView *view = &state->view;
	ShardCallHeader header = {.protocol_version = SHARD_PROTOCOL_VERSION,
							  .cluster = view->cluster,
							  .era = view->era,
							  .from = view->node,
							  .from_inc = view->inc_no,
							  .incarnation = view->incarnation,
							  .to = view->node,
							  .to_inc = view->inc_no,
							  .known_n = view->learned_n};
	ShardImportCall what = {.kind = slot->job->kind,
							.shard = slot->job->shard,
							.node = slot->job->node,
							.secret = shard_board_secret(state->db)};
	StringInfoData out;

	initStringInfo(&out);
	shard_packet_put_header(&out, &header);
	shard_copy_put_import(&out, &what);
	slot->called = true;
	shard_peer_call(slot->peer, "import", out.data, out.len,
					what.kind == SHARD_COPY_PREPARE ? PREPARE_TIMEOUT_MS : ROWS_TIMEOUT_MS);
	pfree(out.data);
	shard_fault("import_called");
}

/* The copy is there, or can be made. */
static void
take_answer(Slot *slot)
{
	ShardShardRef shard = slot->job->shard;
	ShardCopyKind kind = slot->job->kind;

	free_slot(slot);
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

	dlist_foreach_modify (iter, &queue)
	{
		Job *job = dlist_container(Job, link, iter.cur);
		ShardShardRef *shard;

		if (job->kind != SHARD_COPY_PREPARE || job->node != node)
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
take_failure(Slot *slot)
{
	ShardShardRef shard = slot->job->shard;
	int32 node = slot->job->node;
	const char *text;
	char *copy;
	/* said by the backend that copies; this node's own connection to it has no such code */
	bool silent =
		shard_peer_error(slot->peer, &text) == ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION;

	copy = pstrdup(text);
	note_failed(slot->job);
	free_slot(slot);
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

/* The job whose turn it is at a slot that copies, or prepares; NULL: none's. */
static Job *
next_job(bool rows)
{
	ShardImportJob running[SLOTS];
	ShardImportJob *waiting;
	dlist_iter iter;
	int n_running = 0;
	int n_waiting = 0;
	int next;

	if (dlist_is_empty(&queue))
		return NULL;
	for (int i = 0; i < SLOTS; i++)
		if (slots[i].job != NULL)
			running[n_running++] = describe(slots[i].job);
	dlist_foreach (iter, &queue)
		n_waiting++;
	waiting = palloc(n_waiting * sizeof(ShardImportJob));
	n_waiting = 0;
	dlist_foreach (iter, &queue)
		waiting[n_waiting++] = describe(dlist_container(Job, link, iter.cur));
	next = shard_import_turn(running, n_running, waiting, n_waiting, rows);
	pfree(waiting);
	if (next < 0)
		return NULL;
	dlist_foreach (iter, &queue)
		if (next-- == 0)
			break;
	return dlist_container(Job, link, iter.cur);
}

/* Gives a free slot the job whose turn it is. False: nobody's is. */
static bool
take_job(Slot *slot, bool rows)
{
	slot->job = next_job(rows);
	if (slot->job == NULL)
		return false;
	dlist_delete(&slot->job->link);
	if (slot->peer == NULL)
	{
		slot->peer = shard_peer_create("import");
		shard_peer_limit_backoff(slot->peer, LONGEST_BACKOFF_MS);
	}
	return true;
}

/* ---- all of it -------------------------------------------------------------------------------- */

/* Brings one forward. True: something came. */
static bool
run_slot(Slot *slot, const char *dsn)
{
	ShardPeerEvent event;
	bool any = false;

	if (slot->peer == NULL)
		return false;
	if (slot->job != NULL && shard_peer_state(slot->peer) == SHARD_PEER_CLOSED)
		(void) shard_peer_open(slot->peer, dsn);
	while ((event = shard_peer_poll(slot->peer)) != SHARD_PEER_NOTHING)
	{
		any = true;
		if (slot->job == NULL)
			continue;
		if (event == SHARD_PEER_ANSWER)
			take_answer(slot);
		else if (event == SHARD_PEER_FAILED)
			take_failure(slot);
	}
	if (slot->job != NULL && !slot->called && shard_peer_state(slot->peer) == SHARD_PEER_READY)
		call(slot);
	if (slot->job == NULL && shard_clock_now() - slot->used > IDLE)
		shard_peer_close(slot->peer, false);
	return any;
}

/* Without an address of its own a node is alone: nothing can be copied to it. */
static bool
fail_all(void)
{
	const char *why =
		psprintf("node %d has no address of its own", shard_node_id(shard_control.node));
	bool any = false;

	while (!dlist_is_empty(&queue))
	{
		Job *job = dlist_container(Job, link, dlist_pop_head_node(&queue));
		ShardShardRef shard = job->shard;

		pfree(job);
		report(&shard, SHARD_EVENT_IMPORT_FAILED, why);
		any = true;
	}
	return any;
}

bool
shard_control_import_run(void)
{
	int64 now = shard_clock_now();
	bool any = false;
	bool nobody[2] = {false, false}; /* waits whose turn it is, to prepare, to copy */
	const char *dsn = NULL;

	if (now >= look_at)
	{
		look_at = now + LOOK_EVERY;
		drop_unwanted();
	}
	for (int i = 0; i < SLOTS; i++)
	{
		bool rows = i < SHARD_IMPORT_BY_OWNER;

		if (slots[i].job == NULL && !nobody[rows])
			nobody[rows] = !take_job(&slots[i], rows);
		if (slots[i].job == NULL && slots[i].peer == NULL)
			continue;
		if (dsn == NULL)
			dsn = shard_control_link_address(shard_node_id(shard_control.node));
		if (dsn[0] == '\0' && slots[i].job != NULL)
		{
			dlist_push_head(&queue, &slots[i].job->link);
			slots[i].job = NULL;
			return fail_all();
		}
		any |= run_slot(&slots[i], dsn);
	}
	return any;
}
