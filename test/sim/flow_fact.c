/*
 * flow_fact.c
 *		Decided homes: what the control plane has told, and what other nodes say beside it (T6).
 */
#include "flow_private.h"

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
