/*
 * sql/view/health_moves.c
 *		What is wrong with where shards live; a part of shard_health.
 *
 * Shards whose home is away, or that get none yet, moves that fail again and again, nodes that leave. Read from
 * what was decided, and what this node itself decided or tried: the coordinator and the target of a move
 * know why it failed.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "sql/type/admin.h"
#include "registry/cluster_map.h"
#include "sql/cluster/cluster_view.h"
#include "core/member/difference.h"
#include "core/member/membership.h"
#include "base/guc.h"
#include "sql/view/health.h"
#include "shared/import_progress.h"
#include "shared/board.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "registry/senders.h"
#include "entity/state_structure.h"
#include "registry/statement.h"
#include "base/rights.h"

#include "base/compat.h"

/*
 * Shards that were moved in vain, twice or more in the last hour, not with success since, and lately: a coordinator
 * that still wants such a move tries again within minutes. A move that was tried before the home or the target became
 * something else, or the pin of the shard, is not wanted any more, or counts from the start. $1: say why.
 */
static const ShardStatement failing = {
	"WITH changed AS MATERIALIZED (SELECT c.id, c.kind, c.from_node AS node, c.type_id, c.shard FROM shard.decision c"
	" WHERE c.kind IN ('member', 'evacuation', 'pinned') AND c.at > clock_timestamp() - interval '1 hour')"
	"SELECT format('%s of entity type \"%s\" could not be moved to node %s, tried %s times in the last "
	"hour%s; see shard_rebalances%s',"
	" CASE count(*) WHEN 1 THEN 'shard ' || min(f.shard) ELSE count(*) || ' shards' END,"
	" t.type_name, f.to_node, sum(f.failures), CASE WHEN $1 THEN ': ' || max(f.why) END,"
	" '; its owner is ' || max(CASE WHEN EXISTS (SELECT FROM pg_roles r WHERE r.oid = y.owner)"
	"  THEN 'role \"' || pg_get_userbyid(y.owner) || '\"'"
	"  ELSE 'role ' || y.owner::oid || ', which was dropped' END))"
	" FROM (SELECT d.type_id, d.shard, (array_agg(d.to_node ORDER BY d.id DESC))[1] AS to_node,"
	"   count(*) FILTER (WHERE d.kind IN ('move aborted', 'move refused')) AS failures,"
	"   max(d.at) AS at,"
	"   (array_agg(d.kind ORDER BY d.id DESC) FILTER (WHERE d.kind <> 'move begun'))[1] AS last,"
	"   (array_agg(d.why ORDER BY d.id DESC) FILTER (WHERE d.kind <> 'move begun'))[1] AS why"
	"  FROM shard.decision d WHERE d.shard IS NOT NULL AND d.kind LIKE 'move%'"
	"   AND d.at > clock_timestamp() - interval '1 hour'"
	"   AND NOT EXISTS (SELECT FROM changed c WHERE c.id > d.id AND CASE c.kind WHEN 'pinned'"
	"    THEN c.type_id = d.type_id AND c.shard = d.shard ELSE c.node IN (d.from_node, d.to_node) END)"
	"  GROUP BY d.type_id, d.shard) f"
	" JOIN (SELECT DISTINCT h.type_id, h.type_name FROM shard.homes() h) t USING (type_id)"
	" LEFT JOIN shard.type y USING (type_id)"
	" WHERE f.failures > 1 AND f.last NOT IN ('moved', 'move withdrawn')"
	" AND f.at > clock_timestamp() - interval '5 minutes' GROUP BY t.type_name, f.to_node",
	1,
	{BOOLOID}};

/* What is stopped or copied here for a move. */
static const ShardStatement strays = {
	"SELECT type_id, shard, epoch, coalesce(move_id, 0), state FROM shard.own"
	" WHERE state IN ('stopping', 'sealed', 'staged') ORDER BY type_id, shard LIMIT 1000"};

/* A copy of which nothing has come for this time is not just large. */
#define STILL_MS 5000

/* Shards of one type at one node. */
typedef struct Stranded
{
	int32 node;
	int32 type_id;
	int count;
} Stranded;

/*
 * Adds one to what is counted for a node and a type; homes come by type.
 */
static List *
count_home(List *list, int32 node, int32 type_id)
{
	Stranded *stranded;
	ListCell *cell;

	foreach (cell, list)
	{
		stranded = lfirst(cell);
		if (stranded->node == node && stranded->type_id == type_id)
		{
			stranded->count++;
			return list;
		}
	}
	stranded = palloc0(sizeof(Stranded));
	stranded->node = node;
	stranded->type_id = type_id;
	stranded->count = 1;
	return lappend(list, stranded);
}

static List *
count_homes(const ShardMap *map, ShardArena *arena)
{
	List *list = NIL;
	int count;
	ShardMapEntry *homes = shard_map_list(map, SHARD_MAP_HOME, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardHomeRecord record;

		if (shard_record_get_home(&homes[i], &record))
			list = count_home(list, shard_record_home_node(&record), homes[i].key.a);
	}
	return list;
}

/*
 * "12 shards wait"
 */
static char *
shards_wait(int count)
{
	return count == 1 ? pstrdup("1 shard waits") : psprintf("%d shards wait", count);
}

/*
 * Since when a node was not heard, in words.
 */
static char *
for_how_long(const ShardMemberReport *report)
{
	return report == NULL || report->heard_us < 0
			   ? pstrdup("")
			   : psprintf(", not heard for " INT64_FORMAT " s", report->heard_us / 1000000);
}

/*
 * Shards that stand still because their home does, or that are still at a node that wants to go. A home that answers
 * is not lost, though it may be silent: what is wrong with its link is said elsewhere.
 */
static void
check_stranded(ShardHealth *health, const ShardTypeRecord *type, const Stranded *stranded,
			   const ShardMemberRecord *member, const ShardMemberReport *report)
{
	int32 node = stranded->node;

	/* what to do about it is said of the node itself */
	if (member->status == SHARD_MEMBER_DOWN)
		shard_health_add(health,
						 psprintf("entity type \"%s\": %s%s for node %d, which was downed",
								  type->name,
								  type->dropping ? "no member that is heard has it, and " : "",
								  shards_wait(stranded->count), node));
	else if (report != NULL && shard_cluster_view_is_silent(report) && report->entities_run)
		shard_health_add(health,
						 psprintf("entity type \"%s\": %s at node %d, which runs them, and is not "
								  "heard: they cannot move, and messages for them may wait",
								  type->name,
								  stranded->count == 1 ? "1 shard"
													   : psprintf("%d shards", stranded->count),
								  node));
	else if (report != NULL && shard_cluster_view_is_silent(report) && report->heard_by != NULL)
		shard_health_add(
			health, psprintf("entity type \"%s\": %s for node %d, which %s hear%s: what is sent "
							 "here waits until the link from here is mended",
							 type->name, shards_wait(stranded->count), node, report->heard_by,
							 report->heard_by_several ? "" : "s"));
	else if (report != NULL && shard_cluster_view_is_silent(report) && report->mute)
		shard_health_add(
			health, psprintf("entity type \"%s\": %s for node %d, which may be frozen%s: have its "
							 "server go on",
							 type->name, shards_wait(stranded->count), node, for_how_long(report)));
	else if (report != NULL && shard_cluster_view_is_silent(report) &&
			 !shard_cluster_view_answers(report))
		shard_health_add(
			health,
			psprintf(
				"entity type \"%s\": %s%s for node %d (unreachable%s): start its server; if "
				"that runs, see shard.enabled and shard_health() there; or promote its standby "
				"(shard_admit); shard_write_off(%d) gives up their state",
				type->name, type->dropping ? "no member that is heard has it, and " : "",
				shards_wait(stranded->count), node, for_how_long(report), node));
	else if (member->status == SHARD_MEMBER_LEAVING || member->status == SHARD_MEMBER_EXITING ||
			 member->evacuated)
		shard_health_add(
			health, psprintf("node %d is %s: entity type \"%s\" still has %d shard(s) there; "
							 "%s",
							 node, member->evacuated ? "being emptied" : "leaving", type->name,
							 stranded->count,
							 type->dropping ? "no member that is heard has the type, so they stay"
							 : type->replicas > 0
								 ? "they stay, since shards of types with replicas do not move yet"
								 : "they move to members that are up and have started it; see "
								   "shard_rebalances"));
}

/*
 * Members that have given away their last shard, and are not removed yet (M20): a moment, if nothing holds them.
 */
static void
check_exits(ShardHealth *health, const ShardMap *map, ShardArena *arena, int32 self)
{
	int count;
	ShardMapEntry *members = shard_map_list(map, SHARD_MAP_MEMBER, arena, &count);

	for (int i = 0; i < count; i++)
	{
		int32 node = members[i].key.a;
		ShardMemberRecord member;
		const char *senders;

		if (!shard_record_get_member(&members[i], &member, arena) ||
			member.status != SHARD_MEMBER_EXITING)
			continue;
		senders = node == self ? shard_senders_list(false) : "";
		if (node != self)
			shard_health_add(health,
							 psprintf("node %d has no shards any more, and leaves when what it "
									  "has for others is taken in and no transaction that "
									  "has sent there is open; shard_health() there says "
									  "what it waits for",
									  node));
		else if (senders[0] != '\0')
			shard_health_add(health, psprintf("this node is leaving, and waits for the end of "
											  "transactions that have sent messages: %s",
											  senders));
		else
			shard_health_add(health, "this node is leaving, and waits until others have taken in "
									 "what it has for them; see shard_peers and shard_inbox");
	}
}

static void
check_homes(ShardHealth *health, const ShardMap *map, ShardArena *arena, List *reports, int32 self)
{
	List *all = count_homes(map, arena);
	ListCell *cell;

	foreach (cell, all)
	{
		const Stranded *stranded = lfirst(cell);
		const ShardMapEntry *entry =
			shard_map_value(map, (ShardMapKey){SHARD_MAP_TYPE, stranded->type_id, 0});
		const ShardMapEntry *node =
			shard_map_value(map, (ShardMapKey){SHARD_MAP_MEMBER, stranded->node, 0});
		ShardTypeRecord type;
		ShardMemberRecord member;

		if (entry != NULL && node != NULL && shard_record_get_type(entry, &type, arena) &&
			shard_record_get_member(node, &member, arena))
			check_stranded(health, &type, stranded, &member,
						   stranded->node == self
							   ? NULL
							   : shard_cluster_view_report_of(reports, stranded->node));
	}
}

/*
 * Members that are up and have a role.
 */
static int
count_up(const ShardMap *map, ShardArena *arena, const char *role)
{
	int count;
	int up = 0;
	ShardMapEntry *members = shard_map_list(map, SHARD_MAP_MEMBER, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		up += shard_record_get_member(&members[i], &member, arena) &&
			  member.status == SHARD_MEMBER_UP && shard_membership_has_role(&member, role);
	}
	return up;
}

/*
 * Members that have a role, or will have it again.
 */
static int
count_all(const ShardMap *map, ShardArena *arena, const char *role)
{
	int count;
	int all = 0;
	ShardMapEntry *members = shard_map_list(map, SHARD_MAP_MEMBER, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		all += shard_record_get_member(&members[i], &member, arena) &&
			   (shard_membership_is_member(member.status) || member.status == SHARD_MEMBER_DOWN) &&
			   shard_membership_has_role(&member, role);
	}
	return all;
}

/*
 * No node has the role of a type, or too few members with it have ever been there for its first homes (C4). The first
 * is said where the type was started: the map keeps types that no node has any more.
 */
static void
check_role(ShardHealth *health, const ShardMap *map, ShardArena *arena,
		   const ShardSettingsRecord *settings, const ShardTypeRecord *type, bool is_here)
{
	int32 number = shard_record_role(type->role);
	int minimum = 0;
	int up;

	if (count_all(map, arena, type->role) == 0)
	{
		if (is_here)
			shard_health_add(
				health,
				psprintf("no member has role \"%s\" of entity type \"%s\": its shards get no "
						 "homes; see shard.roles, where upper and lower case differ",
						 type->role, type->name));
		return;
	}
	for (int i = 0; i < settings->n_role_minimums; i++)
		if (settings->role_minimums[i].role == number)
			minimum = settings->role_minimums[i].members;
	if (type->role[0] == '\0' || minimum == 0 ||
		shard_map_value(map, (ShardMapKey){SHARD_MAP_FORMED, number, 0}) != NULL)
		return;
	up = count_up(map, arena, type->role);
	if (up < minimum)
		shard_health_add(
			health, psprintf("%d of the %d members with role \"%s\" that shard.role_min_members "
							 "wants are up: shards of entity type \"%s\" get no homes before",
							 up, minimum, type->role, type->name));
}

static void
check_roles(ShardHealth *health, const ShardMap *map, ShardArena *arena)
{
	const ShardMapEntry *entry = shard_map_value(map, (ShardMapKey){SHARD_MAP_SETTINGS, 0, 0});
	ShardSettingsRecord settings;
	ShardMapEntry *types;
	int count;

	if (entry == NULL || !shard_record_get_settings(entry, &settings))
		return;
	types = shard_map_list(map, SHARD_MAP_TYPE, arena, &count);
	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (shard_record_get_type(&types[i], &type, arena) && !type.dropping)
			check_role(health, map, arena, &settings, &type,
					   shard_registry_by_id(types[i].key.a) != NULL);
	}
}

/*
 * A type of states that was altered at some nodes only: the cluster has the structure that was altered last, and a node
 * that has another one says so, before a shard has to move.
 */
static void
check_structure(ShardHealth *health, ShardArena *arena, const ShardTypeRecord *known,
				const ShardType *type)
{
	ShardTypeRecord mine = *known;
	const char *difference;
	Oid locked;
	char *why;

	mine.state = shard_state_structure_now(type->state_type, &locked, &why);
	if (mine.state == NULL)
	{
		if (OidIsValid(locked))
			why = shard_admin_relation_holder(locked);
		if (why != NULL)
			shard_health_add(
				health,
				psprintf("the states of entity type \"%s\" cannot be compared with those of "
						 "other nodes: %s",
						 type->name, why));
		return;
	}
	difference = shard_difference_of_types(known, &mine, true, arena);
	if (difference != NULL)
		shard_health_add(
			health, psprintf("entity type \"%s\" is not the same at all nodes: %s; until ALTER "
							 "TYPE is done at all of them, shards do not move to a node that lacks "
							 "a column, or has it with another type; if all hosts are alike, "
							 "shard_start() at one of them, as before, tells the cluster",
							 type->name, difference));
}

static void
check_structures(ShardHealth *health, const ShardMap *map, ShardArena *arena)
{
	int count;
	ShardMapEntry *types = shard_map_list(map, SHARD_MAP_TYPE, arena, &count);

	for (int i = 0; i < count; i++)
	{
		const ShardType *type = shard_registry_by_id(types[i].key.a);
		ShardTypeRecord known;

		if (type != NULL && type->mode != SHARD_MODE_PROXY && OidIsValid(type->state_type) &&
			shard_record_get_type(&types[i], &known, arena) &&
			strcmp(known.name, type->name) == 0 && shard_guc_has_role(known.role))
			check_structure(health, arena, &known, type);
	}
}

/*
 * Is a shard stopped or copied here for a move that the cluster has not decided (M25)? What is decided meanwhile is
 * another matter: the worker meets it in a moment.
 */
static bool
is_stray(const ShardHomeRecord *home, int32 self, bool staged, int32 epoch, int64 move_id)
{
	bool moves = home->phase == SHARD_HOME_MOVING && home->move_id == move_id;

	if (staged)
		return (int64) epoch > (int64) home->epoch + (moves && home->to == self ? 1 : 0);
	return epoch > home->epoch || (epoch == home->epoch && !moves);
}

/*
 * Shards that stand still here, or cannot come here, without a move of theirs under way. Only an older version, or a
 * row that was changed by hand, makes such shards.
 */
static void
check_strays(ShardHealth *health, const ShardMap *map, ShardArena *arena, int32 self)
{
	ShardSecurity security = {0};

	shard_security_begin_system(&security);
	SPI_connect();
	shard_statement_once_read(&strays, NULL, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		int32 type_id = shard_statement_int4(i, 1);
		int32 shard = shard_statement_int4(i, 2);
		int32 epoch = shard_statement_int4(i, 3);
		int64 move_id = shard_statement_int8(i, 4);
		const char *state = shard_statement_text(i, 5);
		const ShardMapEntry *entry =
			shard_map_value(map, (ShardMapKey){SHARD_MAP_HOME, type_id, shard});
		const ShardMapEntry *known =
			shard_map_value(map, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0});
		ShardHomeRecord home;
		ShardTypeRecord type;

		if (entry == NULL || known == NULL || !shard_record_get_home(entry, &home) ||
			!shard_record_get_type(known, &type, arena) ||
			!is_stray(&home, self, strcmp(state, "staged") == 0, epoch, move_id))
			continue;
		shard_health_add(health, psprintf("entity type \"%s\": shard %d is %s here in epoch %d for "
										  "move " INT64_FORMAT
										  ", which the cluster has not decided; see shard_homes",
										  type.name, shard, state, epoch, move_id));
	}
	SPI_finish();
	shard_security_end(&security);
}

/*
 * Moves that fail again and again.
 */
static void
check_failing(ShardHealth *health)
{
	ShardSecurity security = {0};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, BoolGetDatum(shard_rights_all_stats()), false);
	shard_security_begin_system(&security);
	SPI_connect();
	shard_statement_once_read(&failing, &arguments, 20);
	for (uint64 i = 0; i < SPI_processed; i++)
		shard_health_add(health, shard_statement_text(i, 1));
	SPI_finish();
	shard_security_end(&security);
}

/* Has a copy a backend, but no progress? A process that has ended leaves its note as it was. */
static bool
stands_still(const ShardImportProgress *import)
{
	return import->pid != 0 &&
		   TimestampDifferenceExceeds(import->changed, GetCurrentTimestamp(), STILL_MS) &&
		   BackendPidGetProc(import->pid) != NULL;
}

/* How many copies of the type's shards do not come on; 0: that was said for one before. */
static int
count_still(const ShardImportProgress *imports, int count, int which)
{
	int copies = 0;

	for (int i = 0; i < count; i++)
	{
		if (imports[i].shard.type_id != imports[which].shard.type_id || !stands_still(&imports[i]))
			continue;
		if (i < which)
			return 0;
		copies++;
	}
	return copies;
}

/* Types whose shards are not copied to here, since triggers or constraints of their tables' owners take long. */
static void
check_imports(ShardHealth *health, ShardDatabase *db)
{
	int count;
	ShardImportProgress *imports = shard_import_list(db, &count);

	for (int i = 0; i < count; i++)
	{
		const ShardImportProgress *import = &imports[i];
		int copies = count_still(imports, count, i);
		const ShardType *type = copies > 0 ? shard_registry_by_id(import->shard.type_id) : NULL;

		if (type == NULL)
			continue;
		shard_health_add(
			health,
			psprintf("entity type \"%s\" of role \"%s\" holds up moves to this node: %d of its "
					 "shards, such as shard %d by process %d, %s not come on for %d s; look at "
					 "triggers and constraints of its state table, and at locks",
					 type->name, GetUserNameFromId(type->owner, false), copies, import->shard.shard,
					 import->pid, copies > 1 ? "have" : "has", STILL_MS / 1000));
	}
}

void
shard_health_moves(ShardHealth *health, List *reports)
{
	ShardDatabase *db = shard_shmem_database();
	ShardMap *map = shard_cluster_map_read();
	ShardArena *arena = shard_arena_create();
	ShardBoardView view;

	shard_board_get(db, &view);
	if (view.leased && shard_board_lease(db) <= shard_clock_now())
		shard_health_add(health, "the lease of this node has ended: it handles nothing until the "
								 "coordinator renews it; see shard_members");
	check_homes(health, map, arena, reports, view.node);
	check_exits(health, map, arena, view.node);
	check_strays(health, map, arena, view.node);
	shard_health_replicas(health, map, arena, reports, view.node);
	check_roles(health, map, arena);
	if (view.members > 1)
		check_structures(health, map, arena);
	shard_arena_destroy(arena);
	shard_map_destroy(map);
	check_imports(health, db);
	check_failing(health);
}
