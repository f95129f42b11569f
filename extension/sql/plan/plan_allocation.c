/*
 * sql/plan/plan_allocation.c
 *		Planners of allocation: what a strategy would do with the shards that are described to it.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "core/allocation/allocation.h"
#include "core/base/message.h"
#include "base/plan_json.h"
#include "registry/registry.h"
#include "registry/settings.h"
#include "base/argument.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_plan_rebalance);
PG_FUNCTION_INFO_V1(shard_plan_allocation);
PG_FUNCTION_INFO_V1(shard_plan_shard_id);

typedef struct ShardPlanPin
{
	int32 shard;
	int32 node;
} ShardPlanPin;

/* The arguments of a planner, read. */
typedef struct ShardPlanAllocation
{
	ShardAllocationSettings settings;
	ShardAllocationView view;
	const char *role; /* NULL: any member is suitable */
	int n_pins;
	ShardPlanPin *pins; /* by shard */
} ShardPlanAllocation;

/* Statuses that a member may have, and what they mean here; the last two are not in the view. */
static const char *const status_names[] = {
	"joining", "weakly_up", "up", "leaving", "exiting", "down", "removed", "written_off", NULL,
};
static const ShardAllocationStage status_stages[] = {
	SHARD_ALLOCATION_JOINING, SHARD_ALLOCATION_JOINING, SHARD_ALLOCATION_STAYING,
	SHARD_ALLOCATION_LEAVING, SHARD_ALLOCATION_LEAVING, SHARD_ALLOCATION_LEAVING,
};

/* "age" and "seen" are for shard_plan_downing, so that both can be given the same members. */
static const char *const member_names[] = {
	"node", "status", "app_version", "reachable", "roles", "weight", "age", "seen", NULL,
};

/* Settings that the core knows nothing of: the role of the type, and its pins. */
static const char *const other_settings[] = {"role", "pins"};

/* Error for a number that may be given once only. */
static void
refuse_twice(const char *what, int32 number, const ShardPlanValue *argument)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s %d is given twice in %s", what, number, shard_plan_json_path(argument))));
}

/* Error for more nodes than can be planned with. */
static void
check_number_of_nodes(int n, const ShardPlanValue *argument)
{
	if (n > SHARD_ALLOCATION_MAX_REGIONS)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("too many nodes in %s", shard_plan_json_path(argument)),
						errdetail("There are %d, at most %d are possible.", n,
								  SHARD_ALLOCATION_MAX_REGIONS)));
}

/* A strategy by name; not "function", which is for the user to plan. */
static ShardAllocationKind
read_kind(FunctionCallInfo fcinfo, int n)
{
	const char *known[SHARD_ALLOCATION_KINDS + 1] = {NULL};
	int n_known = 0;
	char *name;

	shard_argument_check(fcinfo, n, "argument \"strategy\" must not be null");
	name = text_to_cstring(PG_GETARG_TEXT_PP(n));
	for (int32 kind = 1; shard_allocation_is_known(kind); kind++)
	{
		if (kind == SHARD_ALLOCATION_FUNCTION)
			continue;
		if (strcmp(shard_allocation_kind_names[kind], name) == 0)
			return (ShardAllocationKind) kind;
		known[n_known++] = shard_allocation_kind_names[kind];
	}
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("allocation strategy \"%s\" does not exist", name),
					errhint("Strategies are: %s.", shard_plan_json_list(known))));
}

/* The names of all settings, ended by NULL. */
static const char **
setting_names(void)
{
	int n = shard_allocation_n_settings;
	const char **names = palloc((n + lengthof(other_settings) + 1) * sizeof(char *));

	for (int i = 0; i < n; i++)
		names[i] = shard_allocation_setting_list[i].name;
	for (int i = 0; i < lengthof(other_settings); i++)
		names[n++] = other_settings[i];
	names[n] = NULL;
	return names;
}

/* Pins, {"shard": node}: jsonb keeps such keys in the order of their numbers. */
static void
read_pins(ShardPlanAllocation *plan, const ShardPlanValue *value)
{
	ShardPlanValue *fields;

	plan->n_pins = shard_plan_json_fields(value, &fields);
	plan->pins = palloc(Max(plan->n_pins, 1) * sizeof(ShardPlanPin));
	for (int i = 0; i < plan->n_pins; i++)
	{
		plan->pins[i].shard = shard_plan_json_int_key(&fields[i], 0, SHARD_MAX_SHARDS - 1);
		plan->pins[i].node = shard_plan_json_int(&fields[i], 1, PG_INT32_MAX);
	}
}

static int
compare_pins(const void *a, const void *b)
{
	int32 first = ((const ShardPlanPin *) a)->shard;
	int32 second = ((const ShardPlanPin *) b)->shard;

	return first < second ? -1 : first > second;
}

/* A ShardAllocationPin over the plan's pins. */
static int32
find_pin(int32 shard, void *arg)
{
	ShardPlanAllocation *plan = arg;
	ShardPlanPin key = {.shard = shard};
	ShardPlanPin *pin = NULL;

	if (plan->n_pins > 0)
		pin = bsearch(&key, plan->pins, plan->n_pins, sizeof(ShardPlanPin), compare_pins);
	return pin != NULL ? pin->node : 0;
}

/* Settings by their names; NULL is none. */
static void
read_settings(ShardPlanAllocation *plan, Jsonb *json)
{
	ShardPlanValue root;
	ShardPlanValue *fields;
	int n;
	const ShardPlanValue *value;

	if (json == NULL)
		return;
	root = shard_plan_json_root(json, "settings");
	n = shard_plan_json_fields(&root, &fields);
	shard_plan_json_allow(fields, n, setting_names());
	for (int i = 0; i < shard_allocation_n_settings; i++)
	{
		const ShardAllocationSetting *setting = &shard_allocation_setting_list[i];

		value = shard_plan_json_find(fields, n, setting->name);
		if (value != NULL)
			shard_settings_read_allocation(&plan->settings, setting, value);
	}
	value = shard_plan_json_find(fields, n, "role");
	if (value != NULL)
		plan->role = shard_plan_json_text(value);
	value = shard_plan_json_find(fields, n, "pins");
	if (value != NULL)
		read_pins(plan, value);
}

/* Whether a member has the role of the type, if that is given. */
static bool
has_role(const ShardPlanAllocation *plan, const ShardPlanValue *roles)
{
	char **names;
	int n = roles != NULL ? shard_plan_json_texts(roles, &names) : 0;

	if (plan->role == NULL)
		return true;
	for (int i = 0; i < n; i++)
		if (strcmp(names[i], plan->role) == 0)
			return true;
	return false;
}

/* A member with the values that everything has that is not said. */
static ShardAllocationMember
default_member(int32 node)
{
	ShardAllocationMember member = {
		.node = node,
		.stage = SHARD_ALLOCATION_STAYING,
		.reachable = true,
		.suitable = true,
		.weight = SHARD_ALLOCATION_WEIGHT_ONE,
		.app_version = "",
	};

	return member;
}

/* Reads a member; false if its status says that it is not in the view. */
static bool
read_member(const ShardPlanAllocation *plan, const ShardPlanValue *object,
			ShardAllocationMember *member)
{
	ShardPlanValue *fields;
	int n = shard_plan_json_fields(object, &fields);
	const ShardPlanValue *value;
	int status = -1;

	shard_plan_json_allow(fields, n, member_names);
	value = shard_plan_json_need(object, fields, n, "node");
	*member = default_member(shard_plan_json_int(value, 1, PG_INT32_MAX));
	member->suitable = has_role(plan, shard_plan_json_find(fields, n, "roles"));
	if ((value = shard_plan_json_find(fields, n, "status")) != NULL)
		status = shard_plan_json_choice(value, status_names);
	if ((value = shard_plan_json_find(fields, n, "reachable")) != NULL)
		member->reachable = shard_plan_json_bool(value);
	if ((value = shard_plan_json_find(fields, n, "app_version")) != NULL)
		member->app_version = shard_plan_json_text(value);
	if ((value = shard_plan_json_find(fields, n, "weight")) != NULL)
		member->weight = (int32) rint(
			shard_plan_json_double(value, 1.0 / SHARD_ALLOCATION_WEIGHT_ONE,
								   SHARD_ALLOCATION_MAX_WEIGHT / SHARD_ALLOCATION_WEIGHT_ONE) *
			SHARD_ALLOCATION_WEIGHT_ONE);
	if (status >= (int) lengthof(status_stages))
		return false;
	if (status >= 0)
		member->stage = status_stages[status];
	return true;
}

/* Members as given, in that order. */
static void
read_members(ShardPlanAllocation *plan, Jsonb *json)
{
	ShardPlanValue root = shard_plan_json_root(json, "members");
	ShardPlanValue *elements;
	int n = shard_plan_json_elements(&root, &elements);
	ShardAllocationMember *members = palloc0(Max(n, 1) * sizeof(ShardAllocationMember));
	int32 *nodes = palloc(Max(n, 1) * sizeof(int32));

	check_number_of_nodes(n, &root);
	for (int i = 0; i < n; i++)
	{
		ShardAllocationMember *member = &members[plan->view.n_members];

		if (read_member(plan, &elements[i], member))
			plan->view.n_members++;
		nodes[i] = member->node;
		for (int k = 0; k < i; k++)
			if (nodes[k] == nodes[i])
				refuse_twice("node", nodes[i], &root);
	}
	plan->view.members = members;
}

static int
compare_int32(const void *a, const void *b)
{
	int32 first = *(const int32 *) a;
	int32 second = *(const int32 *) b;

	return first < second ? -1 : first > second;
}

/*
 * The most shards, each for each node, of a plan. A strategy looks at each node for each shard that moves, and hears no
 * interrupt meanwhile: this many looks take about a tenth of a second.
 */
#define MAX_LOOKS 20000000

/* Error if a shard is given twice, on whatever nodes, or there are too many to be planned with. */
static void
check_shards(const ShardPlanAllocation *plan, const ShardPlanValue *root)
{
	int n = 0;
	int32 *shards;

	for (int i = 0; i < plan->view.n_regions; i++)
		n += plan->view.regions[i].n_shards;
	if ((int64) n * plan->view.n_regions > MAX_LOOKS)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("too many shards in %s", shard_plan_json_path(root)),
						errdetail("There are %d shards at %d nodes; one times the other may be "
								  "%d at most.",
								  n, plan->view.n_regions, MAX_LOOKS)));
	shards = palloc(Max(n, 1) * sizeof(int32));
	n = 0;
	for (int i = 0; i < plan->view.n_regions; i++)
		for (int k = 0; k < plan->view.regions[i].n_shards; k++)
			shards[n++] = plan->view.regions[i].shards[k];
	qsort(shards, n, sizeof(int32), compare_int32);
	for (int i = 1; i < n; i++)
		if (shards[i] == shards[i - 1])
			refuse_twice("shard", shards[i], root);
}

/* Regions in the order of the object's keys. */
static void
read_regions(ShardPlanAllocation *plan, Jsonb *json)
{
	ShardPlanValue root = shard_plan_json_root(json, "allocations");
	ShardPlanValue *fields;
	int n = shard_plan_json_fields(&root, &fields);
	ShardAllocationRegion *regions = palloc(Max(n, 1) * sizeof(ShardAllocationRegion));

	check_number_of_nodes(n, &root);
	for (int i = 0; i < n; i++)
	{
		ShardPlanValue *elements;
		int32 *shards;

		regions[i].node = shard_plan_json_int_key(&fields[i], 1, PG_INT32_MAX);
		regions[i].n_shards = shard_plan_json_elements(&fields[i], &elements);
		shards = palloc(Max(regions[i].n_shards, 1) * sizeof(int32));
		for (int k = 0; k < regions[i].n_shards; k++)
			shards[k] = shard_plan_json_int(&elements[k], 0, SHARD_MAX_SHARDS - 1);
		regions[i].shards = shards;
	}
	plan->view.n_regions = n;
	plan->view.regions = regions;
	check_shards(plan, &root);
}

/* Without members, every region's node is one, and has whatever role is wanted. */
static void
assume_members(ShardPlanAllocation *plan)
{
	ShardAllocationMember *members =
		palloc(Max(plan->view.n_regions, 1) * sizeof(ShardAllocationMember));

	for (int i = 0; i < plan->view.n_regions; i++)
		members[i] = default_member(plan->view.regions[i].node);
	plan->view.n_members = plan->view.n_regions;
	plan->view.members = members;
}

/* With members, their order is the order of registration; a node that is no member has no region. */
static void
order_regions(ShardPlanAllocation *plan)
{
	const ShardAllocationRegion *given = plan->view.regions;
	ShardAllocationRegion *ordered =
		palloc(Max(plan->view.n_regions, 1) * sizeof(ShardAllocationRegion));
	int n = 0;

	for (int i = 0; i < plan->view.n_members; i++)
		for (int k = 0; k < plan->view.n_regions; k++)
			if (given[k].node == plan->view.members[i].node)
				ordered[n++] = given[k];
	plan->view.n_regions = n;
	plan->view.regions = ordered;
}

/* Reads allocations, strategy, settings, members, which begin at argument n. */
static ShardPlanAllocation *
read_plan(FunctionCallInfo fcinfo, int n)
{
	ShardPlanAllocation *plan = palloc0(sizeof(ShardPlanAllocation));

	shard_argument_check(fcinfo, n, "argument \"allocations\" must not be null");
	plan->settings = shard_allocation_defaults(read_kind(fcinfo, n + 1));
	plan->view.pin = find_pin;
	plan->view.pin_arg = plan;
	read_settings(plan, PG_ARGISNULL(n + 2) ? NULL : PG_GETARG_JSONB_P(n + 2));
	read_regions(plan, PG_GETARG_JSONB_P(n));
	if (PG_ARGISNULL(n + 3))
		assume_members(plan);
	else
	{
		read_members(plan, PG_GETARG_JSONB_P(n + 3));
		order_regions(plan);
	}
	return plan;
}

/* Error for a number of a shard that cannot be one. */
static void
check_shard(int32 shard, const char *argument)
{
	if (shard < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid value in %s", argument),
				 errdetail("It must be an integer from %d to %d.", 0, PG_INT32_MAX)));
}

/* The elements of an array of shards; NULL is none. */
static int
read_in_progress(FunctionCallInfo fcinfo, int n, int32 **shards)
{
	Datum *elements;
	bool *nulls;
	int count;

	*shards = NULL;
	if (PG_ARGISNULL(n))
		return 0;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(n), INT4OID, sizeof(int32), true, TYPALIGN_INT,
					  &elements, &nulls, &count);
	*shards = palloc(Max(count, 1) * sizeof(int32));
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("argument \"in_progress\" must not contain nulls")));
		(*shards)[i] = DatumGetInt32(elements[i]);
		check_shard((*shards)[i], "in_progress");
	}
	return count;
}

/*
 * shard_plan_rebalance(allocations jsonb, strategy text, settings jsonb, members jsonb,
 * in_progress int[]) returns table (shard int, from_node int)
 */
Datum
shard_plan_rebalance(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ShardPlanAllocation *plan = read_plan(fcinfo, 0);
	int32 *in_progress;
	int n_in_progress = read_in_progress(fcinfo, 4, &in_progress);
	ShardAllocationMove *moves;
	int n_moves;

	moves = shard_allocation_rebalance(&plan->settings, &plan->view, in_progress, n_in_progress,
									   &n_moves);
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < n_moves; i++)
	{
		Datum values[2] = {Int32GetDatum(moves[i].shard), Int32GetDatum(moves[i].from)};
		bool nulls[2] = {false, false};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * shard_plan_allocation(shard int, requester int, allocations jsonb, strategy text, settings jsonb,
 * members jsonb) returns int
 */
Datum
shard_plan_allocation(PG_FUNCTION_ARGS)
{
	ShardPlanAllocation *plan;
	int32 home;

	shard_argument_check(fcinfo, 0, "argument \"shard\" must not be null");
	check_shard(PG_GETARG_INT32(0), "shard");
	plan = read_plan(fcinfo, 2);
	home = shard_allocation_allocate(&plan->settings, &plan->view, PG_GETARG_INT32(0),
									 PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1));
	if (home == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT32(home);
}

/* A hash by name. */
static ShardHashKind
read_hash(const char *name)
{
	if (strcmp(name, "murmur2") == 0)
		return SHARD_HASH_MURMUR2;
	if (strcmp(name, "java") == 0)
		return SHARD_HASH_JAVA;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("hash \"%s\" does not exist", name),
			 errhint("Hashes are: \"murmur2\", \"java\".")));
}

/* shard_shard_id(entity_id text, number_of_shards int, hash text) returns int; strict */
Datum
shard_plan_shard_id(PG_FUNCTION_ARGS)
{
	text *id = PG_GETARG_TEXT_PP(0);
	int32 number_of_shards = PG_GETARG_INT32(1);
	ShardHashKind hash = read_hash(text_to_cstring(PG_GETARG_TEXT_PP(2)));

	if (number_of_shards < 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid value in number_of_shards"),
						errdetail("It must be an integer from %d to %d.", 1, PG_INT32_MAX)));
	PG_RETURN_INT32(
		shard_registry_hash_id(hash, VARDATA_ANY(id), VARSIZE_ANY_EXHDR(id), number_of_shards));
}
