/*
 * link/receive_fact.c
 *		Decided homes that another node tells with its call, beside what this node has learned (T6).
 *
 * The word of the caller is not believed. The map that this node has learned of the cluster says whether it is true;
 * what that does not reach yet comes a moment later from the coordinator, and the caller waits or comes again: rows
 * that are tagged with an epoch that is not known here could not be met (H3).
 *
 * Nothing is written here. If the process dies right here, nothing happened.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"

#include "registry/control_store.h"
#include "shared/link_trouble.h"
#include "base/peer_errors.h"
#include "link/receive.h"
#include "registry/security.h"
#include "base/damage.h"

#include "base/compat.h"

/* Troubles of links have their worker's number; what callers do has none. */
#define NO_WORKER (-1)

/* Names the node that tells what was not decided: once a minute in the log, and in shard_health(). */
static void
report_false(const ShardCallee *callee, const ShardFact *fact)
{
	char *what = psprintf("shard %d of type %d at node %d, epoch %d, version " INT64_FORMAT,
						  fact->shard, fact->type_id, fact->node, fact->epoch, fact->n);

	if (!shard_link_trouble_note(callee->db, NO_WORKER, callee->header.from, SHARD_LINK_FACTS,
								 what))
		return;
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("node %d tells a home that the cluster has not decided", callee->header.from),
			 errdetail("The node said: %s. This was not believed.", what),
			 errhint("The node's voters were lost, the node was put back from a copy, or another "
					 "caller speaks in its name.")));
}

/* What the map says of one fact, which it may correct. True: it is to be taken. */
static bool
judge(const ShardCallee *callee, ShardFact *fact, int64 upto_n, ShardFact *ahead)
{
	ShardFactLearned learned = {.upto_n = upto_n, .era = callee->view.era};

	shard_control_store_home(fact->type_id, fact->shard, &learned);
	switch (shard_fact_judge(fact, &learned))
	{
		case SHARD_FACT_LEARNED:
			/* the node that tells it may know nothing of the move or the set, or lie about them */
			fact->move_id = learned.home.move_id;
			shard_packet_set_fact(fact, &learned.home);
			return true;
		case SHARD_FACT_PAST:
			break;
		case SHARD_FACT_AHEAD:
			if (ahead != NULL && ahead->n == 0)
				*ahead = *fact;
			break;
		case SHARD_FACT_FALSE:
			report_false(callee, fact);
			break;
	}
	return false;
}

/* The facts of a section. */
static int
read_section(const ShardCallee *callee, ShardReader *section, int64 upto_n, ShardFact **facts,
			 int count, ShardFact *ahead)
{
	ShardFact fact;

	while (shard_packet_get_fact(section, &fact))
	{
		if (!judge(callee, &fact, upto_n, ahead))
			continue;
		if (*facts == NULL)
			*facts = MemoryContextAlloc(callee->context, 8 * sizeof(ShardFact));
		else if (count >= 8 && (count & (count - 1)) == 0)
			*facts = repalloc_huge(*facts, 2 * count * sizeof(ShardFact));
		(*facts)[count++] = fact;
		CHECK_FOR_INTERRUPTS();
	}
	if (section->failed)
		shard_damage_raise(psprintf("the call of node %d", callee->header.from), "a decided home",
						   "Nothing of it was taken.");
	return count;
}

/* All that the call tells, with one snapshot. */
static int
read_facts(const ShardCallee *callee, ShardFact **facts, ShardFact *ahead)
{
	ShardSecurity security = {0};
	ShardReader reader = callee->reader;
	ShardReader section;
	int64 upto_n = -1;
	int32 kind;
	int32 flags;
	int count = 0;

	*facts = NULL;
	ahead->n = 0;
	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_begin_system(&security);
	SPI_connect();
	while (shard_packet_get_section(&reader, &kind, &flags, &section))
	{
		if (kind != SHARD_SECTION_FACTS && kind != SHARD_SECTION_REFUSED)
			continue;
		if (upto_n < 0)
			upto_n = shard_control_store_upto();
		/* a refusal is a hint: its home will come here, too */
		count = read_section(callee, &section, upto_n, facts, count,
							 kind == SHARD_SECTION_FACTS ? ahead : NULL);
	}
	SPI_finish();
	shard_security_end(&security);
	PopActiveSnapshot();
	return count;
}

/* Raises that this node has not learned of a home that its caller names. */
static void
report_ahead(const ShardCallee *callee, const ShardFact *ahead)
{
	ereport(ERROR, (errcode(SHARD_ERRCODE_NOT_YET),
					errmsg("node %d has not learned yet where shard %d of type %d is",
						   callee->view.node, ahead->shard, ahead->type_id),
					errdetail("Node %d has it from version " INT64_FORMAT " of the map of the "
							  "cluster; known here is " INT64_FORMAT ".",
							  callee->header.from, ahead->n, callee->view.learned_n)));
}

int
shard_receive_fact_read(ShardCallee *callee, ShardFact **facts)
{
	int64 deadline = shard_clock_now() + SHARD_CALLEE_PATIENCE;

	for (;;)
	{
		ShardFact ahead;
		int count = read_facts(callee, facts, &ahead);

		if (ahead.n == 0)
			return count;
		if (shard_clock_now() > deadline)
			report_ahead(callee, &ahead);
		shard_callee_nap(callee);
	}
}
