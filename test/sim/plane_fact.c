/*
 * plane_fact.c
 *		Decided homes: what the control plane has told, and what other nodes say beside it (T6).
 */
#include "plane_private.h"

#include "core/flow/fact.h"

/* What the control plane has said of a shard; NULL: nothing. */
static const FactItem *
find_learned(const Plane *plane, int32 type_id, int32 shard)
{
	for (int i = 0; i < plane->n_learned; i++)
	{
		if (plane->learned[i].type_id == type_id && plane->learned[i].shard == shard)
			return &plane->learned[i];
	}
	return NULL;
}

/* The control plane says where a shard lives. */
void
plane_learned(Plane *plane, const FactItem *fact)
{
	FactItem *known = unconstify(FactItem *, find_learned(plane, fact->type_id, fact->shard));

	if (known == NULL)
	{
		if (plane->n_learned == plane->learned_space)
		{
			plane->learned_space = Max(32, plane->learned_space * 2);
			plane->learned = pg_realloc(plane->learned, plane->learned_space * sizeof(FactItem));
		}
		known = &plane->learned[plane->n_learned++];
		*known = *fact;
	}
	if (known->n <= fact->n)
		*known = *fact;
}

int32
plane_era(const Plane *plane)
{
	return plane->host.era != NULL ? plane->host.era(plane->host.context) : 0;
}

/* What another node says; here each shard is learned by itself, so that its entry says how far. */
static ShardFactVerdict
judge(const Plane *plane, const FactItem *item)
{
	const FactItem *known = find_learned(plane, item->type_id, item->shard);
	ShardFactLearned learned = {.upto_n = known ? known->n : 0,
								.era = plane_era(plane),
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
plane_fact_is_learned(const Plane *plane, FactItem *fact)
{
	const FactItem *known = find_learned(plane, fact->type_id, fact->shard);

	if (judge(plane, fact) != SHARD_FACT_LEARNED)
		return false;
	/* who tells it may know nothing of the move, or lie about it */
	if (known != NULL)
		fact->home.move_id = known->home.move_id;
	return true;
}

bool
plane_facts_are_ahead(const Plane *plane, const Letter *letter)
{
	/* nothing of its era is known here */
	if (letter->head.era > plane_era(plane))
		return true;
	for (int i = 0; i < letter->head.n_facts; i++)
	{
		if (judge(plane, &letter->facts[i]) == SHARD_FACT_AHEAD)
			return true;
	}
	return false;
}

/* A node of the cluster says to another one of a shard's home what was never decided. */
void
plane_lie(Plane *plane, int32 to, int32 type_id, int32 shard, int32 node, int64 n)
{
	const RouteRow *route = store_get(plane->store, NULL, T_ROUTE, KEY(type_id, shard));
	Letter *letter = &plane->scratch;
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
	link_send(plane, to, letter);
}
