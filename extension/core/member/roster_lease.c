/*
 * core/member/roster_lease.c
 *		Leases: the coordinator's side, with what it has decided and heard.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/roster_private.h"

/*
 * The settings as decided; false if there are none.
 */
static bool
get_settings(const ShardMap *decided, ShardSettingsRecord *settings, int64 *n)
{
	const ShardMapEntry *entry = shard_map_value(decided, (ShardMapKey){SHARD_MAP_SETTINGS, 0, 0});

	if (!entry || !shard_record_get_settings(entry, settings))
		return false;
	*n = entry->n;
	return true;
}

void
shard_roster_close_lease(ShardRoster *roster, int32 node)
{
	shard_lease_book_close(roster->leases, node);
}

void
shard_roster_open_lease(ShardRoster *roster, int32 node)
{
	shard_lease_book_open(roster->leases, node);
}

bool
shard_roster_lease_ended(const ShardRoster *roster, int32 node, int64 now, const ShardMap *decided)
{
	ShardSettingsRecord settings;
	int64 n;
	bool known = get_settings(decided, &settings, &n);

	return shard_lease_book_ended(roster->leases, node, now, known ? &settings : NULL);
}

void
shard_roster_send_grants(ShardRoster *roster, int64 now, const ShardProposer *proposer,
						 ShardActions *out)
{
	const ShardMap *decided = shard_proposer_decided(proposer);
	int64 heartbeat = shard_proposer_majority_heartbeat(proposer);
	ShardSettingsRecord settings;
	int64 n;
	int32 ttl_ms = shard_lease_ttl_ms(get_settings(decided, &settings, &n) ? &settings : NULL);

	for (int i = 0; i < roster->n_members; i++)
	{
		int32 node = roster->members[i].node;
		ShardMemberRecord record;
		ShardControl *grant;
		int64 k;

		if (!shard_roster_record(roster, decided, node, &record) ||
			!shard_membership_is_member(record.status) ||
			shard_roster_pending(proposer, SHARD_MAP_MEMBER, node) ||
			shard_roster_displaces(roster, node) || !shard_roster_reachable(roster, node, now) ||
			!shard_lease_book_grant(roster->leases, node, record.inc_no, heartbeat, ttl_ms, now,
									&k))
			continue;
		grant = shard_action_send(out, node, SHARD_CONTROL_GRANT);
		grant->token = k;
		grant->ttl_ms = ttl_ms;
		grant->facts_n = shard_map_point(decided).n;
#ifdef SHARD_MUTANT_GRANT_WITHOUT_FACTS
		grant->facts_n = 0;
#endif
	}
}

bool
shard_roster_change_ttl(ShardRoster *roster, int64 ttl_ms, ShardProposer *proposer,
						const char **why)
{
	ShardSettingsRecord settings;
	ShardMapEntry change;
	int64 n;

	shard_arena_reset(roster->arena);
	*why = "the settings are not decided yet";
	if (!get_settings(shard_proposer_decided(proposer), &settings, &n))
		return false;
	*why = "the lease time is out of range";
	if (ttl_ms != (int32) ttl_ms || !shard_lease_change_ttl(&settings, (int32) ttl_ms))
		return false;
	*why = "another change of the settings is being decided";
	change = shard_record_put_settings(&settings, n, roster->arena);
	return shard_proposer_propose(proposer, &change, 1);
}

void
shard_roster_settle_ttl(ShardRoster *roster, int64 now, ShardProposer *proposer)
{
	ShardSettingsRecord settings;
	ShardMapEntry change;
	int64 n;

	if (!get_settings(shard_proposer_decided(proposer), &settings, &n) ||
		settings.previous_lease_ttl_ms <= settings.lease_ttl_ms)
		return;
	if (roster->ttl_n != n)
	{
		roster->ttl_n = n;
		roster->ttl_since = now;
	}
	if (now - roster->ttl_since <
		SHARD_LEASE_WAIT(shard_lease_longest_ttl_ms(&settings) * SHARD_MS))
		return;
	settings.previous_lease_ttl_ms = settings.lease_ttl_ms;
	change = shard_record_put_settings(&settings, n, roster->arena);
	(void) shard_proposer_propose(proposer, &change, 1);
}
