/*
 * copy/export.c
 *		shard_peer.export: a shard's rows, for its new home (M4, M17).
 *
 * The new home asks again and again, each time from where the answer before stopped; nothing is kept here from one call
 * to the next, neither a snapshot nor a cursor, as the rows of a sealed shard do not change. Each call looks at the
 * ownership row again: a shard that is active again, after an abort, gives no rows to a new home that has not heard of
 * it. Nothing is written here.
 *
 * Parts of a shard come in the order of ShardCopyPart. The first answer has the columns of the state table
 * and the number of rows of each part, too; for "prepare" that is all, and the shard may be active still.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "copy/export_private.h"
#include "link/callee.h"
#include "registry/catalog.h"
#include "registry/cluster_map.h"
#include "core/flow/copy.h"
#include "core/base/message.h"
#include "core/flow/route.h"
#include "base/fault.h"
#include "shared/gate.h"
#include "registry/payload.h"
#include "base/peer_errors.h"
#include "registry/registry.h"
#include "route/routing_store.h"
#include "registry/security.h"
#include "entity/state_copy.h"
#include "registry/statement.h"
#include "base/nap.h"
#include "base/damage.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_export_rows);

/* The most bytes of rows in one answer, unless a single row has more. */
#define MAX_BYTES (1024 * 1024)

/* How long users' transactions may take that lock the state table, or change states of a sealed shard by SQL. */
#define WRITERS_PATIENCE (5000 * INT64CONST(1000))
#define WRITERS_NAP_MS 10

static ShardStatement count_rows = {
	"SELECT (SELECT pg_catalog.count(*) FROM shard.held WHERE type_id = $1 AND shard = $2),"
	" (SELECT pg_catalog.count(*) FROM shard.shard_input WHERE type_id = $1 AND shard = $2),"
	" (SELECT pg_catalog.count(*) FROM shard.ordered WHERE type_id = $1 AND shard = $2),"
	" (SELECT pg_catalog.count(*) FROM shard.timer WHERE type_id = $1 AND shard = $2),"
	" (SELECT pg_catalog.count(*) FROM shard.history WHERE type_id = $1 AND shard = $2)",
	2,
	{INT4OID, INT4OID}};

/* ---- may it be copied? ------------------------------------------------------------------------ */

static void
read_call(ShardExport *export)
{
	ShardCallee *callee = &export->callee;

	if (shard_copy_get_export(&callee->reader, &export->call) &&
		callee->reader.at == callee->reader.end)
		return;
	shard_damage_raise(psprintf("the call of node %d", callee->header.from), NULL, NULL);
}

/*
 * States of one owner never become another owner's (C18). Of a type that was dropped here no state is left, and the
 * owner of a proxy has none.
 */
static void
check_owner(const ShardExport *export)
{
	const ShardExportCall *call = &export->call;
	const char *theirs = shard_payload_text(call->owner, call->owner_len);
	const char *mine;

	if (!shard_export_has_states(export))
		return;
	mine = GetUserNameFromId(export->type->owner, true);
	if (mine == NULL || strcmp(mine, theirs) != 0)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("shard %d of entity type \"%s\" belongs to %s on node %d, and "
							   "to role \"%s\" on node %d",
							   call->shard.shard, export->type->name,
							   shard_security_role_text(export->type->owner),
							   export->callee.view.node, theirs, export->callee.header.from),
						errhint("shard_alter(%s, 'owner', ...) gives it the same owner at both.",
								quote_literal_cstr(export->type->name))));
}

/* Finds the type here; raises an error unless it is the one that the caller means. */
static void
find_type(ShardExport *export)
{
	const ShardExportCall *call = &export->call;
	const char *name = shard_payload_text(call->type_name, call->type_name_len);

	shard_registry_refresh();
	export->type = shard_registry_known(call->shard.type_id);
	if (export->type == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("entity type \"%s\" does not exist on node %d", name,
							   export->callee.view.node)));
	if (strcmp(export->type->name, name) != 0)
		ereport(ERROR, (errcode(SHARD_ERRCODE_STRANGER),
						errmsg("entity type %d is \"%s\" on node %d, and \"%s\" on node %d",
							   call->shard.type_id, export->type->name, export->callee.view.node,
							   name, export->callee.header.from)));
	check_owner(export);
}

/* Errors unless the cluster has decided that the shard moves to the caller, as this node has learned (M25). */
static void
check_target(const ShardExport *export)
{
	const ShardShardRef *shard = &export->call.shard;
	int32 caller = export->callee.header.from;
	ShardHomeRecord home;

	if (export->call.kind == SHARD_COPY_PREPARE)
		return;
	if (shard_cluster_map_home(shard->type_id, shard->shard, &home) &&
		home.phase == SHARD_HOME_MOVING && home.to == caller && home.move_id == shard->move_id &&
		(int64) home.epoch + 1 == shard->epoch)
		return;
	ereport(ERROR, (errcode(SHARD_ERRCODE_NOT_YET),
					errmsg("shard %d of entity type \"%s\" cannot be copied from node %d",
						   shard->shard, export->type->name, export->callee.view.node),
					errdetail("The cluster has not decided, as far as node %d has learned, that "
							  "the shard moves to node %d in epoch %d, by move " INT64_FORMAT ".",
							  export->callee.view.node, caller, shard->epoch, shard->move_id)));
}

/* Errors unless this node has the shard, sealed for that move; to prepare, in any state before that. */
static void
check_owned(ShardExport *export)
{
	const ShardExportCall *call = &export->call;
	ShardRoute route = {.type_id = call->shard.type_id, .shard = call->shard.shard};
	const ShardOwn *own = &route.own;
	bool good;

	shard_routing_store_load(&route, NULL);
	if (call->kind == SHARD_COPY_PREPARE)
		good = own->epoch < call->shard.epoch &&
			   (own->state == SHARD_HOME_ACTIVE || own->state == SHARD_HOME_STOPPING ||
				own->state == SHARD_HOME_SEALED);
	else
		good = shard_handoff_export(own, &call->shard);
	if (good)
		return;
	ereport(ERROR, (errcode(SHARD_ERRCODE_NOT_YET),
					errmsg("shard %d of entity type \"%s\" cannot be copied from node %d",
						   call->shard.shard, export->type->name, export->callee.view.node),
					own->state == SHARD_HOME_NONE
						? errdetail("The shard is not there.")
						: errdetail("The shard is %s there, in epoch %d, for move " INT64_FORMAT
									"; the copy is for epoch %d, move " INT64_FORMAT ".",
									shard_home_machine.state_names[own->state], own->epoch,
									own->move_id, call->shard.epoch, call->shard.move_id)));
}

/* ---- the first answer ------------------------------------------------------------------------- */

static void
put_count(StringInfo out, ShardCopyPart part, int64 rows)
{
	ShardCopyCount count = {.part = part, .rows = rows};

	shard_copy_put_count(out, &count);
}

/* Columns of the state table, and how many rows each part has. The writer is as state_copy.h has it. */
static void
put_manifest(ShardExport *export, TransactionId *writer)
{
	ShardArguments arguments = {0};
	StringInfoData columns;
	StringInfoData counts;
	ShardStateCopy copy;

	initStringInfo(&columns);
	initStringInfo(&counts);
	if (shard_export_has_states(export))
	{
		shard_security_begin(&export->security, export->type);
		shard_state_copy_open(&copy, export->type);
		shard_state_copy_put_columns(&copy, &columns);
		put_count(&counts, SHARD_COPY_STATE,
				  shard_state_copy_count(&copy, export->call.shard.shard, writer));
		shard_state_copy_close(&copy);
	}

	SPI_connect();
	shard_export_add_shard(export, &arguments);
	shard_export_run(export, &count_rows, &arguments);
	put_count(&counts, SHARD_COPY_STASH, shard_statement_int8(0, 1));
	put_count(&counts, SHARD_COPY_MARKS, shard_statement_int8(0, 2));
	put_count(&counts, SHARD_COPY_ORDERED, shard_statement_int8(0, 3));
	put_count(&counts, SHARD_COPY_TIMERS, shard_statement_int8(0, 4));
	put_count(&counts, SHARD_COPY_HISTORY, shard_statement_int8(0, 5));
	SPI_finish();
	shard_security_end(&export->security);

	shard_packet_put_section(&export->sections, SHARD_SECTION_COLUMNS, SHARD_SECTION_MANDATORY,
							 columns.data, columns.len);
	shard_packet_put_section(&export->sections, SHARD_SECTION_COUNTS, SHARD_SECTION_MANDATORY,
							 counts.data, counts.len);
}

/* ---- the call --------------------------------------------------------------------------------- */

/* The rows that were made, as a section. */
static void
put_chunk(ShardExport *export, int32 part)
{
	ShardCopyChunk chunk = {.part = part,
							.n_rows = export->n_rows,
							.rows = export->rows.data,
							.rows_len = export->rows.len};
	StringInfoData section;

	export->left -= export->rows.len;
	if (export->n_rows == 0)
		return;
	initStringInfo(&section);
	shard_copy_put_chunk(&section, &chunk);
	shard_packet_put_section(&export->sections, SHARD_SECTION_CHUNK, SHARD_SECTION_MANDATORY,
							 section.data, section.len);
	pfree(section.data);
}

static void
put_next(ShardExport *export, int32 part)
{
	ShardCopyPosition next = {.part = part};
	StringInfoData section;

	if (part != SHARD_COPY_NONE)
	{
		next.after = export->after.data;
		next.after_len = export->after.len;
	}
	initStringInfo(&section);
	shard_copy_put_position(&section, &next);
	shard_packet_put_section(&export->sections, SHARD_SECTION_NEXT, SHARD_SECTION_MANDATORY,
							 section.data, section.len);
	pfree(section.data);
}

/* As many rows as the answer has room for, part by part, and where it goes on. */
static void
put_rows(ShardExport *export)
{
	ShardCopyPosition position = export->call.position;

	if (position.part == SHARD_COPY_NONE)
		position.part = SHARD_COPY_STATE;
	while (position.part < SHARD_COPY_PARTS)
	{
		bool all;

		resetStringInfo(&export->rows);
		resetStringInfo(&export->after);
		appendBinaryStringInfo(&export->after, position.after, position.after_len);
		export->n_rows = 0;
		all = shard_export_put_part(export, position.part,
									position.after_len == 0 ? NULL : position.after,
									position.after_len);
		put_chunk(export, position.part);
		if (all)
			position = (ShardCopyPosition){.part = position.part + 1};
		else if (export->left > 0)
		{
			position.after_len = export->after.len;
			position.after =
				memcpy(palloc(export->after.len), export->after.data, export->after.len);
		}
		else
		{
			put_next(export, position.part);
			return;
		}
		if (export->left <= 0)
		{
			resetStringInfo(&export->after);
			put_next(export, position.part < SHARD_COPY_PARTS ? position.part : SHARD_COPY_NONE);
			return;
		}
	}
	put_next(export, SHARD_COPY_NONE);
}

/*
 * What the call asks for, in the transaction that has begun. Locks are not waited for, since a snapshot is in hand. If
 * there is a writer of a sealed shard, or the table is locked, nothing is read yet.
 */
static TransactionId
look(ShardExport *export)
{
	MemoryContext old = MemoryContextSwitchTo(export->callee.context);
	ShardDatabase *db = export->callee.db;
	const ShardShardRef *shard = &export->call.shard;
	int lane = shard_message_lane(shard->type_id, shard->shard);
	bool rows = export->call.kind == SHARD_COPY_ROWS;
	TransactionId writer = InvalidTransactionId;

	resetStringInfo(&export->sections);
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_security_begin_system(&export->security);
	find_type(export);
	check_target(export);
	check_owned(export);
	shard_security_end(&export->security);
	export->locked = shard_export_has_states(export) &&
					 !ConditionalLockRelationOid(export->type->state_table, RowExclusiveLock);
	/*
	 * commit of the lane's newest turn that wrote: the seal was made by it or before it, or was durable at the start of
	 * the server
	 */
	export->sealed_at =
		pg_atomic_read_u64(&db->worker[shard_shmem_lane_worker(db, lane)].commit_lsn);
	if (!export->locked && export->call.position.part == SHARD_COPY_NONE)
		put_manifest(export, rows ? &writer : NULL);
	if (!export->locked && rows && !TransactionIdIsValid(writer))
	{
		/* a transaction that was seen to have ended must have ended for the snapshot that reads, too */
		PopActiveSnapshot();
		PushActiveSnapshot(GetTransactionSnapshot());
		put_rows(export);
	}
	PopActiveSnapshot();
	MemoryContextSwitchTo(old);
	return writer;
}

/* Raises that a user's transaction keeps the shard from being copied. */
static void
report_writer(const ShardExport *export, TransactionId writer)
{
	int pid = BackendXidGetPid(writer);
	const char *by = pid != 0 ? psprintf(", by process %d", pid) : "";

	if (export->locked)
		ereport(ERROR, (errcode(SHARD_ERRCODE_NOT_YET),
						errmsg("the table of entity type \"%s\" is locked on node %d",
							   export->type->name, export->callee.view.node),
						errdetail("Another transaction there holds a lock on the table."),
						errhint("End that transaction; see pg_locks.")));
	ereport(
		ERROR,
		(errcode(SHARD_ERRCODE_NOT_YET),
		 errmsg(
			 "states of shard %d of entity type \"%s\" are being changed or locked by SQL on node %d%s",
			 export->call.shard.shard, export->type->name, export->callee.view.node, by),
		 errdetail("The transaction that does so is open."),
		 errhint("End that transaction there.")));
}

/*
 * Looks until no user has locked the state table, or changes a state of the shard or has it locked to do so, with
 * nothing held meanwhile. What that user has not committed would be missing at the new home.
 */
static void
look_patiently(ShardExport *export)
{
	int64 deadline = shard_clock_now() + WRITERS_PATIENCE;
	TransactionId writer;

	while (TransactionIdIsValid(writer = look(export)) || export->locked)
	{
		if (shard_clock_now() > deadline)
			report_writer(export, writer);
		shard_callee_commit();
		shard_nap(WRITERS_NAP_MS, "ShardExport");
		(void) shard_catalog_lock(false);
	}
}

/*
 * shard_peer.export(call bytea, INOUT answer bytea)
 */
Datum
shard_export_rows(PG_FUNCTION_ARGS)
{
	ShardExport *export = palloc0(sizeof(ShardExport));
	StringInfoData answer;

	initStringInfo(&export->sections);
	initStringInfo(&export->rows);
	initStringInfo(&export->after);
	shard_callee_begin(fcinfo, &export->callee);
	read_call(export);
	export->left = Min(export->call.max_bytes, MAX_BYTES);
	look_patiently(export);
	shard_callee_commit();
	shard_gate_wait(export->sealed_at);
	shard_fault(export->call.kind == SHARD_COPY_PREPARE			? "export_prepare"
				: export->call.position.part == SHARD_COPY_NONE ? "export_begin"
																: "export_chunk");

	initStringInfo(&answer);
	shard_callee_put_header(&export->callee, &answer);
	appendBinaryStringInfo(&answer, export->sections.data, export->sections.len);
	return shard_callee_answer(&export->callee, &answer);
}
