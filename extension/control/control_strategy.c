/*
 * control/control_strategy.c
 *		Allocation strategy "function": asks a type's own functions, in a backend of this node.
 *
 * User code never runs in this process: it is called over the control worker's own connections to this node's
 * registered address (shard_peer.strategy(), strategy.c). A few questions are asked at the same time, but of each owner
 * of types only one: an owner with slow functions makes no other owner wait. A backend that was given up, by this
 * process or one before it, and still is there counts as asked. Whatever goes wrong is an answer, too: the machine then
 * takes the default strategy. Nothing is durable; if the process dies, the next one asks again.
 */
#include "postgres.h"

#include "lib/ilist.h"
#include "miscadmin.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "control/control_private.h"
#include "link/pool.h"
#include "link/strategy_call.h"
#include "shared/visitor.h"

#include "base/compat.h"

/* More than the statement may take there. */
#define CALL_TIMEOUT_MS 8000

/* No connection in this time from when it was its turn: there is no answer. */
#define PATIENCE (10 * SHARD_SECOND)

/* Its turn has not come in this time: it will not be asked. */
#define LONGEST_WAIT (20 * SHARD_SECOND)

StaticAssertDecl(LONGEST_WAIT + PATIENCE + CALL_TIMEOUT_MS * SHARD_MS < SHARD_STRATEGY_TIMEOUT,
				 "the machine waits longer than all of it takes together");

/* The connection leads to this node itself, and the machine waits for the answer. */
#define LONGEST_BACKOFF_MS 1000

/* Questions that are asked at the same time. */
#define MAX_ASKED 4

typedef struct Question
{
	dlist_node link;
	ShardPoolCall call;
	int64 token;
	int32 type_id;
	Oid owner; /* of the type; 0: not looked at, or unknown */
	bool rebalance;
	int64 since;  /* it waits for its turn; then: it is its turn */
	int n_shards; /* of allocate */
	int32 *shards;
	StringInfoData bytes;
} Question;

static void take_answer(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer);
static void take_failure(ShardPool *pool, ShardPoolCall *call, const ShardPeer *peer);

/* A question may wait for its connection: this file itself gives up the one that waits too long. */
static const ShardPoolUse use = {.purpose = "strategy",
								 .most = MAX_ASKED,
								 .longest_backoff_ms = LONGEST_BACKOFF_MS,
								 .patient = true,
								 .answered = take_answer,
								 .failed = take_failure};

static ShardPool pool = {.use = &use};
static dlist_head questions = DLIST_STATIC_INIT(questions); /* oldest first */

/* Does it wait for its turn? */
static bool
is_queued(const Question *question)
{
	return question->call.link == NULL;
}

static void
forget(Question *question)
{
	shard_pool_cancel(&question->call);
	dlist_delete(&question->link);
	pfree(question->bytes.data);
	pfree(question->shards);
	pfree(question);
}

void
shard_control_strategy_forget(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &questions)
		forget(dlist_container(Question, link, iter.cur));
	shard_pool_forget(&pool);
}

/* ---- the question ----------------------------------------------------------------------------- */

static void
put_member(StringInfo out, const ShardAllocationMember *member)
{
	static const char *const statuses[] = {[SHARD_ALLOCATION_JOINING] = "joining",
										   [SHARD_ALLOCATION_STAYING] = "up",
										   [SHARD_ALLOCATION_LEAVING] = "leaving"};

	appendStringInfo(out, "%s{\"node\": %d, \"status\": \"%s\", \"reachable\": %s, \"weight\": ",
					 out->len > 1 ? ", " : "", member->node, statuses[member->stage],
					 member->reachable ? "true" : "false");
	appendStringInfo(out,
					 "%d.%03d, \"app_version\": ", member->weight / SHARD_ALLOCATION_WEIGHT_ONE,
					 member->weight % SHARD_ALLOCATION_WEIGHT_ONE);
	escape_json(out, member->app_version ? member->app_version : "");
	appendStringInfoChar(out, '}');
}

/*
 * Members that may host the type, in the order in which their regions registered: what the planners take
 * for the order between equals.
 */
static char *
members_of(const ShardAllocationView *view)
{
	StringInfoData out;

	initStringInfo(&out);
	appendStringInfoChar(&out, '[');
	for (int region = 0; region < view->n_regions; region++)
		for (int i = 0; i < view->n_members; i++)
			if (view->members[i].node == view->regions[region].node && view->members[i].suitable)
				put_member(&out, &view->members[i]);
	appendStringInfoChar(&out, ']');
	return out.data;
}

static void
answer(Question *question, const int32 *numbers, int n, const char *why, int sqlstate)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_STRATEGY,
							.number = question->token,
							.flag = question->rebalance,
							.text = why,
							.node = sqlstate};
	ShardShardRef *shards;
	const int32 *asked = question->rebalance ? numbers : question->shards;

	if (why == NULL && !question->rebalance && n != question->n_shards)
		event.text = "the answer has another number of shards";
	event.n_shards = event.text != NULL ? 0 : n;
	shards = palloc0(sizeof(ShardShardRef) * Max(event.n_shards, 1));
	for (int i = 0; i < event.n_shards; i++)
		shards[i] = (ShardShardRef){question->type_id, asked[i], 0, 0};
	event.shards = shards;
	event.n_nodes = question->rebalance ? 0 : event.n_shards;
	event.nodes = numbers;
	forget(question);
	shard_control_event(&event);
}

void
shard_control_strategy(const ShardAction *action)
{
	const ShardStrategyCall *call = action->strategy;
	ShardStrategyQuestion out = {.secret = shard_board_secret(shard_control.db),
								 .type_id = action->shard.type_id,
								 .rebalance = call->rebalance,
								 .n_regions = call->view->n_regions,
								 .regions =
									 unconstify(ShardAllocationRegion *, call->view->regions),
								 .members = members_of(call->view),
								 .n_shards = call->n_shards,
								 .shards = unconstify(int32 *, call->shards),
								 .requesters = unconstify(int32 *, call->requesters)};
	MemoryContext old;
	Question *question;
	dlist_mutable_iter iter;

	/* The core has one question of a type open: an older one that waits still is answered in vain. */
	dlist_foreach_modify (iter, &questions)
	{
		Question *former = dlist_container(Question, link, iter.cur);

		if (former->type_id == action->shard.type_id && is_queued(former))
			forget(former);
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	question = palloc0(sizeof(Question));

	question->token = action->token;
	question->type_id = action->shard.type_id;
	question->rebalance = call->rebalance;
	question->since = shard_clock_now();
	question->n_shards = call->n_shards;
	question->shards = palloc(sizeof(int32) * Max(call->n_shards, 1));
	if (call->n_shards > 0)
		memcpy(question->shards, call->shards, sizeof(int32) * call->n_shards);
	initStringInfo(&question->bytes);
	shard_strategy_put_question(&question->bytes, &out);
	dlist_push_tail(&questions, &question->link);
	MemoryContextSwitchTo(old);
}

/* ---- turns ------------------------------------------------------------------------------------ */

/*
 * The backend that runs functions of that owner; false: there is none.
 */
static bool
find_run(Oid owner, ShardVisitorRun *run)
{
	int at = 0;

	while (shard_visitor_next_run(MyDatabaseId, &at, run))
		if (run->owner == owner)
			return true;
	return false;
}

/*
 * Is a question of that owner being asked?
 */
static bool
is_asked(Oid owner)
{
	ShardVisitorRun run;
	dlist_iter iter;

	dlist_foreach (iter, &questions)
	{
		const Question *question = dlist_container(Question, link, iter.cur);

		if (!is_queued(question) && question->owner == owner)
			return true;
	}
	return find_run(owner, &run);
}

/*
 * Why a question is not to be asked any more; NULL: it waits, or is being asked.
 */
static const char *
why_not(const Question *question, int *sqlstate)
{
	ShardVisitorRun run;

	if (!is_queued(question))
		return NULL;
	if (shard_clock_now() - question->since > LONGEST_WAIT)
		return "functions of other types took too long before it";
	if (OidIsValid(question->owner) && find_run(question->owner, &run) &&
		TimestampDifferenceExceeds(run.since, GetCurrentTimestamp(), CALL_TIMEOUT_MS))
	{
		*sqlstate = ERRCODE_OBJECT_IN_USE;
		return psprintf("process %d still runs functions of the same owner, of an earlier question",
						run.pid);
	}
	return NULL;
}

/*
 * The next question for a free connection, NULL: none.
 */
static Question *
next_question(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &questions)
	{
		Question *question = dlist_container(Question, link, iter.cur);

		if (!is_queued(question))
			continue;
		if (!OidIsValid(question->owner))
			question->owner = shard_control_owner_of(question->type_id);
		if (!is_asked(question->owner))
			return question;
	}
	return NULL;
}

/*
 * A question that has waited for too long, or whose owner's functions do not end, is not asked any more. True: there
 * was one.
 */
static bool
end_late(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &questions)
	{
		Question *question = dlist_container(Question, link, iter.cur);

		int sqlstate = 0;
		const char *why = why_not(question, &sqlstate);

		if (why != NULL)
		{
			answer(question, NULL, 0, why, sqlstate);
			return true;
		}
	}
	return false;
}

/* ---- the answer ------------------------------------------------------------------------------- */

static void
take_answer(ShardPool *of, ShardPoolCall *call, const ShardPeer *peer)
{
	ShardStrategyAnswer got = {0};
	int length;
	const char *bytes = shard_peer_answer(peer, &length);
	ShardReader reader = {bytes, bytes + (bytes ? length : 0), false};

	if (bytes == NULL || !shard_strategy_get_answer(&reader, &got))
		got = (ShardStrategyAnswer){.error = "the answer could not be read"};
	answer(shard_pool_container(Question, call, call), got.numbers, got.n, got.error, got.sqlstate);
}

static void
take_failure(ShardPool *of, ShardPoolCall *call, const ShardPeer *peer)
{
	const char *why;

	(void) shard_peer_error(peer, &why);
	if (call != NULL)
		answer(shard_pool_container(Question, call, call), NULL, 0, pstrdup(why), 0);
}

/* ---- asking ----------------------------------------------------------------------------------- */

/* Sends what has a connection. True: there was something. */
static bool
send_ready(void)
{
	ShardPoolCall *call;
	bool any = false;

	while ((call = shard_pool_next(&pool)) != NULL)
	{
		shard_pool_send(&pool, call, "strategy", &shard_pool_container(Question, call, call)->bytes,
						CALL_TIMEOUT_MS);
		any = true;
	}
	return any;
}

/* A question that comes next, and gets no connection, is not asked any more. True: there was one. */
static bool
end_unreached(const char *why, int64 since)
{
	dlist_iter iter;

	dlist_foreach (iter, &questions)
	{
		Question *question = dlist_container(Question, link, iter.cur);

		if (is_queued(question) || question->call.sent || question->since > since)
			continue;
		answer(question, NULL, 0, why, 0);
		return true;
	}
	return false;
}

/* Asks the questions that come next at this node's own address. True: something was done. */
static bool
ask(void)
{
	int32 node = shard_node_id(shard_control.node);
	const char *dsn = shard_control_link_address(node);
	bool any;

	if (dsn[0] == '\0')
		return end_unreached(psprintf("node %d has no address at which it could ask its functions",
									  node),
							 PG_INT64_MAX);
	shard_pool_open(&pool, dsn, 0, 0);
	any = send_ready();
	return end_unreached("the coordinator's node cannot connect to its own address",
						 shard_clock_now() - PATIENCE) ||
		   any;
}

/*
 * Brings the questions forward. True: something came.
 */
bool
shard_control_strategy_run(void)
{
	bool any = end_late();
	Question *question;

	if (shard_pool_poll(&pool))
		any = true;
	while ((question = next_question()) != NULL && shard_pool_reserve(&pool, &question->call))
		question->since = shard_clock_now();
	return (!dlist_is_empty(&questions) && ask()) || any;
}
