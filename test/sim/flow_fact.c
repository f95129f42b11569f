/*
 * flow_fact.c
 *		Decided homes: what the control plane has told, and what other nodes say beside it (T6).
 */
#include "flow_private.h"

/*
 * flow.c
 *		The data plane of one node: its life, its processes, its clients, what waits for the gate.
 */
#include "flow_private.h"

#include "core/base/message.h"

/*
 * flow_link.c
 *		Between nodes: pushing outboxes, receiving, acknowledging, announcing (X1-X6).
 *
 * A call may be lost, repeated, late, or carried out long after its sender gave it up: nothing of the
 * network is trusted, and the numbers of connections serve only to match answers.
 */
#include "flow_private.h"

/*
 * flow_turn.c
 *		A region worker's turn: one transaction over its lanes, in steps (D4-D7, W3).
 *
 * The order is the product's: senders that ended since they were met, stashed messages that are due,
 * parked ones that can go on, then the log forward. A turn is bounded, so it may end in the middle of
 * any of them; what is to be seen of the log is fixed when it begins.
 */
#include "flow_turn.h"

#include "core/flow/fact.h"

/* What the control plane has said of a shard; NULL: nothing. */
static const FactItem *
find_learned(const Flow *flow, int32 type_id, int32 shard)
{
	for (int i = 0; i < flow->n_learned; i++)
	{
		if (flow->learned[i].type_id == type_id && flow->learned[i].shard == shard)
			return &flow->learned[i];
	}
	return NULL;
}

/* The control plane says where a shard lives. */
void
flow_learned(Flow *flow, const FactItem *fact)
{
	FactItem *known = unconstify(FactItem *, find_learned(flow, fact->type_id, fact->shard));

	if (known == NULL)
	{
		if (flow->n_learned == flow->learned_space)
		{
			flow->learned_space = Max(32, flow->learned_space * 2);
			flow->learned = pg_realloc(flow->learned, flow->learned_space * sizeof(FactItem));
		}
		known = &flow->learned[flow->n_learned++];
		*known = *fact;
	}
	if (known->n <= fact->n)
		*known = *fact;
}

int32
flow_era(const Flow *flow)
{
	return flow->host.era != NULL ? flow->host.era(flow->host.context) : 0;
}

/* What another node says; here each shard is learned by itself, so that its entry says how far. */
static ShardFactVerdict
judge(const Flow *flow, const FactItem *item)
{
	const FactItem *known = find_learned(flow, item->type_id, item->shard);
	ShardFactLearned learned = {.upto_n = known ? known->n : 0,
								.era = flow_era(flow),
								.n = known ? known->n : -1};
	ShardFact fact = {.type_id = item->type_id,
					  .shard = item->shard,
					  .n = item->n,
					  .node = shard_record_home_node(&item->home),
					  .epoch = item->home.epoch,
					  .lost = item->home.lost};

	if (known != NULL)
		learned.home = known->home;
	return shard_fact_judge(&fact, &learned);
}

bool
flow_fact_is_learned(const Flow *flow, FactItem *fact)
{
	const FactItem *known = find_learned(flow, fact->type_id, fact->shard);

	if (judge(flow, fact) != SHARD_FACT_LEARNED)
		return false;
	/* who tells it may know nothing of the move, or lie about it */
	if (known != NULL)
		fact->home.move_id = known->home.move_id;
	return true;
}

bool
flow_facts_are_ahead(const Flow *flow, const Letter *letter)
{
	/* nothing of its era is known here */
	if (letter->head.era > flow_era(flow))
		return true;
	for (int i = 0; i < letter->head.n_facts; i++)
	{
		if (judge(flow, &letter->facts[i]) == SHARD_FACT_AHEAD)
			return true;
	}
	return false;
}

/* A node of the cluster says to another one of a shard's home what was never decided. */
void
flow_lie(Flow *flow, int32 to, int32 type_id, int32 shard, int32 node, int64 n)
{
	const RouteRow *route = store_get(flow->store, NULL, T_ROUTE, KEY(type_id, shard));
	Letter *letter = &flow->scratch;
	FactItem *fact = &letter->facts[0];

	memset(&letter->head, 0, sizeof(Datagram));
	letter->head.kind = D_NOTE;
	letter->head.n_facts = 1;
	memset(fact, 0, sizeof(*fact));
	fact->type_id = type_id;
	fact->shard = shard;
	fact->n = n;
	fact->home.epoch = (route != NULL ? route->epoch : 0) + 1;
	fact->home.n_nodes = 1;
	fact->home.nodes[0] = node;
	link_send(flow, to, letter);
}

/* Learn a decided home: it is applied by the next turn of its lane. */
void
flow_learn(Flow *flow, const FactItem *fact)
{
	if (!flow->up)
		return;
	for (int i = 0; i < flow->n_facts; i++)
	{
		const FactItem *known = &flow->facts[i];

		if (known->type_id == fact->type_id && known->shard == fact->shard && known->n == fact->n)
			return;
	}
	if (flow->n_facts == flow->fact_space)
	{
		flow->fact_space = Max(32, flow->fact_space * 2);
		flow->facts = pg_realloc(flow->facts, flow->fact_space * sizeof(FactItem));
	}
	flow->facts[flow->n_facts] = *fact;
	flow->facts[flow->n_facts].taken = false;
	flow->facts[flow->n_facts].seq = flow->seq;
	flow->n_facts++;
	flow_poke(flow);
}

void
flow_fact(Flow *flow, int32 type_id, int32 shard, const ShardHomeRecord *home, int64 n)
{
	FactItem fact = {.type_id = type_id, .shard = shard, .n = n, .home = *home};
	const RouteRow *route;

	if (!flow->up)
		return;
	flow_learned(flow, &fact);
	route = store_get(flow->store, NULL, T_ROUTE, KEY(type_id, shard));
	if (route == NULL || route->n < n)
		flow_learn(flow, &fact);
}
