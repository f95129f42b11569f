/*
 * copy/import.c
 *		shard_peer.import: copies a shard from its old home to this node, its new one (M4, M16, M17).
 *
 * Called by this node's own control worker, over a connection to the node's own address; so it runs in
 * an ordinary backend, which may run user code as the type's owner, and may die without harm to others.
 *
 * prepare: compares the state tables of both nodes and counts rows; nothing is written. The connection to the old home
 * is kept for the copy that follows. rows: while an answer of the old home is stored here, the next one is made there.
 * All is stored in one transaction (import_stage.c), which waits for nothing but the answers that it has asked for,
 * each with a time-out. Locks of other transactions are waited for before it begins, with nothing held. Asked again,
 * the ownership row answers.
 *
 * If the process dies right here: before the commit nothing of the copy is here. After it the shard is staged; the
 * control worker, which got no answer, asks again, and hears so. The commit is asynchronous, under the turn lock; the
 * answer waits for the release gate with nothing held.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "link/callee.h"
#include "registry/catalog.h"
#include "registry/directory.h"
#include "base/fault.h"
#include "shared/gate.h"
#include "shared/import_progress.h"
#include "copy/import_private.h"
#include "base/peer_errors.h"
#include "registry/registry.h"
#include "base/nap.h"
#include "base/damage.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_import_shard);

#define CONNECT_TIMEOUT_MS 5000

/*
 * For the old home's answer whether it can be done. With the time to connect less than the coordinator waits (M16): it
 * hears which node has not answered.
 */
#define PREPARE_TIMEOUT_MS 9000

/*
 * For rows. Before the first ones they are all counted; before later ones those that came are stored here, by triggers
 * and constraints of any length. A coordinator that gives the move up ends the call sooner.
 */
#define ROWS_TIMEOUT_MS (120 * 1000)

/* Rows of one answer, about; enough that a call costs little, and little enough to keep in memory. */
#define CALL_BYTES (512 * 1024)

/* How long other transactions may have the state table locked, or an earlier copy the shard, when it is copied. */
#define LOCK_PATIENCE (5000 * INT64CONST(1000))
#define LOCK_NAP_MS 10

typedef struct Import
{
	ShardCallee callee;
	ShardImportCall call;
	ShardImportStage stage;
	ShardImportProgress progress;
	char *dsn;		/* of the old home */
	int32 node_inc; /* its incarnation */
} Import;

/* An answer of the old home; the readers point into bytes. */
typedef struct Answer
{
	char *bytes;
	ShardReader sections;
	ShardReader columns;
	ShardReader counts;
	ShardCopyPosition next;
	bool has_next;
} Answer;

/* ---- the call --------------------------------------------------------------------------------- */

static void
read_call(Import *import)
{
	ShardCallee *callee = &import->callee;

	if (!shard_copy_get_import(&callee->reader, &import->call) ||
		callee->reader.at != callee->reader.end)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION), errmsg("the call of an import is damaged")));
	if (import->call.secret != shard_board_secret(callee->db))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied to import a shard"),
						errdetail("Only the control worker of node %d imports shards.",
								  callee->view.node)));
}

static void
note(Import *import, ShardImportPhase phase)
{
	import->progress.phase = phase;
	shard_import_note(import->callee.db, &import->progress);
}

static void
begin_progress(Import *import)
{
	ShardImportProgress *progress = &import->progress;

	progress->shard = import->call.shard;
	progress->node = import->call.node;
	progress->pid = MyProcPid;
	progress->started = GetCurrentTimestamp();
	note(import,
		 import->call.kind == SHARD_COPY_PREPARE ? SHARD_IMPORT_PREPARING : SHARD_IMPORT_COPYING);
}

/* A prepared shard is shown as prepared until its copy begins, with no process at work on it. */
static void
end_progress(Import *import, ShardImportPhase phase)
{
	import->progress.pid = 0;
	note(import, phase);
}

/* The type and the old home's address, as known here; errors unless the shard can run here. */
static void
look_around(Import *import)
{
	const ShardShardRef *shard = &import->call.shard;
	const ShardDirectoryMember *member;
	const ShardType *type;

	shard_registry_refresh();
	type = shard_registry_by_id(shard->type_id);
	if (type == NULL || !type->exists || type->mode == SHARD_MODE_PROXY)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("entity type %d does not run on node %d", shard->type_id,
							   import->callee.view.node),
						errhint("Call shard_start() for it on that node.")));
	if (type->cluster_owner != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("entity type \"%s\" of node %d belongs to another role", type->name,
						import->callee.view.node),
				 errdetail("In the cluster the type belongs to role \"%s\".", type->cluster_owner),
				 errhint("shard_alter(%s, 'owner', ...) gives it one owner.",
						 quote_literal_cstr(type->name))));
	(void) shard_directory_refresh();
	member = shard_directory_find(import->call.node);
	if (member == NULL || member->record.dsn[0] == '\0')
		ereport(ERROR, (errcode(SHARD_ERRCODE_NOT_YET),
						errmsg("node %d has no address that node %d knows", import->call.node,
							   import->callee.view.node)));
	import->stage.type = type;
	import->stage.shard = *shard;
	import->stage.node = import->call.node;
	import->stage.self = import->callee.view.node;
	import->dsn = MemoryContextStrdup(import->callee.context, member->record.dsn);
	import->node_inc = member->record.inc_no;
}

/* What the ownership row says of the import, in the transaction that has begun. */
static ShardHandoffAnswer
look(Import *import)
{
	ShardHandoffAnswer answer;

	PushActiveSnapshot(GetTransactionSnapshot());
	shard_security_begin_system(&import->stage.security);
	look_around(import);
	shard_security_end(&import->stage.security);
	answer = shard_import_stage_judge(&import->stage, NULL);
	PopActiveSnapshot();
	return answer;
}

/* Raises that the shard is not to be copied here any more. */
static void
report_stale(const Import *import)
{
	ereport(ERROR,
			(errcode(SHARD_ERRCODE_NOT_YET),
			 errmsg("shard %d of entity type \"%s\" cannot be copied to node %d now",
					import->call.shard.shard, import->stage.type->name, import->callee.view.node),
			 errdetail("The node has the shard, or knows of a later home.")));
}

/* ---- the old home ----------------------------------------------------------------------------- */

/* Begins a call to the old home. */
static void
ask(Import *import, const ShardCopyPosition *position)
{
	ShardCallHeader header =
		shard_board_header(&import->callee.view, import->call.node, import->node_inc);
	ShardExportCall call = {.kind = import->call.kind,
							.shard = import->call.shard,
							.type_name = import->stage.type->name,
							.type_name_len = (int) strlen(import->stage.type->name),
							.max_bytes = CALL_BYTES,
							.position = *position,
							.owner = GetUserNameFromId(import->stage.type->owner, false)};
	StringInfoData out;

	call.owner_len = (int) strlen(call.owner);
	initStringInfo(&out);
	shard_packet_put_header(&out, &header);
	shard_copy_put_export(&out, &call);
	shard_import_source_ask(&out,
							call.kind == SHARD_COPY_PREPARE ? PREPARE_TIMEOUT_MS : ROWS_TIMEOUT_MS);
	pfree(out.data);
}

static void
damaged(const Import *import, const char *what)
{
	shard_damage_raise(psprintf("the answer of node %d", import->call.node), what,
					   "Nothing of the shard was stored.");
}

/* Where the old home stopped. */
static void
read_next(const Import *import, Answer *answer, ShardReader section)
{
	if (!shard_copy_get_position(&section, &answer->next) || section.at != section.end)
		damaged(import, "the place to go on from");
	answer->has_next = true;
}

/* First reading of an answer: its sections other than rows. */
static void
survey(const Import *import, Answer *answer)
{
	ShardReader reader = answer->sections;
	ShardReader section;
	int32 kind;
	int32 flags;

	while (shard_packet_get_section(&reader, &kind, &flags, &section))
	{
		switch (kind)
		{
			case SHARD_SECTION_COLUMNS:
				answer->columns = section;
				break;
			case SHARD_SECTION_COUNTS:
				answer->counts = section;
				break;
			case SHARD_SECTION_NEXT:
				read_next(import, answer, section);
				break;
			case SHARD_SECTION_CHUNK:
				break;
			default:
				if (flags & SHARD_SECTION_MANDATORY)
					ereport(ERROR,
							(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							 errmsg("node %d sends a part of a shard that node %d does not know",
									import->call.node, import->callee.view.node),
							 errdetail("The part is a section of kind %d.", kind),
							 errhint("Update the extension on node %d.",
									 import->callee.view.node)));
		}
	}
	if (reader.failed || (import->call.kind == SHARD_COPY_ROWS && !answer->has_next))
		damaged(import, "its sections");
}

/* Waits for the answer to the call under way. */
static void
take(const Import *import, Answer *answer)
{
	ShardCallHeader header;
	int length;

	memset(answer, 0, sizeof(*answer));
	answer->bytes = shard_import_source_take(&length);
	answer->sections = (ShardReader){answer->bytes, answer->bytes + length, false};
	if (!shard_packet_get_header(&answer->sections, &header) ||
		header.protocol_version != SHARD_PROTOCOL_VERSION || header.from != import->call.node)
		damaged(import, "its header");
	survey(import, answer);
}

/* How many rows there are, of parts that are known here. */
static void
read_counts(Import *import, const Answer *answer)
{
	ShardReader counts = answer->counts;
	ShardCopyCount count;

	while (shard_copy_get_count(&counts, &count))
	{
		if (count.part < SHARD_COPY_PARTS)
			import->stage.wanted[count.part] = count.rows;
		else if (count.rows > 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("shard %d of entity type \"%s\" has a part that node %d does not know",
							import->call.shard.shard, import->stage.type->name,
							import->callee.view.node),
					 errdetail("On node %d it has " INT64_FORMAT " rows of kind %d.",
							   import->call.node, count.rows, count.part),
					 errhint("Update the extension on node %d.", import->callee.view.node)));
	}
	if (counts.failed || answer->counts.at == NULL || answer->columns.at == NULL)
		damaged(import, "the description of the shard");
	import->progress.rows_total = 0;
	for (int part = 0; part < SHARD_COPY_PARTS; part++)
		import->progress.rows_total += import->stage.wanted[part];
}

/* ---- copying ---------------------------------------------------------------------------------- */

/* Which process has the table locked, as far as that can be seen. */
static const char *
locker_of(const Import *import)
{
	int pid = shard_state_table_locker(import->stage.type);

	return pid != 0 ? psprintf(" by process %d", pid) : "";
}

/* Raises that a user's transaction keeps the shard from being copied to here. */
static void
report_busy(const Import *import, ShardImportBusy busy)
{
	if (busy == SHARD_IMPORT_TABLE_BUSY)
		ereport(ERROR,
				(errcode(SHARD_ERRCODE_NOT_YET),
				 errmsg("the table of entity type \"%s\" is locked on node %d%s",
						import->stage.type->name, import->callee.view.node, locker_of(import)),
				 errdetail("Another transaction there holds a lock on the table."),
				 errhint("End that transaction; see pg_locks.")));
	ereport(ERROR,
			(errcode(SHARD_ERRCODE_NOT_YET),
			 errmsg("rows of shard %d of entity type \"%s\" are in use on node %d",
					import->call.shard.shard, import->stage.type->name, import->callee.view.node),
			 errdetail(
				 "An earlier copy of the shard, or the deletion of rows that it left, has not "
				 "ended there.")));
}

/*
 * Begins the transaction that stores, with all that others may have locked; waits for those locks with nothing held. A
 * call that only prepares does not wait: nothing has changed yet, and the move is tried again (M16).
 */
static void
begin_patiently(Import *import)
{
	int64 deadline = shard_clock_now() + LOCK_PATIENCE;
	bool rows = import->call.kind == SHARD_COPY_ROWS;
	ShardImportBusy busy;

	for (;;)
	{
		(void) shard_catalog_lock(false);
		busy = shard_import_stage_lock(&import->stage, rows);
		if (busy == SHARD_IMPORT_FREE)
			return;
		if (!rows || shard_clock_now() > deadline)
			report_busy(import, busy);
		shard_callee_commit();
		shard_nap(LOCK_NAP_MS, "ShardImport");
	}
}

/* Stores the rows of an answer. */
static void
store(Import *import, const Answer *answer)
{
	ShardReader reader = answer->sections;
	ShardReader section;
	int32 kind;
	int32 flags;

	while (shard_packet_get_section(&reader, &kind, &flags, &section))
	{
		ShardCopyChunk chunk;

		if (kind != SHARD_SECTION_CHUNK)
			continue;
		if (!shard_copy_get_chunk(&section, &chunk) || section.at != section.end)
			damaged(import, "its rows");
		shard_import_stage_take(&import->stage, &chunk);
		shard_fault("import_chunk");
		import->progress.rows_copied += chunk.n_rows;
		import->progress.bytes_copied += chunk.rows_len;
	}
	note(import, SHARD_IMPORT_COPYING);
}

/* Copies all rows; answer is the first one. In the transaction that has begun. */
static void
copy_rows(Import *import, Answer *answer)
{
	shard_import_stage_begin(&import->stage, answer->columns);
	for (;;)
	{
		bool last = answer->next.part == SHARD_COPY_NONE;

		if (!last)
			ask(import, &answer->next);
		store(import, answer);
		pfree(answer->bytes);
		if (last)
			break;
		take(import, answer);
	}
	shard_import_stage_complete(&import->stage);
}

/* Everything is stored: the shard is staged, if it still may be. */
static void
end_copy(Import *import)
{
	note(import, SHARD_IMPORT_STAGING);
	switch (shard_import_stage_own(&import->stage))
	{
		case SHARD_HANDOFF_DO:
			break;
		case SHARD_HANDOFF_DONE: /* by whom, if copies of a shard wait for one another? */
		case SHARD_HANDOFF_IGNORE:
			report_stale(import);
	}
	shard_fault("import_before_commit");
}

/*
 * The shard is staged already: has the lane's worker read the ownership row again. The answer waits for the release
 * gate, as the first one did.
 */
static void
announce_again(Import *import)
{
	shard_import_stage_announce(&import->stage);
}

static void
carry_out(Import *import)
{
	ShardHandoffAnswer verdict = look(import);
	bool prepare = import->call.kind == SHARD_COPY_PREPARE;
	Answer answer;

	if (verdict == SHARD_HANDOFF_IGNORE)
		report_stale(import);
	if (verdict == SHARD_HANDOFF_DONE)
	{
		announce_again(import);
		return;
	}
	/* waits that come before anything is written are done with nothing held */
	shard_callee_commit();
	shard_import_source_open(import->call.node, import->dsn, CONNECT_TIMEOUT_MS);
	ask(import, &(ShardCopyPosition){.part = SHARD_COPY_NONE, .after = ""});
	take(import, &answer);
	read_counts(import, &answer);
	shard_fault(prepare ? "import_prepare" : "import_begin");
	begin_patiently(import);
	if (prepare)
		shard_import_stage_check(&import->stage, answer.columns);
	else
	{
		copy_rows(import, &answer);
		end_copy(import);
	}
}

static void
note_failure(Import *import)
{
	MemoryContext old = MemoryContextSwitchTo(import->callee.context);
	ErrorData *error = CopyErrorData();
	int length = 0;

	if (error->message != NULL)
		length = pg_mbcliplen(error->message, (int) strlen(error->message),
							  sizeof(import->progress.error) - 1);
	memcpy(import->progress.error, error->message != NULL ? error->message : "", length);
	import->progress.error[length] = '\0';
	end_progress(import, SHARD_IMPORT_FAILED);
	FreeErrorData(error);
	MemoryContextSwitchTo(old);
}

/*
 * shard_peer.import(call bytea, INOUT answer bytea)
 *
 * Its answer is nothing but a header: that it answers says that the shard is staged, or may be copied.
 */
Datum
shard_import_shard(PG_FUNCTION_ARGS)
{
	Import *import = palloc0(sizeof(Import));
	StringInfoData answer;

	shard_callee_begin_own(fcinfo, &import->callee);
	read_call(import);
	begin_progress(import);
	PG_TRY();
	{
		MemoryContext old = MemoryContextSwitchTo(import->callee.context);

		carry_out(import);
		MemoryContextSwitchTo(old);
	}
	PG_CATCH();
	{
		note_failure(import);
		PG_RE_THROW();
	}
	PG_END_TRY();
	shard_callee_commit();
	if (import->call.kind == SHARD_COPY_ROWS)
	{
		shard_fault("import_after_commit");
		shard_gate_wait(XactLastCommitEnd);
		end_progress(import, SHARD_IMPORT_STAGED);
	}
	else
		end_progress(import, SHARD_IMPORT_PREPARING);
	initStringInfo(&answer);
	shard_callee_put_header(&import->callee, &answer);
	return shard_callee_answer(&import->callee, &answer);
}
