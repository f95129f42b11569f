/*
 * control/control_config.c
 *		What the server's settings say about this node's part in its cluster.
 */
#include "postgres.h"

#include <math.h>

#include "commands/dbcommands.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "utils/builtins.h"

#include "control/control_private.h"
#include "base/guc.h"

#include "base/compat.h"

static bool
is_text(const char *bytes, size_t length)
{
	return pg_verify_mbstr(GetDatabaseEncoding(), bytes, (int) length, true);
}

/*
 * A setting may have been written in another encoding, which the server does not check: other nodes would not take it
 * (T10).
 */
static const char *
setting_text(const char *text)
{
	char *mended;

	if (text == NULL || is_text(text, strlen(text)))
		return text;
	mended = pstrdup(text);
	for (char *c = mended; *c != '\0'; c++)
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	return mended;
}

/*
 * The names of the list, which guc.c has checked.
 */
static void
read_roles(ShardNodeConfig *config)
{
	ListCell *cell;

	foreach (cell, shard_guc_roles())
		config->roles[config->n_roles++] = setting_text(lfirst(cell));
}

/*
 * "role=number, …", checked as well.
 */
static void
read_role_minimums(ShardNodeConfig *config)
{
	char *rest = NULL;

	for (char *item = strtok_r(pstrdup(shard_role_min_members), ", ", &rest); item != NULL;
		 item = strtok_r(NULL, ", ", &rest))
	{
		char *number = strchr(item, '=');

		if (number == NULL || config->n_role_minimums == SHARD_MAX_ROLES)
			elog(ERROR, "invalid shard.role_min_members \"%s\"", shard_role_min_members);
		*number++ = '\0';
		config->role_minimums[config->n_role_minimums++] =
			(ShardRoleMinimum){shard_record_role(item), atoi(number)};
	}
}

/*
 * The gate that is wished for, a ShardGateKind (G3). "auto" follows synchronous_standby_names, as in gate.c.
 */
static int32
wished_gate(void)
{
	if (shard_gate == SHARD_GATE_SET_AUTO)
		return max_wal_senders > 0 && ShardSyncStandbysDefined() ? SHARD_GATE_STANDBY
																 : SHARD_GATE_LOCAL;
	return shard_gate == SHARD_GATE_SET_STANDBY ? SHARD_GATE_STANDBY : SHARD_GATE_LOCAL;
}

bool
shard_control_is_journal(void)
{
	return strcmp(shard_journal_database, get_database_name(MyDatabaseId)) == 0;
}

/* A journal that could forget what it had accepted runs only if the operator allows it. */
bool
shard_control_journal_may_run(void)
{
	static bool said = false;

	if (wished_gate() == SHARD_GATE_STANDBY || !shard_journal_ha)
		return true;
	if (!said)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this database is to be a journal, and has no synchronous standby"),
				 errdetail("Decisions that the journal forgot after a failure would have to be "
						   "collected from all members."),
				 errhint("Set synchronous_standby_names, or shard.journal_ha = off.")));
	said = true;
	return false;
}

void
shard_control_live(ShardLiveSettings *live)
{
	memset(live, 0, sizeof(ShardLiveSettings));
	live->gate = wished_gate();
	live->owners_may_share = shard_owners_may_share_workers;
	live->rebalance_interval = shard_rebalance_interval * SHARD_MS;
}

void
shard_control_config(ShardNodeConfig *config, const char *dsn)
{
	const ControlState *state = &shard_control;

	memset(config, 0, sizeof(ShardNodeConfig));
	config->dsn = dsn;
	config->app_version = setting_text(shard_app_version);
	config->weight = (int32) rint(shard_weight * SHARD_ALLOCATION_WEIGHT_ONE);
	read_roles(config);
	config->identity_lease = shard_identity_lease;
	/* as long as shard_start() offers no replicas, other builds are no members that could have copies */
#ifdef SHARD_ASSERTIONS
	config->features = SHARD_FEATURE_REPLICAS;
#endif
	config->lease_ttl_ms = shard_lease_ttl;
	config->min_members = shard_min_members;
	read_role_minimums(config);
	/* a journal shows no client what it keeps, and may have another encoding than those whose map it is */
	config->is_text = state->journal ? NULL : is_text;
	config->secret = shard_control_random_uuid();
	config->seal = shard_control_seal;
	config->roster.voters = shard_voters;
	config->roster.downing = shard_downing_strategy;
	config->roster.static_quorum_size = shard_static_quorum_size;
	config->roster.stable_after = shard_stable_after * SHARD_MS;
	config->roster.voter_replace_after = shard_voter_replace_after * SHARD_MS;
	config->roster.weakly_up_after = SHARD_WEAKLY_UP_AFTER;
	config->roster.leave_confirmed = true;
	if (state->journal || shard_state_store_mode == SHARD_STATE_STORE_JOURNAL)
		config->journal_node = SHARD_JOURNAL_NODE;
	config->journal_voter = state->journal;
	config->homes.handoff_timeout = SHARD_HANDOFF_TIMEOUT;
	config->homes.start_timeout = SHARD_START_TIMEOUT;
	shard_control_live(&config->live);
}
