/*
 * core/flow/handoff.c
 *		Ownership of a shard on one node: the old home's and the new home's side of a move (section 9).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/flow/fact.h"
#include "core/flow/handoff.h"
#include "core/map/era.h"
#include "shard.h"

static const char *const state_names[] = {"none",	"active",	"stopping", "sealed",
										  "staged", "clearing", NULL};

static const char *const event_names[] = {"nothing", "first",	  "lost",  "decided",
										  "back",	 "elsewhere", "stop",  "seal",
										  "import",	 "deleted",	  "wrong", NULL};

static const ShardStep steps[] = {
	{SHARD_HOME_NONE, SHARD_HOME_FIRST, SHARD_HOME_ACTIVE, "begins empty"},
	{SHARD_HOME_NONE, SHARD_HOME_LOST, SHARD_HOME_ACTIVE, "begins empty, marks too"},
	{SHARD_HOME_NONE, SHARD_HOME_IMPORT, SHARD_HOME_STAGED, "rows, stash and marks are copied"},

	{SHARD_HOME_ACTIVE, SHARD_HOME_BACK, SHARD_HOME_ACTIVE, "newer epoch; marks become its base"},
	{SHARD_HOME_ACTIVE, SHARD_HOME_LOST, SHARD_HOME_CLEARING, "rows are deleted first"},
	{SHARD_HOME_ACTIVE, SHARD_HOME_ELSEWHERE, SHARD_HOME_SEALED, "its lease had ended"},
	{SHARD_HOME_ACTIVE, SHARD_HOME_STOP, SHARD_HOME_STOPPING, "marks are written down"},

	{SHARD_HOME_STOPPING, SHARD_HOME_BACK, SHARD_HOME_ACTIVE, "aborted move"},
	{SHARD_HOME_STOPPING, SHARD_HOME_LOST, SHARD_HOME_CLEARING, "rows are deleted first"},
	{SHARD_HOME_STOPPING, SHARD_HOME_ELSEWHERE, SHARD_HOME_SEALED, "its lease had ended"},
	{SHARD_HOME_STOPPING, SHARD_HOME_SEAL, SHARD_HOME_SEALED, "may be copied now"},

	{SHARD_HOME_SEALED, SHARD_HOME_BACK, SHARD_HOME_ACTIVE, "aborted move, newer epoch"},
	{SHARD_HOME_SEALED, SHARD_HOME_LOST, SHARD_HOME_CLEARING, "rows are deleted first"},
	{SHARD_HOME_SEALED, SHARD_HOME_ELSEWHERE, SHARD_HOME_SEALED, "rows are deleted later"},
	{SHARD_HOME_SEALED, SHARD_HOME_IMPORT, SHARD_HOME_STAGED,
	 "returns before its rows were deleted"},
	{SHARD_HOME_SEALED, SHARD_HOME_DELETED, SHARD_HOME_NONE, "the row itself goes last"},

	{SHARD_HOME_STAGED, SHARD_HOME_DECIDED, SHARD_HOME_ACTIVE, "home from now on"},
	{SHARD_HOME_STAGED, SHARD_HOME_LOST, SHARD_HOME_CLEARING, "rows are deleted first"},
	{SHARD_HOME_STAGED, SHARD_HOME_IMPORT, SHARD_HOME_STAGED, "another move, copied again"},
	{SHARD_HOME_STAGED, SHARD_HOME_DELETED, SHARD_HOME_NONE,
	 "aborted move; the row itself goes last"},

	{SHARD_HOME_CLEARING, SHARD_HOME_LOST, SHARD_HOME_CLEARING, "once more"},
	{SHARD_HOME_CLEARING, SHARD_HOME_BACK, SHARD_HOME_CLEARING,
	 "newer epoch; marks become its base"},
	{SHARD_HOME_CLEARING, SHARD_HOME_ELSEWHERE, SHARD_HOME_SEALED, "its lease had ended"},
	{SHARD_HOME_CLEARING, SHARD_HOME_DELETED, SHARD_HOME_ACTIVE, "begins empty"},
};

const ShardMachine shard_home_machine = {
	.name = "home",
	.state_names = state_names,
	.event_names = event_names,
	.steps = steps,
	.n_steps = lengthof(steps),
};

/* Is the home that of an earlier era, of that epoch there, and has it not changed since? */
static bool
is_carried(const ShardHomeRecord *home, int32 epoch)
{
	return home->epoch / SHARD_ERA_EPOCHS > epoch / SHARD_ERA_EPOCHS &&
		   home->epoch % SHARD_ERA_EPOCHS == epoch % SHARD_ERA_EPOCHS;
}

bool
shard_handoff_undone(int32 node, int32 epoch, const ShardHomeRecord *home)
{
	return node != 0 && node != shard_record_home_node(home) &&
		   home->epoch / SHARD_ERA_EPOCHS > epoch / SHARD_ERA_EPOCHS &&
		   home->epoch % SHARD_ERA_EPOCHS <= epoch % SHARD_ERA_EPOCHS;
}

/* The first home of a later era, that has not moved since. */
static bool
is_first_of_era(const ShardHomeRecord *home)
{
	return home->epoch > SHARD_FIRST_EPOCH && home->epoch % SHARD_ERA_EPOCHS == 0 &&
		   home->move_id == 0;
}

/*
 * The home is here. Staged rows of that very epoch and move count first: what was copied for another
 * move belongs to no home (M25). Then a beginning without state; then what never left: only a newer
 * epoch undoes a seal, and without staged rows that can only be an aborted move, since a node that
 * takes the shard back copies it first.
 */
static ShardHomeEvent
read_home_here(const ShardOwn *own, const ShardHomeRecord *home, int32 doubt)
{
	if (own->state == SHARD_HOME_STAGED && own->move_id == home->move_id &&
		(own->epoch == home->epoch || is_carried(home, own->epoch)))
		return SHARD_HOME_DECIDED;
	/* If it was here before, by a decision that was lost with its voters, that was right. */
	if (is_first_of_era(home) && home->epoch > own->epoch &&
		(own->state == SHARD_HOME_ACTIVE || own->state == SHARD_HOME_STOPPING))
		return SHARD_HOME_BACK;
	if (home->lost > 0 && home->lost == home->epoch)
		return SHARD_HOME_LOST;
	/*
	 * The shard had left, by a decision that was undone, and its state has changed elsewhere since: only an operator can
	 * give that state up (N4).
	 */
	if ((own->state == SHARD_HOME_NONE || own->state == SHARD_HOME_SEALED) &&
		doubt > Max(own->epoch, home->lost))
		return SHARD_HOME_WRONG;
	if (home->lost > 0 && is_carried(home, home->lost) &&
		(own->state == SHARD_HOME_NONE || own->epoch < home->lost))
		return SHARD_HOME_LOST;
	if (own->state == SHARD_HOME_NONE && home->lost == 0 &&
		(home->epoch == SHARD_FIRST_EPOCH || is_carried(home, SHARD_FIRST_EPOCH)))
		return SHARD_HOME_FIRST;
	if (own->state == SHARD_HOME_ACTIVE || own->state == SHARD_HOME_STOPPING ||
		own->state == SHARD_HOME_SEALED || own->state == SHARD_HOME_CLEARING)
	{
		if (home->epoch > own->epoch)
			return SHARD_HOME_BACK;
#ifdef SHARD_MUTANT_UNSEAL_SAME_EPOCH
		if (home->epoch == own->epoch && own->state == SHARD_HOME_SEALED)
			return SHARD_HOME_BACK;
#endif
#ifdef SHARD_MUTANT_EQUAL_EPOCH_ACTIVATES
		if (home->epoch == own->epoch && own->state == SHARD_HOME_STOPPING)
			return SHARD_HOME_BACK;
#endif

		/* An old fact after a newer row: nothing is wrong with the row. */
		return SHARD_HOME_NOTHING;
	}
#ifdef SHARD_MUTANT_ACTIVATE_WITHOUT_STAGED
	if (own->state == SHARD_HOME_NONE)
		return SHARD_HOME_FIRST;
#endif
	return SHARD_HOME_WRONG;
}

ShardHomeEvent
shard_handoff_read(const ShardOwn *own, int32 self, const ShardHomeRecord *home, int32 doubt)
{
	if (home->n_nodes > 0 && shard_record_home_node(home) == self)
		return read_home_here(own, home, doubt);

	/* What is staged is of no use once its epoch has another home: its rows wait to be deleted (M23). */
	if (own->state != SHARD_HOME_NONE && own->state != SHARD_HOME_STAGED &&
		home->epoch > own->epoch)
		return SHARD_HOME_ELSEWHERE;
	return SHARD_HOME_NOTHING;
}

bool
shard_handoff_step(ShardOwn *own, ShardHomeEvent event, int32 epoch, int64 move_id)
{
	int next = shard_machine_next(&shard_home_machine, own->state, event);

	if (next < 0)
		return false;
	own->state = next;
	switch (event)
	{
		case SHARD_HOME_FIRST:
		case SHARD_HOME_LOST:
		case SHARD_HOME_BACK:
		case SHARD_HOME_DECIDED:
		case SHARD_HOME_IMPORT:
			own->epoch = epoch;
			own->move_id = move_id;
			break;
		case SHARD_HOME_STOP:
			own->move_id = move_id;
			break;
		default:
			break; /* the epoch stays what it was */
	}
	if (next == SHARD_HOME_NONE)
		memset(own, 0, sizeof(*own));
	return true;
}

ShardHandoffAnswer
shard_handoff_stop(const ShardOwn *own, int32 known_epoch, const ShardShardRef *ref)
{
	if (own->epoch != ref->epoch || known_epoch > ref->epoch)
		return SHARD_HANDOFF_IGNORE;
	switch (own->state)
	{
		case SHARD_HOME_ACTIVE:
			return SHARD_HANDOFF_DO;
		case SHARD_HOME_STOPPING: /* goes on; its seal answers */
			return own->move_id == ref->move_id ? SHARD_HANDOFF_DO : SHARD_HANDOFF_IGNORE;
		case SHARD_HOME_SEALED:
			return own->move_id == ref->move_id ? SHARD_HANDOFF_DONE : SHARD_HANDOFF_IGNORE;
		default:
			return SHARD_HANDOFF_IGNORE;
	}
}

ShardHandoffAnswer
shard_handoff_import(const ShardOwn *own, int32 known_epoch, const ShardShardRef *ref)
{
	if (own->epoch == ref->epoch && own->move_id == ref->move_id &&
		(own->state == SHARD_HOME_ACTIVE ||
		 (own->state == SHARD_HOME_STAGED && known_epoch < ref->epoch)))
		return SHARD_HANDOFF_DONE;

	/* That epoch is decided: an import for it is late. */
	if (known_epoch >= ref->epoch || (own->state != SHARD_HOME_NONE && own->epoch >= ref->epoch))
		return SHARD_HANDOFF_IGNORE;

	/* Still home here in an older epoch: the facts since then must come first. */
	if (own->state == SHARD_HOME_ACTIVE || own->state == SHARD_HOME_STOPPING ||
		own->state == SHARD_HOME_CLEARING)
		return SHARD_HANDOFF_IGNORE;
	return SHARD_HANDOFF_DO;
}

bool
shard_handoff_export(const ShardOwn *own, const ShardShardRef *ref)
{
	return own->state == SHARD_HOME_SEALED && own->move_id == ref->move_id &&
		   own->epoch < ref->epoch;
}

/* A copy that did not become home is none: its source has the messages, or has had them. */
bool
shard_handoff_waits_alone(const ShardOwn *own, int32 below)
{
	return own->state != SHARD_HOME_NONE && own->state != SHARD_HOME_STAGED && own->epoch < below;
}

bool
shard_handoff_delete(const ShardOwn *own, int32 epoch, int32 self, int32 known_node,
					 int32 known_epoch)
{
#ifdef SHARD_MUTANT_DELETE_WITHOUT_EPOCH
	return true;
#endif
	if (own->epoch != epoch)
		return false;
	switch (own->state)
	{
		case SHARD_HOME_SEALED:
			return known_epoch > epoch && known_node != self;
		case SHARD_HOME_STAGED:
#ifdef SHARD_MUTANT_DELETE_STAGED_EARLY
			return true;
#endif

			/* one home per epoch: it cannot be decided any more (M14) */
			return known_epoch >= epoch && known_node != self;
		case SHARD_HOME_CLEARING:
			return true;
		default:
			return false;
	}
}
