/*
 * handoff_test.c
 *		Ownership of a shard: every state against every decided home and every command.
 */
#include "postgres_fe.h"

#include "core/flow/handoff.h"
#include "core/map/era.h"
#include "unit.h"

#define ME 1
#define OTHER 2

/* What a fact does: own state and epoch, then home, epoch and lost of the fact. */
typedef struct FactCase
{
	ShardHomeState state;
	int32 epoch;
	int32 home;
	int32 home_epoch;
	int32 lost;
	ShardHomeEvent event;
} FactCase;

static const FactCase fact_cases[] = {
	/* nothing here */
	{SHARD_HOME_NONE, 0, ME, 0, 0, SHARD_HOME_FIRST},
	{SHARD_HOME_NONE, 0, ME, 3, 3, SHARD_HOME_LOST},
	{SHARD_HOME_NONE, 0, ME, 3, 0, SHARD_HOME_WRONG},
	{SHARD_HOME_NONE, 0, ME, 3, 2, SHARD_HOME_WRONG},
	{SHARD_HOME_NONE, 0, OTHER, 3, 0, SHARD_HOME_NOTHING},
	/* active */
	{SHARD_HOME_ACTIVE, 4, ME, 4, 0, SHARD_HOME_NOTHING},
	{SHARD_HOME_ACTIVE, 4, ME, 3, 0, SHARD_HOME_NOTHING},
	{SHARD_HOME_ACTIVE, 4, ME, 5, 0, SHARD_HOME_BACK},
	{SHARD_HOME_ACTIVE, 4, ME, 6, 0, SHARD_HOME_BACK},
	{SHARD_HOME_ACTIVE, 4, ME, 6, 6, SHARD_HOME_LOST},
	{SHARD_HOME_ACTIVE, 4, OTHER, 5, 0, SHARD_HOME_ELSEWHERE},
	{SHARD_HOME_ACTIVE, 4, OTHER, 4, 0, SHARD_HOME_NOTHING},
	/* first homes of a later era */
	{SHARD_HOME_NONE, 0, ME, 1 << 16, 1 << 16, SHARD_HOME_LOST},
	{SHARD_HOME_ACTIVE, 4, ME, 1 << 16, 1 << 16, SHARD_HOME_BACK},
	{SHARD_HOME_STOPPING, 4, ME, 2 << 16, 2 << 16, SHARD_HOME_BACK},
	{SHARD_HOME_SEALED, 4, ME, 1 << 16, 1 << 16, SHARD_HOME_LOST},
	{SHARD_HOME_ACTIVE, 0, OTHER, 1 << 16, 1 << 16, SHARD_HOME_ELSEWHERE},
	{SHARD_HOME_ACTIVE, 1 << 16, ME, (1 << 16) + 1024, (1 << 16) + 1024, SHARD_HOME_LOST},
	/* stopping */
	{SHARD_HOME_STOPPING, 4, ME, 4, 0, SHARD_HOME_NOTHING},
	{SHARD_HOME_STOPPING, 4, ME, 5, 0, SHARD_HOME_BACK},
	{SHARD_HOME_STOPPING, 4, OTHER, 5, 0, SHARD_HOME_ELSEWHERE},
	/* sealed */
	{SHARD_HOME_SEALED, 4, ME, 4, 0, SHARD_HOME_NOTHING},
	{SHARD_HOME_SEALED, 4, ME, 5, 0, SHARD_HOME_BACK},
	{SHARD_HOME_SEALED, 4, ME, 5, 5, SHARD_HOME_LOST},
	{SHARD_HOME_SEALED, 4, OTHER, 5, 0, SHARD_HOME_ELSEWHERE},
	/* staged for 5 */
	{SHARD_HOME_STAGED, 5, ME, 5, 0, SHARD_HOME_DECIDED},
	{SHARD_HOME_STAGED, 5, ME, 5, 5, SHARD_HOME_DECIDED},
	{SHARD_HOME_STAGED, 5, ME, 6, 0, SHARD_HOME_WRONG},
	{SHARD_HOME_STAGED, 5, ME, 6, 6, SHARD_HOME_LOST},
	{SHARD_HOME_STAGED, 5, OTHER, 4, 0, SHARD_HOME_NOTHING},
	{SHARD_HOME_STAGED, 5, OTHER, 5, 0, SHARD_HOME_NOTHING},
	{SHARD_HOME_STAGED, 5, OTHER, 6, 0, SHARD_HOME_NOTHING},
	/* clearing */
	{SHARD_HOME_CLEARING, 4, ME, 4, 4, SHARD_HOME_LOST},
	{SHARD_HOME_CLEARING, 4, ME, 5, 4, SHARD_HOME_BACK},
	{SHARD_HOME_CLEARING, 4, ME, 6, 6, SHARD_HOME_LOST},
	{SHARD_HOME_CLEARING, 4, ME, 3, 0, SHARD_HOME_NOTHING},
	{SHARD_HOME_CLEARING, 4, OTHER, 5, 0, SHARD_HOME_ELSEWHERE},
	{SHARD_HOME_CLEARING, 4, OTHER, 4, 0, SHARD_HOME_NOTHING},
};

static void
test_facts(void)
{
	for (int i = 0; i < (int) lengthof(fact_cases); i++)
	{
		const FactCase *c = &fact_cases[i];
		ShardOwn own = {.state = c->state, .epoch = c->epoch, .move_id = 7};
		ShardHomeRecord home = {.epoch = c->home_epoch,
								.n_nodes = 1,
								.nodes = {c->home},
								.move_id = c->home_epoch % (1 << 16) == 0 ? 0 : 7,
								.lost = c->lost};
		ShardHomeEvent event = shard_handoff_read(&own, ME, &home, 0);

		is_int(event, c->event, "%s(%d), home %d at %d lost %d",
			   shard_home_machine.state_names[c->state], c->epoch, c->home, c->home_epoch, c->lost);
		if (event != SHARD_HOME_NOTHING && event != SHARD_HOME_WRONG)
			ok(shard_handoff_step(&own, event, home.epoch, 7), "the step is legal");
		ok(!shard_handoff_takes(&own) || own.epoch == Max(c->epoch, c->home_epoch),
		   "takes messages in the newer epoch");
		ok(event != SHARD_HOME_LOST || c->state == SHARD_HOME_NONE ||
			   own.state == SHARD_HOME_CLEARING,
		   "what was here before goes first");
	}
}

/* Commands: answers by state; epoch and move of the question are 4 and 7 where they fit. */
static void
test_commands(void)
{
	ShardShardRef stop = {1, 1, 4, 7};
	ShardShardRef other = {1, 1, 4, 8};
	ShardShardRef import = {1, 1, 5, 7};
	ShardOwn active = {.state = SHARD_HOME_ACTIVE, .epoch = 4};
	ShardOwn stopping = {.state = SHARD_HOME_STOPPING, .epoch = 4, .move_id = 7};
	ShardOwn sealed = {.state = SHARD_HOME_SEALED, .epoch = 4, .move_id = 7};
	ShardOwn staged = {.state = SHARD_HOME_STAGED, .epoch = 5, .move_id = 7};
	ShardOwn clearing = {.state = SHARD_HOME_CLEARING, .epoch = 4};
	ShardOwn none = {0};

	is_int(shard_handoff_stop(&active, 4, &stop), SHARD_HANDOFF_DO, "active stops");
	is_int(shard_handoff_stop(&active, 5, &stop), SHARD_HANDOFF_IGNORE, "a newer fact is known");
	is_int(shard_handoff_stop(&stopping, 4, &stop), SHARD_HANDOFF_DO, "stopping goes on");
	is_int(shard_handoff_stop(&stopping, 4, &other), SHARD_HANDOFF_IGNORE, "another move");
	is_int(shard_handoff_stop(&sealed, 4, &stop), SHARD_HANDOFF_DONE, "sealed says so again");
	is_int(shard_handoff_stop(&staged, 4, &stop), SHARD_HANDOFF_IGNORE, "staged is not home");
	is_int(shard_handoff_stop(&none, 4, &stop), SHARD_HANDOFF_IGNORE, "neither is none");
	is_int(shard_handoff_stop(&clearing, 4, &stop), SHARD_HANDOFF_IGNORE,
		   "what has not begun cannot be stopped");

	is_int(shard_handoff_import(&none, 4, &import), SHARD_HANDOFF_DO, "import");
	is_int(shard_handoff_import(&none, 5, &import), SHARD_HANDOFF_IGNORE, "decided already");
	is_int(shard_handoff_import(&staged, 4, &import), SHARD_HANDOFF_DONE, "staged says so again");
	is_int(shard_handoff_import(&staged, 5, &import), SHARD_HANDOFF_IGNORE,
		   "not when its epoch is another's: it may be half deleted");
	is_int(shard_handoff_import(&clearing, 4, &import), SHARD_HANDOFF_IGNORE, "not while clearing");
	sealed.epoch = 2;
	is_int(shard_handoff_import(&sealed, 4, &import), SHARD_HANDOFF_DO, "over what was left here");
	sealed.epoch = 5;
	is_int(shard_handoff_import(&sealed, 4, &import), SHARD_HANDOFF_IGNORE, "not over newer rows");
	is_int(shard_handoff_import(&active, 4, &import), SHARD_HANDOFF_IGNORE, "not while active");

	/* An import that is repeated late: after M6, after that shard went on, over a newer copy. */
	active.epoch = 5;
	active.move_id = 7;
	is_int(shard_handoff_import(&active, 5, &import), SHARD_HANDOFF_DONE,
		   "runs already: nothing is copied");
	active.epoch = 6;
	is_int(shard_handoff_import(&active, 6, &import), SHARD_HANDOFF_IGNORE,
		   "runs in a newer epoch");
	is_int(shard_handoff_import(&none, 6, &import), SHARD_HANDOFF_IGNORE, "has left again");
	staged.epoch = 6;
	staged.move_id = 9;
	is_int(shard_handoff_import(&staged, 4, &import), SHARD_HANDOFF_IGNORE,
		   "not over a newer copy");
	active.epoch = 4;
	active.move_id = 0;
	staged.epoch = 5;
	staged.move_id = 7;

	sealed.epoch = 4;
	ok(shard_handoff_export(&sealed, &import), "sealed may be copied");
	ok(!shard_handoff_export(&stopping, &import), "stopping may not");
	import.move_id = 8;
	ok(!shard_handoff_export(&sealed, &import), "not for another move");

	ok(shard_handoff_delete(&sealed, 4, ME, OTHER, 5), "old rows may be deleted");
	ok(!shard_handoff_delete(&sealed, 4, ME, OTHER, 4), "not before the decision");
	ok(!shard_handoff_delete(&sealed, 3, ME, OTHER, 5), "not those of another epoch");
	ok(!shard_handoff_delete(&sealed, 4, ME, ME, 5), "nor if the home is here again");
	ok(shard_handoff_delete(&staged, 5, ME, OTHER, 5), "a copy whose epoch is another's");
	ok(!shard_handoff_delete(&staged, 5, ME, OTHER, 4), "not one that waits for the decision");
	ok(!shard_handoff_delete(&staged, 5, ME, ME, 5), "nor one that is decided for this node");
	ok(!shard_handoff_delete(&staged, 4, ME, OTHER, 5), "nor one that is copied anew");
	ok(!shard_handoff_waits_alone(&sealed, 0), "what waited went along with a move");
	ok(!shard_handoff_waits_alone(&sealed, 4), "also if the state was lost when it came here");
	ok(shard_handoff_waits_alone(&sealed, 5), "not where its home was undone, or lost");
	ok(shard_handoff_waits_alone(&clearing, 5), "nor where it began anew once more");
	ok(!shard_handoff_waits_alone(&staged, 6), "a copy has nothing alone");
	ok(shard_handoff_delete(&clearing, 4, ME, ME, 4), "what was here before it began anew");
	ok(!shard_handoff_delete(&clearing, 3, ME, ME, 4), "of that epoch alone");
	ok(!shard_handoff_delete(&active, 4, ME, OTHER, 5), "never those of an active one");
}

/* The table itself: nothing but what a fact had begin anew becomes active without an event of a fact. */
static void
test_machine(void)
{
	const ShardMachine *machine = &shard_home_machine;

	for (int i = 0; i < machine->n_steps; i++)
	{
		const ShardStep *step = &machine->steps[i];

		if (step->to == SHARD_HOME_ACTIVE && step->from != SHARD_HOME_CLEARING)
			ok(step->event <= SHARD_HOME_BACK, "%s: %s by a fact", machine->state_names[step->from],
			   machine->event_names[step->event]);
	}
	is_int(shard_machine_next(machine, SHARD_HOME_SEALED, SHARD_HOME_STOP), -1, "illegal step");
}

int
main(void)
{
	test_facts();
	test_commands();
	test_machine();
	is_int(shard_era_first_epoch(77), SHARD_FIRST_EPOCH, "first homes begin at the first epoch");
	is_int(shard_era_first_epoch((INT64CONST(3) << 32) + 77), 3 << 16,
		   "those of a later era beyond all that the one before had");
	ok(shard_era_first_epoch(INT64CONST(1) << 61) > 0, "whatever the era is");
	is_int(shard_era_carry(3, (INT64CONST(1) << 32) + 77), (1 << 16) + 3,
		   "homes of the era before go on as far above");
	is_int(shard_era_carry((3 << 16) + 3, INT64CONST(1) << 32), (3 << 16) + 4,
		   "and higher in any case");
	is_int(shard_era_carry(PG_INT32_MAX, INT64CONST(1) << 61), PG_INT32_MAX,
		   "there is a last epoch");
	return unit_done();
}
