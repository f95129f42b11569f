/*
 * link/callee.c
 *		The called side of a call between nodes: the caller, transactions, the answer (I5, T3).
 *
 * A role that may execute the procedures is believed to speak for a node of the cluster (only nodes are granted the
 * role of the links); the header says for which one. The header is compared with the decided record of that member, by
 * the uuid of its incarnation, too: so an unnoticed copy of a database is refused, and so is a call that a frozen
 * process sends long after.
 *
 * The caller may know of its own admission, or of a new era, before this node does. Then the call waits
 * a little for the fact, with nothing held, and is refused with NOT_YET: the caller comes again.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "link/callee.h"
#include "registry/catalog.h"
#include "registry/directory.h"
#include "base/peer_errors.h"
#include "link/peer_role.h"
#include "registry/security.h"
#include "shared/visitor.h"
#include "base/nap.h"
#include "base/argument.h"

#include "base/compat.h"

#define FACT_NAP_MS 10

/* ---- transactions ----------------------------------------------------------------------------- */

/* What holds for each transaction of the procedure, before anything is read in it. */
static void
shape_transaction(void)
{
	/* as SET TRANSACTION would, whatever the role's default is: there is no snapshot yet */
	XactIsoLevel = XACT_READ_COMMITTED;
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
}

void
shard_callee_commit(void)
{
	SPI_commit();
	shape_transaction();
}

void
shard_callee_rollback(void)
{
	SPI_rollback();
	shape_transaction();
}

/* Errors unless the procedure may end transactions, and the node may write. */
static void
check_place(FunctionCallInfo fcinfo)
{
	shard_shmem_require();
	PreventCommandDuringRecovery("a call of another node");
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		((CallContext *) fcinfo->context)->atomic)
		ereport(ERROR, (errcode(ERRCODE_INVALID_TRANSACTION_STATE),
						errmsg("a call of another node must be a statement of its own"),
						errdetail("The call commits before it answers."),
						errhint("CALL the procedure outside of a transaction block.")));
	shard_argument_check(fcinfo, 0, "call must not be null");
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* What is to be done about a caller. */
typedef enum Verdict
{
	VERDICT_GOOD,
	VERDICT_LATER, /* this node may hear of something that makes it good */
	VERDICT_ENDED  /* reported */
} Verdict;

/* Raises that the caller is not, or not any more, the member that the header names. */
static void
report_fenced(const ShardCallHeader *header, const ShardMemberRecord *record)
{
	ereport(ERROR,
			(errcode(SHARD_ERRCODE_FENCED),
			 errmsg("incarnation %d of node %d is fenced", header->from_inc, header->from),
			 record->status == SHARD_MEMBER_REMOVED || record->status == SHARD_MEMBER_WRITTEN_OFF
				 ? errdetail("The node is not a member of the cluster any more.")
				 : errdetail("Incarnation %d of the node has been admitted.", record->inc_no),
			 errhint("See shard_members on another node.")));
}

/* Of the cluster and for this node? */
static Verdict
judge_target(const ShardCallHeader *header, const ShardBoardView *view, bool own)
{
	if (!view->known || !view->push)
		return VERDICT_LATER;
	if (header->cluster.high != view->cluster.high || header->cluster.low != view->cluster.low)
		ereport(ERROR, (errcode(SHARD_ERRCODE_STRANGER),
						errmsg("this database is not a node of the caller's cluster"),
						errhint("See the addresses in shard_members.")));
	if (header->era > view->era)
		return VERDICT_LATER;
	if (header->era < view->era)
		ereport(ERROR,
				(errcode(SHARD_ERRCODE_STRANGER),
				 errmsg("the caller is in era %d of the cluster, which is over", header->era),
				 errdetail("Voters were forced; the cluster is in era %d.", view->era)));
	if (header->to != view->node)
		ereport(ERROR, (errcode(SHARD_ERRCODE_STRANGER),
						errmsg("this is node %d, not node %d", view->node, header->to),
						errhint("See the addresses in shard_members.")));
	if (own && header->from != view->node)
		ereport(ERROR, (errcode(SHARD_ERRCODE_STRANGER),
						errmsg("node %d must not call what node %d calls itself", header->from,
							   view->node)));
	if (!own && header->from == view->node)
		ereport(ERROR, (errcode(SHARD_ERRCODE_STRANGER),
						errmsg("node %d is called by another node %d", view->node, header->from),
						errhint("One of the two is a copy of the other.")));
	if (header->to_inc > view->inc_no)
		return VERDICT_LATER;
	if (header->to_inc != 0 && header->to_inc != view->inc_no)
		ereport(ERROR,
				(errcode(SHARD_ERRCODE_HELLO_FIRST),
				 errmsg("the call is for incarnation %d of node %d", header->to_inc, view->node),
				 errdetail("The node is incarnation %d now.", view->inc_no)));
	return VERDICT_GOOD;
}

/* Members as of now, whatever the caller's role may read. Takes a snapshot for a moment. */
static void
refresh_directory(void)
{
	ShardSecurity security = {0};

	PushActiveSnapshot(GetTransactionSnapshot());
	shard_security_begin_system(&security);
	(void) shard_directory_refresh();
	shard_security_end(&security);
	PopActiveSnapshot();
}

/* Is it the admitted incarnation of a member? */
static Verdict
judge_sender(const ShardCallHeader *header)
{
	const ShardDirectoryMember *member;
	const ShardMemberRecord *record;

	shard_peer_role_check(header->from);
	refresh_directory();
	member = shard_directory_find(header->from);
	if (member == NULL)
		return VERDICT_LATER;
	record = &member->record;
	if (record->status == SHARD_MEMBER_REMOVED || record->status == SHARD_MEMBER_WRITTEN_OFF ||
		header->from_inc < record->inc_no)
		report_fenced(header, record);
	if (header->from_inc > record->inc_no)
		return VERDICT_LATER;
	if (header->incarnation.high != record->inc_uuid.high ||
		header->incarnation.low != record->inc_uuid.low)
		report_fenced(header, record);
	return VERDICT_GOOD;
}

/* Raises that this node cannot take the call now. Other nodes show what it says: it names the node. */
static void
report_later(const ShardCallee *callee)
{
	const ShardBoardView *view = &callee->view;

	if (!view->known || !view->push)
		ereport(ERROR,
				(errcode(SHARD_ERRCODE_NOT_YET),
				 errmsg("node %d takes nothing from other nodes at the moment",
						view->known ? view->node : callee->header.to),
				 view->why[0] != '\0' ? errdetail("%s", view->why)
									  : errdetail("The node is starting, or is not admitted."),
				 errhint("See shard_health() there.")));
	ereport(
		ERROR,
		(errcode(SHARD_ERRCODE_NOT_YET),
		 errmsg("node %d has not heard of incarnation %d of node %d", view->node,
				callee->header.from_inc, callee->header.from),
		 errdetail("The node that was called has learned the map of the cluster up to " INT64_FORMAT
				   ".",
				   view->learned_n)));
}

/* Waits a little while, with nothing held. */
static void
nap(void)
{
	shard_callee_commit();
	shard_nap(FACT_NAP_MS, "ShardCallee");
}

/* A node that was downed hears of nothing that would change that soon (I9). */
void
shard_callee_check(ShardCallee *callee, int64 patience)
{
	int64 deadline = shard_clock_now() + Min(patience, SHARD_CALLEE_PATIENCE);

	for (;;)
	{
		(void) shard_catalog_lock(false);
		callee->db = shard_shmem_database_or_make(MyDatabaseId);
		shard_board_get(callee->db, &callee->view);
		if (judge_target(&callee->header, &callee->view, callee->own) == VERDICT_GOOD &&
			judge_sender(&callee->header) == VERDICT_GOOD)
			return;
		if (callee->view.downed || shard_clock_now() > deadline)
			report_later(callee);
		nap();
	}
}

void
shard_callee_nap(ShardCallee *callee)
{
	nap();
	shard_callee_check(callee, SHARD_CALLEE_PATIENCE);
}

/* Errors unless the bytes begin with a header of this protocol version. */
static void
read_header(ShardCallee *callee)
{
	if (!shard_packet_get_header(&callee->reader, &callee->header))
		ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION),
						errmsg("the call of another node is damaged, in its header")));
	if (callee->header.protocol_version != SHARD_PROTOCOL_VERSION)
		ereport(ERROR,
				(errcode(SHARD_ERRCODE_STRANGER),
				 errmsg("the caller speaks version %d of the cluster protocol",
						callee->header.protocol_version),
				 errdetail("Node %d speaks version %d.", callee->header.to, SHARD_PROTOCOL_VERSION),
				 errhint("Update the extension on the older node.")));
}

/* All but the check of the caller. */
static void
open_call(FunctionCallInfo fcinfo, ShardCallee *callee, bool own)
{
	bytea *call;

	check_place(fcinfo);
	shard_visitor_here();
	memset(callee, 0, sizeof(ShardCallee));
	callee->own = own;
	callee->context = CurrentMemoryContext;
	call = PG_GETARG_BYTEA_PP(0);
	callee->reader.at = VARDATA_ANY(call);
	callee->reader.end = callee->reader.at + VARSIZE_ANY_EXHDR(call);
	read_header(callee);

	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	/* the statement's own transaction has a snapshot */
	shard_callee_commit();
}

void
shard_callee_open(FunctionCallInfo fcinfo, ShardCallee *callee)
{
	open_call(fcinfo, callee, false);
}

void
shard_callee_begin(FunctionCallInfo fcinfo, ShardCallee *callee)
{
	open_call(fcinfo, callee, false);
	shard_callee_check(callee, SHARD_CALLEE_PATIENCE);
}

void
shard_callee_begin_own(FunctionCallInfo fcinfo, ShardCallee *callee)
{
	open_call(fcinfo, callee, true);
	shard_callee_check(callee, SHARD_CALLEE_PATIENCE);
}

void
shard_callee_unknown_section(const ShardCallee *callee, int32 kind, int32 channel)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("the call of node %d has a mandatory part that node %d does not know",
						   callee->header.from, callee->view.node),
					errdetail("The part is a section of kind %d, channel %d.", kind, channel),
					errhint("Update the extension on node %d.", callee->view.node)));
}

/* ---- the answer ------------------------------------------------------------------------------- */

void
shard_callee_put_header(const ShardCallee *callee, StringInfo out)
{
	ShardBoardView now;
	ShardCallHeader header =
		shard_board_header(&callee->view, callee->header.from, callee->header.from_inc);

	shard_board_get(callee->db, &now);
	header.known_n = Max(now.learned_n, header.known_n);
	shard_packet_put_header(out, &header);
}

/* The row type of a result: answer bytea. Made once. */
static TupleDesc
result_desc(void)
{
	static TupleDesc desc = NULL;

	if (desc == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
		TupleDesc made = CreateTemplateTupleDesc(1);

		TupleDescInitEntry(made, 1, "answer", BYTEAOID, -1, 0);
		desc = BlessTupleDesc(made);
		MemoryContextSwitchTo(old);
	}
	return desc;
}

Datum
shard_callee_answer(ShardCallee *callee, const StringInfoData *answer)
{
	MemoryContext old = MemoryContextSwitchTo(callee->context);
	bytea *bytes = palloc(VARHDRSZ + answer->len);
	bool isnull = false;
	Datum value = PointerGetDatum(bytes);
	HeapTuple row;

	SET_VARSIZE(bytes, VARHDRSZ + answer->len);
	memcpy(VARDATA(bytes), answer->data, answer->len);
	row = heap_form_tuple(result_desc(), &value, &isnull);
	MemoryContextSwitchTo(old);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "could not finish SPI");
	return HeapTupleGetDatum(row);
}
