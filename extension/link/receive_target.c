/*
 * link/receive_target.c
 *		What messages and marks of another node are for: types and shards that there are, or were (T9).
 *
 * This node's own rows say it of nearly all; what they do not have, the learned map is asked for, once for each type in
 * a row. Nothing is written here: if the process dies right here, nothing happened.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/snapmgr.h"

#include "registry/control_store.h"
#include "shared/link_trouble.h"
#include "base/peer_errors.h"
#include "link/receive.h"
#include "registry/registry.h"
#include "registry/security.h"

#include "base/compat.h"

/* Troubles of links have their worker's number; what callers do has none. */
#define NO_WORKER (-1)

/* Names the node that sends it: once in a call, once a minute in the log, and in shard_health(). */
static void
report_false(ShardReceiveTarget *target, const ShardCallee *callee, const char *kind, int32 shard)
{
	char *what;

	if (target->reported)
		return;
	target->reported = true;
	what = psprintf("%s for shard %d of type %d", kind, shard, target->type_id);
	if (!shard_link_trouble_note(callee->db, NO_WORKER, callee->header.from, SHARD_LINK_TARGETS,
								 what))
		return;
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("node %d sends to a shard that does not exist", callee->header.from),
			 errdetail("What it sends is %s, which is passed over.", what),
			 errhint("The node's voters were lost, the node was put back from a copy, or another "
					 "caller speaks in its name.")));
}

/* What this node has of the type. */
static void
look_here(ShardReceiveTarget *target, int32 type_id)
{
	const ShardType *type;

	PushActiveSnapshot(GetTransactionSnapshot());
	type = shard_registry_known(type_id);
	PopActiveSnapshot();
	target->type_id = type_id;
	target->here = type != NULL;
	target->asked = false;
	target->learned = (ShardTargetLearned){.number_of_shards = type ? type->number_of_shards : 0};
}

/* What the map has of it. */
static void
look_further(ShardReceiveTarget *target)
{
	ShardSecurity security = {0};

	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_begin_system(&security);
	SPI_connect();
	shard_control_store_target(target->type_id, &target->learned);
	SPI_finish();
	shard_security_end(&security);
	PopActiveSnapshot();
	target->asked = true;
}

static ShardTargetVerdict
judge(ShardReceiveTarget *target, const ShardCallee *callee, int32 type_id, int32 shard)
{
	if (target->type_id != type_id)
		look_here(target, type_id);
	if (!target->here && !target->asked)
		look_further(target);
	target->learned.era = callee->view.era;
	return shard_fact_judge_target(type_id, shard, callee->header.known_n, &target->learned);
}

bool
shard_receive_target_takes(ShardReceiveTarget *target, const ShardCallee *callee, int32 type_id,
						   int32 shard)
{
	switch (judge(target, callee, type_id, shard))
	{
		case SHARD_TARGET_THERE:
		case SHARD_TARGET_GONE:
			break;
		case SHARD_TARGET_AHEAD:
			ereport(ERROR,
					(errcode(SHARD_ERRCODE_NOT_YET),
					 errmsg("node %d has not learned yet of type %d", callee->view.node, type_id),
					 errdetail("Node %d has learned version " INT64_FORMAT
							   " of the map of the cluster; known here is " INT64_FORMAT ".",
							   callee->header.from, callee->header.known_n,
							   target->learned.upto_n)));
			break;
		case SHARD_TARGET_FALSE:
			report_false(target, callee, "a message", shard);
			return false;
	}
	return true;
}

bool
shard_receive_target_marks(ShardReceiveTarget *target, const ShardCallee *callee, int32 type_id,
						   int32 shard)
{
	if (target->type_id != type_id)
		look_here(target, type_id);
	/* a node that is named already needs no further look */
	if ((target->here || !target->reported) &&
		judge(target, callee, type_id, shard) == SHARD_TARGET_FALSE)
	{
		report_false(target, callee, "a mark", shard);
		return false;
	}
	return target->here;
}
