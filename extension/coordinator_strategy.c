/*
 * coordinator_strategy.c
 *		Allocation strategy "function": asks a type's own functions, in a backend of this node.
 *
 * User code never runs in this process: it is called over a connection of our own to this node's
 * registered address (shard_peer.strategy(), strategy.c), one question after the other. Whatever goes
 * wrong is an answer, too: the machine then takes the default strategy. Nothing is durable; if the process
 * dies, the next one asks anew.
 */
#include "postgres.h"

#include "lib/ilist.h"
#include "utils/json.h"
#include "utils/memutils.h"

#include "coordinator_private.h"
#include "peer.h"
#include "strategy_call.h"

#include "compat.h"

/* More than the statement may take there. */
#define CALL_TIMEOUT_MS 8000

/* No connection in this time: there is no answer. */
#define PATIENCE (10 * SHARD_SECOND)

typedef struct Question
{
	dlist_node link;
	int64 token;
	int32 type_id;
	bool rebalance;
	bool sent;
	int64 since;
	int n_shards; /* of allocate */
	int32 *shards;
	StringInfoData bytes;
} Question;

static dlist_head questions = DLIST_STATIC_INIT(questions); /* oldest first */
static ShardPeer *peer = NULL;

static void
forget(Question *question)
{
	dlist_delete(&question->link);
	pfree(question->bytes.data);
	pfree(question->shards);
	pfree(question);
}

void
shard_coordinator_strategy_forget(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &questions)
		forget(dlist_container(Question, link, iter.cur));
	if (peer != NULL)
		shard_peer_close(peer, false);
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
answer(Question *question, const int32 *numbers, int n, const char *why)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_STRATEGY,
							.number = question->token,
							.flag = question->rebalance,
							.text = why};
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
	shard_coordinator_event(&event);
}

void
shard_coordinator_strategy(const ShardAction *action)
{
	const ShardStrategyCall *call = action->strategy;
	ShardStrategyQuestion out = {.secret = shard_plane_secret(shard_coordinator.db),
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

		if (!former->sent && former->type_id == action->shard.type_id)
			forget(former);
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	question = palloc0(sizeof(Question));

	question->token = action->token;
	question->type_id = action->shard.type_id;
	question->rebalance = call->rebalance;
	question->since = shard_plane_now();
	question->n_shards = call->n_shards;
	question->shards = palloc(sizeof(int32) * Max(call->n_shards, 1));
	if (call->n_shards > 0)
		memcpy(question->shards, call->shards, sizeof(int32) * call->n_shards);
	initStringInfo(&question->bytes);
	shard_strategy_put_question(&question->bytes, &out);
	dlist_push_tail(&questions, &question->link);
	MemoryContextSwitchTo(old);
}

/* ---- the answer ------------------------------------------------------------------------------- */

static void
take_answer(Question *question)
{
	ShardStrategyAnswer got = {0};
	int length;
	const char *bytes = shard_peer_answer(peer, &length);
	ShardReader reader = {bytes, bytes + (bytes ? length : 0), false};

	if (bytes == NULL || !shard_strategy_get_answer(&reader, &got))
		got = (ShardStrategyAnswer){.error = "the answer could not be read"};
	answer(question, got.numbers, got.n, got.error);
}

/*
 * Where this node is to be reached: by itself, too.
 */
static void
connect(void)
{
	if (peer == NULL)
	{
		peer = shard_peer_create("strategy");
		shard_peer_limit_backoff(peer, 1000);
	}
	if (shard_peer_state(peer) == SHARD_PEER_CLOSED && shard_coordinator.row.dsn[0] != '\0')
		(void) shard_peer_open(peer, shard_coordinator.row.dsn);
}

/*
 * Brings the oldest question forward. True: something came.
 */
bool
shard_coordinator_strategy_run(void)
{
	Question *question;
	ShardPeerEvent event;
	const char *why;

	if (dlist_is_empty(&questions))
		return false;
	question = dlist_head_element(Question, link, &questions);
	connect();
	while ((event = shard_peer_poll(peer)) != SHARD_PEER_NOTHING)
	{
		if (event == SHARD_PEER_OPENED)
			continue;
		if (!question->sent)
			return true; /* it could not be connected: tried again while there is patience */
		if (event == SHARD_PEER_ANSWER)
			take_answer(question);
		else
		{
			(void) shard_peer_error(peer, &why);
			answer(question, NULL, 0, pstrdup(why));
		}
		return true;
	}
	if (question->sent)
		return false;
	if (shard_peer_state(peer) == SHARD_PEER_READY)
	{
		question->sent = true;
		shard_peer_call(peer, "strategy", question->bytes.data, question->bytes.len,
						CALL_TIMEOUT_MS);
	}
	else if (shard_coordinator.row.dsn[0] == '\0')
		answer(question, NULL, 0, "this node has no address at which it could ask its functions");
	else if (shard_plane_now() - question->since > PATIENCE)
		answer(question, NULL, 0, "the coordinator's node cannot connect to its own address");
	else
		return false;
	return true;
}
