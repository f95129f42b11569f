/*
 * sql/cluster/cluster_alive.c
 *		Whether members that are not heard are there, and entities run at them (N7, N8).
 *
 * A backend of the member answers, of shared memory: it depends on no worker there, and on no table but the one that
 * says for which nodes the caller's role may speak. Nothing is kept of an answer. A member that lies can say that its
 * entities run, so that it is written off only by force, or that they do not, which is what silence says. The same
 * holds for a witness that is asked about another member: it reads that member's address, and waits for it.
 */
#include "postgres.h"

#include "base/attempt.h"
#include "sql/cluster/cluster_alive.h"
#include "sql/cluster/cluster_view.h"
#include "core/member/membership.h"
#include "core/base/wire.h"
#include "registry/directory.h"
#include "sql/cluster/question.h"
#include "link/peer_client.h"
#include "shared/board.h"

#include "base/compat.h"

/* A control worker that has not answered a question on its own node by then stands still; in microseconds. */
#define STANDS_STILL (500 * INT64CONST(1000))

/* A witness asks the member that it was asked about for this time: the asker waits for the witness meanwhile. */
#define WITNESS_TIMEOUT_MS 1500

/* shard_health does not wait long; the witnesses that it asks about silent members ask these themselves. */
#define SILENT_TIMEOUT_MS 1500
#define OTHERS_TIMEOUT_MS 2000

/* Some bytes about each. */
#define MOST_ANSWER (64 * 1024)

static void
ask_for_reports(void *reports)
{
	*(List **) reports = shard_control_members(STANDS_STILL);
}

/*
 * What the control worker here hears of members, itself among them. False: it stands still.
 */
static bool
ask_coordinator(ShardDatabase *db, List **reports)
{
	ErrorData *error;

	*reports = NIL;
	if (db == NULL || !shard_shmem_worker_runs(db, SHARD_CONTROL_WORKER))
		return false;
	error = shard_attempt(ask_for_reports, reports);
	if (error != NULL && ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
		ReThrowError(error);
	return error == NULL;
}

/*
 * May a handler of any owner run here? A worker that is in one, or is frozen, answers no question, and may commit all
 * the same: so workers are not asked.
 */
static bool
entities_run(ShardDatabase *db)
{
	ShardBoardView view;

	shard_board_get(db, &view);
	if (!view.known || !view.handle || shard_board_lease(db) <= shard_clock_now())
		return false;
	shard_each_worker (worker, db)
	{
		if (shard_shmem_worker_runs(db, worker))
			return true;
	}
	return false;
}

/* What is told of the control worker. */
#define CONTROL_RUNS 1
#define CONTROL_FAILS 2

/* It does not run, and health here says why. */
static bool
control_fails(ShardDatabase *db)
{
	ShardWorkerSlot *slot = &db->worker[SHARD_CONTROL_WORKER];
	ShardWorkerTurns turns;
	bool no_room;

	SpinLockAcquire(&slot->mutex);
	no_room = slot->no_room;
	SpinLockRelease(&slot->mutex);
	shard_shmem_turns(slot, &turns);
	return !shard_shmem_worker_runs(db, SHARD_CONTROL_WORKER) && (no_room || turns.failures > 0);
}

void
shard_cluster_alive_put(StringInfo out)
{
	ShardDatabase *db = shard_shmem_database();
	List *reports;

	shard_wire_put_uint(out, db != NULL && entities_run(db) ? 1 : 0);
	if (ask_coordinator(db, &reports))
		shard_wire_put_uint(out, CONTROL_RUNS);
	else
		shard_wire_put_uint(out, db != NULL && control_fails(db) ? CONTROL_FAILS : 0);
}

/* A question to a member, to be gone on with. */
static ShardPeerQuestion
question_to(int32 node, ShardInternalQuestion kind, StringInfo call)
{
	const ShardDirectoryMember *member = shard_directory_find(node);
	ShardPeerQuestion question = {.bytes = "", .most = MOST_ANSWER};

	initStringInfo(call);
	if (member == NULL || member->record.dsn == NULL || member->record.dsn[0] == '\0')
	{
		question.error = "no address";
		return question;
	}
	shard_question_put_header(call, node);
	shard_wire_put_int(call, kind);
	question.dsn = pstrdup(member->record.dsn);
	return question;
}

static void
read_answer(const ShardPeerQuestion *question, ShardAlive *asked)
{
	ShardReader reader = {question->answer, question->answer + question->answer_length, false};
	uint64 entities = shard_wire_get_uint(&reader);
	uint64 coordinator = shard_wire_get_uint(&reader);

	if (reader.failed || reader.at != reader.end)
		return;
	asked->answers = true;
	asked->entities = entities == 1;
	asked->coordinator = coordinator == CONTROL_RUNS;
	asked->fails = coordinator == CONTROL_FAILS;
}

void
shard_cluster_alive(ShardAlive *asked, int count, int timeout_ms)
{
	ShardPeerQuestion *questions = palloc0(Max(count, 1) * sizeof(ShardPeerQuestion));

	for (int i = 0; i < count; i++)
	{
		StringInfoData call;

		questions[i] = question_to(asked[i].node, SHARD_INTERNAL_ALIVE, &call);
		questions[i].bytes = call.data;
		questions[i].length = call.len;
	}
	shard_peer_client_ask(questions, count, "stats", timeout_ms);
	for (int i = 0; i < count; i++)
	{
		asked[i].answers = asked[i].entities = asked[i].coordinator = false;
		asked[i].mute = questions[i].mute;
		if (questions[i].answered && questions[i].answer != NULL)
			read_answer(&questions[i], &asked[i]);
	}
}

/* ---- what others say -------------------------------------------------------------------------- */

static bool
is_heard(List *reports, int32 node)
{
	const ShardMemberReport *report = shard_cluster_view_report_of(reports, node);

	return report != NULL && report->reachable;
}

/* Each node once, and not this one: the caller has this node call them in its stead. */
static bool
read_nodes(ShardReader *reader, ShardAlive *asked, uint64 count)
{
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	for (uint64 i = 0; i < count; i++)
	{
		asked[i].node = shard_wire_get_int32(reader);
		if (reader->failed || asked[i].node == view.node)
			return false;
		for (uint64 k = 0; k < i; k++)
			if (asked[k].node == asked[i].node)
				return false;
	}
	return reader->at == reader->end;
}

/* Only members are asked, so a caller can have this node call no other address. */
bool
shard_cluster_alive_put_witness(StringInfo out, ShardReader *reader)
{
	uint64 count = shard_wire_get_uint(reader);
	ShardAlive asked[SHARD_ALIVE_MOST] = {0};
	List *reports;
	int members;

	if (reader->failed || count > SHARD_ALIVE_MOST || !read_nodes(reader, asked, count))
		return false;
	(void) ask_coordinator(shard_shmem_database(), &reports);
	(void) shard_cluster_view_directory(&members);
	shard_cluster_alive(asked, (int) count, WITNESS_TIMEOUT_MS);
	shard_wire_put_int(out, shard_cluster_view_coordinator(reports));
	for (uint64 i = 0; i < count; i++)
	{
		shard_wire_put_uint(out, is_heard(reports, asked[i].node) ? 1 : 0);
		shard_wire_put_uint(out, asked[i].answers ? 1 : 0);
		if (!asked[i].answers)
			continue;
		shard_wire_put_uint(out, asked[i].entities ? 1 : 0);
		shard_wire_put_uint(out, asked[i].coordinator ? 1 : 0);
	}
	return true;
}

/*
 * What a witness has said. Returns the coordinator that it hears, 0: none.
 */
static int32
read_witness(const ShardPeerQuestion *question, int32 witness, ShardAlive *asked, int count)
{
	ShardReader reader = {question->answer, question->answer + question->answer_length, false};
	int32 coordinator = shard_wire_get_int32(&reader);

	for (int i = 0; i < count; i++)
	{
		bool heard = shard_wire_get_uint(&reader) == 1;
		bool reached = shard_wire_get_uint(&reader) == 1;
		bool runs = reached && shard_wire_get_uint(&reader) == 1;

		if (reached)
			(void) shard_wire_get_uint(&reader);
		if (reader.failed)
			return 0;
		if (heard)
			asked[i].heard_by = lappend_int(asked[i].heard_by, witness);
		if (reached)
			asked[i].reached_by = lappend_int(asked[i].reached_by, witness);
		if (runs)
			asked[i].runs_by = witness;
	}
	return coordinator;
}

/*
 * The witnesses that can be asked about them: members that are heard, but for those that are asked about.
 */
static int
witnesses_of(const ShardAlive *asked, int count, List *reports, int32 *nodes)
{
	int n = 0;
	ShardBoardView view;
	ListCell *cell;

	shard_board_get(shard_shmem_database(), &view);
	foreach (cell, reports)
	{
		const ShardMemberReport *report = lfirst(cell);
		bool is_asked = false;

		for (int i = 0; i < count; i++)
			is_asked |= asked[i].node == report->node;
		if (report->reachable && report->node != view.node && !is_asked && n < SHARD_ALIVE_MOST)
			nodes[n++] = report->node;
	}
	return n;
}

int32
shard_cluster_alive_ask_others(ShardAlive *asked, int count, List *reports, int timeout_ms,
							   int32 *witness)
{
	int32 nodes[SHARD_ALIVE_MOST];
	ShardPeerQuestion questions[SHARD_ALIVE_MOST];
	int n = witnesses_of(asked, count, reports, nodes);
	int32 coordinator = 0;

	*witness = 0;
	for (int k = 0; k < n; k++)
	{
		StringInfoData call;

		questions[k] = question_to(nodes[k], SHARD_INTERNAL_WITNESS, &call);
		shard_wire_put_uint(&call, count);
		for (int i = 0; i < count; i++)
			shard_wire_put_int(&call, asked[i].node);
		questions[k].bytes = call.data;
		questions[k].length = call.len;
	}
	shard_peer_client_ask(questions, n, "stats", timeout_ms);
	for (int i = 0; i < count; i++)
	{
		asked[i].heard_by = asked[i].reached_by = NIL;
		asked[i].runs_by = 0;
	}
	for (int k = 0; k < n; k++)
	{
		int32 heard;

		if (!questions[k].answered || questions[k].answer == NULL)
			continue;
		heard = read_witness(&questions[k], nodes[k], asked, count);
		if (heard == 0)
			continue;
		coordinator = heard;
		*witness = nodes[k];
	}
	return coordinator;
}

const char *
shard_cluster_alive_names(const List *nodes)
{
	StringInfoData names;
	ListCell *cell;

	initStringInfo(&names);
	appendStringInfoString(&names, list_length(nodes) > 1 ? "nodes " : "node ");
	foreach (cell, nodes)
		appendStringInfo(&names, "%s%d", cell == list_head(nodes) ? "" : ", ", lfirst_int(cell));
	return names.data;
}

/* ---- for shard_health -------------------------------------------------------------------------- */

/*
 * What members that are heard say of the silent ones that have not said that their entities run (N7).
 */
static void
ask_others(ShardAlive *asked, ShardMemberReport **of, int count, List *reports)
{
	int32 witness;
	int rest = 0;

	for (int i = 0; i < count; i++)
	{
		if (asked[i].entities)
			continue;
		asked[rest] = asked[i];
		of[rest++] = of[i];
	}
	if (rest == 0)
		return;
	(void) shard_cluster_alive_ask_others(asked, rest, reports, OTHERS_TIMEOUT_MS, &witness);
	for (int i = 0; i < rest; i++)
	{
		if (asked[i].heard_by != NIL)
			of[i]->heard_by = shard_cluster_alive_names(asked[i].heard_by);
		of[i]->heard_by_several = list_length(asked[i].heard_by) > 1;
		of[i]->entities_run = asked[i].heard_by == NIL && asked[i].runs_by != 0;
	}
}

void
shard_cluster_alive_ask_silent(List *reports)
{
	ShardAlive asked[SHARD_ALIVE_MOST];
	ShardMemberReport *of[SHARD_ALIVE_MOST];
	int members;
	int count = 0;
	ShardBoardView view;
	ListCell *cell;

	shard_board_get(shard_shmem_database(), &view);
	(void) shard_cluster_view_directory(&members);
	foreach (cell, reports)
	{
		ShardMemberReport *report = lfirst(cell);
		const ShardDirectoryMember *member = shard_directory_find(report->node);

		if (report->node != view.node && shard_cluster_view_is_silent(report) &&
			!shard_cluster_view_answers(report) && member != NULL &&
			shard_membership_is_member(member->record.status) && count < SHARD_ALIVE_MOST)
		{
			asked[count] = (ShardAlive){.node = report->node};
			of[count++] = report;
		}
	}
	if (count == 0)
		return;
	shard_cluster_alive(asked, count, SILENT_TIMEOUT_MS);
	for (int i = 0; i < count; i++)
	{
		of[i]->entities_run = asked[i].entities;
		of[i]->coordinator_runs = asked[i].coordinator;
		of[i]->coordinator_fails = asked[i].fails;
		/* the call is short: what the link has heard of a slow server tells that the server is not frozen */
		of[i]->mute = asked[i].mute && !of[i]->link_spoke;
	}
	ask_others(asked, of, count, reports);
}
