/*
 * sql/view/health_gate.c
 *		A release gate that lets nothing pass, for want of synchronous standbys; a part of shard_health.
 *
 * All that others could see of this node waits then, and they see a node that does not answer: only here can be told why.
 * Without a standby it is a problem also while nothing waits, since whatever is committed next will. With one, nothing is said
 * before something has waited for a while.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "utils/timestamp.h"

#include "shared/gate.h"
#include "sql/view/health.h"
#include "shared/board.h"
#include "shared/shmem.h"

#include "base/compat.h"

/* A standby may be restarted, or behind for a moment; in ms. */
#define PATIENCE_MS (10 * 1000)

static bool
is_long_ago(TimestampTz since)
{
	return since != 0 && TimestampDifferenceExceeds(since, GetCurrentTimestamp(), PATIENCE_MS);
}

/*
 * What the gate lacks.
 */
static const char *
lack(const ShardGateLook *look)
{
	if (max_wal_senders == 0)
		return "the gate is at the synchronous standbys, and max_wal_senders is 0: none can connect";
	if (look->wanted == 0)
		return "the gate is at the synchronous standbys, and synchronous_standby_names names none";
	if (look->connected >= look->wanted)
		return psprintf("the gate is at the synchronous standbys, and those that are connected, of "
						"synchronous_standby_names = '%s', do not keep up (pg_stat_replication)",
						SyncRepStandbyNames);
	return psprintf(
		"the gate is at the synchronous standbys, and of those that "
		"synchronous_standby_names = '%s' asks for, %d of %d stream (pg_stat_replication)",
		SyncRepStandbyNames, look->connected, look->wanted);
}

/*
 * What to do. A start that is not admitted yet may be a former life of the node, which has to end: it must not be talked
 * into opening its gate.
 */
static const char *
cure(const ShardBoardView *view)
{
	if (view->known && view->unadmitted)
		return "this start is not admitted, and another incarnation of the node may live: if a standby of "
			   "this server was promoted, end this server, and rebuild it as a standby of that one; if this "
			   "server was promoted itself, set synchronous_standby_names to the standbys that it has now, or "
			   "empty it; only if no standby of it was promoted, bring one back, or set shard.gate to 'local': "
			   "then what others were told may be lost with this server, and a standby of it is not admitted "
			   "without an operator";
	return "bring a standby back; if this server was promoted itself, set "
		   "synchronous_standby_names to the standbys that it has now, or empty it; if none was promoted, "
		   "you may set shard.gate to "
		   "'local': then what others were told may be lost with this server, and a "
		   "standby of it is not admitted without an operator";
}

/* A node that is fenced, or a former life, is told that it is, and has no gate to open. */
void
shard_health_gate(ShardHealth *health)
{
	ShardDatabase *db = shard_shmem_database();
	ShardBoardView view;
	ShardGateLook look;
	const char *waits;

	if (db == NULL || !shard_gate_look(&look) ||
		!(is_long_ago(look.waits_since) || is_long_ago(look.alone_since)))
		return;
	shard_board_get(db, &view);
	if (view.known && (view.fenced || view.superseded))
		return;
	if (look.waits_since == 0)
		waits = "nothing waits for it yet, and what is committed next will";
	else
		waits = psprintf("what was committed since %s waits: asks time out, and messages for "
						 "other nodes, answers to their calls, moves and shard_drain() wait",
						 timestamptz_to_str(look.waits_since));
	shard_health_add(health,
					 psprintf("%s%s%s; %s; %s", lack(&look),
							  look.alone_since != 0 ? ", since " : "",
							  look.alone_since != 0 ? timestamptz_to_str(look.alone_since) : "",
							  waits, cure(&view)));
}
