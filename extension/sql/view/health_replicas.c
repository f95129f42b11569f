/*
 * sql/view/health_replicas.c
 *		Shards of types with replicas that have fewer copies than they should, or wait for one; a part of shard_health.
 *
 * As decided: nothing that a turn did is shown before all of the set have stored it, so a shard waits for each backup that
 * is away (Q11). No node takes over yet, so a shard whose home was written off waits, too.
 */
#include "postgres.h"

#include "executor/spi.h"

#include "core/map/set.h"
#include "core/member/membership.h"
#include "sql/cluster/cluster_view.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "shared/link_trouble.h"
#include "sql/view/health.h"

#include "base/compat.h"

/* Copies here whose records are stored and not applied (Q10, Q32). */
static const ShardStatement unapplied = {
	"SELECT format('entity type \"%s\": %s here, such as that of shard %s, store what their homes ship and cannot"
	" apply it: %s; the columns of shard_replica.%I have to be those of the state table, at all nodes, and what suspends"
	" the type has to be mended',"
	" t.type_name, CASE count(*) WHEN 1 THEN '1 copy' ELSE count(*) || ' copies' END, min(c.shard), c.problem, t.type_name)"
	" FROM shard.copy c JOIN shard.type t USING (type_id) WHERE c.problem IS NOT NULL"
	" GROUP BY t.type_name, c.problem ORDER BY t.type_name, c.problem LIMIT 10",
	0,
	{0}};

/* Why nothing comes from the copy at a node. */
typedef enum Away
{
	AWAY_NOT,
	AWAY_DOWN,
	AWAY_SILENT,
	AWAY_GONE /* for good */
} Away;

static const char *const away_texts[] = {
	[AWAY_DOWN] = "which was downed",
	[AWAY_SILENT] = "which is not heard: start its server",
	[AWAY_GONE] =
		"which is no member any more, and whose copies no node takes over yet; when all members that have copies "
		"are written off, the shards begin anew",
};

/* Shards of a type, counted by what is the matter with their sets. */
typedef struct Poor
{
	int32 type_id;
	int32 want;
	int32 node; /* that they wait for; 0: they have too few copies, */
	int32 have; /* so many */
	Away away;
	int count;
} Poor;

static List *
count(List *list, const Poor *what)
{
	ListCell *cell;
	Poor *poor;

	foreach (cell, list)
	{
		poor = lfirst(cell);
		if (poor->type_id == what->type_id && poor->node == what->node &&
			poor->have == what->have && poor->want == what->want)
		{
			poor->count++;
			return list;
		}
	}
	poor = palloc(sizeof(Poor));
	*poor = *what;
	poor->count = 1;
	return lappend(list, poor);
}

static Away
is_away(const ShardMap *map, ShardArena *arena, List *reports, int32 self, int32 node)
{
	const ShardMemberReport *report =
		node == self ? NULL : shard_cluster_view_report_of(reports, node);
	ShardMemberRecord member;

	if (!shard_record_get_member(shard_map_value(map, (ShardMapKey){SHARD_MAP_MEMBER, node, 0}),
								 &member, arena) ||
		shard_membership_is_gone(member.status))
		return AWAY_GONE;
	if (member.status == SHARD_MEMBER_DOWN)
		return AWAY_DOWN;
	return report != NULL && shard_cluster_view_is_silent(report) ? AWAY_SILENT : AWAY_NOT;
}

/* That a home is down or silent is said of every type (check_homes). */
static bool
is_said(Away away, int place)
{
	return away == AWAY_NOT || (place == 0 && away != AWAY_GONE);
}

static void
say(ShardHealth *health, const char *type, const Poor *poor)
{
	const char *shards = poor->count == 1 ? "1 shard" : psprintf("%d shards", poor->count);

	if (poor->node == 0)
		shard_health_add(health,
						 psprintf("entity type \"%s\": redundancy %d of %d for %s: too few members "
								  "hosted the type when the shards got their homes",
								  type, poor->have, poor->want, shards));
	else
		shard_health_add(health,
						 psprintf("entity type \"%s\": %s wait%s for their copies at node %d, %s",
								  type, shards, poor->count == 1 ? "s" : "", poor->node,
								  away_texts[poor->away]));
}

/* Copies at a member that cannot follow their home here, so that what their shards do is not shown (Q11). */
static void
check_copies(ShardHealth *health, int32 node)
{
	ShardLinkTrouble trouble;

	if (shard_link_trouble_of(shard_shmem_database(), node, SHARD_LINK_COPIES, &trouble))
		shard_health_add(
			health,
			psprintf("copies at node %d cannot follow shards whose home is here, which show "
					 "nothing of what they do: %s; start that node, or this one, with the "
					 "database that it had; if that is lost, the type has to be dropped "
					 "with shard_drop_type() and started again",
					 node, trouble.error));
}

/* Records here that cannot be read, or receivers that are not to be found, so that what shards have told is not sent. */
static void
check_outputs(ShardHealth *health, int32 self)
{
	ShardLinkTrouble trouble;

	if (shard_link_trouble_of(shard_shmem_database(), self, SHARD_LINK_OUTPUTS, &trouble))
		shard_health_add(health,
						 psprintf("what shards whose home is here have told is not sent: %s; put "
								  "the database back from a backup; if there is none, the type "
								  "has to be dropped with shard_drop_type() and started again",
								  trouble.error));
	if (shard_link_trouble_of(shard_shmem_database(), self, SHARD_LINK_UNPLACED, &trouble))
		shard_health_add(
			health, psprintf("what shards whose home is here have told a type that was resharded "
							 "since then is not sent: %s; it is tried again",
							 trouble.error));
}

static void
check_applied(ShardHealth *health)
{
	ShardSecurity security = {0};

	SPI_connect();
	shard_security_begin_system(&security);
	shard_statement_once_read(&unapplied, NULL, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		shard_health_add(health, shard_statement_text(i, 1));
	shard_security_end(&security);
	SPI_finish();
}

void
shard_health_replicas(ShardHealth *health, const ShardMap *map, ShardArena *arena, List *reports,
					  int32 self)
{
	int n_homes;
	ShardMapEntry *homes = shard_map_list(map, SHARD_MAP_HOME, arena, &n_homes);
	List *list = NIL;
	ListCell *cell;

	for (int i = 0; i < n_homes; i++)
	{
		ShardHomeRecord home;
		ShardSet set;
		Poor poor = {.type_id = homes[i].key.a};

		if (!shard_record_get_home(&homes[i], &home) || !shard_set_get(&home, homes[i].n, &set))
			continue;
		poor.want = set.want;
		poor.have = set.n_nodes;
		if (set.n_nodes < set.want)
			list = count(list, &poor);
		poor.have = poor.want = 0;
		for (int k = 0; k < set.n_nodes; k++)
		{
			poor.node = set.nodes[k];
			poor.away = is_away(map, arena, reports, self, poor.node);
			if (!is_said(poor.away, k))
				list = count(list, &poor);
		}
	}
	check_outputs(health, self);
	check_applied(health);
	foreach (cell, reports)
		check_copies(health, ((const ShardMemberReport *) lfirst(cell))->node);
	foreach (cell, list)
	{
		const Poor *poor = lfirst(cell);
		ShardTypeRecord type;

		if (shard_record_get_type(shard_map_value(map,
												  (ShardMapKey){SHARD_MAP_TYPE, poor->type_id, 0}),
								  &type, arena))
			say(health, type.name, poor);
	}
}
