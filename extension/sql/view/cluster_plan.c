/*
 * sql/view/cluster_plan.c
 *		shard_rebalance_plan: the moves that the coordinator would make now.
 *
 * Computed here, by the functions that the coordinator uses, from what this node has learned and what the
 * members say they host. The coordinator may see it otherwise: it knows newer decisions, its own failure
 * detector, and the order in which regions registered with it, which decides between equals. What a type's
 * own functions would say (strategy "function") is not asked for. Nothing is moved.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "registry/cluster_map.h"
#include "sql/cluster/cluster_survey.h"
#include "sql/cluster/cluster_view.h"
#include "core/allocation/allocation.h"
#include "core/member/membership.h"
#include "entity/execution.h"
#include "shared/board.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_cluster_plan);

#define VIEW_TIMEOUT_MS 3000

/* A member that is not gone, as decided and observed. */
typedef struct PlanMember
{
	int32 node;
	ShardMemberRecord record;
	bool reachable;
	bool answered;
	const char *regions; /* its answer */
	int length;
} PlanMember;

/* A home of the type that is planned for. */
typedef struct PlanShard
{
	int32 shard;
	int64 n; /* of the home's last change: the order of age */
	int32 node;
	int32 to;	  /* while it moves; else 0 */
	int32 pin;	  /* 0: none */
	bool planned; /* has its row */
} PlanShard;

typedef struct RebalancePlan
{
	ReturnSetInfo *result;
	ShardArena *arena;
	ShardMap *map;
	int n_members;
	PlanMember *members; /* by age: those that registered first are mostly the oldest */

	/* one type */
	int32 type_id;
	ShardTypeRecord type;
	ShardAllocationSettings settings;
	ShardAllocationView view;
	int n_shards;
	PlanShard *shards; /* by age */
} RebalancePlan;

/* ---- members ---------------------------------------------------------------------------------- */

static int
compare_members(const void *a, const void *b)
{
	const PlanMember *x = a;
	const PlanMember *y = b;

	if (x->record.age != y->record.age)
		return x->record.age < y->record.age ? -1 : 1;
	return x->node < y->node ? -1 : x->node > y->node;
}

static void
read_members(RebalancePlan *plan)
{
	ShardSurvey all = shard_cluster_survey(SHARD_INTERNAL_REGIONS, VIEW_TIMEOUT_MS);
	List *reports = shard_cluster_view_reports();
	ShardBoardView view;
	int count;
	ShardMapEntry *entries = shard_map_list(plan->map, SHARD_MAP_MEMBER, plan->arena, &count);

	shard_board_get(shard_shmem_database(), &view);
	plan->members = palloc0(Max(count, 1) * sizeof(PlanMember));
	for (int i = 0; i < count; i++)
	{
		PlanMember *member = &plan->members[plan->n_members];
		const ShardMemberReport *report = shard_cluster_view_report_of(reports, entries[i].key.a);

		if (!shard_record_get_member(&entries[i], &member->record, plan->arena) ||
			member->record.status == SHARD_MEMBER_REMOVED ||
			member->record.status == SHARD_MEMBER_WRITTEN_OFF)
			continue;
		member->node = entries[i].key.a;
		member->reachable = member->node == view.node || (report != NULL && report->reachable);
		for (int k = 0; k < all.count; k++)
		{
			if (all.node[k] != member->node || !all.question[k].answered)
				continue;
			member->answered = true;
			member->regions = all.question[k].answer;
			member->length = all.question[k].answer_length;
		}
		plan->n_members++;
	}
	qsort(plan->members, plan->n_members, sizeof(PlanMember), compare_members);
}

/*
 * Does a member host the type? Of one that does not say, as its role would have it.
 */
static bool
hosts(const RebalancePlan *plan, const PlanMember *member)
{
	ShardReader reader = {member->regions, member->regions + member->length, false};
	size_t length = strlen(plan->type.name);

	if (!shard_membership_has_role(&member->record, plan->type.role))
		return false;
	while (member->answered && reader.at < reader.end)
	{
		size_t name_length;
		size_t mode_length;
		const char *name = shard_wire_get_bytes(&reader, &name_length);
		const char *mode = shard_wire_get_bytes(&reader, &mode_length);

		if (!reader.failed && name_length == length && memcmp(name, plan->type.name, length) == 0)
			return mode_length != strlen("proxy") || memcmp(mode, "proxy", mode_length) != 0;
	}
	return !member->answered;
}

static ShardAllocationStage
stage_of(const ShardMemberRecord *record)
{
	if (record->status == SHARD_MEMBER_JOINING || record->status == SHARD_MEMBER_WEAKLY_UP)
		return SHARD_ALLOCATION_JOINING;
	return record->status == SHARD_MEMBER_UP && !record->evacuated ? SHARD_ALLOCATION_STAYING
																   : SHARD_ALLOCATION_LEAVING;
}

static const PlanMember *
find_member(const RebalancePlan *plan, int32 node)
{
	for (int i = 0; i < plan->n_members; i++)
		if (plan->members[i].node == node)
			return &plan->members[i];
	return NULL;
}

/*
 * May the node be given shards of the type?
 */
static bool
is_good(const RebalancePlan *plan, int32 node)
{
	const PlanMember *member = find_member(plan, node);

	return member != NULL && member->reachable &&
		   stage_of(&member->record) == SHARD_ALLOCATION_STAYING && hosts(plan, member);
}

/* ---- one type --------------------------------------------------------------------------------- */

static int
compare_shards(const void *a, const void *b)
{
	const PlanShard *x = a;
	const PlanShard *y = b;

	if (x->n != y->n)
		return x->n < y->n ? -1 : 1;
	return x->shard < y->shard ? -1 : x->shard > y->shard;
}

static void
read_shards(RebalancePlan *plan)
{
	int count;
	ShardMapEntry *entries = shard_map_list(plan->map, SHARD_MAP_HOME, plan->arena, &count);

	plan->n_shards = 0;
	plan->shards = palloc(Max(count, 1) * sizeof(PlanShard));
	for (int i = 0; i < count; i++)
	{
		ShardMapKey key = entries[i].key;
		const ShardMapEntry *pin;
		ShardHomeRecord home;

		if (key.a != plan->type_id || !shard_record_get_home(&entries[i], &home))
			continue;
		pin = shard_map_value(plan->map, (ShardMapKey){SHARD_MAP_PIN, key.a, key.b});
		plan->shards[plan->n_shards++] =
			(PlanShard){.shard = key.b,
						.n = entries[i].n,
						.node = shard_record_home_node(&home),
						.to = home.phase == SHARD_HOME_MOVING ? home.to : 0,
						.pin = shard_membership_pinned(plan->map, pin)};
	}
	qsort(plan->shards, plan->n_shards, sizeof(PlanShard), compare_shards);
}

static PlanShard *
find_shard(const RebalancePlan *plan, int32 shard)
{
	for (int i = 0; i < plan->n_shards; i++)
		if (plan->shards[i].shard == shard)
			return &plan->shards[i];
	return NULL;
}

static int32
pin_of(int32 shard, void *arg)
{
	const RebalancePlan *plan = arg;
	const ShardMapEntry *pin =
		shard_map_value(plan->map, (ShardMapKey){SHARD_MAP_PIN, plan->type_id, shard});

	return shard_membership_pinned(plan->map, pin);
}

/*
 * The shards that a region has, oldest first; those that move count where they will be.
 */
static int32 *
shards_at(const RebalancePlan *plan, int32 node, int *count)
{
	int32 *shards = palloc(Max(plan->n_shards, 1) * sizeof(int32));

	*count = 0;
	for (int i = 0; i < plan->n_shards; i++)
	{
		const PlanShard *shard = &plan->shards[i];

		if ((shard->to != 0 ? shard->to : shard->node) == node)
			shards[(*count)++] = shard->shard;
	}
	return shards;
}

/*
 * What allocation looks at.
 */
static void
make_view(RebalancePlan *plan)
{
	ShardAllocationMember *members = palloc0(Max(plan->n_members, 1) * sizeof(*members));
	ShardAllocationRegion *regions = palloc0(Max(plan->n_members, 1) * sizeof(*regions));

	plan->view = (ShardAllocationView){.members = members,
									   .n_members = plan->n_members,
									   .regions = regions,
									   .pin = pin_of,
									   .pin_arg = plan};
	for (int i = 0; i < plan->n_members; i++)
	{
		const PlanMember *member = &plan->members[i];

		members[i].node = member->node;
		members[i].stage = stage_of(&member->record);
		members[i].reachable = member->reachable;
		members[i].suitable = shard_membership_has_role(&member->record, plan->type.role) &&
							  (plan->type.features & ~member->record.features) == 0;
		members[i].weight = shard_membership_weight(&member->record);
		members[i].app_version = member->record.app_version;
		if (hosts(plan, member) && plan->view.n_regions < SHARD_ALLOCATION_MAX_REGIONS)
		{
			ShardAllocationRegion *region = &regions[plan->view.n_regions++];

			region->node = member->node;
			region->shards = shards_at(plan, member->node, &region->n_shards);
		}
	}
}

/* ---- rows ------------------------------------------------------------------------------------- */

static void
put_move(RebalancePlan *plan, PlanShard *shard, int32 to, const char *reason)
{
	Datum values[5];
	bool nulls[5] = {false};

	if (shard == NULL || shard->planned || shard->to != 0 || to == 0 || to == shard->node ||
		!is_good(plan, to))
		return;
	shard->planned = true;
	values[0] = CStringGetTextDatum(plan->type.name);
	values[1] = Int32GetDatum(shard->shard);
	values[2] = Int32GetDatum(shard->node);
	values[3] = Int32GetDatum(to);
	values[4] = CStringGetTextDatum(reason);
	tuplestore_putvalues(plan->result->setResult, plan->result->setDesc, values, nulls);
}

/*
 * Shards of members that want to be empty, or do not host the type, to those that strategy and pins choose.
 */
static void
plan_departures(RebalancePlan *plan)
{
	ShardAllocationView good = plan->view;
	ShardAllocationRegion *regions = palloc(Max(good.n_regions, 1) * sizeof(*regions));
	ShardAllocation *allocation;

	good.regions = regions;
	good.n_regions = 0;
	for (int i = 0; i < plan->view.n_regions; i++)
		if (is_good(plan, plan->view.regions[i].node))
			regions[good.n_regions++] = plan->view.regions[i];
	if (good.n_regions == 0)
		return;
	allocation = shard_allocation_begin(&plan->settings, &good);
	for (int i = 0; i < plan->n_shards; i++)
	{
		PlanShard *shard = &plan->shards[i];
		const PlanMember *home = find_member(plan, shard->node);
		bool leaving = home != NULL && home->record.status == SHARD_MEMBER_LEAVING;
		ShardHomeReason reason = leaving ? SHARD_HOME_REASON_LEAVING
								 : home != NULL && home->record.evacuated
									 ? SHARD_HOME_REASON_EVACUATION
									 : SHARD_HOME_REASON_UNHOSTED;

		if (home == NULL || !home->reachable || shard->to != 0 ||
			(reason == SHARD_HOME_REASON_UNHOSTED && hosts(plan, home)))
			continue;
		put_move(plan, shard,
				 is_good(plan, shard->pin) ? shard->pin
										   : shard_allocation_next(allocation, shard->shard, 0),
				 shard_cluster_map_reason(reason));
	}
	shard_allocation_end(allocation);
}

/*
 * Shards that the strategy would move; those that are pinned stay.
 */
static void
plan_strategy(RebalancePlan *plan)
{
	int32 *moving = palloc(Max(plan->n_shards, 1) * sizeof(int32));
	int n_moving = 0;
	ShardAllocationMove *moves;
	int n_moves;

	for (int i = 0; i < plan->n_shards; i++)
		if (plan->shards[i].to != 0)
			moving[n_moving++] = plan->shards[i].shard;
	moves = shard_allocation_rebalance(&plan->settings, &plan->view, moving, n_moving, &n_moves);
	for (int i = 0; i < n_moves; i++)
	{
		PlanShard *shard = find_shard(plan, moves[i].shard);

		if (shard != NULL && (shard->pin == 0 || shard->pin == moves[i].to))
			put_move(plan, shard, moves[i].to,
					 shard_cluster_map_reason(SHARD_HOME_REASON_REBALANCE));
	}
}

static void
plan_type(RebalancePlan *plan, const ShardMapEntry *entry)
{
	plan->type_id = entry->key.a;
	if (!shard_record_get_type(entry, &plan->type, plan->arena))
		return;
	plan->settings = plan->type.allocation;
	if (plan->settings.kind == 0)
		plan->settings = shard_allocation_defaults(plan->type.strategy > 0
													   ? (ShardAllocationKind) plan->type.strategy
													   : SHARD_ALLOCATION_LEAST_SHARD);
	read_shards(plan);
	make_view(plan);
	plan_departures(plan);
	for (int i = 0; i < plan->n_shards; i++)
		if (plan->shards[i].pin != 0)
			put_move(plan, &plan->shards[i], plan->shards[i].pin,
					 shard_cluster_map_reason(SHARD_HOME_REASON_PIN));
	plan_strategy(plan);
}

/*
 * shard_rebalance_plan(type_name text = NULL) returns table (type_name, shard, from_node, to_node, reason)
 */
Datum
shard_cluster_plan(PG_FUNCTION_ARGS)
{
	RebalancePlan plan = {0};
	char *name = PG_ARGISNULL(0) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(0));
	ShardClusterType wanted = {0};
	ShardMapEntry *types;
	int count;

	shard_shmem_require();
	if (shard_execution_in_handler())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot execute %s from within a handler", "shard_rebalance_plan()")));
	InitMaterializedSRF(fcinfo, 0);
	if (name != NULL)
		shard_cluster_map_get_type(name, &wanted);
	plan.result = (ReturnSetInfo *) fcinfo->resultinfo;
	plan.arena = shard_arena_create();
	plan.map = shard_cluster_map_read();
	read_members(&plan);
	types = shard_map_list(plan.map, SHARD_MAP_TYPE, plan.arena, &count);
	for (int i = 0; i < count; i++)
		if (name == NULL || types[i].key.a == wanted.type_id)
			plan_type(&plan, &types[i]);
	shard_map_destroy(plan.map);
	shard_arena_destroy(plan.arena);
	return (Datum) 0;
}
