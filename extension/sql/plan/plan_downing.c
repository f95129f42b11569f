/*
 * sql/plan/plan_downing.c
 *		shard_plan_downing: what a downing strategy would do with a view of the membership.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "core/member/downing.h"
#include "base/plan_json.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_plan_downing);

/* What status a member's name for it means. */
static const char *const status_names[] = {"joining", "weakly_up", "up", "leaving",
										   "exiting", "down",	   NULL};
static const ShardMemberStatus statuses[] = {SHARD_MEMBER_JOINING, SHARD_MEMBER_WEAKLY_UP,
											 SHARD_MEMBER_UP,	   SHARD_MEMBER_LEAVING,
											 SHARD_MEMBER_EXITING, SHARD_MEMBER_DOWN};

/* A request, as far as it is read. */
typedef struct Request
{
	ShardDowningSettings settings;
	char *role; /* that counts; NULL: any */
	ShardDowningView view;
} Request;

/* The settings of a strategy, a list that NULL ends. */
static const char *const *
settings_of(ShardDowningKind kind)
{
	static const char *const none[] = {NULL};
	static const char *const quorum[] = {"quorum_size", "role", NULL};
	static const char *const role[] = {"role", NULL};
	static const char *const oldest[] = {"role", "down_if_alone", NULL};

	switch (kind)
	{
		case SHARD_DOWNING_STATIC_QUORUM:
			return quorum;
		case SHARD_DOWNING_KEEP_OLDEST:
			return oldest;
		case SHARD_DOWNING_KEEP_MAJORITY:
			return role;
		default:
			return none;
	}
}

/* The strategy of a name; an error that lists them all if there is none. */
static ShardDowningKind
read_strategy(const char *name)
{
	const char *names[SHARD_DOWNING_KINDS + 1] = {NULL};

	for (int kind = 0; kind < SHARD_DOWNING_KINDS; kind++)
	{
		names[kind] = shard_downing_name(kind);
		if (strcmp(name, names[kind]) == 0)
			return kind;
	}
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("downing strategy \"%s\" does not exist", name),
					errhint("Downing strategies are: %s.", shard_plan_json_list(names))));
}

/* Read the settings of the request's strategy; others are errors. */
static void
read_settings(const ShardPlanValue *argument, Request *request)
{
	ShardDowningKind kind = request->settings.kind;
	const char *const *known = settings_of(kind);
	ShardPlanValue *fields;
	int n_fields = shard_plan_json_fields(argument, &fields);
	const ShardPlanValue *field;

	if (n_fields > 0 && known[0] == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown name \"%s\" in %s", fields[0].name,
						shard_plan_json_path(argument)),
				 errhint("Downing strategy \"%s\" has no settings.", shard_downing_name(kind))));
	shard_plan_json_allow(fields, n_fields, known);

	if (kind == SHARD_DOWNING_STATIC_QUORUM)
		request->settings.quorum_size =
			shard_plan_json_int(shard_plan_json_need(argument, fields, n_fields, "quorum_size"), 1,
								PG_INT32_MAX);
	field = shard_plan_json_find(fields, n_fields, "down_if_alone");
	if (field != NULL)
		request->settings.down_if_alone = shard_plan_json_bool(field);
	field = shard_plan_json_find(fields, n_fields, "role");
	if (field != NULL)
		request->role = shard_plan_json_text(field);
	if (request->role != NULL && request->role[0] == '\0')
		request->role = NULL;
}

/* Whether a member counts: it has the role, or none is asked for. */
static bool
read_roles(const ShardPlanValue *roles, const char *role)
{
	char **names;
	int n = roles != NULL ? shard_plan_json_texts(roles, &names) : 0;

	for (int i = 0; role != NULL && i < n; i++)
		if (strcmp(names[i], role) == 0)
			return true;
	return role == NULL;
}

/* Place of a node in the view, -1 if it is not a member. */
static int
find_member(const ShardDowningView *view, int32 node)
{
	for (int i = 0; i < view->n_members; i++)
		if (view->members[i].node == node)
			return i;
	return -1;
}

/* Read one member into the next place of the view. */
static void
read_member(const ShardPlanValue *value, Request *request)
{
	static const char *const known[] = {"node",	 "age",	 "status", "reachable",
										"roles", "seen", NULL};
	ShardDowningMember *member = &request->view.members[request->view.n_members];
	ShardPlanValue *fields;
	int n_fields = shard_plan_json_fields(value, &fields);
	const ShardPlanValue *node;
	const ShardPlanValue *age;
	const ShardPlanValue *status;
	const ShardPlanValue *reachable;
	const ShardPlanValue *seen;

	shard_plan_json_allow(fields, n_fields, known);
	node = shard_plan_json_need(value, fields, n_fields, "node");
	age = request->settings.kind == SHARD_DOWNING_KEEP_OLDEST
			  ? shard_plan_json_need(value, fields, n_fields, "age")
			  : shard_plan_json_find(fields, n_fields, "age");
	status = shard_plan_json_find(fields, n_fields, "status");
	reachable = shard_plan_json_find(fields, n_fields, "reachable");
	seen = shard_plan_json_find(fields, n_fields, "seen");

	member->node = shard_plan_json_int(node, 1, PG_INT32_MAX);
	if (find_member(&request->view, member->node) >= 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid value in %s", shard_plan_json_path(node)),
						errdetail("Node %d is there twice.", member->node)));
	member->age = age != NULL ? shard_plan_json_int(age, 0, PG_INT32_MAX) : 0;
	member->status =
		status != NULL ? statuses[shard_plan_json_choice(status, status_names)] : SHARD_MEMBER_UP;
	member->reachable = reachable == NULL || shard_plan_json_bool(reachable);
	member->seen = seen != NULL ? shard_plan_json_bool(seen) : member->reachable;
	member->in_role = read_roles(shard_plan_json_find(fields, n_fields, "roles"), request->role);
	request->view.n_members++;
}

/* Read all members. */
static void
read_members(const ShardPlanValue *argument, Request *request)
{
	ShardPlanValue *elements;
	int n = shard_plan_json_elements(argument, &elements);

	if (n > SHARD_DOWNING_MAX_MEMBERS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("too many members in %s", shard_plan_json_path(argument)),
				 errdetail("There are %d, and at most %d can be.", n, SHARD_DOWNING_MAX_MEMBERS)));
	for (int i = 0; i < n; i++)
		read_member(&elements[i], request);
}

/* The place of a node that must be a member. */
static int
read_node(const ShardPlanValue *value, const ShardDowningView *view)
{
	int32 node = shard_plan_json_int(value, 1, PG_INT32_MAX);
	int place = find_member(view, node);

	if (place < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid value in %s", shard_plan_json_path(value)),
						errdetail("Node %d is not a member.", node),
						errhint("Give every node that is named in the view an entry in "
								"\"members\".")));
	return place;
}

/* Reads which nodes report which: a list of pairs, observer and subject. */
static void
read_reports(const ShardPlanValue *argument, ShardDowningView *view)
{
	ShardPlanValue *reports;
	int n = shard_plan_json_elements(argument, &reports);

	for (int i = 0; i < n; i++)
	{
		ShardPlanValue *pair;
		int n_pair = shard_plan_json_elements(&reports[i], &pair);
		int observer = n_pair == 2 ? read_node(&pair[0], view) : -1;
		int subject = n_pair == 2 ? read_node(&pair[1], view) : -1;

		if (observer == subject)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid value in %s", shard_plan_json_path(&reports[i])),
					 errdetail("It must be two different nodes: the one that reports, and the "
							   "one that it cannot reach.")));
		view->members[subject].unreachable_by |= UINT64CONST(1) << observer;
	}
}

/* Read the view, members first since the rest names them. */
static void
read_view(const ShardPlanValue *argument, Request *request)
{
	static const char *const known[] = {"self", "members", "unreachable_by", NULL};
	ShardDowningView *view = &request->view;
	ShardPlanValue *fields;
	int n_fields = shard_plan_json_fields(argument, &fields);
	const ShardPlanValue *reports;
	const ShardPlanValue *self;

	shard_plan_json_allow(fields, n_fields, known);
	read_members(shard_plan_json_need(argument, fields, n_fields, "members"), request);

	self = shard_plan_json_need(argument, fields, n_fields, "self");
	view->self = read_node(self, view);
	if (!view->members[view->self].reachable)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid value in %s", shard_plan_json_path(self)),
						errdetail("Node %d is marked as unreachable, and a node can always reach "
								  "itself.",
								  view->members[view->self].node),
						errhint("If others cannot reach it say so in \"unreachable_by\".")));

	reports = shard_plan_json_find(fields, n_fields, "unreachable_by");
	if (reports != NULL)
		read_reports(reports, view);
}

static int
compare_nodes(const void *a, const void *b)
{
	int32 left = DatumGetInt32(*(const Datum *) a);
	int32 right = DatumGetInt32(*(const Datum *) b);

	return left < right ? -1 : left > right;
}

/* The nodes of a set of members, in rising order. */
static ArrayType *
array_of(const ShardDowningView *view, uint64 set)
{
	Datum nodes[SHARD_DOWNING_MAX_MEMBERS] = {0};
	int n = 0;

	for (int i = 0; i < view->n_members; i++)
		if ((set >> i & 1) != 0)
			nodes[n++] = Int32GetDatum(view->members[i].node);
	qsort(nodes, n, sizeof(Datum), compare_nodes);
	return construct_array(nodes, n, INT4OID, sizeof(int32), true, TYPALIGN_INT);
}

/* shard_plan_downing(view jsonb, strategy text, settings jsonb) returns int[] */
Datum
shard_plan_downing(PG_FUNCTION_ARGS)
{
	ShardPlanValue view = shard_plan_json_arg(0, "view");
	ShardPlanValue settings = shard_plan_json_arg(2, "settings");
	Request *request = palloc0(sizeof(Request));

	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("argument \"strategy\" must not be null")));
	request->settings =
		SHARD_DOWNING_DEFAULTS(read_strategy(text_to_cstring(PG_GETARG_TEXT_PP(1))));
	read_settings(&settings, request);
	read_view(&view, request);
	PG_RETURN_ARRAYTYPE_P(
		array_of(&request->view, shard_downing_decide(&request->view, &request->settings)));
}
