/*
 * sql/cluster/cluster_view.c
 *		What this node knows of its cluster: rows behind shard_members, shard_homes, shard_peers.
 *
 * Members and homes are read from what was decided and learned (shard.control), so they are there when
 * no worker runs, and may be behind on a node that is cut off. What is only observed the control worker
 * of this node, or its region workers, are asked for.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/attempt.h"
#include "registry/cluster_map.h"
#include "sql/cluster/cluster_view.h"
#include "registry/control_store.h"
#include "control/control.h"
#include "core/member/membership.h"
#include "registry/directory.h"
#include "entity/execution.h"
#include "shared/board.h"
#include "registry/security.h"
#include "link/transport.h"
#include "sql/cluster/worker_survey.h"
#include "sql/send/handler_guard.h"
#include "base/rights.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_cluster_view_members);
PG_FUNCTION_INFO_V1(shard_cluster_view_homes);
PG_FUNCTION_INFO_V1(shard_cluster_view_peers);

/* The control worker answers between two steps. */
#define MEMBERS_TIMEOUT (2 * INT64CONST(1000000))

/* A server that restarts is back in that time, and what its links do settles; in seconds. */
#define SILENT 5

/* The bodies of the SRFs, once the result has been made. */
typedef struct View
{
	ReturnSetInfo *result;
	ShardArena *arena;
	int32 type_id; /* homes: the type last looked up, */
	char *type_name;
	List *types; /* and all of them */
	HTAB *pins;	 /* NULL: there are none */
} View;

typedef struct PinKey
{
	int32 type_id;
	int32 shard;
} PinKey;

typedef struct Pin
{
	PinKey key;
	int32 node;
} Pin;

typedef struct KnownType
{
	int32 type_id;
	char *name;
} KnownType;

/*
 * The members as decided, with the rights to read them.
 */
const ShardDirectoryMember *
shard_cluster_view_directory(int *count)
{
	ShardSecurity security = {0};

	shard_security_begin_system(&security);
	(void) shard_directory_refresh();
	shard_security_end(&security);
	return shard_directory_list(count);
}

static void
ask_for_reports(void *reports)
{
	*(List **) reports = shard_control_members(MEMBERS_TIMEOUT);
}

/*
 * What the control worker has observed; NIL if it does not run, or does not answer in time. The rest must be shown even
 * then, most of all when something is wrong.
 */
List *
shard_cluster_view_reports(void)
{
	ShardDatabase *db = shard_shmem_database();
	List *reports = NIL;
	ErrorData *error;

	if (db == NULL || shard_execution_in_handler() ||
		!shard_shmem_worker_runs(db, SHARD_CONTROL_WORKER))
		return NIL;
	error = shard_attempt(ask_for_reports, &reports);
	if (error != NULL && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
	return reports;
}

bool
shard_cluster_view_is_silent(const ShardMemberReport *report)
{
	return !report->reachable &&
		   (report->heard_us < 0 || report->heard_us > SILENT * INT64CONST(1000000));
}

bool
shard_cluster_view_answers(const ShardMemberReport *report)
{
	return report->answering_us > SILENT * INT64CONST(1000000);
}

bool
shard_cluster_view_is_deaf(const ShardMemberReport *report)
{
	return !shard_cluster_view_is_silent(report) &&
		   report->failing_us > SILENT * INT64CONST(1000000);
}

const char *
shard_cluster_view_not_heard(List *reports)
{
	int count;
	int away = 0;
	const ShardDirectoryMember *members = shard_cluster_view_directory(&count);
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < count; i++)
	{
		ShardMemberStatus status = (ShardMemberStatus) members[i].record.status;
		const ShardMemberReport *report = shard_cluster_view_report_of(reports, members[i].node);

		if (status == SHARD_MEMBER_DOWN ||
			(shard_membership_is_member(status) && report != NULL && !report->reachable))
			appendStringInfo(&names, away++ == 0 ? "%d" : ", %d", members[i].node);
	}
	return away == 0 ? NULL : psprintf("node%s %s", away > 1 ? "s" : "", names.data);
}

const ShardMemberReport *
shard_cluster_view_report_of(List *reports, int32 node)
{
	ListCell *cell;

	foreach (cell, reports)
	{
		const ShardMemberReport *report = lfirst(cell);

		if (report->node == node)
			return report;
	}
	return NULL;
}

/* The node that has the office, 0: none, as far as is heard. Without reports that is unknown. */
int32
shard_cluster_view_coordinator(List *reports)
{
	ListCell *cell;

	foreach (cell, reports)
	{
		const ShardMemberReport *report = lfirst(cell);

		if (report->coordinator)
			return report->node;
	}
	return 0;
}

/* ---- members ---------------------------------------------------------------------------------- */

static Datum
roles_of(const ShardMemberRecord *record)
{
	Datum roles[SHARD_MAX_ROLES];

	for (int i = 0; i < record->n_roles; i++)
		roles[i] = CStringGetTextDatum(record->roles[i]);
	return PointerGetDatum(
		construct_array(roles, record->n_roles, TEXTOID, -1, false, TYPALIGN_INT));
}

static Datum
uuid_of(ShardUuid uuid)
{
	pg_uuid_t *out = palloc(sizeof(pg_uuid_t));

	for (int i = 0; i < 8; i++)
	{
		out->data[i] = (unsigned char) (uuid.high >> (56 - 8 * i));
		out->data[8 + i] = (unsigned char) (uuid.low >> (56 - 8 * i));
	}
	return UUIDPGetDatum(out);
}

/*
 * Columns that are observed: voter, coordinator, reachable, last_seen, link_error. Unknown without a
 * report, but for what the node knows of itself.
 */
static void
put_observed(const ShardMemberReport *report, bool self, Datum *values, bool *nulls)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < 5; i++)
		nulls[i] = true;
	if (report == NULL)
		return;
	values[0] = BoolGetDatum(report->voter);
	values[1] = BoolGetDatum(report->coordinator);
	values[2] = BoolGetDatum(self || report->reachable);
	values[3] = TimestampTzGetDatum(self ? now : now - report->heard_us);
	values[4] = CStringGetTextDatum(report->link_error);
	nulls[0] = nulls[1] = nulls[2] = false;
	nulls[3] = !self && report->heard_us < 0;
	nulls[4] = report->link_error[0] == '\0';
}

/* Thousandths as a number that reads as it was set: 1, 1.5. */
static Datum
weight_of(const ShardMemberRecord *record)
{
	Numeric weight = int64_div_fast_to_numeric(shard_membership_weight(record), 3);

	return DirectFunctionCall1(numeric_trim_scale, NumericGetDatum(weight));
}

static void
put_member(ReturnSetInfo *result, const ShardDirectoryMember *member,
		   const ShardMemberReport *report, bool self, bool see_dsn)
{
	const ShardMemberRecord *record = &member->record;
	Datum values[18];
	bool nulls[18] = {false};

	values[0] = Int32GetDatum(member->node);
	nulls[1] = !see_dsn || record->dsn == NULL || record->dsn[0] == '\0';
	if (!nulls[1])
		values[1] = CStringGetTextDatum(record->dsn);
	values[2] = CStringGetTextDatum(shard_membership_status_name(record->status));
	values[3] = roles_of(record);
	values[4] = Int64GetDatum(record->age);
	nulls[4] = record->age == 0;
	values[5] = Int32GetDatum(record->inc_no);
	put_observed(report, self, &values[6], &nulls[6]);
	nulls[10] = nulls[10] || !see_dsn;
	values[11] = BoolGetDatum(self);
	values[12] = CStringGetTextDatum(record->app_version != NULL ? record->app_version : "");
	values[13] = CStringGetTextDatum(record->gate == SHARD_GATE_STANDBY ? "standby" : "local");
	values[14] = uuid_of(record->inc_uuid);
	values[15] = BoolGetDatum(record->evacuated);
	values[16] = weight_of(record);
	values[17] = BoolGetDatum(report != NULL && report->claimed != SHARD_NODE_UNCLAIMED);
	nulls[17] = report == NULL;
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * shard.members() returns setof record
 */
Datum
shard_cluster_view_members(PG_FUNCTION_ARGS)
{
	List *reports = shard_cluster_view_reports();
	const ShardDirectoryMember *members;
	ShardBoardView view;
	int count;

	InitMaterializedSRF(fcinfo, 0);
	shard_board_get(shard_shmem_database(), &view);
	members = shard_cluster_view_directory(&count);
	for (int i = 0; i < count; i++)
		put_member((ReturnSetInfo *) fcinfo->resultinfo, &members[i],
				   shard_cluster_view_report_of(reports, members[i].node),
				   members[i].node == view.node, shard_rights_all_stats());
	return (Datum) 0;
}

/* ---- homes ------------------------------------------------------------------------------------ */

static void
add_type(const ShardMapEntry *entry, void *arg)
{
	View *view = arg;
	ShardTypeRecord record;
	KnownType *type;
	MemoryContext old;

	if (!shard_record_get_type(entry, &record, view->arena))
		return;
	/* Rows come while SPI is at work, and its memory ends before they are read. */
	old = MemoryContextSwitchTo(view->result->econtext->ecxt_per_query_memory);
	type = palloc(sizeof(KnownType));
	type->type_id = entry->key.a;
	type->name = pstrdup(record.name);
	view->types = lappend(view->types, type);
	MemoryContextSwitchTo(old);
	shard_arena_reset(view->arena);
}

/*
 * The name of a type as the cluster knows it, NULL if it does not; homes come by type.
 */
static char *
type_name(View *view, int32 type_id)
{
	ListCell *cell;

	if (view->type_id == type_id)
		return view->type_name;
	view->type_id = type_id;
	view->type_name = NULL;
	foreach (cell, view->types)
	{
		KnownType *type = lfirst(cell);

		if (type->type_id == type_id)
			view->type_name = type->name;
	}
	return view->type_name;
}

static void
add_pin(const ShardMapEntry *entry, void *arg)
{
	View *view = arg;
	PinKey key = {entry->key.a, entry->key.b};
	int32 node = entry->deleted ? 0 : shard_record_get_pin(entry);

	if (node == 0)
		return;
	if (view->pins == NULL)
	{
		HASHCTL control = {.keysize = sizeof(PinKey),
						   .entrysize = sizeof(Pin),
						   .hcxt = view->result->econtext->ecxt_per_query_memory};

		view->pins = hash_create("shard pins", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	((Pin *) hash_search(view->pins, &key, HASH_ENTER, NULL))->node = node;
}

/* The node that a shard is pinned to; 0: it is not. */
static int32
pinned_to(const View *view, const ShardMapEntry *home)
{
	PinKey key = {home->key.a, home->key.b};
	const Pin *pin = view->pins ? hash_search(view->pins, &key, HASH_FIND, NULL) : NULL;

	return pin ? pin->node : 0;
}

static void
put_home(const ShardMapEntry *entry, void *arg)
{
	View *view = arg;
	ShardHomeRecord record;
	Datum values[9];
	bool nulls[9] = {false};
	char *name = type_name(view, entry->key.a);

	if (!shard_record_get_home(entry, &record))
		return;
	nulls[0] = name == NULL;
	if (name != NULL)
		values[0] = CStringGetTextDatum(name);
	values[1] = Int32GetDatum(entry->key.b);
	values[2] = Int32GetDatum(shard_record_home_node(&record));
	values[3] = Int32GetDatum(record.epoch);
	values[4] = CStringGetTextDatum(record.phase == SHARD_HOME_MOVING ? "moving" : "stable");
	values[5] = Int32GetDatum(record.to);
	nulls[5] = record.to == 0;
	values[6] = Int32GetDatum(entry->key.a);
	values[7] = CStringGetTextDatum(shard_cluster_map_reason(record.reason));
	nulls[7] = record.reason == SHARD_HOME_REASON_NONE;
	values[8] = Int32GetDatum(pinned_to(view, entry));
	nulls[8] = DatumGetInt32(values[8]) == 0;
	tuplestore_putvalues(view->result->setResult, view->result->setDesc, values, nulls);
}

/*
 * shard.homes() returns setof record
 */
Datum
shard_cluster_view_homes(PG_FUNCTION_ARGS)
{
	View view = {0};
	ShardSecurity security = {0};

	InitMaterializedSRF(fcinfo, 0);
	view.result = (ReturnSetInfo *) fcinfo->resultinfo;
	view.arena = shard_arena_create();
	shard_security_begin_system(&security);
	shard_control_store_learned(SHARD_MAP_TYPE, add_type, &view);
	shard_control_store_learned(SHARD_MAP_PIN, add_pin, &view);
	shard_control_store_learned(SHARD_MAP_HOME, put_home, &view);
	shard_security_end(&security);
	shard_arena_destroy(view.arena);
	return (Datum) 0;
}

/* ---- peers ------------------------------------------------------------------------------------ */

static const char *
state_name(ShardTransportState state)
{
	switch (state)
	{
		case SHARD_TRANSPORT_CLOSED:
			return "closed";
		case SHARD_TRANSPORT_CONNECTING:
			return "connecting";
		case SHARD_TRANSPORT_OPEN:
			return "open";
		case SHARD_TRANSPORT_QUARANTINED:
			return "quarantined";
		case SHARD_TRANSPORT_IDLE:
			return "idle";
	}
	return "unknown";
}

/*
 * A row of a region worker's report: node, worker, state, connected_since, outbox_messages,
 * outbox_bytes, oldest, last_error.
 */
static void
put_peer(ShardReader *in, int worker, void *arg)
{
	ReturnSetInfo *result = arg;
	ShardTransportReport report;
	Datum values[8];
	bool nulls[8] = {false};

	shard_transport_read_report(in, &report);
	values[0] = Int32GetDatum(report.node);
	values[1] = Int32GetDatum(worker);
	values[2] = CStringGetTextDatum(state_name(report.state));
	values[3] = TimestampTzGetDatum(report.open_since);
	nulls[3] = report.open_since == 0;
	values[4] = Int64GetDatum(report.messages);
	values[5] = Int64GetDatum(report.bytes);
	values[6] = TimestampTzGetDatum(report.oldest);
	nulls[6] = report.oldest == 0;
	values[7] = PointerGetDatum(cstring_to_text_with_len(report.error, report.error_len));
	nulls[7] = report.error_len == 0 || !shard_rights_all_stats();
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * shard.peers() returns setof record
 */
Datum
shard_cluster_view_peers(PG_FUNCTION_ARGS)
{
	ShardDatabase *db = shard_shmem_database();
	ShardRequest request = {.kind = SHARD_REQUEST_PEERS};

	InitMaterializedSRF(fcinfo, 0);
	shard_handler_guard_check("look at links", SHARD_WAITS_FOR_ITSELF, NULL);
	if (db == NULL)
		return (Datum) 0;
	shard_worker_survey(db, &request, "its links", put_peer, fcinfo->resultinfo);
	return (Datum) 0;
}
