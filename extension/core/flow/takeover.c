/*
 * core/flow/takeover.c
 *		Another member of the set goes on with a shard that has replicas: what a fact of a newer epoch makes of what a node has (Q17
 *		to Q21).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/flow/takeover.h"

static const char *const state_names[] = {"none", "backup", "home", "sealed", "out", NULL};

static const char *const event_names[] = {"nothing", "chosen",	"back",	 "follows", "put out",
										  "seal",	 "dropped", "wrong", NULL};

static const ShardStep steps[] = {
	{SHARD_TAKEOVER_NONE, SHARD_TAKEOVER_FOLLOWS, SHARD_TAKEOVER_BACKUP, "has nothing yet"},

	{SHARD_TAKEOVER_BACKUP, SHARD_TAKEOVER_CHOSEN, SHARD_TAKEOVER_HOME,
	 "all that it has becomes real; the first record of the epoch"},
	{SHARD_TAKEOVER_BACKUP, SHARD_TAKEOVER_FOLLOWS, SHARD_TAKEOVER_BACKUP, "promises the epoch"},
	{SHARD_TAKEOVER_BACKUP, SHARD_TAKEOVER_PUT_OUT, SHARD_TAKEOVER_OUT, "stores nothing any more"},

	{SHARD_TAKEOVER_HOME, SHARD_TAKEOVER_CHOSEN, SHARD_TAKEOVER_HOME,
	 "others were home, and have released nothing; the first record of the epoch"},
	{SHARD_TAKEOVER_HOME, SHARD_TAKEOVER_BACK, SHARD_TAKEOVER_HOME, "goes on"},
	{SHARD_TAKEOVER_HOME, SHARD_TAKEOVER_FOLLOWS, SHARD_TAKEOVER_BACKUP,
	 "inputs are parked; its tail goes when its rows were taken anew"},
	{SHARD_TAKEOVER_HOME, SHARD_TAKEOVER_PUT_OUT, SHARD_TAKEOVER_OUT, "inputs are parked"},
	{SHARD_TAKEOVER_HOME, SHARD_TAKEOVER_SEAL, SHARD_TAKEOVER_SEALED,
	 "the last record of the epoch"},

	{SHARD_TAKEOVER_SEALED, SHARD_TAKEOVER_CHOSEN, SHARD_TAKEOVER_HOME,
	 "others were home, and have released nothing; the first record of the epoch"},
	{SHARD_TAKEOVER_SEALED, SHARD_TAKEOVER_BACK, SHARD_TAKEOVER_HOME, "aborted move"},
	{SHARD_TAKEOVER_SEALED, SHARD_TAKEOVER_FOLLOWS, SHARD_TAKEOVER_BACKUP,
	 "inputs are parked; its tail goes when its rows were taken anew"},
	{SHARD_TAKEOVER_SEALED, SHARD_TAKEOVER_PUT_OUT, SHARD_TAKEOVER_OUT, "inputs are parked"},

	{SHARD_TAKEOVER_OUT, SHARD_TAKEOVER_PUT_OUT, SHARD_TAKEOVER_OUT, "waits for the newer set"},
	{SHARD_TAKEOVER_OUT, SHARD_TAKEOVER_DROPPED, SHARD_TAKEOVER_NONE, "the set is whole"},
};

const ShardMachine shard_takeover_machine = {
	.name = "takeover",
	.state_names = state_names,
	.event_names = event_names,
	.steps = steps,
	.n_steps = lengthof(steps),
};

ShardTakeoverEvent
shard_takeover_read(const ShardTakeover *own, int32 self, const ShardHomeRecord *home)
{
	bool member = false;
	ShardTakeoverEvent event = SHARD_TAKEOVER_FOLLOWS;

	if (home->epoch <= own->epoch)
		return SHARD_TAKEOVER_NOTHING;
	for (int i = 0; i < home->n_nodes; i++)
		member |= home->nodes[i] == self;
#ifdef SHARD_MUTANT_FORMER_HOME_DROPS
	member = member && (!shard_takeover_is_home(own) || shard_record_home_node(home) == self);
#endif
	if (!member)
		event = SHARD_TAKEOVER_PUT_OUT;
	else if (shard_record_home_node(home) == self)
		event = shard_takeover_is_home(own) && home->epoch == own->epoch + 1
					? SHARD_TAKEOVER_BACK
					: SHARD_TAKEOVER_CHOSEN;
	if (own->state == SHARD_TAKEOVER_NONE && event == SHARD_TAKEOVER_PUT_OUT)
		return SHARD_TAKEOVER_NOTHING;
	return shard_machine_next(&shard_takeover_machine, own->state, event) < 0 ? SHARD_TAKEOVER_WRONG
																			  : event;
}

bool
shard_takeover_step(ShardTakeover *own, ShardTakeoverEvent event, int32 epoch)
{
	int next = shard_machine_next(&shard_takeover_machine, own->state, event);

	if (next < 0)
		return false;
	own->state = next;
	if (event != SHARD_TAKEOVER_SEAL && event != SHARD_TAKEOVER_DROPPED)
		own->epoch = epoch;
	return true;
}

bool
shard_takeover_takes(const ShardTakeover *own, int32 epoch)
{
#ifdef SHARD_MUTANT_TAKEOVER_OLD_TAGS
	return own->state == SHARD_TAKEOVER_HOME;
#endif
	return own->state == SHARD_TAKEOVER_HOME && own->epoch == epoch;
}

/* What is forgotten was released, though a home that started anew does not know how much was. */
static int64
known_released(const ShardReplicaHome *home)
{
	return Max(home->released, home->kept - 1);
}

int64
shard_takeover_lay_down(const ShardReplicaHome *home, int32 epoch, ShardReplicaCopy *copy)
{
	shard_replica_promise(copy, epoch);
	copy->end = home->end;
	copy->oseq = home->oseq;
	copy->released = Max(copy->released, known_released(home));
	copy->applied = copy->released;
#ifdef SHARD_MUTANT_FORMER_HOME_SHOWS_NOTHING
	return copy->applied;
#endif
	return home->end.turn;
}

int64
shard_takeover_park_from(const ShardReplicaHome *home)
{
	return known_released(home);
}

bool
shard_takeover_may_store(ShardReplicaVerdict verdict, const ShardTurnRecord *record, int64 shows)
{
	return verdict != SHARD_REPLICA_REPLACE || record->turn > shows;
}

int64
shard_takeover_copied(ShardReplicaCopy *copy, const ShardTurnPoint *end, int64 oseq, int64 released)
{
	copy->end = *end;
	copy->oseq = oseq;
	copy->released = Max(copy->released, released);
	copy->applied = copy->released;
#ifdef SHARD_MUTANT_COPY_SHOWS_RELEASED
	return copy->applied;
#endif
	return end->turn;
}

bool
shard_takeover_is_whole(const ShardReplicaHome *home, const ShardHomeRecord *set, int64 first)
{
	return set->n_nodes >= set->want && first > 0 && shard_replica_is_released(home, first);
}

bool
shard_takeover_may_drop(const ShardTakeover *own, bool whole)
{
#ifdef SHARD_MUTANT_FORMER_HOME_DROPS
	return own->state == SHARD_TAKEOVER_OUT;
#endif
	return own->state == SHARD_TAKEOVER_OUT && whole;
}
