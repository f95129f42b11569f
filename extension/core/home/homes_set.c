/*
 * core/home/homes_set.c
 *		Who is in the set of a shard of a type with replicas (Q1).
 *
 * A first home comes with its backups: k hosts of the type beside it, or as many as there are. Each host gets as many
 * backups as the others; which of those that have fewest is drawn from the shard's number, so the backups of one home's
 * shards are at all other hosts, and its loss is shared by all of them. Then the set stays: no move, no round of
 * rebalancing and no loss changes it.
 *
 * A home that comes with states (C21, E65) is alone in its set, since nobody else has these: a backup would hold the
 * records of its turns without what they change.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/message.h"
#include "core/home/homes_plan.h"
#include "core/map/set.h"
#include "core/member/membership.h"

/* Where a node is among the hosts that can have a backup, -1 if it is not there. */
static int
host_of(const PlanView *plan, int32 node)
{
	for (int i = 0; i < plan->n_hosts; i++)
	{
		if (plan->hosts[i].node == node)
			return i;
	}
	return -1;
}

/* Backups that are proposed and not decided yet count, too. */
static void
count_proposed(PlanView *plan, const ShardHomes *homes)
{
	ShardMapRange proposed[2];

	shard_proposer_undecided_range(homes->proposer, SHARD_MAP_HOME, plan->type_id, proposed);
	for (int i = 0; i < 2; i++)
	{
		const ShardMapEntry *entry;

		while ((entry = shard_map_range_next(&proposed[i])) != NULL)
		{
			ShardHomeRecord home;

			if (!shard_record_get_home(entry, &home))
				continue;
			for (int b = 1; b < home.n_nodes; b++)
			{
				int host = host_of(plan, home.nodes[b]);

				if (host >= 0)
					plan->hosts[host].n_backups++;
			}
		}
	}
}

void
shard_homes_view_hosts(PlanView *plan, ShardHomes *homes, ShardArena *arena)
{
	if (plan->type.replicas == 0)
		return;
	plan->hosts = shard_arena_alloc(arena, sizeof(PlanHost) * Max(plan->view.n_regions, 1));
	for (int i = 0; i < plan->view.n_regions; i++)
	{
		int32 node = plan->view.regions[i].node;
		const HomesCount *count =
			homes_count_lookup(homes->backups, (ShardShardKey){plan->type_id, node});

		if (shard_homes_view_is_good(plan, node))
			plan->hosts[plan->n_hosts++] = (PlanHost){node, count ? count->n : 0};
	}
	count_proposed(plan, homes);
}

/* A number for a shard and a node, the same each time: among hosts with as many backups the lowest gets it. */
static uint32
lot_of(const PlanView *plan, int32 shard, int32 node)
{
	int32 numbers[3] = {plan->type_id, shard, node};

	return (uint32) shard_message_hash_murmur2((const char *) numbers, sizeof(numbers));
}

/* The host that is to get one more backup of the shard; -1: all are in the set. */
static int
next_host(const PlanView *plan, int32 shard, const ShardHomeRecord *record)
{
	int best = -1;

	for (int i = 0; i < plan->n_hosts; i++)
	{
		const PlanHost *host = &plan->hosts[i];

#ifndef SHARD_MUTANT_HOME_IS_ITS_BACKUP
		if (shard_set_has(record, host->node))
			continue;
#endif
#ifdef SHARD_MUTANT_BACKUPS_AT_ONE_HOST
		return i;
#endif
		if (best < 0 || host->n_backups < plan->hosts[best].n_backups ||
			(host->n_backups == plan->hosts[best].n_backups &&
			 lot_of(plan, shard, host->node) < lot_of(plan, shard, plan->hosts[best].node)))
			best = i;
	}
	return best;
}

void
shard_homes_choose_set(const PlanView *plan, int32 shard, ShardHomeRecord *record)
{
	int32 wanted = plan->type.replicas + 1;

	record->want = wanted;
	record->n_nodes = 1;
	while (record->n_nodes < wanted)
	{
		int host = next_host(plan, shard, record);

		if (host < 0)
			return;
		plan->hosts[host].n_backups++;
		record->nodes[record->n_nodes++] = plan->hosts[host].node;
	}
}

/* Has the member gone for good, with what it had? */
static bool
is_gone(const ShardHomes *homes, int32 node)
{
	ShardMemberRecord member;

	return !shard_homes_member(homes, node, &member) || member.status == SHARD_MEMBER_WRITTEN_OFF ||
		   member.status == SHARD_MEMBER_REMOVED;
}

bool
shard_homes_set_is_gone(const ShardHomes *homes, const HomesShard *shard)
{
#ifdef SHARD_MUTANT_REPLICATED_BEGINS_ANEW
	return true;
#endif
	if (!is_gone(homes, shard->node))
		return false;
	for (int i = 0; i < shard->n_backups; i++)
	{
		if (!is_gone(homes, shard->backups[i]))
			return false;
	}
	return true;
}
