/*
 * sql/operate/link_accept.c
 *		shard_link_accept: an operator ends the quarantine of a link (X4).
 *
 * The region workers end the streams to the other node and begin them again, each for its own lanes in one of its
 * turns. A worker that died meanwhile did it for its lanes or did not, and the operator may call again. What comes from
 * the other node is its own streams' affair: the operator calls there, too.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"

#include "registry/catalog.h"
#include "core/base/wire.h"
#include "registry/directory.h"
#include "shared/ring.h"
#include "registry/security.h"
#include "sql/send/handler_guard.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_link_accept);

/* A worker answers after its turn, which handlers may make long. */
#define ACCEPT_TIMEOUT (60 * INT64CONST(1000000))

/* Errors unless it can be done here, and the node exists. */
static void
check(int32 node)
{
	ShardSecurity security = {0};
	bool known;

	shard_shmem_require();
	PreventCommandDuringRecovery("shard_link_accept()");
	shard_handler_guard_check("accept a link", SHARD_WAITS_FOR_ITSELF, NULL);
	(void) shard_catalog_lock(false);
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_security_begin_system(&security);
	(void) shard_directory_refresh();
	shard_security_end(&security);
	known = shard_directory_find(node) != NULL;
	PopActiveSnapshot();
	if (!known)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("there is no node %d", node),
						errhint("See shard_members.")));
}

/* What a worker did. */
typedef struct Accepted
{
	int64 again;	/* messages that are sent again */
	int64 in_doubt; /* those that became dead letters */
	bool any;		/* a stream was quarantined */
} Accepted;

/* Has one worker do it. */
static void
accept_lanes(ShardDatabase *db, int worker, const StringInfoData *node, Accepted *sum)
{
	ShardRequest request = {.kind = SHARD_REQUEST_ACCEPT,
							.payload = node->data,
							.payload_len = node->len};
	int length;
	char *answer = shard_ring_call(db, worker, &request, ACCEPT_TIMEOUT, &length);
	ShardReader reader = {.at = answer, .end = answer + length};

	sum->any |= shard_wire_get_uint(&reader) != 0;
	sum->again += shard_wire_get_int(&reader);
	sum->in_doubt += shard_wire_get_int(&reader);
	if (reader.failed)
		elog(ERROR, "shard worker %d gave a damaged answer", worker);
}

/*
 * shard_link_accept(node int) returns void
 */
Datum
shard_link_accept(PG_FUNCTION_ARGS)
{
	int32 node = PG_GETARG_INT32(0);
	ShardDatabase *db;
	StringInfoData payload;
	Accepted sum = {0};

	check(node);
	db = shard_shmem_database_or_make(MyDatabaseId);
	initStringInfo(&payload);
	shard_wire_put_int(&payload, node);
	shard_each_worker (worker, db)
		accept_lanes(db, worker, &payload, &sum);
	if (sum.any)
		ereport(NOTICE, (errmsg("the link to node %d starts again", node),
						 errdetail(INT64_FORMAT " messages are sent again, " INT64_FORMAT
												" are dead letters now.",
								   sum.again, sum.in_doubt)));
	else
		ereport(NOTICE, (errmsg("no messages from here to node %d are quarantined", node),
						 errdetail("What comes from there is accepted there.")));
	PG_RETURN_VOID();
}
